/* What the fused conjugate gradient methods share on the device: scalars, decisions, and sums over a grid of blocks. */
#pragma once

#include "launch.cuh"
#include "ksp/cgfused.h"

constexpr int kCGRecords = 512; /* iterations that the device keeps until the host has seen them */

enum CGStage : int {
  kCGStarting, /* sums are for the host */
  kCGRunning,
  kCGDecided, /* the last iteration's step in x is still to be done */
  kCGStopped
};

struct CGScalars {
  double   beta, betaold, delta, a, b, value;
  PetscInt iteration, its; /* completed; as KSPCG counts where it stops */
  CGStage  stage;
  CGStop   stop;
};

/* What the kernels share, and what the host copies to see how far they are. */
struct CGState {
  CGScalars s;
  CGTest    test;
  double    mean; /* of RRBCG, of z before it is taken away, which a singular matrix needs */
  double    nn;   /* of CGFUSED, from the kernel that updates r to the one that decides */
  CGSums    sums;
  double    dots[4];
  unsigned  ticket;
  CGRecord  records[kCGRecords]; /* iteration n in n % kCGRecords */
};

/* ------------------------------------------ scalars ------------------------------------------- */

__device__ __forceinline__ void Stop(CGScalars &s, CGStop stop, PetscInt its, double value, CGStage stage)
{
  s.stop  = stop;
  s.its   = its;
  s.value = value;
  s.stage = stage;
}

__device__ __forceinline__ void DecideDelta(CGScalars &s, double delta)
{
  const double old = s.delta;
  s.delta          = delta;
  if (!isfinite(delta)) Stop(s, CG_DELTA_NOT_FINITE, s.iteration + 1, delta, kCGStopped);
  else if (delta == 0 || (s.iteration > 0 && ((delta > 0 && old < 0) || (delta < 0 && old > 0))))
    Stop(s, CG_INDEFINITE_MAT, s.iteration + 1, delta, kCGStopped);
  else s.a = s.beta / delta;
}

__device__ __forceinline__ CGRecord DecideBeta(CGScalars &s, const CGTest &test, double nn, double beta)
{
  const PetscInt n       = ++s.iteration;
  const bool     natural = test.norm == CG_NORM_NATURAL, looked_at = natural || (test.norm != CG_NORM_NONE && test.chknorm <= n);
  const double   norm   = looked_at ? sqrt(natural ? fabs(beta) : nn) : 0;
  const CGRecord record = {norm, s.a, s.b};
  s.betaold             = s.beta;
  s.beta                = beta;
  if (natural && !isfinite(beta)) Stop(s, CG_BETA_NOT_FINITE, n, beta, kCGDecided);
  else if (!isfinite(norm)) Stop(s, CG_NORM_NOT_FINITE, n, norm, kCGDecided);
  else if (n >= test.last ||
           (test.norm != CG_NORM_NONE && n > test.chknorm && n >= test.min_it && (norm <= test.ttol || norm >= test.dtol)))
    Stop(s, CG_TEST, n, norm, kCGDecided);
  else if (!isfinite(beta)) Stop(s, CG_BETA_NOT_FINITE, n, beta, kCGDecided);
  else if (n >= test.max_it) Stop(s, CG_ITS, n, norm, kCGDecided);
  else if (beta == 0) Stop(s, CG_BETA_ZERO, n + 1, beta, kCGDecided);
  else if (beta * s.betaold < 0) Stop(s, CG_INDEFINITE_PC, n + 1, beta, kCGDecided);
  else s.b = beta / s.betaold;
  return record;
}

/* -------------------------------------------- sums -------------------------------------------- */

/* Sum of each of x over the block, in thread 0, always in the same order. */
template <int Count>
__device__ void BlockSum(double (&x)[Count])
{
  __shared__ double part[Count][kWarpSize];
  const int         warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  __syncthreads();
#pragma unroll
  for (int c = 0; c < Count; c++) {
    x[c] = GroupSum<kWarpSize>(x[c]);
    if (lane == 0) part[c][warp] = x[c];
  }
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int c = 0; c < Count; c++) x[c] = GroupSum<kWarpSize>(lane < blockDim.x / kWarpSize ? part[c][lane] : 0.);
}

/*
   Sum over the grid; true in thread 0 of the block that came last, which alone has it. partial [Count][blocks]. The last Given sums
   are of what a kernel ahead of this one, of as many blocks, left there with BlockSum().
*/
template <int Count, int Given = 0>
__device__ bool GridSumLast(double (&x)[Count], double *partial, unsigned *ticket)
{
  constexpr int   kOwn = Count - Given, kAtOnce = 4; /* sums that a thread asks for together: the grid waits for them */
  __shared__ bool last;
  double          own[kOwn];
#pragma unroll
  for (int c = 0; c < kOwn; c++) own[c] = x[c];
  BlockSum(own);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int c = 0; c < kOwn; c++) partial[c * gridDim.x + blockIdx.x] = own[c];
    __threadfence();
    last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return false;
  __threadfence();
#pragma unroll
  for (int c = 0; c < Count; c++) x[c] = 0;
  for (unsigned first = threadIdx.x; first < gridDim.x; first += kAtOnce * blockDim.x) {
    double some[kAtOnce][Count];
#pragma unroll
    for (int t = 0; t < kAtOnce; t++)
#pragma unroll
      for (int c = 0; c < Count; c++)
        some[t][c] = first + t * blockDim.x < gridDim.x ? __ldcg(partial + c * gridDim.x + first + t * blockDim.x) : 0.;
#pragma unroll
    for (int t = 0; t < kAtOnce; t++)
#pragma unroll
      for (int c = 0; c < Count; c++) x[c] += some[t][c];
  }
  BlockSum(x);
  return threadIdx.x == 0;
}

/* The sums that end an iteration, or the start. */
__device__ inline void FinishIteration(CGState *state, double nn, double rz)
{
  if (state->s.stage == kCGStarting) {
    state->sums = CGSums{nn, rz};
    return;
  }
  CGScalars  s      = state->s;
  const auto record = DecideBeta(s, state->test, nn, rz);

  state->records[s.iteration % kCGRecords] = record;
  state->s                                 = s;
}
