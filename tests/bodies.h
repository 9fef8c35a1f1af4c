/* Linear elasticity of bricks and rectangles, for the tests of hierarchies of nodes. */
#pragma once

#include <array>

#include <petscmat.h>

#include "matrices.h"

/* Stiffness, rigid body modes and coordinates of the nodes of a body. */
struct Body {
  LocalInt            k = 3; /* unknowns of a node: dimensions */
  HostMatrix          A;
  std::vector<double> x;    /* [nodes][k] */
  std::vector<double> B;    /* [rows][m] the rigid body modes about the centre */
  std::vector<double> load; /* [rows] a body force across the clamped direction */

  LocalInt m() const { return k == 2 ? 3 : 6; }
};

/* What a body is made of. In the plane nz is 0, and the stress is plane. */
struct BodyOf {
  LocalInt                                            nx, ny, nz; /* free nodes */
  std::array<double, 3>                               h       = {1, 1, 1};
  double                                              nu      = 0.3;
  std::function<double(LocalInt, LocalInt, LocalInt)> modulus = nullptr; /* of the element with this first node, else 1 */
  bool   clamped = true; /* at x = 0, where there is one more plane of nodes, which is left out */
  double moved   = 0;    /* by at most this share of h at random, nodes inside */
};
Body MakeBody(const BodyOf &);

/*
   A cube of n^3 points, less those of the clamped face x = 0: each cell has six linear tetrahedra, and points inside are moved by
   up to 0.28 of a cell.
*/
Body Tetrahedra(LocalInt n);

/* Elements in cells of 4^3 that have the modulus 1000, in a checkerboard or at random. */
double Checkerboard(LocalInt x, LocalInt y, LocalInt z);
double RandomCells(LocalInt x, LocalInt y, LocalInt z);

/*
   Rows and columns of the fixed unknowns become `diagonal` on the diagonal, and zeros elsewhere, which stay stored: the face x = 0,
   z on the face z = 0, and each 500th unknown.
*/
Body WithRowsLeft(Body, double diagonal);

/* Attaches the rigid body modes as PETSc makes them of coordinates. On one rank. */
void AttachRigidBodyModes(Mat A, const Body &);
