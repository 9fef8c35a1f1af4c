/* The rows that a PETSc matrix lends while a set-up reads them, and a PETSc matrix that is made of a factor. */
#pragma once

#include "csr.h"

/* What a Mat has lent. */
struct CSRMat {
  CSRView A;
  Mat     local; /* the sequential matrix whose rows these are, or null if they are a copy */
};

/*
   An error about the type of a matrix: which types are taken, and the remedy, or a better one for a MATNEST, a MATSHELL or a
   transpose that is not assembled.
*/
PetscErrorCode MatRefuseType(Mat, const char takes[], const char remedy[]);

/* An error if the matrix is not square with the same layout of rows and columns. */
PetscErrorCode MatCheckLayout(Mat);

/* Lends the rows of the rank's diagonal block of an AIJ matrix, on the device if they are there and not bound to the CPU. */
PetscErrorCode MatGetCSR(Mat, CSRMat *);

/* Lends the same rows on the host, wherever the matrix has them. */
PetscErrorCode MatGetHostCSR(Mat, CSRMat *);

/* Lends the rank's entries in columns of other ranks, on the device. Column j of these rows is column ghosts[j] of the matrix. */
PetscErrorCode MatGetGhostCSR(Mat, CSRMat *, PetscInt *count, const PetscInt **ghosts);

/* Takes back what one of these functions, or MatGetPoints() of bsr_mat.h, has lent. */
PetscErrorCode MatRestoreCSR(CSRMat *);

/*
   Makes a MATAIJ on the communicator of D^{1/2} (I + W) with D = diag(d). W is strictly triangular and stands for the rank's
   diagonal block.
*/
PetscErrorCode MatCreateFromFactor(MPI_Comm, const CSR *W, const PetscScalar *d, Mat *);
