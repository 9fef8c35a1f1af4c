/* What the files of PC_Local do for local.cxx. */
#pragma once

#include "local.h"

/* Runs a part of a set-up, in which a rank may fail alone. The outcome is one of all ranks, and so is the error. */
PetscErrorCode PCLocalRun(PC, PetscErrorCode (*part)(PC, PCLocalOutcome *), PCLocalOutcome *agreed);

/* The diagonal entries of the rank's rows, on the host; 0 where there is none. */
PetscErrorCode PCLocalCopyDiagonal(const CSRView *, std::vector<PetscScalar> *);

/* Up to the agreement a rank is on its own. One that alone has set values, say, alone has a matrix that is not assembled. */
PetscErrorCode PCLocalCheckAssembled(PC, PCLocalOutcome *);

/* Finds out about the diagonal, on all ranks together. */
PetscErrorCode PCLocalExamineDiagonal(PC, PCLocalOutcome *);
