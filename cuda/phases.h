/*
   Kernels of rrb and rrbcg one by one, for rrb_kernels of the benchmark alone, which times them. No type of the library includes
   this header.
*/
#pragma once

#include "ksp/rrbcg.h"

/*
   Launches the first kernel of an application of RRB or, without down, its last, and tells the bytes that it must move. What the
   factor keeps between the two is not that of an application afterwards.
*/
PetscErrorCode RRBApplyPhase_CUDA(RRBFactor *, PetscBool down, const PetscScalar *x, PetscScalar *y, PetscLogDouble *bytes);

/*
   Launches kernel `phase` of an iteration of RRBCG alone, and tells what it does, on which grid, and the bytes that it must move.
   The text is null for phases after the last one.
*/
PetscErrorCode RRBCGPhase_CUDA(RRBCGWork *, PetscInt phase, const char **what, PetscInt *grid, PetscLogDouble *bytes);
