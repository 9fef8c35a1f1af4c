/* CUDA twin of src/sparse/symmetry_host.cxx: a group of lanes takes a row, and entries find their partners. */
#include <cmath>

#include <cub/cub.cuh>

#include "scratch.cuh"
#include "search.cuh"
#include "sparse/symmetry.h"

namespace
{

using Count = unsigned long long;

static_assert(sizeof(Count) == sizeof(PetscInt64) && sizeof(Count) == sizeof(PetscReal),
              "counts are added as unsigned numbers, and reals that are not negative have the order of their bits");

/* Where an entry is stored, or -1. */
__device__ LocalInt Place(const CSRView &A, LocalInt row, LocalInt column)
{
  const LocalInt end = A.i[row + 1], k = LowerBound(A.j, A.i[row], end, column);
  return k < end && A.j[k] == column ? k : -1;
}

/*
   The same of the partner of entry k of row i. In many matrices it has the place in its row from behind that this entry has from
   the front, or one as far away as the column there is from the one that is looked for.
*/
__device__ LocalInt Partner(const CSRView &A, LocalInt i, LocalInt k, LocalInt column)
{
  const LocalInt begin = A.i[column], last = A.i[column + 1] - 1, guess = last - (k - A.i[i]);
  if (guess < begin || guess > last) return Place(A, column, i);
  const LocalInt apart = A.j[guess] - i;
  return apart > guess - begin || apart < guess - last || A.j[guess - apart] != i ? Place(A, column, i) : guess - apart;
}

/* What is rounding, compared with the diagonal entry of a row. */
__device__ PetscReal Noise(const CSRView &A, LocalInt row)
{
  const LocalInt k = Place(A, row, row);
  return k < 0 ? 0 : kSymmetryNoise * fabs(A.a[k]);
}

/*
   A number of a pair and its values, which the entries a_ij and a_ji have with opposite signs if they are equal: then they add up
   to 0. The numbers of the entries of a matrix add up to 0 by accident with a probability of 2^-64.
*/
__device__ Count Number(LocalInt i, LocalInt j, PetscScalar a)
{
  Count h = ((Count)min(i, j) << 32 | (unsigned)max(i, j)) + (Count)__double_as_longlong(a) * 0x9e3779b97f4a7c15ull;
  h       = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull; /* as in splitmix64 */
  h       = (h ^ h >> 27) * 0x94d049bb133111ebull;
  h ^= h >> 31;
  return i < j ? h : 0 - h;
}

struct Exactness {
  Count sum, differs;
};

/*
   The sum of the numbers of all entries that are not 0, unless the first blocks, which look at pairs of some rows before, see one
   that differs, as by rounding in a matrix of finite elements: then all end soon. A group takes rows in turns.
*/
template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) AddNumbers(CSRView A, Exactness *exact)
{
  constexpr LocalInt kLooks = 64, kRows = kLooks * (kBlockSize / GroupSize); /* blocks that look, and rows */
  constexpr int      kOften = 2;                                             /* rows between two looks at what others have seen */
  __shared__ Count   of_block;
  const LocalInt     group = (LocalInt)(GridThread() / GroupSize), lane = threadIdx.x % GroupSize;
  const long long    groups = (long long)gridDim.x * (kBlockSize / GroupSize);
  Count              mine   = 0;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  if (group < A.n && blockIdx.x < kLooks) {
    const LocalInt look = A.n > kRows ? (LocalInt)((long long)group * A.n / kRows) : group;
    for (LocalInt k = A.i[look] + lane; k < A.i[look + 1]; k += GroupSize) {
      const LocalInt partner = Partner(A, look, k, A.j[k]);
      if (A.a[k] == (partner < 0 ? 0. : A.a[partner])) continue;
      exact->differs = 1;
      break;
    }
  }
  int turn = 0;
  for (long long row = group; row < A.n; row += groups) {
    if (++turn % kOften == 0 && *(volatile Count *)&exact->differs) break;
    for (LocalInt k = A.i[row] + lane; k < A.i[row + 1]; k += GroupSize)
      if (A.j[k] != row && A.a[k] != 0) mine += Number((LocalInt)row, A.j[k], A.a[k]);
  }
  mine = GroupSum<kWarpSize>(mine);
  if (threadIdx.x % kWarpSize == 0) atomicAdd(&of_block, mine);
  __syncthreads();
  if (threadIdx.x == 0 && of_block) atomicAdd(&exact->sum, of_block);
}

/* 1 / sqrt(|a_ii|), or no number without such an entry. In most rows it is the one in the middle. */
__global__ void __launch_bounds__(kBlockSize) FindScales(CSRView A, float *scale)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row >= A.n) return;
  const LocalInt  begin = A.i[row], middle = begin + (A.i[row + 1] - begin) / 2;
  const LocalInt  k = middle < A.i[row + 1] && A.j[middle] == row ? middle : Place(A, row, row);
  const PetscReal a = k < 0 ? 0 : fabs(A.a[k]);
  const float     s = a > 0 && isfinite(a) ? (float)rsqrt(a) : 0.f;
  scale[row]        = s > 1e-37f && isfinite(s) ? s : nanf("");
}

/*
   The entries of the scaled matrix with random weights, those above the diagonal less those below, and their squares. Of a positive
   definite matrix no scaled entry is larger than 1: where one is, it would hide others, and the sums are no numbers.
*/
struct Values {
  double sum, squares;
};

template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) AddValues(CSRView A, const float *scale, Values *values)
{
  __shared__ Values of_block;
  const LocalInt    row  = (LocalInt)(GridThread() / GroupSize);
  Values            mine = {};
  if (threadIdx.x == 0) of_block = Values{};
  __syncthreads();
  if (row < A.n) {
    constexpr int  kAhead = 4; /* entries that are asked for at once */
    const double   own    = scale[row];
    const LocalInt end    = A.i[row + 1];
    for (LocalInt from = A.i[row] + threadIdx.x % GroupSize; from < end; from += kAhead * GroupSize) {
      LocalInt  column[kAhead];
      PetscReal entry[kAhead];
#pragma unroll
      for (int v = 0; v < kAhead; v++) {
        const LocalInt k = from + v * GroupSize;
        column[v]        = k < end ? A.j[k] : row;
        entry[v]         = k < end ? A.a[k] : 0;
      }
#pragma unroll
      for (int v = 0; v < kAhead; v++) {
        const LocalInt j = column[v];
        if (j == row) continue;
        const unsigned weight = (unsigned)min(row, j) * 0x9e3779b1u + (unsigned)max(row, j) * 0x85ebca77u;
        const double   scaled = entry[v] * (own * (double)scale[j]);
        const double   value = fabs(scaled) <= 2 ? scaled * (double)((weight ^ weight >> 15) * 0x2c1b3c6du | 1u) : (double)nanf("");
        mine.sum += row < j ? value : -value;
        mine.squares += value * value;
      }
    }
  }
  mine.sum     = GroupSum<kWarpSize>(mine.sum);
  mine.squares = GroupSum<kWarpSize>(mine.squares);
  if (threadIdx.x % kWarpSize == 0) {
    atomicAdd(&of_block.sum, mine.sum);
    atomicAdd(&of_block.squares, mine.squares);
  }
  __syncthreads();
  if (threadIdx.x) return;
  atomicAdd(&values->sum, of_block.sum);
  atomicAdd(&values->squares, of_block.squares);
}

/* What an entry counts for that has no partner, of a row with so much rounding: whether it is a one-sided coupling. */
__device__ bool CountAlone(PetscScalar a, PetscReal noise, bool foreign, CSRSymmetry *symmetry)
{
  const bool alone = fabs(a) > noise && isfinite(a);
  if (alone) atomicAdd((Count *)(foreign ? &symmetry->foreign : &symmetry->one_sided), (Count)1);
  return alone;
}

/* What a pair counts for, both of which have a value. */
__device__ void CountPair(PetscScalar a, PetscScalar other, PetscReal noise, CSRSymmetry *symmetry)
{
  const PetscReal apart = fabs(a - other), larger = fmax(fabs(a), fabs(other));
  if (!(apart > kSymmetry * larger && apart > noise && isfinite(apart))) return;
  atomicAdd((Count *)&symmetry->unequal, (Count)1);
  atomicMax((Count *)&symmetry->largest, (Count)__double_as_longlong(apart / larger));
}

/*
   Looks at all pairs from the entries above the diagonal, which is everything if as many of them have a partner that is stored as
   there are entries below: `unpaired` is 0 then.
*/
template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) CheckPairs(CSRView A, LocalInt first, CSRSymmetry *symmetry)
{
  __shared__ Count of_block;
  const LocalInt   row  = (LocalInt)(GridThread() / GroupSize);
  Count            more = 0;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  if (row < A.n) {
    const PetscReal noise = Noise(A, row);
    for (LocalInt k = A.i[row] + threadIdx.x % GroupSize; k < A.i[row + 1]; k += GroupSize) {
      const LocalInt column = A.j[k];
      more -= column < row;
      if (column <= row) continue;
      const LocalInt    partner = Partner(A, row, k, column);
      const PetscScalar a = A.a[k], other = partner < 0 ? 0 : A.a[partner];
      more += partner >= 0;
      if (other == 0) CountAlone(a, noise, column < first, symmetry);
      else if (a == 0) CountAlone(other, Noise(A, column), column < first, symmetry);
      else if (column >= first) CountPair(a, other, noise, symmetry);
    }
  }
  more = GroupSum<kWarpSize>(more);
  if (threadIdx.x % kWarpSize == 0) atomicAdd(&of_block, more);
  __syncthreads();
  if (threadIdx.x == 0 && of_block) atomicAdd((Count *)&symmetry->unpaired, of_block);
}

/* The same from all entries. */
template <int GroupSize>
__global__ void CheckSymmetry(CSRView A, LocalInt first, PetscScalar *values, CSRSymmetry *symmetry)
{
  const LocalInt row = (LocalInt)(GridThread() / GroupSize);
  if (row >= A.n) return;
  const PetscReal noise = Noise(A, row);
  for (LocalInt k = A.i[row] + threadIdx.x % GroupSize; k < A.i[row + 1]; k += GroupSize) {
    const LocalInt    column = A.j[k], partner = column == row ? k : Partner(A, row, k, column);
    const PetscScalar a = A.a[k], other = partner < 0 ? 0 : A.a[partner];
    const bool        alone = other == 0 && CountAlone(a, noise, max(row, column) < first, symmetry);
    if (values) values[k] = alone ? 0 : a;
    if (column > row && column >= first && a != 0 && other != 0) CountPair(a, other, noise, symmetry);
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

/* Whether A is symmetric to the last bit. */
PetscErrorCode IsExact(const CSRView &A, CSRSymmetry *work, bool *exact, cudaStream_t stream)
{
  constexpr int kBlocks = 8; /* of a processor */
  Exactness     found;
  int           processors;

  PetscFunctionBegin;
  static_assert(sizeof(found) <= sizeof(*work), "it is in its place");
  PetscCall(ProcessorCount(&processors));
  PetscCallCUDA(cudaMemsetAsync(work, 0, sizeof(found), stream));
  AddNumbers<kScanGroup>
    <<<PetscMin(BlocksFor((long long)A.n * kScanGroup), kBlocks * processors), kBlockSize, 0, stream>>>(A, (Exactness *)work);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(&found, work, sizeof(found), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  *exact = !found.sum && !found.differs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether A is symmetric but for rounding. The sums are added up in any order, by which they are off by 1e-14 at most. */
PetscErrorCode IsRounded(const CSRView &A, CSRSymmetry *work, bool *rounded, cudaStream_t stream)
{
  Buffer<float> scale;
  Values        values;

  PetscFunctionBegin;
  static_assert(sizeof(values) <= sizeof(*work), "they are in its place");
  PetscCall(scale.Allocate(A.n));
  PetscCallCUDA(cudaMemsetAsync(work, 0, sizeof(values), stream));
  FindScales<<<BlocksFor(A.n), kBlockSize, 0, stream>>>(A, scale.data());
  AddValues<kScanGroup><<<BlocksFor((long long)A.n * kScanGroup), kBlockSize, 0, stream>>>(A, scale.data(), (Values *)work);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(&values, work, sizeof(values), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  *rounded =
    std::isfinite(values.squares) && values.squares > 0 && std::abs(values.sum) <= kSymmetryOfSums * std::sqrt(values.squares);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CSRSymmetry_CUDA(const CSRView *A, LocalInt first, PetscScalar *values, CSRSymmetry *work, CSRSymmetry *symmetry)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  const PetscInt64 differs = symmetry->differs;
  *symmetry                = CSRSymmetry{};
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  if (!values) { /* most matrices are symmetric, which is seen in less time than it takes to find partners */
    bool exact = false, rounded = false;
    if (differs == 0) PetscCall(IsExact(*A, work, &exact, stream));
    if (exact) PetscFunctionReturn(PETSC_SUCCESS);
    symmetry->differs = 1;
    if (differs <= 1) PetscCall(IsRounded(*A, work, &rounded, stream));
    if (rounded) PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallCUDA(cudaMemsetAsync(work, 0, sizeof(*work), stream));
  if (!values) {
    CheckPairs<kScanGroup><<<BlocksFor((long long)A->n * kScanGroup), kBlockSize, 0, stream>>>(*A, first, work);
    FinePCCheckLaunch();
    PetscCall(ArrayCopy_CUDA(symmetry, work, sizeof(*work), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    symmetry->differs = 2;
    if (!symmetry->unpaired) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCallCUDA(cudaMemsetAsync(work, 0, sizeof(*work), stream));
  }
  CheckSymmetry<kScanGroup><<<BlocksFor((long long)A->n * kScanGroup), kBlockSize, 0, stream>>>(*A, first, values, work);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(symmetry, work, sizeof(*work), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  symmetry->differs = 2;
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
