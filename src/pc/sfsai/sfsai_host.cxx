/*
   This file is the host twin of the kernels in cuda/pc/sfsai, in plain loops. The equations (3.x) are those of Bernaschi, Bisson,
   Fantozzi and Janna, whom sfsai.h names.

   The pattern of G is that of B_k, which k symbolic products find:

     B_0 = I,   B_p+1 = Low(B_p A~)                     (3.9)

   Here A~ is A without the entries a_ij, i != j, of |a_ij| <= tau sqrt(a_ii a_jj), (3.8). Row i of B_k is found as follows: k
   times, the row takes in the columns c <= i of those rows of A~ that were taken in last.

   The search ends before if a product finds no new column, and then k is the number of products so far.

   A row that is longer than max_row, or the cap in its place, keeps its diagonal and the columns of the largest weights. The
   weights come from the same k steps of the recursion with magnitudes in the place of the pattern, where A~ is scaled to unit
   diagonal and only the columns P_i of row i of B_k take part (A is symmetric):

     w_0 = e_i,   w_p+1(c) = sum over s in P_i of |a~_cs| w_p(s).

   For row i of G~, where P is P_i without i and A is scaled to unit diagonal, (3.6) and (3.7) are

     A[P, P] g = -A[P, i],   psi = g~ A g~^T,  g~ = (g over P, 1 at i),   G = D_G G~ with D_G^2 = 1 / psi,

   where w of (3.6) is g~ / psi. All of this is in the Cholesky factor of A[P_i, P_i] with i last. The last row of the factor is
   (y, l), and

     L y = A[P, i],   L^T g = -y,   l^2 = psi.

   Where the pattern of row i + 1 is P_i and i + 1, as in the rows of a node with several unknowns, the factor of row i + 1 begins
   with that of row i. Such rows are solved with one factor, which changes no bit of them.

   The postfilter takes away the entries of row i that are at most delta ||g_i||, (3.11). Then psi is computed again, from the
   entries that are left and in double. This is (3.13), where the rounding of g is a part of epsilon.

   With a postfilter the unfiltered G never is in memory as a whole, and no more of the filtered one than work_limit holds until G
   has its own memory: the rows beyond are computed twice, first for their lengths, then for their entries.
*/
#include <petscsys.h>
#include <petscblaslapack.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "sparse/dense.h"
#include "sfsai.h"

namespace
{

/* Finds the rows of B_k, or those of S if it is given, one after the other. */
class RowSearch {
public:
  RowSearch(const SFSAIRows &of, const PetscReal *s, const SFSAIParams &params) :
      A_(*of.A), first_(of.first), S_(of.S), s_(s), params_(params), place_(of.S ? 0 : of.A->n, -1)
  {
  }

  /* The row that was found last: its columns, ascending, so that i is last, and whether the row was cut to max_row. */
  std::vector<LocalInt> columns;
  bool                  capped = false;

  /* Finds row i. */
  void Find(LocalInt i)
  {
    columns.clear();
    if (S_) {
      const LocalInt row = i - first_;
      for (LocalInt k = S_->i[row]; k < S_->i[row + 1] && S_->j[k] < i; k++) columns.push_back(S_->j[k]);
      columns.push_back(i);
      return;
    }
    Take(i);
    size_t last = 0;
    for (products_ = 0; products_ < params_.power && last < columns.size(); products_++) {
      const size_t end = columns.size();
      for (; last < end; last++) {
        const LocalInt row = columns[last];
        for (LocalInt k = A_.i[row]; k < A_.i[row + 1]; k++)
          if (A_.j[k] < i && place_[A_.j[k]] < 0 && Kept(row, k)) Take(A_.j[k]);
      }
    }
    const LocalInt cap = SFSAICap(params_);
    capped             = cap > 0 && columns.size() > (size_t)cap;
    if (capped) Cap(cap);
    else Forget();
    std::sort(columns.begin(), columns.end());
  }

private:
  void Take(LocalInt c)
  {
    place_[c] = (LocalInt)columns.size();
    columns.push_back(c);
  }

  void Forget()
  {
    for (LocalInt c : columns) place_[c] = -1;
  }

  /* |a~| of entry k of a row, scaled. Both twins multiply in this order, since the result decides about the pattern. */
  PetscReal Magnitude(LocalInt row, LocalInt k) const { return A_.j[k] == row ? 1 : std::fabs(A_.a[k]) * s_[row] * s_[A_.j[k]]; }
  bool      Kept(LocalInt row, LocalInt k) const
  {
    return A_.j[k] == row || params_.prefilter == 0 || Magnitude(row, k) > params_.prefilter;
  }

  /*
     Keeps the diagonal, which is first among the columns here, and the cap - 1 columns of the largest weights. Among equals
     smaller columns come first.
  */
  void Cap(LocalInt cap)
  {
    std::vector<PetscReal> w(columns.size(), 0), next(columns.size());
    w[0] = 1;
    for (LocalInt p = 0; p < products_; p++) {
      for (size_t r = 0; r < columns.size(); r++) {
        next[r] = 0;
        for (LocalInt k = A_.i[columns[r]]; k < A_.i[columns[r] + 1]; k++) {
          const LocalInt from = place_[A_.j[k]];
          if (from < 0 || !Kept(columns[r], k)) continue;
          const PetscReal product = w[from] * Magnitude(columns[r], k);
          next[r] += product;
        }
      }
      w.swap(next);
    }
    Forget();
    std::vector<std::pair<PetscReal, LocalInt>> ranked;
    for (size_t r = 1; r < columns.size(); r++) ranked.emplace_back(-w[r], columns[r]);
    std::partial_sort(ranked.begin(), ranked.begin() + cap - 1, ranked.end());
    columns.resize(cap);
    for (size_t r = 1; r < columns.size(); r++) columns[r] = ranked[r - 1].second;
  }

  const CSRView        &A_;
  LocalInt              first_;
  const CSRView        *S_;
  const PetscReal      *s_;
  const SFSAIParams    &params_;
  std::vector<LocalInt> place_;        /* [n] place of a column in `columns`, or -1 */
  LocalInt              products_ = 0; /* k of the row that was found last */
};

/* The arrays in SFSAIWork for n rows, of which the longest has m entries. */
struct Arrays {
  PetscReal *s;     /* [n] diag(A)^{-1/2} */
  PetscReal *M;     /* [m * m] A[P, P] of a row, i in P, and then its factor; float if the row is computed in single precision */
  PetscReal *g;     /* [m] g~ of A scaled; float if the row is computed in single precision */
  PetscReal *value; /* [m] g~ of A itself, 0 for entries that are dropped */
  LocalInt  *place; /* [n] place of a column in P, or -1 */
  LocalInt  *P;     /* [m] columns of the row, i last */

  static size_t Bytes(LocalInt n, LocalInt m)
  {
    return SFSAISystemBytes(m) + (n + (size_t)m * 2) * sizeof(PetscReal) + ((size_t)n + m) * sizeof(LocalInt);
  }

  Arrays(void *data, LocalInt n, LocalInt m)
  {
    s     = (PetscReal *)data;
    M     = s + n;
    g     = M + (size_t)m * m;
    value = g + m;
    place = (LocalInt *)(value + m);
    P     = place + n;
  }
};

/* L of A = L L^T, as CholeskyFactor_Host() computes it; a large system is left to LAPACK. */
template <typename T>
PetscErrorCode FactorSystem(LocalInt m, T *M, LocalInt *info)
{
  PetscFunctionBegin;
  if constexpr (sizeof(T) == sizeof(PetscScalar)) {
    if (m > kCholeskyLargest) {
      PetscBLASInt size, failed;

      PetscCall(PetscBLASIntCast(m, &size));
      PetscCallBLAS("LAPACKpotrf", LAPACKpotrf_("L", &size, M, &size, &failed));
      *info = failed;
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  PetscCall(CholeskyFactor_Host(sizeof(T) == sizeof(float) ? FINEPC_SINGLE : FINEPC_DOUBLE, m, M, info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Calls entry(r, c, value) for each entry below the diagonal of A[P, P], scaled, and rounded to the precision T. */
template <typename T, typename Entry>
void ForLowerTriangle(const CSRView &A, const Arrays &w, LocalInt m, const Entry &entry)
{
  for (LocalInt r = 0; r < m; r++) {
    const LocalInt row = w.P[r];
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const LocalInt c = w.place[A.j[k]];
      if (c >= 0 && c < r) entry(r, c, (T)(A.a[k] * w.s[row] * w.s[A.j[k]]));
    }
  }
}

template <typename T>
constexpr PetscReal kSmallestPivot = sizeof(T) == sizeof(float) ? kFSAISmallestPivotSingle : kFSAISmallestPivotDouble;

/* M becomes the factor of A[P, P], scaled, of which so many pivots, from the first on, are good. */
template <typename T>
PetscErrorCode Factorize(const CSRView &A, LocalInt m, const Arrays &w, LocalInt *good)
{
  T *const M = (T *)w.M;
  LocalInt info;

  PetscFunctionBegin;
  std::fill(M, M + (size_t)m * m, (T)0);
  for (LocalInt r = 0; r < m; r++) M[r + (size_t)r * m] = 1; /* exactly 1, and not only up to rounding */
  ForLowerTriangle<T>(A, w, m, [&](LocalInt r, LocalInt c, T a) { M[r + (size_t)c * m] = a; });
  PetscCall(FactorSystem(m, M, &info));
  const LocalInt done = info ? info - 1 : m;
  for (*good = 0; *good < done && PetscSqr(M[*good + (size_t)*good * m]) > (T)kSmallestPivot<T>;) ++*good;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Computes `value` and psi of the row i = P[m - 1] with the factor of A[P, P] for all n columns P. An entry that the postfilter
   takes away becomes 0. Returns whether the row is good.
*/
template <typename T>
bool SolveRow(const CSRView &A, PetscReal postfilter, LocalInt m, LocalInt n, const Arrays &w, PetscReal *psi)
{
  const LocalInt         last = m - 1;
  const PetscReal *const s = w.s, s_i = s[w.P[last]];
  const T *const         M = (const T *)w.M;
  T *const               g = (T *)w.g;

  g[last] = 1;
  for (LocalInt r = last; r-- > 0;) {
    const T *const L_r = M + (size_t)r * n; /* column r of L */
    T              sum = -L_r[last];
    for (LocalInt c = r + 1; c < last; c++) sum -= L_r[c] * g[c];
    g[r] = sum / L_r[r];
  }

  if (postfilter > 0) {
    PetscReal norm = s_i * s_i;
    for (LocalInt r = 0; r < last; r++) norm += PetscSqr(g[r] * s[w.P[r]]);
    norm = postfilter * std::sqrt(norm);
    for (LocalInt r = 0; r < last; r++)
      if (std::fabs(g[r] * s[w.P[r]]) <= norm) g[r] = 0;
  }
  *psi = 0;
  for (LocalInt r = 0; r < m; r++) *psi += (PetscReal)g[r] * g[r];
  ForLowerTriangle<T>(A, w, m, [&](LocalInt r, LocalInt c, T a) { *psi += 2 * (PetscReal)g[r] * a * g[c]; });
  bool good = *psi > kSmallestPivot<T>;
  for (LocalInt r = 0; r < last; r++) {
    w.value[r] = g[r] * s[w.P[r]] / s_i;
    good       = good && std::isfinite((float)w.value[r]);
  }
  return good;
}

/*
   Computes so many rows, the last of which has the m columns P, and of which each has those up to itself; d has their a_ii, which
   become 1 / psi. They are computed in single precision first if the set-up is, then in double. A row that double cannot do keeps
   its diagonal. store(row) is called when `value` is that of a row, of which 0 is the first.
*/
template <typename Store>
PetscErrorCode ComputeRows(const CSRView &A, const SFSAIParams &params, LocalInt m, LocalInt rows, const Arrays &w, PetscReal *d,
                           FSAIStats *stats, const Store &store)
{
  bool     done[kSFSAIMostShared] = {};
  LocalInt left                   = rows;

  const auto finish = [&](LocalInt row, PetscReal psi) {
    d[row] = 1 / (d[row] * psi);
    store(row);
  };
  const auto attempt = [&](auto zero) {
    using T = decltype(zero);
    LocalInt good;

    PetscFunctionBegin;
    PetscCall(Factorize<T>(A, m, w, &good));
    for (LocalInt row = 0; row < rows; row++) {
      const LocalInt own = m - rows + row + 1; /* columns of the row */
      PetscReal      psi;
      if (done[row] || own > good || !SolveRow<T>(A, params.postfilter, own, m, w, &psi)) continue;
      if (params.postfilter > 0) stats->dropped += (LocalInt)std::count(w.value, w.value + own - 1, 0);
      finish(row, psi);
      done[row] = true;
      left--;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscFunctionBegin;
  for (LocalInt r = 0; r < m; r++) w.place[w.P[r]] = r;
  if (params.setup_precision == FINEPC_SINGLE && m <= kCholeskyLargest) {
    PetscCall(attempt(0.f));
    stats->double_rows += left;
  }
  if (left) PetscCall(attempt(0.));
  stats->diagonal_rows += left;
  std::fill(w.value, w.value + (left ? m : 0), 0);
  for (LocalInt row = 0; row < rows; row++)
    if (!done[row]) finish(row, 1);
  for (LocalInt r = 0; r < m; r++) w.place[w.P[r]] = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void SetEntry(CSR *G, LocalInt k, PetscReal value)
{
  if (G->precision == FINEPC_SINGLE) ((float *)G->a)[k] = (float)value;
  else ((double *)G->a)[k] = value;
}

/* Sees that the work is there for n rows, of which row `row` is the longest and has m entries. */
PetscErrorCode NeedWork(LocalInt n, LocalInt row, LocalInt m, PetscBool given, SFSAIWork *work)
{
  const size_t bytes = Arrays::Bytes(n, m);

  PetscFunctionBegin;
  if (!PetscMemTypeDevice(work->where) && work->bytes >= bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayDestroy(work->where, &work->data));
  *work = SFSAIWork{};
  PetscCall(SFSAICreateWork(bytes, PETSC_MEMTYPE_HOST, row, m, given, work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the columns of a row are those of the row before and that row itself. LAPACK's factors are for one row each. */
bool IsNested(const CSR &G, LocalInt first, LocalInt row)
{
  const LocalInt *const j = G.j + G.i[row], *const before = G.j + G.i[row - 1];
  const LocalInt length = G.i[row] - G.i[row - 1];

  return length + 2 <= kCholeskyLargest && G.i[row + 1] - G.i[row] == length + 1 && j[length] == first + row - 1 &&
         std::equal(before, before + length, j);
}

/* The values of G and d, which is diag(A) before, on the pattern that G has. Nothing is filtered. */
PetscErrorCode ComputeValues(const CSRView &A, LocalInt first, SFSAIParams params, const Arrays &w, CSR *G, PetscReal *d,
                             FSAIStats *stats)
{
  PetscFunctionBegin;
  params.postfilter = 0;
  for (LocalInt row = 0, last; row < G->rows; row = last + 1) {
    for (last = row; last + 1 < G->rows && last + 1 - row < kSFSAIMostShared && IsNested(*G, first, last + 1);) last++;
    const LocalInt begin = G->i[last], m = G->i[last + 1] - begin + 1;
    std::copy(G->j + begin, G->j + G->i[last + 1], w.P);
    w.P[m - 1] = first + last;
    PetscCall(ComputeRows(A, params, m, last - row + 1, w, d + row, stats, [&](LocalInt at) {
      const LocalInt k = G->i[row + at], length = G->i[row + at + 1] - k;
      for (LocalInt r = 0; r < length; r++) SetEntry(G, k + r, w.value[r]);
    }));
    stats->max_row = PetscMax(stats->max_row, m);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Sees that the work is there, and begins with d = diag(A). `longest` is the row of most entries, and has m. Sets the failure if A
   has no scaling.
*/
PetscErrorCode BeginValues(const CSRView &A, LocalInt first, PetscBool given, LocalInt longest, LocalInt m, PetscReal *d,
                           SFSAIWork *work, FSAIStats *stats)
{
  PetscFunctionBegin;
  PetscCall(NeedWork(A.n, longest, m, given, work));
  const Arrays w(work->data, A.n, m);
  PetscCall(FSAIScaling_Host(&A, first, w.s, d, stats));
  std::fill(w.place, w.place + A.n, -1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A new G with its values, and d, without the entries that the postfilter takes away. s is the scaling. */
PetscErrorCode ComputeFiltered(const SFSAIRows &of, const PetscReal *s, SFSAIParams params, CSR *G, PetscReal *d, SFSAIWork *work,
                               FSAIStats *stats)
{
  const CSRView        &A     = *of.A;
  const LocalInt        first = of.first, rows = A.n - first;
  const size_t          most = params.work_limit / (sizeof(LocalInt) + sizeof(PetscReal));
  RowSearch             search(of, s, params);
  std::vector<LocalInt> G_i(1, 0);
  std::deque<LocalInt>  early_j; /* the entries of rows 0 .. early - 1 */
  std::deque<PetscReal> early_a;
  LocalInt              early = 0, longest = 0, m = 0;

  PetscFunctionBegin;
  PetscReal cost = 0;
  for (LocalInt row = 0; row < rows; row++) {
    search.Find(first + row);
    cost += SFSAICost((LocalInt)search.columns.size(), 0);
    if (!of.S && SFSAIIsLong(params, rows, cost)) { /* once more from the first row on */
      params.power       = 1;
      stats->capped_rows = longest = m = 0;
      row                              = -1;
      continue;
    }
    stats->capped_rows += search.capped;
    if ((LocalInt)search.columns.size() > m) longest = row;
    m = PetscMax(m, (LocalInt)search.columns.size());
  }
  stats->power = (LocalInt)params.power;
  PetscCall(BeginValues(A, first, of.S ? PETSC_TRUE : PETSC_FALSE, longest, m, d, work, stats));
  const Arrays w(work->data, A.n, m);
  const auto   compute = [&](LocalInt row, PetscReal *d_i, FSAIStats *counts) {
    search.Find(first + row);
    std::copy(search.columns.begin(), search.columns.end(), w.P);
    return ComputeRows(A, params, (LocalInt)search.columns.size(), 1, w, d_i, counts, [](LocalInt) { });
  };

  G_i.reserve(rows + 1);
  for (LocalInt i = 0; i < rows; i++) {
    PetscCall(compute(i, d + i, stats));
    const LocalInt last = (LocalInt)search.columns.size() - 1, kept = last - (LocalInt)std::count(w.value, w.value + last, 0);
    PetscCheck(kept <= LOCAL_INT_MAX - G_i[i], PETSC_COMM_SELF, PETSC_ERR_SUP,
               "G has more entries than 32 bits can count: raise -pc_sfsai_postfilter, or %s", kSFSAIRemedy);
    G_i.push_back(G_i[i] + kept);
    stats->max_row = PetscMax(stats->max_row, kept + 1);
    if (early < i || (size_t)G_i[i + 1] > most) continue;
    for (LocalInt r = 0; r < last; r++)
      if (w.value[r] != 0) {
        early_j.push_back(w.P[r]);
        early_a.push_back(w.value[r]);
      }
    early++;
  }
  PetscCall(CSRCreate(rows, A.n, G_i[rows], params.factor_precision, PETSC_MEMTYPE_HOST, G));
  std::copy(G_i.begin(), G_i.end(), G->i);
  std::copy(early_j.begin(), early_j.end(), G->j);
  for (LocalInt k = 0; k < G_i[early]; k++) SetEntry(G, k, early_a[k]);
  for (LocalInt i = early; i < rows; i++) { /* d and the counts of these rows are there already */
    PetscReal d_i = 1;
    FSAIStats counts{};
    PetscCall(compute(i, &d_i, &counts));
    for (LocalInt r = 0, k = G_i[i]; k < G_i[i + 1]; r++)
      if (w.value[r] != 0) {
        G->j[k] = w.P[r];
        SetEntry(G, k++, w.value[r]);
      }
  }
  stats->work_bytes =
    work->bytes + A.n * sizeof(PetscReal) + (2 * A.n + 1 + early_j.size()) * sizeof(LocalInt) + early_a.size() * sizeof(PetscReal);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode SFSAICreateWork(size_t bytes, PetscMemType where, LocalInt row, LocalInt m, PetscBool given, SFSAIWork *work)
{
  const PetscReal physical = (PetscReal)sysconf(_SC_PHYS_PAGES) * (PetscReal)sysconf(_SC_PAGESIZE);
  PetscErrorCode  code     = PETSC_ERR_MEM;
  void           *data     = nullptr;

  PetscFunctionBegin;
  /* A host that lends more than it has would end the program later, while the memory is used. */
  if (PetscMemTypeDevice(where) || (PetscReal)bytes <= physical) {
    PetscCall(PetscPushErrorHandler(PetscReturnErrorHandler, nullptr)); /* the error below says what there is to say */
    code = ArrayCreate(bytes, where, &data);
    PetscCall(PetscPopErrorHandler());
  }
  PetscCheck(code != PETSC_ERR_MEM, PETSC_COMM_SELF, PETSC_ERR_MEM,
             "Row %" LocalInt_FMT " of G would have %" LocalInt_FMT
             " entries, and %s memory does not hold its system (%g MB are needed for the set-up): %s",
             row, m, PetscMemTypeDevice(where) ? "the GPU's" : "the host's", (double)(bytes / 1e6),
             given ? kSFSAIRemedyPattern : kSFSAIRemedy);
  PetscCall(code);
  *work = SFSAIWork{data, bytes, where};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SFSAIPattern_Host(const SFSAIRows &of, const PetscReal *s, const SFSAIParams *params, CSR *G, FSAIStats *stats)
{
  const LocalInt        n = of.A->n, first = of.first;
  SFSAIParams           now  = *params;
  PetscReal             cost = 0;
  std::vector<LocalInt> G_i(1, 0);
  std::deque<LocalInt>  G_j;
  RowSearch             search(of, s, now);

  PetscFunctionBegin;
  stats->capped_rows = stats->large_rows = 0;
  G_i.reserve(n - first + 1);
  for (LocalInt i = first; i < n; i++) {
    search.Find(i);
    cost += SFSAICost((LocalInt)search.columns.size(), 0);
    if (!of.S && SFSAIIsLong(now, n - first, cost)) { /* once more from the first row on */
      now.power          = 1;
      stats->capped_rows = 0;
      G_i.resize(1);
      G_j.clear();
      i = first - 1;
      continue;
    }
    stats->capped_rows += search.capped;
    G_j.insert(G_j.end(), search.columns.begin(), search.columns.end() - 1);
    PetscCheck(
      G_j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
      "G has more entries than 32 bits can count: lower -pc_sfsai_power, raise -pc_sfsai_prefilter or set -pc_sfsai_max_row");
    G_i.push_back((LocalInt)G_j.size());
  }
  stats->power = (LocalInt)now.power;
  PetscCall(CSRCreate(n - first, n, G_i.back(), params->factor_precision, PETSC_MEMTYPE_HOST, G));
  std::copy(G_i.begin(), G_i.end(), G->i);
  std::copy(G_j.begin(), G_j.end(), G->j);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SFSAIComputeFactor_Host(const SFSAIRows &of, const SFSAIParams *params, PetscBool keep, CSR *G, PetscReal *d,
                                       SFSAIWork *work, FSAIStats *stats)
{
  const CSRView &A = *of.A;
  const LocalInt n = A.n, first = of.first, rows = n - first;
  const bool     filtered = !keep && params->postfilter > 0;
  LocalInt       longest = 0, m = 0;

  PetscFunctionBegin;
  FSAIStatsBegin(keep, stats);
  if (!keep) {
    std::vector<PetscReal> s(n);
    PetscCall(FSAIScaling_Host(&A, first, s.data(), d, stats));
    if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
    const SFSAIPhase phase(filtered ? params->values_event : params->pattern_event);
    if (filtered) PetscCall(ComputeFiltered(of, s.data(), *params, G, d, work, stats));
    else PetscCall(SFSAIPattern_Host(of, s.data(), params, G, stats));
  }
  if (!filtered) {
    const SFSAIPhase phase(params->values_event);
    for (LocalInt i = 0; i < rows; i++) {
      if (G->i[i + 1] - G->i[i] + 1 > m) longest = i;
      m = PetscMax(m, G->i[i + 1] - G->i[i] + 1);
    }
    PetscCall(BeginValues(A, first, of.S ? PETSC_TRUE : PETSC_FALSE, longest, m, d, work, stats));
    if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(ComputeValues(A, first, *params, Arrays(work->data, n, m), G, d, stats));
    const size_t of_pattern = n * (sizeof(PetscReal) + 2 * sizeof(LocalInt)) + G->nnz * sizeof(LocalInt);
    stats->work_bytes       = keep ? work->bytes : PetscMax(of_pattern, work->bytes);
  }
  PetscCall(FSAIMeanLog_Host(rows, d, &stats->log_psi_after));
  stats->log_psi_after = -stats->log_psi_after;
  PetscFunctionReturn(PETSC_SUCCESS);
}
