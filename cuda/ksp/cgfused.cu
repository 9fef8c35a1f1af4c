/* CUDA kernels of the fused conjugate gradient method: a sequence of kernels an iteration, or one that stays. */
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include <algorithm>
#include <cstring>

#include "buffer.cuh"
#include "cgscalars.cuh"
#include "sparse/slices.cuh"
#include "ksp/cgfused.h"

namespace
{

constexpr int kCGBlock        = 256; /* threads of a block in the sequence */
constexpr int kCGPerThread    = 4;   /* entries of vectors that a thread asks for at once */
constexpr int kCGBlocksOnChip = 5;   /* blocks of kCGBlock a processor, for vectors */
constexpr int kCGIterations   = 4;   /* of one launch of the graph */
constexpr int kCGInFlight     = 2;   /* launches that the host is ahead */
constexpr int kResidentBlock  = 512; /* threads of a block of the kernel that stays */
constexpr int kResidentWarps  = kResidentBlock / kWarpSize;
constexpr int kGhostLanes     = 4;    /* of a row of entries of other ranks */
constexpr int kResidentPolls  = 5;    /* slots that a lane looks at together */
constexpr int kResidentStatic = 3072; /* bytes of shared memory that the kernel declares, at most */

/* Of a block's own rows in shared memory: x, r, p, z, w, d. */
__host__ __device__ constexpr size_t ResidentVectorBytes(PetscInt rows)
{
  return (6 * (size_t)rows * sizeof(double) + sizeof(int4) - 1) / sizeof(int4) * sizeof(int4);
}

/* ---------------------------------------- the sequence ---------------------------------------- */

/* Blocks a processor of the products. */
template <bool Even, typename V>
constexpr int MultiplyBlocks()
{
  return Even && sizeof(V) == sizeof(float) ? 4 : 3;
}

/*
   Calls act(row, sum over the row of W) for all rows, once the kernel before has ended and if its decision lets this one go on.
   Blocks that are on the same processor, which come in turns of `processors`, take neighbouring slices: they share operands.
*/
template <int Lanes, bool Even, typename V, typename Vector, typename Act>
__device__ __forceinline__ bool Multiply(const Slices &W, int processors, const CGState *state, Vector x, Act act)
{
  const int turns = gridDim.x / processors, block = turns ? blockIdx.x % processors * turns + blockIdx.x / processors : blockIdx.x;
  const int warps = kCGBlock / kWarpSize;
  bool      idle  = false;
  StreamSlices<Lanes, Even, V>(
    W, block * warps + threadIdx.x / kWarpSize, gridDim.x * warps,
    [&]() {
      WaitForPrevious();
      LetNextStart();
      idle = state->s.stage >= kCGDecided;
    },
    x,
    [&](PetscInt row, double sum) {
      if (!idle) act(row, sum);
    });
  return !idle;
}

/*
   w = A p, delta = p.w. It is the first kernel of an iteration: after a decision, nothing is left to do. Outside of iterations
   delta is only kept.
*/
template <int Lanes, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, MultiplyBlocks<Even, V>())
  MultiplyOperator(Slices A, int processors, const double *p, double *w, double *partial, CGState *state)
{
  double     delta[1] = {0};
  const bool active   = Multiply<Lanes, Even, V>(
    A, processors, state, [=](PetscInt j) { return p[j]; },
    [&](PetscInt row, double sum) {
      w[row] = sum;
      delta[0] += p[row] * sum;
    });
  if (!active) {
    if (GridThread() == 0) state->s.stage = kCGStopped;
    return;
  }
  if (GridSumLast(delta, partial, &state->ticket)) {
    CGScalars s = state->s;
    if (s.stage == kCGRunning) DecideDelta(s, delta[0]);
    else s.delta = delta[0];
    state->s = s;
  }
}

/* t = d (r + W1 r) */
template <int Lanes, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, MultiplyBlocks<Even, V>())
  MultiplyFirst(Slices W1, int processors, const double *d, const double *r, double *t, const CGState *state)
{
  Multiply<Lanes, Even, V>(
    W1, processors, state, [=](PetscInt j) { return r[j]; }, [&](PetscInt row, double sum) { t[row] = d[row] * (r[row] + sum); });
}

/* z = t + W2 t; z.r, z.z */
template <int Lanes, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, MultiplyBlocks<Even, V>())
  MultiplySecond(Slices W2, int processors, const double *t, const double *r, double *z, double *partial, CGState *state)
{
  double     sums[2] = {0, 0};
  const bool active  = Multiply<Lanes, Even, V>(
    W2, processors, state, [=](PetscInt j) { return t[j]; },
    [&](PetscInt row, double sum) {
      const double z_row = t[row] + sum;
      z[row]             = z_row;
      sums[0] += z_row * z_row;
      sums[1] += z_row * r[row];
    });
  if (active && GridSumLast(sums, partial, &state->ticket))
    FinishIteration(state, state->test.norm == CG_NORM_PRECONDITIONED ? sums[0] : state->nn, sums[1]);
}

/* A thread's entries of a vector, kCGBlock apart; 0 beyond the last. */
struct Entries {
  double v[kCGPerThread];

  template <bool Stream = false>
  __device__ void Load(const double *from, PetscInt first, PetscInt n)
  {
#pragma unroll
    for (int k = 0; k < kCGPerThread; k++) {
      const PetscInt i = first + k * kCGBlock;
      v[k]             = i >= n ? 0. : Stream ? __ldcs(from + i) : from[i];
    }
  }
};

/*
   r = from - a w, without w r = from; r.r. With diagonal, M is d, or 1 where d is null, z = d r is not stored, and the sums are
   those of the iteration. `from` and d are not of the kernel before this one.
*/
template <bool Diagonal>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  UpdateResidual(PetscInt n, const double *from, const double *w, const double *d, double *r, double *partial, CGState *state)
{
  const PetscInt stride  = (PetscInt)(gridDim.x * kCGBlock * kCGPerThread);
  PetscInt       first   = (PetscInt)(blockIdx.x * kCGBlock * kCGPerThread + threadIdx.x);
  double         sums[2] = {0, 0};
  Entries        r_i, w_i, d_i;
  r_i.Load(from, first, n);
  if (Diagonal && d) d_i.Load(d, first, n);
  WaitForPrevious();
  LetNextStart();
  const CGStage stage          = state->s.stage;
  const double  a              = state->s.a;
  const bool    preconditioned = Diagonal && state->test.norm == CG_NORM_PRECONDITIONED;
  if (w) w_i.Load(w, first, n);
  if (stage >= kCGDecided) return;
  while (first < n) {
#pragma unroll
    for (int k = 0; k < kCGPerThread; k++) {
      const PetscInt i = first + k * kCGBlock;
      if (w) r_i.v[k] -= a * w_i.v[k];
      if (i < n) r[i] = r_i.v[k];
      const double z = Diagonal && d ? d_i.v[k] * r_i.v[k] : r_i.v[k];
      sums[0] += preconditioned ? z * z : r_i.v[k] * r_i.v[k];
      sums[1] += z * r_i.v[k];
    }
    first += stride;
    if (first >= n) break;
    r_i.Load(from, first, n);
    if (Diagonal && d) d_i.Load(d, first, n);
    if (w) w_i.Load(w, first, n);
  }
  if (GridSumLast(sums, partial, &state->ticket)) {
    if (Diagonal) FinishIteration(state, sums[0], sums[1]);
    else state->nn = sums[0];
  }
}

/*
   x = x + a p; p = z + b p, with z = d r, or r where d is null, where z is not stored. x and p are not of the kernel before this
   one.
*/
template <bool Diagonal>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  UpdateDirection(PetscInt n, const double *z, const double *d, double *x, double *p, const CGState *state)
{
  const PetscInt stride = (PetscInt)(gridDim.x * kCGBlock * kCGPerThread);
  PetscInt       first  = (PetscInt)(blockIdx.x * kCGBlock * kCGPerThread + threadIdx.x);
  Entries        x_i, p_i, z_i, d_i;
  x_i.Load<true>(x, first, n);
  p_i.Load(p, first, n);
  if (Diagonal && d) d_i.Load(d, first, n);
  WaitForPrevious();
  LetNextStart();
  const CGStage stage = state->s.stage;
  const double  a = state->s.a, b = state->s.b;
  const bool    more = stage != kCGDecided;
  z_i.Load(z, first, n);
  if (stage == kCGStopped) return;
  while (first < n) {
#pragma unroll
    for (int k = 0; k < kCGPerThread; k++) {
      const PetscInt i = first + k * kCGBlock;
      if (i >= n) continue;
      __stcs(x + i, x_i.v[k] + a * p_i.v[k]);
      if (more) p[i] = (Diagonal && d ? d_i.v[k] * z_i.v[k] : z_i.v[k]) + b * p_i.v[k];
    }
    first += stride;
    if (first >= n) break;
    x_i.Load<true>(x, first, n);
    p_i.Load(p, first, n);
    if (Diagonal && d) d_i.Load(d, first, n);
    z_i.Load(z, first, n);
  }
}

/* ------------------------------------ a rank among several ------------------------------------ */

/* p = z + b p, w = s + b w, x = x + a p, r = r - a w; and what UpdateResidual does with r, but that z = d r is stored. */
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

struct HasEntries {
  const PetscInt *i;

  __device__ bool operator()(PetscInt row) const { return i[row + 1] > i[row]; }
};

/* s = s + B ghosts in the rows that have such entries, kGhostLanes lanes a row, and the rank's sums. */
template <int Lanes>
__global__ void __launch_bounds__(kCGBlock) MultiplyGhosts(CSRView B, PetscInt count, const PetscInt *rows, const double *ghosts,
                                                           const double *z, double *s, double *partial, CGState *state)
{
  const PetscInt stride   = (PetscInt)(gridDim.x * kCGBlock / Lanes);
  double         delta[1] = {0};
  for (PetscInt k = (PetscInt)(GridThread() / kWarpSize) * (kWarpSize / Lanes); k < count; k += stride) {
    /* the same in all lanes */
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

/* ----------------------------------- one kernel that stays ------------------------------------ */

struct Resident {
  Slices        A, W1, W2;
  const double *d;
  double       *x, *r, *z, *p, *w, *t, *r_next, *p_next; /* the last two take turns with r and p */
  double       *slots;                                   /* [3][2][blocks] */
  PetscInt      rows;                                    /* of a block */
  int           steps;                                   /* iterations of this launch at most */
  size_t        bytes;                                   /* of shared memory */
  CGState      *state;
};

/* What no sum can be: a signalling NaN. */
constexpr unsigned long long kNotYet = 0x7FF4A5A5A5A5A5A5ull;

__global__ void ClearSlots(int count, double *slots)
{
  for (int k = threadIdx.x; k < count; k += blockDim.x) slots[k] = __longlong_as_double((long long)kNotYet);
}

__device__ inline double LoadRelaxed(const double *from)
{
  double value;
  asm volatile("ld.relaxed.gpu.global.f64 %0, [%1];" : "=d"(value) : "l"(from) : "memory");
  return value;
}

__device__ inline void StoreRelease(double *to, double value)
{
  asm volatile("st.release.gpu.global.f64 [%0], %1;" ::"l"(to), "d"(value) : "memory");
}

/*
   Barrier of the grid, and sums over it. Each block writes its part into a slot of its own, and reads those of all others as they
   come, always summed in the same order: one way to the L2 and one back. One thread of each block gets the sums and decides, the
   same in all blocks: double precision takes its time when all threads do it. Slots take three turns: those of the turn before are
   cleared while nobody reads them, and are clean for everyone by the time that they are written again.
*/
template <int Count, typename Decide>
__device__ __forceinline__ void GridSum(double (&x)[Count], double *slots, int *turn, Decide decide)
{
  __shared__ double part[Count][kResidentWarps];
  const int         warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize, blocks = (int)gridDim.x;
  double *const     here   = slots + (size_t)*turn * 2 * blocks;
  double *const     before = slots + (size_t)((*turn + 2) % 3) * 2 * blocks;
#pragma unroll
  for (int c = 0; c < Count; c++) {
    x[c] = GroupSum<kWarpSize>(x[c]);
    if (lane == 0) part[c][warp] = x[c];
  }
  __syncthreads(); /* everything that the block has written is before its release */
  if (warp == 0) {
#pragma unroll
    for (int c = 0; c < Count; c++) x[c] = GroupSum<kResidentWarps>(part[c][lane % kResidentWarps]);
#pragma unroll
    for (int c = 0; c < Count; c++)
      if (lane == c) StoreRelease(here + c * blocks + blockIdx.x, x[c]);
#pragma unroll
    for (int c = 0; c < Count; c++) x[c] = 0;
#pragma unroll 1
    for (int block = lane; block < blocks; block += kResidentPolls * kWarpSize) {
      double slot[Count][kResidentPolls];
      bool   wait = true;
      while (wait) {
        wait = false;
#pragma unroll
        for (int c = 0; c < Count; c++)
#pragma unroll
          for (int k = 0; k < kResidentPolls; k++) {
            const int other = block + k * kWarpSize;
            slot[c][k]      = other < blocks ? LoadRelaxed(here + c * blocks + other) : 0.;
          }
#pragma unroll
        for (int c = 0; c < Count; c++)
#pragma unroll
          for (int k = 0; k < kResidentPolls; k++) wait = wait || (unsigned long long)__double_as_longlong(slot[c][k]) == kNotYet;
      }
#pragma unroll
      for (int c = 0; c < Count; c++)
#pragma unroll
        for (int k = 0; k < kResidentPolls; k++) x[c] += slot[c][k];
    }
    __threadfence(); /* what others wrote before their release is there from here on */
    __syncwarp();    /* all blocks are here: none looks at the turn before */
    if (lane < 2) before[lane * blocks + blockIdx.x] = __longlong_as_double((long long)kNotYet);
#pragma unroll
    for (int c = 0; c < Count; c++) x[c] = GroupSum<kWarpSize>(x[c]);
    if (lane == 0) decide();
  }
  __syncthreads();
  *turn = (*turn + 1) % 3;
}

/* Elements first .. last of an array, copied to `to` in pieces of 16 bytes; where element 0 would be then. */
template <typename T>
__device__ T *CopyIn(const T *from, size_t first, size_t last, char *&to)
{
  const size_t begin = (size_t)(from + first) / sizeof(int4) * sizeof(int4),
               end   = ((size_t)(from + last) + sizeof(int4) - 1) / sizeof(int4) * sizeof(int4);
  char *const place  = to;
  for (size_t k = threadIdx.x; k < (end - begin) / sizeof(int4); k += blockDim.x) ((int4 *)place)[k] = ((const int4 *)begin)[k];
  to += end - begin;
  return (T *)(place + ((size_t)from - begin));
}

/* The block's slices of a resident copy, in shared memory if they fit into what is left of it. */
__device__ __forceinline__ void BringSlices(const Slices &from, Slices *A, PetscInt begin, PetscInt end, char *&to,
                                            const char *limit)
{
  const PetscInt first_step = from.step[begin], last_step = from.step[end];
  const size_t   first = (size_t)first_step * kWarpSize, last = (size_t)last_step * kWarpSize;
  const size_t   bytes =
    (last - first) * (sizeof(PetscInt) + sizeof(double)) + (end - begin + 1) * sizeof(PetscInt) + 3 * 2 * sizeof(int4);
  const bool fits = begin < end && to + bytes <= limit;
  if (threadIdx.x == 0) *A = from;
  if (!fits) return;
  PetscInt *const step   = CopyIn(from.step, begin, end + 1, to);
  PetscInt *const column = CopyIn((const PetscInt *)from.column, first, last, to);
  double *const   value  = CopyIn((const double *)from.value, first, last, to);
  if (threadIdx.x == 0) {
    A->step   = step;
    A->column = column;
    A->value  = value;
  }
}

/* Calls act(row of the block, sum over the row of W) in the first lane of every row of the block. */
template <int Lanes, typename Vector, typename Act>
__device__ __forceinline__ void ForRows(const Slices &W, PetscInt first, PetscInt begin, PetscInt end, Vector x, Act act)
{
#pragma unroll 1
  for (PetscInt slice = begin + threadIdx.x / kWarpSize; slice < end; slice += kResidentWarps) {
    const PetscInt row = SlicePlace<Lanes>(slice);
    const double   sum = SliceSum<Lanes>(W, slice, x);
    if (row < W.rows && threadIdx.x % Lanes == 0) act(row - first, sum);
  }
}

/*
   A block keeps the same rows, their part of the matrices, where it fits, and of the vectors in shared memory from the first
   iteration to the last. What others need goes through the L2: p = z + b p and r = r - a w are computed by whoever needs an entry,
   so that an iteration is two barriers, with a factored inverse three.
*/
template <int Lanes, bool Factored>
__global__ void __launch_bounds__(kResidentBlock, 1) Iterate(const Resident g)
{
  extern __shared__ int4 shared[];
  __shared__ Slices      A, W1, W2;
  __shared__ CGScalars   s;
  const PetscInt         n = g.A.rows, first = min((PetscInt)blockIdx.x * g.rows, n), count = min(g.rows, n - first);
  const PetscInt         per_slice = kWarpSize / Lanes, begin = first / per_slice,
                 end = count ? (first + count + per_slice - 1) / per_slice : begin;
  double *const x_s = (double *)shared, *const r_s = x_s + g.rows, *const p_s = r_s + g.rows, *const z_s = p_s + g.rows,
                *const w_s = z_s + g.rows, *const d_s = w_s + g.rows;
  char             *to    = (char *)shared + ResidentVectorBytes(g.rows);
  const char *const limit = (char *)shared + g.bytes;
  const CGNorm      norm  = g.state->test.norm;
  double           *p_old = g.p, *p_new = g.p_next, *r_old = g.r, *r_new = g.r_next;
  int               turn = 0;

  if (threadIdx.x == 0) s = g.state->s;
  BringSlices(g.A, &A, begin, end, to, limit);
  if constexpr (Factored) {
    BringSlices(g.W1, &W1, begin, end, to, limit);
    BringSlices(g.W2, &W2, begin, end, to, limit);
  }
  for (PetscInt i = threadIdx.x; i < count; i += kResidentBlock) {
    x_s[i] = g.x[first + i];
    r_s[i] = g.r[first + i];
    p_s[i] = g.p[first + i];
    z_s[i] = g.z[first + i];
    d_s[i] = g.d ? g.d[first + i] : 1.;
  }
  __syncthreads();

  for (int step = 0; step < g.steps && s.stage == kCGRunning; step++) {
    double       delta[1] = {0}, sums[2] = {0, 0};
    const double b = s.b;

    ForRows<Lanes>(
      A, first, begin, end, [=](PetscInt j) { return __ldcg(g.z + j) + b * __ldcg(p_old + j); },
      [&](PetscInt i, double sum) {
        const double p_i = z_s[i] + b * p_s[i];
        p_s[i]           = p_i;
        p_new[first + i] = p_i;
        w_s[i]           = sum;
        if (Factored) g.w[first + i] = sum;
        delta[0] += p_i * sum;
      });
    GridSum(delta, g.slots, &turn, [&]() { DecideDelta(s, delta[0]); });
    if (s.stage != kCGRunning) break;
    const double a = s.a;
    if constexpr (!Factored) {
      for (PetscInt i = threadIdx.x; i < count; i += kResidentBlock) {
        const double r_i = r_s[i] - a * w_s[i], z_i = d_s[i] * r_i;
        x_s[i] += a * p_s[i];
        r_s[i]         = r_i;
        z_s[i]         = z_i;
        g.z[first + i] = z_i;
        sums[0] += norm == CG_NORM_PRECONDITIONED ? z_i * z_i : r_i * r_i;
        sums[1] += z_i * r_i;
      }
    } else {
      double none[1] = {0};

      ForRows<Lanes>(
        W1, first, begin, end, [=](PetscInt j) { return __ldcg(r_old + j) - a * __ldcg(g.w + j); },
        [&](PetscInt i, double sum) {
          const double r_i = r_s[i] - a * w_s[i], t_i = d_s[i] * (r_i + sum);
          x_s[i] += a * p_s[i];
          r_s[i]           = r_i;
          r_new[first + i] = r_i;
          w_s[i]           = t_i;
          g.t[first + i]   = t_i;
        });
      GridSum(none, g.slots, &turn, []() { });
      ForRows<Lanes>(
        W2, first, begin, end, [=](PetscInt j) { return __ldcg(g.t + j); },
        [&](PetscInt i, double sum) {
          const double r_i = r_s[i], z_i = w_s[i] + sum;
          z_s[i]         = z_i;
          g.z[first + i] = z_i;
          sums[0] += norm == CG_NORM_PRECONDITIONED ? z_i * z_i : r_i * r_i;
          sums[1] += z_i * r_i;
        });
      double *const r_swap = r_old;
      r_old                = r_new;
      r_new                = r_swap;
    }
    double *const p_swap = p_old;
    p_old                = p_new;
    p_new                = p_swap;
    GridSum(sums, g.slots, &turn, [&]() {
      const CGRecord record = DecideBeta(s, g.state->test, sums[0], sums[1]);
      if (blockIdx.x == 0) g.state->records[s.iteration % kCGRecords] = record;
    });
  }

  for (PetscInt i = threadIdx.x; i < count; i += kResidentBlock) {
    g.x[first + i] = x_s[i];
    g.r[first + i] = r_s[i];
    g.p[first + i] = p_s[i];
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) g.state->s = s;
}

/* z = d r, or r where d is null */
__global__ void __launch_bounds__(kCGBlock) ScaleResidual(PetscInt n, const double *d, const double *r, double *z)
{
  const long long i = GridThread();
  if (i < n) z[i] = d ? d[i] * r[i] : r[i];
}

/* -------------------------------- vector operations one by one -------------------------------- */

__global__ void __launch_bounds__(kCGBlock)
  StepVectors(PetscInt n, double a, const double *__restrict__ p, const double *__restrict__ w, double *__restrict__ x,
              double *__restrict__ r)
{
  const long long i = GridThread();
  if (i >= n) return;
  x[i] += a * p[i];
  r[i] -= a * w[i];
}

__global__ void __launch_bounds__(kCGBlock) DotVectors(PetscInt n, const double *__restrict__ z, const double *__restrict__ r,
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

__global__ void __launch_bounds__(kCGBlock)
  DirectVectors(PetscInt n, double b, const double *__restrict__ z, double *__restrict__ p, const double *__restrict__ s,
                double *__restrict__ w)
{
  const long long i = GridThread();
  if (i >= n) return;
  p[i] = z[i] + b * p[i];
  if (s) w[i] = s[i] + b * w[i];
}

} // namespace

/* -------------------------------------- the host's side --------------------------------------- */

struct CGFusedWork {
  int                processors = 0;
  bool               early      = false; /* kernels may begin before the one ahead has ended */
  size_t             room       = 0;     /* shared memory of a resident block, bytes */
  Slices             A{}, W1{}, W2{};
  bool               factored = false, resident = false;
  long               streams = 0;       /* solves of a rank among several, */
  cudaStream_t       stream  = nullptr; /* the last one's stream, */
  bool               foreign = false;   /* and whether they had more than one */
  bool               uneven  = false;   /* padding makes these operators too large for the resident kernel */
  const PetscScalar *d       = nullptr;
  CGFusedVectors     v{};
  PetscInt           rows   = 0; /* of a resident block */
  int                blocks = 0; /* of the resident kernel */
  Buffer<double>     t;          /* and w, r, p of the resident kernel */
  Buffer<double>     partial, slots;
  CSRView            B{}; /* of a rank among several */
  PetscInt           ghost_count = 0;
  Buffer<PetscInt>   ghost_rows; /* those of B that have entries, and their number */
  Buffer<char>       ghost_select;
  Buffer<CGState>    state;
  CGState           *seen[kCGInFlight]  = {}; /* the host's copies */
  cudaEvent_t        event[kCGInFlight] = {};
  cudaStream_t       capture            = nullptr;
  cudaGraphExec_t    graph              = nullptr;
  struct Captured {
    Slices             A, W1, W2;
    const PetscScalar *d;
    PetscScalar       *x, *r, *z, *p, *t;
  } captured{};
  long     launched = 0, arrived = 0; /* of this solve */
  PetscInt reported = 0;              /* iterations that the caller knows of */
  CGRecord records[kCGRecords];
};

namespace
{

/* Calls f(Even, V()) for the kind of copy. */
template <typename F>
PetscErrorCode WithKind(const Slices &A, F f)
{
  if (A.even) return A.single ? f(std::true_type(), float()) : f(std::true_type(), double());
  return A.single ? f(std::false_type(), float()) : f(std::false_type(), double());
}

/* Calls f with the number of lanes a row as a constant: the one place where it becomes one. */
template <typename F>
PetscErrorCode WithLanes(PetscInt lanes, F f)
{
  switch (lanes) {
  case 1: return f(std::integral_constant<int, 1>());
  case 2: return f(std::integral_constant<int, 2>());
  case 4: return f(std::integral_constant<int, 4>());
  case 8: return f(std::integral_constant<int, 8>());
  case 16: return f(std::integral_constant<int, 16>());
  default: return f(std::integral_constant<int, 32>());
  }
}

int SliceBlocks(const CGFusedWork *work, const Slices &A)
{
  const int blocks = BlocksFor((long long)A.count * kWarpSize, kCGBlock);
  return blocks < work->processors
           ? blocks
           : std::min((A.even && A.single ? MultiplyBlocks<true, float>() : MultiplyBlocks<false, double>()),
                      (blocks + work->processors - 1) / work->processors) *
               work->processors;
}

int VectorBlocks(const CGFusedWork *work)
{
  return std::max(1, std::min(BlocksFor(work->A.rows, kCGBlock * kCGPerThread), work->processors * kCGBlocksOnChip));
}

/* Of kernels of a thread an entry that make sums. */
int SumBlocks(const CGFusedWork *work, PetscInt n)
{
  return std::max(1, std::min(BlocksFor(n, kCGBlock), work->processors * kCGBlocksOnChip));
}

PetscErrorCode LaunchOperator(CGFusedWork *work, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(WithLanes(work->A.lanes, [&](auto lanes) {
    return WithKind(work->A, [&](auto even, auto value) {
      return LaunchEarly(early, MultiplyOperator<lanes, even, decltype(value)>, SliceBlocks(work, work->A), kCGBlock, stream,
                         work->A, work->processors, p, w, work->partial.data(), work->state.data());
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = W2 D W1 r, with its sums */
PetscErrorCode LaunchInverse(CGFusedWork *work, bool early, const PetscScalar *r, PetscScalar *z, cudaStream_t stream)
{
  CGState *const state  = work->state.data();
  double *const partial = work->partial.data(), *const t = work->t.data();

  PetscFunctionBegin;
  PetscCall(WithLanes(work->W1.lanes, [&](auto lanes) {
    return WithKind(work->W1, [&](auto even, auto value) {
      return LaunchEarly(early, MultiplyFirst<lanes, even, decltype(value)>, SliceBlocks(work, work->W1), kCGBlock, stream,
                         work->W1, work->processors, work->d, r, t, state);
    });
  }));
  PetscCall(WithLanes(work->W2.lanes, [&](auto lanes) {
    return WithKind(work->W2, [&](auto even, auto value) {
      return LaunchEarly(early, MultiplySecond<lanes, even, decltype(value)>, SliceBlocks(work, work->W2), kCGBlock, stream,
                         work->W2, work->processors, t, r, z, partial, state);
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* r = from - a w, then z = M r with its sums */
PetscErrorCode LaunchResidual(CGFusedWork *work, bool early, const PetscScalar *from, const PetscScalar *w, cudaStream_t stream)
{
  const CGFusedVectors &v       = work->v;
  CGState *const        state   = work->state.data();
  double *const         partial = work->partial.data();
  const PetscInt        n       = work->A.rows;

  PetscFunctionBegin;
  if (work->factored) {
    PetscCall(
      LaunchEarly(early, UpdateResidual<false>, VectorBlocks(work), kCGBlock, stream, n, from, w, nullptr, v.r, partial, state));
    PetscCall(LaunchInverse(work, early, v.r, v.z, stream));
  } else {
    PetscCall(
      LaunchEarly(early, UpdateResidual<true>, VectorBlocks(work), kCGBlock, stream, n, from, w, work->d, v.r, partial, state));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchDirection(CGFusedWork *work, bool early, cudaStream_t stream)
{
  const CGFusedVectors &v = work->v;

  PetscFunctionBegin;
  if (work->factored)
    PetscCall(LaunchEarly(early, UpdateDirection<false>, VectorBlocks(work), kCGBlock, stream, work->A.rows, v.z, nullptr, v.x, v.p,
                          work->state.data()));
  else
    PetscCall(LaunchEarly(early, UpdateDirection<true>, VectorBlocks(work), kCGBlock, stream, work->A.rows, v.r, work->d, v.x, v.p,
                          work->state.data()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* kCGIterations iterations as a graph, kept as long as it is about the same arrays. */
PetscErrorCode CaptureIterations(CGFusedWork *work)
{
  CGFusedWork::Captured now;
  cudaGraph_t           graph;

  PetscFunctionBegin;
  memset(&now, 0, sizeof(now)); /* with its padding, which is compared */
  now.A  = work->A;
  now.W1 = work->W1;
  now.W2 = work->W2;
  now.d  = work->d;
  now.x  = work->v.x;
  now.r  = work->v.r;
  now.z  = work->v.z;
  now.p  = work->v.p;
  now.t  = work->t.data();
  if (work->graph && !memcmp(&now, &work->captured, sizeof(now))) PetscFunctionReturn(PETSC_SUCCESS);
  if (work->graph) PetscCallCUDA(cudaGraphExecDestroy(work->graph));
  work->graph = nullptr;
  if (!work->capture) PetscCallCUDA(cudaStreamCreateWithFlags(&work->capture, cudaStreamNonBlocking));
  PetscCallCUDA(cudaStreamBeginCapture(work->capture, cudaStreamCaptureModeThreadLocal));
  const auto launch = [&]() {
    PetscFunctionBegin;
    for (int k = 0; k < kCGIterations; k++) {
      PetscCall(LaunchOperator(work, work->early, work->v.p, work->v.z, work->capture));
      PetscCall(LaunchResidual(work, work->early, work->v.r, work->v.z, work->capture));
      PetscCall(LaunchDirection(work, work->early, work->capture));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  const PetscErrorCode launched = launch();
  const cudaError_t    captured = cudaStreamEndCapture(work->capture, &graph); /* in any case, for the stream to be of use again */
  PetscCall(launched);
  PetscCallCUDA(captured);
  PetscCallCUDA(cudaGraphInstantiate(&work->graph, graph, 0));
  PetscCallCUDA(cudaGraphDestroy(graph));
  memcpy(&work->captured, &now, sizeof(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchResident(CGFusedWork *work, cudaStream_t stream)
{
  const size_t  n = work->A.rows;
  double *const t = work->t.data();
  Resident g{work->A,   work->W1,  work->W2,           work->d,    work->v.x,  work->v.r,  work->v.z,         work->v.p, t + n, t,
             t + 2 * n, t + 3 * n, work->slots.data(), work->rows, kCGRecords, work->room, work->state.data()};
  void    *args[] = {&g};

  PetscFunctionBegin;
  ClearSlots<<<1, kResidentBlock, 0, stream>>>(3 * 2 * work->blocks, work->slots.data());
  FinePCCheckLaunch();
  PetscCall(WithLanes(work->A.lanes, [&](auto lanes) {
    void (*const kernel)(Resident) = work->factored ? Iterate<lanes, true> : Iterate<lanes, false>;

    PetscFunctionBegin;
    PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)work->room));
    PetscCallCUDA(cudaLaunchCooperativeKernel(kernel, dim3(work->blocks), dim3(kResidentBlock), args, work->room, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lanes a row in the sequence: as many as bring the mean slice into a stage. */
PetscInt SequenceLanes(PetscInt rows, PetscInt nnz)
{
  PetscInt lanes = 1;
  while (lanes < kWarpSize && nnz > (long long)rows * lanes * kSliceSteps) lanes *= 2;
  return lanes;
}

/*
   The resident kernel's lanes a row, those with the fewest steps one after the other, a turn being some steps' worth of latency in
   itself; and its rows a block, fewer blocks than processors where these would have less than a row for each of their groups of
   lanes.
*/
void ResidentGeometry(const CGFusedWork *work, PetscInt rows, PetscInt nnz, PetscInt *lanes, PetscInt *block_rows)
{
  constexpr PetscInt kTurnWorth = 8;
  const PetscInt     least = (rows + work->processors - 1) / work->processors, mean = nnz / rows + 1;
  PetscInt           best = PETSC_INT_MAX;
  for (PetscInt some = 1; some <= kWarpSize; some *= 2) {
    const PetscInt turns = (least * some + kResidentBlock - 1) / kResidentBlock,
                   cost  = turns * ((mean + some - 1) / some + kTurnWorth);
    if (cost < best) {
      best   = cost;
      *lanes = some;
    }
  }
  const PetscInt per_slice = kWarpSize / *lanes, full = PetscMax(least, kResidentBlock / *lanes);
  *block_rows = (full + per_slice - 1) / per_slice * per_slice;
}

constexpr PetscInt kResidentRows  = 200000;              /* up to which the resident kernel is chosen */
constexpr size_t   kResidentBytes = kSliceResidentBytes; /* of the matrices, the same */

PetscErrorCode Wait(CGFusedWork *work)
{
  PetscFunctionBegin;
  for (; work->arrived < work->launched; work->arrived++)
    PetscCallCUDA(cudaEventSynchronize(work->event[work->arrived % kCGInFlight]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The state of the beginning, from the host's first copy of it, which nothing is on the way to. */
PetscErrorCode Upload(CGFusedWork *work, const CGScalars &s, const CGTest &test, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Wait(work));
  CGState *const from = work->seen[0];
  from->s             = s;
  from->test          = test;
  from->nn            = 0;
  from->sums          = CGSums{};
  from->ticket        = 0;
  PetscCallCUDA(cudaMemcpyAsync(work->state.data(), from, offsetof(CGState, records), cudaMemcpyHostToDevice, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Download(CGFusedWork *work, cudaStream_t stream)
{
  const int slot = (int)(work->launched % kCGInFlight);

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemcpyAsync(work->seen[slot], work->state.data(), sizeof(CGState), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaEventRecord(work->event[slot], stream));
  work->launched++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CGFusedCreate_CUDA(CGFusedWork **work_out)
{
  CGFusedWork *const work = *work_out = new CGFusedWork();
  cudaStream_t       stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(ProcessorCount(&work->processors));
  PetscCall(SharedMemoryLimit(&work->room));
  work->room -= kResidentStatic;
  PetscCall(KnowsToWait((const void *)UpdateResidual<true>, &work->early));
  PetscCallCUDA(cudaMallocHost(&work->seen[0], kCGInFlight * sizeof(CGState)));
  for (int k = 0; k < kCGInFlight; k++) {
    work->seen[k] = work->seen[0] + k;
    PetscCallCUDA(cudaEventCreateWithFlags(&work->event[k], cudaEventDisableTiming));
  }
  PetscCall(work->state.Allocate(1));
  PetscCall(work->partial.Allocate(4 * (size_t)work->processors * kCGBlocksOnChip));
  PetscCallCUDA(cudaMemsetAsync(work->state.data(), 0, sizeof(CGState), stream));
  PetscCallCUDA(cudaStreamSynchronize(stream)); /* the next call may come with another stream */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedDestroy_CUDA(CGFusedWork **work)
{
  PetscFunctionBegin;
  if (!*work) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Wait(*work));
  if ((*work)->graph) PetscCallCUDA(cudaGraphExecDestroy((*work)->graph));
  if ((*work)->capture) PetscCallCUDA(cudaStreamDestroy((*work)->capture));
  for (cudaEvent_t event : (*work)->event)
    if (event) PetscCallCUDA(cudaEventDestroy(event));
  if ((*work)->seen[0]) PetscCallCUDA(cudaFreeHost((*work)->seen[0]));
  PetscCall(SlicesDestroy_CUDA(&(*work)->A));
  PetscCall(SlicesDestroy_CUDA(&(*work)->W1));
  PetscCall(SlicesDestroy_CUDA(&(*work)->W2));
  delete *work;
  *work = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of B that have entries. */
static PetscErrorCode SelectGhostRows(CGFusedWork *work, const CSRView &B, bool changed)
{
  const thrust::counting_iterator<PetscInt> every(0);
  const HasEntries                          has{B.i};
  size_t                                    bytes = 0;
  cudaStream_t                              stream;

  PetscFunctionBegin;
  work->B = B; /* its arrays may be others, though nothing has changed */
  if (!changed) PetscFunctionReturn(PETSC_SUCCESS);
  work->ghost_count = 0;
  if (!B.nnz) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (work->ghost_rows.size() < (size_t)B.n + 1) PetscCall(work->ghost_rows.Allocate((size_t)B.n + 1));
  PetscInt *const found = work->ghost_rows.data() + B.n;
  PetscCallCUDA(cub::DeviceSelect::If(nullptr, bytes, every, work->ghost_rows.data(), found, B.n, has, stream));
  if (work->ghost_select.size() < bytes) PetscCall(work->ghost_select.Allocate(bytes));
  PetscCallCUDA(cub::DeviceSelect::If(work->ghost_select.data(), bytes, every, work->ghost_rows.data(), found, B.n, has, stream));
  PetscCall(ArrayCopy_CUDA(&work->ghost_count, found, sizeof(*found), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A's copy, and those of the factors, are of this kind and of now. */
static PetscErrorCode CopyOperators(CGFusedWork *work, const CGFusedOperators *op, const CGFusedChanges *changes, SlicesKind kind,
                                    PetscInt A_lanes, PetscInt M_lanes, bool again)
{
  const CSRView &A = *op->A;
  const CSR      A_csr{A.n, A.n, A.nnz, (PetscInt *)A.i, (PetscInt *)A.j, (void *)A.a, FINEPC_DOUBLE, A.where};

  PetscFunctionBegin;
  if (changes->A || kind != work->A.kind || A_lanes != work->A.lanes) PetscCall(SlicesUpdate_CUDA(&A_csr, A_lanes, kind, &work->A));
  if (!op->W1 || work->A.kind != kind) PetscFunctionReturn(PETSC_SUCCESS);
  if (changes->M || again || kind != work->W1.kind || kind != work->W2.kind || M_lanes != work->W1.lanes) {
    PetscCall(SlicesUpdate_CUDA(op->W1, M_lanes, kind, &work->W1));
    PetscCall(SlicesUpdate_CUDA(op->W2, M_lanes, kind, &work->W2));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepare_CUDA(CGFusedWork *work, const CGFusedOperators *op, const CGFusedChanges *changes, PetscBool compress,
                                   KSPCGFusedPath path)
{
  const CSRView &A        = *op->A;
  const bool     factored = op->W1, again = factored != work->factored;
  PetscInt       rows, lanes;

  PetscFunctionBegin;
  PetscCall(Wait(work));
  ResidentGeometry(work, A.n, A.nnz, &lanes, &rows);
  const size_t entries = (size_t)A.nnz + (factored ? (size_t)op->W1->nnz + op->W2->nnz : 0);
  const bool   fits    = ResidentVectorBytes(rows) <= work->room;
  work->factored       = factored;
  work->d              = op->d;
  work->rows           = rows;
  work->blocks         = (A.n + rows - 1) / rows;
  if (changes->A || changes->M || again) work->uneven = false;
  work->resident = !op->B && fits && !work->uneven &&
                   (path == KSP_CGFUSED_RESIDENT || (path == KSP_CGFUSED_AUTO && A.n <= kResidentRows &&
                                                     entries * (sizeof(PetscInt) + sizeof(double)) <= kResidentBytes));
  if (work->resident) {
    PetscCall(CopyOperators(work, op, changes, SLICES_RESIDENT, lanes, lanes, again));
    /* where padding makes a copy too large, rows are too uneven for the resident kernel */
    work->uneven =
      work->A.kind != SLICES_RESIDENT || (factored && (work->W1.kind != SLICES_RESIDENT || work->W2.kind != SLICES_RESIDENT));
    work->resident = !work->uneven;
  }
  if (!work->resident)
    PetscCall(CopyOperators(work, op, changes, compress ? SLICES_COMPRESSED : SLICES_PLAIN, SequenceLanes(A.n, A.nnz),
                            factored ? SequenceLanes(A.n, op->W1->nnz) : 1, again));
  const size_t needed = (size_t)A.n * (work->resident ? 4 : factored ? 1 : 0);
  if (work->t.size() < needed) PetscCall(work->t.Allocate(needed));
  if (op->B) PetscCall(SelectGhostRows(work, *op->B, changes->A));
  if (work->resident && work->slots.size() < (size_t)(3 * 2 * work->blocks)) PetscCall(work->slots.Allocate(3 * 2 * work->blocks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedStart_CUDA(CGFusedWork *work, const CGFusedVectors *v, PetscBool guess, CGNorm norm, CGSums *sums)
{
  cudaStream_t stream;
  CGScalars    s{};
  CGTest       test{};

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  work->v   = *v;
  s.stage   = kCGStarting;
  s.a       = 1;
  test.norm = norm;
  PetscCall(Upload(work, s, test, stream));
  if (guess) PetscCall(LaunchOperator(work, false, v->x, v->z, stream));
  PetscCall(LaunchResidual(work, false, v->b, guess ? v->z : nullptr, stream));
  work->launched = work->arrived = 0;
  PetscCall(Download(work, stream));
  PetscCall(Wait(work));
  *sums = work->seen[0]->sums;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedBegin_CUDA(CGFusedWork *work, PetscReal beta, const CGTest *test)
{
  const PetscInt n = work->A.rows;
  cudaStream_t   stream;
  CGScalars      s{};

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  s.stage = kCGRunning;
  s.beta  = beta;
  PetscCall(Upload(work, s, *test, stream));
  PetscCallCUDA(cudaMemsetAsync(work->v.p, 0, n * sizeof(PetscScalar), stream));
  if (!work->resident) {
    PetscCall(CaptureIterations(work));
    PetscCall(LaunchDirection(work, false, stream)); /* p = z */
  } else if (!work->factored) {
    ScaleResidual<<<BlocksFor(n, kCGBlock), kCGBlock, 0, stream>>>(n, work->d, work->v.r, work->v.z);
    FinePCCheckLaunch();
  }
  work->launched = work->arrived = 0;
  work->reported                 = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedAdvance_CUDA(CGFusedWork *work, PetscInt *count, const CGRecord **records, CGStop *stop, PetscInt *its,
                                   PetscReal *value)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  while (work->launched - work->arrived < (work->resident ? 1 : kCGInFlight)) {
    if (work->resident) PetscCall(LaunchResident(work, stream));
    else PetscCallCUDA(cudaGraphLaunch(work->graph, stream));
    PetscCall(Download(work, stream));
  }
  const int slot = (int)(work->arrived % kCGInFlight);
  PetscCallCUDA(cudaEventSynchronize(work->event[slot]));
  work->arrived++;
  const CGState &seen = *work->seen[slot];
  *count              = seen.s.iteration - work->reported;
  for (PetscInt k = 0; k < *count; k++) work->records[k] = seen.records[(work->reported + 1 + k) % kCGRecords];
  *records       = work->records;
  work->reported = seen.s.iteration;
  *stop          = seen.s.stop;
  *its           = seen.s.its;
  *value         = seen.s.value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedGetStatus_CUDA(const CGFusedWork *work, CGFusedStatus *status)
{
  PetscFunctionBegin;
  *status              = CGFusedStatus{};
  status->resident     = (PetscBool)work->resident;
  status->narrow[0]    = work->A.narrow;
  status->narrow[1]    = (PetscBool)(work->W1.narrow && work->W2.narrow);
  status->single[0]    = work->A.single;
  status->single[1]    = (PetscBool)(work->W1.single && work->W2.single);
  status->lanes[0]     = work->A.lanes;
  status->lanes[1]     = work->factored ? work->W1.lanes : 0;
  status->copied_bytes = SlicesBytes(&work->A) + (work->factored ? SlicesBytes(&work->W1) + SlicesBytes(&work->W2) : 0);
  for (const Slices *S : {&work->A, &work->W1, &work->W2}) status->bytes += S->capacity[0] + S->capacity[1];
  status->bytes += work->ghost_rows.bytes() + work->ghost_select.bytes() + work->t.bytes() + work->slots.bytes() +
                   work->partial.bytes() + work->state.bytes();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------- a rank among several, the host's side ---------------------------- */

PetscErrorCode CGRankBegin_CUDA(CGFusedWork *work, const CGRankVectors *v, CGNorm norm)
{
  const size_t bytes = work->A.rows * sizeof(PetscScalar);
  cudaStream_t stream;
  CGScalars    s{};
  CGTest       test{};

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (work->streams++ && stream != work->stream) work->foreign = true;
  work->stream = stream;
  PetscCall(CGRankFence_CUDA(work)); /* the first residual is PETSc's */
  s.stage   = kCGStarting;
  test.norm = norm;
  PetscCall(Upload(work, s, test, stream));
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
      <<<SumBlocks(work, n), kCGBlock, 0, stream>>>(n, a, b, nullptr, v->s, *v, work->partial.data(), work->state.data());
    FinePCCheckLaunch();
    PetscCall(LaunchInverse(work, work->early, v->r, v->z, stream));
  } else {
    UpdateRank<true>
      <<<SumBlocks(work, n), kCGBlock, 0, stream>>>(n, a, b, work->d, v->s, *v, work->partial.data(), work->state.data());
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
  PetscCall(LaunchOperator(work, false, v->z, v->s, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRankGhosts_CUDA(CGFusedWork *work, const CGRankVectors *v, const PetscScalar *ghosts, PetscReal sums[3])
{
  const int     blocks = std::max(1, std::min(BlocksFor((long long)work->ghost_count * kGhostLanes, kCGBlock), work->processors));
  double *const to     = work->seen[0]->dots;
  cudaStream_t  stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  MultiplyGhosts<kGhostLanes><<<blocks, kCGBlock, 0, stream>>>(work->B, work->ghost_count, work->ghost_rows.data(), ghosts, v->z,
                                                               v->s, work->partial.data(), work->state.data());
  FinePCCheckLaunch();
  PetscCallCUDA(cudaMemcpyAsync(to, work->state.data()->dots, 3 * sizeof(*to), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  for (int c = 0; c < 3; c++) sums[c] = to[c];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------- vector operations one by one -------------------------------- */

PetscErrorCode CGStep_CUDA(PetscInt n, PetscScalar a, const PetscScalar *p, const PetscScalar *w, PetscScalar *x, PetscScalar *r)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  StepVectors<<<BlocksFor(n, kCGBlock), kCGBlock, 0, stream>>>(n, a, p, w, x, r);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGDots_CUDA(CGFusedWork *work, PetscInt n, const PetscScalar *z, const PetscScalar *r, const PetscScalar *s,
                           PetscReal sums[4])
{
  double *const to = work->seen[0]->dots;
  cudaStream_t  stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(Wait(work));
  DotVectors<<<SumBlocks(work, n), kCGBlock, 0, stream>>>(n, z, r, s, work->partial.data(), work->state.data());
  FinePCCheckLaunch();
  PetscCallCUDA(cudaMemcpyAsync(to, work->state.data()->dots, 4 * sizeof(*to), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  for (int c = 0; c < 4; c++) sums[c] = to[c];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGDirection_CUDA(PetscInt n, PetscScalar b, const PetscScalar *z, PetscScalar *p, const PetscScalar *s,
                                PetscScalar *w)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  DirectVectors<<<BlocksFor(n, kCGBlock), kCGBlock, 0, stream>>>(n, b, z, p, s, w);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
