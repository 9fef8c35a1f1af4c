/*
   What a program asks of CUDA: a library to be loaded before it by LD_PRELOAD, which takes the place of some functions of
   libcudart.so and calls them. With FINEPC_TRACE=FILE it writes for each kernel, and for each instance of a template, whether it
   has been launched, to FILE.<process>: "launched NAME" or "never NAME". FinePCTracedDeviceBytes() says how much memory of the GPU
   the program has allocated and not freed.

   CUDA's own libraries have CUDA inside of them, and are not seen.
*/
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <unistd.h>

#define VISIBLE extern "C" __attribute__((visibility("default")))

namespace
{

struct Kernel {
  std::string name;
  bool        launched = false;
};

/* Memory without new, which fails on purpose in some tests and is counted there. */
template <typename T>
struct Unseen {
  using value_type = T;
  Unseen()         = default;
  template <typename U>
  Unseen(const Unseen<U> &)
  {
  }
  T *allocate(std::size_t count)
  {
    if (void *memory = std::malloc(count * sizeof(T))) return (T *)memory;
    std::abort();
  }
  void deallocate(T *memory, std::size_t) { std::free(memory); }
  template <typename U>
  bool operator==(const Unseen<U> &) const
  {
    return true;
  }
  template <typename U>
  bool operator!=(const Unseen<U> &) const
  {
    return false;
  }
};

template <typename Value>
using ByAddress = std::map<const void *, Value, std::less<const void *>, Unseen<std::pair<const void *const, Value>>>;

struct Trace {
  std::mutex        mutex;
  ByAddress<Kernel> kernels; /* by the function that stands for one on the host */
  ByAddress<size_t> blocks;
  double            bytes = 0;
};

/* Kernels are registered before the objects of this file are there, and freed after their end. */
Trace &TheTrace()
{
  static Trace *const trace = new Trace;
  return *trace;
}

template <typename Function>
Function *Original(Function *, const char *name)
{
  void *const found = dlsym(RTLD_NEXT, name);
  if (found) return (Function *)found;
  std::fprintf(stderr, "finepc_trace: there is no %s\n", name);
  std::abort();
}
#define ORIGINAL(name) static auto *const original = Original(&name, #name)

void Write()
{
  const char *const file = std::getenv("FINEPC_TRACE");
  Trace            &t    = TheTrace();
  if (!file || t.kernels.empty()) return;
  FILE *const out = std::fopen((std::string(file) + "." + std::to_string(getpid())).c_str(), "w");
  if (!out) return;
  for (const auto &[function, kernel] : t.kernels) {
    Dl_info     module;
    int         status;
    const char *where = dladdr(function, &module) && module.dli_fname ? module.dli_fname : "?";
    char *const name  = abi::__cxa_demangle(kernel.name.c_str(), nullptr, nullptr, &status);
    if (std::strrchr(where, '/')) where = std::strrchr(where, '/') + 1;
    std::fprintf(out, "%s %s %s\n", kernel.launched ? "launched" : "never", where, name ? name : kernel.name.c_str());
    std::free(name);
  }
  std::fclose(out);
}

void Launched(const void *function)
{
  Trace                            &t = TheTrace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  const auto                        found = t.kernels.find(function);
  if (found != t.kernels.end()) found->second.launched = true;
}

void Allocated(int error, void **memory, size_t bytes)
{
  if (error) return;
  Trace                            &t = TheTrace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  t.blocks[*memory] = bytes;
  t.bytes += (double)bytes;
}

void Freed(const void *memory)
{
  Trace                            &t = TheTrace();
  const std::lock_guard<std::mutex> lock(t.mutex);
  const auto                        found = t.blocks.find(memory);
  if (found == t.blocks.end()) return;
  t.bytes -= (double)found->second;
  t.blocks.erase(found);
}

struct Dimensions {
  unsigned x, y, z;
};

} // namespace

VISIBLE double FinePCTracedDeviceBytes()
{
  return TheTrace().bytes;
}

/* As in CUDA's own headers, with pointers that say nothing about what they point to. */
VISIBLE void __cudaRegisterFunction(void **binary, const char *function, char *device_function, const char *name, int thread_limit,
                                    void *thread, void *block, void *block_size, void *grid_size, int *warp_size)
{
  ORIGINAL(__cudaRegisterFunction);
  static const int at_exit = std::atexit(Write);
  (void)at_exit;
  {
    Trace                            &t = TheTrace();
    const std::lock_guard<std::mutex> lock(t.mutex);
    t.kernels[function].name = name;
  }
  original(binary, function, device_function, name, thread_limit, thread, block, block_size, grid_size, warp_size);
}

/* What a launch by name and numbers of blocks and threads asks for first. */
VISIBLE int __cudaGetKernel(void **kernel, const void *function)
{
  ORIGINAL(__cudaGetKernel);
  Launched(function);
  return original(kernel, function);
}

VISIBLE int cudaLaunchKernel(const void *function, Dimensions grid, Dimensions block, void **arguments, size_t shared, void *stream)
{
  ORIGINAL(cudaLaunchKernel);
  Launched(function);
  return original(function, grid, block, arguments, shared, stream);
}

VISIBLE int cudaLaunchCooperativeKernel(const void *function, Dimensions grid, Dimensions block, void **arguments, size_t shared,
                                        void *stream)
{
  ORIGINAL(cudaLaunchCooperativeKernel);
  Launched(function);
  return original(function, grid, block, arguments, shared, stream);
}

VISIBLE int cudaLaunchKernelExC(const void *configuration, const void *function, void **arguments)
{
  ORIGINAL(cudaLaunchKernelExC);
  Launched(function);
  return original(configuration, function, arguments);
}

VISIBLE int cudaMalloc(void **memory, size_t bytes)
{
  ORIGINAL(cudaMalloc);
  const int error = original(memory, bytes);
  Allocated(error, memory, bytes);
  return error;
}

VISIBLE int cudaMallocAsync(void **memory, size_t bytes, void *stream)
{
  ORIGINAL(cudaMallocAsync);
  const int error = original(memory, bytes, stream);
  Allocated(error, memory, bytes);
  return error;
}

VISIBLE int cudaMallocFromPoolAsync(void **memory, size_t bytes, void *pool, void *stream)
{
  ORIGINAL(cudaMallocFromPoolAsync);
  const int error = original(memory, bytes, pool, stream);
  Allocated(error, memory, bytes);
  return error;
}

VISIBLE int cudaFree(void *memory)
{
  ORIGINAL(cudaFree);
  Freed(memory);
  return original(memory);
}

VISIBLE int cudaFreeAsync(void *memory, void *stream)
{
  ORIGINAL(cudaFreeAsync);
  Freed(memory);
  return original(memory, stream);
}
