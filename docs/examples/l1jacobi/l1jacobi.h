/*
   l1-Jacobi: M = diag(d_i), d_i = a_ii + omega sum_{j != i} |a_ij|.

   Baker, Falgout, Kolev, Yang, Multigrid smoothers for ultraparallel computing, SIAM J. Sci. Comput. 33 (2011) 2864-2887.
*/
#pragma once

#include "sparse/csr.h"

struct L1JacobiParams {
  PetscReal weight = 1.0; /* omega, in [0, 1]; 0: Jacobi */
};

/* d [n] = 1 / d_i, where A is. failure_row is the first row whose d_i is not positive and finite, or -1. */
PetscErrorCode L1JacobiComputeFactor_Host(const CSRView *A, const L1JacobiParams *, PetscScalar *d, LocalInt *failure_row);
PetscErrorCode L1JacobiComputeFactor_CUDA(const CSRView *A, const L1JacobiParams *, PetscScalar *d, LocalInt *failure_row);
PetscErrorCode L1JacobiApply_Host(LocalInt n, const PetscScalar *d, const PetscScalar *x, PetscScalar *y); /* y_i = d_i x_i */
PetscErrorCode L1JacobiApply_CUDA(LocalInt n, const PetscScalar *d, const PetscScalar *x, PetscScalar *y);
