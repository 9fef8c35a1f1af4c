/*
   Whether a residual that a recurrence says to be small is small. The recurrences of conjugate gradients and of GMRES never look at
   b - A x again: rounding makes them lose it, and with a preconditioner that is not the same linear map each time, or that is as
   large as a nearly singular block makes it, GMRES loses it early. So a solve that is to end well computes the residual once more,
   from the solution, and goes on where it is not what the recurrence says.
*/
#pragma once

#include <petsc/private/kspimpl.h>

/* The residual confirms the norm of a recurrence if its own norm is larger by this factor at most. */
constexpr PetscReal kConfirmed = 1.01;

/* Whether the KSP has ended well because of a norm, which is a claim that a residual can refute. */
bool ClaimsNorm(KSP);
/* The same of a conjugate gradient method for this reason. */
bool ClaimsNormOfCG(KSP, KSPConvergedReason);

/*
   Whether r.z, the square of the norm that the KSP tests, may vanish where the residual does not: a null space of the matrix is
   taken out of z, and r has a part in it where the right-hand side does not fit. The two may even have a negative product.
*/
PetscErrorCode MayVanish(KSP, bool *may);

/*
   Whether rounding explains that the residual has a norm, of the KSP's kind, by so much larger than that of the recurrence: the
   digits of the solution end where they change b - A x by about as much, so that no product with A tells more. The product rounds
   by as much, too, in directions that M may make larger than those of A times something. Takes a product, up to two applications of
   M where the norm has one, and t and w for work. Collective.
*/
PetscErrorCode IsRounding(KSP, PetscReal more, Vec t, Vec w, bool *is);

/*
   Whether the residual r = b - A x, of an x that the KSP has ended well with, is one that this end claims: its norm, of the KSP's
   kind, is that of the recurrence, or the test takes it, or it is rounding. For the natural norm it is that of r without its part
   in a null space of the matrix. The KSP has another reason if the norm is not finite. t and w are for work, and w may be r.
   Collective.
*/
PetscErrorCode ConfirmsClaim(KSP, Vec r, Vec t, Vec w, PetscReal *norm, bool *confirms);
/* The same with that norm. */
PetscErrorCode ConfirmsNorm(KSP, PetscReal norm, Vec t, Vec w, bool *confirms);
/* What comes of a claim that has not been confirmed, by a residual of this norm where the solve began with the other one: a reason
   for the end, or none, and the solve goes on. */
PetscErrorCode AfterRefutedClaim(KSP, PetscReal norm, PetscReal began);

/*
   Whether M may be another linear map each time that it is applied: one of PETSc's preconditioners with an iterating solver inside,
   or one of which nothing is known. `iterates` is for the former. Collective.
*/
enum class Changes { NEVER, MAYBE, ITERATES };
PetscErrorCode PreconditionerChanges(PC, Changes *);
