/* The public functions of PCRRB, with their manual pages. The values that they set and get are in the table of options in rrb.cxx.
 */
#include "api.h"

#include <finepc.h>

/*@
  PCRRBSetLevels - Sets the number of red-black levels of `PCRRB`, l of RRB-l

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- levels - 1 or more; the most that the grid allows, 2 ceil(log2(max(nx, ny))) + 1, is full RRB, and more are the same; 0 (default)
           for as few as leave at most 1024 points, or one in 15000, but never more than 4096

  Options Database Key:
. -pc_rrb_levels <levels> - levels before the exact factorization

  Level: intermediate

  Note:
  The points that are left after the last level are factored exactly. Fewer levels make a better preconditioner, with a larger exact
  part: a band on the host, a dense inverse of at most 8192 points on a GPU; beyond its limits the set-up ends with an error.

.seealso: `PCRRB`, `PCRRBGetLevels()`
@*/
PetscErrorCode PCRRBSetLevels(PC pc, PetscInt levels)
{
  return CallSetter(pc, "PCRRBSetLevels_C", levels);
}

/*@
  PCRRBGetLevels - Gets the number of red-black levels that `PCRRB` was asked for

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. levels - see `PCRRBSetLevels()`

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetLevels()`
@*/
PetscErrorCode PCRRBGetLevels(PC pc, PetscInt *levels)
{
  return CallGetter(pc, "PCRRBGetLevels_C", levels);
}

/*@
  PCRRBSetNx - Sets the number of points of a line of the grid for `PCRRB`, those whose unknowns follow each other

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- nx - 1 or more; 0 (default) leaves the grid to the `DM`, or to the pattern of the matrix

  Options Database Key:
. -pc_rrb_nx <nx> - points of a line of the grid

  Level: intermediate

  Note:
  With several ranks each must have whole lines; with a `DMDA` it need not.

.seealso: `PCRRB`, `PCRRBGetNx()`, `PCRRBSetNy()`
@*/
PetscErrorCode PCRRBSetNx(PC pc, PetscInt nx)
{
  return CallSetter(pc, "PCRRBSetNx_C", nx);
}

/*@
  PCRRBGetNx - Gets the number of points of a line of the grid that `PCRRB` was given

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. nx - see `PCRRBSetNx()`; 0 if none was given

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetNx()`
@*/
PetscErrorCode PCRRBGetNx(PC pc, PetscInt *nx)
{
  return CallGetter(pc, "PCRRBGetNx_C", nx);
}

/*@
  PCRRBSetNy - Sets the number of lines of the grid for `PCRRB`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- ny - 1 or more; 0 (default) leaves the grid to the `DM`, or to the pattern of the matrix

  Options Database Key:
. -pc_rrb_ny <ny> - lines of the grid

  Level: intermediate

  Note:
  One of `PCRRBSetNx()` and `PCRRBSetNy()` is enough.

.seealso: `PCRRB`, `PCRRBGetNy()`, `PCRRBSetNx()`
@*/
PetscErrorCode PCRRBSetNy(PC pc, PetscInt ny)
{
  return CallSetter(pc, "PCRRBSetNy_C", ny);
}

/*@
  PCRRBGetNy - Gets the number of lines of the grid that `PCRRB` was given

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. ny - see `PCRRBSetNy()`; 0 if none was given

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetNy()`
@*/
PetscErrorCode PCRRBGetNy(PC pc, PetscInt *ny)
{
  return CallGetter(pc, "PCRRBGetNy_C", ny);
}

/*@
  PCRRBSetLift - Sets whether `PCRRB` makes rows that sum to less than 0 sum to 0, before the first level that lumps

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- lift - `PETSC_TRUE` (default) or `PETSC_FALSE`

  Options Database Key:
. -pc_rrb_lift <lift> - whether rows that sum to less than 0 are lifted

  Level: intermediate

  Notes:
  `PETSC_FALSE` is the method of the paper, to which this is an addition. Without it a matrix with such rows loses definiteness with
  every
  level that lumps, and pivots that are not positive make the set-up fail, on fine grids with many levels even though the matrix
  itself
  is definite. With it M is that of a matrix with larger diagonal entries. Where both work they take about as many iterations.

  With a 5-point stencil the rows are those of the first Schur complement, which is exact: one level stays exact, and so does the
  operator of `KSPRRBCG`. With a 9-point stencil the first level lumps, and the rows are those of the matrix. A row is lifted if its
  sum is below -1e-12 times the diagonal entry of the matrix, such that sums that are 0 but for rounding stay what they are, and if
  its own
  diagonal entry is positive. Nothing is lifted on a grid of one line, where nothing is lumped, and with the constants as null space
  (`MatSetNullSpace()`), for which rows sum to 0. The view counts the rows.

.seealso: `PCRRB`, `PCRRBGetLift()`, `PCRRBSetLevels()`
@*/
PetscErrorCode PCRRBSetLift(PC pc, PetscBool lift)
{
  return CallSetter(pc, "PCRRBSetLift_C", lift);
}

/*@
  PCRRBGetLift - Gets whether `PCRRB` makes rows that sum to less than 0 sum to 0

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. lift - see `PCRRBSetLift()`

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetLift()`
@*/
PetscErrorCode PCRRBGetLift(PC pc, PetscBool *lift)
{
  return CallGetter(pc, "PCRRBGetLift_C", lift);
}
