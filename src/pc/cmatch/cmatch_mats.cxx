/* The levels of PCCMATCH as PETSc matrices, on the host and in double precision, without the scaling of the hierarchy. */
#include <petsc/private/pcimpl.h>

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

/* Makes a MATSEQAIJ of these rows. */
static PetscErrorCode CreateMat(PetscInt rows, PetscInt columns, const PetscInt i[], const PetscInt j[], const PetscScalar a[],
                                Mat *mat)
{
  PetscFunctionBegin;
  PetscCall(MatCreate(PETSC_COMM_SELF, mat));
  PetscCall(MatSetSizes(*mat, rows, columns, rows, columns));
  PetscCall(MatSetType(*mat, MATSEQAIJ));
  PetscCall(MatSeqAIJSetPreallocationCSR(*mat, i, j, a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Makes the operator of a level: its entries beside the diagonal with the diagonal between them. The hierarchy has scale W A W on
   the finest level, of which w undoes W = diag(w); w is null for ones and on the other levels.
*/
static PetscErrorCode CreateOperator(const CMATCHHierarchy *H, const CMATCHLevel *level, const PetscScalar w[], Mat *A)
{
  const LocalInt n = level->n;
  LocalInt      *begin, *column;
  PetscInt      *i, *j;
  PetscScalar   *value, *diagonal, *a;

  PetscFunctionBegin;
  PetscCall(FetchIntegers(H, level->A_i, n ? n + 1 : 0, &begin));
  PetscCall(FetchIntegers(H, level->A_j, level->nnz, &column));
  PetscCall(FetchValues(H, level->A_a, level->nnz, &value));
  PetscCall(FetchValues(H, level->d, n, &diagonal));
  PetscCall(PetscMalloc3(n + 1, &i, level->nnz + n, &j, level->nnz + n, &a));
  i[0] = 0;
  for (LocalInt row = 0; row < n; row++) {
    const PetscScalar w_row    = w ? w[row] : 1;
    PetscInt          to       = i[row];
    bool              has_diag = false;

    for (LocalInt k = begin[row]; k <= begin[row + 1]; k++) {
      if (!has_diag && (k == begin[row + 1] || column[k] > row)) {
        j[to]    = row;
        a[to++]  = diagonal[row] / (H->scale * w_row * w_row);
        has_diag = true;
      }
      if (k == begin[row + 1]) break;
      j[to]   = column[k];
      a[to++] = value[k] / (H->scale * w_row * (w ? w[column[k]] : 1));
    }
    i[row + 1] = to;
  }
  PetscCall(CreateMat(n, n, i, j, a, A));
  PetscCall(PetscFree3(i, j, a));
  PetscCall(PetscFree(diagonal));
  PetscCall(PetscFree(value));
  PetscCall(PetscFree(column));
  PetscCall(PetscFree(begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the prolongator to a level from the next one, W P on the finest level. */
static PetscErrorCode CreateProlongator(const CMATCHHierarchy *H, const CMATCHLevel *level, const PetscScalar w[], Mat *P)
{
  const LocalInt n = level->n, width = level->width;
  LocalInt      *column;
  PetscInt      *i, *j;
  PetscScalar   *value, *a;

  PetscFunctionBegin;
  PetscCall(FetchIntegers(H, level->P_j, (size_t)n * width, &column));
  PetscCall(FetchValues(H, level->P_a, n * width, &value));
  PetscCall(PetscMalloc3(n + 1, &i, (size_t)n * width, &j, (size_t)n * width, &a));
  i[0] = 0;
  for (LocalInt row = 0; row < n; row++) {
    PetscInt to = i[row];

    for (LocalInt k = row * width; k < (row + 1) * width && column[k] >= 0; k++) {
      j[to]   = column[k];
      a[to++] = value[k] * (w ? w[row] : 1);
    }
    i[row + 1] = to;
  }
  PetscCall(CreateMat(n, level->coarse, i, j, a, P));
  PetscCall(PetscFree3(i, j, a));
  PetscCall(PetscFree(value));
  PetscCall(PetscFree(column));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHGetHierarchy_CMATCH(PC pc, PetscInt *levels, Mat *A[], Mat *P[])
{
  const PC_CMATCH       *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H      = cmatch->hierarchy;
  PetscScalar           *w      = nullptr;

  PetscFunctionBegin;
  PetscCheck(pc->setupcalled && !pc->failedreason && cmatch->complete, PetscObjectComm((PetscObject)pc), PETSC_ERR_ORDER,
             "The hierarchy exists after a PCSetUp() that did not fail");
  if (H->w) {
    PetscCall(PetscMalloc1(H->level[0].n, &w));
    PetscCall(ArrayCopy(w, H->w, H->level[0].n * sizeof(*w), PETSC_MEMTYPE_HOST, H->where));
  }
  if (levels) *levels = H->levels;
  if (A) {
    PetscCall(PetscMalloc1(H->levels, A));
    for (LocalInt l = 0; l < H->levels; l++) PetscCall(CreateOperator(H, &H->level[l], l ? nullptr : w, &(*A)[l]));
  }
  if (P) {
    PetscCall(PetscMalloc1(PetscMax(H->levels - 1, 0), P));
    for (LocalInt l = 0; l + 1 < H->levels; l++) PetscCall(CreateProlongator(H, &H->level[l], l ? nullptr : w, &(*P)[l]));
  }
  PetscCall(PetscFree(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}
