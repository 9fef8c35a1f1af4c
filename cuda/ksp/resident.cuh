/*
   What the kernels that stay on the GPU for many iterations share. Such a kernel has at most one block on each processor, and a
   block has the same rows all the time; what other blocks write is read from the L2.
*/
#pragma once

#include "sparse/slices.cuh"

constexpr int kResidentPolls = 5; /* numbers of other blocks that a lane looks at together */

/* Copies elements first .. last - 1 of an array to `to`, in pieces of 16 bytes, and gives where element 0 would be then. */
template <typename T>
__device__ T *CopyIn(const T *from, size_t first, size_t last, char *&to)
{
  const size_t begin = (size_t)(from + first) / sizeof(int4) * sizeof(int4),
               end   = ((size_t)(from + last) + sizeof(int4) - 1) / sizeof(int4) * sizeof(int4);
  char *const place  = to;
  for (size_t k = threadIdx.x; k < (end - begin) / sizeof(int4); k += blockDim.x) ((int4 *)place)[k] = ((const int4 *)begin)[k];
  to += end - begin;
  return (T *)(place + ((size_t)from - begin));
}

/* A is `from`, but the block's slices begin .. end - 1 are in shared memory, from `to` on, if they fit into what is left of it. */
__device__ __forceinline__ void BringSlices(const Slices &from, Slices *A, LocalInt begin, LocalInt end, char *&to,
                                            const char *limit)
{
  const LocalInt first_step = from.step[begin], last_step = from.step[end];
  const size_t   first = (size_t)first_step * kWarpSize, last = (size_t)last_step * kWarpSize;
  const size_t   bytes =
    (last - first) * (sizeof(LocalInt) + sizeof(double)) + (end - begin + 1) * sizeof(LocalInt) + 3 * 2 * sizeof(int4);
  const bool fits = begin < end && to + bytes <= limit;
  if (threadIdx.x == 0) *A = from;
  if (!fits) return;
  LocalInt *const step   = CopyIn(from.step, begin, end + 1, to);
  LocalInt *const column = CopyIn((const LocalInt *)from.column, first, last, to);
  double *const   value  = CopyIn((const double *)from.value, first, last, to);
  if (threadIdx.x == 0) {
    A->step   = step;
    A->column = column;
    A->value  = value;
  }
}

/*
   Calls act(row, sum over the row of W) in the first lane of every row of the block, which has so many warps; rows count from the
   first one of the block.
*/
template <int Lanes, int Warps, typename Vector, typename Act>
__device__ __forceinline__ void ForRows(const Slices &W, LocalInt first, LocalInt begin, LocalInt end, Vector x, Act act)
{
#pragma unroll 1
  for (LocalInt slice = begin + threadIdx.x / kWarpSize; slice < end; slice += Warps) {
    const LocalInt row = SlicePlace<Lanes>(slice);
    const double   sum = SliceSum<Lanes>(W, slice, x);
    if (row < W.rows && threadIdx.x % Lanes == 0) act(row - first, sum);
  }
}

/*
   The lanes a row of the fewest steps one after the other, where a turn costs the latency of some steps in itself; and the rows a
   block. There are fewer blocks than processors where a block would have less than a row for each group of lanes.
*/
inline void ResidentGeometry(int processors, int threads, LocalInt rows, LocalInt nnz, LocalInt *lanes, LocalInt *block_rows)
{
  constexpr LocalInt kTurnWorth = 8;
  const LocalInt     least = (rows + processors - 1) / processors, mean = nnz / rows + 1;
  LocalInt           best = LOCAL_INT_MAX;
  for (LocalInt some = 1; some <= kWarpSize; some *= 2) {
    const LocalInt turns = (least * some + threads - 1) / threads, cost = turns * ((mean + some - 1) / some + kTurnWorth);
    if (cost < best) {
      best   = cost;
      *lanes = some;
    }
  }
  const LocalInt per_slice = kWarpSize / *lanes, full = PetscMax(least, threads / *lanes);
  *block_rows = (full + per_slice - 1) / per_slice * per_slice;
}
