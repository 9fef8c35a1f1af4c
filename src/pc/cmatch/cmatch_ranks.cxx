/*
   The set-up of CMATCH's levels on several ranks: the order of the steps, which ranks have which rows, and all communication. The
   steps themselves are in cmatch_host_ranks.cxx, and for a matrix on the GPU in cuda/pc/cmatch/cmatch_ranks.cu.

   A level takes three exchanges: the numbers of aggregates go to the ranks that have their rows as ghosts, then the rows of P
   likewise, and then contributions to rows of the Galerkin product, and if need be rows of M, to the owners of rows of the next
   level. Two operations of PETSc find out who sends what: one for contributions, and one for the ghosts of the next level. A set-up
   that keeps aggregates and patterns has the last two exchanges alone.

   What a rank does alone may fail there, for want of memory or because of a bad row. So all ranks of a level agree ahead of each
   exchange whether one of them has failed, and end the set-up then, and what an exchange needs is there before they agree. Ahead of
   the first one, they learn from each other how many aggregates they have, too. Where all rows of each rank begin follows from
   that.

   Which ranks get the rows of the next level follows from numbers that all ranks have, so that they decide alike: one rank, if rows
   and entries are few enough; the first rank of each group of gather_factor successive ones, if they would be few for each rank, or
   if the level has hardly fewer rows than the one above, as it is where borders between ranks cut much; otherwise each rank keeps
   its aggregates. Ranks that have no rows of the next level are ready then, and wait for the verdict of all.

   The smoothers sfsai and afsai have factors of each rank's own block of a level, which need no message. Their largest eigenvalue
   on a level is one of all its ranks. It is found at the end, level by level, once all ranks have said that they have their
   factors.
*/
#include <petsc/private/petscimpl.h>

#include <algorithm>
#include <numeric>

#include "cmatch_ranks_face.h"
#include "entry.h"

namespace
{

/* A PetscSF from the leaves with these numbers to their owners, whose roots begin at `range`. */
PetscErrorCode CreateSF(MPI_Comm comm, const PetscInt range[], const std::vector<PetscInt> &leaves, PetscSF *sf)
{
  PetscLayout layout;

  PetscFunctionBegin;
  PetscCall(PetscLayoutCreateFromRanges(comm, range, PETSC_COPY_VALUES, 1, &layout)); /* 3.18 forgets a pointer */
  PetscCall(PetscSFCreate(comm, sf));
  PetscCall(PetscSFSetGraphLayout(*sf, layout, (PetscInt)leaves.size(), nullptr, PETSC_OWN_POINTER, leaves.data()));
  PetscCall(PetscSFSetUp(*sf));
  PetscCall(PetscLayoutDestroy(&layout));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------- which ranks have which rows ------------------------------ */

/* The unknowns of a row, which of a hierarchy of nodes is one of blocks, and how many of them may be the last level. */
LocalInt UnknownsOf(const CMATCHHierarchy &H, LocalInt l)
{
  return H.nodes ? H.nodes->level[l].k : 1;
}

PetscReal CoarseSize(const CMATCHHierarchy &H)
{
  return H.nodes ? (PetscReal)CMATCHNodesCoarseSize(H.params) : (PetscReal)H.params.coarse_size;
}

/* What the aggregates of all ranks of a level become on the next one. */
struct NextSize {
  CMATCHTransfer transfer;
  PetscInt       rows;
  LocalInt       unknowns; /* of a row */
  PetscReal      entries;  /* with the diagonal, as far as they can be known before the products are made */
};

/*
   How many successive ranks give their rows to the first one of them. Rows count as if they had kCMATCHGatherWidth entries, since
   entries are what a level costs.
*/
PetscInt GroupSize(const CMATCHHierarchy &H, const CMATCHRanksLevel &level, LocalInt l, const NextSize &next)
{
  const CMATCHParams &params  = H.params;
  const bool          matched = next.transfer == CMATCH_MATCHED,
             last             = l + 2 >= params.max_levels || (matched && !H.nodes && CMATCHIsSlow(params, level.all, next.rows)),
             stalls = next.transfer == CMATCH_PASSED || (matched && next.rows > CMATCHGatherShrink(params) * (PetscReal)level.all);
  const PetscReal rows = next.entries / kCMATCHGatherWidth;

  if (last || (PetscReal)next.rows * next.unknowns <= CoarseSize(H) || rows <= (PetscReal)params.gather_rows) return level.size;
  if (stalls || rows < (PetscReal)level.size * (PetscReal)params.gather_ranks) return PetscMin(params.gather_factor, level.size);
  return 1;
}

/*
   What one rank sends to the others of its level: whether it has failed, its aggregates, rows that are left, and entries of M on
   the aggregates, and the entries of the level.
*/
enum { ERROR, COARSE, LEFT, ENTRIES, LEVEL_ENTRIES, BESIDE, COUNTS };

PetscInt Clamped(PetscInt64 count)
{
  return (PetscInt)PetscMin(count, (PetscInt64)PETSC_INT_MAX);
}

/* What ranks know of the next level of one. */
struct NextLevel {
  CMATCHRanksLevel      level;
  CMATCHTransfer        found = CMATCH_PASSED; /* of the aggregates that this rank has */
  std::vector<PetscInt> begin;                 /* [size + 1] where the rows of each rank begin */
  PetscInt              first_coarse = 0;      /* the number of this rank's first aggregate */
};

/* ------------------------------------------- set-up ------------------------------------------- */

struct RanksSetUp {
  PCLocalOutcome   *outcome;
  CMATCHHierarchy  *H;
  CMATCHRanks      *ranks;
  CMATCHRanksSetUp *twin;
  bool              keep;
  bool              stopped = false; /* a rank has failed, as far as this one knows */

  bool HasFailed() const { return outcome->code || ranks->stats.failure; }
};

/* What this rank does alone, unless it has failed; the others learn of an error when ranks agree. */
template <typename... Parameters, typename... Arguments>
void Alone(const RanksSetUp &s, PetscErrorCode (*step)(Parameters...), Arguments... arguments)
{
  if (s.HasFailed()) return;
  s.outcome->code = CallGuarded(step, arguments...);
  if (s.outcome->code) s.outcome->text[0] = 0; /* it has been reported */
}

/* Ends the set-up on these ranks if one of them has failed. */
PetscErrorCode Agree_CMATCHRanks(RanksSetUp *s, MPI_Comm comm)
{
  int failed = s->HasFailed();

  PetscFunctionBegin;
  s->outcome->exchanging = true;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm));
  s->outcome->exchanging = false;
  s->stopped             = failed;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Deliver_CMATCHRanks(RanksSetUp *s, LocalInt l, Delivery *delivery)
{
  PetscFunctionBegin;
  s->outcome->exchanging = true;
  PetscCall(delivery->Ready());
  PetscCall(delivery->Deliver(PetscObjectComm((PetscObject)s->ranks->level[l].halo.sf)));
  PetscCall(delivery->Take());
  s->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ aggregates ---------------------------------------- */

PetscErrorCode FindAggregates(RanksSetUp *s, LocalInt l, CMATCHTransfer transfer, NextLevel *next, PetscInt mine[])
{
  CMATCHMatch match;

  PetscFunctionBegin;
  PetscCall(s->twin->Match(l, transfer, &match));
  next->found   = transfer;
  mine[COARSE]  = match.coarse;
  mine[LEFT]    = match.left;
  mine[ENTRIES] = Clamped(match.entries);
  mine[BESIDE]  = s->H->nodes && !l ? s->H->nodes->beside : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Finds the aggregates of this rank, or passes its rows on. */
PetscErrorCode FindFirst(RanksSetUp *s, LocalInt l, bool coarsens, NextLevel *next, PetscInt mine[])
{
  CMATCHRanksLevel &level = s->ranks->level[l];

  PetscFunctionBegin;
  PetscCall(ExchangeMakeLists(&level.halo));
  if (s->H->nodes && s->ranks->nccl && !level.halo.nccl)
    PetscCall(ExchangeUseNCCL(s->ranks->nccl, level.of_all, level.size == s->ranks->level[0].size, CMATCHMostValues(*s->ranks),
                              &level.halo));
  const PetscInt64 square = (PetscInt64)UnknownsOf(*s->H, l) * UnknownsOf(*s->H, l);
  mine[LEVEL_ENTRIES] = Clamped(s->H->nodes ? s->H->nodes->level[l].blocks * square : (PetscInt64)s->H->level[l].nnz + level.rows);
  PetscCall(FindAggregates(s, l, coarsens ? CMATCH_MATCHED : CMATCH_PASSED, next, mine));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All ranks of a level learn what each has found, and add it up. */
PetscErrorCode GatherCounts(RanksSetUp *s, LocalInt l, PetscInt mine[], PetscInt64 sum[])
{
  const CMATCHRanksLevel &level = s->ranks->level[l];

  PetscFunctionBegin;
  mine[ERROR]            = s->HasFailed();
  s->outcome->exchanging = true;
  PetscCallMPI(MPI_Allgather(mine, COUNTS, MPIU_INT, s->ranks->counts.data(), COUNTS, MPIU_INT, level.comm));
  s->outcome->exchanging = false;
  std::fill(sum, sum + COUNTS, 0);
  for (size_t r = 0; r < (size_t)level.size; r++)
    for (int k = 0; k < COUNTS; k++) sum[k] += s->ranks->counts[r * COUNTS + k];
  s->stopped = sum[ERROR] > 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Who has the rows of the next level, of which all ranks know the same. */
PetscErrorCode ShareRows(RanksSetUp *s, LocalInt l, const NextSize &size, NextLevel *next)
{
  CMATCHRanksLevel &level = s->ranks->level[l];
  const PetscInt    group = GroupSize(*s->H, level, l, size);
  const auto        count = [&](PetscInt r) {
    return size.transfer == CMATCH_PASSED ? level.range[r + 1] - level.range[r] : s->ranks->counts[(size_t)r * COUNTS + COARSE];
  };
  const auto root = [&](PetscInt r) { return r / group * group; };

  PetscFunctionBegin;
  std::vector<PetscInt> &begin = next->begin;
  begin.assign(level.size + 1, 0);
  for (PetscInt r = 0; r < level.size; r++) begin[root(r) + 1] += count(r);
  for (PetscInt r = 0; r < level.size; r++) {
    PetscCheck(begin[r + 1] <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "A rank would get %" PetscInt_FMT
               " rows of level %d, but finepc counts what one rank has with 32 bits, so at most %d: take more "
               "ranks, or lower -pc_cmatch_gather_ranks",
               begin[r + 1], (int)l + 1, LOCAL_INT_MAX);
    begin[r + 1] += begin[r];
  }
  next->first_coarse = begin[root(level.rank)];
  for (PetscInt r = 0; r < level.rank; r++)
    if (root(r) == root(level.rank)) next->first_coarse += count(r);
  level.next       = {(LocalInt)(begin[level.rank + 1] - begin[level.rank]), begin[level.rank], size.rows};
  level.mine       = root(level.rank) == level.rank ? (LocalInt)count(level.rank) : 0;
  level.gathered   = group > 1;
  next->level.rows = level.next.rows;
  next->level.all  = size.rows;
  next->level.range.assign(1, 0);
  next->level.of_all.clear();
  for (PetscInt r = 0; r < level.size; r++)
    if (begin[r + 1] > begin[r]) { /* ranks without rows are not of that level */
      next->level.range.push_back(begin[r + 1]);
      next->level.of_all.push_back(level.of_all[r]);
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How the rows of all ranks become those of the next level, from what they have found. */
NextSize SizeOfNext(const RanksSetUp &s, LocalInt l, bool coarsens, const PetscInt64 sum[])
{
  const CMATCHRanksLevel &level    = s.ranks->level[l];
  const LocalInt          unknowns = UnknownsOf(*s.H, l);
  NextSize                next{CMATCH_MATCHED, (PetscInt)sum[COARSE], s.H->nodes ? s.H->nodes->m : 1, 0};

  if (!coarsens) next.transfer = CMATCH_PASSED;
  else {
    s.ranks->dominated = sum[LEFT] == level.all;
    if (!s.ranks->dominated && (PetscReal)next.rows * next.unknowns >= kCMATCHStall * (PetscReal)(level.all - sum[LEFT]) * unknowns)
      next.transfer = CMATCH_PASSED;
  }
  if (next.transfer == CMATCH_PASSED) {
    next.rows     = level.all;
    next.unknowns = unknowns;
  }
  /*
     The rows of the products are not known yet. Their entries are guessed from those of M on the aggregates; where there is no such
     M, only the number of rows counts.
  */
  if (next.transfer != CMATCH_MATCHED)
    next.entries = (PetscReal)sum[LEVEL_ENTRIES] / (PetscReal)PetscMax(level.all, 1) * (PetscReal)next.rows;
  else if (!CMATCHCarriesGraph(*s.H)) next.entries = kCMATCHGatherWidth * (PetscReal)next.rows;
  else next.entries = kCMATCHWidening * (PetscReal)sum[ENTRIES];
  return next;
}

/* Aggregates of all ranks, and who has the rows of the next level. */
PetscErrorCode Match_CMATCHRanks(RanksSetUp *s, LocalInt l, NextLevel *next)
{
  const CMATCHRanksLevel &level = s->ranks->level[l];
  const bool coarsens     = (PetscReal)level.all * UnknownsOf(*s->H, l) > CoarseSize(*s->H) && l + 1 < s->H->params.max_levels;
  PetscInt64 sum[COUNTS]  = {};
  PetscInt   mine[COUNTS] = {};

  PetscFunctionBegin;
  Alone(*s, FindFirst, s, l, coarsens, next, (PetscInt *)mine);
  PetscCall(GatherCounts(s, l, mine, sum));
  if (s->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  if (s->H->nodes && !l) s->H->nodes->jumps = CMATCHNodesHasJumps(sum[BESIDE], level.all);
  const NextSize size = SizeOfNext(*s, l, coarsens, sum);
  if (next->found != size.transfer) Alone(*s, FindAggregates, s, l, size.transfer, next, (PetscInt *)mine);
  Alone(*s, ShareRows, s, l, size, next);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The numbers of aggregates go to the ranks that have their rows as ghosts. */
PetscErrorCode NumberAggregates(RanksSetUp *s, LocalInt l, PetscInt first_coarse, Delivery *delivery)
{
  const Neighbours &ghosts = s->ranks->level[l].halo.lists;
  CMATCHHalo        numbers;

  PetscFunctionBegin;
  PetscCall(s->twin->Number(l, first_coarse, ghosts.entries, &numbers));
  PetscCall(delivery->Add(ghosts.to, numbers.packed, ghosts.from, numbers.ghosts, MPIU_INT));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What ghosts of a hierarchy of nodes have for P goes to them with these numbers. */
PetscErrorCode ShareWithGhosts(RanksSetUp *s, LocalInt l, Delivery *delivery)
{
  CMATCHRanksLevel &level = s->ranks->level[l];
  CMATCHHalo        shared{};
  int               width;

  PetscFunctionBegin;
  PetscCall(ExchangeMakeLists(&level.halo));
  s->H->level[l].halo = &level.halo;
  PetscCall(s->twin->Share(l, level.halo.lists.entries, &shared, &width));
  if (width) PetscCall(delivery->Add(level.halo.lists.to, shared.packed, level.halo.lists.from, shared.ghosts, MPI_DOUBLE, width));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All ranks of a level find what its smoother needs. */
PetscErrorCode Estimate_CMATCHRanks(RanksSetUp *s, LocalInt l)
{
  PetscFunctionBegin;
  s->outcome->exchanging = true;
  PetscCall(s->twin->Estimate(l));
  s->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- prolongator ---------------------------------------- */

/* Rows of P go to the ranks that have them as ghosts. */
PetscErrorCode Prolong_CMATCHRanks(RanksSetUp *s, LocalInt l, Delivery *delivery)
{
  const Neighbours  &ghosts = s->ranks->level[l].halo.lists;
  const MPI_Datatype value  = s->ranks->precision == FINEPC_SINGLE ? MPI_FLOAT : MPI_DOUBLE;
  CMATCHHalo         columns, values;

  PetscFunctionBegin;
  PetscCall(s->twin->Prolong(l, ghosts.entries, &columns, &values));
  const int width = (int)s->H->level[l].width, block = s->H->nodes ? UnknownsOf(*s->H, l) * UnknownsOf(*s->H, l + 1) : 1;
  if (!s->keep) PetscCall(delivery->Add(ghosts.to, columns.packed, ghosts.from, columns.ghosts, MPIU_INT, width));
  PetscCall(delivery->Add(ghosts.to, values.packed, ghosts.from, values.ghosts, value, width * block));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- rows of the products ----------------------------------- */

/* The rows of a level that are exchanged. */
struct ExchangedRows {
  int                      kinds; /* products alone, or rows of M, too */
  CMATCHSentRows           sent[CMATCH_ROW_KINDS];
  std::vector<PetscMPIInt> to, counts; /* neighbours, and for each of them how many rows and entries of each kind it gets */
  std::vector<PetscInt>    number;     /* of rows that come, among this rank's rows of the next level */
  std::vector<LocalInt>    entries;    /* of M, from each neighbour */

  int Counts() const { return 1 + kinds; } /* of a neighbour */
};

/*
   The rows that this rank sends: its aggregates, unless it keeps them, and the foreign ones. The numbers of both ascend, so that
   there are few pieces of rows that have the same owner.
*/
void ListSent(const CMATCHLevel &shown, const std::vector<PetscInt> &begin, CMATCHRanksLevel *level)
{
  struct Piece {
    PetscMPIInt owner;
    LocalInt    begin, end; /* rows */
  };
  const LocalInt     given = shown.coarse - level->mine, rows = given + shown.foreign;
  std::vector<Piece> pieces;
  const auto         number = [&](LocalInt r) -> PetscInt {
    return r < given ? shown.first_coarse + level->mine + r : shown.column[r - given];
  };

  for (LocalInt r = 0; r < rows; r++) {
    const PetscInt mine = number(r);
    if (pieces.empty() || mine < begin[pieces.back().owner] || mine >= begin[pieces.back().owner + 1])
      pieces.push_back({(PetscMPIInt)(std::upper_bound(begin.begin(), begin.end(), mine) - begin.begin() - 1), r, r});
    pieces.back().end = r + 1;
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece &a, const Piece &b) { return a.owner < b.owner; });
  CMATCHRowList &send = level->send;
  send                = CMATCHRowList();
  level->number.clear();
  send.rows.reserve(rows);
  level->number.reserve(rows);
  for (const Piece &piece : pieces) {
    if (send.parts.empty() || send.parts.back().rank != piece.owner)
      send.parts.push_back({piece.owner, (LocalInt)send.rows.size(), 0});
    for (LocalInt r = piece.begin; r < piece.end; r++) {
      send.rows.push_back(r);
      level->number.push_back(number(r) - begin[piece.owner]);
    }
    send.parts.back().end = (LocalInt)send.rows.size();
  }
}

/* Contributions to rows of the product, and rows of M if whole rows are gathered, are made and packed. */
PetscErrorCode Multiply_CMATCHRanks(RanksSetUp *s, LocalInt l, const std::vector<PetscInt> *begin, ExchangedRows *rows)
{
  CMATCHRanksLevel &level = s->ranks->level[l];

  PetscFunctionBegin;
  if (!s->keep) ListSent(s->H->level[l], *begin, &level);
  PetscCall(s->twin->Multiply(l, level.mine, level.send, rows->kinds, rows->sent));
  for (size_t k = 0; k < level.send.parts.size() && !s->keep; k++) {
    const Neighbours::Part &part = level.send.parts[k];
    rows->to.push_back(part.rank);
    rows->counts.push_back(part.end - part.begin);
    for (int kind = 0; kind < rows->kinds; kind++) rows->counts.push_back(rows->sent[kind].entries[k]);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows that come, of which each of these ranks sends so many rows and entries of each kind. */
PetscErrorCode ListReceived(PetscMPIInt count, const PetscMPIInt from[], const PetscMPIInt counts[], CMATCHRanksLevel *level,
                            ExchangedRows *rows)
{
  std::vector<PetscMPIInt> order(count);
  PetscInt64               all = 0;

  PetscFunctionBegin;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](PetscMPIInt k, PetscMPIInt m) { return from[k] < from[m]; });
  level->receive = CMATCHRowList();
  level->entries.clear();
  for (PetscMPIInt k : order) {
    const PetscMPIInt *const of    = counts + (size_t)k * rows->Counts();
    const PetscInt64         begin = all;
    all += of[0];
    PetscCheck(all <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", kCMATCHTooManyCome);
    level->receive.parts.push_back({from[k], (LocalInt)begin, (LocalInt)all});
    level->entries.push_back(of[1]);
    if (rows->kinds > 1) rows->entries.push_back(of[2]);
  }
  level->receive.rows.resize((size_t)all);
  rows->number.resize((size_t)all);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Ranks find out who sends rows to them. One that has failed sends none. */
PetscErrorCode FindSenders(RanksSetUp *s, LocalInt l, ExchangedRows *rows)
{
  CMATCHRanksLevel &level = s->ranks->level[l];
  const PetscMPIInt to    = s->HasFailed() ? 0 : (PetscMPIInt)rows->to.size();
  PetscMPIInt       count = 0, *from = nullptr, *counts = nullptr;

  PetscFunctionBegin;
  s->outcome->exchanging = true;
  PetscCall(PetscCommBuildTwoSided(PetscObjectComm((PetscObject)level.halo.sf), rows->Counts(), MPI_INT, to, rows->to.data(),
                                   rows->counts.data(), &count, &from, &counts));
  s->outcome->exchanging = false;
  Alone(*s, ListReceived, count, (const PetscMPIInt *)from, (const PetscMPIInt *)counts, &level, rows);
  PetscCall(PetscFree(from));
  PetscCall(PetscFree(counts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Entries of each neighbour as parts of all of them. */
PetscErrorCode PartsOfEntries(const Delivery::Parts &rows, const std::vector<LocalInt> &entries, const char *too_many,
                              Delivery::Parts *parts)
{
  PetscInt64 all = 0;

  PetscFunctionBegin;
  for (size_t k = 0; k < rows.size(); k++) {
    parts->push_back({rows[k].rank, (LocalInt)all, (LocalInt)(all + entries[k])});
    all += entries[k];
    PetscCheck(all <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", too_many);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Room for what comes, and the messages. */
PetscErrorCode PrepareRows(RanksSetUp *s, LocalInt l, ExchangedRows *rows, Delivery *numbers, Delivery *delivery)
{
  CMATCHRanksLevel &level = s->ranks->level[l];
  const auto       &send = level.send.parts, &receive = level.receive.parts;
  Delivery::Parts   sent[CMATCH_ROW_KINDS], come[CMATCH_ROW_KINDS];
  LocalInt          entries[CMATCH_ROW_KINDS] = {};
  CMATCHRowData     received[CMATCH_ROW_KINDS];

  PetscFunctionBegin;
  for (int kind = 0; kind < rows->kinds; kind++) {
    PetscCall(PartsOfEntries(send, rows->sent[kind].entries, kCMATCHTooManyToSend, &sent[kind]));
    PetscCall(PartsOfEntries(receive, kind ? rows->entries : level.entries, kCMATCHTooManyCome, &come[kind]));
    entries[kind] = come[kind].empty() ? 0 : come[kind].back().end;
  }
  PetscCall(s->twin->MakeRoom(receive.empty() ? 0 : receive.back().end, rows->kinds, entries, received));
  if (!s->keep) PetscCall(numbers->Add(send, level.number.data(), receive, rows->number.data(), MPIU_INT));
  for (int kind = 0; kind < rows->kinds; kind++) {
    PetscCall(delivery->Add(send, rows->sent[kind].sums, receive, received[kind].sums, MPI_DOUBLE, rows->sent[kind].width));
    PetscCall(delivery->Add(sent[kind], rows->sent[kind].j, come[kind], received[kind].j, MPIU_INT));
    PetscCall(delivery->Add(sent[kind], rows->sent[kind].a, come[kind], received[kind].a, MPI_DOUBLE, rows->sent[kind].block));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows of the next level go to their owners. */
PetscErrorCode SendRows(RanksSetUp *s, LocalInt l, const NextLevel *next)
{
  ExchangedRows rows{};
  Delivery      numbers(PETSC_MEMTYPE_HOST), delivery(s->ranks->where, s->ranks->nccl, s->ranks->level[l].of_all);

  PetscFunctionBegin;
  rows.kinds = !s->keep && s->ranks->level[l].gathered && CMATCHCarriesGraph(*s->H) ? 2 : 1;
  Alone(*s, Multiply_CMATCHRanks, s, l, &next->begin, &rows);
  if (!s->keep) PetscCall(FindSenders(s, l, &rows));
  Alone(*s, PrepareRows, s, l, &rows, &numbers, &delivery);
  PetscCall(Agree_CMATCHRanks(s, s->ranks->level[l].comm));
  if (s->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  if (!s->keep) {
    PetscCall(Deliver_CMATCHRanks(s, l, &numbers));
    std::copy(rows.number.begin(), rows.number.end(), s->ranks->level[l].receive.rows.begin());
  }
  PetscCall(Deliver_CMATCHRanks(s, l, &delivery));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ next level ---------------------------------------- */

/* The rank with what is left of the hierarchy if nobody has rows of the next level. */
bool IsLast(const CMATCHRanksLevel &level)
{
  return !level.next.all && !level.rank;
}

PetscErrorCode MakeNext(RanksSetUp *s, LocalInt l, std::vector<PetscInt> *ghost)
{
  CMATCHRanksLevel &level = s->ranks->level[l];

  PetscFunctionBegin;
  if (!level.next.rows && !IsLast(level)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(s->twin->Next(l, level.next, level.receive, &level.place));
  const CMATCHLevel &next = s->H->level[l + 1];
  if (level.next.rows && !s->keep) ghost->assign(next.ghost, next.ghost + next.ghosts);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A level that one rank has needs no communicator, and one of all ranks has that of the level above. */
PetscErrorCode ConnectNext(RanksSetUp *s, LocalInt l, const std::vector<PetscInt> &ghost, CMATCHRanksLevel *next)
{
  const CMATCHRanksLevel &level = s->ranks->level[l];

  PetscFunctionBegin;
  s->outcome->exchanging = true;
  next->size             = (PetscMPIInt)next->range.size() - 1;
  next->split            = next->size > 1 && next->size < level.size;
  next->comm             = next->size > 1 ? level.comm : PETSC_COMM_SELF;
  if (next->split) PetscCallMPI(MPI_Comm_split(level.comm, level.next.rows ? 0 : MPI_UNDEFINED, level.rank, &next->comm));
  if (level.next.rows) {
    s->ranks->level.push_back(std::move(*next)); /* there is room */
    CMATCHRanksLevel &made = s->ranks->level.back();
    PetscCallMPI(MPI_Comm_rank(made.comm, &made.rank));
    if (made.size > 1) {
      PetscSF sf;
      PetscCall(CreateSF(made.comm, made.range.data(), ghost, &sf));
      PetscCall(CMATCHGiveSF(s->ranks->where, sf, CMATCHMostValues(*s->ranks), &made.halo));
    }
  }
  s->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the level below level l, which is on several ranks. */
PetscErrorCode MakeLevel(RanksSetUp *s, LocalInt l)
{
  const MPI_Comm        comm = s->ranks->level[l].comm;
  NextLevel             next;
  std::vector<PetscInt> ghost;
  Delivery              numbers(s->ranks->where, s->ranks->nccl, s->ranks->level[l].of_all),
    prolongator(s->ranks->where, s->ranks->nccl, s->ranks->level[l].of_all);

  PetscFunctionBegin;
  if (!s->keep) {
    PetscCall(Match_CMATCHRanks(s, l, &next));
    if (s->stopped) PetscFunctionReturn(PETSC_SUCCESS);
    Alone(*s, NumberAggregates, s, l, next.first_coarse, &numbers);
  }
  if (s->H->nodes) Alone(*s, ShareWithGhosts, s, l, &numbers);
  if (!s->keep || s->H->nodes) {
    PetscCall(Agree_CMATCHRanks(s, comm));
    if (s->stopped) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(Deliver_CMATCHRanks(s, l, &numbers));
  }
  if (s->H->nodes) PetscCall(Estimate_CMATCHRanks(s, l));
  Alone(*s, Prolong_CMATCHRanks, s, l, &prolongator);
  PetscCall(Agree_CMATCHRanks(s, comm));
  if (s->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Deliver_CMATCHRanks(s, l, &prolongator));
  PetscCall(SendRows(s, l, &next));
  if (s->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  Alone(*s, MakeNext, s, l, &ghost);
  if (s->HasFailed()) ghost.clear();
  if (!s->keep) PetscCall(ConnectNext(s, l, ghost, &next.level));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Ends the levels of a rank that has level l alone, or no part in it. */
PetscErrorCode EndLevels(RanksSetUp *s, LocalInt l, bool alone)
{
  PetscFunctionBegin;
  PetscCall(s->twin->End(l, alone));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Close_CMATCHRanks(RanksSetUp *s)
{
  PetscFunctionBegin;
  PetscCall(s->twin->Close(s->ranks->keep_work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHRanksMakeLevels(PCLocalPhase *phase, CMATCHHierarchy *H, CMATCHRanks *ranks)
{
  RanksSetUp s{phase->outcome, H, ranks, ranks->setup.get(), (bool)ranks->keep};

  PetscFunctionBegin;
  for (LocalInt l = 0; !s.stopped; l++) {
    if (l > 0 && ranks->level[l].size == 1) {
      Alone(s, EndLevels, &s, l, true);
      break;
    }
    PetscCall(MakeLevel(&s, l));
    const CMATCHRanksLevel &level = ranks->level[l];
    if (!s.stopped && !level.next.rows) {
      Alone(s, EndLevels, &s, l + 1, IsLast(level));
      break;
    }
  }
  for (LocalInt l = 0; l < H->several && !s.stopped; l++) {
    H->level[l].halo = &ranks->level[l].halo;
    H->level[l].down = &ranks->level[l].down;
    H->level[l].up   = &ranks->level[l].up;
  }
  /* a level has the ranks of the level above or fewer, so that none waits for one that waits for another level */
  if (CMATCHHasFactors(H->params)) {
    PetscCall(Agree_CMATCHRanks(&s, ranks->level[0].comm));
    phase->outcome->exchanging = true;
    if (!s.stopped) PetscCall(s.twin->ScaleFactors());
    phase->outcome->exchanging = false;
  }
  if (!s.stopped) Alone(s, Close_CMATCHRanks, &s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- life cycle ----------------------------------------- */

PetscErrorCode CMATCHRanksCreate(Mat A, PetscMemType where, LocalInt k, const CMATCHParams *params, CMATCHRanks **ranks)
{
  PetscInt        rows;
  const PetscInt *range;

  PetscFunctionBegin;
  *ranks = new CMATCHRanks();
  (*ranks)->level.reserve(kCMATCHMostLevels + 1);
  (*ranks)->level.resize(1);
  CMATCHRanksLevel &level = (*ranks)->level[0];
  (*ranks)->precision     = params->precision;
  (*ranks)->where         = where;
  PetscCall(PetscObjectGetComm((PetscObject)A, &level.comm));
  PetscCallMPI(MPI_Comm_size(level.comm, &level.size));
  PetscCallMPI(MPI_Comm_rank(level.comm, &level.rank));
  PetscCall(MatGetSize(A, &level.all, nullptr));
  level.all /= k;
  PetscCall(MatGetLocalSize(A, &rows, nullptr));
  PetscCall(LocalIntCast(rows / k, "rows", &level.rows));
  PetscCall(MatGetOwnershipRanges(A, &range));
  level.range.assign(range, range + level.size + 1);
  for (PetscInt &begin : level.range) begin /= k;
  level.of_all.resize(level.size);
  std::iota(level.of_all.begin(), level.of_all.end(), 0);
  (*ranks)->k = k;
  PetscCall(MatGetOtherColumns(A, &(*ranks)->ghost));
  if (k > 1) (*ranks)->ghost_nodes = CMATCHGhostNodes((*ranks)->ghost, k);
  (*ranks)->counts.resize((size_t)level.size * COUNTS); /* lower levels have as many ranks at most */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksConnect(Mat A, CMATCHRanks *ranks)
{
  PetscSF sf;

  PetscFunctionBegin;
  if (ranks->k == 1) PetscCall(MatGetGhostSF(A, (PetscInt)ranks->ghost.size(), ranks->ghost.data(), &sf));
  else PetscCall(CreateSF(ranks->level[0].comm, ranks->level[0].range.data(), ranks->ghost_nodes, &sf));
  PetscCall(CMATCHGiveSF(ranks->where, sf, ranks->k, &ranks->level[0].halo));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksForget(CMATCHRanks *ranks)
{
  PetscFunctionBegin;
  ranks->setup.reset();
  for (size_t l = ranks->level.size(); l-- > 0;) {
    CMATCHRanksLevel &level = ranks->level[l];
    PetscCall(ExchangeDestroy(&level.down));
    PetscCall(ExchangeDestroy(&level.up));
    if (!l) continue;
    PetscCall(ExchangeDestroy(&level.halo));
    if (level.split) PetscCallMPI(MPI_Comm_free(&level.comm));
  }
  ranks->level.resize(1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksDestroy(CMATCHRanks **ranks)
{
  PetscFunctionBegin;
  if (!*ranks) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHRanksForget(*ranks));
  PetscCall(ExchangeDestroy(&(*ranks)->level[0].halo));
  delete *ranks;
  *ranks = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}
