/*
   In the place of cuda/ranks/nccl.cu: operations of NCCL by MPI, done when the emulator's stream comes to them, so that they can be
   captured. There is one communicator, of all ranks, each of which has a GPU of its own. The words that kernels write to other GPUs
   are memory that the ranks share. With FINEPC_EMULATOR_WORDS=0 in the environment there are none, and all exchanges are those of
   NCCL; with FINEPC_EMULATOR_WORDS=some a rank gets none for one exchange in three.
*/
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ranks/nccl.cuh"

struct NCCL {
  MPI_Comm  comm   = MPI_COMM_NULL;
  int       held   = 0;
  MPI_Win   window = MPI_WIN_NULL; /* of the words */
  RankPeers peers{};
  PeerSlots slots;
};

PetscErrorCode NCCLOpen_CUDA(NCCL **nccl, char[])
{
  PetscFunctionBegin;
  *nccl = new NCCL();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLDeviceName_CUDA(char name[], size_t length)
{
  PetscMPIInt rank;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  PetscCall(PetscSNPrintf(name, length, "emulator %d", (int)rank));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLMakeId_CUDA(char[], char[])
{
  return PETSC_SUCCESS;
}

static bool WordsAre(const char kind[])
{
  const char *const asked = std::getenv("FINEPC_EMULATOR_WORDS");
  return asked && !std::strcmp(asked, kind);
}

/* The words of all ranks, which are on one machine. */
static PetscErrorCode SharePeers(NCCL *nccl, PetscMPIInt size, PetscMPIInt rank)
{
  const size_t bytes = (PeerWords(size) + 1) * sizeof(uint4);
  MPI_Aint     length;
  int          unit;

  PetscFunctionBegin;
  if (size == 1 || size > kPeersMost || WordsAre("0")) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Win_allocate_shared((MPI_Aint)bytes, 1, MPI_INFO_NULL, nccl->comm, &nccl->peers.own, &nccl->window));
  for (PetscMPIInt r = 0; r < size; r++) PetscCallMPI(MPI_Win_shared_query(nccl->window, r, &length, &unit, &nccl->peers.words[r]));
  nccl->peers.ranks = size;
  nccl->peers.rank  = rank;
  nccl->peers.turn  = (unsigned *)(nccl->peers.own + PeerWords(size));
  std::memset((void *)nccl->peers.own, 0, bytes);
  *nccl->peers.turn = 1; /* the turns begin with it, which no word has */
  PetscCallMPI(MPI_Barrier(nccl->comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLHasWindows_CUDA(PetscBool *has)
{
  *has = PETSC_FALSE;
  return PETSC_SUCCESS;
}

PetscErrorCode NCCLCreate_CUDA(const char[], PetscMPIInt size, PetscMPIInt rank, NCCLSharing, NCCL *nccl, PetscBool *memory,
                               char why[])
{
  PetscMPIInt all;

  PetscFunctionBegin;
  *memory = PETSC_FALSE;
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &all));
  if (size == all) {
    PetscCallMPI(MPI_Comm_dup(PETSC_COMM_WORLD, &nccl->comm));
    PetscCall(SharePeers(nccl, size, rank));
  } else PetscCall(PetscStrncpy(why, "the emulator knows no groups of ranks", kNCCLText));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLDisconnect_CUDA(NCCL *)
{
  return PETSC_SUCCESS;
}

PetscErrorCode NCCLDestroy_CUDA(NCCL **nccl, PetscBool)
{
  PetscFunctionBegin;
  if (!*nccl) PetscFunctionReturn(PETSC_SUCCESS);
  if (!(*nccl)->held) {
    if ((*nccl)->window != MPI_WIN_NULL) PetscCallMPI(MPI_Win_free(&(*nccl)->window));
    if ((*nccl)->comm != MPI_COMM_NULL) PetscCallMPI(MPI_Comm_free(&(*nccl)->comm));
    delete *nccl;
  }
  *nccl = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLVersion_CUDA(const NCCL *, char version[], size_t length)
{
  return PetscStrncpy(version, "of the emulator", length);
}

void NCCLHold(NCCL *nccl)
{
  nccl->held++;
}

void NCCLRelease(NCCL *nccl)
{
  nccl->held--;
}

const RankPeers *NCCLPeers(const NCCL *nccl)
{
  return nccl->peers.ranks ? &nccl->peers : nullptr;
}

PetscErrorCode NCCLTakeSlots(NCCL *nccl, size_t count, LocalInt *first)
{
  static int calls = 0;

  PetscFunctionBegin;
  const bool none = WordsAre("some") && (++calls + nccl->peers.rank) % 3 == 0;
  *first          = nccl->peers.ranks && !none ? nccl->slots.Take(nccl->peers.ranks, count) : -1;
  if (*first >= 0) std::memset((void *)(nccl->peers.own + *first), 0, count * sizeof(uint4));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void NCCLGiveSlots(NCCL *nccl, LocalInt begin)
{
  nccl->slots.Give(begin);
}

PetscErrorCode NCCLSum(NCCL *nccl, const double *from, double *to, int count, cudaStream_t)
{
  PetscFunctionBegin;
  emulator::DoOrCapture([=] { MPI_Allreduce(from, to, count, MPI_DOUBLE, MPI_SUM, nccl->comm); });
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLExchange(NCCL *nccl, const std::vector<Neighbours::Part> &to, const void *packed,
                            const std::vector<Neighbours::Part> &from, void *received, size_t bytes, cudaStream_t)
{
  PetscFunctionBegin;
  emulator::DoOrCapture([=] {
    std::vector<MPI_Request> requests;
    requests.reserve(from.size() + to.size());
    for (const Neighbours::Part &part : from) {
      requests.emplace_back();
      MPI_Irecv((char *)received + part.begin * bytes, (int)((part.end - part.begin) * bytes), MPI_BYTE, part.rank, 0, nccl->comm,
                &requests.back());
    }
    for (const Neighbours::Part &part : to) {
      requests.emplace_back();
      MPI_Isend((const char *)packed + part.begin * bytes, (int)((part.end - part.begin) * bytes), MPI_BYTE, part.rank, 0,
                nccl->comm, &requests.back());
    }
    MPI_Waitall((int)requests.size(), requests.data(), MPI_STATUSES_IGNORE);
  });
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLDeliver_CUDA(NCCL *nccl, const std::vector<NCCLMessages> &arrays)
{
  PetscFunctionBegin;
  for (const NCCLMessages &array : arrays)
    PetscCall(NCCLExchange(nccl, array.to, array.sent, array.from, array.received, array.bytes, nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An error of MPI has ended the program. */
PetscErrorCode NCCLCheck_CUDA(NCCL *, double)
{
  return PETSC_SUCCESS;
}
