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
    PetscInt         integer;
    PetscReal        real;
    PCAFSAIStopRule  stop_rule;
    PCAFSAISelection ranking;
    FinePCPrecision  precision;
    PetscBool        flag;
    MUST(PCAFSAIGetMaxSteps(object, &integer));
    CHECK(integer == steps);
    MUST(PCAFSAIGetStepSize(object, &integer));
    CHECK(integer == size);
    MUST(PCAFSAIGetTolerance(object, &real));
    CHECK(real == tolerance);
    MUST(PCAFSAIGetStopRule(object, &stop_rule));
    CHECK(stop_rule == rule);
    MUST(PCAFSAIGetSelection(object, &ranking));
    CHECK(ranking == selection);
    MUST(PCAFSAIGetInitialPower(object, &integer));
    CHECK(integer == power);
    MUST(PCAFSAIGetPrefilter(object, &real));
    CHECK(real == prefilter);
    MUST(PCAFSAIGetPostfilter(object, &real));
    CHECK(real == postfilter);
    MUST(PCAFSAIGetSetupPrecision(object, &precision));
    CHECK(precision == setup);
    MUST(PCAFSAIGetFactorPrecision(object, &precision));
    CHECK(precision == factor);
    MUST(PCAFSAIGetReusePattern(object, &flag));
    CHECK(flag == reuse);
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
