/*
   What both twins compute of the small dense blocks of a hierarchy of nodes, in double precision: the same functions, so that the
   bits are the same. A product is never fused with a sum: CMake compiles the files that use this header so. Blocks are row-major.
*/
#pragma once

#include <cmath>

#include "sparse/local_int.h"

constexpr LocalInt kCMATCHMostUnknowns = 6; /* of a node of the finest level */
constexpr LocalInt kCMATCHMostModes    = 8; /* and of any other level */
constexpr LocalInt kCMATCHSlots        = 4; /* the most blocks of a row of P */

/* A pivot of a Gram matrix that is at most this share of the square of its column belongs to a column that depends on others. */
constexpr double kCMATCHDependent = 1e-8;

/* The same of the Gram matrix, scaled to a unit diagonal, by which a cut row of P is corrected. */
constexpr double kCMATCHCorrection = 1e-9;

/* On a coarse level a pivot of a diagonal block is bad if it is at most this share of its diagonal entry. */
constexpr double kCMATCHBadPivot = 1e-12;

/* Which graph the matching of the finest level sees. */
enum CMATCHNodesGraph {
  CMATCH_AXIAL,    /* -t' A_ij t with the unit vector t from node i to j, which follows from the rigid body modes */
  CMATCH_TRACE,    /* -tr A_ij / k */
  CMATCH_FROBENIUS /* ||D_i^{-1/2} A_ij D_j^{-1/2}||_F with the diagonal entries D */
};

/* Two unknowns with three modes, or three with six, have rotations among the modes. `uneven`: nodes have different sizes. */
FINEPC_HOST_DEVICE inline CMATCHNodesGraph CMATCHNodesGraphOf(LocalInt k, LocalInt m, bool uneven = false)
{
  if (k > 3) return CMATCH_FROBENIUS;
  return (k == 2 && m == 3) || (k == 3 && m == 6) ? CMATCH_AXIAL : uneven ? CMATCH_FROBENIUS : CMATCH_TRACE;
}

/* -tr A_ij / k */
FINEPC_HOST_DEVICE inline double CMATCHTraceWeight(LocalInt k, const double *a)
{
  double sum = 0;

  for (LocalInt r = 0; r < k; r++) sum -= a[r * k + r];
  return sum / k;
}

/* The sum is over the rows, and in each over the columns; d_i and d_j are diagonal entries of A, by magnitude. */
FINEPC_HOST_DEVICE inline double CMATCHFrobeniusWeight(LocalInt k, const double *a, const double *d_i, const double *d_j)
{
  double sum = 0;

  for (LocalInt r = 0; r < k; r++)
    for (LocalInt c = 0; c < k; c++) {
      const double d = d_i[r] * d_j[c];
      if (d > 0) sum += a[r * k + c] * a[r * k + c] / d;
    }
  return std::sqrt(sum);
}

/* ||A_ij||_F / sqrt(k), the trace weight of a multiple of the identity. The sum is over the rows, and in each over the columns. */
FINEPC_HOST_DEVICE inline double CMATCHNormWeight(LocalInt k, const double *a)
{
  double sum = 0;

  for (LocalInt e = 0; e < k * k; e++) sum += a[e] * a[e];
  return std::sqrt(sum / k);
}

/* Whether one of k rows of modes is 0, that of an unknown which a node lacks. */
FINEPC_HOST_DEVICE inline bool CMATCHLacksUnknown(LocalInt k, LocalInt m, const double *B)
{
  for (LocalInt r = 0; r < k; r++) {
    bool any = false;
    for (LocalInt l = 0; l < m; l++) any = any || B[r * m + l] != 0;
    if (!any) return true;
  }
  return false;
}

/*
   -t' A_ij t, where t is the vector with (B_i - B_j)' t = 0: the largest cross product of two rows of S = (B_i - B_j)(B_i - B_j)',
   or in the plane the vector perpendicular to the row with the larger diagonal entry. B_i and B_j are [k][m] rows of the modes as
   the user has given them, without any mask. Modes that have no such vector, or nodes in the same place, get the trace, and nodes
   that lack unknowns the norm.
*/
FINEPC_HOST_DEVICE inline double CMATCHAxialWeight(LocalInt k, LocalInt m, const double *a, const double *B_i, const double *B_j)
{
  double S[3][3], t[3] = {0, 0, 0}, square = 0, energy = 0, trace = 0, weight = 0;

  if (CMATCHLacksUnknown(k, m, B_i) || CMATCHLacksUnknown(k, m, B_j)) return CMATCHNormWeight(k, a);
  for (LocalInt r = 0; r < k; r++)
    for (LocalInt c = 0; c < k; c++) {
      double sum = 0;
      for (LocalInt l = 0; l < m; l++) sum += (B_i[r * m + l] - B_j[r * m + l]) * (B_i[c * m + l] - B_j[c * m + l]);
      S[r][c] = sum;
    }
  for (LocalInt r = 0; r < k; r++) trace += S[r][r];
  if (k == 2) {
    const int r = S[0][0] >= S[1][1] ? 0 : 1;
    t[0]        = -S[r][1];
    t[1]        = S[r][0];
    square      = t[0] * t[0] + t[1] * t[1];
  } else {
    for (int r = 0; r < 3; r++) {
      const int    s = (r + 1) % 3;
      const double x = S[r][1] * S[s][2] - S[r][2] * S[s][1];
      const double y = S[r][2] * S[s][0] - S[r][0] * S[s][2];
      const double z = S[r][0] * S[s][1] - S[r][1] * S[s][0];
      const double l = x * x + y * y + z * z;
      if (!(l > square)) continue;
      square = l;
      t[0]   = x;
      t[1]   = y;
      t[2]   = z;
    }
  }
  for (LocalInt r = 0; r < k; r++)
    for (LocalInt c = 0; c < k; c++) {
      energy += S[r][c] * t[r] * t[c];
      weight -= a[r * k + c] * t[r] * t[c];
    }
  if (!(square > 0) || !(energy <= 1e-6 * trace * square)) return CMATCHTraceWeight(k, a);
  return weight / square;
}

/*
   G [m][m] is the upper triangle of a Gram matrix, B'B, and becomes R with R'R = B'B. Row c of R is 0 if column c of B depends on
   those before it, and such columns are counted.
*/
FINEPC_HOST_DEVICE inline LocalInt CMATCHGramFactor(LocalInt m, double *G)
{
  LocalInt dead = 0;

  for (LocalInt c = 0; c < m; c++) {
    const double square = G[c * m + c];
    double       pivot  = square;
    for (LocalInt l = 0; l < c; l++) pivot -= G[l * m + c] * G[l * m + c];
    if (!(pivot > kCMATCHDependent * square)) {
      for (LocalInt q = c; q < m; q++) G[c * m + q] = 0;
      dead++;
      continue;
    }
    const double d = std::sqrt(pivot);
    for (LocalInt q = c + 1; q < m; q++) {
      double sum = G[c * m + q];
      for (LocalInt l = 0; l < c; l++) sum -= G[l * m + c] * G[l * m + q];
      G[c * m + q] = sum / d;
    }
    G[c * m + c] = d;
  }
  for (LocalInt c = 0; c < m; c++)
    for (LocalInt q = 0; q < c; q++) G[c * m + q] = 0;
  return dead;
}

/* q [m] = b R^{-1} for a row b [m] of B, with zeros in the columns that depend on others */
FINEPC_HOST_DEVICE inline void CMATCHTentativeRow(LocalInt m, const double *R, const double *b, double *q)
{
  for (LocalInt c = 0; c < m; c++) {
    q[c] = 0;
    if (R[c * m + c] == 0) continue;
    double sum = b[c];
    for (LocalInt l = 0; l < c; l++) sum -= q[l] * R[l * m + c];
    q[c] = sum / R[c * m + c];
  }
}

/*
   The inverse of a diagonal block a [k][k], of which the lower triangle is read: by the factor L L', and then the columns of the
   inverse by forward and back substitution, of which the lower triangle is mirrored. A row r that is alone, as bit r of `alone`
   says, has its own diagonal entry, and zeros instead of others. Returns -1, or the first row whose pivot is at most `smallest`
   times its diagonal entry.
*/
FINEPC_HOST_DEVICE inline LocalInt CMATCHInvertDiagonal(LocalInt k, const double *a, unsigned alone, double smallest,
                                                        double *inverse)
{
  constexpr LocalInt kMost = kCMATCHMostModes;
  double             L[kMost][kMost], x[kMost];

  for (LocalInt r = 0; r < k; r++) {
    for (LocalInt c = 0; c <= r; c++) {
      double sum = c < r && ((alone >> r | alone >> c) & 1) ? 0 : a[r * k + c];
      for (LocalInt l = 0; l < c; l++) sum -= L[r][l] * L[c][l];
      if (c < r) L[r][c] = sum / L[c][c];
      else if (sum > 0 && sum > smallest * a[r * k + r]) L[r][r] = std::sqrt(sum); /* false for what is not a number */
      else return r;
    }
  }
  for (LocalInt c = 0; c < k; c++) {
    for (LocalInt r = c; r < k; r++) {
      double sum = r == c ? 1 : 0;
      for (LocalInt l = c; l < r; l++) sum -= L[r][l] * x[l];
      x[r] = sum / L[r][r];
    }
    for (LocalInt r = k - 1; r >= c; r--) {
      double sum = x[r];
      for (LocalInt l = r + 1; l < k; l++) sum -= L[l][r] * x[l];
      x[r]               = sum / L[r][r];
      inverse[r * k + c] = x[r];
      inverse[c * k + r] = x[r];
    }
  }
  return -1;
}

/*
   The same on a coarse level, where rounding may leave a bad pivot: the diagonal entries of the block are raised then, by 1e-6,
   1e-3 and 1 of themselves, and if that does not help, the inverse is that of the diagonal. Returns whether it was raised.
*/
FINEPC_HOST_DEVICE inline bool CMATCHInvertCoarseDiagonal(LocalInt k, double *a, unsigned alone, double *inverse)
{
  double share = 1e-6;

  if (CMATCHInvertDiagonal(k, a, alone, kCMATCHBadPivot, inverse) < 0) return false;
  for (int attempt = 0; attempt < 3; attempt++, share *= 1e3) {
    for (LocalInt r = 0; r < k; r++) a[r * k + r] *= 1 + share;
    if (CMATCHInvertDiagonal(k, a, alone, kCMATCHBadPivot, inverse) < 0) return true;
  }
  for (LocalInt r = 0; r < k; r++)
    for (LocalInt c = 0; c < k; c++) inverse[r * k + c] = r == c ? 1 / (a[r * k + r] > 0 ? a[r * k + r] : 1) : 0;
  return true;
}

/* The sum of the squares of a block, over its rows, and in each over its columns */
FINEPC_HOST_DEVICE inline double CMATCHSquare(LocalInt entries, const double *a)
{
  double sum = 0;

  for (LocalInt e = 0; e < entries; e++) sum += a[e] * a[e];
  return sum;
}

/*
   Defect [k][m] <- Defect W^+, row by row, where W [m][m] is the upper triangle of sum_J Bc_J' Bc_J: scaled to a unit diagonal, by
   the factor L L', without the pivots that are at most kCMATCHCorrection.
*/
FINEPC_HOST_DEVICE inline void CMATCHSolveCorrection(LocalInt k, LocalInt m, const double *W, double *defect)
{
  constexpr LocalInt kMost = kCMATCHMostModes;
  double             L[kMost][kMost], scale[kMost], y[kMost];

  for (LocalInt c = 0; c < m; c++) scale[c] = W[c * m + c] > 0 ? 1 / std::sqrt(W[c * m + c]) : 0;
  for (LocalInt c = 0; c < m; c++) {
    double pivot = W[c * m + c] * scale[c] * scale[c];
    for (LocalInt l = 0; l < c; l++) pivot -= L[c][l] * L[c][l];
    const bool live = pivot > kCMATCHCorrection;
    L[c][c]         = live ? std::sqrt(pivot) : 0;
    for (LocalInt r = c + 1; r < m; r++) {
      double sum = W[c * m + r] * scale[c] * scale[r];
      for (LocalInt l = 0; l < c; l++) sum -= L[r][l] * L[c][l];
      L[r][c] = live ? sum / L[c][c] : 0;
    }
  }
  for (LocalInt row = 0; row < k; row++) {
    double *const d = defect + row * m;
    for (LocalInt c = 0; c < m; c++) {
      double sum = d[c] * scale[c];
      for (LocalInt l = 0; l < c; l++) sum -= L[c][l] * y[l];
      y[c] = L[c][c] > 0 ? sum / L[c][c] : 0;
    }
    for (LocalInt c = m - 1; c >= 0; c--) {
      double sum = y[c];
      for (LocalInt l = c + 1; l < m; l++) sum -= L[l][c] * y[l];
      y[c] = L[c][c] > 0 ? sum / L[c][c] : 0;
    }
    for (LocalInt c = 0; c < m; c++) d[c] = y[c] * scale[c];
  }
}

/*
   The estimate of the largest eigenvalue, rounded up to 10 bits: the twins sum dot products in different orders, and what follows
   from the estimate has the same bits nevertheless.
*/
inline double CMATCHRoundEstimate(double lambda)
{
  int exponent = 0;

  if (!std::isfinite(lambda)) return lambda;
  const double mantissa = std::frexp(lambda, &exponent);
  return std::ldexp(std::ceil(std::ldexp(mantissa, 10)), exponent - 10);
}
