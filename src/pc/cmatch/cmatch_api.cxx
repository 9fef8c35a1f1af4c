/*
   Setters and getters of the options of PCCMATCH with their manual pages, written by scripts/options
   from the table in cmatch_options.cxx: do not edit.
*/
#include "api.h"

#include <finepc.h>

/*@
  PCCMATCHSetCoarsening - Sets how rows are put together to aggregates

  Logically Collective

  Input Parameters:
+ pc         - the preconditioner context
- coarsening - `PC_CMATCH_MATCHING` (default) or `PC_CMATCH_MIS2`, see `PCCMATCHCoarsening`

  Options Database Key:
. -pc_cmatch_coarsening <coarsening> - how rows are put together to aggregates

  Level: intermediate

  Note:
  Matching combines two rows at a time, in as many sweeps as `PCCMATCHSetSweeps()` says; its aggregates are all of about the same
  size. With `PC_CMATCH_MIS2` an aggregate consists of a row of an independent set of distance 2 and its strong neighbours, and the
  aggregates are made in one step. The strength, the prolongator, the coarse operators and the cycle are the same for both. It is
  the same for the nodes of `PCCMATCHSetBlockSize()`, whose aggregates have some thirty nodes then.

.seealso: `PCCMATCH`, `PCCMATCHGetCoarsening()`, `PCCMATCHCoarsening`, `PCCMATCHSetSweeps()`
@*/
PetscErrorCode PCCMATCHSetCoarsening(PC pc, PCCMATCHCoarsening coarsening)
{
  return CallSetter(pc, "PCCMATCHSetCoarsening_C", coarsening);
}

/*@
  PCCMATCHGetCoarsening - Gets how rows are put together to aggregates

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. coarsening - see `PCCMATCHSetCoarsening()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetCoarsening()`
@*/
PetscErrorCode PCCMATCHGetCoarsening(PC pc, PCCMATCHCoarsening *coarsening)
{
  return CallGetter(pc, "PCCMATCHGetCoarsening_C", coarsening);
}

/*@
  PCCMATCHSetSweeps - Sets how many sweeps of pairwise matching make the aggregates of a level

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- sweeps - between 1 and 5, 3 (default); aggregates have about 2^sweeps rows, and more where single rows join

  Options Database Key:
. -pc_cmatch_sweeps <sweeps> - how many sweeps of pairwise matching make the aggregates of a level

  Level: intermediate

  Note:
  More sweeps make fewer levels and smaller coarse operators, and cost iterations. The sweeps end early if they find no pair, or if
  they leave no more rows than `PCCMATCHSetCoarseSize()` says. They are not used with `PC_CMATCH_MIS2`.

.seealso: `PCCMATCH`, `PCCMATCHGetSweeps()`, `PCCMATCHSetCoarsening()`
@*/
PetscErrorCode PCCMATCHSetSweeps(PC pc, PetscInt sweeps)
{
  return CallSetter(pc, "PCCMATCHSetSweeps_C", sweeps);
}

/*@
  PCCMATCHGetSweeps - Gets how many sweeps of pairwise matching make the aggregates of a level

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. sweeps - see `PCCMATCHSetSweeps()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetSweeps()`
@*/
PetscErrorCode PCCMATCHGetSweeps(PC pc, PetscInt *sweeps)
{
  return CallGetter(pc, "PCCMATCHGetSweeps_C", sweeps);
}

/*@
  PCCMATCHSetStrength - Sets the share of the heaviest edges of its rows that an edge must have to count

  Logically Collective

  Input Parameters:
+ pc       - the preconditioner context
- strength - at least 0 and below 1, 0.1 (default); with 0 every edge of positive weight counts; levels with less than 8000 rows
             take at most 0.005, so that the coarsening does not stall there

  Options Database Key:
. -pc_cmatch_strength <strength> - the share of the heaviest edges of its rows that an edge must have to count

  Level: intermediate

  Note:
  The weight of the edge between i and j is c_ij = -2 a_ij w_i w_j / (a_ii w_i^2 + a_jj w_j^2), so positive entries of a matrix do
  not make edges where w has one sign. An edge counts for the aggregates if it is strong enough at both ends, which keeps rows of
  strongly coupled regions from being aggregated across weak couplings.

.seealso: `PCCMATCH`, `PCCMATCHGetStrength()`, `PCCMATCHSetSweeps()`
@*/
PetscErrorCode PCCMATCHSetStrength(PC pc, PetscReal strength)
{
  return CallSetter(pc, "PCCMATCHSetStrength_C", strength);
}

/*@
  PCCMATCHGetStrength - Gets the share of the heaviest edges of its rows that an edge must have to count

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. strength - see `PCCMATCHSetStrength()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetStrength()`
@*/
PetscErrorCode PCCMATCHGetStrength(PC pc, PetscReal *strength)
{
  return CallGetter(pc, "PCCMATCHGetStrength_C", strength);
}

/*@
  PCCMATCHSetProlongatorRow - Sets how many entries a row of the smoothed prolongators has at most

  Logically Collective

  Input Parameters:
+ pc              - the preconditioner context
- prolongator_row - between 1 and 64, 4 (default); the row keeps its sum

  Options Database Key:
. -pc_cmatch_prolongator_row <prolongator_row> - how many entries a row of the smoothed prolongators has at most

  Level: intermediate

  Note:
  The largest entries of a row are kept, and are scaled so that the row sum does not change; the view counts the rows that were cut.
  Longer rows give denser coarse operators, and save few iterations.

.seealso: `PCCMATCH`, `PCCMATCHGetProlongatorRow()`
@*/
PetscErrorCode PCCMATCHSetProlongatorRow(PC pc, PetscInt prolongator_row)
{
  return CallSetter(pc, "PCCMATCHSetProlongatorRow_C", prolongator_row);
}

/*@
  PCCMATCHGetProlongatorRow - Gets how many entries a row of the smoothed prolongators has at most

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. prolongator_row - see `PCCMATCHSetProlongatorRow()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetProlongatorRow()`
@*/
PetscErrorCode PCCMATCHGetProlongatorRow(PC pc, PetscInt *prolongator_row)
{
  return CallGetter(pc, "PCCMATCHGetProlongatorRow_C", prolongator_row);
}

/*@
  PCCMATCHSetSmoother - Sets the smoother of each level

  Logically Collective

  Input Parameters:
+ pc       - the preconditioner context
- smoother - `PC_CMATCH_L1JACOBI` (default), `PC_CMATCH_CHEBYSHEV`, `PC_CMATCH_CHEBYSHEV4`, `PC_CMATCH_SFSAI` or `PC_CMATCH_AFSAI`,
             see `PCCMATCHSmoother`

  Options Database Key:
. -pc_cmatch_smoother <smoother> - the smoother of each level

  Level: intermediate

  Note:
  All smoothers are polynomials of M^{-1} A, whose degree `PCCMATCHSetDegree()` sets. M is the diagonal matrix of the l1 norms of
  the rows, so that the eigenvalues of M^{-1} A are at most 1 and nothing needs to be estimated. With `PC_CMATCH_SFSAI` and
  `PC_CMATCH_AFSAI`, the inverse of M is a factored sparse approximate inverse, which saves iterations and costs more in the set-up.
  On several ranks these inverses are those of each rank's own block of a level, scaled by the largest eigenvalue of the whole
  level. `PC_CMATCH_CHEBYSHEV` of degree 1 is l1-Jacobi with the relaxation 1.5.

.seealso: `PCCMATCH`, `PCCMATCHGetSmoother()`, `PCCMATCHSmoother`, `PCCMATCHSetDegree()`
@*/
PetscErrorCode PCCMATCHSetSmoother(PC pc, PCCMATCHSmoother smoother)
{
  return CallSetter(pc, "PCCMATCHSetSmoother_C", smoother);
}

/*@
  PCCMATCHGetSmoother - Gets the smoother of each level

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. smoother - see `PCCMATCHSetSmoother()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetSmoother()`
@*/
PetscErrorCode PCCMATCHGetSmoother(PC pc, PCCMATCHSmoother *smoother)
{
  return CallGetter(pc, "PCCMATCHGetSmoother_C", smoother);
}

/*@
  PCCMATCHSetDegree - Sets the degree of the smoother's polynomial, before and after the coarse correction

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- degree - between 1 and 16, 1 (default)

  Options Database Key:
. -pc_cmatch_degree <degree> - the degree of the smoother's polynomial, before and after the coarse correction

  Level: intermediate

  Note:
  The same polynomial is applied before and after the coarse correction. With `PC_CMATCH_L1JACOBI` the degree is the number of
  sweeps. A higher degree takes fewer iterations, each of which costs more.

.seealso: `PCCMATCH`, `PCCMATCHGetDegree()`, `PCCMATCHSetSmoother()`
@*/
PetscErrorCode PCCMATCHSetDegree(PC pc, PetscInt degree)
{
  return CallSetter(pc, "PCCMATCHSetDegree_C", degree);
}

/*@
  PCCMATCHGetDegree - Gets the degree of the smoother's polynomial, before and after the coarse correction

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. degree - see `PCCMATCHSetDegree()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetDegree()`
@*/
PetscErrorCode PCCMATCHGetDegree(PC pc, PetscInt *degree)
{
  return CallGetter(pc, "PCCMATCHGetDegree_C", degree);
}

/*@
  PCCMATCHSetRelaxation - Sets the relaxation of the smoother l1-Jacobi

  Logically Collective

  Input Parameters:
+ pc         - the preconditioner context
- relaxation - above 0 and below 2, 1.5 (default)

  Options Database Key:
. -pc_cmatch_relaxation <relaxation> - the relaxation of the smoother l1-Jacobi

  Level: intermediate

  Note:
  1 is the usual l1-Jacobi, and 1.5 is the quasi-optimal Chebyshev polynomial of degree 1. Other smoothers do not use this number.

.seealso: `PCCMATCH`, `PCCMATCHGetRelaxation()`, `PCCMATCHSetSmoother()`
@*/
PetscErrorCode PCCMATCHSetRelaxation(PC pc, PetscReal relaxation)
{
  return CallSetter(pc, "PCCMATCHSetRelaxation_C", relaxation);
}

/*@
  PCCMATCHGetRelaxation - Gets the relaxation of the smoother l1-Jacobi

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. relaxation - see `PCCMATCHSetRelaxation()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetRelaxation()`
@*/
PetscErrorCode PCCMATCHGetRelaxation(PC pc, PetscReal *relaxation)
{
  return CallGetter(pc, "PCCMATCHGetRelaxation_C", relaxation);
}

/*@
  PCCMATCHSetCoarse - Sets how the coarsest level is solved

  Logically Collective

  Input Parameters:
+ pc     - the preconditioner context
- coarse - `PC_CMATCH_DENSE` (default) or `PC_CMATCH_PCG`, see `PCCMATCHCoarse`

  Options Database Key:
. -pc_cmatch_coarse <coarse> - how the coarsest level is solved

  Level: intermediate

  Note:
  The inverse is a dense matrix of up to 2048 rows. If the last level has more rows, a polynomial is used instead of the inverse,
  and the view says so. With `PC_CMATCH_PCG` the preconditioner is not a fixed matrix: use `-ksp_type fcg`.

.seealso: `PCCMATCH`, `PCCMATCHGetCoarse()`, `PCCMATCHCoarse`, `PCCMATCHSetCoarseSize()`
@*/
PetscErrorCode PCCMATCHSetCoarse(PC pc, PCCMATCHCoarse coarse)
{
  return CallSetter(pc, "PCCMATCHSetCoarse_C", coarse);
}

/*@
  PCCMATCHGetCoarse - Gets how the coarsest level is solved

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. coarse - see `PCCMATCHSetCoarse()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetCoarse()`
@*/
PetscErrorCode PCCMATCHGetCoarse(PC pc, PCCMATCHCoarse *coarse)
{
  return CallGetter(pc, "PCCMATCHGetCoarse_C", coarse);
}

/*@
  PCCMATCHSetCoarseSize - Sets at how many rows the coarsening ends

  Logically Collective

  Input Parameters:
+ pc          - the preconditioner context
- coarse_size - between 1 and 2048, 300 (default); a level of up to four times as many rows is also the last one if the coarsening
                has become slow

  Options Database Key:
. -pc_cmatch_coarse_size <coarse_size> - at how many rows the coarsening ends

  Level: intermediate

  Note:
  A matrix with no more than this number of rows is inverted, and not coarsened at all. A level of up to four times as many rows is
  also inverted if the coarsening has become slow, that is, if the level has more than a fraction 2 / 2^sweeps of the rows of the
  next finer level. The coarsening also ends if all rows are dominated by their diagonal entries, or if it stalls, that is, if the
  next level would have 0.9 or more of the rows. The view says why the coarsening ended.

.seealso: `PCCMATCH`, `PCCMATCHGetCoarseSize()`, `PCCMATCHSetSweeps()`
@*/
PetscErrorCode PCCMATCHSetCoarseSize(PC pc, PetscInt coarse_size)
{
  return CallSetter(pc, "PCCMATCHSetCoarseSize_C", coarse_size);
}

/*@
  PCCMATCHGetCoarseSize - Gets at how many rows the coarsening ends

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. coarse_size - see `PCCMATCHSetCoarseSize()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetCoarseSize()`
@*/
PetscErrorCode PCCMATCHGetCoarseSize(PC pc, PetscInt *coarse_size)
{
  return CallGetter(pc, "PCCMATCHGetCoarseSize_C", coarse_size);
}

/*@
  PCCMATCHSetPrecision - Sets the precision in which the hierarchy is stored and the cycle computed

  Logically Collective

  Input Parameters:
+ pc        - the preconditioner context
- precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`, see `FinePCPrecision`

  Options Database Key:
. -pc_cmatch_precision <precision> - the precision in which the hierarchy is stored and the cycle computed

  Level: intermediate

  Note:
  In single precision a cycle moves about half as many bytes. Operators are stored in difference form with their row sums, which
  single precision does not harm, and Galerkin products are summed in double precision, so the number of iterations hardly differs.
  The entries of the matrix are scaled by a power of 2, so that only their range matters, not their size. If single precision cannot
  hold an entry after this scaling, the set-up fails, and the view names its row.

.seealso: `PCCMATCH`, `PCCMATCHGetPrecision()`, `FinePCPrecision`
@*/
PetscErrorCode PCCMATCHSetPrecision(PC pc, FinePCPrecision precision)
{
  return CallSetter(pc, "PCCMATCHSetPrecision_C", precision);
}

/*@
  PCCMATCHGetPrecision - Gets the precision in which the hierarchy is stored and the cycle computed

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. precision - see `PCCMATCHSetPrecision()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetPrecision()`
@*/
PetscErrorCode PCCMATCHGetPrecision(PC pc, FinePCPrecision *precision)
{
  return CallGetter(pc, "PCCMATCHGetPrecision_C", precision);
}

/*@
  PCCMATCHSetBlockSize - Sets how many unknowns a node has

  Logically Collective

  Input Parameters:
+ pc         - the preconditioner context
- block_size - between 0 and 6, 0 (default); 0 for the block size of the matrix, 1 for rows

  Options Database Key:
. -pc_cmatch_block_size <block_size> - how many unknowns a node has

  Level: intermediate

  Note:
  With two to six unknowns at each point the hierarchy is one of nodes: it has blocks instead of entries and, instead of the near
  null vector, modes such as the rigid body modes of elasticity. The modes are the vectors of `MatSetNearNullSpace()`, if there are
  two or more; else the rigid body modes of the coordinates of `PCSetCoordinates()`; else the vectors of `MatSetNullSpace()`; else
  the constants for each unknown. The block size must divide the number of rows of a rank that has a hierarchy of its own. If it
  does not divide those of the ranks of a common hierarchy, this is a hierarchy of rows.

.seealso: `PCCMATCH`, `PCCMATCHGetBlockSize()`, `MatSetBlockSize()`, `MatNullSpaceCreateRigidBody()`, `PCSetCoordinates()`
@*/
PetscErrorCode PCCMATCHSetBlockSize(PC pc, PetscInt block_size)
{
  return CallSetter(pc, "PCCMATCHSetBlockSize_C", block_size);
}

/*@
  PCCMATCHGetBlockSize - Gets how many unknowns a node has

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. block_size - see `PCCMATCHSetBlockSize()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetBlockSize()`
@*/
PetscErrorCode PCCMATCHGetBlockSize(PC pc, PetscInt *block_size)
{
  return CallGetter(pc, "PCCMATCHGetBlockSize_C", block_size);
}

/*@
  PCCMATCHSetReach - Sets how far a hierarchy reaches on several ranks

  Logically Collective

  Input Parameters:
+ pc    - the preconditioner context
- reach - `PC_CMATCH_GLOBAL` (default) or `PC_CMATCH_LOCAL`, see `PCCMATCHReach`

  Options Database Key:
. -pc_cmatch_reach <reach> - how far a hierarchy reaches on several ranks

  Level: intermediate

  Note:
  With `PC_CMATCH_GLOBAL` the number of iterations hardly depends on the number of ranks. With `PC_CMATCH_LOCAL`, which needs no
  messages, it grows with the number of ranks.

.seealso: `PCCMATCH`, `PCCMATCHGetReach()`, `PCCMATCHReach`
@*/
PetscErrorCode PCCMATCHSetReach(PC pc, PCCMATCHReach reach)
{
  return CallSetter(pc, "PCCMATCHSetReach_C", reach);
}

/*@
  PCCMATCHGetReach - Gets how far a hierarchy reaches on several ranks

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. reach - see `PCCMATCHSetReach()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetReach()`
@*/
PetscErrorCode PCCMATCHGetReach(PC pc, PCCMATCHReach *reach)
{
  return CallGetter(pc, "PCCMATCHGetReach_C", reach);
}

/*@
  PCCMATCHSetGatherRows - Sets at how many rows of 80 nonzeros in all a level goes to one rank

  Logically Collective

  Input Parameters:
+ pc          - the preconditioner context
- gather_rows - between 0 and 1000000000, 100000 (default)

  Options Database Key:
. -pc_cmatch_gather_rows <gather_rows> - at how many rows of 80 nonzeros in all a level goes to one rank

  Level: intermediate

  Notes:
  The time for a small level is that of its messages. Once a level is on one rank, so are all coarser levels. The finest level stays
  where it is. Levels of `PCCMATCHSetCoarseSize()` rows or fewer are always on one rank.

  The number refers to rows with 80 nonzeros, as on coarse levels of three-dimensional problems. A level with shorter rows, as in
  two dimensions, goes to one rank at a larger number of rows, since the nonzeros determine the time. The nonzeros are estimated
  from those of the unsmoothed operator, before the products are computed. With the coarsening `mis2` the rows are counted, whatever
  their number of nonzeros.

.seealso: `PCCMATCH`, `PCCMATCHGetGatherRows()`
@*/
PetscErrorCode PCCMATCHSetGatherRows(PC pc, PetscInt gather_rows)
{
  return CallSetter(pc, "PCCMATCHSetGatherRows_C", gather_rows);
}

/*@
  PCCMATCHGetGatherRows - Gets at how many rows of 80 nonzeros in all a level goes to one rank

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. gather_rows - see `PCCMATCHSetGatherRows()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetGatherRows()`
@*/
PetscErrorCode PCCMATCHGetGatherRows(PC pc, PetscInt *gather_rows)
{
  return CallGetter(pc, "PCCMATCHGetGatherRows_C", gather_rows);
}

/*@
  PCCMATCHSetGatherRanks - Sets at how many rows of 80 nonzeros a rank a level goes to fewer ranks

  Logically Collective

  Input Parameters:
+ pc           - the preconditioner context
- gather_ranks - between 0 and 1000000000, 10000 (default)

  Options Database Key:
. -pc_cmatch_gather_ranks <gather_ranks> - at how many rows of 80 nonzeros a rank a level goes to fewer ranks

  Level: intermediate

  Note:
  Rows are counted as by `PCCMATCHSetGatherRows()`. The first of each eight successive ranks then gets the rows of all eight. The
  same happens if a level has more rows than a third of the sweeps could leave (with three sweeps, half of the rows of the next
  finer level), since borders between ranks keep rows from being aggregated.

.seealso: `PCCMATCH`, `PCCMATCHGetGatherRanks()`
@*/
PetscErrorCode PCCMATCHSetGatherRanks(PC pc, PetscInt gather_ranks)
{
  return CallSetter(pc, "PCCMATCHSetGatherRanks_C", gather_ranks);
}

/*@
  PCCMATCHGetGatherRanks - Gets at how many rows of 80 nonzeros a rank a level goes to fewer ranks

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. gather_ranks - see `PCCMATCHSetGatherRanks()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetGatherRanks()`
@*/
PetscErrorCode PCCMATCHGetGatherRanks(PC pc, PetscInt *gather_ranks)
{
  return CallGetter(pc, "PCCMATCHGetGatherRanks_C", gather_ranks);
}

/*@
  PCCMATCHSetCommunication - Sets how the GPUs of several ranks exchange values

  Logically Collective

  Input Parameters:
+ pc            - the preconditioner context
- communication - `PC_CMATCH_COMMUNICATION_AUTO` (default), `PC_CMATCH_COMMUNICATION_MPI` or `PC_CMATCH_COMMUNICATION_NCCL`, see
                  `PCCMATCHCommunication`

  Options Database Key:
. -pc_cmatch_communication <communication> - how the GPUs of several ranks exchange values

  Level: intermediate

  Notes:
  On several ranks, an application of a hierarchy of all ranks has four exchanges on each level, and more with other smoothers. With
  NCCL, NVIDIA's library for communication between GPUs, the exchanges are part of the CUDA graph of the cycle, and the host is not
  involved; `KSPCGFUSED` then includes the cycle in the graph of its iterations. In the set-up, too, rows and lists go from GPU to
  GPU by NCCL, while MPI carries counts. With MPI alone the host takes part in every exchange. Both give the same values to the last
  bit. On one machine whose GPUs NVLink connects, the kernels of a cycle write to the other GPUs directly.

  NCCL needs a finepc that was built with NCCL's header, the library libnccl.so.2, which is opened when it is first needed, and a
  separate GPU for each rank. If one of these is missing, `PC_CMATCH_COMMUNICATION_AUTO` uses MPI; if NCCL was requested, the set-up
  ends with an error. Hierarchies on the host communicate by MPI. The view says what is used, and why.

.seealso: `PCCMATCH`, `PCCMATCHGetCommunication()`, `PCCMATCHCommunication`, `KSPCGFusedSetCommunication()`
@*/
PetscErrorCode PCCMATCHSetCommunication(PC pc, PCCMATCHCommunication communication)
{
  return CallSetter(pc, "PCCMATCHSetCommunication_C", communication);
}

/*@
  PCCMATCHGetCommunication - Gets how the GPUs of several ranks exchange values

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. communication - see `PCCMATCHSetCommunication()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetCommunication()`
@*/
PetscErrorCode PCCMATCHGetCommunication(PC pc, PCCMATCHCommunication *communication)
{
  return CallGetter(pc, "PCCMATCHGetCommunication_C", communication);
}

/*@
  PCCMATCHSetReusePattern - Sets whether aggregates and patterns are kept when only values have changed

  Logically Collective

  Input Parameters:
+ pc            - the preconditioner context
- reuse_pattern - `PETSC_TRUE` (default) to compute new values on the old aggregates and patterns as long as they fit, `PETSC_FALSE`
                  to coarsen again in each set-up

  Options Database Key:
. -pc_cmatch_reuse_pattern <reuse_pattern> - whether aggregates and patterns are kept when only values have changed

  Level: intermediate

  Note:
  Aggregates and patterns are kept if the nonzero pattern of the matrix is the same as at the last set-up and the near null space is
  of the same kind. On a GPU nothing is allocated then, unless the smoother is afsai or the work needs more memory than is reserved.
  For this, memory of the set-up is kept; the view gives its size in bytes. The aggregates are those of the first values, and remain
  good as long as strong couplings stay strong. A set-up that keeps them therefore counts on each level, with the strength of
  `PCCMATCHSetStrength()`: the rows that are coupled strongly, but to no row of their own aggregate; the pieces into which
  aggregates fall apart if only strong couplings hold them together; and the rows of the prolongator that lose entries, since their
  pattern does not contain them. If a count exceeds that at the time when the aggregates were made by more than a tenth of the rows
  of a level, a tenth of its aggregates, or 0.3 of its rows of the prolongator, respectively, and by more than 16, the set-up
  coarsens again; on several ranks, those of one hierarchy decide together. In a hierarchy of nodes only the finest level is
  counted, without the prolongator. The view shows these counts. A set-up with `PETSC_FALSE` keeps no memory, so after a change to
  `PETSC_TRUE` the next set-up coarsens once more.

.seealso: `PCCMATCH`, `PCCMATCHGetReusePattern()`
@*/
PetscErrorCode PCCMATCHSetReusePattern(PC pc, PetscBool reuse_pattern)
{
  return CallSetter(pc, "PCCMATCHSetReusePattern_C", reuse_pattern);
}

/*@
  PCCMATCHGetReusePattern - Gets whether aggregates and patterns are kept when only values have changed

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. reuse_pattern - see `PCCMATCHSetReusePattern()`

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetReusePattern()`
@*/
PetscErrorCode PCCMATCHGetReusePattern(PC pc, PetscBool *reuse_pattern)
{
  return CallGetter(pc, "PCCMATCHGetReusePattern_C", reuse_pattern);
}
