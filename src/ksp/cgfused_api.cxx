/*
   Setters and getters of the options of KSPCGFUSED with their manual pages, written by scripts/options
   from the table in cgfused.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  KSPCGFusedSetPath - Sets how iterations are run

  Logically Collective

  Input Parameters:
+ ksp  - the Krylov space context
- path - `KSP_CGFUSED_AUTO` (default), `KSP_CGFUSED_GENERAL`, `KSP_CGFUSED_GRAPH` or `KSP_CGFUSED_RESIDENT`, see `KSPCGFusedPath`

  Options Database Key:
. -ksp_cgfused_path <path> - how iterations are run

  Level: intermediate

  Note:
  If the requested path cannot run, another one does, and the view says which and why. `KSP_CGFUSED_AUTO` chooses by size. On
  several ranks `KSP_CGFUSED_GRAPH` and `KSP_CGFUSED_RESIDENT` are `KSP_CGFUSED_AUTO`. All of them give the iterates of `KSPCG`, to
  rounding.

.seealso: `KSPCGFUSED`, `KSPCGFusedGetPath()`, `KSPCGFusedPath`
@*/
PetscErrorCode KSPCGFusedSetPath(KSP ksp, KSPCGFusedPath path)
{
  return CallSetter(ksp, "KSPCGFusedSetPath_C", path);
}

/*@
  KSPCGFusedGetPath - Gets how iterations are run

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. path - see `KSPCGFusedSetPath()`

  Level: intermediate

.seealso: `KSPCGFUSED`, `KSPCGFusedSetPath()`
@*/
PetscErrorCode KSPCGFusedGetPath(KSP ksp, KSPCGFusedPath *path)
{
  return CallGetter(ksp, "KSPCGFusedGetPath_C", path);
}

/*@
  KSPCGFusedSetCompress - Sets whether copies of the matrices are smaller than these where nothing is lost by it

  Logically Collective

  Input Parameters:
+ ksp      - the Krylov space context
- compress - `PETSC_TRUE` (default) or `PETSC_FALSE`

  Options Database Key:
. -ksp_cgfused_compress <compress> - whether copies of the matrices are smaller than these where nothing is lost by it

  Level: advanced

  Note:
  Values are stored in single precision if all of them are exact in that precision, and columns as 16-bit distances from the first
  column of a step if these suffice. A step is the set of entries that the threads of a warp process together. The iterates are the
  same to the last bit. The resident kernel does not compress.

.seealso: `KSPCGFUSED`, `KSPCGFusedGetCompress()`
@*/
PetscErrorCode KSPCGFusedSetCompress(KSP ksp, PetscBool compress)
{
  return CallSetter(ksp, "KSPCGFusedSetCompress_C", compress);
}

/*@
  KSPCGFusedGetCompress - Gets whether copies of the matrices are smaller than these where nothing is lost by it

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. compress - see `KSPCGFusedSetCompress()`

  Level: advanced

.seealso: `KSPCGFUSED`, `KSPCGFusedSetCompress()`
@*/
PetscErrorCode KSPCGFusedGetCompress(KSP ksp, PetscBool *compress)
{
  return CallGetter(ksp, "KSPCGFusedGetCompress_C", compress);
}

/*@
  KSPCGFusedSetCommunication - Sets how several ranks make sums and exchange vectors

  Logically Collective

  Input Parameters:
+ ksp           - the Krylov space context
- communication - `KSP_CGFUSED_COMMUNICATION_AUTO` (default), `KSP_CGFUSED_COMMUNICATION_MPI` or `KSP_CGFUSED_COMMUNICATION_NCCL`,
                  see `KSPCGFusedCommunication`

  Options Database Key:
. -ksp_cgfused_communication <communication> - how several ranks make sums and exchange vectors

  Level: intermediate

  Notes:
  With NCCL, NVIDIA's library for communication between GPUs, the sums and exchanges are part of the CUDA graph of the iterations,
  as everything else is on one rank: the host decides nothing, and learns of the end with a delay. An exchange brings only what a
  product needs from other ranks, while the product with the rank's own columns runs. With MPI the path is the general one, on which
  the products are those of the matrix.

  NCCL needs a finepc that was built with NCCL's header, the library libnccl.so.2, which is opened when it is first needed, and a
  separate GPU for each rank. If one of these is missing, `KSP_CGFUSED_COMMUNICATION_AUTO` uses MPI; if NCCL was requested, it is an
  error. On the general path, and if `-ksp_cg_single_reduction` asks for the recurrences of a single reduction, all communication is
  by MPI, whatever is set. On one rank, and for ranks that have come together on one, there is no communication. The view says what
  was used, and why.

  NCCL reads environment variables such as `NCCL_DEBUG` and `NCCL_NVLS_ENABLE`; finepc changes none of them.

.seealso: `KSPCGFUSED`, `KSPCGFusedGetCommunication()`, `KSPCGFusedCommunication`
@*/
PetscErrorCode KSPCGFusedSetCommunication(KSP ksp, KSPCGFusedCommunication communication)
{
  return CallSetter(ksp, "KSPCGFusedSetCommunication_C", communication);
}

/*@
  KSPCGFusedGetCommunication - Gets how several ranks make sums and exchange vectors

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. communication - see `KSPCGFusedSetCommunication()`

  Level: intermediate

.seealso: `KSPCGFUSED`, `KSPCGFusedSetCommunication()`
@*/
PetscErrorCode KSPCGFusedGetCommunication(KSP ksp, KSPCGFusedCommunication *communication)
{
  return CallGetter(ksp, "KSPCGFusedGetCommunication_C", communication);
}
