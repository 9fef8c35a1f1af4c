/* What a solver on the GPU asks of a hierarchy whose cycles it launches itself, in a graph of its own. */
#pragma once

#include "device/device.cuh"

#include "pc/cmatch/cmatch.h"

/*
   Launches z = M^{-1} r for a solver that knows ||r||^2 and whether its iterations have ended, *stage >= stop, both on the device.
   The kernels do nothing after the end. On several ranks both are the same on all of them, and all launch the cycle as often, since
   its exchanges do not end. *square may be that of another vector of about the same size.
*/
PetscErrorCode CMATCHLaunch(CMATCHHierarchy *, const double *r, double *z, const double *square, const int *stage, int stop,
                            cudaStream_t);
/*
   The graph of a solver has exchanges of several ranks: before their memory is freed the hierarchy destroys the graph and sets it
   to null. The solver takes that back when it destroys the graph itself.
*/
PetscErrorCode CMATCHShareGraph(CMATCHHierarchy *, cudaGraphExec_t *);
void           CMATCHUnshareGraph(CMATCHHierarchy *, cudaGraphExec_t *);

/* A number that is another one after each set-up that has made new memory, so that what was captured before is useless. */
long CMATCHGeneration(const CMATCHHierarchy *);

/*
   z = M^{-1} r of block vectors [n][width] for CMATCHTakesColumns(), kCMATCHColumns columns after the others, with the squares of
   their sizes on the device, [width], and the number of columns that go on: the kernels do nothing if there are none. `memory` has
   CMATCHColumnsBytes(), and nothing is kept in it.
*/
struct CMATCHColumnsCall {
  const double *r;
  double       *z;
  LocalInt      width; /* a multiple of kCMATCHColumns */
  const double *square;
  const int    *running;
  char         *memory;
};
size_t         CMATCHColumnsBytes(const CMATCHHierarchy *);
PetscErrorCode CMATCHLaunchColumns(const CMATCHHierarchy *, const CMATCHColumnsCall &, cudaStream_t);
