/* The exchange of cgfused by NCCL, or by kernels that write to other GPUs, by itself. */
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

__global__ void AwaitInVain(const uint4 *words, double *in_double, float *in_single)
{
  *in_double = AwaitWord(words, 7);
  *in_single = AwaitWord((const uint2 *)(words + 1) + 1, 9);
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
  CGState *const state = work->mailbox.state();
  cudaStream_t   stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  work->ghosts.rows.values = ghosts;
  if (nccl != work->nccl) {
    PetscCall(CGFusedForgetExchanges_CUDA(work));
    PetscCall(FusedUseNCCL(work, &work->mailbox, nccl));
  }
  work->ghosts.used = true;
  PetscCall(CGGhostsMakeRoom(work, &work->ghosts, exchange->lists, exchange->id));
  PetscCall(
    CGGhostsConnect(work, &work->ghosts, exchange->id, PetscObjectComm((PetscObject)exchange->sf), &state->own.nn, &state->all.nn));
  PetscCall(ExchangeAndRead(work, x, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AwaitInVain_CUDA(bool *waited, double *in_double, float *in_single)
{
  constexpr size_t kWords = (1 << 17) + 3; /* more than are written at once */
  Buffer<uint4>    words;
  Buffer<double>   results;
  cudaStream_t     stream;

  PetscFunctionBegin;
  PetscCall(words.Allocate(kWords));
  PetscCall(results.Allocate(2));
  PetscCallCUDA(cudaMemset(words.data(), 0, words.bytes()));
  PetscCallCUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  AwaitInVain<<<1, 1, 0, stream>>>(words.data() + kWords - 2, results.data(), (float *)(results.data() + 1));
  FinePCCheckLaunch();
  PetscCall(AwaitStream(stream, 0.2));
  *waited = cudaStreamQuery(stream) == cudaErrorNotReady;
  (void)cudaGetLastError();
  PetscCall(GiveUpWords(words.data(), kWords, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscCallCUDA(cudaStreamDestroy(stream));
  PetscCallCUDA(cudaMemcpy(in_double, results.data(), sizeof(*in_double), cudaMemcpyDeviceToHost));
  PetscCallCUDA(cudaMemcpy(in_single, results.data() + 1, sizeof(*in_single), cudaMemcpyDeviceToHost));
  PetscFunctionReturn(PETSC_SUCCESS);
}
