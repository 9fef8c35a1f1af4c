#include "support.h"

#include <petsc/private/petscimpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <dlfcn.h>
#include <new>
#include <thread>

#include "device.h"
#include "sparse/csr.h"

#if defined(FINEPC_HAVE_CUDA)
  #include "device/device.cuh"
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

void Assemble(Mat A)
{
  MUST(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  MUST(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
}

void SetValues(Vec x, const std::vector<double> &values)
{
  PetscScalar *array;
  MUST(VecGetArrayWrite(x, &array));
  std::copy(values.begin(), values.end(), array);
  MUST(VecRestoreArrayWrite(x, &array));
}

KSPConvergedReason ReasonOf(KSP ksp)
{
  return Got(KSPGetConvergedReason, ksp);
}

PCFailedReason ReasonOf(PC pc)
{
  return Got(PCGetFailedReason, pc);
}

PetscInt IterationsOf(KSP ksp)
{
  return Got(KSPGetIterationNumber, ksp);
}

double ResidualOf(Mat A, Vec b, Vec x)
{
  VecObject r;
  PetscReal norm, b_norm;
  MUST(VecDuplicate(b, r.put()));
  MUST(MatMult(A, x, r));
  MUST(VecAYPX(r, -1, b));
  MUST(VecNorm(r, NORM_2, &norm));
  MUST(VecNorm(b, NORM_2, &b_norm));
  return b_norm > 0 ? norm / b_norm : norm;
}

/*
   PETSc prints the options of an object only once, and those of a prefix only once. Therefore the object is made to count as new,
   and has a prefix here that no other object has.
*/
std::string HelpText(PC pc)
{
  const Options scope("-help");
  FILE *const output = PETSC_STDOUT, *const standard = stdout; /* PETSc 3.18 writes lists of names to the second one */
  char          *text   = nullptr;
  size_t         length = 0;
  const char    *given;
  PetscContainer other;
  PetscObjectId  id;

  MUST(PetscContainerCreate(PETSC_COMM_SELF, &other));
  MUST(PetscObjectGetId((PetscObject)other, &id));
  MUST(PetscContainerDestroy(&other));
  MUST(PCGetOptionsPrefix(pc, &given));
  const std::string prefix = given ? given : "";
  MUST(PCSetOptionsPrefix(pc, ("help" + std::to_string(id) + "_").c_str()));
  ((PetscObject)pc)->optionsprinted = PETSC_FALSE;
  PETSC_STDOUT = stdout     = open_memstream(&text, &length);
  const PetscErrorCode code = PCSetFromOptions(pc);
  std::fclose(PETSC_STDOUT);
  PETSC_STDOUT = output;
  stdout       = standard;
  MUST(code);
  MUST(PCSetOptionsPrefix(pc, prefix.empty() ? nullptr : prefix.c_str()));
  const std::string result(text, length);
  std::free(text);
  return result;
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
  if (std::getenv("FINEPC_TEST_SHARED_GPU")) return 0;
  const auto traced = (double (*)())dlsym(RTLD_DEFAULT, "FinePCTracedDeviceBytes");
  return traced ? traced() : DeviceBytesInUse();
}

static long allocations, living;   /* all of them; those through new that have not been deleted */
static long until_failure[3] = {}; /* which of the next allocations of a kind fails, or 0 */

/* Whether this allocation is the one that fails. */
static bool Fails(int kind)
{
  return until_failure[kind] > 0 && --until_failure[kind] == 0;
}

/* Whoever asks for memory that may be missing, as the sorting of the standard library does, gets it always. */
void *operator new(std::size_t size, const std::nothrow_t &) noexcept
{
  void *const memory = std::malloc(size ? size : 1);
  allocations++;
  if (memory) living++;
  return memory;
}

void *operator new(std::size_t size)
{
  if (!Fails(0))
    if (void *memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}

void operator delete(void *memory) noexcept
{
  if (memory) living--;
  std::free(memory);
}

void operator delete(void *memory, std::size_t) noexcept
{
  operator delete(memory);
}

void operator delete(void *memory, const std::nothrow_t &) noexcept
{
  operator delete(memory);
}

static PetscErrorCode (*petsc_malloc)(size_t, PetscBool, int, const char[], const char[], void **);

/* Whether it is a source of the library; ccache may have made the name one relative to any folder of the build. */
static bool IsOurs(const char *file)
{
  constexpr size_t kRoot  = sizeof(FINEPC_SOURCE_FOLDER "/") - 1;
  const char      *within = file;
  if (!std::strncmp(file, FINEPC_SOURCE_FOLDER "/", kRoot)) within += kRoot;
  while (!std::strncmp(within, "../", 3)) within += 3;
  return within != file && !std::strncmp(within, "src/", 4);
}

static PetscErrorCode CountingMalloc(size_t size, PetscBool clear, int line, const char function[], const char file[],
                                     void **memory)
{
  allocations++;
  if ((IsOurs(file) && Fails(1)) || (size >= FailingMemory::kLarge && Fails(2))) {
    *memory = nullptr;
    return PETSC_ERR_MEM;
  }
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

long LivingMemory()
{
  return living;
}

FailingMemory::FailingMemory(Through kind, long n) : kind_((int)kind)
{
  petsc_malloc         = PetscTrMalloc;
  PetscTrMalloc        = CountingMalloc;
  until_failure[kind_] = n;
}

FailingMemory::~FailingMemory()
{
  PetscTrMalloc        = petsc_malloc;
  until_failure[kind_] = 0;
}

bool FailingMemory::Failed() const
{
  return until_failure[kind_] == 0;
}

#if defined(FINEPC_HAVE_CUDA)

  #if defined(FINEPC_PETSC_CUDA)
OtherStream::OtherStream()
{
  MUST(PetscDeviceContextGetCurrentContext(&old_context_));
  MUST(PetscDeviceContextSynchronize(old_context_));
  MUST(PetscDeviceContextDuplicate(old_context_, &context_));
  MUST(PetscDeviceContextSetStreamType(context_, PETSC_STREAM_NONBLOCKING));
  MUST(PetscDeviceContextSetUp(context_));
  MUST(PetscDeviceContextSetCurrentContext(context_));
}

OtherStream::~OtherStream()
{
  PetscCallAbort(PETSC_COMM_SELF, PetscDeviceContextSynchronize(context_));
  PetscCallAbort(PETSC_COMM_SELF, PetscDeviceContextSetCurrentContext(old_context_));
  PetscCallAbort(PETSC_COMM_SELF, PetscDeviceContextDestroy(&context_));
}

void OtherStream::Synchronize() const
{
  MUST(PetscDeviceContextSynchronize(context_));
}
  #else
/* finepc's own stream is the only one, which is in no order with the default one where it is captured. */
OtherStream::OtherStream() : old_context_(), context_()
{
  MUST(DeviceSynchronize_CUDA());
}

OtherStream::~OtherStream()
{
  PetscCallAbort(PETSC_COMM_SELF, DeviceSynchronize_CUDA());
}

void OtherStream::Synchronize() const
{
  MUST(DeviceSynchronize_CUDA());
}
  #endif

/* In a capture memory of a pool becomes a node of the graph. */
static bool TakesMemory(cudaGraph_t graph)
{
  size_t count = 0;
  REQUIRE(cudaGraphGetNodes(graph, nullptr, &count) == cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  REQUIRE((!count || cudaGraphGetNodes(graph, nodes.data(), &count) == cudaSuccess));
  return std::any_of(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
    cudaGraphNodeType type;
    REQUIRE(cudaGraphNodeGetType(node, &type) == cudaSuccess);
    return type == cudaGraphNodeTypeMemAlloc || type == cudaGraphNodeTypeMemFree;
  });
}

/* The default stream cannot be captured, so that the call runs on another one. */
bool AsynchronousOnDevice(const std::function<void()> &call)
{
  const OtherStream other;
  cudaStream_t      stream;
  cudaGraph_t       graph = nullptr;

  MUST(DeviceGetStream(&stream));
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  call();
  const bool clean = cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph && !TakesMemory(graph);
  if (graph) REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  (void)cudaGetLastError();
  return clean;
}

namespace
{

/* What holds a stream until it is opened, ten seconds at most. */
struct Gate {
  std::atomic<bool> open{false}, passed{false};

  static void CUDART_CB Wait(void *context)
  {
    Gate *const gate  = (Gate *)context;
    const auto  until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!gate->open && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gate->passed = true;
  }
};

void CUDART_CB Sleep(void *milliseconds)
{
  std::this_thread::sleep_for(std::chrono::milliseconds((intptr_t)milliseconds));
}

} // namespace

bool WaitsForNothingOnDevice(const std::function<void()> &call)
{
  Gate              gate; /* The gate outlives the other stream, which waits at its end. */
  const OtherStream other;
  cudaStream_t      stream;

  MUST(DeviceGetStream(&stream));
  call(); /* The kernels are loaded. */
  other.Synchronize();
  REQUIRE(cudaLaunchHostFunc(stream, Gate::Wait, &gate) == cudaSuccess);
  call();
  const bool waited = gate.passed;
  gate.open         = true;
  other.Synchronize();
  CHECK(gate.passed);
  return !waited;
}

void HoldStream(int milliseconds)
{
  cudaStream_t stream;

  MUST(DeviceGetStream(&stream));
  REQUIRE(cudaLaunchHostFunc(stream, Sleep, (void *)(intptr_t)milliseconds) == cudaSuccess);
}

FullDevice::FullDevice(bool full)
{
  constexpr size_t kLargest = (size_t)1 << 34, kSmallest = 256;
  void            *memory;
  if (!full) return;
  for (size_t bytes = kLargest; bytes >= kSmallest; bytes /= 2)
    while (cudaMalloc(&memory, bytes) == cudaSuccess) taken_.push_back(memory);
  (void)cudaGetLastError();
  MUST(PetscPushErrorHandler(PetscReturnErrorHandler, nullptr));
  for (size_t bytes = kLargest; bytes >= kSmallest; bytes /= 2) /* what is left in the pool */
    while (!DeviceAllocate(bytes, &memory)) taken_.push_back(memory);
  MUST(PetscPopErrorHandler());
}

FullDevice::~FullDevice()
{
  for (void *memory : taken_) (void)cudaFree(memory);
}

PinnedArray::PinnedArray(size_t size) : size_(size)
{
  REQUIRE(cudaMallocHost((void **)&data_, size * sizeof(double)) == cudaSuccess);
}

PinnedArray::~PinnedArray()
{
  (void)cudaFreeHost(data_);
}

#else /* Without CUDA no device is found, and no test that needs one gets here. */

FullDevice::FullDevice(bool)
{
}

FullDevice::~FullDevice()
{
}

OtherStream::OtherStream() : old_context_(nullptr), context_(nullptr)
{
}

OtherStream::~OtherStream()
{
}

void OtherStream::Synchronize() const
{
}

bool AsynchronousOnDevice(const std::function<void()> &call)
{
  call();
  return true;
}

bool WaitsForNothingOnDevice(const std::function<void()> &call)
{
  call();
  return true;
}

void HoldStream(int)
{
}

PinnedArray::PinnedArray(size_t size) : size_(size), data_(new double[size])
{
}

PinnedArray::~PinnedArray()
{
  delete[] data_;
}

#endif
