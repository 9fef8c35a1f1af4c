/* CUDA twin of src/sparse/csr_host.cxx. */
#include <cub/cub.cuh>

#include "scratch.cuh"
#include "search.cuh"
#include "sparse/csr.h"

namespace
{

constexpr int kEntriesPerThread = 16; /* of a pass over all entries */

constexpr int kCopyGroup     = 8;   /* lanes that take a row in the transpose */
constexpr int kSortedPerLane = 8;   /* indices that a lane keeps while it sorts a row */
constexpr int kSortGroup     = 32;  /* lanes that sort a row which is too long for kCopyGroup */
constexpr int kMultiplyBlock = 128; /* threads of a block of the product */
constexpr int kColumnsAtOnce = 4;   /* right-hand sides that share one reading of the matrix */

/*
   The mean row lengths up to which Multiply_CSR() gives a row to one thread, to 2 lanes, to 8 lanes that load 4 entries ahead, and
   to 8 lanes that load 8 entries ahead.
*/
constexpr int kThreadRow = 8, kPairRow = 27, kEightRow = 47, kLongEightRow = 127;

/* A thread takes a row. */
__global__ void CopyDiagonal(CSRView A, PetscScalar *d)
{
  const long long row = GridThread();
  if (row >= A.n) return;
  PetscScalar sum = 0;
  for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
    if (A.j[k] == row) sum += A.a[k];
  d[row] = sum;
}

/*
   Entries that are not behind the one before, less those that begin a row. A thread takes every entry and every row that is a grid
   apart from its first one.
*/
__global__ void __launch_bounds__(kBlockSize) CountUnsorted(CSRView A, LocalInt *count)
{
  const long long step = (long long)gridDim.x * kBlockSize;
  const int       lane = threadIdx.x % kWarpSize;
  LocalInt        mine = 0;
  for (long long first = GridThread() - lane; first < A.nnz; first += step) {
    const long long k      = first + lane;
    const LocalInt  column = k < A.nnz ? A.j[k] : LOCAL_INT_MAX;
    LocalInt        before = __shfl_up_sync(kFullWarp, column, 1);
    if (lane == 0) before = k > 0 ? A.j[k - 1] : -1;
    mine += k < A.nnz && column <= before;
  }
  for (long long row = GridThread(); row < A.n; row += step) {
    const LocalInt k = A.i[row];
    if (k > 0 && k < A.i[row + 1]) mine -= A.j[k] <= A.j[k - 1];
  }
  mine = GroupSum<kWarpSize>(mine);
  if (lane == 0 && mine) atomicAdd(count, mine);
}

__global__ void NegateValues(size_t n, const PetscScalar *from, PetscScalar *to)
{
  const size_t k = (size_t)GridThread();
  if (k < n) to[k] = -from[k];
}

using HashSum = unsigned long long;
static_assert(sizeof(HashSum) == sizeof(uint64_t));

__device__ __forceinline__ HashSum Mix(HashSum place, LocalInt number)
{
  HashSum h = (place << 32 | (unsigned)number) * 0x9e3779b97f4a7c15ull;
  h         = (h ^ h >> 32) * 0xbf58476d1ce4e5b9ull;
  return h ^ h >> 29;
}

/* A thread takes every entry and every row start that is a grid apart from its first one. The sum of integers has no order. */
__global__ void __launch_bounds__(kBlockSize)
  AddHashes(LocalInt n, LocalInt nnz, const LocalInt *i, const LocalInt *j, HashSum *sum)
{
  __shared__ HashSum of_block;
  const long long    step = (long long)gridDim.x * kBlockSize;
  HashSum            mine = 0;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  for (long long k = GridThread(); k < nnz; k += step) mine += Mix((HashSum)k, j[k]);
  for (long long row = GridThread(); row < n && nnz; row += step) mine += Mix((HashSum)nnz + row, i[row]);
  mine = GroupSum<kWarpSize>(mine);
  if (threadIdx.x % kWarpSize == 0) atomicAdd(&of_block, mine);
  __syncthreads();
  if (threadIdx.x == 0) {
    if (blockIdx.x == 0) of_block += Mix(0xffffffffu, n);
    atomicAdd(sum, of_block);
  }
}

__global__ void CountColumns(LocalInt nnz, const LocalInt *j, LocalInt *count)
{
  const long long k = GridThread();
  if (k < nnz) atomicAdd(count + j[k], 1);
}

/* Every entry of G goes to the segment of its column, as row number and value; the order within a segment is left open. */
template <typename S>
__global__ void FillColumns(LocalInt rows, const LocalInt *i, const LocalInt *j, const S *a, LocalInt *cursor, LocalInt *Gt_j,
                            S *Gt_a)
{
  const LocalInt row = (LocalInt)(GridThread() / kCopyGroup);
  if (row >= rows) return;
  for (LocalInt k = i[row] + threadIdx.x % kCopyGroup; k < i[row + 1]; k += kCopyGroup) {
    const LocalInt to = atomicAdd(cursor + j[k], 1);
    Gt_j[to]          = row;
    Gt_a[to]          = a[k];
  }
}

/* Sorts rows of at most GroupSize * kSortedPerLane distinct indices: the place of an index is how many are smaller. */
template <typename S, int GroupSize>
__global__ void SortShortRows(LocalInt rows, const LocalInt *i, LocalInt *j, S *a)
{
  const LocalInt row   = (LocalInt)(GridThread() / GroupSize);
  const int      lane  = threadIdx.x % GroupSize;
  const LocalInt begin = row < rows ? i[row] : 0, end = row < rows ? i[row + 1] : 0;
  LocalInt       index[kSortedPerLane], place[kSortedPerLane];
  S              value[kSortedPerLane];
#pragma unroll
  for (int t = 0; t < kSortedPerLane; t++) {
    const LocalInt k = begin + lane + t * GroupSize;
    if (k >= end) continue;
    index[t] = j[k];
    value[t] = a[k];
    place[t] = begin;
    for (LocalInt other = begin; other < end; other++) place[t] += j[other] < index[t];
  }
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kSortedPerLane; t++)
    if (begin + lane + t * GroupSize < end) {
      j[place[t]] = index[t];
      a[place[t]] = value[t];
    }
}

/* The values of Gt on its pattern: entry (row, i) of Gt is entry (i, row) of G, which is found by bisection. */
template <typename S>
__global__ void TransposeValues(LocalInt rows, const LocalInt *Gt_i, const LocalInt *Gt_j, const LocalInt *G_i, const LocalInt *G_j,
                                const S *G_a, S *Gt_a)
{
  const LocalInt row = (LocalInt)(GridThread() / kCopyGroup);
  if (row >= rows) return;
  for (LocalInt k = Gt_i[row] + threadIdx.x % kCopyGroup; k < Gt_i[row + 1]; k += kCopyGroup) {
    const LocalInt *const G_row = G_i + Gt_j[k];
    Gt_a[k]                     = G_a[LowerBound(G_j, G_row[0], G_row[1] - 1, row)];
  }
}

template <typename S>
PetscErrorCode LaunchTransposeValues(const CSR &G, const CSR &Gt, cudaStream_t stream)
{
  PetscFunctionBegin;
  TransposeValues<<<BlocksFor((long long)Gt.rows * kCopyGroup), kBlockSize, 0, stream>>>(Gt.rows, Gt.i, Gt.j, G.i, G.j,
                                                                                         (const S *)G.a, (S *)Gt.a);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A group of lanes takes a row, for Columns right-hand sides at once. A lane asks for Ahead entries, then for their values of X,
   before it uses any. Past the end of the row stands a zero entry, at a column that is read anyway.
*/
template <typename S, int GroupSize, int Ahead, int Columns>
__global__ void __launch_bounds__(kMultiplyBlock)
  MultiplyRows(CSR W, bool unit, const PetscScalar *__restrict__ d, const PetscScalar *__restrict__ X, LocalInt ldx,
               PetscScalar *__restrict__ Y, LocalInt ldy)
{
  const S *__restrict__ a        = (const S *)W.a;
  const LocalInt *__restrict__ j = W.j;
  const LocalInt row             = (LocalInt)(GridThread() / GroupSize);
  const int      lane            = threadIdx.x % GroupSize;
  const bool     mine            = row < W.rows;
  const LocalInt end             = mine ? W.i[row + 1] : 0;
  const LocalInt spare           = min(row, W.columns - 1);
  double         sum[Columns];
#pragma unroll
  for (int c = 0; c < Columns; c++) sum[c] = 0;
  for (LocalInt k = mine ? W.i[row] + lane : 0; k < end; k += GroupSize * Ahead) {
    LocalInt column[Ahead];
    S        value[Ahead];
    double   x[Ahead];
#pragma unroll
    for (int t = 0; t < Ahead; t++) {
      const bool in = k + t * GroupSize < end;
      column[t]     = in ? j[k + t * GroupSize] : spare;
      value[t]      = in ? a[k + t * GroupSize] : S(0);
    }
#pragma unroll
    for (int c = 0; c < Columns; c++) {
#pragma unroll
      for (int t = 0; t < Ahead; t++) x[t] = X[column[t] + (size_t)c * ldx];
#pragma unroll
      for (int t = 0; t < Ahead; t++) sum[c] += k + t * GroupSize < end ? (double)value[t] * x[t] : 0.;
    }
  }
#pragma unroll
  for (int c = 0; c < Columns; c++) sum[c] = GroupSum<GroupSize>(sum[c]);
  if (!mine || lane != 0) return;
#pragma unroll
  for (int c = 0; c < Columns; c++) {
    if (unit) sum[c] += X[row + (size_t)c * ldx];
    Y[row + (size_t)c * ldy] = d ? d[row] * sum[c] : sum[c];
  }
}

/* A group of lanes takes one of the rows that are listed, or of all rows, for one right-hand side after the other. */
template <typename S, int GroupSize>
__global__ void MultiplyAddRows(CSR W, LocalInt count, const LocalInt *rows, const PetscScalar *d, LocalInt columns,
                                const PetscScalar *X, PetscScalar *Y, LocalInt ldy)
{
  const LocalInt r    = (LocalInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  const bool     mine = r < count;
  const LocalInt row = mine ? (rows ? rows[r] : r) : 0, begin = mine ? W.i[row] : 0, end = mine ? W.i[row + 1] : 0;
  for (LocalInt c = 0; c < columns; c++) {
    double sum = 0;
    for (LocalInt k = begin + lane; k < end; k += GroupSize) sum += (double)((const S *)W.a)[k] * X[(size_t)W.j[k] * columns + c];
    sum = GroupSum<GroupSize>(sum);
    if (begin < end && !lane) Y[row + (size_t)c * ldy] += d ? d[row] * sum : sum;
  }
}

/* A thread takes an entry. */
__global__ void InterleaveRows(LocalInt count, const LocalInt *rows, LocalInt columns, const PetscScalar *X, LocalInt ldx,
                               PetscScalar *to)
{
  const long long entry = GridThread();
  if (entry >= (long long)count * columns) return;
  to[entry] = X[rows[entry / columns] + (size_t)(entry % columns) * ldx];
}

template <typename S, int GroupSize, int Ahead>
PetscErrorCode LaunchRows(const CSR &W, bool unit, const PetscScalar *d, LocalInt columns, const PetscScalar *X, LocalInt ldx,
                          PetscScalar *Y, LocalInt ldy)
{
  const int    blocks = BlocksFor((long long)W.rows * GroupSize, kMultiplyBlock);
  LocalInt     c      = 0;
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  for (; c + kColumnsAtOnce <= columns; c += kColumnsAtOnce)
    MultiplyRows<S, GroupSize, Ahead, kColumnsAtOnce>
      <<<blocks, kMultiplyBlock, 0, stream>>>(W, unit, d, X + (size_t)c * ldx, ldx, Y + (size_t)c * ldy, ldy);
  for (; c < columns; c++)
    MultiplyRows<S, GroupSize, Ahead, 1>
      <<<blocks, kMultiplyBlock, 0, stream>>>(W, unit, d, X + (size_t)c * ldx, ldx, Y + (size_t)c * ldy, ldy);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The one place that chooses how many lanes take a row, by the mean row length. In measurements one thread with its loads ahead
   beat a stream through shared memory and wider groups up to 8 entries in a row, 2 lanes did so up to 27 entries, and 8 lanes
   with few loads ahead from there on.
*/
template <typename S>
PetscErrorCode Multiply_CSR(const CSR &W, bool unit, const PetscScalar *d, LocalInt columns, const PetscScalar *X, LocalInt ldx,
                            PetscScalar *Y, LocalInt ldy)
{
  const LocalInt mean = W.nnz / W.rows;

  PetscFunctionBegin;
  if (mean <= kThreadRow) PetscCall((LaunchRows<S, 1, 4>(W, unit, d, columns, X, ldx, Y, ldy)));
  else if (mean <= kPairRow) PetscCall((LaunchRows<S, 2, 8>(W, unit, d, columns, X, ldx, Y, ldy)));
  else if (mean <= kEightRow) PetscCall((LaunchRows<S, 8, 4>(W, unit, d, columns, X, ldx, Y, ldy)));
  else if (mean <= kLongEightRow) PetscCall((LaunchRows<S, 8, 8>(W, unit, d, columns, X, ldx, Y, ldy)));
  else PetscCall((LaunchRows<S, 32, 8>(W, unit, d, columns, X, ldx, Y, ldy)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The indices are sorted alone, with the memory of the values to swap with. Then the values are found again. */
template <typename S>
PetscErrorCode SortLongRows(const CSR &G, CSR &Gt, cudaStream_t stream)
{
  CubScratch                  scratch;
  cub::DoubleBuffer<LocalInt> index(Gt.j, (LocalInt *)Gt.a);
  const auto                  sort = [&](void *memory, size_t &bytes) {
    return cub::DeviceSegmentedSort::SortKeys(memory, bytes, index, G.nnz, Gt.rows, Gt.i, Gt.i + 1, stream);
  };

  PetscFunctionBegin;
  PetscCall(scratch.Run(sort));
  if (index.Current() != Gt.j)
    PetscCall(ArrayCopy_CUDA(Gt.j, index.Current(), G.nnz * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
  PetscCall(LaunchTransposeValues<S>(G, Gt, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The pattern and values of Gt, whose sorted rows do not depend on the order in which the entries were filled in. */
template <typename S>
PetscErrorCode Transpose_CSR(const CSR &G, CSR &Gt, cudaStream_t stream)
{
  const LocalInt rows       = Gt.rows;
  const int      row_blocks = BlocksFor((long long)rows * kCopyGroup);
  LocalInt      *cursor = nullptr, longest = 0;
  Buffer<char>   work;
  CubScratch     scratch;
  Layout         layout;
  const auto     scan = [&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, cursor, Gt.i, rows + 1, stream);
  };
  const auto max = [&](void *memory, size_t &bytes) {
    return cub::DeviceReduce::Max(memory, bytes, cursor, cursor + rows, rows, stream);
  };

  PetscFunctionBegin;
  PetscCall(scratch.Measure(scan));
  PetscCall(scratch.Measure(max));
  scratch.Place(&layout);
  layout.Place(&cursor, rows + 1);
  PetscCall(layout.Allocate(&work));
  PetscCallCUDA(cudaMemsetAsync(cursor, 0, (rows + 1) * sizeof(LocalInt), stream));
  CountColumns<<<BlocksFor(G.nnz), kBlockSize, 0, stream>>>(G.nnz, G.j, cursor);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(scan));
  PetscCall(scratch.Run(max));
  PetscCall(ArrayCopy_CUDA(&longest, cursor + rows, sizeof(longest), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscCall(ArrayCopy_CUDA(cursor, Gt.i, rows * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
  FillColumns<<<BlocksFor((long long)G.rows * kCopyGroup), kBlockSize, 0, stream>>>(G.rows, G.i, G.j, (const S *)G.a, cursor, Gt.j,
                                                                                    (S *)Gt.a);
  FinePCCheckLaunch();
  if (longest <= kCopyGroup * kSortedPerLane) {
    SortShortRows<S, kCopyGroup><<<row_blocks, kBlockSize, 0, stream>>>(rows, Gt.i, Gt.j, (S *)Gt.a);
    FinePCCheckLaunch();
  } else if (longest <= kSortGroup * kSortedPerLane) {
    SortShortRows<S, kSortGroup><<<BlocksFor((long long)rows * kSortGroup), kBlockSize, 0, stream>>>(rows, Gt.i, Gt.j, (S *)Gt.a);
    FinePCCheckLaunch();
  } else {
    work.Free();
    PetscCall(SortLongRows<S>(G, Gt, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CSRDiagonal_CUDA(const CSRView *A, PetscScalar *d)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  CopyDiagonal<<<BlocksFor(A->n), kBlockSize, 0, stream>>>(*A, d);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRCountUnsorted_CUDA(const CSRView *A, LocalInt *count)
{
  cudaStream_t     stream;
  Buffer<LocalInt> sum;

  PetscFunctionBegin;
  *count = 0;
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(sum.Allocate(1));
  PetscCallCUDA(cudaMemsetAsync(sum.data(), 0, sum.bytes(), stream));
  CountUnsorted<<<PetscMax(1, BlocksFor(A->nnz / kEntriesPerThread)), kBlockSize, 0, stream>>>(*A, sum.data());
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(count, sum.data(), sizeof(*count), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ValuesNegate_CUDA(size_t n, const PetscScalar *from, PetscScalar *to)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  NegateValues<<<BlocksFor((long long)n), kBlockSize, 0, stream>>>(n, from, to);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRHash_CUDA(const CSRView *A, uint64_t *work, uint64_t *hash)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(work, 0, sizeof(*work), stream));
  AddHashes<<<PetscMax(1, BlocksFor(A->nnz / kEntriesPerThread)), kBlockSize, 0, stream>>>(A->n, A->nnz, A->i, A->j,
                                                                                           (HashSum *)work);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(hash, work, sizeof(*hash), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRTranspose_CUDA(const CSR *G, PetscBool keep, CSR *Gt)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (!keep) PetscCall(CSRCreate(G->columns, G->rows, G->nnz, G->precision, PETSC_MEMTYPE_CUDA, Gt));
  if (!G->nnz) PetscCallCUDA(cudaMemsetAsync(Gt->i, 0, (Gt->rows + 1) * sizeof(LocalInt), stream));
  else if (!keep) {
    if (G->precision == FINEPC_SINGLE) PetscCall(Transpose_CSR<float>(*G, *Gt, stream));
    else PetscCall(Transpose_CSR<double>(*G, *Gt, stream));
  } else if (G->precision == FINEPC_SINGLE) PetscCall(LaunchTransposeValues<float>(*G, *Gt, stream));
  else PetscCall(LaunchTransposeValues<double>(*G, *Gt, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRMultiply_CUDA(const CSR *W, PetscBool unit, const PetscScalar *d, LocalInt columns, const PetscScalar *X,
                                LocalInt ldx, PetscScalar *Y, LocalInt ldy)
{
  PetscFunctionBegin;
  if (!W->rows || !columns) PetscFunctionReturn(PETSC_SUCCESS);
  if (W->precision == FINEPC_SINGLE) PetscCall(Multiply_CSR<float>(*W, unit, d, columns, X, ldx, Y, ldy));
  else PetscCall(Multiply_CSR<double>(*W, unit, d, columns, X, ldx, Y, ldy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRMultiplyAdd_CUDA(const CSR *W, LocalInt count, const LocalInt *rows, const PetscScalar *d, LocalInt columns,
                                   const PetscScalar *X, PetscScalar *Y, LocalInt ldy)
{
  constexpr int kGroup = 4; /* lanes of a row: rows of foreign columns are short */
  const int     blocks = BlocksFor((long long)count * kGroup);
  cudaStream_t  stream;

  PetscFunctionBegin;
  if (!count || !columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  if (W->precision == FINEPC_SINGLE)
    MultiplyAddRows<float, kGroup><<<blocks, kBlockSize, 0, stream>>>(*W, count, rows, d, columns, X, Y, ldy);
  else MultiplyAddRows<double, kGroup><<<blocks, kBlockSize, 0, stream>>>(*W, count, rows, d, columns, X, Y, ldy);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RowsInterleave_CUDA(LocalInt count, const LocalInt *rows, LocalInt columns, const PetscScalar *X, LocalInt ldx,
                                   PetscScalar *to)
{
  const int    blocks = BlocksFor((long long)count * columns);
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!count || !columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  InterleaveRows<<<blocks, kBlockSize, 0, stream>>>(count, rows, columns, X, ldx, to);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
