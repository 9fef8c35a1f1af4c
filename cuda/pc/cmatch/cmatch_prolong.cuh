/* The kernels of the prolongator, for cmatch_galerkin.cu */
#pragma once

#include "cmatch_product.cuh"

namespace
{

constexpr int kProlongGroup  = 8;   /* lanes of a row of P */
constexpr int kProlongThread = 128; /* threads of a block in which a thread has a row of P */
constexpr int kProlongRoom   = 12;  /* aggregates that such a row may meet */

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

/*
   The entries of a row that stay move to the front, of those that it has met: the best ones that are not 0, in the order of their
   columns, or with columns that are fixed these. False if there is no room for them.
*/
template <typename T>
__device__ __forceinline__ bool KeepByThread(const Prolong<T> &p, LocalInt i, int met, LocalInt *key, double *sum, int *entries,
                                             bool *cut)
{
  const size_t at       = (size_t)i * p.width;
  int          nonzeros = 0;
  for (int place = 0; place < met; place++) nonzeros += sum[place * kProlongThread] != 0;
  const auto swap = [&](int a, int b) {
    const LocalInt k        = key[a * kProlongThread];
    const double   v        = sum[a * kProlongThread];
    key[a * kProlongThread] = key[b * kProlongThread];
    sum[a * kProlongThread] = sum[b * kProlongThread];
    key[b * kProlongThread] = k;
    sum[b * kProlongThread] = v;
  };
  if (p.fixed) {
    int found = 0;
    while (*entries < p.width && p.P_j[at + *entries] >= 0) {
      const LocalInt column = p.P_j[at + *entries];
      int            place  = *entries;
      while (place < met && key[place * kProlongThread] != column) place++;
      if (place == met) {
        if (met == kProlongRoom) return false; /* no room for an entry of 0: the columns are those of other values */
        key[met * kProlongThread] = column;
        sum[met * kProlongThread] = 0;
        met++;
      }
      found += sum[place * kProlongThread] != 0;
      swap(*entries, place);
      (*entries)++;
    }
    *cut = found < nonzeros;
  } else {
    *cut     = nonzeros > p.width;
    *entries = min(nonzeros, p.width);
    for (int e = 0; e < *entries; e++) {
      Candidate best{0, 0, 0, -1};
      for (int place = e; place < met; place++) {
        const double v = sum[place * kProlongThread];
        if (v == 0) continue;
        const LocalInt  column = key[place * kProlongThread];
        const Candidate one{fabs(v), *cut ? CMATCHMix(i, column) : 0u, column, place};
        if (IsBetter(one, best)) best = one;
      }
      swap(e, best.place);
    }
    for (int e = 1; e < *entries; e++)
      for (int to = e; to > 0 && key[(to - 1) * kProlongThread] > key[to * kProlongThread]; to--) swap(to, to - 1);
  }
  return true;
}

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
  int  entries = 0;
  bool cut     = false;
  if (!KeepByThread(p, i, met, key, sum, &entries, &cut)) return PROLONGED_NOT;
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
  if (row == PROLONGED_NOT) ListWide(p.wide, (LocalInt)i, report);
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
  LocalInt *const    kept   = keys + (size_t)groups * (size + kProlongGroup);
  const ProductTable table{keys + group * (size + kProlongGroup), shared + (size_t)group * size, bits, false};
  for (int slot = lane; slot < size; slot += kProlongGroup) {
    table.key[slot] = -1;
    table.sum[slot] = 0;
  }
  __syncwarp();
  const bool fits = ProlongRow<kProlongGroup>(p, i, table, size, kept + group * p.width, values + group * p.width, report);
  if (i >= 0 && !fits && lane == 0) ListWide(p.wide, i, report);
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

} // namespace
