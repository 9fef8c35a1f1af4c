/*
   One hierarchy of PCCMATCH of all ranks: the iterations of one rank whatever the partition, Galerkin products on every level, the
   same bits each time and for a rank that has all rows, refills, null spaces, failures, and what the view says.
*/
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <sstream>

#include "covering.h"
#include "pc/cmatch/cmatch_face.h"
#include "spread.h"

namespace
{

/* Options with which small matrices have several levels on several ranks, and groups of ranks give their rows to one. */
constexpr const char *kWide    = "-@coarse_size 20 -@gather_rows 50 -@gather_ranks 0 ";
constexpr const char *kGrouped = "-@coarse_size 20 -@gather_rows 50 -@gather_ranks 200 -test_gather_factor 2 ";

/* Row number[i] of the result is row i of A. */
HostMatrix Renumbered(const HostMatrix &A, const std::vector<LocalInt> &number)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(A.n);
  for (LocalInt i = 0; i < A.n; i++) {
    auto &row = rows[number[i]];
    for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++) row.push_back({number[A.j[k]], A.a[k]});
    std::sort(row.begin(), row.end());
  }
  return FromRows(rows);
}

/* The points of a cube in the order of boxes, of which there are 1, 2, 4 or 8 for as many ranks, or else of slabs. */
HostMatrix InBoxes(const HostMatrix &A, LocalInt n)
{
  const int             parts[3] = {Ranks() % 8 ? 1 : 2, Ranks() % 4 ? 1 : 2, Ranks() % 2 ? 1 : 2};
  std::vector<LocalInt> order(A.n), number(A.n);
  std::iota(order.begin(), order.end(), 0);
  const auto box = [&](LocalInt i) {
    const LocalInt point[3] = {i % n, i / n % n, i / n / n};
    LocalInt       at       = 0;
    for (int d = 2; d >= 0; d--) at = at * parts[d] + point[d] * parts[d] / n;
    return at;
  };
  std::stable_sort(order.begin(), order.end(), [&](LocalInt i, LocalInt j) { return box(i) < box(j); });
  for (LocalInt i = 0; i < A.n; i++) number[order[i]] = i;
  return Renumbered(A, number);
}

/* Couplings by the conductivities k of the n^3 cells. */
HostMatrix WithCells(LocalInt n, const std::vector<double> &k)
{
  HostMatrix A = Poisson(n, n, n);
  for (LocalInt i = 0; i < A.n; i++) {
    double inner = 0;
    for (LocalInt e = A.i[i]; e < A.i[i + 1]; e++) {
      if (A.j[e] == i) continue;
      A.a[e] = -2 * k[i] * k[A.j[e]] / (k[i] + k[A.j[e]]);
      inner -= A.a[e];
    }
    for (LocalInt e = A.i[i]; e < A.i[i + 1]; e++)
      if (A.j[e] == i) A.a[e] = inner + k[i] * (6 - (A.i[i + 1] - A.i[i] - 1));
  }
  return A;
}

/* Couplings of c inside of cubes of `side` points and of 1 inside of the others, in turns. */
HostMatrix Checkerboard(LocalInt n, LocalInt side, double c)
{
  std::vector<double> k((size_t)n * n * n);
  for (LocalInt i = 0; i < n * n * n; i++) k[i] = (i % n / side + i / n % n / side + i / n / n / side) % 2 ? c : 1;
  return WithCells(n, k);
}

/* Cells at random that conduct so many times as well as the others. */
HostMatrix RandomCells(LocalInt n, double contrast)
{
  std::vector<double> k;
  for (LocalInt i = 0; i < n * n * n; i++) k.push_back(Random((std::uint64_t)i).Between(0, 1) < 0.3 ? contrast : 1);
  return WithCells(n, k);
}

/* A on all ranks as a matrix of this type, whose ranks have whole blocks. */
MatObject InBlocks(const HostMatrix &A, MatType type, PetscInt bs)
{
  const LocalInt  rows  = (LocalInt)bs;
  const MatObject plain = Spread(A, MATAIJ, [rows](LocalInt n, int rank, int size) { return rows * Even(n / rows, rank, size); });
  MatObject       blocks;
  MUST(MatSetBlockSize(plain, bs));
  MUST(MatConvert(plain, type, MAT_INITIAL_MATRIX, blocks.put()));
  return blocks;
}

/* CG to a true residual of 1e-8 for b = A 1. */
PetscInt Iterations(Mat A, const std::string &options)
{
  const KSPObject    ksp = MakeKSP(A, CMATCH(), "-ksp_rtol 1e-8 -ksp_norm_type unpreconditioned " + options);
  VecObject          x, b;
  PetscInt           its;
  PetscReal          norm, rest;
  KSPConvergedReason reason;
  MUST(MatCreateVecs(A, x.put(), b.put()));
  MUST(VecSet(x, 1));
  MUST(MatMult(A, x, b));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetConvergedReason(ksp, &reason));
  CHECK(reason == KSP_CONVERGED_RTOL);
  MUST(KSPGetIterationNumber(ksp, &its));
  MUST(VecNorm(b, NORM_2, &norm));
  MUST(VecScale(b, -1));
  MUST(MatMultAdd(A, x, b, b));
  MUST(VecNorm(b, NORM_2, &rest));
  CHECK(rest <= 1.05e-8 * norm);
  return its;
}

PetscInt IterationsAlone(const HostMatrix &A, const std::string &options)
{
  PetscInt its = 0;
  if (!Rank()) its = Iterations(CreateMat(A, MATAIJ), options);
  MPI_Bcast(&its, 1, MPIU_INT, 0, PETSC_COMM_WORLD);
  return its;
}

/* A as a dense matrix of all ranks. */
std::vector<double> Dense(const HostMatrix &A, PetscInt columns)
{
  std::vector<double> dense((size_t)A.n * columns, 0.);
  for (LocalInt i = 0; i < A.n; i++)
    for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++) dense[(size_t)i * columns + A.j[k]] = A.a[k];
  return dense;
}

/* The largest error of P^T A P, computed from gathered dense matrices, relative to the largest entry of each operator. */
double ErrorOfGalerkin(const Levels &levels)
{
  double worst = 0;
  for (size_t l = 0; l + 1 < levels.A.size(); l++) {
    const HostMatrix    A = Gathered(levels.A[l]), P = Gathered(levels.P[l]), C = Gathered(levels.A[l + 1]);
    std::vector<double> product((size_t)C.n * C.n, 0.);
    for (LocalInt i = 0; i < A.n; i++)
      for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++)
        for (LocalInt p = P.i[i]; p < P.i[i + 1]; p++)
          for (LocalInt q = P.i[A.j[k]]; q < P.i[A.j[k] + 1]; q++)
            product[(size_t)P.j[p] * C.n + P.j[q]] += P.a[p] * A.a[k] * P.a[q];
    const auto expected = Dense(C, C.n);
    worst               = std::max(worst, Difference(product, expected));
  }
  return worst;
}

/* A vector of all ranks with these entries. */
VecObject Distributed(Mat A, const std::vector<double> &values)
{
  VecObject    x;
  PetscInt     first, end;
  PetscScalar *array;
  MUST(MatCreateVecs(A, x.put(), nullptr));
  MUST(VecGetOwnershipRange(x, &first, &end));
  MUST(VecGetArrayWrite(x, &array));
  std::copy(values.begin() + first, values.begin() + end, array);
  MUST(VecRestoreArrayWrite(x, &array));
  return x;
}

void Attach(Mat A, PetscErrorCode (*attach)(Mat, MatNullSpace), Vec vec)
{
  MatNullSpace space;
  MUST(MatNullSpaceCreate(PetscObjectComm((PetscObject)A), PETSC_FALSE, 1, &vec, &space));
  MUST(attach(A, space));
  MUST(MatNullSpaceDestroy(&space));
}

std::vector<double> Weights(LocalInt n)
{
  std::vector<double> w(n);
  Random              random(71);
  double              sum = 0;
  for (double &value : w) value = random.Between(0.5, 2);
  for (double value : w) sum += value * value;
  for (double &value : w) value /= std::sqrt(sum);
  return w;
}

/* W^{-1} A W^{-1}, whose null space has w if that of A has the ones */
HostMatrix Unscaled(HostMatrix A, const std::vector<double> &w)
{
  const double unit = (double)A.n; /* W is about 1 / sqrt(n) */
  for (LocalInt i = 0; i < A.n; i++)
    for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++) A.a[k] /= unit * w[i] * w[A.j[k]];
  return A;
}

} // namespace

/* ----------------------------------------- iterations ----------------------------------------- */

TEST_CASE("cmatch on several ranks takes the iterations of one", "[cmatch][ranks][pc][mpi][two][four][eight]")
{
  constexpr LocalInt n = 24;
  struct Case {
    const char *name;
    HostMatrix  A;
  };
  const std::vector<Case> cases = {{"Poisson", Poisson(n, n, n)},
                                   {"Poisson in boxes", InBoxes(Poisson(n, n, n), n)},
                                   {"jumps", Checkerboard(n, 5, 1e4)},
                                   {"jumps in boxes", InBoxes(Checkerboard(n, 5, 1e4), n)},
                                   {"Poisson in 2D", Poisson(130, 110)}};
  for (const Case &c : cases) {
    const PetscInt one = IterationsAlone(c.A, "");
    for (const Layout &layout : Layouts())
      for (const char *options :
           {"", "-@gather_rows 500 -@gather_ranks 0", "-@gather_rows 500 -@gather_ranks 400 -test_gather_factor 2", "-ksp_type fcg",
            "-ksp_type cgfused"}) {
        CAPTURE(c.name, layout.name, options);
        if (*options && layout.name != Layouts()[0].name) continue;
        /* Slabs of 3 planes whose rows come together late are not as good. */
        const PetscInt more = Ranks() > 4 && Contains(options, "gather") ? 2 : 1;
        CHECK(Iterations(Spread(c.A, MATAIJ, layout.share), options) <= one + more);
      }
  }
}

/* Short rows are gathered where as many nonzeros are, rows of 80 nonzeros where as many rows are. */
TEST_CASE("cmatch on several ranks: levels are gathered by their nonzeros", "[cmatch][ranks][pc][mpi][four]")
{
  if (Ranks() == 1) return;
  const auto several = [](const HostMatrix &H, const std::string &options) {
    const PCObject pc = MakePC(Spread(H, MATAIJ, Even), CMATCH(), options + " -@coarse_size 20 -@gather_ranks 0");
    MUST(PCSetUp(pc));
    return ((const PC_CMATCH *)((PC)pc)->data)->hierarchy->several;
  };
  const HostMatrix plane = Poisson(130, 110), cube = Poisson(24, 24, 24); /* with about 1500 rows on the second level */
  CHECK(several(plane, "-@gather_rows 1100") == 1);
  CHECK(several(plane, "-@gather_rows 500") > 1);
  CHECK(several(cube, "-@gather_rows 1100") > 1);
  CHECK(several(cube, "-@gather_rows 2200") == 1);
  CHECK(several(plane, "-@gather_rows 1100 -@coarsening mis2") > 1); /* which does not know nonzeros before */
}

/* ---------------------------------------- the matrices ---------------------------------------- */

TEST_CASE("cmatch on several ranks: the operators are Galerkin products", "[cmatch][ranks][pc][hierarchy][mpi][slow]")
{
  const std::vector<double> w       = Weights(1500);
  const std::string         cases[] = {"", "-@coarsening mis2", "-@sweeps 2 -@prolongator_row 64"};
  for (const Layout &layout : Layouts()) {
    const bool first = layout.name == Layouts()[0].name; /* one in several is enough for the others */
    for (const auto &[options, gathering, precision] :
         first ? Covering(cases,
                          std::vector{kWide, kGrouped, "-@coarse_size 20 ", "-@coarse_size 400 -@gather_rows 0 ",
                                      "-@coarse_size 2048 "},
                          std::vector{"single", "double"})
               : Covering(cases, std::vector{kWide}, std::vector{"single"})) {
      const bool with_w = *precision == 'd'; /* one in two is enough */
      CAPTURE(layout.name, gathering, options, precision);
      const HostMatrix plain = Diffusion(50, 30, true, 30), H = with_w ? Unscaled(plain, w) : plain;
      const MatObject  A    = Spread(H, MATAIJ, layout.share);
      const double     unit = *precision == 's' ? 2e-6 : 1e-13;
      if (with_w) Attach(A, MatSetNearNullSpace, Distributed(A, w));
      const PCObject pc = MakePC(A, CMATCH(), options + " " + gathering + "-@precision " + precision);
      MUST(PCSetUp(pc));
      const Levels     levels = LevelsOf(pc);
      const HostMatrix finest = Gathered(levels.A[0]);
      CHECK(Difference(Dense(finest, H.n), Dense(H, H.n)) <= unit);
      CHECK(ErrorOfGalerkin(levels) <= unit);
      if (Contains(gathering, "coarse_size 20 ")) CHECK(Gathered(levels.A.back()).n <= 20);
    }
  }
}

TEST_CASE("cmatch of a rank that has all rows is that of one rank", "[cmatch][ranks][pc][mpi]")
{
  for (int owner = 0; owner < Ranks(); owner++)
    for (const char *options : {"", "-@coarse_size 20 -@gather_rows 0", "-@coarsening mis2 -@smoother chebyshev -@degree 2",
                                "-@smoother sfsai -@coarse_size 20 -@gather_rows 0",
                                "-@smoother afsai -@degree 2 -@precision double", "-@precision double -@coarse_size 2048"})
      for (const HostMatrix &H : {Diffusion(50, 30, true, 31), Poisson(9, 9)}) {
        CAPTURE(owner, options, H.n);
        const MatObject A  = Spread(H, MATAIJ, [owner](LocalInt n, int rank, int) { return rank == owner ? n : 0; });
        const PCObject  pc = MakePC(A, CMATCH(), options), alone = MakePC(CreateMat(H, MATAIJ), CMATCH(), options);
        const auto      mine = Applied(pc), expected = Applied(alone);
        if (Rank() == owner) CHECK(SameBits(mine, expected));
      }
}

TEST_CASE("cmatch on several ranks has the same bits each time", "[cmatch][ranks][pc][mpi][two][four][eight]")
{
  for (const Layout &layout : Layouts())
    for (const std::string &options : {std::string(kWide), std::string(kGrouped), kWide + std::string("-@smoother sfsai"),
                                       kGrouped + std::string("-@smoother afsai"), std::string()}) {
      CAPTURE(layout.name, options);
      std::vector<double> first;
      for (int repeat = 0; repeat < 3; repeat++) {
        const MatObject A  = Spread(RandomStencil(12, 10, 9, false, 3), MATAIJ, layout.share);
        const PCObject  pc = MakePC(A, CMATCH(), options);
        const auto      y  = Applied(pc);
        if (!repeat) first = y;
        CHECK(SameBits(y, first));
      }
    }
}

/* ---------------------------------------- the smoothers --------------------------------------- */

namespace
{

/* A vector of a level, which is in single or in double precision */
std::vector<double> InDouble(const CMATCHHierarchy *H, const void *from, size_t n)
{
  std::vector<double> values(n);
  for (size_t i = 0; i < n; i++)
    values[i] = H->params.precision == FINEPC_SINGLE ? ((const float *)from)[i] : ((const double *)from)[i];
  return values;
}

double Value(const CSR &W, LocalInt k)
{
  return W.precision == FINEPC_SINGLE ? ((const float *)W.a)[k] : ((const double *)W.a)[k];
}

/* y = M^{-1} x with the factor of a level on the host */
void ApplyFactor(const CMATCHHierarchy *H, const CMATCHLevel &level, const std::vector<double> &x, std::vector<double> *y)
{
  const CSR &W = level.factor.W, &Wt = level.factor.Wt;
  const auto d = InDouble(H, level.factor.d, level.n);
  *y           = x;
  for (LocalInt i = 0; i < level.n; i++) {
    for (LocalInt k = W.i[i]; k < W.i[i + 1]; k++) (*y)[i] += Value(W, k) * x[W.j[k]];
    (*y)[i] *= d[i];
  }
  for (LocalInt i = 0; i < level.n; i++)
    for (LocalInt k = Wt.i[i]; k < Wt.i[i + 1]; k++) (*y)[i] += Value(Wt, k) * (*y)[Wt.j[k]];
}

/* The largest eigenvalue of M^{-1} A on a level of all ranks, by the power method. A is not scaled as the hierarchy is. */
double LargestEigenvalue(const CMATCHHierarchy *H, LocalInt l, Mat A)
{
  VecObject   x, y;
  PetscReal   norm = 0;
  PetscRandom random;
  MUST(MatCreateVecs(A, x.put(), y.put()));
  MUST(PetscRandomCreate(PETSC_COMM_WORLD, &random));
  MUST(VecSetRandom(x, random));
  MUST(PetscRandomDestroy(&random));
  for (int step = 0; step < 80; step++) {
    const PetscScalar  *product;
    PetscScalar        *to;
    std::vector<double> result;
    PetscInt            n;
    MUST(VecNormalize(x, &norm));
    MUST(MatMult(A, x, y));
    MUST(VecGetLocalSize(y, &n));
    MUST(VecGetArrayRead(y, &product));
    std::vector<double> residual(product, product + n);
    MUST(VecRestoreArrayRead(y, &product));
    for (double &value : residual) value *= H->scale;
    if (l < H->levels) ApplyFactor(H, H->level[l], residual, &result);
    MUST(VecGetArrayWrite(x, &to));
    std::copy(result.begin(), result.end(), to);
    MUST(VecRestoreArrayWrite(x, &to));
  }
  return norm;
}

} // namespace

/*
   The factors are those of the ranks' blocks, but their scale is that of M^{-1} and the whole of A: its largest eigenvalue is just
   below 1, and the product of d and psi, which the rows of the factor give, is the same on all ranks.
*/
TEST_CASE("cmatch on several ranks: factored smoothers are scaled for all of them", "[cmatch][ranks][pc][smoothers][mpi]")
{
  for (const Layout &layout : Layouts())
    for (const char *smoother : {"sfsai", "afsai"})
      for (const std::string &gathering : {std::string(kWide), std::string(kGrouped)}) {
        CAPTURE(layout.name, smoother, gathering);
        if (layout.name != Layouts()[0].name && gathering != kWide) continue; /* one in several is enough */
        const HostMatrix H  = Diffusion(30, 25, true, 52);
        const MatObject  A  = Spread(H, MATAIJ, layout.share);
        const PCObject   pc = MakePC(A, CMATCH(), gathering + "-@precision double -@smoother " + smoother);
        MUST(PCSetUp(pc));
        const CMATCHHierarchy *hierarchy = ((const PC_CMATCH *)((PC)pc)->data)->hierarchy;
        const Levels           levels    = LevelsOf(pc);
        int                    several   = hierarchy->several;
        MPI_Allreduce(MPI_IN_PLACE, &several, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
        for (LocalInt l = 0; l < several; l++) {
          CAPTURE(l);
          const double largest = LargestEigenvalue(hierarchy, l, levels.A[l]);
          CHECK(largest < 1);
          CHECK(largest > 0.8);
          if (*smoother != 's' || l >= hierarchy->several) continue;
          /* psi_i = a_ii + sum_k w_ik a_ki, since (I + W) A is 0 elsewhere in the pattern */
          const CMATCHLevel &level = hierarchy->level[l];
          const CSR         &W     = level.factor.W;
          const auto         d = InDouble(hierarchy, level.factor.d, level.n), diagonal = InDouble(hierarchy, level.d, level.n),
                     a       = InDouble(hierarchy, level.A_a, level.nnz);
          double extremes[2] = {-1e300, -1e300};
          for (LocalInt i = 0; i < level.n; i++) {
            double psi = diagonal[i];
            for (LocalInt k = W.i[i]; k < W.i[i + 1]; k++)
              for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1]; e++)
                if (level.A_j[e] == W.j[k]) psi += Value(W, k) * a[e];
            extremes[0] = std::max(extremes[0], d[i] * psi);
            extremes[1] = std::max(extremes[1], -d[i] * psi);
          }
          MPI_Allreduce(MPI_IN_PLACE, extremes, 2, MPI_DOUBLE, MPI_MAX, l ? PETSC_COMM_SELF : PETSC_COMM_WORLD);
          if (level.n) CHECK(extremes[0] + extremes[1] <= 1e-10 * extremes[0]);
        }
      }
}

TEST_CASE("cmatch on several ranks: iterations with factored smoothers", "[cmatch][ranks][pc][smoothers][mpi][four][eight]")
{
  constexpr LocalInt n = 15;
  struct Case {
    const char *name;
    HostMatrix  A;
  };
  for (const Case &c : {Case{"Poisson", Poisson(n, n, n)}, Case{"jumps", Checkerboard(n, 5, 1e4)}, Case{"plane", Poisson(60, 50)}})
    for (const std::string &smoother :
         {std::string("-@smoother sfsai "), std::string("-@smoother afsai "), std::string("-@smoother sfsai -@degree 3 ")}) {
      const PetscInt one = IterationsAlone(c.A, smoother);
      for (const char *options : {"", "-@gather_rows 200 -@gather_ranks 0",
                                  "-@gather_rows 200 -@gather_ranks 100 -test_gather_factor 2 -ksp_type fcg", "-ksp_type cgfused"})
        for (const Layout &layout : Layouts()) {
          CAPTURE(c.name, smoother, options, layout.name, one);
          if (*options && layout.name != Layouts()[0].name) continue;
          CHECK(Iterations(Spread(c.A, MATAIJ, layout.share), smoother + options) <= one + 3);
        }
    }
}

/* Rows of the boundary that keep their diagonal entry alone are solved exactly, although other ranks are coupled to them. */
TEST_CASE("cmatch on several ranks: factored smoothers and rows of the boundary", "[cmatch][ranks][pc][smoothers][mpi]")
{
  for (const char *smoother : {"-@smoother sfsai", "-@smoother afsai"})
    for (const bool both : {true, false}) { /* columns, too */
      CAPTURE(smoother, both);
      HostMatrix A = Poisson(40, 40);
      for (LocalInt i = 0; i < A.n; i++)
        for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++) {
          const auto cleared = [&](LocalInt row) { return row / 40 % 5 == 0 && row % 3 == 0; };
          if (A.j[k] == i) continue;
          if (cleared(i) || (both && cleared(A.j[k]))) A.a[k] = 0;
        }
      const PetscInt one = IterationsAlone(A, smoother);
      for (const Layout &layout : Layouts()) CHECK(Iterations(Spread(A, MATAIJ, layout.share), smoother) <= one + 3);
    }
}

/* ---------------------------------------- other uses ------------------------------------------ */

TEST_CASE("cmatch on several ranks: new values", "[cmatch][ranks][pc][mpi][two]")
{
  for (const Layout &layout : Layouts())
    for (const std::string &options :
         {std::string(kWide), std::string(kGrouped), kWide + std::string("-@coarsening mis2"),
          kWide + std::string("-@smoother sfsai"), kGrouped + std::string("-@smoother sfsai -@degree 2"), std::string()}) {
      CAPTURE(layout.name, options);
      const HostMatrix H  = Diffusion(50, 30, true, 32);
      const MatObject  A  = Spread(H, MATAIJ, layout.share);
      const PCObject   pc = MakePC(A, CMATCH(), options), fresh = MakePC(A, CMATCH(), options + " -@reuse_pattern false");
      const auto       first = Applied(pc);
      Touch(A);
      CHECK(SameBits(Applied(pc), first)); /* the same values */
      CHECK(Contains(ViewText((PC)pc), CMATCH().kept) == !Rank());
      SetValues(A, Changed(Blocks(H), 5));
      MUST(PCSetUp(pc));
      CHECK(ErrorOfGalerkin(LevelsOf(pc)) <= 2e-6);
      const auto changed = Applied(pc);
      CHECK((first.empty() || !SameBits(changed, first)));
      SetValues(A, Blocks(H)); /* and back */
      CHECK(SameBits(Applied(pc), first));
      CHECK(SameBits(Applied(fresh), first));
      MUST(PCCMATCHSetStrength(pc, 0.2)); /* another option makes all anew */
      MUST(PCCMATCHSetStrength(pc, 0.1));
      CHECK(SameBits(Applied(pc), first));
      MUST(PCReset(pc));
      MUST(PCSetOperators(pc, A, A));
      CHECK(SameBits(Applied(pc), first));
    }
}

TEST_CASE("cmatch on several ranks: a frozen hierarchy stays, and a set-up follows when it is free again",
          "[cmatch][ranks][pc][mpi]")
{
  for (const Layout &layout : Layouts())
    for (const std::string &options : {std::string(kWide), kGrouped + std::string("-@smoother sfsai "), std::string()}) {
      CAPTURE(layout.name, options);
      const HostMatrix H        = Diffusion(50, 30, true, 38);
      const MatObject  A        = Spread(H, MATAIJ, layout.share);
      const KSPObject  ksp      = MakeKSP(A, CMATCH(), "-ksp_type cg -ksp_norm_type unpreconditioned " + options);
      const PCObject   refilled = MakePC(A, CMATCH(), options);
      CHECK(Solve(ksp).reason == KSP_CONVERGED_RTOL);
      const auto before = Applied(PCOf(ksp));
      CHECK(SameBits(Applied(refilled), before));
      MUST(KSPSetReusePreconditioner(ksp, PETSC_TRUE));
      SetValues(A, Changed(Blocks(H), 6));
      const Traffic frozen = TrafficOf([&] { MUST(KSPSetUp(ksp)); });
      CHECK(frozen.gatherings + frozen.reductions == 0);
      const Solution solution = Solve(ksp);
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(solution.true_residual <= 2e-8);
      CHECK(SameBits(Applied(PCOf(ksp)), before));
      MUST(KSPSetReusePreconditioner(ksp, PETSC_FALSE));
      CHECK(Solve(ksp).reason == KSP_CONVERGED_RTOL);
      MUST(PCSetUp(refilled));
      const auto after = Applied(PCOf(ksp));
      CHECK(SameBits(after, Applied(refilled)));
      if (!before.empty()) CHECK(!SameBits(after, before));
    }
}

TEST_CASE("cmatch on several ranks and back to the rank's block", "[cmatch][ranks][pc][mpi]")
{
  const MatObject A  = Spread(Diffusion(50, 30, true, 33), MATAIJ, Even);
  const PCObject  pc = MakePC(A, CMATCH(), kWide), local = MakePC(A, CMATCH(), kWide + std::string("-@reach local"));
  const auto      global = Applied(pc), of_block = Applied(local);
  CHECK(SameBits(global, of_block) == (Ranks() == 1));
  for (int repeat = 0; repeat < 2; repeat++) {
    MUST(PCCMATCHSetReach(pc, PC_CMATCH_LOCAL));
    CHECK(SameBits(Applied(pc), of_block));
    CHECK(Contains(ViewText((PC)pc), "block-local") == (Ranks() > 1 && !Rank()));
    MUST(PCCMATCHSetReach(pc, PC_CMATCH_GLOBAL));
    CHECK(SameBits(Applied(pc), global));
    CHECK(!Contains(ViewText((PC)pc), "block-local"));
  }
}

/* The single entries of blocks are those of a matrix without blocks. */
TEST_CASE("cmatch on several ranks: matrices of blocks", "[cmatch][ranks][pc][mpi]")
{
  const HostMatrix H = Diffusion(50, 30, true, 38);
  for (const auto &[type, bs] : std::vector<std::pair<MatType, PetscInt>>{{MATBAIJ, 1},
                                                                          {MATBAIJ, 2},
                                                                          {MATBAIJ, 3},
                                                                          {MATBAIJ, 4},
                                                                          {MATBAIJCUDA, 2},
                                                                          {MATSBAIJ, 2},
                                                                          {MATSBAIJ, 3}})
    for (const std::string &options : {std::string(kWide), std::string(kGrouped), std::string("-@reach local")}) {
      CAPTURE(type, bs, options);
      const MatObject plain = InBlocks(H, MATAIJ, bs);
      MatObject       blocks, entries;
      MUST(MatSetOption(plain, MAT_SYMMETRIC, PETSC_TRUE)); /* MATSBAIJ asks for symmetry. */
      MUST(MatConvert(plain, type, MAT_INITIAL_MATRIX, blocks.put()));
      MUST(MatBindToCPU(blocks, PETSC_TRUE));
      MUST(MatConvert(blocks, MATAIJ, MAT_INITIAL_MATRIX, entries.put()));
      const PCObject pc = MakePC(blocks, CMATCH(), options), expected = MakePC(entries, CMATCH(), options);
      CHECK(SameBits(Applied(pc), Applied(expected)));
      for (const MatObject *A : {&blocks, &entries}) {
        MUST(MatScale(*A, 3));
        MUST(MatShift(*A, 0.25));
      }
      CHECK(SameBits(Applied(pc), Applied(expected)));
      CHECK(Contains(ViewText((PC)pc), CMATCH().kept) == !Rank());
      CHECK(Contains(ViewText((PC)pc), "block-local") == (Ranks() > 1 && !Rank() && Contains(options, "local")));
      for (const PCCMATCHReach reach : {PC_CMATCH_LOCAL, PC_CMATCH_GLOBAL}) {
        MUST(PCCMATCHSetReach(pc, reach));
        MUST(PCCMATCHSetReach(expected, reach));
        CHECK(SameBits(Applied(pc), Applied(expected)));
      }
      MUST(PCReset(pc));
      MUST(PCSetOperators(pc, blocks, blocks));
      MUST(PCReset(expected));
      MUST(PCSetOperators(expected, entries, entries));
      MUST(PCCMATCHSetReach(pc, PC_CMATCH_LOCAL));
      MUST(PCCMATCHSetReach(expected, PC_CMATCH_LOCAL));
      CHECK(SameBits(Applied(pc), Applied(expected)));
    }
}

/* Of a block on the diagonal of a MATSBAIJ the upper triangle counts, whatever a program has put into the lower one. */
TEST_CASE("cmatch on several ranks: lower triangles of symmetric blocks", "[cmatch][ranks][pc][mpi]")
{
  const MatObject plain = InBlocks(Diffusion(50, 30, true, 38), MATAIJ, 3);
  MatObject       A, B;
  PetscInt        begin, end;
  MUST(MatSetOption(plain, MAT_SYMMETRIC, PETSC_TRUE));
  MUST(MatConvert(plain, MATSBAIJ, MAT_INITIAL_MATRIX, A.put()));
  MUST(MatConvert(plain, MATSBAIJ, MAT_INITIAL_MATRIX, B.put()));
  const PCObject pc = MakePC(B, CMATCH(), kWide), expected = MakePC(A, CMATCH(), kWide);
  CHECK(SameBits(Applied(pc), Applied(expected)));
  MUST(MatGetOwnershipRange(B, &begin, &end));
  for (PetscInt row = begin; row < end; row++)
    if (row % 3) MUST(MatSetValue(B, row, row - 1, -0.001, INSERT_VALUES));
  MUST(MatAssemblyBegin(B, MAT_FINAL_ASSEMBLY));
  MUST(MatAssemblyEnd(B, MAT_FINAL_ASSEMBLY));
  CHECK(SameBits(Applied(pc), Applied(expected)));
  const PCObject anew = MakePC(B, CMATCH(), kWide);
  CHECK(SameBits(Applied(anew), Applied(expected)));
}

/* New nonzeros between two set-ups, of which one is block-local, so that the entries of other ranks are copied anew. */
TEST_CASE("cmatch on several ranks: matrices of blocks with new nonzeros", "[cmatch][ranks][pc][mpi]")
{
  for (const PCCMATCHReach between : {PC_CMATCH_LOCAL, PC_CMATCH_GLOBAL}) {
    const MatObject blocks = InBlocks(Diffusion(50, 30, true, 38), MATBAIJ, 2);
    const MatObject more   = InBlocks(RandomStencil(15, 10, 10, false, 3), MATBAIJ, 2);
    const PCObject  pc     = MakePC(blocks, CMATCH(), kWide);
    MUST(PCSetUp(pc));
    MUST(PCCMATCHSetReach(pc, between));
    MUST(PCSetOperators(pc, more, more));
    MUST(PCSetUp(pc));
    MUST(PCCMATCHSetReach(pc, PC_CMATCH_GLOBAL));
    CHECK(SameBits(Applied(pc), Applied(MakePC(more, CMATCH(), kWide))));
  }
}

TEST_CASE("cmatch on several ranks: singular systems with their null space", "[cmatch][ranks][pc][null][mpi][four]")
{
  const std::vector<double> w = Weights(2700);
  for (const Layout &layout : Layouts())
    for (const std::string &options :
         {std::string(kWide), std::string(kGrouped), std::string("-@precision double "), std::string()})
      for (bool with_w : {false, true}) {
        CAPTURE(layout.name, options, with_w);
        const HostMatrix plain = Diffusion(60, 45, false, 34);
        const MatObject  A     = Spread(with_w ? Unscaled(plain, w) : plain, MATAIJ, layout.share);
        if (with_w) Attach(A, MatSetNullSpace, Distributed(A, w));
        else SetConstantsNull(A);
        const KSPObject   ksp      = MakeKSP(A, CMATCH(), "-ksp_norm_type unpreconditioned " + options);
        const Solution    solution = Solve(ksp);
        const std::string text     = ViewText((KSP)ksp);
        CHECK(solution.reason == KSP_CONVERGED_RTOL);
        CHECK(solution.true_residual <= 2e-8);
        CHECK(solution.iterations <= 35);
        if (!Rank()) CHECK(Contains(text, "in the complement of the null space"));
        if (!Rank())
          CHECK(
            Contains(text, with_w ? "near null vector: the first vector of the null space" : "near null vector: the constants"));
      }
}

/* Two squares whose walls hold, and closed chains before, between and behind their rows, with the first row and the size of each */
static HostMatrix Pockets(std::vector<std::pair<LocalInt, LocalInt>> *chains = nullptr)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows;
  const auto                                                 chain = [&](LocalInt size) {
    const LocalInt first = (LocalInt)rows.size();
    if (chains) chains->emplace_back(first, size);
    for (LocalInt k = 0; k < size; k++) {
      rows.push_back({{first + k, 0.37 * ((k > 0) + (k + 1 < size))}});
      if (k > 0) rows.back().push_back({first + k - 1, -0.37});
      if (k + 1 < size) rows.back().push_back({first + k + 1, -0.37});
    }
  };
  const auto square = [&](LocalInt n) {
    const LocalInt   first = (LocalInt)rows.size();
    const HostMatrix A     = Poisson(n, n);
    for (LocalInt i = 0; i < A.n; i++) {
      rows.emplace_back();
      for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++) rows.back().push_back({first + A.j[k], A.a[k]});
    }
  };
  chain(2);
  chain(9);
  square(20);
  for (LocalInt size : {3, 5, 8, 35}) chain(size);
  square(19);
  chain(20);
  chain(2);
  for (auto &row : rows) std::sort(row.begin(), row.end());
  return FromRows(rows);
}

/* Iterations of a solve for a right-hand side in the range of A. */
static Solution SolveInRange(Mat A, const std::string &options)
{
  const KSPObject ksp = MakeKSP(A, CMATCH(), "-ksp_rtol 1e-8 -ksp_norm_type unpreconditioned " + options);
  VecObject       x, b;
  PetscInt        first, end;
  PetscReal       norm, rest;
  Solution        solution{};
  MUST(MatCreateVecs(A, x.put(), b.put()));
  MUST(VecGetOwnershipRange(x, &first, &end));
  for (PetscInt i = first; i < end; i++) MUST(VecSetValue(x, i, std::sin(1. + (double)i * (double)(i % 7)), INSERT_VALUES));
  MUST(VecAssemblyBegin(x));
  MUST(VecAssemblyEnd(x));
  MUST(MatMult(A, x, b));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetConvergedReason(ksp, &solution.reason));
  MUST(KSPGetIterationNumber(ksp, &solution.iterations));
  MUST(VecNorm(b, NORM_2, &norm));
  MUST(VecScale(b, -1));
  MUST(MatMultAdd(A, x, b, b));
  MUST(VecNorm(b, NORM_2, &rest));
  solution.true_residual = rest / norm;
  return solution;
}

TEST_CASE("cmatch on several ranks: singular components, and almost singular matrices",
          "[cmatch][ranks][pc][null][components][mpi]")
{
  HostMatrix almost = Diffusion(44, 44, false, 34);
  for (LocalInt i = 0; i < almost.n; i++)
    for (LocalInt k = almost.i[i]; k < almost.i[i + 1]; k++)
      if (almost.j[k] == i) almost.a[k] += 1e-11;
  for (const Backend &backend : Backends())
    for (const Layout &layout : Layouts())
      for (const std::string &options :
           {std::string(kWide), std::string(kGrouped), std::string("-@precision double "), std::string(),
            std::string("-@coarse pcg -ksp_type fcg "), std::string("-@smoother sfsai ")}) {
        CAPTURE(backend.name, layout.name, options);
        for (const HostMatrix &H : {Pockets(), almost}) {
          const MatObject A        = Spread(H, backend.mat, layout.share);
          const Solution  solution = SolveInRange(A, options);
          CHECK(solution.reason == KSP_CONVERGED_RTOL);
          CHECK(solution.true_residual <= 2e-8);
          CHECK(solution.iterations <= 40);
        }
      }
}

/* The norm is that of the residual, since the preconditioned one does not come to 1e-8 for rounding. */
TEST_CASE("cmatch on several ranks: jumps, and random stiff or soft cells", "[cmatch][ranks][pc][components][mpi]")
{
  const std::vector<HostMatrix> matrices = {Checkerboard(12, 5, 1e9), Checkerboard(12, 5, 1e-9), RandomCells(12, 1e6),
                                            RandomCells(12, 1e-6)};
  for (const Backend &backend : Backends())
    for (const Layout &layout : Layouts())
      for (const std::string &options : {std::string(kWide), std::string(kGrouped), std::string("-@precision double ")})
        for (size_t k = 0; k < matrices.size(); k++) {
          CAPTURE(backend.name, layout.name, options, k);
          const MatObject A        = Spread(matrices[k], backend.mat, layout.share);
          const Solution  solution = SolveInRange(A, options + "-ksp_norm_type unpreconditioned ");
          CHECK(solution.reason == KSP_CONVERGED_RTOL);
          CHECK(solution.true_residual <= 2e-8);
          CHECK(solution.iterations <= 90);
        }
}

/* Each vector of the null space is 1 on one chain, and 0 elsewhere. */
TEST_CASE("cmatch on several ranks: singular components whose null vectors are attached",
          "[cmatch][ranks][pc][null][components][mpi]")
{
  std::vector<std::pair<LocalInt, LocalInt>> chains;
  const HostMatrix                           H = Pockets(&chains);
  REQUIRE(chains.size() == 8);
  const std::vector<std::string> options = {kWide, kGrouped, "-@precision double ", "", "-@smoother sfsai "};
  const std::vector<PetscInt>    counts  = {1, 8}; /* the longest chain alone, or all of them */
  std::swap(chains[0], *std::max_element(chains.begin(), chains.end(), [](auto x, auto y) { return x.second < y.second; }));
  for (const auto &[backend, layout, choice, vectors] : Covering(Backends(), Layouts(), options, counts)) {
    CAPTURE(backend.name, layout.name, choice, vectors);
    const MatObject        A = Spread(H, backend.mat, layout.share);
    MatNullSpace           space;
    std::vector<VecObject> objects;
    std::vector<Vec>       ones;
    for (PetscInt k = 0; k < vectors; k++) {
      std::vector<double> indicator(H.n, 0.);
      for (LocalInt i = 0; i < chains[k].second; i++) indicator[chains[k].first + i] = 1 / std::sqrt(chains[k].second);
      objects.push_back(Distributed(A, indicator));
      ones.push_back(objects.back());
    }
    MUST(MatNullSpaceCreate(PETSC_COMM_WORLD, PETSC_FALSE, vectors, ones.data(), &space));
    PetscBool fits;
    MUST(MatNullSpaceTest(space, A, &fits));
    CHECK(fits);
    MUST(MatSetNullSpace(A, space));
    MUST(MatNullSpaceDestroy(&space));
    const Solution solution = SolveInRange(A, choice);
    CHECK(solution.reason == KSP_CONVERGED_RTOL);
    CHECK(solution.true_residual <= 2e-8);
    CHECK(solution.iterations <= 40);
  }
}

/* Couplings at random, of one sign, and a multiple of the identity that is of the size of rounding or below it. */
TEST_CASE("cmatch on several ranks: almost singular graphs", "[cmatch][ranks][pc][null][components][mpi]")
{
  for (const auto &[backend, layout, options, shift, length] :
       Covering(Backends(), Layouts(), std::vector<std::string>{kWide, kGrouped, "-@precision double ", ""},
                std::vector<double>{1e-5, 1e-9, 1e-12}, std::vector<LocalInt>{5, 9})) {
    CAPTURE(backend.name, layout.name, options, shift, length);
    HostMatrix H = RandomGraph(900, length, 37);
    for (LocalInt i = 0; i < H.n; i++) {
      double   sum = shift;
      LocalInt at  = -1;
      for (LocalInt k = H.i[i]; k < H.i[i + 1]; k++) {
        if (H.j[k] == i) at = k;
        else H.a[k] = -std::fabs(H.a[k]);
        if (H.j[k] != i) sum -= H.a[k];
      }
      REQUIRE(at >= 0);
      H.a[at] = sum;
    }
    const MatObject A        = Spread(H, backend.mat, layout.share);
    const Solution  solution = SolveInRange(A, options);
    CHECK(solution.reason == KSP_CONVERGED_RTOL);
    CHECK(solution.true_residual <= 2e-8);
    /* In single precision a shift that it cannot see makes the cycle a weaker one, but no set-up fails. */
    CHECK(solution.iterations <= (shift > 1e-10 || Contains(options, "double") ? 75 : 1000)); /* 58 and 744 on one rank */
  }
}

TEST_CASE("cmatch on several ranks: zeros of the near null vector are counted on all of them", "[cmatch][ranks][pc][null][mpi]")
{
  const LocalInt n = 2700;
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject   A     = Spread(Diffusion(60, 45, true, 34), backend.mat, Even);
    const PCObject    plain = MakePC(A, CMATCH());
    const auto        x     = Applied(plain);
    const std::string first = "near null vector: ";
    for (double size : {1., 1e-3}) {
      /* most of the last rank's entries are zero, or of all ranks' */
      std::vector<double> few(n, size), many(n, size);
      for (LocalInt i = 0; i < 600; i++) few[n - 1 - i] = 0;
      for (LocalInt i = 0; i < n; i++) many[i] = i % 5 ? 0 : size;
      Attach(A, MatSetNearNullSpace, Distributed(A, few));
      const PCObject    pc   = MakePC(A, CMATCH());
      const auto        y    = Applied(pc);
      const std::string text = ViewText((PC)pc);
      CHECK(Difference(y, x) <= 1e-5);
      if (!Rank())
        CHECK(Contains(text, first + "the first vector of the near null space, whose 600 zeros count as " +
                               (size == 1 ? "1." : "0.001")));
      Attach(A, MatSetNearNullSpace, Distributed(A, many));
      const PCObject    constants = MakePC(A, CMATCH());
      const auto        z         = Applied(constants);
      const std::string other     = ViewText((PC)constants);
      CHECK(SameBits(z, x));
      if (!Rank())
        CHECK(Contains(other, first + "the constants, since the first vector of the near null space is 0 in 2160 of 2700 rows"));
    }
  }
}

TEST_CASE("cmatch on parts of the ranks", "[cmatch][ranks][pc][nest][mpi]")
{
  const MatObject A = Spread(Poisson(40, 40), MATAIJ, Even);
  for (const char *options : {"-pc_type telescope -pc_telescope_reduction_factor 2 -telescope_pc_type cmatch",
                              "-pc_type bjacobi -sub_pc_type cmatch", "-pc_type asm -pc_asm_type basic -sub_pc_type cmatch",
                              "-pc_type ksp -ksp_ksp_type cg -ksp_ksp_max_it 3 -ksp_pc_type cmatch -ksp_type fcg"}) {
    CAPTURE(options);
    if (Ranks() == 1 && Contains(options, "telescope")) continue; /* which needs ranks to leave out */
    const Options   scope(std::string("-ksp_norm_type unpreconditioned ") + options);
    const KSPObject ksp      = MakeKSP(A, "", PCNONE);
    const Solution  solution = Solve(ksp);
    CHECK(solution.reason == KSP_CONVERGED_RTOL);
    CHECK(solution.true_residual <= 1e-7);
  }
}

/* ---------------------------------------- communication --------------------------------------- */

/*
   A level takes four collective operations of its ranks, in which each learns what the others have found, and ahead of each
   exchange whether one has failed, and two in which ranks find out who sends what: contributions, and the ghosts of the next level.
   PetscSFs for a cycle by MPI take two more. A set-up takes eight more, whatever the levels are: whether the matrix has its entries
   and where its rows are used, whether the nonzeros are those of the last one, what all ranks know before, whether each is ready,
   and the verdicts before the levels, behind them, and of the whole; before PETSc 3.26, which lends the ghosts of a product, one
   more to find them. One with the same nonzeros has none of the levels, nor the first, and one more in which ranks learn whether
   the aggregates fit.
*/
TEST_CASE("cmatch on several ranks: collective operations of a set-up", "[cmatch][ranks][pc][mpi][four][eight]")
{
  if (Ranks() == 1) return;
  for (const Layout &layout : Layouts())
    for (const std::string &options : {std::string(kWide), std::string(kGrouped), kWide + std::string("-@coarsening mis2"),
                                       kGrouped + std::string("-@coarse_size 400"), std::string()}) {
      CAPTURE(layout.name, options);
      const HostMatrix H      = Diffusion(50, 30, true, 36);
      const MatObject  A      = Spread(H, MATAIJ, layout.share);
      const PCObject   pc     = MakePC(A, CMATCH(), options);
      const Traffic    fresh  = TrafficOf([&] { MUST(PCSetUp(pc)); });
      const double     levels = ((const PC_CMATCH *)((PC)pc)->data)->hierarchy->several; /* on several ranks, with this one */
      CHECK(levels >= 1);
      CHECK(fresh.gatherings == levels);
      CHECK(fresh.reductions <= 8 + PETSC_VERSION_LT(3, 26, 0) + 7 * levels);
      SetValues(A, Changed(Blocks(H), 5));
      const Traffic again = TrafficOf([&] { MUST(PCSetUp(pc)); });
      CHECK(again.gatherings == 0);
      if (CountsAreSeen()) CHECK(again.reductions == 7 + 2 * levels);
    }
}

/* Unless the norm of the vector is known already. The scale of the cycle that follows from the norm has the same bits. */
TEST_CASE("cmatch on several ranks: an application takes one reduction, or none", "[cmatch][ranks][pc][mpi][four][eight]")
{
  if (Ranks() == 1) return;
  for (const Layout &layout : Layouts())
    for (const std::string &options :
         {std::string(kWide), std::string(kGrouped), std::string("-@precision double "), std::string()})
      for (double scale : {1., 1e-30, 1e30}) {
        CAPTURE(layout.name, options, scale);
        const MatObject A  = Spread(Diffusion(50, 30, true, 37), MATAIJ, layout.share);
        const PCObject  pc = MakePC(A, CMATCH(), options);
        const VecObject x = RightVec(A, 3), y = RightVec(A), z = RightVec(A);
        PetscReal       norm;
        PetscBool       same;
        MUST(PCSetUp(pc));
        MUST(VecScale(x, scale));
        CHECK(TrafficOf([&] { MUST(PCApply(pc, x, y)); }).reductions == 1);
        MUST(VecNorm(x, NORM_2, &norm));
        CHECK(TrafficOf([&] { MUST(PCApply(pc, x, z)); }).reductions == 0);
        MUST(VecEqual(y, z, &same));
        CHECK(same);
        MUST(VecScale(x, 0.3)); /* which PETSc knows to scale the norm, too */
        CHECK(TrafficOf([&] { MUST(PCApply(pc, x, z)); }).reductions == 0);
        MUST(VecShift(x, norm)); /* and now it does not know the norm */
        CHECK(TrafficOf([&] { MUST(PCApply(pc, x, z)); }).reductions == 1);
      }
}

/* An iteration of cgfused takes one reduction, but those that check p.Ap, which are 1, 2, 4 and so on, and none in the cycle. */
TEST_CASE("cmatch on several ranks: reductions of cgfused", "[cmatch][ranks][pc][mpi][four][eight]")
{
  if (Ranks() == 1) return;
  const MatObject A = Spread(Diffusion(50, 30, true, 37), MATAIJ, Even);
  for (const char *norm : {"unpreconditioned", "preconditioned", "natural"}) {
    double reductions[2];
    CAPTURE(norm);
    const KSPObject ksp = MakeKSP(A, CMATCH(), kWide + std::string("-ksp_type cgfused -ksp_rtol 1e-12 -ksp_norm_type ") + norm);
    const VecObject b = RightVec(A, 3), x = RightVec(A);
    MUST(KSPSolve(ksp, b, x)); /* which makes what stays */
    for (int k : {0, 1}) {
      MUST(KSPSetTolerances(ksp, 1e-12, 0, PETSC_CURRENT, 5 + 3 * k));
      reductions[k] = TrafficOf([&] { MUST(KSPSolve(ksp, b, x)); }).reductions;
    }
    if (CountsAreSeen()) CHECK(reductions[1] - reductions[0] == 3);
  }
  /* The size of one solve is not that of the next one. */
  const KSPObject ksp =
    MakeKSP(A, CMATCH(), kWide + std::string("-ksp_type cgfused -ksp_rtol 1e-8 -ksp_norm_type unpreconditioned"));
  const VecObject b = RightVec(A, 3), x = RightVec(A);
  PetscInt        its = 0, again;
  for (double scale : {1., 1e60, 1e-120, 1e60}) {
    MUST(VecScale(b, scale));
    MUST(KSPSolve(ksp, b, x));
    MUST(KSPGetIterationNumber(ksp, &again));
    KSPConvergedReason reason;
    MUST(KSPGetConvergedReason(ksp, &reason));
    CHECK(reason == KSP_CONVERGED_RTOL);
    if (!its) its = again;
    CHECK(again == its);
  }
}

/* The sums of the levels and of the memory. */
TEST_CASE("cmatch on several ranks: a view adds up all levels at once", "[cmatch][ranks][pc][view][mpi]")
{
  if (Ranks() == 1) return;
  const MatObject A     = Spread(Diffusion(50, 30, true, 36), MATAIJ, Even);
  double          first = 0;
  for (const char *options : {"-@coarse_size 400", "-@coarse_size 60", "-@coarse_size 5"}) {
    const PCObject pc = MakePC(A, CMATCH(), kWide + std::string(options));
    MUST(PCSetUp(pc));
    const double reductions = TrafficOf([&] { ViewText((PC)pc); }).reductions;
    if (first == 0) first = reductions;
    CHECK(reductions == first);
  }
}

/* ------------------------------------------ the end ------------------------------------------- */

/* A row whose diagonal entry is not positive is named on all ranks. */
static void CheckBadRows(MatType type, const std::string &options)
{
  for (LocalInt bad : {0, 41, 89}) {
    CAPTURE(options, bad);
    HostMatrix A = Diffusion(10, 9, true, 4), spoiled = A;
    for (LocalInt k = A.i[bad]; k < A.i[bad + 1]; k++)
      if (A.j[k] == bad) spoiled.a[k] = -1;
    const MatObject mat = Spread(spoiled, type, Even);
    const KSPObject ksp = MakeKSP(mat, CMATCH(), options);
    CHECK(Solve(ksp).reason == KSP_DIVERGED_PC_FAILED);
    const std::string text = ((const PC_Local *)PCOf(ksp)->data)->failure;
    CAPTURE(text);
    CHECK(Contains(text, "Row " + std::to_string(bad) + " has a diagonal entry that is not positive"));
    SetValues(mat, Blocks(A));                                /* and all is well again */
    if (kPCApplySetsUp) MUST(KSPSetOperators(ksp, mat, mat)); /* or KSPCG would still see the failure */
    CHECK(Solve(ksp).reason > 0);
  }
}

TEST_CASE("cmatch on several ranks: a bad row of one rank ends a solve on all", "[cmatch][ranks][pc][bad][mpi][two][four][eight]")
{
  for (const std::string &options : {std::string(kWide), std::string(kGrouped), kWide + std::string("-@smoother sfsai")})
    CheckBadRows(MATAIJ, options);
}

/* A little beyond the smallest eigenvalues the coarsest operator is indefinite, far beyond them the diagonals of coarse operators.
 */
TEST_CASE("cmatch on several ranks: an indefinite matrix is named by level and row", "[cmatch][ranks][pc][bad][mpi][four][eight]")
{
  for (const std::string &options :
       {std::string(kWide), std::string(kGrouped), kWide + std::string("-@smoother sfsai"), std::string()})
    for (double part : {20., 460.}) {
      CAPTURE(options, part);
      const MatObject A  = Spread(ShortOf(50, part), MATAIJ, Even);
      const PCObject  pc = MakePC(A, CMATCH(), options);
      MUST(PCSetUp(pc));
      CHECK(ReasonOf(pc) == PC_FACTOR_NUMERIC_ZEROPIVOT);
      const std::string text = ((const PC_Local *)((PC)pc)->data)->failure;
      CAPTURE(text);
      CHECK(Contains(text, " of level "));
      CHECK(Infinite(Applied(pc)));
      /* With the values of a good matrix the same object is what a new one is. */
      SetValues(A, Blocks(ShortOf(50, 0.5)));
      const PCObject fresh = MakePC(A, CMATCH(), options);
      CHECK(SameBits(Applied(pc), Applied(fresh)));
      /* A refill with values whose coarse operators fail on the old patterns fails no less, and leaves the object as good. */
      SetValues(A, Blocks(ShortOf(50, part)));
      MUST(PCSetUp(pc));
      CHECK(ReasonOf(pc) == PC_FACTOR_NUMERIC_ZEROPIVOT);
    }
}

/* Wherever the memory of one rank ends outside of PETSc's exchanges, all ranks have an error. */
TEST_CASE("cmatch on several ranks: the memory of one rank ends", "[cmatch][ranks][pc][bad][memory][mpi][long]")
{
  if (Ranks() == 1) return;
  const MatObject A = Spread(Diffusion(12, 10, true, 4), MATAIJ, Even);
  for (const std::string &options : {std::string(kWide), std::string(kGrouped), kWide + std::string("-@smoother sfsai")}) {
    const auto expected = Applied(MakePC(A, CMATCH(), options));
    for (const int rank : {0, Ranks() - 1}) {
      bool failed = true;
      for (long n = 1; failed; n += 1 + n / 10) {
        CAPTURE(options, rank, n);
        const PCObject pc = MakePC(A, CMATCH(), options);
        failed            = FailsOnAll(rank, n, [&] { return PCSetUp(pc); });
        if (n % 7 && failed) continue; /* the same object, once there is memory */
        MUST(PCSetUp(pc));
        CHECK(SameBits(Applied(pc), expected));
      }
    }
  }
}

TEST_CASE("cmatch on several ranks: the memory of one rank ends while the levels are made matrices",
          "[cmatch][ranks][pc][bad][memory][mpi]")
{
  const MatObject A  = Spread(Diffusion(12, 10, true, 4), MATAIJ, Even);
  const PCObject  pc = MakePC(A, CMATCH(), kWide);
  MUST(PCSetUp(pc));
  for (const auto through : {FailingMemory::Through::New, FailingMemory::Through::PETSc}) {
    bool failed = true;
    long n      = 1;
    for (; failed; n++) {
      CAPTURE((int)through, n);
      const PetscLogDouble bytes = HostBytes();
      PetscInt             levels;
      Mat                 *operators, *prolongators;
      failed = FailsOnAll(Ranks() - 1, n, [&] { return PCCMATCHGetHierarchy(pc, &levels, &operators, &prolongators); }, through);
      if (!failed) {
        for (PetscInt l = 0; l < levels; l++) MUST(MatDestroy(&operators[l]));
        for (PetscInt l = 0; l + 1 < levels; l++) MUST(MatDestroy(&prolongators[l]));
        MUST(PetscFree(operators));
        MUST(PetscFree(prolongators));
      }
      CHECK(HostBytes() == bytes);
    }
    CHECK(n > 2);
  }
}

/* The same where aggregates and patterns are kept, so that ranks agree at the end alone. */
TEST_CASE("cmatch on several ranks: the memory of one rank ends with new values", "[cmatch][ranks][pc][bad][memory][mpi][long]")
{
  if (Ranks() == 1) return;
  const HostMatrix H = Diffusion(12, 10, true, 4);
  const MatObject  A = Spread(H, MATAIJ, Even);
  for (const std::string options : {kWide, kGrouped}) {
    SetValues(A, Changed(Blocks(H), 5));
    const auto expected = Applied(MakePC(A, CMATCH(), options));
    bool       failed   = true;
    for (long n = 1; failed; n += 1 + n / 8) {
      CAPTURE(options, n);
      SetValues(A, Blocks(H));
      const PCObject pc = MakePC(A, CMATCH(), options);
      MUST(PCSetUp(pc));
      SetValues(A, Changed(Blocks(H), 5));
      failed = FailsOnAll(Ranks() - 1, n, [&] { return PCSetUp(pc); });
      if (n % 7 && failed) continue;
      MUST(PCSetUp(pc));
      if (failed) CHECK(SameBits(Applied(pc), expected)); /* made anew */
    }
  }
}

/* ---------------------------------- the messages of a cycle ----------------------------------- */

namespace
{

/* Where messages say ranks by these numbers. */
constexpr PetscMPIInt kNumbered = 100;

/* What messages bring to a vector of so many entries, by MPI. */
std::vector<double> Brought(MPI_Comm comm, const Neighbours &m, const std::vector<double> &from, size_t entries)
{
  std::vector<double>      to(entries, -1), packed, received(m.places.size());
  std::vector<MPI_Request> requests(m.to.size() + m.from.size());
  MPI_Request             *next = requests.data();
  for (LocalInt entry : m.entries) packed.push_back(from[entry]);
  const double *const source = m.entries.empty() ? from.data() : packed.data();
  double *const       target = m.places.empty() ? to.data() : received.data();
  for (const auto &part : m.from)
    MPI_Irecv(target + part.begin, (int)(part.end - part.begin), MPI_DOUBLE, part.rank - kNumbered, 0, comm, next++);
  for (const auto &part : m.to)
    MPI_Isend(source + part.begin, (int)(part.end - part.begin), MPI_DOUBLE, part.rank - kNumbered, 0, comm, next++);
  MPI_Waitall((int)requests.size(), requests.data(), MPI_STATUSES_IGNORE);
  for (size_t k = 0; k < m.places.size(); k++) to[m.places[k]] = received[k];
  for (size_t k = 0; k < m.own_from.size(); k++) to[m.own_to[k]] = from[m.own_from[k]];
  return to;
}

/* Entries that no other rank has. */
std::vector<double> OwnEntries(size_t count)
{
  std::vector<double> x(count);
  for (size_t k = 0; k < count; k++) x[k] = 1e6 * (Rank() + 1) + (double)k;
  return x;
}

} // namespace

TEST_CASE("cmatch on several ranks: messages bring what PETSc's exchanges bring", "[cmatch][ranks][pc][mpi][four][eight]")
{
  int own = 0, pieces = 0, lists = 0;
  for (const Layout &layout : Layouts())
    for (const std::string &options : {std::string(kWide), std::string(kGrouped), std::string()}) {
      CAPTURE(layout.name, options);
      const MatObject A  = Spread(RandomStencil(12, 10, 9, false, 3), MATAIJ, layout.share);
      const PCObject  pc = MakePC(A, CMATCH(), options);
      MUST(PCSetUp(pc));
      const CMATCHRanks     *ranks = ((const PC_CMATCH *)((PC)pc)->data)->ranks;
      const CMATCHHierarchy *H     = ((const PC_CMATCH *)((PC)pc)->data)->hierarchy;
      for (LocalInt l = 0; l < H->several; l++) {
        CAPTURE(l);
        const CMATCHRanksLevel  &level = ranks->level[l];
        std::vector<PetscMPIInt> number(level.size);
        std::iota(number.begin(), number.end(), kNumbered);
        for (const CMATCHKind kind : {CMATCH_HALO, CMATCH_DOWN, CMATCH_UP}) {
          CAPTURE((int)kind);
          const bool    down = kind == CMATCH_DOWN;
          PetscSF const sf   = (kind == CMATCH_HALO ? level.halo : down ? level.down : level.up).sf;
          PetscInt      roots, leaves;
          MUST(PetscSFGetGraph(sf, &roots, &leaves, nullptr, nullptr));
          const Neighbours    messages = CMATCHListsOf(level, kind, number);
          std::vector<double> from     = OwnEntries(down ? leaves : roots), to(down ? roots : leaves, -1);
          if (down) {
            MUST(PetscSFReduceBegin(sf, MPI_DOUBLE, from.data(), to.data(), MPI_REPLACE));
            MUST(PetscSFReduceEnd(sf, MPI_DOUBLE, from.data(), to.data(), MPI_REPLACE));
          } else {
            MUST(PetscSFBcastBegin(sf, MPI_DOUBLE, from.data(), to.data(), MPI_REPLACE));
            MUST(PetscSFBcastEnd(sf, MPI_DOUBLE, from.data(), to.data(), MPI_REPLACE));
          }
          CHECK(Brought(level.comm, messages, from, to.size()) == to);
          for (const auto &parts : {messages.to, messages.from})
            for (const auto &part : parts) CHECK((part.rank != kNumbered + level.rank && part.begin < part.end));
          if (kind == CMATCH_HALO) CHECK((messages.places.empty() && messages.own_from.empty())); /* ghosts ascend */
          if (down) CHECK((to.empty() || messages.places.size() + messages.own_to.size() == to.size()));
          own += !messages.own_from.empty();
          pieces += messages.entries.empty() && !messages.to.empty();
          lists += !messages.entries.empty();
        }
      }
    }
  if (Ranks() == 1) return;
  int all[3] = {own, pieces, lists};
  MPI_Allreduce(MPI_IN_PLACE, all, 3, MPI_INT, MPI_SUM, PETSC_COMM_WORLD);
  for (const int count : all) CHECK(count > 0); /* all kinds of messages have been tried */
}

/* ------------------------------------------- on GPUs ------------------------------------------ */

TEST_CASE("cmatch on several ranks of GPUs has the hierarchy of the host", "[cmatch][ranks][pc][gpu][mpi]")
{
  NEEDS_DEVICE();
  const std::vector<double> w = Weights(1500);
  for (const Layout &layout : Layouts())
    for (const std::string &options :
         {std::string(kWide), std::string(kGrouped), kGrouped + std::string("-@precision double "),
          kWide + std::string("-@coarsening mis2 "), kWide + std::string("-@smoother chebyshev -@degree 2 "),
          kWide + std::string("-@smoother sfsai "), kGrouped + std::string("-@smoother sfsai -@degree 2 -@precision double "),
          std::string()})
      for (bool with_w : {false, true}) {
        CAPTURE(layout.name, options, with_w);
        if (layout.name != Layouts()[0].name && options != kWide) continue; /* one in several is enough */
        const bool       single = !Contains(options, "double");
        const HostMatrix plain = Diffusion(50, 30, true, 35), H = with_w ? Unscaled(plain, w) : plain;
        const MatObject  A = Spread(H, DeviceBackend().mat, layout.share), B = Spread(H, MATAIJ, layout.share);
        if (with_w) {
          Attach(A, MatSetNearNullSpace, Distributed(A, w));
          Attach(B, MatSetNearNullSpace, Distributed(B, w));
        }
        const PCObject pc = MakePC(A, CMATCH(), options), host = MakePC(B, CMATCH(), options);
        for (const unsigned seed : {0u, 5u, 6u}) { /* and new values */
          CAPTURE(seed);
          if (seed) {
            SetValues(A, Changed(Blocks(H), seed));
            SetValues(B, Changed(Blocks(H), seed));
          }
          MUST(PCSetUp(pc));
          MUST(PCSetUp(host));
          CheckSameLevels(pc, host);
          const auto y = Applied(pc);
          CHECK(Difference(y, Applied(host)) <= (single ? 1e-4 : 1e-11));
          CHECK(SameBits(y, Applied(pc)));
        }
        const std::string text = ViewText((PC)pc);
        if (Rank()) continue;
        CAPTURE(text);
        CHECK(Contains(text, "backend CUDA"));
        CHECK(Contains(text, CMATCH().kept));
        CHECK(!Contains(text, "block-local"));
        CHECK(!Contains(text, "reaches no other rank"));
      }
}

/* The levels of blocks on the GPU are those of the same blocks on the host and of single entries, for new values, too. */
TEST_CASE("cmatch on several ranks of GPUs: matrices of blocks", "[cmatch][ranks][pc][gpu][mpi]")
{
  NEEDS_DEVICE();
  const HostMatrix H = Diffusion(50, 30, true, 38);
  for (PetscInt bs = 1; bs <= 4; bs++)
    for (const std::string &options : {std::string(kWide), std::string(kGrouped), std::string()}) {
      CAPTURE(bs, options);
      const MatObject blocks = InBlocks(H, MATBAIJCUDA, bs), host_blocks = InBlocks(H, MATBAIJ, bs);
      MatObject       entries;
      MUST(MatConvert(host_blocks, MATAIJ, MAT_INITIAL_MATRIX, entries.put()));
      const PCObject pc = MakePC(blocks, CMATCH(), options), host = MakePC(entries, CMATCH(), options);
      for (const double scale : {1., 3., 0.5}) {
        CAPTURE(scale);
        for (const Mat A : {(Mat)blocks, (Mat)host_blocks, (Mat)entries}) MUST(MatScale(A, scale));
        MUST(PCSetUp(pc));
        MUST(PCSetUp(host));
        const Levels mine = LevelsOf(pc), theirs = LevelsOf(host);
        REQUIRE(mine.A.size() == theirs.A.size());
        for (size_t l = 0; l < mine.A.size(); l++) {
          CAPTURE(l);
          const HostMatrix a = Gathered(mine.A[l]), b = Gathered(theirs.A[l]);
          CHECK((a.i == b.i && a.j == b.j));
          CHECK(SameBits(a.a, b.a));
        }
        CHECK(Difference(Applied(pc), Applied(host)) <= 1e-4);
      }
      const std::string text = ViewText((PC)pc);
      CAPTURE(text);
      if (!Rank()) CHECK((Contains(text, "backend CUDA") && Contains(text, CMATCH().kept) && !Contains(text, "block-local")));
      const PetscInt expected = Iterations(entries, options);
      CHECK(Iterations(host_blocks, options) == expected);
      CHECK(Iterations(blocks, options) == expected);
    }
}

TEST_CASE("cmatch on several ranks of GPUs: iterations with factored smoothers", "[cmatch][ranks][pc][gpu][smoothers][mpi]")
{
  NEEDS_DEVICE();
  for (const HostMatrix &H : {Poisson(20, 20, 20), Checkerboard(20, 5, 1e4), Poisson(90, 70)})
    for (const std::string &options :
         {std::string("-@smoother sfsai"), std::string("-@smoother afsai"), std::string("-@smoother sfsai -@degree 3"),
          std::string("-@smoother sfsai -@gather_rows 500 -@gather_ranks 0"), std::string("-@smoother sfsai -ksp_type cgfused")})
      for (const Layout &layout : Layouts()) {
        CAPTURE(H.n, options, layout.name);
        const PetscInt host = Iterations(Spread(H, MATAIJ, layout.share), options),
                       mine = Iterations(Spread(H, DeviceBackend().mat, layout.share), options);
        CHECK(mine <= host + 1);
        CHECK(mine >= host - 1);
      }
}

TEST_CASE("cmatch on several ranks of GPUs takes the iterations of one host", "[cmatch][ranks][pc][gpu][mpi]")
{
  NEEDS_DEVICE();
  for (const HostMatrix &H : {Poisson(24, 24, 24), Checkerboard(24, 5, 1e4), Poisson(130, 110)}) {
    const PetscInt one = IterationsAlone(H, "");
    for (const char *options :
         {"", "-@gather_rows 500 -@gather_ranks 0", "-@gather_rows 500 -@gather_ranks 400 -test_gather_factor 2", "-ksp_type fcg",
          "-ksp_type cgfused"}) {
      CAPTURE(H.n, options);
      CHECK(Iterations(Spread(H, DeviceBackend().mat, Even), options) <= one + (Ranks() > 4 ? 2 : 1));
    }
  }
}

TEST_CASE("cmatch on several ranks of GPUs: singular systems, and rows that are bad", "[cmatch][ranks][pc][gpu][bad][mpi]")
{
  NEEDS_DEVICE();
  for (const std::string options : {kWide, kGrouped}) {
    CAPTURE(options);
    const auto solve = [&](MatType type) {
      const MatObject singular = Spread(Diffusion(60, 45, false, 34), type, Even);
      SetConstantsNull(singular);
      return Solve(MakeKSP(singular, CMATCH(), "-ksp_norm_type unpreconditioned " + options));
    };
    const Solution solution = solve(DeviceBackend().mat), of_host = solve(MATAIJ);
    CHECK(solution.reason == KSP_CONVERGED_RTOL);
    CHECK(solution.true_residual <= 2e-8);
    CHECK(std::abs(solution.iterations - of_host.iterations) <= 1);
    if (Ranks() <= 4) CHECK(solution.iterations <= 35);
    CheckBadRows(DeviceBackend().mat, options);
    /* an indefinite matrix whose coarse operators fail, anew and on old patterns */
    const MatObject A  = Spread(ShortOf(50, 460), DeviceBackend().mat, Even);
    const PCObject  pc = MakePC(A, CMATCH(), options);
    for (int repeat = 0; repeat < 2; repeat++) {
      MUST(PCSetUp(pc));
      CHECK(ReasonOf(pc) == PC_FACTOR_NUMERIC_ZEROPIVOT);
      SetValues(A, Blocks(ShortOf(50, 0.5)));
      CHECK(SameBits(Applied(pc), Applied(MakePC(A, CMATCH(), options))));
      SetValues(A, Blocks(ShortOf(50, 460)));
    }
  }
}

TEST_CASE("cmatch on several ranks of GPUs, to the host and back, and beside another stream", "[cmatch][ranks][pc][gpu][mpi]")
{
  NEEDS_DEVICE();
  const MatObject A        = Spread(Diffusion(50, 30, true, 33), DeviceBackend().mat, Even);
  const PCObject  pc       = MakePC(A, CMATCH(), kWide + std::string("-@communication mpi")),
                 local     = MakePC(A, CMATCH(), kWide + std::string("-@reach local"));
  const auto      expected = Applied(pc), of_block = Applied(local);
  const VecObject x = RightVec(A, 11), y = RightVec(A);
  CHECK(SameBits(expected, of_block) == (Ranks() == 1));
  for (int repeat = 0; repeat < 2; repeat++) {
    MUST(PCCMATCHSetReach(pc, PC_CMATCH_LOCAL));
    CHECK(SameBits(Applied(pc), of_block));
    MUST(PCCMATCHSetReach(pc, PC_CMATCH_GLOBAL));
    CHECK(SameBits(Applied(pc), expected));
  }
  if (Ranks() > 1) {
    const OtherStream scope;
    Errors            errors;
    CHECK((int)PCApply(pc, x, y) == PETSC_ERR_SUP);
    CHECK(Contains(errors.text, "PETSC_STREAM_DEFAULT"));
  }
  CHECK(SameBits(Applied(pc), expected));
  MUST(MatBindToCPU(A, PETSC_TRUE));
  Touch(A);
  CHECK(Difference(Applied(pc), expected) <= 1e-4);
  CHECK(Contains(ViewText((PC)pc), "backend host") == !Rank());
  MUST(MatBindToCPU(A, PETSC_FALSE));
  Touch(A);
  CHECK(SameBits(Applied(pc), expected));
}

/* Memory may end on one rank alone while it makes its graph in a first application, and the others would wait for its values. */
TEST_CASE("cmatch on several ranks of GPUs: ranks agree in the first application after a set-up", "[cmatch][ranks][pc][gpu][mpi]")
{
  NEEDS_DEVICE();
  if (Ranks() == 1) return;
  const MatObject A  = Spread(Diffusion(50, 30, true, 35), DeviceBackend().mat, Even);
  const PCObject  pc = MakePC(A, CMATCH(), kWide);
  const VecObject x = RightVec(A, 3), y = RightVec(A);
  PetscReal       norm;
  MUST(VecNorm(x, NORM_2, &norm)); /* without which each application has a reduction */
  for (bool again : {false, true}) {
    CAPTURE(again);
    if (again) MUST(MatScale(A, 2));
    MUST(PCSetUp(pc));
    for (double reductions : {1, 0}) CHECK(TrafficOf([&] { MUST(PCApply(pc, x, y)); }).reductions == reductions);
  }
}

/* ------------------------------------ on GPUs, with NCCL -------------------------------------- */

TEST_CASE("cmatch on several GPUs: NCCL gives the bits of MPI", "[cmatch][ranks][pc][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const std::vector<double> w = Weights(1500);
  for (const Layout &layout : Layouts())
    for (const std::string &options :
         {std::string(kWide), std::string(kGrouped), std::string(), kGrouped + std::string("-@precision double "),
          kWide + std::string("-@coarsening mis2 "), kWide + std::string("-@smoother chebyshev -@degree 3 "),
          kWide + std::string("-@coarse pcg "), std::string("-@coarse_size 2048 ")})
      for (bool with_w : {false, true}) {
        CAPTURE(layout.name, options, with_w);
        const HostMatrix plain = Diffusion(50, 30, true, 35), H = with_w ? Unscaled(plain, w) : plain;
        const MatObject  A = Spread(H, DeviceBackend().mat, layout.share);
        if (with_w) Attach(A, MatSetNearNullSpace, Distributed(A, w));
        const PCObject nccl = MakePC(A, CMATCH(), options + "-@communication nccl"),
                       mpi  = MakePC(A, CMATCH(), options + "-@communication mpi");
        for (const unsigned seed : {0u, 5u, 6u}) { /* and new values, whose graph is the one of before */
          CAPTURE(seed);
          if (seed) SetValues(A, Changed(Blocks(H), seed));
          const auto y = Applied(nccl);
          CHECK(SameBits(y, Applied(mpi)));
          CHECK(SameBits(y, Applied(nccl)));
          /* vectors whose norm is known, and others than those of the graph before */
          const VecObject x = RightVec(A, 13), z = RightVec(A, 1), of_mpi = RightVec(A, 1);
          PetscReal       norm;
          MUST(VecNorm(x, NORM_2, &norm));
          MUST(PCApply(nccl, x, z));
          MUST(PCApply(mpi, x, of_mpi));
          CHECK(SameBits(Values(z), Values(of_mpi)));
        }
        const std::string text = ViewText((PC)nccl), other = ViewText((PC)mpi);
        if (Rank()) continue;
        CHECK(Contains(text, "an application communicates by nccl, version "));
        CHECK(Contains(other, "an application communicates by mpi: it was asked for\n"));
      }
}

TEST_CASE("cmatch on several GPUs: kernels write to the other GPUs where those of cgfused do",
          "[cmatch][ranks][pc][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const MatObject A  = Spread(Diffusion(50, 30, true, 35), DeviceBackend().mat, Even);
  const PCObject  pc = MakePC(A, CMATCH(), kWide);
  MUST(PCSetUp(pc));
  KSPObject ksp;
  PC        jacobi;
  MUST(KSPCreate(PETSC_COMM_WORLD, ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetType(ksp, KSPCGFUSED));
  MUST(KSPGetPC(ksp, &jacobi));
  MUST(PCSetType(jacobi, PCJACOBI));
  const VecObject b = RightVec(A, 3), x = RightVec(A);
  MUST(KSPSolve(ksp, b, x));
  const std::string mine = ViewText((PC)pc), theirs = ViewText((KSP)ksp), text = "; the kernels write to the other GPUs\n";
  if (Rank()) return;
  CAPTURE(mine, theirs);
  CHECK(Contains(mine, text) == Contains(theirs, text));
}

TEST_CASE("cmatch on several GPUs: NCCL, other matrices and options, and other streams", "[cmatch][ranks][pc][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const MatObject A = Spread(Diffusion(50, 30, true, 33), DeviceBackend().mat, Even),
                  B = Spread(Diffusion(40, 30, true, 34), DeviceBackend().mat, Even);
  for (const std::string &options : {std::string(kWide), std::string(kGrouped)}) {
    CAPTURE(options);
    const PCObject pc = MakePC(A, CMATCH(), options), mpi = MakePC(A, CMATCH(), options + "-@communication mpi"),
                   other = MakePC(B, CMATCH(), options + "-@communication mpi");
    const auto expected = Applied(mpi), of_other = Applied(other);
    for (int repeat = 0; repeat < 2; repeat++) {
      CHECK(SameBits(Applied(pc), expected));
      MUST(PCCMATCHSetCommunication(pc, PC_CMATCH_COMMUNICATION_MPI));
      CHECK(SameBits(Applied(pc), expected));
      MUST(PCCMATCHSetCommunication(pc, PC_CMATCH_COMMUNICATION_NCCL));
      CHECK(SameBits(Applied(pc), expected));
      MUST(PCReset(pc));
      MUST(PCSetOperators(pc, B, B));
      CHECK(SameBits(Applied(pc), of_other));
      MUST(PCReset(pc));
      MUST(PCSetOperators(pc, A, A));
      MUST(PCCMATCHSetReach(pc, PC_CMATCH_LOCAL));
      (void)Applied(pc);
      MUST(PCCMATCHSetReach(pc, PC_CMATCH_GLOBAL));
      CHECK(SameBits(Applied(pc), expected));
    }
    const VecObject x = RightVec(A, 1), y = RightVec(A, 2), z = RightVec(A, 2);
    MUST(PCApply(pc, x, z));
    {
      const OtherStream scope; /* everything is in the current stream, whatever stream that is */
      MUST(PCApply(pc, x, y));
      scope.Synchronize();
    }
    CHECK(SameBits(Values(y), Values(z)));
  }
}

TEST_CASE("cmatch on several GPUs: NCCL and singular systems, and bad rows", "[cmatch][ranks][pc][mpi][gpu][nccl][null]")
{
  NEEDS_NCCL();
  for (const std::string &options : {std::string(kWide), std::string(kGrouped), std::string()})
    for (const char *solver : {"-ksp_type cg ", "-ksp_type cgfused ", "-ksp_type fcg "}) {
      CAPTURE(options, solver);
      const HostMatrix H = Diffusion(60, 45, false, 34);
      const MatObject  A = Spread(H, DeviceBackend().mat, Even);
      SetConstantsNull(A);
      const std::string all   = std::string("-ksp_norm_type unpreconditioned ") + solver + options;
      const KSPObject   ksp   = MakeKSP(A, CMATCH(), all + "-@communication nccl"),
                      by_mpi  = MakeKSP(A, CMATCH(), all + "-@communication mpi");
      const Solution solution = Solve(ksp), theirs = Solve(by_mpi);
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(solution.true_residual <= 2e-8);
      CHECK(solution.iterations == theirs.iterations);
      /* the dots of PETSc's fcg depend on where its vectors lie */
      CHECK((std::string(solver) == "-ksp_type fcg " || SameBits(solution.history, theirs.history)));
      HostMatrix spoiled = H;
      for (LocalInt k = spoiled.i[41]; k < spoiled.i[42]; k++)
        if (spoiled.j[k] == 41) spoiled.a[k] = -1;
      SetValues(A, Blocks(spoiled));
      CHECK(Solve(ksp).reason == KSP_DIVERGED_PC_FAILED);
      SetValues(A, Blocks(H));
      CHECK(Solve(ksp).iterations == theirs.iterations);
    }
}

/* Every kernel of several ranks, in an application and in the graph of cgfused. */
TEST_CASE("cmatch on several GPUs: NCCL, small systems for the sanitizer", "[cmatch][ranks][pc][mpi][gpu][nccl][sanitizer]")
{
  NEEDS_NCCL();
  const HostMatrix H = Diffusion(20, 14, true, 35);
  const MatObject  A = Spread(H, DeviceBackend().mat, Even);
  for (const std::string &options : {std::string(kWide), kGrouped + std::string("-@precision double ")}) {
    CAPTURE(options);
    const PCObject nccl = MakePC(A, CMATCH(), options + "-@communication nccl"),
                   mpi  = MakePC(A, CMATCH(), options + "-@communication mpi");
    for (const unsigned seed : {0u, 5u}) { /* and new values */
      if (seed) SetValues(A, Changed(Blocks(H), seed));
      CHECK(SameBits(Applied(nccl), Applied(mpi)));
    }
    const std::string all   = "-ksp_rtol 1e-30 -ksp_max_it 3 -ksp_norm_type unpreconditioned " + options;
    const Solution    fused = Solve(MakeKSP(A, CMATCH(), "-ksp_type cgfused " + all)),
                   petsc    = Solve(MakeKSP(A, CMATCH(), "-ksp_type cg " + all));
    CHECK(fused.iterations == 3);
    CHECK(Difference(fused.history, petsc.history) <= 1e-5);
  }
}

TEST_CASE("cmatch on several GPUs: where NCCL is not possible", "[cmatch][ranks][pc][mpi][gpu][nccl][bad]")
{
  NEEDS_DEVICE();
  if (Ranks() == 1 || WhyNoNCCL().empty()) return;
  const MatObject   A   = Spread(Diffusion(50, 30, true, 33), DeviceBackend().mat, Even);
  const std::string why = WhyNoNCCL(), options = kWide;
  const PCObject    by_mpi = MakePC(A, CMATCH(), options), refused = MakePC(A, CMATCH(), options + "-@communication nccl");
  const auto        expected = Applied(by_mpi);
  const std::string text     = ViewText((PC)by_mpi);
  if (!Rank()) CHECK(Contains(text, "an application communicates by mpi: " + why + "\n"));
  {
    Errors errors;
    CHECK((int)PCSetUp(refused) == PETSC_ERR_SUP);
    CHECK(Contains(errors.text, "-pc_cmatch_communication auto"));
    CHECK(Contains(errors.text, why));
  }
  MUST(PCCMATCHSetCommunication(refused, PC_CMATCH_COMMUNICATION_AUTO));
  CHECK(SameBits(Applied(refused), expected));
}

/* ------------------------------------------- the view ----------------------------------------- */

/* What follows these words, with them; nothing without them. */
static std::string From(const std::string &text, const char *words)
{
  const size_t at = text.find(words);
  return at == std::string::npos ? std::string() : text.substr(at);
}

/* The numbers of both tables of levels are those of all ranks, however uneven they are. */
TEST_CASE("cmatch on several ranks: numbers of the view", "[cmatch][ranks][pc][view][mpi]")
{
  const auto all = [](PetscInt64 value, MPI_Op op) {
    PetscInt64 result;
    MUST(MPI_Allreduce(&value, &result, 1, MPIU_INT64, op, PETSC_COMM_WORLD));
    return (long long)result;
  };
  if (Ranks() == 1) return;
  for (const Layout &layout : Layouts())
    for (const char *options : {kWide, kGrouped}) {
      const PCObject pc = MakePC(Spread(Diffusion(50, 30, true, 39), MATAIJ, layout.share), CMATCH(), options);
      MUST(PCSetUp(pc));
      const std::string      text   = ViewText((PC)pc);
      const auto            *cmatch = (const PC_CMATCH *)((PC)pc)->data;
      const CMATCHHierarchy *H      = cmatch->hierarchy;
      std::istringstream     rows_of(From(text, "level      rows")), ranks_of(From(text, "level    ranks"));
      std::string            line;
      long long              above = 0;
      CAPTURE(layout.name, options, text);
      std::getline(rows_of, line);
      std::getline(ranks_of, line);
      CHECK(cmatch->all_levels > 2);
      for (LocalInt l = 0; l < cmatch->all_levels; l++) {
        const CMATCHLevel level = l < H->levels ? H->level[l] : CMATCHLevel{};
        const bool        here  = level.n > 0;
        const long long   rows = all(level.n, MPI_SUM), entries = all((PetscInt64)level.nnz + level.n, MPI_SUM),
                        ranks = all(here, MPI_SUM), most = all(level.n, MPI_MAX),
                        least = all(here ? level.n : PETSC_INT64_MAX, MPI_MIN), ghosts = all(level.ghosts, MPI_MAX);
        long long number, shown[4];
        double    width, share;
        CAPTURE(l);
        const double rows_above = (double)above;
        above                   = rows;
        if (Rank()) continue; /* the first rank has the text */
        std::getline(rows_of, line);
        CHECK(std::sscanf(line.c_str(), "%lld %lld %lld %lf %lf", &number, shown, shown + 1, &width, &share) == (l ? 5 : 4));
        CHECK((number == l && shown[0] == rows && shown[1] == entries));
        CHECK(std::fabs(width - (double)entries / (double)rows) <= 0.051);
        if (l) CHECK(std::fabs(share - (double)rows / rows_above) <= 0.000051);
        std::getline(ranks_of, line);
        CHECK(std::sscanf(line.c_str(), "%lld %lld %lld %lld %lld", &number, shown, shown + 1, shown + 2, shown + 3) == 5);
        CHECK((number == l && shown[0] == ranks && shown[1] == least && shown[2] == most && shown[3] == ghosts));
        if (!l) {
          CHECK(rows == 1500);
          CHECK((ghosts > 0) == (ranks > 1));
        }
      }
    }
}

TEST_CASE("cmatch on several ranks: what the view says", "[cmatch][ranks][pc][view][mpi]")
{
  const HostMatrix H    = Poisson(40, 40);
  const auto       view = [&](const HostMatrix &M, const std::string &options, MatType type = MATAIJ) {
    const PCObject pc = MakePC(Spread(M, type, Even), CMATCH(), options);
    MUST(PCSetUp(pc));
    return ViewText((PC)pc);
  };
  const std::string global = view(H, kWide), local = view(H, "-@reach local"), factored = view(H, "-@smoother sfsai"),
                    small = view(Poisson(9, 9), "");
  std::vector<LocalInt> number(H.n);
  /* Neighbours belong to different ranks: row i goes to rank (x + y) % size. */
  std::vector<LocalInt> next(Ranks());
  for (int r = 0; r < Ranks(); r++)
    for (int before = 0; before < r; before++) next[r] += Even(H.n, before, Ranks());
  for (LocalInt i = 0; i < H.n; i++) {
    int rank = (i % 40 + i / 40) % Ranks();
    for (int tries = 0; tries < Ranks(); tries++, rank = (rank + 1) % Ranks()) {
      LocalInt end = 0;
      for (int r = 0; r <= rank; r++) end += Even(H.n, r, Ranks());
      if (next[rank] < end) break;
    }
    number[i] = next[rank]++;
  }
  const std::string scattered = view(Renumbered(H, number), "");
  /* Couplings that are positive make no aggregates, whatever the partition is. */
  HostMatrix positive = H;
  for (PetscScalar &a : positive.a) a = std::fabs(a);
  const std::string stalled = view(positive, ""), one_sweep = view(H, kWide + std::string("-@sweeps 1"));
  if (Rank() || Ranks() == 1) return;
  CAPTURE(global, local, factored, small, scattered, stalled, one_sweep);
  const std::string ranks = std::to_string(Ranks());
  CHECK(!Contains(global, "block-local"));
  CHECK(Contains(global, "level    ranks  rows a rank, least      most  ghosts a rank, most\n"));
  CHECK(Contains(global, "\n      0        " + ranks + " "));
  CHECK(Contains(global, "solver of the last level: the dense inverse\n"));
  CHECK(Contains(global, ", 1600 rows, "));
  CHECK(!Contains(global, "Repartition"));
  CHECK(Contains(local, "block-local: each of " + ranks + " ranks"));
  CHECK(!Contains(factored, "block-local"));
  CHECK(Contains(factored, "levels on several ranks: factors are those of each rank's block of the level\n"));
  CHECK(!Contains(global, "levels on several ranks: factors"));
  CHECK(Contains(small, ", passed to fewer ranks as it is, and not smoothed\n"));
  CHECK(!Contains(small, "Repartition"));
  CHECK(Contains(scattered, "Repartition the matrix, as by MatPartitioning\n"));
  CHECK(Contains(stalled, "coarsening stalled on level "));
  CHECK(!Contains(stalled, "Repartition"));
  CHECK(!Contains(one_sweep, "Repartition"));
  CHECK(Contains(one_sweep, "\n      1        " + ranks + " ")); /* which halves the rows, as much as one sweep can */
}
