/*
   The twins of PCCMATCH's hierarchy of all ranks: aggregates, prolongators and operators of every level on the GPU have the bits of
   those on the host, on any number of ranks, for new values, too, and the cycles of both agree up to rounding.
*/
#include <cstdlib>
#include <cstring>

#include "device.h"
#include "pc/cmatch/cmatch_face.h"
#include "sparse/csr_mat.h"
#include "spread.h"

namespace
{

/* A copy of rows in the memory of a twin. */
class RowsCopy {
public:
  RowsCopy(const CSRView &from, PetscMemType where) : view(from)
  {
    MUST(CSRCreate(from.n, from.n, from.nnz, FINEPC_DOUBLE, where, &copy_));
    if (from.n) MUST(ArrayCopy(copy_.i, from.i, ((size_t)from.n + 1) * sizeof(LocalInt), where, from.where));
    MUST(ArrayCopy(copy_.j, from.j, from.nnz * sizeof(LocalInt), where, from.where));
    MUST(ArrayCopy(copy_.a, from.a, from.nnz * sizeof(PetscScalar), where, from.where));
    view = CSRView{from.n, from.nnz, copy_.i, copy_.j, (const PetscScalar *)copy_.a, where};
  }
  RowsCopy(const RowsCopy &)            = delete;
  RowsCopy &operator=(const RowsCopy &) = delete;
  ~RowsCopy() { PetscCallAbort(PETSC_COMM_SELF, CSRDestroy(&copy_)); }
  CSRView view;

private:
  CSR copy_{};
};

/* A hierarchy of all ranks, made as PCCMATCH makes it. */
class RanksTwin {
public:
  explicit RanksTwin(PetscMemType where) : where_(where) { }
  RanksTwin(const RanksTwin &)            = delete;
  RanksTwin &operator=(const RanksTwin &) = delete;
  ~RanksTwin()
  {
    PetscCallAbort(PETSC_COMM_SELF, CMATCHRanksDestroy(&ranks_));
    PetscCallAbort(PETSC_COMM_SELF, PetscMemTypeDevice(where_) ? CMATCHDestroy_CUDA(&H) : CMATCHDestroy_Host(&H));
  }

  /* False if a rank has failed. */
  bool Compute(Mat A, const CMATCHParams &params, const std::vector<double> &w, bool keep)
  {
    const bool     on_device = PetscMemTypeDevice(where_);
    CMATCHEntries  w_copy;
    PCLocalOutcome outcome;
    PCLocalPhase   phase{PETSC_COMM_WORLD, &outcome, false};
    CSRMat         own, others;
    double         largest = 0;
    if (!keep) {
      MUST(CMATCHRanksDestroy(&ranks_));
      MUST(on_device ? CMATCHDestroy_CUDA(&H) : CMATCHDestroy_Host(&H));
      MUST(CMATCHRanksCreate(A, on_device ? ExchangedMemory() : PETSC_MEMTYPE_HOST, 1, &params, &ranks_));
      MUST(CMATCHRanksConnect(A, ranks_));
    }
    MUST(MatGetOwnershipRange(A, &ranks_->first, nullptr));
    MUST(MatGetCSR(A, &own));
    MUST(MatGetOtherCSR(A, &others));
    {
      const RowsCopy own_copy(own.A, where_), others_copy(others.A, where_);
      const size_t   with_ghosts = own.A.n + ranks_->ghost.size();
      if (!w.empty()) { /* entries of ghosts, too */
        std::vector<double> mine(w.begin() + ranks_->first, w.begin() + ranks_->first + own.A.n);
        for (PetscInt g : ranks_->ghost) mine.push_back(w[g]);
        CMATCHEntries on_host;
        MUST(on_host.Assign(PETSC_MEMTYPE_HOST, with_ghosts, mine.data(), with_ghosts));
        MUST(w_copy.Assign(where_, with_ghosts, nullptr, 0));
        MUST(ArrayCopy(w_copy.data(), on_host.data(), with_ghosts * sizeof(double), where_, PETSC_MEMTYPE_HOST));
      }
      MUST((on_device ? CMATCHLargestDiagonal_CUDA : CMATCHLargestDiagonal_Host)(&own_copy.view, w_copy.data(), params.zero,
                                                                                 &largest));
      MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD);
      CMATCHRanksSetUp *setup;
      MUST((on_device ? CMATCHRanksCreate_CUDA : CMATCHRanksCreate_Host)(&params, (PetscBool)keep, &ranks_->stats, &H, &setup));
      ranks_->setup.reset(setup);
      ranks_->keep      = (PetscBool)keep;
      ranks_->keep_work = PETSC_TRUE;
      H->level[0].first = ranks_->first;
      H->level[0].all   = ranks_->level[0].all;
      MUST(setup->Begin(&own_copy.view, &others_copy.view, ranks_->ghost, w_copy.data(), largest));
    }
    MUST(MatRestoreCSR(&others));
    MUST(MatRestoreCSR(&own));
    int failed = ranks_->stats.failure != CMATCH_OK;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
    if (!failed) {
      MUST(CMATCHRanksMakeLevels(&phase, H, ranks_));
      REQUIRE(outcome.code == PETSC_SUCCESS);
      failed = ranks_->stats.failure != CMATCH_OK;
    }
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
    if (!failed && !keep) MUST(CMATCHRanksConnectByMPI(&phase, ranks_));
    stats = ranks_->stats;
    ranks_->setup.reset();
    return !failed;
  }

  /* Exchanges of the cycle by NCCL from now on; false where that is not possible. */
  bool UseNCCL()
  {
    const char *why;
    MUST(NCCLOf(PETSC_COMM_WORLD, &ranks_->nccl, &why));
    if (!ranks_->nccl) return false;
    MUST(CMATCHRanksMakeRoom(ranks_, H));
    MUST(CMATCHConnect_CUDA(H, PETSC_COMM_WORLD, &direct));
    return true;
  }

  std::vector<double> Apply(const std::vector<double> &r)
  {
    const size_t        bytes = r.size() * sizeof(double);
    std::vector<double> z(r.size(), std::nan(""));
    void               *r_copy, *z_copy;
    MUST(ArrayCreate(bytes, where_, &r_copy));
    MUST(ArrayCreate(bytes, where_, &z_copy));
    MUST(ArrayCopy(r_copy, r.data(), bytes, where_, PETSC_MEMTYPE_HOST));
    MUST(ArrayCopy(z_copy, z.data(), bytes, where_, PETSC_MEMTYPE_HOST));
    MUST((PetscMemTypeDevice(where_) ? CMATCHApply_CUDA : CMATCHApply_Host)(H, (const PetscScalar *)r_copy, (PetscScalar *)z_copy));
    MUST(ArrayCopy(z.data(), z_copy, bytes, PETSC_MEMTYPE_HOST, where_));
    MUST(ArrayDestroy(where_, &r_copy));
    MUST(ArrayDestroy(where_, &z_copy));
    return z;
  }

  std::vector<char> Bytes(const void *from, size_t bytes) const
  {
    std::vector<char> copy(bytes);
    if (bytes) MUST(ArrayCopy(copy.data(), from, bytes, PETSC_MEMTYPE_HOST, where_));
    return copy;
  }

  CMATCHHierarchy *H = nullptr;
  CMATCHStats      stats{};
  bool             direct = false; /* kernels write to the other GPUs themselves */

private:
  PetscMemType where_;
  CMATCHRanks *ranks_ = nullptr;
};

void CheckSame(const RanksTwin &x, const RanksTwin &y)
{
  const size_t value = FinePCPrecisionBytes(x.H->params.precision);
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

/* The largest difference of all ranks, relative to the largest entry of all. */
double DifferenceOfAll(const std::vector<double> &x, const std::vector<double> &y)
{
  double most[2] = {0, 0};
  for (size_t i = 0; i < x.size(); i++) {
    const double difference = std::fabs(x[i] - y[i]);
    if (!(difference <= most[0])) most[0] = std::isfinite(difference) ? difference : 1e300;
    most[1] = std::max(most[1], std::fabs(y[i]));
  }
  MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD);
  return most[1] > 0 ? most[0] / most[1] : most[0];
}

struct Case {
  const char         *name;
  HostMatrix          A;
  CMATCHParams        params;
  std::vector<double> w = {};
};

CMATCHParams Params(PetscInt gather_rows, PetscInt gather_ranks, PetscInt factor)
{
  CMATCHParams params;
  params.coarse_size   = 20;
  params.gather_rows   = gather_rows;
  params.gather_ranks  = gather_ranks;
  params.gather_factor = factor;
  return params;
}

template <typename Change>
CMATCHParams With(CMATCHParams params, Change change)
{
  change(params);
  return params;
}

void Compare(const Case &c, const Layout &layout)
{
  CAPTURE(c.name, layout.name);
  const MatObject A = Spread(c.A, MATAIJ, layout.share);
  if (Ranks() == 1) return;
  RanksTwin  host(PETSC_MEMTYPE_HOST), device(PETSC_MEMTYPE_CUDA), nccl(PETSC_MEMTYPE_CUDA);
  const bool single = c.params.precision == FINEPC_SINGLE;
  for (const bool keep : {false, true}) {
    CAPTURE(keep);
    if (keep) SetValues(A, Changed(Blocks(c.A), 5));
    const bool made = host.Compute(A, c.params, c.w, keep);
    REQUIRE(device.Compute(A, c.params, c.w, keep) == made);
    CHECK(device.stats.failure == host.stats.failure);
    CHECK(device.stats.level == host.stats.level);
    CHECK(device.stats.row == host.stats.row);
    if (!made) return;
    CHECK(device.stats.end == host.stats.end);
    CheckSame(host, device);
    Random              random(91 + Rank());
    std::vector<double> r(host.H->level[0].n);
    for (double &value : r) value = random.Between(-1, 1);
    const auto z = device.Apply(r), again = device.Apply(r);
    CHECK(SameBits(z, again));
    CHECK(DifferenceOfAll(z, host.Apply(r)) <= (single ? 1e-4 : 1e-11));
    /* NCCL brings the same values, in the graph of the set-up before, too */
    REQUIRE(nccl.Compute(A, c.params, c.w, keep));
    if (!keep && !nccl.UseNCCL()) break;
    /* symmetric matrices have all that kernels need for exchanges of their own */
    if (const char *words = std::getenv("FINEPC_EMULATOR_WORDS"); words && *words != 's') CHECK(nccl.direct == (*words == '1'));
    CHECK(SameBits(nccl.Apply(r), z));
    for (double &value : r) value *= -1.5;
    CHECK(SameBits(nccl.Apply(r), device.Apply(r)));
    nccl.H->size = device.H->size = 3; /* a solver knows the size of the vector */
    CHECK(SameBits(nccl.Apply(r), device.Apply(r)));
    nccl.H->size = device.H->size = -1;
  }
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
    {"long rows", cube, With(wide, [](CMATCHParams &p) { p.prolongator_row = 32; })},
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
