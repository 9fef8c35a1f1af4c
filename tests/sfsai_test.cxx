/* The factor on a static pattern: by hand, by its properties, against the paper's formulas as they stand, and host against CUDA. */
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "covering.h"
#include "sparse/dense.h"
#include "compare.h"

namespace
{

SFSAIParams Params(FinePCPrecision setup, FinePCPrecision factor, LocalInt power = 2)
{
  SFSAIParams params;
  params.setup_precision  = setup;
  params.factor_precision = factor;
  params.power            = power;
  return params;
}

SFSAIParams Double(LocalInt power = 2)
{
  return Params(FINEPC_DOUBLE, FINEPC_DOUBLE, power);
}

/* SFSAIPattern_Host or _CUDA: i and j, and the stats. */
HostFactor FindPattern(const HostMatrix &A, const SFSAIParams &params, PetscMemType where)
{
  const CSRCopy          copy(A, where);
  std::vector<PetscReal> s(A.n);
  void                  *s_copy = nullptr;
  CSR                    G      = {};
  HostFactor             F;

  F.stats = FSAIStats{};
  for (LocalInt row = 0; row < A.n; row++) s[row] = 1 / std::sqrt(A.At(row, row));
  MUST(ArrayCreate(A.n * sizeof(PetscReal), where, &s_copy));
  MUST(ArrayCopy(s_copy, s.data(), A.n * sizeof(PetscReal), where, PETSC_MEMTYPE_HOST));
  const auto find = PetscMemTypeDevice(where) ? SFSAIPattern_CUDA : SFSAIPattern_Host;
  MUST(find({&copy.view, 0, nullptr}, (const PetscReal *)s_copy, &params, &G, &F.stats));
  REQUIRE((G.rows == A.n && G.columns == A.n && G.precision == params.factor_precision && G.where == where));
  F.rows = A.n;
  F.i.resize(A.n + 1);
  F.j.resize(G.nnz);
  MUST(ArrayCopy(F.i.data(), G.i, F.i.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, where));
  MUST(ArrayCopy(F.j.data(), G.j, F.j.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, where));
  MUST(CSRDestroy(&G));
  MUST(ArrayDestroy(where, &s_copy));
  return F;
}

/*
   (3.4): largest |[G~ A]_ij|, j in P_i, relative to the bound of a backward stable solve and of the rounding of G, everything
   with A scaled to unit diagonal; its norm is at most 2.
*/
double ErrorOfEquations(const HostMatrix &A, const HostFactor &F, const SFSAIParams &params)
{
  const double        u = std::max(Unit(params.setup_precision), Unit(params.factor_precision));
  std::vector<double> g(A.n, 0), diagonal(A.n);
  double              worst = 0;
  for (LocalInt row = 0; row < A.n; row++) diagonal[row] = A.At(row, row);
  for (LocalInt i = 0; i < F.rows; i++) {
    double norm = 1;
    g[i]        = 1;
    for (LocalInt k = F.i[i]; k < F.i[i + 1]; k++) {
      g[F.j[k]] = F.a[k] * std::sqrt(diagonal[F.j[k]] / diagonal[i]);
      norm += g[F.j[k]] * g[F.j[k]];
    }
    for (LocalInt k = F.i[i]; k < F.i[i + 1]; k++) {
      const LocalInt j   = F.j[k];
      double         sum = 0;
      for (LocalInt e = A.i[j]; e < A.i[j + 1]; e++) sum += A.a[e] / std::sqrt(diagonal[j] * diagonal[A.j[e]]) * g[A.j[e]];
      worst = std::max(worst, std::fabs(sum) / (8 * (F.Length(i) + 2) * u * std::sqrt(norm)));
    }
    for (LocalInt k = F.i[i]; k < F.i[i + 1]; k++) g[F.j[k]] = 0;
    g[i] = 0;
  }
  return worst;
}

/* The same nonzeros, still dominated by the diagonal. */
HostMatrix OtherValues(HostMatrix A)
{
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] != row) A.a[k] *= 0.5 + 0.5 * std::cos((double)(row + A.j[k]));
  return A;
}

/* Some pairs of entries become zeros that stay stored. */
HostMatrix WithStoredZeros(HostMatrix A)
{
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] != row && (row + A.j[k]) % 3 == 0) A.a[k] = 0;
  return A;
}

/* A pattern whose row `row` has `length` columns, spread over all before it, with the diagonal; other rows have two at most. */
HostMatrix LongRows(LocalInt n, const std::vector<LocalInt> &lengths)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  for (LocalInt row = 0; row < n; row++) {
    const size_t   place  = n - 1 - row;
    const LocalInt length = place < lengths.size() ? lengths[place] : 2;
    for (LocalInt k = 0; k < std::min(length - 1, row); k++)
      rows[row].emplace_back((LocalInt)((long long)k * row / std::max<LocalInt>(length - 1, 1)), NAN);
    rows[row].emplace_back(row, NAN);
  }
  return FromRows(rows);
}

/*
   A few rows with very many columns, the last ones: row t of them is connected with lengths[t] unknowns among the first ones,
   which are `stride` apart, and with its neighbours among the long rows; the first ones are a chain.
*/
HostMatrix Stars(LocalInt n, const std::vector<LocalInt> &lengths, LocalInt stride, std::uint64_t seed)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  const LocalInt                                             first = n - (LocalInt)lengths.size();
  Random                                                     random(seed);
  const auto                                                 add = [&](LocalInt p, LocalInt q) {
    const double value = random.Between(-1, 1);
    rows[p].emplace_back(q, value);
    rows[q].emplace_back(p, value);
  };
  for (LocalInt p = 1; p < first; p++) add(p, p - 1);
  for (LocalInt t = 0; t < (LocalInt)lengths.size(); t++) {
    for (LocalInt k = 0; k < lengths[t] && (long long)k * stride + t < first; k++) add(first + t, k * stride + t);
    if (t) add(first + t, first + t - 1);
  }
  for (LocalInt p = 0; p < n; p++) {
    double sum = 1;
    for (const auto &entry : rows[p]) sum += std::fabs(entry.second);
    rows[p].emplace_back(p, sum * random.Between(1, 2));
  }
  return FromRows(rows);
}

/* Each row of a graph becomes a node of k unknowns, and each entry a full block. It is as dominated by its diagonal as others. */
HostMatrix WithNodes(const HostMatrix &graph, LocalInt k, std::uint64_t seed)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows((size_t)graph.n * k);
  Random                                                     random(seed);
  for (LocalInt row = 0; row < graph.n * k; row++)
    for (LocalInt e = graph.i[row / k]; e < graph.i[row / k + 1]; e++)
      for (LocalInt column = graph.j[e] * k; column < std::min((graph.j[e] + 1) * k, row); column++) {
        const double value = random.Between(-1, 1);
        rows[row].emplace_back(column, value);
        rows[column].emplace_back(row, value);
      }
  for (LocalInt row = 0; row < graph.n * k; row++) {
    double sum = k == 1 && rows[row].empty();
    for (const auto &entry : rows[row]) sum += std::fabs(entry.second);
    rows[row].emplace_back(row, (1 + kDominance) * sum);
  }
  return FromRows(rows);
}

} // namespace

/* As with aFSAI: [4 2; 2 16]: row 1 has P = {0}, g = -1/2, psi = 15. */
TEST_CASE("sfsai by hand, 2 x 2", "[sfsai]")
{
  const HostMatrix A = FromDense(2, {4, 2, 2, 16});
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const HostFactor F = ComputeFactor(A, Params(p.setup, p.factor, 1), backend.where);
    CHECK(F.i == std::vector<LocalInt>{0, 0, 1});
    CHECK(F.j == std::vector<LocalInt>{0});
    CHECK(F.a == std::vector<double>{-0.5});
    CHECK(F.d == std::vector<double>{0.25, 1. / 15});
    CHECK(F.stats.max_row == 2);
    CHECK(F.stats.log_psi_before == Approx((std::log(4.) + std::log(16.)) / 2));
    CHECK(F.stats.log_psi_after == Approx((std::log(4.) + std::log(15.)) / 2));
    CHECK(F.stats.double_rows + F.stats.diagonal_rows + F.stats.capped_rows + F.stats.dropped == 0);
    CHECK(F.stats.work_bytes > 0);
  });
}

/*
   [4 -1 0; -1 4 -1; 0 -1 4], scaled 1 and -1/4 exactly:
     row 1: P = {0}, g = 1/4, psi = 4 - 1/4 = 15/4.
     row 2, k = 1: P = {1}, the same.
     row 2, k = 2: P = {0, 1}, [4 -1; -1 4] g = (0, 1) gives g = (1/15, 4/15), psi = 4 - 4/15 = 56/15.
   The postfilter's norm of that row is sqrt(1 + 17/225): 1/15 is below 0.1 of it, 4/15 is not, and what is left of row 2 is
   (0, 4/15) with psi = 4 - 8/15 + 64/225 = 844/225.
*/
TEST_CASE("sfsai by hand, 3 x 3 tridiagonal", "[sfsai]")
{
  const HostMatrix A = FromDense(3, {4, -1, 0, -1, 4, -1, 0, -1, 4});
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const double u     = 16 * std::max(Unit(p.setup), Unit(p.factor));
    const auto   check = [&](const SFSAIParams &params, const std::vector<LocalInt> &j, const std::vector<double> &a,
                           const std::vector<double> &psi) {
      CAPTURE(params.power, params.prefilter, params.postfilter, params.max_row);
      const HostFactor F = ComputeFactor(A, params, backend.where);
      REQUIRE(F.j == j);
      for (size_t k = 0; k < a.size(); k++) CHECK(std::fabs(F.a[k] - a[k]) <= u);
      for (size_t k = 0; k < psi.size(); k++) CHECK(std::fabs(F.d[k] - 1 / psi[k]) <= u);
      return F.stats;
    };
    SFSAIParams params = Params(p.setup, p.factor, 1);
    check(params, {0, 1}, {0.25, 0.25}, {4, 15. / 4, 15. / 4});
    params.prefilter = std::nextafter(0.25, 0.);
    check(params, {0, 1}, {0.25, 0.25}, {4, 15. / 4, 15. / 4});
    params.prefilter = 0.25; /* at the threshold: not kept */
    check(params, {}, {}, {4, 4, 4});

    params = Params(p.setup, p.factor, 2);
    check(params, {0, 0, 1}, {0.25, 1. / 15, 4. / 15}, {4, 15. / 4, 56. / 15});
    params.max_row = 2;
    CHECK(check(params, {0, 1}, {0.25, 0.25}, {4, 15. / 4, 15. / 4}).capped_rows == 1);
    params            = Params(p.setup, p.factor, 7); /* more than there is */
    params.postfilter = 0.1;
    CHECK(check(params, {0, 1}, {0.25, 4. / 15}, {4, 15. / 4, 844. / 225}).dropped == 1);
  });
}

/*
   5 points on a grid of 6 a line, a point i away from the boundary, scaled couplings 1/4. k = 2 finds i-12, i-7, i-6, i-5, i-2,
   i-1, with w_1 = 1 at i, 1/4 at i-1 and i-6;  w_2 = 1/2 at i-1 and i-6, 2/16 at i-7, 1/16 at i-12, i-5 and i-2.
*/
TEST_CASE("the cap: largest weights, and the smaller column among equals", "[sfsai]")
{
  const LocalInt   nx = 6;
  const HostMatrix A  = Poisson(nx, 6);
  for (const Backend &backend : Backends())
    for (LocalInt max_row = 1; max_row <= 8; max_row++) {
      CAPTURE(backend.name, max_row);
      SFSAIParams params                = Double(2);
      params.max_row                    = max_row;
      const HostFactor            F     = ComputeFactor(A, params, backend.where);
      const std::vector<LocalInt> order = {nx, 1, nx + 1, 2 * nx, nx - 1, 2}; /* distances */
      for (LocalInt y = 2; y < 6; y++)
        for (LocalInt x = 2; x < nx - 1; x++) {
          std::set<LocalInt> expected;
          for (LocalInt k = 0; k < std::min<LocalInt>(max_row - 1, (LocalInt)order.size()); k++)
            expected.insert(y * nx + x - order[k]);
          CAPTURE(x, y);
          CHECK(RowPattern(F, y * nx + x) == expected);
        }
      CHECK((F.stats.capped_rows > 0) == (max_row < 7));
      CHECK(F.stats.max_row == std::min<LocalInt>(max_row, 7));
      CHECK(ErrorOfDiagonal(A, F, params).over_bound <= 1);
    }
}

TEST_CASE("sfsai: diag(G A G^T) = 1", "[sfsai]")
{
  std::vector<Named> matrices = SmallMatrices();
  matrices.push_back({"Poisson 2D", Poisson(40, 40)});
  matrices.push_back({"Poisson 3D", Poisson(12, 12, 12)});
  for (const Backend &backend : Backends())
    for (const Named &m : matrices)
      for (const Precisions &p : kAllPrecisions)
        for (LocalInt power : {1, 2, 3}) {
          CAPTURE(backend.name, m.name, p.setup, p.factor, power);
          const SFSAIParams   params = Params(p.setup, p.factor, power);
          const HostFactor    F      = ComputeFactor(m.A, params, backend.where);
          const DiagonalError error  = ErrorOfDiagonal(m.A, F, params);
          CHECK(error.over_bound <= 1);
          CHECK(error.worst <= (p.setup == FINEPC_DOUBLE ? 1e-12 : 1e-6)); /* well conditioned: |G||A||G|^T is below 20 */
          CHECK(ErrorOfEquations(m.A, F, params) <= 1);
          CHECK(F.stats.double_rows + F.stats.diagonal_rows == 0);
        }
}

TEST_CASE("sfsai: diag(G A G^T) = 1 on real matrices", "[sfsai][long]")
{
  for (const Backend &backend : Backends())
    for (const auto &[name, power, setup, factor] : Covering(kStructural, std::vector<LocalInt>{1, 2}, kPrecisions, kPrecisions)) {
      CAPTURE(backend.name, name, setup, factor, power);
      const HostMatrix A        = Shared(name);
      SFSAIParams      params   = Params(setup, factor, power);
      params.max_row            = power == 2 ? 12 : 0;
      const HostFactor    F     = ComputeFactor(A, params, backend.where);
      const DiagonalError error = ErrorOfDiagonal(A, F, params);
      CHECK(error.over_bound <= 1);
      CHECK(error.worst <= 1e-3); /* u / kFSAISmallestPivotSingle */
      CHECK(F.stats.diagonal_rows == 0);
      CHECK(F.stats.log_psi_after < F.stats.log_psi_before);
      CHECK((F.stats.capped_rows > 0) == (power == 2));
      CHECK((power == 1 || F.stats.max_row == 12));
    }
}

TEST_CASE("a power that is large enough gives the inverse", "[sfsai]")
{
  for (const Backend &backend : Backends())
    for (const Named &m : SmallMatrices()) {
      CAPTURE(backend.name, m.name);
      SFSAIParams params = Double(m.A.n);
      CHECK(ErrorOfInverse(m.A, ComputeFactor(m.A, params, backend.where)) <= 1e-12);
      params.setup_precision = FINEPC_SINGLE;
      CHECK(ErrorOfInverse(m.A, ComputeFactor(m.A, params, backend.where)) <= 1e-4);
    }
}

TEST_CASE("power 0, postfilter 1, prefilter 1, rows of one entry: Jacobi to the last bit", "[sfsai]")
{
  std::vector<Named> matrices = SmallMatrices();
  matrices.push_back({"bcsstk24", Shared("bcsstk24")});
  ForEachPrecision(matrices, [&](const Backend &backend, const Named &m, const Precisions &p) {
    const HostFactor F = ComputeFactor(m.A, Params(p.setup, p.factor, 0), backend.where);
    CHECK(IsDiagonal(F, m.A));
    CHECK(F.stats.log_psi_after == Approx(F.stats.log_psi_before));
    CHECK(F.stats.max_row == 1);

    SFSAIParams      params   = Params(p.setup, p.factor, 1);
    const HostFactor whole    = ComputeFactor(m.A, params, backend.where);
    params.postfilter         = 1;
    const HostFactor filtered = ComputeFactor(m.A, params, backend.where);
    CHECK(IsDiagonal(filtered, m.A));
    CHECK(filtered.stats.dropped == whole.nnz());
    params           = Params(p.setup, p.factor);
    params.prefilter = 1; /* an SPD matrix scaled to unit diagonal has smaller entries than that */
    CHECK(IsDiagonal(ComputeFactor(m.A, params, backend.where), m.A));
    params         = Params(p.setup, p.factor);
    params.max_row = 1;
    CHECK(IsDiagonal(ComputeFactor(m.A, params, backend.where), m.A));
  });
}

TEST_CASE("the pattern is the boolean power, and a capped one has the largest weights", "[sfsai]")
{
  std::vector<Named> matrices = SmallMatrices();
  matrices.push_back({"graph of 5 a row", RandomGraph(120, 5, 21)});
  matrices.push_back({"graph with stored zeros", WithStoredZeros(RandomGraph(90, 9, 22))});
  const std::vector<LocalInt> powers = {0, 1, 2, 3, 4, 100, LOCAL_INT_MAX}; /* the search ends when no product finds a new column */
  for (const Backend &backend : Backends())
    for (const auto &[m, power, max_row, prefilter] :
         Covering(matrices, powers, std::vector<LocalInt>{0, 1, 2, 5, 12}, std::vector{0., 1e-300, 0.05, 0.2})) {
      CAPTURE(backend.name, m.name, prefilter, power, max_row);
      SFSAIParams params     = Params(FINEPC_SINGLE, FINEPC_SINGLE, power);
      params.prefilter       = prefilter;
      params.max_row         = max_row;
      const HostFactor F     = FindPattern(m.A, params, backend.where);
      SFSAIParams      whole = params;
      whole.max_row          = 0;
      LocalInt wrong = 0, capped = 0;
      for (LocalInt row = 0; row < m.A.n; row++) {
        bool               tie, no_tie;
        std::set<LocalInt> expected = ReferencePattern(m.A, row, params, &tie), mine = RowPattern(F, row);
        mine.insert(row);
        wrong += mine != expected && !tie;
        wrong += mine.size() != expected.size();
        /* zeros alone have equal weights */
        wrong += tie && (std::strcmp(m.name, "graph with stored zeros") || prefilter > 0);
        if (max_row) capped += (LocalInt)ReferencePattern(m.A, row, whole, &no_tie).size() > max_row;
      }
      CHECK(wrong == 0);
      CHECK(F.stats.capped_rows == capped);
    }
}

TEST_CASE("sfsai: every option follows the paper's formulas", "[sfsai]")
{
  for (const Backend &backend : Backends())
    for (const auto &[m, power, prefilter, postfilter, max_row, precision] :
         Covering(SmallMatrices(), std::vector<LocalInt>{1, 2, 3}, std::vector{0., 0.05, 0.2}, std::vector{0., 0.03, 0.2},
                  std::vector<LocalInt>{0, 3, 9}, kPrecisions)) {
      SFSAIParams params = Params(precision, precision, power);
      params.prefilter   = prefilter;
      params.postfilter  = postfilter;
      params.max_row     = max_row;
      CAPTURE(backend.name, m.name, precision, params.power, params.prefilter, params.postfilter, params.max_row);
      const HostFactor F         = ComputeFactor(m.A, params, backend.where);
      const LocalInt   different = CheckAgainstReference(m.A, F, params, kLambdaMin);
      if (precision == FINEPC_DOUBLE || params.postfilter == 0) CHECK(different == 0);
      else CHECK(different <= std::max<LocalInt>(2, m.A.n / 20));
      CHECK(ErrorOfDiagonal(m.A, F, params).over_bound <= 1);
      CHECK(F.stats.double_rows + F.stats.diagonal_rows == 0);
      LocalInt longest = 0;
      for (LocalInt row = 0; row < F.rows; row++) longest = std::max(longest, F.Length(row) + 1);
      CHECK(F.stats.max_row == longest);
    }
}

TEST_CASE("on the pattern of aFSAI it gives the same G", "[sfsai]")
{
  ForEachPrecision(SmallMatrices(), [&](const Backend &backend, const Named &m, const Precisions &p) {
    AFSAIParams adaptive;
    adaptive.setup_precision  = p.setup;
    adaptive.factor_precision = p.factor;
    const HostFactor  F       = ComputeFactor(m.A, adaptive, backend.where);
    const HostMatrix  S       = PatternOf(F);
    const SFSAIParams params  = Params(p.setup, p.factor);
    const HostFactor  G       = ComputeFactor(m.A, params, backend.where, &S);
    REQUIRE(SamePattern(F, G));
    CHECK(CheckTwins(m.A, F, G, params, kLambdaMin) == 0);
    CHECK(G.stats.log_psi_after == Approx(F.stats.log_psi_after).epsilon(1e-5));
  });
}

TEST_CASE("a given pattern: its lower part alone counts", "[sfsai]")
{
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    /* entries of A outside of S, and of S outside of A */
    const HostMatrix A = RandomGraph(150, 9, 23), B = RandomGraph(150, 12, 24);
    CAPTURE(backend.name, p.setup, p.factor);
    const auto part = [&](bool upper, bool diagonal) {
      HostMatrix S;
      S.n = B.n;
      for (LocalInt row = 0; row < B.n; row++) {
        for (LocalInt k = B.i[row]; k < B.i[row + 1]; k++)
          if (B.j[k] < row || (B.j[k] == row && diagonal && row % 3) || (B.j[k] > row && upper)) S.j.push_back(B.j[k]);
        S.i.push_back(S.nnz());
      }
      S.a.assign(S.j.size(), NAN);
      return S;
    };
    SFSAIParams      params = Params(p.setup, p.factor, 3);
    const HostMatrix lower  = part(false, false);
    const HostFactor F      = ComputeFactor(A, params, backend.where, &lower);
    CHECK(F.i == lower.i);
    CHECK(F.j == lower.j);
    CheckValues(A, F, params, kLambdaMin);
    for (bool upper : {false, true})
      for (bool diagonal : {false, true}) {
        const HostMatrix S = part(upper, diagonal);
        CHECK(SameBits(ComputeFactor(A, params, backend.where, &S), F));
      }
    SFSAIParams others    = params; /* of the search */
    others.power          = 0;
    others.prefilter      = 0.9;
    others.max_row        = 2;
    const HostFactor same = ComputeFactor(A, others, backend.where, &lower);
    CHECK(SameBits(same, F));
    CHECK(same.stats.capped_rows == 0);

    params.postfilter         = 0.1; /* G is filtered all the same */
    const HostFactor filtered = ComputeFactor(A, params, backend.where, &lower);
    CHECK(filtered.stats.dropped > 0);
    CHECK(filtered.stats.dropped == F.nnz() - filtered.nnz());
    const HostMatrix empty_rows = LongRows(150, {});
    CHECK(ComputeFactor(A, params, backend.where, &empty_rows).stats.max_row <= 2);
  });
}

TEST_CASE("sfsai: the postfilter drops what it says and scales again", "[sfsai]")
{
  ForEachPrecision(SmallMatrices(), [&](const Backend &backend, const Named &m, const Precisions &p) {
    const HostFactor F      = ComputeFactor(m.A, Params(p.setup, p.factor), backend.where);
    SFSAIParams      params = Params(p.setup, p.factor);
    params.postfilter       = 1e-300; /* drops nothing */
    const HostFactor same   = ComputeFactor(m.A, params, backend.where);
    CHECK(SameBits(same, F));
    CHECK(same.stats.dropped == 0);

    LocalInt last = F.nnz();
    for (PetscReal filter : {0.01, 0.1, 0.5}) {
      CAPTURE(filter);
      params.postfilter      = filter;
      const HostFactor small = ComputeFactor(m.A, params, backend.where);
      CHECK(ErrorOfDiagonal(m.A, small, params).over_bound <= 1);
      CHECK(small.nnz() <= last);
      CHECK(small.stats.dropped == F.nnz() - small.nnz());
      last           = small.nnz();
      LocalInt wrong = 0, longest = 0;
      for (LocalInt row = 0; row < F.rows; row++) {
        double norm = 1;
        for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++) norm += F.a[k] * F.a[k];
        std::set<LocalInt> kept;
        for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++)
          if (std::fabs(F.a[k]) > filter * std::sqrt(norm)) kept.insert(F.j[k]);
        wrong += RowPattern(small, row) != kept;
        longest = std::max(longest, small.Length(row) + 1);
      }
      CHECK(wrong == 0);
      CHECK(small.stats.max_row == longest);
    }
  });
}

/* [1 -3/4; -3/4 1]: g = 3/4, the row's norm is 5/4, and 3/4 is 0.6 of it. */
TEST_CASE("sfsai: the postfilter drops what is at its threshold", "[sfsai]")
{
  const HostMatrix A = FromDense(2, {1, -0.75, -0.75, 1});
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    SFSAIParams params = Params(p.setup, p.factor);
    params.postfilter  = std::nextafter(0.6, 0.);
    CHECK(ComputeFactor(A, params, backend.where).a == std::vector<double>{0.75});
    params.postfilter = 0.6;
    CHECK(IsDiagonal(ComputeFactor(A, params, backend.where), A));
  });
}

TEST_CASE("new values on the pattern of the last set-up", "[sfsai]")
{
  ForEachPrecision(SmallMatrices(), [&](const Backend &backend, const Named &m, const Precisions &p) {
    const HostMatrix changed = OtherValues(m.A);
    SFSAIParams      params  = Params(p.setup, p.factor);
    const HostFactor F       = ComputeFactor(m.A, params, backend.where);

    /* the pattern does not depend on the values here, so that a refill is a set-up */
    CHECK(SameBits(ComputeFactor(m.A, params, backend.where, nullptr, &m.A), F));
    const HostFactor refilled = ComputeFactor(m.A, params, backend.where, nullptr, &changed),
                     fresh    = ComputeFactor(changed, params, backend.where);
    CHECK(SameBits(refilled, fresh));
    CHECK(refilled.stats.log_psi_before == fresh.stats.log_psi_before);
    CHECK(refilled.stats.log_psi_after == fresh.stats.log_psi_after);

    /* what a filter or a cap left is neither searched nor filtered again */
    const auto check = [&](const HostMatrix *S) {
      const HostFactor first = ComputeFactor(m.A, params, backend.where, S),
                       again = ComputeFactor(m.A, params, backend.where, S, &changed);
      SFSAIParams whole      = params;
      whole.postfilter       = 0;
      CHECK(SamePattern(first, again));
      /* what the pattern went through is told as long as it is kept */
      CHECK(again.stats.dropped == first.stats.dropped);
      CHECK(again.stats.capped_rows == first.stats.capped_rows);
      CHECK(again.stats.max_row == first.stats.max_row);
      CheckValues(changed, again, whole, kLambdaMin);
      CHECK(ErrorOfDiagonal(changed, again, whole).over_bound <= 1);
      CHECK(again.stats.double_rows + again.stats.diagonal_rows == 0);
    };
    params.postfilter = 0.2;
    check(nullptr);
    params.max_row   = 4;
    params.prefilter = 0.1;
    check(nullptr);
    const HostMatrix S = RandomGraph(m.A.n, 9, 25);
    check(&S);
  });
}

/* The pairs of BadPairs(): alone, they are rows of two entries, so that a pattern of any power has them. */
TEST_CASE("sfsai: bad pivots: first double precision, then the diagonal, both counted", "[sfsai]")
{
  struct Case {
    double   coupling;
    LocalInt double_rows, diagonal_rows; /* per block, of a set-up in single */
  };
  const LocalInt blocks = 40;
  for (const Case &c : {Case{0.5, 0, 0}, Case{1 - 1e-6, 1, 0}, Case{1 - 1e-15, 1, 1}, Case{2, 1, 1}, Case{-2, 1, 1}}) {
    const HostMatrix A = BadPairs(blocks, c.coupling), good = BadPairs(blocks, 0.25);
    for (const Backend &backend : Backends())
      for (const Precisions &p : kAllPrecisions)
        for (PetscReal postfilter : {0., 1e-300}) {
          CAPTURE(c.coupling, backend.name, p.setup, p.factor, postfilter);
          SFSAIParams params = Params(p.setup, p.factor);
          params.postfilter  = postfilter;
          const auto check =
            [&](const HostFactor &F,
                bool              stored) { /* does a row that fell back keep its pattern? */
                               CHECK(F.stats.double_rows == (p.setup == FINEPC_SINGLE ? blocks * c.double_rows : 0));
                               CHECK(F.stats.diagonal_rows == blocks * c.diagonal_rows);
                               LocalInt wrong = 0;
                               for (LocalInt b = 0; b < blocks; b++) {
                                 const LocalInt row = 3 * b + 1;
                                 const double   psi = c.diagonal_rows ? 1 : 1 - c.coupling * c.coupling;
                                 wrong += !(std::fabs(F.d[row] * psi - 1) <= 1e-9);
                                 wrong += F.Length(row) != (stored ? 1 : 0);
                                 if (F.Length(row))
                                   wrong += !(std::fabs(F.a[F.i[row]] + (c.diagonal_rows ? 0 : c.coupling)) <= 1e-6);
                                 wrong += F.Length(row + 1) != std::min<LocalInt>(b, 2); /* the good rows are one chain */
                               }
                               CHECK(wrong == 0);
                               CHECK(F.stats.dropped == 0); /* they are not the postfilter's */
                               if (!c.diagonal_rows) CHECK(ErrorOfDiagonal(A, F, params).over_bound <= 1);
            };
          const HostFactor F = ComputeFactor(A, params, backend.where);
          check(F, !c.diagonal_rows || postfilter == 0);
          check(ComputeFactor(good, params, backend.where, nullptr, &A), true);
          /* and back */
          if (postfilter == 0)
            CHECK(SameBits(ComputeFactor(A, params, backend.where, nullptr, &good), ComputeFactor(good, params, backend.where)));
        }
  }
}

namespace
{

/*
   Unknowns p and p + 1 are coupled by c, and each of the last rows with p by e and with p + 2 by 1/5; nothing else, all scaled
   already. On a pattern with p, p + 1, p + 2 and any others that is

     g_p = -e / (1 - c^2), g_p+1 = c e / (1 - c^2), g_p+2 = -1/5, psi = 1 - 1/25 - e^2 / (1 - c^2),

   on one without p + 1 the same with c = 0. The last rows have systems of every kind, most sizes once with p + 1 and once without.
*/
struct BadSystems {
  struct Size {
    LocalInt size; /* row itself counted */
    bool     pair; /* p + 1 is one of its columns */
  };
  static constexpr LocalInt kRows   = 1100;
  static constexpr double   kWith   = 1e-3; /* e */
  static constexpr double   kFilter = 1e-4; /* drops the zeros of a good row, and nothing else */
  const LocalInt            p;
  std::vector<Size>         sizes;
  LocalInt                  pairs = 0;

  explicit BadSystems(LocalInt p) : p(p)
  {
    for (LocalInt size : {5, 12, 20, 33, 64, 65, 129, 250, 400, 1000})
      for (bool pair : {true, false}) {
        if (size == 1000 && !pair) continue; /* takes its time on the host */
        sizes.push_back({size, pair});
        pairs += pair;
      }
  }

  LocalInt First() const { return kRows - (LocalInt)sizes.size(); }

  HostMatrix A(double c) const
  {
    std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(kRows);
    const auto                                                 add = [&](LocalInt r, LocalInt s, double value) {
      rows[r].emplace_back(s, value);
      rows[s].emplace_back(r, value);
    };
    for (LocalInt row = 0; row < kRows; row++) rows[row].emplace_back(row, 1.);
    add(p, p + 1, c);
    for (LocalInt row = First(); row < kRows; row++) {
      add(row, p, kWith);
      add(row, p + 2, 0.2);
    }
    return FromRows(rows);
  }

  /* The other columns lie on both sides of p. */
  HostMatrix S() const
  {
    std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(kRows);
    for (LocalInt row = First(); row < kRows; row++) {
      const Size     system = sizes[row - First()];
      const LocalInt others = system.size - 1 - (system.pair ? 3 : 2), below = std::min(p, others / 2);
      rows[row] = {{p, NAN}, {p + 2, NAN}};
      if (system.pair) rows[row].emplace_back(p + 1, NAN);
      for (LocalInt k = 0; k < others; k++) rows[row].emplace_back(k < below ? p - 1 - k : p + 3 + k - below, NAN);
    }
    return FromRows(rows);
  }

  /* `filtered`: what the postfilter left of S; `kept`: the pattern that it left for a good c. */
  void Check(const HostFactor &F, double c, FinePCPrecision setup, bool filtered, bool kept) const
  {
    const bool fallback = std::fabs(c) > 1;
    LocalInt   wrong = 0, dropped = 0;
    for (LocalInt row = 0; row < First(); row++) wrong += F.Length(row) != 0 || F.d[row] != 1;
    for (LocalInt row = First(); row < kRows; row++) {
      const Size   system = sizes[row - First()];
      const bool   lost   = system.pair && fallback;
      const double pivot = system.pair ? 1 - c * c : 1, psi = lost ? 1 : 1 - 0.04 - kWith * kWith / pivot,
                   norm       = std::sqrt(1 + 0.04 + (lost ? 0 : 2 * kWith * kWith / (pivot * pivot)));
      const LocalInt nonzeros = system.pair ? 3 : 2;
      wrong += F.Length(row) != (kept ? nonzeros : !filtered ? system.size - 1 : lost ? 0 : nonzeros);
      wrong += !(std::fabs(F.d[row] * psi - 1) <= 1e-7);
      for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++) {
        const LocalInt column = F.j[k];
        const double g = lost ? 0 : column == p ? -kWith / pivot : column == p + 1 ? c * kWith / pivot : column == p + 2 ? -0.2 : 0;
        wrong += !(std::fabs(F.a[k] - g) <= 1e-6 * norm);
      }
      if (kept || (filtered && !lost)) dropped += system.size - 1 - nonzeros;
    }
    CHECK(wrong == 0);
    CHECK(F.stats.dropped == dropped);
    CHECK(F.stats.double_rows == (setup == FINEPC_SINGLE ? pairs : 0));
    CHECK(F.stats.diagonal_rows == (fallback ? pairs : 0));
  }
};

} // namespace

TEST_CASE("sfsai: bad pivots in systems of every kind", "[sfsai]")
{
  struct Case {
    Precisions precisions;
    LocalInt   p;
  };
  for (const Case &test : {Case{{FINEPC_SINGLE, FINEPC_SINGLE}, 500}, Case{{FINEPC_DOUBLE, FINEPC_DOUBLE}, 0}}) {
    const BadSystems systems(test.p);
    const Precisions p    = test.precisions;
    const HostMatrix good = systems.A(0.25), S = systems.S();
    for (double c : {1 - 1e-6, 2.}) /* single precision cannot do it; double cannot either */
      for (PetscReal postfilter : {0., BadSystems::kFilter}) {
        const HostMatrix bad    = systems.A(c);
        SFSAIParams      params = Params(p.setup, p.factor), whole = params;
        params.postfilter = postfilter;
        HostFactor host, host_refilled;
        for (const Backend &backend : Backends()) {
          CAPTURE(test.p, p.setup, p.factor, c, postfilter, backend.name);
          const HostFactor F = ComputeFactor(bad, params, backend.where, &S);
          systems.Check(F, c, p.setup, postfilter > 0, false);

          /* good values first: the refill, which finds its memory in that of the set-up, is a set-up on the pattern of those */
          const HostFactor refilled = ComputeFactor(good, params, backend.where, &S, &bad);
          systems.Check(refilled, c, p.setup, false, postfilter > 0);
          if (postfilter > 0) {
            const HostMatrix T = PatternOf(ComputeFactor(good, params, backend.where, &S));
            CHECK(SameBits(refilled, ComputeFactor(bad, whole, backend.where, &T)));
          } else CHECK(SameBits(refilled, F));

          if (backend.where == PETSC_MEMTYPE_HOST) {
            host          = F;
            host_refilled = refilled;
            continue;
          }
          const auto compare = [&](const HostFactor &mine, const HostFactor &theirs) {
            CHECK(SamePattern(mine, theirs));
            CHECK(CheckTwins(bad, theirs, mine, params, 1e-7) == 0);
            CHECK(mine.stats.double_rows == theirs.stats.double_rows);
            CHECK(mine.stats.diagonal_rows == theirs.stats.diagonal_rows);
            CHECK(mine.stats.dropped == theirs.stats.dropped);
          };
          compare(F, host);
          compare(refilled, host_refilled);
          params.work_limit = 4096; /* with bad rows in every chunk */
          compare(ComputeFactor(bad, params, backend.where, &S), host);
        }
      }
  }
}

/*
   A pivot that is bad is not always the last one: A[{0, 1, 2}] of the first matrix is indefinite, A[{0, 1}] of the second nearly
   singular while psi_2 is not small. The third one's G is beyond single precision.
*/
TEST_CASE("sfsai: pivots inside of a system, and values that are too large", "[sfsai]")
{
  const HostMatrix inside = FromDense(4, {1, 0, 0.5, 0, 0, 1, 1, 0.1, 0.5, 1, 1, 0.2, 0, 0.1, 0.2, 1});
  const HostMatrix large  = FromDense(2, {1e-60, 0.5e-10, 0.5e-10, 1e40}); /* g = 0.5e50 */
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const SFSAIParams params = Params(p.setup, p.factor, 3);
    const HostFactor  F      = ComputeFactor(inside, params, backend.where);
    CHECK(F.stats.diagonal_rows == 2); /* rows 2 and 3 */
    CHECK(F.d == std::vector<double>{1, 1, 1, 1});
    CHECK(std::count(F.a.begin(), F.a.end(), 0.) == F.nnz());
    for (double e : {1e-6, 1e-15}) {
      const HostFactor H = ComputeFactor(FromDense(3, {1, 1 - e, 0.1, 1 - e, 1, 0.1, 0.1, 0.1, 1}), params, backend.where);
      CHECK(H.stats.double_rows == (p.setup == FINEPC_SINGLE ? 2 : 0));
      CHECK(H.stats.diagonal_rows == (e < 1e-13 ? 2 : 0));
    }
    const HostFactor G = ComputeFactor(large, params, backend.where);
    CHECK(G.stats.diagonal_rows == 1);
    CHECK(G.stats.double_rows == (p.setup == FINEPC_SINGLE));
    CHECK(G.d == std::vector<double>{1 / 1e-60, 1 / 1e40});
  });
}

/*
   The rows of a node have systems of which each begins with the one before. Where the pattern has but one row of each node, they
   are solved on their own.
*/
TEST_CASE("sfsai: the rows of a node are those that they are without the others", "[sfsai]")
{
  const HostMatrix graph = RandomStencil(4, 3, 3, true, 33);
  for (const Backend &backend : Backends())
    for (const Precisions &p : kAllPrecisions)
      for (LocalInt k : {1, 2, 3, 5, 6, 13}) { /* 13 are more than share a system */
        CAPTURE(backend.name, p.setup, p.factor, k);
        const HostMatrix  A      = WithNodes(graph, k, 34 + k);
        const SFSAIParams params = Params(p.setup, p.factor, 1);
        const HostFactor  F      = ComputeFactor(A, params, backend.where);
        const double      bound  = 64 * std::max(Unit(p.setup), Unit(p.factor));
        LocalInt          wrong  = 0;
        CHECK(ErrorOfDiagonal(A, F, params).over_bound <= 1);
        CHECK(ErrorOfEquations(A, F, params) <= 1);
        for (LocalInt own = 0; own < k; own += std::max<LocalInt>(1, k / 4)) {
          HostMatrix S;
          S.n = A.n;
          for (LocalInt row = 0; row < A.n; row++) {
            for (LocalInt e = F.i[row]; e < F.i[row + 1] && row % k == own; e++) S.j.push_back(F.j[e]);
            S.i.push_back(S.nnz());
          }
          S.a.assign(S.j.size(), NAN);
          const HostFactor alone = ComputeFactor(A, params, backend.where, &S);
          const auto       same  = [&](double x, double y) {
            return backend.where == PETSC_MEMTYPE_HOST ? x == y : std::fabs(x - y) <= bound * std::max(1., std::fabs(y));
          };
          for (LocalInt row = own; row < A.n; row += k) {
            wrong += !same(F.d[row], alone.d[row]);
            for (LocalInt e = 0; e < F.Length(row); e++) wrong += !same(F.a[F.i[row] + e], alone.a[alone.i[row] + e]);
          }
        }
        CHECK(wrong == 0);
      }
}

/* With overlap the first rows of A belong to other ranks. The first own row may be any of a node. */
TEST_CASE("sfsai: the rows of a node where the first rows of A are only read", "[sfsai]")
{
  const HostMatrix A = WithNodes(RandomStencil(4, 3, 3, true, 48), 6, 49);
  for (const Backend &backend : Backends())
    for (const Precisions &p : kAllPrecisions)
      for (LocalInt first : {1, 6, 50}) {
        CAPTURE(backend.name, p.setup, p.factor, first);
        const SFSAIParams params = Params(p.setup, p.factor, 1);
        const HostFactor  F      = ComputeFactor(A, params, backend.where);
        const CSRCopy     copy(A, backend.where);
        const LocalInt    rows    = A.n - first;
        const double      bound   = 64 * std::max(Unit(p.setup), Unit(p.factor));
        const auto        compute = PetscMemTypeDevice(backend.where) ? SFSAIComputeFactor_CUDA : SFSAIComputeFactor_Host;
        CSR               G       = {};
        SFSAIWork         work    = {};
        FSAIStats         stats   = {};
        PetscReal        *d       = nullptr;
        LocalInt          wrong   = 0;
        MUST(ArrayCreate(rows * sizeof(PetscReal), backend.where, (void **)&d));
        MUST(compute({&copy.view, first, nullptr}, &params, PETSC_FALSE, &G, d, &work, &stats));
        REQUIRE((stats.failure == FSAI_OK && G.nnz == F.nnz() - F.i[first]));
        std::vector<LocalInt>  j(G.nnz);
        std::vector<PetscReal> own_d(rows), a(G.nnz);
        MUST(ArrayCopy(j.data(), G.j, j.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, backend.where));
        MUST(ArrayCopy(own_d.data(), d, rows * sizeof(PetscReal), PETSC_MEMTYPE_HOST, backend.where));
        if (p.factor == FINEPC_SINGLE) {
          std::vector<float> single(G.nnz);
          MUST(ArrayCopy(single.data(), G.a, single.size() * sizeof(float), PETSC_MEMTYPE_HOST, backend.where));
          a.assign(single.begin(), single.end());
        } else MUST(ArrayCopy(a.data(), G.a, a.size() * sizeof(double), PETSC_MEMTYPE_HOST, backend.where));
        CHECK(std::equal(j.begin(), j.end(), F.j.begin() + F.i[first]));
        for (LocalInt row = 0; row < rows; row++) wrong += !(std::fabs(own_d[row] / F.d[first + row] - 1) <= bound);
        for (LocalInt e = 0; e < G.nnz; e++) wrong += !(std::fabs(a[e] - F.a[F.i[first] + e]) <= bound);
        CHECK(wrong == 0);
        MUST(CSRDestroy(&G));
        MUST(ArrayDestroy(backend.where, &work.data));
        MUST(ArrayDestroy(backend.where, (void **)&d));
      }
}

/*
   Six unknowns of a node share the columns 0 .. others - 1, and what comes before them in the node. All is scaled: the unknowns 0,
   1, 4 and 5 are coupled with column 0 by 1/5, and 3 with 2 by c. Then 3 and what follows have a system with a bad pivot, whereas 2
   and what comes before it are as good as with any c.
*/
TEST_CASE("sfsai: a bad pivot within a node is one of the rows behind it alone", "[sfsai]")
{
  const std::vector<LocalInt>                                others = {2, 9, 20, 40, 90, 150, 299}; /* one kind of system each */
  const LocalInt                                             first = 400, k = 6, n = first + k * (LocalInt)others.size();
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> pattern(n);
  for (LocalInt row = first; row < n; row++) {
    const LocalInt node = (row - first) / k, u = (row - first) % k;
    for (LocalInt column = 0; column < others[node]; column++) pattern[row].emplace_back(column, NAN);
    for (LocalInt column = row - u; column < row; column++) pattern[row].emplace_back(column, NAN);
  }
  const HostMatrix S      = FromRows(pattern);
  const auto       matrix = [&](double c) {
    std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
    const auto                                                 add = [&](LocalInt p, LocalInt q, double value) {
      rows[p].emplace_back(q, value);
      rows[q].emplace_back(p, value);
    };
    for (LocalInt row = 0; row < n; row++) rows[row].emplace_back(row, 1);
    for (LocalInt row = first; row < n; row += k) {
      for (LocalInt u : {0, 1, 4, 5}) add(row + u, 0, 0.2);
      add(row + 3, row + 2, c);
    }
    return FromRows(rows);
  };
  for (const Backend &backend : Backends())
    for (const Precisions &p : {Precisions{FINEPC_SINGLE, FINEPC_SINGLE}, Precisions{FINEPC_DOUBLE, FINEPC_DOUBLE}})
      for (double c : {0.25, 1 - 1e-6, 2.}) /* single precision cannot do the second, and double cannot do the third */
        for (PetscReal postfilter : {0., 1e-4}) {
          CAPTURE(backend.name, p.setup, c, postfilter);
          SFSAIParams params     = Params(p.setup, p.factor);
          params.postfilter      = postfilter;
          const HostFactor F     = ComputeFactor(matrix(c), params, backend.where, &S);
          const bool       lost  = c > 1;
          LocalInt         wrong = 0;
          for (LocalInt row = first; row < n; row++) {
            const LocalInt node = (row - first) / k, u = (row - first) % k;
            const bool     gone = lost && u > 2;
            /* unknowns that are coupled with 0 before this one */
            std::map<LocalInt, double> g;
            double                     psi = 1;
            if (!gone && (u == 0 || u == 1 || u > 3)) {
              const double before = u == 0 ? 0 : u == 1 ? 1 : u == 4 ? 2 : 3, column = 0.2 / (1 - 0.04 * before);
              g[0] = -column;
              for (LocalInt v : {0, 1, 4})
                if (v < u) g[row - u + v] = 0.2 * column;
              psi = 1 - 0.2 * column;
            }
            if (!gone && u == 3) {
              g[row - 1] = -c;
              psi        = 1 - c * c;
            }
            wrong += !(std::fabs(F.d[row] * psi - 1) <= 1e-6);
            wrong += F.Length(row) != (postfilter > 0 ? (LocalInt)g.size() : others[node] + u);
            for (LocalInt e = F.i[row]; e < F.i[row + 1]; e++)
              wrong += !(std::fabs(F.a[e] - (g.count(F.j[e]) ? g[F.j[e]] : 0)) <= 1e-6);
          }
          CHECK(wrong == 0);
          const LocalInt nodes = (LocalInt)others.size();
          CHECK(F.stats.diagonal_rows == (lost ? 3 * nodes : 0));
          CHECK(F.stats.double_rows == (c > 0.5 && p.setup == FINEPC_SINGLE ? 3 * nodes : 0));
        }
}

TEST_CASE("sfsai: unusable matrices are named by their first bad row", "[sfsai]")
{
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const HostMatrix good = UsableMatrix();
    CheckUnusableMatrices([&](const HostMatrix &A) { return ComputeFactor(A, Params(p.setup, p.factor), backend.where).stats; });
    CheckUnusableMatrices(
      [&](const HostMatrix &A) { return ComputeFactor(A, Params(p.setup, p.factor), backend.where, &good).stats; });
  });
  /* met in new values */
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const HostMatrix good = UsableMatrix();
    HostMatrix       bad  = good;
    bad.a[bad.i[400]]     = NAN;
    const FSAIStats stats = ComputeFactor(good, Params(FINEPC_SINGLE, FINEPC_SINGLE), backend.where, nullptr, &bad).stats;
    CHECK(stats.failure == FSAI_NOT_FINITE);
    CHECK(stats.failure_row == 400);
  }
}

TEST_CASE("sfsai: sizes 0 and 1", "[sfsai]")
{
  for (const Backend &backend : Backends())
    for (const Precisions &p : kAllPrecisions)
      for (LocalInt power : {0, 2})
        for (PetscReal postfilter : {0., 0.1}) {
          CAPTURE(backend.name, p.setup, p.factor, power, postfilter);
          SFSAIParams params = Params(p.setup, p.factor, power);
          params.postfilter  = postfilter;
          params.max_row     = power;
          const HostMatrix none, one = FromDense(1, {8});
          CHECK(ComputeFactor(none, params, backend.where).rows == 0);
          CHECK(ComputeFactor(none, params, backend.where, &none, &none).nnz() == 0);
          CHECK(ComputeFactor(none, params, backend.where, nullptr, &none).stats.failure == FSAI_OK);
          for (const HostMatrix *S : {(const HostMatrix *)nullptr, &one}) {
            const HostFactor F = ComputeFactor(one, params, backend.where, S);
            CHECK(F.d == std::vector<double>{0.125});
            CHECK(F.nnz() == 0);
            CHECK(ComputeFactor(one, params, backend.where, S, &one).d == std::vector<double>{0.125});
          }
        }
}

/* Rows of every column, and at and around the largest system that does without LAPACK or cuSOLVER. */
TEST_CASE("sfsai: rows of any length", "[sfsai]")
{
  const LocalInt              n = kCholeskyLargest + 140;
  const std::vector<LocalInt> lengths{n, kCholeskyLargest + 1, kCholeskyLargest, 500, 20};
  const HostMatrix            A = RandomGraph(n, 9, 31), S = LongRows(n, lengths), changed = OtherValues(A);
  for (const Backend &backend : Backends())
    for (const Precisions &p : {Precisions{FINEPC_SINGLE, FINEPC_SINGLE}, Precisions{FINEPC_DOUBLE, FINEPC_DOUBLE}}) {
      CAPTURE(backend.name, p.setup);
      SFSAIParams      params = Params(p.setup, p.factor);
      const HostFactor F      = ComputeFactor(A, params, backend.where, &S);
      for (LocalInt k = 0; k < (LocalInt)lengths.size(); k++) CHECK(F.Length(n - 1 - k) + 1 == lengths[k]);
      CHECK(F.stats.max_row == n);
      CHECK(F.stats.double_rows == 0);
      CHECK(F.stats.diagonal_rows == 0);
      CHECK(F.stats.work_bytes >= (size_t)n * n * sizeof(PetscReal));
      CHECK(ErrorOfDiagonal(A, F, params).over_bound <= 1);
      CHECK(ErrorOfEquations(A, F, params) <= 1);
      CHECK(SameBits(ComputeFactor(A, params, backend.where, &S), F));

      const HostFactor refilled = ComputeFactor(A, params, backend.where, &S, &changed); /* allocates nothing for the new values */
      CHECK(ErrorOfDiagonal(changed, refilled, params).over_bound <= 1);
      CHECK(ErrorOfEquations(changed, refilled, params) <= 1);

      params.postfilter         = 0.005;
      const HostFactor filtered = ComputeFactor(A, params, backend.where, &S);
      double           norm     = 1;
      LocalInt         wrong    = 0;
      CHECK(ErrorOfDiagonal(A, filtered, params).over_bound <= 1);
      CHECK(filtered.stats.dropped > 0);
      CHECK(filtered.nnz() + filtered.stats.dropped == F.nnz());
      std::map<LocalInt, double> kept;
      for (LocalInt k = filtered.i[n - 1]; k < filtered.i[n]; k++) kept[filtered.j[k]] = filtered.a[k];
      for (LocalInt k = F.i[n - 1]; k < F.i[n]; k++) norm += F.a[k] * F.a[k];
      norm = params.postfilter * std::sqrt(norm);
      for (LocalInt k = F.i[n - 1]; k < F.i[n]; k++) {
        if (std::fabs(std::fabs(F.a[k]) - norm) < 1e-4 * norm) continue; /* rounding decides */
        wrong += kept.count(F.j[k]) ? kept[F.j[k]] != F.a[k] : std::fabs(F.a[k]) > norm;
      }
      CHECK(wrong == 0);
      CHECK(!kept.empty());
      CHECK((LocalInt)kept.size() < n / 2);
    }
}

/* Columns p and p + 1 have the coupling c, and the last row has all columns. */
TEST_CASE("sfsai: bad pivots in a row that only LAPACK or cuSOLVER solves", "[sfsai]")
{
  const LocalInt   n = kCholeskyLargest + 20, p = 600;
  const HostMatrix S      = LongRows(n, {n});
  const auto       matrix = [&](double c) {
    std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
    const auto                                                 add = [&](LocalInt r, LocalInt s, double value) {
      rows[r].emplace_back(s, value);
      rows[s].emplace_back(r, value);
    };
    for (LocalInt row = 0; row < n; row++) rows[row].emplace_back(row, 1.);
    add(p, p + 1, c);
    add(n - 1, p, 1e-3);
    add(n - 1, p + 2, 0.2);
    return FromRows(rows);
  };
  const HostMatrix good = matrix(0.25), close = matrix(1 - 1e-6), indefinite = matrix(2);
  for (const Backend &backend : Backends())
    for (const Precisions &precisions : kAllPrecisions)
      for (PetscReal postfilter : {0., 1e-4}) {
        CAPTURE(backend.name, precisions.setup, precisions.factor, postfilter);
        SFSAIParams params = Params(precisions.setup, precisions.factor), whole = params;
        params.postfilter       = postfilter;
        const HostFactor solved = ComputeFactor(close, params, backend.where, &S);
        CHECK(solved.stats.double_rows == 0); /* it was in double precision at once */
        CHECK(solved.stats.diagonal_rows == 0);
        CHECK(ErrorOfDiagonal(close, solved, params).over_bound <= 1);
        CHECK(solved.d[n - 1] == Approx(1 / (1 - 0.04 - 1e-6 / (1 - (1 - 1e-6) * (1 - 1e-6)))));
        for (bool refilled : {false, true}) {
          CAPTURE(refilled);
          const HostFactor F = refilled ? ComputeFactor(good, params, backend.where, &S, &indefinite)
                                        : ComputeFactor(indefinite, params, backend.where, &S);
          CHECK(F.stats.diagonal_rows == 1);
          CHECK(F.d[n - 1] == 1);
          CHECK(std::count(F.a.begin() + F.i[n - 1], F.a.end(), 0.) == F.Length(n - 1));
          CHECK(F.Length(n - 1) == (postfilter == 0 ? n - 1 : refilled ? 3 : 0));
        }
        if (postfilter == 0) {
          const HostFactor again = ComputeFactor(good, whole, backend.where, &S, &close);
          CHECK(ErrorOfEquations(close, again, whole) <= 1);
        }
      }
}

TEST_CASE("sfsai: a row whose system no memory holds is an error with a remedy", "[sfsai]")
{
  const HostMatrix A = Hub(2000000);
  for (const Backend &backend : Backends())
    for (PetscReal postfilter : {0., 0.1}) {
      CAPTURE(backend.name, postfilter);
      const CSRCopy copy(A, backend.where);
      CSR           G      = {};
      SFSAIWork     work   = {};
      FSAIStats     stats  = {};
      SFSAIParams   params = Double(1);
      PetscReal    *d      = nullptr;
      params.postfilter    = postfilter;
      MUST(ArrayCreate(A.n * sizeof(PetscReal), backend.where, (void **)&d));
      {
        Errors     errors;
        const auto compute = PetscMemTypeDevice(backend.where) ? SFSAIComputeFactor_CUDA : SFSAIComputeFactor_Host;
        CHECK(compute({&copy.view, 0, nullptr}, &params, PETSC_FALSE, &G, d, &work, &stats) == PETSC_ERR_MEM);
        CAPTURE(errors.text);
        CHECK(Contains(errors.text, "Row 1999999 of G would have 2000000 entries, and the "));
        CHECK(Contains(errors.text, "memory does not hold its system (3.2"));
        CHECK(Contains(errors.text, "lower -pc_sfsai_power, raise -pc_sfsai_prefilter, or set -pc_sfsai_max_row"));
      }
      if (G.i) MUST(CSRDestroy(&G));
      MUST(ArrayDestroy(backend.where, &work.data));
      MUST(ArrayDestroy(backend.where, (void **)&d));
      params.max_row     = 50;
      const HostFactor F = ComputeFactor(A, params, backend.where);
      CHECK(F.stats.capped_rows == 1);
      if (postfilter == 0) CHECK(F.stats.max_row == 50);
    }
}

/* PETSc's malloc, which also sees the most bytes that PETSc has lent at a time. */
static PetscErrorCode (*petsc_malloc)(size_t, PetscBool, int, const char[], const char[], void **);
static PetscLogDouble peak;

static PetscErrorCode SeePeak(size_t bytes, PetscBool clear, int line, const char function[], const char file[], void **data)
{
  const PetscErrorCode code = petsc_malloc(bytes, clear, line, function, file, data);
  peak                      = std::max(peak, HostBytes());
  return code;
}

/* Neither the unfiltered nor the filtered G is in memory beside G, and the limit decides about time alone. */
TEST_CASE("sfsai: with a postfilter the work stays within its limit", "[sfsai]")
{
  const HostMatrix A = RandomStencil(24, 24, 24, false, 32);
  for (const Backend &backend : Backends())
    for (const Precisions &p : {Precisions{FINEPC_SINGLE, FINEPC_SINGLE}, Precisions{FINEPC_DOUBLE, FINEPC_DOUBLE}}) {
      const bool  on_device   = PetscMemTypeDevice(backend.where);
      SFSAIParams params      = Params(p.setup, p.factor, 3);
      const auto  unfiltered  = ComputeFactor(A, params, backend.where);
      const auto  entry_bytes = sizeof(LocalInt) + FinePCPrecisionBytes(p.factor);
      params.postfilter       = 0.001;
      const auto   F          = ComputeFactor(A, params, backend.where);
      const size_t bytes = F.nnz() * entry_bytes, system = SFSAISystemBytes(unfiltered.stats.max_row) + (size_t)16384;
      CHECK(F.stats.dropped > 0);
      CHECK(F.nnz() > unfiltered.nnz() / 2);
      for (size_t limit : {(size_t)(on_device ? 32768 : 0), (size_t)65536, bytes / 4}) {
        CAPTURE(backend.name, p.setup, limit);
        params.work_limit   = limit;
        const size_t  bound = limit + A.n * (on_device ? 70 : 28) + system;
        const CSRCopy copy(A, backend.where);
        CSR           G    = {};
        SFSAIWork     work = {};
        FSAIStats     stats{};
        PetscReal    *d = nullptr;
        REQUIRE(bound < bytes); /* or the test would tell nothing */
        const HostFactor limited = ComputeFactor(A, params, backend.where);
        CHECK(SameBits(limited, F));
        CHECK(limited.stats.dropped == F.stats.dropped);
        CHECK(limited.stats.max_row == F.stats.max_row);
        CHECK(limited.stats.double_rows == F.stats.double_rows);
        CHECK(limited.stats.diagonal_rows == F.stats.diagonal_rows);
        CHECK(limited.stats.log_psi_after == F.stats.log_psi_after);
        CHECK(limited.stats.work_bytes <= bound);
        if (on_device) continue;

        /* PETSc's own count of the memory: G, and beside it the work */
        MUST(PetscMalloc1(A.n, &d));
        const PetscLogDouble before = HostBytes();
        peak                        = 0;
        petsc_malloc                = PetscTrMalloc;
        PetscTrMalloc               = SeePeak;
        PetscErrorCode code         = SFSAIComputeFactor_Host({&copy.view, 0, nullptr}, &params, PETSC_FALSE, &G, d, &work, &stats);
        PetscTrMalloc               = petsc_malloc;
        MUST(code);
        CHECK(peak - before > (PetscLogDouble)CSRBytes(&G));
        CHECK(peak - before <= (PetscLogDouble)(CSRBytes(&G) + bound));
        MUST(CSRDestroy(&G));
        MUST(ArrayDestroy(work.where, &work.data));
        MUST(PetscFree(d));
      }
    }
}

TEST_CASE("sfsai: a set-up repeated gives the same bits", "[sfsai]")
{
  const HostMatrix A = RandomStencil(20, 20, 20, false, 31);
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    SFSAIParams params = Params(p.setup, p.factor);
    for (PetscReal postfilter : {0., 0.05}) {
      params.postfilter  = postfilter;
      const HostFactor F = ComputeFactor(A, params, backend.where);
      for (int repeat = 0; repeat < 3; repeat++) CHECK(SameBits(ComputeFactor(A, params, backend.where), F));
    }
  });
}

/* ------------------------------------- host against CUDA -------------------------------------- */

namespace
{

/* Both twins, set up and with new values. The patterns are the same where no value decides on them. */
void CompareTwins(const HostMatrix &A, const SFSAIParams &params, const HostMatrix *S = nullptr)
{
  const HostFactor host = ComputeFactor(A, params, PETSC_MEMTYPE_HOST, S), device = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, S);
  const LocalInt   different = CheckTwins(A, host, device, params, kLambdaMin);
  if (params.postfilter == 0) CHECK(different == 0);
  else CHECK(different <= std::max<LocalInt>(1, A.n / 50));
  if (!different) {
    CHECK(host.stats.max_row == device.stats.max_row);
    CHECK(host.stats.dropped == device.stats.dropped);
  }
  CHECK(host.stats.capped_rows == device.stats.capped_rows);
  CHECK(host.stats.double_rows == device.stats.double_rows);
  CHECK(host.stats.diagonal_rows == device.stats.diagonal_rows);
  CHECK(host.stats.log_psi_before == Approx(device.stats.log_psi_before));
  CHECK(host.stats.log_psi_after == Approx(device.stats.log_psi_after).epsilon(1e-4).margin(1e-4));
  CHECK(device.stats.work_bytes > 0);
  CHECK(ErrorOfDiagonal(A, device, params).over_bound <= 1);
  if (params.postfilter == 0) CHECK(ErrorOfEquations(A, device, params) <= 1);
  CHECK(SameBits(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, S), device));

  const HostMatrix changed         = OtherValues(A);
  SFSAIParams      whole           = params;
  whole.postfilter                 = 0;
  const HostFactor device_refilled = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, S, &changed);
  CHECK(SamePattern(device_refilled, device));
  CHECK(device_refilled.stats.dropped == device.stats.dropped);
  CHECK(ErrorOfDiagonal(changed, device_refilled, whole).over_bound <= 1);
  CHECK(ErrorOfEquations(changed, device_refilled, whole) <= 1);
  if (!different)
    CHECK(CheckTwins(changed, ComputeFactor(A, params, PETSC_MEMTYPE_HOST, S, &changed), device_refilled, whole, kLambdaMin) == 0);
}

} // namespace

TEST_CASE("sfsai twins: sizes around the warp, every stencil and row length", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  for (const Precisions &p : kAllPrecisions)
    for (LocalInt n : {1, 2, 31, 32, 33, 1000})
      for (LocalInt power : {1, 2}) {
        CAPTURE(p.setup, p.factor, n, power);
        CompareTwins(RandomStencil(n, 1, 1, false, 100 + n), Params(p.setup, p.factor, power));
        CompareTwins(RandomGraph(n, 9, 200 + n), Params(p.setup, p.factor, power));
        CompareTwins(RandomGraph(n, 19, 300 + n), Params(p.setup, p.factor, 1));
        CompareTwins(RandomGraph(n, 41, 400 + n), Params(p.setup, p.factor, 1));
      }
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    CompareTwins(RandomStencil(60, 50, 1, false, 1), Params(p.setup, p.factor, 4));
    CompareTwins(RandomStencil(14, 15, 16, false, 2), Params(p.setup, p.factor, 3));
    CompareTwins(RandomStencil(12, 11, 10, true, 3), Params(p.setup, p.factor, 1));
    CompareTwins(RandomStencil(8, 7, 9, true, 4), Params(p.setup, p.factor, 2));
  }
}

TEST_CASE("sfsai twins: systems of every size", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  std::vector<LocalInt> lengths;
  for (LocalInt length = 1; length <= 70; length++) lengths.push_back(length);
  for (LocalInt length : {95,  96,  97,  127, 128, 129, 159, 160, 161, 191, 192, 193, 207,
                          208, 209, 223, 224, 225, 255, 256, 257, 288, 320, 400, 513, 1000})
    lengths.push_back(length);
  const HostMatrix A = RandomDense(1100, 51), S = LongRows(A.n, lengths);
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    SFSAIParams params = Params(p.setup, p.factor);
    CompareTwins(A, params, &S);
    params.postfilter = 0.02;
    CompareTwins(A, params, &S);
    for (LocalInt longest : {1, 2, 8, 9, 16, 17, 31, 32, 33, 64, 65, 129, 257}) {
      /* the largest size of a set-up is another each time */
      CAPTURE(longest);
      const HostMatrix T = LongRows(400, {longest, 1, longest});
      CompareTwins(RandomDense(400, 52), Params(p.setup, p.factor), &T);
    }
  }
}

/* Blocks of unknowns of most numbers, with systems in registers, in shared and in global memory; a full matrix is one node. */
TEST_CASE("sfsai twins: rows that share a system", "[sfsai][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    SFSAIParams params = Params(p.setup, p.factor, 1);
    for (LocalInt k : {2, 3, 4, 5, 6, 8, 12, 17}) {
      CAPTURE(k);
      CompareTwins(WithNodes(RandomStencil(9, 1, 1, false, 700), k, 701), params);
      CompareTwins(WithNodes(RandomStencil(3, 4, 2, true, 702), k, 703), params);
    }
    const HostMatrix A = WithNodes(RandomStencil(3, 3, 3, true, 704), 6, 705), full = RandomDense(320, 706);
    CompareTwins(full, params);
    params.postfilter = 0.05;
    CompareTwins(A, params);
    const HostFactor F = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA);
    params.work_limit  = 1; /* chunks of as few rows as there can be */
    CHECK(SameBits(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA), F));
  }
}

/* The last rows have all columns. Only those that do without cuSOLVER share systems. */
TEST_CASE("sfsai twins: rows that share a system and rows for cuSOLVER", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const LocalInt   n = kCholeskyLargest + 4;
  const HostMatrix A = RandomGraph(n, 9, 97), S = LongRows(n, {n, n - 1, n - 2, n - 3, n - 4, n - 5, n - 6, n - 7});
  for (const Precisions &p : {Precisions{FINEPC_SINGLE, FINEPC_SINGLE}, Precisions{FINEPC_DOUBLE, FINEPC_DOUBLE}}) {
    CAPTURE(p.setup, p.factor);
    CompareTwins(A, Params(p.setup, p.factor), &S);
    CHECK(ComputeFactor(A, Params(p.setup, p.factor), PETSC_MEMTYPE_CUDA, &S).stats.large_rows == 8);
  }
}

TEST_CASE("sfsai twins: every option", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const std::vector<HostMatrix> matrices = {RandomStencil(40, 40, 1, false, 5), RandomStencil(10, 10, 10, false, 6),
                                            RandomStencil(8, 8, 8, true, 7), RandomGraph(700, 17, 8),
                                            WithStoredZeros(RandomGraph(500, 9, 9))};
  for (const Precisions &p : kAllPrecisions)
    for (const HostMatrix &A : matrices) {
      CAPTURE(p.setup, p.factor, A.n, A.nnz());
      const auto compare = [&](auto change) {
        SFSAIParams params = Params(p.setup, p.factor, 1);
        change(params);
        CAPTURE(params.power, params.prefilter, params.postfilter, params.max_row);
        CompareTwins(A, params);
      };
      compare([](SFSAIParams &q) { q.power = 0; });
      compare([](SFSAIParams &q) { q.power = 2, q.prefilter = 0.05; });
      compare([](SFSAIParams &q) { q.power = 4, q.prefilter = 0.2; });
      compare([](SFSAIParams &q) { q.postfilter = 0.05; });
      compare([](SFSAIParams &q) { q.postfilter = 1; });
      compare([](SFSAIParams &q) { q.power = 3, q.max_row = 1; });
      compare([](SFSAIParams &q) { q.power = 3, q.max_row = 2; });
      compare([](SFSAIParams &q) { q.power = 2, q.max_row = 20; });
      compare([](SFSAIParams &q) { q.power = 3, q.max_row = 33, q.prefilter = 0.02, q.postfilter = 0.02; });
    }
}

TEST_CASE("sfsai twins: the same pattern, however many columns a row has", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const auto compare = [](const char *name, const HostMatrix &A, const std::vector<LocalInt> &powers) {
    for (LocalInt power : powers)
      for (PetscReal prefilter : {0., 0.03})
        for (LocalInt max_row : {0, 2, 33, 1000}) {
          CAPTURE(name, A.n, power, prefilter, max_row);
          SFSAIParams params      = Params(FINEPC_SINGLE, FINEPC_SINGLE, power);
          params.prefilter        = prefilter;
          params.max_row          = max_row;
          const HostFactor host   = FindPattern(A, params, PETSC_MEMTYPE_HOST);
          const HostFactor device = FindPattern(A, params, PETSC_MEMTYPE_CUDA);
          CHECK(host.i == device.i);
          CHECK(host.j == device.j);
          CHECK(host.stats.capped_rows == device.stats.capped_rows);
        }
  };
  compare("graph", RandomGraph(3000, 9, 61), {1, 2, 3, 4});
  compare("graph of long rows", RandomGraph(1500, 101, 62), {1, 2});
  compare("27 points", RandomStencil(16, 15, 14, true, 63), {1, 2, 3});
  compare("equal weights", Poisson(20, 20, 20), {2, 3, 5});
  compare("chain", RandomStencil(2000, 1, 1, false, 64), {40, 200});
  compare("dense", RandomDense(300, 65), {1, 2});
  compare("arrow", RandomArrow(1500, 66), {1, 2});
  compare("stored zeros", WithStoredZeros(RandomGraph(2000, 9, 67)), {2, 3});
  compare("long rows, columns apart", Stars(200000, {90, 150, 300, 600, 1100, 2500, 6000}, 33, 68), {1, 2, 5});
  compare("long rows, columns together", Stars(100000, {90, 200, 1000, 3000, 20000, 70000}, 1, 69), {1, 2, 3});
  compare("a row of all columns", Stars(300000, {299999}, 1, 70), {1, 2});
  compare("bcsstk24", Shared("bcsstk24"), {1, 2, 3});
  /* rows of 1535 .. 1537 words, of which the largest table in shared memory holds 1535 */
  for (LocalInt n : {49120, 49121, 49140, 49153}) compare("every word", Stars(n, {n, n, n}, 32, 74), {2});
}

namespace
{

/* The twins' patterns are the same, whatever the device may use for it. */
void ComparePatterns(const HostMatrix &A, SFSAIParams params, const std::vector<size_t> &limits = {SFSAIParams().work_limit})
{
  const HostFactor host = FindPattern(A, params, PETSC_MEMTYPE_HOST);
  for (size_t limit : limits) {
    CAPTURE(A.n, params.power, params.prefilter, params.max_row, limit);
    params.work_limit       = limit;
    const HostFactor device = FindPattern(A, params, PETSC_MEMTYPE_CUDA);
    CHECK((host.i == device.i)); /* too long to be printed */
    CHECK((host.j == device.j));
    CHECK(host.stats.capped_rows == device.stats.capped_rows);
  }
}

/* And the twins' factors. */
void CompareFactors(const HostMatrix &A, SFSAIParams params, const std::vector<size_t> &limits, const HostMatrix *S = nullptr)
{
  const HostFactor host       = ComputeFactor(A, params, PETSC_MEMTYPE_HOST, S);
  const bool       may_differ = params.setup_precision == FINEPC_SINGLE && params.postfilter > 0; /* an entry at the threshold */
  const HostMatrix changed    = OtherValues(A);
  SFSAIParams      whole      = params;
  whole.postfilter            = 0;
  for (size_t limit : limits) {
    CAPTURE(A.n, params.setup_precision, params.factor_precision, params.power, params.prefilter, params.postfilter, params.max_row,
            limit);
    params.work_limit       = limit;
    const HostFactor device = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, S);
    const bool       same   = SamePattern(host, device);
    CHECK((same || may_differ));
    if (same) {
      CHECK(CheckTwins(A, host, device, params, kLambdaMin) == 0);
      CHECK(host.stats.max_row == device.stats.max_row);
      CHECK(host.stats.dropped == device.stats.dropped);
    } else if (!S) CHECK(CheckTwins(A, host, device, params, kLambdaMin) <= std::max<LocalInt>(1, A.n / 50)); /* ties alone */
    CHECK(std::abs(host.nnz() - device.nnz()) <= A.n / 50);
    CHECK(host.stats.capped_rows == device.stats.capped_rows);
    CHECK(device.stats.double_rows + device.stats.diagonal_rows == 0);
    CHECK(host.stats.log_psi_after == Approx(device.stats.log_psi_after).epsilon(1e-4).margin(1e-4));
    CHECK(ErrorOfDiagonal(A, device, params).over_bound <= 1);

    const HostFactor refilled = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, S, &changed);
    CHECK(SamePattern(refilled, device));
    CHECK(ErrorOfDiagonal(changed, refilled, whole).over_bound <= 1);
    CHECK(ErrorOfEquations(changed, refilled, whole) <= 1);
  }
}

constexpr size_t kKilobyte = 1024, kMegabyte = kKilobyte * kKilobyte;

} // namespace

TEST_CASE("sfsai twins: a work space of any size, one chunk of rows after the other", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  struct Case {
    const char *name;
    HostMatrix  A;
    PetscReal   prefilter;
    LocalInt    max_row;
  };
  const std::vector<Case> cases = {
    {"7 points", RandomStencil(12, 11, 10, false, 81), 0, 0},
    {"27 points", RandomStencil(7, 6, 7, true, 82), 0, 0},
    {"graph", RandomGraph(400, 7, 83), 0, 0},
    {"graph, filtered", RandomGraph(400, 9, 84), 0.05, 0},
    {"graph, capped", RandomGraph(500, 9, 85), 0, 40},
  };
  for (const Case &c : cases)
    for (const Precisions &p : {Precisions{FINEPC_SINGLE, FINEPC_SINGLE}, Precisions{FINEPC_DOUBLE, FINEPC_DOUBLE}})
      for (PetscReal postfilter : {0., 0.02}) {
        CAPTURE(c.name);
        SFSAIParams params = Params(p.setup, p.factor, 3);
        params.prefilter   = c.prefilter;
        params.max_row     = c.max_row;
        params.postfilter  = postfilter;
        CompareFactors(c.A, params, {4 * kKilobyte, 64 * kKilobyte, kMegabyte});
      }
}

/* A system of 700 takes 3.7 MiB: one block for all of them, then two. A chunk of 4 KiB has no room for another row beside it. */
TEST_CASE("sfsai twins: systems in global memory one after the other", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix A = RandomGraph(900, 9, 86), S = LongRows(A.n, {700, 20, 650, 600, 33, 500, 400, 2, 333});
  for (const Precisions &p : {Precisions{FINEPC_SINGLE, FINEPC_SINGLE}, Precisions{FINEPC_DOUBLE, FINEPC_DOUBLE}})
    for (PetscReal postfilter : {0., 0.02}) {
      SFSAIParams params = Params(p.setup, p.factor);
      params.postfilter  = postfilter;
      CompareFactors(A, params, {4 * kKilobyte, 64 * kKilobyte, kMegabyte, 8 * kMegabyte}, &S);
    }
}

/* Long rows of several lengths, so that a system is left in the memory of a larger one, with other systems before them. */
TEST_CASE("sfsai twins: rows that LAPACK and cuSOLVER solve", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const LocalInt   n = kCholeskyLargest + 240;
  const HostMatrix A = RandomGraph(n, 9, 94),
                   S = LongRows(n, {kCholeskyLargest + 1, n - 1, kCholeskyLargest + 100, kCholeskyLargest, 400, 100, 20});
  for (const Precisions &p : {Precisions{FINEPC_SINGLE, FINEPC_SINGLE}, Precisions{FINEPC_DOUBLE, FINEPC_DOUBLE}})
    for (PetscReal postfilter : {0., 0.005}) {
      CAPTURE(p.setup, postfilter);
      SFSAIParams params = Params(p.setup, p.factor);
      params.postfilter  = postfilter;
      CompareTwins(A, params, &S);
      const HostFactor F = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, &S);
      CHECK(F.stats.large_rows >= 4);
      params.work_limit = 4 * kKilobyte; /* a long row is a chunk of its own */
      CHECK(SameBits(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, &S), F));
      const OtherStream other;
      CHECK(SameBits(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, &S), F));
    }
}

/*
   A table for the long rows takes half a MiB, with a cap more than 2: one block does one row after the other, then there are
   several.
*/
TEST_CASE("sfsai twins: tables in global memory, fewer than rows", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix A      = Stars(120000, {2000, 2500, 90, 3000, 3500, 2200, 1800, 1700, 1600}, 33, 87);
  SFSAIParams      params = Double(2);
  for (LocalInt max_row : {0, 33}) {
    params.max_row = max_row;
    ComparePatterns(A, params, {4 * kKilobyte, 64 * kKilobyte, kMegabyte, 8 * kMegabyte});
  }
  params.max_row          = 20;
  params.postfilter       = 0.02;
  const HostFactor host   = ComputeFactor(A, params, PETSC_MEMTYPE_HOST);
  params.work_limit       = 64 * kKilobyte;
  const HostFactor device = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA);
  CHECK(CheckTwins(A, host, device, params, kLambdaMin) == 0);
  CHECK(host.stats.dropped == device.stats.dropped);
}

/* There are enough rows for a sample, and so for a pool. */
TEST_CASE("sfsai twins: a pool that has no room for most rows", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix A = RandomStencil(34, 34, 34, false, 88);
  for (LocalInt max_row : {0, 9}) {
    SFSAIParams params = Params(FINEPC_SINGLE, FINEPC_SINGLE, 3);
    params.max_row     = max_row;
    ComparePatterns(A, params, {1, 4 * kKilobyte, 64 * kKilobyte, kMegabyte});
  }
  SFSAIParams params = Params(FINEPC_DOUBLE, FINEPC_SINGLE, 2);
  params.postfilter  = 0.02;
  CompareFactors(A, params, {256 * kKilobyte});
}

TEST_CASE("sfsai twins: a search that starts with a larger table", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  ComparePatterns(RandomGraph(33000, 9, 89), Double(3));
  ComparePatterns(RandomStencil(34, 34, 34, true, 91), Double(4));
  SFSAIParams params = Double(3);
  params.max_row     = 20;
  ComparePatterns(RandomGraph(33000, 7, 92), params, {SFSAIParams().work_limit, kMegabyte});

  /* half of the rows need a whole block, and the host has only time for some */
  const HostMatrix A      = RandomGraph(33000, 13, 90);
  const HostFactor device = FindPattern(A, Double(3), PETSC_MEMTYPE_CUDA);
  LocalInt         wrong  = 0;
  for (LocalInt row = 7; row < A.n; row += 97) {
    bool               tie;
    std::set<LocalInt> P = ReferencePattern(A, row, Double(3), &tie);
    P.erase(row);
    wrong += P != RowPattern(device, row);
  }
  CHECK(wrong == 0);
}

/* 81251 words in one row, which is more than the first table in global memory holds. All other rows have two entries at most. */
TEST_CASE("sfsai twins: a row of very many words", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const LocalInt last = 32 * 81250;
  Random         random(93);
  HostMatrix     A;
  A.n = last + 1;
  std::vector<PetscScalar> coupling;
  for (LocalInt row = 0; row < last; row++) {
    A.j.push_back(row);
    A.a.push_back(1 + row % 3);
    if (row % 32 == 0) {
      coupling.push_back(1e-3 * random.Between(0.1, 1));
      A.j.push_back(last);
      A.a.push_back(coupling.back());
    }
    A.i.push_back(A.nnz());
  }
  for (LocalInt k = 0; k < (LocalInt)coupling.size(); k++) {
    A.j.push_back(32 * k);
    A.a.push_back(coupling[k]);
  }
  A.j.push_back(last);
  A.a.push_back(2);
  A.i.push_back(A.nnz());
  SFSAIParams params = Double(1);
  params.max_row     = 50;
  ComparePatterns(A, params, {SFSAIParams().work_limit, kMegabyte});
}

TEST_CASE("sfsai twins: many long rows", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix A = RandomArrow(300, 71); /* with k = 2 every row is full */
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    CompareTwins(A, Params(p.setup, p.factor, 2));
    CHECK(ComputeFactor(A, Params(p.setup, p.factor, 2), PETSC_MEMTYPE_CUDA).stats.max_row == 300);
    SFSAIParams params = Params(p.setup, p.factor, 2);
    params.max_row     = 40;
    CompareTwins(RandomArrow(3000, 72), params);
    CompareTwins(RandomGraph(4000, 21, 73), params);
  }
}

TEST_CASE("sfsai twins: real matrices have the same pattern and Kaporin number", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  for (const char *name : kStructural)
    for (const Precisions &p : kAllPrecisions)
      for (LocalInt power : {1, 2}) {
        CAPTURE(name, p.setup, p.factor, power);
        const HostMatrix A      = Shared(name);
        SFSAIParams      params = Params(p.setup, p.factor, power);
        params.max_row          = power == 2 ? 50 : 0;
        const HostFactor host = ComputeFactor(A, params, PETSC_MEMTYPE_HOST), device = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA);
        CHECK(SamePattern(host, device));
        CHECK(device.stats.capped_rows == host.stats.capped_rows);
        CHECK(device.stats.log_psi_before == Approx(host.stats.log_psi_before));
        CHECK(std::fabs(device.stats.log_psi_after - host.stats.log_psi_after) <= 1e-3);
        /* a pivot at the threshold */
        CHECK(std::abs(device.stats.double_rows - host.stats.double_rows) <= host.stats.double_rows / 100 + 1);
        CHECK(device.stats.diagonal_rows == host.stats.diagonal_rows);
        CHECK(ErrorOfDiagonal(A, device, params).over_bound <= 1);
      }
}

TEST_CASE("sfsai twins: another stream than the default", "[sfsai][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix  A = RandomStencil(15, 15, 15, false, 16), S = LongRows(A.n, {300, 20, 100, 40});
  SFSAIParams       params = Params(FINEPC_SINGLE, FINEPC_SINGLE);
  const HostFactor  F = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA), G = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, &S);
  const OtherStream other_stream;
  CHECK(SameBits(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA), F));
  CHECK(SameBits(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, &S), G));
  CompareTwins(A, params);
  params.max_row    = 9;
  params.postfilter = 0.05;
  CompareTwins(A, params);
}

/* ----------------------------------- for compute-sanitizer ------------------------------------ */

/* Every kernel with as little work as it can have: systems in registers, in shared and in global memory, all sizes of tables there.
 */
TEST_CASE("sfsai: every kernel, on small systems", "[sfsai][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const HostMatrix A = RandomDense(530, 600), S = LongRows(A.n, {520, 1, 8, 9, 16, 17, 33, 65, 129, 257});
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    SFSAIParams params = Params(p.setup, p.factor, 2);
    CompareTwins(RandomGraph(80, 9, 601), params);
    params.max_row = 5;
    CompareTwins(RandomGraph(80, 9, 602), params);
    params.prefilter = params.postfilter = 0.05;
    CompareTwins(RandomGraph(80, 9, 603), params);
    CompareTwins(RandomGraph(80, 9, 604), Params(p.setup, p.factor, 1)); /* the lower triangle is the pattern */
    CompareTwins(RandomStencil(7, 7, 7, true, 605), Params(p.setup, p.factor, 2));
    const HostFactor F = ComputeFactor(A, Params(p.setup, p.factor), PETSC_MEMTYPE_CUDA, &S);
    CHECK(ErrorOfDiagonal(A, F, Params(p.setup, p.factor)).over_bound <= 1);
  }
}

/* A sample is drawn from many rows, whose patterns are kept in a pool, and a row has more words than shared memory holds. */
TEST_CASE("sfsai: many rows and long ones, for every kernel", "[sfsai][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const HostMatrix A = Stars(66000, {2000, 90}, 33, 606);
  for (LocalInt max_row : {0, 33}) {
    SFSAIParams params = Double(2);
    params.max_row     = max_row;
    ComparePatterns(A, params, {64 * kKilobyte, 8 * kMegabyte});
  }
}

/* One row that cuSOLVER solves. */
TEST_CASE("sfsai: a row for cuSOLVER, for every kernel", "[sfsai][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const LocalInt   n = kCholeskyLargest + 20;
  const HostMatrix A = RandomGraph(n, 9, 607), S = LongRows(n, {kCholeskyLargest + 1, 20});
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
    const SFSAIParams params = Params(precision, precision);
    const HostFactor  F      = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, &S);
    CHECK(F.stats.large_rows == 1);
    CHECK(ErrorOfDiagonal(A, F, params).over_bound <= 1);
  }
}
