/*
   This file is the host twin of cuda/sparse/bsr_csr.cu: blocks are made of single entries, single entries of blocks, and transposed
   blocks of blocks.

   Block (I, J) exists if one of the entries (I bs + r, J bs + c) is stored. The bs rows of a block row are read side by side, each
   from the place where the last block ended, so that every block column comes out once and in ascending order. The transpose reads
   the rows of W in order, so the rows of W^T come out sorted.
*/
#include <algorithm>
#include <vector>

#include "bsr_csr.h"

/* Calls visit(J) for the block columns J of block row I, in ascending order. `at` is work space for the bs places in its rows. */
template <typename Visit>
static void ForBlocks(const CSRView &A, LocalInt bs, LocalInt I, std::vector<LocalInt> &at, const Visit &visit)
{
  for (LocalInt r = 0; r < bs; r++) at[r] = A.i[I * bs + r];
  while (true) {
    LocalInt J = LOCAL_INT_MAX;
    for (LocalInt r = 0; r < bs; r++)
      if (at[r] < A.i[I * bs + r + 1]) J = std::min(J, A.j[at[r]] / bs);
    if (J == LOCAL_INT_MAX) return;
    visit(J);
    for (LocalInt r = 0; r < bs; r++)
      while (at[r] < A.i[I * bs + r + 1] && A.j[at[r]] / bs == J) at[r]++;
  }
}

PetscErrorCode BSRFromCSR_Host(const CSRView *A, LocalInt bs, PetscBool keep, BSR *B)
{
  const LocalInt        n = A->n / bs;
  std::vector<LocalInt> at(bs);

  PetscFunctionBegin;
  if (!keep) {
    LocalInt nnz = 0;

    for (LocalInt I = 0; I < n; I++) ForBlocks(*A, bs, I, at, [&](LocalInt) { nnz++; });
    PetscCall(BSRCreate(bs, n, n, nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_HOST, B));
    nnz     = 0;
    B->i[0] = 0;
    for (LocalInt I = 0; I < n; I++) {
      ForBlocks(*A, bs, I, at, [&](LocalInt J) { B->j[nnz++] = J; });
      B->i[I + 1] = nnz;
    }
  }
  PetscScalar *a = (PetscScalar *)B->a;
  std::fill(a, a + (size_t)B->nnz * bs * bs, 0.);
  for (LocalInt row = 0; row < A->n; row++) {
    LocalInt k = B->i[row / bs];
    for (LocalInt e = A->i[row]; e < A->i[row + 1]; e++) {
      while (B->j[k] < A->j[e] / bs) k++;
      a[((size_t)k * bs + A->j[e] % bs) * bs + row % bs] = A->a[e];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes A for `blocks` blocks of B's size. */
static PetscErrorCode CreatePoints(const BSRView *B, PetscInt64 blocks, CSR *A)
{
  LocalInt nnz, rows = B->n * B->bs;

  PetscFunctionBegin;
  PetscCall(LocalIntCast(blocks * B->bs * B->bs, "entries in blocks", &nnz));
  PetscCall(CSRCreate(rows, rows, nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_HOST, A));
  A->i[0] = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Row r of block row I of A begins at bs (bs B_i[I] + r L) for L blocks in the block row. */
PetscErrorCode CSRFromBSR_Host(const BSRView *B, PetscBool keep, CSR *A)
{
  const LocalInt bs = B->bs;

  PetscFunctionBegin;
  if (!keep) PetscCall(CreatePoints(B, B->nnz, A));
  PetscScalar *const a  = (PetscScalar *)A->a;
  LocalInt           to = 0;
  for (LocalInt I = 0; I < B->n; I++)
    for (LocalInt r = 0; r < bs; r++) {
      for (LocalInt k = B->i[I]; k < B->i[I + 1]; k++)
        for (LocalInt c = 0; c < bs; c++, to++) {
          a[to] = B->a[((size_t)k * bs + c) * bs + r];
          if (!keep) A->j[to] = B->j[k] * bs + c;
        }
      if (!keep) A->i[I * bs + r + 1] = to;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Block (I, J) of the upper triangle is block (I, J) of A and, transposed, block (J, I). Block rows are read in ascending order, so
   that a block row of A gets its blocks left of the diagonal first, in ascending order, and then its own. `used` counts the blocks
   that each block row has got. Of a block on the diagonal the upper triangle counts, too.
*/
PetscErrorCode CSRFromUpperBSR(const BSRView *B, PetscBool keep, CSR *A)
{
  const LocalInt        bs = B->bs;
  std::vector<LocalInt> used(B->n, 0);

  PetscFunctionBegin;
  if (!keep) {
    PetscInt64 blocks = 0;

    for (LocalInt I = 0; I < B->n; I++)
      for (LocalInt k = B->i[I]; k < B->i[I + 1]; k++) {
        used[I]++;
        if (B->j[k] != I) used[B->j[k]]++;
      }
    for (LocalInt count : used) blocks += count;
    PetscCall(CreatePoints(B, blocks, A));
    for (LocalInt row = 0; row < A->rows; row++) A->i[row + 1] = A->i[row] + used[row / bs] * bs;
    std::fill(used.begin(), used.end(), 0);
  }
  PetscScalar *const a = (PetscScalar *)A->a;
  for (LocalInt I = 0; I < B->n; I++)
    for (LocalInt k = B->i[I]; k < B->i[I + 1]; k++) {
      const LocalInt           J     = B->j[k];
      const PetscScalar *const block = B->a + (size_t)k * bs * bs;

      for (LocalInt r = 0; r < bs; r++)
        for (LocalInt c = 0; c < bs; c++) {
          const LocalInt to = A->i[I * bs + r] + used[I] * bs + c;

          A->j[to] = J * bs + c;
          a[to]    = I == J && r > c ? block[r * bs + c] : block[c * bs + r];
        }
      used[I]++;
      if (I == J) continue;
      for (LocalInt r = 0; r < bs; r++)
        for (LocalInt c = 0; c < bs; c++) {
          const LocalInt to = A->i[J * bs + r] + used[J] * bs + c;

          A->j[to] = I * bs + c;
          a[to]    = block[r * bs + c];
        }
      used[J]++;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `at` is the place of the next block in each row of Wt. */
template <typename S>
static void Transpose_BSR(const BSR &W, bool keep, std::vector<LocalInt> &at, BSR &Wt)
{
  const LocalInt bs  = W.bs;
  const size_t   bs2 = (size_t)bs * bs;

  for (LocalInt row = 0; row < W.rows; row++)
    for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++) {
      const LocalInt to   = at[W.j[k]]++;
      const S *const from = (const S *)W.a + k * bs2;
      S *const       a    = (S *)Wt.a + to * bs2;
      if (!keep) Wt.j[to] = row;
      for (LocalInt q = 0; q < bs; q++)
        for (LocalInt p = 0; p < bs; p++) a[p * bs + q] = from[q * bs + p];
    }
}

PetscErrorCode BSRTranspose_Host(const BSR *W, PetscBool keep, BSR *Wt)
{
  std::vector<LocalInt> at(W->columns); /* made first, so that there is no Wt without its columns if memory ends here */

  PetscFunctionBegin;
  if (!keep) {
    PetscCall(BSRCreate(W->bs, W->columns, W->rows, W->nnz, W->precision, PETSC_MEMTYPE_HOST, Wt));
    std::fill_n(Wt->i, Wt->rows + 1, 0);
    for (LocalInt k = 0; k < W->nnz; k++) Wt->i[W->j[k] + 1]++;
    for (LocalInt row = 0; row < Wt->rows; row++) Wt->i[row + 1] += Wt->i[row];
  }
  std::copy_n(Wt->i, Wt->rows, at.begin());
  if (W->precision == FINEPC_SINGLE) Transpose_BSR<float>(*W, keep, at, *Wt);
  else Transpose_BSR<double>(*W, keep, at, *Wt);
  PetscFunctionReturn(PETSC_SUCCESS);
}
