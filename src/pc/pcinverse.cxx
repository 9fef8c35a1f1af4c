/* Apply, view and reset of an explicit inverse in two factors. */
#include <petsc/private/petscimpl.h>

#include "pcinverse.h"

/* y = W2 D W1 x, in the memory of the factors */
static PetscErrorCode ApplyFactors(const PCInverse *M, PetscInt columns, const PetscScalar *x, PetscInt ldx, PetscScalar *y,
                                   PetscInt ldy)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(M->where)) {
    PetscCall(PetscLogGpuTimeBegin());
    PetscCall(CSRMultiply_CUDA(&M->W1, M->unit, M->d, columns, x, ldx, M->work, M->rows));
    PetscCall(CSRMultiply_CUDA(&M->W2, M->unit, nullptr, columns, M->work, M->rows, y, ldy));
    PetscCall(PetscLogGpuTimeEnd());
    PetscCall(PetscLogGpuFlops(columns * (2.0 * M->W1.nnz + 2.0 * M->W2.nnz + M->rows)));
  } else {
    PetscCall(CSRMultiply_Host(&M->W1, M->unit, M->d, columns, x, ldx, M->work, M->rows));
    PetscCall(CSRMultiply_Host(&M->W2, M->unit, nullptr, columns, M->work, M->rows, y, ldy));
    PetscCall(PetscLogFlops(columns * (2.0 * M->W1.nnz + 2.0 * M->W2.nnz + M->rows)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Room between the two products for so many right-hand sides. */
PetscErrorCode PCInverseNeedWork(PCInverse *M, PetscInt columns)
{
  PetscFunctionBegin;
  if (M->work_columns >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayDestroy(M->where, (void **)&M->work));
  PetscCall(ArrayCreate(columns * M->rows * sizeof(PetscScalar), M->where, (void **)&M->work));
  M->work_columns = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseApply(PCInverse *M, Vec x, Vec y)
{
  const PetscScalar *x_array;
  PetscScalar       *y_array;
  PetscMemType       x_where, y_where;
  const size_t       bytes = M->rows * sizeof(PetscScalar);

  PetscFunctionBegin;
  PetscCall(PCInverseNeedWork(M, 1));
  if (!PetscMemTypeDevice(M->where)) {
    PetscCall(VecGetArrayRead(x, &x_array));
    PetscCall(VecGetArrayWrite(y, &y_array));
    PetscCall(ApplyFactors(M, 1, x_array, M->rows, y_array, M->rows));
    PetscCall(VecRestoreArrayWrite(y, &y_array));
    PetscCall(VecRestoreArrayRead(x, &x_array));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecGetArrayReadAndMemType(x, &x_array, &x_where));
  PetscCall(VecGetArrayWriteAndMemType(y, &y_array, &y_where));
  const PetscScalar *x_device = x_array;
  PetscScalar       *y_device = y_array;
  if (!PetscMemTypeDevice(x_where) || !PetscMemTypeDevice(y_where)) {
    if (!M->staging) PetscCall(ArrayCreate(2 * bytes, M->where, (void **)&M->staging));
    if (!PetscMemTypeDevice(x_where)) {
      PetscCall(ArrayCopy(M->staging, x_array, bytes, M->where, x_where));
      x_device = M->staging;
    }
    if (!PetscMemTypeDevice(y_where)) y_device = M->staging + M->rows;
  }
  PetscCall(ApplyFactors(M, 1, x_device, M->rows, y_device, M->rows));
  if (y_device != y_array) PetscCall(ArrayCopy(y_array, y_device, bytes, y_where, M->where));
  PetscCall(VecRestoreArrayWriteAndMemType(y, &y_array));
  PetscCall(VecRestoreArrayReadAndMemType(x, &x_array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseMatApply(PCInverse *M, Mat X, Mat Y)
{
  const PetscScalar *x;
  PetscScalar       *y;
  PetscMemType       x_where = PETSC_MEMTYPE_HOST, y_where = PETSC_MEMTYPE_HOST;
  PetscInt           columns, ldx, ldy;
  const PetscBool    device = PetscMemTypeDevice(M->where) ? PETSC_TRUE : PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(MatGetSize(X, nullptr, &columns));
  PetscCall(PCInverseNeedWork(M, PetscMin(columns, kInverseColumns)));
  PetscCall(MatDenseGetLDA(X, &ldx));
  PetscCall(MatDenseGetLDA(Y, &ldy));
  if (device) {
    PetscCall(MatDenseGetArrayReadAndMemType(X, &x, &x_where));
    PetscCall(MatDenseGetArrayWriteAndMemType(Y, &y, &y_where));
  } else {
    PetscCall(MatDenseGetArrayRead(X, &x));
    PetscCall(MatDenseGetArrayWrite(Y, &y));
  }
  if (device && (!PetscMemTypeDevice(x_where) || !PetscMemTypeDevice(y_where))) {
    const size_t bytes = M->rows * sizeof(PetscScalar);
    if (!M->staging) PetscCall(ArrayCreate(2 * bytes, M->where, (void **)&M->staging));
    for (PetscInt c = 0; c < columns; c++) {
      PetscScalar *const y_staged = M->staging + M->rows;
      PetscCall(ArrayCopy(M->staging, x + (size_t)c * ldx, bytes, M->where, x_where));
      PetscCall(ApplyFactors(M, 1, M->staging, M->rows, y_staged, M->rows));
      PetscCall(ArrayCopy(y + (size_t)c * ldy, y_staged, bytes, y_where, M->where));
    }
  } else {
    for (PetscInt c = 0; c < columns; c += kInverseColumns) {
      const PetscInt some = PetscMin(kInverseColumns, columns - c);
      PetscCall(ApplyFactors(M, some, x + (size_t)c * ldx, ldx, y + (size_t)c * ldy, ldy));
    }
  }
  if (device) {
    PetscCall(MatDenseRestoreArrayWriteAndMemType(Y, &y));
    PetscCall(MatDenseRestoreArrayReadAndMemType(X, &x));
  } else {
    PetscCall(MatDenseRestoreArrayWrite(Y, &y));
    PetscCall(MatDenseRestoreArrayRead(X, &x));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseReset(PCInverse *M)
{
  PetscFunctionBegin;
  PetscCall(CSRDestroy(&M->W1));
  PetscCall(CSRDestroy(&M->W2));
  PetscCall(ArrayDestroy(M->where, (void **)&M->d));
  PetscCall(ArrayDestroy(M->where, (void **)&M->work));
  PetscCall(ArrayDestroy(M->where, (void **)&M->staging));
  *M = PCInverse{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Entries of W, with its diagonal. */
static PetscInt FactorEntries(const PCInverse *M, const CSR *W)
{
  return W->nnz + (M->unit ? M->rows : 0);
}

PetscErrorCode PCInverseView(const PCInverse *M, MPI_Comm comm, PetscViewer viewer)
{
  PetscInt64     local[3] = {FactorEntries(M, &M->W1), M->operator_nnz, M->rows}, sum[3];
  PetscLogDouble bytes    = (PetscLogDouble)(CSRBytes(&M->W1) + CSRBytes(&M->W2) + M->rows * sizeof(PetscScalar)), all_bytes;

  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(local, sum, 3, MPIU_INT64, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(&bytes, &all_bytes, 1, MPI_DOUBLE, MPI_SUM, comm));
  PetscCall(PetscViewerASCIIPrintf(viewer, "backend %s, factor stored in %s precision\n",
                                   PetscMemTypeDevice(M->where) ? "CUDA" : "host", FinePCPrecisions[M->W1.precision]));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "G: %" PetscInt64_FMT " rows, %" PetscInt64_FMT
                                   " nonzeros, density nnz(G)/nnz(A) %g, %g bytes with its transpose\n",
                                   sum[2], sum[0], sum[1] ? (double)sum[0] / (double)sum[1] : 0., all_bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetInverse(PC pc, const PCInverse **M)
{
  PetscErrorCode (*query)(PC, const PCInverse **);

  PetscFunctionBegin;
  *M = nullptr;
  PetscCall(PetscObjectQueryFunction((PetscObject)pc, kInverseQuery, &query));
  if (query) PetscCall((*query)(pc, M));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCFinePCGetApplyBytes - Bytes that one `PCApply()` must move on this rank: each factor and vector entry once

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. bytes - both factors and their scaling, x read, the vector between them written and read, y written; 0 before `PCSetUp()`
          and for types of other packages

  Level: advanced

.seealso: `PCAFSAI`, `PCBISAI`, `PCFinePCGetDensity()`
@*/
PetscErrorCode PCFinePCGetApplyBytes(PC pc, PetscLogDouble *bytes)
{
  const PCInverse *M;
  PetscErrorCode (*query)(PC, PetscLogDouble *);

  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(bytes, 2);
  PetscCall(PetscObjectQueryFunction((PetscObject)pc, kApplyBytesQuery, &query));
  if (query) {
    PetscCall((*query)(pc, bytes));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GetInverse(pc, &M));
  *bytes = M && M->rows ? (PetscLogDouble)(CSRBytes(&M->W1) + CSRBytes(&M->W2) + 5 * M->rows * sizeof(PetscScalar)) : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCFinePCGetDensity - Nonzeros of a factored inverse's factor relative to those of its matrix on this rank, nnz(G)/nnz(A)

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. density - nnz(G)/nnz(A), the diagonal of G counted; 0 before `PCSetUp()` and for types of other packages

  Level: advanced

.seealso: `PCAFSAI`, `PCFinePCGetApplyBytes()`
@*/
PetscErrorCode PCFinePCGetDensity(PC pc, PetscReal *density)
{
  const PCInverse *M;

  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(density, 2);
  PetscCall(GetInverse(pc, &M));
  *density = M && M->operator_nnz ? (PetscReal)FactorEntries(M, &M->W1) / (PetscReal)M->operator_nnz : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
