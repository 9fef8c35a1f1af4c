/*
   The triangular factors of a block matrix, wherever they come from, and block ILU(0), which computes them without PETSc.

   Saad, Iterative methods for sparse linear systems, 2nd ed., sections 10.3.2 and 11.5, has blocks and levels.
   Chow, Patel, Fine-grained parallel incomplete LU factorization, SIAM J. Sci. Comput. 37 (2015) C169-C193, has sweeps.
*/
#pragma once

#include "sparse/bsr.h"

/*
   A pivot of a diagonal block that is not above kBILUSmallestPivot, relative to the entries of A in its row and column, has lost
   its digits to cancellation: the limit is some hundred times the rounding error. Then the diagonal block of A itself is inverted
   in the place of the block of the factor, and its pivots that are below kBILURaisedPivot, about the square root of the rounding
   error, are raised to that.
*/
constexpr PetscReal kBILUSmallestPivot = 1e-13, kBILURaisedPivot = 1e-8;

/* Why a matrix cannot be preconditioned. */
enum BILUFailure { BILU_OK, BILU_NOT_FINITE, BILU_ROW_ZERO, BILU_DIAGONAL_MISSING };

/* The counts of a factorization. After a failure only `failure` and `failure_row` are set. */
struct BILUStats {
  BILUFailure failure;
  LocalInt    failure_row;     /* the first row with the failure; the first block row for BILU_DIAGONAL_MISSING */
  LocalInt    singular_blocks; /* diagonal blocks in whose place the blocks of A were inverted */
  LocalInt    levels;          /* levels of rows that are eliminated side by side; 0 on the host, and with sweeps */
  size_t      plan_bytes;      /* memory of the order of elimination, or of the second factor of the sweeps */
};

/*
   L and U are in one array of blocks, in the layout of PETSc's factor or in that of A. For block row k

     place[LU_L][k] .. place[LU_L_END][k] - 1   are the blocks of L without its unit diagonal,
     place[LU_U][k] .. place[LU_U_END][k] - 1   are the blocks of U without its diagonal,
     place[LU_DIAGONAL][k]                      is the inverse of the diagonal block of U.

   The columns of a row of L or U are ascending.
*/
enum { LU_L, LU_L_END, LU_U, LU_U_END, LU_DIAGONAL, LU_PLACES };

struct BlockLU {
  LocalInt     bs;               /* rows of a block, at least 1 */
  LocalInt     n;                /* block rows and block columns */
  LocalInt     nnz;              /* stored blocks */
  LocalInt    *place[LU_PLACES]; /* [n] each; one allocation with j, and with `a` if own_values is true, which begins at place[0] */
  LocalInt    *j;                /* [nnz] block columns */
  PetscScalar *a;                /* [nnz * bs * bs] values */
  PetscBool    own_values;       /* whether `a` belongs to the BlockLU, and is not lent by somebody else */
  PetscMemType where;            /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */
};

PetscErrorCode BlockLUCreate(LocalInt bs, LocalInt n, LocalInt nnz, PetscMemType, BlockLU *);

/* Creates a BlockLU without values of its own: `a` is null, and may point to somebody else's values later. */
PetscErrorCode BlockLUCreatePattern(LocalInt bs, LocalInt n, LocalInt nnz, PetscMemType, BlockLU *);

PetscErrorCode BlockLUDestroy(BlockLU *);
size_t         BlockLUBytes(const BlockLU *); /* bytes that belong to the BlockLU */

/* The order in which the rows are eliminated or, for sweeps, a second array of values. */
struct BILUPlan;

/* The most sweeps that an option may ask for. */
constexpr PetscInt kBILUMostSweeps = 1000;

/*
   Looks for failures of A, and makes a new F with the pattern of the factor ILU(0) and values that are not set, and what the
   elimination needs, which is exact for sweeps = 0.
*/
PetscErrorCode BILUAnalyse_Host(const BSRView *A, LocalInt sweeps, BlockLU *F, BILUPlan **, BILUStats *);
PetscErrorCode BILUAnalyse_CUDA(const BSRView *A, LocalInt sweeps, BlockLU *F, BILUPlan **, BILUStats *);
PetscErrorCode BILUPlanDestroy_Host(BILUPlan **);
PetscErrorCode BILUPlanDestroy_CUDA(BILUPlan **);

/*
   Computes the values of F, exactly for sweeps = 0 if the analysis was for that too. Since the analysis only the values of A may
   have changed. The CUDA twin allocates nothing.
*/
PetscErrorCode BILUFactor_Host(const BSRView *A, LocalInt sweeps, BILUPlan *, BlockLU *F, BILUStats *);
PetscErrorCode BILUFactor_CUDA(const BSRView *A, LocalInt sweeps, BILUPlan *, BlockLU *F, BILUStats *);

/* Looks for failures of A: rows of zeros, entries that are not finite, and block rows without a diagonal block. */
PetscErrorCode BILUCheck_Host(const BSRView *A, BILUStats *);

/*
   These functions serve a factor F that PETSc has computed, on a pattern that includes that of A. `rows` and `columns` are the
   permutations of A in F, or null. BILUCheckFactor counts the diagonal blocks that BILUFactor would have replaced. BILURepeat
   computes the values of F anew, as BILUFactor does.
*/
PetscErrorCode BILUCheckFactor_Host(const BSRView *A, const LocalInt *rows, const LocalInt *columns, const BlockLU *F, BILUStats *);
PetscErrorCode BILURepeat_Host(const BSRView *A, const LocalInt *rows, const LocalInt *columns, BlockLU *F, BILUStats *);
