/*
   The set-up of CMATCH's levels on several ranks, in the steps between which ranks communicate, and the exchanges of a cycle by
   NCCL. What is here knows arrays alone; cmatch_ranks_face.h has the communication. The method is explained above the steps on the
   host, in cmatch_host_ranks.cxx.
*/
#pragma once

#include <array>
#include <vector>

#include "cmatch.h"
#include "ranks/nccl.h"
#include "ranks/neighbours.h"

/* Rows that travel to the ranks that have them on the next level. */
enum CMATCHTravel {
  CMATCH_PRODUCTS, /* of the Galerkin product, for aggregates from `mine` on */
  CMATCH_MATCHING  /* of the operator that the matching sees, for the same aggregates; foreign ones have none here */
};

constexpr const char kCMATCHTooManyToSend[] =
  "A rank's part of a coarse operator has more entries than 32 bits can count: lower -pc_cmatch_prolongator_row";
constexpr const char kCMATCHTooManyCome[] =
  "A rank gets more entries of a coarse operator than 32 bits can count: lower -pc_cmatch_gather_rows";

/* The neighbours that rows travel to, or come from: the rows of neighbour k are row[begin[k]] to row[begin[k + 1] - 1]. */
struct CMATCHRoute {
  LocalInt        neighbours = 0;
  const PetscInt *begin      = nullptr; /* [neighbours + 1] */
  const PetscInt *row        = nullptr; /* [Rows()] */

  LocalInt Rows() const { return neighbours ? (LocalInt)begin[neighbours] : 0; }
};

/*
   What of such rows is exchanged, in the memory of the set-up, in the order of the neighbours and of the rows of each. Columns are
   numbers on the next level. A row has two numbers ahead of its entries: how many these are, which a double can hold, and the row
   sum, or the diagonal entry of the operator of the matching.
*/
struct CMATCHTravellers {
  double    *head = nullptr, *all_head = nullptr; /* [rows][kCMATCHHead] of those that are sent, and of those that come */
  GlobalInt *j = nullptr, *all_j = nullptr;       /* columns of all entries */
  double    *a = nullptr, *all_a = nullptr;       /* their values */
};
constexpr int kCMATCHHead = 3;

/*
   A set-up under way. Each step but the first ones is one of a level l, and they are called in the order in which they stand here.
   With `keep` the hierarchy is one of a matrix with the same nonzeros and the same parameters, whose aggregates, patterns and
   numbers stay. A failure is in the stats.
*/
class CMATCHRanksSetUp {
public:
  virtual ~CMATCHRanksSetUp() = default;

  /* Makes the finest level of A, whose ghosts have these numbers. The matrix and w are in the memory of the set-up. */
  virtual PetscErrorCode Begin(const CSRView *own, const CSRView *foreign, const std::vector<GlobalInt> &ghost,
                               const PetscScalar *w, double largest) = 0;

  /*
     Finds aggregates, whose number is `coarse`, and of rows that are left `left`. `entries` are those of the rows of M then, with
     the diagonal, or 0 where M is not carried from level to level. What is kept of the hierarchy does not change.
  */
  virtual PetscErrorCode Find(LocalInt l, CMATCHTransfer) = 0;

  /* Takes them unless keep, and makes `numbers` of the own rows. */
  virtual PetscErrorCode Take(LocalInt l, GlobalInt first_coarse) = 0;

  /* Packs such rows of x, of so many bytes each, as the route lists them. The memory is valid until the next step. */
  virtual PetscErrorCode PackOwnRows(const CMATCHRoute &, size_t bytes, const void *x, void **packed) = 0;

  /* Makes P from the `numbers` of own rows and ghosts, R, and the columns `P_j` of own rows. */
  virtual PetscErrorCode Prolong(LocalInt l) = 0;

  /* Multiplies, when `P_j` and the values of P have come for ghosts, too. */
  virtual PetscErrorCode Multiply(LocalInt l, LocalInt mine) = 0;

  /*
     The neighbours of rows that travel, in ascending order, which the set-up keeps with the hierarchy. Row r that is sent is
     aggregate `mine` + r, where the foreign aggregates come behind the own ones. A row that comes is a contribution to one of this
     rank's `rows` of the next level. Contributions are numbered in the order of these rows, and those to the same row in the order
     of the neighbours: `place` becomes the number of each row that comes.
  */
  virtual PetscErrorCode Connect(LocalInt l, LocalInt rows, const CMATCHRoute &sent, const CMATCHRoute &came) = 0;

  /*
     Rows travel: opened, they have heads, and their entries are there, of which each neighbour gets so many. When heads have come,
     there is room for the entries that each neighbour sends. Rows that were not opened do not come.
  */
  virtual PetscErrorCode OpenRows(CMATCHTravel, LocalInt l, std::vector<LocalInt> *entries) = 0;
  virtual PetscErrorCode MakeRoom(CMATCHTravel, LocalInt l, std::vector<LocalInt> *entries) = 0;

  /* Makes level l + 1, of which the rank has these rows, from its own products and the contributions that have come. */
  virtual PetscErrorCode Next(LocalInt l, LocalInt rows, GlobalInt first, GlobalInt all) = 0;

  /* Makes the levels from l on of a rank that has level l alone, or ends those of a rank that has no rows of level l. */
  virtual PetscErrorCode End(LocalInt l, bool alone, bool stitch) = 0;

  /*
     Scales the factor of a level on several ranks by the largest eigenvalue of all of them, which they find together. It needs no
     memory that End() has not made. Only with the smoothers that have factors, and when all ranks have ended their levels.
  */
  virtual PetscErrorCode ScaleFactor(LocalInt l) = 0;

  /* The last step. `work` is that of CMATCHComputeHierarchy_X(). */
  virtual PetscErrorCode Close(PetscBool work) = 0;

  /*
     For a rank that has failed: memory of the kind that is exchanged, full of this byte. It is valid until the next call; what the
     steps have made may be lost.
  */
  virtual PetscErrorCode Spare(size_t bytes, int byte, void **memory) = 0;

  PetscBool   keep;
  CMATCHStats stats = {};
  void       *spare = nullptr; /* that memory */

  LocalInt              coarse = 0, left = 0;
  PetscInt64            entries = 0;
  GlobalInt            *numbers = nullptr; /* [n + ghosts] of the aggregates of rows on the next level, -1 for rows that are left */
  GlobalInt            *P_j = nullptr; /* [n + ghosts][width] columns of P by their numbers on the next level, and -1 behind them */
  std::vector<LocalInt> place;         /* see Connect() */
  CMATCHTravellers      travellers;
};

/* Begins a set-up, with a new hierarchy in the place of *H unless keep. The caller deletes *setup. */
PetscErrorCode CMATCHRanksCreate_Host(const CMATCHParams *, PetscBool keep, CMATCHHierarchy **H, CMATCHRanksSetUp **setup);
PetscErrorCode CMATCHRanksCreate_CUDA(const CMATCHParams *, PetscBool keep, CMATCHHierarchy **H, CMATCHRanksSetUp **setup);

/* The exchanges of a level in a cycle, see CMATCHExchange. */
enum CMATCHKind { CMATCH_HALO, CMATCH_DOWN, CMATCH_UP, CMATCH_KINDS };

/*
   What a rank sends and gets in such an exchange. Ranks have the numbers that they have among all ranks. Entries that the rank
   sends to itself are apart. In every list the entries are in the order in which the other end has them.
*/
struct CMATCHMessages {
  std::vector<Neighbours::Part> to, from; /* other ranks: parts of what is packed, and of what comes */
  std::vector<LocalInt> sent, came; /* where that is in the vectors; empty where each part is a piece of its vector as it is */
  std::vector<LocalInt> own_from, own_to; /* where this rank has what it sends to itself, and where it goes */
};
using CMATCHLevelMessages = std::array<CMATCHMessages, CMATCH_KINDS>;

/*
   The exchanges of a cycle by NCCL from now on, in the stream of the cycle: room for those of all levels on several ranks, whose
   lists are consumed. All ranks connect when each of them has it. Every exchange is made once then: the first one takes long, and
   a graph could not hold it. *direct says whether kernels write to the other GPUs themselves in all of them.
*/
PetscErrorCode CMATCHMakeRoom_CUDA(CMATCHHierarchy *, NCCL *, std::vector<CMATCHLevelMessages> *);
PetscErrorCode CMATCHConnect_CUDA(CMATCHHierarchy *, MPI_Comm, bool *direct);

/* The largest magnitude of a diagonal entry of W A W. w [n] is in the memory of A, or null for ones; see CMATCHParams for `zero`.
 */
PetscErrorCode CMATCHLargestDiagonal_Host(const CSRView *A, const PetscScalar *w, PetscReal zero, double *largest);
PetscErrorCode CMATCHLargestDiagonal_CUDA(const CSRView *A, const PetscScalar *w, PetscReal zero, double *largest);
