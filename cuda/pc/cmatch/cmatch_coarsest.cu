/* CMATCH on the GPU: the coarsest level, its inverse and its solution. */
#include <vector>

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

/* D, which was zero, from the entries of the level but those in columns of isolated rows, and D_ii = s_i but for these. A thread
 * takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  FillDense(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, const T *A_a, const double *rs, double *D, CMATCHReport *report)
{
  const LocalInt row = (LocalInt)(GridThread() / kWarpSize), lane = threadIdx.x % kWarpSize;
  if (row >= n) return;
  double sum = rs[row];
  for (LocalInt first = A_i[row]; first < A_i[row + 1]; first += kWarpSize) {
    const LocalInt k     = first + lane;
    const bool     there = k < A_i[row + 1], isolated = there && IsIsolated(A_i, A_a, A_j[k]);
    const double   a = there ? (double)A_a[k] : 0.;
    if (there && !isolated) D[(size_t)row * n + A_j[k]] = a;
    if (isolated && a != 0) report->isolated = 1;
    if (__any_sync(kFullWarp, isolated)) AddInOrder<kWarpSize>(isolated ? -a : 0., &sum);
  }
  if (lane == 0) D[(size_t)row * n + row] = sum;
}

/* D, which was zero, from the blocks of a level of nodes. A warp takes a node. */
__global__ void __launch_bounds__(kBlockSize)
  FillDenseBlocks(LocalInt nodes, LocalInt k, const LocalInt *A_i, const LocalInt *A_j, const double *A, double *D)
{
  const LocalInt i = (LocalInt)(GridThread() / kWarpSize), n = nodes * k;
  if (i >= nodes) return;
  const size_t begin = (size_t)A_i[i] * k * k, end = (size_t)A_i[i + 1] * k * k;
  for (size_t at = begin + threadIdx.x % kWarpSize; at < end; at += kWarpSize) {
    const LocalInt entry                                                           = (LocalInt)(at % (k * k));
    D[(size_t)(i * k + entry / k) * n + (size_t)A_j[at / (k * k)] * k + entry % k] = A[at];
  }
}

__global__ void __launch_bounds__(kBlockSize) CopyDiagonal(LocalInt n, const double *D, double *diagonal)
{
  const long long i = GridThread();
  if (i < n) diagonal[i] = D[i * n + i];
}

/* D = (D + D^T) / 2 but for the diagonal. A thread takes an entry. */
__global__ void __launch_bounds__(kBlockSize) SymmetrizeDense(LocalInt n, double *D)
{
  const long long at = GridThread();
  const LocalInt  i = (LocalInt)(at / n), j = (LocalInt)(at % n);
  if (i >= n || j >= i) return;
  const double value   = 0.5 * (D[(size_t)i * n + j] + D[(size_t)j * n + i]);
  D[(size_t)i * n + j] = value;
  D[(size_t)j * n + i] = value;
}

/* D_ii less the others of its row, raised by a share, which are kept apart, too. A warp takes a row. */
__global__ void __launch_bounds__(kBlockSize) CompleteDense(LocalInt n, double raised, double *D, double *diagonal)
{
  const LocalInt row  = (LocalInt)(GridThread() / kWarpSize);
  const int      lane = threadIdx.x % kWarpSize;
  double         sum  = 0;
  if (row >= n) return;
  for (LocalInt j = lane; j < n; j += kWarpSize)
    if (j != row) sum += D[(size_t)row * n + j];
  sum = GroupSum<kWarpSize>(sum);
  if (lane != 0) return;
  diagonal[row]            = (D[(size_t)row * n + row] - sum) * (1 + raised);
  D[(size_t)row * n + row] = diagonal[row];
}

/* t of the formulas: the mean diagonal entry, by one block */
__global__ void __launch_bounds__(kBlockSize) MeanDiagonal(LocalInt n, const double *diagonal, double *mean)
{
  __shared__ double part[kBlockSize];
  double            sum = 0;
  for (LocalInt i = threadIdx.x; i < n; i += kBlockSize) sum += diagonal[i];
  part[threadIdx.x] = sum;
  for (int half = kBlockSize / 2; half > 0; half /= 2) {
    __syncthreads();
    if ((int)threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *mean = part[0] / n;
}

/* Adds t / n to all entries, or takes the inverse of the part in the null space away. */
__global__ void __launch_bounds__(kBlockSize) AddMean(LocalInt n, const double *mean, bool inverted, double *D)
{
  const long long at = GridThread();
  if (at < (long long)n * n) D[at] += inverted ? -1 / (n * *mean) : *mean / n;
}

/* Adds `factor` times a number of its row to each entry of a singular component, see CMATCHParts. */
__global__ void __launch_bounds__(kBlockSize)
  AddToParts(LocalInt n, const LocalInt *part, const double *number, double factor, double *D)
{
  const long long at = GridThread();
  const LocalInt  i = (LocalInt)(at / n), j = (LocalInt)(at % n);
  if (i < n && part[i] >= 0 && part[i] == part[j]) D[at] += factor * number[i];
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

/* `small` becomes 0 where a pivot is very small, or else 1 where it is at most the share `look` of its diagonal entry. */
struct CheckPivot {
  CMATCHReport *report;
  const double *diagonal;
  double        look;

  __device__ void operator()(LocalInt p, double pivot) const
  {
    if (!(pivot > 0) || !isfinite(pivot)) atomicMin(&report->pivot, p);
    else if (!(pivot > kCMATCHSmallPivot * diagonal[p])) report->small = 0;
    else if (!(pivot > look * diagonal[p])) atomicMin(&report->small, 1);
  }
};

/* x = D b. A warp takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) MultiplyDense(LocalInt n, const double *D, const T *b, T *x, CMATCHSolverState solver)
{
  const LocalInt row = (LocalInt)(GridThread() / kWarpSize);
  double         sum = 0;
  if (solver.Skip()) return;
  WaitForPrevious();
  LetNextStart();
  if (row >= n) return;
  for (LocalInt j = threadIdx.x % kWarpSize; j < n; j += kWarpSize) sum += D[(size_t)row * n + j] * (double)b[j];
  sum = GroupSum<kWarpSize>(sum);
  if (threadIdx.x % kWarpSize == 0) x[row] = (T)sum;
}

/* ----------------------------------------- polynomial ----------------------------------------- */

/* l of the rows that are alone, for the polynomial that takes the place of the inverse. A thread takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  SetAlone(LocalInt n, const LocalInt *A_i, const T *A_a, const T *s, const T *d, double root, T *l)
{
  const long long row = GridThread();
  if (row < n && CMATCHIsAlone(A_i[row], A_i[row + 1], A_a, d[row])) l[row] = s[row] == 0 ? (T)0 : (T)(root / (double)d[row]);
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

/* Takes the mean off x on each singular component, by one block. What is in x must be known to all threads. */
__device__ void TakeMeansOff(LocalInt n, const LocalInt *parts, double *x)
{
  const LocalInt *const begin = parts + 1, *const row = begin + n + 1;
  for (LocalInt part = 0; part < parts[0]; part++) {
    double mean = 0;
    for (LocalInt k = begin[part] + (LocalInt)threadIdx.x; k < begin[part + 1]; k += kIterationBlock) mean += x[row[k]];
    mean = BlockTotal(mean) / (begin[part + 1] - begin[part]);
    for (LocalInt k = begin[part] + (LocalInt)threadIdx.x; k < begin[part + 1]; k += kIterationBlock) x[row[k]] -= mean;
  }
  __syncthreads();
}

/* Some iterations with l1-Jacobi, by one block. v [4][n]: x, r, p, q. */
template <typename T>
__global__ void __launch_bounds__(kIterationBlock)
  IterateCoarsest(CMATCHLevel L, const LocalInt *parts, const T *b, T *x_out, double *v, CMATCHSolverState solver)
{
  const T *A_a = (const T *)L.A_a, *s = (const T *)L.s, *l = (const T *)L.l;
  double  *x = v, *r = v + L.n, *p = v + 2 * (size_t)L.n, *q = v + 3 * (size_t)L.n;
  double   rz = 0, first_rz;
  if (solver.Skip()) return;
  WaitForPrevious();
  LetNextStart();
  for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) {
    x[i] = 0;
    r[i] = (double)b[i];
  }
  __syncthreads();
  TakeMeansOff(L.n, parts, r);
  for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) {
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
  __syncthreads();
  TakeMeansOff(L.n, parts, x);
  for (LocalInt i = threadIdx.x; i < L.n; i += kIterationBlock) x_out[i] = (T)x[i];
}

/* The singular components of the last level. They are found on the host. */
template <typename T>
PetscErrorCode FindParts(CMATCHSetup *s, CMATCHParts *parts)
{
  CMATCHHierarchyCUDA  *H    = s->H;
  const LocalInt        last = H->levels - 1;
  const CMATCHLevel    &L    = H->level[last];
  std::vector<LocalInt> A_i((size_t)L.n + 1), A_j(L.nnz);
  std::vector<T>        A_a(L.nnz);
  std::vector<double>   rs(L.n);
  const auto            fetch = [](auto *to, const void *from) {
    PetscFunctionBegin;
    if (!to->empty())
      PetscCall(ArrayCopy_CUDA(to->data(), from, to->size() * sizeof((*to)[0]), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscFunctionBegin;
  PetscCall(fetch(&A_i, L.A_i));
  PetscCall(fetch(&A_j, L.A_j));
  PetscCall(fetch(&A_a, L.A_a));
  PetscCall(fetch(&rs, H->device[last].rs));
  *parts          = CMATCHFindParts(L.n, A_i.data(), A_j.data(), std::vector<double>(A_a.begin(), A_a.end()).data(), rs.data(),
                                    CMATCHRowsEach(*H, last), s->params->singular);
  s->stats->parts = PetscMax(parts->Large() - (s->params->singular ? 1 : 0), 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FindParts(CMATCHSetup *s, CMATCHParts *parts)
{
  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) { return FindParts<decltype(zero)>(s, parts); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the conjugate gradient method needs. */
PetscErrorCode PrepareIteration(CMATCHSetup *s)
{
  CMATCHHierarchyCUDA  *H = s->H;
  const LocalInt        n = H->level[H->levels - 1].n;
  CMATCHParts           parts;
  std::vector<LocalInt> list(2 * (size_t)n + 2, 0);

  PetscFunctionBegin;
  if (H->iteration.size() != 4 * (size_t)n) PetscCall(H->iteration.Allocate(4 * (size_t)n));
  if (H->parts.size() != list.size()) PetscCall(H->parts.Allocate(list.size()));
  PetscCall(FindParts(s, &parts));
  list[0] = parts.Count();
  std::copy(parts.begin.begin(), parts.begin.end(), list.begin() + 1);
  std::copy(parts.row.begin(), parts.row.end(), list.begin() + 2 + n);
  PetscCall(ArrayCopy_CUDA(H->parts.data(), list.data(), list.size() * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Inverts the coarsest level as far as a first attempt, then singular components, and then larger diagonal entries allow. */
class Inversion {
public:
  explicit Inversion(CMATCHSetup *setup) :
      s(setup), H(setup->H), level(H->levels - 1), n(H->level[level].n), singular(setup->params->singular)
  {
  }

  PetscErrorCode Run()
  {
    PetscFunctionBegin;
    if (H->inverse.size() != (size_t)n * n) PetscCall(H->inverse.Allocate((size_t)n * n));
    D = H->inverse.data();
    if (singular && n == 1) { /* nothing is beside the null space, so that x is 0 */
      PetscCallCUDA(cudaMemsetAsync(D, 0, H->inverse.bytes(), s->stream));
      PetscCall(CMATCHReadReport(s));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    const auto mark = s->arena.mark();
    PetscCall(s->arena.Take(DenseInverseWork(n), &work));
    PetscCall(s->arena.Take(1, &mean));
    PetscCall(s->arena.Take(n, &diagonal));
    for (int attempt = 0; attempt < 2 + kCMATCHRaises; attempt++) {
      if (attempt == 1) PetscCall(TakeParts());
      if (attempt > 1) s->stats->raised = attempt == 2 ? kCMATCHRaise : kCMATCHRaiseMore * s->stats->raised;
      PetscCall(Attempt());
      PetscCall(CMATCHReadReport(s));
      if (CMATCHHasFailed(s) || (s->seen.pivot == kCMATCHNone && (attempt || s->seen.small == kCMATCHNone))) break;
    }
    if (!CMATCHHasFailed(s) && s->seen.pivot != kCMATCHNone)
      s->seen.failure = CMATCHFailureKey(kCMATCHStageCoarse + (int)level, s->seen.pivot, CMATCH_COARSEST);
    s->arena.Release(mark);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  PetscErrorCode TakeParts()
  {
    CMATCHParts parts;

    PetscFunctionBegin;
    PetscCall(FindParts(s, &parts));
    PetscCall(s->arena.Take(n, &part));
    PetscCall(s->arena.Take(n, &add));
    PetscCall(s->arena.Take(n, &take));
    PetscCall(ArrayCopy_CUDA(part, parts.of.data(), n * sizeof(*part), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
    PetscCall(ArrayCopy_CUDA(add, parts.add.data(), n * sizeof(*add), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
    PetscCall(ArrayCopy_CUDA(take, parts.take.data(), n * sizeof(*take), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Attempt()
  {
    const CMATCHLevel &L       = H->level[level];
    const int          entries = BlocksFor((long long)n * n);

    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(&s->report->pivot, kCMATCHNoneByte, 2 * sizeof(LocalInt), s->stream)); /* and small */
    PetscCallCUDA(cudaMemsetAsync(D, 0, H->inverse.bytes(), s->stream));
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      FillDense<T><<<BlocksFor((long long)n * kWarpSize), kBlockSize, 0, s->stream>>>(n, L.A_i, L.A_j, (const T *)L.A_a,
                                                                                      H->device[level].rs, D, s->report);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    SymmetrizeDense<<<entries, kBlockSize, 0, s->stream>>>(n, D);
    CompleteDense<<<BlocksFor((long long)n * kWarpSize), kBlockSize, 0, s->stream>>>(n, s->stats->raised, D, diagonal);
    if (part) AddToParts<<<entries, kBlockSize, 0, s->stream>>>(n, part, add, 1., D);
    else if (singular) {
      MeanDiagonal<<<1, kBlockSize, 0, s->stream>>>(n, diagonal, mean);
      AddMean<<<entries, kBlockSize, 0, s->stream>>>(n, mean, false, D);
    }
    FinePCCheckLaunch();
    PetscCall(DenseInvert(n, D, -1, work, CheckPivot{s->report, diagonal, 0}, s->stream));
    if (part) AddToParts<<<entries, kBlockSize, 0, s->stream>>>(n, part, take, -1., D);
    else if (singular) AddMean<<<entries, kBlockSize, 0, s->stream>>>(n, mean, true, D);
    FinePCCheckLaunch();
    if (level == 0) /* other levels are symmetric */
      PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
        using T = decltype(zero);
        PetscFunctionBegin;
        AddColumnsOfIsolated<T><<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, L.A_i, L.A_j, (const T *)L.A_a, D, s->report);
        FinePCCheckLaunch();
        PetscFunctionReturn(PETSC_SUCCESS);
      }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHSetup               *s;
  CMATCHHierarchyCUDA *const H;
  const LocalInt             level, n;
  const bool                 singular;
  double                    *D = nullptr, *work = nullptr, *mean = nullptr, *diagonal = nullptr;
  LocalInt                  *part = nullptr; /* see CMATCHParts; null before these are known */
  double                    *add = nullptr, *take = nullptr;
};

} // namespace

PetscErrorCode CMATCHPrepareCoarsest(CMATCHSetup *s)
{
  CMATCHHierarchyCUDA *H = s->H;
  const CMATCHLevel   &L = H->level[H->levels - 1];

  PetscFunctionBegin;
  if (s->params->coarse == PC_CMATCH_DENSE && H->end != CMATCH_END_DOMINATED && L.n <= kCMATCHLargestDense) {
    Inversion inversion(s);
    PetscCall(inversion.Run());
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (H->end != CMATCH_END_DOMINATED && s->params->coarse == PC_CMATCH_PCG) PetscCall(PrepareIteration(s));
  else if (H->end != CMATCH_END_DOMINATED)
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      SetAlone<T><<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(L.n, L.A_i, (const T *)L.A_a, (const T *)L.s, (const T *)L.d,
                                                                PolynomialChebyshev(kCMATCHStalledDegree).root, (T *)L.l);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
  PetscCall(CMATCHReadReport(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHInvertNodes(CMATCHSetup *s, LocalInt level, const CMATCHNodesLevel &L, const double *A, LocalInt m,
                                 const double *B)
{
  CMATCHHierarchyCUDA *H    = s->H;
  const LocalInt       n    = L.n * L.k;
  const double         look = kCMATCHLook * n * kCMATCHFree[s->params->precision];
  const auto           mark = s->arena.mark();
  double              *work = nullptr, *diagonal = nullptr;
  LocalInt             held = 0;
  PetscBool            done = PETSC_TRUE;
  const auto           fill = [&](double *D) {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(D, 0, H->inverse.bytes(), s->stream));
    FillDenseBlocks<<<BlocksFor((long long)L.n * kWarpSize), kBlockSize, 0, s->stream>>>(L.n, L.k, L.A_i, L.A_j, A, D);
    SymmetrizeDense<<<BlocksFor((long long)n * n), kBlockSize, 0, s->stream>>>(n, D);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  const auto invert = [&](double *D) {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(&s->report->pivot, kCMATCHNoneByte, 2 * sizeof(LocalInt), s->stream)); /* and small */
    CopyDiagonal<<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, D, diagonal);
    FinePCCheckLaunch();
    PetscCall(DenseInvert(n, D, -1, work, CheckPivot{s->report, diagonal, look}, s->stream));
    PetscCall(CMATCHReadReport(s));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  const auto indefinite = [&] { return s->seen.pivot != kCMATCHNone || s->seen.small == 0; };

  PetscFunctionBegin;
  if (H->inverse.size() != (size_t)n * n) PetscCall(H->inverse.Allocate((size_t)n * n));
  double *const D = H->inverse.data();
  PetscCall(s->arena.Take(DenseInverseWork(n), &work));
  PetscCall(s->arena.Take(n, &diagonal));
  PetscCall(fill(D));
  PetscCall(invert(D));
  if (!CMATCHHasFailed(s) && (indefinite() || s->seen.small != kCMATCHNone)) { /* nothing may hold some body: the host looks */
    std::vector<double> dense((size_t)n * n), modes((size_t)n * m);
    Buffer<double>      kept;
    PetscCall(kept.Allocate(dense.size()));
    PetscCall(fill(kept.data()));
    PetscCall(ArrayCopy_CUDA(dense.data(), kept.data(), kept.bytes(), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscCall(ArrayCopy_CUDA(modes.data(), B, modes.size() * sizeof(double), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscCall(CMATCHNodesHold(n, m, modes.data(), s->params->precision, dense.data(), &held));
    if (held) {
      PetscCall(ArrayCopy_CUDA(D, dense.data(), kept.bytes(), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
      PetscCall(invert(D));
    }
    if (!CMATCHHasFailed(s) && indefinite()) {
      PetscCall(CMATCHNodesInvert(n, dense.data(), &done));
      PetscCall(ArrayCopy_CUDA(D, dense.data(), kept.bytes(), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
      if (!done) s->seen.failure = CMATCHFailureKey(kCMATCHStageCoarse + (int)level, 0, CMATCH_COARSEST);
    }
  }
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHLaunchCoarsest(CMATCHHierarchyCUDA *H, void *x, const CMATCHSolverState &solver, cudaStream_t stream)
{
  const CMATCHLevel &L = H->level[H->levels - 1];
  const void        *b = H->device[H->levels - 1].vectors.b;

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    if (H->inverse.size())
      PetscCall(LaunchEarly(H->early, MultiplyDense<T>, BlocksFor((long long)L.n * kWarpSize), kBlockSize, stream, L.n,
                            H->inverse.data(), (const T *)b, (T *)x, solver));
    else
      PetscCall(LaunchEarly(H->early, IterateCoarsest<T>, 1, kIterationBlock, stream, L, (const LocalInt *)H->parts.data(),
                            (const T *)b, (T *)x, H->iteration.data(), solver));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
