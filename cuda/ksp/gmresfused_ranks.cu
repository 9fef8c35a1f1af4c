/*
   What the fused GMRES has beside the kernels of one rank, on several ranks with NCCL: a product sends the entries of its vector
   that other ranks need, and adds the columns that these own; and sums over the ranks that no other kernel makes.

   Where kernels write to other GPUs, they send and receive by words, in the turn of the next sum over the ranks. There is one
   between two exchanges by the same words: a step has one, and so has a restart behind its product. The second product of a step
   has words of its own.
*/
#include "gmresfused.cuh"

namespace
{

static_assert(kFusedBlock == kGMRESBlock, "one size of blocks");

/* ------------------------------------------ kernels ------------------------------------------- */

/* Entries of d x, or of x without d, to the words of other ranks. */
__global__ void __launch_bounds__(kGMRESBlock)
  SendVector(ExchangeSend send, const double *d, const double *x, const GMRESState *state)
{
  WaitForPrevious();
  LetNextStart();
  if (state->s.stage != kCGRunning) return;
  SendEntries(send, [=](LocalInt k) { return d ? d[k] * x[k] : x[k]; }, state->peers);
}

/* y = y + E B ghosts, by rows */
struct AddToProduct {
  static constexpr int kSums = 1; /* of which nothing follows */

  const double *e;
  double       *y;

  __device__ void AddRow(LocalInt row, double sum, double (&)[kSums]) const { y[row] += e ? e[row] * sum : sum; }
  __device__ void Finish(GMRESState *, const double (&)[kSums]) const { }
};

/* The same for blocks of bs rows, of which those with entries are listed: a thread has a row of a block row. */
__global__ void __launch_bounds__(kGMRESBlock) MultiplyGhostBlocks(CGGhostRows B, LocalInt bs, double *y, const GMRESState *state)
{
  const double *const a = (const double *)B.a;
  WaitForPrevious();
  LetNextStart();
  if (state->s.stage != kCGRunning) return;
  const unsigned  turn  = B.words ? *state->peers.turn : 0;
  const long long count = (long long)B.count * bs;
  for (long long k = GridThread(); k < count; k += (long long)gridDim.x * kGMRESBlock) {
    const LocalInt row = B.rows[k / bs], r = (LocalInt)(k % bs);
    double         sum = 0;
    for (LocalInt e = B.i[row]; e < B.i[row + 1]; e++) {
      const double *const block = a + (size_t)e * bs * bs + r;
      const size_t        first = (size_t)B.j[e] * bs;
#pragma unroll 4
      for (LocalInt c = 0; c < bs; c++)
        sum += block[(size_t)c * bs] * (B.words ? AwaitWord(B.words + first + c, turn) : B.values[first + c]);
    }
    y[(size_t)row * bs + r] += sum;
  }
}

/* sums [Count] = each the sum of so many parts, or all [Count] those over all ranks where kernels add them up, by one block */
template <int Count, bool Direct>
__global__ void __launch_bounds__(kGMRESBlock)
  SumParts(int parts, const double *partial, GMRESSmallArrays small, const GMRESState *state)
{
  WaitForPrevious();
  LetNextStart();
  if (state->s.stage != kCGRunning) return;
  double sum[Count];
  for (int s = 0; s < Count; s++) sum[s] = AddPartial(parts, partial + s * parts);
  if (threadIdx.x != 0) return;
  if (Direct) SumOverRanks(state->peers, sum, small.all);
  else
    for (int s = 0; s < Count; s++) small.sums[s] = sum[s];
}

} // namespace

/* ------------------------------------------ set-up -------------------------------------------- */

PetscErrorCode GMRESFusedForgetExchanges_CUDA(GMRESFusedWork *work)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  for (CGGhosts &ghosts : work->ghosts) CGGhostsForget(work, &ghosts);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESUseNCCL(GMRESFusedWork *work, NCCL *nccl)
{
  PetscFunctionBegin;
  if (nccl == work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GMRESFusedForgetExchanges_CUDA(work));
  PetscCall(FusedUseNCCL(work, &work->mailbox, nccl));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESPrepareRanks(GMRESFusedWork *work, const GMRESOperators *op, bool changed)
{
  PetscFunctionBegin;
  PetscCall(GMRESUseNCCL(work, op->nccl));
  work->op.B            = nullptr; /* its rows are lent */
  work->op.ghost_blocks = nullptr;
  work->ghost_blocks    = BSR{};
  if (!op->B && !op->ghost_blocks) PetscFunctionReturn(PETSC_SUCCESS);
  if (op->ghost_blocks) {
    const BSR    &W = *op->ghost_blocks;
    const CSRView rows{W.rows, W.nnz, W.i, W.j, (const PetscScalar *)W.a, W.where};
    work->ghost_blocks = W;
    PetscCall(CGGhostsKeep(&work->ghosts[0], rows, op->exchange->ghosts, changed));
  } else PetscCall(CGGhostsKeep(&work->ghosts[0], *op->B, op->exchange->ghosts, changed));
  for (LocalInt s = 1; s < op->step; s++) CGGhostsShare(work->ghosts[0], &work->ghosts[s]);
  for (LocalInt s = 0; s < op->step; s++)
    PetscCall(CGGhostsMakeRoom(work, &work->ghosts[s], op->exchange->lists, op->exchange->id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedConnect_CUDA(GMRESFusedWork *work, const GMRESOperators *op)
{
  PetscFunctionBegin;
  for (LocalInt s = 0; s < op->step; s++)
    PetscCall(CGGhostsConnect(work, &work->ghosts[s], op->exchange->id, op->comm, work->small.sums, work->small.all));
  /* behind what NCCL does, and behind what waits for another stream, no kernel begins before its time */
  if (!GMRESIsDirect(work) || !GMRESAreDirect(work)) work->early = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ launches ------------------------------------------ */

PetscErrorCode GMRESLaunchSend(GMRESFusedWork *work, LocalInt product, const double *d, const double *x, cudaStream_t stream)
{
  const CGGhosts *const ghosts = &work->ghosts[product];
  const ExchangeSend    send   = ghosts->Send();

  PetscFunctionBegin;
  PetscCall(CGGhostsBegin(work, ghosts, d, x, stream));
  if (!send.count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
    LaunchEarly(work->early, SendVector, GMRESGrid(work, send.count), kGMRESBlock, stream, send, d, x, work->mailbox.state()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESLaunchGhosts(GMRESFusedWork *work, LocalInt product, const double *e, double *y, cudaStream_t stream)
{
  const CGGhostRows &B     = work->ghosts[product].rows;
  const LocalInt     bs    = work->ghost_blocks.bs;
  GMRESState *const  state = work->mailbox.state();

  PetscFunctionBegin;
  PetscCall(CGGhostsEnd(work, &work->ghosts[product], stream));
  if (!B.count) PetscFunctionReturn(PETSC_SUCCESS);
  if (work->op.blocks) {
    PetscCall(LaunchEarly(work->early, MultiplyGhostBlocks, GMRESGrid(work, B.count * bs), kGMRESBlock, stream, B, bs, y, state));
  } else {
    PetscCall(
      CGGhostsMultiply(work->early, work->processors * kGMRESBlocks, B, AddToProduct{e, y}, work->partial.data(), state, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <int Count>
static PetscErrorCode LaunchSum(GMRESFusedWork *work, int parts, cudaStream_t stream)
{
  const bool direct = GMRESIsDirect(work);

  PetscFunctionBegin;
  PetscCall(LaunchEarly(work->early, direct ? SumParts<Count, true> : SumParts<Count, false>, 1, kGMRESBlock, stream, parts,
                        work->partial.data(), work->small, work->mailbox.state()));
  if (!direct) PetscCall(NCCLSum(work->nccl, work->small.sums, work->small.all, Count, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESLaunchSum(GMRESFusedWork *work, LocalInt count, int parts, cudaStream_t stream)
{
  static_assert(kGMRESMostStep == 2);

  PetscFunctionBegin;
  PetscCall(count == 1 ? LaunchSum<1>(work, parts, stream) : LaunchSum<2>(work, parts, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
