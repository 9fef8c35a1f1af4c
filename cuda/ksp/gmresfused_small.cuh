/*
   The small matrices of the fused GMRES on the GPU, by one block: from the sums over the basis to the coefficients of the next
   vector and its scale, and from the norm of that to the rotations and the test; and sums over the blocks of a grid that stays.
*/
#pragma once

#include "gmresfused.cuh"
#include "resident.cuh"

/* Gives out memory, one array behind the other. */
struct SharedDoubles {
  double *place;

  __device__ __forceinline__ double *Take(size_t count)
  {
    double *const here = place;
    place += count;
    return here;
  }
};

/* The small matrices of so many columns but H and R, which have SmallNumbers(). */
__host__ __device__ constexpr size_t SmallNumbers(size_t columns)
{
  return columns * (columns + 6);
}

__device__ __forceinline__ void TakeSmall(LocalInt restart, SharedDoubles &memory, GMRESSmallArrays *small)
{
  const size_t columns = (size_t)restart + 1;
  small->restart       = restart;
  small->T             = memory.Take(columns * columns);
  small->square        = memory.Take(columns);
  small->norm          = memory.Take(columns);
  small->rhs           = memory.Take(columns);
  small->cosine        = memory.Take(columns);
  small->sine          = memory.Take(columns);
  small->c             = memory.Take(columns);
}

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

/* What Project() makes. */
struct Projection {
  const double *c;      /* [j + 1] in shared memory, in `work` */
  double        scale;  /* of the next vector; the first warp has it */
  bool          finite; /* the sums are */
};

/*
   GMRESSmallProject() by one block: from the sums with u_j, in shared memory, to c and the scale of the next vector. In shared
   memory there is room for work [3 (j + 1)], too.
*/
__device__ inline Projection Project(LocalInt j, const double *sums, double *work, const GMRESSmallArrays &small)
{
  const LocalInt count = j + 1;
  const double  *z = sums, *g = sums + count;
  double *const row = work, *const c = row + count, *const square = c + count;
  const double ww   = g[count];
  const int    warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  Projection   out{c, 1, true};

  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) square[k] = k < j ? small.square[k] : g[j];
  if (threadIdx.x == 0) {
    small.square[j] = g[j];
    small.norm[j]   = sqrt(g[j]);
  }
  out.finite = AreFinite(2 * count + 1, sums);
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
  if (warp != 0) return out;
  double in_basis = 0;
  for (LocalInt k = lane; k < count; k += kWarpSize) in_basis += square[k] * c[k] * c[k];
  in_basis = GroupSum<kWarpSize>(in_basis);
  if (ww > 0) out.scale = 1 / sqrt(fmax(ww - in_basis, kGMRESLost * ww));
  return out;
}

/* The state with the scale of the next vector, by one thread. */
__device__ inline void TakeScale(const Projection &next, GMRESState *state)
{
  GMRESScalars s = state->s;
  if (s.stage != kCGRunning) return;
  s.scale = next.scale;
  if (!next.finite) Stop(s, GMRES_NOT_FINITE, nan(""));
  state->s = s;
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

/* ---------------------------------------- over the grid --------------------------------------- */

/* Numbers that are summed over the grid at most: u_k.w, u_k.u_last, w.w. */
__host__ __device__ constexpr LocalInt GMRESMostSums(LocalInt restart)
{
  return 2 * restart + 3;
}

/* The sum of so many words, when they have come, which every lane of the warp gets. The order is always the same. */
__device__ __forceinline__ double AwaitSum(const uint4 *words, int many, unsigned turn)
{
  double x = 0;
#pragma unroll 1
  for (int first = threadIdx.x % kWarpSize; first < many; first += kResidentPolls * kWarpSize) {
    uint4 word[kResidentPolls];
    bool  wait = true;
    while (wait) {
      wait = false;
#pragma unroll
      for (int k = 0; k < kResidentPolls; k++)
        if (first + k * kWarpSize < many) {
          word[k] = LoadWord(words + first + k * kWarpSize);
          wait    = wait || !HasCome(word[k], turn);
        }
    }
#pragma unroll
    for (int k = 0; k < kResidentPolls; k++)
      if (first + k * kWarpSize < many) x += NumberOf(word[k]);
  }
  return GroupSum<kWarpSize>(x);
}

/* Each of so many numbers is summed by one warp of these blocks, from its parts, words[number][parts], into a word of the totals.
 */
__device__ __forceinline__ void AddParts(LocalInt count, int parts, const uint4 *words, int block, int blocks, uint4 *totals,
                                         unsigned turn)
{
#pragma unroll 1
  for (LocalInt s = block + (int)(threadIdx.x / kWarpSize) * blocks; s < count; s += kGMRESWarps * blocks) {
    const double sum = AwaitSum(words + (size_t)s * parts, parts, turn);
    if (threadIdx.x % kWarpSize == 0) WriteWord(totals + s, sum, turn);
  }
}
