/* CUDA twin of src/pc/fsai_host.cxx: a group of lanes takes a row; of several failures the one of the smallest row is kept. */
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "pc/fsai.h"
#include "scratch.cuh"
#include "sparse/transfer.cuh"

namespace
{

using Count = unsigned long long;

constexpr int   kNoFailureByte = 0xff;
constexpr Count kNoFailure     = ~0ull; /* all bytes kNoFailureByte */

/* What the kernels write and the host reads. */
struct Result {
  Count  failure; /* (row, FSAIFailure) of the first unusable row, packed by PackFailure() */
  double sum;
};

__device__ inline Count PackFailure(LocalInt row, FSAIFailure failure)
{
  return (Count)row * 4 + failure;
}

/* s = diag(A)^{-1/2}, d = diag(A) of rows first .., and the failure if A cannot be preconditioned at all. */
template <int GroupSize>
__global__ void FSAIDiagonal(CSRView A, LocalInt first, PetscReal *s, PetscReal *d, Result *result)
{
  const LocalInt row    = (LocalInt)(GridThread() / GroupSize);
  const int      lane   = threadIdx.x % GroupSize;
  bool           finite = true, found = false;
  if (row < A.n) {
    for (LocalInt k = A.i[row] + lane; k < A.i[row + 1]; k += GroupSize) {
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

/* Whether a mark has changed. */
__device__ inline bool Differs(float now, float before)
{
  const float change = fabsf(now - before);
  return change > (float)kFSAIChange * fmaxf(now, before) && change > (float)kFSAILeastChange;
}

/* The marks, or, with `changed`, how many rows have others. They may differ from those of the host by rounding. */
template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize)
  FindMarks(CSRView A, LocalInt first, const PetscReal *d, float *marks, LocalInt *changed)
{
  const long long at       = GridThread() / GroupSize;
  const LocalInt  row      = first + (LocalInt)at;
  const bool      here     = at < A.n - first;
  PetscReal       diagonal = 0, others = 0;
  bool            differs = false;
  if (here)
    for (LocalInt k = A.i[row] + threadIdx.x % GroupSize; k < A.i[row + 1]; k += GroupSize) {
      if (A.j[k] == row) diagonal = fabs(A.a[k]);
      else others += A.a[k] * A.a[k];
    }
  diagonal = GroupMax<GroupSize>(diagonal);
  others   = GroupSum<GroupSize>(others);
  if (here && threadIdx.x % GroupSize == 0) {
    if (!(diagonal > 0)) diagonal = 1;
    float *before = marks + 2 * at, gain = (float)log(diagonal * fabs(d[at])), coupling = (float)(others / (diagonal * diagonal));
    if (changed) differs = Differs(gain, before[0]) || Differs(coupling, before[1]);
    else {
      before[0] = gain;
      before[1] = coupling;
    }
  }
  const int count = __syncthreads_count(differs);
  if (count && threadIdx.x == 0) atomicAdd(changed, count);
}

struct LogOf {
  const PetscReal  *x;
  __device__ double operator()(LocalInt k) const { return log(x[k]); }
};

/* CUB's call for *sum = sum of log d [n]. */
auto SumLogs(LocalInt n, const PetscReal *d, double *sum, cudaStream_t stream)
{
  const auto logs = thrust::make_transform_iterator(thrust::counting_iterator<LocalInt>(0), LogOf{d});
  return [=](void *memory, size_t &bytes) { return cub::DeviceReduce::Sum(memory, bytes, logs, sum, n, stream); };
}

/* The work space of this file, in memory of the caller. */
struct Work {
  Result    *result = nullptr;
  CubScratch scratch;
  Layout     layout;

  /* What the logarithms of n numbers need. */
  PetscErrorCode Measure(LocalInt n)
  {
    PetscFunctionBegin;
    PetscCall(scratch.Measure(SumLogs(n, nullptr, nullptr, nullptr)));
    layout.Place(&result, 1);
    scratch.Place(&layout);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

} // namespace

size_t FSAIWorkBytes_CUDA(LocalInt n)
{
  Work work;

  PetscCallAbort(PETSC_COMM_SELF, work.Measure(n));
  return work.layout.bytes();
}

PetscErrorCode FSAIScaling_CUDA(const CSRView *A, LocalInt first, PetscReal *s, PetscReal *d, void *memory, FSAIStats *stats)
{
  const LocalInt rows = A->n - first;
  cudaStream_t   stream;
  Result         host;
  Work           work;

  PetscFunctionBegin;
  stats->failure        = FSAI_OK;
  stats->log_psi_before = 0;
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work.Measure(rows));
  work.layout.Bind(memory);
  PetscCallCUDA(cudaMemsetAsync(&work.result->failure, kNoFailureByte, sizeof(work.result->failure), stream));
  FSAIDiagonal<kScanGroup><<<BlocksFor((long long)A->n * kScanGroup), kBlockSize, 0, stream>>>(*A, first, s, d, work.result);
  FinePCCheckLaunch();
  PetscCall(work.scratch.Run(SumLogs(rows, d, &work.result->sum, stream)));
  PetscCall(SmallRead(work.result, sizeof(host), &host, stream));
  if (host.failure != kNoFailure) {
    stats->failure     = (FSAIFailure)(host.failure % 4);
    stats->failure_row = (LocalInt)(host.failure / 4);
  } else if (rows) stats->log_psi_before = host.sum / rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FSAIMeanLog_CUDA(LocalInt n, const PetscReal *d, void *memory, PetscReal *mean)
{
  cudaStream_t stream;
  Work         work;

  PetscFunctionBegin;
  *mean = 0;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work.Measure(n));
  work.layout.Bind(memory);
  PetscCall(work.scratch.Run(SumLogs(n, d, &work.result->sum, stream)));
  PetscCall(SmallRead(&work.result->sum, sizeof(*mean), mean, stream));
  *mean /= n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FSAIMarks_CUDA(const CSRView *A, LocalInt first, const PetscReal *d, float *marks, LocalInt *changed)
{
  const LocalInt rows = A->n - first;
  LocalInt      *sum  = changed ? (LocalInt *)(marks + 2 * (size_t)rows) : nullptr;
  cudaStream_t   stream;

  PetscFunctionBegin;
  static_assert(sizeof(*sum) == sizeof(*marks));
  if (changed) *changed = 0;
  if (!rows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  if (changed) PetscCallCUDA(cudaMemsetAsync(sum, 0, sizeof(*sum), stream));
  FindMarks<kScanGroup><<<BlocksFor((long long)rows * kScanGroup), kBlockSize, 0, stream>>>(*A, first, d, marks, sum);
  FinePCCheckLaunch();
  if (!changed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(SmallRead(sum, sizeof(*changed), changed, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
