/* The vector operations of the conjugate gradient method one by one, for products by others. */
#include "cgfused.cuh"

namespace
{

/* x = x + a p, r = r - a w */
__global__ void __launch_bounds__(kCGBlock)
  StepVectors(LocalInt n, double a, const double *__restrict__ p, const double *__restrict__ w, double *__restrict__ x,
              double *__restrict__ r)
{
  const long long i = GridThread();
  if (i >= n) return;
  x[i] += a * p[i];
  r[i] -= a * w[i];
}

/* z.r, z.z, r.r, and z.s where s is given */
__global__ void __launch_bounds__(kCGBlock) DotVectors(LocalInt n, const double *__restrict__ z, const double *__restrict__ r,
                                                       const double *__restrict__ s, double *partial, CGState *state)
{
  double sums[4] = {0, 0, 0, 0};
  for (long long i = GridThread(); i < n; i += (long long)gridDim.x * kCGBlock) {
    const double z_i = z[i], r_i = r[i];
    sums[0] += z_i * r_i;
    sums[1] += z_i * z_i;
    sums[2] += r_i * r_i;
    if (s) sums[3] += z_i * s[i];
  }
  if (GridSumLast(sums, partial, &state->ticket))
    for (int c = 0; c < 4; c++) state->dots[c] = sums[c];
}

/* p = z + b p, and w = s + b w where s is given */
__global__ void __launch_bounds__(kCGBlock)
  DirectVectors(LocalInt n, double b, const double *__restrict__ z, double *__restrict__ p, const double *__restrict__ s,
                double *__restrict__ w)
{
  const long long i = GridThread();
  if (i >= n) return;
  p[i] = z[i] + b * p[i];
  if (s) w[i] = s[i] + b * w[i];
}

__global__ void __launch_bounds__(kCGBlock) InvertDiagonal(LocalInt n, bool absolute, bool fixed, double *d)
{
  const long long i = GridThread();
  if (i >= n) return;
  const double a = absolute ? fabs(d[i]) : d[i];
  d[i]           = a == 0 ? (fixed ? 1 : 0) : 1 / a;
}

} // namespace

PetscErrorCode CGStep_CUDA(LocalInt n, PetscScalar a, const PetscScalar *p, const PetscScalar *w, PetscScalar *x, PetscScalar *r)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  StepVectors<<<BlocksFor(n, kCGBlock), kCGBlock, 0, stream>>>(n, a, p, w, x, r);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGDots_CUDA(CGFusedWork *work, LocalInt n, const PetscScalar *z, const PetscScalar *r, const PetscScalar *s,
                           PetscReal sums[4])
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work->mailbox.Wait());
  DotVectors<<<CGFusedSumBlocks(work, n), kCGBlock, 0, stream>>>(n, z, r, s, work->partial.data(), work->mailbox.state());
  FinePCCheckLaunch();
  PetscCall(work->mailbox.GetDots(4, sums, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGDirection_CUDA(LocalInt n, PetscScalar b, const PetscScalar *z, PetscScalar *p, const PetscScalar *s,
                                PetscScalar *w)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  DirectVectors<<<BlocksFor(n, kCGBlock), kCGBlock, 0, stream>>>(n, b, z, p, s, w);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FusedInvertDiagonal_CUDA(LocalInt n, PetscBool absolute, PetscBool fixed, PetscScalar *d)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  InvertDiagonal<<<BlocksFor(n, kCGBlock), kCGBlock, 0, stream>>>(n, absolute, fixed, d);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
