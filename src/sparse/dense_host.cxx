/*
   This file is the host twin of cuda/sparse/dense.cuh, in plain loops. LAPACK would do for double precision, but a PETSc need not
   come with the LAPACK functions for single precision.
*/
#include <cmath>

#include "dense.h"

/*
   Computes L column by column: the products of the columns before are subtracted from a column, and the column is divided by the
   root of its pivot. Returns 0, or k if the k-th pivot is not positive.
*/
template <typename T>
static LocalInt Factor_Dense(LocalInt n, T *A)
{
  for (LocalInt k = 0; k < n; k++) {
    T *const L_k = A + (size_t)k * n;
    for (LocalInt p = 0; p < k; p++) {
      const T *const L_p = A + (size_t)p * n;
      const T        l   = L_p[k];
      for (LocalInt r = k; r < n; r++) L_k[r] -= l * L_p[r];
    }
    if (!(L_k[k] > 0)) return k + 1;
    L_k[k] = std::sqrt(L_k[k]);
    for (LocalInt r = k + 1; r < n; r++) L_k[r] /= L_k[k];
  }
  return 0;
}

PetscErrorCode CholeskyFactor_Host(FinePCPrecision precision, LocalInt n, void *A, LocalInt *info)
{
  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= kCholeskyLargest, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
             "The size of a system is %" LocalInt_FMT ", but can be at most %" LocalInt_FMT, n, kCholeskyLargest);
  *info = precision == FINEPC_SINGLE ? Factor_Dense(n, (float *)A) : Factor_Dense(n, (double *)A);
  PetscFunctionReturn(PETSC_SUCCESS);
}
