/* What PC_Local finds out about the diagonal of a matrix, when that has made a set-up fail. */
#include <petsc/private/pcimpl.h>

#include <cmath>

#include "entry.h"
#include "localimpl.h"

PetscErrorCode PCLocalCheckAssembled(PC pc, PCLocalOutcome *outcome)
{
  PetscBool assembled;

  PetscFunctionBegin;
  PetscCall(MatAssembled(pc->pmat, &assembled));
  if (assembled) PetscFunctionReturn(PETSC_SUCCESS);
  outcome->code = PETSC_ERR_ARG_WRONGSTATE;
  PetscCall(PetscStrncpy(outcome->text, "The matrix is not assembled: call MatAssemblyBegin() and MatAssemblyEnd()",
                         sizeof(outcome->text)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalCopyDiagonal(const CSRView *A, std::vector<PetscScalar> *d)
{
  const auto   diagonal = PetscMemTypeDevice(A->where) ? CSRDiagonal_CUDA : CSRDiagonal_Host;
  PetscScalar *entries  = nullptr;

  PetscFunctionBegin;
  d->resize(A->n);
  PetscCall(ArrayCreate(A->n * sizeof(*entries), A->where, (void **)&entries));
  PetscErrorCode code = diagonal(A, entries);
  if (!code) code = ArrayCopy(d->data(), entries, d->size() * sizeof(*entries), PETSC_MEMTYPE_HOST, A->where);
  PetscCall(ArrayDestroy(A->where, (void **)&entries));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a rank does alone. */
static PetscErrorCode ReadDiagonal(PC pc, std::vector<PetscScalar> *d)
{
  MatPoints points{};
  CSRMat    mat;

  PetscFunctionBegin;
  PetscCall(MatGetPoints(pc->pmat, PETSC_FALSE, &points, &mat));
  const PetscErrorCode code = CallGuarded(PCLocalCopyDiagonal, (const CSRView *)&mat.A, d), restored = MatRestoreCSR(&mat),
                       freed = CSRDestroy(&points.copy);
  PetscCall(code);
  PetscCall(restored);
  PetscCall(freed);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Finds the rank's rows without any entry that is not 0, in its own columns and in those of other ranks: a product with a vector of
   different positive entries is 0 there. In other rows it is 0 by accident with a probability of 2^-53 at most. All ranks together.
*/
static PetscErrorCode FindZeroRowsWith(Mat A, const std::vector<PetscScalar> &d, Vec *x, Vec *y, std::vector<LocalInt> *zero_rows)
{
  constexpr PetscReal golden = 0.6180339887498949;
  const PetscScalar  *y_array;
  PetscScalar        *x_array;
  PetscInt            begin;

  PetscFunctionBegin;
  zero_rows->reserve(d.size());
  PetscCall(MatCreateVecs(A, x, y));
  PetscCall(VecGetOwnershipRange(*x, &begin, nullptr));
  PetscCall(VecGetArrayWrite(*x, &x_array));
  for (size_t row = 0; row < d.size(); row++)
    x_array[row] = 1 + std::fmod(golden * (PetscReal)(begin + (PetscInt)row), 1) * std::fmod(PETSC_PI * (PetscReal)row, 1);
  PetscCall(VecRestoreArrayWrite(*x, &x_array));
  PetscCall(MatMult(A, *x, *y));
  PetscCall(VecGetArrayRead(*y, &y_array));
  for (size_t row = 0; row < d.size(); row++)
    if (d[row] == 0 && y_array[row] == 0) zero_rows->push_back((LocalInt)row);
  PetscCall(VecRestoreArrayRead(*y, &y_array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FindZeroRows(Mat A, const std::vector<PetscScalar> &d, std::vector<LocalInt> *zero_rows)
{
  Vec x = nullptr, y = nullptr;

  PetscFunctionBegin;
  const PetscErrorCode code = FindZeroRowsWith(A, d, &x, &y, zero_rows);
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&y));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalExamineDiagonal(PC pc, PCLocalOutcome *outcome)
{
  PC_Local *const          local = (PC_Local *)pc->data;
  PCLocalPhase             phase{PetscObjectComm((PetscObject)pc), outcome, false};
  PCLocalDiagonal          found;
  PetscInt                 begin;
  std::vector<PetscScalar> d;

  PetscFunctionBegin;
  PetscCall(PCLocalCheckAssembled(pc, outcome));
  bool any_zero = false;
  if (!outcome->code) {
    const PetscErrorCode code = CallGuarded(ReadDiagonal, pc, &d);
    if (code) outcome->code = code;
    for (PetscScalar entry : d) any_zero = any_zero || entry == 0;
  }
  PetscCall(PCLocalPhaseStep(&phase, PETSC_SUCCESS, &any_zero));
  if (phase.stopped) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetOwnershipRange(pc->pmat, &begin, nullptr));
  found.first[0] = found.first[1] = PETSC_INT_MAX;
  for (size_t row = d.size(); row-- > 0;) {
    if (d[row] == 0 || !std::isfinite(d[row])) continue;
    found.first[d[row] < 0] = begin + (PetscInt)row;
    found.largest           = PetscMax(found.largest, PetscAbsScalar(d[row]));
  }
  outcome->exchanging = true;
  if (any_zero) PetscCall(FindZeroRows(pc->pmat, d, &found.zero_rows));
  found.all_zero_rows = (PetscInt64)found.zero_rows.size();
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &found.all_zero_rows, 1, MPIU_INT64, MPI_SUM, phase.comm));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &found.largest, 1, MPIU_REAL, MPIU_MAX, phase.comm));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, found.first, 2, MPIU_INT, MPI_MIN, phase.comm));
  if (found.largest == 0) found.largest = 1;
  found.negative = found.first[1] != PETSC_INT_MAX && !found.Mixed();
  int changed    = found.negative != local->diagonal.negative || found.zero_rows != local->diagonal.zero_rows;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &changed, 1, MPI_INT, MPI_LOR, phase.comm));
  outcome->exchanging = false;
  found.changed       = changed != 0;
  local->diagonal     = std::move(found);
  PetscFunctionReturn(PETSC_SUCCESS);
}
