/* The blocks that a PETSc matrix lends while a set-up reads them, and a MATBAIJ that is made of blocks. */
#pragma once

#include "bsr.h"
#include "csr_mat.h"

/* What a Mat has lent, or what has been made of it. */
struct BSRMat {
  BSRView A;
  Mat     local;    /* the rank's diagonal block */
  CSRMat  csr;      /* the rows that a MATAIJ lends during the conversion, or empty */
  bool    borrowed; /* whether the arrays of A belong to the Mat */
};

/*
   Gives the rank's diagonal block of a MATBAIJ, or of a MATAIJ with a block size, in memory of the given kind. If the Mat does not
   have its blocks in such memory, they are made in `copy`, which stays the caller's. With keep, copy has the right pattern from the
   last time and gets new values only. Blocks that a MATAIJ stores in part are filled up with zeros.
*/
PetscErrorCode MatGetBSR(Mat, PetscMemType where, PetscBool keep, BSR *copy, BSRMat *);
PetscErrorCode MatRestoreBSR(BSRMat *);

/* Where the factors of a matrix belong, which is where its vectors are. */
PetscErrorCode MatGetBSRMemType(Mat, PetscMemType *);

/* Makes a MATBAIJ on the communicator of I + W with unit, and of W without. W stands for the rank's diagonal block. */
PetscErrorCode MatCreateFromBSR(MPI_Comm, const BSR *W, PetscBool unit, Mat *);

/* A sequential Mat that keeps a copy of its blocks on the device composes this method, which gives the copy, up to date. */
constexpr const char *kDeviceBlocksQuery = "MatGetDeviceBlocks_C";
