/*
   CUDA kernels of RRBCG. Vectors are on the black points of level 1, class b2 and then b1 of the first grid's cells, and the
   residual is in the storage that the second level begins with. An iteration is a sequence of kernels: p and S_1 p with its dot, r
   and level 2 down, the middle of PCRRB, level 2 up with its dot. Both p and r are needed at neighbours as they will be: they go
   from one of two arrays to the other, by the parity of the iteration, and are computed where they are needed, p around a tile, r
   around a cell. The step in x is done with the next p; what is still to be added, a p, is so whenever the solution is asked for.
   Scalars and the test stay on the device, as in cgfused.cu; the host is some launches of a graph ahead.
*/
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cgscalars.cuh"
#include "phases.h"
#include "pc/rrb/rrb.cuh"
#include "ksp/rrbcg.h"

namespace
{

constexpr int kIterations = 2;  /* of one launch of the graph */
constexpr int kInFlight   = 2;  /* launches that the host is ahead */
constexpr int kOnChip     = 8;  /* blocks a processor at most */
constexpr int kSkewOnChip = 6;  /* of the kernels of the second level, which are held back by registers */
constexpr int kMostOnChip = 4;  /* of the product */
constexpr int kVectors    = 13; /* arrays over cells: two of x, q, and of both r and p; one of z */

static_assert(sizeof(CGStage) == sizeof(int), "a gate reads the stage as an int");
static_assert(kSkewOnChip <= kOnChip && kMostOnChip <= kOnChip, "partial sums have room for so many blocks");

/* The first grid, the Schur complement on its black points, and vectors; a kernel's blocks take tiles of cells in turns. */
struct Black {
  RRBGrid       g, next;
  const double *S;     /* [2 kSkewArrays][cy][ld] */
  double       *x, *q; /* [2][cy][ld] */
  double       *r, *p; /* [2][2][cy][ld], of an even number of iterations done, and of an odd one */
  double       *z;     /* [cy][ld], class b1; b2 is next.up */
  double       *partial;
  CGState      *state;
  bool          singular; /* z is to be without its mean */

  __host__ __device__ RRBGate Gate() const { return RRBGate{(const int *)&state->s.stage, kCGDecided}; }
  __device__ double          *Of(double *v, PetscInt iteration) const { return v + (iteration & 1) * 2 * g.Cells(); } /* r or p */
  __device__ size_t           At(int what, PetscInt I, PetscInt J) const { return (what == kB1 ? g.Cells() : 0) + g.Cell(I, J); }
  __device__ double           Value(const double *v, int what, PetscInt I, PetscInt J) const
  {
    return g.Has(what, I, J) ? v[At(what, I, J)] : 0.;
  }
  template <bool Singular>
  __device__ double Z(int what, PetscInt I, PetscInt J, double mean) const
  {
    const double value = what == kB2 ? UpB2(g, next, I, J) : g.Has(kB1, I, J) ? z[g.Cell(I, J)] : 0.;
    return Singular && g.Has(what, I, J) ? value - mean : value;
  }
  __device__ double Points() const { return (double)g.cx * g.cy + (double)(g.nx / 2) * (g.ny / 2); } /* that are black */
};

/* Calls act(I, J) in the thread of each cell; all threads of a block call it as often, also beyond the last cell. */
template <typename Act>
__device__ __forceinline__ void ForCells(const RRBGrid &g, Act act)
{
  const int across = (g.cx + kRRBTileX - 1) / kRRBTileX, tiles = RRBTiles(g);
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    act(tile % across * kRRBTileX + (PetscInt)threadIdx.x % kRRBTileX,
        tile / across * kRRBTileY + (PetscInt)threadIdx.x / kRRBTileX);
}

/*
   Waits for the kernel ahead once in a block's life, which the coefficients of its first tile need not; true if an iteration is to
   be done.
*/
struct Awaited {
  bool     waited = false, running = false, starting = false;
  PetscInt iteration = 0; /* completed */
  double   a = 0, b = 0;

  __device__ __forceinline__ bool Ready(const CGState *state)
  {
    if (waited) return running;
    WaitForPrevious();
    LetNextStart();
    waited    = true;
    running   = state->s.stage < kCGDecided; /* as RRBGate has it */
    starting  = state->s.stage == kCGStarting;
    iteration = state->s.iteration;
    a         = state->s.a;
    b         = state->s.b;
    return running;
  }
};

/* Coefficients of the two rows of S_1 of a cell: diagonal, then in the order of use. Where there is no point they are zero. */
struct Rows {
  double b2[9], b1[9];

  __device__ __forceinline__ void Load(const Black &v, PetscInt I, PetscInt J)
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
   x = x + a p; p = z + b p; q = S_1 p, delta = p.q. It is the first kernel of an iteration. To look early for a closed gate takes
   it longer.
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
  ForCells(g, [&](PetscInt I, PetscInt J) {
    S.Load(v, I, J);
    if (!state.Ready(v.state)) return;
    const double *const from = v.Of(v.p, state.iteration);
    double *const       to   = v.Of(v.p, state.iteration + 1);
    const double        mean = Singular ? v.state->mean : 0.;
    __syncthreads(); /* the tile before is done with what is shared */
    const auto own = [&](int what) {
      if (!g.Has(what, I, J)) return 0.;
      const size_t at  = v.At(what, I, J);
      const double old = from[at], p = v.Z<Singular>(what, I, J, mean) + state.b * old;
      v.x[at] += state.a * old;
      to[at] = p;
      return p;
    };
    const double b2 = own(kB2), b1 = own(kB1);
    p2[j][i] = b2;
    p1[j][i] = b1;
    if ((int)threadIdx.x < kAround) { /* south and north lines, then west and east ones */
      const int k = threadIdx.x, in_line = k - 2 * kX, to_i = k < 2 * kX ? k % kX : in_line % 2 * (kX - 1),
                to_j      = k < 2 * kX ? k / kX * (kY - 1) : in_line / 2 + 1;
      const PetscInt of_I = I - i + to_i, of_J = J - j + to_j;
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
    if (s.stage == kCGStopped) s.a = 0; /* x has all that it gets */
    v.state->s = s;
  }
}

/*
   r = r - a q, r.r; level 2 down: class b2 by the cell's four b1, into what the next grid reads. Without Update, r is there. A
   thread makes the three b1 that are its neighbours' anew: to share them a tile would have to meet, which takes longer.
*/
template <bool Update>
__global__ void __launch_bounds__(kRRBTile, kSkewOnChip) DownToNext(const Black v)
{
  const RRBGrid &g       = v.g;
  double         sums[1] = {0}, l[4];
  Awaited        state;
  if (v.Gate().ClosedEarly()) return;
  ForCells(g, [&](PetscInt I, PetscInt J) {
    const bool in = I < g.cx && J < g.cy, west = in && I > 0, south = in && J > 0;
    /* to the west only the line counts, to the south the column */
    const bool   x_of_b1 = 2 * I + 1 < g.nx, y_of_b1 = 2 * J + 1 < g.ny, has_b1 = x_of_b1 && y_of_b1;
    const size_t of_b2 = g.Cell(I, J), of_b1 = g.Cells() + of_b2;
    const auto   coefficient = [&](bool there, RRBArray array, PetscInt by) {
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
  if (Update) BlockSum(sums); /* without it a 0, which nobody looks at */
  if (threadIdx.x == 0) v.partial[(v.singular ? 3 : 1) * gridDim.x + blockIdx.x] = sums[0]; /* the last sum of UpFromNext() */
}

/*
   Level 2 up: class b1 of z, and r.z; z of b2 is what the next grid wrote. It has as many blocks as DownToNext(), whose r.r it adds
   up. Of a singular matrix r.z is that of z without its mean.
*/
template <bool Singular>
__global__ void __launch_bounds__(kRRBTile, kSkewOnChip) UpFromNext(const Black v)
{
  const RRBGrid &g           = v.g;
  constexpr int  kSums       = Singular ? 4 : 2; /* r.z, of a singular matrix of z and of r, and r.r */
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
  ForCells(g, [&](PetscInt I, PetscInt J) {
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
   The residual of the whole system, in natural order, becomes r of the black points, x = 0; its sums are dots: r.r, d r.r of red
   points, g.g.
*/
__global__ void __launch_bounds__(kRRBTile) EliminateRed(const Black v, const double *given)
{
  const RRBGrid &g       = v.g;
  double         sums[3] = {0, 0, 0};
  const auto     value   = [&](int what, PetscInt I, PetscInt J) {
    return g.Has(what, I, J) ? given[(size_t)(2 * J + (what >> 1)) * g.nx + 2 * I + (what & 1)] : 0.;
  };
  ForCells(g, [&](PetscInt I, PetscInt J) {
    const double b2 = value(kB2, I, J), b1 = value(kB1, I, J), r1 = value(kR1, I, J), r2 = value(kR2, I, J);
    const double g2 = b2 - g.L(kR1West, I, J) * r1 - g.L(kR1East, I - 1, J) * value(kR1, I - 1, J) - g.L(kR2South, I, J) * r2 -
                      g.L(kR2North, I, J - 1) * value(kR2, I, J - 1);
    const double g1 = b1 - g.L(kR1North, I, J) * r1 - g.L(kR1South, I, J + 1) * value(kR1, I, J + 1) - g.L(kR2East, I, J) * r2 -
                      g.L(kR2West, I + 1, J) * value(kR2, I + 1, J);
    for (int what = kB2; what <= kB1; what += kB1 - kB2) {
      if (!g.Has(what, I, J)) continue;
      const size_t at = v.At(what, I, J);
      const double r  = what == kB2 ? g2 : g1;
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

/* The solution of the whole system, or what is added to it: x + a p of black points, and what follows for red ones. */
__global__ void __launch_bounds__(kRRBTile) SolveRed(const Black v, const double *given, bool add, double *to)
{
  const RRBGrid &g     = v.g;
  const auto     store = [&](int what, PetscInt I, PetscInt J, double value) {
    if (!g.Has(what, I, J)) return;
    double *const at = to + (size_t)(2 * J + (what >> 1)) * g.nx + 2 * I + (what & 1);
    *at              = add ? *at + value : value;
  };
  const auto value = [&](int what, PetscInt I, PetscInt J) {
    return g.Has(what, I, J) ? given[(size_t)(2 * J + (what >> 1)) * g.nx + 2 * I + (what & 1)] : 0.;
  };
  const double a = v.state->s.a, *const p = v.Of(v.p, v.state->s.iteration);
  const auto x = [&](int what, PetscInt I, PetscInt J) {
    return v.Value(v.x, what, I, J) + (a != 0 ? a * v.Value(p, what, I, J) : 0.);
  };
  ForCells(g, [&](PetscInt I, PetscInt J) {
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

__global__ void __launch_bounds__(kRRBTile) StoreResidual(const Black v, double *to)
{
  ForCells(v.g, [&](PetscInt I, PetscInt J) {
    for (int what = 0; what < 4; what++)
      if (v.g.Has(what, I, J))
        to[(size_t)(2 * J + (what >> 1)) * v.g.nx + 2 * I + (what & 1)] =
          what == kB2 || what == kB1 ? v.Of(v.r, v.state->s.iteration)[v.At(what, I, J)] : 0.;
  });
}

/* -------------------------------------- the host's side --------------------------------------- */

struct Work : RRBCGWork {
  RRBFactorCUDA  *F    = nullptr;
  long            used = 0; /* F->used since when class b2 of z, which is next.up, has been ours */
  Black           v{};
  int             tiles = 0, processors = 0;
  Buffer<double>  vectors, partial;
  Buffer<CGState> state; /* and one for each launch in flight, which the host sees */
  CGState         seen{};
  cudaEvent_t     event[kInFlight] = {};
  cudaStream_t    aside            = nullptr; /* where graphs are captured and the host's copies made */
  cudaGraphExec_t graph            = nullptr;
  struct Captured { /* what the graph is about */
    RRBGrid       grid[kRRBGrids + 1];
    int           count;
    const double *inverse;
    Black         v;
  } captured{};
  long     launched = 0, arrived = 0; /* of this solve */
  PetscInt reported = 0;              /* iterations that the caller knows of */
  CGRecord records[kCGRecords];
};

/* As many as the processors hold at once: all have as many tiles. */
int Blocks(const Work *w, int on_chip = kOnChip)
{
  return std::max(1, std::min(w->tiles, on_chip * w->processors));
}

/*
   The host sees what the first launch that it has not seen yet came to. Its memory is pageable: to pin some takes longer than
   iterations.
*/
PetscErrorCode See(Work *w)
{
  const int slot = (int)(w->arrived % kInFlight);

  PetscFunctionBegin;
  PetscCallCUDA(cudaStreamWaitEvent(w->aside, w->event[slot], 0));
  PetscCallCUDA(cudaMemcpyAsync(&w->seen, w->state.data() + 1 + slot, sizeof(CGState), cudaMemcpyDeviceToHost, w->aside));
  PetscCallCUDA(cudaStreamSynchronize(w->aside));
  w->arrived++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Launches beyond the end of a solve are still to be waited for. */
PetscErrorCode Wait(Work *w)
{
  PetscFunctionBegin;
  for (; w->arrived < w->launched; w->arrived++) PetscCallCUDA(cudaEventSynchronize(w->event[w->arrived % kInFlight]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The state of the beginning, with the mean of the z that is there */
PetscErrorCode Upload(Work *w, const CGScalars &s, const CGTest &test, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Wait(w));
  const double mean = w->seen.mean;
  memset((void *)&w->seen, 0, offsetof(CGState, records));
  w->seen.mean = mean;
  w->seen.s    = s;
  w->seen.test = test;
  PetscCallCUDA(cudaMemcpyAsync(w->state.data(), &w->seen, offsetof(CGState, records), cudaMemcpyHostToDevice, stream));
  w->launched = w->arrived = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the launches so far come to, for See() */
PetscErrorCode Keep(Work *w, cudaStream_t stream)
{
  const int slot = (int)(w->launched % kInFlight);

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemcpyAsync(w->state.data() + 1 + slot, w->state.data(), sizeof(CGState), cudaMemcpyDeviceToDevice, stream));
  PetscCallCUDA(cudaEventRecord(w->event[slot], stream));
  w->launched++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A kernel of the second level, all with as many blocks */
PetscErrorCode LaunchSkew(Work *w, void (*kernel)(Black), bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchEarly(early, kernel, Blocks(w, kSkewOnChip), kRRBTile, stream, w->v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* r, and class b2 of z = M_S^{-1} r; without Update, r is there */
template <bool Update>
PetscErrorCode LaunchToNext(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchSkew(w, DownToNext<Update>, early, stream));
  PetscCall(RRBLaunchMiddle(w->F, w->v.Gate(), early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All of z, and what ends an iteration */
template <bool Update>
PetscErrorCode LaunchPreconditioner(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchToNext<Update>(w, early, stream));
  PetscCall(LaunchSkew(w, w->v.singular ? UpFromNext<true> : UpFromNext<false>, early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Class b2 of z anew, if the program has applied the preconditioner since: its convergence test did, or its monitor. */
PetscErrorCode Restore(Work *w, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (w->used == w->F->used) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(LaunchToNext<false>(w, false, stream));
  w->used = ++w->F->used;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchProduct(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(
    LaunchEarly(early, w->v.singular ? MultiplySchur<true> : MultiplySchur<false>, Blocks(w, kMostOnChip), kRRBTile, stream, w->v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchIteration(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchProduct(w, early, stream));
  PetscCall(LaunchPreconditioner<true>(w, early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchIterations(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  for (int k = 0; k < kIterations; k++) PetscCall(LaunchIteration(w, early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The graph is kept as long as it is about the same arrays. */
PetscErrorCode DropOldGraph(Work *w)
{
  const RRBFactorCUDA *F = w->F;
  Work::Captured       now;

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
  PetscCallCUDA(cudaStreamBeginCapture(w->aside, cudaStreamCaptureModeThreadLocal));
  PetscCall(EndCapture(w->aside, LaunchIterations(w, w->F->early, w->aside), &w->graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode RRBCGPrepare_CUDA(RRBFactor *factor, RRBCGWork **work)
{
  RRBFactorCUDA *F     = static_cast<RRBFactorCUDA *>(factor);
  const RRBGrid &g     = F->grid[0];
  const size_t   cells = g.Cells();
  Work          *w     = static_cast<Work *>(*work);

  PetscFunctionBegin;
  if (!w) {
    *work = w = new Work();
    w->where  = PETSC_MEMTYPE_CUDA;
    for (cudaEvent_t &event : w->event) PetscCallCUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    PetscCallCUDA(cudaStreamCreateWithFlags(&w->aside, cudaStreamNonBlocking));
    PetscCall(w->state.Allocate(1 + kInFlight));
  }
  PetscCall(Wait(w));
  PetscCall(ProcessorCount(&w->processors));
  w->F     = F;
  w->tiles = RRBTiles(g);
  if (w->vectors.size() != kVectors * cells) PetscCall(w->vectors.Allocate(kVectors * cells));
  if (w->partial.size() != 4 * (size_t)Blocks(w)) PetscCall(w->partial.Allocate(4 * (size_t)Blocks(w)));
  memset((void *)&w->v, 0, sizeof(w->v));
  memcpy((void *)&w->v.g, &g, sizeof(g));
  memcpy((void *)&w->v.next, &F->grid[1], sizeof(g));
  w->v.S        = F->schur.data();
  w->v.x        = w->vectors.data();
  w->v.q        = w->v.x + 2 * cells;
  w->v.r        = w->v.x + 4 * cells;
  w->v.p        = w->v.x + 8 * cells;
  w->v.z        = w->v.x + 12 * cells;
  w->v.partial  = w->partial.data();
  w->v.state    = w->state.data();
  w->v.singular = F->singular;
  w->bytes      = w->vectors.bytes() + w->partial.bytes() + w->state.bytes();
  PetscCall(DropOldGraph(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGDestroy_CUDA(RRBCGWork **work)
{
  Work *w = static_cast<Work *>(*work);

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Wait(w));
  if (w->graph) PetscCallCUDA(cudaGraphExecDestroy(w->graph));
  if (w->aside) PetscCallCUDA(cudaStreamDestroy(w->aside));
  for (cudaEvent_t event : w->event)
    if (event) PetscCallCUDA(cudaEventDestroy(event));
  delete w;
  *work = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGStart_CUDA(RRBCGWork *work, const PetscScalar *r, RRBCGSums *sums)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;
  CGScalars    s{};

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  s.stage = kCGStarting;
  PetscCall(Upload(w, s, CGTest{}, stream));
  EliminateRed<<<Blocks(w), kRRBTile, 0, stream>>>(w->v, r);
  FinePCCheckLaunch();
  PetscCall(LaunchPreconditioner<false>(w, w->F->early, stream));
  w->used = ++w->F->used;
  PetscCall(Keep(w, stream));
  PetscCall(See(w));
  const CGState &seen = w->seen;
  *sums               = RRBCGSums{seen.dots[0], seen.dots[1] + seen.sums.rz, seen.dots[2], seen.sums.rz};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGBegin_CUDA(RRBCGWork *work, PetscReal beta, const CGTest *test)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;
  CGScalars    s{};

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  s.stage = kCGRunning;
  s.beta  = beta;
  PetscCall(Upload(w, s, *test, stream));
  PetscCall(Restore(w, stream));
  w->reported = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGAdvance_CUDA(RRBCGWork *work, PetscBool step, PetscInt *count, const CGRecord **records, CGStop *stop,
                                 PetscInt *its, PetscReal *value)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (w->launched == w->arrived) PetscCall(Restore(w, stream));
  while (w->launched - w->arrived < (step ? 1 : kInFlight)) {
    if (step) PetscCall(LaunchIteration(w, false, stream));
    else if (w->graph) PetscCallCUDA(cudaGraphLaunch(w->graph, stream));
    else PetscCall(LaunchIterations(w, w->F->early, stream));
    PetscCall(Keep(w, stream));
  }
  if (!step && !w->graph) PetscCall(CaptureIterations(w)); /* while the device works */
  PetscCall(See(w));
  const CGState &seen = w->seen;
  *count              = seen.s.iteration - w->reported;
  for (PetscInt k = 0; k < *count; k++) w->records[k] = seen.records[(w->reported + 1 + k) % kCGRecords];
  *records    = w->records;
  w->reported = seen.s.iteration;
  *stop       = seen.s.stop;
  *its        = seen.s.its;
  *value      = seen.s.value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGSolution_CUDA(RRBCGWork *work, const PetscScalar *r, PetscBool add, PetscScalar *x)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  SolveRed<<<Blocks(w), kRRBTile, 0, stream>>>(w->v, r, (bool)add, x);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGResidual_CUDA(RRBCGWork *work, PetscScalar *r)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  StoreResidual<<<Blocks(w), kRRBTile, 0, stream>>>(w->v, r);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGPhase_CUDA(RRBCGWork *work, PetscInt phase, const char **what, PetscInt *grid, PetscLogDouble *bytes)
{
  Work        *w      = static_cast<Work *>(work);
  const int    middle = RRBMiddlePhases(w->F);
  const size_t cells  = (size_t)w->v.g.cx * w->v.g.cy;
  const bool   early  = w->F->early; /* as in the graph */
  RRBPhase     about{};
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (phase == 0) { /* values a cell: 10 of S_1; z, p and x, new p and x, and q, two each */
    about = RRBPhase{"x + a p, z + b p, S_1 p, p.q", 0, 22 * cells * sizeof(double)};
    PetscCall(LaunchProduct(w, early, stream));
  } else if (phase == 1) { /* 4 of L; r, q and new r, two each; one for the next grid */
    about = RRBPhase{"r - a q, r.r, level 2 down", 0, 11 * cells * sizeof(double)};
    PetscCall(LaunchSkew(w, DownToNext<true>, early, stream));
  } else if (phase < 2 + middle) {
    PetscCall(RRBLaunchPhase(w->F, phase - 2, RRBGate{}, early, stream, &about));
  } else if (phase == 2 + middle) {
    about = RRBPhase{"level 2 up, r.z", 0, 9 * cells * sizeof(double)};
    PetscCall(LaunchSkew(w, w->v.singular ? UpFromNext<true> : UpFromNext<false>, early, stream));
  }
  *what  = about.what;
  *grid  = about.grid + 1;
  *bytes = (PetscLogDouble)about.bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}
