/* CUDA twin of src/pc/cmatch/cmatch_fsai_host.cxx: the factors of the smoothers sfsai and afsai. The cycle applies them. */
#include <cmath>

#include <cub/cub.cuh>

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

/* The entries of own columns of each row, the diagonal included, and 0 behind the rows. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize) CountOwn(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, LocalInt *count)
{
  const long long row = GridThread();
  if (row > n) return;
  LocalInt own = 0;
  if (row < n) { /* columns ascend */
    own = A_i[row + 1] - A_i[row];
    while (own > 0 && A_j[A_i[row] + own - 1] >= n) own--;
    own++;
  }
  count[row] = own;
}

/* The row starts of a level on one rank with its diagonal. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize) ShiftStarts(LocalInt n, const LocalInt *A_i, LocalInt *i)
{
  const long long row = GridThread();
  if (row <= n) i[row] = A_i[row] + (LocalInt)row;
}

/* A level, of whose rows some are `alone`, and what its diagonal is multiplied by. */
template <typename T>
struct ScaledRows {
  LocalInt             n;
  const LocalInt      *A_i, *A_j;
  const T             *A_a, *s, *d;
  const unsigned char *alone;
  double               scale;
};

template <typename T>
ScaledRows<T> ScaledRowsOf(const CMATCHLevel &L, const unsigned char *alone, double scale)
{
  return {L.n, L.A_i, L.A_j, (const T *)L.A_a, (const T *)L.s, (const T *)L.d, alone, scale};
}

/*
   The rows of a level with the diagonal times `scale`, but without columns of ghosts, and the longest row of the lower triangle. A
   group takes a row.
*/
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  ExpandRows(ScaledRows<T> L, const LocalInt *i, LocalInt *j, double *a, LocalInt *longest)
{
  const LocalInt row   = (LocalInt)(GridThread() / kGroup);
  const int      lane  = threadIdx.x % kGroup;
  const bool     mine  = row < L.n;
  const LocalInt begin = mine ? L.A_i[row] : 0, end = mine ? L.A_i[row + 1] : 0, first = mine ? i[row] : 0;
  LocalInt       lower  = 0;
  double         others = 0;
  for (LocalInt k = begin + lane; k < end; k += kGroup) {
    const LocalInt column = L.A_j[k], to = first + k - begin + (column > row);
    const double   value = (double)L.A_a[k];
    lower += column < row;
    others += value;
    if (column >= L.n) continue;
    j[to] = column;
    a[to] = L.alone[column] ? 0. : value;
  }
  lower  = GroupSum<kGroup>(lower);
  others = GroupSum<kGroup>(others);
  if (mine && lane == 0) {
    const LocalInt to       = first + lower;
    const double   diagonal = (double)L.s[row] - others;
    j[to]                   = row;
    a[to]                   = (diagonal > 0 ? diagonal : (double)L.d[row]) * L.scale;
  }
  lower = GroupMax<kWarpSize>(lower);
  if (threadIdx.x % kWarpSize == 0) atomicMax(longest, lower + 1);
}

/*
   y = A x for the same matrix of a level on several ranks, with columns of ghosts, from the level itself. `alone` and x have
   entries of ghosts, too. A group takes a row.
*/
template <typename T>
__global__ void __launch_bounds__(kBlockSize) MultiplyRows(ScaledRows<T> L, const double *x, double *y)
{
  const LocalInt row   = (LocalInt)(GridThread() / kGroup);
  const int      lane  = threadIdx.x % kGroup;
  const bool     mine  = row < L.n;
  const LocalInt begin = mine ? L.A_i[row] : 0, end = mine ? L.A_i[row + 1] : 0;
  double         others = 0, sum = 0;
  for (LocalInt k = begin + lane; k < end; k += kGroup) {
    const LocalInt column = L.A_j[k];
    const double   value  = (double)L.A_a[k];
    others += value;
    sum += L.alone[column] ? 0. : value * x[column];
  }
  others = GroupSum<kGroup>(others);
  sum    = GroupSum<kGroup>(sum);
  if (!mine || lane != 0) return;
  const double diagonal = (double)L.s[row] - others;
  y[row]                = (diagonal > 0 ? diagonal : (double)L.d[row]) * L.scale * x[row] + sum;
}

/* Flags of rows as numbers that are exchanged, and back. A thread takes an entry. */
__global__ void __launch_bounds__(kBlockSize) PackAlone(LocalInt n, const unsigned char *alone, double *x)
{
  const long long i = GridThread();
  if (i < n) x[i] = alone[i];
}

__global__ void __launch_bounds__(kBlockSize) UnpackAlone(LocalInt ghosts, const double *x, unsigned char *alone)
{
  const long long i = GridThread();
  if (i < ghosts) alone[i] = x[i] != 0;
}

/* The vector of which A makes the residual at the beginning; `first` is the number of the first row. A thread takes an entry. */
__global__ void __launch_bounds__(kBlockSize) BeginVector(LocalInt n, long long first, const double *inverse_psi, double *x)
{
  const long long i = GridThread(), row = first + i;
  if (i < n) x[i] = (double)(int)CMATCHMix(CMATCHSeed(row), CMATCHSeed(row + 7)) * 0x1p-31 * sqrt(inverse_psi[i]);
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

/* The same two with scalars that the host knows. */
__global__ void __launch_bounds__(kBlockSize) AddResidual(LocalInt n, double alpha, const double *q, double *r)
{
  const long long i = GridThread();
  if (i < n) r[i] -= alpha * q[i];
}

__global__ void __launch_bounds__(kBlockSize) AddDirection(LocalInt n, bool first, double beta, const double *z, double *p)
{
  const long long i = GridThread();
  if (i < n) p[i] = first ? z[i] : z[i] + beta * p[i];
}

/* The diagonal matrix between the factors, from 1 / psi. A thread takes an entry. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  ScaleDiagonal(LocalInt n, const double *inverse_psi, const unsigned char *alone, const T *l, double omega, T *scaled)
{
  const long long i = GridThread();
  if (i < n) scaled[i] = alone[i] ? l[i] : (T)(omega * inverse_psi[i]);
}

/* -------------------------------------------- steps ------------------------------------------- */

/* A level as a matrix with its diagonal, and the vectors of its set-up. */
struct Expanded {
  CSR            matrix;        /* of the rank's own columns, in the arena */
  LocalInt       longest;       /* the most entries of a row of the lower triangle */
  unsigned char *alone;         /* [n] */
  double        *d;             /* [n] 1 / psi */
  double        *r, *z, *p, *q; /* [n] of the conjugate gradient method */
  double        *partial;       /* [kSums][kSumBlocks] */

  CSRView View() const { return {matrix.rows, matrix.nnz, matrix.i, matrix.j, (const double *)matrix.a, PETSC_MEMTYPE_CUDA}; }
};

double DiagonalScale(const CMATCHParams &params)
{
  return params.singular ? 1 + kCMATCHFactorShift : 1;
}

/* Where rows without columns of ghosts begin, on several ranks. */
PetscErrorCode CountOwnEntries(CMATCHSetup *s, LocalInt level)
{
  const CMATCHLevel &L     = s->H->level[level];
  CMATCHLevelCUDA   &of    = s->H->device[level];
  const auto         mark  = s->arena.mark();
  LocalInt          *count = nullptr;

  PetscFunctionBegin;
  PetscCall(s->arena.Take((size_t)L.n + 1, &count));
  CountOwn<<<BlocksFor((long long)L.n + 1), kBlockSize, 0, s->stream>>>(L.n, L.A_i, L.A_j, count);
  FinePCCheckLaunch();
  PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, count, of.own_i, L.n + 1, s->stream);
  }));
  PetscCall(ArrayCopy_CUDA(&of.own_nnz, of.own_i + L.n, sizeof(of.own_nnz), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Row starts, `alone` and d are in the arena on one rank, and with the level on several ranks, which need them later. */
template <typename T>
PetscErrorCode Expand(CMATCHSetup *s, LocalInt level, Expanded *A)
{
  const CMATCHLevel     &L       = s->H->level[level];
  const CMATCHLevelCUDA &shared  = s->H->device[level];
  const bool             several = level < s->H->several;
  const LocalInt         n       = L.n;
  CMATCHArena           &arena   = s->arena;
  LocalInt              *longest = nullptr;
  double                *a       = nullptr;

  PetscFunctionBegin;
  *A            = Expanded{};
  A->matrix     = CSR{n, n, 0, nullptr, nullptr, nullptr, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA};
  A->matrix.nnz = several ? shared.own_nnz : L.nnz + n;
  if (several) {
    A->matrix.i = shared.own_i;
    A->alone    = shared.alone;
    A->d        = shared.inverse_psi;
  } else {
    PetscCall(arena.Take((size_t)n + 1, &A->matrix.i));
    ShiftStarts<<<BlocksFor((long long)n + 1), kBlockSize, 0, s->stream>>>(n, L.A_i, A->matrix.i);
    FinePCCheckLaunch();
    PetscCall(arena.Take(n, &A->alone));
    for (double **vector : {&A->d, &A->r, &A->z, &A->p, &A->q}) PetscCall(arena.Take(n, vector));
    PetscCall(arena.Take((size_t)kSums * kSumBlocks, &A->partial));
  }
  PetscCall(arena.Take(A->matrix.nnz, &A->matrix.j));
  PetscCall(arena.Take(A->matrix.nnz, &a));
  PetscCall(arena.Take(1, &longest));
  A->matrix.a = a;
  PetscCallCUDA(cudaMemsetAsync(longest, 0, sizeof(*longest), s->stream));
  MarkAlone<T><<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, L.A_i, (const T *)L.A_a, (const T *)L.d, A->alone);
  ExpandRows<T>
    <<<BlocksFor((long long)n * kGroup), kBlockSize, 0, s->stream>>>(ScaledRowsOf<T>(L, A->alone, DiagonalScale(*s->params)),
                                                                     A->matrix.i, A->matrix.j, a, longest);
  FinePCCheckLaunch();
  PetscCallCUDA(cudaMemcpyAsync(&A->longest, longest, sizeof(*longest), cudaMemcpyDeviceToHost, s->stream));
  PetscCallCUDA(cudaStreamSynchronize(s->stream));
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
  BeginVector<<<BlocksFor(n), kBlockSize, 0, stream>>>(n, 0, A.d, A.q);
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

/* Gives the factor of a level its scale, or tells the failure. */
template <typename T>
PetscErrorCode ScaleLevel(CMATCHSetup *s, LocalInt level, double lambda, const double *inverse_psi, const unsigned char *alone)
{
  const CMATCHLevel &L = s->H->level[level];

  PetscFunctionBegin;
  if (!(lambda > 0) || !std::isfinite(lambda))
    s->seen.failure = PetscMin(s->seen.failure, CMATCHFailureKey(kCMATCHStageCoarse + (int)level, 0, CMATCH_DIAGONAL_NOT_POSITIVE));
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  ScaleDiagonal<T><<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(L.n, inverse_psi, alone, (const T *)L.l,
                                                                 1 / (kCMATCHFactorMargin * lambda), (T *)L.factor.d);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a level on several ranks keeps for its factor and its scale. */
PetscErrorCode TakeShared(CMATCHSetup *s, LocalInt level)
{
  CMATCHHierarchyCUDA *H  = s->H;
  const CMATCHLevel   &L  = H->level[level];
  CMATCHLevelCUDA     &of = H->device[level];
  Layout               layout;

  PetscFunctionBegin;
  layout.Place(&of.inverse_psi, L.n);
  layout.Place(&of.alone, (size_t)L.n + L.ghosts);
  layout.Place(&of.own_i, (size_t)L.n + 1);
  H->memory.emplace_back(&H->meter);
  PetscCall(layout.Allocate(&H->memory.back()));
  if (L.n) PetscCall(CountOwnEntries(s, level));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The factor of a level, without its scale if the level is on several ranks. Sets the failure if there is none. */
template <typename T>
PetscErrorCode FactorLevel(CMATCHSetup *s, LocalInt level, bool keep)
{
  const CMATCHLevel &L       = s->H->level[level];
  const bool         several = level < s->H->several;
  const auto         mark    = s->arena.mark();
  double             lambda  = 0;
  Expanded           A;

  PetscFunctionBegin;
  if (several && !keep) PetscCall(TakeShared(s, level));
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Expand<T>(s, level, &A));
  PetscCall(CMATCHMakeFactor(s, level, A.View(), A.longest, A.d, keep));
  if (!several && !CMATCHHasFailed(s)) {
    PetscCall(LargestEigenvalue(A, L.factor, s->stream, &lambda));
    PetscCall(ScaleLevel<T>(s, level, lambda, A.d, A.alone));
  }
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------------- several ranks --------------------------------------- */

/* lambda of a level on several ranks, which all of them find together. The host reads each sum. */
template <typename T>
class SharedEstimate {
public:
  SharedEstimate(CMATCHSetup *s, LocalInt level, const CMATCHScaleWork &work) :
      s_(s), L_(s->H->level[level]), of_(s->H->device[level]), work_(work)
  {
  }

  PetscErrorCode Run(PetscReal *lambda)
  {
    constexpr LocalInt steps = kCMATCHFactorIterations;
    const LocalInt     n     = L_.n;
    const CSR         &W = L_.factor.W, &Wt = L_.factor.Wt;
    double *const r = work_.r, *const z = work_.z, *const p = work_.p, *const q = work_.q;
    PetscReal rz[steps + 1] = {}, pq[steps] = {};

    PetscFunctionBegin;
    PetscCall(FindAlone());
    if (n) {
      BeginVector<<<BlocksFor(n), kBlockSize, 0, s_->stream>>>(n, L_.first, of_.inverse_psi, q);
      FinePCCheckLaunch();
    }
    PetscCall(Multiply(q, r));
    for (LocalInt step = 0;; step++) {
      if (n) {
        PetscCall(CSRMultiply_CUDA(&W, PETSC_TRUE, of_.inverse_psi, 1, r, n, q, n));
        PetscCall(CSRMultiply_CUDA(&Wt, PETSC_TRUE, nullptr, 1, q, n, z, n));
      }
      PetscCall(Sum(r, z, &rz[step]));
      if (step == steps || !(rz[step] > 0)) break;
      if (n) {
        AddDirection<<<BlocksFor(n), kBlockSize, 0, s_->stream>>>(n, !step, step ? rz[step] / rz[step - 1] : 0, z, p);
        FinePCCheckLaunch();
      }
      PetscCall(Multiply(p, q));
      PetscCall(Sum(p, q, &pq[step]));
      if (!(pq[step] > 0)) break;
      if (n) {
        AddResidual<<<BlocksFor(n), kBlockSize, 0, s_->stream>>>(n, rz[step] / pq[step], q, r);
        FinePCCheckLaunch();
      }
    }
    *lambda = LargestRitzValue(steps, rz, pq);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* Which ghosts are alone */
  PetscErrorCode FindAlone()
  {
    PetscFunctionBegin;
    if (L_.n) {
      PackAlone<<<BlocksFor(L_.n), kBlockSize, 0, s_->stream>>>(L_.n, of_.alone, work_.p);
      FinePCCheckLaunch();
    }
    PetscCall(CMATCHHaloBegin(L_, MPI_DOUBLE, work_.p));
    PetscCall(CMATCHHaloEnd(L_, MPI_DOUBLE, work_.p));
    if (!L_.ghosts) PetscFunctionReturn(PETSC_SUCCESS);
    UnpackAlone<<<BlocksFor(L_.ghosts), kBlockSize, 0, s_->stream>>>(L_.ghosts, work_.p + L_.n, of_.alone + L_.n);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* y = A x, for which x gets the entries of ghosts */
  PetscErrorCode Multiply(double *x, double *y)
  {
    PetscFunctionBegin;
    PetscCall(CMATCHHaloBegin(L_, MPI_DOUBLE, x));
    PetscCall(CMATCHHaloEnd(L_, MPI_DOUBLE, x));
    if (!L_.n) PetscFunctionReturn(PETSC_SUCCESS);
    MultiplyRows<T><<<BlocksFor((long long)L_.n * kGroup), kBlockSize, 0, s_->stream>>>(ScaledRowsOf<T>(L_, of_.alone,
                                                                                                        DiagonalScale(*s_->params)),
                                                                                        x, y);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* x . y of all ranks, whose parts are summed up in the order of the blocks */
  PetscErrorCode Sum(const double *x, const double *y, double *sum)
  {
    const int blocks = PetscMin(kSumBlocks, BlocksFor(L_.n));
    double    parts[kSumBlocks];

    PetscFunctionBegin;
    *sum = 0;
    if (L_.n) {
      SumProducts<<<blocks, kBlockSize, 0, s_->stream>>>(L_.n, x, y, work_.partial);
      FinePCCheckLaunch();
      PetscCallCUDA(cudaMemcpyAsync(parts, work_.partial, blocks * sizeof(double), cudaMemcpyDeviceToHost, s_->stream));
      PetscCallCUDA(cudaStreamSynchronize(s_->stream));
      for (int block = 0; block < blocks; block++) *sum += parts[block];
    }
    PetscCall(CMATCHReduce(L_, MPI_SUM, sum));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHSetup           *s_;
  const CMATCHLevel     &L_;
  const CMATCHLevelCUDA &of_;
  const CMATCHScaleWork &work_;
};

} // namespace

PetscErrorCode CMATCHMakeFactor(CMATCHSetup *s, LocalInt level, const CSRView &A, LocalInt longest, double *d, bool keep)
{
  CMATCHFactor   *factor = &s->H->level[level].factor;
  const PetscBool kept   = keep ? PETSC_TRUE : PETSC_FALSE;
  FSAIStats       made{};

  PetscFunctionBegin;
  if (s->params->smoother == PC_CMATCH_SFSAI) {
    SFSAIParams params;
    params.power           = 1;
    params.setup_precision = params.factor_precision = s->params->precision;
    if (longest > kCMATCHFactorLargestRow) params.max_row = kCMATCHFactorLargestRow;
    PetscCall(SFSAIComputeFactor_CUDA({&A, 0, nullptr}, &params, kept, &factor->W, d, &s->H->factor_work[level], &made));
  } else {
    AFSAIParams params;
    params.setup_precision = params.factor_precision = s->params->precision;
    PetscCall(AFSAIComputeFactor_CUDA(&A, 0, nullptr, &params, kept, &factor->W, d, &made));
  }
  s->stats->work_bytes = PetscMax(s->stats->work_bytes, made.work_bytes);
  if (made.failure) {
    s->seen.failure =
      PetscMin(s->seen.failure, CMATCHFailureKey(kCMATCHStageCoarse + (int)level, made.failure_row, CMATCH_DIAGONAL_NOT_POSITIVE));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!keep) {
    factor->capped_rows = made.capped_rows;
    PetscCall(ArrayCreate_CUDA(A.n * FinePCPrecisionBytes(s->params->precision), &factor->d));
  }
  factor->diagonal_rows = made.diagonal_rows;
  PetscCall(CSRTranspose_CUDA(&factor->W, kept, &factor->Wt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHFactorSmoothers(CMATCHSetup *s, bool keep)
{
  CMATCHHierarchyCUDA *H        = s->H;
  const LocalInt       smoothed = H->end == CMATCH_END_DOMINATED ? H->levels : H->levels - 1;

  PetscFunctionBegin;
  if (!CMATCHHasFactors(*s->params)) PetscFunctionReturn(PETSC_SUCCESS);
  for (LocalInt level = 0; level < PetscMax(smoothed, H->several) && s->seen.failure == ~0ull; level++) {
    if (level < H->several && H->level[level].transfer == CMATCH_PASSED) continue;
    PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) { return FactorLevel<decltype(zero)>(s, level, keep); }));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHTakeScaleWork(CMATCHSetup *s, CMATCHScaleWork *work)
{
  const CMATCHHierarchyCUDA *H    = s->H;
  size_t                     most = 0;

  PetscFunctionBegin;
  if (!CMATCHHasFactors(*s->params)) PetscFunctionReturn(PETSC_SUCCESS);
  for (LocalInt level = 0; level < H->several; level++) most = PetscMax(most, (size_t)H->level[level].n + H->level[level].ghosts);
  for (double **vector : {&work->r, &work->z, &work->p, &work->q}) PetscCall(s->arena.Take(most, vector));
  PetscCall(s->arena.Take(kSumBlocks, &work->partial));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHScaleFactor(CMATCHSetup *s, LocalInt level, const CMATCHScaleWork &work)
{
  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    using T = decltype(zero);
    PetscReal lambda;
    PetscFunctionBegin;
    PetscCall(SharedEstimate<T>(s, level, work).Run(&lambda));
    PetscCall(ScaleLevel<T>(s, level, lambda, s->H->device[level].inverse_psi, s->H->device[level].alone));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
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
