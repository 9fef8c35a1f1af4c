/*
   The exchange that brings a rank the ghosts of a vector, or of the columns of several at once: one message to each neighbour,
   however many columns there are. The vectors are in the memory of the exchange, and each column of a block is `ld` entries behind
   the one before.
*/
#pragma once

#include <petscsf.h>

#include "sparse/csr.h"

struct GhostExchange {
  PetscSF      sf;      /* from the rows of all ranks to the ghosts, whose places are 0, 1 ..; null if no rank has ghosts */
  PetscMemType where;   /* memory of all arrays */
  LocalInt     count;   /* ghosts */
  LocalInt     columns; /* there is room for so many */
  PetscScalar *values;  /* [columns * count] the ghosts: interleaved, if there is more than one column */

  /* What several columns need beside that, made for the first of them. */
  PetscSF      packed; /* from the packed rows of all ranks to the ghosts */
  LocalInt     sent;   /* rows of this rank that other ranks need */
  LocalInt    *rows;   /* [sent] these rows, ascending */
  PetscScalar *block;  /* [columns * sent] their entries, interleaved */
};

/* Makes room for a vector. A rank does this alone, and gives the exchange its `sf` afterwards. */
PetscErrorCode GhostExchangeCreate(PetscMemType, LocalInt count, GhostExchange *);
PetscErrorCode GhostExchangeDestroy(GhostExchange *);

/*
   Makes room for so many columns, with an `sf`. Collective, unless there is room: all ranks have room for as many columns, or none
   of them has. An error of one rank is one of all.
*/
PetscErrorCode GhostExchangeNeedColumns(GhostExchange *, LocalInt columns);

/* The exchange for columns for which there is room, with the same X at its beginning and its end; nothing without an `sf`. */
PetscErrorCode GhostExchangeBegin(const GhostExchange *, LocalInt columns, const PetscScalar *X, LocalInt ld);
PetscErrorCode GhostExchangeEnd(const GhostExchange *, LocalInt columns, const PetscScalar *X);
