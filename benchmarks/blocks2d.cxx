/*
  Linear systems with full blocks on a plane mesh of triangles: an implicit step of the Euler equations, and a shell. They are of
  the kind of two matrices of Ma, Hu, Yuan, Liu 2021, venkat50 and af_shell3.

  Points are numbered naturally. Each square between four of them is split along the diagonal (1, 1), so that a point has up to six
  neighbours. A rank fills the rows of its points from the triangles around each of them.
*/
#include "bench.h"
#include <array>
#include <cmath>

/* The neighbours of a point counterclockwise: with it, one of them and the next make a triangle */
static const PetscInt kAround[6][2] = {{1, 0}, {1, 1}, {0, 1}, {-1, 0}, {-1, -1}, {0, -1}};

template <PetscInt bs, size_t n>
using Blocks = std::array<std::array<std::array<PetscReal, bs>, bs>, n>;

/*
  triangle(k, x, y, blocks) computes what the k-th triangle around a point adds to its rows, in a block for each of the corners (x,
  y), the point and the next ones counterclockwise. Triangles begin at x = first; points with x < 0 are no unknowns.
*/
template <PetscInt bs, typename Triangle>
static Rows TriangleRows(const PetscInt grid[3], PetscInt first, Triangle triangle)
{
  PetscInt      last = -1; /* point */
  Blocks<bs, 7> sum{};     /* its rows */

  const auto fill = [=](PetscInt row, PetscInt *cols, PetscScalar *vals) mutable {
    const PetscInt point = row / bs, x = point % grid[0], y = point / grid[0];
    PetscInt       n = 0;

    const auto inside = [&](PetscInt begin, PetscInt dx, PetscInt dy) {
      return x + dx >= begin && x + dx < grid[0] && y + dy >= 0 && y + dy < grid[1];
    };

    if (point != last) {
      sum = {};
      for (PetscInt k = 0; k < 6; k++) {
        const PetscInt *a = kAround[k], *b = kAround[(k + 1) % 6], slots[3] = {3, 3 + a[0] + 2 * a[1], 3 + b[0] + 2 * b[1]};
        Blocks<bs, 3>   blocks{};

        if (!inside(first, a[0], a[1]) || !inside(first, b[0], b[1])) continue;
        const PetscInt X[3] = {x, x + a[0], x + b[0]}, Y[3] = {y, y + a[1], y + b[1]};

        triangle(k, X, Y, blocks);
        for (PetscInt c = 0; c < 3; c++) {
          for (PetscInt r = 0; r < bs; r++)
            for (PetscInt s = 0; s < bs; s++) sum[slots[c]][r][s] += blocks[c][r][s];
        }
      }
      last = point;
    }
    for (PetscInt slot = 0; slot < 7; slot++) {
      const PetscInt dy = (slot + 1) / 3 - 1, dx = slot - 3 - 2 * dy;

      if (!inside(0, dx, dy)) continue;
      for (PetscInt s = 0; s < bs; s++) {
        cols[n]   = (point + dx + grid[0] * dy) * bs + s;
        vals[n++] = sum[slot][row % bs][s];
      }
    }
    return n;
  };

  return {(PetscReal)grid[0] * grid[1] * bs, bs, 7 * bs, fill};
}

/* -------------------------------------- Euler equations --------------------------------------- */

static constexpr PetscReal kGamma = 1.4, kGamma1 = kGamma - 1.; /* ratio of specific heats, of air */

using FluxMatrix = std::array<std::array<PetscReal, 4>, 4>; /* of density, momentum in x and y, energy */

/* Density, velocity, total enthalpy and speed of sound */
struct Flow {
  PetscReal rho, u, v, H, c;
};

static Flow MakeFlow(PetscReal rho, PetscReal u, PetscReal v, PetscReal H)
{
  return {rho, u, v, H, PetscSqrtReal(kGamma1 * (H - 0.5 * (u * u + v * v)))};
}

/* The average of Roe 1981, Approximate Riemann solvers, parameter vectors, and difference schemes */
static Flow RoeAverage(const Flow &l, const Flow &r)
{
  const PetscReal share = 1. / (1. + PetscSqrtReal(r.rho / l.rho)), other = 1. - share;

  return MakeFlow(PetscSqrtReal(l.rho * r.rho), share * l.u + other * r.u, share * l.v + other * r.v, share * l.H + other * r.H);
}

/* The derivative of the flux along n by the unknowns; Blazek, Computational Fluid Dynamics, appendix */
static FluxMatrix FluxJacobian(const Flow &w, PetscReal nx, PetscReal ny)
{
  const PetscReal g = kGamma1, phi = 0.5 * g * (w.u * w.u + w.v * w.v), V = w.u * nx + w.v * ny;

  return {{{0., nx, ny, 0.},
           {phi * nx - w.u * V, V + (1. - g) * w.u * nx, w.u * ny - g * w.v * nx, g * nx},
           {phi * ny - w.v * V, w.v * nx - g * w.u * ny, V + (1. - g) * w.v * ny, g * ny},
           {V * (phi - w.H), w.H * nx - g * w.u * V, w.H * ny - g * w.v * V, kGamma * V}}};
}

/*
  |J| of this J, which has the eigenvalues V, V + c, V - c: the polynomial of second degree in J that takes their absolute values
  there. Harten's entropy fix (1983) keeps these from 0.
*/
static FluxMatrix AbsoluteJacobian(const Flow &w, PetscReal nx, PetscReal ny)
{
  const PetscReal V = w.u * nx + w.v * ny, c = w.c * PetscSqrtReal(nx * nx + ny * ny), least = 0.1 * c;
  const auto      absolute = [=](PetscReal e) { return PetscAbsReal(e) < least ? 0.5 * (e * e / least + least) : PetscAbsReal(e); };
  const PetscReal middle = absolute(V), up = absolute(V + c), down = absolute(V - c);
  const PetscReal linear = 0.5 * (up - down) / c, square = 0.5 * (up + down - 2. * middle) / (c * c);
  FluxMatrix      J = FluxJacobian(w, nx, ny), D;

  for (int r = 0; r < 4; r++) J[r][r] -= V;
  for (int r = 0; r < 4; r++) {
    for (int s = 0; s < 4; s++) {
      D[r][s] = (r == s ? middle : 0.) + linear * J[r][s];
      for (int t = 0; t < 4; t++) D[r][s] += square * J[r][t] * J[t][s];
    }
  }
  return D;
}

/* In a unit square with a far-field speed of sound of 1: a layer at the wall y = 0, and a wave, where Mach 0.8 becomes nearly 1 */
static Flow FlowAt(PetscReal x, PetscReal y)
{
  const PetscReal swing = PetscSinReal(2. * PETSC_PI * x), wave = 0.2 * swing * PetscExpReal(-2. * y);
  const PetscReal p = (1. - wave) / kGamma, rho = PetscPowReal(1. - wave, 1. / kGamma); /* isentropic */
  const PetscReal u = 0.8 * (1. + wave) * PetscTanhReal(50. * y), v = 0.1 * swing * y;

  return MakeFlow(rho, u, v, kGamma / kGamma1 * p / rho + 0.5 * (u * u + v * v));
}

/*
  An implicit step with local time steps: the unknowns are at the points, whose dual cells are bounded by the segments from the
  centres of edges to those of triangles. Over a segment goes Roe's flux of first order, with its |J| frozen; at the outer boundary
  what leaves along characteristics, at the wall pressure alone. The domain is a square. With as
  many points in both directions, rows of points at the wall are about 30 times closer than the points in them, and 150 times closer
  than rows at the top. Lengths are in points of a row, so that entries are of order 1.

  cfl (1e3): smaller ones are easier. With 125 x 125 points GMRES(30) and block ILU(0) take 319 iterations to 1e-8, or 569 with 1e6.
*/
Rows EulerRows(const PetscInt grid[3], PetscReal cfl)
{
  const PetscInt right = grid[0] - 1, top = grid[1] - 1;

  return TriangleRows<4>(grid, 0, [=](PetscInt, const PetscInt X[3], const PetscInt Y[3], Blocks<4, 3> &blocks) {
    const auto add = [&](int corner, PetscReal factor, const FluxMatrix &J) {
      for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++) blocks[corner][r][s] += factor * J[r][s];
    };
    PetscReal x[3], y[3];
    Flow      w[3];

    for (int c = 0; c < 3; c++) {
      const PetscReal height = std::expm1(5. * (PetscReal)Y[c] / (PetscReal)top) / std::expm1(5.);

      x[c] = (PetscReal)X[c];
      y[c] = height * (PetscReal)right;
      w[c] = FlowAt(x[c] / (PetscReal)right, height);
    }
    for (int c = 1; c < 3; c++) { /* the edges from the point, which have the triangle on their left and on their right */
      const PetscReal  side = c == 1 ? 1. : -1.;
      const PetscReal  nx = side * ((y[0] + y[1] + y[2]) / 3. - 0.5 * (y[0] + y[c])), outx = 0.5 * side * (y[c] - y[0]);
      const PetscReal  ny = side * (0.5 * (x[0] + x[c]) - (x[0] + x[1] + x[2]) / 3.), outy = 0.5 * side * (x[0] - x[c]);
      const Flow       roe     = RoeAverage(w[0], w[c]);
      const FluxMatrix D       = AbsoluteJacobian(roe, nx, ny);
      const PetscReal  fastest = PetscAbsReal(roe.u * nx + roe.v * ny) + roe.c * PetscSqrtReal(nx * nx + ny * ny);

      add(0, 0.5, FluxJacobian(w[0], nx, ny));
      add(0, 0.5, D);
      add(c, 0.5, FluxJacobian(w[c], nx, ny));
      add(c, -0.5, D);
      for (int r = 0; r < 4; r++) blocks[0][r][r] += 0.5 * fastest / cfl; /* volume / time step */
      if (Y[0] == 0 && Y[c] == 0) {
        const PetscReal pressure[4] = {0.5 * kGamma1 * (w[0].u * w[0].u + w[0].v * w[0].v), -kGamma1 * w[0].u, -kGamma1 * w[0].v,
                                       kGamma1};

        for (int s = 0; s < 4; s++) {
          blocks[0][1][s] += outx * pressure[s];
          blocks[0][2][s] += outy * pressure[s];
        }
      } else if ((X[0] == X[c] && X[0] % right == 0) || (Y[0] == Y[c] && Y[0] == top)) {
        add(0, 0.5, FluxJacobian(w[0], outx, outy));
        add(0, 0.5, AbsoluteJacobian(w[0], outx, outy));
      }
    }
  });
}

/* ------------------------------------------- shell -------------------------------------------- */

static constexpr PetscInt kShell = 5; /* u, v, w and the rotations, by which a point at height z moves z theta_x and z theta_y */

using ShellElement = std::array<std::array<PetscReal, 3 * kShell>, 3 * kShell>; /* row = corner * 5 + component */

/*
  A shallow cylindrical shell (Marguerre) with transverse shear (Mindlin) by linear functions on half a square of side 1, with one
  point of quadrature. Young's modulus times thickness is 1, Poisson's ratio 0.3. The unknowns are those of the lower face, as where
  a sheet lies on a tool, so that bending strains the middle. Against locking the shear stiffness has the factor t^2 / (t^2 + L^2 /
  10) for the longest edge L (Lyly, Stenberg, Vihinen 1993, A stable bilinear element for the Reissner-Mindlin plate model).
*/
static ShellElement MakeShellElement(bool upper, PetscReal thickness, PetscReal radius)
{
  const PetscReal nu = 0.3, stretch = 1. / (1. - nu * nu), t2 = thickness * thickness, third = 1. / 3.;
  const PetscReal shear           = 5. / 6. * 0.5 / (1. + nu) * t2 / (t2 + 0.2);
  const PetscReal slopes[2][3][2] = {{{-1., 0.}, {1., -1.}, {0., 1.}}, {{0., -1.}, {1., 0.}, {-1., 1.}}};
  /* strain, curvature, shear: the rows of x, y and xy, twice, and of xz and yz */
  PetscReal    B[8][3 * kShell] = {}, DB[8][3 * kShell];
  ShellElement K{};

  for (int c = 0; c < 3; c++) {
    const PetscReal gx = slopes[upper][c][0], gy = slopes[upper][c][1];
    const int       u = c * kShell, v = u + 1, w = u + 2, rx = u + 3, ry = u + 4;

    B[0][u] = B[2][v] = B[3][rx] = B[5][ry] = B[6][w] = gx;
    B[1][v] = B[2][u] = B[4][ry] = B[5][rx] = B[7][w] = gy;
    B[6][rx] = B[7][ry] = third;
    B[1][w]             = third / radius;
    for (int e = 0; e < 3; e++)
      for (int s = rx; s <= ry; s++) B[e][s] = 0.5 * thickness * B[3 + e][s];
  }
  for (int s = 0; s < 3 * kShell; s++) {
    for (int e = 0; e < 6; e += 3) {
      const PetscReal stiff = stretch * (e ? t2 / 12. : 1.);

      DB[e][s]     = stiff * (B[e][s] + nu * B[e + 1][s]);
      DB[e + 1][s] = stiff * (B[e + 1][s] + nu * B[e][s]);
      DB[e + 2][s] = stiff * 0.5 * (1. - nu) * B[e + 2][s];
    }
    for (int e = 6; e < 8; e++) DB[e][s] = shear * B[e][s];
  }
  for (int r = 0; r < 3 * kShell; r++) {
    for (int s = r; s < 3 * kShell; s++) { /* symmetric to the last bit */
      for (int e = 0; e < 8; e++) K[r][s] += 0.5 * B[e][r] * DB[e][s];
      K[s][r] = K[r][s];
    }
  }
  return K;
}

/*
  The squares go from a clamped edge, whose points are no unknowns, to the right; the other edges are free. The length in x is 1,
  and so is the radius of the curvature in y. Without a bed CG converges, but GMRES(30) with block ILU(0) does not in 4000
  iterations with 60 x 60 points. With 318 x 318 points, as many as af_shell3 has, and a bed of 0.1 GMRES(30) and block ILU(0) take
  32 iterations to 1e-8; the paper has 25.
*/
Rows ShellRows(const PetscInt grid[3], PetscReal thickness, PetscReal bed)
{
  const PetscReal    length = (PetscReal)grid[0];
  const ShellElement K[2]   = {MakeShellElement(false, thickness * length, length),
                               MakeShellElement(true, thickness * length, length)};

  return TriangleRows<kShell>(grid, -1, [=](PetscInt k, const PetscInt *, const PetscInt *, Blocks<kShell, 3> &blocks) {
    for (PetscInt c = 0; c < 3; c++) { /* below and above diagonals in turns, and the point is two times each corner */
      const PetscInt row = k / 2 * kShell, col = (k / 2 + c) % 3 * kShell;

      for (PetscInt r = 0; r < kShell; r++)
        for (PetscInt s = 0; s < kShell; s++) blocks[c][r][s] = K[k % 2][row + r][col + s];
    }
    for (PetscInt r = 0; r < 3; r++) blocks[0][r][r] += bed / 6.; /* of a third of the triangle's area */
  });
}
