/* CMATCH on the GPU: the prolongator, its transpose, and the Galerkin product. */
#include <cub/cub.cuh>

#include "cmatch_product.cuh"

namespace
{

constexpr int kProlongGroup  = 8; /* lanes of a row of P */
constexpr int kRestrictGroup = 8; /* lanes of a row of R in sums */
constexpr int kSortedPerLane = 8; /* entries of a row of R that a lane of a warp keeps while it sorts the row */
constexpr int kLongestSorted = kWarpSize * kSortedPerLane;
constexpr int kGeneralBlocks = 2;   /* on a processor, on the general path of P */
constexpr int kProlongThread = 128; /* threads of a block in which a thread has a row of P */
/* Guesses of entries: of A P as a multiple of those of A, and of the next operator. A product that needs more is made again. */
constexpr double kProductEntries = 1.45, kCoarseEntries = 0.75;

constexpr int kFewRows     = 30000; /* up to so many rows of a product have a warp each */
constexpr int kProlongRoom = 12;    /* aggregates that such a row may meet */

/* ---------------------------------------- prolongator ----------------------------------------- */

/* What a row of P is made of, and where it goes. */
template <typename T>
struct Prolong {
  LocalInt        n, columns, width;
  const LocalInt *A_i, *A_j;
  const T        *A_a, *d;
  const LocalInt *aggregate;
  LocalInt       *P_j;
  T              *P_a;
  double         *sum;   /* [n] of a row of P, of the values as they are stored */
  LocalInt       *count; /* [columns + 1] entries of each column, which are added up; null with fixed */
  LocalInt       *turn;  /* [n][width] an entry is number turn of its column; null with fixed */
  LocalInt       *wide;  /* [n] rows that did not fit into their tables */
  bool            fixed; /* P_j is there */
};

/* Sets the values of row i. The lanes of the group have kept[t] columns and values in shared memory, ascending. */
template <typename T>
__device__ __forceinline__ void StoreRow(const Prolong<T> &p, LocalInt i, int lane, int group, int entries, const LocalInt *column,
                                         const double *value, double factor)
{
  double sum = 0;
  for (int t = 0; t < entries; t++) sum += (double)(T)(value[t] * factor);
  for (int t = lane; t < p.width; t += group) {
    const size_t at = (size_t)i * p.width + t;
    if (!p.fixed) p.P_j[at] = t < entries ? column[t] : -1;
    p.P_a[at] = t < entries ? (T)(value[t] * factor) : T(0);
    if (p.count && t < entries) p.turn[at] = atomicAdd(p.count + column[t], 1);
  }
  if (lane == 0) p.sum[i] = sum;
}

/* The share of -a_ij in the largest of a row, and what follows for the diagonal entry: the Jacobi step of a row. */
template <int GroupSize, typename T>
struct JacobiStep {
  LocalInt begin, end, longest;
  T        least; /* entries are kept if -a_ij is not below */
  double   dF, q, S;

  __device__ __forceinline__ bool Keeps(T a) const { return !(-a < least); }

  __device__ __forceinline__ void Prepare(const Prolong<T> &p, LocalInt i)
  {
    const int lane = threadIdx.x % GroupSize;
    begin          = i < 0 ? 0 : p.A_i[i];
    end            = i < 0 ? 0 : p.A_i[i + 1];
    longest        = (LocalInt)__reduce_max_sync(kFullWarp, end - begin);
    T largest      = 0;
    for (LocalInt k = begin + lane; k < end; k += GroupSize) largest = max(largest, -p.A_a[k]);
    largest       = GroupMax<GroupSize>(largest);
    least         = largest > 0 ? (T)kCMATCHFilter * largest : -(T)INFINITY;
    double lumped = 0;
    for (LocalInt k = 0; k < longest; k += GroupSize) {
      const LocalInt at = begin + k + lane;
      const T        a  = at < end ? p.A_a[at] : T(0);
      AddInOrder<GroupSize>(at < end && !Keeps(a) ? (double)a : 0., &lumped);
    }
    const double d = i < 0 ? 1. : (double)p.d[i];
    dF             = d + lumped > kCMATCHLeastDiagonal * d ? d + lumped : d;
    double l1      = fabs(dF);
    S              = dF;
    for (LocalInt k = 0; k < longest; k += GroupSize) {
      const LocalInt at = begin + k + lane;
      const T        a  = at < end ? p.A_a[at] : T(0);
      const bool     is = at < end && Keeps(a);
      AddInOrder<GroupSize>(is ? fabs((double)a) : 0., &l1);
      AddInOrder<GroupSize>(is && p.aggregate[p.A_j[at]] >= 0 ? (double)a : 0., &S);
    }
    double D = fmax(dF, 0.5 * l1);
    if (!(D > 0)) D = 1;
    q = kCMATCHOmega / D;
  }
};

/* The better of two entries of a row to be kept: larger magnitude, larger hash, smaller column. */
struct Candidate {
  double   size;
  unsigned hash;
  LocalInt column;
  int      place;
};

__device__ __forceinline__ bool IsBetter(const Candidate &a, const Candidate &b)
{
  if (a.place < 0 || b.place < 0) return b.place < 0 && a.place >= 0;
  if (a.size != b.size) return a.size > b.size;
  if (a.hash != b.hash) return a.hash > b.hash;
  return a.column < b.column;
}

template <int GroupSize>
__device__ __forceinline__ Candidate Best(Candidate mine)
{
#pragma unroll
  for (int offset = GroupSize / 2; offset > 0; offset /= 2) {
    Candidate other;
    other.size   = __shfl_xor_sync(kFullWarp, mine.size, offset);
    other.hash   = __shfl_xor_sync(kFullWarp, mine.hash, offset);
    other.column = __shfl_xor_sync(kFullWarp, mine.column, offset);
    other.place  = __shfl_xor_sync(kFullWarp, mine.place, offset);
    if (IsBetter(other, mine)) mine = other;
  }
  return mine;
}

/*
   Row i of P by a group of lanes, or nothing if i < 0. kept_j and kept_v [width] are memory of the group. False: the table is full.
   All lanes of the warp take part.
*/
template <int GroupSize, typename T>
__device__ bool ProlongRow(const Prolong<T> &p, LocalInt i, const ProductTable &table, int places, LocalInt *kept_j, double *kept_v,
                           CMATCHReport *report)
{
  const int                lane = threadIdx.x % GroupSize;
  const LocalInt           own  = i < 0 ? -1 : p.aggregate[i];
  JacobiStep<GroupSize, T> step;
  step.Prepare(p, own < 0 ? -1 : i);
  bool fits = ProductAdd<GroupSize, true>(table, lane == 0 ? own : -1, 1 - step.q * step.dF);
  for (LocalInt k = 0; k < step.longest; k += GroupSize) {
    const LocalInt at     = step.begin + k + lane;
    const T        a      = at < step.end ? p.A_a[at] : T(0);
    const LocalInt column = at < step.end && step.Keeps(a) ? p.aggregate[p.A_j[at]] : -1;
    fits &= ProductAdd<GroupSize, true>(table, column, -(step.q * (double)a));
  }
  fits                 = GroupBallot<GroupSize>(!fits) == 0;
  const double t       = 1 - step.q * step.S;
  int          entries = 0;
  bool         cut     = false;
  if (p.fixed) {
    /* the columns stay, and the row is scaled if one that it has met is not among them */
    const size_t at  = (size_t)max(i, 0) * p.width;
    int          met = 0, found = 0;
    for (int slot = lane; slot < places; slot += GroupSize) met += table.key[slot] >= 0 && table.sum[slot] != 0;
    met = GroupSum<GroupSize>(met);
    if (own >= 0)
      while (entries < p.width && p.P_j[at + entries] >= 0) entries++;
    for (int e = lane; e < entries; e += GroupSize) {
      const LocalInt column = p.P_j[at + e];
      double         value  = 0;
      if (table.direct) value = table.key[column] >= 0 ? table.sum[column] : 0.;
      else
        for (int slot = 0; slot < places; slot++)
          if (table.key[slot] == column) value = table.sum[slot];
      kept_j[e] = column;
      kept_v[e] = value;
      found += value != 0;
    }
    found = GroupSum<GroupSize>(found);
    cut   = found < met;
  } else {
    /* the entries that are not 0, if they are few, and the best ones otherwise */
    int nonzeros = 0;
    for (int slot = lane; slot < places; slot += GroupSize) nonzeros += table.key[slot] >= 0 && table.sum[slot] != 0;
    nonzeros        = GroupSum<GroupSize>(nonzeros);
    cut             = nonzeros > p.width;
    entries         = min(nonzeros, p.width);
    const int turns = (int)__reduce_max_sync(kFullWarp, fits ? entries : 0);
    for (int e = 0; e < turns; e++) {
      Candidate best{0, 0, 0, -1};
      if (e < entries && fits)
        for (int slot = lane; slot < places; slot += GroupSize) {
          const LocalInt key = table.key[slot];
          if (key < 0 || table.sum[slot] == 0) continue;
          const Candidate one{fabs(table.sum[slot]), CMATCHMix(i, key), key, slot};
          if (IsBetter(one, best)) best = one;
        }
      best = Best<GroupSize>(best);
      __syncwarp();
      if (lane == 0 && best.place >= 0) {
        /* kept entries are in ascending order of their columns */
        int to = e;
        for (; to > 0 && kept_j[to - 1] > best.column; to--) {
          kept_j[to] = kept_j[to - 1];
          kept_v[to] = kept_v[to - 1];
        }
        kept_j[to]            = best.column;
        kept_v[to]            = table.sum[best.place];
        table.sum[best.place] = 0;
      }
      __syncwarp();
    }
  }
  __syncwarp();
  double factor = 1;
  bool   plain  = own >= 0 && !p.fixed && entries == 0;
  if (own < 0) entries = 0;
  if (cut) {
    double sum = 0;
    for (int e = 0; e < entries; e++) sum += kept_v[e];
    factor = t / sum;
    plain  = plain || !(factor > 0 && factor <= kCMATCHMostScaling);
  }
  __syncwarp();
  if (plain && fits) {
    factor = 1;
    if (!p.fixed) entries = 1;
    if (lane == 0) {
      if (!p.fixed) kept_j[0] = own;
      for (int e = 0; e < entries; e++) kept_v[e] = kept_j[e] == own ? 1. : 0.;
    }
  }
  __syncwarp();
  if (i >= 0 && fits) {
    StoreRow(p, i, lane, GroupSize, entries, kept_j, kept_v, factor);
    if (lane == 0 && (cut || plain)) atomicAdd(plain ? &report->plain : &report->cut, 1);
  }
  return fits;
}

/* How a thread has ended a row of P. */
enum ProlongedRow { PROLONGED_WHOLE, PROLONGED_CUT, PROLONGED_PLAIN, PROLONGED_NOT };

/* The same by a thread, in a row that meets few aggregates; key and sum are columns of shared memory. */
template <typename T>
__device__ __forceinline__ ProlongedRow ProlongByThread(const Prolong<T> &p, LocalInt i, LocalInt *key, double *sum)
{
  const LocalInt begin = p.A_i[i], end = p.A_i[i + 1], own = p.aggregate[i];
  const size_t   at = (size_t)i * p.width;
  double         d = (double)p.d[i], lumped = 0;
  T              largest = 0;
  if (own < 0) {
    for (LocalInt t = 0; t < p.width; t++) {
      if (!p.fixed) p.P_j[at + t] = -1;
      p.P_a[at + t] = T(0);
    }
    p.sum[i] = 0;
    return PROLONGED_WHOLE;
  }
  for (LocalInt k = begin; k < end; k++) largest = max(largest, -p.A_a[k]);
  const T least = largest > 0 ? (T)kCMATCHFilter * largest : -(T)INFINITY;
  for (LocalInt k = begin; k < end; k++)
    if (-p.A_a[k] < least) lumped += (double)p.A_a[k];
  const double dF = d + lumped > kCMATCHLeastDiagonal * d ? d + lumped : d;
  double       l1 = fabs(dF), S = dF;
  for (LocalInt k = begin; k < end; k++)
    if (!(-p.A_a[k] < least)) l1 += fabs((double)p.A_a[k]);
  double D = fmax(dF, 0.5 * l1);
  if (!(D > 0)) D = 1;
  const double q    = kCMATCHOmega / D;
  int          met  = 1;
  bool         fits = true;
  key[0]            = own;
  sum[0]            = 1 - q * dF;
  for (LocalInt k = begin; k < end; k++) {
    const T a = p.A_a[k];
    if (-a < least) continue;
    const LocalInt column = p.aggregate[p.A_j[k]];
    if (column < 0) continue;
    S += (double)a;
    int place = 0;
    while (place < met && key[place * kProlongThread] != column) place++;
    if (place < met) sum[place * kProlongThread] += -(q * (double)a);
    else if (met < kProlongRoom) {
      key[met * kProlongThread] = column;
      sum[met * kProlongThread] = 0 + -(q * (double)a); /* 0 and not -0, where a is 0 */
      met++;
    } else fits = false;
  }
  if (!fits) return PROLONGED_NOT;
  /* the entries that are not 0, and of these the best ones, move to the front; then they are put in order */
  int nonzeros = 0, entries = 0;
  for (int place = 0; place < met; place++) nonzeros += sum[place * kProlongThread] != 0;
  const auto swap = [&](int a, int b) {
    const LocalInt k        = key[a * kProlongThread];
    const double   v        = sum[a * kProlongThread];
    key[a * kProlongThread] = key[b * kProlongThread];
    sum[a * kProlongThread] = sum[b * kProlongThread];
    key[b * kProlongThread] = k;
    sum[b * kProlongThread] = v;
  };
  bool cut = false;
  if (p.fixed) {
    int found = 0;
    while (entries < p.width && p.P_j[at + entries] >= 0) {
      const LocalInt column = p.P_j[at + entries];
      int            place  = entries;
      while (place < met && key[place * kProlongThread] != column) place++;
      if (place == met) {
        if (met == kProlongRoom) return PROLONGED_NOT; /* no room for an entry of 0: the columns are those of other values */
        key[met * kProlongThread] = column;
        sum[met * kProlongThread] = 0;
        met++;
      }
      found += sum[place * kProlongThread] != 0;
      swap(entries, place);
      entries++;
    }
    cut = found < nonzeros;
  } else {
    cut     = nonzeros > p.width;
    entries = min(nonzeros, p.width);
    for (int e = 0; e < entries; e++) {
      Candidate best{0, 0, 0, -1};
      for (int place = e; place < met; place++) {
        const double v = sum[place * kProlongThread];
        if (v == 0) continue;
        const LocalInt  column = key[place * kProlongThread];
        const Candidate one{fabs(v), cut ? CMATCHMix(i, column) : 0u, column, place};
        if (IsBetter(one, best)) best = one;
      }
      swap(e, best.place);
    }
    for (int e = 1; e < entries; e++)
      for (int to = e; to > 0 && key[(to - 1) * kProlongThread] > key[to * kProlongThread]; to--) swap(to, to - 1);
  }
  double factor = 1;
  bool   plain  = !p.fixed && entries == 0;
  if (cut) {
    double kept = 0;
    for (int e = 0; e < entries; e++) kept += sum[e * kProlongThread];
    factor = (1 - q * S) / kept;
    plain  = plain || !(factor > 0 && factor <= kCMATCHMostScaling);
  }
  if (plain) {
    factor = 1;
    if (!p.fixed) {
      entries = 1;
      key[0]  = own;
    }
    for (int e = 0; e < entries; e++) sum[e * kProlongThread] = key[e * kProlongThread] == own ? 1. : 0.;
  }
  double total = 0;
  for (int t = 0; t < p.width; t++) {
    const T        value  = t < entries ? (T)(sum[t * kProlongThread] * factor) : T(0);
    const LocalInt column = t < entries ? key[t * kProlongThread] : -1;
    if (t < entries) total += (double)value;
    if (!p.fixed) p.P_j[at + t] = column;
    p.P_a[at + t] = value;
    if (p.count && column >= 0) p.turn[at + t] = atomicAdd(p.count + column, 1);
  }
  p.sum[i] = total;
  return plain ? PROLONGED_PLAIN : cut ? PROLONGED_CUT : PROLONGED_WHOLE;
}

/* A thread takes a row. Rows that meet many aggregates are listed. */
template <typename T>
__global__ void __launch_bounds__(kProlongThread) ProlongThreadKernel(Prolong<T> p, CMATCHReport *report)
{
  __shared__ LocalInt keys[kProlongRoom][kProlongThread];
  __shared__ double   sums[kProlongRoom][kProlongThread];
  const long long     i = GridThread();
  const ProlongedRow  row =
    i < p.n ? ProlongByThread(p, (LocalInt)i, &keys[0][threadIdx.x], &sums[0][threadIdx.x]) : PROLONGED_WHOLE;
  if (row == PROLONGED_NOT) p.wide[atomicAdd(&report->wide, 1)] = (LocalInt)i;
  const int cut = __syncthreads_count(row == PROLONGED_CUT), plain = __syncthreads_count(row == PROLONGED_PLAIN);
  if (threadIdx.x == 0 && cut) atomicAdd(&report->cut, cut);
  if (threadIdx.x == 0 && plain) atomicAdd(&report->plain, plain);
}

/* A group takes a row, of all rows or of those in `list`. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  ProlongKernel(Prolong<T> p, LocalInt rows, const LocalInt *list, int bits, CMATCHReport *report)
{
  extern __shared__ double shared[];
  const int          groups = kBlockSize / kProlongGroup, group = threadIdx.x / kProlongGroup, lane = threadIdx.x % kProlongGroup;
  const int          size   = 1 << bits;
  const long long    row    = GridThread() / kProlongGroup;
  const LocalInt     i      = row >= rows ? -1 : list ? list[row] : (LocalInt)row;
  double *const      values = shared + (size_t)groups * size;
  LocalInt *const    keys   = (LocalInt *)(values + (size_t)groups * p.width);
  LocalInt *const    kept   = keys + (size_t)groups * (size + 1);
  const ProductTable table{keys + group * (size + 1), shared + (size_t)group * size, bits, false};
  for (int slot = lane; slot < size; slot += kProlongGroup) {
    table.key[slot] = -1;
    table.sum[slot] = 0;
  }
  __syncwarp();
  const bool fits = ProlongRow<kProlongGroup>(p, i, table, size, kept + group * p.width, values + group * p.width, report);
  if (i >= 0 && !fits && lane == 0) p.wide[atomicAdd(&report->wide, 1)] = i;
}

/* The general path: a block of one warp takes listed rows in turns, with a place for every column. */
template <typename T>
__global__ void __launch_bounds__(kWarpSize)
  ProlongWideKernel(Prolong<T> p, LocalInt count, LocalInt *keys, double *sums, CMATCHReport *report)
{
  __shared__ LocalInt kept_j[kCMATCHLargestRow];
  __shared__ double   kept_v[kCMATCHLargestRow];
  const ProductTable  table{keys + (size_t)blockIdx.x * p.columns, sums + (size_t)blockIdx.x * p.columns, 0, true};
  for (LocalInt w = blockIdx.x; w < count; w += gridDim.x) {
    (void)ProlongRow<kWarpSize>(p, p.wide[w], table, p.columns, kept_j, kept_v, report);
    __syncwarp();
    for (LocalInt slot = threadIdx.x; slot < p.columns; slot += kWarpSize) {
      table.key[slot] = -1;
      table.sum[slot] = 0;
    }
    __syncwarp();
  }
}

/* A row of P with a single one */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) ProlongPlain(Prolong<T> p)
{
  const long long i = GridThread();
  if (i >= p.n) return;
  const LocalInt own = p.aggregate[i];
  if (!p.fixed) p.P_j[i] = own;
  p.P_a[i] = own >= 0 ? T(1) : T(0);
  p.sum[i] = own >= 0 ? 1. : 0.;
  if (p.count && own >= 0) p.turn[i] = atomicAdd(p.count + own, 1);
}

/* ------------------------------------------ transpose ----------------------------------------- */

/* Every entry of P goes to its row of R, in any order. */
__global__ void __launch_bounds__(kBlockSize)
  FillRestriction(LocalInt n, LocalInt width, const LocalInt *P_j, const LocalInt *turn, const LocalInt *R_i, LocalInt *R_j)
{
  const long long at = GridThread();
  if (at >= (long long)n * width) return;
  const LocalInt column = P_j[at];
  if (column >= 0) R_j[R_i[column] + turn[at]] = (LocalInt)(at / width);
}

/* Sorts rows of R of at most kLongestSorted entries: the place of an entry is how many are smaller. A warp takes a row. */
__global__ void __launch_bounds__(kBlockSize) SortRestriction(LocalInt rows, const LocalInt *R_i, LocalInt *R_j)
{
  const LocalInt row = (LocalInt)(GridThread() / kWarpSize);
  if (row >= rows) return;
  const LocalInt begin = R_i[row], end = R_i[row + 1];
  LocalInt       index[kSortedPerLane], place[kSortedPerLane];
#pragma unroll
  for (int t = 0; t < kSortedPerLane; t++) {
    const LocalInt k = begin + threadIdx.x % kWarpSize + t * kWarpSize;
    if (k >= end) continue;
    index[t] = R_j[k];
    place[t] = begin;
    for (LocalInt other = begin; other < end; other++) place[t] += R_j[other] < index[t];
  }
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kSortedPerLane; t++)
    if (begin + (LocalInt)(threadIdx.x % kWarpSize) + t * kWarpSize < end) R_j[place[t]] = index[t];
}

/* The values of R: row k of P has few entries, one of which is in this column. A group takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) RestrictionValues(LocalInt rows, LocalInt width, const LocalInt *R_i,
                                                                const LocalInt *R_j, const LocalInt *P_j, const T *P_a, T *R_a)
{
  const LocalInt row = (LocalInt)(GridThread() / kRestrictGroup);
  if (row >= rows) return;
  for (LocalInt k = R_i[row] + threadIdx.x % kRestrictGroup; k < R_i[row + 1]; k += kRestrictGroup) {
    size_t at = (size_t)R_j[k] * width;
    while (P_j[at] != row) at++;
    R_a[k] = P_a[at];
  }
}

/* ------------------------------------------ row sums ------------------------------------------ */

/* y = A (P 1) by differences. A group takes a row. */
template <int GroupSize, typename T>
__global__ void __launch_bounds__(kBlockSize) OperatorTimesSums(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, const T *A_a,
                                                                const double *rs, const double *p1, double *y)
{
  const LocalInt row   = (LocalInt)(GridThread() / GroupSize);
  const int      lane  = threadIdx.x % GroupSize;
  const LocalInt begin = row < n ? A_i[row] : 0, end = row < n ? A_i[row + 1] : 0;
  const int      longest = (int)__reduce_max_sync(kFullWarp, end - begin);
  const double   own     = row < n ? p1[row] : 0.;
  double         sum     = row < n ? rs[row] * own : 0.;
  for (int k = 0; k < longest; k += GroupSize) {
    const LocalInt at = begin + k + lane;
    AddInOrder<GroupSize>(at < end ? (double)A_a[at] * (p1[A_j[at]] - own) : 0., &sum);
  }
  if (row < n && lane == 0) y[row] = sum;
}

/*
   The row sums of the next level, R y; `none` in a row that no entry of P belongs to. size [rows] is that of CMATCHSums. A group
   takes a row.
*/
template <typename T>
__global__ void __launch_bounds__(kBlockSize) RestrictSums(LocalInt rows, const LocalInt *R_i, const LocalInt *R_j, const T *R_a,
                                                           const T *d, const double *y, double none, double *rs, double *size)
{
  const LocalInt row   = (LocalInt)(GridThread() / kRestrictGroup);
  const int      lane  = threadIdx.x % kRestrictGroup;
  const LocalInt begin = row < rows ? R_i[row] : 0, end = row < rows ? R_i[row + 1] : 0;
  const int      longest = (int)__reduce_max_sync(kFullWarp, end - begin);
  double         sum = 0, of_size = 0;
  for (int k = 0; k < longest; k += kRestrictGroup) {
    const LocalInt at    = begin + k + lane;
    const bool     there = at < end;
    const double   a     = there ? (double)R_a[at] : 0.;
    AddInOrder<kRestrictGroup>(there ? a * y[R_j[at]] : 0., &sum);
    AddInOrder<kRestrictGroup>(there ? a * a * (double)d[R_j[at]] : 0., &of_size);
  }
  if (row >= rows || lane != 0) return;
  rs[row]   = begin == end ? none : sum;
  size[row] = of_size;
}

/* ------------------------------------- the Galerkin product ----------------------------------- */

/* Row i of A, its diagonal entry first */
template <typename T>
struct OperatorList {
  const LocalInt *A_i, *A_j;
  const T        *A_a, *d;

  __device__ int  Count(LocalInt i) const { return A_i[i + 1] - A_i[i] + 1; }
  __device__ void Get(LocalInt i, int t, LocalInt *k, double *value) const
  {
    const LocalInt at = A_i[i] + t - 1;
    *k                = t ? A_j[at] : i;
    *value            = t ? (double)A_a[at] : (double)d[i];
  }
};

/* Row k of P */
template <typename T>
struct ProlongatorEntries {
  LocalInt        width;
  const LocalInt *P_j;
  const T        *P_a;

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *length) const
  {
    *begin  = 0;
    *length = width;
  }
  __device__ void Get(LocalInt k, LocalInt, LocalInt place, LocalInt *column, double *value) const
  {
    const size_t at = (size_t)k * width + place;
    *column         = P_j[at];
    *value          = (double)P_a[at];
  }
};

/* Row i of R */
template <typename T>
struct RestrictionList {
  const LocalInt *R_i, *R_j;
  const T        *R_a;

  __device__ int  Count(LocalInt i) const { return R_i[i + 1] - R_i[i]; }
  __device__ void Get(LocalInt i, int t, LocalInt *k, double *value) const
  {
    *k     = R_j[R_i[i] + t];
    *value = (double)R_a[R_i[i] + t];
  }
};

/* Row k of A P */
template <typename T>
struct StoredEntries {
  const LocalInt *start, *length, *j;
  const T        *a;

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *count) const
  {
    *begin = start[k];
    *count = length[k];
  }
  __device__ void Get(LocalInt, LocalInt, LocalInt place, LocalInt *column, double *value) const
  {
    *column = j[place];
    *value  = (double)a[place];
  }
};

/* -------------------------------------------- steps ------------------------------------------- */

/* The logarithm of a table with room for so many entries at three quarters. */
int TableBits(double entries, int least, int most)
{
  int bits = least;
  while (bits < most && (1 << bits) * 0.75 < entries) bits++;
  return bits;
}

template <typename T>
struct Step {
  CMATCHSetup *s;
  CMATCHLevel &L;
  LocalInt     level;
  bool         keep;
  LocalInt     met   = 0;                        /* columns of P that the rank does not have, behind its own ones */
  double      *p1    = nullptr;                  /* [n] row sums of P */
  LocalInt    *count = nullptr, *turn = nullptr; /* see Prolong */

  PetscErrorCode Prolongate()
  {
    PetscFunctionBegin;
    PetscCall(s->arena.Take((size_t)L.n + L.ghosts, &p1));
    if (!keep) {
      PetscCall(s->arena.Take((size_t)L.coarse + met + 1, &count));
      PetscCall(s->arena.Take((size_t)L.n * L.width, &turn));
      PetscCallCUDA(cudaMemsetAsync(count, 0, ((size_t)L.coarse + met + 1) * sizeof(*count), s->stream));
    }
    const auto     mark    = s->arena.mark();
    const LocalInt columns = L.coarse + met;
    Prolong<T>     p{L.n, columns, L.width, L.A_i,   L.A_j, (const T *)L.A_a, (const T *)L.d, L.aggregate, L.P_j, (T *)L.P_a,
                 p1,  count,   turn,    nullptr, keep};
    PetscCallCUDA(cudaMemsetAsync(&s->report->cut, 0, 2 * sizeof(LocalInt), s->stream)); /* cut and plain */
    if (L.transfer != CMATCH_MATCHED) {
      ProlongPlain<<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(p);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(s->arena.Take(L.n, &p.wide));
    PetscCallCUDA(cudaMemsetAsync(&s->report->wide, 0, sizeof(LocalInt), s->stream));
    const double    mean    = (double)L.nnz / L.n;
    const bool      threads = mean <= kProlongRoom;
    const LocalInt *list    = nullptr;
    LocalInt        rows    = L.n;
    if (threads) {
      ProlongThreadKernel<T><<<BlocksFor(L.n, kProlongThread), kProlongThread, 0, s->stream>>>(p, s->report);
      FinePCCheckLaunch();
      PetscCall(CMATCHReadReport(s));
      list = p.wide;
      rows = s->seen.wide;
      if (rows) {
        PetscCall(s->arena.Take(rows, &p.wide));
        PetscCallCUDA(cudaMemsetAsync(&s->report->wide, 0, sizeof(LocalInt), s->stream));
      }
    }
    if (rows) {
      const int    bits   = threads ? 7 : TableBits(mean + 1, 4, 7);
      const size_t groups = kBlockSize / kProlongGroup;
      const size_t shared = ProductShared(groups, bits) + groups * L.width * (sizeof(double) + sizeof(LocalInt));
      PetscCallCUDA(cudaFuncSetAttribute(ProlongKernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
      ProlongKernel<T>
        <<<BlocksFor((long long)rows * kProlongGroup), kBlockSize, shared, s->stream>>>(p, rows, list, bits, s->report);
      FinePCCheckLaunch();
      PetscCall(CMATCHReadReport(s));
    }
    if (s->seen.wide) {
      const LocalInt tables = (LocalInt)PetscMax(1, PetscMin((size_t)PetscMin(s->seen.wide, kGeneralBlocks * s->H->processors),
                                                             kProductWideBytes / (columns * (sizeof(double) + sizeof(LocalInt)))));
      LocalInt      *keys   = nullptr;
      double        *sums   = nullptr;
      PetscCall(s->arena.Take((size_t)tables * columns, &keys));
      PetscCall(s->arena.Take((size_t)tables * columns, &sums));
      PetscCallCUDA(cudaMemsetAsync(keys, -1, (size_t)tables * columns * sizeof(*keys), s->stream));
      PetscCallCUDA(cudaMemsetAsync(sums, 0, (size_t)tables * columns * sizeof(*sums), s->stream));
      ProlongWideKernel<T><<<tables, kWarpSize, 0, s->stream>>>(p, s->seen.wide, keys, sums, s->report);
      FinePCCheckLaunch();
    }
    s->arena.Release(mark);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The pattern of R, from the entries of each column. */
  PetscErrorCode Transpose()
  {
    const LocalInt rows = L.coarse + L.foreign;

    PetscFunctionBegin;
    PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, count, L.R_i, rows + 1, s->stream);
    }));
    PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceReduce::Max(memory, bytes, count, &s->report->longest, rows, s->stream);
    }));
    PetscCallCUDA(cudaMemcpyAsync(&s->report->P_nnz, L.R_i + rows, sizeof(LocalInt), cudaMemcpyDeviceToDevice, s->stream));
    FillRestriction<<<BlocksFor((long long)L.n * L.width), kBlockSize, 0, s->stream>>>(L.n, L.width, L.P_j, turn, L.R_i, L.R_j);
    FinePCCheckLaunch();
    PetscCall(CMATCHReadReport(s));
    L.P_nnz = s->seen.P_nnz;
    if (s->seen.longest <= kLongestSorted) {
      SortRestriction<<<BlocksFor((long long)rows * kWarpSize), kBlockSize, 0, s->stream>>>(rows, L.R_i, L.R_j);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    cub::DoubleBuffer<LocalInt> index(L.R_j, (LocalInt *)L.R_a); /* the values are not there yet */
    PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceSegmentedSort::SortKeys(memory, bytes, index, L.P_nnz, rows, L.R_i, L.R_i + 1, s->stream);
    }));
    if (index.Current() != L.R_j)
      PetscCallCUDA(cudaMemcpyAsync(L.R_j, index.Current(), L.P_nnz * sizeof(LocalInt), cudaMemcpyDeviceToDevice, s->stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The values of R. */
  PetscErrorCode FillValues()
  {
    const LocalInt rows = L.coarse + L.foreign;

    PetscFunctionBegin;
    RestrictionValues<T><<<BlocksFor((long long)rows * kRestrictGroup), kBlockSize, 0, s->stream>>>(rows, L.width, L.R_i, L.R_j,
                                                                                                    L.P_j, (const T *)L.P_a,
                                                                                                    (T *)L.R_a);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* y = A (P 1) */
  PetscErrorCode MultiplySums(double *y)
  {
    const double *const rs = s->H->rs[level];

    PetscFunctionBegin;
    if (L.nnz <= (double)kProlongRoom * L.n)
      OperatorTimesSums<1, T><<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(L.n, L.A_i, L.A_j, (const T *)L.A_a, rs, p1, y);
    else
      OperatorTimesSums<kRestrictGroup, T>
        <<<BlocksFor((long long)L.n * kRestrictGroup), kBlockSize, 0, s->stream>>>(L.n, L.A_i, L.A_j, (const T *)L.A_a, rs, p1, y);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A P, its rows in any order */
  template <int GroupSize>
  PetscErrorCode MultiplyBy(ProductRows<T> *AP, LocalInt *wide)
  {
    const LocalInt              columns = L.coarse + met;
    const OperatorList<T>       left{L.A_i, L.A_j, (const T *)L.A_a, (const T *)L.d};
    const ProlongatorEntries<T> right{L.width, L.P_j, (const T *)L.P_a};
    const double                about = 0.6 * ((double)L.nnz / L.n + 1) * L.width; /* about so many columns */
    const ProductPlan           plan{false, TableBits(PetscMin(about, 96), 5, 8)};

    PetscFunctionBegin;
    PetscCall(
      (Product<GroupSize, 1, false, false, false>(s, left, right, L.n, columns, plan, AP, wide, [&](size_t entries, auto *out) {
        PetscFunctionBegin;
        PetscCall(TakeRoom(entries, out));
        PetscFunctionReturn(PETSC_SUCCESS);
      })));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode Multiply(ProductRows<T> *AP, LocalInt *wide)
  {
    PetscFunctionBegin;
    if (L.width <= 4) PetscCall(MultiplyBy<4>(AP, wide));
    else if (L.width <= 8) PetscCall(MultiplyBy<8>(AP, wide));
    else PetscCall(MultiplyBy<kWarpSize>(AP, wide));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename V>
  PetscErrorCode TakeRoom(size_t entries, ProductRows<V> *out)
  {
    PetscFunctionBegin;
    PetscCheck(entries <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "A product of the Galerkin operator has %zu entries, more than 32-bit indices can count", entries);
    PetscCall(s->arena.Take(entries, &out->j));
    PetscCall(s->arena.Take(entries, &out->a));
    out->room = entries;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Measured on one H200: 16 lanes of R (A P) are best for rows of A P with some 12 entries, where there are many rows. */
  bool HasShortRows(double mean) const { return mean <= 20 && L.coarse > kFewRows; }

  /* R (A P), without its diagonal */
  PetscErrorCode Restrict(const ProductRows<T> &AP, double mean, ProductRows<T> *C, LocalInt *wide)
  {
    const RestrictionList<T> left{L.R_i, L.R_j, (const T *)L.R_a};
    const StoredEntries<T>   right{AP.start, AP.length, AP.j, AP.a};
    const auto               room = [&](size_t entries, auto *out) {
      PetscFunctionBegin;
      PetscCall(TakeRoom(entries, out));
      PetscFunctionReturn(PETSC_SUCCESS);
    };

    PetscFunctionBegin;
    if (HasShortRows(mean))
      PetscCall((Product<16, 1, false, true, true>(s, left, right, L.coarse, L.coarse, {false, 7}, C, wide, room)));
    else PetscCall((Product<kWarpSize, 1, false, true, true>(s, left, right, L.coarse, L.coarse, {false, 9}, C, wide, room)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode MakeAP(ProductRows<T> *AP, LocalInt *wide)
  {
    size_t &room = s->H->AP_room[level];

    PetscFunctionBegin;
    if (!room) room = (size_t)(kProductEntries * (L.nnz + (double)L.n)) * (L.width > kCMATCHUsualRow ? 2 : 1);
    PetscCall(TakeRoom(room, AP));
    PetscCall(Multiply(AP, wide));
    room = AP->room;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* R (A P) and R (A (P 1)) of the own rows, for own and foreign aggregates. */
  PetscErrorCode Products(CMATCHMade *made)
  {
    const LocalInt           rows = L.coarse + L.foreign, columns = L.coarse + met;
    const RestrictionList<T> left{L.R_i, L.R_j, (const T *)L.R_a};
    double                  *y       = nullptr;
    LocalInt                 AP_wide = 0, wide = 0;
    ProductRows<T>           AP{};
    ProductRows<double>      C{};

    PetscFunctionBegin;
    PetscCall(s->arena.Take(rows, &made->rs));
    PetscCall(s->arena.Take(rows, &made->size));
    PetscCall(s->arena.Take((size_t)rows + 1, &C.start));
    PetscCall(s->arena.Take((size_t)rows + 1, &C.length));
    made->start  = C.start;
    made->length = C.length;
    if (!rows) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(s->arena.Take(L.n, &y));
    PetscCall(MultiplySums(y));
    RestrictSums<T><<<BlocksFor((long long)rows * kRestrictGroup), kBlockSize, 0, s->stream>>>(rows, L.R_i, L.R_j, (const T *)L.R_a,
                                                                                               (const T *)L.d, y, 0., made->rs,
                                                                                               made->size);
    FinePCCheckLaunch();
    PetscCall(s->arena.Take(rows, &C.wide));
    PetscCall(TakeRoom((size_t)(kCoarseEntries * L.nnz) + kCMATCHLeastEntries * PetscMin((size_t)rows, kCMATCHLeastRows), &C));
    PetscCall(s->arena.Take(L.n, &AP.start));
    PetscCall(s->arena.Take(L.n, &AP.length));
    PetscCall(s->arena.Take(L.n, &AP.wide));
    PetscCall(MakeAP(&AP, &AP_wide));
    const StoredEntries<T> right{AP.start, AP.length, AP.j, AP.a};
    const auto             room = [&](size_t entries, auto *out) {
      PetscFunctionBegin;
      PetscCall(TakeRoom(entries, out));
      PetscFunctionReturn(PETSC_SUCCESS);
    };
    if (HasShortRows((double)s->seen.entries / L.n))
      PetscCall((Product<16, 1, false, false, false>(s, left, right, rows, columns, {false, 7}, &C, &wide, room)));
    else PetscCall((Product<kWarpSize, 1, false, false, false>(s, left, right, rows, columns, {false, 9}, &C, &wide, room)));
    made->j = C.j;
    made->a = C.a;
    if (!keep) L.wide = AP_wide + wide;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Run()
  {
    CMATCHHierarchyCUDA *H       = s->H;
    const LocalInt       coarse  = L.coarse;
    const auto           mark    = s->arena.mark();
    LocalInt             AP_wide = 0, wide = 0;
    double              *y = nullptr, *size = nullptr;
    ProductRows<T>       AP{}, C{};

    PetscFunctionBegin;
    PetscCall(s->arena.Take(L.n, &y));
    const auto transfer = s->arena.mark();
    PetscCall(Prolongate());
    if (!keep) PetscCall(Transpose());
    PetscCall(FillValues());
    PetscCall(MultiplySums(y));
    s->arena.Release(transfer);
    PetscCall(s->arena.Take(L.n, &AP.start));
    PetscCall(s->arena.Take(L.n, &AP.length));
    C.fixed = keep;
    PetscCall(s->arena.Take(coarse, &C.diagonal));
    PetscCall(s->arena.Take(coarse, &size));
    PetscCall(s->arena.Take(coarse, &C.wide));
    if (keep) {
      C.start = H->level[level + 1].A_i;
      C.a     = (T *)H->level[level + 1].A_a;
    } else {
      PetscCall(s->arena.Take(coarse, &C.start));
      PetscCall(s->arena.Take((size_t)coarse + 1, &C.length));
      PetscCallCUDA(cudaMemsetAsync(C.length + coarse, 0, sizeof(LocalInt), s->stream));
      PetscCall(TakeRoom((size_t)(kCoarseEntries * L.nnz) + kCMATCHLeastEntries * PetscMin((size_t)coarse, kCMATCHLeastRows), &C));
    }
    if (!keep && C.room >= (size_t)L.n) AP.wide = C.j; /* not needed yet */
    else PetscCall(s->arena.Take(L.n, &AP.wide));
    PetscCall(MakeAP(&AP, &AP_wide));
    const double mean = (double)s->seen.entries / L.n;
    PetscCall(Restrict(AP, mean, &C, &wide));
    if (!keep) {
      PetscCall(CMATCHCreateLevel(s, coarse, (LocalInt)s->seen.entries));
      L.wide         = AP_wide + wide;
      CMATCHLevel &N = H->level[level + 1];
      PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
        return cub::DeviceScan::ExclusiveSum(memory, bytes, C.length, N.A_i, coarse + 1, s->stream);
      }));
      PackRows<T><<<BlocksFor((long long)coarse * kPackGroup), kBlockSize, 0, s->stream>>>(coarse, C, N.A_i, N.A_j, (T *)N.A_a);
      FinePCCheckLaunch();
    }
    L.cut   = s->seen.cut;
    L.plain = s->seen.plain;
    RestrictSums<T><<<BlocksFor((long long)coarse * kRestrictGroup), kBlockSize, 0, s->stream>>>(coarse, L.R_i, L.R_j,
                                                                                                 (const T *)L.R_a, (const T *)L.d,
                                                                                                 y, 1., H->rs[level + 1], size);
    FinePCCheckLaunch();
    PetscCall(CMATCHCompleteLevel(s, level + 1, C.diagonal, size));
    s->arena.Release(mark);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

} // namespace

PetscErrorCode CMATCHCoarsen(CMATCHSetup *s, LocalInt level, bool keep)
{
  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    Step<decltype(zero)> step{s, s->H->level[level], level, keep};
    PetscFunctionBegin;
    PetscCall(step.Run());
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksProlong(CMATCHSetup *s, LocalInt level, bool keep, LocalInt met, CMATCHCounted *counted)
{
  CMATCHLevel &L = s->H->level[level];

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    Step<decltype(zero)> step{s, L, level, keep, met};
    PetscFunctionBegin;
    if (L.n) PetscCall(step.Prolongate());
    *counted = CMATCHCounted{step.p1, step.count, step.turn};
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscCall(CMATCHReadReport(s));
  L.cut   = L.n ? s->seen.cut : 0;
  L.plain = L.n ? s->seen.plain : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksRestriction(CMATCHSetup *s, LocalInt level, bool keep, const CMATCHCounted &counted)
{
  CMATCHLevel &L = s->H->level[level];

  PetscFunctionBegin;
  if (!(L.coarse + L.foreign)) {
    L.P_nnz = 0;
    if (!keep) PetscCallCUDA(cudaMemsetAsync(L.R_i, 0, sizeof(*L.R_i), s->stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    Step<decltype(zero)> step{s, L, level, keep, 0, counted.p1, counted.count, counted.turn};
    PetscFunctionBegin;
    if (!keep) PetscCall(step.Transpose());
    PetscCall(step.FillValues());
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksProducts(CMATCHSetup *s, LocalInt level, bool keep, double *p1, LocalInt columns, CMATCHMade *made)
{
  CMATCHLevel &L = s->H->level[level];

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    Step<decltype(zero)> step{s, L, level, keep, columns - L.coarse, p1};
    PetscFunctionBegin;
    PetscCall(step.Products(made));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
