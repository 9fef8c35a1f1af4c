/* The PETSc face of PCAUTO: options, set-up, view and life cycle. */
#include <petsc/private/pcimpl.h>

#include <sstream>

#include "api.h"
#include "options.h"
#include "ranks/agree.h"
#include "sparse/offload.h"
#include "auto.h"

const char *const PCAUTOBys[] = {"counts", "time", "PCAUTOBy", "PC_AUTO_BY_", nullptr};

static const Option<PC> kOptions[] = {
  /* by

     Counted costs are those of the rules, the same on all ranks and in all runs. With `PC_AUTO_BY_TIME` the ranks agree on the
     largest of their times in seconds, and another run may decide differently. */
  {"-pc_auto_by", "by what candidates are compared", "PCAUTOSetBy", Field<&PC_AUTO::by>(OneOf(PCAUTOBys)), Invalidates::NOTHING},

  /* trials: 0 for none

     If a program solves repeatedly with the same nonzeros, other candidates are tried as far as this share allows, each in one
     solve. The better one is kept. */
  {"-pc_auto_trials", "the share of the work so far that trials of other candidates may take", "PCAUTOSetTrials",
   Field<&PC_AUTO::trials>(Between(0, 1)), Invalidates::NOTHING},
};
const OptionTable<PC> PC_AUTO::options{"Choice of a preconditioner", kOptions};

/* ------------------------------------------- set-up ------------------------------------------- */

static PetscErrorCode PCSetUp_AUTO(PC pc)
{
  PC_AUTO  *s = (PC_AUTO *)pc->data;
  PetscBool assembled, same = PETSC_FALSE;
  bool      found = false;

  PetscFunctionBegin;
  PetscCall(MatAssembled(pc->pmat, &assembled));
  PetscCheck(assembled, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_WRONGSTATE,
             "The matrix is not assembled: call MatAssemblyBegin() and MatAssemblyEnd()");
  pc->failedreason       = PC_NOERROR;
  PetscErrorCode code    = CallGuarded(MatFollowPattern, pc->pmat, &s->nonzeros, &same);
  int            changed = !same || pc->flag != SAME_NONZERO_PATTERN || s->records.empty();
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), code, "look at its nonzeros", &changed));
  if (changed) PetscCall(AUTOBeginAnew(pc));
  AUTOForgetSolve(s);
  s->counts.set_ups++;
  if (s->acting >= 0) PetscCall(AUTOTake(pc, s->acting, &found));
  if (!found) {
    s->acting = -1;
    PetscCall(AUTOTakeNext(pc, &found));
  }
  if (found) PetscFunctionReturn(PETSC_SUCCESS);
  pc->failedreason = PC_SUBPC_ERROR;
  PetscCheck(!pc->erroriffailure, PetscObjectComm((PetscObject)pc), PETSC_ERR_NOT_CONVERGED,
             "No candidate of PCAUTO can be set up: %s", s->records.empty() ? "" : s->records[0].why.c_str());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- applying ----------------------------------------- */

static PetscErrorCode GetActing(PC pc, PC *acting)
{
  const PC_AUTO *s = (const PC_AUTO *)pc->data;

  PetscFunctionBegin;
  PetscCheck(s->acting >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ORDER, "PCAUTO has no preconditioner yet: call PCSetUp()");
  *acting = s->records[s->acting].pc;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* In an application the candidate is not to be set up if the program wants it as it is. */
template <auto Apply, typename Vectors>
static PetscErrorCode PCApply_AUTO(PC pc, Vectors x, Vectors y)
{
  PC acting = nullptr;

  PetscFunctionBegin;
  PetscCall(GetActing(pc, &acting));
  PetscCall(PCSetReusePreconditioner(acting, pc->reusepreconditioner));
  PetscCall(Apply(acting, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PC PCActing(PC pc)
{
  if (!pc || pc->ops->apply != Entry<PCApply_AUTO<PCApply, Vec>>) return pc;
  const PC_AUTO *s = (const PC_AUTO *)pc->data;
  return s->acting >= 0 ? s->records[s->acting].pc : pc;
}

/* -------------------------------------------- view -------------------------------------------- */

static PetscErrorCode ViewSeen(const AUTOProperties &p, PetscLogDouble seconds, PetscViewer viewer)
{
  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer, "seen: %" PetscInt64_FMT " rows, %s, in %.2g s\n", p.rows,
                                   p.on_device ? "used on a GPU" : "used on the host", (double)seconds));
  if (!p.rows_known) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "  the type of the matrix does not lend its rows\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "  %s%s: %" PetscInt64_FMT " of %" PetscInt64_FMT " couplings differ, %" PetscInt64_FMT
                                   " are one-sided\n",
                                   p.symmetric ? "symmetric" : "not symmetric",
                                   p.indefinite ? ", found to be indefinite"
                                   : p.definite ? ", taken as positive definite"
                                                : "",
                                   p.unequal, p.pairs + p.one_sided, p.one_sided));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "  of %" PetscInt64_FMT
                                   " rows: %.0f %% of the entries beside the diagonal are at most 0, %.0f %% of the "
                                   "rows are dominated by their diagonal\n",
                                   p.looked_at, 100. * p.not_positive / PetscMax(p.beside, 1),
                                   100. * p.dominated / PetscMax(p.looked_at, 1)));
  if (p.zero_diagonal || p.negative_diagonal)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  diagonal: zero in %" PetscInt64_FMT " rows, negative in %" PetscInt64_FMT "\n",
                                     p.zero_diagonal, p.negative_diagonal));
  if (p.block_size > 1 || p.modes)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  blocks of %" PetscInt_FMT ", near null space of %" PetscInt_FMT " vectors\n",
                                     p.block_size, p.modes));
  if (p.stencil)
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "  a %" PetscInt_FMT "-point stencil%s\n", p.stencil, p.anisotropic ? ", anisotropic" : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ViewRecords(const PC_AUTO *s, PetscViewer viewer)
{
  PetscFunctionBegin;
  for (size_t k = 0; k < s->records.size(); k++) {
    const AUTORecord &r = s->records[k];

    if (r.set_ups == 0) continue;
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "tried: %s, %" PetscInt_FMT " set-ups, %" PetscInt_FMT
                                     " solves, the last one of %" PetscInt_FMT " iterations%s%s\n",
                                     r.candidate.name.c_str(), r.set_ups, r.solves, r.its,
                                     r.failed     ? "; failed: "
                                     : r.left > 0 ? "; left: "
                                                  : "",
                                     r.failed || r.left > 0 ? r.why.c_str() : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Which solver would be faster, if the one that it is used with is not. */
static PetscErrorCode ViewAdvice(const PC_AUTO *s, PetscViewer viewer)
{
  const bool  definite = s->seen.definite && !s->seen.indefinite, gmres = s->solver.find("gmres") != std::string::npos;
  const char *better = nullptr;

  PetscFunctionBegin;
  if (definite && (gmres || s->solver == KSPBCGS)) better = s->seen.on_device ? KSPCGFUSED : KSPCG;
  else if (definite && s->solver == KSPCG && s->seen.on_device) better = KSPCGFUSED;
  else if (!s->solver.empty() && !s->free && !s->seen.symmetric) better = s->seen.on_device ? KSPGMRESFUSED : KSPGMRES;
  else if (!s->free && s->seen.indefinite && s->solver != KSPMINRES) better = KSPMINRES;
  if (better)
    PetscCall(PetscViewerASCIIPrintf(viewer, "advice: -ksp_type %s suits this matrix better than %s\n", better, s->solver.c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_AUTO(PC pc, PetscViewer viewer)
{
  const PC_AUTO *s = (const PC_AUTO *)pc->data;
  const char    *prefix;
  PetscBool      is_ascii;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer, "compares candidates by %s, trials take at most %g of the work\n", PCAUTOBys[s->by],
                                   (double)s->trials));
  if (s->records.empty()) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "nothing is chosen yet\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(ViewSeen(s->seen, s->counts.look_seconds, viewer));
  PetscCall(ViewRecords(s, viewer));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "since these nonzeros: %" PetscInt_FMT " solves, %" PetscInt_FMT " taken over, %" PetscInt_FMT
                                   " trials; they cost as much as %.0f %s\n",
                                   s->counts.solves, s->counts.taken_over, s->counts.trial_count,
                                   s->by == PC_AUTO_BY_COUNTS ? s->counts.work : 1e3 * s->counts.work,
                                   s->by == PC_AUTO_BY_COUNTS ? "iterations with jacobi" : "milliseconds"));
  PetscCall(ViewAdvice(s, viewer));
  if (s->acting < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer, "chosen by the rule: %s (%s)\n", s->why.c_str(), s->measured.c_str()));
  PetscCall(PCGetOptionsPrefix(pc, &prefix));
  std::istringstream in(s->records[s->acting].candidate.options);
  std::string        fixing;
  for (std::string word; in >> word;) fixing += " " + (word[0] == '-' ? AUTOWithPrefix(word, prefix ? prefix : "") : word);
  PetscCall(PetscViewerASCIIPrintf(viewer, "these options fix the choice:%s\n", fixing.c_str()));
  PetscCall(PetscViewerASCIIPushTab(viewer));
  PetscCall(PCView(s->records[s->acting].pc, viewer));
  PetscCall(PetscViewerASCIIPopTab(viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- life cycle ----------------------------------------- */

static PetscErrorCode PCReset_AUTO(PC pc)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;

  PetscFunctionBegin;
  PetscCall(AUTOFreeRecords(s));
  PetscCall(MatFreePatternWork(&s->nonzeros));
  s->nonzeros = MatPattern{};
  s->seen     = AUTOProperties{};
  s->free     = true;
  s->solver.clear();
  PetscCall(MatLeave((PetscObject)pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetReuse_AUTO(PC pc, PCFinePCReuse reuse)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;

  PetscFunctionBegin;
  PetscCheck(reuse >= PC_FINEPC_REUSE_AUTO && reuse <= PC_FINEPC_REUSE_NEVER, PetscObjectComm((PetscObject)pc),
             PETSC_ERR_ARG_OUTOFRANGE, "-pc_finepc_reuse has no value %d", (int)reuse);
  s->reuse = reuse;
  for (AUTORecord &record : s->records)
    if (record.pc) PetscCall(PCFinePCSetReuse(record.pc, reuse));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetLook_AUTO(PC pc, SolveLook **look)
{
  *look = ((const PC_AUTO *)pc->data)->look;
  return PETSC_SUCCESS;
}

static PetscErrorCode GetReuse_AUTO(PC pc, PCFinePCReuse *reuse)
{
  *reuse = ((const PC_AUTO *)pc->data)->reuse;
  return PETSC_SUCCESS;
}

static PetscErrorCode Compose_AUTO(PC pc, PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(PC_AUTO::options.Compose(pc, compose));
  PetscCall(
    ComposeMethods(pc, "PCFinePCSetReuse", compose ? Entry<SetReuse_AUTO> : nullptr, compose ? Entry<GetReuse_AUTO> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, "PCAUTOGetPC_C", compose ? Entry<GetActing> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, kAroundSolve, compose ? Entry<AroundSolve_AUTO> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, kSolveLook, compose ? Entry<GetLook_AUTO> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_AUTO(PC pc)
{
  PetscFunctionBegin;
  pc->data                = new PC_AUTO();
  pc->ops->setup          = Entry<PCSetUp_AUTO>;
  pc->ops->apply          = Entry<PCApply_AUTO<PCApply, Vec>>;
  pc->ops->applytranspose = Entry<PCApply_AUTO<PCApplyTranspose, Vec>>;
  pc->ops->matapply       = Entry<PCApply_AUTO<PCMatApply, Mat>>;
  pc->ops->presolve       = Entry<PCPreSolve_AUTO>;
  pc->ops->setfromoptions = Entry<SetFromOptionTable<PC_AUTO, PC>>;
  pc->ops->view           = Entry<PCView_AUTO>;
  pc->ops->reset          = Entry<PCReset_AUTO>;
  pc->ops->destroy        = Entry<DestroyData<PC_AUTO, PCReset_AUTO, Compose_AUTO, PC>>;
  PetscCall(Compose_AUTO(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAUTOGetPC - Gets the preconditioner that a `PCAUTO` has chosen

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. taken - the preconditioner currently in use

  Level: intermediate

  Note:
  This is a borrowed reference: the preconditioner belongs to the `PCAUTO`, and exists from `PCSetUp()` until another one replaces
  it.

.seealso: `PCAUTO`
@*/
PetscErrorCode PCAUTOGetPC(PC pc, PC *taken)
{
  return CallGetter(pc, "PCAUTOGetPC_C", taken);
}

/*MC
  PCAUTO - "auto": examines the matrix, chooses a suitable preconditioner, monitors the solves, and chooses another one if they fail

  Options Database Keys:
+ -pc_auto_by <counts> - by what candidates are compared. `counts`: by iterations and the costs that its rules have for them, so
  that runs repeat; `time`: by seconds
. -pc_auto_trials <0.1> - the share of the work so far that trials of other candidates may take; between 0 and 1; 0 for none
- -pc_auto_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `PCFinePCSetBackend()`

  Level: beginner

  Notes:
  The first `PCSetUp()` with a matrix examines a sample of its rows: symmetry, signs, dominance of the diagonal, blocks, the near
  null space, stencils on two-dimensional grids, and the size. A table of rules gives an ordered list of candidates, with `PCJACOBI`
  and `PCNONE` at the end. The first one that can be set up is used. An error in the set-up of a candidate, such as running out of
  memory, is not an error of the program.

  In a `KSPSolve()` that tests a norm, a candidate is replaced by the next one if it does not converge, or if its norms fall so
  slowly that the set-up of the next one seems worthwhile. The next candidate continues from the current solution; the tolerance
  stays relative to the same norm as before. The iterations are added up, and each candidate may take as many as
  `KSPSetTolerances()` allows. The candidate that has worked is kept for the next solve.

  The candidate is kept for new values on the same nonzeros. With different nonzeros the choice starts again.

  A candidate reads options with a prefix, which follows that of the preconditioner itself: `-auto_cmatch_pc_cmatch_strength 0.2` is
  an option of the candidate `PCCMATCH`. `PCView()` shows what was found and tried, which options fix the choice, and which `KSP`
  would suit the matrix better.

.seealso: `PCAUTOGetPC()`, `PCCMATCH`, `PCSFSAI`, `PCAFSAI`, `PCBISAI`, `PCRRB`, `PCAUTOSetBy()`, `PCAUTOSetTrials()`
M*/

/*@C
  PCCreate_AUTO - Makes a preconditioner a `PCAUTO`, after registering finepc if nothing has done so; for `PCRegister()`

  Collective

  Input Parameter:
. pc - the preconditioner context

  Level: developer

.seealso: `PCAUTO`, `PCRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode PCCreate_AUTO(PC pc)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_AUTO>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
