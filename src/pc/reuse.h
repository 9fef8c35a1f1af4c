/*
   Whether a preconditioner of PC_Local keeps its factor where the matrix has new values on the same nonzeros. All types come by
   here in PCSetUp_Local().
*/
#pragma once

#include "sparse/bsr_mat.h"
#include "watch.h"

struct PCReuse {
  PCFinePCReuse mode = PC_FINEPC_REUSE_NEVER;

  MatPattern nonzeros = {};
  bool       options  = false; /* one has changed that makes the factor useless */
  bool       frozen   = false; /* the factor is not that of the values at hand */

  /* Since the last set-up, in seconds, or in iterations where these count. */
  double   counts   = -1; /* what a set-up counts, in iterations; negative: by seconds */
  double   set_up   = 0;  /* the set-up itself */
  double   cost     = 0;  /* all solves */
  double   last     = 0;  /* the last one */
  double   first    = 0;  /* the first one */
  PetscInt solves   = 0;
  PetscInt its      = 0; /* of the first one */
  PetscInt wait     = 0; /* set-ups before the factor is kept again, since keeping it has not paid */
  PetscInt back_off = 1;
  double   newest   = 0; /* the first solve after the last set-up from nothing */
  double   excess   = 0; /* what first solves have taken beyond that since then */
  double   patience = 1; /* how many set-ups the excess may be worth */
  bool     anew     = false;

  PetscInt kept = 0, refilled = 0, made = 0; /* set-ups of each kind */
};

/* Part of PCSetUp_Local(): whether the factor stays as it is. Collective. */
PetscErrorCode PCReuseDecide(PC, bool *keep);
/* After a set-up, which has taken so many seconds here. Collective. */
PetscErrorCode PCReuseNoteSetUp(PC, PetscLogDouble seconds);
/* After a solve. Collective. */
PetscErrorCode PCReuseNoteSolve(PC, PetscInt its, PetscLogDouble seconds);
/* Iterations after which a kept factor is to be made anew in the midst of a solve, and whether that is so at once. */
PetscInt       PCReuseLimit(PC);
bool           PCReuseIsFrozen(PC);
PetscErrorCode PCReuseRefresh(PC, bool *refreshed);
/* Decides by counted costs: a set-up takes as long as so many iterations. */
PetscErrorCode PCReuseCount(PC, double its);
PetscErrorCode PCReuseView(PC, PetscViewer);

/* Composes what belongs to the type, or takes it away. */
PetscErrorCode PCReuseCompose(PC, PetscBool compose);
