#include "gmresfused_support.h"

#include <algorithm>
#include <cmath>

Run RunOf(KSP ksp, Vec b)
{
  Run              run;
  const PetscReal *history;
  PetscInt         count;
  Mat              A;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  const VecObject x = RightVec(A, 5); /* the guess, where the options ask for one */
  MUST(KSPSetResidualHistory(ksp, nullptr, 20000, PETSC_TRUE));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetConvergedReason(ksp, &run.reason));
  MUST(KSPGetIterationNumber(ksp, &run.iterations));
  MUST(KSPGetResidualNorm(ksp, &run.norm));
  MUST(KSPGetResidualHistory(ksp, &history, &count));
  run.history.assign(history, history + count);
  run.x = Values(x);
  return run;
}

Run RunOf(KSP ksp)
{
  Mat A;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  const VecObject b = RightVec(A, 2);
  return RunOf(ksp, b);
}

double NormDifference(const std::vector<double> &mine, const std::vector<double> &theirs)
{
  double worst = mine.size() == theirs.size() ? 0 : 1, largest = 0;
  for (double value : theirs) largest = std::isfinite(value) ? std::max(largest, std::fabs(value)) : largest;
  for (size_t k = 0; k < std::min(mine.size(), theirs.size()); k++) {
    const double off = std::fabs(mine[k] - theirs[k]);
    if (!std::isfinite(theirs[k])) worst = std::isfinite(mine[k]) ? 1 : worst;
    else if (!(off <= 1e-12 * largest)) worst = std::max(worst, theirs[k] != 0 ? off / std::fabs(theirs[k]) : 1);
  }
  return worst;
}

void Compare(const Run &mine, const Run &theirs, double rounding)
{
  CAPTURE(theirs.iterations, rounding);
  CHECK(mine.reason == theirs.reason);
  CHECK(mine.iterations == theirs.iterations);
  CHECK(mine.history.size() == theirs.history.size());
  auto my_norms = mine.history, their_norms = theirs.history;
  my_norms.push_back(mine.norm);
  their_norms.push_back(theirs.norm);
  CHECK(NormDifference(my_norms, their_norms) <= rounding);
  CHECK(Difference(mine.x, theirs.x) <= rounding);
}

HostMatrix Convection(LocalInt nx, LocalInt ny, double peclet)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows((size_t)nx * ny);
  for (LocalInt y = 0; y < ny; y++)
    for (LocalInt x = 0; x < nx; x++) {
      auto &row = rows[(size_t)y * nx + x];
      row.push_back({y * nx + x, 4 + 1.5 * peclet});
      if (x > 0) row.push_back({y * nx + x - 1, -1 - peclet});
      if (x + 1 < nx) row.push_back({y * nx + x + 1, -1});
      if (y > 0) row.push_back({(y - 1) * nx + x, -1 - peclet / 2});
      if (y + 1 < ny) row.push_back({(y + 1) * nx + x, -1});
    }
  return FromRows(rows);
}

HostMatrix Unsymmetric(HostMatrix A, std::uint64_t seed)
{
  Random random(seed);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] != row) A.a[k] *= random.Between(0.2, 1);
  return A;
}

MatObject BlocksOfRanks(const HostBlocks &H, const Share &share)
{
  MatObject      A;
  const PetscInt rows = share(H.n, Rank(), Ranks()) * H.bs;
  MUST(MatCreate(PETSC_COMM_WORLD, A.put()));
  MUST(MatSetSizes(A, rows, rows, (PetscInt)H.n * H.bs, (PetscInt)H.n * H.bs));
  MUST(MatSetBlockSize(A, H.bs));
  MUST(MatSetType(A, MATBAIJCUDA));
  MUST(MatSetUp(A));
  SetValues(A, H);
  return A;
}

std::string Side(const char *side)
{
  return std::string("-ksp_pc_side ") + side + " ";
}

bool Views(KSP ksp, const std::string &text)
{
  const std::string view = ViewText(ksp); /* collective */
  if (Rank() != 0 || Contains(view, text)) return true;
  UNSCOPED_INFO(view);
  return false;
}
