/* The pattern that a user gives for the factor of an FSAI, in the memory and with the columns that the twins take. */
#include <petsc/private/pcimpl.h>

#include <algorithm>

#include "entry.h"
#include "fsai_face.h"

PetscErrorCode PCFSAISetPattern(PC pc, Mat pattern)
{
  PC_FSAI *fsai = (PC_FSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PetscObjectReference((PetscObject)pattern));
  PetscCall(MatDestroy(&fsai->pattern));
  fsai->pattern   = pattern;
  fsai->alone     = pattern;
  pc->setupcalled = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIGetPattern(PC pc, Mat *pattern)
{
  PetscFunctionBegin;
  *pattern = ((PC_FSAI *)pc->data)->pattern;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix that PCFSAIGetGivenPattern() is going to refuse has no pattern that stays. */
static PetscErrorCode FollowGiven(Mat pattern, MatPattern *given, PetscBool *stays)
{
  PetscInt  rows, columns;
  PetscBool assembled;

  PetscFunctionBegin;
  *stays = PETSC_FALSE;
  PetscCall(MatAssembled(pattern, &assembled));
  PetscCall(MatGetLocalSize(pattern, &rows, &columns));
  if (assembled && rows == columns) PetscCall(MatFollowPattern(pattern, given, stays));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIFollowGiven(PC pc, PCLocalPhase *phase)
{
  PC_FSAI       *fsai  = (PC_FSAI *)pc->data;
  PetscBool      stays = PETSC_FALSE;
  PetscErrorCode code  = PETSC_SUCCESS;

  PetscFunctionBegin;
  fsai->given_stays = !fsai->pattern;
  if (!fsai->pattern) PetscFunctionReturn(PETSC_SUCCESS);
  if (!phase->outcome->code) code = CallGuarded(FollowGiven, fsai->pattern, &fsai->given, &stays);
  PetscCall(PCLocalPhaseStep(phase, code, nullptr));
  fsai->given_stays = stays;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The entries of the pattern in columns of lower-numbered ranks, where none of their rows was gathered. */
static PetscErrorCode CountLeftOut(Mat pattern, PetscInt64 *left_out)
{
  PetscMPIInt size;
  PetscInt    begin;
  HostPattern P;

  PetscFunctionBegin;
  *left_out = 0;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pattern), &size));
  if (size == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetOwnershipRange(pattern, &begin, nullptr));
  PetscCall(MatGetHostPattern(pattern, &P));
  for (PetscInt k = 0; k < P.other_i[P.n]; k++) *left_out += P.columns[P.other_j[k]] < begin;
  PetscCall(MatRestoreHostPattern(&P));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The pattern's rows with those columns of other ranks that were gathered, in the columns of A; the other ones are counted. */
static PetscErrorCode JoinPattern(PC_FSAI *fsai, const CSRView *A, FSAIGivenPattern *given)
{
  const std::vector<PetscInt> &rows  = fsai->halo.rows;
  const LocalInt               first = PCFSAIFirst(fsai);
  std::vector<LocalInt>        i(1, 0), j;
  LocalInt                     nnz;
  HostPattern                  P;

  PetscFunctionBegin;
  PetscCall(MatGetHostPattern(fsai->pattern, &P));
  fsai->left_out = 0;
  for (PetscInt row = 0; row < P.n; row++) {
    for (PetscInt k = P.other_i[row]; k < P.other_i[row + 1]; k++) {
      const PetscInt column = P.columns[P.other_j[k]];
      const auto     found  = std::lower_bound(rows.begin(), rows.end(), column);
      if (found != rows.end() && *found == column) j.push_back((LocalInt)(found - rows.begin()));
      else if (column < fsai->halo.begin) fsai->left_out++;
    }
    for (PetscInt k = P.own_i[row]; k < P.own_i[row + 1]; k++) j.push_back(first + (LocalInt)P.own_j[k]);
    PetscCall(LocalIntCast((PetscInt64)j.size(), "nonzeros of the pattern", &nnz));
    i.push_back(nnz);
  }
  PetscCall(MatRestoreHostPattern(&P));
  PetscCall(ArrayCreate((i.size() + j.size()) * sizeof(LocalInt), A->where, (void **)&given->copy));
  PetscCall(ArrayCopy(given->copy, i.data(), i.size() * sizeof(LocalInt), A->where, PETSC_MEMTYPE_HOST));
  PetscCall(ArrayCopy(given->copy + i.size(), j.data(), j.size() * sizeof(LocalInt), A->where, PETSC_MEMTYPE_HOST));
  given->S = CSRView{A->n - first, (LocalInt)j.size(), given->copy, given->copy + i.size(), nullptr, A->where};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIGetGivenPattern(PC pc, const CSRView *A, const char setter[], FSAIGivenPattern *given)
{
  PC_FSAI       *fsai    = (PC_FSAI *)pc->data;
  const Mat      pattern = fsai->pattern;
  const CSRView *P       = &given->mat.A;

  PetscFunctionBegin;
  PetscCall(HaloCheckPattern(pattern, A->n - PCFSAIFirst(fsai), setter));
  if (PCFSAIFirst(fsai)) {
    PetscCall(JoinPattern(fsai, A, given));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(MatGetCSR(pattern, &given->mat));
  PetscCall(CountLeftOut(pattern, &fsai->left_out));
  given->S   = *P;
  given->S.a = nullptr;
  if (P->where == A->where) PetscFunctionReturn(PETSC_SUCCESS);
  const size_t i_bytes = (P->n + 1) * sizeof(*P->i), j_bytes = P->nnz * sizeof(*P->j);

  PetscCall(ArrayCreate(i_bytes + j_bytes, A->where, (void **)&given->copy));
  PetscCall(ArrayCopy(given->copy, P->i, i_bytes, A->where, P->where));
  PetscCall(ArrayCopy(given->copy + P->n + 1, P->j, j_bytes, A->where, P->where));
  given->S.i     = given->copy;
  given->S.j     = given->copy + P->n + 1;
  given->S.where = A->where;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIRestoreGivenPattern(FSAIGivenPattern *given)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(given->S.where, (void **)&given->copy));
  PetscCall(MatRestoreCSR(&given->mat));
  PetscFunctionReturn(PETSC_SUCCESS);
}
