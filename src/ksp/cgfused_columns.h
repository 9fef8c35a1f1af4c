/* Several right-hand sides with the fused conjugate gradient method: what the files that solve them together share. */
#pragma once

#include <petsc/private/matimpl.h>

#include "cgcolumns.h"
#include "cgfusedimpl.h"

/* What a KSP keeps of one system, for one of the columns, and the scalars of KSPCG where the host has them. */
struct CGFusedColumn {
  KSPConvergedReason reason = KSP_CONVERGED_ITERATING;
  PetscInt           its    = 0;
  PetscReal          rnorm = 0, rnorm0 = 0, ttol = 0;
  CGRange            range;
  PetscReal          beta = 0, beta_before = 1, delta = 0, a = 0, b = 0;

  bool Ended() const { return reason != KSP_CONVERGED_ITERATING; }
};

/* The columns that are solved together. */
struct CGFusedBatch {
  Mat           B = nullptr, X = nullptr;
  LocalInt      count = 0;
  CGFusedColumn column[kCGMostColumns];

  bool Ended() const
  {
    for (LocalInt c = 0; c < count; c++)
      if (!column[c].Ended()) return false;
    return true;
  }
};

/*
   Calls f() while the KSP is that of a column: with its reason, norms and numbers, and, if `vectors`, with the columns of B and X
   as its right-hand side and solution. KSPConvergedDefault() needs them for the first norm if there is a guess, and so does what
   follows from a failure.
*/
template <typename F>
PetscErrorCode CGFusedAsColumn(KSP ksp, CGFusedBatch &batch, PetscInt c, bool vectors, F f)
{
  CGFusedColumn &column = batch.column[c];
  const Vec      rhs = ksp->vec_rhs, solution = ksp->vec_sol;
  Vec            b = nullptr, x = nullptr;

  PetscFunctionBegin;
  if (vectors) {
    PetscCall(MatDenseGetColumnVecRead(batch.B, c, &b));
    PetscCall(MatDenseGetColumnVec(batch.X, c, &x));
    ksp->vec_rhs = b;
    ksp->vec_sol = x;
  }
  ksp->reason               = column.reason;
  ksp->its                  = column.its;
  ksp->rnorm                = column.rnorm;
  ksp->rnorm0               = column.rnorm0;
  ksp->ttol                 = column.ttol;
  const PetscErrorCode code = f();
  column.reason             = ksp->reason;
  column.its                = ksp->its;
  column.rnorm              = ksp->rnorm;
  column.rnorm0             = ksp->rnorm0;
  column.ttol               = ksp->ttol;
  ksp->vec_rhs              = rhs;
  ksp->vec_sol              = solution;
  if (vectors) { /* after an error, too: B and X are the program's */
    PetscCall(MatDenseRestoreColumnVec(batch.X, c, &x));
    PetscCall(MatDenseRestoreColumnVecRead(batch.B, c, &b));
  }
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- cgfused_columns.cxx ------------------------------------ */

/* What a residual of this norm is to the column that the KSP is: its end is confirmed, or the KSP has no reason. Collective. */
PetscErrorCode CGFusedConfirmColumn(KSP, PetscReal norm);
/* KSPMatSolve() */
PetscErrorCode KSPMatSolve_CGFused(KSP, Mat B, Mat X);
/* What it composes and takes away, shows, and frees. */
PetscErrorCode CGFusedComposeColumns(KSP, PetscBool compose);
PetscErrorCode CGFusedViewColumns(KSP, PetscViewer);
PetscErrorCode CGFusedResetColumns(KSP);

/* ---------------------------------- cgfused_columns_general.cxx ------------------------------- */

/* The columns of a batch by the products of any matrix and preconditioner; the host decides about every iteration. */
PetscErrorCode CGFusedSolveColumnsByHost(KSP, CGFusedBatch &);
