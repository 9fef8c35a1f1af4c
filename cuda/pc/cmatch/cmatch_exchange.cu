/*
   CMATCH on the GPU: the exchanges of a cycle on several ranks by NCCL, which can be captured. Ranks without messages launch
   nothing.

   Where GPUs can write to one another, a kernel writes what is sent into words of the other GPUs, and another one waits for the
   words that come. Two words of an entry, which successive exchanges use in turns, are enough if each rank that gets entries from
   another one also sends some to it, in the same exchange or in the one that always lies between: who writes the word anew has
   heard from the other rank since then, which had read it before it wrote.

   Otherwise what is sent is packed where it does not lie in pieces, one for each neighbour, and what comes goes where it belongs,
   or stays as it comes where the kernel that reads it has a list. Such an exchange is a kernel of NCCL, and mostly one of ours
   ahead of it.
*/
#include <algorithm>
#include <memory>
#include <numeric>

#include "ranks/agree.h"
#include "cmatch.cuh"
#include "cmatch_launch.cuh"
#include "entry.h"

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

template <typename T>
using Word = std::conditional_t<sizeof(T) == sizeof(float), uint2, uint4>;

/* Writes from[sent_from[k]] to the words there[k], and behind these to[own_to[k]] = from[own_from[k]]. A thread takes an entry. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  SendWords(LocalInt sends, LocalInt own, const LocalInt *sent_from, const T *from, void *const *there, const LocalInt *own_from,
            const LocalInt *own_to, T *to, unsigned *turn)
{
  const long long k   = GridThread();
  const unsigned  now = turn[0]; /* which only the kernel that follows changes */
  if (k < sends) WriteWord((Word<T> *)there[k] + now % 2, from[sent_from[k]], now);
  else if (k < sends + (long long)own) to[own_to[k - sends]] = from[own_from[k - sends]];
  if (k == 0) turn[1] = now;
}

/*
   to[goes[k]] = what has come as entry k. The threads wait, so that there are few enough of them to leave room for kernels in other
   streams.
*/
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  ReceiveWords(LocalInt comes, const Word<T> *words, const LocalInt *goes, T *to, unsigned *turn)
{
  const long long stride = (long long)gridDim.x * kBlockSize;
  const unsigned  now    = turn[1];
  for (long long k = GridThread(); k < comes; k += stride) to[goes[k]] = AwaitWord(words + 2 * k + now % 2, now);
  if (GridThread() == 0) turn[0] = now + 1;
}

/* The messages of one exchange: entries of `from` are packed in `stream`, and sent aside of it or in it, and those of `to` come. */
PetscErrorCode Exchange(CMATCHHierarchyCUDA *H, const CMATCHMessagesThere &m, const void *from, void *to, bool aside,
                        cudaStream_t stream)
{
  CMATCHExchanges &of    = H->exchanges;
  const size_t     bytes = FinePCPrecisionBytes(H->params.precision);

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    if (m.direct) {
      if (m.to.empty() && m.from.empty() && !m.own) PetscFunctionReturn(PETSC_SUCCESS);
      PetscCall(LaunchEarly(false, SendWords<T>, PetscMax(BlocksFor((long long)m.sends + m.own), 1), kBlockSize, stream, m.sends,
                            m.own, m.sent_from, (const T *)from, m.there, m.own_from, m.own_to, (T *)to, m.turn));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (!m.packed && !m.own) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(LaunchEarly(false, PackEntries<T>, BlocksFor((long long)m.packed + m.own), kBlockSize, stream, m.packed, m.own,
                          m.sent, (const T *)from, (T *)of.packed, m.own_from, m.own_to, (T *)to));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  if (m.direct || (m.to.empty() && m.from.empty())) PetscFunctionReturn(PETSC_SUCCESS);
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
  if (aside && !m.direct) PetscCallCUDA(cudaStreamWaitEvent(stream, of.joined, 0));
  if (!m.direct && !m.unpacked) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    if (m.direct) {
      const Word<T> *const words = (const Word<T> *)(NCCLPeers(of.nccl)->own + PetscMax(m.slots, 0));
      PetscCall(LaunchEarly(false, ReceiveWords<T>, PetscMax(PetscMin(BlocksFor(m.comes), 4 * H->processors), 1), kBlockSize,
                            stream, m.comes, words, m.goes, (T *)to, m.turn));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
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
  PetscCall(Join(H, MessagesOf(H, level, CMATCH_DOWN), H->shared[level].added, true, stream)); /* they stay as they come */
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

static size_t EntriesOf(const std::vector<Neighbours::Part> &parts)
{
  size_t count = 0;
  for (const Neighbours::Part &part : parts) count += part.end - part.begin;
  return count;
}

/* Whether the parts are those of the same ranks. */
static bool SameRanks(const std::vector<Neighbours::Part> &x, const std::vector<Neighbours::Part> &y)
{
  const auto has = [](const std::vector<Neighbours::Part> &parts, PetscMPIInt rank) {
    return std::any_of(parts.begin(), parts.end(), [rank](const Neighbours::Part &part) { return part.rank == rank; });
  };
  return std::all_of(x.begin(), x.end(), [&](const Neighbours::Part &part) { return has(y, part.rank); }) &&
         std::all_of(y.begin(), y.end(), [&](const Neighbours::Part &part) { return has(x, part.rank); });
}

/* Words of the size of those of NCCLTakeSlots() for an entry: two, which exchanges use in turns. */
static LocalInt SlotsOf(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? 1 : 2;
}

/* Whether this rank has what it takes that kernels make this exchange of a level by themselves. */
static bool IsReady(const CMATCHMessagesThere *level, int kind)
{
  const CMATCHMessagesThere &m = level[kind], &back = level[kind == CMATCH_DOWN ? CMATCH_UP
                                                            : kind == CMATCH_UP ? CMATCH_DOWN
                                                                                : kind];
  return m.turn && (!m.comes || m.slots >= 0) && SameRanks(m.from, back.to) && SameRanks(m.to, back.from);
}

PetscErrorCode CMATCHMakeRoom_CUDA(CMATCHHierarchy *hierarchy, NCCL *nccl, std::vector<CMATCHLevelMessages> *messages)
{
  CMATCHHierarchyCUDA               *H   = (CMATCHHierarchyCUDA *)hierarchy;
  CMATCHExchanges                   &of  = H->exchanges;
  std::vector<CMATCHLevelMessages>  &all = *messages;
  std::vector<std::vector<LocalInt>> orders(all.size());
  Layout                             layout;
  size_t                             packed = 0, received = 0, parts_to = 0, parts_from = 0, words = 0;
  int                                least, greatest;
  const size_t                       value = FinePCPrecisionBytes(H->params.precision);
  const bool                         peers = nccl && NCCLPeers(nccl);

  PetscFunctionBegin;
  PetscCall(CMATCHDestroyExchanges(H));
  if (nccl) NCCLHold(nccl);
  of.nccl = nccl;
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
      if (peers) {
        m.sends = (LocalInt)EntriesOf(m.to);
        m.comes = (LocalInt)EntriesOf(m.from);
        if (m.comes) PetscCall(NCCLTakeSlots(nccl, (size_t)m.comes * SlotsOf(H->params.precision), &m.slots));
        layout.Place(&m.there, m.sends);
        if (!m.packed) layout.Place(&m.sent_from, m.sends);
        if (!m.unpacked) layout.Place(&m.goes, m.comes);
        layout.Place(&m.turn, 2);
        parts_to += m.to.size();
        parts_from += m.from.size();
        words = PetscMax(words, (size_t)m.sends);
      }
      packed   = PetscMax(packed, from.sent.size());
      received = PetscMax(received, from.came.size());
    }
  }
  layout.Place(&of.packed, packed * value);
  layout.Place(&of.received, received * value);
  PetscCall(layout.Allocate(&of.memory));
  /* Of that memory, up to where vectors begin, so that one copy brings all lists. */
  const size_t                  listed = (const char *)of.packed - of.memory.data();
  const std::unique_ptr<char[]> content(new char[listed]);
  const auto copy_of = [&](const void *there) { return (LocalInt *)(content.get() + ((const char *)there - of.memory.data())); };
  const auto put     = [&](const std::vector<LocalInt> &list, const void *there) {
    if (!list.empty()) std::copy(list.begin(), list.end(), copy_of(there));
  };
  /* The entries of these parts, which are pieces of their vector. */
  const auto put_places = [&](const std::vector<Neighbours::Part> &parts, const void *there) {
    LocalInt *place = EntriesOf(parts) ? copy_of(there) : nullptr;
    for (const Neighbours::Part &part : parts) {
      std::iota(place, place + (part.end - part.begin), part.begin);
      place += part.end - part.begin;
    }
  };
  for (size_t l = 0; l < all.size(); l++) {
    put(orders[l], H->shared[l].order);
    for (int kind = 0; kind < CMATCH_KINDS; kind++) {
      const CMATCHMessages &from = all[l][kind];
      CMATCHMessagesThere  &m    = of.messages[l * CMATCH_KINDS + kind];
      put(from.sent, m.sent);
      put(from.came, m.came);
      put(from.own_from, m.own_from);
      put(from.own_to, m.own_to);
      if (!peers) continue;
      if (m.packed) m.sent_from = m.sent;
      else put_places(m.to, m.sent_from);
      if (m.unpacked) m.goes = m.came;
      else put_places(m.from, m.goes);
      put({1, 1}, m.turn);
    }
  }
  PetscCall(ArrayCopy_CUDA(of.memory.data(), content.get(), listed, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  of.heard.resize(parts_to);
  of.told.resize(parts_from);
  of.words.resize(words);
  of.requests.resize(parts_to + parts_from);
  H->bytes += of.memory.bytes();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Each rank tells the others into which of its words they write; see IsReady() for what must be so on all of them. */
static PetscErrorCode ConnectDirectly(CMATCHHierarchyCUDA *H, MPI_Comm comm, bool *direct)
{
  CMATCHExchanges       &of    = H->exchanges;
  const RankPeers *const peers = NCCLPeers(of.nccl);
  const LocalInt         slots = SlotsOf(H->params.precision);
  LocalInt              *told = of.told.data(), *heard = of.heard.data();
  MPI_Request           *request = of.requests.data();
  int                    ready[kCMATCHMostLevels * CMATCH_KINDS];
  MPI_Comm               own;
  PetscMPIInt            tag;

  PetscFunctionBegin;
  *direct = peers;
  if (!peers) PetscFunctionReturn(PETSC_SUCCESS);
  std::fill(std::begin(ready), std::end(ready), 1); /* a rank that has no part in a level is ready for it */
  for (size_t k = 0; k < of.messages.size(); k++)
    ready[k] = IsReady(of.messages.data() + k / CMATCH_KINDS * CMATCH_KINDS, (int)(k % CMATCH_KINDS));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, ready, kCMATCHMostLevels * CMATCH_KINDS, MPI_INT, MPI_LAND, comm));
  PetscCall(PetscCommDuplicate(comm, &own, &tag));
  for (int r : ready) *direct = *direct && r;
  for (size_t k = 0; k < of.messages.size(); k++) {
    CMATCHMessagesThere &m  = of.messages[k];
    LocalInt             at = m.slots;
    m.direct                = ready[k];
    if (!m.direct) {
      if (m.slots >= 0) NCCLGiveSlots(of.nccl, m.slots);
      m.slots = -1;
      continue;
    }
    for (const Neighbours::Part &part : m.to) PetscCallMPI(MPI_Irecv(heard++, 1, MPI_INT, part.rank, tag, own, request++));
    for (const Neighbours::Part &part : m.from) {
      *told = at;
      PetscCallMPI(MPI_Isend(told++, 1, MPI_INT, part.rank, tag, own, request++));
      at += (part.end - part.begin) * slots;
    }
  }
  PetscCallMPI(MPI_Waitall((PetscMPIInt)(request - of.requests.data()), of.requests.data(), MPI_STATUSES_IGNORE));
  PetscCall(PetscCommDestroy(&own));
  heard = of.heard.data();
  for (CMATCHMessagesThere &m : of.messages) {
    size_t count = 0;
    if (!m.direct) continue;
    for (const Neighbours::Part &part : m.to) {
      uint4 *const first = peers->words[part.rank] + *heard++;
      for (LocalInt e = 0; e < part.end - part.begin; e++) of.words[count++] = first + (size_t)e * slots;
    }
    PetscCall(ArrayCopy_CUDA(m.there, of.words.data(), count * sizeof(void *), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHConnect_CUDA(CMATCHHierarchy *hierarchy, MPI_Comm comm, bool *direct)
{
  CMATCHHierarchyCUDA *H = (CMATCHHierarchyCUDA *)hierarchy;
  cudaStream_t         stream;

  PetscFunctionBegin;
  PetscCall(AgreeOnError(comm, CallGuarded(ConnectDirectly, H, comm, direct), "connect its GPU with the others"));
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
  CMATCHExchanges &of     = H->exchanges;
  const bool       direct = std::any_of(of.messages.begin(), of.messages.end(), [](const auto &m) { return m.slots >= 0; });

  PetscFunctionBegin;
  /* launches that a solver was ahead may still run, and wait for words */
  if (direct || !of.graphs.empty()) PetscCallCUDA(cudaDeviceSynchronize());
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
  for (const CMATCHMessagesThere &m : of.messages)
    if (m.slots >= 0) NCCLGiveSlots(of.nccl, m.slots);
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
