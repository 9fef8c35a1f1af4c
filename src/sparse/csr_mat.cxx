/*
   This file takes the rows out of PETSc's AIJ matrices and makes a MATAIJ of a factor. It alone knows the differences between the
   AIJ types.
*/
#include <petsc/private/matimpl.h>

#include <type_traits>

#include "ranks/agree.h"
#include "csr_mat.h"
#include "finepcimpl.h"
#include "offload.h"

/* The pattern of a sequential Mat as local numbers. */
struct LocalPattern {
  PetscObjectId    id; /* of the Mat whose pattern was copied, and its state */
  PetscObjectState state;
  LocalInt         n, nnz;
  PetscMemType     where;
  LocalInt        *i, *j; /* one allocation, which begins at i */
};

static PetscErrorCode LocalPatternDestroy(LocalPattern *pattern)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(pattern->where, (void **)&pattern->i));
  PetscCall(PetscFree(pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes room for a pattern, which stays with the Mat. */
static PetscErrorCode CreateLocalPattern(Mat local, const char name[], PetscMemType where, LocalInt n, LocalInt nnz,
                                         LocalPattern **pattern)
{
  const size_t numbers = (size_t)n + 1 + nnz;

  PetscFunctionBegin;
  PetscCall(PetscObjectCompose((PetscObject)local, name, nullptr)); /* there is no need of memory for both */
  PetscCall(PetscNew(pattern));
  (*pattern)->where = where;
  (*pattern)->n     = -1; /* until there is memory */
  PetscCall(PetscObjectContainerCompose((PetscObject)local, name, *pattern, ContainerDestructor<LocalPatternDestroy>));
  PetscCall(ArrayCreate(numbers * sizeof(LocalInt), where, (void **)&(*pattern)->i));
  (*pattern)->j     = (*pattern)->i + n + 1;
  (*pattern)->n     = n;
  (*pattern)->nnz   = nnz;
  (*pattern)->state = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetLocalPattern(Mat local, PetscMemType where, LocalInt n, LocalInt nnz, const PetscInt *i, const PetscInt *j,
                                  const LocalInt **local_i, const LocalInt **local_j)
{
  PetscFunctionBegin;
  if (sizeof(PetscInt) == sizeof(LocalInt)) {
    *local_i = (const LocalInt *)i;
    *local_j = (const LocalInt *)j;
  } else {
    const char      *name    = PetscMemTypeDevice(where) ? "FinePCDevicePattern" : "FinePCHostPattern";
    LocalPattern    *pattern = nullptr;
    const auto       copy    = PetscMemTypeDevice(where) ? LocalIntCopy_CUDA : LocalIntCopy_Host;
    PetscObjectId    id;
    PetscObjectState state;

    /* what is composed with a Mat stays where PETSc gives it other nonzeros, and the nonzero state may, too */
    PetscCall(PetscObjectGetId((PetscObject)local, &id));
    PetscCall(PetscObjectStateGet((PetscObject)local, &state));
    PetscCall(PetscObjectContainerQuery((PetscObject)local, name, (void **)&pattern));
    if (!pattern || pattern->n != n || pattern->nnz != nnz) PetscCall(CreateLocalPattern(local, name, where, n, nnz, &pattern));
    if (pattern->id != id || pattern->state != state) {
      if (i) PetscCall(copy((size_t)n + 1, i, pattern->i));
      else PetscCall(ArrayZero(pattern->i, sizeof(*pattern->i), where)); /* no rows */
      PetscCall(copy(nnz, j, pattern->j));
      pattern->id    = id;
      pattern->state = state;
    }
    *local_i = pattern->i;
    *local_j = pattern->j;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if defined(FINEPC_PETSC_CUDA)
static PetscErrorCode GetDeviceCSR(CSRMat *csr)
{
  const DeviceIndex *i, *j;
  MatInfo            info;

  PetscFunctionBegin;
  PetscCall(MatGetInfo(csr->local, MAT_LOCAL, &info));
  PetscCall(LocalIntCast((PetscInt64)info.nz_used, "nonzeros", &csr->A.nnz));
  csr->A.where = PETSC_MEMTYPE_CUDA;
  PetscCall(MatSeqAIJCUSPARSEGetIJ(csr->local, PETSC_FALSE, &i, &j));
  if (std::is_same_v<DeviceIndex, LocalInt>) {
    csr->A.i = (const LocalInt *)i;
    csr->A.j = (const LocalInt *)j;
  } else
    PetscCall(MatGetLocalPattern(csr->local, csr->A.where, csr->A.n, csr->A.nnz, (const PetscInt *)i, (const PetscInt *)j,
                                 &csr->A.i, &csr->A.j));
  PetscCall(MatSeqAIJCUSPARSEGetArrayRead(csr->local, &csr->A.a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreDeviceCSR(CSRMat *csr)
{
  const DeviceIndex *i = nullptr, *j = nullptr;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJCUSPARSERestoreArrayRead(csr->local, &csr->A.a));
  PetscCall(MatSeqAIJCUSPARSERestoreIJ(csr->local, PETSC_FALSE, &i, &j));
  PetscFunctionReturn(PETSC_SUCCESS);
}
/* Whether the host has the values of a matrix of the device. */
static bool HostIsCurrent(Mat local)
{
  return local->offloadmask != PETSC_OFFLOAD_GPU;
}
#else
static bool HostIsCurrent(Mat)
{
  return true;
}
static PetscErrorCode GetDeviceCSR(CSRMat *)
{
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_PLIB, "There are no matrices on the GPU");
}
static PetscErrorCode RestoreDeviceCSR(CSRMat *)
{
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_PLIB, "There are no matrices on the GPU");
}
#endif

PetscErrorCode MatLendRows(Mat local, PetscBool blocks, PetscInt *n, const PetscInt **i, const PetscInt **j)
{
  PetscBool done;

  PetscFunctionBegin;
  PetscCall(MatGetRowIJ(local, 0, PETSC_FALSE, blocks, n, i, j, &done));
  PetscCheck(done, PETSC_COMM_SELF, PETSC_ERR_SUP, "Matrix type %s does not give its %srows", ((PetscObject)local)->type_name,
             blocks ? "block " : "");
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatTakeRowsBack(Mat local, PetscBool blocks)
{
  const PetscInt *i = nullptr, *j = nullptr; /* PETSc has not made them for this use, and takes back what it lent */
  PetscInt        n;
  PetscBool       done;

  PetscFunctionBegin;
  PetscCall(MatRestoreRowIJ(local, 0, PETSC_FALSE, blocks, &n, &i, &j, &done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetHostCSR(CSRMat *csr)
{
  const PetscInt *i, *j;
  PetscInt        n;

  PetscFunctionBegin;
  PetscCall(MatLendRows(csr->local, PETSC_FALSE, &n, &i, &j));
  PetscCall(LocalIntCast(i[n], "nonzeros", &csr->A.nnz));
  csr->A.where = PETSC_MEMTYPE_HOST;
  PetscCall(MatGetLocalPattern(csr->local, csr->A.where, csr->A.n, csr->A.nnz, i, j, &csr->A.i, &csr->A.j));
  PetscCall(MatSeqAIJGetArrayRead(csr->local, &csr->A.a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatRefuseType(Mat A, const char takes[], const char remedy[])
{
  PetscBool nest, shell, transposed, adjoint;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)A, MATNEST, &nest));
  PetscCall(PetscObjectTypeCompare((PetscObject)A, MATSHELL, &shell));
  PetscCall(PetscObjectTypeCompare((PetscObject)A, MATTRANSPOSEVIRTUAL, &transposed));
  PetscCall(PetscObjectTypeCompare((PetscObject)A, MATHERMITIANTRANSPOSEVIRTUAL, &adjoint));
  if (nest)
    remedy =
      "use MatConvert() to MATAIJ, MatNestGetSubMat() if it has one block, or PCFIELDSPLIT with a preconditioner for each block";
  if (shell) remedy = "give an assembled matrix to precondition with as the second one of KSPSetOperators()";
  if (transposed) remedy = "assemble it by MatTranspose() of the matrix that MatTransposeGetMat() gives";
  if (adjoint) remedy = "assemble it by MatTranspose() of the matrix that MatHermitianTransposeGetMat() gives";
  SETERRQ(PetscObjectComm((PetscObject)A), PETSC_ERR_SUP, "Matrix type %s is not supported, only %s are: %s",
          ((PetscObject)A)->type_name, takes, remedy);
}

PetscErrorCode MatCheckLayout(Mat A)
{
  PetscInt rows, columns;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(A, &rows, &columns));
  PetscCheck(rows == columns, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix must be square with the same layout of rows and columns; here this rank has %" PetscInt_FMT
             " rows and %" PetscInt_FMT " columns",
             rows, columns);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetLocal(Mat A, CSRMat *csr)
{
  PetscInt  n;
  PetscBool is_aij;

  PetscFunctionBegin;
  *csr = CSRMat{};
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_aij, MATSEQAIJ, MATMPIAIJ, ""));
  if (!is_aij) PetscCall(MatRefuseType(A, "MATAIJ and its subtypes such as MATAIJCUSPARSE", "use MatConvert() or -mat_type aij"));
  PetscCall(MatCheckLayout(A));
  PetscCall(MatGetDiagonalBlock(A, &csr->local));
  PetscCall(MatGetLocalSize(A, &n, nullptr));
  PetscCall(LocalIntCast(n, "rows", &csr->A.n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where the rows of a matrix are used. SENT rows are on the host, and copied to the GPU. */
enum class Place { HOST, DEVICE, SENT };

static PetscErrorCode PlaceOf_CSR(Mat A, Place *place)
{
  Mat       local;
  PetscBool is_cuda, bound, offloaded;

  PetscFunctionBegin;
  PetscCall(MatGetDiagonalBlock(A, &local));
  PetscCall(PetscObjectTypeCompare((PetscObject)local, MATSEQAIJCUSPARSE, &is_cuda));
  PetscCall(MatBoundToCPU(local, &bound));
  PetscCall(MatIsOffloaded(A, &offloaded));
  *place = kPetscHasCUDA && is_cuda && !bound ? Place::DEVICE : kHasCUDA && offloaded ? Place::SENT : Place::HOST;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatRestoreCSR(CSRMat *csr)
{
  PetscFunctionBegin;
  if (!csr->local) PetscFunctionReturn(PETSC_SUCCESS); /* the rows are a copy */
  if (csr->sent) {                                     /* which stay with the matrix */
  } else if (PetscMemTypeDevice(csr->A.where)) PetscCall(RestoreDeviceCSR(csr));
  else {
    PetscCall(MatSeqAIJRestoreArrayRead(csr->local, &csr->A.a));
    PetscCall(MatTakeRowsBack(csr->local, PETSC_FALSE));
  }
  *csr = CSRMat{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetPartOnHost(Mat part, CSRMat *csr)
{
  PetscInt rows;

  PetscFunctionBegin;
  *csr       = CSRMat{};
  csr->local = part;
  PetscCall(MatGetSize(part, &rows, nullptr));
  PetscCall(LocalIntCast(rows, "rows", &csr->A.n));
  PetscCall(GetHostCSR(csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetSentCSR(Mat A, CSRMat *csr)
{
  CSRMat host;
  bool   current;

  PetscFunctionBegin;
  csr->sent = true;
  PetscCall(MatGetSentRows(A, csr->local, &csr->A, &current));
  if (current) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(FinePC_SendMat, csr->local, 0, 0, 0));
  PetscCall(MatGetPartOnHost(csr->local, &host));
  const PetscErrorCode code = MatSendRows(A, csr->local, &host.A, &csr->A), restored = MatRestoreCSR(&host);
  PetscCall(PetscLogEventEnd(FinePC_SendMat, csr->local, 0, 0, 0));
  PetscCall(code);
  PetscCall(restored);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lends the rows of a part of A where those of A are used. */
static PetscErrorCode GetPart(Mat A, CSRMat *csr)
{
  Place place = Place::HOST;

  PetscFunctionBegin;
  PetscCall(PlaceOf_CSR(A, &place));
  if (place == Place::SENT) PetscCall(GetSentCSR(A, csr));
  else PetscCall((place == Place::DEVICE ? GetDeviceCSR : GetHostCSR)(csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetCSR(Mat A, CSRMat *csr)
{
  PetscFunctionBegin;
  PetscCall(GetLocal(A, csr));
  PetscCall(GetPart(A, csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetCSRToLook(Mat A, CSRMat *csr)
{
  Place           place = Place::HOST;
  const PetscInt *i, *j;
  PetscInt        n;

  PetscFunctionBegin;
  PetscCall(GetLocal(A, csr));
  PetscCall(PlaceOf_CSR(A, &place));
  if (place != Place::DEVICE || HostIsCurrent(csr->local)) {
    PetscCall(GetHostCSR(csr));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GetDeviceCSR(csr));
  PetscCall(MatLendRows(csr->local, PETSC_FALSE, &n, &i, &j));
  PetscCall(MatGetLocalPattern(csr->local, PETSC_MEMTYPE_HOST, csr->A.n, csr->A.nnz, i, j, &csr->A.i, &csr->A.j));
  PetscCall(MatTakeRowsBack(csr->local, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetHostCSR(Mat A, CSRMat *csr)
{
  PetscFunctionBegin;
  PetscCall(GetLocal(A, csr));
  PetscCall(GetHostCSR(csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows and columns of the part of a matrix whose columns other ranks have. */
static PetscErrorCode GetOtherSize(Mat other, LocalInt *rows, LocalInt *columns)
{
  PetscInt m, n;

  PetscFunctionBegin;
  PetscCall(MatGetSize(other, &m, &n));
  PetscCall(LocalIntCast(m, "rows", rows));
  PetscCall(LocalIntCast(n, "columns of other ranks", columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetGhostCSR(Mat A, CSRMat *csr, LocalInt *count, const PetscInt **ghosts)
{
  Mat diagonal;

  PetscFunctionBegin;
  *csr = CSRMat{};
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diagonal, &csr->local, ghosts));
  PetscCall(GetOtherSize(csr->local, &csr->A.n, count));
  PetscCall(GetPart(A, csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetValuesMemType(Mat A, PetscMemType *where)
{
  Place place = Place::HOST;

  PetscFunctionBegin;
  PetscCall(PlaceOf_CSR(A, &place));
  *where = place == Place::HOST ? PETSC_MEMTYPE_HOST : PETSC_MEMTYPE_CUDA;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetOtherCSR(Mat A, CSRMat *csr)
{
  LocalInt columns;

  PetscFunctionBegin;
  *csr = CSRMat{};
  PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &csr->local, nullptr));
  PetscCall(GetOtherSize(csr->local, &csr->A.n, &columns));
  PetscCall(GetPart(A, csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetHostPattern(Mat A, HostPattern *P)
{
  Mat      own, other;
  PetscInt n;

  PetscFunctionBegin;
  *P = HostPattern{};
  PetscCall(MatCheckLayout(A));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &own, &other, &P->columns));
  PetscCall(MatGetLocalSize(own, &P->n, nullptr));
  PetscCall(MatGetSize(other, nullptr, &P->count));
  PetscCall(MatLendRows(own, PETSC_FALSE, &n, &P->own_i, &P->own_j));
  P->own = own;
  PetscCall(MatLendRows(other, PETSC_FALSE, &n, &P->other_i, &P->other_j));
  P->other = other;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatRestoreHostPattern(HostPattern *P)
{
  PetscFunctionBegin;
  if (P->own) PetscCall(MatTakeRowsBack(P->own, PETSC_FALSE));
  if (P->other) PetscCall(MatTakeRowsBack(P->other, PETSC_FALSE));
  *P = HostPattern{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscScalar ValueOf(const CSR *W, LocalInt k)
{
  return W->precision == FINEPC_SINGLE ? (PetscScalar)((const float *)W->a)[k] : ((const double *)W->a)[k];
}

/* A factor on the host, as it is kept and as PETSc takes it. */
struct FactorOnHost {
  CSR          own, foreign;
  PetscScalar *d;
  PetscInt    *i, *j;
  PetscScalar *a;
};

static PetscErrorCode Copy_CSR(const CSR *W, const CSR *ghosts, const PetscScalar *d, FactorOnHost *host)
{
  PetscFunctionBegin;
  PetscCall(CSRDuplicate(W, PETSC_MEMTYPE_HOST, &host->own));
  if (ghosts->i) PetscCall(CSRDuplicate(ghosts, PETSC_MEMTYPE_HOST, &host->foreign));
  PetscCall(PetscMalloc1(W->rows, &host->d));
  PetscCall(ArrayCopy(host->d, d, W->rows * sizeof(*d), PETSC_MEMTYPE_HOST, W->where));
  const size_t entries = (size_t)host->foreign.nnz + W->nnz + W->rows;
  PetscCall(PetscMalloc3(W->rows + 1, &host->i, entries, &host->j, entries, &host->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Scales the rows and puts the columns of other ranks, the own ones and the diagonal entry behind one another. */
static void Fill_CSR(PetscInt first, const PetscInt columns[], FactorOnHost *host)
{
  const CSR &own = host->own, &foreign = host->foreign;

  host->i[0] = 0;
  for (LocalInt row = 0; row < own.rows; row++) {
    const PetscReal scale = PetscSqrtReal(PetscAbsReal(host->d[row])); /* d is negative if that of -A was factored */
    PetscInt        to    = host->i[row];
    for (LocalInt k = foreign.i ? foreign.i[row] : 0; foreign.i && k < foreign.i[row + 1]; k++, to++) {
      host->j[to] = columns[foreign.j[k]];
      host->a[to] = scale * ValueOf(&foreign, k);
    }
    for (LocalInt k = own.i[row]; k < own.i[row + 1]; k++, to++) {
      host->j[to] = first + own.j[k];
      host->a[to] = scale * ValueOf(&own, k);
    }
    host->j[to]      = first + row;
    host->a[to]      = scale;
    host->i[row + 1] = to + 1;
  }
}

PetscErrorCode MatFindFirstRow(MPI_Comm comm, PetscInt rows, PetscInt *first)
{
  PetscMPIInt rank;

  PetscFunctionBegin;
  *first = 0;
  PetscCallMPI(MPI_Exscan(&rows, first, 1, MPIU_INT, MPI_SUM, comm));
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  if (!rank) *first = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_CSR(MPI_Comm comm, const PetscInt columns[], FactorOnHost *host, Mat *G)
{
  const PetscInt rows = host->own.rows;
  PetscInt       first;

  PetscFunctionBegin;
  PetscCall(MatFindFirstRow(comm, rows, &first));
  Fill_CSR(first, columns, host);
  PetscCall(MatCreate(comm, G));
  PetscCall(MatSetSizes(*G, rows, rows, PETSC_DETERMINE, PETSC_DETERMINE));
  PetscCall(MatSetType(*G, MATAIJ));
  PetscCall(MatSeqAIJSetPreallocationCSR(*G, host->i, host->j, host->a));
  PetscCall(MatMPIAIJSetPreallocationCSR(*G, host->i, host->j, host->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Destroy_CSR(FactorOnHost *host)
{
  PetscFunctionBegin;
  PetscCall(PetscFree3(host->i, host->j, host->a));
  PetscCall(PetscFree(host->d));
  PetscCall(CSRDestroy(&host->own));
  PetscCall(CSRDestroy(&host->foreign));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatCreateFromFactor(MPI_Comm comm, const CSR *W, const CSR *ghosts, const PetscInt columns[], const PetscScalar *d,
                                   Mat *G)
{
  FactorOnHost host{};

  PetscFunctionBegin;
  PetscErrorCode code = AgreeOnError(comm, Copy_CSR(W, ghosts, d, &host), "copy its factor to the host");
  if (!code) code = Create_CSR(comm, columns, &host, G);
  const PetscErrorCode freed = Destroy_CSR(&host);
  PetscCall(code);
  PetscCall(freed);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ products ------------------------------------------ */

PetscErrorCode MatIsFarFrom(Mat A, Vec v, PetscBool *far)
{
  PetscBool bound, near;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, far, MATSEQAIJCUSPARSE, MATMPIAIJCUSPARSE, ""));
  PetscCall(MatBoundToCPU(A, &bound));
  PetscCall(VecIsOnDevice(v, &near));
  if (bound || near || !kPetscHasCUDA) *far = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode VecCopyBetween(Vec from, Vec to)
{
  const PetscScalar *x;
  PetscScalar       *y;
  PetscInt           n;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(from, &n));
  PetscCall(VecGetArrayRead(from, &x));
  PetscCall(VecGetArrayWrite(to, &y));
  PetscCall(PetscArraycpy(y, x, n));
  PetscCall(VecRestoreArrayWrite(to, &y));
  PetscCall(VecRestoreArrayRead(from, &x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatMultAnywhere(Mat A, PetscBool transpose, Vec x, Vec y)
{
  const auto multiply = transpose ? MatMultTranspose : MatMult;
  PetscBool  far_x, far_y;
  Vec        right = nullptr, left = nullptr;

  PetscFunctionBegin;
  PetscCall(MatIsFarFrom(A, x, &far_x));
  PetscCall(MatIsFarFrom(A, y, &far_y));
  int far = far_x || far_y; /* on any rank: vectors are made on all of them */
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &far, 1, MPI_INT, MPI_LOR, PetscObjectComm((PetscObject)A)));
  if (!far) {
    PetscCall((*multiply)(A, x, y));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(MatCreateVecs(A, &right, &left));
  const Vec of_x = transpose ? left : right, of_y = transpose ? right : left;
  PetscCall(VecCopyBetween(x, of_x));
  PetscCall((*multiply)(A, of_x, of_y));
  PetscCall(VecCopyBetween(of_y, y));
  PetscCall(VecDestroy(&right));
  PetscCall(VecDestroy(&left));
  PetscFunctionReturn(PETSC_SUCCESS);
}
