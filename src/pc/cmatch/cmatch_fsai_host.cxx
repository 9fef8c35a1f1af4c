/*
   This file is the host twin of cuda/pc/cmatch/cmatch_fsai.cu, in plain loops: the smoothers sfsai and afsai. Twins agree here up
   to rounding, and afsai's patterns may differ where rounding decides.

   On each level that is smoothed, the factored inverse of A_l takes the place of diag(l),

     M^{-1} = omega (I + W)^T diag(1 / psi) (I + W),   omega = 1 / (kCMATCHFactorMargin lambda),

   with the G~ = I + W and the psi of fsai.h. With sfsai the pattern of G~ is that of the lower triangle of A_l, and with afsai it
   is found with the default parameters of afsai.h. The factor is computed from the matrix that is applied as A_l. Its diagonal is
   s_i - sum_{j != i} a_ij in double precision, and not d_i, which is rounded. If the ones are in the null space, the diagonal is
   raised by the share kCMATCHFactorShift.

   Row i is alone if nothing beside its diagonal counts in the sum of l_i. It has root / d_i in the place of omega / psi_i, so that
   the polynomial solves for it exactly, and the couplings of other rows with it are 0 for the factor. Such couplings are there
   where a program has cleared the rows of boundary values, but not their columns. A factor that knew them would carry residuals of
   other rows to the values that row i gives.

   lambda is the largest eigenvalue of M^{-1} A_l without omega as kCMATCHFactorIterations steps of the conjugate gradient method
   know it. The residual at their beginning is A_l diag(psi)^{-1/2} v, where v has pseudo-random numbers that are always the same.
   The power method with as many products finds too small values on badly scaled problems, with which the cycle is not positive
   definite: the error polynomial of a smoother is at most 1 up to the eigenvalue 1 + a, and a is small for high degrees.

   On a level on several ranks each rank has the factor of its own block of A_l. So M^{-1} is block diagonal, and an application
   needs no message, whereas lambda is that of M^{-1} and the whole of A_l: products have columns of ghosts, and sums are those of
   all ranks, which find lambda together. The numbers of v are those of the rows in the whole level.
*/
#include "cmatch_host.h"
#include "pc/afsai/afsai.h"
#include "pc/sfsai/sfsai.h"

namespace
{

/* Makes the matrix of a level; `foreign` says whether entries in columns of ghosts are wanted, too. */
template <typename T>
void Expand(bool singular, bool foreign, const CMATCHArrays<T> &L, CMATCHExpanded *A)
{
  const LocalInt n   = (LocalInt)L.d.size();
  const auto     add = [&](LocalInt k) {
    A->j.push_back(L.A_j[k]);
    A->a.push_back(A->alone[L.A_j[k]] ? 0 : (PetscScalar)L.A_a[k]);
  };

  A->alone.assign(n, 0);
  A->longest = 0;
  A->i.assign(1, 0);
  if (foreign) A->foreign_i.assign(1, 0);
  for (LocalInt i = 0; i < n; i++) A->alone[i] = CMATCHL1_Host(L, i) == (double)L.d[i];
  for (LocalInt i = 0; i < n; i++) {
    LocalInt k      = L.A_i[i];
    double   others = 0;
    for (LocalInt e = L.A_i[i]; e < L.A_i[i + 1]; e++) others += (double)L.A_a[e];
    const double diagonal = (double)L.s[i] - others;
    for (; k < L.A_i[i + 1] && L.A_j[k] < i; k++) add(k);
    A->longest = PetscMax(A->longest, k - L.A_i[i] + 1);
    A->j.push_back(i);
    A->a.push_back((diagonal > 0 ? diagonal : (double)L.d[i]) * (singular ? 1 + kCMATCHFactorShift : 1));
    for (; k < L.A_i[i + 1] && L.A_j[k] < n; k++) add(k);
    A->i.push_back((LocalInt)A->j.size());
    if (!foreign) continue;
    for (; k < L.A_i[i + 1]; k++) {
      A->foreign_j.push_back(L.A_j[k]);
      A->foreign_a.push_back((PetscScalar)L.A_a[k]);
    }
    A->foreign_i.push_back((LocalInt)A->foreign_j.size());
  }
}

/* What the estimate of the largest eigenvalue needs of a level: all of it is one rank's unless `shared` is there. */
struct Estimate {
  CMATCHExpanded     *A;
  const CMATCHFactor *factor;
  const CMATCHLevel  *shared; /* on several ranks */
  LocalInt            level;
  PetscInt64          first; /* the number of the first row */
};

/* The dot product of own rows of all ranks */
PetscErrorCode Dot(const Estimate &of, const std::vector<double> &x, const std::vector<double> &y, double *dot)
{
  PetscFunctionBegin;
  *dot = 0;
  for (size_t i = 0; i < of.A->d.size(); i++) *dot += x[i] * y[i];
  if (of.shared) PetscCall(CMATCHReduce(*of.shared, MPI_SUM, dot));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = A x, for which x gets the entries of ghosts */
PetscErrorCode Multiply_CMATCHFSAI(const Estimate &of, std::vector<double> *x, std::vector<double> *y)
{
  CMATCHExpanded *A = of.A;
  const LocalInt  n = (LocalInt)A->d.size();
  const CSR       matrix{n, n, (LocalInt)A->j.size(), A->i.data(), A->j.data(), A->a.data(), FINEPC_DOUBLE, PETSC_MEMTYPE_HOST};

  PetscFunctionBegin;
  PetscCall(CSRMultiply_Host(&matrix, PETSC_FALSE, nullptr, 1, x->data(), n, y->data(), n));
  if (!of.shared) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHHaloBegin(*of.shared, MPI_DOUBLE, x->data()));
  PetscCall(CMATCHHaloEnd(*of.shared, MPI_DOUBLE, x->data()));
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt k = A->foreign_i[i]; k < A->foreign_i[i + 1]; k++) (*y)[i] += A->foreign_a[k] * (*x)[A->foreign_j[k]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Entries in columns of ghosts that are alone become 0, as those in such columns of own rows are. */
PetscErrorCode ClearForeign(const Estimate &of)
{
  CMATCHExpanded &A = *of.A;

  PetscFunctionBegin;
  for (size_t i = 0; i < A.alone.size(); i++) A.p[i] = A.alone[i];
  PetscCall(CMATCHHaloBegin(*of.shared, MPI_DOUBLE, A.p.data()));
  PetscCall(CMATCHHaloEnd(*of.shared, MPI_DOUBLE, A.p.data()));
  for (size_t k = 0; k < A.foreign_j.size(); k++)
    if (A.p[A.foreign_j[k]] != 0) A.foreign_a[k] = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* lambda of the formulas */
PetscErrorCode LargestEigenvalue(const Estimate &of, PetscReal *lambda)
{
  constexpr LocalInt steps         = kCMATCHFactorIterations;
  CMATCHExpanded    &A             = *of.A;
  const LocalInt     n             = (LocalInt)A.d.size();
  PetscReal          rz[steps + 1] = {}, pq[steps] = {};

  PetscFunctionBegin;
  if (of.shared) PetscCall(ClearForeign(of));
  std::fill(A.p.begin(), A.p.end(), 0.);
  for (LocalInt i = 0; i < n; i++)
    A.q[i] = (double)(int32_t)CMATCHMix(CMATCHSeed(of.first + i), CMATCHSeed(of.first + i + 7)) * 0x1p-31 * std::sqrt(A.d[i]);
  PetscCall(Multiply_CMATCHFSAI(of, &A.q, &A.r));
  for (LocalInt step = 0;; step++) {
    PetscCall(CSRMultiply_Host(&of.factor->W, PETSC_TRUE, A.d.data(), 1, A.r.data(), n, A.q.data(), n));
    PetscCall(CSRMultiply_Host(&of.factor->Wt, PETSC_TRUE, nullptr, 1, A.q.data(), n, A.z.data(), n));
    PetscCall(Dot(of, A.r, A.z, &rz[step]));
    if (step == steps || !(rz[step] > 0)) break;
    for (LocalInt i = 0; i < n; i++) A.p[i] = A.z[i] + (step ? rz[step] / rz[step - 1] : 0) * A.p[i];
    PetscCall(Multiply_CMATCHFSAI(of, &A.p, &A.q));
    PetscCall(Dot(of, A.p, A.q, &pq[step]));
    if (!(pq[step] > 0)) break;
    for (LocalInt i = 0; i < n; i++) A.r[i] -= rz[step] / pq[step] * A.q[i];
  }
  *lambda = LargestRitzValue(steps, rz, pq);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Scales the factor of a level by its largest eigenvalue. Sets the failure if there is none. */
template <typename T>
PetscErrorCode ScaleLevel(const Estimate &of, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  CMATCHArrays<T> &L = H->arrays[of.level];
  PetscReal        lambda;

  PetscFunctionBegin;
  PetscCall(LargestEigenvalue(of, &lambda));
  if (!(lambda > 0) || !std::isfinite(lambda)) {
    CMATCHFail(CMATCH_DIAGONAL_NOT_POSITIVE, of.level, 0, stats);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const PetscReal omega = 1 / (kCMATCHFactorMargin * lambda);
  for (size_t i = 0; i < L.d.size(); i++) L.factor_d[i] = of.A->alone[i] ? L.l[i] : (T)(omega * of.A->d[i]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The factor of a level, but for its scale. Sets the failure if there is none. */
template <typename T>
PetscErrorCode FactorLevel(PetscBool keep, LocalInt l, CMATCHHierarchyHost<T> *H, CMATCHExpanded *A, CMATCHStats *stats)
{
  CMATCHArrays<T> &L           = H->arrays[l];
  const size_t     n           = L.d.size();
  const size_t     with_ghosts = n + L.ghost.size();

  PetscFunctionBegin;
  Expand(H->params.singular, l < H->several, L, A);
  for (auto *vector : {&A->r, &A->z}) vector->resize(n);
  for (auto *vector : {&A->p, &A->q}) vector->resize(with_ghosts);
  PetscCall(CMATCHMakeFactor_Host(keep, l, H, A, stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  L.factor_d.resize(n);
  H->level[l].factor.d = L.factor_d.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A row of W times x */
template <typename T>
T RowTimes(const CSR &W, LocalInt row, const std::vector<T> &x)
{
  const T *a   = (const T *)W.a;
  T        sum = 0;

  for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++) sum += a[k] * x[W.j[k]];
  return sum;
}

} // namespace

size_t CMATCHExpanded::Bytes() const
{
  size_t bytes = CMATCHBytes(i) + CMATCHBytes(j) + CMATCHBytes(a) + CMATCHBytes(foreign_i) + CMATCHBytes(foreign_j) +
                 CMATCHBytes(foreign_a) + CMATCHBytes(alone) + CMATCHBytes(d);
  for (const auto *vector : {&r, &z, &p, &q}) bytes += CMATCHBytes(*vector);
  return bytes;
}

PetscErrorCode CMATCHMakeFactor_Host(PetscBool keep, LocalInt l, CMATCHHierarchy *H, CMATCHExpanded *A, CMATCHStats *stats)
{
  const LocalInt n      = (LocalInt)A->i.size() - 1;
  CMATCHFactor  &factor = H->level[l].factor;
  FSAIStats      made{};

  PetscFunctionBegin;
  A->d.resize(n);
  const CSRView view{n, (LocalInt)A->j.size(), A->i.data(), A->j.data(), A->a.data(), PETSC_MEMTYPE_HOST};
  if (H->params.smoother == PC_CMATCH_SFSAI) {
    SFSAIParams params;
    SFSAIWork   work{};
    params.power           = 1;
    params.setup_precision = params.factor_precision = H->params.precision;
    if (A->longest > kCMATCHFactorLargestRow) params.max_row = kCMATCHFactorLargestRow;
    PetscCall(SFSAIComputeFactor_Host({&view, 0, nullptr}, &params, keep, &factor.W, A->d.data(), &work, &made));
    PetscCall(ArrayDestroy(work.where, &work.data));
  } else {
    AFSAIParams params;
    params.setup_precision = params.factor_precision = H->params.precision;
    PetscCall(AFSAIComputeFactor_Host(&view, 0, nullptr, &params, keep, &factor.W, A->d.data(), &made));
  }
  stats->work_bytes = PetscMax(stats->work_bytes, A->Bytes() + made.work_bytes);
  if (made.failure) {
    CMATCHFail(CMATCH_DIAGONAL_NOT_POSITIVE, l, made.failure_row, stats);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!keep) factor.capped_rows = made.capped_rows;
  factor.diagonal_rows = made.diagonal_rows;
  PetscCall(CSRTranspose_Host(&factor.W, keep, &factor.Wt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode CMATCHFactorSmoothers_Host(PetscBool keep, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  const LocalInt smoothed = H->end == CMATCH_END_DOMINATED ? H->levels : H->levels - 1;

  PetscFunctionBegin;
  if (!CMATCHHasFactors(H->params)) PetscFunctionReturn(PETSC_SUCCESS);
  H->expanded.clear();
  H->expanded.resize(H->several);
  for (LocalInt l = 0; l < PetscMax(smoothed, H->several) && !stats->failure; l++) {
    CMATCHExpanded expanded;
    if (l < H->several) {
      if (H->level[l].transfer != CMATCH_PASSED) PetscCall(FactorLevel(keep, l, H, &H->expanded[l], stats));
      continue;
    }
    PetscCall(FactorLevel(keep, l, H, &expanded, stats));
    if (!stats->failure) PetscCall(ScaleLevel({&expanded, &H->level[l].factor, nullptr, l, 0}, H, stats));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode CMATCHScaleFactor_Host(LocalInt l, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  PetscFunctionBegin;
  PetscCall(ScaleLevel({&H->expanded[l], &H->level[l].factor, &H->level[l], l, H->level[l].first}, H, stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDestroyFactors_Host(CMATCHHierarchy *H)
{
  PetscFunctionBegin;
  for (CMATCHLevel &level : H->level) {
    PetscCall(CSRDestroy(&level.factor.W));
    PetscCall(CSRDestroy(&level.factor.Wt));
    level.factor = CMATCHFactor{};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
void CMATCHApplyFactor_Host(const CMATCHFactor &factor, const std::vector<T> &r, std::vector<T> *t)
{
  const LocalInt n = factor.W.rows;
  const T       *d = (const T *)factor.d;

  for (LocalInt i = 0; i < n; i++) (*t)[i] = d[i] * (r[i] + RowTimes(factor.W, i, r));
  /* Wt is strictly upper triangular, so that a row reads no entry that is final already. */
  for (LocalInt i = 0; i < n; i++) (*t)[i] += RowTimes(factor.Wt, i, *t);
}

template PetscErrorCode CMATCHFactorSmoothers_Host(PetscBool, CMATCHHierarchyHost<float> *, CMATCHStats *);
template PetscErrorCode CMATCHFactorSmoothers_Host(PetscBool, CMATCHHierarchyHost<double> *, CMATCHStats *);
template PetscErrorCode CMATCHScaleFactor_Host(LocalInt, CMATCHHierarchyHost<float> *, CMATCHStats *);
template PetscErrorCode CMATCHScaleFactor_Host(LocalInt, CMATCHHierarchyHost<double> *, CMATCHStats *);
template void           CMATCHApplyFactor_Host(const CMATCHFactor &, const std::vector<float> &, std::vector<float> *);
template void           CMATCHApplyFactor_Host(const CMATCHFactor &, const std::vector<double> &, std::vector<double> *);
