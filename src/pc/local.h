/*
   What every preconditioner does that works on the rank's own diagonal block, whatever its factor is: a set-up begins and ends on
   all ranks together, with one verdict; M^{-1} is applied to vectors of either memory and to several of them; the view begins
   alike. The type brings two functions, of which neither needs another rank: one that computes the factor, one that applies the
   factor.
*/
#pragma once

#include <finepc.h>

#include <string>

/* What became of a rank's set-up. */
struct PCLocalOutcome {
  PetscErrorCode code       = PETSC_SUCCESS; /* an error, which ends PCSetUp() on all ranks; without a text it has been reported */
  PCFailedReason reason     = PC_NOERROR;    /* no error, but no factor: KSPSolve() ends with KSP_DIVERGED_PC_FAILED on all ranks */
  char           text[1024] = "";            /* which row it was, and why: a sentence without its full stop */
};

/* What the data of such a type begins with. */
struct PC_Local {
  /* The factor of the rank's block, or the reason why there is none. */
  PetscErrorCode (*compute)(PC, PCLocalOutcome *) = nullptr;
  /* Y = M^{-1} X or M^{-T} X for so many columns, ldx and ldy apart, in the memory of the factor; how many operations that takes.
   */
  PetscErrorCode (*apply)(PC, PetscBool transpose, PetscInt columns, const PetscScalar *X, PetscInt ldx, PetscScalar *Y,
                          PetscInt ldy, PetscLogDouble *flops) = nullptr;
  PetscInt columns_at_once                                     = 1; /* that apply takes */

  PetscMemType where   = PETSC_MEMTYPE_HOST; /* of the factor */
  PetscInt     rows    = 0;                  /* of the rank's block */
  PetscScalar *staging = nullptr;            /* [2 * rows] on the device, made when a host vector first meets a device factor */
  std::string  failure;                      /* why the last set-up left no factor, the same on all ranks, or empty */
};

/* For `compute`: the factor is of so many rows in memory of that kind. */
PetscErrorCode PCLocalPlace(PC, PetscMemType, PetscInt rows);
/* " of rank 1's block", or nothing where that block is the matrix. */
PetscErrorCode PCLocalNameBlock(PC, char text[], size_t length);

/* The operations of the PC. A type whose M is symmetric takes PCApply_Local() for the transpose, too. */
PetscErrorCode PCSetUp_Local(PC);
PetscErrorCode PCApply_Local(PC, Vec x, Vec y);
PetscErrorCode PCApplyTranspose_Local(PC, Vec x, Vec y);
PetscErrorCode PCMatApply_Local(PC, Mat X, Mat Y);
PetscErrorCode PCReset_Local(PC); /* to be called by the type's own */

/* The head of a view; nothing more is shown if the viewer is no text. And the reason and the text of a failed set-up. */
PetscErrorCode PCViewBegin_Local(PC, PetscViewer, PetscBool *is_ascii);
PetscErrorCode PCViewFailure_Local(PC, PetscViewer);
