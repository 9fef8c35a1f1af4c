/*
   Mat -> block sparse rows: what a Mat lends while a set-up reads its blocks, blocks made of single entries, and of other blocks.
*/
#pragma once

#include "bsr.h"

constexpr PetscInt kLargestBlock = 32; /* rows of a block that the block preconditioners and their kernels take */

struct BSRMat {
  BSRView A;
  Mat     local;    /* the rank's diagonal block */
  CSRMat  csr;      /* lent for the conversion, or empty */
  bool    borrowed; /* A's arrays are the Mat's own */
};

/*
   The rank's diagonal block of a MATBAIJ, or of a MATAIJ with a block size, in memory of that kind. What the Mat does not have
   there itself is made in `copy`, which stays the caller's; with keep, copy has the right pattern from the last time, and its
   values are set anew. Blocks of a MATAIJ that are stored in part are filled up with zeros.
*/
PetscErrorCode MatGetBSR(Mat, PetscMemType where, PetscBool keep, BSR *copy, BSRMat *);
PetscErrorCode MatRestoreBSR(BSRMat *);
PetscErrorCode MatGetBSRMemType(Mat, PetscMemType *); /* where what is made of its blocks belongs: where its vectors are */

/* I + W or W as a MATBAIJ on comm, W being this rank's diagonal block. */
PetscErrorCode MatCreateFromBSR(MPI_Comm, const BSR *W, PetscBool unit, Mat *);

/* MatGetDeviceBlocks_C, which a sequential Mat composes that keeps a copy of its blocks on the device: that copy, up to date. */
constexpr const char *kDeviceBlocksQuery = "MatGetDeviceBlocks_C";

BSRView BSRViewOf(const BSR *); /* of one in double precision */

/* B, in double precision, from A's entries. With keep, B has the pattern already and gets new values only. */
PetscErrorCode BSRFromCSR_Host(const CSRView *A, PetscInt bs, PetscBool keep, BSR *B);
PetscErrorCode BSRFromCSR_CUDA(const CSRView *A, PetscInt bs, PetscBool keep, BSR *B);

/* Wt = W^T, in the same precision and memory. With keep, Wt has the pattern already and gets new values only. */
PetscErrorCode BSRTranspose_Host(const BSR *W, PetscBool keep, BSR *Wt);
PetscErrorCode BSRTranspose_CUDA(const BSR *W, PetscBool keep, BSR *Wt);
