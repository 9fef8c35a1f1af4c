/*
   Blocks are made of single entries, single entries of blocks, and transposed blocks of blocks. Each function has a host twin and a
   CUDA twin, but for the one of upper triangles.
*/
#pragma once

#include "bsr.h"

/* B, in double precision, is made of the entries of A. With keep, B has the pattern already and gets new values only. */
PetscErrorCode BSRFromCSR_Host(const CSRView *A, LocalInt bs, PetscBool keep, BSR *B);
PetscErrorCode BSRFromCSR_CUDA(const CSRView *A, LocalInt bs, PetscBool keep, BSR *B);

/*
   A, in double precision, is made of all entries of the blocks, zeros included. With keep, A has the pattern already and gets new
   values only.
*/
PetscErrorCode CSRFromBSR_Host(const BSRView *B, PetscBool keep, CSR *A);
PetscErrorCode CSRFromBSR_CUDA(const BSRView *B, PetscBool keep, CSR *A);

/* The same of a symmetric matrix on the host of which B has the upper triangle, as PETSc's MATSBAIJ. PETSc has none on a device. */
PetscErrorCode CSRFromUpperBSR(const BSRView *B, PetscBool keep, CSR *A);

/* Wt = W^T, in the same precision and memory. With keep, Wt has the pattern already and gets new values only. */
PetscErrorCode BSRTranspose_Host(const BSR *W, PetscBool keep, BSR *Wt);
PetscErrorCode BSRTranspose_CUDA(const BSR *W, PetscBool keep, BSR *Wt);
