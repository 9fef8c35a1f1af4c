/*
   Several right-hand sides with the fused conjugate gradient method: together, where the GPU decides about the iterations, on one
   rank or on several with NCCL, and otherwise one by one; and what the program gets to know of the columns.
*/
#include <petsc/private/matimpl.h>
#include <petsc/private/pcimpl.h>

#include "ranks/agree.h"
#include "entry.h"
#include "cgcolumns.h"
#include "cgfusedimpl.h"
#include "pc/acting.h"
#include "pc/cmatch/cmatch.h"
#include "pc/confirm.h"
#include "sparse/offload.h"

/* What a KSP keeps of one system, for one of the columns. */
struct CGFusedColumn {
  KSPConvergedReason reason = KSP_CONVERGED_ITERATING;
  PetscInt           its    = 0;
  PetscReal          rnorm = 0, rnorm0 = 0, ttol = 0;
  CGRange            range;

  bool Ended() const { return reason != KSP_CONVERGED_ITERATING; }
};

/* The columns that are solved together. */
struct CGFusedBatch {
  Mat           B = nullptr, X = nullptr;
  LocalInt      count = 0, n = 0; /* columns, and their entries on this rank */
  PetscScalar  *copies = nullptr; /* [2 count n] of B and X on the GPU, where the host has the matrix */
  CGFusedColumn column[kCGMostColumns];

  bool Ended() const
  {
    for (LocalInt c = 0; c < count; c++)
      if (!column[c].Ended()) return false;
    return true;
  }
};

/*
   Calls f() while the KSP is that of a column: with its reason, norms and numbers, and, if `vectors`, with the columns of B and X
   as its right-hand side and solution. KSPConvergedDefault() needs them for the first norm if there is a guess, and so does what
   follows from a failure.
*/
template <typename F>
static PetscErrorCode AsColumn(KSP ksp, CGFusedBatch &batch, PetscInt c, bool vectors, F f)
{
  CGFusedColumn &column = batch.column[c];
  const Vec      rhs = ksp->vec_rhs, solution = ksp->vec_sol;
  Vec            b = nullptr, x = nullptr;

  PetscFunctionBegin;
  if (vectors) {
    PetscCall(MatDenseGetColumnVecRead(batch.B, c, &b));
    PetscCall(MatDenseGetColumnVec(batch.X, c, &x));
    ksp->vec_rhs = b;
    ksp->vec_sol = x;
  }
  ksp->reason               = column.reason;
  ksp->its                  = column.its;
  ksp->rnorm                = column.rnorm;
  ksp->rnorm0               = column.rnorm0;
  ksp->ttol                 = column.ttol;
  const PetscErrorCode code = f();
  column.reason             = ksp->reason;
  column.its                = ksp->its;
  column.rnorm              = ksp->rnorm;
  column.rnorm0             = ksp->rnorm0;
  column.ttol               = ksp->ttol;
  ksp->vec_rhs              = rhs;
  ksp->vec_sol              = solution;
  if (vectors) { /* after an error, too: B and X are the program's */
    PetscCall(MatDenseRestoreColumnVec(batch.X, c, &x));
    PetscCall(MatDenseRestoreColumnVecRead(batch.B, c, &b));
  }
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the path ------------------------------------------ */

/* Fields that PETSc has in some releases alone, with what stands for them in the others. */
template <typename K>
static auto ForgetBlock(K *ksp, int) -> decltype((void)ksp->mat_rhs)
{
  ksp->mat_rhs = nullptr; /* KSPConvergedDefault() looks at a column, not at the block */
}
template <typename K>
static void ForgetBlock(K *, long)
{
}
template <typename K>
static auto IsTransposed(K *ksp, int) -> decltype((bool)ksp->transpose.solve_requested)
{
  return ksp->transpose.solve_requested;
}
template <typename K>
static bool IsTransposed(K *ksp, long)
{
  return ksp->transpose_solve;
}

template <typename K>
static auto IsScaled(K *ksp, int) -> decltype((bool)ksp->dscale)
{
  return ksp->dscale;
}
template <typename K>
static bool IsScaled(K *, long)
{
  return false;
}

/* Whether the solve of a column has to come before the others: PCAUTO chooses a preconditioner where it sees norms. */
static bool Learns_CGColumns(KSP ksp)
{
  return PCLearns(ksp->pc) && ksp->normtype != KSP_NORM_NONE && ksp->converged != KSPConvergedSkip;
}

/* What KSPSolve() does, or what it is asked for, and a block does not do. */
static PetscErrorCode WhyNotTogether(KSP ksp, bool failed, FusedReason *why)
{
  const KSP_CGFused *cg       = (const KSP_CGFused *)ksp->data;
  const bool         own_test = ksp->converged == KSPConvergedDefault || ksp->converged == KSPConvergedSkip;
  const PC           pc       = ksp->pc;
  Mat                A;
  MatNullSpace       null_space, null_space_of_range;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(pc, &A, nullptr));
  PetscCall(MatGetNullSpace(A, &null_space));
  PetscCall(MatGetTransposeNullSpace(A, &null_space_of_range));
  if (failed) why->text = "the preconditioner failed";
  else if (IsTransposed(ksp, 0) || ksp->transpose_solve) why->text = "a transposed solve";
  else if (null_space || null_space_of_range) why->text = "a null space";
  else if (ksp->numbermonitors) why->text = "a monitor";
  else if (ksp->res_hist && ksp->res_hist_max > 0) why->text = "a history of residual norms";
  else if (!own_test) why->text = "a convergence test of the program";
  else if (ksp->calc_sings) why->text = "eigenvalue estimates";
  else if (ksp->guess || ksp->guess_knoll) why->text = "a guess that KSPSolve() makes";
  else if (IsScaled(ksp, 0)) why->text = "a scaled system";
  else if (Learns_CGColumns(ksp)) why->text = "the first solve with auto, which chooses a preconditioner";
  else if (PCOnlyWatches(pc) && !ksp->guess_zero) why->text = "a guess, from which auto may have to begin again";
  else if (ksp->presolve || ksp->postsolve || ((pc->ops->presolve || pc->ops->postsolve) && !PCOnlyWatches(pc)))
    why->text = "what is to be done before or after each solve";
  else if (cg->trust.radius > 0 || cg->trust.target < 0 || cg->trust.wants_model) why->text = "a trust region or an objective";
  else if (cg->single_reduction == PETSC_BOOL3_TRUE) why->text = "a single reduction was asked for";
  else if (cg->path == KSP_CGFUSED_RESIDENT) why->text = "the resident kernel was asked for";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why the columns go one by one, or no reason: then M is that of the graph. Collective. */
static PetscErrorCode WhyOneByOne(KSP ksp, CGFusedBatch &batch, bool failed, CGFusedPreconditioner *M, FusedReason *why)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscBool    sent;
  MatGroup    *group;
  Mat          A;

  PetscFunctionBegin;
  *why = FusedReason{};
  PetscCall(WhyNotTogether(ksp, failed, why));
  if (*why) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatChooseBackend(A, (PetscObject)ksp));
  PetscCall(MatGetGroup(A, &group));
  if (group) why->text = "the ranks have come together"; /* for each column anew */
  if (*why) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(AsColumn(ksp, batch, 0, true, [&] { return CGFusedWhyGeneral(ksp, M, &cg->solve.why); }));
  *why = cg->solve.why;
  if (*why) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(FusedIsSent(ksp, &sent));
  if (!sent) PetscCall(CGFusedNeedWorkVecs(ksp));
  if (M->cycle && !CMATCHTakesColumns(*M->cycle))
    why->text = "multigrid on several GPUs, nodes of different sizes, factors as smoothers, or iterations on the coarsest level";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ one by one ---------------------------------------- */

/* KSPSolve() for a column, without the views that KSPMatSolve() shows after all columns. */
static PetscErrorCode SolveColumn(KSP ksp, CGFusedBatch &batch, PetscInt c)
{
  PetscBool *const views[] = {&ksp->view, &ksp->viewMat, &ksp->viewPMat, &ksp->viewRhs, &ksp->viewSol};
  PetscBool        wanted[PETSC_STATIC_ARRAY_LENGTH(views)];
  CGFusedColumn   &column = batch.column[c];
  Vec              b, x;

  PetscFunctionBegin;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(views); k++) {
    wanted[k] = *views[k];
    *views[k] = PETSC_FALSE;
  }
  PetscCall(MatDenseGetColumnVecRead(batch.B, c, &b));
  PetscCall(MatDenseGetColumnVec(batch.X, c, &x));
  const PetscErrorCode code = IsTransposed(ksp, 0) ? KSPSolveTranspose(ksp, b, x) : KSPSolve(ksp, b, x);
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(views); k++) *views[k] = wanted[k];
  PetscCall(MatDenseRestoreColumnVec(batch.X, c, &x)); /* after an error, too: B and X are the program's */
  PetscCall(MatDenseRestoreColumnVecRead(batch.B, c, &b));
  PetscCall(code);
  column.reason = ksp->reason;
  column.its    = ksp->its;
  column.rnorm  = ksp->rnorm;
  ksp->totalits -= ksp->its; /* it is counted with the others */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------- one rank, or several with NCCL: iterations on the GPU -------------------- */

/* The columns of B and X as the GPU has them. */
struct BlockArrays {
  const PetscScalar *B = nullptr;
  PetscScalar       *X = nullptr;
  LocalInt           ldb, ldx;
};

static PetscScalar *CopyOfX(const CGFusedBatch &batch, PetscInt c)
{
  return batch.copies + (batch.count + c) * (size_t)batch.n;
}

static PetscErrorCode SendColumn(Mat M, PetscInt c, PetscScalar *to)
{
  Vec column;

  PetscFunctionBegin;
  PetscCall(MatDenseGetColumnVecRead(M, c, &column));
  const PetscErrorCode code = FusedSend(column, to);
  PetscCall(MatDenseRestoreColumnVecRead(M, c, &column)); /* after an error, too: it is the program's */
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies of the columns of B, and of X if there is a guess. */
static PetscErrorCode SendColumns_CGColumns(KSP ksp, const CGFusedBatch &batch)
{
  const size_t bytes = batch.n * sizeof(PetscScalar);

  PetscFunctionBegin;
  if (ksp->guess_zero) PetscCall(ArrayZero(CopyOfX(batch, 0), batch.count * bytes, PETSC_MEMTYPE_CUDA));
  for (PetscInt c = 0; c < batch.count; c++) {
    PetscCall(SendColumn(batch.B, c, batch.copies + c * (size_t)batch.n));
    if (!ksp->guess_zero) PetscCall(SendColumn(batch.X, c, CopyOfX(batch, c)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The solutions, but not those of columns that are to be left as they are. */
static PetscErrorCode FetchColumns(const CGFusedBatch &batch, const PetscBool left[])
{
  PetscFunctionBegin;
  for (PetscInt c = 0; c < batch.count && batch.copies; c++) {
    Vec x;

    if (left[c]) continue;
    PetscCall(MatDenseGetColumnVecWrite(batch.X, c, &x));
    const PetscErrorCode code = FusedFetch(CopyOfX(batch, c), x);
    PetscCall(MatDenseRestoreColumnVecWrite(batch.X, c, &x));
    PetscCall(code);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The entries from one column of a dense matrix to the next, if they can be counted with 32 bits. */
static PetscErrorCode GetLeadingSize(Mat M, LocalInt *ld)
{
  PetscInt entries;

  PetscFunctionBegin;
  PetscCall(MatDenseGetLDA(M, &entries));
  PetscCall(LocalIntCast(entries, "entries from one column to the next", ld));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetArrays(const CGFusedBatch &batch, BlockArrays *v)
{
  PetscMemType where;

  PetscFunctionBegin;
  if (batch.copies) {
    *v = BlockArrays{batch.copies, CopyOfX(batch, 0), batch.n, batch.n};
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GetLeadingSize(batch.B, &v->ldb));
  PetscCall(GetLeadingSize(batch.X, &v->ldx));
  PetscCall(MatDenseGetArrayReadAndMemType(batch.B, &v->B, &where));
  PetscCall(MatDenseGetArrayAndMemType(batch.X, &v->X, &where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreArrays(const CGFusedBatch &batch, BlockArrays *v)
{
  PetscFunctionBegin;
  if (batch.copies) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatDenseRestoreArrayAndMemType(batch.X, &v->X));
  PetscCall(MatDenseRestoreArrayReadAndMemType(batch.B, &v->B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What KSPCG does with the first sums of a column before its first iteration. */
static PetscErrorCode StartColumn(KSP ksp, CGFusedColumn &column, const CGSums &sums)
{
  PetscFunctionBegin;
  if (ksp->normtype == KSP_NORM_NATURAL) KSPCheckDot(ksp, sums.rz);
  const PetscReal norm = CGNormFrom(ksp, sums.nn, sums.rz);
  KSPCheckNorm(ksp, norm);
  if (ksp->normtype != KSP_NORM_NONE) column.range.See(norm);
  column.range.See(sums.rz);
  ksp->rnorm = norm;
  PetscCall((*ksp->converged)(ksp, 0, norm, &ksp->reason, ksp->cnvP));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  KSPCheckDot(ksp, sums.rz);
  if (sums.rz == 0) {
    ksp->its = 1;
    column.range.End(CG_BETA_ZERO);
    PetscCall(CGSetReason(ksp, CG_BETA_ZERO, 1, 0));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the end of a column on the GPU is to the KSP. */
static PetscErrorCode EndColumn(KSP ksp, const CGColumn &end)
{
  PetscFunctionBegin;
  ksp->its   = end.its;
  ksp->rnorm = end.norm;
  PetscCall(CGSetReason(ksp, end.stop, end.its, end.value));
  if (!ksp->max_it && ksp->its && ksp->reason != KSP_DIVERGED_NANORINF && ksp->reason != KSP_DIVERGED_PC_FAILED)
    ksp->reason = KSP_DIVERGED_ITS; /* as KSPSolve_CGFused() has it */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Start_CGColumns(KSP ksp, CGFusedBatch &batch, PetscReal beta[], CGTest test[], PetscBool ended[])
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  CGSums       sums[kCGMostColumns];
  BlockArrays  v;

  PetscFunctionBegin;
  PetscCall(GetArrays(batch, &v));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(
    CGColumnsStart_CUDA(cg->columns_work, cg->work, v.B, v.ldb, ksp->guess_zero ? nullptr : v.X, v.ldx, FusedNormOf(ksp), sums));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(RestoreArrays(batch, &v));
  for (PetscInt c = 0; c < batch.count; c++) {
    CGFusedColumn &column = batch.column[c];
    const bool     plain  = PetscIsNormalReal(sums[c].nn) && PetscIsNormalReal(sums[c].rz);

    PetscCall(AsColumn(ksp, batch, c, !plain || !ksp->guess_zero, [&] {
      PetscFunctionBegin;
      PetscCall(StartColumn(ksp, column, sums[c]));
      test[c] = FusedTestOf(ksp, PETSC_FALSE);
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    beta[c]  = sums[c].rz;
    ended[c] = (PetscBool)column.Ended();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The exchanges of A and of the factors, as CGFusedPrepareDevice() has left them. */
static CGColumnsExchanges ExchangesOf(KSP ksp, const PCInverse *M)
{
  return {PetscObjectComm((PetscObject)ksp),
          {&((const KSP_CGFused *)ksp->data)->exchange, M ? &M->ghosts1.exchange : nullptr, M ? &M->ghosts2.exchange : nullptr}};
}

/* All memory that a rank needs for a solve, also that of B and X on the GPU. */
static PetscErrorCode MakeRoom_CGColumns(KSP ksp, CGFusedBatch *batch, const CGColumnsExchanges *exchanges)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  BlockArrays  v;

  PetscFunctionBegin;
  if (cg->copies.used) {
    batch->n = cg->copies.array_rows;
    PetscCall(ArrayCreate(2 * batch->count * (size_t)batch->n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, (void **)&batch->copies));
    PetscCall(SendColumns_CGColumns(ksp, *batch));
  }
  PetscCall(GetArrays(*batch, &v));
  PetscCall(RestoreArrays(*batch, &v));
  if (!cg->columns_work) PetscCall(CGColumnsCreate_CUDA(&cg->columns_work));
  PetscCall(CGColumnsPrepare_CUDA(cg->columns_work, cg->work, batch->count, FusedNormOf(ksp), exchanges));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Memory may end on one rank alone: its error is one of all of them, before they connect and wait for one another. Then none of
   them keeps its work, so that all have the same exchanges in the next solve, too. *on_all says whether they have agreed on an
   error.
*/
static PetscErrorCode PrepareColumns(KSP ksp, CGFusedBatch &batch, const PCInverse *M, bool *on_all)
{
  KSP_CGFused             *cg        = (KSP_CGFused *)ksp->data;
  const CGColumnsExchanges exchanges = ExchangesOf(ksp, M);
  PetscErrorCode           code      = CallGuarded(MakeRoom_CGColumns, ksp, &batch, &exchanges);

  PetscFunctionBegin;
  if (cg->solve.several) code = AgreeOnError(exchanges.comm, code, "make room for several right-hand sides");
  *on_all = code != PETSC_SUCCESS;
  if (cg->solve.several && !code) code = CGColumnsConnect_CUDA(cg->columns_work, &exchanges);
  if (code) PetscCall(CGColumnsDestroy_CUDA(&cg->columns_work));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a residual of this norm is to the column that the KSP is: its end is confirmed, or the KSP has no reason. Collective. */
static PetscErrorCode ConfirmColumn(KSP ksp, PetscReal norm)
{
  bool confirmed;

  PetscFunctionBegin;
  PetscCall(CGFusedNeedWorkVecs(ksp));
  PetscCall(ConfirmsNorm(ksp, norm, ksp->work[1], ksp->work[2], &confirmed));
  if (!confirmed && ksp->reason > 0) PetscCall(AfterRefutedClaim(ksp, norm, PETSC_MAX_REAL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The residuals of the solutions, all of them at once, which confirm the ends of the columns or take them back. */
static PetscErrorCode ConfirmOnDevice(KSP ksp, CGFusedBatch &batch, const bool again[])
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  CGSums       sums[kCGMostColumns];
  bool         claims[kCGMostColumns] = {}, any = false;
  BlockArrays  v;

  PetscFunctionBegin;
  for (PetscInt c = 0; c < batch.count; c++) {
    const CGFusedColumn &column = batch.column[c];
    claims[c]                   = !again[c] && column.its && ClaimsNormOfCG(ksp, column.reason);
    any                         = any || claims[c];
  }
  if (!any) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GetArrays(batch, &v));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGColumnsStart_CUDA(cg->columns_work, cg->work, v.B, v.ldb, v.X, v.ldx, FusedNormOf(ksp), sums));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(RestoreArrays(batch, &v));
  for (PetscInt c = 0; c < batch.count; c++) {
    const PetscReal norm = CGNormFrom(ksp, sums[c].nn, sums[c].rz);

    if (!claims[c] || norm <= kConfirmed * batch.column[c].rnorm) continue;
    PetscCall(AsColumn(ksp, batch, c, true, [&] { return ConfirmColumn(ksp, norm); }));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Where numbers are so small or so large that sums may vanish or overflow, or r.z = 0, the column is solved once more, alone, from
   its guess, which X still has: KSPSolve() says what has become of it.
*/
static PetscErrorCode SolveOnDevice(KSP ksp, CGFusedBatch &batch)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscReal    beta[kCGMostColumns];
  CGTest       test[kCGMostColumns];
  CGColumn     end[kCGMostColumns];
  PetscBool    left[kCGMostColumns], ended[kCGMostColumns], all_ended = PETSC_FALSE;
  bool         again[kCGMostColumns] = {};
  BlockArrays  v;

  PetscFunctionBegin;
  PetscCall(Start_CGColumns(ksp, batch, beta, test, ended));
  if (!batch.Ended()) {
    PetscCall(GetArrays(batch, &v));
    PetscCall(PetscLogGpuTimeBegin());
    PetscCall(CGColumnsBegin_CUDA(cg->columns_work, cg->work, beta, test, ended));
    while (!all_ended) PetscCall(CGColumnsAdvance_CUDA(cg->columns_work, end, &all_ended));
    for (PetscInt c = 0; c < batch.count; c++) {
      CGRange &range = batch.column[c].range;

      left[c] = ended[c];
      if (ended[c]) continue;
      if (end[c].a != 0) range.Step(end[c].a);
      range.End(end[c].stop);
      if (range.left || range.orthogonal) left[c] = PETSC_TRUE;
    }
    PetscCall(CGColumnsGetSolution_CUDA(cg->columns_work, left, v.X, v.ldx));
    PetscCall(PetscLogGpuTimeEnd());
    PetscCall(DeviceFence_CUDA());
    PetscCall(RestoreArrays(batch, &v));
    PetscCall(FetchColumns(batch, left));
  }
  for (PetscInt c = 0; c < batch.count; c++) {
    const CGRange &range = batch.column[c].range;

    again[c] = (range.left || range.orthogonal) && !(ended[c] && batch.column[c].reason < 0);
    if (ended[c] || again[c]) continue;
    PetscCall(PetscLogGpuFlops(end[c].its * cg->flops));
    PetscCall(AsColumn(ksp, batch, c, true, [&] { return EndColumn(ksp, end[c]); }));
  }
  PetscCall(ConfirmOnDevice(ksp, batch, again));
  for (PetscInt c = 0; c < batch.count; c++)
    if (again[c]) PetscCall(SolveColumn(ksp, batch, c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- all columns ---------------------------------------- */

/* Columns that are solved together. */
static PetscErrorCode ColumnsAtOnce(KSP ksp, PetscInt *at_once)
{
  PetscInt asked;

  PetscFunctionBegin;
  PetscCall(KSPGetMatSolveBatchSize(ksp, &asked));
  *at_once = asked == PETSC_DECIDE ? kCGColumns : PetscMin(asked, kCGMostColumns);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the GPU's copies those that the graph works with, whatever KSPSolve() has left of a system that is small. */
static PetscErrorCode PrepareForGraph(KSP ksp, const CGFusedPreconditioner &M, PetscBool *fell)
{
  KSP_CGFused         *cg    = (KSP_CGFused *)ksp->data;
  const KSPCGFusedPath asked = cg->path;

  PetscFunctionBegin;
  cg->path                  = KSP_CGFUSED_GRAPH;
  const PetscErrorCode code = CGFusedPrepareDevice(ksp, M, fell);
  cg->path                  = asked;
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Prepares a solve on the GPU, or leaves it to the host, where the memory of the GPU has ended. */
static PetscErrorCode Prepare_CGColumns(KSP ksp, CGFusedBatch &batch, const CGFusedPreconditioner &M, PetscBool *fell)
{
  Mat A;

  PetscFunctionBegin;
  PetscCall(AsColumn(ksp, batch, 0, true, [&] {
    const PetscErrorCode code = CGFusedCheckArrays(ksp);
    return code ? code : PrepareForGraph(ksp, M, fell);
  }));
  if (*fell) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceFence_CUDA()); /* PETSc's own operations on dense matrices may run in another stream */
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatTry(A, (PetscObject)ksp, fell, [&](bool *on_all) { return PrepareColumns(ksp, batch, M.M, on_all); }));
  if (!*fell) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedLeaveDevice((KSP_CGFused *)ksp->data));
  PetscCall(FusedFollow(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A column whose recurrence has lost the residual goes on alone, from the solution that it has. */
static PetscErrorCode GoOn(KSP ksp, CGFusedBatch &batch, PetscInt c)
{
  CGFusedColumn  &column = batch.column[c];
  const PetscInt  before = column.its, max_it = ksp->max_it;
  const PetscBool guess_zero = ksp->guess_zero;

  PetscFunctionBegin;
  ksp->guess_zero           = PETSC_FALSE;
  ksp->max_it               = max_it - before;
  const PetscErrorCode code = SolveColumn(ksp, batch, c);
  ksp->guess_zero           = guess_zero;
  ksp->max_it               = max_it;
  PetscCall(code);
  column.its += before;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SolveBatch(KSP ksp, CGFusedBatch *of, bool failed)
{
  CGFusedBatch         &batch = *of;
  KSP_CGFused          *cg    = (KSP_CGFused *)ksp->data;
  CGFusedBlock         &block = cg->block_solve;
  CGFusedPreconditioner M;
  PetscBool             fell = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(WhyOneByOne(ksp, batch, failed, &M, &block.why));
  if (!block.why) PetscCall(Prepare_CGColumns(ksp, batch, M, &fell));
  if (fell) block.why.text = "the memory of the GPU was not enough";
  if (block.why) {
    for (PetscInt c = 0; c < batch.count; c++) PetscCall(SolveColumn(ksp, batch, c));
  } else PetscCall(SolveOnDevice(ksp, batch));
  for (PetscInt c = 0; c < batch.count; c++)
    if (!batch.column[c].Ended()) PetscCall(GoOn(ksp, batch, c));
  for (PetscInt c = 0; c < batch.count && !block.why && PCOnlyWatches(ksp->pc); c++)
    if (batch.column[c].reason < 0) PetscCall(SolveColumn(ksp, batch, c)); /* another preconditioner may do */
  for (PetscInt c = 0; c < batch.count; c++) {
    block.its.push_back(batch.column[c].its);
    block.reasons.push_back(batch.column[c].reason);
    ksp->totalits += batch.column[c].its;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The reason of the solve is that of the first column that has not converged, else that of the column with most iterations; their
   number is the largest.
*/
static void Conclude_CGColumns(KSP ksp, const CGFusedBlock &block)
{
  size_t worst = 0;

  ksp->its = 0;
  for (size_t c = 0; c < block.its.size(); c++) {
    const bool fails = block.reasons[c] < 0, worst_fails = block.reasons[worst] < 0;

    if ((fails && !worst_fails) || (fails == worst_fails && !fails && block.its[c] > block.its[worst])) worst = c;
    ksp->its = PetscMax(ksp->its, block.its[c]);
  }
  ksp->reason = block.its.empty() ? KSP_CONVERGED_ITS : block.reasons[worst];
}

static PetscErrorCode MakeRoomForResults(CGFusedBlock *block, PetscInt columns)
{
  PetscFunctionBegin;
  block->its.reserve(columns);
  block->reasons.reserve(columns);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Solves the columns, so many at once. */
static PetscErrorCode SolveBatches(KSP ksp, Mat B, Mat X, PetscInt columns, PetscInt at_once, bool failed)
{
  PetscFunctionBegin;
  for (PetscInt first = 0, last; first < columns; first = last) {
    last               = PetscMin(first + (Learns_CGColumns(ksp) ? 1 : at_once), columns);
    const bool   whole = !first && last == columns;
    CGFusedBatch batch;

    batch.count = (LocalInt)(last - first);
    batch.B     = B;
    batch.X     = X;
    if (!whole) {
      PetscCall(MatDenseGetSubMatrix(B, PETSC_DECIDE, PETSC_DECIDE, first, last, &batch.B));
      PetscCall(MatDenseGetSubMatrix(X, PETSC_DECIDE, PETSC_DECIDE, first, last, &batch.X));
    }
    const PetscErrorCode code = CallGuarded(SolveBatch, ksp, &batch, failed);
    PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&batch.copies));
    if (!whole) {
      PetscCall(MatDenseRestoreSubMatrix(X, &batch.X));
      PetscCall(MatDenseRestoreSubMatrix(B, &batch.B));
    }
    PetscCall(code);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPMatSolve_CGFused(KSP ksp, Mat B, Mat X)
{
  KSP_CGFused    *cg     = (KSP_CGFused *)ksp->data;
  CGFusedBlock   &block  = cg->block_solve;
  const PetscBool errors = ksp->errorifnotconverged;
  PetscInt        columns, at_once = kCGColumns;
  PetscMPIInt     size;

  PetscFunctionBegin;
  PetscCall(FusedRefreshPreconditioner(ksp));
  const bool failed = ksp->reason == KSP_DIVERGED_PC_FAILED;
  ForgetBlock(ksp, 0);
  block = CGFusedBlock{};
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  PetscCall(MatGetSize(X, nullptr, &columns));
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)ksp), CallGuarded(MakeRoomForResults, &block, columns),
                         "keep what has become of the columns"));
  PetscCall(ColumnsAtOnce(ksp, &at_once));
  cg->solve.several   = (PetscBool)(size > 1);
  cg->solve.solved    = PETSC_TRUE;
  cg->lanczos.rows    = 0;
  cg->trust.has_model = PETSC_FALSE;
  block.at_once       = at_once;
  if (PCOnlyWatches(ksp->pc)) ksp->errorifnotconverged = PETSC_FALSE; /* another preconditioner may do for a column that fails */
  const PetscErrorCode code = SolveBatches(ksp, B, X, columns, at_once, failed);
  ksp->errorifnotconverged  = errors;
  PetscCall(code);
  Conclude_CGColumns(ksp, block);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- getter and view ---------------------------------------- */

static PetscErrorCode KSPCGFusedGetColumns_CGFused(KSP ksp, PetscInt *count, const PetscInt *its[],
                                                   const KSPConvergedReason *reasons[])
{
  const CGFusedBlock &block = ((KSP_CGFused *)ksp->data)->block_solve;

  PetscFunctionBegin;
  if (count) *count = (PetscInt)block.its.size();
  if (its) *its = block.its.data();
  if (reasons) *reasons = block.reasons.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@C
  KSPCGFusedGetColumns - Gets the outcome for each of the right-hand sides of the last `KSPMatSolve()` with `KSPCGFUSED`

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameters:
+ count   - the number of right-hand sides, 0 before the first `KSPMatSolve()`; or `NULL` if it is not wanted
. its     - the number of iterations of each; or `NULL` if they are not wanted
- reasons - why each of them ended; or `NULL` if they are not wanted

  Level: intermediate

  Notes:
  The arrays belong to the solver, and are valid until its next `KSPMatSolve()` or `KSPReset()`.

  `KSPGetConvergedReason()` gives the reason of the first right-hand side that has not converged, or, if all have, of the one with
  the most iterations, and `KSPGetIterationNumber()` the largest number. With `KSPSetMatSolveBatchSize()` all of these refer to the
  last batch.

.seealso: `KSPCGFUSED`, `KSPMatSolve()`, `KSPSetMatSolveBatchSize()`
@*/
PetscErrorCode KSPCGFusedGetColumns(KSP ksp, PetscInt *count, const PetscInt *its[], const KSPConvergedReason *reasons[])
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(ksp, KSP_CLASSID, 1);
  PetscUseMethod(ksp, "KSPCGFusedGetColumns_C", (KSP, PetscInt *, const PetscInt **, const KSPConvergedReason **),
                 (ksp, count, its, reasons));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedComposeColumns(KSP ksp, PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectComposeFunction((PetscObject)ksp, "KSPCGFusedGetColumns_C",
                                       compose ? Entry<KSPCGFusedGetColumns_CGFused> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedViewColumns(KSP ksp, PetscViewer viewer)
{
  const KSP_CGFused  *cg      = (const KSP_CGFused *)ksp->data;
  const CGFusedBlock &block   = cg->block_solve;
  const PetscInt      columns = (PetscInt)block.its.size();

  PetscFunctionBegin;
  if (!columns) PetscFunctionReturn(PETSC_SUCCESS);
  if (block.why)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  %" PetscInt_FMT " right-hand sides, one by one: %s%s\n", columns, block.why.text,
                                     block.why.type));
  else
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "  %" PetscInt_FMT " right-hand sides, up to %" PetscInt_FMT
                                     " together: a graph over interleaved vectors%s\n",
                                     columns, block.at_once,
                                     cg->solve.several ? ", with one exchange a product and two sums over the ranks" : ""));
  for (PetscInt c = 0; c < PetscMin(columns, kCGMostColumns); c++)
    PetscCall(PetscViewerASCIIPrintf(viewer, "    column %" PetscInt_FMT ": %" PetscInt_FMT " iterations, %s\n", c, block.its[c],
                                     KSPConvergedReasons[block.reasons[c]]));
  if (columns > kCGMostColumns)
    PetscCall(PetscViewerASCIIPrintf(viewer, "    and %" PetscInt_FMT " more, which KSPCGFusedGetColumns() tells\n",
                                     columns - kCGMostColumns));
  if (cg->columns_work)
    PetscCall(PetscViewerASCIIPrintf(viewer, "    bytes of the block vectors and the kernels %g\n",
                                     (double)CGColumnsBytes_CUDA(cg->columns_work)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
