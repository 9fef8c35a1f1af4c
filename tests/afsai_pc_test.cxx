/* PCAFSAI's own options. What all types share is tested in local_pc_test.cxx, what both FSAI types share in fsai_pc_test.cxx. */
#include <cmath>
#include <cstring>

#include "pc_support.h"

namespace
{

const Type &AFSAI()
{
  return TypeOf(PCAFSAI);
}

} // namespace

TEST_CASE("every key sets what its getter gives", "[afsai][pc][options]")
{
  const MatObject A = CreateMat(Plate(), MATAIJ);
  const PCObject
    defaults = MakePC(A, AFSAI()),
    pc =
      MakePC(A, AFSAI(),
             "-pc_afsai_max_steps 7 -pc_afsai_step_size 2 -pc_afsai_tolerance 0.25 -pc_afsai_stop_rule ratio -pc_afsai_selection "
             "gradient -pc_afsai_initial_power 1 -pc_afsai_prefilter 0.125 "
             "-pc_afsai_postfilter 0.0625 -pc_afsai_setup_precision double -pc_afsai_factor_precision double "
             "-pc_afsai_reuse_pattern false");
  const auto check = [](PC object, PetscInt steps, PetscInt size, PetscReal tolerance, PCAFSAIStopRule rule,
                        PCAFSAISelection selection, PetscInt power, PetscReal prefilter, PetscReal postfilter,
                        FinePCPrecision setup, FinePCPrecision factor, PetscBool reuse) {
    CHECK(Got(PCAFSAIGetMaxSteps, object) == steps);
    CHECK(Got(PCAFSAIGetStepSize, object) == size);
    CHECK(Got(PCAFSAIGetTolerance, object) == tolerance);
    CHECK(Got(PCAFSAIGetStopRule, object) == rule);
    CHECK(Got(PCAFSAIGetSelection, object) == selection);
    CHECK(Got(PCAFSAIGetInitialPower, object) == power);
    CHECK(Got(PCAFSAIGetPrefilter, object) == prefilter);
    CHECK(Got(PCAFSAIGetPostfilter, object) == postfilter);
    CHECK(Got(PCAFSAIGetSetupPrecision, object) == setup);
    CHECK(Got(PCAFSAIGetFactorPrecision, object) == factor);
    CHECK(Got(PCAFSAIGetReusePattern, object) == reuse);
  };
  check(pc, 7, 2, 0.25, PC_AFSAI_STOP_RATIO, PC_AFSAI_SELECTION_GRADIENT, 1, 0.125, 0.0625, FINEPC_DOUBLE, FINEPC_DOUBLE,
        PETSC_FALSE);

  /* Every setter does the same, starting from the defaults. */
  MUST(PCAFSAISetMaxSteps(defaults, 7));
  MUST(PCAFSAISetStepSize(defaults, 2));
  MUST(PCAFSAISetTolerance(defaults, 0.25));
  MUST(PCAFSAISetStopRule(defaults, PC_AFSAI_STOP_RATIO));
  MUST(PCAFSAISetSelection(defaults, PC_AFSAI_SELECTION_GRADIENT));
  MUST(PCAFSAISetInitialPower(defaults, 1));
  MUST(PCAFSAISetPrefilter(defaults, 0.125));
  MUST(PCAFSAISetPostfilter(defaults, 0.0625));
  MUST(PCAFSAISetSetupPrecision(defaults, FINEPC_DOUBLE));
  MUST(PCAFSAISetFactorPrecision(defaults, FINEPC_DOUBLE));
  MUST(PCAFSAISetReusePattern(defaults, PETSC_FALSE));
  check(defaults, 7, 2, 0.25, PC_AFSAI_STOP_RATIO, PC_AFSAI_SELECTION_GRADIENT, 1, 0.125, 0.0625, FINEPC_DOUBLE, FINEPC_DOUBLE,
        PETSC_FALSE);
}

/* For b = A 1 ex15 takes 218 iterations with PCJACOBI, eight times as many with 5 steps, and fewer with 20. */
TEST_CASE("the view says where too few steps may be worse than Jacobi", "[afsai][pc][view]")
{
  const std::string options = "-ksp_type cg -ksp_norm_type unpreconditioned -ksp_rtol 1e-8 ";
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Shared("ex15"), backend.mat, PETSC_COMM_SELF);
    VecObject       x, b;
    MUST(MatCreateVecs(A, x.put(), b.put()));
    MUST(VecSet(x, 1));
    MUST(MatMult(A, x, b));
    const auto iterations = [&](KSP ksp) {
      MUST(KSPSolve(ksp, b, x));
      return IterationsOf(ksp);
    };
    const PetscInt jacobi = iterations(MakeKSP(A, options, PCJACOBI));
    for (PetscInt steps : {5, 20}) {
      const KSPObject ksp   = MakeKSP(A, options + "-pc_afsai_max_steps " + std::to_string(steps), PCAFSAI);
      const PetscInt  count = iterations(ksp);
      CAPTURE(steps, jacobi, count);
      CHECK((count > jacobi) == (steps == 5));
      for (bool kept : {false, true}) {
        const std::string text = ViewText((KSP)ksp);
        CAPTURE(kept, text);
        CHECK(Contains(text, "pattern kept from the last set-up") == kept);
        CHECK(Contains(text, "too few steps: ") == (steps == 5));
        CHECK(Contains(text, " of 6867 rows took all 5, and the last one still lowered psi by more than 0.1 of it") ==
              (steps == 5));
        Touch(A);
        MUST(PCSetUp(PCOf(ksp)));
      }
    }
  }
}

TEST_CASE("setters do nothing to other types, getters say so", "[afsai][pc][options]")
{
  const MatObject A  = CreateMat(Plate(), MATAIJ);
  const PCObject  pc = MakePC(A, std::string(), PCJACOBI);
  PetscInt        steps;
  MUST(PCAFSAISetMaxSteps(pc, 3));
  {
    Errors errors;
    CHECK(PCAFSAIGetMaxSteps(pc, &steps) != 0);
  }
  /* A PC that was of this type and is of another one has forgotten the methods. */
  const PCObject changed = MakePC(A, AFSAI());
  MUST(PCSetType(changed, PCJACOBI));
  Errors errors;
  CHECK(PCAFSAIGetMaxSteps(changed, &steps) != 0);
}
