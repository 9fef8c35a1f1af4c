/* CUDA twin of src/pc/fsai_host.cxx: a row is a group of lanes; of several failures that of the smallest row is kept. */
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "pc/fsai.h"
#include "launch.cuh"

namespace
{

using Count = unsigned long long;

constexpr int   kNoFailureByte = 0xff;
constexpr Count kNoFailure     = ~0ull; /* all bytes kNoFailureByte */

/* What the kernels write and the host reads, at the beginning of the work; cub's scratch memory follows. */
struct Result {
  Count  failure; /* (row, FSAIFailure) of the first unusable row, packed by PackFailure() */
  double sum;
};
constexpr size_t kResultBytes = 256; /* keeps what follows aligned */
static_assert(sizeof(Result) <= kResultBytes, "the result has room");

__device__ inline Count PackFailure(PetscInt row, FSAIFailure failure)
{
  return (Count)row * 4 + failure;
}

/* s = diag(A)^{-1/2}, d = diag(A) of rows first .., and whether A can be preconditioned at all. */
template <int GroupSize>
__global__ void FSAIDiagonal(CSRView A, PetscInt first, PetscReal *s, PetscReal *d, Result *result)
{
  const PetscInt row    = (PetscInt)(GridThread() / GroupSize);
  const int      lane   = threadIdx.x % GroupSize;
  bool           finite = true, found = false;
  if (row < A.n) {
    for (PetscInt k = A.i[row] + lane; k < A.i[row + 1]; k += GroupSize) {
      const PetscScalar a = A.a[k];
      finite              = finite && isfinite(a);
      if (A.j[k] != row) continue;
      found  = true;
      s[row] = 1 / sqrt(a);
      if (row >= first) d[row - first] = a;
      if (!(a > 0) && isfinite(a)) atomicMin(&result->failure, PackFailure(row, FSAI_DIAGONAL_NOT_POSITIVE));
    }
  }
  const bool any_found = GroupBallot<GroupSize>(found), all_finite = !GroupBallot<GroupSize>(!finite);
  if (row >= A.n || lane != 0) return;
  if (!all_finite) atomicMin(&result->failure, PackFailure(row, FSAI_NOT_FINITE));
  else if (!any_found) atomicMin(&result->failure, PackFailure(row, FSAI_DIAGONAL_MISSING));
}

struct LogOf {
  const PetscReal  *x;
  __device__ double operator()(PetscInt k) const { return log(x[k]); }
};

/* *sum = sum of log d, on the device; with work null, only the bytes of scratch memory that it needs. */
PetscErrorCode SumLogs(void *work, size_t *bytes, PetscInt n, const PetscReal *d, double *sum, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCallCUDA(cub::DeviceReduce::Sum(work, *bytes,
                                       thrust::make_transform_iterator(thrust::counting_iterator<PetscInt>(0), LogOf{d}), sum, n,
                                       stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

size_t FSAIWorkBytes_CUDA(PetscInt n)
{
  size_t bytes = 0;

  PetscCallAbort(PETSC_COMM_SELF, SumLogs(nullptr, &bytes, n, nullptr, nullptr, nullptr));
  return kResultBytes + bytes;
}

PetscErrorCode FSAIScaling_CUDA(const CSRView *A, PetscInt first, PetscReal *s, PetscReal *d, void *work, FSAIStats *stats)
{
  Result *const  result = (Result *)work;
  const PetscInt rows   = A->n - first;
  size_t         bytes  = FSAIWorkBytes_CUDA(rows) - kResultBytes;
  cudaStream_t   stream;
  Result         host;

  PetscFunctionBegin;
  stats->failure        = FSAI_OK;
  stats->log_psi_before = 0;
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(&result->failure, kNoFailureByte, sizeof(result->failure), stream));
  FSAIDiagonal<kScanGroup><<<BlocksFor((long long)A->n * kScanGroup), kBlockSize, 0, stream>>>(*A, first, s, d, result);
  FinePCCheckLaunch();
  PetscCall(SumLogs((char *)work + kResultBytes, &bytes, rows, d, &result->sum, stream));
  PetscCallCUDA(cudaMemcpyAsync(&host, result, sizeof(host), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  if (host.failure != kNoFailure) {
    stats->failure     = (FSAIFailure)(host.failure % 4);
    stats->failure_row = (PetscInt)(host.failure / 4);
  } else if (rows) stats->log_psi_before = host.sum / rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FSAIMeanLog_CUDA(PetscInt n, const PetscReal *d, void *work, PetscReal *mean)
{
  Result *const result = (Result *)work;
  size_t        bytes  = FSAIWorkBytes_CUDA(n) - kResultBytes;
  cudaStream_t  stream;

  PetscFunctionBegin;
  *mean = 0;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(SumLogs((char *)work + kResultBytes, &bytes, n, d, &result->sum, stream));
  PetscCallCUDA(cudaMemcpyAsync(mean, &result->sum, sizeof(*mean), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  *mean /= n;
  PetscFunctionReturn(PETSC_SUCCESS);
}
