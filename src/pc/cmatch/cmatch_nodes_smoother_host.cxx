/* The host twin of cuda/pc/cmatch/cmatch_nodes_smoother.cu: diagonal blocks, factors, and the largest eigenvalue of a level of
 * nodes. */
#include "cmatch_nodes_host.h"

namespace
{

/* D^{-1} of a level. */
template <typename T>
void InvertDiagonals(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  CMATCHNodesLevel           &level  = s->N->level[l];
  const CMATCHNodesArrays<T> &L      = s->N->arrays[l];
  const LocalInt              k      = level.k;
  const bool                  finest = s->IsFinest(l);
  std::vector<double>         block((size_t)k * k);

  level.raised = 0;
  s->inverse.resize((size_t)level.n * k * k);
  for (LocalInt i = 0; i < level.n; i++) {
    double *const       inverse = &s->inverse[(size_t)i * k * k];
    const double *const a       = &s->A[(size_t)CMATCHFindBlock(L, i, i) * k * k];
    if (finest) {
      if (CMATCHInvertDiagonal(k, a, s->alone[i], 0, inverse) >= 0) return s->Fail(CMATCH_BLOCK_NOT_POSITIVE, l, i);
      continue;
    }
    std::copy(a, a + k * k, block.begin());
    level.raised += CMATCHInvertCoarseDiagonal(k, block.data(), s->alone[i], inverse);
  }
}

/* y = A x in double precision */
template <typename T>
void Multiply(const CMATCHNodesSetUp<T> &s, LocalInt l, const std::vector<double> &x, std::vector<double> *y)
{
  const CMATCHNodesLevel &level = s.N->level[l];

  CMATCHForSizes(level.k, s.N->m, [&](auto known, auto) {
    const LocalInt k = known ? known : level.k;
    for (LocalInt i = 0; i < level.n; i++) {
      double sum[kCMATCHMostModes] = {};
      for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1]; e++)
        CMATCHAddProduct(k, k, 1, &s.A[(size_t)e * k * k], &x[(size_t)level.A_j[e] * k], sum);
      std::copy(sum, sum + k, y->begin() + (ptrdiff_t)i * k);
    }
  });
}

/* A sum over the ranks of a level, or another operation. */
template <typename T>
PetscErrorCode Reduce(const CMATCHNodesSetUp<T> &s, LocalInt l, MPI_Op operation, double *value)
{
  PetscFunctionBegin;
  if (l < s.H->several) PetscCall(CMATCHReduce(s.H->level[l], operation, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode Dot(const CMATCHNodesSetUp<T> &s, LocalInt l, const std::vector<double> &x, const std::vector<double> &y,
                   double *dot)
{
  const size_t n = s.r.size(); /* x and y may have ghosts */

  PetscFunctionBegin;
  *dot = 0;
  for (size_t u = 0; u < n; u++) *dot += x[u] * y[u];
  PetscCall(Reduce(s, l, MPI_SUM, dot));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = A x, for x with its ghosts */
template <typename T>
PetscErrorCode MultiplyOnRanks(LocalInt l, std::vector<double> *x, std::vector<double> *y, const CMATCHNodesSetUp<T> &s)
{
  PetscFunctionBegin;
  if (l < s.H->several) PetscCall(CMATCHNodesHalo(s.H->level[l], s.type, x));
  Multiply(s, l, *x, y);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = M^{-1} r for M = D, or with a factor, whose 1 / psi is given, for the M of that without its scale. */
template <typename T>
PetscErrorCode Precondition(LocalInt l, const CMATCHFactor *factor, CMATCHNodesSetUp<T> *s)
{
  const LocalInt k = s->N->level[l].k, n = (LocalInt)s->r.size();

  PetscFunctionBegin;
  if (factor) {
    PetscCall(CSRMultiply_Host(&factor->W, PETSC_TRUE, s->rows.d.data(), 1, s->r.data(), n, s->q.data(), n));
    PetscCall(CSRMultiply_Host(&factor->Wt, PETSC_TRUE, nullptr, 1, s->q.data(), n, s->z.data(), n));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  std::fill(s->z.begin(), s->z.end(), 0.);
  for (LocalInt i = 0; i < n / k; i++)
    CMATCHAddProduct(k, k, 1, &s->inverse[(size_t)i * k * k], &s->r[(size_t)i * k], &s->z[(size_t)i * k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The largest eigenvalue of M^{-1} A, by the conjugate gradient method. 0 if nothing is known. */
template <typename T>
PetscErrorCode LargestEigenvalue(LocalInt l, const CMATCHFactor *factor, CMATCHNodesSetUp<T> *s, PetscReal *lambda)
{
  constexpr LocalInt      steps = kCMATCHNodesIterations;
  const CMATCHNodesLevel &level = s->N->level[l];
  const LocalInt          k     = level.k;
  const size_t            n     = s->r.size();
  auto                   &r = s->r, &z = s->z, &p = s->p, &q = s->q;
  PetscReal               rz[steps + 1] = {}, pq[steps] = {};

  PetscFunctionBegin;
  for (size_t u = 0; u < n; u++) {
    const LocalInt   i = (LocalInt)u / k, c = (LocalInt)u % k;
    const PetscInt64 row   = (PetscInt64)s->H->level[l].first * k + (PetscInt64)u;
    const double     entry = std::fabs(s->A[((size_t)CMATCHFindBlock(s->N->arrays[l], i, i) * k + c) * k + c]);
    const double     a     = factor ? 1 / s->rows.d[u] : entry;
    const double     h     = (double)(int32_t)CMATCHMix(CMATCHSeed(row), CMATCHSeed(row + 7)) * 0x1p-31;
    q[u]                   = (s->alone[i] >> c & 1) || !(a > 0) ? 0 : h / std::sqrt(a);
  }
  PetscCall(MultiplyOnRanks(l, &q, &r, *s));
  for (LocalInt step = 0;; step++) {
    PetscCall(Precondition(l, factor, s));
    PetscCall(Dot(*s, l, r, z, &rz[step]));
    if (step == steps || !(rz[step] > 0)) break;
    for (size_t u = 0; u < n; u++) p[u] = z[u] + (step ? rz[step] / rz[step - 1] : 0) * p[u];
    PetscCall(MultiplyOnRanks(l, &p, &q, *s));
    PetscCall(Dot(*s, l, p, q, &pq[step]));
    if (!(pq[step] > 0)) break;
    for (size_t u = 0; u < n; u++) r[u] -= rz[step] / pq[step] * q[u];
  }
  *lambda = CMATCHNodesLargest(factor, steps, rz, pq);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same of all ranks of the level; 1 if all unknowns are alone. There may be a failure. */
template <typename T>
PetscErrorCode Estimate(LocalInt l, const CMATCHFactor *factor, CMATCHNodesSetUp<T> *s, PetscReal *lambda)
{
  const unsigned all  = (1u << s->N->level[l].k) - 1;
  double         some = 0; /* whether there is an unknown that is not alone */

  PetscFunctionBegin;
  for (const unsigned alone : s->alone) some = PetscMax(some, (double)(alone != all));
  PetscCall(Reduce(*s, l, MPI_MAX, &some));
  *lambda = 1;
  if (some > 0) PetscCall(LargestEigenvalue(l, factor, s, lambda));
  if (!(*lambda > 0) || !std::isfinite(*lambda)) s->Fail(CMATCH_BLOCK_NOT_POSITIVE, l, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rank's own rows of the operator of which the level's factor is made. */
template <typename T>
void Expand(LocalInt l, const CMATCHNodesSetUp<T> &s, CMATCHExpanded *to)
{
  const CMATCHNodesLevel &level = s.N->level[l];
  const LocalInt          k     = level.k;

  *to = CMATCHExpanded();
  to->i.assign(1, 0);
  to->longest = 0;
  for (LocalInt i = 0; i < level.n; i++)
    for (LocalInt r = 0; r < k; r++) {
      const LocalInt row = i * k + r, first = (LocalInt)to->j.size();
      for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1] && level.A_j[e] < level.n; e++)
        for (LocalInt c = 0; c < k; c++) {
          const LocalInt column   = level.A_j[e] * k + c;
          const double   a        = s.A[((size_t)e * k + r) * k + c];
          const double   diagonal = a > 0 ? a : 1 / s.inverse[(size_t)row * k + r];
          if (column == row) to->longest = PetscMax(to->longest, (LocalInt)to->j.size() - first + 1);
          to->j.push_back(column);
          to->a.push_back(column == row ? diagonal * (1 + kCMATCHFactorShift) : s.alone[column / k] >> c & 1 ? 0 : a);
        }
      to->i.push_back((LocalInt)to->j.size());
    }
}

} // namespace

template <typename T>
PetscErrorCode CMATCHNodesInvert_Host(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  const size_t n = (size_t)s->H->level[l].n, with_ghosts = n + s->N->arrays[l].ghost.size() * s->N->level[l].k;

  PetscFunctionBegin;
  InvertDiagonals(l, s);
  for (auto *vector : {&s->r, &s->z}) vector->assign(n, 0.);
  for (auto *vector : {&s->p, &s->q}) vector->assign(with_ghosts, 0.);
  s->N->arrays[l].D.resize(s->inverse.size());
  if (l < s->H->several) PetscCall(s->type.Make(MPI_DOUBLE, s->N->level[l].k));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode CMATCHNodesEstimate_Host(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  PetscFunctionBegin;
  PetscCall(Estimate(l, nullptr, s, &s->N->level[l].lambda));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode CMATCHNodesFactor_Host(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  CMATCHNodesArrays<T> &L = s->N->arrays[l];

  PetscFunctionBegin;
  if (!CMATCHHasFactors(s->H->params)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHNodesCheckRows(s->N->level[l]));
  Expand(l, *s, &s->rows);
  PetscCall(CMATCHMakeFactor_Host(s->keep, l, s->H, &s->rows, s->stats));
  s->Note(s->rows.Bytes());
  L.factor_d.resize(s->rows.d.size());
  s->H->level[l].factor.d = L.factor_d.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode CMATCHNodesScaleFactor_Host(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  const LocalInt k = s->N->level[l].k;
  auto          &d = s->N->arrays[l].factor_d;
  PetscReal      lambda;

  PetscFunctionBegin;
  if (!CMATCHHasFactors(s->H->params)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Estimate(l, &s->H->level[l].factor, s, &lambda));
  for (size_t u = 0; u < d.size(); u++)
    d[u] = (T)(s->alone[u / k] >> u % k & 1 ? s->N->steps.root * s->inverse[u * k + u % k]
                                            : s->rows.d[u] / (kCMATCHNodesMargin * lambda));
  s->rows = CMATCHExpanded();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
void CMATCHNodesSmoother_Host(LocalInt l, const PolynomialSteps &steps, CMATCHNodesSetUp<T> *s)
{
  const CMATCHNodesLevel &level = s->N->level[l];
  const LocalInt          k     = level.k;

  for (LocalInt i = 0; i < level.n; i++)
    for (LocalInt r = 0; r < k; r++)
      for (LocalInt c = 0; c < k; c++) {
        const size_t at       = ((size_t)i * k + r) * k + c;
        const bool   alone    = r == c && (s->alone[i] >> r & 1);
        s->N->arrays[l].D[at] = (T)(alone ? steps.root * s->inverse[at] : s->inverse[at] / (kCMATCHNodesMargin * level.lambda));
      }
}

template PetscErrorCode CMATCHNodesInvert_Host(LocalInt, CMATCHNodesSetUp<float> *);
template PetscErrorCode CMATCHNodesInvert_Host(LocalInt, CMATCHNodesSetUp<double> *);
template PetscErrorCode CMATCHNodesEstimate_Host(LocalInt, CMATCHNodesSetUp<float> *);
template PetscErrorCode CMATCHNodesFactor_Host(LocalInt, CMATCHNodesSetUp<float> *);
template PetscErrorCode CMATCHNodesScaleFactor_Host(LocalInt, CMATCHNodesSetUp<float> *);
template PetscErrorCode CMATCHNodesEstimate_Host(LocalInt, CMATCHNodesSetUp<double> *);
template PetscErrorCode CMATCHNodesFactor_Host(LocalInt, CMATCHNodesSetUp<double> *);
template PetscErrorCode CMATCHNodesScaleFactor_Host(LocalInt, CMATCHNodesSetUp<double> *);
template void           CMATCHNodesSmoother_Host(LocalInt, const PolynomialSteps &, CMATCHNodesSetUp<float> *);
template void           CMATCHNodesSmoother_Host(LocalInt, const PolynomialSteps &, CMATCHNodesSetUp<double> *);
