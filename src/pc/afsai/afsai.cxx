/* The PETSc face of aFSAI: options, set-up, view, life cycle. The method is in afsai_host.cxx and cuda/pc/afsai/afsai.cu. */
#include <petsc/private/pcimpl.h>

#include "finepcimpl.h"
#include "afsai.h"

const char *const PCAFSAIStopRules[]  = {"gain", "ratio", "PCAFSAIStopRule", "PC_AFSAI_STOP_", nullptr};
const char *const PCAFSAISelections[] = {"gradient", "decrease", "PCAFSAISelection", "PC_AFSAI_SELECTION_", nullptr};

static PetscErrorCode PCAFSAISetMaxSteps_AFSAI(PC pc, PetscInt n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_max_steps is %" PetscInt_FMT ", but must be at least 0", n);
  if (n != afsai->params.max_steps) pc->setupcalled = PETSC_FALSE;
  afsai->params.max_steps = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetMaxSteps_AFSAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.max_steps;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetStepSize_AFSAI(PC pc, PetscInt n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 1, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_step_size is %" PetscInt_FMT ", but must be at least 1", n);
  if (n != afsai->params.step_size) pc->setupcalled = PETSC_FALSE;
  afsai->params.step_size = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetStepSize_AFSAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.step_size;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetTolerance_AFSAI(PC pc, PetscReal n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && n < 1, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_tolerance is %g, but must be at least 0 and below 1", (double)n);
  if (n != afsai->params.tolerance) pc->setupcalled = PETSC_FALSE;
  afsai->params.tolerance = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetTolerance_AFSAI(PC pc, PetscReal *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.tolerance;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetStopRule_AFSAI(PC pc, PCAFSAIStopRule n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n == PC_AFSAI_STOP_GAIN || n == PC_AFSAI_STOP_RATIO, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_stop_rule has no value %d", (int)n);
  if (n != afsai->params.stop_rule) pc->setupcalled = PETSC_FALSE;
  afsai->params.stop_rule = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetStopRule_AFSAI(PC pc, PCAFSAIStopRule *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.stop_rule;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetSelection_AFSAI(PC pc, PCAFSAISelection n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n == PC_AFSAI_SELECTION_GRADIENT || n == PC_AFSAI_SELECTION_DECREASE, PetscObjectComm((PetscObject)pc),
             PETSC_ERR_ARG_OUTOFRANGE, "-pc_afsai_selection has no value %d", (int)n);
  if (n != afsai->params.selection) pc->setupcalled = PETSC_FALSE;
  afsai->params.selection = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetSelection_AFSAI(PC pc, PCAFSAISelection *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.selection;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetInitialPower_AFSAI(PC pc, PetscInt n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_initial_power is %" PetscInt_FMT ", but must be at least 0", n);
  if (n != afsai->params.initial_power) pc->setupcalled = PETSC_FALSE;
  afsai->params.initial_power = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetInitialPower_AFSAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.initial_power;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetPrefilter_AFSAI(PC pc, PetscReal n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= 1, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_prefilter is %g, but must be between 0 and 1", (double)n);
  if (n != afsai->params.prefilter) pc->setupcalled = PETSC_FALSE;
  afsai->params.prefilter = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetPrefilter_AFSAI(PC pc, PetscReal *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.prefilter;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetPostfilter_AFSAI(PC pc, PetscReal n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= 1, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_postfilter is %g, but must be between 0 and 1", (double)n);
  if (n != afsai->params.postfilter) pc->setupcalled = PETSC_FALSE;
  afsai->params.postfilter = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetPostfilter_AFSAI(PC pc, PetscReal *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.postfilter;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetSetupPrecision_AFSAI(PC pc, FinePCPrecision n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n == FINEPC_SINGLE || n == FINEPC_DOUBLE, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_setup_precision has no value %d", (int)n);
  if (n != afsai->params.setup_precision) pc->setupcalled = PETSC_FALSE;
  afsai->params.setup_precision = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetSetupPrecision_AFSAI(PC pc, FinePCPrecision *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.setup_precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetFactorPrecision_AFSAI(PC pc, FinePCPrecision n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n == FINEPC_SINGLE || n == FINEPC_DOUBLE, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_afsai_factor_precision has no value %d", (int)n);
  if (n != afsai->params.factor_precision) pc->setupcalled = PETSC_FALSE;
  afsai->params.factor_precision = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetFactorPrecision_AFSAI(PC pc, FinePCPrecision *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->params.factor_precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAISetReusePattern_AFSAI(PC pc, PetscBool n)
{
  PC_AFSAI *afsai = (PC_AFSAI *)pc->data;

  PetscFunctionBegin;
  afsai->reuse_pattern = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCAFSAIGetReusePattern_AFSAI(PC pc, PetscBool *n)
{
  PetscFunctionBegin;
  *n = ((PC_AFSAI *)pc->data)->reuse_pattern;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetFromOptions_AFSAI(PC pc, PetscOptionItems PetscOptionsObject)
{
  PC_AFSAI   *afsai  = (PC_AFSAI *)pc->data;
  AFSAIParams params = afsai->params;
  PetscBool   flg, reuse = afsai->reuse_pattern;

  PetscFunctionBegin;
  PetscOptionsHeadBegin(PetscOptionsObject, "aFSAI options");
  PetscCall(
    PetscOptionsInt("-pc_afsai_max_steps", "Most steps per row", "PCAFSAISetMaxSteps", params.max_steps, &params.max_steps, &flg));
  if (flg) PetscCall(PCAFSAISetMaxSteps(pc, params.max_steps));
  PetscCall(PetscOptionsInt("-pc_afsai_step_size", "Entries added per step", "PCAFSAISetStepSize", params.step_size,
                            &params.step_size, &flg));
  if (flg) PetscCall(PCAFSAISetStepSize(pc, params.step_size));
  PetscCall(PetscOptionsReal("-pc_afsai_tolerance", "Tolerance of the stop rule", "PCAFSAISetTolerance", params.tolerance,
                             &params.tolerance, &flg));
  if (flg) PetscCall(PCAFSAISetTolerance(pc, params.tolerance));
  PetscCall(PetscOptionsEnum("-pc_afsai_stop_rule", "When a row stops", "PCAFSAISetStopRule", PCAFSAIStopRules,
                             (PetscEnum)params.stop_rule, (PetscEnum *)&params.stop_rule, &flg));
  if (flg) PetscCall(PCAFSAISetStopRule(pc, params.stop_rule));
  PetscCall(PetscOptionsEnum("-pc_afsai_selection", "How candidates are ranked", "PCAFSAISetSelection", PCAFSAISelections,
                             (PetscEnum)params.selection, (PetscEnum *)&params.selection, &flg));
  if (flg) PetscCall(PCAFSAISetSelection(pc, params.selection));
  PetscCall(PetscOptionsInt("-pc_afsai_initial_power", "Power of A that gives the first pattern", "PCAFSAISetInitialPower",
                            params.initial_power, &params.initial_power, &flg));
  if (flg) PetscCall(PCAFSAISetInitialPower(pc, params.initial_power));
  PetscCall(PetscOptionsReal("-pc_afsai_prefilter", "Threshold for entries of A", "PCAFSAISetPrefilter", params.prefilter,
                             &params.prefilter, &flg));
  if (flg) PetscCall(PCAFSAISetPrefilter(pc, params.prefilter));
  PetscCall(PetscOptionsReal("-pc_afsai_postfilter", "Threshold for entries of G", "PCAFSAISetPostfilter", params.postfilter,
                             &params.postfilter, &flg));
  if (flg) PetscCall(PCAFSAISetPostfilter(pc, params.postfilter));
  PetscCall(PetscOptionsEnum("-pc_afsai_setup_precision", "Precision of the set-up", "PCAFSAISetSetupPrecision", FinePCPrecisions,
                             (PetscEnum)params.setup_precision, (PetscEnum *)&params.setup_precision, &flg));
  if (flg) PetscCall(PCAFSAISetSetupPrecision(pc, params.setup_precision));
  PetscCall(PetscOptionsEnum("-pc_afsai_factor_precision", "Precision of the stored factor", "PCAFSAISetFactorPrecision",
                             FinePCPrecisions, (PetscEnum)params.factor_precision, (PetscEnum *)&params.factor_precision, &flg));
  if (flg) PetscCall(PCAFSAISetFactorPrecision(pc, params.factor_precision));
  PetscCall(PetscOptionsBool("-pc_afsai_reuse_pattern", "Keep the pattern when only values have changed", "PCAFSAISetReusePattern",
                             reuse, &reuse, &flg));
  if (flg) PetscCall(PCAFSAISetReusePattern(pc, reuse));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_AFSAI(PC pc)
{
  PC_AFSAI      *afsai   = (PC_AFSAI *)pc->data;
  PCInverse     *M       = &afsai->inverse;
  const PetscInt max_row = afsai->stats.max_row;
  CSRMat         mat;

  PetscFunctionBegin;
  PetscCall(PCFSAIGetOperator(pc, &mat));
  PetscCall(PCFSAIPrepare(pc, &mat.A, afsai->reuse_pattern, afsai->params.factor_precision));
  PetscCall(PetscLogEventBegin(FinePC_AFSAIFactor, pc, pc->pmat, 0, 0));
  const auto           compute = PetscMemTypeDevice(mat.A.where) ? AFSAIComputeFactor_CUDA : AFSAIComputeFactor_Host;
  const PetscErrorCode code    = compute(&mat.A, 0, &afsai->params, afsai->reused, &M->W1, M->d, &afsai->stats);
  PetscCall(PetscLogEventEnd(FinePC_AFSAIFactor, pc, pc->pmat, 0, 0));
  PetscCall(MatRestoreCSR(&mat));
  PetscCall(code);
  if (afsai->reused) afsai->stats.max_row = max_row;
  PetscCall(PCFSAIComplete(pc, "PCAFSAI"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_AFSAI(PC pc, PetscViewer viewer)
{
  const PC_AFSAI    *afsai  = (const PC_AFSAI *)pc->data;
  const AFSAIParams *params = &afsai->params;
  PetscBool          is_ascii;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_FSAI(pc, viewer, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
    PetscViewerASCIIPrintf(viewer,
                           "at most %" PetscInt_FMT " steps of %" PetscInt_FMT " per row, a row stops by %s, tolerance %g\n",
                           params->max_steps, params->step_size, PCAFSAIStopRules[params->stop_rule], (double)params->tolerance));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "candidates ranked by %s, first pattern of power %" PetscInt_FMT
                                   ", prefilter %g, postfilter %g\n",
                                   PCAFSAISelections[params->selection], params->initial_power, (double)params->prefilter,
                                   (double)params->postfilter));
  PetscCall(PetscViewerASCIIPrintf(viewer, "set-up in %s precision, pattern %s\n", FinePCPrecisions[params->setup_precision],
                                   afsai->reused
                                     ? "kept from the last set-up"
                                     : (afsai->reuse_pattern ? "kept while the nonzeros of A stay" : "searched at each set-up")));
  PetscCall(PCView_FSAI(pc, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What Create composes and Destroy takes away. */
static PetscErrorCode ComposeMethods(PC pc, PetscBool compose)
{
  using Method = void (*)(void);
  static const struct {
    const char *name;
    Method      method;
  } methods[] = {
    {"PCAFSAISetMaxSteps_C", (Method)PCAFSAISetMaxSteps_AFSAI},
    {"PCAFSAIGetMaxSteps_C", (Method)PCAFSAIGetMaxSteps_AFSAI},
    {"PCAFSAISetStepSize_C", (Method)PCAFSAISetStepSize_AFSAI},
    {"PCAFSAIGetStepSize_C", (Method)PCAFSAIGetStepSize_AFSAI},
    {"PCAFSAISetTolerance_C", (Method)PCAFSAISetTolerance_AFSAI},
    {"PCAFSAIGetTolerance_C", (Method)PCAFSAIGetTolerance_AFSAI},
    {"PCAFSAISetStopRule_C", (Method)PCAFSAISetStopRule_AFSAI},
    {"PCAFSAIGetStopRule_C", (Method)PCAFSAIGetStopRule_AFSAI},
    {"PCAFSAISetSelection_C", (Method)PCAFSAISetSelection_AFSAI},
    {"PCAFSAIGetSelection_C", (Method)PCAFSAIGetSelection_AFSAI},
    {"PCAFSAISetInitialPower_C", (Method)PCAFSAISetInitialPower_AFSAI},
    {"PCAFSAIGetInitialPower_C", (Method)PCAFSAIGetInitialPower_AFSAI},
    {"PCAFSAISetPrefilter_C", (Method)PCAFSAISetPrefilter_AFSAI},
    {"PCAFSAIGetPrefilter_C", (Method)PCAFSAIGetPrefilter_AFSAI},
    {"PCAFSAISetPostfilter_C", (Method)PCAFSAISetPostfilter_AFSAI},
    {"PCAFSAIGetPostfilter_C", (Method)PCAFSAIGetPostfilter_AFSAI},
    {"PCAFSAISetSetupPrecision_C", (Method)PCAFSAISetSetupPrecision_AFSAI},
    {"PCAFSAIGetSetupPrecision_C", (Method)PCAFSAIGetSetupPrecision_AFSAI},
    {"PCAFSAISetFactorPrecision_C", (Method)PCAFSAISetFactorPrecision_AFSAI},
    {"PCAFSAIGetFactorPrecision_C", (Method)PCAFSAIGetFactorPrecision_AFSAI},
    {"PCAFSAISetReusePattern_C", (Method)PCAFSAISetReusePattern_AFSAI},
    {"PCAFSAIGetReusePattern_C", (Method)PCAFSAIGetReusePattern_AFSAI},
    {"PCAFSAIGetFactors_C", (Method)PCFSAIGetFactors_FSAI},
    {kInverseQuery, (Method)PCFinePCGetInverse_FSAI},
  };

  PetscFunctionBegin;
  for (const auto &entry : methods)
    PetscCall(PetscObjectComposeFunction((PetscObject)pc, entry.name, compose ? entry.method : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_AFSAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCReset_FSAI(pc));
  PetscCall(ComposeMethods(pc, PETSC_FALSE));
  delete (PC_AFSAI *)pc->data;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetMaxSteps - Sets the most steps in which `PCAFSAI` extends a row of its factor, k_max

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- max_steps - 0 or more steps per row; 0 leaves the diagonal, that is `PCJACOBI`, unless `PCAFSAISetInitialPower()` gives a first
              pattern

  Options Database Key:
. -pc_afsai_max_steps <max_steps> - the most steps in which `PCAFSAI` extends a row of its factor, k_max

  Level: intermediate

  Note:
  A row of G has at most max_steps * step_size entries beside its first pattern and its diagonal.

.seealso: `PCAFSAI`, `PCAFSAIGetMaxSteps()`
@*/
PetscErrorCode PCAFSAISetMaxSteps(PC pc, PetscInt max_steps)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, max_steps, 2);
  PetscTryMethod(pc, "PCAFSAISetMaxSteps_C", (PC, PetscInt), (pc, max_steps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetMaxSteps - Gets the most steps in which `PCAFSAI` extends a row of its factor, k_max

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. max_steps - see `PCAFSAISetMaxSteps()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetMaxSteps()`
@*/
PetscErrorCode PCAFSAIGetMaxSteps(PC pc, PetscInt *max_steps)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(max_steps, 2);
  PetscUseMethod(pc, "PCAFSAIGetMaxSteps_C", (PC, PetscInt *), (pc, max_steps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetStepSize - Sets how many entries a step of `PCAFSAI` adds to a row of its factor, s

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- step_size - 1 or more entries

  Options Database Key:
. -pc_afsai_step_size <step_size> - how many entries a step of `PCAFSAI` adds to a row of its factor, s

  Level: intermediate

  Note:
  Larger steps find the pattern less carefully: at the same number of entries per row, step size 1 is the most effective.

.seealso: `PCAFSAI`, `PCAFSAIGetStepSize()`
@*/
PetscErrorCode PCAFSAISetStepSize(PC pc, PetscInt step_size)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, step_size, 2);
  PetscTryMethod(pc, "PCAFSAISetStepSize_C", (PC, PetscInt), (pc, step_size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetStepSize - Gets how many entries a step of `PCAFSAI` adds to a row of its factor, s

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. step_size - see `PCAFSAISetStepSize()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetStepSize()`
@*/
PetscErrorCode PCAFSAIGetStepSize(PC pc, PetscInt *step_size)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(step_size, 2);
  PetscUseMethod(pc, "PCAFSAIGetStepSize_C", (PC, PetscInt *), (pc, step_size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetTolerance - Sets the tolerance epsilon of the rule by which `PCAFSAI` stops to extend a row

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- tolerance - at least 0 and below 1, no unit; with the rule gain, 0 makes every row take all its steps

  Options Database Key:
. -pc_afsai_tolerance <tolerance> - the tolerance epsilon of the rule by which `PCAFSAI` stops to extend a row

  Level: intermediate

  Note:
  What it is compared with is chosen by `PCAFSAISetStopRule()`.

.seealso: `PCAFSAI`, `PCAFSAIGetTolerance()`
@*/
PetscErrorCode PCAFSAISetTolerance(PC pc, PetscReal tolerance)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveReal(pc, tolerance, 2);
  PetscTryMethod(pc, "PCAFSAISetTolerance_C", (PC, PetscReal), (pc, tolerance));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetTolerance - Gets the tolerance epsilon of the rule by which `PCAFSAI` stops to extend a row

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. tolerance - see `PCAFSAISetTolerance()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetTolerance()`
@*/
PetscErrorCode PCAFSAIGetTolerance(PC pc, PetscReal *tolerance)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(tolerance, 2);
  PetscUseMethod(pc, "PCAFSAIGetTolerance_C", (PC, PetscReal *), (pc, tolerance));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetStopRule - Sets the rule by which `PCAFSAI` stops to extend a row

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- stop_rule - `PC_AFSAI_STOP_GAIN` (default) or `PC_AFSAI_STOP_RATIO`

  Options Database Key:
. -pc_afsai_stop_rule <stop_rule> - the rule by which `PCAFSAI` stops to extend a row

  Level: intermediate

  Note:
  The default stops a row where a step no longer pays, whatever its psi has come to; the ratio (2.16) lets rows that cannot reach it
  run to max_steps and stops others while they still gain.

.seealso: `PCAFSAI`, `PCAFSAIGetStopRule()`
@*/
PetscErrorCode PCAFSAISetStopRule(PC pc, PCAFSAIStopRule stop_rule)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, stop_rule, 2);
  PetscTryMethod(pc, "PCAFSAISetStopRule_C", (PC, PCAFSAIStopRule), (pc, stop_rule));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetStopRule - Gets the rule by which `PCAFSAI` stops to extend a row

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. stop_rule - see `PCAFSAISetStopRule()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetStopRule()`
@*/
PetscErrorCode PCAFSAIGetStopRule(PC pc, PCAFSAIStopRule *stop_rule)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(stop_rule, 2);
  PetscUseMethod(pc, "PCAFSAIGetStopRule_C", (PC, PCAFSAIStopRule *), (pc, stop_rule));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetSelection - Sets the measure by which `PCAFSAI` ranks the candidates for a row

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- selection - `PC_AFSAI_SELECTION_DECREASE` (default) or `PC_AFSAI_SELECTION_GRADIENT`

  Options Database Key:
. -pc_afsai_selection <selection> - the measure by which `PCAFSAI` ranks the candidates for a row

  Level: intermediate

  Note:
  The two are the same for a matrix of constant diagonal.

.seealso: `PCAFSAI`, `PCAFSAIGetSelection()`
@*/
PetscErrorCode PCAFSAISetSelection(PC pc, PCAFSAISelection selection)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, selection, 2);
  PetscTryMethod(pc, "PCAFSAISetSelection_C", (PC, PCAFSAISelection), (pc, selection));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetSelection - Gets the measure by which `PCAFSAI` ranks the candidates for a row

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. selection - see `PCAFSAISetSelection()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetSelection()`
@*/
PetscErrorCode PCAFSAIGetSelection(PC pc, PCAFSAISelection *selection)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(selection, 2);
  PetscUseMethod(pc, "PCAFSAIGetSelection_C", (PC, PCAFSAISelection *), (pc, selection));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetInitialPower - Sets the power p of A whose lower triangle is the pattern from which `PCAFSAI` starts

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- initial_power - 0 (default) for an empty pattern, 1 for the lower triangle of A, p for that of the p-th power, by (3.9) of
                  Bernaschi, Bisson, Fantozzi, Janna

  Options Database Key:
. -pc_afsai_initial_power <initial_power> - the power p of A whose lower triangle is the pattern from which `PCAFSAI` starts

  Level: intermediate

  Note:
  The steps then add to that pattern; with `PCAFSAISetMaxSteps()` of 0 the result is static FSAI.

.seealso: `PCAFSAI`, `PCAFSAIGetInitialPower()`
@*/
PetscErrorCode PCAFSAISetInitialPower(PC pc, PetscInt initial_power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, initial_power, 2);
  PetscTryMethod(pc, "PCAFSAISetInitialPower_C", (PC, PetscInt), (pc, initial_power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetInitialPower - Gets the power p of A whose lower triangle is the pattern from which `PCAFSAI` starts

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. initial_power - see `PCAFSAISetInitialPower()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetInitialPower()`
@*/
PetscErrorCode PCAFSAIGetInitialPower(PC pc, PetscInt *initial_power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(initial_power, 2);
  PetscUseMethod(pc, "PCAFSAIGetInitialPower_C", (PC, PetscInt *), (pc, initial_power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetPrefilter - Sets the threshold tau under which entries of A give `PCAFSAI` no candidates

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- prefilter - between 0 (default) and 1: a_ij with |a_ij| <= tau sqrt(a_ii a_jj) is passed over, (3.8) of Bernaschi, Bisson,
              Fantozzi, Janna

  Options Database Key:
. -pc_afsai_prefilter <prefilter> - the threshold tau under which entries of A give `PCAFSAI` no candidates

  Level: intermediate

  Note:
  Only the search for the pattern is filtered: the values of G are computed with all of A.

.seealso: `PCAFSAI`, `PCAFSAIGetPrefilter()`
@*/
PetscErrorCode PCAFSAISetPrefilter(PC pc, PetscReal prefilter)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveReal(pc, prefilter, 2);
  PetscTryMethod(pc, "PCAFSAISetPrefilter_C", (PC, PetscReal), (pc, prefilter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetPrefilter - Gets the threshold tau under which entries of A give `PCAFSAI` no candidates

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. prefilter - see `PCAFSAISetPrefilter()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetPrefilter()`
@*/
PetscErrorCode PCAFSAIGetPrefilter(PC pc, PetscReal *prefilter)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(prefilter, 2);
  PetscUseMethod(pc, "PCAFSAIGetPrefilter_C", (PC, PetscReal *), (pc, prefilter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetPostfilter - Sets the threshold delta under which entries of the computed factor are dropped by `PCAFSAI`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- postfilter - between 0 (default, nothing is dropped) and 1: g_ij with |g_ij| <= delta ||g_i||_2 is dropped, (3.11) of Bernaschi,
               Bisson, Fantozzi, Janna

  Options Database Key:
. -pc_afsai_postfilter <postfilter> - the threshold delta under which entries of the computed factor are dropped by `PCAFSAI`

  Level: intermediate

  Note:
  The row is scaled again by (3.13), so that diag(G A G^T) = 1 still holds. The diagonal stays: 1 gives `PCJACOBI`.

.seealso: `PCAFSAI`, `PCAFSAIGetPostfilter()`
@*/
PetscErrorCode PCAFSAISetPostfilter(PC pc, PetscReal postfilter)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveReal(pc, postfilter, 2);
  PetscTryMethod(pc, "PCAFSAISetPostfilter_C", (PC, PetscReal), (pc, postfilter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetPostfilter - Gets the threshold delta under which entries of the computed factor are dropped by `PCAFSAI`

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. postfilter - see `PCAFSAISetPostfilter()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetPostfilter()`
@*/
PetscErrorCode PCAFSAIGetPostfilter(PC pc, PetscReal *postfilter)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(postfilter, 2);
  PetscUseMethod(pc, "PCAFSAIGetPostfilter_C", (PC, PetscReal *), (pc, postfilter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetSetupPrecision - Sets the precision in which `PCAFSAI` computes its factor

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- setup_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`

  Options Database Key:
. -pc_afsai_setup_precision <setup_precision> - the precision in which `PCAFSAI` computes its factor

  Level: intermediate

  Note:
  A row on which single precision meets a bad pivot is computed again in double; the view counts such rows.

.seealso: `PCAFSAI`, `PCAFSAIGetSetupPrecision()`
@*/
PetscErrorCode PCAFSAISetSetupPrecision(PC pc, FinePCPrecision setup_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, setup_precision, 2);
  PetscTryMethod(pc, "PCAFSAISetSetupPrecision_C", (PC, FinePCPrecision), (pc, setup_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetSetupPrecision - Gets the precision in which `PCAFSAI` computes its factor

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. setup_precision - see `PCAFSAISetSetupPrecision()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetSetupPrecision()`
@*/
PetscErrorCode PCAFSAIGetSetupPrecision(PC pc, FinePCPrecision *setup_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(setup_precision, 2);
  PetscUseMethod(pc, "PCAFSAIGetSetupPrecision_C", (PC, FinePCPrecision *), (pc, setup_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetFactorPrecision - Sets the precision in which `PCAFSAI` stores its factor

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- factor_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`

  Options Database Key:
. -pc_afsai_factor_precision <factor_precision> - the precision in which `PCAFSAI` stores its factor

  Level: intermediate

  Note:
  A rounded G is still the factor of a symmetric positive definite G^T G. Its diagonal scaling is stored in double, and products are
  summed in double, in any case.

.seealso: `PCAFSAI`, `PCAFSAIGetFactorPrecision()`
@*/
PetscErrorCode PCAFSAISetFactorPrecision(PC pc, FinePCPrecision factor_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, factor_precision, 2);
  PetscTryMethod(pc, "PCAFSAISetFactorPrecision_C", (PC, FinePCPrecision), (pc, factor_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetFactorPrecision - Gets the precision in which `PCAFSAI` stores its factor

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. factor_precision - see `PCAFSAISetFactorPrecision()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetFactorPrecision()`
@*/
PetscErrorCode PCAFSAIGetFactorPrecision(PC pc, FinePCPrecision *factor_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(factor_precision, 2);
  PetscUseMethod(pc, "PCAFSAIGetFactorPrecision_C", (PC, FinePCPrecision *), (pc, factor_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetReusePattern - Sets whether `PCAFSAI` keeps the pattern of its factor when only the values of the matrix have changed

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- reuse_pattern - `PETSC_TRUE` to compute new values on the old pattern, `PETSC_FALSE` (default) to search for a new one

  Options Database Key:
. -pc_afsai_reuse_pattern <reuse_pattern> - whether `PCAFSAI` keeps the pattern of its factor when only the values of the matrix
                                            have changed

  Level: intermediate

  Note:
  It applies where the nonzero pattern of the matrix is the same as at the last set-up; the factors keep their memory then.

.seealso: `PCAFSAI`, `PCAFSAIGetReusePattern()`
@*/
PetscErrorCode PCAFSAISetReusePattern(PC pc, PetscBool reuse_pattern)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveBool(pc, reuse_pattern, 2);
  PetscTryMethod(pc, "PCAFSAISetReusePattern_C", (PC, PetscBool), (pc, reuse_pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetReusePattern - Gets whether `PCAFSAI` keeps the pattern of its factor when only the values of the matrix have changed

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. reuse_pattern - see `PCAFSAISetReusePattern()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetReusePattern()`
@*/
PetscErrorCode PCAFSAIGetReusePattern(PC pc, PetscBool *reuse_pattern)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(reuse_pattern, 2);
  PetscUseMethod(pc, "PCAFSAIGetReusePattern_C", (PC, PetscBool *), (pc, reuse_pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAIGetFactors - Gets the factor G of M^{-1} = G^T G that `PCAFSAI` has computed, and its transpose

  Collective

  Input Parameter:
. pc - the preconditioner context, set up

  Output Parameters:
+ G  - lower triangular `MATAIJ` in double precision, with the layout of the matrix, or `NULL`
- Gt - its transpose, or `NULL`

  Level: advanced

  Notes:
  Both are copies that the caller destroys with `MatDestroy()`.

  With several ranks G is block diagonal, a block per rank.

.seealso: `PCAFSAI`
@*/
PetscErrorCode PCAFSAIGetFactors(PC pc, Mat *G, Mat *Gt)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscUseMethod(pc, "PCAFSAIGetFactors_C", (PC, Mat *, Mat *), (pc, G, Gt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCAFSAI - "afsai": adaptive factored sparse approximate inverse of a symmetric positive definite matrix, M^{-1} = G^T G

  Options Database Keys:
+ -pc_afsai_max_steps <20> - most steps per row
. -pc_afsai_step_size <1> - entries added per step
. -pc_afsai_tolerance <1e-3> - tolerance of the stop rule
. -pc_afsai_stop_rule <gain> - gain or ratio
. -pc_afsai_selection <decrease> - gradient or decrease
. -pc_afsai_initial_power <0> - power of A whose lower triangle is the first pattern
. -pc_afsai_prefilter <0> - threshold for entries of A
. -pc_afsai_postfilter <0> - threshold for entries of G
. -pc_afsai_setup_precision <single> - precision of the set-up
. -pc_afsai_factor_precision <single> - precision of the stored factor
- -pc_afsai_reuse_pattern <false> - keep the pattern when only the values of A have changed

  Level: intermediate

  Notes:
  For each row i of the lower triangular G the pattern is extended, step by step, by the columns where the derivative of the
  Kaporin number of G A G^T is largest; then A restricted to the pattern is solved for the row. The rows are independent of
  each other, and the preconditioner is applied as two sparse matrix-vector products, so that both the set-up and the solve
  run in parallel throughout. diag(G A G^T) = 1, and M is symmetric positive definite for every pattern.

  The matrix is a `MATAIJ`; with `MATAIJCUSPARSE`, not bound to the CPU, everything runs on the GPU. Only its rows are read,
  symmetry is not checked. With several ranks each takes its diagonal block, as `PCBJACOBI` does.

  A missing or non-positive diagonal entry, or one that is not finite, makes the set-up fail with a `PCFailedReason`.

  References:
  G. Isotton, C. Janna, M. Bernaschi, A GPU-accelerated adaptive FSAI preconditioner for massively parallel simulations;
  M. Bernaschi, M. Bisson, C. Fantozzi, C. Janna, SIAM J. Sci. Comput. 38 (2016) C53-C72 for the filters

.seealso: `PCSFSAI`, `PCJACOBI`, `PCICC`, `PCAFSAISetMaxSteps()`, `PCAFSAISetStepSize()`, `PCAFSAISetTolerance()`,
          `PCAFSAISetStopRule()`,
          `PCAFSAISetSelection()`, `PCAFSAISetInitialPower()`, `PCAFSAISetPrefilter()`, `PCAFSAISetPostfilter()`,
          `PCAFSAISetSetupPrecision()`, `PCAFSAISetFactorPrecision()`, `PCAFSAISetReusePattern()`, `PCAFSAIGetFactors()`
M*/
PETSC_EXTERN PetscErrorCode PCCreate_AFSAI(PC pc)
{
  PetscFunctionBegin;
  pc->data                = new PC_AFSAI();
  pc->ops->apply          = PCApply_FSAI;
  pc->ops->applytranspose = PCApply_FSAI;
  pc->ops->matapply       = PCMatApply_FSAI;
  pc->ops->setup          = PCSetUp_AFSAI;
  pc->ops->reset          = PCReset_FSAI;
  pc->ops->destroy        = PCDestroy_AFSAI;
  pc->ops->setfromoptions = PCSetFromOptions_AFSAI;
  pc->ops->view           = PCView_AFSAI;
  PetscCall(ComposeMethods(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
