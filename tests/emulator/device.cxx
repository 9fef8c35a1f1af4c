/* In the place of tests/device.cxx: the emulator is the GPU. */
#include "device.h"

#include "emulator.h"

bool FindDevice()
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
