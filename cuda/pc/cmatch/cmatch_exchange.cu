/* CMATCH on the GPU: the exchanges of a cycle on several ranks, by NCCL, which can be captured, or else by PetscSF. */
#include <algorithm>

#include "cmatch.cuh"
#include "cmatch_launch.cuh"

/* The values of an entry of an exchange: of a node, as many as it has unknowns. */
static LocalInt ValuesOf(const CMATCHHierarchyCUDA *H, LocalInt level, CMATCHKind kind)
{
  return H->nodes ? H->nodes->level[kind == CMATCH_HALO ? level : level + 1].k : 1;
}

static MPI_Datatype TypeOf_CMATCH(const CMATCHHierarchyCUDA *H, LocalInt level, CMATCHKind kind)
{
  if (!H->nodes) return CMATCHType(H->params.precision);
  return (kind == CMATCH_HALO ? H->device[level].type : H->device[level].coarse_type)->Get();
}

PetscErrorCode CMATCHExchangeBegin(CMATCHHierarchyCUDA *H, LocalInt level, CMATCHKind kind, const void *from, void *to,
                                   cudaStream_t stream)
{
  const CMATCHLevel &L    = H->level[level];
  const MPI_Datatype type = TypeOf_CMATCH(H, level, kind);

  PetscFunctionBegin;
  if (H->ranks.nccl)
    PetscCall(DeviceExchangeBegin(&H->ranks, H->exchanges, (size_t)level * CMATCH_KINDS + kind, nullptr, from, to,
                                  kind != CMATCH_UP, stream));
  else if (kind == CMATCH_DOWN) PetscCall(ExchangeBackBegin(L.down, type, from, to));
  else PetscCall(ExchangeBegin(kind == CMATCH_HALO ? L.halo : L.up, type, from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHExchangeEnd(CMATCHHierarchyCUDA *H, LocalInt level, CMATCHKind kind, const void *from, void *to,
                                 cudaStream_t stream)
{
  const CMATCHLevel &L    = H->level[level];
  const MPI_Datatype type = TypeOf_CMATCH(H, level, kind);

  PetscFunctionBegin;
  if (H->ranks.nccl)
    PetscCall(DeviceExchangeEnd(&H->ranks, H->exchanges, (size_t)level * CMATCH_KINDS + kind, to, kind != CMATCH_UP, stream));
  else if (kind == CMATCH_DOWN) PetscCall(ExchangeBackEnd(L.down, type, from, to));
  else PetscCall(ExchangeEnd(kind == CMATCH_HALO ? L.halo : L.up, type, from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ set-up -------------------------------------------- */

/*
   Contributions stay in the order in which they come, those of this rank behind the others: `order` says where each of them is
   then, and is empty if they come in their own order.
*/
static std::vector<LocalInt> OrderContributions(LocalInt contributions, Neighbours *lists)
{
  const LocalInt        count   = (LocalInt)lists->places.size();
  bool                  ordered = true;
  std::vector<LocalInt> order(contributions);
  for (LocalInt k = 0; k < count; k++) order[lists->places[k]] = k;
  for (size_t k = 0; k < lists->own_to.size(); k++) {
    order[lists->own_to[k]] = count + (LocalInt)k;
    lists->own_to[k]        = count + (LocalInt)k;
  }
  for (LocalInt k = 0; k < contributions; k++) ordered = ordered && order[k] == k;
  if (ordered) order.clear();
  lists->places.clear();
  return order;
}

PetscErrorCode CMATCHMakeRoom_CUDA(CMATCHHierarchy *hierarchy, NCCL *nccl, std::vector<Neighbours> *lists)
{
  CMATCHHierarchyCUDA  *H = (CMATCHHierarchyCUDA *)hierarchy;
  std::vector<int>      back;
  std::vector<LocalInt> all, begin;

  PetscFunctionBegin;
  PetscCall(CMATCHDestroyExchanges(H));
  for (LocalInt l = 0; l < H->several; l++) {
    const std::vector<LocalInt> order =
      OrderContributions(H->level[l].contributions, &(*lists)[(size_t)l * CMATCH_KINDS + CMATCH_DOWN]);
    begin.push_back((LocalInt)all.size());
    all.insert(all.end(), order.begin(), order.end());
    back.insert(back.end(), {0, CMATCH_UP - CMATCH_DOWN, CMATCH_DOWN - CMATCH_UP}); /* corrections answer contributions */
  }
  begin.push_back((LocalInt)all.size());
  PetscCall(H->orders.Allocate(all.size()));
  if (!all.empty())
    PetscCall(ArrayCopy_CUDA(H->orders.data(), all.data(), all.size() * sizeof(all[0]), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  for (LocalInt l = 0; l < H->several; l++) H->device[l].order = begin[l + 1] > begin[l] ? H->orders.data() + begin[l] : nullptr;
  ExchangeRanksUse(&H->ranks, nccl);
  H->exchanges.bytes = FinePCPrecisionBytes(H->params.precision);
  for (size_t k = 0; k < lists->size() && H->nodes; k++) {
    Neighbours wide;
    PetscCall(NeighboursWiden((*lists)[k], ValuesOf(H, (LocalInt)(k / CMATCH_KINDS), (CMATCHKind)(k % CMATCH_KINDS)), &wide));
    std::swap((*lists)[k], wide);
  }
  PetscCall(DeviceExchangesMakeRoom(&H->ranks, &H->exchanges, *lists, back.data(), (size_t)kCMATCHMostLevels * CMATCH_KINDS));
  H->bytes += H->exchanges.memory.bytes() + H->orders.bytes();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHConnect_CUDA(CMATCHHierarchy *hierarchy, MPI_Comm comm, bool *direct)
{
  CMATCHHierarchyCUDA *H     = (CMATCHHierarchyCUDA *)hierarchy;
  const size_t         value = FinePCPrecisionBytes(H->params.precision);
  cudaStream_t         stream;

  PetscFunctionBegin;
  PetscCall(DeviceExchangesConnect(&H->ranks, &H->exchanges, comm, direct));
  PetscCall(DeviceGetStream(&stream));
  for (LocalInt l = 0; l < H->several; l++) {
    const CMATCHLevelCUDA &of     = H->device[l];
    char *const            x      = (char *)H->device[l].vectors.x[0];
    char *const            values = (char *)of.values + (size_t)H->level[l].mine * ValuesOf(H, l, CMATCH_UP) * value;
    const void *const      next   = of.rows ? H->device[l + 1].vectors.x[0] : nullptr;
    /* what the vectors have now is of no use, and nobody reads what comes */
    PetscCall(CMATCHExchangeBegin(H, l, CMATCH_HALO, x, x + H->level[l].n * value, stream));
    PetscCall(CMATCHExchangeEnd(H, l, CMATCH_HALO, x, x + H->level[l].n * value, stream));
    PetscCall(CMATCHExchangeBegin(H, l, CMATCH_DOWN, values, of.added, stream));
    PetscCall(CMATCHExchangeEnd(H, l, CMATCH_DOWN, values, of.added, stream));
    PetscCall(CMATCHExchangeBegin(H, l, CMATCH_UP, next, values, stream));
    PetscCall(CMATCHExchangeEnd(H, l, CMATCH_UP, next, values, stream));
  }
  PetscCall(NCCLSum(H->ranks.nccl, &H->control->own, (double *)&H->control->largest, 1, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDestroyExchanges(CMATCHHierarchyCUDA *H)
{
  const bool direct = std::any_of(H->exchanges.each.begin(), H->exchanges.each.end(), [](const auto &e) { return e.slots >= 0; });

  PetscFunctionBegin;
  /* launches that a solver was ahead may still run, and wait for words */
  if (direct || !H->graphs.empty()) PetscCallCUDA(cudaDeviceSynchronize());
  for (cudaGraphExec_t *graph : H->graphs) {
    PetscCallCUDA(cudaGraphExecDestroy(*graph));
    *graph = nullptr;
  }
  H->graphs.clear();
  DeviceExchangesForget(&H->ranks, &H->exchanges);
  PetscCall(ExchangeRanksDestroy(&H->ranks));
  H->orders.Free();
  for (CMATCHLevelCUDA &shared : H->device) shared.order = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ graphs of solvers --------------------------------------- */

PetscErrorCode CMATCHShareGraph(CMATCHHierarchy *hierarchy, cudaGraphExec_t *graph)
{
  PetscFunctionBegin;
  ((CMATCHHierarchyCUDA *)hierarchy)->graphs.push_back(graph);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void CMATCHUnshareGraph(CMATCHHierarchy *hierarchy, cudaGraphExec_t *graph)
{
  std::vector<cudaGraphExec_t *> &graphs = ((CMATCHHierarchyCUDA *)hierarchy)->graphs;
  for (size_t k = 0; k < graphs.size(); k++)
    if (graphs[k] == graph) graphs.erase(graphs.begin() + (long)k--);
}
