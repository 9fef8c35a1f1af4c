/*
   The kernels of rrb and of rrbcg one by one, to be timed by rrb_kernels of the benchmark. Nothing in the library calls these
   functions.
*/
#pragma once

#include "ksp/rrbcg.h"

/*
   Launches the first kernel of an application of RRB or, without `down`, its last one, and tells how many bytes that kernel must
   move. The values that the factor keeps between these two kernels are no longer those of an application afterwards.
*/
PetscErrorCode RRBApplyPhase_CUDA(RRBFactor *, PetscBool down, const PetscScalar *x, PetscScalar *y, PetscLogDouble *bytes);

/*
   Launches kernel number `phase` of an iteration of RRBCG alone, and tells what it does, on which grid, and how many bytes it must
   move. The text is null for a phase after the last one.
*/
PetscErrorCode RRBCGPhase_CUDA(RRBCGWork *, LocalInt phase, const char **what, LocalInt *grid, PetscLogDouble *bytes);
