/* What a solver on the GPU asks of a hierarchy whose cycles it launches itself, in a graph of its own. */
#pragma once

#include <petscdevice_cuda.h>

#include "pc/cmatch/cmatch.h"

/*
   Launches z = M^{-1} r for a solver that knows ||r||^2 and whether its iterations have ended, *stage >= stop, both on the device.
   The kernels do nothing after the end.
*/
PetscErrorCode CMATCHLaunch(CMATCHHierarchy *, const double *r, double *z, const double *square, const int *stage, int stop,
                            cudaStream_t);

/* A number that is another one after each set-up that has made new memory, so that what was captured before is useless. */
long CMATCHGeneration(const CMATCHHierarchy *);
