/* Factors that are kept for new values: -pc_finepc_reuse. */
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <cmath>

#include "matrices.h"
#include "pc/local.h"
#include "pc_support.h"
#include "spread.h"

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
