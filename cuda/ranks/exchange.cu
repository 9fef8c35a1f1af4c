/* Exchanges between GPUs without the host: packing and unpacking, words, and which of them there is room for. */
#include <algorithm>
#include <memory>
#include <numeric>

#include "entry.h"
#include "ranks/agree.h"
#include "ranks/exchange.cuh"
#include "ranks/exchange.h"

namespace
{

/* What a rank sends to itself: to[own.to[k]] = from[own.from[k]] */
struct OwnEntries {
  LocalInt        count;
  const LocalInt *from, *to;
};

/* packed[k] = from[sent[k]], times that of d unless it is null, and behind these the rank's own */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) PackEntries(LocalInt packs, OwnEntries own, const LocalInt         *sent,
                                                          const T *__restrict__ d, const T *__restrict__ from, T *packed, T *to)
{
  const long long k = GridThread();
  if (k < packs) packed[k] = d ? d[sent[k]] * from[sent[k]] : from[sent[k]];
  else if (k < packs + (long long)own.count) to[own.to[k - packs]] = from[own.from[k - packs]];
}

/* to[places[k]] = received[k] */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) UnpackEntries(LocalInt count, const LocalInt *places, const T *received, T *to)
{
  const long long k = GridThread();
  if (k < count) to[places[k]] = received[k];
}

/* packed[k] = entry list[k] of x, which has `width` numbers. A thread takes a number. */
__global__ void __launch_bounds__(kBlockSize)
  PackWide(long long count, LocalInt width, const LocalInt *list, const double *x, double *packed)
{
  const long long at = GridThread();
  if (at < count) packed[at] = x[(long long)list[at / width] * width + at % width];
}

/* Entry list[k] of x = received[k] */
__global__ void __launch_bounds__(kBlockSize)
  UnpackWide(long long count, LocalInt width, const LocalInt *list, const double *received, double *x)
{
  const long long at = GridThread();
  if (at < count) x[(long long)list[at / width] * width + at % width] = received[at];
}

template <typename T>
using Word = std::conditional_t<sizeof(T) == sizeof(float), uint2, uint4>;

/* Writes from[sent_from[k]] to the words there[k], and behind these the rank's own. A thread takes an entry. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  SendWords(LocalInt sends, OwnEntries own, const LocalInt *sent_from, const T *from, void *const *there, T *to, unsigned *turn)
{
  const long long k   = GridThread();
  const unsigned  now = turn[0]; /* which only the kernel that follows changes */
  if (k < sends) WriteWord((Word<T> *)there[k] + now % 2, from[sent_from[k]], now);
  else if (k < sends + (long long)own.count) to[own.to[k - sends]] = from[own.from[k - sends]];
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

/* Calls f with a zero of the type of the entries. */
template <typename F>
PetscErrorCode WithEntry(const DeviceExchanges &of, F f)
{
  return of.bytes == sizeof(float) ? f(float()) : f(double());
}

/* Words of the size of those of NCCLTakeSlots() for an entry. */
LocalInt SlotsOf(const DeviceExchanges &of)
{
  return of.own_turns && of.bytes == sizeof(double) ? 2 : 1;
}

} // namespace

PetscErrorCode ExchangeFence_CUDA()
{
  cudaStream_t stream;
  unsigned     flags;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaStreamGetFlags(stream, &flags));
  PetscCheck(!(flags & cudaStreamNonBlocking), PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A preconditioner that reaches other ranks needs a device context of the stream type PETSC_STREAM_DEFAULT, since "
             "PETSc's exchange may run in another stream: use -pc_afsai_overlap 0, -pc_sfsai_overlap 0 or -pc_cmatch_reach local");
  if (stream) PetscCallCUDA(cudaDeviceSynchronize());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeByNCCL_CUDA(const Exchange *exchange, LocalInt width, const double *x, double *ghosts)
{
  const long long sent = (long long)exchange->lists.entries.size() * width, came = (long long)exchange->lists.places.size() * width;
  cudaStream_t    stream;

  PetscFunctionBegin;
  PetscAssert(width <= exchange->width, PETSC_COMM_SELF, PETSC_ERR_PLIB, "There is no room for entries of so many numbers");
  PetscCall(DeviceGetStream(&stream));
  if (sent) {
    PackWide<<<BlocksFor(sent), kBlockSize, 0, stream>>>(sent, width, exchange->list, x, exchange->packed_entries);
    FinePCCheckLaunch();
  }
  PetscCall(NCCLExchange(exchange->nccl, exchange->to, exchange->packed_entries, exchange->from, came ? exchange->received : ghosts,
                         width * sizeof(double), stream));
  if (came) {
    UnpackWide<<<BlocksFor(came), kBlockSize, 0, stream>>>(came, width, exchange->places, exchange->received, ghosts);
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the exchange --------------------------------------- */

/*
   Entries are packed in the stream of the products, by a kernel of a microsecond or two: so the exchange is ready to run when the
   product that hides it is, and not after that.
*/
PetscErrorCode DeviceExchangeBegin(const ExchangeRanks *ranks, const DeviceExchanges &of, size_t number, const void *d,
                                   const void *from, void *to, bool aside, cudaStream_t stream)
{
  const DeviceExchange &e      = of.each[number];
  const OwnEntries      own    = {e.own, e.own_from, e.own_to};
  const cudaStream_t    beside = aside ? ranks->aside : stream;

  PetscFunctionBegin;
  if (e.direct && !of.own_turns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(WithEntry(of, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    if (e.direct && (e.Talks() || e.own)) {
      PetscCall(LaunchEarly(false, SendWords<T>, std::max(BlocksFor((long long)e.sends + e.own), 1), kBlockSize, stream, e.sends,
                            own, e.sent_from, (const T *)from, e.there, (T *)to, e.turn));
    } else if (!e.direct && (e.packed || e.own)) {
      PetscCall(LaunchEarly(false, PackEntries<T>, BlocksFor((long long)e.packed + e.own), kBlockSize, stream, e.packed, own,
                            e.entries, (const T *)d, (const T *)from, (T *)e.send, (T *)to));
    }
    if (!e.ByMessages()) PetscFunctionReturn(PETSC_SUCCESS);
    if (aside) {
      PetscCallCUDA(cudaEventRecord(ranks->forked, stream));
      PetscCallCUDA(cudaStreamWaitEvent(ranks->aside, ranks->forked, 0));
    }
    PetscCall(NCCLExchange(ranks->nccl, e.to, e.packed ? e.send : from, e.from, e.unpacked ? e.received : to, of.bytes, beside));
    if (e.unpacked) {
      PetscCall(LaunchEarly(false, UnpackEntries<T>, BlocksFor(e.unpacked), kBlockSize, beside, e.unpacked, e.places,
                            (const T *)e.received, (T *)to));
    }
    if (aside) PetscCallCUDA(cudaEventRecord(ranks->joined, ranks->aside));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceExchangeEnd(const ExchangeRanks *ranks, const DeviceExchanges &of, size_t number, void *to, bool aside,
                                 cudaStream_t stream)
{
  const DeviceExchange &e = of.each[number];

  PetscFunctionBegin;
  if (e.ByMessages() && aside) PetscCallCUDA(cudaStreamWaitEvent(stream, ranks->joined, 0));
  if (!e.Talks() || !e.direct || !of.own_turns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(WithEntry(of, [&](auto zero) {
    using T                    = decltype(zero);
    const Word<T> *const words = (const Word<T> *)(ranks->peers->own + std::max(e.slots, 0));
    PetscFunctionBegin;
    PetscCall(LaunchEarly(false, ReceiveWords<T>, std::max(std::min(BlocksFor(e.comes), ranks->waiting), 1), kBlockSize, stream,
                          e.comes, words, e.goes, (T *)to, e.turn));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

ExchangeSend DeviceExchangeSend(const DeviceExchange &e)
{
  return e.direct ? ExchangeSend{e.sends, e.sent_from, (uint4 *const *)e.there} : ExchangeSend{};
}

/* ------------------------------------------- set-up ------------------------------------------- */

void ExchangeRanksUse(ExchangeRanks *ranks, NCCL *nccl)
{
  if (ranks->nccl) NCCLRelease(ranks->nccl);
  if (nccl) NCCLHold(nccl);
  ranks->nccl  = nccl;
  ranks->peers = nccl ? NCCLPeers(nccl) : nullptr;
}

static PetscErrorCode MakeStream(ExchangeRanks *ranks)
{
  int least, greatest;

  PetscFunctionBegin;
  if (ranks->joined) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ProcessorCount(&ranks->waiting));
  ranks->waiting *= 4;
  PetscCallCUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  if (!ranks->aside) PetscCallCUDA(cudaStreamCreateWithPriority(&ranks->aside, cudaStreamNonBlocking, greatest));
  for (cudaEvent_t *event : {&ranks->forked, &ranks->joined})
    if (!*event) PetscCallCUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeRanksDestroy(ExchangeRanks *ranks)
{
  PetscFunctionBegin;
  for (cudaEvent_t *event : {&ranks->forked, &ranks->joined}) {
    if (*event) PetscCallCUDA(cudaEventDestroy(*event));
    *event = nullptr;
  }
  if (ranks->aside) PetscCallCUDA(cudaStreamDestroy(ranks->aside));
  ranks->aside = nullptr;
  ExchangeRanksUse(ranks, nullptr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void DeviceExchangesForget(ExchangeRanks *ranks, DeviceExchanges *of)
{
  for (const DeviceExchange &e : of->each)
    if (e.slots >= 0) NCCLGiveSlots(ranks->nccl, e.slots);
  of->each.clear();
  of->memory.Free();
}

/* Where the last of the parts ends. */
static LocalInt MostEnd(const std::vector<Neighbours::Part> &parts)
{
  LocalInt end = 0;
  for (const Neighbours::Part &part : parts) end = std::max(end, part.end);
  return end;
}

/* Takes words for an exchange, and places its arrays that are for these. */
static PetscErrorCode TakeWords(ExchangeRanks *ranks, DeviceExchanges *of, DeviceExchange *e, Layout *layout)
{
  PetscFunctionBegin;
  e->sends = (LocalInt)NeighboursCount(e->to);
  e->comes = (LocalInt)NeighboursCount(e->from);
  /* with turns of sums a word is found by the number of the ghost */
  const size_t slots = of->own_turns ? (size_t)e->comes * SlotsOf(*of) : e->unpacked ? 0 : MostEnd(e->from);
  if (slots) PetscCall(NCCLTakeSlots(ranks->nccl, slots, &e->slots));
  layout->Place(&e->there, e->sends);
  if (!e->packed) layout->Place(&e->sent_from, e->sends);
  if (!e->unpacked) layout->Place(&e->goes, e->comes);
  layout->Place(&e->turn, 2);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A copy on the host of the memory up to where vectors begin, so that one copy brings all lists. */
class ListCopy {
public:
  ListCopy(const char *memory, size_t size) : content(new char[size]), memory_(memory) { }
  template <typename T>
  void Put(const std::vector<T> &list, const void *there)
  {
    if (!list.empty()) std::copy(list.begin(), list.end(), (T *)Of(there));
  }
  /* The entries of these parts, which are pieces of their vector. */
  void PutPieces(const std::vector<Neighbours::Part> &parts, const void *there)
  {
    LocalInt *place = parts.empty() ? nullptr : (LocalInt *)Of(there);
    for (const Neighbours::Part &part : parts) {
      std::iota(place, place + (part.end - part.begin), part.begin);
      place += part.end - part.begin;
    }
  }
  const std::unique_ptr<char[]> content;

private:
  char       *Of(const void *there) const { return content.get() + ((const char *)there - memory_); }
  const char *memory_;
};

PetscErrorCode DeviceExchangesMakeRoom(ExchangeRanks *ranks, DeviceExchanges *of, const std::vector<Neighbours> &lists,
                                       const int back[], size_t most)
{
  Layout layout;
  void  *packed, *received;
  size_t sent = 0, came = 0, parts_to = 0, parts_from = 0, words = 0;

  PetscFunctionBegin;
  PetscCall(MakeStream(ranks));
  DeviceExchangesForget(ranks, of);
  of->each.resize(lists.size());
  for (size_t k = 0; k < lists.size(); k++) {
    const Neighbours &from = lists[k];
    DeviceExchange   &e    = of->each[k];
    e.to                   = from.to;
    e.from                 = from.from;
    e.back                 = back ? back[k] : 0;
    e.packed               = (LocalInt)from.entries.size();
    e.unpacked             = (LocalInt)from.places.size();
    e.own                  = (LocalInt)from.own_from.size();
    if (e.packed) layout.Place(&e.entries, e.packed);
    if (e.unpacked) layout.Place(&e.places, e.unpacked);
    if (e.own) layout.Place(&e.own_from, e.own);
    if (e.own) layout.Place(&e.own_to, e.own);
    if (ranks->peers) PetscCall(TakeWords(ranks, of, &e, &layout));
    sent  = std::max(sent, from.entries.size());
    came  = std::max(came, from.places.size());
    words = std::max(words, (size_t)e.sends);
    parts_to += e.to.size();
    parts_from += e.from.size();
  }
  layout.Place(&packed, sent * of->bytes);
  layout.Place(&received, came * of->bytes);
  PetscCall(layout.Allocate(&of->memory));
  ListCopy copy(of->memory.data(), (const char *)packed - of->memory.data());
  for (size_t k = 0; k < lists.size(); k++) {
    DeviceExchange &e = of->each[k];
    e.send            = packed;
    e.received        = received;
    copy.Put(lists[k].entries, e.entries);
    copy.Put(lists[k].places, e.places);
    copy.Put(lists[k].own_from, e.own_from);
    copy.Put(lists[k].own_to, e.own_to);
    if (!ranks->peers) continue;
    if (e.packed) e.sent_from = e.entries;
    else copy.PutPieces(e.to, e.sent_from);
    if (e.unpacked) e.goes = e.places;
    else copy.PutPieces(e.from, e.goes);
    copy.Put(std::vector<unsigned>{1, 1}, e.turn);
  }
  PetscCall(ArrayCopy_CUDA(of->memory.data(), copy.content.get(), (const char *)packed - of->memory.data(), PETSC_MEMTYPE_CUDA,
                           PETSC_MEMTYPE_HOST));
  of->ready.assign(std::max(most, lists.size()), 1); /* a rank that has no part in an exchange is ready for it */
  of->received_offsets.resize(parts_to);
  of->sent_offsets.resize(parts_from);
  of->words.resize(words);
  of->requests.resize(parts_to + parts_from);
  PetscFunctionReturn(PETSC_SUCCESS);
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

/* Whether this rank has what it takes that kernels make this exchange by themselves. */
static bool IsReady(const DeviceExchanges &of, size_t k)
{
  const DeviceExchange &e = of.each[k];

  if (e.comes && e.slots < 0) return false;
  if (!of.own_turns) return true;
  const DeviceExchange &answer = of.each[k + e.back];
  return SameRanks(e.from, answer.to) && SameRanks(e.to, answer.from);
}

/* Each rank sends the others the offsets of its words that they write to; see IsReady() for what must be so on all of them. */
static PetscErrorCode ExchangeOffsets(DeviceExchanges *of, MPI_Comm comm)
{
  LocalInt    *sent = of->sent_offsets.data(), *received = of->received_offsets.data();
  MPI_Request *request = of->requests.data();
  MPI_Comm     own;
  PetscMPIInt  tag;

  PetscFunctionBegin;
  PetscCall(PetscCommDuplicate(comm, &own, &tag));
  for (const DeviceExchange &e : of->each) {
    LocalInt at = e.slots;
    if (!e.direct) continue;
    for (const Neighbours::Part &part : e.to) PetscCallMPI(MPI_Irecv(received++, 1, MPI_INT, part.rank, tag, own, request++));
    for (const Neighbours::Part &part : e.from) {
      *sent = of->own_turns ? at : e.slots + part.begin; /* see TakeWords() */
      PetscCallMPI(MPI_Isend(sent++, 1, MPI_INT, part.rank, tag, own, request++));
      at += (part.end - part.begin) * SlotsOf(*of);
    }
  }
  PetscCallMPI(MPI_Waitall((PetscMPIInt)(request - of->requests.data()), of->requests.data(), MPI_STATUSES_IGNORE));
  PetscCall(PetscCommDestroy(&own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ConnectWords(ExchangeRanks *ranks, DeviceExchanges *of, MPI_Comm comm, bool *direct)
{
  const LocalInt slots    = SlotsOf(*of);
  LocalInt      *received = of->received_offsets.data();

  PetscFunctionBegin;
  for (size_t k = 0; k < of->each.size(); k++) of->ready[k] = IsReady(*of, k);
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, of->ready.data(), (PetscMPIInt)of->ready.size(), MPI_INT, MPI_LAND, comm));
  *direct = std::all_of(of->ready.begin(), of->ready.end(), [](int ready) { return ready; });
  for (size_t k = 0; k < of->each.size(); k++) {
    DeviceExchange &e = of->each[k];
    e.direct          = of->ready[k];
    if (!e.direct && e.slots >= 0) NCCLGiveSlots(ranks->nccl, e.slots);
    if (!e.direct) e.slots = -1;
  }
  PetscCall(ExchangeOffsets(of, comm));
  for (DeviceExchange &e : of->each) {
    size_t count = 0;
    if (!e.direct) continue;
    for (const Neighbours::Part &part : e.to) {
      uint4 *const first = ranks->peers->words[part.rank] + *received++;
      for (LocalInt k = 0; k < part.end - part.begin; k++) of->words[count++] = first + (size_t)k * slots;
    }
    PetscCall(ArrayCopy_CUDA(e.there, of->words.data(), count * sizeof(void *), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceExchangesConnect(ExchangeRanks *ranks, DeviceExchanges *of, MPI_Comm comm, bool *direct)
{
  PetscFunctionBegin;
  *direct = false;
  if (ranks->peers)
    PetscCall(AgreeOnError(comm, CallGuarded(ConnectWords, ranks, of, comm, direct), "connect its GPU with the others"));
  PetscFunctionReturn(PETSC_SUCCESS);
}
