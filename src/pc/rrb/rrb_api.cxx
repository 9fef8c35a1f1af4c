/*
   Setters and getters of the options of PCRRB with their manual pages, written by scripts/options
   from the table in rrb.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  PCRRBSetLevels - Sets the number of red-black levels before the exact factorization, l of RRB-l

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- levels - between 0 and 128, 0 (default); 0 for the fewest that leave at most 1024 points, or one in 15000, but never more than
           4096; the most that the grid allows, 2 ceil(log2(max(nx, ny))) + 1, is full RRB, and more levels are the same as full RRB

  Options Database Key:
. -pc_rrb_levels <levels> - the number of red-black levels before the exact factorization, l of RRB-l

  Level: intermediate

  Note:
  The points that are left after the last level are factored exactly. Fewer levels give a better preconditioner with a larger exact
  part. This part is a band of at most 2 GiB on the host, and a dense inverse of at most 8192 points on a GPU. Beyond these limits
  the set-up ends with an error.

.seealso: `PCRRB`, `PCRRBGetLevels()`
@*/
PetscErrorCode PCRRBSetLevels(PC pc, PetscInt levels)
{
  return CallSetter(pc, "PCRRBSetLevels_C", levels);
}

/*@
  PCRRBGetLevels - Gets the number of red-black levels before the exact factorization, l of RRB-l

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
  PCRRBSetNx - Sets the number of points of a line of the grid; the unknowns of a line follow each other

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- nx - between 0 and 1000000000, 0 (default); 0 leaves the grid to the `DM`, or to the pattern of the matrix

  Options Database Key:
. -pc_rrb_nx <nx> - the number of points of a line of the grid; the unknowns of a line follow each other

  Level: intermediate

  Note:
  On several ranks each rank must own whole lines of the grid, but with a `DMDA` a rank may own parts of lines.

.seealso: `PCRRB`, `PCRRBGetNx()`, `PCRRBSetNy()`
@*/
PetscErrorCode PCRRBSetNx(PC pc, PetscInt nx)
{
  return CallSetter(pc, "PCRRBSetNx_C", nx);
}

/*@
  PCRRBGetNx - Gets the number of points of a line of the grid; the unknowns of a line follow each other

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. nx - see `PCRRBSetNx()`

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetNx()`
@*/
PetscErrorCode PCRRBGetNx(PC pc, PetscInt *nx)
{
  return CallGetter(pc, "PCRRBGetNx_C", nx);
}

/*@
  PCRRBSetNy - Sets the number of lines of the grid

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- ny - between 0 and 1000000000, 0 (default); 0 leaves the grid to the `DM`, or to the pattern of the matrix

  Options Database Key:
. -pc_rrb_ny <ny> - the number of lines of the grid

  Level: intermediate

  Note:
  It is enough to call one of `PCRRBSetNx()` and `PCRRBSetNy()`.

.seealso: `PCRRB`, `PCRRBGetNy()`, `PCRRBSetNx()`
@*/
PetscErrorCode PCRRBSetNy(PC pc, PetscInt ny)
{
  return CallSetter(pc, "PCRRBSetNy_C", ny);
}

/*@
  PCRRBGetNy - Gets the number of lines of the grid

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. ny - see `PCRRBSetNy()`

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetNy()`
@*/
PetscErrorCode PCRRBGetNy(PC pc, PetscInt *ny)
{
  return CallGetter(pc, "PCRRBGetNy_C", ny);
}

/*@
  PCRRBSetLift - Sets whether rows that sum to less than 0 are made to sum to 0, before the first level that lumps

  Logically Collective

  Input Parameters:
+ pc   - the preconditioner context
- lift - `PETSC_TRUE` (default) to lift such rows, `PETSC_FALSE` to leave them as they are, as in the paper

  Options Database Key:
. -pc_rrb_lift <lift> - whether rows that sum to less than 0 are made to sum to 0, before the first level that lumps

  Level: intermediate

  Notes:
  `PETSC_FALSE` is the method of de Jong, van der Ploeg, Ditzel, Vuik; lifting rows is an addition to their method. Without lifting,
  a matrix with such rows loses definiteness with every level that lumps, and pivots that are not positive make the set-up fail. On
  fine grids with many levels this happens even though the matrix itself is definite. With lifting, M is that of a matrix with
  larger diagonal entries. Where both ways work, they take about the same number of iterations.

  With a 5-point stencil the rows that are lifted are those of the first Schur complement, which is exact: one level stays exact,
  and so does the operator of `KSPRRBCG`. With a 9-point stencil the first level lumps, and the rows that are lifted are those of
  the matrix. A row is lifted if its sum is below -1e-12 times the diagonal entry of the matrix, so that sums that are 0 up to
  rounding are left unchanged, and if its own diagonal entry is positive. Nothing is lifted on a grid of one line, where nothing is
  lumped, or with the constants as null space (`MatSetNullSpace()`), for which rows sum to 0. The view counts the rows that are
  lifted.

.seealso: `PCRRB`, `PCRRBGetLift()`, `PCRRBSetLevels()`
@*/
PetscErrorCode PCRRBSetLift(PC pc, PetscBool lift)
{
  return CallSetter(pc, "PCRRBSetLift_C", lift);
}

/*@
  PCRRBGetLift - Gets whether rows that sum to less than 0 are made to sum to 0, before the first level that lumps

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
