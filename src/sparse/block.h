/* Small dense blocks, one at a time. */
#pragma once

#include <finepc.h>

/*
   a = a^{-1}, column-major, by Gauss-Jordan elimination with row exchanges. A pivot that is not above `smallest`, or not finite, is
   raised to `raised`, or, if that is 0, the answer is false and a is of no use. Its twin is a device function, in
   cuda/sparse/block.cuh.
*/
bool InvertBlock_Host(PetscInt bs, PetscReal smallest, PetscReal raised, PetscScalar *a);
