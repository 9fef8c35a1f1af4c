/*
   What the files of the conjugate gradient method for several right-hand sides share: its work.

     cgcolumns.cu           a solve as the host sees it, with the exchanges
     cgcolumns_graph.cu     an iteration as a sequence of kernels, and some iterations as a graph
     cgcolumns_ghosts.cu    columns of the operators that other ranks own: the product with them
     cgcolumns_product.cuh  how a warp multiplies sliced copies (sparse/slices.h) with interleaved block vectors
     cgcolumns_sums.cuh     sums of columns over the grid

   An interleaved vector of `Columns` columns has the entries of a row side by side. A lane always has the same pair of columns, so
   that Columns / 2 lanes have a row, and the rows of a warp's load are next to each other.
*/
#pragma once

#include "cgfused.cuh"
#include "ksp/cgcolumns.h"

/* What becomes of x in an iteration: it is changed in every second one, by two steps at once. At the start there is no step. */
enum CGColumnsTurn : int { kNoStep, kStepLater, kTwoSteps };

/*
   Sums of a rank, or of all ranks, as they are added over the ranks: those of the first column, of the second one, and so on, one
   after the other, and behind them the second sums of the columns. The width of the block vectors says where these begin.
*/
struct CGColumnsSums {
  double steps[2 * kCGMostColumns]; /* delta = p.w, and z.z of the iteration before */
  double norms[2 * kCGMostColumns]; /* r.z and r.r */
};

/* What the kernels share, and what the host copies to see how far they are. The arrays are over columns. */
struct CGColumnsState {
  CGScalars s[kCGMostColumns];
  CGTest    test[kCGMostColumns];
  double    rz[kCGMostColumns], nn[kCGMostColumns]; /* r.z and (norm)^2 so far, from the kernel that makes them */
  double    b[kCGMostColumns];                      /* of the next direction */
  double    norm[kCGMostColumns];                   /* the last one */
  double    first[kCGMostColumns];                  /* the first step */
  CGSums    sums[kCGMostColumns];                   /* of the start */
  double    due[kCGMostColumns];                    /* the step that x has still to make along the direction before */
  int       is_due[kCGMostColumns];                 /* whether there is one */
  unsigned  ticket, posted;                         /* as in CGState */
  int       running;                                /* columns that have not ended */

  /* several ranks */
  int several; /* sums are a rank's own ones: they are left in `own`, and SumSteps() and SumNorms() decide */
  CGColumnsTurn
    unfinished; /* what the iteration was whose end is to be decided about with the next delta; kNoStep if there is none */
  CGColumnsSums own, all; /* `all` where NCCL adds them */
  RankPeers     peers;    /* where kernels add them; otherwise it has no ranks */
};

/* What a captured graph was made for: its kernels have these parameters. */
struct CGColumnsCaptured {
  Slices             A, W1, W2;
  const PetscScalar *d;
  LocalInt           width;
  bool               factored;
  CMATCHHierarchy   *cycle;
  long               generation;
  char              *memory; /* of the cycle */
  double            *x, *r, *p, *w, *t;
  NCCL              *nccl;
  CGGhostRows        ghosts[3]; /* of A, W1 and W2 */
  long               exchanges[3];
};

struct CGColumnsWork : ExchangeRanks {
  WorkMeter               memory; /* of the buffers below */
  Mailbox<CGColumnsState> mailbox{&memory};
  Buffer<double>          partial{&memory}; /* sums of blocks */
  Buffer<double>          vectors{&memory};
  Buffer<char>            cycle{&memory};             /* what a cycle of multigrid works in */
  int                     processors = 0, shared = 0; /* of the GPU; bytes of shared memory of one of them at most */
  bool                    early = false;              /* a kernel may begin before the one ahead of it has ended */

  /* the solve */
  LocalInt n = 0, columns = 0;
  LocalInt width = 0; /* columns of the block vectors: 2, 4, 8 or 16; those beyond `columns` are zero */
  double  *x = nullptr, *w = nullptr, *t = nullptr; /* [n][width] */
  double  *p[2] = {};                               /* the direction of an even iteration, and of an odd one */
  double  *r    = nullptr;                          /* where the norm is that of r and t is not r, else null */

  cudaStream_t      capture = nullptr; /* for captures alone */
  cudaGraphExec_t   graph   = nullptr;
  CGColumnsCaptured captured{};

  /* a rank among several */
  CGGhosts ghosts{&memory}, ghosts1{&memory}, ghosts2{&memory}; /* of A, W1 and W2, for block vectors */
};

/* Calls f with the width of the block vectors as a constant: the one place where it becomes one. */
template <typename F>
PetscErrorCode CGColumnsWithWidth(LocalInt width, F f)
{
  switch (width) {
  case 2: return f(std::integral_constant<int, 2>());
  case 4: return f(std::integral_constant<int, 4>());
  case 8: return f(std::integral_constant<int, 8>());
  default: return f(std::integral_constant<int, 16>());
  }
}

/* Whether the kernels of the sequence may be launched early, see LaunchEarly(). */
PetscErrorCode CGColumnsMayStartEarly(bool *early);
/* Block vectors from columns, with zeros in the columns beyond those that are there. */
PetscErrorCode CGColumnsInterleave(const CGColumnsWork *, const PetscScalar *X, LocalInt ldx, double *x, cudaStream_t);
/* The solutions, with the steps that are due, but not of columns that are to be left as they are. */
PetscErrorCode CGColumnsSeparate(const CGColumnsWork *, const PetscBool left[], PetscScalar *X, LocalInt ldx, cudaStream_t);
/* The start: r is in w, or b is, and then x is the guess. Ends with p = z and the sums. */
PetscErrorCode CGColumnsLaunchStart(CGColumnsWork *, const CGFusedWork *, bool guess, cudaStream_t);
/* The graph of some iterations; a graph of the same arrays is kept. */
PetscErrorCode CGColumnsCapture(CGColumnsWork *, const CGFusedWork *);

/* ------------------------------------ a rank among several ------------------------------------ */

/* Whether kernels make all sums and exchanges; otherwise NCCL makes some, and kernels are not launched early. */
bool CGColumnsAreDirect(const CGColumnsWork *);
/*
   The products with ghosts, where there are any: w = w + B ghosts with the change of p.w; t = t - a D W1 ghosts, or at the start
   t = t + D W1 ghosts, with that of r.z; and what z = z + W2 ghosts changes in the next direction, with that of z.z, where
   next = z + b p, or at the start next = z.
*/
PetscErrorCode CGColumnsLaunchGhosts(CGColumnsWork *, bool early, const double *p, double *w, cudaStream_t);
PetscErrorCode CGColumnsLaunchFirstGhosts(CGColumnsWork *, bool early, bool first, const double *d, cudaStream_t);
PetscErrorCode CGColumnsLaunchSecondGhosts(CGColumnsWork *, bool early, bool first, const double *p, double *next, cudaStream_t);
