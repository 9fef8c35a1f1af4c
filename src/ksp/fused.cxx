/* Why the GPU does not decide about a solve, and what its copies were made of. */
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include "entry.h"
#include "fusedimpl.h"
#include "finepcimpl.h"
#include "pc/auto/acting.h"
#include "pc/local.h"
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

PetscErrorCode FusedIsOnDevice(Vec x, PetscBool *device)
{
  PetscBool bound;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)x, device, VECSEQCUDA, VECMPICUDA, ""));
  PetscCall(VecBoundToCPU(x, &bound));
  if (bound || !kPetscHasCUDA) *device = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedIsSent(KSP ksp, PetscBool *sent)
{
  PetscBool rows;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatIsOffloaded(A, sent));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &rows, MATSEQAIJ, MATMPIAIJ, ""));
  if (!rows || !kHasCUDA) *sent = PETSC_FALSE;
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

PetscErrorCode FusedFollow(KSP ksp)
{
  const PC pc = PCActing(ksp->pc);

  PetscFunctionBegin;
  if (pc->mat == pc->pmat && pc->ops->setup == Entry<PCSetUp_Local> && !pc->reusepreconditioner) {
    PetscCall((*pc->ops->reset)(pc));
    pc->setupcalled = PETSC_FALSE; /* nothing is left */
    PetscCall(PCSetUp(pc));
  }
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

PetscErrorCode FusedWhyNotWithVectors(KSP ksp, PetscBool sent, FusedReason *why)
{
  PetscBool devices = PETSC_TRUE, sizes = PETSC_TRUE, device;
  PetscInt  n, rows;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetLocalSize(A, &rows, nullptr));
  for (Vec v : {ksp->vec_rhs, ksp->vec_sol, ksp->work ? ksp->work[0] : ksp->vec_sol}) {
    PetscCall(FusedIsOnDevice(v, &device));
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
    PetscCall(FusedIsOfType((PetscObject)A, "of the matrices of the host the GPU solves with aij alone, but this one is ", why));
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
