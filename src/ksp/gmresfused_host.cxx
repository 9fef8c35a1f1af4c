/* The operations of GMRES on its basis, and on its small matrices, on the host; see gmresfused.h for the formulas. */
#include <algorithm>
#include <cmath>
#include <numeric>

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
static PetscErrorCode Products(const GMRESBasis *basis, const double *u, LocalInt count, const PetscScalar *x, PetscReal y[])
{
  const PetscBLASInt one = 1, n = basis->n, ld = basis->ld, columns = count;
  const PetscReal    factor = 1, nothing = 0;

  PetscFunctionBegin;
  if (n) PetscCallBLAS("BLASgemv", BLASgemv_("T", &n, &columns, &factor, u, &ld, x, &one, &nothing, y, &one));
  else std::fill_n(y, count, 0.); /* which BLAS leaves as it is */
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename X>
static PetscErrorCode Products(const GMRESBasis *basis, const float *u, LocalInt count, const X *x, PetscReal y[])
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

PetscErrorCode GMRESDots_Host(const GMRESBasis *basis, LocalInt count, const PetscScalar *w, PetscReal sums[])
{
  PetscReal ww = 0;

  PetscFunctionBegin;
  PetscCall(WithPrecision(basis, [&](auto *u) {
    PetscFunctionBegin;
    PetscCall(Products(basis, u, count, w, sums));
    PetscCall(Products(basis, u, count, u + (size_t)(count - 1) * basis->ld, sums + count));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  for (LocalInt i = 0; i < basis->n; i++) ww += w[i] * w[i];
  sums[2 * count] = ww;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESUpdate_Host(const GMRESBasis *basis, LocalInt count, const PetscReal c[], PetscReal s, const PetscScalar *w,
                                PetscScalar *p, PetscReal *pp)
{
  PetscReal square = 0;

  PetscFunctionBegin;
  PetscCall(WithPrecision(basis, [&](auto *u) {
    auto *next = u + (size_t)count * basis->ld;
    PetscFunctionBegin;
    if (p != w) std::copy_n(w, basis->n, p);
    PetscCall(AddCombination(basis, u, count, -1, c, p));
    for (LocalInt i = 0; i < basis->n; i++) {
      next[i] = s * p[i];
      p[i]    = next[i];
      square += p[i] * p[i];
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  if (pp) *pp = square;
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
  small->rhs[0] = norm;
}

/* (D + L) c = z by forward substitution. A vector that is zero takes no part. */
void GMRESSmallProject(GMRESSmall *small, LocalInt j, const PetscReal sums[], PetscReal c[], PetscReal *square)
{
  const size_t     rows = (size_t)small->restart + 1;
  const PetscReal *z = sums, *g = sums + j + 1;

  for (LocalInt k = 0; k <= j; k++) small->gram[j * rows + k] = g[k];
  small->norm[j] = std::sqrt(g[j]);
  *square        = sums[2 * j + 2];
  for (LocalInt k = 0; k <= j; k++) {
    const PetscReal *gram = small->gram.data() + k * rows;
    PetscReal        sum  = z[k];
    for (LocalInt i = 0; i < k; i++) sum -= gram[i] * c[i];
    c[k] = gram[k] == 0 ? 0 : sum / gram[k];
    *square -= gram[k] * c[k] * c[k];
  }
}

GMRESColumn GMRESSmallAppend(GMRESSmall *small, LocalInt j, const PetscReal c[], PetscReal s, PetscReal norm,
                             PetscReal happy_tolerance)
{
  const size_t     rows = (size_t)small->restart + 1;
  PetscReal *const h = small->H.data() + j * rows, *const r = small->R.data() + j * rows, *const g = small->rhs.data();
  const PetscReal n_j = small->norm[j];
  GMRESColumn     column{};

  small->norm[j + 1] = norm;
  for (LocalInt k = 0; k <= j; k++) h[k] = n_j == 0 ? 0 : c[k] * (small->norm[k] / n_j);
  h[j + 1] = n_j == 0 ? 0 : norm / (s * n_j);
  for (LocalInt k = 0; k <= j + 1; k++) r[k] = h[k];
  for (LocalInt k = 0; k < j; k++) {
    const PetscReal above = r[k], below = r[k + 1];
    r[k]     = small->cosine[k] * above + small->sine[k] * below;
    r[k + 1] = small->cosine[k] * below - small->sine[k] * above;
  }
  const PetscReal bound = PetscMin(PetscAbsReal(h[j + 1] / g[j]), happy_tolerance);
  column.happy          = h[j + 1] < bound;
  if (column.happy) return column; /* there is nothing to rotate, and the residual is 0 */
  const PetscReal length = PetscSqrtReal(r[j] * r[j] + r[j + 1] * r[j + 1]);
  column.singular        = length == 0;
  if (column.singular) return column;
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
