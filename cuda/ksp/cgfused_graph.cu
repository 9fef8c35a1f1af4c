/* The fused conjugate gradient method as a sequence of kernels an iteration, and some iterations as a graph. */
#include <cstring>

#include "capture.cuh"
#include "cgfused.cuh"
#include "pc/cmatch/cmatch_launch.cuh"

namespace
{

constexpr int kCGWaves     = 4; /* of blocks of a product, one after the other, beside an exchange */
constexpr int kCGPerThread = 4; /* entries of vectors that a thread asks for at once */
constexpr int kCGIterations =
  4; /* of one launch of the graph, but one with a cycle of multigrid, which takes longer than a launch */

/*
   Calls act(row, sum over the row of W) for all rows, once the kernel before has ended and if the decision in the state lets this
   one go on, which is what the function gives. Before that it sends entries of x to other ranks, so that these are on their way
   while it multiplies.
*/
template <int Lanes, bool Even, typename V, typename Vector, typename Act>
__device__ __forceinline__ bool Multiply(const Slices &W, int processors, const ExchangeSend &send, const CGState *state, Vector x,
                                         Act act)
{
  bool active = false;
  FusedMultiply<Lanes, Even, V>(
    W, processors,
    [&]() {
      WaitForPrevious();
      LetNextStart();
      active = state->s.stage < kCGDecided;
      if (send.count && active) SendEntries(send, x, state->peers);
      return active;
    },
    x, act);
  return active;
}

/*
   w = A p, delta = p.w. This is the first kernel of an iteration: after a decision the step in x has been done by now, and nothing
   is left to do. Before the first iteration, and on several ranks, delta is kept as own_delta and nothing follows from it.
*/
template <int Lanes, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, FusedBlocks<Even, V>())
  MultiplyOperator(Slices A, int processors, ExchangeSend send, const double *p, double *w, double *partial, CGState *state)
{
  double     delta[1] = {0};
  const bool active   = Multiply<Lanes, Even, V>(
    A, processors, send, state, [=](LocalInt j) { return p[j]; },
    [&](LocalInt row, double sum) {
      w[row] = sum;
      delta[0] += p[row] * sum;
    });
  if (!active) {
    if (GridThread() == 0) state->s.stage = kCGStopped;
    return;
  }
  if (GridSumLast(delta, partial, &state->ticket)) {
    CGScalars s = state->s;
    if (s.stage != kCGRunning || s.several) {
      state->own_delta = delta[0];
      return;
    }
    DecideDelta(s, delta[0]);
    state->s = s;
  }
}

/* t = D (r + W1 r) */
template <int Lanes, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, FusedBlocks<Even, V>())
  MultiplyFirst(Slices W1, int processors, ExchangeSend send, const double *d, const double *r, double *t, const CGState *state)
{
  Multiply<Lanes, Even, V>(
    W1, processors, send, state, [=](LocalInt j) { return r[j]; },
    [&](LocalInt row, double sum) { t[row] = d[row] * (r[row] + sum); });
}

/* z = t + W2 t, the sums z.r and z.z, and what follows from them: the last kernel of z = M r. */
template <int Lanes, bool Even, typename V>
__global__ void __launch_bounds__(kCGBlock, FusedBlocks<Even, V>())
  MultiplySecond(Slices W2, int processors, ExchangeSend send, const double *t, const double *r, double *z, double *partial,
                 CGState *state)
{
  double     sums[2] = {0, 0};
  const bool active  = Multiply<Lanes, Even, V>(
    W2, processors, send, state, [=](LocalInt j) { return t[j]; },
    [&](LocalInt row, double sum) {
      const double z_row = t[row] + sum;
      z[row]             = z_row;
      sums[0] += z_row * z_row;
      sums[1] += z_row * r[row];
    });
  if (active && GridSumLast(sums, partial, &state->ticket))
    FinishIteration(state, state->test.norm == CG_NORM_PRECONDITIONED ? sums[0] : state->nn, sums[1]);
}

/* The sums z.r and z.z of a cycle, and what follows from them. */
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  FinishCycle(LocalInt n, const double *z, const double *r, double *partial, CGState *state)
{
  double sums[2] = {0, 0};
  WaitForPrevious();
  LetNextStart();
  if (state->s.stage >= kCGDecided) return;
  for (long long i = GridThread(); i < n; i += (long long)gridDim.x * kCGBlock) {
    const double z_i = z[i];
    sums[0] += z_i * z_i;
    sums[1] += z_i * r[i];
  }
  if (GridSumLast(sums, partial, &state->ticket))
    FinishIteration(state, state->test.norm == CG_NORM_PRECONDITIONED ? sums[0] : state->nn, sums[1]);
}

/* A thread's entries of a vector, kCGBlock apart; zeros beyond the vector's end. Stream: they are not needed again soon. */
struct Entries {
  double v[kCGPerThread];

  template <bool Stream = false>
  __device__ void Load(const double *from, LocalInt first, LocalInt n)
  {
#pragma unroll
    for (int k = 0; k < kCGPerThread; k++) {
      const LocalInt i = first + k * kCGBlock;
      v[k]             = i >= n ? 0. : Stream ? __ldcs(from + i) : from[i];
    }
  }
};

/*
   r = from - a w, or r = from where w is null, and r.r. With Diagonal M is the diagonal d, or 1 where d is null: the sums of
   z = d r end the iteration, and z is not stored. `from` and d are read before the wait: the kernel before this one does not write
   them.

   With Several the sums of the kernels before are those of all ranks by now. Every thread makes the decision about delta from them,
   and the last block writes it down: a kernel for that alone would take as long as a small sum over ranks.
*/
template <bool Diagonal, bool Several>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  UpdateResidual(LocalInt n, const double *from, const double *w, const double *d, double *r, double *partial, CGState *state)
{
  const LocalInt stride  = (LocalInt)(gridDim.x * kCGBlock * kCGPerThread);
  LocalInt       first   = (LocalInt)(blockIdx.x * kCGBlock * kCGPerThread + threadIdx.x);
  double         sums[2] = {0, 0};
  Entries        r_i, w_i, d_i;
  r_i.Load(from, first, n);
  if (Diagonal && d) d_i.Load(d, first, n);
  WaitForPrevious();
  LetNextStart();
  CGStage    stage          = state->s.stage;
  double     a              = state->s.a;
  const bool preconditioned = Diagonal && state->test.norm == CG_NORM_PRECONDITIONED;
  if (w) w_i.Load(w, first, n);
  if (Several && stage == kCGRunning) {
    CGScalars s = state->s;
    DecideDelta(s, state->all.delta);
    stage = s.stage;
    a     = s.a;
    if (stage >= kCGDecided && GridThread() == 0) { /* who reads it before or after that comes to the same decision */
      state->s.stop  = s.stop;
      state->s.its   = s.its;
      state->s.value = s.value;
      state->s.stage = s.stage;
    }
  }
  if (stage >= kCGDecided) return;
  while (first < n) {
#pragma unroll
    for (int k = 0; k < kCGPerThread; k++) {
      const LocalInt i = first + k * kCGBlock;
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
    if (Several && state->s.stage == kCGRunning) {
      CGScalars s = state->s;
      DecideDelta(s, state->all.delta);
      state->s = s;
    }
    if (Diagonal) FinishIteration(state, sums[0], sums[1]);
    else state->nn = sums[0];
  }
}

/*
   x = x + a p, p = z + b p. With Diagonal z is not stored: the argument z is r, and z = d r, or r where d is null. x, p and d are
   read before the wait: the kernel before this one does not write them.

   With Several it is this kernel that makes the decision about beta, from the sums of all ranks, as UpdateResidual does it about
   delta.
*/
template <bool Diagonal, bool Several>
__global__ void __launch_bounds__(kCGBlock, kCGBlocksOnChip)
  UpdateDirection(LocalInt n, const double *z, const double *d, double *x, double *p, CGState *state)
{
  const LocalInt stride = (LocalInt)(gridDim.x * kCGBlock * kCGPerThread);
  LocalInt       first  = (LocalInt)(blockIdx.x * kCGBlock * kCGPerThread + threadIdx.x);
  Entries        x_i, p_i, z_i, d_i;
  x_i.Load<true>(x, first, n);
  p_i.Load(p, first, n);
  if (Diagonal && d) d_i.Load(d, first, n);
  WaitForPrevious();
  LetNextStart();
  CGStage stage = state->s.stage;
  double  a = state->s.a, b = state->s.b;
  if (Several && stage == kCGRunning) {
    CGScalars s = state->s;
    (void)DecideBeta(s, state->test, state->all.nn, state->all.rz);
    stage = s.stage;
    b     = s.b;
  }
  const bool more = stage != kCGDecided;
  z_i.Load(z, first, n);
  if (stage == kCGStopped) return;
  while (first < n) {
#pragma unroll
    for (int k = 0; k < kCGPerThread; k++) {
      const LocalInt i = first + k * kCGBlock;
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
  if (Several && IsLastHere(&state->ticket)) {
    CGScalars  s      = state->s;
    const auto record = DecideBeta(s, state->test, state->all.nn, state->all.rz);
    if (s.stage == kCGDecided) s.stage = kCGStopped; /* the step in x has been done */
    state->records[s.iteration % kCGRecords] = record;
    state->s                                 = s;
  }
}

/* ------------------------------------------ launches ------------------------------------------ */

/*
   Beside an exchange by NCCL, blocks that stay to the end would leave no room on the chip for its kernel, which comes a moment
   later, so that nothing ran side by side. Therefore there are more blocks then, which come one after the other, and the exchange,
   whose stream has priority, gets the room of the first that end.
*/
int SliceBlocks_CGFused(const CGFusedWork *work, const Slices &A, bool beside_exchange)
{
  return FusedGrid(A, work->processors, (beside_exchange ? kCGWaves : 1) * FusedBlocks(A));
}

/* Blocks of a kernel over vectors whose threads take kCGPerThread entries at once. */
int VectorBlocks_CGFused(const CGFusedWork *work)
{
  return std::max(1, std::min(BlocksFor(work->A.rows, kCGBlock * kCGPerThread), work->processors * kCGBlocksOnChip));
}

/* What a product sends. */
ExchangeSend SendOf(const CGFusedWork *work, const CGGhosts &ghosts)
{
  return work->nccl ? ghosts.Send() : ExchangeSend{};
}

/* What comes behind a sum over all ranks by NCCL is not launched early: what is ahead of it is not ours. */
bool LaunchesEarly(const CGFusedWork *work)
{
  return work->early && (!work->nccl || work->peers);
}

PetscErrorCode LaunchProduct_CGFused(CGFusedWork *work, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(CGFusedLaunchProduct(work, LaunchesEarly(work), work->v.p, work->v.z, stream)); /* z is w until it is made anew */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An iteration behind its product. */
PetscErrorCode LaunchRest_CGFused(CGFusedWork *work, cudaStream_t stream)
{
  const bool early = LaunchesEarly(work);

  PetscFunctionBegin;
  PetscCall(CGFusedLaunchResidual(work, early, false, work->v.r, work->v.z, stream));
  PetscCall(CGFusedLaunchDirection(work, early, work->nccl, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the graph has: the rest of an iteration whose product is another graph, or some iterations. */
PetscErrorCode LaunchIterations_CGFused(CGFusedWork *work, cudaStream_t stream)
{
  PetscFunctionBegin;
  for (LocalInt k = 0; k < CGFusedIterationsOfGraph(work); k++) {
    if (!work->one_by_one) PetscCall(LaunchProduct_CGFused(work, stream));
    PetscCall(LaunchRest_CGFused(work, stream));
  }
  PetscCall(work->mailbox.Post(LaunchesEarly(work), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

LocalInt CGFusedIterationsOfGraph(const CGFusedWork *work)
{
  return work->cycle || work->one_by_one ? 1 : kCGIterations;
}

PetscErrorCode CGFusedMayStartEarly(bool *early)
{
  PetscFunctionBegin;
  PetscCall(SupportsEarlyLaunch((const void *)UpdateResidual<true, false>, early));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w = A p and p.w by the rank's own columns, and entries of p to other ranks where kernels write to these. */
static PetscErrorCode LaunchOperator_CGFused(CGFusedWork *work, bool early, const PetscScalar *p, PetscScalar *w,
                                             cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(SlicesWithLanes(work->A.lanes, [&](auto lanes) {
    return FusedWithKind(work->A, [&](auto even, auto value) {
      return LaunchEarly(early, MultiplyOperator<lanes, even, decltype(value)>,
                         SliceBlocks_CGFused(work, work->A, work->nccl && work->ghosts.ByMessages()), kCGBlock, stream, work->A,
                         work->processors, SendOf(work, work->ghosts), p, w, work->partial.data(), work->mailbox.state());
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchProduct(CGFusedWork *work, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t stream)
{
  CGState *const state = work->mailbox.state();

  PetscFunctionBegin;
  if (work->nccl) PetscCall(CGGhostsBegin(work, &work->ghosts, nullptr, p, stream));
  PetscCall(LaunchOperator_CGFused(work, early, p, w, stream));
  if (!work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGGhostsEnd(work, &work->ghosts, stream));
  PetscCall(CGFusedLaunchGhosts(work, early, p, w, stream));
  if (!work->peers) PetscCall(NCCLSum(work->nccl, &state->own.delta, &state->all.delta, 1, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* t = D (r + W1 r), and z = t + W2 t with its sums, by the rank's own columns; `shared`: with NCCL's kernels beside it. */
static PetscErrorCode LaunchFirst_CGFused(CGFusedWork *work, bool early, bool shared, const PetscScalar *r, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(SlicesWithLanes(work->W1.lanes, [&](auto lanes) {
    return FusedWithKind(work->W1, [&](auto even, auto value) {
      return LaunchEarly(early, MultiplyFirst<lanes, even, decltype(value)>, SliceBlocks_CGFused(work, work->W1, shared), kCGBlock,
                         stream, work->W1, work->processors, SendOf(work, work->ghosts1), work->d, r, work->t.data(),
                         work->mailbox.state());
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode LaunchSecond_CGFused(CGFusedWork *work, bool early, bool shared, const PetscScalar *r, PetscScalar *z,
                                           cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(SlicesWithLanes(work->W2.lanes, [&](auto lanes) {
    return FusedWithKind(work->W2, [&](auto even, auto value) {
      return LaunchEarly(early, MultiplySecond<lanes, even, decltype(value)>, SliceBlocks_CGFused(work, work->W2, shared), kCGBlock,
                         stream, work->W2, work->processors, SendOf(work, work->ghosts2), work->t.data(), r, z,
                         work->partial.data(), work->mailbox.state());
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = M r by W1 and W2 or by a cycle, and what ends an iteration, or the start. */
static PetscErrorCode LaunchInverse_CGFused(CGFusedWork *work, bool early, const PetscScalar *r, PetscScalar *z,
                                            cudaStream_t stream)
{
  CGState *const state  = work->mailbox.state();
  double *const partial = work->partial.data(), *const t = work->t.data();

  PetscFunctionBegin;
  if (work->cycle) {
    const LocalInt n = work->A.rows;
    /* A cycle on several ranks is scaled by the residual before, since the size of this one would be a sum over the ranks more. */
    PetscCall(
      CMATCHLaunch(work->cycle, r, z, work->nccl ? &state->all.rr : &state->nn, (const int *)&state->s.stage, kCGDecided, stream));
    PetscCall(LaunchEarly(early && !work->nccl, FinishCycle, CGFusedSumBlocks(work, n), kCGBlock, stream, n, z, r, partial, state));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const bool crosses1 = work->nccl && work->ghosts1.used, crosses2 = work->nccl && work->ghosts2.used;
  const bool by_nccl1 = crosses1 && work->ghosts1.ByMessages(), by_nccl2 = crosses2 && work->ghosts2.ByMessages();
  if (crosses1) PetscCall(CGGhostsBegin(work, &work->ghosts1, nullptr, r, stream));
  PetscCall(LaunchFirst_CGFused(work, early && !by_nccl1, by_nccl1, r, stream));
  if (crosses1) PetscCall(CGGhostsEnd(work, &work->ghosts1, stream));
  if (crosses1) PetscCall(CGFusedLaunchFirstGhosts(work, early, t, stream));
  if (crosses2) PetscCall(CGGhostsBegin(work, &work->ghosts2, nullptr, t, stream));
  PetscCall(LaunchSecond_CGFused(work, early && !by_nccl1 && !by_nccl2, by_nccl2, r, z, stream));
  if (crosses2) PetscCall(CGGhostsEnd(work, &work->ghosts2, stream));
  if (crosses2) PetscCall(CGFusedLaunchSecondGhosts(work, early, r, z, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchResidual(CGFusedWork *work, bool early, bool start, const PetscScalar *from, const PetscScalar *w,
                                     cudaStream_t stream)
{
  const CGFusedVectors &v       = work->v;
  CGState *const        state   = work->mailbox.state();
  double *const         partial = work->partial.data();
  const LocalInt        n       = work->A.rows;

  const bool diagonal = !work->factored && !work->cycle, several = work->nccl;

  PetscFunctionBegin;
  const auto kernel = diagonal ? (several ? UpdateResidual<true, true> : UpdateResidual<true, false>)
                               : (several ? UpdateResidual<false, true> : UpdateResidual<false, false>);
  PetscCall(LaunchEarly(early, kernel, VectorBlocks_CGFused(work), kCGBlock, stream, n, from, w, diagonal ? work->d : nullptr, v.r,
                        partial, state));
  if (start && several && work->cycle) PetscCall(NCCLSum(work->nccl, &state->nn, &state->all.rr, 1, stream));
  if (!diagonal) PetscCall(LaunchInverse_CGFused(work, several ? work->early : early, v.r, v.z, stream));
  if (several && !work->peers) {
    if (work->cycle) PetscCall(NCCLSum(work->nccl, &state->own.rr, &state->all.rr, 3, stream));
    else PetscCall(NCCLSum(work->nccl, &state->own.nn, &state->all.nn, 2, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchDirection(CGFusedWork *work, bool early, bool decide, cudaStream_t stream)
{
  const CGFusedVectors &v        = work->v;
  const bool            diagonal = !work->factored && !work->cycle;

  PetscFunctionBegin;
  const auto kernel = diagonal ? (decide ? UpdateDirection<true, true> : UpdateDirection<true, false>)
                               : (decide ? UpdateDirection<false, true> : UpdateDirection<false, false>);
  PetscCall(LaunchEarly(early, kernel, VectorBlocks_CGFused(work), kCGBlock, stream, work->A.rows, diagonal ? v.r : v.z,
                        diagonal ? work->d : nullptr, v.x, v.p, work->mailbox.state()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedCaptureIterations(CGFusedWork *work)
{
  CGFusedCaptured now;

  PetscFunctionBegin;
  memset((void *)&now, 0, sizeof(now)); /* with its padding, which is compared */
  now.A                          = work->A;
  now.W1                         = work->W1;
  now.W2                         = work->W2;
  now.d                          = work->d;
  now.cycle                      = work->cycle;
  now.generation                 = work->cycle ? CMATCHGeneration(work->cycle) : 0;
  now.x                          = work->v.x;
  now.r                          = work->v.r;
  now.z                          = work->v.z;
  now.p                          = work->v.p;
  now.t                          = work->t.data();
  now.nccl                       = work->nccl;
  now.one_by_one                 = work->one_by_one;
  const CGGhosts *const ghosts[] = {&work->ghosts, &work->ghosts1, &work->ghosts2};
  for (int k = 0; k < 3; k++) {
    if (ghosts[k]->used) now.ghosts[k] = ghosts[k]->rows;
    now.exchanges[k] = ghosts[k]->number;
  }
  if (work->graph && !memcmp(&now, &work->captured, sizeof(now))) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedDestroyGraph(work));
  if (work->one_by_one)
    PetscCall(
      CaptureGraph(&work->capture, [work](cudaStream_t stream) { return LaunchProduct_CGFused(work, stream); }, &work->product));
  PetscCall(
    CaptureGraph(&work->capture, [work](cudaStream_t stream) { return LaunchIterations_CGFused(work, stream); }, &work->graph));
  PetscCallCUDA(cudaGraphUpload(work->graph, work->capture)); /* or the first launch would do it */
  memcpy((void *)&work->captured, &now, sizeof(now));
  if (work->nccl && work->cycle) {
    PetscCall(CMATCHShareGraph(work->cycle, &work->graph));
    work->shared = true;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedDestroyGraph(CGFusedWork *work)
{
  PetscFunctionBegin;
  if (work->graph) {
    if (work->shared) CMATCHUnshareGraph(work->captured.cycle, &work->graph);
    PetscCallCUDA(cudaGraphExecDestroy(work->graph));
  }
  if (work->product) PetscCallCUDA(cudaGraphExecDestroy(work->product));
  work->graph = work->product = nullptr;
  work->shared                = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}
