/* This file is the host twin of cuda/sparse/bsr.cu. It also has the functions that serve both kinds of memory. */
#include <algorithm>
#include <vector>

#include "bsr.h"

static size_t BlockBytes(const BSR *W)
{
  return (size_t)W->bs * W->bs * FinePCPrecisionBytes(W->precision);
}

/* Bytes from there to the end of a word. */
static size_t RestOfWord(size_t bytes)
{
  return (kBSRWord - bytes % kBSRWord) % kBSRWord;
}

PetscErrorCode BSRCreate(LocalInt bs, LocalInt rows, LocalInt columns, LocalInt nnz, FinePCPrecision precision, PetscMemType where,
                         BSR *W)
{
  const size_t alignment = 256, i_bytes = ((size_t)rows + 1) * sizeof(LocalInt), j_bytes = nnz * sizeof(LocalInt);
  const size_t j_at = (i_bytes + alignment - 1) / alignment * alignment,
               a_at = j_at + (j_bytes + alignment - 1) / alignment * alignment;

  PetscFunctionBegin;
  W->bs                = bs;
  W->rows              = rows;
  W->columns           = columns;
  W->nnz               = nnz;
  W->precision         = precision;
  W->where             = where;
  const size_t a_bytes = nnz * BlockBytes(W), zeros_j = RestOfWord(j_bytes), zeros_a = RestOfWord(a_bytes);
  PetscCall(ArrayCreate(a_at + a_bytes + zeros_a, where, (void **)&W->i));
  W->j                       = (LocalInt *)((char *)W->i + j_at);
  W->a                       = (char *)W->i + a_at;
  const char zeros[kBSRWord] = {};
  PetscCall(ArrayCopy((char *)W->j + j_bytes, zeros, zeros_j, where, PETSC_MEMTYPE_HOST));
  PetscCall(ArrayCopy((char *)W->a + a_bytes, zeros, zeros_a, where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BSRDestroy(BSR *W)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(W->where, (void **)&W->i));
  *W = BSR{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t BSRBytes(const BSR *W)
{
  return !W->i ? 0 : ((size_t)W->rows + 1) * sizeof(LocalInt) + W->nnz * (sizeof(LocalInt) + BlockBytes(W));
}

PetscErrorCode BSRCopy(const BSR *W, PetscMemType where, BSR *copy)
{
  PetscFunctionBegin;
  PetscCall(BSRCreate(W->bs, W->rows, W->columns, W->nnz, W->precision, where, copy));
  PetscCall(ArrayCopy(copy->i, W->i, ((size_t)W->rows + 1) * sizeof(LocalInt), where, W->where));
  PetscCall(ArrayCopy(copy->j, W->j, W->nnz * sizeof(LocalInt), where, W->where));
  PetscCall(ArrayCopy(copy->a, W->a, W->nnz * BlockBytes(W), where, W->where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BSRIsolate(const BSRView *A, LocalInt count, const LocalInt *isolated, PetscScalar value, BSR *copy)
{
  const LocalInt           bs = A->bs, n = A->n;
  const size_t             bs2 = (size_t)bs * bs;
  std::vector<LocalInt>    A_i((size_t)n + 1), A_j(A->nnz), i(1, 0), j;
  std::vector<PetscScalar> A_a(A->nnz * bs2), a;
  const LocalInt *next = isolated, *const end = isolated + count;

  PetscFunctionBegin;
  if (n) PetscCall(ArrayCopy(A_i.data(), A->i, A_i.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A->where));
  PetscCall(ArrayCopy(A_j.data(), A->j, A_j.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A->where));
  PetscCall(ArrayCopy(A_a.data(), A->a, A_a.size() * sizeof(PetscScalar), PETSC_MEMTYPE_HOST, A->where));
  for (LocalInt row = 0; row < n; row++) {
    const LocalInt *const first    = next;
    size_t                diagonal = SIZE_MAX; /* where the diagonal block begins */
    while (next < end && *next / bs == row) next++;
    const bool all = next - first == bs && !std::count(A_j.begin() + A_i[row], A_j.begin() + A_i[row + 1], row);
    const auto add = [&](LocalInt column, const PetscScalar *block) {
      if (column == row) diagonal = a.size();
      j.push_back(column);
      if (block) a.insert(a.end(), block, block + bs2);
      else a.insert(a.end(), bs2, 0.);
    };
    bool missing = all;
    for (LocalInt k = A_i[row]; k < A_i[row + 1]; k++) {
      if (missing && A_j[k] > row) {
        add(row, nullptr);
        missing = false;
      }
      add(A_j[k], A_a.data() + k * bs2);
    }
    if (missing) add(row, nullptr);
    for (const LocalInt *r = first; r < next && diagonal != SIZE_MAX; r++) a[diagonal + (size_t)(*r % bs) * (bs + 1)] = value;
    PetscCheck(j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "A rank's rows have more blocks than 32 bits can count");
    i.push_back((LocalInt)j.size());
  }
  PetscCall(BSRCreate(bs, n, n, i.back(), FINEPC_DOUBLE, A->where, copy));
  PetscCall(ArrayCopy(copy->i, i.data(), i.size() * sizeof(LocalInt), A->where, PETSC_MEMTYPE_HOST));
  PetscCall(ArrayCopy(copy->j, j.data(), j.size() * sizeof(LocalInt), A->where, PETSC_MEMTYPE_HOST));
  PetscCall(ArrayCopy(copy->a, a.data(), a.size() * sizeof(PetscScalar), A->where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Block row r of the result is y_r = z_r + sum of a x_j over the blocks a of the row, in their order, and column by column of the
   block; a block is read once for all vectors.
*/
template <typename S>
static void Multiply_BSR(const BSR &W, LocalInt columns, const BSRVectors &v)
{
  const LocalInt bs = W.bs;

  for (LocalInt row = 0; row < W.rows; row++) {
    for (LocalInt c = 0; c < columns; c++)
      for (LocalInt p = 0; p < bs; p++) v.y[(size_t)c * v.ldy + row * bs + p] = v.z ? v.z[(size_t)c * v.ldz + row * bs + p] : 0;
    for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++)
      for (LocalInt c = 0; c < columns; c++) {
        const S           *a     = (const S *)W.a + (size_t)k * bs * bs;
        const PetscScalar *x_row = v.x + (size_t)c * v.ldx + W.j[k] * bs;
        PetscScalar       *y_row = v.y + (size_t)c * v.ldy + row * bs;
        for (LocalInt q = 0; q < bs; q++, a += bs)
          for (LocalInt p = 0; p < bs; p++) y_row[p] += (PetscScalar)a[p] * x_row[q];
      }
  }
}

PetscErrorCode BSRMultiply_Host(const BSR *W, LocalInt columns, const BSRVectors &v)
{
  PetscFunctionBegin;
  if (W->precision == FINEPC_SINGLE) Multiply_BSR<float>(*W, columns, v);
  else Multiply_BSR<double>(*W, columns, v);
  PetscFunctionReturn(PETSC_SUCCESS);
}

BSRView BSRViewOf(const BSR *B)
{
  return BSRView{B->bs, B->rows, B->nnz, B->i, B->j, (const PetscScalar *)B->a, B->where};
}
