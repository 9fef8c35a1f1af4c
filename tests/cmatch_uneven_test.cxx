/*
   PCCMATCH on nodes of different sizes, as MatSetVariableBlockSizes() gives them: bodies on rollers, whose constrained unknowns are
   not in the matrix. The solves run on the host, and on a GPU or in the emulator.
*/
#include <finepc.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bodies.h"
#include "device.h"
#include "pc_support.h"
#include "recorder.h"
#include "spread.h"

namespace
{

/* Where a solve runs. */
struct Place {
  const char  *name, *mat;
  std::string  options;
  PetscMemType where;
};

std::vector<Place> Places()
{
  std::vector<Place> places{{"host", MATAIJ, "-finepc_backend host ", PETSC_MEMTYPE_HOST}};
  if (DeviceFound())
    places.push_back({"device", kPetscHasCUDA ? MATAIJCUSPARSE : MATAIJ,
                      DeviceIsEmulated() ? "-finepc_backend device -ksp_cgfused_path graph " : "-finepc_backend device ",
                      PETSC_MEMTYPE_CUDA});
  return places;
}

/* A matrix with nodes of these sizes, and the rows of the modes. */
struct Uneven {
  HostMatrix            A;
  std::vector<PetscInt> sizes;
  std::vector<double>   B;
  LocalInt              m;
};

/* What is left of a body without these unknowns. */
Uneven Without(const Body &body, const std::function<bool(LocalInt row)> &fixed)
{
  const LocalInt                                             k = body.k, m = body.m();
  Uneven                                                     left{{}, std::vector<PetscInt>(body.A.n / k, 0), {}, m};
  std::vector<LocalInt>                                      place(body.A.n, -1);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows;
  for (LocalInt row = 0, next = 0; row < body.A.n; row++)
    if (!fixed(row)) place[row] = next++;
  for (LocalInt row = 0; row < body.A.n; row++) {
    if (place[row] < 0) continue;
    rows.emplace_back();
    left.sizes[row / k]++;
    for (LocalInt e = body.A.i[row]; e < body.A.i[row + 1]; e++)
      if (place[body.A.j[e]] >= 0) rows.back().emplace_back(place[body.A.j[e]], body.A.a[e]);
    left.B.insert(left.B.end(), body.B.begin() + (ptrdiff_t)row * m, body.B.begin() + (ptrdiff_t)(row + 1) * m);
  }
  left.A = FromRows(rows);
  return left;
}

/* The same with these unknowns left in, with this diagonal. */
Body With(Body body, const std::function<bool(LocalInt row)> &fixed, double diagonal)
{
  for (LocalInt row = 0; row < body.A.n; row++)
    for (LocalInt e = body.A.i[row]; e < body.A.i[row + 1]; e++)
      if (fixed(row) || fixed(body.A.j[e])) body.A.a[e] = body.A.j[e] == row ? diagonal : 0;
  return body;
}

/* Rollers on the faces that begin at 0: nodes there have one, two, or at a corner no unknowns. */
std::function<bool(LocalInt)> Rollers(const Body &body)
{
  return [x = body.x](LocalInt row) { return x[row] == 0; };
}

/* The modes B [rows][m] become the near null space. */
void AttachModes(Mat A, const std::vector<double> &B, LocalInt m)
{
  const LocalInt         n = (LocalInt)B.size() / m;
  std::vector<VecObject> modes;
  std::vector<Vec>       vectors;
  MatNullSpace           space;
  for (LocalInt c = 0; c < m; c++) {
    std::vector<double> mode(n);
    for (LocalInt row = 0; row < n; row++) mode[row] = B[(size_t)row * m + c];
    modes.push_back(CreateVec(n, VECSEQ, 1));
    SetValues(modes.back(), mode);
  }
  for (LocalInt c = 0; c < m; c++) { /* orthonormal, as PETSc wants them */
    for (LocalInt p = 0; p < c; p++) {
      PetscScalar dot;
      MUST(VecDot(modes[c], modes[p], &dot));
      MUST(VecAXPY(modes[c], -dot, modes[p]));
    }
    MUST(VecNormalize(modes[c], nullptr));
    vectors.push_back(modes[c]);
  }
  MUST(MatNullSpaceCreate(PETSC_COMM_SELF, PETSC_FALSE, m, vectors.data(), &space));
  MUST(MatSetNearNullSpace(A, space));
  MUST(MatNullSpaceDestroy(&space));
}

MatObject MatOf(const Uneven &uneven, MatType type = MATAIJ)
{
  MatObject A = CreateMat(uneven.A, type);
  MUST(MatSetVariableBlockSizes(A, (PetscInt)uneven.sizes.size(), (PetscInt *)uneven.sizes.data()));
  AttachModes(A, uneven.B, uneven.m);
  return A;
}

Body Cube(LocalInt n)
{
  const auto modulus = [](LocalInt x, LocalInt y, LocalInt z) { return Random(x + 100 * y + 10000 * z).Between(1, 3); };
  return MakeBody({n, n, n, {1, 1, 1}, 0.3, modulus, false});
}

LocalInt Edge(LocalInt n)
{
  return DeviceIsEmulated() ? 7 : n; /* the emulator's threads take turns */
}

int IterationsWith(Mat A, const std::string &options)
{
  const SolverWith s(A, KSPCG, PCCMATCH, "-ksp_norm_type unpreconditioned -pc_cmatch_coarse_size 30 " + options);
  const Run        run = RunOf(s.ksp);
  CHECK(run.reason == KSP_CONVERGED_RTOL);
  return (int)run.iterations;
}

} // namespace

TEST_CASE("cmatch: bodies on rollers without their rows take the iterations with these rows", "[cmatch][uneven]")
{
  struct {
    const char *name;
    Body        body;
    bool        mis2 = true; /* also around an independent set, which takes 3 iterations more on few of these elements */
  } cases[] = {{"cube", Cube(Edge(14))},
               {"elements that are longer than wide", MakeBody({Edge(14), Edge(12), 8, {4, 1, 1}, 0.3, nullptr, false}),
                !DeviceIsEmulated()},
               {"plane stress", MakeBody({4 * Edge(10), 4 * Edge(9), 0, {1, 1, 1}, 0.3, nullptr, false})},
               {"stiff inclusions", MakeBody({Edge(14), Edge(14), Edge(14), {1, 1, 1}, 0.3, Checkerboard, false})}};
  for (const Place &place : Places())
    for (const auto &c : cases) {
      const auto      fixed = Rollers(c.body);
      const Body      left  = With(c.body, fixed, 1);
      const MatObject with = CreateMat(left.A, place.mat), without = MatOf(Without(c.body, fixed), place.mat);
      MUST(MatSetBlockSize(with, left.k));
      AttachModes(with, left.B, left.m());
      for (const char *options : {"", "-pc_cmatch_coarsening mis2", "-pc_cmatch_smoother sfsai", "-pc_cmatch_precision double"}) {
        if (DeviceIsEmulated() && (Contains(options, "sfsai") || Contains(options, "double"))) continue; /* which take long */
        if (!c.mis2 && Contains(options, "mis2")) continue;
        const int rows = IterationsWith(without, place.options + "-pc_cmatch_block_size 1 " + options),
                  in = IterationsWith(with, place.options + options), nodes = IterationsWith(without, place.options + options);
        CAPTURE(place.name, c.name, options, in, nodes, rows);
        CHECK(nodes <= in + 2);
        CHECK(nodes < rows);
      }
    }
}

TEST_CASE("cmatch: twins of nodes of different sizes", "[cmatch][uneven][gpu]")
{
  NEEDS_DEVICE();
  const Body   body   = Cube(Edge(12));
  const Uneven uneven = Without(body, Rollers(body));
  for (const char *solver : {KSPCG, KSPCGFUSED})
    for (const char *options : {"", "-pc_cmatch_precision double ", "-pc_cmatch_smoother sfsai "}) {
      const MatObject  A = MatOf(uneven);
      const SolverWith host(A, solver, PCCMATCH, Places()[0].options + options + "-pc_cmatch_coarse_size 30");
      Run              runs[2];
      MUST(PCSetUp(host.pc()));
      for (const Place &place : Places()) {
        const MatObject  A = MatOf(uneven, place.mat);
        const SolverWith s(A, solver, PCCMATCH, place.options + options + "-pc_cmatch_coarse_size 30");
        for (int repeat = 0; repeat < 2; repeat++) { /* a refill, and a graph that stays */
          Run &run = runs[PetscMemTypeDevice(place.where)] = RunOf(s.ksp);
          CAPTURE(solver, options, place.name, repeat);
          CHECK(run.reason == KSP_CONVERGED_RTOL);
          CHECK(Contains(s.View(), PetscMemTypeDevice(place.where) ? "backend CUDA" : "backend host"));
          CheckSameLevels(s.pc(), host.pc());
          MUST(PetscObjectStateIncrease((PetscObject)(Mat)A));
        }
      }
      CHECK(std::abs(runs[0].iterations - runs[1].iterations) <= 1);
      CHECK(VectorDifference(runs[1].x, runs[0].x) <= 1e-6);
    }
}

TEST_CASE("cmatch: refills and other sizes of nodes of different sizes", "[cmatch][uneven]")
{
  const Body body  = Cube(7);
  const auto fixed = Rollers(body);
  Uneven     first = Without(body, fixed), second = first;
  for (PetscScalar &a : second.A.a) a *= 2;
  for (LocalInt row = 0; row < second.A.n; row++)
    for (LocalInt e = second.A.i[row]; e < second.A.i[row + 1]; e++)
      if (second.A.j[e] == row) second.A.a[e] *= 1.01;
  for (const Place &place : Places()) {
    const MatObject  A = MatOf(first, place.mat), values = MatOf(second, place.mat);
    const SolverWith s(A, KSPCG, PCCMATCH, place.options + "-pc_cmatch_coarse_size 30");
    const auto       fresh = [&](Mat of) {
      return Applied(PCOf(SolverWith(of, KSPCG, PCCMATCH, place.options + "-pc_cmatch_coarse_size 30").ksp));
    };
    CAPTURE(place.name);
    MUST(PCSetUp(s.pc()));
    const std::vector<double> before = Applied(s.pc());
    CHECK(SameBits(Applied(s.pc(), true), before));
    CHECK(SameBits(fresh(A), before));
    MUST(MatCopy(values, A, SAME_NONZERO_PATTERN));
    MUST(PCSetUp(s.pc()));
    CHECK(Contains(s.View(), "aggregates and patterns kept from the last set-up"));
    CHECK(Difference(Applied(s.pc()), fresh(A)) <= 0.05); /* whose aggregates may be others */
    MUST(MatCopy(MatOf(first, place.mat), A, SAME_NONZERO_PATTERN));
    MUST(PCSetUp(s.pc()));
    CHECK(SameBits(Applied(s.pc()), before));

    /* the same nonzeros in other nodes, which a solver learns with the next values */
    std::vector<PetscInt> sizes = first.sizes;
    const auto            two   = std::find(sizes.begin(), sizes.end(), 2);
    *two                        = 1;
    sizes.insert(two, 1);
    for (const auto &other : {sizes, std::vector<PetscInt>(first.A.n, 1), first.sizes}) {
      MUST(MatSetVariableBlockSizes(A, (PetscInt)other.size(), (PetscInt *)other.data()));
      MUST(PetscObjectStateIncrease((PetscObject)(Mat)A));
      MUST(PCSetUp(s.pc()));
      CHECK(Contains(s.View(), "hierarchy of nodes") == (other.size() != (size_t)first.A.n));
      CHECK(SameBits(Applied(s.pc()), fresh(A)));
    }
    CHECK(SameBits(Applied(s.pc()), before));
    MUST(PCReset(s.pc()));
    MUST(PCSetOperators(s.pc(), A, A));
    MUST(PCSetUp(s.pc()));
    CHECK(SameBits(Applied(s.pc()), before));
  }
}

TEST_CASE("cmatch: blocks of any sizes", "[cmatch][uneven]")
{
  const HostMatrix A = RandomStencil(DeviceIsEmulated() ? 9 : 24, 21, 1, true, 3);
  for (const Place &place : Places())
    for (PetscInt most = 2; most <= 7; most++)
      for (const LocalInt m : {2, 3, 6, 8}) {
        Uneven uneven{A, {}, {}, m};
        Random random((std::uint64_t)(10 * most + m));
        for (PetscInt rows = 0; rows < A.n; rows += uneven.sizes.back())
          uneven.sizes.push_back(std::min(PetscInt(A.n) - rows, rows ? (PetscInt)random.Between(0.8, (double)most + 0.999) : most));
        for (LocalInt e = 0; e < A.n * m; e++) uneven.B.push_back(e % m ? random.Between(-1, 1) : 1);
        const MatObject mat = MatOf(uneven, place.mat);
        CAPTURE(place.name, most, m);
        const SolverWith s(mat, KSPCGFUSED, PCCMATCH, place.options + "-pc_cmatch_coarse_size 20");
        CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
        CHECK(Contains(s.View(),
                       "the matrix has blocks, but the hierarchy is one of single rows, since nodes have at most 6 unknowns") ==
              (most > 6));
        CHECK(Contains(s.View(), "nodes of different sizes: unknowns that they lack " +
                                   std::to_string((PetscInt)uneven.sizes.size() * most - A.n) + "\n") == (most <= 6));
      }
}

TEST_CASE("cmatch: what nodes of different sizes need, and what equal sizes are", "[cmatch][uneven]")
{
  const Body   body   = Cube(6);
  const Uneven uneven = Without(body, Rollers(body)), all = Without(body, [](LocalInt) { return false; });
  const auto   viewed = [](Mat A, const std::string &options) {
    const SolverWith s(A, KSPCG, PCCMATCH, "-pc_cmatch_coarse_size 30 " + options);
    MUST(PCSetUp(s.pc()));
    return s.View();
  };
  const MatObject even = MatOf(all), blocks = CreateMat(body.A, MATAIJ), bare = CreateMat(uneven.A, MATAIJ);
  MUST(MatSetBlockSize(blocks, 3));
  AttachModes(blocks, body.B, 6);
  CHECK(SameBits(Applied(PCOf(MakeKSP(even, "-pc_cmatch_coarse_size 30", PCCMATCH))),
                 Applied(PCOf(MakeKSP(blocks, "-pc_cmatch_coarse_size 30", PCCMATCH)))));
  CHECK(!Contains(viewed(even, ""), "different sizes"));
  MUST(MatSetVariableBlockSizes(bare, (PetscInt)uneven.sizes.size(), (PetscInt *)uneven.sizes.data()));
  CHECK(Contains(viewed(bare, ""), "single rows, since nodes of different sizes need modes, see MatSetNearNullSpace()"));
  CHECK(Contains(viewed(MatOf(uneven), "-pc_cmatch_coarse pcg"), "single rows, since nodes have a dense coarsest level"));
  CHECK(Contains(viewed(MatOf(uneven), ""), "hierarchy of nodes with 3 unknowns, 6 modes: the near null space\n"
                                            "  nodes of different sizes: unknowns that they lack 108\n"));
  CHECK(!Contains(viewed(MatOf(uneven), "-pc_cmatch_block_size 1"), "hierarchy of nodes"));
}

TEST_CASE("cmatch: the view names rows of nodes of different sizes", "[cmatch][uneven]")
{
  const Body body = Cube(6);
  for (const Place &place : Places()) {
    Uneven         uneven = Without(body, Rollers(body));
    const LocalInt node   = 50;
    LocalInt       row    = 0;
    for (LocalInt i = 0; i < node; i++) row += (LocalInt)uneven.sizes[i];
    REQUIRE(uneven.sizes[node] > 1);
    const auto text = [&](const HostMatrix &A) {
      Uneven bad           = uneven;
      bad.A                = A;
      const MatObject  mat = MatOf(bad, place.mat);
      const SolverWith s(mat, KSPCG, PCCMATCH, place.options);
      CHECK(RunOf(s.ksp).reason == KSP_DIVERGED_PC_FAILED);
      return s.View();
    };
    CHECK(Contains(text(WithEntry(uneven.A, row, row, -1)), "Row " + std::to_string(row) + " has a diagonal entry that is not"));
    CHECK(Contains(text(WithEntry(uneven.A, row + 1, row, std::numeric_limits<double>::quiet_NaN())),
                   "Row " + std::to_string(row + 1) + " has an entry that is not finite"));
    CHECK(Contains(text(WithEntry(WithEntry(uneven.A, row + 1, row, 100), row, row + 1, 100)),
                   "Node 50, rows " + std::to_string(row) + " to " + std::to_string(row + uneven.sizes[node] - 1) +
                     ", has a diagonal block that is not positive definite"));
  }
}

TEST_CASE("cmatch: the matrices of a hierarchy of nodes of different sizes", "[cmatch][uneven]")
{
  const Body body = Cube(7);
  for (const Place &place : Places()) {
    const Uneven     uneven = Without(body, Rollers(body));
    const MatObject  A = MatOf(uneven, place.mat), plain = CreateMat(uneven.A, MATAIJ);
    const SolverWith s(A, KSPCG, PCCMATCH, place.options + "-pc_cmatch_precision double -pc_cmatch_coarse_size 30");
    MUST(PCSetUp(s.pc()));
    const Levels levels = LevelsOf(s.pc());
    REQUIRE(levels.A.size() >= 2);
    const VecObject y = RightVec(plain, 3), x = RightVec(levels.A[1], 4), Ax = RightVec(levels.A[1], 5),
                    PAPx = RightVec(levels.A[1], 6);
    PetscReal norm, of;
    MUST(MatMultTranspose(levels.P[0], y, x)); /* which is 0 for dead unknowns */
    MUST(MatMult(levels.A[1], x, Ax));
    MUST(MatMult(levels.P[0], x, y));
    const VecObject Ay = RightVec(plain, 7);
    MUST(MatMult(plain, y, Ay));
    MUST(MatMultTranspose(levels.P[0], Ay, PAPx));
    MUST(VecNorm(Ax, NORM_2, &of));
    MUST(VecAXPY(PAPx, -1, Ax));
    MUST(VecNorm(PAPx, NORM_2, &norm));
    CHECK(norm <= 1e-13 * of);
    MUST(MatAXPY(plain, -1, levels.A[0], DIFFERENT_NONZERO_PATTERN));
    MUST(MatNorm(plain, NORM_FROBENIUS, &norm));
    CHECK(norm == 0);
  }
}

TEST_CASE("cmatch: several right-hand sides with nodes of different sizes", "[cmatch][uneven]")
{
  const Body   body   = Cube(7);
  const Uneven uneven = Without(body, Rollers(body));
  for (const Place &place : Places()) {
    const MatObject A = MatOf(uneven, place.mat);
    MatObject       B, X;
    MUST(MatCreateDense(PETSC_COMM_SELF, uneven.A.n, PETSC_DECIDE, uneven.A.n, 11, nullptr, B.put()));
    MUST(MatSetRandom(B, nullptr));
    MUST(MatDuplicate(B, MAT_DO_NOT_COPY_VALUES, X.put()));
    const SolverWith s(A, KSPCGFUSED, PCCMATCH, place.options + "-pc_cmatch_coarse_size 30");
    MUST(KSPMatSolve(s.ksp, B, X));
    KSPConvergedReason reason;
    MUST(KSPGetConvergedReason(s.ksp, &reason));
    CHECK(reason > 0);
    for (PetscInt c = 0; c < 11; c++) {
      Vec       b, x;
      VecObject own_b, own_x; /* of the type of A, which the columns of a host's matrix are not */
      MUST(MatCreateVecs(A, own_x.put(), own_b.put()));
      MUST(MatDenseGetColumnVecRead(B, c, &b));
      MUST(MatDenseGetColumnVecRead(X, c, &x));
      MUST(VecCopy(b, own_b));
      MUST(VecCopy(x, own_x));
      CAPTURE(place.name, c);
      CHECK(ResidualOf(A, own_b, own_x) <= 1e-6);
      MUST(MatDenseRestoreColumnVecRead(X, c, &x));
      MUST(MatDenseRestoreColumnVecRead(B, c, &b));
    }
  }
}

TEST_CASE("cmatch: nodes of different sizes on several ranks", "[cmatch][uneven][mpi]")
{
  const HostMatrix A          = Poisson(15, 12);
  const PetscInt   mine       = Rank() ? Even(A.n, Rank() - 1, std::max(Ranks() - 1, 1)) : Ranks() > 1 ? 0 : A.n;
  const MatObject  mat        = CreateMat(A, MATAIJ, PETSC_COMM_WORLD, mine); /* the first of several ranks has no rows */
  const VecObject  modes[2]   = {RightVec(mat, 4), RightVec(mat, 5)};
  const Vec        vectors[2] = {modes[0], modes[1]};
  PetscScalar      dot;
  MatNullSpace     space;
  MUST(VecNormalize(vectors[0], nullptr));
  MUST(VecDot(vectors[1], vectors[0], &dot));
  MUST(VecAXPY(vectors[1], -dot, vectors[0]));
  MUST(VecNormalize(vectors[1], nullptr));
  MUST(MatNullSpaceCreate(PETSC_COMM_WORLD, PETSC_FALSE, 2, vectors, &space));
  MUST(MatSetNearNullSpace(mat, space));
  MUST(MatNullSpaceDestroy(&space));
  std::vector<PetscInt> sizes(mine / 2, 2);
  if (mine % 2) sizes.push_back(1);
  else if (mine) {
    sizes.back() = 1;
    sizes.push_back(1);
  }
  MUST(MatSetVariableBlockSizes(mat, (PetscInt)sizes.size(), sizes.data()));
  for (const char *reach : {"local", "global"}) {
    const SolverWith s(mat, KSPCG, PCCMATCH,
                       std::string("-finepc_backend host -pc_cmatch_coarse_size 30 -pc_cmatch_reach ") + reach);
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    const std::string text = s.View();
    if (Rank()) continue;
    CAPTURE(reach, text);
    CHECK(Contains(text, "nodes have different sizes on several ranks") == (Ranks() > 1 && std::string(reach) == "global"));
    CHECK(Contains(text, "nodes of different sizes: unknowns") == (Ranks() == 1));
  }
}
