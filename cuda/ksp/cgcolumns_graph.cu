/* The conjugate gradient method for several right-hand sides as a sequence of kernels an iteration, and some iterations as a graph.
 */
#include <cstring>

#include "capture.cuh"
#include "cgcolumns.cuh"

namespace
{

constexpr int kIterations = 2; /* of one launch of the graph; even, so that each kernel of it has one direction */
constexpr int kAhead      = 4; /* entries of a row that a lane asks for at once */

/* Blocks of a product on a processor: what its registers allow. */
constexpr int kOperatorBlocks = 3;
template <bool Even, typename V>
constexpr int FactorBlocks()
{
  return Even && sizeof(V) == sizeof(float) ? 3 : 2;
}

/* How the lanes of a warp share a block vector: a group of lanes has the columns of a row, two columns a lane. */
template <int Columns>
struct Lanes {
  static constexpr int row    = Columns / 2;     /* lanes of a row */
  static constexpr int groups = kWarpSize / row; /* rows of a load */

  static __device__ __forceinline__ int Pair() { return threadIdx.x % row; } /* columns 2 Pair() and 2 Pair() + 1 */
};

/* ------------------------------------------ products ------------------------------------------ */

/* So many entries of one lane of a slice, of which at most `left` are there. */
template <typename V, typename I>
struct Entries {
  LaneNumbers<kSliceGroup, V> value;
  LaneNumbers<kSliceGroup, I> column;

  template <int Count>
  __device__ __forceinline__ void LoadSome(const Slices &W, LocalInt at, int t)
  {
    column.template Load<Count, true>((const I *)W.column + at, t);
    value.template Load<Count, true>((const V *)W.value + at, t);
  }
  /* Of a group of steps of an even copy, which begins at `at`: `lane` is the lane of the slice whose entries they are. */
  __device__ __forceinline__ void Load(const Slices &W, LocalInt at, int left, int lane)
  {
    if (left >= kSliceGroup) LoadSome<kSliceGroup>(W, at + lane * kSliceGroup, 0);
    else if (left >= 2) {
      LoadSome<2>(W, at + lane * 2, 0);
      if (left > 2) LoadSome<1>(W, at + 2 * kWarpSize + lane, 2);
    } else if (left > 0) LoadSome<1>(W, at + lane, 0);
  }
};

/*
   Calls act(row, product of the row with the two columns of the calling lane) for the rows of a slice; x(column) is the row of the
   block vector, as far as the lane has it. A slice has 32 lanes, each of which has entries of one row; a group of lanes of the warp
   takes one of these after the other, and the groups that have a row's lanes add up what they have. All lanes of the warp take
   part. The order of the additions depends on nothing but the row, the slice's lanes a row, and Columns.
*/
template <int Columns, bool Even, typename V, typename I, typename Vector, typename Act>
__device__ __forceinline__ void MultiplySlice(const Slices &W, LocalInt slice, Vector x, Act act)
{
  using L             = Lanes<Columns>;
  const int      lane = threadIdx.x % kWarpSize, group = lane / L::row, lanes = W.lanes;
  const int      sharing = min(lanes, L::groups); /* groups that have entries of a row at a time */
  const LocalInt base    = W.step[slice];
  int            steps, mine = 0;
  LocalInt       first;
  if constexpr (Even) {
    steps = W.step[slice + 1] - base;
    first = base * kWarpSize;
  } else {
    const LocalInt place = slice * (kWarpSize / lanes) + lane / lanes;
    mine                 = ((place < W.rows ? W.length[place] : 0) - lane % lanes + lanes - 1) / lanes;
    steps                = __reduce_max_sync(kFullWarp, mine);
    first                = W.start[slice];
  }
  double2 sum = {0, 0};
#pragma unroll 1
  for (int pass = 0; pass < L::row; pass++) {
    const int of = pass * L::groups + group; /* the lane of the slice whose entries these are */
    LocalInt  at = first;
#pragma unroll 1
    for (int k = 0; k < steps; k += kAhead) {
      Entries<V, I> some[kAhead / kSliceGroup];
      double2       v[kAhead];
      unsigned      there = 0; /* bit t: the lane has an entry in step k + t */
      if constexpr (Even) {
#pragma unroll
        for (int g = 0; g < kAhead / kSliceGroup; g++) {
          some[g].Load(W, at, steps - k - g * kSliceGroup, of);
          at += kSliceGroup * kWarpSize;
        }
        there = steps - k >= kAhead ? (1u << kAhead) - 1 : (1u << (steps - k)) - 1;
      } else {
#pragma unroll
        for (int t = 0; t < kAhead; t++) {
          const unsigned have = __ballot_sync(kFullWarp, k + t < mine);
          if (have >> of & 1) {
            some[t / kSliceGroup].template LoadSome<1>(W, at + __popc(have & ((1u << of) - 1)), t % kSliceGroup);
            there |= 1u << t;
          }
          at += __popc(have);
        }
      }
#pragma unroll
      for (int t = 0; t < kAhead; t++) {
        if (!(there >> t & 1)) continue;
        const LocalInt from = sizeof(I) == 2 ? __ldg(W.base + base + k + t) : 0;
        v[t]                = x(from + some[t / kSliceGroup].column.Get(t % kSliceGroup));
      }
#pragma unroll
      for (int t = 0; t < kAhead; t++) {
        if (!(there >> t & 1)) continue;
        const double a = (double)some[t / kSliceGroup].value.Get(t % kSliceGroup);
        sum.x += a * v[t].x;
        sum.y += a * v[t].y;
      }
    }
    if ((pass + 1) * L::groups % lanes) continue; /* the row goes on in the next pass */
    for (int other = 1; other < sharing; other *= 2) {
      sum.x += __shfl_xor_sync(kFullWarp, sum.x, other * L::row);
      sum.y += __shfl_xor_sync(kFullWarp, sum.y, other * L::row);
    }
    const LocalInt place = slice * (kWarpSize / lanes) + of / lanes;
    if (place < W.rows && group % sharing == 0) act(Even && W.sorted ? W.order[place] : place, sum);
    sum = {0, 0};
  }
}

/*
   The same for all rows of W. Blocks that are on the same processor, which come in turns of `processors`, take neighbouring slices.
   A kernel that goes backward begins with what a kernel ahead that went forward has touched last, and finds it in the cache.
*/
template <int Columns, bool Even, typename V, typename Vector, typename Act>
__device__ __forceinline__ void Multiply(const Slices &W, int processors, bool backward, Vector x, Act act)
{
  const int turns = gridDim.x / processors, block = turns ? blockIdx.x % processors * turns + blockIdx.x / processors : blockIdx.x;
  const int warps = kCGBlock / kWarpSize;
  for (LocalInt k = block * warps + threadIdx.x / kWarpSize; k < W.count; k += gridDim.x * warps) {
    const LocalInt slice = backward ? W.count - 1 - k : k;
    if (W.narrow) MultiplySlice<Columns, Even, V, std::uint16_t>(W, slice, x, act);
    else MultiplySlice<Columns, Even, V, LocalInt>(W, slice, x, act);
  }
}

/* -------------------------------------------- sums -------------------------------------------- */

/*
   The sums of each column over the grid, always in the same order: x[k] has what the calling lane has of its two columns in sum k.
   The block that comes last gets true, and column c of sum k in total[k * Columns + c], which all of its threads see.
*/
template <int Columns, int Count>
__device__ __forceinline__ bool SumColumnsLast(double2 (&x)[Count], double *partial, unsigned *ticket, double *total)
{
  using L                  = Lanes<Columns>;
  constexpr int     kWarps = kCGBlock / kWarpSize, kSums = Count * Columns;
  const int         warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  __shared__ double part[kWarps][kSums];
  __shared__ bool   last;
#pragma unroll
  for (int k = 0; k < Count; k++) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset >= L::row; offset /= 2) {
      x[k].x += __shfl_xor_sync(kFullWarp, x[k].x, offset);
      x[k].y += __shfl_xor_sync(kFullWarp, x[k].y, offset);
    }
    if (lane < L::row) {
      part[warp][k * Columns + 2 * lane]     = x[k].x;
      part[warp][k * Columns + 2 * lane + 1] = x[k].y;
    }
  }
  __syncthreads();
  if (threadIdx.x < kSums) {
    double sum = 0;
    for (int w = 0; w < kWarps; w++) sum += part[w][threadIdx.x];
    partial[threadIdx.x * gridDim.x + blockIdx.x] = sum;
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return false;
  __threadfence();
  for (int s = warp; s < kSums; s += kWarps) {
    double sum = 0;
    for (unsigned b = lane; b < gridDim.x; b += kWarpSize) sum += __ldcg(partial + s * gridDim.x + b);
    sum = GroupSum<kWarpSize>(sum);
    if (lane == 0) total[s] = sum;
  }
  __syncthreads();
  return true;
}

/* The last block of a kernel that made decisions counts the columns that go on. */
__device__ __forceinline__ void CountRunning(CGColumnsState *state)
{
  __syncthreads();
  if (threadIdx.x) return;
  int running = 0;
  for (const CGScalars &s : state->s) running += s.stage < kCGDecided;
  state->running = running;
}

/* Ends an iteration, or the start, with the sums z.z: what follows for the columns. */
__device__ __forceinline__ void FinishColumns(CGColumnsState *state, int columns, const double *zz, bool first)
{
  const int c = threadIdx.x;
  if (c < columns) {
    const bool   preconditioned = state->test[c].norm == CG_NORM_PRECONDITIONED;
    const double nn = preconditioned ? zz[c] : state->nn[c], rz = state->rz[c];
    CGScalars    s = state->s[c];
    if (first) state->sums[c] = CGSums{nn, rz};
    else if (s.stage == kCGRunning) {
      state->norm[c] = DecideBeta(s, state->test[c], nn, rz).norm;
      if (s.stage == kCGDecided) s.stage = kCGStopped; /* the step has been made */
      state->s[c] = s;
    }
  }
  CountRunning(state);
}

/* ------------------------------------------- kernels ------------------------------------------ */

/* A number of each of the two columns of a lane. */
__device__ __forceinline__ double2 PairOf(const double *x, int pair)
{
  return {x[2 * pair], x[2 * pair + 1]};
}

/* What the scalars of a lane's two columns say. */
struct Pair {
  double2 a;
  bool    goes_x, goes_y; /* the column has not ended */

  __device__ __forceinline__ Pair(const CGColumnsState *state, int pair)
  {
    const CGScalars &s = state->s[2 * pair], &t = state->s[2 * pair + 1];
    a      = {s.a, t.a};
    goes_x = s.stage < kCGDecided;
    goes_y = t.stage < kCGDecided;
  }
  /* The new value of the columns that go on, else the old one. */
  __device__ __forceinline__ double2 Take(double2 fresh, double2 old) const
  {
    return {goes_x ? fresh.x : old.x, goes_y ? fresh.y : old.y};
  }
};

/* w = A p, delta = p.w, and a or the end. At the start only w is made. */
template <int Columns, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, kOperatorBlocks)
  MultiplyOperator(Slices A, int processors, bool backward, const double2 *__restrict__ p, double2 *__restrict__ w, double *partial,
                   CGColumnsState *state)
{
  using L                    = Lanes<Columns>;
  const int         pair     = L::Pair();
  double2           delta[1] = {{0, 0}};
  __shared__ double total[Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  Multiply<Columns, Even, V>(
    A, processors, backward, [=](LocalInt j) { return p[(ptrdiff_t)j * L::row + pair]; },
    [&](LocalInt row, double2 sum) {
      const ptrdiff_t at  = (ptrdiff_t)row * L::row + pair;
      const double2   own = p[at];
      w[at]               = sum;
      delta[0].x += own.x * sum.x;
      delta[0].y += own.y * sum.y;
    });
  if (!SumColumnsLast<Columns>(delta, partial, &state->ticket, total)) return;
  const int c = threadIdx.x;
  if (c < Columns && state->s[c].stage == kCGRunning) {
    CGScalars s = state->s[c];
    DecideDelta(s, total[c]);
    if (s.stage == kCGRunning && !s.iteration) state->first[c] = s.a;
    state->s[c] = s;
  }
  CountRunning(state);
}

/* The last block of a kernel that made r.z and r.r keeps them, and what b follows. */
__device__ __forceinline__ void KeepSums(CGColumnsState *state, int columns, const double *rz, const double *nn)
{
  const int c = threadIdx.x;
  if (c >= columns) return;
  state->rz[c] = rz[c];
  state->nn[c] = nn[c];
  state->b[c]  = rz[c] / state->s[c].beta;
}

/* t = t - a D (w + W1 w), r.z, and where r is given r = r - a w, r.r. At the start w is r, and t = D (r + W1 r). */
template <int Columns, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, FactorBlocks<Even, V>())
  MultiplyFirst(Slices W1, int processors, bool backward, bool first, const double *__restrict__ d, const double2 *__restrict__ w,
                double2 *__restrict__ t, double2 *__restrict__ r, double *partial, CGColumnsState *state)
{
  using L                   = Lanes<Columns>;
  const int         pair    = L::Pair();
  double2           sums[2] = {{0, 0}, {0, 0}};
  __shared__ double total[2 * Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  const Pair scalars(state, pair);
  Multiply<Columns, Even, V>(
    W1, processors, backward, [=](LocalInt j) { return w[(ptrdiff_t)j * L::row + pair]; },
    [&](LocalInt row, double2 sum) {
      const ptrdiff_t at    = (ptrdiff_t)row * L::row + pair;
      const double2   own   = w[at];
      const double    scale = d[row], inverse = 1 / scale;
      double2         now = {scale * (own.x + sum.x), scale * (own.y + sum.y)}, rest = own;
      if (!first) {
        const double2 old = t[at];
        now               = scalars.Take({old.x - scalars.a.x * now.x, old.y - scalars.a.y * now.y}, old);
      }
      t[at] = now;
      sums[0].x += now.x * now.x * inverse;
      sums[0].y += now.y * now.y * inverse;
      if (!r) return;
      if (!first) {
        const double2 old = r[at];
        rest              = scalars.Take({old.x - scalars.a.x * own.x, old.y - scalars.a.y * own.y}, old);
      }
      r[at] = rest;
      sums[1].x += rest.x * rest.x;
      sums[1].y += rest.y * rest.y;
    });
  if (SumColumnsLast<Columns>(sums, partial, &state->ticket, total)) KeepSums(state, Columns, total, total + Columns);
}

/* z = t + W2 t, z.z, x = x + a p, p = z + b p, and what ends the iteration. At the start p = z. */
template <int Columns, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, FactorBlocks<Even, V>())
  MultiplySecond(Slices W2, int processors, bool backward, bool first, const double2 *__restrict__ t, double2 *__restrict__ x,
                 double2 *__restrict__ p, double *partial, CGColumnsState *state)
{
  using L                 = Lanes<Columns>;
  const int         pair  = L::Pair();
  double2           zz[1] = {{0, 0}};
  __shared__ double total[Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  const Pair    scalars(state, pair);
  const double2 b = PairOf(state->b, pair);
  Multiply<Columns, Even, V>(
    W2, processors, backward, [=](LocalInt j) { return t[(ptrdiff_t)j * L::row + pair]; },
    [&](LocalInt row, double2 sum) {
      const ptrdiff_t at  = (ptrdiff_t)row * L::row + pair;
      const double2   own = t[at], z = {own.x + sum.x, own.y + sum.y};
      zz[0].x += z.x * z.x;
      zz[0].y += z.y * z.y;
      if (first) {
        p[at] = z;
        return;
      }
      const double2 from = __ldcs(x + at), along = p[at];
      __stcs(x + at, scalars.Take({from.x + scalars.a.x * along.x, from.y + scalars.a.y * along.y}, from));
      p[at] = scalars.Take({z.x + b.x * along.x, z.y + b.y * along.y}, along);
    });
  if (SumColumnsLast<Columns>(zz, partial, &state->ticket, total)) FinishColumns(state, Columns, total, first);
}

/* The same two for M = D, or M = 1 where d is null: t is r, and z = D t. */
template <int Columns>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  UpdateResidual(LocalInt n, bool backward, bool first, const double *__restrict__ d, const double2 *__restrict__ w,
                 double2 *__restrict__ t, double *partial, CGColumnsState *state)
{
  using L                 = Lanes<Columns>;
  const int         pair  = L::Pair();
  const long long   count = (long long)n * L::row, stride = (long long)gridDim.x * kCGBlock;
  double2           sums[2] = {{0, 0}, {0, 0}};
  __shared__ double total[2 * Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  const Pair scalars(state, pair);
  for (long long k = GridThread(); k < count; k += stride) {
    /* the rows from the end, each with its columns in their order */
    const long long at  = backward ? ((long long)n - 1 - k / L::row) * L::row + pair : k;
    double2         now = w[at];
    if (!first) {
      const double2 old = t[at];
      now               = scalars.Take({old.x - scalars.a.x * now.x, old.y - scalars.a.y * now.y}, old);
    }
    t[at]              = now;
    const double scale = d ? d[at / L::row] : 1.;
    sums[0].x += now.x * scale * now.x;
    sums[0].y += now.y * scale * now.y;
    sums[1].x += now.x * now.x;
    sums[1].y += now.y * now.y;
  }
  if (SumColumnsLast<Columns>(sums, partial, &state->ticket, total)) KeepSums(state, Columns, total, total + Columns);
}

template <int Columns>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  UpdateDirection(LocalInt n, bool backward, bool first, const double *__restrict__ d, const double2 *__restrict__ t,
                  double2 *__restrict__ x, double2 *__restrict__ p, double *partial, CGColumnsState *state)
{
  using L                 = Lanes<Columns>;
  const int         pair  = L::Pair();
  const long long   count = (long long)n * L::row, stride = (long long)gridDim.x * kCGBlock;
  double2           zz[1] = {{0, 0}};
  __shared__ double total[Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  const Pair    scalars(state, pair);
  const double2 b = PairOf(state->b, pair);
  for (long long k = GridThread(); k < count; k += stride) {
    const long long at    = backward ? ((long long)n - 1 - k / L::row) * L::row + pair : k;
    const double    scale = d ? d[at / L::row] : 1.;
    const double2   own = t[at], z = {scale * own.x, scale * own.y};
    zz[0].x += z.x * z.x;
    zz[0].y += z.y * z.y;
    if (first) {
      p[at] = z;
      continue;
    }
    const double2 from = __ldcs(x + at), along = p[at];
    __stcs(x + at, scalars.Take({from.x + scalars.a.x * along.x, from.y + scalars.a.y * along.y}, from));
    p[at] = scalars.Take({z.x + b.x * along.x, z.y + b.y * along.y}, along);
  }
  if (SumColumnsLast<Columns>(zz, partial, &state->ticket, total)) FinishColumns(state, Columns, total, first);
}

/* y = y - x */
__global__ void __launch_bounds__(kCGBlock) Subtract(size_t count, const double *__restrict__ x, double *__restrict__ y)
{
  const long long i = GridThread();
  if (i < (long long)count) y[i] -= x[i];
}

/* Rows of block vectors from columns; a thread has a row. */
template <int Columns>
__global__ void __launch_bounds__(kCGBlock)
  InterleaveColumns(LocalInt n, LocalInt columns, const double *__restrict__ X, LocalInt ldx, double *__restrict__ x)
{
  const long long i = GridThread();
  if (i >= n) return;
#pragma unroll
  for (int c = 0; c < Columns; c++) x[i * Columns + c] = c < columns ? X[(size_t)c * ldx + i] : 0.;
}

/* Whether a column is to be left as it is. */
struct LeftColumns {
  bool is[kCGMostColumns];
};

template <int Columns>
__global__ void __launch_bounds__(kCGBlock) SeparateColumns(LocalInt n, LocalInt columns, LeftColumns                      left,
                                                            const double *__restrict__ x, double *__restrict__ X, LocalInt ldx)
{
  const long long i = GridThread();
  if (i >= n) return;
#pragma unroll
  for (int c = 0; c < Columns; c++)
    if (c < columns && !left.is[c]) X[(size_t)c * ldx + i] = x[i * Columns + c];
}

/* ------------------------------------------ launches ------------------------------------------ */

/* Calls f(Even, V()) for the kind of copy. */
template <typename F>
PetscErrorCode WithKind(const Slices &W, F f)
{
  if (W.even) return W.single ? f(std::true_type(), float()) : f(std::true_type(), double());
  return W.single ? f(std::false_type(), float()) : f(std::false_type(), double());
}

/* Blocks of a product: one for each group of slices where these are few, else as many on every processor, `most` of them. */
int SliceBlocks(const CGColumnsWork *work, const Slices &W, int most)
{
  const int blocks = BlocksFor((long long)W.count * kWarpSize, kCGBlock);
  if (blocks < work->processors) return blocks;
  return std::min(most, (blocks + work->processors - 1) / work->processors) * work->processors;
}

/* Blocks of a kernel over block vectors. */
int VectorBlocks(const CGColumnsWork *work)
{
  return std::max(1, std::min(BlocksFor((long long)work->n * work->width / 2, kCGBlock), work->processors * kCGBlocksOnChip));
}

double2 *Pairs(double *x)
{
  return (double2 *)x;
}

PetscErrorCode LaunchOperator(CGColumnsWork *work, const Slices &A, bool early, bool backward, const double *p, double *w,
                              cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    return WithKind(A, [&](auto even, auto value) {
      return LaunchEarly(early, MultiplyOperator<width, even, decltype(value)>, SliceBlocks(work, A, kOperatorBlocks), kCGBlock,
                         stream, A, work->processors, backward, (const double2 *)p, Pairs(w), work->partial.data(),
                         work->state.data());
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What follows from w: the rest of an iteration, or of the start. */
PetscErrorCode LaunchRest(CGColumnsWork *work, const CGFusedWork *op, bool early, bool backward, bool first, cudaStream_t stream)
{
  double *const         partial = work->partial.data();
  CGColumnsState *const state   = work->state.data();

  PetscFunctionBegin;
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    PetscFunctionBegin;
    if (op->factored) {
      PetscCall(WithKind(op->W1, [&](auto even, auto value) {
        return LaunchEarly(early, MultiplyFirst<width, even, decltype(value)>,
                           SliceBlocks(work, op->W1, FactorBlocks<even, decltype(value)>()), kCGBlock, stream, op->W1,
                           work->processors, backward, first, op->d, Pairs(work->w), Pairs(work->t), Pairs(work->r), partial,
                           state);
      }));
      PetscCall(WithKind(op->W2, [&](auto even, auto value) {
        return LaunchEarly(early, MultiplySecond<width, even, decltype(value)>,
                           SliceBlocks(work, op->W2, FactorBlocks<even, decltype(value)>()), kCGBlock, stream, op->W2,
                           work->processors, !backward, first, Pairs(work->t), Pairs(work->x), Pairs(work->p), partial, state);
      }));
    } else {
      PetscCall(LaunchEarly(early, UpdateResidual<width>, VectorBlocks(work), kCGBlock, stream, work->n, backward, first, op->d,
                            Pairs(work->w), Pairs(work->t), partial, state));
      PetscCall(LaunchEarly(early, UpdateDirection<width>, VectorBlocks(work), kCGBlock, stream, work->n, !backward, first, op->d,
                            Pairs(work->t), Pairs(work->x), Pairs(work->p), partial, state));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Three kernels an iteration, each in the direction that the one ahead has not. */
PetscErrorCode LaunchIterations(CGColumnsWork *work, const CGFusedWork *op, cudaStream_t stream)
{
  PetscFunctionBegin;
  for (int k = 0; k < kIterations; k++) {
    const bool backward = k % 2;

    PetscCall(LaunchOperator(work, op->A, work->early, backward, work->p, work->w, stream));
    PetscCall(LaunchRest(work, op, work->early, !backward, false, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CGColumnsMayStartEarly(bool *early)
{
  PetscFunctionBegin;
  PetscCall(KnowsToWait((const void *)UpdateResidual<2>, early));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsInterleave(const CGColumnsWork *work, const PetscScalar *X, LocalInt ldx, double *x, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    PetscFunctionBegin;
    InterleaveColumns<width><<<BlocksFor(work->n, kCGBlock), kCGBlock, 0, stream>>>(work->n, work->columns, X, ldx, x);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsSeparate(const CGColumnsWork *work, const double *x, const PetscBool left[], PetscScalar *X, LocalInt ldx,
                                 cudaStream_t stream)
{
  LeftColumns columns{};

  PetscFunctionBegin;
  for (LocalInt c = 0; c < work->columns; c++) columns.is[c] = left[c];
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    PetscFunctionBegin;
    SeparateColumns<width><<<BlocksFor(work->n, kCGBlock), kCGBlock, 0, stream>>>(work->n, work->columns, columns, x, X, ldx);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsLaunchStart(CGColumnsWork *work, const CGFusedWork *op, bool guess, cudaStream_t stream)
{
  const size_t size = (size_t)work->n * work->width;

  PetscFunctionBegin;
  if (guess) { /* A x is made where p will be */
    PetscCall(LaunchOperator(work, op->A, false, false, work->x, work->p, stream));
    Subtract<<<BlocksFor((long long)size, kCGBlock), kCGBlock, 0, stream>>>(size, work->p, work->w);
    FinePCCheckLaunch();
  }
  PetscCall(LaunchRest(work, op, false, true, true, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsCapture(CGColumnsWork *work, const CGFusedWork *op)
{
  CGColumnsCaptured now;

  PetscFunctionBegin;
  memset((void *)&now, 0, sizeof(now)); /* with its padding, which is compared */
  now.A        = op->A;
  now.W1       = op->W1;
  now.W2       = op->W2;
  now.d        = op->d;
  now.width    = work->width;
  now.factored = op->factored;
  now.x        = work->x;
  now.r        = work->r;
  now.p        = work->p;
  now.w        = work->w;
  now.t        = work->t;
  if (work->graph && !memcmp(&now, &work->captured, sizeof(now))) PetscFunctionReturn(PETSC_SUCCESS);
  if (work->graph) PetscCallCUDA(cudaGraphExecDestroy(work->graph));
  work->graph = nullptr;
  if (!work->capture) PetscCallCUDA(cudaStreamCreateWithFlags(&work->capture, cudaStreamNonBlocking));
  PetscCallCUDA(cudaStreamBeginCapture(work->capture, cudaStreamCaptureModeThreadLocal));
  PetscCall(EndCapture(work->capture, LaunchIterations(work, op, work->capture), &work->graph));
  memcpy((void *)&work->captured, &now, sizeof(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}
