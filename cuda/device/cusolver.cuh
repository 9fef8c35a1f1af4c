/* The handle of cuSOLVER, which works in the current stream. */
#pragma once

#include <cusolverDn.h>

#include "device/device.cuh"

#if !defined(FINEPC_PETSC_CUDA)
  #define PetscCallCUSOLVER(...)                                                                                         \
    do {                                                                                                                 \
      const cusolverStatus_t status_ = __VA_ARGS__;                                                                      \
      PetscCheck(status_ == CUSOLVER_STATUS_SUCCESS, PETSC_COMM_SELF, PETSC_ERR_GPU, "cuSOLVER error %d", (int)status_); \
    } while (0)
#endif

/* It is made by the first call, and stays until the package is finalized. */
PetscErrorCode DeviceGetSolver(cusolverDnHandle_t *);
