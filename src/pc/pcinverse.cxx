/* An explicit inverse in two factors is applied, viewed and reset here. */
#include <petsc/private/petscimpl.h>

#include "ranks/agree.h"
#include "pcinverse.h"

PetscErrorCode PCInverseNeedWork(PCInverse *M, LocalInt columns)
{
  PetscFunctionBegin;
  if (M->work_columns >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  M->work_columns = 0; /* until all ranks have it */
  PetscCall(ArrayDestroy(M->where, (void **)&M->work));
  const PetscErrorCode code = ArrayCreate((size_t)columns * M->rows * sizeof(PetscScalar), M->where, (void **)&M->work);
  if (M->ghosts1.exchange.sf) {
    const MPI_Comm comm = PetscObjectComm((PetscObject)M->ghosts1.exchange.sf);
    PetscCall(AgreeOnError(comm, code, "make room for several vectors"));
    for (PCInverseGhosts *ghosts : {&M->ghosts1, &M->ghosts2}) PetscCall(ExchangeNeedColumns(&ghosts->exchange, columns));
  }
  PetscCall(code);
  M->work_columns = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseSetColumns(PCInverse *M, PCInverseGhosts *ghosts, LocalInt count, const PetscInt columns[])
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1(count, &ghosts->columns));
  PetscCall(PetscArraycpy(ghosts->columns, columns, count));
  PetscCall(ExchangeCreate(M->where, count, &ghosts->exchange));
  ghosts->exchange.fence = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseConnect(PCInverseGhosts *ghosts, MPI_Comm comm, PetscLayout layout)
{
  PetscFunctionBegin;
  PetscCall(ExchangeFromColumns(comm, layout, ghosts->columns, &ghosts->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DestroyGhosts(PCInverseGhosts *ghosts, PetscMemType where)
{
  PetscFunctionBegin;
  PetscCall(CSRDestroy(&ghosts->W));
  PetscCall(ExchangeDestroy(&ghosts->exchange));
  PetscCall(PetscFree(ghosts->columns));
  PetscCall(ArrayDestroy(where, (void **)&ghosts->rows));
  *ghosts = PCInverseGhosts{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t PCInverseGhostBytes(const PCInverseGhosts *ghosts)
{
  return (2 * (size_t)ghosts->touched + ghosts->W.nnz) * sizeof(LocalInt) + (size_t)ghosts->exchange.count * sizeof(PetscInt) +
         ghosts->W.nnz * FinePCPrecisionBytes(ghosts->W.precision);
}

/* Ends the exchange that began with X, and adds D W times what it has brought to Y. */
static PetscErrorCode AddGhosts(const PCInverseGhosts *ghosts, const PetscScalar *d, LocalInt columns, const PetscScalar *X,
                                PetscScalar *Y, LocalInt ldy)
{
  const auto add = PetscMemTypeDevice(ghosts->exchange.where) ? CSRMultiplyAdd_CUDA : CSRMultiplyAdd_Host;

  PetscFunctionBegin;
  PetscCall(ExchangeColumnsEnd(&ghosts->exchange, columns, X));
  if (ghosts->touched) PetscCall(add(&ghosts->W, ghosts->touched, ghosts->rows, d, columns, ghosts->exchange.ghosts, Y, ldy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseApply(PCInverse *M, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y, LocalInt ldy,
                              PetscLogDouble *flops)
{
  const auto multiply = PetscMemTypeDevice(M->where) ? CSRMultiply_CUDA : CSRMultiply_Host;

  PetscFunctionBegin;
  PetscAssert(M->work_columns >= columns, PETSC_COMM_SELF, PETSC_ERR_PLIB, "The work space was not reserved");
  PetscCall(ExchangeColumnsBegin(&M->ghosts1.exchange, columns, X, ldx));
  PetscCall(multiply(&M->W1, PETSC_TRUE, M->d, columns, X, ldx, M->work, M->rows));
  PetscCall(AddGhosts(&M->ghosts1, M->d, columns, X, M->work, M->rows));
  PetscCall(ExchangeColumnsBegin(&M->ghosts2.exchange, columns, M->work, M->rows));
  PetscCall(multiply(&M->W2, PETSC_TRUE, nullptr, columns, M->work, M->rows, Y, ldy));
  PetscCall(AddGhosts(&M->ghosts2, nullptr, columns, M->work, Y, ldy));
  *flops = columns * (2.0 * M->W1.nnz + 2.0 * M->W2.nnz + 2.0 * M->ghosts1.W.nnz + 2.0 * M->ghosts2.W.nnz + M->rows);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCInverseReset(PCInverse *M)
{
  PetscFunctionBegin;
  PetscCall(CSRDestroy(&M->W1));
  PetscCall(CSRDestroy(&M->W2));
  PetscCall(DestroyGhosts(&M->ghosts1, M->where));
  PetscCall(DestroyGhosts(&M->ghosts2, M->where));
  PetscCall(ArrayDestroy(M->where, (void **)&M->d));
  PetscCall(ArrayDestroy(M->where, (void **)&M->work));
  *M = PCInverse{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The number of entries of W1 with its unit diagonal, which is not stored. */
static PetscInt64 FactorEntries(const PCInverse *M)
{
  return (PetscInt64)M->W1.nnz + M->ghosts1.W.nnz + M->rows;
}

/* Bytes of both factors and of D. */
static PetscLogDouble FactorBytes(const PCInverse *M)
{
  return (PetscLogDouble)(CSRBytes(&M->W1) + CSRBytes(&M->W2) + PCInverseGhostBytes(&M->ghosts1) +
                          PCInverseGhostBytes(&M->ghosts2) + M->rows * sizeof(PetscScalar));
}

PetscErrorCode PCInverseView(const PCInverse *M, MPI_Comm comm, PetscViewer viewer)
{
  PetscInt64     local[3] = {FactorEntries(M), M->operator_nnz, M->rows}, sum[3];
  PetscLogDouble bytes    = FactorBytes(M), all_bytes;

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

static PetscErrorCode GetInverse_PCInverse(PC pc, PCInverse **M)
{
  PetscErrorCode (*query)(PC, PCInverse **);

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
  PCInverse *M;
  PetscErrorCode (*query)(PC, PetscLogDouble *);

  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(bytes, 2);
  PetscCall(PetscObjectQueryFunction((PetscObject)pc, kApplyBytesQuery, &query));
  if (query) {
    PetscCall((*query)(pc, bytes));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GetInverse_PCInverse(pc, &M));
  *bytes = M && M->rows ? FactorBytes(M) + (PetscLogDouble)((size_t)(M->carry_bytes ? 6 : 4) * M->rows * sizeof(PetscScalar) +
                                                            2 * ((size_t)M->ghosts1.exchange.count + M->ghosts2.exchange.count) *
                                                              sizeof(PetscScalar) +
                                                            M->carry_bytes)
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
  PCInverse *M;

  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(density, 2);
  PetscCall(GetInverse_PCInverse(pc, &M));
  *density = M && M->operator_nnz ? (PetscReal)FactorEntries(M) / (PetscReal)M->operator_nnz : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
