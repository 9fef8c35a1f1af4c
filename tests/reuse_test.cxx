/* Factors that are kept for new values: -pc_finepc_reuse. */
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <petscsnes.h>

#include <cmath>

#include "matrices.h"
#include "pc/auto/auto.h"
#include "pc/local.h"
#include "pc_support.h"

namespace
{

PCReuse &ReuseOf(PC pc)
{
  return ((PC_Local *)pc->data)->reuse;
}

constexpr char kTrue[] = "-ksp_norm_type unpreconditioned -ksp_rtol 1e-8 ";

/* What a sequence of solves takes. */
struct Total {
  double   cost    = 0; /* iterations, those of set-ups included */
  PetscInt set_ups = 0, its = 0;
};

/* Solves for the values that `change` makes before each step but the first, by counted costs. */
Total March(const std::string &mode, PCType type, int steps, const std::function<void(Mat, int)> &change)
{
  const double    set_up = 30; /* iterations */
  const MatObject A      = CreateMat(Poisson(24, 24), MATAIJ, PETSC_COMM_WORLD);
  const KSPObject ksp    = MakeKSP(A, kTrue, type);
  const PC        pc     = PCOf(ksp);
  const VecObject b      = RightVec(A);
  VecObject       x;
  Total           total;

  MUST(VecDuplicate(b, x.put()));
  MUST(PCFinePCSetReuse(pc, mode == "auto"     ? PC_FINEPC_REUSE_AUTO
                            : mode == "always" ? PC_FINEPC_REUSE_ALWAYS
                                               : PC_FINEPC_REUSE_NEVER));
  MUST(PCReuseCount(pc, set_up));
  int made = 0;
  for (int step = 0; step < steps; step++) {
    if (step) change(A, step);
    MUST(VecSet(x, 0));
    made += CountEvents({"SFSAIFactor"}, [&] { MUST(KSPSolve(ksp, b, x)); })[0];
    total.its += IterationsOf(ksp);
    if (mode == "always" && ReasonOf(ksp) < 0) total.its += 100000; /* an old factor may fail */
    else REQUIRE(ReasonOf(ksp) > 0);
  }
  total.set_ups = made;
  total.cost    = total.its + set_up * made;
  return total;
}

/* Other conductivities in each row and column, by `strength` in the exponent. */
void Scale(Mat A, double strength, int seed)
{
  VecObject    d = RightVec(A, seed);
  PetscScalar *values;
  PetscInt     n;
  MUST(VecGetLocalSize(d, &n));
  MUST(VecGetArray(d, &values));
  for (PetscInt k = 0; k < n; k++) values[k] = std::exp(strength * values[k]);
  MUST(VecRestoreArray(d, &values));
  MUST(MatDiagonalScale(A, d, d));
}

} // namespace

TEST_CASE("never and always: set-ups each time, and none while the nonzeros stay", "[reuse][mpi]")
{
  for (const Type &type : Types()) {
    CAPTURE(type.name);
    const MatObject A  = type.kinds()[0].Create(type.good());
    const PCObject  pc = MakePC(A, type, "");
    MUST(PCSetUp(pc));
    CHECK(Got(PCFinePCGetReuse, pc) == PC_FINEPC_REUSE_NEVER);
    CHECK(!Contains(ViewText((PC)pc), "reuse "));
    const std::vector<double> first = Applied(pc);
    ChangeValues(A, 2);
    MUST(PCSetUp(pc));
    const std::vector<double> second = Applied(pc);
    CHECK(!SameBits(first, second));
    MUST(PCFinePCSetReuse(pc, PC_FINEPC_REUSE_ALWAYS));
    ChangeValues(A, 2);
    MUST(PCSetUp(pc)); /* there is no pattern to compare with yet */
    const std::vector<double> third = Applied(pc);
    CHECK(!SameBits(second, third));
    ChangeValues(A, 2);
    MUST(PCSetUp(pc));
    CHECK(SameBits(third, Applied(pc)));
    CHECK(Contains(ViewText((PC)pc), "reuse always: for new values kept 1 times"));
    /* what an option makes useless is made anew */
    MUST(type.options[0].set(pc));
    MUST(PCSetUp(pc));
    CHECK(ReuseOf(pc).kept == 0);
    /* and so is what belongs to other nonzeros */
    const MatObject other = type.kinds()[0].Create(type.pattern());
    MUST(PCSetOperators(pc, other, other));
    MUST(PCSetUp(pc));
    CHECK(ReuseOf(pc).kept == 0);
    MUST(PCReset(pc));
    MUST(PCSetOperators(pc, A, A));
    MUST(PCSetUp(pc));
    CHECK(ReuseOf(pc).kept == 0);
    if (type.name == std::string(PCRRB)) continue; /* all matrices on a grid have the same nonzeros */
    for (int step = 0; step < 3; step++) {
      ChangeValues(A, 2);
      MUST(PCSetUp(pc));
    }
    CHECK(ReuseOf(pc).kept > 0);
    MUST(MatAXPY(A, 1, type.kinds()[0].Create(Far(type.good().n, type.good().bs)), DIFFERENT_NONZERO_PATTERN));
    MUST(PCSetUp(pc));
    CHECK(ReuseOf(pc).kept == 0);
    MatObject copy;
    MUST(MatDuplicate(A, MAT_COPY_VALUES, copy.put()));
    const PCObject fresh = MakePC(copy, type, "");
    MUST(type.options[0].set(fresh));
    CHECK(SameBits(Applied(pc), Applied(fresh)));
  }
}

TEST_CASE("values that hardly change keep the factor, and drifting ones as long as it pays", "[reuse][mpi]")
{
  struct Drift {
    const char                   *name;
    std::function<void(Mat, int)> change;
  };
  const std::vector<Drift> drifts = {
    {"still", [](Mat A, int) { MUST(MatScale(A, 1.0001)); }},
    {"slow", [](Mat A, int step) { Scale(A, 0.02, 40 + step); }},
    {"fast", [](Mat A, int step) { Scale(A, 0.3, 80 + step); }},
    {"a jump in the midst", [](Mat A, int step) { Scale(A, step == 15 ? 3. : 0.01, 120 + step); }},
    {"jumps", [](Mat A, int step) { Scale(A, step % 2 ? 1.5 : -1.5, 7); }},
  };
  for (const Drift &drift : drifts) {
    const Total by_itself = March("auto", PCSFSAI, 40, drift.change), never = March("never", PCSFSAI, 40, drift.change),
                always = March("always", PCSFSAI, 40, drift.change);
    CAPTURE(drift.name, by_itself.cost, never.cost, always.cost, by_itself.set_ups, always.its, by_itself.its, never.its);
    CHECK(by_itself.cost <= 1.05 * std::min(never.cost, always.cost));
  }
}

/* ---------------------------------------- with PCAUTO ----------------------------------------- */

namespace
{

constexpr PetscInt kSide = 24;

/* -div grad u = lambda e^u on a square, by 5 points. */
struct Bratu {
  double lambda = 1;

  static PetscErrorCode Function(SNES, Vec x, Vec f, void *context)
  {
    const double       scaled = ((Bratu *)context)->lambda / ((kSide + 1) * (kSide + 1));
    const PetscScalar *u;
    PetscScalar       *r;

    PetscFunctionBegin;
    PetscCall(VecGetArrayRead(x, &u));
    PetscCall(VecGetArrayWrite(f, &r));
    const auto at = [u](PetscInt row, PetscInt column) {
      return row < 0 || column < 0 || row == kSide || column == kSide ? 0. : u[row * kSide + column];
    };
    for (PetscInt row = 0; row < kSide; row++)
      for (PetscInt column = 0; column < kSide; column++)
        r[row * kSide + column] = 4 * at(row, column) - at(row - 1, column) - at(row + 1, column) - at(row, column - 1) -
                                  at(row, column + 1) - scaled * std::exp(at(row, column));
    PetscCall(VecRestoreArrayWrite(f, &r));
    PetscCall(VecRestoreArrayRead(x, &u));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  static PetscErrorCode Jacobian(SNES, Vec x, Mat J, Mat, void *context)
  {
    const double       scaled = ((Bratu *)context)->lambda / ((kSide + 1) * (kSide + 1));
    const PetscScalar *u;

    PetscFunctionBegin;
    PetscCall(VecGetArrayRead(x, &u));
    for (PetscInt row = 0; row < kSide * kSide; row++)
      PetscCall(MatSetValue(J, row, row, 4 - scaled * std::exp(u[row]), INSERT_VALUES));
    PetscCall(VecRestoreArrayRead(x, &u));
    PetscCall(MatAssemblyBegin(J, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(J, MAT_FINAL_ASSEMBLY));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

/* The one candidate of which the costs are those of the counts. */
void GiveSFSAI(PC pc)
{
  AUTOCandidate jacobi         = Candidate("jacobi", "-pc_type jacobi");
  jacobi.fallback              = true;
  ((PC_AUTO *)pc->data)->given = {Candidate("sfsai", "-pc_type sfsai", 100000, 1, 30), jacobi};
}
double WorkOf(PC pc)
{
  return ((PC_AUTO *)pc->data)->counts.work;
}

/* Newton's method with a line search for growing lambda: each step has a matrix near the last one. */
double Newton(const std::string &mode)
{
  const Options options("-pc_type auto -ksp_type cg -ksp_rtol 1e-6 -snes_linesearch_type bt -snes_rtol 1e-9 -pc_finepc_reuse " +
                        mode);
  MatObject     J = CreateMat(Poisson(kSide, kSide), MATAIJ);
  VecObject     x = RightVec(J), f;
  Bratu         problem;
  Object<SNES, SNESDestroy> snes;
  KSP                       ksp;
  SNESConvergedReason       reason;

  MUST(VecDuplicate(x, f.put()));
  MUST(SNESCreate(PETSC_COMM_SELF, snes.put()));
  MUST(SNESSetFunction(snes, f, Bratu::Function, &problem));
  MUST(SNESSetJacobian(snes, J, J, Bratu::Jacobian, &problem));
  MUST(SNESSetFromOptions(snes));
  MUST(SNESGetKSP(snes, &ksp));
  GiveSFSAI(PCOf(ksp));
  MUST(VecSet(x, 0));
  for (problem.lambda = 1; problem.lambda < 6.6; problem.lambda += 0.5) {
    MUST(SNESSolve(snes, nullptr, x));
    MUST(SNESGetConvergedReason(snes, &reason));
    REQUIRE(reason > 0);
  }
  return WorkOf(PCOf(ksp));
}

/* Steps in time whose values drift; where the pattern changes, the second half has a matrix with other nonzeros. */
double MarchInTime(const std::string &mode, bool pattern_changes, double strength)
{
  MatObject       A   = CreateMat(Poisson(24, 24), MATAIJ);
  const KSPObject ksp = MakeKSP(A, std::string(kTrue) + "-pc_finepc_reuse " + mode, PCAUTO);
  const VecObject b   = RightVec(A);
  VecObject       x;
  double          work = 0;

  GiveSFSAI(PCOf(ksp));
  MUST(VecDuplicate(b, x.put()));
  for (int step = 0; step < 40; step++) {
    if (step == 20 && pattern_changes) {
      work = WorkOf(PCOf(ksp)); /* which begins anew */
      A    = CreateMat(Poisson(8, 8, 9), MATAIJ);
      MUST(KSPSetOperators(ksp, A, A));
    }
    Scale(A, strength, 300 + step);
    MUST(VecSet(x, 0));
    MUST(KSPSolve(ksp, b, x));
    REQUIRE(ReasonOf(ksp) > 0);
  }
  return work + WorkOf(PCOf(ksp));
}

} // namespace

TEST_CASE("reuse within auto is never much worse than always or never: steps in time, other nonzeros, Newton's method",
          "[reuse][auto]")
{
  struct Problem {
    const char                                *name;
    std::function<double(const std::string &)> work;
  };
  const std::vector<Problem> problems = {
    {"Newton with line search", Newton},
    {"steps, slow", [](const std::string &mode) { return MarchInTime(mode, false, 0.01); }},
    {"steps, fast", [](const std::string &mode) { return MarchInTime(mode, false, 0.2); }},
    {"other nonzeros, slow", [](const std::string &mode) { return MarchInTime(mode, true, 0.01); }},
    {"other nonzeros, fast", [](const std::string &mode) { return MarchInTime(mode, true, 0.2); }},
  };
  for (const Problem &problem : problems) {
    const double by_itself = problem.work("auto"), never = problem.work("never"), always = problem.work("always");
    CAPTURE(problem.name, by_itself, never, always);
    CHECK(by_itself <= 1.05 * std::min(never, always));
  }
}

TEST_CASE("a kept factor that fails is made anew within the solve", "[reuse]")
{
  const MatObject A   = CreateMat(Poisson(24, 24), MATAIJ);
  const KSPObject ksp = MakeKSP(A, std::string(kTrue) + "-pc_finepc_reuse auto", PCSFSAI);
  const VecObject b   = RightVec(A);
  VecObject       x;
  MUST(VecDuplicate(b, x.put()));
  MUST(PCReuseCount(PCOf(ksp), 75));
  MUST(KSPSolve(ksp, b, x));
  const PetscInt first = IterationsOf(ksp);
  Scale(A, 6, 5);
  MUST(VecSet(x, 0));
  MUST(KSPSolve(ksp, b, x));
  CHECK(ReasonOf(ksp) > 0);
  CHECK(((KSP)ksp)->max_it == 10000);
  CHECK(ReuseOf(PCOf(ksp)).kept == 1);
  CHECK(ReuseOf(PCOf(ksp)).made + ReuseOf(PCOf(ksp)).refilled == 2);
  CHECK(IterationsOf(ksp) > first);
  CHECK(ReuseOf(PCOf(ksp)).its < IterationsOf(ksp));
}
