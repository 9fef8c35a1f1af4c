/* Launch geometry, and the few device idioms that every kernel file uses. */
#pragma once

#include "device/device.cuh"
#include "sparse/memory.h"

constexpr int      kWarpSize  = 32;
constexpr unsigned kFullWarp  = 0xffffffffu;
constexpr int      kBlockSize = 256; /* threads of a block in kernels that have no reason for another size */
constexpr int      kScanGroup = 8;   /* lanes that take a row together in kernels that stream over a matrix */

/* Follows every launch. A bad configuration shows here, a kernel that fails shows at the next call that waits for it. */
#define FinePCCheckLaunch() PetscCallCUDA(cudaGetLastError())

inline int BlocksFor(long long threads, int block_size = kBlockSize)
{
  return (int)((threads + block_size - 1) / block_size);
}

/* The dynamic shared memory that a block may ask for. */
inline PetscErrorCode SharedMemoryLimit(size_t *bytes)
{
  int device, limit;

  PetscFunctionBegin;
  PetscCallCUDA(cudaGetDevice(&device));
  PetscCallCUDA(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  *bytes = (size_t)limit;
  PetscFunctionReturn(PETSC_SUCCESS);
}

inline PetscErrorCode ProcessorCount(int *processors)
{
  int device;

  PetscFunctionBegin;
  PetscCallCUDA(cudaGetDevice(&device));
  PetscCallCUDA(cudaDeviceGetAttribute(processors, cudaDevAttrMultiProcessorCount, device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The calling thread's number in a one-dimensional grid, which may be larger than an int. */
__device__ inline long long GridThread()
{
  return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

/*
   The sum over aligned groups of Size lanes, which every lane gets. The order of the additions is always the same. All lanes of
   the warp take part.
*/
template <int Size, typename T>
__device__ inline T GroupSum(T x)
{
#pragma unroll
  for (int offset = Size / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
}

/* The largest and the smallest over aligned groups of Size lanes, which every lane gets. All lanes of the warp take part. */
template <int Size, typename T>
__device__ inline T GroupMax(T x)
{
#pragma unroll
  for (int offset = Size / 2; offset > 0; offset /= 2) x = max(x, __shfl_xor_sync(kFullWarp, x, offset));
  return x;
}

template <int Size, typename T>
__device__ inline T GroupMin(T x)
{
#pragma unroll
  for (int offset = Size / 2; offset > 0; offset /= 2) x = min(x, __shfl_xor_sync(kFullWarp, x, offset));
  return x;
}

/* The part of a warp's ballot that belongs to the calling lane's group of Size lanes; bit 0 is lane 0 of the group. */
template <int Size>
__device__ inline unsigned GroupBallot(bool predicate)
{
  const unsigned ballot = __ballot_sync(kFullWarp, predicate);
  if (Size == kWarpSize) return ballot;
  return (ballot >> ((threadIdx.x % kWarpSize) / Size * Size)) & ((1u << (Size % kWarpSize)) - 1u);
}

/*
   A kernel that LaunchEarly() or LaunchTogether() launches with `early` may start before the kernel ahead of it in the stream has
   ended: what it does before WaitForPrevious() must not depend on that kernel. The kernel behind it does not start before all of
   its blocks have called LetNextStart() or ended. Code compiled for a compute capability below 9.0 does not wait, and must not be
   launched early.
*/
__device__ inline void WaitForPrevious()
{
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

__device__ inline void LetNextStart()
{
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Whether the kernel's code for this device waits in WaitForPrevious(), so that it may be launched early. */
inline PetscErrorCode SupportsEarlyLaunch(const void *kernel, bool *supports)
{
  cudaFuncAttributes compiled;

  PetscFunctionBegin;
  PetscCallCUDA(cudaFuncGetAttributes(&compiled, kernel));
  *supports = compiled.ptxVersion >= 90 && compiled.binaryVersion >= 90;
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename... Parameters, typename... Arguments>
PetscErrorCode LaunchWith(bool early, bool together, void (*kernel)(Parameters...), int blocks, int block_size, size_t shared,
                          cudaStream_t stream, Arguments... arguments)
{
  cudaLaunchConfig_t  config{};
  cudaLaunchAttribute attributes[2];

  PetscFunctionBegin;
  config.gridDim          = dim3(blocks);
  config.blockDim         = dim3(block_size);
  config.dynamicSmemBytes = shared;
  config.stream           = stream;
  config.attrs            = attributes;
  if (early) {
    attributes[config.numAttrs].id                                           = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (together) {
    attributes[config.numAttrs].id                = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  PetscCallCUDA(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename... Parameters, typename... Arguments>
PetscErrorCode LaunchEarly(bool early, void (*kernel)(Parameters...), int blocks, int block_size, cudaStream_t stream,
                           Arguments... arguments)
{
  return LaunchWith(early, false, kernel, blocks, block_size, 0, stream, arguments...);
}

/* The same for a kernel whose blocks wait for one another, and are all on the GPU at once. */
template <typename... Parameters, typename... Arguments>
PetscErrorCode LaunchTogether(bool early, void (*kernel)(Parameters...), int blocks, int block_size, size_t shared,
                              cudaStream_t stream, Arguments... arguments)
{
  return LaunchWith(early, true, kernel, blocks, block_size, shared, stream, arguments...);
}
