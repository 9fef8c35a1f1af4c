/*
   CUDA kernels of RRBCG. Vectors are over the black points of level 1: class b2 and then class b1 of the first grid's cells. An
   iteration is a sequence of kernels:

     MultiplySchur        x = x + a p with the step before, p = z + b p, q = S_1 p, p.q
     DownToNext           r = r - a q, r.r, and level 2 of the preconditioner down, into the grid behind it
     kernels of PCRRB     all levels behind level 2, down and up: the middle of the preconditioner
     UpFromNext           level 2 up, which completes z, and r.z

   Kernels need the new p and the new r at neighbours, too, which other blocks compute. p and r therefore go from one of two arrays
   to the other, by the parity of the iteration, and new entries are computed from old ones wherever they are needed: p around a
   tile, r around a cell. The step in x is made together with the next p; the last step, a p, is added whenever the solution is
   asked for. The scalars and the test stay on the device, and the host is some launches of a graph ahead: see mailbox.cuh.
*/
#include <algorithm>
#include <cstring>

#include "capture.cuh"
#include "mailbox.cuh"
#include "pc/rrb/rrb.cuh"
#include "ksp/rrbcg.h"

namespace
{

constexpr int kIterations = 2; /* of one launch of the graph */
constexpr int kOnChip     = 8; /* blocks on a processor at most */
constexpr int kSkewOnChip = 6; /* the same for the kernels of level 2, whose registers allow no more */
constexpr int kMostOnChip = 4; /* the same for the product */

static_assert(sizeof(CGStage) == sizeof(int), "a gate reads the stage as an int");
static_assert(kSkewOnChip <= kOnChip && kMostOnChip <= kOnChip, "partial sums have room for so many blocks");

/* The first grid, the Schur complement on its black points, and vectors. A kernel's blocks take tiles of cells in turns. */
struct Black {
  RRBGrid       g, next;
  const double *S;     /* [2 kSkewArrays][cy][ld] */
  double       *x, *q; /* [2][cy][ld] */
  double       *r, *p; /* [2][2][cy][ld]: after an even number of iterations, and after an odd one */
  double       *z;     /* [cy][ld], class b1; class b2 of z is next.up */
  double       *partial;
  CGState      *state;
  bool          singular; /* the mean of z has to be subtracted from z */

  /* Closed for kernels of PCRRB once the method has come to its end. */
  __host__ __device__ RRBGate Gate() const { return RRBGate{(const int *)&state->s.stage, kCGDecided}; }
  /* The array of r or of p after so many iterations. */
  __device__ double *Of(double *v, LocalInt iteration) const { return v + (iteration & 1) * 2 * g.Cells(); }
  __device__ size_t  At(int point, LocalInt I, LocalInt J) const { return (point == kB1 ? g.Cells() : 0) + g.Cell(I, J); }
  __device__ double  Value(const double *v, int point, LocalInt I, LocalInt J) const
  {
    return g.Has(point, I, J) ? v[At(point, I, J)] : 0.;
  }
  template <bool Singular>
  __device__ double Z(int point, LocalInt I, LocalInt J, double mean) const
  {
    const double value = point == kB2 ? UpB2(g, next, I, J) : g.Has(kB1, I, J) ? z[g.Cell(I, J)] : 0.;
    return Singular && g.Has(point, I, J) ? value - mean : value;
  }
  /* The number of black points. */
  __device__ double Points() const { return (double)g.cx * g.cy + (double)(g.nx / 2) * (g.ny / 2); }
};

/* Calls act(I, J) in the thread of each cell. All threads of a block call it equally often, some beyond the last cell. */
template <typename Act>
__device__ __forceinline__ void ForCells(const RRBGrid &g, Act act)
{
  const int across = (g.cx + kRRBTileX - 1) / kRRBTileX, tiles = RRBTiles(g);
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    act(tile % across * kRRBTileX + (LocalInt)threadIdx.x % kRRBTileX,
        tile / across * kRRBTileY + (LocalInt)threadIdx.x / kRRBTileX);
}

/* The scalars of the state, as the kernel ahead leaves them. */
struct Awaited {
  bool     waited = false, running = false, starting = false;
  LocalInt iteration = 0; /* iterations that are complete */
  double   a = 0, b = 0;

  /*
     Whether an iteration is to be done. The first call waits for the kernel ahead: a block can ask for the coefficients of its
     first tile before it calls.
  */
  __device__ __forceinline__ bool Ready(const CGState *state)
  {
    if (waited) return running;
    WaitForPrevious();
    LetNextStart();
    waited    = true;
    running   = state->s.stage < kCGDecided; /* as Gate() says it to the kernels of PCRRB */
    starting  = state->s.stage == kCGStarting;
    iteration = state->s.iteration;
    a         = state->s.a;
    b         = state->s.b;
    return running;
  }
};

/* Coefficients of the two rows of S_1 of a cell, the diagonal first. Where there is no point they are zero. */
struct Rows {
  double b2[9], b1[9];

  __device__ __forceinline__ void Load(const Black &v, LocalInt I, LocalInt J)
  {
    const RRBGrid &g     = v.g;
    const size_t   cells = g.Cells();
    const bool     in = I < g.cx && J < g.cy, west = in && I > 0, south = in && J > 0, east = I + 1 < g.cx && J < g.cy;
    const double  *of_b2 = v.S + g.Cell(I, J), *of_b1 = of_b2 + kSkewOfB1 * cells;
    const auto     get = [=](bool there, const double *from, RRBSkew array, ptrdiff_t by) {
      return there ? from[array * cells + by] : 0.;
    };

    b2[0] = get(in, of_b2, kSkewC, 0);
    b2[1] = get(in, of_b2, kSkewP, 0);                    /* north-east */
    b2[2] = get(in, of_b2, kSkewQ, 0);                    /* north-west */
    b2[3] = get(south, of_b1, kSkewQ, -g.ld);             /* south-east */
    b2[4] = get(south && west, of_b1, kSkewP, -g.ld - 1); /* south-west */
    b2[5] = get(in, of_b2, kSkewH, 0);
    b2[6] = get(west, of_b2, kSkewH, -1);
    b2[7] = get(in, of_b2, kSkewV, 0);
    b2[8] = get(south, of_b2, kSkewV, -g.ld);
    b1[0] = get(in, of_b1, kSkewC, 0);
    b1[1] = get(in, of_b1, kSkewP, 0);   /* north-east */
    b1[2] = get(in, of_b1, kSkewQ, 0);   /* north-west */
    b1[3] = get(east, of_b2, kSkewQ, 1); /* south-east */
    b1[4] = b2[1];                       /* south-west */
    b1[5] = get(in, of_b1, kSkewH, 0);
    b1[6] = get(west, of_b1, kSkewH, -1);
    b1[7] = get(in, of_b1, kSkewV, 0);
    b1[8] = get(south, of_b1, kSkewV, -g.ld);
  }
};

/*
   x = x + a p, p = z + b p, q = S_1 p, delta = p.q: the first kernel of an iteration. It does not look for a closed gate before
   anything else, as the kernels of level 2 do, because that makes it slower.
*/
template <bool Singular>
__global__ void __launch_bounds__(kRRBTile, kMostOnChip) MultiplySchur(const Black v)
{
  constexpr int     kX = kRRBTileX + 2, kY = kRRBTileY + 2, kAround = kX * kY - kRRBTile;
  __shared__ double p2[kY][kX], p1[kY][kX];
  const RRBGrid    &g = v.g;
  const int         i = threadIdx.x % kRRBTileX + 1, j = threadIdx.x / kRRBTileX + 1;
  double            delta[1] = {0};
  Rows              S;
  Awaited           state;
  ForCells(g, [&](LocalInt I, LocalInt J) {
    S.Load(v, I, J);
    if (!state.Ready(v.state)) return;
    const double *const from = v.Of(v.p, state.iteration);
    double *const       to   = v.Of(v.p, state.iteration + 1);
    const double        mean = Singular ? v.state->mean : 0.;
    __syncthreads(); /* p2 and p1 of the tile before are not needed any more */
    const auto own = [&](int point) {
      if (!g.Has(point, I, J)) return 0.;
      const size_t at  = v.At(point, I, J);
      const double old = from[at], p = v.Z<Singular>(point, I, J, mean) + state.b * old;
      v.x[at] += state.a * old;
      to[at] = p;
      return p;
    };
    const double b2 = own(kB2), b1 = own(kB1);
    p2[j][i] = b2;
    p1[j][i] = b1;
    if ((int)threadIdx.x < kAround) { /* the lines around the tile: south and north, then west and east */
      const int k = threadIdx.x, in_line = k - 2 * kX, to_i = k < 2 * kX ? k % kX : in_line % 2 * (kX - 1),
                to_j      = k < 2 * kX ? k / kX * (kY - 1) : in_line / 2 + 1;
      const LocalInt of_I = I - i + to_i, of_J = J - j + to_j;
      p2[to_j][to_i] = v.Z<Singular>(kB2, of_I, of_J, mean) + state.b * v.Value(from, kB2, of_I, of_J);
      p1[to_j][to_i] = v.Z<Singular>(kB1, of_I, of_J, mean) + state.b * v.Value(from, kB1, of_I, of_J);
    }
    __syncthreads();
    const double q2 = S.b2[0] * b2 + S.b2[1] * b1 + S.b2[2] * p1[j][i - 1] + S.b2[3] * p1[j - 1][i] + S.b2[4] * p1[j - 1][i - 1] +
                      S.b2[5] * p2[j][i + 1] + S.b2[6] * p2[j][i - 1] + S.b2[7] * p2[j + 1][i] + S.b2[8] * p2[j - 1][i];
    const double q1 = S.b1[0] * b1 + S.b1[1] * p2[j + 1][i + 1] + S.b1[2] * p2[j + 1][i] + S.b1[3] * p2[j][i + 1] + S.b1[4] * b2 +
                      S.b1[5] * p1[j][i + 1] + S.b1[6] * p1[j][i - 1] + S.b1[7] * p1[j + 1][i] + S.b1[8] * p1[j - 1][i];
    if (g.Has(kB2, I, J)) v.q[v.At(kB2, I, J)] = q2;
    if (g.Has(kB1, I, J)) v.q[v.At(kB1, I, J)] = q1;
    delta[0] += b2 * q2 + b1 * q1;
  });
  if (!state.running) return;
  if (GridSumLast(delta, v.partial, &v.state->ticket)) {
    CGScalars s = v.state->s;
    DecideDelta(s, delta[0]);
    if (s.stage == kCGStopped) s.a = 0; /* x is complete: no step is left for SolveRed() */
    v.state->s = s;
  }
}

/*
   r = r - a q, r.r, and level 2 down: class b2, less what its four neighbours of class b1 contribute, goes to where the next grid
   reads it. Without Update r is already there. A thread computes the three b1 of neighbouring cells itself: to share them the
   threads of a tile would have to wait for one another, which takes longer.
*/
template <bool Update>
__global__ void __launch_bounds__(kRRBTile, kSkewOnChip) DownToNext(const Black v)
{
  const RRBGrid &g       = v.g;
  double         sums[1] = {0}, l[4];
  Awaited        state;
  if (v.Gate().ClosedEarly()) return;
  ForCells(g, [&](LocalInt I, LocalInt J) {
    const bool in = I < g.cx && J < g.cy, west = in && I > 0, south = in && J > 0;
    /* whether the western neighbour has a b1 depends on the line alone, the southern one on the column alone */
    const bool   x_of_b1 = 2 * I + 1 < g.nx, y_of_b1 = 2 * J + 1 < g.ny, has_b1 = x_of_b1 && y_of_b1;
    const size_t of_b2 = g.Cell(I, J), of_b1 = g.Cells() + of_b2;
    const auto   coefficient = [&](bool there, RRBArray array, LocalInt by) {
      return there ? g.l[array * g.Cells() + of_b2 - by] : 0.;
    };
    if (!g.half) {
      l[0] = coefficient(in, kB1SouthWest, 0);
      l[1] = coefficient(west, kB1SouthEast, 1);
      l[2] = coefficient(south, kB1NorthWest, g.ld);
      l[3] = coefficient(west && south, kB1NorthEast, g.ld + 1);
    }
    if (!state.Ready(v.state)) return;
    const double *const from = v.Of(v.r, state.iteration);
    double *const       to   = v.Of(v.r, state.iteration + 1);
    const auto          r  = [&](bool there, size_t at) { return !there ? 0. : Update ? from[at] - state.a * v.q[at] : from[at]; };
    const double        b2 = r(in, of_b2), b1 = r(has_b1, of_b1);
    double              down = 0;
    if (!g.half)
      down = b2 - l[0] * b1 - l[1] * r(west && y_of_b1, of_b1 - 1) - l[2] * r(south && x_of_b1, of_b1 - g.ld) -
             l[3] * r(west && south, of_b1 - g.ld - 1);
    if (Update) {
      if (in) to[of_b2] = b2;
      if (has_b1) to[of_b1] = b1;
      sums[0] += b2 * b2 + b1 * b1;
    }
    if (!g.half) {
      if (in) StoreDown(v.next, I, J, down);
    } else {
      if (in) v.next.down[RRBHalfPlace(g, kB2, I, J)] = b2;
      if (has_b1) v.next.down[RRBHalfPlace(g, kB1, I, J)] = b1;
    }
  });
  if (!state.running) return;
  if (Update) BlockSum(sums); /* else the sum is 0, and nobody looks at it */
  if (threadIdx.x == 0)
    v.partial[(v.singular ? 3 : 1) * gridDim.x + blockIdx.x] = sums[0]; /* UpFromNext() adds it up as its last sum */
}

/*
   Level 2 up: class b1 of z, and r.z. Class b2 of z is what the next grid wrote. The kernel has as many blocks as DownToNext(),
   whose parts of r.r it adds up. With a singular matrix r.z is computed for z without its mean, which stays in the state.
*/
template <bool Singular>
__global__ void __launch_bounds__(kRRBTile, kSkewOnChip) UpFromNext(const Black v)
{
  const RRBGrid &g           = v.g;
  constexpr int  kSums       = Singular ? 4 : 2; /* r.z, with a singular matrix the sums of z and of r, and r.r */
  double         sums[kSums] = {}, l[5];
  Awaited        state;
  const auto     add = [&](double r, double z) {
    sums[0] += r * z;
    if constexpr (Singular) {
      sums[1] += z;
      sums[2] += r;
    }
  };
  if (v.Gate().ClosedEarly()) return;
  ForCells(g, [&](LocalInt I, LocalInt J) {
    if (!g.half)
#pragma unroll
      for (int k = 0; k < 5; k++) l[k] = g.L((RRBArray)(kB1SouthWest + k), I, J);
    if (!state.Ready(v.state)) return;
    const double *const r = v.Of(v.r, state.iteration + (state.starting ? 0 : 1));
    if (g.half) {
      const double b2 = UpB2(g, v.next, I, J);
      add(v.Value(r, kB2, I, J), b2);
      if (!g.Has(kB1, I, J)) return;
      const double z    = v.next.up[RRBHalfPlace(g, kB1, I, J)];
      v.z[g.Cell(I, J)] = z;
      add(r[v.At(kB1, I, J)], z);
      return;
    }
    const bool          east = I + 1 < g.cx, north = J + 1 < g.cy, has_b1 = g.Has(kB1, I, J);
    const double *const at = v.next.up + (size_t)J * v.next.line + I, *const of_b2 = r + g.Cell(I, J);
    if (I >= g.cx || J >= g.cy) return;
    const double r2 = of_b2[0], r1 = has_b1 ? of_b2[g.Cells()] : 0., b2 = at[0], of_east = east ? at[1] : 0.,
                 of_north = north ? at[v.next.line] : 0., of_both = east && north ? at[v.next.line + 1] : 0.;
    const double z = l[4] * r1 - l[0] * b2 - l[1] * of_both - l[2] * of_east - l[3] * of_north;
    if (has_b1) v.z[g.Cell(I, J)] = z;
    sums[0] += r2 * b2 + r1 * z;
    if constexpr (Singular) {
      sums[1] += b2 + (has_b1 ? z : 0.);
      sums[2] += r2 + r1;
    }
  });
  if (!state.running) return;
  if (!GridSumLast<kSums, 1>(sums, v.partial, &v.state->ticket)) return;
  if constexpr (Singular) {
    const double mean = sums[1] / v.Points();
    v.state->mean     = mean;
    sums[0] -= mean * sums[2];
  }
  FinishIteration(v.state, sums[kSums - 1], sums[0]);
}

/*
   Eliminates the red points: the residual of the whole system, which is given in natural order, becomes the right-hand side g of
   S_1, and with x = 0 its first residual. Three sums go to the dots of the state: r.r of the whole residual, r.D r of its red
   points, and g.g.
*/
__global__ void __launch_bounds__(kRRBTile) EliminateRed(const Black v, const double *given)
{
  const RRBGrid &g       = v.g;
  double         sums[3] = {0, 0, 0};
  const auto     value   = [&](int point, LocalInt I, LocalInt J) {
    return g.Has(point, I, J) ? given[(size_t)(2 * J + (point >> 1)) * g.nx + 2 * I + (point & 1)] : 0.;
  };
  ForCells(g, [&](LocalInt I, LocalInt J) {
    const double b2 = value(kB2, I, J), b1 = value(kB1, I, J), r1 = value(kR1, I, J), r2 = value(kR2, I, J);
    const double g2 = b2 - g.L(kR1West, I, J) * r1 - g.L(kR1East, I - 1, J) * value(kR1, I - 1, J) - g.L(kR2South, I, J) * r2 -
                      g.L(kR2North, I, J - 1) * value(kR2, I, J - 1);
    const double g1 = b1 - g.L(kR1North, I, J) * r1 - g.L(kR1South, I, J + 1) * value(kR1, I, J + 1) - g.L(kR2East, I, J) * r2 -
                      g.L(kR2West, I + 1, J) * value(kR2, I + 1, J);
    for (int point = kB2; point <= kB1; point += kB1 - kB2) {
      if (!g.Has(point, I, J)) continue;
      const size_t at = v.At(point, I, J);
      const double r  = point == kB2 ? g2 : g1;
      v.r[at]         = r;
      v.x[at] = v.p[at] = 0;
      sums[2] += r * r;
    }
    sums[0] += b2 * b2 + b1 * b1 + r1 * r1 + r2 * r2;
    sums[1] += g.L(kR1Pivot, I, J) * r1 * r1 + g.L(kR2Pivot, I, J) * r2 * r2;
  });
  if (!GridSumLast(sums, v.partial, &v.state->ticket)) return;
  for (int c = 0; c < 3; c++) v.state->dots[c] = sums[c];
}

/* The solution of the whole system, or with add what the guess gets: x + a p in black points, and what follows in red ones. */
__global__ void __launch_bounds__(kRRBTile) SolveRed(const Black v, const double *given, bool add, double *to)
{
  const RRBGrid &g     = v.g;
  const auto     store = [&](int point, LocalInt I, LocalInt J, double value) {
    if (!g.Has(point, I, J)) return;
    double *const at = to + (size_t)(2 * J + (point >> 1)) * g.nx + 2 * I + (point & 1);
    *at              = add ? *at + value : value;
  };
  const auto value = [&](int point, LocalInt I, LocalInt J) {
    return g.Has(point, I, J) ? given[(size_t)(2 * J + (point >> 1)) * g.nx + 2 * I + (point & 1)] : 0.;
  };
  const double a = v.state->s.a, *const p = v.Of(v.p, v.state->s.iteration);
  const auto x = [&](int point, LocalInt I, LocalInt J) {
    return v.Value(v.x, point, I, J) + (a != 0 ? a * v.Value(p, point, I, J) : 0.);
  };
  ForCells(g, [&](LocalInt I, LocalInt J) {
    const double b2 = x(kB2, I, J), b1 = x(kB1, I, J);
    store(kB2, I, J, b2);
    store(kB1, I, J, b1);
    store(kR1, I, J,
          g.L(kR1Pivot, I, J) * value(kR1, I, J) - g.L(kR1West, I, J) * b2 - g.L(kR1East, I, J) * x(kB2, I + 1, J) -
            g.L(kR1South, I, J) * x(kB1, I, J - 1) - g.L(kR1North, I, J) * b1);
    store(kR2, I, J,
          g.L(kR2Pivot, I, J) * value(kR2, I, J) - g.L(kR2West, I, J) * x(kB1, I - 1, J) - g.L(kR2East, I, J) * b1 -
            g.L(kR2South, I, J) * b2 - g.L(kR2North, I, J) * x(kB2, I, J + 1));
  });
}

/* The residual of the whole system in natural order: 0 in red points. */
__global__ void __launch_bounds__(kRRBTile) StoreResidual(const Black v, double *to)
{
  ForCells(v.g, [&](LocalInt I, LocalInt J) {
    for (int point = 0; point < 4; point++)
      if (v.g.Has(point, I, J))
        to[(size_t)(2 * J + (point >> 1)) * v.g.nx + 2 * I + (point & 1)] =
          point == kB2 || point == kB1 ? v.Of(v.r, v.state->s.iteration)[v.At(point, I, J)] : 0.;
  });
}

/* -------------------------------------- the host's side --------------------------------------- */

/* What a captured graph was made for: its kernels have these parameters. */
struct Captured {
  RRBGrid       grid[kRRBGrids + 1];
  int           count;
  const double *inverse;
  Black         v;
};

struct Work : RRBCGWork {
  RRBFactorCUDA  *F    = nullptr;
  long            used = 0; /* F->used when class b2 of z, which is in next.up, was last written for this solver */
  Black           v{};
  int             tiles = 0, processors = 0;
  Buffer<char>    vectors;
  Buffer<double>  partial;
  CGMailbox       mailbox;
  cudaStream_t    aside = nullptr; /* for captures, and for the copies that the host reads */
  cudaGraphExec_t graph = nullptr;
  Captured        captured{};
};

/* Blocks of a kernel over tiles: no more than the processors hold at once, so that all blocks have equally many tiles. */
int Blocks_RRBCG(const Work *w, int on_chip = kOnChip)
{
  return std::max(1, std::min(w->tiles, on_chip * w->processors));
}

/* Launches a kernel of level 2. All of them have the same number of blocks. */
PetscErrorCode LaunchSkew(Work *w, void (*kernel)(Black), bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchEarly(early, kernel, Blocks_RRBCG(w, kSkewOnChip), kRRBTile, stream, w->v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* r, and class b2 of z = M_S^{-1} r. Without Update r is already there. */
template <bool Update>
PetscErrorCode LaunchToNext(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchSkew(w, DownToNext<Update>, early, stream));
  PetscCall(RRBLaunchMiddle(w->F, w->v.Gate(), early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* r, all of z = M_S^{-1} r, and what ends an iteration. Without Update r is already there. */
template <bool Update>
PetscErrorCode LaunchPreconditioner(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchToNext<Update>(w, early, stream));
  PetscCall(LaunchSkew(w, w->v.singular ? UpFromNext<true> : UpFromNext<false>, early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Class b2 of z anew, if a monitor or a convergence test of the program has applied the preconditioner meanwhile. */
PetscErrorCode Restore_RRBCG(Work *w, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (w->used == w->F->used) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(LaunchToNext<false>(w, false, stream));
  w->used = ++w->F->used;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchProduct_RRBCG(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchEarly(early, w->v.singular ? MultiplySchur<true> : MultiplySchur<false>, Blocks_RRBCG(w, kMostOnChip), kRRBTile,
                        stream, w->v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchIteration(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchProduct_RRBCG(w, early, stream));
  PetscCall(LaunchPreconditioner<true>(w, early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchIterations_RRBCG(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  for (int k = 0; k < kIterations; k++) PetscCall(LaunchIteration(w, early, stream));
  PetscCall(w->mailbox.Post(early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A graph is kept as long as its kernels would have the same parameters. */
PetscErrorCode DropOldGraph(Work *w)
{
  const RRBFactorCUDA *F = w->F;
  Captured             now;

  PetscFunctionBegin;
  memset((void *)&now, 0, sizeof(now)); /* with its padding, which is compared */
  for (int k = 0; k <= F->count; k++) memcpy((void *)&now.grid[k], &F->grid[k], sizeof(now.grid[k]));
  now.count   = F->count;
  now.inverse = F->inverse.data();
  memcpy((void *)&now.v, &w->v, sizeof(now.v));
  if (!memcmp(&now, &w->captured, sizeof(now))) PetscFunctionReturn(PETSC_SUCCESS);
  if (w->graph) PetscCallCUDA(cudaGraphExecDestroy(w->graph));
  w->graph = nullptr;
  memcpy((void *)&w->captured, &now, sizeof(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CaptureIterations(Work *w)
{
  PetscFunctionBegin;
  PetscCall(
    CaptureGraph(&w->aside, [w](cudaStream_t stream) { return LaunchIterations_RRBCG(w, w->F->early, stream); }, &w->graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode RRBCGPrepare_CUDA(RRBFactor *factor, RRBCGWork **work)
{
  RRBFactorCUDA *F     = static_cast<RRBFactorCUDA *>(factor);
  const RRBGrid &g     = F->grid[0];
  const size_t   cells = g.Cells();
  Work          *w     = static_cast<Work *>(*work);
  Layout         layout;

  PetscFunctionBegin;
  if (!w) {
    *work = w = new Work();
    w->where  = PETSC_MEMTYPE_CUDA;
    PetscCallCUDA(cudaStreamCreateWithFlags(&w->aside, cudaStreamNonBlocking));
    PetscCall(w->mailbox.CreateFetched(w->aside));
  }
  PetscCall(w->mailbox.Wait());
  PetscCall(ProcessorCount(&w->processors));
  w->F     = F;
  w->tiles = RRBTiles(g);
  if (w->partial.size() != 4 * (size_t)Blocks_RRBCG(w)) PetscCall(w->partial.Allocate(4 * (size_t)Blocks_RRBCG(w)));
  memset((void *)&w->v, 0, sizeof(w->v));
  memcpy((void *)&w->v.g, &g, sizeof(g));
  memcpy((void *)&w->v.next, &F->grid[1], sizeof(g));
  layout.Place(&w->v.x, 2 * cells);
  layout.Place(&w->v.q, 2 * cells);
  layout.Place(&w->v.r, 4 * cells);
  layout.Place(&w->v.p, 4 * cells);
  layout.Place(&w->v.z, cells);
  if (w->vectors.size() != layout.bytes()) PetscCall(w->vectors.Allocate(layout.bytes()));
  layout.Bind(w->vectors.data());
  w->v.S        = F->schur.data();
  w->v.partial  = w->partial.data();
  w->v.state    = w->mailbox.state();
  w->v.singular = F->singular;
  w->bytes      = w->vectors.bytes() + w->partial.bytes() + w->mailbox.bytes();
  PetscCall(DropOldGraph(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGDestroy_CUDA(RRBCGWork **work)
{
  Work *w = static_cast<Work *>(*work);

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(w->mailbox.Destroy());
  if (w->graph) PetscCallCUDA(cudaGraphExecDestroy(w->graph));
  if (w->aside) PetscCallCUDA(cudaStreamDestroy(w->aside));
  delete w;
  *work = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGStart_CUDA(RRBCGWork *work, const PetscScalar *r, RRBCGSums *sums)
{
  Work          *w    = static_cast<Work *>(work);
  const CGState *seen = nullptr;
  cudaStream_t   stream;
  CGScalars      s{};

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  s.stage = kCGStarting;
  PetscCall(w->mailbox.Begin(s, CGTest{}, stream));
  EliminateRed<<<Blocks_RRBCG(w), kRRBTile, 0, stream>>>(w->v, r);
  FinePCCheckLaunch();
  PetscCall(LaunchPreconditioner<false>(w, w->F->early, stream));
  w->used = ++w->F->used;
  PetscCall(w->mailbox.Fetch(stream, &seen));
  *sums = RRBCGSums{seen->dots[0], seen->dots[1] + seen->sums.rz, seen->dots[2], seen->sums.rz};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGBegin_CUDA(RRBCGWork *work, PetscReal beta, const CGTest *test)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;
  CGScalars    s{};

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  s.stage = kCGRunning;
  s.beta  = beta;
  PetscCall(w->mailbox.Begin(s, *test, stream));
  PetscCall(Restore_RRBCG(w, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGAdvance_CUDA(RRBCGWork *work, PetscBool step, LocalInt *count, const CGRecord **records, CGStop *stop,
                                 LocalInt *its, PetscReal *value)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (w->mailbox.idle()) PetscCall(Restore_RRBCG(w, stream));
  PetscCall(w->mailbox.KeepAhead(step ? 1 : kCGInFlight, stream, [&]() {
    PetscFunctionBegin;
    if (step) {
      PetscCall(LaunchIteration(w, false, stream));
      PetscCall(w->mailbox.Post(false, stream));
    } else if (w->graph) PetscCallCUDA(cudaGraphLaunch(w->graph, stream));
    else PetscCall(LaunchIterations_RRBCG(w, w->F->early, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  if (!step && !w->graph) PetscCall(CaptureIterations(w)); /* while the device works */
  PetscCall(w->mailbox.Report(count, records, stop, its, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGSolution_CUDA(RRBCGWork *work, const PetscScalar *r, PetscBool add, PetscScalar *x)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  SolveRed<<<Blocks_RRBCG(w), kRRBTile, 0, stream>>>(w->v, r, (bool)add, x);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGResidual_CUDA(RRBCGWork *work, PetscScalar *r)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  StoreResidual<<<Blocks_RRBCG(w), kRRBTile, 0, stream>>>(w->v, r);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
