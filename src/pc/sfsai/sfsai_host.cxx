/*
   This file is the host twin of sfsai_pattern.cu and sfsai_values.cu in cuda/pc/sfsai, in plain loops. The equations (3.x) are
   those of Bernaschi, Bisson, Fantozzi and Janna, whom sfsai.h names.

   The pattern of G is that of B_k, which k symbolic products find:

     B_0 = I,   B_p+1 = Low(B_p A~)                     (3.9)

   Here A~ is A without the entries a_ij, i != j, of |a_ij| <= tau sqrt(a_ii a_jj), (3.8). Row i of B_k is found as follows: k
   times, the row takes in the columns c <= i of those rows of A~ that were taken in last.

   The search ends before if a product finds no new column, and then k is the number of products so far.

   A row that is longer than max_row keeps its diagonal and the columns of the largest weights. The weights come from the same k
   steps of the recursion with magnitudes in the place of the pattern, where A~ is scaled to unit diagonal and only the columns P_i
   of row i of B_k take part (A is symmetric):

     w_0 = e_i,   w_p+1(c) = sum over s in P_i of |a~_cs| w_p(s).

   For row i of G~, where P is P_i without i and A is scaled to unit diagonal, (3.6) and (3.7) are

     A[P, P] g = -A[P, i],   psi = g~ A g~^T,  g~ = (g over P, 1 at i),   G = D_G G~ with D_G^2 = 1 / psi,

   where w of (3.6) is g~ / psi. All of this is in the Cholesky factor of A[P_i, P_i] with i last. The last row of the factor is
   (y, l), and

     L y = A[P, i],   L^T g = -y,   l^2 = psi.

   The postfilter takes away the entries of row i that are at most delta ||g_i||, (3.11). Then psi is computed again, from the
   entries that are left and in double. This is (3.13), where the rounding of g is a part of epsilon.
*/
#include <algorithm>
#include <cmath>
#include <vector>

#include "sparse/dense.h"
#include "sfsai.h"

static_assert(kSFSAILargestRow <= kCholeskyLargest, "every row that is allowed can be solved");

namespace
{

/* Finds the rows of B_k, one after the other. */
class RowSearch {
public:
  RowSearch(const CSRView &A, const PetscReal *s, const SFSAIParams &params) : A_(A), s_(s), params_(params), place_(A.n, -1) { }

  /* The row that was found last: its columns, ascending, so that i is last, and whether the row was cut to max_row. */
  std::vector<PetscInt> columns;
  bool                  capped;

  /* Finds row i. */
  void Find(PetscInt i)
  {
    columns.clear();
    Take(i);
    size_t last = 0;
    for (products_ = 0; products_ < params_.power && last < columns.size(); products_++) {
      const size_t end = columns.size();
      for (; last < end; last++) {
        const PetscInt row = columns[last];
        for (PetscInt k = A_.i[row]; k < A_.i[row + 1]; k++)
          if (A_.j[k] < i && place_[A_.j[k]] < 0 && Kept(row, k)) Take(A_.j[k]);
      }
    }
    capped = params_.max_row > 0 && columns.size() > (size_t)params_.max_row;
    if (capped) Cap();
    else Forget();
    std::sort(columns.begin(), columns.end());
  }

private:
  void Take(PetscInt c)
  {
    place_[c] = (PetscInt)columns.size();
    columns.push_back(c);
  }

  void Forget()
  {
    for (PetscInt c : columns) place_[c] = -1;
  }

  /* |a~| of entry k of a row, scaled. Both twins multiply in this order, since the result decides about the pattern. */
  PetscReal Magnitude(PetscInt row, PetscInt k) const { return A_.j[k] == row ? 1 : std::fabs(A_.a[k]) * s_[row] * s_[A_.j[k]]; }
  bool      Kept(PetscInt row, PetscInt k) const
  {
    return A_.j[k] == row || params_.prefilter == 0 || Magnitude(row, k) > params_.prefilter;
  }

  /*
     Keeps the diagonal, which is first among the columns here, and the max_row - 1 columns of the largest weights. Among equals
     smaller columns come first.
  */
  void Cap()
  {
    std::vector<PetscReal> w(columns.size(), 0), next(columns.size());
    w[0] = 1;
    for (PetscInt p = 0; p < products_; p++) {
      for (size_t r = 0; r < columns.size(); r++) {
        next[r] = 0;
        for (PetscInt k = A_.i[columns[r]]; k < A_.i[columns[r] + 1]; k++) {
          const PetscInt from = place_[A_.j[k]];
          if (from < 0 || !Kept(columns[r], k)) continue;
          const PetscReal product = w[from] * Magnitude(columns[r], k);
          next[r] += product;
        }
      }
      w.swap(next);
    }
    Forget();
    std::vector<std::pair<PetscReal, PetscInt>> ranked;
    for (size_t r = 1; r < columns.size(); r++) ranked.emplace_back(-w[r], columns[r]);
    std::partial_sort(ranked.begin(), ranked.begin() + params_.max_row - 1, ranked.end());
    columns.resize(params_.max_row);
    for (size_t r = 1; r < columns.size(); r++) columns[r] = ranked[r - 1].second;
  }

  const CSRView        &A_;
  const PetscReal      *s_;
  const SFSAIParams    &params_;
  std::vector<PetscInt> place_;        /* [n] place of a column in `columns`, or -1 */
  PetscInt              products_ = 0; /* k of the row that was found last */
};

/* The arrays in SFSAIWork for n rows, of which the longest has m entries. */
struct Arrays {
  PetscReal *s;     /* [n] diag(A)^{-1/2} */
  PetscReal *M;     /* [m * m] A[P, P] of a row, i in P, and then its factor; float if the row is computed in single precision */
  PetscReal *g;     /* [m] g~ of A scaled; float if the row is computed in single precision */
  PetscReal *value; /* [m] g~ of A itself, 0 for entries that are dropped */
  PetscInt  *place; /* [n] place of a column in P, or -1 */
  PetscInt  *P;     /* [m] columns of the row, i last */

  static size_t Bytes(PetscInt n, PetscInt m)
  {
    return (n + (size_t)m * m + 2 * m) * sizeof(PetscReal) + ((size_t)n + m) * sizeof(PetscInt);
  }

  Arrays(void *data, PetscInt n, PetscInt m)
  {
    s     = (PetscReal *)data;
    M     = s + n;
    g     = M + (size_t)m * m;
    value = g + m;
    place = (PetscInt *)(value + m);
    P     = place + n;
  }
};

PetscErrorCode NeedWork(size_t bytes, SFSAIWork *work)
{
  PetscFunctionBegin;
  if (!PetscMemTypeDevice(work->where) && work->bytes >= bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayDestroy(work->where, &work->data));
  *work = SFSAIWork{};
  PetscCall(ArrayCreate_Host(bytes, &work->data));
  work->bytes = bytes;
  work->where = PETSC_MEMTYPE_HOST;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Calls entry(r, c, value) for each entry below the diagonal of A[P, P], scaled, and rounded to the precision T. */
template <typename T, typename Entry>
void ForLowerTriangle(const CSRView &A, const Arrays &w, PetscInt m, const Entry &entry)
{
  for (PetscInt r = 0; r < m; r++) {
    const PetscInt row = w.P[r];
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const PetscInt c = w.place[A.j[k]];
      if (c >= 0 && c < r) entry(r, c, (T)(A.a[k] * w.s[row] * w.s[A.j[k]]));
    }
  }
}

/*
   Computes `value` and psi of the row i = P[m - 1]. An entry that the postfilter takes away becomes 0. `good` is false after a bad
   pivot.
*/
template <typename T>
PetscErrorCode SolveRow(const CSRView &A, PetscReal postfilter, PetscInt m, const Arrays &w, PetscReal *psi, bool *good)
{
  constexpr bool         in_single = sizeof(T) == sizeof(float);
  constexpr PetscReal    smallest  = in_single ? kFSAISmallestPivotSingle : kFSAISmallestPivotDouble;
  const PetscInt         last      = m - 1;
  const PetscReal *const s = w.s, s_i = s[w.P[last]];
  T *const M = (T *)w.M, *const g = (T *)w.g;
  PetscInt info;

  PetscFunctionBegin;
  *good = false;
  std::fill(M, M + (size_t)m * m, (T)0);
  for (PetscInt r = 0; r < m; r++) M[r + (size_t)r * m] = 1; /* exactly 1, and not only up to rounding */
  ForLowerTriangle<T>(A, w, m, [&](PetscInt r, PetscInt c, T a) { M[r + (size_t)c * m] = a; });
  PetscCall(CholeskyFactor_Host(in_single ? FINEPC_SINGLE : FINEPC_DOUBLE, m, M, &info));
  if (info) PetscFunctionReturn(PETSC_SUCCESS);
  for (PetscInt r = 0; r < m; r++)
    if (!(PetscSqr(M[r + (size_t)r * m]) > (T)smallest)) PetscFunctionReturn(PETSC_SUCCESS);

  g[last] = 1;
  for (PetscInt r = last; r-- > 0;) {
    const T *const L_r = M + (size_t)r * m; /* column r of L */
    T              sum = -L_r[last];
    for (PetscInt c = r + 1; c < last; c++) sum -= L_r[c] * g[c];
    g[r] = sum / L_r[r];
  }

  if (postfilter > 0) {
    PetscReal norm = s_i * s_i;
    for (PetscInt r = 0; r < last; r++) norm += PetscSqr(g[r] * s[w.P[r]]);
    norm = postfilter * std::sqrt(norm);
    for (PetscInt r = 0; r < last; r++)
      if (std::fabs(g[r] * s[w.P[r]]) <= norm) g[r] = 0;
  }
  *psi = 0;
  for (PetscInt r = 0; r < m; r++) *psi += (PetscReal)g[r] * g[r];
  ForLowerTriangle<T>(A, w, m, [&](PetscInt r, PetscInt c, T a) { *psi += 2 * (PetscReal)g[r] * a * g[c]; });
  *good = *psi > smallest;
  for (PetscInt r = 0; r < last; r++) {
    w.value[r] = g[r] * s[w.P[r]] / s_i;
    *good      = *good && std::isfinite((float)w.value[r]);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FindPattern(const CSRView *A, const CSRView *S, const SFSAIParams *params, CSR *G, FSAIStats *stats)
{
  std::vector<PetscReal> s(A->n), d(A->n);

  PetscFunctionBegin;
  PetscCall(FSAIScaling_Host(A, 0, s.data(), d.data(), stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(SFSAIPattern_Host(A, S, s.data(), params, G, stats));
  stats->work_bytes = A->n * (2 * sizeof(PetscReal) + sizeof(PetscInt)) + G->nnz * sizeof(PetscInt);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives back the memory of G beyond its first nnz entries. The rows have been moved to these entries before. */
PetscErrorCode Shrink(PetscInt nnz, CSR *G)
{
  CSR small;

  PetscFunctionBegin;
  PetscCall(CSRCreate(G->rows, G->columns, nnz, G->precision, G->where, &small));
  PetscCall(PetscArraycpy(small.i, G->i, G->rows + 1));
  PetscCall(PetscArraycpy(small.j, G->j, nnz));
  PetscCall(PetscMemcpy(small.a, G->a, nnz * FinePCPrecisionBytes(G->precision)));
  PetscCall(CSRDestroy(G));
  *G = small;
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode SFSAIPattern_Host(const CSRView *A, const CSRView *S, const PetscReal *s, const SFSAIParams *params, CSR *G,
                                 FSAIStats *stats)
{
  std::vector<PetscInt> G_i(1, 0), G_j;
  RowSearch             search(*A, s, *params);

  PetscFunctionBegin;
  stats->capped_rows = stats->large_rows = 0;
  for (PetscInt i = 0; i < A->n; i++) {
    if (S) {
      for (PetscInt k = S->i[i]; k < S->i[i + 1] && S->j[k] < i; k++) G_j.push_back(S->j[k]);
    } else {
      search.Find(i);
      stats->capped_rows += search.capped;
      G_j.insert(G_j.end(), search.columns.begin(), search.columns.end() - 1);
    }
    PetscCheck(
      G_j.size() <= (size_t)PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
      "G has more entries than PetscInt can count: lower -pc_sfsai_power, raise -pc_sfsai_prefilter or set -pc_sfsai_max_row");
    G_i.push_back((PetscInt)G_j.size());
  }
  PetscCall(CSRCreate(A->n, A->n, G_i.back(), params->factor_precision, PETSC_MEMTYPE_HOST, G));
  PetscCall(PetscArraycpy(G->i, G_i.data(), A->n + 1));
  PetscCall(PetscArraycpy(G->j, G_j.data(), G->nnz));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SFSAIComputeFactor_Host(const CSRView *A, const CSRView *S, const SFSAIParams *params, PetscBool keep, CSR *G,
                                       PetscReal *d, SFSAIWork *work, FSAIStats *stats)
{
  const PetscInt  n          = A->n;
  const PetscReal postfilter = keep ? 0 : params->postfilter;
  PetscInt        longest = 0, nnz = 0;

  PetscFunctionBegin;
  FSAIStatsBegin(keep, stats);
  if (!keep) {
    PetscCall(FindPattern(A, S, params, G, stats));
    if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (PetscInt i = 0; i < n; i++) {
    const PetscInt m = G->i[i + 1] - G->i[i] + 1;
    PetscCheck(m <= kSFSAILargestRow, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "Row %" PetscInt_FMT " of G would have %" PetscInt_FMT " entries, and at most %" PetscInt_FMT " can be solved: %s",
               i, m, kSFSAILargestRow, S ? kSFSAIRemedyPattern : kSFSAIRemedy);
    longest = PetscMax(longest, m);
  }
  PetscCall(NeedWork(Arrays::Bytes(n, longest), work));
  stats->work_bytes = PetscMax(stats->work_bytes, work->bytes);
  const Arrays w(work->data, n, longest);
  PetscCall(FSAIScaling_Host(A, 0, w.s, d, stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  std::fill(w.place, w.place + n, -1);

  for (PetscInt i = 0, begin = 0; i < n; i++) {
    const PetscInt end = G->i[i + 1], m = end - begin + 1;
    PetscReal      psi  = 1;
    bool           good = false;
    for (PetscInt r = 0; r < m; r++) {
      w.P[r]          = r < m - 1 ? G->j[begin + r] : i;
      w.place[w.P[r]] = r;
    }
    if (params->setup_precision == FINEPC_SINGLE) {
      PetscCall(SolveRow<float>(*A, postfilter, m, w, &psi, &good));
      if (!good) stats->double_rows++;
    }
    if (!good) PetscCall(SolveRow<double>(*A, postfilter, m, w, &psi, &good));
    if (!good) {
      stats->diagonal_rows++;
      psi = 1;
      std::fill(w.value, w.value + m, 0);
    }
    for (PetscInt r = 0; r < m; r++) w.place[w.P[r]] = -1;

    /* The row moves to the place where the row before it ends. */
    for (PetscInt r = 0; r < m - 1; r++) {
      if (postfilter > 0 && w.value[r] == 0) {
        stats->dropped += good;
        continue;
      }
      G->j[nnz] = w.P[r];
      if (G->precision == FINEPC_SINGLE) ((float *)G->a)[nnz] = (float)w.value[r];
      else ((double *)G->a)[nnz] = w.value[r];
      nnz++;
    }
    begin          = end;
    G->i[i + 1]    = nnz;
    d[i]           = 1 / (d[i] * psi);
    stats->max_row = PetscMax(stats->max_row, nnz - G->i[i] + 1);
  }
  if (nnz < G->nnz) {
    stats->work_bytes = PetscMax(stats->work_bytes, work->bytes + CSRBytes(G));
    PetscCall(Shrink(nnz, G));
  }
  PetscCall(FSAIMeanLog_Host(n, d, &stats->log_psi_after));
  stats->log_psi_after = -stats->log_psi_after;
  PetscFunctionReturn(PETSC_SUCCESS);
}
