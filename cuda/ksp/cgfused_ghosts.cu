/* The columns of other ranks: what becomes of the products with the ghosts, and the exchange that brings these. */
#include "cgfused.cuh"

namespace
{

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
    double all[1]    = {state->own_delta + sums[0]};
    state->own.delta = all[0];
    if (state->s.direct) SumOverRanks(state->peers, all, &state->all.delta);
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
   ranks.
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
    LeaveSums(state, state->own.nn + nn, state->own.rz + sums[1]);
  }
};

} // namespace

template <typename Product>
static PetscErrorCode Launch_CGFused(CGFusedWork *work, bool early, const CGGhosts &ghosts, Product product, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(CGGhostsMultiply(early, work->processors * kCGBlocksOnChip, ghosts.rows, product, work->partial.data(),
                             work->mailbox.state(), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepareFactorGhosts(CGGhosts *ghosts, const PCInverseGhosts *from)
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

PetscErrorCode CGFusedLaunchGhosts(CGFusedWork *work, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Launch_CGFused(work, early, work->ghosts, AddToOperator{p, w}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchFirstGhosts(CGFusedWork *work, bool early, PetscScalar *t, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->ghosts1.rows.count) PetscCall(Launch_CGFused(work, early, work->ghosts1, AddToFirst{work->d, t}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchSecondGhosts(CGFusedWork *work, bool early, const PetscScalar *r, PetscScalar *z, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->ghosts2.rows.count) PetscCall(Launch_CGFused(work, early, work->ghosts2, AddToSecond{r, z}, stream));
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

PetscErrorCode CGFusedUseNCCL(CGFusedWork *work, NCCL *nccl)
{
  PetscFunctionBegin;
  if (nccl == work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedForgetExchanges_CUDA(work));
  PetscCall(FusedUseNCCL(work, &work->mailbox, nccl));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedMakeRoom(CGFusedWork *work, CGGhosts *ghosts, const Exchange &exchange)
{
  PetscFunctionBegin;
  if (ghosts->made != exchange.id) PetscCall(CGFusedForgetGraph_CUDA(work));
  PetscCall(CGGhostsMakeRoom(work, ghosts, exchange.lists, exchange.id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedPrepareExchange(CGFusedWork *work, CGGhosts *ghosts, const Exchange &exchange, MPI_Comm comm)
{
  CGState *const state = work->mailbox.state();

  PetscFunctionBegin;
  PetscCall(CGGhostsConnect(work, ghosts, exchange.id, comm, &state->own.nn, &state->all.nn));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedForgetExchanges_CUDA(CGFusedWork *work)
{
  PetscFunctionBegin;
  PetscCall(CGFusedForgetGraph_CUDA(work));
  for (CGGhosts *ghosts : {&work->ghosts, &work->ghosts1, &work->ghosts2}) CGGhostsForget(work, ghosts);
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
