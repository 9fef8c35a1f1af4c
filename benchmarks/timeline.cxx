/*
   Writes the kernels and copies that a program has run, in any of its libraries and in its CUDA graphs, with their times, into a
   file:

     CUDA_INJECTION64_PATH=lib/libfinepc_timeline.so FINEPC_TIMELINE=FILE.csv program ..

   A line has begin and end in nanoseconds, the number of blocks, and the kernel. CUDA loads this library by itself. profile.py
   reads the file.
*/
#include <cupti.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace
{

constexpr size_t kBuffer = 8 << 20;

std::FILE *file;

void CUPTIAPI Request(uint8_t **buffer, size_t *size, size_t *most_records)
{
  *buffer       = (uint8_t *)std::aligned_alloc(8, kBuffer);
  *size         = *buffer ? kBuffer : 0;
  *most_records = 0;
}

void WriteKernel(const CUpti_ActivityKernel10 *kernel)
{
  char *name = abi::__cxa_demangle(kernel->name, nullptr, nullptr, nullptr);

  std::fprintf(file, "%llu,%llu,%lld,%s\n", (unsigned long long)kernel->start, (unsigned long long)kernel->end,
               (long long)kernel->gridX * kernel->gridY * kernel->gridZ, name ? name : kernel->name);
  std::free(name);
}

void WriteCopy(const CUpti_ActivityMemcpy6 *copy)
{
  const bool to_host   = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
             from_host = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;

  std::fprintf(file, "%llu,%llu,%llu,%s\n", (unsigned long long)copy->start, (unsigned long long)copy->end,
               (unsigned long long)copy->bytes,
               to_host     ? "CopyToHost"
               : from_host ? "CopyFromHost"
                           : "Copy");
}

void CUPTIAPI Complete(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t size)
{
  CUpti_Activity *record = nullptr;

  while (cuptiActivityGetNextRecord(buffer, size, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) WriteCopy((const CUpti_ActivityMemcpy6 *)record);
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) WriteKernel((const CUpti_ActivityKernel10 *)record);
  }
  std::free(buffer);
}

/* The file stays open, since CUPTI may hand out the last records from a thread of its own, later. */
void Finish()
{
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::fflush(file);
}

} // namespace

/* CUDA calls this when it has loaded the library. */
extern "C" __attribute__((visibility("default"))) int InitializeInjection()
{
  const char *name = std::getenv("FINEPC_TIMELINE");

  file = std::fopen(name ? name : "timeline.csv", "w");
  if (!file || cuptiActivityRegisterCallbacks(Request, Complete) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) != CUPTI_SUCCESS) {
    std::fprintf(stderr, "finepc_timeline: the kernels of this program cannot be recorded\n");
    return 0;
  }
  std::atexit(Finish);
  return 1;
}
