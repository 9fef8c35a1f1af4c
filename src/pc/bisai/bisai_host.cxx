/*
   This file is the host twin of cuda/pc/bisai/bisai.cu, in plain loops.

   T is a triangular factor: L with unit diagonal blocks, or U. The pattern of its approximate inverse N is S(|T|^p): p times, row i
   takes in the columns of those rows of T that were taken in last. If J are the columns of row i of N, then (6) and (7) of Ma, Hu,
   Yuan and Liu, whom bisai.h names, are by rows

     N_i(J) T(J, J) = I_i(J),

   so that N T = I on the pattern of N. The paper itself has columns: if J are the rows of column i of N, then

     T(J, J) N_i(J) = I_i(J),

   so that T N = I on the pattern. Each is the other one for T^T and N^T. Both give the exact inverse where the pattern is large
   enough. Both give the first p terms of the Neumann series where all paths between two rows have the same length, as on grids with
   5 and 7 points.

   T(J, J) is triangular and is not formed. At first X = I_i on J. Then, for k in J from i on, away from the diagonal,

     N_ik = X_k T_kk^{-1},   X_j = X_j - N_ik T_kj for j in J, j != k,

   or, by columns,

     N_ki = T_kk^{-1} X_k,   X_j = X_j - T_jk N_ki for j in J, j != k.

   The factor keeps U_kk^{-1}, and L_kk = I. A row or column whose blocks beside the diagonal are not all finite in the precision of
   N keeps its diagonal block alone. Nothing can take the place of the diagonal block: if the precision cannot hold it, the set-up
   fails.
*/
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sparse/block.h"
#include "pc/sfsai/sfsai.h"
#include "bisai.h"

namespace
{

/* The rows of L or of U, without the diagonal. */
struct Rows {
  Rows(const BlockLU &F, BISAITriangle triangle) :
      begin(F.place[triangle == BISAI_LOWER ? LU_L : LU_U]), end(F.place[triangle == BISAI_LOWER ? LU_L_END : LU_U_END])
  {
  }

  const LocalInt *begin, *end; /* [n] first block of a row, and the block after its last one */
};

/*
   Whether the precision S can hold a diagonal block: its entries are finite, and the largest entry of each row and column is a
   normal number. A row or column that became zero would drop an equation or an unknown.
*/
template <typename S>
bool Holds_BISAI(LocalInt bs, const PetscScalar *block)
{
  for (LocalInt p = 0; p < bs; p++) {
    S row = 0, column = 0;
    for (LocalInt q = 0; q < bs; q++) {
      if (!std::isfinite((S)block[p * bs + q])) return false;
      row    = std::max(row, std::fabs((S)block[q * bs + p]));
      column = std::max(column, std::fabs((S)block[p * bs + q]));
    }
    if (row < std::numeric_limits<S>::min() || column < std::numeric_limits<S>::min()) return false;
  }
  return true;
}

} // namespace

PetscErrorCode BISAICountBlocks(LocalInt blocks, LocalInt n, PetscBool diagonal, LocalInt *nnz)
{
  PetscFunctionBegin;
  PetscCheck(!diagonal || blocks <= LOCAL_INT_MAX - n, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "An approximate inverse has %" LocalInt_FMT " blocks beside its %" LocalInt_FMT
             " diagonal ones, more than 32 bits can count: lower -pc_bisai_power, or use more ranks",
             blocks, n);
  *nnz = blocks + (diagonal ? n : 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The symbolic product of sFSAI takes lower triangles, so the rows and columns of U are counted from the end for it. */
PetscErrorCode BISAIPattern_Host(const BlockLU *F, BISAITriangle triangle, PetscBool diagonal, LocalInt power,
                                 FinePCPrecision precision, BSR *N, BISAIStats *stats)
{
  const LocalInt        n     = F->n;
  const bool            upper = triangle == BISAI_UPPER;
  const Rows            rows(*F, triangle);
  std::vector<LocalInt> T_i(1, 0), T_j;
  SFSAIParams           product;
  FSAIStats             ignored{};
  CSR                   S{};

  PetscFunctionBegin;
  for (LocalInt i = 0; i < n; i++) {
    const LocalInt row = upper ? n - 1 - i : i;
    if (upper)
      for (LocalInt k = rows.end[row] - 1; k >= rows.begin[row]; k--) T_j.push_back(n - 1 - F->j[k]);
    else T_j.insert(T_j.end(), F->j + rows.begin[row], F->j + rows.end[row]);
    T_i.push_back((LocalInt)T_j.size());
  }
  const CSRView T{n, (LocalInt)T_j.size(), T_i.data(), T_j.data(), nullptr, PETSC_MEMTYPE_HOST};
  product.power = power;
  PetscCall(SFSAIPattern_Host({&T, 0, nullptr}, nullptr, &product, &S, &ignored));
  LocalInt       nnz = 0, to = 0, longest = 0;
  PetscErrorCode code = BISAICountBlocks(S.nnz, n, diagonal, &nnz);
  if (!code) code = BSRCreate(F->bs, n, n, nnz, precision, PETSC_MEMTYPE_HOST, N);
  if (code) PetscCall(CSRDestroy(&S));
  PetscCall(code);
  for (LocalInt i = 0; i < n; i++) {
    const LocalInt row = upper ? n - 1 - i : i;
    N->i[i]            = to;
    if (upper && diagonal) N->j[to++] = i;
    if (upper)
      for (LocalInt k = S.i[row + 1] - 1; k >= S.i[row]; k--) N->j[to++] = n - 1 - S.j[k];
    else
      for (LocalInt k = S.i[row]; k < S.i[row + 1]; k++) N->j[to++] = S.j[k];
    if (!upper && diagonal) N->j[to++] = i;
    longest = std::max(longest, S.i[row + 1] - S.i[row]);
  }
  N->i[n]                  = to;
  stats->longest[triangle] = longest;
  stats->work_bytes        = std::max(stats->work_bytes, (T_i.size() + T_j.size()) * sizeof(LocalInt) + CSRBytes(&S));
  PetscCall(CSRDestroy(&S));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIColumnsCreate(LocalInt n, LocalInt T_nnz, LocalInt N_nnz, BISAIColumns *columns)
{
  PetscFunctionBegin;
  PetscCall(ArrayCreate(2 * ((size_t)n + 1 + T_nnz + N_nnz) * sizeof(LocalInt), columns->where, (void **)&columns->T_i));
  columns->n     = n;
  columns->T_nnz = T_nnz;
  columns->N_nnz = N_nnz;
  columns->T_j   = columns->T_i + n + 1;
  columns->T_at  = columns->T_j + T_nnz;
  columns->N_i   = columns->T_at + T_nnz;
  columns->N_j   = columns->N_i + n + 1;
  columns->N_at  = columns->N_j + N_nnz;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIColumnsDestroy(BISAIColumns *columns)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(columns->where, (void **)&columns->T_i));
  *columns = BISAIColumns{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t BISAIColumnsBytes(const BISAIColumns *columns)
{
  return columns->T_i ? 2 * ((size_t)columns->n + 1 + columns->T_nnz + columns->N_nnz) * sizeof(LocalInt) : 0;
}

/* Fills in the columns of a matrix whose block row i has blocks begin[i] .. end[i] - 1, with their columns in j. */
static void FindColumns_BISAI(LocalInt n, const LocalInt *begin, const LocalInt *end, const LocalInt *j, LocalInt *column_i,
                              LocalInt *column_j, LocalInt *column_at)
{
  std::fill_n(column_i, n + 1, 0);
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt k = begin[i]; k < end[i]; k++) column_i[j[k] + 1]++;
  for (LocalInt c = 0; c < n; c++) column_i[c + 1] += column_i[c];
  std::vector<LocalInt> next(column_i, column_i + n);
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt k = begin[i]; k < end[i]; k++) {
      const LocalInt to = next[j[k]]++;
      column_j[to]      = i;
      column_at[to]     = k;
    }
}

PetscErrorCode BISAIFindColumns_Host(const BlockLU *F, BISAITriangle triangle, PetscBool diagonal, const BSR *N,
                                     BISAIColumns *columns, BISAIStats *stats)
{
  const LocalInt n = F->n;
  const Rows     rows(*F, triangle);
  LocalInt       T_nnz = 0, longest = 0;

  PetscFunctionBegin;
  for (LocalInt i = 0; i < n; i++) T_nnz += rows.end[i] - rows.begin[i];
  *columns       = BISAIColumns{};
  columns->where = PETSC_MEMTYPE_HOST;
  PetscCall(BISAIColumnsCreate(n, T_nnz, N->nnz, columns));
  FindColumns_BISAI(n, rows.begin, rows.end, F->j, columns->T_i, columns->T_j, columns->T_at);
  FindColumns_BISAI(n, N->i, N->i + 1, N->j, columns->N_i, columns->N_j, columns->N_at);
  for (LocalInt c = 0; c < n; c++) longest = std::max(longest, columns->N_i[c + 1] - columns->N_i[c] - (diagonal ? 1 : 0));
  stats->longest[triangle] = longest;
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename S>
static void InvertByColumns(const BlockLU &F, BISAITriangle triangle, bool diagonal, const BISAIColumns &columns, BSR &N,
                            BISAIStats *stats)
{
  const LocalInt           bs    = F.bs;
  const size_t             bs2   = (size_t)bs * bs;
  const bool               upper = triangle == BISAI_UPPER;
  S *const                 N_a   = (S *)N.a;
  std::vector<LocalInt>    place(F.n, -1); /* place of a row in J, or -1 */
  std::vector<PetscScalar> X, product(bs2);

  stats->fallback_lines[triangle] = 0;
  if (upper) stats->lost_diagonals = 0;
  for (LocalInt i = 0; i < F.n; i++) {
    const LocalInt        begin = columns.N_i[i], length = columns.N_i[i + 1] - begin;
    std::vector<LocalInt> J(columns.N_j + begin, columns.N_j + begin + length);
    if (!diagonal) J.insert(J.begin(), i); /* only NL can be without diagonal, and i is before the other rows of a column of L */
    if (!upper) std::reverse(J.begin(), J.end());
    /* Now i is last in J, and the row that is farthest from i is first. */
    const LocalInt m = (LocalInt)J.size();
    for (LocalInt k = 0; k < m; k++) place[J[k]] = k;
    X.assign(m * bs2, 0);
    for (LocalInt r = 0; r < bs; r++) X[(m - 1) * bs2 + r * bs + r] = 1;
    bool finite = true;
    for (LocalInt k = m - 1; k >= 0; k--) {
      PetscScalar *const N_ki = X.data() + k * bs2;
      if (upper) {
        const PetscScalar *const inverse = F.a + F.place[LU_DIAGONAL][J[k]] * bs2;
        std::fill(product.begin(), product.end(), 0);
        for (LocalInt c = 0; c < bs; c++)
          for (LocalInt t = 0; t < bs; t++)
            for (LocalInt r = 0; r < bs; r++) product[c * bs + r] += inverse[t * bs + r] * N_ki[c * bs + t];
        std::copy(product.begin(), product.end(), N_ki);
      }
      if (k == m - 1) stats->lost_diagonals += upper && !Holds_BISAI<S>(bs, N_ki);
      else
        for (size_t e = 0; e < bs2; e++) finite = finite && std::isfinite((S)N_ki[e]);
      for (LocalInt q = columns.T_i[J[k]]; q < columns.T_i[J[k] + 1]; q++) {
        const LocalInt           to   = place[columns.T_j[q]];
        const PetscScalar *const T_jk = F.a + columns.T_at[q] * bs2;
        if (to < 0) continue;
        for (LocalInt c = 0; c < bs; c++)
          for (LocalInt r = 0; r < bs; r++) {
            PetscScalar sum = 0;
            for (LocalInt t = 0; t < bs; t++) sum += T_jk[t * bs + r] * N_ki[c * bs + t];
            X[to * bs2 + c * bs + r] -= sum;
          }
      }
    }
    for (LocalInt k = 0; k < m - (diagonal ? 0 : 1); k++) {
      const LocalInt to = columns.N_at[begin + (upper ? k : length - 1 - k)];
      for (size_t e = 0; e < bs2; e++) N_a[to * bs2 + e] = finite || k == m - 1 ? (S)X[k * bs2 + e] : S(0);
    }
    for (LocalInt k = 0; k < m; k++) place[J[k]] = -1;
    stats->fallback_lines[triangle] += !finite;
  }
}

template <typename S>
static void InvertByRows(const BlockLU &F, BISAITriangle triangle, bool diagonal, BSR &N, BISAIStats *stats)
{
  const LocalInt           bs    = F.bs;
  const size_t             bs2   = (size_t)bs * bs;
  const bool               upper = triangle == BISAI_UPPER;
  const Rows               rows(F, triangle);
  S *const                 N_a = (S *)N.a;
  std::vector<LocalInt>    place(F.n, -1); /* place of a column in J, or -1 */
  std::vector<PetscScalar> X, product(bs2);

  stats->fallback_lines[triangle] = 0;
  if (upper) stats->lost_diagonals = 0;
  for (LocalInt i = 0; i < F.n; i++) {
    std::vector<LocalInt> J(N.j + N.i[i], N.j + N.i[i + 1]);
    if (!diagonal) J.push_back(i); /* only NL can be without diagonal, and i is behind the other columns of L */
    if (upper) std::reverse(J.begin(), J.end());
    /* Now i is last in J, and the column that is farthest from i is first. */
    const LocalInt m = (LocalInt)J.size();
    for (LocalInt k = 0; k < m; k++) place[J[k]] = k;
    X.assign(m * bs2, 0);
    for (LocalInt r = 0; r < bs; r++) X[(m - 1) * bs2 + r * bs + r] = 1;
    bool finite = true;
    for (LocalInt k = m - 1; k >= 0; k--) {
      PetscScalar *const N_ik = X.data() + k * bs2;
      if (upper) {
        const PetscScalar *const inverse = F.a + F.place[LU_DIAGONAL][J[k]] * bs2;
        std::fill(product.begin(), product.end(), 0);
        for (LocalInt c = 0; c < bs; c++)
          for (LocalInt t = 0; t < bs; t++)
            for (LocalInt r = 0; r < bs; r++) product[c * bs + r] += N_ik[t * bs + r] * inverse[c * bs + t];
        std::copy(product.begin(), product.end(), N_ik);
      }
      if (k == m - 1) stats->lost_diagonals += upper && !Holds_BISAI<S>(bs, N_ik);
      else
        for (size_t e = 0; e < bs2; e++) finite = finite && std::isfinite((S)N_ik[e]);
      for (LocalInt q = rows.begin[J[k]]; q < rows.end[J[k]]; q++) {
        const LocalInt to = place[F.j[q]];
        if (to < 0) continue;
        for (LocalInt c = 0; c < bs; c++)
          for (LocalInt r = 0; r < bs; r++) {
            PetscScalar sum = 0;
            for (LocalInt t = 0; t < bs; t++) sum += N_ik[t * bs + r] * F.a[q * bs2 + c * bs + t];
            X[to * bs2 + c * bs + r] -= sum;
          }
      }
    }
    for (LocalInt k = 0; k < m - (diagonal ? 0 : 1); k++) {
      const LocalInt to = N.i[i] + (upper ? m - 1 - k : k);
      for (size_t e = 0; e < bs2; e++) N_a[to * bs2 + e] = finite || k == m - 1 ? (S)X[k * bs2 + e] : S(0);
    }
    for (LocalInt k = 0; k < m; k++) place[J[k]] = -1;
    stats->fallback_lines[triangle] += !finite;
  }
}

PetscErrorCode BISAIInvert_Host(const BlockLU *F, BISAITriangle triangle, PetscBool diagonal, const BISAIParams *params,
                                const BISAIColumns *columns, BSR *N, BISAIWork *, BISAIStats *stats)
{
  const size_t row_bytes = ((size_t)stats->longest[triangle] + 2) * F->bs * F->bs * sizeof(PetscScalar);

  PetscFunctionBegin;
  (void)params;
  if (columns) {
    if (N->precision == FINEPC_SINGLE) InvertByColumns<float>(*F, triangle, diagonal, *columns, *N, stats);
    else InvertByColumns<double>(*F, triangle, diagonal, *columns, *N, stats);
  } else if (N->precision == FINEPC_SINGLE) InvertByRows<float>(*F, triangle, diagonal, *N, stats);
  else InvertByRows<double>(*F, triangle, diagonal, *N, stats);
  stats->work_bytes = std::max(stats->work_bytes, row_bytes + F->n * sizeof(LocalInt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Computes -L or -U. The factor does not keep U_ii, so the inverse of U_ii^{-1} takes its place, which is U_ii up to rounding. If
   U_ii^{-1} cannot be inverted, the block is zero, and its entries count as lost.
*/
template <typename S>
static void Negate_BISAI(const BlockLU &F, BISAITriangle triangle, BSR &R, PetscInt64 *lost)
{
  const LocalInt           bs  = F.bs;
  const size_t             bs2 = (size_t)bs * bs;
  const Rows               rows(F, triangle);
  S *const                 R_a = (S *)R.a;
  std::vector<PetscScalar> diagonal(bs2);
  const auto               put = [&](LocalInt to, const PetscScalar *block) {
    for (size_t e = 0; e < bs2; e++) {
      R_a[to * bs2 + e] = (S)-block[e];
      *lost += !std::isfinite(R_a[to * bs2 + e]);
    }
  };

  *lost = 0;
  for (LocalInt i = 0; i < F.n; i++) {
    LocalInt to = R.i[i];
    if (triangle == BISAI_UPPER) {
      std::copy_n(F.a + F.place[LU_DIAGONAL][i] * bs2, bs2, diagonal.begin());
      if (!InvertBlock_Host(bs, 0, 0, diagonal.data())) {
        std::fill(diagonal.begin(), diagonal.end(), 0);
        *lost += (PetscInt64)bs2;
      }
      put(to++, diagonal.data());
    }
    for (LocalInt q = rows.begin[i]; q < rows.end[i]; q++) put(to++, F.a + q * bs2);
    if (triangle == BISAI_LOWER) {
      for (LocalInt e = 0; e < bs * bs; e++) diagonal[e] = e / bs == e % bs;
      put(to, diagonal.data());
    }
  }
}

PetscErrorCode BISAINegate_Host(const BlockLU *F, BISAITriangle triangle, BSR *R, BISAIWork *, BISAIStats *stats)
{
  PetscFunctionBegin;
  if (R->precision == FINEPC_SINGLE) Negate_BISAI<float>(*F, triangle, *R, &stats->lost_entries[triangle]);
  else Negate_BISAI<double>(*F, triangle, *R, &stats->lost_entries[triangle]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIPermute_Host(LocalInt bs, LocalInt n, const LocalInt *p, PetscBool scatter, const PetscScalar *x,
                                 PetscScalar *y)
{
  PetscFunctionBegin;
  for (LocalInt k = 0; k < n; k++)
    for (LocalInt r = 0; r < bs; r++) {
      if (scatter) y[p[k] * bs + r] = x[k * bs + r];
      else y[k * bs + r] = x[p[k] * bs + r];
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}
