/* CUDA twin of src/sparse/memory_host.cxx and of a function in src/sparse/local_int.cxx. */
#include "buffer.cuh"
#include "launch.cuh"
#include "sparse/transfer.cuh"

static __global__ void CopyLocalInts(size_t count, const PetscInt *from, LocalInt *to)
{
  const size_t k = GridThread();
  if (k < count) to[k] = (LocalInt)from[k];
}

PetscErrorCode LocalIntCopy_CUDA(size_t count, const PetscInt *from, LocalInt *to)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  CopyLocalInts<<<BlocksFor(count), kBlockSize, 0, stream>>>(count, from, to);
  FinePCCheckLaunch();
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static __global__ void GatherValues(size_t count, const LocalInt *at, const PetscScalar *from, PetscScalar *to)
{
  const size_t k = GridThread();
  if (k < count) to[k] = from[at[k]];
}

PetscErrorCode ArrayGather_CUDA(size_t count, const LocalInt *at, const PetscScalar *from, PetscScalar *to)
{
  cudaStream_t        stream;
  Buffer<LocalInt>    places;
  Buffer<PetscScalar> values;

  PetscFunctionBegin;
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(places.Allocate(count));
  PetscCall(values.Allocate(count));
  PetscCall(ArrayCopy_CUDA(places.data(), at, places.bytes(), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  GatherValues<<<BlocksFor(count), kBlockSize, 0, stream>>>(count, places.data(), from, values.data());
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(to, values.data(), values.bytes(), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayCreate_CUDA(size_t bytes, void **data)
{
  PetscFunctionBegin;
  *data = nullptr;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceAllocate(bytes, data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayDestroy_CUDA(void **data)
{
  PetscFunctionBegin;
  if (*data) PetscCall(DeviceFree(*data));
  *data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayCopy_CUDA(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where)
{
  const ArrayTask task{to, from, bytes};

  PetscFunctionBegin;
  PetscCall(ArraysCopy_CUDA(1, &task, to_where, from_where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArraysCopy_CUDA(int count, const ArrayTask task[], PetscMemType to_where, PetscMemType from_where)
{
  const bool   to_device = PetscMemTypeDevice(to_where), from_device = PetscMemTypeDevice(from_where);
  const auto   kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice) : cudaMemcpyDeviceToHost;
  cudaStream_t stream;
  size_t       bytes = 0;
  bool         done  = false;

  PetscFunctionBegin;
  for (int k = 0; k < count; k++) bytes += task[k].bytes;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  if (count == 1 && from_device && !to_device && bytes <= kSmallRead) {
    PetscCall(SmallRead(task->from, bytes, task->to, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (to_device != from_device) PetscCall(ArraysTransfer(count, task, to_device, stream, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < count; k++)
    if (task[k].bytes) PetscCallCUDA(cudaMemcpyAsync(task[k].to, task[k].from, task[k].bytes, kind, stream));
  if (!to_device) PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MemoryPin_CUDA(void *memory, size_t bytes, PetscBool *pinned)
{
  PetscFunctionBegin;
  *pinned = (PetscBool)(cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess);
  if (!*pinned) (void)cudaGetLastError(); /* copies go by way of memory that is pinned already */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MemoryUnpin_CUDA(void *memory)
{
  PetscFunctionBegin;
  (void)cudaHostUnregister(memory); /* the program may have reset the device */
  (void)cudaGetLastError();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayZero_CUDA(void *data, size_t bytes)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(data, 0, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
