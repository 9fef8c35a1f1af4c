/*
   The set-up of CMATCH's levels on several ranks, in the steps between which ranks communicate. What is here knows arrays alone;
   cmatch_ranks_face.h has the communication. The method is explained above the steps on the host, in cmatch_host_ranks.cxx.
*/
#pragma once

#include <vector>

#include "cmatch.h"

/* Rows that travel to the ranks that have them on the next level. Their columns are numbers there. */
struct CMATCHRows {
  std::vector<LocalInt>  i;  /* [rows + 1] row starts */
  std::vector<GlobalInt> j;  /* columns */
  std::vector<double>    a;  /* values */
  std::vector<double>    rs; /* [rows] row sums, or for M the diagonal */
};

/*
   A set-up under way. Each step but the first ones is one of a level l, and they are called in the order in which they stand here.
   With `keep` the hierarchy is one of a matrix with the same nonzeros and the same parameters, whose aggregates, patterns and
   numbers stay.
*/
class CMATCHRanksSetUp {
public:
  virtual ~CMATCHRanksSetUp() = default;

  /* Makes the finest level of A, whose ghosts have these numbers. */
  virtual void Begin(const CSRView *own, const CSRView *foreign, const std::vector<GlobalInt> &ghost, const PetscScalar *w,
                     double largest) = 0;

  /* Finds aggregates, whose number is `coarse`, and of rows that are left `left`. Nothing of the hierarchy changes. */
  virtual void Find(LocalInt l, CMATCHTransfer) = 0;

  /* Takes them unless keep, and makes `numbers` of the own rows. */
  virtual void Take(LocalInt l, GlobalInt first_coarse) = 0;

  /* Makes P from the `numbers` of own rows and ghosts, R, the columns `P_j` of own rows, and `M_sent`. */
  virtual void Prolong(LocalInt l) = 0;

  /* Multiplies, when `P_j` and the values of P have come for ghosts, too, and makes `sent`. */
  virtual void Multiply(LocalInt l, LocalInt mine) = 0;

  /*
     Makes level l + 1, of which the rank has these rows, from its own products and what has been received: contributions add_i[c]
     to add_i[c + 1] - 1 are for row c.
  */
  virtual PetscErrorCode Next(LocalInt l, LocalInt rows, GlobalInt first, GlobalInt all, const std::vector<LocalInt> &add_i) = 0;

  /* Ends the set-up of a rank that has level l alone, or that has no rows of level l. */
  virtual PetscErrorCode End(LocalInt l, bool alone, bool stitch) = 0;

  PetscBool   keep;
  CMATCHStats stats = {};

  LocalInt               coarse = 0, left = 0;
  std::vector<GlobalInt> numbers; /* [n + ghosts] of the aggregates of rows on the next level, -1 for rows that are left */
  std::vector<GlobalInt> P_j;     /* [n + ghosts][width] columns of P by their numbers on the next level, and -1 behind them */
  CMATCHRows             sent, received;     /* of the Galerkin product: of aggregates from `mine` on, and contributions */
  CMATCHRows             M_sent, M_received; /* of the operator that the matching sees */
  LocalInt               lost = 0;           /* entries of M in columns that the operator of the level does not have */
};

/* Begins a set-up, with a new hierarchy in the place of *H unless keep. The caller deletes *setup. */
PetscErrorCode CMATCHRanksCreate_Host(const CMATCHParams *, PetscBool keep, CMATCHHierarchy **H, CMATCHRanksSetUp **setup);
