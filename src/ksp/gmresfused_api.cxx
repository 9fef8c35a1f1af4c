/*
   Setters and getters of the options of KSPGMRESFUSED with their manual pages, written by scripts/options
   from the table in gmresfused.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  KSPGMRESFusedSetPath - Sets who decides about iterations

  Logically Collective

  Input Parameters:
+ ksp  - the Krylov space context
- path - `KSP_GMRESFUSED_AUTO` (default), `KSP_GMRESFUSED_GENERAL` or `KSP_GMRESFUSED_DEVICE`, see `KSPGMRESFusedPath`

  Options Database Key:
. -ksp_gmresfused_path <path> - who decides about iterations

  Level: intermediate

  Note:
  If the GPU cannot decide, the general path runs, and the view says why. The iterates are the same to rounding.

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedGetPath()`, `KSPGMRESFusedPath`
@*/
PetscErrorCode KSPGMRESFusedSetPath(KSP ksp, KSPGMRESFusedPath path)
{
  return CallSetter(ksp, "KSPGMRESFusedSetPath_C", path);
}

/*@
  KSPGMRESFusedGetPath - Gets who decides about iterations

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. path - see `KSPGMRESFusedSetPath()`

  Level: intermediate

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedSetPath()`
@*/
PetscErrorCode KSPGMRESFusedGetPath(KSP ksp, KSPGMRESFusedPath *path)
{
  return CallGetter(ksp, "KSPGMRESFusedGetPath_C", path);
}

/*@
  KSPGMRESFusedSetCommunication - Sets how several ranks make sums and exchange vectors

  Logically Collective

  Input Parameters:
+ ksp           - the Krylov space context
- communication - `KSP_GMRESFUSED_COMMUNICATION_AUTO` (default), `KSP_GMRESFUSED_COMMUNICATION_MPI` or
                  `KSP_GMRESFUSED_COMMUNICATION_NCCL`, see `KSPGMRESFusedCommunication`

  Options Database Key:
. -ksp_gmresfused_communication <communication> - how several ranks make sums and exchange vectors

  Level: intermediate

  Notes:
  With NCCL the GPUs of all ranks decide about the iterations, and no host takes part in any iteration; within one machine the
  kernels write to the other GPUs directly if they can. NCCL needs a finepc that was built with NCCL's header, libnccl.so.2, a
  separate GPU for each rank, and what the path `device` needs on one rank. With MPI, the path is the general one. If NCCL is not
  available, `KSP_GMRESFUSED_COMMUNICATION_AUTO` uses MPI, and a request for NCCL is an error. Ranks that have come together on one
  communicate by neither.

  The iterates are the same to rounding.

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedGetCommunication()`, `KSPGMRESFusedCommunication`
@*/
PetscErrorCode KSPGMRESFusedSetCommunication(KSP ksp, KSPGMRESFusedCommunication communication)
{
  return CallSetter(ksp, "KSPGMRESFusedSetCommunication_C", communication);
}

/*@
  KSPGMRESFusedGetCommunication - Gets how several ranks make sums and exchange vectors

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. communication - see `KSPGMRESFusedSetCommunication()`

  Level: intermediate

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedSetCommunication()`
@*/
PetscErrorCode KSPGMRESFusedGetCommunication(KSP ksp, KSPGMRESFusedCommunication *communication)
{
  return CallGetter(ksp, "KSPGMRESFusedGetCommunication_C", communication);
}

/*@
  KSPGMRESFusedSetRestart - Sets the number of iterations of a cycle, after which a new basis begins

  Logically Collective

  Input Parameters:
+ ksp     - the Krylov space context
- restart - between 1 and 1000, 30 (default)

  Options Database Key:
. -ksp_gmresfused_restart <restart> - the number of iterations of a cycle, after which a new basis begins

  Level: beginner

  Note:
  `KSPGMRESSetRestart()` and `-ksp_gmres_restart` do the same. One more vector than this number is stored, and an orthogonalization
  reads half of them twice on average.

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedGetRestart()`, `KSPGMRESSetRestart()`
@*/
PetscErrorCode KSPGMRESFusedSetRestart(KSP ksp, PetscInt restart)
{
  return CallSetter(ksp, "KSPGMRESFusedSetRestart_C", restart);
}

/*@
  KSPGMRESFusedGetRestart - Gets the number of iterations of a cycle, after which a new basis begins

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. restart - see `KSPGMRESFusedSetRestart()`

  Level: beginner

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedSetRestart()`
@*/
PetscErrorCode KSPGMRESFusedGetRestart(KSP ksp, PetscInt *restart)
{
  return CallGetter(ksp, "KSPGMRESFusedGetRestart_C", restart);
}

/*@
  KSPGMRESFusedSetStepSize - Sets how many products with the matrix there are between two orthogonalizations

  Logically Collective

  Input Parameters:
+ ksp  - the Krylov space context
- size - between 1 and 2, 2 (default)

  Options Database Key:
. -ksp_gmresfused_step_size <size> - how many products with the matrix there are between two orthogonalizations

  Level: advanced

  Notes:
  With 2 the vectors u, B u and B B u, where B is A M or M A, give two new vectors of the basis at once. The basis is read half as
  often, and on several ranks there is one sum for two iterations. Iterates, norms and iteration counts stay those of one product
  per step, to rounding; the rounding errors grow as the products become nearly dependent on the vectors before them. If B u loses
  more than three digits in its orthogonalization, or both products together more than seven, the second product is not used. If
  they have lost so many digits that a cycle cannot make the residual much smaller, the cycle ends. From then on there is one
  product per step, and the view says so.

  If the preconditioner works in single precision, as `PCBISAI` does by default, B is linear to only seven digits, and norms after a
  second product differ from those of `KSPGMRES` in about the fourth digit.

  With a flexible solve, a preconditioner that may change by itself, or a second pass of orthogonalization, there is always one
  product per step. The work that a solve starts beyond its last iteration costs one more product than with 1.

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedGetStepSize()`
@*/
PetscErrorCode KSPGMRESFusedSetStepSize(KSP ksp, PetscInt size)
{
  return CallSetter(ksp, "KSPGMRESFusedSetStepSize_C", size);
}

/*@
  KSPGMRESFusedGetStepSize - Gets how many products with the matrix there are between two orthogonalizations

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. size - see `KSPGMRESFusedSetStepSize()`

  Level: advanced

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedSetStepSize()`
@*/
PetscErrorCode KSPGMRESFusedGetStepSize(KSP ksp, PetscInt *size)
{
  return CallGetter(ksp, "KSPGMRESFusedGetStepSize_C", size);
}

/*@
  KSPGMRESFusedSetFlexible - Sets whether the preconditioner may change from iteration to iteration, as with `KSPFGMRES`

  Logically Collective

  Input Parameters:
+ ksp      - the Krylov space context
- flexible - `PETSC_TRUE` or `PETSC_FALSE` (default)

  Options Database Key:
. -ksp_gmresfused_flexible <flexible> - whether the preconditioner may change from iteration to iteration, as with `KSPFGMRES`

  Level: intermediate

  Note:
  The preconditioned vectors are kept, as in `KSPFGMRES`, which takes as much memory again as the basis. A flexible solve needs the
  preconditioner on the right, the default. Even without this option, a solve becomes flexible by itself if the preconditioner
  contains an iterative solver, or if the residual of a cycle is far from the true residual.

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedGetFlexible()`, `KSPFGMRES`
@*/
PetscErrorCode KSPGMRESFusedSetFlexible(KSP ksp, PetscBool flexible)
{
  return CallSetter(ksp, "KSPGMRESFusedSetFlexible_C", flexible);
}

/*@
  KSPGMRESFusedGetFlexible - Gets whether the preconditioner may change from iteration to iteration, as with `KSPFGMRES`

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. flexible - see `KSPGMRESFusedSetFlexible()`

  Level: intermediate

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedSetFlexible()`
@*/
PetscErrorCode KSPGMRESFusedGetFlexible(KSP ksp, PetscBool *flexible)
{
  return CallGetter(ksp, "KSPGMRESFusedGetFlexible_C", flexible);
}

/*@
  KSPGMRESFusedSetBasisPrecision - Sets the precision in which the basis is stored

  Logically Collective

  Input Parameters:
+ ksp       - the Krylov space context
- precision - `FINEPC_DOUBLE` (default) or `FINEPC_SINGLE`, see `FinePCPrecision`; sums are always in double precision

  Options Database Key:
. -ksp_gmresfused_basis_precision <precision> - the precision in which the basis is stored

  Level: advanced

  Note:
  The basis is most of what an iteration reads. All sums are in double precision. With a basis in single precision, a cycle cannot
  reduce the residual below about 1e-6 of its value at the start of the cycle, and the next cycle continues from there.

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedGetBasisPrecision()`, `FinePCPrecision`
@*/
PetscErrorCode KSPGMRESFusedSetBasisPrecision(KSP ksp, FinePCPrecision precision)
{
  return CallSetter(ksp, "KSPGMRESFusedSetBasisPrecision_C", precision);
}

/*@
  KSPGMRESFusedGetBasisPrecision - Gets the precision in which the basis is stored

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. precision - see `KSPGMRESFusedSetBasisPrecision()`

  Level: advanced

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedSetBasisPrecision()`
@*/
PetscErrorCode KSPGMRESFusedGetBasisPrecision(KSP ksp, FinePCPrecision *precision)
{
  return CallGetter(ksp, "KSPGMRESFusedGetBasisPrecision_C", precision);
}
