/*
   An explicit inverse in two factors, M^{-1} = W2 D W1: what the factored approximate inverses have in common once they are
   set up. Apply is two sparse products; it allocates nothing and waits for nothing.
*/
#pragma once

#include "sparse/csr.h"

struct PCInverse {
  CSR          W1, W2;
  PetscBool    unit; /* both have a unit diagonal, which is not stored */
  PetscScalar *d;    /* [rows] D */
  PetscMemType where;
  PetscInt     rows;
  PetscInt     operator_nnz; /* of the matrix that was inverted */
  PetscScalar *work;         /* [work_columns * rows] W1 x */
  PetscInt     work_columns; /* 1 from the set-up on, kInverseColumns once there were several right-hand sides */
  PetscScalar *staging;      /* [2 * rows] on the device, made when a host vector first meets device factors */
};

constexpr PetscInt kInverseColumns = 4; /* right-hand sides that PCInverseMatApply() takes at a time */

PetscErrorCode PCInverseNeedWork(PCInverse *, PetscInt columns);
PetscErrorCode PCInverseApply(PCInverse *, Vec, Vec);
PetscErrorCode PCInverseMatApply(PCInverse *, Mat, Mat);
PetscErrorCode PCInverseView(const PCInverse *, MPI_Comm, PetscViewer);
PetscErrorCode PCInverseReset(PCInverse *);

/* PCFinePCGetInverse_C, which every PC of this kind composes: its inverse, null before PCSetUp(). */
constexpr const char *kInverseQuery = "PCFinePCGetInverse_C";

/* PCFinePCGetApplyBytes_C, for PCs of another kind. */
constexpr const char *kApplyBytesQuery = "PCFinePCGetApplyBytes_C";
