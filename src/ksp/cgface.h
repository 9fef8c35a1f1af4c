/* What the PETSc faces of CGFUSED and RRBCG share: what norms and stops of fused.h are to a KSP. */
#pragma once

#include "fusedimpl.h"

/* The norm of the KSP's kind, from the square nn of the norm and r.z; 0 without a norm. */
PetscReal CGNormFrom(KSP, PetscReal nn, PetscReal rz);
/* KSPCG returns before it logs a norm that is not finite: whether this stop in iteration `its` has left iteration n without. */
bool CGHasNoNorm(CGNorm, CGStop, PetscInt its, PetscInt n);
/*
   Sets the reason that KSPCG gives for this stop after `its` iterations, and makes the error where there is one to be made; value
   is the scalar that the stop is about. After CG_TEST the convergence test of the KSP decides.
*/
PetscErrorCode CGSetReason(KSP, CGStop, PetscInt its, PetscReal value);

/*
   Whether the numbers with which a solve begins are so small or so large that sums, or the solution, may vanish or overflow. Those
   that follow differ from them by less than there is room for.
*/
struct CGRange {
  bool left       = false;
  bool stepped    = false; /* the solution is another one than the guess */
  bool orthogonal = false; /* the solve has ended because r.z = 0 */

  void See(PetscReal x)
  {
    if (!(PetscAbsReal(x) > 0x1p-200 && PetscAbsReal(x) < 0x1p200)) left = true;
  }
  void Step(PetscReal a)
  {
    See(a);
    stepped = true;
  }
  void End(CGStop stop)
  {
    if (stop == CG_BETA_ZERO) orthogonal = true;
  }
};

/*
   After a solve that has converged. If it has left the range, it gets the reason KSP_DIVERGED_NANORINF or KSP_DIVERGED_BREAKDOWN if
   the solution has overflowed or vanished, or if the squares or the products in the sum that it has stopped at vanish. If r.z = 0
   for an r that is not 0, the reason is KSP_DIVERGED_INDEFINITE_PC, or KSP_DIVERGED_BREAKDOWN where the preconditioner maps r to 0,
   as it may do with rows of zeros, unless r is in the null space of the matrix. r is the residual by the recurrence, and z becomes
   something else. Collective.
*/
PetscErrorCode CGCheckConverged(KSP, const CGRange &, Vec r, Vec z);
