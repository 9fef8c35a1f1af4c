/* The operations of GMRES on its basis, and on its small matrices, on the host; see gmresfused.h for the formulas. */
#include <algorithm>
#include <cmath>
#include <numeric>

#include <petscsys.h>
#include <petscblaslapack.h>

#include "gmresfused.h"

/* --------------------------------------- the basis, twins ------------------------------------- */

/* Calls f with the basis as an array of its precision. */
template <typename F>
static PetscErrorCode WithPrecision(const GMRESBasis *basis, F f)
{
  return basis->precision == FINEPC_SINGLE ? f((float *)basis->u) : f((double *)basis->u);
}

/* y [count] = U^T x, by BLAS in double precision */
static PetscErrorCode Products_GMRESFused(const GMRESBasis *basis, const double *u, LocalInt count, const PetscScalar *x,
                                          PetscReal y[])
{
  const PetscBLASInt one = 1, n = basis->n, ld = basis->ld, columns = count;
  const PetscReal    factor = 1, nothing = 0;

  PetscFunctionBegin;
  if (n) PetscCallBLAS("BLASgemv", BLASgemv_("T", &n, &columns, &factor, u, &ld, x, &one, &nothing, y, &one));
  else std::fill_n(y, count, 0.); /* which BLAS leaves as it is */
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename X>
static PetscErrorCode Products_GMRESFused(const GMRESBasis *basis, const float *u, LocalInt count, const X *x, PetscReal y[])
{
  constexpr LocalInt kSums = 8; /* at a time, which the compiler keeps in wide registers */

  PetscFunctionBegin;
  for (LocalInt k = 0; k < count; k++) {
    const float *u_k         = u + (size_t)k * basis->ld;
    PetscReal    sums[kSums] = {};
    LocalInt     i           = 0;
    for (; i + kSums <= basis->n; i += kSums)
      for (LocalInt t = 0; t < kSums; t++) sums[t] += (PetscReal)u_k[i + t] * (PetscReal)x[i + t];
    for (; i < basis->n; i++) sums[0] += (PetscReal)u_k[i] * (PetscReal)x[i];
    y[k] = std::accumulate(sums, sums + kSums, 0.);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = y + sign U c, by BLAS in double precision */
static PetscErrorCode AddCombination(const GMRESBasis *basis, const double *u, LocalInt count, PetscReal sign, const PetscReal c[],
                                     PetscScalar *y)
{
  const PetscBLASInt one = 1, n = basis->n, ld = basis->ld, columns = count;
  const PetscReal    all = 1;

  PetscFunctionBegin;
  if (n) PetscCallBLAS("BLASgemv", BLASgemv_("N", &n, &columns, &sign, u, &ld, c, &one, &all, y, &one));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AddCombination(const GMRESBasis *basis, const float *u, LocalInt count, PetscReal sign, const PetscReal c[],
                                     PetscScalar *y)
{
  constexpr LocalInt kChunk = 512; /* entries that stay in the cache while the basis passes */

  PetscFunctionBegin;
  for (LocalInt begin = 0; begin < basis->n; begin += kChunk) {
    const LocalInt end = PetscMin(begin + kChunk, basis->n);
    for (LocalInt k = 0; k < count; k++) {
      const float *u_k = u + (size_t)k * basis->ld;
      for (LocalInt i = begin; i < end; i++) y[i] += sign * c[k] * (PetscReal)u_k[i];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESDots_Host(const GMRESBasis *basis, LocalInt count, LocalInt step, const PetscScalar *const w[],
                              PetscReal sums[])
{
  PetscFunctionBegin;
  PetscCall(WithPrecision(basis, [&](auto *u) {
    PetscFunctionBegin;
    for (LocalInt s = 0; s < step; s++) {
      const LocalInt l = PetscMax(count - step + s, 0);
      PetscCall(Products_GMRESFused(basis, u, count, w[s], sums + s * count));
      PetscCall(Products_GMRESFused(basis, u, count, u + (size_t)l * basis->ld, sums + (step + s) * count));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscReal *ww = sums + 2 * step * count;
  for (LocalInt t = 0; t < step; t++)
    for (LocalInt s = 0; s <= t; s++) {
      PetscReal sum = 0;
      for (LocalInt i = 0; i < basis->n; i++) sum += w[s][i] * w[t][i];
      *ww++ = sum;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESUpdate_Host(const GMRESBasis *basis, LocalInt count, const GMRESCombination *of, const PetscScalar *const w[],
                                PetscScalar *p, PetscReal pp[])
{
  PetscReal square;

  PetscFunctionBegin;
  PetscCall(WithPrecision(basis, [&](auto *u) {
    PetscFunctionBegin;
    for (LocalInt s = 0; s < of->products; s++) {
      const LocalInt place = count + s;
      if (p != w[s]) std::copy_n(w[s], basis->n, p);
      PetscCall(AddCombination(basis, u, place, -1, of->c[s], p));
      auto *const next = u + (size_t)place * basis->ld;
      square           = 0;
      for (LocalInt i = 0; i < basis->n; i++) {
        next[i] = of->s[s] * p[i];
        p[i]    = next[i];
        square += p[i] * p[i];
      }
      if (pp) pp[s] = square;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESStore_Host(const GMRESBasis *basis, LocalInt k, PetscReal s, PetscScalar *x)
{
  PetscFunctionBegin;
  PetscCall(WithPrecision(basis, [&](auto *u) {
    auto *u_k = u + (size_t)k * basis->ld;
    for (LocalInt i = 0; i < basis->n; i++) {
      u_k[i] = s * x[i];
      x[i]   = u_k[i];
    }
    return PETSC_SUCCESS;
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESCombine_Host(const GMRESBasis *basis, LocalInt count, const PetscReal c[], PetscScalar *t)
{
  PetscFunctionBegin;
  std::fill_n(t, basis->n, 0.);
  PetscCall(WithPrecision(basis, [&](auto *u) { return AddCombination(basis, u, count, 1, c, t); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- the small matrices ------------------------------------- */

void GMRESSmallCreate(GMRESSmall *small, LocalInt restart)
{
  const size_t rows = (size_t)restart + 1;
  small->restart    = restart;
  small->gram.assign(rows * rows, 0.);
  small->H.assign(rows * restart, 0.);
  small->R.assign(rows * restart, 0.);
  small->norm.assign(rows, 0.);
  small->rhs.assign(rows, 0.);
  small->cosine.assign(restart, 0.);
  small->sine.assign(restart, 0.);
}

void GMRESSmallBegin(GMRESSmall *small, PetscReal norm)
{
  small->vectors = 0;
  small->rhs[0]  = norm;
}

/* (D + L) c = z, for so many vectors, by forward substitution. A vector that is zero takes no part. */
static void Substitute_GMRESFused(const GMRESSmall &small, LocalInt count, const PetscReal z[], PetscReal c[])
{
  for (LocalInt k = 0; k < count; k++) {
    const PetscReal *gram = small.gram.data() + (size_t)k * (small.restart + 1);
    PetscReal        sum  = z[k];
    for (LocalInt i = 0; i < k; i++) sum -= gram[i] * c[i];
    c[k] = gram[k] == 0 ? 0 : sum / gram[k];
  }
}

/* One over the norm that Pythagoras gives, or, where that is lost, over something of the size of the rounding of w. */
static PetscReal ScaleOf(PetscReal square, PetscReal ww)
{
  if (ww == 0) return 1;
  return 1 / PetscSqrtReal(PetscMax(square, kGMRESLost * ww));
}

/* Whether there is a second vector, and what it lacks. */
static bool SecondIsUseful(GMRESProjection *of)
{
  if (!(of->square[0] > kGMRESSecond * of->ww[0] && of->ww[1] > kGMRESSecondLeast && std::isfinite(of->square[1]))) return false;
  const PetscReal second = of->square[1] / of->ww[1], left = of->square[0] / of->ww[0] * PetscMax(second, kGMRESNothing);
  of->lacking = kGMRESRounding / PetscSqrtReal(left);
  return second < kGMRESNothing || left > kGMRESSecond * kGMRESSecond;
}

void GMRESSmallProject(GMRESSmall *small, LocalInt j, LocalInt step, LocalInt products, const PetscReal sums[], GMRESProjection *to)
{
  const size_t     rows  = (size_t)small->restart + 1;
  const LocalInt   count = j + 1;
  const PetscReal *g = sums + (size_t)step * count, *ww = sums + 2 * (size_t)step * count;
  PetscReal        between = products > 1 ? ww[1] : 0; /* w_0.w_1 */

  for (LocalInt l = small->vectors; l < count; l++) {
    const PetscReal *g_l = g + (size_t)(l - count + step) * count;
    for (LocalInt k = 0; k <= l; k++) small->gram[l * rows + k] = g_l[k];
    small->norm[l] = std::sqrt(g_l[l]);
  }
  small->vectors = count;
  to->products   = products;
  for (LocalInt s = 0; s < products; s++) {
    to->c[s].resize(count + s);
    Substitute_GMRESFused(*small, count, sums + (size_t)s * count, to->c[s].data());
    to->ww[s] = to->square[s] = ww[s * (s + 3) / 2]; /* the diagonal of a triangle by columns */
    for (LocalInt k = 0; k < count; k++) to->square[s] -= small->gram[k * rows + k] * to->c[s][k] * to->c[s][k];
    if (s > 0) {
      for (LocalInt k = 0; k < count; k++) between -= small->gram[k * rows + k] * to->c[0][k] * to->c[1][k];
      const PetscReal e = to->c[1][count] = to->scale[0] * between;
      to->square[s] -= e * e;
    }
    to->scale[s] = ScaleOf(to->square[s], to->ww[s]);
  }
  to->lacking = 0;
  if (products > 1 && !SecondIsUseful(to)) {
    to->products = 1;
    to->lacking  = 0;
  }
}

/* Column j of the Hessenberg matrix, h [j + 2]. Where n_j is zero, so is the column. */
static void HessenbergColumn_GMRESFused(const GMRESSmall &small, LocalInt j, LocalInt number, const GMRESProjection &from,
                                        PetscReal h[])
{
  const size_t    rows  = (size_t)small.restart + 1;
  const LocalInt  first = j - number; /* the column of the first product */
  const PetscReal n     = small.norm[first];

  for (LocalInt k = 0; k <= j; k++) h[k] = n == 0 ? 0 : from.c[number][k] * (small.norm[k] / n);
  h[j + 1] = n == 0 ? 0 : small.norm[j + 1] / (from.scale[number] * n);
  if (!number) return;
  const PetscReal *before = small.H.data() + first * rows, below = before[j];
  for (LocalInt k = 0; k <= first; k++)
    for (LocalInt l = 0; l <= k + 1; l++) h[l] -= small.H[k * rows + l] * before[k];
  for (LocalInt l = 0; l <= j + 1; l++) h[l] = below == 0 ? 0 : h[l] / below;
}

GMRESColumn GMRESSmallAppend(GMRESSmall *small, LocalInt j, LocalInt number, const GMRESProjection &from, PetscReal norm,
                             PetscReal happy_tolerance)
{
  const size_t     rows = (size_t)small->restart + 1;
  PetscReal *const h = small->H.data() + j * rows, *const r = small->R.data() + j * rows, *const g = small->rhs.data();
  GMRESColumn column{};

  small->norm[j + 1] = norm;
  HessenbergColumn_GMRESFused(*small, j, number, from, h);
  for (LocalInt k = 0; k <= j + 1; k++) r[k] = h[k];
  for (LocalInt k = 0; k < j; k++) {
    const PetscReal above = r[k], below = r[k + 1];
    r[k]     = small->cosine[k] * above + small->sine[k] * below;
    r[k + 1] = small->cosine[k] * below - small->sine[k] * above;
  }
  const PetscReal bound  = PetscMin(PetscAbsReal(h[j + 1] / g[j]), happy_tolerance);
  const PetscReal length = PetscSqrtReal(r[j] * r[j] + r[j + 1] * r[j + 1]);
  column.happy           = h[j + 1] < bound;
  column.singular        = (column.happy ? r[j] : length) == 0;
  if (column.singular || column.happy) return column; /* with a happy one nothing is to be rotated, and the residual is 0 */
  small->cosine[j] = r[j] / length;
  small->sine[j]   = r[j + 1] / length;
  r[j]             = small->cosine[j] * r[j] + small->sine[j] * r[j + 1];
  g[j + 1]         = -small->sine[j] * g[j];
  g[j]             = small->cosine[j] * g[j];
  column.residual  = PetscAbsReal(g[j + 1]);
  return column;
}

LocalInt GMRESSmallSolve(const GMRESSmall *small, LocalInt count, PetscReal c[])
{
  const size_t rows = (size_t)small->restart + 1;

  for (LocalInt k = count - 1; k >= 0; k--) {
    PetscReal sum = small->rhs[k];
    for (LocalInt j = k + 1; j < count; j++) sum -= small->R[j * rows + k] * c[j];
    if (small->R[k * rows + k] == 0) return k;
    c[k] = sum / small->R[k * rows + k];
  }
  for (LocalInt k = 0; k < count; k++) c[k] = small->norm[k] == 0 ? 0 : c[k] / small->norm[k];
  return -1;
}
