/*
   This file is the host twin of the files in cuda/pc/rrb, sequential and in plain storage, which the paper calls S1. Every array is
   over the grid, x first, and level k works with a stride of s = 2^floor((k - 1) / 2) in the arrays. The equations (2.x), sections
   and steps are those of de Jong, van der Ploeg, Ditzel and Vuik, whom rrb.h names.

   A level has an operator on the points that are left. The operator is symmetric, and has a diagonal, two near couplings along the
   directions u and v, and two far couplings. Each coupling is kept at the point from which its direction leads away:

     k odd:  u = (s, 0), v = (0, s),   far (s, s), (-s, s)        9 points, straight
     k even: u = (s, s), v = (-s, s),  far (2 s, 0), (0, 2 s)     9 points, skew

   For odd k the red points R^[k] are those with (x + y) / s odd; for even k they are those with x / s and y / s odd, (2.1). Near
   couplings join a red and a black point, far couplings join two points of the same colour. The far couplings of a red point r are
   lumped, steps 2 and 3 of section 2.2,

     d_r = a_rr + sum of the far couplings of r,   l_br = a_br / d_r for the near neighbours b = r - u, r + u, r - v, r + v,

   and the elimination of r takes l_br a_rc from the couplings of all neighbours b and c. The far couplings of black points,
   so changed, are the near couplings of the next level, and the far couplings of the next level are fill alone. R of (2.2) has the
   lumped couplings at their places and minus their sums on the diagonal. If A has 5 points, level 1 has no far couplings to lump,
   so that this level is exact (section 2.2.2).

   The next step is not in the paper. The first level that lumps is level 2 with 5 points and level 1 with 9 points. Before this
   level, rows that sum to less than 0 are lifted,

     s_pp <- s_pp - sum_q s_pq   where   sum_q s_pq < -kRRBLift a_pp   and   s_pp > 0,

   and M is that of the lifted operator. If no coupling is above 0,

     x^T S x = sum_p (row sum of p) x_p^2 + sum over couplings |s_pq| (x_p - x_q)^2.

   Lumping keeps the row sums and takes terms of the second sum away. What is left is not negative if no row sum is negative, but it
   may be negative where couplings outweigh rows that sum to less than 0. A diagonal entry that is not positive is another matter
   than row sums: such an entry stays, and its pivot then fails. On a grid of one line nothing is lumped, and nothing is lifted.

   The points that remain are factored exactly in a band, M_l = L_l D_l L_l^T, (2.3). Since a point is red in one level only, or
   remains, the four entries of each column of L and 1 / d_r are five arrays over the grid.
*/
#include <algorithm>
#include <cmath>
#include <vector>

#include "rrb_host.h"

void RRBLevels(LocalInt nx, LocalInt ny, LocalInt asked, LocalInt *levels, LocalInt *max_levels, LocalInt *remainder)
{
  LocalInt grids = 0; /* halvings of the grid until one point is left */

  for (LocalInt x = nx, y = ny; x > 1 || y > 1; grids++, x = (x + 1) / 2, y = (y + 1) / 2);
  *max_levels = 2 * grids + 1;
  *levels     = asked ? PetscMin(asked, *max_levels) : 1;
  for (;; (*levels)++) {
    PetscInt64 x = nx, y = ny;
    for (LocalInt k = 2; k <= *levels; k += 2) {
      x = (x + 1) / 2;
      y = (y + 1) / 2;
    }
    *remainder = (LocalInt)(*levels % 2 ? (x * y + 1) / 2 : x * y);
    if (asked || *remainder <= PetscMin(kRRBLargestRemainder / 2, PetscMax(kRRBRemainder, (PetscInt64)nx * ny / kRRBShare))) return;
  }
}

RRBLevel::RRBLevel(LocalInt k, LocalInt nx_, LocalInt ny_) : nx(nx_), ny(ny_), odd(k % 2), s((LocalInt)1 << ((k - 1) / 2))
{
  if (odd) {
    u = {s, 0};
    v = {0, s};
  } else {
    u = {s, s};
    v = {-s, s};
  }
}

/* ----------------------------------------- the matrix ----------------------------------------- */

PetscErrorCode RRBOffsets_Host(const CSRView *A, LocalInt *largest, PetscBool *next)
{
  PetscFunctionBegin;
  *largest = 0;
  *next    = PETSC_FALSE;
  for (LocalInt row = 0; row < A->n; row++)
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++)
      if (A->a[k] != 0) *largest = PetscMax(*largest, A->j[k] - row);
  for (LocalInt row = 0; row < A->n && !*next; row++)
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++)
      if (A->a[k] != 0 && A->j[k] - row == *largest - 1) *next = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscScalar Entry_RRB(const CSRView *A, LocalInt row, LocalInt column)
{
  for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++)
    if (A->j[k] == column) return A->a[k];
  return 0;
}

/*
   Reads the diagonal and the couplings of A into S, and counts anisotropic rows. If A cannot be factored, the stats tell the first
   entry, in the first row, that is wrong. `zero_sums` tells whether all rows sum to 0.
*/
static void ReadMatrix_RRB(const CSRView *A, LocalInt nx, const RRBParams &params, RRBOperator *S, PetscBool *nine, bool *zero_sums,
                           RRBStats *stats)
{
  const double sign = RRBSign(params);

  *nine      = PETSC_FALSE;
  *zero_sums = true;
  for (LocalInt row = 0; row < A->n; row++) {
    double others = 0, K_xx = 0, K_yy = 0, K_xy = 0;
    bool   zero = true;
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++) {
      const LocalInt    column = A->j[k], dx = column % nx - row % nx, dy = column / nx - row / nx;
      const PetscScalar a = A->a[k];
      if (a == 0) continue;
      zero = false;
      if (PetscAbsInt(dx) > 1 || PetscAbsInt(dy) > 1) {
        stats->failure = RRB_PATTERN;
        stats->row     = row;
        stats->column  = column;
        return;
      }
      if (column == row) {
        S->c[row] = a;
        continue;
      }
      const PetscScalar other = Entry_RRB(A, column, row);
      const double      apart = PetscAbsScalar(a - other);
      if (other == 0) {
        if (!(apart <= kSymmetryNoise * sign * Entry_RRB(A, row, row))) stats->one_sided++;
        continue;
      }
      /* Entries that are not finite are let through here, since they make a pivot fail. */
      if (apart > kSymmetry * PetscMax(PetscAbsScalar(a), PetscAbsScalar(other)) &&
          !(apart <= kSymmetryNoise * sign * Entry_RRB(A, row, row)) && std::isfinite(apart)) {
        stats->failure = RRB_UNSYMMETRIC;
        stats->row     = row;
        stats->column  = column;
        return;
      }
      if (dx && dy) *nine = PETSC_TRUE;
      others += (a + other) / 2;
      K_xx -= sign * (a + other) / 4 * dx * dx;
      K_yy -= sign * (a + other) / 4 * dy * dy;
      K_xy -= sign * (a + other) / 4 * dx * dy;
      if (column < row) continue;
      auto &where = dx && dy ? (dx > 0 ? S->far_u : S->far_v) : (dx ? S->near_u : S->near_v);
      where[row]  = (a + other) / 2;
    }
    if (zero && params.isolated > 0) {
      S->c[row] = sign * params.isolated;
      stats->isolated++;
      continue;
    }
    const double trace = K_xx + K_yy;
    if (trace > 0 && (K_xx / trace) * (K_yy / trace) - (K_xy / trace) * (K_xy / trace) <= kRRBAnisotropic) stats->anisotropic++;
    *zero_sums = *zero_sums && std::abs(S->c[row] + others) <= kRRBZeroSum * sign * S->c[row];
  }
}

/* ------------------------------------- the factorization -------------------------------------- */

/* Whether this is a pivot, which is given without its sign, and has an inverse; otherwise the stats say why not. */
static bool CheckPivot_RRB(double pivot, LocalInt level, LocalInt row, RRBStats *stats)
{
  if (pivot >= kRRBSmallestPivot && pivot <= kRRBLargestPivot) return true;
  stats->failure = pivot > 0 && std::isfinite(pivot) ? RRB_RANGE : RRB_PIVOT;
  stats->level   = level;
  stats->row     = row;
  return false;
}

/*
   Makes columns of L of the red points of level k, and makes S the operator on the black points. Returns false at a pivot that
   fails.
*/
static bool Eliminate_RRB(LocalInt k, double sign, RRBOperator *S, RRBFactorHost *F, RRBStats *stats)
{
  const RRBLevel      level(k, F->nx, F->ny);
  std::vector<double> fill_u(S->c.size(), 0.), fill_v(S->c.size(), 0.);
  bool                good = true;

  level.ForRed([&](LocalInt x, LocalInt y) {
    if (!good) return;
    const LocalInt r     = y * F->nx + x;
    const Shift    far_u = level.FarU(), far_v = level.FarV();
    double         d = S->c[r] + S->far_u[r] + S->far_v[r];
    if (level.Inside(x - far_u.x, y - far_u.y)) d += S->far_u[r - level.Index(far_u)];
    if (level.Inside(x - far_v.x, y - far_v.y)) d += S->far_v[r - level.Index(far_v)];
    good = CheckPivot_RRB(sign * d, k, r, stats);
    if (!good) return;
    const LocalInt u = level.Index(level.u), v = level.Index(level.v), b[4] = {r - u, r + u, r - v, r + v};
    bool           is[4];
    double         a[4];
    for (int n = 0; n < 4; n++) {
      const Shift &to = n < 2 ? level.u : level.v;
      is[n]           = n % 2 ? level.Inside(x + to.x, y + to.y) : level.Inside(x - to.x, y - to.y);
      a[n]            = is[n] ? (n < 2 ? S->near_u : S->near_v)[n % 2 ? r : b[n]] : 0;
      F->l[n][r]      = a[n] / d;
      if (is[n]) S->c[b[n]] -= F->l[n][r] * a[n];
    }
    F->d[r]         = 1 / d;
    const auto take = [&](std::vector<double> &from, int at, int other) {
      if (is[at] && is[other]) from[b[at]] -= F->l[at][r] * a[other];
    };
    take(fill_u, 0, 1);
    take(fill_v, 2, 3);
    if (level.odd) { /* on the next level u is u + v, and v is v - u */
      take(S->far_u, 0, 3);
      take(S->far_u, 2, 1);
      take(S->far_v, 1, 3);
      take(S->far_v, 2, 0);
    } else { /* on the next level u is u - v, and v is u + v */
      take(S->far_u, 0, 2);
      take(S->far_u, 3, 1);
      take(S->far_v, 0, 3);
      take(S->far_v, 2, 1);
    }
  });
  S->near_u.swap(S->far_u);
  S->near_v.swap(S->far_v);
  S->far_u.swap(fill_u);
  S->far_v.swap(fill_v);
  return good;
}

/*
   Before level k, makes rows that sum to less than 0 sum to 0, and returns how many there were. `diagonal` is the diagonal of A, by
   which a sum is judged.
*/
static PetscInt64 Lift_RRB(LocalInt k, LocalInt nx, LocalInt ny, double sign, const std::vector<double> &diagonal, RRBOperator *S)
{
  const RRBLevel             level(k, nx, ny);
  const Shift                to[4]    = {level.u, level.v, level.FarU(), level.FarV()};
  const std::vector<double> *value[4] = {&S->near_u, &S->near_v, &S->far_u, &S->far_v};
  std::vector<double>        sum      = S->c;
  PetscInt64                 lifted   = 0;

  level.ForAll([&](LocalInt x, LocalInt y) {
    const LocalInt p = y * nx + x;
    for (int n = 0; n < 4; n++) {
      if (!level.Inside(x + to[n].x, y + to[n].y)) continue;
      sum[p] += (*value[n])[p];
      sum[p + level.Index(to[n])] += (*value[n])[p];
    }
  });
  level.ForAll([&](LocalInt x, LocalInt y) {
    const LocalInt p = y * nx + x;
    if (!(sign * S->c[p] > 0) || !(sign * sum[p] < -kRRBLift * sign * diagonal[p])) return;
    S->c[p] -= sum[p];
    lifted++;
  });
  return lifted;
}

/*
   Factors the points that the levels leave, in the order of the rows of the grid, (2.3). Column c of the band begins with the
   diagonal entry, which becomes the pivot and then its inverse.
*/
static PetscErrorCode FactorRemainder(LocalInt half_levels, double sign, const RRBOperator &S, RRBFactorHost *F, RRBStats *stats)
{
  const RRBLevel        next(half_levels + 1, F->nx, F->ny); /* the level whose near and far couplings S has */
  std::vector<LocalInt> number(S.c.size(), -1);
  LocalInt              band = 0;

  PetscFunctionBegin;
  F->points.clear();
  next.ForAll([&](LocalInt x, LocalInt y) {
    number[y * F->nx + x] = (LocalInt)F->points.size();
    F->points.push_back(y * F->nx + x);
  });
  const LocalInt m         = (LocalInt)F->points.size();
  const auto     couplings = [&](auto act) {
    next.ForAll([&](LocalInt x, LocalInt y) {
      const LocalInt             p        = y * F->nx + x;
      const Shift                to[4]    = {next.u, next.v, next.FarU(), next.FarV()};
      const std::vector<double> *value[4] = {&S.near_u, &S.near_v, &S.far_u, &S.far_v};
      for (int n = 0; n < 4; n++)
        if (next.Inside(x + to[n].x, y + to[n].y)) act(number[p], number[p + next.Index(to[n])], (*value[n])[p]);
    });
  };
  couplings([&](LocalInt from, LocalInt to, double) { band = PetscMax(band, to - from); });
  const size_t bytes = (size_t)m * (band + 1) * sizeof(double);
  PetscCheck(bytes <= kRRBLargestBand, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "%" LocalInt_FMT " levels leave %" LocalInt_FMT
             " points and a band of %zu bytes, but at most %zu are factored exactly: raise -pc_rrb_levels",
             F->levels, m, bytes, kRRBLargestBand);
  F->band = band;
  F->B.assign((size_t)m * (band + 1), 0.);
  const auto at = [F](LocalInt column, LocalInt below) -> double & { return F->B[(size_t)column * (F->band + 1) + below]; };
  for (LocalInt c = 0; c < m; c++) at(c, 0) = S.c[F->points[c]];
  couplings([&](LocalInt from, LocalInt to, double value) { at(from, to - from) = value; });
  for (LocalInt c = 0; c < m; c++) {
    const LocalInt below = PetscMin(band, m - 1 - c);
    const double   pivot = at(c, 0);
    if (F->singular && c == m - 1 && std::isfinite(pivot)) { /* this pivot is 0 but for rounding */
      stats->zero_pivots++;
      for (LocalInt r = 0; r <= below; r++) at(c, r) = 0;
      continue;
    }
    if (!CheckPivot_RRB(sign * pivot, F->levels, F->points[c], stats)) PetscFunctionReturn(PETSC_SUCCESS);
    for (LocalInt r = 1; r <= below; r++) {
      const double l = at(c, r) / pivot;
      if (l == 0) continue;
      for (LocalInt q = r; q <= below; q++) at(c + r, q - r) -= l * at(c, q);
    }
    for (LocalInt r = 1; r <= below; r++) at(c, r) /= pivot;
    at(c, 0) = 1 / pivot;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBComputeFactor_Host(const CSRView *A, LocalInt nx, LocalInt ny, const RRBParams *params, RRBFactor **factor,
                                     RRBStats *stats)
{
  RRBFactorHost *F = static_cast<RRBFactorHost *>(*factor);
  RRBOperator    S;
  const double   sign = RRBSign(*params);
  bool           zero_sums;

  PetscFunctionBegin;
  *stats = RRBStats{};
  if (!F) *factor = F = new RRBFactorHost();
  F->nx    = nx;
  F->ny    = ny;
  F->where = PETSC_MEMTYPE_HOST;
  RRBLevels(nx, ny, (LocalInt)params->levels, &F->levels, &F->max_levels, &F->remainder);
  const LocalInt half_levels = PetscMin(F->levels, F->max_levels - 1); /* the last point is never eliminated, but remains */
  for (auto *array : {&S.c, &S.near_u, &S.near_v, &S.far_u, &S.far_v}) array->assign(A->n, 0.);
  for (auto &l : F->l) l.assign(A->n, 0.);
  F->d.assign(A->n, 0.);
  F->half_levels = half_levels;
  ReadMatrix_RRB(A, nx, *params, &S, &F->nine, &zero_sums, stats);
  if (stats->failure || (size_t)nx * ny != S.c.size()) PetscFunctionReturn(PETSC_SUCCESS);
  F->has_schur = (PetscBool)(params->keep_schur && !F->nine);
  if (F->has_schur) F->S = S; /* stays S_1 if no level is eliminated, since the only point is black then */
  else F->S = RRBOperator{};
  F->singular                        = (PetscBool)(params->singular && zero_sums);
  const std::vector<double> diagonal = S.c;
  const LocalInt            lumps    = F->nine ? 1 : 2; /* the first level that lumps */
  const bool                lift     = params->lift && !params->singular && nx > 1 && ny > 1;
  if (half_levels < lumps || nx == 1 || ny == 1) stats->anisotropic = 0;
  for (LocalInt k = 1; k <= half_levels; k++) {
    if (k == lumps && lift) stats->lifted = Lift_RRB(k, nx, ny, sign, diagonal, &S);
    if (!Eliminate_RRB(k, sign, &S, F, stats)) PetscFunctionReturn(PETSC_SUCCESS);
    if (k == 1 && F->has_schur) F->S = S;
  }
  PetscCall(FactorRemainder(half_levels, sign, S, F, stats));
  F->bytes =
    (5 * (size_t)A->n + F->B.size() + (F->has_schur ? 5 * (size_t)A->n : 0)) * sizeof(double) + F->points.size() * sizeof(LocalInt);
  /* In values per point: l is read twice, 8; the pivots once, 1; x is read and y written, 2; and y is read and written again, 2. */
  F->apply_bytes = (13 * (size_t)A->n + 2 * F->B.size()) * sizeof(double);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------- application, algorithm 2 ---------------------------------- */

void RRBForward(const RRBFactorHost *F, LocalInt first, LocalInt last, LocalInt columns, double *Z, LocalInt ld)
{
  for (LocalInt k = first; k <= last; k++) {
    const RRBLevel level(k, F->nx, F->ny);
    level.ForRed([&](LocalInt x, LocalInt y) {
      const LocalInt r = y * F->nx + x;
      level.ForNeighbours(x, y, [&](int n, LocalInt b) {
        for (LocalInt c = 0; c < columns; c++) Z[(size_t)c * ld + b] -= F->l[n][r] * Z[(size_t)c * ld + r];
      });
    });
  }
}

void RRBBackward(const RRBFactorHost *F, LocalInt first, LocalInt last, LocalInt columns, double *Z, LocalInt ld)
{
  for (LocalInt k = last; k >= first; k--) {
    const RRBLevel level(k, F->nx, F->ny);
    level.ForRed([&](LocalInt x, LocalInt y) {
      const LocalInt r = y * F->nx + x;
      for (LocalInt c = 0; c < columns; c++) Z[(size_t)c * ld + r] *= F->d[r];
      level.ForNeighbours(x, y, [&](int n, LocalInt b) {
        for (LocalInt c = 0; c < columns; c++) Z[(size_t)c * ld + r] -= F->l[n][r] * Z[(size_t)c * ld + b];
      });
    });
  }
}

void RRBSolveRemainder(const RRBFactorHost *F, LocalInt columns, double *Z, LocalInt ld)
{
  const LocalInt m = (LocalInt)F->points.size(), band = F->band;
  const auto     z = [&](LocalInt c, LocalInt point) -> double     &{ return Z[(size_t)c * ld + F->points[point]]; };
  for (LocalInt p = 0; p < m; p++)
    for (LocalInt r = 1; r <= PetscMin(band, m - 1 - p); r++)
      for (LocalInt c = 0; c < columns; c++) z(c, p + r) -= F->B[(size_t)p * (band + 1) + r] * z(c, p);
  for (LocalInt p = m - 1; p >= 0; p--)
    for (LocalInt c = 0; c < columns; c++) {
      double sum = F->B[(size_t)p * (band + 1)] * z(c, p);
      for (LocalInt r = 1; r <= PetscMin(band, m - 1 - p); r++) sum -= F->B[(size_t)p * (band + 1) + r] * z(c, p + r);
      z(c, p) = sum;
    }
}

PetscErrorCode RRBApply_Host(RRBFactor *factor, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y, LocalInt ldy)
{
  const RRBFactorHost *F = static_cast<const RRBFactorHost *>(factor);

  PetscFunctionBegin;
  for (LocalInt c = 0; c < columns; c++) std::copy(X + (size_t)c * ldx, X + (size_t)c * ldx + F->d.size(), Y + (size_t)c * ldy);
  RRBForward(F, 1, F->half_levels, columns, Y, ldy);
  RRBSolveRemainder(F, columns, Y, ldy);
  RRBBackward(F, 1, F->half_levels, columns, Y, ldy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBGetFactor_Host(const RRBFactor *factor, PetscScalar *l, PetscScalar *d)
{
  const RRBFactorHost *F = static_cast<const RRBFactorHost *>(factor);
  const size_t         n = F->d.size();

  PetscFunctionBegin;
  for (int k = 0; k < 4; k++) std::copy(F->l[k].begin(), F->l[k].end(), l + k * n);
  std::copy(F->d.begin(), F->d.end(), d);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBDestroy_Host(RRBFactor **factor)
{
  PetscFunctionBegin;
  delete static_cast<RRBFactorHost *>(*factor);
  *factor = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}
