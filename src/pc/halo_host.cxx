/* This file is the host twin of cuda/pc/halo.cu, in plain loops. */
#include <algorithm>

#include "halo.h"

template <typename T>
static void Pick(LocalInt count, const LocalInt *index, LocalInt n, const T *a, const T *b, T *to)
{
  for (LocalInt k = 0; k < count; k++) to[k] = index[k] < n ? a[index[k]] : b[index[k] - n];
}

PetscErrorCode HaloPick_Host(FinePCPrecision precision, LocalInt count, const LocalInt *index, LocalInt n, const void *a,
                             const void *b, void *to)
{
  PetscFunctionBegin;
  if (precision == FINEPC_SINGLE) Pick(count, index, n, (const float *)a, (const float *)b, (float *)to);
  else Pick(count, index, n, (const double *)a, (const double *)b, (double *)to);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloAssemble_Host(const CSRView *own, const CSR *foreign, const CSR *ghosts, CSR *L)
{
  const LocalInt     first = foreign->rows, rows = first + own->n;
  const PetscScalar *ghosts_a = (const PetscScalar *)ghosts->a;

  PetscFunctionBegin;
  PetscCall(CSRCreate(rows, rows, foreign->nnz + ghosts->nnz + own->nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_HOST, L));
  PetscScalar *a = (PetscScalar *)L->a;
  PetscCall(PetscArraycpy(L->i, foreign->i, first + 1));
  PetscCall(PetscArraycpy(L->j, foreign->j, foreign->nnz));
  PetscCall(PetscArraycpy(a, (const PetscScalar *)foreign->a, foreign->nnz));
  for (LocalInt row = 0, to = foreign->nnz; row < own->n; row++) {
    for (LocalInt k = ghosts->i[row]; k < ghosts->i[row + 1]; k++, to++) {
      L->j[to] = ghosts->j[k];
      a[to]    = ghosts_a[k];
    }
    for (LocalInt k = own->i[row]; k < own->i[row + 1]; k++, to++) {
      L->j[to] = first + own->j[k];
      a[to]    = own->a[k];
    }
    L->i[first + row + 1] = to;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
static void SplitValues(const CSR &W, const CSR &own, const CSR &foreign)
{
  const T *W_a   = (const T *)W.a;
  T       *own_a = (T *)own.a, *foreign_a = (T *)foreign.a;

  for (LocalInt row = 0; row < W.rows; row++) {
    const LocalInt before = foreign.i[row + 1] - foreign.i[row];
    std::copy(W_a + W.i[row], W_a + W.i[row] + before, foreign_a + foreign.i[row]);
    std::copy(W_a + W.i[row] + before, W_a + W.i[row + 1], own_a + own.i[row]);
  }
}

PetscErrorCode HaloSplit_Host(const CSR *W, LocalInt first, PetscBool keep, CSR *own, CSR *foreign)
{
  PetscFunctionBegin;
  if (!keep) {
    const LocalInt nnz = (LocalInt)std::count_if(W->j, W->j + W->nnz, [=](LocalInt column) { return column < first; });
    PetscCall(CSRCreate(W->rows, W->rows, W->nnz - nnz, W->precision, PETSC_MEMTYPE_HOST, own));
    PetscCall(CSRCreate(W->rows, first, nnz, W->precision, PETSC_MEMTYPE_HOST, foreign));
    own->i[0] = foreign->i[0] = 0;
    for (LocalInt row = 0, to_own = 0, to_foreign = 0; row < W->rows; row++) {
      for (LocalInt k = W->i[row]; k < W->i[row + 1]; k++) {
        if (W->j[k] < first) foreign->j[to_foreign++] = W->j[k];
        else own->j[to_own++] = W->j[k] - first;
      }
      own->i[row + 1]     = to_own;
      foreign->i[row + 1] = to_foreign;
    }
  }
  if (W->precision == FINEPC_SINGLE) SplitValues<float>(*W, *own, *foreign);
  else SplitValues<double>(*W, *own, *foreign);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloRowsOf_Host(const CSR *W, LocalInt *rows)
{
  PetscFunctionBegin;
  for (LocalInt row = 0; row < W->rows; row++) std::fill(rows + W->i[row], rows + W->i[row + 1], row);
  PetscFunctionReturn(PETSC_SUCCESS);
}
