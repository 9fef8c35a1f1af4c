/*
   Setters and getters of the options of PCL1JACOBI with their manual pages, written by scripts/options
   from the table in l1jacobi.cxx: do not edit.
*/
#include "api.h"

#include "pcl1jacobi.h"

/*@
  PCL1JacobiSetWeight - Sets the weight omega of the entries beside the diagonal

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- weight - between 0 and 1, 1 (default); 0 gives `PCJACOBI`

  Options Database Key:
. -pc_l1jacobi_weight <weight> - the weight omega of the entries beside the diagonal

  Level: intermediate

.seealso: `PCL1JACOBI`, `PCL1JacobiGetWeight()`
@*/
PetscErrorCode PCL1JacobiSetWeight(PC pc, PetscReal weight)
{
  return CallSetter(pc, "PCL1JacobiSetWeight_C", weight);
}

/*@
  PCL1JacobiGetWeight - Gets the weight omega of the entries beside the diagonal

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. weight - see `PCL1JacobiSetWeight()`

  Level: intermediate

.seealso: `PCL1JACOBI`, `PCL1JacobiSetWeight()`
@*/
PetscErrorCode PCL1JacobiGetWeight(PC pc, PetscReal *weight)
{
  return CallGetter(pc, "PCL1JacobiGetWeight_C", weight);
}
