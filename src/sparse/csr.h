/*
   Compressed sparse rows, the one matrix format of the kernels: a view of somebody's arrays, an owning factor, and the
   operations that several preconditioners share, each as a host and a CUDA twin with the same arguments.
*/
#pragma once

#include "memory.h"

/* An operator's rows, borrowed. Columns of a row are distinct and ascending. Square, but for what MatGetGhostCSR() gives. */
struct CSRView {
  PetscInt           n;     /* rows */
  PetscInt           nnz;   /* stored entries */
  const PetscInt    *i;     /* [n + 1] */
  const PetscInt    *j;     /* [nnz] */
  const PetscScalar *a;     /* [nnz] */
  PetscMemType       where; /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */
};

/* A factor, owned: strictly triangular or general, values in the precision asked for. i, j and a are one allocation. */
struct CSR {
  PetscInt        rows, columns, nnz;
  PetscInt       *i; /* [rows + 1] */
  PetscInt       *j; /* [nnz] */
  void           *a; /* [nnz] float or double */
  FinePCPrecision precision;
  PetscMemType    where;
};

PetscErrorCode CSRCreate(PetscInt rows, PetscInt columns, PetscInt nnz, FinePCPrecision, PetscMemType, CSR *);
PetscErrorCode CSRDestroy(CSR *);
size_t         CSRBytes(const CSR *);
PetscErrorCode CSRCopyToHost(const CSR *, CSR *);

/* Gt = G^T. With keep, Gt has the pattern already and gets new values only. */
PetscErrorCode CSRTranspose_Host(const CSR *G, PetscBool keep, CSR *Gt);
PetscErrorCode CSRTranspose_CUDA(const CSR *G, PetscBool keep, CSR *Gt);

/*
   Y = D (X + W X) for unit, Y = D (W X) otherwise, without D when d is null; sums in double.
   X and Y hold `columns` right-hand sides, ldx and ldy apart; X and Y do not overlap.
*/
PetscErrorCode CSRMultiply_Host(const CSR *W, PetscBool unit, const PetscScalar *d, PetscInt columns, const PetscScalar *X,
                                PetscInt ldx, PetscScalar *Y, PetscInt ldy);
PetscErrorCode CSRMultiply_CUDA(const CSR *W, PetscBool unit, const PetscScalar *d, PetscInt columns, const PetscScalar *X,
                                PetscInt ldx, PetscScalar *Y, PetscInt ldy);
