/*
   MATBAIJCUDA derives from MATBAIJ as MATAIJCUSPARSE derives from MATAIJ: the matrix is created as a MATBAIJ, and then some of its
   operations are replaced. The values on the host are the ones that count. A product that finds that they have changed makes the
   copy on the device anew.
*/
#include <petscsf.h>

#include "ranks/agree.h"
#include "baijcuda.h"
#include "entry.h"
#include "sparse/bsr_csr.h"
#include "sparse/bsr_mat.h"
#include "finepcimpl.h"

template <typename Data>
static PetscErrorCode MatConvert_BAIJ_BAIJCUDA(Mat, MatType, MatReuse, Mat *);
template <typename Data>
static PetscErrorCode MatConvert_BAIJCUDA_BAIJ(Mat, MatType, MatReuse, Mat *);
template <typename Data>
static PetscErrorCode MatDestroy_BAIJCUDA(Mat);
template <typename Data>
static PetscErrorCode BecomeBase_BAIJCUDA(Mat);

/* ------------------------------------ where and with what ------------------------------------- */

/* A product runs on the device if neither matrix nor vectors are bound to the CPU and all vectors are on the device. */
static PetscErrorCode ProductOnDevice(Mat A, Vec x, Vec z, Vec y, PetscBool *device)
{
  PetscBool bound;

  PetscFunctionBegin;
  PetscCall(MatBoundToCPU(A, &bound));
  *device = bound || !kPetscHasCUDA ? PETSC_FALSE : PETSC_TRUE;
  for (Vec vec : {x, y, z})
    if (*device && vec) PetscCall(VecIsOnDevice(vec, device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The device arrays of a product y = z + A x; z may be null, or y. */
struct ProductArrays {
  const PetscScalar *x, *z = nullptr;
  PetscScalar       *y;
};

static PetscErrorCode GetProductArrays(Vec x, Vec z, Vec y, ProductArrays *arrays)
{
  PetscFunctionBegin;
  PetscCall(VecGetArrayReadAndMemType(x, &arrays->x, nullptr));
  if (z == y) {
    PetscCall(VecGetArrayAndMemType(y, &arrays->y, nullptr));
    arrays->z = arrays->y;
  } else {
    if (z) PetscCall(VecGetArrayReadAndMemType(z, &arrays->z, nullptr));
    PetscCall(VecGetArrayWriteAndMemType(y, &arrays->y, nullptr));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreProductArrays(Vec x, Vec z, Vec y, ProductArrays *arrays)
{
  PetscFunctionBegin;
  if (z == y) PetscCall(VecRestoreArrayAndMemType(y, &arrays->y));
  else {
    PetscCall(VecRestoreArrayWriteAndMemType(y, &arrays->y));
    if (z) PetscCall(VecRestoreArrayReadAndMemType(z, &arrays->z));
  }
  PetscCall(VecRestoreArrayReadAndMemType(x, &arrays->x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   PETSc binds new matrices of MATBAIJ, as of every type that knows no device, to the CPU. A new MATBAIJCUDA is not bound, and makes
   vectors on the device if there is a device.
*/
static PetscErrorCode OpenToDevice(Mat A)
{
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(DeviceFound_CUDA(&found));
  PetscCall(MatSetVecType(A, found && kPetscHasCUDA ? VECCUDA : VECSTANDARD));
  PetscCall(MatBindToCPU(A, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ViewPlace(Mat A, PetscViewer viewer, size_t bytes)
{
  PetscViewerFormat format;
  PetscBool         ascii, bound, found;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &ascii));
  if (!ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerGetFormat(viewer, &format));
  if (format != PETSC_VIEWER_ASCII_INFO && format != PETSC_VIEWER_ASCII_INFO_DETAIL) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatBoundToCPU(A, &bound));
  PetscCall(DeviceFound_CUDA(&found));
  if (!found) PetscCall(PetscViewerASCIIPrintf(viewer, "products: on the host, there is no device\n"));
  else if (!kPetscHasCUDA)
    PetscCall(PetscViewerASCIIPrintf(viewer, "products: on the host, this PETSc has no CUDA and no vectors on the device\n"));
  else if (bound) PetscCall(PetscViewerASCIIPrintf(viewer, "products: on the host, the matrix is bound to it\n"));
  else PetscCall(PetscViewerASCIIPrintf(viewer, "products: where the vectors are, copies on the device of %.4g MB\n", bytes / 1e6));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- one rank: copies -------------------------------------- */

/* Borrows the arrays in which PETSc stores the matrix on the host, until RestoreRows(). */
static PetscErrorCode GetRows_BAIJCUDA(Mat A, BSR *host)
{
  PetscInt        bs, n, columns, nnz;
  const PetscInt *i, *j;
  const LocalInt *local_i, *local_j;
  PetscScalar    *a;

  PetscFunctionBegin;
  *host = BSR{};
  PetscCall(MatGetBlockSize(A, &bs));
  PetscCall(MatGetLocalSize(A, nullptr, &columns));
  PetscCall(MatLendRows(A, PETSC_TRUE, &n, &i, &j));
  /* RestoreRows() does not call MatSeqBAIJRestoreArray(), which would raise the state as if the values had changed. */
  PetscCall(MatSeqBAIJGetArray(A, &a));
  nnz = n ? i[n] : 0;
  PetscCall(LocalIntCast(n * bs, "rows", &host->rows));
  PetscCall(LocalIntCast(columns, "columns", &host->columns));
  PetscCall(LocalIntCast(nnz, "blocks", &host->nnz));
  PetscCall(MatGetLocalPattern(A, PETSC_MEMTYPE_HOST, (LocalInt)n, host->nnz, i, j, &local_i, &local_j));
  host->bs        = (LocalInt)bs;
  host->rows      = (LocalInt)n;
  host->columns   = (LocalInt)(columns / bs);
  host->i         = const_cast<LocalInt *>(local_i);
  host->j         = const_cast<LocalInt *>(local_j);
  host->a         = a;
  host->precision = FINEPC_DOUBLE;
  host->where     = PETSC_MEMTYPE_HOST;
  PetscCheck(a || !host->nnz, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "The matrix has a structure only, and no values to multiply with");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreRows(Mat A, BSR *host)
{
  PetscFunctionBegin;
  PetscCall(MatTakeRowsBack(A, PETSC_TRUE));
  *host = BSR{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies a matrix from the host to the device. If the old copy has the same sizes, the new one is made in its memory. */
static PetscErrorCode SendRows_BAIJCUDA(const BSR *host, PetscBool pattern, BSR *copy)
{
  const size_t bytes = (size_t)host->nnz * host->bs * host->bs * sizeof(PetscScalar);

  PetscFunctionBegin;
  if (!copy->i || copy->bs != host->bs || copy->rows != host->rows || copy->columns != host->columns || copy->nnz != host->nnz) {
    PetscCall(BSRDestroy(copy));
    PetscCall(BSRCreate(host->bs, host->rows, host->columns, host->nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA, copy));
    pattern = PETSC_TRUE;
  }
  if (pattern) {
    PetscCall(ArrayCopy(copy->i, host->i, ((size_t)host->rows + 1) * sizeof(LocalInt), copy->where, host->where));
    PetscCall(ArrayCopy(copy->j, host->j, host->nnz * sizeof(LocalInt), copy->where, host->where));
  }
  PetscCall(ArrayCopy(copy->a, host->a, bytes, copy->where, host->where));
  PetscCall(PetscLogCpuToGpu(bytes + (pattern ? ((size_t)host->rows + 1 + host->nnz) * sizeof(LocalInt) : 0)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

constexpr PetscObjectState kNoState = -1; /* a state that no matrix has, since states rise from 0 */

static PetscErrorCode DropCopies(SeqBAIJCUDA *data)
{
  PetscFunctionBegin;
  PetscCall(BSRDestroy(&data->copy));
  PetscCall(BSRDestroy(&data->transpose));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives the copy of the matrix, or of its transpose, on the device. The copy is made anew if the matrix has changed since. */
static PetscErrorCode GetCopy(Mat A, PetscBool transpose, const BSR **copy)
{
  SeqBAIJCUDA     *data = (SeqBAIJCUDA *)A->spptr;
  BSR             *W    = transpose ? &data->transpose : &data->copy;
  PetscObjectState values, *of_values = transpose ? &data->transposed_values : &data->values;
  uint64_t         hash, *of_pattern  = transpose ? &data->transposed_pattern : &data->pattern;
  BSR              host;

  PetscFunctionBegin;
  PetscCall(PetscObjectStateGet((PetscObject)A, &values));
  *copy = W;
  if (data->stale) data->values = data->transposed_values = kNoState;
  data->stale = PETSC_FALSE;
  if (W->i && *of_values == values) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(FinePC_BAIJCUDACopy, A, 0, 0, 0));
  PetscCall(GetRows_BAIJCUDA(A, &host));
  const CSRView blocks{host.rows, host.nnz, host.i, host.j, nullptr, host.where};
  PetscCall(CSRHash_Host(&blocks, nullptr, &hash));
  const PetscBool pattern = *of_pattern == hash ? PETSC_FALSE : PETSC_TRUE;
  if (transpose) {
    BSR transposed;

    PetscCall(BSRTranspose_Host(&host, PETSC_FALSE, &transposed));
    const PetscErrorCode code = SendRows_BAIJCUDA(&transposed, pattern, W);
    PetscCall(BSRDestroy(&transposed));
    PetscCall(code);
  } else PetscCall(SendRows_BAIJCUDA(&host, pattern, W));
  PetscCall(RestoreRows(A, &host));
  *of_values  = values;
  *of_pattern = hash;
  PetscCall(PetscLogEventEnd(FinePC_BAIJCUDACopy, A, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The method kDeviceBlocksQuery of bsr_mat.h, by which preconditioners get the copy. */
static PetscErrorCode GetDeviceBlocks_BAIJCUDA(Mat A, const BSR **copy)
{
  PetscFunctionBegin;
  PetscCall(GetCopy(A, PETSC_FALSE, copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes y = z + W x on the device. */
static PetscErrorCode Multiply_BAIJCUDA(const BSR *W, const PetscScalar *x, const PetscScalar *z, PetscScalar *y)
{
  PetscFunctionBegin;
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(BSRMultiply_CUDA(W, 1, BSRVectors{x, z, y, 0, 0, 0}, PETSC_FALSE));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(PetscLogGpuFlops(2.0 * W->nnz * W->bs * W->bs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Product_BAIJCUDA(SeqBAIJCUDA *, Mat A, PetscBool transpose, Vec x, Vec z, Vec y)
{
  ProductArrays arrays;
  const BSR    *W;

  PetscFunctionBegin;
  PetscCall(GetCopy(A, transpose, &W));
  PetscCall(GetProductArrays(x, z, y, &arrays));
  PetscCall(Multiply_BAIJCUDA(W, arrays.x, arrays.z, arrays.y));
  PetscCall(RestoreProductArrays(x, z, y, &arrays));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The products of both types: y = z + A x, y = A x if z is null, and the same with the transpose. */
template <typename Data, bool Transpose>
static PetscErrorCode MatMultAdd_BAIJCUDA(Mat A, Vec x, Vec z, Vec y)
{
  Data     *data = (Data *)A->spptr;
  PetscBool device;

  PetscFunctionBegin;
  PetscCall(ProductOnDevice(A, x, z, y, &device));
  if (device) PetscCall(Product_BAIJCUDA(data, A, Transpose ? PETSC_TRUE : PETSC_FALSE, x, z, y));
  else if (z) PetscCall((Transpose ? data->base.multtransposeadd : data->base.multadd)(A, x, z, y));
  else PetscCall((Transpose ? data->base.multtranspose : data->base.mult)(A, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename Data, bool Transpose>
static PetscErrorCode MatMult_BAIJCUDA(Mat A, Vec x, Vec y)
{
  PetscFunctionBegin;
  PetscCall(MatMultAdd_BAIJCUDA<Data, Transpose>(A, x, nullptr, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ one rank: operations ------------------------------------ */

/* PETSc chooses the functions of the products for the block size when it preallocates. They are kept for products on the host. */
static PetscErrorCode MatAssemblyEnd_SeqBAIJCUDA(Mat A, MatAssemblyType type)
{
  constexpr auto mult    = Entry<MatMult_BAIJCUDA<SeqBAIJCUDA, false>>;
  constexpr auto multadd = Entry<MatMultAdd_BAIJCUDA<SeqBAIJCUDA, false>>;
  SeqBAIJCUDA   *data    = (SeqBAIJCUDA *)A->spptr;

  PetscFunctionBegin;
  PetscCall(data->base.assemblyend(A, type));
  if (A->ops->mult != mult) data->base.mult = A->ops->mult;
  if (A->ops->multadd != multadd) data->base.multadd = A->ops->multadd;
  A->ops->mult    = mult;
  A->ops->multadd = multadd;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatDuplicate_SeqBAIJCUDA(Mat A, MatDuplicateOption option, Mat *B)
{
  PetscFunctionBegin;
  PetscCall(((SeqBAIJCUDA *)A->spptr)->base.duplicate(A, option, B));
  PetscCall(MatConvert_BAIJ_BAIJCUDA<SeqBAIJCUDA>(*B, MATSEQBAIJCUDA, MAT_INPLACE_MATRIX, B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix that is bound to the CPU gives back the memory of its copies on the device. */
static PetscErrorCode MatBindToCPU_SeqBAIJCUDA(Mat A, PetscBool bound)
{
  PetscFunctionBegin;
  if (bound) PetscCall(DropCopies((SeqBAIJCUDA *)A->spptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static size_t CopiedBytes(const SeqBAIJCUDA *data)
{
  return (data->copy.i ? BSRBytes(&data->copy) : 0) + (data->transpose.i ? BSRBytes(&data->transpose) : 0);
}

static PetscErrorCode MatView_SeqBAIJCUDA(Mat A, PetscViewer viewer)
{
  PetscFunctionBegin;
  PetscCall(((SeqBAIJCUDA *)A->spptr)->base.view(A, viewer));
  PetscCall(ViewPlace(A, viewer, CopiedBytes((SeqBAIJCUDA *)A->spptr)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   PETSc destroys the submatrices of a MATMPIBAIJ without the operation of their type. A matrix that nobody else holds therefore
   becomes a MATSEQBAIJ before. PETSc 3.18 makes them of this type, and calls its operation.
*/
static PetscErrorCode MatDestroySubMatrices_SeqBAIJCUDA(PetscInt n, Mat *parts[])
{
  const auto destroy = ((SeqBAIJCUDA *)(*parts)[0]->spptr)->base.destroysubmatrices;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < n; k++) {
    Mat       part = (*parts)[k];
    PetscBool mine;
    PetscInt  holders;

    PetscCall(PetscObjectTypeCompare((PetscObject)part, MATSEQBAIJCUDA, &mine));
    PetscCall(PetscObjectGetReference((PetscObject)part, &holders));
    mine = (PetscBool)(mine && part->ops->destroy == Entry<MatDestroy_BAIJCUDA<SeqBAIJCUDA>>);
    if (mine && holders == 1) PetscCall(BecomeBase_BAIJCUDA<SeqBAIJCUDA>(part));
  }
  PetscCall(destroy(n, parts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A factorization in place leaves a MATSEQBAIJ: PETSc replaces the contents of the matrix by those of a factor of this type. The
   matrix therefore becomes a MATSEQBAIJ before, and stays one.
*/
static PetscErrorCode MatLUFactor_SeqBAIJCUDA(Mat A, IS rows, IS columns, const MatFactorInfo *info)
{
  PetscFunctionBegin;
  PetscCall(BecomeBase_BAIJCUDA<SeqBAIJCUDA>(A));
  PetscUseTypeMethod(A, lufactor, rows, columns, info);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------- several ranks: products ----------------------------------- */

static PetscErrorCode DropCopies(MPIBAIJCUDA *data)
{
  PetscFunctionBegin;
  PetscCall(PetscSFDestroy(&data->ghosts));
  if (data->block != MPIU_SCALAR) PetscCallMPI(MPI_Type_free(&data->block));
  data->block = MPIU_SCALAR;
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&data->values));
  data->diagonal = data->off = nullptr;
  data->copied = data->transposed = kNoState;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Gives the diagonal block of the rank, the block of the other columns, and their numbers if they are wanted. PETSc gives them only
   for a matrix that is called MATMPIBAIJ, not for a type that derives from it, so the matrix takes that name for the call, without
   memory of its own.
*/
static PetscErrorCode GetParts_BAIJCUDA(Mat A, Mat *diagonal, Mat *off, const PetscInt **ghosts)
{
  char        plain[] = MATMPIBAIJ;
  char *const name    = ((PetscObject)A)->type_name;

  PetscFunctionBegin;
  ((PetscObject)A)->type_name = plain;
  const PetscErrorCode code   = MatMPIBAIJGetSeqBAIJ(A, diagonal, off, ghosts);
  ((PetscObject)A)->type_name = name;
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Marks the copies of both parts as stale if the state of the whole matrix has changed. The states of the parts are not enough: in
   some releases of PETSc an operation on the whole matrix changes the values of the parts without raising their states.
*/
static PetscErrorCode CheckState(Mat A)
{
  MPIBAIJCUDA     *data = (MPIBAIJCUDA *)A->spptr;
  PetscObjectState state;

  PetscFunctionBegin;
  PetscCall(PetscObjectStateGet((PetscObject)A, &state));
  if (!data->diagonal) PetscCall(GetParts_BAIJCUDA(A, &data->diagonal, &data->off, nullptr));
  if (state != data->state) ((SeqBAIJCUDA *)data->diagonal->spptr)->stale = ((SeqBAIJCUDA *)data->off->spptr)->stale = PETSC_TRUE;
  data->state = state;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The method kPartsQuery of bsr_mat.h. Whoever takes the parts may read their copies, so that stale ones are marked first. */
static PetscErrorCode GetCheckedParts(Mat A, Mat *diagonal, Mat *off, const PetscInt **ghosts)
{
  PetscFunctionBegin;
  PetscCall(CheckState(A));
  PetscCall(GetParts_BAIJCUDA(A, diagonal, off, ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a rank does alone before an exchange is made: it finds the columns of other ranks, and makes room for their values. */
static PetscErrorCode MakeRoomForGhosts(Mat A, const PetscInt **ghosts, PetscInt *columns)
{
  MPIBAIJCUDA *data = (MPIBAIJCUDA *)A->spptr;

  PetscFunctionBegin;
  PetscCall(GetParts_BAIJCUDA(A, &data->diagonal, &data->off, ghosts));
  PetscCall(MatGetLocalSize(data->off, nullptr, columns));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&data->values)); /* of a call that has failed on another rank */
  PetscCall(ArrayCreate(*columns * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, (void **)&data->values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Makes what a product needs for the values of other ranks: the exchange, the type that it sends, and memory on the device. The
   first product after an assembly that has changed the parts makes them. A rank that has no memory has its error before the others
   wait for it.
*/
static PetscErrorCode NeedGhosts(Mat A)
{
  MPIBAIJCUDA    *data   = (MPIBAIJCUDA *)A->spptr;
  const PetscInt *ghosts = nullptr;
  PetscInt        bs, columns = 0;
  PetscLayout     blocks;

  PetscFunctionBegin;
  if (data->ghosts) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)A), CallGuarded(MakeRoomForGhosts, A, &ghosts, &columns),
                         "make room for the values of other ranks"));
  PetscCall(MatGetBlockSize(A, &bs));
  /*
     Blocks of one value are sent as scalars: PetscSF does not see that a contiguous type of one scalar is a scalar, and cannot add
     up values of a type that it does not know.
  */
  if (bs > 1) {
    PetscCallMPI(MPI_Type_contiguous((PetscMPIInt)bs, MPIU_SCALAR, &data->block));
    PetscCallMPI(MPI_Type_commit(&data->block));
  }
  PetscCall(PetscLayoutCreateFromSizes(PetscObjectComm((PetscObject)A), A->cmap->n / bs, A->cmap->N / bs, 1, &blocks));
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &data->ghosts));
  PetscCall(PetscSFSetGraphLayout(data->ghosts, blocks, columns / bs, nullptr, PETSC_COPY_VALUES, ghosts));
  PetscCall(PetscSFSetUp(data->ghosts));
  PetscCall(PetscLayoutDestroy(&blocks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The copies of both parts, or of their transposes. */
static PetscErrorCode GetOwnCopies(Mat A, PetscBool transpose, const BSR **diagonal, const BSR **off)
{
  MPIBAIJCUDA *data = (MPIBAIJCUDA *)A->spptr;

  PetscFunctionBegin;
  PetscCall(GetCopy(data->diagonal, transpose, diagonal));
  PetscCall(GetCopy(data->off, transpose, off));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The same in the first product after the matrix has changed, which all ranks know alike: there a rank that has no memory for its
   copies ends the product on all of them, which would wait for what it sends.
*/
static PetscErrorCode GetCopies(Mat A, PetscBool transpose, const BSR **diagonal, const BSR **off)
{
  MPIBAIJCUDA      *data   = (MPIBAIJCUDA *)A->spptr;
  PetscObjectState *copied = transpose ? &data->transposed : &data->copied;

  PetscFunctionBegin;
  PetscCall(CheckState(A));
  PetscErrorCode code = CallGuarded(GetOwnCopies, A, transpose, diagonal, off);
  if (*copied != data->state) code = AgreeOnError(PetscObjectComm((PetscObject)A), code, "copy its blocks to its GPU");
  PetscCall(code);
  *copied = data->state;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The exchange of x runs while the device multiplies with the diagonal part. With the transpose, the products with the other part
   are sent to the ranks that own their rows, and added up there.
*/
static PetscErrorCode Product_BAIJCUDA(MPIBAIJCUDA *data, Mat A, PetscBool transpose, Vec x, Vec z, Vec y)
{
  const PetscMemType cuda = PETSC_MEMTYPE_CUDA;
  ProductArrays      arrays;
  const BSR         *diagonal, *off;

  PetscFunctionBegin;
  PetscCall(NeedGhosts(A));
  PetscCall(GetCopies(A, transpose, &diagonal, &off));
  PetscCall(GetProductArrays(x, z, y, &arrays));
  if (transpose) {
    PetscCall(Multiply_BAIJCUDA(off, arrays.x, nullptr, data->values));
    PetscCall(Multiply_BAIJCUDA(diagonal, arrays.x, arrays.z, arrays.y));
    PetscCall(PetscSFReduceWithMemTypeBegin(data->ghosts, data->block, cuda, data->values, cuda, arrays.y, MPIU_SUM));
    PetscCall(PetscSFReduceEnd(data->ghosts, data->block, data->values, arrays.y, MPIU_SUM));
  } else {
    PetscCall(PetscSFBcastWithMemTypeBegin(data->ghosts, data->block, cuda, arrays.x, cuda, data->values, MPI_REPLACE));
    PetscCall(Multiply_BAIJCUDA(diagonal, arrays.x, arrays.z, arrays.y));
    PetscCall(PetscSFBcastEnd(data->ghosts, data->block, arrays.x, data->values, MPI_REPLACE));
    if (off->nnz) PetscCall(Multiply_BAIJCUDA(off, data->values, arrays.y, arrays.y));
  }
  PetscCall(RestoreProductArrays(x, z, y, &arrays));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- several ranks: operations ---------------------------------- */

/*
   Makes both parts MATSEQBAIJCUDA. PETSc makes them as MATSEQBAIJ, and makes new ones whenever an assembly has brought entries in
   new columns.
*/
static PetscErrorCode ConvertParts(Mat A)
{
  Mat       parts[2];
  PetscBool bound;

  PetscFunctionBegin;
  PetscCall(MatBoundToCPU(A, &bound));
  PetscCall(GetParts_BAIJCUDA(A, &parts[0], &parts[1], nullptr));
  for (Mat part : parts) {
    PetscBool plain;

    PetscCall(PetscObjectTypeCompare((PetscObject)part, MATSEQBAIJ, &plain));
    if (plain) PetscCall(MatConvert_BAIJ_BAIJCUDA<SeqBAIJCUDA>(part, MATSEQBAIJCUDA, MAT_INPLACE_MATRIX, &part));
    PetscCall(MatBindToCPU(part, bound));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatAssemblyEnd_MPIBAIJCUDA(Mat A, MatAssemblyType type)
{
  MPIBAIJCUDA *data = (MPIBAIJCUDA *)A->spptr;

  PetscFunctionBegin;
  PetscCall(data->base.assemblyend(A, type));
  if (type != MAT_FINAL_ASSEMBLY) PetscFunctionReturn(PETSC_SUCCESS);
  if (!A->was_assembled) PetscCall(DropCopies(data));
  PetscCall(ConvertParts(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whoever takes the diagonal block may multiply with this block, so a copy that has become stale is marked as stale first. */
static PetscErrorCode MatGetDiagonalBlock_MPIBAIJCUDA(Mat A, Mat *diagonal)
{
  PetscFunctionBegin;
  if (A->assembled) PetscCall(CheckState(A));
  PetscCall(((MPIBAIJCUDA *)A->spptr)->base.getdiagonalblock(A, diagonal));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatBindToCPU_MPIBAIJCUDA(Mat A, PetscBool bound)
{
  Mat diagonal, off;

  PetscFunctionBegin;
  if (bound) PetscCall(DropCopies((MPIBAIJCUDA *)A->spptr));
  if (A->assembled) {
    PetscCall(GetParts_BAIJCUDA(A, &diagonal, &off, nullptr));
    PetscCall(MatBindToCPU(diagonal, bound));
    PetscCall(MatBindToCPU(off, bound));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatView_MPIBAIJCUDA(Mat A, PetscViewer viewer)
{
  MPIBAIJCUDA   *data = (MPIBAIJCUDA *)A->spptr;
  PetscLogDouble mine = 0, all;

  PetscFunctionBegin;
  PetscCall(data->base.view(A, viewer));
  if (data->diagonal)
    for (Mat part : {data->diagonal, data->off}) mine += (PetscLogDouble)CopiedBytes((const SeqBAIJCUDA *)part->spptr);
  PetscCallMPI(MPIU_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)A)));
  PetscCall(ViewPlace(A, viewer, (size_t)all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   If the sum has new nonzeros, PETSc makes a new MATMPIBAIJ and replaces the contents of Y by it. Y therefore becomes a MATMPIBAIJ
   before, and is converted back afterwards.
*/
static PetscErrorCode MatAXPY_MPIBAIJCUDA(Mat Y, PetscScalar a, Mat X, MatStructure structure)
{
  PetscBool bound;

  PetscFunctionBegin;
  if (structure == SAME_NONZERO_PATTERN || structure == SUBSET_NONZERO_PATTERN) {
    PetscCall(((MPIBAIJCUDA *)Y->spptr)->base.axpy(Y, a, X, structure));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(MatBoundToCPU(Y, &bound));
  PetscCall(BecomeBase_BAIJCUDA<MPIBAIJCUDA>(Y));
  PetscUseTypeMethod(Y, axpy, a, X, structure);
  PetscCall(MatConvert_BAIJ_BAIJCUDA<MPIBAIJCUDA>(Y, MATMPIBAIJCUDA, MAT_INPLACE_MATRIX, &Y));
  PetscCall(MatBindToCPU(Y, bound));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   PETSc makes the submatrices of PCASM and PCBJACOBI, and that of PCFIELDSPLIT below, as matrices of the base types. They are
   converted in place, and PETSc fills them again as they are.
*/
static PetscErrorCode MatCreateSubMatrices_MPIBAIJCUDA(Mat A, PetscInt n, const IS rows[], const IS columns[], MatReuse reuse,
                                                       Mat *parts[])
{
  PetscFunctionBegin;
  PetscCall(((MPIBAIJCUDA *)A->spptr)->base.createsubmatrices(A, n, rows, columns, reuse, parts));
  if (reuse != MAT_INITIAL_MATRIX) PetscFunctionReturn(PETSC_SUCCESS);
  for (PetscInt k = 0; k < n; k++)
    PetscCall(MatConvert_BAIJ_BAIJCUDA<SeqBAIJCUDA>((*parts)[k], MATSEQBAIJCUDA, MAT_INPLACE_MATRIX, &(*parts)[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatCreateSubMatrix_MPIBAIJCUDA(Mat A, IS rows, IS columns, MatReuse reuse, Mat *part)
{
  PetscFunctionBegin;
  PetscCall(((MPIBAIJCUDA *)A->spptr)->base.createsubmatrix(A, rows, columns, reuse, part));
  if (reuse == MAT_INITIAL_MATRIX)
    PetscCall(MatConvert_BAIJ_BAIJCUDA<MPIBAIJCUDA>(*part, MATMPIBAIJCUDA, MAT_INPLACE_MATRIX, part));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- from type to type -------------------------------------- */

/* Calls replace(operation, ours) for each operation of the base type that the type replaces. */
template <typename Data, typename Replace>
static void ReplaceOperations(Replace replace)
{
  replace(&_MatOps::mult, Entry<MatMult_BAIJCUDA<Data, false>>);
  replace(&_MatOps::multadd, Entry<MatMultAdd_BAIJCUDA<Data, false>>);
  replace(&_MatOps::multtranspose, Entry<MatMult_BAIJCUDA<Data, true>>);
  replace(&_MatOps::multtransposeadd, Entry<MatMultAdd_BAIJCUDA<Data, true>>);
  replace(&_MatOps::multhermitiantranspose, Entry<MatMult_BAIJCUDA<Data, true>>);
  replace(&_MatOps::multhermitiantransposeadd, Entry<MatMultAdd_BAIJCUDA<Data, true>>);
  replace(&_MatOps::destroy, Entry<MatDestroy_BAIJCUDA<Data>>);
  if constexpr (std::is_same_v<Data, SeqBAIJCUDA>) {
    replace(&_MatOps::assemblyend, Entry<MatAssemblyEnd_SeqBAIJCUDA>);
    replace(&_MatOps::duplicate, Entry<MatDuplicate_SeqBAIJCUDA>);
    replace(&_MatOps::bindtocpu, Entry<MatBindToCPU_SeqBAIJCUDA>);
    replace(&_MatOps::view, Entry<MatView_SeqBAIJCUDA>);
    replace(&_MatOps::lufactor, Entry<MatLUFactor_SeqBAIJCUDA>);
    replace(&_MatOps::destroysubmatrices, Entry<MatDestroySubMatrices_SeqBAIJCUDA>);
  } else {
    replace(&_MatOps::assemblyend, Entry<MatAssemblyEnd_MPIBAIJCUDA>);
    replace(&_MatOps::getdiagonalblock, Entry<MatGetDiagonalBlock_MPIBAIJCUDA>);
    replace(&_MatOps::bindtocpu, Entry<MatBindToCPU_MPIBAIJCUDA>);
    replace(&_MatOps::view, Entry<MatView_MPIBAIJCUDA>);
    replace(&_MatOps::axpy, Entry<MatAXPY_MPIBAIJCUDA>);
    replace(&_MatOps::createsubmatrix, Entry<MatCreateSubMatrix_MPIBAIJCUDA>);
    replace(&_MatOps::createsubmatrices, Entry<MatCreateSubMatrices_MPIBAIJCUDA>);
  }
}

/* A MATAIJ is converted to a MATBAIJ first, and then in place. */
static PetscErrorCode MatConvert_AIJ_BAIJCUDA(Mat A, MatType, MatReuse reuse, Mat *newmat)
{
  Mat B;

  PetscFunctionBegin;
  PetscCall(MatConvert(A, MATBAIJ, MAT_INITIAL_MATRIX, &B));
  PetscCall(MatConvert(B, MATBAIJCUDA, MAT_INPLACE_MATRIX, &B));
  if (reuse == MAT_INITIAL_MATRIX) *newmat = B;
  else PetscCall(MatHeaderReplace(reuse == MAT_INPLACE_MATRIX ? A : *newmat, &B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

using Conversion = PetscErrorCode (*)(Mat, MatType, MatReuse, Mat *);

static PetscErrorCode ComposeConversion(Mat A, const char from[], const char to[], Conversion convert)
{
  char name[128];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_%s_%s_C", from, to));
  PetscCall(PetscObjectComposeFunction((PetscObject)A, name, convert));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Composes the methods of a type, or takes them away if `set` is false. MatConvert() finds a conversion by the names of both types,
   so that those of the base type are composed under the name of the new type, too.
*/
template <typename Data>
static PetscErrorCode ComposeMethods_BAIJCUDA(Mat A, bool set)
{
  PetscFunctionBegin;
  for (const char *other : Data::kOthers) {
    char       name[128];
    Conversion convert;

    PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_%s_%s_C", Data::kBase, other));
    PetscCall(PetscObjectQueryFunction((PetscObject)A, name, &convert));
    if (convert) PetscCall(ComposeConversion(A, Data::kType, other, set ? convert : nullptr));
  }
  PetscCall(ComposeConversion(A, Data::kBase, Data::kType, set ? Entry<MatConvert_BAIJ_BAIJCUDA<Data>> : nullptr));
  PetscCall(ComposeConversion(A, Data::kType, Data::kBase, set ? Entry<MatConvert_BAIJCUDA_BAIJ<Data>> : nullptr));
  PetscCall(ComposeConversion(A, Data::kOthers[0], Data::kType, set ? Entry<MatConvert_AIJ_BAIJCUDA> : nullptr));
  if constexpr (std::is_same_v<Data, SeqBAIJCUDA>)
    PetscCall(PetscObjectComposeFunction((PetscObject)A, kDeviceBlocksQuery, set ? Entry<GetDeviceBlocks_BAIJCUDA> : nullptr));
  else PetscCall(PetscObjectComposeFunction((PetscObject)A, kPartsQuery, set ? Entry<GetCheckedParts> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives a matrix the operations of its base type again, and frees all that the type has added. Parts keep their types. */
template <typename Data>
static PetscErrorCode Leave_BAIJCUDA(Mat A)
{
  Data *data = (Data *)A->spptr;

  PetscFunctionBegin;
  ReplaceOperations<Data>([&](auto operation, auto) { A->ops->*operation = data->base.*operation; });
  PetscCall(ComposeMethods_BAIJCUDA<Data>(A, false));
  PetscCall(DropCopies(data));
  PetscCall(PetscFree(data));
  A->spptr = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename Data>
static PetscErrorCode BecomeBase_BAIJCUDA(Mat A)
{
  PetscFunctionBegin;
  PetscCall(Leave_BAIJCUDA<Data>(A));
  PetscCall(PetscObjectChangeTypeName((PetscObject)A, Data::kBase));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename Data>
static PetscErrorCode MatDestroy_BAIJCUDA(Mat A)
{
  PetscFunctionBegin;
  PetscCall(Leave_BAIJCUDA<Data>(A));
  PetscUseTypeMethod(A, destroy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename Data>
static PetscErrorCode MatConvert_BAIJCUDA_BAIJ(Mat A, MatType, MatReuse reuse, Mat *newmat)
{
  PetscFunctionBegin;
  if (reuse == MAT_REUSE_MATRIX) {
    PetscCall(MatCopy(A, *newmat, SAME_NONZERO_PATTERN));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (reuse == MAT_INITIAL_MATRIX) PetscCall(MatDuplicate(A, MAT_COPY_VALUES, newmat));
  if constexpr (std::is_same_v<Data, MPIBAIJCUDA>) {
    Mat parts[2];

    PetscCall(GetParts_BAIJCUDA(*newmat, &parts[0], &parts[1], nullptr));
    for (Mat part : parts) PetscCall(MatConvert(part, MATSEQBAIJ, MAT_INPLACE_MATRIX, &part));
  }
  PetscCall(BecomeBase_BAIJCUDA<Data>(*newmat));
  PetscCall(MatSetVecType(*newmat, VECSTANDARD));
  PetscCall(MatBindToCPU(*newmat, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename Data>
static PetscErrorCode MatConvert_BAIJ_BAIJCUDA(Mat A, MatType, MatReuse reuse, Mat *newmat)
{
  Data     *data;
  PetscBool done;

  PetscFunctionBegin;
  if (reuse == MAT_REUSE_MATRIX) {
    PetscCall(MatCopy(A, *newmat, SAME_NONZERO_PATTERN));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (reuse == MAT_INITIAL_MATRIX) PetscCall(MatDuplicate(A, MAT_COPY_VALUES, newmat));
  Mat B = *newmat;
  PetscCall(PetscObjectTypeCompare((PetscObject)B, Data::kType, &done)); /* PETSc 3.18 makes submatrices of the same type */
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(&data));
  B->spptr   = data;
  data->base = B->ops[0];
  ReplaceOperations<Data>([&](auto operation, auto ours) { B->ops->*operation = ours; });
  PetscCall(ComposeMethods_BAIJCUDA<Data>(B, true));
  PetscCall(PetscObjectChangeTypeName((PetscObject)B, Data::kType));
  if constexpr (std::is_same_v<Data, MPIBAIJCUDA>) {
    data->block  = MPIU_SCALAR;
    data->copied = data->transposed = kNoState;
    if (B->assembled) PetscCall(ConvertParts(B));
  }
  PetscCall(OpenToDevice(B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ creation ------------------------------------------ */

template <typename Data>
static PetscErrorCode Create_BAIJCUDA(Mat A)
{
  PetscFunctionBegin;
  PetscCall(MatSetType(A, Data::kBase));
  PetscCall(MatConvert_BAIJ_BAIJCUDA<Data>(A, Data::kType, MAT_INPLACE_MATRIX, &A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  MATBAIJCUDA - "baijcuda" - `MATBAIJ` whose products with vectors run on an NVIDIA GPU

  Options Database Key:
. -mat_type baijcuda - with `MatSetFromOptions()`; `-dm_mat_type baijcuda` for the matrices of a `DM`

  Level: beginner

  Notes:
  `MATBAIJCUDA` is `MATSEQBAIJCUDA` on one rank and `MATMPIBAIJCUDA` on several. Everything is inherited from `MATBAIJ` and works on
  the host: setting values, preallocation, norms, rows, submatrices, factorizations. `MatMult()`, `MatMultAdd()`,
  `MatMultTranspose()` and `MatMultTransposeAdd()` run on the GPU with vectors of type `VECCUDA`, and `MatCreateVecs()` creates such
  vectors if there is a GPU. If any of the vectors is not on the GPU, or if the matrix or a vector is bound to the CPU by
  `MatBindToCPU()` or `VecBindToCPU()`, the product is that of `MATBAIJ` on the host. The vectors of a `DM` are chosen by
  `-dm_vec_type cuda`.

  The GPU has a copy of the matrix, in double precision. The first product after a change of the values copies the values; the
  nonzero pattern is copied only if it has changed, too. A product with the transpose also makes a copy of the transpose.
  `MatBindToCPU()` frees the copies. The view says where products run and how many bytes the copies take.

  There are kernels for each block size up to 8 and a general kernel for block sizes up to 32. For larger block sizes a product on
  the GPU is an error, and the matrix or the vectors must be on the host.

  On several ranks `PetscSF` exchanges the values of other ranks while the product with the diagonal block runs. The values go from
  device to device where MPI is GPU-aware, and through the host with `-use_gpu_aware_mpi 0`.

  Submatrices of a `MATBAIJCUDA` are also `MATBAIJCUDA`, so the preconditioners within `PCASM`, `PCBJACOBI` and `PCFIELDSPLIT` run
  on the GPU, too. Their values are gathered on the host.

  `MatConvert()` converts from `MATBAIJ` and `MATAIJ` to `MATBAIJCUDA` and back.

.seealso: `MATBAIJ`, `MATAIJCUSPARSE`, `MatBindToCPU()`, `MatSetVecType()`, `FinePCInitializePackage()`
M*/

/*MC
  MATSEQBAIJCUDA - "seqbaijcuda" - `MATBAIJCUDA` on one rank

  Options Database Key:
. -mat_type seqbaijcuda - with `MatSetFromOptions()`

  Level: beginner

.seealso: `MATBAIJCUDA`, `MATMPIBAIJCUDA`, `MATSEQBAIJ`
M*/

/*@C
  MatCreate_SeqBAIJCUDA - Makes a matrix a `MATSEQBAIJCUDA`, after registering finepc if nothing has done so; for `MatRegister()`

  Collective

  Input Parameter:
. A - the matrix

  Level: developer

.seealso: `MATSEQBAIJCUDA`, `MatRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode MatCreate_SeqBAIJCUDA(Mat A)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_BAIJCUDA<SeqBAIJCUDA>>(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  MATMPIBAIJCUDA - "mpibaijcuda" - `MATBAIJCUDA` on several ranks

  Options Database Key:
. -mat_type mpibaijcuda - with `MatSetFromOptions()`

  Level: beginner

.seealso: `MATBAIJCUDA`, `MATSEQBAIJCUDA`, `MATMPIBAIJ`
M*/

/*@C
  MatCreate_MPIBAIJCUDA - Makes a matrix a `MATMPIBAIJCUDA`, after registering finepc if nothing has done so; for `MatRegister()`

  Collective

  Input Parameter:
. A - the matrix

  Level: developer

.seealso: `MATMPIBAIJCUDA`, `MatRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode MatCreate_MPIBAIJCUDA(Mat A)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_BAIJCUDA<MPIBAIJCUDA>>(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}
