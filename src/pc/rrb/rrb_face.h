/* The data of PCRRB, for its face and for that of KSPRRBCG, which works on its factor. */
#pragma once

#include "pc/local.h"
#include "rrb.h"

template <typename Object>
struct OptionTable;

struct PC_RRB : PC_Local {
  static const OptionTable<PC> options;

  RRBParams params;
  PetscInt  nx = 0, ny = 0; /* points of a line of the grid, and its lines; 0: not given */

  RRBFactor  *factor    = nullptr;
  RRBStats    stats     = RRBStats{};
  const char *source    = nullptr; /* where the size of the grid comes from */
  PetscInt64  mat_id    = 0;       /* PetscObjectId of the matrix that was factored */
  PetscInt64  mat_state = -1;      /* PetscObjectState of that matrix then */
};

/* The factor of the rank's rows on their grid, which rrb_grid.cxx finds, or why there is none; a pivot that is not positive is left
 * in stats. */
PetscErrorCode RRBComputeOnItsGrid(PC, const CSRView *A, PCLocalOutcome *);
