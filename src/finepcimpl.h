/* The log events, which register.cxx registers and the faces use, and what it calls to register solver packages. */
#pragma once

#include <finepc.h>

extern PetscLogEvent FinePC_AFSAIFactor, FinePC_SFSAIFactor, FinePC_SFSAIPattern, FinePC_SFSAIValues, FinePC_BISAIAnalyse,
  FinePC_BISAIFactor, FinePC_BISAIInvert, FinePC_BISAIConvert, FinePC_BISAICopy, FinePC_BISAIPattern, FinePC_BISAIValues,
  FinePC_RRBFactor, FinePC_CMATCHHierarchy, FinePC_Transpose, FinePC_HaloGather, FinePC_HaloConnect, FinePC_CGFusedCopy,
  FinePC_GMRESFusedCopy, FinePC_BAIJCUDACopy, FinePC_SendMat, FinePC_SendVec;

PetscErrorCode MatSolverTypeRegister_CUDSS();
