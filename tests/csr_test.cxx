/* Transposition and product of factors: both twins against plain loops. */
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "compare.h"
#include "sparse/symmetry.h"

namespace
{

/* A CSR on the host with values exact in single precision, and its copy anywhere. */
struct TestCSR {
  LocalInt              rows, columns;
  std::vector<LocalInt> i, j;
  std::vector<double>   a;
};

/* Row lengths as given, distinct ascending columns. */
TestCSR RandomCSR(LocalInt columns, const std::vector<LocalInt> &lengths, std::uint64_t seed)
{
  Random  random(seed);
  TestCSR W{(LocalInt)lengths.size(), columns, {0}, {}, {}};
  for (LocalInt length : lengths) {
    LocalInt left = length;
    for (LocalInt column = 0; column < columns && left > 0; column++) {
      if ((double)left < random.Between(0, (double)(columns - column))) continue;
      W.j.push_back(column);
      W.a.push_back((float)random.Between(-1, 1));
      left--;
    }
    W.i.push_back((LocalInt)W.j.size());
  }
  return W;
}

TestCSR TransposeOf(const TestCSR &W)
{
  TestCSR Wt{W.columns, W.rows, {0}, {}, {}};
  for (LocalInt column = 0; column < W.columns; column++) {
    for (LocalInt row = 0; row < W.rows; row++)
      for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++)
        if (W.j[k] == column) {
          Wt.j.push_back(row);
          Wt.a.push_back(W.a[k]);
        }
    Wt.i.push_back((LocalInt)Wt.j.size());
  }
  return Wt;
}

void FillValues(const std::vector<double> &a, CSR &W)
{
  const std::vector<float> single(a.begin(), a.end());
  const void              *data = W.precision == FINEPC_SINGLE ? (const void *)single.data() : (const void *)a.data();
  MUST(ArrayCopy(W.a, data, W.nnz * FinePCPrecisionBytes(W.precision), W.where, PETSC_MEMTYPE_HOST));
}

CSR Send(const TestCSR &W, FinePCPrecision precision, PetscMemType where)
{
  CSR sent;
  MUST(CSRCreate(W.rows, W.columns, (LocalInt)W.j.size(), precision, where, &sent));
  MUST(ArrayCopy(sent.i, W.i.data(), W.i.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(sent.j, W.j.data(), W.j.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  FillValues(W.a, sent);
  return sent;
}

void CheckSame(const CSR &W, const TestCSR &expected)
{
  CSR host;
  MUST(CSRDuplicate(&W, PETSC_MEMTYPE_HOST, &host));
  REQUIRE(host.rows == expected.rows);
  REQUIRE(host.columns == expected.columns);
  REQUIRE(host.nnz == (LocalInt)expected.j.size());
  CHECK(std::vector<LocalInt>(host.i, host.i + host.rows + 1) == expected.i);
  CHECK(std::vector<LocalInt>(host.j, host.j + host.nnz) == expected.j);
  LocalInt wrong = 0;
  for (LocalInt k = 0; k < host.nnz; k++)
    wrong += (host.precision == FINEPC_SINGLE ? (double)((float *)host.a)[k] : ((double *)host.a)[k]) != expected.a[k];
  CHECK(wrong == 0);
  MUST(CSRDestroy(&host));
}

PetscErrorCode Transpose(const CSR *W, PetscBool keep, CSR *Wt)
{
  return PetscMemTypeDevice(W->where) ? CSRTranspose_CUDA(W, keep, Wt) : CSRTranspose_Host(W, keep, Wt);
}

struct Shape {
  const char *name;
  TestCSR     W;
};

/* Every kind of row that a kernel may treat in its own way. */
std::vector<Shape> Shapes()
{
  std::vector<LocalInt> mixed, waves;
  for (LocalInt row = 0; row < 1000; row++) mixed.push_back(row % 17 == 0 ? 0 : row % 101 == 0 ? 200 : row % 9);
  for (LocalInt row = 0; row < 400; row++) waves.push_back(row % 80);
  return {
    {"no rows", RandomCSR(0, {}, 1)},
    {"one entry", RandomCSR(1, {1}, 2)},
    {"rows, no entries", RandomCSR(5, std::vector<LocalInt>(5, 0), 3)},
    {"31 rows", RandomCSR(31, std::vector<LocalInt>(31, 2), 4)},
    {"32 rows", RandomCSR(32, std::vector<LocalInt>(32, 3), 5)},
    {"33 rows", RandomCSR(33, std::vector<LocalInt>(33, 5), 6)},
    {"mixed, empty rows", RandomCSR(1000, mixed, 7)},
    {"up to 79 per row", RandomCSR(400, waves, 8)},
    {"about 20 per row", RandomCSR(1000, std::vector<LocalInt>(1000, 20), 9)},
    {"about 40 per row", RandomCSR(1000, std::vector<LocalInt>(1000, 40), 10)},
    {"about 100 per row", RandomCSR(300, std::vector<LocalInt>(300, 100), 11)},
    {"one full row", RandomCSR(3000, {0, 3000, 1}, 12)},
    {"one full column", TransposeOf(RandomCSR(3000, {0, 3000, 1}, 12))},
    {"wider than tall", RandomCSR(700, std::vector<LocalInt>(90, 7), 13)},
    {"taller than wide", RandomCSR(90, std::vector<LocalInt>(700, 7), 14)},
  };
}

} // namespace

TEST_CASE("values are gathered from the memory where they are", "[csr][sanitizer]")
{
  for (const Backend &backend : Backends())
    for (size_t count : {0, 1, 31, 32, 33, 1000}) {
      const size_t          room = 3 * count + 1;
      std::vector<double>   from(room), to(count + 1, -1);
      std::vector<LocalInt> at(count);
      double               *values = nullptr;
      for (size_t k = 0; k < room; k++) from[k] = (double)(k * k);
      for (size_t k = 0; k < count; k++) at[k] = (LocalInt)((k * 7919) % room);
      MUST(ArrayCreate(room * sizeof(double), backend.where, (void **)&values));
      MUST(ArrayCopy(values, from.data(), room * sizeof(double), backend.where, PETSC_MEMTYPE_HOST));
      MUST(ArrayGather(count, at.data(), values, backend.where, to.data()));
      MUST(ArrayDestroy(backend.where, (void **)&values));
      CAPTURE(backend.where, count);
      for (size_t k = 0; k < count; k++) REQUIRE(to[k] == from[at[k]]);
      CHECK(to[count] == -1);
    }
}

TEST_CASE("the hash of a pattern is the same in both twins, and another one for another pattern", "[csr][sanitizer]")
{
  const auto hash = [](const CSRView &host, const Backend &backend) {
    const bool device = PetscMemTypeDevice(backend.where);
    CSR        W{};
    uint64_t  *work = nullptr, result = 0;
    MUST(CSRCreate(host.n, host.n, host.nnz, FINEPC_SINGLE, backend.where, &W));
    MUST(ArrayCopy(W.i, host.i, (host.n + 1) * sizeof(*W.i), backend.where, PETSC_MEMTYPE_HOST));
    MUST(ArrayCopy(W.j, host.j, host.nnz * sizeof(*W.j), backend.where, PETSC_MEMTYPE_HOST));
    if (device) MUST(ArrayCreate(sizeof(*work), backend.where, (void **)&work));
    const CSRView view{host.n, host.nnz, W.i, W.j, nullptr, backend.where};
    MUST((device ? CSRHash_CUDA : CSRHash_Host)(&view, work, &result));
    MUST(ArrayDestroy(backend.where, (void **)&work));
    MUST(CSRDestroy(&W));
    return result;
  };
  for (LocalInt n : {0, 1, 31, 32, 33, 1000, 20000}) {
    const TestCSR         W = RandomCSR(PetscMin(n, 60), std::vector<LocalInt>(n, PetscMin(n, 5)), 3 + n);
    std::vector<LocalInt> i = W.i, j = W.j;
    const CSRView         A{n, (LocalInt)j.size(), i.data(), j.data(), nullptr, PETSC_MEMTYPE_HOST};
    const uint64_t        first = hash(A, HostBackend());
    CAPTURE(n);
    for (const Backend &backend : Backends()) CHECK(hash(A, backend) == first);
    if (n < 2) continue;
    for (const Backend &backend : Backends()) {
      std::swap(j[0], j[1]); /* the same numbers at other places */
      CHECK(hash(A, backend) != first);
      std::swap(j[0], j[1]);
      j.back()++;
      CHECK(hash(A, backend) != first);
      j.back()--;
      i[n - 1]--; /* an entry goes to another row */
      CHECK(hash(A, backend) != first);
      i[n - 1]++;
      CHECK(hash(A, backend) == first);
    }
  }
}

TEST_CASE("transpose: rows sorted, values where they belong", "[csr]")
{
  for (const Backend &backend : Backends())
    for (const Shape &shape : Shapes())
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        CAPTURE(backend.name, shape.name, FinePCPrecisions[precision]);
        PoisonMemory(backend.where, (size_t)1 << 20);
        const TestCSR expected = TransposeOf(shape.W);
        CSR           W = Send(shape.W, precision, backend.where), Wt = {};
        MUST(Transpose(&W, PETSC_FALSE, &Wt));
        CheckSame(Wt, expected);

        /* the pattern is there already: new values, in the same memory */
        TestCSR scaled = shape.W, expected_scaled = expected;
        for (double &value : scaled.a) value *= -2;
        for (double &value : expected_scaled.a) value *= -2;
        const CSR before = Wt;
        FillValues(scaled.a, W);
        MUST(Transpose(&W, PETSC_TRUE, &Wt));
        CheckSame(Wt, expected_scaled);
        CHECK((Wt.i == before.i && Wt.j == before.j && Wt.a == before.a));
        MUST(CSRDestroy(&W));
        MUST(CSRDestroy(&Wt));
      }
}

TEST_CASE("multiply: sums in double, any number of right-hand sides", "[csr]")
{
  for (const Backend &backend : Backends())
    for (const Shape &shape : Shapes())
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
        for (LocalInt columns : {1, 3, 4, 5, 9})
          for (bool unit : {false, true})
            for (bool scaled : {false, true}) {
              const TestCSR &T = shape.W;
              if (unit && T.rows != T.columns) continue;
              CAPTURE(backend.name, shape.name, FinePCPrecisions[precision], columns, unit, scaled);
              const LocalInt      ldx = T.columns + 3, ldy = T.rows + 5;
              const double        nan = std::numeric_limits<double>::quiet_NaN();
              Random              random(42);
              std::vector<double> X(ldx * columns, nan), Y(ldy * columns, nan), d(T.rows);
              for (LocalInt c = 0; c < columns; c++)
                for (LocalInt k = 0; k < T.columns; k++) X[c * ldx + k] = random.Between(-1, 1);
              for (double &value : d) value = random.Between(0.5, 2);

              CSR   W      = Send(T, precision, backend.where);
              void *X_data = nullptr, *Y_data = nullptr, *d_data = nullptr;
              MUST(ArrayCreate(X.size() * sizeof(double), backend.where, &X_data));
              MUST(ArrayCreate(Y.size() * sizeof(double), backend.where, &Y_data));
              MUST(ArrayCreate(d.size() * sizeof(double), backend.where, &d_data));
              MUST(ArrayCopy(X_data, X.data(), X.size() * sizeof(double), backend.where, PETSC_MEMTYPE_HOST));
              MUST(ArrayCopy(Y_data, Y.data(), Y.size() * sizeof(double), backend.where, PETSC_MEMTYPE_HOST));
              MUST(ArrayCopy(d_data, d.data(), d.size() * sizeof(double), backend.where, PETSC_MEMTYPE_HOST));
              const auto multiply = PetscMemTypeDevice(backend.where) ? CSRMultiply_CUDA : CSRMultiply_Host;
              MUST(multiply(&W, (PetscBool)unit, scaled ? (double *)d_data : nullptr, columns, (double *)X_data, ldx,
                            (double *)Y_data, ldy));
              MUST(ArrayCopy(Y.data(), Y_data, Y.size() * sizeof(double), PETSC_MEMTYPE_HOST, backend.where));

              LocalInt wrong = 0, touched = 0;
              for (LocalInt c = 0; c < columns; c++) {
                for (LocalInt row = 0; row < T.rows; row++) {
                  const long double scale = scaled ? d[row] : 1;
                  long double       sum = unit ? X[c * ldx + row] : 0, magnitude = std::fabs(sum);
                  for (LocalInt k = T.i[row]; k < T.i[row + 1]; k++) {
                    sum += (long double)T.a[k] * X[c * ldx + T.j[k]];
                    magnitude += std::fabs((long double)T.a[k] * X[c * ldx + T.j[k]]);
                  }
                  /* not "greater than": NaN is wrong, too */
                  wrong +=
                    !(std::fabs(Y[c * ldy + row] - scale * sum) <= (T.i[row + 1] - T.i[row] + 4) * kUnitDouble * scale * magnitude);
                }
                for (LocalInt row = T.rows; row < ldy; row++) touched += !std::isnan(Y[c * ldy + row]);
              }
              CHECK(wrong == 0);
              CHECK(touched == 0);
              MUST(CSRDestroy(&W));
              MUST(ArrayDestroy(backend.where, &X_data));
              MUST(ArrayDestroy(backend.where, &Y_data));
              MUST(ArrayDestroy(backend.where, &d_data));
            }
}

/* By the definition, entry by entry. `values` are those of A without one-sided couplings. */
static CSRSymmetry ReferenceSymmetry(const HostMatrix &A, std::vector<double> *values)
{
  CSRSymmetry s{};
  *values = A.a;
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const double a = A.a[k], other = A.At(A.j[k], row), noise = kSymmetryNoise * std::fabs(A.At(row, row));
      const double apart = std::fabs(a - other), larger = std::max(std::fabs(a), std::fabs(other));
      if (A.j[k] == row || !std::isfinite(apart) || !(apart > noise)) continue;
      if (other == 0) {
        s.one_sided++;
        (*values)[k] = 0;
      } else if (a != 0 && A.j[k] > row && apart > kSymmetry * larger) {
        s.unequal++;
        s.largest = std::max(s.largest, apart / larger);
      }
    }
  return s;
}

TEST_CASE("symmetry: what one row alone has, and what differs", "[csr]")
{
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const Backend &backend : Backends())
    for (LocalInt n : {0, 1, 2, 31, 32, 33, 1000})
      for (int kind = 0; kind < 4; kind++) {
        CAPTURE(backend.name, n, kind);
        Random                                                     random(17 * n + kind);
        std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
        for (LocalInt row = 0; row < n; row++)
          for (LocalInt column = 0; column < n; column++) {
            const LocalInt far = std::abs(row - column);
            if (far > 3 && (row * column + row + column) % 29) continue; /* a pattern that is symmetric as a whole */
            double value = far ? -1. / (1 + far) : 4;
            if (kind > 0 && far && row < column) {
              const double draw = random.Between(0, 1);
              if (draw < 0.1) continue;
              if (draw < 0.2) value = 0;
              else if (draw < 0.3) value *= 1 + 1e-3 * draw;
              else if (draw < 0.4) value *= 1 + 1e-10; /* rounding */
              else if (draw < 0.5) value += 1e-15;     /* rounding beside the diagonal */
            }
            if (kind > 1 && far && row > column && random.Between(0, 1) < 0.1) value = column % 2 ? 0 : 1e-15;
            if (kind == 3 && random.Between(0, 1) < 0.02) value = row % 2 ? nan : inf;
            if (kind == 3 && !far && row % 5 == 0) continue; /* no diagonal entry */
            rows[row].push_back({column, value});
          }
        const HostMatrix    A = FromRows(rows);
        std::vector<double> expected, values(A.a.size(), nan);
        const CSRSymmetry   reference = ReferenceSymmetry(A, &expected);
        const CSRCopy       copy(A, backend.where);
        const auto          check = PetscMemTypeDevice(backend.where) ? CSRSymmetry_CUDA : CSRSymmetry_Host;
        const size_t        bytes = values.size() * sizeof(double);
        void               *work = nullptr, *without = nullptr;
        CSRSymmetry         alone{}, both{};
        MUST(ArrayCreate(sizeof(CSRSymmetry), backend.where, &work));
        MUST(ArrayCreate(bytes, backend.where, &without));
        for (int again = 0; again < 2; again++) MUST(check(&copy.view, 0, nullptr, (CSRSymmetry *)work, &alone));
        MUST(check(&copy.view, 0, (PetscScalar *)without, (CSRSymmetry *)work, &both));
        MUST(ArrayCopy(values.data(), without, bytes, PETSC_MEMTYPE_HOST, backend.where));
        MUST(ArrayDestroy(backend.where, &work));
        MUST(ArrayDestroy(backend.where, &without));
        for (const CSRSymmetry &s : {alone, both}) {
          CHECK(s.one_sided == reference.one_sided);
          CHECK(s.unequal == reference.unequal);
          CHECK(s.largest == reference.largest);
        }
        CHECK(std::equal(values.begin(), values.end(), expected.begin(),
                         [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }));
        if (!kind) CHECK(reference.one_sided + reference.unequal == 0);
        if (kind && n > 31) CHECK((reference.one_sided > 0 && reference.unequal > 0));
      }
}

TEST_CASE("symmetry: rounding is seen at once, and one pair among many", "[csr]")
{
  constexpr LocalInt n = 20000;
  for (const Backend &backend : Backends())
    for (double apart : {0., 1e-6, 1.}) { /* of one pair, beside rounding */
      CAPTURE(backend.name, apart);
      Random                                                     random(7);
      std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
      for (LocalInt row = 0; row < n; row++)
        for (LocalInt column = std::max(0, row - 3); column < std::min(n, row + 4); column++) {
          const double scale = row < n / 2 && column < n / 2 ? 1e7 : 1; /* two materials */
          double       value = (row == column ? 4 : -1. / (1 + std::abs(row - column))) * scale;
          if (row < column) value *= 1 + random.Between(-2e-16, 2e-16);
          if (row == n - 5 && column == n - 4) value *= 1 + apart;
          rows[row].push_back({column, value});
        }
      const HostMatrix A = FromRows(rows);
      const CSRCopy    copy(A, backend.where);
      const bool       device = PetscMemTypeDevice(backend.where);
      void            *work   = nullptr;
      CSRSymmetry      s{};
      MUST(ArrayCreate(sizeof(CSRSymmetry), backend.where, &work));
      MUST((device ? CSRSymmetry_CUDA : CSRSymmetry_Host)(&copy.view, 0, nullptr, (CSRSymmetry *)work, &s));
      MUST(ArrayDestroy(backend.where, &work));
      CHECK(s.one_sided == 0);
      CHECK(s.unequal == (apart > 0));
      if (device) CHECK(s.differs == (apart > 0 ? 2 : 1));
    }
}

TEST_CASE("copy to the host keeps precision and values", "[csr]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
      const TestCSR T = RandomCSR(50, std::vector<LocalInt>(40, 6), 21);
      CSR           W = Send(T, precision, backend.where);
      CheckSame(W, T);
      MUST(CSRDestroy(&W));
      CHECK((W.i == nullptr && W.j == nullptr && W.a == nullptr && W.nnz == 0));
    }
}

/* ----------------------------------- for compute-sanitizer ------------------------------------ */

/* Every length of rows that a kernel knows, and the couplings that one row alone has. */
TEST_CASE("sparse matrices: every kernel, on small ones", "[csr][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const PetscMemType where = PETSC_MEMTYPE_CUDA;
  for (LocalInt length : {1, 3, 9, 20, 40, 64})
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
      CAPTURE(length, FinePCPrecisions[precision]);
      const TestCSR T = RandomCSR(70, std::vector<LocalInt>(70, length), 30 + length);
      CSR           W = Send(T, precision, where), Wt = {};
      for (PetscBool keep : {PETSC_FALSE, PETSC_TRUE}) MUST(CSRTranspose_CUDA(&W, keep, &Wt));
      CheckSame(Wt, TransposeOf(T));
      for (LocalInt columns : {1, 5}) {
        std::vector<double> X((size_t)70 * columns, 1.), Y(X.size(), std::nan(""));
        void               *x = nullptr, *y = nullptr;
        MUST(ArrayCreate(X.size() * sizeof(double), where, &x));
        MUST(ArrayCreate(Y.size() * sizeof(double), where, &y));
        MUST(ArrayCopy(x, X.data(), X.size() * sizeof(double), where, PETSC_MEMTYPE_HOST));
        MUST(CSRMultiply_CUDA(&W, PETSC_FALSE, nullptr, columns, (double *)x, 70, (double *)y, 70));
        MUST(ArrayCopy(Y.data(), y, Y.size() * sizeof(double), PETSC_MEMTYPE_HOST, where));
        MUST(ArrayDestroy(where, &x));
        MUST(ArrayDestroy(where, &y));
        LocalInt wrong = 0;
        for (size_t k = 0; k < Y.size(); k++) {
          double sum = 0;
          for (LocalInt e = T.i[k % 70]; e < T.i[k % 70 + 1]; e++) sum += T.a[e];
          wrong += !(std::fabs(Y[k] - sum) <= 1e-5 * length);
        }
        CHECK(wrong == 0);
      }
      MUST(CSRDestroy(&W));
      MUST(CSRDestroy(&Wt));
    }

  HostMatrix A = RandomGraph(100, 9, 31);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] != row && (row % 10 == 7 || (A.j[k] > row && (row + A.j[k]) % 5 == 0)))
        A.a[k] = 0; /* row 7, 17, .. are isolated */
  const CSRCopy       host(A, PETSC_MEMTYPE_HOST), device(A, where);
  void               *work = nullptr, *values = nullptr;
  CSRSymmetry         found{}, expected, host_work;
  CSR                 carried = {}, expected_carried = {};
  std::vector<double> without(A.a.size());
  MUST(ArrayCreate(sizeof(CSRSymmetry), where, &work));
  MUST(ArrayCreate(A.a.size() * sizeof(double), where, &values));
  MUST(CSRSymmetry_CUDA(&device.view, 0, nullptr, (CSRSymmetry *)work, &found));
  MUST(CSRSymmetry_CUDA(&device.view, 0, (PetscScalar *)values, (CSRSymmetry *)work, &found));
  MUST(CSRSymmetry_Host(&host.view, 0, without.data(), &host_work, &expected));
  CHECK(found.one_sided == expected.one_sided);
  CHECK(found.one_sided > 0);
  MUST(CSRCarry_CUDA(&device.view, (PetscScalar *)values, &carried));
  MUST(CSRCarry_Host(&host.view, without.data(), &expected_carried));
  CHECK(carried.nnz == expected_carried.nnz);
  CHECK(carried.nnz > 0);
  MUST(CSRDestroy(&carried));
  MUST(CSRDestroy(&expected_carried));
  MUST(ArrayDestroy(where, &work));
  MUST(ArrayDestroy(where, &values));
}
