/* What the faces of the factored sparse approximate inverses share, beside what PC_Local has. */
#pragma once

#include "fsai.h"
#include "local.h"
#include "pcinverse.h"

struct PC_FSAI : PC_Local {
  PCInverse inverse = PCInverse{};
  FSAIStats stats   = FSAIStats{};
  PetscBool reused  = PETSC_FALSE; /* the last set-up kept the pattern */
};

/* Whether the set-up keeps the pattern, which it sets `reused` to; otherwise there is room for a new factor afterwards. */
PetscErrorCode PCFSAIPrepare(PC, const CSRView *A, PetscBool reuse_pattern, FinePCPrecision factor);
/* G^T, or the outcome of a matrix that cannot be preconditioned. */
PetscErrorCode PCFSAIComplete(PC, const char type[], PCLocalOutcome *);
PetscErrorCode PCFSAISetOperations(PC);                                        /* set-up and apply */
PetscErrorCode PCFSAICompose(PC, const char get_factors[], PetscBool compose); /* the methods that all of them have */
PetscErrorCode PCView_FSAI(PC, PetscViewer);                                   /* what is built, or why nothing is */
PetscErrorCode PCReset_FSAI(PC);
