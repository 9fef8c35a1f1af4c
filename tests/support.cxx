#include "support.h"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>

#include "sparse/csr.h"

#if defined(FINEPC_HAVE_CUDA)
  #include <petscdevice_cuda.h>
#endif

Options::Options(const std::string &text)
{
  if (text.empty()) return;
  MUST(PetscOptionsCreate(options_.put()));
  MUST(PetscOptionsInsertString(options_, text.c_str()));
  MUST(PetscOptionsPush(options_));
}

Options::~Options()
{
  if (options_) PetscCallAbort(PETSC_COMM_SELF, PetscOptionsPop());
}

static PetscErrorCode CollectError(MPI_Comm, int, const char *, const char *, PetscErrorCode code, PetscErrorType type,
                                   const char *message, void *context)
{
  if (type == PETSC_ERROR_INITIAL && message) ((Errors *)context)->text += std::string(message) + "\n";
  return code;
}

Errors::Errors()
{
  PetscCallAbort(PETSC_COMM_SELF, PetscPushErrorHandler(CollectError, this));
}

Errors::~Errors()
{
  PetscCallAbort(PETSC_COMM_SELF, PetscPopErrorHandler());
}

template <typename T>
static std::string TextOf(T object, PetscErrorCode (*view)(T, PetscViewer))
{
  char       *text   = nullptr;
  size_t      length = 0;
  FILE       *memory = open_memstream(&text, &length);
  PetscViewer viewer;

  MUST(PetscViewerASCIIOpenWithFILE(PetscObjectComm((PetscObject)object), memory, &viewer));
  MUST(view(object, viewer));
  MUST(PetscViewerDestroy(&viewer));
  std::fclose(memory);
  const std::string result(text, length);
  std::free(text);
  return result;
}

std::string ViewText(KSP ksp)
{
  return TextOf(ksp, KSPView);
}

std::string ViewText(PC pc)
{
  return TextOf(pc, PCView);
}

bool Contains(const std::string &text, const std::string &part)
{
  return text.find(part) != std::string::npos;
}

void PoisonMemory(PetscMemType where, size_t bytes)
{
  if (!PetscMemTypeDevice(where)) return;
  const std::vector<double> nan(bytes / sizeof(double), std::numeric_limits<double>::quiet_NaN());
  void                     *memory = nullptr;
  MUST(ArrayCreate(nan.size() * sizeof(double), where, &memory));
  MUST(ArrayCopy(memory, nan.data(), nan.size() * sizeof(double), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayDestroy(where, &memory));
}

PetscLogDouble HostBytes()
{
  PetscLogDouble bytes;
  MUST(PetscMallocGetCurrentUsage(&bytes));
  return bytes;
}

PetscLogDouble DeviceBytes()
{
  size_t free_bytes = 0, total_bytes = 0;
#if defined(FINEPC_HAVE_CUDA)
  REQUIRE(cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess);
#endif
  return (PetscLogDouble)(total_bytes - free_bytes);
}

static long allocations;

void *operator new(std::size_t size)
{
  allocations++;
  if (void *memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}

void operator delete(void *memory) noexcept
{
  std::free(memory);
}

void operator delete(void *memory, std::size_t) noexcept
{
  std::free(memory);
}

static PetscErrorCode (*petsc_malloc)(size_t, PetscBool, int, const char[], const char[], void **);

static PetscErrorCode CountingMalloc(size_t size, PetscBool clear, int line, const char function[], const char file[],
                                     void **memory)
{
  allocations++;
  return petsc_malloc(size, clear, line, function, file, memory);
}

long CountAllocations(const std::function<void()> &call)
{
  petsc_malloc      = PetscTrMalloc;
  PetscTrMalloc     = CountingMalloc;
  const long before = allocations;
  call();
  const long count = allocations - before;
  PetscTrMalloc    = petsc_malloc;
  return count;
}

bool AsynchronousOnDevice(const std::function<void()> &call)
{
#if defined(FINEPC_HAVE_CUDA)
  PetscDeviceContext old_context, context;
  cudaStream_t       stream;
  cudaGraph_t        graph = nullptr;

  /* the default stream cannot be captured */
  MUST(PetscDeviceContextGetCurrentContext(&old_context));
  MUST(PetscDeviceContextDuplicate(old_context, &context));
  MUST(PetscDeviceContextSetStreamType(context, PETSC_STREAM_NONBLOCKING));
  MUST(PetscDeviceContextSetUp(context));
  MUST(PetscDeviceContextSetCurrentContext(context));
  MUST(PetscGetCurrentCUDAStream(&stream));
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  call();
  const bool clean = cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph;
  if (graph) REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  (void)cudaGetLastError();
  MUST(PetscDeviceContextSetCurrentContext(old_context));
  MUST(PetscDeviceContextDestroy(&context));
  return clean;
#else
  call();
  return true;
#endif
}
