/*
   aFSAI, the adaptive factored sparse approximate inverse of a symmetric positive definite matrix: M^{-1} = G^T G.

   Isotton, Janna, Bernaschi, A GPU-accelerated adaptive FSAI preconditioner for massively parallel simulations.
   The prefilter and the postfilter, (3.8) and (3.11), are those of
   Bernaschi, Bisson, Fantozzi, Janna, SIAM J. Sci. Comput. 38 (2016) C53-C72.
*/
#pragma once

#include "pc/fsai.h"

/* The most steps that an option may ask for, and the most entries of a step. Their product is the most entries of a row. */
constexpr PetscInt kAFSAIMostSteps = 10000, kAFSAILargestStep = 10000;

struct AFSAIParams {
  PetscInt         max_steps     = 20;   /* k_max, the most steps of a row, 0 .. kAFSAIMostSteps */
  PetscInt         step_size     = 1;    /* s, the entries that a step adds, 1 .. kAFSAILargestStep */
  PetscReal        tolerance     = 1e-3; /* epsilon of the stop rule, in [0, 1) */
  PetscReal        prefilter     = 0.0;  /* tau of (3.8) by Bernaschi et al., in [0, 1] */
  PetscReal        postfilter    = 0.0;  /* delta of (3.11) by Bernaschi et al., in [0, 1] */
  PetscInt         initial_power = 0; /* p, 0 .. kFSAILargestPower: row i starts with the pattern of row i of Low(A^p), or empty */
  PCAFSAIStopRule  stop_rule     = PC_AFSAI_STOP_GAIN;
  PCAFSAISelection selection     = PC_AFSAI_SELECTION_DECREASE;
  FinePCPrecision  setup_precision  = FINEPC_SINGLE;
  FinePCPrecision  factor_precision = FINEPC_SINGLE;
};

/*
   The last of the steps that a row may take ought to be a small one. Between few steps and enough some rows have found what nearly
   cancels them and others have not, and the iterations can be far more than with the diagonal alone, as on ex15 with 3 to 8 steps.
   A row counts as unfinished if its last step has lowered psi by more than kAFSAISmallStep of it, and the view gives advice if more
   than kAFSAIUnfinishedRows of the rows are.
*/
constexpr PetscReal kAFSAISmallStep = 0.1, kAFSAIUnfinishedRows = 0.1;

/*
   Computes the rows first .. n - 1 of G~, with columns 0 .. n - 1, and d [n - first], both in the memory of A. The rows of A before
   `first` are only read; they belong to other ranks. S is null, or has the pattern with which the rows first .. n - 1 start, in the
   place of initial_power; only its columns left of the diagonal count, and its values are null. With keep, G has its pattern
   already, and only its values and d are computed.
*/
PetscErrorCode AFSAIComputeFactor_Host(const CSRView *A, LocalInt first, const CSRView *S, const AFSAIParams *, PetscBool keep,
                                       CSR *G, PetscReal *d, FSAIStats *);
PetscErrorCode AFSAIComputeFactor_CUDA(const CSRView *A, LocalInt first, const CSRView *S, const AFSAIParams *, PetscBool keep,
                                       CSR *G, PetscReal *d, FSAIStats *);
