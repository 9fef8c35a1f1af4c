/*
   The trust region of KSPCGFUSED: beside PETSc's KSPSTCG, which is the same method, by its definition, and as the inner solver of
   TAO's Newton methods and of SNESNEWTONTR.
*/
#include <finepc.h>
#include <petscsnes.h>
#include <petsctao.h>

#include <cmath>
#include <limits>
#include <set>

#include "ksp/cgfusedimpl.h"
#include "pc_support.h"

namespace
{

using TaoObject  = Object<Tao, TaoDestroy>;
using SNESObject = Object<SNES, SNESDestroy>;

const std::string kFused = "-ksp_type cgfused ";

/* What a solve leaves. */
struct Outcome {
  KSPConvergedReason  reason;
  PetscInt            iterations;
  PetscReal           norm, objective; /* by KSPCGGetNormD() and KSPCGGetObjFcn() */
  PetscReal           residual;        /* by KSPGetResidualNorm() */
  std::vector<double> x;
};

/* ||x||, the objective and ||b - A x|| by their definitions. */
struct Model {
  PetscReal norm, objective, residual;
};

Outcome SolveInRegion(KSP ksp, Vec b, PetscReal radius)
{
  VecObject x;
  MUST(VecDuplicate(b, x.put()));
  MUST(KSPCGSetRadius(ksp, radius));
  MUST(KSPSolve(ksp, b, x));
  return {ReasonOf(ksp), IterationsOf(ksp), Got(KSPCGGetNormD, ksp), Got(KSPCGGetObjFcn, ksp), Got(KSPGetResidualNorm, ksp),
          Values(x)};
}

Model ModelOf(KSP ksp, Vec b)
{
  Model       model;
  Mat         A;
  Vec         x;
  VecObject   w;
  PetscScalar Ax_x, b_x;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  MUST(KSPGetSolution(ksp, &x));
  MUST(VecDuplicate(b, w.put()));
  MUST(MatMult(A, x, w));
  MUST(VecDot(w, x, &Ax_x));
  MUST(VecDot(b, x, &b_x));
  MUST(VecNorm(x, NORM_2, &model.norm));
  MUST(VecAYPX(w, -1, b));
  MUST(VecNorm(w, NORM_2, &model.residual));
  model.objective = Ax_x / 2 - b_x;
  return model;
}

bool Near(double mine, double theirs, double tolerance)
{
  return std::fabs(mine - theirs) <= tolerance * std::fabs(theirs);
}

std::string ReasonText(KSP ksp)
{
  const char *text;
  MUST(KSPGetConvergedReasonString(ksp, &text));
  return text;
}

} // namespace

/* ---------------------------------------- the method ------------------------------------------ */

/* Definite and indefinite systems; radii that end the first step, a later one, and none. */
TEST_CASE("cgfused: a trust region is that of KSPSTCG", "[cgfused][trust][mpi]")
{
  int on_boundary = 0, curved = 0, inside = 0, several_steps = 0;
  for (const Backend &backend : Backends())
    for (double part : {0.5, 1.5})
      for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI})
        for (const char *reduction : {"-ksp_cg_single_reduction 0", "-ksp_cg_single_reduction 1"})
          for (PetscReal radius : {0.3, 20., 60., 1e6, 1e200}) {
            CAPTURE(backend.name, part, pc, reduction, radius);
            const MatObject   A     = CreateMat(ShortOf(20, part), backend.mat, PETSC_COMM_WORLD);
            const VecObject   b     = RightVec(A, 2);
            const std::string all   = std::string("-ksp_norm_type unpreconditioned -ksp_rtol 1e-6 ") + reduction;
            const KSPObject   fused = MakeKSP(A, kFused + all, pc), stcg = MakeKSP(A, "-ksp_type stcg " + all, pc);
            if (radius == 1e200 && part > 1) continue; /* KSPSTCG squares it */
            const Outcome mine   = SolveInRegion(fused, b, radius);
            const Model   model  = ModelOf(fused, b);
            const Outcome theirs = SolveInRegion(stcg, b, radius);
            CHECK(ReasonText(fused) == ReasonText(stcg));
            CHECK(mine.iterations == theirs.iterations);
            CHECK(Difference(mine.x, theirs.x) <= 1e-7);
            CHECK(Near(mine.norm, theirs.norm, 1e-7));
            CHECK(Near(mine.objective, theirs.objective, 1e-7));
            CHECK(Near(mine.norm, model.norm, 1e-12));
            CHECK(Near(mine.objective, model.objective, 1e-7));
            CHECK(std::fabs(mine.residual - model.residual) <= 1e-7 * (model.residual + 1)); /* of the x that is given */
            CHECK(mine.norm <= radius * (1 + 1e-12));
            on_boundary += mine.reason == KSP_CONVERGED_STEP_LENGTH;
            curved += mine.reason == KSP_CONVERGED_NEG_CURVE;
            inside += mine.reason == KSP_CONVERGED_RTOL;
            several_steps += mine.reason == KSP_CONVERGED_STEP_LENGTH && mine.iterations > 1;
            const std::string view = ViewText((KSP)fused);
            CHECK((view.empty() || Contains(view, "trust region of radius")));
            CHECK((view.empty() || Contains(view, "path: general: a trust region")));
            CHECK(!Contains(view, "single-reduction"));
          }
  CHECK(on_boundary > 0);
  CHECK(curved > 0);
  CHECK(inside > 0);
  CHECK(several_steps > 0);
}

/* A direction of zero or negative curvature in the first iteration, and a radius whose square is not a number of double precision.
 */
TEST_CASE("cgfused: a trust region and a matrix that is not definite anywhere", "[cgfused][trust]")
{
  for (const Backend &backend : Backends())
    for (double diagonal : {0., -3.})
      for (PetscReal radius : {1e-3, 7., 1e200}) {
        CAPTURE(backend.name, diagonal, radius);
        const MatObject A   = CreateMat(FromDense(3, {diagonal, 0, 0, 0, diagonal, 0, 0, 0, diagonal}), backend.mat);
        const VecObject b   = RightVec(A, 2);
        const KSPObject ksp = MakeKSP(A, kFused + "-ksp_norm_type none", PCNONE);
        const Outcome   out = SolveInRegion(ksp, b, radius);
        CHECK(out.reason == KSP_CONVERGED_NEG_CURVE);
        CHECK(out.iterations == 1);
        std::vector<double> along = Values(b); /* the step goes along b */
        double              norm  = 0;
        for (double value : along) norm = std::hypot(norm, value);
        for (double &value : along) value *= radius / norm;
        CHECK(Difference(out.x, along) <= 1e-12);
      }
}

TEST_CASE("cgfused: the step to the boundary of a trust region", "[cgfused][trust]")
{
  for (double scale : {1e-150, 1e-3, 1., 1e5, 1e150})
    for (double along : {-0.6, -1e-9, 0., 1e-9, 0.6})
      for (double norm_x : {0.7, 0.999999999, 1.})
        for (double norm_p : {1e-120, 1., 1e120}) {
          CAPTURE(scale, along, norm_x, norm_p);
          const double xx = norm_x * norm_x * scale * scale, pp = norm_p * norm_p, xp = along * scale * norm_p;
          const double step   = CGFusedStepToBoundary(scale, xx, xp, pp) * norm_p / scale; /* in radii */
          const double across = 1 - norm_x * norm_x;
          const double wanted = along > 0 ? across / (std::sqrt(along * along + across) + along)
                                          : std::sqrt(along * along + across) - along; /* of s^2 + 2 along s = across */
          CHECK(step >= 0);
          CHECK(std::fabs(step - wanted) <= 1e-7 * wanted + 1e-12);
        }
  CHECK(Near(CGFusedStepToBoundary(5, 0, 0, 4), 2.5, 1e-15));
}

/* ------------------------------------- norm and objective ------------------------------------- */

TEST_CASE("cgfused: norm and objective without a trust region", "[cgfused][trust][mpi]")
{
  for (const Backend &backend : Backends())
    for (const char *path : {"general", "graph", "resident"})
      for (const char *more : {"-ksp_rtol 1e-8", "-ksp_max_it 3", "-ksp_max_it 3 -ksp_initial_guess_nonzero"}) {
        CAPTURE(backend.name, path, more);
        const MatObject A = CreateMat(Poisson(16, 15), backend.mat, PETSC_COMM_WORLD);
        const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
        const KSPObject ksp = MakeKSP(A, kFused + "-ksp_cgfused_path " + path + " " + more, PCJACOBI);
        PetscReal       norm, objective;
        MUST(KSPSolve(ksp, b, x));
        {
          Errors errors; /* nobody has said that they are wanted */
          CHECK(KSPCGGetNormD(ksp, &norm) != 0);
          CHECK(KSPCGGetObjFcn(ksp, &objective) != 0);
          CHECK(Contains(errors.text, "call KSPCGSetRadius() before KSPSolve()"));
        }
        MUST(KSPCGSetRadius(ksp, 0));
        MUST(KSPSolve(ksp, b, x));
        const Model model = ModelOf(ksp, b);
        MUST(VecSet(x, 3)); /* they are those of the solution, whatever becomes of its vector */
        MUST(KSPCGGetNormD(ksp, &norm));
        MUST(KSPCGGetObjFcn(ksp, &objective));
        CHECK(Near(norm, model.norm, 1e-12));
        CHECK(Near(objective, model.objective, 1e-9));
        MUST(KSPReset(ksp));
        Errors errors;
        CHECK(KSPCGGetNormD(ksp, &norm) != 0);
      }
}

/*
   The first iterate whose objective is below the target is the last one, and it may be the guess. KSPCG does so, too, but only
   without a guess and with two reductions.
*/
TEST_CASE("cgfused: an objective to reach", "[cgfused][trust][mpi]")
{
  for (const Backend &backend : Backends())
    for (bool single : {false, true})
      for (bool guess : {false, true})
        for (double part : {0.01, 0.5, 0.99, 2., -1.}) {
          CAPTURE(backend.name, single, guess, part);
          const MatObject   A     = CreateMat(Poisson(16, 15), backend.mat, PETSC_COMM_WORLD);
          const VecObject   b     = RightVec(A, 2);
          const std::string all   = std::string("-ksp_cg_single_reduction ") + (single ? "1" : "0");
          const KSPObject   fused = MakeKSP(A, kFused + all, PCJACOBI), cg = MakeKSP(A, all, PCJACOBI);
          const auto        solve = [&](KSP ksp, PetscReal target) {
            const VecObject x = RightVec(A, 5);
            if (guess) MUST(VecScale(x, 0.1));
            MUST(KSPSetInitialGuessNonzero(ksp, (PetscBool)guess));
            MUST(KSPCGSetRadius(ksp, 0));
            MUST(KSPCGSetObjectiveTarget(ksp, target));
            MUST(KSPSolve(ksp, b, x));
            return ModelOf(ksp, b).objective;
          };
          const PetscReal least = solve(fused, 0), target = part * least, reached = solve(fused, target);
          const bool      possible = part > 0 && part < 1;
          const PetscInt  its      = IterationsOf(fused);
          CHECK(least < 0);
          CHECK(ReasonOf(fused) == (possible ? KSP_CONVERGED_ATOL : KSP_CONVERGED_RTOL));
          CHECK((reached < target) == (possible || part < 0));
          if (possible && its > 0) {
            MUST(KSPSetTolerances(fused, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT, its - 1));
            if (its > 1) CHECK(solve(fused, 0) >= target);
          }
          if (single || guess || !kKSPCGHasObjective) continue;
          CHECK(Near(solve(cg, target), reached, 1e-9));
          CHECK(its == IterationsOf(cg));
        }
}

/* The guess is far below the target, or just above it. */
TEST_CASE("cgfused: an objective that the guess has reached", "[cgfused][trust][mpi]")
{
  for (const Backend &backend : Backends())
    for (double part : {0.999, 1.001}) {
      CAPTURE(backend.name, part);
      const MatObject A = CreateMat(Poisson(16, 15), backend.mat, PETSC_COMM_WORLD);
      const VecObject b = RightVec(A, 2), x = RightVec(A);
      const KSPObject ksp = MakeKSP(A, kFused + "-ksp_max_it 4", PCJACOBI);
      MUST(KSPSolve(ksp, b, x));
      MUST(KSPSetInitialGuessNonzero(ksp, PETSC_TRUE));
      MUST(KSPCGSetObjectiveTarget(ksp, part * ModelOf(ksp, b).objective));
      MUST(KSPSolve(ksp, b, x));
      CHECK(ReasonOf(ksp) == KSP_CONVERGED_ATOL);
      CHECK(IterationsOf(ksp) == (part > 1));
    }
}

TEST_CASE("cgfused: eigenvalues after a step to the boundary", "[cgfused][trust]")
{
  const MatObject A   = CreateMat(Poisson(16, 15), MATAIJ);
  const VecObject b   = RightVec(A, 2);
  const KSPObject ksp = MakeKSP(A, kFused, PCNONE);
  PetscReal       real[100], imaginary[100];
  PetscInt        count;
  MUST(KSPSetComputeEigenvalues(ksp, PETSC_TRUE));
  const PetscReal norm = SolveInRegion(ksp, b, 0).norm;
  for (double part : {1e-3, 0.9}) { /* no step of CG is made, or some are */
    const Outcome out = SolveInRegion(ksp, b, part * norm);
    CHECK(out.reason == KSP_CONVERGED_STEP_LENGTH);
    MUST(KSPComputeEigenvalues(ksp, 100, real, imaginary, &count));
    CHECK(count == out.iterations - 1);
    for (PetscInt k = 0; k < count; k++) CHECK((real[k] > 0 && real[k] < 8)); /* as those of the matrix */
    CHECK((count > 2) == (part > 0.1));
  }
}

TEST_CASE("cgfused: a trust region refuses what it cannot do", "[cgfused][trust][bad]")
{
  const double not_a_number = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Plate(), backend.mat);
    const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
    const KSPObject ksp = MakeKSP(A, kFused + "-ksp_initial_guess_nonzero", PCJACOBI);
    Errors          errors;
    for (double radius : {-1., not_a_number, infinite}) CHECK(KSPCGSetRadius(ksp, radius) != 0);
    CHECK(Contains(errors.text, "must be positive and finite"));
    MUST(KSPCGSetRadius(ksp, 1));
    CHECK(KSPSolve(ksp, b, x) != 0);
    CHECK(Contains(errors.text, "use no initial guess"));
  }
}

/* An apply that gives -x: the first direction would go uphill. */
TEST_CASE("cgfused: a trust region and a negative preconditioner", "[cgfused][trust]")
{
  const auto negate = [](PC, Vec x, Vec y) {
    PetscFunctionBegin;
    PetscCall(VecCopy(x, y));
    PetscCall(VecScale(y, -1));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A   = CreateMat(Poisson(9, 8), backend.mat);
    const VecObject b   = RightVec(A, 2);
    const KSPObject ksp = MakeKSP(A, kFused, PCSHELL);
    MUST(PCShellSetApply(PCOf(ksp), negate));
    const Outcome out = SolveInRegion(ksp, b, 10);
    CHECK(out.reason == KSP_DIVERGED_INDEFINITE_PC);
    CHECK(out.norm == 0);
    CHECK(out.objective == 0);
  }
}

/* ------------------------------- the inner solver of others ----------------------------------- */

namespace
{

/* sum 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2: Rosenbrock's function in a chain, whose minimum is at ones. */
struct Chain {
  static constexpr PetscInt kSize = 30;

  static void Evaluate(const std::vector<double> &x, double *f, std::vector<double> *g)
  {
    *f = 0;
    g->assign(kSize, 0.);
    for (PetscInt i = 0; i + 1 < kSize; i++) {
      const double up = x[i + 1] - x[i] * x[i], off = 1 - x[i];
      *f += 100 * up * up + off * off;
      (*g)[i] -= 400 * up * x[i] + 2 * off;
      (*g)[i + 1] += 200 * up;
    }
  }
  static PetscErrorCode ObjectiveAndGradient(Tao, Vec x, PetscReal *f, Vec g, void *)
  {
    std::vector<double> values;
    Evaluate(Values(x), f, &values);
    SetValues(g, values);
    return PETSC_SUCCESS;
  }
  static PetscErrorCode Objective(SNES, Vec x, PetscReal *f, void *)
  {
    std::vector<double> values;
    Evaluate(Values(x), f, &values);
    return PETSC_SUCCESS;
  }
  static PetscErrorCode Gradient(SNES, Vec x, Vec g, void *)
  {
    PetscReal f;
    return ObjectiveAndGradient(nullptr, x, &f, g, nullptr);
  }
  static PetscErrorCode FillHessian(Vec at, Mat H)
  {
    const std::vector<double> x = Values(at);
    PetscFunctionBegin;
    PetscCall(MatZeroEntries(H));
    for (PetscInt i = 0; i + 1 < kSize; i++) {
      PetscCall(MatSetValue(H, i, i, 1200 * x[i] * x[i] - 400 * x[i + 1] + 2, ADD_VALUES));
      PetscCall(MatSetValue(H, i, i + 1, -400 * x[i], ADD_VALUES));
      PetscCall(MatSetValue(H, i + 1, i, -400 * x[i], ADD_VALUES));
      PetscCall(MatSetValue(H, i + 1, i + 1, 200, ADD_VALUES));
    }
    PetscCall(MatAssemblyBegin(H, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(H, MAT_FINAL_ASSEMBLY));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  static PetscErrorCode Hessian(Tao, Vec x, Mat H, Mat, void *) { return FillHessian(x, H); }
  static PetscErrorCode Jacobian(SNES, Vec x, Mat H, Mat, void *) { return FillHessian(x, H); }

  /* A matrix with the nonzeros of the Hessian. */
  static MatObject NewHessian(const Backend &backend)
  {
    std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(kSize);
    for (PetscInt i = 0; i < kSize; i++)
      for (PetscInt j = std::max<PetscInt>(i - 1, 0); j <= std::min(i + 1, kSize - 1); j++) rows[i].push_back({j, 1.});
    return CreateMat(FromRows(rows), backend.mat);
  }
  /* A point with negative curvature, from which the way leads to the ones and not to another minimum. */
  static VecObject Begin(Mat H)
  {
    VecObject           x = RightVec(H);
    std::vector<double> values(kSize);
    for (PetscInt i = 0; i < kSize; i++) values[i] = i % 2 ? 1.5 : 0.5;
    SetValues(x, values);
    return x;
  }
};

struct Minimum {
  PetscInt              iterations;
  std::vector<double>   x;
  std::set<std::string> reasons; /* of the inner solves */
};

/* Keeps the reason of each inner solve. */
PetscErrorCode KeepReason(KSP ksp, Vec, Vec, void *reasons)
{
  ((std::set<std::string> *)reasons)->insert(ReasonText(ksp));
  return PETSC_SUCCESS;
}

Minimum Minimize(const Backend &backend, TaoType type, const std::string &options)
{
  const Options      scope(options);
  const MatObject    H = Chain::NewHessian(backend);
  const VecObject    x = Chain::Begin(H);
  TaoObject          tao;
  KSP                ksp;
  TaoConvergedReason reason;
  Minimum            minimum;
  MUST(TaoCreate(PETSC_COMM_SELF, tao.put()));
  MUST(TaoSetType(tao, type));
  MUST(TaoSetSolution(tao, x));
  MUST(TaoSetObjectiveAndGradient(tao, nullptr, Chain::ObjectiveAndGradient, nullptr));
  MUST(TaoSetHessian(tao, H, H, Chain::Hessian, nullptr));
  MUST(TaoSetTolerances(tao, 1e-8, 0, 0));
  MUST(TaoSetMaximumIterations(tao, 300));
  MUST(TaoSetFromOptions(tao));
  MUST(TaoGetKSP(tao, &ksp));
  MUST(KSPSetPostSolve(ksp, KeepReason, &minimum.reasons));
  MUST(TaoSolve(tao));
  MUST(TaoGetConvergedReason(tao, &reason));
  MUST(TaoGetIterationNumber(tao, &minimum.iterations));
  CHECK(reason == TAO_CONVERGED_GATOL);
  minimum.x = Values(x);
  return minimum;
}

} // namespace

TEST_CASE("cgfused: Newton methods of TAO", "[cgfused][trust]")
{
  const struct {
    TaoType     type;
    const char *prefix;
  } methods[] = {{TAONLS, "-tao_nls_"}, {TAOBNLS, "-tao_bnk_"}, {TAOBNTR, "-tao_bnk_"}, {TAOBNTL, "-tao_bnk_"}};
  for (const Backend &backend : Backends())
    for (const auto &method : methods)
      for (PCType pc : {PCNONE, PCJACOBI}) {
        CAPTURE(backend.name, method.type, pc);
        const auto options = [&](const char *ksp) {
          return method.prefix + std::string("ksp_type ") + ksp + " " + method.prefix + "pc_type " + pc;
        };
        const Minimum mine   = Minimize(backend, method.type, options("cgfused")),
                      theirs = Minimize(backend, method.type, options("stcg"));
        CHECK(Difference(mine.x, std::vector<double>(Chain::kSize, 1.)) <= 1e-6);
        /* The same method; but where TAO asks for no region, cgfused is CG, and where it rounds otherwise other steps follow. */
        CHECK(mine.iterations <= theirs.iterations + 3);
        CHECK((mine.reasons.count(KSPConvergedReasons[KSP_CONVERGED_STEP_LENGTH]) ||
               mine.reasons.count(KSPConvergedReasons[KSP_CONVERGED_NEG_CURVE])));
      }
}

/* KSPCG takes a first direction of negative curvature for one of a negative definite matrix, so that KSPSTCG is the one beside it.
 */
TEST_CASE("cgfused: SNESNEWTONTR", "[cgfused][trust]")
{
  for (const Backend &backend : Backends()) {
    PetscInt iterations[2];
    for (int k = 0; k < 2; k++) {
      CAPTURE(backend.name, k);
      const Options       scope(std::string("-ksp_rtol 1e-10 -pc_type none -ksp_type ") + (k ? "stcg" : "cgfused"));
      const MatObject     H = Chain::NewHessian(backend);
      const VecObject     x = Chain::Begin(H), r = RightVec(H);
      SNESObject          snes;
      SNESConvergedReason reason;
      MUST(SNESCreate(PETSC_COMM_SELF, snes.put()));
      MUST(SNESSetType(snes, SNESNEWTONTR));
      MUST(SNESSetObjective(snes, Chain::Objective, nullptr));
      MUST(SNESSetFunction(snes, r, Chain::Gradient, nullptr));
      MUST(SNESSetJacobian(snes, H, H, Chain::Jacobian, nullptr));
      MUST(SNESSetTolerances(snes, 1e-8, 0, 0, 300, 10000));
      MUST(SNESSetFromOptions(snes));
      MUST(SNESSolve(snes, nullptr, x));
      MUST(SNESGetConvergedReason(snes, &reason));
      MUST(SNESGetIterationNumber(snes, &iterations[k]));
      CHECK(reason > 0);
      CHECK(Difference(Values(x), std::vector<double>(Chain::kSize, 1.)) <= 1e-6);
    }
    CHECK(iterations[0] == iterations[1]);
  }
}
