/*
   CMATCH on the GPU: the exchanges of a cycle on several ranks by NCCL, which can be captured. What is sent is packed where it does
   not lie in pieces, one for each neighbour, and what comes goes where it belongs, or stays as it comes where the kernel that reads
   it has a list. So an exchange is a kernel of NCCL, and mostly one of ours ahead of it. Ranks without messages launch nothing.
*/
#include "cmatch.cuh"
#include "cmatch_launch.cuh"

namespace
{

/* packed[k] = from[sent[k]], and behind these to[own_to[k]] = from[own_from[k]] */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) PackEntries(LocalInt packs, LocalInt own, const LocalInt *sent, const T *from,
                                                          T *packed, const LocalInt *own_from, const LocalInt *own_to, T *to)
{
  const long long k = GridThread();
  if (k < packs) packed[k] = from[sent[k]];
  else if (k < packs + (long long)own) to[own_to[k - packs]] = from[own_from[k - packs]];
}

/* to[came[k]] = received[k] */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) UnpackEntries(LocalInt count, const LocalInt *came, const T *received, T *to)
{
  const long long k = GridThread();
  if (k < count) to[came[k]] = received[k];
}

/* The messages of one exchange: entries of `from` are packed in `stream`, and in `sending` they are sent, and those of `to` come.
 */
PetscErrorCode Exchange(CMATCHHierarchyCUDA *H, const CMATCHMessagesThere &m, const void *from, void *to, bool aside,
                        cudaStream_t stream)
{
  CMATCHExchanges &of    = H->exchanges;
  const size_t     bytes = FinePCPrecisionBytes(H->params.precision);

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    if (!m.packed && !m.own) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(LaunchEarly(false, PackEntries<T>, BlocksFor((long long)m.packed + m.own), kBlockSize, stream, m.packed, m.own,
                          m.sent, (const T *)from, (T *)of.packed, m.own_from, m.own_to, (T *)to));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  if (m.to.empty() && m.from.empty()) PetscFunctionReturn(PETSC_SUCCESS);
  if (aside) {
    PetscCallCUDA(cudaEventRecord(of.forked, stream));
    PetscCallCUDA(cudaStreamWaitEvent(of.aside, of.forked, 0));
  }
  PetscCall(NCCLExchange(of.nccl, m.to, m.packed ? of.packed : from, m.from, m.unpacked ? of.received : to, bytes,
                         aside ? of.aside : stream));
  if (aside) PetscCallCUDA(cudaEventRecord(of.joined, of.aside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The stream goes on when an exchange aside of it has ended, and what came is where it belongs. */
PetscErrorCode Join(CMATCHHierarchyCUDA *H, const CMATCHMessagesThere &m, void *to, bool aside, cudaStream_t stream)
{
  CMATCHExchanges &of = H->exchanges;

  PetscFunctionBegin;
  if (m.to.empty() && m.from.empty()) PetscFunctionReturn(PETSC_SUCCESS);
  if (aside) PetscCallCUDA(cudaStreamWaitEvent(stream, of.joined, 0));
  if (!m.unpacked) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    PetscCall(LaunchEarly(false, UnpackEntries<T>, BlocksFor(m.unpacked), kBlockSize, stream, m.unpacked, m.came,
                          (const T *)of.received, (T *)to));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

const CMATCHMessagesThere &MessagesOf(const CMATCHHierarchyCUDA *H, LocalInt level, CMATCHKind kind)
{
  return H->exchanges.messages[(size_t)level * CMATCH_KINDS + kind];
}

PetscErrorCode Upload(const std::vector<LocalInt> &list, LocalInt *there)
{
  PetscFunctionBegin;
  PetscCall(ArrayCopy_CUDA(there, list.data(), list.size() * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHHaloBegin(CMATCHHierarchyCUDA *H, LocalInt level, void *x, cudaStream_t stream)
{
  void *const ghosts = (char *)x + (size_t)H->level[level].n * FinePCPrecisionBytes(H->params.precision);

  PetscFunctionBegin;
  PetscCall(Exchange(H, MessagesOf(H, level, CMATCH_HALO), x, ghosts, true, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHHaloEnd(CMATCHHierarchyCUDA *H, LocalInt level, void *x, cudaStream_t stream)
{
  void *const ghosts = (char *)x + (size_t)H->level[level].n * FinePCPrecisionBytes(H->params.precision);

  PetscFunctionBegin;
  PetscCall(Join(H, MessagesOf(H, level, CMATCH_HALO), ghosts, true, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDownBegin(CMATCHHierarchyCUDA *H, LocalInt level, const void *values, void *contributions, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Exchange(H, MessagesOf(H, level, CMATCH_DOWN), values, contributions, true, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDownEnd(CMATCHHierarchyCUDA *H, LocalInt level, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Join(H, MessagesOf(H, level, CMATCH_DOWN), nullptr, true, stream)); /* they stay as they come */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHUp(CMATCHHierarchyCUDA *H, LocalInt level, const void *x, void *values, cudaStream_t stream)
{
  const CMATCHMessagesThere &m = MessagesOf(H, level, CMATCH_UP);

  PetscFunctionBegin;
  PetscCall(Exchange(H, m, x, values, false, stream));
  PetscCall(Join(H, m, values, false, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ set-up -------------------------------------------- */

/*
   Contributions stay in the order in which they come, those of this rank behind the others: `order` says where each of them is
   then, and is empty if they come in their own order.
*/
static void OrderContributions(CMATCHMessages *m, LocalInt contributions, std::vector<LocalInt> *order)
{
  const LocalInt count   = (LocalInt)m->came.size();
  bool           ordered = true;
  order->assign(contributions, 0);
  for (LocalInt k = 0; k < count; k++) (*order)[m->came[k]] = k;
  for (size_t k = 0; k < m->own_to.size(); k++) {
    (*order)[m->own_to[k]] = count + (LocalInt)k;
    m->own_to[k]           = count + (LocalInt)k;
  }
  for (LocalInt k = 0; k < contributions; k++) ordered = ordered && (*order)[k] == k;
  if (ordered) order->clear();
  m->came.clear();
}

PetscErrorCode CMATCHMakeRoom_CUDA(CMATCHHierarchy *hierarchy, NCCL *nccl, const std::vector<CMATCHLevelMessages> *given)
{
  CMATCHHierarchyCUDA               *H  = (CMATCHHierarchyCUDA *)hierarchy;
  CMATCHExchanges                   &of = H->exchanges;
  std::vector<CMATCHLevelMessages>   all(*given);
  std::vector<std::vector<LocalInt>> orders(all.size());
  Layout                             layout;
  size_t                             packed = 0, received = 0;
  int                                least, greatest;
  const size_t                       value = FinePCPrecisionBytes(H->params.precision);

  PetscFunctionBegin;
  PetscCall(CMATCHDestroyExchanges(H));
  PetscCallCUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  PetscCallCUDA(cudaStreamCreateWithPriority(&of.aside, cudaStreamNonBlocking, greatest));
  for (cudaEvent_t *event : {&of.forked, &of.joined}) PetscCallCUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  of.messages.resize(all.size() * CMATCH_KINDS);
  for (size_t l = 0; l < all.size(); l++) {
    OrderContributions(&all[l][CMATCH_DOWN], H->level[l].contributions, &orders[l]);
    if (!orders[l].empty()) layout.Place((LocalInt **)&H->shared[l].order, orders[l].size());
    for (int kind = 0; kind < CMATCH_KINDS; kind++) {
      CMATCHMessages      &from = all[l][kind];
      CMATCHMessagesThere &m    = of.messages[l * CMATCH_KINDS + kind];
      m.to                      = std::move(from.to);
      m.from                    = std::move(from.from);
      m.packed                  = (LocalInt)from.sent.size();
      m.unpacked                = (LocalInt)from.came.size();
      m.own                     = (LocalInt)from.own_from.size();
      if (m.packed) layout.Place(&m.sent, m.packed);
      if (m.unpacked) layout.Place(&m.came, m.unpacked);
      if (m.own) layout.Place(&m.own_from, m.own);
      if (m.own) layout.Place(&m.own_to, m.own);
      packed   = PetscMax(packed, from.sent.size());
      received = PetscMax(received, from.came.size());
    }
  }
  layout.Place(&of.packed, packed * value);
  layout.Place(&of.received, received * value);
  PetscCall(layout.Allocate(&of.memory));
  for (size_t l = 0; l < all.size(); l++) {
    PetscCall(Upload(orders[l], (LocalInt *)H->shared[l].order));
    for (int kind = 0; kind < CMATCH_KINDS; kind++) {
      const CMATCHMessages      &from = all[l][kind];
      const CMATCHMessagesThere &m    = of.messages[l * CMATCH_KINDS + kind];
      PetscCall(Upload(from.sent, m.sent));
      PetscCall(Upload(from.came, m.came));
      PetscCall(Upload(from.own_from, m.own_from));
      PetscCall(Upload(from.own_to, m.own_to));
    }
  }
  H->bytes += of.memory.bytes();
  if (nccl) NCCLHold(nccl);
  of.nccl = nccl;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHConnect_CUDA(CMATCHHierarchy *hierarchy)
{
  CMATCHHierarchyCUDA *H = (CMATCHHierarchyCUDA *)hierarchy;
  cudaStream_t         stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  for (LocalInt l = 0; l < H->several; l++) {
    const CMATCHVectors &v      = H->vectors[l];
    const CMATCHShared  &of     = H->shared[l];
    char *const          values = (char *)of.values + (size_t)H->level[l].mine * FinePCPrecisionBytes(H->params.precision);
    /* what the vectors have now is of no use, and nobody reads what comes */
    PetscCall(CMATCHHaloBegin(H, l, v.x[0], stream));
    PetscCall(CMATCHHaloEnd(H, l, v.x[0], stream));
    PetscCall(CMATCHDownBegin(H, l, values, of.added, stream));
    PetscCall(CMATCHDownEnd(H, l, stream));
    PetscCall(CMATCHUp(H, l, of.rows ? H->vectors[l + 1].x[0] : nullptr, values, stream));
  }
  PetscCall(NCCLSum(H->exchanges.nccl, &H->control->own, (double *)&H->control->largest, 1, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDestroyExchanges(CMATCHHierarchyCUDA *H)
{
  CMATCHExchanges &of = H->exchanges;

  PetscFunctionBegin;
  if (!of.graphs.empty()) PetscCallCUDA(cudaDeviceSynchronize()); /* launches that a solver was ahead may still run */
  for (cudaGraphExec_t *graph : of.graphs) {
    PetscCallCUDA(cudaGraphExecDestroy(*graph));
    *graph = nullptr;
  }
  of.graphs.clear();
  for (cudaEvent_t *event : {&of.forked, &of.joined}) {
    if (*event) PetscCallCUDA(cudaEventDestroy(*event));
    *event = nullptr;
  }
  if (of.aside) PetscCallCUDA(cudaStreamDestroy(of.aside));
  of.aside = nullptr;
  of.messages.clear();
  for (CMATCHShared &shared : H->shared) shared.order = nullptr;
  of.memory.Free();
  if (of.nccl) NCCLRelease(of.nccl);
  of.nccl = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ graphs of solvers --------------------------------------- */

PetscErrorCode CMATCHShareGraph(CMATCHHierarchy *hierarchy, cudaGraphExec_t *graph)
{
  CMATCHExchanges &of = ((CMATCHHierarchyCUDA *)hierarchy)->exchanges;

  PetscFunctionBegin;
  of.graphs.push_back(graph);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void CMATCHUnshareGraph(CMATCHHierarchy *hierarchy, cudaGraphExec_t *graph)
{
  std::vector<cudaGraphExec_t *> &graphs = ((CMATCHHierarchyCUDA *)hierarchy)->exchanges.graphs;
  for (size_t k = 0; k < graphs.size(); k++)
    if (graphs[k] == graph) graphs.erase(graphs.begin() + (long)k--);
}

bool CMATCHHasExchanges(const CMATCHHierarchy *H)
{
  return ((const CMATCHHierarchyCUDA *)H)->exchanges.nccl;
}
