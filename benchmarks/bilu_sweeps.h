#pragma once

/*
  Block ILU(0) by fixed-point sweeps, to be measured beside the elimination by levels: benchmarks/bilu_sweeps.cu.
  Chow, Patel, Fine-grained parallel incomplete LU factorization, SIAM J. Sci. Comput. 37 (2015) C169-C193.
*/
#include "pc/bisai/bilu.h"

static constexpr LocalInt kLargestSwept = 8; /* rows of a block */

/*
   What follows from the pattern, and work space. F is the factor by levels: the places of its blocks are used, its values are not.
*/
struct BILUSweeps;
PetscErrorCode BILUSweepsCreate_CUDA(const BSRView *A, const BlockLU *F, BILUSweeps **);
PetscErrorCode BILUSweepsDestroy_CUDA(BILUSweeps **);

/* The usual guess and then so many sweeps. `factor` lies as the values of F do, and is valid until the next run. */
PetscErrorCode BILUSweepsRun_CUDA(BILUSweeps *, const BSRView *A, LocalInt sweeps, const PetscScalar **factor);
