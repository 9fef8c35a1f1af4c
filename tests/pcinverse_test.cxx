/* An explicit inverse in two factors: apply to one and to several columns, memory, reset. */
#include <cmath>
#include <new>

#include "compare.h"
#include "pc/pcinverse.h"

namespace
{

/* W2 D W1 from the triangles of a random matrix; the factors are the transposes of each other. */
class TestInverse {
public:
  TestInverse(LocalInt n, FinePCPrecision precision, PetscMemType where)
  {
    const HostMatrix A = n ? RandomGraph(n, 11, 3) : HostMatrix();
    AFSAIParams      params;
    params.setup_precision = params.factor_precision = precision;
    params.initial_power                             = 1;
    params.max_steps                                 = 0;
    factor                                           = ComputeFactor(A, params, PETSC_MEMTYPE_HOST);

    const CSRCopy copy(A, where);
    FSAIStats     stats;
    M              = PCInverse{};
    M.where        = where;
    M.rows         = n;
    M.operator_nnz = A.nnz();
    MUST(ArrayCreate(n * sizeof(PetscScalar), where, (void **)&M.d));
    if (PetscMemTypeDevice(where)) {
      MUST(AFSAIComputeFactor_CUDA(&copy.view, 0, nullptr, &params, PETSC_FALSE, &M.W1, M.d, &stats));
      MUST(CSRTranspose_CUDA(&M.W1, PETSC_FALSE, &M.W2));
    } else {
      MUST(AFSAIComputeFactor_Host(&copy.view, 0, nullptr, &params, PETSC_FALSE, &M.W1, M.d, &stats));
      MUST(CSRTranspose_Host(&M.W1, PETSC_FALSE, &M.W2));
    }
  }
  ~TestInverse() { PetscCallAbort(PETSC_COMM_SELF, PCInverseReset(&M)); }

  /* G^T G x in long double */
  std::vector<long double> Expected(const PetscScalar *x) const
  {
    std::vector<long double> w(factor.rows), y(factor.rows);
    for (LocalInt row = 0; row < factor.rows; row++) {
      w[row] = x[row];
      for (LocalInt k = factor.i[row]; k < factor.i[row + 1]; k++) w[row] += (long double)factor.a[k] * x[factor.j[k]];
      w[row] *= factor.d[row];
    }
    y = w;
    for (LocalInt row = 0; row < factor.rows; row++)
      for (LocalInt k = factor.i[row]; k < factor.i[row + 1]; k++) y[factor.j[k]] += factor.a[k] * w[row];
    return y;
  }
  /* Largest difference from that, relative to the largest entry */
  double Error(const PetscScalar *x, const PetscScalar *y) const
  {
    const auto expected = Expected(x);
    double     worst = 0, largest = 1e-300;
    for (LocalInt k = 0; k < factor.rows; k++) {
      const double off = (double)std::fabs(y[k] - expected[k]);
      worst            = off <= worst ? worst : off; /* NaN stays */
      largest          = std::max(largest, (double)std::fabs(expected[k]));
    }
    return worst / largest;
  }

  PCInverse  M;
  HostFactor factor;
};

/* The twins' values may differ by rounding in double or single. */
double Tolerance(const Backend &backend, FinePCPrecision precision)
{
  return PetscMemTypeDevice(backend.where) && precision == FINEPC_SINGLE ? 1e-5 : 1e-12;
}

/* Numbers for so many columns of n, with what must not be read between them. */
std::vector<PetscScalar> Columns(LocalInt n, LocalInt columns, LocalInt ld)
{
  Random                   random(9);
  std::vector<PetscScalar> x((size_t)ld * columns);
  for (size_t k = 0; k < x.size(); k++) x[k] = (LocalInt)k % ld < n ? random.Between(-1, 1) : std::nan("");
  return x;
}

} // namespace

TEST_CASE("apply to one and to several columns", "[pcinverse]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (LocalInt n : {0, 1, 33, 1000}) {
        TestInverse inverse(n, precision, backend.where);
        for (LocalInt columns : {1, 3, 4, 1}) {
          const LocalInt ldx = n + 7, ldy = n + 2;
          CAPTURE(backend.name, precision, n, columns);
          const auto     x = Columns(n, columns, ldx);
          const Array    X(x, backend.where), Y(std::vector<PetscScalar>((size_t)ldy * columns, std::nan("")), backend.where);
          PetscLogDouble flops = -1;
          MUST(PCInverseNeedWork(&inverse.M, columns));
          MUST(PCInverseApply(&inverse.M, columns, X, ldx, Y, ldy, &flops));
          const auto y     = Y.Values();
          double     worst = 0;
          for (LocalInt c = 0; c < columns; c++) worst = std::max(worst, inverse.Error(x.data() + c * ldx, y.data() + c * ldy));
          CHECK(worst <= Tolerance(backend, precision));
          for (size_t k = 0; k < y.size(); k++)
            if ((LocalInt)k % ldy >= n) REQUIRE(std::isnan(y[k]));
          CHECK(flops == columns * (4. * inverse.M.W1.nnz + n));
        }
      }
}

TEST_CASE("apply allocates nothing", "[pcinverse]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    TestInverse    inverse(500, FINEPC_SINGLE, backend.where);
    const Array    x(Columns(500, 1, 500), backend.where), y(Columns(500, 1, 500), backend.where);
    PetscLogDouble flops;
    PetscErrorCode code;
    MUST(PCInverseNeedWork(&inverse.M, 1));
    MUST(PCInverseApply(&inverse.M, 1, x, 500, y, 500, &flops));
    CHECK(CountAllocations([&] { code = PCInverseApply(&inverse.M, 1, x, 500, y, 500, &flops); }) == 0);
    MUST(code);

    void *memory; /* it would have been seen */
    CHECK(CountAllocations([&] { code = PetscMalloc(1000, &memory); }) == 1);
    MUST(PetscFree(memory));
    std::vector<int> vector;
    CHECK(CountAllocations([&] { vector.resize(1000); }) == 1);
    void *quiet = nullptr; /* as std::stable_sort() takes memory */
    CHECK(CountAllocations([&] { quiet = ::operator new(1000, std::nothrow); }) == 1);
    ::operator delete(quiet, std::nothrow);
  }
}

TEST_CASE("apply on the device allocates nothing and waits for nothing", "[pcinverse][gpu]")
{
  NEEDS_DEVICE();
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
    TestInverse    inverse(500, precision, PETSC_MEMTYPE_CUDA);
    const Array    x(Columns(500, 1, 500), PETSC_MEMTYPE_CUDA), y(Columns(500, 1, 500), PETSC_MEMTYPE_CUDA);
    PetscLogDouble flops;
    MUST(PCInverseNeedWork(&inverse.M, 1));
    MUST(PCInverseApply(&inverse.M, 1, x, 500, y, 500, &flops));
    CHECK(AsynchronousOnDevice([&] { MUST(PCInverseApply(&inverse.M, 1, x, 500, y, 500, &flops)); }));
  }
}

TEST_CASE("reset frees everything and can be repeated", "[pcinverse]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    PetscLogDouble before = 0;
    for (int repeat = 0; repeat < 3; repeat++) {
      TestInverse    inverse(100, FINEPC_DOUBLE, backend.where);
      const Array    x(Columns(100, 1, 100), backend.where), y(Columns(100, 1, 100), backend.where);
      PetscLogDouble flops;
      MUST(PCInverseNeedWork(&inverse.M, 1));
      MUST(PCInverseApply(&inverse.M, 1, x, 100, y, 100, &flops));
      MUST(PCInverseReset(&inverse.M));
      CHECK((inverse.M.W1.i == nullptr && inverse.M.W2.a == nullptr && inverse.M.d == nullptr && inverse.M.work == nullptr &&
             inverse.M.rows == 0));
      MUST(PCInverseReset(&inverse.M));
      if (repeat == 1) before = HostBytes();
      CHECK(HostBytes() > 0);
      if (repeat == 2) CHECK(HostBytes() == before);
    }
  }
}
