/*
   The application of RRB on a GPU: forward substitution down the grids, the product with the inverse of the remainder, backward
   substitution up the grids. Both levels of a grid are done by one kernel each way, and small grids together by one block. All that
   lies between the first kernel of the first grid and its last one is launched as a graph.
*/
#include "capture.cuh"
#include "rrb_factor.cuh"

namespace
{

constexpr int kTilesOnChip    = 4; /* blocks with a tile each that a processor is to hold at once */
constexpr int kSmallBlock     = 1024;
constexpr int kSmallRemainder = 64; /* points of a remainder that the block of the small grids multiplies, too */
constexpr int kInverseWarps   = 8;  /* rows of the inverse in a block, each of them done by a warp */
constexpr int kInverseAhead   = 16; /* entries of the inverse that a lane loads before it uses any */

/*
   Several right-hand sides: the kernels load coefficients once and then take one column after the other. The values of a column lie
   `stride` values behind those of the column before, in all arrays of values, and its vectors ldx and ldy values.
*/
struct Columns {
  size_t   stride;
  LocalInt ldx, ldy;
};

/* The grid with the values of a column; of a single column, the grid as it is. */
template <int Count>
__device__ __forceinline__ decltype(auto) OfColumn(const RRBGrid &g, const Columns &columns, int c)
{
  if constexpr (Count == 1) return (g);
  else {
    RRBGrid of_column = g;
    of_column.down += c * columns.stride;
    of_column.u += c * columns.stride;
    of_column.up += c * columns.stride;
    return of_column;
  }
}

/* Blocks with a tile each that a processor is to hold at once. */
template <int Count>
constexpr int TilesOnChip()
{
  return Count == 1 ? kTilesOnChip : kTilesOnChip / 2;
}

/* --------------------------------------- the remainder ---------------------------------------- */

/* y = M x for each column, each warp a row. The first entries of M are loaded before x is there. */
template <int Count>
__global__ void __launch_bounds__(kInverseWarps *kWarpSize)
  MultiplyInverse(LocalInt m, const double *M, const double *x, double *y, Columns columns, RRBGate gate)
{
  const LocalInt      row = (LocalInt)(GridThread() / kWarpSize), lane = threadIdx.x % kWarpSize;
  const double *const a = M + (size_t)min(row, m - 1) * m;
  double              ahead[kInverseAhead], sum[Count];
  if (gate.ClosedEarly()) return;
#pragma unroll
  for (int c = 0; c < Count; c++) sum[c] = 0;
#pragma unroll
  for (int k = 0; k < kInverseAhead; k++) ahead[k] = lane + k * kWarpSize < m ? a[lane + k * kWarpSize] : 0.;
  WaitForPrevious();
  LetNextStart();
  if (gate.Closed()) return;
  for (LocalInt first = lane; first < m; first += kInverseAhead * kWarpSize) {
#pragma unroll
    for (int c = 0; c < Count; c++) {
      const double *const of_column = x + c * columns.stride;
      double              value[kInverseAhead];
#pragma unroll
      for (int k = 0; k < kInverseAhead; k++) value[k] = first + k * kWarpSize < m ? of_column[first + k * kWarpSize] : 0.;
#pragma unroll
      for (int k = 0; k < kInverseAhead; k++) sum[c] += ahead[k] * value[k];
    }
    const LocalInt next = first + kInverseAhead * kWarpSize;
#pragma unroll
    for (int k = 0; k < kInverseAhead; k++) ahead[k] = next + k * kWarpSize < m ? a[next + k * kWarpSize] : 0.;
  }
#pragma unroll
  for (int c = 0; c < Count; c++) {
    sum[c] = GroupSum<kWarpSize>(sum[c]);
    if (lane == 0 && row < m) y[row + c * columns.stride] = sum[c];
  }
}

/* ------------------------------------ a grid, tile by tile ------------------------------------ */

/* Waits until the values of the kernel ahead are there, and tells whether the gate is open. */
__device__ __forceinline__ bool Started(const RRBGate &gate)
{
  WaitForPrevious();
  LetNextStart();
  return !gate.Closed();
}

/* The value of a point on the way down, 0 where there is no such point. The first grid has it in vector x, in natural order. */
template <bool First>
__device__ __forceinline__ double Down(const RRBGrid &g, const double *x, int point, LocalInt I, LocalInt J)
{
  if (!g.Has(point, I, J)) return 0;
  if constexpr (First) return x[(size_t)(2 * J + (point >> 1)) * g.nx + 2 * I + (point & 1)];
  else return g.down[point * g.Cells() + g.Cell(I, J)];
}

/* Values of the points of a tile, and of those around it that the tile needs. */
struct TileOfDown {
  double r1[kRRBTileY + 2][kRRBTileX + 1], r2[kRRBTileY + 1][kRRBTileX + 2], b1[kRRBTileY + 1][kRRBTileX + 1];
};
struct TileOfUp {
  double b2[kRRBTileY + 2][kRRBTileX + 2], b1[kRRBTileY + 1][kRRBTileX + 1];
};

/* The place of a thread in a tile: its cell, and for some threads (halo) another one to the west or south of the tile. */
struct TilePlace {
  LocalInt I0, J0, I, J, halo_I, halo_J; /* in the grid; I0, J0: the first cell of the tile */
  int      thread, i, j, halo_i, halo_j; /* in the tile */
  bool     halo;

  __device__ __forceinline__ TilePlace(const RRBGrid &g, int tile)
  {
    const int across = (g.cx + kRRBTileX - 1) / kRRBTileX;
    thread           = threadIdx.x % kRRBTile;
    i                = thread % kRRBTileX;
    j                = thread / kRRBTileX;
    I0               = tile % across * kRRBTileX;
    J0               = tile / across * kRRBTileY;
    I                = I0 + i;
    J                = J0 + j;
    halo             = thread < kRRBTileX + 1 + kRRBTileY;
    halo_i           = thread <= kRRBTileX ? thread - 1 : -1;
    halo_j           = thread <= kRRBTileX ? -1 : thread - kRRBTileX - 1;
    halo_I           = I0 + halo_i;
    halo_J           = J0 + halo_j;
  }
};

/*
   Forward substitution with both levels of a grid, on one tile by kRRBTile threads. A tile beyond the last one has no points. Class
   b1 is updated on the tile and on the cells to its west and south, because b2 needs these values; every coefficient belongs to one
   black point.

   Coefficients are loaded before ready() is called, in which all threads of the block meet, and which tells whether the values are
   there. If it says no, nothing is done.
*/
template <bool First, int Count, typename Ready>
__device__ __forceinline__ void TileDown(const RRBGrid &of_all, const RRBGrid &next_of_all, const double *x, const Columns &columns,
                                         int tile, TileOfDown &shared, Ready ready)
{
  auto           &r1 = shared.r1;
  auto           &r2 = shared.r2;
  auto           &b1 = shared.b1;
  const TilePlace at(of_all, tile);
  const LocalInt  I = at.I, J = at.J;
  const int       i = at.i, j = at.j;
  const bool      halo       = at.halo && !of_all.half;
  double          of_halo[4] = {0, 0, 0, 0}, of_b1[4], of_b2[4], skew[4] = {0, 0, 0, 0};

  of_b1[0] = of_all.L(kR1North, I, J);
  of_b1[1] = of_all.L(kR1South, I, J + 1);
  of_b1[2] = of_all.L(kR2East, I, J);
  of_b1[3] = of_all.L(kR2West, I + 1, J);
  of_b2[0] = of_all.L(kR1West, I, J);
  of_b2[1] = of_all.L(kR1East, I - 1, J);
  of_b2[2] = of_all.L(kR2South, I, J);
  of_b2[3] = of_all.L(kR2North, I, J - 1);
  if (!of_all.half) {
    skew[0] = of_all.L(kB1SouthWest, I, J);
    skew[1] = of_all.L(kB1SouthEast, I - 1, J);
    skew[2] = of_all.L(kB1NorthWest, I, J - 1);
    skew[3] = of_all.L(kB1NorthEast, I - 1, J - 1);
  }
  if (halo) {
    of_halo[0] = of_all.L(kR1North, at.halo_I, at.halo_J);
    of_halo[1] = of_all.L(kR1South, at.halo_I, at.halo_J + 1);
    of_halo[2] = of_all.L(kR2East, at.halo_I, at.halo_J);
    of_halo[3] = of_all.L(kR2West, at.halo_I + 1, at.halo_J);
  }
  if (!ready()) return;
#pragma unroll 1
  for (int c = 0; c < Count; c++) {
    const auto         &g = OfColumn<Count>(of_all, columns, c), &next = OfColumn<Count>(next_of_all, columns, c);
    const double *const x_c = First ? x + (size_t)c * columns.ldx : nullptr;
    if (c) __syncthreads(); /* the column before is done */
    const double own_b1 = Down<First>(g, x_c, kB1, I, J), own_b2 = Down<First>(g, x_c, kB2, I, J),
                 halo_b1 = halo ? Down<First>(g, x_c, kB1, at.halo_I, at.halo_J) : 0.;
    for (int k = at.thread; k < (kRRBTileY + 2) * (kRRBTileX + 1); k += kRRBTile)
      r1[k / (kRRBTileX + 1)][k % (kRRBTileX + 1)] =
        Down<First>(g, x_c, kR1, at.I0 - 1 + k % (kRRBTileX + 1), at.J0 - 1 + k / (kRRBTileX + 1));
    for (int k = at.thread; k < (kRRBTileY + 1) * (kRRBTileX + 2); k += kRRBTile)
      r2[k / (kRRBTileX + 2)][k % (kRRBTileX + 2)] =
        Down<First>(g, x_c, kR2, at.I0 - 1 + k % (kRRBTileX + 2), at.J0 - 1 + k / (kRRBTileX + 2));
    __syncthreads();
    const auto update = [&](double value, const double(&l)[4], int at_i, int at_j) {
      return value - l[0] * r1[at_j + 1][at_i + 1] - l[1] * r1[at_j + 2][at_i + 1] - l[2] * r2[at_j + 1][at_i + 1] -
             l[3] * r2[at_j + 1][at_i + 2];
    };
    const double u   = update(own_b1, of_b1, i, j);
    b1[j + 1][i + 1] = u;
    if (halo) b1[at.halo_j + 1][at.halo_i + 1] = update(halo_b1, of_halo, at.halo_i, at.halo_j);
    __syncthreads();
    double value =
      own_b2 - of_b2[0] * r1[j + 1][i + 1] - of_b2[1] * r1[j + 1][i] - of_b2[2] * r2[j + 1][i + 1] - of_b2[3] * r2[j][i + 1];
    if (g.half) {
      if (g.Has(kB1, I, J)) next.down[RRBHalfPlace(g, kB1, I, J)] = u;
      if (g.Has(kB2, I, J)) next.down[RRBHalfPlace(g, kB2, I, J)] = value;
      continue;
    }
    if (g.Has(kB1, I, J)) g.u[g.Cell(I, J)] = u;
    value -= skew[0] * b1[j + 1][i + 1] + skew[1] * b1[j + 1][i] + skew[2] * b1[j][i + 1] + skew[3] * b1[j][i];
    if (g.Has(kB2, I, J)) StoreDown(next, I, J, value);
  }
}

/*
   Stores the part of a line of n points that a warp has: lane l brings points first + 2 l and first + 2 l + 1, and stores points
   first + l and first + 32 + l, so that the stores of a warp lie together.
*/
__device__ __forceinline__ void StoreLine(double *line, LocalInt first, LocalInt n, double even, double odd)
{
  static_assert(kRRBTileX == kWarpSize, "a line of cells of a tile belongs to a warp");
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int part = 0; part < 2; part++) {
    const int      from    = part * kWarpSize / 2 + lane / 2;
    const double   of_even = __shfl_sync(kFullWarp, even, from), of_odd = __shfl_sync(kFullWarp, odd, from);
    const LocalInt x = first + part * kWarpSize + lane;
    if (x < n) line[x] = lane % 2 ? of_odd : of_even;
  }
}

/*
   D^{-1} and backward substitution with both levels of a grid, on one tile: first b1, on the tile and on the cells to its west and
   south, then r1 and r2. ready() is as in TileDown().
*/
template <bool First, int Count, typename Ready>
__device__ __forceinline__ void TileUp(const RRBGrid &of_all, const RRBGrid &next_of_all, const double *x, double *y,
                                       const Columns &columns, int tile, TileOfUp &shared, Ready ready)
{
  auto           &b2 = shared.b2;
  auto           &b1 = shared.b1;
  const TilePlace at(of_all, tile);
  const LocalInt  I = at.I, J = at.J;
  const int       i = at.i, j = at.j;
  const bool      halo = at.halo;
  double          of_r1[4], of_r2[4], of_b1[4], of_halo[4] = {0, 0, 0, 0};

#pragma unroll
  for (int k = 0; k < 4; k++) {
    of_r1[k] = of_all.L((RRBArray)(kR1West + k), I, J);
    of_r2[k] = of_all.L((RRBArray)(kR2West + k), I, J);
    of_b1[k] = of_all.half ? 0. : of_all.L((RRBArray)(kB1SouthWest + k), I, J);
    if (halo && !of_all.half) of_halo[k] = of_all.L((RRBArray)(kB1SouthWest + k), at.halo_I, at.halo_J);
  }
  /* the values of the way down are older than the kernel ahead of this one; they are multiplied once all other loads are issued */
  double of_d[4]   = {of_all.L(kR1Pivot, I, J), of_all.L(kR2Pivot, I, J), 1, 1},
         values[4] = {Down<First>(of_all, x, kR1, I, J), Down<First>(of_all, x, kR2, I, J), 0, 0};
  if (!of_all.half) {
    if (of_all.Has(kB1, I, J)) {
      of_d[2]   = of_all.L(kB1Pivot, I, J);
      values[2] = of_all.u[of_all.Cell(I, J)];
    }
    if (halo && of_all.Has(kB1, at.halo_I, at.halo_J)) {
      of_d[3]   = of_all.L(kB1Pivot, at.halo_I, at.halo_J);
      values[3] = of_all.u[of_all.Cell(at.halo_I, at.halo_J)];
    }
  }
  if (!ready()) return;
#pragma unroll 1
  for (int c = 0; c < Count; c++) {
    const auto &g = OfColumn<Count>(of_all, columns, c), &next = OfColumn<Count>(next_of_all, columns, c);
    if (c) {
      __syncthreads(); /* the column before is done */
      const double *const x_c = First ? x + (size_t)c * columns.ldx : nullptr;
      values[0]               = Down<First>(g, x_c, kR1, I, J);
      values[1]               = Down<First>(g, x_c, kR2, I, J);
      if (!g.half && g.Has(kB1, I, J)) values[2] = g.u[g.Cell(I, J)];
      if (!g.half && halo && g.Has(kB1, at.halo_I, at.halo_J)) values[3] = g.u[g.Cell(at.halo_I, at.halo_J)];
    }
    for (int k = at.thread; k < (kRRBTileY + 2) * (kRRBTileX + 2); k += kRRBTile)
      b2[k / (kRRBTileX + 2)][k % (kRRBTileX + 2)] =
        UpB2(g, next, at.I0 - 1 + k % (kRRBTileX + 2), at.J0 - 1 + k / (kRRBTileX + 2));
    if (g.half) {
      if (g.Has(kB1, I, J)) values[2] = next.up[RRBHalfPlace(g, kB1, I, J)];
      if (halo && g.Has(kB1, at.halo_I, at.halo_J)) values[3] = next.up[RRBHalfPlace(g, kB1, at.halo_I, at.halo_J)];
    }
    /* each product is rounded by itself, so that a value of b1 is the same in all tiles that compute it */
    const double d_r1 = __dmul_rn(of_d[0], values[0]), d_r2 = __dmul_rn(of_d[1], values[1]),
                 b1_value = __dmul_rn(of_d[2], values[2]), halo_value = __dmul_rn(of_d[3], values[3]);
    __syncthreads();
    const auto corners = [&](double value, const double(&l)[4], int at_i, int at_j) {
      return value - l[0] * b2[at_j + 1][at_i + 1] - l[1] * b2[at_j + 2][at_i + 2] - l[2] * b2[at_j + 1][at_i + 2] -
             l[3] * b2[at_j + 2][at_i + 1];
    };
    const double own_b1 = corners(b1_value, of_b1, i, j), own_b2 = b2[j + 1][i + 1];
    b1[j + 1][i + 1] = own_b1;
    if (halo) b1[at.halo_j + 1][at.halo_i + 1] = corners(halo_value, of_halo, at.halo_i, at.halo_j);
    __syncthreads();
    const double  own_r1 = d_r1 - of_r1[0] * own_b2 - of_r1[1] * b2[j + 1][i + 2] - of_r1[2] * b1[j][i + 1] - of_r1[3] * own_b1;
    const double  own_r2 = d_r2 - of_r2[0] * b1[j + 1][i] - of_r2[1] * own_b1 - of_r2[2] * own_b2 - of_r2[3] * b2[j + 2][i + 1];
    const size_t  line   = First ? g.nx : g.line;
    double *const to     = (First ? y + (size_t)c * columns.ldy : g.up) + 2 * J * line;
    if constexpr (First) {
      StoreLine(to, 2 * at.I0, 2 * J < g.ny ? g.nx : 0, own_b2, own_r1);
      StoreLine(to + line, 2 * at.I0, 2 * J + 1 < g.ny ? g.nx : 0, own_r2, own_b1);
    } else { /* these lines have room for whole cells */
      if (g.Has(kB2, I, J)) *(double2 *)(to + 2 * I) = double2{own_b2, own_r1};
      if (g.Has(kR2, I, J)) *(double2 *)(to + line + 2 * I) = double2{own_r2, own_b1};
    }
  }
}

template <bool First, int Count>
__global__ void __launch_bounds__(kRRBTile, TilesOnChip<Count>())
  GridDown(const RRBGrid g, const RRBGrid next, const double *x, Columns columns, RRBGate gate)
{
  __shared__ TileOfDown shared;
  if (gate.ClosedEarly()) return;
  TileDown<First, Count>(g, next, x, columns, blockIdx.x, shared, [&]() { return Started(gate); });
}

template <bool First, int Count>
__global__ void __launch_bounds__(kRRBTile, TilesOnChip<Count>())
  GridUp(const RRBGrid g, const RRBGrid next, const double *x, double *y, Columns columns, RRBGate gate)
{
  __shared__ TileOfUp shared;
  if (gate.ClosedEarly()) return;
  TileUp<First, Count>(g, next, x, y, columns, blockIdx.x, shared, [&]() { return Started(gate); });
}

/* ------------------------------- small grids, all in one block -------------------------------- */

struct SmallGrids {
  int           count; /* number of grids; grid[count] is the remainder */
  RRBGrid       grid[kRRBSmallGrids + 1];
  LocalInt      m; /* points of the remainder, if the block multiplies by its inverse, too; else 0 */
  const double *inverse;
};

/* All small grids down, the remainder if it is small, and all small grids up; or one of the two ways alone. */
template <int Count>
__global__ void __launch_bounds__(kSmallBlock)
  GridsOfOneBlock(const __grid_constant__ SmallGrids s, bool down, bool up, Columns columns, RRBGate gate)
{
  constexpr int kTiles = kSmallBlock / kRRBTile; /* tiles that the block does at once */
  __shared__ union {
    TileOfDown down[kTiles];
    TileOfUp   up[kTiles];
  } shared;
  const int of_block = threadIdx.x / kRRBTile;
  bool      started = false, open = true;
  if (gate.ClosedEarly()) return;
  const auto ready = [&]() {
    if (started) __syncthreads(); /* the tile before, and the grid before, are done */
    else open = Started(gate);
    started = true;
    return open;
  };
  const auto for_tiles = [&](const RRBGrid &g, auto act) {
    for (int tile = of_block; tile - of_block < RRBTiles(g); tile += kTiles) act(tile);
  };
  if (down)
    for (int k = 0; k < s.count; k++)
      for_tiles(s.grid[k], [&](int tile) {
        TileDown<false, Count>(s.grid[k], s.grid[k + 1], nullptr, columns, tile, shared.down[of_block], ready);
      });
  if (s.m && ready()) {
    const RRBGrid &rest = s.grid[s.count];
    for (LocalInt row = threadIdx.x; row < s.m; row += kSmallBlock)
      for (int c = 0; c < Count; c++) {
        const double *const value = rest.down + c * columns.stride;
        double              sum   = 0;
        for (LocalInt k = 0; k < s.m; k++) sum += s.inverse[(size_t)k * s.m + row] * value[k]; /* the inverse is symmetric */
        rest.up[row + c * columns.stride] = sum;
      }
  }
  if (up)
    for (int k = s.count - 1; k >= 0; k--)
      for_tiles(s.grid[k], [&](int tile) {
        TileUp<false, Count>(s.grid[k], s.grid[k + 1], nullptr, nullptr, columns, tile, shared.up[of_block], ready);
      });
}

/* -------------------------------------- the host's side --------------------------------------- */

/* The bytes that a grid must move: for each cell 12 coefficients, or 8 if it is a half grid, 4 values and 2 results. */
size_t DownBytes(const RRBGrid &g)
{
  return (size_t)g.cx * g.cy * ((g.half ? 8 : 12) + 6) * sizeof(double);
}

/* The same on the way up: for each cell 15 or 10 coefficients, 4 values and 4 results. */
size_t UpBytes(const RRBGrid &g)
{
  return (size_t)g.cx * g.cy * ((g.half ? 10 : 15) + 8) * sizeof(double);
}

/*
   The number of kernels between the way down of the grids with a kernel of their own and their way up: one for the small grids and
   a small remainder together, one for a remainder alone, or three for small grids down, the remainder, and small grids up.
*/
int InnerPhases(const RRBFactorCUDA *F)
{
  return F->remainder <= kSmallRemainder ? 1 : F->first_small < F->count ? 3 : 1;
}

/* The two kernels of the first grid: down from x, and up to y. */
template <int Count>
PetscErrorCode LaunchFirst_RRB(const RRBFactorCUDA *F, bool down, const PetscScalar *x, PetscScalar *y, const Columns &columns,
                               cudaStream_t stream)
{
  const RRBGrid *grid = Count > 1 ? F->column_grid : F->grid, &g = grid[0], &next = grid[1];

  PetscFunctionBegin;
  if (down) PetscCall(LaunchEarly(F->early, GridDown<true, Count>, RRBTiles(g), kRRBTile, stream, g, next, x, columns, RRBGate{}));
  else PetscCall(LaunchEarly(F->early, GridUp<true, Count>, RRBTiles(g), kRRBTile, stream, g, next, x, y, columns, RRBGate{}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Kernel number `phase` of RRBLaunchMiddle(), for the values of so many columns. */
template <int Count>
PetscErrorCode LaunchPhase(const RRBFactorCUDA *F, int phase, RRBGate gate, bool early, cudaStream_t stream)
{
  const int            grids = F->first_small - 1, inner = InnerPhases(F), m = F->remainder;
  const RRBGrid *const grid = Count > 1 ? F->column_grid : F->grid;
  const RRBGrid       &rest = grid[F->count];
  const Columns        columns{F->column_stride, 0, 0};

  PetscFunctionBegin;
  if (phase < grids) {
    const RRBGrid &g = grid[phase + 1];

    PetscCall(
      LaunchEarly(early, GridDown<false, Count>, RRBTiles(g), kRRBTile, stream, g, grid[phase + 2], nullptr, columns, gate));
  } else if (phase >= grids + inner) {
    const int      k = grids - (phase - grids - inner);
    const RRBGrid &g = grid[k];

    PetscCall(
      LaunchEarly(early, GridUp<false, Count>, RRBTiles(g), kRRBTile, stream, g, grid[k + 1], nullptr, nullptr, columns, gate));
  } else if (m > kSmallRemainder && phase == grids + inner / 2) {
    PetscCall(LaunchEarly(early, MultiplyInverse<Count>, (m + kInverseWarps - 1) / kInverseWarps, kInverseWarps * kWarpSize, stream,
                          m, F->inverse.data(), rest.down, rest.up, columns, gate));
  } else {
    const bool all = m <= kSmallRemainder, down = all || phase == grids, up = all || !down;
    SmallGrids s{};

    s.count   = F->count - F->first_small;
    s.inverse = F->inverse.data();
    s.m       = all ? m : 0;
    for (int k = 0; k <= s.count; k++) s.grid[k] = grid[F->first_small + k];
    PetscCall(LaunchEarly(early, GridsOfOneBlock<Count>, 1, kSmallBlock, stream, s, down, up, columns, gate));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* RRBLaunchMiddle() for the values of so many columns. */
template <int Count>
PetscErrorCode LaunchMiddle(const RRBFactorCUDA *F, RRBGate gate, bool early, cudaStream_t stream)
{
  const int phases = 2 * (F->first_small - 1) + InnerPhases(F);

  PetscFunctionBegin;
  for (int phase = 0; phase < phases; phase++) PetscCall(LaunchPhase<Count>(F, phase, gate, early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Memory for the values of several columns, and the graph of what lies between the two kernels of the first grid. */
PetscErrorCode NeedColumns(RRBFactorCUDA *F)
{
  PetscFunctionBegin;
  if (F->column_graph) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(RRBMakeColumns(F));
  PetscCall(CaptureGraph(
    &F->capture, [F](cudaStream_t stream) { return LaunchMiddle<kRRBColumns>(F, RRBGate{}, F->early, stream); }, &F->column_graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode RRBSupportsEarlyLaunch(bool *supports)
{
  PetscFunctionBegin;
  PetscCall(SupportsEarlyLaunch((const void *)GridDown<false, 1>, supports));
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t RRBApplyBytes(const RRBFactorCUDA *F)
{
  size_t bytes = F->inverse.bytes() + 2 * (size_t)F->remainder * sizeof(double);
  for (int k = 0; k < F->count; k++) bytes += DownBytes(F->grid[k]) + UpBytes(F->grid[k]);
  return bytes;
}

PetscErrorCode RRBLaunchMiddle(const RRBFactorCUDA *F, RRBGate gate, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchMiddle<1>(F, gate, early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCaptureMiddle(RRBFactorCUDA *F)
{
  PetscFunctionBegin;
  if (F->graph) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
    CaptureGraph(&F->capture, [F](cudaStream_t stream) { return RRBLaunchMiddle(F, RRBGate{}, F->early, stream); }, &F->graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBApply_CUDA(RRBFactor *factor, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y, LocalInt ldy)
{
  RRBFactorCUDA *F = static_cast<RRBFactorCUDA *>(factor);
  LocalInt       c = 0;
  cudaStream_t   stream;

  PetscFunctionBegin;
  if (!F->count) PetscFunctionReturn(PETSC_SUCCESS); /* no rows */
  PetscCall(DeviceGetStream(&stream));
  if (columns >= kRRBColumns) PetscCall(NeedColumns(F));
  for (; c + kRRBColumns <= columns; c += kRRBColumns) {
    const PetscScalar *const x = X + (size_t)c * ldx;
    PetscScalar *const       y = Y + (size_t)c * ldy;
    const Columns            at{F->column_stride, ldx, ldy};

    PetscCall(LaunchFirst_RRB<kRRBColumns>(F, true, x, y, at, stream));
    PetscCallCUDA(cudaGraphLaunch(F->column_graph, stream));
    PetscCall(LaunchFirst_RRB<kRRBColumns>(F, false, x, y, at, stream));
  }
  for (; c < columns; c++) {
    const PetscScalar *const x = X + (size_t)c * ldx;
    PetscScalar *const       y = Y + (size_t)c * ldy;

    F->used++;
    PetscCall(LaunchFirst_RRB<1>(F, true, x, y, Columns{}, stream));
    PetscCallCUDA(cudaGraphLaunch(F->graph, stream));
    PetscCall(LaunchFirst_RRB<1>(F, false, x, y, Columns{}, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
