/* Mat -> compressed sparse rows: what a Mat lends while a set-up reads its rows, and a Mat made of a factor. */
#pragma once

#include "csr.h"

/* What the Mat lends while a set-up reads it. */
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
