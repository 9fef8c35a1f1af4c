/*
   In the place of what asks PETSc where vectors and matrices are. There is no GPU that it could have them on, but the memory of the
   emulated device is the host's.
*/
#include "solver.h"

#include "ksp/cgfusedimpl.h"
#include "sparse/csr_mat.h"

static PetscMemType WhereMatricesAre()
{
  return emulated_matrices ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;
}

PetscErrorCode MatGetValuesMemType(Mat, PetscMemType *where)
{
  *where = WhereMatricesAre();
  return PETSC_SUCCESS;
}

PetscErrorCode MatGetCSR(Mat A, CSRMat *csr)
{
  PetscFunctionBegin;
  PetscCall(MatGetHostCSR(A, csr));
  csr->A.where = WhereMatricesAre();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetOtherCSR(Mat A, CSRMat *csr)
{
  const PetscInt *i, *j;
  PetscInt        n;

  PetscFunctionBegin;
  *csr = CSRMat{};
  PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &csr->local, nullptr));
  PetscCall(MatLendRows(csr->local, PETSC_FALSE, &n, &i, &j));
  csr->A.n     = (LocalInt)n;
  csr->A.nnz   = (LocalInt)i[n];
  csr->A.where = WhereMatricesAre();
  PetscCall(MatGetLocalPattern(csr->local, PETSC_MEMTYPE_HOST, csr->A.n, csr->A.nnz, i, j, &csr->A.i, &csr->A.j));
  PetscCall(MatSeqAIJGetArrayRead(csr->local, &csr->A.a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatRestoreCSR(CSRMat *csr)
{
  PetscFunctionBegin;
  if (!csr->local) PetscFunctionReturn(PETSC_SUCCESS); /* the rows are a copy */
  PetscCall(MatSeqAIJRestoreArrayRead(csr->local, &csr->A.a));
  PetscCall(MatTakeRowsBack(csr->local, PETSC_FALSE));
  *csr = CSRMat{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode VecIsOnDevice(Vec, PetscBool *device)
{
  *device = (PetscBool)emulated_solvers;
  return PETSC_SUCCESS;
}

/* A solve of one rank with PCJACOBI or PCNONE runs on the emulated GPU. */
PetscErrorCode CGFusedWhyGeneral(KSP ksp, CGFusedPreconditioner *M, FusedReason *why)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscBool    none;

  PetscFunctionBegin;
  *M                   = CGFusedPreconditioner{};
  *why                 = FusedReason{};
  cg->solve.nccl       = nullptr;
  cg->solve.why_mpi    = "";
  cg->solve.one_by_one = FusedWhyOneByOne(ksp);
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCNONE, &none));
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCJACOBI, &M->jacobi));
  if (cg->solve.several || !emulated_solvers || (!none && !M->jacobi)) why->text = "what the emulator has not";
  PetscFunctionReturn(PETSC_SUCCESS);
}
