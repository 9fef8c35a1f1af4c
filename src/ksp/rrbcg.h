/*
   The RRB-solver: the conjugate gradient method on the first Schur complement of a 5-point stencil, 2.3 of paper 003. With the
   points in the order red, black of level 1, and with A_rr diagonal,

     [A_rr A_rb] [x_r]   [r_r]          S_1 = A_bb - A_br A_rr^{-1} A_rb,  g = r_b - A_br A_rr^{-1} r_r
     [A_br A_bb] [x_b] = [r_b]          S_1 x_b = g,  x_r = A_rr^{-1} (r_r - A_rb x_b)

   and M_S, the levels of PCRRB from the second one on, preconditions S_1. With x_r always as it is there the residual of the whole
   system is 0 in red points and that of S_1 in black ones, so that its norm, and r^T M^{-1} r, are those of S_1. These are the
   iterates of CG on A with PCRRB, from a guess whose red points have been solved for.

   Vectors of the twins are over the whole grid, in natural order.
*/
#pragma once

#include "cgfused.h"
#include "pc/rrb/rrb.h"

/* What a solver keeps: vectors on the black points, scalars, the graph. */
struct RRBCGWork {
  PetscMemType where;
  size_t       bytes;
};

/* r.r and r.M^{-1} r of the residual that a solve begins with; g.g and g.M_S^{-1} g, of what its elimination leaves. */
struct RRBCGSums {
  PetscReal rr, rz, gg, gz;
};

/* Work for this factor, which has its Schur complement; what there is stays if it fits. */
PetscErrorCode RRBCGPrepare_Host(RRBFactor *, RRBCGWork **);
PetscErrorCode RRBCGPrepare_CUDA(RRBFactor *, RRBCGWork **);
PetscErrorCode RRBCGDestroy_Host(RRBCGWork **);
PetscErrorCode RRBCGDestroy_CUDA(RRBCGWork **);
/* From x = 0 with residual r. Waits for the sums. */
PetscErrorCode RRBCGStart_Host(RRBCGWork *, const PetscScalar *r, RRBCGSums *);
PetscErrorCode RRBCGStart_CUDA(RRBCGWork *, const PetscScalar *r, RRBCGSums *);
/* Then as CGFusedBegin_CUDA() and CGFusedAdvance_CUDA(), with beta = gz; with step, of one iteration. */
PetscErrorCode RRBCGBegin_Host(RRBCGWork *, PetscReal beta, const CGTest *);
PetscErrorCode RRBCGBegin_CUDA(RRBCGWork *, PetscReal beta, const CGTest *);
PetscErrorCode RRBCGAdvance_Host(RRBCGWork *, PetscBool step, PetscInt *count, const CGRecord **, CGStop *, PetscInt *its,
                                 PetscReal *value);
PetscErrorCode RRBCGAdvance_CUDA(RRBCGWork *, PetscBool step, PetscInt *count, const CGRecord **, CGStop *, PetscInt *its,
                                 PetscReal *value);
/* x, or with add x plus what it was, from the r that was given to Start; and the residual that is left. */
PetscErrorCode RRBCGSolution_Host(RRBCGWork *, const PetscScalar *r, PetscBool add, PetscScalar *x);
PetscErrorCode RRBCGSolution_CUDA(RRBCGWork *, const PetscScalar *r, PetscBool add, PetscScalar *x);
PetscErrorCode RRBCGResidual_Host(RRBCGWork *, PetscScalar *r);
PetscErrorCode RRBCGResidual_CUDA(RRBCGWork *, PetscScalar *r);
