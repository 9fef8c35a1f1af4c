/*
   One hierarchy of nodes of PCCMATCH of all ranks: the iterations of one rank whatever the partition, Galerkin products on every
   level, the same bits each time and for a rank that has all rows, refills, failures, and what the view says.
*/
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "bodies.h"
#include "pc/cmatch/cmatch_face.h"
#include "spread.h"

namespace
{

/* With these small bodies have several levels on several ranks, and groups of ranks give their nodes to one. */
constexpr const char *kWide    = "-@coarse_size 20 -@gather_rows 50 -@gather_ranks 0 ";
constexpr const char *kGrouped = "-@coarse_size 20 -@gather_rows 50 -@gather_ranks 2000 -test_gather_factor 2 ";
constexpr const char *kSolve   = "-ksp_norm_type unpreconditioned -ksp_rtol 1e-8 ";

/* Even parts, a rank with most rows, and one without any. */
std::vector<Layout> SomeLayouts()
{
  return {Layouts().begin(), Layouts().begin() + std::min<ptrdiff_t>((ptrdiff_t)Layouts().size(), 3)};
}

/* Whole nodes on each rank */
Share InNodes(const Share &share, LocalInt k)
{
  return [share, k](LocalInt n, int rank, int size) { return k * share(n / k, rank, size); };
}

/* The rank's part of values of all rows, or of all nodes. */
std::vector<double> PartOf(Mat A, const std::vector<double> &values, LocalInt rows_of_all)
{
  PetscInt     first, end;
  const size_t each = values.size() / rows_of_all;
  MUST(MatGetOwnershipRange(A, &first, &end));
  return {values.begin() + (ptrdiff_t)(each * first), values.begin() + (ptrdiff_t)(each * end)};
}

MatObject SpreadBody(const Body &body, const Share &share, MatType type = MATAIJ)
{
  MatObject A = Spread(body.A, MATAIJ, InNodes(share, body.k)), converted;
  MUST(MatSetBlockSize(A, body.k));
  if (std::string(type) == MATAIJ) return A;
  if (std::string(type) == MATSBAIJ) MUST(MatSetOption(A, MAT_SYMMETRIC, PETSC_TRUE));
  MUST(MatConvert(A, type, MAT_INITIAL_MATRIX, converted.put()));
  return converted;
}

/*
   Columns of the modes as a near null space, or multiples of them. They are made orthonormal, which PETSc asks for, by vectors of
   the host, so that matrices on GPUs have the same ones to the last bit.
*/
void AttachModes(Mat A, const Body &body, double factor = 1)
{
  const LocalInt         m = body.m();
  const auto             B = PartOf(A, body.B, body.A.n);
  std::vector<VecObject> x(m), on_host(m);
  std::vector<Vec>       vectors;
  MatNullSpace           space;
  for (LocalInt c = 0; c < m; c++) {
    std::vector<double> values;
    for (size_t e = c; e < B.size(); e += m) values.push_back(B[e] * factor);
    MUST(VecCreate(PetscObjectComm((PetscObject)A), on_host[c].put()));
    MUST(VecSetSizes(on_host[c], (PetscInt)values.size(), PETSC_DETERMINE));
    MUST(VecSetType(on_host[c], VECSTANDARD));
    SetValues(on_host[c], values);
    for (LocalInt p = 0; p < c; p++) {
      PetscScalar dot;
      MUST(VecDot(on_host[c], on_host[p], &dot));
      MUST(VecAXPY(on_host[c], -dot, on_host[p]));
    }
    MUST(VecNormalize(on_host[c], nullptr));
    MUST(MatCreateVecs(A, x[c].put(), nullptr));
    SetValues(x[c], Values(on_host[c]));
    vectors.push_back(x[c]);
  }
  MUST(MatNullSpaceCreate(PetscObjectComm((PetscObject)A), PETSC_FALSE, m, vectors.data(), &space));
  MUST(MatSetNearNullSpace(A, space));
  MUST(MatNullSpaceDestroy(&space));
}

MatObject WithModes(const Body &body, const Share &share = Even, MatType type = MATAIJ)
{
  MatObject A = SpreadBody(body, share, type);
  AttachModes(A, body);
  return A;
}

/* The same of one rank. */
MatObject Alone(const Body &body)
{
  MatObject A = CreateMat(body.A, MATAIJ);
  MUST(MatSetBlockSize(A, body.k));
  AttachModes(A, body);
  return A;
}

PetscInt IterationsAlone(const Body &body, const std::string &options)
{
  PetscInt its = 0;
  if (!Rank()) its = Solve(MakeKSP(Alone(body), CMATCH(), kSolve + options)).iterations;
  MPI_Bcast(&its, 1, MPIU_INT, 0, PETSC_COMM_WORLD);
  return its;
}

Body Cube(LocalInt n)
{
  return MakeBody({n, n, n});
}

bool HasNodes(PC pc)
{
  return ((const PC_CMATCH *)pc->data)->hierarchy->nodes != nullptr;
}

LocalInt LevelsOnRanks(PC pc)
{
  return ((const PC_CMATCH *)pc->data)->hierarchy->several;
}

/* Dead unknowns, whose columns of P are 0, have 1 on the scaled diagonal. */
void TakeDead(Mat A, Mat product)
{
  VecObject of_A, of_product;
  MUST(MatCreateVecs(A, of_A.put(), of_product.put()));
  MUST(MatGetDiagonal(A, of_A));
  MUST(MatGetDiagonal(product, of_product));
  auto       diagonal = Values(of_A);
  const auto zero     = Values(of_product);
  for (size_t row = 0; row < zero.size(); row++)
    if (zero[row] != 0) diagonal[row] = 0;
  SetValues(of_A, diagonal);
  MUST(MatDiagonalSet(product, of_A, ADD_VALUES));
}

/* The nodes in the order of x, so that ranks cut a beam across. */
Body AlongX(const Body &body)
{
  const LocalInt        k = body.k, m = body.m(), nodes = body.A.n / k;
  std::vector<LocalInt> order(nodes), number(nodes);
  Body                  result = body;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](LocalInt i, LocalInt j) { return body.x[i * k] < body.x[j * k]; });
  for (LocalInt i = 0; i < nodes; i++) number[order[i]] = i;
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(body.A.n);
  for (LocalInt row = 0; row < body.A.n; row++) {
    const LocalInt to = number[row / k] * k + row % k;
    for (LocalInt e = body.A.i[row]; e < body.A.i[row + 1]; e++)
      rows[to].emplace_back(number[body.A.j[e] / k] * k + body.A.j[e] % k, body.A.a[e]);
    std::sort(rows[to].begin(), rows[to].end());
    result.x[to] = body.x[row];
    for (LocalInt c = 0; c < m; c++) result.B[(size_t)to * m + c] = body.B[(size_t)row * m + c];
  }
  result.A = FromRows(rows);
  return result;
}

std::string FailureOf(PC pc)
{
  return ((const PC_Local *)pc->data)->failure;
}

} // namespace

TEST_CASE("cmatch: nodes on several ranks take the iterations of one", "[cmatch][nodes][ranks][pc][mpi][two][four][eight]")
{
  const struct {
    const char *name;
    BodyOf      of;
    PetscInt    more  = 2;     /* iterations than one rank takes; borders cut cells of 4^3 that are 1000 times as stiff as others */
    bool        eight = false; /* so on eight ranks, too: the others, of 125 to 512 nodes a rank, take 7 more, or 13 by kWide */
  } problems[] = {{"cube", {14, 14, 14}, 2, true},
                  {"beam", {60, 5, 5}, 2, true},
                  {"two materials", {16, 16, 16, {1, 1, 1}, 0.3, RandomCells}, 6},
                  {"plane stress", {40, 40, 0}},
                  {"tetrahedra", {10, 0, 0}}};
  for (const auto &problem : problems) {
    if (Ranks() > 4 && !problem.eight) continue;
    const Body body = AlongX(problem.of.ny ? MakeBody(problem.of) : Tetrahedra(problem.of.nx));
    for (const std::string &options :
         {std::string(), kWide + std::string("-@precision double"), std::string("-@coarsening mis2 -@coarse_size 20 "),
          kWide + std::string("-@coarsening mis2 "), kWide + std::string("-@smoother sfsai"),
          std::string("-@smoother afsai -@degree 2")}) {
      /* factors of each rank's block save few iterations where the blocks are thin, or where borders cut stiff cells */
      const size_t smoother = options.find("-@smoother");
      if (Ranks() > 4 && smoother != std::string::npos) continue;
      const PetscInt alone = IterationsAlone(body, options.substr(0, smoother)); /* with block Jacobi */
      for (const Layout &layout : SomeLayouts()) {
        const MatObject A        = WithModes(body, layout.share);
        const KSPObject ksp      = MakeKSP(A, CMATCH(), kSolve + options);
        const Solution  solution = Solve(ksp);
        CAPTURE(problem.name, options, layout.name, alone);
        CHECK(solution.reason == KSP_CONVERGED_RTOL);
        CHECK(solution.true_residual <= 1.05e-8);
        const PetscInt of_roots  = Contains(options, "mis2") ? alone / 5 : 0;        /* borders cut more of larger aggregates */
        const PetscInt of_factor = problem.of.modulus && Contains(options, "sfsai"); /* which is that of the rank's block */
        CHECK(solution.iterations <= alone + PetscMax(problem.more, of_roots) + of_factor);
        CHECK(HasNodes(PCOf(ksp)));
      }
    }
  }
}

/* By the power method. A has the entries of the level, but is not scaled. */
TEST_CASE("cmatch: nodes on several ranks: factored smoothers are scaled for all of them",
          "[cmatch][nodes][ranks][pc][mpi][two][four]")
{
  const Body body = Cube(9);
  for (const Layout &layout : SomeLayouts())
    for (const char *smoother : {"sfsai", "afsai"}) {
      const PCObject pc =
        MakePC(WithModes(body, layout.share), CMATCH(), kWide + std::string("-@precision double -@smoother ") + smoother);
      MUST(PCSetUp(pc));
      const CMATCHHierarchy *H       = ((const PC_CMATCH *)((PC)pc)->data)->hierarchy;
      const Levels           levels  = LevelsOf(pc);
      int                    several = H->several;
      MPI_Allreduce(MPI_IN_PLACE, &several, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
      CHECK((several > 0 || Ranks() == 1));
      for (LocalInt l = 0; l < several; l++) {
        VecObject x, y;
        PetscReal norm = 0;
        MUST(MatCreateVecs(levels.A[l], x.put(), y.put()));
        MUST(VecSet(x, 1));
        SetValues(x, [&] {
          std::vector<double> random = Values(x);
          Random              numbers(Rank() + 5);
          for (double &value : random) value = numbers.Between(-1, 1);
          return random;
        }());
        for (int step = 0; step < 80; step++) {
          MUST(VecNormalize(x, &norm));
          MUST(MatMult(levels.A[l], x, y));
          std::vector<double> r = Values(y);
          if (l < H->levels && H->level[l].factor.d) {
            const CMATCHFactor &factor = H->level[l].factor;
            const CSR          &W = factor.W, &Wt = factor.Wt;
            std::vector<double> t = r;
            for (double &value : t) value *= H->scale;
            for (LocalInt i = 0; i < W.rows; i++) {
              for (LocalInt e = W.i[i]; e < W.i[i + 1]; e++) t[i] += ((const double *)W.a)[e] * H->scale * r[W.j[e]];
              t[i] *= ((const double *)factor.d)[i];
            }
            for (LocalInt i = 0; i < W.rows; i++)
              for (LocalInt e = Wt.i[i]; e < Wt.i[i + 1]; e++) t[i] += ((const double *)Wt.a)[e] * t[Wt.j[e]];
            r = t;
          }
          SetValues(x, r);
        }
        CAPTURE(layout.name, smoother, l);
        CHECK(norm < 1);
        CHECK(norm > 0.75);
      }
    }
}

TEST_CASE("cmatch: nodes on several ranks have Galerkin products", "[cmatch][nodes][ranks][pc][hierarchy][mpi][two][four]")
{
  const Body bodies[] = {Cube(9), MakeBody({25, 20, 0})};
  for (const Body &body : bodies)
    for (const Layout &layout : SomeLayouts())
      for (const std::string &options : {std::string(), std::string(kWide), std::string(kGrouped)})
        for (const char *precision : {"double", "single"}) {
          const MatObject A  = WithModes(body, layout.share);
          const PCObject  pc = MakePC(A, CMATCH(), options + " -@precision " + precision);
          CAPTURE(body.k, layout.name, options, precision);
          MUST(PCSetUp(pc));
          const Levels levels = LevelsOf(pc);
          CHECK(levels.A.size() >= 2);
          for (size_t l = 0; l + 1 < levels.A.size(); l++) {
            MatObject product;
            PetscReal norm, of;
            PetscInt  bs;
            MUST(MatPtAP(levels.A[l], levels.P[l], MAT_INITIAL_MATRIX, PETSC_DEFAULT, product.put()));
            TakeDead(levels.A[l + 1], product);
            MUST(MatAXPY(product, -1, levels.A[l + 1], DIFFERENT_NONZERO_PATTERN));
            MUST(MatNorm(product, NORM_FROBENIUS, &norm));
            MUST(MatNorm(levels.A[l + 1], NORM_FROBENIUS, &of));
            MUST(MatGetBlockSize(levels.A[l + 1], &bs));
            CAPTURE(l, norm / of);
            CHECK(norm <= (std::string(precision) == "double" ? 1e-13 : 1e-6) * of);
            CHECK((bs == body.m() || (l == 0 && bs == body.k)));
          }
        }
}

/* Level by level, as long as each rank keeps its aggregates: A_l B_l = 0, and P B_c = B. */
TEST_CASE("cmatch: the modes of a free body are in the null space of every level on several ranks",
          "[cmatch][nodes][ranks][pc][mpi][two][four]")
{
  for (const BodyOf &of :
       {BodyOf{10, 9, 11, {1, 1, 1}, 0.3, RandomCells, false}, BodyOf{30, 24, 0, {1, 1, 1}, 0.3, nullptr, false}}) {
    const Body      body = MakeBody(of);
    const LocalInt  m    = body.m();
    const MatObject A    = WithModes(body);
    const PCObject  pc   = MakePC(A, CMATCH(), "-@coarse_size 20 -@gather_rows 0 -@gather_ranks 0 -@precision double");
    MUST(PCSetUp(pc));
    const Levels           levels = LevelsOf(pc);
    const CMATCHHierarchy *H      = ((const PC_CMATCH *)((PC)pc)->data)->hierarchy;
    const LocalInt         last   = std::max(H->several - 1, 0);
    MatNullSpace           space;
    PetscInt               count;
    const Vec             *modes;
    std::vector<double>    B((size_t)H->level[0].n * m);
    MUST(MatGetNearNullSpace(A, &space));
    MUST(MatNullSpaceGetVecs(space, nullptr, &count, &modes));
    for (LocalInt c = 0; c < m; c++) { /* each is scaled by a power of 2 */
      const auto values  = Values(modes[c]);
      double     largest = 0;
      int        exponent;
      for (const double value : values) largest = std::max(largest, std::fabs(value));
      MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD);
      std::frexp(largest, &exponent);
      for (size_t row = 0; row < values.size(); row++) B[row * m + c] = std::ldexp(values[row], -exponent);
    }
    const auto column = [m](Mat of_level, const std::vector<double> &of_modes, LocalInt c) {
      VecObject           x;
      std::vector<double> values;
      MUST(MatCreateVecs(of_level, x.put(), nullptr));
      for (size_t e = c; e < of_modes.size(); e += m) values.push_back(of_modes[e]);
      SetValues(x, values);
      return x;
    };
    for (LocalInt l = 0; l < last; l++) {
      const CMATCHNodesLevel   &level = H->nodes->level[l];
      const std::vector<double> next(level.B_c, level.B_c + (size_t)level.coarse * m * m);
      for (LocalInt c = 0; c < m; c++) {
        const VecObject x = column(levels.A[l], B, c), x_c = column(levels.A[l + 1], next, c);
        VecObject       y;
        PetscReal       norm_A, norm_x, norm;
        CAPTURE(body.k, l, c);
        MUST(VecDuplicate(x, y.put()));
        MUST(MatNorm(levels.A[l], NORM_INFINITY, &norm_A));
        MUST(VecNorm(x, NORM_INFINITY, &norm_x));
        MUST(MatMult(levels.A[l], x, y));
        MUST(VecNorm(y, NORM_INFINITY, &norm));
        CHECK(norm <= 1e-12 * norm_A * norm_x);
        MUST(MatMult(levels.P[l], x_c, y));
        MUST(VecAXPY(y, -1, x));
        MUST(VecNorm(y, NORM_INFINITY, &norm));
        CHECK(norm <= 1e-12 * norm_x);
      }
      B = next;
    }
    if (Ranks() > 1) CHECK(last >= 1);
  }
}

TEST_CASE("cmatch: nodes on several ranks of which one has all rows", "[cmatch][nodes][ranks][pc][mpi][two][four]")
{
  const Share all = [](LocalInt n, int rank, int size) { return rank == size / 2 ? n : 0; };
  for (const Body &body : {Cube(10), MakeBody({32, 30, 0})})
    for (const char *precision : {"single", "double", "double -@smoother sfsai"}) {
      const std::string options = std::string("-@coarse_size 40 -@precision ") + precision;
      const auto        mine    = Applied(MakePC(WithModes(body, all), CMATCH(), options));
      CAPTURE(body.k, precision);
      if (Rank() != Ranks() / 2) continue;
      std::vector<double> random = Applied(MakePC(Alone(body), CMATCH(), options));
      CHECK(SameBits(mine, random));
    }
}

TEST_CASE("cmatch: nodes on several ranks: refills", "[cmatch][nodes][ranks][pc][mpi][two][four]")
{
  const Body body = Cube(9), other = MakeBody({9, 9, 9, {1, 1, 1}, 0.3, [](LocalInt x, LocalInt y, LocalInt z) {
                                                 return Random(x + 100 * y + 10000 * z + 1).Between(1, 2);
                                               }});
  for (const Layout &layout : SomeLayouts())
    for (const std::string &options :
         {std::string(), std::string(kWide), std::string(kGrouped), kWide + std::string("-@smoother sfsai ")}) {
      CAPTURE(layout.name, options);
      const MatObject A = WithModes(body, layout.share), values = SpreadBody(other, layout.share);
      const PCObject  pc    = MakePC(A, CMATCH(), options);
      const auto      first = Applied(pc);
      CHECK(HasNodes(pc));
      Touch(A);
      CHECK(SameBits(Applied(pc), first)); /* the same values */
      CHECK(Contains(ViewText((PC)pc), CMATCH().kept) == !Rank());
      MUST(MatScale(A, 2)); /* which leaves the hierarchy as it is, but for its scale */
      CHECK(SameBits(Applied(pc), Applied(MakePC(A, CMATCH(), options))));
      MUST(MatCopy(values, A, SAME_NONZERO_PATTERN)); /* values that fit */
      const KSPObject refilled = MakeKSP(A, CMATCH(), kSolve + options);
      MUST(KSPSetPC(refilled, pc));
      CHECK(Solve(refilled).reason == KSP_CONVERGED_RTOL);
      CHECK(Contains(ViewText((PC)pc), CMATCH().kept) == !Rank());
      CHECK(Solve(refilled).iterations <= 16);
      MUST(PCSetUp(pc));
      const MatObject again = SpreadBody(body, layout.share);
      MUST(MatCopy(again, A, SAME_NONZERO_PATTERN)); /* and back */
      CHECK(SameBits(Applied(pc), first));
      MUST(PCReset(pc));
      MUST(PCSetOperators(pc, A, A));
      CHECK(SameBits(Applied(pc), first));
    }
}

TEST_CASE("cmatch: nodes on several ranks whose stiffness has moved", "[cmatch][nodes][ranks][pc][mpi][two][four]")
{
  const auto sheets = [](LocalInt, LocalInt, LocalInt z) { return z % 3 ? 1 : 1e4; };
  const Body free   = MakeBody({10, 10, 10, {1, 1, 1}, 0.3, nullptr, false});
  Body       held   = free;
  for (LocalInt row = 0; row < held.A.n; row++)
    for (LocalInt e = held.A.i[row]; e < held.A.i[row + 1]; e++)
      if (held.A.j[e] == row) held.A.a[e] *= 1.01;
  const struct {
    const char *name;
    Body        first, second;
    bool        fit;
  } cases[] = {{"elements that are long in another direction", MakeBody({12, 12, 12, {10, 1, 1}}),
                MakeBody({12, 12, 12, {1, 10, 1}}), false},
               {"sheets", MakeBody({12, 12, 12}), MakeBody({12, 12, 12, {1, 1, 1}, 0.3, sheets}), false},
               {"nodes in no aggregate", WithRowsLeft(free, 1), held, false},
               {"the same", MakeBody({12, 12, 12}), MakeBody({12, 12, 12}), true}};

  for (const auto &c : cases)
    for (const std::string &options : {std::string(), std::string(kWide)}) {
      const MatObject A = WithModes(c.first), same = WithModes(c.second);
      MatNullSpace    modes;
      MUST(MatGetNearNullSpace(same, &modes));
      const PCObject pc = MakePC(A, CMATCH(), options);
      CAPTURE(c.name, options);
      MUST(PCSetUp(pc));
      MUST(MatCopy(same, A, SAME_NONZERO_PATTERN));
      MUST(MatSetNearNullSpace(A, modes));
      for (int repeat = 0; repeat < 2; repeat++) { /* these values again keep what fits */
        Touch(A);
        MUST(PCSetUp(pc));
        const std::string text = ViewText((PC)pc);
        CAPTURE(repeat, text);
        CHECK(Contains(text, "aggregates made anew, since they did not fit\n") == (!c.fit && !repeat && !Rank()));
        CHECK(SameBits(Applied(pc), Applied(MakePC(same, CMATCH(), options))));
      }
    }
}

TEST_CASE("cmatch: nodes on several ranks: where the modes come from", "[cmatch][nodes][ranks][pc][mpi]")
{
  for (const Body &body : {Cube(10), MakeBody({32, 30, 0})})
    for (const Layout &layout : SomeLayouts()) {
      const MatObject   A = SpreadBody(body, layout.share), with = WithModes(body, layout.share);
      const std::string of_modes  = std::to_string(body.k) + " unknowns, " + std::to_string(body.m()) + " modes: ";
      const KSPObject   near_null = MakeKSP(with, CMATCH(), kSolve), coordinates = MakeKSP(A, CMATCH(), kSolve),
                      nothing = MakeKSP(A, CMATCH(), kSolve);
      auto x                  = PartOf(A, body.x, body.A.n);
      CAPTURE(body.k, layout.name);
      for (double &value : x) value += 5; /* modes are about the mean of all ranks */
      MUST(PCSetCoordinates(PCOf(coordinates), body.k, (PetscInt)x.size() / body.k, x.data()));
      const Solution by_modes = Solve(near_null), by_coordinates = Solve(coordinates), by_constants = Solve(nothing);
      CHECK(by_modes.reason == KSP_CONVERGED_RTOL);
      CHECK(std::abs(by_coordinates.iterations - by_modes.iterations) <= 1);
      if (body.k == 3) CHECK(by_constants.iterations > by_modes.iterations + 4);
      const std::string texts[] = {ViewText((KSP)near_null), ViewText((KSP)coordinates), ViewText((KSP)nothing)};
      if (Rank()) continue;
      CHECK(Contains(texts[0], of_modes + "the near null space\n"));
      CHECK(Contains(texts[1], of_modes + "rigid body modes of the coordinates\n"));
      CHECK(Contains(texts[2], std::to_string(body.k) + " modes: the constants of each unknown\n"));
    }
  const Body      body = Cube(4);
  const MatObject A    = SpreadBody(body, Even);
  const PCObject  pc   = MakePC(A, CMATCH(), "");
  const auto      x    = PartOf(A, body.x, body.A.n);
  Errors          errors;
  const PetscInt  nodes = (PetscInt)x.size() / 3 - (Rank() ? 0 : 1);
  MUST(PCSetCoordinates(pc, 3, nodes, (PetscReal *)x.data()));
  CHECK((int)PCSetUp(pc) == (int)PETSC_ERR_ARG_SIZ); /* on all ranks */
}

TEST_CASE("cmatch: nodes on several ranks: types of matrices, signs, and parts of nodes", "[cmatch][nodes][ranks][pc][mpi][two]")
{
  const auto modulus = [](LocalInt x, LocalInt y, LocalInt z) { return Random(x + 100 * y + 10000 * z).Between(1, 3); };
  const Body body    = MakeBody({9, 9, 9, {1, 1, 1}, 0.3, modulus});
  for (const std::string &options : {std::string("-@precision double "), kWide + std::string("-@precision double ")}) {
    const MatObject A        = WithModes(body);
    const auto      expected = Applied(MakePC(A, CMATCH(), options));
    CAPTURE(options);
    CHECK(SameBits(Applied(MakePC(WithModes(body, Even, MATBAIJ), CMATCH(), options)), expected));
    CHECK(Difference(Applied(MakePC(WithModes(body, Even, MATSBAIJ), CMATCH(), options)), expected) <= 1e-12);
    const MatObject negative = WithModes(body);
    MUST(MatScale(negative, -1));
    auto opposite = expected;
    for (double &value : opposite) value = -value;
    CHECK(SameBits(Applied(MakePC(negative, CMATCH(), options)), opposite));

    /* each rank for itself, and together again */
    const PCObject pc = MakePC(A, CMATCH(), options);
    MUST(PCSetUp(pc));
    MUST(PCCMATCHSetReach(pc, PC_CMATCH_LOCAL));
    CHECK(SameBits(Applied(pc), Applied(MakePC(A, CMATCH(), options + "-@reach local"))));
    MUST(PCCMATCHSetReach(pc, PC_CMATCH_GLOBAL));
    CHECK(SameBits(Applied(pc), expected));
    MUST(PCCMATCHSetBlockSize(pc, 1));
    MUST(PCSetUp(pc));
    CHECK(!HasNodes(pc));
    MUST(PCCMATCHSetBlockSize(pc, 3));
    CHECK(SameBits(Applied(pc), expected));
  }
  /* ranks have parts of nodes: the hierarchy is one of rows */
  const Share     split = [](LocalInt n, int rank, int size) { return size == 1 ? n : rank ? Even(n - 7, rank - 1, size - 1) : 7; };
  const MatObject parts = Spread(body.A, MATAIJ, split);
  const PCObject  pc    = MakePC(parts, CMATCH(), "-@block_size 3");
  MUST(PCSetUp(pc));
  CHECK(HasNodes(pc) == (Ranks() == 1));
  CHECK(Contains(ViewText((PC)pc), "one of single rows, since ranks have parts of nodes") == (Ranks() > 1 && !Rank()));
}

TEST_CASE("cmatch: nodes on several ranks: other block sizes and other nonzeros", "[cmatch][nodes][ranks][pc][mpi][two][four]")
{
  const HostMatrix L = Poisson(24, 20);
  for (PetscInt k = 2; k <= 6; k++) {
    std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(k * L.n);
    for (LocalInt row = 0; row < k * L.n; row++) {
      for (LocalInt e = L.i[row / k]; e < L.i[row / k + 1]; e++)
        rows[row].emplace_back(k * L.j[e] + row % k, (1 + row % k) * L.a[e]);
      for (LocalInt other = row / k * k; other < row / k * k + k; other++) {
        const double value = other == row ? 0.1 * (double)(k - 1) : -0.1;
        auto         at = std::find_if(rows[row].begin(), rows[row].end(), [other](auto &entry) { return entry.first == other; });
        if (at == rows[row].end()) rows[row].emplace_back(other, value);
        else at->second += value;
      }
    }
    Body body;
    body.A = FromRows(rows);
    body.k = (LocalInt)k;
    for (const std::string &options : {std::string("-@coarse_size 40 "), std::string(kWide)}) {
      PetscInt alone = 0;
      if (!Rank()) {
        const MatObject one = CreateMat(body.A, MATAIJ);
        MUST(MatSetBlockSize(one, k));
        alone = Solve(MakeKSP(one, CMATCH(), kSolve + options)).iterations;
      }
      MPI_Bcast(&alone, 1, MPIU_INT, 0, PETSC_COMM_WORLD);
      const KSPObject ksp      = MakeKSP(SpreadBody(body, Even), CMATCH(), kSolve + options);
      const Solution  solution = Solve(ksp);
      CAPTURE(k, options, alone);
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(std::abs(solution.iterations - alone) <= 2);
      CHECK(HasNodes(PCOf(ksp)));
    }
  }
  const Body      cube = Cube(8), beam = MakeBody({64, 4, 2}); /* of as many rows */
  const MatObject A = WithModes(cube), B = WithModes(beam);
  const PCObject  pc = MakePC(A, CMATCH(), kWide);
  MUST(PCSetUp(pc));
  MUST(PCSetOperators(pc, B, B));
  CHECK(SameBits(Applied(pc), Applied(MakePC(B, CMATCH(), kWide))));

  const MatObject changed  = WithModes(cube); /* and other nonzeros in the same matrix */
  const PCObject  in_place = MakePC(changed, CMATCH(), kWide);
  MatObject       copy;
  MUST(PCSetUp(in_place));
  MUST(MatAXPY(changed, 1, B, DIFFERENT_NONZERO_PATTERN));
  AttachModes(changed, cube);
  MUST(MatDuplicate(changed, MAT_COPY_VALUES, copy.put()));
  AttachModes(copy, cube);
  MUST(PCSetUp(in_place));
  CHECK(HasNodes(in_place));
  CHECK(SameBits(Applied(in_place), Applied(MakePC(copy, CMATCH(), kWide))));
}

/* --------------------------------------------- failures --------------------------------------- */

TEST_CASE("cmatch: a bad node of one rank ends a solve on all", "[cmatch][nodes][ranks][pc][bad][mpi][two][four]")
{
  const Body   body = Cube(6);
  const double nan  = std::numeric_limits<double>::quiet_NaN();
  for (const std::string &options : {std::string("-@coarse_size 40 "), std::string(kWide), std::string(kGrouped)})
    for (const LocalInt node : {0, 100, 215}) {
      const LocalInt row  = 3 * node + 1;
      const auto     with = [&](LocalInt i, LocalInt j, double value) {
        Body bad = body;
        for (LocalInt e = bad.A.i[i]; e < bad.A.i[i + 1]; e++)
          if (bad.A.j[e] == j) bad.A.a[e] = value;
        return bad;
      };
      Body block = with(row, row + 1, 100);
      for (LocalInt e = block.A.i[row + 1]; e < block.A.i[row + 2]; e++)
        if (block.A.j[e] == row) block.A.a[e] = 100;
      const std::string at = std::to_string(row);
      const struct {
        Body        bad;
        std::string text;
      } cases[] = {{with(row, row, -1), "Row " + at + " has a diagonal entry that is not positive"},
                   {with(row, row, nan), "Row " + at + " has an entry that is not finite"},
                   {block, "Node " + std::to_string(node) + ", rows " + std::to_string(3 * node) + " to " +
                             std::to_string(3 * node + 2) + ", has a diagonal block that is not positive definite"}};
      for (const auto &c : cases) {
        const MatObject A   = WithModes(c.bad);
        const KSPObject ksp = MakeKSP(A, CMATCH(), options);
        AttachModes(A, body);
        CAPTURE(options, node, c.text);
        CHECK(Solve(ksp).reason == KSP_DIVERGED_PC_FAILED);
        CHECK(Contains(FailureOf(PCOf(ksp)), c.text));
        const MatObject good = SpreadBody(body, Even);
        MUST(MatCopy(good, A, SAME_NONZERO_PATTERN));
        if (kPCApplySetsUp) MUST(KSPSetOperators(ksp, A, A));
        CHECK(Solve(ksp).reason > 0);
      }
    }
}

TEST_CASE("cmatch: an indefinite matrix of nodes on several ranks", "[cmatch][nodes][ranks][pc][bad][mpi][two][four]")
{
  const Body body = Cube(8);
  for (const std::string &options :
       {std::string(), std::string(kWide), std::string(kGrouped), kWide + std::string("-@smoother sfsai ")})
    for (const double shift : {0.02, 0.1}) {
      const MatObject A  = WithModes(body);
      const PCObject  pc = MakePC(A, CMATCH(), options);
      CAPTURE(options, shift);
      for (int repeat = 0; repeat < 2; repeat++) { /* anew, and as a refill */
        const auto good = Applied(pc);
        MUST(MatShift(A, -shift));
        MUST(PCSetUp(pc));
        CHECK(ReasonOf(pc) == PC_FACTOR_NUMERIC_ZEROPIVOT);
        CHECK(Contains(FailureOf(pc), "evel "));
        const MatObject same = SpreadBody(body, Even);
        MUST(MatCopy(same, A, SAME_NONZERO_PATTERN));
        CHECK(SameBits(Applied(pc), good));
      }
    }
}

/* Wherever the memory of one rank ends outside of PETSc's exchanges, all ranks have an error. */
TEST_CASE("cmatch: nodes on several ranks: the memory of one rank ends", "[cmatch][nodes][ranks][pc][bad][memory][mpi][long]")
{
  if (Ranks() == 1) return;
  const Body      body = Cube(4);
  const MatObject A    = WithModes(body);
  for (const std::string &options : {std::string(kWide), std::string(kGrouped), kWide + std::string("-@smoother sfsai ")}) {
    const auto expected = Applied(MakePC(A, CMATCH(), options));
    for (const bool refill : {false, true})
      for (const int rank : {0, Ranks() - 1}) {
        bool failed = true;
        for (long n = 1; failed; n += 1 + n / 8) {
          CAPTURE(options, refill, rank, n);
          const PCObject pc = MakePC(A, CMATCH(), options);
          if (refill) MUST(PCSetUp(pc));
          Touch(A);
          failed = FailsOnAll(rank, n, [&] { return PCSetUp(pc); });
          if (n % 7 && failed) continue; /* the same object, once there is memory */
          MUST(PCSetUp(pc));
          CHECK(SameBits(Applied(pc), expected));
        }
      }
  }
}

TEST_CASE("cmatch: nodes on several ranks: what the view says", "[cmatch][nodes][ranks][pc][view][mpi]")
{
  const Body      body = Cube(12);
  const MatObject A    = WithModes(body);
  const PCObject  pc   = MakePC(A, CMATCH(), kWide);
  MUST(PCSetUp(pc));
  const std::string text     = ViewText((PC)pc);
  const auto       *H        = ((const PC_CMATCH *)((PC)pc)->data)->hierarchy;
  PetscInt          nodes[2] = {H->nodes->level[0].coarse, H->nodes->level[0].blocks}, most = H->level[0].n;
  MPI_Allreduce(MPI_IN_PLACE, nodes, 2, MPIU_INT, MPI_SUM, PETSC_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPIU_INT, MPI_MAX, PETSC_COMM_WORLD);
  if (Ranks() > 1) CHECK(LevelsOnRanks(pc) >= 2);
  if (Rank()) return;
  CAPTURE(text);
  char line[128];
  MUST(PetscSNPrintf(line, sizeof(line), "    0      1728      5184 %13.1f |", (double)nodes[1] / 1728));
  CHECK(Contains(text, line));
  MUST(PetscSNPrintf(line, sizeof(line), "    1 %9" PetscInt_FMT " %9" PetscInt_FMT " ", nodes[0], 6 * nodes[0]));
  CHECK(Contains(text, line));
  MUST(PetscSNPrintf(line, sizeof(line), "    0 %8d %19" PetscInt_FMT, Ranks(), (PetscInt)0));
  if (Ranks() > 1) CHECK(Contains(text, "level    ranks  rows a rank, least      most  ghosts a rank, most\n"));
  CHECK(Contains(text, "hierarchy of nodes with 3 unknowns, 6 modes: the near null space\n"));
  CHECK(!Contains(text, "single rows"));
}

/* ------------------------------------------- on GPUs ------------------------------------------ */

namespace
{

/* The same rows with the same modes on the GPU. */
MatObject OnDevice(const Body &body, const Share &share = Even)
{
  MatObject A = Spread(body.A, DeviceBackend().mat, InNodes(share, body.k));
  MUST(MatSetBlockSize(A, body.k));
  AttachModes(A, body);
  return A;
}

} // namespace

TEST_CASE("cmatch: nodes on several GPUs have the hierarchy of the host", "[cmatch][nodes][ranks][pc][gpu][mpi][two]")
{
  NEEDS_DEVICE();
  const auto modulus  = [](LocalInt x, LocalInt y, LocalInt z) { return Random(x + 100 * y + 10000 * z).Between(1, 2); };
  const Body bodies[] = {Cube(9), MakeBody({25, 20, 0}), Tetrahedra(7)};
  const Body others[] = {MakeBody({9, 9, 9, {1, 1, 1}, 0.3, modulus}), MakeBody({25, 20, 0, {1, 1, 1}, 0.3, modulus}), Body()};
  for (size_t k = 0; k < 3; k++)
    for (const Layout &layout : SomeLayouts())
      for (const std::string &options : {std::string(), std::string(kWide), kGrouped + std::string("-@precision double "),
                                         kWide + std::string("-@smoother sfsai -@degree 2 ")}) {
        const Body     &body   = bodies[k];
        const bool      single = !Contains(options, "double");
        const MatObject A = OnDevice(body, layout.share), B = WithModes(body, layout.share);
        const PCObject  pc = MakePC(A, CMATCH(), options), host = MakePC(B, CMATCH(), options);
        CAPTURE(k, layout.name, options);
        for (int step = 0; step < 4; step++) {
          CAPTURE(step);
          if (step == 1 && others[k].A.n) { /* new values */
            const MatObject values = SpreadBody(others[k], layout.share);
            MUST(MatCopy(values, A, SAME_NONZERO_PATTERN));
            MUST(MatCopy(values, B, SAME_NONZERO_PATTERN));
          }
          if (step == 2)
            for (const Mat matrix : {(Mat)A, (Mat)B}) MUST(MatScale(matrix, -3));
          if (step == 3)
            for (const PC reset : {(PC)pc, (PC)host}) {
              MUST(PCReset(reset));
              MUST(PCSetOperators(reset, reset == (PC)pc ? A : B, reset == (PC)pc ? A : B));
            }
          MUST(PCSetUp(pc));
          MUST(PCSetUp(host));
          CHECK(HasNodes(pc));
          CheckSameLevels(pc, host);
          const auto y = Applied(pc);
          CHECK(Difference(y, Applied(host)) <= (single ? 1e-4 : 1e-11));
          CHECK(SameBits(y, Applied(pc)));
        }
        const std::string text = ViewText((PC)pc);
        CAPTURE(text);
        if (!Rank()) CHECK((Contains(text, "backend CUDA") && !Contains(text, "single rows")));
      }
}

TEST_CASE("cmatch: nodes on several GPUs take the iterations of the host", "[cmatch][nodes][ranks][pc][gpu][mpi][two]")
{
  NEEDS_DEVICE();
  const Body bodies[] = {Cube(14), MakeBody({60, 5, 5}), MakeBody({16, 16, 16, {1, 1, 1}, 0.3, RandomCells}), MakeBody({40, 40, 0}),
                         Tetrahedra(10)};
  for (const Body &of : bodies) {
    const Body body = AlongX(of);
    for (const std::string &options : {std::string(), kWide + std::string("-@precision double "), std::string(kGrouped),
                                       kGrouped + std::string("-@smoother sfsai ")})
      for (const Layout &layout : SomeLayouts()) {
        const MatObject A = OnDevice(body, layout.share), B = WithModes(body, layout.share);
        const Solution  host = Solve(MakeKSP(B, CMATCH(), kSolve + options));
        CAPTURE(body.A.n, options, layout.name);
        for (const char *solver : {"", "-ksp_type cgfused "}) {
          const KSPObject ksp  = MakeKSP(A, CMATCH(), kSolve + (solver + options));
          const Solution  mine = Solve(ksp);
          CAPTURE(solver);
          CHECK(mine.reason == KSP_CONVERGED_RTOL);
          CHECK(mine.true_residual <= 1.05e-8);
          /* random stiff cells make norms fall unevenly, so that cgfused's other order of sums counts for more */
          const int apart = !*solver ? 0 : &of == &bodies[2] ? 3 : 1;
          CHECK(std::abs(mine.iterations - host.iterations) <= apart);
          CHECK(HasNodes(PCOf(ksp)));
        }
      }
  }
}

TEST_CASE("cmatch: nodes on several GPUs: NCCL gives the bits of MPI", "[cmatch][nodes][ranks][pc][mpi][two][gpu][nccl]")
{
  NEEDS_NCCL();
  const Body body = Cube(12), other = MakeBody({12, 12, 12, {1, 1, 1}, 0.3, [](LocalInt x, LocalInt y, LocalInt z) {
                                                  return Random(x + 100 * y + 10000 * z + 1).Between(1, 2);
                                                }});
  for (const Layout &layout : SomeLayouts())
    for (const std::string &options : {std::string(kWide), std::string(kGrouped), std::string(),
                                       kGrouped + std::string("-@precision double "), kWide + std::string("-@smoother sfsai ")}) {
      const MatObject A    = OnDevice(body, layout.share);
      const PCObject  nccl = MakePC(A, CMATCH(), options + "-@communication nccl"),
                     mpi   = MakePC(A, CMATCH(), options + "-@communication mpi");
      CAPTURE(layout.name, options);
      for (const bool changed : {false, true}) {
        if (changed) MUST(MatCopy(SpreadBody(other, layout.share), A, SAME_NONZERO_PATTERN));
        const auto y = Applied(nccl);
        CHECK(SameBits(y, Applied(mpi)));
        CHECK(SameBits(y, Applied(nccl)));
        const VecObject x = RightVec(A, 13), z = RightVec(A, 1), of_mpi = RightVec(A, 1); /* whose norm is known */
        PetscReal       norm;
        MUST(VecNorm(x, NORM_2, &norm));
        MUST(PCApply(nccl, x, z));
        MUST(PCApply(mpi, x, of_mpi));
        CHECK(SameBits(Values(z), Values(of_mpi)));
      }
      const std::string text = ViewText((PC)nccl);
      if (!Rank()) CHECK(Contains(text, "an application communicates by nccl, version "));
    }
}

TEST_CASE("cmatch: nodes on several GPUs: where modes come from, blocks, and failures",
          "[cmatch][nodes][ranks][pc][gpu][bad][mpi][two]")
{
  NEEDS_DEVICE();
  const Body cube = Cube(8);
  for (const std::string &options : {std::string(kWide), std::string(kGrouped)}) {
    CAPTURE(options);
    /* coordinates, and constants */
    const MatObject A = Spread(cube.A, DeviceBackend().mat, InNodes(Even, 3)), B = SpreadBody(cube, Even);
    for (const Mat matrix : {(Mat)A, (Mat)B}) MUST(MatSetBlockSize(matrix, 3));
    for (const bool coordinates : {false, true}) {
      const PCObject pc = MakePC(A, CMATCH(), options), host = MakePC(B, CMATCH(), options);
      auto           x = PartOf(B, cube.x, cube.A.n);
      CAPTURE(coordinates);
      if (coordinates)
        for (const PC to : {(PC)pc, (PC)host}) MUST(PCSetCoordinates(to, 3, (PetscInt)x.size() / 3, x.data()));
      MUST(PCSetUp(pc));
      MUST(PCSetUp(host));
      CHECK(HasNodes(pc));
      CheckSameLevels(pc, host);
    }
    /* a matrix of blocks */
    MatObject blocks;
    MUST(MatConvert(B, MATBAIJCUDA, MAT_INITIAL_MATRIX, blocks.put()));
    AttachModes(blocks, cube);
    const PCObject of_blocks = MakePC(blocks, CMATCH(), options), host = MakePC(WithModes(cube), CMATCH(), options);
    MUST(PCSetUp(of_blocks));
    MUST(PCSetUp(host));
    CHECK(HasNodes(of_blocks));
    CheckSameLevels(of_blocks, host);
    /* a bad row of one rank, and good ones again */
    Body bad = cube;
    for (LocalInt e = bad.A.i[301]; e < bad.A.i[302]; e++)
      if (bad.A.j[e] == 301) bad.A.a[e] = -1;
    const MatObject C = OnDevice(cube), wrong = SpreadBody(bad, Even), good = SpreadBody(cube, Even);
    const KSPObject ksp = MakeKSP(C, CMATCH(), options);
    for (int repeat = 0; repeat < 2; repeat++) {
      CHECK(Solve(ksp).reason > 0);
      MUST(MatCopy(wrong, C, SAME_NONZERO_PATTERN));
      CHECK(Solve(ksp).reason == KSP_DIVERGED_PC_FAILED);
      CHECK(Contains(FailureOf(PCOf(ksp)), "Row 301 has a diagonal entry that is not positive"));
      MUST(MatCopy(good, C, SAME_NONZERO_PATTERN));
      if (kPCApplySetsUp) MUST(KSPSetOperators(ksp, C, C));
    }
  }
}
