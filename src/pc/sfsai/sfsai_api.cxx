/*
   Setters and getters of the options of PCSFSAI with their manual pages, written by scripts/options
   from the table in sfsai.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  PCSFSAISetPower - Sets how many products of the recursion make the pattern of the factor, k

  Logically Collective

  Input Parameters:
+ pc    - the preconditioner context
- power - between -1 and 1000, -1 (default); 0 leaves only the diagonal, which is `PCJACOBI`, 1 takes the lower triangle of A, and 2
          one more product, by (3.9) of Bernaschi, Bisson, Fantozzi, Janna; -1, `PETSC_DETERMINE`, takes 2, or 1 where rows would be
          long

  Options Database Key:
. -pc_sfsai_power <power> - how many products of the recursion make the pattern of the factor, k

  Level: intermediate

  Note:
  A row of m entries costs m^3 operations. By default the power is 1 if the rows of power 2 would cost more than rows of 200 entries
  on average, such as those of quadratic elements with three unknowns per point. Each rank chooses for its own rows, and the view
  says what was chosen. The products are symbolic, so entries that cancel stay. The power is not used while `PCSFSAISetPattern()`
  gives the pattern.

.seealso: `PCSFSAI`, `PCSFSAIGetPower()`
@*/
PetscErrorCode PCSFSAISetPower(PC pc, PetscInt power)
{
  return CallSetter(pc, "PCSFSAISetPower_C", power);
}

/*@
  PCSFSAIGetPower - Gets how many products of the recursion make the pattern of the factor, k

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. power - see `PCSFSAISetPower()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetPower()`
@*/
PetscErrorCode PCSFSAIGetPower(PC pc, PetscInt *power)
{
  return CallGetter(pc, "PCSFSAIGetPower_C", power);
}

/*@
  PCSFSAISetPrefilter - Sets the threshold tau under which entries of A do not count for the pattern

  Logically Collective

  Input Parameters:
+ pc        - the preconditioner context
- prefilter - between 0 and 1, 0 (default); an entry with |a_ij| <= tau sqrt(a_ii a_jj) is ignored, (3.8) of Bernaschi, Bisson,
              Fantozzi, Janna; with 0 every stored entry counts

  Options Database Key:
. -pc_sfsai_prefilter <prefilter> - the threshold tau under which entries of A do not count for the pattern

  Level: intermediate

  Note:
  Only the pattern is filtered: the values of G are computed with all of A. The prefilter is not used while `PCSFSAISetPattern()`
  gives the pattern.

.seealso: `PCSFSAI`, `PCSFSAIGetPrefilter()`
@*/
PetscErrorCode PCSFSAISetPrefilter(PC pc, PetscReal prefilter)
{
  return CallSetter(pc, "PCSFSAISetPrefilter_C", prefilter);
}

/*@
  PCSFSAIGetPrefilter - Gets the threshold tau under which entries of A do not count for the pattern

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. prefilter - see `PCSFSAISetPrefilter()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetPrefilter()`
@*/
PetscErrorCode PCSFSAIGetPrefilter(PC pc, PetscReal *prefilter)
{
  return CallGetter(pc, "PCSFSAIGetPrefilter_C", prefilter);
}

/*@
  PCSFSAISetPostfilter - Sets the threshold delta under which entries of the computed factor are dropped

  Logically Collective

  Input Parameters:
+ pc         - the preconditioner context
- postfilter - between 0 and 1, 0 (default); an entry with |g_ij| <= delta ||g_i||_2 is dropped, (3.11) of Bernaschi, Bisson,
               Fantozzi, Janna; 0 drops nothing

  Options Database Key:
. -pc_sfsai_postfilter <postfilter> - the threshold delta under which entries of the computed factor are dropped

  Level: intermediate

  Note:
  The row is scaled again by (3.13), so that diag(G A G^T) = 1 still holds. The diagonal stays, so that a threshold of 1 gives
  `PCJACOBI`. The view counts the entries that were dropped.

.seealso: `PCSFSAI`, `PCSFSAIGetPostfilter()`
@*/
PetscErrorCode PCSFSAISetPostfilter(PC pc, PetscReal postfilter)
{
  return CallSetter(pc, "PCSFSAISetPostfilter_C", postfilter);
}

/*@
  PCSFSAIGetPostfilter - Gets the threshold delta under which entries of the computed factor are dropped

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. postfilter - see `PCSFSAISetPostfilter()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetPostfilter()`
@*/
PetscErrorCode PCSFSAIGetPostfilter(PC pc, PetscReal *postfilter)
{
  return CallGetter(pc, "PCSFSAIGetPostfilter_C", postfilter);
}

/*@
  PCSFSAISetMaxRow - Sets the most entries that a row of the factor may have, its diagonal included

  Logically Collective

  Input Parameters:
+ pc      - the preconditioner context
- max_row - between -1 and 100000, -1 (default); 0 for no cap, 1 leaves only the diagonal, and -1, `PETSC_DETERMINE`, takes 768

  Options Database Key:
. -pc_sfsai_max_row <max_row> - the most entries that a row of the factor may have, its diagonal included

  Level: intermediate

  Note:
  A longer row keeps the entries with the largest path weights, which are the entries of |A~|^k along the row's paths, where A~ is
  the filtered A scaled to unit diagonal. Among entries of equal weight, those with smaller column numbers come first. The view
  counts the rows that were cut. The cap is not used while `PCSFSAISetPattern()` gives the pattern.

.seealso: `PCSFSAI`, `PCSFSAIGetMaxRow()`
@*/
PetscErrorCode PCSFSAISetMaxRow(PC pc, PetscInt max_row)
{
  return CallSetter(pc, "PCSFSAISetMaxRow_C", max_row);
}

/*@
  PCSFSAIGetMaxRow - Gets the most entries that a row of the factor may have, its diagonal included

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. max_row - see `PCSFSAISetMaxRow()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetMaxRow()`
@*/
PetscErrorCode PCSFSAIGetMaxRow(PC pc, PetscInt *max_row)
{
  return CallGetter(pc, "PCSFSAIGetMaxRow_C", max_row);
}

/*@
  PCSFSAISetSetupPrecision - Sets the precision in which the factor is computed

  Logically Collective

  Input Parameters:
+ pc              - the preconditioner context
- setup_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`, see `FinePCPrecision`; a row that has a bad pivot in single
                    precision is computed again in double precision; the view counts these rows

  Options Database Key:
. -pc_sfsai_setup_precision <setup_precision> - the precision in which the factor is computed

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAIGetSetupPrecision()`, `FinePCPrecision`
@*/
PetscErrorCode PCSFSAISetSetupPrecision(PC pc, FinePCPrecision setup_precision)
{
  return CallSetter(pc, "PCSFSAISetSetupPrecision_C", setup_precision);
}

/*@
  PCSFSAIGetSetupPrecision - Gets the precision in which the factor is computed

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. setup_precision - see `PCSFSAISetSetupPrecision()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetSetupPrecision()`
@*/
PetscErrorCode PCSFSAIGetSetupPrecision(PC pc, FinePCPrecision *setup_precision)
{
  return CallGetter(pc, "PCSFSAIGetSetupPrecision_C", setup_precision);
}

/*@
  PCSFSAISetFactorPrecision - Sets the precision in which the factor is stored

  Logically Collective

  Input Parameters:
+ pc               - the preconditioner context
- factor_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`, see `FinePCPrecision`; products are always summed in double
                     precision

  Options Database Key:
. -pc_sfsai_factor_precision <factor_precision> - the precision in which the factor is stored

  Level: intermediate

  Note:
  A rounded G is still the factor of a symmetric positive definite G^T G. The diagonal scaling of G is always stored in double
  precision.

.seealso: `PCSFSAI`, `PCSFSAIGetFactorPrecision()`, `FinePCPrecision`
@*/
PetscErrorCode PCSFSAISetFactorPrecision(PC pc, FinePCPrecision factor_precision)
{
  return CallSetter(pc, "PCSFSAISetFactorPrecision_C", factor_precision);
}

/*@
  PCSFSAIGetFactorPrecision - Gets the precision in which the factor is stored

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. factor_precision - see `PCSFSAISetFactorPrecision()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetFactorPrecision()`
@*/
PetscErrorCode PCSFSAIGetFactorPrecision(PC pc, FinePCPrecision *factor_precision)
{
  return CallGetter(pc, "PCSFSAIGetFactorPrecision_C", factor_precision);
}

/*@
  PCSFSAISetReusePattern - Sets whether the pattern of the factor is kept when only the values of the matrix have changed

  Logically Collective

  Input Parameters:
+ pc            - the preconditioner context
- reuse_pattern - `PETSC_TRUE` (default) to compute new values on the old pattern as long as it fits, `PETSC_FALSE` to make a new
                  pattern in each set-up

  Options Database Key:
. -pc_sfsai_reuse_pattern <reuse_pattern> - whether the pattern of the factor is kept when only the values of the matrix have
  changed

  Level: intermediate

  Note:
  The pattern is kept if the nonzero pattern of the matrix, and that of the matrix given to `PCSFSAISetPattern()`, are the same as
  at the last set-up. Nothing is allocated then. With a prefilter, a postfilter or a cap on the rows, the pattern depends on the
  values from which it was made. It is then kept as long as the gains and couplings of nine tenths of the rows stay about the same,
  see `PCAFSAISetReusePattern()`; otherwise the set-up makes a new pattern.

.seealso: `PCSFSAI`, `PCSFSAIGetReusePattern()`, `PCAFSAISetReusePattern()`
@*/
PetscErrorCode PCSFSAISetReusePattern(PC pc, PetscBool reuse_pattern)
{
  return CallSetter(pc, "PCSFSAISetReusePattern_C", reuse_pattern);
}

/*@
  PCSFSAIGetReusePattern - Gets whether the pattern of the factor is kept when only the values of the matrix have changed

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. reuse_pattern - see `PCSFSAISetReusePattern()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetReusePattern()`
@*/
PetscErrorCode PCSFSAIGetReusePattern(PC pc, PetscBool *reuse_pattern)
{
  return CallGetter(pc, "PCSFSAIGetReusePattern_C", reuse_pattern);
}

/*@
  PCSFSAISetOverlap - Sets how many hops to lower-numbered ranks the factor may reach

  Logically Collective

  Input Parameters:
+ pc      - the preconditioner context
- overlap - between 0 and 1000, 0 (default); 0 keeps the factor in the rank's diagonal block, as `PCBJACOBI` with a sequential
            `PCSFSAI` does

  Options Database Key:
. -pc_sfsai_overlap <overlap> - how many hops to lower-numbered ranks the factor may reach

  Level: intermediate

  Note:
  Two ranks are one hop apart if the matrix has an entry in a row of one and a column of the other. If the hops reach all
  lower-numbered ranks, and the layers of `PCSFSAISetHaloLayers()` all of their rows that matter, G is the same as on one rank. With
  1 hop, 4 or 8 ranks need about as many iterations as one rank; subdomains thinner than about three couplings need 2 hops. Each
  application exchanges entries of two vectors with neighbours, in addition to what the product with the matrix exchanges.

.seealso: `PCSFSAI`, `PCSFSAIGetOverlap()`, `PCSFSAISetHaloLayers()`
@*/
PetscErrorCode PCSFSAISetOverlap(PC pc, PetscInt overlap)
{
  return CallSetter(pc, "PCSFSAISetOverlap_C", overlap);
}

/*@
  PCSFSAIGetOverlap - Gets how many hops to lower-numbered ranks the factor may reach

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. overlap - see `PCSFSAISetOverlap()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetOverlap()`
@*/
PetscErrorCode PCSFSAIGetOverlap(PC pc, PetscInt *overlap)
{
  return CallGetter(pc, "PCSFSAIGetOverlap_C", overlap);
}

/*@
  PCSFSAISetHaloLayers - Sets how many couplings lead from a rank's rows to the rows of other ranks that it gathers

  Logically Collective

  Input Parameters:
+ pc          - the preconditioner context
- halo_layers - between 0 and 10000, 0 (default); 0 stands for the power

  Options Database Key:
. -pc_sfsai_halo_layers <halo_layers> - how many couplings lead from a rank's rows to the rows of other ranks that it gathers

  Level: intermediate

  Note:
  The set-up gathers rows from the ranks that `PCSFSAISetOverlap()` allows, at most this number of couplings away. With as many
  layers as the power, nothing is cut. The view counts the rows that the layers may have cut. The layers do not matter if
  `PCSFSAISetPattern()` gives the pattern: then the rows that are gathered are the columns of this pattern.

.seealso: `PCSFSAI`, `PCSFSAIGetHaloLayers()`, `PCSFSAISetOverlap()`
@*/
PetscErrorCode PCSFSAISetHaloLayers(PC pc, PetscInt halo_layers)
{
  return CallSetter(pc, "PCSFSAISetHaloLayers_C", halo_layers);
}

/*@
  PCSFSAIGetHaloLayers - Gets how many couplings lead from a rank's rows to the rows of other ranks that it gathers

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. halo_layers - see `PCSFSAISetHaloLayers()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetHaloLayers()`
@*/
PetscErrorCode PCSFSAIGetHaloLayers(PC pc, PetscInt *halo_layers)
{
  return CallGetter(pc, "PCSFSAIGetHaloLayers_C", halo_layers);
}
