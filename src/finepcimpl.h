/* What register.cxx makes and the faces use. */
#pragma once

#include <finepc.h>

extern PetscLogEvent FinePC_AFSAIFactor, FinePC_SFSAIFactor, FinePC_Transpose, FinePC_CGFusedCopy;
extern PetscLogEvent FinePC_RRBFactor;

PETSC_EXTERN PetscErrorCode PCCreate_AFSAI(PC);
PETSC_EXTERN PetscErrorCode PCCreate_SFSAI(PC);
PETSC_EXTERN PetscErrorCode PCCreate_RRB(PC);
PETSC_EXTERN PetscErrorCode KSPCreate_CGFused(KSP);
PETSC_EXTERN PetscErrorCode KSPCreate_RRBCG(KSP);
