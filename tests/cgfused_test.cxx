/*
   KSPCGFUSED beside PETSc's KSPCG on the same systems: the same iterates to rounding, the same counts, reasons, histories and
   calls of the user's functions, on every path.

   About tolerances: two runs of CG that round differently differ by some 1e-15 after the first iteration, and after every further
   one by a factor more that depends on the system. The bounds here are at least twenty times what KSPCG itself shows when
   the entries of its products and its sums are disturbed at random by a few units in the last place, and far below what any wrong
   term does. Counts are compared on systems where KSPCG's are the same with all such disturbances.
*/
#include <finepc.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>

#include "covering.h"
#include "ksp/cgfused.h"
#include "device.h"
#include "pc_support.h"
#include "ranks/nccl.h"
#include "recorder.h"
#include "spread.h"

namespace
{

/* ------------------------------------------ the pair ------------------------------------------ */

/* Where a cgfused solves, and the path that it is asked to take. */
struct Place {
  const Backend *backend;
  const char    *path;

  std::string Options() const { return std::string("-ksp_type cgfused -ksp_cgfused_path ") + path + " "; }
};

/* The paths on which the device makes whole iterations. */
std::vector<Place> DevicePlaces()
{
  if (!DeviceFound()) return {};
  return {
    {&DeviceBackend(), "graph"},
    {&DeviceBackend(), "resident"},
  };
}

/* These, and the general path on all backends. */
std::vector<Place> Places()
{
  std::vector<Place> places;
  for (const Backend &backend : Backends()) places.push_back({&backend, "general"});
  for (const Place &place : DevicePlaces()) places.push_back(place);
  return places;
}

KSPObject MakeFused(Mat A, const Place &place, PCType pc, const std::string &options = "")
{
  return MakeKSP(A, place.Options() + options, pc);
}

/* The line of the view that says the path, "path: graph" or "path: general: why"; empty without one, and on all ranks but the
 * first. */
std::string PathOf(KSP ksp)
{
  const std::string text = ViewText(ksp);
  const size_t      at   = text.find("path: ");
  if (at == std::string::npos) return "";
  const size_t begin = text.rfind('\n', at) + 1, end = text.find('\n', at);
  CHECK(text.find_first_not_of(' ', begin) == at); /* the line begins with the path */
  return text.substr(at, end - at);
}

/* After a solve: the path was the one that was asked for. */
void CheckPath(KSP ksp, const Place &place)
{
  const std::string wanted = std::string("path: ") + place.path;
  CHECK(PathOf(ksp).substr(0, wanted.size()) == wanted);
}

/* The same for a solve on several ranks, which may use NCCL. The first rank looks, since the view is there. */
void CheckRanksPath(KSP ksp, const Backend &backend, bool nccl)
{
  const std::string line = PathOf(ksp); /* collective */
  if (Rank() == 0 && Ranks() > 1)
    CHECK(Contains(line, !PetscMemTypeDevice(backend.where) ? "path: general: the matrix is on the host"
                         : nccl                             ? "path: that of several ranks: "
                                                            : "path: general: several ranks by MPI"));
}

/* After a solve with a monitor or a test of the program: with own products the graph ran, and the view says who had to be waited
 * for. */
void CheckOneByOne(KSP ksp, const Backend &backend, const char *path, const char *why)
{
  const bool own = PetscMemTypeDevice(backend.where) && std::strcmp(path, "general");
  CHECK(Contains(PathOf(ksp), own ? "path: graph" : "path: general: "));
  CHECK(Contains(ViewText(ksp), std::string("the host decides about each iteration before the next one: ") + why) == own);
}

/* Solves one system with both solvers and compares them. Gives what KSPCG did, so that a test can say what it is about. */
Run CompareSolvers(const HostMatrix &H, const Place &place, PCType pc, const std::string &options, double rounding,
                   const std::vector<double> &b_values = {})
{
  CAPTURE(place.backend->name, place.path, pc, options, H.n);
  const MatObject A     = CreateMat(H, place.backend->mat);
  const KSPObject fused = MakeFused(A, place, pc, options), cg = MakeKSP(A, "-ksp_type cg " + options, pc);
  const VecObject b = RightVec(A, 2);
  if (!b_values.empty()) SetValues(b, b_values);
  const Run theirs = RunOf(cg, b);
  Compare(RunOf(fused, b), theirs, rounding);
  CheckPath(fused, place);
  return theirs;
}

const std::vector<const char *> kNorms = {"preconditioned", "unpreconditioned", "natural", "none"};
const std::vector<const char *> kTypes = {PCNONE, PCJACOBI, PCAFSAI, PCSFSAI};

/* A guess that is not zero. Convergence is relative to its residual, since b is tiny beside A x in some systems. */
const char *const kGuess = "-ksp_initial_guess_nonzero -ksp_converged_use_initial_residual_norm ";

std::string Norm(const char *norm)
{
  return std::string("-ksp_norm_type ") + norm + " ";
}

/* ------------------------------------------ matrices ------------------------------------------ */

/* a A + shift I */
HostMatrix Changed(HostMatrix A, double a, double shift)
{
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) A.a[k] = a * A.a[k] + (A.j[k] == row ? shift : 0);
  return A;
}

/* 1, 2, 3, 4, 5 on the diagonal, and again */
HostMatrix FiveValues(LocalInt n)
{
  std::vector<double> values;
  for (LocalInt k = 0; k < n; k++) values.push_back(1 + k % 5);
  return FromDiagonal(values);
}

/* A Poisson problem with Neumann conditions on all sides: the null space is the constants. */
HostMatrix Neumann(PetscInt nx, PetscInt ny)
{
  HostMatrix A = Poisson(nx, ny);
  for (PetscInt row = 0; row < A.n; row++) A = WithEntry(std::move(A), row, row, A.i[row + 1] - A.i[row] - 1.);
  return A;
}

HostMatrix InSingle(HostMatrix A)
{
  for (PetscScalar &value : A.a) value = (float)value;
  return A;
}

/* A diagonally dominant matrix that couples neighbours, and `pairs` pairs of rows at this distance, or with distance 0 at any. */
HostMatrix FarGraph(PetscInt n, PetscInt pairs, PetscInt distance)
{
  Random                                                     random(31);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  const auto                                                 couple = [&](PetscInt p, PetscInt q) {
    if (p == q || std::any_of(rows[p].begin(), rows[p].end(), [&](const auto &entry) { return entry.first == q; })) return;
    const double value = random.Between(-1, -0.1);
    rows[p].emplace_back(q, value);
    rows[q].emplace_back(p, value);
  };
  for (PetscInt p = 1; p < n; p++) couple(p, p - 1);
  for (PetscInt e = 0; e < pairs; e++) {
    const PetscInt p = (PetscInt)(random.Next() >> 33) % (distance ? n - distance : n);
    couple(p, distance ? p + distance : (PetscInt)(random.Next() >> 33) % n);
  }
  for (PetscInt p = 0; p < n; p++) {
    double sum = 0;
    for (const auto &entry : rows[p]) sum += std::fabs(entry.second);
    rows[p].emplace_back(p, 1.1 * sum);
  }
  return FromRows(rows);
}

/* --------------------------------- what users' functions see ---------------------------------- */

void Compare(const std::vector<Call> &mine, const std::vector<Call> &theirs, double rounding)
{
  REQUIRE(mine.size() == theirs.size());
  CHECK(theirs.size() > 1);
  for (size_t k = 0; k < mine.size(); k++) {
    CAPTURE(k);
    CHECK(mine[k].it == theirs[k].it);
    CHECK(EntryDifference({mine[k].norm}, {theirs[k].norm}) <= rounding);
    CHECK(VectorDifference(mine[k].x, theirs[k].x) <= rounding);
    /* a small residual still contains the rounding of the first one, to which the tolerance is relative here */
    CHECK(VectorDifference(mine[k].r, theirs[k].r) <= rounding);
  }
}

} // namespace

/* ------------------------------------- the same iterates -------------------------------------- */

TEST_CASE("cgfused: the same iterates step by step", "[cgfused][long]")
{
  const HostMatrix systems[] = {Plate(), Poisson(24, 20), RandomGraph(500, 7, 3), RandomArrow(300, 4)};
  for (const Place &place : Places())
    for (const auto &[H, pc, norm, guess, k] :
         Covering(systems, kTypes, kNorms, std::vector{"", kGuess}, std::vector{1, 2, 3, 5, 10})) {
      const int most = H.n == 300 && !std::strcmp(pc, PCNONE) ? 3 : k; /* the unscaled arrow is ill-conditioned */
      CompareSolvers(H, place, pc, Norm(norm) + guess + "-ksp_rtol 1e-10 -ksp_max_it " + std::to_string(std::min(k, most)), 1e-10);
    }
}

TEST_CASE("cgfused: the same iterates on structural matrices", "[cgfused][long]")
{
  const std::vector<std::string>    ends = {Norm("unpreconditioned") + "-ksp_max_it 5 ", Norm("natural") + "-ksp_max_it 5 ",
                                            kGuess + std::string("-ksp_max_it 4 ")};
  std::map<std::string, HostMatrix> H;
  for (const std::string name : kStructural) H[name] = Shared(name);
  for (const Place &place : Places())
    for (const auto &[name, pc, end] : Covering(kStructural, kTypes, ends)) {
      CAPTURE(name);
      const double rounding = !std::strcmp(name, "ex15") ? 1e-5 : 1e-10; /* the entries of the factor of ex15 are huge */
      CompareSolvers(H[name], place, pc, end + "-ksp_rtol 1e-30 ", rounding);
    }
}

/* The device runs ahead and makes iterations by the dozen: where it stops must not depend on that. */
TEST_CASE("cgfused: stopped after any number of iterations", "[cgfused]")
{
  for (const Place &place : Places())
    for (const char *convergence : {"default -ksp_norm_type unpreconditioned", "skip -ksp_norm_type none"})
      for (int k = 1; k <= 70; k++) {
        const Run theirs =
          CompareSolvers(Poisson(24, 20), place, PCJACOBI,
                         std::string("-ksp_rtol 1e-30 -ksp_convergence_test ") + convergence + " -ksp_max_it " + std::to_string(k),
                         1e-9);
        CHECK(theirs.iterations == k);
      }
}

TEST_CASE("cgfused: sizes around those of warps and blocks", "[cgfused]")
{
  for (PetscInt n : {1, 2, 31, 32, 33, 1000, 1023, 1024, 1025, 40000})
    for (const Place &place : Places())
      for (PCType pc : {PCJACOBI, PCAFSAI}) {
        /* cuSPARSE 13.0 gives 0 for the last of 32 rows when certain kernels ran before it: MatMult() after PCApply() of afsai,
           say, but not with VecDot() between them. The general path multiplies with it; the others do not. */
        if (n == 32 && pc == std::string(PCAFSAI) && place.backend->where != PETSC_MEMTYPE_HOST &&
            !std::strcmp(place.path, "general"))
          continue;
        CompareSolvers(RandomStencil(n, 1, 1, false, 7), place, pc, "-ksp_rtol 1e-10 -ksp_max_it 5", 1e-11);
      }
}

TEST_CASE("cgfused: long rows and short rows", "[cgfused]")
{
  for (const HostMatrix &H : {RandomArrow(5000, 8), RandomDense(150, 9), FiveValues(3000)})
    for (const Place &place : Places())
      for (PCType pc : {PCNONE, PCJACOBI, PCSFSAI})
        if (H.n < 5000 || std::strcmp(pc, PCSFSAI)) CompareSolvers(H, place, pc, "-ksp_rtol 1e-10 -ksp_max_it 4", 1e-9);
}

TEST_CASE("cgfused: no rows at all", "[cgfused]")
{
  for (const Backend &backend : Backends())
    for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI}) {
      CAPTURE(backend.name, pc);
      const MatObject A = CreateMat(HostMatrix(), backend.mat);
      Compare(RunOf(MakeFused(A, {&backend, "auto"}, pc)), RunOf(MakeKSP(A, "", pc)), 0);
    }
}

/* ------------------------------------- counts and reasons ------------------------------------- */

TEST_CASE("cgfused: the same counts and reasons on many systems", "[cgfused][slow]")
{
  struct System {
    const char *name;
    HostMatrix  H;
  };
  const std::vector<System> systems = {
    {"plate", Plate()},
    {"Poisson 1D", Poisson(40)},
    {"Poisson 2D", Poisson(30, 30)},
    {"Poisson 2D long", Poisson(100, 12)},
    {"Poisson 2D wide", Poisson(64, 64)},
    {"Poisson 3D", Poisson(12, 11, 10)},
    {"shifted Poisson", Changed(Poisson(40, 30), 1, 0.1)},
    {"small Poisson", Changed(Poisson(30, 20), 1e-12, 0)},
    {"large Poisson", Changed(Poisson(30, 20), 1e12, 0)},
    {"chain", RandomStencil(1500, 1, 1, false, 2)},
    {"5 points", RandomStencil(40, 35, 1, false, 3)},
    {"7 points", RandomStencil(12, 12, 12, false, 4)},
    {"9 points", RandomStencil(30, 30, 1, true, 5)},
    {"27 points", RandomStencil(9, 10, 11, true, 6)},
    {"graph 7", RandomGraph(500, 7, 3)},
    {"graph 9", RandomGraph(2000, 9, 11)},
    {"graph 21", RandomGraph(700, 21, 12)},
    {"arrow", RandomArrow(300, 4)},
    {"dense", RandomDense(60, 6)},
    {"graph in single", InSingle(RandomGraph(900, 9, 13))},
  };
  for (const Place &place : Places())
    for (const auto &[system, pc, norm, guess] :
         Covering(systems, std::vector{PCJACOBI, PCAFSAI}, std::vector{"unpreconditioned", "preconditioned"},
                  std::vector{"", kGuess})) {
      /* x of this one is so small that the error of the guess dominates to the end */
      const bool tiny = !std::strcmp(system.name, "large Poisson");
      CAPTURE(system.name);
      const Run theirs = CompareSolvers(system.H, place, pc, Norm(norm) + "-ksp_rtol 1e-8 " + (tiny ? "" : guess), 1e-11);
      CHECK(theirs.reason == KSP_CONVERGED_RTOL);
      CHECK(theirs.iterations >= 2);
    }
}

/* With thousands of iterations no two runs are alike; these tolerances are reached before that. */
TEST_CASE("cgfused: the same counts and reasons on structural matrices", "[cgfused][long]")
{
  struct Case {
    const char *name;
    PCType      pc;
    const char *norm, *rtol;
  };
  const std::vector<Case> cases = {
    {"bcsstk16", PCJACOBI, "unpreconditioned", "1e-1"}, {"bcsstk16", PCAFSAI, "unpreconditioned", "1e-8"},
    {"bcsstk16", PCSFSAI, "unpreconditioned", "1e-8"},  {"bcsstk16", PCAFSAI, "preconditioned", "1e-8"},
    {"bcsstk24", PCAFSAI, "preconditioned", "1e-1"},    {"bcsstk24", PCSFSAI, "preconditioned", "1e-2"},
    {"s3rmt3m3", PCJACOBI, "preconditioned", "1e-1"},   {"s3rmt3m3", PCAFSAI, "preconditioned", "1e-2"},
    {"s3rmt3m3", PCSFSAI, "preconditioned", "1e-2"},    {"ex15", PCJACOBI, "preconditioned", "1e-2"},
  };
  for (const Case &test : cases)
    for (const Place &place : Places()) {
      CAPTURE(test.name);
      const Run theirs = CompareSolvers(Shared(test.name), place, test.pc, Norm(test.norm) + "-ksp_rtol " + test.rtol, 1e-8);
      CHECK(theirs.reason == KSP_CONVERGED_RTOL);
      CHECK(theirs.iterations > 2);
    }
}

TEST_CASE("cgfused: every reason to diverge", "[cgfused]")
{
  const double        nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const HostMatrix    grid = Poisson(12, 12);
  std::vector<double> b(grid.n, 1), bad_b = b;
  bad_b[77] = nan;
  struct Case {
    const char         *name;
    HostMatrix          H;
    PCType              pc;
    std::string         options;
    std::vector<double> b;
    KSPConvergedReason  reason;
  };
  const std::vector<Case> cases = {
    {"p'Ap is 0 at once", FromDiagonal({1, -1}), PCNONE, "", {1, 1}, KSP_DIVERGED_INDEFINITE_MAT},
    {"p'Ap is 0 at once", FromDiagonal({1, -1}), PCNONE, "-ksp_norm_type none", {1, 1}, KSP_DIVERGED_INDEFINITE_MAT},
    {"A = 0", FromDiagonal({0, 0}), PCNONE, "", {1, 1}, KSP_DIVERGED_INDEFINITE_MAT},
    {"p'Ap changes its sign", Changed(grid, 1, -1.3), PCNONE, "", {}, KSP_DIVERGED_INDEFINITE_MAT},
    {"p'Ap changes its sign", Changed(grid, 1, -1.3), PCJACOBI, "-ksp_norm_type natural", {}, KSP_DIVERGED_INDEFINITE_MAT},
    {"p'Ap changes its sign", Changed(grid, 1, -1.3), PCJACOBI, "-ksp_norm_type unpreconditioned", {}, KSP_DIVERGED_INDEFINITE_MAT},
    {"p'Ap changes its sign", Changed(grid, 1, -0.3), PCAFSAI, "", {}, KSP_DIVERGED_INDEFINITE_MAT},
    {"NaN in b", grid, PCNONE, "", bad_b, KSP_DIVERGED_NANORINF},
    {"NaN in b", grid, PCJACOBI, "-ksp_norm_type natural", bad_b, KSP_DIVERGED_NANORINF},
    {"NaN in b", grid, PCJACOBI, "-ksp_norm_type none", bad_b, KSP_DIVERGED_NANORINF},
    {"NaN in b", grid, PCAFSAI, "-ksp_norm_type unpreconditioned", bad_b, KSP_DIVERGED_NANORINF},
    {"NaN in A", WithEntry(grid, 5, 6, nan), PCNONE, "", b, KSP_DIVERGED_NANORINF},
    {"Inf in A", WithEntry(grid, 5, 6, inf), PCJACOBI, "-ksp_norm_type unpreconditioned", b, KSP_DIVERGED_NANORINF},
    {"NaN in A's diagonal", WithEntry(grid, 5, 5, nan), PCJACOBI, "", b, KSP_DIVERGED_NANORINF},
    {"NaN in A with a guess", WithEntry(grid, 5, 6, nan), PCJACOBI, "-ksp_initial_guess_nonzero", b, KSP_DIVERGED_NANORINF},
    {"too large to be squared", Changed(grid, 1e200, 0), PCNONE, "-ksp_initial_guess_nonzero", {}, KSP_DIVERGED_NANORINF},
    {"afsai of a negative entry", WithEntry(grid, 9, 9, -4), PCAFSAI, "", b, KSP_DIVERGED_PC_FAILED},
    {"sfsai of a negative entry", WithEntry(grid, 9, 9, -4), PCSFSAI, "-ksp_norm_type unpreconditioned", b, KSP_DIVERGED_PC_FAILED},
    {"afsai of NaN", WithEntry(grid, 5, 6, nan), PCAFSAI, "-ksp_norm_type natural", b, KSP_DIVERGED_PC_FAILED},
    {"grows", RandomStencil(9, 9, 1, false, 5), PCNONE, Norm("unpreconditioned") + "-ksp_divtol 1.5", {}, KSP_DIVERGED_DTOL},
    {"beyond the limit at first", grid, PCJACOBI, "-ksp_divtol 0.5", b, KSP_DIVERGED_DTOL},
    {"too few iterations", grid, PCJACOBI, "-ksp_max_it 3", b, KSP_DIVERGED_ITS},
    {"too few iterations", grid, PCAFSAI, "-ksp_max_it 3 -ksp_norm_type none", b, KSP_DIVERGED_ITS},
  };
  for (const Case &test : cases)
    for (const Place &place : Places()) {
      if (test.reason == KSP_DIVERGED_PC_FAILED && std::strcmp(place.path, "general"))
        continue; /* without a factor no path but the general one runs */
      /* cuBLAS scales the squares in its norms; cgfused does not, as its manual page says */
      if (!std::strcmp(test.name, "too large to be squared") && place.backend->where != PETSC_MEMTYPE_HOST) continue;
      CAPTURE(test.name);
      const Run theirs = CompareSolvers(test.H, place, test.pc, test.options, 1e-9, test.b);
      CHECK(theirs.reason == test.reason);

      /* KSP_DIVERGED_ITS is an error for the outermost solve alone, and PETSc's count of levels is wrong after the first error */
      if (test.reason == KSP_DIVERGED_ITS) continue;
      const MatObject   A      = CreateMat(test.H, place.backend->mat);
      const std::string strict = test.options + " -ksp_error_if_not_converged";
      PetscErrorCode    code[2];
      for (int fused = 0; fused < 2; fused++) {
        const KSPObject ksp = fused ? MakeFused(A, place, test.pc, strict) : MakeKSP(A, strict, test.pc);
        const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
        if (!test.b.empty()) SetValues(b, test.b);
        Errors errors;
        code[fused] = KSPSolve(ksp, b, x);
        CHECK(!errors.text.empty());
      }
      CHECK((int)code[0] != 0);
      CHECK((int)code[0] == (int)code[1]);
    }
}

TEST_CASE("cgfused: numbers beyond their range are no convergence", "[cgfused]")
{
  struct Case {
    const char        *event;
    int                A, b; /* powers of 2 */
    PCType             pc;
    const char        *options;
    KSPConvergedReason reason;
  };
  const std::vector<Case> cases = {
    {"x overflows", -1016, 10, PCNONE, "", KSP_DIVERGED_NANORINF},
    {"x is 0", 1000, -130, PCNONE, "", KSP_DIVERGED_BREAKDOWN},
    {"r.r is 0", 0, -545, PCNONE, "-ksp_atol 0", KSP_DIVERGED_BREAKDOWN},
    {"r.r is 0", 0, -545, PCJACOBI, "-ksp_atol 0 -ksp_norm_type unpreconditioned", KSP_DIVERGED_BREAKDOWN},
    {"z.z is 0", 0, -545, PCJACOBI, "-ksp_atol 0 -ksp_norm_type preconditioned", KSP_DIVERGED_BREAKDOWN},
    {"r.z is 0", 0, -545, PCJACOBI, "-ksp_atol 0 -ksp_norm_type natural", KSP_DIVERGED_BREAKDOWN},
    {"r.z is 0 without a norm", 800, -300, PCJACOBI, "-ksp_norm_type none", KSP_DIVERGED_BREAKDOWN},
    {"z is 0", 800, -300, PCJACOBI, "-ksp_atol 0 -ksp_norm_type unpreconditioned", KSP_DIVERGED_BREAKDOWN},
    {"r.r is 0, and r is small enough", 0, -545, PCNONE, "-ksp_atol 1e-50", KSP_CONVERGED_ATOL},
    {"small A", -950, 0, PCNONE, "", KSP_CONVERGED_RTOL},
    {"small A", -950, 0, PCJACOBI, "-ksp_norm_type unpreconditioned", KSP_CONVERGED_RTOL},
    {"small A", -950, 0, PCJACOBI, "-ksp_norm_type natural", KSP_CONVERGED_RTOL},
    {"large A", 950, 0, PCNONE, "", KSP_CONVERGED_RTOL},
    {"large A", 950, 0, PCJACOBI, "-ksp_norm_type unpreconditioned", KSP_CONVERGED_RTOL},
    {"large A", 950, 0, PCJACOBI, "-ksp_norm_type natural", KSP_CONVERGED_RTOL},
  };
  for (const Place &place : Places())
    for (const bool single : {false, true})
      for (const Case &test : cases) {
        if (single && std::strcmp(place.path, "general")) continue;
        CAPTURE(place.backend->name, place.path, single, test.event, test.A, test.b, test.pc, test.options);
        const HostMatrix H        = Poisson(12, 12);
        const MatObject  A        = CreateMat(Changed(H, std::ldexp(1., test.A), 0), place.backend->mat),
                        A_1       = CreateMat(H, place.backend->mat);
        const VecObject   b       = RightVec(A, 2);
        const std::string options = std::string("-ksp_rtol 1e-8 ") + (single ? "-ksp_cg_single_reduction " : "") + test.options;
        const KSPObject   ksp = MakeFused(A, place, test.pc, options), plain = MakeFused(A_1, place, test.pc, options);
        const Run         expected = RunOf(plain, b);
        MUST(VecScale(b, std::ldexp(1., test.b)));
        Run run = RunOf(ksp, b);
        CHECK(run.reason == test.reason);
        CheckPath(ksp, place);
        if (test.reason != KSP_CONVERGED_RTOL) continue;
        for (double &x : run.x) x = std::ldexp(x, test.A);
        CHECK(VectorDifference(run.x, expected.x) <= 1e-9);
      }
}

TEST_CASE("cgfused: several ranks and numbers beyond their range", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends())
    for (PCType pc : {PCNONE, PCJACOBI})
      for (int b_power : {0, -545}) {
        CAPTURE(backend.name, pc, b_power);
        const int       A_power = b_power ? 0 : -1012;
        const MatObject A       = CreateMat(Changed(Poisson(12, 12), std::ldexp(1., A_power), 0), backend.mat, PETSC_COMM_WORLD);
        const KSPObject ksp     = MakeKSP(A, "-ksp_type cgfused -ksp_atol 0 -ksp_norm_type unpreconditioned", pc);
        const VecObject b       = RightVec(A, 2);
        MUST(VecScale(b, std::ldexp(1., b_power ? b_power : 12)));
        CHECK(RunOf(ksp, b).reason == (b_power ? KSP_DIVERGED_BREAKDOWN : KSP_DIVERGED_NANORINF));
      }
}

/* The preconditioner is made of another matrix than A: Jacobi of a diagonal of both signs. */
TEST_CASE("cgfused: an indefinite preconditioner", "[cgfused]")
{
  std::vector<double> signs;
  for (int k = 0; k < 144; k++) signs.push_back(k % 3 ? 4 : -4);
  for (const Place &place : Places())
    for (const char *norm : kNorms)
      for (bool exact : {false, true}) {
        CAPTURE(place.backend->name, place.path, norm, exact);
        /* exact: r.z is 0 at first though r and z are not, which KSPCG takes for convergence */
        const HostMatrix H    = exact ? FromDiagonal({3, 2}) : Poisson(12, 12);
        const MatObject  A    = CreateMat(H, place.backend->mat),
                        P     = CreateMat(exact ? FromDiagonal({1, -1}) : FromDiagonal(signs), place.backend->mat);
        const KSPObject fused = MakeFused(A, place, PCJACOBI, Norm(norm)), cg = MakeKSP(A, Norm(norm), PCJACOBI);
        for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(KSPSetOperators(ksp, A, P));
        const VecObject b = RightVec(A, 2);
        if (exact) MUST(VecSet(b, 1));
        const Run  theirs = RunOf(cg, b);
        Run        mine   = RunOf(fused, b);
        const bool zero   = exact && !std::strcmp(norm, "natural"); /* the norm is 0 */
        CHECK(mine.reason == (zero ? theirs.reason : KSP_DIVERGED_INDEFINITE_PC));
        CHECK((theirs.reason == KSP_DIVERGED_INDEFINITE_PC || exact));
        CHECK((theirs.reason > 0 || !exact));
        mine.reason = theirs.reason;
        Compare(mine, theirs, 1e-11);
        CheckPath(fused, place);

        const KSPObject strict = MakeFused(A, place, PCJACOBI, Norm(norm) + "-ksp_error_if_not_converged");
        const VecObject x      = RightVec(A);
        MUST(KSPSetOperators(strict, A, P));
        Errors errors;
        CHECK((KSPSolve(strict, b, x) != 0) == !zero);
      }
}

TEST_CASE("cgfused: negative definite systems converge", "[cgfused]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCNONE, PCJACOBI})
      for (const char *norm : {"unpreconditioned", "natural"})
        CHECK(CompareSolvers(Changed(Poisson(12, 12), -1, 0), place, pc, Norm(norm), 1e-8).reason == KSP_CONVERGED_RTOL);
}

/* On each path, with preconditioners that give the sign back; values that change it meet a graph that has been made. */
TEST_CASE("cgfused: preconditioners of negative definite matrices", "[cgfused][cmatch]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCAFSAI, PCSFSAI, PCCMATCH}) {
      if (pc == std::string(PCCMATCH) && !std::strcmp(place.path, "resident")) continue; /* a cycle has many kernels */
      CAPTURE(place.backend->name, place.path, pc);
      const MatObject   A     = CreateMat(Changed(Poisson(20, 19), -1, 0), place.backend->mat);
      const std::string all   = "-ksp_rtol 1e-6 -pc_cmatch_precision double -pc_cmatch_coarse_size 20 ";
      const KSPObject   fused = MakeFused(A, place, pc, all), cg = MakeKSP(A, all, pc);
      for (double factor : {1., 2., -1., 1., -3.}) {
        CAPTURE(factor);
        MUST(MatScale(A, factor));
        const Run theirs = RunOf(cg);
        CHECK(theirs.reason == KSP_CONVERGED_RTOL);
        Compare(RunOf(fused), theirs, 1e-8);
        CheckPath(fused, place);
      }
    }
}

static PetscErrorCode Negate(PC, Vec x, Vec y)
{
  PetscFunctionBegin;
  PetscCall(VecCopy(x, y));
  PetscCall(VecScale(y, -1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A and M may each have either sign, also where M is the program's; the sums that tell of a change of sign are of one sign then. */
TEST_CASE("cgfused: any definite matrix with any definite preconditioner", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends())
    for (double sign : {1., -1.})
      for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
        for (const char *single : {"-ksp_cg_single_reduction 0 ", "-ksp_cg_single_reduction 1 "}) {
          CAPTURE(backend.name, sign, norm, single);
          const MatObject   A     = CreateMat(Changed(Poisson(12, 12), sign, 0), backend.mat, PETSC_COMM_WORLD);
          const std::string all   = Norm(norm) + single + "-ksp_rtol 1e-6 ";
          const KSPObject   fused = MakeFused(A, {&backend, "auto"}, PCSHELL, all), cg = MakeKSP(A, all, PCSHELL);
          for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(PCShellSetApply(PCOf(ksp), Negate));
          const Run theirs = RunOf(cg);
          CHECK(theirs.reason == KSP_CONVERGED_RTOL);
          Compare(RunOf(fused), theirs, 1e-8);
        }
}

static PetscErrorCode HalveAllButFirst(PC, Vec x, Vec y)
{
  const PetscScalar *from;
  PetscScalar       *to;
  PetscInt           begin, n;

  PetscFunctionBegin;
  PetscCall(VecGetOwnershipRange(x, &begin, nullptr));
  PetscCall(VecGetLocalSize(x, &n));
  PetscCall(VecGetArrayRead(x, &from));
  PetscCall(VecGetArrayWrite(y, &to));
  for (PetscInt k = 0; k < n; k++) to[k] = begin + k ? from[k] / 2 : 0;
  PetscCall(VecRestoreArrayWrite(y, &to));
  PetscCall(VecRestoreArrayRead(x, &from));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A row of zeros whose inverse counts as 0. What the right-hand side has there stays in the residual, and r.z falls to 0 without
 * it. */
TEST_CASE("cgfused: a right-hand side in a row of zeros is no convergence", "[cgfused][mpi]")
{
  std::vector<double> values(12, 2.);
  values[0] = 0;
  for (const Backend &backend : Backends())
    for (double first : {0., 1.}) {
      CAPTURE(backend.name, first);
      const MatObject A   = CreateMat(FromDiagonal(values), backend.mat, PETSC_COMM_WORLD);
      const KSPObject ksp = MakeFused(A, {&backend, "auto"}, PCSHELL, Norm("unpreconditioned"));
      const VecObject b   = RightVec(A, 2);
      MUST(PCShellSetApply(PCOf(ksp), HalveAllButFirst));
      MUST(VecSet(b, 4));
      MUST(VecSetValue(b, 0, first, INSERT_VALUES));
      MUST(VecAssemblyBegin(b));
      MUST(VecAssemblyEnd(b));
      const Run run = RunOf(ksp, b);
      if (first != 0) CHECK(run.reason == KSP_DIVERGED_BREAKDOWN);
      else CHECK(run.reason > 0);
      CHECK(run.norm == Approx(first).margin(1e-12));
    }
}

/* Small integers, so that sums are exact in any order, and 0 is 0. */
TEST_CASE("cgfused: converged at the first moments", "[cgfused]")
{
  const HostMatrix          twice = FromDiagonal(std::vector<double>(100, 2)), grid = Poisson(12, 12);
  const std::vector<double> zeros(100, 0);
  std::vector<double>       small;
  HostMatrix                pairs; /* eigenvalues 1 and 3, or with the diagonal scaled to 1, 1/2 and 3/2 */
  pairs.n = 100;
  for (int k = 0; k < 100; k++) {
    small.push_back(k % 7 - 3);
    for (int column : {k - k % 2, k - k % 2 + 1}) {
      pairs.j.push_back(column);
      pairs.a.push_back(column == k ? 2 : 1);
    }
    pairs.i.push_back(pairs.nnz());
  }
  struct Case {
    const char         *name;
    HostMatrix          H;
    std::vector<double> b;
    std::string         options;
    PetscInt            iterations;
    KSPConvergedReason  reason;
  };
  const std::vector<Case> cases = {
    {"b = 0", twice, zeros, "", 0, KSP_CONVERGED_RTOL},
    {"b = 0 and a tolerance", twice, zeros, "-ksp_atol 1e-20", 0, KSP_CONVERGED_ATOL},
    {"b = 0 and no norm", twice, zeros, "-ksp_norm_type none", 1, KSP_CONVERGED_ATOL},
    {"b = 0 with a guess", grid, std::vector<double>(144, 0), "-ksp_initial_guess_nonzero -ksp_max_it 5", 5, KSP_DIVERGED_ITS},
    {"multiple of I", twice, small, "", 1, KSP_CONVERGED_RTOL},
    {"multiple of I exactly", twice, small, "-ksp_rtol 0", 1, KSP_CONVERGED_RTOL},
    {"multiple of I no norm", twice, small, "-ksp_norm_type none", 2, KSP_CONVERGED_ATOL},
    {"multiple of I no test", twice, small, "-ksp_convergence_test skip", 2, KSP_CONVERGED_ATOL},
    {"two eigenvalues", pairs, small, "", 2, KSP_CONVERGED_RTOL},
    {"at the last iteration", pairs, small, "-ksp_max_it 2", 2, KSP_CONVERGED_RTOL},
    {"one too few", pairs, small, "-ksp_max_it 1", 1, KSP_DIVERGED_ITS},
    {"max_it is 0", grid, {}, "-ksp_max_it 0", 1, KSP_DIVERGED_ITS},
    {"max_it is 1", grid, {}, "-ksp_max_it 1", 1, KSP_DIVERGED_ITS},
    {"max_it is 0 but b is 0", twice, zeros, "-ksp_max_it 0", 0, KSP_CONVERGED_RTOL},
    {"max_it is 0, exact", twice, small, "-ksp_max_it 0", 1, KSP_DIVERGED_ITS},
    {"min_it", Changed(grid, 1, 4), {}, "-ksp_rtol 0.5 -ksp_min_it 7", 7, KSP_CONVERGED_RTOL},
    {"min_it and b = 0", twice, zeros, "-ksp_min_it 3", 1, KSP_CONVERGED_ATOL},
    {"no norm before", Changed(grid, 1, 4), {}, "-ksp_rtol 0.5 -ksp_check_norm_iteration 7", 8, KSP_CONVERGED_RTOL},
    {"nor test", Changed(grid, 1, 4), {}, "-ksp_rtol 0.5 -ksp_check_norm_iteration 4 -ksp_min_it 9", 9, KSP_CONVERGED_RTOL},
    {"max_it converges", grid, {}, "-ksp_converged_maxits -ksp_max_it 6", 6, KSP_CONVERGED_ITS},
    {"max_it converges", grid, {}, "-ksp_converged_maxits -ksp_max_it 6 -ksp_norm_type none", 6, KSP_CONVERGED_ITS},
    {"max_it 0 converges", grid, {}, "-ksp_converged_maxits -ksp_max_it 0", 0, KSP_CONVERGED_ITS},
    {"max_it alone", grid, {}, "-ksp_convergence_test skip -ksp_max_it 6", 6, KSP_CONVERGED_ITS},
    {"absolute", Changed(grid, 1, 4), {}, "-ksp_rtol 0 -ksp_atol 1e-3", -1, KSP_CONVERGED_ATOL},
  };
  for (const Case &test : cases)
    for (const Place &place : Places())
      for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
        for (PCType pc : {PCNONE, PCJACOBI}) {
          if (Contains(test.options, "norm_type") && std::strcmp(norm, "natural"))
            continue; /* these options replace the norm: once is enough */
          if (Contains(test.options, "check_norm") && !std::strcmp(norm, "natural"))
            continue; /* the natural norm is always computed */
          if (Contains(test.options, "min_it") && !kKSPHasMinimumIterations) continue;
          CAPTURE(test.name);
          const Run theirs = CompareSolvers(test.H, place, pc, Norm(norm) + test.options, 1e-8, test.b);
          CHECK(theirs.reason == test.reason);
          if (test.iterations >= 0) CHECK(theirs.iterations == test.iterations);
        }
}

TEST_CASE("cgfused: an exact initial guess", "[cgfused]")
{
  for (const Place &place : Places())
    for (const char *norm : kNorms)
      for (const char *options : {"", "-ksp_rtol 0", "-ksp_rtol 0 -ksp_converged_use_initial_residual_norm"}) {
        CAPTURE(place.backend->name, place.path, norm, options);
        const MatObject   A     = CreateMat(Poisson(12, 12), place.backend->mat);
        const std::string all   = Norm(norm) + "-ksp_initial_guess_nonzero " + options;
        const KSPObject   fused = MakeFused(A, place, PCJACOBI, all), cg = MakeKSP(A, all, PCJACOBI);
        Run               runs[2];
        for (int k = 0; k < 2; k++) {
          const VecObject x = RightVec(A), b = RightVec(A);
          MUST(VecSet(x, 3));
          MUST(MatMult(A, x, b));
          runs[k] = RunOf(k ? (KSP)fused : (KSP)cg, b, x);
        }
        Compare(runs[1], runs[0], 0);
        CheckPath(fused, place);
        CHECK(runs[0].reason > 0);
        CHECK(runs[0].iterations <= 1);
      }
}

TEST_CASE("cgfused: what a guess is measured by", "[cgfused]")
{
  for (const Place &place : Places())
    for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
      for (const char *relative : {"", "-ksp_converged_use_initial_residual_norm", "-ksp_converged_use_min_initial_residual_norm"})
        for (PCType pc : {PCJACOBI, PCSFSAI})
          CHECK(
            CompareSolvers(Poisson(20, 20), place, pc, Norm(norm) + "-ksp_initial_guess_nonzero -ksp_rtol 1e-5 " + relative, 1e-8)
              .iterations > 5);
}

/* -------------------------------------- users' functions -------------------------------------- */

TEST_CASE("cgfused: monitors are called as by KSPCG", "[cgfused]")
{
  for (const Backend &backend : Backends())
    for (const auto &[path, pc, norm, options] :
         Covering(std::vector{"general", "graph", "resident"}, std::vector{PCJACOBI, PCAFSAI}, kNorms,
                  std::vector{"-ksp_max_it 12", "-ksp_max_it 9 -ksp_initial_guess_nonzero",
                              "-ksp_max_it 9 -ksp_check_norm_iteration 4", "-ksp_rtol 1e-2"})) {
      if (!std::strcmp(norm, "none") && Contains(options, "rtol")) continue;
      CAPTURE(backend.name, path, pc, norm, options);
      const MatObject   A     = CreateMat(Poisson(14, 13), backend.mat);
      const std::string all   = Norm(norm) + options;
      const KSPObject   fused = MakeFused(A, {&backend, path}, pc, all), cg = MakeKSP(A, all, pc);
      Recorder          mine, theirs;
      MUST(KSPMonitorSet(fused, RecordMonitor, &mine, nullptr));
      MUST(KSPMonitorSet(cg, RecordMonitor, &theirs, nullptr));
      const Run runs[2] = {RunOf(fused), RunOf(cg)};
      Compare(runs[0], runs[1], 1e-9);
      Compare(mine.calls, theirs.calls, 1e-9);
      CheckOneByOne(fused, backend, path, "a monitor");
    }
}

/* The lines that -ksp_monitor has written into a file. */
static std::vector<std::string> LinesOf(const std::string &name)
{
  std::ifstream            file(name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/* -ksp_monitor has each norm once and in order, from iteration 0 on, however late it comes, and changes no path. */
TEST_CASE("cgfused: a monitor of the norm alone", "[cgfused]")
{
  const std::string name = "cgfused_monitor." + std::to_string(getpid());
  for (const Place &place : Places())
    for (const char *options : {"-ksp_rtol 1e-6 ", "-ksp_max_it 3 ", "-ksp_max_it 0 "}) {
      CAPTURE(place.backend->name, place.path, options);
      const MatObject A = CreateMat(Poisson(14, 13), place.backend->mat);
      Run             run;
      {
        const KSPObject fused = MakeFused(A, place, PCJACOBI, options + ("-ksp_monitor ascii:" + name));
        run                   = RunOf(fused);
        CheckPath(fused, place);
        CHECK(!Contains(ViewText((KSP)fused), "the host decides"));
      }
      CHECK(SameRuns(run, RunOf(MakeFused(A, place, PCJACOBI, options))));
      const std::vector<std::string> lines = LinesOf(name);
      REQUIRE(lines.size() == run.history.size());
      for (size_t k = 0; k < lines.size(); k++) {
        int    it;
        double norm;
        CHECK(std::sscanf(lines[k].c_str(), " %d KSP Residual norm %lf", &it, &norm) == 2);
        CHECK(it == (int)k);
        CHECK(norm == Approx(run.history[k]).epsilon(1e-11));
      }
      (void)std::remove(name.c_str());
    }
}

/* Monitors that come and go take turns with iterations that the device decides about, on the same copies of A. */
TEST_CASE("cgfused: monitors that come and go change nothing", "[cgfused]")
{
  for (const Place &place : Places())
    for (PCType pc : kTypes) {
      CAPTURE(place.backend->name, place.path, pc);
      const MatObject A     = CreateMat(Poisson(14, 13), place.backend->mat);
      const KSPObject fused = MakeFused(A, place, pc, "-ksp_rtol 1e-6");
      const Run       first = RunOf(fused);
      Recorder        recorder;
      for (int time = 0; time < 2; time++) {
        MUST(KSPMonitorSet(fused, RecordMonitor, &recorder, nullptr));
        Compare(RunOf(fused), first, 1e-9);
        CheckOneByOne(fused, *place.backend, place.path, "a monitor");
        MUST(KSPMonitorCancel(fused));
        CHECK(SameRuns(RunOf(fused), first));
        CheckPath(fused, place);
      }
      CHECK(recorder.calls.size() == 2 * first.history.size());
    }
}

/* PETSc leaves the preconditioner and b as they are in a solve when a solver returns an error. */
TEST_CASE("cgfused: a solver whose monitor has failed some times solves again", "[cgfused][bad]")
{
  for (const Place &place : Places()) {
    CAPTURE(place.backend->name, place.path);
    const MatObject A     = CreateMat(Poisson(14, 13), place.backend->mat);
    const KSPObject fused = MakeFused(A, place, PCJACOBI, "-ksp_rtol 1e-6");
    const Run       first = RunOf(fused);
    const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
    MUST(KSPMonitorSet(fused, FailInThird, nullptr, nullptr));
    for (int time = 0; time < 3; time++) {
      Errors errors;
      CHECK(KSPSolve(fused, b, x) == PETSC_ERR_USER);
      CHECK(Contains(errors.text, "this monitor fails"));
    }
    MUST(VecScale(b, 1)); /* it is not locked any more */
    MUST(KSPMonitorCancel(fused));
    CHECK(SameRuns(RunOf(fused), first));
  }
}

TEST_CASE("cgfused: a user's convergence test is called as by KSPCG", "[cgfused]")
{
  for (const Backend &backend : Backends())
    for (const char *path : {"general", "graph", "resident"})
      for (const char *norm : kNorms)
        for (PetscInt stop_at : {-1, 0, 3}) { /* -1: KSPConvergedDefault() decides */
          CAPTURE(backend.name, path, norm, stop_at);
          const MatObject   A     = CreateMat(Poisson(14, 13), backend.mat);
          const std::string all   = Norm(norm) + "-ksp_max_it 12";
          const KSPObject   fused = MakeFused(A, {&backend, path}, PCJACOBI, all), cg = MakeKSP(A, all, PCJACOBI);
          Recorder          recorders[2];
          Run               runs[2];
          for (int k = 0; k < 2; k++) {
            const KSP ksp        = k ? (KSP)cg : (KSP)fused;
            recorders[k].stop_at = stop_at;
            if (stop_at < 0) MUST(KSPConvergedDefaultCreate(&recorders[k].inner));
            MUST(KSPSetConvergenceTest(ksp, RecordTest, &recorders[k], nullptr));
            runs[k] = RunOf(ksp);
            if (stop_at < 0) MUST(KSPDestroyTest(KSPConvergedDefaultDestroy, recorders[k].inner));
          }
          Compare(runs[0], runs[1], 1e-9);
          if (stop_at) Compare(recorders[0].calls, recorders[1].calls, 1e-9);
          if (stop_at >= 0) CHECK(runs[0].iterations == stop_at);
          CheckOneByOne(fused, backend, path, "a convergence test of the program");
        }
}

TEST_CASE("cgfused: solution and residual after a solve", "[cgfused]")
{
  for (const Place &place : Places())
    for (const char *options : {"-ksp_max_it 6", "-ksp_rtol 1e-3 -ksp_norm_type unpreconditioned"}) {
      CAPTURE(place.backend->name, place.path, options);
      const MatObject A     = CreateMat(Poisson(14, 13), place.backend->mat);
      const KSPObject fused = MakeFused(A, place, PCAFSAI, options), cg = MakeKSP(A, options, PCAFSAI);
      const VecObject b = RightVec(A, 2), x = RightVec(A), y = RightVec(A), work = RightVec(A), my_r = RightVec(A),
                      their_r = RightVec(A);
      MUST(KSPSolve(fused, b, x));
      MUST(KSPSolve(cg, b, y));
      CheckPath(fused, place);
      Vec vec;
      MUST(KSPBuildResidual(fused, work, my_r, &vec));
      MUST(KSPBuildResidual(cg, work, their_r, &vec));
      CHECK(Difference(Values(my_r), Values(their_r)) <= 1e-11);
      MUST(KSPBuildSolution(fused, nullptr, &vec));
      CHECK(Difference(Values(vec), Values(y)) <= 1e-11);
    }
}

/* ---------------------------------------- eigenvalues ----------------------------------------- */

/* The Lanczos matrix of early iterations, before rounding puts copies of eigenvalues into it. */
TEST_CASE("cgfused: eigenvalues and extreme singular values", "[cgfused]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI, PCSFSAI})
      for (const char *options : {"-ksp_max_it 1", "-ksp_max_it 15 -ksp_norm_type none", "-ksp_rtol 1e-4",
                                  "-ksp_max_it 10 -ksp_norm_type natural -ksp_initial_guess_nonzero"})
        for (bool monitor : {false, true}) {
          CAPTURE(place.backend->name, place.path, pc, options, monitor);
          const MatObject     A     = CreateMat(Poisson(14, 13), place.backend->mat);
          const std::string   all   = options + std::string(monitor ? " -ksp_monitor_singular_value ascii:/dev/null" : "");
          const KSPObject     fused = MakeFused(A, place, pc, all), cg = MakeKSP(A, all, pc);
          PetscReal           most[2], least[2];
          std::vector<double> eigenvalues[2];
          for (int k = 0; k < 2; k++) {
            const KSP ksp = k ? (KSP)cg : (KSP)fused;
            PetscReal real[200], imaginary[200];
            PetscInt  count;
            MUST(KSPSetComputeEigenvalues(ksp, PETSC_TRUE));
            for (int repeat = 0; repeat < 2; repeat++) RunOf(ksp); /* each solve starts a new Lanczos matrix */
            MUST(KSPComputeExtremeSingularValues(ksp, &most[k], &least[k]));
            MUST(KSPComputeEigenvalues(ksp, 200, real, imaginary, &count));
            eigenvalues[k].assign(real, real + count);
          }
          CHECK(!eigenvalues[1].empty());
          CHECK(eigenvalues[0].size() == eigenvalues[1].size());
          if (kCGEstimatesEigenvalues) {
            CHECK(EntryDifference({most[0], least[0]}, {most[1], least[1]}) <= 1e-9);
            CHECK(VectorDifference(eigenvalues[0], eigenvalues[1]) <= 1e-9);
          }
          if (!monitor) CheckPath(fused, place);
        }
}

/* The room for the Lanczos matrix follows the iterations that are made. */
TEST_CASE("cgfused: eigenvalues with the largest limit of iterations, and asked for after the set-up", "[cgfused]")
{
  for (const Place &place : Places()) {
    CAPTURE(place.backend->name, place.path);
    const MatObject     A = CreateMat(Poisson(60, 59), place.backend->mat);
    std::vector<double> values[3];
    for (int k = 0; k < 3; k++) {
      const char     *limit[] = {"-ksp_max_it 2147483647", "-ksp_max_it 500", "-ksp_max_it 500"};
      const KSPObject ksp     = MakeFused(A, place, PCNONE, std::string("-ksp_rtol 1e-10 ") + limit[k]);
      PetscReal       real[1000], imaginary[1000];
      PetscInt        count, iterations;
      if (k == 2) MUST(KSPSetUp(ksp));
      MUST(KSPSetComputeEigenvalues(ksp, PETSC_TRUE));
      iterations = RunOf(ksp).iterations;
      MUST(KSPComputeEigenvalues(ksp, 1000, real, imaginary, &count));
      CHECK(count == iterations);
      CHECK(count > 128); /* the room that there is at first */
      values[k].assign(real, real + count);
    }
    for (int k : {0, 2})
      CHECK(EntryDifference({values[k].front(), values[k].back()}, {values[1].front(), values[1].back()}) <= 1e-6);
    CHECK((values[1].front() > 0 && values[1].back() < 8));
  }
}

/* --------------------------------------- the same bits ---------------------------------------- */

TEST_CASE("cgfused: the same solve gives the same bits", "[cgfused]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCNONE, PCAFSAI})
      for (const HostMatrix &H : {Poisson(60, 60), RandomGraph(2000, 9, 4)}) {
        CAPTURE(place.backend->name, place.path, pc, H.n);
        const MatObject A     = CreateMat(H, place.backend->mat);
        const KSPObject ksp   = MakeFused(A, place, pc, "-ksp_max_it 60");
        const Run       first = RunOf(ksp);
        for (int repeat = 0; repeat < 3; repeat++) {
          CHECK(SameRuns(RunOf(ksp), first));
          CHECK(SameRuns(RunOf(MakeFused(A, place, pc, "-ksp_max_it 60")), first));
        }
        CheckPath(ksp, place);
      }
}

/* ----------------------------------------- life cycle ----------------------------------------- */

TEST_CASE("cgfused: many solves with other vectors", "[cgfused]")
{
  for (const Place &place : Places())
    for (const char *guess : {"", "-ksp_initial_guess_nonzero"}) {
      CAPTURE(place.backend->name, place.path, guess);
      const MatObject A     = CreateMat(Poisson(20, 18), place.backend->mat);
      const KSPObject fused = MakeFused(A, place, PCAFSAI, guess), cg = MakeKSP(A, guess, PCAFSAI);
      for (std::uint64_t seed = 1; seed < 5; seed++) {
        const VecObject b = RightVec(A, seed), x = RightVec(A, seed + 10), y = RightVec(A, seed + 10);
        Compare(RunOf(fused, b, x), RunOf(cg, b, y), 1e-8);
        MUST(VecScale(b, -3)); /* other values in the same vectors */
        Compare(RunOf(fused, b, x), RunOf(cg, b, y), 1e-8);
        CheckPath(fused, place);
      }
    }
}

TEST_CASE("cgfused: the matrix changes", "[cgfused]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI, PCSFSAI})
      for (bool reuse : {false, true}) { /* the preconditioner stays as it is, but A is the new one */
        CAPTURE(place.backend->name, place.path, pc, reuse);
        MatObject       A     = CreateMat(Poisson(16, 15), place.backend->mat);
        const KSPObject fused = MakeFused(A, place, pc, "-ksp_max_it 8"), cg = MakeKSP(A, "-ksp_max_it 8", pc);
        Run             last;
        const auto      compare = [&](bool changed) {
          const Run mine = RunOf(fused), theirs = RunOf(cg);
          Compare(mine, theirs, 1e-10);
          CheckPath(fused, place);
          CHECK(SameRuns(mine, last) == !changed);
          last = mine;
        };
        compare(true);
        for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(KSPSetReusePreconditioner(ksp, reuse ? PETSC_TRUE : PETSC_FALSE));
        compare(false);
        ChangeValues(A, 0.4); /* entry by entry, on the host */
        compare(true);
        MUST(MatShift(A, 0.3));
        compare(true);
        MUST(MatScale(A, 1.7)); /* on the device */
        compare(true);
        Touch(A);
        compare(false);
        if (reuse) continue;

        /* other Mats, with the same nonzeros and with others, each possibly at the address of the last one */
        for (const HostMatrix &H :
             {Changed(Poisson(16, 15), 1, 0.5), Changed(Poisson(16, 15), 1, 0.7), RandomGraph(240, 5, 3), Poisson(15, 16)}) {
          for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(KSPReset(ksp));
          A = CreateMat(H, place.backend->mat);
          for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(KSPSetOperators(ksp, A, A));
          compare(true);
        }
        const MatObject B = CreateMat(RandomGraph(240, 9, 4), place.backend->mat); /* a Mat of other nonzeros without a reset */
        for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(KSPSetOperators(ksp, B, B));
        compare(true);
      }
}

/* The Mat stays the same one, with as many entries in other columns, and its state does not tell. */
TEST_CASE("cgfused: nonzeros that change in place", "[cgfused]")
{
  constexpr PetscInt n = 240;
  for (const Place &place : Places())
    for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI, PCSFSAI}) {
      CAPTURE(place.backend->name, place.path, pc);
      const MatObject A     = CreateMat(Poisson(n, 1), place.backend->mat);
      const KSPObject fused = MakeFused(A, place, pc, "-ksp_max_it 6"), cg = MakeKSP(A, "-ksp_max_it 6", pc);
      for (PetscInt width : {2, 3, 40, 2}) {
        CAPTURE(width);
        ReplaceByCOO(A, Ring(n, width));
        Compare(RunOf(fused), RunOf(cg), 1e-10);
        CheckPath(fused, place);
      }
    }
}

TEST_CASE("cgfused: other sizes after a reset", "[cgfused]")
{
  for (const Place &place : Places()) {
    CAPTURE(place.backend->name, place.path);
    const MatObject first = CreateMat(Poisson(9, 9), place.backend->mat);
    const KSPObject fused = MakeFused(first, place, PCAFSAI, "-ksp_max_it 8");
    MUST(KSPReset(fused)); /* before any solve */
    for (const HostMatrix &H : {Poisson(9, 9), Poisson(40, 30), Poisson(3, 2), Poisson(9, 9)}) {
      const MatObject A = CreateMat(H, place.backend->mat);
      MUST(KSPReset(fused));
      MUST(KSPSetOperators(fused, A, A));
      Compare(RunOf(fused), RunOf(MakeKSP(A, "-ksp_max_it 8", PCAFSAI)), 1e-10);
      CheckPath(fused, place);
    }
    MUST(KSPReset(fused));
    MUST(KSPReset(fused));
  }
}

TEST_CASE("cgfused: other sizes without a reset are an error", "[cgfused][gmresfused][rrbcg][bad]")
{
  for (const Backend &backend : Backends())
    for (const char *solver : {"cgfused", "gmresfused", "rrbcg"})
      for (bool larger : {false, true}) {
        CAPTURE(backend.name, solver, larger);
        const char *const pc    = std::strcmp(solver, "rrbcg") ? PCAFSAI : PCRRB;
        const MatObject   small = CreateMat(Poisson(9, 9), backend.mat), large = CreateMat(Poisson(16, 16), backend.mat);
        const KSPObject   ksp = MakeKSP(larger ? small : large, std::string("-ksp_type ") + solver, pc);
        const Mat         A   = larger ? large : small;
        Solve(ksp);
        MUST(PCSetType(PCOf(ksp), PCNONE)); /* a PC of the old size would be an error of its own */
        MUST(PCSetType(PCOf(ksp), pc));
        MUST(KSPSetOperators(ksp, A, A));
        {
          const VecObject b = RightVec(A), x = RightVec(A);
          Errors          errors;
          for (int repeat = 0; repeat < 3; repeat++) CHECK(KSPSolve(ksp, b, x) == PETSC_ERR_ARG_SIZ);
          CHECK(Contains(errors.text, "call KSPReset()"));
        }
        MUST(KSPReset(ksp));
        MUST(KSPSetOperators(ksp, A, A));
        CHECK(Solve(ksp).reason > 0);
      }
}

/* The hierarchy of a set-up may get the memory of the one before, whose graph must not be launched again. */
static void CompareHierarchies(Mat A, KSP fused, KSP cg, const std::function<void()> &compare)
{
  compare();
  compare();
  MUST(MatScale(A, 3));
  compare();
  for (PetscInt sweeps : {1, 3, 2, 3, 1}) {
    CAPTURE(sweeps);
    for (KSP ksp : {fused, cg}) {
      MUST(PCReset(PCOf(ksp)));
      MUST(PCCMATCHSetSweeps(PCOf(ksp), sweeps));
      MUST(KSPSetOperators(ksp, A, A));
    }
    compare();
    MUST(MatScale(A, 0.5));
    compare();
  }
}

TEST_CASE("cgfused: matching AMG, new values and new hierarchies", "[cgfused][cmatch][sanitizer]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const std::string all   = "-ksp_rtol 1e-9 -pc_cmatch_precision double -pc_cmatch_coarse_size 20";
    const MatObject   A     = CreateMat(Poisson(30, 29), backend.mat);
    const KSPObject   fused = MakeFused(A, {&backend, "auto"}, PCCMATCH, all), cg = MakeKSP(A, all, PCCMATCH);
    CompareHierarchies(A, fused, cg, [&] {
      Compare(RunOf(fused), RunOf(cg), 1e-7);
      CHECK(Contains(PathOf(fused), PetscMemTypeDevice(backend.where) ? "graph" : "general"));
    });
  }
}

TEST_CASE("cgfused: type and preconditioner change between solves", "[cgfused]")
{
  for (const Place &place : Places()) {
    CAPTURE(place.backend->name, place.path);
    const MatObject A   = CreateMat(Poisson(16, 15), place.backend->mat);
    const KSPObject ksp = MakeFused(A, place, PCJACOBI, "-ksp_max_it 8");
    for (PCType pc : {PCJACOBI, PCAFSAI, PCNONE, PCSFSAI, PCJACOBI, PCAFSAI}) {
      MUST(PCSetType(PCOf(ksp), pc));
      Compare(RunOf(ksp), RunOf(MakeKSP(A, "-ksp_max_it 8", pc)), 1e-10);
      CheckPath(ksp, place);
    }
    MUST(PCAFSAISetMaxSteps(PCOf(ksp), 2)); /* another factor of the same A */
    Compare(RunOf(ksp), RunOf(MakeKSP(A, "-ksp_max_it 8 -pc_afsai_max_steps 2", PCAFSAI)), 1e-10);
    MUST(PCAFSAISetFactorPrecision(PCOf(ksp), FINEPC_DOUBLE));
    Compare(RunOf(ksp), RunOf(MakeKSP(A, "-ksp_max_it 8 -pc_afsai_max_steps 2 -pc_afsai_factor_precision double", PCAFSAI)), 1e-10);

    const Run before = RunOf(ksp);
    MUST(KSPSetType(ksp, KSPCG));
    RunOf(ksp);
    CHECK(PathOf(ksp).empty());
    MUST(KSPSetType(ksp, "cgfused"));
    {
      const Options options(place.Options());
      MUST(KSPSetFromOptions(ksp));
    }
    CHECK(SameRuns(RunOf(ksp), before));
    CheckPath(ksp, place);
  }
}

TEST_CASE("cgfused: destroyed without a solve", "[cgfused]")
{
  for (const Place &place : Places()) {
    const MatObject A      = CreateMat(Poisson(16, 15), place.backend->mat);
    PetscLogDouble  before = 0;
    for (int repeat = 0; repeat < 3; repeat++) {
      CAPTURE(place.backend->name, place.path, repeat);
      {
        const KSPObject created = MakeFused(A, place, PCAFSAI), set_up = MakeFused(A, place, PCAFSAI),
                        solved = MakeFused(A, place, PCAFSAI, "-ksp_max_it 3");
        CHECK(!ViewText((KSP)created).empty());
        MUST(KSPSetUp(set_up));
        CHECK(!ViewText((KSP)set_up).empty());
        RunOf(solved);
      }
      if (repeat == 1) before = HostBytes();
      CHECK(HostBytes() > 0);
      if (repeat == 2) CHECK(HostBytes() == before); /* all memory has been freed */
    }
  }
}

/* The columns of a matrix with an odd leading dimension are aligned to 8 bytes, not to 16. */
TEST_CASE("cgfused: vectors that are columns", "[cgfused]")
{
  for (const Place &place : Places())
    for (PetscInt n : {225, 1000})
      for (const char *guess : {"", "-ksp_initial_guess_nonzero"}) {
        CAPTURE(place.backend->name, place.path, n, guess);
        const PetscInt    columns = 5, ld = n % 2 ? n + 2 : n + 1;
        const MatObject   A     = CreateMat(RandomGraph(n, 7, 2), place.backend->mat);
        const std::string all   = std::string("-ksp_max_it 6 ") + guess;
        const KSPObject   fused = MakeFused(A, place, PCAFSAI, all), cg = MakeKSP(A, all, PCAFSAI);
        MatObject         B, X;
        for (MatObject *dense : {&B, &X}) {
          PetscScalar *array;
          Random       random(3);
          MUST(MatCreate(PETSC_COMM_SELF, dense->put()));
          MUST(MatSetSizes(*dense, n, columns, n, columns));
          MUST(MatSetType(*dense, place.backend->dense));
          MUST(MatDenseSetLDA(*dense, ld));
          MUST(MatSetUp(*dense));
          MUST(MatDenseGetArrayWrite(*dense, &array));
          for (PetscInt k = 0; k < ld * columns; k++) array[k] = k % ld < n ? random.Between(-1, 1) : std::nan("");
          MUST(MatDenseRestoreArrayWrite(*dense, &array));
        }
        for (PetscInt column = 0; column < columns; column++) {
          Vec       b, x;
          VecObject y = RightVec(A), start = RightVec(A);
          MUST(MatDenseGetColumnVecRead(B, column, &b));
          MUST(MatDenseGetColumnVec(X, column, &x));
          MUST(VecCopy(x, y));
          MUST(VecCopy(b, start));
          const Run theirs = RunOf(cg, start, y), mine = RunOf(fused, b, x);
          MUST(MatDenseRestoreColumnVec(X, column, &x));
          MUST(MatDenseRestoreColumnVecRead(B, column, &b));
          Compare(mine, theirs, 1e-10);
          CheckPath(fused, place);
        }

        /* a block of them */
        MatObject Y;
        MUST(MatDuplicate(X, MAT_COPY_VALUES, Y.put()));
        MUST(KSPMatSolve(fused, B, X));
        MUST(KSPMatSolve(cg, B, Y));
        CheckPath(fused, place);
        MUST(MatAXPY(Y, -1, X, SAME_NONZERO_PATTERN));
        PetscReal off, size;
        MUST(MatNorm(Y, NORM_FROBENIUS, &off));
        MUST(MatNorm(X, NORM_FROBENIUS, &size));
        CHECK(off <= 1e-10 * size);
      }
}

TEST_CASE("cgfused: a scaled system", "[cgfused]")
{
  for (const Place &place : Places())
    for (const char *fix : {"", " -ksp_diagonal_scale_fix"}) {
      CAPTURE(place.backend->name, place.path, fix);
      const std::string all = std::string("-ksp_max_it 8 -ksp_diagonal_scale") + fix;
      /* the solvers scale their matrix */
      const MatObject A = CreateMat(Plate(), place.backend->mat), B = CreateMat(Plate(), place.backend->mat);
      const KSPObject fused = MakeFused(A, place, PCAFSAI, all), cg = MakeKSP(B, all, PCAFSAI);
      for (int repeat = 0; repeat < 2; repeat++) Compare(RunOf(fused), RunOf(cg), 1e-10);
    }
}

/* ----------------------------------------- null space ----------------------------------------- */

TEST_CASE("cgfused: a singular system with its null space", "[cgfused]")
{
  for (const Backend &backend : Backends())
    for (const char *path : {"general", "resident"})
      for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI})
        for (const char *norm : {"preconditioned", "unpreconditioned", "natural"}) {
          CAPTURE(backend.name, path, pc, norm);
          const MatObject A = CreateMat(Neumann(20, 20), backend.mat);
          MatNullSpace    constants;
          SetConstantsNull(A);
          MUST(MatGetNullSpace(A, &constants));
          MUST(MatSetTransposeNullSpace(A, constants)); /* KSPSolve() makes b fit */
          const std::string all   = Norm(norm) + "-ksp_rtol 1e-6";
          const KSPObject   fused = MakeFused(A, {&backend, path}, pc, all), cg = MakeKSP(A, all, pc);
          const Run         theirs = RunOf(cg);
          Compare(RunOf(fused), theirs, 1e-9);
          CHECK(theirs.reason == KSP_CONVERGED_RTOL);
          CHECK(Contains(PathOf(fused), "path: general: "));
        }
}

static PetscErrorCode ForgetAll(PC, Vec, Vec y)
{
  return VecSet(y, 0);
}

/* Where r.z = 0 the residual may be in the null space, and in nothing else. */
TEST_CASE("cgfused: a preconditioner that is 0 is no convergence beside a null space", "[cgfused]")
{
  const MatObject A = CreateMat(Neumann(6, 6), MATAIJ);
  SetConstantsNull(A);
  for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
    for (bool inside : {false, true}) {
      CAPTURE(norm, inside);
      const KSPObject ksp = MakeFused(A, {&HostBackend(), "general"}, PCSHELL, Norm(norm));
      const VecObject b   = RightVec(A, 2);
      MUST(PCShellSetApply(PCOf(ksp), ForgetAll));
      if (inside) MUST(VecSet(b, 3));
      const KSPConvergedReason reason = RunOf(ksp, b).reason;
      if (inside || std::string(norm) != "unpreconditioned") CHECK(reason > 0);
      else CHECK(reason == KSP_DIVERGED_BREAKDOWN);
    }
}

/* ------------------------------------------ the view ------------------------------------------ */

/* KSPSetUp() is content with vectors of the system and a matrix for the preconditioner. */
TEST_CASE("cgfused: a matrix whose type was forgotten is an error", "[cgfused][bad]")
{
  const MatObject P = CreateMat(Plate(), MATAIJ);
  const VecObject b = RightVec(P, 2), x = RightVec(P);
  MatObject       A;
  PetscInt        n;
  MUST(VecGetSize(b, &n));
  MUST(MatCreate(PETSC_COMM_SELF, A.put()));
  MUST(MatSetSizes(A, n, n, n, n));
  for (const char *path : {"auto", "general"}) {
    CAPTURE(path);
    const KSPObject ksp = MakeFused(P, {&HostBackend(), path}, PCJACOBI);
    MUST(KSPSetOperators(ksp, A, P));
    Errors errors;
    CHECK(KSPSolve(ksp, b, x) != 0);
    CHECK(Contains(errors.text, "has no type: call MatSetType()"));
  }
}

TEST_CASE("cgfused: the residual of no solve is an error", "[cgfused][bad]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A   = CreateMat(Plate(), backend.mat);
    const KSPObject ksp = MakeFused(A, {&backend, "auto"}, PCJACOBI);
    const VecObject t = RightVec(A), v = RightVec(A);
    Vec             r;
    for (bool solved : {false, true}) {
      CAPTURE(solved);
      if (solved) {
        MUST(KSPSetOperators(ksp, A, A));
        RunOf(ksp);
      }
      MUST(KSPReset(ksp));
      Errors errors;
      CHECK(KSPBuildResidual(ksp, t, v, &r) != 0);
      CHECK(Contains(errors.text, "before KSPSolve()"));
    }
  }
}

TEST_CASE("cgfused: keys and setters do the same", "[cgfused][options]")
{
  const MatObject A = CreateMat(Plate(), MATAIJ);
  KSPObject       fresh;
  const auto      check = [](KSP ksp, KSPCGFusedPath path, PetscBool compress, KSPCGFusedCommunication communication) {
    CHECK(Got(KSPCGFusedGetPath, ksp) == path);
    CHECK(Got(KSPCGFusedGetCompress, ksp) == compress);
    CHECK(Got(KSPCGFusedGetCommunication, ksp) == communication);
  };
  MUST(KSPCreate(PETSC_COMM_SELF, fresh.put()));
  MUST(KSPSetType(fresh, KSPCGFUSED));
  check(fresh, KSP_CGFUSED_AUTO, PETSC_TRUE, KSP_CGFUSED_COMMUNICATION_AUTO);
  for (KSPCGFusedPath path : {KSP_CGFUSED_RESIDENT, KSP_CGFUSED_GRAPH, KSP_CGFUSED_GENERAL, KSP_CGFUSED_AUTO})
    for (PetscBool compress : {PETSC_FALSE, PETSC_TRUE})
      for (KSPCGFusedCommunication communication :
           {KSP_CGFUSED_COMMUNICATION_NCCL, KSP_CGFUSED_COMMUNICATION_MPI, KSP_CGFUSED_COMMUNICATION_AUTO}) {
        CAPTURE(path, compress, communication);
        check(MakeFused(A, {&HostBackend(), KSPCGFusedPaths[path]}, PCNONE,
                        std::string("-ksp_cgfused_compress ") + (compress ? "true" : "false") + " -ksp_cgfused_communication " +
                          KSPCGFusedCommunications[communication]),
              path, compress, communication);
        MUST(KSPCGFusedSetPath(fresh, path));
        MUST(KSPCGFusedSetCompress(fresh, compress));
        MUST(KSPCGFusedSetCommunication(fresh, communication));
        check(fresh, path, compress, communication);
      }
  const Options sideways("-ksp_cgfused_path sideways");
  Errors        errors;
  CHECK(KSPSetFromOptions(fresh) != 0);
  CHECK(Contains(errors.text, "sideways"));
}

TEST_CASE("cgfused: the view on the host", "[cgfused]")
{
  for (const char *path : {"auto", "general", "graph", "resident"}) {
    CAPTURE(path);
    const MatObject A   = CreateMat(Plate(), MATAIJ);
    const KSPObject ksp = MakeFused(A, {&HostBackend(), path}, PCJACOBI);
    RunOf(ksp);
    CHECK(Contains(ViewText((KSP)ksp), "type: cgfused"));
    CHECK(Contains(PathOf(ksp), "path: general: "));
    if (std::strcmp(path, "general")) CHECK(Contains(PathOf(ksp), "host"));
  }
}

TEST_CASE("cgfused: the view says why not on the device", "[cgfused][gpu]")
{
  NEEDS_DEVICE();
  using Change = std::function<void(KSP)>;
  struct Case {
    const char *reason; /* a word of the reason that the view gives */
    MatType     mat;
    PCType      pc;
    const char *options;
    Change      change;
  };
  const Change            nothing = [](KSP) { };
  const std::vector<Case> cases   = {
    {"icc", MATAIJCUSPARSE, PCICC, "", nothing},
    {"single reduction", MATAIJCUSPARSE, PCJACOBI, "-ksp_cg_single_reduction", nothing},
    {"null space", MATAIJCUSPARSE, PCJACOBI, "",
       [](KSP ksp) {
       Mat A;
       MUST(KSPGetOperators(ksp, &A, nullptr));
       SetConstantsNull(A);
     }},
    {"host", MATAIJ, PCJACOBI, "", nothing},
    {"densecuda", MATDENSECUDA, PCNONE, "", nothing},
    {"transpose", MATAIJCUSPARSE, PCJACOBI, "", nothing},
  };
  for (const char *path : {"auto", "graph", "resident"})
    for (const Case &test : cases) {
      CAPTURE(path, test.reason);
      const MatObject sparse = CreateMat(Poisson(15, 15), std::strcmp(test.mat, MATAIJ) ? MATAIJCUSPARSE : MATAIJ);
      MatObject       A;
      MUST(MatConvert(sparse, test.mat, MAT_INITIAL_MATRIX, A.put()));
      const Place     place = {&DeviceBackend(), path};
      const KSPObject ksp   = MakeFused(A, place, test.pc, test.options);
      const VecObject b = RightVec(A, 2), x = RightVec(A);
      if (std::strcmp(test.reason, "transpose")) {
        RunOf(ksp); /* first without the obstacle, if it is one that can be set */
        test.change(ksp);
        MUST(KSPSolve(ksp, b, x));
      } else MUST(KSPSolveTranspose(ksp, b, x));
      CHECK(Contains(PathOf(ksp), "path: general: "));
      CHECK(Contains(PathOf(ksp), test.reason));
    }

  const MatObject A   = CreateMat(Poisson(15, 15), MATAIJCUSPARSE);
  const KSPObject ksp = MakeFused(A, {&DeviceBackend(), "auto"}, PCAFSAI);
  const VecObject b = CreateVec(225, VECSEQ, 1), x = CreateVec(225, VECSEQ, 2);
  RunOf(ksp);
  CHECK((PathOf(ksp).substr(0, 11) == "path: graph" || PathOf(ksp).substr(0, 14) == "path: resident"));
  const Run mine = RunOf(ksp, b, x); /* the matrix is on the device, the vectors are on the host */
  CHECK((PathOf(ksp).substr(0, 11) == "path: graph" || PathOf(ksp).substr(0, 14) == "path: resident"));
  CHECK(mine.reason > 0);
  CHECK(ResidualOf(CreateMat(Poisson(15, 15), MATAIJ), b, x) <= 1e-4); /* the tolerance is 1e-5 in the preconditioned norm */
}

/* ----------------------------------------- the device ----------------------------------------- */

TEST_CASE("cgfused: compressed copies give the same bits", "[cgfused][gpu]")
{
  NEEDS_DEVICE();
  const PetscInt          n       = 140000;
  std::vector<HostMatrix> systems = {
    Poisson(200, 200),                 /* columns that are near, values that are exact in single precision */
    RandomStencil(60, 50, 1, true, 3), /* columns that are near, values that are not exact */
    RandomGraph(2000, 9, 4),
    InSingle(RandomGraph(2000, 9, 4)),
    FarGraph(80000, 100000, 0),                       /* columns that are far apart, values that are not exact */
    InSingle(FarGraph(80000, 100000, 0)),             /* columns that are far apart, values that are exact */
    Changed(Poisson(30, 30), std::ldexp(1, -140), 0), /* exact in single precision, but subnormal there */
    Changed(Poisson(30, 30), std::ldexp(1, -160), 0), /* would be 0 in single precision */
    Changed(Poisson(30, 30), std::ldexp(1, 130), 0),  /* would be infinite in single precision */
    WithEntry(WithEntry(Poisson(30, 30), 5, 6, -1 - 1e-12), 6, 5, -1 - 1e-12), /* one pair of entries is not exact */
  };
  /* distances around the largest ones that 16 bits hold */
  for (PetscInt distance : {32767, 32768, 32769, 65534, 65535, 65536, 65537}) systems.push_back(FarGraph(n, 2000, distance));
  for (size_t k = 0; k < systems.size(); k++) {
    const MatObject A = CreateMat(systems[k], MATAIJCUSPARSE);
    for (const Place &place : DevicePlaces())
      for (const char *pc : {PCNONE, PCJACOBI, PCAFSAI, "sfsai -pc_sfsai_factor_precision double"}) {
        CAPTURE(k, place.path, pc);
        const std::string all    = std::string("-ksp_rtol 1e-30 -ksp_max_it 6 -pc_type ") + pc;
        const KSPObject   packed = MakeFused(A, place, PCNONE, all + " -ksp_cgfused_compress true"),
                        plain    = MakeFused(A, place, PCNONE, all + " -ksp_cgfused_compress false");
        const Run mine           = RunOf(packed);
        CHECK(SameRuns(mine, RunOf(plain)));
        CheckPath(packed, place);
        CheckPath(plain, place);
        Compare(mine, RunOf(MakeKSP(A, all, PCNONE)), 1e-9);
      }
  }
}

/* New values may need double precision where the old ones did not. */
TEST_CASE("cgfused: values that were exact in single and no longer are", "[cgfused][gpu]")
{
  NEEDS_DEVICE();
  for (const Place &place : DevicePlaces()) {
    CAPTURE(place.path);
    const MatObject A   = CreateMat(Poisson(20, 20), MATAIJCUSPARSE);
    const KSPObject ksp = MakeFused(A, place, PCNONE, "-ksp_max_it 8");
    for (double factor : {0., 1e-9, 0.1}) {
      ChangeValues(A, factor);
      Compare(RunOf(ksp), RunOf(MakeKSP(A, "-ksp_max_it 8", PCNONE)), 1e-11);
      CheckPath(ksp, place);
    }
  }
}

TEST_CASE("cgfused: nothing is allocated from the second solve on", "[cgfused]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCNONE, PCAFSAI})
      for (const char *options : {"", "-ksp_norm_type unpreconditioned -ksp_max_it 30", "-ksp_norm_type none -ksp_max_it 40"}) {
        CAPTURE(place.backend->name, place.path, pc, options);
        const MatObject A     = CreateMat(Poisson(40, 40), place.backend->mat);
        const KSPObject fused = MakeFused(A, place, pc, options), cg = MakeKSP(A, options, pc);
        const VecObject b = RightVec(A, 2), x = RightVec(A);
        const auto      solve = [&](KSP ksp) { return CountAllocations([&] { (void)KSPSolve(ksp, b, x); }); };
        for (int warm_up = 0; warm_up < 2; warm_up++) {
          solve(fused);
          solve(cg);
        }
        const PetscLogDouble bytes  = DeviceFound() ? DeviceBytes() : 0;
        const long           theirs = solve(cg); /* KSPSolve() itself may allocate something */
        for (int repeat = 0; repeat < 3; repeat++) CHECK(solve(fused) <= theirs);
        if (DeviceFound()) CHECK(DeviceBytes() == bytes);
        CheckPath(fused, place);
      }
}

TEST_CASE("cgfused: device memory is given back", "[cgfused][gpu]")
{
  NEEDS_DEVICE();
  const MatObject A = CreateMat(RandomStencil(40, 40, 40, false, 8), MATAIJCUSPARSE);
  for (const Place &place : DevicePlaces()) {
    PetscLogDouble before = 0;
    for (int repeat = 0; repeat < 20; repeat++) {
      const KSPObject ksp = MakeFused(A, place, PCAFSAI, "-ksp_max_it 3");
      RunOf(ksp);
      Touch(A);
      RunOf(ksp);
      if (repeat % 2) MUST(KSPReset(ksp));
      if (repeat == 4) before = DeviceBytes();
    }
    CHECK(DeviceBytes() - before < 16e6); /* a copy of A has more than 3e6 bytes, so that 15 lost copies would show */
  }
}

/* Streams that are not in order with the default one, in which PETSc's MatMult() runs. */
TEST_CASE("cgfused: two solvers on two other streams", "[cgfused][gpu]")
{
  NEEDS_DEVICE();
  for (const Place &place : {Place{&DeviceBackend(), "graph"}, Place{&DeviceBackend(), "resident"}})
    for (const char *options : {"-ksp_rtol 1e-6", "-ksp_norm_type none -ksp_convergence_test skip -ksp_max_it 25"}) {
      CAPTURE(place.path, options);
      const HostMatrix H[2] = {Poisson(50, 50), RandomGraph(3000, 7, 5)};
      MatObject        A[2];
      KSPObject        ksp[2];
      VecObject        b[2], x[2];
      Run              expected[2];
      for (int k = 0; k < 2; k++) {
        A[k]        = CreateMat(H[k], MATAIJCUSPARSE);
        expected[k] = RunOf(MakeKSP(A[k], options, PCAFSAI));
        b[k]        = RightVec(A[k], 2);
        x[k]        = RightVec(A[k], 5);
        ksp[k]      = MakeFused(A[k], place, PCAFSAI, options);
      }
      SolveOnTwoStreams(PETSC_STREAM_NONBLOCKING, ksp, b, x, nullptr,
                        [&](int, int k, KSPConvergedReason reason, PetscInt iterations) {
                          CHECK(reason == expected[k].reason);
                          CHECK(iterations == expected[k].iterations);
                          CHECK(VectorDifference(Values(x[k]), expected[k].x) <= 1e-9);
                          CheckPath(ksp[k], place);
                        });
    }
}

/* On one rank a MATMPIAIJCUSPARSE is one block without columns of other ranks. */
TEST_CASE("cgfused: a parallel matrix on one rank", "[cgfused][gpu]")
{
  NEEDS_DEVICE();
  for (const Place &place : DevicePlaces())
    for (PCType pc : kTypes) {
      CAPTURE(place.path, pc);
      const MatObject A     = CreateMat(Poisson(20, 20), MATMPIAIJCUSPARSE);
      const KSPObject fused = MakeFused(A, place, pc, "-pc_afsai_reuse_pattern 0 -ksp_max_it 9");
      for (int step = 0; step < 2; step++) {
        Compare(RunOf(fused), RunOf(MakeKSP(A, "-pc_afsai_reuse_pattern 0 -ksp_max_it 9", pc)), 1e-10);
        CheckPath(fused, place);
        ChangeValues(A, 0.2);
      }
    }
}

TEST_CASE("cgfused: vector operations, twins", "[cgfused][gpu]")
{
  NEEDS_DEVICE();
  CGFusedWork *work = nullptr;
  MUST(CGFusedCreate_CUDA(&work));
  for (PetscInt n : {0, 1, 31, 32, 33, 255, 256, 257, 1000, 300001})
    for (bool with_s : {false, true}) {
      CAPTURE(n, with_s);
      Random                           random(n + 1);
      std::vector<std::vector<double>> v(6, std::vector<double>(n)); /* z, r, s, p, w, x */
      for (auto &vector : v)
        for (double &entry : vector) entry = random.Between(-1, 1);
      std::vector<double *> d(6, nullptr);
      for (size_t k = 0; k < v.size(); k++) {
        MUST(ArrayCreate_CUDA(n * sizeof(double), (void **)&d[k]));
        MUST(ArrayCopy_CUDA(d[k], v[k].data(), n * sizeof(double), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
      }
      PetscReal sums[4], wanted[4];
      std::fill_n(sums, 4, std::nan(""));
      MUST(CGDots_Host(n, v[0].data(), v[1].data(), with_s ? v[2].data() : nullptr, wanted));
      MUST(CGDots_CUDA(work, n, d[0], d[1], with_s ? d[2] : nullptr, sums));
      for (int c = 0; c < 4; c++) CHECK(std::fabs(sums[c] - wanted[c]) <= 1e-12 * (n + 1)); /* a missing term is some 0.3 */
      MUST(CGDirection_Host(n, 0.7, v[0].data(), v[3].data(), with_s ? v[2].data() : nullptr, with_s ? v[4].data() : nullptr));
      MUST(CGDirection_CUDA(n, 0.7, d[0], d[3], with_s ? d[2] : nullptr, with_s ? d[4] : nullptr));
      MUST(CGStep_Host(n, -0.3, v[3].data(), v[4].data(), v[5].data(), v[1].data()));
      MUST(CGStep_CUDA(n, -0.3, d[3], d[4], d[5], d[1]));
      for (size_t k = 0; k < v.size(); k++) {
        std::vector<double> mine(n);
        double              worst = 0;
        if (n) MUST(ArrayCopy_CUDA(mine.data(), d[k], n * sizeof(double), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
        for (PetscInt i = 0; i < n; i++) worst = std::max(worst, std::fabs(mine[i] - v[k][i]));
        CHECK(worst <= 1e-15); /* a fused multiplication and addition rounds once */
        MUST(ArrayDestroy_CUDA((void **)&d[k]));
      }
    }
  MUST(CGFusedDestroy_CUDA(&work));
}

/* --------------------------------- ranks: any number of them ---------------------------------- */

TEST_CASE("cgfused: several ranks", "[cgfused][mpi][two][slow]")
{
  const int size = Ranks(), rank = Rank();
  for (const Backend &backend : Backends())
    for (const auto &[path, pc, norm, reduction, options] :
         Covering(std::vector{"auto", "general", "resident"}, kTypes, kNorms,
                  std::vector{"", "-ksp_cg_single_reduction 0 ", "-ksp_cg_single_reduction 1 "},
                  std::vector{"-ksp_rtol 1e-6", "-ksp_max_it 5 -ksp_initial_guess_nonzero",
                              "-ksp_max_it 7 -ksp_check_norm_iteration 3"})) {
      if (!std::strcmp(norm, "none") && Contains(options, "rtol")) continue;
      CAPTURE(size, backend.name, path, pc, norm, reduction, options);
      const MatObject   A      = CreateMat(Poisson(20, 19), backend.mat, PETSC_COMM_WORLD);
      const std::string all    = Norm(norm) + options + " ";
      const char       *theirs = *reduction ? reduction : size > 1 ? "-ksp_cg_single_reduction 1" : ""; /* the default of cgfused */
      const KSPObject   fused = MakeFused(A, {&backend, path}, pc, all + reduction), cg = MakeKSP(A, all + theirs, pc);
      Compare(RunOf(fused), RunOf(cg), 1e-9);
      const std::string line   = PathOf(fused);                                                 /* collective */
      const bool        by_mpi = Contains(reduction, "1") || size == 1 || !WhyNoNCCL().empty(); /* which has one reduction */
      const bool        own    = PetscMemTypeDevice(backend.where) && std::strcmp(path, "general") && !by_mpi;
      if (rank == 0 && size > 1) CHECK(Contains(line, own ? "path: that of several ranks: " : "path: general: "));
    }
}

/* Every rank needs many entries of every other rank, in rows of many lengths. */
TEST_CASE("cgfused: several ranks and much to exchange", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends())
    for (PCType pc : kTypes)
      for (const char *norm : kNorms)
        for (const HostMatrix &H : {RandomGraph(1000, 9, 4), FarGraph(3000, 9000, 0), RandomArrow(300, 4)}) {
          CAPTURE(backend.name, pc, norm, H.n);
          const MatObject   A     = CreateMat(H, backend.mat, PETSC_COMM_WORLD);
          const std::string all   = Norm(norm) + "-ksp_cg_single_reduction 1 -ksp_rtol 1e-30 -ksp_max_it 4 ";
          const KSPObject   fused = MakeFused(A, {&backend, "auto"}, pc, all), cg = MakeKSP(A, all, pc);
          const Run         mine = RunOf(fused);
          Compare(mine, RunOf(cg), 1e-9);
          if (PetscMemTypeDevice(backend.where)) Compare(mine, RunOf(fused), 1e-9); /* cuSPARSE adds up in any order */
          else CHECK(SameRuns(mine, RunOf(fused)));
          CheckRanksPath(fused, backend, false);
        }
}

/* The counts are also those of KSPCG with its default of two reductions. */
TEST_CASE("cgfused: several ranks and KSPCG as it comes", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends())
    for (PCType pc : {PCJACOBI, PCAFSAI})
      for (const HostMatrix &H : {Poisson(40, 31), Poisson(12, 11, 10), RandomStencil(30, 20, 1, false, 3), RandomGraph(1000, 7, 5),
                                  Changed(Poisson(50, 20), 1, 0.1)}) {
        CAPTURE(backend.name, pc, H.n);
        const MatObject A     = CreateMat(H, backend.mat, PETSC_COMM_WORLD);
        const KSPObject fused = MakeFused(A, {&backend, "auto"}, pc, "-ksp_rtol 1e-8"), cg = MakeKSP(A, "-ksp_rtol 1e-8", pc);
        const Run       mine = RunOf(fused), theirs = RunOf(cg);
        CHECK(mine.reason == theirs.reason);
        CHECK(mine.iterations == theirs.iterations);
        CHECK(VectorDifference(mine.x, theirs.x) <= 1e-6);
        CheckRanksPath(fused, backend, Ranks() > 1 && WhyNoNCCL().empty());
      }
}

/* The Mat stays the same one but gets new blocks, and its state does not tell. */
TEST_CASE("cgfused: several ranks and a matrix that is preallocated again", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const PetscInt n = 240;
    MatObject      A;
    MUST(MatCreate(PETSC_COMM_WORLD, A.put()));
    MUST(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n, n));
    MUST(MatSetType(A, backend.mat));
    MUST(MatSetUp(A));
    const std::string all   = "-ksp_cg_single_reduction 1 -ksp_max_it 6";
    const KSPObject   fused = MakeFused(A, {&backend, "auto"}, PCJACOBI, all), cg = MakeKSP(A, all, PCJACOBI);
    for (PetscInt width : {1, 2, 1, 40, 3}) { /* the distance of the rows that are coupled */
      CAPTURE(width);
      ReplaceByCOO(A, Ring(n, width));
      for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(KSPSetOperators(ksp, A, A));
      Compare(RunOf(fused), RunOf(cg), 1e-10);
      CheckRanksPath(fused, backend, false);
    }
  }
}

/* By the ways of the test of the same name in gmresfused_test.cxx, with factors that reach other ranks, too. */
TEST_CASE("cgfused: several ranks and nonzeros that change in place", "[cgfused][mpi]")
{
  enum Way { TRANSPOSE, CSR, COO, AXPY };
  constexpr LocalInt n = 240;
  for (const Backend &backend : Backends())
    for (const auto &[pc, options] :
         {std::pair<PCType, std::string>{PCJACOBI, ""},
          {PCAFSAI, "-pc_afsai_overlap 1 -pc_afsai_setup_precision double -pc_afsai_factor_precision double "}}) {
      MatObject         A       = CreateMat(Ring(n, 2), backend.mat, PETSC_COMM_WORLD), copy;
      Mat               changed = A;
      const std::string all     = options + "-ksp_cg_single_reduction 1 -ksp_max_it 6";
      const KSPObject   fused   = MakeFused(A, {&backend, "auto"}, pc, all);
      LocalInt          width   = 2;
      RunOf(fused);
      for (Way way : {TRANSPOSE, CSR, TRANSPOSE, COO, AXPY, TRANSPOSE, COO, CSR}) {
        CAPTURE(backend.name, pc, (int)way, width);
        width += 3;
        const HostMatrix H = Ring(n, width);
        if (way == TRANSPOSE) MUST(MatTranspose(A, MAT_INPLACE_MATRIX, &changed));
        else if (way == AXPY) MUST(MatAXPY(A, 1, CreateMat(H, backend.mat, PETSC_COMM_WORLD), DIFFERENT_NONZERO_PATTERN));
        else (way == CSR ? ReplaceByCSR : ReplaceByCOO)(A, H);
        REQUIRE(changed == (Mat)A);
        MUST(MatDuplicate(A, MAT_COPY_VALUES, copy.put()));
        Compare(RunOf(fused), RunOf(MakeKSP(copy, all, pc)), 1e-9);
        CheckRanksPath(fused, backend, false);
      }
    }
}

TEST_CASE("cgfused: several ranks that need nothing of each other", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject   A     = CreateMat(FiveValues(300), backend.mat, PETSC_COMM_WORLD);
    const std::string all   = "-ksp_cg_single_reduction 1 -ksp_rtol 1e-30 -ksp_max_it 3";
    const KSPObject   fused = MakeFused(A, {&backend, "auto"}, PCNONE, all);
    Compare(RunOf(fused), RunOf(MakeKSP(A, all, PCNONE)), 1e-9);
    CheckRanksPath(fused, backend, false);
  }
}

/* Its products are PETSc's, which may have another stream. */
TEST_CASE("cgfused: the general path refuses another stream", "[cgfused][mpi][gpu]")
{
  NEEDS_DEVICE();
  const MatObject   A   = CreateMat(Poisson(20, 19), MATAIJCUSPARSE, PETSC_COMM_WORLD);
  const KSPObject   ksp = MakeFused(A, {&DeviceBackend(), "auto"}, PCAFSAI, "-ksp_cg_single_reduction 1");
  const VecObject   b = RightVec(A, 2), x = RightVec(A, 5);
  const OtherStream other;
  Errors            errors;
  CHECK(KSPSolve(ksp, b, x) == PETSC_ERR_SUP);
  CHECK(Contains(errors.text, "PETSC_STREAM_DEFAULT"));
}

TEST_CASE("cgfused: several ranks, a matrix that changes, other sizes and preconditioners", "[cgfused][mpi][two]")
{
  for (const Backend &backend : Backends())
    for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI}) {
      CAPTURE(backend.name, pc);
      const std::string all   = "-ksp_cg_single_reduction 1 -ksp_max_it 8 ";
      const MatObject   A     = CreateMat(Poisson(16, 15), backend.mat, PETSC_COMM_WORLD);
      const KSPObject   fused = MakeFused(A, {&backend, "auto"}, pc, all), cg = MakeKSP(A, all, pc);
      Run               last;
      const auto        compare = [&](bool changed, double rounding = 1e-10) {
        const Run mine = RunOf(fused);
        Compare(mine, RunOf(cg), rounding);
        CHECK((VectorDifference(mine.x, last.x) > 1e-6) == changed);
        last = mine;
        CheckRanksPath(fused, backend, false);
      };
      compare(true);
      compare(false);
      ChangeValues(A, 0.4);
      compare(true);
      MUST(MatShift(A, 0.3));
      compare(true);
      MUST(MatScale(A, 1.7));
      compare(true);
      const MatObject B = CreateMat(RandomGraph(240, 9, 4), backend.mat, PETSC_COMM_WORLD),
                      C = CreateMat(RandomGraph(500, 9, 4), backend.mat, PETSC_COMM_WORLD);
      for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(KSPSetOperators(ksp, B, B));
      compare(true);
      for (KSP ksp : {(KSP)fused, (KSP)cg}) {
        MUST(KSPReset(ksp));
        MUST(KSPSetOperators(ksp, C, C));
      }
      compare(true, 1e-9);
      for (PCType other : {PCSFSAI, PCJACOBI, PCNONE}) {
        for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(PCSetType(PCOf(ksp), other));
        last = Run();
        compare(true, 1e-9);
      }
    }
}

/* A monitor and a test of the program, which ends the solve, see the same of both solvers. */
static void CompareCalls(KSP fused, KSP cg)
{
  Recorder monitored[2], tested[2];
  for (KSP ksp : {fused, cg}) {
    tested[ksp == cg].stop_at = 9;
    MUST(KSPMonitorSet(ksp, RecordMonitor, &monitored[ksp == cg], nullptr));
    MUST(KSPSetConvergenceTest(ksp, RecordTest, &tested[ksp == cg], nullptr));
    CHECK(RunOf(ksp).iterations == 9);
    MUST(KSPMonitorCancel(ksp));
  }
  Compare(monitored[0].calls, monitored[1].calls, 1e-9);
  Compare(tested[0].calls, tested[1].calls, 1e-9);
}

static void CompareSingularValues(KSP fused, KSP cg)
{
  PetscReal values[4];
  for (KSP ksp : {fused, cg}) {
    MUST(KSPSetComputeSingularValues(ksp, PETSC_TRUE));
    RunOf(ksp);
    MUST(KSPComputeExtremeSingularValues(ksp, &values[ksp == cg ? 2 : 0], &values[ksp == cg ? 3 : 1]));
  }
  if (kCGEstimatesEigenvalues) CHECK(EntryDifference({values[0], values[1]}, {values[2], values[3]}) <= 1e-9);
}

TEST_CASE("cgfused: several ranks call monitors and tests as KSPCG", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends())
    for (PCType pc : {PCJACOBI, PCAFSAI}) {
      CAPTURE(backend.name, pc);
      const std::string all   = "-ksp_cg_single_reduction 1 ";
      const MatObject   A     = CreateMat(Poisson(20, 19), backend.mat, PETSC_COMM_WORLD);
      const KSPObject   fused = MakeFused(A, {&backend, "auto"}, pc, all);
      CompareCalls(fused, MakeKSP(A, all, pc));
      CheckRanksPath(fused, backend, false);
    }
}

TEST_CASE("cgfused: several ranks and eigenvalues", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends())
    for (const char *reduction : {"-ksp_cg_single_reduction 0", "-ksp_cg_single_reduction 1"}) {
      CAPTURE(backend.name, reduction);
      const MatObject   A   = CreateMat(Poisson(20, 19), backend.mat, PETSC_COMM_WORLD);
      const std::string all = std::string("-ksp_max_it 12 ") + reduction;
      CompareSingularValues(MakeFused(A, {&backend, "auto"}, PCJACOBI, all), MakeKSP(A, all, PCJACOBI));
    }
}

/* The recurrence of a single reduction is wrong for such matrices, and PETSc's method with it diverges. */
TEST_CASE("cgfused: several ranks and boundary rows whose columns stay", "[cgfused][mpi][symmetry]")
{
  const PetscInt n = 30;
  for (const Backend &backend : Backends())
    for (PCType pc : {PCJACOBI, PCAFSAI, PCSFSAI, PCCMATCH})
      for (double boundary : {1., 1e-4}) {
        CAPTURE(backend.name, pc, boundary);
        const MatObject A = CreateMat(Poisson(n, n), backend.mat, PETSC_COMM_WORLD);
        VecObject       x, b;
        PetscInt        begin, end;
        MUST(MatCreateVecs(A, x.put(), b.put()));
        MUST(MatGetOwnershipRange(A, &begin, &end));
        std::vector<PetscInt> rows;
        for (PetscInt row = begin; row < end; row++) {
          const PetscInt i = row % n, j = row / n;
          const bool     on_boundary = i == 0 || j == 0 || i == n - 1 || j == n - 1;
          if (on_boundary) rows.push_back(row);
          MUST(VecSetValue(b, row, on_boundary ? boundary * (1 + row % 3) : 0.01, INSERT_VALUES));
        }
        MUST(VecAssemblyBegin(b));
        MUST(VecAssemblyEnd(b));
        MUST(MatZeroRows(A, (PetscInt)rows.size(), rows.data(), 4, nullptr, nullptr));
        const std::string options = "-ksp_rtol 1e-8 -ksp_norm_type unpreconditioned";
        const KSPObject   fused = MakeFused(A, {&backend, "auto"}, pc, options), cg = MakeKSP(A, options, pc);
        PetscInt          iterations[2];
        for (KSP ksp : {(KSP)fused, (KSP)cg}) {
          MUST(KSPSolve(ksp, b, x));
          iterations[ksp == cg] = IterationsOf(ksp);
          CHECK(ReasonOf(ksp) == KSP_CONVERGED_RTOL);
        }
        CHECK(std::abs((int)(iterations[0] - iterations[1])) <= 1 + iterations[1] / 20);
      }
}

TEST_CASE("cgfused: several ranks diverge as one", "[cgfused][mpi]")
{
  for (const Backend &backend : Backends())
    for (const char *reduction : {"-ksp_cg_single_reduction 0", "-ksp_cg_single_reduction 1"})
      for (PetscInt row : {0, 200, 379})
        for (double value : {-4., (double)std::nan("")})
          for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI}) {
            CAPTURE(backend.name, reduction, row, value, pc);
            const MatObject A     = CreateMat(WithEntry(Poisson(20, 19), row, row, value), backend.mat, PETSC_COMM_WORLD);
            const KSPObject fused = MakeFused(A, {&backend, "auto"}, pc, reduction), cg = MakeKSP(A, reduction, pc);
            const Run       mine = RunOf(fused), theirs = RunOf(cg);
            CHECK(mine.reason == theirs.reason);
            CHECK(mine.iterations == theirs.iterations);
            CHECK(EntryDifference(mine.history, theirs.history) <= 1e-6);
            CHECK((theirs.reason < 0 || value < 0));
          }
}

TEST_CASE("cgfused: several ranks and some of them without rows", "[cgfused][mpi][four]")
{
  for (const Backend &backend : Backends())
    for (const char *reduction : {"-ksp_cg_single_reduction 0", "-ksp_cg_single_reduction 1"})
      for (PCType pc : kTypes)
        for (const char *norm : kNorms) {
          CAPTURE(backend.name, reduction, pc, norm);
          const MatObject   A   = CreateMat(FromDense(2, {2, -1, -1, 2}), backend.mat, PETSC_COMM_WORLD);
          const std::string all = Norm(norm) + "-ksp_max_it 1 " + reduction;
          Compare(RunOf(MakeFused(A, {&backend, "auto"}, pc, all)), RunOf(MakeKSP(A, all, pc)), 1e-12);
        }
}

/* ------------------------- several GPUs: sums and exchanges in the graph ---------------------- */

namespace
{

const char *const kByNCCL = "-ksp_cgfused_communication nccl ", *const kByMPI = "-ksp_cgfused_communication mpi ";

/* Solves with NCCL, with MPI and with KSPCG, which come to the same. Gives what KSPCG did. */
Run CompareCommunications(Mat A, PCType pc, const std::string &options, double rounding)
{
  const KSPObject nccl = MakeFused(A, {&DeviceBackend(), "auto"}, pc, options + kByNCCL),
                  mpi = MakeFused(A, {&DeviceBackend(), "auto"}, pc, options + kByMPI), cg = MakeKSP(A, options, pc);
  const Run mine = RunOf(nccl), theirs = RunOf(cg);
  Compare(mine, theirs, rounding);
  Compare(RunOf(mpi), mine, rounding);
  CHECK(SameRuns(mine, RunOf(nccl)));
  CheckRanksPath(nccl, DeviceBackend(), true);
  CheckCommunication(nccl, "nccl, version ");
  CheckCommunication(mpi, "mpi: it was asked for");
  return theirs;
}

/* A system of n rows, of which each rank has as many as `rows` says by its number. */
MatObject WithRows(const std::vector<PetscInt> &rows, PetscInt n)
{
  PetscInt  begin, end;
  MatObject A;
  MUST(MatCreate(PETSC_COMM_WORLD, A.put()));
  MUST(MatSetSizes(A, rows[Rank()], rows[Rank()], n, n));
  MUST(MatSetType(A, MATAIJCUSPARSE));
  MUST(MatSetUp(A));
  MUST(MatGetOwnershipRange(A, &begin, &end));
  for (PetscInt row = begin; row < end; row++)
    for (PetscInt column : {row, (row + 1) % n, (row + n - 1) % n, (row + n / 2) % n})
      MUST(MatSetValue(A, row, column, column == row ? 3.2 + 0.1 * (double)(row % 3) : -1., INSERT_VALUES));
  Assemble(A);
  return A;
}

} // namespace

TEST_CASE("cgfused: NCCL and MPI give the same iterates", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const MatObject A = CreateMat(Poisson(20, 19), MATAIJCUSPARSE, PETSC_COMM_WORLD);
  for (PCType pc : kTypes)
    for (const char *norm : kNorms)
      for (const char *options :
           {"-ksp_rtol 1e-6 ", "-ksp_rtol 1e-6 -ksp_initial_guess_nonzero ", "-ksp_max_it 1 ", "-ksp_max_it 0 ",
            "-ksp_max_it 5 -ksp_initial_guess_nonzero ", "-ksp_max_it 7 -ksp_check_norm_iteration 3 ",
            "-ksp_rtol 0.5 -ksp_min_it 9 ", "-ksp_max_it 6 -ksp_convergence_test skip "}) {
        if (!std::strcmp(norm, "none") && Contains(options, "rtol")) continue;
        CAPTURE(pc, norm, options);
        CompareCommunications(A, pc, Norm(norm) + options, 1e-9);
      }
}

TEST_CASE("cgfused: NCCL calls monitors and tests as KSPCG", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const int rank = Rank();
  for (PCType pc : kTypes)
    for (const char *norm : kNorms) {
      CAPTURE(pc, norm);
      const MatObject   A     = CreateMat(Poisson(20, 19), MATAIJCUSPARSE, PETSC_COMM_WORLD);
      const std::string all   = Norm(norm) + "-ksp_max_it 12 ";
      const KSPObject   fused = MakeFused(A, {&DeviceBackend(), "auto"}, pc, all + kByNCCL);
      const Run         first = RunOf(fused);
      CompareCalls(fused, MakeKSP(A, all, pc));
      CheckCommunication(fused, "nccl, version ");
      const std::string view = ViewText((KSP)fused); /* collective */
      if (rank == 0) CHECK(Contains(view, "the host decides about each iteration before the next one: a convergence test"));
      void *context;
      MUST(KSPConvergedDefaultCreate(&context));
      MUST(KSPSetConvergenceTest(fused, KSPConvergedDefault, context, KSPConvergedDefaultDestroy));
      CHECK(SameRuns(RunOf(fused), first));
    }
}

TEST_CASE("cgfused: NCCL on many systems", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  for (const HostMatrix &H : {RandomGraph(1000, 9, 4), FarGraph(3000, 9000, 0), RandomArrow(300, 4), FiveValues(300),
                              Poisson(70, 60, 50), RandomDense(70, 5), Plate()})
    for (PCType pc : kTypes) {
      CAPTURE(pc, H.n, H.nnz());
      const MatObject A = CreateMat(H, MATAIJCUSPARSE, PETSC_COMM_WORLD);
      CompareCommunications(A, pc, "-ksp_rtol 1e-30 -ksp_max_it 4 ", 1e-8);
    }
  /* the counts to the end, and more iterations than the device has room for records of */
  const MatObject A = CreateMat(Poisson(70, 60, 50), MATAIJCUSPARSE, PETSC_COMM_WORLD);
  for (PCType pc : {PCJACOBI, PCAFSAI}) {
    const KSPObject nccl = MakeFused(A, {&DeviceBackend(), "auto"}, pc, std::string("-ksp_rtol 1e-8 ") + kByNCCL),
                    cg   = MakeKSP(A, "-ksp_rtol 1e-8", pc);
    const Run mine = RunOf(nccl), theirs = RunOf(cg);
    CHECK(mine.reason == theirs.reason);
    CHECK(mine.iterations == theirs.iterations);
    CHECK(VectorDifference(mine.x, theirs.x) <= 1e-6);
    const Run longer = RunOf(
      MakeFused(A, {&DeviceBackend(), "auto"}, pc, std::string("-ksp_rtol 1e-300 -ksp_atol 1e-300 -ksp_max_it 1201 ") + kByNCCL));
    CHECK(longer.iterations == 1201);
    CHECK(longer.history.size() == 1202);
    CHECK(std::all_of(longer.history.begin(), longer.history.end(), [](double norm) { return norm > 0; }));
  }
}

TEST_CASE("cgfused: NCCL and systems that break down", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  for (PetscInt row : {0, 200, 379})
    for (double value : {-4., (double)std::nan("")})
      for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI})
        for (const char *norm : kNorms) {
          CAPTURE(row, value, pc, norm);
          const MatObject   A    = CreateMat(WithEntry(Poisson(20, 19), row, row, value), MATAIJCUSPARSE, PETSC_COMM_WORLD);
          const std::string all  = Norm(norm) + "-ksp_max_it 30 ";
          const Run         mine = RunOf(MakeFused(A, {&DeviceBackend(), "auto"}, pc, all)), theirs = RunOf(MakeKSP(A, all, pc));
          CHECK(mine.reason == theirs.reason);
          CHECK(mine.iterations == theirs.iterations);
          CHECK(EntryDifference(mine.history, theirs.history) <= 1e-6);
        }
}

/* One KSP, which goes from NCCL to MPI and back while all that it works with changes. */
TEST_CASE("cgfused: NCCL and a solver that is used again", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  for (PCType pc : kTypes) {
    CAPTURE(pc);
    const std::string all = "-ksp_max_it 8 ";
    const MatObject   A   = CreateMat(Poisson(16, 15), MATAIJCUSPARSE, PETSC_COMM_WORLD),
                    B     = CreateMat(RandomGraph(240, 9, 4), MATAIJCUSPARSE, PETSC_COMM_WORLD),
                    C     = CreateMat(RandomGraph(700, 9, 4), MATAIJCUSPARSE, PETSC_COMM_WORLD);
    const KSPObject fused = MakeFused(A, {&DeviceBackend(), "auto"}, pc, all), cg = MakeKSP(A, all, pc);
    const auto      compare = [&](const char *communication) {
      Compare(RunOf(fused), RunOf(cg), 1e-9);
      CheckCommunication(fused, communication);
    };
    compare("nccl");
    compare("nccl");
    ChangeValues(A, 0.4);
    compare("nccl");
    MUST(MatShift(A, 0.3));
    compare("nccl");
    MUST(KSPCGFusedSetCommunication(fused, KSP_CGFUSED_COMMUNICATION_MPI));
    compare("mpi: it was asked for");
    MUST(MatScale(A, 1.7));
    compare("mpi: it was asked for");
    MUST(KSPCGFusedSetCommunication(fused, KSP_CGFUSED_COMMUNICATION_NCCL));
    compare("nccl");
    for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(KSPSetOperators(ksp, B, B));
    compare("nccl");
    {
      Recorder recorder;
      MUST(KSPMonitorSet(fused, RecordMonitor, &recorder, nullptr));
      compare("nccl");
      CHECK(recorder.calls.size() == 9);
      MUST(KSPMonitorCancel(fused));
    }
    compare("nccl");
    for (KSP ksp : {(KSP)fused, (KSP)cg}) {
      MUST(KSPReset(ksp));
      MUST(KSPSetOperators(ksp, C, C));
    }
    compare("nccl");
    for (PCType other : kTypes) {
      for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(PCSetType(PCOf(ksp), other));
      compare("nccl");
    }
    MUST(KSPCGUseSingleReduction(fused, PETSC_TRUE));
    compare("mpi: a single reduction was asked for");
  }
}

TEST_CASE("cgfused: NCCL and ranks of uneven size", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const PetscInt n    = 600;
  const int      size = Ranks(), rank = Rank();
  for (PetscInt few : {1, 40, 0})
    for (bool last : {false, true})
      for (PCType pc : kTypes) {
        CAPTURE(few, last, pc);
        std::vector<PetscInt> rows(size, few);
        rows[last ? size - 1 : 0] = n - few * (size - 1);
        const MatObject   A       = WithRows(rows, n);
        const std::string all     = "-ksp_max_it 8 ";
        const KSPObject   fused = MakeFused(A, {&DeviceBackend(), "auto"}, pc, all), cg = MakeKSP(A, all, pc);
        Compare(RunOf(fused), RunOf(cg), 1e-9);
        const std::string line = PathOf(fused); /* collective */
        if (rank == 0) CHECK(Contains(line, few ? "path: that of several ranks: own products, in a graph" : "path: general: "));
      }
}

TEST_CASE("cgfused: NCCL and factors that reach other ranks", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  for (const HostMatrix &H : {Poisson(20, 19), RandomGraph(1000, 9, 4), RandomArrow(300, 4), Poisson(40, 30, 20), Plate()})
    for (PCType pc : {PCAFSAI, PCSFSAI})
      for (const char *norm : kNorms)
        for (const char *more : {"", "-ksp_initial_guess_nonzero "})
          for (const char *precision : {"single", "double"}) {
            CAPTURE(H.n, pc, norm, more, precision);
            const std::string prefix = std::string("-pc_") + pc, all = Norm(norm) + "-ksp_rtol 1e-30 -ksp_max_it 5 " + more +
                                                                       prefix + "_overlap 1 " + prefix + "_factor_precision " +
                                                                       precision;
            const MatObject A     = CreateMat(H, MATAIJCUSPARSE, PETSC_COMM_WORLD);
            const KSPObject fused = MakeFused(A, {&DeviceBackend(), "auto"}, pc, all), cg = MakeKSP(A, all, pc);
            for (double factor : {1., 0.5}) { /* new values, and the same again */
              ChangeValues(A, factor);
              const Run mine = RunOf(fused);
              Compare(mine, RunOf(cg), 1e-8);
              CHECK(SameRuns(mine, RunOf(fused)));
              CheckCommunication(fused, "nccl, version ");
            }
            MUST(KSPCGFusedSetCommunication(fused, KSP_CGFUSED_COMMUNICATION_MPI));
            Compare(RunOf(fused), RunOf(cg), 1e-8);
            CheckCommunication(fused, "mpi: it was asked for");
          }
}

namespace
{

/* Hierarchies with some levels on several ranks, one of which comes together on one rank. */
const char *const kLevels = "-pc_cmatch_coarse_size 20 -pc_cmatch_gather_rows 50 -pc_cmatch_gather_ranks 0 ";

/* After a solve with a cycle on several ranks: the graph has it. Collective. */
void CheckCycleInGraph(KSP ksp)
{
  const int         rank = Rank();
  const std::string text = ViewText(ksp);
  CAPTURE(text);
  if (rank) return;
  CHECK(Contains(text, "path: that of several ranks: own products, in a graph with all sums and exchanges"));
  CHECK(Contains(text, "  the graph has the cycle of the preconditioner\n"));
  CHECK(Contains(text, "an application communicates by nccl, version "));
}

} // namespace

TEST_CASE("cgfused: NCCL and matching AMG on several ranks", "[cgfused][cmatch][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  for (const HostMatrix &H : {Poisson(40, 39), Poisson(17, 16, 15), RandomGraph(1000, 9, 4)}) {
    const MatObject A = CreateMat(H, MATAIJCUSPARSE, PETSC_COMM_WORLD);
    for (const char *norm : kNorms)
      for (const char *options :
           {"-ksp_rtol 1e-6 ", "-ksp_rtol 1e-6 -ksp_initial_guess_nonzero ", "-ksp_max_it 1 ", "-ksp_max_it 0 ",
            "-ksp_max_it 5 -ksp_initial_guess_nonzero ", "-ksp_max_it 6 -ksp_convergence_test skip "})
        for (const char *cycle : {"", "-pc_cmatch_smoother chebyshev -pc_cmatch_degree 2 "}) {
          if (!std::strcmp(norm, "none") && Contains(options, "rtol")) continue;
          CAPTURE(H.n, norm, options, cycle);
          const std::string all = Norm(norm) + options + cycle + kLevels + "-pc_cmatch_precision double ";
          const KSPObject fused = MakeFused(A, {&DeviceBackend(), "auto"}, PCCMATCH, all + kByNCCL), cg = MakeKSP(A, all, PCCMATCH);
          const Run       mine = RunOf(fused);
          Compare(mine, RunOf(cg), 1e-7);
          CHECK(SameRuns(mine, RunOf(fused)));
          CheckCycleInGraph(fused);
        }
  }
}

TEST_CASE("cgfused: NCCL and matching AMG take the iterations of one host", "[cgfused][cmatch][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  for (const HostMatrix &H : {Poisson(24, 24, 24), Poisson(130, 110), Plate()})
    for (const char *levels : {"", kLevels}) {
      CAPTURE(H.n, levels);
      const std::string all = std::string("-ksp_rtol 1e-8 -ksp_norm_type unpreconditioned ") + levels;
      const MatObject   A = CreateMat(H, MATAIJCUSPARSE, PETSC_COMM_WORLD), B = CreateMat(H, MATAIJ, PETSC_COMM_WORLD);
      const KSPObject   fused = MakeFused(A, {&DeviceBackend(), "auto"}, PCCMATCH, all), cg = MakeKSP(A, all, PCCMATCH),
                      host = MakeKSP(B, all, PCCMATCH);
      const Run mine = RunOf(fused), theirs = RunOf(cg), of_host = RunOf(host);
      CHECK(mine.reason == KSP_CONVERGED_RTOL);
      CHECK(std::abs((int)(mine.iterations - theirs.iterations)) <= 1 + theirs.iterations / 20);
      CHECK(std::abs((int)(mine.iterations - of_host.iterations)) <= 1 + of_host.iterations / 20);
      CHECK(VectorDifference(mine.x, of_host.x) <= 1e-4);
      CHECK(SameRuns(mine, RunOf(fused)));
      CheckCycleInGraph(fused);
    }
}

/* Graphs of hierarchies that are gone must not be launched, and new values need no new graph. */
TEST_CASE("cgfused: NCCL and matching AMG on several ranks, new values and new hierarchies", "[cgfused][cmatch][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const int         rank  = Rank();
  const std::string all   = std::string("-ksp_rtol 1e-9 -pc_cmatch_precision double ") + kLevels;
  const MatObject   A     = CreateMat(Poisson(30, 29), MATAIJCUSPARSE, PETSC_COMM_WORLD);
  const KSPObject   fused = MakeFused(A, {&DeviceBackend(), "auto"}, PCCMATCH, all), cg = MakeKSP(A, all, PCCMATCH);
  const auto        compare = [&]() {
    Compare(RunOf(fused), RunOf(cg), 1e-7);
    CheckCycleInGraph(fused);
  };
  const auto general = [&](const std::string &why) {
    Compare(RunOf(fused), RunOf(cg), 1e-7);
    const std::string line = PathOf(fused);
    if (!rank) CHECK(line == "path: general: " + why);
  };
  compare();
  ChangeValues(A, 0.4);
  CompareHierarchies(A, fused, cg, compare);
  MUST(PCCMATCHSetCommunication(PCOf(fused), PC_CMATCH_COMMUNICATION_MPI));
  general("multigrid on several ranks without NCCL");
  MUST(PCCMATCHSetCommunication(PCOf(fused), PC_CMATCH_COMMUNICATION_AUTO));
  compare();
  MUST(KSPCGFusedSetCommunication(fused, KSP_CGFUSED_COMMUNICATION_MPI));
  general("several ranks by MPI");
  MUST(KSPCGFusedSetCommunication(fused, KSP_CGFUSED_COMMUNICATION_AUTO));
  compare();
  for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(PCCMATCHSetReach(PCOf(ksp), PC_CMATCH_LOCAL));
  general("multigrid of the blocks of several ranks");
  for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(PCCMATCHSetReach(PCOf(ksp), PC_CMATCH_GLOBAL));
  compare();
  {
    Recorder recorder;
    MUST(KSPMonitorSet(fused, RecordMonitor, &recorder, nullptr));
    compare();
    CHECK(recorder.calls.size() > 2);
    MUST(KSPMonitorCancel(fused));
  }
  for (PCType other : {PCJACOBI, PCCMATCH, PCAFSAI, PCCMATCH}) {
    for (KSP ksp : {(KSP)fused, (KSP)cg}) MUST(PCSetType(PCOf(ksp), other));
    Compare(RunOf(fused), RunOf(cg), 1e-4);
  }
  for (KSP ksp : {(KSP)fused, (KSP)cg}) {
    MUST(KSPReset(ksp));
    MUST(KSPSetOperators(ksp, A, A));
  }
  Compare(RunOf(fused), RunOf(cg), 1e-4);
}

TEST_CASE("cgfused: NCCL and matching AMG on ranks of uneven size, and without rows", "[cgfused][cmatch][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const PetscInt n    = 600;
  const int      size = Ranks(), rank = Rank();
  for (PetscInt few : {1, 40, 0})
    for (bool last : {false, true}) {
      CAPTURE(few, last);
      std::vector<PetscInt> rows(size, few);
      rows[last ? size - 1 : 0] = n - few * (size - 1);
      const MatObject   A       = WithRows(rows, n);
      const std::string all     = std::string("-ksp_rtol 1e-6 -pc_cmatch_precision double ") + kLevels;
      const KSPObject   fused = MakeFused(A, {&DeviceBackend(), "auto"}, PCCMATCH, all), cg = MakeKSP(A, all, PCCMATCH);
      Compare(RunOf(fused), RunOf(cg), 1e-7);
      const std::string line = PathOf(fused), text = ViewText(fused); /* collective */
      if (rank) continue;
      CHECK(Contains(line, few ? "path: that of several ranks: own products, in a graph" : "path: general: "));
      CHECK(Contains(text, "an application communicates by nccl, version "));
    }
}

TEST_CASE("cgfused: NCCL and eigenvalues, and another stream", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const MatObject   A     = CreateMat(Poisson(20, 19), MATAIJCUSPARSE, PETSC_COMM_WORLD);
  const std::string all   = "-ksp_max_it 12 -ksp_initial_guess_nonzero ";
  const KSPObject   fused = MakeFused(A, {&DeviceBackend(), "auto"}, PCJACOBI, all + kByNCCL);
  CompareSingularValues(fused, MakeKSP(A, all, PCJACOBI));
  /* the products of this path are all in the current stream, whatever stream that is */
  const VecObject b        = RightVec(A, 2);
  const Run       expected = RunOf(fused, b);
  for (int round = 0; round < 2; round++) {
    const VecObject x = RightVec(A, 5);
    {
      const OtherStream other;
      MUST(KSPSolve(fused, b, x));
      other.Synchronize();
    }
    CHECK(VectorDifference(Values(x), expected.x) <= 1e-13);
  }
}

/* An error of this rank's monitor, where it has one. */
static PetscErrorCode LeaveSolve(KSP, PetscInt iteration, PetscReal, void *)
{
  return iteration < 5 ? PETSC_SUCCESS : PETSC_ERR_USER;
}

/*
   The last rank leaves a solve with an error. The GPUs of the others wait for it no longer than they are told to. The communicator
   of MPI is one of its own, since that of NCCL is no longer of use.
*/
TEST_CASE("cgfused: NCCL and a rank that leaves a solve", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  if (DeviceIsEmulated()) {
    SkipTest();
    return;
  }
  const int   last = Ranks() - 1;
  MPI_Comm    comm;
  NCCL       *nccl;
  const char *why;
  MUST(MPI_Comm_dup(PETSC_COMM_WORLD, &comm));
  MUST(PetscOptionsSetValue(nullptr, "-finepc_wait_limit", "2"));
  {
    const MatObject A   = CreateMat(Poisson(80, 79), MATAIJCUSPARSE, comm);
    const KSPObject ksp = MakeFused(A, {&DeviceBackend(), "auto"}, PCJACOBI, std::string("-ksp_rtol 1e-14 ") + kByNCCL);
    const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
    RunOf(ksp);
    MUST(NCCLOf(PetscObjectComm((PetscObject)(Mat)A), &nccl, &why));
    if (Rank() == last) MUST(KSPMonitorSet(ksp, LeaveSolve, nullptr, nullptr));
    {
      Errors               errors;
      const double         begin = MPI_Wtime();
      const PetscErrorCode code  = KSPSolve(ksp, b, x);
      const double         took  = MPI_Wtime() - begin;
      CAPTURE(errors.text, took);
      CHECK((int)code == (int)(Rank() == last ? PETSC_ERR_USER : PETSC_ERR_GPU));
      if (Rank() != last) CHECK(Contains(errors.text, "has not answered for 2"));
      if (Rank() != last && Contains(errors.text, "that of rank")) CHECK(Contains(errors.text, "rank " + std::to_string(last)));
      CHECK(took < 30);
    }
    MUST(MPI_Barrier(PETSC_COMM_WORLD));
    if (Rank() == last) { /* so that no rank has a communicator of NCCL that others would have to destroy with it */
      const Errors errors;
      CHECK((int)NCCLCheck_CUDA(nccl, 3) == (int)PETSC_ERR_GPU);
    }
  }
  MUST(PetscOptionsClearValue(nullptr, "-finepc_wait_limit"));
  MUST(MPI_Comm_free(&comm));
}

/* One GPU for several ranks, or no NCCL: the view says why, and who asks for NCCL is told what to do. */
TEST_CASE("cgfused: several ranks where NCCL is not possible", "[cgfused][mpi][gpu][nccl]")
{
  NEEDS_DEVICE();
  const int size = Ranks();
  if (size == 1 || WhyNoNCCL().empty()) {
    SkipTest();
    return;
  }
  const MatObject A   = CreateMat(Poisson(20, 19), MATAIJCUSPARSE, PETSC_COMM_WORLD);
  const KSPObject ksp = MakeFused(A, {&DeviceBackend(), "auto"}, PCJACOBI);
  RunOf(ksp);
  CheckCommunication(ksp, "mpi: " + WhyNoNCCL());
  const KSPObject refused = MakeFused(A, {&DeviceBackend(), "auto"}, PCJACOBI, kByNCCL);
  const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
  Errors          errors;
  CHECK(KSPSolve(refused, b, x) == PETSC_ERR_SUP);
  CHECK(Contains(errors.text, "-ksp_cgfused_communication auto"));
  CHECK(Contains(errors.text, WhyNoNCCL()));
  CHECK(!ViewText((KSP)refused).empty() == !Rank()); /* though the solve has ended before there were copies */
}

/* ----------------------------------- for compute-sanitizer ------------------------------------ */

/* Each kernel of each path with as little work as it can have: rows of any length, and copies of A that are compressed or not. */
TEST_CASE("cgfused: every kernel, on small systems", "[cgfused][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (const char *path : {"general", "graph", "resident"})
    for (PCType pc : kTypes)
      for (const HostMatrix &H : {Poisson(9, 8), RandomGraph(90, 9, 3), RandomGraph(90, 30, 4), RandomDense(70, 5)})
        for (const char *compress : {"0", "1"}) {
          CAPTURE(path, pc, H.n, H.nnz(), compress);
          const Place       place = {&DeviceBackend(), path};
          const MatObject   A     = CreateMat(H, DeviceBackend().mat);
          const std::string all   = Norm("natural") + "-ksp_max_it 4 ";
          const KSPObject   fused = MakeFused(A, place, pc, all + "-ksp_cgfused_compress " + compress);
          Compare(RunOf(fused), RunOf(MakeKSP(A, all, pc)), 1e-9);
          CheckPath(fused, place);
        }
}

TEST_CASE("cgfused: several ranks, every kernel, on small systems", "[cgfused][mpi][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const int                size = Ranks();
  const bool               nccl = size > 1 && WhyNoNCCL().empty();
  std::vector<std::string> ways = {"auto"};
  if (nccl) ways.emplace_back("nccl -pc_afsai_overlap 1 -pc_sfsai_overlap 1");
  for (const std::string &communication : ways)
    for (PCType pc : kTypes) {
      CAPTURE(communication, pc);
      const MatObject A   = CreateMat(Poisson(9, 8), DeviceBackend().mat, PETSC_COMM_WORLD);
      std::string     all = Norm("natural") + "-ksp_max_it 4 ";
      if (Contains(communication, "overlap")) all += "-pc_afsai_overlap 1 -pc_sfsai_overlap 1 ";
      const KSPObject fused = MakeFused(A, {&DeviceBackend(), "auto"}, pc, all + "-ksp_cgfused_communication " + communication);
      Compare(RunOf(fused), RunOf(MakeKSP(A, all + "-ksp_cg_single_reduction 1", pc)), 1e-9);
      CheckRanksPath(fused, DeviceBackend(), nccl);
    }
}
