/* Why the GPU does not decide about a solve, and what its copies were made of. */
#include <limits>

#include <petsc/private/pcimpl.h>

#include "fusedimpl.h"
#include "finepcimpl.h"
#include "pc/acting.h"
#include "pc/local.h"
#include "ranks/agree.h"
#include "sparse/bsr_mat.h"
#include "sparse/offload.h"

PetscErrorCode FusedHasChanged(PetscObject object, const CopiedFrom &from, CopiedFrom *now, PetscBool *changed)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectGetId(object, &now->id));
  PetscCall(PetscObjectStateGet(object, &now->state));
  if (now->id != from.id || now->state != from.state) *changed = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedIsOfType(PetscObject object, const char text[], FusedReason *why)
{
  PetscFunctionBegin;
  why->text = text;
  PetscCall(PetscStrncpy(why->type, object->type_name, sizeof(why->type)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedIsSent(KSP ksp, PetscBool *sent)
{
  PetscBool rows;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatIsOffloaded(A, sent));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &rows, MATSEQAIJ, MATMPIAIJ, MATSEQBAIJ, MATSEQSBAIJ, ""));
  if (!rows || !kHasCUDA) *sent = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedGetRows(Mat A, FusedRows *rows, CSRMat *csr)
{
  const CSR *const W       = &rows->points.copy;
  PetscBool        changed = PETSC_FALSE, blocks, same = PETSC_FALSE;
  CopiedFrom       A_now, block_now;
  Mat              block;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &blocks, MATSEQBAIJ, MATSEQSBAIJ, ""));
  PetscCall(MatGetDiagonalBlock(A, &block));
  PetscCall(FusedHasChanged((PetscObject)A, rows->A, &A_now, &changed));
  PetscCall(FusedHasChanged((PetscObject)block, rows->block, &block_now, &changed));
  if (!changed && W->i) { /* the copy is that of these rows */
    *csr = CSRMat{CSRView{W->rows, W->nnz, W->i, W->j, (const PetscScalar *)W->a, W->where}, nullptr, false};
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  rows->A = rows->block = CopiedFrom{}; /* until the copy is made */
  if (blocks) PetscCall(MatFollowPattern(A, &rows->pattern, &same));
  PetscCall(MatGetPoints(A, (PetscBool)(same && W->i), &rows->points, csr));
  rows->A     = A_now;
  rows->block = block_now;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedResetRows(FusedRows *rows)
{
  PetscFunctionBegin;
  PetscCall(CSRDestroy(&rows->points.copy));
  *rows = FusedRows{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedViewSent(const FusedRows &rows, PetscViewer viewer)
{
  const CSR           &W     = rows.points.copy;
  const PetscLogDouble bytes = W.i ? (W.rows + 1. + W.nnz) * sizeof(*W.j) + (PetscLogDouble)W.nnz * sizeof(PetscScalar) : 0;

  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer, "  the host has the matrix and the vectors, which are sent to the GPU\n"));
  if (bytes > 0) PetscCall(PetscViewerASCIIPrintf(viewer, "  the single entries of its blocks take %g bytes there\n", bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedSend(Vec v, PetscScalar *to)
{
  const PetscScalar *from;
  PetscInt           n;
  PetscMemType       where;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(FinePC_SendVec, v, 0, 0, 0));
  PetscCall(VecGetLocalSize(v, &n));
  PetscCall(VecGetArrayReadAndMemType(v, &from, &where));
  PetscCall(ArrayCopy(to, from, n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, where));
  if (!PetscMemTypeDevice(where)) PetscCall(PetscLogCpuToGpu(n * (PetscLogDouble)sizeof(PetscScalar)));
  PetscCall(VecRestoreArrayReadAndMemType(v, &from));
  PetscCall(PetscLogEventEnd(FinePC_SendVec, v, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedFetch(const PetscScalar *from, Vec v)
{
  PetscScalar *to;
  PetscInt     n;
  PetscMemType where;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(FinePC_SendVec, v, 0, 0, 0));
  PetscCall(VecGetLocalSize(v, &n));
  PetscCall(VecGetArrayWriteAndMemType(v, &to, &where));
  PetscCall(ArrayCopy(to, from, n * sizeof(PetscScalar), where, PETSC_MEMTYPE_CUDA));
  if (!PetscMemTypeDevice(where)) PetscCall(PetscLogGpuToCpu(n * (PetscLogDouble)sizeof(PetscScalar)));
  PetscCall(VecRestoreArrayWriteAndMemType(v, &to));
  PetscCall(PetscLogEventEnd(FinePC_SendVec, v, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedSetUpAgain(KSP ksp)
{
  const PC pc = PCActing(ksp->pc);

  PetscFunctionBegin;
  PetscCall(PCLocalResetAgain(pc));
  pc->setupcalled = PETSC_FALSE; /* nothing is left */
  PetscCall(PCSetUp(pc));
  if (pc->failedreason) ksp->reason = KSP_DIVERGED_PC_FAILED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedFollow(KSP ksp)
{
  const PC pc = PCActing(ksp->pc);

  PetscFunctionBegin;
  if (pc->mat == pc->pmat && PCIsLocal(pc) && !pc->reusepreconditioner) PetscCall(FusedSetUpAgain(ksp));
  if (pc->failedreason) ksp->reason = KSP_DIVERGED_PC_FAILED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedViewDevice(KSP ksp, PetscViewer viewer)
{
  PetscBool given;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperatorsSet(ksp->pc, &given, nullptr));
  if (!given) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatViewDevice(A, viewer, "  "));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedWhyNotWithNullSpace(KSP ksp, const char text[], FusedReason *why)
{
  Mat          A;
  MatNullSpace null_space;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetNullSpace(A, &null_space));
  if (null_space) why->text = text;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedWhyNotWithVectors(KSP ksp, PetscBool sent, FusedReason *why)
{
  PetscBool devices = PETSC_TRUE, sizes = PETSC_TRUE, device;
  PetscInt  n, rows;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetLocalSize(A, &rows, nullptr));
  for (Vec v : {ksp->vec_rhs, ksp->vec_sol, ksp->work ? ksp->work[0] : ksp->vec_sol}) {
    PetscCall(VecIsOnDevice(v, &device));
    PetscCall(VecGetLocalSize(v, &n));
    if (!device) devices = PETSC_FALSE;
    if (n != rows) sizes = PETSC_FALSE;
  }
  if (!devices && !sent) why->text = "the vectors are on the host";
  else if (!sizes) why->text = "vectors of another size than the matrix"; /* MatMult() makes an error of it */
  else if (!rows) why->text = "no rows";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the rank's parts of A, of which there are two on several ranks, are on the GPU and may be used there. */
static PetscErrorCode PartsAreOnDevice(Mat A, PetscBool several, PetscBool blocks, PetscBool *device)
{
  Mat             parts[2] = {nullptr, nullptr};
  const PetscInt *columns;

  PetscFunctionBegin;
  *device = PETSC_TRUE;
  if (several) PetscCall(MatGetRankParts(A, &parts[0], &parts[1], &columns));
  else PetscCall(MatGetDiagonalBlock(A, &parts[0])); /* a parallel matrix may be on one rank, too */
  for (Mat part : parts) {
    PetscBool rows, ours = PETSC_FALSE, bound;
    if (!part) continue;
    PetscCall(PetscObjectTypeCompare((PetscObject)part, MATSEQAIJCUSPARSE, &rows));
    if (blocks) PetscCall(PetscObjectTypeCompare((PetscObject)part, MATSEQBAIJCUDA, &ours));
    PetscCall(MatBoundToCPU(part, &bound));
    if ((!rows && !ours) || bound) *device = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedWhyNotWithMatrix(KSP ksp, PetscBool several, PetscBool blocks, FusedReason *why)
{
  Mat       A;
  PetscBool rows, ours = PETSC_FALSE, rows_on_host, on_host = PETSC_FALSE, device, offloaded;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &rows, MATSEQAIJCUSPARSE, MATMPIAIJCUSPARSE, ""));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &rows_on_host, MATSEQAIJ, MATMPIAIJ, ""));
  if (blocks) {
    PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &ours, MATSEQBAIJCUDA, MATMPIBAIJCUDA, ""));
    PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &on_host, MATSEQBAIJ, MATMPIBAIJ, ""));
  }
  PetscCall(MatIsOffloaded(A, &offloaded));
  if (offloaded && !rows_on_host)
    PetscCall(
      FusedIsOfType((PetscObject)A, "ranks that do not come together solve on the GPU with aij alone, but this one is ", why));
  else if (rows_on_host || on_host) why->text = "the matrix is on the host";
  else if (!rows && !ours)
    PetscCall(FusedIsOfType((PetscObject)A,
                            blocks ? "the matrix is not aijcusparse or baijcuda, but " : "the matrix is not aijcusparse, but ",
                            why));
  else if (!kPetscHasCUDA) why->text = kHasCUDA ? "this PETSc has no CUDA" : "this finepc was built without CUDA";
  else {
    PetscCall(PartsAreOnDevice(A, several, blocks, &device));
    if (!device) why->text = "the matrix is bound to the CPU, on the host";
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedFindDiagonal(KSP ksp, FusedDiagonal *diagonal)
{
  const PC     pc = PCActing(ksp->pc);
  Mat          A, P;
  PCJacobiType type;
  PetscBool    kept;

  PetscFunctionBegin;
  PetscCall(PCJacobiGetType(pc, &type));
  PetscCall(PCJacobiGetUseAbs(pc, &diagonal->absolute));
  PetscCall(PCJacobiGetFixDiagonal(pc, &diagonal->fixed));
  PetscCall(PCGetOperators(pc, &A, &P));
  PetscCall(PCGetReusePreconditioner(pc, &kept));
  diagonal->is = type == PC_JACOBI_DIAGONAL && A == P && !kept;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedDiagonalOfRows(const CSRView *A, const FusedDiagonal &diagonal, PetscScalar *d)
{
  PetscFunctionBegin;
  PetscCall(CSRDiagonal_CUDA(A, d));
  PetscCall(FusedInvertDiagonal_CUDA(A->n, diagonal.absolute, diagonal.fixed, d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedFindNCCL(KSP ksp, PetscBool wanted, PetscBool asked, NCCL **nccl, const char **why_mpi)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)ksp);
  const char    *type = ((PetscObject)ksp)->type_name;

  PetscFunctionBegin;
  if (!wanted) {
    if (!**why_mpi) *why_mpi = "another rank asked for it";
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(NCCLOf(comm, nccl, why_mpi));
  PetscCheck(*nccl || !asked, comm, PETSC_ERR_SUP,
             "-ksp_%s_communication nccl is not possible: %s. Give each rank a GPU of its own and a finepc that finds NCCL, or use "
             "-ksp_%s_communication auto",
             type, *why_mpi, type);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- around a solve ---------------------------------------- */

PetscErrorCode FusedRefreshPreconditioner(KSP ksp)
{
  PetscFunctionBegin;
  if (!kPCApplySetsUp) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCSetUp(ksp->pc));
  if (ksp->reason == KSP_DIVERGED_PC_FAILED && !ksp->pc->failedreason) ksp->reason = KSP_CONVERGED_ITERATING;
  if (ksp->pc->failedreason) ksp->reason = KSP_DIVERGED_PC_FAILED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedCheckSizes(KSP ksp)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)ksp);
  PetscInt       rows, b_rows, x_rows, local, b_local, x_local, kept = 0, kept_local = 0;
  Mat            A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetSize(A, &rows, nullptr));
  PetscCall(MatGetLocalSize(A, &local, nullptr));
  PetscCall(VecGetSize(ksp->vec_rhs, &b_rows));
  PetscCall(VecGetLocalSize(ksp->vec_rhs, &b_local));
  PetscCall(VecGetSize(ksp->vec_sol, &x_rows));
  PetscCall(VecGetLocalSize(ksp->vec_sol, &x_local));
  PetscCheck(rows == b_rows && rows == x_rows, comm, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows, but the right-hand side has %" PetscInt_FMT
             " and the vector of the solution %" PetscInt_FMT,
             rows, b_rows, x_rows);
  PetscCheck(local == b_local && local == x_local, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows on this rank, but the right-hand side has %" PetscInt_FMT
             " and the vector of the solution %" PetscInt_FMT,
             local, b_local, x_local);
  if (!ksp->work) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecGetSize(ksp->work[0], &kept));
  PetscCall(VecGetLocalSize(ksp->work[0], &kept_local));
  PetscCheck(kept == rows, comm, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows, but the KSP was set up for %" PetscInt_FMT
             ": call KSPReset() before it gets a matrix of another size",
             rows, kept);
  PetscCheck(kept_local == local, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows on this rank, but the KSP was set up for %" PetscInt_FMT
             ": call KSPReset() before it gets a matrix of another size",
             local, kept_local);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedLeaveSolve(KSP ksp)
{
  PetscInt locked;

  PetscFunctionBegin;
  PetscCall(VecLockGet(ksp->vec_rhs, &locked));
  if (locked > 0) PetscCall(VecLockReadPop(ksp->vec_rhs));
  if (ksp->pc->presolvedone > 0) PetscCall(PCPostSolve(ksp->pc, ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

CGNorm FusedNormOf(KSP ksp)
{
  switch (ksp->normtype) {
  case KSP_NORM_PRECONDITIONED: return CG_NORM_PRECONDITIONED;
  case KSP_NORM_UNPRECONDITIONED: return CG_NORM_UNPRECONDITIONED;
  case KSP_NORM_NATURAL: return CG_NORM_NATURAL;
  default: return CG_NORM_NONE;
  }
}

/* No solve makes as many iterations as a LocalInt can count. */
static LocalInt Iterations_Fused(PetscInt count)
{
  return (LocalInt)PetscMin(count, (PetscInt)LOCAL_INT_MAX);
}

CGTest FusedTestOf(KSP ksp, PetscBool by_host)
{
  const bool test_default = !by_host && ksp->converged == KSPConvergedDefault;
  const bool all_converge = !by_host && (!test_default || ((KSPConvergedDefaultCtx *)ksp->cnvP)->convmaxits);
  CGTest     test;
  test.norm    = FusedNormOf(ksp);
  test.ttol    = test_default ? ksp->ttol : -1;
  test.dtol    = test_default ? ksp->divtol * ksp->rnorm0 : std::numeric_limits<PetscReal>::infinity();
  test.min_it  = Iterations_Fused(KSPMinimumIterationsOf(ksp));
  test.chknorm = Iterations_Fused(ksp->chknorm);
  test.last    = Iterations_Fused(all_converge ? ksp->max_it : PETSC_INT_MAX);
  test.max_it  = Iterations_Fused(ksp->max_it);
  return test;
}

const char *FusedWhyOneByOne(KSP ksp)
{
  using Function                 = void (*)();
  const auto looks_at_norm_alone = [](Function monitor) {
    return monitor == (Function)KSPMonitorResidual || monitor == (Function)KSPMonitorResidualDrawLG;
  };

  if (ksp->converged != KSPConvergedDefault && ksp->converged != KSPConvergedSkip) return "a convergence test of the program";
  for (PetscInt k = 0; k < ksp->numbermonitors; k++)
    if (!looks_at_norm_alone((Function)ksp->monitor[k])) return "a monitor, which may look at the solution";
  return nullptr;
}

/* -------------------------------- vectors where the solve runs -------------------------------- */

PetscErrorCode FusedGetLocalSize(Vec v, LocalInt *n)
{
  PetscInt rows;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(v, &rows));
  PetscCall(LocalIntCast(rows, "rows", n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether v is on the host and the matrix a MATAIJCUSPARSE that is not. */
static PetscErrorCode IsFarFromMatrix(KSP ksp, Vec v, PetscBool *far)
{
  PetscBool given;
  Mat       A;

  PetscFunctionBegin;
  *far = PETSC_FALSE;
  PetscCall(PCGetOperatorsSet(ksp->pc, &given, nullptr));
  if (!given || !v) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatIsFarFrom(A, v, far));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeWorkVecs(KSP ksp, PetscInt count)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)ksp);
  PetscMPIInt    size;
  PetscBool      given, far, cuda = PETSC_FALSE;
  PetscInt       n, N, bs;
  VecType        type;
  Mat            A;
  Vec            model;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(PCGetOperatorsSet(ksp->pc, &given, nullptr));
  PetscCall(IsFarFromMatrix(ksp, ksp->vec_sol, &far));
  if (given) PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  if (size > 1 && given && (far || (!ksp->vec_sol && !ksp->dm))) {
    PetscCall(MatGetVecType(A, &type));
    PetscCall(PetscStrcmpAny(type, &cuda, VECCUDA, VECMPICUDA, ""));
  }
  if (!cuda && !far) {
    PetscCall(KSPSetWorkVecs(ksp, count));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (cuda) {
    PetscCall(MatGetLocalSize(A, nullptr, &n));
    PetscCall(MatGetSize(A, nullptr, &N));
    PetscCall(MatGetBlockSizes(A, nullptr, &bs));
    PetscCall(VecCreateMPICUDAWithArrays(comm, bs, n, N, nullptr, nullptr, &model));
  } else PetscCall(MatCreateVecs(A, &model, nullptr));
  PetscCall(VecDestroyVecs(ksp->nwork, &ksp->work));
  PetscCall(VecDuplicateVecs(model, count, &ksp->work));
  ksp->nwork = count;
  PetscCall(VecDestroy(&model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Gives vectors that have no memory on the GPU yet some of finepc's pool, which they own then: PETSc would take it by cudaMalloc()
   when they are first used, which lasts as long as some iterations.
*/
static PetscErrorCode GiveMemory(PetscInt count, Vec vecs[])
{
  PetscFunctionBegin;
  for (PetscInt k = 0; k < count; k++) {
    PetscOffloadMask mask;
    PetscBool        cuda, bound;
    PetscInt         n;
    void            *memory;

    PetscCall(PetscObjectTypeCompareAny((PetscObject)vecs[k], &cuda, VECSEQCUDA, VECMPICUDA, ""));
    PetscCall(VecBoundToCPU(vecs[k], &bound));
    PetscCall(VecGetOffloadMask(vecs[k], &mask));
    PetscCall(VecGetLocalSize(vecs[k], &n));
    if (!cuda || bound || mask != PETSC_OFFLOAD_UNALLOCATED || !n) continue;
    PetscCall(ArrayCreate(n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, &memory));
    PetscCall(VecCUDAReplaceArray(vecs[k], (const PetscScalar *)memory));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedSetWorkVecs(KSP ksp, PetscInt count)
{
  PetscFunctionBegin;
  PetscErrorCode code = MakeWorkVecs(ksp, count);
  if (!code && kPetscHasCUDA) {
    code = GiveMemory(count, ksp->work);
    if (code) PetscCall(VecDestroyVecs(ksp->nwork, &ksp->work));
  }
  if (code) { /* PETSc leaves an array that is not complete, which nobody may destroy */
    ksp->work  = nullptr;
    ksp->nwork = 0;
  }
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)ksp), code, "make the vectors of the solver"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeVectors(KSP ksp, Vec copies[2])
{
  PetscBool far = PETSC_FALSE;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  if (ksp->work) PetscCall(IsFarFromMatrix(ksp, ksp->work[0], &far));
  if (far) PetscCall(FusedSetWorkVecs(ksp, ksp->nwork)); /* the matrix was on the host when they were made */
  for (int k = 0; k < 2; k++) PetscCall(MatCreateVecs(A, &copies[k], nullptr));
  PetscCall(VecCopyBetween(ksp->vec_rhs, copies[0]));
  if (!ksp->guess_zero) PetscCall(VecCopyBetween(ksp->vec_sol, copies[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedTakeVectors(KSP ksp, FusedVectors *theirs)
{
  PetscBool far_b, far_x;
  Vec       copies[2] = {nullptr, nullptr};

  PetscFunctionBegin;
  PetscCall(IsFarFromMatrix(ksp, ksp->vec_rhs, &far_b));
  PetscCall(IsFarFromMatrix(ksp, ksp->vec_sol, &far_x));
  if (!far_b && !far_x) PetscFunctionReturn(PETSC_SUCCESS);
  PetscErrorCode code = MakeVectors(ksp, copies);
  code                = AgreeOnError(PetscObjectComm((PetscObject)ksp), code, "copy the vectors of the program to the GPU");
  if (code) {
    for (Vec &copy : copies) PetscCall(VecDestroy(&copy));
    PetscCall(code);
  }
  *theirs      = FusedVectors{ksp->vec_rhs, ksp->vec_sol};
  ksp->vec_rhs = copies[0];
  ksp->vec_sol = copies[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedLeaveVectors(KSP ksp, PetscErrorCode code, FusedVectors *theirs)
{
  PetscFunctionBegin;
  if (!theirs->x) PetscFunctionReturn(code);
  if (!code) code = VecCopyBetween(ksp->vec_sol, theirs->x);
  (void)VecDestroy(&ksp->vec_rhs);
  (void)VecDestroy(&ksp->vec_sol);
  ksp->vec_rhs = theirs->b;
  ksp->vec_sol = theirs->x;
  *theirs      = FusedVectors{};
  PetscFunctionReturn(code);
}

PetscErrorCode FusedGetRead(PetscBool device, Vec v, const PetscScalar **array, PetscMemType *where)
{
  PetscMemType found = PETSC_MEMTYPE_HOST;

  PetscFunctionBegin;
  if (device) PetscCall(VecGetArrayReadAndMemType(v, array, &found));
  else PetscCall(VecGetArrayRead(v, array));
  if (where) *where = found;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedRestoreRead(PetscBool device, Vec v, const PetscScalar **array)
{
  PetscFunctionBegin;
  PetscCall(device ? VecRestoreArrayReadAndMemType(v, array) : VecRestoreArrayRead(v, array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedGetWrite(PetscBool device, Vec v, PetscScalar **array, PetscMemType *where)
{
  PetscMemType found = PETSC_MEMTYPE_HOST;

  PetscFunctionBegin;
  if (device) PetscCall(VecGetArrayAndMemType(v, array, &found));
  else PetscCall(VecGetArray(v, array));
  if (where) *where = found;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedRestoreWrite(PetscBool device, Vec v, PetscScalar **array)
{
  PetscFunctionBegin;
  PetscCall(device ? VecRestoreArrayAndMemType(v, array) : VecRestoreArray(v, array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- time and flops ---------------------------------------- */

PetscErrorCode FusedTimeBegin(PetscBool device)
{
  PetscFunctionBegin;
  if (device) PetscCall(PetscLogGpuTimeBegin());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedTimeEnd(PetscBool device)
{
  PetscFunctionBegin;
  if (device) PetscCall(PetscLogGpuTimeEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedLogFlops(PetscBool device, PetscLogDouble flops)
{
  PetscFunctionBegin;
  PetscCall(device ? PetscLogGpuFlops(flops) : PetscLogFlops(flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}
