/*
   The GPU of a rank: which one it is, whether it can be used, and when it has done what it was given.

   A PETSc that has CUDA chooses the GPU and the stream, and its vectors and matrices may be there: all of this is PETSc's then.
   Where PETSc has none, finepc chooses, has a stream of its own, and keeps device memory away from PETSc, whose vectors and
   matrices are all on the host. What kernels need beside that is in cuda/device/device.cuh.
*/
#pragma once

#include "petsc_compat.h"

/* Without the CUDA twins everything is done on the host, even for matrices and vectors of PETSc's CUDA types. */
#if defined(FINEPC_HAVE_CUDA)
constexpr bool kHasCUDA = true;
#else
constexpr bool kHasCUDA = false;
#endif

/* Whether PETSc's vectors and matrices, and what its PetscSF exchanges, may be on the GPU. */
#if defined(FINEPC_PETSC_CUDA)
constexpr bool kPetscHasCUDA = true;
#else
constexpr bool kPetscHasCUDA = false;
#endif

constexpr size_t kDeviceText = 512; /* the longest text about a GPU, with its end */

/*
   Learns what the choice of a GPU follows, the option -finepc_device, or PETSc's options where PETSc has CUDA, and which of the
   ranks of its machine this one is, and how many of them there are. Collective on PETSC_COMM_WORLD; when the package is
   initialized.
*/
PetscErrorCode DeviceSetUp();
/* The number of the GPU that this rank takes of so many, or that PETSc will take. */
int DeviceNumber(int count);
/* How many ranks of this machine there are for each of so many GPUs, at least one. */
int DeviceRanks(int count);
/* Gives back what is finepc's own; when the package is finalized. */
PetscErrorCode DeviceFinalize_CUDA();
PetscErrorCode DeviceSolverDestroy_CUDA();
PetscErrorCode DevicePoolDestroy_CUDA();

/* Whether a vector is on the GPU and may be used there. */
PetscErrorCode VecIsOnDevice(Vec, PetscBool *device);
/* Whether MPI may be given memory of the GPU. */
bool DeviceMemoryGoesToMPI();

/* Whether there is a device; false in a build without CUDA. */
PetscErrorCode DeviceFound_CUDA(PetscBool *);
/* How many GPUs this process sees. */
PetscErrorCode DeviceCount_CUDA(int *);
/* A name of the GPU that this rank uses, or would use; without using it. */
PetscErrorCode DeviceName_CUDA(size_t length, char name[]);
/*
   Why this rank cannot use its GPU: there is none, the driver is too old, or the GPU is older than those that the kernels were
   compiled for; `why` [kDeviceText] is empty where nothing says so. This takes no memory of the GPU and no time.
*/
PetscErrorCode DeviceLookFor_CUDA(char why[]);
/*
   Begins with the GPU, which takes a part of a second once. `why` says why it cannot be used, such as that another process has it
   for itself, or all of its memory.
*/
PetscErrorCode DeviceOpen_CUDA(char why[]);
/* Says which GPU this is, to be called where finepc has chosen it. */
PetscErrorCode DeviceDescribe_CUDA(char text[], size_t length);
/* A line of a view about the GPU, where it is not PETSc's, whose own views tell. Collective on the viewer. */
PetscErrorCode DeviceView(PetscViewer, const char indent[]);

/* Bytes that finepc can still have, of which other programs may take some, too. Waits for the current stream. */
PetscErrorCode DeviceFreeBytes_CUDA(size_t *);
/* Waits for the current stream: what was given to it has been done, and an error of the GPU until here is met here. */
PetscErrorCode DeviceSynchronize_CUDA();
/* Whether the current stream is one that the default stream does not wait for, nor it for that one. */
PetscErrorCode DeviceStreamIsNonBlocking_CUDA(bool *);
/*
   Waits for all that the GPU does if the current stream is one that other streams do not wait for by themselves
   (PETSC_STREAM_NONBLOCKING). To be called before and after what runs in a stream that is not known.
*/
PetscErrorCode DeviceFence_CUDA();
