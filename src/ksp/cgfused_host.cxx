/* The host twin of cuda/ksp/cgfused_vectors.cu: the vector operations one by one. */
#include "cgfused.h"

PetscErrorCode CGStep_Host(LocalInt n, PetscScalar a, const PetscScalar *p, const PetscScalar *w, PetscScalar *x, PetscScalar *r)
{
  PetscFunctionBegin;
  for (LocalInt i = 0; i < n; i++) {
    x[i] += a * p[i];
    r[i] -= a * w[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGDots_Host(LocalInt n, const PetscScalar *z, const PetscScalar *r, const PetscScalar *s, PetscReal sums[4])
{
  PetscReal zr = 0, zz = 0, rr = 0, zs = 0;

  PetscFunctionBegin;
  for (LocalInt i = 0; i < n; i++) {
    zr += z[i] * r[i];
    zz += z[i] * z[i];
    rr += r[i] * r[i];
    if (s) zs += z[i] * s[i];
  }
  sums[0] = zr;
  sums[1] = zz;
  sums[2] = rr;
  sums[3] = zs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGDirection_Host(LocalInt n, PetscScalar b, const PetscScalar *z, PetscScalar *p, const PetscScalar *s,
                                PetscScalar *w)
{
  PetscFunctionBegin;
  for (LocalInt i = 0; i < n; i++) {
    p[i] = z[i] + b * p[i];
    if (s) w[i] = s[i] + b * w[i];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
