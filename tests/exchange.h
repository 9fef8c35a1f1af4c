/* The exchange of cgfused by itself, for the tests and to be measured: in a solve it is beside the products. */
#pragma once

#include "ksp/cgfused.h"

/* The exchange once; the ghosts are there when it returns. All ranks call it. */
PetscErrorCode ExchangeOnce_CUDA(CGFusedWork *, NCCL *, const Exchange *, const PetscScalar *x, PetscScalar *ghosts);

/* What communication takes by itself, in seconds; all 0 without NCCL. */
struct CommunicationTimes {
  PetscLogDouble exchange; /* one exchange of ghosts, with packing */
  PetscLogDouble sum;      /* one sum of two numbers */
};

/*
   The times of the exchange and of the sum that the last solve made with NCCL, each as a graph of `count` of them one after the
   other, the best of some launches. All ranks call it.
*/
PetscErrorCode TimeCommunication_CUDA(CGFusedWork *, int count, CommunicationTimes *);
