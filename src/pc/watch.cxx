/* Solves that a preconditioner watches. */
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <cmath>

#include "entry.h"
#include "sparse/csr_mat.h"
#include "watch.h"

static constexpr char kSolve[] = "FinePCWatchedSolve_C";

/* Whether the way in which a solve ends says something about the preconditioner. */
static PetscErrorCode IsWatched(KSP ksp, bool *watched)
{
  PetscBool once;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPPREONLY, &once));
  *watched = !once && ksp->normtype != KSP_NORM_NONE && ksp->converged != KSPConvergedSkip;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* In the place of the KSP's own solve, which it puts back first. */
static PetscErrorCode KSPSolve_Watched(KSP ksp)
{
  SolveFn       solve;
  AroundSolveFn around;

  PetscFunctionBegin;
  PetscCall(PetscObjectQueryFunction((PetscObject)ksp, kSolve, &solve));
  PetscCheck(solve, PetscObjectComm((PetscObject)ksp), PETSC_ERR_PLIB, "The KSP has lost its solve");
  ksp->ops->solve = solve;
  PetscCall(PetscObjectComposeFunction((PetscObject)ksp, kSolve, nullptr));
  PetscCall(PetscObjectQueryFunction((PetscObject)ksp->pc, kAroundSolve, &around));
  PetscCall(around ? (*around)(ksp->pc, ksp, solve) : (*solve)(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode WatchSolve(PC pc, KSP ksp)
{
  SolveFn kept;
  bool    watched = false;

  PetscFunctionBegin;
  PetscCall(IsWatched(ksp, &watched));
  PetscCall(PetscObjectQueryFunction((PetscObject)ksp, kSolve, &kept));
  if (!watched || kept || ksp->pc != pc) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectComposeFunction((PetscObject)ksp, kSolve, ksp->ops->solve));
  ksp->ops->solve = Entry<KSPSolve_Watched>;
  PetscFunctionReturn(PETSC_SUCCESS);
}

IterationBound::IterationBound(KSP ksp, PetscInt bound, bool of_program) : ksp_(ksp), max_it_(ksp->max_it)
{
  if (bound >= max_it_) return;
  ksp->max_it = bound;
  if (of_program) return;
  changed_ = ksp->converged == KSPConvergedDefault && ((KSPConvergedDefaultCtx *)ksp->cnvP)->convmaxits;
  if (changed_) ((KSPConvergedDefaultCtx *)ksp->cnvP)->convmaxits = PETSC_FALSE;
}

IterationBound::~IterationBound()
{
  ksp_->max_it = max_it_;
  if (changed_ && ksp_->converged == KSPConvergedDefault) ((KSPConvergedDefaultCtx *)ksp_->cnvP)->convmaxits = PETSC_TRUE;
}

SolveSettings::SolveSettings(KSP ksp) :
    max_it(ksp->max_it), rtol(ksp->rtol), guess_zero(ksp->guess_zero), errors(ksp->errorifnotconverged),
    failures(ksp->pc->erroriffailure)
{
}

PetscErrorCode SolveBegin(KSP ksp, SolveStart *start)
{
  PetscFunctionBegin;
  if (!ksp->guess_zero) {
    PetscCall(VecDuplicate(ksp->vec_sol, &start->x));
    PetscCall(VecCopy(ksp->vec_sol, start->x));
  }
  ksp->errorifnotconverged = ksp->pc->erroriffailure = PETSC_FALSE; /* KSPSolve() looks at the reason in the end */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SolveEnd(KSP ksp, const SolveSettings &settings, SolveStart *start)
{
  PetscFunctionBegin;
  ksp->rtol                = settings.rtol;
  ksp->guess_zero          = settings.guess_zero;
  ksp->errorifnotconverged = settings.errors;
  ksp->pc->erroriffailure  = settings.failures;
  PetscCall(VecDestroy(&start->x));
  PetscCall(VecDestroy(&start->r));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ResidualNorm(KSP ksp, Vec x, Vec r, PetscReal *norm)
{
  Mat A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  if (!x) PetscCall(VecNorm(ksp->vec_rhs, NORM_2, norm));
  else {
    PetscCall(MatMultAnywhere(A, ksp->transpose_solve, x, r));
    PetscCall(VecAYPX(r, -1, ksp->vec_rhs));
    PetscCall(VecNorm(r, NORM_2, norm));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SolveAgain(KSP ksp, const SolveSettings &settings, PetscReal share, SolveStart *start, bool *hopeless)
{
  const bool own_test = ksp->converged == KSPConvergedDefault;
  PetscReal  now;

  PetscFunctionBegin;
  if (!start->r) PetscCall(VecDuplicate(ksp->vec_rhs, &start->r));
  if (start->first < 0) PetscCall(ResidualNorm(ksp, start->x, start->r, &start->first));
  *hopeless = !std::isfinite(start->first);
  if (*hopeless) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ResidualNorm(ksp, ksp->vec_sol, start->r, &now));
  const bool keep = own_test && now < share * start->first; /* not if it is NaN */
  if (!keep && start->x) PetscCall(VecCopy(start->x, ksp->vec_sol));
  if (!keep && !start->x) PetscCall(VecSet(ksp->vec_sol, 0));
  start->anew     = !keep;
  ksp->guess_zero = (PetscBool)(!keep && settings.guess_zero);
  ksp->rtol       = settings.rtol;
  if (keep && now > 0) {
    const auto *test = (const KSPConvergedDefaultCtx *)ksp->cnvP;

    PetscReal before = start->first, b;

    if (test->mininitialrtol) {
      PetscCall(VecNorm(ksp->vec_rhs, NORM_2, &b));
      before = PetscMin(before, b);
      now    = PetscMin(now, b);
    }
    if (test->initialrtol || test->mininitialrtol) ksp->rtol = PetscMin(settings.rtol * before / now, (PetscReal)0.99);
  }
  ksp->reason = KSP_CONVERGED_ITERATING;
  PetscFunctionReturn(PETSC_SUCCESS);
}
