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
