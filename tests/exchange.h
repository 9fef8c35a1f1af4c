/* The exchange of cgfused by itself: in a solve it is beside the products. */
#pragma once

#include "ksp/cgfused.h"

/* The exchange once; the ghosts are there when it returns. All ranks call it. */
PetscErrorCode ExchangeOnce_CUDA(CGFusedWork *, NCCL *, const Exchange *, const PetscScalar *x, PetscScalar *ghosts);

/* Kernels wait for words that nobody writes, until the host gives up: whether they have waited till then, and what they get. */
PetscErrorCode AwaitInVain_CUDA(bool *waited, double *in_double, float *in_single);
