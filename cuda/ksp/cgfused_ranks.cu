/* The fused conjugate gradient method on a rank among several: the host takes part in every iteration. */
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "cgfused.cuh"

namespace
{

constexpr int kGhostLanes = 4; /* of a row of entries of other ranks */

/*
   p = z + b p, w = s + b w, x = x + a p, r = r - a w, and r.r. With Diagonal M is the diagonal d, or 1 where d is null: z = M r is
   stored, and its sums are kept for the host.
*/
template <bool Diagonal>
__global__ void __launch_bounds__(kCGBlock)
  UpdateRank(PetscInt n, double a, double b, const double *d, const double *s, CGRankVectors v, double *partial, CGState *state)
{
  const bool preconditioned = Diagonal && state->test.norm == CG_NORM_PRECONDITIONED;
  double     sums[2]        = {0, 0};
  for (long long i = GridThread(); i < n; i += (long long)gridDim.x * kCGBlock) {
    const double p = v.z[i] + b * v.p[i], w = s[i] + b * v.w[i], r = v.r[i] - a * w;
    v.p[i] = p;
    v.w[i] = w;
    v.r[i] = r;
    v.x[i] += a * p;
    const double z = Diagonal && d ? d[i] * r : r;
    if (Diagonal) v.z[i] = z;
    sums[0] += preconditioned ? z * z : r * r;
    sums[1] += z * r;
  }
  if (GridSumLast(sums, partial, &state->ticket)) {
    if (Diagonal) FinishIteration(state, sums[0], sums[1]);
    else state->nn = sums[0];
  }
}

/* Whether a row has entries. */
struct HasEntries {
  const PetscInt *i;

  __device__ bool operator()(PetscInt row) const { return i[row + 1] > i[row]; }
};

/* s = s + B ghosts in the `count` rows that have such entries, Lanes lanes a row, and then the rank's sums for the host. */
template <int Lanes>
__global__ void __launch_bounds__(kCGBlock) MultiplyGhosts(CSRView B, PetscInt count, const PetscInt *rows, const double *ghosts,
                                                           const double *z, double *s, double *partial, CGState *state)
{
  const PetscInt stride   = (PetscInt)(gridDim.x * kCGBlock / Lanes);
  double         delta[1] = {0};
  for (PetscInt k = (PetscInt)(GridThread() / kWarpSize) * (kWarpSize / Lanes); k < count; k += stride) {
    /* k is the same in all lanes of the warp */
    const PetscInt at = k + threadIdx.x % kWarpSize / Lanes, row = at < count ? rows[at] : 0, end = at < count ? B.i[row + 1] : 0;
    double         sum = 0;
    for (PetscInt e = at < count ? B.i[row] + threadIdx.x % Lanes : 0; e < end; e += Lanes) sum += B.a[e] * ghosts[B.j[e]];
    sum = GroupSum<Lanes>(sum);
    if (at >= count || threadIdx.x % Lanes != 0) continue;
    s[row] += sum;
    delta[0] += z[row] * sum;
  }
  if (GridSumLast(delta, partial, &state->ticket)) {
    state->dots[0] = state->sums.rz;
    state->dots[1] = state->sums.nn;
    state->dots[2] = state->s.delta + delta[0];
  }
}

} // namespace

PetscErrorCode CGFusedPrepareGhosts(CGFusedWork *work, const CSRView &B, bool changed)
{
  const thrust::counting_iterator<PetscInt> every(0);
  const HasEntries                          has{B.i};
  cudaStream_t                              stream;

  PetscFunctionBegin;
  work->B = B; /* its arrays may be others, though nothing has changed */
  if (!changed) PetscFunctionReturn(PETSC_SUCCESS);
  work->ghost_count = 0;
  if (!B.nnz) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (work->ghost_rows.size() < (size_t)B.n + 1) PetscCall(work->ghost_rows.Allocate((size_t)B.n + 1));
  PetscInt *const rows = work->ghost_rows.data(), *const found = rows + B.n;
  PetscCall(work->ghost_select.Run(
    [&](void *scratch, size_t &bytes) { return cub::DeviceSelect::If(scratch, bytes, every, rows, found, B.n, has, stream); }));
  PetscCall(ArrayCopy_CUDA(&work->ghost_count, found, sizeof(*found), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankBegin_CUDA(CGFusedWork *work, const CGRankVectors *v, CGNorm norm)
{
  const size_t bytes = work->A.rows * sizeof(PetscScalar);
  cudaStream_t stream;
  CGScalars    s{};
  CGTest       test{};

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (work->solves++ && stream != work->stream) work->foreign = true;
  work->stream = stream;
  PetscCall(CGRankFence_CUDA(work)); /* PETSc has made the first residual */
  s.stage   = kCGStarting;           /* to the end: the host makes the decisions */
  test.norm = norm;
  PetscCall(work->mailbox.Begin(s, test, stream));
  for (PetscScalar *zero : {v->z, v->p, v->s, v->w}) PetscCallCUDA(cudaMemsetAsync(zero, 0, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankUpdate_CUDA(CGFusedWork *work, const CGRankVectors *v, PetscScalar a, PetscScalar b)
{
  const PetscInt n = work->A.rows;
  cudaStream_t   stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (work->factored) {
    UpdateRank<false>
      <<<CGFusedSumBlocks(work, n), kCGBlock, 0, stream>>>(n, a, b, nullptr, v->s, *v, work->partial.data(), work->mailbox.state());
    FinePCCheckLaunch();
    PetscCall(CGFusedLaunchInverse(work, work->early, v->r, v->z, stream));
  } else {
    UpdateRank<true>
      <<<CGFusedSumBlocks(work, n), kCGBlock, 0, stream>>>(n, a, b, work->d, v->s, *v, work->partial.data(), work->mailbox.state());
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankFence_CUDA(const CGFusedWork *work)
{
  PetscFunctionBegin;
  if (work->foreign) PetscCallCUDA(cudaDeviceSynchronize());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankProduct_CUDA(CGFusedWork *work, const CGRankVectors *v)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(CGFusedLaunchOperator(work, false, v->z, v->s, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankGhosts_CUDA(CGFusedWork *work, const CGRankVectors *v, const PetscScalar *ghosts, PetscReal sums[3])
{
  const int    blocks = std::max(1, std::min(BlocksFor((long long)work->ghost_count * kGhostLanes, kCGBlock), work->processors));
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  MultiplyGhosts<kGhostLanes><<<blocks, kCGBlock, 0, stream>>>(work->B, work->ghost_count, work->ghost_rows.data(), ghosts, v->z,
                                                               v->s, work->partial.data(), work->mailbox.state());
  FinePCCheckLaunch();
  PetscCall(work->mailbox.GetDots(3, sums, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
