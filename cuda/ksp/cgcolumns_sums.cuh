/* Sums of the columns of interleaved block vectors over the grid. */
#pragma once

#include "cgcolumns.cuh"
#include "cgcolumns_product.cuh"

/*
   The sums of each column over the grid, always in the same order: x[k] has what the calling lane has of its two columns in sum k.
   The block that comes last gets true, and column c of sum k in total[k * Columns + c], which all of its threads see.
*/
template <int Columns, int Count>
__device__ __forceinline__ bool SumColumnsLast(double2 (&x)[Count], double *partial, unsigned *ticket, double *total)
{
  using L                  = ColumnLanes<Columns>;
  constexpr int     kWarps = kCGBlock / kWarpSize, kSums = Count * Columns;
  const int         warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  __shared__ double part[kWarps][kSums];
  __shared__ bool   last;
#pragma unroll
  for (int k = 0; k < Count; k++) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset >= L::row; offset /= 2) {
      x[k].x += __shfl_xor_sync(kFullWarp, x[k].x, offset);
      x[k].y += __shfl_xor_sync(kFullWarp, x[k].y, offset);
    }
    if (lane < L::row) {
      part[warp][k * Columns + 2 * lane]     = x[k].x;
      part[warp][k * Columns + 2 * lane + 1] = x[k].y;
    }
  }
  __syncthreads();
  if (threadIdx.x < kSums) {
    double sum = 0;
    for (int w = 0; w < kWarps; w++) sum += part[w][threadIdx.x];
    partial[threadIdx.x * gridDim.x + blockIdx.x] = sum;
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return false;
  __threadfence();
  for (int s = warp; s < kSums; s += kWarps) {
    double sum = 0;
    for (unsigned b = lane; b < gridDim.x; b += kWarpSize) sum += __ldcg(partial + s * gridDim.x + b);
    sum = GroupSum<kWarpSize>(sum);
    if (lane == 0) total[s] = sum;
  }
  __syncthreads();
  return true;
}
