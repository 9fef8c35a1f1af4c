/* The application that all preconditioners of a rank's own diagonal block share. */
#include <petsc/private/pcimpl.h>

#include <limits>

#include "ranks/agree.h"
#include "entry.h"
#include "finepcimpl.h"
#include "local.h"
#include "pcinverse.h"

/* Columns of a vector or of a dense matrix, each `ld` entries after the one before. */
template <typename Scalar>
struct Columns {
  Scalar      *array;
  LocalInt     ld;
  PetscMemType where;

  Columns(Scalar *array, LocalInt ld, PetscMemType where) : array(array), ld(ld), where(where) { }
  template <typename Other>
  Columns(const Columns<Other> &other) : array(other.array), ld(other.ld), where(other.where)
  {
  }
  Columns From(LocalInt first) const { return {array + (size_t)first * ld, ld, where}; }
  bool    OnDevice() const { return PetscMemTypeDevice(where); }
};
using Input  = Columns<const PetscScalar>;
using Output = Columns<PetscScalar>;

/* Y = X + W X, or Y = X + W^T X with transpose, in the memory of the factor. */
static PetscErrorCode Carry_Local(const PC_Local *local, PetscBool transpose, LocalInt columns, Input X, Output Y)
{
  const auto multiply = PetscMemTypeDevice(local->where) ? CSRMultiply_CUDA : CSRMultiply_Host;

  PetscFunctionBegin;
  PetscCall(multiply(transpose ? &local->carry.Wt : &local->carry.W, PETSC_TRUE, nullptr, columns, X.array, X.ld, Y.array, Y.ld));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* M^{-1} X in the memory of the factor: the factor, after W or before its transpose if there are couplings to carry over. */
static PetscErrorCode ApplyCarried(PC pc, PetscBool transpose, LocalInt columns, Input x, Output y, PetscLogDouble *flops)
{
  PC_Local    *local = (PC_Local *)pc->data;
  const Output between{local->carry.between, local->rows, local->where};

  PetscFunctionBegin;
  if (!local->carry.W.nnz) PetscCall(local->apply(pc, transpose, columns, x.array, x.ld, y.array, y.ld, flops));
  else if (transpose) {
    PetscCall(local->apply(pc, transpose, columns, x.array, x.ld, between.array, between.ld, flops));
    PetscCall(Carry_Local(local, transpose, columns, between, y));
  } else {
    PetscCall(Carry_Local(local, transpose, columns, x, between));
    PetscCall(local->apply(pc, transpose, columns, between.array, between.ld, y.array, y.ld, flops));
  }
  *flops += 2. * columns * (PetscLogDouble)local->carry.W.nnz;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Applies the factor to arrays in the memory of the factor, and logs the time and the operations. */
static PetscErrorCode ApplyFactor_Local(PC pc, PetscBool transpose, LocalInt columns, Input x, Output y)
{
  const bool     on_device = PetscMemTypeDevice(((PC_Local *)pc->data)->where);
  PetscLogDouble flops     = 0;

  PetscFunctionBegin;
  if (on_device) PetscCall(PetscLogGpuTimeBegin());
  PetscCall(ApplyCarried(pc, transpose, columns, x, y, &flops));
  if (on_device) PetscCall(PetscLogGpuTimeEnd());
  PetscCall(on_device ? PetscLogGpuFlops(flops) : PetscLogFlops(flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a rank does alone. */
static PetscErrorCode MakeStaging_Local(PC_Local *local, LocalInt columns)
{
  PetscFunctionBegin;
  if (local->staging.columns >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  local->staging.columns = 0;
  PetscCall(ArrayDestroy(local->where, (void **)&local->staging.array));
  PetscCall(ArrayCreate(2 * (size_t)columns * local->rows * sizeof(PetscScalar), local->where, (void **)&local->staging.array));
  local->staging.columns = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Makes room for so many columns. Memory may end on one rank alone, for which the others would wait in the exchanges of a factor
   that reaches other ranks, or in the next sum of the solver: the ranks agree once after each set-up.
*/
static PetscErrorCode NeedStaging(PC pc, LocalInt columns)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  if (local->staging.on_all >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), MakeStaging_Local(local, columns),
                         "make room on its GPU for vectors that are on the host"));
  local->staging.on_all = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Has the type make what it needs for so many columns. Memory may end on one rank alone here, too: the ranks agree once after each
   set-up, and once more for the transpose.
*/
static PetscErrorCode Reserve_Local(PC pc, PetscBool transpose, LocalInt columns)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  columns = PetscMin(columns, local->columns_at_once);
  if (!local->reserve || local->reserved[transpose] >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), CallGuarded(local->reserve, pc, transpose, columns),
                         "make room for what an application needs"));
  local->reserved[transpose] = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies columns between host and GPU, and logs the time and the bytes. */
static PetscErrorCode SendColumns_Local(PC pc, LocalInt columns, Input from, Output to)
{
  const size_t bytes = ((const PC_Local *)pc->data)->rows * sizeof(PetscScalar);

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(FinePC_SendVec, pc, 0, 0, 0));
  for (LocalInt c = 0; c < columns; c++) PetscCall(ArrayCopy(to.From(c).array, from.From(c).array, bytes, to.where, from.where));
  PetscCall(to.OnDevice() ? PetscLogCpuToGpu(columns * (PetscLogDouble)bytes) : PetscLogGpuToCpu(columns * (PetscLogDouble)bytes));
  PetscCall(PetscLogEventEnd(FinePC_SendVec, pc, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Applies a factor on the device to at most columns_at_once columns when one or both arrays are on the host, by way of copies. */
static PetscErrorCode ApplyStaged(PC pc, PetscBool transpose, LocalInt columns, Input x, Output y)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  PetscCall(NeedStaging(pc, columns));
  const Output x_staged{local->staging.array, local->rows, local->where}, y_staged = x_staged.From(columns);
  if (!x.OnDevice()) PetscCall(SendColumns_Local(pc, columns, x, x_staged));
  PetscCall(ApplyFactor_Local(pc, transpose, columns, x.OnDevice() ? x : Input(x_staged), y.OnDevice() ? y : y_staged));
  if (!y.OnDevice()) PetscCall(SendColumns_Local(pc, columns, y_staged, y));
  else PetscCall(DeviceSynchronize_CUDA()); /* A copy of pinned memory may be under way, and the program may change x now. */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Applies the factor to so many columns, of arrays in memory of either kind. All ranks take as many columns at a time. */
static PetscErrorCode ApplyToColumns(PC pc, PetscBool transpose, LocalInt columns, Input x, Output y)
{
  const PC_Local *local = (const PC_Local *)pc->data;
  const auto      apply = PetscMemTypeDevice(local->where) && !(x.OnDevice() && y.OnDevice()) ? ApplyStaged : ApplyFactor_Local;

  PetscFunctionBegin;
  for (LocalInt c = 0; c < columns; c += local->columns_at_once)
    PetscCall(apply(pc, transpose, PetscMin(local->columns_at_once, columns - c), x.From(c), y.From(c)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A factor may be kept while the matrix of a solver changes, and PCApplyTranspose() does not look at sizes. */
static PetscErrorCode CheckRows_Local(PC pc, PetscInt x_rows, PetscInt y_rows)
{
  const PC_Local *local = (const PC_Local *)pc->data;
  const PetscInt  rows  = local->consolidated.group ? local->consolidated.group->n : local->rows;

  PetscFunctionBegin;
  PetscCheck(pc->failedreason || (x_rows == rows && y_rows == rows), PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The preconditioner was set up for %" PetscInt_FMT " rows on this rank, but is applied to %" PetscInt_FMT
             ", with %" PetscInt_FMT " for the result",
             rows, x_rows, y_rows);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Apply_Local(PC pc, PetscBool transpose, Vec x, Vec y)
{
  PC_Local          *local = (PC_Local *)pc->data;
  const PetscScalar *x_array;
  PetscScalar       *y_array;
  PetscMemType       x_where, y_where;
  PetscInt           x_rows, y_rows;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(x, &x_rows));
  PetscCall(VecGetLocalSize(y, &y_rows));
  PetscCall(CheckRows_Local(pc, x_rows, y_rows));
  const bool here = !pc->failedreason && !local->consolidated.group;
  if (here) PetscCall(Reserve_Local(pc, transpose, 1));
  if (pc->failedreason) { /* there is no factor; KSPSolve() looks for the reason when it meets infinity */
    PetscCall(VecSet(y, std::numeric_limits<PetscReal>::infinity()));
  } else if (!here) PetscCall(PCApply_Consolidated(pc, &local->consolidated, transpose, x, y));
  else if (PetscMemTypeDevice(local->where)) {
    PetscCall(VecGetArrayReadAndMemType(x, &x_array, &x_where));
    PetscCall(VecGetArrayWriteAndMemType(y, &y_array, &y_where));
    PetscCall(ApplyToColumns(pc, transpose, 1, {x_array, local->rows, x_where}, {y_array, local->rows, y_where}));
    PetscCall(VecRestoreArrayWriteAndMemType(y, &y_array));
    PetscCall(VecRestoreArrayReadAndMemType(x, &x_array));
  } else {
    PetscCall(VecGetArrayRead(x, &x_array));
    PetscCall(VecGetArrayWrite(y, &y_array));
    PetscCall(ApplyFactor_Local(pc, transpose, 1, {x_array, local->rows, local->where}, {y_array, local->rows, local->where}));
    PetscCall(VecRestoreArrayWrite(y, &y_array));
    PetscCall(VecRestoreArrayRead(x, &x_array));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

bool PCIsLocal(PC pc)
{
  return pc->ops->applytranspose == Entry<PCApplyTranspose_Local>;
}

/* Whether an application needs other ranks, as far as it may: of the types that can reach them, those with two factors tell. */
static PetscErrorCode ReachesOthers(PC pc, PetscBool *reaches)
{
  PetscMPIInt size;
  PCInverse  *inverse;
  PetscErrorCode (*query)(PC, PCInverse **);

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  *reaches = (PetscBool)(size > 1 && ((const PC_Local *)pc->data)->gather);
  if (!*reaches) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectQueryFunction((PetscObject)pc, kInverseQuery, &query));
  if (!query) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((*query)(pc, &inverse));
  *reaches = (PetscBool)(inverse->ghosts1.exchange.sf || inverse->ghosts2.exchange.sf);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalIsOnDevice(PC pc, PetscBool *device)
{
  const PC_Local *local = (const PC_Local *)pc->data;
  PetscBool       reaches;

  PetscFunctionBegin;
  *device = PETSC_FALSE;
  if (!PCIsLocal(pc) || pc->failedreason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ReachesOthers(pc, &reaches));
  *device = (PetscBool)(!reaches && local->rows && PetscMemTypeDevice(local->where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalApplyOnDevice(PC pc, const PetscScalar *x, PetscScalar *y)
{
  const PC_Local *local = (const PC_Local *)pc->data;
  PetscLogDouble  flops;

  PetscFunctionBegin;
  PetscCall(ApplyCarried(pc, PETSC_FALSE, 1, {x, local->rows, local->where}, {y, local->rows, local->where}, &flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCApply_Local(PC pc, Vec x, Vec y)
{
  PetscFunctionBegin;
  PetscCall(Apply_Local(pc, PETSC_FALSE, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCApplyTranspose_Local(PC pc, Vec x, Vec y)
{
  PetscFunctionBegin;
  PetscCall(Apply_Local(pc, PETSC_TRUE, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ApplyToEachColumn(PC pc, Mat X, Mat Y, PetscInt columns)
{
  PetscFunctionBegin;
  for (PetscInt c = 0; c < columns; c++) {
    Vec x, y;

    PetscCall(MatDenseGetColumnVecRead(X, c, &x));
    PetscCall(MatDenseGetColumnVecWrite(Y, c, &y));
    PetscCall(Apply_Local(pc, PETSC_FALSE, x, y));
    PetscCall(MatDenseRestoreColumnVecWrite(Y, c, &y));
    PetscCall(MatDenseRestoreColumnVecRead(X, c, &x));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FillWithInfinity(Mat Y, PetscInt columns)
{
  PetscFunctionBegin;
  for (PetscInt c = 0; c < columns; c++) {
    Vec y;

    PetscCall(MatDenseGetColumnVecWrite(Y, c, &y));
    PetscCall(VecSet(y, std::numeric_limits<PetscReal>::infinity()));
    PetscCall(MatDenseRestoreColumnVecWrite(Y, c, &y));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCMatApply_Local(PC pc, Mat X, Mat Y)
{
  const PC_Local    *local = (const PC_Local *)pc->data;
  const PetscScalar *x;
  PetscScalar       *y;
  PetscMemType       x_where, y_where;
  PetscInt           all, x_ld, y_ld, x_rows, y_rows;
  LocalInt           columns, ldx, ldy;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(X, &x_rows, nullptr));
  PetscCall(MatGetLocalSize(Y, &y_rows, nullptr));
  PetscCall(CheckRows_Local(pc, x_rows, y_rows));
  PetscCall(MatGetSize(X, nullptr, &all));
  PetscCall(MatDenseGetLDA(X, &x_ld));
  PetscCall(MatDenseGetLDA(Y, &y_ld));
  PetscCall(LocalIntCast(all, "columns", &columns));
  PetscCall(LocalIntCast(x_ld, "entries from one column to the next", &ldx));
  PetscCall(LocalIntCast(y_ld, "entries from one column to the next", &ldy));
  const bool here = !pc->failedreason && !local->consolidated.group;
  if (here) PetscCall(Reserve_Local(pc, PETSC_FALSE, columns));
  if (pc->failedreason) PetscCall(FillWithInfinity(Y, columns));
  else if (!here) PetscCall(ApplyToEachColumn(pc, X, Y, columns));
  else if (PetscMemTypeDevice(local->where)) {
    PetscCall(MatDenseGetArrayReadAndMemType(X, &x, &x_where));
    PetscCall(MatDenseGetArrayWriteAndMemType(Y, &y, &y_where));
    PetscCall(ApplyToColumns(pc, PETSC_FALSE, columns, {x, ldx, x_where}, {y, ldy, y_where}));
    PetscCall(MatDenseRestoreArrayWriteAndMemType(Y, &y));
    PetscCall(MatDenseRestoreArrayReadAndMemType(X, &x));
  } else {
    PetscCall(MatDenseGetArrayRead(X, &x));
    PetscCall(MatDenseGetArrayWrite(Y, &y));
    PetscCall(ApplyToColumns(pc, PETSC_FALSE, columns, {x, ldx, local->where}, {y, ldy, local->where}));
    PetscCall(MatDenseRestoreArrayWrite(Y, &y));
    PetscCall(MatDenseRestoreArrayRead(X, &x));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
