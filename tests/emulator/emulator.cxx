/*
   The emulator: fibers, barriers, memory of the device. All that there is at a time is one kernel, and of it one block.

   A thread that waits gives the processor back to RunBlock(), which goes round the threads until all have ended. So a thread that
   waits for what a thread of another block does, without a barrier, waits for ever.
*/
#include "emulator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "cuda_runtime.h"
#include "failing.h"

#if defined(__SANITIZE_ADDRESS__)
  #include <sanitizer/asan_interface.h>
  #include <sanitizer/common_interface_defs.h>
#else
  #define __sanitizer_start_switch_fiber(from, bottom, size)  (void)0
  #define __sanitizer_finish_switch_fiber(from, bottom, size) (void)0
  #define ASAN_POISON_MEMORY_REGION(memory, bytes)            ((void)(memory), (void)(bytes))
  #define ASAN_UNPOISON_MEMORY_REGION(memory, bytes)          ((void)(memory), (void)(bytes))
#endif

uint3 threadIdx, blockIdx;
dim3  blockDim, gridDim;

/* Leaves a stack, whose pointer goes to *from, for another one. The registers that a function must keep lie on the stacks. */
extern "C" void EmulatorSwitch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n.globl EmulatorSwitch\n.hidden EmulatorSwitch\n.type EmulatorSwitch,@function\n"
    "EmulatorSwitch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size EmulatorSwitch,.-EmulatorSwitch\n");
constexpr int kKept = 6; /* registers */
#else
  #error "the emulator switches stacks on x86-64 alone"
#endif

namespace
{

using namespace emulator;

constexpr int    kMostThreads = 1024;
constexpr int    kMostWarps   = kMostThreads / kLanes;
constexpr int    kMostMasks   = kLanes; /* of a warp, at a time */
constexpr size_t kStackBytes  = 512 * 1024;
constexpr size_t kSharedBytes = 232448;

/* Where lanes of a warp, or the threads of a block, wait for each other. */
struct Meeting {
  const char   *function; /* in which the first one came */
  unsigned      mask;     /* of lanes; 0 for the block */
  unsigned      here;     /* lanes that have come */
  int           come, yes;
  unsigned long turn; /* how often it has ended */
  Count         count;
  Brought       coming, brought; /* by those who wait, and at the last end */
};

struct Thread {
  void         *stack = nullptr, *pointer = nullptr, *fake = nullptr;
  bool          begun, ended;
  Meeting      *at; /* where it waits, or null */
  unsigned long turn;
};

struct Warp {
  unsigned alive;
  int      masks;
  Meeting  meeting[kMostMasks];
};

struct Variable {
  void  *at;
  size_t bytes;
};

/* All that there is: one kernel runs at a time. */
struct Machine {
  Thread      thread[kMostThreads];
  Warp        warp[kMostWarps];
  Meeting     block;
  int         threads, alive, current;
  void       *main_pointer, *main_fake;
  const void *main_bottom;
  size_t      main_bytes;
  void (*call)(const void *);
  const void           *argument;
  std::vector<Variable> shared; /* that the block has met */
  char                 *dynamic = nullptr;
  size_t                dynamic_bytes;
  bool                  running = false;

  std::map<char *, size_t> memory; /* of the device */
  size_t                   in_use = 0, left = SIZE_MAX;
  long                     until_failure = 0; /* allocations to the one that fails, 0 if none will */
  int                      opened        = 0;

  enum { FORWARD, REVERSE, RANDOM } order = FORWARD;
  std::mt19937 random;

  Machine()
  {
    const char *given = std::getenv("FINEPC_EMULATOR_ORDER");
    if (given && !std::strcmp(given, "reverse")) order = REVERSE;
    else if (given && !std::strncmp(given, "random", 6)) {
      order = RANDOM;
      random.seed(given[6] ? (unsigned)std::atoi(given + 7) : 1u);
    } else if (given && std::strcmp(given, "forward")) {
      std::fprintf(stderr, "emulator: FINEPC_EMULATOR_ORDER is forward, reverse or random:SEED, not %s\n", given);
      std::exit(EXIT_FAILURE);
    }
    shared.reserve(64);
  }
  template <typename T>
  void Arrange(T begin, T end)
  {
    if (order == RANDOM) std::shuffle(begin, end, random);
  }
};

Machine &M()
{
  static Machine *const machine = new Machine; /* stays to the end, for memory that static objects free */
  return *machine;
}

void End(Meeting *meeting)
{
  meeting->brought       = meeting->coming;
  meeting->brought.lanes = meeting->here;
  meeting->count         = {meeting->yes, meeting->come};
  meeting->here          = 0;
  meeting->come = meeting->yes = 0;
  meeting->turn++;
}

void EndIfAllAreHere(Meeting *meeting, unsigned alive)
{
  if (meeting->come && !(meeting->mask & alive & ~meeting->here)) End(meeting);
}

void EndBlockIfAllAreHere()
{
  if (M().block.come && M().block.come == M().alive) End(&M().block);
}

void Yield()
{
  Thread &thread = M().thread[M().current];
  __sanitizer_start_switch_fiber(&thread.fake, M().main_bottom, M().main_bytes);
  EmulatorSwitch(&thread.pointer, M().main_pointer);
  __sanitizer_finish_switch_fiber(thread.fake, &M().main_bottom, &M().main_bytes);
}

void Wait(Meeting *meeting, unsigned long turn)
{
  Thread &thread = M().thread[M().current];
  if (meeting->turn != turn) return;
  thread.at   = meeting;
  thread.turn = turn;
  Yield();
  thread.at = nullptr;
}

/* The first function on the stack of a thread. */
void Begin()
{
  __sanitizer_finish_switch_fiber(nullptr, &M().main_bottom, &M().main_bytes);
  M().call(M().argument);
  Thread &thread = M().thread[M().current];
  Warp   &warp   = M().warp[M().current / kLanes];
  thread.ended   = true;
  warp.alive &= ~(1u << M().current % kLanes);
  M().alive--;
  for (int k = 0; k < warp.masks; k++) EndIfAllAreHere(&warp.meeting[k], warp.alive);
  EndBlockIfAllAreHere();
  __sanitizer_start_switch_fiber(nullptr, M().main_bottom, M().main_bytes);
  EmulatorSwitch(&thread.pointer, M().main_pointer);
}

void Resume(int t)
{
  Thread &thread = M().thread[t];
  M().current    = t;
  threadIdx      = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
  if (!thread.begun) {
    thread.begun = true;
    if (!thread.stack) {
      thread.stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (thread.stack == MAP_FAILED) Fail("no memory for a stack");
      (void)mprotect(thread.stack, 4096, PROT_NONE); /* whoever needs more stack ends there */
    }
    void **top = (void **)((char *)thread.stack + kStackBytes) - 1;
    *--top     = (void *)Begin; /* after the return address the stack is as after a call */
    for (int k = 0; k < kKept; k++) *--top = nullptr;
    thread.pointer = top;
  }
  __sanitizer_start_switch_fiber(&M().main_fake, thread.stack, kStackBytes);
  EmulatorSwitch(&M().main_pointer, thread.pointer);
  __sanitizer_finish_switch_fiber(M().main_fake, nullptr, nullptr);
}

void RunBlock()
{
  static int order[kMostThreads];
  M().alive = M().threads = (int)(blockDim.x * blockDim.y * blockDim.z);
  if (M().threads < 1 || M().threads > kMostThreads) Fail("a block has 1 to 1024 threads");
  M().block = Meeting{};
  M().shared.clear();
  std::memset(M().dynamic, 0xff, M().dynamic_bytes);
  for (int w = 0; w * kLanes < M().threads; w++) {
    const int lanes   = std::min(kLanes, M().threads - w * kLanes);
    M().warp[w].alive = lanes == kLanes ? 0xffffffffu : (1u << lanes) - 1u;
    M().warp[w].masks = 0;
  }
  for (int t = 0; t < M().threads; t++) {
    M().thread[t].begun = M().thread[t].ended = false;
    M().thread[t].at                          = nullptr;
    order[t]                                  = M().order == Machine::REVERSE ? M().threads - 1 - t : t;
  }
  while (M().alive) {
    bool moved = false;
    M().Arrange(order, order + M().threads);
    for (int k = 0; k < M().threads; k++) {
      const Thread &thread = M().thread[order[k]];
      if (thread.ended || (thread.at && thread.at->turn == thread.turn)) continue;
      Resume(order[k]);
      moved = true;
    }
    if (!moved) Fail("threads wait for ever");
  }
}

void OpenMemory(bool open)
{
  for (const auto &piece : M().memory) {
    if (open) ASAN_UNPOISON_MEMORY_REGION(piece.first, piece.second);
    else ASAN_POISON_MEMORY_REGION(piece.first, piece.second);
  }
}

} // namespace

namespace emulator
{

Opened::Opened()
{
  if (!M().opened++) OpenMemory(true);
}
Opened::~Opened()
{
  if (!--M().opened) OpenMemory(false);
}

void Run(const Shape &shape, void (*thread)(const void *), const void *argument)
{
  const Opened             opened;
  const unsigned long long blocks = (unsigned long long)shape.grid.x * shape.grid.y * shape.grid.z;
  static std::vector<char> memory(kSharedBytes + 16);
  if (M().running) Fail("a kernel launches a kernel");
  if (!blocks) Fail("a grid without blocks");
  if (shape.shared > kSharedBytes) Fail("more shared memory than a block has");
  M().running       = true;
  M().call          = thread;
  M().argument      = argument;
  M().dynamic       = (char *)(((uintptr_t)memory.data() + 15) / 16 * 16);
  M().dynamic_bytes = shape.shared;
  ASAN_UNPOISON_MEMORY_REGION(M().dynamic, kSharedBytes);
  ASAN_POISON_MEMORY_REGION(M().dynamic + shape.shared, kSharedBytes - shape.shared);
  gridDim  = shape.grid;
  blockDim = shape.block;
  /* blocks in any order: b times an odd number plus another one, modulo a power of two, leaving out what is too large */
  unsigned long long size = 1, factor = 1, offset = 0;
  while (size < blocks) size *= 2;
  if (M().order == Machine::RANDOM) {
    factor = M().random() | 1u;
    offset = M().random();
  }
  for (unsigned long long k = 0; k < size; k++) {
    unsigned long long b = (k * factor + offset) & (size - 1);
    if (b >= blocks) continue;
    if (M().order == Machine::REVERSE) b = blocks - 1 - b;
    blockIdx = {(unsigned)(b % shape.grid.x), (unsigned)(b / shape.grid.x % shape.grid.y),
                (unsigned)(b / shape.grid.x / shape.grid.y)};
    RunBlock();
  }
  M().running = false;
}

void Shared(void *at, size_t bytes)
{
  for (const Variable &known : M().shared)
    if (known.at == at) return;
  M().shared.push_back({at, bytes});
  std::memset(at, 0xff, bytes);
}

void *DynamicShared()
{
  return M().dynamic;
}

int Lane()
{
  return M().current % kLanes;
}

void GiveWay()
{
  Yield();
}

void Fail(const char *text)
{
  std::fprintf(stderr, "emulator: %s: thread (%u, %u, %u) of block (%u, %u, %u)\n", text, threadIdx.x, threadIdx.y, threadIdx.z,
               blockIdx.x, blockIdx.y, blockIdx.z);
  for (int t = 0; t < M().threads; t++) {
    const Thread &thread = M().thread[t];
    if (thread.at) std::fprintf(stderr, "  thread %d waits in %s, mask %08x\n", t, thread.at->function, thread.at->mask);
    else std::fprintf(stderr, "  thread %d %s\n", t, thread.ended ? "has ended" : "runs");
  }
  std::abort();
}

const Brought &Meet(const char *function, unsigned mask, const void *value, size_t bytes)
{
  Warp     &warp = M().warp[M().current / kLanes];
  const int lane = Lane();
  int       k    = 0;
  if (!(mask >> lane & 1)) Fail("a lane is not in its own mask");
  while (k < warp.masks && warp.meeting[k].mask != mask) k++;
  if (k == kMostMasks) Fail("too many masks");
  if (k == warp.masks) {
    warp.masks++;
    warp.meeting[k].mask = mask;
    warp.meeting[k].here = 0;
    warp.meeting[k].come = warp.meeting[k].yes = 0;
    warp.meeting[k].turn                       = 0;
  }
  Meeting &meeting = warp.meeting[k];
  if (!meeting.come) meeting.function = function;
  else if (std::strcmp(meeting.function, function)) Fail("lanes meet in different functions");
  const unsigned long turn = meeting.turn;
  meeting.here |= 1u << lane;
  meeting.come++;
  if (bytes) std::memcpy(meeting.coming.value[lane], value, bytes);
  EndIfAllAreHere(&meeting, warp.alive);
  Wait(&meeting, turn);
  return meeting.brought;
}

Count MeetBlock(const char *function, bool is)
{
  Meeting &meeting = M().block;
  if (!meeting.come) meeting.function = function;
  else if (std::strcmp(meeting.function, function)) Fail("threads meet in different functions");
  const unsigned long turn = meeting.turn;
  meeting.come++;
  meeting.yes += is;
  EndBlockIfAllAreHere();
  Wait(&meeting, turn);
  return meeting.count;
}

void Assembly(const char *text)
{
  std::fprintf(stderr, "emulator: the instruction %s is not known\n", text);
  Fail("an instruction in");
}

int Allocate(void **memory, size_t bytes)
{
  if (M().until_failure && !--M().until_failure) return cudaErrorMemoryAllocation;
  if (posix_memalign(memory, 256, bytes)) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xff, bytes);
  try {
    M().memory[(char *)*memory] = bytes;
  } catch (const std::bad_alloc &) { /* in a test that has memory end */
    std::free(*memory);
    *memory = nullptr;
    return cudaErrorMemoryAllocation;
  }
  M().in_use += bytes;
  if (!M().opened) ASAN_POISON_MEMORY_REGION(*memory, bytes);
  return cudaSuccess;
}

int Free(void *memory)
{
  if (!memory) return cudaSuccess;
  const auto found = M().memory.find((char *)memory);
  if (found == M().memory.end()) return cudaErrorInvalidValue;
  ASAN_UNPOISON_MEMORY_REGION(found->first, found->second);
  M().in_use -= found->second;
  M().memory.erase(found);
  std::free(memory);
  return cudaSuccess;
}

bool IsOnDevice(const void *at)
{
  const auto next = M().memory.upper_bound((char *)at);
  if (next == M().memory.begin()) return false;
  const auto found = std::prev(next);
  return (const char *)at < found->first + found->second;
}

void Copy(void *to, const void *from, size_t bytes)
{
  static std::mutex one;

  const std::lock_guard<std::mutex> lock(one);
  const Opened                      opened;
  std::memmove(to, from, bytes);
}

void Set(void *memory, int value, size_t bytes)
{
  const Opened opened;
  std::memset(memory, value, bytes);
}

size_t BytesInUse()
{
  return M().in_use;
}

size_t BytesLeft()
{
  return M().left;
}

Left::Left(size_t bytes)
{
  M().left = bytes;
}
Left::~Left()
{
  M().left = SIZE_MAX;
}

FailingAllocation::FailingAllocation(long n)
{
  M().until_failure = n;
}
FailingAllocation::~FailingAllocation()
{
  M().until_failure = 0;
}
bool FailingAllocation::Failed() const
{
  return !M().until_failure;
}

} // namespace emulator
