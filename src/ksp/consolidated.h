/* A solver of ranks that have come together: the leaders solve for all of them, and the others wait. */
#pragma once

#include <petscksp.h>

#include "sparse/consolidated.h"

struct KSPConsolidated {
  KSP       inner  = nullptr; /* on leaders */
  MatGroup *group  = nullptr; /* of the matrix */
  bool      solved = false;   /* it has made the last solve */

  const char *why = ""; /* why not, though the ranks have come together to use the matrix */
};

using CopyKSPOptions = PetscErrorCode (*)(KSP from, KSP to);

/*
   Solves for all ranks, where they have come together to use the matrix and the preconditioner and nothing else has to be done on
   all of them in an iteration; `solved` tells. `why_not` is what the type has against it, empty if it has nothing. History and
   monitors get the norms afterwards. Collective, as what follows.
*/
PetscErrorCode KSPSolve_Consolidated(KSP, KSPConsolidated *, const char why_not[], CopyKSPOptions);
PetscErrorCode KSPReset_Consolidated(KSPConsolidated *);
/* Shows who has solved, and says whether that is all that there is to show. */
PetscErrorCode KSPView_Consolidated(KSP, const KSPConsolidated *, PetscViewer, bool *shown);
