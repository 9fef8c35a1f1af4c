/*
   Triangular factors of a block matrix, wherever they come from, and block ILU(0), which makes them without PETSc.
   Saad, Iterative methods for sparse linear systems, 2nd ed., sections 10.3.2 and 11.5 (blocks, levels).
*/
#pragma once

#include "sparse/bsr.h"

/* A pivot of a diagonal block that is not above kBILUSmallestPivot, relative to A's entries in its row and column, has lost its
   digits to cancellation. A's own diagonal block is inverted in the place of the factor's then, its pivots raised where they are
   small. */
constexpr PetscReal kBILUSmallestPivot = 1e-13, kBILURaisedPivot = 1e-8;

enum BILUFailure { BILU_OK, BILU_NOT_FINITE, BILU_ROW_ZERO, BILU_DIAGONAL_MISSING };

struct BILUStats {
  BILUFailure failure;         /* the matrix cannot be preconditioned: nothing else below is set but failure_row */
  PetscInt    failure_row;     /* the first such row; block row for BILU_DIAGONAL_MISSING */
  PetscInt    singular_blocks; /* diagonal blocks in whose place A's were inverted */
  PetscInt    levels;          /* of rows that are eliminated side by side; 0 on the host */
};

/*
   L and U in one array, as PETSc keeps them or as they lie in A. In block row k those of L, without its unit diagonal, are blocks
   place[LU_L][k] .. place[LU_L_END][k] - 1, those of U, without its diagonal, place[LU_U][k] .. place[LU_U_END][k] - 1, and the
   inverse of U's diagonal block is block place[LU_DIAGONAL][k]. Columns of a row of L or U are ascending.
*/
enum { LU_L, LU_L_END, LU_U, LU_U_END, LU_DIAGONAL, LU_PLACES };
struct BlockLU {
  PetscInt     bs, n, nnz;
  PetscInt    *place[LU_PLACES]; /* [n] each; one allocation with j, and with a if that is its own */
  PetscInt    *j;                /* [nnz] */
  PetscScalar *a;                /* [nnz * bs * bs] */
  PetscBool    own_values;
  PetscMemType where;
};
PetscErrorCode BlockLUCreate(PetscInt bs, PetscInt n, PetscInt nnz, PetscMemType, BlockLU *);
/* a is null, and others' later */
PetscErrorCode BlockLUCreatePattern(PetscInt bs, PetscInt n, PetscInt nnz, PetscMemType, BlockLU *);
PetscErrorCode BlockLUDestroy(BlockLU *);
size_t         BlockLUBytes(const BlockLU *); /* of its own */

/*
   The failures of a matrix, and the pattern of its factor ILU(0), in a new F whose values are not set, with the order of
   elimination.
*/
struct BILUPlan;
PetscErrorCode BILUAnalyse_Host(const BSRView *A, BlockLU *F, BILUPlan **, BILUStats *);
PetscErrorCode BILUAnalyse_CUDA(const BSRView *A, BlockLU *F, BILUPlan **, BILUStats *);
PetscErrorCode BILUPlanDestroy_Host(BILUPlan **);
PetscErrorCode BILUPlanDestroy_CUDA(BILUPlan **);

/* Its values; only the values of A may have changed since the analysis. Allocates nothing. */
PetscErrorCode BILUFactor_Host(const BSRView *A, BILUPlan *, BlockLU *F, BILUStats *);
PetscErrorCode BILUFactor_CUDA(const BSRView *A, BILUPlan *, BlockLU *F, BILUStats *);

/*
   For factors by others, on a pattern that has A's, whose rows and columns are permuted, or null; host only. BILUCheckFactor counts
   the diagonal blocks that BILUFactor would not have left so; BILURepeat computes the values anew, as BILUFactor does.
*/
PetscErrorCode BILUCheckFactor_Host(const BSRView *A, const PetscInt *rows, const PetscInt *columns, const BlockLU *F, BILUStats *);
PetscErrorCode BILURepeat_Host(const BSRView *A, const PetscInt *rows, const PetscInt *columns, BlockLU *F, BILUStats *);
PetscErrorCode BILUCheck_Host(const BSRView *A, BILUStats *); /* zero rows, entries that are not finite, no diagonal block */
