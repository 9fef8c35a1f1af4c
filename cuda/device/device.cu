/* The GPU of this rank: what PETSc and finepc's own choice have in common, and that choice. */
#include "device/device.cuh"

/* The number of the GPU that this rank uses or will use, of so many. */
static PetscErrorCode DeviceForeseen(int count, int *device);

PetscErrorCode DeviceFound_CUDA(PetscBool *found)
{
  PetscInt count;

  PetscFunctionBegin;
  PetscCall(DeviceCount_CUDA(&count));
  *found = (PetscBool)(count > 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceCount_CUDA(PetscInt *count)
{
  int devices = 0;

  PetscFunctionBegin;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  (void)cudaGetLastError(); /* a machine without a driver is no error here */
  *count = devices;
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

PetscErrorCode DeviceFreeBytes_CUDA(size_t *free)
{
  size_t all;

  PetscFunctionBegin;
  PetscCall(DeviceInitialize());
  PetscCallCUDA(cudaMemGetInfo(free, &all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceSynchronize_CUDA()
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if defined(FINEPC_PETSC_CUDA)
static PetscErrorCode DeviceForeseen(int count, int *device)
{
  PetscMPIInt rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  *device = rank % count; /* PETSc's own way, unless an option names one */
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
  *device = own.device >= 0 ? own.device : DeviceNumber(count);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A program may have made another device the current one of this thread, or be in another thread. */
PetscErrorCode DeviceInitialize()
{
  int count;

  PetscFunctionBegin;
  if (own.device >= 0) {
    PetscCallCUDA(cudaSetDevice(own.device));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallCUDA(cudaGetDeviceCount(&count));
  const int number = DeviceNumber(count);
  PetscCheck(number < count, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
             "-finepc_device %d: this process sees %d GPUs, whose numbers begin with 0", number, count);
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
