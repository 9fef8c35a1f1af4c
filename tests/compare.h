/* Factors on the host, whoever computed them, and what they are compared with. */
#pragma once

#include <vector>

#include "pc/afsai/afsai.h"
#include "matrices.h"

constexpr double kUnitSingle = 0x1p-24, kUnitDouble = 0x1p-53; /* unit roundoff */

inline double Unit(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? kUnitSingle : kUnitDouble;
}

/* Rows first .. of G~ without its diagonal, and d, of M^{-1} = G~^T D G~. */
struct HostFactor {
  PetscInt              first = 0, rows = 0;
  std::vector<PetscInt> i, j;
  std::vector<double>   a, d;
  AFSAIStats            stats;

  PetscInt nnz() const { return (PetscInt)j.size(); }
  PetscInt Length(PetscInt row) const { return i[row + 1] - i[row]; }
};

/* AFSAIComputeFactor_Host or _CUDA; with keep, on that pattern. Output arrays are full of NaN before. */
HostFactor ComputeFactor(const HostMatrix &, const AFSAIParams &, PetscMemType, PetscInt first = 0, const HostFactor *keep = nullptr);

bool SamePattern(const HostFactor &, const HostFactor &);
bool SameBits(const HostFactor &, const HostFactor &);
bool IsDiagonal(const HostFactor &, const HostMatrix &); /* G~ = I and d = 1 / diag(A) to the last bit */

/*
   Largest |(G A G^T)_ii - 1|, and the largest ratio of it to its bound

     (u_A + 2 u_G) (|G| |A| |G|^T)_ii:

   psi is computed in double from the g that is kept, so what is left is the rounding of A to the set-up's precision and of the
   stored G to its own; a few roundings in double are added. Where g minimises psi, which it does when the set-up is in double
   and nothing is filtered afterwards, its rounding counts in the second order only: 4 u_G^2 in the place of 2 u_G.
*/
struct DiagonalError {
  double worst = 0, over_bound = 0;
};
DiagonalError ErrorOfDiagonal(const HostMatrix &, const HostFactor &, const AFSAIParams &);

/* Largest entry of |G A G^T - I|, for small matrices. */
double ErrorOfInverse(const HostMatrix &, const HostFactor &);

/*
   Row i by the formulas of the paper as they stand: no scaling, dense solves from scratch in long double. `tie` says that
   some decision on the way was so close that rounding may turn it.
*/
struct ReferenceRow {
  std::vector<PetscInt> j;
  std::vector<double>   a;   /* G~ */
  double                psi; /* g~ A g~^T */
  bool                  tie;
};
ReferenceRow ComputeReferenceRow(const HostMatrix &, PetscInt i, const AFSAIParams &);
ReferenceRow ComputeReferenceRow(const HostMatrix &, PetscInt i, const std::vector<PetscInt> &pattern);

/*
   Bound on the error of a row of |P| = k entries, relative to its norm with A scaled to unit diagonal: a backward stable solve
   with a matrix whose eigenvalues lie between lambda_min and 2.
*/
inline double RowTolerance(FinePCPrecision precision, PetscInt k, double lambda_min)
{
  return 8 * (k + 1) * Unit(precision) * 2 / lambda_min;
}
constexpr double kLambdaMin = kDominance / (1 + kDominance); /* of the random matrices */

/* Assert that all rows are the reference's, or differ where the reference met a tie; returns the number of those. */
PetscInt CheckAgainstReference(const HostMatrix &, const HostFactor &, const AFSAIParams &, double lambda_min);
/* Assert that two twins agree in the same sense. */
PetscInt CheckTwins(const HostMatrix &, const HostFactor &host, const HostFactor &device, const AFSAIParams &, double lambda_min);
