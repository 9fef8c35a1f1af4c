/*
   CUDA twin of src/ksp/gmresfused_host.cxx, for the general path.

   The products: a block takes some entries of GMRESTile() vectors at most, and blocks that take the same entries of other vectors
   run beside it, so that w and u_j, which all of them need, come from memory once. Each thread keeps the sums of its entries in
   registers to the end.
*/
#include "gmresfused.cuh"
#include "sparse/transfer.cuh"

namespace
{

/* ------------------------------------------ kernels ------------------------------------------- */

/* The sums of GMRESDots_CUDA(), which are left in small.sums. */
template <int Step, typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESDotBlocks)
  DotBasis(GMRESArray<V> u, LocalInt count, GMRESProducts<Step> of, double *partial, GMRESSmallArrays small, GMRESState *state)
{
  const DotTiles tiles(u.n, count, GMRESTile(Step), blockIdx.x, gridDim.x);
  tiles.ForEach([&](LocalInt first, LocalInt many) {
    DotTile(u, count, of, first, many, tiles.group, tiles.groups,
            [&](LocalInt number, double sum) { partial[(size_t)number * tiles.groups + tiles.group] = sum; });
  });
  if (IsLastBlock(&state->ticket)) AddPartials(GMRESSumsOf(count, Step), tiles.groups, partial, small.sums);
}

/* s_0 and s_1 of GMRESCombination */
struct Scales {
  double s[kGMRESMostStep];
};

/*
   The vectors from u_count on, as many as there are products, and p, which is the last one. The squares of their norms are left in
   small.sums unless `partial` is null.
*/
template <int Products, typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESBlocks)
  UpdateBasis(GMRESArray<V> u, LocalInt count, Scales scale, GMRESProducts<Products> of, double *p, double *partial,
              GMRESSmallArrays small, GMRESState *state)
{
  __shared__ double memory[Products * (kGMRESMostRestart + 1)];
  const double     *c[Products];
#pragma unroll
  for (int s = 0; s < Products; s++) {
    double *const to = memory + s * (kGMRESMostRestart + 1);
    for (LocalInt k = threadIdx.x; k < count + s; k += kGMRESBlock) to[k] = small.c[s * (small.restart + 1) + k];
    c[s] = to;
  }
  __syncthreads();
  double square[Products] = {};
  for (long long i = GridThread(); i < u.n; i += (long long)gridDim.x * kGMRESBlock) {
    double x[Products], first = 0;
#pragma unroll
    for (int s = 0; s < Products; s++) x[s] = of.w[s][i];
    AddBasis<-1>(u, count, c, (LocalInt)i, x);
#pragma unroll
    for (int s = 0; s < Products; s++) {
      const V stored     = (V)(scale.s[s] * (s ? x[s] - c[s][count] * first : x[s]));
      first              = (double)stored;
      u.at(count + s)[i] = stored;
      square[s] += first * first;
    }
    p[i] = first;
  }
  if (!partial) return;
  BlockSum(square);
  if (threadIdx.x == 0)
    for (int s = 0; s < Products; s++) partial[s * gridDim.x + blockIdx.x] = square[s];
  if (!IsLastBlock(&state->ticket)) return;
  for (int s = 0; s < Products; s++) {
    const double total = AddPartial((int)gridDim.x, partial + s * gridDim.x);
    if (threadIdx.x == 0) small.sums[s] = total;
  }
}

/* x = s x = u_k */
template <typename V>
__global__ void __launch_bounds__(kGMRESBlock) StoreVector(GMRESArray<V> u, LocalInt k, double scale, double *x)
{
  const long long i = GridThread();
  if (i >= u.n) return;
  const V stored = (V)(scale * x[i]);
  u.at(k)[i]     = stored;
  x[i]           = (double)stored;
}

/* t = U from */
template <typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESBlocks)
  CombineBasis(GMRESArray<V> u, LocalInt count, const double *from, double *t)
{
  __shared__ double c[kGMRESMostRestart + 1];
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) c[k] = from[k];
  __syncthreads();
  for (long long i = GridThread(); i < u.n; i += (long long)gridDim.x * kGMRESBlock) {
    const double *const of[1] = {c};
    double              x[1]  = {0};
    AddBasis<1>(u, count, of, (LocalInt)i, x);
    t[i] = x[0];
  }
}

/* Coefficients of the host for sum s, of which a copy is made before this returns. */
PetscErrorCode SetCoefficients(GMRESFusedWork *work, LocalInt s, LocalInt count, const PetscReal c[], cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(GMRESNeedSmall(work, count));
  PetscCallCUDA(
    cudaMemcpyAsync(work->small.c + s * (work->small.restart + 1), c, count * sizeof(*c), cudaMemcpyHostToDevice, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GetSums(GMRESFusedWork *work, LocalInt count, PetscReal sums[], cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(SmallRead(work->small.sums, count * sizeof(*sums), sums, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* ----------------------------------------- the work ------------------------------------------- */

PetscErrorCode GMRESFusedCreate_CUDA(GMRESFusedWork **work_out)
{
  GMRESFusedWork *const work = *work_out = new GMRESFusedWork();
  cudaStream_t          stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(ProcessorCount(&work->processors));
  PetscCall(work->mailbox.CreatePinned());
  PetscCall(work->partial.Allocate((size_t)GMRESTileSums(kGMRESMostStep) * GMRESDotGrid(work)));
  PetscCallCUDA(cudaMemsetAsync(work->mailbox.state(), 0, sizeof(GMRESState), stream));
  PetscCallCUDA(cudaStreamSynchronize(stream)); /* the next call may come with another stream */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedDestroy_CUDA(GMRESFusedWork **work)
{
  PetscFunctionBegin;
  if (!*work) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((*work)->mailbox.Wait());
  PetscCall(GMRESUseNCCL(*work, nullptr));
  PetscCall((*work)->mailbox.Destroy());
  PetscCall(ExchangeRanksDestroy(*work));
  PetscCall(SlicesDestroy_CUDA(&(*work)->A));
  delete *work;
  *work = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESNeedSmall(GMRESFusedWork *work, LocalInt restart)
{
  constexpr LocalInt kLeast = 64; /* a restart that is seldom exceeded */
  const LocalInt     room   = std::max({restart, kLeast, std::min(2 * work->small.restart, kGMRESMostRestart)});
  const size_t       rows   = (size_t)room + 1;
  Layout             layout;

  PetscFunctionBegin;
  if (work->small.restart >= restart) PetscFunctionReturn(PETSC_SUCCESS);
  layout.Place(&work->small.T, rows * rows);
  layout.Place(&work->small.H, rows * rows);
  layout.Place(&work->small.R, rows * rows);
  layout.Place(&work->small.square, rows);
  layout.Place(&work->small.norm, rows);
  layout.Place(&work->small.rhs, rows);
  layout.Place(&work->small.cosine, rows);
  layout.Place(&work->small.sine, rows);
  layout.Place(&work->small.c, kGMRESMostStep * rows);
  layout.Place(&work->small.sums, (size_t)GMRESSumsOf(room + 1, kGMRESMostStep));
  layout.Place(&work->small.all, (size_t)GMRESSumsOf(room + 1, kGMRESMostStep));
  work->small.restart = 0;
  PetscCall(layout.Allocate(&work->small_memory));
  work->small.restart = room;
  work->small.rows    = room + 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESNeedWords(GMRESFusedWork *work, size_t words)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (work->words.size() < words) {
    PetscCall(work->words.Allocate(words));
    PetscCallCUDA(cudaMemsetAsync(work->words.data(), 0, work->words.bytes(), stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ launches ------------------------------------------ */

template <int Step>
static PetscErrorCode LaunchDotsWith(GMRESFusedWork *work, const GMRESBasis &basis, LocalInt count, const GMRESProducts<Step> &of,
                                     cudaStream_t stream)
{
  return GMRESWithPrecision(basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(false, DotBasis<Step, V>, GMRESDotGrid(work), kGMRESBlock, stream, u, count, of, work->partial.data(),
                       work->small, work->mailbox.state());
  });
}

static PetscErrorCode LaunchDots(GMRESFusedWork *work, const GMRESBasis &basis, LocalInt count, LocalInt step,
                                 const PetscScalar *const w[], cudaStream_t stream)
{
  PetscFunctionBegin;
  if (step == 1) PetscCall(LaunchDotsWith(work, basis, count, GMRESProducts<1>{{w[0]}}, stream));
  else PetscCall(LaunchDotsWith(work, basis, count, GMRESProducts<2>{{w[0], w[1]}}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESLaunchDots(GMRESFusedWork *work, LocalInt count, LocalInt products, cudaStream_t stream)
{
  const PetscScalar *w[kGMRESMostStep];

  PetscFunctionBegin;
  for (LocalInt s = 0; s < kGMRESMostStep; s++) w[s] = work->v.w[std::min(s, products - 1)];
  PetscCall(LaunchDots(work, work->basis, count, work->step, w, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESDots_CUDA(GMRESFusedWork *work, const GMRESBasis *basis, LocalInt count, LocalInt step,
                              const PetscScalar *const w[], PetscReal sums[])
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work->mailbox.Wait());
  PetscCall(GMRESNeedSmall(work, count));
  PetscCall(LaunchDots(work, *basis, count, step, w, stream));
  PetscCall(GetSums(work, (LocalInt)GMRESSums(count, step), sums, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <int Products>
static PetscErrorCode LaunchUpdate(GMRESFusedWork *work, const GMRESBasis &basis, LocalInt count, const Scales &scale, bool sum,
                                   const GMRESProducts<Products> &of, PetscScalar *p, cudaStream_t stream)
{
  return GMRESWithPrecision(basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(false, UpdateBasis<Products, V>, GMRESGrid(work, u.n), kGMRESBlock, stream, u, count, scale, of, p,
                       sum ? work->partial.data() : nullptr, work->small, work->mailbox.state());
  });
}

PetscErrorCode GMRESUpdate_CUDA(GMRESFusedWork *work, const GMRESBasis *basis, LocalInt count, const GMRESCombination *of,
                                const PetscScalar *const w[], PetscScalar *p, PetscReal pp[])
{
  Scales       scale{};
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work->mailbox.Wait());
  PetscCall(GMRESNeedSmall(work, count + of->products - 1)); /* more room would move what has been set */
  for (LocalInt s = 0; s < of->products; s++) {
    PetscCall(SetCoefficients(work, s, count + s, of->c[s], stream));
    scale.s[s] = of->s[s];
  }
  if (of->products == 1) PetscCall(LaunchUpdate(work, *basis, count, scale, pp, GMRESProducts<1>{{w[0]}}, p, stream));
  else PetscCall(LaunchUpdate(work, *basis, count, scale, pp, GMRESProducts<2>{{w[0], w[1]}}, p, stream));
  if (pp) PetscCall(GetSums(work, of->products, pp, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESStore_CUDA(const GMRESBasis *basis, LocalInt k, PetscReal s, PetscScalar *x)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!basis->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(GMRESWithPrecision(*basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(false, StoreVector<V>, BlocksFor(u.n, kGMRESBlock), kGMRESBlock, stream, u, k, s, x);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESCombine_CUDA(GMRESFusedWork *work, const GMRESBasis *basis, LocalInt count, const PetscReal c[], PetscScalar *t)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(GMRESNeedSmall(work, count));
  PetscCallCUDA(cudaMemcpyAsync(work->small.all, c, count * sizeof(*c), cudaMemcpyHostToDevice, stream));
  PetscCall(GMRESWithPrecision(*basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(false, CombineBasis<V>, GMRESGrid(work, u.n), kGMRESBlock, stream, u, count, work->small.all, t);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
