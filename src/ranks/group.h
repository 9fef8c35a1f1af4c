/*
   Ranks of a machine that come together: one of them, the leader, works with what all of them have written to memory that they
   share, and the others wait without keeping a core busy.
*/
#pragma once

#include <petscsys.h>

struct RankGroup {
  MPI_Comm    comm = MPI_COMM_NULL; /* of the group, in the order of the ranks */
  MPI_Comm    same = MPI_COMM_NULL; /* of the leaders of all groups, or of all ranks that do not lead */
  PetscMPIInt rank = 0, size = 1;   /* of this process in the group */
  PetscMPIInt leader   = 0;         /* its rank in the group */
  PetscMPIInt groups   = 1;
  MPI_Win     window   = MPI_WIN_NULL; /* of what follows */
  void       *meeting  = nullptr;
  long        meetings = 0; /* how often this rank has come to RankGroupMeet() */

  bool Leads() const { return rank == leader; }
};

/*
   Whether ranks of a machine have the same GPU, by the names that they give theirs; `named` is the error of finding this rank's
   name. Collective, as what follows.
*/
constexpr size_t kGroupText = 64; /* characters of such a name */
PetscErrorCode   RanksShareGPU(MPI_Comm, PetscErrorCode named, const char gpu[], PetscBool *share);
/* Whether no two of `count` names are the same; each takes `length` bytes and ends with a zero. */
PetscBool AreDistinct(int count, const char names[], size_t length);

/*
   Makes the groups of a communicator: of the ranks of each machine as many as the machine has GPUs, or one if no rank
   has any. `why` says why the ranks cannot come together, the same on all of them, and is empty if
   they can.
*/
PetscErrorCode RankGroupCreate(MPI_Comm, const char gpu[], RankGroup *, char why[]);
PetscErrorCode RankGroupDestroy(RankGroup *);

/* Returns when all ranks of the group have called it; what a rank has written before, the others read afterwards. */
PetscErrorCode RankGroupMeet(RankGroup *);

/* Memory that all ranks of a group share. */
struct SharedMemory {
  MPI_Win window = MPI_WIN_NULL;
  char   *data   = nullptr;
};
PetscErrorCode SharedMemoryCreate(const RankGroup *, size_t bytes, SharedMemory *);
PetscErrorCode SharedMemoryDestroy(SharedMemory *);
