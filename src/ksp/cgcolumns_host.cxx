/* The host twin of the vector operations of cuda/ksp/cgcolumns.cu. */
#include "cgcolumns.h"

PetscErrorCode CGColumnsDots_Host(LocalInt n, LocalInt columns, const PetscScalar *Z, LocalInt ldz, const PetscScalar *R,
                                  LocalInt ldr, PetscReal *sums)
{
  PetscFunctionBegin;
  for (LocalInt c = 0; c < columns; c++) {
    const PetscScalar *z = Z + (size_t)c * ldz, *r = R + (size_t)c * ldr;
    PetscReal          dots[4];

    PetscCall(CGDots_Host(n, z, r, nullptr, dots));
    for (int k = 0; k < 3; k++) sums[3 * c + k] = dots[k];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsAdd_Host(LocalInt n, LocalInt columns, const CGColumnScalars *a, const PetscScalar *X, LocalInt ldx,
                                 PetscScalar *Y, LocalInt ldy)
{
  PetscFunctionBegin;
  for (LocalInt c = 0; c < columns; c++) {
    const PetscScalar *x = X + (size_t)c * ldx;
    PetscScalar       *y = Y + (size_t)c * ldy;

    if (a->stays[c]) continue;
    for (LocalInt i = 0; i < n; i++) y[i] += a->v[c] * x[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsTurn_Host(LocalInt n, LocalInt columns, const CGColumnScalars *b, const PetscScalar *X, LocalInt ldx,
                                  PetscScalar *Y, LocalInt ldy)
{
  PetscFunctionBegin;
  for (LocalInt c = 0; c < columns; c++) {
    const PetscScalar *x = X + (size_t)c * ldx;
    PetscScalar       *y = Y + (size_t)c * ldy;

    if (b->stays[c]) continue;
    for (LocalInt i = 0; i < n; i++) y[i] = x[i] + b->v[c] * y[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
