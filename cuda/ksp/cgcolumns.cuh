/*
   What the files of the conjugate gradient method for several right-hand sides share: its work.

     cgcolumns.cu           a solve as the host sees it, and the vector operations one by one, for products by others
     cgcolumns_graph.cu     an iteration as a sequence of kernels, and some iterations as a graph
     cgcolumns_product.cuh  how a warp multiplies sliced copies (sparse/slices.h) with interleaved block vectors

   An interleaved vector of `Columns` columns has the entries of a row side by side. A lane always has the same pair of columns, so
   that Columns / 2 lanes have a row, and the rows of a warp's load are next to each other.
*/
#pragma once

#include "cgfused.cuh"
#include "ksp/cgcolumns.h"

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
  unsigned  ticket;                                 /* as in CGState */
  int       running;                                /* columns that have not ended */
};

/* What a captured graph was made for: its kernels have these parameters. */
struct CGColumnsCaptured {
  Slices             A, W1, W2;
  const PetscScalar *d;
  LocalInt           width;
  bool               factored;
  double            *x, *r, *p, *w, *t;
};

struct CGColumnsWork {
  WorkMeter              memory; /* of the buffers below */
  Buffer<CGColumnsState> state{&memory};
  Buffer<double>         partial{&memory}; /* sums of blocks */
  Buffer<double>         vectors{&memory};
  CGColumnsState        *seen               = nullptr; /* [kCGInFlight] in pinned memory of the host */
  cudaEvent_t            event[kCGInFlight] = {};
  long                   launched = 0, arrived = 0;  /* copies of the state since the last begin */
  int                    processors = 0, shared = 0; /* of the GPU; bytes of shared memory of one of them at most */
  bool                   early = false;              /* a kernel may begin before the one ahead of it has ended */

  /* the solve */
  LocalInt n = 0, columns = 0;
  LocalInt width = 0; /* columns of the block vectors: 2, 4, 8 or 16; those beyond `columns` are zero */
  double  *x = nullptr, *w = nullptr, *t = nullptr; /* [n][width] */
  double  *p[2] = {};                               /* the direction of an even iteration, and of an odd one */
  double  *r    = nullptr;                          /* where the norm is that of r and t is not r, else null */

  cudaStream_t      capture = nullptr; /* for captures alone */
  cudaGraphExec_t   graph   = nullptr;
  CGColumnsCaptured captured{};
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
