/* When a factor is kept for new values, when it is refilled, and when it is made from nothing. */
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <petsctime.h>

#include "api.h"
#include "options.h"
#include "local.h"
#include "ranks/agree.h"

const char *const PCFinePCReuses[] = {"auto", "always", "never", "PCFinePCReuse", "PC_FINEPC_REUSE_", nullptr};

/* After a loss so many times as many set-ups go by before the factor is kept again, and at most so many. */
static constexpr PetscInt kBackOff = 8, kMostWait = 256;
/*
   A solve with a kept factor may take longer than the first one by this part of a set-up before the factor is made anew: the first
   such solve, and later ones, before which something is known.
*/
static constexpr double kFirstPatience = 0.25, kPatience = 0.75;

static PCReuse *ReuseOf(PC pc)
{
  return PCIsLocal(pc) ? &((PC_Local *)pc->data)->reuse : nullptr;
}

/* ------------------------------------------ decisions ----------------------------------------- */

/* What the cycle that ends has cost, beside set-ups for each solve. If it is cut short, the last run has solved nothing. */
static void EndCycle(PCReuse *r, bool cut)
{
  if (r->solves > 1) {
    const bool paid = (r->set_up + r->cost) / (double)(r->solves - cut) <= r->set_up + r->first;

    r->back_off = paid ? PetscMax(r->back_off / kBackOff, 1) : PetscMin(kBackOff * r->back_off, kMostWait);
    r->wait     = paid ? 0 : r->back_off;
  } else if (r->wait > 0) r->wait--;
  /* refills that need more and more iterations are worth a set-up from nothing */
  if (r->solves > 0 && r->newest > 0) r->excess += PetscMax(r->first - r->newest, 0);
  r->anew   = r->excess > r->patience * r->set_up && r->set_up > 0;
  r->solves = 0;
  r->cost = r->first = r->last = 0;
}

/* Whether one more solve with the factor as it is makes the mean of the solves since the set-up smaller. */
static bool Pays_Reuse(const PCReuse *r)
{
  if (!r->solves || r->wait > 0) return false;
  return r->solves == 1 || r->last <= (r->set_up + r->cost) / (double)r->solves;
}

PetscErrorCode PCReuseDecide(PC pc, bool *keep)
{
  PCReuse        *r     = ReuseOf(pc);
  const PC_Local *local = (const PC_Local *)pc->data;
  PetscBool       same  = PETSC_FALSE;

  PetscFunctionBegin;
  *keep     = false;
  r->frozen = false;
  if (r->mode == PC_FINEPC_REUSE_NEVER) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscErrorCode code    = CallGuarded(MatFollowPattern, pc->pmat, &r->nonzeros, &same);
  int                  changed = !same || !pc->setupcalled || pc->flag != SAME_NONZERO_PATTERN || r->options || local->failure[0];

  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), code, "look at its nonzeros", &changed));
  r->options = false;
  if (changed) {
    const PCReuse old = *r;

    *r          = PCReuse{};
    r->mode     = old.mode;
    r->counts   = old.counts;
    r->nonzeros = old.nonzeros;
    r->anew     = true;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  *keep = r->mode == PC_FINEPC_REUSE_ALWAYS || Pays_Reuse(r);
  r->kept += *keep;
  r->frozen = *keep;
  if (*keep) PetscFunctionReturn(PETSC_SUCCESS);
  EndCycle(r, false);
  if (r->anew) pc->flag = DIFFERENT_NONZERO_PATTERN; /* no pattern is kept */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCReuseNoteSetUp(PC pc, PetscLogDouble seconds)
{
  PCReuse *r = ReuseOf(pc);

  PetscFunctionBegin;
  if (r->mode == PC_FINEPC_REUSE_NEVER) PetscFunctionReturn(PETSC_SUCCESS);
  (r->anew ? r->made : r->refilled)++;
  if (r->anew) {
    r->patience = r->newest > 0 && r->excess > 0 ? 4 * r->patience : 1; /* less often, until it is seen to help */
    r->newest = r->excess = 0;
  }
  if (r->mode == PC_FINEPC_REUSE_ALWAYS) PetscFunctionReturn(PETSC_SUCCESS);
  if (r->counts >= 0) r->set_up = r->counts;
  else PetscCallMPI(MPIU_Allreduce(&seconds, &r->set_up, 1, MPI_DOUBLE, MPI_MAX, PetscObjectComm((PetscObject)pc)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCReuseNoteSolve(PC pc, PetscInt its, PetscLogDouble seconds)
{
  PCReuse *r    = ReuseOf(pc);
  double   cost = (double)its;

  PetscFunctionBegin;
  if (!r || r->mode != PC_FINEPC_REUSE_AUTO) PetscFunctionReturn(PETSC_SUCCESS);
  if (r->counts < 0) PetscCallMPI(MPIU_Allreduce(&seconds, &cost, 1, MPI_DOUBLE, MPI_MAX, PetscObjectComm((PetscObject)pc)));
  r->last = cost;
  r->cost += cost;
  if (!r->solves) {
    r->first = cost;
    r->its   = its;
  }
  r->solves++;
  if (r->newest == 0) r->newest = cost;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscInt PCReuseLimit(PC pc)
{
  const PCReuse *r = ReuseOf(pc);

  if (!r || !r->frozen || r->mode != PC_FINEPC_REUSE_AUTO || r->first <= 0 || r->its <= 0) return PETSC_INT_MAX;
  const double most = r->its + (r->solves == 1 ? kFirstPatience : kPatience) * r->set_up / (r->first / r->its);
  return most < PETSC_INT_MAX / 2 ? PetscMax((PetscInt)most, r->its + 1) : PETSC_INT_MAX;
}

bool PCReuseIsFrozen(PC pc)
{
  const PCReuse *r = ReuseOf(pc);

  return r && r->frozen;
}

PetscErrorCode PCReuseRefresh(PC pc, bool *refreshed)
{
  PCReuse       *r = ReuseOf(pc);
  PetscLogDouble begin, end;

  PetscFunctionBegin;
  *refreshed = r && r->frozen;
  if (!*refreshed) PetscFunctionReturn(PETSC_SUCCESS);
  r->frozen                = false;
  const PCFinePCReuse mode = r->mode;
  EndCycle(r, true);
  r->mode = PC_FINEPC_REUSE_NEVER; /* for this set-up */
  PCForgetValues(pc);
  PetscCall(PetscTime(&begin));
  const PetscErrorCode code = PCSetUp(pc);
  PetscCall(PetscTime(&end));
  r->mode = mode;
  PetscCall(code);
  PetscCall(PCReuseNoteSetUp(pc, end - begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- solves ------------------------------------------- */

/* A solve with a kept factor that takes too long, or fails, goes on with one of the values at hand. */
static PetscErrorCode RunWithReuse(PC pc, KSP ksp, SolveFn solve, const SolveSettings &settings, SolveStart *start)
{
  PetscInt its     = 0;
  bool     goes_on = true, hopeless = false;

  PetscFunctionBegin;
  while (goes_on) {
    PetscLogDouble begin, end;

    PetscCall(PetscTime(&begin));
    {
      const IterationBound bound(ksp, PCReuseLimit(pc));
      PetscCall((*solve)(ksp));
    }
    PetscCall(PetscTime(&end));
    PetscCall(PCReuseNoteSolve(pc, ksp->its, end - begin));
    its += ksp->its;
    const KSPConvergedReason reason = ksp->reason;
    const bool               few    = reason == KSP_DIVERGED_ITS && ksp->its >= settings.max_it && settings.max_it < kFewIterations;
    goes_on                         = reason < 0 && !few && PCReuseIsFrozen(pc);
    if (goes_on) PetscCall(SolveAgain(ksp, settings, 1, start, &hopeless));
    goes_on = goes_on && !hopeless;
    if (goes_on) PetscCall(PCReuseRefresh(pc, &goes_on));
    else ksp->reason = reason;
    if (pc->failedreason) ksp->reason = KSP_DIVERGED_PC_FAILED;
  }
  ksp->its = its;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AroundSolve_Local(PC pc, KSP ksp, SolveFn solve)
{
  SolveStart start;

  PetscFunctionBegin;
  PetscCall(PCSetUp(pc)); /* before PETSc 3.26 PCApply() would do that amid the solve */
  const SolveSettings settings(ksp);
  PetscCall(SolveBegin(ksp, &start));
  const PetscErrorCode code = CallGuarded(RunWithReuse, pc, ksp, solve, settings, &start);
  PetscCall(SolveEnd(ksp, settings, &start));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCPreSolve_Local(PC pc, KSP ksp, Vec, Vec)
{
  PetscBool takes_operator;
  bool      refreshed;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPRRBCG, &takes_operator)); /* which the factor of PCRRB keeps */
  if (takes_operator) PetscCall(PCReuseRefresh(pc, &refreshed));
  PetscCall(WatchSolve(pc, ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- options ------------------------------------------ */

static PetscErrorCode SetReuse_Local(PC pc, PCFinePCReuse reuse)
{
  PetscFunctionBegin;
  PetscCheck(reuse >= PC_FINEPC_REUSE_AUTO && reuse <= PC_FINEPC_REUSE_NEVER, PetscObjectComm((PetscObject)pc),
             PETSC_ERR_ARG_OUTOFRANGE, "-pc_finepc_reuse has no value %d", (int)reuse);
  ReuseOf(pc)->mode = reuse;
  pc->ops->presolve = reuse == PC_FINEPC_REUSE_AUTO ? Entry<PCPreSolve_Local> : nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetReuse_Local(PC pc, PCFinePCReuse *reuse)
{
  *reuse = ReuseOf(pc)->mode;
  return PETSC_SUCCESS;
}

PetscErrorCode PCReuseCompose(PC pc, PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(
    ComposeMethods(pc, "PCFinePCSetReuse", compose ? Entry<SetReuse_Local> : nullptr, compose ? Entry<GetReuse_Local> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, kAroundSolve, compose ? Entry<AroundSolve_Local> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCReuseCount(PC pc, double its)
{
  PCReuse *r = ReuseOf(pc);

  PetscFunctionBegin;
  if (r) r->counts = its;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void PCReuseForget(PC pc)
{
  PCReuse *r = ReuseOf(pc);

  if (r) r->options = true;
}

PetscErrorCode PCReuseFromOptions(PC pc, OptionItems PetscOptionsObject)
{
  PCFinePCReuse reuse;
  PetscBool     given;
  PetscErrorCode (*set)(PC, PCFinePCReuse);

  PetscFunctionBegin;
  PetscCall(PetscObjectQueryFunction((PetscObject)pc, "PCFinePCSetReuse_C", &set));
  if (!set) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCFinePCGetReuse(pc, &reuse));
  PetscOptionsHeadBegin(PetscOptionsObject, "finepc options");
  PetscCall(PetscOptionsEnum("-pc_finepc_reuse", "whether the factor is kept for new values on the same nonzeros",
                             "PCFinePCSetReuse", PCFinePCReuses, (PetscEnum)reuse, (PetscEnum *)&reuse, &given));
  PetscOptionsHeadEnd();
  if (given) PetscCall(PCFinePCSetReuse(pc, reuse));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCReuseView(PC pc, PetscViewer viewer)
{
  const PCReuse *r = ReuseOf(pc);

  PetscFunctionBegin;
  if (r->mode == PC_FINEPC_REUSE_NEVER) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "reuse %s: for new values kept %" PetscInt_FMT " times, refilled %" PetscInt_FMT
                                   ", made from nothing %" PetscInt_FMT "\n",
                                   PCFinePCReuses[r->mode], r->kept, r->refilled, r->made));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCFinePCSetReuse - Sets whether a preconditioner of finepc keeps its factor if the matrix has new values on the same nonzeros

  Logically Collective

  Input Parameters:
+ pc    - the preconditioner context
- reuse - `PC_FINEPC_REUSE_AUTO`, `PC_FINEPC_REUSE_ALWAYS` or `PC_FINEPC_REUSE_NEVER` (default)

  Options Database Key:
. -pc_finepc_reuse <never> - `auto`, `always` or `never`

  Level: intermediate

  Notes:
  `PC_FINEPC_REUSE_AUTO` compares the costs of the last solves: the factor is kept as long as a solve with it takes no longer than
  the mean of all solves since its set-up, with the cost of the set-up included in the mean. If a solve takes longer than a set-up
  would have saved, or fails, the factor is recomputed from the current values in the middle of the solve. If keeping the factor has
  not paid off, it is tried less often. A set-up from scratch replaces a refill if solves after refills have cost more than such a
  set-up would.

  Costs are times in seconds, the largest of all ranks, so another run may decide differently; the candidates of a `PCAUTO` that
  compares by counts compare iterations instead. Solves that test no norm, and those of `KSPMatSolve()`, are not considered: with
  these there is a set-up each time.

  `PCSetReusePreconditioner()` takes precedence over this function.

.seealso: `PCFinePCReuse`, `PCFinePCGetReuse()`, `PCSetReusePreconditioner()`, `PCAFSAI`, `PCSFSAI`, `PCBISAI`, `PCRRB`, `PCCMATCH`,
`PCAUTO`
@*/
PetscErrorCode PCFinePCSetReuse(PC pc, PCFinePCReuse reuse)
{
  return CallSetter(pc, "PCFinePCSetReuse_C", reuse);
}

/*@
  PCFinePCGetReuse - Gets what `PCFinePCSetReuse()` or the option has set

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. reuse - see `PCFinePCSetReuse()`

  Level: intermediate

.seealso: `PCFinePCReuse`, `PCFinePCSetReuse()`
@*/
PetscErrorCode PCFinePCGetReuse(PC pc, PCFinePCReuse *reuse)
{
  return CallGetter(pc, "PCFinePCGetReuse_C", reuse);
}
