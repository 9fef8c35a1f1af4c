/*
   What the files of the fused GMRES share: the work of a solver, and what one file does for the others.

     gmresfused.cu            the twins of the host, over the basis
     gmresfused_device.cu     a solve on one rank as the host sees it: products, iterations, restarts
     gmresfused_iteration.cu  the orthogonalization of an iteration of such a solve
     gmresfused_resident.cu   the iterations of a cycle in one kernel, for small systems
     gmresfused_ranks.cu      what several ranks have beside this: entries for other ranks, and the product with theirs

   The recurrences are those of src/ksp/gmresfused.h. The small matrices are kept as there, but that the inverse T of D + L takes
   the place of the products: row j of T follows from the rows before it, and c = T z has no chain of divisions.
*/
#pragma once

#include <cstring>

#include "buffer.cuh"
#include "ghosts.cuh"
#include "mailbox.cuh"
#include "sparse/slices.cuh"
#include "ksp/gmresfused.h"

constexpr int kGMRESBlock     = 256; /* threads of a block */
constexpr int kGMRESWarps     = kGMRESBlock / kWarpSize;
constexpr int kGMRESTile      = 8;  /* vectors of the basis whose products a block makes */
constexpr int kGMRESDotBlocks = 2;  /* blocks of such a kernel on a processor */
constexpr int kGMRESBlocks    = 4;  /* of a kernel that sums over the basis */
constexpr int kGMRESAhead     = 16; /* vectors of which such a kernel loads an entry at once */

struct GMRESScalars {
  LocalInt  iteration; /* iterations that are complete */
  LocalInt  its;       /* as KSPGMRES counts them where it stops so */
  LocalInt  column;    /* columns that the cycle has and that are not in x: the newest vector is u_column */
  LocalInt  known;     /* columns of the small matrices */
  CGStage   stage;     /* kCGDecided: the correction is still to be added to x */
  GMRESStop stop;
  double    value;            /* the number that made the method stop */
  double    norm, cycle_norm; /* of the residual, by the recurrence, and where the cycle began */
  double    scale;            /* of the vector that comes next */
  double    happy, breakdown; /* tolerances */
};

/* What the kernels of a solver share, and what the host copies to see how far they are. */
struct GMRESState {
  GMRESScalars s;
  CGTest       test;
  unsigned     ticket;              /* blocks that are done with their part of a sum */
  double       records[kCGRecords]; /* the norm after iteration n is in place n % kCGRecords */
  RankPeers    peers;               /* of several ranks whose kernels write to one another; it stays from solve to solve */

  /* A phase leaves nothing to the next one: see Mailbox::Begin(). */
  int  Keep() const { return 0; }
  void Restore(int) { }
};

/* The small matrices: column j of H and R, and row j of T, begin at entry j * (restart + 1). The restart is that of the room. */
struct GMRESSmallArrays {
  LocalInt restart;
  double  *T, *H, *R;
  double  *square; /* [restart + 1] D */
  double  *norm;   /* [restart + 1] */
  double  *rhs;    /* [restart + 1] */
  double  *cosine, *sine;
  double  *c;    /* [restart + 1] the coefficients of the next sum over the basis */
  double  *sums; /* [2 * restart + 3] sums over the grid */
  double  *all;  /* [2 * restart + 3] the same over all ranks, where NCCL makes them */
};

struct GMRESFusedWork : CGRanks {
  WorkMeter           memory; /* of the buffers below */
  int                 processors = 0;
  bool                early      = false; /* a kernel may begin before the one ahead of it has ended */
  Mailbox<GMRESState> mailbox{&memory};
  Buffer<double>      partial{&memory}; /* sums of blocks */
  Buffer<char>        small_memory{&memory};
  GMRESSmallArrays    small{}; /* in this memory */

  /* the solve */
  Slices         A{};
  bool           uneven = false; /* the rows of A are too uneven for a resident copy */
  BSR            blocks{};
  GMRESOperators op{};
  GMRESBasis     basis{};
  GMRESVectors   v{};
  LocalInt       restart = 0, position = 0; /* iterations of a cycle, and of this one that are launched */
  LocalInt       launched = 0;              /* iterations of the solve that are launched */
  int            workers  = 0;              /* blocks that orthogonalize */

  /* kernels whose blocks wait for one another */
  bool             resident      = false;
  size_t           room          = 0; /* shared memory that a block may ask for */
  LocalInt         resident_rows = 0; /* of a block */
  unsigned         turn          = 1; /* the number of their next sum over the grid */
  Buffer<uint4>    words{&memory};
  Buffer<unsigned> arrived{&memory};

  /* a rank among several */
  CGGhosts ghosts{&memory};
  BSR      ghost_blocks{}; /* of a matrix of blocks; then the rows of the ghosts are block rows */
};

/* Whether kernels add over the ranks themselves. */
inline bool GMRESIsDirect(const GMRESFusedWork *work)
{
  return work->peers != nullptr;
}

/* Two entries of a vector, which are loaded at once. */
template <typename V>
struct PairOf;
template <>
struct PairOf<double> {
  using Type = double2;
};
template <>
struct PairOf<float> {
  using Type = float2;
};

/* The basis as a kernel has it. ld is even, so that an even entry and the one behind it are a pair; that of the last one may be
 * room. */
template <typename V>
struct GMRESArray {
  using Pair = typename PairOf<V>::Type;

  V       *u;
  LocalInt n, ld;

  __device__ __forceinline__ V   *at(LocalInt k) const { return u + (size_t)k * ld; }
  __device__ __forceinline__ Pair PairAt(LocalInt k, LocalInt i) const { return *(const Pair *)(at(k) + i); }
};

/* Calls f(array) with the basis in its precision. */
template <typename F>
PetscErrorCode GMRESWithPrecision(const GMRESBasis &basis, F f)
{
  if (basis.precision == FINEPC_SINGLE) return f(GMRESArray<float>{(float *)basis.u, basis.n, basis.ld});
  return f(GMRESArray<double>{(double *)basis.u, basis.n, basis.ld});
}

/* Whether the block is the last one of the grid that comes here; all of its threads get the answer, and see what the others did. */
__device__ inline bool IsLastBlock(unsigned *ticket)
{
  __shared__ bool last;
  const bool      mine = IsLastHere(ticket);
  if (threadIdx.x == 0) last = mine;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

/*
   sums [count] = the sums over the parts of so many blocks, partial [count][parts], in an order that is always the same. The last
   block of a grid calls it, and has the sums when it returns. The grid waits for it, so a warp asks for parts of several sums at
   once.
*/
__device__ inline void AddPartials(LocalInt count, int parts, const double *partial, double *sums)
{
  constexpr int kSums = 8, kAhead = 2;
  const int     warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  for (LocalInt first = warp; first < count; first += kSums * kGMRESWarps) {
    double x[kSums] = {};
#pragma unroll kAhead
    for (int part = lane; part < parts; part += kWarpSize)
#pragma unroll
      for (int t = 0; t < kSums; t++) {
        const LocalInt s = first + t * kGMRESWarps;
        if (s < count) x[t] += __ldcg(partial + (size_t)s * parts + part);
      }
#pragma unroll
    for (int t = 0; t < kSums; t++) {
      const LocalInt s = first + t * kGMRESWarps;
      x[t]             = GroupSum<kWarpSize>(x[t]);
      if (lane == 0 && s < count) sums[s] = x[t];
    }
  }
  __syncthreads();
}

/* The same for a single sum, by all threads of the block. Thread 0 gets it. */
__device__ inline double AddPartial(int parts, const double *partial)
{
  constexpr int kAtOnce = 4;
  double        x[1]    = {0};
  for (int first = threadIdx.x; first < parts; first += kAtOnce * kGMRESBlock) {
    double some[kAtOnce];
#pragma unroll
    for (int t = 0; t < kAtOnce; t++) some[t] = first + t * kGMRESBlock < parts ? __ldcg(partial + first + t * kGMRESBlock) : 0.;
#pragma unroll
    for (int t = 0; t < kAtOnce; t++) x[0] += some[t];
  }
  BlockSum(x);
  return x[0];
}

/* The sum of each of x over the block: thread c gets that of x[c]. */
template <int Count>
__device__ double BlockSums(const double (&x)[Count])
{
  static_assert(Count <= kGMRESBlock, "a thread for each sum");
  __shared__ double part[Count][kGMRESWarps];
  const int         warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  double            sum = 0;
#pragma unroll
  for (int c = 0; c < Count; c++) {
    const double of_warp = GroupSum<kWarpSize>(x[c]);
    if (lane == 0) part[c][warp] = of_warp;
  }
  __syncthreads();
  if (threadIdx.x >= Count) return 0;
  for (int w = 0; w < kGMRESWarps; w++) sum += part[threadIdx.x][w];
  return sum;
}

/*
   How the blocks of a grid share the products with the basis: a tile is some vectors, kGMRESTile at most, and a group of rows is
   one block's in each tile. Blocks that take the same rows of other vectors run beside one another, so that w and u_j, which all of
   them need, come from memory once.
*/
struct DotTiles {
  LocalInt count;
  int      tiles, width, abreast, groups, group, tile;

  __device__ DotTiles(LocalInt n, LocalInt count, int block, int blocks) : count(count)
  {
    tiles   = (count + kGMRESTile - 1) / kGMRESTile;
    width   = (count + tiles - 1) / tiles;
    abreast = min(tiles, blocks);
    groups  = max(1, (int)min((long long)blocks / abreast, (n + 2LL * kGMRESBlock - 1) / (2 * kGMRESBlock)));
    group   = block / abreast;
    tile    = block % abreast;
  }

  /* Calls f(first vector, how many) with the tiles of the block, all of whose threads come here. */
  template <typename F>
  __device__ __forceinline__ void ForEach(F f) const
  {
    for (int t = tile; t < tiles && group < groups; t += abreast) {
      f(t * width, min(width, count - t * width));
      __syncthreads();
    }
  }
};

/*
   The block's parts of the products of a tile: put(number, part) is called by one thread for each of the numbers u_k.w at k,
   u_k.u_last at count + k, and w.w at 2 count, by that of the first tile. Each thread keeps the sums of its entries in registers to
   the end.
*/
template <typename V, typename Put>
__device__ __forceinline__ void DotTile(const GMRESArray<V> &u, LocalInt count, const double *w, LocalInt first, LocalInt many,
                                        int group, int groups, Put put)
{
  using Pair                         = typename GMRESArray<V>::Pair;
  const int step                     = 2 * kGMRESBlock;
  double    sums[2 * kGMRESTile + 1] = {};
#pragma unroll 2
  for (long long i = group * step + 2 * threadIdx.x; i + 1 < u.n; i += (long long)groups * step) {
    const double w_0 = w[i], w_1 = w[i + 1];
    const Pair   last = u.PairAt(count - 1, (LocalInt)i);
    if (first == 0) sums[2 * kGMRESTile] += w_0 * w_0 + w_1 * w_1;
    Pair v[kGMRESTile];
#pragma unroll
    for (int k = 0; k < kGMRESTile; k++)
      if (k < many) v[k] = u.PairAt(first + k, (LocalInt)i);
#pragma unroll
    for (int k = 0; k < kGMRESTile; k++)
      if (k < many) {
        sums[k] += (double)v[k].x * w_0 + (double)v[k].y * w_1;
        sums[kGMRESTile + k] += (double)v[k].x * (double)last.x + (double)v[k].y * (double)last.y;
      }
  }
  if (u.n % 2 && group == 0 && threadIdx.x == 0) { /* the last entry has no other one beside it */
    const LocalInt i   = u.n - 1;
    const double   w_i = w[i], last_i = (double)u.at(count - 1)[i];
    if (first == 0) sums[2 * kGMRESTile] += w_i * w_i;
#pragma unroll
    for (int k = 0; k < kGMRESTile; k++)
      if (k < many) {
        const double v = (double)u.at(first + k)[i];
        sums[k] += v * w_i;
        sums[kGMRESTile + k] += v * last_i;
      }
  }
  const double sum   = BlockSums(sums); /* of the thread's own number */
  const int    which = threadIdx.x / kGMRESTile, k = threadIdx.x % kGMRESTile;
  if (which < 2 && k < many) put(which * count + first + k, sum);
  else if (which == 2 && k == 0 && first == 0) put(2 * count, sum);
}

/* x - sum_k c_k u_k, or with Sign = 1 x + sum_k c_k u_k, at entry i, in an order that is always the same */
template <int Sign, typename V>
__device__ __forceinline__ double AddBasis(const GMRESArray<V> &u, LocalInt count, const double *c, LocalInt i, double x)
{
  for (LocalInt k = 0; k < count; k += kGMRESAhead) {
    V v[kGMRESAhead];
#pragma unroll
    for (int t = 0; t < kGMRESAhead; t++) v[t] = k + t < count ? u.at(k + t)[i] : (V)0;
#pragma unroll
    for (int t = 0; t < kGMRESAhead; t++)
      if (k + t < count) x += Sign * c[k + t] * (double)v[t];
  }
  return x;
}

/* The entries i and i + 1 of some vectors of the basis, where i is even; the second one may be that of room behind the vectors. */
template <typename V>
struct BasisPairs {
  typename GMRESArray<V>::Pair v[kGMRESAhead];

  /* The vectors from `first` on, of which there are `count` in all. */
  __device__ __forceinline__ void Load(const GMRESArray<V> &u, LocalInt first, LocalInt count, LocalInt i)
  {
#pragma unroll
    for (int t = 0; t < kGMRESAhead; t++)
      if (first + t < count) v[t] = u.PairAt(first + t, i);
  }
  /* x - sum_k c_k u_k, or with Sign = 1 x + sum_k c_k u_k, over these vectors */
  template <int Sign>
  __device__ __forceinline__ double2 Add(LocalInt first, LocalInt count, const double *c, double2 x) const
  {
#pragma unroll
    for (int t = 0; t < kGMRESAhead; t++)
      if (first + t < count) {
        x.x += Sign * c[first + t] * (double)v[t].x;
        x.y += Sign * c[first + t] * (double)v[t].y;
      }
    return x;
  }
};

/* AddBasis() at entries i and i + 1. The pairs may have the first vectors at these entries already. */
template <int Sign, typename V>
__device__ __forceinline__ double2 AddBasisPair(const GMRESArray<V> &u, LocalInt count, const double *c, LocalInt i, double2 x,
                                                BasisPairs<V> &pairs, bool loaded)
{
  for (LocalInt k = 0; k < count; k += kGMRESAhead) {
    if (k > 0 || !loaded) pairs.Load(u, k, count, i);
    x = pairs.template Add<Sign>(k, count, c, x);
  }
  return x;
}

/* The decision about an end; the columns that the cycle has are still to be added to x. */
__device__ inline void Stop(GMRESScalars &s, GMRESStop stop, double value)
{
  s.stop  = stop;
  s.its   = s.iteration;
  s.value = value;
  s.stage = s.column ? kCGDecided : kCGStopped;
}

/* Whether the test of the norm ends the iterations, as KSPConvergedDefault() would. */
__device__ inline bool Ends(const CGTest &test, LocalInt n, double norm)
{
  return n >= test.last ||
         (test.norm != CG_NORM_NONE && n > test.chknorm && n >= test.min_it && (norm <= test.ttol || norm >= test.dtol));
}

/* Where vectors of the basis in single precision are in double precision as well, for products and preconditioners; or null. */
inline double *GMRESDoubleCopy(const GMRESFusedWork *work)
{
  return work->basis.precision == FINEPC_SINGLE ? work->v.p : nullptr;
}
/* The vector at this position of the cycle in double precision, which has to be the newest one. */
inline const double *GMRESNewest(const GMRESFusedWork *work)
{
  return work->basis.precision == FINEPC_SINGLE ? work->v.p
                                                : (const double *)work->basis.u + (size_t)work->position * work->basis.ld;
}

/* Blocks of a kernel that makes the products with the basis, of one that sums over it, and of any other over vectors. */
inline int GMRESDotGrid(const GMRESFusedWork *work)
{
  constexpr int kTiles = kGMRESMostRestart / kGMRESTile + 1; /* each needs a block */
  return std::max(kTiles, work->processors * kGMRESDotBlocks);
}
inline int GMRESGrid(const GMRESFusedWork *work, LocalInt n)
{
  return std::max(1, std::min(BlocksFor(n, kGMRESBlock), work->processors * kGMRESBlocks));
}

/* -------------------------------------- gmresfused.cu ----------------------------------------- */

/* Makes room for cycles of so many iterations; what was there is lost if there was less. */
PetscErrorCode GMRESNeedSmall(GMRESFusedWork *, LocalInt restart);
/* Makes room for so many words, and for flags of so many blocks, that kernels write to one another; none is of a turn yet. */
PetscErrorCode GMRESNeedWords(GMRESFusedWork *, size_t words, size_t blocks);

/* u_k.w and u_k.u_last for so many vectors, and w.w, of this rank, with the w of the solve: they are left in small.sums. */
PetscErrorCode GMRESLaunchDots(GMRESFusedWork *, LocalInt count, cudaStream_t);

/* --------------------------------- gmresfused_iteration.cu ------------------------------------ */

/* Makes ready for cycles of so many iterations. */
PetscErrorCode GMRESPrepareOrthogonalization(GMRESFusedWork *, const GMRESBasis &, LocalInt restart);
/*
   What follows w = A M u_j in an iteration that the GPU decides about, where j is the position: the test of iteration j - 1, the
   products with the basis, and u_{j+1}. At the end of a cycle it leaves the parts of the square of its norm, one for each worker.
*/
PetscErrorCode GMRESLaunchOrthogonalization(GMRESFusedWork *, cudaStream_t);
/* Whether the kernels of a solve may be launched early. */
PetscErrorCode GMRESMayStartEarly(bool *early);

/* ---------------------------------- gmresfused_resident.cu ------------------------------------ */

/* Whether the iterations go by the resident kernel, if A can be copied for it; then lanes a row of this copy. */
bool GMRESPlanResident(GMRESFusedWork *, const GMRESOperators *, KSPGMRESFusedPath, LocalInt restart, LocalInt *lanes);
/* Memory for a plan, once there is a copy. */
PetscErrorCode GMRESAllocateResident(GMRESFusedWork *, LocalInt restart);
/* The iterations to the end of the cycle, at whose beginning the work is. */
PetscErrorCode GMRESLaunchResident(GMRESFusedWork *, cudaStream_t);

/* ----------------------------------- gmresfused_ranks.cu -------------------------------------- */

/* The operators' part of several ranks, or that there is none. */
PetscErrorCode GMRESPrepareRanks(GMRESFusedWork *, const GMRESOperators *, bool changed);
/* The solver works with this NCCL from now on, or with none. */
PetscErrorCode GMRESUseNCCL(GMRESFusedWork *, NCCL *);
/* Entries of D x to the other ranks, ahead of the product with the columns that the rank owns. d may be null. */
PetscErrorCode GMRESLaunchSend(GMRESFusedWork *, const double *d, const double *x, cudaStream_t);
/* y = y + E B ghosts behind that product. e may be null. */
PetscErrorCode GMRESLaunchGhosts(GMRESFusedWork *, const double *e, double *y, cudaStream_t);
/* small.all [1] = the sum over all ranks of what so many blocks have left in `partial`, unless the method has stopped. */
PetscErrorCode GMRESLaunchSum(GMRESFusedWork *, int parts, cudaStream_t);
