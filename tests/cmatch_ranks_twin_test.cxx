/*
   The twins of PCCMATCH's hierarchy of all ranks: aggregates, prolongators and operators of every level on the GPU have the bits of
   those on the host, on any number of ranks, for new values, too, and the cycles of both agree up to rounding.
*/
#include "ranks_twin.h"

namespace
{

void CheckSame(const RanksTwin &x, const RanksTwin &y)
{
  const size_t value = FinePCPrecisionBytes(x.H->params.precision);
  CHECK(x.stats.end == y.stats.end);
  CHECK(x.H->scale == y.H->scale);
  CHECK(x.H->inverted == y.H->inverted);
  REQUIRE(x.H->levels == y.H->levels);
  REQUIRE(x.H->several == y.H->several);
  for (LocalInt l = 0; l < x.H->levels; l++) {
    const CMATCHLevel &a = x.H->level[l], &b = y.H->level[l];
    const bool         next = l < x.H->several || l + 1 < x.H->levels;
    CAPTURE(l, Rank());
    REQUIRE(a.n == b.n);
    REQUIRE(a.nnz == b.nnz);
    REQUIRE(a.ghosts == b.ghosts);
    CHECK(a.first == b.first);
    CHECK(a.all == b.all);
    CHECK(std::equal(a.ghost, a.ghost + a.ghosts, b.ghost));
    CHECK((x.Bytes(a.A_i, (a.n + 1) * sizeof(LocalInt)) == y.Bytes(b.A_i, (a.n + 1) * sizeof(LocalInt))));
    CHECK((x.Bytes(a.A_j, a.nnz * sizeof(LocalInt)) == y.Bytes(b.A_j, a.nnz * sizeof(LocalInt))));
    CHECK((x.Bytes(a.A_a, a.nnz * value) == y.Bytes(b.A_a, a.nnz * value)));
    CHECK((x.Bytes(a.s, a.n * value) == y.Bytes(b.s, a.n * value)));
    CHECK((x.Bytes(a.d, a.n * value) == y.Bytes(b.d, a.n * value)));
    CHECK((x.Bytes(a.l, a.n * value) == y.Bytes(b.l, a.n * value)));
    if (!next) continue;
    CHECK(a.transfer == b.transfer);
    REQUIRE(a.coarse == b.coarse);
    REQUIRE(a.foreign == b.foreign);
    REQUIRE(a.width == b.width);
    CHECK(a.mine == b.mine);
    CHECK(a.first_coarse == b.first_coarse);
    CHECK(a.contributions == b.contributions);
    CHECK(a.left == b.left);
    CHECK(a.joined == b.joined);
    CHECK(a.largest == b.largest);
    CHECK(a.singles == b.singles);
    CHECK(a.cut == b.cut);
    CHECK(a.plain == b.plain);
    CHECK(a.fit.loose == b.fit.loose);
    CHECK(a.fit.pieces == b.fit.pieces);
    CHECK(a.fit.left == b.fit.left);
    CHECK(a.P_nnz == b.P_nnz);
    CHECK(std::equal(a.column, a.column + a.foreign, b.column));
    const size_t own = (size_t)a.n * a.width, rows = (size_t)a.coarse + a.foreign + 1;
    CHECK((x.Bytes(a.aggregate, a.n * sizeof(LocalInt)) == y.Bytes(b.aggregate, a.n * sizeof(LocalInt))));
    CHECK((x.Bytes(a.P_j, own * sizeof(LocalInt)) == y.Bytes(b.P_j, own * sizeof(LocalInt))));
    CHECK((x.Bytes(a.P_a, own * value) == y.Bytes(b.P_a, own * value)));
    CHECK((x.Bytes(a.R_i, rows * sizeof(LocalInt)) == y.Bytes(b.R_i, rows * sizeof(LocalInt))));
    CHECK((x.Bytes(a.R_j, a.P_nnz * sizeof(LocalInt)) == y.Bytes(b.R_j, a.P_nnz * sizeof(LocalInt))));
    CHECK((x.Bytes(a.R_a, a.P_nnz * value) == y.Bytes(b.R_a, a.P_nnz * value)));
  }
}

struct Case {
  const char         *name;
  HostMatrix          A;
  CMATCHParams        params;
  std::vector<double> w = {};
};

void Compare(const Case &c, const Layout &layout)
{
  CAPTURE(c.name, layout.name);
  const MatObject A = Spread(c.A, MATAIJ, layout.share);
  if (Ranks() == 1) return;
  CompareTwins(c.params, CheckSame, [&](RanksTwin *twin, bool keep) {
    if (keep) SetValues(A, Changed(Blocks(c.A), 5));
    return twin->Compute(A, c.params, {c.w}, keep);
  });
}

/* A tridiagonal matrix: on many ranks there are rows that have nothing but ghosts beside them. */
HostMatrix Chain(LocalInt n)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  for (LocalInt i = 0; i < n; i++) {
    if (i) rows[i].push_back({i - 1, -1. - (i % 3)});
    rows[i].push_back({i, 3. + (i % 3) + ((i + 1) % 3)});
    if (i + 1 < n) rows[i].push_back({i + 1, -1. - ((i + 1) % 3)});
  }
  return FromRows(rows);
}

/* Nothing but dominated rows */
HostMatrix Dominated(LocalInt n)
{
  HostMatrix A = Chain(n);
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++)
      if (A.j[k] == i) A.a[k] = 100;
  return A;
}

/* Rows that are alone, but for one pair in ten */
HostMatrix Diagonal(LocalInt n)
{
  HostMatrix A = Chain(n);
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++)
      if (A.j[k] != i && std::min(i, A.j[k]) % 10) A.a[k] = 0;
  return A;
}

std::vector<double> AnyW(LocalInt n)
{
  std::vector<double> w(n);
  Random              random(7);
  for (double &value : w) value = random.Between(0.5, 2);
  w[n / 2] = 0;
  return w;
}

} // namespace

TEST_CASE("cmatch on several ranks: the twins have the same levels", "[cmatch][ranks][gpu][mpi][emulated]")
{
  NEEDS_DEVICE();
  const HostMatrix        grid = Diffusion(30, 20, true, 41), cube = RandomStencil(9, 8, 9, false, 3), small = Poisson(5, 4);
  const CMATCHParams      wide = Params(50, 0, 2), grouped = Params(50, 200, 2), one = Params(100000, 10000, 8);
  const auto              in_double = [](CMATCHParams &p) { p.precision = FINEPC_DOUBLE; };
  const std::vector<Case> cases     = {
    {"wide", grid, wide},
    {"grouped", grid, grouped},
    {"to one rank", grid, one},
    {"cube", cube, wide},
    {"cube, grouped, in double precision", cube, With(grouped, in_double)},
    {"near null vector", grid, wide, AnyW(grid.n)},
    {"passed to one rank", small, one},
    {"chain", Chain(60), wide},
    {"chain of few rows", Chain(5), With(wide, [](CMATCHParams &p) { p.coarse_size = 1; })},
    {"dominated", Dominated(60), wide},
    {"independent sets", grid, With(grouped, [](CMATCHParams &p) { p.coarsening = PC_CMATCH_MIS2; })},
    {"independent sets, double", grid, With(With(wide, in_double), [](CMATCHParams &p) { p.coarsening = PC_CMATCH_MIS2; })},
    {"long rows", cube, With(wide, [](CMATCHParams &p) { p.prolongator_row = 64; })},
    {"short rows", cube, With(wide, [](CMATCHParams &p) { p.prolongator_row = 2; })},
    {"two levels", grid, With(wide, [](CMATCHParams &p) { p.max_levels = 2; })},
    {"one level", grid, With(wide, [](CMATCHParams &p) { p.max_levels = 1; })},
    {"in double precision", grid, With(wide, in_double)},
    {"Chebyshev", grid,
         With(grouped,
              [](CMATCHParams &p) {
            p.smoother = PC_CMATCH_CHEBYSHEV4;
            p.degree   = 3;
          })},
    {"sfsai", grid, With(wide, [](CMATCHParams &p) { p.smoother = PC_CMATCH_SFSAI; })},
    {"sfsai, grouped, in double precision", cube,
         With(With(grouped, in_double),
              [](CMATCHParams &p) {
            p.smoother = PC_CMATCH_SFSAI;
            p.degree   = 3;
          })},
    {"sfsai of a chain", Chain(60), With(wide, [](CMATCHParams &p) { p.smoother = PC_CMATCH_SFSAI; })},
    {"sfsai of dominated rows", Dominated(60), With(wide, [](CMATCHParams &p) { p.smoother = PC_CMATCH_SFSAI; })},
    {"sfsai, passed to one rank", small, With(one, [](CMATCHParams &p) { p.smoother = PC_CMATCH_SFSAI; })},
    {"sfsai of rows without couplings", Diagonal(60), With(wide, [](CMATCHParams &p) { p.smoother = PC_CMATCH_SFSAI; })},
    {"afsai, in double precision", grid, With(With(wide, in_double), [](CMATCHParams &p) { p.smoother = PC_CMATCH_AFSAI; })},
    {"pcg", grid, With(wide, [](CMATCHParams &p) { p.coarse = PC_CMATCH_PCG; })},
    {"singular", Diffusion(30, 20, false, 42), With(grouped, [](CMATCHParams &p) { p.singular = PETSC_TRUE; })},
    {"indefinite", ShortOf(30, 200), wide},
  };
  for (const Case &c : cases)
    for (const Layout &layout : Layouts()) {
      if (layout.name != Layouts()[0].name && std::string(c.name) != "wide" && std::string(c.name) != "grouped" &&
          std::string(c.name) != "chain of few rows" && std::string(c.name) != "passed to one rank" &&
          std::string(c.name) != "sfsai")
        continue; /* one in several is enough */
      Compare(c, layout);
    }
}
