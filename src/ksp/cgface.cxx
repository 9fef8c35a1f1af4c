/* What the PETSc faces of CGFUSED and RRBCG share. */
#include <cmath>
#include <limits>

#include "cgface.h"

/* ------------------------------------- norms and stops ---------------------------------------- */

PetscReal CGNormFrom(KSP ksp, PetscReal nn, PetscReal rz)
{
  if (ksp->normtype == KSP_NORM_NONE) return 0;
  return PetscSqrtReal(ksp->normtype == KSP_NORM_NATURAL ? PetscAbsReal(rz) : nn);
}

bool CGHasNoNorm(CGNorm norm, CGStop stop, PetscInt its, PetscInt n)
{
  return n == its && (stop == CG_NORM_NOT_FINITE || (stop == CG_BETA_NOT_FINITE && norm == CG_NORM_NATURAL));
}

PetscErrorCode CGSetReason(KSP ksp, CGStop stop, PetscInt its, PetscReal value)
{
  PetscFunctionBegin;
  switch (stop) {
  case CG_TEST:
    PetscCall((*ksp->converged)(ksp, its, value, &ksp->reason, ksp->cnvP));
    PetscCheck(ksp->reason, PetscObjectComm((PetscObject)ksp), PETSC_ERR_PLIB,
               "The device has stopped in iteration %" PetscInt_FMT " with norm %g, where the test would go on", its,
               (double)value);
    break;
  case CG_NORM_NOT_FINITE: KSPCheckNorm(ksp, value); break;
  case CG_BETA_NOT_FINITE:
  case CG_DELTA_NOT_FINITE: KSPCheckDot(ksp, value); break;
  case CG_BETA_ZERO:
    ksp->reason = KSP_CONVERGED_ATOL;
    PetscCall(PetscInfo(ksp, "converged due to beta = 0\n"));
    break;
  case CG_INDEFINITE_PC:
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "Diverged due to indefinite preconditioner, beta %g", (double)value);
    ksp->reason = KSP_DIVERGED_INDEFINITE_PC;
    PetscCall(PetscInfo(ksp, "diverging due to indefinite preconditioner\n"));
    break;
  case CG_INDEFINITE_MAT:
    if (KSPConvergesByNegativeCurvature(ksp)) {
      PetscCall(PetscInfo(ksp, "converged due to negative curvature: %g\n", (double)value));
      ksp->reason = KSP_CONVERGED_NEG_CURVE;
      break;
    }
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "Diverged due to indefinite matrix, delta %g", (double)value);
    ksp->reason = KSP_DIVERGED_INDEFINITE_MAT;
    PetscCall(PetscInfo(ksp, "diverging due to indefinite matrix\n"));
    break;
  default: ksp->reason = KSP_DIVERGED_ITS;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------- beyond the range of numbers, both ways --------------------------- */

static PetscErrorCode Diverged_CGFace(KSP ksp, KSPConvergedReason reason, const char why[])
{
  PetscFunctionBegin;
  ksp->reason = reason;
  PetscCall(PetscInfo(ksp, "%s: scale the matrix or the right-hand side\n", why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the solution, which is another one than the guess, is finite, and has digits unless it is 0 as b is. */
static PetscErrorCode CheckSolution(KSP ksp, Vec z)
{
  PetscReal   norm_x, norm_b;
  PetscScalar zero;

  PetscFunctionBegin;
  PetscCall(VecSet(z, 0));
  PetscCall(VecDot(ksp->vec_sol, z, &zero));
  if (zero != 0) { /* NaN, from an infinite entry */
    PetscCall(Diverged_CGFace(ksp, KSP_DIVERGED_NANORINF, "the solution overflows"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecNorm(ksp->vec_sol, NORM_INFINITY, &norm_x));
  if (norm_x >= std::numeric_limits<PetscReal>::min()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecNorm(ksp->vec_rhs, NORM_INFINITY, &norm_b));
  if (norm_b > 0) PetscCall(Diverged_CGFace(ksp, KSP_DIVERGED_BREAKDOWN, "the solution is too small for numbers"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Divides v by 2^exponent, so that its largest entry is about 1, unless it is zero. */
static PetscErrorCode Normalize_CGFace(Vec v, int *exponent, bool *zero)
{
  PetscReal largest;

  PetscFunctionBegin;
  PetscCall(VecNorm(v, NORM_INFINITY, &largest));
  *zero     = largest == 0;
  *exponent = *zero ? 0 : PetscMax(std::ilogb(largest), -1000);
  PetscCall(VecScale(v, std::ldexp(1., -*exponent)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Sets the reason where r.z has vanished and more is left of the right-hand side than what is in the null space of the matrix, if
   there is one, and rounding; without a null space r.z = 0 itself is a reason. zero: z is 0 beside r. z becomes something else.
*/
static PetscErrorCode CheckUnseen(KSP ksp, Vec r, Vec z, bool zero, bool rounded)
{
  constexpr PetscReal kRounding = 100 * PETSC_MACHINE_EPSILON;
  PetscReal           norm, norm_r, norm_b;
  Mat                 A;
  MatNullSpace        null_space;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetNullSpace(A, &null_space));
  PetscCall(VecNorm(r, NORM_INFINITY, &norm_r));
  PetscCall(VecNorm(ksp->vec_rhs, NORM_INFINITY, &norm_b));
  PetscCall(VecCopy(r, z));
  if (null_space) PetscCall(MatNullSpaceRemove(null_space, z));
  PetscCall(VecNorm(z, NORM_INFINITY, &norm));
  if ((null_space || rounded) && norm <= kRounding * (null_space ? PetscMax(norm_r, norm_b) : norm_b))
    PetscFunctionReturn(PETSC_SUCCESS);
  ksp->reason = zero ? KSP_DIVERGED_BREAKDOWN : KSP_DIVERGED_INDEFINITE_PC;
  PetscCall(PetscInfo(ksp, "%g is left of a right-hand side of %g: %s\n", (double)norm, (double)norm_b,
                      zero ? "it is where the preconditioner is 0"
                           : "residual and preconditioned residual are orthogonal: indefinite preconditioner"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGCheckConverged(KSP ksp, const CGRange &range, Vec r, Vec z)
{
  constexpr int kVanished = -300; /* r.z of a residual that is larger vanishes only where z is nothing beside r */
  const bool    tested    = ksp->converged == KSPConvergedDefault && ksp->normtype != KSP_NORM_NONE;
  const bool    by_norm   = !range.orthogonal && tested && ksp->rnorm <= ksp->ttol;
  const bool    square    = by_norm && ksp->normtype != KSP_NORM_NATURAL;
  PetscReal     dot;
  int           r_exponent = 0, z_exponent = 0;
  bool          zero_r, zero; /* r and z are */

  PetscFunctionBegin;
  if (!range.left && !range.orthogonal) PetscFunctionReturn(PETSC_SUCCESS);
  if (range.left && range.stepped) PetscCall(CheckSolution(ksp, z));
  if (ksp->reason < 0 || (!by_norm && !range.orthogonal)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Normalize_CGFace(r, &r_exponent, &zero_r));
  if (by_norm && ksp->normtype == KSP_NORM_UNPRECONDITIONED) PetscCall(VecCopy(r, z));
  else PetscCall(KSP_PCApply(ksp, r, z));
  PetscCall(Normalize_CGFace(z, &z_exponent, &zero));
  PetscCall(VecDot(square ? z : r, z, &dot));
  PetscCall(VecScale(r, std::ldexp(1., r_exponent)));
  const int exponent = 2 * r_exponent + (square ? 2 : 1) * z_exponent; /* the sum is dot 2^exponent */
  if (by_norm) {
    const PetscReal norm = std::ldexp(PetscSqrtReal(std::ldexp(PetscAbsReal(dot), exponent % 2)), exponent / 2);

    if (norm > 1.001 * ksp->ttol)
      PetscCall(Diverged_CGFace(ksp, KSP_DIVERGED_BREAKDOWN, "the squares of the residual are too small for numbers"));
  } else if (dot != 0 && std::ilogb(dot) + exponent < std::numeric_limits<PetscReal>::min_exponent) {
    if (range.left) PetscCall(Diverged_CGFace(ksp, KSP_DIVERGED_BREAKDOWN, "the residual is too small for products with it"));
    else if (r_exponent > kVanished) PetscCall(CheckUnseen(ksp, r, z, true, true));
  } else if (!zero_r) PetscCall(CheckUnseen(ksp, r, z, zero, false));
  PetscFunctionReturn(PETSC_SUCCESS);
}
