/* Small dense systems in batches. The kernels of cuda/dense.cuh, by themselves: in a set-up they run fused with the gather. */
#pragma once

#include <finepc.h>

/*
   A = L L^T of `count` symmetric positive definite matrices of size n, one behind the other, column-major, in the precision
   given. Only the lower triangles are read; L replaces them. info [count]: 0, or k where the k-th pivot was not positive.
   n is at most kCholeskyLargest. The CUDA twin takes device pointers and does not wait.
*/
constexpr PetscInt kCholeskyLargest = 1280; /* less on GPUs of less than 227 KB of shared memory a block */
PetscErrorCode     CholeskyBatched_Host(FinePCPrecision, PetscInt n, PetscInt count, void *A, PetscInt *info);
PetscErrorCode     CholeskyBatched_CUDA(FinePCPrecision, PetscInt n, PetscInt count, void *A, PetscInt *info);

/*
   a = a^{-1}, column-major, by Gauss-Jordan elimination with row exchanges. A pivot that is not above `smallest`, or not finite, is
   raised to `raised`, or, if that is 0, the answer is false and a is of no use. Its twin is a device function, in cuda/block.cuh.
*/
bool InvertBlock_Host(PetscInt bs, PetscReal smallest, PetscReal raised, PetscScalar *a);
