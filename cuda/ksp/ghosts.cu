/*
   The columns of other ranks: the rows that have entries there, and the exchange that brings the entries of a vector for them.
*/
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "ranks/agree.h"
#include "entry.h"
#include "ghosts.cuh"

namespace
{

/* Whether a row has entries. */
struct HasEntries {
  const LocalInt *i;

  __device__ bool operator()(LocalInt row) const { return i[row + 1] > i[row]; }
};

/* to[k] = from[index[k]], times that of d unless it is null */
__global__ void Gather(LocalInt count, const LocalInt *index, const double *__restrict__ d, const double *__restrict__ from,
                       double *__restrict__ to)
{
  const long long k = GridThread();
  if (k < count) to[k] = d ? d[index[k]] * from[index[k]] : from[index[k]];
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
  PetscCall(PetscGetCurrentCUDAStream(&stream));
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

void CGGhostsGiveSlots(NCCL *nccl, CGGhosts *ghosts)
{
  if (ghosts->slots >= 0) NCCLGiveSlots(nccl, ghosts->slots);
  ghosts->slots      = -1;
  ghosts->direct     = false;
  ghosts->rows.words = nullptr;
}

void CGGhostsForget(CGRanks *ranks, CGGhosts *ghosts)
{
  CGGhostsGiveSlots(ranks->nccl, ghosts);
  ghosts->exchange = -1;
}

PetscErrorCode CGRanksDestroy(CGRanks *ranks)
{
  PetscFunctionBegin;
  for (cudaEvent_t *event : {&ranks->forked, &ranks->joined}) {
    if (*event) PetscCallCUDA(cudaEventDestroy(*event));
    *event = nullptr;
  }
  if (ranks->aside) PetscCallCUDA(cudaStreamDestroy(ranks->aside));
  ranks->aside = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

LocalInt CGGhostsCount(const CGGhosts &ghosts)
{
  LocalInt count = 0;
  for (const Neighbours::Part &part : ghosts.from) count = std::max(count, part.end);
  return count;
}

/* The words of other ranks that the entries go to, if each rank has words of its own for the ghosts. */
static PetscErrorCode ConnectDirectly(CGRanks *ranks, CGGhosts *ghosts, const Neighbours *neighbours, MPI_Comm comm)
{
  PetscBool             all;
  std::vector<LocalInt> there;
  std::vector<uint4 *>  words;
  const LocalInt        count = CGGhostsCount(*ghosts);

  PetscFunctionBegin;
  const bool ready = neighbours->places.empty() && (!count || ghosts->slots >= 0);
  PetscCall(NeighboursTell(comm, *neighbours, ready ? PETSC_TRUE : PETSC_FALSE, ghosts->slots, &all, &there));
  if (!all) {
    CGGhostsGiveSlots(ranks->nccl, ghosts);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (size_t k = 0; k < ghosts->to.size(); k++)
    for (LocalInt e = ghosts->to[k].begin; e < ghosts->to[k].end; e++)
      words.push_back(ranks->peers->words[ghosts->to[k].rank] + there[k] + (e - ghosts->to[k].begin));
  PetscCall(
    ArrayCopy_CUDA(ghosts->there.data(), words.data(), words.size() * sizeof(uint4 *), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  if (count) ghosts->rows.words = ranks->peers->own + ghosts->slots;
  ghosts->direct = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGGhostsMakeRoom(CGRanks *ranks, CGGhosts *ghosts, const Neighbours &neighbours, long exchange)
{
  int least, greatest;

  PetscFunctionBegin;
  if (!ranks->aside) {
    PetscCallCUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    PetscCallCUDA(cudaStreamCreateWithPriority(&ranks->aside, cudaStreamNonBlocking, greatest));
    for (cudaEvent_t *event : {&ranks->forked, &ranks->joined})
      PetscCallCUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  if (ghosts->exchange == exchange) PetscFunctionReturn(PETSC_SUCCESS);
  CGGhostsGiveSlots(ranks->nccl, ghosts);
  ghosts->exchange = -1; /* until it is ready */
  ghosts->number++;
  ghosts->to   = neighbours.to;
  ghosts->from = neighbours.from;
  PetscCall(KeepList(neighbours.entries, &ghosts->entries, &ghosts->packed));
  PetscCall(KeepList(neighbours.places, &ghosts->places, &ghosts->received));
  if (!ranks->peers) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ghosts->there.Allocate(neighbours.entries.size()));
  if (neighbours.places.empty()) PetscCall(NCCLTakeSlots(ranks->nccl, CGGhostsCount(*ghosts), &ghosts->slots));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGGhostsConnect(CGRanks *ranks, CGGhosts *ghosts, const Neighbours &neighbours, long exchange, MPI_Comm comm,
                               const double *own, double *all)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (ghosts->exchange == exchange) PetscFunctionReturn(PETSC_SUCCESS);
  if (ranks->peers)
    PetscCall(
      AgreeOnError(comm, CallGuarded(ConnectDirectly, ranks, ghosts, &neighbours, comm), "connect its GPU with the others"));
  /* The first exchange and the first sum connect the ranks, which takes long, and must not wait for a rank that captures. */
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(ghosts->packed.data(), 0, ghosts->packed.bytes(), stream));
  PetscCall(NCCLSum(ranks->nccl, own, all, 2, stream));
  if (!ghosts->direct && (!ghosts->to.empty() || !ghosts->from.empty()))
    PetscCall(NCCLExchange(ranks->nccl, ghosts->to, ghosts->packed.data(), ghosts->from,
                           ghosts->places.size() ? ghosts->received.data() : ghosts->rows.values, sizeof(double), stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  ghosts->exchange = exchange;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The entries are packed in the stream of the products, by a kernel of a microsecond or two: so the exchange is ready to run when
   the product that hides it is, and not after that.
*/
PetscErrorCode CGGhostsBegin(const CGRanks *ranks, const CGGhosts *ghosts, const PetscScalar *d, const PetscScalar *x,
                             cudaStream_t stream)
{
  const LocalInt sent = (LocalInt)ghosts->entries.size(), received = (LocalInt)ghosts->places.size();

  PetscFunctionBegin;
  if (ghosts->direct || (ghosts->to.empty() && ghosts->from.empty())) PetscFunctionReturn(PETSC_SUCCESS);
  if (sent) {
    Gather<<<BlocksFor(sent), kBlockSize, 0, stream>>>(sent, ghosts->entries.data(), d, x, ghosts->packed.data());
    FinePCCheckLaunch();
  }
  PetscCallCUDA(cudaEventRecord(ranks->forked, stream));
  PetscCallCUDA(cudaStreamWaitEvent(ranks->aside, ranks->forked, 0));
  PetscCall(NCCLExchange(ranks->nccl, ghosts->to, ghosts->packed.data(), ghosts->from,
                         received ? ghosts->received.data() : ghosts->rows.values, sizeof(double), ranks->aside));
  if (received) {
    Scatter<<<BlocksFor(received), kBlockSize, 0, ranks->aside>>>(received, ghosts->places.data(), ghosts->received.data(),
                                                                  ghosts->rows.values);
    FinePCCheckLaunch();
  }
  PetscCallCUDA(cudaEventRecord(ranks->joined, ranks->aside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGGhostsEnd(const CGRanks *ranks, const CGGhosts *ghosts, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (ghosts->direct || (ghosts->to.empty() && ghosts->from.empty())) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallCUDA(cudaStreamWaitEvent(stream, ranks->joined, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}
