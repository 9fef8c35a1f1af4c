/*
   What the files of the fused conjugate gradient method share: the work of a solver, and what one file does for the others.

     cgfused.cu           a solve on one rank, as the host sees it: prepare, start, begin, advance
     cgfused_graph.cu     an iteration as a sequence of kernels, and some iterations as a graph
     cgfused_resident.cu  all iterations as one kernel that stays on the GPU
     cgfused_ranks.cu     an iteration of a rank among several that the host decides about
     cgfused_ghosts.cu    columns of other ranks: the product with them, and the exchange by the kernels themselves or by NCCL, also
                          for block vectors
     peers.cuh            how kernels write to other GPUs
     cgfused_vectors.cu   the vector operations one by one, for products by others

   A kernel is in the same file as its launch. The recurrences are those of cgfused.h.
*/
#pragma once

#include <algorithm>
#include <type_traits>

#include "buffer.cuh"
#include "mailbox.cuh"
#include "nccl.cuh"
#include "scratch.cuh"
#include "sparse/slices.cuh"
#include "ksp/cgfused.h"
#include "pc/cmatch/cmatch.h"

constexpr int kCGBlock        = 256; /* threads of a block, but for the resident kernel */
constexpr int kCGPartials     = 40;  /* sums of blocks for each processor at most: two of 16 blocks beside an exchange */
constexpr int kCGBlocksOnChip = 5;   /* blocks of kCGBlock threads on a processor at most, in kernels over vectors */

/* The rows of an operator that have entries in columns of other ranks, as a kernel needs them. */
struct CGGhostRows {
  LocalInt        count;
  LocalInt        lanes;  /* of a row */
  PetscBool       single; /* the values are in single precision */
  const LocalInt *rows;   /* [count] */
  const LocalInt *i, *j;  /* of all rows of the rank */
  const void     *a;
  PetscScalar    *values; /* the ghosts, */
  const uint4    *words;  /* or where other ranks write them to, if this is not null */
};

/* Entries of a vector that a product sends to words of other ranks; none where count is 0. */
struct CGSend {
  LocalInt        count;
  const LocalInt *entries; /* [count] */
  uint4 *const   *there;   /* [count] */
};

/* The threads of the grid send entries of the vector x(). */
template <typename Vector>
__device__ __forceinline__ void SendEntries(const CGSend &send, Vector x, const RankPeers &peers)
{
  const unsigned turn = *peers.turn;
  for (long long k = GridThread(); k < send.count; k += (long long)gridDim.x * blockDim.x)
    WriteWord(send.there[k], x(send.entries[k]), turn);
}

/* What a captured graph was made for: its kernels have these parameters. */
struct CGFusedCaptured {
  Slices             A, W1, W2;
  CMATCHHierarchy   *cycle;
  long               generation; /* of its memory */
  const PetscScalar *d;
  PetscScalar       *x, *r, *z, *p, *t;
  NCCL              *nccl;
  CGGhostRows        ghosts[3]; /* of A, W1 and W2 */
  long               exchanges[3];
};

/*
   What an operator on several ranks has beside its slices, the columns that the rank owns: the rows of entries in columns that
   other ranks own, and the exchange that brings the entries of a vector for them. A has one, and so have the factors of an inverse
   that crosses ranks.
*/
struct CGGhosts {
  explicit CGGhosts(WorkMeter *meter) :
      list(meter), select(meter), arrived(meter), entries(meter), places(meter), packed(meter), received(meter), there(meter)
  {
  }

  bool             used = false; /* some rank has such entries */
  CGGhostRows      rows{};
  Buffer<LocalInt> list;    /* of A: the rows that have entries, and their number behind them */
  CubScratch       select;  /* of their selection */
  Buffer<double>   arrived; /* of a factor: the ghosts */

  /* the exchange, where NCCL makes it; see Neighbours */
  std::vector<Neighbours::Part> to, from;
  Buffer<LocalInt>              entries, places;
  Buffer<double>                packed, received;
  long                          exchange = -1; /* the number of the exchange that these lists are of */
  long                          number   = 0;  /* of changes of all this */

  /* where the kernels write to other ranks, see peers.cuh */
  bool            direct = false;
  LocalInt        slots  = -1; /* the first word of this rank for the ghosts */
  Buffer<uint4 *> there;       /* the words that the entries go to */
};

inline CGSend CGFusedSend(const CGGhosts *ghosts)
{
  return {(LocalInt)ghosts->entries.size(), ghosts->entries.data(), ghosts->there.data()};
}

/* Whether an exchange is made by NCCL, whose kernels take a part of the chip. */
inline bool CGFusedIsByNCCL(const CGGhosts &ghosts)
{
  return !ghosts.direct && !(ghosts.to.empty() && ghosts.from.empty());
}

struct CGFusedWork {
  WorkMeter memory; /* of the buffers below */

  /* the GPU */
  int    processors = 0;
  bool   early      = false; /* a kernel may begin before the one ahead of it has ended */
  size_t room       = 0;     /* bytes of shared memory that a block of the resident kernel may take for its rows */

  /* the operators, as CGFusedPrepare_CUDA() leaves them */
  Slices             A{}, W1{}, W2{};
  const PetscScalar *d        = nullptr;
  bool               factored = false; /* there are W1 and W2 */
  CMATCHHierarchy   *cycle    = nullptr;
  bool               resident = false; /* the resident kernel runs, not the graph */
  bool               uneven   = false; /* padding makes resident copies of these operators too large */
  LocalInt           rows     = 0;     /* of a block of the resident kernel */
  int                blocks   = 0;     /* of the resident kernel */

  /* the solve */
  CGFusedVectors  v{};
  CGMailbox       mailbox{&memory};
  Buffer<double>  t{&memory};        /* t = D (r + W1 r); for the resident kernel also w, and a second r and p */
  Buffer<double>  partial{&memory};  /* sums of blocks */
  Buffer<double>  slots{&memory};    /* sums of blocks of the resident kernel */
  cudaStream_t    capture = nullptr; /* for captures alone */
  cudaGraphExec_t graph   = nullptr;
  bool            shared  = false; /* the cycle that it was captured for has it, see CMATCHShareGraph() */
  CGFusedCaptured captured{};

  /* a rank among several */
  CGGhosts         ghosts{&memory}, ghosts1{&memory}, ghosts2{&memory}; /* of A, W1 and W2 */
  NCCL            *nccl   = nullptr;                                    /* sums and exchanges are in the graph */
  const RankPeers *peers  = nullptr; /* they are made by our kernels, but exchanges that have no room */
  cudaStream_t     aside  = nullptr; /* of the exchange */
  cudaEvent_t      forked = nullptr, joined = nullptr;
  long             solves  = 0;
  cudaStream_t     stream  = nullptr; /* of the last solve */
  bool             foreign = false;   /* solves have had more than one stream */
};

/* Blocks of a kernel that makes sums over vectors, one entry a thread at a time. */
inline int CGFusedSumBlocks(const CGFusedWork *work, LocalInt n)
{
  return std::max(1, std::min(BlocksFor(n, kCGBlock), work->processors * kCGBlocksOnChip));
}

/* ---------------------------------------- the sequence ---------------------------------------- */

/* Whether the kernels of the sequence may be launched early, see LaunchEarly(). */
PetscErrorCode CGFusedMayStartEarly(bool *early);
/* Lanes a row of an operator in the sequence. */
LocalInt CGFusedSequenceLanes(LocalInt rows, LocalInt nnz);
/*
   w = A p and p.w by the rank's own columns, and entries of p to other ranks where kernels write to these. On one rank a follows
   from it; before the first iteration the sum is only kept.
*/
PetscErrorCode CGFusedLaunchOperator(CGFusedWork *, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t);
/* w = A p and p.w, with the exchange, the columns of other ranks and the sum over all ranks where NCCL makes them. */
PetscErrorCode CGFusedLaunchProduct(CGFusedWork *, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t);
/* t = D (r + W1 r), and z = t + W2 t with its sums, by the rank's own columns; `shared`: with NCCL's kernels beside it. */
PetscErrorCode CGFusedLaunchFirst(CGFusedWork *, bool early, bool shared, const PetscScalar *r, cudaStream_t);
PetscErrorCode CGFusedLaunchSecond(CGFusedWork *, bool early, bool shared, const PetscScalar *r, PetscScalar *z, cudaStream_t);
/* z = M r by W1 and W2 or by a cycle, and what ends an iteration, or the start. */
PetscErrorCode CGFusedLaunchInverse(CGFusedWork *, bool early, const PetscScalar *r, PetscScalar *z, cudaStream_t);
/* r = from - a w, or r = from without w, then z = M r, and what ends an iteration, or the `start`. */
PetscErrorCode CGFusedLaunchResidual(CGFusedWork *, bool early, bool start, const PetscScalar *from, const PetscScalar *w,
                                     cudaStream_t);
/* x = x + a p, p = z + b p. With `decide` b is made here from the sums of all ranks, or the end. */
PetscErrorCode CGFusedLaunchDirection(CGFusedWork *, bool early, bool decide, cudaStream_t);
/* The graph of some iterations with the vectors of the work; a graph of the same arrays is kept. */
PetscErrorCode CGFusedCaptureIterations(CGFusedWork *);
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
/* Iterations until the end, kCGRecords at most. */
PetscErrorCode CGFusedLaunchResident(CGFusedWork *, cudaStream_t);

/* ------------------------------------ a rank among several ------------------------------------ */

/* Keeps B, and the list of its rows that have entries; `changed` says whether its pattern or values are new. */
PetscErrorCode CGFusedPrepareGhosts(CGGhosts *, const CSRView &B, PetscScalar *values, bool changed);
/* The same for a factor. */
PetscErrorCode CGFusedPrepareFactorGhosts(CGGhosts *, const CGFactorGhosts &);
/* w = w + B ghosts, with the change of p.w, and the rank's sums for whom adds them over the ranks. */
PetscErrorCode CGFusedLaunchGhosts(CGFusedWork *, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t);
/* t = t + D W1 ghosts, by the entries of W1 in columns of other ranks. */
PetscErrorCode CGFusedLaunchFirstGhosts(CGFusedWork *, bool early, PetscScalar *t, cudaStream_t);
/* z = z + W2 ghosts, with the changes of z.z and z.r among the rank's sums. */
PetscErrorCode CGFusedLaunchSecondGhosts(CGFusedWork *, bool early, const PetscScalar *r, PetscScalar *z, cudaStream_t);
/* Sums and exchanges are in the graph from now on, or no longer. A graph does not outlive the communicator that it was made with.
 */
PetscErrorCode CGFusedUseNCCL(CGFusedWork *, NCCL *);
/* Gives back the words that other ranks write the ghosts to, if there are any, to the NCCL that they were taken from. */
void CGFusedGiveSlots(NCCL *, CGGhosts *);
/* Room for the exchange of these lists, without communication. An exchange of the same number is kept. */
PetscErrorCode CGFusedMakeRoom(CGFusedWork *, CGGhosts *, const Neighbours &, long exchange);
/* Makes the exchange ready and connects the ranks, all of which have made room; its number must be the same on all ranks. */
PetscErrorCode CGFusedPrepareExchange(CGFusedWork *, CGGhosts *, const Neighbours &, long exchange, MPI_Comm);
/*
   The exchange of entries of x for the ghosts where NCCL makes it, aside of what comes into the stream from here on, until the end
   is called. Where kernels write to other ranks the product sends, and both do nothing.
*/
PetscErrorCode CGFusedBeginExchange(const CGFusedWork *, const CGGhosts *, const PetscScalar *x, cudaStream_t);
PetscErrorCode CGFusedEndExchange(const CGFusedWork *, const CGGhosts *, cudaStream_t);
