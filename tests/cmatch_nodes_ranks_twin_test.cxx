/*
   The twins of PCCMATCH's hierarchy of nodes of all ranks: aggregates, modes, prolongators and operators of every level on the GPU
   have the bits of those on the host, on any number of ranks, for new values, too, and the cycles of both agree up to rounding.
*/
#include <algorithm>
#include <limits>

#include "bodies.h"
#include "ranks_twin.h"

namespace
{

struct Case {
  const char  *name;
  Body         body;
  CMATCHParams params;
  LocalInt     m = 0; /* constants of each unknown, and more modes that are anything, instead of those of the body */
};

/* A grid with k unknowns at each point, which are coupled. */
Body Coupled(LocalInt nx, LocalInt ny, LocalInt k)
{
  const HostMatrix                                           L = Poisson(nx, ny);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(k * L.n);
  Body                                                       body;
  for (LocalInt row = 0; row < k * L.n; row++) {
    for (LocalInt e = L.i[row / k]; e < L.i[row / k + 1]; e++)
      rows[row].emplace_back(k * L.j[e] + row % k, (1 + row % k) * L.a[e] + (L.j[e] == row / k ? 0.1 * (double)(k - 1) : 0));
    for (LocalInt other = row / k * k; other < row / k * k + k; other++)
      if (other != row) rows[row].emplace_back(other, -0.1);
    std::sort(rows[row].begin(), rows[row].end());
  }
  body.A = FromRows(rows);
  body.k = k;
  return body;
}

RanksTwin::Data DataOf(const Case &c, const HostMatrix &A)
{
  RanksTwin::Data of{{}, c.body.k, c.m ? c.m : c.body.m(), c.body.B, std::vector<double>(A.n)};
  Random          random(7);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt e = A.i[row]; e < A.i[row + 1]; e++)
      if (A.j[e] == row) of.diagonal[row] = A.a[e];
  if (!c.m) return of;
  of.B.resize((size_t)A.n * c.m);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt b = 0; b < c.m; b++) of.B[(size_t)row * c.m + b] = b < c.body.k ? row % c.body.k == b : random.Between(-1, 1);
  return of;
}

void CheckTransfer(const RanksTwin &x, const RanksTwin &y, LocalInt l)
{
  const CMATCHNodesLevel &a = x.H->nodes->level[l], &b = y.H->nodes->level[l];
  const CMATCHLevel      &p = x.H->level[l], &q = y.H->level[l];
  const size_t            value = FinePCPrecisionBytes(x.H->params.precision), n = a.n, k = a.k, m = x.H->nodes->level[l + 1].k;
  const size_t modes = x.H->nodes->m, index = sizeof(LocalInt), slots = n * kCMATCHSlots, rows = (size_t)a.coarse + p.foreign + 1;
  const auto same = [&](const void *of_x, const void *of_y, size_t bytes) { return x.Bytes(of_x, bytes) == y.Bytes(of_y, bytes); };
  REQUIRE(p.transfer == q.transfer);
  REQUIRE(a.coarse == b.coarse);
  REQUIRE(p.foreign == q.foreign);
  CHECK((p.mine == q.mine && p.first_coarse == q.first_coarse && p.contributions == q.contributions));
  CHECK(std::equal(p.column, p.column + p.foreign, q.column));
  CHECK(same(a.aggregate, b.aggregate, n * index));
  if (p.transfer == CMATCH_MATCHED) CHECK(same(a.B_c, b.B_c, a.coarse * modes * modes * sizeof(double)));
  CHECK(same(a.P_j, b.P_j, slots * index));
  CHECK(same(a.P_a, b.P_a, slots * k * m * value));
  CHECK(same(a.R_i, b.R_i, rows * index));
  REQUIRE(a.P_blocks == b.P_blocks);
  CHECK(same(a.R_j, b.R_j, a.P_blocks * index));
  CHECK((a.left == b.left && a.largest == b.largest && a.least == b.least && a.joined == b.joined));
  if (p.transfer == CMATCH_MATCHED) CHECK((a.cut == b.cut && a.dead == b.dead && a.raised == b.raised));
}

void CheckSame(const RanksTwin &x, const RanksTwin &y)
{
  const size_t value = FinePCPrecisionBytes(x.H->params.precision), index = sizeof(LocalInt);
  CHECK(x.H->scale == y.H->scale);
  CHECK(x.H->inverted == y.H->inverted);
  REQUIRE(x.H->levels == y.H->levels);
  REQUIRE(x.H->several == y.H->several);
  CHECK(x.H->nodes->coupled == y.H->nodes->coupled);
  CHECK(x.H->nodes->beside == y.H->nodes->beside);
  for (const CMATCHFit CMATCHNodes::*fit : {&CMATCHNodes::first_fit, &CMATCHNodes::fit}) {
    const CMATCHFit &a = x.H->nodes->*fit, &b = y.H->nodes->*fit;
    CHECK((a.loose == b.loose && a.pieces == b.pieces && a.left == b.left));
  }
  for (LocalInt l = 0; l < x.H->levels; l++) {
    const CMATCHNodesLevel &a = x.H->nodes->level[l], &b = y.H->nodes->level[l];
    const CMATCHLevel      &p = x.H->level[l], &q = y.H->level[l];
    const size_t            n = a.n, k = a.k;
    CAPTURE(l, Rank());
    REQUIRE((a.n == b.n && a.k == b.k && a.blocks == b.blocks && p.n == q.n && p.ghosts == q.ghosts));
    if (l < x.H->several) CHECK((p.first == q.first && p.all == q.all));
    CHECK(std::equal(p.ghost, p.ghost + p.ghosts, q.ghost));
    CHECK(x.Bytes(a.A_i, (n + 1) * index) == y.Bytes(b.A_i, (n + 1) * index));
    CHECK(x.Bytes(a.A_j, a.blocks * index) == y.Bytes(b.A_j, a.blocks * index));
    CHECK(OperatorOf(x, l) == OperatorOf(y, l));
    CHECK(a.lambda == b.lambda);
    if (a.lambda > 0) CHECK(x.Bytes(a.D, n * k * k * value) == y.Bytes(b.D, n * k * k * value));
    if (l < x.H->several || l + 1 < x.H->levels) CheckTransfer(x, y, l);
  }
}

/* What levels have had. */
struct Seen {
  int several = 0, passed = 0, passed_below = 0, foreign = 0, grouped = 0;
};

void See(const RanksTwin &twin, Seen *seen)
{
  seen->several = std::max(seen->several, (int)twin.H->several);
  for (LocalInt l = 0; l < twin.H->several; l++) {
    const CMATCHLevel &level = twin.H->level[l];
    if (level.transfer == CMATCH_PASSED) (l ? seen->passed_below : seen->passed) = 1;
    if (level.foreign) seen->foreign = 1;
    if (l + 1 < twin.H->several && twin.SizeOf(l + 1) < twin.SizeOf(l)) seen->grouped = 1;
  }
}

void Compare(const Case &c, const Layout &layout, Seen *seen)
{
  CAPTURE(c.name, layout.name);
  const Share     nodes = [&](LocalInt n, int rank, int size) { return c.body.k * layout.share(n / c.body.k, rank, size); };
  const MatObject A = Spread(c.body.A, MATAIJ, nodes), other = Spread(Changed(c.body.A), MATAIJ, nodes);
  if (Ranks() == 1) return;
  CompareTwins(
    c.params,
    [&](const RanksTwin &host, const RanksTwin &device) {
      if (host.H->levels > host.H->several) CHECK(device.stats.end == host.stats.end);
      CheckSame(host, device);
      See(device, seen);
    },
    [&](RanksTwin *twin, bool keep) {
      return twin->Compute(keep ? other : A, c.params, DataOf(c, keep ? Changed(c.body.A) : c.body.A), keep);
    });
}

/* One entry of A, and the same of its transpose */
Body Spoiled(Body body, LocalInt row, LocalInt column, double value)
{
  for (LocalInt e = body.A.i[row]; e < body.A.i[row + 1]; e++)
    if (body.A.j[e] == column) body.A.a[e] = value;
  for (LocalInt e = body.A.i[column]; e < body.A.i[column + 1]; e++)
    if (body.A.j[e] == row) body.A.a[e] = value;
  return body;
}

} // namespace

TEST_CASE("cmatch: nodes on several ranks: the twins have the same levels", "[cmatch][nodes][ranks][gpu][mpi][two][emulated]")
{
  NEEDS_DEVICE();
  const Body         cube = MakeBody({7, 6, 8}), plane = MakeBody({13, 12, 0});
  const CMATCHParams wide = Params(50, 0, 2), grouped = Params(50, 2000, 2), one = Params(100000, 10000, 8);
  const auto         in_double = [](CMATCHParams &p) { p.precision = FINEPC_DOUBLE; };
  const auto         loaded    = [](LocalInt x, LocalInt y, LocalInt z) { return (x + y + z) % 3 ? 1 : 1e3; };
  const Case         cases[]   = {
    {"wide", cube, wide},
    {"grouped", cube, grouped},
    {"to one rank", cube, one},
    {"wide, in double precision", cube, With(wide, in_double)},
    {"plane stress", plane, wide},
    {"plane stress, grouped, in double precision", plane, With(grouped, in_double)},
    {"tetrahedra", Tetrahedra(6), grouped},
    {"stiff cells", MakeBody({7, 6, 8, {1, 1, 1}, 0.3, loaded}), wide},
    {"rows left in", WithRowsLeft(MakeBody({6, 6, 6, {1, 1, 1}, 0.3, nullptr, false}), 1e3), wide},
    {"free", MakeBody({5, 5, 6, {1, 1, 1}, 0.3, nullptr, false}), grouped},
    {"passed to one rank", MakeBody({2, 2, 2}), one},
    {"a level that is passed on", MakeBody({3, 2, 2}), With(grouped, [](CMATCHParams &p) { p.coarse_size = 1; })},
    {"two levels", cube, With(wide, [](CMATCHParams &p) { p.max_levels = 2; })},
    {"one level", cube, With(wide, [](CMATCHParams &p) { p.max_levels = 1; })},
    {"Chebyshev", cube,
               With(wide,
                    [](CMATCHParams &p) {
            p.smoother = PC_CMATCH_CHEBYSHEV4;
            p.degree   = 3;
          })},
    {"degree 1", plane,
               With(wide,
                    [](CMATCHParams &p) {
            p.smoother = PC_CMATCH_CHEBYSHEV;
            p.degree   = 1;
          })},
    {"sfsai", cube, With(wide, [](CMATCHParams &p) { p.smoother = PC_CMATCH_SFSAI; })},
    {"sfsai of rows left in, grouped, in double precision", WithRowsLeft(MakeBody({6, 6, 6, {1, 1, 1}, 0.3, nullptr, false}), 1e3),
               With(With(grouped, in_double),
                    [](CMATCHParams &p) {
            p.smoother = PC_CMATCH_SFSAI;
            p.degree   = 2;
          })},
    {"sfsai, passed to one rank", MakeBody({2, 2, 2}), With(one, [](CMATCHParams &p) { p.smoother = PC_CMATCH_SFSAI; })},
    {"afsai, in double precision", plane, With(With(wide, in_double), [](CMATCHParams &p) { p.smoother = PC_CMATCH_AFSAI; })},
    {"sfsai of five unknowns", Coupled(8, 8, 5), With(grouped, [](CMATCHParams &p) { p.smoother = PC_CMATCH_SFSAI; }), 5},
    {"independent sets", cube, With(wide, [](CMATCHParams &p) { p.coarsening = PC_CMATCH_MIS2; })},
    {"independent sets, grouped, in double precision", plane,
               With(With(grouped, in_double), [](CMATCHParams &p) { p.coarsening = PC_CMATCH_MIS2; })},
    {"two unknowns, constants", Coupled(12, 11, 2), wide, 2},
    {"four unknowns, eight modes", Coupled(9, 8, 4), With(wide, in_double), 8},
    {"five unknowns", Coupled(8, 8, 5), grouped, 5},
    {"six unknowns, two modes, passed on", Coupled(5, 4, 6), one, 2},
    {"a negative diagonal entry", Spoiled(cube, 601, 601, -1), wide},
    {"an entry that is not finite", Spoiled(cube, 301, 300, std::numeric_limits<double>::quiet_NaN()), wide},
    {"a block that is not definite", Spoiled(cube, 601, 602, 1e3), wide},
  };
  Seen seen;
  for (const Case &c : cases)
    for (const Layout &layout : Layouts()) {
      const std::string name = c.name;
      const bool        few  = name == "grouped" || name == "passed to one rank" || name == "sfsai";
      if (layout.name != Layouts()[0].name && !few && (DeviceIsEmulated() || (name != "wide" && name != "plane stress")))
        continue; /* one in several is enough */
      Compare(c, layout, &seen);
    }
  if (Ranks() == 1) return;
  MPI_Allreduce(MPI_IN_PLACE, &seen, sizeof(seen) / sizeof(int), MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
  CHECK(seen.several >= 2);
  CHECK(seen.passed);
  CHECK(seen.foreign);
  if (Ranks() > 2) CHECK(seen.grouped);
}
