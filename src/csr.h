/*
   Compressed sparse rows, the one matrix format of the kernels: a view of somebody's arrays, an owning factor, and the
   operations that several preconditioners share, each as a host and a CUDA twin with the same arguments.
*/
#pragma once

#include <finepc.h>

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

/* What the Mat lends while a set-up reads it: csr_mat.cxx. */
struct CSRMat {
  CSRView A;
  Mat     local; /* the block that they belong to */
};
PetscErrorCode MatGetCSR(Mat, CSRMat *);
PetscErrorCode MatGetHostCSR(Mat, CSRMat *);
PetscErrorCode MatRestoreCSR(CSRMat *);
/* The rank's entries in columns of other ranks, on the device; column j of it is column ghosts[j] of the matrix. */
PetscErrorCode MatGetGhostCSR(Mat, CSRMat *, PetscInt *count, const PetscInt **ghosts);
PetscErrorCode MatCreateFromFactor(MPI_Comm, const CSR *, const PetscScalar *, Mat *);

size_t         FinePCPrecisionBytes(FinePCPrecision);
PetscErrorCode CSRCreate(PetscInt rows, PetscInt columns, PetscInt nnz, FinePCPrecision, PetscMemType, CSR *);
PetscErrorCode CSRDestroy(CSR *);
size_t         CSRBytes(const CSR *);
PetscErrorCode CSRCopyToHost(const CSR *, CSR *);

/* Plain memory of either kind; a zero size gives a null pointer. */
PetscErrorCode ArrayCreate_Host(size_t bytes, void **);
PetscErrorCode ArrayCreate_CUDA(size_t bytes, void **);
PetscErrorCode ArrayDestroy_Host(void **);
PetscErrorCode ArrayDestroy_CUDA(void **);
PetscErrorCode ArrayCopy_CUDA(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where);
PetscErrorCode DeviceFound_CUDA(PetscBool *); /* false where there is none, or finepc was built without CUDA */
PetscErrorCode ArrayCreate(size_t bytes, PetscMemType, void **);
PetscErrorCode ArrayDestroy(PetscMemType, void **);
PetscErrorCode ArrayCopy(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where);

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
