/*
   Runs the threads of a kernel on the host, one block after the other. The threads of a block are fibers: each has a stack of its
   own and runs until it waits for others, at a barrier of the block or in a function of the warp, or ends.

   What is checked beside the results: that the lanes of a mask meet in the same function, and that nobody waits for ever; that the
   host does not use memory of the device, with the sanitizer of addresses; that nothing is read that was not written, as far as
   memory full of NaN shows it. Blocks, and the threads of a block, run in the order that FINEPC_EMULATOR_ORDER names: forward,
   reverse, or random:SEED.

   Copies into shared memory come when they are waited for (bulk.cuh), not before.

   What cannot be seen: anything about time and caches, kernels that begin before the one ahead has ended, accesses to memory in
   another order than that of the program, fused products and sums, and limits of registers.
*/
#pragma once

#include <cstddef>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) { }
};
typedef struct CUstream_st *cudaStream_t;

namespace emulator
{

constexpr int kLanes = 32;

struct Shape {
  dim3   grid, block;
  size_t shared;
  Shape(dim3 grid_, dim3 block_, size_t shared_ = 0, cudaStream_t = nullptr) : grid(grid_), block(block_), shared(shared_) { }
};

/* Calls thread(what) for each thread of the grid. */
void Run(const Shape &, void (*thread)(const void *), const void *argument);
template <typename Thread>
void Launch(const Shape &shape, const Thread &thread)
{
  Run(shape, [](const void *argument) { (*(const Thread *)argument)(); }, &thread);
}

/* A static variable holds what the block shares; at the first call in a block its content is lost. */
void  Shared(void *, size_t);
void *DynamicShared();

/* What the lanes of a warp brought to a function. */
struct Brought {
  alignas(16) unsigned char value[kLanes][16];
  unsigned lanes; /* that took part */
};
/* Waits until all lanes of the mask that have not ended have come to this function. */
const Brought &Meet(const char *function, unsigned mask, const void *value, size_t);
/* Waits for all threads of the block that have not ended; returns for how many of them `is` was true, and how many they are. */
struct Count {
  int yes, all;
};
Count MeetBlock(const char *function, bool is);
int   Lane();

/* Lets all other threads run, for one that waits for what another one is going to do. */
void GiveWay();

/* A mistake of a kernel: an error that says where all threads are. */
[[noreturn]] void Fail(const char *text);

/* An instruction that a kernel writes itself, which the emulator does not know: an error. */
[[noreturn]] void Assembly(const char *text);

/* Memory of the device, which the host may use in these functions alone. */
int    Allocate(void **, size_t); /* 0, or an error */
int    Free(void *);
bool   IsOnDevice(const void *);
void   Copy(void *to, const void *from, size_t); /* by several threads, too */
void   Set(void *, int, size_t);
size_t BytesInUse();

/* What a program that asks is told that the device has left. The machine's memory is not looked at: an allocation that fails tells.
 */
size_t BytesLeft();
/* For a scope, the device says that it has so many bytes left, whatever it gives. */
struct Left {
  explicit Left(size_t bytes);
  ~Left();
  Left(const Left &)            = delete;
  Left &operator=(const Left &) = delete;
};

/* For a scope, the host may use memory of the device. */
struct Opened {
  Opened();
  ~Opened();
};

} // namespace emulator
