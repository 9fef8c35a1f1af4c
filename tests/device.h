/* The GPU, for programs of the tests that see the library from outside, too. Without CUDA there is none. */
#pragma once

#include "petsc_compat.h"

/* Whether there is one. */
bool FindDevice();
/* Whether cases of this file of tests can use it: where PETSc has no CUDA it has no matrices and vectors there. */
bool DeviceIsFor(const char file[]);
/* Whether its kernels are emulated, which takes long. */
bool DeviceIsEmulated();
/* Whether it still works: after an error in a kernel nothing does. */
bool DeviceWorks();
/* Bytes in use on it, by all programs, as the driver counts them: in pieces of 2 MiB. */
double DeviceBytesInUse();
/* The memory that exchanges between ranks are told to be in, where it is the GPU's. */
PetscMemType ExchangedMemory();
