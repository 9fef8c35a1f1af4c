/* Block sparse rows: both twins against plain loops over a dense copy of a row. */
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "sparse/bsr.h"
#include "compare.h"

namespace
{

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/* On the host, values exact in single precision. */
struct TestBSR {
  LocalInt              bs, rows, columns;
  std::vector<LocalInt> i, j;
  std::vector<double>   a;
};

/* Row lengths as given, distinct ascending columns, all of them equally likely. */
TestBSR RandomBSR(LocalInt bs, LocalInt columns, const std::vector<LocalInt> &lengths, std::uint64_t seed)
{
  Random  random(seed);
  TestBSR W{bs, (LocalInt)lengths.size(), columns, {0}, {}, {}};
  for (LocalInt length : lengths) {
    std::set<LocalInt> row; /* all choices of so many columns are equally likely (Floyd) */
    for (LocalInt last = columns - length; last < columns; last++)
      if (!row.insert(PetscMin((LocalInt)random.Between(0, (double)last + 1), last)).second) row.insert(last);
    W.j.insert(W.j.end(), row.begin(), row.end());
    W.i.push_back((LocalInt)W.j.size());
  }
  W.a.resize(W.j.size() * bs * bs);
  for (double &value : W.a) value = (float)random.Between(-1, 1);
  return W;
}

BSR Send(const TestBSR &W, FinePCPrecision precision, PetscMemType where)
{
  const std::vector<float> single(W.a.begin(), W.a.end());
  const void              *data = precision == FINEPC_SINGLE ? (const void *)single.data() : (const void *)W.a.data();
  BSR                      sent = {};
  MUST(BSRCreate(W.bs, W.rows, W.columns, (LocalInt)W.j.size(), precision, where, &sent));
  MUST(ArrayCopy(sent.i, W.i.data(), W.i.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(sent.j, W.j.data(), W.j.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(sent.a, data, W.a.size() * FinePCPrecisionBytes(precision), where, PETSC_MEMTYPE_HOST));
  return sent;
}

enum class Z { none, own, x, y };
constexpr int kGuard = 5; /* entries behind the vectors */

/* y as the twin leaves it; entries before are NaN, unless they are z. */
std::vector<double> Multiply(const TestBSR &T, FinePCPrecision precision, PetscMemType where, const std::vector<double> &x,
                             const std::vector<double> &z, Z kind)
{
  const size_t        n = (size_t)T.rows * T.bs;
  std::vector<double> before(n + kGuard, kNaN), behind = x;
  if (kind == Z::y) std::copy(z.begin(), z.end(), before.begin());
  behind.resize(x.size() + kGuard, kNaN);
  BSR                      W = Send(T, precision, where);
  const Array              x_copy(behind, where), z_copy(z, where), y_copy(before, where);
  const PetscScalar *const z_data = kind == Z::none ? nullptr
                                                    : (const double *)(kind == Z::own ? z_copy
                                                                       : kind == Z::x ? x_copy
                                                                                      : y_copy);
  if (PetscMemTypeDevice(where)) MUST(BSRMultiply_CUDA(&W, 1, {x_copy, z_data, y_copy, 0, 0, 0}, PETSC_FALSE));
  else MUST(BSRMultiply_Host(&W, 1, {x_copy, z_data, y_copy, 0, 0, 0}));
  MUST(BSRDestroy(&W));
  return y_copy.Values();
}

/* Entries of y that are wrong, or that lie behind it and were touched. */
LocalInt CountWrong(const TestBSR &T, const std::vector<double> &x, const std::vector<double> &z, Z kind,
                    const std::vector<double> &y)
{
  LocalInt wrong = 0;
  for (LocalInt row = 0; row < T.rows; row++)
    for (LocalInt p = 0; p < T.bs; p++) {
      const LocalInt at  = row * T.bs + p;
      long double    sum = kind == Z::none ? 0 : kind == Z::x ? x[at] : z[at], magnitude = std::fabs(sum);
      for (LocalInt k = T.i[row]; k < T.i[row + 1]; k++)
        for (LocalInt q = 0; q < T.bs; q++) {
          const long double term = (long double)T.a[((size_t)k * T.bs + q) * T.bs + p] * x[T.j[k] * T.bs + q];
          sum += term;
          magnitude += std::fabs(term);
        }
      /* not "greater than": NaN is wrong, too */
      wrong += !(std::fabs(y[at] - sum) <= ((T.i[row + 1] - T.i[row]) * T.bs + 2) * kUnitDouble * magnitude);
    }
  for (size_t at = (size_t)T.rows * T.bs; at < y.size(); at++) wrong += !std::isnan(y[at]);
  return wrong;
}

std::vector<double> RandomVector(size_t n, std::uint64_t seed)
{
  Random              random(seed);
  std::vector<double> x(n);
  for (double &value : x) value = random.Between(-1, 1);
  return x;
}

void CheckMultiply(const Backend &backend, const TestBSR &T)
{
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
    for (Z kind : {Z::none, Z::own, Z::x, Z::y}) {
      if (kind == Z::x && T.rows != T.columns) continue;
      CAPTURE(FinePCPrecisions[precision], (int)kind);
      const auto x = RandomVector((size_t)T.columns * T.bs, 1), z = RandomVector((size_t)T.rows * T.bs, 2);
      const auto y = Multiply(T, precision, backend.where, x, z, kind);
      CHECK(CountWrong(T, x, z, kind, y) == 0);
    }
}

const std::vector<LocalInt> kBlockSizes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32};

} // namespace

/*
       [ 1 3 | 5 7 |     ]       [1]   [ 50]       [1]
   W = [ 2 4 | 6 8 |     ],  x = [2],  [ 60] = W x [2]
       [     |     | 1 0 ]       [3]   [  5]       [3]
       [     |     | 2 3 ]       [4]   [ 28]       [4]
                                 [5]               [5]
                                 [6]               [6]
*/
TEST_CASE("blocks by hand: column-major, y = z + W x", "[bsr]")
{
  const TestBSR T = {2, 2, 3, {0, 2, 3}, {0, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 0, 3}};
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
      CAPTURE(backend.name, FinePCPrecisions[precision]);
      auto y = Multiply(T, precision, backend.where, {1, 2, 3, 4, 5, 6}, {100, 200, 300, 400}, Z::none);
      y.resize(4);
      CHECK(y == std::vector<double>{50, 60, 5, 28});
      y = Multiply(T, precision, backend.where, {1, 2, 3, 4, 5, 6}, {100, 200, 300, 400}, Z::own);
      y.resize(4);
      CHECK(y == std::vector<double>{150, 260, 305, 428});
      y = Multiply(T, precision, backend.where, {1, 2, 3, 4, 5, 6}, {100, 200, 300, 400}, Z::y);
      y.resize(4);
      CHECK(y == std::vector<double>{150, 260, 305, 428});
    }
}

TEST_CASE("block products: every block size, sizes around those of a warp, and z anywhere", "[bsr]")
{
  for (const Backend &backend : Backends())
    for (LocalInt bs : kBlockSizes)
      for (LocalInt rows : {0, 1, 31, 32, 33, 1000}) {
        if (rows == 1000 && bs > 9) continue;
        CAPTURE(backend.name, bs, rows);
        PoisonMemory(backend.where, (size_t)1 << 20);
        /* short, middling and long rows, which a kernel treats in its own ways */
        for (LocalInt length : {2, 4, 7, 30, 60})
          CheckMultiply(backend, RandomBSR(bs, rows, std::vector<LocalInt>(rows, PetscMin(length, rows)), 100 * bs + length));
      }
}

TEST_CASE("block products: uneven and empty rows, and matrices that are not square", "[bsr]")
{
  std::vector<LocalInt> mixed, rare(500, 0);
  for (LocalInt row = 0; row < 500; row++) mixed.push_back(row % 7 == 0 ? 0 : row % 101 == 0 ? 60 : row % 9);
  rare[0] = rare[3] = rare[499] = 1;
  for (const Backend &backend : Backends())
    for (LocalInt bs : kBlockSizes) {
      CAPTURE(backend.name, bs);
      PoisonMemory(backend.where, (size_t)1 << 20);
      CheckMultiply(backend, RandomBSR(bs, 500, mixed, 1));
      CheckMultiply(backend, RandomBSR(bs, 500, rare, 2));
      CheckMultiply(backend, RandomBSR(bs, 500, std::vector<LocalInt>(500, 0), 3));
      CheckMultiply(backend, RandomBSR(bs, 1000, {0, 1000, 1, 999}, 4));
      CheckMultiply(backend, RandomBSR(bs, 90, std::vector<LocalInt>(40, 6), 5));
      CheckMultiply(backend, RandomBSR(bs, 40, std::vector<LocalInt>(90, 6), 6));
    }
}

namespace
{

/* A tenth of the rows is empty, and the long row is longer than what a thread block copies at once. */
TestBSR UnevenBSR(LocalInt bs, LocalInt rows, LocalInt most, LocalInt longest, std::uint64_t seed)
{
  Random                random(seed);
  std::vector<LocalInt> lengths(rows);
  for (LocalInt &length : lengths) length = random.Between(0, 1) < .1 ? 0 : (LocalInt)random.Between(1, (double)most + 1);
  lengths[rows / 3] = longest;
  return RandomBSR(bs, PetscMax(rows, longest), lengths, seed);
}

} // namespace

/* Means at which a kernel gives way to another one, and the rows of one thread block and a half. */
TEST_CASE("block products in single precision: means on both sides of each change of the kernel", "[bsr]")
{
  for (const Backend &backend : Backends())
    for (LocalInt bs : {3, 4, 5})
      for (LocalInt length : {1, 4, 5, 7, 8, 10, 11, 12, 13, 27})
        for (LocalInt rows : {27, 60}) {
          CAPTURE(backend.name, bs, length, rows);
          PoisonMemory(backend.where, (size_t)1 << 20);
          CheckMultiply(backend, RandomBSR(bs, 60, std::vector<LocalInt>(rows, length), 20 * bs + length));
        }
}

TEST_CASE("block products: large and uneven, the same twice", "[bsr][gpu]")
{
  NEEDS_DEVICE();
  for (LocalInt bs : {2, 3, 4, 5}) {
    CAPTURE(bs);
    PoisonMemory(PETSC_MEMTYPE_CUDA, (size_t)1 << 24);
    const TestBSR T = UnevenBSR(bs, 30000, 13, 20000, 30);
    CheckMultiply(DeviceBackend(), T);
    const auto x = RandomVector((size_t)T.columns * bs, 5), z = RandomVector((size_t)T.rows * bs, 6);
    auto       first = Multiply(T, FINEPC_SINGLE, PETSC_MEMTYPE_CUDA, x, z, Z::own),
         second      = Multiply(T, FINEPC_SINGLE, PETSC_MEMTYPE_CUDA, x, z, Z::own);
    CHECK(std::memcmp(first.data(), second.data(), z.size() * sizeof(double)) == 0);
  }
}

/* What is not in the row's pattern does not count, whatever it is; nor does what lies beyond a row's end in memory. */
TEST_CASE("block products read no other entries of x and of the matrix", "[bsr]")
{
  for (const Backend &backend : Backends())
    for (LocalInt bs : kBlockSizes)
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        std::vector<LocalInt> lengths;
        for (LocalInt row = 0; row < 60; row++) lengths.push_back(row % 6);
        TestBSR    T = RandomBSR(bs, 60, lengths, 7);
        const auto z = RandomVector((size_t)T.rows * bs, 3);
        auto       x = RandomVector((size_t)T.columns * bs, 4);
        /* an infinite block column and a NaN block of the matrix */
        const LocalInt column = T.j[T.j.size() / 2], k = (LocalInt)T.j.size() / 3;
        for (LocalInt p = 0; p < bs; p++) x[column * bs + p] = std::numeric_limits<double>::infinity();
        for (LocalInt e = 0; e < bs * bs; e++) T.a[(size_t)k * bs * bs + e] = kNaN;
        const auto y     = Multiply(T, precision, backend.where, x, z, Z::own);
        LocalInt   wrong = 0, touched = 0;
        for (LocalInt row = 0; row < T.rows; row++) {
          bool finite = !(k >= T.i[row] && k < T.i[row + 1]);
          for (LocalInt at = T.i[row]; at < T.i[row + 1]; at++) finite = finite && T.j[at] != column;
          for (LocalInt p = 0; p < bs; p++) wrong += (bool)std::isfinite(y[row * bs + p]) != finite;
          touched += !finite;
        }
        CAPTURE(backend.name, bs, FinePCPrecisions[precision]);
        CHECK(wrong == 0);
        CHECK(touched > 0);
      }
}

TEST_CASE("copies of block matrices, their bytes, and their end", "[bsr]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
      CAPTURE(backend.name, FinePCPrecisions[precision]);
      const TestBSR T = RandomBSR(3, 20, std::vector<LocalInt>(30, 4), 8);
      BSR           W = Send(T, precision, backend.where), same, host;
      CHECK(BSRBytes(&W) == 31 * sizeof(LocalInt) + 120 * (sizeof(LocalInt) + 9 * FinePCPrecisionBytes(precision)));
      MUST(BSRCopy(&W, backend.where, &same));
      MUST(BSRDestroy(&W));
      CHECK((W.i == nullptr && W.j == nullptr && W.a == nullptr && W.nnz == 0));
      MUST(BSRCopy(&same, PETSC_MEMTYPE_HOST, &host));
      MUST(BSRDestroy(&same));
      CHECK((host.bs == 3 && host.rows == 30 && host.columns == 20 && host.nnz == 120 && host.precision == precision &&
             host.where == PETSC_MEMTYPE_HOST));
      CHECK(std::vector<LocalInt>(host.i, host.i + 31) == T.i);
      CHECK(std::vector<LocalInt>(host.j, host.j + 120) == T.j);
      LocalInt wrong = 0;
      for (LocalInt k = 0; k < 120 * 9; k++)
        wrong += (precision == FINEPC_SINGLE ? (double)((float *)host.a)[k] : ((double *)host.a)[k]) != T.a[k];
      CHECK(wrong == 0);
      MUST(BSRDestroy(&host));
    }
}

/* Products copy whole words of 16 bytes. */
TEST_CASE("block matrices end with zeros that fill a word", "[bsr]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (LocalInt bs : {1, 3, 4, 5})
        for (LocalInt nnz : {0, 1, 2, 3, 4, 5, 66}) {
          CAPTURE(backend.name, FinePCPrecisions[precision], bs, nnz);
          const size_t j_bytes = nnz * sizeof(LocalInt), a_bytes = nnz * bs * bs * FinePCPrecisionBytes(precision);
          const auto   rest      = [](size_t bytes) { return (16 - bytes % 16) % 16; };
          char         zeros[16] = {}, behind_j[16], behind_a[16];
          BSR          W;
          PoisonMemory(backend.where, (size_t)1 << 14);
          MUST(BSRCreate(bs, 7, 7, nnz, precision, backend.where, &W));
          MUST(ArrayCopy(behind_j, (char *)W.j + j_bytes, rest(j_bytes), PETSC_MEMTYPE_HOST, backend.where));
          MUST(ArrayCopy(behind_a, (char *)W.a + a_bytes, rest(a_bytes), PETSC_MEMTYPE_HOST, backend.where));
          CHECK(((size_t)W.j % 16 == 0 && (size_t)W.a % 16 == 0));
          CHECK(std::memcmp(behind_j, zeros, rest(j_bytes)) == 0);
          CHECK(std::memcmp(behind_a, zeros, rest(a_bytes)) == 0);
          MUST(BSRDestroy(&W));
        }
}

/* The host takes any size; the device names its limit. */
TEST_CASE("block sizes beyond 32", "[bsr]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const TestBSR T = RandomBSR(33, 4, {2, 0, 4, 1}, 9);
    if (!PetscMemTypeDevice(backend.where)) {
      CheckMultiply(backend, T);
      continue;
    }
    BSR    W = Send(T, FINEPC_DOUBLE, backend.where);
    Errors errors;
    CHECK(BSRMultiply_CUDA(&W, 1, {nullptr, nullptr, nullptr, 0, 0, 0}, PETSC_FALSE) != 0);
    CHECK(Contains(errors.text, "Blocks of size 33 are not multiplied on the device, only those up to 32"));
    MUST(BSRDestroy(&W));
  }
}

/* Rows are added up in the same order whatever the others are, and again in the same one. */
TEST_CASE("block products are the same to the last bit", "[bsr]")
{
  for (const Backend &backend : Backends())
    for (LocalInt bs : kBlockSizes) {
      std::vector<LocalInt> lengths;
      for (LocalInt row = 0; row < 3000 / bs; row++) lengths.push_back(row % 12);
      const TestBSR T = RandomBSR(bs, 200, lengths, 10);
      const auto    x = RandomVector((size_t)200 * bs, 5), z = RandomVector((size_t)T.rows * bs, 6);
      auto          first = Multiply(T, FINEPC_SINGLE, backend.where, x, z, Z::own),
           second         = Multiply(T, FINEPC_SINGLE, backend.where, x, z, Z::own);
      first.resize(z.size());
      second.resize(z.size());
      CAPTURE(backend.name, bs);
      CHECK(first == second);
    }
}

TEST_CASE("block products on the device do not wait", "[bsr][gpu]")
{
  NEEDS_DEVICE();
  for (LocalInt bs : kBlockSizes) {
    const TestBSR T = RandomBSR(bs, 100, std::vector<LocalInt>(100, 5), 11);
    BSR           W = Send(T, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA);
    const Array x(RandomVector((size_t)100 * bs, 7), PETSC_MEMTYPE_CUDA), y(RandomVector((size_t)100 * bs, 8), PETSC_MEMTYPE_CUDA);
    CAPTURE(bs);
    CHECK(AsynchronousOnDevice([&] { MUST(BSRMultiply_CUDA(&W, 1, {x, nullptr, y, 0, 0, 0}, PETSC_FALSE)); }));
    MUST(BSRDestroy(&W));
  }
}

/* More rows than warps fit, so that the blocks of a product come and go while the one ahead is still there. */
TEST_CASE("block products right after one another, launched early, are those that wait", "[bsr][gpu]")
{
  NEEDS_DEVICE();
  for (LocalInt bs : {1, 2, 3, 4, 5, 6, 7, 8, 9})
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (LocalInt length : {3, 30}) {
        const LocalInt      rows = length == 30 ? 20000 / bs : bs <= 3 ? 140000 : 40000;
        const TestBSR       T    = RandomBSR(bs, rows, std::vector<LocalInt>(rows, length), 12);
        BSR                 W    = Send(T, precision, PETSC_MEMTYPE_CUDA);
        std::vector<double> results[2];
        CAPTURE(bs, (int)precision, length);
        for (PetscBool early : {PETSC_FALSE, PETSC_TRUE}) {
          const Array x(RandomVector((size_t)rows * bs, 7), PETSC_MEMTYPE_CUDA),
            y(std::vector<double>((size_t)rows * bs, kNaN), PETSC_MEMTYPE_CUDA);
          MUST(BSRMultiply_CUDA(&W, 1, {x, nullptr, y, 0, 0, 0}, PETSC_FALSE));
          for (int k = 0; k < 5; k++) {
            MUST(BSRMultiply_CUDA(&W, 1, {y, x, x, 0, 0, 0}, early)); /* x = x + W y */
            MUST(BSRMultiply_CUDA(&W, 1, {x, nullptr, y, 0, 0, 0}, early));
          }
          results[early] = y.Values();
        }
        CHECK(results[0] == results[1]);
        MUST(BSRDestroy(&W));
      }
}

/* ----------------------------------- several right-hand sides --------------------------------- */

namespace
{

/* y of each column, whose vectors are `gap` entries apart, as one call with all columns leaves it or as one call for each does. */
std::vector<double> MultiplyColumns(const TestBSR &T, FinePCPrecision precision, PetscMemType where, LocalInt columns, LocalInt gap,
                                    bool together, bool with_z)
{
  const LocalInt ldx = T.columns * T.bs + gap, ldy = T.rows * T.bs + 2 * gap, ldz = T.rows * T.bs;
  const Array    x(RandomVector((size_t)columns * ldx, 1), where), z(RandomVector((size_t)columns * ldz, 2), where),
    y(std::vector<double>((size_t)columns * ldy, kNaN), where);
  BSR        W        = Send(T, precision, where);
  const auto multiply = [&](LocalInt count, LocalInt first) {
    const PetscScalar *const from = with_z ? z + (size_t)first * ldz : nullptr;
    const BSRVectors         v{x + (size_t)first * ldx, from, y + (size_t)first * ldy, ldx, ldz, ldy};
    return PetscMemTypeDevice(where) ? BSRMultiply_CUDA(&W, count, v, PETSC_FALSE) : BSRMultiply_Host(&W, count, v);
  };
  if (together) MUST(multiply(columns, 0));
  else
    for (LocalInt c = 0; c < columns; c++) MUST(multiply(1, c));
  MUST(BSRDestroy(&W));
  return y.Values();
}

/* The sums of a column are the same to the last bit, however many columns there are. */
void CheckColumns(LocalInt rows)
{
  for (const Backend &backend : Backends())
    for (LocalInt bs : kBlockSizes)
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
        for (LocalInt length : {1, 4, 7, 30}) /* each of the shapes */
          for (LocalInt columns : {1, 3, 4, 5, 9}) {
            CAPTURE(backend.name, bs, (int)precision, length, columns);
            const TestBSR T = RandomBSR(bs, rows + 31, std::vector<LocalInt>(rows, length), 12);
            for (bool with_z : {false, true}) {
              const auto mine   = MultiplyColumns(T, precision, backend.where, columns, 3, true, with_z),
                         theirs = MultiplyColumns(T, precision, backend.where, columns, 3, false, with_z);
              CHECK(std::memcmp(mine.data(), theirs.data(), mine.size() * sizeof(double)) == 0);
            }
          }
}

} // namespace

TEST_CASE("block products: several right-hand sides", "[bsr][columns]")
{
  CheckColumns(67);
}

TEST_CASE("block products: several right-hand sides, on small matrices", "[bsr][columns][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  CheckColumns(5);
}

/* ----------------------------------- for compute-sanitizer ------------------------------------ */

TEST_CASE("block products: every kernel, on small matrices", "[bsr][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (LocalInt bs : kBlockSizes)
    for (LocalInt length : {2, 7, 33}) {
      CAPTURE(bs, length);
      CheckMultiply(DeviceBackend(), RandomBSR(bs, 33, std::vector<LocalInt>(33, length), 100 * bs + length));
    }
}

/* Rows that fit into one piece, rows of many pieces, and a last thread block that has a part of its rows. */
TEST_CASE("block products: pieces in shared memory, on small matrices", "[bsr][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (LocalInt bs : {3, 4, 5})
    for (LocalInt rows : {1, 31, 32, 33}) {
      CAPTURE(bs, rows);
      CheckMultiply(DeviceBackend(), RandomBSR(bs, 33, std::vector<LocalInt>(rows, 11), 40 + rows));
      if (rows == 32) continue;
      CheckMultiply(DeviceBackend(), UnevenBSR(bs, rows, 5, 1, 50 + rows));
      CheckMultiply(DeviceBackend(), UnevenBSR(bs, rows, 7, 1500, 50 + rows));
    }
}
