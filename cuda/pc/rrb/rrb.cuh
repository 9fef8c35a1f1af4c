/*
   The storage of RRB on a GPU, which the kernels of rrb and those of rrbcg share: grids, the factor, and the kernels that apply it.

   A grid stands for two levels. Its points are in four classes, by their places in cells of 2 x 2 points: cell (I, J) has

     b2 = (2I, 2J)    r1 = (2I + 1, 2J)    r2 = (2I, 2J + 1)    b1 = (2I + 1, 2J + 1),    points counted from 0.

   The odd level eliminates r1 and r2, the even level eliminates b1, and the points b2 are the next grid. An array over cells holds
   the values of one class, so that what a warp loads lies together (de Jong et al., named in pc/rrb/rrb.h, section 3.1). Where a
   cell has no such point, its coefficients are zero.

   On the way down (forward substitution) the values of a grid are in four arrays over cells, one for each class, and those of b2
   are stored into the four arrays of the next grid. On the way up (backward substitution) the values of a grid are in plain lines
   of points, which are class b2 of the grid before.
*/
#pragma once

#include "buffer.cuh"
#include "capture.cuh"
#include "pc/rrb/rrb.h"

enum RRBClass : int { kB2, kR1, kR2, kB1 };

/*
   The arrays of coefficients over the cells of a grid: for each class that is eliminated, the columns of L to its four neighbours,
   in the order of the host twin, and the inverse pivots.
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
   The arrays of a skew operator, which couples the points b2 and b1 of a grid once r1 and r2 are eliminated: the diagonal, and the
   couplings to (x + 1, y + 1), (x - 1, y + 1), (x + 2, y) and (x, y + 2). Those of class b2 come first, those of b1 follow.
*/
enum RRBSkew : int { kSkewC, kSkewP, kSkewQ, kSkewH, kSkewV, kSkewArrays };
constexpr int kSkewOfB1 = kSkewArrays;

constexpr int kRRBTileX = 32, kRRBTileY = 8; /* cells of a tile, with a thread for each */
constexpr int kRRBTile = kRRBTileX * kRRBTileY;

/*
   A grid, or, as the last one, the points that remain for the exact factorization. The remainder is `plain`: its values are in
   lines of points on the way down, too. A grid with `half` has its odd level eliminated alone, and the points that remain after it
   are in lines of class b2 and lines of class b1 in turns.
*/
struct RRBGrid {
  LocalInt nx, ny, cx, cy; /* points, cells */
  LocalInt ld;             /* distance of lines in arrays over cells */
  LocalInt line;           /* distance of lines of points on the way up */
  bool     half, plain;
  double  *l;    /* [kRRBArrays][cy][ld] */
  double  *down; /* [4][cy][ld], or [ny][line] if plain; null for the first grid, whose values are the caller's vector */
  double  *u;    /* [cy][ld] class b1 on the way down, after the odd level */
  double  *up;   /* [ny][line]; null for the first grid */

  __host__ __device__ size_t Cells() const { return (size_t)cy * ld; }
  __device__ size_t          Cell(LocalInt I, LocalInt J) const { return (size_t)J * ld + I; }
  /* A coefficient; 0 outside the grid. */
  __device__ double L(RRBArray array, LocalInt I, LocalInt J) const
  {
    return I >= 0 && I < cx && J >= 0 && J < cy ? l[array * Cells() + Cell(I, J)] : 0.;
  }
  __device__ bool Has(int point, LocalInt I, LocalInt J) const
  {
    return I >= 0 && J >= 0 && 2 * I + (point & 1) < nx && 2 * J + (point >> 1) < ny;
  }
};

/* The place in the remainder of point b2 or b1 of a cell, for a grid with `half`. */
__host__ __device__ inline size_t RRBHalfPlace(const RRBGrid &g, int point, LocalInt I, LocalInt J)
{
  return (size_t)J * (g.cx + g.nx / 2) + (point == kB1 ? g.cx : 0) + I;
}

/* The value of a point of class b2 on the way up, which the next grid or the remainder has; 0 where there is no such point. */
__device__ __forceinline__ double UpB2(const RRBGrid &g, const RRBGrid &next, LocalInt I, LocalInt J)
{
  if (!g.Has(kB2, I, J)) return 0;
  return next.up[g.half ? RRBHalfPlace(g, kB2, I, J) : (size_t)J * next.line + I];
}

/* Stores the value of point (x, y) of the next grid where that grid reads it on the way down. */
__device__ inline void StoreDown(const RRBGrid &next, LocalInt x, LocalInt y, double value)
{
  if (next.plain) next.down[(size_t)y * next.line + x] = value;
  else next.down[((y & 1) * 2 + (x & 1)) * next.Cells() + next.Cell(x / 2, y / 2)] = value;
}

__host__ __device__ inline int RRBTiles(const RRBGrid &g)
{
  return ((g.cx + kRRBTileX - 1) / kRRBTileX) * ((g.cy + kRRBTileY - 1) / kRRBTileY);
}

constexpr int kRRBGrids      = 33;
constexpr int kRRBSmallGrids = 12; /* grids that one block does together, at most */

struct RRBFactorCUDA : RRBFactor {
  int             half_levels = 0; /* levels that are eliminated, 1 at least */
  int             count       = 0; /* grids, without the remainder */
  int             first_small = 0; /* one block does this grid and all after it */
  RRBGrid         grid[kRRBGrids + 1];
  Buffer<double>  memory;            /* coefficients and values of all grids */
  Buffer<double>  inverse;           /* [remainder^2] */
  Buffer<double>  schur;             /* [2 kSkewArrays] arrays over the cells of the first grid: S_1, if it is kept */
  bool            early   = false;   /* kernels may be launched early (launch.cuh) */
  long            used    = 0;       /* how often the values of all grids but the first were overwritten */
  cudaStream_t    capture = nullptr; /* where the graph is captured */
  cudaGraphExec_t graph   = nullptr; /* all kernels between the first grid down and the first grid up */

  /* the same for kRRBColumns vectors at once, made when they are first applied to */
  RRBGrid         column_grid[kRRBGrids + 1];
  Buffer<double>  columns; /* values of all grids, column by column */
  size_t          column_stride = 0;
  cudaGraphExec_t column_graph  = nullptr;
};

/*
   Kernels that are launched with a gate leave everything as it is if the gate is closed, which it is once *stage has come to
   closed_from. A gate with a null stage is always open.

   A gate that was closed does not open again while kernels launched early are under way. A kernel that finds it closed before the
   kernel ahead has ended may therefore end at once. A kernel that finds it open has to look again after it has waited; that load
   goes past L1, where the line may be older than the wait.
*/
struct RRBGate {
  const int *stage;
  int        closed_from;

  __device__ bool Closed() const { return stage && __ldcg(stage) >= closed_from; }
  /* At the beginning of a kernel, before it loads coefficients: whether nothing is left to do. */
  __device__ bool ClosedEarly() const
  {
    const bool closed = Closed();
    if (closed) WaitForPrevious(); /* a kernel that waits for this one relies on those ahead of it to have ended, too */
    return closed;
  }
};

/* The kernels of the middle of an application: down from the second grid, the remainder, and up to the second grid. */
PetscErrorCode RRBLaunchMiddle(const RRBFactorCUDA *, RRBGate, bool early, cudaStream_t);
