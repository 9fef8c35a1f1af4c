/*
   What PCCMATCH keeps for levels on several ranks, the communication of their set-up in cmatch_ranks.cxx, and that of a cycle in
   cmatch_ranks_cycle.cxx. A level has the PetscSF `halo`, whose roots are the own rows and whose leaves are the ghosts. What goes
   to the rows of the next level, and comes from there, has lists of its own, since all rows of a rank may go to another one:
   PetscSF takes some 40 ns for each of them, and looks for their owners one by one. Only where a cycle communicates by MPI these
   lists become PetscSFs, see CMATCHRanksConnectByMPI().
*/
#pragma once

#include <petscsf.h>

#include <memory>

#include "cmatch_ranks.h"
#include "pc/local.h"
#include "ranks/delivery.h"

struct CMATCHRanksLevel {
  MPI_Comm                 comm  = MPI_COMM_NULL; /* of the ranks that have rows of this level; of the finest one, of all ranks */
  bool                     split = false;         /* it was made for this level */
  PetscMPIInt              size = 1, rank = 0;
  LocalInt                 rows = 0; /* own ones */
  PetscInt                 all  = 0; /* of all ranks */
  Exchange                 halo;     /* of the entries of ghosts */
  std::vector<PetscInt>    range;    /* [size + 1] where the rows of each rank begin */
  std::vector<PetscMPIInt> of_all;   /* [size] the numbers of its ranks among those of the finest level */

  /* what follows is of levels on several ranks */
  CMATCHRowList         send, receive;    /* rows that go to their owners on the next level, see CMATCHRanksSetUp */
  std::vector<PetscInt> number;           /* [rows that are sent] their numbers among the next level's rows of their owners */
  std::vector<LocalInt> place;            /* [rows that come] the numbers of the contributions */
  std::vector<LocalInt> entries;          /* [neighbours] of the products that come from each of them */
  LocalInt              mine = 0;         /* see CMATCHLevel */
  CMATCHOwnedRows       next{};           /* the rank's rows of the next level */
  bool                  gathered = false; /* the next level is on fewer ranks */

  /* Where a cycle communicates by MPI: ghosts are the rows that are sent, and entries the contributions, or the next level's rows.
   */
  Exchange down, up;
};

/* Entries of a vector in either memory, as long as this object lives. */
class CMATCHEntries {
public:
  CMATCHEntries()                                 = default;
  CMATCHEntries(const CMATCHEntries &)            = delete;
  CMATCHEntries &operator=(const CMATCHEntries &) = delete;
  CMATCHEntries &operator=(CMATCHEntries &&other)
  {
    Swap(&other);
    return *this;
  }
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

/* What CMATCHModes shows, in the memory of the matrix, of own rows and those of ghosts. */
struct CMATCHRanksModes {
  LocalInt      m = 0;
  CMATCHEntries B, diagonal;
  double        largest[kCMATCHMostModes] = {};

  CMATCHModes View(LocalInt k) const { return {k, m, B.data(), diagonal.data(), largest}; }
};

struct CMATCHRanks {
  std::vector<CMATCHRanksLevel> level;                      /* those that this rank has a part in */
  FinePCPrecision               precision;                  /* of the hierarchy */
  PetscMemType                  where = PETSC_MEMTYPE_HOST; /* memory of what is exchanged */
  PetscInt                      first = 0;                  /* the number of the rank's first row of the finest level */
  std::vector<PetscInt>         ghost;                      /* numbers of the ghosts of the finest level, which are rows */
  std::vector<PetscInt>         ghost_nodes;                /* the nodes that they are in, if the hierarchy is one of nodes */
  LocalInt                      k = 1;                      /* rows of a node; with more than 1 the hierarchy is one of nodes */
  CMATCHRanksModes              modes;                      /* of the nodes, if there are such */
  std::vector<PetscScalar>      staging;                    /* of the modes, where MPI takes no memory of the GPU */
  bool                          has_w = false;
  CMATCHEntries                 w;                       /* the near null vector, of own rows and ghosts */
  double                        largest   = 0;           /* diagonal entry of W A W, of all ranks */
  PetscBool                     keep_work = PETSC_FALSE; /* memory is to be kept for the next set-up */
  PetscBool                     keep      = PETSC_FALSE; /* the set-up at hand keeps aggregates, patterns and what is here */
  std::vector<PetscInt>         counts;                  /* what all ranks of a level have found, with room for the finest one */
  CMATCHStats                   stats     = {};          /* of this set-up, or of the last one */
  bool                          dominated = false;       /* the last level on several ranks has no aggregates */

  /* How a set-up and a cycle communicate. */
  bool        on_devices = false;   /* all ranks have their levels on GPUs */
  NCCL       *nccl       = nullptr; /* by it, or else */
  bool        direct     = false;   /* kernels of a cycle write to the other GPUs themselves */
  const char *why_mpi    = "";      /* why it does so by MPI, if all levels are on GPUs */

  std::unique_ptr<CMATCHRanksSetUp> setup; /* while it is under way */
};

/* Makes the finest level of a matrix, of nodes with k rows, and then, collectively, its PetscSF. */
PetscErrorCode CMATCHRanksCreate(Mat, PetscMemType, LocalInt k, const CMATCHParams *, CMATCHRanks **);
PetscErrorCode CMATCHRanksConnect(Mat, CMATCHRanks *);
PetscErrorCode CMATCHRanksDestroy(CMATCHRanks **);

/* The lists of an exchange of a level. `number` has those of the level's ranks among all ranks. */
Neighbours CMATCHListsOf(const CMATCHRanksLevel &, CMATCHKind, const std::vector<PetscMPIInt> &number);

/* Makes room for the exchanges of the cycle by NCCL. No communication; all ranks connect then, by CMATCHConnect_CUDA(). */
PetscErrorCode CMATCHRanksMakeRoom(CMATCHRanks *, CMATCHHierarchy *);
/* Makes the PetscSFs of a cycle that communicates by MPI, unless a rank has failed. Collective. */
PetscErrorCode CMATCHRanksConnectByMPI(PCLocalPhase *, CMATCHRanks *);

/* An exchange has this PetscSF from now on, for entries of so many values at most. */
PetscErrorCode CMATCHGiveSF(PetscMemType, PetscSF, LocalInt values, Exchange *);

/* Destroys all but the finest level and its PetscSF. */
PetscErrorCode CMATCHRanksForget(CMATCHRanks *);

/* The values of an entry of exchanges below the finest level at most. */
inline LocalInt CMATCHMostValues(const CMATCHRanks &ranks)
{
  return ranks.k > 1 ? kCMATCHMostModes : 1;
}

/* So many entries of each ghost of the finest level, behind the rank's own ones. Collective. */
PetscErrorCode CMATCHRanksHalo(CMATCHRanks *, LocalInt entries, PetscScalar *x);
/* What that needs for the near null vector or the modes, when there is a PetscSF: lists for NCCL, or room on the host. */
PetscErrorCode CMATCHRanksPrepareHalo(CMATCHRanks *);

/*
   Makes all levels below the finest one, which the set-up has begun with. Collective. An error of this rank is in the outcome of
   the phase then, and a failure in the stats.
*/
PetscErrorCode CMATCHRanksMakeLevels(PCLocalPhase *, CMATCHHierarchy *, CMATCHRanks *);
