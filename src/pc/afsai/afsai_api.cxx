/*
   Setters and getters of the options of PCAFSAI with their manual pages, written by scripts/options
   from the table in afsai.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  PCAFSAISetMaxSteps - Sets the most steps in which a row of the factor is extended, k_max

  Logically Collective

  Input Parameters:
+ pc        - the preconditioner context
- max_steps - between 0 and 10000, 20 (default); 0 leaves only the diagonal, which is `PCJACOBI`, unless `PCAFSAISetInitialPower()`
              gives an initial pattern

  Options Database Key:
. -pc_afsai_max_steps <max_steps> - the most steps in which a row of the factor is extended, k_max

  Level: intermediate

  Note:
  A row of G has at most max_steps * step_size entries in addition to its initial pattern and its diagonal.

.seealso: `PCAFSAI`, `PCAFSAIGetMaxSteps()`
@*/
PetscErrorCode PCAFSAISetMaxSteps(PC pc, PetscInt max_steps)
{
  return CallSetter(pc, "PCAFSAISetMaxSteps_C", max_steps);
}

/*@
  PCAFSAIGetMaxSteps - Gets the most steps in which a row of the factor is extended, k_max

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
  return CallGetter(pc, "PCAFSAIGetMaxSteps_C", max_steps);
}

/*@
  PCAFSAISetStepSize - Sets how many entries a step adds to a row of the factor, s

  Logically Collective

  Input Parameters:
+ pc        - the preconditioner context
- step_size - between 1 and 10000, 1 (default)

  Options Database Key:
. -pc_afsai_step_size <step_size> - how many entries a step adds to a row of the factor, s

  Level: intermediate

  Note:
  Larger steps find the pattern less carefully: at the same number of entries per row, step size 1 is the most effective.

.seealso: `PCAFSAI`, `PCAFSAIGetStepSize()`
@*/
PetscErrorCode PCAFSAISetStepSize(PC pc, PetscInt step_size)
{
  return CallSetter(pc, "PCAFSAISetStepSize_C", step_size);
}

/*@
  PCAFSAIGetStepSize - Gets how many entries a step adds to a row of the factor, s

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
  return CallGetter(pc, "PCAFSAIGetStepSize_C", step_size);
}

/*@
  PCAFSAISetTolerance - Sets the tolerance epsilon of the rule by which a row stops

  Logically Collective

  Input Parameters:
+ pc        - the preconditioner context
- tolerance - at least 0 and below 1, 0.001 (default); with the rule `gain`, 0 makes every row take all its steps

  Options Database Key:
. -pc_afsai_tolerance <tolerance> - the tolerance epsilon of the rule by which a row stops

  Level: intermediate

  Note:
  `PCAFSAISetStopRule()` chooses what the tolerance is compared with.

.seealso: `PCAFSAI`, `PCAFSAIGetTolerance()`
@*/
PetscErrorCode PCAFSAISetTolerance(PC pc, PetscReal tolerance)
{
  return CallSetter(pc, "PCAFSAISetTolerance_C", tolerance);
}

/*@
  PCAFSAIGetTolerance - Gets the tolerance epsilon of the rule by which a row stops

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
  return CallGetter(pc, "PCAFSAIGetTolerance_C", tolerance);
}

/*@
  PCAFSAISetStopRule - Sets the rule by which a row stops

  Logically Collective

  Input Parameters:
+ pc        - the preconditioner context
- stop_rule - `PC_AFSAI_STOP_GAIN` (default) or `PC_AFSAI_STOP_RATIO`, see `PCAFSAIStopRule`

  Options Database Key:
. -pc_afsai_stop_rule <stop_rule> - the rule by which a row stops

  Level: intermediate

  Note:
  The default stops a row when a step no longer pays off, whatever the value of its psi. With the ratio, (2.16) of Isotton, Janna,
  Bernaschi, rows that cannot reach the tolerance run to max_steps, and other rows stop while they still gain.

.seealso: `PCAFSAI`, `PCAFSAIGetStopRule()`, `PCAFSAIStopRule`
@*/
PetscErrorCode PCAFSAISetStopRule(PC pc, PCAFSAIStopRule stop_rule)
{
  return CallSetter(pc, "PCAFSAISetStopRule_C", stop_rule);
}

/*@
  PCAFSAIGetStopRule - Gets the rule by which a row stops

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
  return CallGetter(pc, "PCAFSAIGetStopRule_C", stop_rule);
}

/*@
  PCAFSAISetSelection - Sets the measure by which the candidates for a row are ranked

  Logically Collective

  Input Parameters:
+ pc        - the preconditioner context
- selection - `PC_AFSAI_SELECTION_DECREASE` (default) or `PC_AFSAI_SELECTION_GRADIENT`, see `PCAFSAISelection`

  Options Database Key:
. -pc_afsai_selection <selection> - the measure by which the candidates for a row are ranked

  Level: intermediate

  Note:
  Both measures choose the same candidates for a matrix of constant diagonal.

.seealso: `PCAFSAI`, `PCAFSAIGetSelection()`, `PCAFSAISelection`
@*/
PetscErrorCode PCAFSAISetSelection(PC pc, PCAFSAISelection selection)
{
  return CallSetter(pc, "PCAFSAISetSelection_C", selection);
}

/*@
  PCAFSAIGetSelection - Gets the measure by which the candidates for a row are ranked

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
  return CallGetter(pc, "PCAFSAIGetSelection_C", selection);
}

/*@
  PCAFSAISetInitialPower - Sets the power p of A whose lower triangle is the pattern with which rows start

  Logically Collective

  Input Parameters:
+ pc            - the preconditioner context
- initial_power - between 0 and 1000, 0 (default); 0 is an empty pattern, 1 the lower triangle of A, and p that of its p-th power,
                  by (3.9) of Bernaschi, Bisson, Fantozzi, Janna

  Options Database Key:
. -pc_afsai_initial_power <initial_power> - the power p of A whose lower triangle is the pattern with which rows start

  Level: intermediate

  Note:
  The steps then add to this pattern. If `PCAFSAISetMaxSteps()` sets 0 steps, the result is static FSAI.

.seealso: `PCAFSAI`, `PCAFSAIGetInitialPower()`
@*/
PetscErrorCode PCAFSAISetInitialPower(PC pc, PetscInt initial_power)
{
  return CallSetter(pc, "PCAFSAISetInitialPower_C", initial_power);
}

/*@
  PCAFSAIGetInitialPower - Gets the power p of A whose lower triangle is the pattern with which rows start

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
  return CallGetter(pc, "PCAFSAIGetInitialPower_C", initial_power);
}

/*@
  PCAFSAISetPrefilter - Sets the threshold tau under which entries of A give no candidates

  Logically Collective

  Input Parameters:
+ pc        - the preconditioner context
- prefilter - between 0 and 1, 0 (default); an entry with |a_ij| <= tau sqrt(a_ii a_jj) is ignored, (3.8) of Bernaschi, Bisson,
              Fantozzi, Janna

  Options Database Key:
. -pc_afsai_prefilter <prefilter> - the threshold tau under which entries of A give no candidates

  Level: intermediate

  Note:
  Only the search for the pattern is filtered: the values of G are computed with all of A.

.seealso: `PCAFSAI`, `PCAFSAIGetPrefilter()`
@*/
PetscErrorCode PCAFSAISetPrefilter(PC pc, PetscReal prefilter)
{
  return CallSetter(pc, "PCAFSAISetPrefilter_C", prefilter);
}

/*@
  PCAFSAIGetPrefilter - Gets the threshold tau under which entries of A give no candidates

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
  return CallGetter(pc, "PCAFSAIGetPrefilter_C", prefilter);
}

/*@
  PCAFSAISetPostfilter - Sets the threshold delta under which entries of the computed factor are dropped

  Logically Collective

  Input Parameters:
+ pc         - the preconditioner context
- postfilter - between 0 and 1, 0 (default); an entry with |g_ij| <= delta ||g_i||_2 is dropped, (3.11) of Bernaschi, Bisson,
               Fantozzi, Janna; 0 drops nothing

  Options Database Key:
. -pc_afsai_postfilter <postfilter> - the threshold delta under which entries of the computed factor are dropped

  Level: intermediate

  Note:
  The row is scaled again by (3.13), so that diag(G A G^T) = 1 still holds. The diagonal stays, so that a threshold of 1 gives
  `PCJACOBI`.

.seealso: `PCAFSAI`, `PCAFSAIGetPostfilter()`
@*/
PetscErrorCode PCAFSAISetPostfilter(PC pc, PetscReal postfilter)
{
  return CallSetter(pc, "PCAFSAISetPostfilter_C", postfilter);
}

/*@
  PCAFSAIGetPostfilter - Gets the threshold delta under which entries of the computed factor are dropped

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
  return CallGetter(pc, "PCAFSAIGetPostfilter_C", postfilter);
}

/*@
  PCAFSAISetSetupPrecision - Sets the precision in which the factor is computed

  Logically Collective

  Input Parameters:
+ pc              - the preconditioner context
- setup_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`, see `FinePCPrecision`; a row that has a bad pivot in single
                    precision is computed again in double precision; the view counts these rows

  Options Database Key:
. -pc_afsai_setup_precision <setup_precision> - the precision in which the factor is computed

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAIGetSetupPrecision()`, `FinePCPrecision`
@*/
PetscErrorCode PCAFSAISetSetupPrecision(PC pc, FinePCPrecision setup_precision)
{
  return CallSetter(pc, "PCAFSAISetSetupPrecision_C", setup_precision);
}

/*@
  PCAFSAIGetSetupPrecision - Gets the precision in which the factor is computed

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
  return CallGetter(pc, "PCAFSAIGetSetupPrecision_C", setup_precision);
}

/*@
  PCAFSAISetFactorPrecision - Sets the precision in which the factor is stored

  Logically Collective

  Input Parameters:
+ pc               - the preconditioner context
- factor_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`, see `FinePCPrecision`; products are always summed in double
                     precision

  Options Database Key:
. -pc_afsai_factor_precision <factor_precision> - the precision in which the factor is stored

  Level: intermediate

  Note:
  A rounded G is still the factor of a symmetric positive definite G^T G. The diagonal scaling of G is always stored in double
  precision.

.seealso: `PCAFSAI`, `PCAFSAIGetFactorPrecision()`, `FinePCPrecision`
@*/
PetscErrorCode PCAFSAISetFactorPrecision(PC pc, FinePCPrecision factor_precision)
{
  return CallSetter(pc, "PCAFSAISetFactorPrecision_C", factor_precision);
}

/*@
  PCAFSAIGetFactorPrecision - Gets the precision in which the factor is stored

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
  return CallGetter(pc, "PCAFSAIGetFactorPrecision_C", factor_precision);
}

/*@
  PCAFSAISetReusePattern - Sets whether the pattern of the factor is kept when only the values of the matrix have changed

  Logically Collective

  Input Parameters:
+ pc            - the preconditioner context
- reuse_pattern - `PETSC_TRUE` (default) to compute new values on the old pattern as long as it fits, `PETSC_FALSE` to search for a
                  new pattern in each set-up

  Options Database Key:
. -pc_afsai_reuse_pattern <reuse_pattern> - whether the pattern of the factor is kept when only the values of the matrix have
  changed

  Level: intermediate

  Note:
  The pattern is kept if the nonzero pattern of the matrix, and that of the matrix given to `PCAFSAISetPattern()`, are the same as
  at the last set-up. The factors then keep their memory. Two numbers for each row, its gain and its coupling, show whether the
  pattern still fits the values. The gain, log(a_ii / psi_i), is the contribution of the off-diagonal entries of this row of the
  factor; the coupling is the sum of (a_ij / a_ii)^2 over all j other than i. A row has changed if either number differs from its
  value in the set-up that found the pattern by more than 0.4 of the larger of the two values and by more than 0.05. If more than a
  tenth of the rows have changed, the set-up searches for a new pattern; on several ranks, the ranks of a factor that reaches other
  ranks decide together, and otherwise each rank decides about its own block. The view shows how many rows have changed. The two
  numbers take 8 bytes per row.

.seealso: `PCAFSAI`, `PCAFSAIGetReusePattern()`
@*/
PetscErrorCode PCAFSAISetReusePattern(PC pc, PetscBool reuse_pattern)
{
  return CallSetter(pc, "PCAFSAISetReusePattern_C", reuse_pattern);
}

/*@
  PCAFSAIGetReusePattern - Gets whether the pattern of the factor is kept when only the values of the matrix have changed

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
  return CallGetter(pc, "PCAFSAIGetReusePattern_C", reuse_pattern);
}

/*@
  PCAFSAISetOverlap - Sets how many hops to lower-numbered ranks the factor may reach

  Logically Collective

  Input Parameters:
+ pc      - the preconditioner context
- overlap - between 0 and 1000, 0 (default); 0 keeps the factor in the rank's diagonal block, as `PCBJACOBI` with a sequential
            `PCAFSAI` does

  Options Database Key:
. -pc_afsai_overlap <overlap> - how many hops to lower-numbered ranks the factor may reach

  Level: intermediate

  Note:
  Two ranks are one hop apart if the matrix has an entry in a row of one and a column of the other. If the hops reach all
  lower-numbered ranks, and the layers of `PCAFSAISetHaloLayers()` all of their rows that matter, G is the same as on one rank. With
  1 hop, 4 or 8 ranks need about as many iterations as one rank; subdomains thinner than about three couplings need 2 hops. Each
  application exchanges entries of two vectors with neighbours, in addition to what the product with the matrix exchanges.

.seealso: `PCAFSAI`, `PCAFSAIGetOverlap()`, `PCAFSAISetHaloLayers()`
@*/
PetscErrorCode PCAFSAISetOverlap(PC pc, PetscInt overlap)
{
  return CallSetter(pc, "PCAFSAISetOverlap_C", overlap);
}

/*@
  PCAFSAIGetOverlap - Gets how many hops to lower-numbered ranks the factor may reach

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. overlap - see `PCAFSAISetOverlap()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetOverlap()`
@*/
PetscErrorCode PCAFSAIGetOverlap(PC pc, PetscInt *overlap)
{
  return CallGetter(pc, "PCAFSAIGetOverlap_C", overlap);
}

/*@
  PCAFSAISetHaloLayers - Sets how many couplings lead from a rank's rows to the rows of other ranks that it gathers

  Logically Collective

  Input Parameters:
+ pc          - the preconditioner context
- halo_layers - between 0 and 10000, 0 (default); 0 stands for the power of the initial pattern plus the most steps of a row, of
                which at most 5 count

  Options Database Key:
. -pc_afsai_halo_layers <halo_layers> - how many couplings lead from a rank's rows to the rows of other ranks that it gathers

  Level: intermediate

  Note:
  The set-up gathers rows from the ranks that `PCAFSAISetOverlap()` allows, at most this number of couplings away. With as many
  layers as a row has steps, nothing is cut. The view counts the rows that the layers may have cut. Where `PCAFSAISetPattern()`
  gives the initial pattern, the couplings are counted from its columns, too.

.seealso: `PCAFSAI`, `PCAFSAIGetHaloLayers()`, `PCAFSAISetOverlap()`
@*/
PetscErrorCode PCAFSAISetHaloLayers(PC pc, PetscInt halo_layers)
{
  return CallSetter(pc, "PCAFSAISetHaloLayers_C", halo_layers);
}

/*@
  PCAFSAIGetHaloLayers - Gets how many couplings lead from a rank's rows to the rows of other ranks that it gathers

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. halo_layers - see `PCAFSAISetHaloLayers()`

  Level: intermediate

.seealso: `PCAFSAI`, `PCAFSAISetHaloLayers()`
@*/
PetscErrorCode PCAFSAIGetHaloLayers(PC pc, PetscInt *halo_layers)
{
  return CallGetter(pc, "PCAFSAIGetHaloLayers_C", halo_layers);
}
