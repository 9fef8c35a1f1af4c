/*
   A rank's plan to gather rows of other ranks is made here, of patterns alone, and values follow it. The plan is made in these
   steps: the ranks that may be reached, the layers of rows, one after the other, and then what is sent and kept. The twins read the
   rank's rows where the matrix has them; what passes through the host are lists of the rows near borders.
*/
#include <petsc/private/petscimpl.h>
#include <petscdevice.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "entry.h"
#include "halo_face.h"
#include "sparse/csr_mat.h"

namespace
{

/* What this rank does alone in a step, whose error is agreed upon afterwards. */
template <typename Part>
PetscErrorCode Alone(const Part &part)
{
  PetscErrorCode (*const call)(const Part *) = [](const Part *p) { return (*p)(); };
  return CallGuarded(call, &part);
}

void SortUnique(std::vector<PetscInt> *numbers)
{
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

/* Adds ascending numbers to ascending ones. */
void Merge(const std::vector<PetscInt> &more, std::vector<PetscInt> *numbers)
{
  const size_t middle = numbers->size();
  numbers->insert(numbers->end(), more.begin(), more.end());
  std::inplace_merge(numbers->begin(), numbers->begin() + middle, numbers->end());
}

/* The lists of ascending rows for their owners. */
std::vector<HaloList> ByOwner(PetscMPIInt size, const PetscInt ranges[], const std::vector<PetscInt> &rows)
{
  std::vector<HaloList> lists;
  for (PetscInt row : rows) {
    if (lists.empty() || row >= ranges[lists.back().rank + 1]) lists.push_back({HaloOwner(size, ranges, row), {}});
    lists.back().numbers.push_back(row);
  }
  return lists;
}

/* Numbers in the memory of the factor, as long as this object lives. */
class Numbers {
public:
  Numbers()                           = default;
  Numbers(const Numbers &)            = delete;
  Numbers &operator=(const Numbers &) = delete;
  ~Numbers() { (void)ArrayDestroy(where_, (void **)&data_); }

  const PetscInt *data() const { return data_; }
  size_t          size() const { return size_; }

  /* Adds numbers of the host behind the others. */
  PetscErrorCode Append(PetscMemType where, size_t count, const PetscInt *numbers)
  {
    PetscFunctionBegin;
    if (size_ + count > capacity_) {
      const size_t capacity = 2 * size_ + count;
      PetscInt    *data;
      PetscCall(ArrayCreate(capacity * sizeof(PetscInt), where, (void **)&data));
      std::swap(data, data_);
      const PetscErrorCode copied = ArrayCopy(data_, data, size_ * sizeof(PetscInt), where, where);
      const PetscErrorCode freed  = ArrayDestroy(where_, (void **)&data);
      where_                      = where;
      capacity_                   = capacity;
      PetscCall(copied);
      PetscCall(freed);
    }
    PetscCall(ArrayCopy(data_ + size_, numbers, count * sizeof(PetscInt), where, PETSC_MEMTYPE_HOST));
    size_ += count;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Assign(PetscMemType where, const std::vector<PetscInt> &numbers)
  {
    PetscFunctionBegin;
    size_ = 0;
    PetscCall(Append(where, numbers.size(), numbers.data()));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Gives the array away. */
  PetscInt *Release()
  {
    size_ = capacity_ = 0;
    return std::exchange(data_, nullptr);
  }

private:
  PetscMemType where_ = PETSC_MEMTYPE_HOST;
  PetscInt    *data_  = nullptr;
  size_t       size_ = 0, capacity_ = 0;
};

/* ------------------------------------------ the plan ------------------------------------------ */

class Planner {
public:
  Planner(PCLocalPhase *phase, const HaloWish *wish, Halo *halo) : phase_(phase), wish_(*wish), halo_(halo) { }

  PetscErrorCode Make()
  {
    PetscFunctionBegin;
    PetscCall(HaloReset(halo_));
    PetscCall(Step([this] { return Borrow(); }));
    if (!phase_->stopped) PetscCall(Reach());
    if (!phase_->stopped) PetscCall(Follow());
    if (!phase_->stopped) PetscCall(Step([this] { return Number(); }));
    const PetscErrorCode back = GiveBack();
    PetscCall(back);
    halo_->made = !phase_->stopped;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  template <typename Part>
  PetscErrorCode Step(const Part &part, bool *more = nullptr)
  {
    PetscFunctionBegin;
    PetscCall(PCLocalPhaseStep(phase_, HaloCheckMemory(Alone(part), Size()), more));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  bool OnDevice() const { return PetscMemTypeDevice(halo_->where); }

  PetscErrorCode Borrow()
  {
    PetscInt        count;
    const PetscInt *columns;
    Mat             others;

    PetscFunctionBegin;
    PetscCallMPI(MPI_Comm_size(phase_->comm, &size_));
    PetscCallMPI(MPI_Comm_rank(phase_->comm, &rank_));
    PetscCall(MatGetOwnershipRanges(wish_.A, &ranges_));
    PetscCall(MatGetValuesMemType(wish_.A, &halo_->where));
    PetscCall(MatGetCSR(wish_.A, &own_));
    lent_own_ = true;
    PetscCall(MatGetOtherCSR(wish_.A, &others_));
    lent_others_ = true;
    PetscCall(MatMPIAIJGetSeqAIJ(wish_.A, nullptr, &others, &columns));
    PetscCall(MatGetSize(others, nullptr, &count));
    direct_ = {count, columns};
    PetscCall(columns_.Append(halo_->where, count, columns));
    A_.own     = own_.A;
    A_.others  = others_.A;
    A_.begin   = ranges_[rank_];
    A_.end     = ranges_[rank_ + 1];
    A_.columns = columns_.data();
    PetscCall(LocalIntCast(count, "columns of other ranks", &A_.count));
    PetscCall(LocalIntCast(std::lower_bound(columns, columns + count, A_.begin) - columns, "columns of other ranks", &A_.before));
    PetscCall(LocalIntCast((PetscInt64)A_.own.nnz + A_.others.nnz, "nonzeros", &halo_->nnz));
    if (wish_.pattern) {
      PetscCall(MatCheckLayout(wish_.pattern));
      PetscCall(MatMPIAIJGetSeqAIJ(wish_.pattern, nullptr, &others, &columns));
      PetscCall(MatGetSize(others, nullptr, &count));
      given_ = {count, columns};
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode GiveBack()
  {
    PetscFunctionBegin;
    if (lent_others_) PetscCall(MatRestoreCSR(&others_));
    if (lent_own_) PetscCall(MatRestoreCSR(&own_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The ranks within `overlap` hops. */
  PetscErrorCode Reach()
  {
    std::vector<HaloList> lists, answers;
    std::vector<PetscInt> known, direct;
    bool                  more = true;

    PetscFunctionBegin;
    PetscCall(Step([&] {
      for (const Columns &P : {direct_, given_}) {
        PetscInt next = 0; /* the first row behind those of the last owner */
        for (PetscInt c = 0; c < P.count; c++) {
          if (c && P.number[c] < next) continue;
          direct.push_back(HaloOwner(size_, ranges_, P.number[c]));
          next = ranges_[direct.back() + 1];
        }
      }
      SortUnique(&direct);
      for (PetscInt owner : direct) lists.push_back({(PetscMPIInt)owner, {}});
      return PETSC_SUCCESS;
    }));
    if (phase_->stopped) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(HaloSendLists(phase_, Size(), lists, &answers)); /* a rank learns who has its columns */
    for (PetscInt hop = 1; !phase_->stopped && more; hop++) {
      PetscCall(Step(
        [&] {
          const size_t before = known.size();
          for (const HaloList &answer : answers) {
            if (hop == 1) direct.push_back(answer.rank);
            known.insert(known.end(), answer.numbers.begin(), answer.numbers.end());
          }
          SortUnique(&direct);
          if (hop == 1) known = direct;
          SortUnique(&known);
          known.erase(std::remove(known.begin(), known.end(), (PetscInt)rank_), known.end());
          more = known.size() > before && hop < wish_.overlap;
          lists.clear();
          for (PetscInt neighbour : direct) lists.push_back({(PetscMPIInt)neighbour, known});
          return PETSC_SUCCESS;
        },
        &more));
      if (phase_->stopped || !more) break;
      PetscCall(HaloSendLists(phase_, Size(), lists, &answers));
    }
    if (!phase_->stopped)
      PetscCall(Step([&] {
        for (PetscInt q : known) {
          if (q >= rank_ || ranges_[q] == ranges_[q + 1]) continue;
          if (!bounds_.empty() && bounds_.back() == ranges_[q]) bounds_.back() = ranges_[q + 1];
          else bounds_.insert(bounds_.end(), {ranges_[q], ranges_[q + 1]});
        }
        return PETSC_SUCCESS;
      }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Those of ascending numbers that are rows which may be gathered. */
  std::vector<PetscInt> Allowed(size_t count, const PetscInt *numbers) const
  {
    std::vector<PetscInt> allowed;
    for (size_t b = 0; b < bounds_.size(); b += 2)
      allowed.insert(allowed.end(), std::lower_bound(numbers, numbers + count, bounds_[b]),
                     std::lower_bound(numbers, numbers + count, bounds_[b + 1]));
    return allowed;
  }

  /* Gathers the columns of the rows, layer by layer. */
  PetscErrorCode Follow()
  {
    std::vector<PetscInt> layer; /* the rows to ask for */
    std::vector<HaloList> requests, asked, answers, received;
    bool                  more = true;

    PetscFunctionBegin;
    halo_->layers = wish_.layers;
    PetscCall(Step(
      [&] {
        if (wish_.layers > 0) layer = Allowed(direct_.count, direct_.number);
        const std::vector<PetscInt> named = Allowed(given_.count, given_.number);
        layer.insert(layer.end(), named.begin(), named.end());
        SortUnique(&layer);
        more = !layer.empty();
        return PETSC_SUCCESS;
      },
      &more));
    for (PetscInt depth = 1; !phase_->stopped && more; depth++) {
      PetscCall(Step([&] {
        requests = ByOwner(size_, ranges_, layer);
        return PETSC_SUCCESS;
      }));
      if (!phase_->stopped) PetscCall(HaloSendLists(phase_, Size(), requests, &asked));
      if (!phase_->stopped) PetscCall(Step([&] { return Answer(asked, &answers); }));
      if (!phase_->stopped) PetscCall(HaloSendLists(phase_, Size(), answers, &received));
      if (phase_->stopped) break;
      PetscCall(Step(
        [&] {
          const bool last = depth >= wish_.layers + (wish_.pattern ? 1 : 0);
          PetscFunctionBegin;
          PetscCall(Take(requests, received, last, &layer));
          more = !layer.empty();
          PetscFunctionReturn(PETSC_SUCCESS);
        },
        &more));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The lengths and columns of own rows, for each rank that has asked for some. */
  PetscErrorCode Answer(const std::vector<HaloList> &asked, std::vector<HaloList> *answers)
  {
    const auto list = OnDevice() ? HaloColumns_CUDA : HaloColumns_Host;

    PetscFunctionBegin;
    answers->clear();
    for (const HaloList &request : asked) {
      const LocalInt count = (LocalInt)request.numbers.size();
      Wanted        &known = wanted_[request.rank];
      answers->push_back({request.rank, {}});
      PetscCall(list(&A_, count, request.numbers.data(), &answers->back().numbers));
      Merge(request.numbers, &known.rows);
      known.entries += (PetscInt64)answers->back().numbers.size() - count;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Keeps the rows that have come, and names the rows of the next layer, of which there are none after the last one. */
  PetscErrorCode Take(const std::vector<HaloList> &requests, const std::vector<HaloList> &received, bool last,
                      std::vector<PetscInt> *layer)
  {
    const auto            find   = OnDevice() ? HaloNewRows_CUDA : HaloNewRows_Host;
    const size_t          before = gathered_columns_.size();
    std::vector<PetscInt> found;

    PetscFunctionBegin;
    PetscCheck(received.size() == requests.size(), PETSC_COMM_SELF, PETSC_ERR_PLIB, "A request for rows has no answer");
    Merge(*layer, &halo_->rows);
    for (size_t r = 0; r < received.size(); r++) {
      const std::vector<PetscInt> &rows = requests[r].numbers, &numbers = received[r].numbers;
      const size_t                 entries = numbers.size() - rows.size();
      PetscCheck(gathered_columns_.size() + entries <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, kTooMany, rank_,
                 wish_.type, wish_.type);
      from_[received[r].rank] += (PetscInt64)entries;
      PetscCall(gathered_rows_.Append(halo_->where, rows.size(), rows.data()));
      PetscCall(gathered_lengths_.Append(halo_->where, rows.size(), numbers.data()));
      PetscCall(gathered_columns_.Append(halo_->where, entries, numbers.data() + rows.size()));
    }
    layer->clear();
    PetscCall(rows_.Assign(halo_->where, halo_->rows));
    if (!last)
      PetscCall(find((LocalInt)(gathered_columns_.size() - before), gathered_columns_.data() + before, A_.begin, halo_->First(),
                     rows_.data(), &found));
    *layer = Allowed(found.size(), found.data());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The numbers in the matrix become those of the rank's own, and the blocks of values get their places. */
  PetscErrorCode Number()
  {
    const auto            list   = OnDevice() ? HaloPlaces_CUDA : HaloPlaces_Host;
    const auto            number = OnDevice() ? HaloNumber_CUDA : HaloNumber_Host;
    const auto            ghosts = OnDevice() ? HaloGhosts_CUDA : HaloGhosts_Host;
    const LocalInt        first  = halo_->First();
    const HaloGathered    gathered{first, (LocalInt)gathered_columns_.size(), gathered_rows_.data(), gathered_lengths_.data(),
                                gathered_columns_.data()};
    std::vector<PetscInt> wanted;
    PetscInt64            sent = 0, received = 0;
    LocalInt              end;
    Numbers               bounds;
    HaloBlocks           &blocks = halo_->blocks;

    PetscFunctionBegin;
    halo_->begin = A_.begin;
    halo_->type  = wish_.type;
    PetscCall(LocalIntCast((PetscInt64)halo_->rows.size() + A_.own.n, "rows, with those that it gathers,", &end));
    for (const auto &[rank, known] : wanted_) {
      wanted.insert(wanted.end(), known.rows.begin(), known.rows.end());
      blocks.to.push_back(rank);
      PetscCall(LocalIntCast(sent += known.entries, "entries to send to other ranks", &end));
      blocks.to_end.push_back(end);
    }
    for (const auto &[rank, entries] : from_) {
      blocks.from.push_back(rank);
      blocks.from_end.push_back((LocalInt)(received += entries));
    }
    PetscCall(list(&A_, (LocalInt)wanted.size(), wanted.data(), &end, &halo_->send));
    PetscCall(bounds.Assign(halo_->where, bounds_));
    PetscCall(number(&gathered, rows_.data(), A_.begin, A_.end, (LocalInt)bounds_.size(), bounds.data(), &halo_->foreign,
                     &halo_->keep, &halo_->cut));
    PetscCall(ghosts(&A_, first, rows_.data(), &halo_->ghosts, &halo_->columns));
    PetscCheck(halo_->foreign.nnz <= LOCAL_INT_MAX - halo_->nnz, PETSC_COMM_SELF, PETSC_ERR_SUP, kTooMany, rank_, wish_.type,
               wish_.type);
    halo_->numbers = rows_.Release();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows so far, with the numbers and values of their entries, and the lists in the memory of the factor. */
  HaloSize Size() const
  {
    const size_t entries = gathered_columns_.size(), numbers = entries + 2 * gathered_rows_.size() + rows_.size() + columns_.size();
    return {wish_.type, halo_->First(), entries * (sizeof(LocalInt) + sizeof(PetscScalar)) + numbers * sizeof(PetscInt)};
  }

  static constexpr const char kTooMany[] =
    "The rows that rank %d gathers have more entries than can be counted with 32 bits: lower -pc_%s_overlap or -pc_%s_halo_layers";

  /* The columns of a matrix that other ranks have, ascending. */
  struct Columns {
    PetscInt        count;
    const PetscInt *number;
  };

  /* Own rows that another rank gathers, ascending, and how many entries they have. */
  struct Wanted {
    std::vector<PetscInt> rows;
    PetscInt64            entries = 0;
  };

  PCLocalPhase                     *phase_;
  const HaloWish                   &wish_;
  Halo                             *halo_;
  PetscMPIInt                       rank_ = 0, size_ = 1;
  const PetscInt                   *ranges_ = nullptr;
  CSRMat                            own_{}, others_{};
  bool                              lent_own_ = false, lent_others_ = false;
  HaloRows                          A_{};
  Columns                           direct_{}, given_{};
  std::vector<PetscInt>             bounds_; /* first rows of the ranks that may be reached, and where these end */
  std::map<PetscMPIInt, Wanted>     wanted_;
  std::map<PetscMPIInt, PetscInt64> from_;    /* entries of the rows that come from a rank */
  Numbers                           columns_; /* those of direct_ */
  Numbers                           rows_;    /* those of the plan */
  Numbers                           gathered_rows_, gathered_lengths_, gathered_columns_; /* in the order in which they came */
};

/* ----------------------------------------- the values ----------------------------------------- */

/*
   What travels, and the values of the rank's own rows in the columns of other ranks. They travel in double precision whatever the
   precision of the set-up: it scales A by the roots of both diagonal entries in double and rounds the product, so that a factor of
   rounded values would be another one than that of one rank, and rows that fail in single are computed again from these values.
*/
PetscErrorCode PickOwn(Mat A, Halo *halo, HaloMessage *message)
{
  const bool on_device = PetscMemTypeDevice(halo->where);
  const auto pick      = on_device ? HaloPick_CUDA : HaloPick_Host;
  CSRMat     own, other;

  PetscFunctionBegin;
  PetscCall(HaloMessageCreate(&halo->blocks, FINEPC_DOUBLE, halo->where, message));
  PetscCall(MatGetCSR(A, &own));
  PetscCall(MatGetOtherCSR(A, &other));
  PetscErrorCode code = pick(FINEPC_DOUBLE, halo->blocks.Sent(), halo->send, own.A.nnz, own.A.a, other.A.a, message->send);
  if (!code) code = pick(FINEPC_DOUBLE, halo->ghosts.nnz, halo->columns, other.A.nnz, other.A.a, nullptr, halo->ghosts.a);
  PetscCall(MatRestoreCSR(&other));
  PetscCall(MatRestoreCSR(&own));
  PetscCall(code);
  PetscCall(HaloMessageReady(message));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PickReceived(Halo *halo, HaloMessage *message)
{
  const auto pick = PetscMemTypeDevice(halo->where) ? HaloPick_CUDA : HaloPick_Host;

  PetscFunctionBegin;
  PetscCall(HaloMessageTake(message));
  PetscCall(
    pick(FINEPC_DOUBLE, halo->foreign.nnz, halo->keep, halo->blocks.Received(), message->received, nullptr, halo->foreign.a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GatherValues(PCLocalPhase *phase, Mat A, Halo *halo)
{
  HaloMessage message{};

  PetscFunctionBegin;
  PetscCall(PCLocalPhaseStep(phase, HaloCheckMemory(CallGuarded(PickOwn, A, halo, &message), HaloSizeOf(halo)), nullptr));
  PetscErrorCode code = PETSC_SUCCESS;
  if (!phase->stopped) {
    PetscCall(HaloMessageDeliver(phase, &message));
    code = HaloCheckMemory(CallGuarded(PickReceived, halo, &message), HaloSizeOf(halo));
  }
  PetscCall(HaloMessageDestroy(&message));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode HaloGather(PCLocalPhase *phase, const HaloWish *wish, bool keep, Halo *halo)
{
  bool again = !keep || !halo->made;

  PetscFunctionBegin;
  PetscCall(PCLocalPhaseStep(phase, PETSC_SUCCESS, &again));
  if (!phase->stopped && again) {
    Planner planner(phase, wish, halo);
    PetscCall(planner.Make());
  }
  if (!phase->stopped) PetscCall(GatherValues(phase, wish->A, halo));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloCheckMemory(PetscErrorCode code, const HaloSize &size)
{
  PetscFunctionBegin;
  PetscCheck(code != PETSC_ERR_MEM, PETSC_COMM_SELF, PETSC_ERR_MEM,
             "Memory does not hold the rows of other ranks that this rank gathers and what is made of them (%" LocalInt_FMT
             " rows and %g MB so far): lower -pc_%s_overlap or -pc_%s_halo_layers",
             size.rows, (double)size.bytes / 1e6, size.type, size.type);
  PetscFunctionReturn(code); /* it has been reported */
}

size_t HaloBytes(const Halo *halo)
{
  if (!halo->made) return 0;
  const size_t entries = halo->foreign.nnz + halo->ghosts.nnz, places = entries + halo->blocks.Sent();
  return entries * (sizeof(LocalInt) + sizeof(PetscScalar)) +
         (places + halo->foreign.rows + halo->ghosts.rows + 2) * sizeof(LocalInt) + halo->rows.size() * (2 * sizeof(PetscInt) + 1);
}

HaloSize HaloSizeOf(const Halo *halo)
{
  return {halo->type, halo->First(), HaloBytes(halo)};
}

PetscErrorCode HaloReset(Halo *halo)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(halo->where, (void **)&halo->send));
  PetscCall(ArrayDestroy(halo->where, (void **)&halo->keep));
  PetscCall(ArrayDestroy(halo->where, (void **)&halo->columns));
  PetscCall(ArrayDestroy(halo->where, (void **)&halo->numbers));
  PetscCall(ArrayDestroy(halo->where, (void **)&halo->cut));
  PetscCall(CSRDestroy(&halo->foreign));
  PetscCall(CSRDestroy(&halo->ghosts));
  *halo = Halo{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------------- communication --------------------------------------- */

PetscMPIInt HaloOwner(PetscMPIInt size, const PetscInt ranges[], PetscInt row)
{
  return (PetscMPIInt)(std::upper_bound(ranges, ranges + size + 1, row) - ranges) - 1;
}

PetscErrorCode HaloSendLists(PCLocalPhase *phase, const HaloSize &size, const std::vector<HaloList> &send,
                             std::vector<HaloList> *received)
{
  std::vector<PetscMPIInt> to;
  std::vector<PetscInt>    sizes;
  std::vector<MPI_Request> requests;
  PetscMPIInt              froms = 0, *from = nullptr, tag, count;
  PetscInt                *lengths = nullptr;

  PetscFunctionBegin;
  const PetscErrorCode listed = Alone([&] {
    for (const HaloList &list : send) {
      PetscCall(PetscMPIIntCast((PetscInt)list.numbers.size(), &count));
      to.push_back(list.rank);
      sizes.push_back(count);
    }
    return PETSC_SUCCESS;
  });
  PetscCall(PCLocalPhaseStep(phase, HaloCheckMemory(listed, size), nullptr));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  PetscCall(PetscCommGetNewTag(phase->comm, &tag));
  PetscCall(PetscCommBuildTwoSided(phase->comm, 1, MPIU_INT, (PetscMPIInt)to.size(), to.data(), sizes.data(), &froms, &from,
                                   (void *)&lengths));
  phase->outcome->exchanging    = false;
  const PetscErrorCode prepared = Alone([&] {
    received->clear();
    for (PetscMPIInt k = 0; k < froms; k++) received->push_back({from[k], std::vector<PetscInt>(lengths[k])});
    std::sort(received->begin(), received->end(), [](const HaloList &a, const HaloList &b) { return a.rank < b.rank; });
    requests.reserve(to.size() + froms);
    return PETSC_SUCCESS;
  });
  PetscCall(PCLocalPhaseStep(phase, HaloCheckMemory(prepared, size), nullptr));
  PetscCall(PetscFree(from));
  PetscCall(PetscFree(lengths));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  for (HaloList &list : *received) {
    count = (PetscMPIInt)list.numbers.size();
    requests.push_back(MPI_REQUEST_NULL);
    PetscCallMPI(MPI_Irecv(list.numbers.data(), count, MPIU_INT, list.rank, tag, phase->comm, &requests.back()));
  }
  for (const HaloList &list : send) {
    count = (PetscMPIInt)list.numbers.size();
    requests.push_back(MPI_REQUEST_NULL);
    PetscCallMPI(MPI_Isend(list.numbers.data(), count, MPIU_INT, list.rank, tag, phase->comm, &requests.back()));
  }
  PetscCallMPI(MPI_Waitall((PetscMPIInt)requests.size(), requests.data(), MPI_STATUSES_IGNORE));
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloMessageCreate(const HaloBlocks *blocks, FinePCPrecision precision, PetscMemType where, HaloMessage *message)
{
  const size_t bytes = FinePCPrecisionBytes(precision), sent = blocks->Sent() * bytes, received = blocks->Received() * bytes;

  PetscFunctionBegin;
  message->blocks = blocks;
  message->requests.resize(blocks->to.size() + blocks->from.size());
  message->precision = precision;
  message->where     = where;
  PetscCall(ArrayCreate(sent, where, &message->send));
  PetscCall(ArrayCreate(received, where, &message->received));
  if (PetscMemTypeDevice(where) && !use_gpu_aware_mpi) {
    message->staged_send.resize(sent);
    message->staged_received.resize(received);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What was written on the device before is there for MPI, and an error of the GPU until here is met here. */
static PetscErrorCode Fence()
{
  PetscDeviceContext context;

  PetscFunctionBegin;
  PetscCall(PetscDeviceContextGetCurrentContext(&context));
  PetscCall(PetscDeviceContextSynchronize(context));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static bool IsStaged(const HaloMessage *message)
{
  return PetscMemTypeDevice(message->where) && !use_gpu_aware_mpi;
}

/* MPI counts in int. */
static PetscErrorCode CheckBlocks(const std::vector<LocalInt> &end)
{
  PetscMPIInt count;

  PetscFunctionBegin;
  for (size_t k = 0; k < end.size(); k++) PetscCall(PetscMPIIntCast(end[k] - HaloBlocks::Begin(end, k), &count));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloMessageReady(HaloMessage *message)
{
  const size_t bytes = message->staged_send.size();

  PetscFunctionBegin;
  PetscCall(CheckBlocks(message->blocks->from_end));
  PetscCall(CheckBlocks(message->blocks->to_end));
  if (IsStaged(message))
    PetscCall(ArrayCopy(message->staged_send.data(), message->send, bytes, PETSC_MEMTYPE_HOST, message->where));
  else if (PetscMemTypeDevice(message->where)) PetscCall(Fence());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloMessageDeliver(PCLocalPhase *phase, HaloMessage *message)
{
  const HaloBlocks  &blocks   = *message->blocks;
  const MPI_Datatype type     = message->precision == FINEPC_SINGLE ? MPI_FLOAT : MPI_DOUBLE;
  const size_t       bytes    = FinePCPrecisionBytes(message->precision);
  char              *send     = IsStaged(message) ? message->staged_send.data() : (char *)message->send;
  char              *received = IsStaged(message) ? message->staged_received.data() : (char *)message->received;
  MPI_Request *const requests = message->requests.data();
  PetscMPIInt        tag, posted = 0;

  PetscFunctionBegin;
  phase->outcome->exchanging = true;
  PetscCall(PetscCommGetNewTag(phase->comm, &tag));
  for (size_t k = 0; k < blocks.from.size(); k++) {
    const LocalInt    begin = HaloBlocks::Begin(blocks.from_end, k);
    const PetscMPIInt count = (PetscMPIInt)(blocks.from_end[k] - begin);
    PetscCallMPI(MPI_Irecv(received + begin * bytes, count, type, blocks.from[k], tag, phase->comm, requests + posted++));
  }
  for (size_t k = 0; k < blocks.to.size(); k++) {
    const LocalInt    begin = HaloBlocks::Begin(blocks.to_end, k);
    const PetscMPIInt count = (PetscMPIInt)(blocks.to_end[k] - begin);
    PetscCallMPI(MPI_Isend(send + begin * bytes, count, type, blocks.to[k], tag, phase->comm, requests + posted++));
  }
  PetscCallMPI(MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE));
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloMessageTake(HaloMessage *message)
{
  const char *received = message->staged_received.data();

  PetscFunctionBegin;
  if (IsStaged(message))
    PetscCall(ArrayCopy(message->received, received, message->staged_received.size(), message->where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloMessageDestroy(HaloMessage *message)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(message->where) && message->received) PetscCall(Fence()); /* the staged copy may be under way */
  PetscCall(ArrayDestroy(message->where, &message->send));
  PetscCall(ArrayDestroy(message->where, &message->received));
  *message = HaloMessage{};
  PetscFunctionReturn(PETSC_SUCCESS);
}
