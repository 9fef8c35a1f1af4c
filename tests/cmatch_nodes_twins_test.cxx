/*
   The twins of PCCMATCH's hierarchy of nodes: the set-up on the GPU has the bits of the one on the host, and the cycle is the same
   up to rounding. What a hierarchy of nodes is good for is tested in cmatch_nodes_test.cxx.
*/
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bodies.h"
#include "ranks_twin.h"

namespace
{

using Vector = std::vector<double>;

/* A matrix with unknowns at nodes, and its modes */
struct System {
  const char *name;
  HostMatrix  A;
  LocalInt    k, m;
  Vector      B; /* [rows][m] */
};

System Of(const char *name, const Body &body)
{
  return {name, body.A, body.k, body.m(), body.B};
}

/* The modes of rows that are left in become 0, as those of unknowns that nodes lack. */
System WithRowsLacking(const char *name, const Body &body)
{
  System system = Of(name, WithRowsLeft(body, 1e3));
  for (LocalInt row = 0; row < system.A.n; row++)
    if (system.A.At(row, row) == 1e3) std::fill_n(system.B.begin() + (ptrdiff_t)row * system.m, system.m, 0.);
  return system;
}

/* Constants for each unknown, and more modes that are anything. */
System WithModes(const char *name, const HostMatrix &A, LocalInt k, LocalInt m)
{
  Vector B((size_t)A.n * m);
  Random random(7);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt c = 0; c < m; c++) B[(size_t)row * m + c] = c < k ? row % k == c : random.Between(-1, 1);
  return {name, A, k, m, B};
}

/* A symmetric matrix whose rows dominate, with k unknowns at each point of a grid, and blocks without some entries. */
HostMatrix Coupled(LocalInt nx, LocalInt ny, LocalInt k, bool symmetric = true)
{
  const LocalInt                                             n = nx * ny * k;
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  Vector                                                     diagonal(n, 0.05);
  Random                                                     random(11);
  const auto                                                 couple = [&](LocalInt p, LocalInt q, double a) {
    if (random.Between(0, 1) < 0.15) return;
    rows[p].emplace_back(q, a);
    if (symmetric || random.Between(0, 1) < 0.7) rows[q].emplace_back(p, a);
    diagonal[p] += std::fabs(a);
    diagonal[q] += std::fabs(a);
  };
  for (LocalInt i = 0; i < nx * ny; i++)
    for (LocalInt r = 0; r < k; r++) {
      for (LocalInt c = 0; c < r; c++) couple(i * k + r, i * k + c, random.Between(-0.2, 0.2));
      for (const LocalInt j : {i % nx + 1 < nx ? i + 1 : -1, i + nx < nx * ny ? i + nx : -1})
        for (LocalInt c = 0; c < k && j >= 0; c++) couple(i * k + r, j * k + c, r == c ? -1 - 0.1 * r : random.Between(-0.3, 0.3));
    }
  for (LocalInt p = 0; p < n; p++) rows[p].emplace_back(p, diagonal[p]);
  return FromRows(rows);
}

/* A grid of nodes, and one that is coupled to all of them: its rows do not fit into tables in shared memory. */
HostMatrix WithHub(LocalInt nx, LocalInt ny, LocalInt k)
{
  const HostMatrix                                           A = Coupled(nx, ny, k);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(A.n + k);
  for (LocalInt row = 0; row < A.n; row++) {
    for (LocalInt e = A.i[row]; e < A.i[row + 1]; e++) rows[row].emplace_back(A.j[e], A.a[e] + (A.j[e] == row ? 0.01 : 0));
    rows[row].emplace_back(A.n + row % k, -0.01);
    rows[A.n + row % k].emplace_back(row, -0.01);
  }
  for (LocalInt r = 0; r < k; r++) rows[A.n + r].emplace_back(A.n + r, 0.01 * A.n / k + 1);
  return FromRows(rows);
}

class Twin {
public:
  Twin(const System &system, const CMATCHParams &params, PetscMemType where) : where_(where) { Compute(system, params, false); }
  Twin(const Twin &)            = delete;
  Twin &operator=(const Twin &) = delete;
  ~Twin() { PetscCallAbort(PETSC_COMM_SELF, PetscMemTypeDevice(where_) ? CMATCHDestroy_CUDA(&H) : CMATCHDestroy_Host(&H)); }

  void Compute(const System &system, const CMATCHParams &params, bool keep)
  {
    const CSRCopy     A(system.A, where_);
    const Array       B(system.B, where_);
    const CMATCHModes modes{system.k, system.m, B};
    PoisonMemory(where_, ((size_t)1 << 20) + 64 * (size_t)system.A.nnz() * sizeof(double));
    std::memset((void *)&stats, 0x7f, sizeof(stats));
    MUST((PetscMemTypeDevice(where_) ? CMATCHNodesCompute_CUDA : CMATCHNodesCompute_Host)(&A.view, &modes, &params, (PetscBool)keep,
                                                                                          PETSC_TRUE, &H, &stats));
  }
  Vector Apply(const Vector &r) const
  {
    const Array from(r, where_), to(Vector(r.size(), std::numeric_limits<double>::quiet_NaN()), where_);
    MUST((PetscMemTypeDevice(where_) ? CMATCHApply_CUDA : CMATCHApply_Host)(H, from, to));
    return to.Values();
  }
  const CMATCHNodesLevel &Level(LocalInt l) const { return H->nodes->level[l]; }
  std::vector<char>       Bytes(const void *array, size_t bytes) const
  {
    std::vector<char> copy(bytes);
    MUST(ArrayCopy(copy.data(), array, bytes, PETSC_MEMTYPE_HOST, where_));
    return copy;
  }

  CMATCHHierarchy *H = nullptr;
  CMATCHStats      stats{};

private:
  PetscMemType where_;
};

void CheckLevel(const Twin &host, const Twin &device, LocalInt l)
{
  const CMATCHNodesLevel &x = host.Level(l), &y = device.Level(l);
  const size_t            value = FinePCPrecisionBytes(host.H->params.precision), n = x.n, k = x.k, m = host.H->nodes->m;
  const size_t            index = sizeof(LocalInt), slots = n * kCMATCHSlots;
  const auto              same = [&](const void *of_host, const void *of_device, size_t bytes) {
    return host.Bytes(of_host, bytes) == device.Bytes(of_device, bytes);
  };

  CAPTURE(l);
  REQUIRE((x.n == y.n && x.k == y.k && x.blocks == y.blocks && x.coarse == y.coarse));
  CHECK(host.H->level[l].n == device.H->level[l].n);
  CHECK(same(x.A_i, y.A_i, (n + 1) * index));
  CHECK(same(x.A_j, y.A_j, x.blocks * index));
  CHECK(OperatorOf(host, l) == OperatorOf(device, l));
  CHECK(x.lambda == y.lambda);
  if (x.lambda > 0) CHECK(same(x.D, y.D, n * k * k * value));
  if (x.lambda > 0) CHECK(x.raised == y.raised);
  if (l + 1 == host.H->levels) return;
  CHECK(same(x.aggregate, y.aggregate, n * index));
  CHECK(same(x.B_c, y.B_c, x.coarse * m * m * sizeof(double)));
  CHECK(same(x.P_j, y.P_j, slots * index));
  CHECK(same(x.P_a, y.P_a, slots * k * m * value));
  CHECK(same(x.R_i, y.R_i, (x.coarse + 1) * index));
  REQUIRE(x.P_blocks == y.P_blocks);
  CHECK(same(x.R_j, y.R_j, x.P_blocks * index));
  CHECK((x.left == y.left && x.largest == y.largest && x.least == y.least && x.joined == y.joined));
  CHECK((x.cut == y.cut && x.dead == y.dead));
}

/* Factors have the same patterns, but those of afsai, where rounding decides, and the same values up to rounding. */
void CheckFactors(const Twin &host, const Twin &device)
{
  const CMATCHParams &params = host.H->params;
  for (LocalInt l = 0; l < host.H->levels; l++) {
    const CMATCHFactor &x = host.H->level[l].factor, &y = device.H->level[l].factor;
    CAPTURE(l);
    CHECK((x.d != nullptr) == (CMATCHHasFactors(params) && l + 1 < host.H->levels));
    REQUIRE((x.d != nullptr) == (y.d != nullptr));
    if (!x.d || params.smoother == PC_CMATCH_AFSAI) continue;
    CHECK((x.capped_rows == y.capped_rows && x.diagonal_rows == y.diagonal_rows));
    for (const CSR CMATCHFactor::*factor : {&CMATCHFactor::W, &CMATCHFactor::Wt}) {
      const CSR &a = x.*factor, &b = y.*factor;
      REQUIRE((a.rows == b.rows && a.nnz == b.nnz));
      CHECK(host.Bytes(a.i, (a.rows + 1) * sizeof(LocalInt)) == device.Bytes(b.i, (a.rows + 1) * sizeof(LocalInt)));
      CHECK(host.Bytes(a.j, a.nnz * sizeof(LocalInt)) == device.Bytes(b.j, a.nnz * sizeof(LocalInt)));
    }
  }
}

double Norm(const Vector &x)
{
  double square = 0;
  for (const double value : x) square += value * value;
  return std::sqrt(square);
}

double Distance(Vector x, const Vector &y)
{
  for (size_t u = 0; u < x.size(); u++) x[u] -= y[u];
  return Norm(x);
}

/*
   How far the cycles with factors may be apart, which are rounded in other orders: in single precision as far as one in double
   precision is, or five times, with the systems of the set-up and of the refill after it, if there was one.
*/
double ToleranceOfFactors(const Twin &host, const std::vector<const System *> &systems, const Vector &r)
{
  CMATCHParams params = host.H->params;
  const Vector z      = host.Apply(r);
  if (params.precision == FINEPC_DOUBLE) return 1e5 * 0x1p-53 * Norm(z);
  params.precision = FINEPC_DOUBLE;
  Twin exact(*systems.front(), params, PETSC_MEMTYPE_HOST);
  if (systems.size() > 1) exact.Compute(*systems.back(), params, true);
  return std::max(1000 * 0x1p-24 * Norm(z), 5 * Distance(exact.Apply(r), z));
}

/* The same bits in the set-up, and the same cycle; afsai may find other factors where rounding decides. */
void CheckTwins(const Twin &host, const Twin &device, const std::vector<const System *> &systems)
{
  REQUIRE(host.stats.failure == device.stats.failure);
  if (host.stats.failure) {
    CHECK((host.stats.level == device.stats.level && host.stats.row == device.stats.row));
    return;
  }
  CHECK(host.stats.end == device.stats.end);
  REQUIRE(host.H->levels == device.H->levels);
  CHECK((host.H->scale == device.H->scale && host.H->inverted == device.H->inverted));
  CHECK(host.H->nodes->coupled == device.H->nodes->coupled);
  CHECK((host.H->nodes->beside == device.H->nodes->beside && host.H->nodes->jumps == device.H->nodes->jumps));
  for (const CMATCHFit CMATCHNodes::*fit : {&CMATCHNodes::first_fit, &CMATCHNodes::fit}) {
    const CMATCHFit &x = host.H->nodes->*fit, &y = device.H->nodes->*fit;
    CAPTURE(x.loose, y.loose, x.pieces, y.pieces, x.left, y.left);
    CHECK((x.loose == y.loose && x.pieces == y.pieces && x.left == y.left));
  }
  for (LocalInt l = 0; l < host.H->levels; l++) CheckLevel(host, device, l);
  CheckFactors(host, device);

  Vector r(host.H->level[0].n);
  Random random(5);
  for (double &x : r) x = random.Between(-1, 1);
  const Vector x = host.Apply(r), y = device.Apply(r);
  const double unit    = host.H->params.precision == FINEPC_SINGLE ? 0x1p-24 : 0x1p-53;
  const bool   factors = CMATCHHasFactors(host.H->params), same = host.H->params.smoother != PC_CMATCH_AFSAI;
  const double tolerance = !same ? 0.1 * Norm(x) : factors ? ToleranceOfFactors(host, systems, r) : 1000 * unit * Norm(x);
  CHECK(Distance(y, x) <= tolerance); /* false for what is no number */
  CHECK(device.Apply(r) == y);
}

CMATCHParams Params(FinePCPrecision precision, PetscInt coarse_size)
{
  CMATCHParams params;
  params.precision   = precision;
  params.coarse_size = coarse_size;
  return params;
}

/* A set-up, and one with other values that keeps the patterns. */
void Compare(const System &system, const CMATCHParams &params)
{
  System other = system;
  CAPTURE(system.name, params.precision, params.coarse_size, params.degree);
  Twin host(system, params, PETSC_MEMTYPE_HOST), device(system, params, PETSC_MEMTYPE_CUDA);
  CheckTwins(host, device, {&system});
  if (host.stats.failure) return;
  other.A = Changed(system.A);
  host.Compute(other, params, true);
  device.Compute(other, params, true);
  CheckTwins(host, device, {&system, &other});
}

} // namespace

TEST_CASE("cmatch: every kernel of nodes, on small systems", "[cmatch][nodes][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const System systems[] = {
    Of("brick", MakeBody({7, 6, 8})),
    Of("rectangle", MakeBody({13, 12, 0})),
    Of("two materials", MakeBody({9, 9, 9, {1, 1, 1}, 0.3, RandomCells})),
    Of("rows left in", WithRowsLeft(MakeBody({6, 6, 6, {1, 1, 1}, 0.3, nullptr, false}), 1e3)),
    Of("free", MakeBody({5, 5, 5, {1, 1, 1}, 0.3, nullptr, false})),
    WithRowsLacking("unknowns that nodes lack", MakeBody({6, 6, 6, {1, 1, 1}, 0.3, nullptr, false})),
    WithModes("two unknowns", Coupled(11, 12, 2), 2, 2),
    WithModes("three unknowns", Coupled(9, 10, 3), 3, 3),
    WithModes("four unknowns, eight modes", Coupled(9, 8, 4), 4, 8),
    WithModes("five unknowns", Coupled(8, 8, 5), 5, 5),
    WithModes("seven unknowns", Coupled(7, 6, 7), 7, 7),
    WithModes("not symmetric", Coupled(9, 10, 3, false), 3, 6),
  };
  for (const FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
    for (const System &system : systems) Compare(system, Params(precision, 10));
}

TEST_CASE("cmatch: the kernels of factored smoothers of nodes, on small systems", "[cmatch][nodes][gpu][sanitizer][factors]")
{
  NEEDS_DEVICE();
  const Body   free = MakeBody({6, 6, 6, {1, 1, 1}, 0.3, nullptr, false}), left = WithRowsLeft(free, 1e3);
  System       columns   = Of("rows left in, and their columns", left); /* whose couplings count as 0 */
  const System systems[] = {Of("brick", MakeBody({7, 6, 8})),
                            Of("rectangle", MakeBody({13, 12, 0})),
                            Of("rows left in", left),
                            WithModes("two unknowns", Coupled(11, 12, 2), 2, 2),
                            WithModes("four unknowns, eight modes", Coupled(9, 8, 4), 4, 8),
                            WithModes("five unknowns", Coupled(8, 8, 5), 5, 5),
                            WithModes("six unknowns", Coupled(7, 6, 6), 6, 6)};
  for (const PCCMATCHSmoother smoother : {PC_CMATCH_SFSAI, PC_CMATCH_AFSAI})
    for (const FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
      CMATCHParams params = Params(precision, 10);
      params.smoother     = smoother;
      params.degree       = precision == FINEPC_SINGLE ? 1 : 2;
      if (smoother == PC_CMATCH_SFSAI) {
        for (const System &system : systems) Compare(system, params);
        for (LocalInt row = 0; row < columns.A.n; row++)
          for (LocalInt e = columns.A.i[row]; e < columns.A.i[row + 1]; e++)
            if (columns.A.At(row, row) != 1e3) columns.A.a[e] = free.A.At(row, columns.A.j[e]);
        Compare(columns, params);
        params.coarse_size = 50; /* where no row knows all rows: what r has of the null space is multiplied by 1e5 then */
        Compare(Of("free", free), params);
      } else if (precision == FINEPC_DOUBLE) Compare(systems[0], params); /* in single precision patterns differ */
    }
}

TEST_CASE("cmatch: twins of nodes, their options and ends", "[cmatch][nodes][gpu]")
{
  NEEDS_DEVICE();
  const System brick = Of("brick", MakeBody({8, 9, 10}));
  for (const PCCMATCHSmoother smoother : {PC_CMATCH_L1JACOBI, PC_CMATCH_CHEBYSHEV, PC_CMATCH_CHEBYSHEV4})
    for (const PetscInt degree : {1, 3}) {
      CMATCHParams params = Params(FINEPC_DOUBLE, 20);
      params.smoother     = smoother;
      params.degree       = degree;
      Compare(brick, params);
    }
  Compare(brick, Params(FINEPC_SINGLE, 1024)); /* one level below the finest */
  Compare(Of("one level", MakeBody({5, 5, 5})), Params(FINEPC_SINGLE, 1024));
  CMATCHParams params = Params(FINEPC_SINGLE, 10);
  params.max_levels   = 1; /* the polynomial of the last level */
  Compare(Of("polynomial", MakeBody({9, 9, 10})), params);
  Compare(WithModes("all alone", Coupled(1, 1, 3), 3, 3), Params(FINEPC_SINGLE, 1));
}

TEST_CASE("cmatch: twins of nodes around an independent set", "[cmatch][nodes][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const System systems[] = {Of("brick", MakeBody({9, 8, 10})), Of("rectangle", MakeBody({23, 22, 0})),
                            Of("rows left in", WithRowsLeft(MakeBody({6, 6, 6, {1, 1, 1}, 0.3, nullptr, false}), 1e3)),
                            WithModes("five unknowns", Coupled(12, 13, 5), 5, 5), WithModes("hub", WithHub(26, 27, 2), 2, 2)};
  for (const FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
    for (const System &system : systems) {
      CMATCHParams params = Params(precision, 5);
      params.coarsening   = PC_CMATCH_MIS2;
      params.strength     = precision == FINEPC_SINGLE ? 0.25 : 0;
      Compare(system, params);
    }
}

TEST_CASE("cmatch: twins of nodes with wide rows", "[cmatch][nodes][gpu]")
{
  NEEDS_DEVICE();
  for (const LocalInt k : {2, 3}) Compare(WithModes("hub", WithHub(26, 27, k), k, k == 3 ? 6 : 2), Params(FINEPC_SINGLE, 20));
}

TEST_CASE("cmatch: twins of nodes name the same failures", "[cmatch][nodes][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const System good  = Of("brick", MakeBody({5, 5, 6}));
  const auto   entry = [](HostMatrix *A, LocalInt row, LocalInt column) -> double   &{
    for (LocalInt e = A->i[row]; e < A->i[row + 1]; e++)
      if (A->j[e] == column) return A->a[e];
    FAIL("there is no such entry");
    return A->a[0];
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int kind = 0; kind < 6; kind++) {
    System bad = good;
    if (kind == 0) entry(&bad.A, 100, 101) = nan;
    if (kind == 1) entry(&bad.A, 77, 77) = -1;
    if (kind == 2) bad.B[6 * 50 + 2] = nan;
    if (kind == 3) bad.B[6 * 50 + 2] = bad.B[6 * 20 + 4] = nan;
    if (kind == 4) entry(&bad.A, 90, 91) = entry(&bad.A, 91, 90) = 1e3; /* a block that is not definite */
    if (kind == 5) entry(&bad.A, 60, 61) = 1e60;                        /* beyond single precision */
    CAPTURE(kind);
    const Twin host(bad, Params(FINEPC_SINGLE, 20), PETSC_MEMTYPE_HOST), device(bad, Params(FINEPC_SINGLE, 20), PETSC_MEMTYPE_CUDA);
    CHECK(host.stats.failure != CMATCH_OK);
    CheckTwins(host, device, {&bad});
  }
}
