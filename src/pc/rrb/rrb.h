/*
   RRB, repeated red-black: A = L D L^T + R for 5- and 9-point stencils on a grid, M = L D L^T, level by level (2.2).

   de Jong, van der Ploeg, Ditzel, Vuik, Fine-grain parallel RRB-solver for 5-/9-point stencil problems suitable for GPU-type
   processors, Electron. Trans. Numer. Anal. (2017) (paper 003).
*/
#pragma once

#include "sparse/csr.h"

struct RRBParams {
  PetscInt  levels     = 0;           /* l of RRB-l, >= 1; 0: as few as leave kRRBRemainder points or so */
  PetscBool singular   = PETSC_FALSE; /* constants are in the null space: the last pivot is left out, if all rows sum to 0 */
  PetscBool keep_schur = PETSC_FALSE; /* S_1 is kept, for RRBCG */
  PetscBool lift       = PETSC_TRUE;  /* rows that sum to less than 0 are made to sum to 0, before the first level that lumps */
};
/* chosen levels leave so many points, or one in, kRRBLargestRemainder / 2 at most */
constexpr PetscInt kRRBRemainder = 1024, kRRBShare = 15000;
constexpr PetscInt kRRBLargestRemainder = 8192;            /* of the CUDA twin, whose inverse is dense */
constexpr size_t   kRRBLargestBand      = (size_t)2 << 30; /* bytes, of the host twin */
/* a_ij and a_ji may differ by this, relatively, or by so much of a_ii, which is rounding */
constexpr PetscReal kRRBSymmetry = 1e-8, kRRBNoise = 1e-14;
constexpr PetscReal kRRBZeroSum = 1e-8; /* sum of a row over its diagonal entry, if A is singular */
/* -sum of a row over the diagonal entry of A: 0 to rounding, if not above */
constexpr PetscReal kRRBLift = 1e-12;
enum RRBFailure { RRB_OK, RRB_PATTERN, RRB_UNSYMMETRIC, RRB_PIVOT };
struct RRBStats {
  RRBFailure failure;
  PetscInt   row, column, level; /* of the first entry that is no neighbour's, or not symmetric; of the pivot, row = y nx + x */
  /* couplings that one of the two rows does not have: left out; rows of S_1, or of A with 9 points */
  PetscInt64 one_sided, lifted;
  PetscInt   zero_pivots; /* left out: the last one of a singular matrix */
};
struct RRBFactor {                                /* what both twins' factors begin with */
  PetscInt nx, ny, levels, max_levels, remainder; /* levels in use; points of the exact factorization */
  /* A couples diagonal neighbours; S_1 is here; M has constants in its null space as A does */
  PetscBool    nine, has_schur, singular;
  size_t       bytes, apply_bytes; /* of memory; that an application must move */
  PetscMemType where;
};
/* The levels in use, the most that the grid allows by (2.1), and the points that are left. */
void RRBLevels(PetscInt nx, PetscInt ny, PetscInt asked, PetscInt *levels, PetscInt *max_levels, PetscInt *remainder);
/*
   Largest j - i of an entry, 0 at least; and whether some entry has one less. Entries that are zero do not count, here and below.
*/
PetscErrorCode RRBOffsets_Host(const CSRView *A, PetscInt *largest, PetscBool *next);
PetscErrorCode RRBOffsets_CUDA(const CSRView *A, PetscInt *largest, PetscBool *next);
/* The factor of A on nx ny = n points, x first; an old factor's memory is used again. After a failure F is not for use. */
PetscErrorCode RRBComputeFactor_Host(const CSRView *A, PetscInt nx, PetscInt ny, const RRBParams *, RRBFactor **F, RRBStats *);
PetscErrorCode RRBComputeFactor_CUDA(const CSRView *A, PetscInt nx, PetscInt ny, const RRBParams *, RRBFactor **F, RRBStats *);
PetscErrorCode RRBApply_Host(RRBFactor *, const PetscScalar *x, PetscScalar *y); /* y = M^{-1} x */
PetscErrorCode RRBApply_CUDA(RRBFactor *, const PetscScalar *x, PetscScalar *y);
/* On the host: columns of L, l[4 n] in the order of its twin, and d[n], 1 / pivot; 0 in the remainder. */
PetscErrorCode RRBGetFactor_Host(const RRBFactor *, PetscScalar *l, PetscScalar *d);
PetscErrorCode RRBGetFactor_CUDA(const RRBFactor *, PetscScalar *l, PetscScalar *d);
PetscErrorCode RRBDestroy_Host(RRBFactor **);
PetscErrorCode RRBDestroy_CUDA(RRBFactor **);
