/*
   A rank's plan to gather rows of other ranks is made here, on the host and of patterns alone, and values follow it. The plan is
   made in these steps: the ranks that may be reached, the layers of rows, one after the other, and then what is sent and kept.
*/
#include <petsc/private/petscimpl.h>
#include <petscdevice.h>

#include <algorithm>
#include <iterator>
#include <numeric>

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

bool Has(const std::vector<PetscInt> &sorted, PetscInt number)
{
  return std::binary_search(sorted.begin(), sorted.end(), number);
}

/*
   Where a number is in an ascending list, or -1. A table over the range of the numbers answers at once; if it were many times as
   long as the list, a search does.
*/
class Places {
public:
  explicit Places(const std::vector<PetscInt> &sorted) : sorted_(sorted) { Update(); }

  /* To be called when the list has changed. */
  void Update()
  {
    constexpr size_t kLongest = 16; /* entries of the table for each number */
    table_.clear();
    if (sorted_.empty()) return;
    const size_t range = (size_t)(sorted_.back() - sorted_.front()) + 1;
    if (range > kLongest * sorted_.size()) return;
    table_.assign(range, -1);
    for (size_t k = 0; k < sorted_.size(); k++) table_[sorted_[k] - sorted_.front()] = (LocalInt)k;
  }

  LocalInt Find(PetscInt number) const
  {
    if (sorted_.empty() || number < sorted_.front() || number > sorted_.back()) return -1;
    if (!table_.empty()) return table_[number - sorted_.front()];
    const auto found = std::lower_bound(sorted_.begin(), sorted_.end(), number);
    return *found == number ? (LocalInt)(found - sorted_.begin()) : -1;
  }

private:
  const std::vector<PetscInt> &sorted_;
  std::vector<LocalInt>        table_;
};

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

/* The memory of a plan's arrays from a vector. */
PetscErrorCode Send(const std::vector<LocalInt> &numbers, PetscMemType where, LocalInt **array)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(where, (void **)array));
  PetscCall(ArrayCreate(numbers.size() * sizeof(LocalInt), where, (void **)array));
  PetscCall(ArrayCopy(*array, numbers.data(), numbers.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SendPattern(LocalInt columns, const std::vector<LocalInt> &i, const std::vector<LocalInt> &j, PetscMemType where,
                           CSR *W)
{
  PetscFunctionBegin;
  PetscCall(CSRDestroy(W));
  PetscCall(CSRCreate((LocalInt)i.size() - 1, columns, (LocalInt)j.size(), FINEPC_DOUBLE, where, W));
  PetscCall(ArrayCopy(W->i, i.data(), i.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  PetscCall(ArrayCopy(W->j, j.data(), j.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

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
    PetscCall(PCLocalPhaseStep(phase_, Alone(part), more));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Borrow()
  {
    PetscFunctionBegin;
    PetscCallMPI(MPI_Comm_size(phase_->comm, &size_));
    PetscCallMPI(MPI_Comm_rank(phase_->comm, &rank_));
    PetscCall(MatGetOwnershipRanges(wish_.A, &ranges_));
    PetscCall(MatGetHostPattern(wish_.A, &A_));
    if (wish_.pattern) PetscCall(MatGetHostPattern(wish_.pattern, &S_));
    begin_ = ranges_[rank_];
    end_   = ranges_[rank_ + 1];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode GiveBack()
  {
    PetscFunctionBegin;
    PetscCall(MatRestoreHostPattern(&A_));
    PetscCall(MatRestoreHostPattern(&S_));
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
      for (const HostPattern *P : {&A_, &S_})
        for (PetscInt c = 0; c < P->count; c++) {
          const PetscInt owner = HaloOwner(size_, ranges_, P->columns[c]);
          if (direct.empty() || direct.back() != owner) direct.push_back(owner);
        }
      SortUnique(&direct);
      for (PetscInt owner : direct) lists.push_back({(PetscMPIInt)owner, {}});
      return PETSC_SUCCESS;
    }));
    if (phase_->stopped) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(HaloSendLists(phase_, lists, &answers)); /* a rank learns who has its columns */
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
      PetscCall(HaloSendLists(phase_, lists, &answers));
    }
    if (!phase_->stopped)
      PetscCall(Step([&] {
        std::copy_if(known.begin(), known.end(), std::back_inserter(allowed_), [this](PetscInt q) { return q < rank_; });
        return PETSC_SUCCESS;
      }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Whether the row of another rank may be gathered. */
  bool Allowed(PetscInt row) const { return row < begin_ && Has(allowed_, HaloOwner(size_, ranges_, row)); }

  /* Gathers the columns of the rows, layer by layer. */
  PetscErrorCode Follow()
  {
    std::vector<PetscInt> layer; /* the rows to ask for */
    std::vector<HaloList> requests, asked, answers, received;
    bool                  more = true;

    PetscFunctionBegin;
    Places places(halo_->rows);
    halo_->layers = wish_.pattern ? 0 : wish_.layers;
    PetscCall(Step(
      [&] {
        const HostPattern &P = wish_.pattern ? S_ : A_;
        for (PetscInt c = 0; c < P.count && wish_.layers > 0; c++)
          if (Allowed(P.columns[c])) layer.push_back(P.columns[c]);
        more = !layer.empty();
        return PETSC_SUCCESS;
      },
      &more));
    for (PetscInt depth = 1; !phase_->stopped && more; depth++) {
      PetscCall(Step([&] {
        requests = ByOwner(size_, ranges_, layer);
        return PETSC_SUCCESS;
      }));
      if (!phase_->stopped) PetscCall(HaloSendLists(phase_, requests, &asked));
      if (!phase_->stopped)
        PetscCall(Step([&] {
          answers.clear();
          for (const HaloList &request : asked) answers.push_back({request.rank, Columns(request.numbers)});
          for (const HaloList &request : asked) Remember(request);
          return PETSC_SUCCESS;
        }));
      if (!phase_->stopped) PetscCall(HaloSendLists(phase_, answers, &received));
      if (phase_->stopped) break;
      PetscCall(Step(
        [&] {
          std::vector<PetscInt> next;
          PetscCheck(received.size() == requests.size(), PETSC_COMM_SELF, PETSC_ERR_PLIB, "A request for rows has no answer");
          const auto middle = halo_->rows.insert(halo_->rows.end(), layer.begin(), layer.end());
          std::inplace_merge(halo_->rows.begin(), middle, halo_->rows.end());
          places.Update();
          for (size_t r = 0; r < received.size(); r++) Take(requests[r].numbers, received[r].numbers, places, &next);
          SortUnique(&next);
          layer.clear();
          if (!wish_.pattern && depth < wish_.layers)
            std::copy_if(next.begin(), next.end(), std::back_inserter(layer), [this](PetscInt row) { return Allowed(row); });
          more = !layer.empty();
          return PETSC_SUCCESS;
        },
        &more));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The lengths of own rows, and then their columns, ascending. */
  std::vector<PetscInt> Columns(const std::vector<PetscInt> &rows) const
  {
    std::vector<PetscInt> numbers;
    for (PetscInt row : rows) {
      const PetscInt r = row - begin_;
      numbers.push_back(A_.own_i[r + 1] - A_.own_i[r] + A_.other_i[r + 1] - A_.other_i[r]);
    }
    for (PetscInt row : rows) ForRow(row - begin_, [&](PetscInt column, PetscInt) { numbers.push_back(column); });
    return numbers;
  }

  /* Calls f(column, place) for the entries of an own row in the order of their columns. Places are those of HaloPick_X(). */
  template <typename F>
  void ForRow(PetscInt r, const F &f) const
  {
    const PetscInt own = A_.own_i[A_.n];
    PetscInt       k   = A_.other_i[r];
    for (; k < A_.other_i[r + 1] && A_.columns[A_.other_j[k]] < begin_; k++) f(A_.columns[A_.other_j[k]], own + k);
    for (PetscInt e = A_.own_i[r]; e < A_.own_i[r + 1]; e++) f(begin_ + A_.own_j[e], e);
    for (; k < A_.other_i[r + 1]; k++) f(A_.columns[A_.other_j[k]], own + k);
  }

  /* Rows that another rank has asked for. */
  void Remember(const HaloList &request)
  {
    auto known = std::lower_bound(wanted_.begin(), wanted_.end(), request.rank,
                                  [](const HaloList &list, PetscMPIInt rank) { return list.rank < rank; });
    if (known == wanted_.end() || known->rank != request.rank) known = wanted_.insert(known, {request.rank, {}});
    known->numbers.insert(known->numbers.end(), request.numbers.begin(), request.numbers.end());
    std::sort(known->numbers.begin(), known->numbers.end());
  }

  /* Keeps the columns of the rows, and adds those whose rows are not gathered yet to `next`. */
  void Take(const std::vector<PetscInt> &rows, const std::vector<PetscInt> &numbers, const Places &gathered,
            std::vector<PetscInt> *next)
  {
    size_t at = rows.size();
    for (size_t r = 0; r < rows.size(); r++) {
      gathered_.push_back({rows[r], column_.size(), (size_t)numbers[r]});
      column_.insert(column_.end(), numbers.begin() + at, numbers.begin() + at + numbers[r]);
      at += numbers[r];
    }
    for (size_t k = rows.size(); k < numbers.size(); k++)
      if (numbers[k] < begin_ && gathered.Find(numbers[k]) < 0) next->push_back(numbers[k]);
  }

  /* The numbers in the matrix become those of the rank's own, and the blocks of values get their places. */
  PetscErrorCode Number()
  {
    const LocalInt        first = halo_->First();
    std::vector<LocalInt> send, keep, i(1, 0), j, ghost_i(1, 0), ghost_j, ghost_place, local(A_.count, -1);
    LocalInt              end;
    HaloBlocks           &blocks = halo_->blocks;
    const Places          places(halo_->rows);

    PetscFunctionBegin;
    halo_->begin = begin_;
    halo_->type  = wish_.type;
    PetscCall(LocalIntCast((PetscInt64)A_.own_i[A_.n] + A_.other_i[A_.n], "nonzeros", &halo_->nnz));
    PetscCall(LocalIntCast((PetscInt64)halo_->rows.size() + A_.n, "rows, with those that it gathers,", &end));
    PetscCall(MatGetValuesMemType(wish_.A, &halo_->where));
    for (const HaloList &list : wanted_) {
      for (PetscInt row : list.numbers) ForRow(row - begin_, [&](PetscInt, PetscInt place) { send.push_back((LocalInt)place); });
      blocks.to.push_back(list.rank);
      PetscCall(LocalIntCast((PetscInt64)send.size(), "entries to send to other ranks", &end));
      blocks.to_end.push_back(end);
    }
    std::sort(gathered_.begin(), gathered_.end(), [](const Gathered &a, const Gathered &b) { return a.row < b.row; });
    halo_->cut.assign(first, 0);
    LocalInt place = 0;
    for (LocalInt row = 0; row < first; row++) {
      const Gathered   &g     = gathered_[row];
      const PetscMPIInt owner = HaloOwner(size_, ranges_, g.row);
      if (blocks.from.empty() || blocks.from.back() != owner) {
        blocks.from.push_back(owner);
        blocks.from_end.push_back(0);
      }
      PetscCheck(column_.size() <= (size_t)LOCAL_INT_MAX && j.size() <= (size_t)(LOCAL_INT_MAX - halo_->nnz), PETSC_COMM_SELF,
                 PETSC_ERR_SUP,
                 "The rows that rank %d gathers have more entries than can be counted with 32 bits: lower -pc_%s_overlap or "
                 "-pc_%s_halo_layers",
                 rank_, wish_.type, wish_.type);
      for (size_t k = 0; k < g.length; k++, place++) {
        const PetscInt column = column_[g.begin + k];
        const LocalInt to     = column >= begin_ && column < end_ ? first + (LocalInt)(column - begin_) : places.Find(column);
        if (to < 0 && Allowed(column)) halo_->cut[row] = 1;
        if (to < 0) continue;
        j.push_back(to);
        keep.push_back(place);
      }
      i.push_back((LocalInt)j.size());
      blocks.from_end.back() = place;
    }
    for (PetscInt c = 0; c < A_.count; c++) local[c] = places.Find(A_.columns[c]);
    for (PetscInt r = 0; r < A_.n; r++) {
      for (PetscInt k = A_.other_i[r]; k < A_.other_i[r + 1]; k++)
        if (local[A_.other_j[k]] >= 0) {
          ghost_j.push_back(local[A_.other_j[k]]);
          ghost_place.push_back((LocalInt)k);
        }
      ghost_i.push_back((LocalInt)ghost_j.size());
    }
    PetscCall(HaloWithinMemory(wish_.type, first, j.size() * (sizeof(LocalInt) + sizeof(PetscScalar)), [&] {
      PetscFunctionBegin;
      PetscCall(::Send(send, halo_->where, &halo_->send));
      PetscCall(::Send(keep, halo_->where, &halo_->keep));
      PetscCall(::Send(ghost_place, halo_->where, &halo_->columns));
      PetscCall(SendPattern(first + (LocalInt)A_.n, i, j, halo_->where, &halo_->foreign));
      PetscCall(SendPattern(first, ghost_i, ghost_j, halo_->where, &halo_->ghosts));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A row of another rank, and where its columns are in column_. */
  struct Gathered {
    PetscInt row;
    size_t   begin, length;
  };

  PCLocalPhase         *phase_;
  const HaloWish       &wish_;
  Halo                 *halo_;
  PetscMPIInt           rank_ = 0, size_ = 1;
  const PetscInt       *ranges_ = nullptr;
  PetscInt              begin_ = 0, end_ = 0;
  HostPattern           A_{}, S_{};
  std::vector<PetscInt> allowed_; /* ranks, ascending */
  std::vector<HaloList> wanted_;  /* own rows that other ranks gather, ascending */
  std::vector<Gathered> gathered_;
  std::vector<PetscInt> column_;
};

/* ----------------------------------------- the values ----------------------------------------- */

/* What travels, and the values of the rank's own rows in the columns of other ranks. */
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
  PetscCall(PCLocalPhaseStep(phase, CallGuarded(PickOwn, A, halo, &message), nullptr));
  PetscErrorCode code = PETSC_SUCCESS;
  if (!phase->stopped) {
    PetscCall(HaloMessageDeliver(phase, &message));
    code = CallGuarded(PickReceived, halo, &message);
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

PetscErrorCode HaloWithinMemory(const char type[], LocalInt rows, size_t bytes, const std::function<PetscErrorCode()> &allocates)
{
  PetscErrorCode (*const call)(const std::function<PetscErrorCode()> *) = [](const std::function<PetscErrorCode()> *f) {
    return (*f)();
  };

  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(PetscReturnErrorHandler, nullptr)); /* the error below says what there is to say */
  const PetscErrorCode code = CallGuarded(call, &allocates);
  PetscCall(PetscPopErrorHandler());
  PetscCheck(code != PETSC_ERR_MEM, PETSC_COMM_SELF, PETSC_ERR_MEM,
             "Memory does not hold the %" LocalInt_FMT
             " rows of other ranks that this rank gathers (%g MB) and what is made of them: "
             "lower -pc_%s_overlap or -pc_%s_halo_layers",
             rows, (double)bytes / 1e6, type, type);
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t HaloBytes(const Halo *halo)
{
  if (!halo->made) return 0;
  const size_t entries = halo->foreign.nnz + halo->ghosts.nnz, places = entries + halo->blocks.Sent();
  return entries * (sizeof(LocalInt) + sizeof(PetscScalar)) +
         (places + halo->foreign.rows + halo->ghosts.rows + 2) * sizeof(LocalInt);
}

PetscErrorCode HaloReset(Halo *halo)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(halo->where, (void **)&halo->send));
  PetscCall(ArrayDestroy(halo->where, (void **)&halo->keep));
  PetscCall(ArrayDestroy(halo->where, (void **)&halo->columns));
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

PetscErrorCode HaloSendLists(PCLocalPhase *phase, const std::vector<HaloList> &send, std::vector<HaloList> *received)
{
  std::vector<PetscMPIInt> to;
  std::vector<PetscInt>    sizes;
  std::vector<MPI_Request> requests;
  PetscMPIInt              froms = 0, *from = nullptr, tag, count;
  PetscInt                *lengths = nullptr;

  PetscFunctionBegin;
  PetscCall(PCLocalPhaseStep(phase, Alone([&] {
                               for (const HaloList &list : send) {
                                 PetscCall(PetscMPIIntCast((PetscInt)list.numbers.size(), &count));
                                 to.push_back(list.rank);
                                 sizes.push_back(count);
                               }
                               return PETSC_SUCCESS;
                             }),
                             nullptr));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  PetscCall(PetscCommGetNewTag(phase->comm, &tag));
  PetscCall(PetscCommBuildTwoSided(phase->comm, 1, MPIU_INT, (PetscMPIInt)to.size(), to.data(), sizes.data(), &froms, &from,
                                   (void *)&lengths));
  phase->outcome->exchanging = false;
  PetscCall(PCLocalPhaseStep(phase, Alone([&] {
                               received->clear();
                               for (PetscMPIInt k = 0; k < froms; k++)
                                 received->push_back({from[k], std::vector<PetscInt>(lengths[k])});
                               std::sort(received->begin(), received->end(),
                                         [](const HaloList &a, const HaloList &b) { return a.rank < b.rank; });
                               requests.reserve(to.size() + froms);
                               return PETSC_SUCCESS;
                             }),
                             nullptr));
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
