/*
   Compressed sparse rows, the format in which the twins get and store matrices of single entries. This header has a view of arrays
   that belong to somebody else, a factor that owns its arrays, and the operations that several preconditioners share. Each
   operation has a host twin and a CUDA twin with the same arguments.
*/
#pragma once

#include <cstdint>

#include "memory.h"

/*
   The rows of an operator, whose arrays are borrowed. The columns of a row are distinct and ascending. The matrix is square, unless
   MatGetGhostCSR() has lent the rows.
*/
struct CSRView {
  LocalInt           n;     /* rows */
  LocalInt           nnz;   /* stored entries */
  const LocalInt    *i;     /* [n + 1] row starts */
  const LocalInt    *j;     /* [nnz] columns */
  const PetscScalar *a;     /* [nnz] values */
  PetscMemType       where; /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */
};

/*
   A number that tells a pattern from others, the same in both twins: the sum of h(nnz + row, i[row]) over the rows, if
   there are entries, of h(k, j[k]) over the entries, and of h(2^32 - 1, n), modulo 2^64. h(place, what) mixes the bits of
   2^32 place + what by two products and shifts. The values are not read, and may be null. `work` is one number on the device, and
   null on the host.
*/
PetscErrorCode CSRHash_Host(const CSRView *, uint64_t *work, uint64_t *hash);
PetscErrorCode CSRHash_CUDA(const CSRView *, uint64_t *work, uint64_t *hash);

/* A factor, which owns its arrays. i, j and a are one allocation, which begins at i. */
struct CSR {
  LocalInt        rows, columns;
  LocalInt        nnz;       /* stored entries */
  LocalInt       *i;         /* [rows + 1] row starts */
  LocalInt       *j;         /* [nnz] columns */
  void           *a;         /* [nnz] values, float or double */
  FinePCPrecision precision; /* of the values */
  PetscMemType    where;     /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */
};

PetscErrorCode CSRCreate(LocalInt rows, LocalInt columns, LocalInt nnz, FinePCPrecision, PetscMemType, CSR *);
PetscErrorCode CSRDestroy(CSR *);
size_t         CSRBytes(const CSR *); /* bytes of the stored entries and the row starts */
PetscErrorCode CSRDuplicate(const CSR *, PetscMemType, CSR *copy);

/* d [n] = the diagonal entries of A, in its memory; 0 for a row without one. */
PetscErrorCode CSRDiagonal_Host(const CSRView *A, PetscScalar *d);
PetscErrorCode CSRDiagonal_CUDA(const CSRView *A, PetscScalar *d);

/* Counts the entries of A that do not stand behind the column of the entry before them, which PETSc allows. */
PetscErrorCode CSRCountUnsorted_Host(const CSRView *A, LocalInt *count);
PetscErrorCode CSRCountUnsorted_CUDA(const CSRView *A, LocalInt *count);

/* Makes a copy of A in double precision, in its memory, with ascending columns; entries of the same column are added up. */
PetscErrorCode CSRSort(const CSRView *A, CSR *copy);

/*
   Makes a copy of A in double precision, in its memory, whose `count` rows `isolated`, which ascend and are on the host, have the
   diagonal entry `value`, whether one is stored or not. It is made on the host: matrices that need it are rare.
*/
PetscErrorCode CSRIsolate(const CSRView *A, LocalInt count, const LocalInt *isolated, PetscScalar value, CSR *copy);

/*
   Makes W, in double precision and with n rows, or nothing if it has no arrays, a matrix `with` which I + W loses the rows and the
   columns `masked` [count], which ascend and are on the host, likewise.
*/
PetscErrorCode CSRMask(const CSR *W, LocalInt n, LocalInt count, const LocalInt *masked, PetscMemType where, CSR *with);

/* to [n] = -from [n], which may be the same array. */
PetscErrorCode ValuesNegate_Host(size_t n, const PetscScalar *from, PetscScalar *to);
PetscErrorCode ValuesNegate_CUDA(size_t n, const PetscScalar *from, PetscScalar *to);

/* Gt = G^T, in the same precision and memory. With keep, Gt has the pattern already and gets new values only. */
PetscErrorCode CSRTranspose_Host(const CSR *G, PetscBool keep, CSR *Gt);
PetscErrorCode CSRTranspose_CUDA(const CSR *G, PetscBool keep, CSR *Gt);

/*
   Y = D (X + W X) with unit, and Y = D (W X) without, where D = diag(d) is left out if d is null. The sums are in double. X and Y
   hold `columns` vectors each, which are ldx and ldy values apart, and X and Y do not overlap.
*/
PetscErrorCode CSRMultiply_Host(const CSR *W, PetscBool unit, const PetscScalar *d, LocalInt columns, const PetscScalar *X,
                                LocalInt ldx, PetscScalar *Y, LocalInt ldy);
PetscErrorCode CSRMultiply_CUDA(const CSR *W, PetscBool unit, const PetscScalar *d, LocalInt columns, const PetscScalar *X,
                                LocalInt ldx, PetscScalar *Y, LocalInt ldy);

/*
   Y += D W X, where `rows` [count] are the rows of W that have entries, in the memory of W, or null for all rows. X is interleaved,
   if it has more than one column; the rest is as above.
*/
PetscErrorCode CSRMultiplyAdd_Host(const CSR *W, LocalInt count, const LocalInt *rows, const PetscScalar *d, LocalInt columns,
                                   const PetscScalar *X, PetscScalar *Y, LocalInt ldy);
PetscErrorCode CSRMultiplyAdd_CUDA(const CSR *W, LocalInt count, const LocalInt *rows, const PetscScalar *d, LocalInt columns,
                                   const PetscScalar *X, PetscScalar *Y, LocalInt ldy);

/* The rows `rows` [count] of the vectors X, interleaved, become `to` [count * columns]. */
PetscErrorCode RowsInterleave_Host(LocalInt count, const LocalInt *rows, LocalInt columns, const PetscScalar *X, LocalInt ldx,
                                   PetscScalar *to);
PetscErrorCode RowsInterleave_CUDA(LocalInt count, const LocalInt *rows, LocalInt columns, const PetscScalar *X, LocalInt ldx,
                                   PetscScalar *to);
