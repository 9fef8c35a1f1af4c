/*
   What the PETSc faces of CGFUSED and RRBCG share: what norms, tests and stops of fused.h are to a KSP, and access to vectors
   where a solve runs.
*/
#pragma once

#include <petsc/private/kspimpl.h>

#include "fused.h"
#include "entry.h"

/* ----------------------------------- norms, tests and stops ----------------------------------- */

/*
   Sets up the preconditioner of a KSP anew where its matrix has changed, for a solve that does not call PCApply(). Before
   PETSc 3.26 KSPSolve() leaves this to PCApply(), unless the program has called KSPSetOperators().
*/
PetscErrorCode CGRefreshPreconditioner(KSP);

/*
   After an error in a solve: ends what KSPSolve() has begun before it, which PETSc leaves as it is. Without this PCPreSolve() is an
   error after two solves that were, and b stays locked for the program.
*/
PetscErrorCode CGLeaveSolve(KSP);

/*
   The vectors of a solve have the size of the matrix, and so have those that the KSP works with, which it keeps from another matrix
   until KSPReset(): anything else is an error.
*/
PetscErrorCode CGCheckSizes(KSP);

/*
   The vectors of a program that has them on the host though its matrix is a MATAIJCUSPARSE on the GPU, for the time of a solve that
   works with copies of them on the GPU: MatMult() takes a vector of the host there for what it was at an earlier product
   (docs/known-faults.md). They are null where the KSP works with the program's vectors themselves. Leave puts them back; it brings
   them the solution unless the solve was an error. Collective.
*/
struct CGVectors {
  Vec b = nullptr, x = nullptr;
};
PetscErrorCode CGTakeVectors(KSP, CGVectors *);
PetscErrorCode CGLeaveVectors(KSP, PetscErrorCode, CGVectors *);

/* A solve that can be an error and leaves the KSP ready for another one then. */
template <PetscErrorCode (*Solve)(KSP)>
PetscErrorCode CGSolve(KSP ksp)
{
  CGVectors theirs;

  PetscFunctionBegin;
  PetscErrorCode code = CGCheckSizes(ksp);
  if (!code) code = CGTakeVectors(ksp, &theirs);
  if (!code) code = CallGuarded(Solve, ksp);
  code = CGLeaveVectors(ksp, code, &theirs);
  if (code) (void)CGLeaveSolve(ksp);
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

CGNorm CGNormOf(KSP);
/* The norm of the KSP's kind, from the square nn of the norm and r.z; 0 without a norm. */
PetscReal CGNormFrom(KSP, PetscReal nn, PetscReal rz);
/* The test of the KSP. Where the host tests each iteration instead, it is one that nothing passes. */
CGTest CGTestOf(KSP, PetscBool by_host);
/*
   Why the host has to see each iteration before the next one changes the solution, or null: a convergence test of the program,
   which ends the solve where it says so, or a monitor that may look at the solution. Tests that the device makes itself, and
   monitors that are known to look at the norm alone, can have it late.
*/
const char *CGWhyOneByOne(KSP);
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

/* -------------------------------- vectors where the solve runs -------------------------------- */

/* The rows of the rank, and the entries from one column of a dense matrix to the next, if they can be counted with 32 bits. */
PetscErrorCode CGGetLocalSize(Vec, LocalInt *n);
PetscErrorCode CGGetLeadingSize(Mat, LocalInt *ld);

/*
   KSPSetWorkVecs() without the vector that it makes by MatCreateVecs() where the KSP has no solution yet. With MATMPIAIJCUSPARSE
   such a vector is set to zero on the host as well, which takes longer than all else in the set-up of PCJACOBI (PETSc 3.26.1,
   VecCreate_IMPL_Private_() of vecmpicupm_impl.hpp and Initialize_CUPMBase() of veccupmimpl.h). For a MATAIJCUSPARSE on the GPU
   they are there, too, where the solution is on the host.
*/
PetscErrorCode CGSetWorkVecs(KSP, PetscInt count);

/* The array of v on the GPU, or on the host; where it really is, if that is asked for. */
PetscErrorCode CGGetRead(PetscBool device, Vec v, const PetscScalar **array, PetscMemType *where = nullptr);
PetscErrorCode CGRestoreRead(PetscBool device, Vec v, const PetscScalar **array);
PetscErrorCode CGGetWrite(PetscBool device, Vec v, PetscScalar **array, PetscMemType *where = nullptr); /* its values are kept */
PetscErrorCode CGRestoreWrite(PetscBool device, Vec v, PetscScalar **array);

/* -------------------------------------- time and flops ---------------------------------------- */

/* What is between these two counts as time of the GPU if it runs there. */
PetscErrorCode CGTimeBegin(PetscBool device);
PetscErrorCode CGTimeEnd(PetscBool device);
PetscErrorCode CGLogFlops(PetscBool device, PetscLogDouble flops);
