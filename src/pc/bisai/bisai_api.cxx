/*
   Setters and getters of the options of PCBISAI with their manual pages, written by scripts/options
   from the table in bisai.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  PCBISAISetPower - Sets the power p of the patterns S(|L|^p) and S(|U|^p) that the approximate inverses take

  Logically Collective

  Input Parameters:
+ pc    - the preconditioner context
- power - between 1 and 4, 1 (default)

  Options Database Key:
. -pc_bisai_power <power> - the power p of the patterns S(|L|^p) and S(|U|^p) that the approximate inverses take

  Level: intermediate

  Note:
  A larger power brings the iterations of `PCBISAI` closer to those of the exact triangular solves, and costs more in the set-up and
  in each apply. `PCBISAISetPowerLower()` and `PCBISAISetPowerUpper()` set the power for one factor alone.

.seealso: `PCBISAI`, `PCBISAIGetPower()`
@*/
PetscErrorCode PCBISAISetPower(PC pc, PetscInt power)
{
  return CallSetter(pc, "PCBISAISetPower_C", power);
}

/*@
  PCBISAIGetPower - Gets the power p of the patterns S(|L|^p) and S(|U|^p) that the approximate inverses take

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. power - see `PCBISAISetPower()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetPower()`
@*/
PetscErrorCode PCBISAIGetPower(PC pc, PetscInt *power)
{
  return CallGetter(pc, "PCBISAIGetPower_C", power);
}

/*@
  PCBISAISetPowerLower - Sets the power of the pattern for the inverse of L alone

  Logically Collective

  Input Parameters:
+ pc    - the preconditioner context
- power - between 0 and 4, 0 (default); 0 for the one of `PCBISAISetPower()`

  Options Database Key:
. -pc_bisai_power_lower <power> - the power of the pattern for the inverse of L alone

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAIGetPowerLower()`
@*/
PetscErrorCode PCBISAISetPowerLower(PC pc, PetscInt power)
{
  return CallSetter(pc, "PCBISAISetPowerLower_C", power);
}

/*@
  PCBISAIGetPowerLower - Gets the power of the pattern for the inverse of L alone

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. power - see `PCBISAISetPowerLower()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetPowerLower()`
@*/
PetscErrorCode PCBISAIGetPowerLower(PC pc, PetscInt *power)
{
  return CallGetter(pc, "PCBISAIGetPowerLower_C", power);
}

/*@
  PCBISAISetPowerUpper - Sets the power of the pattern for the inverse of U alone

  Logically Collective

  Input Parameters:
+ pc    - the preconditioner context
- power - between 0 and 4, 0 (default); 0 for the one of `PCBISAISetPower()`

  Options Database Key:
. -pc_bisai_power_upper <power> - the power of the pattern for the inverse of U alone

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAIGetPowerUpper()`
@*/
PetscErrorCode PCBISAISetPowerUpper(PC pc, PetscInt power)
{
  return CallSetter(pc, "PCBISAISetPowerUpper_C", power);
}

/*@
  PCBISAIGetPowerUpper - Gets the power of the pattern for the inverse of U alone

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. power - see `PCBISAISetPowerUpper()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetPowerUpper()`
@*/
PetscErrorCode PCBISAIGetPowerUpper(PC pc, PetscInt *power)
{
  return CallGetter(pc, "PCBISAIGetPowerUpper_C", power);
}

/*@
  PCBISAISetSide - Sets whether the triangular factors are inverted by block rows or by block columns

  Logically Collective

  Input Parameters:
+ pc   - the preconditioner context
- side - `PC_BISAI_SIDE_ROWS` (default), `PC_BISAI_SIDE_COLUMNS`, `PC_BISAI_SIDE_COLUMNS_ROWS` or `PC_BISAI_SIDE_ROWS_COLUMNS`, see
         `PCBISAISide`

  Options Database Key:
. -pc_bisai_side <side> - whether the triangular factors are inverted by block rows or by block columns

  Level: intermediate

  Note:
  By rows, N T = I holds on the pattern of N; by columns, T N = I does, as in the paper. On grids with 5- and 7-point stencils there
  is no difference. On other matrices either side may need fewer iterations. The cost of an apply is the same; a set-up by columns
  also needs memory for the lists of the block columns.

.seealso: `PCBISAI`, `PCBISAIGetSide()`, `PCBISAISide`
@*/
PetscErrorCode PCBISAISetSide(PC pc, PCBISAISide side)
{
  return CallSetter(pc, "PCBISAISetSide_C", side);
}

/*@
  PCBISAIGetSide - Gets whether the triangular factors are inverted by block rows or by block columns

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. side - see `PCBISAISetSide()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetSide()`
@*/
PetscErrorCode PCBISAIGetSide(PC pc, PCBISAISide *side)
{
  return CallGetter(pc, "PCBISAIGetSide_C", side);
}

/*@
  PCBISAISetFactor - Sets where the block triangular factors come from

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- factor - `PC_BISAI_FACTOR_AUTO` (default), `PC_BISAI_FACTOR_PETSC`, `PC_BISAI_FACTOR_FINEPC` or `PC_BISAI_FACTOR_CUDA`, see
           `PCBISAIFactor`

  Options Database Key:
. -pc_bisai_factor <factor> - where the block triangular factors come from

  Level: intermediate

  Notes:
  PETSc computes its factor on the host. This factor takes levels of fill, shifts and orderings, and is copied to the GPU if the
  inverses are on the GPU. `PC_BISAI_FACTOR_FINEPC` is block ILU(0) in the natural ordering, computed where the matrix is. On the
  GPU this factor stays there, and its rows are eliminated level by level. For ILU(0) the two factors agree to rounding.

  `PC_BISAI_FACTOR_AUTO` uses finepc's factor if the matrix is on a GPU, and PETSc's if it is on the host. If levels of fill, a
  shift type or an ordering is set, it uses PETSc's factor everywhere; if sweeps are set, it uses finepc's. The view says which
  factor was used.

.seealso: `PCBISAI`, `PCBISAIGetFactor()`, `PCBISAIFactor`
@*/
PetscErrorCode PCBISAISetFactor(PC pc, PCBISAIFactor factor)
{
  return CallSetter(pc, "PCBISAISetFactor_C", factor);
}

/*@
  PCBISAIGetFactor - Gets where the block triangular factors come from

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. factor - see `PCBISAISetFactor()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactor()`
@*/
PetscErrorCode PCBISAIGetFactor(PC pc, PCBISAIFactor *factor)
{
  return CallGetter(pc, "PCBISAIGetFactor_C", factor);
}

/*@
  PCBISAISetFactorLevels - Sets the levels of fill of the triangular factors

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- levels - between 0 and 1000, 0 (default); above 0 only with PETSc's factor

  Options Database Key:
. -pc_bisai_factor_levels <levels> - the levels of fill of the triangular factors

  Level: intermediate

  Note:
  The levels are those of `PCFactorSetLevels()` for `PCILU`. More than 0 levels need PETSc's factor, see `PCBISAISetFactor()`.

.seealso: `PCBISAI`, `PCBISAIGetFactorLevels()`
@*/
PetscErrorCode PCBISAISetFactorLevels(PC pc, PetscInt levels)
{
  return CallSetter(pc, "PCBISAISetFactorLevels_C", levels);
}

/*@
  PCBISAIGetFactorLevels - Gets the levels of fill of the triangular factors

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. levels - see `PCBISAISetFactorLevels()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorLevels()`
@*/
PetscErrorCode PCBISAIGetFactorLevels(PC pc, PetscInt *levels)
{
  return CallGetter(pc, "PCBISAIGetFactorLevels_C", levels);
}

/*@
  PCBISAISetFactorShiftType - Sets how PETSc shifts zero pivots in the triangular factors

  Logically Collective

  Input Parameters:
+ pc         - the preconditioner context
- shift_type - `MAT_SHIFT_NONE` (default) or `MAT_SHIFT_INBLOCKS`; with block size 1 also `MAT_SHIFT_NONZERO` and
               `MAT_SHIFT_POSITIVE_DEFINITE`

  Options Database Key:
. -pc_bisai_factor_shift_type <shift_type> - how PETSc shifts zero pivots in the triangular factors

  Level: intermediate

  Note:
  The type is that of `PCFactorSetShiftType()` for `PCILU`. Types other than `MAT_SHIFT_NONE` need PETSc's factor, see
  `PCBISAISetFactor()`. With `MAT_SHIFT_POSITIVE_DEFINITE`, PETSc may search for a shift forever if rows sum to 0.

.seealso: `PCBISAI`, `PCBISAIGetFactorShiftType()`
@*/
PetscErrorCode PCBISAISetFactorShiftType(PC pc, MatFactorShiftType shift_type)
{
  return CallSetter(pc, "PCBISAISetFactorShiftType_C", shift_type);
}

/*@
  PCBISAIGetFactorShiftType - Gets how PETSc shifts zero pivots in the triangular factors

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. shift_type - see `PCBISAISetFactorShiftType()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorShiftType()`
@*/
PetscErrorCode PCBISAIGetFactorShiftType(PC pc, MatFactorShiftType *shift_type)
{
  return CallGetter(pc, "PCBISAIGetFactorShiftType_C", shift_type);
}

/*@
  PCBISAISetFactorShiftAmount - Sets by how much PETSc shifts zero pivots in the triangular factors

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- amount - at least 0, 2.22045e-14 (default); the default is 100 times the machine epsilon

  Options Database Key:
. -pc_bisai_factor_shift_amount <amount> - by how much PETSc shifts zero pivots in the triangular factors

  Level: intermediate

  Note:
  The amount is that of `PCFactorSetShiftAmount()` for `PCILU`. It is not used with `MAT_SHIFT_NONE` or `PC_BISAI_FACTOR_FINEPC`.
  With `MAT_SHIFT_NONZERO` the amount must be above 0, which `PCSetUp()` checks.

.seealso: `PCBISAI`, `PCBISAIGetFactorShiftAmount()`
@*/
PetscErrorCode PCBISAISetFactorShiftAmount(PC pc, PetscReal amount)
{
  return CallSetter(pc, "PCBISAISetFactorShiftAmount_C", amount);
}

/*@
  PCBISAIGetFactorShiftAmount - Gets by how much PETSc shifts zero pivots in the triangular factors

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. amount - see `PCBISAISetFactorShiftAmount()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorShiftAmount()`
@*/
PetscErrorCode PCBISAIGetFactorShiftAmount(PC pc, PetscReal *amount)
{
  return CallGetter(pc, "PCBISAIGetFactorShiftAmount_C", amount);
}

/*@
  PCBISAISetFactorMatOrderingType - Sets the ordering of the block rows in PETSc's triangular factors

  Logically Collective

  Input Parameters:
+ pc       - the preconditioner context
- ordering - `MATORDERINGNATURAL` (default), or any other `MatOrderingType`

  Options Database Key:
. -pc_bisai_factor_mat_ordering_type <ordering> - the ordering of the block rows in PETSc's triangular factors

  Level: intermediate

  Note:
  The ordering is that of `PCFactorSetMatOrderingType()` for `PCILU`. Orderings other than `MATORDERINGNATURAL` need
  `PC_BISAI_FACTOR_PETSC`.

.seealso: `PCBISAI`, `PCBISAIGetFactorMatOrderingType()`
@*/
PetscErrorCode PCBISAISetFactorMatOrderingType(PC pc, MatOrderingType ordering)
{
  return CallSetter(pc, "PCBISAISetFactorMatOrderingType_C", ordering);
}

/*@
  PCBISAIGetFactorMatOrderingType - Gets the ordering of the block rows in PETSc's triangular factors

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. ordering - see `PCBISAISetFactorMatOrderingType()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorMatOrderingType()`
@*/
PetscErrorCode PCBISAIGetFactorMatOrderingType(PC pc, MatOrderingType *ordering)
{
  return CallGetter(pc, "PCBISAIGetFactorMatOrderingType_C", ordering);
}

/*@
  PCBISAISetFactorSweeps - Sets by how many sweeps over all block rows at once finepc computes the triangular factors

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- sweeps - between 0 and 1000, 0 (default); 0 for the exact block ILU(0), level by level

  Options Database Key:
. -pc_bisai_factor_sweeps <sweeps> - by how many sweeps over all block rows at once finepc computes the triangular factors

  Level: intermediate

  Notes:
  The exact factorization on the GPU processes one level of block rows after the other, which is slow if there are many levels with
  few block rows each, as on grids in two dimensions. A sweep processes all block rows at once, and uses the rows of U from the
  previous sweep; the first sweep uses those of the matrix. These are the fixed-point sweeps of Chow and Patel, except that a block
  row of L is computed with the blocks of this row that the same sweep has found. As many sweeps as there are levels give the exact
  factors, and a few sweeps are often as good. All sweeps are synchronous, so that the same matrix always gives the same factors.

  Sweeps need `PC_BISAI_FACTOR_FINEPC`, and memory for a second copy of the values of L and U. On the host they are slower than the
  exact factorization, and are provided for comparison.

  Reference:
  E. Chow, A. Patel, Fine-grained parallel incomplete LU factorization, SIAM Journal on Scientific Computing 37 (2015) C169-C193

.seealso: `PCBISAI`, `PCBISAIGetFactorSweeps()`, `PCBISAISetFactor()`
@*/
PetscErrorCode PCBISAISetFactorSweeps(PC pc, PetscInt sweeps)
{
  return CallSetter(pc, "PCBISAISetFactorSweeps_C", sweeps);
}

/*@
  PCBISAIGetFactorSweeps - Gets by how many sweeps over all block rows at once finepc computes the triangular factors

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. sweeps - see `PCBISAISetFactorSweeps()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorSweeps()`
@*/
PetscErrorCode PCBISAIGetFactorSweeps(PC pc, PetscInt *sweeps)
{
  return CallGetter(pc, "PCBISAIGetFactorSweeps_C", sweeps);
}

/*@
  PCBISAISetFactorPrecision - Sets the precision in which the approximate inverses are stored

  Logically Collective

  Input Parameters:
+ pc               - the preconditioner context
- factor_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`, see `FinePCPrecision`; the inverses are always computed, and
                     products summed, in double precision

  Options Database Key:
. -pc_bisai_factor_precision <factor_precision> - the precision in which the approximate inverses are stored

  Level: intermediate

  Note:
  With `PCBISAISetSweeps()` the copies of L and U for the relaxation are stored in this precision, too.

.seealso: `PCBISAI`, `PCBISAIGetFactorPrecision()`, `FinePCPrecision`
@*/
PetscErrorCode PCBISAISetFactorPrecision(PC pc, FinePCPrecision factor_precision)
{
  return CallSetter(pc, "PCBISAISetFactorPrecision_C", factor_precision);
}

/*@
  PCBISAIGetFactorPrecision - Gets the precision in which the approximate inverses are stored

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. factor_precision - see `PCBISAISetFactorPrecision()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorPrecision()`
@*/
PetscErrorCode PCBISAIGetFactorPrecision(PC pc, FinePCPrecision *factor_precision)
{
  return CallGetter(pc, "PCBISAIGetFactorPrecision_C", factor_precision);
}

/*@
  PCBISAISetSweeps - Sets the relaxation steps that an apply takes with each factor

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- sweeps - between 0 and 1000, 0 (default)

  Options Database Key:
. -pc_bisai_sweeps <sweeps> - the relaxation steps that an apply takes with each factor

  Level: intermediate

  Note:
  After z = N v, each step computes z <- z + N (v - T z), where T is L or U. This takes two more products. The error decreases with
  the powers of I - N T, which is nilpotent, so enough steps give the exact triangular solve.

.seealso: `PCBISAI`, `PCBISAIGetSweeps()`
@*/
PetscErrorCode PCBISAISetSweeps(PC pc, PetscInt sweeps)
{
  return CallSetter(pc, "PCBISAISetSweeps_C", sweeps);
}

/*@
  PCBISAIGetSweeps - Gets the relaxation steps that an apply takes with each factor

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. sweeps - see `PCBISAISetSweeps()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetSweeps()`
@*/
PetscErrorCode PCBISAIGetSweeps(PC pc, PetscInt *sweeps)
{
  return CallGetter(pc, "PCBISAIGetSweeps_C", sweeps);
}
