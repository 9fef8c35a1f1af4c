/*
   The inverse of a dense symmetric positive definite matrix on a GPU, into which blocks of its rows and columns are swept one after
   the other.
*/
#pragma once

#include "launch.cuh"

namespace
{

constexpr int kSweep      = 32; /* rows and columns that are swept at once */
constexpr int kPanelBlock = 256;
constexpr int kUpdateSide = 16; /* rows, and columns, of threads in a block that updates */
constexpr int kUpdateEach = 4;  /* rows, and columns, of entries of one thread */

template <typename Check>
struct DenseSweep {
  LocalInt m, first; /* rows and columns first .. first + kSweep - 1 are swept, as far as there are so many */
  LocalInt but;      /* the pivot that is not swept, or -1 */
  double  *M;        /* [m][m] */
  double  *rows;     /* [kSweep][m] the swept rows as they will be */
  double  *columns;  /* [m][kSweep] the swept columns as they were */
  Check    check;
};

/*
   The inverse of a symmetric matrix of kSweep rows by one warp: lane c brings column c of the matrix and takes away column c of the
   inverse. shared [2 kSweep] is work space.

   To sweep pivot p is to set a_ij -= a_ip a_jp / a_pp, a_ip /= a_pp, a_pp = -1 / a_pp. The matrix stays symmetric, so that a row is
   a column and each lane has an entry of it. Lane p keeps a_ip as it was, and the factor by which it is to be multiplied.

   The rows move up by one with each pivot. So the row of the next pivot is always the first, and all pivots are done by the same
   few instructions: to fetch other instructions for each pivot took longer than to execute them.

   Pivot `but`, if there is one, is not swept: its row and its column of the answer are zero. check(p, pivot) is called for each
   pivot.
*/
template <typename Check>
__device__ __forceinline__ void InvertSymmetric(double (&a)[kSweep], int but, double *shared, Check check)
{
  const int lane  = threadIdx.x % kWarpSize;
  double    scale = 1;
  shared[lane]    = a[0];
#pragma unroll 1
  for (int p = 0; p < kSweep; p++) {
    /* column[r] is of row p + r, modulo kSweep */
    double *const column = shared + p % 2 * kSweep, *const next = shared + (p + 1) % 2 * kSweep;
    __syncwarp();
    const double pivot   = column[0];
    const double inverse = p == but ? 0. : 1 / pivot;
    const double factor  = lane == p ? 0. : a[0] * inverse;
    if (lane == p) scale = inverse;
    a[0]                                = a[1] - column[1] * factor;
    next[(lane - p - 1) & (kSweep - 1)] = scale * a[0]; /* stored first, while the other rows follow */
    check(p, pivot);
#pragma unroll
    for (int r = 2; r < kSweep; r++) a[r - 1] = a[r] - column[r] * factor;
    a[kSweep - 1] = lane == p ? -1. : factor;
  }
#pragma unroll
  for (int r = 0; r < kSweep; r++) a[r] *= -scale;
}

/*
   The first kernel of a sweep. Every block inverts the diagonal block of the swept rows, and block b multiplies the kSweep columns
   from kSweep b on of these rows by that inverse P. The swept columns are copied, because the second kernel overwrites them.
*/
template <typename Check>
__global__ void __launch_bounds__(kPanelBlock) SweepPanel(DenseSweep<Check> s)
{
  static_assert(kSweep == kWarpSize, "each lane has a column");
  constexpr int     kRows = kPanelBlock / kSweep, kEach = kSweep / kRows; /* rows of a step; rows of a thread */
  __shared__ double P[kSweep][kSweep + 1], tile[kSweep][kSweep + 1], pivots[2 * kSweep];
  const int         c = threadIdx.x % kSweep, some = min((LocalInt)kSweep, s.m - s.first);
  const LocalInt    first = blockIdx.x * kSweep, column = first + c;

  WaitForPrevious();
  LetNextStart();
  for (int r = threadIdx.x / kSweep; r < kSweep; r += kRows) {
    tile[r][c] = r < some && column < s.m ? s.M[(size_t)(s.first + r) * s.m + column] : 0.;
    if (first + r < s.m && c < some) s.columns[(size_t)(first + r) * kSweep + c] = s.M[(size_t)(first + r) * s.m + s.first + c];
  }
  if (threadIdx.x < kWarpSize) {
    double a[kSweep];
#pragma unroll
    for (int r = 0; r < kSweep; r++)
      a[r] = r < some && c < some ? s.M[(size_t)(s.first + r) * s.m + s.first + c] : (double)(r == c);
    InvertSymmetric(a, s.but < 0 ? -1 : s.but - s.first, pivots, [&](int p, double pivot) {
      if (GridThread() == 0 && p < some) s.check(s.first + p, pivot);
    });
#pragma unroll
    for (int r = 0; r < kSweep; r++) P[r][c] = a[r];
  }
  __syncthreads();
  double sum[kEach] = {};
  if (first == s.first) {
#pragma unroll
    for (int t = 0; t < kEach; t++) sum[t] = P[threadIdx.x / kSweep + t * kRows][c];
  } else {
    for (int k = 0; k < kSweep; k++) {
      const double right = tile[k][c];
#pragma unroll
      for (int t = 0; t < kEach; t++) sum[t] += P[threadIdx.x / kSweep + t * kRows][k] * right;
    }
  }
#pragma unroll
  for (int t = 0; t < kEach; t++) {
    const int r = threadIdx.x / kSweep + t * kRows;
    if (r < some && column < s.m) s.rows[(size_t)r * s.m + column] = sum[t];
  }
}

/*
   The second kernel of a sweep, which updates all entries of M: each block a tile, of which a thread has every kUpdateSide-th row
   and column.
*/
template <typename Check>
__global__ void __launch_bounds__(kUpdateSide *kUpdateSide) SweepUpdate(DenseSweep<Check> s, int tiles)
{
  constexpr int     kTile = kUpdateSide * kUpdateEach, kThreads = kUpdateSide * kUpdateSide;
  __shared__ double left[kSweep][kTile + 1], right[kSweep][kTile];
  const int         r = threadIdx.x / kUpdateSide, c = threadIdx.x % kUpdateSide, some = min((LocalInt)kSweep, s.m - s.first);
  const LocalInt    row = blockIdx.x / tiles * kTile, column = blockIdx.x % tiles * kTile;
  double            sum[kUpdateEach][kUpdateEach] = {}, old[kUpdateEach][kUpdateEach];

  WaitForPrevious();
  LetNextStart();
  for (int e = threadIdx.x; e < kTile * kSweep; e += kThreads) {
    const int of_row = e / kSweep, k = e % kSweep, from = e / kTile, of_column = e % kTile;
    left[k][of_row]        = row + of_row < s.m && k < some ? s.columns[(size_t)(row + of_row) * kSweep + k] : 0.;
    right[from][of_column] = from < some && column + of_column < s.m ? s.rows[(size_t)from * s.m + column + of_column] : 0.;
  }
#pragma unroll
  for (int i = 0; i < kUpdateEach; i++)
#pragma unroll
    for (int j = 0; j < kUpdateEach; j++) {
      const LocalInt at_row = row + r + i * kUpdateSide, at_column = column + c + j * kUpdateSide;
      old[i][j] = at_row < s.m && at_column < s.m ? s.M[(size_t)at_row * s.m + at_column] : 0.;
    }
  __syncthreads();
#pragma unroll 4
  for (int k = 0; k < kSweep; k++) {
    double a[kUpdateEach], b[kUpdateEach];
#pragma unroll
    for (int i = 0; i < kUpdateEach; i++) {
      a[i] = left[k][r + i * kUpdateSide];
      b[i] = right[k][c + i * kUpdateSide];
    }
#pragma unroll
    for (int i = 0; i < kUpdateEach; i++)
#pragma unroll
      for (int j = 0; j < kUpdateEach; j++) sum[i][j] += a[i] * b[j];
  }
#pragma unroll
  for (int i = 0; i < kUpdateEach; i++)
#pragma unroll
    for (int j = 0; j < kUpdateEach; j++) {
      const LocalInt at_row = row + r + i * kUpdateSide, at_column = column + c + j * kUpdateSide, swept = at_row - s.first;
      if (at_row >= s.m || at_column >= s.m) continue;
      double value = old[i][j] - sum[i][j];
      if (swept >= 0 && swept < some) value = right[swept][c + j * kUpdateSide];
      else if (at_column >= s.first && at_column < s.first + some) value = -sum[i][j];
      s.M[(size_t)at_row * s.m + at_column] = value;
    }
}

/* Values of work memory for a matrix of m rows. */
inline size_t DenseInverseWork(LocalInt m)
{
  return (size_t)m * 2 * kSweep;
}

/*
   M [m][m] becomes its inverse. Pivot `but`, if there is one, is left out: its row and column of the inverse are zero. check(p,
   pivot) is called on the device for each pivot, in their order.
*/
template <typename Check>
PetscErrorCode DenseInvert(LocalInt m, double *M, LocalInt but, double *work, Check check, cudaStream_t stream)
{
  const int         tiles = (m + kUpdateSide * kUpdateEach - 1) / (kUpdateSide * kUpdateEach);
  DenseSweep<Check> s{m, 0, but, M, work, work + (size_t)kSweep * m, check};
  bool              early;

  PetscFunctionBegin;
  PetscCall(SupportsEarlyLaunch((const void *)SweepPanel<Check>, &early));
  for (; s.first < m; s.first += kSweep) {
    PetscCall(LaunchEarly(early, SweepPanel<Check>, (m + kSweep - 1) / kSweep, kPanelBlock, stream, s));
    PetscCall(LaunchEarly(early, SweepUpdate<Check>, tiles * tiles, kUpdateSide * kUpdateSide, stream, s, tiles));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace
