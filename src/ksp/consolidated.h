/* A solver of ranks that have come together: the leaders solve for all of them, and the others wait. */
#pragma once

#include <petscksp.h>

#include <vector>

#include "sparse/consolidated.h"

struct KSPConsolidated {
  KSP       inner  = nullptr; /* on leaders */
  MatGroup *group  = nullptr; /* of the matrix */
  bool      solved = false;   /* it has made the last solve */

  KSP outer = nullptr; /* that of the program */

  std::vector<PetscReal> spectrum; /* of the last solve, if it was wanted: real and imaginary parts, emax and emin */

  /* Of a solve with monitors or a test of the program, which all ranks call in each iteration. */
  bool monitors = false, tests = false;
  bool talks  = false; /* such a solve goes on */
  bool failed = false; /* a monitor or a test has ended it with an error, on all ranks */

  const char *why = ""; /* why not, though the ranks have come together to use the matrix */
};

using CopyKSPOptions = PetscErrorCode (*)(KSP from, KSP to);

/*
   Part of SetUp(), which the solver has called for a new matrix, too: decides where the rows of the matrix are used, and whether
   ranks come together, before a preconditioner does, which may be one of any solver. Where they do, a solve rarely needs vectors of
   each rank.
*/
PetscErrorCode KSPSetUp_Consolidated(KSP, KSPConsolidated *, bool *together);
/*
   Solves for all ranks, where they have come together to use the matrix and the preconditioner; `solved` tells. `why_not` is what
   the type has against it, empty if it has nothing. History and monitors that look at nothing but the norm get the norms
   afterwards; with other ones, or with a test of the program, all ranks follow the leaders from one iteration to the next.
   Collective, as what follows.
*/
PetscErrorCode KSPSolve_Consolidated(KSP, KSPConsolidated *, const char why_not[], CopyKSPOptions);
/* The solver uses its matrix no more. */
PetscErrorCode KSPReset_Consolidated(KSPConsolidated *);
/* The solution of the iteration, in v, for a monitor or a test of such a solve. */
PetscErrorCode KSPBuildSolution_Consolidated(const KSPConsolidated *, Vec v);
/* What KSPComputeEigenvalues() and KSPComputeExtremeSingularValues() give after such a solve; not collective, as they are. */
PetscErrorCode KSPComputeEigenvalues_Consolidated(const KSPConsolidated *, PetscInt nmax, PetscReal *r, PetscReal *c,
                                                  PetscInt *neig);
PetscErrorCode KSPComputeExtremeSingularValues_Consolidated(const KSPConsolidated *, PetscReal *emax, PetscReal *emin);
/* Shows who has solved, and says whether that is all that there is to show. */
PetscErrorCode KSPView_Consolidated(KSP, const KSPConsolidated *, PetscViewer, bool *shown);
