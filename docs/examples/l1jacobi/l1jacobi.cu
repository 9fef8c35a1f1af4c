/* CUDA twin of l1jacobi_host.cxx: a group of lanes sums a row, so that sums differ by rounding. */
#include "buffer.cuh"
#include "l1jacobi.h"

namespace
{

template <int GroupSize>
__global__ void RowSums(CSRView A, PetscReal weight, PetscScalar *d, LocalInt *failure_row)
{
  const LocalInt row      = (LocalInt)(GridThread() / GroupSize);
  const int      lane     = threadIdx.x % GroupSize;
  PetscReal      diagonal = 0, others = 0;
  if (row < A.n) {
    for (LocalInt k = A.i[row] + lane; k < A.i[row + 1]; k += GroupSize) {
      if (A.j[k] == row) diagonal = A.a[k];
      else others += fabs(A.a[k]);
    }
  }
  const PetscReal sum = GroupSum<GroupSize>(diagonal) + weight * GroupSum<GroupSize>(others);
  if (row >= A.n || lane != 0) return;
  if (!(sum > 0 && isfinite(sum))) atomicMin(failure_row, row);
  d[row] = 1 / sum;
}

__global__ void Scale(LocalInt n, const PetscScalar *d, const PetscScalar *x, PetscScalar *y)
{
  const long long row = GridThread();
  if (row < n) y[row] = d[row] * x[row];
}

} // namespace

PetscErrorCode L1JacobiComputeFactor_CUDA(const CSRView *A, const L1JacobiParams *params, PetscScalar *d, LocalInt *failure_row)
{
  cudaStream_t     stream;
  Buffer<LocalInt> first;

  PetscFunctionBegin;
  *failure_row = -1;
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(first.Allocate(1));
  PetscCallCUDA(cudaMemcpyAsync(first.data(), &A->n, sizeof(A->n), cudaMemcpyHostToDevice, stream));
  RowSums<kScanGroup><<<BlocksFor((long long)A->n * kScanGroup), kBlockSize, 0, stream>>>(*A, params->weight, d, first.data());
  FinePCCheckLaunch();
  PetscCallCUDA(cudaMemcpyAsync(failure_row, first.data(), sizeof(*failure_row), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  if (*failure_row == A->n) *failure_row = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode L1JacobiApply_CUDA(LocalInt n, const PetscScalar *d, const PetscScalar *x, PetscScalar *y)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  Scale<<<BlocksFor(n), kBlockSize, 0, stream>>>(n, d, x, y);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
