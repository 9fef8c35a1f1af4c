/* PCAFSAI's own options. What all types share is tested in local_pc_test.cxx, what both FSAI types share in fsai_pc_test.cxx. */

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
  const PCObject  pc =
    MakePC(A, AFSAI(),
           "-pc_afsai_max_steps 7 -pc_afsai_step_size 2 -pc_afsai_tolerance 0.25 -pc_afsai_stop_rule ratio -pc_afsai_selection "
           "gradient -pc_afsai_initial_power 1 -pc_afsai_prefilter 0.125 "
           "-pc_afsai_postfilter 0.0625 -pc_afsai_setup_precision double -pc_afsai_factor_precision double "
           "-pc_afsai_reuse_pattern false");
  CHECK(Got(PCAFSAIGetMaxSteps, pc) == 7);
  CHECK(Got(PCAFSAIGetStepSize, pc) == 2);
  CHECK(Got(PCAFSAIGetTolerance, pc) == 0.25);
  CHECK(Got(PCAFSAIGetStopRule, pc) == PC_AFSAI_STOP_RATIO);
  CHECK(Got(PCAFSAIGetSelection, pc) == PC_AFSAI_SELECTION_GRADIENT);
  CHECK(Got(PCAFSAIGetInitialPower, pc) == 1);
  CHECK(Got(PCAFSAIGetPrefilter, pc) == 0.125);
  CHECK(Got(PCAFSAIGetPostfilter, pc) == 0.0625);
  CHECK(Got(PCAFSAIGetSetupPrecision, pc) == FINEPC_DOUBLE);
  CHECK(Got(PCAFSAIGetFactorPrecision, pc) == FINEPC_DOUBLE);
  CHECK(Got(PCAFSAIGetReusePattern, pc) == PETSC_FALSE);
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
