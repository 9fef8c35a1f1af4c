#include "device.h"

#include <finepc.h>

#include <string>

#if defined(FINEPC_HAVE_CUDA)
  #include "device/device.cuh"

/* PETSc has no question for it; cudaGetDeviceCount() is an error, and not fatal, where there is no driver. */
bool FindDevice()
{
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
  (void)cudaGetLastError();
  return false;
}

bool DeviceWorks()
{
  return cudaDeviceSynchronize() == cudaSuccess;
}

/* The driver takes back what pools have free, which is not in use, before it says that there is no memory. */
double DeviceBytesInUse()
{
  size_t left = 0, total = 0;
  void  *none = nullptr;
  if (cudaDeviceSynchronize() != cudaSuccess || cudaMemGetInfo(&left, &total) != cudaSuccess) return 0;
  if (cudaMalloc(&none, total) == cudaSuccess) (void)cudaFree(none);
  (void)cudaGetLastError();
  return cudaMemGetInfo(&left, &total) == cudaSuccess ? (double)(total - left) : 0;
}

#else

bool FindDevice()
{
  return false;
}

bool DeviceWorks()
{
  return false;
}

double DeviceBytesInUse()
{
  return 0;
}

#endif

/* The twins alone, and what sends the matrix of the host, need no matrix or vector of PETSc's there. */
bool DeviceIsFor(const char file[])
{
#if defined(FINEPC_PETSC_CUDA)
  (void)file;
  return true;
#else
  const std::string name = std::string(file).substr(std::string(file).find_last_of('/') + 1);
  for (const char *type : {"afsai", "bisai", "bsr", "cmatch", "cmatch_nodes_twins", "cmatch_ranks_twin", "consolidated", "csr",
                           "cudss", "dense", "memory", "nccl", "offload", "pcinverse", "pool", "rrb", "sfsai", "slices"})
    if (name == std::string(type) + "_test.cxx") return true;
  return false;
#endif
}

bool DeviceIsEmulated()
{
  return false;
}

PetscMemType ExchangedMemory()
{
  return PETSC_MEMTYPE_CUDA;
}
