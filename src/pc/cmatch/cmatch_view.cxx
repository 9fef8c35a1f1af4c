/* What PCView() shows of PCCMATCH. */
#include <petsc/private/pcimpl.h>

#include "cmatch_face.h"

/* Indices of what is added up over the ranks. */
enum { ROWS, STALLED, REUSED, COUNTS };
enum { HIERARCHY_BYTES, KEPT_BYTES, BYTES };

/* Shows what the options ask for. */
static PetscErrorCode ViewOptions(PC pc, PetscViewer viewer)
{
  const PC_CMATCH    *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHParams *params = &cmatch->params;
  PetscInt            bs;

  PetscFunctionBegin;
  if (params->coarsening == PC_CMATCH_MATCHING)
    PetscCall(PetscViewerASCIIPrintf(viewer, "coarsening by matching in %" PetscInt_FMT " sweeps, strength %g\n", params->sweeps,
                                     (double)params->strength));
  else
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "coarsening by independent sets of distance 2, strength %g\n", (double)params->strength));
  if (params->smoothed_prolongator)
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "prolongator smoothed, at most %" PetscInt_FMT " entries per row\n", params->prolongator_row));
  else if (params->cycle == PC_CMATCH_K) PetscCall(PetscViewerASCIIPrintf(viewer, "prolongator not smoothed\n"));
  else
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "prolongator not smoothed, coarse operators divided by %g\n", (double)params->overcorrection));
  PetscCall(PetscViewerASCIIPrintf(viewer, "cycle %s, smoother %s of degree %" PetscInt_FMT, PCCMATCHCycles[params->cycle],
                                   PCCMATCHSmoothers[params->smoother], params->degree));
  PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_FALSE));
  if (params->smoother == PC_CMATCH_L1JACOBI)
    PetscCall(PetscViewerASCIIPrintf(viewer, ", relaxation %g", (double)params->relaxation));
  PetscCall(PetscViewerASCIIPrintf(viewer, "\n"));
  PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_TRUE));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "coarsening ends at %" PetscInt_FMT " rows or %" PetscInt_FMT " levels, coarsest level %s\n",
                                   params->coarse_size, params->max_levels, PCCMATCHCoarses[params->coarse]));
  PetscCall(PetscViewerASCIIPrintf(viewer, "hierarchy and cycle in %s precision, aggregates and patterns %s\n",
                                   FinePCPrecisions[params->precision],
                                   cmatch->reused
                                     ? "kept from the last set-up"
                                     : (cmatch->reuse_pattern ? "kept while the nonzeros of A stay" : "made at each set-up")));
  if (params->cycle == PC_CMATCH_K || params->coarse == PC_CMATCH_PCG)
    PetscCall(PetscViewerASCIIPrintf(viewer, "no fixed matrix with %s: use -ksp_type fcg\n",
                                     params->cycle == PC_CMATCH_K ? "the cycle k" : "pcg on the coarsest level"));
  if (!pc->pmat) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetBlockSize(pc->pmat, &bs));
  if (bs > 1)
    PetscCall(
      PetscViewerASCIIPrintf(viewer,
                             "the matrix has block size %" PetscInt_FMT
                             ", but cmatch works on single rows: for systems of equations compare afsai, sfsai, bisai and gamg\n",
                             bs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows a line for each level, of the matrix and of its transfer to the next level. */
static PetscErrorCode ViewLevels(const CMATCHHierarchy *H, PetscViewer viewer)
{
  PetscReal rows = 0, entries = 0, finest_entries = 1;

  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "level      rows   nonzeros  a row  of above | aggregate  largest  single   joined     left | "
                                   "cut rows    plain     wide\n"));
  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHLevel *level  = &H->level[l];
    const PetscReal    stored = (PetscReal)level->nnz + (PetscReal)level->n; /* with the diagonal */
    const LocalInt     above  = l ? H->level[l - 1].n : 0;

    rows += (PetscReal)level->n;
    entries += stored;
    if (!l && level->n) finest_entries = stored;
    PetscCall(PetscViewerASCIIPrintf(viewer, "%5" LocalInt_FMT " %9" LocalInt_FMT " %10.0f %6.1f  ", l, level->n, (double)stored,
                                     level->n ? (double)stored / level->n : 0.));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_FALSE));
    if (above) PetscCall(PetscViewerASCIIPrintf(viewer, "%8.4f |", (double)level->n / above));
    else PetscCall(PetscViewerASCIIPrintf(viewer, "%8s |", ""));
    if (l + 1 < H->levels)
      PetscCall(PetscViewerASCIIPrintf(viewer,
                                       " %9.2f %8" LocalInt_FMT " %7" LocalInt_FMT " %8" LocalInt_FMT " %8" LocalInt_FMT
                                       " | %8" LocalInt_FMT " %8" LocalInt_FMT " %8" LocalInt_FMT,
                                       level->coarse ? (double)(level->n - level->left) / level->coarse : 0., level->largest,
                                       level->singles, level->joined, level->left, level->cut, level->plain, level->wide));
    PetscCall(PetscViewerASCIIPrintf(viewer, "\n"));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_TRUE));
  }
  if (H->levels > 1)
    PetscCall(
      PetscViewerASCIIPrintf(viewer,
                             "aggregate: rows of the mean and the largest one, aggregates of a single row, vertices that joined "
                             "a pair, rows left to the smoother; rows of the prolongator that were cut to the most entries, or "
                             "not smoothed (plain); rows too wide for the fastest products\n"));
  PetscCall(PetscViewerASCIIPrintf(viewer, "levels %" LocalInt_FMT ", operator complexity %.3f, grid complexity %.3f\n", H->levels,
                                   (double)(entries / finest_entries), (double)(rows / PetscMax(H->level[0].n, 1))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows the factors of the smoothers, if there are any. */
static PetscErrorCode ViewFactors(const CMATCHHierarchy *H, PetscViewer viewer)
{
  PetscReal factor = 0, smoothed = 0; /* entries */
  PetscInt  cut = 0, fallen = 0;

  PetscFunctionBegin;
  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHLevel *level = &H->level[l];

    if (!level->factor.d) continue;
    factor += (PetscReal)level->factor.W.nnz + (PetscReal)level->n;
    smoothed += (PetscReal)level->nnz + (PetscReal)level->n;
    cut += level->factor.capped_rows;
    fallen += level->factor.diagonal_rows;
  }
  if (smoothed > 0)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "factors of the smoothers: %.0f nonzeros, %g of their operators', rows cut %" PetscInt_FMT
                                     ", left with the diagonal entry alone %" PetscInt_FMT "\n",
                                     (double)factor, (double)(factor / smoothed), cut, fallen));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows where the coarsening has ended and why, and what solves there. */
static PetscErrorCode ViewEnd(const CMATCHHierarchy *H, CMATCHEnd end, PetscViewer viewer)
{
  const PetscInt last = H->levels - 1, n = H->level[last].n;
  char           solver[128];

  PetscFunctionBegin;
  switch (end) {
  case CMATCH_END_SIZE:
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "coarsening ended on level %" PetscInt_FMT ", whose %" PetscInt_FMT " rows are few enough\n",
                                     last, n));
    break;
  case CMATCH_END_STALLED:
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "coarsening stalled on level %" PetscInt_FMT " with %" PetscInt_FMT
                                     " rows, of which the next level would have had %g or more\n",
                                     last, n, (double)kCMATCHStall));
    break;
  case CMATCH_END_DOMINATED:
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "coarsening ended on level %" PetscInt_FMT ", all of whose %" PetscInt_FMT
                                     " rows are dominated by their diagonal entries\n",
                                     last, n));
    break;
  case CMATCH_END_SLOW:
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "coarsening ended on level %" PetscInt_FMT ", whose %" PetscInt_FMT
                                     " rows are more than %g of those above, and few enough to be inverted\n",
                                     last, n, (double)kCMATCHSlow / (1 << H->params.sweeps)));
    break;
  case CMATCH_END_LEVELS:
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "coarsening ended on level %" PetscInt_FMT ", the last one allowed, with %" PetscInt_FMT
                                     " rows\n",
                                     last, n));
    break;
  }
  if (end == CMATCH_END_DOMINATED) PetscCall(PetscSNPrintf(solver, sizeof(solver), "the smoother, twice"));
  else if (H->inverted) PetscCall(PetscSNPrintf(solver, sizeof(solver), "the dense inverse"));
  else if (H->params.coarse == PC_CMATCH_PCG)
    PetscCall(PetscSNPrintf(solver, sizeof(solver), "%" LocalInt_FMT " iterations of the conjugate gradient method",
                            kCMATCHCoarseIterations));
  else
    PetscCall(PetscSNPrintf(solver, sizeof(solver),
                            "a polynomial of degree %" LocalInt_FMT ", since only %" PetscInt_FMT " rows can be inverted",
                            kCMATCHStalledDegree, kCMATCHLargestDense));
  PetscCall(PetscViewerASCIIPrintf(viewer, "solver of the last level: %s%s\n", solver,
                                   H->params.singular ? ", in the complement of the null space" : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows what the last set-up has made: levels of this rank's block, which is the first one where it is shown, and sums of all. */
static PetscErrorCode ViewBuilt(PC pc, PetscViewer viewer)
{
  static const char *const sources[] = {"the constants", "the first vector of the near null space",
                                        "the first vector of the null space"};
  const PC_CMATCH         *cmatch    = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy   *H         = cmatch->hierarchy;
  const MPI_Comm           comm      = PetscObjectComm((PetscObject)pc);
  PetscMPIInt              size;
  PetscInt64               count[COUNTS] = {H->level[0].n, cmatch->stats.end == CMATCH_END_STALLED, cmatch->reused}, sum[COUNTS];
  PetscLogDouble           bytes[BYTES]  = {(PetscLogDouble)H->bytes, (PetscLogDouble)H->kept_bytes}, all_bytes[BYTES];
  PetscLogDouble           work          = (PetscLogDouble)cmatch->stats.work_bytes, most_work;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPIU_Allreduce(count, sum, COUNTS, MPIU_INT64, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(bytes, all_bytes, BYTES, MPI_DOUBLE, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(&work, &most_work, 1, MPI_DOUBLE, MPI_MAX, comm));
  PetscCall(PetscViewerASCIIPrintf(viewer, "near null vector: %s\n", sources[(int)cmatch->near_null]));
  if (size > 1) PetscCall(PetscViewerASCIIPrintf(viewer, "levels are those of the first rank's block\n"));
  PetscCall(ViewLevels(H, viewer));
  PetscCall(ViewFactors(H, viewer));
  PetscCall(ViewEnd(H, cmatch->stats.end, viewer));
  if (size > 1 && sum[STALLED])
    PetscCall(PetscViewerASCIIPrintf(viewer, "coarsening stalled on %" PetscInt64_FMT " ranks\n", sum[STALLED]));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "backend %s, %" PetscInt64_FMT
                                   " rows, %g bytes, %g per unknown; %g bytes kept for the next set-up\n",
                                   PetscMemTypeDevice(H->where) ? "CUDA" : "host", sum[ROWS], all_bytes[HIERARCHY_BYTES],
                                   sum[ROWS] ? all_bytes[HIERARCHY_BYTES] / (double)sum[ROWS] : 0., all_bytes[KEPT_BYTES]));
  PetscCall(PCViewSymmetry_Local(pc, viewer));
  PetscCall(PetscViewerASCIIPrintf(viewer, "set-up memory beyond A and the hierarchy: %g bytes\n", most_work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCView_CMATCH(PC pc, PetscViewer viewer)
{
  PetscBool is_ascii;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_Local(pc, viewer, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ViewOptions(pc, viewer));
  if (pc->setupcalled && pc->failedreason) PetscCall(PCViewFailure_Local(pc, viewer));
  else if (pc->setupcalled) PetscCall(ViewBuilt(pc, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}
