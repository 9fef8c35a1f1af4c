/* CUDA twin of src/bsr_csr_host.cxx. A thread takes a block row, then a row. */
#include <cub/cub.cuh>

#include <climits>

#include "buffer.cuh"
#include "../src/bsr_mat.h"

namespace
{

/* Blocks of each block row, or, where B_j is given, their columns. */
__global__ void FindBlocks(CSRView A, PetscInt bs, PetscInt n, const PetscInt *B_i, PetscInt *count, PetscInt *B_j)
{
  const PetscInt I = (PetscInt)GridThread();
  if (I >= n) return;
  PetscInt at[kLargestBlock], found = 0;
  for (PetscInt r = 0; r < bs; r++) at[r] = A.i[I * bs + r];
  while (true) {
    PetscInt J = INT_MAX;
    for (PetscInt r = 0; r < bs; r++)
      if (at[r] < A.i[I * bs + r + 1]) J = min(J, A.j[at[r]] / bs);
    if (J == INT_MAX) break;
    if (B_j) B_j[B_i[I] + found] = J;
    found++;
    for (PetscInt r = 0; r < bs; r++)
      while (at[r] < A.i[I * bs + r + 1] && A.j[at[r]] / bs == J) at[r]++;
  }
  if (!B_j) count[I] = found;
}

__global__ void FillBlocks(CSRView A, PetscInt bs, const PetscInt *B_i, const PetscInt *B_j, PetscScalar *B_a)
{
  const PetscInt row = (PetscInt)GridThread();
  if (row >= A.n) return;
  PetscInt k = B_i[row / bs];
  for (PetscInt e = A.i[row]; e < A.i[row + 1]; e++) {
    const PetscInt J = A.j[e] / bs;
    while (B_j[k] < J) k++;
    B_a[((size_t)k * bs + A.j[e] % bs) * bs + row % bs] = A.a[e];
  }
}

} // namespace

PetscErrorCode BSRFromCSR_CUDA(const CSRView *A, PetscInt bs, PetscBool keep, BSR *B)
{
  const PetscInt n = A->n / bs;
  cudaStream_t   stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (!keep) {
    Buffer<char> work;
    Layout       layout;
    size_t       bytes = 0;
    PetscInt     nnz   = 0;

    PetscCallCUDA(cub::DeviceScan::ExclusiveSum(nullptr, bytes, (PetscInt *)nullptr, (PetscInt *)nullptr, n + 1, stream));
    const size_t at_i = layout.Place<PetscInt>(n + 1), at_cub = layout.Place<char>(bytes);
    PetscCall(work.Allocate(layout.bytes()));
    PetscInt *const i = (PetscInt *)(work.data() + at_i);
    PetscCallCUDA(cudaMemsetAsync(i, 0, (n + 1) * sizeof(*i), stream));
    if (n) {
      FindBlocks<<<BlocksFor(n), kBlockSize, 0, stream>>>(*A, bs, n, nullptr, i, nullptr);
      FinePCCheckLaunch();
    }
    PetscCallCUDA(cub::DeviceScan::ExclusiveSum(work.data() + at_cub, bytes, i, i, n + 1, stream));
    PetscCall(ArrayCopy_CUDA(&nnz, i + n, sizeof(nnz), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscCall(BSRCreate(bs, n, n, nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA, B));
    PetscCall(ArrayCopy_CUDA(B->i, i, (n + 1) * sizeof(*i), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    if (n) {
      FindBlocks<<<BlocksFor(n), kBlockSize, 0, stream>>>(*A, bs, n, B->i, nullptr, B->j);
      FinePCCheckLaunch();
    }
  }
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallCUDA(cudaMemsetAsync(B->a, 0, (size_t)B->nnz * bs * bs * sizeof(PetscScalar), stream));
  FillBlocks<<<BlocksFor(A->n), kBlockSize, 0, stream>>>(*A, bs, B->i, B->j, (PetscScalar *)B->a);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
