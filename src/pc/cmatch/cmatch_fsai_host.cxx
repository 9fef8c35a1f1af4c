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
*/
#include "cmatch_host.h"
#include "pc/afsai/afsai.h"
#include "pc/sfsai/sfsai.h"

namespace
{

/* A level as a matrix with its diagonal. */
struct Expanded {
  std::vector<LocalInt>    i, j;
  std::vector<PetscScalar> a;
  std::vector<char>        alone;   /* [n] */
  LocalInt                 longest; /* the most entries of a row of the lower triangle */
};

template <typename T>
Expanded Expand(bool singular, const CMATCHArrays<T> &L)
{
  const LocalInt n = (LocalInt)L.d.size();
  Expanded       A{{0}, {}, {}, std::vector<char>(n), 0};
  const auto     add = [&](LocalInt k) {
    A.j.push_back(L.A_j[k]);
    A.a.push_back(A.alone[L.A_j[k]] ? 0 : (PetscScalar)L.A_a[k]);
  };

  for (LocalInt i = 0; i < n; i++) A.alone[i] = CMATCHL1_Host(L, i) == (double)L.d[i];
  for (LocalInt i = 0; i < n; i++) {
    LocalInt k      = L.A_i[i];
    double   others = 0;
    for (LocalInt e = L.A_i[i]; e < L.A_i[i + 1]; e++) others += (double)L.A_a[e];
    const double diagonal = (double)L.s[i] - others;
    for (; k < L.A_i[i + 1] && L.A_j[k] < i; k++) add(k);
    A.longest = PetscMax(A.longest, k - L.A_i[i] + 1);
    A.j.push_back(i);
    A.a.push_back((diagonal > 0 ? diagonal : (double)L.d[i]) * (singular ? 1 + kCMATCHFactorShift : 1));
    for (; k < L.A_i[i + 1]; k++) add(k);
    A.i.push_back((LocalInt)A.j.size());
  }
  return A;
}

double Dot(const std::vector<double> &x, const std::vector<double> &y)
{
  double sum = 0;
  for (size_t i = 0; i < x.size(); i++) sum += x[i] * y[i];
  return sum;
}

/* lambda of the formulas; d is 1 / psi. */
PetscErrorCode LargestEigenvalue(Expanded *A, const CMATCHFactor &factor, const std::vector<PetscReal> &d, PetscReal *lambda)
{
  constexpr LocalInt steps = kCMATCHFactorIterations;
  const LocalInt     n     = (LocalInt)d.size();
  const CSR          matrix{n, n, (LocalInt)A->j.size(), A->i.data(), A->j.data(), A->a.data(), FINEPC_DOUBLE, PETSC_MEMTYPE_HOST};
  std::vector<PetscScalar> r(n), z(n), p(n, 0.), q(n);
  PetscReal                rz[steps + 1] = {}, pq[steps] = {};

  PetscFunctionBegin;
  for (LocalInt i = 0; i < n; i++) q[i] = (double)(int32_t)CMATCHMix(i, i + 7) * 0x1p-31 * std::sqrt(d[i]);
  PetscCall(CSRMultiply_Host(&matrix, PETSC_FALSE, nullptr, 1, q.data(), n, r.data(), n));
  for (LocalInt step = 0;; step++) {
    PetscCall(CSRMultiply_Host(&factor.W, PETSC_TRUE, d.data(), 1, r.data(), n, q.data(), n));
    PetscCall(CSRMultiply_Host(&factor.Wt, PETSC_TRUE, nullptr, 1, q.data(), n, z.data(), n));
    rz[step] = Dot(r, z);
    if (step == steps || !(rz[step] > 0)) break;
    for (LocalInt i = 0; i < n; i++) p[i] = z[i] + (step ? rz[step] / rz[step - 1] : 0) * p[i];
    PetscCall(CSRMultiply_Host(&matrix, PETSC_FALSE, nullptr, 1, p.data(), n, q.data(), n));
    pq[step] = Dot(p, q);
    if (!(pq[step] > 0)) break;
    for (LocalInt i = 0; i < n; i++) r[i] -= rz[step] / pq[step] * q[i];
  }
  *lambda = LargestRitzValue(steps, rz, pq);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The factor of a level. Sets the failure if there is none. */
template <typename T>
PetscErrorCode FactorLevel(PetscBool keep, LocalInt l, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  CMATCHArrays<T>       &L      = H->arrays[l];
  CMATCHFactor          &factor = H->level[l].factor;
  const LocalInt         n      = (LocalInt)L.d.size();
  Expanded               A      = Expand(H->params.singular, L);
  const CSRView          view{n, (LocalInt)A.j.size(), A.i.data(), A.j.data(), A.a.data(), PETSC_MEMTYPE_HOST};
  std::vector<PetscReal> d(n);
  PetscReal              lambda;
  FSAIStats              made{};

  PetscFunctionBegin;
  if (H->params.smoother == PC_CMATCH_SFSAI) {
    SFSAIParams params;
    SFSAIWork   work{};
    params.power           = 1;
    params.setup_precision = params.factor_precision = H->params.precision;
    if (A.longest > kCMATCHFactorLargestRow) params.max_row = kCMATCHFactorLargestRow;
    PetscCall(SFSAIComputeFactor_Host(&view, 0, nullptr, &params, keep, &factor.W, d.data(), &work, &made));
    PetscCall(ArrayDestroy(work.where, &work.data));
  } else {
    AFSAIParams params;
    params.setup_precision = params.factor_precision = H->params.precision;
    PetscCall(AFSAIComputeFactor_Host(&view, 0, nullptr, &params, keep, &factor.W, d.data(), &made));
  }
  stats->work_bytes = PetscMax(stats->work_bytes, CMATCHBytes(A.i) + CMATCHBytes(A.j) + CMATCHBytes(A.a) + CMATCHBytes(d) +
                                                    PetscMax(made.work_bytes, 4 * CMATCHBytes(d)));
  if (made.failure) {
    CMATCHFail(CMATCH_DIAGONAL_NOT_POSITIVE, l, made.failure_row, stats);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!keep) factor.capped_rows = made.capped_rows;
  factor.diagonal_rows = made.diagonal_rows;
  PetscCall(CSRTranspose_Host(&factor.W, keep, &factor.Wt));
  PetscCall(LargestEigenvalue(&A, factor, d, &lambda));
  if (!(lambda > 0) || !std::isfinite(lambda)) {
    CMATCHFail(CMATCH_DIAGONAL_NOT_POSITIVE, l, 0, stats);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const PetscReal omega = 1 / (kCMATCHFactorMargin * lambda);
  L.factor_d.resize(n);
  for (LocalInt i = 0; i < n; i++) L.factor_d[i] = (T)(A.alone[i] ? H->steps.root / (PetscReal)L.d[i] : omega * d[i]);
  factor.d = L.factor_d.data();
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

template <typename T>
PetscErrorCode CMATCHFactorSmoothers_Host(PetscBool keep, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  const LocalInt smoothed = H->end == CMATCH_END_DOMINATED ? H->levels : H->levels - 1;

  PetscFunctionBegin;
  if (H->params.smoother != PC_CMATCH_SFSAI && H->params.smoother != PC_CMATCH_AFSAI) PetscFunctionReturn(PETSC_SUCCESS);
  for (LocalInt l = 0; l < smoothed && !stats->failure; l++) PetscCall(FactorLevel(keep, l, H, stats));
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
template void           CMATCHApplyFactor_Host(const CMATCHFactor &, const std::vector<float> &, std::vector<float> *);
template void           CMATCHApplyFactor_Host(const CMATCHFactor &, const std::vector<double> &, std::vector<double> *);
