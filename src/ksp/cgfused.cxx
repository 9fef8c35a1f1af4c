/* The PETSc face of the fused conjugate gradient method. */
#include <petsc/private/kspimpl.h>
#include <petscblaslapack.h>
#include <petscsf.h>

#include <limits>
#include <string>

#include "finepcimpl.h"
#include "pc/pcinverse.h"
#include "sparse/csr_mat.h"
#include "cgfused.h"

const char *const KSPCGFusedPaths[] = {"auto", "general", "graph", "resident", "KSPCGFusedPath", "KSP_CGFUSED_", nullptr};

/* What a copy was made of. */
struct CopiedFrom {
  PetscObjectId    id    = 0;
  PetscObjectState state = -1;
};

struct KSP_CGFused {
  KSPCGFusedPath path             = KSP_CGFUSED_AUTO;
  PetscBool      compress         = PETSC_TRUE;
  PetscBool3     single_reduction = PETSC_BOOL3_UNKNOWN; /* unknown: with several ranks */

  CGFusedWork   *work     = nullptr;                          /* on the device, when it is first needed */
  Vec            diagonal = nullptr;                          /* M^{-1} of PCJACOBI */
  CopiedFrom     A, block, M;                                 /* what is in work; block: A's own part of a parallel matrix */
  PetscLogDouble flops = 0;                                   /* of an iteration on the device */
  std::string    why;                                         /* the last solve took the general path; empty for the others */
  PetscBool      solved = PETSC_FALSE, several = PETSC_FALSE; /* there has been a solve; with several ranks */

  PetscSF      exchange      = nullptr;     /* what a product needs from other ranks, */
  PetscScalar *ghosts        = nullptr;     /* which comes to here, on the device */
  PetscBool    same_exchange = PETSC_FALSE; /* as in the last solve, on all ranks */
  CopiedFrom   pattern;                     /* of the rank's block for them, that they were made for */

  PetscScalar *e = nullptr, *d = nullptr; /* Lanczos matrix, as in KSPCG: off-diagonal e[1] .., diagonal d[0] .. */
  PetscInt     lanczos = 0;               /* iterations that they have room for */
};

/* ------------------------------------------ options ------------------------------------------- */

static PetscErrorCode KSPCGFusedSetPath_CGFused(KSP ksp, KSPCGFusedPath path)
{
  PetscFunctionBegin;
  PetscCheck(path >= KSP_CGFUSED_AUTO && path <= KSP_CGFUSED_RESIDENT, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_OUTOFRANGE,
             "The path is %d, but has to be one of KSPCGFusedPath", (int)path);
  ((KSP_CGFused *)ksp->data)->path = path;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGFusedGetPath_CGFused(KSP ksp, KSPCGFusedPath *path)
{
  PetscFunctionBegin;
  *path = ((KSP_CGFused *)ksp->data)->path;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGFusedSetCompress_CGFused(KSP ksp, PetscBool compress)
{
  PetscFunctionBegin;
  ((KSP_CGFused *)ksp->data)->compress = compress;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGFusedGetCompress_CGFused(KSP ksp, PetscBool *compress)
{
  PetscFunctionBegin;
  *compress = ((KSP_CGFused *)ksp->data)->compress;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SingleReduction(KSP ksp, PetscBool *single)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  PetscMPIInt        size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  *single = (PetscBool)(cg->single_reduction == PETSC_BOOL3_TRUE || (cg->single_reduction == PETSC_BOOL3_UNKNOWN && size > 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGUseSingleReduction_CGFused(KSP ksp, PetscBool single)
{
  PetscBool before;

  PetscFunctionBegin;
  PetscCall(SingleReduction(ksp, &before));
  if (before != single) ksp->setupstage = KSP_SETUP_NEW; /* another number of work vectors */
  ((KSP_CGFused *)ksp->data)->single_reduction = PetscBoolToBool3(single);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGSetRadius_CGFused(KSP ksp, PetscReal radius)
{
  PetscFunctionBegin;
  PetscCheck(radius == 0, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "KSPCGFUSED has no trust region: use KSPCG, -ksp_type cg");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGSetObjectiveTarget_CGFused(KSP ksp, PetscReal objective)
{
  PetscFunctionBegin;
  PetscCheck(objective == 0, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "KSPCGFUSED has no objective: use KSPCG, -ksp_type cg");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetFromOptions_CGFused(KSP ksp, PetscOptionItems PetscOptionsObject)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscBool    single, flag;

  PetscFunctionBegin;
  PetscCall(SingleReduction(ksp, &single));
  PetscOptionsHeadBegin(PetscOptionsObject, "KSP CGFused options");
  PetscCall(PetscOptionsEnum("-ksp_cgfused_path", "how iterations are run", "KSPCGFusedSetPath", KSPCGFusedPaths,
                             (PetscEnum)cg->path, (PetscEnum *)&cg->path, nullptr));
  PetscCall(PetscOptionsBool("-ksp_cgfused_compress", "whether copies of the matrices are compressed where nothing is lost by it",
                             "KSPCGFusedSetCompress", cg->compress, &cg->compress, nullptr));
  PetscCall(PetscOptionsBool("-ksp_cg_single_reduction", "one MPI_Allreduce() an iteration", "KSPCGUseSingleReduction", single,
                             &single, &flag));
  if (flag) PetscCall(KSPCGUseSingleReduction_CGFused(ksp, single));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- set-up ------------------------------------------- */

static PetscErrorCode KSPComputeEigenvalues_CGFused(KSP ksp, PetscInt nmax, PetscReal *r, PetscReal *c, PetscInt *neig)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  const PetscInt     n  = ksp->its;
  PetscReal         *off;
  PetscBLASInt       bn, ldz = 1, info;

  PetscFunctionBegin;
  PetscCheck(nmax >= n, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_SIZ,
             "There are %" PetscInt_FMT " eigenvalues, but room for %" PetscInt_FMT, n, nmax);
  *neig = n;
  PetscCall(PetscArrayzero(c, nmax));
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscArraycpy(r, cg->d, n));
  PetscCall(PetscMalloc1(n, &off));
  PetscCall(PetscArraycpy(off, cg->e + 1, n - 1));
  PetscCall(PetscBLASIntCast(n, &bn));
  PetscCall(PetscFPTrapPush(PETSC_FP_TRAP_OFF));
  PetscCallBLAS("LAPACKREALstev", LAPACKREALstev_("N", &bn, r, off, nullptr, &ldz, nullptr, &info)); /* sorts them, too */
  PetscCall(PetscFPTrapPop());
  PetscCheck(!info, PETSC_COMM_SELF, PETSC_ERR_LIB, "LAPACK's stev gives %" PetscBLASInt_FMT, info);
  PetscCall(PetscFree(off));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPComputeExtremeSingularValues_CGFused(KSP ksp, PetscReal *emax, PetscReal *emin)
{
  PetscReal *values, *zero;
  PetscInt   n = ksp->its, count;

  PetscFunctionBegin;
  *emax = *emin = 1;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc2(n, &values, n, &zero));
  PetscCall(KSPComputeEigenvalues_CGFused(ksp, n, values, zero, &count));
  *emin = values[0];
  *emax = values[n - 1];
  PetscCall(PetscFree2(values, zero));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetUp_CGFused(KSP ksp)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscBool    single;

  PetscFunctionBegin;
  PetscCall(SingleReduction(ksp, &single));
  PetscCall(KSPSetWorkVecs(ksp, single ? 5 : 3));
  if (ksp->calc_sings) {
    PetscCall(PetscFree2(cg->e, cg->d));
    PetscCall(PetscMalloc2(ksp->max_it + 2, &cg->e, ksp->max_it + 1, &cg->d));
    cg->lanczos                            = ksp->max_it;
    ksp->ops->computeextremesingularvalues = KSPComputeExtremeSingularValues_CGFused;
    ksp->ops->computeeigenvalues           = KSPComputeEigenvalues_CGFused;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Row i of the Lanczos matrix, from p_i = z_i + b p_{i-1} and x_{i+1} = x_i + a p_i. */
static PetscErrorCode LanczosRow(KSP ksp, PetscInt i, PetscReal a, PetscReal a_before, PetscReal b)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  if (!ksp->calc_sings) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(cg->d && i <= cg->lanczos, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "Eigenvalues must be asked for before KSPSetUp(), and the maximum number of iterations cannot grow after it");
  cg->e[i] = i ? PetscSqrtReal(PetscAbsReal(b)) / a_before : 0;
  cg->d[i] = PetscSqrtReal(PetscAbsReal(b)) * cg->e[i] + 1 / a;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- which path ----------------------------------------- */

static PetscErrorCode OnDevice(Vec x, PetscBool *device)
{
  PetscBool bound;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)x, device, VECSEQCUDA, VECMPICUDA, ""));
  PetscCall(VecBoundToCPU(x, &bound));
  if (bound || !kHasCUDA) *device = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Why the products of the iterations cannot be our own, as far as this rank sees, or empty; on one rank, the tests neither. M is
   the inverse of a factored preconditioner then, or null.
*/
static PetscErrorCode WhyGeneralHere(KSP ksp, const PCInverse **M, PetscBool *jacobi, std::string *why)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  Mat                A, local, others = nullptr;
  MatNullSpace       null_space;
  PetscMPIInt        size;
  PetscBool          single, flag, bound, on_host, b_device, x_device, none;
  PetscInt           n;
  PetscErrorCode (*query)(PC, const PCInverse **);

  PetscFunctionBegin;
  *M      = nullptr;
  *jacobi = PETSC_FALSE;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  PetscCall(SingleReduction(ksp, &single));
#define BECAUSE(condition, text)        \
  if (condition) {                      \
    *why = text;                        \
    PetscFunctionReturn(PETSC_SUCCESS); \
  }
  BECAUSE(cg->path == KSP_CGFUSED_GENERAL, "it was asked for");
  BECAUSE(!kHasCUDA, "this finepc was built without CUDA");
  BECAUSE(size > 1 && !single, "two reductions an iteration were asked for");
  BECAUSE(size == 1 && single, "a single reduction was asked for");
  BECAUSE(size == 1 && ksp->numbermonitors, "a monitor");
  BECAUSE(size == 1 && ksp->converged != KSPConvergedDefault && ksp->converged != KSPConvergedSkip,
          "a convergence test of the program");
  BECAUSE(ksp->transpose_solve, "a transposed solve");
  BECAUSE(ksp->reason == KSP_DIVERGED_PC_FAILED, "the preconditioner failed");
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &flag, MATSEQAIJCUSPARSE, MATMPIAIJCUSPARSE, ""));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &on_host, MATSEQAIJ, MATMPIAIJ, ""));
  BECAUSE(on_host, "the matrix is on the host");
  BECAUSE(!flag, std::string("the matrix type ") + ((PetscObject)A)->type_name + ", which is not aijcusparse");
  PetscCall(MatGetDiagonalBlock(A, &local));
  if (size > 1) PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &others, nullptr));
  for (Mat block : {local, others}) {
    if (!block) continue;
    PetscCall(PetscObjectTypeCompare((PetscObject)block, MATSEQAIJCUSPARSE, &flag));
    PetscCall(MatBoundToCPU(block, &bound));
    BECAUSE(!flag || bound, "the matrix is bound to the CPU, on the host");
  }
  PetscCall(MatGetNullSpace(A, &null_space));
  BECAUSE(null_space, "a null space");
  PetscCall(OnDevice(ksp->vec_rhs, &b_device));
  PetscCall(OnDevice(ksp->vec_sol, &x_device));
  PetscCall(OnDevice(ksp->work[0], &flag));
  BECAUSE(!b_device || !x_device || !flag, "the vectors are on the host");
  PetscCall(VecGetLocalSize(ksp->vec_sol, &n));
  BECAUSE(!n, "no rows");
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCNONE, &none));
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCJACOBI, jacobi));
  PetscCall(PetscObjectQueryFunction((PetscObject)ksp->pc, kInverseQuery, &query));
  BECAUSE(!none && !*jacobi && !query,
          std::string("the preconditioner ") + ((PetscObject)ksp->pc)->type_name + ", which is not none, jacobi, afsai or sfsai");
  if (query) {
    PetscCall((*query)(ksp->pc, M));
    BECAUSE(!(*M)->W1.i || !PetscMemTypeDevice((*M)->where), "the factor is on the host");
  }
#undef BECAUSE
  why->clear();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the exchange depends on: a matrix that is preallocated again gets new blocks, whatever its own state says. */
static PetscErrorCode GhostPattern(Mat A, CopiedFrom *now)
{
  Mat B;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &B, nullptr));
  PetscCall(PetscObjectGetId((PetscObject)B, &now->id));
  PetscCall(MatGetNonzeroState(B, &now->state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same for all ranks, which take the same path, and whether the exchange can stay on all of them. */
static PetscErrorCode WhyGeneral(KSP ksp, const PCInverse **M, PetscBool *jacobi, std::string *why)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  int          all[2]; /* can take it; have the exchange */

  PetscFunctionBegin;
  PetscCall(WhyGeneralHere(ksp, M, jacobi, why));
  if (!cg->several) PetscFunctionReturn(PETSC_SUCCESS);
  all[0] = why->empty();
  all[1] = 0;
  if (all[0]) {
    CopiedFrom now;
    Mat        A;

    PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
    PetscCall(GhostPattern(A, &now));
    all[1] = cg->exchange && now.id == cg->pattern.id && now.state == cg->pattern.state;
  }
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, 2, MPI_INT, MPI_LAND, PetscObjectComm((PetscObject)ksp)));
  if (!all[0] && why->empty()) *why = "another rank, which cannot multiply so";
  cg->same_exchange = (PetscBool)all[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode HasChanged(PetscObject object, const CopiedFrom &from, CopiedFrom *now, PetscBool *changed)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectGetId(object, &now->id));
  PetscCall(PetscObjectStateGet(object, &now->state));
  if (now->id != from.id || now->state != from.state) *changed = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Exchange and ghosts are those of A's pattern; collective. */
static PetscErrorCode PrepareExchange(KSP ksp, Mat A, PetscInt count, const PetscInt ghosts[])
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscLayout  layout;

  PetscFunctionBegin;
  if (cg->same_exchange) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscSFDestroy(&cg->exchange));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&cg->ghosts));
  PetscCall(ArrayCreate(count * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, (void **)&cg->ghosts));
  PetscCall(MatGetLayouts(A, nullptr, &layout));
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &cg->exchange));
  PetscCall(PetscSFSetGraphLayout(cg->exchange, layout, count, nullptr, PETSC_COPY_VALUES, ghosts));
  PetscCall(PetscSFSetUp(cg->exchange));
  PetscCall(GhostPattern(A, &cg->pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The device's copies of A and of M^{-1} are those of now. */
static PetscErrorCode PrepareDevice(KSP ksp, const PCInverse *M, PetscBool jacobi)
{
  KSP_CGFused     *cg = (KSP_CGFused *)ksp->data;
  CGFusedOperators op{};
  CGFusedChanges   changes{};
  CSRMat           csr, ghost_csr;
  Mat              A, block;
  CopiedFrom       A_now, block_now, M_now;
  PetscMemType     where;

  PetscFunctionBegin;
  if (!cg->work) PetscCall(CGFusedCreate_CUDA(&cg->work));
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetDiagonalBlock(A, &block));
  PetscCall(HasChanged((PetscObject)A, cg->A, &A_now, &changes.A));
  PetscCall(HasChanged((PetscObject)block, cg->block, &block_now, &changes.A));
  if (M) PetscCall(HasChanged((PetscObject)ksp->pc, cg->M, &M_now, &changes.M));
  cg->A = cg->block = cg->M = CopiedFrom{}; /* until the copies are made */
  if (jacobi) {                             /* as the preconditioner applies it, whatever its options */
    if (!cg->diagonal) PetscCall(VecDuplicate(ksp->work[0], &cg->diagonal));
    PetscCall(VecSet(ksp->work[1], 1));
    PetscCall(PCApply(ksp->pc, ksp->work[1], cg->diagonal));
    PetscCall(VecGetArrayReadAndMemType(cg->diagonal, &op.d, &where));
  }
  PetscCall(PetscLogEventBegin(FinePC_CGFusedCopy, ksp, 0, 0, 0));
  PetscCall(MatGetCSR(A, &csr));
  op.A = &csr.A;
  if (cg->several) {
    const PetscInt *ghosts;
    PetscInt        count;

    PetscCall(MatGetGhostCSR(A, &ghost_csr, &count, &ghosts));
    PetscCall(PrepareExchange(ksp, A, count, ghosts));
    op.B = &ghost_csr.A;
  }
  if (M) {
    op.W1 = &M->W1;
    op.W2 = &M->W2;
    op.d  = M->d;
  }
  PetscCall(CGFusedPrepare_CUDA(cg->work, &op, &changes, cg->compress, cg->path));
  cg->A     = A_now;
  cg->block = block_now;
  cg->M     = M_now;
  cg->flops = 2. * csr.A.nnz + (op.B ? 2. * op.B->nnz : 0) + (op.B ? 16. : 12.) * csr.A.n +
              (M ? 2. * M->W1.nnz + 2. * M->W2.nnz + 3. * csr.A.n : 0);
  if (op.B) PetscCall(MatRestoreCSR(&ghost_csr)); /* the work keeps its pointers, as the matrix its memory */
  PetscCall(MatRestoreCSR(&csr));
  if (jacobi) PetscCall(VecRestoreArrayReadAndMemType(cg->diagonal, &op.d)); /* as the vector */
  PetscCall(PetscLogEventEnd(FinePC_CGFusedCopy, ksp, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- solves ------------------------------------------- */

static CGNorm NormOf(KSP ksp)
{
  switch (ksp->normtype) {
  case KSP_NORM_PRECONDITIONED: return CG_NORM_PRECONDITIONED;
  case KSP_NORM_UNPRECONDITIONED: return CG_NORM_UNPRECONDITIONED;
  case KSP_NORM_NATURAL: return CG_NORM_NATURAL;
  default: return CG_NORM_NONE;
  }
}

static PetscReal NormFrom(KSP ksp, PetscReal nn, PetscReal beta)
{
  if (ksp->normtype == KSP_NORM_NONE) return 0;
  return PetscSqrtReal(ksp->normtype == KSP_NORM_NATURAL ? PetscAbsReal(beta) : nn);
}

/* What follows a norm: history, monitors, test. */
static PetscErrorCode TestNorm(KSP ksp, PetscInt its, PetscReal norm)
{
  PetscFunctionBegin;
  ksp->rnorm = norm;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPMonitor(ksp, its, norm));
  PetscCall((*ksp->converged)(ksp, its, norm, &ksp->reason, ksp->cnvP));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode IndefinitePC(KSP ksp, PetscReal beta)
{
  PetscFunctionBegin;
  PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
             "Diverged due to indefinite preconditioner, beta %g", (double)beta);
  ksp->reason = KSP_DIVERGED_INDEFINITE_PC;
  PetscCall(PetscInfo(ksp, "diverging due to indefinite preconditioner\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode IndefiniteMat(KSP ksp, PetscReal delta)
{
  PetscFunctionBegin;
  if (ksp->converged_neg_curve) {
    PetscCall(PetscInfo(ksp, "converged due to negative curvature: %g\n", (double)delta));
    ksp->reason = KSP_CONVERGED_NEG_CURVE;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
             "Diverged due to indefinite matrix, delta %g", (double)delta);
  ksp->reason = KSP_DIVERGED_INDEFINITE_MAT;
  PetscCall(PetscInfo(ksp, "diverging due to indefinite matrix\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ConvergedByBeta(KSP ksp)
{
  PetscFunctionBegin;
  ksp->reason = KSP_CONVERGED_ATOL;
  PetscCall(PetscInfo(ksp, "converged due to beta = 0\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The arrays of the solve, for as long as the device works with them. */
static PetscErrorCode GetVectors(KSP ksp, CGFusedVectors *v)
{
  PetscMemType where;

  PetscFunctionBegin;
  PetscCall(VecGetArrayReadAndMemType(ksp->vec_rhs, &v->b, &where));
  PetscCall(VecGetArrayAndMemType(ksp->vec_sol, &v->x, &where));
  PetscCall(VecGetArrayWriteAndMemType(ksp->work[0], &v->r, &where));
  PetscCall(VecGetArrayWriteAndMemType(ksp->work[1], &v->z, &where));
  PetscCall(VecGetArrayWriteAndMemType(ksp->work[2], &v->p, &where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreVectors(KSP ksp, CGFusedVectors *v)
{
  PetscFunctionBegin;
  PetscCall(VecRestoreArrayReadAndMemType(ksp->vec_rhs, &v->b));
  PetscCall(VecRestoreArrayAndMemType(ksp->vec_sol, &v->x));
  PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[0], &v->r));
  PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[1], &v->z));
  PetscCall(VecRestoreArrayWriteAndMemType(ksp->work[2], &v->p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Iterations that the device decides about; the host follows with history and Lanczos matrix. */
static PetscErrorCode IterateOnDevice(KSP ksp, PetscReal beta, CGStop *stop, PetscInt *its, PetscReal *value)
{
  KSP_CGFused    *cg           = (KSP_CGFused *)ksp->data;
  const PetscBool test_default = (PetscBool)(ksp->converged == KSPConvergedDefault);
  const PetscBool all_converge = (PetscBool)(!test_default || ((KSPConvergedDefaultCtx *)ksp->cnvP)->convmaxits);
  const PetscReal never        = std::numeric_limits<PetscReal>::infinity();
  const CGTest    test{NormOf(ksp),
                    test_default ? ksp->ttol : -1,
                    test_default ? ksp->divtol * ksp->rnorm0 : never,
                    ksp->min_it,
                    ksp->chknorm,
                    all_converge ? ksp->max_it : PETSC_INT_MAX,
                    ksp->max_it};
  const CGRecord *records;
  PetscInt        count, done = 0;
  PetscReal       a_before = 1;

  PetscFunctionBegin;
  PetscCall(CGFusedBegin_CUDA(cg->work, beta, &test));
  do {
    PetscCall(CGFusedAdvance_CUDA(cg->work, &count, &records, stop, its, value));
    for (PetscInt k = 0; k < count; k++, done++) {
      const PetscBool not_finite =
        (PetscBool)(k == count - 1 && done + 1 == *its &&
                    (*stop == CG_NORM_NOT_FINITE || (*stop == CG_BETA_NOT_FINITE && test.norm == CG_NORM_NATURAL)));

      PetscCall(LanczosRow(ksp, done, records[k].a, a_before, records[k].b));
      a_before = records[k].a;
      if (not_finite) continue; /* KSPCG returns before it logs such a norm */
      ksp->rnorm = records[k].norm;
      PetscCall(KSPLogResidualHistory(ksp, records[k].norm));
    }
  } while (*stop == CG_RUNNING);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SolveOnDevice(KSP ksp)
{
  KSP_CGFused   *cg = (KSP_CGFused *)ksp->data;
  CGFusedVectors v;
  CGSums         sums;
  CGStop         stop;
  PetscInt       its;
  PetscReal      norm, value;

  PetscFunctionBegin;
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(GetVectors(ksp, &v));
  PetscCall(CGFusedStart_CUDA(cg->work, &v, (PetscBool)!ksp->guess_zero, NormOf(ksp), &sums));
  PetscCall(RestoreVectors(ksp, &v));
  PetscCall(PetscLogGpuTimeEnd());
  if (ksp->normtype == KSP_NORM_NATURAL) KSPCheckDot(ksp, sums.rz);
  norm = NormFrom(ksp, sums.nn, sums.rz);
  KSPCheckNorm(ksp, norm);
  PetscCall(TestNorm(ksp, 0, norm));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  KSPCheckDot(ksp, sums.rz);
  if (sums.rz == 0) {
    ksp->its = 1;
    PetscCall(ConvergedByBeta(ksp));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(GetVectors(ksp, &v));
  PetscCall(IterateOnDevice(ksp, sums.rz, &stop, &its, &value));
  PetscCall(RestoreVectors(ksp, &v));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(PetscLogGpuFlops(its * cg->flops));
  ksp->its = its;
  switch (stop) {
  case CG_TEST:
    PetscCall((*ksp->converged)(ksp, its, value, &ksp->reason, ksp->cnvP));
    PetscCheck(ksp->reason, PetscObjectComm((PetscObject)ksp), PETSC_ERR_PLIB,
               "The device has stopped in iteration %" PetscInt_FMT " with norm %g, where the test would go on", its,
               (double)value);
    break;
  case CG_NORM_NOT_FINITE: KSPCheckNorm(ksp, value); break;
  case CG_BETA_NOT_FINITE:
  case CG_DELTA_NOT_FINITE: KSPCheckDot(ksp, value); break;
  case CG_BETA_ZERO: PetscCall(ConvergedByBeta(ksp)); break;
  case CG_INDEFINITE_PC: PetscCall(IndefinitePC(ksp, value)); break;
  case CG_INDEFINITE_MAT: PetscCall(IndefiniteMat(ksp, value)); break;
  default: ksp->reason = KSP_DIVERGED_ITS;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sums of z.r, norm^2 and, where s is given, z.s over all ranks. */
static PetscErrorCode Dots(KSP ksp, PetscBool device, Vec z, Vec r, Vec s, PetscReal sums[3])
{
  const PetscScalar *z_array, *r_array, *s_array = nullptr;
  PetscReal          dots[4];
  PetscMemType       where;
  PetscInt           n;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(z, &n));
  if (device) {
    PetscCall(VecGetArrayReadAndMemType(z, &z_array, &where));
    PetscCall(VecGetArrayReadAndMemType(r, &r_array, &where));
    if (s) PetscCall(VecGetArrayReadAndMemType(s, &s_array, &where));
    PetscCall(PetscLogGpuTimeBegin());
    PetscCall(CGDots_CUDA(((KSP_CGFused *)ksp->data)->work, n, z_array, r_array, s_array, dots));
    PetscCall(PetscLogGpuTimeEnd());
    PetscCall(PetscLogGpuFlops((s ? 8. : 6.) * n));
    if (s) PetscCall(VecRestoreArrayReadAndMemType(s, &s_array));
    PetscCall(VecRestoreArrayReadAndMemType(r, &r_array));
    PetscCall(VecRestoreArrayReadAndMemType(z, &z_array));
  } else {
    PetscCall(VecGetArrayRead(z, &z_array));
    PetscCall(VecGetArrayRead(r, &r_array));
    if (s) PetscCall(VecGetArrayRead(s, &s_array));
    PetscCall(CGDots_Host(n, z_array, r_array, s_array, dots));
    PetscCall(PetscLogFlops((s ? 8. : 6.) * n));
    if (s) PetscCall(VecRestoreArrayRead(s, &s_array));
    PetscCall(VecRestoreArrayRead(r, &r_array));
    PetscCall(VecRestoreArrayRead(z, &z_array));
  }
  sums[0] = dots[0];
  sums[1] = ksp->normtype == KSP_NORM_PRECONDITIONED ? dots[1] : dots[2];
  sums[2] = dots[3];
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, s ? 3 : 2, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)ksp)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x += a p, r -= a w */
static PetscErrorCode Step(PetscBool device, PetscScalar a, Vec p, Vec w, Vec x, Vec r)
{
  const PetscScalar *p_array, *w_array;
  PetscScalar       *x_array, *r_array;
  PetscMemType       where;
  PetscInt           n;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(x, &n));
  if (device) {
    PetscCall(VecGetArrayReadAndMemType(p, &p_array, &where));
    PetscCall(VecGetArrayReadAndMemType(w, &w_array, &where));
    PetscCall(VecGetArrayAndMemType(x, &x_array, &where));
    PetscCall(VecGetArrayAndMemType(r, &r_array, &where));
    PetscCall(PetscLogGpuTimeBegin());
    PetscCall(CGStep_CUDA(n, a, p_array, w_array, x_array, r_array));
    PetscCall(PetscLogGpuTimeEnd());
    PetscCall(PetscLogGpuFlops(4. * n));
    PetscCall(VecRestoreArrayAndMemType(r, &r_array));
    PetscCall(VecRestoreArrayAndMemType(x, &x_array));
    PetscCall(VecRestoreArrayReadAndMemType(w, &w_array));
    PetscCall(VecRestoreArrayReadAndMemType(p, &p_array));
  } else {
    PetscCall(VecGetArrayRead(p, &p_array));
    PetscCall(VecGetArrayRead(w, &w_array));
    PetscCall(VecGetArray(x, &x_array));
    PetscCall(VecGetArray(r, &r_array));
    PetscCall(CGStep_Host(n, a, p_array, w_array, x_array, r_array));
    PetscCall(PetscLogFlops(4. * n));
    PetscCall(VecRestoreArray(r, &r_array));
    PetscCall(VecRestoreArray(x, &x_array));
    PetscCall(VecRestoreArrayRead(w, &w_array));
    PetscCall(VecRestoreArrayRead(p, &p_array));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* p = z + b p, and w = s + b w where s is given */
static PetscErrorCode Direction(PetscBool device, PetscScalar b, Vec z, Vec p, Vec s, Vec w)
{
  const PetscScalar *z_array, *s_array = nullptr;
  PetscScalar       *p_array, *w_array = nullptr;
  PetscMemType       where;
  PetscInt           n;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(z, &n));
  if (device) {
    PetscCall(VecGetArrayReadAndMemType(z, &z_array, &where));
    PetscCall(VecGetArrayAndMemType(p, &p_array, &where));
    if (s) PetscCall(VecGetArrayReadAndMemType(s, &s_array, &where));
    if (s) PetscCall(VecGetArrayAndMemType(w, &w_array, &where));
    PetscCall(PetscLogGpuTimeBegin());
    PetscCall(CGDirection_CUDA(n, b, z_array, p_array, s_array, w_array));
    PetscCall(PetscLogGpuTimeEnd());
    PetscCall(PetscLogGpuFlops((s ? 4. : 2.) * n));
    if (s) PetscCall(VecRestoreArrayAndMemType(w, &w_array));
    if (s) PetscCall(VecRestoreArrayReadAndMemType(s, &s_array));
    PetscCall(VecRestoreArrayAndMemType(p, &p_array));
    PetscCall(VecRestoreArrayReadAndMemType(z, &z_array));
  } else {
    PetscCall(VecGetArrayRead(z, &z_array));
    PetscCall(VecGetArray(p, &p_array));
    if (s) PetscCall(VecGetArrayRead(s, &s_array));
    if (s) PetscCall(VecGetArray(w, &w_array));
    PetscCall(CGDirection_Host(n, b, z_array, p_array, s_array, w_array));
    PetscCall(PetscLogFlops((s ? 4. : 2.) * n));
    if (s) PetscCall(VecRestoreArray(w, &w_array));
    if (s) PetscCall(VecRestoreArrayRead(s, &s_array));
    PetscCall(VecRestoreArray(p, &p_array));
    PetscCall(VecRestoreArrayRead(z, &z_array));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The step with a and the direction with b, z = M r, s = A z, and Dots() of them, by own products: what others need travels
   meanwhile.
*/
static PetscErrorCode AdvanceRank(KSP ksp, PetscScalar a, PetscScalar b, PetscReal sums[3])
{
  const KSP_CGFused *cg    = (const KSP_CGFused *)ksp->data;
  const Vec          vec[] = {ksp->vec_sol, ksp->work[0], ksp->work[1], ksp->work[2], ksp->work[3], ksp->work[4]};
  CGRankVectors      v;
  PetscScalar      **array[] = {&v.x, &v.r, &v.z, &v.p, &v.s, &v.w};
  PetscMemType       where;

  PetscFunctionBegin;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecGetArrayAndMemType(vec[k], array[k], &where));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGRankUpdate_CUDA(cg->work, &v, a, b));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(CGRankFence_CUDA(cg->work));
  PetscCall(
    PetscSFBcastWithMemTypeBegin(cg->exchange, MPIU_SCALAR, PETSC_MEMTYPE_CUDA, v.z, PETSC_MEMTYPE_CUDA, cg->ghosts, MPI_REPLACE));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGRankProduct_CUDA(cg->work, &v));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(PetscSFBcastEnd(cg->exchange, MPIU_SCALAR, v.z, cg->ghosts, MPI_REPLACE));
  PetscCall(CGRankFence_CUDA(cg->work));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGRankGhosts_CUDA(cg->work, &v, cg->ghosts, sums));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(PetscLogGpuFlops(cg->flops));
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecRestoreArrayAndMemType(vec[k], array[k]));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, 3, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)ksp)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginRank(KSP ksp)
{
  const KSP_CGFused *cg    = (const KSP_CGFused *)ksp->data;
  const Vec          vec[] = {ksp->work[1], ksp->work[2], ksp->work[3], ksp->work[4]};
  CGRankVectors      v{};
  PetscScalar      **array[] = {&v.z, &v.p, &v.s, &v.w};
  PetscMemType       where;

  PetscFunctionBegin;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecGetArrayWriteAndMemType(vec[k], array[k], &where));
  PetscCall(CGRankBegin_CUDA(cg->work, &v, NormOf(ksp)));
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecRestoreArrayWriteAndMemType(vec[k], array[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Iterations that the host decides about. z = M r is made before the norm is tested, so that norm and beta are one reduction. With
   a single reduction, s = A z goes with them, and w = A p and delta = p.w come from recurrences, as in KSPCG's variant of that
   name. The products are those of any matrix and preconditioner, or, `own`, those of AdvanceRank(), which makes the step and the
   direction, too.
*/
static PetscErrorCode SolveOnHost(KSP ksp, PetscBool own)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  const Vec    X = ksp->vec_sol, B = ksp->vec_rhs, R = ksp->work[0], Z = ksp->work[1], P = ksp->work[2];
  PetscBool    single, device, x_device;
  PetscReal    sums[3], norm, beta, betaold = 1, delta = 0, deltaold, a = 1, a_before = 1, b = 0;
  Mat          A;

  PetscFunctionBegin;
  PetscCall(SingleReduction(ksp, &single));
  const Vec S = single ? ksp->work[3] : nullptr, W = single ? ksp->work[4] : Z;
  PetscCall(OnDevice(R, &device));
  PetscCall(OnDevice(X, &x_device));
  if (!x_device) device = PETSC_FALSE;
  if (device && !cg->work) PetscCall(CGFusedCreate_CUDA(&cg->work));
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));

  if (ksp->guess_zero) PetscCall(VecCopy(B, R));
  else {
    PetscCall(KSP_MatMult(ksp, A, X, R));
    PetscCall(VecAYPX(R, -1, B));
  }
  PetscCall(VecFlag(R, (PetscInt)(ksp->reason == KSP_DIVERGED_PC_FAILED)));
  if (own) PetscCall(BeginRank(ksp));
  for (PetscInt i = 0;; i++) {
    if (own) PetscCall(AdvanceRank(ksp, i ? a : 0, b, sums));
    else {
      PetscCall(KSP_PCApply(ksp, R, Z));
      if (single) PetscCall(KSP_MatMult(ksp, A, Z, S));
      PetscCall(Dots(ksp, device, Z, R, S, sums));
    }
    beta = sums[0];
    if (ksp->normtype == KSP_NORM_NATURAL) KSPCheckDot(ksp, beta);
    norm = i && ksp->normtype != KSP_NORM_NATURAL && ksp->chknorm >= i + 1 ? 0 : NormFrom(ksp, sums[1], beta);
    KSPCheckNorm(ksp, norm);
    PetscCall(TestNorm(ksp, i, norm));
    if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
    KSPCheckDot(ksp, beta);
    if (i && i >= ksp->max_it) {
      ksp->reason = KSP_DIVERGED_ITS;
      PetscFunctionReturn(PETSC_SUCCESS);
    }

    ksp->its = i + 1;
    if (beta == 0 || (i && beta * betaold < 0)) {
      if (beta == 0) PetscCall(ConvergedByBeta(ksp));
      else PetscCall(IndefinitePC(ksp, beta));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (i) {
      b = beta / betaold;
      if (!own) PetscCall(Direction(device, b, Z, P, S, W));
    } else if (!own) {
      PetscCall(VecCopy(Z, P));
      if (single) PetscCall(VecCopy(S, W));
    }
    deltaold = delta;
    if (single) delta = i ? sums[2] - beta * beta * deltaold / (betaold * betaold) : sums[2];
    else {
      PetscCall(KSP_MatMult(ksp, A, P, W));
      PetscCall(Dots(ksp, device, P, W, nullptr, sums));
      delta = sums[0];
    }
    KSPCheckDot(ksp, delta);
    betaold = beta;
    if (delta == 0 || (i && PetscSign(delta) * PetscSign(deltaold) < 0)) {
      PetscCall(IndefiniteMat(ksp, delta));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    a = beta / delta;
    PetscCall(LanczosRow(ksp, i, a, a_before, b));
    a_before = a;
    if (!own) PetscCall(Step(device, a, P, W, X, R));
  }
}

static PetscErrorCode KSPSolve_CGFused(KSP ksp)
{
  KSP_CGFused     *cg = (KSP_CGFused *)ksp->data;
  const PCInverse *M;
  PetscMPIInt      size;
  PetscBool        jacobi;

  PetscFunctionBegin;
  ksp->its   = 0;
  cg->solved = PETSC_TRUE;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  cg->several = (PetscBool)(size > 1);
  PetscCall(WhyGeneral(ksp, &M, &jacobi, &cg->why));
  if (cg->why.empty()) PetscCall(PrepareDevice(ksp, M, jacobi));
  if (cg->why.empty() && !cg->several) PetscCall(SolveOnDevice(ksp));
  else PetscCall(SolveOnHost(ksp, (PetscBool)cg->why.empty()));
  /* without any iterations to make KSPCG makes one, and says so whatever came of it */
  if (!ksp->max_it && ksp->its && ksp->reason != KSP_DIVERGED_NANORINF && ksp->reason != KSP_DIVERGED_PC_FAILED)
    ksp->reason = KSP_DIVERGED_ITS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ view, reset, destroy ------------------------------------ */

static PetscErrorCode KSPView_CGFused(KSP ksp, PetscViewer viewer)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  PetscBool          is_ascii, single;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(SingleReduction(ksp, &single));
  if (single) PetscCall(PetscViewerASCIIPrintf(viewer, "  using single-reduction variant\n"));
  if (!cg->solved) PetscCall(PetscViewerASCIIPrintf(viewer, "  path: %s, before the first solve\n", KSPCGFusedPaths[cg->path]));
  else if (!cg->why.empty()) PetscCall(PetscViewerASCIIPrintf(viewer, "  path: general: %s\n", cg->why.c_str()));
  else {
    CGFusedStatus status;

    PetscCall(CGFusedGetStatus_CUDA(cg->work, &status));
    if (cg->several)
      PetscCall(
        PetscViewerASCIIPrintf(viewer,
                               "  path: ranks: own products, sums and tests by the host; the copies are the first rank's\n"));
    else
      PetscCall(PetscViewerASCIIPrintf(viewer, "  path: %s%s\n", status.resident ? "resident" : "graph",
                                       cg->path == KSP_CGFUSED_RESIDENT && !status.resident
                                         ? ": the system is too large, or its rows too uneven, for the resident kernel"
                                         : ""));
    PetscCall(PetscViewerASCIIPrintf(viewer, "  copy of A: %s precision, %d-bit columns, %" PetscInt_FMT " lanes a row\n",
                                     FinePCPrecisions[status.single[0] ? FINEPC_SINGLE : FINEPC_DOUBLE], status.narrow[0] ? 16 : 32,
                                     status.lanes[0]));
    if (status.lanes[1])
      PetscCall(PetscViewerASCIIPrintf(viewer,
                                       "  copies of the factors: %s precision, %d-bit columns, %" PetscInt_FMT " lanes a row\n",
                                       FinePCPrecisions[status.single[1] ? FINEPC_SINGLE : FINEPC_DOUBLE],
                                       status.narrow[1] ? 16 : 32, status.lanes[1]));
    PetscCall(PetscViewerASCIIPrintf(viewer, "  bytes of the copies %g, of all memory for them and the kernels %g\n",
                                     (double)status.copied_bytes, (double)status.bytes));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPReset_CGFused(KSP ksp)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(CGFusedDestroy_CUDA(&cg->work));
  PetscCall(VecDestroy(&cg->diagonal));
  PetscCall(PetscSFDestroy(&cg->exchange));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&cg->ghosts));
  PetscCall(PetscFree2(cg->e, cg->d));
  cg->A = cg->block = cg->M = cg->pattern = CopiedFrom{};
  cg->lanczos                             = 0;
  cg->why.clear();
  cg->solved = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ComposeMethods(KSP ksp, PetscBool compose)
{
  PetscObject object = (PetscObject)ksp;

  PetscFunctionBegin;
  PetscCall(PetscObjectComposeFunction(object, "KSPCGFusedSetPath_C", compose ? KSPCGFusedSetPath_CGFused : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "KSPCGFusedGetPath_C", compose ? KSPCGFusedGetPath_CGFused : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "KSPCGFusedSetCompress_C", compose ? KSPCGFusedSetCompress_CGFused : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "KSPCGFusedGetCompress_C", compose ? KSPCGFusedGetCompress_CGFused : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "KSPCGUseSingleReduction_C", compose ? KSPCGUseSingleReduction_CGFused : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "KSPCGSetRadius_C", compose ? KSPCGSetRadius_CGFused : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "KSPCGSetObjectiveTarget_C", compose ? KSPCGSetObjectiveTarget_CGFused : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPDestroy_CGFused(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(KSPReset_CGFused(ksp));
  PetscCall(ComposeMethods(ksp, PETSC_FALSE));
  delete (KSP_CGFused *)ksp->data;
  ksp->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPBuildResidual_CGFused(KSP ksp, Vec, Vec v, Vec *V)
{
  PetscFunctionBegin;
  PetscCall(VecCopy(ksp->work[0], v));
  *V = v;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- public ------------------------------------------- */

/*@
  KSPCGFusedSetPath - Sets how `KSPCGFUSED` runs its iterations

  Logically Collective

  Input Parameters:
+ ksp - the Krylov space context
- path - `KSP_CGFUSED_AUTO` (default), `KSP_CGFUSED_GENERAL`, `KSP_CGFUSED_GRAPH` or `KSP_CGFUSED_RESIDENT`, see `KSPCGFusedPath`

  Options Database Key:
. -ksp_cgfused_path <path> - how iterations are run

  Level: intermediate

  Note:
  Where the path that was asked for cannot run, another one does, and the view says which and why. `KSP_CGFUSED_AUTO` chooses by
  size. On several ranks `KSP_CGFUSED_GRAPH` and `KSP_CGFUSED_RESIDENT` are `KSP_CGFUSED_AUTO`. All of them give the iterates of
  `KSPCG`, to rounding.

.seealso: `KSPCGFUSED`, `KSPCGFusedPath`, `KSPCGFusedGetPath()`
@*/
PetscErrorCode KSPCGFusedSetPath(KSP ksp, KSPCGFusedPath path)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(ksp, KSP_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(ksp, path, 2);
  PetscTryMethod(ksp, "KSPCGFusedSetPath_C", (KSP, KSPCGFusedPath), (ksp, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  KSPCGFusedGetPath - Gets how `KSPCGFUSED` was asked to run its iterations

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. path - see `KSPCGFusedSetPath()`

  Level: intermediate

.seealso: `KSPCGFUSED`, `KSPCGFusedSetPath()`
@*/
PetscErrorCode KSPCGFusedGetPath(KSP ksp, KSPCGFusedPath *path)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(ksp, KSP_CLASSID, 1);
  PetscAssertPointer(path, 2);
  PetscUseMethod(ksp, "KSPCGFusedGetPath_C", (KSP, KSPCGFusedPath *), (ksp, path));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  KSPCGFusedSetCompress - Sets whether `KSPCGFUSED` keeps its copies of the matrices smaller than these where nothing is lost by it

  Logically Collective

  Input Parameters:
+ ksp - the Krylov space context
- compress - `PETSC_TRUE` (default) or `PETSC_FALSE`

  Options Database Key:
. -ksp_cgfused_compress <compress> - whether copies of the matrices are compressed where nothing is lost by it

  Level: advanced

  Note:
  Values are kept in single precision where all of them are numbers of that precision, and columns as 16-bit distances from the
  first column of a step, the entries that the threads of a warp take together, where these suffice. The iterates are the same to
  the last bit. The resident kernel does not compress.

.seealso: `KSPCGFUSED`, `KSPCGFusedGetCompress()`
@*/
PetscErrorCode KSPCGFusedSetCompress(KSP ksp, PetscBool compress)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(ksp, KSP_CLASSID, 1);
  PetscValidLogicalCollectiveBool(ksp, compress, 2);
  PetscTryMethod(ksp, "KSPCGFusedSetCompress_C", (KSP, PetscBool), (ksp, compress));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  KSPCGFusedGetCompress - Gets whether `KSPCGFUSED` compresses its copies of the matrices

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. compress - see `KSPCGFusedSetCompress()`

  Level: advanced

.seealso: `KSPCGFUSED`, `KSPCGFusedSetCompress()`
@*/
PetscErrorCode KSPCGFusedGetCompress(KSP ksp, PetscBool *compress)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(ksp, KSP_CLASSID, 1);
  PetscAssertPointer(compress, 2);
  PetscUseMethod(ksp, "KSPCGFusedGetCompress_C", (KSP, PetscBool *), (ksp, compress));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  KSPCGFUSED - "cgfused": the preconditioned conjugate gradient method of `KSPCG`, at the bandwidth of the GPU

  Options Database Keys:
+ -ksp_cgfused_path <auto> - how iterations are run: auto, general, graph or resident
. -ksp_cgfused_compress <true> - compress the copies of the matrices where nothing is lost by it
- -ksp_cg_single_reduction - one reduction an iteration, see `KSPCGUseSingleReduction()`; the default with several ranks

  Level: beginner

  Notes:
  Iterates, iteration counts, reasons, norms, tests, monitors, history and eigenvalue estimates are those of `KSPCG`, to rounding,
  on
  several ranks those of `KSPCG` with `-ksp_cg_single_reduction`, whose recurrences round otherwise. What differs is how an
  iteration runs. On one rank, with a `MATAIJCUSPARSE`, vectors on the GPU, and `PCAFSAI`, `PCSFSAI`, `PCJACOBI`
  or `PCNONE`, the scalars and the convergence test stay on the device, sums are made in the kernels that have their operands, and
  the host learns of the end late; no update is made after it. Small systems run in one kernel that stays. A private copy of the
  matrix, and of the factors, is kept for it; the view gives its size.

  With several ranks an iteration has one reduction, by recurrences as those of `KSPCGUseSingleReduction()`, and the host makes it
  and the
  test. For the same matrices and preconditioners the products are own ones (path `ranks` in the view), the exchange goes on during
  the product with the rank's own block. The sums pass through the host's memory even where MPI takes device buffers: three numbers
  are
  there sooner so. With `-ksp_cg_single_reduction 0` there are two reductions, that of the norm goes with that of z^T r.

  A null space, a transposed solve, any other matrix or preconditioner, a rank without rows, two reductions on several ranks, and on
  one rank a single one, a monitor, and a
  convergence test other than `KSPConvergedDefault()` and `KSPConvergedSkip()` take the general path: `MatMult()` and `PCApply()`
  with
  fused vector operations, and a test that the host makes in every iteration. The view says which path ran and why.

  Sums are made in an order that depends on sizes and the GPU alone: the same solve gives the same bits, on several ranks as far as
  MPI's sums do so, on the general path as far as `MatMult()` and `PCApply()` do.

  Sums of squares are plain: a norm whose square overflows is not finite, and one whose square underflows is zero.

  There is no trust region: `KSPCGSetRadius()` and `KSPCGSetObjectiveTarget()` are errors.

  Reference:
  M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, J. Res. NBS 49 (1952) 409-436

.seealso: `KSPCG`, `PCAFSAI`, `PCSFSAI`, `PCJACOBI`, `KSPCGFusedSetPath()`, `KSPCGFusedSetCompress()`
M*/
PETSC_EXTERN PetscErrorCode KSPCreate_CGFused(KSP ksp)
{
  PetscFunctionBegin;
  ksp->data = new KSP_CGFused();
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_PRECONDITIONED, PC_LEFT, 3));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_UNPRECONDITIONED, PC_LEFT, 2));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NATURAL, PC_LEFT, 2));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NONE, PC_LEFT, 1));
  ksp->ops->setup          = KSPSetUp_CGFused;
  ksp->ops->solve          = KSPSolve_CGFused;
  ksp->ops->reset          = KSPReset_CGFused;
  ksp->ops->destroy        = KSPDestroy_CGFused;
  ksp->ops->view           = KSPView_CGFused;
  ksp->ops->setfromoptions = KSPSetFromOptions_CGFused;
  ksp->ops->buildsolution  = KSPBuildSolutionDefault;
  ksp->ops->buildresidual  = KSPBuildResidual_CGFused;
  PetscCall(ComposeMethods(ksp, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
