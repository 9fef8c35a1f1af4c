/*
   The public functions of KSPRRBCG, with their manual pages. The values that they set and get are in the table of options in
   rrbcg.cxx.
*/
#include "api.h"

#include <finepc.h>

/*@
  KSPRRBCGSetGraph - Sets whether `KSPRRBCG` lets the GPU decide about several iterations

  Logically Collective

  Input Parameters:
+ ksp - the Krylov space context
- graph - `PETSC_TRUE` (default) or `PETSC_FALSE`

  Options Database Key:
. -ksp_rrbcg_graph <graph> - whether the device decides about several iterations of a graph

  Level: advanced

  Note:
  Otherwise iterations are launched one by one and the host tests each, as it does with a monitor. The iterates are the same. On the
  host it makes no difference but to who tests.

.seealso: `KSPRRBCG`, `KSPRRBCGGetGraph()`
@*/
PetscErrorCode KSPRRBCGSetGraph(KSP ksp, PetscBool graph)
{
  return CallSetter(ksp, "KSPRRBCGSetGraph_C", graph);
}

/*@
  KSPRRBCGGetGraph - Gets whether `KSPRRBCG` lets the GPU decide about several iterations

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. graph - see `KSPRRBCGSetGraph()`

  Level: advanced

.seealso: `KSPRRBCG`, `KSPRRBCGSetGraph()`
@*/
PetscErrorCode KSPRRBCGGetGraph(KSP ksp, PetscBool *graph)
{
  return CallGetter(ksp, "KSPRRBCGGetGraph_C", graph);
}
