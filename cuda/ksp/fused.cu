/* The columns of other ranks in a solver, and streams that others do not wait for. */
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "fused.cuh"
#include "ksp/fused.h"

namespace
{

/* Whether a row has entries. */
struct HasEntries {
  const LocalInt *i;

  __device__ bool operator()(LocalInt row) const { return i[row + 1] > i[row]; }
};

} // namespace

LocalInt CGGhostLanes(LocalInt rows, LocalInt nnz)
{
  LocalInt lanes = 1;
  while (lanes < kMostGhostLanes && (PetscInt64)lanes * rows < nnz) lanes *= 2;
  return lanes;
}

PetscErrorCode CGGhostsKeep(CGGhosts *ghosts, const CSRView &B, PetscScalar *values, bool changed)
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
  PetscCall(DeviceGetStream(&stream));
  if (ghosts->list.size() < (size_t)B.n + 1) PetscCall(ghosts->list.Allocate((size_t)B.n + 1));
  LocalInt *const list = ghosts->list.data(), *const found = list + B.n;
  rows.rows = list;
  PetscCall(ghosts->select.Run(
    [&](void *scratch, size_t &bytes) { return cub::DeviceSelect::If(scratch, bytes, every, list, found, B.n, has, stream); }));
  PetscCall(ArrayCopy_CUDA(&rows.count, found, sizeof(*found), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  rows.lanes = CGGhostLanes(rows.count, B.nnz);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void CGGhostsShare(const CGGhosts &kept, CGGhosts *ghosts)
{
  const uint4 *const words = ghosts->rows.words;
  ghosts->used             = kept.used;
  ghosts->rows             = kept.rows;
  ghosts->rows.words       = words;
}

/* ----------------------------------------- the exchange --------------------------------------- */

void CGGhostsForget(ExchangeRanks *ranks, CGGhosts *ghosts)
{
  DeviceExchangesForget(ranks, &ghosts->exchange);
  ghosts->rows.words = nullptr;
  ghosts->made       = 0;
}

PetscErrorCode CGGhostsMakeRoom(ExchangeRanks *ranks, CGGhosts *ghosts, const Neighbours &lists, PetscObjectId exchange)
{
  PetscFunctionBegin;
  if (ghosts->made == exchange) PetscFunctionReturn(PETSC_SUCCESS);
  CGGhostsForget(ranks, ghosts);
  ghosts->number++;
  PetscCall(DeviceExchangesMakeRoom(ranks, &ghosts->exchange, {lists}, nullptr, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGGhostsConnect(ExchangeRanks *ranks, CGGhosts *ghosts, PetscObjectId exchange, MPI_Comm comm, const double *own,
                               double *all)
{
  bool         direct;
  cudaStream_t stream;

  PetscFunctionBegin;
  if (ghosts->made == exchange) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceExchangesConnect(ranks, &ghosts->exchange, comm, &direct));
  const DeviceExchange &e = ghosts->exchange.each[0];
  if (e.slots >= 0) ghosts->rows.words = ranks->peers->own + e.slots;
  /* The first exchange and the first sum connect the ranks, which takes long, and must not wait for a rank that captures. */
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(e.send, 0, e.packed * sizeof(double), stream));
  PetscCall(NCCLSum(ranks->nccl, own, all, 2, stream));
  if (e.ByMessages())
    PetscCall(
      NCCLExchange(ranks->nccl, e.to, e.send, e.from, e.unpacked ? e.received : ghosts->rows.values, sizeof(double), stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  ghosts->made = exchange;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ streams ------------------------------------------- */

PetscErrorCode FusedCheckStream_CUDA(MPI_Comm comm)
{
  bool non_blocking = false;

  PetscFunctionBegin;
  PetscCall(DeviceStreamIsNonBlocking_CUDA(&non_blocking));
  PetscCheck(
    !non_blocking, comm, PETSC_ERR_SUP,
    "KSPCGFUSED on its general path, and KSPRRBCG with a guess, need a device context of the stream type PETSC_STREAM_DEFAULT, "
    "since PETSc's products may run in another stream: use KSPCG");
  PetscFunctionReturn(PETSC_SUCCESS);
}
