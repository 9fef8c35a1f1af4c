/*
   aFSAI, the adaptive factored sparse approximate inverse of an SPD matrix: M^{-1} = G^T G.

   Isotton, Janna, Bernaschi, A GPU-accelerated adaptive FSAI preconditioner for massively parallel simulations (paper 000);
   prefilter and postfilter: Bernaschi, Bisson, Fantozzi, Janna, SIAM J. Sci. Comput. 38 (2016) C53-C72 (paper 004).
   Kept as G = D_G G~ with G~ unit lower triangular: strictly lower part of G~, and d = 1 / psi = D_G^2.
*/
#pragma once

#include "../../csr.h"
#include "../pcinverse.h"

struct AFSAIParams {
  PetscInt         max_steps        = 20;                          /* k_max, steps per row, >= 0 */
  PetscInt         step_size        = 1;                           /* s, entries added per step, >= 1 */
  PetscReal        tolerance        = 1e-3;                        /* epsilon of the stop rule, in [0, 1) */
  PetscReal        prefilter        = 0.0;                         /* tau of (3.8), paper 004, in [0, 1] */
  PetscReal        postfilter       = 0.0;                         /* delta of (3.11), paper 004, in [0, 1] */
  PetscInt         initial_power    = 0;                           /* P starts as row i of Low(A^p); 0: empty */
  PCAFSAIStopRule  stop_rule        = PC_AFSAI_STOP_GAIN;
  PCAFSAISelection selection        = PC_AFSAI_SELECTION_DECREASE;
  FinePCPrecision  setup_precision  = FINEPC_SINGLE;
  FinePCPrecision  factor_precision = FINEPC_SINGLE;
};

enum AFSAIFailure { AFSAI_OK, AFSAI_NOT_FINITE, AFSAI_DIAGONAL_MISSING, AFSAI_DIAGONAL_NOT_POSITIVE };

/* What the set-up met; the counts are of rows. */
struct AFSAIStats {
  AFSAIFailure failure;        /* the matrix cannot be preconditioned: nothing else below is set but failure_row */
  PetscInt     failure_row;    /* the first such row */
  PetscInt     double_rows;    /* redone in double after a bad pivot in single */
  PetscInt     diagonal_rows;  /* fell back to the diagonal */
  PetscInt     large_rows;     /* too large for the first path */
  PetscInt     max_row;        /* longest row of G, diagonal included */
  PetscReal    log_psi_before; /* mean of log psi_0,i = log a_ii */
  PetscReal    log_psi_after;  /* mean of log psi_i */
  size_t       work_bytes;     /* largest set-up memory beyond A, G and G^T */
};

/* A pivot of diag(A)^{-1/2} A diag(A)^{-1/2} that is not above this has lost its digits to cancellation. */
constexpr PetscReal kAFSAISmallestPivotSingle = 1e-4, kAFSAISmallestPivotDouble = 1e-13;

struct PC_AFSAI {
  AFSAIParams params; /* options */
  PetscBool   reuse_pattern;
  PCInverse   inverse; /* built */
  AFSAIStats  stats;
  PetscBool   reused;
};

/*
   Rows first..n-1 of G~ (columns 0..n-1) and d [n - first], both where A is. Rows 0..first-1 of A are only read: rows of
   other ranks. With keep, G holds a pattern that is kept: only its values and d are computed.
*/
PetscErrorCode AFSAIComputeFactor_Host(const CSRView *A, PetscInt first, const AFSAIParams *, PetscBool keep, CSR *G, PetscReal *d, AFSAIStats *);
PetscErrorCode AFSAIComputeFactor_CUDA(const CSRView *A, PetscInt first, const AFSAIParams *, PetscBool keep, CSR *G, PetscReal *d, AFSAIStats *);
