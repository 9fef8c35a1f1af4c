/* CMATCH on the GPU: the coarsest level, its inverse and its solution. */
#include "cmatch.cuh"
#include "cmatch_fsai.cuh"
#include "sparse/dense_inverse.cuh"

namespace
{

constexpr int kGroup          = 8;    /* lanes of a row */
constexpr int kIterationBlock = 1024; /* threads of the one block that iterates on the coarsest level */

/* ------------------------------------------- inverse ------------------------------------------ */

/* Whether nothing but the diagonal entry of row i differs from 0. */
template <typename T>
__device__ bool IsIsolated(const LocalInt *A_i, const T *A_a, LocalInt i)
{
  for (LocalInt k = A_i[i]; k < A_i[i + 1]; k++)
    if (A_a[k] != 0) return false;
  return true;
}

/* D, which was zero, from the entries of the level but those in columns of isolated rows. A thread takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  FillDense(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, const T *A_a, const double *rs, double *D, CMATCHReport *report)
{
  const long long row = GridThread();
  if (row >= n) return;
  double off = 0;
  for (LocalInt k = A_i[row]; k < A_i[row + 1]; k++) {
    const double a = (double)A_a[k];
    if (!IsIsolated(A_i, A_a, A_j[k])) D[row * n + A_j[k]] = a;
    else if (a != 0) report->isolated = 1;
    off += a;
  }
  D[row * n + row] = rs[row] - off;
}

/* t of the formulas: the mean diagonal entry, by one block */
__global__ void __launch_bounds__(kBlockSize) MeanDiagonal(LocalInt n, const double *D, double *mean)
{
  __shared__ double part[kBlockSize];
  double            sum = 0;
  for (LocalInt i = threadIdx.x; i < n; i += kBlockSize) sum += D[(size_t)i * n + i];
  part[threadIdx.x] = sum;
  for (int half = kBlockSize / 2; half > 0; half /= 2) {
    __syncthreads();
    if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *mean = part[0] / n;
}

/* D = (D + D^T) / 2 above the diagonal, and below it, with t / n added to all entries or the shift to the diagonal entries. */
__global__ void __launch_bounds__(kBlockSize) PrepareDense(LocalInt n, bool singular, const double *mean, double *D)
{
  const long long at = GridThread();
  const LocalInt  i = (LocalInt)(at / n), j = (LocalInt)(at % n);
  if (i >= n || j > i) return;
  const double add     = singular ? *mean / n : i == j ? kCMATCHShift * D[(size_t)i * n + i] : 0.;
  const double value   = 0.5 * (D[(size_t)i * n + j] + D[(size_t)j * n + i]) + add;
  D[(size_t)i * n + j] = value;
  D[(size_t)j * n + i] = value;
}

/* Takes the inverse of the part in the null space away. */
__global__ void __launch_bounds__(kBlockSize) LeaveComplement(LocalInt n, const double *mean, double *D)
{
  const long long at = GridThread();
  if (at < (long long)n * n) D[at] -= 1 / (n * *mean);
}

/* D - D F D with the entries F in columns of isolated rows, see Invert() of the host twin. A thread takes a row of D. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  AddColumnsOfIsolated(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, const T *A_a, double *D, const CMATCHReport *report)
{
  const long long row = GridThread();
  if (row >= n || !report->isolated) return;
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt k = A_i[i]; k < A_i[i + 1]; k++) {
      const LocalInt j = A_j[k];
      if (IsIsolated(A_i, A_a, j)) D[row * n + j] -= D[row * n + i] * (double)A_a[k] * D[(size_t)j * n + j];
    }
}

struct TellPivot {
  CMATCHReport *report;
  int           level;

  __device__ void operator()(LocalInt p, double pivot) const
  {
    if (!(pivot > 0) || !isfinite(pivot))
      atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageCoarse + level, p, CMATCH_COARSEST));
  }
};

/* x = D b. A warp takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  MultiplyDense(LocalInt n, const double *D, const T *b, T *x, const CMATCHControl *control)
{
  const LocalInt row = (LocalInt)(GridThread() / kWarpSize);
  double         sum = 0;
  WaitForPrevious();
  LetNextStart();
  if (control->skip || row >= n) return;
  for (LocalInt j = threadIdx.x % kWarpSize; j < n; j += kWarpSize) sum += D[(size_t)row * n + j] * (double)b[j];
  sum = GroupSum<kWarpSize>(sum);
  if (threadIdx.x % kWarpSize == 0) x[row] = (T)sum;
}

/* ----------------------------------------- polynomial ----------------------------------------- */

/* l of the rows that are alone, for the polynomial that takes the place of the inverse. A thread takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) SetAlone(LocalInt n, const LocalInt *A_i, const T *A_a, const T *d, double root, T *l)
{
  const long long row = GridThread();
  if (row < n && CMATCHIsAlone(A_i[row], A_i[row + 1], A_a, d[row])) l[row] = (T)(root / (double)d[row]);
}

/* ------------------------------------- conjugate gradients ------------------------------------ */

/* The sum of x over the block, which every thread gets. */
__device__ double BlockTotal(double x)
{
  __shared__ double part[kWarpSize], total;
  x = GroupSum<kWarpSize>(x);
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) part[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  if (threadIdx.x < kWarpSize) {
    x = GroupSum<kWarpSize>(threadIdx.x < kIterationBlock / kWarpSize ? part[threadIdx.x] : 0.);
    if (threadIdx.x == 0) total = x;
  }
  __syncthreads();
  return total;
}

/* Some iterations with l1-Jacobi, by one block. v [4][n]: x, r, p, q. */
template <typename T>
__global__ void __launch_bounds__(kIterationBlock)
  IterateCoarsest(CMATCHLevel L, bool singular, const T *b, T *x_out, double *v, const CMATCHControl *control)
{
  const T *A_a = (const T *)L.A_a, *s = (const T *)L.s, *l = (const T *)L.l;
  double  *x = v, *r = v + L.n, *p = v + 2 * (size_t)L.n, *q = v + 3 * (size_t)L.n;
  double   mean = 0, rz = 0, first_rz;
  WaitForPrevious();
  LetNextStart();
  if (control->skip) return;
  if (singular) {
    for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) mean += (double)b[i];
    mean = BlockTotal(mean) / L.n;
  }
  for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) {
    x[i] = 0;
    r[i] = (double)b[i] - mean;
    p[i] = (double)l[i] * r[i];
    rz += r[i] * p[i];
  }
  rz = first_rz = BlockTotal(rz);
  for (int it = 0; it < kCMATCHCoarseIterations && rz > kCMATCHCoarseReduction * first_rz && isfinite(rz); it++) {
    double pq = 0, next = 0;
    for (LocalInt first = threadIdx.x / kGroup; first < L.n; first += kIterationBlock / kGroup) {
      const double p_i = p[first];
      double       sum = 0;
      for (LocalInt k = L.A_i[first] + threadIdx.x % kGroup; k < L.A_i[first + 1]; k += kGroup)
        sum += (double)A_a[k] * (p[L.A_j[k]] - p_i);
      const unsigned mask = ((1u << kGroup) - 1u) << (threadIdx.x % kWarpSize / kGroup * kGroup);
      for (int offset = kGroup / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(mask, sum, offset);
      if (threadIdx.x % kGroup == 0) {
        q[first] = (double)s[first] * p_i + sum;
        pq += p_i * q[first];
      }
    }
    pq = BlockTotal(pq);
    if (!(pq > 0)) break;
    for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) {
      x[i] += rz / pq * p[i];
      r[i] -= rz / pq * q[i];
      next += r[i] * r[i] * (double)l[i];
    }
    next = BlockTotal(next);
    for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) p[i] = (double)l[i] * r[i] + next / rz * p[i];
    rz = next;
    __syncthreads();
  }
  mean = 0;
  if (singular) {
    for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) mean += x[i];
    mean = BlockTotal(mean) / L.n;
  }
  for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) x_out[i] = (T)(x[i] - mean);
}

} // namespace

PetscErrorCode CMATCHPrepareCoarsest(CMATCHSetup *s)
{
  CMATCHHierarchyCUDA *H     = s->H;
  const LocalInt       level = H->levels - 1, n = H->level[level].n;
  const CMATCHLevel   &L = H->level[level];

  PetscFunctionBegin;
  if (H->end == CMATCH_END_DOMINATED) PetscFunctionReturn(PETSC_SUCCESS);
  if (s->params->coarse == PC_CMATCH_PCG) {
    if (H->iteration.size() != 4 * (size_t)n) PetscCall(H->iteration.Allocate(4 * (size_t)n));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (n > kCMATCHLargestDense) {
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      SetAlone<T><<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, L.A_i, (const T *)L.A_a, (const T *)L.d,
                                                              PolynomialChebyshev(kCMATCHStalledDegree).root, (T *)L.l);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const auto mark = s->arena.mark();
  double    *work = nullptr, *mean = nullptr;
  if (H->inverse.size() != (size_t)n * n) PetscCall(H->inverse.Allocate((size_t)n * n));
  double *const D = H->inverse.data();
  PetscCallCUDA(cudaMemsetAsync(D, 0, H->inverse.bytes(), s->stream));
  if (s->params->singular && n == 1) PetscFunctionReturn(PETSC_SUCCESS); /* nothing is beside the null space, so that x is 0 */
  PetscCall(s->arena.Take(DenseInverseWork(n), &work));
  PetscCall(s->arena.Take(1, &mean));
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    FillDense<T><<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, L.A_i, L.A_j, (const T *)L.A_a, H->rs[level], D, s->report);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  MeanDiagonal<<<1, kBlockSize, 0, s->stream>>>(n, D, mean);
  PrepareDense<<<BlocksFor((long long)n * n), kBlockSize, 0, s->stream>>>(n, (bool)s->params->singular, mean, D);
  FinePCCheckLaunch();
  PetscCall(DenseInvert(n, D, -1, work, TellPivot{s->report, (int)level}, s->stream));
  if (s->params->singular) {
    LeaveComplement<<<BlocksFor((long long)n * n), kBlockSize, 0, s->stream>>>(n, mean, D);
    FinePCCheckLaunch();
  }
  if (level == 0) /* other levels are symmetric */
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      AddColumnsOfIsolated<T><<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, L.A_i, L.A_j, (const T *)L.A_a, D, s->report);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHLaunchCoarsest(CMATCHHierarchyCUDA *H, void *x, cudaStream_t stream)
{
  const CMATCHLevel &L = H->level[H->levels - 1];
  const void        *b = H->vectors[H->levels - 1].b;

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    if (H->inverse.size())
      PetscCall(LaunchEarly(H->early, MultiplyDense<T>, BlocksFor((long long)L.n * kWarpSize), kBlockSize, stream, L.n,
                            H->inverse.data(), (const T *)b, (T *)x, H->control));
    else
      PetscCall(LaunchEarly(H->early, IterateCoarsest<T>, 1, kIterationBlock, stream, L, (bool)H->params.singular, (const T *)b,
                            (T *)x, H->iteration.data(), H->control));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
