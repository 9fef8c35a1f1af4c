/*
   What the files of the fused conjugate gradient method share: the work of a solver, and what one file does for the others.

     cgfused.cu           a solve, as the host sees it: prepare, connect, start, begin, advance
     cgfused_graph.cu     an iteration as a sequence of kernels, and some iterations as a graph
     cgfused_resident.cu  all iterations as one kernel that stays on the GPU
     cgfused_ghosts.cu    columns of other ranks: what becomes of the products with them
     fused.cuh            what several solvers have in common
     cgfused_vectors.cu   the vector operations one by one, for products by others

   A kernel is in the same file as its launch. The recurrences are those of cgfused.h.
*/
#pragma once

#include <algorithm>

#include "buffer.cuh"
#include "fused.cuh"
#include "mailbox.cuh"
#include "sparse/slices.cuh"
#include "ksp/cgfused.h"
#include "pc/cmatch/cmatch.h"

constexpr int kCGBlock        = 256; /* threads of a block, but for the resident kernel */
constexpr int kCGPartials     = 40;  /* sums of blocks for each processor at most: two of 16 blocks beside an exchange */
constexpr int kCGBlocksOnChip = 5;   /* blocks of kCGBlock threads on a processor at most, in kernels over vectors */

/* What a captured graph was made for: its kernels have these parameters. */
struct CGFusedCaptured {
  Slices             A, W1, W2;
  CMATCHHierarchy   *cycle;
  long               generation; /* of its memory */
  const PetscScalar *d;
  PetscScalar       *x, *r, *z, *p, *t;
  NCCL              *nccl;
  bool               one_by_one;
  CGGhostRows        ghosts[3]; /* of A, W1 and W2 */
  long               exchanges[3];
};

struct CGFusedWork : ExchangeRanks {
  WorkMeter memory; /* of the buffers below */

  /* the GPU */
  int    processors = 0;
  bool   early      = false; /* a kernel may begin before the one ahead of it has ended */
  size_t room       = 0;     /* bytes of shared memory that a block of the resident kernel may take for its rows */

  /* the operators, as CGFusedPrepare_CUDA() leaves them */
  Slices             A{}, W1{}, W2{};
  const PetscScalar *d          = nullptr;
  bool               factored   = false; /* there are W1 and W2 */
  CMATCHHierarchy   *cycle      = nullptr;
  bool               resident   = false; /* the resident kernel runs, not the graph */
  bool               uneven     = false; /* padding makes resident copies of these operators too large */
  bool               one_by_one = false; /* the graph has an iteration without its product, which `product` has */
  LocalInt           rows       = 0;     /* of a block of the resident kernel */
  int                blocks     = 0;     /* of the resident kernel */

  /* the solve */
  CGFusedVectors  v{};
  LocalInt        launched = 0; /* iterations */
  CGMailbox       mailbox{&memory};
  Buffer<double>  t{&memory};        /* t = D (r + W1 r); for the resident kernel also w, and a second r and p */
  Buffer<double>  partial{&memory};  /* sums of blocks */
  Buffer<double>  slots{&memory};    /* sums of blocks of the resident kernel */
  cudaStream_t    capture = nullptr; /* for captures alone */
  cudaGraphExec_t graph   = nullptr;
  cudaGraphExec_t product = nullptr; /* w = A p by itself, if iterations go one by one */
  bool            shared  = false;   /* the cycle that it was captured for has it, see CMATCHShareGraph() */
  CGFusedCaptured captured{};

  /* a rank among several */
  CGGhosts ghosts{&memory}, ghosts1{&memory}, ghosts2{&memory}; /* of A, W1 and W2 */
};

/* Blocks of a kernel that makes sums over vectors, one entry a thread at a time. */
inline int CGFusedSumBlocks(const CGFusedWork *work, LocalInt n)
{
  return std::max(1, std::min(BlocksFor(n, kCGBlock), work->processors * kCGBlocksOnChip));
}

/* ---------------------------------------- the sequence ---------------------------------------- */

/* Whether the kernels of the sequence may be launched early, see LaunchEarly(). */
PetscErrorCode CGFusedMayStartEarly(bool *early);
/*
   w = A p and p.w, on several ranks with the exchange, the columns of other ranks and the sum over all of them. On one rank a
   follows from it; before the first iteration the sum is only kept.
*/
PetscErrorCode CGFusedLaunchProduct(CGFusedWork *, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t);
/* r = from - a w, or r = from without w, then z = M r, and what ends an iteration, or the `start`. */
PetscErrorCode CGFusedLaunchResidual(CGFusedWork *, bool early, bool start, const PetscScalar *from, const PetscScalar *w,
                                     cudaStream_t);
/* x = x + a p, p = z + b p. With `decide` b is made here from the sums of all ranks, or the end. */
PetscErrorCode CGFusedLaunchDirection(CGFusedWork *, bool early, bool decide, cudaStream_t);
/* The graph of some iterations with the vectors of the work; a graph of the same arrays is kept. */
PetscErrorCode CGFusedCaptureIterations(CGFusedWork *);
/* Iterations of a launch of it. */
LocalInt CGFusedIterationsOfGraph(const CGFusedWork *);
/* Destroys it, if there is one. */
PetscErrorCode CGFusedDestroyGraph(CGFusedWork *);

/* ------------------------------------ the resident kernel ------------------------------------- */

/* Bytes of shared memory that a block of the resident kernel may take for its rows, on this GPU. */
PetscErrorCode CGFusedResidentRoom(size_t *room);
/*
   Whether the resident kernel is to run: by the path that is asked for and the sizes of the operators, as far as the padding of its
   copies is not known. Sets its rows a block and its blocks in the work, and gives its lanes a row.
*/
bool CGFusedPlanResident(CGFusedWork *, const CGFusedOperators *, KSPCGFusedPath, LocalInt *lanes);
/* Memory for its barriers. */
PetscErrorCode CGFusedAllocateResident(CGFusedWork *);
/* Before the first launch: z = M r, which the start leaves out where M is diagonal. */
PetscErrorCode CGFusedStartResident(CGFusedWork *, cudaStream_t);
/* Iterations until the end, so many at most, which is not more than kCGRecords. */
PetscErrorCode CGFusedLaunchResident(CGFusedWork *, LocalInt steps, cudaStream_t);

/* ------------------------------------ a rank among several ------------------------------------ */

/* w = w + B ghosts, with the change of p.w, and the rank's sum. */
PetscErrorCode CGFusedLaunchGhosts(CGFusedWork *, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t);
/* t = t + D W1 ghosts, by the entries of W1 in columns of other ranks. */
PetscErrorCode CGFusedLaunchFirstGhosts(CGFusedWork *, bool early, PetscScalar *t, cudaStream_t);
/* z = z + W2 ghosts, with the changes of z.z and z.r among the rank's sums. */
PetscErrorCode CGFusedLaunchSecondGhosts(CGFusedWork *, bool early, const PetscScalar *r, PetscScalar *z, cudaStream_t);
