/* The levels of PCCMATCH as PETSc matrices, on the host and in double precision, without the scaling of the hierarchy. */
#include <petsc/private/pcimpl.h>

#include <algorithm>

#include "cmatch_face.h"

/* Copies values of the hierarchy to the host, in double precision; the caller frees them with PetscFree(). */
static PetscErrorCode FetchValues(const CMATCHHierarchy *H, const void *from, LocalInt count, PetscScalar **values)
{
  const size_t bytes = count * FinePCPrecisionBytes(H->params.precision);
  float       *single;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(count, values));
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  if (H->params.precision == FINEPC_DOUBLE) {
    PetscCall(ArrayCopy(*values, from, bytes, PETSC_MEMTYPE_HOST, H->where));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscMalloc1(count, &single));
  PetscCall(ArrayCopy(single, from, bytes, PETSC_MEMTYPE_HOST, H->where));
  for (LocalInt k = 0; k < count; k++) (*values)[k] = single[k];
  PetscCall(PetscFree(single));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same of integers. */
static PetscErrorCode FetchIntegers(const CMATCHHierarchy *H, const LocalInt *from, size_t count, LocalInt **integers)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1(count, integers));
  if (count) PetscCall(ArrayCopy(*integers, from, count * sizeof(*from), PETSC_MEMTYPE_HOST, H->where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows of this rank, as MatSetPreallocationCSR functions take them: columns are numbers in the matrix, and ascending. */
struct Rows {
  std::vector<PetscInt>                         i{0}, j;
  std::vector<PetscScalar>                      a;
  std::vector<std::pair<PetscInt, PetscScalar>> row;

  void Add(PetscInt column, PetscScalar value) { row.emplace_back(column, value); }
  void EndRow()
  {
    std::sort(row.begin(), row.end(), [](const auto &x, const auto &y) { return x.first < y.first; });
    for (const auto &[column, value] : row) {
      j.push_back(column);
      a.push_back(value);
    }
    row.clear();
    i.push_back((PetscInt)j.size());
  }
};

/* Makes a MATAIJ of these rows, on one rank or on all ranks, of which this one has so many columns. */
static PetscErrorCode CreateMat(MPI_Comm comm, PetscInt columns, const Rows &rows, Mat *mat)
{
  PetscFunctionBegin;
  PetscCall(MatCreate(comm, mat));
  PetscCall(MatSetSizes(*mat, (PetscInt)rows.i.size() - 1, columns, PETSC_DETERMINE, PETSC_DETERMINE));
  PetscCall(MatSetType(*mat, MATAIJ));
  PetscCall(MatSeqAIJSetPreallocationCSR(*mat, rows.i.data(), rows.j.data(), rows.a.data()));
  PetscCall(MatMPIAIJSetPreallocationCSR(*mat, rows.i.data(), rows.j.data(), rows.a.data()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Makes the operator of a level: its entries beside the diagonal with the diagonal between them. The hierarchy has scale W A W on
   the finest level, of which w undoes W = diag(w); w is null for ones and on the other levels.
*/
static PetscErrorCode CreateOperator(MPI_Comm comm, const CMATCHHierarchy *H, const CMATCHLevel *level, const PetscScalar w[],
                                     Mat *A)
{
  const LocalInt n = level->n;
  LocalInt      *begin, *column;
  PetscScalar   *value, *diagonal;
  Rows           rows;

  PetscFunctionBegin;
  PetscCall(FetchIntegers(H, level->A_i, n ? n + 1 : 0, &begin));
  PetscCall(FetchIntegers(H, level->A_j, level->nnz, &column));
  PetscCall(FetchValues(H, level->A_a, level->nnz, &value));
  PetscCall(FetchValues(H, level->d, n, &diagonal));
  for (LocalInt row = 0; row < n; row++) {
    const PetscScalar w_row = w ? w[row] : 1;

    rows.Add(level->first + row, diagonal[row] / (H->scale * w_row * w_row));
    for (LocalInt k = begin[row]; k < begin[row + 1]; k++)
      rows.Add(column[k] < n ? level->first + column[k] : level->ghost[column[k] - n],
               value[k] / (H->scale * w_row * (w ? w[column[k]] : 1)));
    rows.EndRow();
  }
  PetscCall(CreateMat(comm, n, rows, A));
  PetscCall(PetscFree(diagonal));
  PetscCall(PetscFree(value));
  PetscCall(PetscFree(column));
  PetscCall(PetscFree(begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the prolongator to a level from the next one, of which this rank has so many rows; W P on the finest level. */
static PetscErrorCode CreateProlongator(MPI_Comm comm, const CMATCHHierarchy *H, const CMATCHLevel *level, PetscInt columns,
                                        const PetscScalar w[], Mat *P)
{
  const LocalInt n = level->n, width = level->width, coarse = level->coarse;
  LocalInt      *column;
  PetscScalar   *value;
  Rows           rows;

  PetscFunctionBegin;
  PetscCall(FetchIntegers(H, level->P_j, (size_t)n * width, &column));
  PetscCall(FetchValues(H, level->P_a, n * width, &value));
  for (LocalInt row = 0; row < n; row++) {
    for (LocalInt k = row * width; k < (row + 1) * width && column[k] >= 0; k++)
      rows.Add(column[k] < coarse ? level->first_coarse + column[k] : level->column[column[k] - coarse],
               value[k] * (w ? w[row] : 1));
    rows.EndRow();
  }
  PetscCall(CreateMat(comm, columns, rows, P));
  PetscCall(PetscFree(value));
  PetscCall(PetscFree(column));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHGetHierarchy_CMATCH(PC pc, PetscInt *levels, Mat *A[], Mat *P[])
{
  const PC_CMATCH       *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H      = cmatch->hierarchy;
  const MPI_Comm         comm   = cmatch->ranks ? PetscObjectComm((PetscObject)pc) : PETSC_COMM_SELF;
  PetscScalar           *w      = nullptr;

  PetscFunctionBegin;
  PetscCheck(pc->setupcalled && !pc->failedreason && cmatch->complete, PetscObjectComm((PetscObject)pc), PETSC_ERR_ORDER,
             "The hierarchy exists after a PCSetUp() that did not fail");
  const LocalInt    all  = cmatch->ranks ? cmatch->all_levels : H->levels;
  const CMATCHLevel none = {}; /* of levels in which this rank has no part */
  const auto        at   = [&](LocalInt l) { return l < H->levels ? &H->level[l] : &none; };
  if (H->w) {
    const size_t count = (size_t)H->level[0].n + H->level[0].ghosts;

    PetscCall(PetscMalloc1(count, &w));
    PetscCall(ArrayCopy(w, H->w, count * sizeof(*w), PETSC_MEMTYPE_HOST, H->where));
  }
  if (levels) *levels = all;
  if (A) {
    PetscCall(PetscMalloc1(all, A));
    for (LocalInt l = 0; l < all; l++) PetscCall(CreateOperator(comm, H, at(l), l ? nullptr : w, &(*A)[l]));
  }
  if (P) {
    PetscCall(PetscMalloc1(PetscMax(all - 1, 0), P));
    for (LocalInt l = 0; l + 1 < all; l++) PetscCall(CreateProlongator(comm, H, at(l), at(l + 1)->n, l ? nullptr : w, &(*P)[l]));
  }
  PetscCall(PetscFree(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}
