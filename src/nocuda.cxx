/*
   The CUDA twins of a build against a PETSc without CUDA. No memory is device memory there, so nothing reaches these but a
   mistake in finepc.
*/
#include "dense.h"
#include "pc/afsai/afsai.h"
#include "pc/sfsai/sfsai.h"

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

PetscErrorCode AFSAIComputeFactor_CUDA(const CSRView *, PetscInt, const AFSAIParams *, PetscBool, CSR *, PetscReal *, FSAIStats *)
{
  return NoCUDA();
}

PetscErrorCode SFSAIPattern_CUDA(const CSRView *, const CSRView *, const PetscReal *, const SFSAIParams *, CSR *, FSAIStats *)
{
  return NoCUDA();
}

PetscErrorCode SFSAIComputeFactor_CUDA(const CSRView *, const CSRView *, const SFSAIParams *, PetscBool, CSR *, PetscReal *, SFSAIWork *, FSAIStats *)
{
  return NoCUDA();
}

size_t FSAIWorkBytes_CUDA(PetscInt)
{
  return 0;
}

PetscErrorCode FSAIScaling_CUDA(const CSRView *, PetscInt, PetscReal *, PetscReal *, void *, FSAIStats *)
{
  return NoCUDA();
}

PetscErrorCode FSAIMeanLog_CUDA(PetscInt, const PetscReal *, void *, PetscReal *)
{
  return NoCUDA();
}

PetscErrorCode CholeskyBatched_CUDA(FinePCPrecision, PetscInt, PetscInt, void *, PetscInt *)
{
  return NoCUDA();
}
