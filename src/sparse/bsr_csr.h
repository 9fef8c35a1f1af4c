/* Blocks are made of single entries, and transposed blocks of blocks. Each function has a host twin and a CUDA twin. */
#pragma once

#include "bsr.h"

/* B, in double precision, is made of the entries of A. With keep, B has the pattern already and gets new values only. */
PetscErrorCode BSRFromCSR_Host(const CSRView *A, PetscInt bs, PetscBool keep, BSR *B);
PetscErrorCode BSRFromCSR_CUDA(const CSRView *A, PetscInt bs, PetscBool keep, BSR *B);

/* Wt = W^T, in the same precision and memory. With keep, Wt has the pattern already and gets new values only. */
PetscErrorCode BSRTranspose_Host(const BSR *W, PetscBool keep, BSR *Wt);
PetscErrorCode BSRTranspose_CUDA(const BSR *W, PetscBool keep, BSR *Wt);
