/*
   aFSAI, the adaptive factored sparse approximate inverse of an SPD matrix: M^{-1} = G^T G.

   Isotton, Janna, Bernaschi, A GPU-accelerated adaptive FSAI preconditioner for massively parallel simulations (paper 000);
   prefilter and postfilter: Bernaschi, Bisson, Fantozzi, Janna, SIAM J. Sci. Comput. 38 (2016) C53-C72 (paper 004).
*/
#pragma once

#include "pc/fsai.h"

struct AFSAIParams {
  PetscInt         max_steps        = 20;   /* k_max, steps per row, >= 0 */
  PetscInt         step_size        = 1;    /* s, entries added per step, >= 1 */
  PetscReal        tolerance        = 1e-3; /* epsilon of the stop rule, in [0, 1) */
  PetscReal        prefilter        = 0.0;  /* tau of (3.8), paper 004, in [0, 1] */
  PetscReal        postfilter       = 0.0;  /* delta of (3.11), paper 004, in [0, 1] */
  PetscInt         initial_power    = 0;    /* P starts as row i of Low(A^p); 0: empty */
  PCAFSAIStopRule  stop_rule        = PC_AFSAI_STOP_GAIN;
  PCAFSAISelection selection        = PC_AFSAI_SELECTION_DECREASE;
  FinePCPrecision  setup_precision  = FINEPC_SINGLE;
  FinePCPrecision  factor_precision = FINEPC_SINGLE;
};

/*
   Rows first..n-1 of G~ (columns 0..n-1) and d [n - first], both where A is. Rows 0..first-1 of A are only read: rows of
   other ranks. With keep, G holds a pattern that is kept: only its values and d are computed.
*/
PetscErrorCode AFSAIComputeFactor_Host(const CSRView *A, PetscInt first, const AFSAIParams *, PetscBool keep, CSR *G, PetscReal *d,
                                       FSAIStats *);
PetscErrorCode AFSAIComputeFactor_CUDA(const CSRView *A, PetscInt first, const AFSAIParams *, PetscBool keep, CSR *G, PetscReal *d,
                                       FSAIStats *);
