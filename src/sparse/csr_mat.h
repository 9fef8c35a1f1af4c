/* The rows that a PETSc matrix lends while a set-up reads them, and a PETSc matrix that is made of a factor. */
#pragma once

#include "csr.h"

/* What a Mat has lent. */
struct CSRMat {
  CSRView A;
  Mat     local; /* the sequential matrix whose rows these are, or null if they are a copy */
  bool    sent;  /* the rows are the copy on the GPU that the matrix keeps, see offload.h */
};

/*
   An error about the type of a matrix: which types are taken, and the remedy, or a better one for a MATNEST, a MATSHELL or a
   transpose that is not assembled.
*/
PetscErrorCode MatRefuseType(Mat, const char takes[], const char remedy[]);

/*
   Borrows the row starts i [*n + 1] and columns j of a sequential Mat on the host, or with `blocks` those of its blocks, and an
   error if it does not give them; and gives them back.
*/
PetscErrorCode MatLendRows(Mat, PetscBool blocks, PetscInt *n, const PetscInt **i, const PetscInt **j);
PetscErrorCode MatTakeRowsBack(Mat, PetscBool blocks);

/*
   Row starts i [n + 1] and columns j of a sequential Mat as local numbers, in the same memory. Where PETSc's numbers have 64 bits,
   the Mat keeps a copy of its pattern and composes it with itself; it is made anew when its pattern has changed.
*/
PetscErrorCode MatGetLocalPattern(Mat, PetscMemType, LocalInt n, LocalInt nnz, const PetscInt *i, const PetscInt *j,
                                  const LocalInt **local_i, const LocalInt **local_j);

/* An error if the matrix is not square with the same layout of rows and columns. */
PetscErrorCode MatCheckLayout(Mat);

/*
   Lends the rows of the rank's diagonal block of an AIJ matrix, on the device if they are there and not bound to the CPU, or if
   they are to be used there (offload.h).
*/
PetscErrorCode MatGetCSR(Mat, CSRMat *);

/* Lends the same rows on the host, wherever the matrix has them. */
PetscErrorCode MatGetHostCSR(Mat, CSRMat *);

/*
   Lends the same rows with their pattern on the host, where PETSc always has it, and the values where they need not be copied:
   A.where is that of the values alone.
*/
PetscErrorCode MatGetCSRToLook(Mat, CSRMat *);

/* Lends the rows of a sequential AIJ matrix on the host, which need not be square. */
PetscErrorCode MatGetPartOnHost(Mat, CSRMat *);

/* Lends the rank's entries in columns of other ranks, on the device. Column j of these rows is column ghosts[j] of the matrix. */
PetscErrorCode MatGetGhostCSR(Mat, CSRMat *, LocalInt *count, const PetscInt **ghosts);

/* Lends the same entries where MatGetCSR() lends the rank's diagonal block. */
PetscErrorCode MatGetOtherCSR(Mat, CSRMat *);

/* Whether the host has v, and the GPU A, a MATAIJCUSPARSE: MatMult() of the two is wrong (docs/known-faults.md). */
PetscErrorCode MatIsFarFrom(Mat A, Vec v, PetscBool *far);
/* Copies between two vectors on the host, or one there and one on the GPU. */
PetscErrorCode VecCopyBetween(Vec from, Vec to);
/* y = A x, or y = A^T x, wherever the vectors are. Collective. */
PetscErrorCode MatMultAnywhere(Mat A, PetscBool transpose, Vec x, Vec y);

/* Where MatGetCSR() lends the rows. */
PetscErrorCode MatGetValuesMemType(Mat, PetscMemType *);

/*
   The pattern of the rank's rows of an AIJ matrix on several ranks, on the host, where it is whatever has the values. Column
   own_j[k] of the rank's block is local, column other_j[k] of the others is column columns[other_j[k]] of the matrix, and both are
   ascending.
*/
struct HostPattern {
  PetscInt        n;                 /* rows */
  const PetscInt *own_i, *own_j;     /* of the rank's block */
  const PetscInt *other_i, *other_j; /* of the rest */
  PetscInt        count;             /* columns of the rest */
  const PetscInt *columns;           /* [count] their numbers */
  Mat             own, other;        /* the sequential matrices that lend all this */
};
PetscErrorCode MatGetHostPattern(Mat, HostPattern *);
PetscErrorCode MatRestoreHostPattern(HostPattern *);

/* Takes back what one of these functions, or MatGetPoints() of bsr_mat.h, has lent. */
PetscErrorCode MatRestoreCSR(CSRMat *);

/* The number of this rank's first row in a matrix of which each rank has so many rows; collective. */
PetscErrorCode MatFindFirstRow(MPI_Comm, PetscInt rows, PetscInt *first);

/*
   Makes a MATAIJ on the communicator of |D|^{1/2} (I + W) with D = diag(d). W is strictly triangular and stands for the rank's
   diagonal block. Entries in columns of lower-numbered ranks are in `ghosts`, whose column c is column columns[c] of the matrix;
   it may be without arrays.
*/
PetscErrorCode MatCreateFromFactor(MPI_Comm, const CSR *W, const CSR *ghosts, const PetscInt columns[], const PetscScalar *d,
                                   Mat *);
