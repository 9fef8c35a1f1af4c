/* The log events, which register.cxx registers and the faces use, and the constructors of all types, which register.cxx needs. */
#pragma once

#include <finepc.h>

extern PetscLogEvent FinePC_AFSAIFactor, FinePC_SFSAIFactor, FinePC_BISAIFactor, FinePC_BISAIInvert, FinePC_BISAIConvert,
  FinePC_BISAICopy, FinePC_BISAIPattern, FinePC_BISAIValues, FinePC_RRBFactor, FinePC_CMATCHHierarchy, FinePC_Transpose,
  FinePC_CGFusedCopy, FinePC_BAIJCUDACopy;

PETSC_EXTERN PetscErrorCode PCCreate_AFSAI(PC);
PETSC_EXTERN PetscErrorCode PCCreate_SFSAI(PC);
PETSC_EXTERN PetscErrorCode PCCreate_BISAI(PC);
PETSC_EXTERN PetscErrorCode PCCreate_RRB(PC);
PETSC_EXTERN PetscErrorCode PCCreate_CMATCH(PC);
PETSC_EXTERN PetscErrorCode KSPCreate_CGFused(KSP);
PETSC_EXTERN PetscErrorCode KSPCreate_RRBCG(KSP);
PETSC_EXTERN PetscErrorCode MatCreate_SeqBAIJCUDA(Mat);
PETSC_EXTERN PetscErrorCode MatCreate_MPIBAIJCUDA(Mat);
