/*
   Block sparse rows: square blocks of bs by bs values, column-major within a block, as in PETSc's MATBAIJ and in the paper by Ma,
   Hu, Yuan and Liu that pc/bisai/bisai.h names. This header has a view of arrays that belong to somebody else, a matrix that owns
   its arrays, and their products. A product has a host twin and a CUDA twin with the same arguments.
*/
#pragma once

#include "csr.h"

/*
   The most rows that a block may have in the block preconditioners and their kernels: each row of a block has a lane of a warp, and
   a warp has 32 lanes.
*/
constexpr LocalInt kLargestBlock = 32;

/* A square block matrix, whose arrays are borrowed. The block columns of a block row are distinct and ascending. */
struct BSRView {
  LocalInt           bs;    /* rows of a block, at least 1 */
  LocalInt           n;     /* block rows and block columns */
  LocalInt           nnz;   /* stored blocks */
  const LocalInt    *i;     /* [n + 1] block row starts */
  const LocalInt    *j;     /* [nnz] block columns */
  const PetscScalar *a;     /* [nnz * bs * bs] values */
  PetscMemType       where; /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */
};

/*
   A block matrix, which owns its arrays. i, j and a are one allocation, which begins at i. j and a begin and end at words of
   kBSRWord bytes, and what fills the last word is zero, so that a product may copy whole words.
*/
constexpr size_t kBSRWord = 16;
struct BSR {
  LocalInt        bs;            /* rows of a block, at least 1 */
  LocalInt        rows, columns; /* block rows and block columns */
  LocalInt        nnz;           /* stored blocks */
  LocalInt       *i;             /* [rows + 1] block row starts */
  LocalInt       *j;             /* [nnz] block columns */
  void           *a;             /* [nnz * bs * bs] values, float or double */
  FinePCPrecision precision;     /* of the values */
  PetscMemType    where;         /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */
};

PetscErrorCode BSRCreate(LocalInt bs, LocalInt rows, LocalInt columns, LocalInt nnz, FinePCPrecision, PetscMemType, BSR *);
PetscErrorCode BSRDestroy(BSR *);
PetscErrorCode BSRCopy(const BSR *, PetscMemType, BSR *copy); /* makes the copy, in memory of the given kind */
size_t         BSRBytes(const BSR *);                         /* bytes of the blocks and row starts; 0 if there are no arrays */
BSRView        BSRViewOf(const BSR *);                        /* a view of a square matrix in double precision */

/*
   Makes a copy of A whose `count` rows of single entries `isolated`, which ascend and are on the host, have the diagonal entry
   `value`. A block row that has no diagonal block gets one if all of its rows are among them. It is made on the host: matrices that
   need it are rare.
*/
PetscErrorCode BSRIsolate(const BSRView *A, LocalInt count, const LocalInt *isolated, PetscScalar value, BSR *copy);

/* The CUDA twin reads the matrix once for so many columns. */
constexpr LocalInt kBSRColumns = 4;

/* Block vectors, which lie so many values apart. Z may be null, X or Y; X and Y do not overlap. */
struct BSRVectors {
  const PetscScalar *x, *z;
  PetscScalar       *y;
  LocalInt           ldx, ldz, ldy;
};

/*
   Y = Z + W X, or Y = W X if Z is null, for `columns` vectors. The sums are in double, and for each row and column in a fixed
   order, whatever the number of columns.

   With after_product the caller promises two things: the last work in the stream is a product of this kind, with a matrix that has
   rows, and W existed when that product began. The kernel then reads W before that product has ended.
*/
PetscErrorCode BSRMultiply_Host(const BSR *W, LocalInt columns, const BSRVectors &);
PetscErrorCode BSRMultiply_CUDA(const BSR *W, LocalInt columns, const BSRVectors &, PetscBool after_product);
