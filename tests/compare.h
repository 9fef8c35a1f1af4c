/* Factors on the host, whoever computed them, and what they are compared with. */
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "pc/afsai/afsai.h"
#include "pc/sfsai/sfsai.h"
#include "matrices.h"

constexpr double kUnitSingle = 0x1p-24, kUnitDouble = 0x1p-53; /* unit roundoff */

inline double Unit(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? kUnitSingle : kUnitDouble;
}

struct Precisions {
  FinePCPrecision setup, factor;
};
inline const std::vector<Precisions> kAllPrecisions = {
  {FINEPC_SINGLE, FINEPC_SINGLE},
  {FINEPC_SINGLE, FINEPC_DOUBLE},
  {FINEPC_DOUBLE, FINEPC_SINGLE},
  {FINEPC_DOUBLE, FINEPC_DOUBLE},
};

constexpr FinePCPrecision kPrecisions[] = {FINEPC_SINGLE, FINEPC_DOUBLE};

/* Names of real matrices for Shared(). */
constexpr const char *kStructural[] = {"bcsstk16", "bcsstk24", "s3rmt3m3", "ex15"};

/* Small matrices of every kind, with known smallest eigenvalue, kLambdaMin. */
struct Named {
  const char *name;
  HostMatrix  A;
};
std::vector<Named> SmallMatrices();

/* Calls test(backend, precisions) for all of them, or test(backend, matrix, precisions) for these matrices, too. */
template <typename Test>
void ForEachPrecision(const Test &test)
{
  for (const Backend &backend : Backends())
    for (const Precisions &p : kAllPrecisions) {
      CAPTURE(backend.name, p.setup, p.factor);
      test(backend, p);
    }
}
template <typename Test>
void ForEachPrecision(const std::vector<Named> &matrices, const Test &test)
{
  for (const Named &m : matrices) {
    CAPTURE(m.name);
    ForEachPrecision([&](const Backend &backend, const Precisions &p) { test(backend, m, p); });
  }
}

/* Rows first .. of G~ without its diagonal, and d, of M^{-1} = G~^T D G~. */
struct HostFactor {
  LocalInt              first = 0, rows = 0;
  std::vector<LocalInt> i, j;
  std::vector<double>   a, d;
  FSAIStats             stats;

  LocalInt nnz() const { return (LocalInt)j.size(); }
  LocalInt Length(LocalInt row) const { return i[row + 1] - i[row]; }
};

/*
   AFSAIComputeFactor_Host or _CUDA; with keep, on that pattern, and with S, from the pattern of these rows first .. on. Output
   arrays are full of NaN before.
*/
HostFactor ComputeFactor(const HostMatrix &, const AFSAIParams &, PetscMemType, LocalInt first = 0,
                         const HostFactor *keep = nullptr, const HostMatrix *S = nullptr);

/*
   SFSAIComputeFactor_Host or _CUDA, on the pattern of S where it is given. With refill, then again for this matrix of the same
   nonzeros as A, in the memory of the set-up for A.
*/
HostFactor ComputeFactor(const HostMatrix &A, const SFSAIParams &, PetscMemType, const HostMatrix *S = nullptr,
                         const HostMatrix *refill = nullptr);

/* The pattern of a factor as a matrix that has no values, only NaN. */
HostMatrix         PatternOf(const HostFactor &);
std::set<LocalInt> RowPattern(const HostFactor &, LocalInt row);

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
DiagonalError ErrorOfDiagonal(const HostMatrix &, const HostFactor &, FinePCPrecision setup, FinePCPrecision factor, bool filtered);
template <typename Params>
DiagonalError ErrorOfDiagonal(const HostMatrix &A, const HostFactor &F, const Params &params)
{
  return ErrorOfDiagonal(A, F, params.setup_precision, params.factor_precision, params.postfilter > 0);
}

/* Largest entry of |G A G^T - I|, for small matrices. */
double ErrorOfInverse(const HostMatrix &, const HostFactor &);

/*
   Row i by the formulas of the paper as they stand: no scaling, dense solves from scratch in long double. `tie` says that
   some decision on the way was so close that rounding may turn it.
*/
struct ReferenceRow {
  std::vector<LocalInt> j;
  std::vector<double>   a;   /* G~ */
  double                psi; /* g~ A g~^T */
  bool                  tie;
};
ReferenceRow ComputeReferenceRow(const HostMatrix &, LocalInt i, const AFSAIParams &);
ReferenceRow ComputeReferenceRow(const HostMatrix &, LocalInt i, const SFSAIParams &);
ReferenceRow ComputeReferenceRow(const HostMatrix &, LocalInt i, const std::vector<LocalInt> &pattern);

/*
   Bound on the error of a row of |P| = k entries, relative to its norm with A scaled to unit diagonal: a backward stable solve
   with a matrix whose eigenvalues lie between lambda_min and 2.
*/
inline double RowTolerance(FinePCPrecision precision, LocalInt k, double lambda_min)
{
  return 8 * (k + 1) * Unit(precision) * 2 / lambda_min;
}
constexpr double kLambdaMin = kDominance / (1 + kDominance); /* of the random matrices */

/* The columns of row i of B_k, i among them, capped as max_row says; `tie` where two weights at the cut are equal to rounding. */
std::set<LocalInt> ReferencePattern(const HostMatrix &, LocalInt i, const SFSAIParams &, bool *tie);

/*
   For bad pivots: blocks of [1 c; c 1], which has psi_1 = 1 - c^2, and a third row that is fine; these are coupled with the
   block before. c = 1 - 1e-6 is under the smallest pivot of single precision only, c = 1 - 1e-15 under that of double, and
   c = 2 is indefinite.
*/
HostMatrix BadPairs(LocalInt blocks, double c);

/* Assert that matrices that cannot be preconditioned, UsableMatrix() with one or two other entries, are named as such. */
HostMatrix UsableMatrix();
void       CheckUnusableMatrices(const std::function<FSAIStats(const HostMatrix &)> &compute);

/* Assert that all rows are the reference's, or differ where the reference met a tie; returns the number of those. */
template <typename Params>
LocalInt CheckAgainstReference(const HostMatrix &, const HostFactor &, const Params &, double lambda_min);
/* Assert that all rows have the values that belong to the pattern they have. */
template <typename Params>
void CheckValues(const HostMatrix &, const HostFactor &, const Params &, double lambda_min);
/* Assert that two twins agree in the same sense. */
template <typename Params>
LocalInt CheckTwins(const HostMatrix &, const HostFactor &host, const HostFactor &device, const Params &, double lambda_min);
