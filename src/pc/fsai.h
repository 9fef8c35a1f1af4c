/*
   What the factored sparse approximate inverses M^{-1} = G^T G of an SPD matrix share, however they find the pattern of G.
   Kept as G = D_G G~ with G~ unit lower triangular: strictly lower part of G~, and d = 1 / psi = D_G^2, psi = diag(G~ A G~^T).
   Computed with A scaled to unit diagonal, S A S with S = diag(A)^{-1/2}.
*/
#pragma once

#include "sparse/csr.h"

enum FSAIFailure { FSAI_OK, FSAI_NOT_FINITE, FSAI_DIAGONAL_MISSING, FSAI_DIAGONAL_NOT_POSITIVE };

/* What the search for the pattern of G met. A set-up that keeps the pattern keeps these, too. */
struct FSAIPatternStats {
  PetscInt capped_rows; /* rows cut to the largest row that is allowed */
  PetscInt dropped;     /* entries that the postfilter took away */
  PetscInt max_row;     /* longest row of G, diagonal included */
};

/* What a set-up met; the counts are of rows. */
struct FSAIStats : FSAIPatternStats {
  FSAIFailure failure;        /* the matrix cannot be preconditioned: nothing else below is set but failure_row */
  PetscInt    failure_row;    /* the first such row */
  PetscInt    double_rows;    /* redone in double after a bad pivot in single */
  PetscInt    diagonal_rows;  /* fell back to the diagonal */
  PetscInt    large_rows;     /* too large for the first path */
  PetscReal   log_psi_before; /* mean of log psi_0,i = log a_ii */
  PetscReal   log_psi_after;  /* mean of log psi_i */
  size_t      work_bytes;     /* largest set-up memory beyond A, G and G^T */
};

/* At the beginning of a set-up, with or without the old pattern. */
inline void FSAIStatsBegin(PetscBool keep, FSAIStats *stats)
{
  const FSAIPatternStats pattern = *stats;
  *stats                         = FSAIStats{};
  if (keep) static_cast<FSAIPatternStats &>(*stats) = pattern;
}

/* A pivot of S A S that is not above this has lost its digits to cancellation. */
constexpr PetscReal kFSAISmallestPivotSingle = 1e-4, kFSAISmallestPivotDouble = 1e-13;

/*
   s [n] = diag(A)^{-1/2}, d [n - first] = diag(A) of rows first .., and log_psi_before, the mean of log d; or a failure.
   FSAIMeanLog is the mean of log d [n]. The work of the CUDA twins is FSAIWorkBytes_CUDA(n) bytes on the device.
*/
size_t         FSAIWorkBytes_CUDA(PetscInt n);
PetscErrorCode FSAIScaling_Host(const CSRView *A, PetscInt first, PetscReal *s, PetscReal *d, FSAIStats *);
PetscErrorCode FSAIScaling_CUDA(const CSRView *A, PetscInt first, PetscReal *s, PetscReal *d, void *work, FSAIStats *);
PetscErrorCode FSAIMeanLog_Host(PetscInt n, const PetscReal *d, PetscReal *mean);
PetscErrorCode FSAIMeanLog_CUDA(PetscInt n, const PetscReal *d, void *work, PetscReal *mean);
