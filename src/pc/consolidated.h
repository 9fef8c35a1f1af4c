/* A preconditioner of ranks that have come together: each leader has one of the rows of its group, and the others wait. */
#pragma once

#include <petscpc.h>

#include "ranks/agree.h"
#include "sparse/consolidated.h"

struct PCLocalOutcome;

struct PCConsolidated {
  MatGroup *group  = nullptr; /* of the matrix; null if each rank has a factor of its own */
  PC        inner  = nullptr; /* on leaders */
  bool      shared = false;   /* it has what the program has given each rank beside options, see PC_Local */
};

/* What a set-up makes of the group of pc->pmat, or takes away if there is none. Collective, as what follows. */
PetscErrorCode PCSetUp_Consolidated(PC, PCConsolidated *, PCLocalOutcome *);
PetscErrorCode PCReset_Consolidated(PCConsolidated *);
PetscErrorCode PCApply_Consolidated(PC, PCConsolidated *, PetscBool transpose, Vec x, Vec y);
PetscErrorCode PCView_Consolidated(PC, const PCConsolidated *, PetscViewer);

/* Calls what the leaders do, while the others wait; its error is one of all ranks, which could not do `text` then. */
template <typename Call>
PetscErrorCode OnLeaders(MPI_Comm comm, RankGroup *group, const char text[], Call call)
{
  PetscErrorCode code = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(RankGroupMeet(group));
  if (group->Leads()) code = call();
  PetscCall(RankGroupMeet(group));
  PetscCall(AgreeOnError(comm, code, text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows what `show` does with a viewer of the leaders. */
template <typename Show>
PetscErrorCode ViewOfLeaders(const RankGroup *group, PetscViewer viewer, Show show)
{
  PetscViewer of_leaders;

  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPushTab(viewer));
  PetscCall(PetscViewerGetSubViewer(viewer, group->same, &of_leaders));
  if (group->Leads()) PetscCall(show(of_leaders));
  PetscCall(PetscViewerRestoreSubViewer(viewer, group->same, &of_leaders));
  PetscCall(PetscViewerASCIIPopTab(viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}
