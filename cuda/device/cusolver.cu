#include "device/cusolver.cuh"

#if defined(FINEPC_PETSC_CUDA)
PetscErrorCode DeviceGetSolver(cusolverDnHandle_t *handle)
{
  return PetscCUSOLVERDnGetHandle(handle);
}

PetscErrorCode DeviceSolverDestroy_CUDA()
{
  return PETSC_SUCCESS;
}
#else
static cusolverDnHandle_t own_handle = nullptr;

PetscErrorCode DeviceGetSolver(cusolverDnHandle_t *handle)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (!own_handle) PetscCallCUSOLVER(cusolverDnCreate(&own_handle));
  PetscCallCUSOLVER(cusolverDnSetStream(own_handle, stream));
  *handle = own_handle;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceSolverDestroy_CUDA()
{
  PetscFunctionBegin;
  if (own_handle) (void)cusolverDnDestroy(own_handle); /* the program may have reset the device */
  own_handle = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif
