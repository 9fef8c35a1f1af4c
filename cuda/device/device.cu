/* The GPU of this rank: what PETSc and finepc's own choice have in common, and that choice. */
#include <algorithm>
#include <iterator>

#include "device/device.cuh"

/* The number of the GPU that this rank uses or will use, of so many. */
static PetscErrorCode DeviceForeseen(int count, int *device);

PetscErrorCode DeviceFound_CUDA(PetscBool *found)
{
  int count;

  PetscFunctionBegin;
  PetscCall(DeviceCount_CUDA(&count));
  *found = (PetscBool)(count > 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceCount_CUDA(int *count)
{
  PetscFunctionBegin;
  if (cudaGetDeviceCount(count) != cudaSuccess) *count = 0;
  (void)cudaGetLastError(); /* a machine without a driver is no error here */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceName_CUDA(size_t length, char name[])
{
  int count, device;

  PetscFunctionBegin;
  PetscCallCUDA(cudaGetDeviceCount(&count));
  PetscCall(DeviceForeseen(count, &device));
  PetscCallCUDA(cudaDeviceGetPCIBusId(name, (int)length, device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static __global__ void DoNothing()
{
}

/* The driver is no error where it is missing: CUDA says that it is too old. */
static PetscErrorCode DescribeNoDevice(cudaError_t error, char why[])
{
  int driver = 0;

  PetscFunctionBegin;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaGetLastError();
  if (error == cudaErrorInsufficientDriver && driver)
    PetscCall(PetscSNPrintf(why, kDeviceText, "the NVIDIA driver is for CUDA %d.%d, and this finepc was built with %d.%d",
                            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10));
  else if (error == cudaErrorInsufficientDriver)
    PetscCall(PetscStrncpy(why, "no GPU was found, nor an NVIDIA driver", kDeviceText));
  else if (error == cudaErrorNoDevice || error == cudaSuccess) PetscCall(PetscStrncpy(why, "no GPU was found", kDeviceText));
  else PetscCall(PetscSNPrintf(why, kDeviceText, "the GPU cannot be used: %s", cudaGetErrorString(error)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceLookFor_CUDA(char why[])
{
  constexpr int compiled[] = {__CUDA_ARCH_LIST__};
  const int     least      = *std::min_element(std::begin(compiled), std::end(compiled)) / 10;
  int           count = 0, number = 0, major = 0, minor = 0;

  PetscFunctionBegin;
  why[0]                  = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || !count) {
    PetscCall(DescribeNoDevice(error, why));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(DeviceForeseen(count, &number));
  PetscCallCUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number));
  PetscCallCUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, number));
  if (10 * major + minor < least)
    PetscCall(PetscSNPrintf(why, kDeviceText, "the GPU has compute capability %d.%d, and this finepc was built for %d.%d and later",
                            major, minor, least / 10, least % 10));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceOpen_CUDA(char why[])
{
  size_t             free, all;
  cudaFuncAttributes attributes;

  PetscFunctionBegin;
  why[0] = 0;
  PetscCall(PetscPushErrorHandler(PetscReturnErrorHandler, nullptr));
  const PetscErrorCode code = DeviceInitialize();
  PetscCall(PetscPopErrorHandler());
  cudaError_t error = cudaMemGetInfo(&free, &all);
  if (!error) error = cudaFuncGetAttributes(&attributes, (const void *)DoNothing); /* it has code for this GPU */
  (void)cudaGetLastError();
  if (error || code)
    PetscCall(PetscSNPrintf(why, kDeviceText, "the GPU cannot be used: %s",
                            error ? cudaGetErrorString(error) : "PETSc cannot initialize it"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceDescribe_CUDA(char text[], size_t length)
{
  cudaDeviceProp properties;
  int            device, count;

  PetscFunctionBegin;
  PetscCall(DeviceInitialize());
  PetscCallCUDA(cudaGetDevice(&device));
  PetscCallCUDA(cudaGetDeviceCount(&count));
  PetscCallCUDA(cudaGetDeviceProperties(&properties, device));
  PetscCall(PetscSNPrintf(text, length, "%s, number %d of %d", properties.name, device, count));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceSynchronize_CUDA()
{
  cudaStream_t stream = nullptr;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceStreamIsNonBlocking_CUDA(bool *non_blocking)
{
  cudaStream_t stream = nullptr;
  unsigned int flags;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaStreamGetFlags(stream, &flags));
  *non_blocking = flags & cudaStreamNonBlocking;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceFence_CUDA()
{
  bool non_blocking = false;

  PetscFunctionBegin;
  PetscCall(DeviceStreamIsNonBlocking_CUDA(&non_blocking));
  if (non_blocking) PetscCallCUDA(cudaDeviceSynchronize());
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if defined(FINEPC_PETSC_CUDA)
static PetscErrorCode DeviceForeseen(int count, int *device)
{
  PetscFunctionBegin;
  *device = DeviceNumber(count);
  if (PetscDeviceInitialized(PETSC_DEVICE_CUDA)) PetscCallCUDA(cudaGetDevice(device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceFinalize_CUDA()
{
  return PETSC_SUCCESS;
}
#else
namespace
{

struct Own {
  int          device = -1; /* none has been chosen */
  cudaStream_t stream = nullptr;
} own;

} // namespace

static PetscErrorCode DeviceForeseen(int count, int *device)
{
  PetscFunctionBegin;
  *device = DeviceNumber(count);
  PetscCheck(*device < count, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
             "-finepc_device %d is not possible: the GPUs that this process sees are numbered from 0, and there are %d", *device,
             count);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A program may have made another device the current one of this thread, or be in another thread. */
PetscErrorCode DeviceInitialize()
{
  int count, number;

  PetscFunctionBegin;
  if (own.device >= 0) {
    PetscCallCUDA(cudaSetDevice(own.device));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallCUDA(cudaGetDeviceCount(&count));
  PetscCall(DeviceForeseen(count, &number));
  PetscCallCUDA(cudaSetDevice(number));
  PetscCallCUDA(cudaStreamCreateWithFlags(&own.stream, cudaStreamDefault));
  own.device = number;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceGetStream(cudaStream_t *stream)
{
  PetscFunctionBegin;
  PetscCall(DeviceInitialize());
  *stream = own.stream;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceFinalize_CUDA()
{
  PetscFunctionBegin;
  if (own.device >= 0) {
    (void)cudaStreamDestroy(own.stream); /* the program may have reset the device */
    (void)cudaGetLastError();
  }
  own = Own{};
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif
