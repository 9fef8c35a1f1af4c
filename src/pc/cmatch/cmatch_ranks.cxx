/*
   CMATCH on several ranks: the order of the steps, which ranks have which rows, and all communication. The steps themselves are in
   cmatch_host_ranks.cxx, and for a matrix on the GPU in cuda/pc/cmatch/cmatch_ranks.cu.

   A level on several ranks takes four exchanges of a set-up: the numbers of aggregates and the rows of P go to the ranks that have
   them as ghosts, contributions to rows of the Galerkin product and the rows of M go to the owners of rows of the next level. After
   what a rank does alone, the ranks of the level agree whether to go on. Ranks that have no rows of the next level are ready then,
   and wait for the verdict of all.

   Which ranks get the rows of the next level follows from the number of rows, so that all ranks decide alike: one rank, if they are
   few enough; the first rank of each group of gather_factor successive ones, if they would be few for each rank, or if the level
   has hardly fewer rows than the one above, as it is where borders between ranks cut much; otherwise each rank keeps its
   aggregates.
*/
#include "cmatch_ranks_face.h"
#include "entry.h"

/* ----------------------------------------- exchanges ------------------------------------------ */

namespace
{

/* The most entries of a row that travel at once. */
constexpr LocalInt kRowUnit = 256;

/* A unit of `count` values, as long as this object lives. */
class Unit {
public:
  Unit(const Unit &)            = delete;
  Unit &operator=(const Unit &) = delete;
  Unit(LocalInt count, MPI_Datatype value)
  {
    MPI_Type_contiguous(count, value, &type_);
    MPI_Type_commit(&type_);
  }
  ~Unit() { MPI_Type_free(&type_); }
  MPI_Datatype type() const { return type_; }

private:
  MPI_Datatype type_;
};

MPI_Datatype ValueType(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? MPI_FLOAT : MPI_DOUBLE;
}

/* PetscSF may work in another stream. */
PetscErrorCode Fence(PetscMemType where)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(where)) PetscCall(HaloFence_CUDA());
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

PetscErrorCode ToRoots(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *leaves, void *roots)
{
  PetscFunctionBegin;
  PetscCall(ToRootsBegin(sf, where, unit, leaves, roots));
  PetscCall(ToRootsEnd(sf, where, unit, leaves, roots));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A PetscSF from the leaves with these numbers to their owners, who have so many roots each. */
PetscErrorCode CreateSF(MPI_Comm comm, PetscInt roots, const std::vector<PetscInt> &leaves, PetscSF *sf)
{
  PetscLayout layout;

  PetscFunctionBegin;
  PetscCall(PetscLayoutCreateFromSizes(comm, roots, PETSC_DECIDE, 1, &layout));
  PetscCall(PetscSFCreate(comm, sf));
  PetscCall(PetscSFSetRankOrder(*sf, PETSC_TRUE));
  PetscCall(PetscSFSetGraphLayout(*sf, layout, (PetscInt)leaves.size(), nullptr, PETSC_OWN_POINTER, leaves.data()));
  PetscCall(PetscSFSetUp(*sf));
  PetscCall(PetscLayoutDestroy(&layout));
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

/* How many successive ranks give their rows to the first one of them. */
PetscInt GroupSize(const CMATCHParams &params, const CMATCHRanksLevel &level, LocalInt l, CMATCHTransfer transfer,
                   PetscInt next_all)
{
  const bool last = l + 2 >= params.max_levels || (transfer == CMATCH_MATCHED && CMATCHIsSlow(params, level.all, next_all)),
             stalls =
               transfer == CMATCH_PASSED || (transfer == CMATCH_MATCHED && next_all > kCMATCHGatherShrink * (PetscReal)level.all);

  if (last || next_all <= PetscMax(params.gather_rows, params.coarse_size)) return level.size;
  if (stalls || next_all / level.size < params.gather_ranks) return PetscMin(params.gather_factor, level.size);
  return 1;
}

/* ------------------------------------------- levels ------------------------------------------- */

/* What one rank tells the others of its level. */
enum { ERROR, COARSE, LEFT, TOLD };

class Descent {
public:
  Descent(PCLocalPhase *phase, CMATCHHierarchy *hierarchy, CMATCHRanks *all_ranks) :
      outcome(phase->outcome), H(hierarchy), ranks(all_ranks), setup(all_ranks->setup.get()), keep(all_ranks->keep)
  {
  }
  bool stopped = false;

  PetscErrorCode Run()
  {
    PetscFunctionBegin;
    PetscCall(Step(0, [&] {
      told.resize((size_t)ranks->level[0].size * TOLD); /* lower levels have as many ranks at most */
      return PETSC_SUCCESS;
    }));
    for (LocalInt l = 0; !stopped; l++) {
      if (l > 0 && ranks->level[l].size == 1) {
        PetscCall(Alone([&] { return setup->End(l, true, ranks->level[l].stitch, ranks->keep_work); }));
        break;
      }
      PetscCall(Aggregates(l));
      if (!stopped) PetscCall(Prolongator(l));
      if (!stopped) PetscCall(Products(l));
      if (!stopped) PetscCall(NextLevel(l));
      if (stopped || !ranks->level[l].next_rows) {
        if (!stopped) PetscCall(Alone([&] { return setup->End(l + 1, Last(l), false, ranks->keep_work); }));
        break;
      }
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* What this rank does without others, and without telling them at once. */
  template <typename Part>
  PetscErrorCode Alone(const Part &part)
  {
    PetscErrorCode (*const call)(const Part *) = [](const Part *p) { return (*p)(); };

    PetscFunctionBegin;
    const PetscErrorCode code = CallGuarded(call, &part);
    if (code) {
      outcome->code    = code;
      outcome->text[0] = 0; /* it has been reported */
    }
    stopped = Bad();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  bool Bad() const { return outcome->code || setup->stats.failure; }

  /* What this rank does without others, after which all ranks of the level agree; `most` becomes the largest one of them. */
  template <typename Part>
  PetscErrorCode Step(LocalInt l, const Part &part, PetscInt *most = nullptr)
  {
    PetscInt told[2] = {0, 0};

    PetscFunctionBegin;
    PetscCall(Alone(part));
    told[0] = Bad();
    if (most) told[1] = *most;
    outcome->exchanging = true;
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, told, 2, MPIU_INT, MPI_MAX, ranks->level[l].comm));
    outcome->exchanging = false;
    stopped             = told[0];
    if (most) *most = told[1];
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

  /* Finds aggregates, and what all ranks have found. */
  PetscErrorCode Find(LocalInt l, CMATCHTransfer transfer, PetscInt *coarse, PetscInt *left)
  {
    const CMATCHRanksLevel &level = ranks->level[l];

    PetscFunctionBegin;
    PetscCall(Alone([&] { return setup->Find(l, transfer); }));
    const PetscInt mine[TOLD] = {stopped, setup->coarse, setup->left};
    PetscCall(Together([&] {
      PetscFunctionBegin;
      PetscCallMPI(MPI_Allgather(mine, TOLD, MPIU_INT, told.data(), TOLD, MPIU_INT, level.comm));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    *coarse = *left = 0;
    for (size_t r = 0; r < (size_t)level.size * TOLD; r += TOLD) {
      stopped = stopped || told[r + ERROR];
      *coarse += told[r + COARSE];
      *left += told[r + LEFT];
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Aggregates of all ranks, and who has the rows of the next level. */
  PetscErrorCode Aggregates(LocalInt l)
  {
    const CMATCHParams &params = H->params;
    CMATCHRanksLevel   &level  = ranks->level[l];

    PetscFunctionBegin;
    if (!keep) {
      CMATCHTransfer transfer = CMATCH_PASSED;
      PetscInt       coarse = 0, left = 0;
      if (level.all > params.coarse_size && l + 1 < params.max_levels) {
        if (level.stitch) {
          PetscCall(Find(l, transfer = CMATCH_STITCHED, &coarse, &left));
          if (stopped) PetscFunctionReturn(PETSC_SUCCESS);
        }
        if (!level.stitch || coarse == level.all) {
          PetscCall(Find(l, transfer = CMATCH_MATCHED, &coarse, &left));
          if (stopped) PetscFunctionReturn(PETSC_SUCCESS);
        }
        ranks->dominated = left == level.all;
        if (transfer == CMATCH_MATCHED && !ranks->dominated && coarse >= kCMATCHStall * (PetscReal)(level.all - left))
          transfer = CMATCH_PASSED;
      }
      if (transfer == CMATCH_PASSED) PetscCall(Find(l, transfer, &coarse, &left));
      if (stopped) PetscFunctionReturn(PETSC_SUCCESS);
      Share(l, transfer, coarse);
    }
    const PetscInt first_coarse = keep ? H->level[l].first_coarse : own_first;
    PetscCall(Step(l, [&] { return setup->Take(l, first_coarse); }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Who has the rows of the next level. */
  void Share(LocalInt l, CMATCHTransfer transfer, PetscInt coarse)
  {
    CMATCHRanksLevel &level = ranks->level[l];
    const PetscInt    group = GroupSize(H->params, level, l, transfer, coarse), root = level.rank - level.rank % group;
    PetscInt          givers = 0, rows = 0;

    own_first = 0;
    for (PetscInt r = 0; r < level.size; r++) {
      const PetscInt of_rank = told[(size_t)r * TOLD + COARSE];
      if (r < level.rank) own_first += of_rank;
      if (r / group == root / group) rows += of_rank;
      givers += of_rank > 0;
    }
    level.next_all   = coarse;
    level.next_first = own_first;
    level.next_rows  = level.rank == root ? (LocalInt)rows : 0;
    level.mine       = level.rank == root ? setup->coarse : 0;
    /* There is something to stitch if rows were matched on several ranks before they come together. */
    stitch = group > 1 && givers > 1 && (transfer != CMATCH_PASSED || matched);
    if (transfer == CMATCH_MATCHED) matched = true;
    level.gathered = group > 1;
  }

  /* The rank with what is left of the hierarchy if nobody has rows of the next level. */
  bool Last(LocalInt l) const { return !ranks->level[l].next_all && !ranks->level[l].rank; }

  PetscErrorCode Prolongator(LocalInt l)
  {
    CMATCHRanksLevel &level = ranks->level[l];

    PetscFunctionBegin;
    if (!keep)
      PetscCall(
        Together([&] { return FromRoots(level.halo, ranks->where, MPIU_INT, setup->numbers, setup->numbers + level.rows); }));
    PetscCall(Step(l, [&] { return setup->Prolong(l); }));
    if (stopped) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(Together([&] { return SendProlongator(l); }));
    if (!keep) PetscCall(ConnectCoarse(l));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode SendProlongator(LocalInt l)
  {
    const CMATCHRanksLevel &level = ranks->level[l];
    const LocalInt          width = H->level[l].width;
    const Unit              columns(width, MPIU_INT), values(width, ValueType(ranks->precision));
    const size_t            own = (size_t)level.rows * width;
    char *const             P_a = (char *)H->level[l].P_a;

    PetscFunctionBegin;
    if (!keep) PetscCall(FromRoots(level.halo, ranks->where, columns.type(), setup->P_j, setup->P_j + own));
    PetscCall(FromRoots(level.halo, ranks->where, values.type(), P_a, P_a + own * FinePCPrecisionBytes(ranks->precision)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Makes the PetscSF from aggregates to the rows of the next level. */
  PetscErrorCode ConnectCoarse(LocalInt l)
  {
    CMATCHRanksLevel     &level = ranks->level[l];
    const CMATCHLevel    &shown = H->level[l];
    std::vector<PetscInt> leaves;
    const PetscInt       *degree;

    PetscFunctionBegin;
    PetscCall(Step(l, [&] {
      for (LocalInt c = level.mine; c < shown.coarse; c++) leaves.push_back(shown.first_coarse + c);
      leaves.insert(leaves.end(), shown.column, shown.column + shown.foreign);
      level.add_i.assign((size_t)level.next_rows + 1, 0);
      return PETSC_SUCCESS;
    }));
    if (stopped) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(Together([&] {
      PetscFunctionBegin;
      PetscCall(CreateSF(level.comm, level.next_rows, leaves, &level.coarse));
      PetscCall(PetscSFComputeDegreeBegin(level.coarse, &degree));
      PetscCall(PetscSFComputeDegreeEnd(level.coarse, &degree));
      for (LocalInt c = 0; c < level.next_rows; c++) level.add_i[c + 1] = level.add_i[c] + (LocalInt)degree[c];
      PetscCall(PetscSFGetMultiSF(level.coarse, &level.multi));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Products(LocalInt l)
  {
    const CMATCHRanksLevel &level = ranks->level[l];

    PetscFunctionBegin;
    PetscCall(Step(l, [&] { return setup->Multiply(l, level.mine); }));
    if (!stopped) PetscCall(SendRows(l, CMATCH_PRODUCTS));
    /* contributions have rows of M if whole rows are gathered */
    if (!stopped && !keep && level.gathered && H->params.coarsening == PC_CMATCH_MATCHING) PetscCall(SendRows(l, CMATCH_MATCHING));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Rows go to the owners on the next level, in units of at most kRowUnit entries, of which a row that is longer takes several. An
     exchange has one unit of each row.
  */
  PetscErrorCode SendRows(LocalInt l, CMATCHTravel which)
  {
    const CMATCHRanksLevel &level = ranks->level[l];
    const CMATCHTravellers &rows  = setup->travellers;
    const PetscMemType      where = ranks->where;
    PetscInt                most  = 0;

    PetscFunctionBegin;
    PetscCall(Step(
      l,
      [&] {
        LocalInt widest = 0;
        PetscFunctionBegin;
        PetscCall(setup->OpenRows(which, l, level.add_i.back(), &widest));
        most = widest;
        PetscFunctionReturn(PETSC_SUCCESS);
      },
      &most));
    if (stopped) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(Together([&] {
      PetscFunctionBegin;
      PetscCall(ToRoots(level.multi, where, MPIU_INT, rows.length, rows.all_length));
      PetscCall(ToRoots(level.multi, where, MPI_DOUBLE, rows.sum, rows.all_sum));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    const LocalInt unit = (LocalInt)PetscClipInterval(most, 1, kRowUnit);
    PetscCall(Step(l, [&] { return setup->MakeRoom(which, unit); }));
    if (stopped) PetscFunctionReturn(PETSC_SUCCESS);
    const Unit columns(unit, MPIU_INT), values(unit, MPI_DOUBLE);
    for (PetscInt begin = 0; begin < most; begin += unit)
      PetscCall(Together([&] {
        PetscFunctionBegin;
        PetscCall(setup->Pack(which, (LocalInt)begin, unit));
        PetscCall(ToRoots(level.multi, where, columns.type(), rows.j, rows.all_j));
        PetscCall(ToRoots(level.multi, where, values.type(), rows.a, rows.all_a));
        PetscCall(setup->Unpack(which, (LocalInt)begin, unit));
        PetscFunctionReturn(PETSC_SUCCESS);
      }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Makes the next level, of the ranks that have rows of it. */
  PetscErrorCode NextLevel(LocalInt l)
  {
    std::vector<PetscInt> ghost;

    PetscFunctionBegin;
    PetscCall(Step(l, [&] {
      const CMATCHRanksLevel &level = ranks->level[l];
      PetscFunctionBegin;
      if (level.next_rows || Last(l)) PetscCall(setup->Next(l, level.next_rows, level.next_first, level.next_all, level.add_i));
      if (level.next_rows && !keep) {
        ghost.assign(H->level[l + 1].ghost, H->level[l + 1].ghost + H->level[l + 1].ghosts);
        ranks->level.reserve(l + 2);
      }
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    if (!stopped && !keep) PetscCall(Together([&] { return ConnectNext(l, ghost); }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ConnectNext(LocalInt l, const std::vector<PetscInt> &ghost)
  {
    CMATCHRanksLevel next;
    PetscInt         all_have;

    PetscFunctionBegin;
    {
      const CMATCHRanksLevel &level = ranks->level[l];
      PetscInt                has   = level.next_rows > 0;
      PetscCallMPI(MPIU_Allreduce(&has, &all_have, 1, MPIU_INT, MPI_MIN, level.comm));
      next.rows   = level.next_rows;
      next.all    = level.next_all;
      next.stitch = stitch;
      next.split  = !all_have;
      next.comm   = level.comm;
      if (!all_have) PetscCallMPI(MPI_Comm_split(level.comm, has ? 0 : MPI_UNDEFINED, level.rank, &next.comm));
      if (!has) PetscFunctionReturn(PETSC_SUCCESS);
    }
    ranks->level.push_back(next); /* there is room */
    CMATCHRanksLevel &made = ranks->level.back();
    PetscCallMPI(MPI_Comm_size(made.comm, &made.size));
    PetscCallMPI(MPI_Comm_rank(made.comm, &made.rank));
    if (made.size > 1) PetscCall(CreateSF(made.comm, made.rows, ghost, &made.halo));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PCLocalOutcome       *outcome;
  CMATCHHierarchy      *H;
  CMATCHRanks          *ranks;
  CMATCHRanksSetUp     *setup;
  const bool            keep;
  std::vector<PetscInt> told;          /* [size][TOLD] */
  PetscInt              own_first = 0; /* the number of this rank's first aggregate */
  bool                  matched = false, stitch = false;
};

} // namespace

/* ----------------------------------------- life cycle ----------------------------------------- */

PetscErrorCode CMATCHRanksCreate(Mat A, PetscMemType where, FinePCPrecision precision, CMATCHRanks **ranks)
{
  PetscInt        rows, count;
  const PetscInt *columns;
  Mat             others;

  PetscFunctionBegin;
  *ranks = new CMATCHRanks();
  (*ranks)->level.resize(1);
  CMATCHRanksLevel &level = (*ranks)->level[0];
  (*ranks)->precision     = precision;
  (*ranks)->where         = where;
  PetscCall(PetscObjectGetComm((PetscObject)A, &level.comm));
  PetscCallMPI(MPI_Comm_size(level.comm, &level.size));
  PetscCallMPI(MPI_Comm_rank(level.comm, &level.rank));
  PetscCall(MatGetSize(A, &level.all, nullptr));
  PetscCall(MatGetLocalSize(A, &rows, nullptr));
  PetscCall(LocalIntCast(rows, "rows", &level.rows));
  PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &others, &columns));
  PetscCall(MatGetSize(others, nullptr, &count));
  (*ranks)->ghost.assign(columns, columns + count);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksConnect(CMATCHRanks *ranks)
{
  CMATCHRanksLevel &level = ranks->level[0];

  PetscFunctionBegin;
  PetscCall(CreateSF(level.comm, level.rows, ranks->ghost, &level.halo));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksForget(CMATCHRanks *ranks)
{
  PetscFunctionBegin;
  ranks->setup.reset();
  for (size_t l = ranks->level.size(); l-- > 0;) {
    CMATCHRanksLevel &level = ranks->level[l];
    PetscCall(PetscSFDestroy(&level.coarse));
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
  H->exchange = {ranks, HaloBegin, HaloEnd, DownBegin, DownEnd, Up, Sum, Largest};
  PetscCall(descent.Run());
  *stopped = descent.stopped;
  PetscFunctionReturn(PETSC_SUCCESS);
}
