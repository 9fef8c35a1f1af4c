/* CUDA twin of src/pc/cmatch/cmatch_fsai_host.cxx: the factors of the smoothers sfsai and afsai. The cycle applies them. */
#include <cmath>

#include "cmatch_fsai.cuh"
#include "pc/afsai/afsai.h"

namespace
{

constexpr int kGroup     = 8;                               /* lanes of a row */
constexpr int kSumBlocks = 128;                             /* of sums over vectors */
constexpr int kSums      = 2 * kCMATCHFactorIterations + 1; /* the rz and pq of LargestRitzValue(), in turns */

/* ------------------------------------------- kernels ------------------------------------------ */

/* A thread takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  MarkAlone(LocalInt n, const LocalInt *A_i, const T *A_a, const T *d, unsigned char *alone)
{
  const long long row = GridThread();
  if (row < n) alone[row] = CMATCHIsAlone(A_i[row], A_i[row + 1], A_a, d[row]);
}

/* A level as a matrix with its diagonal times `scale`, and the longest row of its lower triangle. A group takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  ExpandRows(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, const T *A_a, const T *s, const T *d, const unsigned char *alone,
             double scale, LocalInt *i, LocalInt *j, double *a, LocalInt *longest)
{
  const LocalInt row   = (LocalInt)(GridThread() / kGroup);
  const int      lane  = threadIdx.x % kGroup;
  const bool     mine  = row < n;
  const LocalInt begin = mine ? A_i[row] : 0, end = mine ? A_i[row + 1] : 0;
  LocalInt       lower  = 0;
  double         others = 0;
  for (LocalInt k = begin + lane; k < end; k += kGroup) {
    const LocalInt column = A_j[k], to = k + row + (column > row);
    const double   value = (double)A_a[k];
    lower += column < row;
    others += value;
    j[to] = column;
    a[to] = alone[column] ? 0. : value;
  }
  lower  = GroupSum<kGroup>(lower);
  others = GroupSum<kGroup>(others);
  if (mine && lane == 0) {
    const LocalInt to       = begin + row + lower;
    const double   diagonal = (double)s[row] - others;
    i[row]                  = begin + row;
    j[to]                   = row;
    a[to]                   = (diagonal > 0 ? diagonal : (double)d[row]) * scale;
    if (row + 1 == n) i[n] = end + n;
  }
  lower = GroupMax<kWarpSize>(lower);
  if (threadIdx.x % kWarpSize == 0) atomicMax(longest, lower + 1);
}

/* The vector of which A makes the residual at the beginning. A thread takes an entry. */
__global__ void __launch_bounds__(kBlockSize) BeginVector(LocalInt n, const double *inverse_psi, double *x)
{
  const long long i = GridThread();
  if (i < n) x[i] = (double)(int)CMATCHMix((LocalInt)i, (LocalInt)i + 7) * 0x1p-31 * sqrt(inverse_psi[i]);
}

/* A block's part of x . y */
__global__ void __launch_bounds__(kBlockSize) SumProducts(LocalInt n, const double *x, const double *y, double *partial)
{
  __shared__ double part[kBlockSize / kWarpSize];
  double            sum = 0;
  for (long long i = GridThread(); i < n; i += (long long)gridDim.x * kBlockSize) sum += x[i] * y[i];
  sum = GroupSum<kWarpSize>(sum);
  if (threadIdx.x % kWarpSize == 0) part[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kBlockSize / kWarpSize; w++) sum += part[w];
  partial[blockIdx.x] = sum;
}

/* The sum of the parts of `blocks` blocks, which every thread gets. All lanes of the warp take part. */
__device__ double Total(int blocks, const double *partial)
{
  double sum = 0;
  for (int b = threadIdx.x % kWarpSize; b < blocks; b += kWarpSize) sum += partial[b];
  return GroupSum<kWarpSize>(sum);
}

/* r = r - rz / pq q. A thread takes an entry. */
__global__ void __launch_bounds__(kBlockSize)
  StepResidual(LocalInt n, int blocks, const double *rz, const double *pq, const double *q, double *r)
{
  const long long i     = GridThread();
  const double    alpha = Total(blocks, rz) / Total(blocks, pq);
  if (i < n) r[i] -= alpha * q[i];
}

/* p = z + rz / rz_before p, or p = z in the first step, where rz_before is null. A thread takes an entry. */
__global__ void __launch_bounds__(kBlockSize)
  StepDirection(LocalInt n, int blocks, const double *rz, const double *rz_before, const double *z, double *p)
{
  const long long i    = GridThread();
  const double    beta = rz_before ? Total(blocks, rz) / Total(blocks, rz_before) : 0;
  if (i < n) p[i] = rz_before ? z[i] + beta * p[i] : z[i];
}

/* The diagonal matrix between the factors, from 1 / psi. A thread takes an entry. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  ScaleDiagonal(LocalInt n, const double *inverse_psi, const unsigned char *alone, const T *d, double omega, double root, T *scaled)
{
  const long long i = GridThread();
  if (i < n) scaled[i] = (T)(alone[i] ? root / (double)d[i] : omega * inverse_psi[i]);
}

/* -------------------------------------------- steps ------------------------------------------- */

/* A level as a matrix with its diagonal, and the vectors of its set-up, all in the arena. */
struct Expanded {
  CSR            matrix;
  LocalInt       longest;       /* the most entries of a row of the lower triangle */
  unsigned char *alone;         /* [n] */
  double        *d;             /* [n] 1 / psi */
  double        *r, *z, *p, *q; /* [n] of the conjugate gradient method */
  double        *partial;       /* [kSums][kSumBlocks] */

  CSRView View() const { return {matrix.rows, matrix.nnz, matrix.i, matrix.j, (const double *)matrix.a, PETSC_MEMTYPE_CUDA}; }
};

template <typename T>
PetscErrorCode Expand(CMATCHSetup *s, const CMATCHLevel &L, Expanded *A)
{
  const LocalInt n = L.n, nnz = L.nnz + L.n;
  CMATCHArena   &arena   = s->arena;
  LocalInt      *longest = nullptr;
  double        *a       = nullptr;

  PetscFunctionBegin;
  *A        = Expanded{};
  A->matrix = CSR{n, n, nnz, nullptr, nullptr, nullptr, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA};
  PetscCall(arena.Take((size_t)n + 1, &A->matrix.i));
  PetscCall(arena.Take(nnz, &A->matrix.j));
  PetscCall(arena.Take(nnz, &a));
  PetscCall(arena.Take(n, &A->alone));
  for (double **vector : {&A->d, &A->r, &A->z, &A->p, &A->q}) PetscCall(arena.Take(n, vector));
  PetscCall(arena.Take((size_t)kSums * kSumBlocks, &A->partial));
  PetscCall(arena.Take(1, &longest));
  A->matrix.a = a;
  PetscCallCUDA(cudaMemsetAsync(longest, 0, sizeof(*longest), s->stream));
  MarkAlone<T><<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, L.A_i, (const T *)L.A_a, (const T *)L.d, A->alone);
  ExpandRows<T><<<BlocksFor((long long)n * kGroup), kBlockSize, 0, s->stream>>>(n, L.A_i, L.A_j, (const T *)L.A_a, (const T *)L.s,
                                                                                (const T *)L.d, A->alone,
                                                                                s->params->singular ? 1 + kCMATCHFactorShift : 1,
                                                                                A->matrix.i, A->matrix.j, a, longest);
  FinePCCheckLaunch();
  PetscCallCUDA(cudaMemcpyAsync(&A->longest, longest, sizeof(*longest), cudaMemcpyDeviceToHost, s->stream));
  PetscCallCUDA(cudaStreamSynchronize(s->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The factor W and 1 / psi */
PetscErrorCode ComputeFactor(CMATCHSetup *s, LocalInt level, const Expanded &A, bool keep, CMATCHFactor *factor, FSAIStats *made)
{
  const CSRView   view = A.View();
  const PetscBool kept = keep ? PETSC_TRUE : PETSC_FALSE;

  PetscFunctionBegin;
  if (s->params->smoother == PC_CMATCH_SFSAI) {
    SFSAIParams params;
    params.power           = 1;
    params.setup_precision = params.factor_precision = s->params->precision;
    if (A.longest > kCMATCHFactorLargestRow) params.max_row = kCMATCHFactorLargestRow;
    PetscCall(SFSAIComputeFactor_CUDA(&view, 0, nullptr, &params, kept, &factor->W, A.d, &s->H->factor_work[level], made));
  } else {
    AFSAIParams params;
    params.setup_precision = params.factor_precision = s->params->precision;
    PetscCall(AFSAIComputeFactor_CUDA(&view, 0, nullptr, &params, kept, &factor->W, A.d, made));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* lambda of the formulas. The host reads nothing before the last step. */
PetscErrorCode LargestEigenvalue(const Expanded &A, const CMATCHFactor &factor, cudaStream_t stream, PetscReal *lambda)
{
  constexpr LocalInt  steps  = kCMATCHFactorIterations;
  const LocalInt      n      = A.matrix.rows;
  const int           blocks = PetscMin(kSumBlocks, BlocksFor(n));
  const auto          rz     = [&](LocalInt step) { return A.partial + 2 * step * kSumBlocks; };
  const auto          pq     = [&](LocalInt step) { return A.partial + (2 * step + 1) * kSumBlocks; };
  std::vector<double> parts((size_t)kSums * kSumBlocks);
  PetscReal           of_rz[steps + 1] = {}, of_pq[steps] = {};

  PetscFunctionBegin;
  BeginVector<<<BlocksFor(n), kBlockSize, 0, stream>>>(n, A.d, A.q);
  PetscCall(CSRMultiply_CUDA(&A.matrix, PETSC_FALSE, nullptr, 1, A.q, n, A.r, n));
  for (LocalInt step = 0;; step++) {
    PetscCall(CSRMultiply_CUDA(&factor.W, PETSC_TRUE, A.d, 1, A.r, n, A.q, n));
    PetscCall(CSRMultiply_CUDA(&factor.Wt, PETSC_TRUE, nullptr, 1, A.q, n, A.z, n));
    SumProducts<<<blocks, kBlockSize, 0, stream>>>(n, A.r, A.z, rz(step));
    if (step == steps) break;
    StepDirection<<<BlocksFor(n), kBlockSize, 0, stream>>>(n, blocks, rz(step), step ? rz(step - 1) : nullptr, A.z, A.p);
    PetscCall(CSRMultiply_CUDA(&A.matrix, PETSC_FALSE, nullptr, 1, A.p, n, A.q, n));
    SumProducts<<<blocks, kBlockSize, 0, stream>>>(n, A.p, A.q, pq(step));
    StepResidual<<<BlocksFor(n), kBlockSize, 0, stream>>>(n, blocks, rz(step), pq(step), A.q, A.r);
    FinePCCheckLaunch();
  }
  FinePCCheckLaunch();
  PetscCallCUDA(cudaMemcpyAsync(parts.data(), A.partial, parts.size() * sizeof(double), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  for (LocalInt k = 0; k < kSums; k++)
    for (int block = 0; block < blocks; block++) (k % 2 ? of_pq : of_rz)[k / 2] += parts[(size_t)k * kSumBlocks + block];
  *lambda = LargestRitzValue(steps, of_rz, of_pq);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The factor of a level. Sets the failure if there is none. */
template <typename T>
PetscErrorCode FactorLevel(CMATCHSetup *s, LocalInt level, bool keep)
{
  CMATCHLevel       &L       = s->H->level[level];
  CMATCHFactor      *factor  = &L.factor;
  const auto         mark    = s->arena.mark();
  unsigned long long failure = ~0ull;
  double             lambda  = 0;
  FSAIStats          made{};
  Expanded           A;

  PetscFunctionBegin;
  PetscCall(Expand<T>(s, L, &A));
  PetscCall(ComputeFactor(s, level, A, keep, factor, &made));
  s->stats->work_bytes = PetscMax(s->stats->work_bytes, made.work_bytes);
  if (made.failure) failure = CMATCHFailureKey(kCMATCHStageCoarse + (int)level, made.failure_row, CMATCH_DIAGONAL_NOT_POSITIVE);
  else {
    if (!keep) {
      factor->capped_rows = made.capped_rows;
      PetscCall(ArrayCreate_CUDA(L.n * sizeof(T), &factor->d));
    }
    factor->diagonal_rows = made.diagonal_rows;
    PetscCall(CSRTranspose_CUDA(&factor->W, keep ? PETSC_TRUE : PETSC_FALSE, &factor->Wt));
    PetscCall(LargestEigenvalue(A, *factor, s->stream, &lambda));
    if (!(lambda > 0) || !std::isfinite(lambda))
      failure = CMATCHFailureKey(kCMATCHStageCoarse + (int)level, 0, CMATCH_DIAGONAL_NOT_POSITIVE);
    ScaleDiagonal<T><<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(L.n, A.d, A.alone, (const T *)L.d,
                                                                   1 / (kCMATCHFactorMargin * lambda),
                                                                   CMATCHSmootherSteps(*s->params).root, (T *)factor->d);
    FinePCCheckLaunch();
  }
  s->seen.failure = PetscMin(s->seen.failure, failure);
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHFactorSmoothers(CMATCHSetup *s, bool keep)
{
  CMATCHHierarchyCUDA *H        = s->H;
  const LocalInt       smoothed = H->end == CMATCH_END_DOMINATED ? H->levels : H->levels - 1;

  PetscFunctionBegin;
  if (s->params->smoother != PC_CMATCH_SFSAI && s->params->smoother != PC_CMATCH_AFSAI) PetscFunctionReturn(PETSC_SUCCESS);
  for (LocalInt level = 0; level < smoothed && s->seen.failure == ~0ull; level++)
    PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) { return FactorLevel<decltype(zero)>(s, level, keep); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDestroyFactors(CMATCHHierarchyCUDA *H)
{
  PetscFunctionBegin;
  for (CMATCHLevel &level : H->level) {
    PetscCall(CSRDestroy(&level.factor.W));
    PetscCall(CSRDestroy(&level.factor.Wt));
    PetscCall(ArrayDestroy_CUDA(&level.factor.d));
    level.factor = CMATCHFactor{};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHFreeFactorWork(CMATCHHierarchyCUDA *H)
{
  PetscFunctionBegin;
  for (SFSAIWork &work : H->factor_work) {
    PetscCall(ArrayDestroy_CUDA(&work.data));
    work = SFSAIWork{};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
