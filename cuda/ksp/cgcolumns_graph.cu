/* The conjugate gradient method for several right-hand sides as a sequence of kernels an iteration, and some iterations as a graph.
 */
#include <cstring>

#include "capture.cuh"
#include "cgcolumns.cuh"
#include "cgcolumns_sums.cuh"
#include "pc/cmatch/cmatch_launch.cuh"

namespace
{

constexpr int kPairs         = 2; /* of iterations, in one launch of the graph */
constexpr int kProductBlocks = 2; /* of a product on a processor: what its registers allow */
constexpr int kProductWaves  = 2; /* of blocks of a product, one after the other, beside an exchange by NCCL */
static_assert(kProductWaves * kProductBlocks <= kCGBlocksOnChip, "there is room for the sums of so many blocks");

/* -------------------------------------------- sums -------------------------------------------- */

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
__device__ __forceinline__ void FinishColumns(CGColumnsState *state, int columns, const double *zz, CGColumnsTurn turn)
{
  const int c = threadIdx.x;
  if (c < columns) {
    const bool   preconditioned = state->test[c].norm == CG_NORM_PRECONDITIONED;
    const double nn = preconditioned ? zz[c] : state->nn[c], rz = state->rz[c];
    CGScalars    s   = state->s[c];
    state->is_due[c] = turn == kStepLater && s.stage == kCGRunning;
    state->due[c]    = s.a;
    if (turn == kNoStep) state->sums[c] = CGSums{nn, rz};
    else if (s.stage == kCGRunning) {
      state->norm[c] = DecideBeta(s, state->test[c], nn, rz).norm;
      if (s.stage == kCGDecided) s.stage = kCGStopped; /* the step has been made */
      state->s[c] = s;
    }
  }
  CountRunning(state);
}

/* Takes the sums p.w: the steps, or what else follows for the columns. */
__device__ __forceinline__ void DecideSteps(CGColumnsState *state, int columns, const double *delta)
{
  const int c = threadIdx.x;
  if (c < columns && state->s[c].stage == kCGRunning) {
    CGScalars s = state->s[c];
    DecideDelta(s, delta[c]);
    if (s.stage == kCGRunning && !s.iteration) state->first[c] = s.a;
    state->s[c] = s;
  }
  CountRunning(state);
}

/* Keeps r.z and r.r, and what b follows. */
__device__ __forceinline__ void KeepSums(CGColumnsState *state, int columns, const double *rz, const double *nn)
{
  const int c = threadIdx.x;
  if (c >= columns) return;
  state->rz[c] = rz[c];
  state->nn[c] = nn[c];
  state->b[c]  = rz[c] / state->s[c].beta;
}

/*
   The last block of a kernel that made sums: on several ranks it leaves them at `own`, to be added, and gets true; on one rank
   decisions follow from them.
*/
__device__ __forceinline__ bool LeaveColumns(const CGColumnsState *state, int count, const double *total, double *own)
{
  if (!state->several) return false;
  if (threadIdx.x < count) own[threadIdx.x] = total[threadIdx.x];
  return true;
}

/* ---------------------------------- sums over several ranks ----------------------------------- */

/* total = two sums of each column over all ranks, by one warp: of what the rank has in `own`, if NCCL has not made `all` of it. */
template <int Columns>
__device__ __forceinline__ void AddColumns(const CGColumnsState *state, const double *own, const double *all, double *total)
{
  static_assert(2 * kCGMostColumns <= kPeerSums && 2 * kCGMostColumns <= kWarpSize, "a lane adds a number");
  const bool     direct = state->peers.ranks > 0;
  const unsigned turn   = direct ? *state->peers.turn : 0;
  const int      k      = (int)threadIdx.x;
  if (k < 2 * Columns) {
    double x[1] = {direct ? own[k] : all[k]};
    if (direct) AddOverRanks(state->peers, turn, k, x);
    total[k] = x[0];
  }
  __syncthreads();
  if (direct && k == 0) *state->peers.turn = turn + 1;
}

/* The sums p.w, and with them z.z of the iteration before, which ends here: one sum over the ranks for both. */
template <int Columns>
__global__ void __launch_bounds__(kWarpSize) SumSteps(CGColumnsState *state)
{
  __shared__ double total[2 * Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  const CGColumnsTurn unfinished = state->unfinished;
  AddColumns<Columns>(state, state->own.steps, state->all.steps, total);
  FinishColumns(state, Columns, total + Columns, unfinished);
  DecideSteps(state, Columns, total);
}

/* The sums r.z and r.r of an iteration, whose end is decided about in the next SumSteps(). */
template <int Columns>
__global__ void __launch_bounds__(kWarpSize) SumNorms(CGColumnsTurn turn, CGColumnsState *state)
{
  __shared__ double total[2 * Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  AddColumns<Columns>(state, state->own.norms, state->all.norms, total);
  KeepSums(state, Columns, total, total + Columns);
  if (threadIdx.x == 0) state->unfinished = turn;
}

/* ------------------------------------------- kernels ------------------------------------------ */

/* How a product is made: what it sends to other ranks, whether it takes the rows from the end, and what becomes of x. */
struct ProductTurn {
  int           processors;
  ExchangeSend  send;
  bool          backward;
  CGColumnsTurn turn;
};

/* A pass over the rows of block vectors, from the end with `backward`, each with its columns in their order. */
struct RowsPass {
  LocalInt      n;
  bool          backward;
  CGColumnsTurn turn;

  template <int Columns>
  __device__ __forceinline__ long long At(long long k) const
  {
    using L = ColumnLanes<Columns>;
    return backward ? ((long long)n - 1 - k / L::row) * L::row + L::Pair() : k;
  }
};

/*
   A product sends rows of the block vector x to other ranks, so that these are on their way while it multiplies. This is no part of
   the code around it, since the entries of the matrix that are loaded ahead of it take all registers.
*/
__device__ __noinline__ void SendRowsAside(ExchangeSend send, const double *x, const RankPeers *peers)
{
  SendEntries(send, [=](LocalInt k) { return x[k]; }, *peers);
}
__device__ __forceinline__ void SendRows(const ExchangeSend &send, const double2 *x, const CGColumnsState *state)
{
  if (send.count && state->running) SendRowsAside(send, (const double *)x, &state->peers);
}

/* The steps of a lane's two columns. */
__device__ __forceinline__ double2 StepsOf(const CGColumnsState *state, int pair)
{
  return {state->s[2 * pair].a, state->s[2 * pair + 1].a};
}

/* What becomes of the directions and solutions of all columns at the end of an iteration. */
template <int Columns>
struct ColumnSteps {
  double2 b[Columns / 2];
  double2 first[Columns / 2], second[Columns / 2];   /* the steps that x takes after two iterations */
  bool    goes_first[Columns], goes_second[Columns]; /* a column that has ended does not take all of them */

  /* A thread for each column calls it. */
  __device__ __forceinline__ void Load(const CGColumnsState *state, int c)
  {
    ((double *)b)[c]      = state->b[c];
    ((double *)first)[c]  = state->due[c];
    ((double *)second)[c] = state->s[c].a;
    goes_first[c]         = state->is_due[c];
    goes_second[c]        = state->s[c].stage < kCGDecided;
  }
  __device__ __forceinline__ double2 Turn(int pair, double2 z, double2 p) const
  {
    const double2 with = b[pair];
    return {z.x + with.x * p.x, z.y + with.y * p.y};
  }
  __device__ __forceinline__ double2 Add(int pair, double2 x, double2 before, double2 p) const
  {
    const double2 one = first[pair], two = second[pair];
    if (goes_first[2 * pair]) x.x += one.x * before.x;
    if (goes_first[2 * pair + 1]) x.y += one.y * before.y;
    if (goes_second[2 * pair]) x.x += two.x * p.x;
    if (goes_second[2 * pair + 1]) x.y += two.y * p.y;
    return x;
  }
};

/* w = A p, delta = p.w, and a or the end. At the start only w is made. */
template <int Columns, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, kProductBlocks)
  MultiplyOperator(Slices A, int processors, ExchangeSend send, bool backward, const double2 *__restrict__ p,
                   double2 *__restrict__ w, double *partial, CGColumnsState *state)
{
  using L                        = ColumnLanes<Columns>;
  const int             pair     = L::Pair();
  double2               delta[1] = {{0, 0}};
  __shared__ double     total[Columns];
  __shared__ SlicePanel panels[kCGBlock / kWarpSize];
  const bool            active = StreamColumns<Columns, Even, V>(
    A, SliceWalk(A.count, processors, backward), panels,
    [=]() {
      WaitForPrevious();
      LetNextStart();
      SendRows(send, p, state);
      return state->running != 0;
    },
    p, [=](LocalInt row, bool acts) { return acts ? p[(ptrdiff_t)row * L::row + pair] : double2{0, 0}; },
    [&](LocalInt row, double2 sum, double2 own) {
      w[(ptrdiff_t)row * L::row + pair] = sum;
      delta[0].x += own.x * sum.x;
      delta[0].y += own.y * sum.y;
    });
  if (!active || !SumColumnsLast<Columns>(delta, partial, &state->ticket, total)) return;
  if (!LeaveColumns(state, Columns, total, state->own.steps)) DecideSteps(state, Columns, total);
}

/* What MultiplyFirst() needs in a row besides the product. */
struct FirstOperands {
  double2 w, t, r;
  double  d;
};

/* t = t - a D (w + W1 w), r.z, and where r is given r = r - a w, r.r. At the start w is r, and t = D (r + W1 r). */
template <int Columns, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, kProductBlocks)
  MultiplyFirst(Slices W1, ProductTurn how, const double *__restrict__ d, const double2 *__restrict__ w, double2 *__restrict__ t,
                double2 *__restrict__ r, double *partial, CGColumnsState *state)
{
  using L                       = ColumnLanes<Columns>;
  const bool            first   = how.turn == kNoStep;
  const int             pair    = L::Pair();
  double2               sums[2] = {{0, 0}, {0, 0}}, a;
  __shared__ double     total[2 * Columns];
  __shared__ SlicePanel panels[kCGBlock / kWarpSize];
  const bool            active = StreamColumns<Columns, Even, V>(
    W1, SliceWalk(W1.count, how.processors, how.backward), panels,
    [&]() {
      WaitForPrevious();
      LetNextStart();
      a = StepsOf(state, pair);
      SendRows(how.send, w, state);
      return state->running != 0;
    },
    w,
    [=](LocalInt row, bool acts) {
      const ptrdiff_t at = (ptrdiff_t)row * L::row + pair;
      FirstOperands   own{{0, 0}, {0, 0}, {0, 0}, 1};
      if (!acts) return own;
      own.w = w[at];
      own.d = d[row];
      if (!first) own.t = LoadOnce(t + at);
      if (!first && r) own.r = LoadOnce(r + at);
      return own;
    },
    [&](LocalInt row, double2 sum, const FirstOperands &own) {
      const ptrdiff_t at      = (ptrdiff_t)row * L::row + pair;
      const double    inverse = 1 / own.d;
      double2         now = {own.d * (own.w.x + sum.x), own.d * (own.w.y + sum.y)}, rest = own.w;
      if (!first) now = {own.t.x - a.x * now.x, own.t.y - a.y * now.y};
      t[at] = now;
      sums[0].x += now.x * now.x * inverse;
      sums[0].y += now.y * now.y * inverse;
      if (!r) return;
      if (!first) rest = {own.r.x - a.x * own.w.x, own.r.y - a.y * own.w.y};
      r[at] = rest;
      sums[1].x += rest.x * rest.x;
      sums[1].y += rest.y * rest.y;
    });
  if (!active || !SumColumnsLast<Columns>(sums, partial, &state->ticket, total)) return;
  if (!LeaveColumns(state, 2 * Columns, total, state->own.norms)) KeepSums(state, Columns, total, total + Columns);
}

/* What MultiplySecond() needs in a row besides the product. */
struct SecondOperands {
  double2 t, p, before, x;
};

/*
   z = t + W2 t, z.z, the next direction z + b p, and what ends the iteration. After two iterations x = x + due before + a p, where
   `before` is the direction before p; the next one takes its place. At the start the direction is z.
*/
template <int Columns, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, kProductBlocks)
  MultiplySecond(Slices W2, ProductTurn how, const double2 *__restrict__ t, double2 *__restrict__ x, const double2 *__restrict__ p,
                 double2 *__restrict__ before, double *partial, CGColumnsState *state)
{
  using L                     = ColumnLanes<Columns>;
  const CGColumnsTurn   turn  = how.turn;
  const int             pair  = L::Pair();
  double2               zz[1] = {{0, 0}};
  __shared__ double     total[Columns];
  __shared__ SlicePanel panels[kCGBlock / kWarpSize];
  __shared__ ColumnSteps<Columns> steps;
  const bool                      active = StreamColumns<Columns, Even, V>(
    W2, SliceWalk(W2.count, how.processors, how.backward), panels,
    [&]() {
      WaitForPrevious();
      LetNextStart();
      if (threadIdx.x < Columns) steps.Load(state, (int)threadIdx.x);
      __syncthreads();
      SendRows(how.send, t, state);
      return state->running != 0;
    },
    t,
    [=](LocalInt row, bool acts) {
      const ptrdiff_t at = (ptrdiff_t)row * L::row + pair;
      SecondOperands  own{};
      if (!acts) return own;
      own.t = t[at];
      if (turn != kNoStep) own.p = LoadOnce(p + at);
      if (turn == kTwoSteps) {
        own.before = __ldcs(before + at);
        own.x      = __ldcs(x + at);
      }
      return own;
    },
    [&](LocalInt row, double2 sum, const SecondOperands &own) {
      const ptrdiff_t at = (ptrdiff_t)row * L::row + pair;
      const double2   z  = {own.t.x + sum.x, own.t.y + sum.y};
      zz[0].x += z.x * z.x;
      zz[0].y += z.y * z.y;
      if (turn == kNoStep) {
        before[at] = z;
        return;
      }
      before[at] = steps.Turn(pair, z, own.p);
      if (turn == kTwoSteps) __stcs(x + at, steps.Add(pair, own.x, own.before, own.p));
    });
  if (!active || !SumColumnsLast<Columns>(zz, partial, &state->ticket, total)) return;
  if (!LeaveColumns(state, Columns, total, state->own.steps + Columns)) FinishColumns(state, Columns, total, turn);
}

/* The same two for M = D, or M = 1 where d is null: t is r, and z = D t. */
template <int Columns>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  UpdateResidual(LocalInt n, bool backward, bool first, const double *__restrict__ d, const double2 *__restrict__ w,
                 double2 *__restrict__ t, double *partial, CGColumnsState *state)
{
  using L                 = ColumnLanes<Columns>;
  const int         pair  = L::Pair();
  const long long   count = (long long)n * L::row, stride = (long long)gridDim.x * kCGBlock;
  double2           sums[2] = {{0, 0}, {0, 0}};
  __shared__ double total[2 * Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  const double2 a = StepsOf(state, pair);
  for (long long k = GridThread(); k < count; k += stride) {
    /* the rows from the end, each with its columns in their order */
    const long long at  = backward ? ((long long)n - 1 - k / L::row) * L::row + pair : k;
    double2         now = w[at];
    if (!first) {
      const double2 old = t[at];
      now               = {old.x - a.x * now.x, old.y - a.y * now.y};
    }
    t[at]              = now;
    const double scale = d ? d[at / L::row] : 1.;
    sums[0].x += now.x * scale * now.x;
    sums[0].y += now.y * scale * now.y;
    sums[1].x += now.x * now.x;
    sums[1].y += now.y * now.y;
  }
  if (!SumColumnsLast<Columns>(sums, partial, &state->ticket, total)) return;
  if (!LeaveColumns(state, 2 * Columns, total, state->own.norms)) KeepSums(state, Columns, total, total + Columns);
}

/* r.z, and b that follows from it, where z comes from a cycle; r.r is there. */
template <int Columns>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  MultiplyVectors(LocalInt n, const double2 *__restrict__ r, const double2 *__restrict__ z, double *partial, CGColumnsState *state)
{
  using L                 = ColumnLanes<Columns>;
  const long long   count = (long long)n * L::row, stride = (long long)gridDim.x * kCGBlock;
  double2           sums[1] = {{0, 0}};
  __shared__ double total[Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  for (long long at = GridThread(); at < count; at += stride) {
    const double2 r_i = r[at], z_i = z[at];
    sums[0].x += r_i.x * z_i.x;
    sums[0].y += r_i.y * z_i.y;
  }
  if (SumColumnsLast<Columns>(sums, partial, &state->ticket, total)) KeepSums(state, Columns, total, state->nn);
}

template <int Columns>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  UpdateDirection(const __grid_constant__ RowsPass pass, const double *__restrict__ d, const double2 *__restrict__ t,
                  double2 *__restrict__ x, const double2 *__restrict__ p, double2 *__restrict__ before, double *partial,
                  CGColumnsState *state)
{
  using L                 = ColumnLanes<Columns>;
  const int         pair  = L::Pair();
  const auto        turn  = pass.turn;
  const long long   count = (long long)pass.n * L::row, stride = (long long)gridDim.x * kCGBlock;
  double2           zz[1] = {{0, 0}};
  __shared__ double total[Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  __shared__ ColumnSteps<Columns> steps;
  if (threadIdx.x < Columns) steps.Load(state, (int)threadIdx.x);
  __syncthreads();
  for (long long k = GridThread(); k < count; k += stride) {
    const long long at    = pass.At<Columns>(k);
    const double    scale = d ? d[at / L::row] : 1.;
    const double2   own = t[at], z = {scale * own.x, scale * own.y};
    zz[0].x += z.x * z.x;
    zz[0].y += z.y * z.y;
    if (turn == kNoStep) {
      before[at] = z;
      continue;
    }
    const double2 along = p[at];
    if (turn == kTwoSteps) __stcs(x + at, steps.Add(pair, __ldcs(x + at), before[at], along));
    before[at] = steps.Turn(pair, z, along);
  }
  if (!SumColumnsLast<Columns>(zz, partial, &state->ticket, total)) return;
  if (!LeaveColumns(state, Columns, total, state->own.steps + Columns)) FinishColumns(state, Columns, total, turn);
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

/* The other way round, with the steps that are still to be made along p. */
template <int Columns>
__global__ void __launch_bounds__(kCGBlock)
  SeparateColumns(LocalInt n, LocalInt columns, LeftColumns left, const double *__restrict__ x, const double *__restrict__ p,
                  const CGColumnsState *state, double *__restrict__ X, LocalInt ldx)
{
  const long long i = GridThread();
  if (i >= n) return;
#pragma unroll
  for (int c = 0; c < Columns; c++)
    if (c < columns && !left.is[c])
      X[(size_t)c * ldx + i] = state->is_due[c] ? x[i * Columns + c] + state->due[c] * p[i * Columns + c] : x[i * Columns + c];
}

/* ------------------------------------------ launches ------------------------------------------ */

/* Beside an exchange by NCCL there are more blocks, which come one after the other, so that it gets room on the chip. */
int SliceBlocks_CGColumns(const CGColumnsWork *work, const Slices &W, bool beside_exchange)
{
  return FusedGrid(W, work->processors, beside_exchange ? kProductWaves * kProductBlocks : kProductBlocks);
}

/* Blocks of a kernel over block vectors. */
int VectorBlocks_CGColumns(const CGColumnsWork *work)
{
  return std::max(1, std::min(BlocksFor((long long)work->n * work->width / 2, kCGBlock), work->processors * kCGBlocksOnChip));
}

/* Whether some rank has entries of the operator in columns of other ranks. */
bool CrossesRanks(const CGColumnsWork *work, const CGGhosts &ghosts)
{
  return work->nccl && ghosts.used;
}

double2 *PairsOf(double *x)
{
  return (double2 *)x;
}

/* What a product sends. */
ExchangeSend SendOf_CGColumns(const CGColumnsWork *work, const CGGhosts &ghosts)
{
  return work->nccl ? ghosts.Send() : ExchangeSend{};
}

/*
   A product is launched with as much shared memory as its blocks on a processor take, and no more: the rest of that memory is the
   first-level cache, where the rows of block vectors are found that neighbouring slices share.
*/
template <typename... Parameters, typename... Arguments>
PetscErrorCode LaunchProduct_CGColumns(const CGColumnsWork *work, const Slices &W, const CGGhosts &ghosts, bool early,
                                       void (*kernel)(Parameters...), cudaStream_t stream, Arguments... arguments)
{
  constexpr int      kReserved = 1024; /* bytes of each block that the GPU keeps for itself */
  cudaFuncAttributes compiled;

  PetscFunctionBegin;
  PetscCallCUDA(cudaFuncGetAttributes(&compiled, (const void *)kernel));
  const int bytes = kProductBlocks * ((int)compiled.sharedSizeBytes + kReserved);
  PetscCallCUDA(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     std::min(100, (100 * bytes + work->shared - 1) / work->shared)));
  PetscCall(LaunchEarly(early, kernel, SliceBlocks_CGColumns(work, W, CrossesRanks(work, ghosts) && ghosts.ByMessages()), kCGBlock,
                        stream, W, arguments...));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchOperator_CGColumns(CGColumnsWork *work, const CGFusedWork *op, bool early, bool backward, const double *p,
                                        double *w, cudaStream_t stream)
{
  const bool crosses = CrossesRanks(work, work->ghosts);

  PetscFunctionBegin;
  if (crosses) PetscCall(CGGhostsBegin(work, &work->ghosts, nullptr, p, stream));
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    return FusedWithKind(op->A, [&](auto even, auto value) {
      return LaunchProduct_CGColumns(work, op->A, work->ghosts, early, MultiplyOperator<width, even, decltype(value)>, stream,
                                     work->processors, SendOf_CGColumns(work, work->ghosts), backward, (const double2 *)p,
                                     PairsOf(w), work->partial.data(), work->mailbox.state());
    });
  }));
  if (crosses) PetscCall(CGGhostsEnd(work, &work->ghosts, stream));
  if (crosses) PetscCall(CGColumnsLaunchGhosts(work, early, p, w, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On several ranks, the sums p.w and the end of the iteration before; on one rank the kernels that make the sums decide. */
PetscErrorCode LaunchSumSteps(CGColumnsWork *work, bool early, cudaStream_t stream)
{
  CGColumnsState *const state = work->mailbox.state();

  PetscFunctionBegin;
  if (!work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  if (!work->peers) PetscCall(NCCLSum(work->nccl, state->own.steps, state->all.steps, 2 * work->width, stream));
  PetscCall(
    CGColumnsWithWidth(work->width, [&](auto width) { return LaunchEarly(early, SumSteps<width>, 1, kWarpSize, stream, state); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On several ranks, the sums r.z and r.r. */
PetscErrorCode LaunchSumNorms(CGColumnsWork *work, bool early, CGColumnsTurn turn, cudaStream_t stream)
{
  CGColumnsState *const state = work->mailbox.state();

  PetscFunctionBegin;
  if (!work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  if (!work->peers) PetscCall(NCCLSum(work->nccl, state->own.norms, state->all.norms, 2 * work->width, stream));
  PetscCall(CGColumnsWithWidth(work->width,
                               [&](auto width) { return LaunchEarly(early, SumNorms<width>, 1, kWarpSize, stream, turn, state); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* t by W1, with r.z and r.r. */
PetscErrorCode LaunchFirst_CGColumns(CGColumnsWork *work, const CGFusedWork *op, bool early, bool backward, CGColumnsTurn turn,
                                     cudaStream_t stream)
{
  const ProductTurn how{work->processors, SendOf_CGColumns(work, work->ghosts1), backward, turn};
  const bool        crosses = CrossesRanks(work, work->ghosts1);

  PetscFunctionBegin;
  if (crosses) PetscCall(CGGhostsBegin(work, &work->ghosts1, nullptr, work->w, stream));
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    return FusedWithKind(op->W1, [&](auto even, auto value) {
      return LaunchProduct_CGColumns(work, op->W1, work->ghosts1, early, MultiplyFirst<width, even, decltype(value)>, stream, how,
                                     op->d, PairsOf(work->w), PairsOf(work->t), PairsOf(work->r), work->partial.data(),
                                     work->mailbox.state());
    });
  }));
  if (crosses) PetscCall(CGGhostsEnd(work, &work->ghosts1, stream));
  if (crosses) PetscCall(CGColumnsLaunchFirstGhosts(work, early, turn == kNoStep, op->d, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The next direction by W2, with z.z. */
PetscErrorCode LaunchSecond_CGColumns(CGColumnsWork *work, const CGFusedWork *op, bool early, bool backward, CGColumnsTurn turn,
                                      double *p, double *next, cudaStream_t stream)
{
  const ProductTurn how{work->processors, SendOf_CGColumns(work, work->ghosts2), backward, turn};
  const bool        crosses = CrossesRanks(work, work->ghosts2);

  PetscFunctionBegin;
  if (crosses) PetscCall(CGGhostsBegin(work, &work->ghosts2, nullptr, work->t, stream));
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    return FusedWithKind(op->W2, [&](auto even, auto value) {
      return LaunchProduct_CGColumns(work, op->W2, work->ghosts2, early, MultiplySecond<width, even, decltype(value)>, stream, how,
                                     PairsOf(work->t), PairsOf(work->x), PairsOf(p), PairsOf(next), work->partial.data(),
                                     work->mailbox.state());
    });
  }));
  if (crosses) PetscCall(CGGhostsEnd(work, &work->ghosts2, stream));
  if (crosses) PetscCall(CGColumnsLaunchSecondGhosts(work, early, turn == kNoStep, p, next, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What follows from w: the rest of an iteration with direction p, or of the start; the next direction comes to `next`. */
PetscErrorCode LaunchRest_CGColumns(CGColumnsWork *work, const CGFusedWork *op, bool early, bool backward, CGColumnsTurn turn,
                                    double *p, double *next, cudaStream_t stream)
{
  double *const         partial = work->partial.data();
  CGColumnsState *const state   = work->mailbox.state();

  PetscFunctionBegin;
  if (op->factored) {
    PetscCall(LaunchFirst_CGColumns(work, op, early, backward, turn, stream));
    PetscCall(LaunchSumNorms(work, early, turn, stream));
    PetscCall(LaunchSecond_CGColumns(work, op, early, !backward, turn, p, next, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    const double *const d = op->cycle ? nullptr : op->d;
    double *const       z = op->cycle ? work->w : work->t; /* or r, of which z is made */
    PetscFunctionBegin;
    PetscCall(LaunchEarly(early, UpdateResidual<width>, VectorBlocks_CGColumns(work), kCGBlock, stream, work->n, backward,
                          turn == kNoStep, d, PairsOf(work->w), PairsOf(work->t), partial, state));
    PetscCall(LaunchSumNorms(work, early, turn, stream));
    if (op->cycle) {
      PetscCall(CMATCHLaunchColumns(op->cycle, {work->t, z, work->width, state->nn, &state->running, work->cycle.data()}, stream));
      PetscCall(LaunchEarly(early, MultiplyVectors<width>, VectorBlocks_CGColumns(work), kCGBlock, stream, work->n,
                            PairsOf(work->t), PairsOf(z), partial, state));
    }
    PetscCall(LaunchEarly(early, UpdateDirection<width>, VectorBlocks_CGColumns(work), kCGBlock, stream,
                          RowsPass{work->n, !backward, turn}, d, PairsOf(z), PairsOf(work->x), PairsOf(p), PairsOf(next), partial,
                          state));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Pairs of iterations, every kernel over the rank's own rows in the direction that the one ahead of it has not. */
PetscErrorCode LaunchIterations_CGColumns(CGColumnsWork *work, const CGFusedWork *op, cudaStream_t stream)
{
  const bool early = work->early && (!work->nccl || CGColumnsAreDirect(work));

  PetscFunctionBegin;
  for (int k = 0; k < 2 * kPairs; k++) {
    const bool    odd = k % 2;
    double *const p = work->p[odd], *const next = work->p[!odd];

    PetscCall(LaunchOperator_CGColumns(work, op, early, odd, p, work->w, stream));
    PetscCall(LaunchSumSteps(work, early, stream));
    PetscCall(LaunchRest_CGColumns(work, op, early, !odd, odd ? kTwoSteps : kStepLater, p, next, stream));
  }
  PetscCall(work->mailbox.Post(early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CGColumnsMayStartEarly(bool *early)
{
  PetscFunctionBegin;
  PetscCall(SupportsEarlyLaunch((const void *)UpdateResidual<2>, early));
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

PetscErrorCode CGColumnsSeparate(const CGColumnsWork *work, const PetscBool left[], PetscScalar *X, LocalInt ldx,
                                 cudaStream_t stream)
{
  LeftColumns columns{};

  PetscFunctionBegin;
  for (LocalInt c = 0; c < work->columns; c++) columns.is[c] = left[c];
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    PetscFunctionBegin;
    SeparateColumns<width><<<BlocksFor(work->n, kCGBlock), kCGBlock, 0, stream>>>(work->n, work->columns, columns, work->x,
                                                                                  work->p[0], work->mailbox.state(), X, ldx);
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
    PetscCall(LaunchOperator_CGColumns(work, op, false, false, work->x, work->p[0], stream));
    Subtract<<<BlocksFor((long long)size, kCGBlock), kCGBlock, 0, stream>>>(size, work->p[0], work->w);
    FinePCCheckLaunch();
  }
  PetscCall(LaunchRest_CGColumns(work, op, false, true, kNoStep, work->p[1], work->p[0], stream));
  PetscCall(LaunchSumSteps(work, false, stream));
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
  now.cycle    = op->cycle;
  now.memory   = work->cycle.data();
  now.x        = work->x;
  now.r        = work->r;
  now.p        = work->p[0];
  now.w        = work->w;
  now.t        = work->t;
  now.nccl     = work->nccl;
  if (op->cycle) now.generation = CMATCHGeneration(op->cycle);

  const CGGhosts *const ghosts[] = {&work->ghosts, &work->ghosts1, &work->ghosts2};
  for (int k = 0; k < 3; k++) {
    if (!CrossesRanks(work, *ghosts[k])) continue;
    now.ghosts[k]    = ghosts[k]->rows;
    now.exchanges[k] = ghosts[k]->number;
  }
  if (work->graph && !memcmp(&now, &work->captured, sizeof(now))) PetscFunctionReturn(PETSC_SUCCESS);
  if (work->graph) PetscCallCUDA(cudaGraphExecDestroy(work->graph));
  work->graph = nullptr;
  PetscCall(
    CaptureGraph(&work->capture, [=](cudaStream_t stream) { return LaunchIterations_CGColumns(work, op, stream); }, &work->graph));
  memcpy((void *)&work->captured, &now, sizeof(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}
