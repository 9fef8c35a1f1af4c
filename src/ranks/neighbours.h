/*
   What a rank sends to other ranks and gets from them in the broadcast of a PetscSF, as lists, for an exchange that PETSc does not
   make itself. The lists of two ranks fit together: what one sends to the other is what this one expects, in the same order.
*/
#pragma once

#include <petscsf.h>

#include <vector>

#include "sparse/local_int.h"

struct Neighbours {
  /* The entries begin .. end - 1 of what is sent or received go to this rank or come from it; there is at least one. */
  struct Part {
    PetscMPIInt rank;
    LocalInt    begin, end;
  };

  std::vector<Part>     to, from;
  std::vector<LocalInt> entries; /* which entries of the vector are sent */
  /*
     Where the entries that are received belong among the leaves of the exchange. It is empty where each rank's part goes into a
     piece of the leaves as it comes: then begin and end of `from` count leaves, and nothing has to be sorted.
  */
  std::vector<LocalInt> places;
};

/* The lists of this rank. PetscSFSetUp() is called, which is collective. */
PetscErrorCode NeighboursFromSF(PetscSF, Neighbours *);
/*
   The lists of the same exchange for so many vectors at once, whose entries with the same number lie side by side: entry k of
   vector c is entry k * columns + c of all of them.
*/
PetscErrorCode NeighboursWiden(const Neighbours &, LocalInt columns, Neighbours *wide);
/* Leaves that the exchange fills, or that are ahead of such. */
size_t NeighboursLeaves(const Neighbours &);
/*
   Tells the ranks that this one gets entries from where in its memory they go: part k of `from` to first + its begin. It learns the
   same of the ranks of `to`: there [to.size()]. Some rank may not be `ready` for that; *all says whether each of them is, and is
   the same on all. Without that nothing is told. Collective.
*/
PetscErrorCode NeighboursTell(MPI_Comm, const Neighbours &, PetscBool ready, LocalInt first, PetscBool *all,
                              std::vector<LocalInt> *there);
