/*
   RRB, the repeated red-black factorization A = L D L^T + R of a 5- or 9-point stencil on a grid, whose M = L D L^T is computed
   level by level, (2.2).

   de Jong, van der Ploeg, Ditzel, Vuik, Fine-grain parallel RRB-solver for 5-/9-point stencil problems suitable for GPU-type
   processors, Electron. Trans. Numer. Anal. (2017).
*/
#pragma once

#include "sparse/symmetry.h"

/* ----------------------------------------- parameters ----------------------------------------- */

/* The most levels, and the most points of a line or lines of a grid, that an option may ask for. No grid allows more levels. */
constexpr PetscInt kRRBMostLevels = 128, kRRBLongestLine = 1000000000;

struct RRBParams {
  /* l of RRB-l, 1 .. kRRBMostLevels; for 0 the levels are chosen by the size of the grid. */
  PetscInt levels = 0;

  /* The constants are in the null space of A: if all rows sum to 0, the last pivot is left out. */
  PetscBool singular = PETSC_FALSE;

  /* The first Schur complement S_1 is kept, for RRBCG. */
  PetscBool keep_schur = PETSC_FALSE;

  /* The diagonal of A is negative. Then the pivots are negative, and sums have the other sign, as if -A were factored. */
  PetscBool negative = PETSC_FALSE;

  /* If it is not 0, rows of zeros have a diagonal entry of this magnitude, and do not count in `singular`. */
  PetscReal isolated = 0;

  /* Rows that sum to less than 0 are made to sum to 0, before the first level that lumps. */
  PetscBool lift = PETSC_TRUE;
};

inline PetscReal RRBSign(const RRBParams &params)
{
  return params.negative ? -1 : 1;
}

/* ------------------------------------------- limits ------------------------------------------- */

/*
   Levels that are chosen are as few as leave at most kRRBRemainder points, or one point in kRRBShare if that is more, but never
   more than kRRBLargestRemainder / 2 points. Few points keep the exact factorization cheap. Large grids may leave more, since the
   exact part then costs little beside the levels, and fewer levels make a better preconditioner.
*/
constexpr LocalInt kRRBRemainder = 1024, kRRBShare = 15000;

/* The most points that the CUDA twin factors exactly. Its inverse is dense: 8192 points take 512 MiB, and 2 * 8192^3 operations. */
constexpr LocalInt kRRBLargestRemainder = 8192;

/* The most bytes of the band in which the host twin factors exactly, so that few levels on a large grid do not fill the memory. */
constexpr size_t kRRBLargestBand = (size_t)2 << 30;

/*
   A row counts as one that sums to 0 if its sum is at most this share of its diagonal entry. All rows of a matrix with the
   constants in its null space sum to 0, up to the rounding of the entries.
*/
constexpr PetscReal kRRBZeroSum = 1e-8;

/*
   A row is lifted if its sum is below minus this share of the diagonal entry of A, so that sums that are 0 but for rounding stay
   what they are.
*/
constexpr PetscReal kRRBLift = 1e-12;

/*
   The couplings a_pq of a row are those of -div(K grad u) with the tensor K_xx = -sum a_pq dx^2 / 2, and K_yy and K_xy likewise,
   where q is p + (dx, dy), on square cells and up to a factor. A row is anisotropic if the larger eigenvalue of K is kRRBAnisotropy
   times the smaller one or more. Levels then lump the strong couplings, and M is far from A.
*/
constexpr PetscReal kRRBAnisotropy = 100;

/*
   With T the trace of K this is det(K / T) <= kRRBAnisotropy / (1 + kRRBAnisotropy)^2. Couplings that differ by this very factor
   are not left to rounding.
*/
constexpr PetscReal kRRBAnisotropic = kRRBAnisotropy / ((1 + kRRBAnisotropy) * (1 + kRRBAnisotropy)) * (1 + 1e-6);

/*
   A pivot and its inverse are normal numbers, 2^-1022 to 2^1022. Beyond that digits are lost, or the inverse is infinite. All other
   numbers of a factor are quotients and products that lie between those of pivots, as long as A is positive definite.
*/
constexpr PetscReal kRRBSmallestPivot = 0x1p-1022, kRRBLargestPivot = 0x1p1022;

/* ------------------------------------ outcome of a set-up ------------------------------------- */

/*
   Why there is no factor: A couples points that are no neighbours, A is not symmetric, a pivot is not positive, or it is positive,
   but too small or too large for its inverse.
*/
enum RRBFailure { RRB_OK, RRB_PATTERN, RRB_UNSYMMETRIC, RRB_PIVOT, RRB_RANGE };

struct RRBStats {
  RRBFailure failure;
  LocalInt   row;    /* the row of the first entry that fails, or the row y nx + x of the pivot */
  LocalInt   column; /* the column of that entry */
  LocalInt   level;  /* the level of the pivot */

  PetscInt64 one_sided;   /* couplings that only one of their two rows has, which are left out */
  PetscInt64 lifted;      /* rows that were lifted: of S_1 with 5 points, of A with 9 points */
  LocalInt   isolated;    /* rows of zeros, if they are allowed */
  PetscInt64 anisotropic; /* anisotropic rows, where a level lumps */
  LocalInt   zero_pivots; /* pivots that were left out: the last pivot of a singular matrix */
};

/* ----------------------------------------- the factor ----------------------------------------- */

/* The factors of both twins begin with these fields. */
struct RRBFactor {
  LocalInt nx, ny;     /* points of a line of the grid, and lines */
  LocalInt levels;     /* levels in use, 1 .. max_levels */
  LocalInt max_levels; /* the most levels that the grid allows */
  LocalInt remainder;  /* points of the exact factorization */

  PetscBool nine;      /* A couples diagonal neighbours, so that its stencil has 9 points */
  PetscBool has_schur; /* the factor includes S_1 */
  PetscBool singular;  /* M has the constants in its null space, as A has */

  size_t       bytes;       /* memory of the factor */
  size_t       apply_bytes; /* bytes that an application must move */
  PetscMemType where;       /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */
};

/*
   Sets the levels in use, which are `asked` or, for 0, chosen, the most levels that the grid allows by (2.1), and the points that
   the levels in use leave.
*/
void RRBLevels(LocalInt nx, LocalInt ny, LocalInt asked, LocalInt *levels, LocalInt *max_levels, LocalInt *remainder);

/*
   Finds the largest distance j - i of an entry, at least 0, and whether some entry has a distance that is smaller by one. Entries
   that are zero do not count, here and in RRBComputeFactor.
*/
PetscErrorCode RRBOffsets_Host(const CSRView *A, LocalInt *largest, PetscBool *next);
PetscErrorCode RRBOffsets_CUDA(const CSRView *A, LocalInt *largest, PetscBool *next);

/*
   Computes the factor F of A, whose n rows are the points of a grid of nx by ny = n points with x running first. F is an old
   factor, whose memory is used again, or null. After a failure F can only be destroyed or computed again.
*/
PetscErrorCode RRBComputeFactor_Host(const CSRView *A, LocalInt nx, LocalInt ny, const RRBParams *, RRBFactor **F, RRBStats *);
PetscErrorCode RRBComputeFactor_CUDA(const CSRView *A, LocalInt nx, LocalInt ny, const RRBParams *, RRBFactor **F, RRBStats *);

/* The twins read the factor once for so many columns. */
constexpr LocalInt kRRBColumns = 4;

/* Y = M^{-1} X for `columns` vectors, which lie ldx and ldy values apart. Each is what it would be alone, to the last bit. */
PetscErrorCode RRBApply_Host(RRBFactor *, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y, LocalInt ldy);
PetscErrorCode RRBApply_CUDA(RRBFactor *, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y, LocalInt ldy);

/*
   Copies the factor to arrays on the host: l [4 n], the four entries of each column of L in the order of the host twin, and d [n],
   the inverse pivots. Points of the remainder get zeros.
*/
PetscErrorCode RRBGetFactor_Host(const RRBFactor *, PetscScalar *l, PetscScalar *d);
PetscErrorCode RRBGetFactor_CUDA(const RRBFactor *, PetscScalar *l, PetscScalar *d);

PetscErrorCode RRBDestroy_Host(RRBFactor **);
PetscErrorCode RRBDestroy_CUDA(RRBFactor **);
