/*
   This file is the host twin of cuda/pc/fsai.cu, in plain loops. It computes what scales A to unit diagonal: S A S with
   S = diag(A)^{-1/2}.
*/
#include <cmath>

#include "fsai.h"

PetscErrorCode FSAIScaling_Host(const CSRView *A, LocalInt first, PetscReal *s, PetscReal *d, FSAIStats *stats)
{
  PetscFunctionBegin;
  for (LocalInt row = 0; row < A->n; row++) {
    bool      found = false, finite = true;
    PetscReal diagonal = 0;
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++) {
      finite = finite && std::isfinite(A->a[k]);
      if (A->j[k] != row) continue;
      found    = true;
      diagonal = A->a[k];
    }
    stats->failure     = !finite        ? FSAI_NOT_FINITE
                         : !found       ? FSAI_DIAGONAL_MISSING
                         : diagonal > 0 ? FSAI_OK
                                        : FSAI_DIAGONAL_NOT_POSITIVE;
    stats->failure_row = row;
    if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
    s[row] = 1 / std::sqrt(diagonal);
    if (row >= first) d[row - first] = diagonal;
  }
  PetscCall(FSAIMeanLog_Host(A->n - first, d, &stats->log_psi_before));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FSAIMeanLog_Host(LocalInt n, const PetscReal *d, PetscReal *mean)
{
  PetscFunctionBegin;
  *mean = 0;
  for (LocalInt k = 0; k < n; k++) *mean += std::log(d[k]);
  if (n) *mean /= n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether a mark has changed. */
static bool Differs_FSAI(float now, float before)
{
  const float change = std::fabs(now - before);
  return change > (float)kFSAIChange * PetscMax(now, before) && change > (float)kFSAILeastChange;
}

PetscErrorCode FSAIMarks_Host(const CSRView *A, LocalInt first, const PetscReal *d, float *marks, LocalInt *changed)
{
  PetscFunctionBegin;
  if (changed) *changed = 0;
  for (LocalInt row = first; row < A->n; row++) {
    PetscReal diagonal = 1, others = 0;
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++) {
      if (A->j[k] == row) diagonal = std::fabs(A->a[k]);
      else others += A->a[k] * A->a[k];
    }
    float      *before   = marks + 2 * (size_t)(row - first);
    const float gain     = (float)std::log(diagonal * std::fabs(d[row - first]));
    const float coupling = (float)(others / (diagonal * diagonal));
    if (changed) *changed += Differs_FSAI(gain, before[0]) || Differs_FSAI(coupling, before[1]);
    else {
      before[0] = gain;
      before[1] = coupling;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
