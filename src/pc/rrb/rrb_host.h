/* The host twin's factor and its levels, for rrb_host.cxx and for RRBCG's host twin. */
#pragma once

#include <vector>

#include "rrb.h"

struct Shift { /* a direction, in points of the finest grid */
  PetscInt x, y;
};

/* Level k of the grid: its stride, directions and points. */
struct RRBLevel {
  PetscInt nx, ny;
  bool     odd;
  PetscInt s;
  Shift    u, v;

  RRBLevel(PetscInt k, PetscInt nx, PetscInt ny);
  Shift    FarU() const { return odd ? Shift{s, s} : Shift{2 * s, 0}; }
  Shift    FarV() const { return odd ? Shift{-s, s} : Shift{0, 2 * s}; }
  bool     Inside(PetscInt x, PetscInt y) const { return x >= 0 && x < nx && y >= 0 && y < ny; }
  PetscInt Index(const Shift &to) const { return to.y * nx + to.x; }

  template <typename Act>
  void ForRed(Act act) const
  {
    for (PetscInt y = odd ? 0 : s; y < ny; y += odd ? s : 2 * s)
      for (PetscInt x = odd && y / s % 2 ? 0 : s; x < nx; x += 2 * s) act(x, y);
  }
  template <typename Act> /* points that the level starts with */
  void ForAll(Act act) const
  {
    for (PetscInt y = 0; y < ny; y += s)
      for (PetscInt x = !odd && y / s % 2 ? s : 0; x < nx; x += odd ? s : 2 * s) act(x, y);
  }
  template <typename Act> /* act(which, its place) for the near neighbours of a red point: r - u, r + u, r - v, r + v */
  void ForNeighbours(PetscInt x, PetscInt y, Act act) const
  {
    const Shift to[4] = {{-u.x, -u.y}, u, {-v.x, -v.y}, v};
    for (int n = 0; n < 4; n++)
      if (Inside(x + to[n].x, y + to[n].y)) act(n, y * nx + x + Index(to[n]));
  }
};
struct RRBOperator { /* diagonal, near and far couplings of the points of a level, over the whole grid */
  std::vector<double> c, near_u, near_v, far_u, far_v;
};

struct RRBFactorHost : RRBFactor {
  PetscInt              half_levels = 0; /* that are eliminated */
  std::vector<double>   l[4], d;
  std::vector<PetscInt> points; /* of the remainder */
  PetscInt              band = 0;
  std::vector<double>   B;
  RRBOperator           S; /* S_1, if it is kept */
};

void RRBForward(const RRBFactorHost *, PetscInt first, PetscInt last, double *z);
void RRBBackward(const RRBFactorHost *, PetscInt first, PetscInt last, double *z);
void RRBSolveRemainder(const RRBFactorHost *, double *z);
