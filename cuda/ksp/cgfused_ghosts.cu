/*
   The columns of other ranks: the product with the entries that these own, the ghosts, and the exchange that brings them, where
   kernels make it.
*/
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "agree.h"
#include "capture.cuh"
#include "cgfused.cuh"
#include "entry.h"

namespace
{

constexpr LocalInt kMostGhostLanes = 8; /* of a row of entries of other ranks */

/* Whether a row has entries. */
struct HasEntries {
  const LocalInt *i;

  __device__ bool operator()(LocalInt row) const { return i[row + 1] > i[row]; }
};

/*
   What becomes of a row's sum over the columns of other ranks: for the operator w = w + B ghosts, with the change of the sum p.w.
   Another product with ghosts is another such struct.
*/
struct AddToOperator {
  static constexpr int kSums = 1;

  const double *p;
  double       *w;

  __device__ void AddRow(LocalInt row, double sum, double (&sums)[kSums]) const
  {
    w[row] += sum;
    sums[0] += p[row] * sum;
  }
  /* One thread calls it with the sums over all rows. */
  __device__ void Finish(CGState *state, const double (&sums)[kSums]) const
  {
    const double delta = state->own_delta + sums[0];
    if (state->s.several) {
      double all[1]    = {delta};
      state->own.delta = delta;
      if (state->s.direct) SumOverRanks(state->peers, all, &state->all.delta);
    } else { /* for the host, which adds them over the ranks */
      state->dots[0] = state->sums.rz;
      state->dots[1] = state->sums.nn;
      state->dots[2] = delta;
    }
  }
};

/* t = t + D W1 ghosts */
struct AddToFirst {
  static constexpr int kSums = 1; /* of which nothing follows */

  const double *d;
  double       *t;

  __device__ void AddRow(LocalInt row, double sum, double (&)[kSums]) const { t[row] += d[row] * sum; }
  __device__ void Finish(CGState *, const double (&)[kSums]) const { }
};

/*
   z = z + W2 ghosts, with the changes of the sums z.z and z.r, which the product with the rank's own columns has left for all
   ranks, or for the host.
*/
struct AddToSecond {
  static constexpr int kSums = 2;

  const double *r;
  double       *z;

  __device__ void AddRow(LocalInt row, double sum, double (&sums)[kSums]) const
  {
    const double before = z[row];
    z[row]              = before + sum;
    sums[0] += sum * (2 * before + sum);
    sums[1] += sum * r[row];
  }
  __device__ void Finish(CGState *state, const double (&sums)[kSums]) const
  {
    const double nn = state->test.norm == CG_NORM_PRECONDITIONED ? sums[0] : 0;
    if (state->s.several) LeaveSums(state, state->own.nn + nn, state->own.rz + sums[1]);
    else state->sums = CGSums{state->sums.nn + nn, state->sums.rz + sums[1]};
  }
};

/*
   The rows that have entries times the ghosts, Lanes lanes a row.

   The sum of a first row does not depend on the product ahead of this kernel, which had waited for the decision, and for the turn
   of the words, before it let this kernel start. So the sum is made while the product ends.
*/
template <int Lanes, typename V, typename Product>
__global__ void __launch_bounds__(kCGBlock) MultiplyGhosts(CGGhostRows B, Product product, double *partial, CGState *state)
{
  const V *const a                    = (const V *)B.a;
  const LocalInt stride               = (LocalInt)(gridDim.x * kCGBlock / Lanes);
  const bool     ended                = __ldcg((const int *)&state->s.stage) >= kCGDecided;
  const unsigned turn                 = B.words ? __ldcg(state->peers.turn) : 0;
  double         sums[Product::kSums] = {};
  bool           waited               = false;
  const auto     wait                 = [&]() {
    if (!waited) {
      WaitForPrevious();
      LetNextStart();
    }
    waited = true;
  };
  for (LocalInt k = (LocalInt)(GridThread() / kWarpSize) * (kWarpSize / Lanes); !ended && k < B.count; k += stride) {
    /* k is the same in all lanes of the warp */
    const LocalInt at = k + threadIdx.x % kWarpSize / Lanes, row = at < B.count ? B.rows[at] : 0,
                   end = at < B.count ? B.i[row + 1] : 0;
    double sum         = 0;
    for (LocalInt e = at < B.count ? B.i[row] + threadIdx.x % Lanes : 0; e < end; e += Lanes)
      sum += (double)a[e] * (B.words ? AwaitWord(B.words + B.j[e], turn) : B.values[B.j[e]]);
    sum = GroupSum<Lanes>(sum);
    wait();
    if (at < B.count && threadIdx.x % Lanes == 0) product.AddRow(row, sum, sums);
  }
  wait();
  if (!ended && GridSumLast(sums, partial, &state->ticket)) product.Finish(state, sums);
}

/* to[k] = from[index[k]] */
__global__ void Gather(LocalInt count, const LocalInt *index, const double *__restrict__ from, double *__restrict__ to)
{
  const long long k = GridThread();
  if (k < count) to[k] = from[index[k]];
}

/* What a product sends, by itself. */
__global__ void __launch_bounds__(kCGBlock) Send(CGSend send, const double *from, const CGState *state)
{
  SendEntries(send, [=](LocalInt k) { return from[k]; }, state->peers);
}

/* to[k] = the number of word k */
__global__ void __launch_bounds__(kCGBlock) ReadWords(LocalInt count, const uint4 *words, double *to, const CGState *state)
{
  const long long k = GridThread();
  if (k < count) to[k] = AwaitWord(words + k, *state->peers.turn);
}

/* to[index[k]] = from[k] */
__global__ void Scatter(LocalInt count, const LocalInt *index, const double *__restrict__ from, double *__restrict__ to)
{
  const long long k = GridThread();
  if (k < count) to[index[k]] = from[k];
}

PetscErrorCode KeepList(const std::vector<LocalInt> &list, Buffer<LocalInt> *kept, Buffer<double> *values)
{
  PetscFunctionBegin;
  PetscCall(kept->Allocate(list.size()));
  PetscCall(values->Allocate(list.size()));
  PetscCall(ArrayCopy_CUDA(kept->data(), list.data(), list.size() * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* As many lanes as a row has entries on average. */
static LocalInt GhostLanes(LocalInt rows, LocalInt nnz)
{
  LocalInt lanes = 1;
  while (lanes < kMostGhostLanes && (PetscInt64)lanes * rows < nnz) lanes *= 2;
  return lanes;
}

template <int Lanes, typename Product>
static PetscErrorCode LaunchWithLanes(CGFusedWork *work, bool early, const CGGhostRows &B, Product product, cudaStream_t stream)
{
  const int      blocks  = CGFusedSumBlocks(work, B.count * Lanes);
  CGState *const state   = work->mailbox.state();
  double *const  partial = work->partial.data();

  PetscFunctionBegin;
  if (B.single)
    PetscCall(LaunchEarly(early, MultiplyGhosts<Lanes, float, Product>, blocks, kCGBlock, stream, B, product, partial, state));
  else PetscCall(LaunchEarly(early, MultiplyGhosts<Lanes, double, Product>, blocks, kCGBlock, stream, B, product, partial, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename Product>
static PetscErrorCode Launch(CGFusedWork *work, bool early, const CGGhosts &ghosts, Product product, cudaStream_t stream)
{
  const CGGhostRows &B = ghosts.rows;

  PetscFunctionBegin;
  if (!B.words) early = false; /* another stream is waited for */
  switch (B.lanes) {
  case 1: PetscCall(LaunchWithLanes<1>(work, early, B, product, stream)); break;
  case 2: PetscCall(LaunchWithLanes<2>(work, early, B, product, stream)); break;
  case 4: PetscCall(LaunchWithLanes<4>(work, early, B, product, stream)); break;
  default: PetscCall(LaunchWithLanes<kMostGhostLanes>(work, early, B, product, stream)); break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepareGhosts(CGGhosts *ghosts, const CSRView &B, PetscScalar *values, bool changed)
{
  const thrust::counting_iterator<LocalInt> every(0);
  const HasEntries                          has{B.i};
  CGGhostRows                              &rows = ghosts->rows;
  cudaStream_t                              stream;

  PetscFunctionBegin;
  ghosts->used = true;
  rows.i       = B.i; /* the arrays may be others, though nothing has changed */
  rows.j       = B.j;
  rows.a       = B.a;
  rows.values  = values;
  if (!changed) PetscFunctionReturn(PETSC_SUCCESS);
  rows.count = 0;
  if (!B.nnz) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (ghosts->list.size() < (size_t)B.n + 1) PetscCall(ghosts->list.Allocate((size_t)B.n + 1));
  LocalInt *const list = ghosts->list.data(), *const found = list + B.n;
  rows.rows = list;
  PetscCall(ghosts->select.Run(
    [&](void *scratch, size_t &bytes) { return cub::DeviceSelect::If(scratch, bytes, every, list, found, B.n, has, stream); }));
  PetscCall(ArrayCopy_CUDA(&rows.count, found, sizeof(*found), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  rows.lanes = GhostLanes(rows.count, B.nnz);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepareFactorGhosts(CGGhosts *ghosts, const CGFactorGhosts &from)
{
  CGGhostRows &rows = ghosts->rows;

  PetscFunctionBegin;
  ghosts->used = from.W;
  if (!from.W) PetscFunctionReturn(PETSC_SUCCESS);
  if (!from.values && ghosts->arrived.size() < (size_t)from.count) PetscCall(ghosts->arrived.Allocate((size_t)from.count));
  rows.count  = from.touched;
  rows.lanes  = GhostLanes(from.touched, from.W->nnz);
  rows.single = (PetscBool)(from.W->precision == FINEPC_SINGLE);
  rows.rows   = from.rows;
  rows.i      = from.W->i;
  rows.j      = from.W->j;
  rows.a      = from.W->a;
  rows.values = from.values ? from.values : ghosts->arrived.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchGhosts(CGFusedWork *work, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Launch(work, early, work->ghosts, AddToOperator{p, w}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchFirstGhosts(CGFusedWork *work, bool early, PetscScalar *t, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->ghosts1.rows.count) PetscCall(Launch(work, early, work->ghosts1, AddToFirst{work->d, t}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchSecondGhosts(CGFusedWork *work, bool early, const PetscScalar *r, PetscScalar *z, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->ghosts2.rows.count) PetscCall(Launch(work, early, work->ghosts2, AddToSecond{r, z}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- the exchange by NCCL ----------------------------------- */

PetscErrorCode CGFusedForgetGraph_CUDA(CGFusedWork *work)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  PetscCall(CGFusedDestroyGraph(work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void CGFusedGiveSlots(NCCL *nccl, CGGhosts *ghosts)
{
  if (ghosts->slots >= 0) NCCLGiveSlots(nccl, ghosts->slots);
  ghosts->slots      = -1;
  ghosts->direct     = false;
  ghosts->rows.words = nullptr;
}

PetscErrorCode CGFusedUseNCCL(CGFusedWork *work, NCCL *nccl)
{
  PetscFunctionBegin;
  if (nccl == work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedForgetGraph_CUDA(work));
  for (CGGhosts *ghosts : {&work->ghosts, &work->ghosts1, &work->ghosts2}) {
    CGFusedGiveSlots(work->nccl, ghosts);
    ghosts->exchange = -1;
  }
  if (work->nccl) NCCLRelease(work->nccl);
  work->nccl  = nccl;
  work->peers = nccl ? NCCLPeers(nccl) : nullptr;
  if (nccl) NCCLHold(nccl);
  if (nccl) work->mailbox.Watch([nccl]() { return NCCLCheck(nccl); });
  else work->mailbox.Watch(nullptr);
  if (work->peers)
    PetscCall(
      ArrayCopy_CUDA(&work->mailbox.state()->peers, work->peers, sizeof(*work->peers), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How many ghosts there are, where each rank's part goes into a piece of them. */
static LocalInt Ghosts(const CGGhosts &ghosts)
{
  LocalInt count = 0;
  for (const Neighbours::Part &part : ghosts.from) count = std::max(count, part.end);
  return count;
}

/* The words of other ranks that the entries go to, if each rank has words of its own for the ghosts. */
static PetscErrorCode ConnectDirectly(CGFusedWork *work, CGGhosts *ghosts, const Neighbours *neighbours, MPI_Comm comm)
{
  PetscBool             all;
  std::vector<LocalInt> there;
  std::vector<uint4 *>  words;
  const LocalInt        count = Ghosts(*ghosts);

  PetscFunctionBegin;
  const bool ready = neighbours->places.empty() && (!count || ghosts->slots >= 0);
  PetscCall(NeighboursTell(comm, *neighbours, ready ? PETSC_TRUE : PETSC_FALSE, ghosts->slots, &all, &there));
  if (!all) {
    CGFusedGiveSlots(work->nccl, ghosts);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (size_t k = 0; k < ghosts->to.size(); k++)
    for (LocalInt e = ghosts->to[k].begin; e < ghosts->to[k].end; e++)
      words.push_back(work->peers->words[ghosts->to[k].rank] + there[k] + (e - ghosts->to[k].begin));
  PetscCall(
    ArrayCopy_CUDA(ghosts->there.data(), words.data(), words.size() * sizeof(uint4 *), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  if (count) ghosts->rows.words = work->peers->own + ghosts->slots;
  ghosts->direct = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedMakeRoom(CGFusedWork *work, CGGhosts *ghosts, const Neighbours &neighbours, long exchange)
{
  int least, greatest;

  PetscFunctionBegin;
  if (!work->aside) {
    PetscCallCUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    PetscCallCUDA(cudaStreamCreateWithPriority(&work->aside, cudaStreamNonBlocking, greatest));
    for (cudaEvent_t *event : {&work->forked, &work->joined})
      PetscCallCUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  if (ghosts->exchange == exchange) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedForgetGraph_CUDA(work));
  CGFusedGiveSlots(work->nccl, ghosts);
  ghosts->exchange = -1; /* until it is ready */
  ghosts->number++;
  ghosts->to   = neighbours.to;
  ghosts->from = neighbours.from;
  PetscCall(KeepList(neighbours.entries, &ghosts->entries, &ghosts->packed));
  PetscCall(KeepList(neighbours.places, &ghosts->places, &ghosts->received));
  if (!work->peers) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ghosts->there.Allocate(neighbours.entries.size()));
  if (neighbours.places.empty()) ghosts->slots = NCCLTakeSlots(work->nccl, Ghosts(*ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepareExchange(CGFusedWork *work, CGGhosts *ghosts, const Neighbours &neighbours, long exchange,
                                      MPI_Comm comm)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (ghosts->exchange == exchange) PetscFunctionReturn(PETSC_SUCCESS);
  if (work->peers)
    PetscCall(AgreeOnError(comm, CallGuarded(ConnectDirectly, work, ghosts, &neighbours, comm), "connect its GPU with the others"));
  /* The first exchange and the first sum connect the ranks, which takes long, and must not wait for a rank that captures. */
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(ghosts->packed.data(), 0, ghosts->packed.bytes(), stream));
  PetscCall(NCCLSum(work->nccl, &work->mailbox.state()->own.nn, &work->mailbox.state()->all.nn, 2, stream));
  if (!ghosts->direct && (!ghosts->to.empty() || !ghosts->from.empty()))
    PetscCall(NCCLExchange(work->nccl, ghosts->to, ghosts->packed.data(), ghosts->from,
                           ghosts->places.size() ? ghosts->received.data() : ghosts->rows.values, sizeof(double), stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  ghosts->exchange = exchange;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The entries are packed in the stream of the products, by a kernel of a microsecond or two: so the exchange is ready to run when
   the product that hides it is, and not after that.
*/
PetscErrorCode CGFusedBeginExchange(const CGFusedWork *work, const CGGhosts *ghosts, const PetscScalar *x, cudaStream_t stream)
{
  const LocalInt sent = (LocalInt)ghosts->entries.size(), received = (LocalInt)ghosts->places.size();

  PetscFunctionBegin;
  if (ghosts->direct || (ghosts->to.empty() && ghosts->from.empty())) PetscFunctionReturn(PETSC_SUCCESS);
  if (sent) {
    Gather<<<BlocksFor(sent), kBlockSize, 0, stream>>>(sent, ghosts->entries.data(), x, ghosts->packed.data());
    FinePCCheckLaunch();
  }
  PetscCallCUDA(cudaEventRecord(work->forked, stream));
  PetscCallCUDA(cudaStreamWaitEvent(work->aside, work->forked, 0));
  PetscCall(NCCLExchange(work->nccl, ghosts->to, ghosts->packed.data(), ghosts->from,
                         received ? ghosts->received.data() : ghosts->rows.values, sizeof(double), work->aside));
  if (received) {
    Scatter<<<BlocksFor(received), kBlockSize, 0, work->aside>>>(received, ghosts->places.data(), ghosts->received.data(),
                                                                 ghosts->rows.values);
    FinePCCheckLaunch();
  }
  PetscCallCUDA(cudaEventRecord(work->joined, work->aside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedEndExchange(const CGFusedWork *work, const CGGhosts *ghosts, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (ghosts->direct || (ghosts->to.empty() && ghosts->from.empty())) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallCUDA(cudaStreamWaitEvent(stream, work->joined, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedIsDirect_CUDA(const CGFusedWork *work, PetscBool *direct)
{
  PetscFunctionBegin;
  *direct = (PetscBool)(work->peers != nullptr);
  for (const CGGhosts *ghosts : {&work->ghosts, &work->ghosts1, &work->ghosts2})
    if (ghosts->used && !ghosts->direct) *direct = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ communication by itself --------------------------------- */

/* An exchange as an iteration has it, after which the ghosts are read; where kernels write to other GPUs a sum ends it. */
static PetscErrorCode ExchangeAndRead(CGFusedWork *work, const PetscScalar *x, cudaStream_t stream)
{
  CGGhosts *const ghosts = &work->ghosts;
  CGState *const  state  = work->mailbox.state();
  const LocalInt  count  = Ghosts(*ghosts);

  PetscFunctionBegin;
  if (!ghosts->direct) {
    PetscCall(CGFusedBeginExchange(work, ghosts, x, stream));
    PetscCall(CGFusedEndExchange(work, ghosts, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const CGSend send = CGFusedSend(ghosts);
  if (send.count) {
    Send<<<BlocksFor(send.count, kCGBlock), kCGBlock, 0, stream>>>(send, x, state);
    FinePCCheckLaunch();
  }
  if (count) {
    ReadWords<<<BlocksFor(count, kCGBlock), kCGBlock, 0, stream>>>(count, ghosts->rows.words, ghosts->rows.values, state);
    FinePCCheckLaunch();
  }
  PetscCall(NCCLSum(work->nccl, &state->own.nn, &state->all.nn, 2, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedExchangeOnce_CUDA(CGFusedWork *work, NCCL *nccl, MPI_Comm comm, const Neighbours *neighbours,
                                        const PetscScalar *x, PetscScalar *ghosts)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  work->ghosts.rows.values = ghosts;
  PetscCall(CGFusedUseNCCL(work, nccl));
  const long exchange = work->ghosts.exchange + 1;
  PetscCall(CGFusedMakeRoom(work, &work->ghosts, *neighbours, exchange));
  PetscCall(CGFusedPrepareExchange(work, &work->ghosts, *neighbours, exchange, comm));
  PetscCall(ExchangeAndRead(work, x, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Seconds of one of `count` that launch() puts into a graph, all ranks at the same time. */
template <typename Launch>
static PetscErrorCode TimeGraph(CGFusedWork *work, int count, Launch launch, PetscLogDouble *seconds)
{
  constexpr int   kLaunches = 10;
  cudaGraphExec_t graph     = nullptr;
  cudaEvent_t     begin, end;
  cudaStream_t    stream;
  float           ms;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (!work->capture) PetscCallCUDA(cudaStreamCreateWithFlags(&work->capture, cudaStreamNonBlocking));
  PetscCallCUDA(cudaStreamBeginCapture(work->capture, cudaStreamCaptureModeThreadLocal));
  const auto all = [&]() {
    PetscFunctionBegin;
    for (int k = 0; k < count; k++) PetscCall(launch(work->capture));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  PetscCall(EndCapture(work->capture, all(), &graph));
  PetscCallCUDA(cudaEventCreate(&begin));
  PetscCallCUDA(cudaEventCreate(&end));
  *seconds = PETSC_MAX_REAL;
  for (int k = 0; k < kLaunches; k++) {
    PetscCallCUDA(cudaGraphLaunch(graph, stream)); /* after this one the ranks go on together */
    PetscCallCUDA(cudaEventRecord(begin, stream));
    PetscCallCUDA(cudaGraphLaunch(graph, stream));
    PetscCallCUDA(cudaEventRecord(end, stream));
    PetscCallCUDA(cudaEventSynchronize(end));
    PetscCallCUDA(cudaEventElapsedTime(&ms, begin, end));
    *seconds = std::min(*seconds, ms * 1e-3 / count);
  }
  PetscCallCUDA(cudaEventDestroy(begin));
  PetscCallCUDA(cudaEventDestroy(end));
  PetscCallCUDA(cudaGraphExecDestroy(graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedTimeCommunication_CUDA(CGFusedWork *work, int count, CGCommunicationTimes *times)
{
  CGState *const state = work->mailbox.state();
  cudaStream_t   stream;

  PetscFunctionBegin;
  *times = CGCommunicationTimes{};
  if (!work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(work->mailbox.Wait());
  /* the exchange of a solve that has ended would be none */
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(&state->s.stage, 0, sizeof(state->s.stage), stream));
  PetscCall(
    TimeGraph(work, count, [&](cudaStream_t captured) { return ExchangeAndRead(work, work->v.p, captured); }, &times->exchange));
  PetscCall(TimeGraph(
    work, count, [&](cudaStream_t captured) { return NCCLSum(work->nccl, &state->own.nn, &state->all.nn, 2, captured); },
    &times->sum));
  if (work->ghosts.direct) times->exchange -= times->sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}
