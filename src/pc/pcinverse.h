/*
   An explicit inverse in two factors, M^{-1} = W2 D W1: what the factored approximate inverses have in common once they are
   set up. Apply is two sparse products; it allocates nothing and waits for nothing.
*/
#pragma once

#include "sparse/csr.h"

struct PCInverse {
  CSR          W1, W2; /* without their unit diagonals, which are not stored */
  PetscScalar *d;      /* [rows] D */
  PetscMemType where;
  PetscInt     rows;
  PetscInt     operator_nnz; /* of the matrix that was inverted */
  PetscScalar *work;         /* [work_columns * rows] W1 x */
  PetscInt     work_columns; /* 1 from the set-up on, kInverseColumns once there were several right-hand sides */
};

constexpr PetscInt kInverseColumns = 4; /* right-hand sides that PCInverseApply() takes at a time */

PetscErrorCode PCInverseNeedWork(PCInverse *, PetscInt columns);
/* Y = W2 D W1 X for so many columns, at most kInverseColumns, in the memory of the factors; how many operations that takes. */
PetscErrorCode PCInverseApply(PCInverse *, PetscInt columns, const PetscScalar *X, PetscInt ldx, PetscScalar *Y, PetscInt ldy,
                              PetscLogDouble *flops);
PetscErrorCode PCInverseView(const PCInverse *, MPI_Comm, PetscViewer);
PetscErrorCode PCInverseReset(PCInverse *);

/* PCFinePCGetInverse_C, which every PC of this kind composes: its inverse, null before PCSetUp(). */
constexpr const char *kInverseQuery = "PCFinePCGetInverse_C";

/* PCFinePCGetApplyBytes_C, for PCs of another kind. */
constexpr const char *kApplyBytesQuery = "PCFinePCGetApplyBytes_C";
