#include "gmresfused_support.h"

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
