/* The host twin of cuda/pc/cmatch/cmatch_nodes_smoother.cu: diagonal blocks, and the largest eigenvalue of a level of nodes. */
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

/* The largest eigenvalue of D^{-1} A, by the conjugate gradient method. 0 if nothing is known. */
template <typename T>
PetscErrorCode LargestEigenvalue(LocalInt l, CMATCHNodesSetUp<T> *s, PetscReal *lambda)
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
    const PetscInt64 row = (PetscInt64)s->H->level[l].first * k + (PetscInt64)u;
    const double     a   = std::fabs(s->A[((size_t)CMATCHFindBlock(s->N->arrays[l], i, i) * k + c) * k + c]);
    const double     h   = (double)(int32_t)CMATCHMix(CMATCHSeed(row), CMATCHSeed(row + 7)) * 0x1p-31;
    q[u]                 = (s->alone[i] >> c & 1) || !(a > 0) ? 0 : h / std::sqrt(a);
  }
  PetscCall(MultiplyOnRanks(l, &q, &r, *s));
  for (LocalInt step = 0;; step++) {
    std::fill(z.begin(), z.end(), 0.);
    for (LocalInt i = 0; i < level.n; i++)
      CMATCHAddProduct(k, k, 1, &s->inverse[(size_t)i * k * k], &r[(size_t)i * k], &z[(size_t)i * k]);
    PetscCall(Dot(*s, l, r, z, &rz[step]));
    if (step == steps || !(rz[step] > 0)) break;
    for (size_t u = 0; u < n; u++) p[u] = z[u] + (step ? rz[step] / rz[step - 1] : 0) * p[u];
    PetscCall(MultiplyOnRanks(l, &p, &q, *s));
    PetscCall(Dot(*s, l, p, q, &pq[step]));
    if (!(pq[step] > 0)) break;
    for (size_t u = 0; u < n; u++) r[u] -= rz[step] / pq[step] * q[u];
  }
  *lambda = CMATCHRoundEstimate(LargestRitzValue(steps, rz, pq));
  PetscFunctionReturn(PETSC_SUCCESS);
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
  CMATCHNodesLevel &level = s->N->level[l];
  const unsigned    all   = (1u << level.k) - 1;
  double            some  = 0; /* whether there is an unknown that is not alone */

  PetscFunctionBegin;
  for (const unsigned alone : s->alone) some = PetscMax(some, (double)(alone != all));
  PetscCall(Reduce(*s, l, MPI_MAX, &some));
  level.lambda = 1;
  if (some > 0) PetscCall(LargestEigenvalue(l, s, &level.lambda));
  if (!(level.lambda > 0) || !std::isfinite(level.lambda)) s->Fail(CMATCH_BLOCK_NOT_POSITIVE, l, 0);
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
template PetscErrorCode CMATCHNodesEstimate_Host(LocalInt, CMATCHNodesSetUp<double> *);
template void           CMATCHNodesSmoother_Host(LocalInt, const PolynomialSteps &, CMATCHNodesSetUp<float> *);
template void           CMATCHNodesSmoother_Host(LocalInt, const PolynomialSteps &, CMATCHNodesSetUp<double> *);
