/* KSPRRBCG: the iterates, norms, reasons and monitors of KSPCG with PCRRB, what it needs, and both twins. */
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ksp/rrbcg.h"
#include "pc/rrb/rrb_face.h"
#include "pc/rrb/rrb_host.h"
#include "pc_support.h"
#include "spread.h"

namespace
{

struct Size {
  PetscInt nx, ny;
};

/* A symmetric M-matrix from 5 points with couplings of 0.1 to 10; without `boundary` its rows sum to 0. */
HostMatrix Diffusion(Size size, bool boundary, std::uint64_t seed)
{
  Random                                                     random(seed);
  const PetscInt                                             nx = size.nx, ny = size.ny;
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(nx * ny);
  std::vector<double>                                        diagonal(nx * ny, 0.);
  for (PetscInt row = 0; row < nx * ny; row++) {
    for (const Size &to : {Size{1, 0}, Size{0, 1}}) {
      const PetscInt x = row % nx + to.nx, y = row / nx + to.ny;
      if (x >= nx || y >= ny) continue;
      const double   a      = std::pow(10., random.Between(-1, 1));
      const PetscInt column = y * nx + x;
      rows[row].push_back({column, -a});
      rows[column].push_back({row, -a});
      diagonal[row] += a;
      diagonal[column] += a;
    }
    if (boundary) diagonal[row] += random.Between(0, 0.01);
  }
  if (boundary) diagonal[0] += 1;
  for (PetscInt row = 0; row < nx * ny; row++) rows[row].push_back({row, diagonal[row]});
  return FromRows(rows);
}

/* A symmetric matrix from 5 points with couplings of both signs. With a `dominance` of some percent less than 1 it is indefinite.
 */
HostMatrix Signed(Size size, double dominance, std::uint64_t seed)
{
  HostMatrix A = Diffusion(size, false, seed);
  Random     random(seed + 1);
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
      if (A.j[k] == row) A.a[k] *= dominance;
      if (A.j[k] <= row) continue;
      A.a[k] = random.Between(-1, 1) < 0 ? -A.a[k] : A.a[k];
      for (PetscInt q = A.i[A.j[k]]; q < A.i[A.j[k] + 1]; q++)
        if (A.j[q] == row) A.a[q] = A.a[k];
    }
  return A;
}

KSPObject MakeRRBCG(Mat A, const std::string &options, KSPType type = KSPRRBCG)
{
  const Options scope(options);
  KSPObject     ksp;
  PC            pc;
  MUST(KSPCreate(PetscObjectComm((PetscObject)A), ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetType(ksp, type));
  MUST(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  MUST(KSPSetTolerances(ksp, 1e-9, 0, PETSC_CURRENT, 500));
  MUST(KSPGetPC(ksp, &pc));
  MUST(PCSetType(pc, PCRRB));
  MUST(KSPSetFromOptions(ksp));
  return ksp;
}

struct Run {
  KSPConvergedReason  reason;
  PetscInt            iterations;
  std::vector<double> history, x;
  double              true_residual;
};

/* Solves for a right-hand side that the seed fixes, or for zeros, from the guess x0 or from 0. */
Run SolveFrom(KSP ksp, const std::vector<double> *x0 = nullptr, std::uint64_t seed = 21, bool zeros = false)
{
  Run              run;
  Mat              A;
  const PetscReal *history;
  PetscInt         count;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  const VecObject b = RightVec(A, seed), x = RightVec(A);
  if (zeros) MUST(VecSet(b, 0));
  MUST(VecSet(x, std::numeric_limits<double>::quiet_NaN()));
  if (x0) SetValues(x, *x0);
  MUST(KSPSetInitialGuessNonzero(ksp, (PetscBool)(x0 != nullptr)));
  MUST(KSPSetResidualHistory(ksp, nullptr, 1000, PETSC_TRUE));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetResidualHistory(ksp, &history, &count));
  run.reason     = ReasonOf(ksp);
  run.iterations = IterationsOf(ksp);
  run.history.assign(history, history + count);
  run.x             = Values(x);
  run.true_residual = ResidualOf(A, b, x);
  return run;
}

/* The guess that is 0 in black points and leaves no residual in red ones. */
std::vector<double> EliminatedGuess(Mat A, Size size, std::uint64_t seed = 21)
{
  const VecObject b = RightVec(A, seed);
  VecObject       d;
  MUST(VecDuplicate(b, d.put()));
  MUST(MatGetDiagonal(A, d));
  std::vector<double> x = Values(b), diagonal = Values(d);
  for (PetscInt k = 0; k < (PetscInt)x.size(); k++) x[k] = (k % size.nx + k / size.nx) % 2 ? x[k] / diagonal[k] : 0;
  return x;
}

double LargestRelative(const std::vector<double> &x, const std::vector<double> &y, size_t from, size_t to)
{
  double largest = 0;
  for (size_t k = from; k < to; k++) largest = std::max(largest, std::abs(x[k] / y[k] - 1));
  return largest;
}

} // namespace

TEST_CASE("rrbcg: the iterates are those of KSPCG with PCRRB", "[rrbcg]")
{
  for (const Backend &backend : Backends())
    for (const Size &size : {Size{31, 31}, Size{64, 50}, Size{37, 23}, Size{200, 1}, Size{1, 61}, Size{2, 40}, Size{90, 75}})
      for (const char *options :
           {"-pc_rrb_levels 3", "-pc_rrb_levels 4", "-pc_rrb_levels 100", "-pc_rrb_levels 5 -ksp_norm_type natural"}) {
        const std::string keys =
          std::string(options) + (size.nx == 2 ? " -pc_rrb_nx 2" : "") + (size.nx == 1 ? " -pc_rrb_nx 1" : "");
        CAPTURE(backend.name, size.nx, size.ny, keys);
        const MatObject           A    = CreateMat(Diffusion(size, true, 1), backend.mat);
        const KSPObject           mine = MakeRRBCG(A, keys), theirs = MakeRRBCG(A, keys, KSPCG);
        const std::vector<double> guess = size.nx == 1 ? EliminatedGuess(A, Size{1, size.ny}) : EliminatedGuess(A, size);
        const Run                 cg = SolveFrom(theirs, &guess), rrbcg = SolveFrom(mine), guessed = SolveFrom(mine, &guess),
                  zero      = SolveFrom(theirs);
        const size_t common = std::min({cg.history.size(), guessed.history.size(), rrbcg.history.size()});
        CHECK(rrbcg.reason == KSP_CONVERGED_RTOL);
        CHECK(guessed.reason == cg.reason);
        CHECK(std::abs(guessed.iterations - cg.iterations) <= 1);
        CHECK(rrbcg.true_residual <= 1e-7);
        CHECK((PetscInt)rrbcg.history.size() == rrbcg.iterations + 1);
        /* compare norms before CG has amplified rounding much, and before they are rounding themselves */
        size_t compared = std::min<size_t>(common, 7);
        while (compared > 1 && cg.history[compared - 1] < 1e-6 * cg.history[0]) compared--;
        CHECK(LargestRelative(guessed.history, cg.history, 0, compared) <= 1e-9);
        CHECK(LargestRelative(rrbcg.history, cg.history, 1, compared) <= 1e-9);
        CHECK(Difference(cg.x, guessed.x) <= 1e-6);
        CHECK(Difference(cg.x, rrbcg.x) <= 1e-5);
        /* from a zero guess the first norm is that of the right-hand side, and there are about as many iterations */
        CHECK(rrbcg.history[0] == Approx(zero.history[0]).epsilon(1e-12));
        CHECK(std::abs(rrbcg.iterations - zero.iterations) <= 2);
      }
}

/* What a twin makes of arrays: the sums of the start, norms, the residual, and the solution added to ones. */
struct TwinRun {
  RRBCGSums           sums;
  std::vector<double> norms, x, residual;
  CGStop              stop = CG_RUNNING;
  LocalInt            its  = 0;
};

/* With `applied` the preconditioner is applied to another vector wherever a program could do so. */
static TwinRun RunTwin(const HostMatrix &A, Size size, PetscInt levels, CGNorm norm, bool step, PetscMemType where,
                       const std::vector<double> &r, bool applied = false, bool singular = false)
{
  const bool      device = PetscMemTypeDevice(where);
  const CSRCopy   copy(A, where);
  const size_t    bytes = A.n * sizeof(double);
  RRBParams       params;
  RRBStats        stats;
  RRBFactor      *F    = nullptr;
  RRBCGWork      *work = nullptr;
  TwinRun         run;
  PetscScalar    *r_there, *x_there;
  const CGRecord *records;
  LocalInt        count;
  PetscReal       value;
  params.levels     = levels;
  params.keep_schur = PETSC_TRUE;
  params.singular   = (PetscBool)singular;
  PoisonMemory(where, 80 * bytes);
  MUST((device ? RRBComputeFactor_CUDA : RRBComputeFactor_Host)(&copy.view, size.nx, size.ny, &params, &F, &stats));
  REQUIRE(stats.failure == RRB_OK);
  REQUIRE(F->has_schur);
  MUST((device ? RRBCGPrepare_CUDA : RRBCGPrepare_Host)(F, &work));
  MUST(ArrayCreate(bytes, where, (void **)&r_there));
  MUST(ArrayCreate(2 * bytes, where, (void **)&x_there));
  run.x.assign(A.n, 1.);
  run.residual.assign(A.n, std::nan(""));
  MUST(ArrayCopy(r_there, r.data(), bytes, where, PETSC_MEMTYPE_HOST));
  MUST((device ? RRBCGStart_CUDA : RRBCGStart_Host)(work, r_there, &run.sums));
  const double start = norm == CG_NORM_NATURAL ? std::sqrt(run.sums.rz) : std::sqrt(run.sums.rr);
  const CGTest test{norm, 1e-8 * start, std::numeric_limits<double>::infinity(), 0, -1, LOCAL_INT_MAX, 300};
  MUST(ArrayCopy(x_there, run.x.data(), bytes, where, PETSC_MEMTYPE_HOST));
  const auto apply = [&]() {
    if (applied) MUST((device ? RRBApply_CUDA : RRBApply_Host)(F, 1, x_there, 0, x_there + A.n, 0));
  };
  apply();
  MUST((device ? RRBCGBegin_CUDA : RRBCGBegin_Host)(work, run.sums.gz, &test));
  while (run.stop == CG_RUNNING) {
    if (step) apply();
    MUST((device ? RRBCGAdvance_CUDA : RRBCGAdvance_Host)(work, (PetscBool)step, &count, &records, &run.stop, &run.its, &value));
    for (PetscInt k = 0; k < count; k++) run.norms.push_back(records[k].norm);
  }
  MUST(ArrayCopy(x_there, run.x.data(), bytes, where, PETSC_MEMTYPE_HOST));
  MUST((device ? RRBCGSolution_CUDA : RRBCGSolution_Host)(work, r_there, PETSC_TRUE, x_there));
  MUST(ArrayCopy(run.x.data(), x_there, bytes, PETSC_MEMTYPE_HOST, where));
  MUST((device ? RRBCGResidual_CUDA : RRBCGResidual_Host)(work, x_there));
  MUST(ArrayCopy(run.residual.data(), x_there, bytes, PETSC_MEMTYPE_HOST, where));
  MUST(ArrayDestroy(where, (void **)&r_there));
  MUST(ArrayDestroy(where, (void **)&x_there));
  MUST((device ? RRBCGDestroy_CUDA : RRBCGDestroy_Host)(&work));
  MUST((device ? RRBDestroy_CUDA : RRBDestroy_Host)(&F));
  return run;
}

/* The host twin solves, and where there is a device its twin does the same. */
static void CheckTwins(Size size, PetscInt levels, CGNorm norm, bool step, bool singular = false)
{
  CAPTURE(size.nx, size.ny, levels, norm, step, singular);
  const HostMatrix    A = Diffusion(size, !singular, 11);
  Random              random(12);
  std::vector<double> r(A.n);
  double              sum = 0;
  for (double &value : r) sum += value = random.Between(-1, 1);
  if (singular)
    for (double &value : r) value -= sum / A.n;
  const TwinRun host = RunTwin(A, size, levels, norm, step, PETSC_MEMTYPE_HOST, r, false, singular);
  CHECK(host.stop == CG_TEST);
  CHECK(host.its == (PetscInt)host.norms.size());
  double left = 0, all = 0, kept = 0;
  for (PetscInt row = 0; row < A.n; row++) {
    double value = r[row];
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) value -= A.a[k] * (host.x[A.j[k]] - 1);
    left += value * value;
    all += r[row] * r[row];
    kept += std::abs(value - host.residual[row]);
  }
  CHECK(std::sqrt(left / all) <= 1e-6);
  CHECK(kept <= 1e-9 * A.n);
  CHECK(host.sums.rr == Approx(all).epsilon(1e-13));
  if (!DeviceFound()) return;
  const TwinRun device = RunTwin(A, size, levels, norm, step, PETSC_MEMTYPE_CUDA, r, false, singular);
  CHECK(device.sums.rr == Approx(host.sums.rr).epsilon(1e-12));
  CHECK(device.sums.rz == Approx(host.sums.rz).epsilon(1e-11));
  CHECK(device.sums.gg == Approx(host.sums.gg).epsilon(1e-12));
  CHECK(device.sums.gz == Approx(host.sums.gz).epsilon(1e-11));
  CHECK(device.stop == CG_TEST);
  CHECK(std::abs(device.its - host.its) <= 1);
  CHECK(LargestRelative(device.norms, host.norms, 0, std::min({device.norms.size(), host.norms.size() - 1, (size_t)5})) <= 1e-9);
  CHECK(Difference(host.x, device.x) <= 1e-6);
}

TEST_CASE("rrbcg: an application of the preconditioner on the way changes nothing", "[rrbcg][twins]")
{
  for (PetscMemType where : {PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA}) {
    if (PetscMemTypeDevice(where) && !DeviceFound()) continue;
    for (const Size &size : {Size{16, 16}, Size{31, 17}, Size{70, 51}})
      for (PetscInt levels : {1, 2, 3, 6, 100})
        for (bool step : {false, true}) {
          CAPTURE(where, size.nx, size.ny, levels, step);
          const HostMatrix    A = Diffusion(size, true, 13);
          Random              random(14);
          std::vector<double> r(A.n);
          for (double &value : r) value = random.Between(-1, 1);
          const TwinRun run   = RunTwin(A, size, levels, CG_NORM_NATURAL, step, where, r),
                        other = RunTwin(A, size, levels, CG_NORM_NATURAL, step, where, r, true);
          CHECK(run.stop == CG_TEST);
          CHECK(other.its == run.its);
          CHECK(other.norms == run.norms);
          CHECK(other.x == run.x);
        }
  }
}

TEST_CASE("rrbcg: the twins solve, and agree, also on singular matrices", "[rrbcg][twins]")
{
  for (const Size &size : {Size{1, 1}, Size{2, 1}, Size{1, 50}, Size{77, 1}, Size{2, 2}, Size{16, 16}, Size{31, 17}, Size{70, 51}})
    for (PetscInt levels : {1, 2, 5, 6, 100})
      for (CGNorm norm : {CG_NORM_UNPRECONDITIONED, CG_NORM_NATURAL})
        for (bool step : {false, true}) {
          if (levels < 5 && size.nx == 70) continue;
          CheckTwins(size, levels, norm, step);
          if (size.nx < 77 && size.nx * size.ny > 2) CheckTwins(size, levels, norm, step, true);
        }
}

/* Every kernel with as little work as it can have, for tools that watch every memory access: grids of several blocks and of one,
   both kinds of remainder, large and small, and a grid whose odd level alone is eliminated. */
TEST_CASE("rrbcg: every kernel, on small grids", "[rrbcg][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (bool step : {false, true}) {
    CheckTwins({31, 17}, 1, CG_NORM_UNPRECONDITIONED, step);
    CheckTwins({16, 16}, 2, CG_NORM_NATURAL, step);
    for (PetscInt levels : {6, 7, 100}) CheckTwins({150, 141}, levels, CG_NORM_UNPRECONDITIONED, step);
    for (PetscInt levels : {1, 100}) CheckTwins({31, 17}, levels, CG_NORM_UNPRECONDITIONED, step, true);
  }
}

TEST_CASE("rrbcg: l = 1 takes one iteration, one point is solved at once", "[rrbcg]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A   = CreateMat(Diffusion({37, 40}, true, 2), backend.mat),
                    one = CreateMat(Diffusion({1, 1}, true, 3), backend.mat);
    const Run run = SolveFrom(MakeRRBCG(A, "-pc_rrb_levels 1")), point = SolveFrom(MakeRRBCG(one, ""));
    CHECK(run.iterations == 1);
    CHECK(run.true_residual <= 1e-11);
    CHECK(point.iterations == 1);
    CHECK(point.true_residual <= 1e-14);
  }
}

TEST_CASE("rrbcg: the residual that is reported is that of the whole system", "[rrbcg]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Diffusion({45, 38}, true, 4), backend.mat);
    for (bool guess : {false, true}) {
      const KSPObject           ksp = MakeRRBCG(A, "-pc_rrb_levels 6 -ksp_rtol 1e-6");
      const std::vector<double> x0  = Values(RightVec(A, 5));
      const Run                 run = SolveFrom(ksp, guess ? &x0 : nullptr);
      const VecObject           b   = RightVec(A, 21);
      PetscReal                 norm;
      MUST(VecNorm(b, NORM_2, &norm));
      CHECK(run.history.back() / norm == Approx(run.true_residual).epsilon(1e-6));
      CHECK(run.history.back() <= 1e-6 * norm);
      if (!guess) CHECK(run.history.front() == Approx(norm).epsilon(1e-13));
    }
  }
}

TEST_CASE("rrbcg: a monitor sees the solution and the residual, and changes nothing", "[rrbcg]")
{
  struct Seen {
    std::vector<double> norms, built, of_solution;
  };
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A     = CreateMat(Diffusion({45, 38}, true, 6), backend.mat);
    const KSPObject plain = MakeRRBCG(A, "-pc_rrb_levels 6"), watched = MakeRRBCG(A, "-pc_rrb_levels 6"),
                    stepped = MakeRRBCG(A, "-pc_rrb_levels 6 -ksp_rrbcg_graph 0");
    Seen seen;
    MUST(KSPMonitorSet(
      watched,
      [](KSP ksp, PetscInt its, PetscReal norm, void *context) {
        Seen     *to = (Seen *)context;
        Vec       x, r, t, residual;
        Mat       K;
        PetscReal built, of_solution;

        PetscFunctionBegin;
        to->norms.push_back(norm);
        if (!its) PetscFunctionReturn(PETSC_SUCCESS);
        PetscCall(KSPGetOperators(ksp, &K, nullptr));
        PetscCall(MatCreateVecs(K, &x, &r));
        PetscCall(VecDuplicate(r, &t));
        if (its % 2) PetscCall(KSPBuildSolution(ksp, x, nullptr));
        else {
          Vec own;

          PetscCall(KSPBuildSolution(ksp, nullptr, &own));
          PetscCall(VecCopy(own, x));
        }
        PetscCall(KSPBuildResidual(ksp, t, r, &residual));
        PetscCall(VecNorm(residual, NORM_2, &built));
        PetscCall(MatMult(K, x, t));
        PetscCall(VecAYPX(t, -1, ksp->vec_rhs));
        PetscCall(VecNorm(t, NORM_2, &of_solution));
        to->built.push_back(built);
        to->of_solution.push_back(of_solution);
        PetscCall(VecDestroy(&x));
        PetscCall(VecDestroy(&r));
        PetscCall(VecDestroy(&t));
        PetscFunctionReturn(PETSC_SUCCESS);
      },
      &seen, nullptr));
    const Run run = SolveFrom(plain), with = SolveFrom(watched), by_step = SolveFrom(stepped);
    CHECK(with.history == run.history); /* the same bits */
    CHECK(with.x == run.x);
    CHECK(by_step.history == run.history);
    CHECK(by_step.x == run.x);
    CHECK(seen.norms == run.history);
    for (size_t k = 0; k < seen.built.size(); k++) {
      CHECK(seen.built[k] == Approx(seen.norms[k + 1]).epsilon(1e-12));
      CHECK(std::abs(seen.of_solution[k] - seen.norms[k + 1]) <= 1e-12 * seen.norms[0] + 1e-9 * seen.norms[k + 1]);
    }
    CHECK(Contains(ViewText(watched), "one by one, for a monitor"));
    CHECK(Contains(ViewText(stepped), "one by one, as asked for"));
    CHECK(Contains(ViewText(plain), backend.where == PETSC_MEMTYPE_HOST ? "on the host" : "in a CUDA graph"));
  }
}

TEST_CASE("rrbcg: tests and reasons are those of KSPCG", "[rrbcg]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Diffusion({45, 38}, true, 7), backend.mat);
    /* a convergence test of the program */
    const KSPObject ksp = MakeRRBCG(A, "-pc_rrb_levels 6");
    MUST(KSPSetConvergenceTest(
      ksp,
      [](KSP, PetscInt its, PetscReal, KSPConvergedReason *reason, void *) {
        *reason = its == 4 ? KSP_CONVERGED_USER : KSP_CONVERGED_ITERATING;
        return PETSC_SUCCESS;
      },
      nullptr, nullptr));
    const Run run = SolveFrom(ksp);
    CHECK(run.reason == KSP_CONVERGED_USER);
    CHECK(run.iterations == 4);
    CHECK(run.history.size() == 5);
    /* a right-hand side that is not finite, and a norm that grows beyond what is allowed */
    {
      const VecObject b = RightVec(A), x = RightVec(A);
      MUST(VecSet(b, std::numeric_limits<PetscReal>::quiet_NaN()));
      for (KSPType type : {KSPRRBCG, KSPCG}) {
        const KSPObject solver = MakeRRBCG(A, "-pc_rrb_levels 6", type);
        MUST(KSPSolve(solver, b, x));
        CHECK(ReasonOf(solver) == KSP_DIVERGED_NANORINF);
      }
      MUST(VecSet(b, 1));
      const KSPObject solver = MakeRRBCG(A, "-pc_rrb_levels 6 -ksp_divtol 1e-9 -ksp_rtol 1e-30");
      MUST(KSPSolve(solver, b, x));
      CHECK(ReasonOf(solver) == KSP_DIVERGED_DTOL);
    }
  }
}

/* KSPRRBCG and KSPCG have the same reason, iterations, norms and solution from a guess that leaves no residual in red points. */
static void CompareWithCG(Mat A, Size size, const std::string &options, bool zeros = false)
{
  const std::vector<double> guess = EliminatedGuess(A, size);
  const KSPObject           mine = MakeRRBCG(A, options), theirs = MakeRRBCG(A, options, KSPCG);
  const Run                 run = SolveFrom(mine, &guess, 21, zeros), cg = SolveFrom(theirs, &guess, 21, zeros);
  CAPTURE(options);
  CHECK(run.reason == cg.reason);
  CHECK(run.iterations == cg.iterations);
  REQUIRE(run.history.size() == cg.history.size());
  for (size_t k = 0; k < run.history.size(); k++)
    CHECK(std::abs(run.history[k] - cg.history[k]) <= 1e-6 * cg.history[k] + 1e-9 * cg.history[0]);
  CHECK(Difference(cg.x, run.x) <= 1e-6);
}

TEST_CASE("rrbcg: an indefinite matrix is what it is to KSPCG", "[rrbcg]")
{
  for (const Backend &backend : Backends())
    for (const auto &system : {std::pair<double, std::uint64_t>{0.972, 1}, {0.968, 6}, {0.964, 4}})
      for (const char *options : {"-pc_rrb_levels 4", "-pc_rrb_levels 100", "-pc_rrb_levels 4 -ksp_norm_type natural",
                                  "-pc_rrb_levels 100 -ksp_norm_type none -ksp_max_it 60"}) {
        CAPTURE(backend.name, system.first, options);
        const Size      size{25, 20};
        const MatObject A = CreateMat(Signed(size, system.first, system.second), backend.mat); /* its pivots are positive */
        CompareWithCG(A, size, options);
        const std::vector<double> guess = EliminatedGuess(A, size);
        const KSPObject           ksp   = MakeRRBCG(A, options);
        const Run                 run   = SolveFrom(ksp, &guess);
        CHECK(run.reason == KSP_DIVERGED_INDEFINITE_MAT);
        CHECK(run.iterations >= 2);
        CHECK(run.iterations <= 30);
        for (KSPType type : {KSPRRBCG, KSPCG}) {
          if (!kKSPCGHasNegativeCurvature) continue;
          const KSPObject curved = MakeRRBCG(A, options, type),
                          strict = MakeRRBCG(A, std::string(options) + " -ksp_error_if_not_converged", type);
          MUST(KSPSetConvergedNegativeCurvature(curved, PETSC_TRUE));
          const Run along = SolveFrom(curved, &guess);
          CHECK(along.reason == KSP_CONVERGED_NEG_CURVE);
          CHECK(along.iterations == run.iterations);
          const VecObject b = RightVec(A, 21), x = RightVec(A);
          Errors          errors;
          CHECK(KSPSolve(strict, b, x) != 0);
          CHECK(Contains(errors.text, "Diverged due to indefinite matrix"));
        }
      }
}

/* The pivots of a factor are always positive, so that the test itself makes M indefinite. */
TEST_CASE("rrbcg: an indefinite preconditioner is what it is to KSPCG", "[rrbcg]")
{
  const Size      size{25, 20};
  const MatObject A     = CreateMat(Diffusion(size, true, 13), MATAIJ);
  const auto      guess = EliminatedGuess(A, size);
  for (const char *options :
       {"-pc_rrb_levels 4", "-pc_rrb_levels 4 -ksp_norm_type natural", "-pc_rrb_levels 4 -ksp_norm_type none -ksp_max_it 60"}) {
    Run run[2];
    for (int k = 0; k < 2; k++) {
      const KSPObject ksp    = MakeRRBCG(A, options, k ? KSPCG : KSPRRBCG),
                      strict = MakeRRBCG(A, std::string(options) + " -ksp_error_if_not_converged", k ? KSPCG : KSPRRBCG);
      for (KSP solver : {(KSP)ksp, (KSP)strict}) {
        MUST(KSPSetUp(solver));
        auto *const F = static_cast<RRBFactorHost *>(((PC_RRB *)PCOf(solver)->data)->factor);
        RRBLevel(2, size.nx, size.ny).ForRed([&](PetscInt x, PetscInt y) { F->d[y * size.nx + x] *= x % 4 == 1 ? -1 : 1; });
      }
      run[k]            = SolveFrom(ksp, &guess);
      const VecObject b = RightVec(A, 21), x = RightVec(A);
      Errors          errors;
      CHECK(KSPSolve(strict, b, x) != 0);
      CHECK(Contains(errors.text, "Diverged due to indefinite preconditioner"));
    }
    CAPTURE(options);
    CHECK(run[0].reason == KSP_DIVERGED_INDEFINITE_PC);
    CHECK(run[1].reason == run[0].reason);
    CHECK(run[1].iterations == run[0].iterations);
    REQUIRE(run[1].history.size() == run[0].history.size());
    for (size_t n = 0; n < run[0].history.size(); n++) CHECK(run[0].history[n] == Approx(run[1].history[n]).epsilon(1e-9));
    CHECK(Difference(run[1].x, run[0].x) <= 1e-9);
  }
}

/* Decisions that no factor leads to: the caller gives a wrong beta. */
TEST_CASE("rrbcg: the twins' decisions about beta", "[rrbcg][twins]")
{
  for (const Backend &backend : Backends())
    for (bool step : {false, true}) {
      CAPTURE(backend.name, step);
      const bool          device = PetscMemTypeDevice(backend.where);
      const Size          size{31, 17};
      const HostMatrix    A = Diffusion(size, true, 14);
      const CSRCopy       copy(A, backend.where);
      const size_t        bytes = A.n * sizeof(double);
      std::vector<double> r(A.n, 1.), x(A.n, 0.);
      RRBParams           params;
      RRBStats            stats;
      RRBFactor          *F    = nullptr;
      RRBCGWork          *work = nullptr;
      PetscScalar        *there;
      RRBCGSums           sums;
      params.levels     = 4;
      params.keep_schur = PETSC_TRUE;
      MUST((device ? RRBComputeFactor_CUDA : RRBComputeFactor_Host)(&copy.view, size.nx, size.ny, &params, &F, &stats));
      MUST((device ? RRBCGPrepare_CUDA : RRBCGPrepare_Host)(F, &work));
      MUST(ArrayCreate(bytes, backend.where, (void **)&there));
      MUST(ArrayCopy(there, r.data(), bytes, backend.where, PETSC_MEMTYPE_HOST));
      const auto run = [&](CGNorm norm, double factor, CGStop *stop, LocalInt *its) {
        const CGTest    test{norm, 0, std::numeric_limits<double>::infinity(), 0, -1, LOCAL_INT_MAX, 10};
        const CGRecord *records;
        LocalInt        count, all = 0;
        PetscReal       value;
        *stop = CG_RUNNING;
        MUST((device ? RRBCGStart_CUDA : RRBCGStart_Host)(work, there, &sums));
        MUST((device ? RRBCGBegin_CUDA : RRBCGBegin_Host)(work, factor * sums.gz, &test));
        while (*stop == CG_RUNNING) {
          MUST((device ? RRBCGAdvance_CUDA : RRBCGAdvance_Host)(work, (PetscBool)step, &count, &records, stop, its, &value));
          all += count;
        }
        return all;
      };
      CGStop   stop;
      LocalInt its;
      CHECK(run(CG_NORM_UNPRECONDITIONED, -1, &stop, &its) == 1); /* the sign changes in the first iteration, which is complete */
      CHECK(stop == CG_INDEFINITE_PC);
      CHECK(its == 2);
      CHECK(run(CG_NORM_UNPRECONDITIONED, std::nan(""), &stop, &its) == 1);
      CHECK(stop == CG_NORM_NOT_FINITE);
      CHECK(run(CG_NORM_NONE, std::nan(""), &stop, &its) == 1);
      CHECK(stop == CG_BETA_NOT_FINITE);
      CHECK(run(CG_NORM_NONE, 1, &stop, &its) == 10); /* after that the work can be used as before */
      CHECK(stop == CG_ITS);
      CHECK(its == 10);
      MUST(ArrayDestroy(backend.where, (void **)&there));
      MUST((device ? RRBCGDestroy_CUDA : RRBCGDestroy_Host)(&work));
      MUST((device ? RRBDestroy_CUDA : RRBDestroy_Host)(&F));
    }
}

TEST_CASE("rrbcg: right-hand sides of zeros, guesses and limits are treated as KSPCG does", "[rrbcg]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const Size      size{45, 38};
    const MatObject A = CreateMat(Diffusion(size, true, 7), backend.mat);
    for (const char *norm : {"", " -ksp_norm_type natural"})
      for (const char *options :
           {"", "-ksp_max_it 0", "-ksp_max_it 1", "-ksp_max_it 7 -ksp_rtol 1e-30", "-ksp_min_it 40", "-ksp_check_norm_iteration 5",
            "-ksp_converged_use_initial_residual_norm", "-ksp_converged_use_min_initial_residual_norm",
            "-ksp_atol 1e-2 -ksp_rtol 0", "-ksp_divtol 1e-9 -ksp_rtol 1e-30", "-ksp_converged_maxits -ksp_max_it 4",
            "-ksp_rtol 0.9 -ksp_atol 1e9"}) {
        CAPTURE(options, norm);
        CompareWithCG(A, size, std::string("-pc_rrb_levels 6 ") + options + norm);
      }
    for (const char *options : {"-ksp_norm_type none -ksp_max_it 0", "-ksp_norm_type none -ksp_max_it 1",
                                "-ksp_norm_type none -ksp_max_it 9", "-ksp_convergence_test skip -ksp_max_it 6"})
      CompareWithCG(A, size, std::string("-pc_rrb_levels 6 ") + options);
    /* a right-hand side of zeros, from zeros and from a guess, which is then all error */
    for (const char *options : {"", "-ksp_norm_type natural", "-ksp_norm_type none -ksp_max_it 3"})
      for (bool guess : {false, true}) {
        CAPTURE(options, guess);
        const std::vector<double> x0  = EliminatedGuess(A, size);
        const Run                 run = SolveFrom(MakeRRBCG(A, options), guess ? &x0 : nullptr, 21, true),
                  cg                  = SolveFrom(MakeRRBCG(A, options, KSPCG), guess ? &x0 : nullptr, 21, true);
        CAPTURE((int)run.reason, run.iterations, cg.iterations, run.history, cg.history);
        CHECK(run.reason == cg.reason);
        CHECK(run.history[0] == Approx(cg.history[0]).epsilon(1e-12).margin(1e-300));
        if (guess && run.reason > 0) CHECK(std::abs(run.iterations - cg.iterations) <= 2);
        else CHECK(run.iterations == cg.iterations);
        if (guess) continue;
        CHECK(run.history.size() == cg.history.size());
        CHECK(run.x == std::vector<double>(run.x.size(), 0.));
      }
    /* from any guess the first norm is that of its residual, and the solution is that of the system */
    const std::vector<double> x0 = Values(RightVec(A, 33));
    for (const char *options :
         {"", "-ksp_norm_type natural", "-ksp_converged_use_initial_residual_norm", "-pc_rrb_levels 6 -ksp_norm_type natural"}) {
      CAPTURE(options);
      const Run run = SolveFrom(MakeRRBCG(A, options), &x0), cg = SolveFrom(MakeRRBCG(A, options, KSPCG), &x0);
      CHECK(run.reason == cg.reason);
      CHECK(run.history[0] == Approx(cg.history[0]).epsilon(1e-11));
      CHECK(std::abs(run.iterations - cg.iterations) <= 2);
      CHECK(run.true_residual <= 1e-7);
    }
    /* the exact solution as a guess */
    const Run run   = SolveFrom(MakeRRBCG(A, "-ksp_rtol 1e-13"));
    const Run again = SolveFrom(MakeRRBCG(A, "-ksp_rtol 1e-9"), &run.x);
    CHECK(again.iterations == 0);
    CHECK(again.x == run.x);
  }
}

/* The solution is 0 in black points: after the elimination nothing is left to solve. */
TEST_CASE("rrbcg: what the elimination alone solves", "[rrbcg]")
{
  for (const Backend &backend : Backends())
    for (const char *options : {"", "-ksp_norm_type natural", "-ksp_norm_type none"}) {
      CAPTURE(backend.name, options);
      const PetscInt      nx = 16, ny = 11;
      const MatObject     A   = CreateMat(Poisson(nx, ny), backend.mat);
      const KSPObject     ksp = MakeRRBCG(A, options);
      const VecObject     u = RightVec(A), b = RightVec(A), x = RightVec(A);
      std::vector<double> red; /* 1 in red points and 0 in black ones, and divisions by the diagonal, 4, are exact */
      for (PetscInt row = 0; row < nx * ny; row++) red.push_back((row % nx + row / nx) % 2);
      SetValues(u, red);
      MUST(MatMult(A, u, b));
      MUST(KSPSolve(ksp, b, x));
      CHECK(ReasonOf(ksp) == KSP_CONVERGED_ATOL);
      CHECK(IterationsOf(ksp) <= 1);
      CHECK(Values(x) == red);
    }
}

TEST_CASE("rrbcg: numbers beyond their range are no convergence", "[rrbcg]")
{
  struct Case {
    int                A, b; /* powers of 2 */
    const char        *options;
    KSPConvergedReason reason;
  };
  const std::vector<Case> cases = {
    {-950, 0, "", KSP_CONVERGED_RTOL},
    {950, 0, "", KSP_CONVERGED_RTOL},
    {-950, 0, "-ksp_norm_type natural", KSP_CONVERGED_RTOL},
    {950, 0, "-ksp_norm_type natural", KSP_CONVERGED_RTOL},
    {-1012, 11, "", KSP_DIVERGED_NANORINF},   /* x overflows */
    {1000, -130, "", KSP_DIVERGED_BREAKDOWN}, /* x and r.z vanish */
    {0, -545, "", KSP_DIVERGED_BREAKDOWN},    /* r.r vanishes */
    {0, -545, "-ksp_norm_type natural", KSP_DIVERGED_BREAKDOWN},
    {0, -545, "-ksp_atol 1e-50", KSP_CONVERGED_ATOL},
    {-1040, 0, "", KSP_DIVERGED_PC_FAILED},
  };
  for (const Backend &backend : Backends())
    for (const char *levels : {"", "-pc_rrb_levels 5"})
      for (const Case &test : cases) {
        CAPTURE(backend.name, levels, test.A, test.b, test.options);
        HostMatrix H = Diffusion({24, 19}, true, 7);
        for (PetscScalar &a : H.a) a = std::ldexp(a, test.A);
        const MatObject A   = CreateMat(H, backend.mat);
        const KSPObject ksp = MakeRRBCG(A, std::string(levels) + " " + test.options);
        const VecObject b = RightVec(A, 21), x = RightVec(A);
        MUST(VecScale(b, std::ldexp(1., test.b)));
        MUST(KSPSolve(ksp, b, x));
        CHECK(ReasonOf(ksp) == test.reason);
        if (test.reason == KSP_CONVERGED_RTOL) CHECK(ResidualOf(A, b, x) <= 1e-7);
      }
}

TEST_CASE("rrbcg: residual histories of the program, and rates, are as with KSPCG", "[rrbcg]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const Size                size{45, 38};
    const MatObject           A     = CreateMat(Diffusion(size, true, 7), backend.mat);
    const std::vector<double> guess = EliminatedGuess(A, size);
    for (PetscInt length : {1, 4, 1000})
      for (PetscBool reset : {PETSC_TRUE, PETSC_FALSE})
        for (bool watched : {false, true}) {
          CAPTURE(length, reset, watched);
          std::vector<double> history[2];
          PetscInt            count[2];
          PetscReal           rate[2], square, error_rate, error_square;
          PetscInt            calls[2] = {0, 0};
          for (int k = 0; k < 2; k++) {
            const KSPObject  ksp = MakeRRBCG(A, "-pc_rrb_levels 6", k ? KSPCG : KSPRRBCG);
            const VecObject  b = RightVec(A, 21), x = RightVec(A);
            const PetscReal *of_ksp;
            history[k].assign(length, -1.);
            MUST(KSPSetInitialGuessNonzero(ksp, PETSC_TRUE));
            MUST(KSPSetResidualHistory(ksp, history[k].data(), length, reset));
            if (watched)
              MUST(KSPMonitorSet(
                ksp,
                [](KSP, PetscInt its, PetscReal, void *context) {
                  PetscInt *const calls = (PetscInt *)context;
                  *calls += 1000 * its + 1;
                  return PETSC_SUCCESS;
                },
                &calls[k], nullptr));
            for (int solve = 0; solve < 2; solve++) { /* without a reset the second solve goes on in the same history */
              SetValues(x, guess);
              MUST(KSPSolve(ksp, b, x));
            }
            MUST(KSPGetResidualHistory(ksp, &of_ksp, &count[k]));
            CHECK(of_ksp == history[k].data());
            if (count[k] > 2) MUST(KSPComputeConvergenceRate(ksp, &rate[k], &square, &error_rate, &error_square));
          }
          CHECK(calls[0] == calls[1]);
          CHECK((calls[0] > 0) == watched);
          CHECK(count[0] == count[1]);
          CHECK(count[0] <= length);
          for (PetscInt n = 0; n < length; n++)
            CHECK(std::abs(history[0][n] - history[1][n]) <= 1e-6 * std::abs(history[1][n]) + 1e-9 * history[1][0]);
          if (count[0] > 2) CHECK(rate[0] == Approx(rate[1]).epsilon(1e-4));
        }
  }
}

namespace
{

PetscErrorCode OnlyLook(KSP, PetscInt, PetscReal, void *)
{
  return PETSC_SUCCESS;
}

/* As the monitor of a program may do, for example to estimate the error. */
PetscErrorCode ApplyPreconditioner(KSP ksp, PetscInt, PetscReal, void *)
{
  PC  pc;
  Vec b;
  PetscFunctionBeginUser;
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(KSPGetRhs(ksp, &b));
  VecObject x, y;
  PetscCall(VecDuplicate(b, x.put()));
  PetscCall(VecDuplicate(b, y.put()));
  PetscCall(VecSet(x, 3));
  PetscCall(PCApply(pc, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

TEST_CASE("rrbcg: a monitor may apply the preconditioner", "[rrbcg]")
{
  for (const Backend &backend : Backends()) {
    const Size      size{45, 38};
    const MatObject A = CreateMat(Diffusion(size, true, 7), backend.mat);
    for (const char *options : {"-pc_rrb_levels 1", "-pc_rrb_levels 2", "-pc_rrb_levels 6", "-pc_rrb_levels 100",
                                "-pc_rrb_levels 6 -ksp_norm_type natural"})
      for (bool guess : {false, true}) {
        CAPTURE(backend.name, options, guess);
        const std::vector<double> x0      = Values(RightVec(A, 33));
        const KSPObject           looking = MakeRRBCG(A, options), applying = MakeRRBCG(A, options);
        MUST(KSPMonitorSet(looking, OnlyLook, nullptr, nullptr));
        MUST(KSPMonitorSet(applying, ApplyPreconditioner, nullptr, nullptr));
        const Run expected = SolveFrom(looking, guess ? &x0 : nullptr), run = SolveFrom(applying, guess ? &x0 : nullptr),
                  none = SolveFrom(MakeRRBCG(A, options), guess ? &x0 : nullptr);
        CHECK(expected.reason > 0);
        CHECK(run.history == expected.history);
        CHECK(run.x == expected.x);
        CHECK(none.x == expected.x);
      }
  }
}

/* At the end KSPSolve() adds the solution to the guess, which is in that vector. */
TEST_CASE("rrbcg: the vector of the solution is not for a monitor to build the solution in", "[rrbcg][bad]")
{
  const auto build = [](KSP ksp, PetscInt, PetscReal, void *) { return KSPBuildSolution(ksp, ksp->vec_sol, nullptr); };
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject           A   = CreateMat(Diffusion({45, 38}, true, 7), backend.mat);
    const KSPObject           ksp = MakeRRBCG(A, "-pc_rrb_levels 6"), looking = MakeRRBCG(A, "-pc_rrb_levels 6");
    const VecObject           b = RightVec(A, 21), x = RightVec(A, 33);
    const std::vector<double> expected = SolveFrom(looking).x;
    MUST(KSPMonitorSet(ksp, build, nullptr, nullptr));
    CHECK(SolveFrom(ksp).x == expected); /* without a guess there is no harm in it */
    MUST(KSPSetInitialGuessNonzero(ksp, PETSC_TRUE));
    Errors errors;
    CHECK(KSPSolve(ksp, b, x) != 0);
    CHECK(Contains(errors.text, "give KSPBuildSolution() another one"));
  }
}

TEST_CASE("rrbcg: no rows", "[rrbcg]")
{
  for (const Backend &backend : Backends())
    for (const char *options : {"", "-ksp_norm_type natural", "-ksp_norm_type none"}) {
      CAPTURE(backend.name, options);
      const MatObject A = CreateMat(HostMatrix(), backend.mat);
      CHECK(SolveFrom(MakeRRBCG(A, options)).reason == SolveFrom(MakeRRBCG(A, options, KSPCG)).reason);
    }
}

/* All that is done once a matrix is done by KSPSetUp(), not by the first solve, except the graph on a GPU. */
TEST_CASE("rrbcg: KSPSetUp() prepares all of a solve", "[rrbcg]")
{
  const MatObject A   = CreateMat(Diffusion({70, 61}, true, 8), MATAIJ);
  const KSPObject ksp = MakeRRBCG(A, "");
  const VecObject b = RightVec(A, 21), x = RightVec(A, 5);
  const auto      allocations = [&] { return CountAllocations([&] { MUST(KSPSolve(ksp, b, x)); }); };
  MUST(KSPSetUp(ksp));
  allocations(); /* VecNorm() of PETSc makes room at a vector that it has not seen */
  const long first = allocations();
  MUST(KSPReset(ksp));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetUp(ksp));
  CHECK(allocations() <= first + 1);
  MUST(MatScale(A, 3)); /* the same with new values */
  if (kPCApplySetsUp) MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetUp(ksp));
  CHECK(first == allocations());
  for (const Backend &backend : Backends()) { /* an option of the preconditioner that is set after KSPSetUp() */
    CAPTURE(backend.name);
    const MatObject B     = CreateMat(Diffusion({70, 61}, true, 8), backend.mat);
    const KSPObject other = MakeRRBCG(B, "");
    MUST(KSPSetUp(other));
    MUST(PCRRBSetLevels(PCOf(other), 8));
    const Run run = SolveFrom(other), fresh = SolveFrom(MakeRRBCG(B, "-pc_rrb_levels 8"));
    CHECK(run.history == fresh.history);
    CHECK(run.x == fresh.x);
  }
}

TEST_CASE("rrbcg: the first solve on a GPU takes no memory that KSPSetUp() did not", "[rrbcg][gpu]")
{
  NEEDS_DEVICE();
  const Size      size{1000, 700}; /* its vectors have 18.2e6 bytes */
  const MatObject A = CreateMat(Diffusion(size, true, 8), MATAIJCUSPARSE);
  const VecObject b = RightVec(A, 21), x = RightVec(A, 5);
  MUST(KSPSolve(MakeRRBCG(A, ""), b, x)); /* the kernels are loaded now, and the vectors have their memory on the device */
  const KSPObject ksp = MakeRRBCG(A, "");
  MUST(KSPSetUp(ksp));
  const auto before = DeviceBytes();
  MUST(KSPSolve(ksp, b, x));
  CHECK(DeviceBytes() - before < 4e6);
}

TEST_CASE("rrbcg: new values, other levels, reset", "[rrbcg]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A   = CreateMat(Diffusion({70, 61}, true, 8), backend.mat);
    const KSPObject ksp = MakeRRBCG(A, "");
    PC              pc;
    const Run       first = SolveFrom(ksp), again = SolveFrom(ksp);
    CHECK(again.history == first.history);
    CHECK(again.x == first.x);
    MUST(MatScale(A, 2));
    const Run scaled = SolveFrom(ksp);
    CHECK(scaled.iterations == first.iterations);
    auto twice = scaled.x;
    for (double &value : twice) value *= 2;
    CHECK(Difference(first.x, twice) <= 1e-9);
    MUST(KSPGetPC(ksp, &pc));
    MUST(PCRRBSetLevels(pc, 9));
    const Run other = SolveFrom(ksp), fresh = SolveFrom(MakeRRBCG(A, "-pc_rrb_levels 9"));
    CHECK(other.history == fresh.history);
    CHECK(other.x == fresh.x);
    MUST(KSPReset(ksp));
    MUST(KSPSetOperators(ksp, A, A));
    CHECK(SolveFrom(ksp).x == fresh.x);
    /* a PC that was set up while the KSP had another type */
    const KSPObject cg = MakeRRBCG(A, "-pc_rrb_levels 9", KSPCG);
    (void)SolveFrom(cg);
    MUST(KSPSetType(cg, KSPRRBCG));
    MUST(KSPSetNormType(cg, KSP_NORM_UNPRECONDITIONED));
    CHECK(SolveFrom(cg).x == fresh.x);
  }
}

/* Both work vectors are in use: one has the residual of the guess, the other the solution that the monitor asks for. */
TEST_CASE("rrbcg: a guess and a monitor after a reset", "[rrbcg]")
{
  const auto build = [](KSP ksp, PetscInt, PetscReal, void *) {
    Vec x;
    return KSPBuildSolution(ksp, nullptr, &x);
  };
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject first = CreateMat(Diffusion({12, 9}, true, 8), backend.mat);
    const KSPObject ksp   = MakeRRBCG(first, "");
    MUST(KSPMonitorSet(ksp, build, nullptr, nullptr));
    for (Size size : {Size{12, 9}, Size{40, 31}, Size{5, 4}}) {
      CAPTURE(size.nx);
      const MatObject           A  = CreateMat(Diffusion(size, true, 8), backend.mat);
      const std::vector<double> x0 = Values(RightVec(A, 33));
      MUST(KSPReset(ksp));
      MUST(KSPSetOperators(ksp, A, A));
      CHECK(SolveFrom(ksp, &x0).x == SolveFrom(MakeRRBCG(A, ""), &x0).x);
    }
  }
}

/* The method solves with the factor, not with the matrix. */
TEST_CASE("rrbcg: a factor that is kept while the matrix changes is an error", "[rrbcg][bad]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A   = CreateMat(Diffusion({20, 18}, true, 4), backend.mat);
    const KSPObject ksp = MakeRRBCG(A, "-ksp_rtol 1e-8");
    const VecObject b = RightVec(A, 21), x = RightVec(A, 5);
    MUST(KSPSolve(ksp, b, x));
    MUST(KSPSetReusePreconditioner(ksp, PETSC_TRUE));
    MUST(KSPSolve(ksp, b, x)); /* the matrix is still the same */
    MUST(MatShift(A, 0.5));
    {
      Errors errors;
      CHECK(KSPSolve(ksp, b, x) != 0);
      CHECK(Contains(errors.text, "-ksp_reuse_preconditioner"));
    }
    MUST(KSPSetReusePreconditioner(ksp, PETSC_FALSE));
    MUST(KSPSolve(ksp, b, x));
  }
}

TEST_CASE("rrbcg: vectors of another size than the matrix are an error", "[rrbcg][bad]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Diffusion({20, 18}, true, 4), backend.mat), other = CreateMat(Poisson(7, 3), backend.mat);
    const VecObject b = RightVec(A), x = RightVec(A), short_b = RightVec(other), short_x = RightVec(other);
    for (const auto &vectors : {std::pair<Vec, Vec>{b, short_x}, {short_b, x}, {short_b, short_x}}) {
      const KSPObject ksp = MakeRRBCG(A, "");
      Errors          errors;
      CHECK(KSPSolve(ksp, vectors.first, vectors.second) == PETSC_ERR_ARG_SIZ);
    }
  }
}

TEST_CASE("rrbcg: a singular matrix with its null space", "[rrbcg]")
{
  for (const Backend &backend : Backends())
    for (const char *levels : {"1", "4", "5", "100"}) {
      CAPTURE(backend.name, levels);
      const MatObject A = CreateMat(Diffusion({39, 44}, false, 9), backend.mat);
      SetConstantsNull(A);
      const KSPObject ksp = MakeRRBCG(A, std::string("-pc_rrb_levels ") + levels);
      const VecObject b = RightVec(A, 10), x = RightVec(A);
      PetscReal       of_b;
      MUST(MatNullSpaceRemove(Got(MatGetNullSpace, A), b));
      MUST(KSPSolve(ksp, b, x));
      CHECK(ReasonOf(ksp) > 0);
      CHECK(ResidualOf(A, b, x) <= 1e-7);
      MUST(VecNorm(b, NORM_2, &of_b));
      CHECK(std::abs(Got(VecSum, x)) <= 1e-8 * of_b);
    }
}

/* KSPCG removes the null space from z. Without that, rounding ends the iterations earlier, or makes the matrix seem indefinite. */
TEST_CASE("rrbcg: singular matrices with large jumps, and right-hand sides that have no solution, are what they are to KSPCG",
          "[rrbcg]")
{
  for (const Backend &backend : Backends())
    for (const auto &[contrast, rtol] :
         {std::pair(1., "1e-12"), std::pair(1e3, "1e-10"), std::pair(1e4, "1e-9"), std::pair(1e6, "1e-6")})
      for (const char *options : {" -pc_rrb_levels 6", " -pc_rrb_levels 6 -ksp_norm_type natural",
                                  " -pc_rrb_levels 7 -ksp_rrbcg_graph 0", " -pc_rrb_levels 100"}) {
        CAPTURE(backend.name, contrast, rtol, options);
        const MatObject A = CreateMat(Inclusions(97, 76, contrast), backend.mat);
        SetConstantsNull(A);
        std::vector<KSPConvergedReason> reasons;
        std::vector<PetscInt>           iterations;
        for (bool consistent : {true, false})
          for (KSPType type : {KSPRRBCG, KSPCG}) {
            const KSPObject ksp = MakeRRBCG(A, std::string("-ksp_rtol ") + rtol + options, type);
            const VecObject b = RightVec(A, 10), x = RightVec(A);
            if (consistent) MUST(MatNullSpaceRemove(Got(MatGetNullSpace, A), b));
            MUST(KSPSolve(ksp, b, x));
            reasons.push_back(ReasonOf(ksp));
            iterations.push_back(IterationsOf(ksp));
          }
        CAPTURE(reasons, iterations);
        CHECK(reasons[0] == KSP_CONVERGED_RTOL);
        CHECK(reasons[1] == KSP_CONVERGED_RTOL);
        /* these are about a hundred, most of them near the limit that rounding sets */
        CHECK(std::abs(iterations[0] - iterations[1]) <= 2 + iterations[1] / 20);
        CHECK(reasons[2] < 0);
        CHECK(reasons[3] < 0);
      }
}

TEST_CASE("rrbcg: what it cannot solve is an error with a remedy", "[rrbcg][bad]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const auto message = [](KSP ksp, Mat A) {
      const VecObject b = RightVec(A), x = RightVec(A);
      Errors          errors;
      CHECK(KSPSolve(ksp, b, x) != 0);
      return errors.text;
    };
    const MatObject A = CreateMat(Poisson(12, 10), backend.mat), other = CreateMat(Poisson(12, 10), backend.mat);
    CHECK(Contains(message(MakeRRBCG(A, "-pc_type jacobi"), A), "use -pc_type rrb"));
    const KSPObject two = MakeRRBCG(A, "");
    MUST(KSPSetOperators(two, A, other));
    CHECK(Contains(message(two, A), "was given two"));
    for (const char *options : {"-ksp_view_singularvalues", "-ksp_view_eigenvalues", "-ksp_monitor_singular_value"})
      CHECK(Contains(message(MakeRRBCG(A, options), A), "use -ksp_type cg -pc_type rrb, whose are the same"));
    HostMatrix nine = Poisson(12, 10);
    {
      std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(nine.n), sided(nine.n);
      for (PetscInt row = 0; row < nine.n; row++)
        for (PetscInt k = nine.i[row]; k < nine.i[row + 1]; k++) {
          rows[row].push_back({nine.j[k], nine.a[k]});
          if (row != 30 || nine.j[k] == 30) sided[row].push_back({nine.j[k], nine.a[k]});
        }
      rows[14].push_back({27, -0.5});
      rows[27].push_back({14, -0.5});
      const MatObject B = CreateMat(FromRows(rows), backend.mat), C = CreateMat(FromRows(sided), backend.mat);
      CHECK(Contains(message(MakeRRBCG(B, "-pc_rrb_nx 12"), B), "needs a 5-point stencil"));
      CHECK(Contains(message(MakeRRBCG(C, "-pc_rrb_nx 12"), C), "4 couplings are there in one of two rows alone"));
    }
    const KSPObject norm = MakeRRBCG(A, "-ksp_norm_type preconditioned");
    CHECK(!message(norm, A).empty());
    const KSPObject failed = MakeRRBCG(A, "");
    MUST(MatSetValue(A, 5, 5, -1, INSERT_VALUES));
    Assemble(A);
    CHECK(SolveFrom(failed).reason == KSP_DIVERGED_PC_FAILED);
  }
}

/* PETSc leaves the preconditioner and b as they are in a solve when a solver returns an error. */
TEST_CASE("rrbcg: a solver that has refused a matrix some times solves with another one", "[rrbcg][bad]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Poisson(12, 10), backend.mat), bad = CreateMat(Poisson(12, 10), backend.mat);
    const VecObject b = RightVec(A, 21), x = RightVec(A, 5);
    const KSPObject ksp   = MakeRRBCG(A, "");
    const Run       fresh = SolveFrom(ksp);
    const PetscInt  row   = 31;
    MUST(MatSetOption(bad, MAT_KEEP_NONZERO_PATTERN, PETSC_TRUE));
    MUST(MatZeroRows(bad, 1, &row, 1, nullptr, nullptr));
    MUST(KSPSetOperators(ksp, bad, bad));
    for (int time = 0; time < 3; time++) {
      Errors errors;
      CHECK(KSPSolve(ksp, b, x) != 0);
      CHECK(Contains(errors.text, "4 couplings are there in one of two rows alone"));
    }
    MUST(VecSet(b, 1)); /* it is not locked any more */
    MUST(KSPSetOperators(ksp, A, A));
    const Run again = SolveFrom(ksp);
    CHECK(again.reason == KSP_CONVERGED_RTOL);
    CHECK(again.x == fresh.x);
  }
}

TEST_CASE("rrbcg: a negative definite matrix", "[rrbcg]")
{
  for (const Backend &backend : Backends())
    for (const char *options : {"", "-ksp_norm_type natural"}) {
      CAPTURE(backend.name, options);
      const MatObject A = CreateMat(Diffusion({31, 17}, true, 1), backend.mat),
                      B = CreateMat(Diffusion({31, 17}, true, 1), backend.mat);
      MUST(MatScale(B, -1));
      const std::vector<double> x0       = Values(RightVec(A, 33));
      const Run                 positive = SolveFrom(MakeRRBCG(A, options)), negative = SolveFrom(MakeRRBCG(B, options)),
                guessed = SolveFrom(MakeRRBCG(B, options), &x0);
      auto x            = negative.x;
      for (double &value : x) value = -value;
      CHECK(negative.history == positive.history);
      CHECK(x == positive.x);
      CHECK(guessed.reason == KSP_CONVERGED_RTOL);
      CHECK(guessed.true_residual <= 1e-7);
    }
}

TEST_CASE("rrbcg: several ranks are an error that names what works", "[rrbcg][mpi]")
{
  if (Ranks() == 1) return;
  const MatObject A   = CreateMat(Poisson(10, 12), MATAIJ, PETSC_COMM_WORLD);
  const KSPObject ksp = MakeRRBCG(A, "-pc_rrb_nx 10");
  const VecObject b = RightVec(A), x = RightVec(A);
  Errors          errors;
  CHECK(KSPSolve(ksp, b, x) != 0);
  CHECK(Contains(errors.text, "use -ksp_type cg -pc_type rrb"));
}

#if defined(FINEPC_HAVE_CUDA)
/* The residual of the guess is a product by PETSc, which may have a stream of its own. */
TEST_CASE("rrbcg: a guess on a stream that is not in order with PETSc's is an error", "[rrbcg][gpu]")
{
  NEEDS_DEVICE();
  const MatObject   A   = CreateMat(Diffusion({90, 81}, true, 8), MATAIJCUSPARSE);
  const KSPObject   ksp = MakeRRBCG(A, "-ksp_initial_guess_nonzero");
  const VecObject   b = RightVec(A, 33), x = RightVec(A, 34);
  const OtherStream stream;
  Errors            errors;
  CHECK(KSPSolve(ksp, b, x) == PETSC_ERR_SUP);
  CHECK(Contains(errors.text, "PETSC_STREAM_DEFAULT"));
}

/* PETSc's MatMult() knows the default stream alone: KSPCG gets streams that are in order with the default stream. */
TEST_CASE("rrbcg: two solvers set up and solve on two other streams", "[rrbcg][rrb][gpu]")
{
  NEEDS_DEVICE();
  for (KSPType type : {KSPRRBCG, KSPCG})
    for (const char *options : {"-pc_rrb_levels 5", "-pc_rrb_levels 5 -ksp_norm_type none -ksp_max_it 9"}) {
      CAPTURE(type, options);
      const Size size[2] = {{150, 141}, {64, 90}};
      MatObject  A[2];
      KSPObject  ksp[2];
      VecObject  b[2], x[2];
      Run        expected[2], deeper[2];
      for (int k = 0; k < 2; k++) {
        A[k]        = CreateMat(Diffusion(size[k], true, 15 + k), MATAIJCUSPARSE);
        expected[k] = SolveFrom(MakeRRBCG(A[k], options, type));
        deeper[k]   = SolveFrom(MakeRRBCG(A[k], std::string(options) + " -pc_rrb_levels 8", type));
        b[k]        = RightVec(A[k], 21);
        x[k]        = RightVec(A[k], 5);
        ksp[k]      = MakeRRBCG(A[k], options, type);
      }
      const auto change = [&](int round, int k) { /* which sets up the preconditioner again, in this stream */
                                                  if (round == 2) MUST(PCRRBSetLevels(PCOf(ksp[k]), 8));
      };
      SolveOnTwoStreams(type == std::string(KSPRRBCG) ? PETSC_STREAM_NONBLOCKING : PETSC_STREAM_DEFAULT, ksp, b, x, change,
                        [&](int round, int k, KSPConvergedReason reason, PetscInt iterations) {
                          const Run &right = round < 2 ? expected[k] : deeper[k];
                          CHECK(reason == right.reason);
                          CHECK(iterations == right.iterations);
                          CHECK(Difference(right.x, Values(x[k])) <= 1e-12);
                        });
    }
}
#endif
