/*
   Sparse products of CMATCH: row i of the result is the sum of rows of the right matrix, each times a coefficient, which row i of
   the left one lists. There are four ways to add up a row, and a row that does not fit one of them takes another one below it:

     - a group of lanes copies its entries, where most rows list one row
     - a thread with a short list of columns in shared memory, where rows are short
     - a group of lanes with a hash table in shared memory
     - a warp with a place for every column in global memory, the general path

   The order of the additions to an entry is that of the listed rows, and within one of these that of its entries, so that the bits
   of the result do not depend on the way.

   A Left has

     Count(i)                 listed rows of row i
     Get(i, t, &k, &value)    number k of the t-th one, and its coefficient; a negative number: there is none

   and a Right

     Span(k, &begin, &length) places of the entries of row k
     Get(k, i, place, &column, &value)  the entry at a place, for row i of the result; a negative column: there is none
     kMost                    a constant: no row has more entries. Then the lanes of a group take several listed rows at a time;
                              their number is a power of 2 that divides those of a group. Without it they take one.
*/
#pragma once

#include "cmatch.cuh"

constexpr int kProductAhead  = 4;   /* listed rows whose first entries are asked for at once */
constexpr int kProductAtOnce = 8;   /* entries that a thread asks for at once */
constexpr int kProductThread = 128; /* threads of a block in which a thread has a row */
constexpr int kProductLarge  = 10;  /* the logarithm of the largest hash table */
constexpr int kPackGroup     = 16;  /* lanes of a row without gaps */
constexpr int kCopyGroup     = 16;  /* lanes of a row that is one listed row */
constexpr int kProductTries  = 16;  /* pairs of places where a column is looked for in a hash table before it counts as full */
constexpr int kProductPlaces = 32;  /* at least the Room of a thread's row; a column and a place make one number of 32 bits */

constexpr int kProductIndexBits = 5, kProductIndex = 1 << kProductIndexBits; /* see ProductIndex */

constexpr LocalInt kProductMostColumns = (LocalInt)(0xffffffffu / kProductPlaces);

/* The rows of a product. Row i has length[i] entries from start[i] on. */
template <typename V>
struct ProductRows {
  LocalInt *start, *length, *j;
  V        *a;
  double   *diagonal; /* of Split rows: the entry whose column is the row's number, which is not among the others */
  size_t    room;     /* entries that fit; rows beyond are not written, and report->entries tells how many there are */
  LocalInt *wide;     /* [rows] the rows that did not fit into their tables, report->wide of them */
  bool      fixed;    /* start, length and j are there, and get no new values */
};

/* A place for every column that a row meets: by hashing, to pairs of places, or, with `direct`, the column itself. */
struct ProductTable {
  LocalInt *key; /* -1: free; the second one of a pair is free if the first one is */
  double   *sum;
  int       bits; /* the logarithm of the size */
  bool      direct;
};

/* The place of a column, or -1 if there is none left. A pair that was read too early is found to be so where a place is taken. */
__device__ __forceinline__ int ProductFind(const ProductTable &table, LocalInt column)
{
  struct alignas(2 * sizeof(LocalInt)) Pair {
    LocalInt first, second;
  };
  const int size = 1 << table.bits;
  int       slot = (int)((unsigned)column * 0x9E3779B1u >> (33 - table.bits)) * 2;
  for (int tries = 0; tries < kProductTries; tries++) {
    const Pair found = *(const Pair *)(table.key + slot);
    if (found.first == column) return slot;
    if (found.second == column) return slot + 1;
    if (found.second < 0) {
      LocalInt taken = found.first;
      if (taken < 0) taken = atomicCAS(table.key + slot, -1, column);
      if (taken < 0 || taken == column) return slot;
      taken = atomicCAS(table.key + slot + 1, -1, column);
      if (taken < 0 || taken == column) return slot + 1;
    }
    slot = (slot + 2) & (size - 1);
  }
  return -1;
}

/*
   Adds the lanes' values to their columns, those of the same column in the order of the lanes, if there can be such. All lanes of
   the warp take part, and groups have tables of their own. False: the table is full.
*/
template <int GroupSize, bool Repeated>
__device__ __forceinline__ bool ProductAdd(const ProductTable &table, LocalInt column, double value)
{
  int slot = -1;
  if (column >= 0) {
    if (table.direct) {
      slot            = column;
      table.key[slot] = column;
    } else slot = ProductFind(table, column);
  }
  if (Repeated) {
    const unsigned lane   = threadIdx.x % kWarpSize;
    const unsigned place  = slot < 0 ? ~lane : GroupSize == kWarpSize ? (unsigned)slot : lane / GroupSize << 24 | (unsigned)slot;
    const int      before = __popc(__match_any_sync(kFullWarp, place) & ((1u << lane) - 1u));
    for (int turn = 0; __any_sync(kFullWarp, before >= turn); turn++) {
      if (before == turn && slot >= 0) table.sum[slot] += value;
      __syncwarp();
    }
  } else {
    if (slot >= 0) table.sum[slot] += value;
    __syncwarp();
  }
  return slot >= 0 || column < 0;
}

/* Lanes of a listed row, of those of a group. */
template <typename Right, int GroupSize, typename = void>
constexpr int kLanesOfRow = GroupSize;
template <typename Right, int GroupSize>
constexpr int kLanesOfRow<Right, GroupSize, std::enable_if_t<(Right::kMost > 0)>> = Right::kMost;

/*
   Adds up row i, or nothing if i < 0. False in all lanes of a group whose table is full. All lanes of the warp take part, and the
   lanes of a group have the same listed rows, or successive ones if a row has few entries.
*/
template <int GroupSize, bool Repeated, typename Left, typename Right>
__device__ __forceinline__ bool ProductSum(const Left &left, const Right &right, LocalInt i, const ProductTable &table)
{
  constexpr int  kLanes = kLanesOfRow<Right, GroupSize>, kRows = GroupSize / kLanes; /* listed rows at a time */
  constexpr bool kMeet = Repeated || kRows > 1;
  const int      lane = threadIdx.x % kLanes, own = threadIdx.x % GroupSize / kLanes;
  int            count = i < 0 ? 0 : left.Count(i);
  bool           fits  = true;
  for (int t = 0; __any_sync(kFullWarp, t < count); t += kProductAhead * kRows) {
    LocalInt row[kProductAhead], from[kProductAhead], entries[kProductAhead], column[kProductAhead];
    double   factor[kProductAhead], value[kProductAhead];
#pragma unroll
    for (int u = 0; u < kProductAhead; u++) {
      const int list = t + u * kRows + own;
      row[u]         = -1;
      if (list < count) left.Get(i, list, &row[u], &factor[u]);
    }
#pragma unroll
    for (int u = 0; u < kProductAhead; u++) {
      from[u] = entries[u] = 0;
      if (row[u] >= 0) right.Span(row[u], &from[u], &entries[u]);
    }
#pragma unroll
    for (int u = 0; u < kProductAhead; u++) {
      column[u] = -1;
      if (lane < entries[u]) right.Get(row[u], i, from[u] + lane, &column[u], &value[u]);
    }
#pragma unroll
    for (int u = 0; u < kProductAhead; u++) {
      fits &= ProductAdd<GroupSize, kMeet>(table, column[u], column[u] < 0 ? 0. : factor[u] * value[u]);
      for (LocalInt q = GroupSize; kRows == 1 && __any_sync(kFullWarp, q < entries[u]); q += GroupSize) {
        column[u] = -1;
        if (q + lane < entries[u]) right.Get(row[u], i, from[u] + q + lane, &column[u], &value[u]);
        fits &= ProductAdd<GroupSize, kMeet>(table, column[u], column[u] < 0 ? 0. : factor[u] * value[u]);
      }
    }
    if (__any_sync(kFullWarp, !fits)) {
      fits = GroupBallot<GroupSize>(!fits) == 0;
      if (!fits) count = 0;
    }
  }
  return fits;
}

/* A row that has to take another way. */
__device__ __forceinline__ void ListWide(LocalInt *wide, LocalInt i, CMATCHReport *report)
{
  wide[atomicAdd(&report->wide, 1)] = i;
  report->amiss                     = 1;
}

/*
   Where the rows of a block begin in the memory of the result: each group has `count` entries. Those of a block are together, *all
   of them from *first on. All threads of the block take part.
*/
template <int GroupSize, typename V>
__device__ __forceinline__ LocalInt ProductPlace(const ProductRows<V> &out, LocalInt i, LocalInt count, CMATCHReport *report,
                                                 unsigned long long *first = nullptr, unsigned *all = nullptr)
{
  __shared__ unsigned           block_count;
  __shared__ unsigned long long block_start;
  LocalInt                      before = 0;
  if (out.fixed) return i < 0 ? 0 : out.start[i];
  if (threadIdx.x == 0) block_count = 0;
  __syncthreads();
  if (threadIdx.x % GroupSize == 0 && count > 0) before = (LocalInt)atomicAdd(&block_count, (unsigned)count);
  __syncthreads();
  if (threadIdx.x == 0) block_start = atomicAdd(&report->entries, (unsigned long long)block_count);
  __syncthreads();
  before = __shfl_sync(kFullWarp, before, 0, GroupSize);
  if (first) *first = block_start;
  if (all) *all = block_count;
  const unsigned long long start = block_start + (unsigned long long)before;
  const bool               fits  = start + (unsigned long long)count <= out.room;
  if (!fits) report->amiss = 1;
  if (i >= 0 && threadIdx.x % GroupSize == 0) {
    out.start[i]  = fits ? (LocalInt)start : 0;
    out.length[i] = fits ? count : 0;
  }
  return fits ? (LocalInt)start : -1;
}

/* Up to Ahead entries of row k for a thread, if there are so many from `first` on. A Right may have a quicker way. */
template <int Ahead, typename Right>
__device__ __forceinline__ void ProductLoad(const Right &right, LocalInt k, LocalInt i, LocalInt first, LocalInt entries,
                                            LocalInt (&column)[Ahead], double (&value)[Ahead])
{
#pragma unroll
  for (int u = 0; u < Ahead; u++) {
    column[u] = -1;
    if (u < entries) right.Get(k, i, first + u, &column[u], &value[u]);
  }
}

/* Sorts numbers of a thread in its registers, by Batcher's network of odd-even merges. */
template <int P = 1, int K = P, int N>
__device__ __forceinline__ void ProductSort(unsigned (&x)[N])
{
#pragma unroll
  for (int j = K % P; j + K < N; j += 2 * K)
#pragma unroll
    for (int i = 0; i < K; i++) {
      if (i + j + K >= N || (i + j) / (2 * P) != (i + j + K) / (2 * P)) continue;
      const unsigned a = x[i + j], b = x[i + j + K];
      x[i + j]     = min(a, b);
      x[i + j + K] = max(a, b);
    }
  if constexpr (K > 1) ProductSort<P, K / 2>(x);
  else if constexpr (2 * P < N) ProductSort<2 * P>(x);
}

/*
   The threads of a block write the rows that they have in shared memory together, since the entries of one are a few bytes in each
   of many lines of memory. `order` has the columns of Sorted rows with their places, ascending.
*/
template <int Room, bool Sorted, typename V>
__device__ __forceinline__ void ProductWriteTogether(const ProductRows<V> &out, LocalInt i, LocalInt count,
                                                     const unsigned (&order)[Sorted ? Room : 1], LocalInt *keys, double *sums,
                                                     CMATCHReport *report)
{
  const LocalInt *const key = keys + threadIdx.x;
  const double *const   sum = sums + threadIdx.x;
  unsigned long long    first;
  unsigned              all;
  LocalInt              column[Room];
  V                     value[Room];
  const LocalInt        start = ProductPlace<1>(out, i, count, report, &first, &all);
#pragma unroll
  for (int t = 0; t < Room; t++) {
    if (t >= count) continue;
    column[t] = Sorted ? (LocalInt)(order[t] / kProductPlaces) : key[t * kProductThread];
    value[t]  = (V)sum[(Sorted ? (int)(order[t] % kProductPlaces) : t) * kProductThread];
  }
  V *const block_a = (V *)sums;
  __syncthreads();
#pragma unroll
  for (int t = 0; t < Room; t++) {
    if (t >= count || start < 0) continue;
    keys[start - first + t]    = column[t];
    block_a[start - first + t] = value[t];
  }
  __syncthreads();
  for (unsigned t = threadIdx.x; t < all && first + t < out.room; t += kProductThread) {
    out.j[first + t] = keys[t];
    out.a[first + t] = block_a[t];
  }
}

/*
   Where the columns that a thread has met are in its list, by hashing: a byte for each of kProductIndex places, 0 where there is
   none and else one more than the place in the list. All bytes of a thread are in one bank of shared memory.
*/
struct ProductIndex {
  unsigned *words; /* [kProductIndex / 4][kProductThread], from those of the thread on */

  __device__ __forceinline__ unsigned char &At(unsigned slot) const
  {
    return ((unsigned char *)(words + slot / 4 * kProductThread))[slot % 4];
  }
  __device__ __forceinline__ void Clear() const
  {
#pragma unroll
    for (int k = 0; k < kProductIndex / 4; k++) words[k * kProductThread] = 0;
  }
  /* The place of a column, or `met` if it is new; then this is its place from now on. */
  __device__ __forceinline__ int Find(const LocalInt *key, LocalInt column, int met) const
  {
    unsigned slot = (unsigned)column * 0x9E3779B1u >> (32 - kProductIndexBits);
    while (true) {
      unsigned char &at = At(slot);
      if (!at) {
        at = (unsigned char)(met + 1);
        return met;
      }
      if (key[(at - 1) * kProductThread] == column) return at - 1;
      slot = (slot + 1) % kProductIndex;
    }
  }
};

/*
   A thread takes a row, with room for Room columns; columns of Sorted rows are below kProductMostColumns. It looks at Ahead entries
   of a listed row at a time, and the rows are not fixed. Sorted and Split as below.
*/
template <int Room, int Ahead, bool Sorted, bool Split, typename V, typename Left, typename Right>
__global__ void __launch_bounds__(kProductThread)
  ProductThreadKernel(Left left, Right right, LocalInt rows, ProductRows<V> out, CMATCHReport *report)
{
  static_assert(Room <= kProductPlaces && Room < kProductIndex);
  constexpr int            kRows = kProductAtOnce / Ahead; /* listed rows whose first entries are asked for at once */
  __shared__ LocalInt      keys[Room][kProductThread];
  __shared__ unsigned      index[kProductIndex / 4][kProductThread];
  extern __shared__ double sums[]; /* [Room][kProductThread] */
  const ProductIndex       places{&index[0][threadIdx.x]};
  LocalInt *const          key   = &keys[0][threadIdx.x];
  double *const            sum   = sums + threadIdx.x;
  const long long          at    = GridThread();
  const LocalInt           i     = at < rows ? (LocalInt)at : -1;
  const int                count = i < 0 ? 0 : left.Count(i);
  int                      met   = 0; /* columns */
  bool                     fits  = true;
  const auto               add   = [&](double factor, const LocalInt(&column)[Ahead], const double(&value)[Ahead]) {
#pragma unroll
    for (int u = 0; u < Ahead; u++) {
      if (column[u] < 0 || !fits) continue;
      const int place = places.Find(key, column[u], met);
      if (place < met) sum[place * kProductThread] += factor * value[u];
      else if (met < Room) {
        key[met * kProductThread] = column[u];
        sum[met * kProductThread] = 0 + factor * value[u];
        met++;
      } else fits = false;
    }
  };
  places.Clear();
  for (int t = 0; t < count; t += kRows) {
    LocalInt k[kRows], from[kRows], entries[kRows], column[kRows][Ahead];
    double   factor[kRows], value[kRows][Ahead];
#pragma unroll
    for (int u = 0; u < kRows; u++) {
      k[u] = -1;
      if (t + u < count) left.Get(i, t + u, &k[u], &factor[u]);
    }
#pragma unroll
    for (int u = 0; u < kRows; u++) {
      from[u] = entries[u] = 0;
      if (k[u] >= 0) right.Span(k[u], &from[u], &entries[u]);
    }
#pragma unroll
    for (int u = 0; u < kRows; u++) ProductLoad(right, k[u], i, from[u], entries[u], column[u], value[u]);
#pragma unroll
    for (int u = 0; u < kRows; u++) {
      add(factor[u], column[u], value[u]);
      for (LocalInt q = Ahead; q < entries[u]; q += Ahead) {
        ProductLoad(right, k[u], i, from[u] + q, entries[u] - q, column[u], value[u]);
        add(factor[u], column[u], value[u]);
      }
    }
  }
  int others = met; /* without the split entry */
  if (Split) {
    double diagonal = 0;
    for (int place = 0; place < met; place++) {
      if (key[place * kProductThread] != i) continue;
      diagonal                    = sum[place * kProductThread];
      others                      = met - 1;
      key[place * kProductThread] = key[others * kProductThread];
      sum[place * kProductThread] = sum[others * kProductThread];
      break;
    }
    if (i >= 0 && fits) out.diagonal[i] = diagonal;
  }
  if (i >= 0 && !fits) ListWide(out.wide, i, report);
  if (i < 0 || !fits) others = 0;
  unsigned order[Sorted ? Room : 1]; /* the columns with their places, ascending */
  if (Sorted) {
#pragma unroll
    for (int t = 0; t < Room; t++) order[t] = t < others ? (unsigned)key[t * kProductThread] * kProductPlaces + t : ~0u;
    ProductSort(order);
  }
  ProductWriteTogether<Room, Sorted>(out, i, others, order, &keys[0][0], sums, report);
}

/*
   A group of lanes takes a row, of all rows or of those in `list`. Sorted: the columns of the result ascend. Split: the entry whose
   column is the row's own number is stored apart. Rows that do not fit are listed in `wide`.
*/
template <int GroupSize, bool Repeated, bool Sorted, bool Split, typename V, typename Left, typename Right>
__global__ void __launch_bounds__(kBlockSize)
  ProductKernel(Left left, Right right, LocalInt rows, const LocalInt *list, int bits, ProductRows<V> out, CMATCHReport *report)
{
  extern __shared__ double shared[];
  const int groups = blockDim.x / GroupSize, group = threadIdx.x / GroupSize, lane = threadIdx.x % GroupSize, size = 1 << bits;
  const long long at = GridThread() / GroupSize;
  const LocalInt  i  = at >= rows ? -1 : list ? list[at] : (LocalInt)at;
  /* more keys than places, so that groups that read the same place of their tables do not meet in a bank */
  const ProductTable table{(LocalInt *)(shared + (size_t)groups * size) + group * (size + GroupSize), shared + (size_t)group * size,
                           bits, false};
  for (int slot = lane; slot < size; slot += GroupSize) {
    table.key[slot] = -1;
    table.sum[slot] = 0;
  }
  __syncwarp();
  const bool fits = ProductSum<GroupSize, Repeated>(left, right, i, table);
  /* the places in use move to the front */
  LocalInt count    = 0;
  double   diagonal = 0;
  for (int first = 0; first < size; first += GroupSize) {
    const int      slot = first + lane;
    const LocalInt key  = table.key[slot];
    const bool     own = Split && key >= 0 && key == i, used = key >= 0 && !own;
    const unsigned ballot = GroupBallot<GroupSize>(used);
    const double   sum    = key >= 0 ? table.sum[slot] : 0.;
    if (own) diagonal = sum;
    __syncwarp();
    if (used) {
      const int to  = count + __popc(ballot & ((1u << lane) - 1u));
      table.key[to] = key;
      table.sum[to] = sum;
    }
    count += __popc(ballot);
    __syncwarp();
  }
  if (Split) {
    diagonal = GroupSum<GroupSize>(diagonal); /* the other lanes have zeros */
    if (i >= 0 && fits && lane == 0) out.diagonal[i] = diagonal;
  }
  if (i >= 0 && !fits && lane == 0) ListWide(out.wide, i, report);
  if (i < 0 || !fits) count = 0;
  const LocalInt start = ProductPlace<GroupSize>(out, i, count, report);
  if (start < 0) return;
  for (LocalInt t = lane; t < count; t += GroupSize) {
    const LocalInt key   = table.key[t];
    LocalInt       place = t;
    if (Sorted) {
      place = 0;
      for (LocalInt other = 0; other < count; other++) place += table.key[other] < key;
    }
    if (!out.fixed) out.j[start + place] = key;
    out.a[start + place] = (V)table.sum[t];
  }
}

/*
   A group of lanes takes a row that is one listed row, whose columns differ. Rows that list more, or that have more entries than
   kRoom, are listed in `wide`. Sorted and Split as above.
*/
template <bool Sorted, bool Split, typename V, typename Left, typename Right>
__global__ void __launch_bounds__(kBlockSize)
  ProductCopyKernel(Left left, Right right, LocalInt rows, ProductRows<V> out, CMATCHReport *report)
{
  constexpr int       kEach = 4, kRoom = kEach * kCopyGroup; /* entries of a lane, and of a row */
  constexpr LocalInt  kNone = LOCAL_INT_MAX;
  __shared__ LocalInt keys[kBlockSize / kCopyGroup][kRoom];
  LocalInt *const     key   = keys[threadIdx.x / kCopyGroup];
  const int           lane  = threadIdx.x % kCopyGroup;
  const long long     at    = GridThread() / kCopyGroup;
  const LocalInt      i     = at < rows ? (LocalInt)at : -1;
  const int           lists = i < 0 ? 0 : left.Count(i);
  LocalInt            k = -1, from = 0, entries = 0, count = 0, column[kEach];
  double              factor = 0, diagonal = 0, value[kEach];
  if (lists == 1) left.Get(i, 0, &k, &factor);
  if (k >= 0) right.Span(k, &from, &entries);
  const bool fits = lists <= 1 && entries <= kRoom;
  if (!fits) entries = 0;
#pragma unroll
  for (int u = 0; u < kEach; u++) {
    const LocalInt q = u * kCopyGroup + lane;
    column[u]        = -1;
    if (q < entries) right.Get(k, i, from + q, &column[u], &value[u]);
  }
#pragma unroll
  for (int u = 0; u < kEach; u++) {
    if (column[u] >= 0) value[u] = 0 + factor * value[u]; /* as a sum begins */
    if (Split && i >= 0 && column[u] == i) {
      diagonal  = value[u];
      column[u] = -1;
    }
    key[u * kCopyGroup + lane] = column[u] >= 0 ? column[u] : kNone;
    count += __popc(GroupBallot<kCopyGroup>(column[u] >= 0));
  }
  __syncwarp();
  if (Split) {
    diagonal = GroupSum<kCopyGroup>(diagonal); /* the other lanes have zeros */
    if (i >= 0 && fits && lane == 0) out.diagonal[i] = diagonal;
  }
  if (i >= 0 && !fits && lane == 0) ListWide(out.wide, i, report);
  const LocalInt start = ProductPlace<kCopyGroup>(out, i, count, report);
  if (start < 0) return;
#pragma unroll
  for (int u = 0; u < kEach; u++) {
    if (column[u] < 0) continue;
    const LocalInt own   = u * kCopyGroup + lane;
    LocalInt       place = 0;
    for (LocalInt other = 0; other < (Sorted ? entries : own); other++) place += key[other] < (Sorted ? column[u] : kNone);
    if (!out.fixed) out.j[start + place] = column[u];
    out.a[start + place] = (V)value[u];
  }
}

/* The general path: a block of one warp takes listed rows in turns. keys [blocks][columns] are -1 and sums are 0 before and after.
 */
template <bool Repeated, bool Split, typename V, typename Left, typename Right>
__global__ void __launch_bounds__(kWarpSize)
  ProductWideKernel(Left left, Right right, LocalInt count, LocalInt columns, LocalInt *keys, double *sums, ProductRows<V> out,
                    CMATCHReport *report)
{
  const int          lane = threadIdx.x;
  const ProductTable table{keys + (size_t)blockIdx.x * columns, sums + (size_t)blockIdx.x * columns, 0, true};
  for (LocalInt w = blockIdx.x; w < count; w += gridDim.x) {
    const LocalInt i = out.wide[w];
    (void)ProductSum<kWarpSize, Repeated>(left, right, i, table);
    LocalInt entries = 0;
    for (LocalInt slot = lane; slot < columns; slot += kWarpSize) entries += table.key[slot] >= 0 && !(Split && slot == i);
    entries              = GroupSum<kWarpSize>(entries);
    const LocalInt start = ProductPlace<kWarpSize>(out, i, entries, report);
    LocalInt       to    = start;
    for (LocalInt first = 0; first < columns; first += kWarpSize) {
      const LocalInt slot = first + lane;
      const bool     met = slot < columns && table.key[slot] >= 0, own = Split && slot == i, used = met && !own;
      const unsigned ballot = __ballot_sync(kFullWarp, used);
      if (used && start >= 0) {
        const LocalInt place = to + __popc(ballot & ((1u << lane) - 1u));
        if (!out.fixed) out.j[place] = slot;
        out.a[place] = (V)table.sum[slot];
      }
      if (met && own) out.diagonal[i] = table.sum[slot];
      if (met) {
        table.key[slot] = -1;
        table.sum[slot] = 0;
      }
      to += __popc(ballot);
    }
    __syncwarp();
  }
}

/* The rows of a product, without the gaps. A group takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  PackRows(LocalInt rows, ProductRows<T> from, const LocalInt *A_i, LocalInt *A_j, T *A_a)
{
  const LocalInt row = (LocalInt)(GridThread() / kPackGroup);
  if (row >= rows) return;
  const LocalInt begin = from.start[row], to = A_i[row], count = A_i[row + 1] - to;
  for (LocalInt k = threadIdx.x % kPackGroup; k < count; k += kPackGroup) {
    A_j[to + k] = from.j[begin + k];
    A_a[to + k] = from.a[begin + k];
  }
}

/* Of a graph of nodes, the weights in single precision, and the sum of the positive ones, -a_ij. A group takes a row. */
template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) RoundGraph(LocalInt n, ProductRows<double> from, float *a, float *d)
{
  const LocalInt row   = (LocalInt)(GridThread() / GroupSize);
  const int      lane  = threadIdx.x % GroupSize;
  const LocalInt begin = row < n ? from.start[row] : 0, end = row < n ? begin + from.length[row] : 0;
  const int      longest = (int)__reduce_max_sync(kFullWarp, end - begin);
  double         sum     = 0;
  for (int k = 0; k < longest; k += GroupSize) {
    const LocalInt at    = begin + k + lane;
    const double   value = at < end ? from.a[at] : 0.;
    if (at < end) a[at] = (float)value;
    AddInOrder<GroupSize>(value < 0 ? -value : 0., &sum);
  }
  if (row < n && lane == 0) d[row] = (float)sum;
}

constexpr size_t kProductWideBytes = (size_t)64 << 20; /* of the tables of the general path */

/* Whether most rows list one row, and no listed row has a column twice, as a Left says by a constant kListsOneRow. */
template <typename Left, typename = void>
constexpr bool kListsOneRow = false;
template <typename Left>
constexpr bool kListsOneRow<Left, std::enable_if_t<Left::kListsOneRow>> = true;

/* The size of another product, and how it begins. */
struct ProductPlan {
  LocalInt rows, columns;
  bool     thread; /* a thread has a row; otherwise a group has one, with a table of 1 << bits places */
  int      bits;
};

/* Bytes of shared memory of a block of groups with such tables. */
inline size_t ProductShared(size_t groups, int bits)
{
  return groups * ((sizeof(double) + sizeof(LocalInt)) << bits) + kBlockSize * sizeof(LocalInt);
}

template <int GroupSize, bool Repeated, bool Sorted, bool Split, typename V, typename Left, typename Right>
PetscErrorCode ProductLaunch(CMATCHSetup *s, const Left &left, const Right &right, LocalInt rows, const LocalInt *list, int bits,
                             const ProductRows<V> &out)
{
  const auto   kernel = ProductKernel<GroupSize, Repeated, Sorted, Split, V, Left, Right>;
  const size_t shared = ProductShared(kBlockSize / GroupSize, bits);

  PetscFunctionBegin;
  PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
  kernel<<<BlocksFor((long long)rows * GroupSize), kBlockSize, shared, s->stream>>>(left, right, rows, list, bits, out, s->report);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lists rows that did not fit. The new list is in `out`, and *list is the old one. */
template <typename V>
PetscErrorCode ProductNextList(CMATCHSetup *s, ProductRows<V> *out, LocalInt **list)
{
  PetscFunctionBegin;
  if (!*list) PetscCall(s->arena.Take(s->seen.wide, list));
  std::swap(*list, out->wide);
  PetscCallCUDA(cudaMemsetAsync(&s->report->wide, 0, sizeof(s->report->wide), s->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Launches a product, and waits for it to see whether rows have to take another way, or there are more entries than there is room
   for: then `room` is called with the number of entries, which makes room and sets it in `out`, and the product begins anew.
   s->seen.wide is the number of rows on the general path. *one_way says whether no row had to take another way; without s->waits
   the report has that in `amiss`, and what is amiss is not mended.
*/
template <int GroupSize, int Room, int Ahead, bool Repeated, bool Sorted, bool Split, typename V, typename Left, typename Right,
          typename MakeRoom>
PetscErrorCode Product(CMATCHSetup *s, const Left &left, const Right &right, const ProductPlan &plan, ProductRows<V> *out,
                       MakeRoom room, bool *one_way = nullptr)
{
  const LocalInt rows = plan.rows, columns = plan.columns;

  PetscFunctionBegin;
  while (true) {
    const auto mark = s->arena.mark();
    LocalInt *list = nullptr, *const given = out->wide;
    PetscCallCUDA(cudaMemsetAsync(&s->report->entries, 0, sizeof(s->report->entries) + sizeof(s->report->wide), s->stream));
    if constexpr (kListsOneRow<Left>) {
      ProductCopyKernel<Sorted, Split>
        <<<BlocksFor((long long)rows * kCopyGroup), kBlockSize, 0, s->stream>>>(left, right, rows, *out, s->report);
      FinePCCheckLaunch();
    } else if (Room > 1 && plan.thread && (!Sorted || columns < kProductMostColumns)) {
      if constexpr (Room > 1) {
        const auto   kernel = ProductThreadKernel<Room, Ahead, Sorted, Split, V, Left, Right>;
        const size_t shared = Room * kProductThread * sizeof(double);
        PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
        kernel<<<BlocksFor(rows, kProductThread), kProductThread, shared, s->stream>>>(left, right, rows, *out, s->report);
        FinePCCheckLaunch();
      }
    } else PetscCall((ProductLaunch<GroupSize, Repeated, Sorted, Split>(s, left, right, rows, nullptr, plan.bits, *out)));
    if (!s->waits) break;
    PetscCall(CMATCHReadReport(s));
    if (one_way) *one_way = *one_way && !s->seen.wide;
    if (s->seen.wide) {
      const LocalInt count = s->seen.wide;
      PetscCall(ProductNextList(s, out, &list));
      PetscCall((ProductLaunch<kWarpSize, Repeated, Sorted, Split>(s, left, right, count, list, kProductLarge, *out)));
      PetscCall(CMATCHReadReport(s));
    }
    if (s->seen.wide) {
      const LocalInt tables = (LocalInt)PetscMax(1, PetscMin((size_t)PetscMin(s->seen.wide, 2 * s->H->processors),
                                                             kProductWideBytes / (columns * (sizeof(double) + sizeof(LocalInt)))));
      LocalInt      *keys   = nullptr;
      double        *sums   = nullptr;
      PetscCall(s->arena.Take((size_t)tables * columns, &keys));
      PetscCall(s->arena.Take((size_t)tables * columns, &sums));
      PetscCallCUDA(cudaMemsetAsync(keys, -1, (size_t)tables * columns * sizeof(*keys), s->stream));
      PetscCallCUDA(cudaMemsetAsync(sums, 0, (size_t)tables * columns * sizeof(*sums), s->stream));
      ProductWideKernel<Repeated, Split>
        <<<tables, kWarpSize, 0, s->stream>>>(left, right, s->seen.wide, columns, keys, sums, *out, s->report);
      FinePCCheckLaunch();
      PetscCall(CMATCHReadReport(s));
    }
    s->arena.Release(mark);
    out->wide = given;
    if (out->fixed || s->seen.entries <= out->room) break;
    PetscCall(room((size_t)s->seen.entries, out));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
