/*
   What the kernels of RRB and of RRBCG share. A grid takes two levels. Its points are in four classes, by cells of 2 x 2: of cell
   (I, J)

     b2 = (2I, 2J)    r1 = (2I + 1, 2J)    r2 = (2I, 2J + 1)    b1 = (2I + 1, 2J + 1),    points from 0,

   and r1, r2 are red in the odd level, b1 in the even one; b2 is the next grid. Every class is an array over cells, so that what a
   warp asks for lies together (3.1). Where a cell has no such point its coefficients are zero.

   On the way down (forward substitution) a grid's values come in four arrays, and those of b2 go straight into the four of the next
   grid; on the way up they come and go in plain lines, which are the classes b2 of the grid before.
*/
#pragma once

#include "buffer.cuh"
#include "pc/rrb/rrb.h"

enum RRBClass : int { kB2, kR1, kR2, kB1 };

/*
   Arrays of coefficients over a grid's cells: columns of L and inverse pivots; l to the four neighbours in the order of the host
   twin.
*/
enum RRBArray : int {
  kR1West,
  kR1East,
  kR1South,
  kR1North,
  kR1Pivot,
  kR2West,
  kR2East,
  kR2South,
  kR2North,
  kR2Pivot,
  kB1SouthWest,
  kB1NorthEast,
  kB1SouthEast,
  kB1NorthWest,
  kB1Pivot,
  kRRBArrays
};

/*
   Arrays of a skew operator, of class b2 and then of b1: diagonal, couplings to (x + 1, y + 1), (x - 1, y + 1), (x + 2, y), (x, y +
   2).
*/
enum RRBSkew : int { kSkewC, kSkewP, kSkewQ, kSkewH, kSkewV, kSkewArrays };
constexpr int kSkewOfB1 = kSkewArrays;

constexpr int kRRBTileX = 32, kRRBTileY = 8; /* cells of a block */
constexpr int kRRBTile = kRRBTileX * kRRBTileY;

/*
   A grid, or what is left to the exact factorization as the last one: lines of all its points then, which are plain on the way
   down, too. With half, only the odd level is eliminated: the remainder has the lines of classes b2 and b1 in turns.
*/
struct RRBGrid {
  PetscInt nx, ny, cx, cy; /* points, cells */
  PetscInt ld;             /* of arrays over cells */
  PetscInt line;           /* of points on the way up */
  bool     half, plain;
  double  *l;    /* [kRRBArrays][cy][ld] */
  double  *down; /* [4][cy][ld]; [ny][line] if plain; null for the first grid, whose values are given */
  double  *u;    /* class b1 on the way down, its odd level done */
  double  *up;   /* [ny][line]; null for the first grid */

  __host__ __device__ size_t Cells() const { return (size_t)cy * ld; }
  __device__ size_t          Cell(PetscInt I, PetscInt J) const { return (size_t)J * ld + I; }
  /* a coefficient, 0 outside */
  __device__ double L(RRBArray array, PetscInt I, PetscInt J) const
  {
    return I >= 0 && I < cx && J >= 0 && J < cy ? l[array * Cells() + Cell(I, J)] : 0.;
  }
  __device__ bool Has(int what, PetscInt I, PetscInt J) const
  {
    return I >= 0 && J >= 0 && 2 * I + (what & 1) < nx && 2 * J + (what >> 1) < ny;
  }
};

/* Where the remainder has point (2I, 2J) or (2I + 1, 2J + 1) of a grid whose odd level alone is eliminated. */
__host__ __device__ inline size_t RRBHalfPlace(const RRBGrid &g, int what, PetscInt I, PetscInt J)
{
  return (size_t)J * (g.cx + g.nx / 2) + (what == kB1 ? g.cx : 0) + I;
}

/* A point of class b2 on the way up: the next grid's, or the remainder's; 0 where there is none. */
__device__ __forceinline__ double UpB2(const RRBGrid &g, const RRBGrid &next, PetscInt I, PetscInt J)
{
  if (!g.Has(kB2, I, J)) return 0;
  return next.up[g.half ? RRBHalfPlace(g, kB2, I, J) : (size_t)J * next.line + I];
}

/* Into the arrays that the next grid reads on the way down. */
__device__ inline void StoreDown(const RRBGrid &next, PetscInt x, PetscInt y, double value)
{
  if (next.plain) next.down[(size_t)y * next.line + x] = value;
  else next.down[((y & 1) * 2 + (x & 1)) * next.Cells() + next.Cell(x / 2, y / 2)] = value;
}

constexpr int kRRBGrids = 33;

struct RRBFactorCUDA : RRBFactor {
  int             half_levels = 0; /* that are eliminated, 1 at least */
  int             count       = 0; /* of grids, without the remainder */
  int             first_small = 0; /* from here on one block does them */
  RRBGrid         grid[kRRBGrids + 1];
  Buffer<double>  memory;  /* coefficients and values */
  Buffer<double>  inverse; /* [remainder^2] */
  Buffer<double>  schur;   /* [2 kSkewArrays] arrays over the first grid's cells */
  bool            early   = false;
  long            used    = 0; /* times that the values behind the first grid were given up for others */
  cudaStream_t    capture = nullptr;
  cudaGraphExec_t graph   = nullptr; /* between the first grid down and the first grid up */
};

/*
   Kernels that find it closed, *stage being so far, leave everything as it is; a null stage is always open. A gate does not open
   again while kernels launched early are under way: a kernel that finds it closed while the one ahead still runs may end at once.
   It looks twice then, the second time not into a line of L1 from before the wait.
*/
struct RRBGate {
  const int *stage;
  int        closed_from;

  __device__ bool Closed() const { return stage && __ldcg(stage) >= closed_from; }
  /* At the beginning of a kernel, before it asks for coefficients: nothing is left to do. */
  __device__ bool ClosedEarly() const
  {
    const bool closed = Closed();
    if (closed) WaitForPrevious(); /* who waits for this kernel waits for those ahead of it, too */
    return closed;
  }
};

/* What a kernel is, of which grid, and the bytes that it must move: each coefficient, value and result once. */
struct RRBPhase {
  const char *what;
  int         grid;
  size_t      bytes;
};

/* Down from the second grid, the remainder, and up to the second grid: kernels 0 .. RRBMiddlePhases() - 1, or all of them. */
int            RRBMiddlePhases(const RRBFactorCUDA *);
PetscErrorCode RRBLaunchPhase(const RRBFactorCUDA *, int phase, RRBGate, bool early, cudaStream_t, RRBPhase *);
PetscErrorCode RRBLaunchMiddle(const RRBFactorCUDA *, RRBGate, bool early, cudaStream_t);

/* Ends a capture, in any case, for the stream to be of use again; a graph comes of it if `launched` is no error. */
inline PetscErrorCode EndCapture(cudaStream_t stream, PetscErrorCode launched, cudaGraphExec_t *made)
{
  cudaGraph_t       graph    = nullptr;
  const cudaError_t captured = cudaStreamEndCapture(stream, &graph);

  PetscFunctionBegin;
  const cudaError_t instantiated = launched || captured != cudaSuccess ? cudaSuccess : cudaGraphInstantiate(made, graph, 0);
  if (graph) PetscCallCUDA(cudaGraphDestroy(graph));
  PetscCall(launched);
  PetscCallCUDA(captured);
  PetscCallCUDA(instantiated);
  PetscFunctionReturn(PETSC_SUCCESS);
}

__host__ __device__ inline int RRBTiles(const RRBGrid &g)
{
  return ((g.cx + kRRBTileX - 1) / kRRBTileX) * ((g.cy + kRRBTileY - 1) / kRRBTileY);
}
