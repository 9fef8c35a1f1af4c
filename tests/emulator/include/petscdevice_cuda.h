/* In the place of PETSc's header of this name: what kernels of finepc use of it, for the emulator. */
#pragma once

#include <petscdevice.h>

#include "petsc_compat.h"

#include "cuda_runtime.h"

#define PetscCallCUDA(...)                                                                                                \
  do {                                                                                                                    \
    const cudaError_t cuda_error_ = __VA_ARGS__;                                                                          \
    PetscCheck(cuda_error_ == cudaSuccess, PETSC_COMM_SELF, PETSC_ERR_GPU, "error %d of the emulator", (int)cuda_error_); \
  } while (0)

/* PETSc would look for a driver. The emulator is the one GPU of every rank. */
#define PetscDeviceInitialize(type) PETSC_SUCCESS

inline PetscErrorCode PetscGetCurrentCUDAStream(cudaStream_t *stream)
{
  *stream = nullptr;
  return PETSC_SUCCESS;
}
