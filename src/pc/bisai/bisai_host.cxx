/*
   Host twin of cuda/bisai.cu, in plain loops.

   For a triangular factor T, L with unit diagonal blocks or U, the pattern of the approximate inverse N is S(|T|^p): row i takes in, p
   times, the columns of the rows of T that were taken in last. With J the columns of row i of N, (6) and (7) of paper 001, by rows,

     N_i(J) T(J, J) = I_i(J),

   so that N T = I on the pattern of N. The paper writes the same for columns, T N = I on the pattern; the rows of N are what the
   product with N reads, and both are the exact inverse where the pattern is large enough, and both are the first p terms of the Neumann
   series where all paths between two rows have the same length, as on grids with 5 and 7 points.

   T(J, J) is triangular and is not formed. X = I_i at first, on J; then, for k in J from i on, away from the diagonal,

     N_ik = X_k T_kk^{-1},   X_j = X_j - N_ik T_kj for j in J, j != k.

   U_kk^{-1} is what the factor keeps, and L_kk = I.
*/
#include <algorithm>
#include <cmath>
#include <vector>

#include "../../dense.h"
#include "../sfsai/sfsai.h"
#include "bisai.h"

namespace
{

/* What U has in the place of L. */
struct Rows {
  Rows(const BlockLU &F, BISAITriangle triangle) : begin(F.place[triangle == BISAI_LOWER ? LU_L : LU_U]), end(F.place[triangle == BISAI_LOWER ? LU_L_END : LU_U_END]) { }

  const PetscInt *begin, *end; /* blocks of a row, without the diagonal */
};

} // namespace

/* sFSAI's symbolic product wants a lower triangle: rows and columns of U are counted from the end for it. */
PetscErrorCode BISAIPattern_Host(const BlockLU *F, BISAITriangle triangle, PetscBool diagonal, PetscInt power, FinePCPrecision precision, BSR *N, BISAIStats *stats)
{
  const PetscInt        n     = F->n;
  const bool            upper = triangle == BISAI_UPPER;
  const Rows            rows(*F, triangle);
  std::vector<PetscInt> T_i(1, 0), T_j;
  SFSAIParams           product;
  FSAIStats             ignored{};
  CSR                   S{};

  PetscFunctionBegin;
  for (PetscInt i = 0; i < n; i++) {
    const PetscInt row = upper ? n - 1 - i : i;
    if (upper)
      for (PetscInt k = rows.end[row] - 1; k >= rows.begin[row]; k--) T_j.push_back(n - 1 - F->j[k]);
    else T_j.insert(T_j.end(), F->j + rows.begin[row], F->j + rows.end[row]);
    T_i.push_back((PetscInt)T_j.size());
  }
  const CSRView T{n, (PetscInt)T_j.size(), T_i.data(), T_j.data(), nullptr, PETSC_MEMTYPE_HOST};
  product.power = power;
  PetscCall(SFSAIPattern_Host(&T, nullptr, nullptr, &product, &S, &ignored));
  PetscCall(BSRCreate(F->bs, n, n, S.nnz + (diagonal ? n : 0), precision, PETSC_MEMTYPE_HOST, N));
  PetscInt to = 0, longest = 0;
  for (PetscInt i = 0; i < n; i++) {
    const PetscInt row = upper ? n - 1 - i : i;
    N->i[i]            = to;
    if (upper && diagonal) N->j[to++] = i;
    if (upper)
      for (PetscInt k = S.i[row + 1] - 1; k >= S.i[row]; k--) N->j[to++] = n - 1 - S.j[k];
    else
      for (PetscInt k = S.i[row]; k < S.i[row + 1]; k++) N->j[to++] = S.j[k];
    if (!upper && diagonal) N->j[to++] = i;
    longest = std::max(longest, S.i[row + 1] - S.i[row]);
  }
  N->i[n]                  = to;
  stats->longest[triangle] = longest;
  stats->work_bytes        = std::max(stats->work_bytes, (T_i.size() + T_j.size()) * sizeof(PetscInt) + CSRBytes(&S));
  PetscCall(CSRDestroy(&S));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename S>
static PetscInt Invert(const BlockLU &F, BISAITriangle triangle, bool diagonal, BSR &N)
{
  const PetscInt           bs    = F.bs;
  const size_t             bs2   = (size_t)bs * bs;
  const bool               upper = triangle == BISAI_UPPER;
  const Rows               rows(F, triangle);
  S *const                 N_a = (S *)N.a;
  std::vector<PetscInt>    place(F.n, -1); /* in J, or -1 */
  std::vector<PetscScalar> X, product(bs2);
  PetscInt                 fallback = 0;

  for (PetscInt i = 0; i < F.n; i++) {
    std::vector<PetscInt> J(N.j + N.i[i], N.j + N.i[i + 1]);
    if (!diagonal) J.push_back(i); /* of L: behind the others */
    if (upper) std::reverse(J.begin(), J.end());
    /* now i is last, and the farthest from it is first */
    const PetscInt m = (PetscInt)J.size();
    for (PetscInt k = 0; k < m; k++) place[J[k]] = k;
    X.assign(m * bs2, 0);
    for (PetscInt r = 0; r < bs; r++) X[(m - 1) * bs2 + r * bs + r] = 1;
    bool finite = true;
    for (PetscInt k = m - 1; k >= 0; k--) {
      PetscScalar *const N_ik = X.data() + k * bs2;
      if (upper) {
        const PetscScalar *const inverse = F.a + F.place[LU_DIAGONAL][J[k]] * bs2;
        std::fill(product.begin(), product.end(), 0);
        for (PetscInt c = 0; c < bs; c++)
          for (PetscInt t = 0; t < bs; t++)
            for (PetscInt r = 0; r < bs; r++) product[c * bs + r] += N_ik[t * bs + r] * inverse[c * bs + t];
        std::copy(product.begin(), product.end(), N_ik);
      }
      for (size_t e = 0; e < bs2; e++) finite = finite && std::isfinite((S)N_ik[e]);
      for (PetscInt q = rows.begin[J[k]]; q < rows.end[J[k]]; q++) {
        const PetscInt to = place[F.j[q]];
        if (to < 0) continue;
        for (PetscInt c = 0; c < bs; c++)
          for (PetscInt r = 0; r < bs; r++) {
            PetscScalar sum = 0;
            for (PetscInt t = 0; t < bs; t++) sum += N_ik[t * bs + r] * F.a[q * bs2 + c * bs + t];
            X[to * bs2 + c * bs + r] -= sum;
          }
      }
    }
    for (PetscInt k = 0; k < m - (diagonal ? 0 : 1); k++) {
      const PetscInt to = N.i[i] + (upper ? m - 1 - k : k);
      for (size_t e = 0; e < bs2; e++) N_a[to * bs2 + e] = finite || k == m - 1 ? (S)X[k * bs2 + e] : S(0);
    }
    for (PetscInt k = 0; k < m; k++) place[J[k]] = -1;
    fallback += !finite;
  }
  return fallback;
}

PetscErrorCode BISAIInvert_Host(const BlockLU *F, BISAITriangle triangle, PetscBool diagonal, const BISAIParams *params, BSR *N, BISAIWork *, BISAIStats *stats)
{
  const size_t row_bytes = ((size_t)stats->longest[triangle] + 2) * F->bs * F->bs * sizeof(PetscScalar);

  PetscFunctionBegin;
  (void)params;
  if (N->precision == FINEPC_SINGLE) stats->fallback_rows[triangle] = Invert<float>(*F, triangle, diagonal, *N);
  else stats->fallback_rows[triangle] = Invert<double>(*F, triangle, diagonal, *N);
  stats->work_bytes = std::max(stats->work_bytes, row_bytes + F->n * sizeof(PetscInt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* U_ii is not kept: the inverse of its inverse, to rounding. */
PetscErrorCode BISAINegate_Host(const BlockLU *F, BISAITriangle triangle, BSR *R)
{
  const PetscInt           bs  = F->bs;
  const size_t             bs2 = (size_t)bs * bs;
  const Rows               rows(*F, triangle);
  std::vector<PetscScalar> diagonal(bs2);
  const auto               put = [&](PetscInt to, const PetscScalar *block) {
    for (size_t e = 0; e < bs2; e++) {
      if (R->precision == FINEPC_SINGLE) ((float *)R->a)[to * bs2 + e] = (float)-block[e];
      else ((double *)R->a)[to * bs2 + e] = -block[e];
    }
  };

  PetscFunctionBegin;
  for (PetscInt i = 0; i < F->n; i++) {
    PetscInt to = R->i[i];
    if (triangle == BISAI_UPPER) {
      std::copy_n(F->a + F->place[LU_DIAGONAL][i] * bs2, bs2, diagonal.begin());
      (void)InvertBlock_Host(bs, 0, 0, diagonal.data());
      put(to++, diagonal.data());
    }
    for (PetscInt q = rows.begin[i]; q < rows.end[i]; q++) put(to++, F->a + q * bs2);
    if (triangle == BISAI_LOWER) {
      for (PetscInt e = 0; e < bs * bs; e++) diagonal[e] = e / bs == e % bs;
      put(to, diagonal.data());
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIPermute_Host(PetscInt bs, PetscInt n, const PetscInt *p, PetscBool scatter, const PetscScalar *x, PetscScalar *y)
{
  PetscFunctionBegin;
  for (PetscInt k = 0; k < n; k++)
    for (PetscInt r = 0; r < bs; r++) {
      if (scatter) y[p[k] * bs + r] = x[k * bs + r];
      else y[k * bs + r] = x[p[k] * bs + r];
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}
