/*
   What the files of CMATCH on the GPU share: the hierarchy with its vectors and graph, the work of a set-up, and what one file does
   for the others.

     cmatch.cu            the set-up as a whole, and the finest level
     cmatch_levels.cu     the memory of levels, what completes one, and the report of a set-up
     cmatch_aggregate.cu  aggregates, by matching or by an independent set
     cmatch_fit.cu        whether aggregates that are kept still fit
     cmatch_galerkin.cu   the prolongator, its transpose, the Galerkin product
     cmatch_ranks.cu      the set-up of levels on several ranks
     cmatch_coarsest.cu   the coarsest level: its inverse, and its solution
     cmatch_fsai.cu       the factors of the smoothers sfsai and afsai
     cmatch_cycle.cu      the cycle
     cmatch_exchange.cu   exchanges of a cycle by NCCL
     cmatch_nodes*.cu     hierarchies of nodes, see cmatch_nodes.cuh
     cmatch_uneven.cu     rows of nodes of different sizes

   The set-up makes sums in the order of the host twin, and its files are compiled without fused multiplications and additions, so
   that both twins compute the same bits. The formulas are those of cmatch_host.cxx.
*/
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "buffer.cuh"
#include "ranks/exchange.cuh"
#include "pc/cmatch/cmatch_nodes.h"
#include "pc/cmatch/cmatch_ranks.h"
#include "pc/sfsai/sfsai.h"
#include "scratch.cuh"

/* ---------------------------------------- the hierarchy --------------------------------------- */

/* What the kernels of a cycle share. */
struct CMATCHControl {
  double             scale;   /* that of the hierarchy */
  double             factor;  /* r is multiplied by it where the cycle begins, and z is divided by it: a power of 2 */
  unsigned long long largest; /* the bits of the largest magnitude of an entry of r, while it is looked for */
  double             own;     /* the same of this rank, where NCCL adds those of all ranks to `largest` */
};

/*
   What a solver passes: the square of the size of r, and whether its iterations have ended, *stage >= stop; or nothing. The stage
   does not change during a cycle.
*/
struct CMATCHSolverState {
  const double *square;
  const int    *stage;
  int           stop;

  /*
     Whether the cycle is not wanted any more; where it gives true, the kernel ahead has ended. The first kernel of a cycle asks
     after it has waited for the kernel ahead, the others before they read anything.
  */
  __device__ __forceinline__ bool Skip() const
  {
    if (!stage || *stage < stop) return false;
    WaitForPrevious();
    return true;
  }
};

/* Vectors of a level, of type T. Those that the options do not need are null. */
struct CMATCHVectors {
  void *b, *r; /* right-hand side, residual */
  void *x[2];  /* the iterate, which a product reads in one array and writes in the other */
  void *z[2];  /* corrections of a polynomial */
};

/* What a level has beside what its CMATCHLevel shows. */
struct CMATCHLevelCUDA {
  CMATCHVectors vectors = {};
  double       *rs      = nullptr; /* [n] the row sums in double */
  size_t        AP_room = 0;       /* entries that A P needed memory for */
  size_t        AP_nnz  = 0;       /* entries of A P */
  bool          one_way = false;   /* all rows of P, A P and R (A P) were made the first way that their kernels try */
  LocalInt      longest = 0;       /* blocks of the longest row, of a hierarchy of nodes */

  /* what follows is of levels on several ranks */
  std::vector<GlobalInt> ghost;                 /* see CMATCHLevel */
  std::vector<GlobalInt> column;                /* numbers of the foreign aggregates, and of the others in rows of P of ghosts */
  LocalInt               met = 0;               /* aggregates of ghosts, whether they are columns of P or not */
  LocalInt *inner = nullptr, *border = nullptr; /* rows without and with entries in columns of ghosts, ascending; slices of nodes */
  LocalInt  inners = 0, borders = 0;
  LocalInt *add_i       = nullptr; /* [rows of the next level + 1] where the contributions for a row begin */
  LocalInt  rows        = 0;       /* own ones of the next level */
  void     *values      = nullptr; /* [coarse + foreign] R r, or the correction that is to be interpolated */
  void     *added       = nullptr; /* [contributions] */
  const LocalInt *order = nullptr; /* [contributions] where each of them is in `added`, or null if they are in order */

  /* Of the CMATCHRowList of rows that are sent: the neighbours, [parts + 1] where the rows of each begin, and the rows. */
  LocalInt  parts = 0, sent = 0;
  LocalInt *part = nullptr, *send = nullptr;
  LocalInt *place = nullptr; /* [contributions] the number of each row that comes */

  std::shared_ptr<CMATCHNodeType> type, coarse_type; /* of nodes: of the vectors, and of those of the next level */

  /* of the level's factor, if it has one */
  double        *inverse_psi = nullptr; /* [n] until the factor is scaled */
  unsigned char *alone       = nullptr; /* [n + ghosts] whether nothing beside the diagonal counts in a row, likewise */
  LocalInt      *own_i       = nullptr; /* [n + 1] where rows begin without columns of ghosts, but with the diagonal */
  LocalInt       own_nnz     = 0;
};

struct CMATCHHierarchyCUDA : CMATCHHierarchy {
  WorkMeter                 meter;  /* of the memory below */
  std::vector<Buffer<char>> memory; /* of the levels */
  Buffer<char>              common{&meter};
  WorkMeter                 work_meter;          /* of the memory of a set-up */
  Buffer<char>              work{&work_meter};   /* of the last set-up, if it is kept */
  Buffer<char>              report{&work_meter}; /* the same, see CMATCHSetup */
  Buffer<char>              outbox[4]                      = {Buffer<char>(&meter), Buffer<char>(&meter), Buffer<char>(&meter),
                                                              Buffer<char>(&meter)}; /* what a set-up on several ranks sends */
  SFSAIWork                 factor_work[kCMATCHMostLevels] = {}; /* the same of the smoother sfsai, of each level */
  CMATCHLevelCUDA           device[kCMATCHMostLevels];

  /* the coarsest level */
  CMATCHEnd      end = CMATCH_END_SIZE;
  Buffer<double> inverse{&meter};   /* [n][n] */
  Buffer<double> iteration{&meter}; /* [4][n] vectors of the conjugate gradient method */

  /* its singular components, for that method: their number, [n + 1] where their rows begin, and [n] the rows */
  Buffer<LocalInt> parts{&meter};

  /* the cycle */
  CMATCHControl  *control    = nullptr; /* in common, as the next two */
  const double  **caller     = nullptr; /* r and z of the captured cycle */
  int             processors = 0;
  long            generation = 0; /* another one for each set-up of any hierarchy that has made new memory */
  bool            early      = false;
  bool            careful    = false;   /* a refill that did not wait for its products had to be made again */
  cudaStream_t    capture    = nullptr; /* for captures alone */
  cudaGraphExec_t graph      = nullptr; /* the cycle; of several ranks without NCCL, the part of one rank */
  int             graph_x    = 0;       /* which of the iterates of the level where that part begins has its result */

  /* the exchanges of a cycle by NCCL, [several * CMATCH_KINDS]; ranks.nccl is null where they are made with the host */
  ExchangeRanks                  ranks;
  DeviceExchanges                exchanges{&meter, true};
  Buffer<LocalInt>               orders{&meter}; /* what CMATCHLevelCUDA::order shows */
  std::vector<cudaGraphExec_t *> graphs;         /* of solvers, see CMATCHShareGraph() */

  /* of a hierarchy of nodes: what `nodes` shows, and operators in double precision while the next ones are made of them */
  std::shared_ptr<CMATCHNodes>  nodes_kept;
  Buffer<char>                  nodes_work[2] = {Buffer<char>(&work_meter), Buffer<char>(&work_meter)};
  std::vector<Buffer<LocalInt>> products; /* for refills the pattern of A P of each level: [n + 1] row starts, and columns */
};

/* -------------------------------------- work of a set-up -------------------------------------- */

/*
   Work memory that is given out from the front and taken back as a whole. One block of memory has room for what is usual; what does
   not fit in it is allocated. The meter counts what is allocated.
*/
class CMATCHArena {
public:
  CMATCHArena(Buffer<char> *main, WorkMeter *meter) : main_(main), back_(meter), meter_(meter) { }
  PetscErrorCode Reserve(size_t bytes)
  {
    PetscFunctionBegin;
    if (main_->size() < bytes) PetscCall(main_->Allocate(Round(bytes))); /* the back is as aligned as the front */
    end_ = main_->size();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <typename T>
  PetscErrorCode Take(size_t count, T **array)
  {
    const size_t bytes = Round(count * sizeof(T));

    PetscFunctionBegin;
    if (begin_ + bytes <= end_) {
      *array = (T *)(main_->data() + begin_);
      begin_ += bytes;
    } else {
      more_.emplace_back(meter_);
      PetscCall(more_.back().Allocate(bytes));
      *array = (T *)more_.back().data();
    }
    Note();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  struct Mark {
    size_t begin, more;
  };
  /*
     Memory at the back, which stays until the next call; what it held before is lost. It may lie over what was taken after the
     mark, but not over what ends at one of `source_ends`, which is to be copied to it.
  */
  template <typename T>
  PetscErrorCode TakeBack(size_t count, std::initializer_list<const void *> source_ends, Mark mark, T **array)
  {
    const size_t      bytes = Round(count * sizeof(T));
    const char *const begin = main_->data();
    size_t            least = mark.begin;

    PetscFunctionBegin;
    for (const void *end : source_ends) {
      const char *const source = (const char *)end;
      if (source > begin && source <= begin + main_->size()) least = PetscMax(least, (size_t)(source - begin));
    }
    least = Round(least);
    end_  = main_->size();
    if (least + bytes <= end_) {
      end_ -= bytes;
      *array = (T *)(main_->data() + end_);
    } else {
      PetscCall(back_.Allocate(bytes));
      *array = (T *)back_.data();
    }
    Note();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  Mark mark() const { return {begin_, more_.size()}; }
  void Release(Mark to)
  {
    begin_ = to.begin;
    while (more_.size() > to.more) more_.pop_back();
  }
  /* the most bytes of the block that were in use at a time */
  size_t used() const { return used_; }

private:
  static size_t Round(size_t bytes) { return (bytes + 255) / 256 * 256; }
  void          Note() { used_ = PetscMax(used_, PetscMin(begin_ + main_->size() - end_, main_->size())); }

  Buffer<char>             *main_;
  Buffer<char>              back_;
  WorkMeter                *meter_;
  std::vector<Buffer<char>> more_;
  size_t                    begin_ = 0, end_ = 0, used_ = 0;
};

/* The rows of P for which the room of A P is guessed; longer rows of P have longer rows of A P. */
constexpr LocalInt kCMATCHUsualRow = 4;

/* For each of up to so many rows of the next operator there is room for so many entries more than what is guessed. */
constexpr size_t kCMATCHLeastEntries = 64, kCMATCHLeastRows = 2048;
constexpr size_t kCMATCHSmallRoom = kCMATCHLeastEntries * kCMATCHLeastRows * (sizeof(LocalInt) + sizeof(float)); /* 1 MiB */

/* The stages of a set-up in which a failure is found, in the order in which they count; the level is added to the last one. */
constexpr int kCMATCHStageCheck = 0, kCMATCHStageStore = 1, kCMATCHStageCoarse = 2;

/* A failure as one number, of which the least counts. */
__host__ __device__ inline unsigned long long CMATCHFailureKey(int stage, LocalInt row, CMATCHFailure kind)
{
  return (unsigned long long)stage << 40 | (unsigned long long)row << 4 | (unsigned long long)kind;
}

constexpr int kCMATCHEstimateSums = 17;

/* What the kernels of a set-up report to the host. */
struct CMATCHReport {
  unsigned long long failure; /* the least CMATCHFailureKey(), or all bits */
  unsigned long long largest; /* the bits of the largest diagonal entry */
  unsigned long long entries; /* of the rows of a product, and in the rows that a sweep has made */
  LocalInt           wide;    /* rows of a product that did not fit into its table; cleared together with the entries */
  LocalInt           amiss;   /* whether there have been such rows, or entries without room, since the report was cleared */
  LocalInt           aggregates;
  LocalInt           left, joined, singles, largest_aggregate;
  LocalInt           P_nnz, longest, cut, plain; /* entries of P, and of the longest row of R */
  LocalInt           isolated;                   /* whether the coarsest level has entries in columns of isolated rows */
  LocalInt           undecided;                  /* vertices that an independent set has not decided about */
  LocalInt           ended;                      /* see CMATCHStats */
  LocalInt  pivot, small; /* the first pivot of the coarsest level that is not positive, and see CheckPivot; or kCMATCHNone */
  CMATCHFit fit[kCMATCHMostLevels]; /* of each level, see CMATCHMeasureFit() */
  struct {
    LocalInt cut, plain;
  } kept[kCMATCHMostLevels]; /* the two above of each level, where the host does not read them in between */

  /* of a hierarchy of nodes: the bits of the largest entry of each mode, see CMATCHNodes and CMATCHNodesLevel; `whole` are
     nodes all of whose unknowns are alone, `lonely` blocks of the next operator without a transpose, and `steps` those of slices */
  unsigned long long modes[kCMATCHMostModes], steps;
  double             sums[kCMATCHEstimateSums]; /* of the estimate of the largest eigenvalue */
  LocalInt           coupled, beside, dead, raised, whole, lonely, smallest_aggregate;
  LocalInt           unkept, padding; /* rows of a pattern that were longer than what is kept of each */
};

constexpr int      kCMATCHNoneByte = 0x7f; /* of each byte of kCMATCHNone */
constexpr LocalInt kCMATCHNone     = 0x7f7f7f7f;

/* Whether a round of the matching has made pairs. The rounds are in lines of memory of their own: a line that all blocks write
   while all blocks read it takes several times as long. */
struct CMATCHRound {
  alignas(128) LocalInt pairs;
};

/*
   The rows in which pairs are matched, without their diagonal. Between rows there may be gaps. Columns from n on are vertices of
   other ranks.
*/
struct CMATCHRows {
  LocalInt        n;
  const LocalInt *start;
  const LocalInt *length; /* or null, if row i ends where row i + 1 begins */
  const LocalInt *j;
  const float    *a, *d;
  size_t          room;    /* entries that fit into j and a */
  LocalInt        foreign; /* vertices of other ranks */

  __device__ LocalInt Length(LocalInt i) const { return length ? length[i] : start[i + 1] - start[i]; }
};

struct CMATCHSetup {
  CMATCHSetup(CMATCHHierarchyCUDA *hierarchy, const CMATCHParams *p, CMATCHStats *made) :
      H(hierarchy), params(p), stats(made), arena(&H->work, &H->work_meter), cub(&H->work_meter)
  {
  }

  CMATCHHierarchyCUDA *H;
  const CMATCHParams  *params;
  CMATCHStats         *stats;
  cudaStream_t         stream;
  CMATCHArena          arena;
  CMATCHReport        *report = nullptr; /* on the device */
  CMATCHRound         *rounds = nullptr; /* [kCMATCHRounds] of a sweep */
  CMATCHReport         seen{};           /* what the host has read of it */
  CubScratch           cub;
  CMATCHRows           rows{}; /* the unsmoothed operator of the next level */
  bool waits = true; /* for each product, to see whether it came out; otherwise the report tells when all levels are there */
};

/* Waits, and reads the report. */
PetscErrorCode CMATCHReadReport(CMATCHSetup *);

/* Copies a number of the device into the report, by a kernel: to change to the copy engine and back takes 10 us longer. */
PetscErrorCode CMATCHReportNumber(CMATCHSetup *, const LocalInt *from, LocalInt *to);

/* Clears the report. */
PetscErrorCode CMATCHBeginReport(CMATCHSetup *);

/* Puts what the host has read of a failure into the stats. */
void        CMATCHRecordFailure(CMATCHSetup *);
inline bool CMATCHHasFailed(const CMATCHSetup *s)
{
  return s->seen.failure != ~0ull;
}

/* Where the finest level goes. */
template <typename T>
struct CMATCHFinest {
  LocalInt *A_i, *A_j;
  T        *A_a;
  double   *rs, *diagonal;
  float    *matched_a, *matched_d; /* in single precision, or null */
};

/* Begins a set-up, with a new hierarchy if there is none, and without levels unless keep; `A_bytes` are those of the rows of A. */
PetscErrorCode CMATCHOpen(const CMATCHParams *, PetscBool keep, CMATCHHierarchy **);
PetscErrorCode CMATCHOpenWork(CMATCHSetup *, size_t A_bytes);
/* Ends a set-up: the work is freed unless it is to be kept, and the bytes are counted. */
PetscErrorCode CMATCHClose(CMATCHSetup *, bool keep_work);

/* Makes the levels below the last one, or with keep below `level`, and what the last one and the cycle need. */
PetscErrorCode CMATCHMakeLevels(CMATCHSetup *, LocalInt level, bool keep);

/* Counts how well the aggregates of a level fit, once in a set-up, in the report; CMATCHRecordFit() puts it into the levels. */
PetscErrorCode CMATCHMeasureFit(CMATCHSetup *, LocalInt level, bool last);
void           CMATCHRecordFit(const CMATCHSetup *);

/* Calls f(T()) for the precision. */
template <typename F>
PetscErrorCode CMATCHWithPrecision(FinePCPrecision precision, F f)
{
  return precision == FINEPC_SINGLE ? f(float()) : f(double());
}

/* sum += x of each lane of the group, one lane after the other. All lanes of the warp take part, and every lane gets the sum. */
template <int Size>
__device__ __forceinline__ void AddInOrder(double x, double *sum)
{
#pragma unroll
  for (int lane = 0; lane < Size; lane++) *sum += __shfl_sync(kFullWarp, x, lane, Size);
}

/* ----------------------------------------- the phases ----------------------------------------- */

/* Forgets what a level would need for a next one. */
inline void CMATCHForgetTransfer(CMATCHLevel *level)
{
  level->coarse    = 0;
  level->aggregate = level->P_j = level->R_i = level->R_j = nullptr;
  level->P_a = level->R_a = nullptr;
}

/*
   Memory of a level with so many rows and entries, and of its transfer to the next level; with the numbers of its ghosts, if it is
   on several ranks.
*/
PetscErrorCode CMATCHCreateLevel(CMATCHSetup *, LocalInt n, LocalInt nnz, const std::vector<GlobalInt> *ghost = nullptr);
/*
   s, d and l of the last level, from its entries and from rs. `fallback` [n] are diagonal entries to take where d is not positive,
   and size [n] is that of CMATCHSums.
*/
PetscErrorCode CMATCHCompleteLevel(CMATCHSetup *, LocalInt level, const double *fallback, const double *size);

/* The aggregates of the last level, and the unsmoothed operator of the next one. Sets `end` if there is no next level. */
PetscErrorCode CMATCHAggregate(CMATCHSetup *, bool *end);

/*
   What CMATCHAggregate() does in parts: finds the aggregates of level L, whose numbers of rows are counted, and the rows of the
   unsmoothed operator of the next level, which are in memory that the arena has given out; then keeps these rows, while what was
   taken after the mark is lost.
*/
struct CMATCHFound {
  LocalInt   coarse = 0, left = 0, joined = 0, largest = 0, least = 0, singles = 0;
  CMATCHRows rows{};
};
PetscErrorCode CMATCHFindAggregates(CMATCHSetup *, CMATCHTransfer, CMATCHLevel *L, CMATCHFound *);
PetscErrorCode CMATCHKeepRows(CMATCHSetup *, const CMATCHRows &, CMATCHArena::Mark);

/* The numbers of the entries with each key, ascending; an entry with the key -1 is in no list. `list` [count], start [lists + 1] */
PetscErrorCode CMATCHListByKeys(CMATCHSetup *, LocalInt count, const LocalInt *key, LocalInt lists, LocalInt *start,
                                LocalInt *list);

/*
   What differs between the matching of rows and that of nodes: which vertices are in no aggregate, the size of aggregates, which is
   limited for rows on large levels, and the diagonal of nodes, which is the sum of their positive weights. The sweeps end where
   `each` times the vertices are `enough`.
*/
struct CMATCHSweeps {
  LocalInt             count;
  float                strength;
  bool                 limited;
  const unsigned char *alone; /* [n] of nodes: those that have `all` are in no aggregate; null for rows */
  unsigned             all;
  PetscReal            each, enough;
};

/* The aggregates of n nodes, in the graph s->rows, and the graph of these; with mis2 `count` has no meaning. */
PetscErrorCode CMATCHMatchNodes(CMATCHSetup *, const CMATCHSweeps &, LocalInt n, LocalInt *aggregate, CMATCHFound *);
void           CMATCHAdopt(const CMATCHParams &, CMATCHTransfer, const CMATCHFound &, CMATCHLevel *L);

/* P, R and the next level, which is made; with keep, the values of all of these. */
PetscErrorCode CMATCHCoarsen(CMATCHSetup *, LocalInt level, bool keep);

/*
   The rows that a product of a level on several ranks makes, in double precision: row i has length[i] entries from start[i] on,
   whose columns are in any order.
*/
struct CMATCHMade {
  LocalInt *start = nullptr, *length = nullptr, *j = nullptr;
  double   *a = nullptr, *rs = nullptr; /* rs: [rows] row sums, or diagonal entries */
  double   *size = nullptr;             /* [rows] see CMATCHSums; null with diagonal entries */
};

/*
   The parts of CMATCHCoarsen() on several ranks. P of the own rows and p1 [n + ghosts], the row sums of P of own rows; `met`
   aggregates of ghosts are behind the own ones. Then `count` [coarse + met + 1] has the entries of each column, and turn [n][width]
   which of them an entry is, unless keep. R from these, whose rows are coarse + foreign. The products R (A P) and R (A P 1), where
   P has so many columns.
*/
struct CMATCHCounted {
  double   *p1;
  LocalInt *count, *turn;
};
PetscErrorCode CMATCHRanksProlong(CMATCHSetup *, LocalInt level, bool keep, LocalInt met, CMATCHCounted *);
PetscErrorCode CMATCHRanksRestriction(CMATCHSetup *, LocalInt level, bool keep, const CMATCHCounted &);
PetscErrorCode CMATCHRanksProducts(CMATCHSetup *, LocalInt level, bool keep, double *p1, LocalInt columns, CMATCHMade *);

/* The inverse of the coarsest level, or whatever its solution needs. Reads the report. */
PetscErrorCode CMATCHPrepareCoarsest(CMATCHSetup *);
/* The inverse of a coarsest level of nodes, whose blocks are in double precision. Reads the report. */
PetscErrorCode CMATCHInvertNodes(CMATCHSetup *, LocalInt level, const CMATCHNodesLevel &, const double *A, LocalInt m,
                                 const double *B);
/* x = A^{-1} b on the coarsest level, by inverse or conjugate gradients */
PetscErrorCode CMATCHLaunchCoarsest(CMATCHHierarchyCUDA *, void *x, const CMATCHSolverState &, cudaStream_t);

/* Memory for what the kernels of a cycle share, unless it is there, and the scale in it. */
PetscErrorCode CMATCHPrepareCycle(CMATCHHierarchyCUDA *, cudaStream_t);
PetscErrorCode CMATCHDestroyCycle(CMATCHHierarchyCUDA *);

/*
   An exchange of a level: entries of ghosts, from x to what is behind its own entries, or see CMATCHLevel. By NCCL it is in the
   stream, and aside of what comes there until its end, but for CMATCH_UP.
*/
PetscErrorCode CMATCHExchangeBegin(CMATCHHierarchyCUDA *, LocalInt level, CMATCHKind, const void *from, void *to, cudaStream_t);
PetscErrorCode CMATCHExchangeEnd(CMATCHHierarchyCUDA *, LocalInt level, CMATCHKind, const void *from, void *to, cudaStream_t);
PetscErrorCode CMATCHDestroyExchanges(CMATCHHierarchyCUDA *);

/* Lists the inner rows of a level on several ranks, and those at a border. */
PetscErrorCode CMATCHListBorder(CMATCHSetup *, LocalInt level);
