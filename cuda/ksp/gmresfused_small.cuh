/*
   The small matrices of the fused GMRES on the GPU, by one block: from the sums over the basis to the coefficients of the next vector
   and its scale, and from the norm of that to the rotations and the test.
*/
#pragma once

#include "gmresfused.cuh"

/* Whether all of x are finite; all threads of the block get it. */
__device__ inline bool AreFinite(LocalInt count, const double *x)
{
  bool finite = true;
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) finite = finite && isfinite(x[k]);
  return __syncthreads_and(finite);
}

/*
   Row j of T: row [j + 1] = -T_j sum_i g_i T_i, i < j, beside its own diagonal entry T_j. The rows i go to the warps in turns, and
   the lanes are columns. All threads see `row` when it returns.
*/
__device__ inline void InvertRow(LocalInt j, const double *g, double diagonal, const GMRESSmallArrays &small, double *row)
{
  __shared__ double part[kGMRESWarps][kWarpSize];
  const LocalInt    ld   = small.restart + 1;
  const int         warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  for (LocalInt first = 0; first < j; first += kWarpSize) {
    const LocalInt k   = first + lane;
    double         sum = 0;
#pragma unroll 4
    for (LocalInt i = first + warp; i < j; i += kGMRESWarps)
      if (k <= i) sum += g[i] * small.T[(size_t)i * ld + k];
    part[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && k < j) {
      sum = 0;
      for (int w = 0; w < kGMRESWarps; w++) sum += part[w][lane];
      row[k] = -diagonal * sum;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) row[j] = diagonal;
  __syncthreads();
}

/* c [j] = T z for the rows before row j. A warp takes several rows at once, since the grid waits for it. */
__device__ inline void MultiplyInverse(LocalInt j, const double *z, const GMRESSmallArrays &small, double *c)
{
  constexpr int  kAtOnce = 4;
  const LocalInt ld      = small.restart + 1;
  const int      warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  for (LocalInt first = warp; first < j; first += kAtOnce * kGMRESWarps) {
    const LocalInt last       = min(first + (kAtOnce - 1) * kGMRESWarps, j - 1);
    double         x[kAtOnce] = {};
    for (LocalInt k = lane; k <= last; k += kWarpSize) {
#pragma unroll
      for (int t = 0; t < kAtOnce; t++) {
        const LocalInt i = first + t * kGMRESWarps;
        if (i <= last && k <= i) x[t] += small.T[(size_t)i * ld + k] * z[k];
      }
    }
#pragma unroll
    for (int t = 0; t < kAtOnce; t++) {
      const LocalInt i = first + t * kGMRESWarps;
      x[t]             = GroupSum<kWarpSize>(x[t]);
      if (lane == 0 && i <= last) c[i] = x[t];
    }
  }
}

/*
   GMRESSmallProject() by one block: from the sums with u_j, in shared memory, to c, and the scale of the next vector. In shared
   memory there is room for work [3 (j + 1)], too.
*/
__device__ inline void Project(LocalInt j, const double *sums, double *work, const GMRESSmallArrays &small, GMRESState *state)
{
  const LocalInt count = j + 1;
  const double  *z = sums, *g = sums + count;
  double *const  row = work, *const c = row + count, *const square = c + count;
  const double   ww   = g[count];
  const int      warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;

  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) square[k] = k < j ? small.square[k] : g[j];
  if (threadIdx.x == 0) {
    small.square[j] = g[j];
    small.norm[j]   = sqrt(g[j]);
  }
  const bool finite = AreFinite(2 * count + 1, sums);
  InvertRow(j, g, g[j] > 0 ? 1 / g[j] : 0., small, row);
  MultiplyInverse(j, z, small, c);
  if (warp == kGMRESWarps - 1) {
    double sum = 0;
    for (LocalInt k = lane; k < count; k += kWarpSize) sum += row[k] * z[k];
    sum = GroupSum<kWarpSize>(sum);
    if (lane == 0) c[j] = sum;
  }
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) small.T[(size_t)j * (small.restart + 1) + k] = row[k];
  __syncthreads();
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) small.c[k] = c[k];
  if (warp != 0) return;
  double in_basis = 0;
  for (LocalInt k = lane; k < count; k += kWarpSize) in_basis += square[k] * c[k] * c[k];
  in_basis = GroupSum<kWarpSize>(in_basis);
  if (lane != 0) return;
  constexpr double kLost = 1e-28; /* of ww: the rounding of w */
  state->s.scale         = ww > 0 ? 1 / sqrt(fmax(ww - in_basis, kLost * ww)) : 1.;
  if (!finite) {
    GMRESScalars s = state->s;
    Stop(s, GMRES_NOT_FINITE, nan(""));
    state->s = s;
  }
}

/*
   GMRESSmallAppend() by one block, and the tests that end an iteration. Thread 0 has the square of the norm of u_{j+1}. H and R are
   the columns that are made; c and work [2 j] are in shared memory, and c is the same as R then.
*/
__device__ inline void Append(LocalInt j, double square, double *c, double *work, double *H, double *R,
                              const GMRESSmallArrays &small, GMRESState *state)
{
  const double  n_j    = small.norm[j];
  double *const cosine = work, *const sine = work + j;
  for (LocalInt k = threadIdx.x; k <= j; k += kGMRESBlock) {
    c[k] = n_j > 0 ? c[k] * (small.norm[k] / n_j) : 0.;
    H[k] = c[k];
    if (k < j) {
      cosine[k] = small.cosine[k];
      sine[k]   = small.sine[k];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    GMRESScalars s    = state->s;
    const double norm = sqrt(square), below = n_j > 0 ? norm / (s.scale * n_j) : 0., g = small.rhs[j];
    double       above = c[0];
    for (LocalInt k = 0; k < j; k++) {
      const double next = c[k + 1];
      c[k]              = cosine[k] * above + sine[k] * next;
      above             = cosine[k] * next - sine[k] * above;
    }
    const double length = sqrt(above * above + below * below);
    const bool   happy  = below < fmin(fabs(below / g), s.happy);
    const bool   empty  = happy ? above == 0 : length == 0;
    small.norm[j + 1]   = norm;
    H[j + 1]            = below;
    c[j]                = above;
    s.iteration++;
    if (!isfinite(below)) {
      s.iteration--; /* it is not complete */
      Stop(s, GMRES_NOT_FINITE, below);
    } else if (empty) Stop(s, GMRES_SINGULAR, s.norm);
    else {
      s.column = s.known = j + 1;
      s.norm             = 0;
      if (!happy) {
        const double cosine_j = above / length, sine_j = below / length;
        small.cosine[j]  = cosine_j;
        small.sine[j]    = sine_j;
        small.rhs[j]     = cosine_j * g;
        small.rhs[j + 1] = -sine_j * g;
        c[j]             = cosine_j * above + sine_j * below;
        s.norm           = fabs(sine_j * g);
      }
      if (!isfinite(s.norm)) Stop(s, GMRES_NOT_FINITE, s.norm);
      else if (Ends(state->test, s.iteration, s.norm)) Stop(s, GMRES_TEST, s.norm);
      else if (happy) Stop(s, GMRES_HAPPY, s.norm);
      else if (s.iteration >= state->test.max_it) Stop(s, GMRES_ITS, s.norm);
    }
    state->records[s.iteration % kCGRecords] = s.norm;
    state->s                                 = s;
  }
  __syncthreads();
  for (LocalInt k = threadIdx.x; k <= j; k += kGMRESBlock) R[k] = c[k];
}
