/* What kernels and their launchers need of the GPU of this rank; see src/device/device.h. */
#pragma once

#include "device/device.h"

#if defined(FINEPC_PETSC_CUDA)
  #include <petscdevice_cuda.h>
#else
  #include <cuda_runtime.h>
#endif

/* The streams that finepc has launched in, since the pool of memory was opened: whether there has been more than one. */
struct DeviceStreams {
  bool         used = false, several = false;
  cudaStream_t last = nullptr;
};
inline DeviceStreams device_streams;

#if defined(FINEPC_PETSC_CUDA)

/* Chooses the GPU of this rank where that has not been done. */
inline PetscErrorCode DeviceInitialize()
{
  return PetscDeviceInitialize(PETSC_DEVICE_CUDA);
}

/* The current stream, in which all of finepc launches. */
inline PetscErrorCode DeviceGetStream(cudaStream_t *stream)
{
  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(stream));
  device_streams.several = device_streams.several || (device_streams.used && *stream != device_streams.last);
  device_streams.used    = true;
  device_streams.last    = *stream;
  PetscFunctionReturn(PETSC_SUCCESS);
}
#else

  #define PetscCallCUDA(...)                                                                                              \
    do {                                                                                                                  \
      const cudaError_t cuda_error_ = __VA_ARGS__;                                                                        \
      PetscCheck(cuda_error_ == cudaSuccess, PETSC_COMM_SELF, PETSC_ERR_GPU, "cuda error %d (%s) : %s", (int)cuda_error_, \
                 cudaGetErrorName(cuda_error_), cudaGetErrorString(cuda_error_));                                         \
    } while (0)

PetscErrorCode DeviceInitialize();
PetscErrorCode DeviceGetStream(cudaStream_t *);
#endif

/* Memory of the GPU, of at least one byte, which is there, and may be given back, in the order of the current stream. */
PetscErrorCode DeviceAllocate(size_t bytes, void **);
PetscErrorCode DeviceFree(void *);
