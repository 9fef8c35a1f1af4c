/*
   This file is the host twin of cuda/pc/afsai, in plain loops. The equations (2.x) are those of Isotton, Janna and Bernaschi,
   whom afsai.h names.

   A is scaled to unit diagonal. P = P_i are the columns j < i of the pattern of row i of G~, which the paper calls P-bar. For this
   row

     A[P, P] g = -A[P, i]                       (2.7)
     psi       = g~ A g~^T,  g~ = (g over P, 1 at i)   (2.13)
     d psi / d g_j = 2 (A[j, P] g + a_ji)       (2.15)

   Candidates are the columns j < i, j not in P, of those rows of A that belong to P and to i. A step adds the step_size candidates
   of the largest |gradient|. The Cholesky factor L of A[P, P] is bordered by each new index q:

     L y = A[P, q],   l_qq^2 = a_qq - y.y,   w_q = -(a_qi + y.w) / l_qq,   psi_new = psi - w_q^2,   L^T g = w.

   With D_G^2 = 1 / psi, the factor G = D_G G~ has diag(G A G^T) = 1, (2.8).
*/
#include <algorithm>
#include <cmath>
#include <vector>

#include "afsai.h"

namespace
{

template <typename T>
class RowMaker {
public:
  RowMaker(const CSRView &A, const std::vector<PetscReal> &s, const AFSAIParams &params) :
      A_(A), s_(s), params_(params), a_(A.nnz), place_(A.n, kUnseen), g_(A.n, 0)
  {
    for (LocalInt row = 0; row < A.n; row++) /* the diagonal is exactly 1, and not only up to rounding */
      for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) a_[k] = A.j[k] == row ? 1 : (T)(A.a[k] * s[row] * s[A.j[k]]);
  }

  /*
     Computes row i on the pattern `keep`, or if that is null, on a pattern that is found and starts with `given`, or, if that is
     null too, with a power of A. Returns false after a bad pivot.
  */
  bool Make(LocalInt i, const std::vector<LocalInt> *keep, const std::vector<LocalInt> *given)
  {
    Clear();
    i_    = i;
    g_[i] = 1;
    columns_of_g_.assign(1, i);
    psi_       = 1;
    unfinished = false;
    if (keep) return Append(*keep) && Finish(true);
    unread_.push_back(i);
    if (given && !Append(*given)) return false;
    for (LocalInt p = 0; p < params_.initial_power && !given; p++) {
      const std::vector<LocalInt> next = Candidates();
      if (next.empty()) break; /* further powers have the same pattern */
      if (!Append(next)) return false;
    }
    const T psi_initial = psi_;
    for (LocalInt step = 0; step < params_.max_steps; step++) {
      const T                     psi_before = psi_;
      const std::vector<LocalInt> chosen     = Largest();
      if (chosen.empty()) break;
      if (!Append(chosen)) return false;
      unfinished = step + 1 == params_.max_steps && psi_before - psi_ > (T)kAFSAISmallStep * psi_before;
      if (params_.stop_rule == PC_AFSAI_STOP_RATIO ? psi_ <= (T)params_.tolerance * psi_initial
                                                   : psi_before - psi_ < (T)params_.tolerance * psi_before)
        break;
    }
    return Finish(false);
  }

  /* The row that was computed last: its columns, ascending, its values for A itself, and psi for A scaled. */
  std::vector<LocalInt>  columns;
  std::vector<PetscReal> values;
  PetscReal              psi;
  bool                   unfinished; /* whether it took all steps, and the last one was not small */

private:
  /*
     What place_ holds for a column that is not in P: a column that no row has brought in, a candidate, and a column of which all
     entries so far were below the prefilter. For a column in P it holds the place in P.
  */
  static constexpr LocalInt kUnseen = -1, kFree = -2, kIneligible = -3;

  void Clear()
  {
    for (LocalInt j : seen_) place_[j] = kUnseen;
    for (LocalInt j : P_) place_[j] = kUnseen, g_[j] = 0;
    g_[i_] = 0;
    seen_.clear();
    unread_.clear();
    P_.clear();
    L_.clear();
    w_.clear();
  }

  /* Makes candidates of the columns of a row of A. */
  void SeeRow(LocalInt row)
  {
    for (LocalInt k = A_.i[row]; k < A_.i[row + 1]; k++) {
      const LocalInt j = A_.j[k];
      if (j >= i_) continue;
      if (place_[j] == kUnseen) {
        place_[j] = kIneligible;
        seen_.push_back(j);
      }
      if (place_[j] == kIneligible && std::fabs(a_[k]) > (T)params_.prefilter) place_[j] = kFree;
    }
  }

  /* Rows of A are read when candidates are asked for: a row that ends with the step that added a long one does not read that. */
  std::vector<LocalInt> Candidates()
  {
    std::vector<LocalInt> free;
    for (LocalInt q : unread_) SeeRow(q);
    unread_.clear();
    for (LocalInt j : seen_)
      if (place_[j] == kFree) free.push_back(j);
    std::sort(free.begin(), free.end());
    return free;
  }

  /*
     Calls f(column, place in A) for the entries of a row of A in the columns P and i, and perhaps for others. A row that is much
     longer than P is searched for them: otherwise a dense row, which all others may have in P, would be read as often as there are
     rows.
  */
  template <typename F>
  void ForEntries(LocalInt row, const F &f) const
  {
    constexpr size_t      kMuchLonger = 32;
    const LocalInt *const begin = A_.j + A_.i[row], *const end = A_.j + A_.i[row + 1];
    if ((size_t)(end - begin) <= kMuchLonger * columns_of_g_.size()) {
      for (const LocalInt *at = begin; at < end; at++) f(*at, (LocalInt)(at - A_.j));
      return;
    }
    const LocalInt *at = begin;
    for (LocalInt j : columns_of_g_) {
      at = std::lower_bound(at, end, j);
      if (at < end && *at == j) f(j, (LocalInt)(at - A_.j));
    }
  }

  template <typename Sum>
  Sum RowTimesG(LocalInt row) const
  {
    Sum sum = 0;
    ForEntries(row, [&](LocalInt column, LocalInt k) { sum += (Sum)a_[k] * g_[column]; });
    return sum;
  }

  /* Returns the step_size candidates of the largest gradients that are not zero. Among equals smaller columns come first. */
  std::vector<LocalInt> Largest()
  {
    std::vector<std::pair<T, LocalInt>> ranked;
    for (LocalInt j : Candidates()) {
      T gradient = std::fabs(RowTimesG<T>(j));
      if (params_.selection == PC_AFSAI_SELECTION_GRADIENT) gradient *= (T)(1 / s_[j]);
      if (gradient > 0) ranked.emplace_back(-gradient, j);
    }
    const size_t count = std::min<size_t>(ranked.size(), params_.step_size);
    std::partial_sort(ranked.begin(), ranked.begin() + count, ranked.end());
    std::vector<LocalInt> chosen;
    for (size_t c = 0; c < count; c++) chosen.push_back(ranked[c].second);
    return chosen;
  }

  /* Borders L by each new index, and then solves for g. Returns false after a bad pivot. */
  bool Append(const std::vector<LocalInt> &added)
  {
    for (LocalInt q : added) {
      const size_t   k = P_.size();
      std::vector<T> y(k, 0);
      T              a_qi = 0, square = 0, yw = 0;
      ForEntries(q, [&](LocalInt column, LocalInt e) {
        if (column == i_) a_qi = a_[e];
        else if (place_[column] >= 0) y[place_[column]] = a_[e];
      });
      for (size_t r = 0; r < k; r++) {
        for (size_t c = 0; c < r; c++) y[r] -= L_[r][c] * y[c];
        y[r] /= L_[r][r];
        square += y[r] * y[r];
        yw += y[r] * w_[r];
      }
      const T pivot = 1 - square, l = std::sqrt(pivot), w = -(a_qi + yw) / l;
      psi_ -= w * w;
      if (!(pivot > smallest_pivot_) || !(psi_ > smallest_pivot_)) return false;
      y.push_back(l);
      L_.push_back(y);
      w_.push_back(w);
      place_[q] = (LocalInt)k;
      P_.push_back(q);
      columns_of_g_.insert(std::lower_bound(columns_of_g_.begin(), columns_of_g_.end(), q), q);
    }
    for (size_t r = P_.size(); r-- > 0;) {
      T sum = w_[r];
      for (size_t c = r + 1; c < P_.size(); c++) sum -= L_[c][r] * g_[P_[c]];
      g_[P_[r]] = sum / L_[r][r];
    }
    unread_.insert(unread_.end(), added.begin(), added.end());
    return true;
  }

  /*
     Applies the postfilter, and then computes psi in double from the values that are left, so that diag(G A G^T) = 1 whatever the
     rounding before. Returns false if the row cannot be used.
  */
  bool Finish(bool keep)
  {
    std::sort(P_.begin(), P_.end());
    const bool filter = params_.postfilter > 0 && !keep;
    if (filter) { /* (3.11) of Bernaschi et al.; their (3.13) is the psi of the filtered row, which is computed below */
      PetscReal norm = s_[i_] * s_[i_];
      for (LocalInt j : P_) norm += PetscSqr(g_[j] * s_[j]);
      norm = params_.postfilter * std::sqrt(norm);
      for (LocalInt j : P_)
        if (std::fabs(g_[j] * s_[j]) <= norm) g_[j] = 0;
    }
    psi = RowTimesG<PetscReal>(i_);
    columns.clear();
    values.clear();
    for (LocalInt j : P_) {
      if (filter && g_[j] == 0) continue;
      psi += (PetscReal)g_[j] * RowTimesG<PetscReal>(j);
      columns.push_back(j);
      values.push_back(g_[j] * s_[j] / s_[i_]);
      if (!std::isfinite((float)values.back())) return false;
    }
    return psi > smallest_pivot_;
  }

  const CSRView                &A_;
  const std::vector<PetscReal> &s_;
  const AFSAIParams            &params_;
  const T smallest_pivot_ = (T)(sizeof(T) == sizeof(float) ? kFSAISmallestPivotSingle : kFSAISmallestPivotDouble);

  std::vector<T>              a_;            /* [nnz] values of A scaled */
  std::vector<LocalInt>       place_;        /* [n] place of a column in P, or kUnseen, kFree or kIneligible */
  std::vector<T>              g_;            /* [n] g~, zero outside P and i */
  std::vector<LocalInt>       seen_, P_;     /* columns that were brought in; columns of the pattern as they came */
  std::vector<LocalInt>       columns_of_g_; /* P and i, ascending */
  std::vector<LocalInt>       unread_;       /* rows of A whose columns are not candidates yet */
  std::vector<std::vector<T>> L_;            /* rows of the Cholesky factor of A[P, P] */
  std::vector<T>              w_;            /* solution of L w = -A[P, i] */
  LocalInt                    i_   = 0;      /* the row */
  T                           psi_ = 1;      /* psi of the row so far */
};

} // namespace

PetscErrorCode AFSAIComputeFactor_Host(const CSRView *A, LocalInt first, const CSRView *S, const AFSAIParams *params,
                                       PetscBool keep, CSR *G, PetscReal *d, FSAIStats *stats)
{
  const LocalInt         rows = A->n - first;
  std::vector<PetscReal> s(A->n);
  std::vector<LocalInt>  G_i(1, 0), G_j, start;
  std::vector<PetscReal> G_a;

  PetscFunctionBegin;
  FSAIStatsBegin(keep, stats);
  PetscCall(FSAIScaling_Host(A, first, s.data(), d, stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);

  std::vector<RowMaker<float>>  in_single; /* both have at most one element, which is made when it is first needed */
  std::vector<RowMaker<double>> in_double;
  if (params->setup_precision == FINEPC_SINGLE) in_single.emplace_back(*A, s, *params);
  for (LocalInt row = 0; row < rows; row++) {
    const LocalInt i    = first + row;
    PetscReal      psi  = 1;
    bool           done = false;
    if (keep) start.assign(G->j + G->i[row], G->j + G->i[row + 1]);
    else if (S) start.assign(S->j + S->i[row], std::lower_bound(S->j + S->i[row], S->j + S->i[row + 1], i));
    const auto make = [&](auto &maker) {
      if (!maker.Make(i, keep ? &start : nullptr, S ? &start : nullptr)) return false;
      psi = maker.psi;
      stats->unfinished += maker.unfinished;
      G_j.insert(G_j.end(), maker.columns.begin(), maker.columns.end());
      G_a.insert(G_a.end(), maker.values.begin(), maker.values.end());
      return true;
    };
    if (!in_single.empty()) {
      done = make(in_single[0]);
      if (!done) stats->double_rows++;
    }
    if (!done) {
      if (in_double.empty()) in_double.emplace_back(*A, s, *params);
      done = make(in_double[0]);
    }
    if (!done) {
      stats->diagonal_rows++;
      if (keep) {
        G_j.insert(G_j.end(), start.begin(), start.end());
        G_a.insert(G_a.end(), start.size(), 0);
      }
    }
    PetscCheck(G_j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "G has more entries than 32 bits can count: lower -pc_afsai_max_steps");
    G_i.push_back((LocalInt)G_j.size());
    stats->max_row = PetscMax(stats->max_row, G_i[row + 1] - G_i[row] + 1);
    d[row]         = 1 / (d[row] * psi);
  }
  PetscCall(FSAIMeanLog_Host(rows, d, &stats->log_psi_after));
  stats->log_psi_after = -stats->log_psi_after; /* d = 1 / psi */
  /* The memory is that of A scaled and the work vectors, in each precision in use, of the scaling, and of G while it grows. */
  stats->work_bytes = (in_single.size() * sizeof(float) + in_double.size() * sizeof(double)) * (A->nnz + A->n) +
                      (in_single.size() + in_double.size()) * A->n * sizeof(LocalInt) + A->n * sizeof(PetscReal) +
                      G_j.size() * (sizeof(LocalInt) + sizeof(PetscReal));

  if (!keep) {
    PetscCall(CSRCreate(rows, A->n, (LocalInt)G_j.size(), params->factor_precision, PETSC_MEMTYPE_HOST, G));
    PetscCall(PetscArraycpy(G->i, G_i.data(), rows + 1));
    PetscCall(PetscArraycpy(G->j, G_j.data(), G->nnz));
  }
  if (G->precision == FINEPC_SINGLE) std::copy(G_a.begin(), G_a.end(), (float *)G->a);
  else std::copy(G_a.begin(), G_a.end(), (double *)G->a);
  PetscFunctionReturn(PETSC_SUCCESS);
}
