/*
   The columns of other ranks: the product with the entries that these own, the ghosts, and the exchange that brings them, where
   kernels make it.
*/
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "capture.cuh"
#include "cgfused.cuh"

namespace
{

constexpr int kGhostLanes = 4; /* of a row of entries of other ranks */

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
    if (state->s.several) state->own.delta = delta;
    else { /* for the host, which adds them over the ranks */ state->dots[0] = state->sums.rz;
      state->dots[1]                                                         = state->sums.nn;
      state->dots[2]                                                         = delta;
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

/* z = z + W2 ghosts, with the changes of the sums z.z and z.r, which the product with the rank's own columns has left for all ranks
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
    if (state->test.norm == CG_NORM_PRECONDITIONED) state->own.nn += sums[0];
    state->own.rz += sums[1];
  }
};

/* The rows that have entries times the ghosts, Lanes lanes a row. */
template <int Lanes, typename V, typename Product>
__global__ void __launch_bounds__(kCGBlock) MultiplyGhosts(CGGhostRows B, Product product, double *partial, CGState *state)
{
  const V *const a                    = (const V *)B.a;
  const LocalInt stride               = (LocalInt)(gridDim.x * kCGBlock / Lanes);
  double         sums[Product::kSums] = {};
  if (state->s.stage >= kCGDecided) return;
  for (LocalInt k = (LocalInt)(GridThread() / kWarpSize) * (kWarpSize / Lanes); k < B.count; k += stride) {
    /* k is the same in all lanes of the warp */
    const LocalInt at = k + threadIdx.x % kWarpSize / Lanes, row = at < B.count ? B.rows[at] : 0,
                   end = at < B.count ? B.i[row + 1] : 0;
    double sum         = 0;
    for (LocalInt e = at < B.count ? B.i[row] + threadIdx.x % Lanes : 0; e < end; e += Lanes)
      sum += (double)a[e] * B.values[B.j[e]];
    sum = GroupSum<Lanes>(sum);
    if (at < B.count && threadIdx.x % Lanes == 0) product.AddRow(row, sum, sums);
  }
  if (GridSumLast(sums, partial, &state->ticket)) product.Finish(state, sums);
}

/* to[k] = from[index[k]] */
__global__ void Gather(LocalInt count, const LocalInt *index, const double *__restrict__ from, double *__restrict__ to)
{
  const long long k = GridThread();
  if (k < count) to[k] = from[index[k]];
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

template <typename Product>
static PetscErrorCode Launch(CGFusedWork *work, const CGGhosts &ghosts, Product product, cudaStream_t stream)
{
  const CGGhostRows &B      = ghosts.rows;
  const int          blocks = std::max(1, std::min(BlocksFor((long long)B.count * kGhostLanes, kCGBlock), work->processors));
  CGState *const     state  = work->mailbox.state();

  PetscFunctionBegin;
  if (B.single) MultiplyGhosts<kGhostLanes, float><<<blocks, kCGBlock, 0, stream>>>(B, product, work->partial.data(), state);
  else MultiplyGhosts<kGhostLanes, double><<<blocks, kCGBlock, 0, stream>>>(B, product, work->partial.data(), state);
  FinePCCheckLaunch();
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
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepareFactorGhosts(CGGhosts *ghosts, const CGFactorGhosts &from)
{
  CGGhostRows &rows = ghosts->rows;

  PetscFunctionBegin;
  ghosts->used = from.W;
  if (!from.W) PetscFunctionReturn(PETSC_SUCCESS);
  if (ghosts->arrived.size() < (size_t)from.count) PetscCall(ghosts->arrived.Allocate((size_t)from.count));
  rows.count  = from.touched;
  rows.single = (PetscBool)(from.W->precision == FINEPC_SINGLE);
  rows.rows   = from.rows;
  rows.i      = from.W->i;
  rows.j      = from.W->j;
  rows.a      = from.W->a;
  rows.values = ghosts->arrived.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchGhosts(CGFusedWork *work, const PetscScalar *p, PetscScalar *w, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Launch(work, work->ghosts, AddToOperator{p, w}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchFirstGhosts(CGFusedWork *work, PetscScalar *t, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->ghosts1.rows.count) PetscCall(Launch(work, work->ghosts1, AddToFirst{work->d, t}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchSecondGhosts(CGFusedWork *work, const PetscScalar *r, PetscScalar *z, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->ghosts2.rows.count) PetscCall(Launch(work, work->ghosts2, AddToSecond{r, z}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- the exchange by NCCL ----------------------------------- */

PetscErrorCode CGFusedForgetGraph_CUDA(CGFusedWork *work)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  if (work->graph) PetscCallCUDA(cudaGraphExecDestroy(work->graph));
  work->graph = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedUseNCCL(CGFusedWork *work, NCCL *nccl)
{
  PetscFunctionBegin;
  if (nccl == work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedForgetGraph_CUDA(work));
  if (work->nccl) NCCLRelease(work->nccl);
  work->nccl = nccl;
  if (nccl) NCCLHold(nccl);
  if (nccl) work->mailbox.Watch([nccl]() { return NCCLCheck(nccl); });
  else work->mailbox.Watch(nullptr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepareExchange(CGFusedWork *work, CGGhosts *ghosts, const Neighbours &neighbours, long exchange)
{
  cudaStream_t stream;
  int          least, greatest;

  PetscFunctionBegin;
  if (!work->aside) {
    PetscCallCUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    PetscCallCUDA(cudaStreamCreateWithPriority(&work->aside, cudaStreamNonBlocking, greatest));
    for (cudaEvent_t *event : {&work->forked, &work->joined})
      PetscCallCUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  if (ghosts->exchange == exchange) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedForgetGraph_CUDA(work));
  ghosts->exchange = -1; /* until it is ready */
  ghosts->number++;
  ghosts->to   = neighbours.to;
  ghosts->from = neighbours.from;
  PetscCall(KeepList(neighbours.entries, &ghosts->entries, &ghosts->packed));
  PetscCall(KeepList(neighbours.places, &ghosts->places, &ghosts->received));
  /* The first exchange and the first sum connect the ranks, which takes long, and must not wait for a rank that captures. */
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(ghosts->packed.data(), 0, ghosts->packed.bytes(), stream));
  PetscCall(NCCLSum(work->nccl, &work->mailbox.state()->own.nn, &work->mailbox.state()->all.nn, 2, stream));
  if (!ghosts->to.empty() || !ghosts->from.empty())
    PetscCall(NCCLExchange(work->nccl, ghosts->to, ghosts->packed.data(), ghosts->from,
                           ghosts->places.size() ? ghosts->received.data() : ghosts->rows.values, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  ghosts->exchange = exchange;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The entries are packed in the stream of the products, by a kernel of a microsecond or two: so the exchange is ready to run when
   the product that hides it is, and not after that.
*/
PetscErrorCode CGFusedBeginExchange(CGFusedWork *work, CGGhosts *ghosts, const PetscScalar *x, cudaStream_t stream)
{
  const LocalInt sent = (LocalInt)ghosts->entries.size(), received = (LocalInt)ghosts->places.size();

  PetscFunctionBegin;
  if (ghosts->to.empty() && ghosts->from.empty()) PetscFunctionReturn(PETSC_SUCCESS);
  if (sent) {
    Gather<<<BlocksFor(sent), kBlockSize, 0, stream>>>(sent, ghosts->entries.data(), x, ghosts->packed.data());
    FinePCCheckLaunch();
  }
  PetscCallCUDA(cudaEventRecord(work->forked, stream));
  PetscCallCUDA(cudaStreamWaitEvent(work->aside, work->forked, 0));
  PetscCall(NCCLExchange(work->nccl, ghosts->to, ghosts->packed.data(), ghosts->from,
                         received ? ghosts->received.data() : ghosts->rows.values, work->aside));
  if (received) {
    Scatter<<<BlocksFor(received), kBlockSize, 0, work->aside>>>(received, ghosts->places.data(), ghosts->received.data(),
                                                                 ghosts->rows.values);
    FinePCCheckLaunch();
  }
  PetscCallCUDA(cudaEventRecord(work->joined, work->aside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedEndExchange(CGFusedWork *work, const CGGhosts *ghosts, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (ghosts->to.empty() && ghosts->from.empty()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallCUDA(cudaStreamWaitEvent(stream, work->joined, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ communication by itself --------------------------------- */

PetscErrorCode CGFusedExchangeOnce_CUDA(CGFusedWork *work, NCCL *nccl, const Neighbours *neighbours, const PetscScalar *x,
                                        PetscScalar *ghosts)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  work->ghosts.rows.values = ghosts;
  PetscCall(CGFusedUseNCCL(work, nccl));
  PetscCall(CGFusedPrepareExchange(work, &work->ghosts, *neighbours, work->ghosts.exchange + 1));
  PetscCall(CGFusedBeginExchange(work, &work->ghosts, x, stream));
  PetscCall(CGFusedEndExchange(work, &work->ghosts, stream));
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

  PetscFunctionBegin;
  *times = CGCommunicationTimes{};
  if (!work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(work->mailbox.Wait());
  PetscCall(TimeGraph(
    work, count,
    [&](cudaStream_t stream) {
      PetscFunctionBegin;
      PetscCall(CGFusedBeginExchange(work, &work->ghosts, work->v.p, stream));
      PetscCall(CGFusedEndExchange(work, &work->ghosts, stream));
      PetscFunctionReturn(PETSC_SUCCESS);
    },
    &times->exchange));
  PetscCall(TimeGraph(
    work, count, [&](cudaStream_t stream) { return NCCLSum(work->nccl, &state->own.nn, &state->all.nn, 2, stream); }, &times->sum));
  PetscFunctionReturn(PETSC_SUCCESS);
}
