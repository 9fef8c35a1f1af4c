/* CUDA twin of src/csr_host.cxx, and device memory. */
#include <cub/cub.cuh>

#include <algorithm>

#include "buffer.cuh"

PetscErrorCode ArrayCreate_CUDA(size_t bytes, void **data)
{
  PetscFunctionBegin;
  *data = nullptr;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  const cudaError_t error = cudaMalloc(data, bytes);
  if (error == cudaErrorMemoryAllocation) (void)cudaGetLastError();
  PetscCheck(error != cudaErrorMemoryAllocation, PETSC_COMM_SELF, PETSC_ERR_MEM, "The device has no %zu bytes left", bytes);
  PetscCallCUDA(error);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayDestroy_CUDA(void **data)
{
  PetscFunctionBegin;
  if (*data) PetscCallCUDA(cudaFree(*data));
  *data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayCopy_CUDA(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  const bool to_device = PetscMemTypeDevice(to_where), from_device = PetscMemTypeDevice(from_where);
  PetscCallCUDA(cudaMemcpyAsync(to, from, bytes, to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice) : cudaMemcpyDeviceToHost, stream));
  if (!to_device) PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

namespace
{

constexpr int kCopyGroup     = 8;  /* lanes a row in the transpose */
constexpr int kSortedPerLane = 8;  /* indices that a lane keeps while it sorts a row */
constexpr int kStreamRows    = 256; /* rows, and threads, of a block of the streamed product */
constexpr int kStreamTile    = 2048; /* its products in shared memory */
constexpr int kColumnsAtOnce = 4;   /* right-hand sides that share one reading of the matrix */

__global__ void CountColumns(PetscInt nnz, const PetscInt *j, PetscInt *count)
{
  const long long k = GridThread();
  if (k < nnz) atomicAdd(count + j[k], 1);
}

/* Row numbers into the columns' segments, in any order. */
__global__ void FillColumns(PetscInt rows, const PetscInt *i, const PetscInt *j, PetscInt *cursor, PetscInt *Gt_j)
{
  const PetscInt row = (PetscInt)(GridThread() / kCopyGroup);
  if (row >= rows) return;
  for (PetscInt k = i[row] + threadIdx.x % kCopyGroup; k < i[row + 1]; k += kCopyGroup) Gt_j[atomicAdd(cursor + j[k], 1)] = row;
}

/* Sort rows of at most kCopyGroup * kSortedPerLane distinct indices: the place of each is how many are smaller. */
__global__ void SortShortRows(PetscInt rows, const PetscInt *i, PetscInt *j)
{
  const PetscInt row   = (PetscInt)(GridThread() / kCopyGroup);
  const int      lane  = threadIdx.x % kCopyGroup;
  const PetscInt begin = row < rows ? i[row] : 0, end = row < rows ? i[row + 1] : 0;
  PetscInt       index[kSortedPerLane], place[kSortedPerLane];
#pragma unroll
  for (int t = 0; t < kSortedPerLane; t++) {
    const PetscInt k = begin + lane + t * kCopyGroup;
    if (k >= end) continue;
    index[t] = j[k];
    place[t] = begin;
    for (PetscInt other = begin; other < end; other++) place[t] += j[other] < index[t];
  }
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kSortedPerLane; t++)
    if (begin + lane + t * kCopyGroup < end) j[place[t]] = index[t];
}

/* Gt_a from G: entry (row, i) of Gt is entry (i, row) of G, found by bisection. */
template <typename S>
__global__ void TransposeValues(PetscInt rows, const PetscInt *Gt_i, const PetscInt *Gt_j, const PetscInt *G_i, const PetscInt *G_j, const S *G_a, S *Gt_a)
{
  const PetscInt row = (PetscInt)(GridThread() / kCopyGroup);
  if (row >= rows) return;
  for (PetscInt k = Gt_i[row] + threadIdx.x % kCopyGroup; k < Gt_i[row + 1]; k += kCopyGroup) {
    PetscInt low = G_i[Gt_j[k]], high = G_i[Gt_j[k] + 1] - 1;
    while (low < high) {
      const PetscInt middle = low + (high - low) / 2;
      if (G_j[middle] < row) low = middle + 1;
      else high = middle;
    }
    Gt_a[k] = G_a[low];
  }
}

/* Groups of lanes a row, Columns right-hand sides at once. */
template <typename S, int GroupSize, int Columns>
__global__ void MultiplyGroups(PetscInt rows, const PetscInt *__restrict__ i, const PetscInt *__restrict__ j, const S *__restrict__ a, bool unit, const PetscScalar *__restrict__ d, const PetscScalar *__restrict__ X, PetscInt ldx, PetscScalar *__restrict__ Y, PetscInt ldy)
{
  const PetscInt row  = (PetscInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  const PetscInt end  = row < rows ? i[row + 1] : 0;
  double         sum[Columns];
#pragma unroll
  for (int c = 0; c < Columns; c++) sum[c] = 0;
  if (row < rows) {
#pragma unroll 4
    for (PetscInt k = i[row] + lane; k < end; k += GroupSize) {
      const double   value  = a[k];
      const PetscInt column = j[k];
#pragma unroll
      for (int c = 0; c < Columns; c++) sum[c] += value * X[column + (size_t)c * ldx];
    }
  }
#pragma unroll
  for (int c = 0; c < Columns; c++) sum[c] = GroupSum<GroupSize>(sum[c]);
  if (row >= rows || lane != 0) return;
#pragma unroll
  for (int c = 0; c < Columns; c++) {
    if (unit) sum[c] += X[row + (size_t)c * ldx];
    Y[row + (size_t)c * ldy] = d ? d[row] * sum[c] : sum[c];
  }
}

/* Short rows: a block reads the entries of its rows as one stream, and its threads sum a row each out of shared memory. */
template <typename S>
__global__ void __launch_bounds__(kStreamRows) MultiplyStream(PetscInt rows, const PetscInt *__restrict__ i, const PetscInt *__restrict__ j, const S *__restrict__ a, bool unit, const PetscScalar *__restrict__ d, const PetscScalar *__restrict__ x, PetscScalar *__restrict__ y)
{
  __shared__ double product[kStreamTile];

  const PetscInt first_row = blockIdx.x * kStreamRows, row = first_row + threadIdx.x;
  const PetscInt end_row = min(rows, first_row + kStreamRows);
  const PetscInt begin = i[first_row], end = i[end_row];
  const PetscInt row_begin = row < rows ? i[row] : end, row_end = row < rows ? i[row + 1] : end;
  double         sum = 0;
  for (PetscInt tile = begin; tile < end; tile += kStreamTile) {
#pragma unroll
    for (int t = 0; t < kStreamTile / kStreamRows; t++) {
      const PetscInt k = tile + t * kStreamRows + threadIdx.x;
      if (k < end) product[t * kStreamRows + threadIdx.x] = (double)a[k] * x[j[k]];
    }
    __syncthreads();
    const PetscInt from = max(row_begin, tile), to = min(row_end, tile + kStreamTile);
    for (PetscInt k = from; k < to; k++) sum += product[k - tile];
    __syncthreads();
  }
  if (row >= rows) return;
  if (unit) sum += x[row];
  y[row] = d ? d[row] * sum : sum;
}

template <typename S, int GroupSize>
PetscErrorCode LaunchGroups(const CSR &W, bool unit, const PetscScalar *d, PetscInt columns, const PetscScalar *X, PetscInt ldx, PetscScalar *Y, PetscInt ldy, cudaStream_t stream)
{
  const int blocks = BlocksFor((long long)W.rows * GroupSize);
  PetscInt  c      = 0;

  PetscFunctionBegin;
  for (; c + kColumnsAtOnce <= columns; c += kColumnsAtOnce) MultiplyGroups<S, GroupSize, kColumnsAtOnce><<<blocks, kBlockSize, 0, stream>>>(W.rows, W.i, W.j, (const S *)W.a, unit, d, X + (size_t)c * ldx, ldx, Y + (size_t)c * ldy, ldy);
  for (; c < columns; c++) MultiplyGroups<S, GroupSize, 1><<<blocks, kBlockSize, 0, stream>>>(W.rows, W.i, W.j, (const S *)W.a, unit, d, X + (size_t)c * ldx, ldx, Y + (size_t)c * ldy, ldy);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The one place that chooses how rows meet lanes: by the mean row length. */
template <typename S>
PetscErrorCode Multiply(const CSR &W, bool unit, const PetscScalar *d, PetscInt columns, const PetscScalar *X, PetscInt ldx, PetscScalar *Y, PetscInt ldy, cudaStream_t stream)
{
  const PetscInt mean = W.nnz / W.rows;

  PetscFunctionBegin;
  if (columns == 1 && mean < 16) {
    MultiplyStream<S><<<BlocksFor(W.rows, kStreamRows), kStreamRows, 0, stream>>>(W.rows, W.i, W.j, (const S *)W.a, unit, d, X, Y);
    FinePCCheckLaunch();
  } else if (mean < 4) PetscCall((LaunchGroups<S, 2>(W, unit, d, columns, X, ldx, Y, ldy, stream)));
  else if (mean < 16) PetscCall((LaunchGroups<S, 4>(W, unit, d, columns, X, ldx, Y, ldy, stream)));
  else if (mean < 32) PetscCall((LaunchGroups<S, 8>(W, unit, d, columns, X, ldx, Y, ldy, stream)));
  else if (mean < 64) PetscCall((LaunchGroups<S, 16>(W, unit, d, columns, X, ldx, Y, ldy, stream)));
  else PetscCall((LaunchGroups<S, 32>(W, unit, d, columns, X, ldx, Y, ldy, stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CSRTranspose_CUDA(const CSR *G, PetscBool keep, CSR *Gt)
{
  const PetscInt rows = G->columns;
  const int      row_blocks = BlocksFor((long long)rows * kCopyGroup);
  cudaStream_t   stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (!keep) {
    Buffer<PetscInt> cursor;
    Buffer<char>     scratch;
    size_t           bytes = 0, max_bytes = 0;
    PetscInt         longest = 0;

    PetscCall(CSRCreate(rows, G->rows, G->nnz, G->precision, PETSC_MEMTYPE_CUDA, Gt));
    PetscCallCUDA(cudaMemsetAsync(Gt->i, 0, (rows + 1) * sizeof(PetscInt), stream));
    if (G->nnz) {
      PetscCall(cursor.Allocate(rows + 1));
      PetscCallCUDA(cudaMemsetAsync(cursor.data(), 0, (rows + 1) * sizeof(PetscInt), stream));
      CountColumns<<<BlocksFor(G->nnz), kBlockSize, 0, stream>>>(G->nnz, G->j, cursor.data());
      FinePCCheckLaunch();
      PetscCallCUDA(cub::DeviceScan::ExclusiveSum(nullptr, bytes, cursor.data(), Gt->i, rows + 1, stream));
      PetscCallCUDA(cub::DeviceReduce::Max(nullptr, max_bytes, cursor.data(), cursor.data() + rows, rows, stream));
      PetscCall(scratch.Allocate(std::max(bytes, max_bytes)));
      PetscCallCUDA(cub::DeviceScan::ExclusiveSum(scratch.data(), bytes, cursor.data(), Gt->i, rows + 1, stream));
      PetscCallCUDA(cub::DeviceReduce::Max(scratch.data(), max_bytes, cursor.data(), cursor.data() + rows, rows, stream));
      PetscCall(ArrayCopy_CUDA(&longest, cursor.data() + rows, sizeof(longest), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
      PetscCall(ArrayCopy_CUDA(cursor.data(), Gt->i, rows * sizeof(PetscInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
      FillColumns<<<BlocksFor((long long)G->rows * kCopyGroup), kBlockSize, 0, stream>>>(G->rows, G->i, G->j, cursor.data(), Gt->j);
      FinePCCheckLaunch();
      if (longest <= kCopyGroup * kSortedPerLane) {
        SortShortRows<<<row_blocks, kBlockSize, 0, stream>>>(rows, Gt->i, Gt->j);
        FinePCCheckLaunch();
      } else {
        /* the values, not there yet, lend their memory */
        cub::DoubleBuffer<PetscInt> index(Gt->j, (PetscInt *)Gt->a);
        PetscCallCUDA(cub::DeviceSegmentedSort::SortKeys(nullptr, bytes, index, G->nnz, rows, Gt->i, Gt->i + 1, stream));
        PetscCall(scratch.Allocate(bytes));
        PetscCallCUDA(cub::DeviceSegmentedSort::SortKeys(scratch.data(), bytes, index, G->nnz, rows, Gt->i, Gt->i + 1, stream));
        if (index.Current() != Gt->j) PetscCall(ArrayCopy_CUDA(Gt->j, index.Current(), G->nnz * sizeof(PetscInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
      }
    }
  }
  if (G->nnz) {
    if (G->precision == FINEPC_SINGLE) TransposeValues<<<row_blocks, kBlockSize, 0, stream>>>(rows, Gt->i, Gt->j, G->i, G->j, (const float *)G->a, (float *)Gt->a);
    else TransposeValues<<<row_blocks, kBlockSize, 0, stream>>>(rows, Gt->i, Gt->j, G->i, G->j, (const double *)G->a, (double *)Gt->a);
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRMultiply_CUDA(const CSR *W, PetscBool unit, const PetscScalar *d, PetscInt columns, const PetscScalar *X, PetscInt ldx, PetscScalar *Y, PetscInt ldy)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!W->rows || !columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (W->precision == FINEPC_SINGLE) PetscCall(Multiply<float>(*W, unit, d, columns, X, ldx, Y, ldy, stream));
  else PetscCall(Multiply<double>(*W, unit, d, columns, X, ldx, Y, ldy, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
