/*
   Host twin of cuda/dense.cu and cuda/block.cuh, in plain loops: LAPACK would do for double, but PETSc need not have it in single.
*/
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "dense.h"

/* Column by column: minus the products of the columns before, then divided by the root of the pivot. */
template <typename T>
static PetscInt Factor(PetscInt n, T *A)
{
  for (PetscInt k = 0; k < n; k++) {
    T *const L_k = A + (size_t)k * n;
    for (PetscInt p = 0; p < k; p++) {
      const T *const L_p = A + (size_t)p * n;
      const T        l   = L_p[k];
      for (PetscInt r = k; r < n; r++) L_k[r] -= l * L_p[r];
    }
    if (!(L_k[k] > 0)) return k + 1;
    L_k[k] = std::sqrt(L_k[k]);
    for (PetscInt r = k + 1; r < n; r++) L_k[r] /= L_k[k];
  }
  return 0;
}

template <typename T>
static void FactorAll(PetscInt n, PetscInt count, T *A, PetscInt *info)
{
  for (PetscInt b = 0; b < count; b++) info[b] = Factor(n, A + (size_t)b * n * n);
}

PetscErrorCode CholeskyBatched_Host(FinePCPrecision precision, PetscInt n, PetscInt count, void *A, PetscInt *info)
{
  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= kCholeskyLargest, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
             "The size of a system is %" PetscInt_FMT ", but can be at most %" PetscInt_FMT, n, kCholeskyLargest);
  if (precision == FINEPC_SINGLE) FactorAll(n, count, (float *)A, info);
  else FactorAll(n, count, (double *)A, info);
  PetscFunctionReturn(PETSC_SUCCESS);
}

bool InvertBlock_Host(PetscInt bs, PetscReal smallest, PetscReal raised, PetscScalar *a)
{
  std::vector<PetscInt> from(bs);
  const auto            at = [&](PetscInt r, PetscInt c) -> PetscScalar            &{ return a[c * bs + r]; };

  for (PetscInt p = 0; p < bs; p++) {
    PetscInt best = p;
    for (PetscInt r = p + 1; r < bs; r++)
      if (std::fabs(at(r, p)) > std::fabs(at(best, p))) best = r;
    PetscScalar     pivot = at(best, p);
    const PetscReal size  = std::fabs(pivot);
    if (!(size > smallest && size <= std::numeric_limits<PetscReal>::max())) {
      if (raised == 0) return false;
      pivot = std::copysign(raised, pivot);
    }
    from[p] = best;
    for (PetscInt c = 0; c < bs; c++) std::swap(at(p, c), at(best, c));
    for (PetscInt c = 0; c < bs; c++) {
      if (c == p) continue;
      at(p, c) /= pivot;
      for (PetscInt r = 0; r < bs; r++)
        if (r != p) at(r, c) -= at(r, p) * at(p, c);
    }
    for (PetscInt r = 0; r < bs; r++) at(r, p) = r == p ? 1 / pivot : -at(r, p) / pivot;
  }
  for (PetscInt p = bs - 1; p >= 0; p--) /* exchanged rows of a are exchanged columns of the inverse */
    for (PetscInt r = 0; r < bs; r++) std::swap(at(r, p), at(r, from[p]));
  return true;
}
