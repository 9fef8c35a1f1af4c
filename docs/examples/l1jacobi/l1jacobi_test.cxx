/* Both twins of l1-Jacobi against the formula, rows that it cannot use, and the limiting case of weight 0. */
#include <cmath>
#include <limits>

#include "compare.h"
#include "l1jacobi.h"
#include "pc_support.h"
#include "pcl1jacobi.h"

namespace
{

struct Result {
  std::vector<double> d, y;
  LocalInt            failure_row;
};

/* d, and y = d x for x = d, by the twin of that memory; output arrays are full of NaN before. */
Result Compute(const HostMatrix &A, PetscReal weight, PetscMemType where)
{
  const CSRCopy        copy(A, where);
  const size_t         bytes = A.n * sizeof(PetscScalar);
  const L1JacobiParams params{weight};
  const bool           device = PetscMemTypeDevice(where);
  Result               result{std::vector<double>(A.n, std::nan("")), std::vector<double>(A.n, std::nan("")), -7};
  void                *d, *y;
  MUST(ArrayCreate(bytes, where, &d));
  MUST(ArrayCreate(bytes, where, &y));
  MUST(ArrayCopy(d, result.d.data(), bytes, where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(y, result.y.data(), bytes, where, PETSC_MEMTYPE_HOST));
  MUST(
    (device ? L1JacobiComputeFactor_CUDA : L1JacobiComputeFactor_Host)(&copy.view, &params, (PetscScalar *)d, &result.failure_row));
  MUST((device ? L1JacobiApply_CUDA : L1JacobiApply_Host)(A.n, (const PetscScalar *)d, (const PetscScalar *)d, (PetscScalar *)y));
  MUST(ArrayCopy(result.d.data(), d, bytes, PETSC_MEMTYPE_HOST, where));
  MUST(ArrayCopy(result.y.data(), y, bytes, PETSC_MEMTYPE_HOST, where));
  MUST(ArrayDestroy(where, &d));
  MUST(ArrayDestroy(where, &y));
  return result;
}

} // namespace

TEST_CASE("l1jacobi: the formula, on both twins", "[l1jacobi][sanitizer]")
{
  for (const Backend &backend : Backends())
    for (LocalInt n : {0, 1, 31, 32, 33, 1000})
      for (double weight : {0., 0.5, 1.}) {
        CAPTURE(backend.name, n, weight);
        const HostMatrix A = n ? RandomGraph(n, 9, 10 + n) : HostMatrix();
        const Result     R = Compute(A, weight, backend.where);
        CHECK(R.failure_row == -1);
        for (LocalInt row = 0; row < n; row++) {
          double sum = 0;
          for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) sum += A.j[k] == row ? A.a[k] : weight * std::fabs(A.a[k]);
          CHECK(R.d[row] == Approx(1 / sum).epsilon(1e-14).margin(0));
          CHECK(R.y[row] == R.d[row] * R.d[row]);
        }
      }
}

TEST_CASE("l1jacobi: the first unusable row is named", "[l1jacobi]")
{
  for (const Backend &backend : Backends())
    for (double bad : {0., -1e9, std::nan(""), (double)std::numeric_limits<double>::infinity()}) {
      CAPTURE(backend.name, bad);
      HostMatrix A = Poisson(70);
      for (LocalInt row : {40, 65})
        for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
          if (A.j[k] == row) A.a[k] = bad;
      CHECK(Compute(A, 0, backend.where).failure_row == 40);
    }
}

TEST_CASE("l1jacobi: weight 0 is PCJACOBI to the last bit", "[l1jacobi][pc]")
{
  MUST(PetscDLLibraryRegister_l1jacobi());
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A  = CreateAIJ(Blocks(Diffusion(20, 15, true, 2)), backend.mat);
    const PCObject  l1 = MakePC(A, "-pc_l1jacobi_weight 0", PCL1JACOBI), jacobi = MakePC(A, "-pc_type jacobi", PCJACOBI);
    CHECK(SameBits(Applied(l1), Applied(jacobi)));
  }
}
