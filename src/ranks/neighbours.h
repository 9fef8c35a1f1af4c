/*
   What a rank sends to other ranks and gets from them in an exchange, as lists, where PETSc does not make it itself. The lists of
   two ranks fit together: what one sends to the other is what this one expects, in the same order.
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

  std::vector<Part> to, from;
  /*
     Which entries of the vector are sent, and where those that are received belong among the ghosts. A list is empty where each
     rank's part is a piece of them as it is: then begin and end of `to` or `from` count entries or ghosts.
  */
  std::vector<LocalInt> entries, places;
  /* What the rank sends to itself, which is apart: entries of the vector, and where they go among the ghosts. */
  std::vector<LocalInt> own_from, own_to;
};

/*
   The lists of this rank for the broadcast of a PetscSF; `entries` are always there. Collective, unless PetscSFSetUp() has been
   called.
*/
PetscErrorCode NeighboursFromSF(PetscSF, Neighbours *);
/* Where each part is a piece of the vector, it becomes a part of that, and no list is needed. */
void NeighboursTakePieces(std::vector<Neighbours::Part> *parts, std::vector<LocalInt> *list);
/*
   Takes apart what this rank sends to itself, and gives the ranks their numbers in another communicator. Lists are there
   afterwards, where there is anything to send to others or to get from them.
*/
void NeighboursSplit(Neighbours *, PetscMPIInt rank, const std::vector<PetscMPIInt> &number);
/* The exchange in the other direction: the ghosts go back to where they came from. */
void NeighboursReverse(Neighbours *);
/*
   The lists of the same exchange for so many vectors at once, whose entries with the same number lie side by side: entry k of
   vector c is entry k * columns + c of all of them.
*/
PetscErrorCode NeighboursWiden(const Neighbours &, LocalInt columns, Neighbours *wide);
/* Leaves that the exchange fills, or that are ahead of such. */
size_t NeighboursLeaves(const Neighbours &);
/* Entries of these parts. */
size_t NeighboursCount(const std::vector<Neighbours::Part> &);
