/*
   The set-up of CMATCH as PETSc sees it: the near null vector, what can be kept, why there is no hierarchy, and the steps in which
   all ranks take part.
*/
#include <petsc/private/pcimpl.h>

#include <cmath>

#include "cmatch_uneven.h"
#include "entry.h"
#include "finepcimpl.h"
#include "sparse/bsr_mat.h"
#include "sparse/csr_mat.h"
#include "sparse/offload.h"

/* ---------------------------------- w, the near null vector ----------------------------------- */

namespace
{

/* What a null space of PETSc gives for w. */
struct FirstVector {
  bool found; /* it has the constants, or a vector */
  Vec  vec;   /* null for the constants, which come before vectors */
};

/* What is counted of a vector, of one rank or of all */
struct NearNullSums {
  double squares, zeros, rows;
};

/* w, as the twins take it */
struct NearNullVector {
  NearNull           source;
  bool               exact;    /* it is said to be in the null space of the matrix that is preconditioned */
  bool               singular; /* it is in it, since it has no zeros */
  bool               unused;   /* the source has a vector that is zero in too many rows: w has the constants */
  NearNullSums       sums;     /* of that vector */
  PetscReal          zero;     /* see CMATCHParams */
  Vec                vec;      /* null for the constants */
  const PetscScalar *array;    /* [rows] in the memory of the matrix, or null for the constants */
  const PetscScalar *lent;     /* what vec has lent, on the host if from_host */
  bool               from_host;
};

} // namespace

/* The matrix whose rows are preconditioned: the copy of single entries, where there is one. */
static Mat EntriesOf(PC pc)
{
  const Mat entries = ((const PC_CMATCH *)pc->data)->entries;

  return entries ? entries : pc->pmat;
}

static PetscErrorCode GetFirstVector(MatNullSpace space, FirstVector *first)
{
  PetscBool  constants;
  PetscInt   count;
  const Vec *vectors;

  PetscFunctionBegin;
  *first = FirstVector{};
  if (!space) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatNullSpaceGetVecs(space, &constants, &count, &vectors));
  first->found = constants || count;
  if (!constants && count) first->vec = vectors[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Counts this rank's part of a vector. */
static PetscErrorCode SumNearNullVector(Vec vec, NearNullSums *sums)
{
  const PetscScalar *array;
  PetscInt           n;
  PetscReal          largest = 0;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(vec, &n));
  *sums = NearNullSums{0, 0, (double)n};
  PetscCall(VecGetArrayRead(vec, &array));
  for (PetscInt i = 0; i < n; i++) largest = PetscMax(largest, PetscAbsScalar(array[i]));
  for (PetscInt i = 0; i < n; i++) {
    sums->squares += array[i] * array[i];
    sums->zeros += PetscAbsScalar(array[i]) <= kCMATCHZero * largest;
  }
  PetscCall(VecRestoreArrayRead(vec, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Decides what becomes of w, of which so much is known. A zero would take its row out of the matrix W A W, and counts as an entry
   of the usual size. Where there are many, as in a translation of a body, or on some components alone, the vector says nothing
   about these rows, and the constants do better.
*/
static void JudgeNearNullVector(const NearNullSums &sums, NearNullVector *w)
{
  w->sums     = sums;
  w->singular = w->exact;
  w->zero     = 1;
  if (!w->vec || !std::isfinite(sums.squares)) return; /* the twins name an entry that is not finite */
  w->singular = w->exact && sums.zeros == 0;
  w->unused   = sums.zeros > kCMATCHMostZeros * sums.rows;
  if (w->unused) w->vec = nullptr;
  else if (sums.squares > 0) w->zero = PetscSqrtReal(sums.squares / (sums.rows - sums.zeros));
}

/*
   Chooses w. The null space comes first where it is that of what is preconditioned, the whole matrix or the rank's block, which may
   be the whole matrix: then the coarsest level is solved in its complement. Otherwise w is that of the near null space, if there is
   one.
*/
static PetscErrorCode ChooseNearNullVector(PC pc, bool global, PetscInt n, NearNullVector *w)
{
  MatNullSpace space, near_space;
  FirstVector  exact, near;
  PetscInt     rows;

  PetscFunctionBegin;
  *w = NearNullVector{};
  PetscCall(MatGetNullSpace(pc->pmat, &space));
  if (!space) PetscCall(MatGetNullSpace(pc->mat, &space));
  PetscCall(MatGetNearNullSpace(pc->pmat, &near_space));
  if (!near_space) PetscCall(MatGetNearNullSpace(pc->mat, &near_space));
  PetscCall(GetFirstVector(space, &exact));
  PetscCall(GetFirstVector(near_space, &near));
  PetscCall(MatGetSize(pc->pmat, &rows, nullptr));
  const bool is_whole = rows > 0 && (global || n == rows);
  if (exact.found && (is_whole || !near.found)) {
    w->source = NearNull::EXACT;
    w->vec    = exact.vec;
    w->exact  = is_whole;
  } else if (near.found) {
    w->source = NearNull::NEAR;
    w->vec    = near.vec;
  }
  if (!w->vec) w->source = NearNull::CONSTANTS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lends w in the memory of the matrix. `sums` are those of all ranks where the hierarchy is one of all ranks, or null. */
static PetscErrorCode GetNearNullVector(PC pc, const NearNullSums *sums, const CSRView *A, NearNullVector *w)
{
  PC_CMATCH   *cmatch = (PC_CMATCH *)pc->data;
  NearNullSums own{};
  PetscInt     n;
  PetscMemType where;

  PetscFunctionBegin;
  PetscCall(ChooseNearNullVector(pc, sums != nullptr, A->n, w));
  if (w->vec && !sums) PetscCall(SumNearNullVector(w->vec, &own));
  JudgeNearNullVector(sums ? *sums : own, w);
  if (!w->vec) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecGetLocalSize(w->vec, &n));
  PetscCheck(n == A->n, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The first vector of the %s has %" PetscInt_FMT " entries on this rank, but the matrix has %" LocalInt_FMT
             " rows: both must have the same layout",
             w->source == NearNull::EXACT ? "null space" : "near null space", n, A->n);
  w->from_host = !PetscMemTypeDevice(A->where);
  if (w->from_host) {
    PetscCall(VecGetArrayRead(w->vec, &w->lent));
    w->array = w->lent;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecGetArrayReadAndMemType(w->vec, &w->lent, &where));
  w->array = w->lent;
  if (PetscMemTypeDevice(where)) PetscFunctionReturn(PETSC_SUCCESS);
  if (!cmatch->w) PetscCall(ArrayCreate(n * sizeof(*cmatch->w), A->where, (void **)&cmatch->w));
  PetscCall(ArrayCopy(cmatch->w, w->lent, n * sizeof(*cmatch->w), A->where, where));
  w->array = cmatch->w;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Keeps what the set-up and the view need to know of w. */
static void KeepNearNull(const NearNullVector &w, PC_CMATCH *cmatch)
{
  cmatch->near_null        = w.source;
  cmatch->near_null_unused = w.unused;
  cmatch->near_null_zeros  = w.vec || w.unused ? (PetscInt64)w.sums.zeros : 0;
  cmatch->near_null_rows   = (PetscInt64)w.sums.rows;
  cmatch->params.singular  = w.singular ? PETSC_TRUE : PETSC_FALSE;
  cmatch->params.zero      = w.zero;
}

static PetscErrorCode RestoreNearNullVector(NearNullVector *w)
{
  PetscFunctionBegin;
  if (!w->lent) PetscFunctionReturn(PETSC_SUCCESS);
  if (w->from_host) PetscCall(VecRestoreArrayRead(w->vec, &w->lent));
  else PetscCall(VecRestoreArrayReadAndMemType(w->vec, &w->lent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- set-up ------------------------------------------- */

PetscErrorCode PCCMATCHFreeHierarchy(PC_CMATCH *cmatch)
{
  PetscFunctionBegin;
  if (cmatch->hierarchy)
    PetscCall(PetscMemTypeDevice(cmatch->hierarchy->where) ? CMATCHDestroy_CUDA(&cmatch->hierarchy)
                                                           : CMATCHDestroy_Host(&cmatch->hierarchy));
  cmatch->complete = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Whether aggregates and patterns can stay: the user wants to keep them, the nonzeros of A are the same, and the last set-up has
   left a hierarchy of the same kind, with what the next one needs.
*/
static bool CanKeepPattern_CMATCH(PC pc, bool global, const CSRView *A, const NearNullVector *w)
{
  const PC_CMATCH       *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H      = cmatch->hierarchy;

  return cmatch->reuse_pattern && cmatch->same_nonzeros && H && cmatch->complete && cmatch->has_work && H->where == A->where &&
         !H->nodes && cmatch->rows == A->n && !H->w == !w->array && H->params.singular == cmatch->params.singular &&
         !cmatch->ranks == !global;
}

/* The operations of an application. */
static PetscLogDouble CountFlops(const CMATCHHierarchy *H, CMATCHEnd end)
{
  const CMATCHParams *params = &H->params;
  PetscLogDouble      flops  = 0;

  if (H->nodes) return CMATCHNodesFlops(H);
  for (PetscInt l = 0; l < H->levels; l++) {
    const CMATCHLevel   *level   = &H->level[l];
    const bool           last    = l + 1 == H->levels && l >= H->several;
    const PetscLogDouble n       = level->n;
    const PetscLogDouble product = 3. * level->nnz + 2 * n, vector = 2 * n;
    const PetscLogDouble factor = level->factor.d ? 4. * level->factor.W.nnz + 3 * n : 0;
    const PetscLogDouble smooth = 2. * params->degree * (product + 2 * vector + factor);

    if (!last) flops += (level->transfer == CMATCH_PASSED ? 0 : smooth) + 4. * level->P_nnz + vector;
    else if (end == CMATCH_END_DOMINATED) flops += smooth;
    else if (H->inverted) flops += 2 * n * n;
    else if (params->coarse == PC_CMATCH_PCG) flops += kCMATCHCoarseIterations * (product + 6 * vector);
    else flops += kCMATCHStalledDegree * (product + 2 * vector);
  }
  return flops;
}

/* Describes in the outcome why there is no hierarchy. */
static PetscErrorCode DescribeFailure_CMATCH(PC pc, bool has_vector, PCLocalOutcome *outcome)
{
  const PC_CMATCH   *cmatch    = (const PC_CMATCH *)pc->data;
  const CMATCHStats *stats     = &cmatch->stats;
  const bool         is_single = cmatch->params.precision == FINEPC_SINGLE;
  const CMATCHNodes *nodes     = cmatch->hierarchy->nodes;
  const PetscInt     first     = cmatch->ranks ? cmatch->hierarchy->level[stats->level].first : 0;
  const bool         of_nodes  = stats->failure == CMATCH_BLOCK_NOT_POSITIVE && !stats->level;
  const auto        *uneven    = cmatch->uneven.get();
  const PetscInt     row       = uneven && !of_nodes && !stats->level
                                   ? uneven->RowOf(stats->row)
                                   : stats->row + first * (nodes && !of_nodes && !stats->level ? nodes->level[0].k : 1);
  char               block[64] = "", place[128], text[512] = "";

  PetscFunctionBegin;
  if (!cmatch->ranks) PetscCall(PCLocalNameBlock(pc, block, sizeof(block)));
  if (of_nodes) {
    const PetscInt k = nodes->level[0].k, begin = uneven ? uneven->RowOf(stats->row * k) : row * k;
    PetscCall(PetscSNPrintf(place, sizeof(place), "Node %" PetscInt_FMT ", rows %" PetscInt_FMT " to %" PetscInt_FMT "%s,", row,
                            begin, begin + (uneven ? uneven->sizes[row] : k) - 1, block));
  } else if (nodes && stats->level)
    PetscCall(PetscSNPrintf(place, sizeof(place), "Level %" LocalInt_FMT " of the hierarchy of nodes%s", stats->level, block));
  else if (stats->level)
    PetscCall(PetscSNPrintf(place, sizeof(place), "Row %" PetscInt_FMT " of level %" LocalInt_FMT "%s", row, stats->level, block));
  else PetscCall(PetscSNPrintf(place, sizeof(place), "Row %" PetscInt_FMT "%s", row, block));
  outcome->reason = PC_FACTOR_NUMERIC_ZEROPIVOT;
  outcome->diagonal =
    !stats->level && (stats->failure == CMATCH_DIAGONAL_MISSING || stats->failure == CMATCH_DIAGONAL_NOT_POSITIVE);
  switch (stats->failure) {
  case CMATCH_OK: break;
  case CMATCH_NOT_FINITE:
    outcome->reason = PC_FACTOR_OTHER;
    PetscCall(PetscSNPrintf(text, sizeof(text),
                            "has an entry that is not finite%s: PCCMATCH needs a symmetric positive definite matrix",
                            nodes        ? ", or a mode has one there"
                            : has_vector ? ", or the near null vector has one there"
                                         : ""));
    break;
  case CMATCH_DIAGONAL_MISSING:
    PetscCall(PetscSNPrintf(text, sizeof(text), "has no diagonal entry: PCCMATCH needs a symmetric definite matrix"));
    break;
  case CMATCH_DIAGONAL_NOT_POSITIVE:
    PetscCall(
      PetscSNPrintf(text, sizeof(text), "has a diagonal entry that is not positive: PCCMATCH needs a symmetric definite matrix"));
    break;
  case CMATCH_BLOCK_NOT_POSITIVE:
    PetscCall(PetscSNPrintf(text, sizeof(text), "has %s that is not positive definite: PCCMATCH needs a symmetric definite matrix",
                            stats->level ? "an operator" : "a diagonal block"));
    break;
  case CMATCH_TOO_LARGE:
    outcome->reason = PC_FACTOR_OTHER;
    PetscCall(PetscSNPrintf(text, sizeof(text),
                            "has an entry that, relative to the largest diagonal entry, cannot be held in %s precision: %s",
                            FinePCPrecisions[cmatch->params.precision],
                            is_single ? "use -pc_cmatch_precision double" : "scale the matrix"));
    break;
  case CMATCH_COARSEST:
    if (nodes) {
      PetscCall(PetscSNPrintf(text, sizeof(text), "has negative eigenvalues: PCCMATCH needs a symmetric definite matrix"));
      break;
    }
    PetscCall(PetscSNPrintf(text, sizeof(text),
                            "has a pivot that is not positive in the factorization of the coarsest operator: PCCMATCH needs a "
                            "symmetric positive definite matrix, and MatSetNullSpace() if it is singular%s",
                            is_single ? "; -pc_cmatch_precision double may help if it is almost singular" : ""));
    break;
  }
  PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text), "%s %s", place, text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* After a set-up that has made aggregates: how well they fit. */
static void RememberFit(CMATCHHierarchy *H)
{
  for (LocalInt l = 0; l < H->levels; l++) {
    CMATCHLevel &level = H->level[l];
    level.first_fit    = level.fit;
    level.first_cut    = level.cut + level.plain;
  }
}

/*
   After a set-up that has kept aggregates: what fits worst, of this rank or of all ranks, and whether they are to be made anew.
*/
static PetscErrorCode FindMisfits(PC pc, PCLocalPhase *together, bool *fits)
{
  PC_CMATCH             *cmatch                                    = (PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H                                         = cmatch->hierarchy;
  PetscInt64             sum[kCMATCHMostLevels][CMATCH_MISFITS][2] = {}; /* how many, and of how many */

  PetscFunctionBegin;
  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHLevel &level = H->level[l];
    const bool         next  = l < H->several || l + 1 < H->levels;

    sum[l][CMATCH_LEFT][0]   = l ? 0 : (PetscInt64)level.fit.left - level.first_fit.left;
    sum[l][CMATCH_LOOSE][0]  = (PetscInt64)level.fit.loose - level.first_fit.loose;
    sum[l][CMATCH_PIECES][0] = (PetscInt64)level.fit.pieces - level.first_fit.pieces;
    sum[l][CMATCH_CUT][0]    = (PetscInt64)level.cut + level.plain - level.first_cut;
    sum[l][CMATCH_LEFT][1]   = l ? 0 : level.n;
    sum[l][CMATCH_LOOSE][1]  = level.n;
    sum[l][CMATCH_PIECES][1] = next ? level.coarse : 0;
    sum[l][CMATCH_CUT][1]    = next ? level.n : 0;
  }
  if (together) {
    together->outcome->exchanging = true;
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sum, sizeof(sum) / sizeof(PetscInt64), MPIU_INT64, MPI_SUM, together->comm));
    together->outcome->exchanging = false;
  }
  PetscReal worst = -1;
  cmatch->misfit  = CMATCHMisfit{};
  *fits           = true;
  for (LocalInt l = 0; l < kCMATCHMostLevels; l++)
    for (const CMATCHMisfitKind kind : {CMATCH_LOOSE, CMATCH_PIECES, CMATCH_CUT, CMATCH_LEFT}) {
      const PetscInt64 count = PetscMax(sum[l][kind][0], 0), of = sum[l][kind][1];
      const PetscReal  most  = kind == CMATCH_LEFT ? 0 : kind == CMATCH_CUT ? kCMATCHMostCut : kCMATCHMisfits;
      const bool       few   = count <= kCMATCHFewMisfits; /* of a small level they do not matter */
      const PetscReal  share = kind == CMATCH_LEFT ? (count ? PETSC_MAX_REAL : 0)
                               : few               ? 0
                                                   : (PetscReal)count / (most * (PetscReal)PetscMax(of, 1));
      if (share > 1) *fits = false;
      if (!of || share <= worst) continue;
      worst          = share;
      cmatch->misfit = {l, kind, count, of, most};
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the hierarchy with the near null vector that is lent. */
static PetscErrorCode ComputeHierarchy(PC pc, const CSRView *A, const NearNullVector &w)
{
  PC_CMATCH *cmatch  = (PC_CMATCH *)pc->data;
  const auto compute = PetscMemTypeDevice(A->where) ? CMATCHComputeHierarchy_CUDA : CMATCHComputeHierarchy_Host;

  PetscFunctionBegin;
  KeepNearNull(w, cmatch);
  cmatch->params.negative = (PetscBool)cmatch->diagonal.negative;
  cmatch->reused          = CanKeepPattern_CMATCH(pc, false, A, &w);
  cmatch->anew            = false;
  cmatch->misfit          = CMATCHMisfit{};
  cmatch->complete        = false;
  cmatch->has_work        = cmatch->reuse_pattern;

  PetscCall(PetscLogEventBegin(FinePC_CMATCHHierarchy, pc, pc->pmat, 0, 0));
  PetscErrorCode code = CallGuarded(compute, A, w.array, &cmatch->params, cmatch->reused ? PETSC_TRUE : PETSC_FALSE,
                                    cmatch->reuse_pattern, &cmatch->hierarchy, &cmatch->stats);
  /* the patterns of other values may not do: a coarse operator has failed, not the matrix, or aggregates do not fit */
  const CMATCHFailure failure = cmatch->stats.failure;
  bool                fits    = true;
  if (!code && cmatch->reused && !failure) code = FindMisfits(pc, nullptr, &fits);
  if (!code && cmatch->reused &&
      (!fits || failure == CMATCH_COARSEST || (failure == CMATCH_DIAGONAL_NOT_POSITIVE && cmatch->stats.level > 0))) {
    cmatch->reused = false;
    cmatch->anew   = !fits;
    code =
      CallGuarded(compute, A, w.array, &cmatch->params, PETSC_FALSE, cmatch->reuse_pattern, &cmatch->hierarchy, &cmatch->stats);
  }
  PetscCall(PetscLogEventEnd(FinePC_CMATCHHierarchy, pc, pc->pmat, 0, 0));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begins the set-up of a hierarchy of all ranks with the finest level, or describes in the outcome why there is none. */
static PetscErrorCode BeginOnRows(PC pc, const CSRView *own, const CSRView *foreign, PCLocalOutcome *outcome)
{
  PC_CMATCH         *cmatch = (PC_CMATCH *)pc->data;
  CMATCHRanks       *ranks  = cmatch->ranks;
  CMATCHRanksSetUp  *setup;
  const PetscScalar *w      = ranks->has_w ? ranks->w.data() : nullptr;
  const bool         device = PetscMemTypeDevice(own->where);
  const CMATCHModes  modes  = ranks->modes.View(ranks->k);

  PetscFunctionBegin;
  if (modes.m)
    PetscCall((device ? CMATCHNodesRanksCreate_CUDA : CMATCHNodesRanksCreate_Host)(&cmatch->params, &modes, ranks->keep,
                                                                                   ranks->keep_work, &ranks->stats,
                                                                                   &cmatch->hierarchy, &setup));
  else
    PetscCall((device ? CMATCHRanksCreate_CUDA : CMATCHRanksCreate_Host)(&cmatch->params, ranks->keep, &ranks->stats,
                                                                         &cmatch->hierarchy, &setup));
  ranks->setup.reset(setup);
  cmatch->hierarchy->level[0].first = ranks->first / ranks->k;
  cmatch->hierarchy->level[0].all   = ranks->level[0].all;
  PetscCall(setup->Begin(own, foreign, ranks->ghost, w, ranks->largest));
  cmatch->stats = ranks->stats;
  if (cmatch->stats.failure) PetscCall(DescribeFailure_CMATCH(pc, w != nullptr, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the hierarchy of the rank's block, or describes in the outcome why there is none. */
static PetscErrorCode ComputeOnRows_CMATCH(PC pc, const CSRView *A, PCLocalOutcome *outcome)
{
  PC_CMATCH     *cmatch = (PC_CMATCH *)pc->data;
  NearNullVector w{};
  LocalInt       k;
  CSRMat         others;

  PetscFunctionBegin;
  if (cmatch->where != A->where || cmatch->rows != A->n) {
    PetscCall(PCCMATCHFreeHierarchy(cmatch));
    PetscCall(ArrayDestroy(cmatch->where, (void **)&cmatch->w));
    PetscCall(PCLocalPlace(pc, A->where, A->n));
  }
  if (cmatch->ranks) {
    PetscCall(PCCMATCHFreeSizes(cmatch));
    PetscCall(MatGetOtherPoints(EntriesOf(pc), (PetscBool)cmatch->same_nonzeros, &cmatch->others, &others));
    const PetscErrorCode code     = CallGuarded(BeginOnRows, pc, A, (const CSRView *)&others.A, outcome);
    const PetscErrorCode restored = MatRestoreCSR(&others);
    PetscCall(code);
    PetscCall(restored);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PCCMATCHChooseNodes(pc, A, &k));
  if (k) PetscCall(PCCMATCHComputeNodes(pc, A, k));
  else {
    PetscErrorCode code = PCCMATCHFreeSizes(cmatch);
    if (!code) code = GetNearNullVector(pc, nullptr, A, &w);
    if (!code) code = ComputeHierarchy(pc, A, w);
    PetscCall(RestoreNearNullVector(&w));
    PetscCall(code);
  }
  if (cmatch->stats.failure) {
    PetscCall(DescribeFailure_CMATCH(pc, w.array != nullptr, outcome));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  cmatch->complete         = true;
  cmatch->hierarchy->flops = CountFlops(cmatch->hierarchy, cmatch->stats.end);
  if (!cmatch->reused) RememberFit(cmatch->hierarchy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCSetUp_CMATCH(PC pc, PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  PetscCall(PCLocalComputeOnSymmetricRows(pc, EntriesOf(pc), OneSided::KEEP, ComputeOnRows_CMATCH, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------------- several ranks ---------------------------------------- */

PetscErrorCode PCCMATCHIsGlobal(PC pc, PetscBool *global)
{
  PetscMPIInt size;
  PetscBool   is_known = PETSC_TRUE; /* the set-up refuses other matrices */

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  if (pc->pmat) PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)pc->pmat, &is_known, MATMPIAIJ, MATMPIBAIJ, MATMPISBAIJ, ""));
  *global = (PetscBool)(size > 1 && is_known && ((const PC_CMATCH *)pc->data)->params.reach == PC_CMATCH_GLOBAL);
  PetscFunctionReturn(PETSC_SUCCESS);
}

namespace
{

/* What a rank has before the set-up of a hierarchy of all ranks. */
struct OwnData {
  PetscBool         global, keep;
  CMATCHNodesChoice nodes; /* of all ranks */
  CMATCHRanksModes  modes; /* with room for those of ghosts, if there are nodes */
  NearNullSums      sums;  /* of w, of all ranks */
  NearNullVector    w;
  CMATCHEntries     w_entries; /* with room for those of ghosts */
  PetscMemType      where;
  double            largest; /* own diagonal entry of W A W */
};

} // namespace

static PetscErrorCode ReadRows(PC pc, const CSRView *A, OwnData *data)
{
  PC_CMATCH *cmatch  = (PC_CMATCH *)pc->data;
  const auto largest = PetscMemTypeDevice(A->where) ? CMATCHLargestDiagonal_CUDA : CMATCHLargestDiagonal_Host;

  std::vector<PetscInt> ghosts;

  PetscFunctionBegin;
  PetscCall(MatGetOtherColumns(EntriesOf(pc), &ghosts));
  data->where = A->where;
  if (data->nodes.k) {
    const LocalInt ghost_nodes = (LocalInt)CMATCHGhostNodes(ghosts, data->nodes.k).size();
    PetscCall(PCCMATCHTakeModes(pc, A, data->nodes, ghost_nodes, &data->modes, &data->keep));
    PetscCall(largest(A, nullptr, 1, &data->largest));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode code = GetNearNullVector(pc, &data->sums, A, &data->w);
  if (!code && data->w.array) code = data->w_entries.Assign(A->where, (size_t)A->n + ghosts.size(), data->w.array, A->n);
  if (!code) code = largest(A, data->w.array, data->w.zero, &data->largest);
  PetscCall(RestoreNearNullVector(&data->w));
  PetscCall(code);
  KeepNearNull(data->w, cmatch);
  cmatch->params.negative = (PetscBool)cmatch->diagonal.negative;
  data->keep              = (PetscBool)CanKeepPattern_CMATCH(pc, true, A, &data->w);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What this rank finds without others. */
static PetscErrorCode ReadOwnRows(PC pc, OwnData *data)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;
  CSRMat     own;

  PetscFunctionBegin;
  PetscCall(PCCMATCHIsGlobal(pc, &data->global));
  if (!data->global) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetPoints(EntriesOf(pc), (PetscBool)cmatch->same_nonzeros, &cmatch->points, &own));
  cmatch->has_points        = true;
  const PetscErrorCode code = CallGuarded(ReadRows, pc, (const CSRView *)&own.A, data), restored = MatRestoreCSR(&own);
  PetscCall(code);
  PetscCall(restored);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHFreeRanks(PC_CMATCH *cmatch)
{
  PetscFunctionBegin;
  PetscCall(CMATCHRanksDestroy(&cmatch->ranks));
  PetscCall(CSRDestroy(&cmatch->others.copy));
  cmatch->others         = MatPoints{};
  cmatch->connect        = nullptr;
  cmatch->reaches_others = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes what the finest level has for its exchanges, unless it is kept. */
static PetscErrorCode PrepareRanks(PC pc, OwnData *data)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  if (!data->keep) {
    PetscCall(PCCMATCHFreeHierarchy(cmatch));
    PetscCall(PCCMATCHFreeRanks(cmatch));
    PetscCall(CMATCHRanksCreate(EntriesOf(pc), data->where, PetscMax(data->nodes.k, 1), &cmatch->params, &cmatch->ranks));
  }
  CMATCHRanks *ranks = cmatch->ranks;
  PetscCall(MatGetOwnershipRange(pc->pmat, &ranks->first, nullptr));
  ranks->setup.reset();
  ranks->keep      = data->keep;
  ranks->keep_work = cmatch->reuse_pattern;
  ranks->largest   = data->largest;
  ranks->has_w     = data->w.vec != nullptr;
  ranks->modes     = std::move(data->modes);
  if (data->keep) PetscCall(CMATCHRanksPrepareHalo(ranks)); /* or when they are connected */
  ranks->w.Swap(&data->w_entries);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Connect_CMATCH(PC, PCLocalPhase *);

/*
   Copies the single entries of a MATSBAIJ, of which a rank has the rows of the upper triangle alone, or new values into the same
   memory, if the hierarchy is to be one of all ranks. All ranks together.
*/
static PetscErrorCode CopyEntries(PC pc, PCLocalPhase *phase)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;
  const bool keep   = cmatch->entries && cmatch->same_nonzeros;
  PetscBool  global, is_upper;

  PetscFunctionBegin;
  PetscCall(PCCMATCHIsGlobal(pc, &global));
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)pc->pmat, MATMPISBAIJ, &is_upper));
  if (!global || !is_upper) {
    PetscCall(MatDestroy(&cmatch->entries));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PCLocalPhaseStep(phase, PETSC_SUCCESS, nullptr)); /* a rank may have failed before */
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  if (!keep) PetscCall(MatDestroy(&cmatch->entries));
  PetscCall(MatConvertBlocks(pc->pmat, keep ? MAT_REUSE_MATRIX : MAT_INITIAL_MATRIX, &cmatch->entries));
  PetscCall(MatOffloadLike(cmatch->entries, pc->pmat));
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Chooses between nodes and rows for a hierarchy of all ranks. All ranks together. */
static PetscErrorCode ChooseNodes(PC pc, PCLocalPhase *phase, CMATCHNodesChoice *choice)
{
  PetscBool global;
  PetscInt  rows;

  PetscFunctionBegin;
  PetscCall(PCCMATCHIsGlobal(pc, &global));
  if (!global) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetLocalSize(pc->pmat, &rows, nullptr));
  PetscCall(PCCMATCHChooseNodesTogether(pc, phase, rows, choice));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Counts the near null vector of a hierarchy of rows of all ranks, if there is a vector. All ranks together. */
static PetscErrorCode SumOfAllRanks(PC pc, PCLocalPhase *phase, NearNullSums *sums)
{
  PCLocalOutcome *outcome = phase->outcome;
  PetscBool       global;
  NearNullVector  w;
  NearNullSums    own{};

  PetscFunctionBegin;
  PetscCall(PCCMATCHIsGlobal(pc, &global));
  if (!global) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ChooseNearNullVector(pc, true, 0, &w));
  if (!w.vec) PetscFunctionReturn(PETSC_SUCCESS);
  if (!outcome->code) {
    outcome->code = SumNearNullVector(w.vec, &own);
    if (outcome->code) outcome->text[0] = 0; /* it has been reported */
  }
  double all[]        = {own.squares, own.zeros, own.rows};
  outcome->exchanging = true;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, all, PETSC_STATIC_ARRAY_LENGTH(all), MPI_DOUBLE, MPI_SUM, phase->comm));
  outcome->exchanging = false;
  *sums               = NearNullSums{all[0], all[1], all[2]};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The near null vector, or the modes of nodes and what else their graph needs, go to ghosts. All ranks together. */
static PetscErrorCode ShareWithGhosts(CMATCHRanks *ranks)
{
  const LocalInt k = ranks->k, m = ranks->modes.m;

  PetscFunctionBegin;
  if (ranks->has_w) PetscCall(CMATCHRanksHalo(ranks, 1, ranks->w.data()));
  if (m) PetscCall(CMATCHRanksHalo(ranks, k * m, ranks->modes.B.data()));
  if (m) PetscCall(CMATCHRanksHalo(ranks, k, ranks->modes.diagonal.data()));
  ranks->staging.clear();
  ranks->staging.shrink_to_fit();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Whether a new hierarchy is made and applied with messages of NCCL, as it is where that is possible and wanted. All ranks find it
   out together.
*/
static PetscErrorCode ChooseCommunication(PC pc, PCLocalPhase *phase)
{
  PC_CMATCH   *cmatch = (PC_CMATCH *)pc->data;
  CMATCHRanks *ranks  = cmatch->ranks;

  PetscFunctionBegin;
  ranks->nccl    = nullptr;
  ranks->why_mpi = "";
  if (!ranks->on_devices) PetscFunctionReturn(PETSC_SUCCESS);
  if (cmatch->communication == PC_CMATCH_COMMUNICATION_MPI) {
    ranks->why_mpi = "it was asked for";
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  phase->outcome->exchanging = true;
  PetscCall(NCCLOf(phase->comm, &ranks->nccl, &ranks->why_mpi));
  phase->outcome->exchanging = false;
  PetscCheck(
    ranks->nccl || cmatch->communication != PC_CMATCH_COMMUNICATION_NCCL, phase->comm, PETSC_ERR_SUP,
    "-pc_cmatch_communication nccl is not possible: %s. Give each rank a GPU of its own and a finepc that finds NCCL, or use "
    "-pc_cmatch_communication auto",
    ranks->why_mpi);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Finds out whether the hierarchy is one of all ranks, and begins it. All ranks together, before the rows are lent for good.
*/
PetscErrorCode PCGather_CMATCH(PC pc, PCLocalPhase *phase)
{
  PC_CMATCH  *cmatch = (PC_CMATCH *)pc->data;
  PetscMPIInt size;
  OwnData     data{};

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(phase->comm, &size));
  if (size == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CopyEntries(pc, phase));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ChooseNodes(pc, phase, &data.nodes));
  if (!data.nodes.k) PetscCall(SumOfAllRanks(pc, phase, &data.sums));
  if (!phase->outcome->code) {
    phase->outcome->code = CallGuarded(ReadOwnRows, pc, &data);
    if (phase->outcome->code) phase->outcome->text[0] = 0; /* it has been reported */
  }
  constexpr int kModes                         = 7; /* where the largest entries of the modes begin */
  double        all[kModes + kCMATCHMostModes] = {(double)!data.global,
                                                  (double)!data.keep,
                                                  (double)!data.w.singular,
                                                  data.largest,
                                                  (double)(phase->outcome->code != PETSC_SUCCESS),
                                                  (double)!PetscMemTypeDevice(data.where),
                                                  (double)(cmatch->why_rows != nullptr)};
  std::copy(std::begin(data.modes.largest), std::end(data.modes.largest), all + kModes);
  phase->outcome->exchanging = true;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, all, PETSC_STATIC_ARRAY_LENGTH(all), MPI_DOUBLE, MPI_MAX, phase->comm));
  phase->outcome->exchanging = false;
  phase->stopped             = all[4] > 0;
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  if (all[0] > 0) {
    PetscCall(PCLocalPhaseStep(phase, cmatch->ranks ? PCCMATCHFreeHierarchy(cmatch) : PETSC_SUCCESS, nullptr));
    PetscCall(PCCMATCHFreeRanks(cmatch));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (all[6] > 0 && !cmatch->why_rows) cmatch->why_rows = kCMATCHUnevenRanks; /* which a rank without rows does not know */
  cmatch->params.singular = all[2] > 0 ? PETSC_FALSE : PETSC_TRUE;
  data.keep               = (PetscBool)(!(all[1] > 0) && cmatch->hierarchy->params.singular == cmatch->params.singular);
  data.largest            = all[3];
  std::copy(all + kModes, std::end(all), data.modes.largest);
  PetscCall(PCLocalPhaseStep(phase, CallGuarded(PrepareRanks, pc, &data), nullptr));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  cmatch->ranks->on_devices = !(all[5] > 0);
  cmatch->reaches_others    = true;
  cmatch->connect           = Connect_CMATCH;
  cmatch->reused            = data.keep;
  cmatch->anew              = false;
  cmatch->misfit            = CMATCHMisfit{};
  cmatch->complete          = false;
  cmatch->has_work          = cmatch->reuse_pattern;
  if (!data.keep) {
    PetscCall(ChooseCommunication(pc, phase));
    phase->outcome->exchanging = true;
    PetscCall(CMATCHRanksConnect(EntriesOf(pc), cmatch->ranks));
    phase->outcome->exchanging = false;
    if (cmatch->ranks->has_w || cmatch->ranks->modes.m)
      PetscCall(PCLocalPhaseStep(phase, CallGuarded(CMATCHRanksPrepareHalo, cmatch->ranks), nullptr));
    if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  }
  phase->outcome->exchanging = true;
  PetscCall(ShareWithGhosts(cmatch->ranks));
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ConnectCycle(PC pc, PCLocalPhase *phase)
{
  PC_CMATCH   *cmatch = (PC_CMATCH *)pc->data;
  CMATCHRanks *ranks  = cmatch->ranks;

  PetscFunctionBegin;
  if (!ranks->nccl) {
    PetscCall(CMATCHRanksConnectByMPI(phase, ranks));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PCLocalPhaseStep(phase, CallGuarded(CMATCHRanksMakeRoom, ranks, cmatch->hierarchy), nullptr));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  PetscCall(CMATCHConnect_CUDA(cmatch->hierarchy, phase->comm, &ranks->direct));
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the levels of a hierarchy of all ranks below the finest one, on which all ranks have agreed. */
static PetscErrorCode MakeLevels_CMATCH(PC pc, PCLocalPhase *phase)
{
  enum { ERROR, FAILURE, PATTERN, LEVELS, END, VERDICTS };
  PC_CMATCH      *cmatch  = (PC_CMATCH *)pc->data;
  CMATCHRanks    *ranks   = cmatch->ranks;
  PCLocalOutcome *outcome = phase->outcome;

  PetscFunctionBegin;
  for (;;) {
    PetscInt verdict[VERDICTS] = {};
    bool     fits              = true;

    PetscCall(CMATCHRanksMakeLevels(phase, cmatch->hierarchy, ranks));
    const CMATCHHierarchy *H       = cmatch->hierarchy;
    const CMATCHStats     &stats   = ranks->stats;
    const CMATCHFailure    failure = stats.failure;
    cmatch->stats                  = stats;
    verdict[ERROR]                 = outcome->code != PETSC_SUCCESS;
    verdict[FAILURE]               = failure != CMATCH_OK;
    /* the patterns of other values may not do: a coarse operator has failed, not the matrix */
    verdict[PATTERN]    = ranks->keep && (failure == CMATCH_COARSEST || failure == CMATCH_DIAGONAL_NOT_POSITIVE ||
                                       (failure == CMATCH_BLOCK_NOT_POSITIVE && stats.level));
    verdict[LEVELS]     = H->levels;
    verdict[END]        = H->levels == H->several ? 0 : 1 + (ranks->dominated ? CMATCH_END_DOMINATED : stats.end);
    outcome->exchanging = true;
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, verdict, VERDICTS, MPIU_INT, MPI_MAX, phase->comm));
    outcome->exchanging = false;
    if (ranks->keep && !verdict[ERROR] && !verdict[FAILURE])
      PetscCall(H->nodes ? PCCMATCHFindMisfitsOfNodes(cmatch, phase, &fits) : FindMisfits(pc, phase, &fits));
    if ((verdict[PATTERN] && !verdict[ERROR]) || !fits) {
      cmatch->anew        = !fits;
      ranks->keep         = PETSC_FALSE;
      cmatch->reused      = false;
      PetscErrorCode code = CMATCHRanksForget(ranks);
      if (!code) code = CallGuarded(PCSetUp_CMATCH, pc, outcome);
      PetscCall(PCLocalPhaseStep(phase, code, nullptr));
      if (!phase->stopped) continue;
    }
    if (failure) PetscCall(DescribeFailure_CMATCH(pc, ranks->has_w, outcome));
    ranks->setup.reset();
    cmatch->all_levels = (LocalInt)verdict[LEVELS];
    cmatch->stats.end  = (CMATCHEnd)(verdict[END] - 1);
    if (verdict[ERROR] || verdict[FAILURE] || phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
    if (!ranks->keep) PetscCall(ConnectCycle(pc, phase));
    if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
    cmatch->complete         = true;
    cmatch->hierarchy->flops = CountFlops(cmatch->hierarchy, cmatch->stats.end);
    if (!cmatch->reused) RememberFit(cmatch->hierarchy);
    if (ranks->on_devices)
      cmatch->reserved[0] = 0; /* an application needs what Reserve_CMATCH() makes, and the ranks agree on it */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
}

static PetscErrorCode Connect_CMATCH(PC pc, PCLocalPhase *phase)
{
  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(FinePC_CMATCHHierarchy, pc, pc->pmat, 0, 0));
  const PetscErrorCode code = MakeLevels_CMATCH(pc, phase);
  PetscCall(PetscLogEventEnd(FinePC_CMATCHHierarchy, pc, pc->pmat, 0, 0));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}
