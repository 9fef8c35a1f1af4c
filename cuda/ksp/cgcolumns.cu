/*
   The conjugate gradient method for several right-hand sides as the host sees it. The kernels of an iteration are in
   cgcolumns_graph.cu.
*/
#include <cstring>

#include "cgcolumns.cuh"
#include "pc/cmatch/cmatch_launch.cuh"

/* ------------------------------------- the work, set-up --------------------------------------- */

/* The shared memory of a processor. */
static PetscErrorCode SharedMemory(int *bytes)
{
  int device;

  PetscFunctionBegin;
  PetscCallCUDA(cudaGetDevice(&device));
  PetscCallCUDA(cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsCreate_CUDA(CGColumnsWork **work_out)
{
  CGColumnsWork *const work = *work_out = new CGColumnsWork();

  PetscFunctionBegin;
  PetscCall(ProcessorCount(&work->processors));
  PetscCall(SharedMemory(&work->shared));
  PetscCall(CGColumnsMayStartEarly(&work->early));
  PetscCall(work->mailbox.CreatePinned());
  PetscCall(work->partial.Allocate(3 * kCGMostColumns * (size_t)work->processors * kCGBlocksOnChip));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* There is no graph any more, and nothing of it is under way. */
static PetscErrorCode ForgetGraph_CGColumns(CGColumnsWork *work)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  if (work->graph) PetscCallCUDA(cudaGraphExecDestroy(work->graph));
  work->graph = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sums and exchanges are those of this NCCL from now on, or of none. */
static PetscErrorCode UseNCCL_CGColumns(CGColumnsWork *work, NCCL *nccl)
{
  PetscFunctionBegin;
  if (nccl == work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ForgetGraph_CGColumns(work));
  for (CGGhosts *ghosts : {&work->ghosts, &work->ghosts1, &work->ghosts2}) CGGhostsForget(work, ghosts);
  ExchangeRanksUse(work, nccl);
  if (nccl) work->mailbox.WatchBy([nccl](double waited) { return NCCLCheck_CUDA(nccl, waited); });
  else work->mailbox.WatchBy(nullptr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsDestroy_CUDA(CGColumnsWork **work)
{
  PetscFunctionBegin;
  if (!*work) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ForgetGraph_CGColumns(*work));
  PetscCall(UseNCCL_CGColumns(*work, nullptr));
  PetscCall(ExchangeRanksDestroy(*work));
  if ((*work)->capture) PetscCallCUDA(cudaStreamDestroy((*work)->capture));
  PetscCall((*work)->mailbox.Destroy());
  delete *work;
  *work = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t CGColumnsBytes_CUDA(const CGColumnsWork *work)
{
  return work->memory.now;
}

/* ---------------------------------------- the exchange ---------------------------------------- */

/*
   The ghosts of all columns come at once: the exchange is that of one column with lists of as many entries as the block vectors
   have in these rows.
*/

/* The number of an exchange for block vectors of this width, which changes on all ranks at the same time. */
static PetscObjectId NumberOf_CGColumns(const CGColumnsWork *work, const Exchange &exchange)
{
  return exchange.id * (kCGMostColumns + 1) + work->width;
}

/* Room for the exchange of one operator, whose rows with entries are those of one column. */
static PetscErrorCode MakeExchange_CGColumns(CGColumnsWork *work, const CGGhosts &of_one, const Exchange *exchange,
                                             CGGhosts *ghosts)
{
  Neighbours wide;

  PetscFunctionBegin;
  ghosts->used = of_one.used;
  if (!ghosts->used) PetscFunctionReturn(PETSC_SUCCESS);
  if (ghosts->made != NumberOf_CGColumns(work, *exchange)) {
    PetscCall(ForgetGraph_CGColumns(work));
    PetscCall(NeighboursWiden(exchange->lists, work->width, &wide));
    PetscCall(ghosts->arrived.Allocate(NeighboursLeaves(wide)));
    PetscCall(CGGhostsMakeRoom(work, ghosts, wide, NumberOf_CGColumns(work, *exchange)));
  }
  const uint4 *const words = ghosts->rows.words;
  ghosts->rows             = of_one.rows;
  ghosts->rows.values      = ghosts->arrived.data();
  ghosts->rows.words       = words;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Room for the exchanges of block vectors, without communication. */
static PetscErrorCode MakeExchanges_CGColumns(CGColumnsWork *work, const CGFusedWork *op, const CGColumnsExchanges *exchanges)
{
  PetscFunctionBegin;
  PetscCall(MakeExchange_CGColumns(work, op->ghosts, exchanges->of[0], &work->ghosts));
  PetscCall(MakeExchange_CGColumns(work, op->ghosts1, exchanges->of[1], &work->ghosts1));
  PetscCall(MakeExchange_CGColumns(work, op->ghosts2, exchanges->of[2], &work->ghosts2));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsConnect_CUDA(CGColumnsWork *work, const CGColumnsExchanges *exchanges)
{
  CGGhosts *const       all[] = {&work->ghosts, &work->ghosts1, &work->ghosts2};
  CGColumnsState *const state = work->mailbox.state();

  PetscFunctionBegin;
  for (int k = 0; k < 3; k++)
    if (all[k]->used)
      PetscCall(CGGhostsConnect(work, all[k], NumberOf_CGColumns(work, *exchanges->of[k]), exchanges->comm, state->own.steps,
                                state->all.steps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- the host's side --------------------------------------- */

/* The state that a phase begins with, which is filled in by the caller before Upload_CGColumns(). */
static PetscErrorCode Blank_CGColumns(CGColumnsWork *work, CGColumnsState **state)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Renew());
  *state = work->mailbox.next();
  memset((void *)*state, 0, sizeof(**state));
  for (CGScalars &s : (*state)->s) s.stage = kCGStopped;
  (*state)->several = work->nccl != nullptr;
  if (work->peers) (*state)->peers = *work->peers;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The memory that is copied from is written again only by a copy behind this one in the stream. */
static PetscErrorCode Upload_CGColumns(CGColumnsWork *work, CGColumnsState *state, cudaStream_t stream)
{
  PetscFunctionBegin;
  state->running = 0;
  for (const CGScalars &s : state->s) state->running += s.stage < kCGDecided;
  PetscCall(work->mailbox.Send(sizeof(*state), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Block vectors of this size, with as many columns as a cycle takes if there is one. */
static PetscErrorCode NeedVectors(CGColumnsWork *work, LocalInt n, LocalInt columns, bool keep_r, const CMATCHHierarchy *cycle)
{
  const size_t bytes = cycle ? CMATCHColumnsBytes(cycle) : 0;
  LocalInt     width = cycle ? kCMATCHColumns : 2;

  PetscFunctionBegin;
  while (width < columns) width *= 2;
  const size_t size = (size_t)n * width, needed = size * (keep_r ? 6 : 5);
  if (work->vectors.size() < needed) PetscCall(work->vectors.Allocate(needed));
  if (work->cycle.size() < bytes) PetscCall(work->cycle.Allocate(bytes));
  work->n       = n;
  work->columns = columns;
  work->width   = width;
  work->x       = work->vectors.data();
  work->p[0]    = work->x + size;
  work->p[1]    = work->p[0] + size;
  work->w       = work->p[1] + size;
  work->t       = work->w + size;
  work->r       = keep_r ? work->t + size : nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsPrepare_CUDA(CGColumnsWork *work, CGFusedWork *operators, LocalInt columns, CGNorm norm,
                                     const CGColumnsExchanges *exchanges)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  PetscCall(
    NeedVectors(work, operators->A.rows, columns, operators->factored && norm == CG_NORM_UNPRECONDITIONED, operators->cycle));
  PetscCall(UseNCCL_CGColumns(work, operators->nccl));
  if (work->nccl) PetscCall(MakeExchanges_CGColumns(work, operators, exchanges));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsStart_CUDA(CGColumnsWork *work, const CGFusedWork *operators, const PetscScalar *B, LocalInt ldb,
                                   const PetscScalar *X, LocalInt ldx, CGNorm norm, CGSums sums[])
{
  CGColumnsState       *begin = nullptr;
  const CGColumnsState *seen;
  cudaStream_t          stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(Blank_CGColumns(work, &begin));
  for (LocalInt c = 0; c < work->columns; c++) {
    begin->s[c].stage   = kCGStarting;
    begin->test[c].norm = norm;
  }
  PetscCall(Upload_CGColumns(work, begin, stream));
  PetscCall(CGColumnsInterleave(work, B, ldb, work->w, stream));
  if (X) PetscCall(CGColumnsInterleave(work, X, ldx, work->x, stream));
  else PetscCallCUDA(cudaMemsetAsync(work->x, 0, (size_t)work->n * work->width * sizeof(double), stream));
  PetscCall(CGColumnsLaunchStart(work, operators, X, stream));
  PetscCall(work->mailbox.Fetch(stream, &seen));
  for (LocalInt c = 0; c < work->columns; c++) sums[c] = seen->sums[c];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsBegin_CUDA(CGColumnsWork *work, const CGFusedWork *operators, const PetscReal beta[], const CGTest test[],
                                   const PetscBool ended[])
{
  CGColumnsState *begin = nullptr;
  cudaStream_t    stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(Blank_CGColumns(work, &begin));
  for (LocalInt c = 0; c < work->columns; c++) {
    begin->s[c].stage = ended[c] ? kCGStopped : kCGRunning;
    begin->s[c].beta  = beta[c];
    begin->test[c]    = test[c];
  }
  PetscCall(Upload_CGColumns(work, begin, stream));
  PetscCall(CGColumnsCapture(work, operators));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsAdvance_CUDA(CGColumnsWork *work, CGColumn column[], PetscBool *ended)
{
  const CGColumnsState *seen;
  cudaStream_t          stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work->mailbox.KeepAhead(kCGInFlight, stream, [&]() {
    PetscFunctionBegin;
    PetscCallCUDA(cudaGraphLaunch(work->graph, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscCall(work->mailbox.Read(&seen));
  for (LocalInt c = 0; c < work->columns; c++) {
    const CGScalars &s = seen->s[c];

    column[c] = CGColumn{s.stop, s.its, s.value, seen->norm[c], seen->first[c]};
  }
  *ended = (PetscBool)!seen->running;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsGetSolution_CUDA(CGColumnsWork *work, const PetscBool left[], PetscScalar *X, LocalInt ldx)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(CGColumnsSeparate(work, left, X, ldx, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
