/*
   CUDA kernels of RRB. What differs from the host twin: points are in the storage of section 3.1 (rrb.cuh), both levels of a grid
   are done by one kernel each way, small grids by one block, what lies between the first grid down and up is a graph, and the
   remainder is applied by its inverse, which blocks of rows and columns are swept into.
*/
#include <algorithm>
#include <vector>

#include "phases.h"
#include "rrb.cuh"

namespace
{

constexpr int kTilesOnChip    = 4;    /* blocks a processor, each with a tile */
constexpr int kSmallCells     = 1024; /* cells of a grid that one block does */
constexpr int kSmallGrids     = 12;   /* of at most so many cells: 2 x kSmallCells points in a line, halved */
constexpr int kSmallBlock     = 1024;
constexpr int kSmallRemainder = 64; /* points of a remainder that goes with them */
constexpr int kSweep          = 32; /* rows and columns swept at once */
constexpr int kPanelBlock     = 256;
constexpr int kUpdateSide     = 16; /* threads of a block that updates, each way */
constexpr int kUpdateEach     = 4;  /* entries of a thread, each way */
constexpr int kInverseWarps   = 8;  /* rows of the inverse in a block, a warp each */
constexpr int kInverseAhead   = 16; /* its entries that a lane asks for at once */

/* What the set-up tells the host. Keys are such that the smallest is the first that the host twin meets. */
struct RRBReport {
  unsigned long long pattern; /* row, column, and 1 for one that is not symmetric */
  unsigned long long pivot;   /* level, row */
  unsigned long long one_sided, lifted;
  PetscInt           nine, zero_pivots, largest, next, may_lift; /* rows of S_1 */
  PetscInt           nonzero_sum;                                /* some row's */
};
constexpr unsigned long long kNone = ~0ull;

/* ----------------------------------------- the matrix ----------------------------------------- */

__global__ void __launch_bounds__(kBlockSize) LargestOffset(CSRView A, RRBReport *report)
{
  PetscInt largest = 0;
  for (long long row = GridThread(); row < A.n; row += (long long)gridDim.x * blockDim.x)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.a[k] != 0) largest = max(largest, A.j[k] - (PetscInt)row);
  largest = GroupMax<kWarpSize>(largest);
  if (threadIdx.x % kWarpSize == 0 && largest > 0) atomicMax(&report->largest, largest);
}

__global__ void __launch_bounds__(kBlockSize) NextOffset(CSRView A, RRBReport *report)
{
  const PetscInt largest = report->largest;
  bool           found   = false;
  for (long long row = GridThread(); row < A.n && !found; row += (long long)gridDim.x * blockDim.x)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) found = found || (A.a[k] != 0 && A.j[k] - (PetscInt)row == largest - 1);
  if (found) report->next = 1; /* all write the same */
}

__device__ double Entry(const CSRView &A, PetscInt row, PetscInt column)
{
  for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
    if (A.j[k] == column) return A.a[k];
  return 0;
}

/* The couplings of a straight operator, over plain lines; far ones are null with 5 points. */
struct Straight {
  double *c, *e, *n, *ne, *nw;
};

/*
   A row a thread: its diagonal and what it has to points that come after it, as ReadMatrix() of the host twin; with lift the
   diagonal as its Lift() makes it before level 1.

   Whether Lift() has anything to look for before level 2 is told here: row b of S_1 sums to what row b of A does and |a_br| / a_rr
   of what its red neighbours' rows do. Where no coupling is above 0 and no row of A sums to less than -kRRBLift / 4 of its
   diagonal, the |a_br| of a row are a_bb together at most, but for such a part, and no row of S_1 comes to -kRRBLift a_bb.
*/
__global__ void __launch_bounds__(kBlockSize)
  ReadRows(CSRView A, PetscInt nx, Straight S, bool lift, bool singular, RRBReport *report)
{
  const long long thread = GridThread();
  if (thread >= A.n) return;
  const PetscInt row = (PetscInt)thread, x = row % nx, y = row / nx;
  double         c = 0, e = 0, n = 0, ne = 0, nw = 0, others = 0;
  bool           may_lift = false;
  for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
    const PetscInt column = A.j[k], dx = column % nx - x, dy = column / nx - y;
    const double   a = A.a[k];
    if (a == 0) continue;
    const unsigned long long key = ((unsigned long long)row << 32 | (unsigned long long)column << 1);
    if (dx < -1 || dx > 1 || dy < -1 || dy > 1) {
      atomicMin(&report->pattern, key);
      return;
    }
    if (column == row) {
      c = a;
      continue;
    }
    const double other = Entry(A, column, row), apart = fabs(a - other);
    if (other == 0) {
      if (!(apart <= kRRBNoise * Entry(A, row, row))) atomicAdd(&report->one_sided, 1ull);
      continue;
    }
    if (apart > kRRBSymmetry * fmax(fabs(a), fabs(other)) && !(apart <= kRRBNoise * Entry(A, row, row)) && isfinite(apart)) {
      /* else a pivot tells */
      atomicMin(&report->pattern, key | 1);
      return;
    }
    if (dx && dy) report->nine = 1;
    const double mean = (a + other) / 2;
    others += mean;
    may_lift = may_lift || mean > 0;
    if (column < row) continue;
    if (!dy) e = mean;
    else if (!dx) n = mean;
    else if (dx > 0) ne = mean;
    else nw = mean;
  }
  const double sum = c + others;
  if (singular && !(fabs(sum) <= kRRBZeroSum * c) && !report->nonzero_sum) report->nonzero_sum = 1;
  if ((may_lift || sum < -kRRBLift / 4 * c) && !report->may_lift) report->may_lift = 1; /* all write the same, and few do */
  if (lift && c > 0 && sum < -kRRBLift * c) {
    c -= sum;
    atomicAdd(&report->lifted, 1ull);
  }
  S.c[row] = c;
  S.e[row] = e;
  S.n[row] = n;
  if (S.ne) {
    S.ne[row] = ne;
    S.nw[row] = nw;
  }
}

/* ------------------------------------- the factorization -------------------------------------- */

struct Levels {
  RRBGrid    g;
  Straight   S;             /* of the grid's points */
  double    *skew;          /* [2 kSkewArrays][cy][ld], of its black points */
  double    *diagonal;      /* skew, or where it is with rows lifted, in places as there */
  Straight   next;          /* of class b2, plain lines of cx; null where nothing comes after */
  PetscInt   level, stride; /* its odd level; points of the finest grid between points */
  PetscInt   nx;            /* of the finest grid */
  RRBReport *report;
};

__device__ double OddPivot(const Levels &v, PetscInt x, PetscInt y)
{
  const PetscInt nx = v.g.nx;
  const size_t   p  = (size_t)y * nx + x;
  double         d  = v.S.c[p];
  if (v.S.ne) {
    d += v.S.ne[p] + v.S.nw[p];
    if (y > 0 && x > 0) d += v.S.ne[p - nx - 1];
    if (y > 0 && x + 1 < nx) d += v.S.nw[p - nx + 1];
  }
  return d;
}

__device__ void CheckPivot(const Levels &v, PetscInt level, PetscInt x, PetscInt y, double d)
{
  if (!(d > 0) || !isfinite(d))
    atomicMin(&v.report->pivot, (unsigned long long)level << 32 | (unsigned long long)(y * v.stride * v.nx + x * v.stride));
}

/* The columns of L of a red point of the odd level; zeros where the cell has none. */
__device__ void OddColumn(const Levels &v, int what, PetscInt I, PetscInt J)
{
  const RRBGrid &g  = v.g;
  const PetscInt nx = g.nx, x = 2 * I + (what & 1), y = 2 * J + (what >> 1);
  double *const  to   = g.l + (what == kR1 ? kR1West : kR2West) * g.Cells() + g.Cell(I, J);
  double         l[5] = {0, 0, 0, 0, 0};
  if (g.Has(what, I, J)) {
    const size_t p = (size_t)y * nx + x;
    const double d = OddPivot(v, x, y);
    CheckPivot(v, v.level, x, y, d);
    l[0] = x > 0 ? v.S.e[p - 1] / d : 0.;
    l[1] = v.S.e[p] / d;
    l[2] = y > 0 ? v.S.n[p - nx] / d : 0.;
    l[3] = v.S.n[p] / d;
    l[4] = 1 / d;
  }
  for (int k = 0; k < 5; k++) to[k * g.Cells()] = l[k];
}

/* The sum of a row of S_1, with 5 points: its red neighbours r take a_br / a_rr times all their couplings, to b and to others. */
__device__ double RowSum(const Levels &v, PetscInt x, PetscInt y)
{
  const PetscInt nx    = v.g.nx;
  const auto     taken = [&](double a, PetscInt r_x, PetscInt r_y) {
    const size_t r   = (size_t)r_y * nx + r_x;
    double       sum = v.S.e[r] + v.S.n[r];
    if (r_x > 0) sum += v.S.e[r - 1];
    if (r_y > 0) sum += v.S.n[r - nx];
    return a * sum / v.S.c[r];
  };
  const size_t p   = (size_t)y * nx + x;
  double       sum = v.S.c[p];
  if (y > 0) sum -= taken(v.S.n[p - nx], x, y - 1);
  if (x > 0) sum -= taken(v.S.e[p - 1], x - 1, y);
  if (x + 1 < nx) sum -= taken(v.S.e[p], x + 1, y);
  if (y + 1 < v.g.ny) sum -= taken(v.S.n[p], x, y + 1);
  return sum;
}

/*
   The skew operator at a black point; with Lift, of S_1, also its diagonal as Lift() of the host twin makes it, and whether it did.
*/
template <bool Lift>
__device__ bool OddSchur(const Levels &v, int what, PetscInt I, PetscInt J)
{
  const RRBGrid &g  = v.g;
  const PetscInt nx = g.nx, ny = g.ny, x = 2 * I + (what & 1), y = 2 * J + (what >> 1);
  double *const  to             = v.skew + (what == kB1 ? kSkewOfB1 : 0) * g.Cells() + g.Cell(I, J);
  double         S[kSkewArrays] = {0, 0, 0, 0, 0};
  if (g.Has(what, I, J)) {
    const size_t p = (size_t)y * nx + x;
    S[kSkewC]      = v.S.c[p];
    if (v.S.ne) {
      S[kSkewP] = v.S.ne[p];
      S[kSkewQ] = v.S.nw[p];
    }
    if (y > 0) {
      const double a = v.S.n[p - nx];
      S[kSkewC] -= a * a / OddPivot(v, x, y - 1);
    }
    if (x > 0) {
      const double a = v.S.e[p - 1], d = OddPivot(v, x - 1, y);
      S[kSkewC] -= a * a / d;
      S[kSkewQ] -= a * v.S.n[p - 1] / d;
    }
    if (x + 1 < nx) {
      const double a = v.S.e[p], d = OddPivot(v, x + 1, y);
      S[kSkewC] -= a * a / d;
      S[kSkewP] -= a * v.S.n[p + 1] / d;
      S[kSkewH] -= a * v.S.e[p + 1] / d;
    }
    if (y + 1 < ny) {
      const double a = v.S.n[p], d = OddPivot(v, x, y + 1);
      S[kSkewC] -= a * a / d;
      S[kSkewP] -= a * v.S.e[p + nx] / d;
      if (x > 0) S[kSkewQ] -= a * v.S.e[p + nx - 1] / d;
      S[kSkewV] -= a * v.S.n[p + nx] / d;
    }
  }
  for (int k = 0; k < kSkewArrays; k++) to[k * g.Cells()] = S[k];
  bool lifted = false;
  if constexpr (Lift) {
    double diagonal = S[kSkewC];
    if (g.Has(what, I, J)) {
      const double sum = RowSum(v, x, y);
      lifted           = diagonal > 0 && sum < -kRRBLift * v.S.c[(size_t)y * nx + x];
      if (lifted) diagonal -= sum;
    }
    v.diagonal[(what == kB1 ? kSkewOfB1 : 0) * g.Cells() + g.Cell(I, J)] = diagonal; /* over S[kSkewC], if that is the same place */
  }
  return lifted;
}

/* How many rows were lifted. */
template <bool Lift>
__device__ __forceinline__ int OddLevel(const Levels &v, PetscInt I, PetscInt J)
{
  OddColumn(v, kR1, I, J);
  OddColumn(v, kR2, I, J);
  const bool b2 = OddSchur<Lift>(v, kB2, I, J), b1 = OddSchur<Lift>(v, kB1, I, J);
  return b2 + b1;
}

/* An entry of the skew operator that is factored, 0 outside. */
__device__ double Skew(const Levels &v, int what, RRBSkew array, PetscInt I, PetscInt J)
{
  const RRBGrid &g = v.g;
  return g.Has(what, I, J)
           ? (array == kSkewC ? v.diagonal : v.skew)[((what == kB1 ? kSkewOfB1 : 0) + array) * g.Cells() + g.Cell(I, J)]
           : 0.;
}

__device__ double EvenPivot(const Levels &v, PetscInt I, PetscInt J)
{
  return Skew(v, kB1, kSkewC, I, J) + Skew(v, kB1, kSkewH, I, J) + Skew(v, kB1, kSkewV, I, J) + Skew(v, kB1, kSkewH, I - 1, J) +
         Skew(v, kB1, kSkewV, I, J - 1);
}

/* The columns of L of the cell's b1, and the next operator at its b2. */
__device__ __forceinline__ void EvenLevel(const Levels &v, PetscInt I, PetscInt J)
{
  const RRBGrid &g    = v.g;
  double *const  to   = g.l + kB1SouthWest * g.Cells() + g.Cell(I, J);
  double         l[5] = {0, 0, 0, 0, 0};
  /* of b1 */
  const double sw = Skew(v, kB2, kSkewP, I, J), se = Skew(v, kB2, kSkewQ, I + 1, J), nw = Skew(v, kB1, kSkewQ, I, J),
               ne = Skew(v, kB1, kSkewP, I, J);
  double c = Skew(v, kB2, kSkewC, I, J), e = Skew(v, kB2, kSkewH, I, J), n = Skew(v, kB2, kSkewV, I, J), next_ne = 0, next_nw = 0;
  if (g.Has(kB1, I, J)) {
    const double d = EvenPivot(v, I, J);
    CheckPivot(v, v.level + 1, 2 * I + 1, 2 * J + 1, d);
    l[0] = sw / d;
    l[1] = ne / d;
    l[2] = se / d;
    l[3] = nw / d;
    l[4] = 1 / d;
    c -= sw * sw / d;
    e -= sw * se / d;
    n -= sw * nw / d;
    next_ne -= sw * ne / d;
  }
  for (int k = 0; k < 5; k++) to[k * g.Cells()] = l[k];
  if (g.Has(kB1, I - 1, J)) { /* of which this b2 is the south-east neighbour */
    const double d = EvenPivot(v, I - 1, J), a = Skew(v, kB2, kSkewQ, I, J);
    c -= a * a / d;
    n -= a * Skew(v, kB1, kSkewP, I - 1, J) / d;
    next_nw -= a * Skew(v, kB1, kSkewQ, I - 1, J) / d;
  }
  if (g.Has(kB1, I, J - 1)) { /* north-west */
    const double d = EvenPivot(v, I, J - 1), a = Skew(v, kB1, kSkewQ, I, J - 1);
    c -= a * a / d;
    e -= a * Skew(v, kB1, kSkewP, I, J - 1) / d;
  }
  if (g.Has(kB1, I - 1, J - 1)) { /* north-east */
    const double d = EvenPivot(v, I - 1, J - 1), a = Skew(v, kB1, kSkewP, I - 1, J - 1);
    c -= a * a / d;
  }
  const size_t p = (size_t)J * g.cx + I;
  v.next.c[p]    = c;
  v.next.e[p]    = e;
  v.next.n[p]    = n;
  v.next.ne[p]   = next_ne;
  v.next.nw[p]   = next_nw;
}

template <bool Lift>
__global__ void __launch_bounds__(kBlockSize) FactorOdd(Levels v)
{
  const long long cell   = GridThread();
  int             lifted = 0;
  if (cell < (long long)v.g.cx * v.g.cy) lifted = OddLevel<Lift>(v, (PetscInt)(cell % v.g.cx), (PetscInt)(cell / v.g.cx));
  if constexpr (Lift) {
    lifted = GroupSum<kWarpSize>(lifted);
    if (threadIdx.x % kWarpSize == 0 && lifted) atomicAdd(&v.report->lifted, (unsigned long long)lifted);
  }
}

__global__ void __launch_bounds__(kBlockSize) FactorEven(Levels v)
{
  const long long cell = GridThread();
  if (cell < (long long)v.g.cx * v.g.cy) EvenLevel(v, (PetscInt)(cell % v.g.cx), (PetscInt)(cell / v.g.cx));
}

/* --------------------------------------- the remainder ---------------------------------------- */

__device__ void SetPair(double *M, PetscInt m, size_t p, size_t q, double value)
{
  M[p * m + q] = value;
  M[q * m + p] = value;
}

/* The remaining operator as a dense matrix that was zero, a point a thread: what it has to points after it, and the diagonal. */
__global__ void __launch_bounds__(kBlockSize) FillStraight(Levels v, PetscInt m, double *M)
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

__global__ void __launch_bounds__(kBlockSize) FillSkew(Levels v, PetscInt m, double *M)
{
  const long long cell = GridThread();
  const RRBGrid  &g    = v.g;
  if (cell >= (long long)g.cx * g.cy) return;
  const PetscInt I = (PetscInt)(cell % g.cx), J = (PetscInt)(cell / g.cx);
  for (int what : {kB2, kB1}) {
    if (!g.Has(what, I, J)) continue;
    const size_t p     = RRBHalfPlace(g, what, I, J);
    const int    other = what == kB2 ? kB1 : kB2;
    /* (x + 1, y + 1) and (x - 1, y + 1) are of the other class, in cells I + up, I + up - 1 of line J + up */
    const PetscInt up = what == kB2 ? 0 : 1;
    M[p * m + p]      = Skew(v, what, kSkewC, I, J);
    if (g.Has(other, I + up, J + up)) SetPair(M, m, p, RRBHalfPlace(g, other, I + up, J + up), Skew(v, what, kSkewP, I, J));
    if (g.Has(other, I + up - 1, J + up)) SetPair(M, m, p, RRBHalfPlace(g, other, I + up - 1, J + up), Skew(v, what, kSkewQ, I, J));
    if (g.Has(what, I + 1, J)) SetPair(M, m, p, RRBHalfPlace(g, what, I + 1, J), Skew(v, what, kSkewH, I, J));
    if (g.Has(what, I, J + 1)) SetPair(M, m, p, RRBHalfPlace(g, what, I, J + 1), Skew(v, what, kSkewV, I, J));
  }
}

/* The remainder's place of a pivot, for the report. */
__device__ PetscInt RemainderRow(const Levels &v, PetscInt p)
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
  PetscInt m, first; /* the rows and columns first .. first + kSweep are swept */
  bool     singular;
  double  *M, *rows, *columns; /* [m m]; [kSweep m] the new rows; [m kSweep] the old columns */
  Levels   v;
};

/*
   The inverse of a symmetric matrix of kSweep rows by a warp: lane c brings its column c and takes away the one of the inverse.
   Pivot p is swept, a_ij -= a_ip a_jp / a_pp, a_ip /= a_pp, a_pp = -1 / a_pp, which leaves it symmetric, so that a row is a column:
   each lane has an entry of it. Lane p keeps a_ip as it was, and what it is to be multiplied by. Rows move up by one a pivot, which
   is why the next pivot's is always the first, and all pivots are the same few instructions: fetching them anew for each took
   longer than doing them. shared [2 kSweep]. Pivot `but` is not swept, if there is one: a null row and column of the answer.
   told(p, pivot) hears of each.
*/
template <typename Tell>
__device__ __forceinline__ void InvertSymmetric(double (&a)[kSweep], int but, double *shared, Tell told)
{
  const int lane  = threadIdx.x % kWarpSize;
  double    scale = 1;
  shared[lane]    = a[0];
#pragma unroll 1
  for (int p = 0; p < kSweep; p++) {
    /* column[r]: row p + r, modulo kSweep */
    double *const column = shared + p % 2 * kSweep, *const next = shared + (p + 1) % 2 * kSweep;
    __syncwarp();
    const double pivot   = column[0];
    const double inverse = p == but ? 0. : 1 / pivot;
    const double factor  = lane == p ? 0. : a[0] * inverse;
    if (lane == p) scale = inverse;
    a[0]                                = a[1] - column[1] * factor;
    next[(lane - p - 1) & (kSweep - 1)] = scale * a[0]; /* on its way while the others follow */
    told(p, pivot);
#pragma unroll
    for (int r = 2; r < kSweep; r++) a[r - 1] = a[r] - column[r] * factor;
    a[kSweep - 1] = lane == p ? -1. : factor;
  }
#pragma unroll
  for (int r = 0; r < kSweep; r++) a[r] *= -scale;
}

/* Block b: the inverse P of the diagonal block, and columns kSweep b .. of P times its rows. */
__global__ void __launch_bounds__(kPanelBlock) SweepPanel(Sweep s)
{
  static_assert(kSweep == kWarpSize, "a lane a column");
  constexpr int     kRows = kPanelBlock / kSweep, kEach = kSweep / kRows; /* of a step, rows of a thread */
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
    const int but = s.singular ? s.m - 1 - s.first : -1; /* the last pivot of all: all that rounding has left of 0 */
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

/* What the sweep does to all other entries, a tile a block; a thread has every kUpdateSide-th row and column of it. */
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

/* y = M x, a row a warp. Entries of M may be asked for before x is there. */
__global__ void __launch_bounds__(kInverseWarps *kWarpSize)
  MultiplyInverse(PetscInt m, const double *M, const double *x, double *y, RRBGate gate)
{
  const PetscInt      row = (PetscInt)(GridThread() / kWarpSize), lane = threadIdx.x % kWarpSize;
  const double *const a = M + (size_t)min(row, m - 1) * m;
  double              ahead[kInverseAhead], sum = 0;
  if (gate.ClosedEarly()) return;
#pragma unroll
  for (int k = 0; k < kInverseAhead; k++) ahead[k] = lane + k * kWarpSize < m ? a[lane + k * kWarpSize] : 0.;
  WaitForPrevious();
  LetNextStart();
  if (gate.Closed()) return;
  for (PetscInt first = lane; first < m; first += kInverseAhead * kWarpSize) {
    double value[kInverseAhead];
#pragma unroll
    for (int k = 0; k < kInverseAhead; k++) value[k] = first + k * kWarpSize < m ? x[first + k * kWarpSize] : 0.;
#pragma unroll
    for (int k = 0; k < kInverseAhead; k++) sum += ahead[k] * value[k];
    const PetscInt next = first + kInverseAhead * kWarpSize;
#pragma unroll
    for (int k = 0; k < kInverseAhead; k++) ahead[k] = next + k * kWarpSize < m ? a[next + k * kWarpSize] : 0.;
  }
  sum = GroupSum<kWarpSize>(sum);
  if (lane == 0 && row < m) y[row] = sum;
}

/* ----------------------------- a grid, one tile of cells a block ------------------------------ */

/* The values of the kernel ahead are there, and the gate is open. */
__device__ __forceinline__ bool Started(const RRBGate &gate)
{
  WaitForPrevious();
  LetNextStart();
  return !gate.Closed();
}

/* A point's value on the way down, 0 where there is none; x is the vector of the first grid, in natural order. */
template <bool First>
__device__ __forceinline__ double Down(const RRBGrid &g, const double *x, int what, PetscInt I, PetscInt J)
{
  if (!g.Has(what, I, J)) return 0;
  if constexpr (First) return x[(size_t)(2 * J + (what >> 1)) * g.nx + 2 * I + (what & 1)];
  else return g.down[what * g.Cells() + g.Cell(I, J)];
}

/* Values of a tile, and of what lies around it. */
struct TileOfDown {
  double r1[kRRBTileY + 2][kRRBTileX + 1], r2[kRRBTileY + 1][kRRBTileX + 2], b1[kRRBTileY + 1][kRRBTileX + 1];
};
struct TileOfUp {
  double b2[kRRBTileY + 2][kRRBTileX + 2], b1[kRRBTileY + 1][kRRBTileX + 1];
};

/* Where a thread of a tile is: its cell, and for some threads one to the west or south of the tile. */
struct TilePlace {
  PetscInt I0, J0, I, J, halo_I, halo_J;
  int      thread, i, j, halo_i, halo_j;
  bool     halo;

  __device__ __forceinline__ TilePlace(const RRBGrid &g, int tile)
  {
    const int across = (g.cx + kRRBTileX - 1) / kRRBTileX;
    thread           = threadIdx.x % kRRBTile;
    i                = thread % kRRBTileX;
    j                = thread / kRRBTileX;
    I0               = tile % across * kRRBTileX;
    J0               = tile / across * kRRBTileY;
    I                = I0 + i;
    J                = J0 + j;
    halo             = thread < kRRBTileX + 1 + kRRBTileY;
    halo_i           = thread <= kRRBTileX ? thread - 1 : -1;
    halo_j           = thread <= kRRBTileX ? -1 : thread - kRRBTileX - 1;
    halo_I           = I0 + halo_i;
    halo_J           = J0 + halo_j;
  }
};

/*
   Forward substitution with both levels, on a tile of cells by kRRBTile threads; a tile beyond the last has no points. Class b1 is
   updated on the tile and the cells to the west and south of it, since b2 needs these; every coefficient is for one black point.
   Coefficients are asked for before ready(), in which all threads of the block meet, says that the values are there; if not,
   nothing is done.
*/
template <bool First, typename Ready>
__device__ __forceinline__ void TileDown(const RRBGrid &g, const RRBGrid &next, const double *x, int tile, TileOfDown &shared,
                                         Ready ready)
{
  auto           &r1 = shared.r1;
  auto           &r2 = shared.r2;
  auto           &b1 = shared.b1;
  const TilePlace at(g, tile);
  const PetscInt  I = at.I, J = at.J;
  const int       i = at.i, j = at.j;
  const bool      halo       = at.halo && !g.half;
  double          of_halo[4] = {0, 0, 0, 0}, of_b1[4], of_b2[4], skew[4] = {0, 0, 0, 0};

  of_b1[0] = g.L(kR1North, I, J);
  of_b1[1] = g.L(kR1South, I, J + 1);
  of_b1[2] = g.L(kR2East, I, J);
  of_b1[3] = g.L(kR2West, I + 1, J);
  of_b2[0] = g.L(kR1West, I, J);
  of_b2[1] = g.L(kR1East, I - 1, J);
  of_b2[2] = g.L(kR2South, I, J);
  of_b2[3] = g.L(kR2North, I, J - 1);
  if (!g.half) {
    skew[0] = g.L(kB1SouthWest, I, J);
    skew[1] = g.L(kB1SouthEast, I - 1, J);
    skew[2] = g.L(kB1NorthWest, I, J - 1);
    skew[3] = g.L(kB1NorthEast, I - 1, J - 1);
  }
  if (halo) {
    of_halo[0] = g.L(kR1North, at.halo_I, at.halo_J);
    of_halo[1] = g.L(kR1South, at.halo_I, at.halo_J + 1);
    of_halo[2] = g.L(kR2East, at.halo_I, at.halo_J);
    of_halo[3] = g.L(kR2West, at.halo_I + 1, at.halo_J);
  }
  if (!ready()) return;
  const double own_b1 = Down<First>(g, x, kB1, I, J), own_b2 = Down<First>(g, x, kB2, I, J),
               halo_b1 = halo ? Down<First>(g, x, kB1, at.halo_I, at.halo_J) : 0.;
  for (int k = at.thread; k < (kRRBTileY + 2) * (kRRBTileX + 1); k += kRRBTile)
    r1[k / (kRRBTileX + 1)][k % (kRRBTileX + 1)] =
      Down<First>(g, x, kR1, at.I0 - 1 + k % (kRRBTileX + 1), at.J0 - 1 + k / (kRRBTileX + 1));
  for (int k = at.thread; k < (kRRBTileY + 1) * (kRRBTileX + 2); k += kRRBTile)
    r2[k / (kRRBTileX + 2)][k % (kRRBTileX + 2)] =
      Down<First>(g, x, kR2, at.I0 - 1 + k % (kRRBTileX + 2), at.J0 - 1 + k / (kRRBTileX + 2));
  __syncthreads();
  const auto update = [&](double value, const double(&l)[4], int at_i, int at_j) {
    return value - l[0] * r1[at_j + 1][at_i + 1] - l[1] * r1[at_j + 2][at_i + 1] - l[2] * r2[at_j + 1][at_i + 1] -
           l[3] * r2[at_j + 1][at_i + 2];
  };
  const double u   = update(own_b1, of_b1, i, j);
  b1[j + 1][i + 1] = u;
  if (halo) b1[at.halo_j + 1][at.halo_i + 1] = update(halo_b1, of_halo, at.halo_i, at.halo_j);
  __syncthreads();
  double value =
    own_b2 - of_b2[0] * r1[j + 1][i + 1] - of_b2[1] * r1[j + 1][i] - of_b2[2] * r2[j + 1][i + 1] - of_b2[3] * r2[j][i + 1];
  if (g.half) {
    if (g.Has(kB1, I, J)) next.down[RRBHalfPlace(g, kB1, I, J)] = u;
    if (g.Has(kB2, I, J)) next.down[RRBHalfPlace(g, kB2, I, J)] = value;
    return;
  }
  if (g.Has(kB1, I, J)) g.u[g.Cell(I, J)] = u;
  value -= skew[0] * b1[j + 1][i + 1] + skew[1] * b1[j + 1][i] + skew[2] * b1[j][i + 1] + skew[3] * b1[j][i];
  if (g.Has(kB2, I, J)) StoreDown(next, I, J, value);
}

/*
   A warp's part of a line of n points: lane l has points first + 2 l and the next, and stores first + l and first + 32 + l, so that
   stores lie together.
*/
__device__ __forceinline__ void StoreLine(double *line, PetscInt first, PetscInt n, double even, double odd)
{
  static_assert(kRRBTileX == kWarpSize, "a line of a tile is a warp");
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int part = 0; part < 2; part++) {
    const int      from    = part * kWarpSize / 2 + lane / 2;
    const double   of_even = __shfl_sync(kFullWarp, even, from), of_odd = __shfl_sync(kFullWarp, odd, from);
    const PetscInt x = first + part * kWarpSize + lane;
    if (x < n) line[x] = lane % 2 ? of_odd : of_even;
  }
}

/* Both levels of the backward substitution, and D^{-1}: b1 on the tile and to the west and south of it, then r1 and r2. */
template <bool First, typename Ready>
__device__ __forceinline__ void TileUp(const RRBGrid &g, const RRBGrid &next, const double *x, double *y, int tile,
                                       TileOfUp &shared, Ready ready)
{
  auto           &b2 = shared.b2;
  auto           &b1 = shared.b1;
  const TilePlace at(g, tile);
  const PetscInt  I = at.I, J = at.J;
  const int       i = at.i, j = at.j;
  const bool      halo = at.halo;
  double          of_r1[4], of_r2[4], of_b1[4], of_halo[4] = {0, 0, 0, 0};

#pragma unroll
  for (int k = 0; k < 4; k++) {
    of_r1[k] = g.L((RRBArray)(kR1West + k), I, J);
    of_r2[k] = g.L((RRBArray)(kR2West + k), I, J);
    of_b1[k] = g.half ? 0. : g.L((RRBArray)(kB1SouthWest + k), I, J);
    if (halo && !g.half) of_halo[k] = g.L((RRBArray)(kB1SouthWest + k), at.halo_I, at.halo_J);
  }
  /* values of the way down are not of the kernel ahead of this one; they are multiplied when all else has been asked for */
  double of_d[4]   = {g.L(kR1Pivot, I, J), g.L(kR2Pivot, I, J), 1, 1},
         values[4] = {Down<First>(g, x, kR1, I, J), Down<First>(g, x, kR2, I, J), 0, 0};
  if (!g.half) {
    if (g.Has(kB1, I, J)) {
      of_d[2]   = g.L(kB1Pivot, I, J);
      values[2] = g.u[g.Cell(I, J)];
    }
    if (halo && g.Has(kB1, at.halo_I, at.halo_J)) {
      of_d[3]   = g.L(kB1Pivot, at.halo_I, at.halo_J);
      values[3] = g.u[g.Cell(at.halo_I, at.halo_J)];
    }
  }
  if (!ready()) return;
  for (int k = at.thread; k < (kRRBTileY + 2) * (kRRBTileX + 2); k += kRRBTile)
    b2[k / (kRRBTileX + 2)][k % (kRRBTileX + 2)] = UpB2(g, next, at.I0 - 1 + k % (kRRBTileX + 2), at.J0 - 1 + k / (kRRBTileX + 2));
  if (g.half) {
    if (g.Has(kB1, I, J)) values[2] = next.up[RRBHalfPlace(g, kB1, I, J)];
    if (halo && g.Has(kB1, at.halo_I, at.halo_J)) values[3] = next.up[RRBHalfPlace(g, kB1, at.halo_I, at.halo_J)];
  }
  /* products are rounded by themselves, so that a b1 is the same in all tiles that make it */
  const double d_r1 = __dmul_rn(of_d[0], values[0]), d_r2 = __dmul_rn(of_d[1], values[1]), b1_value = __dmul_rn(of_d[2], values[2]),
               halo_value = __dmul_rn(of_d[3], values[3]);
  __syncthreads();
  const auto corners = [&](double value, const double(&l)[4], int at_i, int at_j) {
    return value - l[0] * b2[at_j + 1][at_i + 1] - l[1] * b2[at_j + 2][at_i + 2] - l[2] * b2[at_j + 1][at_i + 2] -
           l[3] * b2[at_j + 2][at_i + 1];
  };
  const double own_b1 = corners(b1_value, of_b1, i, j), own_b2 = b2[j + 1][i + 1];
  b1[j + 1][i + 1] = own_b1;
  if (halo) b1[at.halo_j + 1][at.halo_i + 1] = corners(halo_value, of_halo, at.halo_i, at.halo_j);
  __syncthreads();
  const double  own_r1 = d_r1 - of_r1[0] * own_b2 - of_r1[1] * b2[j + 1][i + 2] - of_r1[2] * b1[j][i + 1] - of_r1[3] * own_b1;
  const double  own_r2 = d_r2 - of_r2[0] * b1[j + 1][i] - of_r2[1] * own_b1 - of_r2[2] * own_b2 - of_r2[3] * b2[j + 2][i + 1];
  const size_t  line   = First ? g.nx : g.line;
  double *const to     = (First ? y : g.up) + 2 * J * line;
  if constexpr (First) {
    StoreLine(to, 2 * at.I0, 2 * J < g.ny ? g.nx : 0, own_b2, own_r1);
    StoreLine(to + line, 2 * at.I0, 2 * J + 1 < g.ny ? g.nx : 0, own_r2, own_b1);
  } else { /* lines have room for whole cells */
    if (g.Has(kB2, I, J)) *(double2 *)(to + 2 * I) = double2{own_b2, own_r1};
    if (g.Has(kR2, I, J)) *(double2 *)(to + line + 2 * I) = double2{own_r2, own_b1};
  }
}

template <bool First>
__global__ void __launch_bounds__(kRRBTile, kTilesOnChip)
  GridDown(const RRBGrid g, const RRBGrid next, const double *x, RRBGate gate)
{
  __shared__ TileOfDown shared;
  if (gate.ClosedEarly()) return;
  TileDown<First>(g, next, x, blockIdx.x, shared, [&]() { return Started(gate); });
}

template <bool First>
__global__ void __launch_bounds__(kRRBTile, kTilesOnChip)
  GridUp(const RRBGrid g, const RRBGrid next, const double *x, double *y, RRBGate gate)
{
  __shared__ TileOfUp shared;
  if (gate.ClosedEarly()) return;
  TileUp<First>(g, next, x, y, blockIdx.x, shared, [&]() { return Started(gate); });
}

/* ------------------------------- small grids, all by one block -------------------------------- */

struct SmallGrids {
  int           count; /* of grids; grid[count] is what comes after */
  RRBGrid       grid[kSmallGrids + 1];
  PetscInt      m; /* points of the remainder, if the block solves with it, too */
  const double *inverse;
};

/* Down, then the remainder if it is small, then up; or one of the ways. */
__global__ void __launch_bounds__(kSmallBlock)
  GridsOfOneBlock(const __grid_constant__ SmallGrids s, bool down, bool up, RRBGate gate)
{
  constexpr int kTiles = kSmallBlock / kRRBTile; /* at once */
  __shared__ union {
    TileOfDown down[kTiles];
    TileOfUp   up[kTiles];
  } shared;
  const int of_block = threadIdx.x / kRRBTile;
  bool      started = false, open = true;
  if (gate.ClosedEarly()) return;
  const auto ready = [&]() {
    if (started) __syncthreads(); /* with the tile before, and with the grid */
    else open = Started(gate);
    started = true;
    return open;
  };
  const auto for_tiles = [&](const RRBGrid &g, auto act) {
    for (int tile = of_block; tile - of_block < RRBTiles(g); tile += kTiles) act(tile);
  };
  if (down)
    for (int k = 0; k < s.count; k++)
      for_tiles(s.grid[k],
                [&](int tile) { TileDown<false>(s.grid[k], s.grid[k + 1], nullptr, tile, shared.down[of_block], ready); });
  if (s.m && ready()) {
    const RRBGrid &rest = s.grid[s.count];
    for (PetscInt row = threadIdx.x; row < s.m; row += kSmallBlock) {
      double sum = 0;
      for (PetscInt k = 0; k < s.m; k++) sum += s.inverse[(size_t)k * s.m + row] * rest.down[k]; /* it is symmetric */
      rest.up[row] = sum;
    }
  }
  if (up)
    for (int k = s.count - 1; k >= 0; k--)
      for_tiles(s.grid[k],
                [&](int tile) { TileUp<false>(s.grid[k], s.grid[k + 1], nullptr, nullptr, tile, shared.up[of_block], ready); });
}

} // namespace

/* -------------------------------------- the host's side --------------------------------------- */

namespace
{

/* Values a cell: 12 or 8 coefficients and 4 values, 2 results; 15 or 10, 4 values, 4 results. */
size_t DownBytes(const RRBGrid &g)
{
  return (size_t)g.cx * g.cy * ((g.half ? 8 : 12) + 6) * sizeof(double);
}

size_t UpBytes(const RRBGrid &g)
{
  return (size_t)g.cx * g.cy * ((g.half ? 10 : 15) + 8) * sizeof(double);
}

/* The graph holds pointers: it goes when they do. */
PetscErrorCode DropGraph(RRBFactorCUDA *F)
{
  PetscFunctionBegin;
  if (F->graph) PetscCallCUDA(cudaGraphExecDestroy(F->graph));
  F->graph = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The grids of these levels, and memory for all that stays. */
PetscErrorCode MakeGrids(RRBFactorCUDA *F, PetscInt nx, PetscInt ny, PetscInt levels, PetscInt max_levels, PetscInt remainder)
{
  constexpr PetscInt kAlign = 16; /* lines begin at 128 bytes */
  size_t             at     = 0;

  PetscFunctionBegin;
  PetscCall(DropGraph(F));
  F->inverse.Free(); /* whose size says that all is there */
  F->nx          = nx;
  F->ny          = ny;
  F->levels      = levels;
  F->max_levels  = max_levels;
  F->remainder   = remainder;
  F->half_levels = PetscMax(1, PetscMin(levels, max_levels - 1));
  F->count       = (F->half_levels + 1) / 2;
  F->first_small = F->count;
  for (int pass = 0; pass < 2; pass++) { /* sizes, then places */
    PetscInt   x = nx, y = ny;
    const auto place = [&](size_t size) {
      double *const array = pass ? F->memory.data() + at : nullptr;
      at += (size + kAlign - 1) / kAlign * kAlign;
      return array;
    };
    at = 0;
    for (int k = 0; k <= F->count; k++) {
      RRBGrid &g = F->grid[k];
      g          = RRBGrid{};
      g.nx       = x;
      g.ny       = y;
      g.plain    = k == F->count;
      g.cx       = (x + 1) / 2;
      g.cy       = (y + 1) / 2;
      g.ld       = (g.cx + kAlign - 1) / kAlign * kAlign;
      if (g.plain) {
        g.line = x;
        g.down = place(remainder);
        g.up   = place(remainder);
        break;
      }
      g.half = k == F->count - 1 && F->half_levels % 2;
      g.line = 2 * g.ld;
      g.l    = place(kRRBArrays * g.Cells());
      g.u    = place(g.Cells());
      if (k) {
        g.down = place(4 * g.Cells());
        g.up   = place((size_t)y * g.line);
        if ((long long)g.cx * g.cy <= kSmallCells && k < F->first_small && F->count - k <= kSmallGrids) F->first_small = k;
      }
      x = g.cx;
      y = g.cy;
    }
    if (!pass) PetscCall(F->memory.Allocate(at));
  }
  PetscCall(F->inverse.Allocate((size_t)remainder * remainder));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CaptureMiddle(RRBFactorCUDA *F)
{
  PetscFunctionBegin;
  if (F->graph) PetscFunctionReturn(PETSC_SUCCESS);
  if (!F->capture) PetscCallCUDA(cudaStreamCreateWithFlags(&F->capture, cudaStreamNonBlocking));
  PetscCallCUDA(cudaStreamBeginCapture(F->capture, cudaStreamCaptureModeThreadLocal));
  PetscCall(EndCapture(F->capture, RRBLaunchMiddle(F, RRBGate{}, F->early, F->capture), &F->graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The remaining operator, in v, becomes its inverse. work [2 kSweep m] */
PetscErrorCode InvertRemainder(RRBFactorCUDA *F, Levels v, double *work, cudaStream_t stream)
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

/* The grid whose points remain. */
void PlaceRemainder(const RRBFactorCUDA *F, Levels *v)
{
  const int last = F->grid[F->count - 1].half ? F->count - 1 : F->count;
  v->g           = F->grid[last];
  v->stride      = (PetscInt)1 << last;
}

PetscErrorCode Download(const RRBReport *from, RRBReport *to, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCallCUDA(cudaMemcpyAsync(to, from, sizeof(*to), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ClearReport(RRBReport *report, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(report, 0, sizeof(*report), stream));
  PetscCallCUDA(cudaMemsetAsync(&report->pattern, 0xff, sizeof(report->pattern), stream)); /* kNone */
  PetscCallCUDA(cudaMemsetAsync(&report->pivot, 0xff, sizeof(report->pivot), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode RRBOffsets_CUDA(const CSRView *A, PetscInt *largest, PetscBool *next)
{
  Buffer<RRBReport> report;
  RRBReport         seen;
  cudaStream_t      stream;
  int               processors;

  PetscFunctionBegin;
  *largest = 0;
  *next    = PETSC_FALSE;
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(ProcessorCount(&processors));
  PetscCall(report.Allocate(1));
  PetscCall(ClearReport(report.data(), stream));
  const int blocks = std::min(BlocksFor(A->n), 8 * processors);
  LargestOffset<<<blocks, kBlockSize, 0, stream>>>(*A, report.data());
  FinePCCheckLaunch();
  NextOffset<<<blocks, kBlockSize, 0, stream>>>(*A, report.data());
  FinePCCheckLaunch();
  PetscCall(Download(report.data(), &seen, stream));
  *largest = seen.largest;
  *next    = (PetscBool)(seen.next != 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBComputeFactor_CUDA(const CSRView *A, PetscInt nx, PetscInt ny, const RRBParams *params, RRBFactor **factor,
                                     RRBStats *stats)
{
  RRBFactorCUDA    *F = static_cast<RRBFactorCUDA *>(*factor);
  const size_t      n = A->n;
  PetscInt          levels, max_levels, remainder;
  Buffer<RRBReport> report;
  Buffer<double>    work;
  RRBReport         seen;
  cudaStream_t      stream;

  PetscFunctionBegin;
  *stats = RRBStats{};
  if (!F) {
    *factor = F = new RRBFactorCUDA();
    if (n) PetscCall(KnowsToWait((const void *)GridDown<false>, &F->early));
  }
  F->where = PETSC_MEMTYPE_CUDA;
  RRBLevels(nx, ny, params->levels, &levels, &max_levels, &remainder);
  if (!n) {
    F->nx         = nx;
    F->ny         = ny;
    F->levels     = levels;
    F->max_levels = max_levels;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(report.Allocate(1));
  PetscCall(ClearReport(report.data(), stream));

  /* two operators of the grids in turns, the skew one between them, and what the sweeps need */
  const size_t cells = (size_t)((nx + 1) / 2) * ((ny + 1) / 2), ld_cells = (size_t)((nx + 1) / 2 + 15) / 16 * 16 * ((ny + 1) / 2);
  const bool   lift = params->lift && !params->singular && nx > 1 && ny > 1;
  bool         nine = A->nnz > 5 * (long long)n;
  for (bool again = true; again;) {
    again               = false;
    const size_t sweeps = (size_t)remainder * 2 * kSweep, straight = std::max((nine ? 5 : 3) * n, 5 * cells);
    work.Free();
    PetscCall(work.Allocate(straight + 5 * cells + 2 * kSkewArrays * ld_cells + sweeps));
    double *const  base = work.data();
    const Straight S{base, base + n, base + 2 * n, nine ? base + 3 * n : nullptr, nine ? base + 4 * n : nullptr};
    ReadRows<<<BlocksFor(n), kBlockSize, 0, stream>>>(*A, nx, S, lift && nine, (bool)params->singular, report.data());
    FinePCCheckLaunch();
    PetscCall(Download(report.data(), &seen, stream));
    if (seen.pattern != kNone) {
      stats->failure = seen.pattern & 1 ? RRB_UNSYMMETRIC : RRB_PATTERN;
      stats->row     = (PetscInt)(seen.pattern >> 32);
      stats->column  = (PetscInt)((seen.pattern & 0xffffffffull) >> 1);
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if ((PetscInt64)nx * ny != (PetscInt64)n) PetscFunctionReturn(PETSC_SUCCESS);
    if ((seen.nine && !nine) || (!seen.nine && seen.lifted)) {
      /* few entries, but to diagonal neighbours; many, but those are 0, and A was lifted */
      nine  = seen.nine != 0;
      again = true;
      PetscCall(ClearReport(report.data(), stream));
      continue;
    }
    PetscCheck(remainder <= kRRBLargestRemainder, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "%" PetscInt_FMT " levels leave %" PetscInt_FMT " points, but at most %" PetscInt_FMT
               " are factored exactly on a GPU: raise -pc_rrb_levels",
               levels, remainder, kRRBLargestRemainder);
    if (F->nx != nx || F->ny != ny || F->levels != levels || F->inverse.size() != (size_t)remainder * remainder)
      PetscCall(MakeGrids(F, nx, ny, levels, max_levels, remainder));
    F->nine      = (PetscBool)(seen.nine != 0);
    F->singular  = (PetscBool)(params->singular && !seen.nonzero_sum);
    F->has_schur = (PetscBool)(params->keep_schur && !F->nine);
    if (F->has_schur && F->schur.size() != 2 * kSkewArrays * F->grid[0].Cells())
      PetscCall(F->schur.Allocate(2 * kSkewArrays * F->grid[0].Cells()));
    if (!F->has_schur) F->schur.Free();

    double *const even = base + straight, *const skew = even + 5 * cells, *const sweep = skew + 2 * kSkewArrays * ld_cells;
    Levels v{};
    v.S = S;
    if (!seen.nine) v.S.ne = v.S.nw = nullptr;
    v.nx     = nx;
    v.report = report.data();
    for (int k = 0; k < F->count; k++) {
      const RRBGrid &g       = F->grid[k];
      const size_t   points  = (size_t)g.cx * g.cy;
      double *const  next    = k % 2 ? base : even;
      const int      blocks  = BlocksFor((long long)g.cx * g.cy);
      const bool     lifting = k == 0 && lift && !seen.nine && seen.may_lift && !g.half; /* with half it is factored exactly */
      v.g                    = g;
      v.level                = 2 * k + 1;
      v.stride               = (PetscInt)1 << k;
      v.skew                 = k == 0 && F->has_schur ? F->schur.data() : skew;
      v.diagonal             = lifting ? skew : v.skew;
      v.next                 = Straight{next, next + points, next + 2 * points, next + 3 * points, next + 4 * points};
      if (lifting) FactorOdd<true><<<blocks, kBlockSize, 0, stream>>>(v);
      else FactorOdd<false><<<blocks, kBlockSize, 0, stream>>>(v);
      FinePCCheckLaunch();
      if (g.half) break;
      FactorEven<<<blocks, kBlockSize, 0, stream>>>(v);
      FinePCCheckLaunch();
      v.S = v.next;
    }
    PlaceRemainder(F, &v);
    v.level = levels;
    PetscCall(InvertRemainder(F, v, sweep, stream));
  }
  PetscCall(CaptureMiddle(F)); /* while the device works */
  PetscCall(Download(report.data(), &seen, stream));
  stats->one_sided   = (PetscInt64)seen.one_sided;
  stats->lifted      = (PetscInt64)seen.lifted;
  stats->zero_pivots = seen.zero_pivots;
  if (seen.pivot != kNone) {
    stats->failure = RRB_PIVOT;
    stats->level   = (PetscInt)(seen.pivot >> 32);
    stats->row     = (PetscInt)(seen.pivot & 0xffffffffull);
  }
  F->bytes       = F->memory.bytes() + F->inverse.bytes() + F->schur.bytes();
  F->apply_bytes = F->inverse.bytes() + 2 * (size_t)remainder * sizeof(double);
  for (int k = 0; k < F->count; k++) F->apply_bytes += DownBytes(F->grid[k]) + UpBytes(F->grid[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Kernels between the last grid down and the last grid up that have more than one block. */
static int InnerPhases(const RRBFactorCUDA *F)
{
  return F->remainder <= kSmallRemainder ? 1 : F->first_small < F->count ? 3 : 1;
}

int RRBMiddlePhases(const RRBFactorCUDA *F)
{
  return 2 * (F->first_small - 1) + InnerPhases(F);
}

PetscErrorCode RRBLaunchPhase(const RRBFactorCUDA *F, int phase, RRBGate gate, bool early, cudaStream_t stream, RRBPhase *about)
{
  const int      grids = F->first_small - 1, inner = InnerPhases(F), m = F->remainder;
  const RRBGrid &rest = F->grid[F->count];
  RRBPhase       this_one{};

  PetscFunctionBegin;
  if (phase < grids) {
    const RRBGrid &g = F->grid[phase + 1];

    this_one = RRBPhase{"grid down", phase + 1, DownBytes(g)};
    PetscCall(LaunchEarly(early, GridDown<false>, RRBTiles(g), kRRBTile, stream, g, F->grid[phase + 2], nullptr, gate));
  } else if (phase >= grids + inner) {
    const int      k = grids - (phase - grids - inner);
    const RRBGrid &g = F->grid[k];

    this_one = RRBPhase{"grid up", k, UpBytes(g)};
    PetscCall(LaunchEarly(early, GridUp<false>, RRBTiles(g), kRRBTile, stream, g, F->grid[k + 1], nullptr, nullptr, gate));
  } else if (m > kSmallRemainder && phase == grids + inner / 2) {
    this_one = RRBPhase{"remainder", F->count, ((size_t)m * m + 2 * m) * sizeof(double)};
    PetscCall(LaunchEarly(early, MultiplyInverse, (m + kInverseWarps - 1) / kInverseWarps, kInverseWarps * kWarpSize, stream, m,
                          F->inverse.data(), rest.down, rest.up, gate));
  } else {
    const bool all = m <= kSmallRemainder, down = all || phase == grids, up = all || !down;
    SmallGrids s{};

    s.count   = F->count - F->first_small;
    s.inverse = F->inverse.data();
    s.m       = all ? m : 0;
    this_one  = RRBPhase{all ? "small grids" : down ? "small grids down" : "small grids up", F->first_small, 0};
    for (int k = 0; k <= s.count; k++) {
      s.grid[k] = F->grid[F->first_small + k];
      if (k < s.count) this_one.bytes += (down ? DownBytes(s.grid[k]) : 0) + (up ? UpBytes(s.grid[k]) : 0);
    }
    PetscCall(LaunchEarly(early, GridsOfOneBlock, 1, kSmallBlock, stream, s, down, up, gate));
  }
  if (about) *about = this_one;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBLaunchMiddle(const RRBFactorCUDA *F, RRBGate gate, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  for (int phase = 0; phase < RRBMiddlePhases(F); phase++) PetscCall(RRBLaunchPhase(F, phase, gate, early, stream, nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The first grid's kernels: down from x, up to y. */
static PetscErrorCode LaunchFirst(const RRBFactorCUDA *F, bool down, const PetscScalar *x, PetscScalar *y, cudaStream_t stream,
                                  size_t *bytes)
{
  const RRBGrid &g = F->grid[0], &next = F->grid[1];

  PetscFunctionBegin;
  if (down) PetscCall(LaunchEarly(F->early, GridDown<true>, RRBTiles(g), kRRBTile, stream, g, next, x, RRBGate{}));
  else PetscCall(LaunchEarly(F->early, GridUp<true>, RRBTiles(g), kRRBTile, stream, g, next, x, y, RRBGate{}));
  if (bytes) *bytes = down ? DownBytes(g) : UpBytes(g);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBApply_CUDA(RRBFactor *factor, const PetscScalar *x, PetscScalar *y)
{
  RRBFactorCUDA *F = static_cast<RRBFactorCUDA *>(factor);
  cudaStream_t   stream;

  PetscFunctionBegin;
  if (!F->count) PetscFunctionReturn(PETSC_SUCCESS); /* no rows */
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  F->used++;
  PetscCall(LaunchFirst(F, true, x, y, stream, nullptr));
  PetscCallCUDA(cudaGraphLaunch(F->graph, stream));
  PetscCall(LaunchFirst(F, false, x, y, stream, nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBApplyPhase_CUDA(RRBFactor *factor, PetscBool down, const PetscScalar *x, PetscScalar *y, PetscLogDouble *bytes)
{
  RRBFactorCUDA *F     = static_cast<RRBFactorCUDA *>(factor);
  size_t         moved = 0;
  cudaStream_t   stream;

  PetscFunctionBegin;
  *bytes = 0;
  if (!F->count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  F->used++;
  PetscCall(LaunchFirst(F, down, x, y, stream, &moved));
  *bytes = (PetscLogDouble)moved;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBGetFactor_CUDA(const RRBFactor *factor, PetscScalar *l, PetscScalar *d)
{
  const RRBFactorCUDA *F = static_cast<const RRBFactorCUDA *>(factor);
  const size_t         n = (size_t)F->nx * F->ny;

  PetscFunctionBegin;
  std::fill(l, l + 4 * n, 0.);
  std::fill(d, d + n, 0.);
  for (int k = 0; k < F->count; k++) {
    const RRBGrid      &g      = F->grid[k];
    const PetscInt      stride = (PetscInt)1 << k;
    std::vector<double> array(g.Cells());
    for (int which = 0; which < kRRBArrays; which++) {
      const int what = which < kR2West ? kR1 : which < kB1SouthWest ? kR2 : kB1, to = which % 5;
      if (what == kB1 && g.half) continue;
      PetscCall(
        ArrayCopy_CUDA(array.data(), g.l + which * g.Cells(), g.Cells() * sizeof(double), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
      for (PetscInt J = 0; J < g.cy; J++)
        for (PetscInt I = 0; I < g.cx; I++) {
          const PetscInt x = 2 * I + (what & 1), y = 2 * J + (what >> 1);
          if (x >= g.nx || y >= g.ny) continue;
          const size_t row                    = (size_t)y * stride * F->nx + (size_t)x * stride;
          (to < 4 ? l[to * n + row] : d[row]) = array[(size_t)J * g.ld + I];
        }
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBDestroy_CUDA(RRBFactor **factor)
{
  RRBFactorCUDA *F = static_cast<RRBFactorCUDA *>(*factor);

  PetscFunctionBegin;
  if (!F) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DropGraph(F));
  if (F->capture) PetscCallCUDA(cudaStreamDestroy(F->capture));
  delete F;
  *factor = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}
