/*
   The factor of RRB on a GPU as an object: its grids and their memory, its copy for the host, and its end.
*/
#include <algorithm>
#include <vector>

#include "rrb_factor.cuh"

namespace
{

constexpr int kSmallCells = 1024; /* cells of the largest grid that one block does, together with all grids after it */

/* The graph holds pointers into the factor's memory and must go before the memory does. */
PetscErrorCode DropGraph(RRBFactorCUDA *F)
{
  PetscFunctionBegin;
  if (F->graph) PetscCallCUDA(cudaGraphExecDestroy(F->graph));
  F->graph = nullptr;
  if (F->column_graph) PetscCallCUDA(cudaGraphExecDestroy(F->column_graph));
  F->column_graph = nullptr;
  F->columns.Free();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Places arrays in memory, one after the other. The memory may be null, to count how many values they take. */
struct Placing {
  double *memory;
  size_t  at = 0;

  double *operator()(size_t size)
  {
    double *const array = memory ? memory + at : nullptr;
    at += (size + kRRBAlign - 1) / kRRBAlign * kRRBAlign;
    return array;
  }
};

/* Sets F->grid and gives the grids their arrays in memory. The answer is how many values these take; memory may be null to ask. */
size_t PlaceGrids(RRBFactorCUDA *F, double *memory)
{
  LocalInt x = F->nx, y = F->ny;
  Placing  place{memory};
  for (int k = 0; k <= F->count; k++) {
    RRBGrid &g = F->grid[k];
    g          = RRBGrid{};
    g.nx       = x;
    g.ny       = y;
    g.plain    = k == F->count;
    g.cx       = (x + 1) / 2;
    g.cy       = (y + 1) / 2;
    g.ld       = RRBLineLength(g.cx);
    if (g.plain) {
      g.line = x;
      g.down = place(F->remainder);
      g.up   = place(F->remainder);
      break;
    }
    g.half = k == F->count - 1 && F->half_levels % 2;
    g.line = 2 * g.ld;
    g.l    = place(kRRBArrays * g.Cells());
    g.u    = place(g.Cells());
    if (k) {
      g.down = place(4 * g.Cells());
      g.up   = place((size_t)y * g.line);
    }
    x = g.cx;
    y = g.cy;
  }
  return place.at;
}

/* The same for the values alone, in the grids of several columns, which have the coefficients of the others. */
size_t PlaceValues(RRBFactorCUDA *F, double *memory)
{
  Placing place{memory};
  for (int k = 0; k <= F->count; k++) {
    RRBGrid &g = F->column_grid[k];
    g          = F->grid[k];
    if (g.u) g.u = place(g.Cells());
    if (g.down) g.down = place(g.plain ? F->remainder : 4 * g.Cells());
    if (g.up) g.up = place(g.plain ? F->remainder : (size_t)g.ny * g.line);
  }
  return place.at;
}

/* The first of the grids at the end that one block does together; the very first grid is not one of them. */
int FirstSmall(const RRBFactorCUDA *F)
{
  int        first    = F->count;
  const auto is_small = [&](int k) { return (long long)F->grid[k].cx * F->grid[k].cy <= kSmallCells; };
  while (first > 1 && F->count - first < kRRBSmallGrids && is_small(first - 1)) first--;
  return first;
}

} // namespace

PetscErrorCode RRBMakeGrids(RRBFactorCUDA *F, LocalInt nx, LocalInt ny, LocalInt levels, LocalInt max_levels, LocalInt remainder)
{
  PetscFunctionBegin;
  PetscCall(DropGraph(F));
  F->inverse.Free(); /* its size tells the next set-up whether all memory is there */
  F->nx          = nx;
  F->ny          = ny;
  F->levels      = levels;
  F->max_levels  = max_levels;
  F->remainder   = remainder;
  F->half_levels = PetscMax(1, PetscMin(levels, max_levels - 1));
  F->count       = (F->half_levels + 1) / 2;
  PetscCall(F->memory.Allocate(PlaceGrids(F, nullptr)));
  PlaceGrids(F, F->memory.data());
  F->first_small = FirstSmall(F);
  PetscCall(F->inverse.Allocate((size_t)remainder * remainder));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBMakeColumns(RRBFactorCUDA *F)
{
  PetscFunctionBegin;
  F->column_stride = PlaceValues(F, nullptr);
  PetscCall(F->columns.Allocate(kRRBColumns * F->column_stride));
  PlaceValues(F, F->columns.data());
  F->bytes += F->columns.bytes();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBGetFactor_CUDA(const RRBFactor *factor, PetscScalar *l, PetscScalar *d)
{
  const RRBFactorCUDA *F = static_cast<const RRBFactorCUDA *>(factor);
  const size_t         n = (size_t)F->nx * F->ny;

  PetscFunctionBegin;
  std::fill(l, l + 4 * n, 0.);
  std::fill(d, d + n, 0.);
  for (int k = 0; k < F->count; k++) {
    const RRBGrid      &g      = F->grid[k];
    const LocalInt      stride = (LocalInt)1 << k;
    std::vector<double> array(g.Cells());
    for (int number = 0; number < kRRBArrays; number++) {
      const int point = number < kR2West ? kR1 : number < kB1SouthWest ? kR2 : kB1, to = number % 5;
      if (point == kB1 && g.half) continue;
      PetscCall(
        ArrayCopy_CUDA(array.data(), g.l + number * g.Cells(), g.Cells() * sizeof(double), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
      for (LocalInt J = 0; J < g.cy; J++)
        for (LocalInt I = 0; I < g.cx; I++) {
          const LocalInt x = 2 * I + (point & 1), y = 2 * J + (point >> 1);
          if (x >= g.nx || y >= g.ny) continue;
          const size_t row                    = (size_t)y * stride * F->nx + (size_t)x * stride;
          (to < 4 ? l[to * n + row] : d[row]) = array[(size_t)J * g.ld + I];
        }
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBDestroy_CUDA(RRBFactor **factor)
{
  RRBFactorCUDA *F = static_cast<RRBFactorCUDA *>(*factor);

  PetscFunctionBegin;
  if (!F) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DropGraph(F));
  if (F->capture) PetscCallCUDA(cudaStreamDestroy(F->capture));
  delete F;
  *factor = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}
