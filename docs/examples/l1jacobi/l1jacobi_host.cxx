/* l1-Jacobi on the host: d_i = a_ii + omega sum_{j != i} |a_ij|, kept as 1 / d_i. */
#include <cmath>

#include "l1jacobi.h"

PetscErrorCode L1JacobiComputeFactor_Host(const CSRView *A, const L1JacobiParams *params, PetscScalar *d, LocalInt *failure_row)
{
  PetscFunctionBegin;
  *failure_row = -1;
  for (LocalInt row = 0; row < A->n; row++) {
    PetscReal diagonal = 0, others = 0;
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++) {
      if (A->j[k] == row) diagonal = A->a[k];
      else others += std::fabs(A->a[k]);
    }
    const PetscReal sum = diagonal + params->weight * others;
    if (!(sum > 0 && std::isfinite(sum)) && *failure_row < 0) *failure_row = row;
    d[row] = 1 / sum;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode L1JacobiApply_Host(LocalInt n, const PetscScalar *d, const PetscScalar *x, PetscScalar *y)
{
  PetscFunctionBegin;
  for (LocalInt row = 0; row < n; row++) y[row] = d[row] * x[row];
  PetscFunctionReturn(PETSC_SUCCESS);
}
