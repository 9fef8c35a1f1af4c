/* The language and the runtime library of CUDA, as far as kernels of finepc use them, for the emulator. */
#pragma once

#include <unistd.h>

#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <tuple>
#include <vector>
#include <cstdlib>
#include <cstring>
#include <math.h>

#include "emulator.h"

/* ------------------------------------------ language ------------------------------------------ */

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

struct uint3 {
  unsigned x, y, z;
};
extern uint3 threadIdx, blockIdx;
extern dim3  blockDim, gridDim;

/* Vectors are aligned as on the device, so that the sanitizer finds those that are not where they must be. */
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) double4_16a {
  double x, y, z, w;
};
inline int2 make_int2(int x, int y)
{
  return {x, y};
}
inline double2 make_double2(double x, double y)
{
  return {x, y};
}

/* ----------------------------------- numbers and memory --------------------------------------- */

template <typename A, typename B>
constexpr auto min(A a, B b) -> typename std::common_type<A, B>::type
{
  return b < a ? b : a;
}
template <typename A, typename B>
constexpr auto max(A a, B b) -> typename std::common_type<A, B>::type
{
  return a < b ? b : a;
}
inline double rsqrt(double x)
{
  return 1 / std::sqrt(x);
}
inline float rsqrt(float x)
{
  return 1 / std::sqrt(x);
}
inline float __fdividef(float x, float y)
{
  return x / y;
}
inline double __dmul_rn(double x, double y)
{
  return x * y;
}
inline double __dadd_rn(double x, double y)
{
  return x + y;
}
inline int __popc(unsigned x)
{
  return __builtin_popcount(x);
}
inline int __ffs(int x)
{
  return __builtin_ffs(x);
}
inline int __clz(int x)
{
  return x ? __builtin_clz((unsigned)x) : 32;
}

namespace emulator
{
template <typename To, typename From>
To BitsOf(From from)
{
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
} // namespace emulator
inline long long __double_as_longlong(double x)
{
  return emulator::BitsOf<long long>(x);
}
inline double __longlong_as_double(long long x)
{
  return emulator::BitsOf<double>(x);
}
inline unsigned __float_as_uint(float x)
{
  return emulator::BitsOf<unsigned>(x);
}
inline int __double2loint(double x)
{
  return (int)(__double_as_longlong(x) & 0xffffffff);
}
inline int __double2hiint(double x)
{
  return (int)(__double_as_longlong(x) >> 32);
}
inline double __hiloint2double(int high, int low)
{
  return __longlong_as_double((long long)high << 32 | (unsigned)low);
}

template <typename T>
T __ldg(const T *from)
{
  return *from;
}
template <typename T>
T __ldcs(const T *from)
{
  return *from;
}
template <typename T>
T __ldcg(const T *from)
{
  return *from;
}
template <typename T>
void __stcs(T *to, T value)
{
  *to = value;
}
inline void __threadfence()
{
}
inline void __threadfence_system()
{
}

/* Threads change places at barriers alone, so that all is atomic. */
template <typename T, typename V>
T atomicAdd(T *at, V value)
{
  const T old = *at;
  *at         = (T)(old + (T)value);
  return old;
}
template <typename T, typename V>
T atomicMin(T *at, V value)
{
  const T old = *at;
  if ((T)value < old) *at = (T)value;
  return old;
}
template <typename T, typename V>
T atomicMax(T *at, V value)
{
  const T old = *at;
  if (old < (T)value) *at = (T)value;
  return old;
}
template <typename T, typename V>
T atomicOr(T *at, V value)
{
  const T old = *at;
  *at         = (T)(old | (T)value);
  return old;
}
template <typename T, typename V>
T atomicExch(T *at, V value)
{
  const T old = *at;
  *at         = (T)value;
  return old;
}
template <typename T, typename U, typename V>
T atomicCAS(T *at, U expected, V value)
{
  const T old = *at;
  if (old == (T)expected) *at = (T)value;
  return old;
}
inline unsigned atomicInc(unsigned *at, unsigned last)
{
  const unsigned old = *at;
  *at                = old >= last ? 0 : old + 1;
  return old;
}

/* ----------------------------------- barriers and warps --------------------------------------- */

inline void __syncthreads()
{
  (void)emulator::MeetBlock("__syncthreads", false);
}
inline int __syncthreads_count(int is)
{
  return emulator::MeetBlock("__syncthreads_count", is).yes;
}
inline int __syncthreads_or(int is)
{
  return emulator::MeetBlock("__syncthreads_or", is).yes > 0;
}
inline int __syncthreads_and(int is)
{
  const emulator::Count count = emulator::MeetBlock("__syncthreads_and", is);
  return count.yes == count.all;
}
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
  (void)emulator::Meet("__syncwarp", mask, nullptr, 0);
}

namespace emulator
{
/* What lane `from` brought; all bits are set if it did not take part. */
template <typename T>
T BroughtBy(const Brought &brought, int from)
{
  T value;
  std::memset((void *)&value, 0xff, sizeof(value));
  if (brought.lanes >> from & 1) std::memcpy((void *)&value, brought.value[from], sizeof(value));
  return value;
}
template <typename T>
const Brought &MeetWith(const char *function, unsigned mask, const T &value)
{
  static_assert(sizeof(T) <= 16 && std::is_trivially_copyable<T>::value, "a number");
  return Meet(function, mask, &value, sizeof(value));
}
inline unsigned BallotOf(const char *function, unsigned mask, int is)
{
  const Brought &brought = MeetWith(function, mask, is);
  unsigned       ballot  = 0;
  for (int lane = 0; lane < kLanes; lane++)
    if (brought.lanes >> lane & 1 && BroughtBy<int>(brought, lane)) ballot |= 1u << lane;
  return ballot;
}
template <typename T, typename Two>
T Reduce(const char *function, unsigned mask, T value, Two two)
{
  const Brought &brought = MeetWith(function, mask, value);
  for (int lane = 0; lane < kLanes; lane++)
    if (brought.lanes >> lane & 1) value = two(value, BroughtBy<T>(brought, lane));
  return value;
}
} // namespace emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = emulator::kLanes)
{
  const int first = emulator::Lane() / width * width;
  return emulator::BroughtBy<T>(emulator::MeetWith("__shfl_sync", mask, value), first + (from & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = emulator::kLanes)
{
  const int lane = emulator::Lane(), from = lane ^ distance;
  return emulator::BroughtBy<T>(emulator::MeetWith("__shfl_xor_sync", mask, value),
                                from < lane / width * width + width ? from : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = emulator::kLanes)
{
  const int lane = emulator::Lane(), from = lane + (int)distance;
  return emulator::BroughtBy<T>(emulator::MeetWith("__shfl_down_sync", mask, value),
                                from < lane / width * width + width ? from : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = emulator::kLanes)
{
  const int lane = emulator::Lane(), from = lane - (int)distance;
  return emulator::BroughtBy<T>(emulator::MeetWith("__shfl_up_sync", mask, value), from >= lane / width * width ? from : lane);
}
inline unsigned __ballot_sync(unsigned mask, int is)
{
  return emulator::BallotOf("__ballot_sync", mask, is);
}
inline int __any_sync(unsigned mask, int is)
{
  return emulator::BallotOf("__any_sync", mask, is) != 0;
}
inline int __all_sync(unsigned mask, int is)
{
  return emulator::BallotOf("__all_sync", mask, !is) == 0;
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value)
{
  static_assert(sizeof(T) == 4 && std::is_integral<T>::value, "as on the device");
  return emulator::Reduce("__reduce_max_sync", mask, value, [](T x, T y) { return x < y ? y : x; });
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value)
{
  static_assert(sizeof(T) == 4 && std::is_integral<T>::value, "as on the device");
  return emulator::Reduce("__reduce_min_sync", mask, value, [](T x, T y) { return y < x ? y : x; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value)
{
  return emulator::Reduce("__reduce_or_sync", mask, value, [](unsigned x, unsigned y) { return x | y; });
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value)
{
  const emulator::Brought &brought = emulator::MeetWith("__match_any_sync", mask, value);
  unsigned                 same    = 0;
  for (int lane = 0; lane < emulator::kLanes; lane++)
    if (brought.lanes >> lane & 1 && emulator::BroughtBy<T>(brought, lane) == value) same |= 1u << lane;
  return same;
}

/* ------------------------------------------ runtime ------------------------------------------- */

enum cudaError_t {
  cudaSuccess                 = 0,
  cudaErrorInvalidValue       = 1,
  cudaErrorMemoryAllocation   = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorNoDevice           = 100,
  cudaErrorNotReady           = 600,
  cudaErrorNotSupported       = 801
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount              = 16,
  cudaDevAttrPciBusId                         = 33,
  cudaDevAttrPciDeviceId                      = 34,
  cudaDevAttrPciDomainId                      = 50,
  cudaDevAttrComputeCapabilityMajor           = 75,
  cudaDevAttrComputeCapabilityMinor           = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrCooperativeLaunch                = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin     = 97,
  cudaDevAttrMemoryPoolsSupported             = 115
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
struct cudaFuncAttributes {
  int ptxVersion, binaryVersion;
};
enum cudaLaunchAttributeID { cudaLaunchAttributeCooperative = 2, cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int cooperative, programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3                 gridDim, blockDim;
  size_t               dynamicSmemBytes;
  cudaStream_t         stream;
  cudaLaunchAttribute *attrs;
  unsigned             numAttrs;
};

inline cudaError_t cudaGetLastError()
{
  return cudaSuccess;
}
inline const char *cudaGetErrorName(cudaError_t)
{
  return "cudaError";
}
inline const char *cudaGetErrorString(cudaError_t)
{
  return "an error of the emulator";
}
/* What a test pretends: errors of the first question for a GPU and of its first use, and versions. */
namespace emulator
{
inline struct Pretended {
  cudaError_t found = cudaSuccess, used = cudaSuccess;
  int         driver = 0;
} pretended;
/* The compute capability that FINEPC_EMULATOR_CAPABILITY names, such as 90. */
inline int Capability()
{
  const char *const given = std::getenv("FINEPC_EMULATOR_CAPABILITY");
  return given ? std::atoi(given) : 90;
}
} // namespace emulator
constexpr int CUDART_VERSION = 13000;
#define __CUDA_ARCH_LIST__ 800, 900

inline cudaError_t cudaDriverGetVersion(int *version)
{
  *version = emulator::pretended.driver;
  return cudaSuccess;
}
struct cudaDeviceProp {
  char name[256];
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int)
{
  *properties = {"an emulated GPU"};
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int *count)
{
  *count = emulator::pretended.found == cudaSuccess;
  return emulator::pretended.found;
}
inline cudaError_t cudaGetDevice(int *device)
{
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device)
{
  return device ? cudaErrorInvalidValue : cudaSuccess;
}
/* Each process has a GPU of its own. */
inline cudaError_t cudaDeviceGetPCIBusId(char *name, int length, int)
{
  std::snprintf(name, length, "emulated:%d", (int)getpid());
  return cudaSuccess;
}
/* Few processors, so that grids that depend on their number are smaller than the work in tests, too. */
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
  constexpr int kProcessors = 3, kSharedBytes = 232448;
  *value = attribute == cudaDevAttrMultiProcessorCount ? kProcessors : kSharedBytes;
  if (attribute == cudaDevAttrMemoryPoolsSupported) *value = 0;
  if (attribute == cudaDevAttrComputeCapabilityMajor) *value = emulator::Capability() / 10;
  if (attribute == cudaDevAttrComputeCapabilityMinor) *value = emulator::Capability() % 10;
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaMalloc(T **memory, size_t bytes)
{
  return (cudaError_t)emulator::Allocate((void **)memory, bytes);
}
inline cudaError_t cudaMemGetInfo(size_t *free, size_t *all)
{
  *free = emulator::BytesLeft();
  *all  = SIZE_MAX;
  return emulator::pretended.used;
}
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *memory)
{
  attributes->type = emulator::IsOnDevice(memory) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
inline cudaError_t cudaFree(void *memory)
{
  return (cudaError_t)emulator::Free(memory);
}

/* There are no pools: each array is an allocation of its own, so that the sanitizer sees its bounds. */
using cudaMemPool_t = struct EmulatedPool *;
enum { cudaMemAllocationTypePinned, cudaMemLocationTypeDevice };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrUsedMemCurrent };
struct cudaMemPoolProps {
  int allocType;
  struct {
    int type, id;
  } location;
};
inline cudaError_t cudaMemPoolCreate(cudaMemPool_t *, const cudaMemPoolProps *)
{
  return cudaErrorNotSupported;
}
inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t)
{
  return cudaErrorNotSupported;
}
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
  return cudaErrorNotSupported;
}
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
  return cudaErrorNotSupported;
}
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t)
{
  return cudaErrorNotSupported;
}
inline cudaError_t cudaMallocFromPoolAsync(void **, size_t, cudaMemPool_t, cudaStream_t)
{
  return cudaErrorNotSupported;
}
inline cudaError_t cudaFreeAsync(void *, cudaStream_t)
{
  return cudaErrorNotSupported;
}

/* What is captured is done when the graph is launched. Of launches those alone can be captured that keep their arguments. */
namespace emulator
{
using Work             = std::vector<std::function<void()>>;
inline Work *capturing = nullptr;
template <typename Part>
void DoOrCapture(Part part)
{
  if (capturing) capturing->push_back(part);
  else part();
}
} // namespace emulator
typedef emulator::Work *cudaGraph_t;
typedef emulator::Work *cudaGraphExec_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode)
{
  emulator::capturing = new emulator::Work();
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph)
{
  *graph              = emulator::capturing;
  emulator::capturing = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned)
{
  *made = new emulator::Work(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t)
{
  for (const auto &part : *graph) part();
  return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr)
{
  emulator::DoOrCapture([=] { emulator::Copy(to, from, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                                     cudaMemcpyKind kind, cudaStream_t stream = nullptr)
{
  for (size_t row = 0; row < height; row++)
    (void)cudaMemcpyAsync((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind, stream);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t = nullptr)
{
  emulator::DoOrCapture([=] { emulator::Set(memory, value, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
  return cudaSuccess;
}
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
  *attributes = {emulator::Capability(), emulator::Capability()};
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int)
{
  return cudaSuccess;
}

/* Everything is done at once, in any stream. */
typedef struct CUevent_st *cudaEvent_t;
constexpr unsigned         cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned *flags)
{
  *flags = 0;
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t)
{
  return cudaSuccess; /* everything has been done */
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int)
{
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
  *least = *greatest = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize()
{
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0)
{
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
  *event = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *event)
{
  *event = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
  *ms = 0;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t)
{
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr)
{
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t)
{
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t)
{
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaMallocHost(T **memory, size_t bytes)
{
  *memory = (T *)std::malloc(bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFreeHost(void *memory)
{
  std::free(memory);
  return cudaSuccess;
}
enum { cudaHostRegisterDefault };
inline cudaError_t cudaHostRegister(void *, size_t, unsigned)
{
  return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(void *)
{
  return cudaSuccess;
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...), const Arguments &...arguments)
{
  /* The blocks of a grid that waits for all of its blocks would have to run at once: it is a single one. */
  const bool            is_grid = config->numAttrs && config->attrs[0].id == cudaLaunchAttributeCooperative;
  const emulator::Shape shape{is_grid ? dim3(1) : config->gridDim, config->blockDim, config->dynamicSmemBytes};
  emulator::DoOrCapture(
    [=, kept = std::make_tuple(Parameters(arguments)...)] { emulator::Launch(shape, [&] { std::apply(kernel, kept); }); });
  return cudaSuccess;
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Kernel, int, size_t)
{
  *blocks = 1;
  return cudaSuccess;
}

/* No test comes here: a grid whose blocks wait for one another would have to run at once. */
template <typename Kernel>
cudaError_t cudaLaunchCooperativeKernel(Kernel, dim3, dim3, void **, size_t, cudaStream_t)
{
  return cudaErrorInvalidValue;
}
