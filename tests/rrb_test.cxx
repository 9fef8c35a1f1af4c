/*
   The twins of PCRRB against section 2.2 of de Jong, van der Ploeg, Ditzel, Vuik (2017) computed densely, and against each other.
   The numbers of sections, tables and examples below are those of that paper.
*/
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "matrices.h"
#include "pc/rrb/rrb.h"

#if defined(FINEPC_HAVE_CUDA)
  #include "device/device.cuh"
#endif

namespace
{

using Dense = std::vector<long double>;

struct Grid {
  LocalInt nx, ny;
};

/* The sizes are odd, even and prime, and there is one row, one column, and one point. */
const std::vector<Grid> kSmallGrids = {
  {1, 1}, {1, 9}, {12, 1}, {2, 1}, {2, 2}, {3, 2}, {2, 5}, {5, 5}, {8, 8}, {7, 11}, {13, 4}, {15, 15},
};
const std::vector<Grid> kLargeGrids = {
  {31, 31}, {32, 32}, {33, 33}, {64, 65}, {127, 127}, {101, 67}, {1000, 1}, {1, 1031}, {3, 500}, {257, 130}, {300, 301},
};

/* A symmetric M-matrix on a grid: couplings between -3 and -0.03, row sums of `least` to `least` + 0.1. */
HostMatrix Stencil(Grid grid, bool nine, double least, std::uint64_t seed)
{
  Random                                                     random(seed);
  const LocalInt                                             nx = grid.nx, ny = grid.ny;
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(nx * ny);
  std::vector<double>                                        diagonal(nx * ny);
  for (auto &d : diagonal) d = least > 0 ? random.Between(least, least + 0.1) : 0;
  for (LocalInt row = 0; row < nx * ny; row++)
    for (const Grid &to : {Grid{1, 0}, Grid{-1, 1}, Grid{0, 1}, Grid{1, 1}}) {
      const LocalInt x = row % nx + to.nx, y = row / nx + to.ny;
      if (x < 0 || x >= nx || y >= ny || (!nine && to.nx && to.ny)) continue;
      const double   a      = std::pow(10., random.Between(-1.5, 0.5));
      const LocalInt column = y * nx + x;
      rows[row].push_back({column, -a});
      rows[column].push_back({row, -a});
      diagonal[row] += a;
      diagonal[column] += a;
    }
  for (LocalInt row = 0; row < nx * ny; row++) rows[row].push_back({row, diagonal[row]});
  return FromRows(rows);
}

/* Rows that sum to 5 or to -1 % of the diagonal entry of a matrix with sums of 0, in squares of four points a side. */
HostMatrix SomeSumsNegative(Grid grid, bool nine, std::uint64_t seed)
{
  HostMatrix A = Stencil(grid, nine, 0, seed);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == row) A.a[k] *= (row % grid.nx / 4 + row / grid.nx / 4) % 2 ? 0.99 : 1.05;
  return A;
}

Dense ToDense(const HostMatrix &A)
{
  Dense dense((size_t)A.n * A.n, 0);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) dense[(size_t)row * A.n + A.j[k]] = A.a[k];
  return dense;
}

/*
   The level in which a point is red, from the sets of 2.1 with points counted from 0; or more than any level for a point that
   remains.
*/
LocalInt LevelOf(LocalInt x, LocalInt y, LocalInt half_levels)
{
  for (LocalInt k = 1; k <= half_levels; k++) {
    if (k % 2) {
      if ((x + y) % 2) return k;
    } else {
      if (y % 2) return k;
      x /= 2;
      y /= 2;
    }
  }
  return half_levels + 1;
}

/*
   Section 2.2 as it stands: red points are numbered first, lumped and eliminated. This gives R, and columns of L and D of the
   eliminated points.
*/
struct Reference {
  LocalInt              half_levels;
  Dense                 L, R; /* [n n], points as in A */
  std::vector<double>   d;    /* 1 / pivot, 0 where the point remains */
  std::vector<LocalInt> level;
  std::vector<double>   lifted; /* what was added to the diagonal */

  PetscInt64 Lifted() const
  {
    return (PetscInt64)std::count_if(lifted.begin(), lifted.end(), [](double by) { return by > 0; });
  }
};

/* The lift goes beyond 2.2: before the first level that can lump anything, rows that sum to less than 0 are made to sum to 0. */
Reference Factor(const HostMatrix &A, Grid grid, LocalInt levels, bool lift = false)
{
  const LocalInt n = A.n;
  Reference      result;
  Dense          S    = ToDense(A);
  LocalInt       most = 1;
  for (LocalInt reach = 1; reach < std::max(grid.nx, grid.ny); reach *= 2) most += 2;
  result.half_levels = std::min(levels, most - 1);
  result.L.assign(S.size(), 0);
  result.R.assign(S.size(), 0);
  result.d.assign(n, 0);
  result.lifted.assign(n, 0);
  for (LocalInt p = 0; p < n; p++) result.level.push_back(LevelOf(p % grid.nx, p / grid.nx, result.half_levels));
  bool nine = false;
  for (LocalInt p = 0; p < n; p++)
    for (LocalInt q = 0; q < n; q++)
      nine = nine || (S[(size_t)p * n + q] != 0 && p % grid.nx != q % grid.nx && p / grid.nx != q / grid.nx);
  for (LocalInt k = 1; k <= result.half_levels; k++) {
    for (LocalInt p = 0; p < n && lift && k == (nine ? 1 : 2); p++) {
      if (result.level[p] < k) continue;
      long double sum = 0;
      for (LocalInt q = 0; q < n; q++)
        if (result.level[q] >= k) sum += S[(size_t)p * n + q];
      if (!(sum < -1e-12L * A.At(p, p))) continue;
      result.lifted[p] = (double)-sum;
      S[(size_t)p * n + p] -= sum;
      result.R[(size_t)p * n + p] += sum;
    }
    for (LocalInt r = 0; r < n; r++)
      for (LocalInt q = 0; q < n; q++) {
        if (q == r || result.level[r] != k || result.level[q] != k) continue;
        const long double lumped = S[(size_t)r * n + q];
        result.R[(size_t)r * n + q] += lumped;
        result.R[(size_t)r * n + r] -= lumped;
        S[(size_t)r * n + r] += lumped;
        S[(size_t)r * n + q] = 0;
      }
    for (LocalInt r = 0; r < n; r++) {
      if (result.level[r] != k) continue;
      const long double pivot = S[(size_t)r * n + r];
      result.d[r]             = (double)(1 / pivot);
      for (LocalInt p = 0; p < n; p++)
        if (result.level[p] > k) result.L[(size_t)p * n + r] = S[(size_t)p * n + r] / pivot;
      for (LocalInt p = 0; p < n; p++)
        for (LocalInt q = 0; q < n; q++)
          if (result.level[p] > k && result.level[q] > k)
            S[(size_t)p * n + q] -= result.L[(size_t)p * n + r] * S[(size_t)r * n + q];
    }
  }
  return result;
}

/* A twin's factor of A; what it gives is full of NaN before. */
class Twin {
public:
  Twin(const HostMatrix &A, Grid grid, const RRBParams &params, PetscMemType where) : where_(where), grid_(grid)
  {
    Compute(A, params);
  }
  Twin(const Twin &)            = delete;
  Twin &operator=(const Twin &) = delete;
  ~Twin() { PetscCallAbort(PETSC_COMM_SELF, PetscMemTypeDevice(where_) ? RRBDestroy_CUDA(&F_) : RRBDestroy_Host(&F_)); }

  void Compute(const HostMatrix &A, const RRBParams &params)
  {
    const CSRCopy copy(A, where_);
    n_ = A.n;
    PoisonMemory(where_, 64 * (size_t)A.n * sizeof(double));
    MUST((PetscMemTypeDevice(where_) ? RRBComputeFactor_CUDA : RRBComputeFactor_Host)(&copy.view, grid_.nx, grid_.ny, &params, &F_,
                                                                                      &stats));
  }
  std::vector<double> Apply(const std::vector<double> &x) { return Apply(1, x, 0, 0, x.size()); }
  /* The columns of y, which lie n + 2 entries apart, for the columns of x, which lie n + 3 entries apart. */
  std::vector<double> ApplyColumns(LocalInt columns, const std::vector<double> &x)
  {
    return Apply(columns, x, n_ + 3, n_ + 2, (size_t)columns * (n_ + 2));
  }
  void Get(std::vector<double> *l, std::vector<double> *d) const
  {
    l->assign(4 * (size_t)n_, std::numeric_limits<double>::quiet_NaN());
    d->assign(n_, std::numeric_limits<double>::quiet_NaN());
    MUST((PetscMemTypeDevice(where_) ? RRBGetFactor_CUDA : RRBGetFactor_Host)(F_, l->data(), d->data()));
  }
  const RRBFactor *operator->() const { return F_; }

  RRBStats stats;

private:
  std::vector<double> Apply(LocalInt columns, const std::vector<double> &x, LocalInt ldx, LocalInt ldy, size_t size)
  {
    std::vector<double> y(size, std::numeric_limits<double>::quiet_NaN());
    void               *x_there, *y_there;
    MUST(ArrayCreate(x.size() * sizeof(double), where_, &x_there));
    MUST(ArrayCreate(size * sizeof(double), where_, &y_there));
    MUST(ArrayCopy(x_there, x.data(), x.size() * sizeof(double), where_, PETSC_MEMTYPE_HOST));
    MUST(ArrayCopy(y_there, y.data(), size * sizeof(double), where_, PETSC_MEMTYPE_HOST));
    MUST((PetscMemTypeDevice(where_) ? RRBApply_CUDA : RRBApply_Host)(F_, columns, (const PetscScalar *)x_there, ldx,
                                                                      (PetscScalar *)y_there, ldy));
    MUST(ArrayCopy(y.data(), y_there, size * sizeof(double), PETSC_MEMTYPE_HOST, where_));
    MUST(ArrayDestroy(where_, &x_there));
    MUST(ArrayDestroy(where_, &y_there));
    return y;
  }

  PetscMemType where_;
  Grid         grid_;
  LocalInt     n_;
  RRBFactor   *F_ = nullptr;
};

std::vector<double> RandomValues(LocalInt n, std::uint64_t seed)
{
  Random              random(seed);
  std::vector<double> x(n);
  for (double &value : x) value = random.Between(-1, 1);
  return x;
}

RRBParams Levels(LocalInt levels)
{
  RRBParams params;
  params.levels = levels;
  return params;
}

std::vector<PetscMemType> Places()
{
  std::vector<PetscMemType> places;
  for (const Backend &backend : Backends()) places.push_back(backend.where);
  return places;
}

/* Largest difference relative to the largest value. */
double Difference(const std::vector<double> &x, const std::vector<double> &y)
{
  double difference = 0, largest = std::numeric_limits<double>::min();
  REQUIRE(x.size() == y.size());
  for (size_t k = 0; k < x.size(); k++) {
    if (!std::isfinite(x[k]) || !std::isfinite(y[k])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(x[k] - y[k]));
    largest    = std::max(largest, std::abs(x[k]));
  }
  return difference / largest;
}

/* (A - R) x */
std::vector<double> Multiply(const HostMatrix &A, const Dense &R, const std::vector<double> &x)
{
  std::vector<double> y(A.n);
  for (LocalInt row = 0; row < A.n; row++) {
    long double sum = 0;
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) sum += (long double)A.a[k] * x[A.j[k]];
    if (!R.empty())
      for (LocalInt column = 0; column < A.n; column++) sum -= R[(size_t)row * A.n + column] * x[column];
    y[row] = (double)sum;
  }
  return y;
}

} // namespace

TEST_CASE("rrb: levels by the size of the grid, (2.1)", "[rrb]")
{
  struct Case {
    LocalInt nx, ny, asked, levels, most, remainder; /* what is -1 is not looked at */
  };
  const Case cases[] = {
    {8, 8, 100, 7, 7, 1},              /* example 2.1 */
    {2047, 2047, 12, 12, 23, 32 * 32}, /* table 5.2: 1024 x 1024 after the first grid, .. */
    {2047, 2047, 0, 12, -1, -1},
    {8191, 8191, 0, 14, -1, 64 * 64},
    {5, 3, 1, 1, -1, 8},
    {5, 3, 2, 2, -1, 6},
    {1, 1, 5, 1, 1, 1},
    {10, 10, 0, 1, -1, -1},
    {1000000, 1, 0, -1, 41, -1},
  };
  LocalInt levels, most, remainder;
  for (const Case &c : cases) {
    CAPTURE(c.nx, c.ny, c.asked);
    RRBLevels(c.nx, c.ny, c.asked, &levels, &most, &remainder);
    CHECK((c.levels < 0 || levels == c.levels));
    CHECK((c.most < 0 || most == c.most));
    CHECK((c.remainder < 0 || remainder == c.remainder));
  }
  CHECK(remainder <= kRRBRemainder);                /* of the last one */
  for (LocalInt n : {11085, 12287, 16383, 30000}) { /* What is chosen by size is never more than a GPU factors. */
    RRBLevels(n, n, 0, &levels, &most, &remainder);
    CHECK(remainder <= kRRBLargestRemainder);
  }
}

/* Entry by entry L, D and R are those of 2.2, M = A - R, and R is what 2.2 says, except for what was lifted. */
static void CheckAgainst(const Reference &reference, const HostMatrix &A, Grid grid, Twin &twin)
{
  std::vector<double> l, d;
  const LocalInt      n = A.n;
  REQUIRE(twin.stats.failure == RRB_OK);
  CHECK(twin.stats.one_sided == 0);
  CHECK(twin.stats.zero_pivots == 0);
  CHECK(twin.stats.lifted == reference.Lifted());
  twin.Get(&l, &d);
  LocalInt left = 0;
  for (LocalInt p = 0; p < n; p++) {
    const LocalInt k = reference.level[p], s = (LocalInt)1 << ((k - 1) / 2), x = p % grid.nx, y = p / grid.nx;
    const bool     red = k <= reference.half_levels;
    left += !red;
    CHECK(d[p] == Approx(reference.d[p]).epsilon(1e-12));
    long double row_sum = reference.lifted[p];
    for (LocalInt q = 0; q < n; q++) {
      row_sum += reference.R[(size_t)p * n + q];
      if (q != p && (reference.level[q] != k || !red)) CHECK(reference.R[(size_t)p * n + q] == 0);
    }
    CHECK(std::abs((double)row_sum) <= 1e-15);
    std::vector<double> column(n, 0.);
    for (int to = 0; to < 4; to++) {
      const LocalInt sign = to % 2 ? s : -s, dx = k % 2 ? (to < 2 ? sign : 0) : (to < 2 ? sign : -sign),
                     dy = k % 2 ? (to < 2 ? 0 : sign) : sign;
      if (red && x + dx >= 0 && x + dx < grid.nx && y + dy >= 0 && y + dy < grid.ny)
        column[(y + dy) * grid.nx + x + dx] = l[to * n + p];
      else CHECK(l[to * n + p] == 0);
    }
    for (LocalInt q = 0; q < n; q++)
      CHECK(column[q] == Approx((double)reference.L[(size_t)q * n + p]).epsilon(1e-12).margin(1e-300));
  }
  CHECK(left == twin->remainder);
  for (std::uint64_t seed = 1; seed <= 3; seed++) {
    const std::vector<double> x = RandomValues(n, seed);
    CHECK(Difference(x, twin.Apply(Multiply(A, reference.R, x))) <= 1e-11);
  }
}

TEST_CASE("rrb: A = L D L^T + R as section 2.2 says", "[rrb]")
{
  for (PetscMemType where : Places())
    for (const Grid &grid : kSmallGrids)
      for (bool nine : {false, true})
        for (LocalInt levels : {1, 2, 3, 4, 5, 6, 100}) {
          CAPTURE(where, grid.nx, grid.ny, nine, levels);
          const HostMatrix A         = Stencil(grid, nine, 0.01, 7 * levels + nine);
          const Reference  reference = Factor(A, grid, levels);
          Twin             twin(A, grid, Levels(levels), where);
          CheckAgainst(reference, A, grid, twin);
          CHECK(twin.stats.lifted == 0);
          CHECK(twin->nine == (PetscBool)(nine && grid.nx > 1 && grid.ny > 1));
          if (levels == 1 && !nine)
            CHECK(std::all_of(reference.R.begin(), reference.R.end(), [](long double r) { return r == 0; }));
        }
}

/* M is that of S_1, or with 9 points that of A, with a larger diagonal. This is so where S_1 is kept as it was, too. */
TEST_CASE("rrb: rows that sum to less than 0 are lifted before the first level that lumps", "[rrb][lift]")
{
  for (PetscMemType where : Places())
    for (const Grid &grid : kSmallGrids)
      for (bool nine : {false, true})
        for (LocalInt levels : {1, 2, 3, 4, 5, 6, 100}) {
          if (grid.nx == 1 || grid.ny == 1) continue;
          CAPTURE(where, grid.nx, grid.ny, nine, levels);
          const HostMatrix          A         = SomeSumsNegative(grid, nine, 7 * levels + nine);
          const Reference           reference = Factor(A, grid, levels, true), unlifted = Factor(A, grid, levels, false);
          RRBParams                 params = Levels(levels);
          const std::vector<double> x      = RandomValues(A.n, 25);
          Twin                      twin(A, grid, params, where);
          params.keep_schur = PETSC_TRUE;
          Twin kept(A, grid, params, where);
          CheckAgainst(reference, A, grid, twin);
          CheckAgainst(reference, A, grid, kept);
          CHECK(kept->has_schur == (PetscBool)!nine);
          CHECK(twin.Apply(x) == kept.Apply(x));
          if (levels == 1 && !nine) { /* This one is exact. */
            CHECK(twin.stats.lifted == 0);
            CHECK(std::all_of(reference.R.begin(), reference.R.end(), [](long double r) { return r == 0; }));
          } else if (A.n > 60) {
            CHECK(twin.stats.lifted > A.n / 10);
            CHECK(twin.stats.lifted < A.n / 2 + 1);
          }
          if (*std::min_element(unlifted.d.begin(), unlifted.d.end()) < 0)
            continue; /* Without the lift there is a factor if the matrix is definite as it is. */
          params.lift = PETSC_FALSE;
          twin.Compute(A, params);
          if (twin.stats.failure == RRB_OK) CheckAgainst(unlifted, A, grid, twin);
          else CHECK(twin.stats.level == twin->levels); /* The remainder is not lifted. */
        }
}

TEST_CASE("rrb: what is not lifted", "[rrb][lift]")
{
  for (PetscMemType where : Places()) {
    CAPTURE(where);
    SECTION("sums that are 0 but for rounding, at jumps of eight orders of magnitude")
    {
      for (bool nine : {false, true})
        for (LocalInt levels : {2, 3, 6, 100}) {
          const Grid                                                 grid = {40, 31};
          Random                                                     random(26 + levels);
          std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(grid.nx * grid.ny);
          std::vector<double>                                        k(grid.nx * grid.ny), sum(grid.nx * grid.ny, 0.);
          for (double &value : k) value = std::pow(10., random.Between(-4, 4));
          for (LocalInt row = 0; row < grid.nx * grid.ny; row++)
            for (LocalInt column = row + 1; column < grid.nx * grid.ny; column++) {
              const LocalInt dx = std::abs(row % grid.nx - column % grid.nx), dy = column / grid.nx - row / grid.nx;
              if (dx > 1 || dy > 1 || (!nine && dx + dy > 1)) continue;
              const double face = 2 / (1 / k[row] + 1 / k[column]);
              rows[row].push_back({column, -face});
              rows[column].push_back({row, -face});
              sum[row] += face;
              sum[column] += face;
            }
          sum[0] *= 2; /* This one is not singular. */
          for (LocalInt row = 0; row < grid.nx * grid.ny; row++) rows[row].push_back({row, sum[row]});
          CAPTURE(nine, levels);
          const Twin twin(FromRows(rows), grid, Levels(levels), where);
          CHECK(twin.stats.failure == RRB_OK);
          CHECK(twin.stats.lifted == 0);
        }
    }
    SECTION("sums just above the limit; of S_1, whose sums are more than one of A's")
    {
      const Grid grid  = {20, 15};
      const auto count = [&](double all, double one) { /* the part of its diagonal by which a row falls short */
                                                       HostMatrix A = Stencil(grid, false, 0, 27);
                                                       for (LocalInt row = 0; row < A.n; row++)
                                                         for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
                                                           if (A.j[k] == row)
                                                             A.a[k] *= row == 0 ? 2
                                                                       : row == 66
                                                                         ? 1 - one
                                                                         : 1 - all; /* (6, 3) is a red point, (0, 0) a black one. */
                                                       const Twin twin(A, grid, Levels(4), where);
                                                       CHECK(twin.stats.failure == RRB_OK);
                                                       return twin.stats.lifted;
      };
      CHECK(count(0, 0) == 0);
      CHECK(count(0.4e-12, 0.4e-12) == 0);
      CHECK(count(0.6e-12, 0.6e-12) == 149); /* Rows are short by twice that in S_1, except for the row that was given more. */
      CHECK(count(0, 0.9e-12) == 0);
      CHECK(count(0, 1e-10) == 4);
    }
    SECTION("singular matrices, with their null space")
    {
      for (bool nine : {false, true}) {
        HostMatrix A = Stencil({30, 30}, nine, 0, 28);
        for (PetscScalar &a : A.a) a *= 1 + 1e-9 * (&a - A.a.data()) / A.nnz(); /* symmetric and summing to 0 to nine digits */
        RRBParams params = Levels(6);
        params.singular  = PETSC_TRUE;
        const Twin twin(A, {30, 30}, params, where);
        CHECK(twin.stats.failure == RRB_OK);
        CHECK(twin.stats.lifted == 0);
        CHECK(twin.stats.zero_pivots == 1);
      }
    }
    SECTION("a line: nothing is lumped, and M is the inverse")
    {
      for (const Grid &grid : {Grid{50, 1}, Grid{1, 50}}) {
        HostMatrix   A        = Stencil(grid, false, 0, 29);
        const double smallest = 0.03 * std::pow(3.14159 / 50, 2); /* at most, of eigenvalues with one end held */
        for (LocalInt row = 0; row < A.n; row++)
          for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
            if (A.j[k] == row) A.a[k] += row == 0 ? 3 : -smallest / 8;
        const std::vector<double> x = RandomValues(A.n, 30);
        Twin                      twin(A, grid, Levels(100), where);
        REQUIRE(twin.stats.failure == RRB_OK);
        CHECK(twin.stats.lifted == 0);
        CHECK(Difference(x, twin.Apply(Multiply(A, {}, x))) <= 1e-9);
      }
    }
    SECTION("diagonal entries that are not positive: pivots, with their level and point")
    {
      for (bool nine : {false, true})
        for (double value : {-1., 0., 0.4}) {
          const auto failed = [&](LocalInt row) { /* S_1 has less than value - 0.9 there. */
                                                  HostMatrix A = Stencil({10, 8}, nine, 0.01, 31);
                                                  if (!nine) A = Poisson(10, 8);
                                                  for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
                                                    if (A.j[k] == row) A.a[k] = value;
                                                  const Twin twin(A, {10, 8}, Levels(100), where);
                                                  CHECK(twin.stats.failure == RRB_PIVOT);
                                                  CHECK(twin.stats.row == row);
                                                  return twin.stats.level;
          };
          if (nine && value > 0) continue; /* is lifted: A has it itself */
          CAPTURE(nine, value);
          if (value <= 0) CHECK(failed(43) == 1); /* (3, 4) */
          CHECK(failed(33) == 2);                 /* (3, 3) */
          CHECK(failed(42) == 3);                 /* (2, 4) */
          CHECK(failed(44) == 6);                 /* (4, 4) */
        }
    }
    SECTION("what sums to 0 or more: the same bits as without")
    {
      for (bool nine : {false, true}) {
        const Grid                grid   = {45, 38};
        const HostMatrix          A      = Stencil(grid, nine, 0.01, 32);
        RRBParams                 params = Levels(5);
        const std::vector<double> x      = RandomValues(A.n, 33);
        Twin                      twin(A, grid, params, where);
        const std::vector<double> with = twin.Apply(x);
        params.lift                    = PETSC_FALSE;
        twin.Compute(A, params);
        CHECK(with == twin.Apply(x));
      }
    }
  }
}

TEST_CASE("rrb: the inverse for l = 1 with 5 points, and for tridiagonal matrices with any", "[rrb]")
{
  for (PetscMemType where : Places()) {
    for (const Grid &grid : {Grid{20, 31}, Grid{7, 7}, Grid{33, 1}, Grid{1, 40}}) {
      const HostMatrix          A = Stencil(grid, false, 0.01, 3);
      const std::vector<double> x = RandomValues(A.n, 4);
      Twin                      twin(A, grid, Levels(1), where);
      CHECK(Difference(x, twin.Apply(Multiply(A, {}, x))) <= 1e-11);
    }
    for (const Grid &grid : {Grid{1000, 1}, Grid{1, 777}, Grid{64, 1}})
      for (LocalInt levels : {2, 3, 6, 9, 100}) {
        CAPTURE(where, grid.nx, levels);
        const HostMatrix          A = Stencil(grid, false, 0.001, 5);
        const std::vector<double> x = RandomValues(A.n, 6);
        Twin                      twin(A, grid, Levels(levels), where);
        CHECK(Difference(x, twin.Apply(Multiply(A, {}, x))) <= 1e-9);
      }
  }
}

TEST_CASE("rrb: rows of the identity are kept, couplings that one row alone has are left out and counted", "[rrb]")
{
  const Grid grid = {9, 12};
  for (PetscMemType where : Places())
    for (bool one_sided : {false, true})
      for (bool nine : {false, true})
        for (LocalInt levels : {1, 2, 3, 100}) {
          CAPTURE(where, one_sided, nine, levels);
          const HostMatrix                                           whole = Stencil(grid, nine, 0.01, 8);
          std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(whole.n), kept(whole.n);
          const auto                                                 boundary = [&](LocalInt p) {
            return p % grid.nx == 0 || p % grid.nx == grid.nx - 1 || p / grid.nx == 0 || p / grid.nx == grid.ny - 1;
          };
          PetscInt64 count = 0;
          for (LocalInt row = 0; row < whole.n; row++)
            for (LocalInt k = whole.i[row]; k < whole.i[row + 1]; k++) {
              const LocalInt column = whole.j[k];
              const double   value  = boundary(row) ? (double)(column == row) : whole.a[k];
              const bool     gone   = !boundary(row) && boundary(column);
              if (gone) count++;
              if (!gone || one_sided) rows[row].push_back({column, value}); /* with explicit zeros in the rows of the identity */
              if (!gone) kept[row].push_back({column, value});
            }
          const HostMatrix          A = FromRows(rows), symmetric = FromRows(kept);
          const std::vector<double> x = RandomValues(A.n, 9);
          Twin                      twin(A, grid, Levels(levels), where);
          REQUIRE(twin.stats.failure == RRB_OK);
          CHECK(twin.stats.one_sided == (one_sided ? count : 0));
          CHECK(Difference(x, twin.Apply(Multiply(symmetric, Factor(symmetric, grid, levels).R, x))) <= 1e-11);
          const std::vector<double> y = twin.Apply(x);
          for (LocalInt p = 0; p < A.n; p++)
            if (boundary(p)) CHECK(y[p] == Approx(x[p]).epsilon(1e-15));
        }
}

namespace
{

struct Tensor {
  double xx, yy, xy;
};

/* -div(K grad u) on squares, with u = 0 all around: 9 points of bilinear elements, or 5 points, without xy. */
HostMatrix Elliptic(Grid grid, bool nine, Tensor K)
{
  const double x = nine ? (K.yy - 2 * K.xx) / 3 : -K.xx, y = nine ? (K.xx - 2 * K.yy) / 3 : -K.yy, both = -(K.xx + K.yy) / 6;
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(grid.nx * grid.ny);
  for (LocalInt row = 0; row < grid.nx * grid.ny; row++)
    for (LocalInt dy = -1; dy <= 1; dy++)
      for (LocalInt dx = -1; dx <= 1; dx++) {
        const LocalInt to_x = row % grid.nx + dx, to_y = row / grid.nx + dy;
        if (to_x < 0 || to_x >= grid.nx || to_y < 0 || to_y >= grid.ny || (!nine && dx && dy)) continue;
        const double value = !dx && !dy ? (nine ? 4. / 3 : 2.) * (K.xx + K.yy) : !dy ? x : !dx ? y : both - dx * dy * K.xy / 2;
        rows[row].push_back({to_y * grid.nx + to_x, value});
      }
  return FromRows(rows);
}

/* Rows whose tensor has eigenvalues that differ by a factor of 100 or more, by the roots of its characteristic polynomial. */
PetscInt64 AnisotropicRows(const HostMatrix &A, Grid grid)
{
  PetscInt64 count = 0;
  for (LocalInt row = 0; row < A.n; row++) {
    long double xx = 0, yy = 0, xy = 0;
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const LocalInt dx = A.j[k] % grid.nx - row % grid.nx, dy = A.j[k] / grid.nx - row / grid.nx;
      xx -= (long double)A.a[k] * dx * dx;
      yy -= (long double)A.a[k] * dy * dy;
      xy -= (long double)A.a[k] * dx * dy;
    }
    const long double middle = (xx + yy) / 2, radius = std::sqrt((xx - yy) * (xx - yy) / 4 + xy * xy);
    count += middle > 0 && middle + radius >= 99.9999L * (middle - radius);
  }
  return count;
}

} // namespace

TEST_CASE("rrb: anisotropic rows are counted where a level lumps", "[rrb][anisotropic]")
{
  for (PetscMemType where : Places())
    for (const Grid &grid : {Grid{33, 20}, Grid{40, 1}, Grid{1, 9}})
      for (bool nine : {false, true})
        for (const Tensor &K : {Tensor{1, 1, 0}, Tensor{1, 1. / 90, 0}, Tensor{1, 0.01, 0}, Tensor{1. / 110, 1, 0},
                                Tensor{1e200, 1e190, 0}, Tensor{1, 1, 0.97}, Tensor{1, 1, -0.999}})
          for (LocalInt levels : {1, 2, 100}) {
            if (K.xy && !nine) continue;
            CAPTURE(where, grid.nx, grid.ny, nine, K.xx, K.yy, K.xy, levels);
            const HostMatrix A = Elliptic(grid, nine, K);
            const Twin       twin(A, grid, Levels(levels), where);
            const bool       lumps = grid.nx > 1 && grid.ny > 1 && levels >= (nine ? 1 : 2);
            CHECK(twin.stats.anisotropic == (lumps ? AnisotropicRows(A, grid) : 0));
            if (lumps && K.xx == 1 && K.yy == 0.01) CHECK(twin.stats.anisotropic > A.n / 2); /* this very factor is enough */
            if (lumps && K.xx == 1 && K.yy == 1 && std::abs(K.xy) < 0.98) CHECK(twin.stats.anisotropic == 0);
          }
}

TEST_CASE("rrb: a singular matrix has one zero pivot, and M its null space", "[rrb]")
{
  for (PetscMemType where : Places())
    for (const Grid &grid : {Grid{7, 11}, Grid{16, 16}, Grid{40, 1}, Grid{61, 50}})
      for (bool nine : {false, true})
        for (LocalInt levels : {1, 2, 4, 5, 100}) {
          CAPTURE(where, grid.nx, grid.ny, nine, levels);
          if (grid.nx == 61 && levels < 4) continue;
          const HostMatrix A      = Stencil(grid, nine, 0, 10);
          RRBParams        params = Levels(levels);
          params.singular         = PETSC_TRUE;
          Twin twin(A, grid, params, where);
          REQUIRE(twin.stats.failure == RRB_OK);
          CHECK(twin.stats.zero_pivots == 1);
          if (A.n > 300) continue;
          const Dense         R = Factor(A, grid, levels).R;
          std::vector<double> b = Multiply(A, R, RandomValues(A.n, 11)); /* This right-hand side is in the range. */
          CHECK(Difference(b, Multiply(A, R, twin.Apply(b))) <= 1e-10);
        }
}

/* Pivots of stiff inclusions are as small beside the diagonal as that of the null space, of which rounding may leave anything. */
TEST_CASE("rrb: a singular matrix has one zero pivot, whatever its contrast", "[rrb]")
{
  for (PetscMemType where : Places())
    for (double contrast : {1., 1e-9, 1e4, 1e6, 1e7, 1e8, 1e9, 1e10, 1e12})
      for (LocalInt levels : {0, 1, 2, 5, 100}) {
        const Grid grid = {47, 38};
        CAPTURE(where, contrast, levels);
        RRBParams params   = Levels(levels);
        params.singular    = PETSC_TRUE;
        const HostMatrix A = Inclusions(grid.nx, grid.ny, contrast);
        const Twin       twin(A, grid, params, where);
        CHECK(twin.stats.failure == RRB_OK);
        CHECK(twin.stats.zero_pivots == 1);
        CHECK(twin->singular);
        HostMatrix block = A; /* as a rank's, whose couplings to another are left out */
        for (LocalInt k = block.i[5]; k < block.i[6]; k++)
          if (block.j[k] == 5) block.a[k] *= 1 + 1e-6;
        const Twin definite(block, grid, params, where);
        CHECK(definite.stats.zero_pivots == 0);
        CHECK(!definite->singular);
      }
}

TEST_CASE("rrb: what cannot be factored is named", "[rrb]")
{
  const Grid grid = {10, 8};
  for (PetscMemType where : Places()) {
    CAPTURE(where);
    const HostMatrix good = Stencil(grid, true, 0.01, 12);
    const auto       with = [&](std::vector<std::array<double, 3>> entries) {
      std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(good.n);
      for (LocalInt row = 0; row < good.n; row++)
        for (LocalInt k = good.i[row]; k < good.i[row + 1]; k++) rows[row].push_back({good.j[k], good.a[k]});
      for (const auto &entry : entries) {
        auto      &row   = rows[(size_t)entry[0]];
        const auto there = std::find_if(row.begin(), row.end(), [&](const auto &e) { return e.first == (LocalInt)entry[1]; });
        if (there == row.end()) row.push_back({(LocalInt)entry[1], entry[2]});
        else there->second = entry[2];
      }
      return FromRows(rows);
    };
    const auto fails = [&](const std::vector<std::array<double, 3>> &entries, RRBFailure failure, LocalInt row, LocalInt column) {
      const Twin twin(with(entries), grid, Levels(2), where);
      CHECK(twin.stats.failure == failure);
      CHECK(twin.stats.row == row);
      CHECK(twin.stats.column == column);
    };
    SECTION("a column that is no neighbour's: the end of the line before, and two lines on")
    {
      fails({{40, 39, -1}, {39, 40, -1}, {70, 5, -1}}, RRB_PATTERN, 39, 40);
      fails({{43, 63, -1}, {63, 43, -1}}, RRB_PATTERN, 43, 63);
      const Twin zero(with({{43, 63, 0}}), grid, Levels(2), where); /* This value is not looked at. */
      CHECK(zero.stats.failure == RRB_OK);
    }
    SECTION("a pair that differs")
    {
      fails({{55, 56, -9}, {12, 22, -9}, {70, 71, -9}}, RRB_UNSYMMETRIC, 12, 22);
      const Twin close(with({{55, 56, good.At(55, 56) * (1 + 1e-12)}}), grid, Levels(2), where);
      CHECK(close.stats.failure == RRB_OK);
      const double noise = 1e-15 * good.At(55, 55);
      /* Beside the diagonal this value is nothing. */
      const Twin rounding(with({{55, 56, noise}, {56, 55, -noise}, {31, 32, 0}, {32, 31, noise}}), grid, Levels(2), where);
      CHECK(rounding.stats.failure == RRB_OK);
      CHECK(rounding.stats.one_sided == 0);
      const Twin more(with({{31, 32, 0}, {32, 31, 100 * noise}}), grid, Levels(2), where);
      CHECK(more.stats.failure == RRB_OK);
      CHECK(more.stats.one_sided == 1);
    }
    SECTION("pivots")
    {
      const auto bad_pivot = [&](LocalInt row, double value, LocalInt levels, LocalInt level) {
        const Twin twin(with({{(double)row, (double)row, value}}), grid, Levels(levels), where);
        CHECK(twin.stats.failure == RRB_PIVOT);
        CHECK(twin.stats.level == (level ? level : twin->levels));
        CHECK(twin.stats.row == row);
      };
      for (double value : {-1., 0., std::nan(""), (double)INFINITY}) {
        CAPTURE(value);
        bad_pivot(43, value, 100, 1); /* (3, 4) */
      }
      for (double value : {std::nan(""), (double)INFINITY, -(double)INFINITY})
        for (LocalInt level : {1, 2, 100}) { /* A coupling that is no number is no question of symmetry. */
          CAPTURE(value, level);
          const Twin both(with({{43, 44, value}, {44, 43, value}}), grid, Levels(level), where),
            one(with({{43, 44, value}}), grid, Levels(level), where);
          CHECK(both.stats.failure == RRB_PIVOT);
          CHECK(one.stats.failure == RRB_PIVOT);
        }
      bad_pivot(33, -1, 100, 2); /* (3, 3) */
      bad_pivot(0, -50, 100, 0); /* the last one */
      bad_pivot(44, -50, 2, 2);  /* remains */
      /* This is a definite matrix that is said to be singular. */
      RRBParams params = Levels(100);
      params.singular  = PETSC_TRUE;
      const Twin definite(good, grid, params, where);
      CHECK(definite.stats.failure == RRB_OK);
      CHECK(definite.stats.zero_pivots == 0);
    }
  }
}

/* The host's limit needs gigabytes: it is in the test of the PC. */
static HostMatrix TimesPowerOf2(HostMatrix A, int exponent)
{
  for (PetscScalar &a : A.a) a = std::ldexp(a, exponent);
  return A;
}

static std::vector<double> TimesPowerOf2(std::vector<double> x, int exponent)
{
  for (double &value : x) value = std::ldexp(value, exponent);
  return x;
}

TEST_CASE("rrb: powers of 2 in the matrix are powers of 2 in the factor, as far as numbers go", "[rrb]")
{
  const Grid grid = {23, 18};
  for (PetscMemType where : Places())
    for (bool nine : {false, true})
      for (LocalInt levels : {1, 2, 3, 100}) {
        const HostMatrix          A = SomeSumsNegative(grid, nine, 3);
        const std::vector<double> x = RandomValues(A.n, 4);
        Twin                      twin(A, grid, Levels(levels), where);
        const std::vector<double> y = twin.Apply(x);
        std::vector<double>       l, d;
        twin.Get(&l, &d);
        CHECK((twin.stats.lifted > 0) == (nine || levels > 1));
        for (int exponent : {-950, -700, -530, 530, 700, 950}) {
          CAPTURE(where, nine, levels, exponent);
          std::vector<double> scaled_l, scaled_d;
          Twin                scaled(TimesPowerOf2(A, exponent), grid, Levels(levels), where);
          REQUIRE(scaled.stats.failure == RRB_OK);
          CHECK(scaled.stats.lifted == twin.stats.lifted);
          scaled.Get(&scaled_l, &scaled_d);
          CHECK((scaled_l == l));
          CHECK((TimesPowerOf2(scaled_d, exponent) == d));
          CHECK((TimesPowerOf2(scaled.Apply(x), exponent) == y));
        }
      }
}

TEST_CASE("rrb: a pivot whose inverse is no normal number is named", "[rrb]")
{
  const Grid grid = {10, 8};
  for (PetscMemType where : Places())
    for (bool nine : {false, true}) {
      CAPTURE(where, nine);
      const HostMatrix good = Stencil(grid, nine, 0.01, 12);
      for (int exponent : {-1040, -1030, 1021}) {
        CAPTURE(exponent);
        const Twin twin(TimesPowerOf2(good, exponent), grid, Levels(2), where);
        CHECK(twin.stats.failure == RRB_RANGE);
        CHECK(twin.stats.level == 1);
        if (exponent < 0) CHECK(twin.stats.row == 1);
      }
      for (double value : {1e-309, 1e308}) { /* (4, 4), which remains */
        CAPTURE(value);
        HostMatrix A = good;
        for (LocalInt row = 0; row < A.n; row++)
          for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
            if (row == 44 || A.j[k] == 44) A.a[k] = row == A.j[k] ? value : 0;
        const Twin twin(A, grid, Levels(2), where);
        CHECK(twin.stats.failure == RRB_RANGE);
        CHECK(twin.stats.level == 2);
        CHECK(twin.stats.row == 44);
      }
    }
}

TEST_CASE("rrb: what is left of the levels is too much", "[rrb][gpu]")
{
  NEEDS_DEVICE();
  const CSRCopy   copy(Stencil(Grid{200, 100}, false, 0.01, 14), PETSC_MEMTYPE_CUDA);
  const RRBParams params = Levels(1);
  RRBFactor      *F      = nullptr;
  RRBStats        stats;
  Errors          errors;
  CHECK(RRBComputeFactor_CUDA(&copy.view, 200, 100, &params, &F, &stats) != 0);
  CHECK(Contains(errors.text, "raise -pc_rrb_levels"));
  CHECK(RRBDestroy_CUDA(&F) == PETSC_SUCCESS);
}

TEST_CASE("rrb: how far entries are from the diagonal", "[rrb]")
{
  for (PetscMemType where : Places()) {
    const auto offsets = [&](const HostMatrix &A, LocalInt *largest, PetscBool *next) {
      const CSRCopy copy(A, where);
      MUST((PetscMemTypeDevice(where) ? RRBOffsets_CUDA : RRBOffsets_Host)(&copy.view, largest, next));
    };
    LocalInt  largest;
    PetscBool next;
    for (const Grid &of : {Grid{10, 8}, Grid{10, 1}, Grid{300, 200}})
      for (bool nine : {false, true}) {
        CAPTURE(of.nx, of.ny, nine);
        offsets(Stencil(of, nine, 0.01, 15), &largest, &next);
        CHECK(largest == (of.ny == 1 ? 1 : of.nx + nine));
        if (of.ny > 1) CHECK((bool)next == nine);
      }
    HostMatrix identity = Stencil({10, 8}, false, 0.01, 15);
    for (LocalInt row = 0; row < identity.n; row++)
      for (LocalInt k = identity.i[row]; k < identity.i[row + 1]; k++) identity.a[k] = identity.j[k] == row;
    offsets(identity, &largest, &next);
    CHECK(largest == 0);
    offsets(HostMatrix(), &largest, &next);
    CHECK(largest == 0);
  }
}

TEST_CASE("rrb: no rows", "[rrb]")
{
  for (PetscMemType where : Places()) {
    Twin twin(HostMatrix(), Grid{0, 0}, RRBParams(), where);
    CHECK(twin.stats.failure == RRB_OK);
    CHECK(twin.Apply({}).empty());
  }
}

/* Columns of L, pivots and an application of the factors of two twins agree. A second application gives the same bits. */
static void CompareFactors(Twin &host, Twin &device, const std::vector<double> &x)
{
  std::vector<double> l, d, l_device, d_device;
  REQUIRE(host.stats.failure == RRB_OK);
  REQUIRE(device.stats.failure == RRB_OK);
  CHECK(host->levels == device->levels);
  CHECK(host->remainder == device->remainder);
  CHECK(host->nine == device->nine);
  CHECK(host.stats.lifted == device.stats.lifted);
  CHECK(host.stats.anisotropic == device.stats.anisotropic);
  host.Get(&l, &d);
  device.Get(&l_device, &d_device);
  CHECK(Difference(l, l_device) <= 1e-13);
  CHECK(Difference(d, d_device) <= 1e-12);
  CHECK(Difference(host.Apply(x), device.Apply(x)) <= 1e-10);
  CHECK(device.Apply(x) == device.Apply(x));
}

namespace
{

/* Each column is what it is alone, to the last bit. */
void CheckColumns(const Backend &backend, const Grid &grid, bool nine, LocalInt levels, const std::vector<LocalInt> &counts)
{
  CAPTURE(backend.name, grid.nx, grid.ny, nine, levels);
  HostMatrix A = Stencil(grid, nine, 0.01, 20);
  Twin       twin(A, grid, Levels(levels), backend.where);
  for (int set_up = 0; set_up < 2; set_up++) {
    for (LocalInt columns : counts) {
      const std::vector<double> x = RandomValues((LocalInt)((size_t)columns * (A.n + 3)), 21), y = twin.ApplyColumns(columns, x);
      for (LocalInt c = 0; c < columns; c++) {
        CAPTURE(columns, c);
        const auto                first = x.begin() + (ptrdiff_t)c * (A.n + 3), mine = y.begin() + (ptrdiff_t)c * (A.n + 2);
        const std::vector<double> alone = twin.Apply(std::vector<double>(first, first + A.n));
        CHECK(std::equal(alone.begin(), alone.end(), mine));
        CHECK((std::isnan(mine[A.n]) && std::isnan(mine[A.n + 1]))); /* what lies between the columns */
      }
    }
    A = Stencil(grid, nine, 0.01, 22);
    twin.Compute(A, Levels(levels)); /* in the memory of the first factor */
  }
}

} // namespace

/* On grids of all kinds that the kernels tell apart. */
TEST_CASE("rrb: several right-hand sides", "[rrb][columns]")
{
  for (const Backend &backend : Backends())
    for (bool nine : {false, true}) {
      CheckColumns(backend, {1, 1}, nine, 1, {1, 3, 4, 5, 9});
      CheckColumns(backend, {31, 17}, nine, 1, {1, 3, 4, 5, 9});
      CheckColumns(backend, {16, 16}, nine, 2, {1, 3, 4, 5, 9});
      for (LocalInt levels : {6, 7, 100}) CheckColumns(backend, {150, 141}, nine, levels, {1, 3, 4, 5, 9});
    }
}

/* A part of the above with as little work as it can have, for tools that watch every access. */
TEST_CASE("rrb: several right-hand sides, on small grids", "[rrb][columns][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (bool nine : {false, true}) {
    CheckColumns(DeviceBackend(), {31, 17}, nine, 1, {5});
    CheckColumns(DeviceBackend(), {33, 34}, nine, 100, {5});
  }
}

/* Each kernel with as little work as it can have, for tools that watch every access: grids of several blocks and of one, both kinds
   of remainder, large and small, and a grid whose odd level alone is eliminated. */
TEST_CASE("rrb: every kernel, on small grids", "[rrb][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (bool nine : {false, true})
    for (const std::pair<Grid, LocalInt> &system : std::vector<std::pair<Grid, LocalInt>>{{{31, 17}, 1},
                                                                                          {{16, 16}, 2},
                                                                                          {{150, 141}, 6},
                                                                                          {{150, 141}, 7},
                                                                                          {{150, 141}, 100}}) {
      const Grid grid = system.first;
      CAPTURE(grid.nx, grid.ny, nine, system.second);
      const HostMatrix          A = Stencil(grid, nine, 0.01, 20);
      const CSRCopy             copy(A, PETSC_MEMTYPE_CUDA);
      const std::vector<double> x = RandomValues(A.n, 21);
      Twin     host(A, grid, Levels(system.second), PETSC_MEMTYPE_HOST), device(A, grid, Levels(system.second), PETSC_MEMTYPE_CUDA);
      LocalInt largest;
      PetscBool next;
      CompareFactors(host, device, x);
      MUST(RRBOffsets_CUDA(&copy.view, &largest, &next));
      CHECK(largest == grid.nx + nine);
      const HostMatrix lifted = SomeSumsNegative(grid, nine, 34);
      for (PetscBool keep_schur : {PETSC_FALSE, PETSC_TRUE}) {
        RRBParams params  = Levels(system.second);
        params.keep_schur = keep_schur;
        host.Compute(lifted, params);
        device.Compute(lifted, params);
        CompareFactors(host, device, x);
      }
    }
}

TEST_CASE("rrb: the twins agree, also on new values in the old memory", "[rrb][gpu]")
{
  NEEDS_DEVICE();
  for (const Grid &grid : kLargeGrids)
    for (bool nine : {false, true})
      for (LocalInt levels : {0, 3, 4, 7, 12, 100}) {
        CAPTURE(grid.nx, grid.ny, nine, levels);
        LocalInt used, most, remainder;
        RRBLevels(grid.nx, grid.ny, levels, &used, &most, &remainder);
        if (remainder > 4000) continue;
        const HostMatrix A = Stencil(grid, nine, 0.01, 16), other = Stencil(grid, !nine, 0.02, 17);
        Twin             host(A, grid, Levels(levels), PETSC_MEMTYPE_HOST), device(A, grid, Levels(levels), PETSC_MEMTYPE_CUDA);
        Twin             second(other, grid, Levels(levels), PETSC_MEMTYPE_CUDA); /* Two factors are there at once. */
        const std::vector<double> x = RandomValues(A.n, 18);
        CompareFactors(host, device, x);
        host.Compute(other, Levels(levels));
        CompareFactors(host, second, x);
        device.Compute(other, Levels(levels));
        CompareFactors(host, device, x);
        CHECK(device.Apply(x) == second.Apply(x));
        device.Compute(other, Levels(levels ? levels + 1 : 100)); /* The number of levels changes. */
        host.Compute(other, Levels(levels ? levels + 1 : 100));
        CompareFactors(host, device, x);
      }
}

TEST_CASE("rrb: the twins lift the same rows", "[rrb][lift][gpu]")
{
  NEEDS_DEVICE();
  for (const Grid &grid : kLargeGrids)
    for (bool nine : {false, true})
      for (LocalInt levels : {0, 2, 3, 7, 100}) {
        if (grid.nx == 1 || grid.ny == 1) continue;
        CAPTURE(grid.nx, grid.ny, nine, levels);
        LocalInt used, most, remainder;
        RRBLevels(grid.nx, grid.ny, levels, &used, &most, &remainder);
        if (remainder > 4000) continue;
        const HostMatrix          A = SomeSumsNegative(grid, nine, 35), other = Stencil(grid, nine, 0.01, 36);
        const std::vector<double> x      = RandomValues(A.n, 37);
        RRBParams                 params = Levels(levels);
        Twin                      host(A, grid, params, PETSC_MEMTYPE_HOST), device(A, grid, params, PETSC_MEMTYPE_CUDA);
        if (host.stats.failure) { /* where nothing is lumped nothing is lifted, and A itself is indefinite on one of these grids */
          CHECK(used == 1);
          CHECK(!nine);
          CHECK(device.stats.failure == host.stats.failure);
          continue;
        }
        CompareFactors(host, device, x);
        if (used > 1 || nine) CHECK(host.stats.lifted > A.n / 10);
        params.keep_schur = PETSC_TRUE;
        device.Compute(A, params);
        CompareFactors(host, device, x);
        host.Compute(other, params); /* none to lift, and again */
        device.Compute(other, params);
        CompareFactors(host, device, x);
        params.lift = PETSC_FALSE;
        device.Compute(other, params);
        CompareFactors(host, device, x);
        params.lift = PETSC_TRUE;
        host.Compute(A, params);
        device.Compute(A, params);
        CompareFactors(host, device, x);
      }
}

/*
   There are more than five entries a row, but those to diagonal neighbours are zeros, so that S_1 is lifted, not A. Then there are
   few entries, but some of them to diagonal neighbours, so that A is lifted.
*/
TEST_CASE("rrb: 5 points in the pattern of 9, and 9 in fewer entries than 5 points have, are lifted for what they are",
          "[rrb][lift]")
{
  const Grid                                                 grid = {17, 14};
  const HostMatrix                                           five = SomeSumsNegative(grid, false, 38);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> padded(five.n), few(five.n);
  for (LocalInt row = 0; row < five.n; row++) {
    for (LocalInt k = five.i[row]; k < five.i[row + 1]; k++) padded[row].push_back({five.j[k], five.a[k]});
    for (LocalInt dx : {-1, 1})
      for (LocalInt dy : {-1, 1})
        if (row % grid.nx + dx >= 0 && row % grid.nx + dx < grid.nx && row / grid.nx + dy >= 0 && row / grid.nx + dy < grid.ny)
          padded[row].push_back({row + dy * grid.nx + dx, 0.});
    few[row] = {{row, row ? 0.999 : 2}}; /* couplings to (x + 1, y + 1), (x + 1, y), and back */
    for (LocalInt to : {-1, 1}) {
      if (row % grid.nx + to < 0 || row % grid.nx + to >= grid.nx) continue;
      few[row].push_back({row + to, -0.25});
      if (row / grid.nx + to >= 0 && row / grid.nx + to < grid.ny) few[row].push_back({row + to * (grid.nx + 1), -0.25});
    }
  }
  const HostMatrix          nine_entries = FromRows(padded), diagonals = FromRows(few);
  const std::vector<double> x = RandomValues(five.n, 39);
  for (PetscMemType where : Places())
    for (LocalInt levels : {2, 3, 5}) {
      CAPTURE(where, levels);
      Twin twin(five, grid, Levels(levels), where), twin_padded(nine_entries, grid, Levels(levels), where);
      REQUIRE(twin_padded.stats.failure == RRB_OK);
      CHECK(!twin_padded->nine);
      CHECK(twin_padded.stats.lifted == twin.stats.lifted);
      CHECK(twin.stats.lifted > 0);
      CHECK(twin.Apply(x) == twin_padded.Apply(x));
      Twin            of_nine(diagonals, grid, Levels(levels), where);
      const Reference reference = Factor(diagonals, grid, levels, true);
      CHECK(of_nine->nine);
      CheckAgainst(reference, diagonals, grid, of_nine);
      CHECK(of_nine.stats.lifted > 0);
    }
}

#if defined(FINEPC_HAVE_CUDA)
TEST_CASE("rrb: the twins agree on another stream than the default", "[rrb][gpu]")
{
  NEEDS_DEVICE();
  const OtherStream other_stream;
  for (const Grid &grid : {Grid{150, 141}, Grid{13, 4}, Grid{1000, 1}})
    for (bool nine : {false, true})
      for (LocalInt levels : {0, 6, 100}) {
        CAPTURE(grid.nx, grid.ny, nine, levels);
        const HostMatrix          A = Stencil(grid, nine, 0.01, 22), other = Stencil(grid, !nine, 0.02, 23);
        const std::vector<double> x = RandomValues(A.n, 24);
        Twin host(A, grid, Levels(levels), PETSC_MEMTYPE_HOST), device(A, grid, Levels(levels), PETSC_MEMTYPE_CUDA);
        CompareFactors(host, device, x);
        host.Compute(other, Levels(levels));
        device.Compute(other, Levels(levels));
        CompareFactors(host, device, x);
      }
}

/* Kernels start early, also those of another application and of another set-up; there are more tiles than a GPU does at once. */
TEST_CASE("rrb: applications right after one another are those that wait", "[rrb][gpu]")
{
  NEEDS_DEVICE();
  const Grid                grid = {901, 803};
  const HostMatrix          A = Stencil(grid, false, 0.01, 25), other = Stencil(grid, false, 0.02, 26);
  const CSRCopy             copy(A, PETSC_MEMTYPE_CUDA), of_other(other, PETSC_MEMTYPE_CUDA);
  const std::vector<double> x     = RandomValues(A.n, 27);
  const size_t              bytes = A.n * sizeof(double);
  for (LocalInt levels : {0, 8, 9}) {
    const RRBParams     params = Levels(levels);
    std::vector<double> results[2];
    for (bool wait : {false, true}) {
      RRBFactor *F = nullptr;
      RRBStats   stats;
      double    *vectors[2], one;
      for (double *&vector : vectors) MUST(ArrayCreate(bytes, PETSC_MEMTYPE_CUDA, (void **)&vector));
      MUST(ArrayCopy(vectors[0], x.data(), bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
      for (const CSRCopy *matrix : {&copy, &of_other, &copy}) {
        MUST(RRBComputeFactor_CUDA(&matrix->view, grid.nx, grid.ny, &params, &F, &stats));
        for (int k = 0; k < 4; k++) {
          MUST(RRBApply_CUDA(F, 1, vectors[k % 2], 0, vectors[1 - k % 2], 0));
          if (wait) MUST(ArrayCopy(&one, vectors[1 - k % 2], sizeof(one), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
        }
      }
      results[wait].resize(A.n);
      MUST(ArrayCopy(results[wait].data(), vectors[0], bytes, PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
      for (double *&vector : vectors) MUST(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&vector));
      MUST(RRBDestroy_CUDA(&F));
    }
    CAPTURE(levels);
    CHECK(std::isfinite(results[0][0]));
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("rrb: an application allocates nothing", "[rrb][gpu]")
{
  NEEDS_DEVICE();
  const Grid       grid = {130, 111};
  const HostMatrix A    = Stencil(grid, false, 0.01, 19);
  const CSRCopy    copy(A, PETSC_MEMTYPE_CUDA);
  const RRBParams  params = Levels(0);
  RRBFactor       *F      = nullptr;
  RRBStats         stats;
  void            *x, *y;
  MUST(RRBComputeFactor_CUDA(&copy.view, grid.nx, grid.ny, &params, &F, &stats));
  MUST(ArrayCreate(A.n * sizeof(double), PETSC_MEMTYPE_CUDA, &x));
  MUST(ArrayCreate(A.n * sizeof(double), PETSC_MEMTYPE_CUDA, &y));
  const std::vector<double> zero(A.n, 0.);
  MUST(ArrayCopy(x, zero.data(), A.n * sizeof(double), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  MUST(RRBApply_CUDA(F, 1, (const PetscScalar *)x, 0, (PetscScalar *)y, 0));
  const PetscLogDouble before = DeviceBytes();
  const long           count = CountAllocations([&] { MUST(RRBApply_CUDA(F, 1, (const PetscScalar *)x, 0, (PetscScalar *)y, 0)); });
  CHECK(count == 0);
  CHECK(DeviceBytes() == before);
  MUST(ArrayDestroy(PETSC_MEMTYPE_CUDA, &x));
  MUST(ArrayDestroy(PETSC_MEMTYPE_CUDA, &y));
  MUST(RRBDestroy_CUDA(&F));
}
#endif
