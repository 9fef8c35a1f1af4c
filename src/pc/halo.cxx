/*
   A rank's plan to gather rows of other ranks is made here, of patterns alone, and values follow it. The plan is made in these
   steps: the ranks that may be reached, the rows and their lengths, and then, now that the sizes are known, their columns. The
   twins read the rank's rows where the matrix has them; what passes through the host are lists of the rows near borders.
*/
#include <petsc/private/petscimpl.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "entry.h"
#include "halo_face.h"
#include "sparse/csr_mat.h"

namespace
{

/* What this rank does alone in a step, whose error is agreed upon afterwards. */
template <typename Part>
PetscErrorCode Alone_Halo(const Part &part)
{
  PetscErrorCode (*const call)(const Part *) = [](const Part *p) { return (*p)(); };
  return CallGuarded(call, &part);
}

/* Adds ascending numbers to ascending ones. */
void Merge_Halo(const std::vector<PetscInt> &more, std::vector<PetscInt> *numbers)
{
  const size_t middle = numbers->size();
  numbers->insert(numbers->end(), more.begin(), more.end());
  std::inplace_merge(numbers->begin(), numbers->begin() + middle, numbers->end());
}

/* Rows of other ranks, ascending, and for each the layers that are to be gathered from there on, its own among them. */
struct Seeds {
  std::vector<PetscInt> rows, depth;
};

/* The lists of seeds for these ranks, which ascend and own the rows, with the rows first and then their depths. */
std::vector<HaloList> ByOwner(const std::vector<PetscMPIInt> &owners, const PetscInt ranges[], const Seeds &seeds)
{
  std::vector<HaloList> lists;
  for (PetscMPIInt owner : owners) {
    const auto begin   = std::lower_bound(seeds.rows.begin(), seeds.rows.end(), ranges[owner]),
               end     = std::lower_bound(begin, seeds.rows.end(), ranges[owner + 1]);
    const size_t first = begin - seeds.rows.begin(), last = end - seeds.rows.begin();
    lists.push_back({owner, std::vector<PetscInt>(begin, end)});
    lists.back().numbers.insert(lists.back().numbers.end(), seeds.depth.begin() + first, seeds.depth.begin() + last);
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

  PetscErrorCode Assign(PetscMemType where, size_t count, const PetscInt *numbers)
  {
    PetscFunctionBegin;
    PetscCall(ArrayDestroy(where_, (void **)&data_));
    size_  = 0;
    where_ = where;
    PetscCall(ArrayCreate(count * sizeof(PetscInt), where, (void **)&data_));
    PetscCall(ArrayCopy(data_, numbers, count * sizeof(PetscInt), where, PETSC_MEMTYPE_HOST));
    size_ = count;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Gives the array away. */
  PetscInt *Release()
  {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

private:
  PetscMemType where_ = PETSC_MEMTYPE_HOST;
  PetscInt    *data_  = nullptr;
  size_t       size_  = 0;
};

/* ------------------------------------------ the plan ------------------------------------------ */

class Planner {
public:
  Planner(PCLocalPhase *phase, const HaloWish *wish, Halo *halo) : phase_(phase), wish_(*wish), halo_(halo) { }

  PetscErrorCode Make()
  {
    PetscFunctionBegin;
    PetscCall(HaloReset(halo_));
    PetscCall(Reach());
    if (!phase_->stopped) PetscCall(Follow());
    if (!phase_->stopped) PetscCall(Number());
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
    PetscCall(PCLocalPhaseStep(phase_, HaloCheckMemory(Alone_Halo(part), Size()), more));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A step after which all ranks send lists, if one of them wants more. */
  template <typename Part>
  PetscErrorCode StepAndSend(const Part &part, const std::vector<PetscMPIInt> *senders, const std::vector<HaloList> &send,
                             std::vector<HaloList> *received, bool *more = nullptr)
  {
    PetscFunctionBegin;
    const PetscErrorCode code = Alone_Halo(part);
    PetscCall(HaloSendLists(phase_, code, Size(), senders, send, received, more));
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
    PetscCall(columns_.Assign(halo_->where, count, columns));
    A_.own     = own_.A;
    A_.others  = others_.A;
    A_.begin   = ranges_[rank_];
    A_.end     = ranges_[rank_ + 1];
    A_.columns = columns_.data();
    PetscCall(LocalIntCast(count, "columns of other ranks", &A_.count));
    PetscCall(LocalIntCast(std::lower_bound(columns, columns + count, A_.begin) - columns, "columns of other ranks", &A_.before));
    PetscCall(LocalIntCast((PetscInt64)A_.own.nnz + A_.others.nnz, "nonzeros", &halo_->nnz));
    if (wish_.pattern) {
      PetscCall(CheckPattern());
      PetscCall(MatMPIAIJGetSeqAIJ(wish_.pattern, nullptr, &others, &columns));
      PetscCall(MatGetSize(others, nullptr, &count));
      given_ = {count, columns};
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Columns of another matrix than this could be those of no rank. */
  PetscErrorCode CheckPattern() const
  {
    int same;

    PetscFunctionBegin;
    PetscCall(HaloCheckPattern(wish_.pattern, A_.end - A_.begin, wish_.setter));
    PetscCallMPI(MPI_Comm_compare(PetscObjectComm((PetscObject)wish_.pattern), PetscObjectComm((PetscObject)wish_.A), &same));
    PetscCheck(
      same == MPI_IDENT || same == MPI_CONGRUENT, PETSC_COMM_SELF, PETSC_ERR_ARG_NOTSAMECOMM,
      "The matrix given to %s() has another communicator than the operator: with -pc_%s_overlap it must have the same one, "
      "as its entries are in columns of other ranks",
      wish_.setter, wish_.type);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode GiveBack()
  {
    PetscFunctionBegin;
    if (lent_others_) PetscCall(MatRestoreCSR(&others_));
    if (lent_own_) PetscCall(MatRestoreCSR(&own_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Borrows the rows, and finds the ranks within `overlap` hops. */
  PetscErrorCode Reach()
  {
    std::vector<HaloList>    lists, answers;
    std::vector<PetscInt>    direct;
    std::vector<PetscMPIInt> neighbours;
    bool                     more = true;

    PetscFunctionBegin;
    const auto with_columns = [&] {
      PetscFunctionBegin;
      PetscCall(Borrow());
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
      PetscFunctionReturn(PETSC_SUCCESS);
    };
    PetscCall(StepAndSend(with_columns, nullptr, lists, &answers)); /* a rank learns who has its columns */
    for (PetscInt hop = 1; !phase_->stopped && more; hop++)
      PetscCall(StepAndSend(
        [&] {
          const size_t before = reached_.size();
          for (const HaloList &answer : answers) {
            if (hop == 1) direct.push_back(answer.rank);
            reached_.insert(reached_.end(), answer.numbers.begin(), answer.numbers.end());
          }
          SortUnique(&direct);
          if (hop == 1) reached_ = direct;
          SortUnique(&reached_);
          reached_.erase(std::remove(reached_.begin(), reached_.end(), (PetscInt)rank_), reached_.end());
          more = reached_.size() > before && hop < wish_.overlap;
          lists.clear();
          neighbours.clear();
          for (PetscInt neighbour : direct) {
            lists.push_back({(PetscMPIInt)neighbour, reached_});
            neighbours.push_back((PetscMPIInt)neighbour);
          }
          return PETSC_SUCCESS;
        },
        &neighbours, lists, &answers, &more));
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

  /*
     Finds the rows to gather. An owner follows the couplings between its own rows to the end by itself. Where they lead to a third
     rank, it reports that to the rank that has asked, which asks the third one next. So there are as many rounds as paths change
     from rank to rank, and not as many as there are layers.
  */
  PetscErrorCode Follow()
  {
    Seeds                 seeds;
    std::vector<HaloList> requests, asked, answers, received;
    bool                  more = true;

    PetscFunctionBegin;
    halo_->layers = wish_.layers;
    PetscCall(StepAndSend(
      [&] {
        for (PetscInt q : reached_) {
          (q < rank_ ? halo_->lower : halo_->higher).push_back((PetscMPIInt)q);
          if (q >= rank_ || ranges_[q] == ranges_[q + 1]) continue;
          if (!bounds_.empty() && bounds_.back() == ranges_[q]) bounds_.back() = ranges_[q + 1];
          else bounds_.insert(bounds_.end(), {ranges_[q], ranges_[q + 1]});
        }
        if (wish_.layers > 0) seeds.rows = Allowed(direct_.count, direct_.number);
        const std::vector<PetscInt> named = Allowed(given_.count, given_.number);
        seeds.rows.insert(seeds.rows.end(), named.begin(), named.end());
        SortUnique(&seeds.rows);
        seeds.depth.assign(seeds.rows.size(), wish_.layers + (wish_.pattern ? 1 : 0));
        first_   = seeds.rows;
        more     = !seeds.rows.empty();
        requests = ByOwner(halo_->lower, ranges_, seeds);
        return PETSC_SUCCESS;
      },
      &halo_->higher, requests, &asked, &more));
    while (!phase_->stopped && more) {
      PetscCall(StepAndSend([&] { return Answer(asked, &answers); }, &halo_->lower, answers, &received));
      if (phase_->stopped) break;
      PetscCall(StepAndSend(
        [&] {
          PetscFunctionBegin;
          PetscCall(Take(received, &seeds));
          more     = !seeds.rows.empty();
          requests = ByOwner(halo_->lower, ranges_, seeds);
          PetscFunctionReturn(PETSC_SUCCESS);
        },
        &halo_->higher, requests, &asked, &more));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     For each rank that has asked: how many rows it has not received yet, these rows, the lengths of these rows, and then columns of
     other ranks that its couplings lead to, and their depths.
  */
  PetscErrorCode Answer(const std::vector<HaloList> &asked, std::vector<HaloList> *answers)
  {
    const auto            follow = OnDevice() ? HaloFollow_CUDA : HaloFollow_Host;
    const auto            list   = OnDevice() ? HaloLengths_CUDA : HaloLengths_Host;
    std::vector<PetscInt> reached, fresh, lengths;
    std::vector<LocalInt> onward;

    PetscFunctionBegin;
    answers->clear();
    for (const HaloList &request : asked) {
      const size_t    count = request.numbers.size() / 2;
      const PetscInt *rows = request.numbers.data(), *depth = rows + count;
      Wanted         &wanted = wanted_[request.rank];

      onward.clear();
      if (std::any_of(depth, depth + count, [](PetscInt d) { return d > 1; }))
        PetscCall(follow(&A_, (LocalInt)count, rows, depth, &reached, &onward));
      else reached.assign(rows, rows + count);
      fresh.clear();
      std::set_difference(reached.begin(), reached.end(), wanted.rows.begin(), wanted.rows.end(), std::back_inserter(fresh));
      PetscCall(list(&A_, (LocalInt)fresh.size(), fresh.data(), &lengths));
      Merge_Halo(fresh, &wanted.rows);
      for (PetscInt length : lengths) wanted.entries += length;
      answers->push_back({request.rank, {(PetscInt)fresh.size()}});
      std::vector<PetscInt> &answer = answers->back().numbers;
      answer.insert(answer.end(), fresh.begin(), fresh.end());
      answer.insert(answer.end(), lengths.begin(), lengths.end());
      const size_t before = answer.size();
      for (size_t c = 0; c < onward.size(); c++)
        if (onward[c] > 0 && direct_.number[c] < ranges_[request.rank]) answer.push_back(direct_.number[c]);
      for (size_t c = 0, last = answer.size(); before < last && c < onward.size(); c++)
        if (onward[c] > 0 && direct_.number[c] < ranges_[request.rank]) answer.push_back(onward[c]);
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Keeps the rows that have come, and names those to ask for next: none, if none has been reached with a larger depth. */
  PetscErrorCode Take(const std::vector<HaloList> &received, Seeds *seeds)
  {
    std::map<PetscInt, PetscInt> next;

    PetscFunctionBegin;
    PetscCheck(received.size() == halo_->lower.size(), PETSC_COMM_SELF, PETSC_ERR_PLIB, "A request for rows has no answer");
    for (const HaloList &list : received) {
      const PetscInt *rows = list.numbers.data() + 1, count = list.numbers[0], *lengths = rows + count, *columns = lengths + count;
      const size_t    onward = (list.numbers.size() - 1 - 2 * (size_t)count) / 2;

      rows_.insert(rows_.end(), rows, rows + count);
      lengths_.insert(lengths_.end(), lengths, lengths + count);
      for (PetscInt k = 0; k < count; k++) from_[list.rank] += lengths[k];
      for (size_t k = 0; k < onward; k++) {
        PetscInt &depth = next[columns[k]];
        depth           = PetscMax(depth, columns[onward + k]);
      }
    }
    *seeds = Seeds{};
    for (const auto &[row, depth] : next) {
      const size_t bound = std::upper_bound(bounds_.begin(), bounds_.end(), row) - bounds_.begin();
      if (bound % 2 == 0 || std::binary_search(first_.begin(), first_.end(), row)) continue; /* these had the largest depth */
      PetscInt &before = asked_[row];
      if (before >= depth) continue;
      before = depth;
      seeds->rows.push_back(row);
      seeds->depth.push_back(depth);
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows in the order of their numbers. */
  void Order()
  {
    std::vector<size_t>   order(rows_.size());
    std::vector<PetscInt> lengths(rows_.size());

    if (!std::is_sorted(rows_.begin(), rows_.end())) {
      std::iota(order.begin(), order.end(), (size_t)0);
      std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return rows_[a] < rows_[b]; });
      for (size_t k = 0; k < order.size(); k++) lengths[k] = lengths_[order[k]];
      lengths_.swap(lengths);
      std::sort(rows_.begin(), rows_.end());
    }
    halo_->rows.swap(rows_);
  }

  /* Now that the sizes are known: the blocks of the entries, and the columns of those that are sent. */
  PetscErrorCode Send(HaloMessage *message)
  {
    const auto            list = OnDevice() ? HaloPlaces_CUDA : HaloPlaces_Host;
    const auto            name = OnDevice() ? HaloColumns_CUDA : HaloColumns_Host;
    std::vector<PetscInt> wanted;
    PetscInt64            sent = 0, received = 0;
    LocalInt              end;
    Neighbours           &blocks = halo_->blocks;

    PetscFunctionBegin;
    Order();
    halo_->begin = A_.begin;
    halo_->type  = wish_.type;
    PetscCall(LocalIntCast((PetscInt64)halo_->rows.size() + A_.own.n, "rows, with those that it gathers,", &end));
    for (const auto &[rank, of_rank] : wanted_) {
      if (!of_rank.entries) continue;
      wanted.insert(wanted.end(), of_rank.rows.begin(), of_rank.rows.end());
      const LocalInt begin = (LocalInt)sent;
      PetscCall(LocalIntCast(sent += of_rank.entries, "entries to send to other ranks", &end));
      blocks.to.push_back({rank, begin, end});
    }
    for (const auto &[rank, entries] : from_) received += entries;
    PetscCheck(received <= LOCAL_INT_MAX - halo_->nnz, PETSC_COMM_SELF, PETSC_ERR_SUP, kTooMany, rank_, wish_.type, wish_.type);
    received = 0;
    for (const auto &[rank, entries] : from_) {
      if (!entries) continue;
      blocks.from.push_back({rank, (LocalInt)received, (LocalInt)(received + entries)});
      received += entries;
    }
    PetscCall(CheckRoom());
    PetscCall(list(&A_, (LocalInt)wanted.size(), wanted.data(), &end, &halo_->send));
    PetscCall(HaloMessageCreate(blocks, MPIU_INT, sizeof(PetscInt), message));
    PetscCall(name(&A_, halo_->Sent(), halo_->send, (PetscInt *)message->send));
    PetscCall(message->delivery.Ready());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     The memory that is sure to be needed: the gathered entries with what is made of them, and the copy of the rank's own rows
     beside them. It is compared with what the GPU has left before any of it is made; on the host an allocation that fails tells.
  */
  PetscErrorCode CheckRoom()
  {
    const size_t entry = sizeof(LocalInt) + sizeof(PetscScalar), received = (size_t)halo_->Received(),
                 needed = received * (sizeof(PetscInt) + sizeof(LocalInt) + 2 * entry) + (size_t)halo_->nnz * entry;
    size_t free;

    PetscFunctionBegin;
    if (!OnDevice() || !halo_->First()) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(DeviceFreeBytes_CUDA(&free));
    PetscCheck(needed <= free, PETSC_COMM_SELF, PETSC_ERR_MEM,
               "The rows of other ranks that rank %d gathers, %" LocalInt_FMT " with %" LocalInt_FMT
               " entries, need %g MB, but its GPU has %g MB left",
               rank_, halo_->First(), halo_->Received(), (double)needed / 1e6, (double)free / 1e6);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The numbers in the matrix become those of the rank's own. */
  PetscErrorCode Receive(HaloMessage *message)
  {
    const auto     number = OnDevice() ? HaloNumber_CUDA : HaloNumber_Host;
    const auto     ghosts = OnDevice() ? HaloGhosts_CUDA : HaloGhosts_Host;
    const LocalInt first  = halo_->First();
    Numbers        rows, lengths, bounds;

    PetscFunctionBegin;
    PetscCall(message->delivery.Take());
    PetscCall(rows.Assign(halo_->where, halo_->rows.size(), halo_->rows.data()));
    PetscCall(lengths.Assign(halo_->where, lengths_.size(), lengths_.data()));
    PetscCall(bounds.Assign(halo_->where, bounds_.size(), bounds_.data()));
    const HaloGathered gathered{first, halo_->Received(), rows.data(), lengths.data(), (const PetscInt *)message->received};
    PetscCall(
      number(&gathered, A_.begin, A_.end, (LocalInt)bounds_.size(), bounds.data(), &halo_->foreign, &halo_->keep, &halo_->cut));
    PetscCall(ghosts(&A_, first, rows.data(), &halo_->ghosts, &halo_->columns));
    halo_->numbers = rows.Release();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Gathers the columns of the rows, in the memory of the factor. */
  PetscErrorCode Number()
  {
    HaloMessage message{halo_->where};

    PetscFunctionBegin;
    PetscCall(Step([&] { return Send(&message); }));
    if (!phase_->stopped) {
      PetscCall(HaloMessageDeliver(phase_, &message));
      PetscCall(Step([&] { return Receive(&message); }));
    }
    PetscCall(HaloMessageDestroy(&message));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows so far, with the numbers and values of their entries. */
  HaloSize Size() const
  {
    const size_t rows    = PetscMax(rows_.size(), halo_->rows.size());
    PetscInt64   entries = 0;
    for (const auto &from : from_) entries += from.second;
    return {wish_.type, (LocalInt)rows,
            (size_t)entries * (sizeof(LocalInt) + sizeof(PetscScalar) + sizeof(PetscInt)) + 2 * rows * sizeof(PetscInt)};
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
  std::vector<PetscInt>             reached_; /* ranks, ascending */
  std::vector<PetscInt>             bounds_;  /* first rows of the ranks that may be reached, and where these end */
  std::map<PetscMPIInt, Wanted>     wanted_;
  std::map<PetscMPIInt, PetscInt64> from_;           /* entries of the rows that come from a rank */
  Numbers                           columns_;        /* those of direct_ */
  std::vector<PetscInt>             first_;          /* the rows that were asked for first, ascending */
  std::map<PetscInt, PetscInt>      asked_;          /* the others, and the depths that they were asked for with */
  std::vector<PetscInt>             rows_, lengths_; /* in the order in which they came */
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
  PetscCall(HaloMessageCreate(halo->blocks, MPI_DOUBLE, sizeof(double), message));
  PetscCall(MatGetCSR(A, &own));
  PetscCall(MatGetOtherCSR(A, &other));
  PetscErrorCode code = pick(FINEPC_DOUBLE, halo->Sent(), halo->send, own.A.nnz, own.A.a, other.A.a, message->send);
  if (!code) code = pick(FINEPC_DOUBLE, halo->ghosts.nnz, halo->columns, other.A.nnz, other.A.a, nullptr, halo->ghosts.a);
  PetscCall(MatRestoreCSR(&other));
  PetscCall(MatRestoreCSR(&own));
  PetscCall(code);
  PetscCall(message->delivery.Ready());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PickReceived(Halo *halo, HaloMessage *message)
{
  const auto pick = PetscMemTypeDevice(halo->where) ? HaloPick_CUDA : HaloPick_Host;

  PetscFunctionBegin;
  PetscCall(message->delivery.Take());
  PetscCall(pick(FINEPC_DOUBLE, halo->foreign.nnz, halo->keep, halo->Received(), message->received, nullptr, halo->foreign.a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GatherValues_Halo(PCLocalPhase *phase, Mat A, Halo *halo)
{
  HaloMessage message{halo->where};

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
  if (!phase->stopped) PetscCall(GatherValues_Halo(phase, wish->A, halo));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloCheckPattern(Mat pattern, PetscInt rows, const char setter[])
{
  PetscInt  m, n;
  PetscBool is_aij, assembled;
  char      takes[128];

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)pattern, &is_aij, MATSEQAIJ, MATMPIAIJ, ""));
  if (!is_aij) {
    PetscCall(PetscSNPrintf(takes, sizeof(takes), "MATAIJ and its subtypes such as MATAIJCUSPARSE for %s()", setter));
    PetscCall(MatRefuseType(pattern, takes, "use MatConvert() or -mat_type aij"));
  }
  PetscCall(MatAssembled(pattern, &assembled));
  PetscCheck(assembled, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "The matrix given to %s() is not assembled: call MatAssemblyBegin() and MatAssemblyEnd()", setter);
  PetscCall(MatGetLocalSize(pattern, &m, &n));
  PetscCheck(m == rows && n == rows, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix given to %s() has %" PetscInt_FMT " rows and %" PetscInt_FMT
             " columns on this rank, but the operator has %" PetscInt_FMT ": both must have the same layout",
             setter, m, n, rows);
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
  const size_t entries = halo->foreign.nnz + halo->ghosts.nnz, places = entries + halo->Sent();
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

/* Sends these lists, and receives others, which have the lengths of those that come; there is room for the requests. */
static PetscErrorCode ExchangeLists(MPI_Comm comm, const std::vector<HaloList> &send, std::vector<HaloList> *received,
                                    std::vector<MPI_Request> *requests)
{
  MPI_Request *request = requests->data();
  PetscMPIInt  tag;

  PetscFunctionBegin;
  PetscCall(PetscCommGetNewTag(comm, &tag));
  for (HaloList &list : *received)
    PetscCallMPI(MPI_Irecv(list.numbers.data(), (PetscMPIInt)list.numbers.size(), MPIU_INT, list.rank, tag, comm, request++));
  for (const HaloList &list : send)
    PetscCallMPI(MPI_Isend(list.numbers.data(), (PetscMPIInt)list.numbers.size(), MPIU_INT, list.rank, tag, comm, request++));
  PetscCallMPI(MPI_Waitall((PetscMPIInt)(request - requests->data()), requests->data(), MPI_STATUSES_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloSendLists(PCLocalPhase *phase, PetscErrorCode code, const HaloSize &size,
                             const std::vector<PetscMPIInt> *senders, const std::vector<HaloList> &send,
                             std::vector<HaloList> *received, bool *more)
{
  std::vector<PetscMPIInt> to;
  std::vector<PetscInt>    sizes;             /* of the lists to send */
  std::vector<HaloList>    lengths, expected; /* the same as lists of one number, and those of the lists that come */
  std::vector<MPI_Request> requests;
  PetscMPIInt              froms = 0, *from = nullptr, count;
  PetscInt                *counts = nullptr;

  PetscFunctionBegin;
  const PetscErrorCode listed = Alone_Halo([&] {
    for (const HaloList &list : send) {
      PetscCall(PetscMPIIntCast((PetscInt)list.numbers.size(), &count));
      to.push_back(list.rank);
      sizes.push_back(count);
      lengths.push_back({list.rank, {count}});
    }
    if (senders)
      for (PetscMPIInt rank : *senders) expected.push_back({rank, {0}});
    requests.resize(lengths.size() + expected.size());
    return PETSC_SUCCESS;
  });
  PetscCall(PCLocalPhaseStep(phase, HaloCheckMemory(code ? code : listed, size), more));
  if (phase->stopped || (more && !*more)) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  if (senders) PetscCall(ExchangeLists(phase->comm, lengths, &expected, &requests));
  else
    PetscCall(PetscCommBuildTwoSided(phase->comm, 1, MPIU_INT, (PetscMPIInt)to.size(), to.data(), sizes.data(), &froms, &from,
                                     (void *)&counts));
  phase->outcome->exchanging    = false;
  const PetscErrorCode prepared = Alone_Halo([&] {
    received->clear();
    for (PetscMPIInt k = 0; k < froms; k++) expected.push_back({from[k], {counts[k]}});
    for (const HaloList &list : expected) received->push_back({list.rank, std::vector<PetscInt>(list.numbers[0])});
    std::sort(received->begin(), received->end(), [](const HaloList &a, const HaloList &b) { return a.rank < b.rank; });
    requests.resize(send.size() + received->size());
    return PETSC_SUCCESS;
  });
  PetscCall(PCLocalPhaseStep(phase, HaloCheckMemory(prepared, size), nullptr));
  PetscCall(PetscFree(from));
  PetscCall(PetscFree(counts));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  PetscCall(ExchangeLists(phase->comm, send, received, &requests));
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloMessageCreate(const Neighbours &blocks, MPI_Datatype type, size_t bytes, HaloMessage *message)
{
  PetscFunctionBegin;
  PetscCall(ArrayCreate(NeighboursCount(blocks.to) * bytes, message->where, &message->send));
  PetscCall(ArrayCreate(NeighboursCount(blocks.from) * bytes, message->where, &message->received));
  PetscCall(message->delivery.Add(blocks.to, message->send, blocks.from, message->received, type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloMessageDeliver(PCLocalPhase *phase, HaloMessage *message)
{
  PetscFunctionBegin;
  phase->outcome->exchanging = true;
  PetscCall(message->delivery.Deliver(phase->comm));
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloMessageDestroy(HaloMessage *message)
{
  PetscFunctionBegin;
  /* the copy of what has come may be under way */
  if (PetscMemTypeDevice(message->where) && message->received) PetscCall(DeviceSynchronize_CUDA());
  PetscCall(ArrayDestroy(message->where, &message->send));
  PetscCall(ArrayDestroy(message->where, &message->received));
  PetscFunctionReturn(PETSC_SUCCESS);
}
