/* In the place of tests/device.cxx: the emulator is the GPU. */
#include "device.h"

#include <finepc.h>

#include "emulator.h"
#include "solver.h"

bool emulated_solvers  = false;
bool emulated_matrices = false;

bool FindDevice()
{
  return true;
}

bool DeviceIsFor(const char[])
{
  return true;
}

bool DeviceIsEmulated()
{
  return true;
}

bool DeviceWorks()
{
  return true;
}

double DeviceBytesInUse()
{
  return (double)emulator::BytesInUse();
}

/* To PETSc it is memory as any other. */
PetscMemType ExchangedMemory()
{
  return PETSC_MEMTYPE_HOST;
}

/* To PETSc matrices and vectors are on the host. */
const MatType SolversOnDevice::rows = MATAIJ, SolversOnDevice::blocks = MATBAIJCUDA;

SolversOnDevice::SolversOnDevice()
{
  emulated_solvers = true;
}

SolversOnDevice::~SolversOnDevice()
{
  emulated_solvers = false;
}

PetscErrorCode SolversOnDevice::Place(Mat A) const
{
  Mat block;

  PetscFunctionBegin;
  PetscCall(MatGetDiagonalBlock(A, &block));
  for (Mat B : {A, block}) PetscCall(MatSetVecType(B, VECSTANDARD));
  PetscFunctionReturn(PETSC_SUCCESS);
}
