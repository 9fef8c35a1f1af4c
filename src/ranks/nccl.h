/*
   NCCL, NVIDIA's library for communication between GPUs. It can do what MPI cannot: a sum or an exchange is part of a CUDA graph,
   so that the host need not wait for it.

   NCCL is optional twice. A build without its header has none, and a build with it opens libnccl.so.2 when it is first needed,
   rather than being linked with it: a plugin that is linked with a library does not load at all where the library is missing, and
   one package has to serve machines with and without NCCL. A program that uses NCCL itself shares its copy with finepc.

   A communicator needs a GPU of its own for each rank. There is one for each MPI communicator, made when it is first asked for, and
   kept with the MPI communicator as one of its attributes, since making one takes longer than many solves.
*/
#pragma once

#include "ranks/neighbours.h"
#include "sparse/memory.h"

struct NCCL;

constexpr size_t kNCCLText = kDeviceText; /* the longest text of a reason, with its end */
constexpr size_t kNCCLId   = 128;         /* bytes by which the ranks find each other: NCCL_UNIQUE_ID_BYTES */

/*
   The communicator for the GPUs of the ranks of an MPI communicator. Where there is none *nccl is null, and *why is the reason;
   both are the same on all ranks, and why is a text in the plural that goes on after "because". Collective.
*/
PetscErrorCode NCCLOf(MPI_Comm, NCCL **nccl, const char **why);
/* Destroys the communicators that are left, but those that a solver still has; when the package is finalized. */
PetscErrorCode NCCLFinalize();

/*
   `why` [kNCCLText] becomes that of the first rank that has a text, on all ranks. An error of one rank is one of all of them, as in
   AgreeOnError(). Collective.
*/
PetscErrorCode NCCLAgree(MPI_Comm, char why[], PetscErrorCode = PETSC_SUCCESS, const char text[] = "");

/* Entries of an array on the GPU that go to other ranks, and those of another one that come from them: so many bytes each. */
struct NCCLMessages {
  std::vector<Neighbours::Part> to, from;
  const void                   *sent;
  void                         *received;
  size_t                        bytes;
};
/* Sends and gets all of these together, in the order of the current stream. A rank may send to itself. No memory is taken. */
PetscErrorCode NCCLDeliver_CUDA(NCCL *, const std::vector<NCCLMessages> &);

/*
   An error if an operation of NCCL has met one, on this rank or by its connection to another, or if the host has waited for kernels
   longer than -finepc_wait_limit. What is under way is ended then, so that nothing waits for a rank that is gone.
*/
PetscErrorCode NCCLCheck_CUDA(NCCL *, double waited);

/* -------------------------------------- one rank's part --------------------------------------- */

/*
   In these functions `why` [kNCCLText] is given as an empty text, and gets the reason where NCCL cannot do it. That is no error,
   since other ranks wait for the answer.
*/

/* Opens the library, and makes an object without a communicator. */
PetscErrorCode NCCLOpen_CUDA(NCCL **, char why[]);
/* What tells the GPU of this rank from others of the same machine: the address on the bus. */
PetscErrorCode NCCLDeviceName_CUDA(char name[], size_t length);
PetscErrorCode NCCLMakeId_CUDA(char id[], char why[]);
/* How the GPUs of one machine get memory of one another, by which kernels make sums and exchanges themselves. */
enum NCCLSharing {
  NCCL_SHARES_NOTHING,
  NCCL_SHARES_IPC,     /* by CUDA's interprocess communication, between GPUs that each rank sees and that NVLink connects */
  NCCL_SHARES_WINDOWS, /* by NCCL's windows, where the library has exactly the version of the header */
};
PetscErrorCode NCCLHasWindows_CUDA(PetscBool *);
/* All ranks call it with the id of one of them. *memory says whether this rank has memory to share in this way. */
PetscErrorCode NCCLCreate_CUDA(const char id[], PetscMPIInt size, PetscMPIInt rank, NCCLSharing, NCCL *, PetscBool *memory,
                               char why[]);
/*
   Share that memory: the first where all ranks have some, the second where the first was done on all of them, with what it gave on
   each. *done says whether it was; where it was not on some rank, all ranks disconnect.
*/
struct NCCLShared {
  char memory[64], gpu[kNCCLText]; /* what opens the memory by IPC, and NCCLDeviceName_CUDA() */
};
PetscErrorCode NCCLRegister_CUDA(NCCL *, PetscMPIInt size, NCCLShared *, PetscBool *done);
PetscErrorCode NCCLConnect_CUDA(NCCL *, PetscMPIInt size, PetscMPIInt rank, const NCCLShared[], PetscBool *done);
PetscErrorCode NCCLDisconnect_CUDA(NCCL *);
/*
   Waits for the other ranks, which destroy theirs, if all of them have one. Leaves it as it is where a graph still has operations
   of it, for which NCCL would wait for ever.
*/
PetscErrorCode NCCLDestroy_CUDA(NCCL **, PetscBool all);
/* The version of the library, as in 2.28.3. */
PetscErrorCode NCCLVersion_CUDA(const NCCL *, char version[], size_t length);
