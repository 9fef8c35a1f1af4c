/*
   CUDA twin of src/ksp/gmresfused_host.cxx, for the general path.

   The products: a block takes some entries of kGMRESTile vectors at most, and blocks that take the same entries of other vectors
   run beside it, so that w and u_j, which all of them need, come from memory once. Each thread keeps the sums of its entries in
   registers to the end.
*/
#include "gmresfused.cuh"

namespace
{

/* ------------------------------------------ kernels ------------------------------------------- */

/* u_k.w and u_k.u_last for all vectors, and w.w: the sums are left in small.sums. */
template <typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESDotBlocks)
  DotBasis(GMRESArray<V> u, LocalInt count, const double *w, double *partial, GMRESSmallArrays small, GMRESState *state)
{
  const DotTiles tiles(u.n, count, blockIdx.x, gridDim.x);
  tiles.ForEach([&](LocalInt first, LocalInt many) {
    DotTile(u, count, w, first, many, tiles.group, tiles.groups,
            [&](LocalInt number, double sum) { partial[(size_t)number * tiles.groups + tiles.group] = sum; });
  });
  if (IsLastBlock(&state->ticket)) AddPartials(2 * count + 1, tiles.groups, partial, small.sums);
}

/* p = s (w - U c) = u_count, and p.p, which is left in small.sums if `sum` says so */
template <typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESBlocks)
  UpdateBasis(GMRESArray<V> u, LocalInt count, double scale, bool sum, const double *w, double *p, double *partial,
              GMRESSmallArrays small, GMRESState *state)
{
  __shared__ double c[kGMRESMostRestart + 1];
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
  if (!sum) return;
  BlockSum(square);
  if (threadIdx.x == 0) partial[blockIdx.x] = square[0];
  if (!IsLastBlock(&state->ticket)) return;
  square[0] = AddPartial((int)gridDim.x, partial);
  if (threadIdx.x == 0) small.sums[0] = square[0];
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
  PetscCall((*work)->mailbox.Wait());
  PetscCall(GMRESUseNCCL(*work, nullptr));
  PetscCall((*work)->mailbox.Destroy());
  PetscCall(CGRanksDestroy(*work));
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
  layout.Place(&work->small.all, 2 * rows + 1);
  work->small.restart = 0;
  PetscCall(layout.Allocate(&work->small_memory));
  work->small.restart = room;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESNeedWords(GMRESFusedWork *work, size_t words, size_t blocks)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (work->words.size() < words) {
    PetscCall(work->words.Allocate(words));
    PetscCallCUDA(cudaMemsetAsync(work->words.data(), 0, work->words.bytes(), stream));
  }
  if (work->arrived.size() < blocks) {
    PetscCall(work->arrived.Allocate(blocks));
    PetscCallCUDA(cudaMemsetAsync(work->arrived.data(), 0, work->arrived.bytes(), stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ launches ------------------------------------------ */

static PetscErrorCode LaunchDots(GMRESFusedWork *work, const GMRESBasis &basis, LocalInt count, const PetscScalar *w,
                                 cudaStream_t stream)
{
  return GMRESWithPrecision(basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(false, DotBasis<V>, GMRESDotGrid(work), kGMRESBlock, stream, u, count, w, work->partial.data(), work->small,
                       work->mailbox.state());
  });
}

PetscErrorCode GMRESLaunchDots(GMRESFusedWork *work, LocalInt count, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchDots(work, work->basis, count, work->v.w, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESDots_CUDA(GMRESFusedWork *work, const GMRESBasis *basis, LocalInt count, const PetscScalar *w, PetscReal sums[])
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(work->mailbox.Wait());
  PetscCall(GMRESNeedSmall(work, count));
  PetscCall(LaunchDots(work, *basis, count, w, stream));
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
    return LaunchEarly(false, UpdateBasis<V>, GMRESGrid(work, u.n), kGMRESBlock, stream, u, count, s, pp != nullptr, w, p,
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
