/* Small dense blocks are inverted one at a time. */
#pragma once

#include "local_int.h"

/*
   a = a^{-1} for a column-major block of bs rows, by Gauss-Jordan elimination with row exchanges. A pivot that is not above
   `smallest`, or not finite, is raised to `raised`; if `raised` is 0, the function returns false instead, and a is of no use. The
   twin of this function is a device function, in cuda/sparse/block.cuh.
*/
bool InvertBlock_Host(LocalInt bs, PetscReal smallest, PetscReal raised, PetscScalar *a);
