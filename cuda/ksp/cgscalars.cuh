/*
   What CGFUSED and RRBCG share on the device: the scalars of the conjugate gradient method, the decisions about its end, and sums
   over a grid of blocks. The names of the scalars are those of cgfused.h.
*/
#pragma once

#include "launch.cuh"
#include "ranks/peers.cuh"
#include "ksp/fused.h"

/* The device keeps the records of so many iterations: the host must have seen a record before its place is used again. */
constexpr int kCGRecords = 512;

enum CGStage : int {
  kCGStarting, /* before the first iteration: the sums are left to the host, which makes the decisions about them */
  kCGRunning,
  kCGDecided, /* the method has come to its end, but the last iteration's step in x is still to be done */
  kCGStopped  /* nothing is left to do */
};

struct CGScalars {
  double   beta, betaold, delta, a, b;
  double   value;     /* the scalar that made the method stop */
  LocalInt iteration; /* iterations that are complete */
  LocalInt its;       /* the number of iterations that KSPCG gives where it stops so */
  CGStage  stage;
  CGStop   stop;
  int      several; /* sums are a rank's own ones: they are left in `own`, and decided about when those of all ranks are known */
  int      direct;  /* the kernel that has a rank's own sums adds them over the ranks, by `peers`; otherwise NCCL does so later */
  int      split;   /* of z.r and z.z there is a part by columns of other ranks, which comes after FinishIteration() */
  int      cycle;   /* r.r is added over the ranks, too: the next cycle of multigrid is scaled by it */
};

/* Sums of one rank, or of all of them; in one piece, since they are added over the ranks so. */
struct CGRankSums {
  double rr, nn, rz, delta;
};

/* What the kernels of a solver share, and what the host copies to see how far they are. */
struct CGState {
  CGScalars  s;
  CGTest     test;
  double     mean;                /* of RRBCG with a singular matrix: the mean of z, which has to be subtracted from z */
  double     nn;                  /* of CGFUSED: r.r, from the kernel that updates r to the kernel that decides */
  CGSums     sums;                /* the sums of the start */
  double     own_delta;           /* p.w of a rank's own columns, before the first iteration and on several ranks */
  CGRankSums own, all;            /* of CGFUSED on several ranks: of this rank, and of all ranks */
  double     dots[4];             /* sums that are for the host */
  unsigned   ticket;              /* blocks that are done with their part of a sum, see GridSumLast() */
  unsigned   posted;              /* see PostState() */
  CGRecord   records[kCGRecords]; /* that of iteration n is in place n % kCGRecords */
  RankPeers  peers;               /* of several ranks whose kernels write to one another; it stays from solve to solve */

  /* What a phase leaves to the next one, beside what comes after the records: see Mailbox::Begin(). */
  struct Kept {
    double mean, rr;
  };
  Kept Keep() const { return {mean, all.rr}; }
  void Restore(const Kept &kept)
  {
    mean   = kept.mean;
    all.rr = kept.rr;
  }
};

/* ------------------------------------------ scalars ------------------------------------------- */

__device__ __forceinline__ void Stop(CGScalars &s, CGStop stop, LocalInt its, double value, CGStage stage)
{
  s.stop  = stop;
  s.its   = its;
  s.value = value;
  s.stage = stage;
}

/* What follows from delta = p.w: the step a, or the end. */
__device__ __forceinline__ void DecideDelta(CGScalars &s, double delta)
{
  const double old = s.delta;
  s.delta          = delta;
  if (!isfinite(delta)) Stop(s, CG_DELTA_NOT_FINITE, s.iteration + 1, delta, kCGStopped);
  else if (delta == 0 || (s.iteration > 0 && ((delta > 0 && old < 0) || (delta < 0 && old > 0))))
    Stop(s, CG_INDEFINITE_MAT, s.iteration + 1, delta, kCGStopped);
  else s.a = s.beta / delta;
}

/*
   Ends an iteration, with nn of its norm and beta = r.z: gives its record, and leaves the new b, or the end. The tests, their order
   and the numbers of iterations are those of KSPCG.
*/
__device__ __forceinline__ CGRecord DecideBeta(CGScalars &s, const CGTest &test, double nn, double beta)
{
  const LocalInt n       = ++s.iteration;
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

/* The sum of each of x over the block. Thread 0 gets the sums; their order is always the same. */
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
   Whether the block is the last one of the grid that comes here: its thread 0 gets true. It may change then what all threads of the
   grid have read before they came.
*/
__device__ __forceinline__ bool IsLastHere(unsigned *ticket)
{
  __syncthreads();
  if (threadIdx.x != 0) return false;
  __threadfence();
  return atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
}

/*
   The sum of each of x over the grid, always in the same order. Each block leaves its part in partial [Count][blocks], and the
   block that comes last, by the ticket, adds the parts: its thread 0 alone has the sums and gets true. The parts of the last Given
   sums are already in `partial`: another kernel of as many blocks, ahead of this one, made them with BlockSum().
*/
template <int Count, int Given = 0>
__device__ bool GridSumLast(double (&x)[Count], double *partial, unsigned *ticket)
{
  constexpr int   kOwn = Count - Given, kAtOnce = 4; /* parts that a thread asks for together, since the grid waits for them */
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

/* Leaves a rank's own norm and r.z, and adds them over the ranks where kernels do so. One thread of the grid calls it. */
__device__ inline void LeaveSums(CGState *state, double nn, double rz)
{
  state->own.nn = nn;
  state->own.rz = rz;
  if (state->s.cycle) state->own.rr = state->nn;
  if (!state->s.direct) return;
  if (state->s.cycle) {
    double sums[3] = {state->nn, nn, rz};
    SumOverRanks(state->peers, sums, &state->all.rr);
    return;
  }
  double sums[2] = {nn, rz};
  SumOverRanks(state->peers, sums, &state->all.nn);
}

/* Takes the sums that end an iteration, or the start, and writes what follows from them. One thread of the grid calls it. */
__device__ inline void FinishIteration(CGState *state, double nn, double rz)
{
  if (state->s.several && state->s.split) { /* the other part is to be added yet */
    state->own.nn = nn;
    state->own.rz = rz;
    return;
  }
  if (state->s.several) {
    LeaveSums(state, nn, rz);
    return;
  }
  if (state->s.stage == kCGStarting) {
    state->sums = CGSums{nn, rz};
    return;
  }
  CGScalars  s      = state->s;
  const auto record = DecideBeta(s, state->test, nn, rz);

  state->records[s.iteration % kCGRecords] = record;
  state->s                                 = s;
}
