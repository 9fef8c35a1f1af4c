/*
   The RRB-solver: the conjugate gradient method on the first Schur complement of a 5-point stencil, section 2.3 of

   M. de Jong, A. van der Ploeg, A. Ditzel, C. Vuik, Fine-grain parallel RRB-solver for 5-/9-point stencil problems suitable for
   GPU-type processors, Electron. Trans. Numer. Anal. (2017).

   With the points in the order red, black of level 1, A_rr is diagonal:

     [A_rr A_rb] [x_r]   [r_r]          S_1 = A_bb - A_br A_rr^{-1} A_rb,  g = r_b - A_br A_rr^{-1} r_r
     [A_br A_bb] [x_b] = [r_b]          S_1 x_b = g,  x_r = A_rr^{-1} (r_r - A_rb x_b)

   S_1 is preconditioned by M_S, the levels of PCRRB from the second one on. When x_r is always computed like this, the residual of
   the whole system is 0 in red points and the residual of S_1 in black ones, so that its norm, and r^T M^{-1} r, are those of S_1.
   The iterates are those of CG on A with PCRRB, from a guess whose red points have been solved for.

   The arrays that the twins are given are over the whole grid, in natural order. The recurrences, records and stops are those of
   cgfused.h.
*/
#pragma once

#include "fused.h"
#include "pc/rrb/rrb.h"

/* What a solver keeps: vectors on the black points, scalars, the graph. */
struct RRBCGWork {
  PetscMemType where;
  size_t       bytes;
};

/* Of the residual that a solve begins with: r.r and r.M^{-1} r. Of what its elimination leaves: g.g and g.M_S^{-1} g. */
struct RRBCGSums {
  PetscReal rr, rz, gg, gz;
};

/* Makes the work for this factor, which has its Schur complement; memory that fits is kept. */
PetscErrorCode RRBCGPrepare_Host(RRBFactor *, RRBCGWork **);
PetscErrorCode RRBCGPrepare_CUDA(RRBFactor *, RRBCGWork **);
PetscErrorCode RRBCGDestroy_Host(RRBCGWork **);
PetscErrorCode RRBCGDestroy_CUDA(RRBCGWork **);
/* Starts from x = 0 with residual r, which need not be that of a zero guess; gives the sums, for which it waits. */
PetscErrorCode RRBCGStart_Host(RRBCGWork *, const PetscScalar *r, RRBCGSums *);
PetscErrorCode RRBCGStart_CUDA(RRBCGWork *, const PetscScalar *r, RRBCGSums *);
/* The iterations, as by CGFusedBegin_CUDA() and CGFusedAdvance_CUDA(), with beta = gz. With step a call advances by one iteration.
 */
PetscErrorCode RRBCGBegin_Host(RRBCGWork *, PetscReal beta, const CGTest *);
PetscErrorCode RRBCGBegin_CUDA(RRBCGWork *, PetscReal beta, const CGTest *);
PetscErrorCode RRBCGAdvance_Host(RRBCGWork *, PetscBool step, LocalInt *count, const CGRecord **, CGStop *, LocalInt *its,
                                 PetscReal *value);
PetscErrorCode RRBCGAdvance_CUDA(RRBCGWork *, PetscBool step, LocalInt *count, const CGRecord **, CGStop *, LocalInt *its,
                                 PetscReal *value);
/* The solution of the whole system, from the r that was given to the start; with add it is added to what x has. */
PetscErrorCode RRBCGSolution_Host(RRBCGWork *, const PetscScalar *r, PetscBool add, PetscScalar *x);
PetscErrorCode RRBCGSolution_CUDA(RRBCGWork *, const PetscScalar *r, PetscBool add, PetscScalar *x);
/* The residual of the whole system that is left. */
PetscErrorCode RRBCGResidual_Host(RRBCGWork *, PetscScalar *r);
PetscErrorCode RRBCGResidual_CUDA(RRBCGWork *, PetscScalar *r);
