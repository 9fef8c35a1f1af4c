/* What programs see of PCL1JACOBI, as finepc.h has it for the types of finepc, and the log event, as finepcimpl.h has those. */
#pragma once

#include <finepc.h>

#define PCL1JACOBI "l1jacobi"

/* Setters and getters of options, written by scripts/options from the tables of options: do not edit. */
PETSC_EXTERN PetscErrorCode PCL1JacobiSetWeight(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCL1JacobiGetWeight(PC, PetscReal *);
/* End of what scripts/options writes. */

PETSC_EXTERN PetscErrorCode PCCreate_L1Jacobi(PC);
PETSC_EXTERN PetscErrorCode PetscDLLibraryRegister_l1jacobi(void);

extern PetscLogEvent FinePC_L1JacobiFactor;
