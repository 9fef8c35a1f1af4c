/*
   CUDA twin of src/ksp/gmresfused_host.cxx, and the same kernels where the GPU decides about the iterations. There the last block
   of a kernel goes on with the small matrices.

   The products: a block takes some entries of kGMRESTile vectors at most, and blocks that take the same entries of other vectors
   run beside it, so that w and u_j, which all of them need, come from memory once. Each thread keeps the sums of its entries in
   registers to the end.
*/
#include "gmresfused_small.cuh"

namespace
{

/* ------------------------------------------ kernels ------------------------------------------- */

/* The sum of each of x over the block: thread c gets that of x[c]. */
template <int Count>
__device__ double BlockSums(const double (&x)[Count])
{
  static_assert(Count <= kGMRESBlock, "a thread for each sum");
  __shared__ double part[Count][kGMRESWarps];
  const int         warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  double            sum = 0;
#pragma unroll
  for (int c = 0; c < Count; c++) {
    const double of_warp = GroupSum<kWarpSize>(x[c]);
    if (lane == 0) part[c][warp] = of_warp;
  }
  __syncthreads();
  if (threadIdx.x >= Count) return 0;
  for (int w = 0; w < kGMRESWarps; w++) sum += part[threadIdx.x][w];
  return sum;
}

/*
   u_k.w and u_k.u_last for all vectors, and w.w: the sums are left in small.sums. With Late the state has the number of vectors,
   and what follows from the sums is made here.
*/
template <bool Late, typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESDotBlocks)
  DotBasis(GMRESArray<V> u, LocalInt count, const double *w, double *partial, GMRESSmallArrays small, GMRESState *state)
{
  WaitForPrevious();
  LetNextStart();
  if (Late) {
    if (state->s.stage != kCGRunning) return;
    count = state->s.column + 1;
  }
  const int tiles = (count + kGMRESTile - 1) / kGMRESTile, width = (count + tiles - 1) / tiles,
            most   = (int)min((long long)gridDim.x / tiles, (u.n + kGMRESBlock - 1LL) / kGMRESBlock);
  const int groups = max(most, 1);
  const int tile = blockIdx.x % tiles, group = blockIdx.x / tiles, first = tile * width, many = min(width, count - first);
  double    sums[2 * kGMRESTile + 1] = {};
  if (group < groups) {
    const V *const mine = u.at(first), *const last = u.at(count - 1);
#pragma unroll 2
    for (long long i = group * kGMRESBlock + threadIdx.x; i < u.n; i += (long long)groups * kGMRESBlock) {
      const double w_i = w[i], last_i = last[i];
      if (tile == 0) sums[2 * kGMRESTile] += w_i * w_i;
      V v[kGMRESTile];
#pragma unroll
      for (int k = 0; k < kGMRESTile; k++)
        if (k < many) v[k] = mine[(size_t)k * u.ld + i];
#pragma unroll
      for (int k = 0; k < kGMRESTile; k++)
        if (k < many) {
          sums[k] += (double)v[k] * w_i;
          sums[kGMRESTile + k] += (double)v[k] * last_i;
        }
    }
  }
  const double sum = BlockSums(sums); /* of the thread's own number */
  if (group < groups) {
    const int      which = threadIdx.x / kGMRESTile, k = threadIdx.x % kGMRESTile;
    const LocalInt place = which == 0 ? first + k : which == 1 ? count + first + k : 2 * count;
    if (which == 2 ? k == 0 && tile == 0 : which < 2 && k < many) partial[(size_t)place * groups + group] = sum;
  }
  if (!IsLastBlock(&state->ticket)) return;
  if (Late) {
    __shared__ double all[2 * (kGMRESMostRestart + 1) + 1], work[3 * (kGMRESMostRestart + 1)];
    AddPartials(2 * count + 1, groups, partial, all);
    Project(count - 1, all, work, small, state);
  } else AddPartials(2 * count + 1, groups, partial, small.sums);
}

/* p = s (w - U c) = u_count and p.p, which is left in small.sums if `sum` says so. With Late an iteration ends here. */
template <bool Late, typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESBlocks)
  UpdateBasis(GMRESArray<V> u, LocalInt count, double scale, bool sum, const double *w, double *p, double *partial,
              GMRESSmallArrays small, GMRESState *state)
{
  __shared__ double c[kGMRESMostRestart + 1], rotations[2 * kGMRESMostRestart];
  WaitForPrevious();
  LetNextStart();
  if (Late) {
    if (state->s.stage != kCGRunning) return;
    count = state->s.column + 1;
    scale = state->s.scale;
  }
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) c[k] = small.c[k];
  __syncthreads();
  double   square[1] = {0};
  V *const next      = u.at(count);
  for (long long i = GridThread(); i < u.n; i += (long long)gridDim.x * kGMRESBlock) {
    const V      stored = (V)(scale * AddBasis<-1>(u, count, c, (LocalInt)i, w[i]));
    const double value  = (double)stored;
    next[i]             = stored;
    p[i]                = value;
    square[0] += value * value;
  }
  if (!Late && !sum) return;
  BlockSum(square);
  if (threadIdx.x == 0) partial[blockIdx.x] = square[0];
  if (!IsLastBlock(&state->ticket)) return;
  square[0] = AddPartial((int)gridDim.x, partial);
  if (Late) {
    const size_t column = (size_t)(count - 1) * (small.restart + 1);
    Append(count - 1, square[0], c, rotations, small.H + column, small.R + column, small, state);
  } else if (threadIdx.x == 0) small.sums[0] = square[0];
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

/* t = U c */
template <typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESBlocks)
  CombineBasis(GMRESArray<V> u, LocalInt count, GMRESSmallArrays small, double *t)
{
  __shared__ double c[kGMRESMostRestart + 1];
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) c[k] = small.c[k];
  __syncthreads();
  for (long long i = GridThread(); i < u.n; i += (long long)gridDim.x * kGMRESBlock)
    t[i] = AddBasis<1>(u, count, c, (LocalInt)i, 0.);
}

/* Coefficients of the host, of which a copy is made before this returns. */
PetscErrorCode SetCoefficients(GMRESFusedWork *work, LocalInt count, const PetscReal c[], cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(GMRESNeedSmall(work, count));
  PetscCallCUDA(cudaMemcpyAsync(work->small.c, c, count * sizeof(*c), cudaMemcpyHostToDevice, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GetSums(GMRESFusedWork *work, LocalInt count, PetscReal sums[], cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCallCUDA(cudaMemcpyAsync(sums, work->small.sums, count * sizeof(*sums), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* ----------------------------------------- the work ------------------------------------------- */

PetscErrorCode GMRESMayStartEarly(bool *early)
{
  PetscFunctionBegin;
  PetscCall(KnowsToWait((const void *)UpdateBasis<true, double>, early));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedCreate_CUDA(GMRESFusedWork **work_out)
{
  GMRESFusedWork *const work = *work_out = new GMRESFusedWork();
  cudaStream_t          stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(ProcessorCount(&work->processors));
  PetscCall(GMRESMayStartEarly(&work->early));
  PetscCall(SharedMemoryLimit(&work->room));
  PetscCall(work->mailbox.CreatePinned());
  PetscCall(work->partial.Allocate((size_t)(2 * kGMRESTile + 1) * GMRESDotGrid(work)));
  PetscCallCUDA(cudaMemsetAsync(work->mailbox.state(), 0, sizeof(GMRESState), stream));
  PetscCallCUDA(cudaStreamSynchronize(stream)); /* the next call may come with another stream */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedDestroy_CUDA(GMRESFusedWork **work)
{
  PetscFunctionBegin;
  if (!*work) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((*work)->mailbox.Destroy());
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
  layout.Place(&work->small.c, rows);
  layout.Place(&work->small.sums, 2 * rows + 1);
  work->small.restart = 0;
  PetscCall(layout.Allocate(&work->small_memory));
  work->small.restart = room;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ launches ------------------------------------------ */

PetscErrorCode GMRESLaunchOrthogonalization(GMRESFusedWork *work, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(GMRESWithPrecision(work->basis, [&](auto u) {
    using V           = std::remove_pointer_t<decltype(u.u)>;
    GMRESState *state = work->mailbox.state();
    PetscFunctionBegin;
    PetscCall(LaunchEarly(work->early, DotBasis<true, V>, GMRESDotGrid(work), kGMRESBlock, stream, u, 0, work->v.w,
                          work->partial.data(), work->small, state));
    PetscCall(LaunchEarly(work->early, UpdateBasis<true, V>, GMRESGrid(work, u.n), kGMRESBlock, stream, u, 0, 1., true, work->v.w,
                          work->v.p, work->partial.data(), work->small, state));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESDots_CUDA(GMRESFusedWork *work, const GMRESBasis *basis, LocalInt count, const PetscScalar *w, PetscReal sums[])
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(work->mailbox.Wait());
  PetscCall(GMRESNeedSmall(work, count));
  PetscCall(GMRESWithPrecision(*basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(false, DotBasis<false, V>, GMRESDotGrid(work), kGMRESBlock, stream, u, count, w, work->partial.data(),
                       work->small, work->mailbox.state());
  }));
  PetscCall(GetSums(work, 2 * count + 1, sums, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESUpdate_CUDA(GMRESFusedWork *work, const GMRESBasis *basis, LocalInt count, const PetscReal c[], PetscReal s,
                                const PetscScalar *w, PetscScalar *p, PetscReal *pp)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(work->mailbox.Wait());
  PetscCall(SetCoefficients(work, count, c, stream));
  PetscCall(GMRESWithPrecision(*basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(false, UpdateBasis<false, V>, GMRESGrid(work, u.n), kGMRESBlock, stream, u, count, s, pp != nullptr, w, p,
                       work->partial.data(), work->small, work->mailbox.state());
  }));
  if (pp) PetscCall(GetSums(work, 1, pp, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESStore_CUDA(const GMRESBasis *basis, LocalInt k, PetscReal s, PetscScalar *x)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!basis->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
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
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(work->mailbox.Wait());
  PetscCall(SetCoefficients(work, count, c, stream));
  PetscCall(GMRESWithPrecision(*basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(false, CombineBasis<V>, GMRESGrid(work, u.n), kGMRESBlock, stream, u, count, work->small, t);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
