/*
   The small matrices of the fused GMRES on the GPU, by one block: from the sums over the basis to the coefficients of the next
   vectors and their scales, and from the norms of these to the rotations and the tests; and sums over the blocks of a grid that
   stays.
*/
#pragma once

#include "gmresfused.cuh"

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
__host__ __device__ constexpr size_t SmallNumbers(size_t columns, int step)
{
  return columns * (columns + 5 + step);
}

__device__ __forceinline__ void TakeSmall(LocalInt restart, int step, SharedDoubles &memory, GMRESSmallArrays *small)
{
  const size_t columns = (size_t)restart + 1;
  small->restart       = restart;
  small->T             = memory.Take(columns * columns);
  small->square        = memory.Take(columns);
  small->norm          = memory.Take(columns);
  small->rhs           = memory.Take(columns);
  small->cosine        = memory.Take(columns);
  small->sine          = memory.Take(columns);
  small->c             = memory.Take(step * columns);
}

/* Whether all of x are finite; all threads of the block get it. */
__device__ inline bool AreFinite(LocalInt count, const double *x)
{
  bool finite = true;
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) finite = finite && isfinite(x[k]);
  return __syncthreads_and(finite);
}

/* What Project() works with in shared memory beside the sums. */
__host__ __device__ constexpr size_t ProjectNumbers(size_t columns, int step)
{
  return (2 * step + 1) * columns;
}

/*
   The rows of T for the vectors base .. count - 1, of which there are Step at most: row_t [count] is that of vector count - Step +
   t, with g_t the products of this vector with those before it. The rows of T before these go to the warps in turns, and the lanes
   are columns. All threads see the rows when it returns.
*/
template <int Step>
__device__ inline void InvertRows(LocalInt base, LocalInt count, const double *g, const GMRESSmallArrays &small, double *rows)
{
  __shared__ double part[Step][kGMRESWarps][kWarpSize];
  const LocalInt    ld   = small.restart + 1;
  const int         warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  double            over[Step]; /* one over D */
#pragma unroll
  for (int t = 0; t < Step; t++) {
    const LocalInt l = count - Step + t;
    const double   d = l >= base ? g[t * count + l] : 0;
    over[t]          = d > 0 ? 1 / d : 0;
  }
  for (LocalInt first = 0; first < base; first += kWarpSize) {
    const LocalInt k         = first + lane;
    double         sum[Step] = {};
#pragma unroll 4
    for (LocalInt i = first + warp; i < base; i += kGMRESWarps)
      if (k <= i) {
        const double entry = small.T[(size_t)i * ld + k];
#pragma unroll
        for (int t = 0; t < Step; t++) sum[t] += g[t * count + i] * entry;
      }
#pragma unroll
    for (int t = 0; t < Step; t++) part[t][warp][lane] = sum[t];
    __syncthreads();
    if (warp == 0 && k < base) {
      double above = 0; /* of the row before, if it is a new one */
#pragma unroll
      for (int t = 0; t < Step; t++) {
        const LocalInt l = count - Step + t;
        if (l < base) continue;
        double total = 0;
        for (int w = 0; w < kGMRESWarps; w++) total += part[t][w][lane];
        if (l > base) total += g[t * count + l - 1] * above;
        above               = -over[t] * total;
        rows[t * count + k] = above;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
#pragma unroll
    for (int t = 0; t < Step; t++) {
      const LocalInt l = count - Step + t;
      if (l < base) continue;
      if (l > base) rows[t * count + l - 1] = -over[t] * g[t * count + l - 1] * rows[(t - 1) * count + l - 1];
      rows[t * count + l] = over[t];
    }
  }
  __syncthreads();
}

/* c_s = T z_s for the rows before row `base`, s < Step. A warp takes several rows at once, since the grid waits for it. */
template <int Step>
__device__ inline void MultiplyInverse(LocalInt base, LocalInt count, const double *z, const GMRESSmallArrays &small, double *c)
{
  constexpr int  kAtOnce = 4;
  const LocalInt ld      = small.restart + 1;
  const int      warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  for (LocalInt first = warp; first < base; first += kAtOnce * kGMRESWarps) {
    const LocalInt last             = min(first + (kAtOnce - 1) * kGMRESWarps, base - 1);
    double         x[kAtOnce][Step] = {};
    for (LocalInt k = lane; k <= last; k += kWarpSize) {
#pragma unroll
      for (int t = 0; t < kAtOnce; t++) {
        const LocalInt i = first + t * kGMRESWarps;
        if (i <= last && k <= i) {
          const double entry = small.T[(size_t)i * ld + k];
#pragma unroll
          for (int s = 0; s < Step; s++) x[t][s] += entry * z[s * count + k];
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kAtOnce; t++) {
      const LocalInt i = first + t * kGMRESWarps;
#pragma unroll
      for (int s = 0; s < Step; s++) {
        x[t][s] = GroupSum<kWarpSize>(x[t][s]);
        if (lane == 0 && i <= last) c[s * count + i] = x[t][s];
      }
    }
  }
}

/* What Project() makes. */
template <int Step>
struct Projection {
  const double *c; /* [Step][j + 1] in shared memory, in `work` */
  double        e; /* of two: u_{j+1}.(w_1 - U c_1); the first warp has it, and what follows */
  double        scale[Step];
  bool          second;  /* the second vector is of use, */
  double        lacking; /* but lacks so much in being orthogonal to the first one */
  bool          finite;  /* the sums are; all threads have it */
};

/*
   GMRESSmallProject() by one block: from the sums, in shared memory, of which u_j is the newest vector, to the coefficients and
   scales of the next ones. So many vectors are new since the last call. In shared memory there is room for work
   [ProjectNumbers()], too.
*/
template <int Step>
__device__ inline Projection<Step> Project(LocalInt j, LocalInt fresh, const double *sums, double *work,
                                           const GMRESSmallArrays &small)
{
  const LocalInt count = j + 1, base = count - fresh, ld = small.restart + 1;
  const double  *z = sums, *g = sums + Step * count, *ww = sums + 2 * Step * count;
  double *const rows = work, *const c = rows + Step * count, *const square = c + Step * count;
  const int        warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  Projection<Step> out{c, 0, {}, true, 0, true};

  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) {
    const double mine = k < base ? small.square[k] : g[(k - count + Step) * count + k];
    square[k]         = mine;
    if (k < base) continue;
    small.square[k] = mine;
    small.norm[k]   = sqrt(mine);
  }
  out.finite = AreFinite(GMRESSumsOf(count, Step), sums);
  InvertRows<Step>(base, count, g, small, rows);
  MultiplyInverse<Step>(base, count, z, small, c);
#pragma unroll
  for (int t = 0; t < Step; t++) {
    const LocalInt l = count - Step + t;
#pragma unroll
    for (int s = 0; s < Step; s++) {
      if (l < base || warp != kGMRESWarps - 1 - (t * Step + s)) continue;
      double sum = 0;
      for (LocalInt k = lane; k <= l; k += kWarpSize) sum += rows[t * count + k] * z[s * count + k];
      sum = GroupSum<kWarpSize>(sum);
      if (lane == 0) c[s * count + l] = sum;
    }
    if (l < base) continue;
    for (LocalInt k = threadIdx.x; k <= l; k += kGMRESBlock) small.T[(size_t)l * ld + k] = rows[t * count + k];
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < Step; s++)
    for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) small.c[s * ld + k] = c[s * count + k];
  if (warp != 0) return out;
  double in_basis[Step * (Step + 1) / 2] = {};
  for (LocalInt k = lane; k < count; k += kWarpSize) {
#pragma unroll
    for (int t = 0; t < Step; t++)
#pragma unroll
      for (int s = 0; s <= t; s++) in_basis[t * (t + 1) / 2 + s] += square[k] * c[s * count + k] * c[t * count + k];
  }
#pragma unroll
  for (int t = 0; t < Step * (Step + 1) / 2; t++) in_basis[t] = ww[t] - GroupSum<kWarpSize>(in_basis[t]);
  out.scale[0] = ww[0] > 0 ? 1 / sqrt(fmax(in_basis[0], kGMRESLost * ww[0])) : 1.;
  if (Step == 1) return out;
  constexpr int kMixed = Step - 1, kLast = (Step * (Step + 1) / 2) - 1; /* w_0.w_1 and w_1.w_1 */
  const double  rest  = in_basis[kLast] - (out.scale[0] * in_basis[kMixed]) * (out.scale[0] * in_basis[kMixed]);
  out.e               = out.scale[0] * in_basis[kMixed];
  out.scale[Step - 1] = ww[kLast] > 0 ? 1 / sqrt(fmax(rest, kGMRESLost * ww[kLast])) : 1.;
  const double second = rest / ww[kLast], left = in_basis[0] / ww[0] * fmax(second, kGMRESNothing);
  out.second = in_basis[0] > kGMRESSecond * ww[0] && ww[kLast] > kGMRESSecondLeast &&
               (second < kGMRESNothing || left > kGMRESSecond * kGMRESSecond);
  out.lacking = out.second ? kGMRESRounding / sqrt(left) : 0.;
  if (lane == 0) small.c[(Step - 1) * ld + count] = out.e;
  return out;
}

/*
   The state with the scales of the next vectors, by one thread. Where two products were made and a sum is not finite, the second
   one may be what has overflowed.
*/
template <int Step>
__device__ inline void TakeScale(const Projection<Step> &next, LocalInt products, GMRESState *state)
{
  GMRESScalars s = state->s;
  if (s.stage != kCGRunning) return;
#pragma unroll
  for (int t = 0; t < Step; t++) s.scale[t] = next.scale[t];
  s.second = next.second;
  if (products > 1) s.lacking = fmax(s.lacking, next.lacking);
  if (!next.finite) {
    if (products > 1) Stop(s, GMRES_SECOND, s.norm);
    else Stop(s, GMRES_NOT_FINITE, nan(""));
  }
  state->s = s;
}

/*
   Column j of the Hessenberg matrix but the entry below its diagonal, by one block, for product `number` of its step: c [j + 1], in
   shared memory, are the coefficients of this product, and become the entries. The result, which all threads get, is what the norm
   of u_{j+1} has to be multiplied with for the entry below. H is of use for a second product, and has the columns before.
*/
__device__ inline double HessenbergColumn(LocalInt j, LocalInt number, double *c, const GMRESSmallArrays &small,
                                          const GMRESScalars &s)
{
  const LocalInt first  = j - number;
  const double   n      = small.norm[first];
  double         factor = n > 0 ? 1 / (s.scale[number] * n) : 0.;
  for (LocalInt k = threadIdx.x; k <= j; k += kGMRESBlock) c[k] = n > 0 ? c[k] * (small.norm[k] / n) : 0.;
  if (number) {
    const double *before = small.H + (size_t)first * small.rows; /* the column of the first product, which is complete */
    const double  below = before[j], over = below > 0 ? 1 / below : 0.;
    for (LocalInt l = threadIdx.x; l <= j; l += kGMRESBlock) {
      double sum = c[l];
#pragma unroll 8
      for (LocalInt k = max(l - 1, 0); k <= first; k++) sum -= small.H[(size_t)k * small.rows + l] * before[k];
      c[l] = over * sum;
    }
    factor *= over;
  }
  __syncthreads();
  return factor;
}

/*
   GMRESSmallAppend() by one block, and the tests that end an iteration. Thread 0 has the square of the norm of u_{j+1}, of which
   `factor` times the norm is the entry below the diagonal. c, the entries of H, and work [2 j] are in shared memory, and c has the
   entries of R then.
*/
__device__ inline void Append(LocalInt j, double square, double factor, double *c, double *work, const GMRESSmallArrays &small,
                              GMRESState *state)
{
  const size_t  column = (size_t)j * small.rows;
  double *const cosine = work, *const sine = work + j, *const H = small.H + column, *const R = small.R + column;
  for (LocalInt k = threadIdx.x; k <= j; k += kGMRESBlock) {
    H[k] = c[k];
    if (k < j) {
      cosine[k] = small.cosine[k];
      sine[k]   = small.sine[k];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    GMRESScalars s    = state->s;
    const double norm = sqrt(square), below = norm * factor, g = small.rhs[j];
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
      s.column = s.small_columns = j + 1;
      s.norm                     = 0;
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
      else if (s.norm < kGMRESSecondReach * s.lacking * s.cycle_norm) Stop(s, GMRES_CUT, s.norm);
    }
    state->records[s.iteration % kCGRecords] = s.norm;
    state->s                                 = s;
  }
  __syncthreads();
  for (LocalInt k = threadIdx.x; k <= j; k += kGMRESBlock) R[k] = c[k];
}

/*
   The ends of the iterations of a step that has made so many vectors behind u_first, by one block: c_s [first + s + 1] at place s
   ld of c are the coefficients, in shared memory, which become others, and thread 0 has the squares of the norms. H and R are kept
   in `small`. work [2 (first + step)] is in shared memory. The method stops where the second product is of no use.
*/
template <int Step>
__device__ inline void EndStep(LocalInt first, LocalInt made, const double (&squares)[Step], double *c, LocalInt ld, double *work,
                               const GMRESSmallArrays &small, GMRESState *state)
{
#pragma unroll
  for (int s = 0; s < Step; s++) {
    if (s >= made || state->s.stage != kCGRunning) return; /* all threads of the block agree */
    if (s && !state->s.second) {
      __syncthreads();
      if (threadIdx.x == 0) Stop(state->s, GMRES_SECOND, state->s.norm);
      __syncthreads();
      return;
    }
    const LocalInt j      = first + s;
    const double   factor = HessenbergColumn(j, s, c + s * ld, small, state->s);
    Append(j, squares[s], factor, c + s * ld, work, small, state);
    __syncthreads();
  }
}

/* ---------------------------------------- over the grid --------------------------------------- */

constexpr int kGMRESPolls = 5; /* words of other blocks that a lane looks at together */

/* The sum of so many words, when they have come, which every lane of the warp gets. The order is always the same. */
__device__ __forceinline__ double AwaitSum(const uint4 *words, int many, unsigned turn)
{
  double x = 0;
#pragma unroll 1
  for (int first = threadIdx.x % kWarpSize; first < many; first += kGMRESPolls * kWarpSize) {
    uint4 word[kGMRESPolls];
    bool  wait = true;
    while (wait) {
      wait = false;
#pragma unroll
      for (int k = 0; k < kGMRESPolls; k++)
        if (first + k * kWarpSize < many) {
          word[k] = LoadWord(words + first + k * kWarpSize);
          wait    = wait || !HasCome(word[k], turn);
        }
    }
#pragma unroll
    for (int k = 0; k < kGMRESPolls; k++)
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
