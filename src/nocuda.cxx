/*
   What a build without CUDA says about the GPU: there is none, so that no memory is device memory. CMake writes the other CUDA
   twins of such a build from the headers, see cmake/stubs.cmake: each of them is an error, since only a mistake in finepc can call
   it.
*/
#include "device/device.h"
#include "ranks/nccl.h"

PetscErrorCode DeviceFound_CUDA(PetscBool *found)
{
  PetscFunctionBegin;
  *found = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceLookFor_CUDA(char why[])
{
  PetscFunctionBegin;
  PetscCall(PetscStrncpy(why, "this finepc was built without CUDA", kDeviceText));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLOpen_CUDA(NCCL **, char why[])
{
  PetscFunctionBegin;
  PetscCall(PetscStrncpy(why, "this finepc was built without CUDA", kNCCLText));
  PetscFunctionReturn(PETSC_SUCCESS);
}
