/*
   This file and the others that cmatch_host.h names are the host twin of the files in cuda/pc/cmatch, in plain loops. The set-up is
   here. Both twins compute the same bits: every sum is in double and in the order of the loops, every comparison has a rule for
   ties, and no product is fused with a sum. T is the precision of the hierarchy, and the papers are those that cmatch.h names.

   The finest level has A_0 = t W A W with W = diag(w), so that w, which A almost maps to 0, becomes the vector of ones. t is the
   power of 2 that makes the largest diagonal entry lie between 2^(kCMATCHExponent - 1) and 2^kCMATCHExponent. Each operator is in
   difference form,

     (A x)_i = s_i x_i + sum_{j != i} a_ij (x_j - x_i),   d_i = s_i - sum_{j != i} a_ij,   l_i = 1 / (d_i + sum_{j != i} |a_ij|),

   where d_i is the diagonal entry. The row sums s are computed in double, before the entries are rounded to T. Hence the rounding
   of entries does not change what A makes of the ones, on which the solution of an almost singular system depends most.

   Where l_i is 1 / d_i in double precision, since nothing beside the diagonal counts, it becomes root / d_i with a root of the
   smoother's error polynomial. The smoother then solves for row i exactly. Such rows are isolated, or hold boundary values.

   Aggregates are explained in cmatch_aggregate_host.cxx.

   Prolongator. The unsmoothed one has p_i,agg(i) = 1. The smoothed one takes a Jacobi step with the filtered operator A^F,

     P = (I - q A^F) P_unsmoothed,   q_i = omega / max(d^F_i, (d^F_i + sum |a_ij|) / 2),   omega = kCMATCHOmega,

   where A^F has the a_ij with -a_ij >= kCMATCHFilter max_k(-a_ik), and d^F_i is d_i plus the others. Its row sums are those of A.
   Only the prolongator_row largest entries of a row of P are kept, and they are scaled to keep their sum.

   Galerkin product. R = P^T and A_c = R (A P). The row sums are not read off the entries but carried on their own,

     s_c = R (A (P 1)),   (A p)_i = s_i p_i + sum_j a_ij (p_j - p_i),

   so that the coarse operators map the ones to almost 0 as A does.

   The steps of the set-up serve levels on several ranks, too, which cmatch_host_ranks.cxx explains.

   Smoothers, the coarsest level and the cycle are explained in cmatch_cycle_host.cxx, and the smoothers sfsai and afsai in
   cmatch_fsai_host.cxx.
*/
#include <algorithm>
#include <cmath>

#include "cmatch_host.h"

/* ------------------------------------------ a level ------------------------------------------- */

/*
   The diagonal follows from the row sums. Where rounding leaves no positive difference, `diagonal` is taken instead, which was
   summed up with the entries.

   A row of a coarse operator without couplings is a whole component. Where that is singular, nothing but rounding errors are on the
   diagonal, which show by comparison with the diagonal entries that the row was made of: the component ends here. Where the ones
   are in the null space of A, every component is singular. Of rows with couplings a diagonal entry that rounding has made negative
   becomes a small positive one. It counts in sums of magnitudes alone.
*/
template <typename T>
LocalInt CMATCHComplete_Host(LocalInt l, CMATCHHierarchyHost<T> *H, CMATCHSums *sums, CMATCHStats *stats)
{
  CMATCHArrays<T> *const L       = &H->arrays[l];
  const LocalInt         n       = (LocalInt)sums->rs.size();
  const PetscReal        nothing = CMATCHNothing(*H, l);
  LocalInt               bad = -1, ended = 0;

  L->s.resize(n);
  L->d.resize(n);
  for (LocalInt i = 0; i < n; i++) {
    double others = 0, size = 0;
    for (LocalInt k = L->A_i[i]; k < L->A_i[i + 1]; k++) {
      others += (double)L->A_a[k];
      size += std::fabs((double)L->A_a[k]);
    }
    if (CMATCHEnds(sums->rs[i], size != 0, sums->size[i], nothing)) {
      sums->rs[i] = 0;
      L->s[i]     = 0;
      L->d[i]     = (T)sums->size[i];
      if (!(L->d[i] > 0)) L->d[i] = 1;
      ended++;
      continue;
    }
    L->s[i] = (T)sums->rs[i];
    L->d[i] = (T)(sums->rs[i] - others);
    if (!(L->d[i] > 0) || !std::isfinite(L->d[i])) L->d[i] = (T)sums->diagonal[i];
    if (l > 0 && !(L->d[i] > 0)) L->d[i] = (T)CMATCHRounded(sums->rs[i] - others, size + std::fabs(sums->rs[i]), L->d[i]);
    if (bad < 0 && (!(L->d[i] > 0) || !std::isfinite(L->d[i]))) bad = i;
  }
  if (l > 0 && H->level[l - 1].transfer == CMATCH_MATCHED) stats->ended += ended;
  CMATCHComputeL_Host(CMATCHSmootherSteps(H->params).root, L);
  return bad;
}

void CMATCHCheckRows_Host(const CMATCHMatrix &matrix, PetscReal sign, CMATCHStats *stats)
{
  const CSRView     *A = matrix.own, *B = matrix.foreign;
  const PetscScalar *w = matrix.w;

  for (LocalInt i = 0; i < A->n; i++) {
    bool               finite   = !w || std::isfinite(w[i]);
    const PetscScalar *diagonal = nullptr;
    for (LocalInt k = A->i[i]; k < A->i[i + 1]; k++) {
      finite = finite && std::isfinite(A->a[k]);
      if (A->j[k] == i) diagonal = &A->a[k];
    }
    for (LocalInt k = B ? B->i[i] : 0; B && k < B->i[i + 1]; k++) finite = finite && std::isfinite(B->a[k]);
    if (!finite) return CMATCHFail(CMATCH_NOT_FINITE, 0, i, stats);
    if (!diagonal) return CMATCHFail(CMATCH_DIAGONAL_MISSING, 0, i, stats);
    if (!(sign * *diagonal > 0)) return CMATCHFail(CMATCH_DIAGONAL_NOT_POSITIVE, 0, i, stats);
  }
}

template <typename T>
void CMATCHFindScale_Host(const CMATCHMatrix &matrix, CMATCHHierarchyHost<T> *H)
{
  const CSRView *A        = matrix.own;
  double         largest  = matrix.largest;
  int            exponent = 0;

  H->w_kept.clear();
  if (matrix.w) H->w_kept.assign(matrix.w, matrix.w + A->n + matrix.ghosts);
  for (PetscScalar &entry : H->w_kept) entry = CMATCHNearNullEntry(entry, H->params.zero);
  H->w = matrix.w ? H->w_kept.data() : nullptr;
  for (LocalInt i = 0; i < A->n && !matrix.foreign; i++)
    for (LocalInt k = A->i[i]; k < A->i[i + 1]; k++)
      if (A->j[k] == i) largest = PetscMax(largest, PetscAbsScalar(H->w ? A->a[k] * H->w[i] * H->w[i] : A->a[k]));
  if (largest > 0 && std::isfinite(largest)) std::frexp(largest, &exponent);
  H->scale = std::ldexp(CMATCHSign(H->params), kCMATCHExponent - exponent);
}

template <typename T>
void CMATCHFinest_Host(const CMATCHMatrix &matrix, CMATCHHierarchyHost<T> *H, CMATCHSums *sums, CMATCHStats *stats)
{
  const CSRView         *A = matrix.own, *B = matrix.foreign;
  CMATCHArrays<T> *const L   = &H->arrays[0];
  LocalInt               bad = -1; /* the first row with an entry that is too large */

  CMATCHCheckRows_Host(matrix, CMATCHSign(H->params), stats);
  if (stats->failure) return;
  CMATCHFindScale_Host(matrix, H);
  sums->Assign(A->n);
  L->A_i.assign(1, 0);
  L->A_j.clear();
  L->A_a.clear();
  const auto scaled = [&](PetscScalar a, LocalInt i, LocalInt j) {
    return H->w ? (a * H->scale) * (H->w[i] * H->w[j]) : a * H->scale;
  };
  const auto add = [&](LocalInt i, LocalInt j, double value) {
    L->A_j.push_back(j);
    L->A_a.push_back((T)value);
    if (bad < 0 && !std::isfinite((T)value)) bad = i;
  };
  for (LocalInt i = 0; i < A->n; i++) {
    for (LocalInt k = A->i[i]; k < A->i[i + 1]; k++) {
      const LocalInt j     = A->j[k];
      const double   value = scaled(A->a[k], i, j);
      sums->rs[i] += value;
      if (j == i) sums->diagonal[i] = value;
      else add(i, j, value);
    }
    for (LocalInt k = B ? B->i[i] : 0; B && k < B->i[i + 1]; k++) {
      const LocalInt j     = A->n + B->j[k];
      const double   value = scaled(B->a[k], i, j);
      sums->rs[i] += value;
      add(i, j, value);
    }
    L->A_i.push_back((LocalInt)L->A_j.size());
  }
  sums->size         = sums->diagonal;
  const LocalInt row = CMATCHComplete_Host(0, H, sums, stats);
  if (bad < 0 || (row >= 0 && row < bad)) bad = row;
  if (bad >= 0) CMATCHFail(CMATCH_TOO_LARGE, 0, bad, stats);
}

template <typename T>
CMATCHGraph CMATCHGraphOf_Host(const CMATCHArrays<T> &L, const std::vector<double> &diagonal)
{
  CMATCHGraph M;

  M.i = L.A_i;
  M.j = L.A_j;
  M.a.assign(L.A_a.begin(), L.A_a.end());
  M.d.assign(diagonal.begin(), diagonal.end());
  M.foreign = (LocalInt)L.ghost.size();
  return M;
}

/* -------------------------------------- the prolongator --------------------------------------- */

namespace
{

/*
   A row of the smoothed prolongator. Without `keep` its columns are found, with `keep` the columns that are there get new values.
*/
template <typename T>
void ProlongatorRow(const CMATCHArrays<T> &L, LocalInt i, PetscBool keep, LocalInt width, LocalInt *P_j, T *P_a, CMATCHSparseRow *v,
                    CMATCHLevel *level)
{
  const LocalInt own     = L.aggregate[i];
  T              largest = 0;
  double         others  = 0, l1, S;

  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) largest = PetscMax(largest, -L.A_a[k]);
  const T    least = (T)kCMATCHFilter * largest;
  const auto kept  = [&](LocalInt k) { return largest == 0 || !(-L.A_a[k] < least); };

  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++)
    if (!kept(k)) others += (double)L.A_a[k];
  const double d  = (double)L.d[i];
  const double dF = d + others > kCMATCHLeastDiagonal * d ? d + others : d;
  l1              = std::fabs(dF);
  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++)
    if (kept(k)) l1 += std::fabs((double)L.A_a[k]);
  const double D = PetscMax(dF, 0.5 * l1);
  const double q = kCMATCHOmega / (D > 0 ? D : 1.);

  S          = dF;
  v->At(own) = 1 - q * dF;
  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
    const LocalInt to = L.aggregate[L.A_j[k]];
    if (to < 0 || !kept(k)) continue;
    S += (double)L.A_a[k];
    v->At(to) -= q * (double)L.A_a[k];
  }

  /*
     The columns of the row, and whether the row is cut, which scales it. A row that has its columns already is cut if one of them
     is missing.
  */
  std::vector<LocalInt> take;
  bool                  cut = false;
  if (keep) {
    take.assign(P_j, std::find(P_j, P_j + width, -1));
    for (LocalInt c : v->columns) cut = cut || (v->sum[c] != 0 && !std::binary_search(take.begin(), take.end(), c));
  } else {
    for (LocalInt c : v->columns)
      if (v->sum[c] != 0) take.push_back(c);
    cut = take.size() > (size_t)width;
    if (cut) {
      std::sort(take.begin(), take.end(), [&](LocalInt a, LocalInt b) {
        const double   size_a = std::fabs(v->sum[a]), size_b = std::fabs(v->sum[b]);
        const uint32_t mix_a = CMATCHMix(i, a), mix_b = CMATCHMix(i, b);
        return size_a != size_b ? size_a > size_b : mix_a != mix_b ? mix_a > mix_b : a < b;
      });
      take.resize(width);
    }
    std::sort(take.begin(), take.end());
  }
  double sum = 0, factor = 1;
  bool   plain = take.empty();
  if (cut) {
    for (LocalInt c : take) sum += v->sum[c];
    factor = (1 - q * S) / sum;
    plain  = plain || !(factor > 0 && factor <= kCMATCHMostScaling);
  }
  if (plain && !keep) take.assign(1, own);
  for (size_t e = 0; e < take.size(); e++) {
    P_j[e] = take[e];
    P_a[e] = plain ? (T)(take[e] == own) : (T)(cut ? v->sum[take[e]] * factor : v->sum[take[e]]);
  }
  level->plain += plain;
  level->cut += cut && !plain;
  v->Clear();
}

} // namespace

template <typename T>
void CMATCHProlongator_Host(PetscBool keep, CMATCHLevel *level, CMATCHArrays<T> *L)
{
  const LocalInt  n = level->n, width = level->width;
  CMATCHSparseRow v(L->aggregate.empty() ? 0 : 1 + *std::max_element(L->aggregate.begin(), L->aggregate.end()));

  level->cut = level->plain = 0;
  if (!keep) L->P_j.assign((size_t)n * width, -1);
  L->P_a.assign((size_t)(n + level->ghosts) * width, (T)0);
  for (LocalInt i = 0; i < n; i++) {
    LocalInt *const P_j = &L->P_j[(size_t)i * width];
    T *const        P_a = &L->P_a[(size_t)i * width];
    if (L->aggregate[i] < 0) continue;
    if (level->transfer == CMATCH_MATCHED) ProlongatorRow(*L, i, keep, width, P_j, P_a, &v, level);
    else {
      P_j[0] = L->aggregate[i];
      P_a[0] = 1;
    }
  }
}

template <typename T>
void CMATCHRestriction_Host(const CMATCHLevel &level, CMATCHArrays<T> *L)
{
  const LocalInt rows = level.coarse + level.foreign, width = level.width;
  const size_t   entries = (size_t)level.n * width;

  L->R_i.assign(rows + 1, 0);
  for (size_t e = 0; e < entries; e++)
    if (L->P_j[e] >= 0) L->R_i[L->P_j[e] + 1]++;
  for (LocalInt c = 0; c < rows; c++) L->R_i[c + 1] += L->R_i[c];
  L->R_j.resize(L->R_i[rows]);
  L->R_a.resize(L->R_i[rows]);
  std::vector<LocalInt> next(L->R_i.begin(), L->R_i.end() - 1);
  for (size_t e = 0; e < entries; e++) {
    if (L->P_j[e] < 0) continue;
    const LocalInt to = next[L->P_j[e]]++;
    L->R_j[to]        = (LocalInt)(e / width);
    L->R_a[to]        = L->P_a[e];
  }
}

/* ------------------------------------ the Galerkin product ------------------------------------ */

template <typename T>
CMATCHProducts<T>::CMATCHProducts(const CMATCHLevel &level, const CMATCHArrays<T> &L, const std::vector<double> &rs,
                                  LocalInt columns) : L_(L), AP_i_(1, 0), Ap_(level.n, 0.)
{
  const LocalInt      width = level.width;
  std::vector<double> p(level.n + level.ghosts, 0.);
  CMATCHSparseRow     row(columns);

  for (size_t i = 0; i < p.size(); i++)
    for (LocalInt e = 0; e < width; e++) p[i] += (double)L.P_a[i * width + e];
  for (LocalInt i = 0; i < level.n; i++) {
    double     y   = rs[i] * p[i];
    const auto add = [&](double a, LocalInt from) {
      for (size_t e = (size_t)from * width; e < (size_t)(from + 1) * width && L.P_j[e] >= 0; e++)
        row.At(L.P_j[e]) += a * (double)L.P_a[e];
    };
    add((double)L.d[i], i);
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      y += (double)L.A_a[k] * (p[L.A_j[k]] - p[i]);
      add((double)L.A_a[k], L.A_j[k]);
    }
    Ap_[i] = y;
    for (LocalInt c : row.columns) {
      AP_j_.push_back(c);
      AP_a_.push_back((T)row.sum[c]);
    }
    row.Clear();
    AP_i_.push_back(AP_j_.size());
  }
}

template <typename T>
void CMATCHProducts<T>::MarkColumns(LocalInt rows, std::vector<char> *used) const
{
  for (LocalInt c = 0; c < rows; c++)
    for (LocalInt k = L_.R_i[c]; k < L_.R_i[c + 1]; k++)
      for (size_t e = AP_i_[L_.R_j[k]]; e < AP_i_[L_.R_j[k] + 1]; e++) (*used)[AP_j_[e]] = 1;
}

template <typename T>
double CMATCHProducts<T>::Row(LocalInt c, CMATCHSparseRow *row, double *size) const
{
  double rs = 0;

  for (LocalInt k = L_.R_i[c]; k < L_.R_i[c + 1]; k++) {
    const double   a = (double)L_.R_a[k];
    const LocalInt i = L_.R_j[k];
    rs += a * Ap_[i];
    *size += a * a * (double)L_.d[i];
    for (size_t e = AP_i_[i]; e < AP_i_[i + 1]; e++) row->At(AP_j_[e]) += a * (double)AP_a_[e];
  }
  row->Sort();
  return rs;
}

template <typename T>
PetscErrorCode CMATCHAddRow_Host(const CMATCHSparseRow &row, LocalInt c, double rs, CMATCHArrays<T> *C, CMATCHSums *sums)
{
  PetscFunctionBegin;
  for (LocalInt to : row.columns) {
    const double value = row.sum[to];
    if (to == c) {
      sums->diagonal[c] = value;
      continue;
    }
    C->A_j.push_back(to);
    C->A_a.push_back((T)value);
  }
  sums->rs[c] = row.columns.empty() ? 1 : rs;
  PetscCheck(C->A_j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A coarse operator has more entries than 32 bits can count: lower -pc_cmatch_prolongator_row");
  C->A_i.push_back((LocalInt)C->A_j.size());
  PetscFunctionReturn(PETSC_SUCCESS);
}

namespace
{

/* Makes the entries of the next level C from level L. Its sums replace those of level L. */
template <typename T>
PetscErrorCode Galerkin(const CMATCHLevel &level, const CMATCHArrays<T> &L, CMATCHArrays<T> *C, CMATCHSums *sums,
                        size_t *work_bytes)
{
  const CMATCHProducts<T> products(level, L, sums->rs, level.coarse);
  CMATCHSparseRow         row(level.coarse);

  PetscFunctionBegin;
  C->A_i.assign(1, 0);
  C->A_j.clear();
  C->A_a.clear();
  sums->Assign(level.coarse);
  for (LocalInt c = 0; c < level.coarse; c++) {
    const double sum = products.Row(c, &row, &sums->size[c]);
    PetscCall(CMATCHAddRow_Host(row, c, sum, C, sums));
    row.Clear();
  }
  *work_bytes = PetscMax(*work_bytes, products.Bytes() + 3 * CMATCHBytes(sums->rs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* ---------------------------------------- the hierarchy --------------------------------------- */

template <typename T>
void CMATCHShow_Host(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T> &from = H->arrays[l];
  CMATCHLevel     &to   = H->level[l];

  to.n         = (LocalInt)from.d.size();
  to.nnz       = (LocalInt)from.A_j.size();
  to.A_i       = from.A_i.data();
  to.A_j       = from.A_j.data();
  to.A_a       = from.A_a.data();
  to.s         = from.s.data();
  to.d         = from.d.data();
  to.l         = from.l.data();
  to.aggregate = from.aggregate.data();
  to.P_j       = from.P_j.data();
  to.P_a       = from.P_a.data();
  to.R_i       = from.R_i.data();
  to.R_j       = from.R_j.data();
  to.R_a       = from.R_a.data();
  to.P_nnz     = (LocalInt)from.R_j.size();
  to.ghosts    = (LocalInt)from.ghost.size();
  to.ghost     = from.ghost.data();
  to.column    = from.column.data();
  if (l >= H->several) to.all = to.n;
}

template <typename T>
void CMATCHAdopt_Host(LocalInt l, CMATCHTransfer transfer, CMATCHAggregation *found, CMATCHHierarchyHost<T> *H)
{
  const CMATCHParams   &params = H->params;
  CMATCHLevel          &level  = H->level[l];
  std::vector<LocalInt> rows(found->coarse, 0);

  for (LocalInt a : found->aggregate)
    if (a >= 0) rows[a]++;
  level.transfer         = transfer;
  level.coarse           = found->coarse;
  level.foreign          = 0;
  level.width            = transfer == CMATCH_MATCHED ? (LocalInt)params.prolongator_row : 1;
  level.left             = found->left;
  level.joined           = found->joined;
  level.largest          = rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
  level.singles          = (LocalInt)std::count(rows.begin(), rows.end(), 1);
  H->arrays[l].aggregate = std::move(found->aggregate);
}

namespace
{

/*
   Finds the aggregates of level l. M is the operator that the matching sees, and becomes that of the next level. Returns false if
   the coarsening ends here.
*/
template <typename T>
bool Coarsen(LocalInt l, CMATCHHierarchyHost<T> *H, CMATCHGraph *M, size_t *work_bytes)
{
  const CMATCHParams &params = H->params;
  CMATCHLevel        &level  = H->level[l];

  if (level.n <= params.coarse_size || l + 1 >= params.max_levels) {
    H->end = level.n <= params.coarse_size ? CMATCH_END_SIZE : CMATCH_END_LEVELS;
    return false;
  }
  if (l > 0 && H->level[l - 1].transfer == CMATCH_MATCHED && CMATCHIsSlow(params, H->level[l - 1].all, level.n)) {
    H->end = CMATCH_END_SLOW;
    return false;
  }
  if (params.coarsening == PC_CMATCH_MIS2) {
    const CMATCHArrays<T> &L = H->arrays[l];
    *M                       = CMATCHGraphOf_Host(L, std::vector<double>(L.d.begin(), L.d.end()));
  }
  CMATCHAggregation found = CMATCHAggregate_Host(params, level.n, M, work_bytes);
  level.left              = found.left;
  if (found.left == level.n || found.coarse >= kCMATCHStall * (level.n - found.left)) {
    H->end = found.left == level.n ? CMATCH_END_DOMINATED : CMATCH_END_STALLED;
    return false;
  }
  CMATCHAdopt_Host(l, CMATCH_MATCHED, &found, H);
  return true;
}

/* Whether the fit of the last level is measured, too, which has no aggregates. */
template <typename T>
bool HasLastFit(const CMATCHHierarchyHost<T> &H)
{
  return H.end == CMATCH_END_DOMINATED || H.end == CMATCH_END_STALLED;
}

/* How well aggregates fit the values that they were made for. Only set-ups with other values need it, and the first of them asks.
 */
template <typename T>
void MeasureFirstFit(CMATCHHierarchyHost<T> *H)
{
  for (LocalInt l = 0; l < H->levels; l++) {
    const bool last = l + 1 == H->levels;
    if (!last || HasLastFit(*H)) H->level[l].first_fit = CMATCHFit_Host(H->params, H->level[l], last, H->arrays[l]);
  }
  H->has_fit = PETSC_TRUE;
}

} // namespace

template <typename T>
PetscErrorCode CMATCHMakeLevels_Host(LocalInt l, CMATCHProgress *progress, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  const CMATCHParams &params = H->params;
  const PetscBool     keep   = progress->keep;

  PetscFunctionBegin;
  for (;; l++) {
    if (keep ? l + 1 == H->levels : !Coarsen(l, H, &progress->M, &stats->work_bytes)) {
      H->levels = l + 1;
      if ((keep || H->several) && HasLastFit(*H)) H->level[l].fit = CMATCHFit_Host(params, H->level[l], true, H->arrays[l]);
      break;
    }
    if (keep || H->several) H->level[l].fit = CMATCHFit_Host(params, H->level[l], false, H->arrays[l]);
    CMATCHProlongator_Host(keep, &H->level[l], &H->arrays[l]);
    CMATCHRestriction_Host(H->level[l], &H->arrays[l]);
    CMATCHShow_Host(l, H);
    PetscCall(Galerkin(H->level[l], H->arrays[l], &H->arrays[l + 1], &progress->sums, &stats->work_bytes));
    const LocalInt bad = CMATCHComplete_Host(l + 1, H, &progress->sums, stats);
    CMATCHShow_Host(l + 1, H);
    if (bad >= 0) {
      CMATCHFail(CMATCH_DIAGONAL_NOT_POSITIVE, l + 1, bad, stats);
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  stats->end = H->end;
  PetscCall(CMATCHFinish_Host(progress->sums.rs, keep, H, stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode CMATCHCreate_Host(const CMATCHParams *params, PetscBool keep, CMATCHHierarchy **H)
{
  PetscFunctionBegin;
  if (keep) {
    (*H)->params.negative = params->negative;
    (*H)->params.zero     = params->zero;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(CMATCHDestroy_Host(H));
  *H           = new CMATCHHierarchyHost<T>();
  (*H)->params = *params;
  (*H)->where  = PETSC_MEMTYPE_HOST;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes an empty hierarchy of precision T in the place of *H, unless *H is to be kept, and computes it. */
template <typename T>
static PetscErrorCode Compute_CMATCH(const CMATCHMatrix &A, const CMATCHParams *params, PetscBool keep, CMATCHHierarchy **hierarchy,
                                     CMATCHStats *stats)
{
  CMATCHProgress progress;

  PetscFunctionBegin;
  PetscCall(CMATCHCreate_Host<T>(params, keep, hierarchy));
  auto *const H = static_cast<CMATCHHierarchyHost<T> *>(*hierarchy);
  progress.keep = keep;
  if (keep && !H->has_fit) MeasureFirstFit(H);
  CMATCHFinest_Host(A, H, &progress.sums, stats);
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  CMATCHShow_Host(0, H);
  if (!keep && params->coarsening == PC_CMATCH_MATCHING) progress.M = CMATCHGraphOf_Host(H->arrays[0], progress.sums.diagonal);
  PetscCall(CMATCHMakeLevels_Host(0, &progress, H, stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHComputeHierarchy_Host(const CSRView *A, const PetscScalar *w, const CMATCHParams *params, PetscBool keep,
                                           PetscBool, CMATCHHierarchy **H, CMATCHStats *stats)
{
  PetscFunctionBegin;
  const CMATCHMatrix matrix{A, nullptr, 0, w, 0};
  *stats = CMATCHStats{};
  if (params->precision == FINEPC_SINGLE) PetscCall(Compute_CMATCH<float>(matrix, params, keep, H, stats));
  else PetscCall(Compute_CMATCH<double>(matrix, params, keep, H, stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDestroy_Host(CMATCHHierarchy **H)
{
  PetscFunctionBegin;
  if (!*H) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHDestroyFactors_Host(*H));
  if ((*H)->params.precision == FINEPC_SINGLE) delete static_cast<CMATCHHierarchyHost<float> *>(*H);
  else delete static_cast<CMATCHHierarchyHost<double> *>(*H);
  *H = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* of both precisions, what cmatch_host_ranks.cxx uses */
template void        CMATCHFinest_Host(const CMATCHMatrix &, CMATCHHierarchyHost<float> *, CMATCHSums *, CMATCHStats *);
template void        CMATCHFinest_Host(const CMATCHMatrix &, CMATCHHierarchyHost<double> *, CMATCHSums *, CMATCHStats *);
template void        CMATCHFindScale_Host(const CMATCHMatrix &, CMATCHHierarchyHost<float> *);
template void        CMATCHFindScale_Host(const CMATCHMatrix &, CMATCHHierarchyHost<double> *);
template CMATCHGraph CMATCHGraphOf_Host(const CMATCHArrays<float> &, const std::vector<double> &);
template void        CMATCHAdopt_Host(LocalInt, CMATCHTransfer, CMATCHAggregation *, CMATCHHierarchyHost<float> *);
template void        CMATCHProlongator_Host(PetscBool, CMATCHLevel *, CMATCHArrays<float> *);
template void        CMATCHRestriction_Host(const CMATCHLevel &, CMATCHArrays<float> *);
template class CMATCHProducts<float>;
template PetscErrorCode CMATCHAddRow_Host(const CMATCHSparseRow &, LocalInt, double, CMATCHArrays<float> *, CMATCHSums *);
template LocalInt       CMATCHComplete_Host(LocalInt, CMATCHHierarchyHost<float> *, CMATCHSums *, CMATCHStats *);
template void           CMATCHShow_Host(LocalInt, CMATCHHierarchyHost<float> *);
template PetscErrorCode CMATCHMakeLevels_Host(LocalInt, CMATCHProgress *, CMATCHHierarchyHost<float> *, CMATCHStats *);
template PetscErrorCode CMATCHCreate_Host<float>(const CMATCHParams *, PetscBool, CMATCHHierarchy **);
template CMATCHGraph    CMATCHGraphOf_Host(const CMATCHArrays<double> &, const std::vector<double> &);
template void           CMATCHAdopt_Host(LocalInt, CMATCHTransfer, CMATCHAggregation *, CMATCHHierarchyHost<double> *);
template void           CMATCHProlongator_Host(PetscBool, CMATCHLevel *, CMATCHArrays<double> *);
template void           CMATCHRestriction_Host(const CMATCHLevel &, CMATCHArrays<double> *);
template class CMATCHProducts<double>;
template PetscErrorCode CMATCHAddRow_Host(const CMATCHSparseRow &, LocalInt, double, CMATCHArrays<double> *, CMATCHSums *);
template LocalInt       CMATCHComplete_Host(LocalInt, CMATCHHierarchyHost<double> *, CMATCHSums *, CMATCHStats *);
template void           CMATCHShow_Host(LocalInt, CMATCHHierarchyHost<double> *);
template PetscErrorCode CMATCHMakeLevels_Host(LocalInt, CMATCHProgress *, CMATCHHierarchyHost<double> *, CMATCHStats *);
template PetscErrorCode CMATCHCreate_Host<double>(const CMATCHParams *, PetscBool, CMATCHHierarchy **);
