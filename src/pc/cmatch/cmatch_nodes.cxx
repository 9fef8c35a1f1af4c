/* What both twins of the hierarchy of nodes do on the host: the inverse of the coarsest level. */
#include <algorithm>
#include <vector>

#include <petscsys.h>
#include <petscblaslapack.h>

#include "cmatch_nodes.h"

/* An eigenvalue of the coarsest level counts as 0 up to this share of the largest one, and as a rounding error below 0. */
static constexpr double kSmallEigenvalue = 1e-13, kNegativeEigenvalue = 1e-5;

/* D [n][n] becomes the inverse of its part that has eigenvalues beyond rounding. */
static PetscErrorCode InvertEigenvalues(PetscBLASInt n, double *D, PetscBool *done)
{
  const size_t        size = (size_t)n;
  std::vector<double> V(D, D + size * size), w(size), work(1);
  PetscBLASInt        info = 0, length = -1;

  PetscFunctionBegin;
  *done = PETSC_FALSE;
  PetscCallBLAS("LAPACKsyev", LAPACKsyev_("V", "U", &n, V.data(), &n, w.data(), work.data(), &length, &info));
  length = (PetscBLASInt)work[0];
  work.resize((size_t)length);
  PetscCallBLAS("LAPACKsyev", LAPACKsyev_("V", "U", &n, V.data(), &n, w.data(), work.data(), &length, &info));
  const double largest = w[size - 1];
  if (info || !(largest > 0) || !(w[0] >= -kNegativeEigenvalue * largest)) PetscFunctionReturn(PETSC_SUCCESS);
  std::fill(D, D + size * size, 0.);
  for (size_t e = 0; e < size; e++) {
    const double *const v = &V[e * size];
    if (!(w[e] > kSmallEigenvalue * largest)) continue;
    for (size_t i = 0; i < size; i++)
      for (size_t j = 0; j < size; j++) D[i * size + j] += v[i] * v[j] / w[e];
  }
  *done = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesInvert(LocalInt n, double *D, PetscBool *done)
{
  const size_t              size = (size_t)n;
  const std::vector<double> kept(D, D + size * size);
  PetscBLASInt              rows, info = 0;
  bool                      small = false;

  PetscFunctionBegin;
  *done = PETSC_TRUE;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscBLASIntCast(n, &rows));
  PetscCallBLAS("LAPACKpotrf", LAPACKpotrf_("U", &rows, D, &rows, &info));
  for (size_t i = 0; i < size && !info; i++)
    small = small || !(D[i * size + i] * D[i * size + i] > kCMATCHSmallPivot * kept[i * size + i]);
  if (info || small) {
    std::copy(kept.begin(), kept.end(), D);
    PetscCall(InvertEigenvalues(rows, D, done));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallBLAS("LAPACKpotri", LAPACKpotri_("U", &rows, D, &rows, &info));
  *done = (PetscBool)!info;
  /* The upper triangle of LAPACK's columns is the lower triangle of our rows. */
  for (size_t i = 0; i < size; i++)
    for (size_t j = 0; j < i; j++) D[j * size + i] = D[i * size + j];
  PetscFunctionReturn(PETSC_SUCCESS);
}
