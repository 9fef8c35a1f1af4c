/* CUDA twin of src/sparse/bsr_csr_host.cxx. */
#include <cub/cub.cuh>

#include <climits>

#include "scratch.cuh"
#include "search.cuh"
#include "sparse/bsr_csr.h"

namespace
{

constexpr int kTransposeGroup = 16; /* lanes that take a block row of the transpose together */
constexpr int kPointGroup     = 16; /* lanes that copy a row of single entries together */

/* The number of blocks in each block row or, where B_j is given, their block columns. Each thread takes a block row. */
__global__ void FindBlocks(CSRView A, LocalInt bs, LocalInt n, const LocalInt *B_i, LocalInt *count, LocalInt *B_j)
{
  const LocalInt I = (LocalInt)GridThread();
  if (I >= n) return;
  LocalInt at[kLargestBlock], found = 0;
  for (LocalInt r = 0; r < bs; r++) at[r] = A.i[I * bs + r];
  while (true) {
    LocalInt J = INT_MAX;
    for (LocalInt r = 0; r < bs; r++)
      if (at[r] < A.i[I * bs + r + 1]) J = min(J, A.j[at[r]] / bs);
    if (J == INT_MAX) break;
    if (B_j) B_j[B_i[I] + found] = J;
    found++;
    for (LocalInt r = 0; r < bs; r++)
      while (at[r] < A.i[I * bs + r + 1] && A.j[at[r]] / bs == J) at[r]++;
  }
  if (!B_j) count[I] = found;
}

/* Copies the entries of A into the blocks, which were zero. Each thread takes a row. */
__global__ void FillBlocks(CSRView A, LocalInt bs, const LocalInt *B_i, const LocalInt *B_j, PetscScalar *B_a)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row >= A.n) return;
  LocalInt k = B_i[row / bs];
  for (LocalInt e = A.i[row]; e < A.i[row + 1]; e++) {
    const LocalInt J = A.j[e] / bs;
    while (B_j[k] < J) k++;
    B_a[((size_t)k * bs + A.j[e] % bs) * bs + row % bs] = A.a[e];
  }
}

/*
   Row r of block row I of A begins at bs (bs B_i[I] + r L) for L blocks in the block row. A group of lanes takes a row. Without A_i
   the pattern is there already.
*/
__global__ void CopyPoints(BSRView B, LocalInt rows, LocalInt *A_i, LocalInt *A_j, PetscScalar *A_a)
{
  const LocalInt row = (LocalInt)(GridThread() / kPointGroup);
  if (row >= rows) return;
  const LocalInt bs = B.bs, r = row % bs, begin = B.i[row / bs], length = B.i[row / bs + 1] - begin;
  const LocalInt first = bs * (bs * begin + r * length);
  const int      lane  = threadIdx.x % kPointGroup;
  for (LocalInt e = lane; e < length * bs; e += kPointGroup) {
    const LocalInt k = begin + e / bs, c = e % bs;
    A_a[first + e] = B.a[((size_t)k * bs + c) * bs + r];
    if (A_i) A_j[first + e] = B.j[k] * bs + c;
  }
  if (A_i && lane == 0) {
    A_i[row + 1] = first + length * bs;
    if (!row) A_i[0] = 0;
  }
}

/* Block (row, j) of Wt is the transpose of block (j, row) of W, which is found by bisection. */
template <typename S>
__global__ void TransposeBlocks(BSR W, BSR Wt)
{
  const LocalInt row = (LocalInt)(GridThread() / kTransposeGroup);
  if (row >= Wt.rows) return;
  const int bs = (int)W.bs, bs2 = bs * bs;
  for (LocalInt k = Wt.i[row]; k < Wt.i[row + 1]; k++) {
    const LocalInt block = LowerBound(W.j, W.i[Wt.j[k]], W.i[Wt.j[k] + 1] - 1, row);
    const S *const from  = (const S *)W.a + (size_t)block * bs2;
    S *const       to    = (S *)Wt.a + (size_t)k * bs2;
    for (int e = threadIdx.x % kTransposeGroup; e < bs2; e += kTransposeGroup) to[e] = from[e % bs * bs + e / bs];
  }
}

} // namespace

PetscErrorCode BSRFromCSR_CUDA(const CSRView *A, LocalInt bs, PetscBool keep, BSR *B)
{
  const LocalInt n = A->n / bs;
  cudaStream_t   stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (!keep) {
    Buffer<char> work;
    Layout       layout;
    CubScratch   scratch;
    LocalInt    *i = nullptr, nnz = 0;
    const auto   scan = [&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, i, i, n + 1, stream);
    };

    PetscCall(scratch.Measure(scan));
    layout.Place(&i, n + 1);
    scratch.Place(&layout);
    PetscCall(layout.Allocate(&work));
    PetscCallCUDA(cudaMemsetAsync(i, 0, (n + 1) * sizeof(*i), stream));
    if (n) {
      FindBlocks<<<BlocksFor(n), kBlockSize, 0, stream>>>(*A, bs, n, nullptr, i, nullptr);
      FinePCCheckLaunch();
    }
    PetscCall(scratch.Run(scan));
    PetscCall(ArrayCopy_CUDA(&nnz, i + n, sizeof(nnz), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscCall(BSRCreate(bs, n, n, nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA, B));
    PetscCall(ArrayCopy_CUDA(B->i, i, (n + 1) * sizeof(*i), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    if (n) {
      FindBlocks<<<BlocksFor(n), kBlockSize, 0, stream>>>(*A, bs, n, B->i, nullptr, B->j);
      FinePCCheckLaunch();
    }
  }
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogGpuTimeBegin());
  PetscCallCUDA(cudaMemsetAsync(B->a, 0, (size_t)B->nnz * bs * bs * sizeof(PetscScalar), stream));
  FillBlocks<<<BlocksFor(A->n), kBlockSize, 0, stream>>>(*A, bs, B->i, B->j, (PetscScalar *)B->a);
  FinePCCheckLaunch();
  PetscCall(PetscLogGpuTimeEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRFromBSR_CUDA(const BSRView *B, PetscBool keep, CSR *A)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (!keep) {
    const LocalInt rows = B->n * B->bs;
    LocalInt       nnz;

    PetscCall(LocalIntCast((PetscInt64)B->nnz * B->bs * B->bs, "entries in blocks", &nnz));
    PetscCall(CSRCreate(rows, rows, nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA, A));
    if (!rows) PetscCallCUDA(cudaMemsetAsync(A->i, 0, sizeof(*A->i), stream));
  }
  if (!A->rows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogGpuTimeBegin());
  CopyPoints<<<BlocksFor((long long)A->rows * kPointGroup), kBlockSize, 0, stream>>>(*B, A->rows, keep ? nullptr : A->i, A->j,
                                                                                     (PetscScalar *)A->a);
  FinePCCheckLaunch();
  PetscCall(PetscLogGpuTimeEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The pattern of the transpose is found by transposing a matrix that has one number in the place of each block. These numbers do
   not matter, so that the first ones of W are taken.
*/
PetscErrorCode BSRTranspose_CUDA(const BSR *W, PetscBool keep, BSR *Wt)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (!keep) {
    const CSR pattern{W->rows, W->columns, W->nnz, W->i, W->j, W->a, FINEPC_SINGLE, W->where};
    CSR       transposed{};

    PetscCall(CSRTranspose_CUDA(&pattern, PETSC_FALSE, &transposed));
    PetscCall(BSRCreate(W->bs, W->columns, W->rows, W->nnz, W->precision, PETSC_MEMTYPE_CUDA, Wt));
    PetscCall(
      ArrayCopy_CUDA(Wt->i, transposed.i, ((size_t)Wt->rows + 1) * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    PetscCall(ArrayCopy_CUDA(Wt->j, transposed.j, Wt->nnz * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    PetscCall(CSRDestroy(&transposed));
  }
  if (!Wt->nnz) PetscFunctionReturn(PETSC_SUCCESS);
  const int blocks = BlocksFor((long long)Wt->rows * kTransposeGroup);
  PetscCall(PetscLogGpuTimeBegin());
  if (W->precision == FINEPC_SINGLE) TransposeBlocks<float><<<blocks, kBlockSize, 0, stream>>>(*W, *Wt);
  else TransposeBlocks<double><<<blocks, kBlockSize, 0, stream>>>(*W, *Wt);
  FinePCCheckLaunch();
  PetscCall(PetscLogGpuTimeEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}
