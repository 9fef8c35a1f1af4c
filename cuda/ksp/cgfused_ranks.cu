/* The fused conjugate gradient method on a rank among several: the host takes part in every iteration. */
#include "cgfused.cuh"

namespace
{

/*
   p = z + b p, w = s + b w, x = x + a p, r = r - a w, and r.r. With Diagonal M is the diagonal d, or 1 where d is null: z = M r is
   stored, and its sums are kept for the host.
*/
template <bool Diagonal>
__global__ void __launch_bounds__(kCGBlock)
  UpdateRank(LocalInt n, double a, double b, const double *d, const double *s, CGRankVectors v, double *partial, CGState *state)
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

} // namespace

PetscErrorCode CGRankBegin_CUDA(CGFusedWork *work, const CGRankVectors *v, CGNorm norm)
{
  const size_t bytes = work->A.rows * sizeof(PetscScalar);
  cudaStream_t stream;
  CGScalars    s{};
  CGTest       test{};
  bool         non_blocking = false;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(DeviceStreamIsNonBlocking_CUDA(&non_blocking));
  if (non_blocking || (work->solves++ && stream != work->stream)) work->foreign = true;
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
  const LocalInt n = work->A.rows;
  cudaStream_t   stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (work->factored) {
    UpdateRank<false>
      <<<CGFusedSumBlocks(work, n), kCGBlock, 0, stream>>>(n, a, b, nullptr, v->s, *v, work->partial.data(), work->mailbox.state());
    FinePCCheckLaunch();
    if (!work->ghosts1.used) PetscCall(CGFusedLaunchInverse(work, work->early, v->r, v->z, stream));
  } else {
    UpdateRank<true>
      <<<CGFusedSumBlocks(work, n), kCGBlock, 0, stream>>>(n, a, b, work->d, v->s, *v, work->partial.data(), work->mailbox.state());
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankFirst_CUDA(CGFusedWork *work, const CGRankVectors *v, const PetscScalar **t)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  *t = work->t.data();
  PetscCall(CGFusedLaunchFirst(work, false, false, v->r, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankFirstGhosts_CUDA(CGFusedWork *work)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(CGFusedLaunchFirstGhosts(work, false, work->t.data(), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankSecond_CUDA(CGFusedWork *work, const CGRankVectors *v)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(CGFusedLaunchSecond(work, false, false, v->r, v->z, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankSecondGhosts_CUDA(CGFusedWork *work, const CGRankVectors *v)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(CGFusedLaunchSecondGhosts(work, false, v->r, v->z, stream));
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
  PetscCall(DeviceGetStream(&stream));
  PetscCall(CGFusedLaunchOperator(work, false, v->z, v->s, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankGhosts_CUDA(CGFusedWork *work, const CGRankVectors *v, PetscReal sums[3])
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(CGFusedLaunchGhosts(work, false, v->z, v->s, stream));
  PetscCall(work->mailbox.GetDots(3, sums, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
