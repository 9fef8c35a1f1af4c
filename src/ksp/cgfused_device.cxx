/*
   The fused conjugate gradient method whose iterations the GPU decides about, on one rank or on several with NCCL, and the copies
   that all paths but the general one work with.
*/
#include "ranks/agree.h"
#include "cgcolumns.h"
#include "cgfusedimpl.h"
#include "entry.h"
#include "pc/acting.h"
#include "pc/cmatch/cmatch.h"
#include "sparse/offload.h"

/* ----------------------------------------- the copies ----------------------------------------- */

PetscErrorCode CGFusedNeedWork(KSP_CGFused *cg)
{
  PetscFunctionBegin;
  if (cg->work) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscErrorCode code = CallGuarded(CGFusedCreate_CUDA, &cg->work);
  if (code) PetscCall(CGFusedDestroy_CUDA(&cg->work));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The diagonal of PCJACOBI as the preconditioner applies it, whatever its options; collective. */
static PetscErrorCode ApplyToOnes(KSP ksp)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(VecSet(ksp->work[1], 1));
  PetscCall(PCApply(ksp->pc, ksp->work[1], cg->diagonal));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Room for copies of the vectors of a solve. */
static PetscErrorCode NeedArrays_CGFused(KSP_CGFused *cg, LocalInt n)
{
  PetscFunctionBegin;
  if (cg->copies.arrays) PetscFunctionReturn(PETSC_SUCCESS); /* of this size: see CGFusedCheckArrays() */
  PetscCall(ArrayCreate(5 * (size_t)n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, (void **)&cg->copies.arrays));
  cg->copies.array_rows = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What FusedCheckSizes() checks of work vectors, of their copies. */
PetscErrorCode CGFusedCheckArrays(KSP ksp)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  PetscInt           rows;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(ksp->vec_rhs, &rows));
  PetscCheck(!cg->copies.arrays || cg->copies.array_rows == rows, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows on this rank, but the KSP was set up for %" LocalInt_FMT
             ": call KSPReset() before it gets a matrix of another size",
             rows, cg->copies.array_rows);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The array of that number among the copies. */
static PetscScalar *Copy_CGFused(const KSP_CGFused *cg, int number)
{
  return cg->copies.arrays + number * (size_t)cg->copies.array_rows;
}

/* Operations of an iteration: the products, and the vectors' */
static PetscLogDouble FlopsOf(const CGFusedOperators &op)
{
  const PetscLogDouble n = op.A->n;
  return 2. * op.A->nnz + (op.B ? 2. * op.B->nnz : 0) + 12. * n + (op.W1 ? 2. * op.W1->nnz + 2. * op.W2->nnz + 3. * n : 0) +
         (op.ghosts1 ? 2. * op.ghosts1->W.nnz : 0) + (op.ghosts2 ? 2. * op.ghosts2->W.nnz : 0) + (op.cycle ? op.cycle->flops : 0);
}

/* The parts of the factors that reach other ranks, if there are any. */
static PetscErrorCode ConnectFactors(PCInverse *M, CGFusedOperators *op)
{
  PetscFunctionBegin;
  for (PCInverseGhosts *ghosts : {&M->ghosts1, &M->ghosts2})
    if (ghosts->exchange.sf) PetscCall(ExchangeMakeLists(&ghosts->exchange));
  if (M->ghosts1.exchange.sf) op->ghosts1 = &M->ghosts1;
  if (M->ghosts2.exchange.sf) op->ghosts2 = &M->ghosts2;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a preparation finds and borrows. */
struct Preparation {
  Mat              A;
  CGFusedOperators op;
  CGFusedChanges   changes;
  CSRMat           csr, ghost_csr;
  bool             lent, lent_ghosts;
  CopiedFrom       A_now, block_now, M_now;
  LocalInt         count;   /* columns of other ranks */
  const PetscInt  *columns; /* their numbers */
  FusedDiagonal    of_rows; /* it is made on the GPU, of the rows */
};

/* The diagonal of PCJACOBI in memory of the GPU: the vectors of the solver may have been those of a matrix on the host. */
static PetscErrorCode GetDiagonal_CGFused(KSP ksp, const Preparation &now, const PetscScalar **d)
{
  KSP_CGFused       *cg = (KSP_CGFused *)ksp->data;
  const LocalInt     n  = now.op.A->n;
  const PetscScalar *from;
  PetscMemType       where;

  PetscFunctionBegin;
  if (cg->copies.jacobi_rows != n) {
    PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&cg->copies.jacobi));
    cg->copies.jacobi_rows = 0;
    PetscCall(ArrayCreate(n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, (void **)&cg->copies.jacobi));
    cg->copies.jacobi_rows = n;
  }
  if (now.of_rows) PetscCall(FusedDiagonalOfRows(now.op.A, now.of_rows, cg->copies.jacobi));
  else if (cg->copies.used) PetscCall(FusedSend(cg->diagonal, cg->copies.jacobi));
  else {
    PetscCall(VecGetArrayReadAndMemType(cg->diagonal, &from, &where));
    const PetscErrorCode code = ArrayCopy(cg->copies.jacobi, from, n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, where);
    PetscCall(VecRestoreArrayReadAndMemType(cg->diagonal, &from));
    PetscCall(code);
  }
  *d = cg->copies.jacobi;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a rank does alone before the exchange is made. */
static PetscErrorCode Begin_CGFused(KSP ksp, const CGFusedPreconditioner *M, Preparation *now)
{
  KSP_CGFused      *cg = (KSP_CGFused *)ksp->data;
  CGFusedOperators *op = &now->op;
  Mat               block;
  LocalInt          n;

  PetscFunctionBegin;
  PetscCall(CGFusedNeedWork(cg));
  PetscCall(FusedIsSent(ksp, &cg->copies.used));
  PetscCall(FusedGetLocalSize(ksp->vec_rhs, &n));
  if (cg->copies.used) PetscCall(NeedArrays_CGFused(cg, n));
  PetscCall(MatGetDiagonalBlock(now->A, &block));
  PetscCall(FusedHasChanged((PetscObject)now->A, cg->A, &now->A_now, &now->changes.A));
  PetscCall(FusedHasChanged((PetscObject)block, cg->block, &now->block_now, &now->changes.A));
  if (M->M || M->cycle) PetscCall(FusedHasChanged((PetscObject)PCActing(ksp->pc), cg->M, &now->M_now, &now->changes.M));
  cg->A = cg->block = cg->M = CopiedFrom{}; /* until the copies are made */
  PetscCall(FusedGetRows(now->A, &cg->copies.rows, &now->csr));
  now->lent = true;
  op->A     = &now->csr.A;
  if (M->jacobi) PetscCall(GetDiagonal_CGFused(ksp, *now, &op->d));
  if (!cg->solve.several) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetGhostCSR(now->A, &now->ghost_csr, &now->count, &now->columns));
  now->lent_ghosts = true;
  op->B            = &now->ghost_csr.A;
  op->nccl         = cg->solve.nccl;
  op->comm         = PetscObjectComm((PetscObject)now->A);
  if (cg->same_exchange) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedForgetGraph_CUDA(cg->work));
  PetscCall(ExchangeCreate(PETSC_MEMTYPE_CUDA, now->count, &cg->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a rank does alone with the exchange. */
static PetscErrorCode CopyOperators_CGFused(KSP ksp, const CGFusedPreconditioner *M, Preparation *now)
{
  KSP_CGFused      *cg = (KSP_CGFused *)ksp->data;
  CGFusedOperators *op = &now->op;

  PetscFunctionBegin;
  if (cg->solve.several) {
    PetscCall(ExchangeMakeLists(&cg->exchange));
    op->exchange = &cg->exchange;
  }
  if (M->M) {
    op->W1 = &M->M->W1;
    op->W2 = &M->M->W2;
    op->d  = M->M->d;
    if (cg->solve.several) PetscCall(ConnectFactors(M->M, op));
  }
  op->cycle = M->cycle;
  PetscCall(CGFusedPrepare_CUDA(cg->work, op, &now->changes, cg->compress, cg->solve.one_by_one ? KSP_CGFUSED_GRAPH : cg->path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Memory may end on one rank alone: its error is one of all of them, before they connect and wait for one another. Where nothing
   is made together before the copies, one agreement is enough.
*/
static PetscErrorCode Prepare_CGFused(KSP ksp, const CGFusedPreconditioner *M, Preparation *now, bool *on_all)
{
  constexpr char kText[] = "copy the operators of the solver to its GPU";
  KSP_CGFused   *cg      = (KSP_CGFused *)ksp->data;
  const MPI_Comm comm    = PetscObjectComm((PetscObject)ksp);
  PetscErrorCode code    = CallGuarded(Begin_CGFused, ksp, M, now);

  PetscFunctionBegin;
  if (cg->solve.several && !cg->same_exchange) {
    code = AgreeOnError(comm, code, kText);
    if (!code) code = ExchangeFromMat(now->A, now->columns, &cg->exchange);
  }
  if (!code) code = CallGuarded(CopyOperators_CGFused, ksp, M, now);
  if (cg->solve.several) code = AgreeOnError(comm, code, kText);
  *on_all = code != PETSC_SUCCESS;
  if (code && cg->solve.several && cg->work) PetscCall(CGFusedForgetExchanges_CUDA(cg->work));
  PetscCall(code);
  if (now->op.nccl) PetscCall(CGFusedConnect_CUDA(cg->work, &now->op));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The work keeps pointers to B, whose memory the matrix keeps. */
static PetscErrorCode GiveBack(Preparation *now)
{
  PetscFunctionBegin;
  if (now->lent_ghosts) PetscCall(MatRestoreCSR(&now->ghost_csr));
  if (now->lent) PetscCall(MatRestoreCSR(&now->csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLeaveDevice(KSP_CGFused *cg)
{
  PetscFunctionBegin;
  PetscCall(CGFusedDestroy_CUDA(&cg->work));
  PetscCall(CGColumnsDestroy_CUDA(&cg->columns_work));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&cg->copies.arrays));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&cg->copies.jacobi));
  PetscCall(FusedResetRows(&cg->copies.rows));
  cg->copies.array_rows = cg->copies.jacobi_rows = 0;
  cg->copies.used = cg->copies.x_away = PETSC_FALSE;
  cg->A = cg->block = cg->M = CopiedFrom{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepareDevice(KSP ksp, const CGFusedPreconditioner &M, PetscBool *fell)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  Preparation  now{};

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &now.A, nullptr));
  if (M.jacobi) PetscCall(FusedFindDiagonal(ksp, &now.of_rows));
  if (M.jacobi && !now.of_rows) { /* on all ranks: PCJACOBI makes its vectors when it is first applied */
    if (!cg->diagonal) PetscCall(VecDuplicate(ksp->vec_rhs, &cg->diagonal));
    PetscCall(CGFusedNeedWorkVecs(ksp));
    PetscCall(ApplyToOnes(ksp));
  }
  PetscCall(PetscLogEventBegin(FinePC_CGFusedCopy, ksp, 0, 0, 0));
  PetscCall(MatTry(now.A, (PetscObject)ksp, fell, [&](bool *on_all) {
    const PetscErrorCode code = Prepare_CGFused(ksp, &M, &now, on_all), back = GiveBack(&now);
    return code ? code : back;
  }));
  if (*fell) {
    PetscCall(CGFusedLeaveDevice(cg));
    PetscCall(FusedFollow(ksp));
    PetscCall(PetscLogEventEnd(FinePC_CGFusedCopy, ksp, 0, 0, 0));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  cg->A     = now.A_now;
  cg->block = now.block_now;
  cg->M     = now.M_now;
  cg->flops = FlopsOf(now.op);

  cg->solve.has_cycle = (PetscBool)(M.cycle != nullptr);
  PetscCall(PetscLogEventEnd(FinePC_CGFusedCopy, ksp, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the solve ------------------------------------------ */

/* The arrays of the solve, for as long as the GPU works with them. */
static PetscErrorCode GetVectors_CGFused(KSP ksp, CGFusedVectors *v)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  PetscMemType       where;

  PetscFunctionBegin;
  if (cg->copies.used) {
    *v = CGFusedVectors{Copy_CGFused(cg, 0), Copy_CGFused(cg, 1), Copy_CGFused(cg, 2), Copy_CGFused(cg, 3), Copy_CGFused(cg, 4)};
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecGetArrayReadAndMemType(ksp->vec_rhs, &v->b, &where));
  PetscCall(VecGetArrayAndMemType(ksp->vec_sol, &v->x, &where));
  PetscCall(VecGetArrayWriteAndMemType(ksp->work[0], &v->r, &where));
  PetscCall(VecGetArrayWriteAndMemType(ksp->work[1], &v->z, &where));
  PetscCall(VecGetArrayWriteAndMemType(ksp->work[2], &v->p, &where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreVectors_CGFused(KSP ksp, CGFusedVectors *v)
{
  PetscFunctionBegin;
  if (((const KSP_CGFused *)ksp->data)->copies.used) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecRestoreArrayReadAndMemType(ksp->vec_rhs, &v->b));
  PetscCall(VecRestoreArrayAndMemType(ksp->vec_sol, &v->x));
  PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[0], &v->r));
  PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[1], &v->z));
  PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[2], &v->p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Calls what the GPU does with the arrays of the solve. Between two calls the program may use the vectors. */
template <typename Call>
static PetscErrorCode WithVectors(KSP ksp, Call call)
{
  CGFusedVectors v;

  PetscFunctionBegin;
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(GetVectors_CGFused(ksp, &v));
  const PetscErrorCode code = call(v), back = RestoreVectors_CGFused(ksp, &v);
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(code);
  PetscCall(back);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* r and z = M r from the guess, and all that KSPCG does with them before its first iteration; the sums are needed to go on. */
static PetscErrorCode Start_CGFused(KSP ksp, CGSums *sums)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscReal    norm;

  PetscFunctionBegin;
  PetscCall(WithVectors(ksp, [&](const CGFusedVectors &v) {
    return CGFusedStart_CUDA(cg->work, &v, (PetscBool)!ksp->guess_zero, FusedNormOf(ksp),
                             (PetscBool)(cg->solve.one_by_one != nullptr), sums);
  }));
  if (ksp->normtype == KSP_NORM_NATURAL) KSPCheckDot(ksp, sums->rz);
  norm = CGNormFrom(ksp, sums->nn, sums->rz);
  KSPCheckNorm(ksp, norm);
  if (ksp->normtype != KSP_NORM_NONE) cg->solve.range.See(norm);
  cg->solve.range.See(sums->rz);
  PetscCall(CGFusedTestNorm(ksp, 0, norm));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  KSPCheckDot(ksp, sums->rz);
  if (sums->rz == 0) {
    ksp->its = 1;
    cg->solve.range.End(CG_BETA_ZERO);
    PetscCall(CGSetReason(ksp, CG_BETA_ZERO, 1, 0));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Iterations that the GPU decides about. The host follows with the history, the monitors and the Lanczos matrix, or, one by one,
   goes on with the next iteration when the monitors and the convergence test have seen the last one: then it is they who may end
   the solve, with a reason of the KSP. The arrays are those of the start, which the work has kept.
*/
static PetscErrorCode Iterate_CGFused(KSP ksp, PetscReal beta, CGStop *stop, LocalInt *its, PetscReal *value)
{
  KSP_CGFused    *cg         = (KSP_CGFused *)ksp->data;
  const PetscBool one_by_one = (PetscBool)(cg->solve.one_by_one != nullptr);
  const CGTest    test       = FusedTestOf(ksp, one_by_one);
  const CGRecord *records;
  LocalInt        count, done = 0;
  PetscReal       a_before = 1;

  PetscFunctionBegin;
  PetscCall(WithVectors(ksp, [&](const CGFusedVectors &) { return CGFusedBegin_CUDA(cg->work, beta, &test); }));
  do {
    PetscCall(WithVectors(ksp, [&](const CGFusedVectors &) {
      return CGFusedAdvance_CUDA(cg->work, CGFusedNextLook(cg), &count, &records, stop, its, value);
    }));
    for (LocalInt k = 0; k < count; k++) {
      if (!done) cg->solve.range.Step(records[k].a);
      PetscCall(CGFusedLanczosRow(ksp, done, records[k].a, a_before, records[k].b));
      a_before = records[k].a;
      ksp->its = ++done;
      if (CGHasNoNorm(test.norm, *stop, *its, done)) continue;
      cg->copies.x_away = cg->copies.used;
      if (one_by_one) PetscCall(CGFusedTestNorm(ksp, done, records[k].norm));
      else {
        ksp->rnorm = records[k].norm;
        PetscCall(KSPLogResidualHistory(ksp, records[k].norm));
        PetscCall(KSPMonitor(ksp, done, records[k].norm));
        if (cg->solve.look) cg->solve.look->norms.push_back(records[k].norm);
      }
    }
    if (!one_by_one && *stop == CG_RUNNING && done >= CGFusedNextLook(cg))
      PetscCall((*cg->solve.look->decide)(ksp, cg->solve.look));
  } while (*stop == CG_RUNNING && !ksp->reason);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SolveWithArrays(KSP ksp)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  CGSums       sums;
  CGStop       stop;
  LocalInt     its;
  PetscReal    value;

  PetscFunctionBegin;
  PetscCall(Start_CGFused(ksp, &sums));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscErrorCode code = CallGuarded(Iterate_CGFused, ksp, sums.rz, &stop, &its, &value);
  if (cg->solve.one_by_one) PetscCall(CGFusedHalt_CUDA(cg->work)); /* after an error of the program, too */
  PetscCall(code);
  if (!ksp->reason) {
    ksp->its = its;
    cg->solve.range.End(stop);
    PetscCall(CGSetReason(ksp, stop, its, value));
  }
  PetscCall(PetscLogGpuFlops(ksp->its * cg->flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedSolveOnDevice(KSP ksp)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(FusedIsSent(ksp, &cg->copies.used));
  if (cg->copies.used) {
    PetscCall(FusedSend(ksp->vec_rhs, Copy_CGFused(cg, 0)));
    if (ksp->guess_zero) PetscCall(ArrayZero(Copy_CGFused(cg, 1), cg->copies.array_rows * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA));
    else PetscCall(FusedSend(ksp->vec_sol, Copy_CGFused(cg, 1)));
  }
  cg->copies.x_away = PETSC_FALSE;
  PetscCall(SolveWithArrays(ksp));
  cg->copies.x_away = cg->copies.used;
  PetscCall(CGFusedFetchSolution(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedTrueResidual(KSP ksp, CGTrueResidual *norms)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscReal    sums[4], of_b[4];
  LocalInt     n;

  PetscFunctionBegin;
  PetscCall(FusedGetLocalSize(ksp->vec_rhs, &n));
  PetscCall(WithVectors(ksp, [&](const CGFusedVectors &v) {
    PetscFunctionBegin;
    PetscCall(CGFusedProduct_CUDA(cg->work, v.x, v.z));
    PetscCall(CGDirection_CUDA(n, -1, v.b, v.z, nullptr, nullptr)); /* z = b - z */
    PetscCall(ArrayCopy(v.p, v.r, n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    PetscCall(CGDirection_CUDA(n, -1, v.z, v.p, nullptr, nullptr)); /* p = z - r */
    PetscCall(CGDots_CUDA(cg->work, n, v.p, v.r, nullptr, sums));
    PetscCall(CGDots_CUDA(cg->work, n, v.b, v.b, nullptr, of_b));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  sums[3] = of_b[0];
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, 4, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)ksp)));
  norms->b          = PetscSqrtReal(sums[3]);
  norms->r          = PetscSqrtReal(sums[2]);
  norms->difference = PetscSqrtReal(sums[1]);
  if (!PetscIsNormalReal(sums[2])) norms->difference = PETSC_INFINITY; /* squares that vanish say nothing */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedFetchSolution(KSP ksp)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  if (cg->copies.x_away) PetscCall(FusedFetch(Copy_CGFused(cg, 1), ksp->vec_sol));
  cg->copies.x_away = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedFetchResidual(KSP ksp, Residual residual)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(CGFusedNeedWorkVecs(ksp));
  if (cg->copies.used) PetscCall(FusedFetch(Copy_CGFused(cg, residual == Residual::OF_SOLUTION ? 3 : 2), ksp->work[0]));
  else if (residual == Residual::OF_SOLUTION) PetscCall(VecCopy(ksp->work[1], ksp->work[0]));
  PetscFunctionReturn(PETSC_SUCCESS);
}
