/* The calls of NCCL. What a build without its header has instead is at the end. */
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "buffer.cuh"
#include "ranks/nccl.cuh"

PetscErrorCode NCCLDeviceName_CUDA(char name[], size_t length)
{
  int device;

  PetscFunctionBegin;
  PetscCall(DeviceInitialize()); /* which chooses the GPU of the rank, if nothing has needed one so far */
  PetscCallCUDA(cudaGetDevice(&device));
  PetscCallCUDA(cudaDeviceGetPCIBusId(name, (int)length, device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if defined(FINEPC_HAVE_NCCL)
  #include <dlfcn.h>
  #include <nccl.h>

  /*
     The API for kernels is one of headers, whose structures follow the version: the library must be of the version that this was
     compiled with.
  */
  #if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) && __has_include(<nccl_device.h>)
    #define FINEPC_NCCL_DIRECT 1
    #include <nccl_device.h>
  #endif
  #if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 0)
    #define FINEPC_NCCL_CONFIG 1
  #endif

static_assert(kNCCLId == NCCL_UNIQUE_ID_BYTES);

struct NCCL {
  ncclComm_t comm  = nullptr;
  int        held  = 0;  /* by so many solvers */
  PetscReal  limit = 60; /* seconds that the host waits for kernels, or 0 for any time */

  /* memory that the GPUs of one machine write to one another; null where there is none */
  void               *memory  = nullptr;
  NCCLSharing         sharing = NCCL_SHARES_NOTHING;
  std::vector<void *> opened; /* that of others, by IPC */
  RankPeers           peers{};
  PeerSlots           slots;
  #if defined(FINEPC_NCCL_DIRECT)
  ncclWindow_t window = nullptr;
  #endif
};

namespace
{

constexpr int kLeastVersion  = 21400; /* of the library: 2.14 */
constexpr int kConfigVersion = 21700; /* in which a communicator can have fewer blocks */

/* The blocks of a kernel of NCCL at most. It connects the GPUs by each of them when messages first need it, which takes long. */
constexpr int kMostBlocks = 16;

/* The library, opened once and never closed: its threads live as long as the program. */
class Library {
public:
  Library()
  {
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) std::snprintf(why_, sizeof(why_), "libnccl.so.2 cannot be opened: %s", dlerror());
    if (!library) library = dlopen(FINEPC_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL); /* where it was when this was built */
    if (!library) return;
    why_[0] = '\0';
    Find(library, "ncclGetVersion", &get_version);
    Find(library, "ncclGetErrorString", &get_error_string);
    Find(library, "ncclGetLastError", &get_last_error);
    Find(library, "ncclGetUniqueId", &get_unique_id);
    Find(library, "ncclCommInitRank", &comm_init_rank);
    Find(library, "ncclCommDestroy", &comm_destroy);
    Find(library, "ncclCommAbort", &comm_abort);
    Find(library, "ncclCommGetAsyncError", &comm_get_async_error);
    Find(library, "ncclAllReduce", &all_reduce);
    Find(library, "ncclSend", &send);
    Find(library, "ncclRecv", &recv);
    Find(library, "ncclGroupStart", &group_start);
    Find(library, "ncclGroupEnd", &group_end);
    if (*why_) return;
    FindMore(library);
    if (get_version(&version) != ncclSuccess || version < kLeastVersion)
      std::snprintf(why_, sizeof(why_), "libnccl.so.2 is older than 2.14");
  }
  /* Why it cannot be used; empty if it can. */
  const char *Why() const { return why_; }

  int                              version              = 0;
  decltype(&ncclGetVersion)        get_version          = nullptr;
  decltype(&ncclGetErrorString)    get_error_string     = nullptr;
  decltype(&ncclGetLastError)      get_last_error       = nullptr;
  decltype(&ncclGetUniqueId)       get_unique_id        = nullptr;
  decltype(&ncclCommInitRank)      comm_init_rank       = nullptr;
  decltype(&ncclCommDestroy)       comm_destroy         = nullptr;
  decltype(&ncclCommAbort)         comm_abort           = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclAllReduce)         all_reduce           = nullptr;
  decltype(&ncclSend)              send                 = nullptr;
  decltype(&ncclRecv)              recv                 = nullptr;
  decltype(&ncclGroupStart)        group_start          = nullptr;
  decltype(&ncclGroupEnd)          group_end            = nullptr;

  /* null if the library has no such function */
  #if defined(FINEPC_NCCL_CONFIG)
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  #endif
  #if defined(FINEPC_NCCL_DIRECT)
  decltype(&ncclMemAlloc)             mem_alloc         = nullptr;
  decltype(&ncclMemFree)              mem_free          = nullptr;
  decltype(&ncclCommWindowRegister)   window_register   = nullptr;
  decltype(&ncclCommWindowDeregister) window_deregister = nullptr;
  decltype(&ncclDevCommCreate)        dev_comm_create   = nullptr;
  decltype(&ncclDevCommDestroy)       dev_comm_destroy  = nullptr;
  #endif

private:
  template <typename Function>
  void Find(void *library, const char name[], Function *function)
  {
    *function = (Function)dlsym(library, name);
    if (!*function) std::snprintf(why_, sizeof(why_), "libnccl.so.2 has no %s()", name);
  }

  void FindMore([[maybe_unused]] void *library)
  {
  #if defined(FINEPC_NCCL_CONFIG)
    comm_init_rank_config = (decltype(comm_init_rank_config))dlsym(library, "ncclCommInitRankConfig");
  #endif
  #if defined(FINEPC_NCCL_DIRECT)
    mem_alloc         = (decltype(mem_alloc))dlsym(library, "ncclMemAlloc");
    mem_free          = (decltype(mem_free))dlsym(library, "ncclMemFree");
    window_register   = (decltype(window_register))dlsym(library, "ncclCommWindowRegister");
    window_deregister = (decltype(window_deregister))dlsym(library, "ncclCommWindowDeregister");
    dev_comm_create   = (decltype(dev_comm_create))dlsym(library, "ncclDevCommCreate");
    dev_comm_destroy  = (decltype(dev_comm_destroy))dlsym(library, "ncclDevCommDestroy");
  #endif
  }

  char why_[kNCCLText] = "";
};

const Library &TheLibrary()
{
  static const Library library;
  return library;
}

/* What NCCL says about a result that is no success. */
void Describe_NCCL(ncclResult_t result, ncclComm_t comm, char text[])
{
  const Library &library = TheLibrary();
  const char    *more    = library.get_last_error(comm);
  std::snprintf(text, kNCCLText, "NCCL says: %s%s%s", library.get_error_string(result), more && *more ? ": " : "",
                more && *more ? more : "");
}

PetscErrorCode Check_NCCL(ncclResult_t result, const NCCL *nccl)
{
  char text[kNCCLText];

  PetscFunctionBegin;
  if (result == ncclSuccess) PetscFunctionReturn(PETSC_SUCCESS);
  Describe_NCCL(result, nccl->comm, text);
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_GPU, "%s", text);
}

PetscErrorCode CheckAlive(const NCCL *nccl)
{
  PetscFunctionBegin;
  PetscCheck(nccl->comm, PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "An operation of NCCL has failed before, which has ended its communicator");
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* ------------------------- memory that all GPUs of a machine can write to --------------------- */

/* The words, and the turn behind them. */
static size_t PeerBytes(int ranks)
{
  return (PeerWords(ranks) + 1) * sizeof(uint4);
}

/* The memory that is to be shared in this way by several ranks; false if it could not be had. */
static bool AllocatePeers(NCCL *nccl, NCCLSharing sharing, int ranks)
{
  const unsigned one = 1; /* the turns begin with it, which no word has */

  if (sharing == NCCL_SHARES_NOTHING || ranks == 1 || ranks > kPeersMost) return true;
  nccl->sharing = sharing;
  bool done     = sharing == NCCL_SHARES_IPC && cudaMalloc(&nccl->memory, PeerBytes(ranks)) == cudaSuccess;
  #if defined(FINEPC_NCCL_DIRECT)
  if (sharing == NCCL_SHARES_WINDOWS) done = TheLibrary().mem_alloc(&nccl->memory, PeerBytes(ranks)) == ncclSuccess;
  #endif
  if (!done) nccl->memory = nullptr;
  done = done && cudaMemset(nccl->memory, 0, PeerBytes(ranks)) == cudaSuccess &&
         cudaMemcpy((uint4 *)nccl->memory + PeerWords(ranks), &one, sizeof(one), cudaMemcpyHostToDevice) == cudaSuccess;
  (void)cudaGetLastError();
  return done;
}

/* Opens the memory of another rank, if NVLink connects its GPU with this one: false if that cannot be. */
static bool OpenPeer(NCCL *nccl, const NCCLShared &shared, uint4 **words)
{
  cudaIpcMemHandle_t handle;
  void              *memory;
  int                own, other, atomics = 0;

  static_assert(sizeof(handle) == sizeof(shared.memory));
  std::memcpy(&handle, shared.memory, sizeof(handle));
  if (cudaGetDevice(&own) != cudaSuccess || cudaDeviceGetByPCIBusId(&other, shared.gpu) != cudaSuccess ||
      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, own, other) != cudaSuccess || !atomics ||
      cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
    return false;
  nccl->opened.push_back(memory);
  *words = (uint4 *)memory;
  return true;
}

  #if defined(FINEPC_NCCL_DIRECT)
static __global__ void FindWords(ncclWindow_t window, uint4 **words)
{
  words[threadIdx.x] = (uint4 *)ncclGetLsaPointer(window, 0, (int)threadIdx.x);
}

/* Where the windows of all ranks are. */
static bool FindPeers(NCCL *nccl, int size)
{
  const size_t bytes = (size_t)size * sizeof(uint4 *);
  uint4      **words = nullptr;

  if (cudaMalloc(&words, bytes) != cudaSuccess) return false;
  FindWords<<<1, (unsigned)size>>>(nccl->window, words);
  const bool found =
    cudaGetLastError() == cudaSuccess && cudaMemcpy(nccl->peers.words, words, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
  (void)cudaFree(words);
  return found;
}

/* Whether each of the ranks is on this machine and its GPU can write to the others, which NCCL tells of its communicator. */
static bool AreTogether(const NCCL *nccl, int ranks, int rank)
{
  const Library          &library = TheLibrary();
  ncclDevCommRequirements needs{};
  ncclDevComm             comm{};

    #if defined(NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER)
  needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    #endif
  needs.lsaBarrierCount = 1;
  if (library.dev_comm_create(nccl->comm, &needs, &comm) != ncclSuccess) return false;
  const bool together = comm.lsaSize == ranks && comm.lsaRank == rank;
  return library.dev_comm_destroy(nccl->comm, &comm) == ncclSuccess && together;
}
  #endif

/* ------------------------------------ the communicator ---------------------------------------- */

PetscErrorCode NCCLOpen_CUDA(NCCL **nccl, char why[])
{
  int devices = 0;

  PetscFunctionBegin;
  const bool found = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  (void)cudaGetLastError(); /* that there is no driver, say */
  PetscCall(PetscStrncpy(why, found ? TheLibrary().Why() : "ranks have no GPU", kNCCLText));
  if (!*why) *nccl = new NCCL();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLMakeId_CUDA(char id[], char why[])
{
  ncclUniqueId made;

  PetscFunctionBegin;
  const ncclResult_t result = TheLibrary().get_unique_id(&made);
  if (result != ncclSuccess) Describe_NCCL(result, nullptr, why);
  else std::memcpy(id, made.internal, kNCCLId);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static ncclResult_t InitRank(const ncclUniqueId &id, int size, int rank, ncclComm_t *comm)
{
  const Library &library = TheLibrary();

  #if defined(FINEPC_NCCL_CONFIG)
  if (library.version >= kConfigVersion && library.comm_init_rank_config) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs      = kMostBlocks;
    return library.comm_init_rank_config(comm, size, id, rank, &config);
  }
  #endif
  return library.comm_init_rank(comm, size, id, rank);
}

PetscErrorCode NCCLHasWindows_CUDA(PetscBool *has)
{
  PetscFunctionBegin;
  *has = PETSC_FALSE;
  #if defined(FINEPC_NCCL_DIRECT)
  const Library &library = TheLibrary();
  *has = (PetscBool)(library.version == NCCL_VERSION_CODE && library.mem_alloc && library.mem_free && library.window_register &&
                     library.window_deregister && library.dev_comm_create && library.dev_comm_destroy);
  #endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLCreate_CUDA(const char id[], PetscMPIInt size, PetscMPIInt rank, NCCLSharing sharing, NCCL *nccl,
                               PetscBool *memory, char why[])
{
  ncclUniqueId common;

  PetscFunctionBegin;
  PetscCall(PetscOptionsGetReal(nullptr, nullptr, "-finepc_wait_limit", &nccl->limit, nullptr));
  std::memcpy(common.internal, id, kNCCLId);
  const ncclResult_t result = InitRank(common, size, rank, &nccl->comm);
  if (result != ncclSuccess) {
    Describe_NCCL(result, nullptr, why);
    nccl->comm = nullptr; /* a communicator that was not made is not destroyed */
    (void)cudaGetLastError();
  } else if (!AllocatePeers(nccl, sharing, size))
    PetscCall(PetscStrncpy(why, "the GPU has no memory left for sums over ranks", kNCCLText));
  *memory = (PetscBool)(nccl->memory != nullptr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLRegister_CUDA(NCCL *nccl, [[maybe_unused]] PetscMPIInt size, NCCLShared *shared, PetscBool *done)
{
  PetscFunctionBegin;
  *done = PETSC_FALSE;
  #if defined(FINEPC_NCCL_DIRECT)
  if (nccl->sharing == NCCL_SHARES_WINDOWS)
    *done = (PetscBool)(TheLibrary().window_register(nccl->comm, nccl->memory, PeerBytes(size), &nccl->window,
                                                     NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess &&
                        nccl->window);
  #endif
  if (nccl->sharing == NCCL_SHARES_IPC) {
    PetscCall(NCCLDeviceName_CUDA(shared->gpu, sizeof(shared->gpu)));
    *done = (PetscBool)(cudaIpcGetMemHandle((cudaIpcMemHandle_t *)shared->memory, nccl->memory) == cudaSuccess);
  }
  (void)cudaGetLastError();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLConnect_CUDA(NCCL *nccl, PetscMPIInt size, PetscMPIInt rank, const NCCLShared shared[], PetscBool *done)
{
  RankPeers *const peers = &nccl->peers;

  PetscFunctionBegin;
  *done = PETSC_FALSE;
  #if defined(FINEPC_NCCL_DIRECT)
  if (nccl->sharing == NCCL_SHARES_WINDOWS && AreTogether(nccl, size, rank)) *done = (PetscBool)FindPeers(nccl, size);
  #endif
  if (nccl->sharing == NCCL_SHARES_IPC) {
    *done = PETSC_TRUE;
    for (PetscMPIInt r = 0; r < size && *done; r++) {
      if (r == rank) peers->words[r] = (uint4 *)nccl->memory;
      else *done = (PetscBool)OpenPeer(nccl, shared[r], &peers->words[r]);
    }
  }
  (void)cudaGetLastError();
  if (!*done) PetscFunctionReturn(PETSC_SUCCESS);
  peers->ranks = size;
  peers->rank  = rank;
  peers->own   = (uint4 *)nccl->memory;
  peers->turn  = (unsigned *)(peers->own + PeerWords(size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Memory that is shared by IPC lives until NCCLDestroy_CUDA(), since the others may still have it open. */
PetscErrorCode NCCLDisconnect_CUDA(NCCL *nccl)
{
  PetscFunctionBegin;
  nccl->peers = RankPeers{};
  for (void *memory : nccl->opened) (void)cudaIpcCloseMemHandle(memory);
  nccl->opened.clear();
  (void)cudaGetLastError(); /* the program may have reset the device */
  #if defined(FINEPC_NCCL_DIRECT)
  const Library &library = TheLibrary();

  if (nccl->sharing != NCCL_SHARES_WINDOWS) PetscFunctionReturn(PETSC_SUCCESS);
  if (nccl->window) PetscCall(Check_NCCL(library.window_deregister(nccl->comm, nccl->window), nccl));
  nccl->window = nullptr;
  if (nccl->memory) PetscCall(Check_NCCL(library.mem_free(nccl->memory), nccl));
  nccl->memory = nullptr;
  #endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLDestroy_CUDA(NCCL **nccl, PetscBool all)
{
  PetscFunctionBegin;
  if (!*nccl) PetscFunctionReturn(PETSC_SUCCESS);
  if (!(*nccl)->held) {
    const bool ipc = (*nccl)->sharing == NCCL_SHARES_IPC, window = !ipc && (*nccl)->peers.ranks;
    if (ipc || ((*nccl)->comm && (all || !window))) PetscCall(NCCLDisconnect_CUDA(*nccl));
    if ((*nccl)->comm) PetscCall(Check_NCCL((all ? TheLibrary().comm_destroy : TheLibrary().comm_abort)((*nccl)->comm), *nccl));
    if (ipc && (*nccl)->comm && all) (void)cudaFree((*nccl)->memory); /* the others, too, have closed it, unless one has failed */
    (void)cudaGetLastError();
    delete *nccl;
  }
  *nccl = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLVersion_CUDA(const NCCL *, char version[], size_t length)
{
  const int code = TheLibrary().version; /* as NCCL_VERSION() makes it from 2.9 on */

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(version, length, "%d.%d.%d", code / 10000, code / 100 % 100, code % 100));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void NCCLHold(NCCL *nccl)
{
  nccl->held++;
}

void NCCLRelease(NCCL *nccl)
{
  nccl->held--;
}

/* --------------------------------------- operations ------------------------------------------- */

const RankPeers *NCCLPeers(const NCCL *nccl)
{
  return nccl->peers.ranks ? &nccl->peers : nullptr;
}

PetscErrorCode NCCLTakeSlots(NCCL *nccl, size_t count, LocalInt *first)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  *first = nccl->peers.ranks ? nccl->slots.Take(nccl->peers.ranks, count) : -1;
  if (*first < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(nccl->peers.own + *first, 0, count * sizeof(uint4), stream));
  PetscCallCUDA(cudaStreamSynchronize(stream)); /* before another rank gets to know of them */
  PetscFunctionReturn(PETSC_SUCCESS);
}

void NCCLGiveSlots(NCCL *nccl, LocalInt begin)
{
  nccl->slots.Give(begin);
}

/* By one block, a thread for each number. */
static __global__ void __launch_bounds__(kPeerSums) SumNumbers(RankPeers peers, const double *from, double *to, int count)
{
  const unsigned turn = *peers.turn;
  const int      k    = (int)threadIdx.x;
  if (k < count) {
    double x[1] = {from[k]};
    AddOverRanks(peers, turn, k, x);
    to[k] = x[0];
  }
  __syncthreads();
  if (k == 0) *peers.turn = turn + 1;
}

PetscErrorCode NCCLSum(NCCL *nccl, const double *from, double *to, int count, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(CheckAlive(nccl));
  if (nccl->peers.ranks && count <= kPeerSums) {
    SumNumbers<<<1, (unsigned)((count + kWarpSize - 1) / kWarpSize * kWarpSize), 0, stream>>>(nccl->peers, from, to, count);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(Check_NCCL(TheLibrary().all_reduce(from, to, (size_t)count, ncclDouble, ncclSum, nccl->comm, stream), nccl));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLExchange(NCCL *nccl, const std::vector<Neighbours::Part> &to, const void *packed,
                            const std::vector<Neighbours::Part> &from, void *received, size_t bytes, cudaStream_t stream)
{
  const Library &library = TheLibrary();
  ncclResult_t   result  = ncclSuccess;

  PetscFunctionBegin;
  PetscCall(CheckAlive(nccl));
  PetscCall(Check_NCCL(library.group_start(), nccl));
  for (const Neighbours::Part &part : from)
    if (result == ncclSuccess)
      result = library.recv((char *)received + part.begin * bytes, (part.end - part.begin) * bytes, ncclChar, part.rank, nccl->comm,
                            stream);
  for (const Neighbours::Part &part : to)
    if (result == ncclSuccess)
      result = library.send((const char *)packed + part.begin * bytes, (part.end - part.begin) * bytes, ncclChar, part.rank,
                            nccl->comm, stream);
  const ncclResult_t ended = library.group_end(); /* a group ends also where one of its calls has failed */
  PetscCall(Check_NCCL(result, nccl));
  PetscCall(Check_NCCL(ended, nccl));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLDeliver_CUDA(NCCL *nccl, const std::vector<NCCLMessages> &arrays)
{
  PetscErrorCode code = PETSC_SUCCESS;
  cudaStream_t   stream;

  PetscFunctionBegin;
  PetscCall(CheckAlive(nccl));
  PetscCall(DeviceGetStream(&stream));
  PetscCall(Check_NCCL(TheLibrary().group_start(), nccl));
  for (const NCCLMessages &array : arrays)
    if (!code) code = NCCLExchange(nccl, array.to, array.sent, array.from, array.received, array.bytes, stream);
  const ncclResult_t ended = TheLibrary().group_end();
  PetscCall(code);
  PetscCall(Check_NCCL(ended, nccl));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ranks whose last sum over ranks is older than that of others, who wait for them; of two ranks the other one. */
static PetscErrorCode NameMissing(const RankPeers &peers, std::string *names)
{
  std::vector<uint4>    words(PeerSumWords(peers.ranks));
  std::vector<unsigned> last(peers.ranks, 0);
  cudaStream_t          stream;

  PetscFunctionBegin;
  PetscCallCUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  PetscCallCUDA(cudaMemcpyAsync(words.data(), peers.own, words.size() * sizeof(uint4), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscCallCUDA(cudaStreamDestroy(stream));
  for (size_t k = 0; k < words.size(); k++) {
    unsigned &of = last[k / kPeerSums % peers.ranks];
    of           = std::max(of, words[k].y);
  }
  const unsigned oldest = *std::min_element(last.begin(), last.end());
  if (peers.ranks > 2 && oldest == *std::max_element(last.begin(), last.end())) PetscFunctionReturn(PETSC_SUCCESS);
  for (int rank = 0; rank < peers.ranks; rank++)
    if (last[rank] == oldest && rank != peers.rank) *names += (names->empty() ? "rank " : ", rank ") + std::to_string(rank);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   NCCL ends its kernels at once then, but in the same call it waits for graphs that have operations of the communicator, which
   their solver destroys later: so that another thread makes the call.
*/
static PetscErrorCode Abort_NCCL(NCCL *nccl)
{
  int device;

  PetscFunctionBegin;
  PetscCallCUDA(cudaGetDevice(&device));
  try {
    std::thread([comm = nccl->comm, device] {
      (void)cudaSetDevice(device);
      (void)TheLibrary().comm_abort(comm);
    }).detach();
  } catch (const std::exception &) { /* there may be no more threads */
  }
  nccl->comm = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Ends what waits for another rank, and the communicator with it. */
static PetscErrorCode GiveUp(NCCL *nccl, std::string *missing)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (nccl->peers.ranks) {
    PetscCall(NameMissing(nccl->peers, missing));
    PetscCall(GiveUpWords(nccl->peers.own, PeerWords(nccl->peers.ranks), stream)); /* while the others' memory can be written to */
  }
  PetscCall(Abort_NCCL(nccl));
  PetscCall(AwaitStream(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLCheck_CUDA(NCCL *nccl, double waited)
{
  ncclResult_t result = ncclSuccess;
  char         text[kNCCLText];
  std::string  missing;

  PetscFunctionBegin;
  PetscCall(CheckAlive(nccl));
  if (nccl->limit > 0 && waited > nccl->limit) {
    PetscCall(GiveUp(nccl, &missing));
    SETERRQ(PETSC_COMM_SELF, PETSC_ERR_GPU,
            "The GPU of another rank has not answered for %g seconds%s%s. It may have met an error, or may be busy: "
            "-finepc_wait_limit sets the seconds, 0 to wait for any time",
            (double)nccl->limit, missing.empty() ? "" : ", that of ", missing.c_str());
  }
  const ncclResult_t asked = TheLibrary().comm_get_async_error(nccl->comm, &result);
  if (asked != ncclSuccess) result = asked;
  if (result == ncclSuccess || result == ncclInProgress) PetscFunctionReturn(PETSC_SUCCESS);
  Describe_NCCL(result, nccl->comm, text);
  PetscCall(GiveUp(nccl, &missing));
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_GPU, "An exchange between ranks has failed. %s", text);
}

#else

/* Of a build without NCCL's header; cmake/stubs.cmake writes the other functions. */

PetscErrorCode NCCLOpen_CUDA(NCCL **, char why[])
{
  PetscFunctionBegin;
  PetscCall(PetscStrncpy(why, "this finepc was built without NCCL", kNCCLText));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLTakeSlots(NCCL *, size_t, LocalInt *first)
{
  PetscFunctionBegin;
  *first = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif
