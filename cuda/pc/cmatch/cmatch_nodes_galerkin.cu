/*
   The hierarchy of nodes on the GPU: the Galerkin product.

   Both products find their patterns first. Then a warp takes a row, or a part of one, and makes its blocks one by one: it lists the
   products of each, and adds them up in registers. Of the second product the blocks on and above the diagonal are computed, and the
   others are their transposes.
*/
#include "cmatch_nodes_pattern.cuh"
#include "cmatch_nodes_products.cuh"

namespace
{

constexpr int kGroup       = 8; /* lanes that look at the columns of a row, or have a block */
constexpr int kGroups      = kWarpSize / kGroup;
constexpr int kAPBlock     = 128; /* threads of a block that makes A P */
constexpr int kRRun        = 4;   /* blocks of a row of R that a lane knows */
constexpr int kCoarseWarps = 8;   /* that have a row of the next operator together, at most */

/* Guesses of the blocks of a row: of A P, as a multiple of those of A, and of the next operator. */
constexpr double kAPColumns = 0.6, kCoarseColumns = 100;

/* ------------------------------------------ patterns ------------------------------------------ */

/* Columns of A P */
struct APColumns {
  const LocalInt *A_i, *A_j, *P_j;

  template <typename F>
  __device__ __forceinline__ void ForColumns(LocalInt i, F f) const
  {
    const LocalInt begin = A_i[i], count = (A_i[i + 1] - begin) * kCMATCHSlots;
    for (LocalInt t = threadIdx.x % kWarpSize; t < count; t += kWarpSize) {
      const LocalInt J = P_j[(size_t)A_j[begin + t / kCMATCHSlots] * kCMATCHSlots + t % kCMATCHSlots];
      if (J >= 0) f(J);
    }
  }
};

/* Columns of R (A P), with the diagonal or without */
struct CoarseColumns {
  const LocalInt *R_i, *R_j, *AP_i, *AP_j;
  bool            diagonal;

  template <typename F>
  __device__ __forceinline__ void ForColumns(LocalInt c, F f) const
  {
    const int lane = threadIdx.x % kWarpSize;
    if (diagonal && lane == 0) f(c);
    for (LocalInt e = R_i[c] + lane / kGroup; e < R_i[c + 1]; e += kGroups) {
      const LocalInt i = R_j[e] / kCMATCHSlots;
      for (LocalInt q = AP_i[i] + lane % kGroup; q < AP_i[i + 1]; q += kGroup) f(AP_j[q]);
    }
  }
};

/* -------------------------------------------- A P --------------------------------------------- */

template <typename T>
struct FirstProduct {
  LocalInt        n, k, m;
  const LocalInt *A_i, *A_j, *P_j;
  const double   *A;
  const T        *P_a;
  const LocalInt *AP_i, *AP_j;
  T              *AP_a;
};

/* Blocks of a row of A that a lane knows: coarse levels have longer rows. */
template <int K>
constexpr int kARun = K == 2 || K == 3 ? 2 : 4;
template <int K>
using APList = TermList<K, (kARun<K> + 2) * kWarpSize + kWarpSize, kARun<K> * kWarpSize>;

/* The columns of P that some blocks of a row of A meet, each of which a lane knows. */
template <int K>
struct MetByA {
  static constexpr LocalInt kBlocks = kARun<K> * kWarpSize;

  LocalInt start, node[kARun<K>], column[kARun<K>][kCMATCHSlots];
  LocalInt some_x = 0, some_y = 0; /* blocks of A and P of some product of the row, if there is one */

  template <typename T>
  __device__ __forceinline__ void Load(const FirstProduct<T> &p, LocalInt start_, LocalInt end)
  {
    start = start_;
#pragma unroll
    for (int t = 0; t < kARun<K>; t++) {
      const LocalInt e = start + t * kWarpSize + (LocalInt)threadIdx.x % kWarpSize;
      node[t]          = e < end ? p.A_j[e] : -1;
#pragma unroll
      for (int s = 0; s < kCMATCHSlots; s++) column[t][s] = node[t] < 0 ? -1 : p.P_j[(size_t)node[t] * kCMATCHSlots + s];
    }
#pragma unroll
    for (int t = 0; t < kARun<K>; t++) {
      const unsigned some = __ballot_sync(kFullWarp, column[t][0] >= 0);
      const int      lane = some ? __ffs((int)some) - 1 : 0;
      const LocalInt of   = __shfl_sync(kFullWarp, node[t], lane);
      if (some) some_x = start + t * kWarpSize + lane;
      if (some) some_y = of * kCMATCHSlots;
    }
  }
  /* Lists the products of `count` blocks from o on, of whose columns lane after lane has one, or of the first ones of these: how
   * many. */
  __device__ __forceinline__ int List(LocalInt o, int count, LocalInt J, LocalInt end, bool all, APList<K> *list) const
  {
    const int lane = threadIdx.x % kWarpSize;
    int       own[kARun<K>][kCMATCHSlots], terms = 0, at;
    unsigned  mine[kARun<K>] = {}; /* the lanes that have a product of the lane's block */
#pragma unroll
    for (int t = 0; t < kARun<K>; t++)
#pragma unroll
      for (int s = 0; s < kCMATCHSlots; s++) own[t][s] = -1;
    for (int n = 0; n < count; n++) {
      const LocalInt of_n = __shfl_sync(kFullWarp, J, n);
#pragma unroll
      for (int t = 0; t < kARun<K>; t++) {
        bool has = false;
        if (start + t * kWarpSize >= end) break;
#pragma unroll
        for (int s = 0; s < kCMATCHSlots; s++) {
          has       = has || column[t][s] == of_n;
          own[t][s] = column[t][s] == of_n ? n : own[t][s];
        }
        const unsigned some = __ballot_sync(kFullWarp, has);
        mine[t]             = lane == n ? some : mine[t];
      }
    }
#pragma unroll
    for (int t = 0; t < kARun<K>; t++) terms += __popc(mine[t]);
    const int fit = list->MakeRoom(count, o + lane, terms, all, some_x, some_y, &at);
#pragma unroll
    for (int s = 0; s < kCMATCHSlots; s++) {
#pragma unroll
      for (int t = 0; t < kARun<K>; t++) {
        if (start + t * kWarpSize >= end) break;
        const int n  = max(own[t][s], 0);
        int       to = __shfl_sync(kFullWarp, at, n);
#pragma unroll
        for (int b = 0; b <= t; b++) to += __popc(__shfl_sync(kFullWarp, mine[b], n) & (b < t ? kFullWarp : (1u << lane) - 1u));
        if (own[t][s] >= 0 && n < fit) list->Put(to, start + t * kWarpSize + lane, node[t] * kCMATCHSlots + s);
      }
    }
    return fit;
  }
};

/* A P. A warp takes a row. If that is long, its blocks of A are looked at again for each block of the result. */
template <typename T, int K, int M>
__global__ void __launch_bounds__(kAPBlock, K == 2 || K == 3 ? 8 : 0) MultiplyAP(FirstProduct<T> p)
{
  __shared__ typename APList<K>::Memory memory[kAPBlock / kWarpSize];
  const LocalInt                        k = K ? K : p.k, m = M ? M : p.m, i = (LocalInt)(GridThread() / kWarpSize);
  const int                             lane = threadIdx.x % kWarpSize;
  if (i >= p.n) return;
  const LocalInt begin = p.A_i[i], end = p.A_i[i + 1], last = p.AP_i[i + 1];
  const bool     is_long = end - begin > MetByA<K>::kBlocks;
  APList<K>      list(&memory[threadIdx.x / kWarpSize], k);
  MetByA<K>      met;
  LocalInt       fit = 0;
  if (!is_long) met.Load(p, begin, end);
  for (LocalInt o = p.AP_i[i]; o < last; o += fit) {
    const int      count = is_long ? 1 : min(kWarpSize, last - o);
    const LocalInt J     = lane < count ? p.AP_j[o + lane] : -1;
    for (LocalInt start = begin; start < end; start += MetByA<K>::kBlocks) {
      if (is_long) met.Load(p, start, end);
      fit = met.List(o, count, J, end, start + MetByA<K>::kBlocks >= end, &list);
      list.Drain(
        TermBlocks<double>{p.A, k, k, 1, (unsigned)(k * k)}, TermBlocks<T>{p.P_a, m, 1, m, (unsigned)(k * m)},
        [](LocalInt, TileSum *) {},
        [&](LocalInt block, const TileSum &sum) { StoreTile(sum, k, m, p.AP_a + (size_t)block * k * m); });
    }
  }
}

/* ----------------------------------------- R (A P) -------------------------------------------- */

template <typename T>
struct SecondProduct {
  LocalInt        coarse, k, m;
  const LocalInt *R_i, *R_j;
  const T        *P_a;
  const LocalInt *AP_i, *AP_j;
  const T        *AP_a;
  const double   *B_c;
  const LocalInt *C_i, *C_j;
  double         *C;
  unsigned char  *alone;
  LocalInt       *lonely; /* [C blocks, or as many as there is room for] blocks without a transpose, and their rows */
};

template <int K>
using CoarseList = TermList<K, 2 * kRRun * kWarpSize, kRRun * kWarpSize>;

/* The columns of rows of A P that entries of R meet, of which a lane looks at one at a time for each of its entries. */
struct MetByR {
  LocalInt entry[kRRun], at[kRRun], end[kRRun], column[kRRun];

  /* Takes the entries of R from `start` on, and of each row of A P the columns from `least` on. */
  template <typename T>
  __device__ __forceinline__ MetByR(const SecondProduct<T> &p, LocalInt start, LocalInt last, LocalInt least)
  {
#pragma unroll
    for (int t = 0; t < kRRun; t++) {
      const LocalInt e = start + t * kWarpSize + (LocalInt)threadIdx.x % kWarpSize;
      entry[t] = at[t] = end[t] = 0;
      if (e < last) {
        entry[t]       = p.R_j[e];
        at[t]          = p.AP_i[entry[t] / kCMATCHSlots];
        end[t]         = p.AP_i[entry[t] / kCMATCHSlots + 1];
        LocalInt above = end[t];
        while (at[t] < above) {
          const LocalInt middle = at[t] + (above - at[t]) / 2;
          if (p.AP_j[middle] < least) at[t] = middle + 1;
          else above = middle;
        }
      }
      column[t] = at[t] < end[t] ? p.AP_j[at[t]] : LOCAL_INT_MAX;
    }
  }
};

/*
   Makes blocks [first, last) of row c, which has all the columns of A P that it meets from that of the first one on. The work of a
   warp.
*/
template <typename T, int K, int M>
__device__ __forceinline__ void AddUpCoarse(const SecondProduct<T> &p, LocalInt c, LocalInt first, LocalInt last,
                                            typename CoarseList<K>::Memory *memory)
{
  const LocalInt k = K ? K : p.k, m = M ? M : p.m, begin = p.R_i[c], end = p.R_i[c + 1];
  const int      lane = threadIdx.x % kWarpSize;
  if (first >= last) return;
  for (LocalInt start = begin; start < end || start == begin; start += kRRun * kWarpSize) {
    MetByR        met(p, start, end, p.C_j[first]);
    CoarseList<K> list(memory, k);
    LocalInt      ahead = 0;
    const auto    drain = [&] {
      list.Drain(
        TermBlocks<T>{p.P_a, m, 1, m, (unsigned)(k * m)}, TermBlocks<T>{p.AP_a, m, 1, m, (unsigned)(k * m)},
        [&](LocalInt o, TileSum *sum) {
          if (start > begin) LoadTile(p.C + (size_t)o * m * m, m, m, sum);
        },
        [&](LocalInt o, const TileSum &sum) { StoreTile(sum, m, m, p.C + (size_t)o * m * m); });
    };
    for (LocalInt o = first; o < last; o++) {
      if ((o - first) % kWarpSize == 0) ahead = o + lane < last ? p.C_j[o + lane] : -1;
      const LocalInt d = __shfl_sync(kFullWarp, ahead, (o - first) % kWarpSize);
#pragma unroll
      for (int t = 0; t < kRRun; t++) {
        if (start + t * kWarpSize >= end) break;
        const bool meets = met.column[t] == d;
        list.Append(meets, met.entry[t], met.at[t]);
        if (meets) met.column[t] = ++met.at[t] < met.end[t] ? p.AP_j[met.at[t]] : LOCAL_INT_MAX;
      }
      if (list.Close(o) || o + 1 == last) drain();
    }
  }
}

/*
   The blocks of rows of R (A P), or with Upper those on and above the diagonal, which is there, and which unknowns are dead. The
   warps of a block share a row.
*/
template <typename T, int K, int M, bool Upper>
__global__ void __launch_bounds__(kCoarseWarps *kWarpSize) MultiplyCoarse(SecondProduct<T> p)
{
  extern __shared__ char memory[]; /* [warps] */
  const LocalInt         c = blockIdx.x, warp = threadIdx.x / kWarpSize, warps = blockDim.x / kWarpSize, m = M ? M : p.m;
  const LocalInt         begin = Upper ? CMATCHFindBlock(p.C_i, p.C_j, c, c) : p.C_i[c], end = p.C_i[c + 1];
  const LocalInt         share = (end - begin + warps - 1) / warps, first = begin + warp * share;
  AddUpCoarse<T, K, M>(p, c, first, min(first + share, end), (typename CoarseList<K>::Memory *)memory + warp);
  if (!Upper || threadIdx.x != 0) return;
  unsigned alone = 0;
  for (LocalInt r = 0; r < m; r++)
    if (p.B_c[((size_t)c * m + r) * m + r] == 0) alone |= 1u << r;
  p.alone[c] = (unsigned char)alone;
}

/*
   Blocks below the diagonal become the transposes of those above it; the ones without are listed, if there is a list, or keep what
   they are. Unknowns that are dead get 1. A warp takes a row, a group a block.
*/
__global__ void __launch_bounds__(kBlockSize) Mirror(LocalInt n, LocalInt k, const LocalInt *C_i, const LocalInt *C_j, double *C,
                                                     const unsigned char *dead, LocalInt *lonely, CMATCHReport *report)
{
  const LocalInt c = (LocalInt)(GridThread() / kWarpSize), entries = k * k;
  const int      lane = threadIdx.x % kGroup;
  if (c >= n) return;
  for (LocalInt e = C_i[c] + threadIdx.x % kWarpSize / kGroup; e < C_i[c + 1]; e += kGroups) {
    const LocalInt d     = C_j[e];
    double *const  block = C + (size_t)e * entries;
    if (d > c) break;
    if (d == c) {
      for (int at = lane; at < entries; at += kGroup) {
        const int r = at / k, q = at % k;
        if (r > q) block[at] = block[q * k + r];
        if (r == q && dead && (dead[c] >> r & 1)) block[at] = 1;
      }
      continue;
    }
    const LocalInt other = CMATCHFindBlock(C_i, C_j, d, c);
    if (other >= 0)
      for (int at = lane; at < entries; at += kGroup) block[at] = C[(size_t)other * entries + at % k * k + at / k];
    else if (lonely && lane == 0) {
      const LocalInt at          = atomicAdd(&report->lonely, 1);
      lonely[2 * (size_t)at]     = e;
      lonely[2 * (size_t)at + 1] = c;
    }
  }
}

/* The blocks without a transpose, which no symmetric matrix has. Warps take them in turns, a lane some entries. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) AddUpLonely(SecondProduct<T> p, const CMATCHReport *report)
{
  const LocalInt k = p.k, m = p.m, warps = (LocalInt)(gridDim.x * (kBlockSize / kWarpSize));
  for (LocalInt at = (LocalInt)(GridThread() / kWarpSize); at < report->lonely; at += warps) {
    const LocalInt block = p.lonely[2 * (size_t)at], c = p.lonely[2 * (size_t)at + 1], d = p.C_j[block];
    for (LocalInt entry = threadIdx.x % kWarpSize; entry < m * m; entry += kWarpSize) {
      double sum = 0;
      for (LocalInt e = p.R_i[c]; e < p.R_i[c + 1]; e++) {
        const LocalInt of = CMATCHFindBlock(p.AP_i, p.AP_j, p.R_j[e] / kCMATCHSlots, d);
        for (LocalInt r = 0; r < k && of >= 0; r++)
          sum = fma((double)p.P_a[((size_t)p.R_j[e] * k + r) * m + entry / m], (double)p.AP_a[((size_t)of * k + r) * m + entry % m],
                    sum);
      }
      p.C[(size_t)block * m * m + entry] = sum;
    }
  }
}

/* ---------------------------------------- several ranks --------------------------------------- */

/* Columns of merged rows, with the diagonal: of the own products, and of contributions */
struct MergedColumns {
  CMATCHNodesMerge in;

  __device__ __forceinline__ LocalInt Own(LocalInt j) const { return j < in.coarse ? j : in.place[j - in.coarse]; }

  template <typename F>
  __device__ __forceinline__ void ForColumns(LocalInt c, F f) const
  {
    const int lane = threadIdx.x % kWarpSize;
    if (lane == 0) f(c);
    if (c < in.mine)
      for (LocalInt e = in.own.start[c] + lane; e < in.own.start[c + 1]; e += kWarpSize) f(Own(in.own.j[e]));
    for (LocalInt k = in.add_i[c]; k < in.add_i[c + 1]; k++)
      for (LocalInt e = lane; e < in.came_length[k]; e += kWarpSize) f(in.came_j[in.came_start[k] + e]);
  }
};

/* The blocks of merged rows, in the order of the ranks. A warp takes a row, a group a block. */
__global__ void __launch_bounds__(kBlockSize)
  MergeBlocks(MergedColumns from, int entries, const LocalInt *C_i, const LocalInt *C_j, double *C)
{
  const LocalInt          c    = (LocalInt)(GridThread() / kWarpSize);
  const int               lane = threadIdx.x % kWarpSize, q = lane % kGroup;
  const CMATCHNodesMerge &in = from.in;
  if (c >= in.rows) return;
  const LocalInt count = c < in.mine ? in.own.start[c + 1] - in.own.start[c] : 0;
  if (in.add_i[c] == in.add_i[c + 1] && count == C_i[c + 1] - C_i[c]) { /* own blocks, and no others */
    for (LocalInt e = in.own.start[c] + lane / kGroup; e < in.own.start[c + 1]; e += kGroups) {
      double *const to = C + (size_t)CMATCHFindBlock(C_i, C_j, c, from.Own(in.own.j[e])) * entries;
      for (int at = q; at < entries; at += kGroup) to[at] = 0 + in.own.a[(size_t)e * entries + at];
    }
    return;
  }
  for (long long at = (long long)C_i[c] * entries + lane; at < (long long)C_i[c + 1] * entries; at += kWarpSize) C[at] = 0;
  __syncwarp();
  const auto add = [&](LocalInt column, const double *block) {
    double *const to = C + (size_t)CMATCHFindBlock(C_i, C_j, c, column) * entries;
    for (int at = q; at < entries; at += kGroup) to[at] += block[at];
  };
  if (c < in.mine)
    for (LocalInt e = in.own.start[c] + lane / kGroup; e < in.own.start[c + 1]; e += kGroups)
      add(from.Own(in.own.j[e]), in.own.a + (size_t)e * entries);
  for (LocalInt k = in.add_i[c]; k < in.add_i[c + 1]; k++) {
    __syncwarp(); /* the columns of a contribution differ from one another */
    for (LocalInt e = lane / kGroup; e < in.came_length[k]; e += kGroups) {
      const size_t place = (size_t)in.came_start[k] + e;
      add(in.came_j[place], in.came_a + place * entries);
    }
  }
}

/* -------------------------------------------- steps ------------------------------------------- */

template <typename T, int K, int M>
class Products {
public:
  explicit Products(CMATCHNodesSetup *t) : t_(t), s_(t->s), L_(t->Level()), m_(t->N->level[t->level + 1].k) { }

  PetscErrorCode Run()
  {
    CMATCHHierarchyCUDA *H    = s_->H;
    const auto           mark = s_->arena.mark();

    PetscFunctionBegin;
    PetscCall(FindAP(L_.coarse));
    if (!t_->keep) PetscCall(CreateNext());
    double        *C;
    unsigned char *alone;
    PetscCall(CMATCHNodesTakeOperator(t_, t_->level + 1, &C, &alone));
    PetscCall(MakeCoarse(H, C, alone));
    t_->level++;
    t_->A     = C;
    t_->alone = alone;
    t_->B     = L_.B_c;
    s_->arena.Release(mark);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows of R (A P) of own and of foreign aggregates, of which P has so many columns. */
  PetscErrorCode RunOnRanks(LocalInt columns, CMATCHMade *made, size_t *count)
  {
    const LocalInt rows = L_.coarse + t_->Ranks().foreign;

    PetscFunctionBegin;
    *made  = CMATCHMade{};
    *count = 0;
    PetscCall(s_->arena.Take((size_t)rows + 1, &made->start));
    if (!rows) PetscCallCUDA(cudaMemsetAsync(made->start, 0, sizeof(LocalInt), s_->stream));
    if (!L_.n) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(FindAP(columns));
    if (!rows) PetscFunctionReturn(PETSC_SUCCESS);
    const CoarseColumns of{L_.R_i, L_.R_j, AP_i_, AP_j_, false};
    PetscCall(FindPattern(s_, of, rows, columns, kCoarseColumns, made->start, nullptr, [&](LocalInt blocks, LocalInt **j) {
      PetscFunctionBegin;
      PetscCall(s_->arena.Take(blocks, j));
      made->j = *j;
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    if (!t_->keep) L_.wide += s_->seen.wide;
    *count = (size_t)s_->seen.entries;
    PetscCall(s_->arena.Take(*count * m_ * m_, &made->a));
    SecondProduct<T> p{rows,  L_.k,    m_,          L_.R_i,  L_.R_j, (const T *)L_.P_a, AP_i_, AP_j_,
                       AP_a_, nullptr, made->start, made->j, made->a};
    MultiplyCoarse<T, K, M, false>
      <<<rows, Warps(rows) * kWarpSize, Warps(rows) * sizeof(typename CoarseList<K>::Memory), s_->stream>>>(p);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* Warps that have a row of the next operator together. */
  int Warps(LocalInt rows) const { return rows > 24 * s_->H->processors ? 1 : rows > 2 * s_->H->processors ? 4 : kCoarseWarps; }

  /* The pattern of A P, which is kept for refills. */
  PetscErrorCode FindPatternOfAP(LocalInt all_columns, size_t *blocks)
  {
    std::vector<Buffer<LocalInt>> &kept  = s_->H->products;
    const size_t                   start = (size_t)L_.n + 1, level = t_->level;
    const APColumns                columns{L_.A_i, L_.A_j, L_.P_j};
    const double                   mean = kAPColumns * L_.blocks / L_.n;

    PetscFunctionBegin;
    while (kept.size() <= level) kept.emplace_back(&s_->H->work_meter);
    Buffer<LocalInt> &own = kept[level];
    if (!t_->keep) own.Free();
    if (own.size()) {
      *blocks = own.size() - start;
      AP_i_   = own.data();
      AP_j_   = own.data() + start;
      PetscCall(CMATCHReadReport(s_));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(s_->arena.Take(start, &AP_i_));
    PetscCall(FindPattern(s_, columns, L_.n, all_columns, mean, AP_i_, nullptr, [&](LocalInt count, LocalInt **j) {
      PetscFunctionBegin;
      *blocks = (size_t)count;
      if (t_->work) {
        PetscCall(own.Allocate(start + count));
        *j = own.data() + start;
        PetscCallCUDA(cudaMemcpyAsync(own.data(), AP_i_, start * sizeof(LocalInt), cudaMemcpyDeviceToDevice, s_->stream));
      } else PetscCall(s_->arena.Take(count, j));
      AP_j_ = *j;
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    if (!t_->keep) L_.wide += s_->seen.wide;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A P, in which P has so many columns. */
  PetscErrorCode FindAP(LocalInt all_columns)
  {
    size_t blocks = 0;

    PetscFunctionBegin;
    PetscCall(FindPatternOfAP(all_columns, &blocks));
    L_.P_blocks = s_->seen.P_nnz;
    L_.cut      = s_->seen.cut;
    L_.dead     = s_->seen.dead;
    PetscCall(s_->arena.Take(blocks * L_.k * m_, &AP_a_));
    const FirstProduct<T> p{L_.n, L_.k, m_, L_.A_i, L_.A_j, L_.P_j, t_->A, (const T *)L_.P_a, AP_i_, AP_j_, AP_a_};
    MultiplyAP<T, K, M><<<BlocksFor((long long)L_.n * kWarpSize, kAPBlock), kAPBlock, 0, s_->stream>>>(p);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The pattern of the next level */
  PetscErrorCode CreateNext()
  {
    LocalInt      *start = nullptr, *width = nullptr;
    const LocalInt coarse = L_.coarse, level = t_->level + 1;

    PetscFunctionBegin;
    PetscCall(s_->arena.Take((size_t)coarse + 1, &start));
    PetscCall(s_->arena.Take((size_t)CMATCHSliceCount(coarse) + 1, &width));
    const CoarseColumns columns{L_.R_i, L_.R_j, AP_i_, AP_j_, true};
    PetscCall(FindPattern(s_, columns, coarse, coarse, kCoarseColumns, start, width, [&](LocalInt blocks, LocalInt **j) {
      PetscFunctionBegin;
      PetscCall(CMATCHNodesCreateLevel(t_, coarse, m_, blocks, (LocalInt)s_->seen.steps));
      *j = t_->N->level[level].A_j;
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    L_.wide += s_->seen.wide;
    s_->H->device[level].longest = s_->seen.longest;
    PetscCall(CMATCHNodesFinishPattern(t_, start, width));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode MakeCoarse(CMATCHHierarchyCUDA *H, double *C, unsigned char *alone)
  {
    const CMATCHNodesLevel &next = t_->N->level[t_->level + 1];
    SecondProduct<T>        p{L_.coarse, L_.k,     m_,       L_.R_i, L_.R_j, (const T *)L_.P_a, AP_i_, AP_j_, AP_a_,
                       L_.B_c,    next.A_i, next.A_j, C,      alone};

    PetscFunctionBegin;
    PetscCall(s_->arena.Take(2 * (size_t)next.blocks, &p.lonely));
    PetscCallCUDA(cudaMemsetAsync(&s_->report->lonely, 0, sizeof(LocalInt), s_->stream));
    MultiplyCoarse<T, K, M, true>
      <<<L_.coarse, Warps(L_.coarse) * kWarpSize, Warps(L_.coarse) * sizeof(typename CoarseList<K>::Memory), s_->stream>>>(p);
    Mirror<<<BlocksFor((long long)L_.coarse * kWarpSize), kBlockSize, 0, s_->stream>>>(L_.coarse, m_, next.A_i, next.A_j, C, alone,
                                                                                       p.lonely, s_->report);
    AddUpLonely<T><<<PetscMin(H->processors, next.n), kBlockSize, 0, s_->stream>>>(p, s_->report);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHNodesSetup *t_;
  CMATCHSetup      *s_;
  CMATCHNodesLevel &L_;
  const LocalInt    m_;
  LocalInt         *AP_i_ = nullptr, *AP_j_ = nullptr;
  T                *AP_a_ = nullptr;
};

} // namespace

template <typename F>
static PetscErrorCode WithProducts(CMATCHNodesSetup *t, F f)
{
  PetscFunctionBegin;
  PetscCall(CMATCHForSizes(t->Level().k, t->N->level[t->level + 1].k, [&](auto k, auto m) {
    return CMATCHWithPrecision(t->s->params->precision, [&](auto zero) {
      Products<decltype(zero), k, m> products(t);
      PetscFunctionBegin;
      PetscCall(f(products));
      PetscFunctionReturn(PETSC_SUCCESS);
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesGalerkin(CMATCHNodesSetup *t)
{
  PetscFunctionBegin;
  t->N->level[t->level + 1].k = t->N->m;
  PetscCall(WithProducts(t, [](auto &products) { return products.Run(); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesMultiply(CMATCHNodesSetup *t, LocalInt columns, CMATCHMade *made, size_t *entries)
{
  PetscFunctionBegin;
  PetscCall(WithProducts(t, [&](auto &products) { return products.RunOnRanks(columns, made, entries); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesMergeRows(CMATCHNodesSetup *t, const CMATCHNodesMerge &in, double **A, unsigned char **alone, double **B)
{
  CMATCHSetup        *s     = t->s;
  const LocalInt      level = t->level + 1, k = t->N->level[level].k, columns = in.rows + (LocalInt)in.ghost->size();
  const MergedColumns from{in};
  LocalInt           *start = nullptr, *width = nullptr;

  PetscFunctionBegin;
  if (!t->keep && !in.rows) {
    PetscCall(CMATCHNodesCreateLevel(t, 0, k, 0, 0, in.ghost));
    PetscCall(CMATCHNodesFinishEmpty(t));
  } else if (!t->keep) {
    PetscCall(s->arena.Take((size_t)in.rows + 1, &start));
    PetscCall(s->arena.Take((size_t)CMATCHSliceCount(in.rows) + 1, &width));
    PetscCall(FindPattern(s, from, in.rows, columns, kCoarseColumns, start, width, [&](LocalInt blocks, LocalInt **j) {
      PetscFunctionBegin;
      PetscCall(CMATCHNodesCreateLevel(t, in.rows, k, blocks, (LocalInt)s->seen.steps, in.ghost));
      *j = t->N->level[level].A_j;
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    t->Level().wide += s->seen.wide;
    s->H->device[level].longest = s->seen.longest;
    PetscCall(CMATCHNodesFinishPattern(t, start, width));
  }
  const CMATCHNodesLevel &C = t->N->level[level];
  PetscCall(CMATCHNodesTakeOperator(t, level, A, alone, B));
  if (!in.rows) PetscFunctionReturn(PETSC_SUCCESS);
  MergeBlocks<<<BlocksFor((long long)in.rows * kWarpSize), kBlockSize, 0, s->stream>>>(from, k * k, C.A_i, C.A_j, *A);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesComplete(CMATCHNodesSetup *t)
{
  const CMATCHNodesLevel &L = t->Level();

  PetscFunctionBegin;
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  Mirror<<<BlocksFor((long long)L.n * kWarpSize), kBlockSize, 0, t->s->stream>>>(L.n, L.k, L.A_i, L.A_j, t->A,
                                                                                 t->Kind() ? t->alone : nullptr, nullptr,
                                                                                 t->s->report);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
