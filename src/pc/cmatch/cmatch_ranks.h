/*
   The set-up of CMATCH's levels on several ranks, in the steps between which ranks communicate, and the exchanges of a cycle by
   NCCL. What is here knows arrays alone; cmatch_ranks_face.h has the communication. The method is explained above the steps on the
   host, in cmatch_host_ranks.cxx.
*/
#pragma once

#include <vector>

#include "cmatch_nodes.h"
#include "ranks/nccl.h"
#include "ranks/neighbours.h"

constexpr const char kCMATCHTooManyToSend[] =
  "A rank's part of a coarse operator has more entries than 32 bits can count: lower -pc_cmatch_prolongator_row";
constexpr const char kCMATCHTooManyCome[] =
  "A rank gets more entries of a coarse operator than 32 bits can count: lower -pc_cmatch_gather_rows";

/* Rows that go to neighbours or come from them: rows[part.begin] to rows[part.end - 1]. The neighbours ascend. */
struct CMATCHRowList {
  std::vector<Neighbours::Part> parts;
  std::vector<LocalInt>         rows;
};

/* The nodes of k rows that these rows are in, both ascending. */
inline std::vector<GlobalInt> CMATCHGhostNodes(const std::vector<GlobalInt> &rows, LocalInt k)
{
  std::vector<GlobalInt> nodes;

  for (GlobalInt row : rows)
    if (nodes.empty() || nodes.back() != row / k) nodes.push_back(row / k);
  return nodes;
}

/* Aggregates that were found: how many, rows that are left, and entries of M on them, or 0 where each level has an M of its own. */
struct CMATCHMatch {
  LocalInt   coarse, left;
  PetscInt64 entries;
};

/* Values of rows that go to other ranks, packed, and where those of ghosts go, in the memory of the set-up. */
struct CMATCHHalo {
  void *packed, *ghosts;
};

/* Rows that go to their owners on the next level: of the Galerkin product, and of the operator M that the matching sees. */
enum CMATCHRowKind { CMATCH_PRODUCTS, CMATCH_MATCHING, CMATCH_ROW_KINDS };

constexpr int kCMATCHRowSums = 3;

/*
   Such rows in the order of a list, in the memory of the set-up. A row has three numbers beside its entries: how many these are,
   which a double can hold, its row sum, or of M the diagonal entry, and its size, see CMATCHSums. Columns are numbers on the next
   level.
*/
struct CMATCHRowData {
  double    *sums = nullptr; /* [rows][width] */
  GlobalInt *j    = nullptr; /* columns of all entries */
  double    *a    = nullptr; /* their values */

  /* of a hierarchy of nodes, whose rows have other numbers behind the first one, and whose entries are blocks */
  int width = kCMATCHRowSums, block = 1;
};
struct CMATCHSentRows : CMATCHRowData {
  std::vector<LocalInt> entries; /* of each part of the list */
};

/* The rows of a rank on a level: the number of the first one, and the rows of all ranks. */
struct CMATCHOwnedRows {
  LocalInt  rows;
  GlobalInt first, all;
};

/*
   A set-up under way, of a hierarchy of rows or of nodes; with the latter, what follows is about nodes where it says rows, and
   about rows of blocks. Each step but the first and the last ones is one of a level l, and they are called in the order in which
   they stand here; between them, ranks exchange what the steps have returned, which is valid until the next step. With `keep` the
   hierarchy is one of a matrix with the same nonzeros and the same parameters, whose aggregates, patterns and numbers stay. A
   failure is in the stats.
*/
class CMATCHRanksSetUp {
public:
  virtual ~CMATCHRanksSetUp() = default;

  /* Makes the finest level of A, whose ghosts have these numbers. The matrix and w are in the memory of the set-up. */
  virtual PetscErrorCode Begin(const CSRView *own, const CSRView *foreign, const std::vector<GlobalInt> &ghost,
                               const PetscScalar *w, double largest) = 0;

  /* Finds aggregates. What is kept of the hierarchy does not change. Not with keep, as Number(). */
  virtual PetscErrorCode Match(LocalInt l, CMATCHTransfer, CMATCHMatch *) = 0;

  /* Takes them, and numbers them from first_coarse on: the numbers of the aggregates of rows, -1 for rows that are left. */
  virtual PetscErrorCode Number(LocalInt l, GlobalInt first_coarse, const std::vector<LocalInt> &send, CMATCHHalo *numbers) = 0;

  /*
     Of nodes alone, in each set-up: what ghosts have for P, so many values in double precision; and then the estimate of the
     largest eigenvalue of all ranks of the level, which they find together. That needs no memory that Share() has not made.
  */
  virtual PetscErrorCode Share(LocalInt, const std::vector<LocalInt> & /* send */, CMATCHHalo *, int *width)
  {
    *width = 0;
    return PETSC_SUCCESS;
  }
  virtual PetscErrorCode Estimate(LocalInt) { return PETSC_SUCCESS; }

  /* Makes P and R: the columns of P by their numbers on the next level, -1 behind them, and the values. With keep, values alone. */
  virtual PetscErrorCode Prolong(LocalInt l, const std::vector<LocalInt> &send, CMATCHHalo *columns, CMATCHHalo *values) = 0;

  /*
     Multiplies, and packs the rows that this rank sends, of so many kinds. Row r of the list is aggregate `mine` + r, where the
     foreign aggregates come behind the own ones.
  */
  virtual PetscErrorCode Multiply(LocalInt l, LocalInt mine, const CMATCHRowList &send, int kinds, CMATCHSentRows sent[]) = 0;

  /* Room for rows that come, with so many entries of each kind. */
  virtual PetscErrorCode MakeRoom(LocalInt rows, int kinds, const LocalInt entries[], CMATCHRowData received[]) = 0;

  /*
     Makes level l + 1, of which the rank has these rows, from its own products and the rows that have come, the contributions to
     the rows that `receive` names. Contributions are numbered in the order of these rows, and those to the same row in the order of
     the neighbours: `place` becomes the number of each row that comes. With keep, `place` has that already.
  */
  virtual PetscErrorCode Next(LocalInt l, const CMATCHOwnedRows &, const CMATCHRowList &receive, std::vector<LocalInt> *place) = 0;

  /* Makes the levels from l on of a rank that has level l alone, or ends those of a rank that has no rows of level l. */
  virtual PetscErrorCode End(LocalInt l, bool alone) = 0;

  /*
     Scales the factors of levels on several ranks by the largest eigenvalue of all of them, which they find together. It needs no
     memory that End() has not made. Only with the smoothers that have factors, and when all ranks have ended their levels.
  */
  virtual PetscErrorCode ScaleFactors() = 0;

  /* The last step. `work` is that of CMATCHComputeHierarchy_X(). */
  virtual PetscErrorCode Close(PetscBool work) = 0;
};

/* Begins a set-up, with a new hierarchy in the place of *H unless keep. The caller deletes *setup before the stats. */
PetscErrorCode CMATCHRanksCreate_Host(const CMATCHParams *, PetscBool keep, CMATCHStats *, CMATCHHierarchy **H,
                                      CMATCHRanksSetUp **setup);
PetscErrorCode CMATCHRanksCreate_CUDA(const CMATCHParams *, PetscBool keep, CMATCHStats *, CMATCHHierarchy **H,
                                      CMATCHRanksSetUp **setup);

/* The same for a hierarchy of nodes, whose modes, with those of ghosts, the set-up borrows. */
PetscErrorCode CMATCHNodesRanksCreate_Host(const CMATCHParams *, const CMATCHModes *, PetscBool keep, PetscBool work, CMATCHStats *,
                                           CMATCHHierarchy **H, CMATCHRanksSetUp **setup);

PetscErrorCode CMATCHNodesRanksCreate_CUDA(const CMATCHParams *, const CMATCHModes *, PetscBool keep, PetscBool work, CMATCHStats *,
                                           CMATCHHierarchy **H, CMATCHRanksSetUp **setup);

/* The values of a node as one entry of an exchange. */
class CMATCHNodeType {
public:
  CMATCHNodeType()                                  = default;
  CMATCHNodeType(const CMATCHNodeType &)            = delete;
  CMATCHNodeType &operator=(const CMATCHNodeType &) = delete;
  ~CMATCHNodeType() { Free(); }

  PetscErrorCode Make(MPI_Datatype value, LocalInt values)
  {
    PetscFunctionBegin;
    Free();
    PetscCallMPI(MPI_Type_contiguous(values, value, &type_));
    PetscCallMPI(MPI_Type_commit(&type_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  MPI_Datatype Get() const { return type_; }

private:
  void Free()
  {
    if (type_ != MPI_DATATYPE_NULL) (void)MPI_Type_free(&type_);
  }

  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/* The exchanges of a level in a cycle, see CMATCHLevel. */
enum CMATCHKind { CMATCH_HALO, CMATCH_DOWN, CMATCH_UP, CMATCH_KINDS };

/*
   The exchanges of a cycle by NCCL from now on, in the stream of the cycle: room for those of all levels on several ranks, of which
   `lists` [several * CMATCH_KINDS] has the lists, with the numbers that ranks have among all of them. All ranks connect when each
   of them has it. Every exchange is made once then: the first one takes long, and a graph could not hold it. *direct says whether
   kernels write to the other GPUs themselves in all of them.
*/
PetscErrorCode CMATCHMakeRoom_CUDA(CMATCHHierarchy *, NCCL *, std::vector<Neighbours> *lists);
PetscErrorCode CMATCHConnect_CUDA(CMATCHHierarchy *, MPI_Comm, bool *direct);

/* The largest magnitude of a diagonal entry of W A W. w [n] is in the memory of A, or null for ones; see CMATCHParams for `zero`.
 */
PetscErrorCode CMATCHLargestDiagonal_Host(const CSRView *A, const PetscScalar *w, PetscReal zero, double *largest);
PetscErrorCode CMATCHLargestDiagonal_CUDA(const CSRView *A, const PetscScalar *w, PetscReal zero, double *largest);
