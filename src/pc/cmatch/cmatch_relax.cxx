/*
   Modes for a hierarchy of nodes of a matrix whose near null space nobody gives: vectors that relaxation has left, rotated by
   Rayleigh and Ritz.
*/
#include <petscblaslapack.h>
#include <petsc/private/pcimpl.h>

#include <cmath>
#include <vector>

#include "cmatch_face.h"

static constexpr int kSteps = 20; /* of relaxation: more make the vectors alike inside an aggregate */

/* A number between -1 and 1 that the row and the vector tell, so that it does not depend on the number of ranks. */
static PetscReal StartEntry(PetscInt row, PetscInt vector)
{
  PetscInt64 h = (row * 8 + vector + 1) * (PetscInt64)0x9E3779B97F4A7C15;

  h ^= (PetscInt64)((unsigned long long)h >> 31);
  h *= (PetscInt64)0xBF58476D1CE4E5B9;
  return (PetscReal)((unsigned long long)h >> 11) * 0x1p-52 - 1;
}

/* The inverse of the sums of magnitudes of the rows, with the sign of the matrix: D A has its eigenvalues in [0, 1]. */
static PetscErrorCode MakeScaling(PC pc, Vec D)
{
  PetscFunctionBegin;
  PetscCall(MatGetRowSumAbs(pc->pmat, D));
  PetscCall(VecReciprocal(D)); /* 0 stays 0 */
  if (((PC_CMATCH *)pc->data)->diagonal.negative) PetscCall(VecScale(D, -1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Start(Vec D, PetscInt vector, Vec v)
{
  const PetscScalar *d;
  PetscScalar       *x;
  PetscInt           first, end;

  PetscFunctionBegin;
  PetscCall(VecGetOwnershipRange(v, &first, &end));
  PetscCall(VecGetArrayRead(D, &d));
  PetscCall(VecGetArrayWrite(v, &x));
  for (PetscInt i = first; i < end; i++)
    x[i - first] = StartEntry(i, vector) * PetscSqrtReal(PetscAbsReal(PetscRealPart(d[i - first])));
  PetscCall(VecRestoreArrayWrite(v, &x));
  PetscCall(VecRestoreArrayRead(D, &d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The Chebyshev iteration for A v = 0 that makes all parts of v small whose eigenvalue is at least 12 / kSteps^2 of the largest. */
static PetscErrorCode Relax(Mat A, Vec D, Vec r, Vec z, Vec v)
{
  constexpr PetscReal kLow = 12. / (kSteps * kSteps), kMiddle = (1 + kLow) / 2, kHalf = (1 - kLow) / 2, kRatio = kMiddle / kHalf;
  PetscReal           rho = 1 / kRatio;

  PetscFunctionBegin;
  PetscCall(MatMult(A, v, r));
  PetscCall(VecPointwiseMult(z, D, r));
  PetscCall(VecScale(z, -1 / kMiddle));
  for (int step = 0; step < kSteps; step++) {
    PetscCall(VecAXPY(v, 1, z));
    if (step + 1 == kSteps) break;
    /* the residual is -A v: it is made anew, so that z needs no vector more */
    const PetscReal next = 1 / (2 * kRatio - rho);
    PetscCall(VecScale(z, next * rho));
    PetscCall(MatMult(A, v, r));
    PetscCall(VecPointwiseMult(r, D, r));
    PetscCall(VecAXPY(z, -2 * next / kHalf, r));
    rho = next;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* V = V U, where U has the eigenvectors of V' A V in the metric of V' V; V stays as it is if that is singular. */
static PetscErrorCode Rotate(Mat A, PetscInt m, Vec V[], Vec w)
{
  std::vector<PetscScalar> H((size_t)m * m), G((size_t)m * m), work((size_t)m * m + 3 * m);
  std::vector<PetscReal>   eigenvalue(m);
  const PetscBLASInt       size = (PetscBLASInt)m, length = (PetscBLASInt)work.size(), kind = 1;
  PetscBLASInt             info = 0;
  Vec                     *U;

  PetscFunctionBegin;
  for (PetscInt c = 0; c < m; c++) PetscCall(VecNormalize(V[c], nullptr));
  for (PetscInt c = 0; c < m; c++) {
    PetscCall(MatMult(A, V[c], w));
    PetscCall(VecMDot(w, m, V, &H[(size_t)c * m]));
    PetscCall(VecMDot(V[c], m, V, &G[(size_t)c * m]));
  }
  PetscCallBLAS("LAPACKsygv", LAPACKsygv_(&kind, "V", "U", &size, H.data(), &size, G.data(), &size, eigenvalue.data(), work.data(),
                                          &length, &info));
  if (info) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecDuplicateVecs(w, m, &U));
  for (PetscInt c = 0; c < m; c++) {
    PetscCall(VecSet(U[c], 0));
    PetscCall(VecMAXPY(U[c], m, &H[(size_t)c * m], V));
  }
  for (PetscInt c = 0; c < m; c++) PetscCall(VecCopy(U[c], V[c]));
  PetscCall(VecDestroyVecs(m, &U));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHRelaxModes(PC pc)
{
  PC_CMATCH     *cmatch = (PC_CMATCH *)pc->data;
  const PetscInt m      = cmatch->relaxed;
  MatNullSpace   given;
  Vec            D, r, z, *V;

  PetscFunctionBegin;
  PetscCall(MatNullSpaceDestroy(&cmatch->relaxed_space));
  PetscCall(MatGetNearNullSpace(pc->pmat, &given));
  if (!given) PetscCall(MatGetNearNullSpace(pc->mat, &given));
  if (m < 1 || given || cmatch->dimension) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatCreateVecs(pc->pmat, nullptr, &D));
  PetscCall(VecDuplicate(D, &r));
  PetscCall(VecDuplicate(D, &z));
  PetscCall(VecDuplicateVecs(D, m, &V));
  PetscCall(MakeScaling(pc, D));
  for (PetscInt c = 0; c < m; c++) {
    PetscCall(Start(D, c, V[c]));
    PetscCall(Relax(pc->pmat, D, r, z, V[c]));
  }
  PetscCall(Rotate(pc->pmat, m, V, r));
  PetscCall(MatNullSpaceCreate(PetscObjectComm((PetscObject)pc->pmat), PETSC_FALSE, m, V, &cmatch->relaxed_space));
  PetscCall(VecDestroyVecs(m, &V));
  PetscCall(VecDestroy(&z));
  PetscCall(VecDestroy(&r));
  PetscCall(VecDestroy(&D));
  PetscFunctionReturn(PETSC_SUCCESS);
}
