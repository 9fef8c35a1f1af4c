/* The kernels of cmatch_ranks.cu */
#pragma once

#include "cmatch_product.cuh"
#include "cmatch_ranks_twin.cuh"
#include "search.cuh"

namespace
{

constexpr int kGroup = 8; /* lanes of a row */

/* ---------------------------------------- finest level ---------------------------------------- */

__device__ double NearNull(const double *w, double zero, LocalInt i)
{
  return w ? CMATCHNearNullEntry(w[i], zero) : 1.;
}

/* The bits of numbers that are not negative are in the order of the numbers. */
__global__ void __launch_bounds__(kBlockSize)
  FindLargestDiagonal(CSRView A, const double *w, double zero, unsigned long long *largest)
{
  const long long row  = GridThread();
  double          mine = 0;
  if (row < A.n)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      if (A.j[k] != row) continue;
      const double value = fabs(A.a[k] * NearNull(w, zero, (LocalInt)row) * NearNull(w, zero, (LocalInt)row));
      if (value > mine) mine = value;
    }
  mine = GroupMax<kWarpSize>(mine);
  if (threadIdx.x % kWarpSize == 0 && mine > 0) atomicMax(largest, (unsigned long long)__double_as_longlong(mine));
}

/* w without zeros; a thread takes an entry */
__global__ void __launch_bounds__(kBlockSize) CopyEntries(LocalInt n, double zero, const double *from, double *w)
{
  const long long i = GridThread();
  if (i < n) w[i] = CMATCHNearNullEntry(from[i], zero);
}

/* Where the row's entries in columns of ghosts begin; a matrix without any may have no row starts on the GPU. */
__device__ __forceinline__ LocalInt OthersFrom(const CSRView &foreign, LocalInt row)
{
  return foreign.nnz ? foreign.i[row] : 0;
}

/* The first row that cannot be used. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize)
  CheckOwnRows(CSRView own, CSRView foreign, const double *w, double sign, CMATCHReport *report)
{
  const long long row = GridThread();
  if (row >= own.n) return;
  bool   finite = !w || isfinite(w[row]), stored = false;
  double diagonal = 0;
  for (LocalInt k = own.i[row]; k < own.i[row + 1]; k++) {
    finite = finite && isfinite(own.a[k]);
    if (own.j[k] != row) continue;
    stored   = true;
    diagonal = sign * own.a[k];
  }
  for (LocalInt k = OthersFrom(foreign, (LocalInt)row); k < OthersFrom(foreign, (LocalInt)row + 1); k++)
    finite = finite && isfinite(foreign.a[k]);
  const CMATCHFailure failure = !finite           ? CMATCH_NOT_FINITE
                                : !stored         ? CMATCH_DIAGONAL_MISSING
                                : !(diagonal > 0) ? CMATCH_DIAGONAL_NOT_POSITIVE
                                                  : CMATCH_OK;
  if (failure != CMATCH_OK) atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageCheck, (LocalInt)row, failure));
}

/* The entries beside the diagonal, and the row sums, of scale W A W. A thread takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  CopyOwnRows(CSRView own, CSRView foreign, const double *w, double scale, CMATCHFinest<T> to, CMATCHReport *report)
{
  const long long at = GridThread();
  if (at > own.n) return;
  const LocalInt row = (LocalInt)at;
  LocalInt       k   = own.i[row] - row + OthersFrom(foreign, row); /* every row before has its diagonal entry */
  to.A_i[row]        = k;
  if (row == own.n) return;
  double     sum    = 0;
  bool       finite = true;
  const auto scaled = [&](double a, LocalInt j) {
    const double value = a * scale;
    return w ? value * (w[row] * w[j]) : value;
  };
  const auto add = [&](LocalInt j, double value) {
    to.A_j[k] = j;
    to.A_a[k] = (T)value;
    if (to.matched_a) to.matched_a[k] = (float)value;
    finite = finite && isfinite((T)value);
    k++;
  };
  for (LocalInt e = own.i[row]; e < own.i[row + 1]; e++) {
    const LocalInt j     = own.j[e];
    const double   value = scaled(own.a[e], j);
    sum += value;
    if (j != row) add(j, value);
    else {
      to.diagonal[row] = value;
      if (to.matched_d) to.matched_d[row] = (float)value;
    }
  }
  for (LocalInt e = OthersFrom(foreign, row); e < OthersFrom(foreign, row + 1); e++) {
    const LocalInt j     = own.n + foreign.j[e];
    const double   value = scaled(foreign.a[e], j);
    sum += value;
    add(j, value);
  }
  to.rs[row] = sum;
  if (!finite) atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageStore, row, CMATCH_TOO_LARGE));
}

/* ------------------------------------------- numbers ------------------------------------------ */

/* The numbers of columns, and -1 for none. */
__global__ void __launch_bounds__(kBlockSize)
  NumberColumns(long long count, const LocalInt *column, CMATCHNumberOf number, GlobalInt *to)
{
  const long long k = GridThread();
  if (k < count) to[k] = column[k] < 0 ? -1 : number(column[k]);
}

/* Columns behind the own ones get other places. */
__global__ void __launch_bounds__(kBlockSize) MoveColumns(long long count, LocalInt coarse, const LocalInt *place, LocalInt *column)
{
  const long long k = GridThread();
  if (k < count && column[k] >= coarse) column[k] = place[column[k] - coarse];
}

/* Rows of so many words each, as a list has them. */
__global__ void __launch_bounds__(kBlockSize)
  PackWords(long long count, LocalInt words, const LocalInt *row, const unsigned *from, unsigned *to)
{
  const long long k = GridThread();
  if (k < count) to[k] = from[(long long)row[k / words] * words + k % words];
}

/* Row sums of the rows of P of ghosts. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) SumGhosts(LocalInt ghosts, LocalInt width, const T *P_a, double *sums)
{
  const long long g = GridThread();
  if (g >= ghosts) return;
  double sum = 0;
  for (LocalInt e = 0; e < width; e++) sum += (double)P_a[g * width + e];
  sums[g] = sum;
}

/* ---------------------------------- the operator of the matching ------------------------------ */

/* Row i itself */
struct RowItself {
  __device__ int  Count(LocalInt) const { return 1; }
  __device__ void Get(LocalInt i, int, LocalInt *k, double *value) const
  {
    *k     = i;
    *value = 1;
  }
};

/* Row k of the operator, whose columns of ghosts become those of their aggregates, or none */
struct PlacedEntries {
  CMATCHRows      M;
  const LocalInt *place; /* [M.foreign] */

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *length) const
  {
    *begin  = M.start[k];
    *length = M.Length(k);
  }
  __device__ void Get(LocalInt, LocalInt, LocalInt at, LocalInt *column, double *value) const
  {
    const LocalInt j = M.j[at];
    *column          = j < M.n ? j : place[j - M.n];
    *value           = (double)M.a[at];
  }
};

/* The diagonal of the rows, and 0 for foreign aggregates, which have no rows here. */
__global__ void __launch_bounds__(kBlockSize) CopyDiagonal(LocalInt n, LocalInt rows, const float *d, double *to)
{
  const long long i = GridThread();
  if (i < rows) to[i] = i < n ? (double)d[i] : 0.;
}

/* ------------------------------- rows that go to other ranks ---------------------------------- */

/* What rows have beside their entries. A thread takes a row of the list. */
__global__ void __launch_bounds__(kBlockSize) WriteSums(CMATCHSentRowsCUDA sent, LocalInt count, const LocalInt *list, double *sums)
{
  const long long q = GridThread();
  if (q >= count) return;
  const LocalInt r             = list[q];
  sums[q * kCMATCHRowSums]     = (double)sent.Length(r);
  sums[q * kCMATCHRowSums + 1] = sent.rs[sent.first + r];
  sums[q * kCMATCHRowSums + 2] = sent.size ? sent.size[sent.first + r] : 0.;
}

/* The lengths of rows as numbers, 0 behind them, and their sum. */
__global__ void __launch_bounds__(kBlockSize)
  ReadLengths(LocalInt rows, int width, const double *sums, LocalInt *length, unsigned long long *all)
{
  const long long q = GridThread();
  if (q > rows) return;
  const LocalInt mine = q < rows ? (LocalInt)sums[q * width] : 0;
  length[q]           = mine;
  if (all && mine) atomicAdd(all, (unsigned long long)mine);
}

/* Where the entries of each neighbour begin, and where the last ones end. */
__global__ void __launch_bounds__(kBlockSize)
  FindEnds(LocalInt parts, const LocalInt *part, const LocalInt *at, unsigned long long *end)
{
  const long long k = GridThread();
  if (k <= parts) end[k] = (unsigned long long)at[part[k]];
}

/* A group takes a row of the list. */
__global__ void __launch_bounds__(kBlockSize) PackEntries(CMATCHSentRowsCUDA sent, LocalInt count, const LocalInt *list,
                                                          const LocalInt *at, CMATCHNumberOf number, GlobalInt *j, double *a)
{
  const long long q = GridThread() / kGroup;
  if (q >= count) return;
  const LocalInt r = list[q], length = sent.Length(r), to = at[q];
  if (!length) return; /* it may be a row that has no place */
  const LocalInt from = sent.start[sent.first + r];
  for (LocalInt e = threadIdx.x % kGroup; e < length; e += kGroup) {
    j[to + e] = number(sent.j[from + e]);
    if (sent.block == 1) a[to + e] = sent.a[from + e];
  }
  if (sent.block == 1) return;
  const long long values = (long long)length * sent.block;
  for (long long e = threadIdx.x % kGroup; e < values; e += kGroup)
    a[(long long)to * sent.block + e] = sent.a[(long long)from * sent.block + e];
}

/* Where the entries of contributions begin among those that come, how many they are, and their sums. */
__global__ void __launch_bounds__(kBlockSize)
  PlaceRows(LocalInt count, const LocalInt *place, const LocalInt *at, CMATCHCameRows came)
{
  const long long q = GridThread();
  if (q >= count) return;
  const LocalInt k = place[q];
  came.start[k]    = at[q];
  came.length[k]   = at[q + 1] - at[q];
  came.at[k]       = (LocalInt)q;
  if (!came.sum) return;
  came.sum[k]  = came.sums[q * kCMATCHRowSums + 1];
  came.size[k] = came.sums[q * kCMATCHRowSums + 2];
}

__global__ void __launch_bounds__(kBlockSize) CountUp(LocalInt count, LocalInt *number)
{
  const long long k = GridThread();
  if (k < count) number[k] = (LocalInt)k;
}

/* Contribution k is row order[k] of those that come. */
__global__ void __launch_bounds__(kBlockSize) PlaceContributions(LocalInt count, const LocalInt *order, LocalInt *place)
{
  const long long k = GridThread();
  if (k < count) place[order[k]] = (LocalInt)k;
}

/* Where the contributions to each of so many rows begin, from the rows of all contributions. */
__global__ void __launch_bounds__(kBlockSize) FindContributions(LocalInt rows, LocalInt count, const LocalInt *row, LocalInt *add_i)
{
  const long long c = GridThread();
  if (c <= rows) add_i[c] = LowerBound(row, (LocalInt)0, count, (LocalInt)c);
}

/* The entries of rows with gaps between them, which are added to those that are reported. */
__global__ void __launch_bounds__(kBlockSize) CountEntries(CMATCHRows rows, CMATCHReport *report)
{
  const long long    i     = GridThread();
  unsigned long long count = i < rows.n ? rows.Length((LocalInt)i) : 0;
  count                    = GroupSum<kWarpSize>(count);
  if (threadIdx.x % kWarpSize == 0 && count) atomicAdd(&report->entries, count);
}

/* ---------------------------------------- the next level -------------------------------------- */

/* Marks the columns behind the own ones that rows have. A group takes a row. */
__global__ void __launch_bounds__(kBlockSize)
  MarkBehind(LocalInt rows, const LocalInt *start, const LocalInt *length, const LocalInt *j, LocalInt coarse, LocalInt *used)
{
  const long long row = GridThread() / kGroup;
  if (row >= rows) return;
  const LocalInt end = length ? start[row] + length[row] : start[row + 1];
  for (LocalInt k = start[row] + threadIdx.x % kGroup; k < end; k += kGroup) {
    const LocalInt column = j[k];
    if (column >= coarse) used[column - coarse] = 1;
  }
}

/* Puts a number into a list of numbers in any order, or with null counts it. */
__device__ void ListNumber(GlobalInt number, GlobalInt *list, CMATCHReport *report)
{
  const unsigned long long at = atomicAdd(&report->entries, 1ull);
  if (list) list[at] = number;
}

/* The numbers that are no own rows, unless they are unused or negative. Without `used` all of them are used. */
__global__ void __launch_bounds__(kBlockSize) ListOthers(LocalInt count, const GlobalInt *number, const LocalInt *used,
                                                         GlobalInt first, LocalInt rows, GlobalInt *list, CMATCHReport *report)
{
  const long long k = GridThread();
  if (k >= count || number[k] < 0 || (number[k] >= first && number[k] < first + rows) || (used && !used[k])) return;
  ListNumber(number[k], list, report);
}

/* The columns of numbers: own rows, then ghosts, -1 for others. */
__global__ void __launch_bounds__(kBlockSize) FindColumns(LocalInt count, const GlobalInt *number, GlobalInt first, LocalInt rows,
                                                          LocalInt ghosts, const GlobalInt *ghost, LocalInt *column)
{
  const long long k = GridThread();
  if (k >= count) return;
  const GlobalInt mine = number[k];
  if (mine >= first && mine < first + rows) {
    column[k] = (LocalInt)(mine - first);
    return;
  }
  const LocalInt at = LowerBound(ghost, (LocalInt)0, ghosts, mine);
  column[k]         = at < ghosts && ghost[at] == mine ? rows + at : -1;
}

/* Numbers without a column, which are not negative, get one behind so many others, in the order of this list of them. */
__global__ void __launch_bounds__(kBlockSize)
  FindMore(LocalInt count, const GlobalInt *number, LocalInt columns, LocalInt more, const GlobalInt *list, LocalInt *column)
{
  const long long k = GridThread();
  if (k < count && number[k] >= 0 && column[k] < 0) column[k] = columns + LowerBound(list, (LocalInt)0, more, number[k]);
}

/* Lists the numbers without a column. */
__global__ void __launch_bounds__(kBlockSize)
  ListMore(LocalInt count, const GlobalInt *number, const LocalInt *column, GlobalInt *list, CMATCHReport *report)
{
  const long long k = GridThread();
  if (k < count && number[k] >= 0 && column[k] < 0) ListNumber(number[k], list, report);
}

/* For row c the own row, if it is kept, and then the contributions */
struct MergedList {
  static constexpr bool kListsOneRow = true; /* but for rows to which other ranks contribute */

  LocalInt        mine;
  const LocalInt *add_i;

  __device__ int  Count(LocalInt c) const { return (c < mine) + add_i[c + 1] - add_i[c]; }
  __device__ void Get(LocalInt c, int t, LocalInt *k, double *value) const
  {
    const int own = c < mine;
    *k            = own && t == 0 ? c : mine + add_i[c] + t - own;
    *value        = 1;
  }
};

/* Row k of the own rows, or of what came behind them */
struct MergedEntries {
  LocalInt        mine, coarse;
  const LocalInt *start, *length, *j;
  const double   *a;
  const LocalInt *place;                    /* of the columns behind the own ones; those stay, where the rank keeps its rows */
  const LocalInt *came_start, *came_length; /* null if nothing came */
  const LocalInt *came_j;
  const double   *came_a;

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *count) const
  {
    if (k < mine) {
      *begin = start[k];
      *count = length[k];
    } else {
      *begin = came_start ? came_start[k - mine] : 0;
      *count = came_start ? came_length[k - mine] : 0;
    }
  }
  __device__ void Get(LocalInt k, LocalInt, LocalInt at, LocalInt *column, double *value) const
  {
    if (k < mine) {
      const LocalInt c = j[at];
      *column          = c < coarse ? c : place[c - coarse];
      *value           = a[at];
    } else {
      *column = came_j[at];
      *value  = came_a[at];
    }
  }
};

/* The row sums of merged rows, and 1 for those without entries; and their sizes. */
__global__ void __launch_bounds__(kBlockSize)
  MergeSums(LocalInt rows, LocalInt mine, CMATCHMade own, const LocalInt *add_i, CMATCHCameRows came, double *rs, double *size)
{
  const long long c = GridThread();
  if (c >= rows) return;
  double sum = 0, of_size = 0;
  bool   any = false;
  if (c < mine) {
    sum     = own.rs[c];
    of_size = own.size[c];
    any     = own.length[c] > 0;
  }
  for (LocalInt k = add_i[c]; k < add_i[c + 1]; k++) {
    sum += came.sum[k];
    of_size += came.size[k];
    any = any || came.length[k] > 0;
  }
  rs[c]   = any ? sum : 1.;
  size[c] = of_size;
}

/* The diagonal of merged rows of the matching's operator. */
__global__ void __launch_bounds__(kBlockSize)
  MergeDiagonal(LocalInt rows, LocalInt mine, const double *own, const LocalInt *add_i, const double *came, float *d)
{
  const long long c = GridThread();
  if (c >= rows) return;
  double sum = 0;
  if (c < mine) sum += own[c];
  if (came)
    for (LocalInt k = add_i[c]; k < add_i[c + 1]; k++) sum += came[k];
  d[c] = (float)sum;
}

/* ------------------------------------------ the border ---------------------------------------- */

/* Whether rows have columns of ghosts, which are their last ones. */
__global__ void __launch_bounds__(kBlockSize) FlagBorder(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, LocalInt *flag)
{
  const long long i = GridThread();
  if (i <= n) flag[i] = i < n && A_i[i + 1] > A_i[i] && A_j[A_i[i + 1] - 1] >= n;
}

__global__ void __launch_bounds__(kBlockSize) ListRows(LocalInt n, const LocalInt *before, LocalInt *inner, LocalInt *border)
{
  const long long i = GridThread();
  if (i >= n) return;
  if (before[i + 1] > before[i]) border[before[i]] = (LocalInt)i;
  else inner[i - before[i]] = (LocalInt)i;
}

} // namespace
