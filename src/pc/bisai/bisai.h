/*
   Block-ISAI: the triangular factors of a block ILU are replaced by their incomplete sparse approximate inverses, M^{-1} = NU NL.

   Ma, Hu, Yuan, Liu, GPU preconditioning for block linear systems using block incomplete sparse approximate inverses,
   Scientific Programming 2021.
*/
#pragma once

#include "bilu.h"

/* Index of arrays [2] for L and U, and for NL and NU. */
enum BISAITriangle { BISAI_LOWER, BISAI_UPPER };

struct BISAIParams {
  PetscInt        power            = 1; /* p of the patterns S(|L|^p) and S(|U|^p), 1 .. kBISAILargestPower */
  PetscInt        power_lower      = 0; /* p for L alone; 0 for `power` */
  PetscInt        power_upper      = 0; /* p for U alone; 0 for `power` */
  PCBISAISide     side             = PC_BISAI_SIDE_ROWS;
  FinePCPrecision factor_precision = FINEPC_SINGLE;
  PetscInt        sweeps           = 0; /* s, the relaxation steps of an apply, 0 .. kBISAIMostSweeps */

  /* Bytes of the CUDA work space for long rows. The work space is larger if the rows of one block of threads need more. */
  size_t work_limit = (size_t)256 << 20;
};

/* The largest power. The pattern grows with the power, and so do the time and the memory of a set-up and an apply. */
constexpr PetscInt kBISAILargestPower = 4;

/* The most relaxation steps, and the most levels of fill, that an option may ask for. */
constexpr PetscInt kBISAIMostSweeps = 1000, kBISAIMostLevels = 1000;

/* Whether the inverse of this triangle is computed by block columns, T N = I, and not by block rows, N T = I. */
inline bool BISAIByColumns(PCBISAISide side, BISAITriangle triangle)
{
  return side == PC_BISAI_SIDE_COLUMNS ||
         side == (triangle == BISAI_LOWER ? PC_BISAI_SIDE_COLUMNS_ROWS : PC_BISAI_SIDE_ROWS_COLUMNS);
}

/*
   The counts of a set-up. A line of NL or NU is what is solved for at once: one of its block rows or, by columns, one of its block
   columns.
*/
struct BISAIStats {
  LocalInt fallback_lines[2]; /* lines of NL, NU with entries not finite in the precision, which keep their diagonal block alone */

  /* Blocks U_ii^{-1} that the precision cannot hold: an entry is not finite, or a row or column is almost zero. */
  LocalInt lost_diagonals;

  PetscInt64 lost_entries[2]; /* entries of -L, -U that are not finite in the precision */
  LocalInt   longest[2];      /* blocks of the longest line of NL, NU, without the diagonal */
  size_t     work_bytes;      /* largest memory of the set-up beyond A, the factor and what is kept */
};

/* Memory that the last set-up has left. A set-up with new values on the same pattern finds all that it needs in this memory. */
struct BISAIWork {
  void        *data;
  size_t       bytes;
  PetscMemType where;
};

/*
   The block columns of a factor without its diagonal blocks, and those of its inverse with the diagonal blocks that are stored. The
   values stay where they are: `at` has the place of each block in the arrays of the BlockLU or of the BSR. The rows of a column are
   ascending.
*/
struct BISAIColumns {
  LocalInt    *T_i, *T_j, *T_at; /* [n + 1] column starts, [T_nnz] block rows, [T_nnz] places; all are one allocation, at T_i */
  LocalInt    *N_i, *N_j, *N_at; /* [n + 1], [N_nnz], [N_nnz] likewise */
  LocalInt     n, T_nnz, N_nnz;
  PetscMemType where;
};

/*
   Makes a new N with the pattern S(|L|^p) or S(|U|^p), its rows sorted, and values that are not set. `diagonal` tells whether the
   diagonal blocks are stored, as they must be for U. Sets `longest` of the stats for an inverse by rows.
*/
PetscErrorCode BISAIPattern_Host(const BlockLU *F, BISAITriangle, PetscBool diagonal, LocalInt power, FinePCPrecision, BSR *N,
                                 BISAIStats *);
PetscErrorCode BISAIPattern_CUDA(const BlockLU *F, BISAITriangle, PetscBool diagonal, LocalInt power, FinePCPrecision, BSR *N,
                                 BISAIStats *);

/* Finds the columns of L or U, and those of N, a pattern of BISAIPattern(). Sets `longest` of the stats for an inverse by columns.
 */
PetscErrorCode BISAIFindColumns_Host(const BlockLU *F, BISAITriangle, PetscBool diagonal, const BSR *N, BISAIColumns *,
                                     BISAIStats *);
PetscErrorCode BISAIFindColumns_CUDA(const BlockLU *F, BISAITriangle, PetscBool diagonal, const BSR *N, BISAIColumns *,
                                     BISAIStats *);
/* Makes the arrays where `where` says. */
PetscErrorCode BISAIColumnsCreate(LocalInt n, LocalInt T_nnz, LocalInt N_nnz, BISAIColumns *);
PetscErrorCode BISAIColumnsDestroy(BISAIColumns *);
size_t         BISAIColumnsBytes(const BISAIColumns *);

/*
   Computes the values of NL or NU on a pattern of BISAIPattern(): by columns if they are given, and by rows if they are null. The
   last of BISAIPattern() and BISAIFindColumns() has set `longest`. Allocates nothing if the work of the last time is there. Sets
   `fallback_lines` and, for U, `lost_diagonals` of the stats.
*/
PetscErrorCode BISAIInvert_Host(const BlockLU *F, BISAITriangle, PetscBool diagonal, const BISAIParams *, const BISAIColumns *,
                                BSR *N, BISAIWork *, BISAIStats *);
PetscErrorCode BISAIInvert_CUDA(const BlockLU *F, BISAITriangle, PetscBool diagonal, const BISAIParams *, const BISAIColumns *,
                                BSR *N, BISAIWork *, BISAIStats *);

/* Computes R = -L or R = -U with the diagonal blocks, on a pattern of power 1 with diagonal. Sets `lost_entries` of the stats. */
PetscErrorCode BISAINegate_Host(const BlockLU *F, BISAITriangle, BSR *R, BISAIWork *, BISAIStats *);
PetscErrorCode BISAINegate_CUDA(const BlockLU *F, BISAITriangle, BSR *R, BISAIWork *, BISAIStats *);

/* Adds the n diagonal blocks, if they are stored, to the other blocks of N. It is an error if LocalInt cannot count the sum. */
PetscErrorCode BISAICountBlocks(LocalInt blocks, LocalInt n, PetscBool diagonal, LocalInt *nnz);

/* Permutes block rows: y_p(k) = x_k with scatter, and y_k = x_p(k) without. */
PetscErrorCode BISAIPermute_Host(LocalInt bs, LocalInt n, const LocalInt *p, PetscBool scatter, const PetscScalar *x,
                                 PetscScalar *y);
PetscErrorCode BISAIPermute_CUDA(LocalInt bs, LocalInt n, const LocalInt *p, PetscBool scatter, const PetscScalar *x,
                                 PetscScalar *y);
