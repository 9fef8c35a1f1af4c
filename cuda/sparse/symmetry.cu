/* CUDA twin of src/sparse/symmetry_host.cxx: a group of lanes takes a row, and each entry finds its partner by bisection. */
#include <cub/cub.cuh>

#include "scratch.cuh"
#include "search.cuh"
#include "sparse/symmetry.h"

namespace
{

using Count = unsigned long long;

static_assert(sizeof(Count) == sizeof(PetscInt64) && sizeof(Count) == sizeof(PetscReal),
              "counts are added as unsigned numbers, and reals that are not negative have the order of their bits");

/* The value of an entry, or 0 if it is not stored. */
__device__ PetscScalar Entry(const CSRView &A, LocalInt row, LocalInt column)
{
  const LocalInt end = A.i[row + 1], k = LowerBound(A.j, A.i[row], end, column);
  return k < end && A.j[k] == column ? A.a[k] : 0;
}

/*
   A number of a pair and its values, which the entries a_ij and a_ji have with opposite signs if they are equal: then they add up
   to 0. The numbers of the entries of a matrix add up to 0 by accident with a probability of 2^-64.
*/
__device__ Count Weight(LocalInt i, LocalInt j, PetscScalar a)
{
  Count h = ((Count)min(i, j) << 32 | (unsigned)max(i, j)) + (Count)__double_as_longlong(a) * 0x9e3779b97f4a7c15ull;
  h       = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull; /* as in splitmix64 */
  h       = (h ^ h >> 27) * 0x94d049bb133111ebull;
  h ^= h >> 31;
  return i < j ? h : 0 - h;
}

/* The sum of the numbers of all entries that are not 0. */
template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) AddWeights(CSRView A, Count *sum)
{
  __shared__ Count of_block;
  const LocalInt   row  = (LocalInt)(GridThread() / GroupSize);
  Count            mine = 0;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  if (row < A.n)
    for (LocalInt k = A.i[row] + threadIdx.x % GroupSize; k < A.i[row + 1]; k += GroupSize)
      if (A.j[k] != row && A.a[k] != 0) mine += Weight(row, A.j[k], A.a[k]);
  mine = GroupSum<kWarpSize>(mine);
  if (threadIdx.x % kWarpSize == 0) atomicAdd(&of_block, mine);
  __syncthreads();
  if (threadIdx.x == 0 && of_block) atomicAdd(sum, of_block);
}

template <int GroupSize>
__global__ void CheckSymmetry(CSRView A, LocalInt first, PetscScalar *values, CSRSymmetry *symmetry)
{
  const LocalInt row = (LocalInt)(GridThread() / GroupSize);
  if (row >= A.n) return;
  const PetscReal noise = kSymmetryNoise * fabs(Entry(A, row, row));
  for (LocalInt k = A.i[row] + threadIdx.x % GroupSize; k < A.i[row + 1]; k += GroupSize) {
    const LocalInt    column = A.j[k];
    const PetscScalar a = A.a[k], other = column == row ? a : Entry(A, column, row);
    const PetscReal   apart = fabs(a - other), larger = fmax(fabs(a), fabs(other));
    const bool        alone = other == 0 && apart > noise && isfinite(apart);
    if (values) values[k] = alone ? 0 : a;
    if (alone) atomicAdd((Count *)(max(row, column) < first ? &symmetry->foreign : &symmetry->one_sided), (Count)1);
    if (column < row || column < first || a == 0 || other == 0 || !(apart > kSymmetry * larger && apart > noise && isfinite(apart)))
      continue;
    atomicAdd((Count *)&symmetry->unequal, (Count)1);
    atomicMax((Count *)&symmetry->largest, (Count)__double_as_longlong(apart / larger));
  }
}

/* The diagonal entry of an isolated row, and 0 of other rows. */
__device__ PetscScalar IsolatedDiagonal(const CSRView &A, LocalInt row)
{
  PetscScalar diagonal = 0;
  for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
    if (A.j[k] == row) diagonal = A.a[k];
    else if (A.a[k] != 0) return 0;
  }
  return diagonal;
}

/* Counts the entries of each row of W, and if W has its arrays, writes them. */
__global__ void CarryRows(CSRView A, const PetscScalar *values, LocalInt *count, const LocalInt *W_i, LocalInt *W_j,
                          PetscScalar *W_a)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row >= A.n) return;
  LocalInt found = 0;
  for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
    if (values[k] != 0 || A.a[k] == 0) continue;
    const PetscScalar diagonal = IsolatedDiagonal(A, A.j[k]);
    if (diagonal == 0) continue;
    if (W_i) {
      W_j[W_i[row] + found] = A.j[k];
      W_a[W_i[row] + found] = -A.a[k] / diagonal;
    }
    found++;
  }
  if (count) count[row] = found;
}

} // namespace

PetscErrorCode CSRSymmetry_CUDA(const CSRView *A, LocalInt first, PetscScalar *values, CSRSymmetry *work, CSRSymmetry *symmetry)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  *symmetry = CSRSymmetry{};
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(work, 0, sizeof(*work), stream));
  if (!values) { /* most matrices are symmetric to the last bit, which is seen in less time than it takes to find partners */
    AddWeights<kScanGroup><<<BlocksFor((long long)A->n * kScanGroup), kBlockSize, 0, stream>>>(*A, (Count *)&work->one_sided);
    FinePCCheckLaunch();
    PetscCall(ArrayCopy_CUDA(symmetry, work, sizeof(*work), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    if (!symmetry->one_sided) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCallCUDA(cudaMemsetAsync(work, 0, sizeof(*work), stream));
  }
  CheckSymmetry<kScanGroup><<<BlocksFor((long long)A->n * kScanGroup), kBlockSize, 0, stream>>>(*A, first, values, work);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(symmetry, work, sizeof(*work), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRCarry_CUDA(const CSRView *A, const PetscScalar *values, CSR *W)
{
  const int        blocks = BlocksFor(A->n);
  cudaStream_t     stream;
  Buffer<LocalInt> count, starts;
  CubScratch       scratch;
  LocalInt         nnz  = 0;
  const auto       scan = [&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, count.data(), starts.data(), A->n + 1, stream);
  };

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(count.Allocate(A->n + 1));
  PetscCall(starts.Allocate(A->n + 1));
  PetscCallCUDA(cudaMemsetAsync(count.data(), 0, count.bytes(), stream));
  if (A->n) {
    CarryRows<<<blocks, kBlockSize, 0, stream>>>(*A, values, count.data(), nullptr, nullptr, nullptr);
    FinePCCheckLaunch();
  }
  PetscCall(scratch.Run(scan));
  PetscCall(ArrayCopy_CUDA(&nnz, starts.data() + A->n, sizeof(nnz), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscCall(CSRCreate(A->n, A->n, nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA, W));
  PetscCall(ArrayCopy_CUDA(W->i, starts.data(), starts.bytes(), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
  if (nnz) {
    CarryRows<<<blocks, kBlockSize, 0, stream>>>(*A, values, nullptr, W->i, W->j, (PetscScalar *)W->a);
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
