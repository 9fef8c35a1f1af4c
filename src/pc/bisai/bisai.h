/*
   Block-ISAI: the triangular factors of a block ILU are replaced by their incomplete sparse approximate inverses, M^{-1} = NU NL.

   Ma, Hu, Yuan, Liu, GPU preconditioning for block linear systems using block incomplete sparse approximate inverses,
   Scientific Programming 2021 (paper 001).
*/
#pragma once

#include "bilu.h"

struct BISAIParams {
  PetscInt        power            = 1; /* p of S(|L|^p) and S(|U|^p), 1 .. kBISAILargestPower */
  PetscInt        power_lower      = 0; /* the same for L alone; 0: power */
  PetscInt        power_upper      = 0; /* for U alone; 0: power */
  FinePCPrecision factor_precision = FINEPC_SINGLE;
  PetscInt        sweeps           = 0;                 /* s, relaxation steps of an apply, >= 0 */
  size_t          work_limit       = (size_t)256 << 20; /* bytes of the CUDA work space for long rows; a block's rows always fit */
};
constexpr PetscInt kBISAILargestPower = 4;

enum BISAITriangle { BISAI_LOWER, BISAI_UPPER };

/* What a set-up met; [2] for NL, NU. */
struct BISAIStats {
  PetscInt fallback_rows[2]; /* block rows not finite in the precision: their diagonal block alone is left */
  /* blocks U_ii^{-1} that the precision cannot hold: not finite, or a row or column of them almost zero */
  PetscInt   lost_diagonals;
  PetscInt64 lost_entries[2]; /* of -L, -U: not finite in the precision */
  PetscInt   longest[2];      /* blocks of the longest block row, without the diagonal */
  size_t     work_bytes;      /* largest set-up memory beyond A, the factor and what is kept */
};

/* Memory of the last set-up: new values on the same pattern find all that they need in it. */
struct BISAIWork {
  void        *data;
  size_t       bytes;
  PetscMemType where;
};

/*
   The pattern S(|L|^p) or S(|U|^p), rows sorted, into a new N whose values are not set; the diagonal blocks are stored if
   `diagonal` says so, which it must for U. Sets longest.
*/
PetscErrorCode BISAIPattern_Host(const BlockLU *F, BISAITriangle, PetscBool diagonal, PetscInt power, FinePCPrecision, BSR *N,
                                 BISAIStats *);
PetscErrorCode BISAIPattern_CUDA(const BlockLU *F, BISAITriangle, PetscBool diagonal, PetscInt power, FinePCPrecision, BSR *N,
                                 BISAIStats *);

/*
   The values of NL or NU on such a pattern, longest being set; allocates nothing if the work of the last time is there. Sets
   fallback_rows, lost_diagonals.
*/
PetscErrorCode BISAIInvert_Host(const BlockLU *F, BISAITriangle, PetscBool diagonal, const BISAIParams *, BSR *N, BISAIWork *,
                                BISAIStats *);
PetscErrorCode BISAIInvert_CUDA(const BlockLU *F, BISAITriangle, PetscBool diagonal, const BISAIParams *, BSR *N, BISAIWork *,
                                BISAIStats *);

/* -L or -U, its diagonal blocks among them, on a pattern of power 1 with diagonal. Sets lost_entries. */
PetscErrorCode BISAINegate_Host(const BlockLU *F, BISAITriangle, BSR *R, BISAIWork *, BISAIStats *);
PetscErrorCode BISAINegate_CUDA(const BlockLU *F, BISAITriangle, BSR *R, BISAIWork *, BISAIStats *);

/* The blocks of N, of so many beside its diagonal; an error where PetscInt cannot count them. */
PetscErrorCode BISAICountBlocks(PetscInt blocks, PetscInt n, PetscBool diagonal, PetscInt *nnz);

/* y_k = x_p(k) for block rows, or y_p(k) = x_k for scatter. */
PetscErrorCode BISAIPermute_Host(PetscInt bs, PetscInt n, const PetscInt *p, PetscBool scatter, const PetscScalar *x,
                                 PetscScalar *y);
PetscErrorCode BISAIPermute_CUDA(PetscInt bs, PetscInt n, const PetscInt *p, PetscBool scatter, const PetscScalar *x,
                                 PetscScalar *y);
