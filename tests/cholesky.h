/*
   The Cholesky factorizations of cuda/sparse/dense.cuh by themselves, for the tests: in a set-up these kernels run
   fused with the gather of their systems.
*/
#pragma once

#include "sparse/dense.h"

/*
   A = L L^T of `count` matrices as CholeskyFactor_Host() takes them, one behind the other; info [count]. Both are device pointers,
   and the host does not wait.
*/
PetscErrorCode CholeskyBatched_CUDA(FinePCPrecision, LocalInt n, LocalInt count, void *A, LocalInt *info);
