/* The fused conjugate gradient method as one kernel that stays on the GPU, for systems that are small enough. */
#include "cgfused.cuh"

namespace
{

constexpr int kResidentBlock  = 512; /* threads of a block */
constexpr int kResidentWarps  = kResidentBlock / kWarpSize;
constexpr int kResidentStatic = 3072; /* bytes of shared memory that the kernel declares, at most */
constexpr int kResidentPolls  = 5;    /* numbers of other blocks that a lane looks at together */

constexpr LocalInt kResidentRows  = 200000;              /* rows up to which KSP_CGFUSED_AUTO chooses the resident kernel */
constexpr size_t   kResidentBytes = kSliceResidentBytes; /* and bytes of the matrices */

/* Bytes that the vectors of a block take in shared memory: its rows of x, r, p, z, w and d. */
__host__ __device__ constexpr size_t ResidentVectorBytes(LocalInt rows)
{
  return (6 * (size_t)rows * sizeof(double) + sizeof(int4) - 1) / sizeof(int4) * sizeof(int4);
}

/* ----------------------------------------- the kernel ----------------------------------------- */

/* The parameters of the resident kernel. */
struct Resident {
  Slices        A, W1, W2;
  const double *d;
  double       *x, *r, *z, *p, *w, *t;
  double       *r_next, *p_next; /* take turns with r and p: others still read the old entries while new ones are written */
  double       *slots;           /* [3][2][blocks], see GridSum() */
  LocalInt      rows;            /* of a block */
  int           steps;           /* iterations of this launch at most */
  size_t        bytes;           /* of shared memory */
  CGState      *state;
};

/* A block's rows of the vectors, which stay in shared memory. */
struct ResidentRows {
  LocalInt first, count; /* rows first .. first + count - 1 of the system */
  double  *x, *r, *p, *z, *w, *d;

  __device__ __forceinline__ void Load(const Resident &g) const
  {
    for (LocalInt i = threadIdx.x; i < count; i += kResidentBlock) {
      x[i] = g.x[first + i];
      r[i] = g.r[first + i];
      p[i] = g.p[first + i];
      z[i] = g.z[first + i];
      d[i] = g.d ? g.d[first + i] : 1.;
    }
  }

  __device__ __forceinline__ void Store(const Resident &g) const
  {
    for (LocalInt i = threadIdx.x; i < count; i += kResidentBlock) {
      g.x[first + i] = x[i];
      g.r[first + i] = r[i];
      g.p[first + i] = p[i];
    }
  }
};

/* Copies elements first .. last - 1 of an array to `to`, in pieces of 16 bytes, and gives where element 0 would be then. */
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

/* A is `from`, but the block's slices begin .. end - 1 are in shared memory, from `to` on, if they fit into what is left of it. */
__device__ __forceinline__ void BringSlices(const Slices &from, Slices *A, LocalInt begin, LocalInt end, char *&to,
                                            const char *limit)
{
  const LocalInt first_step = from.step[begin], last_step = from.step[end];
  const size_t   first = (size_t)first_step * kWarpSize, last = (size_t)last_step * kWarpSize;
  const size_t   bytes =
    (last - first) * (sizeof(LocalInt) + sizeof(double)) + (end - begin + 1) * sizeof(LocalInt) + 3 * 2 * sizeof(int4);
  const bool fits = begin < end && to + bytes <= limit;
  if (threadIdx.x == 0) *A = from;
  if (!fits) return;
  LocalInt *const step   = CopyIn(from.step, begin, end + 1, to);
  LocalInt *const column = CopyIn((const LocalInt *)from.column, first, last, to);
  double *const   value  = CopyIn((const double *)from.value, first, last, to);
  if (threadIdx.x == 0) {
    A->step   = step;
    A->column = column;
    A->value  = value;
  }
}

/* Calls act(row, sum over the row of W) in the first lane of every row of the block; rows count from the first one of the block. */
template <int Lanes, typename Vector, typename Act>
__device__ __forceinline__ void ForRows(const Slices &W, LocalInt first, LocalInt begin, LocalInt end, Vector x, Act act)
{
#pragma unroll 1
  for (LocalInt slice = begin + threadIdx.x / kWarpSize; slice < end; slice += kResidentWarps) {
    const LocalInt row = SlicePlace<Lanes>(slice);
    const double   sum = SliceSum<Lanes>(W, slice, x);
    if (row < W.rows && threadIdx.x % Lanes == 0) act(row - first, sum);
  }
}

/* A slot that is not written yet has the bits of a signalling NaN, which no sum can be. */
constexpr unsigned long long kNotYet = 0x7FF4A5A5A5A5A5A5ull;

/* Before each launch of the resident kernel. */
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
   A barrier of the grid, and sums over it. Each block writes its part of a sum into a slot of its own and reads the slots of all
   blocks as they come: that takes one way to the L2 and one back. The order of a sum is always the same. One thread of each block
   gets the sums and calls decide(), which comes to the same in all blocks; double precision would take longer if all threads did
   so.

   Slots take turns, of which there are three. When all slots of this turn are written every block has left the turn before, so that
   a block can clear its slots of that turn; they are clear for everyone by the time that they are written again.
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
  __syncthreads(); /* so that all that the block has written comes before its release */
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
    __threadfence(); /* what others wrote before their release can be read from here on */
    __syncwarp();    /* all blocks are here, and none looks at the slots of the turn before */
    if (lane < 2) before[lane * blocks + blockIdx.x] = __longlong_as_double((long long)kNotYet);
#pragma unroll
    for (int c = 0; c < Count; c++) x[c] = GroupSum<kWarpSize>(x[c]);
    if (lane == 0) decide();
  }
  __syncthreads();
  *turn = (*turn + 1) % 3;
}

/*
   Iterations until the end, or as many as the records have room for. A block has the same rows all the time. Their parts of the
   vectors, and of the matrices where there is room, stay in shared memory from the first iteration to the last. What other blocks
   need goes through the L2. New entries of p = z + b p and r = r - a w are computed by whoever needs them from the old ones, so
   that an iteration has two barriers, and with a factored inverse three.

   The steps of an iteration are one function, because its registers change when they become functions of their own.
*/
template <int Lanes, bool Factored>
__global__ void __launch_bounds__(kResidentBlock, 1) Iterate(const Resident g)
{
  extern __shared__ int4 shared[];
  __shared__ Slices      A, W1, W2;
  __shared__ CGScalars   s;
  const LocalInt         n = g.A.rows, first = min((LocalInt)blockIdx.x * g.rows, n), count = min(g.rows, n - first);
  const LocalInt         per_slice = kWarpSize / Lanes, begin = first / per_slice,
                 end = count ? (first + count + per_slice - 1) / per_slice : begin;
  double *const x_s = (double *)shared, *const r_s = x_s + g.rows, *const p_s = r_s + g.rows, *const z_s = p_s + g.rows,
                *const w_s = z_s + g.rows, *const d_s = w_s + g.rows;
  const ResidentRows rows{first, count, x_s, r_s, p_s, z_s, w_s, d_s};
  char              *to    = (char *)shared + ResidentVectorBytes(g.rows);
  const char *const  limit = (char *)shared + g.bytes;
  const CGNorm       norm  = g.state->test.norm;
  double            *p_old = g.p, *p_new = g.p_next, *r_old = g.r, *r_new = g.r_next;
  int                turn = 0;

  if (threadIdx.x == 0) s = g.state->s;
  BringSlices(g.A, &A, begin, end, to, limit);
  if constexpr (Factored) {
    BringSlices(g.W1, &W1, begin, end, to, limit);
    BringSlices(g.W2, &W2, begin, end, to, limit);
  }
  rows.Load(g);
  __syncthreads();

  for (int step = 0; step < g.steps && s.stage == kCGRunning; step++) {
    double       delta[1] = {0}, sums[2] = {0, 0};
    const double b = s.b;

    /* p = z + b p, w = A p, delta */
    ForRows<Lanes>(
      A, first, begin, end, [=](LocalInt j) { return __ldcg(g.z + j) + b * __ldcg(p_old + j); },
      [&](LocalInt i, double sum) {
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
    if constexpr (!Factored) { /* x = x + a p, r = r - a w, z = d r, and its sums */
      for (LocalInt i = threadIdx.x; i < count; i += kResidentBlock) {
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

      /* x = x + a p, r = r - a w, t = D (r + W1 r), which takes the place of w in shared memory */
      ForRows<Lanes>(
        W1, first, begin, end, [=](LocalInt j) { return __ldcg(r_old + j) - a * __ldcg(g.w + j); },
        [&](LocalInt i, double sum) {
          const double r_i = r_s[i] - a * w_s[i], t_i = d_s[i] * (r_i + sum);
          x_s[i] += a * p_s[i];
          r_s[i]           = r_i;
          r_new[first + i] = r_i;
          w_s[i]           = t_i;
          g.t[first + i]   = t_i;
        });
      GridSum(none, g.slots, &turn, []() { });
      /* z = t + W2 t, and its sums */
      ForRows<Lanes>(
        W2, first, begin, end, [=](LocalInt j) { return __ldcg(g.t + j); },
        [&](LocalInt i, double sum) {
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

  rows.Store(g);
  if (blockIdx.x == 0 && threadIdx.x == 0) g.state->s = s;
}

/* z = d r, or z = r where d is null. */
__global__ void __launch_bounds__(kCGBlock) ScaleResidual(LocalInt n, const double *d, const double *r, double *z)
{
  const long long i = GridThread();
  if (i < n) z[i] = d ? d[i] * r[i] : r[i];
}

/*
   The lanes a row of the fewest steps one after the other, where a turn costs the latency of some steps in itself; and the rows a
   block. There are fewer blocks than processors where a block would have less than a row for each group of lanes.
*/
void ResidentGeometry(int processors, LocalInt rows, LocalInt nnz, LocalInt *lanes, LocalInt *block_rows)
{
  constexpr LocalInt kTurnWorth = 8;
  const LocalInt     least = (rows + processors - 1) / processors, mean = nnz / rows + 1;
  LocalInt           best = LOCAL_INT_MAX;
  for (LocalInt some = 1; some <= kWarpSize; some *= 2) {
    const LocalInt turns = (least * some + kResidentBlock - 1) / kResidentBlock,
                   cost  = turns * ((mean + some - 1) / some + kTurnWorth);
    if (cost < best) {
      best   = cost;
      *lanes = some;
    }
  }
  const LocalInt per_slice = kWarpSize / *lanes, full = PetscMax(least, kResidentBlock / *lanes);
  *block_rows = (full + per_slice - 1) / per_slice * per_slice;
}

} // namespace

PetscErrorCode CGFusedResidentRoom(size_t *room)
{
  PetscFunctionBegin;
  PetscCall(SharedMemoryLimit(room));
  *room -= kResidentStatic;
  PetscFunctionReturn(PETSC_SUCCESS);
}

bool CGFusedPlanResident(CGFusedWork *work, const CGFusedOperators *op, KSPCGFusedPath path, LocalInt *lanes)
{
  const CSRView &A       = *op->A;
  const size_t   entries = (size_t)A.nnz + (op->W1 ? (size_t)op->W1->nnz + op->W2->nnz : 0);
  const bool     small   = A.n <= kResidentRows && entries * (sizeof(LocalInt) + sizeof(double)) <= kResidentBytes;
  ResidentGeometry(work->processors, A.n, A.nnz, lanes, &work->rows);
  work->blocks = (A.n + work->rows - 1) / work->rows;
  return !op->B && ResidentVectorBytes(work->rows) <= work->room &&
         (path == KSP_CGFUSED_RESIDENT || (path == KSP_CGFUSED_AUTO && small));
}

PetscErrorCode CGFusedAllocateResident(CGFusedWork *work)
{
  const size_t needed = 3 * 2 * (size_t)work->blocks;

  PetscFunctionBegin;
  if (work->slots.size() < needed) PetscCall(work->slots.Allocate(needed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedStartResident(CGFusedWork *work, cudaStream_t stream)
{
  const LocalInt n = work->A.rows;

  PetscFunctionBegin;
  if (work->factored) PetscFunctionReturn(PETSC_SUCCESS);
  ScaleResidual<<<BlocksFor(n, kCGBlock), kCGBlock, 0, stream>>>(n, work->d, work->v.r, work->v.z);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchResident(CGFusedWork *work, LocalInt steps, cudaStream_t stream)
{
  const size_t  n = work->A.rows;
  double *const t = work->t.data();
  Resident      g{work->A,
             work->W1,
             work->W2,
             work->d,
             work->v.x,
             work->v.r,
             work->v.z,
             work->v.p,
             t + n,
             t,
             t + 2 * n,
             t + 3 * n,
             work->slots.data(),
             work->rows,
             steps,
             work->room,
             work->mailbox.state()};
  void         *args[] = {&g};

  PetscFunctionBegin;
  ClearSlots<<<1, kResidentBlock, 0, stream>>>(3 * 2 * work->blocks, work->slots.data());
  FinePCCheckLaunch();
  PetscCall(SlicesWithLanes(work->A.lanes, [&](auto lanes) {
    void (*const kernel)(Resident) = work->factored ? Iterate<lanes, true> : Iterate<lanes, false>;

    PetscFunctionBegin;
    PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)work->room));
    PetscCallCUDA(cudaLaunchCooperativeKernel(kernel, dim3(work->blocks), dim3(kResidentBlock), args, work->room, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
