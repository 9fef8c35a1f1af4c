/* The Cholesky factorization of a small dense matrix. On the device it is a part of kernels, in cuda/sparse/dense.cuh. */
#pragma once

#include "local_int.h"

/*
   The largest size of a system. A block of threads keeps a panel, which is some columns of full length, in its shared memory, and
   in double precision 1280 rows fit into 227 KB. On a device where a block has less shared memory the limit is lower.
*/
constexpr LocalInt kCholeskyLargest = 1280;

/*
   A = L L^T for a symmetric positive definite matrix A of size n, at most kCholeskyLargest, column-major and in the given
   precision. Only the lower triangle of A is read, and L replaces this triangle. info is 0, or k if the k-th pivot is not positive.
*/
PetscErrorCode CholeskyFactor_Host(FinePCPrecision, LocalInt n, void *A, LocalInt *info);
