/* An explicit inverse in two factors: apply to vectors and dense matrices of either memory, memory, reset. */
#include <cmath>
#include <cstring>

#include "compare.h"
#include "pc/pcinverse.h"

namespace
{

/* W2 D W1 from the triangles of a random matrix; the factors are the transposes of each other. */
class TestInverse {
public:
  TestInverse(PetscInt n, FinePCPrecision precision, PetscMemType where)
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
    M.unit         = PETSC_TRUE;
    MUST(ArrayCreate(n * sizeof(PetscScalar), where, (void **)&M.d));
    if (PetscMemTypeDevice(where)) {
      MUST(AFSAIComputeFactor_CUDA(&copy.view, 0, &params, PETSC_FALSE, &M.W1, M.d, &stats));
      MUST(CSRTranspose_CUDA(&M.W1, PETSC_FALSE, &M.W2));
    } else {
      MUST(AFSAIComputeFactor_Host(&copy.view, 0, &params, PETSC_FALSE, &M.W1, M.d, &stats));
      MUST(CSRTranspose_Host(&M.W1, PETSC_FALSE, &M.W2));
    }
  }
  ~TestInverse() { PetscCallAbort(PETSC_COMM_SELF, PCInverseReset(&M)); }

  /* G^T G x in long double */
  std::vector<long double> Expected(const PetscScalar *x) const
  {
    std::vector<long double> w(factor.rows), y(factor.rows);
    for (PetscInt row = 0; row < factor.rows; row++) {
      w[row] = x[row];
      for (PetscInt k = factor.i[row]; k < factor.i[row + 1]; k++) w[row] += (long double)factor.a[k] * x[factor.j[k]];
      w[row] *= factor.d[row];
    }
    y = w;
    for (PetscInt row = 0; row < factor.rows; row++)
      for (PetscInt k = factor.i[row]; k < factor.i[row + 1]; k++) y[factor.j[k]] += factor.a[k] * w[row];
    return y;
  }
  /* Largest difference from that, relative to the largest entry */
  double Error(const PetscScalar *x, const PetscScalar *y) const
  {
    const auto expected = Expected(x);
    double     worst = 0, largest = 1e-300;
    for (PetscInt k = 0; k < factor.rows; k++) {
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

std::vector<const char *> VecTypes()
{
  std::vector<const char *> types;
  for (const Backend &backend : Backends()) types.push_back(backend.vec);
  return types;
}

} // namespace

TEST_CASE("apply to vectors of any memory", "[pcinverse]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (PetscInt n : {0, 1, 33, 1000})
        for (const char *x_type : VecTypes())
          for (const char *y_type : VecTypes()) {
            CAPTURE(backend.name, precision, n, x_type, y_type);
            TestInverse        inverse(n, precision, backend.where);
            const VecObject    x = CreateVec(n, x_type, 1), y = CreateVec(n, y_type, 2);
            const PetscScalar *x_array, *y_array;
            for (int repeat = 0; repeat < 2; repeat++) {
              MUST(VecSet(y, std::nan("")));
              MUST(PCInverseApply(&inverse.M, x, y));
              MUST(VecGetArrayRead(x, &x_array));
              MUST(VecGetArrayRead(y, &y_array));
              CHECK(inverse.Error(x_array, y_array) <= Tolerance(backend, precision));
              MUST(VecRestoreArrayRead(y, &y_array));
              MUST(VecRestoreArrayRead(x, &x_array));
            }
          }
}

TEST_CASE("apply to several right-hand sides", "[pcinverse]")
{
  std::vector<const char *> dense_types;
  for (const Backend &backend : Backends()) dense_types.push_back(backend.dense);
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (const char *x_type : dense_types)
        for (const char *y_type : dense_types)
          for (PetscInt columns : {1, 3, 4, 5, 9}) {
            const PetscInt n = 300, ldx = n + 7, ldy = n + 2;
            CAPTURE(backend.name, precision, x_type, y_type, columns);
            TestInverse inverse(n, precision, backend.where);
            MatObject   X, Y;
            const auto  create = [&](MatObject &mat, const char *type, PetscInt ld) {
              MUST(MatCreate(PETSC_COMM_SELF, mat.put()));
              MUST(MatSetSizes(mat, n, columns, n, columns));
              MUST(MatSetType(mat, type));
              MUST(MatDenseSetLDA(mat, ld));
              MUST(MatSetUp(mat));
            };
            create(X, x_type, ldx);
            create(Y, y_type, ldy);
            PetscScalar       *x, *y;
            const PetscScalar *x_read;
            PetscInt           ld;
            Random             random(9);
            MUST(MatDenseGetArrayWrite(X, &x));
            for (PetscInt k = 0; k < ldx * columns; k++) x[k] = k % ldx < n ? random.Between(-1, 1) : std::nan("");
            MUST(MatDenseRestoreArrayWrite(X, &x));
            MUST(MatDenseGetArrayWrite(Y, &y));
            for (PetscInt k = 0; k < ldy * columns; k++) y[k] = std::nan("");
            MUST(MatDenseRestoreArrayWrite(Y, &y));
            MUST(MatDenseGetLDA(Y, &ld));
            REQUIRE(ld == ldy);

            MUST(PCInverseMatApply(&inverse.M, X, Y));
            MUST(MatDenseGetArrayRead(X, &x_read));
            MUST(MatDenseGetArray(Y, &y));
            double worst = 0;
            for (PetscInt c = 0; c < columns; c++) worst = std::max(worst, inverse.Error(x_read + c * ldx, y + c * ldy));
            CHECK(worst <= Tolerance(backend, precision));
            MUST(MatDenseRestoreArray(Y, &y));
            MUST(MatDenseRestoreArrayRead(X, &x_read));
          }
}

TEST_CASE("apply allocates nothing", "[pcinverse]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    TestInverse     inverse(500, FINEPC_SINGLE, backend.where);
    const VecObject x = CreateVec(500, backend.vec, 1), y = CreateVec(500, backend.vec, 2);
    PetscErrorCode  code;
    MUST(PCInverseApply(&inverse.M, x, y)); /* the first one makes its work space */
    CHECK(CountAllocations([&] { code = PCInverseApply(&inverse.M, x, y); }) == 0);
    MUST(code);

    void *memory; /* it would have been seen */
    CHECK(CountAllocations([&] { code = PetscMalloc(1000, &memory); }) == 1);
    MUST(PetscFree(memory));
    std::vector<int> vector;
    CHECK(CountAllocations([&] { vector.resize(1000); }) == 1);
  }
}

TEST_CASE("apply on the device allocates nothing and waits for nothing", "[pcinverse][gpu]")
{
  NEEDS_DEVICE();
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
    TestInverse     inverse(500, precision, PETSC_MEMTYPE_CUDA);
    const VecObject x = CreateVec(500, VECCUDA, 1), y = CreateVec(500, VECCUDA, 2);
    MUST(VecSet(y, 0));
    MUST(PCInverseApply(&inverse.M, x, y));
    CHECK(AsynchronousOnDevice([&] { MUST(PCInverseApply(&inverse.M, x, y)); }));
  }
}

TEST_CASE("reset frees everything and can be repeated", "[pcinverse]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    PetscLogDouble before = 0;
    for (int repeat = 0; repeat < 3; repeat++) {
      TestInverse     inverse(100, FINEPC_DOUBLE, backend.where);
      const VecObject x = CreateVec(100, VECSTANDARD, 1), y = CreateVec(100, VECSTANDARD, 2);
      MUST(PCInverseApply(&inverse.M, x, y));
      MUST(PCInverseReset(&inverse.M));
      CHECK((inverse.M.W1.i == nullptr && inverse.M.W2.a == nullptr && inverse.M.d == nullptr && inverse.M.work == nullptr &&
             inverse.M.staging == nullptr && inverse.M.rows == 0));
      MUST(PCInverseReset(&inverse.M));
      if (repeat == 1) before = HostBytes();
      CHECK(HostBytes() > 0);
      if (repeat == 2) CHECK(HostBytes() == before);
    }
  }
}
