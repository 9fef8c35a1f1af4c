/*
   The CUDA twins of a build against a PETSc without CUDA. No memory is device memory there, so nothing reaches these but a
   mistake in finepc.
*/
#include "pc/afsai/afsai.h"

static PetscErrorCode NoCUDA()
{
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP, "This finepc was built without CUDA");
}

PetscErrorCode ArrayCreate_CUDA(size_t, void **)
{
  return NoCUDA();
}

PetscErrorCode ArrayDestroy_CUDA(void **)
{
  return NoCUDA();
}

PetscErrorCode ArrayCopy_CUDA(void *, const void *, size_t, PetscMemType, PetscMemType)
{
  return NoCUDA();
}

PetscErrorCode CSRTranspose_CUDA(const CSR *, PetscBool, CSR *)
{
  return NoCUDA();
}

PetscErrorCode CSRMultiply_CUDA(const CSR *, PetscBool, const PetscScalar *, PetscInt, const PetscScalar *, PetscInt, PetscScalar *, PetscInt)
{
  return NoCUDA();
}

PetscErrorCode AFSAIComputeFactor_CUDA(const CSRView *, PetscInt, const AFSAIParams *, PetscBool, CSR *, PetscReal *, AFSAIStats *)
{
  return NoCUDA();
}
