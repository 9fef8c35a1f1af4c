/*
   What PCCMATCH keeps for levels on several ranks, and the communication of their set-up and of an application. A level has the
   PetscSF `halo`, whose roots are the own rows and whose leaves are the ghosts. What goes to the rows of the next level, and comes
   from there, has lists of its own, since all rows of a rank may go to another one: PetscSF takes some 40 ns for each of them, and
   looks for their owners one by one. Only where a cycle communicates by MPI these lists become PetscSFs, see
   CMATCHRanksConnectByMPI().
*/
#pragma once

#include <petscsf.h>

#include <memory>

#include "cmatch_ranks.h"
#include "pc/local.h"

/* Rows that go to neighbours or come from them, whose numbers in the communicator of the level ascend; see CMATCHRoute. */
struct CMATCHWay {
  std::vector<PetscMPIInt> ranks;
  std::vector<PetscInt>    begin, row;

  CMATCHRoute Route() const { return {(LocalInt)ranks.size(), begin.data(), row.data()}; }
};

struct CMATCHRanksLevel {
  MPI_Comm              comm  = MPI_COMM_NULL; /* of the ranks that have rows of this level; of the finest one, of all ranks */
  bool                  split = false;         /* it was made for this level */
  PetscMPIInt           size = 1, rank = 0;
  LocalInt              rows   = 0;     /* own ones */
  PetscInt              all    = 0;     /* of all ranks */
  bool                  stitch = false; /* rows have come together, so that the level may be stitched */
  PetscSF               halo   = nullptr;
  std::vector<PetscInt> range; /* [size + 1] where the rows of each rank begin */

  /* what follows is of levels on several ranks */
  CMATCHWay                sent, came;     /* rows that travel, see CMATCHRanksSetUp::Connect() */
  std::vector<PetscInt>    there;          /* [rows that are sent] their numbers among the next level's rows of their owners */
  std::vector<LocalInt>    place;          /* [rows that come] the numbers of the contributions */
  LocalInt                 width      = 1; /* of a row of P */
  LocalInt                 mine       = 0; /* see CMATCHLevel */
  LocalInt                 next_rows  = 0; /* the rank's rows of the next level */
  PetscInt                 next_first = 0; /* the number of the first one of them */
  PetscInt                 next_all   = 0;
  bool                     gathered   = false; /* the next level is on fewer ranks */
  std::vector<MPI_Request> requests;           /* of messages to and from these neighbours */

  /* Where a cycle communicates by MPI: leaves are the rows that are sent, and roots the next level's rows, or contributions. */
  PetscSF coarse = nullptr, multi = nullptr;
};

/* Entries of a vector in either memory, as long as this object lives. */
class CMATCHEntries {
public:
  CMATCHEntries()                                 = default;
  CMATCHEntries(const CMATCHEntries &)            = delete;
  CMATCHEntries &operator=(const CMATCHEntries &) = delete;
  ~CMATCHEntries() { PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy(where_, (void **)&data_)); }
  /* Room for `count` entries, of which the first n are those of `from`, in the same memory. */
  PetscErrorCode Assign(PetscMemType where, size_t count, const PetscScalar *from, size_t n)
  {
    PetscFunctionBegin;
    PetscCall(ArrayDestroy(where_, (void **)&data_));
    where_ = where;
    PetscCall(ArrayCreate(count * sizeof(*data_), where, (void **)&data_));
    if (n) PetscCall(ArrayCopy(data_, from, n * sizeof(*data_), where, where));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  void Swap(CMATCHEntries *other)
  {
    std::swap(data_, other->data_);
    std::swap(where_, other->where_);
  }
  PetscScalar *data() const { return data_; }

private:
  PetscScalar *data_  = nullptr;
  PetscMemType where_ = PETSC_MEMTYPE_HOST;
};

struct CMATCHRanks {
  std::vector<CMATCHRanksLevel> level;                      /* those that this rank has a part in */
  FinePCPrecision               precision;                  /* of the hierarchy */
  PetscMemType                  where = PETSC_MEMTYPE_HOST; /* memory of what is exchanged */
  PetscInt                      first = 0;                  /* the number of the rank's first row of the finest level */
  std::vector<PetscInt>         ghost;                      /* numbers of the ghosts of the finest level */
  bool                          has_w = false;
  CMATCHEntries                 w;                       /* the near null vector, of own rows and ghosts */
  double                        largest   = 0;           /* diagonal entry of W A W, of all ranks */
  PetscBool                     keep_work = PETSC_FALSE; /* memory is to be kept for the next set-up */
  PetscBool                     keep      = PETSC_FALSE; /* the set-up at hand keeps aggregates, patterns and what is here */
  std::vector<PetscInt>         told;                    /* what ranks tell each other on a level, with room for all of them */
  std::vector<PetscInt>         next_range;              /* [size + 1] where the rows of each rank begin on the next level */
  bool                          dominated = false;       /* the last level on several ranks has no aggregates */

  /* How a cycle communicates. */
  bool        on_devices = false;   /* all ranks have their levels on GPUs */
  NCCL       *nccl       = nullptr; /* by it, or else */
  bool        direct     = false;   /* kernels write to the other GPUs themselves */
  const char *why_mpi    = "";      /* why it does so by MPI, if all levels are on GPUs */

  std::unique_ptr<CMATCHRanksSetUp> setup; /* while it is under way */
};

/* Makes the finest level of a matrix, and then, collectively, its PetscSF. */
PetscErrorCode CMATCHRanksCreate(Mat, PetscMemType, const CMATCHParams *, CMATCHRanks **);
PetscErrorCode CMATCHRanksConnect(Mat, CMATCHRanks *);
PetscErrorCode CMATCHRanksDestroy(CMATCHRanks **);

/* The messages of an exchange of a level. `number` has those of the level's ranks among all ranks. */
PetscErrorCode CMATCHMessagesOf(const CMATCHRanksLevel &, CMATCHKind, const std::vector<PetscMPIInt> &number, CMATCHMessages *);

/* Makes room for the exchanges of the cycle by NCCL. No communication; all ranks connect then, by CMATCHConnect_CUDA(). */
PetscErrorCode CMATCHRanksMakeRoom(CMATCHRanks *, CMATCHHierarchy *);
/* Makes the PetscSFs of a cycle that communicates by MPI, unless a rank has failed. Collective. */
PetscErrorCode CMATCHRanksConnectByMPI(PCLocalPhase *, CMATCHRanks *);

/* Destroys all but the finest level and its PetscSF. */
PetscErrorCode CMATCHRanksForget(CMATCHRanks *);

/* The entries of ghosts of the finest level, behind the rank's own ones. Collective. */
PetscErrorCode CMATCHRanksHalo(const CMATCHRanks *, PetscScalar *x);

/*
   Makes all levels below the finest one, which the set-up has begun with. Collective. *stopped says whether this rank or one that
   it had a level with has an error, which is in the outcome of the phase, or a failure, which is in the stats of its set-up.
*/
PetscErrorCode CMATCHRanksDescend(PCLocalPhase *, CMATCHHierarchy *, CMATCHRanks *, bool *stopped);
