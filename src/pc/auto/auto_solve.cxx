/*
   What PCAUTO does around a solve (pc/watch.h): where it has failed, the next candidate goes on from the solution so far within the
   same KSPSolve(). Now and then another candidate is tried, and the better of the two stays.
*/
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <petsctime.h>

#include <algorithm>
#include <cmath>

#include "options.h"
#include "pc/confirm.h"
#include "sparse/csr_mat.h"
#include "auto.h"

/* ------------------------------------------ the solver ---------------------------------------- */

/* Whether the solver takes a preconditioner that is not symmetric. */
static PetscErrorCode IsFree(KSP ksp, bool *is_free)
{
  PetscBool needs;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)ksp, &needs, KSPCG, KSPCGFUSED, KSPMINRES, KSPSYMMLQ, KSPFCG, KSPPIPECG,
                                      KSPGROPPCG, KSPNASH, KSPSTCG, KSPGLTR, KSPCR, ""));
  *is_free = !needs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Whether the norm that the solver has ended well with is that of b - A x. Solvers that apply the preconditioner to a sum in the
   end, as GMRES does, and those that apply it before A, follow another residual where it is in single precision, or no linear map.
   Those for symmetric preconditioners update x and the residual by the same vectors, ours look themselves, and the norm of a least
   squares solver is not that of b - A x. `*norm` is that of the residual.
*/
static PetscErrorCode Confirms_AUTO(PC pc, KSP ksp, PetscReal *norm, bool *confirms)
{
  PC_AUTO  *s = (PC_AUTO *)pc->data;
  PetscBool other;
  Mat       A;

  PetscFunctionBegin;
  *confirms = true;
  *norm     = ksp->rnorm;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)ksp, &other, KSPGMRESFUSED, KSPLSQR, KSPCGLS, KSPCGNE, KSPTSIRM, ""));
  if (!s->free || other || ksp->pc_side == PC_SYMMETRIC || !ClaimsNorm(ksp)) PetscFunctionReturn(PETSC_SUCCESS);
  if (!s->r) PetscCall(VecDuplicate(ksp->vec_rhs, &s->r));
  if (!s->t) PetscCall(VecDuplicate(ksp->vec_rhs, &s->t));
  PetscCall(PCGetOperators(pc, &A, nullptr));
  PetscCall(MatMultAnywhere(A, ksp->transpose_solve, ksp->vec_sol, s->r));
  PetscCall(VecAYPX(s->r, -1, ksp->vec_rhs));
  PetscCall(ConfirmsClaim(ksp, s->r, s->t, s->r, norm, confirms));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- trials ------------------------------------------- */

/* What a solve with this candidate costs on average, with its part of the set-ups. */
static double PerSolve(const PC_AUTO *s, const AUTORecord &record)
{
  return record.solve_cost + record.set_up_cost * s->counts.set_ups / PetscMax(s->counts.solves, 1);
}

/* The candidate that is to be tried now, or -1. All ranks get the same. */
static int DueForTrial(const PC_AUTO *s)
{
  const AUTORecord &usual = s->records[s->acting];
  const unsigned    words = AUTOWords(s->seen, s->free);

  if (!usual.solves || usual.its < 1) return -1;
  const double unit = usual.solve_cost / (usual.its * usual.candidate.iteration); /* the cost of an iteration with jacobi */
  for (size_t k = 0; k < s->records.size(); k++) {
    const AUTORecord &other = s->records[k];

    if ((int)k == s->acting || other.solves || other.failed || other.candidate.fallback || !AUTOHolds(other.candidate, words))
      continue;
    const double cost = unit * other.candidate.set_up + PerSolve(s, usual);
    return s->counts.on_trials + cost <= s->trials * s->counts.work ? (int)k : -1;
  }
  return -1;
}

static PetscErrorCode BeginTrial(PC pc, int k)
{
  PC_AUTO  *s     = (PC_AUTO *)pc->data;
  const int usual = s->acting;
  bool      works;

  PetscFunctionBegin;
  s->counts.trial_count++;
  PetscCall(AUTOTake(pc, k, &works));
  s->counts.on_trials += s->records[k].set_up_cost;
  s->acting = works ? k : usual;
  s->usual  = works ? usual : -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The better one stays. */
static PetscErrorCode EndTrial(PC pc, bool solved)
{
  PC_AUTO    *s     = (PC_AUTO *)pc->data;
  const int   trial = s->acting, usual = s->usual;
  AUTORecord &other = s->records[trial];

  PetscFunctionBegin;
  s->usual = -1;
  if (solved && PerSolve(s, other) < PerSolve(s, s->records[usual])) {
    PetscCall(AUTODrop(pc, usual));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  s->acting = usual;
  if (!solved) {
    other.failed = true;
    other.why    = "takes longer than " + s->records[usual].candidate.name;
  }
  PetscCall(AUTODrop(pc, trial));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- solves ------------------------------------------- */

/* The most iterations that the candidate gets. */
static PetscInt LimitOf(const PC_AUTO *s, PetscInt max_it)
{
  const AUTORecord &record = s->records[s->acting];

  if (s->usual >= 0) {
    const AUTORecord &usual = s->records[s->usual];
    const double      most  = 1 + usual.its * usual.candidate.iteration / record.candidate.iteration;

    return (PetscInt)PetscMin(most, (double)max_it);
  }
  const bool last =
    std::none_of(s->records.begin(), s->records.end(), [](const AUTORecord &other) { return !other.now && !other.failed; });
  const PetscInt most = PetscMin(max_it, PCReuseLimit(record.pc));

  return last ? most : PetscMin(most, record.candidate.limit);
}

/* Whether the bound of the program, and not the candidate, has ended the solve: at this rate it would have been within its
 * estimate. */
static bool IsOnTrack(KSP ksp, const AUTORecord &record, const SolveSettings &settings)
{
  const PetscInt limit = record.candidate.limit;

  if (ksp->reason != KSP_DIVERGED_ITS || settings.max_it >= limit || record.first <= 0 || record.goal <= 0) return false;
  const double reached = std::log(ksp->rnorm / record.first), wanted = std::log(record.goal / record.first);

  return reached < 0 && record.its * wanted / reached <= limit;
}

/*
   A run whose claim the residual refutes is followed by one with the same candidate, from where it has ended, or has failed if the
   one before had come nearly as far (`*refuted` is the norm that it came to), or if a test of the program wants another beginning.
*/
static PetscErrorCode LookAtClaim(PC pc, KSP ksp, PetscReal *refuted, AUTOOutcome *outcome)
{
  constexpr PetscReal kStalls = 0.5;
  PetscReal           norm;
  bool                confirms;

  PetscFunctionBegin;
  PetscCall(Confirms_AUTO(pc, ksp, &norm, &confirms));
  if (confirms || ksp->reason < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscInfo(pc, "the norm of the residual is %g, but %g by the recurrence\n", (double)norm, (double)ksp->rnorm));
  const bool goes_on = ksp->converged == KSPConvergedDefault && norm < kStalls * *refuted && ksp->its < ksp->max_it;
  *outcome           = goes_on ? AUTOOutcome::GOES_ON : AUTOOutcome::ENDED;
  ksp->reason        = ksp->its < ksp->max_it ? KSP_DIVERGED_BREAKDOWN : KSP_DIVERGED_ITS;
  ksp->rnorm         = norm;
  *refuted           = norm;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Runs the solver once, and notes what it took. `*outcome` comes with how the run before has ended. */
static PetscErrorCode RunOnce(PC pc, KSP ksp, SolveFn solve, PetscReal *refuted, AUTOOutcome *outcome)
{
  PC_AUTO       *s    = (PC_AUTO *)pc->data;
  const bool     more = *outcome == AUTOOutcome::GOES_ON; /* of the same solve */
  PetscLogDouble begin, end;

  PetscFunctionBegin;
  PetscCall(PetscTime(&begin));
  PetscCall(AUTORun(pc, ksp, solve, outcome));
  if (ksp->reason > 0) PetscCall(LookAtClaim(pc, ksp, refuted, outcome));
  PetscCall(PetscTime(&end));
  AUTORecord &record = s->records[s->acting];

  double cost;

  PetscCall(AUTOCost(pc, ksp->its * record.candidate.iteration, end - begin, &cost));
  s->counts.work += cost;
  if (s->usual >= 0) s->counts.on_trials += cost;
  record.its        = (more ? record.its : 0) + ksp->its;
  record.solve_cost = (more ? record.solve_cost : 0) + cost;
  record.seconds    = (more ? record.seconds : 0) + end - begin;
  if (!more) {
    record.first = ksp->rnorm0;
    record.goal  = ksp->ttol;
  }
  record.solves += *outcome == AUTOOutcome::ENDED;
  if (record.pc && *outcome == AUTOOutcome::ENDED) PetscCall(PCReuseNoteSolve(record.pc, record.its, record.seconds));
  if (ksp->reason == KSP_DIVERGED_INDEFINITE_MAT) s->seen.indefinite = true;
  if (ksp->its >= kProbeSteps || s->seen.indefinite) s->seen.doubtful = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Of GMRES and its like another candidate takes over a solution whose residual is smaller than the first one by this: what is left
 * of one that is larger is what they find hard. In the conjugate gradient method the residual says little about the error. */
static constexpr PetscReal kWorth = 0.1;

/* Takes the next candidate after a solve that has not converged; false if the solve ends so. */
static PetscErrorCode TakeOver(PC pc, KSP ksp, const SolveSettings &settings, SolveStart *start, AUTOOutcome outcome, bool *goes_on)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;
  bool     hopeless, found = true;

  PetscFunctionBegin;
  *goes_on                      = false;
  const KSPConvergedReason why  = ksp->reason;
  AUTORecord              &last = s->records[s->acting];

  const bool ended = outcome == AUTOOutcome::ENDED;
  const bool few   = why == KSP_DIVERGED_ITS && last.its >= settings.max_it && settings.max_it < kFewIterations;
  if (ended && s->usual < 0 && (few || (!PCReuseIsFrozen(last.pc) && IsOnTrack(ksp, last, settings))))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(SolveAgain(ksp, settings, outcome == AUTOOutcome::GOES_ON ? PETSC_INFINITY : s->free ? kWorth : 1, start, &hopeless));
  if (hopeless) {
    ksp->reason = why;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (outcome == AUTOOutcome::LEFT && start->anew)
    last.left += last.its * last.candidate.iteration; /* it would have to do these again */
  if (outcome == AUTOOutcome::GOES_ON) found = true;
  else if (s->usual >= 0) PetscCall(EndTrial(pc, false));
  else if (ended && PCReuseIsFrozen(last.pc)) {
    PetscCall(PCReuseRefresh(last.pc, &found));
    s->counts.work += last.candidate.set_up / 2;
  } else {
    if (ended) {
      const bool limited = why == KSP_DIVERGED_ITS && last.its == last.candidate.limit && last.its < settings.max_it;

      last.failed  = !limited;
      last.limited = limited;
      if (limited) last.left = last.its * last.candidate.iteration;
      last.why = std::string(KSPConvergedReasons[why]) + " after " + std::to_string(last.its) + " iterations";
    }
    PetscCall(AUTOTakeNext(pc, &found));
    s->counts.taken_over += found;
  }
  if (!found) ksp->reason = why;
  *goes_on = found;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where none of the candidates works, the next solve begins with the first one again: another right-hand side may be a better one.
 */
static PetscErrorCode BeginWithFirst(PC pc)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;
  bool     found;

  PetscFunctionBegin;
  AUTOForgetSolve(s);
  for (AUTORecord &record : s->records) record.failed = false;
  PetscCall(AUTOTakeNext(pc, &found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SolveUntil(PC pc, KSP ksp, SolveFn solve, const SolveSettings &settings, SolveStart *start)
{
  PC_AUTO    *s       = (PC_AUTO *)pc->data;
  PetscInt    its     = 0;
  bool        goes_on = true;
  PetscReal   refuted = PETSC_INFINITY;
  AUTOOutcome outcome = AUTOOutcome::ENDED;

  PetscFunctionBegin;
  const int due = settings.max_it < kFewIterations ? -1 : DueForTrial(s);
  if (due >= 0) PetscCall(BeginTrial(pc, due));
  s->counts.solves++;
  while (goes_on) {
    {
      const PetscInt limit = LimitOf(s, settings.max_it), done = outcome == AUTOOutcome::GOES_ON ? s->records[s->acting].its : 0;
      const IterationBound bound(ksp, limit - done, limit == settings.max_it);
      PetscCall(RunOnce(pc, ksp, solve, &refuted, &outcome));
    }
    if (outcome != AUTOOutcome::GOES_ON) refuted = PETSC_INFINITY; /* the next candidate has its own */
    its += ksp->its;
    goes_on = false;
    if (ksp->reason > 0 && s->usual >= 0) PetscCall(EndTrial(pc, true));
    else if (ksp->reason > 0) s->records[s->acting].failed = false;
    else PetscCall(TakeOver(pc, ksp, settings, start, outcome, &goes_on));
  }
  ksp->its = s->counts.its = its;
  const bool all = std::all_of(s->records.begin(), s->records.end(), [](const AUTORecord &record) { return record.failed; });
  if (ksp->reason < 0 && all) PetscCall(BeginWithFirst(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A solve that ended with an error has left its trial. */
static PetscErrorCode LeaveTrial(PC pc)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;

  PetscFunctionBegin;
  if (s->usual >= 0) PetscCall(EndTrial(pc, false));
  AUTOForgetSolve(s);
  for (AUTORecord &record : s->records) record.check = 0;
  if (s->acting >= 0) s->records[s->acting].now = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AroundSolve_AUTO(PC pc, KSP ksp, SolveFn solve)
{
  SolveStart start;

  PetscFunctionBegin;
  PetscCall(PCSetUp(pc)); /* before PETSc 3.26 PCApply() would do that amid the solve */
  if (((const PC_AUTO *)pc->data)->acting < 0 || pc->reusepreconditioner || pc->failedreason ||
      ksp->reason == KSP_DIVERGED_PC_FAILED) {
    PetscCall((*solve)(ksp));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(LeaveTrial(pc));
  const SolveSettings settings(ksp);
  PetscCall(SolveBegin(ksp, &start));
  const PetscErrorCode code = CallGuarded(SolveUntil, pc, ksp, solve, settings, &start);
  PetscCall(SolveEnd(ksp, settings, &start));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCPreSolve_AUTO(PC pc, KSP ksp, Vec, Vec)
{
  PC_AUTO  *s       = (PC_AUTO *)pc->data;
  bool      is_free = true;
  PetscBool probes; /* it ends where a direction has negative curvature */

  PetscFunctionBegin;
  s->solver = ((PetscObject)ksp)->type_name;
  PetscCall(IsFree(ksp, &is_free));
  if (is_free != s->free) PetscCall(AUTOSetFree(pc, is_free));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)ksp, &probes, KSPCG, KSPCGFUSED, ""));
  if (!probes && !pc->reusepreconditioner) PetscCall(AUTOMakeSure(pc));
  PetscCall(WatchSolve(pc, ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

bool PCOnlyWatches(PC pc)
{
  return pc->ops->presolve == Entry<PCPreSolve_AUTO> && !pc->ops->postsolve;
}

bool PCLearns(PC pc)
{
  return PCOnlyWatches(pc) && !((const PC_AUTO *)pc->data)->counts.solves;
}
