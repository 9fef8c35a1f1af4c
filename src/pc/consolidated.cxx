/* Preconditioners of ranks that have come together. */
#include <petsc/private/pcimpl.h>

#include "consolidated.h"
#include "local.h"
#include "sparse/offload.h"

PetscErrorCode PCReset_Consolidated(PCConsolidated *c)
{
  PetscFunctionBegin;
  PetscCall(PCDestroy(&c->inner));
  PetscCall(MatGroupRelease(&c->group));
  c->shared = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On leaders; A are the rows of the first matrix of the solver. */
static PetscErrorCode MakeInner_PC(PC pc, Mat A, PCConsolidated *c)
{
  const char *prefix;

  PetscFunctionBegin;
  if (!c->inner) {
    PetscCall(PCCreate(c->group->group.same, &c->inner));
    PetscCall(PetscObjectSetOptions((PetscObject)c->inner, ((PetscObject)pc)->options));
    PetscCall(PCGetOptionsPrefix(pc, &prefix));
    PetscCall(PCSetOptionsPrefix(c->inner, prefix)); /* for messages: nothing is looked for */
    PetscCall(PCSetType(c->inner, ((PetscObject)pc)->type_name));
  }
  PetscCall(((const PC_Local *)pc->data)->copy_options(pc, c->inner));
  PetscCall(PCSetOperators(c->inner, A, c->group->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How the set-up has ended on the leaders, with the text of the first one. */
static PetscErrorCode SetUpInner(PC inner, PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  PetscCall(PCSetReusePreconditioner(inner, PETSC_FALSE)); /* a solver may have kept it */
  PetscCall(PCSetUp(inner));
  outcome->reason = inner->failedreason;
  PetscCall(PetscStrncpy(outcome->text, ((const PC_Local *)inner->data)->failure, sizeof(outcome->text)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCSetUp_Consolidated(PC pc, PCConsolidated *c, PCLocalOutcome *outcome)
{
  const MPI_Comm  comm  = PetscObjectComm((PetscObject)pc);
  const PC_Local *local = (const PC_Local *)pc->data;
  PetscErrorCode  code  = PETSC_SUCCESS;
  MatGroup       *group, *first;

  PetscFunctionBegin;
  PetscCall(MatGetGroup(pc->pmat, &group));
  if (!local->copy_options || local->alone) group = nullptr;
  if (group != c->group) {
    PetscCall(PCReset_Consolidated(c));
    c->group = group;
    if (group) group->users++;
  }
  if (!group) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGroupUpdate(pc->pmat, group));
  PetscCall(MatGetGroup(pc->mat, &first));
  if (pc->mat == pc->pmat || !first || first->group.groups != group->group.groups)
    first = group; /* it may have been asked otherwise */
  else PetscCall(MatGroupUpdate(pc->mat, first));
  if (group->group.Leads()) {
    code = MakeInner_PC(pc, first->rows, c);
    if (code) PetscCall(PCDestroy(&c->inner));
  }
  code = AgreeOnError(comm, code, "make the preconditioner of its group");
  if (!code && local->share && !c->shared) code = (*local->share)(pc, group, c->inner);
  c->shared = !code;
  PetscCall(code);
  outcome->code =
    OnLeaders(comm, &group->group, "set up the preconditioner of its group", [&] { return SetUpInner(c->inner, outcome); });
  PetscCall(outcome->code); /* so on all ranks */
  PetscCallMPI(MPI_Bcast(outcome, sizeof(*outcome), MPI_BYTE, group->group.leader, group->group.comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCApply_Consolidated(PC pc, PCConsolidated *c, PetscBool transpose, Vec x, Vec y)
{
  MatGroup *g = c->group;

  PetscFunctionBegin;
  PetscCall(MatGroupPut(g, x, g->b));
  PetscCall(OnLeaders(PetscObjectComm((PetscObject)pc), &g->group, "apply the preconditioner of its group", [&] {
    PetscFunctionBegin;
    PetscCall(PetscObjectStateIncrease((PetscObject)g->rows_b));
    PetscCall((transpose ? PCApplyTranspose : PCApply)(c->inner, g->rows_b, g->rows_x));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscCall(MatGroupTake(g, g->x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCView_Consolidated(PC pc, const PCConsolidated *c, PetscViewer viewer)
{
  const RankGroup *group = &c->group->group;
  PetscMPIInt      size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  if (group->groups == size) PetscCall(PetscViewerASCIIPrintf(viewer, "each rank has the single entries of its rows\n"));
  else
    PetscCall(PetscViewerASCIIPrintf(viewer, "%d ranks have come together on %d, which %s the rows of all\n", size, group->groups,
                                     group->groups == 1 ? "has" : "have"));
  PetscCall(ViewOfLeaders(group, viewer, [&](PetscViewer of_leaders) { return PCView(c->inner, of_leaders); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
