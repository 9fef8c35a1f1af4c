/* Block ILU(0) and block-ISAI: both twins, by hand, against PETSc's factor, and against dense solves in long double. */
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "blocks.h"
#include "sparse/bsr_csr.h"

namespace
{

constexpr LocalInt          kLargestReference = 110; /* rows of the dense systems that rows of N are checked with, about */
const std::vector<LocalInt> kBlockSizes       = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17, 32};

HostBlocks FromBlocks(LocalInt bs, LocalInt n, const std::map<std::pair<LocalInt, LocalInt>, std::vector<double>> &blocks)
{
  HostBlocks A;
  A.bs = bs;
  A.n  = n;
  for (LocalInt row = 0; row < n; row++) {
    for (const auto &block : blocks)
      if (block.first.first == row) {
        A.j.push_back(block.first.second);
        A.a.insert(A.a.end(), block.second.begin(), block.second.end());
      }
    A.i.push_back((LocalInt)A.j.size());
  }
  return A;
}

/* Patterns of every kind, n block rows. */
struct Pattern {
  const char *name;
  HostMatrix  A;
};

std::vector<Pattern> Patterns()
{
  return {
    {"grid 6 x 5", RandomStencil(6, 5, 1, false, 1)},
    {"grid 4 x 3 x 2", RandomStencil(4, 3, 2, false, 2)},
    {"9 points", RandomStencil(4, 4, 1, true, 3)},
    {"graph", RandomGraph(33, 5, 4)},
    {"line", Poisson(9)},
    {"small grid", RandomStencil(3, 2, 2, false, 8)},
    {"arrow", RandomArrow(20, 5)},
    {"dense", RandomDense(3, 6)},
    {"one row", RandomDense(1, 7)},
  };
}

const HostBlocks &TriangleOf(const HostLU &LU, BISAITriangle triangle)
{
  return triangle == BISAI_LOWER ? LU.L : LU.U;
}

/* Columns of row i of S(|T|^p) without i. */
std::set<LocalInt> ReferencePattern(const HostBlocks &T, LocalInt i, LocalInt power)
{
  std::set<LocalInt> found = {i};
  for (LocalInt p = 0; p < power; p++)
    for (LocalInt row : std::set<LocalInt>(found))
      for (LocalInt k = T.i[row]; k < T.i[row + 1]; k++) found.insert(T.j[k]);
  found.erase(i);
  return found;
}

using Dense = std::vector<long double>; /* column-major */

/* X of A X = B, n by n and n by m, by elimination with row exchanges. */
Dense SolveDense(LocalInt n, Dense A, LocalInt m, Dense B)
{
  for (LocalInt p = 0; p < n; p++) {
    LocalInt best = p;
    for (LocalInt r = p; r < n; r++)
      if (std::fabs(A[p * n + r]) > std::fabs(A[p * n + best])) best = r;
    for (LocalInt c = 0; c < n; c++) std::swap(A[c * n + p], A[c * n + best]);
    for (LocalInt c = 0; c < m; c++) std::swap(B[c * n + p], B[c * n + best]);
    for (LocalInt r = 0; r < n; r++) {
      if (r == p) continue;
      const long double factor = A[p * n + r] / A[p * n + p];
      for (LocalInt c = p; c < n; c++) A[c * n + r] -= factor * A[c * n + p];
      for (LocalInt c = 0; c < m; c++) B[c * n + r] -= factor * B[c * n + p];
    }
  }
  for (LocalInt c = 0; c < m; c++)
    for (LocalInt r = 0; r < n; r++) B[c * n + r] /= A[r * n + r];
  return B;
}

/* U_ii from its inverse, or I. */
Dense DiagonalBlock(const HostLU &LU, BISAITriangle triangle, LocalInt i)
{
  const LocalInt bs = LU.L.bs;
  Dense          identity(bs * bs, 0), inverse(LU.inverse.Block(i), LU.inverse.Block(i) + bs * bs);
  for (LocalInt r = 0; r < bs; r++) identity[r * bs + r] = 1;
  return triangle == BISAI_LOWER ? identity : SolveDense(bs, inverse, bs, identity);
}

/*
   Asserts that every row of N is the solution of N_i(J) T(J, J) = I_i(J), by a dense solve with the transposed system that knows
   nothing of triangles. The factors here are of matrices that are dominated by their diagonal: the error of N stays within a small
   multiple of the unit of its precision. By columns the same holds for the transposes.
*/
void CheckLines(const HostLU &LU, BISAITriangle triangle, bool by_columns, bool diagonal, LocalInt power,
                const HostInverse &inverse, double tolerance)
{
  const HostBlocks T   = by_columns ? TransposeOf(TriangleOf(LU, triangle)) : TriangleOf(LU, triangle),
                   N   = by_columns ? TransposeOf(inverse.N) : inverse.N;
  const LocalInt bs    = T.bs;
  const size_t   bs2   = (size_t)bs * bs;
  LocalInt       wrong = 0, longest = 0;
  double         worst = 0;
  REQUIRE(N.n == T.n);
  for (LocalInt i = 0; i < N.n; i++) {
    std::set<LocalInt> strict = ReferencePattern(T, i, power), all = strict;
    longest = std::max(longest, (LocalInt)strict.size());
    all.insert(i);
    const std::vector<LocalInt> J(all.begin(), all.end()), stored(N.j.begin() + N.i[i], N.j.begin() + N.i[i + 1]);
    wrong += stored != std::vector<LocalInt>(diagonal ? all.begin() : strict.begin(), diagonal ? all.end() : strict.end());
    if (wrong) continue;
    const LocalInt m = (LocalInt)J.size(), size = m * bs;
    Dense          transposed((size_t)size * size, 0), right((size_t)size * bs, 0);
    for (LocalInt row = 0; row < m; row++)
      for (LocalInt column = 0; column < m; column++) {
        const PetscScalar *stored_block = J[row] == J[column] ? nullptr : T.Find(J[row], J[column]);
        Dense              block        = J[row] == J[column] ? DiagonalBlock(LU, triangle, J[row])
                                          : stored_block      ? Dense(stored_block, stored_block + bs2)
                                                              : Dense(bs2, 0);
        const bool         turned       = by_columns && J[row] == J[column];
        for (LocalInt r = 0; r < bs; r++)
          for (LocalInt c = 0; c < bs; c++)
            transposed[(size_t)(row * bs + r) * size + column * bs + c] = block[turned ? r * bs + c : c * bs + r];
      }
    for (LocalInt row = 0; row < m; row++)
      if (J[row] == i)
        for (LocalInt r = 0; r < bs; r++) right[(size_t)r * size + row * bs + r] = 1;
    const Dense solution = SolveDense(size, transposed, bs, right);
    long double largest = 0, off = 0;
    for (LocalInt column = 0, k = N.i[i]; column < m; column++) {
      if (J[column] == i && !diagonal) continue;
      for (LocalInt c = 0; c < bs; c++)
        for (LocalInt r = 0; r < bs; r++) {
          const long double expected = solution[(size_t)r * size + column * bs + c],
                            here     = std::fabs(N.Block(k)[c * bs + r] - expected);
          largest                    = std::max(largest, std::fabs(expected));
          off                        = here <= off ? off : here;
        }
      k++;
    }
    if (off == 0) continue;
    const double relative = (double)(off / largest);
    worst                 = relative <= worst ? worst : relative;
  }
  CHECK(wrong == 0);
  CHECK(inverse.stats.longest[triangle] == longest);
  CHECK(inverse.stats.fallback_lines[triangle] == 0);
  CHECK(worst <= tolerance);
}

/* A few roundings for each of the bs m steps of a row. */
double RowTolerance(FinePCPrecision precision, LocalInt bs)
{
  return Unit(precision) + 2000 * bs * kUnitDouble;
}

const std::vector<PCBISAISide> kSides = {PC_BISAI_SIDE_ROWS, PC_BISAI_SIDE_COLUMNS};

BISAIParams Params(LocalInt power, FinePCPrecision precision = FINEPC_DOUBLE, PCBISAISide side = PC_BISAI_SIDE_ROWS)
{
  BISAIParams params;
  params.side             = side;
  params.power            = power;
  params.factor_precision = precision;
  return params;
}

std::vector<PetscMemType> Places()
{
  std::vector<PetscMemType> places = {PETSC_MEMTYPE_HOST};
  if (DeviceFound()) places.push_back(PETSC_MEMTYPE_CUDA);
  return places;
}

/* PETSc's factor, ILU(0) as it comes, as HostLU; and the order of its rows and columns. */
HostLU PETScFactor(const HostBlocks &A, LocalInt levels = 0, MatOrderingType ordering = MATORDERINGNATURAL,
                   std::vector<LocalInt> order[2] = nullptr)
{
  const MatObject mat = CreateBAIJ(A);
  MatObject       factor;
  MatFactorInfo   info;
  IS              of_factor[2];
  const PetscInt *ia, *ja;
  PetscInt        n;
  PetscBool       done;
  PetscScalar    *a;
  HostLU          LU;
  const size_t    bs2 = (size_t)A.bs * A.bs;
  MUST(MatGetFactor(mat, MATSOLVERPETSC, MAT_FACTOR_ILU, factor.put()));
  MUST(MatFactorInfoInitialize(&info));
  info.fill          = 1;
  info.levels        = (PetscReal)levels;
  info.pivotinblocks = 1;
  MUST(MatGetOrdering(mat, ordering, &of_factor[0], &of_factor[1]));
  MUST(MatILUFactorSymbolic(factor, mat, of_factor[0], of_factor[1], &info));
  MUST(MatLUFactorNumeric(factor, mat, &info));
  for (int t = 0; t < 2; t++) {
    const PetscInt *index;
    MUST(ISGetIndices(of_factor[t], &index));
    if (order) order[t].assign(index, index + A.n);
    MUST(ISRestoreIndices(of_factor[t], &index));
    MUST(ISDestroy(&of_factor[t]));
  }
  MUST(MatGetRowIJ(factor, 0, PETSC_FALSE, PETSC_TRUE, &n, &ia, &ja, &done));
  REQUIRE(done);
  MUST(MatSeqBAIJGetArray(factor, &a));
  for (HostBlocks *T : {&LU.L, &LU.U, &LU.inverse}) {
    T->bs = A.bs;
    T->n  = A.n;
  }
  LU.L.i.assign(ia, ia + n + 1);
  LU.L.j.assign(ja, ja + ia[n]);
  LU.L.a.assign(a, a + ia[n] * bs2);
  std::vector<PetscInt> begin(n), diagonal(n);
  PetscInt              k = ia[n];
  for (PetscInt row = n - 1; row >= 0; row--) {
    begin[row] = k;
    while (ja[k] != row) k++;
    diagonal[row] = k++;
  }
  for (LocalInt row = 0; row < A.n; row++) {
    LU.U.j.insert(LU.U.j.end(), ja + begin[row], ja + diagonal[row]);
    LU.U.a.insert(LU.U.a.end(), a + begin[row] * bs2, a + diagonal[row] * bs2);
    LU.U.i.push_back((LocalInt)LU.U.j.size());
    LU.inverse.j.push_back(row);
    LU.inverse.i.push_back(row + 1);
    LU.inverse.a.insert(LU.inverse.a.end(), a + diagonal[row] * bs2, a + (diagonal[row] + 1) * bs2);
  }
  MUST(MatSeqBAIJRestoreArray(factor, &a));
  MUST(MatRestoreRowIJ(factor, 0, PETSC_FALSE, PETSC_TRUE, &n, &ia, &ja, &done));
  return LU;
}

double DifferenceOf(const HostLU &x, const HostLU &y)
{
  return std::max({DifferenceOf(x.L, y.L), DifferenceOf(x.U, y.U), DifferenceOf(x.inverse, y.inverse)});
}

/* Elimination with a diagonally dominant matrix amplifies rounding little. */
double FactorTolerance(LocalInt bs)
{
  return 1000 * bs * kUnitDouble;
}

} // namespace

/* ------------------------------------------- blocks ------------------------------------------- */

TEST_CASE("bsr: blocks of single entries, stored in part or whole", "[bisai][bsr]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 2, 3, 5, 32})
      for (const HostMatrix &pattern : {RandomGraph(37, 6, 50), RandomArrow(33, 51), Poisson(1), HostMatrix()}) {
        CAPTURE(where, bs, pattern.n);
        HostBlocks A = RandomBlocks(pattern, bs, 52), B = A;
        Random     random(53);
        for (double &value : A.a)
          if (random.Between(0, 1) < 0.3) value = 0;                         /* is not stored */
        for (LocalInt k = 0; k < A.nnz(); k++) A.a[(size_t)k * bs * bs] = 1; /* but no block is empty */
        for (size_t k = 0; k < B.a.size(); k++) B.a[k] = 2 * A.a[k];
        BSR           blocks{}, host{};
        const CSRCopy copy(Scalars(A, true), where), again(Scalars(B, true), where);
        const auto    convert = PetscMemTypeDevice(where) ? BSRFromCSR_CUDA : BSRFromCSR_Host;
        MUST(convert(&copy.view, bs, PETSC_FALSE, &blocks));
        for (const HostBlocks *expected : {&A, &B}) {
          if (expected == &B) MUST(convert(&again.view, bs, PETSC_TRUE, &blocks));
          MUST(BSRCopy(&blocks, PETSC_MEMTYPE_HOST, &host));
          REQUIRE(host.nnz == A.nnz());
          CHECK(host.bs == bs);
          CHECK(std::vector<LocalInt>(host.i, host.i + host.rows + 1) == A.i);
          CHECK(std::vector<LocalInt>(host.j, host.j + host.nnz) == A.j);
          CHECK(std::vector<double>((double *)host.a, (double *)host.a + A.a.size()) == expected->a);
          MUST(BSRDestroy(&host));
        }
        MUST(BSRDestroy(&blocks));
      }
}

/*
   Square and not, with empty rows, with rows of thousands of blocks, in both precisions; and again with other values in the same
   memory.
*/
TEST_CASE("bsr: the transpose", "[bisai][bsr]")
{
  struct Case {
    const char *name;
    LocalInt    rows, columns;
    bool (*stored)(LocalInt row, LocalInt column);
  };
  const Case cases[] = {
    {"nothing", 0, 0, [](LocalInt, LocalInt) { return false; }},
    {"no blocks", 5, 3, [](LocalInt, LocalInt) { return false; }},
    {"one block", 1, 1, [](LocalInt, LocalInt) { return true; }},
    {"wide", 7, 40, [](LocalInt r, LocalInt c) { return (r * 13 + c * 7) % 5 == 0 && r != 3; }},
    {"tall", 33, 4, [](LocalInt r, LocalInt c) { return (r + c) % 3 != 0; }},
    {"arrow", 700, 700, [](LocalInt r, LocalInt c) { return r == c || c == 0 || r == 699; }},
    {"upper", 64, 64, [](LocalInt r, LocalInt c) { return c >= r && (c - r) % 4 == 0; }},
  };
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 2, 3, 5, 8, 11, 32})
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
        for (const Case &c : cases) {
          if (bs > 8 && c.rows > 100) continue;
          CAPTURE(where, bs, precision, c.name);
          const size_t                                      bs2 = (size_t)bs * bs;
          std::vector<LocalInt>                             i(1, 0), j;
          std::map<std::pair<LocalInt, LocalInt>, LocalInt> number;
          for (LocalInt row = 0; row < c.rows; row++) {
            for (LocalInt column = 0; column < c.columns; column++)
              if (c.stored(row, column)) {
                number[{row, column}] = (LocalInt)j.size();
                j.push_back(column);
              }
            i.push_back((LocalInt)j.size());
          }
          BSR W{}, Wt{}, on_device{}, host{};
          MUST(BSRCreate(bs, c.rows, c.columns, (LocalInt)j.size(), precision, PETSC_MEMTYPE_HOST, &W));
          std::copy(i.begin(), i.end(), W.i);
          std::copy(j.begin(), j.end(), W.j);
          for (int repeat = 0; repeat < 3; repeat++) {
            /* exact in single precision */
            const auto value = [&](size_t k) { return (double)((k * 7 + 1) % 100003 + (size_t)repeat); };
            for (size_t k = 0; k < j.size() * bs2; k++) {
              if (precision == FINEPC_SINGLE) ((float *)W.a)[k] = (float)value(k);
              else ((double *)W.a)[k] = value(k);
            }
            MUST(BSRCopy(&W, where, &on_device));
            PoisonMemory(where, 4 * (BSRBytes(&W) + 1000));
            MUST((PetscMemTypeDevice(where) ? BSRTranspose_CUDA : BSRTranspose_Host)(&on_device, (PetscBool)(repeat > 0), &Wt));
            MUST(BSRCopy(&Wt, PETSC_MEMTYPE_HOST, &host));
            REQUIRE(host.rows == c.columns);
            REQUIRE(host.columns == c.rows);
            REQUIRE(host.nnz == (LocalInt)j.size());
            REQUIRE(host.precision == precision);
            LocalInt wrong = host.i[0] != 0;
            for (LocalInt row = 0; row < host.rows; row++)
              for (LocalInt k = host.i[row]; k < host.i[row + 1]; k++) {
                const auto found = number.find({host.j[k], row});
                wrong += (k > host.i[row] && host.j[k] <= host.j[k - 1]) || found == number.end();
                if (found == number.end()) continue;
                for (size_t e = 0; e < bs2; e++) {
                  const size_t at = k * bs2 + e;
                  wrong += (precision == FINEPC_SINGLE ? (double)((float *)host.a)[at] : ((double *)host.a)[at]) !=
                           value(found->second * bs2 + e % bs * bs + e / bs);
                }
              }
            CHECK(wrong == 0);
            CHECK(host.i[host.rows] == host.nnz);
            MUST(BSRDestroy(&host));
            MUST(BSRDestroy(&on_device));
          }
          MUST(BSRDestroy(&Wt));
          MUST(BSRDestroy(&W));
        }
}

/* ---------------------------------------- block ILU(0) ---------------------------------------- */

/*
   A = [ A_11 A_12 ]  A_11 = [ 2 0 ]  A_12 = [ 1 0 ]  A_21 = [ 2 4 ]  A_22 = [ 5  2 ]
       [ A_21 A_22 ]         [ 0 4 ]         [ 0 2 ]         [ 4 8 ]         [ 3 13 ]

   L_21 = A_21 A_11^{-1} = [ 1 1 ]  U_22 = A_22 - L_21 A_12 = [ 4 0 ]   NL_21 = -L_21,  NU_12 = -U_11^{-1} U_12 U_22^{-1} = [ -1/8
   1/72  ] [ 2 2 ]                            [ 1 9 ]                                                     [ 1/72 -1/18 ]
*/
TEST_CASE("bisai: 2 by 2 blocks by hand", "[bisai][bilu]")
{
  const HostBlocks A =
    FromBlocks(2, 2, {{{0, 0}, {2, 0, 0, 4}}, {{0, 1}, {1, 0, 0, 2}}, {{1, 0}, {2, 4, 4, 8}}, {{1, 1}, {5, 3, 2, 13}}});
  for (PetscMemType where : Places()) {
    CAPTURE(where);
    const HostLU LU = ComputeLU(A, where);
    REQUIRE(LU.stats.failure == BILU_OK);
    CHECK(LU.stats.singular_blocks == 0);
    CHECK(LU.L.a == std::vector<double>{1, 2, 1, 2});
    CHECK(LU.U.a == std::vector<double>{1, 0, 0, 2});
    CHECK(LU.inverse.a[0] == 0.5);
    CHECK(LU.inverse.a[3] == 0.25);
    CHECK(LU.inverse.a[4] == Approx(0.25));
    CHECK(LU.inverse.a[5] == Approx(-1. / 36));
    CHECK(std::fabs(LU.inverse.a[6]) < 1e-16);
    CHECK(LU.inverse.a[7] == Approx(1. / 9));
    const HostInverse NL = ComputeInverse(LU, BISAI_LOWER, false, Params(1), where),
                      NU = ComputeInverse(LU, BISAI_UPPER, true, Params(1), where);
    CHECK(NL.N.i == std::vector<LocalInt>{0, 0, 1});
    CHECK(NL.N.a == std::vector<double>{-1, -2, -1, -2});
    CHECK(NU.N.i == std::vector<LocalInt>{0, 2, 3});
    CHECK(NU.N.j == std::vector<LocalInt>{0, 1, 1});
    const std::vector<double> expected = {0.5, 0, 0, 0.25, -1. / 8, 1. / 72, 0, -1. / 18, 0.25, -1. / 36, 0, 1. / 9};
    for (size_t k = 0; k < expected.size(); k++) {
      CAPTURE(k);
      CHECK(NU.N.a[k] == Approx(expected[k]).margin(1e-16));
    }
  }
}

/* L_21 = a, L_32 = b, L_31 not stored: (L^{-1})_31 = b a lies in the pattern from power 2 on. */
TEST_CASE("bisai: a block that only the second power has, by hand", "[bisai]")
{
  const std::vector<double> a = {1, 2, 3, 4}, b = {5, -6, 7, 8},
                            ba = {5. * 1 + 7 * 2, -6. * 1 + 8 * 2, 5. * 3 + 7 * 4, -6. * 3 + 8 * 4}, one = {1, 0, 0, 1};
  HostLU LU;
  LU.L             = FromBlocks(2, 3, {{{1, 0}, a}, {{2, 1}, b}});
  LU.U             = FromBlocks(2, 3, {{{0, 1}, b}, {{1, 2}, a}});
  LU.inverse       = FromBlocks(2, 3, {{{0, 0}, one}, {{1, 1}, one}, {{2, 2}, one}});
  const auto minus = [](std::vector<double> x) {
    for (double &value : x) value = -value;
    return x;
  };
  for (PetscMemType where : Places()) {
    CAPTURE(where);
    const HostInverse NL1 = ComputeInverse(LU, BISAI_LOWER, false, Params(1), where),
                      NL2 = ComputeInverse(LU, BISAI_LOWER, true, Params(2), where);
    CHECK(NL1.N.j == std::vector<LocalInt>{0, 1});
    CHECK(NL2.N.j == std::vector<LocalInt>{0, 0, 1, 0, 1, 2});
    CHECK(std::vector<double>(NL2.N.Block(2), NL2.N.Block(3)) == one);
    CHECK(std::vector<double>(NL2.N.Block(1), NL2.N.Block(2)) == minus(a));
    CHECK(std::vector<double>(NL2.N.Block(3), NL2.N.Block(4)) == ba);
    CHECK(std::vector<double>(NL2.N.Block(4), NL2.N.Block(5)) == minus(b));
    const HostInverse NU1 = ComputeInverse(LU, BISAI_UPPER, true, Params(1), where),
                      NU2 = ComputeInverse(LU, BISAI_UPPER, true, Params(2), where);
    CHECK(NU1.N.j == std::vector<LocalInt>{0, 1, 1, 2, 2});
    CHECK(NU2.N.j == std::vector<LocalInt>{0, 1, 2, 1, 2, 2});
    CHECK(std::vector<double>(NU2.N.Block(2), NU2.N.Block(3)) == ba);
    CHECK(std::vector<double>(NU2.N.Block(1), NU2.N.Block(2)) == minus(b));
  }
}

TEST_CASE("bilu: the factor is PETSc's, for every block size", "[bisai][bilu]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : kBlockSizes)
      for (const Pattern &pattern : Patterns()) {
        CAPTURE(where, bs, pattern.name);
        const HostBlocks A  = RandomBlocks(pattern.A, bs, 10 + bs);
        const HostLU     LU = ComputeLU(A, where);
        REQUIRE(LU.stats.failure == BILU_OK);
        CHECK(LU.stats.singular_blocks == 0);
        CHECK(DifferenceOf(LU, PETScFactor(A)) <= FactorTolerance(bs));
      }
}

TEST_CASE("bilu: L U = A on the pattern", "[bisai][bilu]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 3, 8}) {
      const HostBlocks A     = RandomBlocks(RandomGraph(60, 6, 20), bs, 21);
      const HostLU     LU    = ComputeLU(A, where);
      double           worst = 0;
      for (LocalInt i = 0; i < A.n; i++) {
        double largest = 0;
        for (size_t k = (size_t)A.i[i] * bs * bs; k < (size_t)A.i[i + 1] * bs * bs; k++)
          largest = std::max(largest, std::fabs(A.a[k]));
        for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++) {
          const LocalInt j = A.j[k];
          Dense          sum(A.Block(k), A.Block(k) + bs * bs);
          for (LocalInt m = 0; m <= std::min(i, j); m++) {
            const Dense        one = DiagonalBlock(LU, BISAI_LOWER, m);
            const PetscScalar *l = m < i ? LU.L.Find(i, m) : nullptr, *u = m < j ? LU.U.Find(m, j) : nullptr;
            if ((m < i && !l) || (m < j && !u)) continue;
            const Dense left  = l ? Dense(l, l + bs * bs) : one,
                        right = u ? Dense(u, u + bs * bs) : DiagonalBlock(LU, BISAI_UPPER, m);
            for (LocalInt c = 0; c < bs; c++)
              for (LocalInt r = 0; r < bs; r++)
                for (LocalInt t = 0; t < bs; t++) sum[c * bs + r] -= left[t * bs + r] * right[c * bs + t];
          }
          for (long double off : sum) worst = std::max(worst, (double)std::fabs(off) / largest);
        }
      }
      CAPTURE(where, bs);
      CHECK(worst <= FactorTolerance(bs));
    }
}

TEST_CASE("bilu: sizes, new values on the same pattern, and two at once", "[bisai][bilu]")
{
  for (PetscMemType where : Places())
    for (LocalInt n : {0, 1, 31, 32, 33, 1000})
      for (LocalInt bs : {1, 4, 5}) {
        CAPTURE(where, n, bs);
        const HostMatrix pattern = n ? RandomGraph(n, 6, 30 + n) : HostMatrix();
        const HostBlocks A = RandomBlocks(pattern, bs, 31), B = RandomBlocks(pattern, bs, 32);
        const HostLU     fresh = ComputeLU(B, where), refilled = ComputeLU(A, where, &B), host = ComputeLU(B, PETSC_MEMTYPE_HOST);
        REQUIRE(refilled.stats.failure == BILU_OK);
        CHECK(fresh.L.a == refilled.L.a); /* to the last bit */
        CHECK(fresh.U.a == refilled.U.a);
        CHECK(fresh.inverse.a == refilled.inverse.a);
        CHECK(DifferenceOf(fresh, host) <= FactorTolerance(bs));
      }
}

/* Levels of one row, of a few, and of thousands: a line, a fan, and blocks that have nothing to do with each other. */
TEST_CASE("bilu: narrow and wide levels", "[bisai][bilu][gpu]")
{
  NEEDS_DEVICE();
  struct Case {
    const char *name;
    HostMatrix  A;
    LocalInt    levels;
  };
  const LocalInt                                             many = 5000;
  HostMatrix                                                 diagonal, fan;
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> alone(many), spread(many);
  for (LocalInt row = 0; row < many; row++) {
    alone[row]  = {{row, 1.}};
    spread[row] = {{row, 1.}};
    if (row > 20) spread[row].emplace_back(row % 20, 1.);
    else if (row > 0) spread[row].emplace_back(row - 1, 1.);
  }
  for (const Case &c :
       {Case{"line", Poisson(700), 700}, Case{"nothing but diagonals", FromRows(alone), 1},
        Case{"a line, then all at once", FromRows(spread), 21}, Case{"grid", RandomStencil(40, 40, 1, false, 40), 79}}) {
    CAPTURE(c.name);
    for (LocalInt bs : {1, 3, 4, 8, 11}) {
      CAPTURE(bs);
      const HostBlocks A      = RandomBlocks(c.A, bs, 41);
      const HostLU     device = ComputeLU(A, PETSC_MEMTYPE_CUDA), host = ComputeLU(A, PETSC_MEMTYPE_HOST);
      CHECK(device.stats.levels == c.levels);
      CHECK(DifferenceOf(device, host) <= FactorTolerance(bs));
    }
  }
}

/* The level of a row is one more than the largest level of the columns of its L. */
static LocalInt LevelsOf(const HostBlocks &A)
{
  std::vector<LocalInt> level(A.n);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1] && A.j[k] < row; k++) level[row] = std::max(level[row], level[A.j[k]] + 1);
  return A.n ? 1 + *std::max_element(level.begin(), level.end()) : 0;
}

static bool SameBits(const HostLU &x, const HostLU &y)
{
  return x.L.a == y.L.a && x.U.a == y.U.a && x.inverse.a == y.inverse.a;
}

/* One sweep fewer than there are levels gives the factor on any pattern, on the host to the last bit; more change nothing. */
TEST_CASE("bilu: as many sweeps as levels are exact", "[bisai][bilu][sweeps]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : kBlockSizes)
      for (const Pattern &pattern : Patterns()) {
        CAPTURE(where, bs, pattern.name);
        const HostBlocks A      = RandomBlocks(pattern.A, bs, 90 + bs);
        const LocalInt   enough = std::max(LevelsOf(A) - 1, 1);
        const HostLU     exact  = ComputeLU(A, where);
        const HostLU     swept  = ComputeLU(A, where, nullptr, enough);
        if (PetscMemTypeHost(where)) CHECK(SameBits(swept, exact));
        CHECK(DifferenceOf(swept, exact) <= FactorTolerance(bs));
        CHECK(SameBits(swept, ComputeLU(A, where, nullptr, enough + 1)));
      }
}

/* On a line row 1 has the level 1: after one sweep it is right, and row 2 has A_11 in the place of U_11. */
TEST_CASE("bilu: a sweep by hand", "[bisai][bilu][sweeps]")
{
  const HostBlocks A =
    FromBlocks(1, 3,
               {{{0, 0}, {2.}}, {{0, 1}, {1.}}, {{1, 0}, {1.}}, {{1, 1}, {1.}}, {{1, 2}, {3.}}, {{2, 1}, {1.}}, {{2, 2}, {4.}}});
  for (PetscMemType where : Places()) {
    CAPTURE(where);
    const HostLU one = ComputeLU(A, where, nullptr, 1), two = ComputeLU(A, where, nullptr, 2);
    CHECK(one.L.a == std::vector<double>{0.5, 1});
    CHECK(one.U.a == std::vector<double>{1, 3});
    CHECK(one.inverse.a == std::vector<double>{0.5, 2, 1}); /* U_22 = 4 - 1 * 3 */
    CHECK(two.L.a == std::vector<double>{0.5, 2});
    CHECK(two.inverse.a == std::vector<double>{0.5, 2, -0.5});
  }
}

TEST_CASE("bilu: sweeps of both twins, over sizes, with new values on the same pattern", "[bisai][bilu][sweeps]")
{
  for (PetscMemType where : Places())
    for (LocalInt n : {0, 1, 31, 32, 33, 1000})
      for (LocalInt bs : {1, 3, 5, 9})
        for (LocalInt sweeps : {1, 2, 3}) {
          CAPTURE(where, n, bs, sweeps);
          const HostMatrix pattern = n ? RandomGraph(n, 6, 91 + n) : HostMatrix();
          const HostBlocks A = RandomBlocks(pattern, bs, 92), B = RandomBlocks(pattern, bs, 93);
          const HostLU     fresh = ComputeLU(B, where, nullptr, sweeps), refilled = ComputeLU(A, where, &B, sweeps),
                       host = ComputeLU(B, PETSC_MEMTYPE_HOST, nullptr, sweeps);
          REQUIRE(refilled.stats.failure == BILU_OK);
          CHECK(refilled.stats.singular_blocks == 0);
          CHECK(SameBits(fresh, refilled));
          CHECK(DifferenceOf(fresh, host) <= FactorTolerance(bs));
        }
}

TEST_CASE("bilu: sweeps come closer to the factor", "[bisai][bilu][sweeps]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 3, 4}) {
      CAPTURE(where, bs);
      const HostBlocks A      = RandomBlocks(RandomStencil(30, 30, 1, false, 94), bs, 95);
      const HostLU     exact  = ComputeLU(A, where);
      double           before = std::numeric_limits<double>::infinity();
      for (LocalInt sweeps : {1, 2, 4, 8}) {
        const double now = DifferenceOf(ComputeLU(A, where, nullptr, sweeps), exact);
        CHECK(now < 0.5 * before);
        before = now;
      }
    }
}

TEST_CASE("bilu: matrices that cannot be factored are named", "[bisai][bilu][bad]")
{
  const LocalInt   bs   = 3;
  const HostBlocks good = RandomBlocks(RandomGraph(70, 5, 60), bs, 61);
  for (PetscMemType where : Places()) {
    CAPTURE(where);
    CHECK(ComputeLU(good, where).stats.failure == BILU_OK);
    for (double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      HostBlocks A               = good;
      A.Find(41, 41)[2 * bs + 1] = bad; /* row 1, column 2 */
      const BILUStats stats      = ComputeLU(A, where).stats;
      CHECK(stats.failure == BILU_NOT_FINITE);
      CHECK(stats.failure_row == 41 * bs + 1);
      CHECK(ComputeLU(good, where, &A).stats.failure == BILU_NOT_FINITE);
      CHECK(ComputeLU(A, where, nullptr, 2).stats.failure == BILU_NOT_FINITE);
      CHECK(ComputeLU(good, where, &A, 2).stats.failure_row == 41 * bs + 1);
    }
    HostBlocks A = good;
    for (LocalInt row : {44, 12}) /* the first one is named */
      for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
        for (LocalInt c = 0; c < bs; c++) A.a[((size_t)k * bs + c) * bs + 2] = 0;
    BILUStats stats = ComputeLU(A, where).stats;
    CHECK(stats.failure == BILU_ROW_ZERO);
    CHECK(stats.failure_row == 12 * bs + 2);

    std::map<std::pair<LocalInt, LocalInt>, std::vector<double>> blocks;
    for (LocalInt row = 0; row < good.n; row++)
      for (LocalInt k = good.i[row]; k < good.i[row + 1]; k++)
        if (row != 23 || good.j[k] != 23) blocks[{row, good.j[k]}] = std::vector<double>(good.Block(k), good.Block(k) + bs * bs);
    stats = ComputeLU(FromBlocks(bs, good.n, blocks), where).stats;
    CHECK(stats.failure == BILU_DIAGONAL_MISSING);
    CHECK(stats.failure_row == 23);
  }
}

/* A_11 = [1 1; 1 1] is singular, and A_22 - A_21 A_11^{-1} A_12 of the second pair vanishes; the blocks between are fine. */
TEST_CASE("bilu: singular diagonal blocks are replaced and counted", "[bisai][bilu][bad]")
{
  const std::vector<double> singular = {1, 1, 1, 1}, one = {1, 0, 0, 1}, two = {2, 0, 0, 2};
  const HostBlocks          A =
    FromBlocks(2, 4, {{{0, 0}, singular}, {{1, 1}, two}, {{2, 2}, one}, {{2, 3}, one}, {{3, 2}, one}, {{3, 3}, one}});
  for (PetscMemType where : Places()) {
    CAPTURE(where);
    const HostLU LU = ComputeLU(A, where);
    REQUIRE(LU.stats.failure == BILU_OK);
    CHECK(LU.stats.singular_blocks == 2);
    CHECK(std::vector<double>(LU.inverse.Block(3), LU.inverse.Block(4)) == one); /* A_44's inverse in the place of 0's */
    CHECK(std::vector<double>(LU.inverse.Block(1), LU.inverse.Block(2)) == std::vector<double>{0.5, 0, 0, 0.5});
    /* [1 1; 1 1 + 1e-8]^{-1} */
    for (LocalInt e = 0; e < 4; e++) CHECK(std::fabs(LU.inverse.a[e]) == Approx(1 / kBILURaisedPivot).epsilon(1e-6));
    HostBlocks near = A;
    near.a[0]       = 1 + 1e-12; /* bad, but above the limit */
    CHECK(ComputeLU(near, where).stats.singular_blocks == 1);
    near.a[0] = 1 + 1e-15;
    CHECK(ComputeLU(near, where).stats.singular_blocks == 2);
    for (LocalInt sweeps : {1, 2, 3}) { /* there are two levels: each sweep replaces both blocks, and only the last one counts */
      const HostLU swept = ComputeLU(A, where, nullptr, sweeps);
      CHECK(swept.stats.singular_blocks == 2);
      CHECK(DifferenceOf(swept, LU) <= FactorTolerance(2));
    }
  }
}

/*
   Equations and unknowns in other units, powers of two: nothing is singular that was not, and the factor is the same, scaled, to
   rounding.
*/
TEST_CASE("bilu: units do not make blocks singular", "[bisai][bilu]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 2, 3, 5, 12}) {
      CAPTURE(where, bs);
      const HostBlocks A        = RandomBlocks(RandomGraph(50, 5, 80), bs, 81);
      const size_t     bs2      = (size_t)bs * bs;
      HostBlocks       B        = A;
      const auto       equation = [](LocalInt row) { return std::ldexp(1., (int)(row * 37 % 81) - 40); };
      const auto       unknown  = [](LocalInt column) { return std::ldexp(1., (int)(column * 23 % 61) - 30); };
      for (LocalInt row = 0; row < A.n; row++)
        for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
          for (LocalInt e = 0; e < bs * bs; e++) B.a[k * bs2 + e] *= equation(row * bs + e % bs) * unknown(A.j[k] * bs + e / bs);
      const HostLU plain = ComputeLU(A, where), scaled = ComputeLU(B, where);
      HostBlocks   inverse = scaled.inverse;
      CHECK(scaled.stats.singular_blocks == 0);
      for (LocalInt row = 0; row < A.n; row++)
        for (LocalInt e = 0; e < bs * bs; e++) inverse.a[row * bs2 + e] *= unknown(row * bs + e % bs) * equation(row * bs + e / bs);
      CHECK(DifferenceOf(inverse, plain.inverse) <= FactorTolerance(bs));
      BlockLU       F = SendLU(scaled, PETSC_MEMTYPE_HOST);
      BILUStats     stats{};
      const BSRView view = B.View();
      MUST(BILUCheckFactor_Host(&view, nullptr, nullptr, &F, &stats));
      CHECK(stats.singular_blocks == 0);
      MUST(BlockLUDestroy(&F));
    }
}

TEST_CASE("bilu: factors by others are checked in the same way", "[bisai][bilu][bad]")
{
  const HostBlocks A  = RandomBlocks(RandomGraph(20, 4, 70), 2, 71);
  const HostLU     LU = ComputeLU(A, PETSC_MEMTYPE_HOST);
  BlockLU          F  = SendLU(LU, PETSC_MEMTYPE_HOST);
  BILUStats        stats{};
  const BSRView    view = A.View();
  MUST(BILUCheckFactor_Host(&view, nullptr, nullptr, &F, &stats));
  CHECK(stats.singular_blocks == 0);
  for (double bad : {1e16, std::nan(""), std::numeric_limits<double>::infinity()}) {
    F.a[F.place[LU_DIAGONAL][7] * 4 + 1] = bad;
    MUST(BILUCheckFactor_Host(&view, nullptr, nullptr, &F, &stats));
    CHECK(stats.singular_blocks == 1);
  }
  MUST(BlockLUDestroy(&F));
}

/* What a good matrix gives is PETSc's own factor, for any fill and ordering; nothing of what was in its place before is left. */
TEST_CASE("bilu: the values of PETSc's factor computed anew, on its pattern", "[bisai][bilu]")
{
  for (LocalInt bs : {1, 2, 3, 5, 9})
    for (LocalInt levels : {0, 1, 2})
      for (MatOrderingType ordering : {MATORDERINGNATURAL, MATORDERINGRCM, MATORDERINGND, MATORDERINGROWLENGTH}) {
        CAPTURE(bs, levels, ordering);
        std::vector<LocalInt> order[2];
        const HostBlocks      A  = RandomBlocks(RandomStencil(7, 6, 1, false, 75), bs, 76);
        const HostLU          LU = PETScFactor(A, levels, ordering, order);
        BlockLU               F  = SendLU(LU, PETSC_MEMTYPE_HOST);
        BILUStats             stats{};
        const BSRView         view = A.View();
        for (int repeat = 0; repeat < 2; repeat++) {
          std::fill_n(F.a, (size_t)F.nnz * bs * bs, std::nan(""));
          stats.singular_blocks = 5;
          MUST(BILURepeat_Host(&view, order[0].data(), order[1].data(), &F, &stats));
          CHECK(stats.singular_blocks == 0);
          CHECK(DifferenceOf(FetchLU(F), LU) <= FactorTolerance(bs));
        }
        if (std::string(ordering) == MATORDERINGNATURAL && !levels) {
          const HostLU anew = FetchLU(F), ours = ComputeLU(A, PETSC_MEMTYPE_HOST);
          MUST(BILURepeat_Host(&view, nullptr, nullptr, &F, &stats));
          for (const HostLU &other : {anew, FetchLU(F)}) {
            CHECK(other.L.a == ours.L.a); /* to the last bit */
            CHECK(other.U.a == ours.U.a);
            CHECK(other.inverse.a == ours.inverse.a);
          }
        }
        MUST(BlockLUDestroy(&F));
      }
}

/* ------------------------------------------ inverses ------------------------------------------ */

TEST_CASE("bisai: N T = I or T N = I on the pattern, for every block size, power, triangle and precision", "[bisai]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : kBlockSizes)
      for (const Pattern &pattern : Patterns()) {
        if (bs * pattern.A.n > kLargestReference) continue;
        const HostLU LU = ComputeLU(RandomBlocks(pattern.A, bs, 100 + bs), PETSC_MEMTYPE_HOST);
        for (LocalInt power : {1, 2, 3, 4}) {
          if (bs > 4 && power == 3) continue;
          for (BISAITriangle triangle : {BISAI_LOWER, BISAI_UPPER})
            for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
              const bool diagonal = triangle == BISAI_UPPER || precision == FINEPC_DOUBLE;
              for (PCBISAISide side : kSides) {
                CAPTURE(where, bs, pattern.name, power, triangle, precision, side);
                CheckLines(LU, triangle, side == PC_BISAI_SIDE_COLUMNS, diagonal, power,
                           ComputeInverse(LU, triangle, diagonal, Params(power, precision, side), where),
                           RowTolerance(precision, bs));
              }
            }
        }
      }
}

/*
   A row of numbers by substitution: n_i = 1 / t_ii, then n_j = -(sum of n_k t_kj over the k so far) / t_jj, away from the diagonal.
*/
TEST_CASE("bisai: with blocks of one number it is point ISAI", "[bisai]")
{
  for (PetscMemType where : Places())
    for (const Pattern &pattern : Patterns()) {
      const HostLU LU = ComputeLU(RandomBlocks(pattern.A, 1, 101), PETSC_MEMTYPE_HOST);
      for (LocalInt power : {1, 2, 4})
        for (BISAITriangle triangle : {BISAI_LOWER, BISAI_UPPER}) {
          CAPTURE(where, pattern.name, power, triangle);
          const HostInverse inverse = ComputeInverse(LU, triangle, true, Params(power), where);
          const HostBlocks &T       = TriangleOf(LU, triangle);
          LocalInt          wrong   = 0;
          for (LocalInt i = 0; i < T.n; i++) {
            std::set<LocalInt> columns = ReferencePattern(T, i, power);
            columns.insert(i);
            std::vector<LocalInt> order(columns.begin(), columns.end());
            if (triangle == BISAI_LOWER) std::reverse(order.begin(), order.end());
            std::map<LocalInt, double> n;
            double                     largest = 0;
            for (LocalInt j : order) {
              double sum = j == i ? -1 : 0;
              for (const auto &known : n) {
                const double *const t = T.Find(known.first, j);
                if (t) sum += known.second * *t;
              }
              n[j]    = -sum / (double)DiagonalBlock(LU, triangle, j)[0];
              largest = std::max(largest, std::abs(n[j]));
            }
            wrong += inverse.N.i[i + 1] - inverse.N.i[i] != (LocalInt)n.size();
            for (const auto &entry : n) {
              const double *const found = inverse.N.Find(i, entry.first);
              wrong += !found || !(std::abs(*found - entry.second) <= 1e-12 * largest);
            }
          }
          CHECK(wrong == 0);
        }
    }
}

TEST_CASE("bisai: NL without its unit diagonal has the same blocks", "[bisai]")
{
  for (PetscMemType where : Places()) {
    const HostLU      LU     = ComputeLU(RandomBlocks(RandomGraph(40, 5, 110), 3, 111), PETSC_MEMTYPE_HOST);
    const HostInverse whole  = ComputeInverse(LU, BISAI_LOWER, true, Params(2), where),
                      strict = ComputeInverse(LU, BISAI_LOWER, false, Params(2), where);
    LocalInt wrong           = 0;
    REQUIRE(whole.N.nnz() == strict.N.nnz() + LU.L.n);
    for (LocalInt row = 0; row < LU.L.n; row++)
      for (LocalInt k = strict.N.i[row]; k < strict.N.i[row + 1]; k++)
        wrong += std::vector<double>(strict.N.Block(k), strict.N.Block(k + 1)) !=
                 std::vector<double>(whole.N.Find(row, strict.N.j[k]), whole.N.Find(row, strict.N.j[k]) + 9);
    CHECK(wrong == 0);
  }
}

/* Powers beyond the longest path change nothing, and N T = I everywhere. */
TEST_CASE("bisai: a power that is large enough gives the exact inverse", "[bisai]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 2, 5}) {
      CAPTURE(where, bs);
      const HostLU LU = ComputeLU(RandomBlocks(Poisson(5), bs, 120), PETSC_MEMTYPE_HOST);
      for (BISAITriangle triangle : {BISAI_LOWER, BISAI_UPPER}) {
        const HostInverse inverse = ComputeInverse(LU, triangle, true, Params(4), where);
        CHECK(inverse.N.nnz() == 5 * 6 / 2);
        const HostBlocks &T     = TriangleOf(LU, triangle);
        double            worst = 0;
        for (LocalInt i = 0; i < 5; i++)
          for (LocalInt j = 0; j < 5; j++) {
            Dense sum(bs * bs, 0);
            for (LocalInt k = 0; k < 5; k++) {
              const PetscScalar *n = inverse.N.Find(i, k), *t = k == j ? nullptr : T.Find(k, j);
              if (!n || (k != j && !t)) continue;
              const Dense right = k == j ? DiagonalBlock(LU, triangle, k) : Dense(t, t + bs * bs);
              for (LocalInt c = 0; c < bs; c++)
                for (LocalInt r = 0; r < bs; r++)
                  for (LocalInt q = 0; q < bs; q++) sum[c * bs + r] += n[q * bs + r] * right[c * bs + q];
            }
            for (LocalInt r = 0; r < bs && i == j; r++) sum[r * bs + r] -= 1;
            for (long double off : sum) worst = std::max(worst, (double)std::fabs(off));
          }
        CHECK(worst <= 1000 * bs * kUnitDouble);
      }
    }
}

/*
   A = L D V with V = D^{-1} U unit upper triangular, so that V^T is L of A^T. On a grid all paths between two rows have the same
   length, rows and columns give the same inverse, and NU = NV D^{-1} = (NL of A^T)^T D^{-1}.
*/
TEST_CASE("bisai: NU is NL of the transpose, turned over", "[bisai]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 2, 3, 4})
      for (LocalInt power : {1, 2, 3}) {
        CAPTURE(where, bs, power);
        const HostBlocks  A  = RandomBlocks(RandomStencil(5, 4, 3, false, 130), bs, 131);
        const HostLU      LU = ComputeLU(A, where), turned = ComputeLU(TransposeOf(A), where);
        const HostInverse NU = ComputeInverse(LU, BISAI_UPPER, true, Params(power), where),
                          NL = ComputeInverse(turned, BISAI_LOWER, true, Params(power), where);
        HostBlocks expected  = TransposeOf(NL.N);
        for (LocalInt k = 0; k < expected.nnz(); k++) {
          const std::vector<double> block(expected.Block(k), expected.Block(k + 1));
          const PetscScalar *const  inverse = LU.inverse.Block(expected.j[k]);
          for (LocalInt c = 0; c < bs; c++)
            for (LocalInt r = 0; r < bs; r++) {
              double sum = 0;
              for (LocalInt t = 0; t < bs; t++) sum += block[t * bs + r] * inverse[c * bs + t];
              expected.a[((size_t)k * bs + c) * bs + r] = sum;
            }
        }
        CHECK(DifferenceOf(NU.N, expected) <= 10 * FactorTolerance(bs));
      }
}

/* Rows and columns counted from the end make U a lower triangle; N of it is N of U, counted from the end. */
TEST_CASE("bisai: NU is NL of the unit triangle that U is from the end, on any graph", "[bisai]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 3, 8}) {
      CAPTURE(where, bs);
      const size_t bs2 = (size_t)bs * bs;
      HostLU       LU = ComputeLU(RandomBlocks(RandomGraph(30, 5, 140), bs, 141), PETSC_MEMTYPE_HOST), turned = LU;
      for (LocalInt row = 0; row < LU.U.n; row++) /* I for U's diagonal */
        for (size_t e = 0; e < bs2; e++) LU.inverse.a[row * bs2 + e] = e / bs == e % bs;
      std::reverse(turned.L.j.begin(), turned.L.j.end());
      turned.L.i = {0};
      turned.L.j.clear();
      turned.L.a.clear();
      for (LocalInt row = LU.U.n - 1; row >= 0; row--) {
        for (LocalInt k = LU.U.i[row + 1] - 1; k >= LU.U.i[row]; k--) {
          turned.L.j.push_back(LU.U.n - 1 - LU.U.j[k]);
          turned.L.a.insert(turned.L.a.end(), LU.U.Block(k), LU.U.Block(k + 1));
        }
        turned.L.i.push_back((LocalInt)turned.L.j.size());
      }
      const HostInverse NU = ComputeInverse(LU, BISAI_UPPER, true, Params(2), where),
                        NL = ComputeInverse(turned, BISAI_LOWER, true, Params(2), where);
      LocalInt wrong       = 0;
      REQUIRE(NU.N.nnz() == NL.N.nnz());
      for (LocalInt row = 0; row < LU.U.n; row++)
        for (LocalInt k = NU.N.i[row]; k < NU.N.i[row + 1]; k++) {
          const PetscScalar *other = NL.N.Find(LU.U.n - 1 - row, LU.U.n - 1 - NU.N.j[k]);
          REQUIRE(other != nullptr);
          for (size_t e = 0; e < bs2; e++) wrong += !(std::fabs(NU.N.Block(k)[e] - other[e]) <= 1e-13);
        }
      CHECK(wrong == 0);
    }
}

TEST_CASE("bisai: twins over sizes, new values on the same pattern, bounded work space", "[bisai]")
{
  for (PetscMemType where : Places())
    for (LocalInt n : {0, 1, 31, 32, 33, 1000})
      for (LocalInt bs : {1, 2, 4, 7, 12}) {
        if (n == 1000 && bs > 4) continue;
        const HostMatrix pattern = n ? RandomGraph(n, 6, 150 + n) : HostMatrix();
        const HostLU     first   = ComputeLU(RandomBlocks(pattern, bs, 151), PETSC_MEMTYPE_HOST),
                     second      = ComputeLU(RandomBlocks(pattern, bs, 152), PETSC_MEMTYPE_HOST);
        for (PCBISAISide side : kSides)
          for (BISAITriangle triangle : {BISAI_LOWER, BISAI_UPPER}) {
            CAPTURE(where, n, bs, side, triangle);
            const BISAIParams params   = Params(3, FINEPC_DOUBLE, side);
            const HostInverse host     = ComputeInverse(second, triangle, true, params, PETSC_MEMTYPE_HOST);
            const HostInverse fresh    = ComputeInverse(second, triangle, true, params, where);
            const HostInverse refilled = ComputeInverse(first, triangle, true, params, where, &second);
            CHECK(DifferenceOf(fresh.N, host.N) <= RowTolerance(FINEPC_DOUBLE, bs));
            CHECK(fresh.N.a == refilled.N.a); /* to the last bit */
            CHECK(fresh.stats.longest[triangle] == host.stats.longest[triangle]);
          }
      }
}

/* Rows that do not fit shared memory, next to rows that do; with a work space for as few as possible and for many. */
TEST_CASE("bisai: rows of any length", "[bisai][gpu]")
{
  NEEDS_DEVICE();
  for (LocalInt bs : {1, 4, 8, 32}) {
    const LocalInt n  = bs == 32 ? 150 : bs == 1 ? 3000 : 700;
    const HostLU   LU = ComputeLU(RandomBlocks(RandomArrow(n, 160), bs, 161), PETSC_MEMTYPE_HOST);
    for (BISAITriangle triangle : {BISAI_LOWER, BISAI_UPPER})
      for (PCBISAISide side : kSides)
        for (size_t limit : {(size_t)1, (size_t)256 << 20}) {
          CAPTURE(bs, triangle, side, limit);
          BISAIParams params       = Params(2, FINEPC_DOUBLE, side);
          params.work_limit        = limit;
          const HostInverse host   = ComputeInverse(LU, triangle, true, params, PETSC_MEMTYPE_HOST),
                            device = ComputeInverse(LU, triangle, true, params, PETSC_MEMTYPE_CUDA);
          CHECK(device.stats.longest[triangle] == host.stats.longest[triangle]);
          CHECK(DifferenceOf(device.N, host.N) <= RowTolerance(FINEPC_DOUBLE, bs) * 10);
        }
  }
}

/* L_21 L_10 = 1e60 is too much for single precision, and for double where the entries are 1e200. */
TEST_CASE("bisai: lines of blocks that are not finite keep their diagonal, and are counted", "[bisai][bad]")
{
  for (PetscMemType where : Places())
    for (PCBISAISide side : kSides) /* the last row of NL and the first one of NU, or the first column and the last one */
      for (double large : {1e30, 1e200}) {
        CAPTURE(where, side, large);
        const std::vector<double> big = {large, 0, 0, large}, one = {1, 0, 0, 1}, zero = {0, 0, 0, 0};
        HostLU                    LU;
        LU.L                     = FromBlocks(2, 3, {{{1, 0}, big}, {{2, 1}, big}});
        LU.U                     = FromBlocks(2, 3, {{{0, 1}, big}, {{1, 2}, big}});
        LU.inverse               = FromBlocks(2, 3, {{{0, 0}, one}, {{1, 1}, one}, {{2, 2}, one}});
        const BISAIParams params = Params(2, large < 1e100 ? FINEPC_SINGLE : FINEPC_DOUBLE, side);
        const HostInverse NL     = ComputeInverse(LU, BISAI_LOWER, true, params, where),
                          NU     = ComputeInverse(LU, BISAI_UPPER, true, params, where);
        const bool by_rows       = side == PC_BISAI_SIDE_ROWS;
        const auto block         = [by_rows](const HostInverse &inverse, LocalInt line, LocalInt other) {
          const PetscScalar *const found = by_rows ? inverse.N.Find(line, other) : inverse.N.Find(other, line);
          return std::vector<double>(found, found + 4);
        };
        const LocalInt of_NL = by_rows ? 2 : 0, of_NU = 2 - of_NL;
        CHECK(NL.stats.fallback_lines[BISAI_LOWER] == 1);
        CHECK(NU.stats.fallback_lines[BISAI_UPPER] == 1);
        CHECK(block(NL, of_NL, of_NL) == one);
        CHECK(block(NU, of_NU, of_NU) == one);
        for (LocalInt other : {1, 2 - of_NL}) CHECK(block(NL, of_NL, other) == zero);
        for (LocalInt other : {1, 2 - of_NU}) CHECK(block(NU, of_NU, other) == zero);
        CHECK(block(NL, 1, 2 - of_NL)[0] == Approx(-large));
        CHECK(block(NU, 1, 2 - of_NU)[0] == Approx(-large));
      }
}

/*
   A diagonal block of U^{-1} has nothing to fall back to. One of zeros in a row or a column would drop an unknown or an equation.
*/
TEST_CASE("bisai: diagonal blocks that a precision cannot hold are counted", "[bisai][bad]")
{
  struct Case {
    const char     *name;
    LocalInt        row, column; /* of the number in a block of ones on the diagonal, from the end */
    double          value;
    FinePCPrecision precision;
    LocalInt        lost;
  };
  for (PetscMemType where : Places())
    for (LocalInt bs : kBlockSizes)
      for (const Case &c :
           {Case{"too large", 0, 0, 1e39, FINEPC_SINGLE, 1}, Case{"too large, for single only", 0, 0, 1e39, FINEPC_DOUBLE, 0},
            Case{"large enough", 0, 0, 1e38, FINEPC_SINGLE, 0}, Case{"too small", 0, 0, 1e-39, FINEPC_SINGLE, 1},
            Case{"too small, for single only", 0, 0, -1e-39, FINEPC_DOUBLE, 0}, Case{"small", 0, 0, -1e-37, FINEPC_SINGLE, 0},
            Case{"a small one beside others", 0, 1, 1e-60, FINEPC_SINGLE, 0},
            Case{"a large one beside others", 1, 0, -1e60, FINEPC_SINGLE, 1},
            Case{"infinite", 0, 0, std::numeric_limits<double>::infinity(), FINEPC_DOUBLE, 1},
            Case{"not a number", 0, 1, std::nan(""), FINEPC_DOUBLE, 1}, Case{"almost nothing", 0, 0, 1e-309, FINEPC_DOUBLE, 1}}) {
        if (std::max(c.row, c.column) >= bs) continue;
        CAPTURE(where, bs, c.name);
        const LocalInt                                               n = 5;
        HostLU                                                       LU;
        std::map<std::pair<LocalInt, LocalInt>, std::vector<double>> one;
        std::vector<double>                                          block(bs * bs, 0.);
        for (LocalInt r = 0; r < bs; r++) block[r * bs + r] = 1;
        for (LocalInt row = 0; row < n; row++) one[{row, row}] = block;
        one[{3, 3}][(bs - 1 - c.column) * bs + bs - 1 - c.row] = c.value;
        LU.L                                                   = FromBlocks(bs, n, {{{4, 1}, block}});
        LU.U                                                   = FromBlocks(bs, n, {});
        LU.inverse                                             = FromBlocks(bs, n, one);
        const HostInverse NU = ComputeInverse(LU, BISAI_UPPER, true, Params(1, c.precision), where),
                          NL = ComputeInverse(LU, BISAI_LOWER, true, Params(1, c.precision), where);
        CHECK(NU.stats.lost_diagonals == c.lost);
        CHECK(NU.stats.fallback_lines[BISAI_UPPER] == 0);
        CHECK(NL.stats.lost_diagonals == 0);
      }
  /* a row, and a column, all of small numbers */
  for (PetscMemType where : Places())
    for (const std::vector<double> &block : {std::vector<double>{1e-50, 1, 1e-50, 1}, std::vector<double>{1, 1, 1e-50, 1e-50}}) {
      HostLU LU;
      LU.L = LU.U = FromBlocks(2, 1, {});
      LU.inverse  = FromBlocks(2, 1, {{{0, 0}, block}});
      CAPTURE(where, block);
      CHECK(ComputeInverse(LU, BISAI_UPPER, true, Params(1, FINEPC_SINGLE), where).stats.lost_diagonals == 1);
      CHECK(ComputeInverse(LU, BISAI_UPPER, true, Params(1, FINEPC_DOUBLE), where).stats.lost_diagonals == 0);
    }
}

TEST_CASE("bisai: entries of L and U that the relaxation's precision cannot hold are counted", "[bisai][bad]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 2, 8, 9, 32})
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        CAPTURE(where, bs, precision);
        const LocalInt      bs2 = bs * bs, n = 40;
        const bool          device = PetscMemTypeDevice(where), single = precision == FINEPC_SINGLE;
        std::vector<double> big(bs2, 1.), one(bs2, 0.), small(bs2, 0.);
        HostLU              LU;
        big[0]       = 1e39;
        big[bs2 - 1] = -1e39;
        for (LocalInt r = 0; r < bs; r++) {
          one[r * bs + r]   = 1;
          small[r * bs + r] = 1e-39;
        }
        std::map<std::pair<LocalInt, LocalInt>, std::vector<double>> lower, upper, inverse;
        /* 0 has no inverse, 1e-39's is too large for single */
        for (LocalInt row = 0; row < n; row++)
          inverse[{row, row}] = row == 7 ? std::vector<double>(bs2, 0.) : row == 8 ? small : one;
        lower[{5, 2}] = lower[{39, 0}] = lower[{39, 1}] = upper[{3, 20}] = big;
        lower[{6, 1}] = upper[{0, 30}] = one;
        LU.L                           = FromBlocks(bs, n, lower);
        LU.U                           = FromBlocks(bs, n, upper);
        LU.inverse                     = FromBlocks(bs, n, inverse);
        BlockLU   F                    = SendLU(LU, where);
        BISAIWork work{};
        for (BISAITriangle triangle : {BISAI_LOWER, BISAI_UPPER}) {
          BSR            R{};
          BISAIStats     stats{};
          const LocalInt of_block = single ? (bs == 1 ? 1 : 2) : 0;
          MUST((device ? BISAIPattern_CUDA : BISAIPattern_Host)(&F, triangle, PETSC_TRUE, 1, precision, &R, &stats));
          for (int repeat = 0; repeat < 2; repeat++) { /* counts start anew */
            MUST((device ? BISAINegate_CUDA : BISAINegate_Host)(&F, triangle, &R, &work, &stats));
            CHECK(stats.lost_entries[triangle] == (triangle == BISAI_LOWER ? 3 * of_block : of_block + bs2 + (single ? bs : 0)));
            CHECK(stats.lost_entries[1 - triangle] == 0);
          }
          MUST(BSRDestroy(&R));
        }
        MUST(ArrayDestroy(work.where, &work.data));
        MUST(BlockLUDestroy(&F));
      }
}

TEST_CASE("bisai: what the relaxation reads is -L and -U", "[bisai]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 4, 9})
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
        for (BISAITriangle triangle : {BISAI_LOWER, BISAI_UPPER}) {
          CAPTURE(where, bs, precision, triangle);
          const HostLU LU = ComputeLU(RandomBlocks(RandomGraph(35, 5, 170), bs, 171), PETSC_MEMTYPE_HOST);
          BlockLU      F  = SendLU(LU, where);
          BSR          R{}, host{};
          BISAIStats   stats{};
          BISAIWork    work{};
          double       worst  = 0;
          const bool   device = PetscMemTypeDevice(where);
          MUST((device ? BISAIPattern_CUDA : BISAIPattern_Host)(&F, triangle, PETSC_TRUE, 1, precision, &R, &stats));
          MUST((device ? BISAINegate_CUDA : BISAINegate_Host)(&F, triangle, &R, &work, &stats));
          CHECK(stats.lost_entries[triangle] == 0);
          MUST(BSRCopy(&R, PETSC_MEMTYPE_HOST, &host));
          for (LocalInt row = 0; row < host.rows; row++)
            for (LocalInt k = host.i[row]; k < host.i[row + 1]; k++) {
              const Dense        diagonal = DiagonalBlock(LU, triangle, row);
              const PetscScalar *block    = TriangleOf(LU, triangle).Find(row, host.j[k]);
              for (LocalInt e = 0; e < bs * bs; e++) {
                const size_t      at       = (size_t)k * bs * bs + e;
                const long double expected = host.j[k] == row ? diagonal[e] : block[e],
                                  value    = precision == FINEPC_SINGLE ? (double)((float *)host.a)[at] : ((double *)host.a)[at];
                worst                      = std::max(worst, (double)(std::fabs(value + expected) / (1 + std::fabs(expected))));
              }
            }
          CHECK(worst <= Unit(precision) + 1000 * bs * kUnitDouble);
          MUST(ArrayDestroy(work.where, &work.data));
          MUST(BSRDestroy(&host));
          MUST(BSRDestroy(&R));
          MUST(BlockLUDestroy(&F));
        }
}

TEST_CASE("bisai: more blocks than can be counted are an error", "[bisai][bad]")
{
  LocalInt nnz;
  MUST(BISAICountBlocks(LOCAL_INT_MAX - 7, 7, PETSC_TRUE, &nnz));
  CHECK(nnz == LOCAL_INT_MAX);
  MUST(BISAICountBlocks(LOCAL_INT_MAX, 7, PETSC_FALSE, &nnz));
  CHECK(nnz == LOCAL_INT_MAX);
  MUST(BISAICountBlocks(5, 3, PETSC_TRUE, &nnz));
  CHECK(nnz == 8);
  Errors errors;
  CHECK(BISAICountBlocks(LOCAL_INT_MAX - 7, 8, PETSC_TRUE, &nnz) != 0);
  CHECK(Contains(errors.text, "lower -pc_bisai_power"));
}

TEST_CASE("bisai: block permutations", "[bisai]")
{
  for (PetscMemType where : Places())
    for (LocalInt bs : {1, 3}) {
      const LocalInt        n = 500, size = n * bs;
      std::vector<LocalInt> p(n);
      std::vector<double>   x(size), y(size);
      for (LocalInt k = 0; k < n; k++) p[k] = (k * 7 + 3) % n;
      std::iota(x.begin(), x.end(), 0.);
      void *p_copy = nullptr, *x_copy = nullptr, *y_copy = nullptr;
      MUST(ArrayCreate(n * sizeof(LocalInt), where, &p_copy));
      MUST(ArrayCreate(size * sizeof(double), where, &x_copy));
      MUST(ArrayCreate(size * sizeof(double), where, &y_copy));
      MUST(ArrayCopy(p_copy, p.data(), n * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
      MUST(ArrayCopy(x_copy, x.data(), size * sizeof(double), where, PETSC_MEMTYPE_HOST));
      const auto permute = PetscMemTypeDevice(where) ? BISAIPermute_CUDA : BISAIPermute_Host;
      for (bool scatter : {false, true}) {
        LocalInt wrong = 0;
        MUST(permute(bs, n, (LocalInt *)p_copy, (PetscBool)scatter, (double *)x_copy, (double *)y_copy));
        MUST(ArrayCopy(y.data(), y_copy, size * sizeof(double), PETSC_MEMTYPE_HOST, where));
        for (LocalInt k = 0; k < n; k++)
          for (LocalInt r = 0; r < bs; r++)
            wrong += scatter ? y[p[k] * bs + r] != x[k * bs + r] : y[k * bs + r] != x[p[k] * bs + r];
        CHECK(wrong == 0);
      }
      for (void *memory : {p_copy, x_copy, y_copy}) MUST(ArrayDestroy(where, &memory));
    }
}

/* ----------------------------------- for compute-sanitizer ------------------------------------ */

/*
   Every kernel of bilu.cu, bisai.cu and bsr_csr.cu on systems that are as small as they can be: levels of rows of either kind, rows
   of N in shared memory and one that is too long for it, every compiled block size and the general path, both precisions.
*/
TEST_CASE("bisai: every kernel, on small systems", "[bisai][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const LocalInt longest[] = {0, 470, 240, 215, 125, 85, 112, 86, 68, 20}; /* block rows of an arrow whose long row does not fit */
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(40);
  for (LocalInt row = 0; row < 40; row++) { /* a line, and 35 rows that wait for one of its rows each */
    rows[row] = {{row, 1.}};
    if (row >= 5) rows[row].emplace_back(row % 5, 1.);
    else if (row > 0) rows[row].emplace_back(row - 1, 1.);
    if (row < 39) rows[row].emplace_back(39, 1.);
  }
  for (LocalInt bs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 32}) {
    CAPTURE(bs);
    const HostBlocks A      = RandomBlocks(FromRows(rows), bs, 180);
    const HostLU     device = ComputeLU(A, PETSC_MEMTYPE_CUDA), host = ComputeLU(A, PETSC_MEMTYPE_HOST);
    CHECK(DifferenceOf(device, host) <= FactorTolerance(bs));
    CHECK(DifferenceOf(ComputeLU(A, PETSC_MEMTYPE_CUDA, nullptr, 2), ComputeLU(A, PETSC_MEMTYPE_HOST, nullptr, 2)) <=
          FactorTolerance(bs));

    const HostLU arrow = ComputeLU(RandomBlocks(RandomArrow(bs == 32 ? 8 : longest[bs], 181), bs, 182), PETSC_MEMTYPE_HOST);
    BlockLU      F     = SendLU(arrow, PETSC_MEMTYPE_CUDA);
    BISAIWork    work{};
    for (BISAITriangle triangle : {BISAI_LOWER, BISAI_UPPER})
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        CAPTURE(triangle, precision);
        for (PCBISAISide side : kSides) {
          CAPTURE(side);
          BISAIParams params         = Params(1, precision, side);
          params.work_limit          = 1;
          const bool        diagonal = triangle == BISAI_UPPER || precision == FINEPC_DOUBLE;
          const HostInverse expected = ComputeInverse(arrow, triangle, diagonal, params, PETSC_MEMTYPE_HOST),
                            inverse  = ComputeInverse(arrow, triangle, diagonal, params, PETSC_MEMTYPE_CUDA);
          CHECK(DifferenceOf(inverse.N, expected.N) <= 10 * RowTolerance(precision, bs));
          CHECK(inverse.stats.fallback_lines[triangle] == 0);
        }
        BSR        R{}, Rt{};
        BISAIStats stats{};
        MUST(BISAIPattern_CUDA(&F, triangle, PETSC_TRUE, 1, precision, &R, &stats));
        MUST(BISAINegate_CUDA(&F, triangle, &R, &work, &stats));
        CHECK(stats.lost_entries[triangle] == 0);
        for (PetscBool keep : {PETSC_FALSE, PETSC_TRUE}) MUST(BSRTranspose_CUDA(&R, keep, &Rt));
        CHECK(Rt.nnz == R.nnz);
        MUST(BSRDestroy(&Rt));
        MUST(BSRDestroy(&R));
      }
    MUST(ArrayDestroy(work.where, &work.data));
    MUST(BlockLUDestroy(&F));

    BSR           blocks{};
    const CSRCopy entries(Scalars(A, true), PETSC_MEMTYPE_CUDA);
    for (PetscBool keep : {PETSC_FALSE, PETSC_TRUE}) MUST(BSRFromCSR_CUDA(&entries.view, bs, keep, &blocks));
    CHECK(blocks.nnz == A.nnz());
    MUST(BSRDestroy(&blocks));
  }
  LocalInt           *p       = nullptr;
  PetscScalar        *x       = nullptr;
  const LocalInt      order[] = {2, 0, 1};
  std::vector<double> y       = {1, 2, 3, 4, 5, 6};
  MUST(ArrayCreate_CUDA(sizeof(order), (void **)&p));
  MUST(ArrayCreate_CUDA(2 * y.size() * sizeof(double), (void **)&x));
  MUST(ArrayCopy_CUDA(p, order, sizeof(order), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy_CUDA(x, y.data(), y.size() * sizeof(double), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  for (PetscBool scatter : {PETSC_FALSE, PETSC_TRUE}) {
    MUST(BISAIPermute_CUDA(2, 3, p, scatter, x, x + y.size()));
    MUST(ArrayCopy_CUDA(y.data(), x + y.size(), y.size() * sizeof(double), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    CHECK(y == (scatter ? std::vector<double>{3, 4, 5, 6, 1, 2} : std::vector<double>{5, 6, 1, 2, 3, 4}));
  }
  MUST(ArrayDestroy_CUDA((void **)&x));
  MUST(ArrayDestroy_CUDA((void **)&p));
}
