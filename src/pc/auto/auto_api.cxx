/*
   Setters and getters of the options of PCAUTO with their manual pages, written by scripts/options
   from the table in auto.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  PCAUTOSetBy - Sets by what candidates are compared

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- by - `PC_AUTO_BY_COUNTS` (default) or `PC_AUTO_BY_TIME`, see `PCAUTOBy`

  Options Database Key:
. -pc_auto_by <by> - by what candidates are compared

  Level: intermediate

  Note:
  Counted costs are those of the rules, the same on all ranks and in all runs. With `PC_AUTO_BY_TIME` the ranks agree on the largest
  of their times in seconds, and another run may decide differently.

.seealso: `PCAUTO`, `PCAUTOGetBy()`, `PCAUTOBy`
@*/
PetscErrorCode PCAUTOSetBy(PC pc, PCAUTOBy by)
{
  return CallSetter(pc, "PCAUTOSetBy_C", by);
}

/*@
  PCAUTOGetBy - Gets by what candidates are compared

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. by - see `PCAUTOSetBy()`

  Level: intermediate

.seealso: `PCAUTO`, `PCAUTOSetBy()`
@*/
PetscErrorCode PCAUTOGetBy(PC pc, PCAUTOBy *by)
{
  return CallGetter(pc, "PCAUTOGetBy_C", by);
}

/*@
  PCAUTOSetTrials - Sets the share of the work so far that trials of other candidates may take

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- trials - between 0 and 1, 0.1 (default); 0 for none

  Options Database Key:
. -pc_auto_trials <trials> - the share of the work so far that trials of other candidates may take

  Level: intermediate

  Note:
  If a program solves repeatedly with the same nonzeros, other candidates are tried as far as this share allows, each in one solve.
  The better one is kept.

.seealso: `PCAUTO`, `PCAUTOGetTrials()`
@*/
PetscErrorCode PCAUTOSetTrials(PC pc, PetscReal trials)
{
  return CallSetter(pc, "PCAUTOSetTrials_C", trials);
}

/*@
  PCAUTOGetTrials - Gets the share of the work so far that trials of other candidates may take

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. trials - see `PCAUTOSetTrials()`

  Level: intermediate

.seealso: `PCAUTO`, `PCAUTOSetTrials()`
@*/
PetscErrorCode PCAUTOGetTrials(PC pc, PetscReal *trials)
{
  return CallGetter(pc, "PCAUTOGetTrials_C", trials);
}
