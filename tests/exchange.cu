/* The exchange of cgfused by NCCL, or by kernels that write to other GPUs, by itself. */
#include "capture.cuh"
#include "ksp/cgfused.cuh"

#include "exchange.h"

namespace
{

/* What a product sends, by itself. */
__global__ void __launch_bounds__(kCGBlock) Send(ExchangeSend send, const double *from, const CGState *state)
{
  SendEntries(send, [=](LocalInt k) { return from[k]; }, state->peers);
}

/* to[k] = the number of word k */
__global__ void __launch_bounds__(kCGBlock) ReadWords(LocalInt count, const uint4 *words, double *to, const CGState *state)
{
  const long long k = GridThread();
  if (k < count) to[k] = AwaitWord(words + k, *state->peers.turn);
}

} // namespace

/* An exchange as an iteration has it, after which the ghosts are read; where kernels write to other GPUs a sum ends it. */
static PetscErrorCode ExchangeAndRead(CGFusedWork *work, const PetscScalar *x, cudaStream_t stream)
{
  CGGhosts *const ghosts = &work->ghosts;
  CGState *const  state  = work->mailbox.state();

  PetscFunctionBegin;
  if (!ghosts->IsDirect()) {
    PetscCall(CGGhostsBegin(work, ghosts, nullptr, x, stream));
    PetscCall(CGGhostsEnd(work, ghosts, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const ExchangeSend send  = ghosts->Send();
  const LocalInt     count = ghosts->Made()->comes;
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

PetscErrorCode ExchangeOnce_CUDA(CGFusedWork *work, NCCL *nccl, const Exchange *exchange, const PetscScalar *x, PetscScalar *ghosts)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  work->ghosts.rows.values = ghosts;
  PetscCall(CGFusedUseNCCL(work, nccl));
  work->ghosts.used = true;
  PetscCall(CGFusedMakeRoom(work, &work->ghosts, *exchange));
  PetscCall(CGFusedPrepareExchange(work, &work->ghosts, *exchange, PetscObjectComm((PetscObject)exchange->sf)));
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
  PetscCall(DeviceGetStream(&stream));
  const auto all = [&](cudaStream_t captured) {
    PetscFunctionBegin;
    for (int k = 0; k < count; k++) PetscCall(launch(captured));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  PetscCall(CaptureGraph(&work->capture, all, &graph));
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

PetscErrorCode TimeCommunication_CUDA(CGFusedWork *work, int count, CommunicationTimes *times)
{
  CGState *const state = work->mailbox.state();
  cudaStream_t   stream;

  PetscFunctionBegin;
  *times = CommunicationTimes{};
  if (!work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(work->mailbox.Wait());
  /* the exchange of a solve that has ended would be none */
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(&state->s.stage, 0, sizeof(state->s.stage), stream));
  PetscCall(
    TimeGraph(work, count, [&](cudaStream_t captured) { return ExchangeAndRead(work, work->v.p, captured); }, &times->exchange));
  PetscCall(TimeGraph(
    work, count, [&](cudaStream_t captured) { return NCCLSum(work->nccl, &state->own.nn, &state->all.nn, 2, captured); },
    &times->sum));
  if (work->ghosts.IsDirect()) times->exchange -= times->sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}
