/*
   Setters and getters of the options of KSPRRBCG with their manual pages, written by scripts/options
   from the table in rrbcg.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  KSPRRBCGSetGraph - Sets whether the GPU decides about several iterations of a CUDA graph

  Logically Collective

  Input Parameters:
+ ksp   - the Krylov space context
- graph - `PETSC_TRUE` (default) or `PETSC_FALSE`

  Options Database Key:
. -ksp_rrbcg_graph <graph> - whether the GPU decides about several iterations of a CUDA graph

  Level: advanced

  Note:
  Otherwise iterations are launched one by one and the host tests each, as it does with a monitor. The iterates are the same. On the
  host this option makes no difference, except to who tests.

.seealso: `KSPRRBCG`, `KSPRRBCGGetGraph()`
@*/
PetscErrorCode KSPRRBCGSetGraph(KSP ksp, PetscBool graph)
{
  return CallSetter(ksp, "KSPRRBCGSetGraph_C", graph);
}

/*@
  KSPRRBCGGetGraph - Gets whether the GPU decides about several iterations of a CUDA graph

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
