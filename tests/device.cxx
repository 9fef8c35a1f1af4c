#include "device.h"

#include <finepc.h>

#if defined(FINEPC_HAVE_CUDA)
  #include <petscdevice_cuda.h>

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
