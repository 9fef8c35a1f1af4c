/* The factor of the host twin and the levels of a grid, for rrb_host.cxx and for the host twin of RRBCG. */
#pragma once

#include <vector>

#include "rrb.h"

/* A direction, in points of the finest grid. */
struct Shift {
  LocalInt x, y;
};

/* Level k of a grid of nx by ny points: its stride, its directions and its points. */
struct RRBLevel {
  LocalInt nx, ny;
  bool     odd; /* whether k is odd */
  LocalInt s;   /* stride, a power of two */
  Shift    u;   /* the directions of the near couplings */
  Shift    v;

  RRBLevel(LocalInt k, LocalInt nx, LocalInt ny);

  /* The directions of the far couplings. */
  Shift FarU() const { return odd ? Shift{s, s} : Shift{2 * s, 0}; }
  Shift FarV() const { return odd ? Shift{-s, s} : Shift{0, 2 * s}; }

  bool     Inside(LocalInt x, LocalInt y) const { return x >= 0 && x < nx && y >= 0 && y < ny; }
  LocalInt Index(const Shift &to) const { return to.y * nx + to.x; }

  /* Calls act(x, y) for the red points, which the level eliminates. */
  template <typename Act>
  void ForRed(Act act) const
  {
    for (LocalInt y = odd ? 0 : s; y < ny; y += odd ? s : 2 * s)
      for (LocalInt x = odd && y / s % 2 ? 0 : s; x < nx; x += 2 * s) act(x, y);
  }

  /* Calls act(x, y) for all points with which the level starts. */
  template <typename Act>
  void ForAll(Act act) const
  {
    for (LocalInt y = 0; y < ny; y += s)
      for (LocalInt x = !odd && y / s % 2 ? s : 0; x < nx; x += odd ? s : 2 * s) act(x, y);
  }

  /* Calls act(n, index) for the near neighbours n = 0 .. 3 of a red point r that exist: r - u, r + u, r - v and r + v. */
  template <typename Act>
  void ForNeighbours(LocalInt x, LocalInt y, Act act) const
  {
    const Shift to[4] = {{-u.x, -u.y}, u, {-v.x, -v.y}, v};
    for (int n = 0; n < 4; n++)
      if (Inside(x + to[n].x, y + to[n].y)) act(n, y * nx + x + Index(to[n]));
  }
};

/* The operator on the points of a level, in arrays over the whole grid. */
struct RRBOperator {
  std::vector<double> c;              /* [nx * ny] diagonal */
  std::vector<double> near_u, near_v; /* [nx * ny] near couplings along u and v */
  std::vector<double> far_u, far_v;   /* [nx * ny] far couplings along FarU() and FarV() */
};

struct RRBFactorHost : RRBFactor {
  LocalInt half_levels = 0; /* levels that are eliminated */

  std::vector<double> l[4]; /* [nx * ny] entries of L in the column of a red point, for its four near neighbours */
  std::vector<double> d;    /* [nx * ny] inverse pivots of red points */

  std::vector<LocalInt> points;   /* points of the remainder, by rows of the grid */
  LocalInt              band = 0; /* entries of a column of B below the diagonal */
  std::vector<double>   B;        /* [points * (band + 1)] L_l and D_l of the remainder; a column begins with its inverse pivot */

  RRBOperator S; /* S_1, or empty */
};

/* Forward substitution, Z = L^{-1} Z, over the levels first .. last, for columns that lie ld values apart. */
void RRBForward(const RRBFactorHost *, LocalInt first, LocalInt last, LocalInt columns, double *Z, LocalInt ld);

/* Backward substitution, Z = L^{-T} D^{-1} Z, over the levels last .. first. */
void RRBBackward(const RRBFactorHost *, LocalInt first, LocalInt last, LocalInt columns, double *Z, LocalInt ld);

/* Solves for the values of Z at the points of the remainder. */
void RRBSolveRemainder(const RRBFactorHost *, LocalInt columns, double *Z, LocalInt ld);
