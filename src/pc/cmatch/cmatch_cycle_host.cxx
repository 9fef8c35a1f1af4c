/*
   This file is the host twin of the cycle of cuda/pc/cmatch: smoothers, the coarsest level, and an application. Twins agree here up
   to rounding. Values are of the precision T, and dot products are summed in double.

   A residual r is scaled for the finest level, and so is the solution of A_0 x = b, where A_0 = t W A W:

     b = 2^q W r,   z = 2^-q t W x,   where 2^-q is the power of 2 above max_i |w_i r_i|,

   so that small residuals are not lost in single precision. A V-cycle on level l is

     x = S(b),   x = x + P cycle(R (b - A x)),   x = x + S(b - A x),

   where S(r) is the polynomial smoother of polynomial.h with M^{-1} = diag(l), or the M^{-1} of cmatch_fsai_host.cxx, which is
   symmetric. The eigenvalues of diag(l) A are in (0, 1], but for rows that are solved exactly, and those of the other M^{-1} A are
   below 1 + a of its polynomial. Hence the cycle is symmetric and positive definite for every such smoother. On the levels
   kCMATCHTwiceFrom to kCMATCHTwiceTo the other cycles do more. The W-cycle applies itself twice,

     e = cycle(b),   x = e + cycle(b - A e),

   and the K-cycle of Notay and Vassilevski does two steps of the flexible conjugate gradient method, with the V-cycle as the
   preconditioner. Its first step is c = cycle(b), v = A c, with the residual b - v (c, b) / (c, v). The second one is left out if
   this residual is at most a quarter of b. Otherwise the second step is along the cycle of this residual, made A-orthogonal to c.

   The last level has one of four solvers:

     inverse      D^{-1} b for the matrix D of the level plus kCMATCHShift mean(D_ii) I. If D maps the ones to 0, then
                  (D + t/n 1 1^T)^{-1} - 1/(n t) 1 1^T with t = mean(D_ii), which solves in the complement of the ones.
     pcg          kCMATCHCoarseIterations iterations of the conjugate gradient method with diag(l); with the ones in the null
                  space the means of b and x are taken off.
     smoother     twice S, if every row is left to the smoother
     polynomial   the Chebyshev polynomial of degree kCMATCHStalledDegree, if there are too many rows for an inverse
*/
#include <algorithm>
#include <cmath>

#include <petscblaslapack.h>

#include "cmatch_host.h"

namespace
{

/* y = A x in difference form */
template <typename T>
void Multiply(const CMATCHArrays<T> &L, const std::vector<T> &x, std::vector<T> *y)
{
  for (size_t i = 0; i < L.d.size(); i++) {
    T sum = L.s[i] * x[i];
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) sum += L.A_a[k] * (x[L.A_j[k]] - x[i]);
    (*y)[i] = sum;
  }
}

/* r = b - A x */
template <typename T>
void Residual(const CMATCHArrays<T> &L, const std::vector<T> &b, const std::vector<T> &x, std::vector<T> *r)
{
  Multiply(L, x, r);
  for (size_t i = 0; i < r->size(); i++) (*r)[i] = b[i] - (*r)[i];
}

template <typename T>
double Dot(const std::vector<T> &x, const std::vector<T> &y)
{
  double sum = 0;
  for (size_t i = 0; i < x.size(); i++) sum += (double)x[i] * (double)y[i];
  return sum;
}

/* y = y + a x */
template <typename T>
void Add(double a, const std::vector<T> &x, std::vector<T> *y)
{
  for (size_t i = 0; i < x.size(); i++) (*y)[i] += (T)a * x[i];
}

/* x = a x + y */
template <typename T>
void Scale(double a, const std::vector<T> &y, std::vector<T> *x)
{
  for (size_t i = 0; i < x->size(); i++) (*x)[i] = (T)a * (*x)[i] + y[i];
}

/* x = x + S(b - A x), or from the start x = 0; with the factor of the level, if it has one. */
template <typename T>
void Smooth(const PolynomialSteps &steps, bool zero, const CMATCHFactor &factor, CMATCHArrays<T> *L)
{
  if (zero) {
    L->r = L->b;
    std::fill(L->x.begin(), L->x.end(), (T)0);
  } else Residual(*L, L->b, L->x, &L->r);
  std::fill(L->z.begin(), L->z.end(), (T)0);
  for (LocalInt step = 0; step < steps.degree; step++) {
    const T c = (T)steps.c[step], e = (T)steps.e[step], beta = (T)steps.beta[step];
    if (step > 0) { /* r = r - A z, whose rows need all of z */
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
}

/* ------------------------------------- the coarsest level ------------------------------------- */

/* Whether nothing but the diagonal entry of row i differs from 0. */
template <typename T>
bool IsIsolated(const CMATCHArrays<T> &L, LocalInt i)
{
  return std::all_of(L.A_a.begin() + L.A_i[i], L.A_a.begin() + L.A_i[i + 1], [](T entry) { return entry == 0; });
}

/*
   Inverts the last level, whose row sums are rs. Where rows are isolated, but have entries F in their columns, as rows of the
   boundary may have, the inverse of S + F is S^{-1} - S^{-1} F S^{-1}.
*/
template <typename T>
PetscErrorCode Invert(const std::vector<double> &rs, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  const CMATCHArrays<T> &L        = H->arrays[H->levels - 1];
  const size_t           n        = rs.size();
  const bool             singular = H->params.singular;
  PetscBLASInt           size, info;
  double                 mean = 0;

  PetscFunctionBegin;
  auto &D = H->inverse;
  D.assign(n * n, 0.);
  /* A single row that maps the ones to 0 has nothing beside them, so that the solution is 0. */
  if (n == 0 || (singular && n == 1)) PetscFunctionReturn(PETSC_SUCCESS);
  for (size_t i = 0; i < n; i++) {
    double others = 0;
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      if (!IsIsolated(L, L.A_j[k])) D[i * n + L.A_j[k]] = (double)L.A_a[k];
      others += (double)L.A_a[k];
    }
    D[i * n + i] = rs[i] - others;
    mean += D[i * n + i];
  }
  mean /= (double)n;
  if (singular)
    for (double &entry : D) entry += mean / (double)n;
  else
    for (size_t i = 0; i < n; i++) D[i * n + i] += kCMATCHShift * D[i * n + i];
  PetscCall(PetscBLASIntCast((LocalInt)n, &size));
  PetscCallBLAS("LAPACKpotrf", LAPACKpotrf_("U", &size, D.data(), &size, &info));
  if (info == 0) PetscCallBLAS("LAPACKpotri", LAPACKpotri_("U", &size, D.data(), &size, &info));
  if (info) {
    stats->failure = CMATCH_COARSEST;
    stats->level   = H->levels - 1;
    stats->row     = (LocalInt)info - 1;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* The upper triangle of LAPACK's columns is the lower triangle of our rows. */
  const double part = singular ? 1 / ((double)n * mean) : 0;
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j <= i; j++) D[i * n + j] = D[j * n + i] = D[i * n + j] - part;
  for (size_t i = 0; i < n; i++)
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      const size_t j = (size_t)L.A_j[k];
      if (!IsIsolated(L, L.A_j[k])) continue;
      for (size_t row = 0; row < n; row++) D[row * n + j] -= D[row * n + i] * (double)L.A_a[k] * D[j * n + j];
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

void TakeMeanOff(std::vector<double> *x)
{
  double mean = 0;
  for (double entry : *x) mean += entry;
  mean /= (double)x->size();
  for (double &entry : *x) entry -= mean;
}

/* x = A^{-1} b by conjugate gradients, in double precision, with the vectors v. */
template <typename T>
void ConjugateGradients(bool singular, CMATCHArrays<T> *L, std::vector<double> (&v)[5])
{
  const size_t n = L->d.size();
  auto        &x = v[0], &r = v[1], &z = v[2], &p = v[3], &q = v[4];
  double       rz_old = 0, rz_first = 0;

  std::fill(x.begin(), x.end(), 0.);
  std::fill(p.begin(), p.end(), 0.);
  std::copy(L->b.begin(), L->b.end(), r.begin());
  if (singular && n) TakeMeanOff(&r);
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
  if (singular && n) TakeMeanOff(&x);
  std::copy(x.begin(), x.end(), L->x.begin());
}

/* Solves on the last level. */
template <typename T>
void Coarsest(CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T>    &L      = H->arrays[H->levels - 1];
  const CMATCHFactor &factor = H->level[H->levels - 1].factor;
  const size_t        n      = L.d.size();

  if (H->end == CMATCH_END_DOMINATED) {
    Smooth(H->steps, true, factor, &L);
    Smooth(H->steps, false, factor, &L);
  } else if (H->params.coarse == PC_CMATCH_PCG) {
    ConjugateGradients(H->params.singular, &L, H->iteration);
  } else if (H->inverted) {
    for (size_t i = 0; i < n; i++) {
      double sum = 0;
      for (size_t j = 0; j < n; j++) sum += H->inverse[i * n + j] * (double)L.b[j];
      L.x[i] = (T)sum;
    }
  } else Smooth(H->stalled, true, factor, &L);
}

/* ------------------------------------------- cycles ------------------------------------------- */

template <typename T>
bool Twice(const CMATCHHierarchyHost<T> &H, LocalInt l)
{
  return H.params.cycle != PC_CMATCH_V && l >= kCMATCHTwiceFrom && l <= kCMATCHTwiceTo && l + 1 < H.levels;
}

template <typename T>
void Visit(LocalInt l, CMATCHHierarchyHost<T> *H);

/* x = cycle(b) on level l, once. b stays. */
template <typename T>
void Once(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T> &L = H->arrays[l];

  if (l + 1 == H->levels) return Coarsest(H);
  CMATCHArrays<T>   &C     = H->arrays[l + 1];
  const CMATCHLevel &level = H->level[l];
  Smooth(H->steps, true, level.factor, &L);
  Residual(L, L.b, L.x, &L.r);
  for (LocalInt c = 0; c < level.coarse; c++) {
    T sum = 0;
    for (LocalInt k = L.R_i[c]; k < L.R_i[c + 1]; k++) sum += L.R_a[k] * L.r[L.R_j[k]];
    C.b[c] = sum;
  }
  Visit(l + 1, H);
  for (LocalInt i = 0; i < level.n; i++)
    for (size_t e = (size_t)i * level.width; e < (size_t)(i + 1) * level.width && L.P_j[e] >= 0; e++)
      L.x[i] += L.P_a[e] * C.x[L.P_j[e]];
  Smooth(H->steps, false, level.factor, &L);
}

/* x = cycle(b) on level l, twice where the cycle says so. b is lost then. */
template <typename T>
void Visit(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T> &L = H->arrays[l];

  Once(l, H);
  if (!Twice(*H, l)) return;
  L.first = L.x;
  Multiply(L, L.first, &L.second);
  if (H->params.cycle == PC_CMATCH_W) {
    Add(-1., L.second, &L.b);
    Once(l, H);
    Add(1., L.first, &L.x);
    return;
  }
  const double rho_1 = Dot(L.first, L.second), alpha_1 = Dot(L.first, L.b), norm = Dot(L.b, L.b);
  if (!(rho_1 > 0)) return;
  Add(-alpha_1 / rho_1, L.second, &L.b);
  double of_first = alpha_1 / rho_1, of_second = 0;
  if (!(std::sqrt(Dot(L.b, L.b)) <= 0.25 * std::sqrt(norm))) {
    Once(l, H);
    Multiply(L, L.x, &L.r);
    const double gamma = Dot(L.x, L.second), beta = Dot(L.x, L.r), alpha_2 = Dot(L.x, L.b), rho_2 = beta - gamma * gamma / rho_1;
    if (rho_2 > 0) {
      of_first -= gamma * alpha_2 / (rho_1 * rho_2);
      of_second = alpha_2 / rho_2;
    }
  }
  for (size_t i = 0; i < L.x.size(); i++) L.x[i] = (T)of_first * L.first[i] + (T)of_second * L.x[i];
}

template <typename T>
void Apply(CMATCHHierarchyHost<T> *H, const PetscScalar *r, PetscScalar *z)
{
  CMATCHArrays<T> &L       = H->arrays[0];
  const size_t     n       = L.d.size();
  const auto       w       = [H](size_t i) { return H->w ? H->w[i] : 1; };
  double           largest = 0;
  int              above   = 0;

  if (n == 0) return;
  for (size_t i = 0; i < n; i++) largest = PetscMax(largest, std::fabs(r[i] * w(i)));
  if (std::isfinite(largest)) std::frexp(largest, &above);
  for (size_t i = 0; i < n; i++) L.b[i] = (T)std::ldexp(r[i] * w(i), -above);
  Visit(0, H);
  for (size_t i = 0; i < n; i++) z[i] = std::ldexp((double)L.x[i] * w(i) * H->scale, above);
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
    if (l + 1 < H.levels)
      bytes += 2 * H.steps.degree * smooth + CMATCHBytes(L.P_j) + CMATCHBytes(L.P_a) + CMATCHBytes(L.R_i) + CMATCHBytes(L.R_j) +
               CMATCHBytes(L.R_a) + 3 * vector + 2 * CMATCHBytes(H.arrays[l + 1].d);
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

  PetscFunctionBegin;
  H->inverted = (PetscBool)(params.coarse == PC_CMATCH_DENSE && H->end != CMATCH_END_DOMINATED && rs.size() <= kCMATCHLargestDense);
  if (H->inverted) {
    PetscCall(Invert(rs, H, stats));
    if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  }
  H->steps   = CMATCHSmootherSteps(params);
  H->stalled = PolynomialChebyshev(kCMATCHStalledDegree);
  if (params.coarse == PC_CMATCH_DENSE && H->end != CMATCH_END_DOMINATED && !H->inverted)
    CMATCHComputeL_Host(H->stalled.root, &H->arrays[H->levels - 1]);
  PetscCall(CMATCHFactorSmoothers_Host(keep, H, stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  H->bytes = CMATCHBytes(H->w_kept) + CMATCHBytes(H->inverse);
  for (std::vector<double> &vector : H->iteration) {
    vector.assign(params.coarse == PC_CMATCH_PCG ? rs.size() : 0, 0.);
    H->bytes += CMATCHBytes(vector);
  }
  for (LocalInt l = 0; l < H->levels; l++) {
    CMATCHArrays<T> &L = H->arrays[l];
    for (auto *vector : {&L.b, &L.x, &L.r, &L.z}) vector->assign(L.d.size(), (T)0);
    if (Twice(*H, l))
      for (auto *vector : {&L.first, &L.second}) vector->assign(L.d.size(), (T)0);
    if (H->level[l].factor.d) L.t.assign(L.d.size(), (T)0);
    for (const auto *array : {&L.A_i, &L.A_j, &L.aggregate, &L.P_j, &L.R_i, &L.R_j}) H->bytes += CMATCHBytes(*array);
    for (const auto *array : {&L.A_a, &L.s, &L.d, &L.l, &L.P_a, &L.R_a, &L.b, &L.x, &L.r, &L.z, &L.t, &L.first, &L.second})
      H->bytes += CMATCHBytes(*array);
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
  if (H->params.precision == FINEPC_SINGLE) Apply(static_cast<CMATCHHierarchyHost<float> *>(H), r, z);
  else Apply(static_cast<CMATCHHierarchyHost<double> *>(H), r, z);
  PetscFunctionReturn(PETSC_SUCCESS);
}
