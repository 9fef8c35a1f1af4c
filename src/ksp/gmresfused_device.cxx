/* The fused GMRES whose iterations the GPU decides about, on one rank or on several with NCCL, and the copies of the operators. */
#include <petsc/private/pcimpl.h>

#include "ranks/agree.h"
#include "entry.h"
#include "gmresfusedimpl.h"
#include "pc/acting.h"
#include "sparse/bsr_mat.h"
#include "sparse/offload.h"

/* The state of the matrix from which the PC was set up last, which is an older one where the program reuses the preconditioner. */
static PetscErrorCode SetUpFrom(PC pc, CopiedFrom *from)
{
  PetscFunctionBegin;
  PetscCall(PCSetUpState(pc, &from->id, &from->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ResetArrays_GMRESFused(KSP_GMRESFused *g)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&g->copies.arrays));
  g->copies.rows = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Room for the copies of the vectors of a solve. */
static PetscErrorCode NeedArrays_GMRESFused(KSP_GMRESFused *g, LocalInt n)
{
  PetscFunctionBegin;
  if (g->copies.arrays && g->copies.rows == n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ResetArrays_GMRESFused(g));
  PetscCall(ArrayCreate((4 + kGMRESMostStep) * (size_t)n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, (void **)&g->copies.arrays));
  g->copies.rows = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Column k of all blocks of d, which is what the preconditioner makes of a vector, whatever its options. */
static PetscErrorCode GetColumn(KSP ksp, LocalInt k)
{
  KSP_GMRESFused    *g = (KSP_GMRESFused *)ksp->data;
  const size_t       n = g->jacobi.rows;
  const PetscScalar *y;
  PetscScalar       *x;
  PetscMemType       where;

  PetscFunctionBegin;
  if (g->copies.sent) {
    PetscCall(GMRESFusedUnit_CUDA(g->work, g->jacobi.rows, g->jacobi.bs, k, g->copies.Vector(2)));
    PetscCall(FusedFetch(g->copies.Vector(2), ksp->work[0]));
  } else {
    PetscCall(VecGetArrayWriteAndMemType(ksp->work[0], &x, &where));
    PetscCall(GMRESFusedUnit_CUDA(g->work, g->jacobi.rows, g->jacobi.bs, k, x));
    PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[0], &x));
  }
  PetscCall(PCApply(ksp->pc, ksp->work[0], ksp->work[1]));
  PetscCall(VecGetArrayReadAndMemType(ksp->work[1], &y, &where));
  PetscCall(ArrayCopy(g->jacobi.d + k * n, y, n * sizeof(*y), PETSC_MEMTYPE_CUDA, where));
  PetscCall(VecRestoreArrayReadAndMemType(ksp->work[1], &y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ResetBlocks_GMRESFused(KSP_GMRESFused *g)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&g->jacobi.d));
  g->jacobi.rows = g->jacobi.bs = 0;
  g->jacobi.M                   = CopiedFrom{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refreshes d. The blocks of PCPBJACOBI depend on the matrix alone, PCJACOBI on options that may have changed, too. `blocks` is
 * whether the GPU has the matrix in blocks. */
static PetscErrorCode GetBlocks(KSP ksp, bool blocks)
{
  KSP_GMRESFused *g  = (KSP_GMRESFused *)ksp->data;
  const LocalInt  n  = g->basis[GMRES_U].n;
  PetscInt        bs = 1;
  PetscBool       jacobi, pbjacobi;
  CopiedFrom      now;
  Mat             P;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)PCActing(ksp->pc), PCJACOBI, &jacobi));
  PetscCall(PetscObjectTypeCompare((PetscObject)PCActing(ksp->pc), PCPBJACOBI, &pbjacobi));
  if (!jacobi && !pbjacobi) PetscFunctionReturn(PETSC_SUCCESS);
  if (pbjacobi) {
    PetscCall(PCGetOperators(ksp->pc, nullptr, &P));
    PetscCall(MatGetBlockSize(P, &bs));
    PetscCall(SetUpFrom(PCActing(ksp->pc), &now));
  }
  if (g->jacobi.rows != n || g->jacobi.bs != bs) {
    PetscCall(ResetBlocks_GMRESFused(g));
    PetscCall(ArrayCreate((size_t)n * bs * sizeof(*g->jacobi.d), PETSC_MEMTYPE_CUDA, (void **)&g->jacobi.d));
    g->jacobi.rows = n;
    g->jacobi.bs   = (LocalInt)bs;
  }
  FusedDiagonal of_rows;
  if (jacobi && !blocks) PetscCall(FusedFindDiagonal(ksp, &of_rows));
  if (of_rows) {
    CSRMat csr;

    g->jacobi.M = CopiedFrom{};
    PetscCall(PCGetOperators(ksp->pc, nullptr, &P));
    PetscCall(FusedGetRows(P, &g->copies.matrix, &csr));
    const PetscErrorCode code = FusedDiagonalOfRows(&csr.A, of_rows, g->jacobi.d);
    PetscCall(MatRestoreCSR(&csr));
    PetscCall(code);
  } else if (jacobi || now.id != g->jacobi.M.id || now.state != g->jacobi.M.state) {
    g->jacobi.M = CopiedFrom{}; /* until all columns are made */
    for (LocalInt k = 0; k < g->jacobi.bs; k++) PetscCall(GetColumn(ksp, k));
    g->jacobi.M = now;
  }
  g->op.d  = g->jacobi.d;
  g->op.bs = g->jacobi.bs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a preparation finds and borrows. */
struct Preparation {
  Mat                   A;
  Mat                   parts[2]; /* the columns that the rank owns, and on several ranks those that others own */
  bool                  blocks;
  CSRMat                csr[2];
  bool                  lent[2];
  CopiedFrom            now, block_now;
  PetscBool             changed;
  std::vector<PetscInt> columns; /* numbers of the single columns of other ranks */
  PetscLogDouble        flops;
};

static PetscErrorCode FindParts_GMRESFused(KSP ksp, Preparation *p)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  PetscInt        count, bs;
  const PetscInt *columns = nullptr;
  PetscErrorCode (*blocks)(Mat, const BSR **);

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &p->A, nullptr));
  p->parts[0] = p->A;
  if (g->ranks.several) PetscCall(MatGetRankParts(p->A, &p->parts[0], &p->parts[1], &columns));
  PetscCall(FusedHasChanged((PetscObject)p->A, g->A, &p->now, &p->changed));
  PetscCall(FusedHasChanged((PetscObject)p->parts[0], g->block, &p->block_now, &p->changed));
  g->A = g->block = CopiedFrom{}; /* until the copy is made */
  PetscCall(PetscObjectQueryFunction((PetscObject)p->parts[0], kDeviceBlocksQuery, &blocks));
  p->blocks = blocks;
  if (!g->ranks.several) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetLocalSize(p->parts[1], nullptr, &count));
  PetscCall(MatGetBlockSize(p->parts[1], &bs));
  if (!p->blocks) bs = 1;
  p->columns.resize(count);
  for (PetscInt k = 0; k < count; k++) p->columns[k] = columns[k / bs] * bs + k % bs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a rank does alone before the exchange is made. */
static PetscErrorCode Begin_GMRESFused(KSP ksp, Preparation *p)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  LocalInt        count;

  PetscFunctionBegin;
  PetscCall(FindParts_GMRESFused(ksp, p));
  if (g->copies.sent) PetscCall(NeedArrays_GMRESFused(g, g->basis[GMRES_U].n));
  PetscCall(GetBlocks(ksp, p->blocks));
  if (!g->ranks.several) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(LocalIntCast((PetscCount)p->columns.size(), "columns of other ranks", &count));
  if (g->ranks.same_exchange) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GMRESFusedWait_CUDA(g->work));
  PetscCall(ExchangeCreate(PETSC_MEMTYPE_CUDA, count, &g->ranks.exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetDeviceBlocks_GMRESFused(Mat part, const BSR **blocks, PetscLogDouble *flops)
{
  PetscErrorCode (*query)(Mat, const BSR **);

  PetscFunctionBegin;
  PetscCall(PetscObjectQueryFunction((PetscObject)part, kDeviceBlocksQuery, &query));
  PetscCall((*query)(part, blocks));
  *flops += 2. * (*blocks)->nnz * (*blocks)->bs * (*blocks)->bs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetRows_GMRESFused(KSP ksp, Preparation *p)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(FusedGetRows(p->A, &g->copies.matrix, &p->csr[0]));
  p->lent[0] = true;
  g->op.A    = &p->csr[0].A;
  p->flops += 2. * g->op.A->nnz;
  if (!g->ranks.several) PetscFunctionReturn(PETSC_SUCCESS);
  LocalInt        count;
  const PetscInt *columns;
  PetscCall(MatGetGhostCSR(p->A, &p->csr[1], &count, &columns));
  p->lent[1] = true;
  g->op.B    = &p->csr[1].A;
  p->flops += 2. * g->op.B->nnz;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a rank does alone with the exchange. */
static PetscErrorCode Copy_GMRESFused(KSP ksp, Preparation *p)
{
  constexpr PetscInt kSmallRows = 100000; /* of a rank whose iterations take less time than the host needs to look at them */
  KSP_GMRESFused    *g          = (KSP_GMRESFused *)ksp->data;
  PetscMPIInt        size;
  PetscInt           rows;

  PetscFunctionBegin;
  if (p->blocks) {
    PetscCall(GetDeviceBlocks_GMRESFused(p->parts[0], &g->op.blocks, &p->flops));
    if (g->ranks.several) PetscCall(GetDeviceBlocks_GMRESFused(p->parts[1], &g->op.ghost_blocks, &p->flops));
  } else PetscCall(GetRows_GMRESFused(ksp, p));
  if (g->ranks.several) {
    PetscCall(ExchangeMakeLists(&g->ranks.exchange));
    PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)p->A), &size));
    PetscCall(MatGetSize(p->A, &rows, nullptr));
    g->op.nccl     = g->ranks.nccl;
    g->op.comm     = PetscObjectComm((PetscObject)p->A);
    g->op.exchange = &g->ranks.exchange;
    g->op.step     = GMRESFusedStepOf(ksp);
    g->op.small    = (PetscBool)(rows / size < kSmallRows);
  }
  PetscCall(GMRESFusedPrepare_CUDA(g->work, &g->op, p->changed));
  if (g->ranks.several) PetscCall(GMRESFusedReserve_CUDA(g->work, &g->basis[GMRES_U], g->cycle.small.restart, g->op.step));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PCJACOBI makes its vectors on all ranks when it is first applied, which has no place in what a rank does alone. */
static PetscErrorCode ReadyJacobi(KSP ksp)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  PetscBool             jacobi;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)PCActing(ksp->pc), PCJACOBI, &jacobi));
  if (!jacobi || !g->ranks.several) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecSet(ksp->work[0], 0));
  PetscCall(PCApply(ksp->pc, ksp->work[0], ksp->work[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Memory may end on one rank alone: its error is one of all of them, before they connect and wait for one another. */
static PetscErrorCode PrepareAll(KSP ksp, Preparation *p, bool *on_all)
{
  constexpr char  kText[] = "copy the operators of the solver to its GPU";
  KSP_GMRESFused *g       = (KSP_GMRESFused *)ksp->data;
  const MPI_Comm  comm    = PetscObjectComm((PetscObject)ksp);
  PetscErrorCode  code    = CallGuarded(Begin_GMRESFused, ksp, p);

  PetscFunctionBegin;
  if (g->ranks.several && !g->ranks.same_exchange) {
    code = AgreeOnError(comm, code, kText);
    if (!code) code = ExchangeFromMat(p->A, p->columns.data(), &g->ranks.exchange);
  }
  if (!code) code = CallGuarded(Copy_GMRESFused, ksp, p);
  if (g->ranks.several) code = AgreeOnError(comm, code, kText);
  *on_all = code != PETSC_SUCCESS;
  if (code && g->ranks.several && g->work) PetscCall(GMRESFusedForgetExchanges_CUDA(g->work));
  PetscCall(code);
  if (g->ranks.nccl) PetscCall(GMRESFusedConnect_CUDA(g->work, &g->op));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refreshes the device copies of the operators, and the exchange of several ranks; whether an error is one of all ranks. */
static PetscErrorCode PrepareCopies_GMRESFused(KSP ksp, PetscLogDouble *product_flops, bool *on_all)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  Preparation     p{};

  PetscFunctionBegin;
  PetscCall(ReadyJacobi(ksp));
  PetscCall(PetscLogEventBegin(FinePC_GMRESFusedCopy, ksp, 0, 0, 0));
  const PetscErrorCode code = PrepareAll(ksp, &p, on_all);
  g->op.A = g->op.B = nullptr;
  for (int k = 1; k >= 0; k--)
    if (p.lent[k]) PetscCall(MatRestoreCSR(&p.csr[k])); /* of other ranks the work keeps pointers, whose memory the matrix keeps */
  PetscCall(code);
  PetscCall(PetscLogEventEnd(FinePC_GMRESFusedCopy, ksp, 0, 0, 0));
  *product_flops = p.flops;
  g->A           = p.now;
  g->block       = p.block_now;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The arrays of the solve, for as long as the GPU works with them. */
static PetscErrorCode GetVectors_GMRESFused(KSP ksp, GMRESVectors *v)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  PetscMemType          where;

  PetscFunctionBegin;
  if (g->copies.sent) {
    v->b = g->copies.Vector(0);
    v->x = g->copies.Vector(1);
    v->p = g->copies.Vector(2);
    v->t = g->copies.Vector(3);
    for (LocalInt k = 0; k < kGMRESMostStep; k++) v->w[k] = g->copies.Vector(4 + k);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecGetArrayReadAndMemType(ksp->vec_rhs, &v->b, &where));
  PetscCall(VecGetArrayAndMemType(ksp->vec_sol, &v->x, &where));
  PetscCall(VecGetArrayWriteAndMemType(ksp->work[0], &v->p, &where));
  PetscCall(VecGetArrayWriteAndMemType(ksp->work[1], &v->t, &where));
  for (LocalInt k = 0; k < kGMRESMostStep; k++) PetscCall(VecGetArrayWriteAndMemType(ksp->work[2 + k], &v->w[k], &where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreVectors_GMRESFused(KSP ksp, GMRESVectors *v)
{
  PetscFunctionBegin;
  if (((const KSP_GMRESFused *)ksp->data)->copies.sent) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecRestoreArrayReadAndMemType(ksp->vec_rhs, &v->b));
  PetscCall(VecRestoreArrayAndMemType(ksp->vec_sol, &v->x));
  PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[0], &v->p));
  PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[1], &v->t));
  for (LocalInt k = 0; k < kGMRESMostStep; k++) PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[2 + k], &v->w[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The reason of a stop, as KSPGMRES gives it. */
static PetscErrorCode SetReason(KSP ksp, GMRESStop stop, PetscReal value)
{
  PetscFunctionBegin;
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS); /* by a test of the program */
  switch (stop) {
  case GMRES_TEST:
    PetscCall((*ksp->converged)(ksp, ksp->its, value, &ksp->reason, ksp->cnvP));
    PetscCheck(ksp->reason, PetscObjectComm((PetscObject)ksp), PETSC_ERR_PLIB,
               "The device has stopped in iteration %" PetscInt_FMT " with norm %g, where the test would go on", ksp->its,
               (double)value);
    break;
  case GMRES_NOT_FINITE: KSPCheckNorm(ksp, value); break;
  case GMRES_ZERO: ksp->reason = KSP_CONVERGED_ATOL; break;
  case GMRES_HAPPY: PetscCall(GMRESFusedHappyEnd(ksp)); break;
  case GMRES_SINGULAR: PetscCall(GMRESFusedSingularEnd(ksp)); break;
  case GMRES_ITS: ksp->reason = KSP_DIVERGED_ITS; break;
  case GMRES_FULL: break;
  case GMRES_CUT: ((KSP_GMRESFused *)ksp->data)->counts.dropped++; break; /* there is no reason to end */
  default: PetscCall(GMRESFusedMissed(ksp, value));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Operations of so many iterations beside the products. */
static PetscLogDouble BasisFlops(PetscInt its, PetscInt restart, LocalInt n)
{
  const PetscInt rest = its % restart;
  return (3. * (its / restart) * restart * (restart + 1) + 3. * rest * (rest + 1) + 3. * its) * n;
}

PetscErrorCode GMRESFusedFetchSmall(KSP ksp)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  LocalInt        further;

  PetscFunctionBegin;
  if (g->watch.late) PetscCall(GMRESFusedGetSmall_CUDA(g->work, &g->cycle.small, &further));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The program's functions get what follows so many columns of the cycle, behind which the GPU may be further on. */
template <typename F>
static PetscErrorCode CallLate(KSP ksp, LocalInt columns, GMRESVectors *v, F call)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(RestoreVectors_GMRESFused(ksp, v));
  PetscCall(DeviceFence_CUDA());
  g->cycle.columns = g->cycle.small_columns = columns;
  g->watch.late                             = true;
  const PetscErrorCode code                 = call();
  g->watch.late                             = false;
  g->cycle.columns                          = 0;
  PetscCall(code);
  PetscCall(DeviceFence_CUDA());
  PetscCall(GetVectors_GMRESFused(ksp, v));
  PetscCall(PetscLogGpuTimeBegin());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Cycles from the residual in p to a stop. The host follows with history, monitors and a test of the program, but for the last
   norm, in whose place a next cycle may have the true one. After a test of the program that ends the solve the KSP has the reason.
*/
static PetscErrorCode Iterate_GMRESFused(KSP ksp, PetscReal norm, GMRESVectors *v, GMRESStop *stop, PetscReal *value, bool *held)
{
  KSP_GMRESFused  *g       = (KSP_GMRESFused *)ksp->data;
  const bool       watched = GMRESFusedIsWatched(ksp);
  const bool       tested  = ksp->converged != KSPConvergedDefault && ksp->converged != KSPConvergedSkip; /* by the program */
  const CGTest     test    = FusedTestOf(ksp, (PetscBool)tested);
  const PetscInt   first   = ksp->its;
  const LocalInt   step    = g->counts.dropped ? 1 : GMRESFusedStepOf(ksp);
  const GMRESStart start{g->cycle.small.restart, step, (LocalInt)first, watched, norm, g->happy_tolerance,
                         g->breakdown_tolerance, test};
  const PetscReal *norms;
  LocalInt         count, its;

  PetscFunctionBegin;
  *held = false;
  PetscCall(GMRESFusedBegin_CUDA(g->work, &start));
  do {
    PetscCall(GMRESFusedAdvance_CUDA(g->work, &count, &norms, stop, &its, value));
    for (LocalInt k = 0; k < count && !ksp->reason; k++) {
      const auto show = [ksp] { return GMRESFusedShow(ksp, ksp->rnorm); };
      const auto end  = [ksp] { return (*ksp->converged)(ksp, ksp->its, ksp->rnorm, &ksp->reason, ksp->cnvP); };
      if (*held && watched) PetscCall(CallLate(ksp, (LocalInt)(ksp->its - first), v, show));
      else if (*held) PetscCall(show());
      ksp->rnorm = norms[k];
      ksp->its++;
      *held = true;
      if (tested && !(*stop == GMRES_SINGULAR && k + 1 == count)) /* that iteration has no column */
        PetscCall(CallLate(ksp, (LocalInt)(ksp->its - first), v, end));
    }
    if (*stop == GMRES_SECOND && !ksp->reason) {
      g->counts.dropped++;
      PetscCall(GMRESFusedGoOn_CUDA(g->work));
      *stop = GMRES_RUNNING;
    }
  } while (*stop == GMRES_RUNNING && !ksp->reason);
  if (ksp->reason) {
    g->cycle.columns = (LocalInt)(ksp->its - first);
    PetscCall(GMRESFusedGetSmall_CUDA(g->work, &g->cycle.small, &its));
    g->cycle.small_columns = g->cycle.columns;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (*stop != GMRES_FULL) ksp->its = its;
  PetscCall(GMRESFusedFinish_CUDA(g->work));
  if (ksp->calc_sings) PetscCall(GMRESFusedGetSmall_CUDA(g->work, &g->cycle.small, &g->cycle.small_columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Where the norm of the first residual is outside of this, its square may overflow or vanish, or its entries in single precision.
   The general path computes the norm otherwise, and goes on with a unit vector as this one does.
*/
static bool IsInRange(PetscReal norm, FinePCPrecision basis)
{
  const PetscReal largest = basis == FINEPC_SINGLE ? 0x1p100 : 0x1p400;
  return norm > 1 / largest && norm < largest;
}

PetscErrorCode GMRESFusedLeaveDevice(KSP_GMRESFused *g)
{
  PetscFunctionBegin;
  PetscCall(GMRESFusedResetBasis(g));
  PetscCall(GMRESFusedDestroy_CUDA(&g->work));
  PetscCall(ResetBlocks_GMRESFused(g));
  PetscCall(ResetArrays_GMRESFused(g));
  PetscCall(FusedResetRows(&g->copies.matrix));
  g->copies.sent = PETSC_FALSE;
  g->A = g->block = CopiedFrom{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Memory and copies for the solve, or the reason why the host makes it after all. */
static PetscErrorCode Prepare_GMRESFused(KSP ksp, PetscLogDouble *product_flops)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  PetscBool       fell;
  Mat             A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatTry(A, (PetscObject)ksp, &fell, [&](bool *on_all) {
    const PetscErrorCode code = GMRESFusedNeedMemory(ksp, PETSC_TRUE);
    *on_all                   = code != PETSC_SUCCESS;
    return code ? code : PrepareCopies_GMRESFused(ksp, product_flops, on_all);
  }));
  if (!fell) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GMRESFusedLeaveDevice(g));
  PetscCall(FusedFollow(ksp));
  PetscCall(GMRESFusedLookAtPreconditioner(ksp));
  PetscCall(GMRESFusedWhyGeneral(ksp, &g->op, &g->why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedSolveOnDevice(KSP ksp)
{
  KSP_GMRESFused *g             = (KSP_GMRESFused *)ksp->data;
  PetscBool       guess         = (PetscBool)!ksp->guess_zero;
  PetscLogDouble  product_flops = 0;
  GMRESVectors    v;
  PetscReal       norm = 0, value = 0;
  GMRESStop       stop = GMRES_RUNNING;
  bool            held = false;

  PetscFunctionBegin;
  PetscCall(FusedIsSent(ksp, &g->copies.sent));
  PetscCall(Prepare_GMRESFused(ksp, &product_flops));
  if (g->why) PetscFunctionReturn(PETSC_SUCCESS); /* the host makes the solve */
  if (g->copies.sent) {
    PetscCall(FusedSend(ksp->vec_rhs, g->copies.Vector(0)));
    if (guess) PetscCall(FusedSend(ksp->vec_sol, g->copies.Vector(1)));
    else PetscCall(ArrayZero(g->copies.Vector(1), g->copies.rows * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA));
  }
  do {
    const PetscInt before = ksp->its;

    PetscCall(PetscLogGpuTimeBegin());
    PetscCall(GetVectors_GMRESFused(ksp, &v));
    PetscCall(GMRESFusedStart_CUDA(g->work, &g->basis[GMRES_U], &v, guess, &norm));
    PetscCall(RestoreVectors_GMRESFused(ksp, &v));
    PetscCall(PetscLogGpuTimeEnd());
    if (!ksp->its && !IsInRange(norm, g->basis_precision)) {
      g->why.text = "a residual beyond the range of squares";
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(GMRESFusedTestStart(ksp, norm));
    if (ksp->reason || g->preconditioner.keeps) break;
    PetscCall(PetscLogGpuTimeBegin());
    PetscCall(GetVectors_GMRESFused(ksp, &v)); /* the arrays are those of the start, which the work has kept */
    PetscCall(Iterate_GMRESFused(ksp, norm, &v, &stop, &value, &held));
    PetscCall(RestoreVectors_GMRESFused(ksp, &v));
    PetscCall(PetscLogGpuTimeEnd());
    if (g->copies.sent) PetscCall(FusedFetch(g->copies.Vector(1), ksp->vec_sol));
    if (g->cycle.columns) { /* the program's test has ended the cycle */
      PetscCall(GMRESFusedBuildSolution(ksp, ksp->vec_sol));
      if (g->copies.sent) PetscCall(FusedSend(ksp->vec_sol, g->copies.Vector(1)));
    }
    g->cycle.columns = 0;
    PetscCall(FusedLogFlops(PETSC_TRUE, (ksp->its - before) * product_flops +
                                          BasisFlops(ksp->its - before, g->cycle.small.restart, g->basis[GMRES_U].n)));
    PetscCall(SetReason(ksp, stop, value));
    GMRESFusedLeaveToTrueNorm(ksp);
    if (held && ksp->reason) PetscCall(GMRESFusedShow(ksp, ksp->rnorm));
    guess          = PETSC_TRUE;
    g->watch.shown = !held; /* the last cycle has ended before its first iteration: the norm is the same */
  } while (!ksp->reason && !g->preconditioner.keeps);
  if (!ksp->reason) g->why.text = "a flexible solve";
  PetscFunctionReturn(PETSC_SUCCESS);
}
