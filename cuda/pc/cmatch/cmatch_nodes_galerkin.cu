/*
   The hierarchy of nodes on the GPU: the Galerkin product.

   Both products find their patterns first. Then rows are added up in shared memory, which has places for some of their columns;
   rows with more of them are gone through several times. Of the second product the blocks on and above the diagonal are computed,
   and the others are their transposes.
*/
#include "cmatch_nodes_pattern.cuh"

namespace
{

constexpr int kGroup       = 8; /* lanes that have the columns of a block */
constexpr int kGroups      = kWarpSize / kGroup;
constexpr int kStaged      = 4;   /* blocks of a row of A that are in shared memory at once */
constexpr int kAPBlock     = 128; /* threads of a block that makes A P */
constexpr int kCoarseWarps = 8;   /* that have a row of the next operator together, at most */
constexpr int kBlockShare  = kCMATCHMostModes * kCMATCHMostModes / kWarpSize; /* entries of a block in a lane */
constexpr int kMirrorGroup = 8;                                               /* lanes of a block below the diagonal */

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

/* ------------------------------------------- places ------------------------------------------- */

/* Places for some columns of a row, with sums of blocks. Tables have twice as many places as columns or more. */
struct Places {
  int       bits, most, stride;
  double   *sum; /* [most][stride] */
  LocalInt *key, *number;

  static __host__ __device__ int Bits(int most)
  {
    int bits = 2;
    while (1 << bits < 2 * most) bits++;
    return bits;
  }
  static __host__ __device__ int    Stride(LocalInt entries) { return entries | 1; } /* blocks begin in different banks */
  static __host__ __device__ size_t Bytes(int most, LocalInt entries)
  {
    return (size_t)most * Stride(entries) * sizeof(double) + ((2 * sizeof(LocalInt)) << Bits(most));
  }
  __device__ Places(char *memory, int most_, LocalInt entries) : bits(Bits(most_)), most(most_), stride(Stride(entries))
  {
    sum    = (double *)memory;
    key    = (LocalInt *)(sum + (size_t)most * stride);
    number = key + (1 << bits);
  }
  /* Takes these columns, and sets their sums to 0. `threads` threads do so, which meet by meet(). */
  template <typename Meet>
  __device__ __forceinline__ void Take(const LocalInt *column, int count, int thread, int threads, Meet meet) const
  {
    for (int at = thread; at < 1 << bits; at += threads) key[at] = -1;
    for (int at = thread; at < count * stride; at += threads) sum[at] = 0;
    meet();
    for (int t = thread; t < count; t += threads) number[CMATCHTakePlace(key, bits, column[t])] = t;
    meet();
  }
  __device__ __forceinline__ int Find(LocalInt column) const
  {
    const int place = CMATCHLookUp(key, bits, column);
    return place < 0 ? -1 : number[place];
  }
};

/* What a warp of the second product has beside the places: a block of P, and the columns that it takes. */
__host__ __device__ size_t WarpBytes(LocalInt entries)
{
  return entries * sizeof(double) + kWarpSize * sizeof(int);
}

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

/*
   Adds up the places' blocks of row i. A group takes a slot of P, whose columns differ, and a lane a column of the blocks.
   `staged` [kStaged][k][k]
*/
template <typename T, int K, int M>
__device__ __forceinline__ void AddUpAP(const FirstProduct<T> &p, LocalInt i, const Places &places, double *staged)
{
  constexpr int  kK = K ? K : kCMATCHMostModes;
  const LocalInt k = K ? K : p.k, m = M ? M : p.m, begin = p.A_i[i], end = p.A_i[i + 1];
  const int      lane = threadIdx.x % kWarpSize, g = lane / kGroup, c = lane % kGroup;
  for (LocalInt base = begin; base < end; base += kWarpSize / kCMATCHSlots) {
    const LocalInt e = base + lane / kCMATCHSlots, j = e < end ? p.A_j[e] : -1;
    const LocalInt J   = j >= 0 ? p.P_j[(size_t)j * kCMATCHSlots + lane % kCMATCHSlots] : -1;
    const int      own = J >= 0 ? places.Find(J) : -1;
    for (int u = 0; u < kWarpSize / kCMATCHSlots && base + u < end; u += kStaged) {
      double block[kStaged][kK];
      int    to[kStaged];
      __syncwarp(); /* what is staged has been used */
#pragma unroll
      for (int v = 0; v < kStaged; v++) {
        const LocalInt node = __shfl_sync(kFullWarp, j, (u + v) * kCMATCHSlots);
        to[v]               = __shfl_sync(kFullWarp, own, (u + v) * kCMATCHSlots + g);
        if (c >= m) to[v] = -1;
        if (to[v] < 0) continue;
        const T *const from = p.P_a + ((size_t)node * kCMATCHSlots + g) * k * m + c;
        for (LocalInt l = 0; l < k; l++) block[v][l] = (double)from[l * m];
      }
      const int entries = min(kStaged, end - base - u) * k * k;
      for (int at = lane; at < entries; at += kWarpSize) staged[at] = p.A[(size_t)(base + u) * k * k + at];
      __syncwarp();
#pragma unroll
      for (int v = 0; v < kStaged; v++) {
        if (to[v] >= 0) {
          double *const       sums = places.sum + (size_t)to[v] * places.stride + c;
          const double *const a    = staged + v * k * k;
          for (LocalInt r = 0; r < k; r++) {
            double sum = sums[r * m];
            for (LocalInt l = 0; l < k; l++) sum += a[r * k + l] * block[v][l];
            sums[r * m] = sum;
          }
        }
        __syncwarp(); /* another group may have the same column of the next block */
      }
    }
  }
}

/* A P. A warp takes a row. */
template <typename T, int K, int M>
__global__ void __launch_bounds__(kAPBlock) MultiplyAP(FirstProduct<T> p, int most)
{
  extern __shared__ double shared[];
  const LocalInt           k = K ? K : p.k, m = M ? M : p.m, entries = k * m, i = (LocalInt)(GridThread() / kWarpSize);
  const int                lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const size_t             bytes  = Places::Bytes(most, entries);
  double *const            staged = shared + warp * kStaged * k * k;
  const Places             places((char *)(shared + kAPBlock / kWarpSize * kStaged * k * k) + warp * bytes, most, entries);
  if (i >= p.n) return;
  for (LocalInt first = p.AP_i[i]; first < p.AP_i[i + 1]; first += most) {
    const int count = min(most, p.AP_i[i + 1] - first);
    places.Take(p.AP_j + first, count, lane, kWarpSize, [] { __syncwarp(); });
    AddUpAP<T, K, M>(p, i, places, staged);
    for (int at = lane; at < count * entries; at += kWarpSize)
      p.AP_a[(size_t)first * entries + at] = (T)places.sum[at / entries * places.stride + at % entries];
    __syncwarp();
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

/* What a warp asks for before it needs it: the block of an entry of R, and the first columns of the row of A P that it meets. */
template <typename T>
struct Ahead {
  T        P[kBlockShare];
  LocalInt J, begin, count;
};

/* The sums of a column of some blocks get its products with a block of P, of which two entries are read at once for all of them. */
template <typename T, int K, int M, int Blocks>
__device__ __forceinline__ void AddPairs(const double *staged, const T (&of_AP)[Blocks][K], double *const (&sums)[Blocks])
{
#pragma unroll
  for (int s = 0; s < M; s += 2) {
    double2 of_P[K];
#pragma unroll
    for (int r = 0; r < K; r++) of_P[r] = ((const double2 *)staged)[(r * M + s) / 2];
#pragma unroll
    for (int v = 0; v < Blocks; v++) {
      if (!sums[v]) continue;
      double first = sums[v][s * M], second = sums[v][(s + 1) * M];
#pragma unroll
      for (int r = 0; r < K; r++) first += of_P[r].x * (double)of_AP[v][r];
#pragma unroll
      for (int r = 0; r < K; r++) second += of_P[r].y * (double)of_AP[v][r];
      sums[v][s * M]       = first;
      sums[v][(s + 1) * M] = second;
    }
  }
}

/*
   Adds up the places' blocks of row c in columns from `least` on. Of the warps of a block each takes some of the places. A group
   takes a block of A P, and a lane a column of it. `staged` [k][m] and `picked` [kWarpSize] are of the warp.
*/
template <typename T, int K, int M>
__device__ __forceinline__ void AddUpCoarse(const SecondProduct<T> &p, LocalInt c, LocalInt least, const Places &places,
                                            double *staged, int *picked)
{
  constexpr int  kK = K ? K : kCMATCHMostModes, kM = M ? M : kCMATCHMostModes;
  constexpr int  kAhead = K == 2 || K == 3 ? 3 : 1; /* blocks of A P that a group loads at once */
  const LocalInt k = K ? K : p.k, m = M ? M : p.m, end = p.R_i[c + 1];
  const int      lane = threadIdx.x % kWarpSize, g = lane / kGroup, q = lane % kGroup;
  const int      warp = threadIdx.x / kWarpSize, warps = blockDim.x / kWarpSize;
  for (LocalInt base = p.R_i[c]; base < end; base += kWarpSize) {
    const bool     mine  = base + lane < end;
    const LocalInt entry = mine ? p.R_j[base + lane] : 0, begin = mine ? p.AP_i[entry / kCMATCHSlots] : 0;
    const LocalInt length = mine ? p.AP_i[entry / kCMATCHSlots + 1] - begin : 0, some = min(kWarpSize, end - base);
    const auto     load = [&](LocalInt u) {
      Ahead<T>       next;
      const T *const P = p.P_a + (size_t)__shfl_sync(kFullWarp, entry, u) * k * m;
      next.begin       = __shfl_sync(kFullWarp, begin, u);
      next.count       = __shfl_sync(kFullWarp, length, u);
      next.J           = lane < next.count ? p.AP_j[next.begin + lane] : -1;
#pragma unroll
      for (int t = 0; t < kBlockShare; t++)
        if (lane + t * kWarpSize < k * m) next.P[t] = P[lane + t * kWarpSize];
      return next;
    };
    Ahead<T> next = load(0);
    for (LocalInt u = 0; u < some; u++) {
      const Ahead<T> now = next;
      if (u + 1 < some) next = load(u + 1);
      __syncwarp(); /* what is staged has been used */
#pragma unroll
      for (int t = 0; t < kBlockShare; t++)
        if (lane + t * kWarpSize < k * m) staged[lane + t * kWarpSize] = (double)now.P[t];
      for (LocalInt first = 0; first < now.count; first += kWarpSize) {
        LocalInt J = now.J;
        if (first) J = first + lane < now.count ? p.AP_j[now.begin + first + lane] : -1;
        const int      own       = J >= least ? places.Find(J) : -1;
        const bool     takes     = own >= 0 && own % warps == warp;
        const unsigned some_take = __ballot_sync(kFullWarp, takes);
        if (takes) picked[__popc(some_take & ((1u << lane) - 1u))] = own * kWarpSize + lane;
        __syncwarp();
        const int count = __popc(some_take);
        for (int at = g; at < count; at += kAhead * kGroups) { /* the places of all of them differ */
          T       of_AP[kAhead][kK];
          double *sums[kAhead];
#pragma unroll
          for (int v = 0; v < kAhead; v++) {
            sums[v] = nullptr;
            if (at + v * kGroups >= count || q >= m) continue;
            const int      item = picked[at + v * kGroups];
            const T *const AP   = p.AP_a + (size_t)(now.begin + first + item % kWarpSize) * k * m + q;
            sums[v]             = places.sum + (size_t)(item / kWarpSize) * places.stride + q;
#pragma unroll
            for (int r = 0; r < kK; r++)
              if (r < k) of_AP[v][r] = AP[r * m];
          }
          if constexpr (K == 3 && M > 0 && M % 2 == 0) AddPairs<T, K, M, kAhead>(staged, of_AP, sums);
          else {
#pragma unroll
            for (int v = 0; v < kAhead; v++) {
              if (!sums[v]) continue;
#pragma unroll
              for (int s = 0; s < kM; s++) {
                if (s >= m) continue;
                double sum = sums[v][s * m];
#pragma unroll
                for (int r = 0; r < kK; r++)
                  if (r < k) sum += staged[r * m + s] * (double)of_AP[v][r];
                sums[v][s * m] = sum;
              }
            }
          }
        }
        __syncwarp(); /* what is picked has been used, and sums are there */
      }
    }
  }
}

/* The blocks of the next operator on and above the diagonal, with 1 for each dead unknown. A block takes a row. */
template <typename T, int K, int M>
__global__ void __launch_bounds__(kCoarseWarps *kWarpSize) MultiplyCoarse(SecondProduct<T> p, int most)
{
  extern __shared__ double shared[];
  const LocalInt           k = K ? K : p.k, m = M ? M : p.m, entries = m * m, c = blockIdx.x;
  const size_t             each = WarpBytes(k * m);
  double *const            own  = (double *)((char *)shared + threadIdx.x / kWarpSize * each);
  const Places             places((char *)shared + blockDim.x / kWarpSize * each, most, entries);
  const LocalInt           diagonal = CMATCHFindBlock(p.C_i, p.C_j, c, c), end = p.C_i[c + 1];
  const double            *B_c = p.B_c + (size_t)c * entries;
  for (LocalInt first = diagonal; first < end; first += most) {
    const int count = min(most, end - first);
    places.Take(p.C_j + first, count, threadIdx.x, blockDim.x, [] { __syncthreads(); });
    AddUpCoarse<T, K, M>(p, c, c, places, own, (int *)(own + k * m));
    __syncthreads();
    for (int at = threadIdx.x; at < count * entries; at += blockDim.x) {
      const int           number = at / entries, r = at % entries / m, s = at % m;
      const double *const sum   = places.sum + (size_t)number * places.stride;
      double              value = sum[r * m + s];
      if (first + number == diagonal && r > s) value = sum[s * m + r];
      if (first + number == diagonal && r == s && B_c[r * m + r] == 0) value = 1;
      p.C[(size_t)first * entries + at] = value;
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  unsigned alone = 0;
  for (LocalInt r = 0; r < m; r++)
    if (B_c[r * m + r] == 0) alone |= 1u << r;
  p.alone[c] = (unsigned char)alone;
}

/* All blocks of rows of R (A P), of which some columns may be those of other ranks. A block takes a row. */
template <typename T, int K, int M>
__global__ void __launch_bounds__(kCoarseWarps *kWarpSize) MultiplyWhole(SecondProduct<T> p, int most)
{
  extern __shared__ double shared[];
  const LocalInt           k = K ? K : p.k, m = M ? M : p.m, entries = m * m, c = blockIdx.x;
  const size_t             each = WarpBytes(k * m);
  double *const            own  = (double *)((char *)shared + threadIdx.x / kWarpSize * each);
  const Places             places((char *)shared + blockDim.x / kWarpSize * each, most, entries);
  for (LocalInt first = p.C_i[c]; first < p.C_i[c + 1]; first += most) {
    const int count = min(most, p.C_i[c + 1] - first);
    places.Take(p.C_j + first, count, threadIdx.x, blockDim.x, [] { __syncthreads(); });
    AddUpCoarse<T, K, M>(p, c, 0, places, own, (int *)(own + k * m));
    __syncthreads();
    for (int at = threadIdx.x; at < count * entries; at += blockDim.x)
      p.C[(size_t)first * entries + at] = places.sum[(size_t)(at / entries) * places.stride + at % entries];
    __syncthreads();
  }
}

/* The blocks below the diagonal; those without a transpose are listed. A warp takes a row, a group a block. */
template <typename T, int M>
__global__ void __launch_bounds__(kBlockSize) Mirror(SecondProduct<T> p, CMATCHReport *report)
{
  const LocalInt m = M ? M : p.m, entries = m * m, c = (LocalInt)(GridThread() / kWarpSize);
  const int      lane = threadIdx.x % kMirrorGroup;
  if (c >= p.coarse) return;
  for (LocalInt e = p.C_i[c] + threadIdx.x % kWarpSize / kMirrorGroup; e < p.C_i[c + 1]; e += kWarpSize / kMirrorGroup) {
    const LocalInt d = p.C_j[e];
    if (d >= c) break;
    const LocalInt other = CMATCHFindBlock(p.C_i, p.C_j, d, c);
    if (other < 0) {
      if (lane != 0) continue;
      const LocalInt at            = atomicAdd(&report->lonely, 1);
      p.lonely[2 * (size_t)at]     = e;
      p.lonely[2 * (size_t)at + 1] = c;
      continue;
    }
    for (int at = lane; at < entries; at += kMirrorGroup)
      p.C[(size_t)e * entries + at] = p.C[(size_t)other * entries + at % m * m + at / m];
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
          sum += (double)p.P_a[((size_t)p.R_j[e] * k + r) * m + entry / m] * (double)p.AP_a[((size_t)of * k + r) * m + entry % m];
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

/* Blocks below the diagonal become the transposes of those above it, where both are there; unknowns that are dead get 1. */
__global__ void __launch_bounds__(kBlockSize)
  MirrorOwn(LocalInt n, LocalInt k, const LocalInt *C_i, const LocalInt *C_j, double *C, const unsigned char *dead)
{
  const LocalInt c = (LocalInt)(GridThread() / kWarpSize), entries = k * k;
  const int      lane = threadIdx.x % kMirrorGroup;
  if (c >= n) return;
  for (LocalInt e = C_i[c] + threadIdx.x % kWarpSize / kMirrorGroup; e < C_i[c + 1]; e += kWarpSize / kMirrorGroup) {
    const LocalInt d     = C_j[e];
    double *const  block = C + (size_t)e * entries;
    if (d > c) break;
    if (d == c) {
      for (int at = lane; at < entries; at += kMirrorGroup) {
        const int r = at / k, q = at % k;
        if (r > q) block[at] = block[q * k + r];
        if (r == q && dead && (dead[c] >> r & 1)) block[at] = 1;
      }
      continue;
    }
    const LocalInt other = CMATCHFindBlock(C_i, C_j, d, c);
    if (other < 0) continue;
    for (int at = lane; at < entries; at += kMirrorGroup) block[at] = C[(size_t)other * entries + at % k * k + at / k];
  }
}

/* -------------------------------------------- steps ------------------------------------------- */

/* Places for rows of so many columns on average, so that few of them are gone through twice. */
int MostPlaces(double mean)
{
  return (int)PetscMin(64, PetscMax(8, ((int)(1.4 * mean) + 7) / 8 * 8));
}

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
    L_.wide += s_->seen.wide;
    *count = (size_t)s_->seen.entries;
    PetscCall(s_->arena.Take(*count * m_ * m_, &made->a));
    const int        most   = MostPlaces((double)*count / rows);
    const size_t     shared = Places::Bytes(most, m_ * m_) + Warps(rows) * WarpBytes(L_.k * m_);
    SecondProduct<T> p{rows,  L_.k,    m_,          L_.R_i,  L_.R_j, (const T *)L_.P_a, AP_i_, AP_j_,
                       AP_a_, nullptr, made->start, made->j, made->a};
    PetscCallCUDA(cudaFuncSetAttribute(MultiplyWhole<T, K, M>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    MultiplyWhole<T, K, M><<<rows, Warps(rows) * kWarpSize, shared, s_->stream>>>(p, most);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* Warps that have a row of the next operator together. */
  int Warps(LocalInt rows) const { return rows > 24 * s_->H->processors ? 1 : rows > 2 * s_->H->processors ? 4 : kCoarseWarps; }

  /* A P, in which P has so many columns. */
  PetscErrorCode FindAP(LocalInt all_columns)
  {
    PetscFunctionBegin;
    PetscCall(s_->arena.Take((size_t)L_.n + 1, &AP_i_));
    const APColumns columns{L_.A_i, L_.A_j, L_.P_j};
    const double    mean = kAPColumns * L_.blocks / L_.n;
    PetscCall(FindPattern(s_, columns, L_.n, all_columns, mean, AP_i_, nullptr, [&](LocalInt blocks, LocalInt **j) {
      PetscFunctionBegin;
      PetscCall(s_->arena.Take(blocks, j));
      AP_j_ = *j;
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    L_.wide += s_->seen.wide;
    L_.P_blocks         = s_->seen.P_nnz;
    L_.cut              = s_->seen.cut;
    L_.dead             = s_->seen.dead;
    const size_t blocks = (size_t)s_->seen.entries;
    PetscCall(s_->arena.Take(blocks * L_.k * m_, &AP_a_));
    PetscCall(MakeAP((double)blocks / L_.n));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode MakeAP(double mean)
  {
    const LocalInt        entries = L_.k * m_;
    const int             most    = MostPlaces(mean);
    const size_t          shared  = kAPBlock / kWarpSize * (kStaged * L_.k * L_.k * sizeof(double) + Places::Bytes(most, entries));
    const FirstProduct<T> p{L_.n, L_.k, m_, L_.A_i, L_.A_j, L_.P_j, t_->A, (const T *)L_.P_a, AP_i_, AP_j_, AP_a_};

    PetscFunctionBegin;
    PetscCallCUDA(cudaFuncSetAttribute(MultiplyAP<T, K, M>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    MultiplyAP<T, K, M><<<BlocksFor((long long)L_.n * kWarpSize, kAPBlock), kAPBlock, shared, s_->stream>>>(p, most);
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
    const CMATCHNodesLevel &next   = t_->N->level[t_->level + 1];
    const int               most   = MostPlaces(0.5 * next.blocks / next.n + 1);
    const int               warps  = Warps(L_.coarse);
    const size_t            shared = Places::Bytes(most, m_ * m_) + warps * WarpBytes(L_.k * m_);
    SecondProduct<T>        p{L_.coarse, L_.k,     m_,       L_.R_i, L_.R_j, (const T *)L_.P_a, AP_i_, AP_j_, AP_a_,
                       L_.B_c,    next.A_i, next.A_j, C,      alone};

    PetscFunctionBegin;
    PetscCall(s_->arena.Take(2 * (size_t)next.blocks, &p.lonely));
    PetscCallCUDA(cudaMemsetAsync(&s_->report->lonely, 0, sizeof(LocalInt), s_->stream));
    PetscCallCUDA(cudaFuncSetAttribute(MultiplyCoarse<T, K, M>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    MultiplyCoarse<T, K, M><<<L_.coarse, warps * kWarpSize, shared, s_->stream>>>(p, most);
    Mirror<T, M><<<BlocksFor((long long)L_.coarse * kWarpSize), kBlockSize, 0, s_->stream>>>(p, s_->report);
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
  MirrorOwn<<<BlocksFor((long long)L.n * kWarpSize), kBlockSize, 0, t->s->stream>>>(L.n, L.k, L.A_i, L.A_j, t->A,
                                                                                    t->Kind() ? t->alone : nullptr);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
