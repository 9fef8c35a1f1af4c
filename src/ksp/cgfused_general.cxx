/*
   The fused conjugate gradient method where the host decides about every iteration: the general path, with the products of any
   matrix and preconditioner.
*/
#include "ranks/agree.h"
#include "cgfusedimpl.h"
#include "pc/acting.h"

/* The trust region of cgfused_trust.cxx in a solve */
struct HostTrust {
  PetscReal          radius;                              /* 0: there is none */
  PetscReal          target;                              /* not negative: there is none */
  PetscReal          xx        = 0;                       /* x.x, where there is a radius */
  PetscReal          objective = 0;                       /* of x */
  KSPConvergedReason last      = KSP_CONVERGED_ITERATING; /* the step that was made is the last one, for this reason */
};

/* What a solve works with. */
struct HostSolve {
  KSP       ksp;
  Mat       A;
  PetscBool single; /* one reduction an iteration: there is s = A z, and w = A p comes from a recurrence */
  PetscBool device; /* the vectors are on the GPU */
  Vec       x, rhs, r, z, p, s, w;

  /* the scalars of KSPCG; "before" is the iteration before */
  PetscReal beta = 0, beta_before = 1, delta = 0, a = 0, a_before = 1, b = 0;

  HostTrust trust;

  PetscErrorCode (*set_size)(PC, PetscReal) = nullptr; /* of a preconditioner that has to know how large r is on all ranks */
};

/* ------------------------------------- vector operations -------------------------------------- */

/* The sums z.r, z.z, r.r and, where s is given, z.s over all ranks. */
static PetscErrorCode Dots_CGFused(const HostSolve &cg, Vec z, Vec r, Vec s, PetscReal sums[4])
{
  CGFusedWork *const work = ((KSP_CGFused *)cg.ksp->data)->work;
  const PetscScalar *z_array, *r_array, *s_array = nullptr;
  LocalInt           n;

  PetscFunctionBegin;
  PetscCall(FusedGetLocalSize(z, &n));
  PetscCall(FusedGetRead(cg.device, z, &z_array));
  PetscCall(FusedGetRead(cg.device, r, &r_array));
  if (s) PetscCall(FusedGetRead(cg.device, s, &s_array));
  PetscCall(FusedTimeBegin(cg.device));
  if (cg.device) PetscCall(CGDots_CUDA(work, n, z_array, r_array, s_array, sums));
  else PetscCall(CGDots_Host(n, z_array, r_array, s_array, sums));
  PetscCall(FusedTimeEnd(cg.device));
  PetscCall(FusedLogFlops(cg.device, (s ? 8. : 6.) * n));
  if (s) PetscCall(FusedRestoreRead(cg.device, s, &s_array));
  PetscCall(FusedRestoreRead(cg.device, r, &r_array));
  PetscCall(FusedRestoreRead(cg.device, z, &z_array));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, s ? 4 : 3, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)cg.ksp)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x = x + a p, r = r - a w */
static PetscErrorCode Step_CGFused(const HostSolve &cg)
{
  const PetscScalar *p, *w;
  PetscScalar       *x, *r;
  LocalInt           n;

  PetscFunctionBegin;
  PetscCall(FusedGetLocalSize(cg.x, &n));
  PetscCall(FusedGetRead(cg.device, cg.p, &p));
  PetscCall(FusedGetRead(cg.device, cg.w, &w));
  PetscCall(FusedGetWrite(cg.device, cg.x, &x));
  PetscCall(FusedGetWrite(cg.device, cg.r, &r));
  PetscCall(FusedTimeBegin(cg.device));
  PetscCall((cg.device ? CGStep_CUDA : CGStep_Host)(n, cg.a, p, w, x, r));
  PetscCall(FusedTimeEnd(cg.device));
  PetscCall(FusedLogFlops(cg.device, 4. * n));
  PetscCall(FusedRestoreWrite(cg.device, cg.r, &r));
  PetscCall(FusedRestoreWrite(cg.device, cg.x, &x));
  PetscCall(FusedRestoreRead(cg.device, cg.w, &w));
  PetscCall(FusedRestoreRead(cg.device, cg.p, &p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* p = z + b p, and with a single reduction w = s + b w */
static PetscErrorCode Direction_CGFused(const HostSolve &cg)
{
  const PetscScalar *z, *s = nullptr;
  PetscScalar       *p, *w = nullptr;
  LocalInt           n;

  PetscFunctionBegin;
  PetscCall(FusedGetLocalSize(cg.z, &n));
  PetscCall(FusedGetRead(cg.device, cg.z, &z));
  PetscCall(FusedGetWrite(cg.device, cg.p, &p));
  if (cg.single) PetscCall(FusedGetRead(cg.device, cg.s, &s));
  if (cg.single) PetscCall(FusedGetWrite(cg.device, cg.w, &w));
  PetscCall(FusedTimeBegin(cg.device));
  PetscCall((cg.device ? CGDirection_CUDA : CGDirection_Host)(n, cg.b, z, p, s, w));
  PetscCall(FusedTimeEnd(cg.device));
  PetscCall(FusedLogFlops(cg.device, (cg.single ? 4. : 2.) * n));
  if (cg.single) PetscCall(FusedRestoreWrite(cg.device, cg.w, &w));
  if (cg.single) PetscCall(FusedRestoreRead(cg.device, cg.s, &s));
  PetscCall(FusedRestoreWrite(cg.device, cg.p, &p));
  PetscCall(FusedRestoreRead(cg.device, cg.z, &z));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- steps of a solve -------------------------------------- */

static PetscErrorCode CreateVectors_CGFused(KSP ksp, HostSolve *cg)
{
  KSP_CGFused *const fused = (KSP_CGFused *)ksp->data;
  PetscBool          x_device;

  PetscFunctionBegin;
  cg->ksp          = ksp;
  cg->trust.radius = fused->trust.radius;
  cg->trust.target = fused->trust.target;
  PetscCall(PCGetOperators(ksp->pc, &cg->A, nullptr));
  PetscCall(CGFusedSingleReduction(ksp, &cg->single));
  if (cg->trust.radius) cg->single = PETSC_FALSE; /* x.p and p.p are needed before the step, with p */
  PetscCheck(!cg->trust.radius || ksp->guess_zero, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "A trust region is one around 0, where the solve has to begin: use no initial guess");
  cg->x   = ksp->vec_sol;
  cg->rhs = ksp->vec_rhs;
  cg->r   = ksp->work[0];
  cg->z   = ksp->work[1];
  cg->p   = ksp->work[2];
  cg->s   = cg->single ? ksp->work[3] : nullptr;
  cg->w   = cg->single ? ksp->work[4] : cg->z; /* z is not needed any more when w is made */
  PetscCall(VecIsOnDevice(cg->r, &cg->device));
  PetscCall(VecIsOnDevice(cg->x, &x_device));
  if (!x_device) cg->device = PETSC_FALSE;
  if (!cg->device) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)ksp), CGFusedNeedWork(fused), "make room on its GPU for the solver"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether x has reached the objective: then there is no other step. */
static PetscErrorCode TestObjective(HostSolve &cg)
{
  PetscFunctionBegin;
  if (cg.trust.target >= 0 || cg.trust.objective >= cg.trust.target || cg.trust.last) PetscFunctionReturn(PETSC_SUCCESS);
  cg.trust.last = KSP_CONVERGED_ATOL;
  PetscCall(PetscInfo(cg.ksp, "the objective %g is below its target\n", (double)cg.trust.objective));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   r = b - A x, which is not finite where the preconditioner has failed, and the objective, if it is needed. Where the right-hand
   side has been seen not to fit the null space of the matrix, r is without its part in that.
*/
static PetscErrorCode FirstResidual(HostSolve &cg)
{
  MatNullSpace space;
  PetscReal    norm;

  PetscFunctionBegin;
  if (cg.ksp->guess_zero) PetscCall(VecCopy(cg.rhs, cg.r));
  else {
    if (cg.device) PetscCall(DeviceFence_CUDA());
    PetscCall(KSP_MatMult(cg.ksp, cg.A, cg.x, cg.r));
    if (cg.device) PetscCall(DeviceFence_CUDA());
    PetscCall(VecAYPX(cg.r, -1, cg.rhs));
    if (cg.trust.target < 0) PetscCall(CGFusedModel(cg.ksp, &norm, &cg.trust.objective));
    PetscCall(TestObjective(cg));
  }
  PetscCall(MatGetNullSpace(cg.A, &space));
  if (space && ((const KSP_CGFused *)cg.ksp->data)->solve.fits) {
    if (cg.device) PetscCall(DeviceFence_CUDA());
    PetscCall(MatNullSpaceRemove(space, cg.r));
    if (cg.device) PetscCall(DeviceFence_CUDA());
  }
  PetscCall(VecFlag(cg.r, (PetscInt)(cg.ksp->reason == KSP_DIVERGED_PC_FAILED)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   z = M r and the sums z.r and (norm)^2; with a single reduction also s = A z and z.s. Since z is made before the norm is tested,
   the norm and beta are one reduction.
*/
static PetscErrorCode Precondition_CGFused(const HostSolve &cg, PetscReal sums[3])
{
  PetscReal dots[4];

  PetscFunctionBegin;
  PetscCall(KSP_PCApply(cg.ksp, cg.r, cg.z));
  if (cg.single) PetscCall(KSP_MatMult(cg.ksp, cg.A, cg.z, cg.s));
  PetscCall(Dots_CGFused(cg, cg.z, cg.r, cg.s, dots));
  if (cg.set_size) PetscCall(cg.set_size(PCActing(cg.ksp->pc), PetscSqrtReal(dots[2]))); /* the next residual is about as large */
  sums[0] = dots[0];
  sums[1] = cg.ksp->normtype == KSP_NORM_PRECONDITIONED ? dots[1] : dots[2];
  sums[2] = dots[3];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* beta, and the norm after i iterations with all that follows from it; the KSP has a reason if iteration i is not to be made. */
static PetscErrorCode Test_CGFused(HostSolve &cg, PetscInt i, const PetscReal sums[3])
{
  const KSP       ksp     = cg.ksp;
  CGRange        &range   = ((KSP_CGFused *)ksp->data)->solve.range;
  const PetscInt  before  = ((KSP_CGFused *)ksp->data)->solve.before;
  const PetscBool natural = (PetscBool)(ksp->normtype == KSP_NORM_NATURAL);
  PetscReal       norm;

  PetscFunctionBegin;
  cg.beta = sums[0];
  if (natural) KSPCheckDot(ksp, cg.beta);
  norm = i && !natural && ksp->chknorm >= i + 1 ? 0 : CGNormFrom(ksp, sums[1], cg.beta);
  KSPCheckNorm(ksp, norm);
  if (!i && ksp->normtype != KSP_NORM_NONE) range.See(norm);
  if (!i) range.See(cg.beta);
  PetscCall(CGFusedTestNorm(ksp, i, norm));
  if (cg.trust.last) ksp->reason = cg.trust.last;
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  KSPCheckDot(ksp, cg.beta);
  if (i && before + i >= ksp->max_it) {
    ksp->reason = KSP_DIVERGED_ITS;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ksp->its = before + i + 1;
  if (cg.beta == 0) {
    range.End(CG_BETA_ZERO);
    PetscCall(CGSetReason(ksp, CG_BETA_ZERO, i + 1, cg.beta));
  } else if ((i && cg.beta * cg.beta_before < 0) || (cg.trust.radius && cg.beta < 0))
    PetscCall(CGSetReason(ksp, CG_INDEFINITE_PC, i + 1, cg.beta));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* b, p and, with a single reduction, w; in the first iteration p = z and w = s. */
static PetscErrorCode NextDirection(HostSolve &cg, PetscInt i)
{
  PetscFunctionBegin;
  if (i) cg.b = cg.beta / cg.beta_before;
  if (i) PetscCall(Direction_CGFused(cg));
  else {
    PetscCall(VecCopy(cg.z, cg.p));
    if (cg.single) PetscCall(VecCopy(cg.s, cg.w));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a where there is a trust region, by p.w, p.p, w.w and p.x. A step goes as far as its boundary, and is the last one then. */
static PetscErrorCode StepInRegion(HostSolve &cg, const PetscReal sums[4])
{
  const PetscReal pp = sums[1], xp = sums[3];
  const bool      convex = cg.delta > 0;

  PetscFunctionBegin;
  cg.a = convex ? cg.beta / cg.delta : 0;
  if (!convex || PetscSqrtReal(cg.trust.xx + cg.a * (2 * xp + cg.a * pp)) >= cg.trust.radius) {
    cg.a          = CGFusedStepToBoundary(cg.trust.radius, cg.trust.xx, xp, pp);
    cg.trust.last = convex ? KSP_CONVERGED_STEP_LENGTH : KSP_CONVERGED_NEG_CURVE;
    PetscCall(PetscInfo(cg.ksp, "on the boundary of the trust region, %s\n",
                        convex ? "which the step would leave" : "along a direction whose curvature is not positive"));
  }
  cg.trust.xx = PetscMax(cg.trust.xx + cg.a * (2 * xp + cg.a * pp), 0);
  KSPCheckDot(cg.ksp, cg.a);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A single reduction gets p.w by a recurrence that needs a symmetric A. Where rows couple one way alone, as boundary rows whose
   columns stay do, it is wrong, and a solve that KSPCG would end well diverges. Therefore p.w itself is computed now and then, in
   iterations 1, 2, 4, 8 and so on and where the recurrence would end the solve. If the recurrence is off by so much of its terms,
   there are two reductions from then on.
*/
constexpr PetscReal kRecurrenceError = 1e-5;

static PetscErrorCode CheckRecurrence(HostSolve &cg, PetscReal delta_before, PetscReal zs)
{
  PetscReal dots[4];

  PetscFunctionBegin;
  PetscCall(Dots_CGFused(cg, cg.p, cg.w, nullptr, dots));
  const PetscReal delta = dots[0], terms = PetscAbsReal(zs) + cg.b * cg.b * PetscAbsReal(delta_before);
  if (PetscAbsReal(delta - cg.delta) <= kRecurrenceError * terms) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscInfo(cg.ksp, "p.Ap is %g by the recurrence of a single reduction, and %g in truth: from here on two reductions\n",
                      (double)cg.delta, (double)delta));
  cg.delta  = delta;
  cg.single = PETSC_FALSE;
  cg.s      = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* delta = p.w and a; without a single reduction w = A p. The KSP has a reason if there is no step. */
static PetscErrorCode StepLength(HostSolve &cg, PetscInt i, const PetscReal sums[3])
{
  const KSP       ksp = cg.ksp;
  PetscReal       dots[4];
  const PetscReal delta_before = cg.delta, beta = cg.beta;
  const auto      indefinite = [&] { return cg.delta == 0 || (i && PetscSign(cg.delta) * PetscSign(delta_before) < 0); };

  PetscFunctionBegin;
  if (cg.single) {
    cg.delta = i ? sums[2] - cg.b * cg.b * delta_before : sums[2]; /* beta^2 might overflow or vanish */
    if (i && ((i & (i - 1)) == 0 || indefinite())) PetscCall(CheckRecurrence(cg, delta_before, sums[2]));
  } else {
    PetscCall(KSP_MatMult(ksp, cg.A, cg.p, cg.w));
    PetscCall(Dots_CGFused(cg, cg.p, cg.w, cg.trust.radius ? cg.x : nullptr, dots));
    cg.delta = dots[0];
  }
  KSPCheckDot(ksp, cg.delta);
  cg.beta_before = beta;
  if (cg.trust.radius) PetscCall(StepInRegion(cg, dots));
  else if (indefinite()) PetscCall(CGSetReason(ksp, CG_INDEFINITE_MAT, i + 1, cg.delta));
  else cg.a = beta / cg.delta;
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  if (!i) ((KSP_CGFused *)ksp->data)->solve.range.Step(cg.a);
  if (!cg.trust.last) PetscCall(CGFusedLanczosRow(ksp, i, cg.a, cg.a_before, cg.b));
  cg.a_before = cg.a;
  cg.trust.objective += cg.a * (cg.a * cg.delta / 2 - beta); /* p.r = beta */
  PetscCall(TestObjective(cg));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the solve ------------------------------------------ */

PetscErrorCode CGFusedSolveByHost(KSP ksp)
{
  HostSolve cg;
  PetscReal sums[3] = {};

  PetscFunctionBegin;
  PetscCall(CreateVectors_CGFused(ksp, &cg));
  if (cg.device) PetscCall(FusedCheckStream_CUDA(PetscObjectComm((PetscObject)ksp)));
  PetscCall(FirstResidual(cg));
  PetscCall(PetscObjectQueryFunction((PetscObject)PCActing(ksp->pc), kSizeQuery, &cg.set_size));
  if (cg.set_size) PetscCall(cg.set_size(PCActing(ksp->pc), -1)); /* the solve before may have set it */
  for (PetscInt i = 0;; i++) {
    PetscCall(Precondition_CGFused(cg, sums));
    PetscCall(Test_CGFused(cg, i, sums));
    if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(NextDirection(cg, i));
    PetscCall(StepLength(cg, i, sums));
    if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(Step_CGFused(cg));
  }
}
