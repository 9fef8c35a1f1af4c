/* The factor: by hand, by its properties, against the paper's formulas as they stand, and host against CUDA. */
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "compare.h"
#include "covering.h"

namespace
{

AFSAIParams Params(FinePCPrecision setup, FinePCPrecision factor, LocalInt max_steps = 10, PetscReal tolerance = 0)
{
  AFSAIParams params;
  params.setup_precision  = setup;
  params.factor_precision = factor;
  params.max_steps        = max_steps;
  params.tolerance        = tolerance;
  return params;
}

AFSAIParams Double(LocalInt max_steps = 10, PetscReal tolerance = 0)
{
  return Params(FINEPC_DOUBLE, FINEPC_DOUBLE, max_steps, tolerance);
}

bool IsSubset(const std::set<LocalInt> &small, const std::set<LocalInt> &large)
{
  return std::includes(large.begin(), large.end(), small.begin(), small.end());
}

/* psi_i relative to a_ii, which is psi of the diagonal alone */
double PsiRatio(const HostMatrix &A, const HostFactor &F, LocalInt row)
{
  return 1 / (F.d[row] * A.At(F.first + row, F.first + row));
}

} // namespace

/*
   [4 2; 2 16]: row 1 has P = {0}, g = -a_01 / a_00 = -1/2, psi = a_11 + g a_01 = 15. All of it is exact in binary, scaled or not.
*/
TEST_CASE("afsai by hand, 2 x 2", "[afsai]")
{
  const HostMatrix A = FromDense(2, {4, 2, 2, 16});
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const HostFactor F = ComputeFactor(A, Params(p.setup, p.factor), backend.where);
    CHECK(F.i == std::vector<LocalInt>{0, 0, 1});
    CHECK(F.j == std::vector<LocalInt>{0});
    CHECK(F.a == std::vector<double>{-0.5});
    CHECK(F.d == std::vector<double>{0.25, 1. / 15});
    CHECK(F.stats.max_row == 2);
    CHECK(F.stats.log_psi_before == Approx((std::log(4.) + std::log(16.)) / 2));
    CHECK(F.stats.log_psi_after == Approx((std::log(4.) + std::log(15.)) / 2));
    CHECK(F.stats.double_rows + F.stats.diagonal_rows == 0);
  });
}

/*
   [2 -1 0; -1 2 -1; 0 -1 2]:
     row 1: P = {0}, g = 1/2, psi = 2 - 1/2 = 3/2.
     row 2, step 1: the one candidate is 1, g = 1/2, psi = 3/2.
     row 2, step 2: now 0 is a candidate, its gradient 2 a_01 g_1 = -1; [2 -1; -1 2] g = (0, 1) gives g = (1/3, 2/3),
                    psi = 2 - 2/3 = 4/3.
   The relative gains of row 2 are 1/4 and 1/9; psi_k / psi_0 is 3/4 and 2/3.
*/
TEST_CASE("afsai by hand, 3 x 3 tridiagonal", "[afsai]")
{
  const HostMatrix A = Poisson(3);
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const double u = 16 * std::max(Unit(p.setup), Unit(p.factor));

    const auto check_two_steps = [&](const AFSAIParams &params) {
      const HostFactor F = ComputeFactor(A, params, backend.where);
      REQUIRE(F.j == std::vector<LocalInt>{0, 0, 1});
      CHECK(std::fabs(F.a[0] - 0.5) <= u);
      CHECK(std::fabs(F.a[1] - 1. / 3) <= u);
      CHECK(std::fabs(F.a[2] - 2. / 3) <= u);
      CHECK(std::fabs(F.d[0] - 1. / 2) <= u);
      CHECK(std::fabs(F.d[1] - 2. / 3) <= u);
      CHECK(std::fabs(F.d[2] - 3. / 4) <= u);
    };
    const auto check_one_step = [&](const AFSAIParams &params) {
      const HostFactor F = ComputeFactor(A, params, backend.where);
      REQUIRE(F.j == std::vector<LocalInt>{0, 1});
      CHECK(std::fabs(F.a[1] - 0.5) <= u);
      CHECK(std::fabs(F.d[2] - 2. / 3) <= u);
    };

    AFSAIParams params = Params(p.setup, p.factor);
    check_two_steps(params);
    params.max_steps = 1;
    check_one_step(params);

    params           = Params(p.setup, p.factor);
    params.tolerance = 0.1; /* the second step gains 1/9 */
    check_two_steps(params);
    params.tolerance = 0.26; /* the first gains 1/4: it stays, and is the last */
    check_one_step(params);

    params.stop_rule = PC_AFSAI_STOP_RATIO;
    params.tolerance = 0.7; /* 3/4 is above it, 2/3 is not */
    check_two_steps(params);
    params.tolerance = 0.76;
    check_one_step(params);
  });
}

TEST_CASE("equal gradients: the smaller column goes first", "[afsai]")
{
  const LocalInt   nx = 6;
  const HostMatrix A  = Poisson(nx, 6);
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const HostFactor F = ComputeFactor(A, Params(p.setup, p.factor, 1), backend.where);
    for (LocalInt row = nx + 1; row < A.n; row++) {
      CAPTURE(row);
      CHECK(RowPattern(F, row) == std::set<LocalInt>{row - nx}); /* not row - 1, unless there is no choice */
    }
  });
}

TEST_CASE("diag(G A G^T) = 1", "[afsai]")
{
  std::vector<Named> matrices = SmallMatrices();
  matrices.push_back({"Poisson 2D", Poisson(40, 40)});
  matrices.push_back({"Poisson 3D", Poisson(12, 12, 12)});
  for (const Backend &backend : Backends())
    for (const Named &m : matrices)
      for (const Precisions &p : kAllPrecisions)
        for (LocalInt max_steps : {3, 10, 30}) {
          CAPTURE(backend.name, m.name, p.setup, p.factor, max_steps);
          const AFSAIParams   params = Params(p.setup, p.factor, max_steps);
          const HostFactor    F      = ComputeFactor(m.A, params, backend.where);
          const DiagonalError error  = ErrorOfDiagonal(m.A, F, params);
          CHECK(error.over_bound <= 1);
          /* scaled to unit diagonal, its entries are 1 and -1/4 in any precision */
          const bool exact = !std::strcmp(m.name, "Poisson 2D");
          if (p.setup == FINEPC_DOUBLE || exact) CHECK(error.worst <= 1e-12);
          else CHECK(error.worst <= 1e-6); /* these are well conditioned: |G||A||G|^T is below 20 */
          CHECK(F.stats.double_rows == 0);
          CHECK(F.stats.diagonal_rows == 0);
        }
}

TEST_CASE("diag(G A G^T) = 1 on real matrices", "[afsai][long]")
{
  for (const Backend &backend : Backends())
    for (const auto &[name, setup, factor] : Covering(kStructural, kPrecisions, kPrecisions)) {
      CAPTURE(backend.name, name, setup, factor);
      const HostMatrix    A      = Shared(name);
      const AFSAIParams   params = Params(setup, factor, 15);
      const HostFactor    F      = ComputeFactor(A, params, backend.where);
      const DiagonalError error  = ErrorOfDiagonal(A, F, params);
      CHECK(error.over_bound <= 1);
      CHECK(error.worst <= 1e-3); /* u / kFSAISmallestPivotSingle */
      CHECK(F.stats.diagonal_rows == 0);
      CHECK(F.stats.log_psi_after < F.stats.log_psi_before);
    }
}

TEST_CASE("the full pattern gives the inverse", "[afsai]")
{
  for (const Backend &backend : Backends())
    for (const Named &m : SmallMatrices())
      for (bool by_power : {false, true}) {
        CAPTURE(backend.name, m.name, by_power);
        AFSAIParams params   = Double(by_power ? 0 : m.A.n);
        params.initial_power = by_power ? m.A.n : 0;
        CHECK(ErrorOfInverse(m.A, ComputeFactor(m.A, params, backend.where)) <= 1e-12);
        if (by_power) { /* the search ends when a power adds no column */
          AFSAIParams endless   = params;
          endless.initial_power = LOCAL_INT_MAX;
          CHECK(SameBits(ComputeFactor(m.A, params, backend.where), ComputeFactor(m.A, endless, backend.where)));
        }
        params.setup_precision = FINEPC_SINGLE;
        CHECK(ErrorOfInverse(m.A, ComputeFactor(m.A, params, backend.where)) <= 1e-4);
      }
}

TEST_CASE("no steps: Jacobi to the last bit", "[afsai]")
{
  std::vector<Named> matrices = SmallMatrices();
  matrices.push_back({"bcsstk24", Shared("bcsstk24")});
  ForEachPrecision(matrices, [&](const Backend &backend, const Named &m, const Precisions &p) {
    const HostFactor F = ComputeFactor(m.A, Params(p.setup, p.factor, 0), backend.where);
    CHECK(IsDiagonal(F, m.A));
    CHECK(F.stats.log_psi_after == Approx(F.stats.log_psi_before));
    CHECK(F.stats.max_row == 1);

    AFSAIParams params = Params(p.setup, p.factor);
    params.postfilter  = 1;
    CHECK(IsDiagonal(ComputeFactor(m.A, params, backend.where), m.A));
    params           = Params(p.setup, p.factor);
    params.prefilter = 1; /* an SPD matrix scaled to unit diagonal has smaller entries than that */
    CHECK(IsDiagonal(ComputeFactor(m.A, params, backend.where), m.A));
  });
}

TEST_CASE("the Kaporin number never grows with the steps, and patterns are nested", "[afsai]")
{
  for (const Backend &backend : Backends())
    for (const Named &m : SmallMatrices())
      for (FinePCPrecision setup : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        const double slack = 100 * Unit(setup);
        HostFactor   last  = ComputeFactor(m.A, Params(setup, FINEPC_DOUBLE, 0), backend.where);
        for (LocalInt steps = 1; steps <= 12; steps++) {
          CAPTURE(backend.name, m.name, setup, steps);
          const HostFactor F = ComputeFactor(m.A, Params(setup, FINEPC_DOUBLE, steps), backend.where);
          CHECK(F.stats.log_psi_before == Approx(last.stats.log_psi_before));
          CHECK(F.stats.log_psi_after <= last.stats.log_psi_after + slack);
          double   mean  = 0;
          LocalInt grown = 0, shrunk = 0, too_long = 0;
          for (LocalInt row = 0; row < F.rows; row++) {
            mean -= std::log(F.d[row]) / F.rows;
            grown += 1 / F.d[row] > (1 + slack) / last.d[row];
            shrunk += !IsSubset(RowPattern(last, row), RowPattern(F, row));
            too_long += F.Length(row) > steps;
          }
          CHECK(F.stats.log_psi_after == Approx(mean));
          CHECK(grown == 0);
          CHECK(shrunk == 0);
          CHECK(too_long == 0);
          last = F;
        }
      }
}

TEST_CASE("every option follows the paper's formulas", "[afsai][slow]")
{
  std::vector<AFSAIParams> variants;
  for (LocalInt max_steps : {1, 4, 12})
    for (LocalInt step_size : {1, 2, 3, 7})
      for (PCAFSAISelection selection : {PC_AFSAI_SELECTION_DECREASE, PC_AFSAI_SELECTION_GRADIENT}) {
        AFSAIParams params = Double(max_steps);
        params.step_size   = step_size;
        params.selection   = selection;
        variants.push_back(params);
      }
  for (PCAFSAIStopRule rule : {PC_AFSAI_STOP_GAIN, PC_AFSAI_STOP_RATIO})
    for (PetscReal tolerance : {0.9, 0.3, 0.05, 1e-2, 1e-3, 1e-5}) {
      AFSAIParams params = Double(12, tolerance);
      params.stop_rule   = rule;
      params.step_size   = tolerance == 1e-2 ? 3 : 1;
      variants.push_back(params);
    }
  for (LocalInt power : {1, 2, 3})
    for (LocalInt max_steps : {0, 2}) {
      AFSAIParams params   = Double(max_steps);
      params.initial_power = power;
      params.step_size     = 2;
      variants.push_back(params);
    }
  for (PetscReal filter : {0.02, 0.1, 0.3}) {
    AFSAIParams params = Double();
    params.prefilter   = filter;
    variants.push_back(params);
    params.initial_power = 2;
    variants.push_back(params);
    params            = Double();
    params.postfilter = filter;
    variants.push_back(params);
    params.prefilter = filter / 4;
    variants.push_back(params);
  }
  for (const Backend &backend : Backends())
    for (const auto &[m, variant, precision] : Covering(SmallMatrices(), variants, kPrecisions)) {
      AFSAIParams params      = variant;
      params.setup_precision  = precision;
      params.factor_precision = precision;
      CAPTURE(backend.name, m.name, precision, params.max_steps, params.step_size, params.tolerance, params.stop_rule,
              params.selection, params.initial_power, params.prefilter, params.postfilter);
      const HostFactor F         = ComputeFactor(m.A, params, backend.where);
      const LocalInt   different = CheckAgainstReference(m.A, F, params, kLambdaMin);
      if (precision == FINEPC_DOUBLE) CHECK(different == 0); /* random matrices do not tie in 16 digits */
      else CHECK(different <= std::max<LocalInt>(2, m.A.n / 20));
      CHECK(ErrorOfDiagonal(m.A, F, params).over_bound <= 1);
      CHECK(F.stats.double_rows + F.stats.diagonal_rows == 0);
    }
}

/* B_1 = the lower triangle, B_p = Low(B_{p-1} A~), A~ being A without the entries that the prefilter drops. */
TEST_CASE("the initial pattern is the boolean power", "[afsai]")
{
  for (const Backend &backend : Backends())
    for (const Named &m : SmallMatrices())
      for (PetscReal prefilter : {0., 0.1})
        for (LocalInt power : {1, 2, 3, 4}) {
          CAPTURE(backend.name, m.name, prefilter, power);
          const LocalInt                  n = m.A.n;
          std::vector<std::set<LocalInt>> kept(n), B(n);
          for (LocalInt row = 0; row < n; row++) {
            B[row].insert(row);
            for (LocalInt k = m.A.i[row]; k < m.A.i[row + 1]; k++)
              if (std::fabs(m.A.a[k]) > prefilter * std::sqrt(m.A.At(row, row) * m.A.At(m.A.j[k], m.A.j[k])))
                kept[row].insert(m.A.j[k]);
          }
          for (LocalInt p = 0; p < power; p++)
            for (LocalInt row = 0; row < n; row++) {
              const std::set<LocalInt> before = B[row];
              for (LocalInt j : before)
                for (LocalInt k : kept[j])
                  if (k <= row) B[row].insert(k);
            }
          AFSAIParams params     = Params(FINEPC_SINGLE, FINEPC_SINGLE, 0);
          params.initial_power   = power;
          params.prefilter       = prefilter;
          const HostFactor F     = ComputeFactor(m.A, params, backend.where);
          LocalInt         wrong = 0;
          for (LocalInt row = 0; row < n; row++) {
            B[row].erase(row);
            wrong += RowPattern(F, row) != B[row];
          }
          CHECK(wrong == 0);
        }
}

TEST_CASE("the prefilter keeps weak couplings out of the pattern, not out of the values", "[afsai]")
{
  /* two tridiagonal blocks, coupled weakly */
  const LocalInt           half = 20, n = 2 * half;
  std::vector<PetscScalar> dense(n * n, 0);
  for (LocalInt row = 0; row < n; row++) {
    dense[row * n + row] = 4;
    if (row % half) dense[row * n + row - 1] = dense[(row - 1) * n + row] = -1 - 0.01 * row;
    if (row >= half) dense[row * n + row - half] = dense[(row - half) * n + row] = 0.02;
  }
  const HostMatrix A = FromDense(n, dense);
  for (const Backend &backend : Backends())
    for (PetscReal prefilter : {0., 0.01}) { /* 0.02 / 4 is below the second */
      CAPTURE(backend.name, prefilter);
      AFSAIParams params     = Double(6);
      params.prefilter       = prefilter;
      const HostFactor F     = ComputeFactor(A, params, backend.where);
      LocalInt         cross = 0;
      for (LocalInt row = half; row < n; row++)
        for (LocalInt j : RowPattern(F, row)) cross += j < half;
      CHECK((cross == 0) == (prefilter > 0));
      CHECK(ErrorOfDiagonal(A, F, params).worst <= 1e-12);
    }
}

TEST_CASE("the postfilter drops what it says and scales again", "[afsai]")
{
  ForEachPrecision(SmallMatrices(), [&](const Backend &backend, const Named &m, const Precisions &p) {
    const HostFactor F      = ComputeFactor(m.A, Params(p.setup, p.factor), backend.where);
    AFSAIParams      params = Params(p.setup, p.factor);
    params.postfilter       = 1e-300; /* drops nothing */
    CHECK(SameBits(ComputeFactor(m.A, params, backend.where), F));

    LocalInt last = F.nnz();
    for (PetscReal filter : {0.01, 0.1, 0.5}) {
      CAPTURE(filter);
      params.postfilter      = filter;
      const HostFactor small = ComputeFactor(m.A, params, backend.where);
      CHECK(ErrorOfDiagonal(m.A, small, params).over_bound <= 1);
      CHECK(small.nnz() <= last);
      last           = small.nnz();
      LocalInt wrong = 0;
      for (LocalInt row = 0; row < F.rows; row++) {
        double norm = 1;
        for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++) norm += F.a[k] * F.a[k];
        std::set<LocalInt> kept;
        for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++)
          if (std::fabs(F.a[k]) > filter * std::sqrt(norm)) kept.insert(F.j[k]);
        wrong += RowPattern(small, row) != kept;
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("stop rules at their limits", "[afsai]")
{
  for (const Backend &backend : Backends())
    for (const Named &m : SmallMatrices()) {
      CAPTURE(backend.name, m.name);
      const HostFactor one = ComputeFactor(m.A, Double(1), backend.where), all = ComputeFactor(m.A, Double(9), backend.where);

      for (PCAFSAIStopRule rule : {PC_AFSAI_STOP_GAIN, PC_AFSAI_STOP_RATIO}) {
        AFSAIParams params = Double(9, 1 - 1e-15);
        params.stop_rule   = rule;
        /* gain: no step lowers psi by that much; ratio: any step that lowers psi is enough */
        const HostFactor F = ComputeFactor(m.A, params, backend.where);
        if (rule == PC_AFSAI_STOP_GAIN) CHECK(SamePattern(F, one));
        else {
          LocalInt longer = 0;
          for (LocalInt row = 0; row < F.rows; row++) longer += F.Length(row) > 1 && PsiRatio(m.A, one, row) <= 1 - 1e-14;
          CHECK(longer == 0);
        }
        params.tolerance = 0;
        CHECK(SameBits(ComputeFactor(m.A, params, backend.where), all)); /* never satisfied */
      }

      for (PetscReal tolerance : {0.98, 0.9, 0.6}) {
        CAPTURE(tolerance);
        AFSAIParams params     = Double(9, tolerance);
        params.stop_rule       = PC_AFSAI_STOP_RATIO;
        const HostFactor F     = ComputeFactor(m.A, params, backend.where);
        LocalInt         early = 0;
        for (LocalInt row = 0; row < F.rows; row++)
          early += F.Length(row) < all.Length(row) && !(PsiRatio(m.A, F, row) <= tolerance);
        CHECK(early == 0);
      }
    }
}

TEST_CASE("rows of other ranks are only read", "[afsai]")
{
  for (const Backend &backend : Backends())
    for (const Named &m : SmallMatrices())
      for (const Precisions &p : kAllPrecisions)
        for (LocalInt first : {1, 17, (int)m.A.n - 1, (int)m.A.n}) {
          CAPTURE(backend.name, m.name, p.setup, p.factor, first);
          const AFSAIParams params = Params(p.setup, p.factor);
          const HostFactor  F = ComputeFactor(m.A, params, backend.where), part = ComputeFactor(m.A, params, backend.where, first);
          REQUIRE(part.rows == F.rows - first);
          LocalInt different = 0, max_row = 0;
          double   mean = 0;
          for (LocalInt row = 0; row < part.rows; row++) {
            const LocalInt length = part.Length(row), at = part.i[row], whole = F.i[first + row];
            bool           same = length == F.Length(first + row) && part.d[row] == F.d[first + row];
            for (LocalInt k = 0; same && k < length; k++)
              same = part.j[at + k] == F.j[whole + k] && part.a[at + k] == F.a[whole + k];
            different += !same;
            max_row = std::max(max_row, length + 1);
            mean -= std::log(part.d[row]) / part.rows;
          }
          CHECK(different == 0);
          CHECK(part.stats.max_row == max_row);
          CHECK(part.stats.log_psi_after == Approx(mean));
        }
}

TEST_CASE("a kept pattern gets the values that belong to it", "[afsai]")
{
  ForEachPrecision(SmallMatrices(), [&](const Backend &backend, const Named &m, const Precisions &p) {
    AFSAIParams      params = Params(p.setup, p.factor);
    const HostFactor F      = ComputeFactor(m.A, params, backend.where);
    const auto       check  = [&](const HostMatrix &A, const HostFactor &kept) {
      REQUIRE(SamePattern(kept, F));
      CHECK(ErrorOfDiagonal(A, kept, params).over_bound <= 1);
      CHECK(kept.stats.double_rows + kept.stats.diagonal_rows == 0);
      CheckValues(A, kept, params, kLambdaMin);
    };
    check(m.A, ComputeFactor(m.A, params, backend.where, 0, &F));

    HostMatrix changed = m.A; /* the same nonzeros; still dominated by its diagonal */
    for (LocalInt row = 0; row < changed.n; row++)
      for (LocalInt k = changed.i[row]; k < changed.i[row + 1]; k++)
        if (changed.j[k] != row) changed.a[k] *= 0.5 + 0.5 * std::cos((double)(row + changed.j[k]));
    check(changed, ComputeFactor(changed, params, backend.where, 0, &F));

    params.postfilter = 0.2; /* a kept pattern is not filtered again */
    check(changed, ComputeFactor(changed, params, backend.where, 0, &F));
  });
}

TEST_CASE("bad pivots: first double precision, then the diagonal, both counted", "[afsai]")
{
  struct Case {
    double   coupling;
    LocalInt double_rows, diagonal_rows; /* per block, of a set-up in single */
  };
  const LocalInt blocks = 40;
  for (const Case &c : {Case{0.5, 0, 0}, Case{1 - 1e-6, 1, 0}, Case{1 - 1e-15, 1, 1}, Case{2, 1, 1}, Case{-2, 1, 1}}) {
    const HostMatrix A             = BadPairs(blocks, c.coupling);
    LocalInt         chain_entries = 0; /* the good rows are one chain */
    for (LocalInt b = 0; b < blocks; b++) chain_entries += std::min<LocalInt>(b, 10);
    ForEachPrecision([&](const Backend &backend, const Precisions &p) {
      CAPTURE(c.coupling);
      const AFSAIParams params = Params(p.setup, p.factor);
      const HostFactor  F      = ComputeFactor(A, params, backend.where);
      const auto        check  = [&](const HostFactor &result) {
        CHECK(result.stats.double_rows == (p.setup == FINEPC_SINGLE ? blocks * c.double_rows : 0));
        CHECK(result.stats.diagonal_rows == blocks * c.diagonal_rows);
        LocalInt wrong = 0;
        for (LocalInt b = 0; b < blocks; b++) {
          const LocalInt row = 3 * b + 1;
          const double   psi = c.diagonal_rows ? 1 : 1 - c.coupling * c.coupling;
          wrong += !(std::fabs(result.d[row] * psi - 1) <= 1e-9);
          if (result.Length(row)) wrong += !(std::fabs(result.a[result.i[row]] + (c.diagonal_rows ? 0 : c.coupling)) <= 1e-6);
        }
        CHECK(wrong == 0);
      };
      check(F);
      CHECK(F.nnz() == (c.diagonal_rows ? 0 : blocks) + chain_entries);
      if (!c.diagonal_rows) CHECK(ErrorOfDiagonal(A, F, params).over_bound <= 1);

      /* a pattern from a good matrix, kept by the bad one */
      const HostFactor pattern = ComputeFactor(BadPairs(blocks, 0.5), params, backend.where);
      check(ComputeFactor(A, params, backend.where, 0, &pattern));
    });
  }
}

TEST_CASE("unusable matrices are named by their first bad row", "[afsai]")
{
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    CheckUnusableMatrices([&](const HostMatrix &A) { return ComputeFactor(A, Params(p.setup, p.factor), backend.where).stats; });
  });
}

TEST_CASE("sizes 0 and 1", "[afsai]")
{
  for (const Backend &backend : Backends())
    for (const Precisions &p : kAllPrecisions)
      for (LocalInt power : {0, 2}) {
        CAPTURE(backend.name, p.setup, p.factor, power);
        AFSAIParams params     = Params(p.setup, p.factor);
        params.initial_power   = power;
        const HostFactor empty = ComputeFactor(HostMatrix(), params, backend.where);
        CHECK(empty.rows == 0);
        CHECK(empty.nnz() == 0);
        CHECK(ComputeFactor(HostMatrix(), params, backend.where, 0, &empty).nnz() == 0);
        const HostMatrix one = FromDense(1, {8});
        const HostFactor F   = ComputeFactor(one, params, backend.where);
        CHECK(F.d == std::vector<double>{0.125});
        CHECK(F.nnz() == 0);
        CHECK(ComputeFactor(one, params, backend.where, 0, &F).d == std::vector<double>{0.125});
      }
}

/* Row 1 gains a_10^2 in its one step, and row 2 has none. */
TEST_CASE("rows whose last step is not a small one are counted", "[afsai]")
{
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const auto count = [&](double coupling, LocalInt max_steps, LocalInt initial_power) {
      const HostMatrix A      = FromDense(3, {1, coupling, 0, coupling, 1, 0, 0, 0, 1});
      AFSAIParams      params = Params(p.setup, p.factor, max_steps);
      params.initial_power    = initial_power;
      const HostFactor found = ComputeFactor(A, params, backend.where), kept = ComputeFactor(A, params, backend.where, 0, &found);
      CHECK(kept.stats.unfinished == 0); /* these stats are new; those of a PC stay */
      return found.stats.unfinished;
    };
    CHECK(count(0.5, 1, 0) == 1);
    CHECK(count(0.3, 1, 0) == 0);
    CHECK(count(0.5, 2, 0) == 0);
    CHECK(count(0.5, 0, 1) == 0);
    CHECK(count(0.5, 1, 1) == 0);
  });
}

TEST_CASE("a set-up repeated gives the same bits", "[afsai]")
{
  const HostMatrix A = RandomStencil(20, 20, 20, false, 31);
  ForEachPrecision([&](const Backend &backend, const Precisions &p) {
    const AFSAIParams params = Params(p.setup, p.factor);
    const HostFactor  F      = ComputeFactor(A, params, backend.where);
    for (int repeat = 0; repeat < 3; repeat++) CHECK(SameBits(ComputeFactor(A, params, backend.where), F));
  });
}

/* ------------------------------------- host against CUDA -------------------------------------- */

namespace
{

/* Both twins, searched and kept. */
void CompareTwins(const HostMatrix &A, const AFSAIParams &params, LocalInt first = 0)
{
  const HostFactor host    = ComputeFactor(A, params, PETSC_MEMTYPE_HOST, first),
                   device  = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, first);
  const LocalInt different = CheckTwins(A, host, device, params, kLambdaMin);
  CHECK(different <= std::max<LocalInt>(1, A.n / 50));
  if (!different) CHECK(host.stats.max_row == device.stats.max_row);
  CHECK(host.stats.double_rows == device.stats.double_rows);
  CHECK(host.stats.diagonal_rows == device.stats.diagonal_rows);
  CHECK(std::abs(host.stats.unfinished - device.stats.unfinished) <= std::max<LocalInt>(1, A.n / 50));
  CHECK(host.stats.log_psi_before == Approx(device.stats.log_psi_before));
  CHECK(host.stats.log_psi_after == Approx(device.stats.log_psi_after).epsilon(1e-4).margin(1e-4));
  CHECK(ErrorOfDiagonal(A, device, params).over_bound <= 1);
  CHECK(SameBits(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, first), device));

  const HostFactor host_kept   = ComputeFactor(A, params, PETSC_MEMTYPE_HOST, first, &host),
                   device_kept = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, first, &host);
  CHECK(SamePattern(device_kept, host));
  CHECK(CheckTwins(A, host_kept, device_kept, params, kLambdaMin) == 0);
}

} // namespace

TEST_CASE("twins: sizes around the warp, every stencil and row length", "[afsai][gpu]")
{
  NEEDS_DEVICE();
  for (const Precisions &p : kAllPrecisions)
    for (LocalInt n : {1, 31, 32, 33, 1000}) {
      CAPTURE(p.setup, p.factor, n);
      CompareTwins(RandomStencil(n, 1, 1, false, 100 + n), Params(p.setup, p.factor));
      CompareTwins(RandomGraph(n, 9, 200 + n), Params(p.setup, p.factor));  /* mean row up to 12: groups of 8 */
      CompareTwins(RandomGraph(n, 19, 300 + n), Params(p.setup, p.factor)); /* up to 24: groups of 16 */
      CompareTwins(RandomGraph(n, 41, 400 + n), Params(p.setup, p.factor)); /* more: whole warps */
    }
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    CompareTwins(RandomStencil(60, 50, 1, false, 1), Params(p.setup, p.factor));
    CompareTwins(RandomStencil(14, 15, 16, false, 2), Params(p.setup, p.factor));
    CompareTwins(RandomStencil(12, 11, 10, true, 3), Params(p.setup, p.factor));
    CompareTwins(RandomStencil(14, 15, 16, false, 4), Params(p.setup, p.factor), 1000); /* rows of other ranks before */
  }
}

TEST_CASE("twins: every option", "[afsai][gpu]")
{
  NEEDS_DEVICE();
  const std::vector<HostMatrix> matrices = {RandomStencil(40, 40, 1, false, 5), RandomStencil(10, 10, 10, false, 6),
                                            RandomStencil(8, 8, 8, true, 7), RandomGraph(700, 17, 8)};
  for (const Precisions &p : kAllPrecisions)
    for (const HostMatrix &A : matrices) {
      CAPTURE(p.setup, p.factor, A.n, A.nnz());
      const auto compare = [&](auto change) {
        AFSAIParams params = Params(p.setup, p.factor);
        change(params);
        CAPTURE(params.max_steps, params.step_size, params.tolerance, params.stop_rule, params.selection, params.initial_power,
                params.prefilter, params.postfilter);
        CompareTwins(A, params);
      };
      compare([](AFSAIParams &q) { q.max_steps = 0; });
      compare([](AFSAIParams &q) { q.step_size = 3; });
      compare([](AFSAIParams &q) { q.step_size = 40, q.max_steps = 2; });
      compare([](AFSAIParams &q) { q.selection = PC_AFSAI_SELECTION_GRADIENT; });
      compare([](AFSAIParams &q) { q.tolerance = 0.01; });
      compare([](AFSAIParams &q) { q.tolerance = 0.95, q.stop_rule = PC_AFSAI_STOP_RATIO; });
      compare([](AFSAIParams &q) { q.initial_power = 1, q.max_steps = 0; });
      compare([](AFSAIParams &q) { q.initial_power = 2, q.max_steps = 3; });
      compare([](AFSAIParams &q) { q.prefilter = 0.05; });
      compare([](AFSAIParams &q) { q.prefilter = 0.05, q.initial_power = 2, q.selection = PC_AFSAI_SELECTION_GRADIENT; });
      compare([](AFSAIParams &q) { q.postfilter = 0.05; });
    }
}

TEST_CASE("twins: every size of work space", "[afsai][gpu]")
{
  NEEDS_DEVICE();
  const auto compare_large = [](const HostMatrix &A, const AFSAIParams &params) {
    CompareTwins(A, params);
    CHECK(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA).stats.large_rows > 0);
  };
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    compare_large(RandomStencil(9, 9, 9, true, 9), Params(p.setup, p.factor, 60)); /* larger, in shared memory */
    compare_large(RandomDense(200, 10), Params(p.setup, p.factor, 150));           /* global memory */
    compare_large(RandomArrow(3000, 11), Params(p.setup, p.factor, 12));           /* a few rows with very many candidates */
    AFSAIParams params   = Params(p.setup, p.factor, 0);
    params.initial_power = 3;
    compare_large(RandomStencil(9, 9, 9, true, 12), params);
    params.selection = PC_AFSAI_SELECTION_GRADIENT;
    params.max_steps = 2;
    compare_large(RandomStencil(7, 7, 7, true, 13), params);
  }
}

TEST_CASE("twins: more entries than one pool", "[afsai][gpu]")
{
  NEEDS_DEVICE();
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    CompareTwins(RandomStencil(20000, 1, 1, false, 14), Params(p.setup, p.factor, 40));
    CompareTwins(RandomStencil(100, 100, 1, false, 15), Params(p.setup, p.factor, 30));
  }
}

TEST_CASE("twins: real matrices have the same Kaporin number", "[afsai][gpu]")
{
  NEEDS_DEVICE();
  for (const char *name : kStructural)
    for (const Precisions &p : kAllPrecisions) {
      CAPTURE(name, p.setup, p.factor);
      const HostMatrix  A      = Shared(name);
      const AFSAIParams params = Params(p.setup, p.factor, 20, 1e-3);
      const HostFactor  host = ComputeFactor(A, params, PETSC_MEMTYPE_HOST), device = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA);
      CHECK(device.stats.log_psi_before == Approx(host.stats.log_psi_before));
      CHECK(std::fabs(device.stats.log_psi_after - host.stats.log_psi_after) <= 1e-3); /* ties are many: equal entries in A */
      CHECK(std::abs(device.nnz() - host.nnz()) <= host.nnz() / 100);
      CHECK(std::abs(device.stats.double_rows - host.stats.double_rows) <= host.stats.double_rows / 100 + 1);
    }
}

TEST_CASE("twins: another stream than the default", "[afsai][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix  A      = RandomStencil(15, 15, 15, false, 16);
  const AFSAIParams params = Params(FINEPC_SINGLE, FINEPC_SINGLE);
  const HostFactor  F      = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA);
  const OtherStream other_stream;
  CHECK(SameBits(ComputeFactor(A, params, PETSC_MEMTYPE_CUDA), F));
  CompareTwins(A, params);
}

/* ----------------------------------- for compute-sanitizer ------------------------------------ */

/*
   Every kernel with as little work as it can have: groups of 8, 16 and 32 lanes, rows whose work is in shared and in global memory,
   weighted selection and the gradient's.
*/
TEST_CASE("afsai: every kernel, on small systems", "[afsai][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (const Precisions &p : kAllPrecisions) {
    CAPTURE(p.setup, p.factor);
    for (LocalInt degree : {9, 19, 41}) CompareTwins(RandomGraph(80, degree, 500 + degree), Params(p.setup, p.factor, 3));
    CompareTwins(RandomStencil(6, 5, 4, true, 510), Params(p.setup, p.factor, 60)); /* rows done again, with larger work */
    AFSAIParams params   = Params(p.setup, p.factor, 3);
    params.selection     = PC_AFSAI_SELECTION_GRADIENT;
    params.initial_power = 2;
    params.prefilter     = 0.05;
    params.postfilter    = 0.05;
    CompareTwins(RandomGraph(80, 9, 511), params);
  }
}

/* A sample is drawn from many rows, and one row has more candidates than shared memory holds. */
TEST_CASE("afsai: many rows and a very long one, for every kernel", "[afsai][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
    const HostMatrix  line = RandomStencil(33000, 1, 1, false, 512), arrow = RandomArrow(3000, 513);
    const AFSAIParams params = Params(precision, precision, 2);
    CHECK(ErrorOfDiagonal(line, ComputeFactor(line, params, PETSC_MEMTYPE_CUDA), params).over_bound <= 1);
    const HostFactor F = ComputeFactor(arrow, Params(precision, precision, 4), PETSC_MEMTYPE_CUDA);
    CHECK(F.stats.large_rows > 0);
    CHECK(ErrorOfDiagonal(arrow, F, Params(precision, precision, 4)).over_bound <= 1);
  }
}

/* Its own lower triangle is the first power; any other pattern of a twin without steps is sfsai's row on that pattern. */
TEST_CASE("afsai: a given first pattern", "[afsai][pattern]")
{
  for (const Backend &backend : Backends())
    for (const Named &m : SmallMatrices()) {
      CAPTURE(backend.name, m.name);
      const HostMatrix S      = RandomGraph(m.A.n, 7, 71);
      AFSAIParams      params = Double(3), power = Double(3);
      power.initial_power    = 1;
      const HostFactor own   = ComputeFactor(m.A, params, backend.where, 0, nullptr, &m.A),
                       first = ComputeFactor(m.A, power, backend.where);
      CHECK(own.j == first.j);
      CHECK(own.a == first.a);
      CHECK(own.d == first.d);

      params.max_steps = 0;
      power.max_steps  = 3; /* the power is not used */
      SFSAIParams fixed;
      fixed.setup_precision = fixed.factor_precision = FINEPC_DOUBLE;
      const HostFactor on_S                          = ComputeFactor(m.A, params, backend.where, 0, nullptr, &S),
                       theirs                        = ComputeFactor(m.A, fixed, backend.where, &S),
                       steps                         = ComputeFactor(m.A, power, backend.where, 0, nullptr, &S),
                       host                          = ComputeFactor(m.A, power, PETSC_MEMTYPE_HOST, 0, nullptr, &S);
      REQUIRE(SamePattern(on_S, theirs));
      for (LocalInt row = 0; row < m.A.n; row++) {
        CHECK(on_S.d[row] == Approx(theirs.d[row]).epsilon(1e-11));
        CHECK(IsSubset(RowPattern(on_S, row), RowPattern(steps, row)));
        CHECK(PsiRatio(m.A, steps, row) <= PsiRatio(m.A, on_S, row) * (1 + 1e-12));
        CHECK(steps.Length(row) <= on_S.Length(row) + 3);
      }
      CHECK(SamePattern(steps, host));
    }
}

/* Sizes from 0 on, rows of other ranks, the precisions, and patterns with the upper triangle or with nothing. */
TEST_CASE("afsai: twins on a given first pattern", "[afsai][pattern][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (LocalInt n : {0, 1, 31, 32, 33, 300})
    for (LocalInt first : {0, 5})
      for (const Precisions &p : kAllPrecisions)
        for (LocalInt max_steps : {0, 2}) {
          if (first >= n && n) continue;
          CAPTURE(n, first, p.setup, p.factor, max_steps);
          const HostMatrix  A = n ? RandomGraph(n, 6, 72) : HostMatrix(), all = n ? RandomGraph(n, 12, 73) : HostMatrix();
          HostMatrix        S; /* the rows of the pattern from `first` on */
          const AFSAIParams params = Params(p.setup, p.factor, max_steps, 0);
          S.n                      = n ? n - first : 0;
          S.i.assign(1, 0);
          for (LocalInt row = n ? first : n; row < n; row++) {
            if (row % 7) S.j.insert(S.j.end(), all.j.begin() + all.i[row], all.j.begin() + all.i[row + 1]);
            S.i.push_back((LocalInt)S.j.size());
          }
          S.a.assign(S.j.size(), std::nan(""));
          const LocalInt   begin  = n ? first : 0;
          const HostFactor host   = ComputeFactor(A, params, PETSC_MEMTYPE_HOST, begin, nullptr, &S),
                           device = ComputeFactor(A, params, PETSC_MEMTYPE_CUDA, begin, nullptr, &S);
          if (p.setup == FINEPC_DOUBLE) CHECK(SamePattern(host, device));
          for (LocalInt row = 0; row < host.rows; row++)
            CHECK(device.d[row] == Approx(host.d[row]).epsilon(p.setup == FINEPC_DOUBLE ? 1e-10 : 1e-2));
        }
}
