/*
   What the files of the fused GMRES share: the work of a solver, and what one file does for the others.

     gmresfused.cu            the twins of the host, over the basis
     gmresfused_device.cu     a solve on one rank as the host sees it: products, iterations, restarts
     gmresfused_iteration.cu  the orthogonalization of a step of such a solve
     gmresfused_ranks.cu      what several ranks have beside this: entries for other ranks, and the product with theirs

   The recurrences are those of src/ksp/gmresfused.h. The small matrices are kept as there, but that the inverse T of D + L takes
   the place of the products: row j of T follows from the rows before it, and c = T z has no chain of divisions.
*/
#pragma once

#include "buffer.cuh"
#include "fused.cuh"
#include "mailbox.cuh"
#include "sparse/slices.cuh"
#include "ksp/gmresfused.h"

constexpr int kGMRESBlock     = 256; /* threads of a block */
constexpr int kGMRESWarps     = kGMRESBlock / kWarpSize;
constexpr int kGMRESDotBlocks = 2;  /* blocks of a kernel that makes products with the basis, on a processor */
constexpr int kGMRESBlocks    = 4;  /* of a kernel that sums over the basis */
constexpr int kGMRESAhead     = 16; /* vectors of which such a kernel loads an entry at once */

/* Vectors of the basis whose products a block makes at once, in a step of so many products: what registers allow. */
__host__ __device__ constexpr int GMRESTile(int step)
{
  return step == 1 ? 8 : 6;
}

/* Numbers that such a block sums. */
__host__ __device__ constexpr int GMRESTileSums(int step)
{
  return 2 * step * GMRESTile(step) + step * (step + 1) / 2;
}

struct GMRESScalars {
  LocalInt  iteration;     /* iterations that are complete */
  LocalInt  its;           /* as KSPGMRES counts them where it stops so */
  LocalInt  column;        /* columns that the cycle has and that are not in x: the newest vector is u_column */
  LocalInt  small_columns; /* columns of the small matrices */
  CGStage   stage;         /* kCGDecided: the correction is still to be added to x */
  GMRESStop stop;
  double    value;                 /* the number that made the method stop */
  double    norm, cycle_norm;      /* of the residual, by the recurrence, and where the cycle began */
  double    scale[kGMRESMostStep]; /* of the vectors that come next */
  bool      second;                /* the second one of them, of two, is of use */
  double    lacking;               /* the most that two vectors of a step of the cycle lack in being orthogonal */
  double    happy, breakdown;      /* tolerances */
};

/* What the kernels of a solver share, and what the host copies to see how far they are. */
struct GMRESState {
  GMRESScalars s;
  CGTest       test;
  unsigned     ticket;              /* blocks that are done with their part of a sum */
  unsigned     posted;              /* see PostState() */
  double       records[kCGRecords]; /* the norm after iteration n is in place n % kCGRecords */
  RankPeers    peers;               /* of several ranks whose kernels write to one another; it stays from solve to solve */

  /* A phase leaves nothing to the next one: see Mailbox::Begin(). */
  int  Keep() const { return 0; }
  void Restore(int) { }
};

/* The small matrices: row j of T begins at entry j * (restart + 1), column j of H and R at entry j * rows. */
struct GMRESSmallArrays {
  LocalInt restart; /* of the room */
  LocalInt rows;
  double  *T, *H, *R;
  double  *square; /* [restart + 1] D */
  double  *norm;   /* [restart + 1] */
  double  *rhs;    /* [restart + 1] */
  double  *cosine, *sine;
  double  *c; /* [kGMRESMostStep (restart + 1)] the coefficients of the next sums over the basis, those of one behind the other */
  double  *sums; /* [GMRESSumsOf(restart + 1, kGMRESMostStep)] sums over the grid */
  double  *all;  /* the same over all ranks, where NCCL makes them */
};

/* GMRESSums() for the GPU, too. */
__host__ __device__ constexpr LocalInt GMRESSumsOf(LocalInt count, int step)
{
  return 2 * step * count + step * (step + 1) / 2;
}

/* The products of a step. */
template <int Step>
struct GMRESProducts {
  const double *w[Step];
};

struct GMRESFusedWork : ExchangeRanks {
  WorkMeter                    memory; /* of the buffers below */
  int                          processors = 0;
  bool                         early      = false; /* a kernel may begin before the one ahead of it has ended */
  IterationMailbox<GMRESState> mailbox{&memory};
  Buffer<double>               partial{&memory}; /* sums of blocks */
  Buffer<char>                 small_memory{&memory};
  GMRESSmallArrays             small{}; /* in this memory */

  /* the solve */
  Slices         A{};
  BSR            blocks{};
  GMRESOperators op{};
  GMRESBasis     basis{};
  GMRESVectors   v{};
  LocalInt       restart = 0, position = 0; /* iterations of a cycle, and of this one that are launched */
  LocalInt       step = 1, fresh = 1;       /* products of a step, and vectors whose products with the others are not known yet */
  LocalInt       made     = 0;              /* iterations of the last step, which have not ended */
  LocalInt       launched = 0;              /* iterations of the solve that are launched */
  bool           watched  = false;          /* the host begins each cycle */
  int            workers  = 0;              /* blocks that orthogonalize */

  /* kernels whose blocks wait for one another */
  unsigned      turn = 1; /* the number of their next sum over the grid */
  Buffer<uint4> words{&memory};

  /* a rank among several */
  CGGhosts ghosts[kGMRESMostStep] = {CGGhosts{&memory}, CGGhosts{&memory}}; /* of each product of a step */
  BSR      ghost_blocks{}; /* of a matrix of blocks; then the rows of the ghosts are block rows */
};

/* Whether kernels add over the ranks themselves. */
inline bool GMRESIsDirect(const GMRESFusedWork *work)
{
  return work->peers != nullptr;
}

/* Whether kernels make the exchanges of all products themselves. */
inline bool GMRESAreDirect(const GMRESFusedWork *work)
{
  return std::all_of(work->ghosts, work->ghosts + work->op.step, [](const CGGhosts &ghosts) { return ghosts.IsDirect(); });
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

/*
   The basis as a kernel has it. ld is even, so that an even entry and the one behind it are a pair. Behind an odd number of entries
   that one is room, which nobody has written: initcheck reports that it is read, by CorrectBasis for one, and no sum that is made
   of it is kept.
*/
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
   How the blocks of a grid share the products with the basis: a tile is some vectors, `most` at most, and a group of rows is one
   block's in each tile. Blocks that take the same rows of other vectors run beside one another, so that the products and the newest
   vectors, which all of them need, come from memory once.
*/
struct DotTiles {
  LocalInt count;
  int      tiles, width, abreast, groups, group, tile;

  __device__ DotTiles(LocalInt n, LocalInt count, int most, int block, int blocks) : count(count)
  {
    tiles   = (count + most - 1) / most;
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
   The block's parts of the products of a tile, numbered as in GMRESDots_Host(): put(number, part) is called by one thread for each
   of them, for those among the w by the block of the first tile. Each thread keeps the sums of its entries in registers to the end.
*/
template <int Step, typename V, typename Put>
__device__ __forceinline__ void DotTile(const GMRESArray<V> &u, LocalInt count, const GMRESProducts<Step> &of, LocalInt first,
                                        LocalInt many, int group, int groups, Put put)
{
  using Pair          = typename GMRESArray<V>::Pair;
  constexpr int kTile = GMRESTile(Step), kSums = 2 * Step * kTile, kUnroll = Step == 1 ? 2 : 1;
  const int     step = 2 * kGMRESBlock;
  LocalInt      newest[Step]; /* numbers of the vectors whose products are made, too */
  double        sums[GMRESTileSums(Step)] = {};
#pragma unroll
  for (int t = 0; t < Step; t++) newest[t] = max(count - Step + t, 0);

  const auto add = [&](const double(&w)[Step], const double(&last)[Step], const auto &v) {
    if (first == 0) {
#pragma unroll
      for (int t = 0; t < Step; t++)
#pragma unroll
        for (int s = 0; s <= t; s++) sums[kSums + t * (t + 1) / 2 + s] += w[s] * w[t];
    }
#pragma unroll
    for (int k = 0; k < kTile; k++)
      if (k < many) {
#pragma unroll
        for (int t = 0; t < Step; t++) {
          sums[t * kTile + k] += v(k) * w[t];
          sums[(Step + t) * kTile + k] += v(k) * last[t];
        }
      }
  };

#pragma unroll kUnroll
  for (long long i = group * step + 2 * threadIdx.x; i + 1 < u.n; i += (long long)groups * step) {
    double w_0[Step], w_1[Step], last_0[Step], last_1[Step];
    Pair   v[kTile];
#pragma unroll
    for (int t = 0; t < Step; t++) {
      const Pair last = u.PairAt(newest[t], (LocalInt)i);
      w_0[t]          = of.w[t][i];
      w_1[t]          = of.w[t][i + 1];
      last_0[t]       = (double)last.x;
      last_1[t]       = (double)last.y;
    }
#pragma unroll
    for (int k = 0; k < kTile; k++)
      if (k < many) v[k] = u.PairAt(first + k, (LocalInt)i);
    add(w_0, last_0, [&](int k) { return (double)v[k].x; });
    add(w_1, last_1, [&](int k) { return (double)v[k].y; });
  }
  if (u.n % 2 && group == 0 && threadIdx.x == 0) { /* the last entry has no other one beside it */
    const LocalInt i = u.n - 1;
    double         w[Step], last[Step];
#pragma unroll
    for (int t = 0; t < Step; t++) {
      w[t]    = of.w[t][i];
      last[t] = (double)u.at(newest[t])[i];
    }
    add(w, last, [&](int k) { return (double)u.at(first + k)[i]; });
  }
  const double sum = BlockSums(sums); /* of the thread's own number */
  const int    row = threadIdx.x / kTile, k = threadIdx.x % kTile;
  if (row < 2 * Step && k < many) put(row * count + first + k, sum);
  else if (first == 0 && threadIdx.x >= kSums && threadIdx.x < GMRESTileSums(Step))
    put(2 * Step * count + (LocalInt)threadIdx.x - kSums, sum);
}

/* x_s - sum_k c_s[k] u_k, or with Sign = 1 x_s + sum_k c_s[k] u_k, at entry i for each s, in an order that is always the same */
template <int Sign, int Sums, typename V>
__device__ __forceinline__ void AddBasis(const GMRESArray<V> &u, LocalInt count, const double *const (&c)[Sums], LocalInt i,
                                         double (&x)[Sums])
{
  for (LocalInt k = 0; k < count; k += kGMRESAhead) {
    V v[kGMRESAhead];
#pragma unroll
    for (int t = 0; t < kGMRESAhead; t++) v[t] = k + t < count ? u.at(k + t)[i] : (V)0;
#pragma unroll
    for (int t = 0; t < kGMRESAhead; t++)
      if (k + t < count) {
#pragma unroll
        for (int s = 0; s < Sums; s++) x[s] += Sign * c[s][k + t] * (double)v[t];
      }
  }
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
  /* x_s - sum_k c_s[k] u_k, or with Sign = 1 x_s + sum_k c_s[k] u_k, over these vectors */
  template <int Sign, int Sums>
  __device__ __forceinline__ void Add(LocalInt first, LocalInt count, const double *const (&c)[Sums], double2 (&x)[Sums]) const
  {
#pragma unroll
    for (int t = 0; t < kGMRESAhead; t++)
      if (first + t < count) {
#pragma unroll
        for (int s = 0; s < Sums; s++) {
          x[s].x += Sign * c[s][first + t] * (double)v[t].x;
          x[s].y += Sign * c[s][first + t] * (double)v[t].y;
        }
      }
  }
};

/* AddBasis() at entries i and i + 1. The pairs may have the first vectors at these entries already. */
template <int Sign, int Sums, typename V>
__device__ __forceinline__ void AddBasisPair(const GMRESArray<V> &u, LocalInt count, const double *const (&c)[Sums], LocalInt i,
                                             double2 (&x)[Sums], BasisPairs<V> &pairs, bool loaded)
{
  for (LocalInt k = 0; k < count; k += kGMRESAhead) {
    if (k > 0 || !loaded) pairs.Load(u, k, count, i);
    pairs.template Add<Sign>(k, count, c, x);
  }
}

/* The decision about an end; the columns that the cycle has are still to be added to x, unless the cycle goes on. */
__device__ inline void Stop(GMRESScalars &s, GMRESStop stop, double value)
{
  s.stop  = stop;
  s.its   = s.iteration;
  s.value = value;
  s.stage = s.column && stop != GMRES_SECOND ? kCGDecided : kCGStopped;
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
  constexpr int kTiles = kGMRESMostRestart / GMRESTile(kGMRESMostStep) + 1; /* each needs a block */
  return std::max(kTiles, work->processors * kGMRESDotBlocks);
}
inline int GMRESGrid(const GMRESFusedWork *work, LocalInt n)
{
  return std::max(1, std::min(BlocksFor(n, kGMRESBlock), work->processors * kGMRESBlocks));
}

/* -------------------------------------- gmresfused.cu ----------------------------------------- */

/* Makes room for cycles of so many iterations; what was there is lost if there was less. */
PetscErrorCode GMRESNeedSmall(GMRESFusedWork *, LocalInt restart);
/* Makes room for so many words that the blocks of a kernel write to one another; none is of a turn yet. */
PetscErrorCode GMRESNeedWords(GMRESFusedWork *, size_t words);

/* The sums of GMRESDots_CUDA() with so many products of a step of the solve: they are left in small.sums. */
PetscErrorCode GMRESLaunchDots(GMRESFusedWork *, LocalInt count, LocalInt products, cudaStream_t);

/* --------------------------------- gmresfused_iteration.cu ------------------------------------ */

/* Makes ready for cycles of so many iterations with steps of so many products; room for more of them stays. */
PetscErrorCode GMRESPrepareOrthogonalization(GMRESFusedWork *, const GMRESBasis &, LocalInt restart, LocalInt step);
/*
   What follows the products in a step that the GPU decides about, which begins at u_j, where j is the position: the tests of the
   iterations of the step before, the products with the basis, and the new vectors, as many as there are products. At the end of a
   cycle it leaves the parts of the squares of their norms, one for each worker, those of one vector behind the other.
*/
PetscErrorCode GMRESLaunchOrthogonalization(GMRESFusedWork *, LocalInt products, cudaStream_t);
/* Whether the kernels of a solve may be launched early. */
PetscErrorCode GMRESMayStartEarly(bool *early);

/* ----------------------------------- gmresfused_ranks.cu -------------------------------------- */

/* The operators' part of several ranks, or that there is none. */
PetscErrorCode GMRESPrepareRanks(GMRESFusedWork *, const GMRESOperators *, bool changed);
/* The solver works with this NCCL from now on, or with none. */
PetscErrorCode GMRESUseNCCL(GMRESFusedWork *, NCCL *);
/*
   Entries of D x to the other ranks, ahead of the product with the columns that the rank owns; d may be null. Each product of a
   step has a number, from 0.
*/
PetscErrorCode GMRESLaunchSend(GMRESFusedWork *, LocalInt product, const double *d, const double *x, cudaStream_t);
/* y = y + E B ghosts behind that product. e may be null. */
PetscErrorCode GMRESLaunchGhosts(GMRESFusedWork *, LocalInt product, const double *e, double *y, cudaStream_t);
/*
   small.all [count] = the sums over all ranks of what so many blocks have left in `partial` [count][parts], unless the method has
   stopped. There are two at most.
*/
PetscErrorCode GMRESLaunchSum(GMRESFusedWork *, LocalInt count, int parts, cudaStream_t);
