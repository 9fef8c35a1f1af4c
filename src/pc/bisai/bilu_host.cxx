/*
   This file is the host twin of cuda/pc/bisai/bilu.cu, in plain loops.

   In block ILU(0), L has unit diagonal blocks, L and U have the pattern S of A, and (L U)_ij = A_ij for (i, j) in S. The factors
   are computed row by row. The blocks of row i are taken in ascending order of their columns,

     L_ik = A_ik U_kk^{-1}                     for k < i, (i, k) in S,
     A_ij = A_ij - L_ik U_kj                   for j > k, (i, j) and (k, j) in S.

   Then U_ij = A_ij for j >= i. On a larger pattern, with A_ij = 0 where A has no block, the same loops are ILU(k). Row i waits only
   for the rows k of its L.

   A sweep takes all rows at once: it computes row i by these loops, with the rows k of U that the sweep before has left. These are
   the fixed-point sweeps of Chow and Patel, but for the blocks of a row's own L, which are already those of this sweep. The first
   sweep begins with their guess, U_ij = A_ij for j >= i; it needs no guess of L. Their guess has the matrix scaled to a unit
   diagonal, but the loops and this guess are the same for the scaled matrix, scaled back. Row i is that of the factor, to the last
   bit, once the rows k of its L are, which is after as many sweeps as there are levels of rows beneath it. A sweep reads nothing
   that it writes, so that its result does not depend on the order of the rows.

   U_ii^{-1} is kept in the place of U_ii. It is computed by elimination with row exchanges inside the block. Whether a pivot has
   been lost to cancellation must not depend on the units of equations and unknowns. Therefore U_ii is scaled before the
   elimination: its rows are divided by the largest entry of the same row of A, and its columns by the largest entry of the same
   column of A_ii, whose rows have been divided likewise.
*/
#include <algorithm>
#include <cmath>
#include <vector>

#include "sparse/block.h"
#include "bilu.h"

static PetscErrorCode Create_BILU(LocalInt bs, LocalInt n, LocalInt nnz, PetscBool values, PetscMemType where, BlockLU *F)
{
  const size_t alignment = 256, index_bytes = (LU_PLACES * (size_t)n + nnz + 1) * sizeof(LocalInt),
               a_at = (index_bytes + alignment - 1) / alignment * alignment;
  void *memory      = nullptr;

  PetscFunctionBegin;
  *F = BlockLU{};
  PetscCall(ArrayCreate(a_at + (values ? (size_t)nnz * bs * bs * sizeof(PetscScalar) : 0), where, &memory));
  F->bs         = bs;
  F->n          = n;
  F->nnz        = nnz;
  F->where      = where;
  F->own_values = values;
  for (int p = 0; p < LU_PLACES; p++) F->place[p] = (LocalInt *)memory + (size_t)p * n;
  F->j = (LocalInt *)memory + LU_PLACES * (size_t)n;
  if (values) F->a = (PetscScalar *)((char *)memory + a_at);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BlockLUCreate(LocalInt bs, LocalInt n, LocalInt nnz, PetscMemType where, BlockLU *F)
{
  PetscFunctionBegin;
  PetscCall(Create_BILU(bs, n, nnz, PETSC_TRUE, where, F));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BlockLUCreatePattern(LocalInt bs, LocalInt n, LocalInt nnz, PetscMemType where, BlockLU *F)
{
  PetscFunctionBegin;
  PetscCall(Create_BILU(bs, n, nnz, PETSC_FALSE, where, F));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BlockLUDestroy(BlockLU *F)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(F->where, (void **)&F->place[0])); /* the allocation begins at place[0] */
  *F = BlockLU{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t BlockLUBytes(const BlockLU *F)
{
  return (F->own_values ? (size_t)F->nnz * F->bs * F->bs * sizeof(PetscScalar) : 0) +
         (LU_PLACES * (size_t)F->n + F->nnz) * sizeof(LocalInt);
}

namespace
{

/* Returns the largest power of two that is not above x, since dividing by a power of two rounds nothing; 1 for x = 0. */
PetscReal Magnitude_BILU(PetscReal x)
{
  int exponent;
  return x > 0 ? x / (2 * std::frexp(x, &exponent)) : 1;
}

/*
   Finds the largest entries of the rows of a block row. Returns false if an entry is not finite. The compiler knows the block size
   BS, or for BS = 0 the function takes any block size.
*/
template <int BS>
bool LargestOfRows(const BSRView &A, LocalInt row, PetscReal *rows)
{
  const LocalInt           bs                               = BS ? BS : A.bs;
  const PetscScalar *const end                              = A.a + (size_t)A.i[row + 1] * bs * bs;
  PetscReal                largest[BS ? BS : kLargestBlock] = {};
  bool                     finite                           = true;

  for (const PetscScalar *a = A.a + (size_t)A.i[row] * bs * bs; a < end; a += bs)
    for (LocalInt r = 0; r < bs; r++) {
      const PetscReal size = std::fabs(a[r]);
      finite &= size <= PETSC_MAX_REAL;
      largest[r] = std::max(largest[r], size);
    }
  std::copy_n(largest, bs, rows);
  return finite;
}

using LargestFunction = bool (*)(const BSRView &, LocalInt, PetscReal *);

LargestFunction LargestFor(LocalInt bs)
{
  static const LargestFunction functions[] = {LargestOfRows<0>, LargestOfRows<1>, LargestOfRows<2>,
                                              LargestOfRows<3>, LargestOfRows<4>, LargestOfRows<5>,
                                              LargestOfRows<6>, LargestOfRows<7>, LargestOfRows<8>};
  return functions[(size_t)bs < sizeof(functions) / sizeof(*functions) ? bs : 0];
}

/*
   The scales of a block row of A: those of its rows make the largest entry of each row about 1, and those of the columns then do so
   with the columns of the block in one block column.
*/
struct Scales {
  explicit Scales(LocalInt bs) : rows(bs), columns(bs), block(bs * bs), largest(LargestFor(bs)) { }

  void Find(const BSRView &A, LocalInt row, LocalInt column)
  {
    const LocalInt bs = A.bs, bs2 = bs * bs;
    std::fill(columns.begin(), columns.end(), 0);
    std::fill(block.begin(), block.end(), 0);
    (void)largest(A, row, rows.data());
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == column) std::copy_n(A.a + (size_t)k * bs2, bs2, block.begin());
    for (PetscReal &scale : rows) scale = Magnitude_BILU(scale);
    for (LocalInt c = 0; c < bs; c++)
      for (LocalInt r = 0; r < bs; r++) columns[c] = std::max(columns[c], std::fabs(block[c * bs + r]) / rows[r]);
    for (PetscReal &scale : columns) scale = Magnitude_BILU(scale);
  }

  /* Computes a = a^{-1} as InvertBlock_Host() does, but judges the pivots of the scaled block. */
  bool Invert(PetscReal smallest, PetscReal raised, PetscScalar *a) const
  {
    const LocalInt bs = (LocalInt)rows.size();
    for (LocalInt c = 0; c < bs; c++)
      for (LocalInt r = 0; r < bs; r++) a[c * bs + r] /= rows[r] * columns[c];
    const bool good = InvertBlock_Host(bs, smallest, raised, a);
    for (LocalInt c = 0; c < bs; c++)
      for (LocalInt r = 0; r < bs; r++) a[c * bs + r] /= columns[r] * rows[c];
    return good;
  }

  std::vector<PetscReal>   rows, columns;
  std::vector<PetscScalar> block; /* the block of A, or zeros if A has no block there */
  LargestFunction          largest;
};

/*
   Inverts U_ii or, if that is singular, in its place the diagonal block of A with small pivots raised. Returns whether it was U_ii.
*/
bool InvertDiagonal_BILU(const Scales &scales, PetscScalar *a)
{
  if (scales.Invert(kBILUSmallestPivot, 0, a)) return true;
  std::copy(scales.block.begin(), scales.block.end(), a);
  (void)scales.Invert(kBILURaisedPivot, kBILURaisedPivot, a);
  return false;
}

/* Mark_BILU() notes for each column of row i of L and U the place of the block. Unmark_BILU() sets these places to -1 again. */
void Mark_BILU(const BlockLU &F, LocalInt i, std::vector<LocalInt> &place)
{
  for (LocalInt k = F.place[LU_L][i]; k < F.place[LU_L_END][i]; k++) place[F.j[k]] = k;
  for (LocalInt k = F.place[LU_U][i]; k < F.place[LU_U_END][i]; k++) place[F.j[k]] = k;
  place[i] = F.place[LU_DIAGONAL][i];
}

void Unmark_BILU(const BlockLU &F, LocalInt i, std::vector<LocalInt> &place)
{
  for (LocalInt k = F.place[LU_L][i]; k < F.place[LU_L_END][i]; k++) place[F.j[k]] = -1;
  for (LocalInt k = F.place[LU_U][i]; k < F.place[LU_U_END][i]; k++) place[F.j[k]] = -1;
  place[i] = -1;
}

} // namespace

PetscErrorCode BILUCheck_Host(const BSRView *A, BILUStats *stats)
{
  const LocalInt         bs = A->bs;
  std::vector<PetscReal> largest(bs);
  const LargestFunction  find = LargestFor(bs);

  PetscFunctionBegin;
  *stats = BILUStats{};
  for (LocalInt i = 0; i < A->n && !stats->failure; i++) {
    if (!find(*A, i, largest.data())) {
      size_t k = (size_t)A->i[i] * bs * bs;
      while (std::isfinite(A->a[k])) k++;
      stats->failure     = BILU_NOT_FINITE;
      stats->failure_row = i * bs + (LocalInt)(k % bs);
    }
    for (LocalInt r = 0; r < bs && !stats->failure; r++) {
      if (largest[r] > 0) continue;
      stats->failure     = BILU_ROW_ZERO;
      stats->failure_row = i * bs + r;
    }
    if (!stats->failure && !std::binary_search(A->j + A->i[i], A->j + A->i[i + 1], i)) {
      stats->failure     = BILU_DIAGONAL_MISSING;
      stats->failure_row = i;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BILUAnalyse_Host(const BSRView *A, LocalInt, BlockLU *F, BILUPlan **plan, BILUStats *stats)
{
  PetscFunctionBegin;
  *plan = nullptr;
  PetscCall(BILUCheck_Host(A, stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(BlockLUCreate(A->bs, A->n, A->nnz, PETSC_MEMTYPE_HOST, F));
  std::copy_n(A->j, A->nnz, F->j);
  for (LocalInt i = 0; i < A->n; i++) {
    const LocalInt diagonal  = (LocalInt)(std::lower_bound(A->j + A->i[i], A->j + A->i[i + 1], i) - A->j);
    F->place[LU_L][i]        = A->i[i];
    F->place[LU_L_END][i]    = diagonal;
    F->place[LU_DIAGONAL][i] = diagonal;
    F->place[LU_U][i]        = diagonal + 1;
    F->place[LU_U_END][i]    = A->i[i + 1];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BILUPlanDestroy_Host(BILUPlan **plan)
{
  PetscFunctionBegin;
  *plan = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Replaces the values of A, which are in F, by those of L and U. The values of U in the rows above are taken from U, which is F.a,
   or is what a sweep before has left. All of `place` is -1 before and afterwards.
*/
static void Eliminate_BISAI(const BSRView &A, const LocalInt *rows, const LocalInt *columns, const PetscScalar *U,
                            std::vector<LocalInt> &place, BlockLU &F, BILUStats *stats)
{
  const LocalInt           bs  = A.bs;
  const size_t             bs2 = (size_t)bs * bs;
  std::vector<PetscScalar> L(bs2);
  Scales                   scales(bs);

  for (LocalInt i = 0; i < A.n; i++) {
    Mark_BILU(F, i, place);
    for (LocalInt m = F.place[LU_L][i]; m < F.place[LU_L_END][i]; m++) {
      const LocalInt           k       = F.j[m];
      PetscScalar *const       A_ik    = F.a + m * bs2;
      const PetscScalar *const inverse = U + F.place[LU_DIAGONAL][k] * bs2;
      for (LocalInt c = 0; c < bs; c++)
        for (LocalInt r = 0; r < bs; r++) {
          PetscScalar sum = 0;
          for (LocalInt t = 0; t < bs; t++) sum += A_ik[t * bs + r] * inverse[c * bs + t];
          L[c * bs + r] = sum;
        }
      std::copy(L.begin(), L.end(), A_ik);
      for (LocalInt q = F.place[LU_U][k]; q < F.place[LU_U_END][k]; q++) {
        const LocalInt to = place[F.j[q]];
        if (to < 0) continue;
        for (LocalInt c = 0; c < bs; c++)
          for (LocalInt r = 0; r < bs; r++)
            for (LocalInt t = 0; t < bs; t++) F.a[to * bs2 + c * bs + r] -= L[t * bs + r] * U[q * bs2 + c * bs + t];
      }
    }
    scales.Find(A, rows ? rows[i] : i, columns ? columns[i] : i);
    if (!InvertDiagonal_BILU(scales, F.a + F.place[LU_DIAGONAL][i] * bs2)) stats->singular_blocks++;
    Unmark_BILU(F, i, place);
  }
}

/* The sweeps. The last one leaves its values in F. */
static void Sweep_BILU(const BSRView &A, LocalInt sweeps, std::vector<LocalInt> &place, BlockLU &F, BILUStats *stats)
{
  const size_t             bs2 = (size_t)A.bs * A.bs, size = A.nnz * bs2;
  std::vector<PetscScalar> before(A.a, A.a + size);
  Scales                   scales(A.bs);

  for (LocalInt i = 0; i < A.n; i++) {
    scales.Find(A, i, i);
    (void)InvertDiagonal_BILU(scales, before.data() + F.place[LU_DIAGONAL][i] * bs2);
  }
  for (LocalInt sweep = 0; sweep < sweeps; sweep++) {
    if (sweep) std::copy_n(F.a, size, before.begin());
    std::copy_n(A.a, size, F.a);
    stats->singular_blocks = 0;
    Eliminate_BISAI(A, nullptr, nullptr, before.data(), place, F, stats);
  }
}

PetscErrorCode BILUFactor_Host(const BSRView *A, LocalInt sweeps, BILUPlan *, BlockLU *F, BILUStats *stats)
{
  std::vector<LocalInt> place(A->n, -1);

  PetscFunctionBegin;
  PetscCall(BILUCheck_Host(A, stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  std::copy_n(A->a, (size_t)A->nnz * A->bs * A->bs, F->a);
  if (sweeps) Sweep_BILU(*A, sweeps, place, *F, stats);
  else Eliminate_BISAI(*A, nullptr, nullptr, F->a, place, *F, stats);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   PETSc keeps only the inverse of U_ii. If U_ii is scaled, the largest entry of the inverse is at least 1 / (the smallest pivot),
   up to a factor of order bs.
*/
PetscErrorCode BILUCheckFactor_Host(const BSRView *A, const LocalInt *rows, const LocalInt *columns, const BlockLU *F,
                                    BILUStats *stats)
{
  const LocalInt bs  = A->bs;
  const size_t   bs2 = (size_t)bs * bs;
  Scales         scales(bs);

  PetscFunctionBegin;
  stats->singular_blocks = 0;
  for (LocalInt i = 0; i < A->n; i++) {
    const PetscScalar *const inverse = F->a + F->place[LU_DIAGONAL][i] * bs2;
    bool                     good    = true;
    scales.Find(*A, rows ? rows[i] : i, columns ? columns[i] : i);
    for (LocalInt c = 0; c < bs; c++) /* a NaN is not good either, since the comparison is false */
      for (LocalInt r = 0; r < bs; r++)
        good = good && std::fabs(inverse[c * bs + r]) * scales.columns[r] * scales.rows[c] < 1 / kBILUSmallestPivot;
    stats->singular_blocks += !good;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The blocks of F that A does not have start as zeros. */
PetscErrorCode BILURepeat_Host(const BSRView *A, const LocalInt *rows, const LocalInt *columns, BlockLU *F, BILUStats *stats)
{
  const size_t          bs2 = (size_t)A->bs * A->bs;
  std::vector<LocalInt> place(A->n, -1), to_column(columns ? A->n : 0);

  PetscFunctionBegin;
  stats->singular_blocks = 0;
  if (columns)
    for (LocalInt c = 0; c < A->n; c++) to_column[columns[c]] = c;
  std::fill_n(F->a, (size_t)F->nnz * bs2, 0.);
  for (LocalInt i = 0; i < A->n; i++) {
    const LocalInt row = rows ? rows[i] : i;
    Mark_BILU(*F, i, place);
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++) {
      const LocalInt to = place[columns ? to_column[A->j[k]] : A->j[k]];
      PetscCheck(to >= 0, PETSC_COMM_SELF, PETSC_ERR_PLIB,
                 "The factor has no place for a block of block row %" LocalInt_FMT " of the matrix: use -pc_bisai_factor finepc",
                 row);
      std::copy_n(A->a + k * bs2, bs2, F->a + to * bs2);
    }
    Unmark_BILU(*F, i, place);
  }
  Eliminate_BISAI(*A, rows, columns, F->a, place, *F, stats);
  PetscFunctionReturn(PETSC_SUCCESS);
}
