/*
   The host twin of cuda/pc/cmatch/cmatch_nodes_cycle.cu. A cycle is that of cmatch_cycle_host.cxx, on several ranks, too, with
   blocks in the place of entries, and plain products.
*/
#include "cmatch_nodes_host.h"

namespace
{

/* r = b - A x */
template <typename T, typename K>
void Residual(const CMATCHNodesLevel &level, K known, const std::vector<T> &b, const std::vector<T> &x, std::vector<T> *r)
{
  const LocalInt k = known ? known : level.k;
  const T *const A = (const T *)level.A_a;

  for (LocalInt i = 0; i < level.n; i++) {
    T sum[kCMATCHMostModes] = {};
    for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1]; e++) {
      const T *const a = A + (size_t)e * k * k, *const v = &x[(size_t)level.A_j[e] * k];
      for (LocalInt p = 0; p < k; p++)
        for (LocalInt q = 0; q < k; q++) sum[p] += a[p * k + q] * v[q];
    }
    for (LocalInt p = 0; p < k; p++) (*r)[(size_t)i * k + p] = b[(size_t)i * k + p] - sum[p];
  }
}

/* The values of ghosts, behind those of the rank, if the level has any. */
template <typename T>
PetscErrorCode Halo(LocalInt l, const CMATCHHierarchyHost<T> &H, const CMATCHNodesArrays<T> &L, std::vector<T> *x)
{
  PetscFunctionBegin;
  if (l < H.several) PetscCall(CMATCHNodesHalo(H.level[l], L.type, x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x = x + S(b - A x), or from the start x = 0 */
template <typename T, typename K>
PetscErrorCode Smooth(const PolynomialSteps &steps, bool zero, LocalInt l, K known, CMATCHHierarchyHost<T> *H)
{
  CMATCHNodesArrays<T>   &L      = static_cast<CMATCHNodesHost<T> *>(H->nodes)->arrays[l];
  const CMATCHNodesLevel &level  = H->nodes->level[l];
  const LocalInt          k      = known ? known : level.k;
  const T *const          D      = (const T *)level.D;
  const CMATCHFactor     &factor = H->level[l].factor;

  PetscFunctionBegin;
  if (zero) {
    L.r = L.b;
    std::fill(L.x.begin(), L.x.end(), (T)0);
  } else {
    PetscCall(Halo(l, *H, L, &L.x));
    Residual(level, known, L.b, L.x, &L.r);
  }
  std::fill(L.z.begin(), L.z.end(), (T)0);
  for (LocalInt step = 0; step < steps.degree; step++) {
    const T c = (T)steps.c[step], e = (T)steps.e[step], beta = (T)steps.beta[step];
    if (step > 0) {
      PetscCall(Halo(l, *H, L, &L.z));
      Residual(level, known, L.r, L.z, &L.r);
    }
    if (factor.d) CMATCHApplyFactor_Host(factor, L.r, &L.t);
    for (LocalInt i = 0; i < level.n; i++)
      for (LocalInt p = 0; p < k; p++) {
        T sum = 0;
        if (factor.d) sum = L.t[(size_t)i * k + p];
        else
          for (LocalInt q = 0; q < k; q++) sum += D[((size_t)i * k + p) * k + q] * L.r[(size_t)i * k + q];
        T &z = L.z[(size_t)i * k + p];
        z    = e * z + c * sum;
        L.x[(size_t)i * k + p] += beta * z;
      }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* C.b = R r */
template <typename T>
PetscErrorCode Restrict(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHNodesHost<T> *const N = static_cast<CMATCHNodesHost<T> *>(H->nodes);
  CMATCHNodesArrays<T>     &L = N->arrays[l], &C = N->arrays[l + 1];
  const CMATCHNodesLevel   &level = N->level[l];
  const CMATCHLevel        &ranks = H->level[l];
  const LocalInt            k = level.k, m = N->level[l + 1].k;
  const bool                several = l < H->several;
  std::vector<T>           &to      = several ? L.values : C.b;

  PetscFunctionBegin;
  for (LocalInt c = 0; c < level.coarse + ranks.foreign; c++) {
    T sum[kCMATCHMostModes] = {};
    for (LocalInt e = level.R_i[c]; e < level.R_i[c + 1]; e++) {
      const T *const P = &L.P_a[(size_t)level.R_j[e] * k * m], *const r = &L.r[(size_t)(level.R_j[e] / kCMATCHSlots) * k];
      for (LocalInt p = 0; p < k; p++)
        for (LocalInt q = 0; q < m; q++) sum[q] += P[p * m + q] * r[p];
    }
    std::copy(sum, sum + m, to.begin() + (ptrdiff_t)c * m);
  }
  if (!several) PetscFunctionReturn(PETSC_SUCCESS);
  const size_t mine = (size_t)ranks.mine * m;
  PetscCall(ExchangeBackBegin(ranks.down, L.coarse_type.Get(), L.values.data() + mine, L.added.data()));
  PetscCall(ExchangeBackEnd(ranks.down, L.coarse_type.Get(), L.values.data() + mine, L.added.data()));
  for (size_t c = 0; c + 1 < L.add_i.size(); c++)
    for (size_t q = c * m; q < (c + 1) * m; q++) {
      T sum = q < mine ? L.values[q] : 0;
      for (LocalInt e = L.add_i[c]; e < L.add_i[c + 1]; e++) sum += L.added[(size_t)e * m + q % m];
      C.b[q] = sum;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x = x + P C.x */
template <typename T>
PetscErrorCode Interpolate(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHNodesHost<T> *const N     = static_cast<CMATCHNodesHost<T> *>(H->nodes);
  CMATCHNodesArrays<T>     &L     = N->arrays[l];
  const CMATCHNodesLevel   &level = N->level[l];
  const CMATCHLevel        &ranks = H->level[l];
  const LocalInt            k = level.k, m = N->level[l + 1].k;
  const std::vector<T>     &coarse = N->arrays[l + 1].x, &from = l < H->several ? L.values : coarse;

  PetscFunctionBegin;
  if (l < H->several) {
    const size_t mine = (size_t)ranks.mine * m;
    PetscCall(ExchangeBegin(ranks.up, L.coarse_type.Get(), coarse.data(), L.values.data() + mine));
    PetscCall(ExchangeEnd(ranks.up, L.coarse_type.Get(), coarse.data(), L.values.data() + mine));
    std::copy(coarse.begin(), coarse.begin() + (ptrdiff_t)mine, L.values.begin());
  }
  for (LocalInt i = 0; i < level.n; i++)
    for (size_t e = (size_t)i * kCMATCHSlots; e < (size_t)(i + 1) * kCMATCHSlots && level.P_j[e] >= 0; e++)
      for (LocalInt p = 0; p < k; p++)
        for (LocalInt q = 0; q < m; q++) L.x[(size_t)i * k + p] += L.P_a[(e * k + p) * m + q] * from[(size_t)level.P_j[e] * m + q];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x = cycle(b) on level l */
template <typename T>
PetscErrorCode Visit(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHNodesHost<T> *const N     = static_cast<CMATCHNodesHost<T> *>(H->nodes);
  CMATCHNodesArrays<T>     &L     = N->arrays[l];
  const CMATCHNodesLevel   &level = N->level[l];
  const size_t              n     = L.b.size();
  const bool                last = l >= H->several && l + 1 == H->levels, smooth = H->level[l].transfer != CMATCH_PASSED;

  PetscFunctionBegin;
  if (last && H->inverted) {
    for (size_t i = 0; i < n; i++) {
      double sum = 0;
      for (size_t j = 0; j < n; j++) sum += H->inverse[i * n + j] * (double)L.b[j];
      L.x[i] = (T)sum;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(CMATCHForSizes(level.k, N->m, [&](auto known, auto) {
    PetscFunctionBegin;
    if (last) {
      PetscCall(Smooth(N->stalled, true, l, known, H));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (smooth) {
      PetscCall(Smooth(N->steps, true, l, known, H));
      PetscCall(Halo(l, *H, L, &L.x));
      Residual(level, known, L.b, L.x, &L.r);
    } else {
      L.r = L.b;
      std::fill(L.x.begin(), L.x.end(), (T)0);
    }
    PetscCall(Restrict(l, H));
    if (l + 1 < H->levels) PetscCall(Visit(l + 1, H));
    PetscCall(Interpolate(l, H));
    if (smooth) PetscCall(Smooth(N->steps, false, l, known, H));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode Apply(CMATCHHierarchyHost<T> *H, const PetscScalar *r, PetscScalar *z)
{
  CMATCHNodesArrays<T> &L       = static_cast<CMATCHNodesHost<T> *>(H->nodes)->arrays[0];
  const size_t          n       = L.b.size();
  double                largest = 0;
  int                   above   = 0;
  const auto            at      = [H](size_t i) { return H->row ? H->row[i] : (LocalInt)i; };

  PetscFunctionBegin;
  if (n == 0 && !H->several) PetscFunctionReturn(PETSC_SUCCESS);
  if (H->several && H->size >= 0) largest = H->size;
  else {
    for (size_t i = 0; i < n; i++) largest = PetscMax(largest, std::fabs(at(i) < 0 ? 0 : r[at(i)]));
    if (H->several) PetscCall(CMATCHReduce(H->level[0], MPI_MAX, &largest));
  }
  if (std::isfinite(largest)) std::frexp(largest, &above);
  for (size_t i = 0; i < n; i++) L.b[i] = at(i) < 0 ? 0 : (T)std::ldexp(r[at(i)], -above);
  PetscCall(Visit(0, H));
  for (size_t i = 0; i < n; i++)
    if (at(i) >= 0) z[at(i)] = std::ldexp((double)L.x[i] * H->scale, above);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHNodesApply_Host(CMATCHHierarchy *H, const PetscScalar *r, PetscScalar *z)
{
  PetscFunctionBegin;
  if (H->params.precision == FINEPC_SINGLE) PetscCall(Apply(static_cast<CMATCHHierarchyHost<float> *>(H), r, z));
  else PetscCall(Apply(static_cast<CMATCHHierarchyHost<double> *>(H), r, z));
  PetscFunctionReturn(PETSC_SUCCESS);
}
