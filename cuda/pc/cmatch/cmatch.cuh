/*
   What the files of CMATCH on the GPU share: the hierarchy with its vectors and graph, the work of a set-up, and what one file does
   for the others.

     cmatch.cu            the set-up as a whole, the finest level, and what completes a level
     cmatch_aggregate.cu  aggregates, by matching or by an independent set
     cmatch_galerkin.cu   the prolongator, its transpose, the Galerkin product
     cmatch_coarsest.cu   the coarsest level: its inverse, and its solution
     cmatch_fsai.cu       the factors of the smoothers sfsai and afsai
     cmatch_cycle.cu      the cycle

   The set-up makes sums in the order of the host twin, and its files are compiled without fused multiplications and additions, so
   that both twins compute the same bits. The formulas are those of cmatch_host.cxx.
*/
#pragma once

#include <initializer_list>
#include <type_traits>
#include <vector>

#include "buffer.cuh"
#include "pc/cmatch/cmatch.h"
#include "pc/sfsai/sfsai.h"
#include "scratch.cuh"

/* ---------------------------------------- the hierarchy --------------------------------------- */

/* What the kernels of a cycle share. */
struct CMATCHControl {
  double             scale;   /* that of the hierarchy */
  double             factor;  /* r is multiplied by it where the cycle begins, and z is divided by it: a power of 2 */
  unsigned long long largest; /* the bits of the largest magnitude of an entry of r, while it is looked for */
  int                skip;    /* the cycle is not wanted any more */
};

/* Vectors of a level, of type T. Those that the options do not need are null. */
struct CMATCHVectors {
  void *b, *r;     /* right-hand side, residual */
  void *x[2];      /* the iterate, which a product reads in one array and writes in the other */
  void *z[2];      /* corrections of a polynomial */
  void *e, *c, *v; /* of the levels that are visited twice */
};

struct CMATCHHierarchyCUDA : CMATCHHierarchy {
  WorkMeter                 meter;  /* of the memory below */
  std::vector<Buffer<char>> memory; /* of the levels */
  Buffer<char>              common{&meter};
  WorkMeter                 work_meter;                          /* of the memory of a set-up */
  Buffer<char>              work{&work_meter};                   /* of the last set-up, if it is kept */
  Buffer<char>              report{&work_meter};                 /* the same, see CMATCHSetup */
  SFSAIWork                 factor_work[kCMATCHMostLevels] = {}; /* the same of the smoother sfsai, of each level */
  CMATCHVectors             vectors[kCMATCHMostLevels]     = {};
  double                   *rs[kCMATCHMostLevels]          = {}; /* [n] the row sums in double */
  size_t                    AP_room[kCMATCHMostLevels]     = {}; /* entries that A P needed memory for */

  /* the coarsest level */
  CMATCHEnd      end = CMATCH_END_SIZE;
  Buffer<double> inverse{&meter};   /* [n][n] */
  Buffer<double> iteration{&meter}; /* [4][n] vectors of the conjugate gradient method */

  /* the cycle */
  CMATCHControl  *control    = nullptr; /* in common, as the next two */
  const double  **caller     = nullptr; /* r and z of the captured cycle */
  double         *dots       = nullptr; /* of the levels that are visited twice */
  int             processors = 0;
  long            generation = 0; /* another one for each set-up of any hierarchy that has made new memory */
  bool            early      = false;
  cudaStream_t    capture    = nullptr; /* for captures alone */
  cudaGraphExec_t graph      = nullptr;
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

/* What the kernels of a set-up report to the host. */
struct CMATCHReport {
  unsigned long long failure; /* the least CMATCHFailureKey(), or all bits */
  unsigned long long largest; /* the bits of the largest diagonal entry */
  unsigned long long entries; /* of the rows of a product, and in the rows that a sweep has made */
  LocalInt           wide;    /* rows of a product that did not fit into its table */
  LocalInt           aggregates;
  LocalInt           left, joined, singles, largest_aggregate;
  LocalInt           P_nnz, longest, cut, plain; /* entries of P, and of the longest row of R */
  LocalInt           isolated;                   /* whether the coarsest level has entries in columns of isolated rows */
  LocalInt           undecided;                  /* vertices that an independent set has not decided about */
};

/* Whether a round of the matching has made pairs. The rounds are in lines of memory of their own: a line that all blocks write
   while all blocks read it takes several times as long. */
struct CMATCHRound {
  alignas(128) LocalInt pairs;
};

/* The rows in which pairs are matched, without their diagonal. Between rows there may be gaps. */
struct CMATCHRows {
  LocalInt        n;
  const LocalInt *start;
  const LocalInt *length; /* or null, if row i ends where row i + 1 begins */
  const LocalInt *j;
  const float    *a, *d;
  size_t          room; /* entries that fit into j and a */

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
  CMATCHReport         seen;             /* what the host has read of it */
  CubScratch           cub;
  CMATCHRows           rows{}; /* the unsmoothed operator of the next level */
};

/* Waits, and reads the report. */
PetscErrorCode CMATCHReadReport(CMATCHSetup *);

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

/* The symmetric hash by which ties are broken. */
__device__ __forceinline__ unsigned CMATCHMix(LocalInt a, LocalInt b)
{
  const unsigned low = (unsigned)min(a, b), high = (unsigned)max(a, b);
  unsigned       h = (low * 0x9E3779B1u) ^ (high * 0x85EBCA77u);
  h ^= h >> 15;
  h *= 0x2C1B3C6Du;
  h ^= h >> 12;
  h *= 0x297A2D39u;
  return h ^ (h >> 15);
}

/* ----------------------------------------- the phases ----------------------------------------- */

/* Forgets what a level would need for a next one. */
inline void CMATCHForgetTransfer(CMATCHLevel *level)
{
  level->coarse    = 0;
  level->aggregate = level->P_j = level->R_i = level->R_j = nullptr;
  level->P_a = level->R_a = nullptr;
}

/* Memory of a level with so many rows and entries, and of its transfer to the next level. */
PetscErrorCode CMATCHCreateLevel(CMATCHSetup *, LocalInt n, LocalInt nnz);
/* s, d and l of the last level, from its entries and from rs. `fallback` [n] are diagonal entries to take where d is not positive.
 */
PetscErrorCode CMATCHCompleteLevel(CMATCHSetup *, LocalInt level, const double *fallback);

/* The aggregates of the last level, and the unsmoothed operator of the next one. Sets `end` if there is no next level. */
PetscErrorCode CMATCHAggregate(CMATCHSetup *, bool *end);

/* P, R and the next level, which is made; with keep, the values of all of these. */
PetscErrorCode CMATCHCoarsen(CMATCHSetup *, LocalInt level, bool keep);

/* The inverse of the coarsest level, or whatever its solution needs. */
PetscErrorCode CMATCHPrepareCoarsest(CMATCHSetup *);
/* x = A^{-1} b on the coarsest level, by inverse or conjugate gradients */
PetscErrorCode CMATCHLaunchCoarsest(CMATCHHierarchyCUDA *, void *x, cudaStream_t);

/* Memory for what the kernels of a cycle share, unless it is there, and the scale in it. */
PetscErrorCode CMATCHPrepareCycle(CMATCHHierarchyCUDA *, cudaStream_t);
PetscErrorCode CMATCHDestroyCycle(CMATCHHierarchyCUDA *);
