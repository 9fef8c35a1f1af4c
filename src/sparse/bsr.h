/*
   Block sparse rows: square blocks of bs by bs values, column-major within a block as in PETSc's MATBAIJ and in paper 001. A view
   of somebody's arrays, an owning matrix, and its products, each as a host and a CUDA twin with the same arguments.
*/
#pragma once

#include "csr.h"

constexpr PetscInt kLargestBlock = 32; /* rows of a block that the block preconditioners and their kernels take */

/* Borrowed. Block columns of a block row are distinct and ascending. */
struct BSRView {
  PetscInt           bs;    /* rows of a block, >= 1 */
  PetscInt           n;     /* block rows and block columns */
  PetscInt           nnz;   /* stored blocks */
  const PetscInt    *i;     /* [n + 1] */
  const PetscInt    *j;     /* [nnz] */
  const PetscScalar *a;     /* [nnz * bs * bs] */
  PetscMemType       where; /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */
};

/* Owned. i, j and a are one allocation. */
struct BSR {
  PetscInt        bs;
  PetscInt        rows, columns, nnz; /* in blocks */
  PetscInt       *i;                  /* [rows + 1] */
  PetscInt       *j;                  /* [nnz] */
  void           *a;                  /* [nnz * bs * bs] float or double */
  FinePCPrecision precision;
  PetscMemType    where;
};

PetscErrorCode BSRCreate(PetscInt bs, PetscInt rows, PetscInt columns, PetscInt nnz, FinePCPrecision, PetscMemType, BSR *);
PetscErrorCode BSRDestroy(BSR *);
size_t         BSRBytes(const BSR *);
BSRView        BSRViewOf(const BSR *);                    /* of one in double precision */
PetscErrorCode BSRCopy(const BSR *, PetscMemType, BSR *); /* a new one, in memory of that kind */

/*
   y = z + W x, or W x where z is null; z may be x or y, x and y do not overlap. Sums in double, for each row in a fixed order.
   after_product promises that the last work in the stream is such a product, of a W with rows, and that this W was there when that
   one began: it is read before that has ended.
*/
PetscErrorCode BSRMultiply_Host(const BSR *W, const PetscScalar *x, const PetscScalar *z, PetscScalar *y);
PetscErrorCode BSRMultiply_CUDA(const BSR *W, const PetscScalar *x, const PetscScalar *z, PetscScalar *y, PetscBool after_product);
