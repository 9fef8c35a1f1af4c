/* The hierarchy of nodes on the GPU: the inverses of diagonal blocks, factors, and the estimates of the largest eigenvalues. */
#include <cmath>

#include <cub/cub.cuh>

#include "cmatch_fsai.cuh"
#include "cmatch_nodes_rows.cuh"

namespace
{

constexpr LocalInt kSteps     = kCMATCHNodesIterations;
constexpr int      kSumBlocks = 2048;           /* of sums over vectors, at most */
constexpr int      kSums      = 2 * kSteps + 1; /* the rz and pq of LargestRitzValue(), in turns */
static_assert(kSums <= kCMATCHEstimateSums);

/* ------------------------------------------ diagonals ----------------------------------------- */

struct Diagonals {
  LocalInt             n, k;
  const LocalInt      *A_i, *A_j;
  const double        *A;
  const unsigned char *alone;
  double              *inverse, *diagonal;
  LocalInt             level;
  bool                 finest;
};

/* D^{-1}, and the magnitudes of diagonal entries. A thread takes a node. */
template <int K>
__global__ void __launch_bounds__(kBlockSize) InvertDiagonals(Diagonals d, CMATCHReport *report)
{
  const LocalInt  k      = K ? K : d.k;
  const long long at     = GridThread();
  bool            raised = false;
  if (at < d.n) {
    const LocalInt      i       = (LocalInt)at;
    const double *const a       = d.A + (size_t)CMATCHFindBlock(d.A_i, d.A_j, i, i) * k * k;
    double *const       inverse = d.inverse + (size_t)i * k * k;
    for (LocalInt r = 0; r < k; r++) d.diagonal[(size_t)i * k + r] = fabs(a[r * k + r]);
    if (d.finest) {
      if (CMATCHInvertDiagonal(k, a, d.alone[i], 0, inverse) >= 0)
        atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageCoarse + d.level, i, CMATCH_BLOCK_NOT_POSITIVE));
    } else {
      double block[kCMATCHMostModes * kCMATCHMostModes];
      for (LocalInt e = 0; e < k * k; e++) block[e] = a[e];
      raised = CMATCHInvertCoarseDiagonal(k, block, d.alone[i], inverse);
    }
  }
  const int count = __syncthreads_count(raised), whole = __syncthreads_count(at < d.n && d.alone[at] == (1u << k) - 1);
  if (count && threadIdx.x == 0) atomicAdd(&report->raised, count);
  if (whole && threadIdx.x == 0) atomicAdd(&report->whole, whole);
}

/* M^{-1}. A thread takes an entry. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  ScaleInverses(long long entries, LocalInt k, const double *inverse, const unsigned char *alone, double root, double divisor, T *D)
{
  const long long at = GridThread();
  if (at >= entries) return;
  const LocalInt entry = (LocalInt)(at % (k * k)), r = entry / k;
  const bool     own = entry % k == r && (alone[at / (k * k)] >> r & 1);
  D[at]              = (T)(own ? root * inverse[at] : inverse[at] / divisor);
}

/* ------------------------------------------- factors ------------------------------------------ */

constexpr int kRowGroup = 8; /* lanes of a row */

/* The blocks of own columns of each node, and 0 behind the nodes. A thread takes a node. */
__global__ void __launch_bounds__(kBlockSize) CountOwn(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, LocalInt *count)
{
  const long long i   = GridThread();
  LocalInt        own = 0;
  if (i > n) return;
  if (i < n) { /* columns ascend */
    own = A_i[i + 1] - A_i[i];
    while (A_j[A_i[i] + own - 1] >= n) own--;
  }
  count[i] = own;
}

/* A level, of which begin [n + 1] says where the own blocks of nodes begin */
struct Blocks {
  LocalInt             n, k;
  const LocalInt      *A_i, *A_j, *begin;
  const double        *A, *inverse;
  const unsigned char *alone;
};

/* The rows of which the factor is made, and the longest row of the lower triangle. A group takes a row. */
__global__ void __launch_bounds__(kBlockSize) ExpandBlocks(Blocks L, LocalInt *i, LocalInt *j, double *a, LocalInt *longest)
{
  const long long group = GridThread() / kRowGroup, rows = (long long)L.n * L.k;
  const int       lane  = threadIdx.x % kRowGroup;
  const LocalInt  k     = L.k;
  LocalInt        lower = 0;
  if (group < rows) {
    const LocalInt row = (LocalInt)group, node = row / k, r = row % k, own = L.begin[node + 1] - L.begin[node];
    const LocalInt first = L.begin[node] * k * k + r * own * k;
    for (LocalInt e = lane; e < own * k; e += kRowGroup) {
      const LocalInt block = L.A_i[node] + e / k, c = e % k, node_of = L.A_j[block], column = node_of * k + c;
      double         value = L.A[((size_t)block * k + r) * k + c];
      if (column == row) value = (value > 0 ? value : 1 / L.inverse[(size_t)row * k + r]) * (1 + kCMATCHFactorShift);
      else if (L.alone[node_of] >> c & 1) value = 0;
      j[first + e] = column;
      a[first + e] = value;
      lower += column <= row;
    }
    if (lane == 0) i[row] = first;
  } else if (group == rows && lane == 0) i[rows] = L.begin[L.n] * k * k;
  lower = GroupSum<kRowGroup>(lower);
  lower = GroupMax<kWarpSize>(lower);
  if (threadIdx.x % kWarpSize == 0) atomicMax(longest, lower);
}

/* psi from d = 1 / psi. A thread takes an unknown. */
__global__ void __launch_bounds__(kBlockSize) TakePsi(LocalInt n, const double *d, double *psi)
{
  const long long u = GridThread();
  if (u < n) psi[u] = 1 / d[u];
}

/* The diagonal matrix between the factors. A thread takes an unknown. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) ScaleFactor(LocalInt n, LocalInt k, const double *d, const double *inverse,
                                                          const unsigned char *alone, double root, double divisor, T *scaled)
{
  const long long u = GridThread();
  if (u < n) scaled[u] = (T)(alone[u / k] >> u % k & 1 ? root * inverse[u * k + u % k] : d[u] / divisor);
}

/* ------------------------------------------ estimate ------------------------------------------ */

/* The sum over the block, which its first thread gets */
__device__ __forceinline__ double BlockSum(double sum)
{
  __shared__ double part[kCMATCHSliceThreads / kWarpSize];
  sum = GroupSum<kWarpSize>(sum);
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) part[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < (int)blockDim.x / kWarpSize; w++) sum += part[w];
  return sum;
}

/* The quotient of the sums of some parts, which every thread of the block gets */
__device__ __forceinline__ double Quotient(int blocks, const double *above, const double *below)
{
  __shared__ double quotient;
  double            x = 0, y = 0;
  for (int b = threadIdx.x; b < blocks; b += kBlockSize) {
    x += above[b];
    y += below[b];
  }
  x = BlockSum(x);
  y = BlockSum(y);
  if (threadIdx.x == 0) quotient = x / y;
  __syncthreads();
  return quotient;
}

/* Sums of kSumBlocks parts. A block takes a sum. */
__global__ void __launch_bounds__(kBlockSize) SumParts(const double *parts, double *sums)
{
  const double *const own  = parts + (size_t)blockIdx.x * kSumBlocks;
  double              mine = 0;
  for (int part = threadIdx.x; part < kSumBlocks; part += kBlockSize) mine += own[part];
  mine = BlockSum(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = mine;
}

/* The vector of which A makes the residual at the beginning; `first` is the number of the first unknown. A thread takes an entry.
 */
template <typename X>
__global__ void __launch_bounds__(kBlockSize)
  BeginVector(LocalInt n, LocalInt k, long long first, const double *diagonal, const unsigned char *alone, X *x)
{
  const long long u = GridThread(), number = first + u;
  if (u >= n) return;
  const double h = (double)(int)CMATCHMix(CMATCHSeed(number), CMATCHSeed(number + 7)) * 0x1p-31;
  x[u]           = (X)((alone[u / k] >> u % k & 1) || !(diagonal[u] > 0) ? 0 : h / sqrt(diagonal[u]));
}

/* y = A x, in the precision of x, and the parts of x . y. Blocks take slices in turns. */
template <typename T, int K, typename X>
__global__ void __launch_bounds__(kCMATCHSliceThreads)
  MultiplyVector(CMATCHSlices<T> A, const X *__restrict__ x, double *y, double *partial)
{
  __shared__ X part[kCMATCHSliceThreads];
  double       sum = 0;
  for (LocalInt slice = (LocalInt)blockIdx.x; slice * kCMATCHSlice < A.n; slice += (LocalInt)gridDim.x) {
    CMATCHSliceRow<T, K> row(A, slice);
    const double         product = (double)row.AddUp(row.Multiply(x), part);
    if (row.mine) {
      y[row.u] = product;
      sum += (double)x[row.u] * product;
    }
    __syncthreads(); /* the parts have been read */
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* The vectors of the conjugate gradient method */
struct Vectors {
  double *r, *z, *p, *q;
};

/*
   r = r - rz / pq q, or r as it is without pq; z = D^{-1} r, and the parts of r . z, unless there is no D^{-1}. Threads take nodes
   in turns.
*/
template <int K>
__global__ void __launch_bounds__(kBlockSize)
  StepResidual(LocalInt n, LocalInt known_k, const double *inverse, const double *rz, const double *pq, Vectors v, double *partial)
{
  const LocalInt      k     = K ? K : known_k;
  const double        alpha = pq ? Quotient(kSumBlocks, rz, pq) : 0;
  const double *const q     = v.q;
  double *const r = v.r, *const z = v.z;
  double sum = 0;
  for (long long i = GridThread(); i < n; i += (long long)gridDim.x * kBlockSize) {
    double own[K ? K : kCMATCHMostModes];
    for (LocalInt p = 0; p < k; p++) {
      own[p] = r[i * k + p] - (pq ? alpha * q[i * k + p] : 0);
      if (pq) r[i * k + p] = own[p];
    }
    if (!inverse) continue;
    for (LocalInt p = 0; p < k; p++) {
      double product = 0;
      for (LocalInt c = 0; c < k; c++) product += inverse[(i * k + p) * k + c] * own[c];
      z[i * k + p] = product;
      sum += own[p] * product;
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* p = z + rz / rz_before p, or p = z without rz_before; `rounded` gets it, too, if it is another array. A thread takes an entry. */
template <typename X>
__global__ void __launch_bounds__(kBlockSize)
  StepDirection(LocalInt n, const double *rz, const double *rz_before, const double *z, double *p, X *rounded)
{
  const long long u    = GridThread();
  const double    beta = rz_before ? Quotient(kSumBlocks, rz, rz_before) : 0;
  if (u >= n) return;
  const double p_u = rz_before ? z[u] + beta * p[u] : z[u];
  p[u]             = p_u;
  if ((void *)rounded != p) rounded[u] = (X)p_u;
}

/* The parts of x . y. Threads take entries in turns. */
__global__ void __launch_bounds__(kBlockSize) SumProducts(LocalInt n, const double *x, const double *y, double *partial)
{
  double sum = 0;
  for (long long u = GridThread(); u < n; u += (long long)gridDim.x * kBlockSize) sum += x[u] * y[u];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* What the kernel StepResidual does, with D^{-1}, or with the level's factor and its d = 1 / psi. */
template <int K>
PetscErrorCode LaunchResidual(const CMATCHNodesSetup *t, const double *d, const double *rz, const double *pq, const Vectors &v,
                              double *partial)
{
  const CMATCHNodesLevel &L      = t->Level();
  const CMATCHFactor     &factor = t->Ranks().factor;
  const LocalInt          n      = L.n * L.k;
  const int               blocks = PetscMin(kSumBlocks, BlocksFor(L.n));
  const cudaStream_t      stream = t->s->stream;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  StepResidual<K><<<blocks, kBlockSize, 0, stream>>>(L.n, L.k, d ? nullptr : t->inverse, rz, pq, v, partial);
  FinePCCheckLaunch();
  if (!d) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CSRMultiply_CUDA(&factor.W, PETSC_TRUE, d, 1, v.r, n, v.q, n));
  PetscCall(CSRMultiply_CUDA(&factor.Wt, PETSC_TRUE, nullptr, 1, v.q, n, v.z, n));
  SumProducts<<<blocks, kBlockSize, 0, stream>>>(n, v.r, v.z, partial);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The estimate, with the operator of the cycle, whose values are rounded to T, as the vectors that it multiplies;
   CMATCHRoundEstimate() leaves no trace of that. The host reads nothing before the last step.
*/
template <typename T, int K>
PetscErrorCode LargestEigenvalue(CMATCHNodesSetup *t, const double *d, PetscReal *lambda)
{
  CMATCHSetup            *s = t->s;
  const CMATCHNodesLevel &L = t->Level();
  const CMATCHSlices<T>   A(L);
  const LocalInt          n    = L.n * L.k;
  const auto              mark = s->arena.mark();
  const int    product_blocks = PetscMin(kSumBlocks, CMATCHSliceCount(L.n)), threads = CMATCHSliceBlock(L, s->H->processors);
  const size_t parts             = (size_t)kSums * kSumBlocks;
  PetscReal    of_rz[kSteps + 1] = {}, of_pq[kSteps] = {};
  Vectors      v{};
  double      *partial = nullptr;
  T           *x       = nullptr;

  PetscFunctionBegin;
  for (double **vector : {&v.r, &v.z, &v.p, &v.q}) PetscCall(s->arena.Take(n, vector));
  if constexpr (std::is_same_v<T, double>) x = v.p;
  else PetscCall(s->arena.Take(n, &x));
  PetscCall(s->arena.Take(parts, &partial));
  PetscCallCUDA(cudaMemsetAsync(partial, 0, parts * sizeof(double), s->stream));
  const auto rz = [&](LocalInt step) { return step < 0 ? nullptr : partial + 2 * step * kSumBlocks; };
  const auto pq = [&](LocalInt step) { return step < 0 ? nullptr : partial + (2 * step + 1) * kSumBlocks; };
  BeginVector<<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, L.k, 0, t->diagonal, t->alone, x);
  MultiplyVector<T, K><<<product_blocks, threads, 0, s->stream>>>(A, x, v.r, pq(0));
  for (LocalInt step = 0;; step++) {
    PetscCall(LaunchResidual<K>(t, d, rz(step - 1), pq(step - 1), v, rz(step)));
    if (step == kSteps) break;
    StepDirection<<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, rz(step), rz(step - 1), v.z, v.p, x);
    MultiplyVector<T, K><<<product_blocks, threads, 0, s->stream>>>(A, x, v.q, pq(step));
    FinePCCheckLaunch();
  }
  SumParts<<<kSums, kBlockSize, 0, s->stream>>>(partial, s->report->sums);
  FinePCCheckLaunch();
  PetscCall(CMATCHReadReport(s));
  for (LocalInt sum = 0; sum < kSums; sum++) (sum % 2 ? of_pq : of_rz)[sum / 2] = s->seen.sums[sum];
  *lambda = CMATCHNodesLargest(d, kSteps, of_rz, of_pq);
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The same of all ranks of the level, by steps between which they exchange entries and sum up. What the kernels take for the parts
   of a sum is the sum of all ranks then, and zeros. With NCCL the host reads nothing before the last step.
*/
template <typename T, int K>
class EstimateOnRanks {
public:
  EstimateOnRanks(CMATCHNodesSetup *t, const CMATCHNodesVectors &v, MPI_Datatype node, const double *d) :
      t_(t), s_(t->s), L_(t->Level()), A_(t->Level()), v_(v), node_(node), d_(d), n_(L_.n * L_.k),
      nccl_(t->Ranks().halo->all ? t->Ranks().halo->nccl : nullptr)
  {
  }

  PetscErrorCode Run(PetscReal *lambda)
  {
    const long long first = (long long)t_->Ranks().first * L_.k;
    const Vectors   v{v_.r, v_.z, v_.p, v_.q};
    PetscReal       rz[kSteps + 1] = {}, pq[kSteps] = {};

    PetscFunctionBegin;
    if (n_) BeginVector<<<BlocksFor(n_), kBlockSize, 0, s_->stream>>>(n_, L_.k, first, t_->diagonal, t_->alone, v.q);
    PetscCall(Multiply(v.q, v.r, Part(1)));
    for (LocalInt step = 0;; step++) {
      const double *const above = step ? Part(2 * step - 2) : nullptr, *const below = step ? Part(2 * step - 1) : nullptr;
      PetscCallCUDA(cudaMemsetAsync(Part(2 * step), 0, kSumBlocks * sizeof(double), s_->stream));
      PetscCall(LaunchResidual<K>(t_, d_, above, below, v, Part(2 * step)));
      PetscCall(Sum(Part(2 * step), &rz[step]));
      if (step == kSteps || !(nccl_ || rz[step] > 0)) break;
      if (n_)
        StepDirection<<<BlocksFor(n_), kBlockSize, 0, s_->stream>>>(n_, Part(2 * step), step ? Part(2 * step - 2) : nullptr, v.z,
                                                                    v.p, v.p);
      FinePCCheckLaunch();
      PetscCall(Multiply(v.p, v.q, Part(2 * step + 1)));
      PetscCall(Sum(Part(2 * step + 1), &pq[step]));
      if (!(nccl_ || pq[step] > 0)) break;
    }
    if (nccl_) PetscCall(ReadSums(rz, pq));
    *lambda = CMATCHNodesLargest(d_, kSteps, rz, pq);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  double *Part(LocalInt sum) const { return v_.partial + (size_t)sum * kSumBlocks; }

  PetscErrorCode Multiply(double *x, double *y, double *partial)
  {
    PetscFunctionBegin;
    PetscCall(ExchangeBegin(t_->Ranks().halo, node_, x, x + n_));
    PetscCall(ExchangeEnd(t_->Ranks().halo, node_, x, x + n_));
    PetscCallCUDA(cudaMemsetAsync(partial, 0, kSumBlocks * sizeof(double), s_->stream));
    if (n_)
      MultiplyVector<T, K>
        <<<PetscMin(kSumBlocks, CMATCHSliceCount(L_.n)), CMATCHSliceBlock(L_, s_->H->processors), 0, s_->stream>>>(A_, x, y,
                                                                                                                   partial);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The sum of parts, over all ranks, which takes their place. */
  PetscErrorCode Sum(double *partial, PetscReal *sum)
  {
    double *const own = Part(kSums); /* behind the parts */

    PetscFunctionBegin;
    SumParts<<<1, kBlockSize, 0, s_->stream>>>(partial, own);
    FinePCCheckLaunch();
    PetscCallCUDA(cudaMemsetAsync(partial, 0, kSumBlocks * sizeof(*partial), s_->stream));
    if (nccl_) {
      PetscCall(NCCLSum(nccl_, own, partial, 1, s_->stream));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(ArrayCopy_CUDA(sum, own, sizeof(*sum), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscCall(CMATCHReduce(t_->Ranks(), MPI_SUM, sum));
    PetscCallCUDA(cudaMemcpyAsync(partial, sum, sizeof(*sum), cudaMemcpyHostToDevice, s_->stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The sums of all ranks, which are in the places of the parts */
  PetscErrorCode ReadSums(PetscReal rz[], PetscReal pq[])
  {
    double sums[kSums];

    PetscFunctionBegin;
    PetscCallCUDA(cudaMemcpy2DAsync(sums, sizeof(*sums), v_.partial, kSumBlocks * sizeof(*sums), sizeof(*sums), kSums,
                                    cudaMemcpyDeviceToHost, s_->stream));
    PetscCallCUDA(cudaStreamSynchronize(s_->stream));
    for (LocalInt sum = 0; sum < kSums; sum++) (sum % 2 ? pq : rz)[sum / 2] = sums[sum];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHNodesSetup         *t_;
  CMATCHSetup              *s_;
  const CMATCHNodesLevel   &L_;
  const CMATCHSlices<T>     A_;
  const CMATCHNodesVectors &v_;
  const MPI_Datatype        node_;
  const double *const       d_;
  const LocalInt            n_;
  NCCL *const               nccl_; /* adds up over all ranks of the level, or the host does */
};

/* Launches the inverses of the diagonal blocks. */
PetscErrorCode LaunchInvertDiagonals(CMATCHNodesSetup *t)
{
  CMATCHSetup            *s = t->s;
  const CMATCHNodesLevel &L = t->Level();
  const Diagonals         d{L.n, L.k, L.A_i, L.A_j, t->A, t->alone, t->inverse, t->diagonal, t->level, !t->Kind()};

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(&s->report->raised, 0, 2 * sizeof(LocalInt), s->stream)); /* and whole */
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHForUnknowns(L.k, [&](auto k) {
    PetscFunctionBegin;
    InvertDiagonals<k><<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(d, s->report);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The estimate of a level on one rank, or on several, whose vectors are given; with d of the level's factor. */
PetscErrorCode Estimate(CMATCHNodesSetup *t, const CMATCHNodesVectors *v, MPI_Datatype node, const double *d, PetscReal *lambda)
{
  PetscFunctionBegin;
  PetscCall(CMATCHForUnknowns(t->Level().k, [&](auto k) {
    return CMATCHWithPrecision(t->s->params->precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      if (v) PetscCall((EstimateOnRanks<T, k>(t, *v, node, d).Run(lambda)));
      else PetscCall((LargestEigenvalue<T, k>(t, d, lambda)));
      PetscFunctionReturn(PETSC_SUCCESS);
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether an estimate is one. */
void CheckEstimate(CMATCHNodesSetup *t, PetscReal lambda)
{
  if (!(lambda > 0) || !std::isfinite(lambda))
    t->s->seen.failure = CMATCHFailureKey(kCMATCHStageCoarse + (int)t->level, 0, CMATCH_BLOCK_NOT_POSITIVE);
}

} // namespace

PetscErrorCode CMATCHNodesSmoother(CMATCHNodesSetup *t, const PolynomialSteps &steps)
{
  CMATCHSetup      *s = t->s;
  CMATCHNodesLevel &L = t->Level();

  PetscFunctionBegin;
  PetscCall(s->arena.Take((size_t)L.n * L.k * L.k, &t->inverse));
  if (t->level) PetscCall(s->arena.Take((size_t)L.n * L.k, &t->diagonal));
  PetscCall(LaunchInvertDiagonals(t));
  PetscCall(Estimate(t, nullptr, MPI_DATATYPE_NULL, nullptr, &L.lambda));
  if (CMATCHHasFailed(s)) PetscFunctionReturn(PETSC_SUCCESS);
  L.raised = s->seen.raised;
  if (s->seen.whole == L.n) L.lambda = 1;
  CheckEstimate(t, L.lambda);
  if (!CMATCHHasFailed(s)) PetscCall(CMATCHNodesScaleInverses(t, steps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesInvertDiagonals(CMATCHNodesSetup *t, CMATCHNodesVectors *v)
{
  CMATCHSetup      *s = t->s;
  CMATCHNodesLevel &L = t->Level();
  const size_t      n = (size_t)L.n * L.k, with_ghosts = n + (size_t)t->Ranks().ghosts * L.k;

  PetscFunctionBegin;
  PetscCall(s->arena.Take(n * L.k, &t->inverse));
  for (double **vector : {&t->diagonal, &v->r, &v->z}) PetscCall(s->arena.Take(n, vector));
  for (double **vector : {&v->p, &v->q}) PetscCall(s->arena.Take(with_ghosts, vector));
  PetscCall(s->arena.Take((size_t)kSums * kSumBlocks + 1, &v->partial));
  PetscCall(LaunchInvertDiagonals(t));
  PetscCall(CMATCHReadReport(s));
  L.raised = s->seen.raised;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesEstimate(CMATCHNodesSetup *t, const CMATCHNodesVectors &v, MPI_Datatype node)
{
  CMATCHSetup      *s    = t->s;
  CMATCHNodesLevel &L    = t->Level();
  double            some = s->seen.whole < L.n; /* whether there is an unknown that is not alone */

  PetscFunctionBegin;
  PetscCall(CMATCHReduce(t->Ranks(), MPI_MAX, &some));
  L.lambda = 1;
  if (some > 0) PetscCall(Estimate(t, &v, node, nullptr, &L.lambda));
  CheckEstimate(t, L.lambda);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesScaleInverses(CMATCHNodesSetup *t, const PolynomialSteps &steps)
{
  CMATCHSetup            *s       = t->s;
  const CMATCHNodesLevel &L       = t->Level();
  const auto              entries = (long long)L.n * L.k * L.k;

  PetscFunctionBegin;
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    ScaleInverses<T><<<BlocksFor(entries), kBlockSize, 0, s->stream>>>(entries, L.k, t->inverse, t->alone, steps.root,
                                                                       kCMATCHNodesMargin * L.lambda, (T *)L.D);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesFactor(CMATCHNodesSetup *t)
{
  CMATCHSetup            *s    = t->s;
  const CMATCHNodesLevel &L    = t->Level();
  const LocalInt          size = L.k * L.k, n = L.n * L.k;
  double                 *a     = nullptr;
  LocalInt               *count = nullptr, *begin = nullptr, *i = nullptr, *j = nullptr, *longest = nullptr, seen[2];

  PetscFunctionBegin;
  if (!CMATCHHasFactors(*s->params)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHNodesCheckRows(L));
  PetscCall(s->arena.Take(n, &t->d));
  const auto mark = s->arena.mark();
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  for (LocalInt **array : {&count, &begin}) PetscCall(s->arena.Take((size_t)L.n + 1, array));
  PetscCall(s->arena.Take(1, &longest));
  PetscCall(s->arena.Take((size_t)n + 1, &i));
  PetscCall(s->arena.Take((size_t)L.blocks * size, &j));
  PetscCall(s->arena.Take((size_t)L.blocks * size, &a));
  PetscCallCUDA(cudaMemsetAsync(longest, 0, sizeof(*longest), s->stream));
  CountOwn<<<BlocksFor((long long)L.n + 1), kBlockSize, 0, s->stream>>>(L.n, L.A_i, L.A_j, count);
  FinePCCheckLaunch();
  PetscCall(s->cub.Run(
    [&](void *memory, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, count, begin, L.n + 1, s->stream); }));
  ExpandBlocks<<<BlocksFor(((long long)n + 1) * kRowGroup), kBlockSize, 0, s->stream>>>({L.n, L.k, L.A_i, L.A_j, begin, t->A,
                                                                                         t->inverse, t->alone},
                                                                                        i, j, a, longest);
  FinePCCheckLaunch();
  PetscCallCUDA(cudaMemcpyAsync(&seen[0], longest, sizeof(*longest), cudaMemcpyDeviceToHost, s->stream));
  PetscCallCUDA(cudaMemcpyAsync(&seen[1], i + n, sizeof(*i), cudaMemcpyDeviceToHost, s->stream));
  PetscCallCUDA(cudaStreamSynchronize(s->stream));
  PetscCall(CMATCHMakeFactor(s, t->level, {n, seen[1], i, j, a, PETSC_MEMTYPE_CUDA}, seen[0], t->d, t->keep));
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesScaleFactor(CMATCHNodesSetup *t, const CMATCHNodesVectors *v, MPI_Datatype node)
{
  CMATCHSetup            *s      = t->s;
  const CMATCHNodesLevel &L      = t->Level();
  const LocalInt          n      = L.n * L.k;
  double                  some   = s->seen.whole < L.n;
  PetscReal               lambda = 1;

  PetscFunctionBegin;
  if (!CMATCHHasFactors(*s->params)) PetscFunctionReturn(PETSC_SUCCESS);
  if (v) PetscCall(CMATCHReduce(t->Ranks(), MPI_MAX, &some));
  if (n) {
    TakePsi<<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, t->d, t->diagonal);
    FinePCCheckLaunch();
  }
  if (some > 0) PetscCall(Estimate(t, v, node, t->d, &lambda));
  CheckEstimate(t, lambda);
  if (!n || CMATCHHasFailed(s)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    ScaleFactor<T><<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, L.k, t->d, t->inverse, t->alone,
                                                               CMATCHNodesSteps(*s->params).root, kCMATCHNodesMargin * lambda,
                                                               (T *)t->Ranks().factor.d);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
