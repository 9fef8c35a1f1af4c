/*
   CMATCH on several ranks: the order of the steps, which ranks have which rows, and all communication. The steps themselves are in
   cmatch_host_ranks.cxx, and for a matrix on the GPU in cuda/pc/cmatch/cmatch_ranks.cu.

   A level on several ranks takes four exchanges of a set-up: the numbers of aggregates and the rows of P go to the ranks that have
   them as ghosts, contributions to rows of the Galerkin product and the rows of M go to the owners of rows of the next level. It
   takes two collective operations, too: when aggregates are found, all ranks of the level learn how many the others have, and
   whether one of them has failed until there; and they agree whether each has the memory for its lists of rows that travel. A
   level that might be stitched takes one more if a rank has found many pairs and all of them together have few. Where all rows of
   each rank begin follows from these numbers. Two more operations of PETSc are there to find out who sends what: one for rows that
   travel, and one for the ghosts of the next level. A set-up that keeps aggregates and patterns needs none at all.

   A rank that fails, out of memory or with a bad row, says so at the next of these operations, and in the verdict of all ranks at
   the end. Until then it takes part in exchanges, since others wait for them, with values that are valid and mean nothing: no
   aggregates, and rows without entries. Hence no rank waits for another one in vain, and a failure is not one of another rank,
   because what such values lead to is found out after the operation that ends the descent.

   Which ranks get the rows of the next level follows from numbers that all ranks have, so that they decide alike: one rank, if rows
   and entries are few enough; the first rank of each group of gather_factor successive ones, if they would be few for each rank, or
   if the level has hardly fewer rows than the one above, as it is where borders between ranks cut much; otherwise each rank keeps
   its aggregates.
   Ranks that have no rows of the next level are ready then, and wait for the verdict of all.

   The smoothers sfsai and afsai have factors of each rank's own block of a level, which need no message. Their largest eigenvalue
   on a level is one of all its ranks. It is found at the end, level by level, once all ranks have said that they have their
   factors.
*/
#include <petsc/private/petscimpl.h>
#include <petscdevice.h>

#include <algorithm>
#include <numeric>

#include "cmatch_ranks_face.h"
#include "entry.h"
#include "ranks/exchange.h"

/* ----------------------------------------- exchanges ------------------------------------------ */

namespace
{

MPI_Datatype ValueType(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? MPI_FLOAT : MPI_DOUBLE;
}

/* PetscSF may work in another stream. */
PetscErrorCode Fence(PetscMemType where)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(where)) PetscCall(ExchangeFence_CUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Values of roots go to their leaves, all in the same memory. */
PetscErrorCode FromRootsBegin(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *roots, void *leaves)
{
  PetscFunctionBegin;
  PetscCall(Fence(where));
  PetscCall(PetscSFBcastWithMemTypeBegin(sf, unit, where, roots, where, leaves, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FromRootsEnd(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *roots, void *leaves)
{
  PetscFunctionBegin;
  PetscCall(PetscSFBcastEnd(sf, unit, roots, leaves, MPI_REPLACE));
  PetscCall(Fence(where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FromRoots(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *roots, void *leaves)
{
  PetscFunctionBegin;
  PetscCall(FromRootsBegin(sf, where, unit, roots, leaves));
  PetscCall(FromRootsEnd(sf, where, unit, roots, leaves));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Values of leaves go to their roots, of which each has one leaf at most. */
PetscErrorCode ToRootsBegin(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *leaves, void *roots)
{
  PetscFunctionBegin;
  PetscCall(Fence(where));
  PetscCall(PetscSFReduceWithMemTypeBegin(sf, unit, where, leaves, where, roots, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ToRootsEnd(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *leaves, void *roots)
{
  PetscFunctionBegin;
  PetscCall(PetscSFReduceEnd(sf, unit, leaves, roots, MPI_REPLACE));
  PetscCall(Fence(where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A PetscSF from the leaves with these numbers to their owners, whose roots begin at `range`. */
PetscErrorCode CreateSF(MPI_Comm comm, const PetscInt range[], const std::vector<PetscInt> &leaves, PetscSF *sf)
{
  PetscLayout layout;

  PetscFunctionBegin;
  PetscCall(PetscLayoutCreateFromRanges(comm, range, PETSC_USE_POINTER, 1, &layout));
  PetscCall(PetscSFCreate(comm, sf));
  PetscCall(PetscSFSetGraphLayout(*sf, layout, (PetscInt)leaves.size(), nullptr, PETSC_OWN_POINTER, leaves.data()));
  PetscCall(PetscSFSetUp(*sf));
  PetscCall(PetscLayoutDestroy(&layout));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Tells neighbours a number of each row, and gets such numbers from others. */
PetscErrorCode TellNumbers(CMATCHRanksLevel *level, const CMATCHWay &to, const PetscInt numbers[], const CMATCHWay &from,
                           PetscInt received[])
{
  const MPI_Comm     comm     = PetscObjectComm((PetscObject)level->halo);
  MPI_Request *const requests = level->requests.data();
  PetscMPIInt        tag, posted = 0;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)level->halo, &tag));
  for (size_t k = 0; k < from.ranks.size(); k++)
    PetscCallMPI(MPI_Irecv(received + from.begin[k], (PetscMPIInt)(from.begin[k + 1] - from.begin[k]), MPIU_INT, from.ranks[k], tag,
                           comm, requests + posted++));
  for (size_t k = 0; k < to.ranks.size(); k++)
    PetscCallMPI(MPI_Isend(numbers + to.begin[k], (PetscMPIInt)(to.begin[k + 1] - to.begin[k]), MPIU_INT, to.ranks[k], tag, comm,
                           requests + posted++));
  PetscCallMPI(MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------- what a cycle communicates -------------------------------- */

PetscErrorCode HaloBegin(void *context, LocalInt l, void *x)
{
  const auto             *ranks = (const CMATCHRanks *)context;
  const CMATCHRanksLevel &level = ranks->level[l];

  PetscFunctionBegin;
  PetscCall(FromRootsBegin(level.halo, ranks->where, ValueType(ranks->precision), x,
                           (char *)x + (size_t)level.rows * FinePCPrecisionBytes(ranks->precision)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloEnd(void *context, LocalInt l, void *x)
{
  const auto             *ranks = (const CMATCHRanks *)context;
  const CMATCHRanksLevel &level = ranks->level[l];

  PetscFunctionBegin;
  PetscCall(FromRootsEnd(level.halo, ranks->where, ValueType(ranks->precision), x,
                         (char *)x + (size_t)level.rows * FinePCPrecisionBytes(ranks->precision)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloOfDoubles(void *context, LocalInt l, double *x)
{
  const auto             *ranks = (const CMATCHRanks *)context;
  const CMATCHRanksLevel &level = ranks->level[l];

  PetscFunctionBegin;
  PetscCall(FromRoots(level.halo, ranks->where, MPI_DOUBLE, x, x + level.rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DownBegin(void *context, LocalInt l, const void *values, void *contributions)
{
  const auto *ranks = (const CMATCHRanks *)context;

  PetscFunctionBegin;
  PetscCall(ToRootsBegin(ranks->level[l].multi, ranks->where, ValueType(ranks->precision), values, contributions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DownEnd(void *context, LocalInt l, const void *values, void *contributions)
{
  const auto *ranks = (const CMATCHRanks *)context;

  PetscFunctionBegin;
  PetscCall(ToRootsEnd(ranks->level[l].multi, ranks->where, ValueType(ranks->precision), values, contributions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Up(void *context, LocalInt l, const void *x, void *values)
{
  const auto *ranks = (const CMATCHRanks *)context;

  PetscFunctionBegin;
  PetscCall(FromRoots(ranks->level[l].coarse, ranks->where, ValueType(ranks->precision), x, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Sum(void *context, LocalInt l, double *value)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_DOUBLE, MPI_SUM, ((const CMATCHRanks *)context)->level[l].comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Largest(void *context, LocalInt l, double *value)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_DOUBLE, MPI_MAX, ((const CMATCHRanks *)context)->level[l].comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------- which ranks have which rows ------------------------------ */

/* What the aggregates of all ranks of a level become on the next one. */
struct Outlook {
  CMATCHTransfer transfer;
  PetscInt       rows;
  PetscReal      entries; /* with the diagonal, as far as they can be known before the products are made */
};

/*
   How many successive ranks give their rows to the first one of them. Rows count as if they had kCMATCHGatherWidth entries, since
   entries are what a level costs.
*/
PetscInt GroupSize(const CMATCHParams &params, const CMATCHRanksLevel &level, LocalInt l, const Outlook &next)
{
  const bool matched = next.transfer == CMATCH_MATCHED,
             last    = l + 2 >= params.max_levels || (matched && CMATCHIsSlow(params, level.all, next.rows)),
             stalls  = next.transfer == CMATCH_PASSED || (matched && next.rows > CMATCHGatherShrink(params) * (PetscReal)level.all);
  const PetscReal rows = next.entries / kCMATCHGatherWidth;

  if (last || next.rows <= params.coarse_size || rows <= (PetscReal)params.gather_rows) return level.size;
  if (stalls || rows < (PetscReal)level.size * (PetscReal)params.gather_ranks) return PetscMin(params.gather_factor, level.size);
  return 1;
}

/*
   What one rank tells the others of its level: whether it has failed, whether it guesses that the level is stitched, its pairs
   then, its aggregates otherwise, rows that are left, and entries of M on the aggregates, and the entries of the level.
*/
enum { ERROR, STITCHES, STITCHED, COARSE, LEFT, ENTRIES, LEVEL_ENTRIES, TOLD };

/* ------------------------------------------- levels ------------------------------------------- */

/* Memory of PETSc, as long as this object lives. What allocates it is part of an exchange. */
class Memory {
public:
  Memory()                          = default;
  Memory(const Memory &)            = delete;
  Memory &operator=(const Memory &) = delete;
  ~Memory() { PetscCallAbort(PETSC_COMM_SELF, PetscFree(data_)); }
  template <typename T>
  PetscErrorCode Create(size_t count, T **data)
  {
    PetscFunctionBegin;
    PetscCall(PetscFree(data_));
    PetscCall(PetscCalloc(count * sizeof(T), &data_));
    *data = (T *)data_;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  void *data_ = nullptr;
};

/* Entries of rows that travel, in arrays that MPI takes. */
struct Parcel {
  std::vector<LocalInt>  entries; /* for each neighbour, or from each */
  std::vector<GlobalInt> j;       /* on the host, where MPI takes no arrays of the device */
  std::vector<double>    a;
  GlobalInt             *j_data = nullptr;
  double                *a_data = nullptr;
};

class Descent {
public:
  Descent(PCLocalPhase *phase, CMATCHHierarchy *hierarchy, CMATCHRanks *all_ranks) :
      outcome(phase->outcome), H(hierarchy), ranks(all_ranks), setup(all_ranks->setup.get()), keep(all_ranks->keep)
  {
  }
  bool stopped = false; /* a rank has failed, as far as this one knows */

  PetscErrorCode Run()
  {
    PetscFunctionBegin;
    for (LocalInt l = 0;; l++) {
      if (l > 0 && ranks->level[l].size == 1) {
        PetscCall(Alone([&] { return setup->End(l, true, ranks->level[l].stitch); }));
        break;
      }
      if (!keep) PetscCall(Aggregates(l));
      if (stopped) break;
      PetscCall(Prolongator(l));
      if (stopped) break;
      PetscCall(Products(l));
      PetscCall(NextLevel(l));
      if (!ranks->level[l].next_rows) {
        PetscCall(Alone([&] { return setup->End(l + 1, Last(l), false); }));
        break;
      }
    }
    if (CMATCHHasFactors(H->params)) PetscCall(ScaleFactors());
    if (!stopped) PetscCall(Alone([&] { return setup->Close(ranks->keep_work); }));
    stopped = stopped || Bad();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /*
     The factors of levels on several ranks, when all ranks have theirs. A level has the ranks of the level above or fewer, so that
     none waits for one that waits for another level.
  */
  PetscErrorCode ScaleFactors()
  {
    PetscFunctionBegin;
    PetscCall(Together([&] {
      PetscInt failed = stopped || Bad();
      PetscFunctionBegin;
      PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &failed, 1, MPIU_INT, MPI_MAX, ranks->level[0].comm));
      stopped = failed;
      for (LocalInt l = 0; l < H->several && !stopped; l++)
        if (H->level[l].transfer != CMATCH_PASSED) PetscCall(setup->ScaleFactor(l));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Whether this rank has failed. */
  bool Bad() const { return outcome->code || setup->stats.failure; }

  /* What this rank does without others, unless it has failed, and without telling them at once. */
  template <typename Part>
  PetscErrorCode Alone(const Part &part)
  {
    PetscErrorCode (*const call)(const Part *) = [](const Part *p) { return (*p)(); };

    PetscFunctionBegin;
    if (Bad()) PetscFunctionReturn(PETSC_SUCCESS);
    const PetscErrorCode code = CallGuarded(call, &part);
    if (code) {
      outcome->code    = code;
      outcome->text[0] = 0; /* it has been reported */
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* What ranks do together, which must not fail on one of them. */
  template <typename Part>
  PetscErrorCode Together(const Part &part)
  {
    PetscFunctionBegin;
    outcome->exchanging = true;
    PetscCall(part());
    outcome->exchanging = false;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Numbers of the own rows of a level, `width` of each, go to where these are ghosts, behind those of the rank. What is sent is
     packed first: a GPU-aware MPI would map the memory of all rows into the other process, which takes longer.
  */
  PetscErrorCode Halo(LocalInt l, LocalInt width, MPI_Datatype number, void *x, int blank)
  {
    const CMATCHRanksLevel &level = ranks->level[l];
    const PetscMPIInt      *to, *from;
    CMATCHRoute             away, here;
    MPI_Aint                low, bytes;
    void                   *packed = nullptr, *ghosts = nullptr;
    RowMemory               memory;

    PetscFunctionBegin;
    PetscCallMPI(MPI_Type_get_extent(number, &low, &bytes));
    bytes *= width;
    PetscCall(PetscSFGetLeafRanks(level.halo, &away.neighbours, &to, &away.begin, &away.row));
    PetscCall(PetscSFGetRootRanks(level.halo, &here.neighbours, &from, &here.begin, &here.row, nullptr));
    PetscCall(Alone([&] {
      PetscFunctionBegin;
      ghosts = (char *)x + level.rows * bytes;
      PetscCall(setup->PackOwnRows(away, (size_t)bytes, x, &packed));
      PetscCall(memory.Create(away, here, IsStaged() ? bytes : 0));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscCall(Together([&] {
      PetscFunctionBegin;
      if (Bad()) {
        PetscCall(memory.Create(away, here, IsStaged() ? bytes : 0));
        PetscCall(setup->Spare((size_t)(away.Rows() + here.Rows()) * bytes, blank, &packed));
        ghosts = (char *)packed + away.Rows() * bytes;
      }
      PetscCall(DeliverRows(level, width, number, bytes, memory, away, to, packed, here, from, ghosts));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* What a rank needs to exchange rows: requests, and where rows are staged, so many bytes of each on the host. */
  struct RowMemory {
    MPI_Request *requests = nullptr;
    char        *sent = nullptr, *came = nullptr;
    Memory       requests_memory, sent_memory, came_memory;

    PetscErrorCode Create(const CMATCHRoute &away, const CMATCHRoute &here, size_t staged)
    {
      PetscFunctionBegin;
      PetscCall(requests_memory.Create((size_t)away.neighbours + here.neighbours, &requests));
      if (!staged) PetscFunctionReturn(PETSC_SUCCESS);
      PetscCall(sent_memory.Create(away.Rows() * staged, &sent));
      PetscCall(came_memory.Create(here.Rows() * staged, &came));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  };

  /*
     Sends packed rows of so many bytes, and receives others: those of a neighbour stay together, and where the route lists no rows,
     they are in its order.
  */
  PetscErrorCode DeliverRows(const CMATCHRanksLevel &level, LocalInt width, MPI_Datatype number, size_t bytes,
                             const RowMemory &memory, const CMATCHRoute &away, const PetscMPIInt to[], void *packed,
                             const CMATCHRoute &here, const PetscMPIInt from[], void *received) const
  {
    const auto  count = [&](const CMATCHRoute &route, LocalInt k) { return (int)(route.begin[k + 1] - route.begin[k]) * width; };
    char *const out = IsStaged() ? memory.sent : (char *)packed, *const in = IsStaged() ? memory.came : (char *)received;
    MPI_Request *requests = memory.requests;
    PetscMPIInt  tag, posted = 0;
    LocalInt     own = -1; /* place of this rank among those that rows go to */

    PetscFunctionBegin;
    if (IsStaged()) PetscCall(ArrayCopy(out, packed, away.Rows() * bytes, PETSC_MEMTYPE_HOST, ranks->where));
    else PetscCall(WaitForGPU());
    PetscCall(PetscObjectGetNewTag((PetscObject)level.halo, &tag));
    for (LocalInt k = 0; k < away.neighbours; k++)
      if (to[k] == level.rank) own = k;
    for (LocalInt k = 0; k < here.neighbours; k++) {
      char *const first = in + (here.row ? here.row[here.begin[k]] : here.begin[k]) * bytes;
      if (from[k] == level.rank) PetscCall(CopyOwn(first, out + away.begin[own] * bytes, count(away, own) / width * bytes));
      else
        PetscCallMPI(
          MPI_Irecv(first, count(here, k), number, from[k], tag, PetscObjectComm((PetscObject)level.halo), requests + posted++));
    }
    for (LocalInt k = 0; k < away.neighbours; k++)
      if (k != own)
        PetscCallMPI(MPI_Isend(out + away.begin[k] * bytes, count(away, k), number, to[k], tag,
                               PetscObjectComm((PetscObject)level.halo), requests + posted++));
    PetscCallMPI(MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE));
    if (IsStaged()) PetscCall(ArrayCopy(received, in, here.Rows() * bytes, ranks->where, PETSC_MEMTYPE_HOST));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* What a rank sends to itself. An MPI that takes memory of the GPU would copy it through the host, some kB at a time. */
  PetscErrorCode CopyOwn(void *received, const void *sent, size_t bytes) const
  {
    const PetscMemType where = IsStaged() ? PETSC_MEMTYPE_HOST : ranks->where;

    PetscFunctionBegin;
    PetscCall(ArrayCopy(received, sent, bytes, where, where));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Before MPI takes memory of the GPU. */
  PetscErrorCode WaitForGPU() const
  {
    PetscDeviceContext context;

    PetscFunctionBegin;
    if (!PetscMemTypeDevice(ranks->where)) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(PetscDeviceContextGetCurrentContext(&context));
    PetscCall(PetscDeviceContextSynchronize(context));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* ---------------------------------------- aggregates ---------------------------------------- */

  /* Aggregates of all ranks, and who has the rows of the next level: what all ranks agree upon. */
  PetscErrorCode Aggregates(LocalInt l)
  {
    const CMATCHParams &params     = H->params;
    CMATCHRanksLevel   &level      = ranks->level[l];
    const bool          coarsens   = level.all > params.coarse_size && l + 1 < params.max_levels;
    PetscInt64          sum[TOLD]  = {};
    PetscInt            mine[TOLD] = {};

    PetscFunctionBegin;
    PetscCall(Alone([&] { return Find(l, coarsens, mine); }));
    PetscCall(Tell(level, mine, sum));
    const bool stitches = CMATCHStitches(level.all, sum[STITCHED]) && coarsens && level.stitch;
    if (!stopped && !stitches && sum[STITCHES]) { /* some ranks have pairs where aggregates are asked for */
      if (mine[STITCHES]) PetscCall(Alone([&] { return FindAggregates(l, coarsens, mine); }));
      PetscCall(Tell(level, mine, sum));
    }
    if (stopped) PetscFunctionReturn(PETSC_SUCCESS);

    Outlook next{CMATCH_MATCHED, (PetscInt)sum[COARSE], 0};
    if (!coarsens) next.transfer = CMATCH_PASSED;
    else if (stitches) next.transfer = CMATCH_STITCHED;
    else {
      ranks->dominated = sum[LEFT] == level.all;
      if (!ranks->dominated && next.rows >= kCMATCHStall * (PetscReal)(level.all - sum[LEFT])) next.transfer = CMATCH_PASSED;
    }
    if (next.transfer == CMATCH_STITCHED) next.rows = (PetscInt)sum[STITCHED];
    if (next.transfer == CMATCH_PASSED) next.rows = level.all;
    /* This rank may have found what is of no use now. */
    if (coarsens && (next.transfer == CMATCH_PASSED || (next.transfer == CMATCH_STITCHED && !mine[STITCHES])))
      PetscCall(Alone([&] { return setup->Find(l, next.transfer); }));
    /* Rows of products are not known yet. Without M, which is what says most of them, rows count alone. */
    if (next.transfer != CMATCH_MATCHED)
      next.entries = (PetscReal)sum[LEVEL_ENTRIES] / (PetscReal)PetscMax(level.all, 1) * (PetscReal)next.rows;
    else if (params.coarsening != PC_CMATCH_MATCHING) next.entries = kCMATCHGatherWidth * (PetscReal)next.rows;
    else next.entries = kCMATCHWidening * (PetscReal)sum[ENTRIES];
    const PetscErrorCode code = Share(l, next);
    if (code) { /* on all ranks of the level */
      outcome->code    = code;
      outcome->text[0] = 0; /* it has been reported */
      stopped          = true;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* All ranks of a level learn what each tells, and add it up. */
  PetscErrorCode Tell(const CMATCHRanksLevel &level, PetscInt mine[], PetscInt64 sum[])
  {
    PetscFunctionBegin;
    mine[ERROR] = Bad();
    PetscCall(Together([&] {
      PetscFunctionBegin;
      PetscCallMPI(MPI_Allgather(mine, TOLD, MPIU_INT, ranks->told.data(), TOLD, MPIU_INT, level.comm));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    std::fill(sum, sum + TOLD, 0);
    for (size_t r = 0; r < (size_t)level.size; r++)
      for (int k = 0; k < TOLD; k++) sum[k] += ranks->told[r * TOLD + k];
    stopped = sum[ERROR] > 0;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  static PetscInt Told(PetscInt64 count) { return (PetscInt)PetscMin(count, (PetscInt64)PETSC_INT_MAX); }

  /*
     Finds pairs of this rank that are stitched, or its aggregates, and room for what all will know of the next level. A rank
     guesses from its own pairs what the sum over all ranks will say, since the other search would be in vain then.
  */
  PetscErrorCode Find(LocalInt l, bool coarsens, PetscInt mine[])
  {
    const CMATCHRanksLevel &level = ranks->level[l];

    PetscFunctionBegin;
    next_level = CMATCHRanksLevel{};
    next_level.range.reserve(level.size + 1);
    mine[LEVEL_ENTRIES] = Told((PetscInt64)H->level[l].nnz + level.rows);
    if (coarsens && level.stitch) {
      PetscCall(setup->Find(l, CMATCH_STITCHED));
      mine[STITCHED] = setup->coarse;
      mine[STITCHES] = CMATCHStitches(level.rows, setup->coarse);
      if (mine[STITCHES]) PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(FindAggregates(l, coarsens, mine));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode FindAggregates(LocalInt l, bool coarsens, PetscInt mine[])
  {
    PetscFunctionBegin;
    PetscCall(setup->Find(l, coarsens ? CMATCH_MATCHED : CMATCH_PASSED));
    mine[STITCHES] = 0;
    mine[COARSE]   = setup->coarse;
    mine[LEFT]     = setup->left;
    mine[ENTRIES]  = Told(setup->entries);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Who has the rows of the next level. Nothing here allocates memory, and an error is one of all ranks, which have the same
     numbers.
  */
  PetscErrorCode Share(LocalInt l, const Outlook &next)
  {
    CMATCHRanksLevel      &level = ranks->level[l];
    std::vector<PetscInt> &begin = ranks->next_range;
    const PetscInt         group = GroupSize(H->params, level, l, next);
    const auto             count = [&](PetscInt r) {
      return next.transfer == CMATCH_PASSED
                           ? level.range[r + 1] - level.range[r]
                           : ranks->told[(size_t)r * TOLD + (next.transfer == CMATCH_STITCHED ? STITCHED : COARSE)];
    };
    const auto root   = [&](PetscInt r) { return r / group * group; };
    PetscInt   givers = 0;

    PetscFunctionBegin;
    std::fill(begin.begin(), begin.begin() + level.size + 1, 0);
    for (PetscInt r = 0; r < level.size; r++) {
      begin[root(r) + 1] += count(r);
      givers += count(r) > 0;
    }
    for (PetscInt r = 0; r < level.size; r++) {
      PetscCheck(begin[r + 1] <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
                 "A rank would get %" PetscInt_FMT
                 " rows of level %d, but finepc counts what one rank has with 32 bits, so at most %d: lower "
                 "-pc_cmatch_gather_factor",
                 begin[r + 1], (int)l + 1, LOCAL_INT_MAX);
      begin[r + 1] += begin[r];
    }
    own_first = begin[root(level.rank)];
    for (PetscInt r = 0; r < level.rank; r++)
      if (root(r) == root(level.rank)) own_first += count(r);
    level.next_all   = next.rows;
    level.next_rows  = (LocalInt)(begin[level.rank + 1] - begin[level.rank]);
    level.next_first = begin[level.rank];
    level.mine       = root(level.rank) == level.rank ? (LocalInt)count(level.rank) : 0;
    level.width      = next.transfer == CMATCH_MATCHED ? (LocalInt)H->params.prolongator_row : 1;
    level.gathered   = group > 1;
    /* There is something to stitch if rows were matched on several ranks before they come together. */
    next_level.stitch = H->params.stitch && level.gathered && givers > 1 && (next.transfer != CMATCH_PASSED || matched);
    next_level.rows   = level.next_rows;
    next_level.all    = next.rows;
    next_level.range.push_back(0);
    for (PetscInt r = 0; r < level.size; r++)
      if (begin[r + 1] > begin[r]) next_level.range.push_back(begin[r + 1]); /* ranks without rows are not of that level */
    if (next.transfer == CMATCH_MATCHED) matched = true;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rank with what is left of the hierarchy if nobody has rows of the next level. */
  bool Last(LocalInt l) const { return !ranks->level[l].next_all && !ranks->level[l].rank; }

  /* --------------------------------------- the prolongator ------------------------------------ */

  PetscErrorCode Prolongator(LocalInt l)
  {
    const PetscInt first = keep ? H->level[l].first_coarse : own_first;
    constexpr int  kNone = 0xff; /* of each byte of -1, which is no aggregate */

    PetscFunctionBegin;
    PetscCall(Alone([&] { return setup->Take(l, first); }));
    if (!keep) PetscCall(Halo(l, 1, MPIU_INT, setup->numbers, kNone));
    PetscCall(Alone([&] { return setup->Prolong(l); }));
    if (!keep) PetscCall(Halo(l, ranks->level[l].width, MPIU_INT, setup->P_j, kNone));
    PetscCall(Halo(l, ranks->level[l].width, ValueType(ranks->precision), H->level[l].P_a, 0));
    if (!keep) PetscCall(ConnectCoarse(l));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Finds the neighbours that rows travel to and come from. */
  PetscErrorCode ConnectCoarse(LocalInt l)
  {
    CMATCHRanksLevel        &level = ranks->level[l];
    const MPI_Comm           comm  = PetscObjectComm((PetscObject)level.halo);
    std::vector<PetscMPIInt> sizes;
    PetscMPIInt              count = 0, *from = nullptr, *lengths = nullptr;

    PetscFunctionBegin;
    PetscCall(Alone([&] { return ListTravellers(l, &level, &sizes); }));
    if (Bad()) sizes.clear();
    PetscCall(Together([&] {
      PetscFunctionBegin;
      PetscCall(PetscCommBuildTwoSided(comm, 1, MPI_INT, (PetscMPIInt)sizes.size(), level.sent.ranks.data(), sizes.data(), &count,
                                       &from, &lengths));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscCall(Alone([&] { return MakeRoomForRows(count, from, lengths, &level); }));
    PetscCall(Together([&] {
      PetscInt failed = Bad();
      PetscFunctionBegin;
      PetscCall(PetscFree(from));
      PetscCall(PetscFree(lengths));
      PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &failed, 1, MPIU_INT, MPI_MAX, level.comm));
      stopped = failed;
      if (!stopped) PetscCall(TellNumbers(&level, level.sent, level.there.data(), level.came, level.came.row.data()));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    if (stopped) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(Alone([&] {
      PetscFunctionBegin;
      PetscCall(setup->Connect(l, level.next_rows, level.sent.Route(), level.came.Route()));
      level.place = std::move(setup->place);
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     The rows that this rank sends: its aggregates, unless it keeps them, and the foreign ones. The numbers of both ascend, so that
     there are few pieces of rows that have the same owner.
  */
  PetscErrorCode ListTravellers(LocalInt l, CMATCHRanksLevel *level, std::vector<PetscMPIInt> *sizes) const
  {
    struct Piece {
      PetscMPIInt owner;
      LocalInt    begin, end; /* rows */
    };
    const CMATCHLevel &shown = H->level[l];
    const auto         range = ranks->next_range.begin();
    const LocalInt     given = shown.coarse - level->mine, rows = given + shown.foreign;
    const auto         number = [&](LocalInt r) -> PetscInt {
      return r < given ? shown.first_coarse + level->mine + r : shown.column[r - given];
    };
    std::vector<Piece> pieces;
    CMATCHWay         &way = level->sent;

    PetscFunctionBegin;
    for (LocalInt r = 0; r < rows; r++) {
      const PetscInt mine = number(r);
      if (pieces.empty() || mine < range[pieces.back().owner] || mine >= range[pieces.back().owner + 1])
        pieces.push_back({(PetscMPIInt)(std::upper_bound(range, range + level->size + 1, mine) - range - 1), r, r});
      pieces.back().end = r + 1;
    }
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece &a, const Piece &b) { return a.owner < b.owner; });
    way.ranks.clear();
    way.begin.assign(1, 0);
    way.row.clear();
    level->there.clear();
    way.row.reserve(rows);
    level->there.reserve(rows);
    for (const Piece &piece : pieces) {
      if (way.ranks.empty() || way.ranks.back() != piece.owner) {
        way.ranks.push_back(piece.owner);
        way.begin.push_back(0);
      }
      for (LocalInt r = piece.begin; r < piece.end; r++) {
        way.row.push_back(r);
        level->there.push_back(number(r) - range[piece.owner]);
      }
      way.begin.back() = (PetscInt)way.row.size();
    }
    sizes->clear();
    for (size_t k = 0; k < way.ranks.size(); k++) sizes->push_back((PetscMPIInt)(way.begin[k + 1] - way.begin[k]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Room for the numbers of rows that come from these ranks, so many from each, and for messages between neighbours. */
  static PetscErrorCode MakeRoomForRows(PetscMPIInt count, const PetscMPIInt from[], const PetscMPIInt lengths[],
                                        CMATCHRanksLevel *level)
  {
    std::vector<PetscMPIInt> order(count);
    CMATCHWay               &way = level->came;

    PetscFunctionBegin;
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](PetscMPIInt k, PetscMPIInt m) { return from[k] < from[m]; });
    way.ranks.clear();
    way.begin.assign(1, 0);
    for (PetscMPIInt k : order) {
      way.ranks.push_back(from[k]);
      way.begin.push_back(way.begin.back() + lengths[k]);
    }
    PetscCheck(way.begin.back() <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", kCMATCHTooManyCome);
    way.row.resize(way.begin.back());
    level->requests.resize(2 * (level->sent.ranks.size() + way.ranks.size()));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* ----------------------------------------- products ----------------------------------------- */

  PetscErrorCode Products(LocalInt l)
  {
    const CMATCHRanksLevel &level = ranks->level[l];

    PetscFunctionBegin;
    PetscCall(Alone([&] { return setup->Multiply(l, level.mine); }));
    PetscCall(SendRows(l, CMATCH_PRODUCTS));
    /* contributions have rows of M if whole rows are gathered */
    if (!keep && level.gathered && H->params.coarsening == PC_CMATCH_MATCHING) PetscCall(SendRows(l, CMATCH_MATCHING));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  bool IsStaged() const { return PetscMemTypeDevice(ranks->where) && !use_gpu_aware_mpi; }

  /* Makes a parcel of these arrays, which are in the memory of what is exchanged. MPI counts in int, of 32 bits as ours. */
  PetscErrorCode Pack(GlobalInt *j, double *a, bool copy, Parcel *parcel) const
  {
    const size_t count = std::accumulate(parcel->entries.begin(), parcel->entries.end(), (size_t)0);

    PetscFunctionBegin;
    parcel->j_data = j;
    parcel->a_data = a;
    if (IsStaged()) {
      parcel->j.resize(count);
      parcel->a.resize(count);
      parcel->j_data = parcel->j.data();
      parcel->a_data = parcel->a.data();
      if (copy) {
        PetscCall(ArrayCopy(parcel->j_data, j, count * sizeof(*j), PETSC_MEMTYPE_HOST, ranks->where));
        PetscCall(ArrayCopy(parcel->a_data, a, count * sizeof(*a), PETSC_MEMTYPE_HOST, ranks->where));
      }
    } else PetscCall(WaitForGPU());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Rows go to the owners on the next level, their heads first, so that each neighbour knows what comes. What a rank has told of
     its rows it sends, even if it has failed in the meantime, and what others have told it receives.
  */
  PetscErrorCode SendRows(LocalInt l, CMATCHTravel which)
  {
    CMATCHRanksLevel       &level = ranks->level[l];
    const CMATCHTravellers &rows  = setup->travellers;
    const CMATCHRoute       away  = level.sent.Route(), here{(LocalInt)level.came.ranks.size(), level.came.begin.data(), nullptr};
    constexpr size_t        bytes = kCMATCHHead * sizeof(double);
    Parcel                  sent, came;
    RowMemory               memory;
    Memory                  heads_memory;
    double                 *heads = nullptr; /* of the rows that come, on the host of a rank that cannot take them */

    PetscFunctionBegin;
    PetscCall(Alone([&] {
      PetscFunctionBegin;
      PetscCall(setup->OpenRows(which, l, &sent.entries));
      PetscCall(Pack(rows.j, rows.a, true, &sent));
      PetscCall(memory.Create(away, here, IsStaged() ? bytes : 0));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    const bool opened = !Bad();
    PetscCall(Together([&] {
      void *packed = rows.head, *received = rows.all_head;
      PetscFunctionBegin;
      if (!opened) {
        PetscCall(memory.Create(away, here, IsStaged() ? bytes : 0));
        PetscCall(setup->Spare((size_t)(away.Rows() + here.Rows()) * bytes, 0, &packed));
        received = (char *)packed + away.Rows() * bytes;
      }
      PetscCall(DeliverRows(level, kCMATCHHead, MPI_DOUBLE, bytes, memory, away, level.sent.ranks.data(), packed, here,
                            level.came.ranks.data(), received));
      if (!opened) PetscCall(KeepHeads(here.Rows(), received, &heads_memory, &heads));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscCall(Alone([&] {
      PetscFunctionBegin;
      PetscCall(setup->MakeRoom(which, l, &came.entries));
      PetscCall(Pack(rows.all_j, rows.all_a, false, &came));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    const bool has_room = !Bad();
    PetscCall(Together([&] {
      PetscFunctionBegin;
      if (opened && !has_room) PetscCall(KeepHeads(here.Rows(), rows.all_head, &heads_memory, &heads));
      PetscCall(Deliver(level, opened ? &sent : nullptr, has_room ? &came : nullptr, heads));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    if (IsStaged())
      PetscCall(Alone([&] {
        PetscFunctionBegin;
        PetscCall(ArrayCopy(rows.all_j, came.j_data, came.j.size() * sizeof(*came.j_data), ranks->where, PETSC_MEMTYPE_HOST));
        PetscCall(ArrayCopy(rows.all_a, came.a_data, came.a.size() * sizeof(*came.a_data), ranks->where, PETSC_MEMTYPE_HOST));
        PetscFunctionReturn(PETSC_SUCCESS);
      }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The heads of rows that will come, on the host. */
  PetscErrorCode KeepHeads(LocalInt rows, const void *from, Memory *memory, double **heads) const
  {
    const size_t count = (size_t)rows * kCMATCHHead;

    PetscFunctionBegin;
    PetscCall(memory->Create(count, heads));
    PetscCall(ArrayCopy(*heads, from, count * sizeof(double), PETSC_MEMTYPE_HOST, ranks->where));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Delivers entries to neighbours. Without `sent` there are none and no `came` either. Without `came` they are received and
     forgotten, but for those of the rank itself.
  */
  PetscErrorCode Deliver(CMATCHRanksLevel &level, const Parcel *sent, const Parcel *came, const double heads[]) const
  {
    const MPI_Comm     comm = PetscObjectComm((PetscObject)level.halo);
    const CMATCHWay   &away = level.sent, &here = level.came;
    PetscMPIInt        tag, posted              = 0;
    MPI_Request *const requests = level.requests.data();
    Memory             forgotten_memory;
    size_t             at = 0, own_at = 0; /* the latter of what the rank sends to itself */

    PetscFunctionBegin;
    PetscCall(PetscObjectGetNewTag((PetscObject)level.halo, &tag));
    for (size_t k = 0; sent && k < away.ranks.size() && away.ranks[k] != level.rank; k++) own_at += sent->entries[k];
    for (size_t k = 0; came && k < here.ranks.size(); k++) {
      const LocalInt count = came->entries[k];
      if (!count) continue;
      if (here.ranks[k] == level.rank) {
        PetscCall(CopyOwn(came->j_data + at, sent->j_data + own_at, count * sizeof(*sent->j_data)));
        PetscCall(CopyOwn(came->a_data + at, sent->a_data + own_at, count * sizeof(*sent->a_data)));
      } else {
        PetscCallMPI(MPI_Irecv(came->j_data + at, count, MPIU_INT, here.ranks[k], tag, comm, requests + posted++));
        PetscCallMPI(MPI_Irecv(came->a_data + at, count, MPI_DOUBLE, here.ranks[k], tag, comm, requests + posted++));
      }
      at += count;
    }
    at = 0;
    for (size_t k = 0; sent && k < away.ranks.size(); k++) {
      const LocalInt count = sent->entries[k];
      if (count && away.ranks[k] != level.rank) {
        PetscCallMPI(MPI_Isend(sent->j_data + at, count, MPIU_INT, away.ranks[k], tag, comm, requests + posted++));
        PetscCallMPI(MPI_Isend(sent->a_data + at, count, MPI_DOUBLE, away.ranks[k], tag, comm, requests + posted++));
      }
      at += count;
    }
    for (size_t k = 0; !came && k < here.ranks.size(); k++) {
      PetscInt    entries = 0;
      PetscMPIInt count;
      double     *forgotten = nullptr; /* as long as a number, at least */
      for (PetscInt q = here.begin[k]; q < here.begin[k + 1]; q++) entries += (PetscInt)heads[q * kCMATCHHead];
      if (!entries || here.ranks[k] == level.rank) continue;
      PetscCall(PetscMPIIntCast(entries, &count));
      PetscCall(forgotten_memory.Create(entries, &forgotten));
      PetscCallMPI(MPI_Recv(forgotten, count, MPIU_INT, here.ranks[k], tag, comm, MPI_STATUS_IGNORE));
      PetscCallMPI(MPI_Recv(forgotten, count, MPI_DOUBLE, here.ranks[k], tag, comm, MPI_STATUS_IGNORE));
    }
    PetscCallMPI(MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* ---------------------------------------- the next level ------------------------------------ */

  /* Makes the next level, of the ranks that have rows of it. */
  PetscErrorCode NextLevel(LocalInt l)
  {
    std::vector<PetscInt> ghost;

    PetscFunctionBegin;
    PetscCall(Alone([&] {
      const CMATCHRanksLevel &level = ranks->level[l];
      PetscFunctionBegin;
      if (level.next_rows || Last(l)) PetscCall(setup->Next(l, level.next_rows, level.next_first, level.next_all));
      if (level.next_rows && !keep) ghost.assign(H->level[l + 1].ghost, H->level[l + 1].ghost + H->level[l + 1].ghosts);
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    if (Bad()) ghost.clear();
    if (!keep) PetscCall(Together([&] { return ConnectNext(l, ghost); }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A level that one rank has needs no communicator, and one of all ranks has that of the level above. */
  PetscErrorCode ConnectNext(LocalInt l, const std::vector<PetscInt> &ghost)
  {
    const CMATCHRanksLevel &level = ranks->level[l];

    PetscFunctionBegin;
    next_level.size  = (PetscMPIInt)next_level.range.size() - 1;
    next_level.split = next_level.size > 1 && next_level.size < level.size;
    next_level.comm  = next_level.size > 1 ? level.comm : PETSC_COMM_SELF;
    if (next_level.split)
      PetscCallMPI(MPI_Comm_split(level.comm, level.next_rows ? 0 : MPI_UNDEFINED, level.rank, &next_level.comm));
    if (!level.next_rows) PetscFunctionReturn(PETSC_SUCCESS);
    ranks->level.push_back(std::move(next_level)); /* there is room */
    CMATCHRanksLevel &made = ranks->level.back();
    PetscCallMPI(MPI_Comm_rank(made.comm, &made.rank));
    if (made.size > 1) PetscCall(CreateSF(made.comm, made.range.data(), ghost, &made.halo));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PCLocalOutcome   *outcome;
  CMATCHHierarchy  *H;
  CMATCHRanks      *ranks;
  CMATCHRanksSetUp *setup;
  const bool        keep;
  CMATCHRanksLevel  next_level;    /* what is known of it */
  PetscInt          own_first = 0; /* the number of this rank's first aggregate */
  bool              matched   = false;
};

} // namespace

/* --------------------------------- exchanges of a cycle by NCCL ------------------------------- */

/* Other ranks' parts of a list, and the rank's own one. An empty list stands for the numbers from 0 on. */
static void SplitParts(const std::vector<Neighbours::Part> &parts, const std::vector<LocalInt> &list, PetscMPIInt rank,
                       const std::vector<PetscMPIInt> &number, std::vector<Neighbours::Part> *others,
                       std::vector<LocalInt> *entries, std::vector<LocalInt> *own)
{
  LocalInt count = 0;
  for (const Neighbours::Part &part : parts) count += part.rank == rank ? 0 : part.end - part.begin;
  entries->reserve(count);
  for (const Neighbours::Part &part : parts) {
    std::vector<LocalInt> *const to    = part.rank == rank ? own : entries;
    const size_t                 begin = to->size();
    if (list.empty()) {
      to->resize(begin + part.end - part.begin);
      std::iota(to->begin() + begin, to->end(), part.begin);
    } else to->insert(to->end(), list.begin() + part.begin, list.begin() + part.end);
    if (part.rank != rank) others->push_back({number[part.rank], (LocalInt)begin, (LocalInt)to->size()});
  }
}

/* Where each part is a piece of the vector, it becomes a part of that, and no list is needed. */
static void TakePieces(std::vector<Neighbours::Part> *parts, std::vector<LocalInt> *entries)
{
  for (const Neighbours::Part &part : *parts)
    for (LocalInt k = part.begin; k < part.end; k++)
      if ((*entries)[k] != (*entries)[part.begin] + (k - part.begin)) return;
  for (Neighbours::Part &part : *parts) {
    const LocalInt first = (*entries)[part.begin];
    part                 = {part.rank, first, first + part.end - part.begin};
  }
  entries->clear();
}

/* The parts of what travels. */
static std::vector<Neighbours::Part> PartsOf_CMATCH(const CMATCHWay &way)
{
  std::vector<Neighbours::Part> parts;
  for (size_t k = 0; k < way.ranks.size(); k++) parts.push_back({way.ranks[k], (LocalInt)way.begin[k], (LocalInt)way.begin[k + 1]});
  return parts;
}

PetscErrorCode CMATCHMessagesOf(const CMATCHRanksLevel &level, CMATCHKind kind, const std::vector<PetscMPIInt> &number,
                                CMATCHMessages *messages)
{
  Neighbours lists;

  PetscFunctionBegin;
  *messages         = CMATCHMessages{};
  CMATCHMessages &m = *messages;
  if (kind == CMATCH_HALO) PetscCall(NeighboursFromSF(level.halo, &lists));
  else {
    const bool       down = kind == CMATCH_DOWN;
    const CMATCHWay &to = down ? level.sent : level.came, &from = down ? level.came : level.sent;
    lists.to   = PartsOf_CMATCH(to);
    lists.from = PartsOf_CMATCH(from);
    lists.entries.assign(to.row.begin(), to.row.end());
    if (down) lists.places = level.place;
    else lists.places.assign(from.row.begin(), from.row.end());
  }
  SplitParts(lists.to, lists.entries, level.rank, number, &m.to, &m.sent, &m.own_from);
  SplitParts(lists.from, lists.places, level.rank, number, &m.from, &m.came, &m.own_to);
  TakePieces(&m.to, &m.sent);
  if (kind != CMATCH_DOWN) TakePieces(&m.from, &m.came);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The numbers of a level's ranks among those of the finest one. */
static PetscErrorCode NumberRanks(const CMATCHRanksLevel &level, MPI_Comm all, std::vector<PetscMPIInt> *number)
{
  std::vector<PetscMPIInt> own(level.size);
  MPI_Group                group, all_group;

  PetscFunctionBegin;
  number->resize(level.size);
  std::iota(own.begin(), own.end(), 0);
  PetscCallMPI(MPI_Comm_group(level.comm, &group));
  PetscCallMPI(MPI_Comm_group(all, &all_group));
  PetscCallMPI(MPI_Group_translate_ranks(group, level.size, own.data(), all_group, number->data()));
  PetscCallMPI(MPI_Group_free(&group));
  PetscCallMPI(MPI_Group_free(&all_group));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksMakeRoom(CMATCHRanks *ranks, CMATCHHierarchy *H)
{
  std::vector<CMATCHLevelMessages> messages(H->several);
  std::vector<PetscMPIInt>         number;

  PetscFunctionBegin;
  for (LocalInt l = 0; l < H->several; l++) {
    const CMATCHRanksLevel &level = ranks->level[l];
    PetscCall(NumberRanks(level, ranks->level[0].comm, &number));
    for (const CMATCHKind kind : {CMATCH_HALO, CMATCH_DOWN, CMATCH_UP})
      PetscCall(CMATCHMessagesOf(level, kind, number, &messages[l][kind]));
  }
  PetscCall(CMATCHMakeRoom_CUDA(H, ranks->nccl, &messages));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- exchanges of a cycle by MPI -------------------------------- */

/* What the PetscSFs of a level are made from: for each row that is sent its root, and numbers of contributions on both sides. */
struct SFLists {
  std::vector<PetscSFNode> remote;
  std::vector<PetscInt>    place, there; /* of contributions that come, and of those that are sent */
};

/* Makes room for the lists of all levels, which is what can fail on one rank alone. */
static PetscErrorCode MakeSFLists(const CMATCHRanks *ranks, std::vector<SFLists> *all_lists)
{
  PetscFunctionBegin;
  all_lists->resize(ranks->level.size());
  for (size_t l = 0; l < ranks->level.size() && ranks->level[l].size > 1; l++) {
    const CMATCHRanksLevel &level = ranks->level[l];
    SFLists                &lists = (*all_lists)[l];
    lists.remote.resize(level.sent.row.size());
    lists.place.assign(level.place.begin(), level.place.end());
    lists.there.resize(level.there.size());
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A PetscSF from rows that are sent, which are its leaves, to these roots of their owners. */
static PetscErrorCode CreateWay(const CMATCHRanksLevel &level, PetscInt roots, const PetscInt there[], PetscSFNode remote[],
                                PetscSF *sf)
{
  const CMATCHWay &sent = level.sent;

  PetscFunctionBegin;
  for (size_t k = 0; k < sent.ranks.size(); k++)
    for (PetscInt q = sent.begin[k]; q < sent.begin[k + 1]; q++) {
      remote[sent.row[q]].rank  = sent.ranks[k];
      remote[sent.row[q]].index = there[q];
    }
  PetscCall(PetscSFCreate(level.comm, sf));
  PetscCall(PetscSFSetGraph(*sf, roots, (PetscInt)sent.row.size(), nullptr, PETSC_OWN_POINTER, remote, PETSC_COPY_VALUES));
  PetscCall(PetscSFSetUp(*sf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksConnectByMPI(PCLocalPhase *phase, CMATCHRanks *ranks)
{
  std::vector<SFLists> all_lists;

  PetscFunctionBegin;
  PetscCall(PCLocalPhaseStep(phase, CallGuarded(MakeSFLists, (const CMATCHRanks *)ranks, &all_lists), nullptr));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  for (size_t l = 0; l < ranks->level.size() && ranks->level[l].size > 1; l++) {
    CMATCHRanksLevel &level = ranks->level[l];
    SFLists          &lists = all_lists[l];
    PetscCall(CreateWay(level, level.next_rows, level.there.data(), lists.remote.data(), &level.coarse));
    PetscCall(TellNumbers(&level, level.came, lists.place.data(), level.sent, lists.there.data()));
    PetscCall(CreateWay(level, (PetscInt)level.place.size(), lists.there.data(), lists.remote.data(), &level.multi));
  }
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- life cycle ----------------------------------------- */

PetscErrorCode CMATCHRanksCreate(Mat A, PetscMemType where, const CMATCHParams *params, CMATCHRanks **ranks)
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
  PetscCall(MatGetLocalSize(A, &rows, nullptr));
  PetscCall(LocalIntCast(rows, "rows", &level.rows));
  PetscCall(MatGetOwnershipRanges(A, &range));
  level.range.assign(range, range + level.size + 1);
  PetscCall(MatGetOtherColumns(A, &(*ranks)->ghost));
  (*ranks)->told.resize((size_t)level.size * TOLD); /* lower levels have as many ranks at most */
  (*ranks)->next_range.resize(level.size + 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksConnect(Mat A, CMATCHRanks *ranks)
{
  CMATCHRanksLevel &level = ranks->level[0];

  PetscFunctionBegin;
  PetscCall(MatGetGhostSF(A, (PetscInt)ranks->ghost.size(), ranks->ghost.data(), &level.halo));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksForget(CMATCHRanks *ranks)
{
  PetscFunctionBegin;
  ranks->setup.reset();
  for (size_t l = ranks->level.size(); l-- > 0;) {
    CMATCHRanksLevel &level = ranks->level[l];
    PetscCall(PetscSFDestroy(&level.coarse));
    PetscCall(PetscSFDestroy(&level.multi));
    if (!l) continue;
    PetscCall(PetscSFDestroy(&level.halo));
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
  PetscCall(PetscSFDestroy(&(*ranks)->level[0].halo));
  delete *ranks;
  *ranks = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksHalo(const CMATCHRanks *ranks, PetscScalar *x)
{
  PetscFunctionBegin;
  PetscCall(FromRoots(ranks->level[0].halo, ranks->where, MPIU_SCALAR, x, x + ranks->level[0].rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksDescend(PCLocalPhase *phase, CMATCHHierarchy *H, CMATCHRanks *ranks, bool *stopped)
{
  Descent descent(phase, H, ranks);

  PetscFunctionBegin;
  H->exchange = {ranks, HaloBegin, HaloEnd, DownBegin, DownEnd, Up, Sum, Largest, HaloOfDoubles, -1};
  PetscCall(descent.Run());
  *stopped = descent.stopped;
  PetscFunctionReturn(PETSC_SUCCESS);
}
