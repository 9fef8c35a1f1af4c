#include "compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

} // namespace

HostFactor ComputeFactor(const HostMatrix &A, const AFSAIParams &params, PetscMemType where, PetscInt first, const HostFactor *keep)
{
  const CSRCopy  copy(A, where);
  const PetscInt rows = A.n - first;
  CSR            G    = {};
  HostFactor     result;

  PoisonMemory(where, (size_t)1 << 22);
  PetscReal *d = Copy(std::vector<PetscReal>(rows, kNaN), where);
  if (keep) {
    MUST(CSRCreate(rows, A.n, keep->nnz(), params.factor_precision, where, &G));
    MUST(ArrayCopy(G.i, keep->i.data(), keep->i.size() * sizeof(PetscInt), where, PETSC_MEMTYPE_HOST));
    MUST(ArrayCopy(G.j, keep->j.data(), keep->j.size() * sizeof(PetscInt), where, PETSC_MEMTYPE_HOST));
    const std::vector<double> nan(keep->nnz(), kNaN);
    MUST(ArrayCopy(G.a, nan.data(), G.nnz * FinePCPrecisionBytes(G.precision), where, PETSC_MEMTYPE_HOST));
  }
  if (PetscMemTypeDevice(where)) MUST(AFSAIComputeFactor_CUDA(&copy.view, first, &params, (PetscBool)(keep != nullptr), &G, d, &result.stats));
  else MUST(AFSAIComputeFactor_Host(&copy.view, first, &params, (PetscBool)(keep != nullptr), &G, d, &result.stats));
  if (!result.stats.failure) {
    REQUIRE(G.rows == rows);
    REQUIRE(G.columns == A.n);
    REQUIRE(G.precision == params.factor_precision);
    REQUIRE(G.where == where);
    result.first = first;
    result.rows  = rows;
    result.i     = CopyBack<PetscInt>(G.i, rows + 1, where);
    result.j     = CopyBack<PetscInt>(G.j, G.nnz, where);
    result.d     = CopyBack<double>(d, rows, where);
    REQUIRE(result.i.front() == 0);
    REQUIRE(result.i.back() == G.nnz);
    if (G.precision == FINEPC_SINGLE) {
      const auto single = CopyBack<float>(G.a, G.nnz, where);
      result.a.assign(single.begin(), single.end());
    } else result.a = CopyBack<double>(G.a, G.nnz, where);
    bool ascending = true, finite = true;
    for (PetscInt row = 0; row < rows; row++)
      for (PetscInt k = result.i[row]; k < result.i[row + 1]; k++) ascending = ascending && result.j[k] < first + row && (k == result.i[row] || result.j[k - 1] < result.j[k]);
    for (double value : result.a) finite = finite && std::isfinite(value);
    for (double value : result.d) finite = finite && std::isfinite(value) && value > 0;
    REQUIRE(ascending); /* strictly lower, columns distinct and ascending */
    REQUIRE(finite);
  }
  MUST(CSRDestroy(&G));
  MUST(ArrayDestroy(where, (void **)&d));
  return result;
}

bool SamePattern(const HostFactor &F, const HostFactor &G)
{
  return F.i == G.i && F.j == G.j;
}

static bool SameBits(const std::vector<double> &x, const std::vector<double> &y)
{
  return x.size() == y.size() && (x.empty() || !std::memcmp(x.data(), y.data(), x.size() * sizeof(double)));
}

bool SameBits(const HostFactor &F, const HostFactor &G)
{
  return SamePattern(F, G) && SameBits(F.a, G.a) && SameBits(F.d, G.d);
}

bool IsDiagonal(const HostFactor &F, const HostMatrix &A)
{
  bool same = F.j.empty();
  for (PetscInt row = 0; row < F.rows; row++) same = same && F.d[row] == 1 / A.At(F.first + row, F.first + row);
  return same;
}

DiagonalError ErrorOfDiagonal(const HostMatrix &A, const HostFactor &F, const AFSAIParams &params)
{
  const double             u = Unit(params.factor_precision), u_G = params.setup_precision == FINEPC_DOUBLE && params.postfilter == 0 ? 4 * u * u : 2 * u;
  std::vector<long double> g(A.n, 0);
  DiagonalError            error;

  for (PetscInt row = 0; row < F.rows; row++) {
    const PetscInt i = F.first + row;
    g[i]             = 1;
    for (PetscInt k = F.i[row]; k < F.i[row + 1]; k++) g[F.j[k]] = F.a[k];
    long double sum = 0, magnitude = 0;
    const auto  add = [&](PetscInt p) {
      for (PetscInt k = A.i[p]; k < A.i[p + 1]; k++) {
        const long double term = g[p] * A.a[k] * g[A.j[k]];
        sum += term;
        magnitude += std::fabs(term);
      }
    };
    add(i);
    for (PetscInt k = F.i[row]; k < F.i[row + 1]; k++) add(F.j[k]);
    for (PetscInt k = F.i[row]; k < F.i[row + 1]; k++) g[F.j[k]] = 0;
    g[i] = 0;

    const double off   = (double)std::fabs(sum * F.d[row] - 1);
    const double bound = (Unit(params.setup_precision) + u_G + (4 * F.Length(row) + 32) * kUnitDouble) * (double)(magnitude * F.d[row]);
    error.worst        = std::max(error.worst, off);
    error.over_bound   = std::max(error.over_bound, off / bound);
  }
  return error;
}

double ErrorOfInverse(const HostMatrix &A, const HostFactor &F)
{
  const PetscInt           n = A.n;
  std::vector<long double> G(n * n, 0), GA(n * n, 0);
  double                   worst = 0;

  for (PetscInt row = 0; row < n; row++) {
    const long double scale = std::sqrt((long double)F.d[row]);
    G[row * n + row]        = scale;
    for (PetscInt k = F.i[row]; k < F.i[row + 1]; k++) G[row * n + F.j[k]] = scale * F.a[k];
  }
  for (PetscInt row = 0; row < n; row++)
    for (PetscInt p = 0; p <= row; p++)
      for (PetscInt k = A.i[p]; k < A.i[p + 1]; k++) GA[row * n + A.j[k]] += G[row * n + p] * A.a[k];
  for (PetscInt row = 0; row < n; row++)
    for (PetscInt column = 0; column < n; column++) {
      long double sum = row == column ? -1 : 0;
      for (PetscInt p = 0; p <= column; p++) sum += GA[row * n + p] * G[column * n + p];
      worst = std::max(worst, (double)std::fabs(sum));
    }
  return worst;
}

namespace
{

/* Column positions by bisection. */
long double Entry(const HostMatrix &A, PetscInt row, PetscInt column)
{
  const auto begin = A.j.begin() + A.i[row], end = A.j.begin() + A.i[row + 1], at = std::lower_bound(begin, end, column);
  return at != end && *at == column ? A.a[at - A.j.begin()] : 0;
}

/* A[P, P] g = -A[P, i] by Gaussian elimination without pivoting, which an SPD matrix allows. */
std::vector<long double> SolveRow(const HostMatrix &A, const std::vector<PetscInt> &P, PetscInt i)
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

long double Psi(const HostMatrix &A, const std::vector<PetscInt> &P, const std::vector<long double> &g, PetscInt i)
{
  long double psi = Entry(A, i, i);
  for (size_t r = 0; r < P.size(); r++) {
    psi += 2 * g[r] * Entry(A, P[r], i);
    for (size_t c = 0; c < P.size(); c++) psi += g[r] * g[c] * Entry(A, P[r], P[c]);
  }
  return psi;
}

ReferenceRow MakeReferenceRow(const HostMatrix &A, PetscInt i, std::vector<PetscInt> P, bool tie)
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

} // namespace

ReferenceRow ComputeReferenceRow(const HostMatrix &A, PetscInt i, const std::vector<PetscInt> &pattern)
{
  return MakeReferenceRow(A, i, pattern, false);
}

ReferenceRow ComputeReferenceRow(const HostMatrix &A, PetscInt i, const AFSAIParams &params)
{
  std::vector<PetscInt> P;
  bool                  tie = false;

  const auto candidates = [&] {
    std::set<PetscInt> found;
    const auto         look = [&](PetscInt row) {
      for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
        const PetscInt j = A.j[k];
        if (j < i && std::fabs(A.a[k]) > params.prefilter * std::sqrt(Entry(A, row, row) * Entry(A, j, j))) found.insert(j);
      }
    };
    look(i);
    for (PetscInt p : P) look(p);
    for (PetscInt p : P) found.erase(p);
    return found;
  };

  for (PetscInt p = 0; p < params.initial_power; p++)
    for (PetscInt j : candidates()) P.push_back(j);
  std::vector<long double> g   = SolveRow(A, P, i);
  long double              psi = Psi(A, P, g, i);
  const long double        psi_0 = psi;
  for (PetscInt step = 0; step < params.max_steps; step++) {
    struct Rank {
      long double gradient, rounding;
      PetscInt    j;
    };
    std::vector<Rank> ranks;
    const double      tolerance = RowTolerance(params.setup_precision, (PetscInt)P.size() + 8, kLambdaMin);
    for (PetscInt j : candidates()) {
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
    std::sort(ranks.begin(), ranks.end(), [](const Rank &x, const Rank &y) { return x.gradient != y.gradient ? x.gradient > y.gradient : x.j < y.j; });
    const size_t count = std::min<size_t>(ranks.size(), params.step_size);
    for (size_t r = count; r < ranks.size(); r++) tie = tie || ranks[count - 1].gradient - ranks[r].gradient <= ranks[count - 1].rounding + ranks[r].rounding;
    for (size_t r = 0; r < count; r++) P.push_back(ranks[r].j);
    const long double psi_before = psi;
    g                            = SolveRow(A, P, i);
    psi                          = Psi(A, P, g, i);
    const bool        ratio      = params.stop_rule == PC_AFSAI_STOP_RATIO;
    const long double measure    = ratio ? psi / psi_0 - params.tolerance : (psi_before - psi) / psi_before - params.tolerance;
    if (params.tolerance > 0 && std::fabs(measure) <= tolerance * (params.tolerance + psi_0 / psi)) tie = true;
    if (ratio ? psi <= params.tolerance * psi_0 : psi_before - psi < params.tolerance * psi_before) break;
  }
  if (params.postfilter > 0) {
    long double norm = 1;
    for (long double value : g) norm += value * value;
    norm = std::sqrt(norm);
    std::vector<PetscInt>    kept;
    std::vector<long double> values;
    for (size_t p = 0; p < P.size(); p++) {
      const long double over = std::fabs(g[p]) - params.postfilter * norm;
      if (std::fabs(over) <= 16 * RowTolerance(params.setup_precision, (PetscInt)P.size(), kLambdaMin) * norm) tie = true;
      if (over > 0) {
        kept.push_back(P[p]);
        values.push_back(g[p]);
      }
    }
    ReferenceRow row;
    row.psi = (double)Psi(A, kept, values, i);
    row.tie = tie;
    row.j   = kept;
    std::sort(row.j.begin(), row.j.end());
    for (PetscInt j : row.j) row.a.push_back((double)values[std::find(kept.begin(), kept.end(), j) - kept.begin()]);
    return row;
  }
  return MakeReferenceRow(A, i, P, tie);
}

namespace
{

/* A row of a factor, as a reference row is given. */
ReferenceRow RowOf(const HostFactor &F, PetscInt row)
{
  ReferenceRow result;
  result.j.assign(F.j.begin() + F.i[row], F.j.begin() + F.i[row + 1]);
  result.a.assign(F.a.begin() + F.i[row], F.a.begin() + F.i[row + 1]);
  result.psi = 1 / F.d[row];
  result.tie = false;
  return result;
}

/* Largest difference of two rows of the same pattern, relative to the row's norm, both with A scaled to unit diagonal. */
double RowDifference(const HostMatrix &A, PetscInt i, const ReferenceRow &x, const ReferenceRow &y)
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
  PetscInt different_patterns = 0, without_tie = 0;
  double   worst = 0, worst_psi = 0; /* relative to the tolerance */

  void Add(const HostMatrix &A, PetscInt i, const ReferenceRow &x, const ReferenceRow &y, const AFSAIParams &params, double lambda_min)
  {
    if (x.j != y.j) {
      different_patterns++;
      if (!ComputeReferenceRow(A, i, params).tie) without_tie++;
      return;
    }
    const PetscInt k         = (PetscInt)x.j.size();
    const double   tolerance = std::max(RowTolerance(params.setup_precision, k, lambda_min), 2 * Unit(params.factor_precision));
    worst                    = std::max(worst, RowDifference(A, i, x, y) / tolerance);
    worst_psi                = std::max(worst_psi, PsiDifference(x, y) / tolerance);
  }
  PetscInt Check() const
  {
    CHECK(without_tie == 0);
    CHECK(worst <= 1);
    CHECK(worst_psi <= 1);
    return different_patterns;
  }
};

} // namespace

PetscInt CheckAgainstReference(const HostMatrix &A, const HostFactor &F, const AFSAIParams &params, double lambda_min)
{
  Comparison comparison;
  for (PetscInt row = 0; row < F.rows; row++) {
    const PetscInt i = F.first + row;
    comparison.Add(A, i, RowOf(F, row), ComputeReferenceRow(A, i, params), params, lambda_min);
  }
  return comparison.Check();
}

PetscInt CheckTwins(const HostMatrix &A, const HostFactor &host, const HostFactor &device, const AFSAIParams &params, double lambda_min)
{
  Comparison comparison;
  REQUIRE(host.rows == device.rows);
  for (PetscInt row = 0; row < host.rows; row++) comparison.Add(A, host.first + row, RowOf(host, row), RowOf(device, row), params, lambda_min);
  return comparison.Check();
}
