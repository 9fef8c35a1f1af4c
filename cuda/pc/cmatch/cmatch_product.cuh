/*
   Sparse products of CMATCH: row i of the result is the sum of rows of the right matrix, each times a coefficient, which row i of the
   left one lists. A group of lanes takes a row of the result and adds the listed rows, one after the other, to a table in shared
   memory. Rows that do not fit into their table are listed, and take the general path: a warp adds them up in a table with a place
   for every column. The order of the additions to an entry is that of the list, and within a listed row that of its entries.

   A Left has

     Count(i)                 listed rows of row i
     Get(i, t, &k, &value)    number k of the t-th one, and its coefficient

   and a Right

     Span(k, &begin, &length) places of the entries of row k
     Get(k, i, place, &column, &value)  the entry at a place, for row i of the result; a negative column: there is none
*/
#pragma once

#include "cmatch.cuh"

constexpr int kProductAhead = 4; /* listed rows whose first entries are asked for at once */

/* The rows of a product. Row i has length[i] entries from start[i] on. */
template <typename V>
struct ProductRows {
  PetscInt *start, *length, *j;
  V        *a;
  double   *diagonal;        /* of Split rows: the entry whose column is the row's number, which is not among the others */
  size_t    room;            /* entries that fit; rows beyond are not written, and report->entries tells how many there are */
  PetscInt *wide;            /* [rows] the rows that did not fit into their tables, report->wide of them */
  double    scale;           /* of all values */
  bool      fixed;           /* start, length and j are there, and get no new values */
};

/* A place for every column that a row meets: by hashing, or, with `direct`, the column itself. */
struct ProductTable {
  PetscInt *key; /* -1: free */
  double   *sum;
  int       bits; /* the logarithm of the size */
  bool      direct;
};

__device__ __forceinline__ int ProductFind(const ProductTable &table, PetscInt column)
{
  const int size = 1 << table.bits;
  int       slot = (int)((unsigned)column * 0x9E3779B1u >> (32 - table.bits));
  for (int tries = 0; tries < size; tries++) {
    PetscInt found = *(volatile PetscInt *)(table.key + slot);
    if (found == column) return slot;
    if (found < 0) {
      found = atomicCAS(table.key + slot, -1, column);
      if (found < 0 || found == column) return slot;
    }
    slot = (slot + 1) & (size - 1);
  }
  return -1;
}

/*
   Adds the lanes' values to their columns, those of the same column in the order of the lanes, if there can be such. All lanes of the
   warp take part, and groups have tables of their own. False: the table is full.
*/
template <int GroupSize, bool Repeated>
__device__ __forceinline__ bool ProductAdd(const ProductTable &table, PetscInt column, double value)
{
  int slot = -1;
  if (column >= 0) {
    if (table.direct) {
      slot            = column;
      table.key[slot] = column;
    } else slot = ProductFind(table, column);
  }
  if (Repeated) {
    const unsigned group  = (threadIdx.x % kWarpSize) / GroupSize;
    const unsigned long long own = (unsigned long long)(slot < 0 ? 0x80000000u + threadIdx.x % kWarpSize : (unsigned)slot) << 8 | group;
    const unsigned peers  = __match_any_sync(kFullWarp, own);
    const int      before = __popc(peers & ((1u << threadIdx.x % kWarpSize) - 1u));
    const int      most   = (int)__reduce_max_sync(kFullWarp, before);
    for (int turn = 0; turn <= most; turn++) {
      if (before == turn && slot >= 0) table.sum[slot] += value;
      __syncwarp();
    }
  } else {
    if (slot >= 0) table.sum[slot] += value;
    __syncwarp();
  }
  return slot >= 0 || column < 0;
}

/* Adds up row i, or nothing if i < 0. False in a lane that has met a full table. */
template <int GroupSize, bool Repeated, typename Left, typename Right>
__device__ __forceinline__ bool ProductSum(const Left &left, const Right &right, PetscInt i, const ProductTable &table)
{
  const int lane  = threadIdx.x % GroupSize;
  const int count = i < 0 ? 0 : left.Count(i), most = (int)__reduce_max_sync(kFullWarp, count);
  bool      fits  = true;
  for (int first = 0; first < most; first += GroupSize) {
    PetscInt k = -1, begin = 0, length = 0;
    double   coefficient = 0;
    if (first + lane < count) {
      left.Get(i, first + lane, &k, &coefficient);
      if (k >= 0) right.Span(k, &begin, &length);
    }
    const int some = min(GroupSize, most - first);
    for (int t = 0; t < some; t += kProductAhead) {
      PetscInt column[kProductAhead], row[kProductAhead], from[kProductAhead], entries[kProductAhead];
      double   value[kProductAhead], factor[kProductAhead];
#pragma unroll
      for (int u = 0; u < kProductAhead; u++) {
        const int of = min(t + u, GroupSize - 1);
        row[u]       = __shfl_sync(kFullWarp, k, of, GroupSize);
        factor[u]    = __shfl_sync(kFullWarp, coefficient, of, GroupSize);
        from[u]      = __shfl_sync(kFullWarp, begin, of, GroupSize);
        entries[u]   = __shfl_sync(kFullWarp, length, of, GroupSize);
        if (t + u >= GroupSize) entries[u] = 0;
        column[u] = -1;
        value[u]  = 0;
        if (lane < entries[u]) right.Get(row[u], i, from[u] + lane, &column[u], &value[u]);
      }
#pragma unroll
      for (int u = 0; u < kProductAhead; u++) {
        fits &= ProductAdd<GroupSize, Repeated>(table, column[u], factor[u] * value[u]);
        const int longest = (int)__reduce_max_sync(kFullWarp, entries[u]);
        for (int q = GroupSize; q < longest; q += GroupSize) {
          column[u] = -1;
          if (q + lane < entries[u]) right.Get(row[u], i, from[u] + q + lane, &column[u], &value[u]);
          fits &= ProductAdd<GroupSize, Repeated>(table, column[u], factor[u] * value[u]);
        }
      }
    }
  }
  return fits;
}

/* Where the rows of a block begin in the memory of the result: each group has `count` entries. All threads of the block take part. */
template <int GroupSize, typename V>
__device__ __forceinline__ PetscInt ProductPlace(const ProductRows<V> &out, PetscInt i, PetscInt count, CMATCHReport *report)
{
  __shared__ unsigned           block_count;
  __shared__ unsigned long long block_start;
  PetscInt                      before = 0;
  if (out.fixed) return i < 0 ? 0 : out.start[i];
  if (threadIdx.x == 0) block_count = 0;
  __syncthreads();
  if (threadIdx.x % GroupSize == 0 && count > 0) before = (PetscInt)atomicAdd(&block_count, (unsigned)count);
  __syncthreads();
  if (threadIdx.x == 0) block_start = atomicAdd(&report->entries, (unsigned long long)block_count);
  __syncthreads();
  before = __shfl_sync(kFullWarp, before, 0, GroupSize);
  const unsigned long long start = block_start + (unsigned long long)before;
  const bool               fits  = start + (unsigned long long)count <= out.room;
  if (i >= 0 && threadIdx.x % GroupSize == 0) {
    out.start[i]  = fits ? (PetscInt)start : 0;
    out.length[i] = fits ? count : 0;
  }
  return fits ? (PetscInt)start : -1;
}

/*
   A group of lanes takes a row. Sorted: the columns of the result ascend. Split: the entry whose column is the row's own number is
   stored apart.
*/
template <int GroupSize, bool Repeated, bool Sorted, bool Split, typename V, typename Left, typename Right>
__global__ void __launch_bounds__(kBlockSize)
  ProductKernel(Left left, Right right, PetscInt rows, int bits, ProductRows<V> out, CMATCHReport *report)
{
  extern __shared__ double shared[];
  const int      groups = kBlockSize / GroupSize, group = threadIdx.x / GroupSize, lane = threadIdx.x % GroupSize, size = 1 << bits;
  const PetscInt i     = (PetscInt)(GridThread() / GroupSize) < rows ? (PetscInt)(GridThread() / GroupSize) : -1;
  /* one key more than places, so that groups that read the same place of their tables do not meet in a bank */
  const ProductTable table{(PetscInt *)(shared + (size_t)groups * size) + group * (size + 1), shared + (size_t)group * size, bits,
                           false};
  for (int slot = lane; slot < size; slot += GroupSize) {
    table.key[slot] = -1;
    table.sum[slot] = 0;
  }
  __syncwarp();
  bool fits = ProductSum<GroupSize, Repeated>(left, right, i, table);
  fits      = GroupBallot<GroupSize>(!fits) == 0;
  /* the places in use move to the front */
  PetscInt count    = 0;
  double   diagonal = 0;
  for (int first = 0; first < size; first += GroupSize) {
    const int      slot = first + lane;
    const PetscInt key  = slot < size ? table.key[slot] : -1;
    const double   sum  = slot < size ? table.sum[slot] : 0.;
    const bool     own = Split && key >= 0 && key == i, used = key >= 0 && !own;
    if (own) diagonal = sum;
    const unsigned ballot = GroupBallot<GroupSize>(used);
    const int      to     = count + __popc(ballot & ((1u << lane) - 1u));
    __syncwarp();
    if (used) {
      table.key[to] = key;
      table.sum[to] = sum;
    }
    count += __popc(ballot);
    __syncwarp();
  }
  if (Split) {
    diagonal = GroupSum<GroupSize>(diagonal); /* the other lanes have zeros */
    if (i >= 0 && fits && lane == 0) out.diagonal[i] = diagonal * out.scale;
  }
  if (i >= 0 && !fits && lane == 0) out.wide[atomicAdd(&report->wide, 1)] = i;
  if (i < 0 || !fits) count = 0;
  const PetscInt start = ProductPlace<GroupSize>(out, i, count, report);
  if (start < 0) return;
  for (PetscInt t = lane; t < count; t += GroupSize) {
    const PetscInt key   = table.key[t];
    PetscInt       place = t;
    if (Sorted) {
      place = 0;
      for (PetscInt other = 0; other < count; other++) place += table.key[other] < key;
    }
    if (!out.fixed) out.j[start + place] = key;
    out.a[start + place] = (V)(table.sum[t] * out.scale);
  }
}

/* The general path: a block of one warp takes listed rows in turns. keys [blocks][columns] are -1 and sums are 0 before and after. */
template <bool Repeated, bool Split, typename V, typename Left, typename Right>
__global__ void __launch_bounds__(kWarpSize)
  ProductWideKernel(Left left, Right right, PetscInt count, PetscInt columns, PetscInt *keys, double *sums, ProductRows<V> out,
                    CMATCHReport *report)
{
  const int          lane = threadIdx.x;
  const ProductTable table{keys + (size_t)blockIdx.x * columns, sums + (size_t)blockIdx.x * columns, 0, true};
  for (PetscInt w = blockIdx.x; w < count; w += gridDim.x) {
    const PetscInt i = out.wide[w];
    (void)ProductSum<kWarpSize, Repeated>(left, right, i, table);
    PetscInt entries = 0;
    for (PetscInt slot = lane; slot < columns; slot += kWarpSize) entries += table.key[slot] >= 0 && !(Split && slot == i);
    entries              = GroupSum<kWarpSize>(entries);
    const PetscInt start = ProductPlace<kWarpSize>(out, i, entries, report);
    PetscInt       to    = start;
    for (PetscInt first = 0; first < columns; first += kWarpSize) {
      const PetscInt slot = first + lane;
      const bool     met = slot < columns && table.key[slot] >= 0, own = Split && slot == i, used = met && !own;
      const unsigned ballot = __ballot_sync(kFullWarp, used);
      if (used && start >= 0) {
        const PetscInt place = to + __popc(ballot & ((1u << lane) - 1u));
        if (!out.fixed) out.j[place] = slot;
        out.a[place] = (V)(table.sum[slot] * out.scale);
      }
      if (met && own) out.diagonal[i] = table.sum[slot] * out.scale;
      if (met) {
        table.key[slot] = -1;
        table.sum[slot] = 0;
      }
      to += __popc(ballot);
    }
    __syncwarp();
  }
}

constexpr size_t kProductWideBytes = (size_t)64 << 20; /* of the tables of the general path */

/*
   Launches a product, and waits for it to see whether there are wide rows, or more entries than there is room for: then `room` is
   called with the number of entries, which makes room and sets it in `out`, and the product begins anew. *wide is the number of
   wide rows.
*/
template <int GroupSize, bool Repeated, bool Sorted, bool Split, typename V, typename Left, typename Right, typename Room>
PetscErrorCode Product(CMATCHSetup *s, const Left &left, const Right &right, PetscInt rows, PetscInt columns, int bits,
                       ProductRows<V> *out, PetscInt *wide, Room room)
{
  const auto   kernel = ProductKernel<GroupSize, Repeated, Sorted, Split, V, Left, Right>;
  const size_t groups = kBlockSize / GroupSize;
  const size_t shared = groups * ((sizeof(double) + sizeof(PetscInt) << bits) + sizeof(PetscInt));
  static_assert(GroupSize <= kWarpSize, "a group is a part of a warp");

  PetscFunctionBegin;
  PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
  while (true) {
    PetscCallCUDA(cudaMemsetAsync(&s->report->entries, 0, sizeof(s->report->entries), s->stream));
    PetscCallCUDA(cudaMemsetAsync(&s->report->wide, 0, sizeof(s->report->wide), s->stream));
    kernel<<<BlocksFor((long long)rows * GroupSize), kBlockSize, shared, s->stream>>>(left, right, rows, bits, *out, s->report);
    FinePCCheckLaunch();
    PetscCall(CMATCHReadReport(s));
    if (s->seen.wide) {
      const auto     mark   = s->arena.mark();
      const PetscInt tables = (PetscInt)PetscMax(
        1, PetscMin((size_t)PetscMin(s->seen.wide, 2 * s->H->processors), kProductWideBytes / (columns * (sizeof(double) + sizeof(PetscInt)))));
      PetscInt *keys;
      double   *sums;
      PetscCall(s->arena.Take((size_t)tables * columns, &keys));
      PetscCall(s->arena.Take((size_t)tables * columns, &sums));
      PetscCallCUDA(cudaMemsetAsync(keys, -1, (size_t)tables * columns * sizeof(*keys), s->stream));
      PetscCallCUDA(cudaMemsetAsync(sums, 0, (size_t)tables * columns * sizeof(*sums), s->stream));
      ProductWideKernel<Repeated, Split><<<tables, kWarpSize, 0, s->stream>>>(left, right, s->seen.wide, columns, keys, sums, *out,
                                                                             s->report);
      FinePCCheckLaunch();
      PetscCall(CMATCHReadReport(s));
      s->arena.Release(mark);
    }
    if (out->fixed || s->seen.entries <= out->room) break;
    PetscCall(room((size_t)s->seen.entries, out));
  }
  *wide = s->seen.wide;
  PetscFunctionReturn(PETSC_SUCCESS);
}
