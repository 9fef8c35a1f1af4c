/* The Cholesky factorization of a small dense matrix. On the device it is a part of kernels: cuda/sparse/dense.cuh. */
#pragma once

#include <finepc.h>

/*
   A = L L^T of a symmetric positive definite matrix of size n, column-major, in the precision given. Only the lower triangle is
   read; L replaces it. info: 0, or k where the k-th pivot was not positive. n is at most kCholeskyLargest.
*/
constexpr PetscInt kCholeskyLargest = 1280; /* on the device, less where a block has less than 227 KB of shared memory */
PetscErrorCode     CholeskyFactor_Host(FinePCPrecision, PetscInt n, void *A, PetscInt *info);
