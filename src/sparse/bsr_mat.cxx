/* Only this file and bsr_mat.h know where PETSc's matrix types keep their blocks, and how a MATBAIJ is made of blocks. */
#include <petsc/private/petscimpl.h>

#include "ranks/agree.h"
#include "bsr_csr.h"
#include "bsr_mat.h"
#include "offload.h"
#include "entry.h"

static PetscScalar BSRValue(const BSR *W, size_t k)
{
  return W->precision == FINEPC_SINGLE ? (PetscScalar)((const float *)W->a)[k] : ((const double *)W->a)[k];
}

/* Copies the blocks of A into memory of the given kind. With keep, the copy has the pattern already and gets new values only. */
static PetscErrorCode CopyBlocks(const BSRView *A, PetscMemType where, PetscBool keep, BSR *copy)
{
  PetscFunctionBegin;
  if (!keep) {
    PetscCall(BSRDestroy(copy));
    PetscCall(BSRCreate(A->bs, A->n, A->n, A->nnz, FINEPC_DOUBLE, where, copy));
    PetscCall(ArrayCopy(copy->i, A->i, (A->n + 1) * sizeof(*A->i), where, A->where));
    PetscCall(ArrayCopy(copy->j, A->j, A->nnz * sizeof(*A->j), where, A->where));
  }
  PetscCall(ArrayCopy(copy->a, A->a, (size_t)A->nnz * A->bs * A->bs * sizeof(*A->a), where, A->where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Borrows the blocks of a MATSEQBAIJ, or with `upper` those of a MATSEQSBAIJ. */
static PetscErrorCode GetBAIJ(BSRMat *bsr, PetscBool upper = PETSC_FALSE)
{
  const PetscInt *i, *j;
  PetscInt        n, bs;
  PetscScalar    *a;
  BSRView        *A = &bsr->A;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(bsr->local, &bs));
  PetscCall(MatLendRows(bsr->local, PETSC_TRUE, &n, &i, &j));
  A->where = PETSC_MEMTYPE_HOST;
  PetscCall(LocalIntCast(n * bs, "rows", &A->n));
  PetscCall(LocalIntCast(i[n], "blocks", &A->nnz));
  A->n = (LocalInt)n;
  PetscCall(MatGetLocalPattern(bsr->local, A->where, A->n, A->nnz, i, j, &A->i, &A->j));
  PetscCall((upper ? MatSeqSBAIJGetArray : MatSeqBAIJGetArray)(bsr->local, &a));
  A->a          = a;
  bsr->borrowed = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An error if the blocks of a MATSEQBAIJ are not in the order of their columns, as a program may give them with arrays of its own.
 */
static PetscErrorCode CheckOrder(Mat local)
{
  const PetscInt *i, *j;
  PetscInt        n;

  PetscFunctionBegin;
  PetscCall(MatLendRows(local, PETSC_TRUE, &n, &i, &j));
  for (PetscInt row = 0; row < n; row++)
    for (PetscInt k = i[row] + 1; k < i[row + 1]; k++)
      PetscCheck(j[k] > j[k - 1], PETSC_COMM_SELF, PETSC_ERR_ARG_WRONG,
                 "The blocks of block row %" PetscInt_FMT " are not in ascending order of their columns, or one is there twice: "
                 "assemble the matrix with MatSetValuesBlocked()",
                 row);
  PetscCall(MatTakeRowsBack(local, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   MatSeqBAIJRestoreArray() raises the state of the matrix as if its values had changed, and then every PCApply() would set up
   again. The state is therefore put back to what it was.
*/
static PetscErrorCode RestoreBAIJ(BSRMat *bsr, PetscBool upper = PETSC_FALSE)
{
  PetscScalar     *a = (PetscScalar *)bsr->A.a;
  PetscObjectState state;

  PetscFunctionBegin;
  PetscCall(PetscObjectStateGet((PetscObject)bsr->local, &state));
  PetscCall((upper ? MatSeqSBAIJRestoreArray : MatSeqBAIJRestoreArray)(bsr->local, &a));
  PetscCall(PetscObjectStateSet((PetscObject)bsr->local, state));
  PetscCall(MatTakeRowsBack(bsr->local, PETSC_TRUE));
  bsr->borrowed = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the blocks of an AIJ matrix that has lent its rows. With keep, the copy has the pattern already and gets new values only.
 */
static PetscErrorCode BlocksOfSorted(const CSRView *A, LocalInt bs, PetscMemType where, PetscBool keep, BSR *copy)
{
  PetscFunctionBegin;
  if (A->where == where) {
    if (PetscMemTypeDevice(where)) PetscCall(BSRFromCSR_CUDA(A, bs, keep, copy));
    else PetscCall(BSRFromCSR_Host(A, bs, keep, copy));
  } else { /* the entries are on the host, and the blocks are wanted on the device */
    BSR blocks{};

    PetscCall(BSRFromCSR_Host(A, bs, PETSC_FALSE, &blocks));
    const BSRView        view = BSRViewOf(&blocks);
    const PetscErrorCode code = CopyBlocks(&view, where, keep, copy);
    PetscCall(BSRDestroy(&blocks));
    PetscCall(code);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same of rows whose columns may have any order. */
static PetscErrorCode BlocksOfAIJ(const CSRView *A, LocalInt bs, PetscMemType where, PetscBool keep, BSR *copy, LocalInt *unsorted)
{
  CSR            sorted{};
  PetscErrorCode code = PETSC_SUCCESS;
  CSRView        rows = *A;

  PetscFunctionBegin;
  PetscCall((PetscMemTypeDevice(A->where) ? CSRCountUnsorted_CUDA : CSRCountUnsorted_Host)(A, unsorted));
  if (*unsorted) {
    code = CallGuarded(CSRSort, A, &sorted);
    rows = CSRView{A->n, sorted.nnz, sorted.i, sorted.j, (const PetscScalar *)sorted.a, A->where};
  }
  if (!code) code = CallGuarded(BlocksOfSorted, (const CSRView *)&rows, bs, where, keep, copy);
  PetscCall(CSRDestroy(&sorted));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetBSR(Mat A, PetscMemType where, PetscBool keep, BSR *copy, BSRMat *bsr)
{
  PetscBool is_aij, is_baij;
  PetscInt  bs, column_bs;

  PetscFunctionBegin;
  *bsr = BSRMat{};
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_aij, MATSEQAIJ, MATMPIAIJ, ""));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_baij, MATSEQBAIJ, MATMPIBAIJ, ""));
  if (!is_aij && !is_baij)
    PetscCall(MatRefuseType(A, "MATBAIJ, MATAIJ with a block size, and their subtypes",
                            "use MatConvert(), -mat_type baij or -mat_type aij"));
  PetscCall(MatCheckLayout(A));
  PetscCall(MatGetBlockSizes(A, &bs, &column_bs));
  PetscCheck(bs == column_bs, PetscObjectComm((PetscObject)A), PETSC_ERR_SUP,
             "Blocks are %" PetscInt_FMT " by %" PetscInt_FMT ", but must be square: call MatSetBlockSize()", bs, column_bs);
  PetscCheck(bs <= kLargestBlock, PetscObjectComm((PetscObject)A), PETSC_ERR_SUP,
             "Blocks have %" PetscInt_FMT " rows, but at most %" LocalInt_FMT
             " are supported: set a smaller block size with MatSetBlockSize()",
             bs, kLargestBlock);
  PetscCall(MatGetDiagonalBlock(A, &bsr->local));
  bsr->A.bs = (LocalInt)bs;
  keep      = (PetscBool)(keep && copy->i); /* there may be no copy, if the matrix was converted in place since the last set-up */
  if (is_baij) {
    PetscErrorCode (*query)(Mat, const BSR **);

    if (!keep) PetscCall(CheckOrder(bsr->local));
    PetscCall(PetscObjectQueryFunction((PetscObject)bsr->local, kDeviceBlocksQuery, &query));
    if (query && PetscMemTypeDevice(where)) {
      const BSR *blocks;

      PetscCall((*query)(bsr->local, &blocks));
      bsr->A = BSRViewOf(blocks);
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(GetBAIJ(bsr));
    if (!PetscMemTypeDevice(where)) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(CopyBlocks(&bsr->A, where, keep, copy));
    PetscCall(RestoreBAIJ(bsr));
  } else {
    if (PetscMemTypeDevice(where)) PetscCall(MatGetCSR(A, &bsr->csr));
    else PetscCall(MatGetHostCSR(A, &bsr->csr));
    if (!keep) PetscCall(BSRDestroy(copy));
    const PetscErrorCode code = BlocksOfAIJ(&bsr->csr.A, bsr->A.bs, where, keep, copy, &bsr->unsorted);
    PetscCall(MatRestoreCSR(&bsr->csr));
    PetscCall(code);
  }
  bsr->A = BSRViewOf(copy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the copy of blocks in either memory. With keep, it has the pattern already. */
static PetscErrorCode CopyPoints_BSR(const BSRView *B, PetscBool keep, MatPoints *points)
{
  PetscFunctionBegin;
  if (!keep) PetscCall(CSRDestroy(&points->copy));
  if (points->upper) PetscCall(CSRFromUpperBSR(B, keep, &points->copy));
  else if (PetscMemTypeDevice(B->where)) PetscCall(CSRFromBSR_CUDA(B, keep, &points->copy));
  else PetscCall(CSRFromBSR_Host(B, keep, &points->copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether an older copy has the pattern of the blocks. */
static bool FitsPoints(const BSRView *B, PetscBool upper, const MatPoints *points)
{
  return points->copy.i && points->bs == B->bs && points->upper == upper && points->copy.where == B->where &&
         points->copy.rows == B->n * B->bs;
}

static PetscErrorCode GetDevicePoints(const BSR *blocks, PetscBool keep, MatPoints *points)
{
  const BSRView B = BSRViewOf(blocks);

  PetscFunctionBegin;
  keep          = (PetscBool)(keep && FitsPoints(&B, PETSC_FALSE, points));
  points->upper = PETSC_FALSE;
  PetscCall(CopyPoints_BSR(&B, keep, points));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetHostPoints(BSRMat *bsr, PetscBool upper, PetscBool keep, MatPoints *points)
{
  PetscFunctionBegin;
  PetscCall(GetBAIJ(bsr, upper));
  keep                      = (PetscBool)(keep && FitsPoints(&bsr->A, upper, points));
  points->upper             = upper;
  const PetscErrorCode code = CallGuarded(CopyPoints_BSR, (const BSRView *)&bsr->A, keep, points);
  PetscCall(RestoreBAIJ(bsr, upper));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The entries of blocks that the host has, sent to the GPU. With keep, a copy there that fits has their pattern. */
static PetscErrorCode SendPoints(BSRMat *bsr, PetscBool upper, PetscBool keep, MatPoints *points)
{
  MatPoints host{};
  CSR      *copy = &points->copy;

  PetscFunctionBegin;
  PetscCall(GetHostPoints(bsr, upper, PETSC_FALSE, &host));
  const CSR &W = host.copy;
  keep         = (PetscBool)(keep && copy->i && copy->rows == W.rows && copy->nnz == W.nnz && PetscMemTypeDevice(copy->where));
  if (!keep) PetscCall(CSRDestroy(copy));
  PetscErrorCode code = keep ? ArrayCopy(copy->a, W.a, W.nnz * sizeof(PetscScalar), copy->where, W.where)
                             : CallGuarded(CSRDuplicate, &W, PETSC_MEMTYPE_CUDA, copy);
  PetscCall(CSRDestroy(&host.copy));
  PetscCall(code);
  points->upper = upper;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The single entries of a part of a matrix of blocks, in the memory where those of the matrix belong. */
static PetscErrorCode GetPointsOf(Mat A, Mat part, PetscBool upper, PetscBool keep, MatPoints *points, CSRMat *csr)
{
  PetscInt     bs;
  PetscMemType where;
  PetscBool    offloaded;
  BSRMat       bsr{};
  PetscErrorCode (*query)(Mat, const BSR **);

  PetscFunctionBegin;
  bsr.local = part;
  PetscCall(MatGetBlockSize(part, &bs));
  PetscCall(LocalIntCast(bs, "rows in a block", &bsr.A.bs));
  PetscCall(MatGetBSRMemType(A, &where));
  PetscCall(MatIsOffloaded(A, &offloaded));
  PetscCall(PetscObjectQueryFunction((PetscObject)part, kDeviceBlocksQuery, &query));
  if (query && PetscMemTypeDevice(where)) {
    const BSR *blocks;

    PetscCall((*query)(part, &blocks));
    PetscCall(GetDevicePoints(blocks, keep, points));
  } else if (kHasCUDA && offloaded) PetscCall(SendPoints(&bsr, upper, keep, points));
  else PetscCall(GetHostPoints(&bsr, upper, keep, points));
  points->bs   = bsr.A.bs;
  const CSR &W = points->copy;
  csr->A       = CSRView{W.rows, W.nnz, W.i, W.j, (const PetscScalar *)W.a, W.where};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetPoints(Mat A, PetscBool keep, MatPoints *points, CSRMat *csr)
{
  PetscBool is_aij, is_baij, is_upper;
  Mat       local;

  PetscFunctionBegin;
  *csr = CSRMat{};
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_aij, MATSEQAIJ, MATMPIAIJ, ""));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_baij, MATSEQBAIJ, MATMPIBAIJ, ""));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_upper, MATSEQSBAIJ, MATMPISBAIJ, ""));
  if (is_aij) {
    PetscCall(CSRDestroy(&points->copy));
    *points = MatPoints{};
    PetscCall(MatGetCSR(A, csr));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!is_baij && !is_upper)
    PetscCall(
      MatRefuseType(A, "MATAIJ, MATBAIJ, MATSBAIJ and their subtypes such as MATAIJCUSPARSE", "use MatConvert() or -mat_type aij"));
  PetscCall(MatCheckLayout(A));
  PetscCall(MatGetDiagonalBlock(A, &local));
  PetscCall(GetPointsOf(A, local, is_upper, keep, points, csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The part of a parallel matrix of blocks in the columns of other ranks, and the numbers of its block columns. */
static PetscErrorCode GetOtherBlocks(Mat A, Mat *other, const PetscInt **columns)
{
  Mat own;
  PetscErrorCode (*query)(Mat, Mat *, Mat *, const PetscInt **);

  PetscFunctionBegin;
  PetscCall(PetscObjectQueryFunction((PetscObject)A, kPartsQuery, &query));
  PetscCall((query ? query : MatMPIBAIJGetSeqBAIJ)(A, &own, other, columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetOtherPoints(Mat A, PetscBool keep, MatPoints *points, CSRMat *csr)
{
  Mat             other;
  PetscBool       is_aij;
  const PetscInt *columns;

  PetscFunctionBegin;
  *csr = CSRMat{};
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is_aij));
  if (is_aij) {
    PetscCall(CSRDestroy(&points->copy));
    *points = MatPoints{};
    PetscCall(MatGetOtherCSR(A, csr));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GetOtherBlocks(A, &other, &columns));
  PetscCall(GetPointsOf(A, other, PETSC_FALSE, keep, points, csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetOtherColumns(Mat A, std::vector<PetscInt> *numbers)
{
  Mat             other;
  PetscInt        count, bs = 1;
  PetscBool       is_aij;
  const PetscInt *columns;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is_aij));
  if (is_aij) PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &other, &columns));
  else {
    PetscCall(GetOtherBlocks(A, &other, &columns));
    PetscCall(MatGetBlockSize(A, &bs));
  }
  PetscCall(MatGetSize(other, nullptr, &count));
  numbers->resize(count);
  for (PetscInt c = 0; c < count; c++) (*numbers)[c] = columns[c / bs] * bs + c % bs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Puts those entries of a row that are in its block on the diagonal, or of that those of the upper triangle, into both triangles.
 */
static PetscErrorCode PutRowOfBlock(Mat A, PetscInt row, PetscInt bs, PetscBool upper, Mat aij)
{
  const PetscInt     begin = upper ? row : row - row % bs, end = row - row % bs + bs;
  const PetscInt    *columns;
  const PetscScalar *values;
  PetscInt           count, first = 0, last;

  PetscFunctionBegin;
  PetscCall(MatGetRow(A, row, &count, &columns, &values));
  while (first < count && columns[first] < begin) first++;
  for (last = first; last < count && columns[last] < end;) last++;
  PetscCall(MatSetValues(aij, 1, &row, last - first, columns + first, values + first, INSERT_VALUES));
  if (upper) PetscCall(MatSetValues(aij, last - first, columns + first, 1, &row, values + first, INSERT_VALUES));
  PetscCall(MatRestoreRow(A, row, &count, &columns, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatConvertBlocks(Mat A, MatReuse reuse, Mat *aij)
{
  constexpr PetscInt kLargest = 7; /* PETSc multiplies with all entries of larger blocks */
  PetscInt           begin, end, bs;
  PetscObjectState   state;
  PetscBool          symmetric;

  PetscFunctionBegin;
  PetscCall(PetscObjectStateGet((PetscObject)A, &state));
  PetscCall(MatConvert(A, MATMPIAIJ, reuse, aij));
  PetscCall(PetscObjectStateSet((PetscObject)A, state));
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPISBAIJ, &symmetric));
  PetscCall(MatGetOwnershipRange(A, &begin, &end));
  PetscCall(MatGetBlockSize(A, &bs));
  if (!symmetric || bs == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetRowUpperTriangular(A));
  for (PetscInt row = begin; row < end; row++) PetscCall(PutRowOfBlock(A, row, bs, (PetscBool)(bs <= kLargest), *aij));
  PetscCall(MatRestoreRowUpperTriangular(A));
  PetscCall(MatAssemblyBegin(*aij, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*aij, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- pattern ------------------------------------------ */

/* The next number of a sequence. */
static void AddNumber(uint64_t number, uint64_t *hash)
{
  uint64_t h = (*hash ^ number) * 0x9e3779b97f4a7c15u;
  h          = (h ^ h >> 32) * 0xbf58476d1ce4e5b9u;
  *hash      = h ^ h >> 29;
}

uint64_t HashNumbers(PetscInt count, const PetscInt numbers[])
{
  uint64_t hash = (uint64_t)count;
  for (PetscInt k = 0; k < count; k++) AddNumber((uint64_t)numbers[k], &hash);
  return hash;
}

/* Adds the hash of rows, wherever they are. */
static PetscErrorCode AddRows_MatPattern(const CSRView *A, MatPattern *pattern, uint64_t *hash)
{
  const bool on_device = PetscMemTypeDevice(A->where);
  uint64_t   rows;

  PetscFunctionBegin;
  if (on_device && !pattern->work) PetscCall(ArrayCreate(sizeof(*pattern->work), A->where, (void **)&pattern->work));
  PetscCall((on_device ? CSRHash_CUDA : CSRHash_Host)(A, pattern->work, &rows));
  AddNumber(rows, hash);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AddLentRows(CSRMat *csr, MatPattern *pattern, uint64_t *hash)
{
  PetscFunctionBegin;
  const PetscErrorCode code = AddRows_MatPattern(&csr->A, pattern, hash), restored = MatRestoreCSR(csr);
  PetscCall(code);
  PetscCall(restored);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The block rows of a sequential matrix of blocks, which the host has, whatever is on the device. */
static PetscErrorCode AddBlocks(Mat part, MatPattern *pattern, uint64_t *hash)
{
  const PetscInt *i, *j;
  PetscInt        n;
  CSRView         A{};

  PetscFunctionBegin;
  PetscCall(MatLendRows(part, PETSC_TRUE, &n, &i, &j));
  A.where = PETSC_MEMTYPE_HOST;
  PetscCall(LocalIntCast(n, "rows", &A.n));
  PetscCall(LocalIntCast(n ? i[n] : 0, "blocks", &A.nnz));
  PetscCall(MatGetLocalPattern(part, A.where, A.n, A.nnz, i, j, &A.i, &A.j));
  PetscCall(AddRows_MatPattern(&A, pattern, hash));
  PetscCall(MatTakeRowsBack(part, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of the upper triangle of a parallel MATSBAIJ, whose parts PETSc does not give. */
static PetscErrorCode AddUpperRows(Mat A, uint64_t *hash)
{
  PetscInt        begin, end, count;
  const PetscInt *columns;

  PetscFunctionBegin;
  PetscCall(MatGetOwnershipRange(A, &begin, &end));
  PetscCall(MatGetRowUpperTriangular(A));
  for (PetscInt row = begin; row < end; row++) {
    PetscCall(MatGetRow(A, row, &count, &columns, nullptr));
    AddNumber(HashNumbers(count, columns), hash);
    PetscCall(MatRestoreRow(A, row, &count, &columns, nullptr));
  }
  PetscCall(MatRestoreRowUpperTriangular(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The hash of this rank's rows, or 0 where the type is not known. */
static PetscErrorCode HashRows(Mat A, MatPattern *pattern, uint64_t *hash)
{
  PetscBool       is_aij, is_baij, is_mpi, is_upper;
  Mat             local, other;
  PetscInt        bs, count;
  const PetscInt *columns;
  CSRMat          csr;
  MatGroup       *group;

  PetscFunctionBegin;
  *hash = 0;
  PetscCall(MatGetGroup(A, &group)); /* of its ranks the leaders alone use a GPU, with a matrix of their own */
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_aij, MATSEQAIJ, MATMPIAIJ, ""));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_baij, MATSEQBAIJ, MATMPIBAIJ, MATSEQSBAIJ, ""));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_mpi, MATMPIAIJ, MATMPIBAIJ, ""));
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPISBAIJ, &is_upper));
  if (!is_aij && !is_baij && !is_upper) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetBlockSize(A, &bs));
  *hash = (uint64_t)bs;
  if (is_upper) PetscCall(AddUpperRows(A, hash));
  else if (is_aij) {
    PetscCall((group ? MatGetHostCSR : MatGetCSR)(A, &csr));
    PetscCall(AddLentRows(&csr, pattern, hash));
  } else {
    PetscCall(MatGetDiagonalBlock(A, &local));
    PetscCall(AddBlocks(local, pattern, hash));
  }
  if (!is_mpi) PetscFunctionReturn(PETSC_SUCCESS);
  if (is_aij) {
    PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &other, &columns));
    if (group) PetscCall(MatGetPartOnHost(other, &csr));
    else PetscCall(MatGetOtherCSR(A, &csr));
    PetscCall(AddLentRows(&csr, pattern, hash));
  } else {
    PetscCall(GetOtherBlocks(A, &other, &columns));
    PetscCall(AddBlocks(other, pattern, hash));
  }
  PetscCall(MatGetLocalSize(other, nullptr, &count));
  AddNumber(HashNumbers(is_aij ? count : count / bs, columns), hash);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatFollowPattern(Mat A, MatPattern *pattern, PetscBool *same)
{
  PetscObjectId    id;
  PetscObjectState state;
  PetscBool        assembled;
  uint64_t         hash;

  PetscFunctionBegin;
  PetscCall(MatAssembled(A, &assembled));
  *same = assembled;
  if (!assembled) pattern->hash = 0; /* it has no rows to look at, which the caller makes an error of */
  if (!assembled) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectGetId((PetscObject)A, &id));
  PetscCall(PetscObjectStateGet((PetscObject)A, &state));
  if (pattern->hash && pattern->id == id && pattern->state == state) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(HashRows(A, pattern, &hash));
  *same          = (PetscBool)(hash && hash == pattern->hash);
  pattern->id    = id;
  pattern->state = state;
  pattern->hash  = hash;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatFreePatternWork(MatPattern *pattern)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&pattern->work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetGhostSF(Mat A, PetscInt count, const PetscInt columns[], PetscSF *sf)
{
  PetscLayout layout;
  PetscBool   is_aij, has_lists = PETSC_FALSE;

  PetscFunctionBegin;
  *sf = nullptr;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is_aij));
  if (is_aij) { /* the matrix has it already; where each rank needs all entries of all others, it has no lists */
    PetscCall(MatGetMultPetscSF(A, sf));
    if (*sf) PetscCall(PetscObjectTypeCompareAny((PetscObject)*sf, &has_lists, PETSCSFBASIC, PETSCSFNEIGHBOR, ""));
    if (has_lists) {
      PetscCall(PetscObjectReference((PetscObject)*sf));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  PetscCall(MatGetLayouts(A, nullptr, &layout));
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), sf));
  PetscCall(PetscSFSetGraphLayout(*sf, layout, count, nullptr, PETSC_COPY_VALUES, columns));
  PetscCall(PetscSFSetUp(*sf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatRestoreBSR(BSRMat *bsr)
{
  PetscFunctionBegin;
  if (bsr->borrowed) PetscCall(RestoreBAIJ(bsr));
  *bsr = BSRMat{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix of a type that knows no device is bound to the CPU from the start. For such types the vectors alone decide. */
PetscErrorCode MatGetBSRMemType(Mat A, PetscMemType *where)
{
  VecType   type;
  PetscBool is_cuda, is_host_type, bound, offloaded;

  PetscFunctionBegin;
  PetscCall(MatGetVecType(A, &type));
  PetscCall(PetscStrcmpAny(type, &is_cuda, VECCUDA, VECSEQCUDA, VECMPICUDA, ""));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &is_host_type, MATSEQBAIJ, MATMPIBAIJ, MATSEQAIJ, MATMPIAIJ, ""));
  PetscCall(MatBoundToCPU(A, &bound));
  PetscCall(MatIsOffloaded(A, &offloaded));
  *where =
    kHasCUDA && (offloaded || (kPetscHasCUDA && is_cuda && (is_host_type || !bound))) ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A factor on the host, as it is kept and as PETSc takes it. */
struct BlocksOnHost {
  BSR          own;
  PetscInt    *i, *j;
  PetscScalar *a;
};

/* What a rank does alone. */
static PetscErrorCode CopyFactor_BSR(const BSR *W, PetscBool unit, BlocksOnHost *host)
{
  PetscInt nnz;

  PetscFunctionBegin;
  PetscCall(PetscIntSumError(W->nnz, unit ? W->rows : 0, &nnz));
  PetscCall(BSRCopy(W, PETSC_MEMTYPE_HOST, &host->own));
  PetscCall(PetscMalloc3(W->rows + 1, &host->i, nnz, &host->j, nnz * (size_t)W->bs * W->bs, &host->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows, of which `first` is the number of the first one in the matrix; blocks by rows, where ours are by columns. */
static void FillBlocks_BSR(PetscInt first, PetscBool unit, BlocksOnHost *host)
{
  const BSR   &own     = host->own;
  const size_t bs2     = (size_t)own.bs * own.bs;
  const auto   by_rows = [&](size_t e) { return e % own.bs * own.bs + e / own.bs; };
  PetscInt     to      = 0;

  for (LocalInt row = 0; row < own.rows; row++) {
    LocalInt k = own.i[row];

    host->i[row] = to;
    for (; k < own.i[row + 1] && own.j[k] < row; k++, to++) {
      host->j[to] = first + own.j[k];
      for (size_t e = 0; e < bs2; e++) host->a[to * bs2 + by_rows(e)] = BSRValue(&own, k * bs2 + e);
    }
    if (unit) {
      host->j[to] = first + row;
      for (size_t e = 0; e < bs2; e++) host->a[to * bs2 + e] = e / own.bs == e % own.bs;
      to++;
    }
    for (; k < own.i[row + 1]; k++, to++) {
      host->j[to] = first + own.j[k];
      for (size_t e = 0; e < bs2; e++) host->a[to * bs2 + by_rows(e)] = BSRValue(&own, k * bs2 + e);
    }
  }
  host->i[own.rows] = to;
}

static PetscErrorCode CreateFromBlocks(MPI_Comm comm, PetscBool unit, BlocksOnHost *host, Mat *mat)
{
  const PetscInt rows = host->own.rows, bs = host->own.bs;
  PetscInt       first;

  PetscFunctionBegin;
  PetscCall(MatFindFirstRow(comm, rows, &first));
  FillBlocks_BSR(first, unit, host);
  PetscCall(MatCreate(comm, mat));
  PetscCall(MatSetSizes(*mat, rows * bs, rows * bs, PETSC_DETERMINE, PETSC_DETERMINE));
  PetscCall(MatSetBlockSize(*mat, bs));
  PetscCall(MatSetType(*mat, MATBAIJ));
  PetscCall(MatSeqBAIJSetPreallocationCSR(*mat, bs, host->i, host->j, host->a));
  PetscCall(MatMPIBAIJSetPreallocationCSR(*mat, bs, host->i, host->j, host->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatCreateFromBSR(MPI_Comm comm, const BSR *W, PetscBool unit, Mat *mat)
{
  BlocksOnHost host{};

  PetscFunctionBegin;
  PetscErrorCode code = AgreeOnError(comm, CopyFactor_BSR(W, unit, &host), "copy its factor to the host");
  if (!code) code = CreateFromBlocks(comm, unit, &host, mat);
  const PetscErrorCode freed = BSRDestroy(&host.own);
  PetscCall(PetscFree3(host.i, host.j, host.a));
  PetscCall(code);
  PetscCall(freed);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetRankParts(Mat A, Mat *own, Mat *other, const PetscInt **columns)
{
  PetscErrorCode (*query)(Mat, Mat *, Mat *, const PetscInt **);

  PetscFunctionBegin;
  PetscCall(PetscObjectQueryFunction((PetscObject)A, kPartsQuery, &query));
  PetscCall((query ? query : MatMPIAIJGetSeqAIJ)(A, own, other, columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}
