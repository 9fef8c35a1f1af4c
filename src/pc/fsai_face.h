/* The PETSc faces of the factored sparse approximate inverses share this header, beside what all of them have from PC_Local. */
#pragma once

#include "fsai.h"
#include "local.h"
#include "pcinverse.h"

/* The data of a type derives from PC_FSAI. */
struct PC_FSAI : PC_Local {
  PCInverse inverse = PCInverse{};
  FSAIStats stats   = FSAIStats{};
  PetscBool reused  = PETSC_FALSE; /* whether the last set-up kept the pattern */
};

/*
   Begins a set-up: decides whether the pattern is kept, sets `reused` to the answer, and makes room for a new factor if not. The
   type then computes W1 and d of the inverse.
*/
PetscErrorCode PCFSAIPrepare(PC, const CSRView *A, PetscBool reuse_pattern, FinePCPrecision factor);

/* Ends a set-up: computes W2 = G~^T, or describes in the outcome why the matrix cannot be preconditioned. */
PetscErrorCode PCFSAIComplete(PC, const char type[], PCLocalOutcome *);

/* Gives the PC the operations that set up and apply. */
PetscErrorCode PCFSAISetOperations(PC, PC_FSAI *, PC_Local::Compute);

/* Composes the methods that all of these types have, or takes them away if `compose` is false. */
PetscErrorCode PCFSAICompose(PC, const char get_factors[], PetscBool compose);

/* Shows what a set-up has built, or why it has built nothing. */
PetscErrorCode PCView_FSAI(PC, PetscViewer);

PetscErrorCode PCReset_FSAI(PC);
