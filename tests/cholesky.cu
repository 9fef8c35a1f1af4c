/* Kernels that factorize systems in memory with the device functions of cuda/sparse/dense.cuh. */
#include "sparse/dense.cuh"

#include "cholesky.h"

namespace
{

constexpr int kRegisterBlock = 128; /* threads of a block of which every group takes a system */
template <typename T>
constexpr int kBlocksAtOnce = sizeof(T) == sizeof(float) ? 3 : 2; /* blocks of kSystemThreads for which a processor has registers */

/* A group of N lanes takes a system of n <= N unknowns, to which the identity is added from index n on. */
template <typename T, int N>
__global__ void __launch_bounds__(kRegisterBlock) CholeskyInRegisters(int n, LocalInt count, T *A, LocalInt *info)
{
  __shared__ __align__(16) T columns[kRegisterBlock / N][2 * N];

  const long long system = GridThread() / N;
  const int       r      = threadIdx.x % N;
  const bool      mine   = system < count;
  T *const        own    = A + (size_t)(mine ? system : 0) * n * n;
  T               a[N], inverse;
#pragma unroll
  for (int c = 0; c < N; c++) a[c] = mine && r < n && c <= r ? own[c * n + r] : T(r == c);
  const int bad = Eliminate<N, true>(a, columns[threadIdx.x / N], 0, T(0), inverse);
#pragma unroll
  for (int c = 0; c < N; c++)
    if (mine && r < n && c <= r) own[c * n + r] = a[c];
  if (mine && r == 0) info[system] = bad < N ? bad + 1 : 0;
}

/* A block takes a system. */
template <typename T, bool InShared>
__global__ void __launch_bounds__(kSystemThreads, kBlocksAtOnce<T>) CholeskyInBlocks(int n, T *A, LocalInt *info)
{
  extern __shared__ __align__(16) char shared[];

  T *const                   own = A + (size_t)blockIdx.x * n * n;
  BlockCholesky<T, InShared> system(shared, n, own);
  if (InShared) system.Load(own);
  const int bad = system.Factorize(T(0));
  if (InShared) system.Store(own);
  if (threadIdx.x == 0) info[blockIdx.x] = bad != INT_MAX ? bad + 1 : 0;
}

template <typename T, int N>
PetscErrorCode LaunchRegisters(LocalInt n, LocalInt count, T *A, LocalInt *info, cudaStream_t stream)
{
  PetscFunctionBegin;
  CholeskyInRegisters<T, N><<<BlocksFor((long long)count * N, kRegisterBlock), kRegisterBlock, 0, stream>>>(n, count, A, info);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T, bool InShared>
PetscErrorCode LaunchBlocks(LocalInt n, LocalInt count, T *A, LocalInt *info, cudaStream_t stream)
{
  const auto   kernel = CholeskyInBlocks<T, InShared>;
  const size_t bytes  = BlockCholesky<T, InShared>::SharedBytes(n);
  size_t       limit;

  PetscFunctionBegin;
  PetscCall(SharedMemoryLimit(&limit));
  PetscCheck(bytes <= limit, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A system of %" LocalInt_FMT " unknowns needs %zu bytes of shared memory, but a block has at most %zu on this device",
             n, bytes, limit);
  PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
  kernel<<<count, ThreadsForSystem(n), bytes, stream>>>(n, A, info);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode Launch(LocalInt n, LocalInt count, T *A, LocalInt *info, cudaStream_t stream)
{
  size_t limit;

  PetscFunctionBegin;
  PetscCall(SharedMemoryLimit(&limit));
  if (n <= 8) PetscCall((LaunchRegisters<T, 8>(n, count, A, info, stream)));
  else if (n <= 16) PetscCall((LaunchRegisters<T, 16>(n, count, A, info, stream)));
  else if (n <= 32) PetscCall((LaunchRegisters<T, 32>(n, count, A, info, stream)));
  else if (BlockCholesky<T, true>::SharedBytes(n) <= limit) PetscCall((LaunchBlocks<T, true>(n, count, A, info, stream)));
  else PetscCall((LaunchBlocks<T, false>(n, count, A, info, stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CholeskyBatched_CUDA(FinePCPrecision precision, LocalInt n, LocalInt count, void *A, LocalInt *info)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= kCholeskyLargest, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
             "The size of a system is %" LocalInt_FMT ", but can be at most %" LocalInt_FMT, n, kCholeskyLargest);
  if (!n || !count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  if (precision == FINEPC_SINGLE) PetscCall(Launch<float>(n, count, (float *)A, info, stream));
  else PetscCall(Launch<double>(n, count, (double *)A, info, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
