/*
   What the benchmark asks CUDA itself: about a GPU that PETSc does not know of, and what PETSc does not tell of one.
*/
#include <cuda_runtime.h>

#include "bench.h"

#define CheckCUDA(...)                                                                                       \
  do {                                                                                                       \
    const cudaError_t error = (__VA_ARGS__);                                                                 \
    PetscCheck(error == cudaSuccess, PETSC_COMM_SELF, PETSC_ERR_GPU, "CUDA: %s", cudaGetErrorString(error)); \
  } while (0)

PetscErrorCode GPUFind(PetscMPIInt rank, std::string *name)
{
  int            count = 0;
  cudaDeviceProp properties;

  PetscFunctionBeginUser;
  name->clear();
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  (void)cudaGetLastError();
  if (!found) PetscFunctionReturn(PETSC_SUCCESS);
  CheckCUDA(cudaSetDevice(rank % count));
  CheckCUDA(cudaGetDeviceProperties(&properties, rank % count));
  *name = properties.name;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GPUSynchronize()
{
  PetscFunctionBeginUser;
  CheckCUDA(cudaDeviceSynchronize());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GPUTimeCopy(const Backend &backend, size_t bytes, PetscLogDouble *seconds)
{
  constexpr int kBatches = 10, kCopies = 10;
  void         *from, *to;

  const auto copy = [&]() {
    PetscFunctionBeginUser;
    CheckCUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice));
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscFunctionBeginUser;
  CheckCUDA(cudaMalloc(&from, bytes));
  CheckCUDA(cudaMalloc(&to, bytes));
  CheckCUDA(cudaMemset(from, 0, bytes));
  PetscCall(TimeCalls(backend, copy, seconds, kCopies, kBatches));
  CheckCUDA(cudaFree(to));
  CheckCUDA(cudaFree(from));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GPUMemoryInUse(size_t *bytes)
{
  size_t unused, all;
  void  *none = nullptr;

  PetscFunctionBeginUser;
  PetscCall(GPUSynchronize());
  CheckCUDA(cudaMemGetInfo(&unused, &all));
  (void)cudaMalloc(&none, all); /* which fails after the driver has taken back what pools have free */
  (void)cudaGetLastError();
  CheckCUDA(cudaMemGetInfo(&unused, &all));
  *bytes = all - unused;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GPUBus(int length, char bus[])
{
  int gpu;

  PetscFunctionBeginUser;
  CheckCUDA(cudaGetDevice(&gpu));
  CheckCUDA(cudaDeviceGetPCIBusId(bus, length, gpu));
  PetscFunctionReturn(PETSC_SUCCESS);
}
