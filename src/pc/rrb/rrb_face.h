/* The data of PCRRB, for its PETSc face and for that of KSPRRBCG, which works on the factor of a PCRRB. */
#pragma once

#include "pc/local.h"
#include "rrb.h"

template <typename Object>
struct OptionTable;

struct PC_RRB : PC_Local {
  static const OptionTable<PC> options;

  RRBParams params;
  PetscInt  nx = 0; /* points of a line of the grid, or 0 if the user has not given them */
  PetscInt  ny = 0; /* lines of the grid, or 0 likewise */

  RRBFactor  *factor    = nullptr;
  RRBStats    stats     = RRBStats{};
  const char *source    = nullptr; /* says in the view where the size of the grid comes from */
  PetscInt64  mat_id    = 0;       /* PetscObjectId of the matrix that was factored */
  PetscInt64  mat_state = -1;      /* PetscObjectState of that matrix at the set-up */
};

/*
   Finds the grid of the rank's rows and computes their factor on that grid, or says in the outcome why there is none. A pivot that
   fails is recorded in `stats` alone.
*/
PetscErrorCode RRBComputeOnItsGrid(PC, const CSRView *A, PCLocalOutcome *);
