/*
   The trust region of the fused conjugate gradient method, as Steihaug's and Toint's: x minimises the model

     m(x) = x^T A x / 2 - b^T x   for   ||x|| <= radius, in the 2-norm,

   along the directions of the method, which ends on the boundary where a step would leave the region, or where the curvature along
   a direction is not positive. From x = 0 the norms of the iterates grow, and m falls with each step.

   References:
   T. Steihaug, The conjugate gradient method and trust regions in large scale optimization, SIAM J. Numer. Anal. 20 (1983) 626-637
   P. L. Toint, Towards an efficient sparsity exploiting Newton method for minimization, in: Sparse matrices and their uses (1981)
*/
#include <cmath>

#include "entry.h"
#include "cgfusedimpl.h"

/* ------------------------------------ PETSc's methods of CG ------------------------------------ */

static PetscErrorCode KSPCGSetRadius_CGFused(KSP ksp, PetscReal radius)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  PetscCheck(radius >= 0 && !PetscIsInfReal(radius), PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_OUTOFRANGE,
             "The radius of the trust region is %g, but must be positive and finite, or 0 for none", (double)radius);
  cg->trust.radius      = radius;
  cg->trust.wants_model = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGSetObjectiveTarget_CGFused(KSP ksp, PetscReal objective)
{
  PetscFunctionBegin;
  ((KSP_CGFused *)ksp->data)->trust.target = objective;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckModel(KSP ksp)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  PetscCheck(cg->trust.has_model, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ORDER,
             "There is no solve whose norm and objective were to be kept: call KSPCGSetRadius() before KSPSolve(), with 0 for no "
             "trust region");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGGetNormD_CGFused(KSP ksp, PetscReal *norm)
{
  PetscFunctionBegin;
  PetscCall(CheckModel(ksp));
  *norm = ((KSP_CGFused *)ksp->data)->trust.norm_x;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPCGGetObjFcn_CGFused(KSP ksp, PetscReal *objective)
{
  PetscFunctionBegin;
  PetscCall(CheckModel(ksp));
  *objective = ((KSP_CGFused *)ksp->data)->trust.objective;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedComposeTrust(KSP ksp, PetscBool compose)
{
  PetscObject object = (PetscObject)ksp;

  PetscFunctionBegin;
  PetscCall(PetscObjectComposeFunction(object, "KSPCGSetRadius_C", compose ? Entry<KSPCGSetRadius_CGFused> : nullptr));
  PetscCall(
    PetscObjectComposeFunction(object, "KSPCGSetObjectiveTarget_C", compose ? Entry<KSPCGSetObjectiveTarget_CGFused> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "KSPCGGetNormD_C", compose ? Entry<KSPCGGetNormD_CGFused> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "KSPCGGetObjFcn_C", compose ? Entry<KSPCGGetObjFcn_CGFused> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the model ------------------------------------------ */

PetscErrorCode CGFusedModel(KSP ksp, PetscReal *norm, PetscReal *objective)
{
  PetscScalar b_x, r_x;

  PetscFunctionBegin;
  *objective = 0;
  PetscCall(VecNorm(ksp->vec_sol, NORM_2, norm));
  if (*norm == 0) PetscFunctionReturn(PETSC_SUCCESS); /* where the preconditioner has failed r is not finite */
  PetscCall(VecDot(ksp->vec_rhs, ksp->vec_sol, &b_x));
  PetscCall(VecDot(ksp->work[0], ksp->vec_sol, &r_x));
  *objective = -(b_x + r_x) / 2; /* A x = b - r */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscReal CGFusedStepToBoundary(PetscReal radius, PetscReal xx, PetscReal xp, PetscReal pp)
{
  const PetscReal norm_x = PetscSqrtReal(xx), norm_p = PetscSqrtReal(pp);
  const PetscReal along  = xp / norm_p; /* the part of x along p; the rest of the way across is `across` at most */
  const PetscReal across = PetscSqrtReal(PetscMax(radius - norm_x, 0)) * PetscSqrtReal(radius + norm_x);
  const PetscReal length = std::hypot(along, across);

  /* the positive root of s^2 + 2 along s = across^2, without cancellation, and without squares that overflow */
  return (along > 0 ? across * (across / (length + along)) : length - along) / norm_p;
}
