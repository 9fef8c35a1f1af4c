/*
   Small symmetric positive definite systems on the chip: a group of lanes holds one in its registers, or a block holds one in
   tiles. The equation (3.6) is that of Bernaschi, Bisson, Fantozzi and Janna, whom src/pc/sfsai/sfsai.h names.
*/
#pragma once

#include <cuda_pipeline.h>

#include <climits>

#include "launch.cuh"

/* As many numbers as a thread moves in one access. */
template <typename T>
struct __align__(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T                    v[kSize];
};

__device__ inline float Reciprocal(float x)
{
  return __fdividef(1.f, x);
}
__device__ inline double Reciprocal(double x)
{
  return 1 / x;
}

/*
   Gauss-Jordan elimination of pivots begin .. N - 1 of a symmetric matrix, lane r of a group of N holding row r: at pivot k
   every other row r becomes a[c] -= a[k] / pivot * A[k, c], c > k, where A[k, c] = A[c, k] comes from lane c. The lanes below
   the pivot do what Cholesky's factorisation does. The lanes above, which that would leave idle, solve at the same time:

   - rows r >= k of column k are L D of A = L D L^T, or with Scale the Cholesky factor;
   - once the pivots 0 .. N - 2 are done, g_r = -a[N - 1] / pivot of lane r < N - 1 solves A[P, P] g = -A[P, N - 1], P = 0 ..
     N - 2, which is the row of G~ of (3.6). The last pivot is psi.

   Without Scale a lane reads only the lower part of column k from other lanes, but the rows have to be whole. `inverse` is 1 /
   pivot of the lane's own row, with Scale 1 / sqrt(pivot). Returns the first pivot that is not above `smallest`, or N if all are.
   column [2 N] is shared memory of the group. Collective over the warp, all groups of which have the same begin.
*/
template <int N, bool Scale, typename T>
__device__ inline int Eliminate(T (&a)[N], T *column, int begin, T smallest, T &inverse)
{
  using Some     = Vector<T>;
  const int lane = threadIdx.x % N;
  int       bad  = N;
  T         own  = 1; /* the pivot of the lane's own row */
#pragma unroll
  for (int k = 0; k < N; k++) {
    if (k < begin) continue;
    T *const shared = column + k % 2 * N, *const next = column + (k + 1) % 2 * N;
    if (k == begin) shared[lane] = a[k];
    __syncwarp();
    const T pivot = shared[k];
    if (!(pivot > smallest)) bad = min(bad, k);
    const T factor = lane == k ? 0 : a[k] * Reciprocal(pivot);
    if (lane == k) own = pivot;
    if (k + 1 < N) { /* the next column is written first, so that it arrives while the other columns are computed */
      a[k + 1] -= factor * shared[k + 1];
      next[lane] = a[k + 1];
    }
#pragma unroll
    for (int c = (k + 2) / Some::kSize * Some::kSize; c < N; c += Some::kSize) {
      const Some row = *(const Some *)(shared + c);
#pragma unroll
      for (int t = 0; t < Some::kSize; t++)
        if (c + t > k + 1) a[c + t] -= factor * row.v[t];
    }
  }
  inverse = Scale ? rsqrt(own) : Reciprocal(own);
  if (Scale) {
    __syncwarp();
    column[lane] = inverse;
    __syncwarp();
#pragma unroll
    for (int c = 0; c < N; c++) a[c] *= column[c];
  }
  return bad;
}

constexpr int kTile = 16; /* rows and columns of a tile */

/* The threads of a block that takes a system of n unknowns: at least two warps, at most kSystemThreads. */
constexpr int kSystemThreads = 8 * kWarpSize;
inline int    ThreadsForSystem(int n)
{
  return n <= 4 * kTile ? 2 * kWarpSize : n <= 8 * kTile ? 4 * kWarpSize : kSystemThreads;
}

/*
   Cholesky's factorisation of one matrix by one block, right-looking in panels that are one tile wide. The lower triangle is in
   tiles in shared memory or, without InShared, column-major in global memory; then only the panel at work is in shared memory.
   From index n to the next multiple of kTile the matrix is the identity. All public members are collective over the block.
*/
template <typename T, bool InShared>
class BlockCholesky {
public:
  static constexpr int kStride   = kTile + Vector<T>::kSize; /* rows of a tile start at different banks */
  static constexpr int kTileSize = kTile * kStride;

  static __host__ __device__ int    Tiles(int n) { return (n + kTile - 1) / kTile; }
  static __host__ __device__ size_t SharedBytes(int n)
  {
    const int tiles = Tiles(n);
    return sizeof(T) * ((InShared ? tiles * (tiles + 1) / 2 : tiles) * kTileSize + kTileSize + 4 * kTile + tiles * kTile) +
           sizeof(Vector<T>);
  }

  /* A is the matrix in global memory, its columns n apart, and not used with InShared. */
  __device__ BlockCholesky(char *shared, int n, T *A) : n_(n), tiles_(Tiles(n)), A_(A)
  {
    panel_      = (T *)shared;
    transposed_ = panel_ + (InShared ? tiles_ * (tiles_ + 1) / 2 : tiles_) * kTileSize;
    column_     = transposed_ + kTileSize;
    inverse_    = column_ + 4 * kTile;
    bad_        = (int *)(inverse_ + tiles_ * kTile);
  }

  /* The identity, whose other entries Set() may then change. */
  __device__ void Clear()
  {
    if (InShared) {
      using Some        = Vector<T>;
      const Some zero   = {};
      const int  pieces = tiles_ * (tiles_ + 1) / 2 * kTileSize / Some::kSize;
      for (int k = threadIdx.x; k < pieces; k += blockDim.x) ((Some *)panel_)[k] = zero;
      __syncthreads();
      for (int r = threadIdx.x; r < tiles_ * kTile; r += blockDim.x) Tile(r / kTile, r / kTile)[r % kTile * (kStride + 1)] = 1;
    } else {
      for (int c = threadIdx.x / kWarpSize; c < n_; c += blockDim.x / kWarpSize)
        for (int r = c + threadIdx.x % kWarpSize; r < n_; r += kWarpSize) A_[(size_t)c * n_ + r] = r == c;
    }
    __syncthreads();
  }

  /* The lower triangle of A, which is column-major, goes into shared memory and back. */
  __device__ void Load(const T *A)
  {
    ForTiles([&](int i, int j) { LoadTile(A, i, j, Tile(i, j)); });
    __pipeline_wait_prior(0);
  }
  __device__ void Store(T *A) const
  {
    ForTiles([&](int i, int j) { StoreTile(A, i, j, Tile(i, j)); });
  }

  /* Entry (r, c), c <= r < n. */
  __device__ void Set(int r, int c, T value)
  {
    if (InShared) Tile(r / kTile, c / kTile)[r % kTile * kStride + c % kTile] = value;
    else A_[(size_t)c * n_ + r] = value;
  }
  __device__ T Get(int r, int c) const
  {
    return InShared ? Tile(r / kTile, c / kTile)[r % kTile * kStride + c % kTile] : A_[(size_t)c * n_ + r];
  }

  /* L in the place of A. Returns INT_MAX, or the first pivot that is not above `smallest`, and then L is not complete. */
  __device__ int Factorize(T smallest)
  {
    if (threadIdx.x == 0) *bad_ = INT_MAX;
    __syncthreads();
    if (InShared && threadIdx.x < kWarpSize) FactorizeDiagonal(0, smallest);
    for (int k = 0; k < tiles_; k++) {
      if (!InShared) {
        LoadPanel(k);
        __syncthreads();
        if (threadIdx.x < kWarpSize) FactorizeDiagonal(k, smallest);
      }
      __syncthreads();
      if (*bad_ != INT_MAX) break;
      SolvePanel(k);
      __syncthreads();
      constexpr int kInWarp = kWarpSize / kUpdateLanes;
      const int     unit = threadIdx.x / kUpdateLanes, units = blockDim.x / kUpdateLanes, left = tiles_ - k - 1;
      if (!InShared) {
        StorePanel(k);
        for (int t = unit; t < left * (left + 1) / 2; t += units) UpdateTile(k, t);
      } else if (unit >= kInWarp) {
        for (int t = unit - kInWarp + 1; t < left * (left + 1) / 2; t += units - kInWarp) UpdateTile(k, t);
      } else if (left) { /* the first warp factorizes the next diagonal tile while the others update the rest */
        if (unit == 0) UpdateTile(k, 0);
        __syncwarp();
        FactorizeDiagonal(k + 1, smallest);
      }
      if (!InShared) __syncthreads();
    }
    return *bad_;
  }

private:
  static constexpr int kUpdateLanes = sizeof(T) == sizeof(double) ? kWarpSize : kTile; /* lanes that update a tile together */

  __device__ T *Tile(int i, int j) const { return panel_ + (i * (i + 1) / 2 + j) * kTileSize; }
  __device__ T *PanelTile(int i, int k) const { return InShared ? Tile(i, k) : panel_ + (i - k) * kTileSize; }

  /* Calls use(i, j) for the tiles of the lower triangle; half a warp takes a tile. */
  template <typename Use>
  __device__ void ForTiles(Use use) const
  {
    const int half = threadIdx.x / kTile, halves = blockDim.x / kTile;
    for (int i = 0, t = 0; i < tiles_; i++)
      for (int j = 0; j <= i; j++, t++)
        if (t % halves == half) use(i, j);
  }
  __device__ void LoadTile(const T *A, int i, int j, T *tile) const
  {
    const int r = threadIdx.x % kTile, row = i * kTile + r;
    const T  *from = A + (size_t)j * kTile * n_ + row;
    T *const  to   = tile + r * kStride;
#pragma unroll 4
    for (int c = 0; c < kTile; c++, from += n_) {
      if (row < n_ && j * kTile + c <= row) __pipeline_memcpy_async(to + c, from, sizeof(T));
      else to[c] = row == j * kTile + c;
    }
    __pipeline_commit();
  }
  __device__ void StoreTile(T *A, int i, int j, const T *tile) const
  {
    const int r = threadIdx.x % kTile, row = i * kTile + r;
    T        *to = A + (size_t)j * kTile * n_ + row;
    for (int c = 0; c < kTile; c++, to += n_)
      if (row < n_ && j * kTile + c <= row) *to = tile[r * kStride + c];
  }
  __device__ void LoadPanel(int k)
  {
    for (int i = k + threadIdx.x / kTile; i < tiles_; i += blockDim.x / kTile) LoadTile(A_, i, k, PanelTile(i, k));
    __pipeline_wait_prior(0);
  }
  __device__ void StorePanel(int k)
  {
    for (int i = k + threadIdx.x / kTile; i < tiles_; i += blockDim.x / kTile) StoreTile(A_, i, k, PanelTile(i, k));
  }

  /* Factorizes diagonal tile k by one warp. Its halves compute the same; one stores L_kk, the other L_kk^T. */
  __device__ void FactorizeDiagonal(int k, T smallest)
  {
    T *const  D    = PanelTile(k, k);
    const int r    = threadIdx.x % kTile;
    const int half = threadIdx.x / kTile;
    T         a[kTile], inverse;
#pragma unroll
    for (int c = 0; c < kTile; c++) a[c] = D[r * kStride + c];
    const int bad = Eliminate<kTile, true>(a, column_ + half * 2 * kTile, 0, smallest, inverse);
#pragma unroll
    for (int c = 0; c < kTile; c++) {
      if (half == 0 && c <= r) D[r * kStride + c] = a[c];
      if (half == 1 && c <= r) transposed_[c * kStride + r] = a[c];
    }
    if (half == 0) inverse_[k * kTile + r] = inverse;
    if (threadIdx.x == 0 && bad < kTile) *bad_ = k * kTile + bad;
  }

  /* The rows x of the panel below the diagonal tile become x L_kk^{-T}; a thread takes a row. */
  __device__ void SolvePanel(int k)
  {
    using Some = Vector<T>;
    for (int row = (k + 1) * kTile + threadIdx.x; row < tiles_ * kTile; row += blockDim.x) {
      T *const X = PanelTile(row / kTile, k) + row % kTile * kStride;
      Some     x[kTile / Some::kSize];
#pragma unroll
      for (int c = 0; c < kTile / Some::kSize; c++) x[c] = ((const Some *)X)[c];
#pragma unroll
      for (int c = 0; c < kTile; c++) {
        const T solved                        = x[c / Some::kSize].v[c % Some::kSize] * inverse_[k * kTile + c];
        x[c / Some::kSize].v[c % Some::kSize] = solved;
#pragma unroll
        for (int b = (c + 1) / Some::kSize; b < kTile / Some::kSize; b++) {
          const Some l = ((const Some *)(transposed_ + c * kStride))[b];
#pragma unroll
          for (int t = 0; t < Some::kSize; t++)
            if (b * Some::kSize + t > c) x[b].v[t] -= solved * l.v[t];
        }
      }
#pragma unroll
      for (int c = 0; c < kTile / Some::kSize; c++) ((Some *)X)[c] = x[c];
    }
  }

  /* Subtracts X_i X_j^T from tile (i, j), the t-th of the tiles k < j <= i, by kUpdateLanes lanes. */
  __device__ void UpdateTile(int k, int t)
  {
    int i = (int)((sqrtf(8.f * t + 1.f) - 1.f) / 2.f); /* solves t = i (i + 1) / 2 + j, to rounding */
    if ((i + 1) * (i + 2) / 2 <= t) i++;
    if (i * (i + 1) / 2 > t) i--;
    const int j = t - i * (i + 1) / 2;
    MultiplyTiles(k + 1 + i, k + 1 + j, PanelTile(k + 1 + i, k), PanelTile(k + 1 + j, k));
  }

  /* Entry (r, c) of tile (i, j). In global memory, what lies outside the lower triangle reads as 0 and is not written. */
  __device__ T GetEntry(int i, int j, int r, int c) const
  {
    if (InShared) return Tile(i, j)[r * kStride + c];
    const int row = i * kTile + r, column = j * kTile + c;
    return row < n_ && column <= row ? A_[(size_t)column * n_ + row] : 0;
  }
  __device__ void SetEntry(int i, int j, int r, int c, T value)
  {
    const int row = i * kTile + r, column = j * kTile + c;
    if (InShared) Tile(i, j)[r * kStride + c] = value;
    else if (row < n_ && column <= row) A_[(size_t)column * n_ + row] = value;
  }

  /* In single precision a lane takes 4 x 4 entries, and asks for all of them before it uses any. */
  __device__ void MultiplyTiles(int i, int j, const float *Xi, const float *Xj)
  {
    using Some          = Vector<float>;
    constexpr int kSide = 4;
    const int     lo = threadIdx.x % kSide, hi = threadIdx.x / kSide % kSide;
    float         sum[kSide][kSide];
#pragma unroll
    for (int q = 0; q < kSide; q++)
#pragma unroll
      for (int p = 0; p < kSide; p++) sum[q][p] = GetEntry(i, j, lo + q * kSide, hi + p * kSide);
#pragma unroll
    for (int c = 0; c < kTile; c += Some::kSize) {
      Some x[kSide], y[kSide];
#pragma unroll
      for (int q = 0; q < kSide; q++) {
        x[q] = *(const Some *)(Xi + (lo + q * kSide) * kStride + c);
        y[q] = *(const Some *)(Xj + (hi + q * kSide) * kStride + c);
      }
#pragma unroll
      for (int e = 0; e < Some::kSize; e++)
#pragma unroll
        for (int q = 0; q < kSide; q++)
#pragma unroll
          for (int p = 0; p < kSide; p++) sum[q][p] -= x[q].v[e] * y[p].v[e];
    }
#pragma unroll
    for (int q = 0; q < kSide; q++)
#pragma unroll
      for (int p = 0; p < kSide; p++) SetEntry(i, j, lo + q * kSide, hi + p * kSide, sum[q][p]);
  }

  /*
     In double precision the tensor cores compute 8 x 8 += 8 x 4 times 4 x 8 with the ordinary rounding. A lane holds entry
     (lane / 4, lane % 4) of the factors and entries (lane / 4, 2 (lane % 4) + {0, 1}) of the sum. Even rows come before odd ones,
     so that the lanes meet different banks.
  */
  __device__ void MultiplyTiles(int i, int j, const double *Xi, const double *Xj)
  {
    constexpr int kPart = 8, kDepth = 4, kParts = kTile / kPart;
    const int     lane = threadIdx.x % kWarpSize, group = lane / kDepth, in_group = lane % kDepth;
    const auto    row_of = [](int g) { return g % 4 * 2 + g / 4; };
    const int     from   = row_of(group) * kStride + in_group;
    double        sum[kParts][kParts][2];
#pragma unroll
    for (int q = 0; q < kParts; q++)
#pragma unroll
      for (int p = 0; p < kParts; p++)
#pragma unroll
        for (int e = 0; e < 2; e++) sum[q][p][e] = GetEntry(i, j, q * kPart + row_of(group), p * kPart + row_of(2 * in_group + e));
#pragma unroll
    for (int c = 0; c < kTile; c += kDepth) {
      double x[kParts], y[kParts];
#pragma unroll
      for (int q = 0; q < kParts; q++) {
        x[q] = -Xi[q * kPart * kStride + from + c];
        y[q] = Xj[q * kPart * kStride + from + c];
      }
#pragma unroll
      for (int q = 0; q < kParts; q++)
#pragma unroll
        for (int p = 0; p < kParts; p++)
          asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
              : "+d"(sum[q][p][0]), "+d"(sum[q][p][1])
              : "d"(x[q]), "d"(y[p]));
    }
#pragma unroll
    for (int q = 0; q < kParts; q++)
#pragma unroll
      for (int p = 0; p < kParts; p++)
#pragma unroll
        for (int e = 0; e < 2; e++) SetEntry(i, j, q * kPart + row_of(group), p * kPart + row_of(2 * in_group + e), sum[q][p][e]);
  }

  const int n_, tiles_;
  T *const  A_;
  T        *panel_;      /* the tiles of the panel at work, or with InShared those of the whole matrix by rows */
  T        *transposed_; /* L_kk^T of the panel at work */
  T        *column_;     /* work space of Eliminate() */
  T        *inverse_;    /* 1 / L_rr */
  int      *bad_;
};
