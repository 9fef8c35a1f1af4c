/* The blocks that a PETSc matrix lends while a set-up reads them, and a MATBAIJ that is made of blocks. */
#pragma once

#include <petscsf.h>

#include <vector>

#include "bsr.h"
#include "csr_mat.h"

/* What a Mat has lent, or what has been made of it. */
struct BSRMat {
  BSRView A;
  Mat     local;    /* the rank's diagonal block */
  CSRMat  csr;      /* the rows that a MATAIJ lends during the conversion, or empty */
  bool    borrowed; /* whether the arrays of A belong to the Mat */

  LocalInt unsorted; /* entries of a MATAIJ that are not in the order of columns, so that A is a sorted copy, or 0 */
};

/*
   Gives the rank's diagonal block of a MATBAIJ, or of a MATAIJ with a block size, in memory of the given kind. If the Mat does not
   have its blocks in such memory, they are made in `copy`, which stays the caller's. With keep, copy has the right pattern from the
   last time and gets new values only. Blocks that a MATAIJ stores in part are filled up with zeros.
*/
PetscErrorCode MatGetBSR(Mat, PetscMemType where, PetscBool keep, BSR *copy, BSRMat *);
PetscErrorCode MatRestoreBSR(BSRMat *);

/* The single entries of the blocks of a matrix, a copy that its owner keeps from one set-up to the next. */
struct MatPoints {
  CSR       copy;
  PetscInt  bs;    /* rows of a block; 0 if there is no copy, because the matrix lends its entries */
  PetscBool upper; /* the matrix has the upper triangle alone, as MATSBAIJ */
};

/*
   Lends the rows of the rank's diagonal block of a MATAIJ, as MatGetCSR() does, or of a MATBAIJ or a MATSBAIJ, whose entries are
   copied: on the device if the matrix has its blocks there, as MATBAIJCUDA, and on the host otherwise. With keep, the pattern is
   that of the last time, and a copy gets new values only.
*/
PetscErrorCode MatGetPoints(Mat, PetscBool keep, MatPoints *, CSRMat *);

/*
   The same of the entries in columns of other ranks, of a parallel MATAIJ or MATBAIJ or of a type that derives from one; columns
   are counted from 0. MatGetOtherColumns() gives the numbers that they have in the matrix, which ascend.
*/
PetscErrorCode MatGetOtherPoints(Mat, PetscBool keep, MatPoints *, CSRMat *);
PetscErrorCode MatGetOtherColumns(Mat, std::vector<PetscInt> *);
/*
   The entries of a MATMPIBAIJ or a MATMPISBAIJ as a MATMPIAIJ, those that a product with the matrix takes. Of a MATMPISBAIJ
   MatConvert() takes the lower triangle of a block on the diagonal, where a program may have put something else than into the upper
   one, and of a MATMPIBAIJ it increases the state, as if it had other values. Collective.
*/
PetscErrorCode MatConvertBlocks(Mat, MatReuse, Mat *aij);
/*
   A PetscSF that brings the entries of a vector in these columns of other ranks, which ascend: what a product with the matrix
   needs. It has lists of ranks and rows, is set up, and is the caller's, but it may be the one that the matrix uses. Collective.
*/
PetscErrorCode MatGetGhostSF(Mat, PetscInt count, const PetscInt columns[], PetscSF *);

/*
   What the nonzeros of this rank's rows were when something was made of them. PETSc's nonzero state does not tell: MatAXPY() with
   other nonzeros, a second preallocation and MatTranspose() in place can leave it as it was.
*/
struct MatPattern {
  PetscObjectId    id    = 0; /* of the matrix, and its state */
  PetscObjectState state = -1;
  uint64_t         hash  = 0; /* of the rows' pattern in either part of the matrix, and of the numbers of other ranks' columns */
  uint64_t        *work  = nullptr; /* on the device, made when the rows of a matrix there are first looked at */
};

/*
   Whether the nonzeros of this rank's rows are those of the last call. They are looked at where the matrix has them, unless its
   state says that nothing has changed. A matrix of a type whose rows are not known never has the same.
*/
PetscErrorCode MatFollowPattern(Mat, MatPattern *, PetscBool *same);
PetscErrorCode MatFreePatternWork(MatPattern *);

/* The same of numbers on the host, such as the columns of other ranks: something that differs where they do. */
uint64_t HashNumbers(PetscInt count, const PetscInt numbers[]);

/* Where the factors of a matrix belong, which is where its vectors are. */
PetscErrorCode MatGetBSRMemType(Mat, PetscMemType *);

/* Makes a MATBAIJ on the communicator of I + W with unit, and of W without. W stands for the rank's diagonal block. */
PetscErrorCode MatCreateFromBSR(MPI_Comm, const BSR *W, PetscBool unit, Mat *);

/* A sequential Mat that keeps a copy of its blocks on the device composes this method, which gives the copy, up to date. */
constexpr const char *kDeviceBlocksQuery = "MatGetDeviceBlocks_C";

/*
   A type that derives from MATMPIBAIJ composes this method, which gives what MatMPIBAIJGetSeqBAIJ() gives of a MATMPIBAIJ: the
   parts of the rank in its own columns and in those of other ranks, whose block columns have these numbers.
*/
constexpr const char *kPartsQuery = "MatGetParts_C";

/*
   The sequential matrices of a rank's own columns and of those of other ranks, and the numbers of the latter, of a MATMPIAIJ or of
   a type that composes the method: block columns there.
*/
PetscErrorCode MatGetRankParts(Mat, Mat *own, Mat *other, const PetscInt **columns);
