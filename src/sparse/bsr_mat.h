/*
   Mat -> block sparse rows: what a Mat lends while a set-up reads its blocks, and a MATBAIJ made of blocks.
*/
#pragma once

#include "bsr.h"
#include "csr_mat.h"

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
