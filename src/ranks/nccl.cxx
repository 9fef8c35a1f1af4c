/* The NCCL communicators of MPI communicators: whether there can be one, which all ranks decide together, and where it is kept. */
#include <petscsys.h>

#include "ranks/agree.h"
#include "ranks/group.h"
#include "entry.h"
#include "ranks/nccl.h"

/* What an MPI communicator keeps. */
struct Kept {
  MPI_Comm comm           = MPI_COMM_NULL;
  NCCL    *nccl           = nullptr;
  char     why[kNCCLText] = ""; /* why there is none */
  Kept    *next           = nullptr;
};

/*
   The key of the attribute, and all that is kept: a communicator may live on when PETSc ends and the package is unloaded, so that
   NCCLFinalize() deletes the attributes of all, and MPI does not call DeleteKept() any more.
*/
struct Registry {
  PetscMPIInt key   = MPI_KEYVAL_INVALID;
  Kept       *first = nullptr;
};

static Registry &AllKept()
{
  static Registry all;
  return all;
}

/* MPI calls it when the communicator is freed, on all ranks. */
static int MPIAPI DeleteKept(MPI_Comm, PetscMPIInt, void *value, void *)
{
  Kept *const mine = (Kept *)value;
  Kept      **at   = &AllKept().first;
  while (*at && *at != mine) at = &(*at)->next;
  if (*at) *at = mine->next;
  const PetscErrorCode error = NCCLDestroy_CUDA(&mine->nccl, PETSC_TRUE);
  delete mine;
  return error ? MPI_ERR_OTHER : MPI_SUCCESS;
}

PetscErrorCode NCCLFinalize()
{
  Registry &all = AllKept();

  PetscFunctionBegin;
  while (all.first) PetscCallMPI(MPI_Comm_delete_attr(all.first->comm, all.key));
  if (all.key != MPI_KEYVAL_INVALID) PetscCallMPI(MPI_Comm_free_keyval(&all.key));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All ranks get the reason of the first one that has a reason. */
PetscErrorCode NCCLAgree(MPI_Comm comm, char why[], PetscErrorCode code, const char text[])
{
  PetscMPIInt rank, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  int first = *why ? size - rank : 0; /* largest on the first rank */
  PetscCall(AgreeOnError(comm, code, text, &first));
  if (first) PetscCallMPI(MPI_Bcast(why, (PetscMPIInt)kNCCLText, MPI_CHAR, size - first, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether it was done on all ranks. */
static PetscErrorCode OnAll(MPI_Comm comm, PetscBool *done)
{
  PetscMPIInt all = *done;

  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, comm));
  *done = (PetscBool)all;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How the GPUs share memory: the same on all ranks. */
static PetscErrorCode FindSharing(MPI_Comm comm, NCCLSharing *sharing)
{
  MPI_Comm    machine;
  PetscBool   windows;
  PetscMPIInt size, here;

  PetscFunctionBegin;
  PetscCall(NCCLHasWindows_CUDA(&windows));
  PetscCall(OnAll(comm, &windows));
  *sharing = NCCL_SHARES_WINDOWS;
  if (windows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
  PetscCallMPI(MPI_Comm_size(machine, &here));
  PetscCallMPI(MPI_Comm_free(&machine));
  PetscBool together = (PetscBool)(here == size);
  PetscCall(OnAll(comm, &together));
  *sharing = together ? NCCL_SHARES_IPC : NCCL_SHARES_NOTHING;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The communicator of NCCL, or the reason why there is none. `memory` is whether this rank has some for the others to write to. */
static PetscErrorCode Connect_NCCL(MPI_Comm comm, NCCL **nccl, PetscBool *memory, char why[])
{
  char        id[kNCCLId] = "", gpu[kGroupText] = "";
  NCCLSharing sharing;
  PetscBool   share;
  PetscMPIInt rank, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(NCCLAgree(comm, why, CallGuarded(NCCLOpen_CUDA, nccl, why), "open NCCL"));
  if (*why) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(RanksShareGPU(comm, NCCLDeviceName_CUDA(gpu, kGroupText), gpu, &share));
  if (share) PetscCall(PetscStrncpy(why, "ranks share a GPU", kNCCLText));
  if (*why) PetscFunctionReturn(PETSC_SUCCESS);
  if (rank == 0) PetscCall(NCCLMakeId_CUDA(id, why));
  PetscCall(NCCLAgree(comm, why));
  if (*why) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Bcast(id, (PetscMPIInt)kNCCLId, MPI_BYTE, 0, comm));
  PetscCall(FindSharing(comm, &sharing));
  PetscCall(NCCLCreate_CUDA(id, size, rank, sharing, *nccl, memory, why));
  PetscCall(NCCLAgree(comm, why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The GPUs write to one another if all of them have memory for it, and can. */
static PetscErrorCode Share_NCCL(MPI_Comm comm, NCCL *nccl, PetscBool done)
{
  std::vector<NCCLShared> shared;
  NCCLShared              mine{};
  PetscMPIInt             rank, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(OnAll(comm, &done));
  if (done) {
    PetscCall(NCCLRegister_CUDA(nccl, size, &mine, &done));
    PetscCall(OnAll(comm, &done));
  }
  if (done) {
    shared.resize(size);
    PetscCallMPI(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, shared.data(), sizeof(mine), MPI_BYTE, comm));
    PetscCall(NCCLConnect_CUDA(nccl, size, rank, shared.data(), &done));
    PetscCall(OnAll(comm, &done));
  }
  if (!done) PetscCall(NCCLDisconnect_CUDA(nccl));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Make_NCCL(MPI_Comm comm, Kept *mine)
{
  PetscBool memory = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(Connect_NCCL(comm, &mine->nccl, &memory, mine->why));
  if (*mine->why) PetscCall(NCCLDestroy_CUDA(&mine->nccl, PETSC_FALSE));
  else PetscCall(Share_NCCL(comm, mine->nccl, memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CreateKept(Kept **mine)
{
  PetscFunctionBegin;
  *mine = new Kept{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An error is one of all ranks. It leaves nothing that would be found, so that the next solve makes all anew. */
static PetscErrorCode MakeKept(MPI_Comm comm, Registry *all, Kept **made)
{
  Kept *mine = nullptr;

  PetscFunctionBegin;
  PetscErrorCode code = AgreeOnError(comm, CallGuarded(CreateKept, &mine), "keep a communicator of NCCL");
  if (!code) code = AgreeOnError(comm, Make_NCCL(comm, mine), "make a communicator of NCCL");
  if (code) {
    if (mine) (void)NCCLDestroy_CUDA(&mine->nccl, PETSC_FALSE);
    delete mine;
    PetscCall(code);
  }
  mine->comm = comm;
  mine->next = all->first;
  all->first = mine;
  PetscCallMPI(MPI_Comm_set_attr(comm, all->key, mine));
  *made = mine;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLOf(MPI_Comm comm, NCCL **nccl, const char **why)
{
  Registry   &all = AllKept();
  Kept       *mine;
  PetscMPIInt found;

  PetscFunctionBegin;
  if (all.key == MPI_KEYVAL_INVALID) PetscCallMPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, DeleteKept, &all.key, nullptr));
  PetscCallMPI(MPI_Comm_get_attr(comm, all.key, &mine, &found));
  if (!found) {
    PetscCall(MakeKept(comm, &all, &mine));
    PetscCall(PetscInfo(nullptr, "%s\n", mine->nccl ? "made a communicator of NCCL" : mine->why));
  }
  *nccl = mine->nccl;
  *why  = mine->nccl ? "" : mine->why;
  PetscFunctionReturn(PETSC_SUCCESS);
}
