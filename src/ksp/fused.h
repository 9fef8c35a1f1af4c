/*
   What the solvers have in common that run in few kernels on the GPU: stops, norms, tests and records of iterations, and streams.
   On several ranks their products have an exchange (ranks/exchange.h), which NCCL makes where the GPUs decide (ranks/nccl.h).
*/
#pragma once

#include "ranks/exchange.h"
#include "ranks/nccl.h"

/* ------------------------------------- records and stops -------------------------------------- */

/* Why the iterations ended. */
enum CGStop {
  CG_RUNNING, /* they have not ended */
  CG_TEST,    /* the test of the norm; whether that is convergence is left to the caller's test */
  CG_NORM_NOT_FINITE,
  CG_BETA_NOT_FINITE,
  CG_BETA_ZERO,     /* r.z = 0, which KSPCG takes for convergence */
  CG_INDEFINITE_PC, /* beta has changed its sign */
  CG_DELTA_NOT_FINITE,
  CG_INDEFINITE_MAT, /* delta is 0, or has changed its sign */
  CG_ITS             /* max_it iterations are done */
};

/* In this order: no norm, ||z||, ||r||, sqrt(|r.z|). */
enum CGNorm { CG_NORM_NONE, CG_NORM_PRECONDITIONED, CG_NORM_UNPRECONDITIONED, CG_NORM_NATURAL };

/*
   The test that ends the iterations by CG_TEST: after iteration n if n > chknorm and n >= min_it and the norm is <= ttol or >=
   dtol, or if n >= last.
*/
struct CGTest {
  CGNorm    norm;
  PetscReal ttol, dtol; /* absolute */
  LocalInt  min_it;
  LocalInt  chknorm; /* up to this iteration the norm is not computed but given as 0, unless it is the natural norm */
  LocalInt  last;    /* the iteration that counts as converged whatever its norm, LOCAL_INT_MAX for none */
  LocalInt  max_it;
};

/*
   What the host receives of an iteration: the norm after it, for the history, and for the Lanczos matrix its a, and the b with
   which its p was made, 0 in the first one.
*/
struct CGRecord {
  PetscReal norm, a, b;
};

/* The sums of a residual: nn = (norm)^2 of the norm that is asked for, but r.r for the natural norm; rz = r.z. */
struct CGSums {
  PetscReal nn, rz;
};

/* ----------------------------------- diagonals and streams ------------------------------------ */

/* d [n] becomes what PCJACOBI multiplies by: 1 / d, of |d| if `absolute`; 0 becomes 1 if `fixed`. */
PetscErrorCode FusedInvertDiagonal_CUDA(LocalInt n, PetscBool absolute, PetscBool fixed, PetscScalar *d);
/* Refuses a stream that other streams do not wait for, where the products of all iterations are PETSc's. */
PetscErrorCode FusedCheckStream_CUDA(MPI_Comm);
