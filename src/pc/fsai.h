/*
   The factored sparse approximate inverses M^{-1} = G^T G of a symmetric positive definite matrix share this header, however they
   find the pattern of G.

   The factor is G = D_G G~, where G~ is unit lower triangular and D_G is diagonal. The strictly lower part of G~ is stored, and
   d = 1 / psi = D_G^2 with psi = diag(G~ A G~^T). The set-up computes with A scaled to unit diagonal, which is S A S with
   S = diag(A)^{-1/2}.
*/
#pragma once

#include "sparse/csr.h"

/* Why a matrix cannot be preconditioned. */
enum FSAIFailure { FSAI_OK, FSAI_NOT_FINITE, FSAI_DIAGONAL_MISSING, FSAI_DIAGONAL_NOT_POSITIVE };

/* The counts of the search for the pattern of G. A set-up that keeps the pattern keeps these counts, too. */
struct FSAIPatternStats {
  LocalInt power;       /* the power of A whose pattern sFSAI has taken */
  LocalInt capped_rows; /* rows that were cut to the most entries that are allowed */
  LocalInt dropped;     /* entries that the postfilter took away */
  LocalInt max_row;     /* entries of the longest row of G, its diagonal included */
  LocalInt unfinished;  /* rows of aFSAI whose last step, of as many as are allowed, was not a small one */
};

/* The counts of a set-up. After a failure only `failure` and `failure_row` are set. */
struct FSAIStats : FSAIPatternStats {
  FSAIFailure failure;
  LocalInt    failure_row;    /* the first row with the failure */
  LocalInt    double_rows;    /* rows that were computed again in double, after a bad pivot in single */
  LocalInt    diagonal_rows;  /* rows that fell back to the diagonal, after a bad pivot in double */
  LocalInt    large_rows;     /* rows that were too large for the first path */
  PetscReal   log_psi_before; /* mean of log a_ii, which is log psi_i of the diagonal alone */
  PetscReal   log_psi_after;  /* mean of log psi_i */
  size_t      work_bytes;     /* largest memory of the set-up beyond A, G and G^T */
};

/* Clears the counts at the beginning of a set-up, except that a set-up with the old pattern keeps the counts of the pattern. */
inline void FSAIStatsBegin(PetscBool keep, FSAIStats *stats)
{
  const FSAIPatternStats pattern = *stats;
  *stats                         = FSAIStats{};
  if (keep) static_cast<FSAIPatternStats &>(*stats) = pattern;
}

/*
   The largest power of A that an option may ask for as a pattern. The power of a connected matrix is full before, unless its rows
   form a long chain.
*/
constexpr PetscInt kFSAILargestPower = 1000;

/*
   A pivot of S A S that is not above these limits is bad: it has lost its digits to cancellation. The pivots are at most 1, so that
   the limits are some hundred times the rounding errors of single and of double precision.
*/
constexpr PetscReal kFSAISmallestPivotSingle = 1e-4, kFSAISmallestPivotDouble = 1e-13;

/*
   Computes s [n] = diag(A)^{-1/2}, d [n - first] = diag(A) of the rows from `first` on, and log_psi_before, which is the mean of
   log d. If a row of A does not allow that, the failure is set instead. The work space of the CUDA twins has FSAIWorkBytes_CUDA(n)
   bytes on the device.
*/
size_t         FSAIWorkBytes_CUDA(LocalInt n);
PetscErrorCode FSAIScaling_Host(const CSRView *A, LocalInt first, PetscReal *s, PetscReal *d, FSAIStats *);
PetscErrorCode FSAIScaling_CUDA(const CSRView *A, LocalInt first, PetscReal *s, PetscReal *d, void *work, FSAIStats *);

/* Computes the mean of log d [n]. */
PetscErrorCode FSAIMeanLog_Host(LocalInt n, const PetscReal *d, PetscReal *mean);
PetscErrorCode FSAIMeanLog_CUDA(LocalInt n, const PetscReal *d, void *work, PetscReal *mean);

/*
   Whether a pattern that depends on values still fits other values. Two numbers of each row are compared with those at the set-up
   that found the pattern:

     the gain       log(a_ii / psi_i), what the entries beside the diagonal bring: by the factor exp(mean gain) they lower the
   Kaporin number. It falls where the couplings that the entries were found for have become weak, and rises where they have become
   strong, so that a new search would find more entries. the coupling   sum_{j != i} (a_ij / a_ii)^2, which also tells of couplings
   that the pattern does not have.

   A row has changed if one of them has changed by more than kFSAIChange of the larger one, and by more than kFSAILeastChange, so
   that rows that gain nothing do not count. A pattern does not fit if more than kFSAIChangedRows of the rows have changed.
*/
constexpr PetscReal kFSAIChange = 0.4, kFSAILeastChange = 0.05, kFSAIChangedRows = 0.1;

inline bool FSAIPatternFits(PetscInt64 changed, PetscInt64 rows)
{
  return (PetscReal)changed <= kFSAIChangedRows * (PetscReal)rows;
}

/*
   Without `changed`, marks [2 (n - first) + 1] becomes the gains and couplings of the rows from `first` on, whose d is that of the
   factor; otherwise the present ones are compared with these, and rows that have changed are counted. The last entry is work space.
*/
PetscErrorCode FSAIMarks_Host(const CSRView *A, LocalInt first, const PetscReal *d, float *marks, LocalInt *changed);
PetscErrorCode FSAIMarks_CUDA(const CSRView *A, LocalInt first, const PetscReal *d, float *marks, LocalInt *changed);
