/*
   Large copies between pageable memory of the host and the GPU. What cudaMemcpy() does with such memory, a copy by way of pinned
   memory, is done here by several threads: one alone copies more slowly than the bus takes it.
*/
#include <petsctime.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "launch.cuh"
#include "sparse/transfer.cuh"

namespace
{

constexpr size_t kPiece       = 1 << 20; /* bytes */
constexpr int    kMostThreads = 8;
constexpr int    kSlots       = 2; /* pieces of a thread: one is copied by the host while the other travels */

/* Pinned memory for the pieces, made by the first large copy and kept until the end. */
struct Pieces {
  char       *memory = nullptr;
  cudaEvent_t done[kMostThreads * kSlots]{}; /* the piece may be used again */
  cudaEvent_t turn   = nullptr;              /* what one stream waits for in another */
  int         device = -1;                   /* to which the events belong */
  bool        failed = false;                /* there was no memory for it */

  cudaStream_t aside = nullptr; /* of a copy beside the stream */
  bool         begun = false;   /* such a copy has not been waited for */
} pieces;

/* What PinnedGive() has kept */
struct Spare {
  size_t bytes  = 0;
  void  *memory = nullptr;
};
Spare spares[kPinnedMost];

/* What SmallRead() reads, and behind it the number of the read that is there. */
constexpr size_t kPage       = 4096;
char            *page        = nullptr;
bool             page_failed = false;
unsigned         reads       = 0;
constexpr double kSpin       = 1e-3; /* seconds that the host looks for it, before it waits as CUDA has it */

/* The processors that this process may use; those of other ranks are theirs where ranks are bound. */
int Threads_Transfer()
{
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) ? 1 : std::clamp(CPU_COUNT(&set), 1, kMostThreads);
}

PetscErrorCode MakePieces()
{
  PetscFunctionBegin;
  if (pieces.memory || pieces.failed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallCUDA(cudaGetDevice(&pieces.device));
  for (cudaEvent_t &event : pieces.done)
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) pieces.failed = true;
  if (cudaEventCreateWithFlags(&pieces.turn, cudaEventDisableTiming) != cudaSuccess ||
      cudaStreamCreateWithFlags(&pieces.aside, cudaStreamNonBlocking) != cudaSuccess)
    pieces.failed = true;
  if (!pieces.failed && cudaMallocHost((void **)&pieces.memory, kMostThreads * kSlots * kPiece) != cudaSuccess)
    pieces.failed = true;
  if (!pieces.failed) PetscFunctionReturn(PETSC_SUCCESS);
  pieces.memory = nullptr;
  (void)cudaGetLastError();
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Transfer {
  ArrayTask    task[kArrayTasks];
  int          tasks;
  bool         to_device;
  cudaStream_t stream;
  int          device;
  int          first, threads; /* the threads that make the copy, the caller being number 0 */

  static size_t PiecesOf(const ArrayTask &array) { return (array.bytes + kPiece - 1) / kPiece; }

  size_t Count() const
  {
    size_t count = 0;
    for (int k = 0; k < tasks; k++) count += PiecesOf(task[k]);
    return count;
  }
  ArrayTask Piece(size_t k) const
  {
    const ArrayTask *array = task;
    for (; k >= PiecesOf(*array); array++) k -= PiecesOf(*array);
    return {(char *)array->to + k * kPiece, (const char *)array->from + k * kPiece, std::min(kPiece, array->bytes - k * kPiece)};
  }
  char *Pinned(int slot) const { return pieces.memory + slot * kPiece; }

  cudaError_t Travel(const ArrayTask &piece, int slot) const
  {
    const auto error = to_device ? cudaMemcpyAsync(piece.to, Pinned(slot), piece.bytes, cudaMemcpyHostToDevice, stream)
                                 : cudaMemcpyAsync(Pinned(slot), piece.from, piece.bytes, cudaMemcpyDeviceToHost, stream);
    return error ? error : cudaEventRecord(pieces.done[slot], stream);
  }
  cudaError_t Send(size_t k, int slot) const
  {
    const ArrayTask   piece = Piece(k);
    const cudaError_t error = cudaEventSynchronize(pieces.done[slot]);
    if (error) return error;
    std::memcpy(Pinned(slot), piece.from, piece.bytes);
    return Travel(piece, slot);
  }
  cudaError_t Receive(size_t k, int slot) const
  {
    const ArrayTask   piece = Piece(k);
    const cudaError_t error = cudaEventSynchronize(pieces.done[slot]);
    if (!error) std::memcpy(piece.to, Pinned(slot), piece.bytes);
    return error;
  }

  /* Every threads-th piece, from that of this number. */
  cudaError_t Run(int thread) const
  {
    cudaError_t  error = cudaSetDevice(device);
    const size_t count = Count(), stride = threads;
    const auto   slot = [thread](size_t n) { return thread * kSlots + (int)(n % kSlots); };

    if (to_device) {
      for (size_t k = thread, n = 0; k < count && !error; k += stride, n++) error = Send(k, slot(n));
      return error;
    }
    for (size_t n = 0; n < kSlots && thread + n * stride < count && !error; n++) {
      error = cudaEventSynchronize(pieces.done[slot(n)]);
      if (!error) error = Travel(Piece(thread + n * stride), slot(n));
    }
    for (size_t k = thread, n = 0; k < count && !error; k += stride, n++) {
      error = Receive(k, slot(n));
      if (!error && k + kSlots * stride < count) error = Travel(Piece(k + kSlots * stride), slot(n));
    }
    return error;
  }
};

/* Threads that wait for the next copy, since CUDA takes longer to know a new thread than a megabyte takes to travel. */
class Crew {
public:
  ~Crew()
  {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      end_ = true;
    }
    wake_.notify_all();
    for (std::thread &thread : threads_) thread.join();
  }

  /* Makes the copy with up to so many threads, of which the caller is one. */
  cudaError_t Run(Transfer transfer, int most)
  {
    const cudaError_t before = Wait();

    transfer.first   = 0;
    transfer.threads = 1 + Hire(most - 1);
    Start(transfer, transfer.threads - 1);
    const cudaError_t error = transfer.Run(0), others = Wait();
    error_ = before; /* of a copy that has been begun: it has yet to be waited for */
    return error ? error : others;
  }
  /* Begins the copy with up to so many threads, or none. */
  bool Begin(Transfer transfer, int most)
  {
    transfer.first   = 1;
    transfer.threads = Hire(most);
    if (transfer.threads) Start(transfer, transfer.threads);
    return transfer.threads > 0;
  }
  cudaError_t Wait()
  {
    while (busy_) std::this_thread::yield();
    return error_;
  }

private:
  /* As many of so many threads as there can be */
  int Hire(int count)
  {
    while ((int)threads_.size() < count) try {
        threads_.emplace_back(&Crew::Work, this, (int)threads_.size() + 1, copies_);
      } catch (const std::exception &) { /* there may be no more threads */
        return (int)threads_.size();
      }
    return count;
  }

  void Start(const Transfer &transfer, int busy)
  {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      transfer_ = transfer;
      error_    = cudaSuccess;
      busy_     = busy;
      copies_++;
    }
    wake_.notify_all();
  }

  void Work(int thread, long long seen)
  {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return end_ || copies_ != seen; });
      if (end_) return;
      const Transfer transfer = transfer_;
      seen                    = copies_;
      if (thread - transfer.first >= transfer.threads) continue;
      lock.unlock();
      const cudaError_t error = transfer.Run(thread - transfer.first);
      lock.lock();
      if (error) error_ = error;
      busy_--;
    }
  }

  std::vector<std::thread> threads_;
  std::mutex               mutex_;
  std::condition_variable  wake_;
  Transfer                 transfer_{};
  cudaError_t              error_  = cudaSuccess;
  long long                copies_ = 0;
  std::atomic<int>         busy_{0};
  bool                     end_ = false;
};

Crew *crew = nullptr; /* made by the first large copy */

bool IsPageable(const void *host)
{
  cudaPointerAttributes attributes{};
  const cudaError_t     error = cudaPointerGetAttributes(&attributes, host);

  if (error) (void)cudaGetLastError();
  return !error && attributes.type == cudaMemoryTypeUnregistered;
}

} // namespace

/* The transfer of these arrays if it pays to make it by several threads, which there are then. */
static PetscErrorCode Plan_Transfer(int count, const ArrayTask task[], bool to_device, Transfer *transfer, bool *pays)
{
  constexpr size_t kLarge = 4 * kPiece;
  size_t           bytes  = 0;

  PetscFunctionBegin;
  *transfer           = Transfer{};
  transfer->to_device = to_device;
  *pays               = false;
  PetscAssert(count <= kArrayTasks, PETSC_COMM_SELF, PETSC_ERR_PLIB, "Too many arrays are copied together");
  for (int k = 0; k < count; k++) {
    bytes += task[k].bytes;
    if (task[k].bytes) transfer->task[transfer->tasks++] = task[k];
  }
  if (bytes < kLarge) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < transfer->tasks; k++)
    if (!IsPageable(to_device ? transfer->task[k].from : transfer->task[k].to)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MakePieces());
  PetscCallCUDA(cudaGetDevice(&transfer->device));
  if (!pieces.memory || pieces.device != transfer->device) PetscFunctionReturn(PETSC_SUCCESS);
  if (!crew) crew = new (std::nothrow) Crew;
  *pays = crew != nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArraysTransfer(int count, const ArrayTask task[], bool to_device, cudaStream_t stream, bool *done)
{
  Transfer transfer;

  PetscFunctionBegin;
  PetscCall(Plan_Transfer(count, task, to_device, &transfer, done));
  if (!*done) PetscFunctionReturn(PETSC_SUCCESS);
  transfer.stream = stream;
  PetscCallCUDA(crew->Run(transfer, (int)std::min((size_t)Threads_Transfer(), transfer.Count())));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `second` waits for what the first stream has been given. */
static PetscErrorCode Follow_Transfer(cudaStream_t first, cudaStream_t second)
{
  PetscFunctionBegin;
  PetscCallCUDA(cudaEventRecord(pieces.turn, first));
  PetscCallCUDA(cudaStreamWaitEvent(second, pieces.turn, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArraysBegin(int count, const ArrayTask task[], cudaStream_t stream, bool *begun)
{
  Transfer transfer;

  PetscFunctionBegin;
  PetscCall(ArraysAwait(stream));
  PetscCall(Plan_Transfer(count, task, true, &transfer, begun));
  if (Threads_Transfer() == 1) *begun = false; /* its threads would be in the way of the caller */
  if (!*begun) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Follow_Transfer(stream, pieces.aside)); /* the memory may have been in use before */
  transfer.stream = pieces.aside;
  *begun = pieces.begun = crew->Begin(transfer, (int)std::min((size_t)Threads_Transfer(), transfer.Count()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArraysAwait(cudaStream_t stream)
{
  PetscFunctionBegin;
  if (!pieces.begun) PetscFunctionReturn(PETSC_SUCCESS);
  pieces.begun            = false;
  const cudaError_t error = crew->Wait();
  PetscCall(Follow_Transfer(pieces.aside, stream)); /* what has been begun ends before the memory goes to somebody else */
  PetscCallCUDA(error);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies words to pinned memory of the host, and then the number of the read. */
static __global__ void __launch_bounds__(kBlockSize)
  PostWords(const unsigned *from, int count, unsigned *to, unsigned number, volatile unsigned *posted)
{
  for (int k = threadIdx.x; k < count; k += kBlockSize) to[k] = from[k];
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *posted = number;
}

PetscErrorCode SmallRead(const void *from, size_t bytes, void *to, cudaStream_t stream)
{
  constexpr size_t kWord = sizeof(unsigned);
  constexpr int    kLook = 256; /* looks between two at the clock */
  PetscLogDouble   begin, now;

  PetscFunctionBegin;
  if (!page && !page_failed && cudaMallocHost((void **)&page, kPage) != cudaSuccess) {
    page        = nullptr;
    page_failed = true;
    (void)cudaGetLastError();
  }
  if (!page || bytes > kSmallRead || bytes % kWord || (uintptr_t)from % kWord) {
    PetscCallCUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
    PetscCallCUDA(cudaStreamSynchronize(stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  volatile unsigned *const posted = (volatile unsigned *)(page + kSmallRead);
  const unsigned           number = ++reads;
  *posted                         = number - 1;
  PostWords<<<1, kBlockSize, 0, stream>>>((const unsigned *)from, (int)(bytes / kWord), (unsigned *)page, number, posted);
  FinePCCheckLaunch();
  PetscCall(PetscTime(&begin));
  for (int looks = 1; *posted != number; looks++) {
    if (looks % kLook) continue;
    PetscCall(PetscTime(&now));
    if (now - begin > kSpin) break;
  }
  if (*posted != number) PetscCallCUDA(cudaStreamSynchronize(stream)); /* tells errors of kernels, too */
  std::atomic_thread_fence(std::memory_order_acquire);
  memcpy(to, page, bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PinnedTake(size_t bytes, void **memory)
{
  PetscFunctionBegin;
  for (Spare &spare : spares) {
    if (!spare.memory || spare.bytes != bytes) continue;
    *memory = spare.memory;
    spare   = Spare{};
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallCUDA(cudaMallocHost(memory, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PinnedGive(size_t bytes, void *memory)
{
  PetscFunctionBegin;
  if (!memory) PetscFunctionReturn(PETSC_SUCCESS);
  for (Spare &spare : spares) {
    if (spare.memory) continue;
    spare = Spare{bytes, memory};
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallCUDA(cudaFreeHost(memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TransferFinalize_CUDA()
{
  PetscFunctionBegin;
  for (Spare &spare : spares) {
    if (spare.memory) (void)cudaFreeHost(spare.memory);
    (void)cudaGetLastError(); /* the program may have reset the device */
    spare = Spare{};
  }
  delete crew;
  crew = nullptr;
  if (page) (void)cudaFreeHost(page);
  (void)cudaGetLastError(); /* the program may have reset the device */
  page        = nullptr;
  page_failed = false;
  if (pieces.memory) {
    for (cudaEvent_t &event : pieces.done) (void)cudaEventDestroy(event); /* the program may have reset the device */
    (void)cudaEventDestroy(pieces.turn);
    (void)cudaStreamDestroy(pieces.aside);
    (void)cudaFreeHost(pieces.memory);
    (void)cudaGetLastError();
  }
  pieces = Pieces{};
  PetscFunctionReturn(PETSC_SUCCESS);
}
