/* Why a solve of the fused GMRES takes the general path. */
#include "gmresfusedimpl.h"
#include "pc/local.h"
#include "sparse/bsr_mat.h"

/* What was asked for, and what the host has to do in every iteration. */
static const char *WhyNotAsItIsAsked(KSP ksp, PetscMPIInt size)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;

  if (g->path == KSP_GMRESFUSED_GENERAL) return "it was asked for";
  if (size > 1) return "several ranks";
  if (g->flexible) return "a flexible solve";
  if (GMRESFusedRefinementOf(ksp) != GMRES_REFINE_NEVER) return "a second pass of orthogonalization was asked for";
  if (ksp->numbermonitors) return "a monitor";
  if (ksp->converged != KSPConvergedDefault && ksp->converged != KSPConvergedSkip) return "a convergence test of the program";
  if (ksp->err_hist) return "a history of errors";
  if (ksp->transpose_solve) return "a transposed solve";
  if (ksp->reason == KSP_DIVERGED_PC_FAILED) return "the preconditioner failed";
  return "";
}

static PetscErrorCode IsOfType(PetscObject object, const char text[], CGFusedReason *why)
{
  PetscFunctionBegin;
  why->text = text;
  PetscCall(PetscStrncpy(why->type, object->type_name, sizeof(why->type)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix whose products are our own: on the GPU, not bound to the CPU. */
static PetscErrorCode WhyNotWithMatrix(KSP ksp, CGFusedReason *why)
{
  Mat          A;
  MatNullSpace null_space;
  PetscBool    ours, on_host, bound;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &ours, MATSEQAIJCUSPARSE, MATSEQBAIJCUDA, ""));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &on_host, MATSEQAIJ, MATSEQBAIJ, ""));
  PetscCall(MatBoundToCPU(A, &bound));
  PetscCall(MatGetNullSpace(A, &null_space));
  if (on_host) why->text = "the matrix is on the host";
  else if (!ours) PetscCall(IsOfType((PetscObject)A, "the matrix is not aijcusparse or baijcuda, but ", why));
  else if (!kHasCUDA) why->text = "this finepc was built without CUDA";
  else if (bound) why->text = "the matrix is bound to the CPU, on the host";
  else if (null_space && ksp->pc_side == PC_LEFT) why->text = "a null space, with the preconditioner on the left";
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode WhyNotWithVectors(KSP ksp, CGFusedReason *why)
{
  PetscBool device;
  PetscInt  n, rows;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetLocalSize(A, &rows, nullptr));
  if (!rows) why->text = "no rows";
  for (Vec v : {ksp->vec_rhs, ksp->vec_sol, ksp->work[0]}) {
    PetscCall(CGFusedIsOnDevice(v, &device));
    PetscCall(VecGetLocalSize(v, &n));
    if (!device) why->text = "the vectors are on the host";
    else if (n != rows) why->text = "vectors of another size than the matrix"; /* MatMult() makes an error of it */
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode WhyNotWithPreconditioner(KSP ksp, GMRESOperators *op, CGFusedReason *why)
{
  PetscBool petsc, ours;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)ksp->pc, &petsc, PCNONE, PCJACOBI, PCPBJACOBI, ""));
  PetscCall(PCLocalIsOnDevice(ksp->pc, &ours));
  if (ours) {
    op->apply = PCLocalApplyOnDevice;
    op->pc    = ksp->pc;
  } else if (!petsc)
    PetscCall(IsOfType((PetscObject)ksp->pc,
                       "the preconditioner is not none, jacobi, pbjacobi or one of finepc's with its factor on the GPU, but ",
                       why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedWhyGeneral(KSP ksp, GMRESOperators *op, CGFusedReason *why)
{
  PetscMPIInt size;
  Mat         A;

  PetscFunctionBegin;
  *op = GMRESOperators{};
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCheck(((PetscObject)A)->type_name, PetscObjectComm((PetscObject)A), PETSC_ERR_ARG_WRONGSTATE,
             "The matrix of the system has no type: call MatSetType() or MatSetFromOptions(), and give it values");
  *why = CGFusedReason{WhyNotAsItIsAsked(ksp, size)};
  if (!*why) PetscCall(WhyNotWithMatrix(ksp, why));
  if (!*why) PetscCall(WhyNotWithVectors(ksp, why));
  if (!*why) PetscCall(WhyNotWithPreconditioner(ksp, op, why));
  if (!*why) {
    const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
    PetscBool             can;

    PetscCall(GMRESFusedCanStay_CUDA(g->basis_precision, (LocalInt)g->restart, &can));
    if (!can) why->text = "the GPU, or the part of it that there is, cannot keep all blocks of a kernel at once";
  }
  op->left = (PetscBool)(ksp->pc_side == PC_LEFT);
  PetscFunctionReturn(PETSC_SUCCESS);
}
