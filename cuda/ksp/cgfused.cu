/* The fused conjugate gradient method as the host sees it. The kernels are in the files that cgfused.cuh names. */
#include "cgfused.cuh"

namespace
{

/* Makes the copies of A and of the factors of this kind, and of the operators as they are now. */
PetscErrorCode CopyOperators(CGFusedWork *work, const CGFusedOperators *op, const CGFusedChanges *changes, SlicesKind kind,
                             LocalInt A_lanes, LocalInt M_lanes, bool again)
{
  const CSRView &A = *op->A;
  const CSR      A_csr{A.n, A.n, A.nnz, (LocalInt *)A.i, (LocalInt *)A.j, (void *)A.a, FINEPC_DOUBLE, A.where};

  PetscFunctionBegin;
  if (changes->A || kind != work->A.kind || A_lanes != work->A.lanes) PetscCall(SlicesUpdate_CUDA(&A_csr, A_lanes, kind, &work->A));
  if (!op->W1 || work->A.kind != kind) PetscFunctionReturn(PETSC_SUCCESS);
  if (changes->M || again || kind != work->W1.kind || kind != work->W2.kind || M_lanes != work->W1.lanes) {
    PetscCall(SlicesUpdate_CUDA(op->W1, M_lanes, kind, &work->W1));
    PetscCall(SlicesUpdate_CUDA(op->W2, M_lanes, kind, &work->W2));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

bool AreResident(const CGFusedWork *work)
{
  return work->A.kind == SLICES_RESIDENT &&
         (!work->factored || (work->W1.kind == SLICES_RESIDENT && work->W2.kind == SLICES_RESIDENT));
}

} // namespace

/* ------------------------------------ a rank among several ------------------------------------ */

PetscErrorCode CGFusedForgetGraph_CUDA(CGFusedWork *work)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  PetscCall(CGFusedDestroyGraph(work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedForgetExchanges_CUDA(CGFusedWork *work)
{
  PetscFunctionBegin;
  PetscCall(CGFusedForgetGraph_CUDA(work));
  for (CGGhosts *ghosts : {&work->ghosts, &work->ghosts1, &work->ghosts2}) CGGhostsForget(work, ghosts);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sums and exchanges are in the graph from now on, or no longer: it does not outlive the communicator that it was made with. */
static PetscErrorCode UseNCCL_CGFused(CGFusedWork *work, NCCL *nccl)
{
  PetscFunctionBegin;
  if (nccl == work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedForgetExchanges_CUDA(work));
  PetscCall(FusedUseNCCL(work, &work->mailbox, nccl));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ghosts of a factor, or of none. */
static PetscErrorCode PrepareFactorGhosts(CGGhosts *ghosts, const PCInverseGhosts *from)
{
  CGGhostRows &rows = ghosts->rows;

  PetscFunctionBegin;
  ghosts->used = from;
  if (!from) PetscFunctionReturn(PETSC_SUCCESS);
  const size_t count = from->exchange.count;
  if (ghosts->arrived.size() < count) PetscCall(ghosts->arrived.Allocate(count));
  rows.count  = from->touched;
  rows.lanes  = CGGhostLanes(from->touched, from->W.nnz);
  rows.single = (PetscBool)(from->W.precision == FINEPC_SINGLE);
  rows.rows   = from->rows;
  rows.i      = from->W.i;
  rows.j      = from->W.j;
  rows.a      = from->W.a;
  rows.values = ghosts->arrived.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* There is no graph any more if this makes other room. */
static PetscErrorCode MakeRoom_CGFused(CGFusedWork *work, CGGhosts *ghosts, const Exchange &exchange)
{
  PetscFunctionBegin;
  if (ghosts->made != exchange.id) PetscCall(CGFusedForgetGraph_CUDA(work));
  PetscCall(CGGhostsMakeRoom(work, ghosts, exchange.lists, exchange.id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedIsDirect_CUDA(const CGFusedWork *work, PetscBool *direct)
{
  PetscFunctionBegin;
  *direct = (PetscBool)(work->peers != nullptr);
  for (const CGGhosts *ghosts : {&work->ghosts, &work->ghosts1, &work->ghosts2})
    if (ghosts->used && !ghosts->IsDirect()) *direct = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------------- the work, set-up ------------------------------------- */

PetscErrorCode CGFusedCreate_CUDA(CGFusedWork **work_out)
{
  CGFusedWork *const work = *work_out = new CGFusedWork();
  cudaStream_t       stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(ProcessorCount(&work->processors));
  PetscCall(CGFusedResidentRoom(&work->room));
  PetscCall(CGFusedMayStartEarly(&work->early));
  PetscCall(work->mailbox.CreatePinned());
  PetscCall(work->partial.Allocate((size_t)kCGPartials * work->processors));
  PetscCallCUDA(cudaMemsetAsync(work->mailbox.state(), 0, sizeof(CGState), stream));
  PetscCallCUDA(cudaStreamSynchronize(stream)); /* the next call may come with another stream */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedDestroy_CUDA(CGFusedWork **work)
{
  PetscFunctionBegin;
  if (!*work) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedForgetGraph_CUDA(*work));
  PetscCall(UseNCCL_CGFused(*work, nullptr));
  PetscCall((*work)->mailbox.Destroy());
  PetscCall(ExchangeRanksDestroy(*work));
  if ((*work)->capture) PetscCallCUDA(cudaStreamDestroy((*work)->capture));
  PetscCall(SlicesDestroy_CUDA(&(*work)->A));
  PetscCall(SlicesDestroy_CUDA(&(*work)->W1));
  PetscCall(SlicesDestroy_CUDA(&(*work)->W2));
  delete *work;
  *work = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepare_CUDA(CGFusedWork *work, const CGFusedOperators *op, const CGFusedChanges *changes, PetscBool compress,
                                   KSPCGFusedPath path)
{
  const LocalInt n        = op->A->n;
  const bool     factored = op->W1, again = factored != work->factored;
  LocalInt       lanes;

  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  work->factored = factored;
  work->cycle    = op->cycle;
  work->d        = op->d;
  if (changes->A || changes->M || again) work->uneven = false;
  work->resident = !op->cycle && CGFusedPlanResident(work, op, path, &lanes) && !work->uneven;
  if (work->resident) {
    PetscCall(CopyOperators(work, op, changes, SLICES_RESIDENT, lanes, lanes, again));
    /* where padding makes a copy too large, rows are too uneven for the resident kernel */
    work->uneven   = !AreResident(work);
    work->resident = !work->uneven;
  }
  if (!work->resident)
    PetscCall(CopyOperators(work, op, changes, compress ? SLICES_COMPRESSED : SLICES_PLAIN, FusedLanes(n, op->A->nnz),
                            factored ? FusedLanes(n, op->W1->nnz) : 1, again));
  const size_t needed = (size_t)n * (work->resident ? 4 : factored ? 1 : 0);
  if (work->t.size() < needed) PetscCall(work->t.Allocate(needed));
  if (op->B) PetscCall(CGGhostsKeep(&work->ghosts, *op->B, op->exchange->ghosts, changes->A));
  PetscCall(UseNCCL_CGFused(work, op->nccl));
  if (op->ghosts1 && changes->M) PetscCall(CGFusedForgetGraph_CUDA(work));
  PetscCall(PrepareFactorGhosts(&work->ghosts1, op->ghosts1));
  PetscCall(PrepareFactorGhosts(&work->ghosts2, op->ghosts2));
  if (op->nccl) PetscCall(MakeRoom_CGFused(work, &work->ghosts, *op->exchange));
  if (op->ghosts1) PetscCall(MakeRoom_CGFused(work, &work->ghosts1, op->ghosts1->exchange));
  if (op->ghosts2) PetscCall(MakeRoom_CGFused(work, &work->ghosts2, op->ghosts2->exchange));
  if (work->resident) PetscCall(CGFusedAllocateResident(work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedConnect_CUDA(CGFusedWork *work, const CGFusedOperators *op)
{
  CGState *const state   = work->mailbox.state();
  const auto     connect = [=](CGGhosts *ghosts, const Exchange &exchange) {
    return CGGhostsConnect(work, ghosts, exchange.id, op->comm, &state->own.nn, &state->all.nn);
  };

  PetscFunctionBegin;
  PetscCall(connect(&work->ghosts, *op->exchange));
  if (op->ghosts1) PetscCall(connect(&work->ghosts1, op->ghosts1->exchange));
  if (op->ghosts2) PetscCall(connect(&work->ghosts2, op->ghosts2->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the solve ----------------------------------------- */

static void SetSeveral(const CGFusedWork *work, CGScalars *s)
{
  s->several = work->nccl != nullptr;
  s->direct  = work->nccl && work->peers;
  s->split   = work->nccl && work->factored && work->ghosts2.used && work->ghosts2.rows.count;
  s->cycle   = work->nccl && work->cycle;
}

PetscErrorCode CGFusedStart_CUDA(CGFusedWork *work, const CGFusedVectors *v, PetscBool guess, CGNorm norm, PetscBool one_by_one,
                                 CGSums *sums)
{
  const CGState *seen;
  cudaStream_t   stream;
  CGScalars      s{};
  CGTest         test{};

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  work->v          = *v;
  work->one_by_one = one_by_one;
  s.stage          = kCGStarting;
  s.a              = 1; /* of r = b - a A x */
  SetSeveral(work, &s);
  test.norm = norm;
  PetscCall(work->mailbox.Begin(s, test, stream));
  if (guess) PetscCall(CGFusedLaunchProduct(work, false, v->x, v->z, stream));
  PetscCall(CGFusedLaunchResidual(work, false, true, v->b, guess ? v->z : nullptr, stream));
  if (!work->resident && !work->nccl) PetscCall(CGFusedCaptureIterations(work)); /* while the GPU has something to do */
  PetscCall(work->mailbox.Fetch(stream, &seen));
  *sums = work->nccl ? CGSums{seen->all.nn, seen->all.rz} : seen->sums;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedProduct_CUDA(CGFusedWork *work, const PetscScalar *x, PetscScalar *y)
{
  cudaStream_t stream;
  CGScalars    s{};

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  s.stage = kCGStarting;
  SetSeveral(work, &s);
  PetscCall(work->mailbox.Begin(s, CGTest{}, stream));
  PetscCall(CGFusedLaunchProduct(work, false, x, y, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedBegin_CUDA(CGFusedWork *work, PetscReal beta, const CGTest *test)
{
  cudaStream_t stream;
  CGScalars    s{};

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  s.stage = kCGRunning;
  s.beta  = beta;
  SetSeveral(work, &s);
  PetscCall(work->mailbox.Begin(s, *test, stream));
  work->launched = 0;
  PetscCallCUDA(cudaMemsetAsync(work->v.p, 0, work->A.rows * sizeof(PetscScalar), stream));
  if (work->resident) PetscCall(CGFusedStartResident(work, stream));
  else {
    PetscCall(CGFusedCaptureIterations(work));
    PetscCall(CGFusedLaunchDirection(work, false, false, stream)); /* p = z */
    if (work->one_by_one) PetscCallCUDA(cudaGraphLaunch(work->product, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedAdvance_CUDA(CGFusedWork *work, LocalInt until, LocalInt *count, const CGRecord **records, CGStop *stop,
                                   LocalInt *its, PetscReal *value)
{
  const LocalInt left = until - work->launched, /* it may be below 0 */
    steps             = work->resident ? PetscMin(left, kCGRecords) : CGFusedIterationsOfGraph(work);
  const int    most   = work->resident || work->one_by_one ? 1 : kCGInFlight;
  const int    wanted = left > 0 ? work->mailbox.ahead() + (int)PetscMin((left - 1) / steps + 1, most) : 0;
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscAssert(left > 0 || work->mailbox.ahead(), PETSC_COMM_SELF, PETSC_ERR_PLIB, "Nothing is left to wait for");
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work->mailbox.KeepAhead(PetscMin(wanted, most), stream, [&]() {
    PetscFunctionBegin;
    if (work->resident) {
      PetscCall(CGFusedLaunchResident(work, steps, stream));
      PetscCall(work->mailbox.Post(false, stream));
    } else PetscCallCUDA(cudaGraphLaunch(work->graph, stream));
    work->launched += steps;
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  if (work->one_by_one) PetscCallCUDA(cudaGraphLaunch(work->product, stream)); /* of the next iteration; it changes z alone */
  PetscCall(work->mailbox.Report(count, records, stop, its, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedHalt_CUDA(const CGFusedWork *)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the view ------------------------------------------ */

PetscErrorCode CGFusedGetStatus_CUDA(const CGFusedWork *work, CGFusedStatus *status)
{
  PetscFunctionBegin;
  *status              = CGFusedStatus{};
  status->resident     = (PetscBool)work->resident;
  status->narrow[0]    = work->A.narrow;
  status->narrow[1]    = (PetscBool)(work->W1.narrow && work->W2.narrow);
  status->single[0]    = work->A.single;
  status->single[1]    = (PetscBool)(work->W1.single && work->W2.single);
  status->lanes[0]     = work->A.lanes;
  status->lanes[1]     = work->factored ? work->W1.lanes : 0;
  status->copied_bytes = SlicesBytes(&work->A) + (work->factored ? SlicesBytes(&work->W1) + SlicesBytes(&work->W2) : 0);
  status->bytes        = work->memory.now;
  for (const Slices *S : {&work->A, &work->W1, &work->W2}) status->bytes += S->capacity[0] + S->capacity[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}
