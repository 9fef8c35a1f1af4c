/*
   This file is the host twin of the cycle of cuda/pc/cmatch: smoothers, the coarsest level, and an application. Twins agree here up
   to rounding. Values are of the precision T, and dot products are summed in double.

   A residual r is scaled for the finest level, and so is the solution of A_0 x = b, where A_0 = t W A W:

     b = 2^q W r,   z = 2^-q t W x,   where 2^-q is the power of 2 above max_i |w_i r_i|,

   so that small residuals are not lost in single precision. On several ranks the 2-norm of r takes the place of the maximum where
   all ranks know it. A V-cycle on level l is

     x = S(b),   x = x + P cycle(R (b - A x)),   x = x + S(b - A x),

   where S(r) is the polynomial smoother of polynomial.h with M^{-1} = diag(l), or the M^{-1} of cmatch_fsai_host.cxx, which is
   symmetric. The eigenvalues of diag(l) A are in (0, 1], but for rows that are solved exactly, and those of the other M^{-1} A are
   below 1 + a of its polynomial. Hence the cycle is symmetric and positive definite for every such smoother.

   Levels on several ranks do the same. Products need the entries of ghosts, which are exchanged before. R r is the contribution of
   the own residuals to rows of the next level, which may belong to other ranks; each of those adds up its own one and what others
   send, in the order of ranks. The corrections go the opposite way. The largest r_i is that of all ranks.

   The last level has one of four solvers:

     inverse      D^{-1} b for the symmetric part D of the level with its row sums, D_ii = s_i - sum_{j != i} (a_ij + a_ji) / 2. If
                  D maps the ones to 0, then (D + t/n 1 1^T)^{-1} - 1/(n t) 1 1^T with t = mean(D_ii), which solves in the
                  complement of the ones. Where a pivot is not positive, or a small share of the diagonal entry, singular components
                  are looked for, each of which is solved for in the complement of the ones on it. If that does not help, D is
                  indefinite by rounding, and its diagonal entries are raised by some units of single precision.
     pcg          kCMATCHCoarseIterations iterations of the conjugate gradient method with diag(l); on singular components, or with
                  the ones in the null space on all of them, the means of b and x are taken off.
     smoother     twice S, if every row is left to the smoother
     polynomial   the Chebyshev polynomial of degree kCMATCHStalledDegree, if there are too many rows for an inverse
*/
#include <algorithm>
#include <cmath>

#include <petscsys.h>
#include <petscblaslapack.h>

#include "cmatch_host.h"
#include "cmatch_nodes.h"

namespace
{

/* r = b - A x, in difference form */
template <typename T>
void Residual(const CMATCHArrays<T> &L, const std::vector<T> &b, const std::vector<T> &x, std::vector<T> *r)
{
  for (size_t i = 0; i < L.d.size(); i++) {
    T sum = L.s[i] * x[i];
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) sum += L.A_a[k] * (x[L.A_j[k]] - x[i]);
    (*r)[i] = b[i] - sum;
  }
}

double Dot(const std::vector<double> &x, const std::vector<double> &y)
{
  double sum = 0;
  for (size_t i = 0; i < x.size(); i++) sum += x[i] * y[i];
  return sum;
}

/* y = y + a x */
void Add(double a, const std::vector<double> &x, std::vector<double> *y)
{
  for (size_t i = 0; i < x.size(); i++) (*y)[i] += a * x[i];
}

/* x = a x + y */
void Scale(double a, const std::vector<double> &y, std::vector<double> *x)
{
  for (size_t i = 0; i < x->size(); i++) (*x)[i] = a * (*x)[i] + y[i];
}

/* ---------------------------------------- several ranks --------------------------------------- */

/* The entries of ghosts, behind those of the rank, if the level has any. */
template <typename T>
PetscErrorCode Halo(const CMATCHHierarchyHost<T> &H, LocalInt l, std::vector<T> *x)
{
  PetscFunctionBegin;
  if (l >= H.several) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHHaloBegin(H.level[l], CMATCHType(H.params.precision), x->data()));
  PetscCall(CMATCHHaloEnd(H.level[l], CMATCHType(H.params.precision), x->data()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* C.b = R r */
template <typename T>
PetscErrorCode Restrict(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T>   &L = H->arrays[l], &C = H->arrays[l + 1];
  const CMATCHLevel &level   = H->level[l];
  const bool         several = l < H->several;
  std::vector<T>    &to      = several ? L.values : C.b;

  PetscFunctionBegin;
  for (LocalInt c = 0; c < level.coarse + level.foreign; c++) {
    T sum = 0;
    for (LocalInt k = L.R_i[c]; k < L.R_i[c + 1]; k++) sum += L.R_a[k] * L.r[L.R_j[k]];
    to[c] = sum;
  }
  if (!several) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ExchangeBackBegin(level.down, CMATCHType(H->params.precision), L.values.data() + level.mine, L.added.data()));
  PetscCall(ExchangeBackEnd(level.down, CMATCHType(H->params.precision), L.values.data() + level.mine, L.added.data()));
  for (size_t c = 0; c + 1 < L.add_i.size(); c++) {
    T sum = c < (size_t)level.mine ? L.values[c] : 0;
    for (LocalInt k = L.add_i[c]; k < L.add_i[c + 1]; k++) sum += L.added[k];
    C.b[c] = sum;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x = x + P C.x */
template <typename T>
PetscErrorCode Interpolate(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T>      &L       = H->arrays[l];
  const CMATCHLevel    &level   = H->level[l];
  const bool            several = l < H->several;
  const std::vector<T> &coarse = H->arrays[l + 1].x, &from = several ? L.values : coarse;

  PetscFunctionBegin;
  if (several) {
    PetscCall(ExchangeBegin(level.up, CMATCHType(H->params.precision), coarse.data(), L.values.data() + level.mine));
    PetscCall(ExchangeEnd(level.up, CMATCHType(H->params.precision), coarse.data(), L.values.data() + level.mine));
    std::copy(coarse.begin(), coarse.begin() + level.mine, L.values.begin());
  }
  for (LocalInt i = 0; i < level.n; i++)
    for (size_t e = (size_t)i * level.width; e < (size_t)(i + 1) * level.width && L.P_j[e] >= 0; e++)
      L.x[i] += L.P_a[e] * from[L.P_j[e]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ smoothers ----------------------------------------- */

/* x = x + S(b - A x), or from the start x = 0; with the factor of the level, if it has one. */
template <typename T>
PetscErrorCode Smooth(const PolynomialSteps &steps, bool zero, LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T> *const L      = &H->arrays[l];
  const CMATCHFactor    &factor = H->level[l].factor;

  PetscFunctionBegin;
  if (zero) {
    L->r = L->b;
    std::fill(L->x.begin(), L->x.end(), (T)0);
  } else {
    PetscCall(Halo(*H, l, &L->x));
    Residual(*L, L->b, L->x, &L->r);
  }
  std::fill(L->z.begin(), L->z.end(), (T)0);
  for (LocalInt step = 0; step < steps.degree; step++) {
    const T c = (T)steps.c[step], e = (T)steps.e[step], beta = (T)steps.beta[step];
    if (step > 0) { /* r = r - A z, whose rows need all of z */
      PetscCall(Halo(*H, l, &L->z));
      for (size_t i = 0; i < L->d.size(); i++) {
        T sum = L->s[i] * L->z[i];
        for (LocalInt k = L->A_i[i]; k < L->A_i[i + 1]; k++) sum += L->A_a[k] * (L->z[L->A_j[k]] - L->z[i]);
        L->r[i] -= sum;
      }
    }
    if (factor.d) CMATCHApplyFactor_Host(factor, L->r, &L->t);
    for (size_t i = 0; i < L->d.size(); i++) {
      L->z[i] = e * L->z[i] + c * (factor.d ? L->t[i] : L->l[i] * L->r[i]);
      L->x[i] += beta * L->z[i];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- the coarsest level ------------------------------------- */

/* Whether nothing but the diagonal entry of row i differs from 0. */
template <typename T>
bool IsIsolated(const CMATCHArrays<T> &L, LocalInt i)
{
  return std::all_of(L.A_a.begin() + L.A_i[i], L.A_a.begin() + L.A_i[i + 1], [](T entry) { return entry == 0; });
}

/*
   The symmetric part of the last level with its row sums rs. Entries F in the columns of rows that are isolated, as rows of the
   boundary may be, are left out, and count in the diagonal alone.
*/
template <typename T>
void FillDense(const CMATCHArrays<T> &L, const std::vector<double> &rs, PetscReal raised, std::vector<double> *dense)
{
  const size_t n = rs.size();
  auto        &D = *dense;

  D.assign(n * n, 0.);
  for (size_t i = 0; i < n; i++) {
    D[i * n + i] = rs[i];
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      if (IsIsolated(L, L.A_j[k])) D[i * n + i] -= (double)L.A_a[k];
      else D[i * n + L.A_j[k]] = (double)L.A_a[k];
    }
  }
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < i; j++) D[i * n + j] = D[j * n + i] = 0.5 * (D[i * n + j] + D[j * n + i]);
  for (size_t i = 0; i < n; i++) {
    double others = 0;
    for (size_t j = 0; j < n; j++)
      if (j != i) others += D[i * n + j];
    D[i * n + i] = (D[i * n + i] - others) * (1 + raised);
  }
}

/* Adds `factor` to entries of the same component, or with null, of all rows; see CMATCHParts. */
void AddToParts(const CMATCHParts &parts, const std::vector<double> &add, double factor, size_t n, std::vector<double> *D)
{
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < n; j++)
      if (parts.of[i] >= 0 && parts.of[i] == parts.of[j]) (*D)[i * n + j] += factor * add[i];
}

/* Every row in one component, with the ones in the null space */
CMATCHParts OnePart(const std::vector<double> &D, size_t n)
{
  double mean = 0;

  for (size_t i = 0; i < n; i++) mean += D[i * n + i];
  mean /= (double)n;
  if (n == 1) return {{0}, {1 - D[0]}, {1.}, {0, 1}, {0}};
  return {std::vector<LocalInt>(n, 0),
          std::vector<double>(n, mean / (double)n),
          std::vector<double>(n, 1 / ((double)n * mean)),
          {},
          {}};
}

/* The singular components of the last level */
template <typename T>
CMATCHParts FindParts(const std::vector<double> &rs, const CMATCHHierarchyHost<T> &H)
{
  const LocalInt         last = H.levels - 1;
  const CMATCHArrays<T> &L    = H.arrays[last];

  return CMATCHFindParts((LocalInt)rs.size(), L.A_i.data(), L.A_j.data(), std::vector<double>(L.A_a.begin(), L.A_a.end()).data(),
                         rs.data(), CMATCHRowsEach(H, last), H.params.singular);
}

/*
   Inverts the last level, whose row sums are rs, as far as a first attempt, then singular components, and then larger diagonal
   entries allow. With the entries F the inverse of D + F is D^{-1} - D^{-1} F D^{-1}.
*/
template <typename T>
PetscErrorCode Invert(const std::vector<double> &rs, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  const CMATCHArrays<T> &L = H->arrays[H->levels - 1];
  const size_t           n = rs.size();
  auto                  &D = H->inverse;
  CMATCHParts            parts{std::vector<LocalInt>(n, -1), std::vector<double>(n, 0.), std::vector<double>(n, 0.), {0}, {}};
  std::vector<double>    diagonal(n);
  PetscBLASInt           size, info = 0;

  PetscFunctionBegin;
  if (n == 0) {
    D.clear();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscBLASIntCast((LocalInt)n, &size));
  for (int attempt = 0; attempt < 2 + kCMATCHRaises; attempt++) {
    bool small = false;
    if (attempt == 1) {
      parts        = FindParts(rs, *H);
      stats->parts = PetscMax(parts.Large() - (H->params.singular ? 1 : 0), 0);
    }
    if (attempt > 1) stats->raised = attempt == 2 ? kCMATCHRaise : kCMATCHRaiseMore * stats->raised;
    FillDense(L, rs, stats->raised, &D);
    if (attempt == 0 && H->params.singular) parts = OnePart(D, n);
    AddToParts(parts, parts.add, 1, n, &D);
    for (size_t i = 0; i < n; i++) diagonal[i] = D[i * n + i];
    PetscCallBLAS("LAPACKpotrf", LAPACKpotrf_("U", &size, D.data(), &size, &info));
    for (size_t i = 0; i < n && !info && attempt == 0; i++)
      small = small || !(D[i * n + i] * D[i * n + i] > kCMATCHSmallPivot * diagonal[i]);
    if (!info && !small) break;
  }
  if (!info) PetscCallBLAS("LAPACKpotri", LAPACKpotri_("U", &size, D.data(), &size, &info));
  if (info) {
    stats->failure = CMATCH_COARSEST;
    stats->level   = H->levels - 1;
    stats->row     = (LocalInt)info - 1;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* The upper triangle of LAPACK's columns is the lower triangle of our rows. */
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < i; j++) D[j * n + i] = D[i * n + j];
  AddToParts(parts, parts.take, -1, n, &D);
  for (size_t i = 0; i < n; i++)
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      const size_t j = (size_t)L.A_j[k];
      if (!IsIsolated(L, L.A_j[k])) continue;
      for (size_t row = 0; row < n; row++) D[row * n + j] -= D[row * n + i] * (double)L.A_a[k] * D[j * n + j];
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TakeMeansOff(const CMATCHParts &parts, std::vector<double> *x)
{
  for (LocalInt part = 0; part < parts.Count(); part++) {
    double mean = 0;
    for (LocalInt k = parts.begin[part]; k < parts.begin[part + 1]; k++) mean += (*x)[parts.row[k]];
    mean /= (double)(parts.begin[part + 1] - parts.begin[part]);
    for (LocalInt k = parts.begin[part]; k < parts.begin[part + 1]; k++) (*x)[parts.row[k]] -= mean;
  }
}

/* x = A^{-1} b by conjugate gradients, in double precision, with the vectors v. */
template <typename T>
void ConjugateGradients(const CMATCHParts &parts, CMATCHArrays<T> *L, std::vector<double> (&v)[5])
{
  const size_t n = L->d.size();
  auto        &x = v[0], &r = v[1], &z = v[2], &p = v[3], &q = v[4];
  double       rz_old = 0, rz_first = 0;

  std::fill(x.begin(), x.end(), 0.);
  std::fill(p.begin(), p.end(), 0.);
  std::copy(L->b.begin(), L->b.end(), r.begin());
  TakeMeansOff(parts, &r);
  for (LocalInt iteration = 0; iteration < kCMATCHCoarseIterations; iteration++) {
    for (size_t i = 0; i < n; i++) z[i] = (double)L->l[i] * r[i];
    const double rz = Dot(r, z);
    if (!iteration) rz_first = rz;
    if (!(rz > kCMATCHCoarseReduction * rz_first) || !std::isfinite(rz)) break;
    Scale(iteration ? rz / rz_old : 0, z, &p);
    for (size_t i = 0; i < n; i++) {
      q[i] = (double)L->s[i] * p[i];
      for (LocalInt k = L->A_i[i]; k < L->A_i[i + 1]; k++) q[i] += (double)L->A_a[k] * (p[L->A_j[k]] - p[i]);
    }
    const double pq = Dot(p, q);
    if (!(pq > 0) || !std::isfinite(pq)) break;
    Add(rz / pq, p, &x);
    Add(-rz / pq, q, &r);
    rz_old = rz;
  }
  TakeMeansOff(parts, &x);
  std::copy(x.begin(), x.end(), L->x.begin());
}

/* Solves on the last level. */
template <typename T>
PetscErrorCode Coarsest(CMATCHHierarchyHost<T> *H)
{
  const LocalInt   last = H->levels - 1;
  CMATCHArrays<T> &L    = H->arrays[last];
  const size_t     n    = L.d.size();

  PetscFunctionBegin;
  if (H->end == CMATCH_END_DOMINATED) {
    PetscCall(Smooth(H->steps, true, last, H));
    PetscCall(Smooth(H->steps, false, last, H));
  } else if (H->params.coarse == PC_CMATCH_PCG) {
    ConjugateGradients(H->parts, &L, H->iteration);
  } else if (H->inverted) {
    for (size_t i = 0; i < n; i++) {
      double sum = 0;
      for (size_t j = 0; j < n; j++) sum += H->inverse[i * n + j] * (double)L.b[j];
      L.x[i] = (T)sum;
    }
  } else PetscCall(Smooth(H->stalled, true, last, H));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- the cycle ---------------------------------------- */

/* x = cycle(b) on level l */
template <typename T>
PetscErrorCode Visit(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T> &L      = H->arrays[l];
  const bool       smooth = H->level[l].transfer != CMATCH_PASSED;

  PetscFunctionBegin;
  if (l >= H->several && l + 1 == H->levels) {
    PetscCall(Coarsest(H));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (smooth) {
    PetscCall(Smooth(H->steps, true, l, H));
    PetscCall(Halo(*H, l, &L.x));
    Residual(L, L.b, L.x, &L.r);
  } else {
    L.r = L.b;
    std::fill(L.x.begin(), L.x.end(), (T)0);
  }
  PetscCall(Restrict(l, H));
  if (l + 1 < H->levels) PetscCall(Visit(l + 1, H));
  PetscCall(Interpolate(l, H));
  if (smooth) PetscCall(Smooth(H->steps, false, l, H));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode Apply(CMATCHHierarchyHost<T> *H, const PetscScalar *r, PetscScalar *z)
{
  CMATCHArrays<T> &L       = H->arrays[0];
  const size_t     n       = L.d.size();
  const auto       w       = [H](size_t i) { return H->w ? H->w[i] : 1; };
  double           largest = 0;
  int              above   = 0;

  PetscFunctionBegin;
  if (n == 0 && !H->several) PetscFunctionReturn(PETSC_SUCCESS);
  if (H->several && H->size >= 0) largest = H->size;
  else {
    for (size_t i = 0; i < n; i++) largest = PetscMax(largest, std::fabs(r[i] * w(i)));
    if (H->several) PetscCall(CMATCHReduce(H->level[0], MPI_MAX, &largest));
  }
  if (std::isfinite(largest)) std::frexp(largest, &above);
  for (size_t i = 0; i < n; i++) L.b[i] = (T)std::ldexp(r[i] * w(i), -above);
  PetscCall(Visit(0, H));
  for (size_t i = 0; i < n; i++) z[i] = std::ldexp((double)L.x[i] * w(i) * H->scale, above);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- vectors and counts ------------------------------------- */

/*
   The bytes that a V-cycle must move: the matrix of each product, four vectors of each smoothing step, the first of which needs no
   product but is followed by a residual, the factor of the smoother with two more vectors, P and R with the vectors on both of
   their sides, and the inverse.
*/
template <typename T>
size_t ApplyBytes(const CMATCHHierarchyHost<T> &H)
{
  const size_t n     = H.arrays[0].d.size();
  size_t       bytes = 2 * n * sizeof(PetscScalar) + 2 * CMATCHBytes(H.w_kept);

  for (LocalInt l = 0; l < H.levels; l++) {
    const CMATCHArrays<T> &L      = H.arrays[l];
    const size_t           vector = CMATCHBytes(L.d),
                 step             = CMATCHBytes(L.A_i) + CMATCHBytes(L.A_j) + CMATCHBytes(L.A_a) + CMATCHBytes(L.s) + 4 * vector;
    const size_t smooth = step + (H.level[l].factor.d ? CMATCHFactorBytes(H.level[l], H.params.precision) + 2 * vector : 0);
    if (l < H.several || l + 1 < H.levels)
      bytes += (H.level[l].transfer == CMATCH_PASSED ? 0 : 2 * H.steps.degree * smooth) + CMATCHBytes(L.P_j) + CMATCHBytes(L.P_a) +
               CMATCHBytes(L.R_i) + CMATCHBytes(L.R_j) + CMATCHBytes(L.R_a) + 3 * vector +
               2 * CMATCHBytes(l < H.several ? L.values : H.arrays[l + 1].d);
    else if (H.end == CMATCH_END_DOMINATED) bytes += 2 * H.steps.degree * smooth;
    else if (H.params.coarse == PC_CMATCH_PCG) bytes += kCMATCHCoarseIterations * (step + 6 * vector);
    else if (H.inverted) bytes += CMATCHBytes(H.inverse) + 2 * vector;
    else bytes += kCMATCHStalledDegree * step;
  }
  return bytes;
}

} // namespace

template <typename T>
PetscErrorCode CMATCHFinish_Host(const std::vector<double> &rs, PetscBool keep, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  const CMATCHParams &params = H->params;
  const bool          dense  = H->levels > H->several && params.coarse == PC_CMATCH_DENSE && H->end != CMATCH_END_DOMINATED;

  PetscFunctionBegin;
  H->inverted = (PetscBool)(dense && rs.size() <= kCMATCHLargestDense);
  if (H->inverted) {
    PetscCall(Invert(rs, H, stats));
    if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  }
  H->parts = CMATCHParts{{}, {}, {}, {0}, {}};
  if (H->levels > H->several && params.coarse == PC_CMATCH_PCG && H->end != CMATCH_END_DOMINATED) {
    H->parts     = FindParts(rs, *H);
    stats->parts = PetscMax(H->parts.Large() - (params.singular ? 1 : 0), 0);
  }
  H->steps   = CMATCHSmootherSteps(params);
  H->stalled = PolynomialChebyshev(kCMATCHStalledDegree);
  if (dense && !H->inverted) CMATCHComputeL_Host(H->stalled.root, &H->arrays[H->levels - 1]);
  PetscCall(CMATCHFactorSmoothers_Host(keep, H, stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  H->bytes = CMATCHBytes(H->w_kept) + CMATCHBytes(H->inverse);
  for (std::vector<double> &vector : H->iteration) {
    vector.assign(params.coarse == PC_CMATCH_PCG ? rs.size() : 0, 0.);
    H->bytes += CMATCHBytes(vector);
  }
  for (LocalInt l = 0; l < H->levels; l++) {
    CMATCHArrays<T> &L = H->arrays[l];
    const size_t     n = L.d.size(), with_ghosts = n + L.ghost.size();
    for (auto *vector : {&L.b, &L.r}) vector->assign(n, (T)0);
    for (auto *vector : {&L.x, &L.z}) vector->assign(with_ghosts, (T)0);
    if (H->level[l].factor.d) L.t.assign(n, (T)0);
    for (const auto *array : {&L.A_i, &L.A_j, &L.aggregate, &L.P_j, &L.R_i, &L.R_j, &L.add_i}) H->bytes += CMATCHBytes(*array);
    for (const auto *array : {&L.A_a, &L.s, &L.d, &L.l, &L.P_a, &L.R_a, &L.b, &L.x, &L.r, &L.z, &L.t, &L.values, &L.added})
      H->bytes += CMATCHBytes(*array);
    H->bytes += CMATCHBytes(L.ghost) + CMATCHBytes(L.column);
    H->bytes += CMATCHFactorBytes(H->level[l], params.precision);
  }
  H->apply_bytes = ApplyBytes(*H);
  PetscFunctionReturn(PETSC_SUCCESS);
}

template PetscErrorCode CMATCHFinish_Host(const std::vector<double> &, PetscBool, CMATCHHierarchyHost<float> *, CMATCHStats *);
template PetscErrorCode CMATCHFinish_Host(const std::vector<double> &, PetscBool, CMATCHHierarchyHost<double> *, CMATCHStats *);

PetscErrorCode CMATCHApply_Host(CMATCHHierarchy *H, const PetscScalar *r, PetscScalar *z)
{
  PetscFunctionBegin;
  if (H->nodes) PetscCall(CMATCHNodesApply_Host(H, r, z));
  else if (H->params.precision == FINEPC_SINGLE) PetscCall(Apply(static_cast<CMATCHHierarchyHost<float> *>(H), r, z));
  else PetscCall(Apply(static_cast<CMATCHHierarchyHost<double> *>(H), r, z));
  PetscFunctionReturn(PETSC_SUCCESS);
}
