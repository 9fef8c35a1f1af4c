#include "compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace
{

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename T>
T *Copy(const std::vector<T> &data, PetscMemType where)
{
  void *to = nullptr;
  MUST(ArrayCreate(data.size() * sizeof(T), where, &to));
  MUST(ArrayCopy(to, data.data(), data.size() * sizeof(T), where, PETSC_MEMTYPE_HOST));
  return (T *)to;
}

template <typename T>
std::vector<T> CopyBack(const void *data, size_t size, PetscMemType where)
{
  std::vector<T> to(size);
  MUST(ArrayCopy(to.data(), data, size * sizeof(T), PETSC_MEMTYPE_HOST, where));
  return to;
}

/* A factor that is computed where the kernels want it. Its arrays are full of NaN before. */
class Output {
public:
  CSR        G = {};
  PetscReal *d;
  FSAIStats  stats = {};

  Output(LocalInt first, LocalInt n, PetscMemType where) : first_(first), n_(n), where_(where)
  {
    PoisonMemory(where, (size_t)1 << 22);
    d = Copy(std::vector<PetscReal>(n - first, kNaN), where);
  }
  Output(const Output &)            = delete;
  Output &operator=(const Output &) = delete;
  ~Output()
  {
    PetscCallAbort(PETSC_COMM_SELF, CSRDestroy(&G));
    PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy(where_, (void **)&d));
  }

  void SetPattern(const HostFactor &pattern, FinePCPrecision precision)
  {
    MUST(CSRCreate(n_ - first_, n_, pattern.nnz(), precision, where_, &G));
    MUST(ArrayCopy(G.i, pattern.i.data(), pattern.i.size() * sizeof(LocalInt), where_, PETSC_MEMTYPE_HOST));
    MUST(ArrayCopy(G.j, pattern.j.data(), pattern.j.size() * sizeof(LocalInt), where_, PETSC_MEMTYPE_HOST));
    ForgetValues();
  }

  void ForgetValues()
  {
    const std::vector<double> nan(std::max(G.nnz, n_ - first_), kNaN);
    MUST(ArrayCopy(G.a, nan.data(), G.nnz * FinePCPrecisionBytes(G.precision), where_, PETSC_MEMTYPE_HOST));
    MUST(ArrayCopy(d, nan.data(), (n_ - first_) * sizeof(PetscReal), where_, PETSC_MEMTYPE_HOST));
  }

  HostFactor OnHost(FinePCPrecision precision) const
  {
    const LocalInt rows = n_ - first_;
    HostFactor     result;
    result.stats = stats;
    if (stats.failure) return result;
    REQUIRE(G.rows == rows);
    REQUIRE(G.columns == n_);
    REQUIRE(G.precision == precision);
    REQUIRE(G.where == where_);
    result.first = first_;
    result.rows  = rows;
    result.i     = CopyBack<LocalInt>(G.i, rows + 1, where_);
    result.j     = CopyBack<LocalInt>(G.j, G.nnz, where_);
    result.d     = CopyBack<double>(d, rows, where_);
    REQUIRE(result.i.front() == 0);
    REQUIRE(result.i.back() == G.nnz);
    if (precision == FINEPC_SINGLE) {
      const auto single = CopyBack<float>(G.a, G.nnz, where_);
      result.a.assign(single.begin(), single.end());
    } else result.a = CopyBack<double>(G.a, G.nnz, where_);
    bool ascending = true, finite = true;
    for (LocalInt row = 0; row < rows; row++)
      for (LocalInt k = result.i[row]; k < result.i[row + 1]; k++)
        ascending = ascending && result.j[k] < first_ + row && (k == result.i[row] || result.j[k - 1] < result.j[k]);
    for (double value : result.a) finite = finite && std::isfinite(value);
    for (double value : result.d) finite = finite && std::isfinite(value) && value > 0;
    REQUIRE(ascending); /* strictly lower, columns distinct and ascending */
    REQUIRE(finite);
    return result;
  }

private:
  LocalInt     first_, n_;
  PetscMemType where_;
};

} // namespace

std::vector<Named> SmallMatrices()
{
  return {
    {"tridiagonal 33", RandomStencil(33, 1, 1, false, 1)},
    {"5 points", RandomStencil(8, 7, 1, false, 2)},
    {"7 points", RandomStencil(4, 4, 4, false, 3)},
    {"27 points", RandomStencil(4, 4, 3, true, 4)},
    {"graph of 9 a row", RandomGraph(80, 9, 5)},
    {"dense", RandomDense(40, 6)},
    {"arrow", RandomArrow(64, 7)},
  };
}

HostFactor ComputeFactor(const HostMatrix &A, const AFSAIParams &params, PetscMemType where, LocalInt first, const HostFactor *keep,
                         const HostMatrix *S)
{
  const HostMatrix none;
  const CSRCopy    copy(A, where), pattern(S ? *S : none, where);
  Output           out(first, A.n, where);

  if (keep) out.SetPattern(*keep, params.factor_precision);
  const auto compute = PetscMemTypeDevice(where) ? AFSAIComputeFactor_CUDA : AFSAIComputeFactor_Host;
  MUST(compute(&copy.view, first, S ? &pattern.view : nullptr, &params, (PetscBool)(keep != nullptr), &out.G, out.d, &out.stats));
  return out.OnHost(params.factor_precision);
}

HostFactor ComputeFactor(const HostMatrix &A, const SFSAIParams &params, PetscMemType where, const HostMatrix *S,
                         const HostMatrix *refill)
{
  const HostMatrix none;
  const CSRCopy    copy(A, where), pattern(S ? *S : none, where), again(refill ? *refill : none, where);
  Output           out(0, A.n, where);
  SFSAIWork        work    = {};
  const auto       compute = PetscMemTypeDevice(where) ? SFSAIComputeFactor_CUDA : SFSAIComputeFactor_Host;

  MUST(compute({&copy.view, 0, S ? &pattern.view : nullptr}, &params, PETSC_FALSE, &out.G, out.d, &work, &out.stats));
  if (refill && !out.stats.failure) {
    const HostFactor first = out.OnHost(params.factor_precision);
    const CSR        old_G = out.G;
    const SFSAIWork  old   = work;
    PetscErrorCode   code;
    out.ForgetValues();
    /* CUDA loads kernels when they are first used */
    if (PetscMemTypeDevice(where))
      MUST(compute({&again.view, 0, S ? &pattern.view : nullptr}, &params, PETSC_TRUE, &out.G, out.d, &work, &out.stats));
    if (out.G.i && !out.stats.failure) out.ForgetValues();
    const PetscLogDouble used      = PetscMemTypeDevice(where) ? DeviceBytes() : 0;
    const long           allocated = CountAllocations([&] {
      code = compute({&again.view, 0, S ? &pattern.view : nullptr}, &params, PETSC_TRUE, &out.G, out.d, &work, &out.stats);
    });
    MUST(code);
    if (PetscMemTypeDevice(where)) CHECK(DeviceBytes() == used);
    else CHECK(allocated == 0);
    CHECK((out.G.i == old_G.i && out.G.j == old_G.j && out.G.a == old_G.a && out.G.nnz == old_G.nnz));
    CHECK((work.data == old.data && work.bytes == old.bytes && work.where == old.where));
    if (!out.stats.failure) CHECK(SamePattern(out.OnHost(params.factor_precision), first));
  }
  MUST(ArrayDestroy(work.where, &work.data));
  return out.OnHost(params.factor_precision);
}

HostMatrix PatternOf(const HostFactor &F)
{
  HostMatrix S;
  S.n = F.rows;
  S.i = F.i;
  S.j = F.j;
  S.a.assign(F.j.size(), kNaN);
  return S;
}

std::set<LocalInt> RowPattern(const HostFactor &F, LocalInt row)
{
  return std::set<LocalInt>(F.j.begin() + F.i[row], F.j.begin() + F.i[row + 1]);
}

bool SamePattern(const HostFactor &F, const HostFactor &G)
{
  return F.i == G.i && F.j == G.j;
}

bool SameBits(const HostFactor &F, const HostFactor &G)
{
  return SamePattern(F, G) && SameBits(F.a, G.a) && SameBits(F.d, G.d);
}

bool IsDiagonal(const HostFactor &F, const HostMatrix &A)
{
  bool same = F.j.empty();
  for (LocalInt row = 0; row < F.rows; row++) same = same && F.d[row] == 1 / A.At(F.first + row, F.first + row);
  return same;
}

DiagonalError ErrorOfDiagonal(const HostMatrix &A, const HostFactor &F, FinePCPrecision setup, FinePCPrecision factor,
                              bool filtered)
{
  const double             u = Unit(factor), u_G = setup == FINEPC_DOUBLE && !filtered ? 4 * u * u : 2 * u;
  std::vector<long double> g(A.n, 0);
  DiagonalError            error;

  for (LocalInt row = 0; row < F.rows; row++) {
    const LocalInt i = F.first + row;
    g[i]             = 1;
    for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++) g[F.j[k]] = F.a[k];
    long double sum = 0, magnitude = 0;
    const auto  add = [&](LocalInt p) {
      for (LocalInt k = A.i[p]; k < A.i[p + 1]; k++) {
        const long double term = g[p] * A.a[k] * g[A.j[k]];
        sum += term;
        magnitude += std::fabs(term);
      }
    };
    add(i);
    for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++) add(F.j[k]);
    for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++) g[F.j[k]] = 0;
    g[i] = 0;

    const double off   = (double)std::fabs(sum * F.d[row] - 1);
    const double bound = (Unit(setup) + u_G + (4 * F.Length(row) + 32) * kUnitDouble) * (double)(magnitude * F.d[row]);
    error.worst        = std::max(error.worst, off);
    error.over_bound   = std::max(error.over_bound, off / bound);
  }
  return error;
}

double ErrorOfInverse(const HostMatrix &A, const HostFactor &F)
{
  const LocalInt           n = A.n;
  std::vector<long double> G(n * n, 0), GA(n * n, 0);
  double                   worst = 0;

  for (LocalInt row = 0; row < n; row++) {
    const long double scale = std::sqrt((long double)F.d[row]);
    G[row * n + row]        = scale;
    for (LocalInt k = F.i[row]; k < F.i[row + 1]; k++) G[row * n + F.j[k]] = scale * F.a[k];
  }
  for (LocalInt row = 0; row < n; row++)
    for (LocalInt p = 0; p <= row; p++)
      for (LocalInt k = A.i[p]; k < A.i[p + 1]; k++) GA[row * n + A.j[k]] += G[row * n + p] * A.a[k];
  for (LocalInt row = 0; row < n; row++)
    for (LocalInt column = 0; column < n; column++) {
      long double sum = row == column ? -1 : 0;
      for (LocalInt p = 0; p <= column; p++) sum += GA[row * n + p] * G[column * n + p];
      worst = std::max(worst, (double)std::fabs(sum));
    }
  return worst;
}

namespace
{

/* Column positions by bisection. */
long double Entry(const HostMatrix &A, LocalInt row, LocalInt column)
{
  const auto begin = A.j.begin() + A.i[row], end = A.j.begin() + A.i[row + 1], at = std::lower_bound(begin, end, column);
  return at != end && *at == column ? A.a[at - A.j.begin()] : 0;
}

/* A[P, P] g = -A[P, i] by Gaussian elimination without pivoting, which an SPD matrix allows. */
std::vector<long double> SolveRow(const HostMatrix &A, const std::vector<LocalInt> &P, LocalInt i)
{
  const size_t             k = P.size();
  std::vector<long double> M(k * k), g(k);
  for (size_t r = 0; r < k; r++) {
    g[r] = -Entry(A, P[r], i);
    for (size_t c = 0; c < k; c++) M[r * k + c] = Entry(A, P[r], P[c]);
  }
  for (size_t p = 0; p < k; p++)
    for (size_t r = p + 1; r < k; r++) {
      const long double factor = M[r * k + p] / M[p * k + p];
      for (size_t c = p; c < k; c++) M[r * k + c] -= factor * M[p * k + c];
      g[r] -= factor * g[p];
    }
  for (size_t r = k; r-- > 0;) {
    for (size_t c = r + 1; c < k; c++) g[r] -= M[r * k + c] * g[c];
    g[r] /= M[r * k + r];
  }
  return g;
}

long double Psi(const HostMatrix &A, const std::vector<LocalInt> &P, const std::vector<long double> &g, LocalInt i)
{
  long double psi = Entry(A, i, i);
  for (size_t r = 0; r < P.size(); r++) {
    psi += 2 * g[r] * Entry(A, P[r], i);
    for (size_t c = 0; c < P.size(); c++) psi += g[r] * g[c] * Entry(A, P[r], P[c]);
  }
  return psi;
}

ReferenceRow MakeReferenceRow(const HostMatrix &A, LocalInt i, std::vector<LocalInt> P, bool tie)
{
  ReferenceRow row;
  std::sort(P.begin(), P.end());
  const auto g = SolveRow(A, P, i);
  row.j        = P;
  row.a.assign(g.begin(), g.end());
  row.psi = (double)Psi(A, P, g, i);
  row.tie = tie;
  return row;
}

/* The row on P, then the postfilter. */
template <typename Params>
ReferenceRow FinishReferenceRow(const HostMatrix &A, LocalInt i, const std::vector<LocalInt> &P, const Params &params, bool tie)
{
  const ReferenceRow all = MakeReferenceRow(A, i, P, tie);
  if (params.postfilter == 0) return all;
  long double norm = 1;
  for (double value : all.a) norm += value * value;
  norm = std::sqrt(norm);
  ReferenceRow             row;
  std::vector<long double> g;
  row.tie = tie;
  for (size_t p = 0; p < all.j.size(); p++) {
    const long double over = std::fabs(all.a[p]) - params.postfilter * norm;
    if (std::fabs(over) <= 16 * RowTolerance(params.setup_precision, (LocalInt)all.j.size(), kLambdaMin) * norm) row.tie = true;
    if (over <= 0) continue;
    row.j.push_back(all.j[p]);
    row.a.push_back(all.a[p]);
    g.push_back(all.a[p]);
  }
  row.psi = (double)Psi(A, row.j, g, i);
  return row;
}

} // namespace

ReferenceRow ComputeReferenceRow(const HostMatrix &A, LocalInt i, const std::vector<LocalInt> &pattern)
{
  return MakeReferenceRow(A, i, pattern, false);
}

ReferenceRow ComputeReferenceRow(const HostMatrix &A, LocalInt i, const AFSAIParams &params)
{
  std::vector<LocalInt> P;
  bool                  tie = false;

  const auto candidates = [&] {
    std::set<LocalInt> found;
    const auto         look = [&](LocalInt row) {
      for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
        const LocalInt j = A.j[k];
        if (j < i && std::fabs(A.a[k]) > params.prefilter * std::sqrt(Entry(A, row, row) * Entry(A, j, j))) found.insert(j);
      }
    };
    look(i);
    for (LocalInt p : P) look(p);
    for (LocalInt p : P) found.erase(p);
    return found;
  };

  for (LocalInt p = 0; p < params.initial_power; p++)
    for (LocalInt j : candidates()) P.push_back(j);
  std::vector<long double> g     = SolveRow(A, P, i);
  long double              psi   = Psi(A, P, g, i);
  const long double        psi_0 = psi;
  for (LocalInt step = 0; step < params.max_steps; step++) {
    struct Rank {
      long double gradient, rounding;
      LocalInt    j;
    };
    std::vector<Rank> ranks;
    const double      tolerance = RowTolerance(params.setup_precision, (LocalInt)P.size() + 8, kLambdaMin);
    for (LocalInt j : candidates()) {
      long double sum = Entry(A, i, j), magnitude = std::fabs(sum);
      for (size_t p = 0; p < P.size(); p++) {
        sum += Entry(A, j, P[p]) * g[p];
        magnitude += std::fabs(Entry(A, j, P[p]) * g[p]);
      }
      const long double scale = params.selection == PC_AFSAI_SELECTION_DECREASE ? 1 / std::sqrt(Entry(A, j, j)) : 1;
      if (magnitude > 0 && std::fabs(sum) <= tolerance * magnitude) tie = true; /* zero or not */
      if (std::fabs(sum) > 1e-17L * magnitude) ranks.push_back({std::fabs(sum) * scale, tolerance * magnitude * scale, j});
    }
    if (ranks.empty()) break;
    std::sort(ranks.begin(), ranks.end(),
              [](const Rank &x, const Rank &y) { return x.gradient != y.gradient ? x.gradient > y.gradient : x.j < y.j; });
    const size_t count = std::min<size_t>(ranks.size(), params.step_size);
    for (size_t r = count; r < ranks.size(); r++)
      tie = tie || ranks[count - 1].gradient - ranks[r].gradient <= ranks[count - 1].rounding + ranks[r].rounding;
    for (size_t r = 0; r < count; r++) P.push_back(ranks[r].j);
    const long double psi_before = psi;
    g                            = SolveRow(A, P, i);
    psi                          = Psi(A, P, g, i);
    const bool        ratio      = params.stop_rule == PC_AFSAI_STOP_RATIO;
    const long double measure    = ratio ? psi / psi_0 - params.tolerance : (psi_before - psi) / psi_before - params.tolerance;
    if (params.tolerance > 0 && std::fabs(measure) <= tolerance * (params.tolerance + psi_0 / psi)) tie = true;
    if (ratio ? psi <= params.tolerance * psi_0 : psi_before - psi < params.tolerance * psi_before) break;
  }
  return FinishReferenceRow(A, i, P, params, tie);
}

std::set<LocalInt> ReferencePattern(const HostMatrix &A, LocalInt i, const SFSAIParams &params, bool *tie)
{
  const auto magnitude = [&](LocalInt row, LocalInt k) -> long double {
    return A.j[k] == row ? 1 : std::fabs(A.a[k]) / std::sqrt((long double)A.At(row, row) * A.At(A.j[k], A.j[k]));
  };
  const auto kept = [&](LocalInt row, LocalInt k) {
    return A.j[k] == row || params.prefilter == 0 || magnitude(row, k) > params.prefilter;
  };

  std::set<LocalInt> B        = {i}, before;
  LocalInt           products = 0;
  for (; products < params.power && B != before; products++) {
    before = B;
    for (LocalInt row : before)
      for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
        if (A.j[k] < i && kept(row, k)) B.insert(A.j[k]);
  }
  *tie = false;
  if (!params.max_row || (LocalInt)B.size() <= params.max_row) return B;

  std::vector<long double> w(A.n, 0);
  w[i] = 1;
  for (LocalInt p = 0; p < products; p++) { /* push form, A being symmetric */
    std::vector<long double> next(A.n, 0);
    for (LocalInt s : B)
      for (LocalInt k = A.i[s]; k < A.i[s + 1]; k++)
        if (B.count(A.j[k]) && kept(s, k)) next[A.j[k]] += magnitude(s, k) * w[s];
    w = next;
  }
  std::vector<LocalInt> ranked(B.begin(), std::prev(B.end()));
  std::stable_sort(ranked.begin(), ranked.end(), [&](LocalInt c, LocalInt s) { return w[c] > w[s]; });
  const size_t count = params.max_row - 1;
  *tie               = count > 0 && w[ranked[count - 1]] - w[ranked[count]] <= 1e-13L * w[ranked[count - 1]];
  B                  = {i};
  B.insert(ranked.begin(), ranked.begin() + count);
  return B;
}

ReferenceRow ComputeReferenceRow(const HostMatrix &A, LocalInt i, const SFSAIParams &params)
{
  bool               tie;
  std::set<LocalInt> P = ReferencePattern(A, i, params, &tie);
  P.erase(i);
  return FinishReferenceRow(A, i, std::vector<LocalInt>(P.begin(), P.end()), params, tie);
}

HostMatrix BadPairs(LocalInt blocks, double c)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows;
  for (LocalInt b = 0; b < blocks; b++) {
    const LocalInt row = 3 * b;
    rows.push_back({{row, 1.}, {row + 1, c}});
    rows.push_back({{row, c}, {row + 1, 1.}});
    rows.push_back({{row + 2, 3.}});
    if (b) {
      rows[row + 2].push_back({row - 1, -1.});
      rows[row - 1].push_back({row + 2, -1.});
    }
  }
  return FromRows(rows);
}

HostMatrix UsableMatrix()
{
  return RandomStencil(50, 20, 1, false, 11);
}

void CheckUnusableMatrices(const std::function<FSAIStats(const HostMatrix &)> &compute)
{
  const double inf   = std::numeric_limits<double>::infinity();
  const auto   check = [&](LocalInt row, LocalInt column, PetscScalar value, FSAIFailure expected) {
    CAPTURE(row, column, value);
    HostMatrix A = UsableMatrix();
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == column) A.a[k] = value;
    for (LocalInt k = A.i[998]; k < A.i[999]; k++)
      if (A.j[k] == 998) A.a[k] = -1; /* another bad row, which is not the first */
    const FSAIStats stats = compute(A);
    CHECK(stats.failure == expected);
    CHECK(stats.failure_row == row);
  };
  check(0, 0, 0., FSAI_DIAGONAL_NOT_POSITIVE);
  check(500, 500, -1., FSAI_DIAGONAL_NOT_POSITIVE);
  check(500, 500, kNaN, FSAI_NOT_FINITE);
  check(500, 500, inf, FSAI_NOT_FINITE);
  check(500, 500, -inf, FSAI_NOT_FINITE);
  check(500, 501, kNaN, FSAI_NOT_FINITE);
  check(997, 947, -inf, FSAI_NOT_FINITE);
  check(998, 998, -1., FSAI_DIAGONAL_NOT_POSITIVE);

  HostMatrix missing = UsableMatrix();
  const auto at      = std::find(missing.j.begin() + missing.i[70], missing.j.begin() + missing.i[71], 70) - missing.j.begin();
  missing.j.erase(missing.j.begin() + at);
  missing.a.erase(missing.a.begin() + at);
  for (LocalInt row = 70; row < missing.n; row++) missing.i[row + 1]--;
  const FSAIStats stats = compute(missing);
  CHECK(stats.failure == FSAI_DIAGONAL_MISSING);
  CHECK(stats.failure_row == 70);
}

namespace
{

/* A row of a factor, as a reference row is given. */
ReferenceRow RowOf(const HostFactor &F, LocalInt row)
{
  ReferenceRow result;
  result.j.assign(F.j.begin() + F.i[row], F.j.begin() + F.i[row + 1]);
  result.a.assign(F.a.begin() + F.i[row], F.a.begin() + F.i[row + 1]);
  result.psi = 1 / F.d[row];
  result.tie = false;
  return result;
}

/* Largest difference of two rows of the same pattern, relative to the row's norm, both with A scaled to unit diagonal. */
double RowDifference(const HostMatrix &A, LocalInt i, const ReferenceRow &x, const ReferenceRow &y)
{
  double worst = 0, norm = 1;
  for (size_t k = 0; k < x.j.size(); k++) {
    const double scale = std::sqrt((double)(Entry(A, x.j[k], x.j[k]) / Entry(A, i, i)));
    worst              = std::max(worst, std::fabs(x.a[k] - y.a[k]) * scale);
    norm += x.a[k] * scale * x.a[k] * scale;
  }
  return worst / std::sqrt(norm);
}

/* psi = psi_min + delta^T A delta, with the error of A itself first. */
double PsiDifference(const ReferenceRow &x, const ReferenceRow &y)
{
  return std::fabs(x.psi / y.psi - 1);
}

struct Comparison {
  LocalInt different_patterns = 0, without_tie = 0;
  double   worst = 0, worst_psi = 0; /* relative to the tolerance */

  template <typename Params>
  void Add(const HostMatrix &A, LocalInt i, const ReferenceRow &x, const ReferenceRow &y, const Params &params, double lambda_min)
  {
    if (x.j != y.j) {
      different_patterns++;
      if (!ComputeReferenceRow(A, i, params).tie) without_tie++;
      return;
    }
    const LocalInt k         = (LocalInt)x.j.size();
    const double   tolerance = std::max(RowTolerance(params.setup_precision, k, lambda_min), 2 * Unit(params.factor_precision));
    worst                    = std::max(worst, RowDifference(A, i, x, y) / tolerance);
    worst_psi                = std::max(worst_psi, PsiDifference(x, y) / tolerance);
  }
  LocalInt Check() const
  {
    CHECK(without_tie == 0);
    CHECK(worst <= 1);
    CHECK(worst_psi <= 1);
    return different_patterns;
  }
};

} // namespace

template <typename Params>
LocalInt CheckAgainstReference(const HostMatrix &A, const HostFactor &F, const Params &params, double lambda_min)
{
  Comparison comparison;
  for (LocalInt row = 0; row < F.rows; row++) {
    const LocalInt i = F.first + row;
    comparison.Add(A, i, RowOf(F, row), ComputeReferenceRow(A, i, params), params, lambda_min);
  }
  return comparison.Check();
}

template <typename Params>
void CheckValues(const HostMatrix &A, const HostFactor &F, const Params &params, double lambda_min)
{
  Comparison comparison;
  for (LocalInt row = 0; row < F.rows; row++) {
    const ReferenceRow mine = RowOf(F, row);
    comparison.Add(A, F.first + row, mine, ComputeReferenceRow(A, F.first + row, mine.j), params, lambda_min);
  }
  comparison.Check();
}

template <typename Params>
LocalInt CheckTwins(const HostMatrix &A, const HostFactor &host, const HostFactor &device, const Params &params, double lambda_min)
{
  Comparison comparison;
  REQUIRE(host.rows == device.rows);
  for (LocalInt row = 0; row < host.rows; row++)
    comparison.Add(A, host.first + row, RowOf(host, row), RowOf(device, row), params, lambda_min);
  return comparison.Check();
}

template LocalInt CheckAgainstReference(const HostMatrix &, const HostFactor &, const AFSAIParams &, double);
template LocalInt CheckAgainstReference(const HostMatrix &, const HostFactor &, const SFSAIParams &, double);
template void     CheckValues(const HostMatrix &, const HostFactor &, const AFSAIParams &, double);
template void     CheckValues(const HostMatrix &, const HostFactor &, const SFSAIParams &, double);
template LocalInt CheckTwins(const HostMatrix &, const HostFactor &, const HostFactor &, const AFSAIParams &, double);
template LocalInt CheckTwins(const HostMatrix &, const HostFactor &, const HostFactor &, const SFSAIParams &, double);
