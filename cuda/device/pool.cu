/*
   The memory of the GPU that finepc's arrays are in. It is taken and given back in the order of the stream, from a pool that keeps
   what is free for the next set-up: to take memory from the GPU and to give it back lasts 70 to 430 microseconds, each time as long
   as some kernels, and from a pool two. The driver takes free memory out of the pool where cudaMalloc() of this process would fail
   otherwise, and the pool itself gives back what goes beyond a share of the GPU.
*/
#include "device/device.cuh"

namespace
{

constexpr size_t kShare = 8; /* the pool keeps one part in so many, divided by the ranks of the machine for each GPU that is seen */

struct Pool {
  bool          opened = false; /* it has been decided whether there is one */
  cudaMemPool_t pool   = nullptr;
  int           device = -1; /* on which it is */
};
Pool pool;

} // namespace

/* MPI libraries that take memory of the GPU share it between processes in a way that is for memory of cudaMalloc() alone. */
static PetscErrorCode PoolIsPossible(int device, bool *possible)
{
  PetscMPIInt ranks;
  int         supported = 0;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &ranks));
  PetscCallCUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
  *possible = supported && !(DeviceMemoryGoesToMPI() && ranks > 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PoolOpen()
{
  int              count;
  bool             possible = false;
  size_t           left, all;
  cudaMemPoolProps props = {};

  PetscFunctionBegin;
  pool        = Pool{};
  pool.opened = true;
  PetscCallCUDA(cudaGetDevice(&pool.device));
  PetscCallCUDA(cudaGetDeviceCount(&count));
  PetscCall(PoolIsPossible(pool.device, &possible));
  if (!possible) PetscFunctionReturn(PETSC_SUCCESS);
  props.allocType     = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id   = pool.device;
  PetscCallCUDA(cudaMemGetInfo(&left, &all));
  uint64_t kept = all / kShare / DeviceRanks(count);
  if (cudaMemPoolCreate(&pool.pool, &props) != cudaSuccess) {
    (void)cudaGetLastError();
    pool.pool = nullptr; /* it goes without one */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallCUDA(cudaMemPoolSetAttribute(pool.pool, cudaMemPoolAttrReleaseThreshold, &kept));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Memory that is free once the stream has done what it was given counts as free. */
static PetscErrorCode PoolFreeBytes(size_t *bytes)
{
  uint64_t     reserved, used;
  cudaStream_t stream;

  PetscFunctionBegin;
  *bytes = 0;
  if (!pool.pool) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscCallCUDA(cudaMemPoolGetAttribute(pool.pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  PetscCallCUDA(cudaMemPoolGetAttribute(pool.pool, cudaMemPoolAttrUsedMemCurrent, &used));
  *bytes = reserved - used;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceFreeBytes_CUDA(size_t *free)
{
  size_t all, kept;

  PetscFunctionBegin;
  PetscCall(DeviceInitialize());
  PetscCall(PoolFreeBytes(&kept));
  PetscCallCUDA(cudaMemGetInfo(free, &all));
  *free += kept;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What is free in the pool may be in pieces that are too small: it goes back to the GPU, which can put them together. */
static PetscErrorCode PoolAllocate(size_t bytes, void **memory, cudaError_t *error)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  *error = cudaMallocFromPoolAsync(memory, bytes, pool.pool, stream);
  if (*error != cudaErrorMemoryAllocation) PetscFunctionReturn(PETSC_SUCCESS);
  (void)cudaGetLastError();
  PetscCallCUDA(cudaDeviceSynchronize());
  PetscCallCUDA(cudaMemPoolTrimTo(pool.pool, 0));
  *error = cudaMallocFromPoolAsync(memory, bytes, pool.pool, stream);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DeviceAllocate(size_t bytes, void **memory)
{
  cudaError_t error = cudaSuccess;
  int         device;

  PetscFunctionBegin;
  *memory = nullptr;
  PetscCall(DeviceInitialize()); /* which chooses the GPU of this rank where that has not been done */
  if (!pool.opened) PetscCall(PoolOpen());
  PetscCallCUDA(cudaGetDevice(&device));
  if (pool.pool && device == pool.device) PetscCall(PoolAllocate(bytes, memory, &error));
  else {
    device_streams.several = device_streams.several || pool.pool; /* the program uses another GPU, too */
    error                  = cudaMalloc(memory, bytes);
  }
  if (error == cudaErrorMemoryAllocation) (void)cudaGetLastError();
  PetscCheck(error != cudaErrorMemoryAllocation, PETSC_COMM_SELF, PETSC_ERR_MEM, "The device has no %zu bytes left", bytes);
  PetscCallCUDA(error);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Where a program has changed the stream, what the other one was given may not be done, and whoever gives memory back waits for the
   GPU: cudaFree() does not for memory of a pool.
*/
PetscErrorCode DeviceFree(void *memory)
{
  cudaStream_t stream = nullptr;

  PetscFunctionBegin;
  if (pool.pool) PetscCall(DeviceGetStream(&stream));
  if (pool.pool && !device_streams.several) {
    PetscCallCUDA(cudaFreeAsync(memory, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (pool.pool) PetscCallCUDA(cudaDeviceSynchronize());
  PetscCallCUDA(cudaFree(memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DevicePoolDestroy_CUDA()
{
  PetscFunctionBegin;
  if (pool.pool) {
    (void)cudaMemPoolDestroy(pool.pool); /* the program may have reset the device */
    (void)cudaGetLastError();
  }
  pool           = Pool{};
  device_streams = DeviceStreams{};
  PetscFunctionReturn(PETSC_SUCCESS);
}
