#pragma once

/*
  Difference stencils with constant coefficients, and the rows of their matrices. The benchmark and the tests have their Poisson
  matrices from here; the tutorials write their own, since users copy them as they are. Grid points are numbered naturally, x
  fastest, then y, then z. Boundary conditions are Dirichlet's: a row has no entry for what lies outside the grid.
*/
#include <petscsys.h>
#include <vector>

/* At most 27 weights, listed by (z, y, x), so that the columns of a row are sorted */
struct Stencil {
  struct Entry {
    PetscInt  dx, dy, dz;
    PetscReal weight;
  };
  std::vector<Entry> entries;
};

/* 5 points (2D, k_z is 0) and 7 points (3D): -k_x u_xx - k_y u_yy - k_z u_zz. With coefficients of 1 that is Poisson's matrix. */
inline Stencil StarStencil(PetscReal kx, PetscReal ky, PetscReal kz)
{
  Stencil s;

  if (kz != 0.) s.entries.push_back({0, 0, -1, -kz});
  s.entries.push_back({0, -1, 0, -ky});
  s.entries.push_back({-1, 0, 0, -kx});
  s.entries.push_back({0, 0, 0, 2. * (kx + ky + kz)});
  s.entries.push_back({1, 0, 0, -kx});
  s.entries.push_back({0, 1, 0, -ky});
  if (kz != 0.) s.entries.push_back({0, 0, 1, -kz});
  return s;
}

/* Calls visit(entry, neighbour) for each point that the stencil of `point` reaches in the grid, neighbours in ascending order */
template <typename Visit>
inline void ForStencil(const Stencil &stencil, const PetscInt grid[3], PetscInt point, const Visit &visit)
{
  const PetscInt nx = grid[0], ny = grid[1], nz = grid[2];
  const PetscInt x = point % nx, y = point / nx % ny, z = point / (nx * ny);

  for (const auto &e : stencil.entries) {
    if (x + e.dx < 0 || x + e.dx >= nx || y + e.dy < 0 || y + e.dy >= ny || z + e.dz < 0 || z + e.dz >= nz) continue;
    visit(e, point + e.dx + nx * (e.dy + ny * e.dz));
  }
}

/* A row of the stencil's matrix, its columns sorted; returns the number of entries */
inline PetscInt StencilRow(const Stencil &stencil, const PetscInt grid[3], PetscInt row, PetscInt *columns, PetscScalar *values)
{
  PetscInt count = 0;

  ForStencil(stencil, grid, row, [&](const Stencil::Entry &e, PetscInt column) {
    columns[count]  = column;
    values[count++] = e.weight;
  });
  return count;
}
