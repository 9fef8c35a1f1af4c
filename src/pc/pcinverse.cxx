/* An explicit inverse in two factors is applied, viewed and reset here. */
#include <petsc/private/petscimpl.h>

#include "pcinverse.h"

PetscErrorCode PCInverseNeedWork(PCInverse *M, PetscInt columns)
{
  PetscFunctionBegin;
  if (M->work_columns >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayDestroy(M->where, (void **)&M->work));
  PetscCall(ArrayCreate(columns * M->rows * sizeof(PetscScalar), M->where, (void **)&M->work));
  M->work_columns = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseApply(PCInverse *M, PetscInt columns, const PetscScalar *X, PetscInt ldx, PetscScalar *Y, PetscInt ldy,
                              PetscLogDouble *flops)
{
  const auto multiply = PetscMemTypeDevice(M->where) ? CSRMultiply_CUDA : CSRMultiply_Host;

  PetscFunctionBegin;
  PetscCall(PCInverseNeedWork(M, columns));
  PetscCall(multiply(&M->W1, PETSC_TRUE, M->d, columns, X, ldx, M->work, M->rows));
  PetscCall(multiply(&M->W2, PETSC_TRUE, nullptr, columns, M->work, M->rows, Y, ldy));
  *flops = columns * (2.0 * M->W1.nnz + 2.0 * M->W2.nnz + M->rows);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseReset(PCInverse *M)
{
  PetscFunctionBegin;
  PetscCall(CSRDestroy(&M->W1));
  PetscCall(CSRDestroy(&M->W2));
  PetscCall(ArrayDestroy(M->where, (void **)&M->d));
  PetscCall(ArrayDestroy(M->where, (void **)&M->work));
  *M = PCInverse{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of entries of W with its unit diagonal, which is not stored. */
static PetscInt FactorEntries(const PCInverse *M, const CSR *W)
{
  return W->nnz + M->rows;
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
  PCFinePCGetApplyBytes - Gets the bytes that one `PCApply()` must move on this rank: each factor and vector entry once

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. bytes - the bytes of both factors and their scaling, of x, which is read, of the vector between the factors, which is written and
          read, and of y, which is written; 0 before `PCSetUp()` and for types of other packages

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
  *bytes = M && M->rows ? (PetscLogDouble)(CSRBytes(&M->W1) + CSRBytes(&M->W2) +
                                           (M->carry_bytes ? 7 : 5) * M->rows * sizeof(PetscScalar) + M->carry_bytes)
                        : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCFinePCGetDensity - Gets the nonzeros of a factored inverse's factor relative to those of its matrix on this rank, nnz(G)/nnz(A)

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. density - nnz(G)/nnz(A), where the diagonal of G counts; 0 before `PCSetUp()` and for types of other packages

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
