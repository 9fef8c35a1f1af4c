/*
   This file is the host twin of cuda/sparse/symmetry.cu, in one pass over the entries. The rows come in order, so that the entries
   (j, i) before the diagonal of row j are met one after the other, by the rows i < j that have the entry (i, j). An entry that is
   passed over has no partner.
*/
#include <cmath>
#include <vector>

#include "symmetry.h"

PetscErrorCode CSRSymmetry_Host(const CSRView *A, LocalInt first, PetscScalar *values, CSRSymmetry *, CSRSymmetry *symmetry)
{
  const PetscScalar *const a = A->a;
  std::vector<LocalInt>    next(A->i, A->i + A->n); /* the first entry of each row that was not met yet */
  std::vector<PetscReal>   noise(A->n, 0);          /* what is rounding, compared with the diagonal entry of each row */

  const auto alone = [&](LocalInt row, LocalInt k) {
    if (!(PetscAbsScalar(a[k]) > noise[row]) || !std::isfinite(a[k])) return;
    (PetscMax(row, A->j[k]) < first ? symmetry->foreign : symmetry->one_sided)++;
    if (values) values[k] = 0;
  };
  const auto pair = [&](LocalInt row, LocalInt k, LocalInt column, LocalInt k_other) {
    const PetscReal larger = PetscMax(PetscAbsScalar(a[k]), PetscAbsScalar(a[k_other])), apart = PetscAbsScalar(a[k] - a[k_other]);
    if (a[k_other] == 0) alone(row, k);
    else if (a[k] == 0) alone(column, k_other);
    else if (column >= first && apart > kSymmetry * larger && apart > noise[row] && std::isfinite(apart)) {
      symmetry->unequal++;
      symmetry->largest = PetscMax(symmetry->largest, apart / larger);
    }
  };

  PetscFunctionBegin;
  *symmetry = CSRSymmetry{};
  if (values) PetscCall(PetscArraycpy(values, a, A->nnz));
  for (LocalInt row = 0; row < A->n; row++)
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++)
      if (A->j[k] == row) noise[row] = kSymmetryNoise * PetscAbsScalar(a[k]);
  for (LocalInt row = 0; row < A->n; row++) {
    LocalInt k = next[row];
    for (; k < A->i[row + 1] && A->j[k] < row; k++) alone(row, k);
    for (; k < A->i[row + 1]; k++) {
      const LocalInt column = A->j[k], end = A->i[column + 1];
      LocalInt      &other = next[column];
      if (column == row) continue;
      for (; other < end && A->j[other] < row; other++) alone(column, other);
      if (other < end && A->j[other] == row) pair(row, k, column, other++);
      else alone(row, k);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRCarry_Host(const CSRView *A, const PetscScalar *values, CSR *W)
{
  std::vector<PetscScalar> diagonal(A->n, 0); /* of isolated rows, and 0 of the others */
  std::vector<LocalInt>    i(1, 0), j;
  std::vector<PetscScalar> a;

  PetscFunctionBegin;
  for (LocalInt row = 0; row < A->n; row++) {
    bool isolated = true;
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++) {
      if (A->j[k] == row) diagonal[row] = A->a[k];
      else isolated = isolated && A->a[k] == 0;
    }
    if (!isolated) diagonal[row] = 0;
  }
  for (LocalInt row = 0; row < A->n; row++) {
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++) {
      if (values[k] != 0 || A->a[k] == 0 || diagonal[A->j[k]] == 0) continue;
      j.push_back(A->j[k]);
      a.push_back(-A->a[k] / diagonal[A->j[k]]);
    }
    i.push_back((LocalInt)j.size());
  }
  PetscCall(CSRCreate(A->n, A->n, (LocalInt)j.size(), FINEPC_DOUBLE, PETSC_MEMTYPE_HOST, W));
  PetscCall(PetscArraycpy(W->i, i.data(), i.size()));
  PetscCall(PetscArraycpy(W->j, j.data(), j.size()));
  PetscCall(PetscArraycpy((PetscScalar *)W->a, a.data(), a.size()));
  PetscFunctionReturn(PETSC_SUCCESS);
}
