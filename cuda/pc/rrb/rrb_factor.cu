/*
   The factorization of RRB on a GPU: the matrix is read and eliminated level by level. Points are in the storage that rrb.cuh
   describes; what is computed is what the host twin computes (src/pc/rrb/rrb_host.cxx).
*/
#include <algorithm>

#include "rrb_factor.cuh"
#include "sparse/transfer.cuh"

namespace
{

/* ----------------------------------------- the matrix ----------------------------------------- */

/* report->largest: the largest distance j - i of an entry that is not zero. */
__global__ void __launch_bounds__(kBlockSize) LargestOffset(CSRView A, RRBReport *report)
{
  LocalInt largest = 0;
  for (long long row = GridThread(); row < A.n; row += (long long)gridDim.x * blockDim.x)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.a[k] != 0) largest = max(largest, A.j[k] - (LocalInt)row);
  largest = GroupMax<kWarpSize>(largest);
  if (threadIdx.x % kWarpSize == 0 && largest > 0) atomicMax(&report->largest, largest);
}

/* report->next: whether some entry has the distance report->largest - 1. */
__global__ void __launch_bounds__(kBlockSize) NextOffset(CSRView A, RRBReport *report)
{
  const LocalInt largest = report->largest;
  bool           found   = false;
  for (long long row = GridThread(); row < A.n && !found; row += (long long)gridDim.x * blockDim.x)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) found = found || (A.a[k] != 0 && A.j[k] - (LocalInt)row == largest - 1);
  if (found) report->next = 1; /* all threads write the same */
}

__device__ double Entry(const CSRView &A, LocalInt row, LocalInt column)
{
  for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
    if (A.j[k] == column) return A.a[k];
  return 0;
}

/*
   Reads a row of A: its diagonal entry and its couplings to points that come after it, as ReadMatrix() of the host twin does. With
   `lift` the diagonal entry is made what Lift() of the host twin makes it before level 1. The answer is whether the row is
   anisotropic.

   The report also says whether Lift() may have anything to do before level 2. Row b of S_1 sums to the sum of row b of A, and for
   each red neighbour r to |a_br| / a_rr times the sum of row r of A. Where no coupling is above 0, and no row of A sums to less
   than -kRRBLift / 4 of its diagonal entry, the |a_br| of row b sum to a_bb at most, but for such a share, and therefore no row of
   S_1 sums to less than -kRRBLift a_bb.
*/
__device__ __forceinline__ bool ReadRow(const CSRView &A, LocalInt row, LocalInt nx, const RRBStraight &S, const RRBParams &params,
                                        bool lift, RRBReport *report)
{
  const LocalInt x = row % nx, y = row / nx;
  const double   sign = params.negative ? -1 : 1;
  double         c = 0, e = 0, n = 0, ne = 0, nw = 0, others = 0, K_xx = 0, K_yy = 0, K_xy = 0;
  bool           may_lift = false, zero = true;
  for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
    const LocalInt column = A.j[k], dx = column % nx - x, dy = column / nx - y;
    const double   a = A.a[k];
    if (a == 0) continue;
    zero                         = false;
    const unsigned long long key = ((unsigned long long)row << 32 | (unsigned long long)column << 1);
    if (dx < -1 || dx > 1 || dy < -1 || dy > 1) {
      atomicMin(&report->pattern, key);
      return false;
    }
    if (column == row) {
      c = a;
      continue;
    }
    const double other = Entry(A, column, row), apart = fabs(a - other);
    if (other == 0) {
      if (!(apart <= kSymmetryNoise * sign * Entry(A, row, row))) atomicAdd(&report->one_sided, 1ull);
      continue;
    }
    if (apart > kSymmetry * fmax(fabs(a), fabs(other)) && !(apart <= kSymmetryNoise * sign * Entry(A, row, row)) &&
        isfinite(apart)) {
      /* where it is not finite, a pivot will fail */
      atomicMin(&report->pattern, key | 1);
      return false;
    }
    if (dx && dy) report->nine = 1;
    const double mean = (a + other) / 2;
    others += mean;
    K_xx -= sign * mean / 2 * dx * dx;
    K_yy -= sign * mean / 2 * dy * dy;
    K_xy -= sign * mean / 2 * dx * dy;
    may_lift = may_lift || sign * mean > 0;
    if (column < row) continue;
    if (!dy) e = mean;
    else if (!dx) n = mean;
    else if (dx > 0) ne = mean;
    else nw = mean;
  }
  if (zero && params.isolated > 0) {
    c = sign * params.isolated;
    atomicAdd(&report->isolated, 1);
  }
  const double sum = c + others;
  if (params.singular && !(zero && params.isolated > 0) && !(fabs(sum) <= kRRBZeroSum * sign * c) && !report->nonzero_sum)
    report->nonzero_sum = 1;
  if ((may_lift || sign * sum < -kRRBLift / 4 * sign * c) && !report->may_lift)
    report->may_lift = 1; /* all threads write the same, and few threads write */
  if (lift && sign * c > 0 && sign * sum < -kRRBLift * sign * c) {
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
  const double trace = K_xx + K_yy;
  return trace > 0 && (K_xx / trace) * (K_yy / trace) - (K_xy / trace) * (K_xy / trace) <= kRRBAnisotropic;
}

/* Each thread reads a row. */
__global__ void __launch_bounds__(kBlockSize)
  ReadRows(CSRView A, LocalInt nx, RRBStraight S, RRBParams params, bool lift, RRBReport *report)
{
  const long long row   = GridThread();
  const int       count = __syncthreads_count(row < A.n && ReadRow(A, (LocalInt)row, nx, S, params, lift, report));
  if (threadIdx.x == 0 && count) atomicAdd(&report->anisotropic, (unsigned long long)count);
}

/* ----------------------------------------- the levels ----------------------------------------- */

/* The pivot of a red point of the odd level: its diagonal entry and all its couplings to diagonal neighbours, which are lumped. */
__device__ double OddPivot(const RRBElimination &v, LocalInt x, LocalInt y)
{
  const LocalInt nx = v.g.nx;
  const size_t   p  = (size_t)y * nx + x;
  double         d  = v.S.c[p];
  if (v.S.ne) {
    d += v.S.ne[p] + v.S.nw[p];
    if (y > 0 && x > 0) d += v.S.ne[p - nx - 1];
    if (y > 0 && x + 1 < nx) d += v.S.nw[p - nx + 1];
  }
  return d;
}

/* Reports the pivot of a point (x, y) of the grid if it fails. */
__device__ void CheckPivot(const RRBElimination &v, LocalInt level, LocalInt x, LocalInt y, double d)
{
  RRBCheckPivot(v.report, RRBStage(level, false), y * v.stride * v.nx + x * v.stride, v.sign * d);
}

/* The column of L and the inverse pivot of point r1 or r2 of a cell; zeros where the cell has no such point. */
__device__ void OddColumn(const RRBElimination &v, int point, LocalInt I, LocalInt J)
{
  const RRBGrid &g  = v.g;
  const LocalInt nx = g.nx, x = 2 * I + (point & 1), y = 2 * J + (point >> 1);
  double *const  to   = g.l + (point == kR1 ? kR1West : kR2West) * g.Cells() + g.Cell(I, J);
  double         l[5] = {0, 0, 0, 0, 0};
  if (g.Has(point, I, J)) {
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

/*
   The sum of the row of S_1 that belongs to point b = (x, y), with 5 points: the elimination of a red neighbour r takes a_br / a_rr
   times all couplings of r, the one to b included, from that row.
*/
__device__ double RowSum(const RRBElimination &v, LocalInt x, LocalInt y)
{
  const LocalInt nx    = v.g.nx;
  const auto     taken = [&](double a, LocalInt r_x, LocalInt r_y) {
    const size_t r   = (size_t)r_y * nx + r_x;
    double       sum = v.S.e[r] + v.S.n[r];
    if (r_x > 0) sum += v.S.e[r - 1];
    if (r_y > 0) sum += v.S.n[r - nx];
    return a / v.S.c[r] * sum;
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
   The skew operator at a black point. With Lift, where it is S_1, also its diagonal entry as Lift() of the host twin makes it; the
   answer is whether the row was lifted.
*/
template <bool Lift>
__device__ bool OddSchur(const RRBElimination &v, int point, LocalInt I, LocalInt J)
{
  const RRBGrid &g  = v.g;
  const LocalInt nx = g.nx, ny = g.ny, x = 2 * I + (point & 1), y = 2 * J + (point >> 1);
  double *const  to             = v.skew + (point == kB1 ? kSkewOfB1 : 0) * g.Cells() + g.Cell(I, J);
  double         S[kSkewArrays] = {0, 0, 0, 0, 0};
  if (g.Has(point, I, J)) {
    const size_t p = (size_t)y * nx + x;
    S[kSkewC]      = v.S.c[p];
    if (v.S.ne) {
      S[kSkewP] = v.S.ne[p];
      S[kSkewQ] = v.S.nw[p];
    }
    if (y > 0) {
      const double a = v.S.n[p - nx], l = a / OddPivot(v, x, y - 1);
      S[kSkewC] -= l * a;
    }
    if (x > 0) {
      const double a = v.S.e[p - 1], l = a / OddPivot(v, x - 1, y);
      S[kSkewC] -= l * a;
      S[kSkewQ] -= l * v.S.n[p - 1];
    }
    if (x + 1 < nx) {
      const double a = v.S.e[p], l = a / OddPivot(v, x + 1, y);
      S[kSkewC] -= l * a;
      S[kSkewP] -= l * v.S.n[p + 1];
      S[kSkewH] -= l * v.S.e[p + 1];
    }
    if (y + 1 < ny) {
      const double a = v.S.n[p], l = a / OddPivot(v, x, y + 1);
      S[kSkewC] -= l * a;
      S[kSkewP] -= l * v.S.e[p + nx];
      if (x > 0) S[kSkewQ] -= l * v.S.e[p + nx - 1];
      S[kSkewV] -= l * v.S.n[p + nx];
    }
  }
  for (int k = 0; k < kSkewArrays; k++) to[k * g.Cells()] = S[k];
  bool lifted = false;
  if constexpr (Lift) {
    double diagonal = S[kSkewC];
    if (g.Has(point, I, J)) {
      const double sum = RowSum(v, x, y);
      lifted           = v.sign * diagonal > 0 && v.sign * sum < -kRRBLift * v.sign * v.S.c[(size_t)y * nx + x];
      if (lifted) diagonal -= sum;
    }
    v.diagonal[(point == kB1 ? kSkewOfB1 : 0) * g.Cells() + g.Cell(I, J)] =
      diagonal; /* where both are in the same array, this replaces S[kSkewC] */
  }
  return lifted;
}

/* The odd level of a cell. The answer is how many of its rows were lifted. */
template <bool Lift>
__device__ __forceinline__ int OddLevel(const RRBElimination &v, LocalInt I, LocalInt J)
{
  OddColumn(v, kR1, I, J);
  OddColumn(v, kR2, I, J);
  const bool b2 = OddSchur<Lift>(v, kB2, I, J), b1 = OddSchur<Lift>(v, kB1, I, J);
  return b2 + b1;
}

/* The pivot of point b1 of a cell: its diagonal entry and all its far couplings, which are lumped. */
__device__ double EvenPivot(const RRBElimination &v, LocalInt I, LocalInt J)
{
  return v.Skew(kB1, kSkewC, I, J) + v.Skew(kB1, kSkewH, I, J) + v.Skew(kB1, kSkewV, I, J) + v.Skew(kB1, kSkewH, I - 1, J) +
         v.Skew(kB1, kSkewV, I, J - 1);
}

/* The even level of a cell: the column of L and the inverse pivot of its b1, and the next operator at its b2. */
__device__ __forceinline__ void EvenLevel(const RRBElimination &v, LocalInt I, LocalInt J)
{
  const RRBGrid &g    = v.g;
  double *const  to   = g.l + kB1SouthWest * g.Cells() + g.Cell(I, J);
  double         l[5] = {0, 0, 0, 0, 0};
  /* couplings of b1 */
  const double sw = v.Skew(kB2, kSkewP, I, J), se = v.Skew(kB2, kSkewQ, I + 1, J), nw = v.Skew(kB1, kSkewQ, I, J),
               ne = v.Skew(kB1, kSkewP, I, J);
  double c = v.Skew(kB2, kSkewC, I, J), e = v.Skew(kB2, kSkewH, I, J), n = v.Skew(kB2, kSkewV, I, J), next_ne = 0, next_nw = 0;
  if (g.Has(kB1, I, J)) {
    const double d = EvenPivot(v, I, J);
    CheckPivot(v, v.level + 1, 2 * I + 1, 2 * J + 1, d);
    l[0] = sw / d;
    l[1] = ne / d;
    l[2] = se / d;
    l[3] = nw / d;
    l[4] = 1 / d;
    c -= l[0] * sw;
    e -= l[0] * se;
    n -= l[0] * nw;
    next_ne -= l[0] * ne;
  }
  for (int k = 0; k < 5; k++) to[k * g.Cells()] = l[k];
  if (g.Has(kB1, I - 1, J)) { /* this b2 is the south-east neighbour of that b1, */
    const double a = v.Skew(kB2, kSkewQ, I, J), of_b1 = a / EvenPivot(v, I - 1, J);
    c -= of_b1 * a;
    n -= of_b1 * v.Skew(kB1, kSkewP, I - 1, J);
    next_nw -= of_b1 * v.Skew(kB1, kSkewQ, I - 1, J);
  }
  if (g.Has(kB1, I, J - 1)) { /* the north-west neighbour of that one, */
    const double a = v.Skew(kB1, kSkewQ, I, J - 1), of_b1 = a / EvenPivot(v, I, J - 1);
    c -= of_b1 * a;
    e -= of_b1 * v.Skew(kB1, kSkewP, I, J - 1);
  }
  if (g.Has(kB1, I - 1, J - 1)) { /* and the north-east neighbour of that one */
    const double a = v.Skew(kB1, kSkewP, I - 1, J - 1), of_b1 = a / EvenPivot(v, I - 1, J - 1);
    c -= of_b1 * a;
  }
  const size_t p = (size_t)J * g.cx + I;
  v.next.c[p]    = c;
  v.next.e[p]    = e;
  v.next.n[p]    = n;
  v.next.ne[p]   = next_ne;
  v.next.nw[p]   = next_nw;
}

template <bool Lift>
__global__ void __launch_bounds__(kBlockSize) FactorOdd(RRBElimination v)
{
  const long long cell   = GridThread();
  int             lifted = 0;
  if (cell < (long long)v.g.cx * v.g.cy) lifted = OddLevel<Lift>(v, (LocalInt)(cell % v.g.cx), (LocalInt)(cell / v.g.cx));
  if constexpr (Lift) {
    lifted = GroupSum<kWarpSize>(lifted);
    if (threadIdx.x % kWarpSize == 0 && lifted) atomicAdd(&v.report->lifted, (unsigned long long)lifted);
  }
}

__global__ void __launch_bounds__(kBlockSize) FactorEven(RRBElimination v)
{
  const long long cell = GridThread();
  if (cell < (long long)v.g.cx * v.g.cy) EvenLevel(v, (LocalInt)(cell % v.g.cx), (LocalInt)(cell / v.g.cx));
}

/* -------------------------------------- the host's side --------------------------------------- */

PetscErrorCode Download_RRB(const RRBReport *from, RRBReport *to, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(SmallRead(from, sizeof(*to), to, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ClearReport(RRBReport *report, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(report, 0, sizeof(*report), stream));
  PetscCallCUDA(cudaMemsetAsync(&report->pattern, 0xff, sizeof(report->pattern), stream)); /* kRRBNoFailure */
  PetscCallCUDA(cudaMemsetAsync(&report->pivot, 0xff, sizeof(report->pivot), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A set-up of the factor of A on nx x ny points. */
struct SetUp {
  const CSRView    &A;
  const RRBParams  &params;
  LocalInt          nx, ny;
  LocalInt          levels, max_levels, remainder;
  bool              lift; /* rows that sum to less than 0 are lifted before the first level that lumps */
  cudaStream_t      stream = nullptr;
  Buffer<RRBReport> report;
  RRBReport         seen{}; /* the host's copy of the report */
  Buffer<double>    work;
  double           *of_grid[2]; /* the operators of the grids in turns, that of the first grid in the first */
  double           *skew;       /* [2 kSkewArrays] arrays over the cells of the first grid */
  double           *inverse;    /* [RRBInverseWork(remainder)] */
  RRBStraight       S;          /* A as the operator of the first grid */

  SetUp(const CSRView &matrix, const RRBParams &parameters, LocalInt x, LocalInt y) : A(matrix), params(parameters), nx(x), ny(y)
  {
    RRBLevels(nx, ny, params.levels, &levels, &max_levels, &remainder);
    lift = params.lift && !params.singular && nx > 1 && ny > 1;
  }
  bool IsWholeGrid() const { return (PetscInt64)nx * ny == (PetscInt64)A.n; }
};

/* Work space for a matrix that couples diagonal neighbours, if `nine`, or else neighbours in x and y alone. */
PetscErrorCode AllocateWork(SetUp &s, bool nine)
{
  const LocalInt cx = (s.nx + 1) / 2, cy = (s.ny + 1) / 2;
  const size_t   n = s.A.n, even = 5 * (size_t)cx * cy, odd = std::max((nine ? 5 : 3) * n, even),
               skew = 2 * kSkewArrays * (size_t)RRBLineLength(cx) * cy;

  PetscFunctionBegin;
  PetscCall(s.work.Allocate(odd + even + skew + RRBInverseWork(s.remainder)));
  s.of_grid[0] = s.work.data();
  s.of_grid[1] = s.of_grid[0] + odd;
  s.skew       = s.of_grid[1] + even;
  s.inverse    = s.skew + skew;

  double *const c = s.of_grid[0];
  s.S             = RRBStraight{c, c + n, c + 2 * n, nine ? c + 3 * n : nullptr, nine ? c + 4 * n : nullptr};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A becomes the first operator, s.S, and s.seen says what is wrong with it. Whether A couples diagonal neighbours is guessed from
   the number of its entries. A is read again where the guess was wrong and that matters: few entries, but some of them couple
   diagonal neighbours; or many entries, but those of diagonal neighbours are 0, and rows of A were lifted in the place of rows of
   S_1.
*/
PetscErrorCode ReadMatrix(SetUp &s)
{
  bool nine = s.A.nnz > 5 * (long long)s.A.n, right = false;

  PetscFunctionBegin;
  while (!right) {
    PetscCall(ClearReport(s.report.data(), s.stream));
    PetscCall(AllocateWork(s, nine));
    ReadRows<<<BlocksFor(s.A.n), kBlockSize, 0, s.stream>>>(s.A, s.nx, s.S, s.params, s.lift && nine, s.report.data());
    FinePCCheckLaunch();
    PetscCall(Download_RRB(s.report.data(), &s.seen, s.stream));
    if (s.seen.pattern != kRRBNoFailure || !s.IsWholeGrid()) PetscFunctionReturn(PETSC_SUCCESS);
    right = s.seen.nine ? nine : !s.seen.lifted;
    nine  = s.seen.nine != 0;
  }
  if (!nine) s.S.ne = s.S.nw = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The memory and the flags of the factor. The memory of a factor of the same size is used again. */
PetscErrorCode PrepareFactor(const SetUp &s, RRBFactorCUDA *F)
{
  PetscFunctionBegin;
  PetscCheck(s.remainder <= kRRBLargestRemainder, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "%" LocalInt_FMT " levels leave %" LocalInt_FMT " points, but at most %" LocalInt_FMT
             " are factored exactly on a GPU: raise -pc_rrb_levels",
             s.levels, s.remainder, kRRBLargestRemainder);
  if (F->nx != s.nx || F->ny != s.ny || F->levels != s.levels || F->inverse.size() != (size_t)s.remainder * s.remainder)
    PetscCall(RRBMakeGrids(F, s.nx, s.ny, s.levels, s.max_levels, s.remainder));
  F->nine      = (PetscBool)(s.seen.nine != 0);
  F->singular  = (PetscBool)(s.params.singular && !s.seen.nonzero_sum);
  F->has_schur = (PetscBool)(s.params.keep_schur && !F->nine);
  if (F->has_schur && F->schur.size() != 2 * kSkewArrays * F->grid[0].Cells())
    PetscCall(F->schur.Allocate(2 * kSkewArrays * F->grid[0].Cells()));
  if (!F->has_schur) F->schur.Free();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Launches the elimination of all levels, after which the operator that remains is in *v. */
PetscErrorCode EliminateLevels(const SetUp &s, const RRBFactorCUDA *F, RRBElimination *v)
{
  PetscFunctionBegin;
  *v        = RRBElimination{};
  v->S      = s.S;
  v->nx     = s.nx;
  v->sign   = RRBSign(s.params);
  v->report = s.report.data();
  for (int k = 0; k < F->count; k++) {
    const RRBGrid &g      = F->grid[k];
    const size_t   points = (size_t)g.cx * g.cy;
    const int      blocks = BlocksFor((long long)points);
    double *const  next   = s.of_grid[(k + 1) % 2];
    /* S_1 is lifted for the second level, which lumps; where S_1 remains it is factored exactly, as it is */
    const bool lifting = k == 0 && s.lift && !s.seen.nine && s.seen.may_lift && !g.half;
    v->g               = g;
    v->level           = 2 * k + 1;
    v->stride          = (LocalInt)1 << k;
    v->skew            = k == 0 && F->has_schur ? F->schur.data() : s.skew;
    v->diagonal        = lifting ? s.skew : v->skew;
    v->next            = RRBStraight{next, next + points, next + 2 * points, next + 3 * points, next + 4 * points};
    if (lifting) FactorOdd<true><<<blocks, kBlockSize, 0, s.stream>>>(*v);
    else FactorOdd<false><<<blocks, kBlockSize, 0, s.stream>>>(*v);
    FinePCCheckLaunch();
    if (g.half) break;
    FactorEven<<<blocks, kBlockSize, 0, s.stream>>>(*v);
    FinePCCheckLaunch();
    v->S = v->next;
  }
  const int last = F->grid[F->count - 1].half ? F->count - 1 : F->count; /* the grid whose points remain */
  v->g           = F->grid[last];
  v->stride      = (LocalInt)1 << last;
  v->level       = s.levels;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What was counted on the way, and the first pivot that fails, if there is one. */
void FillStats(const RRBFactorCUDA *F, const RRBReport &seen, RRBStats *stats)
{
  const bool lumps = F->nx > 1 && F->ny > 1 && F->half_levels >= (F->nine ? 1 : 2);

  stats->one_sided   = (PetscInt64)seen.one_sided;
  stats->lifted      = (PetscInt64)seen.lifted;
  stats->anisotropic = lumps ? (PetscInt64)seen.anisotropic : 0;
  stats->zero_pivots = seen.zero_pivots;
  stats->isolated    = seen.isolated;
  if (seen.pivot == kRRBNoFailure) return;
  stats->failure = seen.pivot & 1 ? RRB_RANGE : RRB_PIVOT;
  stats->level   = (LocalInt)(seen.pivot >> 34);
  stats->row     = (LocalInt)(seen.pivot >> 1 & 0xffffffffull);
}

} // namespace

PetscErrorCode RRBOffsets_CUDA(const CSRView *A, LocalInt *largest, PetscBool *next)
{
  Buffer<RRBReport> report;
  RRBReport         seen;
  cudaStream_t      stream;
  int               processors;

  PetscFunctionBegin;
  *largest = 0;
  *next    = PETSC_FALSE;
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(ProcessorCount(&processors));
  PetscCall(report.Allocate(1));
  PetscCall(ClearReport(report.data(), stream));
  const int blocks = std::min(BlocksFor(A->n), 8 * processors);
  LargestOffset<<<blocks, kBlockSize, 0, stream>>>(*A, report.data());
  FinePCCheckLaunch();
  NextOffset<<<blocks, kBlockSize, 0, stream>>>(*A, report.data());
  FinePCCheckLaunch();
  PetscCall(Download_RRB(report.data(), &seen, stream));
  *largest = seen.largest;
  *next    = (PetscBool)(seen.next != 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBComputeFactor_CUDA(const CSRView *A, LocalInt nx, LocalInt ny, const RRBParams *params, RRBFactor **factor,
                                     RRBStats *stats)
{
  RRBFactorCUDA *F = static_cast<RRBFactorCUDA *>(*factor);
  SetUp          s(*A, *params, nx, ny);
  RRBElimination rest;

  PetscFunctionBegin;
  *stats = RRBStats{};
  if (!F) {
    *factor = F = new RRBFactorCUDA();
    if (A->n) PetscCall(RRBSupportsEarlyLaunch(&F->early));
  }
  F->where = PETSC_MEMTYPE_CUDA;
  if (!A->n) {
    F->nx         = nx;
    F->ny         = ny;
    F->levels     = s.levels;
    F->max_levels = s.max_levels;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(DeviceGetStream(&s.stream));
  PetscCall(s.report.Allocate(1));
  PetscCall(ReadMatrix(s));
  if (s.seen.pattern != kRRBNoFailure) {
    stats->failure = s.seen.pattern & 1 ? RRB_UNSYMMETRIC : RRB_PATTERN;
    stats->row     = (LocalInt)(s.seen.pattern >> 32);
    stats->column  = (LocalInt)((s.seen.pattern & 0xffffffffull) >> 1);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!s.IsWholeGrid()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PrepareFactor(s, F));
  PetscCall(EliminateLevels(s, F, &rest));
  PetscCall(RRBInvertRemainder(F, rest, s.inverse, s.stream));
  PetscCall(RRBCaptureMiddle(F)); /* while the device works */
  PetscCall(Download_RRB(s.report.data(), &s.seen, s.stream));
  FillStats(F, s.seen, stats);
  F->bytes       = F->memory.bytes() + F->inverse.bytes() + F->schur.bytes() + F->columns.bytes();
  F->apply_bytes = RRBApplyBytes(F);
  PetscFunctionReturn(PETSC_SUCCESS);
}
