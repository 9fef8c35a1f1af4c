/*
   The inverse of the remainder of RRB on a GPU, into which blocks of its rows and columns are swept one after the other. The
   remainder is what the levels leave: a symmetric matrix that is small enough to be dense.
*/
#include "rrb_factor.cuh"

namespace
{

constexpr int kSweep      = 32; /* rows and columns that are swept at once */
constexpr int kPanelBlock = 256;
constexpr int kUpdateSide = 16; /* rows, and columns, of threads in a block that updates */
constexpr int kUpdateEach = 4;  /* rows, and columns, of entries of one thread */

/* ------------------------------------- the dense operator ------------------------------------- */

__device__ void SetPair(double *M, PetscInt m, size_t p, size_t q, double value)
{
  M[p * m + q] = value;
  M[q * m + p] = value;
}

/*
   The remaining operator, where it is straight, as a dense matrix that was zero. Each thread writes the diagonal entry of a point
   and its couplings to points after it, both ways.
*/
__global__ void __launch_bounds__(kBlockSize) FillStraight(RRBElimination v, PetscInt m, double *M)
{
  const long long p = GridThread();
  if (p >= m) return;
  const PetscInt nx = v.g.nx, ny = v.g.ny, x = (PetscInt)p % nx, y = (PetscInt)p / nx;
  M[p * m + p] = v.S.c[p];
  if (x + 1 < nx) SetPair(M, m, p, p + 1, v.S.e[p]);
  if (y + 1 >= ny) return;
  SetPair(M, m, p, p + nx, v.S.n[p]);
  if (v.S.ne && x + 1 < nx) SetPair(M, m, p, p + nx + 1, v.S.ne[p]);
  if (v.S.ne && x > 0) SetPair(M, m, p, p + nx - 1, v.S.nw[p]);
}

/* The same where the remaining operator is skew. Each thread writes the points b2 and b1 of a cell. */
__global__ void __launch_bounds__(kBlockSize) FillSkew(RRBElimination v, PetscInt m, double *M)
{
  const long long cell = GridThread();
  const RRBGrid  &g    = v.g;
  if (cell >= (long long)g.cx * g.cy) return;
  const PetscInt I = (PetscInt)(cell % g.cx), J = (PetscInt)(cell / g.cx);
  for (int what : {kB2, kB1}) {
    if (!g.Has(what, I, J)) continue;
    const size_t p     = RRBHalfPlace(g, what, I, J);
    const int    other = what == kB2 ? kB1 : kB2;
    /* points (x + 1, y + 1) and (x - 1, y + 1) are of the other class, in cells I + up and I + up - 1 of line J + up */
    const PetscInt up = what == kB2 ? 0 : 1;
    M[p * m + p]      = v.Skew(what, kSkewC, I, J);
    if (g.Has(other, I + up, J + up)) SetPair(M, m, p, RRBHalfPlace(g, other, I + up, J + up), v.Skew(what, kSkewP, I, J));
    if (g.Has(other, I + up - 1, J + up)) SetPair(M, m, p, RRBHalfPlace(g, other, I + up - 1, J + up), v.Skew(what, kSkewQ, I, J));
    if (g.Has(what, I + 1, J)) SetPair(M, m, p, RRBHalfPlace(g, what, I + 1, J), v.Skew(what, kSkewH, I, J));
    if (g.Has(what, I, J + 1)) SetPair(M, m, p, RRBHalfPlace(g, what, I, J + 1), v.Skew(what, kSkewV, I, J));
  }
}

/* ----------------------------------------- the sweeps ----------------------------------------- */

/* The row of A that point p of the remainder stands for. */
__device__ PetscInt RemainderRow(const RRBElimination &v, PetscInt p)
{
  PetscInt x, y;
  if (v.g.half) {
    const PetscInt pair = v.g.cx + v.g.nx / 2, in_pair = p % pair;
    x = in_pair < v.g.cx ? 2 * in_pair : 2 * (in_pair - v.g.cx) + 1;
    y = 2 * (p / pair) + (in_pair < v.g.cx ? 0 : 1);
  } else {
    x = p % v.g.nx;
    y = p / v.g.nx;
  }
  return y * v.stride * v.nx + x * v.stride;
}

struct Sweep {
  PetscInt       m, first; /* rows and columns first .. first + kSweep - 1 are swept, as far as there are so many */
  bool           singular;
  double        *M;       /* [m][m] */
  double        *rows;    /* [kSweep][m] the swept rows as they will be */
  double        *columns; /* [m][kSweep] the swept columns as they were */
  RRBElimination v;       /* for the report */
};

/*
   The inverse of a symmetric matrix of kSweep rows by one warp: lane c brings column c of the matrix and takes away column c of the
   inverse. shared [2 kSweep] is work space.

   To sweep pivot p is to set a_ij -= a_ip a_jp / a_pp, a_ip /= a_pp, a_pp = -1 / a_pp. The matrix stays symmetric, so that a row is
   a column and each lane has an entry of it. Lane p keeps a_ip as it was, and the factor by which it is to be multiplied.

   The rows move up by one with each pivot. So the row of the next pivot is always the first, and all pivots are done by the same
   few instructions: to fetch other instructions for each pivot took longer than to execute them.

   Pivot `but`, if there is one, is not swept: its row and its column of the answer are zero. told(p, pivot) is called for each
   pivot.
*/
template <typename Tell>
__device__ __forceinline__ void InvertSymmetric(double (&a)[kSweep], int but, double *shared, Tell told)
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
    told(p, pivot);
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
__global__ void __launch_bounds__(kPanelBlock) SweepPanel(Sweep s)
{
  static_assert(kSweep == kWarpSize, "each lane has a column");
  constexpr int     kRows = kPanelBlock / kSweep, kEach = kSweep / kRows; /* rows of a step; rows of a thread */
  __shared__ double P[kSweep][kSweep + 1], tile[kSweep][kSweep + 1], pivots[2 * kSweep];
  const int         c = threadIdx.x % kSweep, some = min((PetscInt)kSweep, s.m - s.first);
  const PetscInt    first = blockIdx.x * kSweep, column = first + c;

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
    const int but = s.singular ? s.m - 1 - s.first : -1; /* the last pivot of all, which is 0 but for rounding */
    InvertSymmetric(a, but, pivots, [&](int p, double pivot) {
      if (GridThread() != 0 || p >= some) return;
      if (p == but && isfinite(pivot)) s.v.report->zero_pivots++;
      else if (!(pivot > 0) || !isfinite(pivot))
        atomicMin(&s.v.report->pivot, (unsigned long long)s.v.level << 32 | (unsigned long long)RemainderRow(s.v, s.first + p));
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
__global__ void __launch_bounds__(kUpdateSide *kUpdateSide) SweepUpdate(Sweep s, int tiles)
{
  constexpr int     kTile = kUpdateSide * kUpdateEach, kThreads = kUpdateSide * kUpdateSide;
  __shared__ double left[kSweep][kTile + 1], right[kSweep][kTile];
  const int         r = threadIdx.x / kUpdateSide, c = threadIdx.x % kUpdateSide, some = min((PetscInt)kSweep, s.m - s.first);
  const PetscInt    row = blockIdx.x / tiles * kTile, column = blockIdx.x % tiles * kTile;
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
      const PetscInt at_row = row + r + i * kUpdateSide, at_column = column + c + j * kUpdateSide;
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
      const PetscInt at_row = row + r + i * kUpdateSide, at_column = column + c + j * kUpdateSide, swept = at_row - s.first;
      if (at_row >= s.m || at_column >= s.m) continue;
      double value = old[i][j] - sum[i][j];
      if (swept >= 0 && swept < some) value = right[swept][c + j * kUpdateSide];
      else if (at_column >= s.first && at_column < s.first + some) value = -sum[i][j];
      s.M[(size_t)at_row * s.m + at_column] = value;
    }
}

} // namespace

size_t RRBInverseWork(PetscInt remainder)
{
  return (size_t)remainder * 2 * kSweep;
}

PetscErrorCode RRBInvertRemainder(RRBFactorCUDA *F, RRBElimination v, double *work, cudaStream_t stream)
{
  const PetscInt m     = F->remainder;
  const int      tiles = (m + kUpdateSide * kUpdateEach - 1) / (kUpdateSide * kUpdateEach);
  double *const  M     = F->inverse.data();
  Sweep          s{m, 0, (bool)F->singular, M, work, work + (size_t)kSweep * m, v};

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(M, 0, F->inverse.bytes(), stream));
  if (v.g.half) FillSkew<<<BlocksFor((long long)v.g.cx * v.g.cy), kBlockSize, 0, stream>>>(v, m, M);
  else FillStraight<<<BlocksFor(m), kBlockSize, 0, stream>>>(v, m, M);
  FinePCCheckLaunch();
  for (; s.first < m; s.first += kSweep) {
    PetscCall(LaunchEarly(F->early, SweepPanel, (m + kSweep - 1) / kSweep, kPanelBlock, stream, s));
    PetscCall(LaunchEarly(F->early, SweepUpdate, tiles * tiles, kUpdateSide * kUpdateSide, stream, s, tiles));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
