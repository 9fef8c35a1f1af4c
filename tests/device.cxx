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

double DeviceBytesInUse()
{
  size_t free_bytes = 0, total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return 0;
  return (double)(total_bytes - free_bytes);
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
  for (const char *type : {"afsai", "bisai", "bsr", "cmatch", "cmatch_ranks_twin", "csr", "cudss", "dense", "nccl", "offload",
                           "pcinverse", "rrb", "sfsai", "slices"})
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

const MatType SolversOnDevice::rows = MATAIJCUSPARSE, SolversOnDevice::blocks = MATBAIJCUDA;

SolversOnDevice::SolversOnDevice()
{
}

SolversOnDevice::~SolversOnDevice()
{
}

PetscErrorCode SolversOnDevice::Place(Mat) const
{
  return PETSC_SUCCESS;
}
