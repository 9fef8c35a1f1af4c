/* What PCView() shows of PCCMATCH. */
#include <petsc/private/pcimpl.h>

#include "cmatch_face.h"

/* Indices of what is added up over the ranks. */
enum { ROWS, STALLED, REUSED, ANEW, COUNTS };
enum { HIERARCHY_BYTES, KEPT_BYTES, BYTES };

/* A level of one rank, or of all of them. */
struct LevelSums {
  PetscInt64     rows, entries, coarse, left, singles, joined, cut, plain, wide; /* sums; entries with the diagonal */
  PetscInt64     ranks, ghosts;                                                  /* sums: ranks with rows */
  PetscInt64     largest, most_rows, fewest_rows, most_ghosts;                   /* of all ranks with rows */
  CMATCHTransfer transfer;
};
static constexpr int kSums = 11, kExtremes = 5; /* how they are reduced */

/* Shows what the options ask for. */
static PetscErrorCode ViewOptions(PC pc, PetscViewer viewer)
{
  const PC_CMATCH    *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHParams *params = &cmatch->params;

  PetscFunctionBegin;
  if (params->coarsening == PC_CMATCH_MATCHING)
    PetscCall(PetscViewerASCIIPrintf(viewer, "coarsening by matching in %" PetscInt_FMT " sweeps, strength %g\n", params->sweeps,
                                     (double)params->strength));
  else
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "coarsening by independent sets of distance 2, strength %g\n", (double)params->strength));
  PetscCall(
    PetscViewerASCIIPrintf(viewer, "prolongator smoothed, at most %" PetscInt_FMT " entries per row\n", params->prolongator_row));
  PetscCall(PetscViewerASCIIPrintf(viewer, "cycle v, smoother %s of degree %" PetscInt_FMT, PCCMATCHSmoothers[params->smoother],
                                   params->degree));
  PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_FALSE));
  if (params->smoother == PC_CMATCH_L1JACOBI)
    PetscCall(PetscViewerASCIIPrintf(viewer, ", relaxation %g", (double)params->relaxation));
  PetscCall(PetscViewerASCIIPrintf(viewer, "\n"));
  PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_TRUE));
  PetscCall(PetscViewerASCIIPrintf(viewer, "coarsening ends at %" PetscInt_FMT " rows, coarsest level %s\n", params->coarse_size,
                                   PCCMATCHCoarses[params->coarse]));
  PetscCall(PetscViewerASCIIPrintf(viewer, "hierarchy and cycle in %s precision, aggregates and patterns %s\n",
                                   FinePCPrecisions[params->precision],
                                   cmatch->reused
                                     ? "kept from the last set-up"
                                     : (cmatch->reuse_pattern ? "kept while the nonzeros of A stay" : "made at each set-up")));
  if (params->reach == PC_CMATCH_LOCAL)
    PetscCall(PetscViewerASCIIPrintf(viewer, "on several ranks each has a hierarchy of its block\n"));
  else
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "on several ranks one hierarchy of all, with levels of at most %" PetscInt_FMT
                                     " rows on one rank, and with fewer than %" PetscInt_FMT " a rank on 1/%" PetscInt_FMT
                                     " of the ranks; a row counts as %g nonzeros\n",
                                     params->gather_rows, params->gather_ranks, params->gather_factor, (double)kCMATCHGatherWidth));
  PetscCall(
    PetscViewerASCIIPrintf(viewer, "communication between ranks on GPUs: %s\n", PCCMATCHCommunications[cmatch->communication]));
  if (params->coarse == PC_CMATCH_PCG)
    PetscCall(PetscViewerASCIIPrintf(viewer, "no fixed matrix with pcg on the coarsest level: use -ksp_type fcg\n"));
  if (params->precision == FINEPC_SINGLE)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "linear to 7 digits: with gmres and pgmres, whose norm may be far from that of the residual "
                                     "then, use fgmres, gmresfused or -pc_cmatch_precision double\n"));
  if (cmatch->block_size) PetscCall(PetscViewerASCIIPrintf(viewer, "block size %" PetscInt_FMT "\n", cmatch->block_size));
  if (pc->setupcalled && cmatch->why_rows)
    PetscCall(
      PetscViewerASCIIPrintf(viewer,
                             "the matrix has blocks, but the hierarchy is one of single rows, since %s: harmless for elastic "
                             "solids; for other systems of equations compare afsai, sfsai, bisai and gamg\n",
                             cmatch->why_rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums of all levels, over this rank or, of a hierarchy of all ranks, over all of them. */
static PetscErrorCode SumLevels(PC pc, std::vector<LevelSums> *levels)
{
  const PC_CMATCH       *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H      = cmatch->hierarchy;
  const MPI_Comm         comm   = PetscObjectComm((PetscObject)pc);

  PetscFunctionBegin;
  levels->assign(cmatch->ranks ? cmatch->all_levels : H->levels, LevelSums{});
  std::vector<PetscInt64> sums, mosts; /* of all levels, since each reduction makes ranks wait */
  for (size_t l = 0; l < levels->size(); l++) {
    const CMATCHLevel level  = l < (size_t)H->levels ? H->level[l] : CMATCHLevel{};
    const bool        next   = l < (size_t)H->several || l + 1 < (size_t)H->levels;
    const PetscInt64  least  = PETSC_INT64_MAX;
    const PetscInt64  ghosts = (PetscInt64)level.ghosts * (H->nodes && level.ghosts ? H->nodes->level[l].k : 1); /* rows */
    sums.insert(sums.end(), {level.n, (PetscInt64)level.nnz + level.n, next ? level.coarse : 0, level.left, level.singles,
                             level.joined, level.cut, level.plain, level.wide, level.n > 0, ghosts});
    mosts.insert(mosts.end(),
                 {level.largest, level.n, level.n ? -(PetscInt64)level.n : -least, ghosts, (PetscInt64)level.transfer});
  }
  if (cmatch->ranks) {
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums.data(), (PetscMPIInt)sums.size(), MPIU_INT64, MPI_SUM, comm));
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, mosts.data(), (PetscMPIInt)mosts.size(), MPIU_INT64, MPI_MAX, comm));
  }
  for (size_t l = 0; l < levels->size(); l++) {
    const PetscInt64 *const sum = &sums[l * kSums], *const most = &mosts[l * kExtremes];
    (*levels)[l] = {sum[0], sum[1], sum[2],  sum[3],  sum[4],  sum[5],   sum[6],  sum[7],
                    sum[8], sum[9], sum[10], most[0], most[1], -most[2], most[3], (CMATCHTransfer)most[4]};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows a line for each level, of the matrix and of its transfer to the next level. */
static PetscErrorCode ViewLevels(const std::vector<LevelSums> &levels, PetscViewer viewer)
{
  PetscReal rows = 0, entries = 0;

  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "level      rows   nonzeros  a row  of above | aggregate  largest  single   joined     left | "
                                   "cut rows    plain     wide\n"));
  for (size_t l = 0; l < levels.size(); l++) {
    const LevelSums &level = levels[l];

    rows += (PetscReal)level.rows;
    entries += (PetscReal)level.entries;
    PetscCall(PetscViewerASCIIPrintf(viewer, "%5d %9" PetscInt64_FMT " %10" PetscInt64_FMT " %6.1f  ", (int)l, level.rows,
                                     level.entries, level.rows ? (double)level.entries / (double)level.rows : 0.));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_FALSE));
    if (l && levels[l - 1].rows)
      PetscCall(PetscViewerASCIIPrintf(viewer, "%8.4f |", (double)level.rows / (double)levels[l - 1].rows));
    else PetscCall(PetscViewerASCIIPrintf(viewer, "%8s |", ""));
    if (l + 1 < levels.size())
      PetscCall(PetscViewerASCIIPrintf(viewer,
                                       " %9.2f %8" PetscInt64_FMT " %7" PetscInt64_FMT " %8" PetscInt64_FMT " %8" PetscInt64_FMT
                                       " | %8" PetscInt64_FMT " %8" PetscInt64_FMT " %8" PetscInt64_FMT,
                                       level.coarse ? (double)(level.rows - level.left) / (double)level.coarse : 0., level.largest,
                                       level.singles, level.joined, level.left, level.cut, level.plain, level.wide));
    PetscCall(PetscViewerASCIIPrintf(viewer, "\n"));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_TRUE));
  }
  if (levels.size() > 1)
    PetscCall(
      PetscViewerASCIIPrintf(viewer,
                             "aggregate: rows of the mean and the largest one, aggregates of a single row, vertices that joined "
                             "a pair, rows left to the smoother; rows of the prolongator that were cut to the most entries, or "
                             "not smoothed (plain); rows too wide for the fastest products\n"));
  PetscCall(PetscViewerASCIIPrintf(viewer, "levels %d, operator complexity %.3f, grid complexity %.3f\n", (int)levels.size(),
                                   (double)entries / (levels[0].rows ? (double)levels[0].entries : 1.),
                                   (double)rows / (double)PetscMax(levels[0].rows, 1)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows which ranks have which rows, and where their borders keep rows from each other. */
static PetscErrorCode ViewRanks(PC pc, const std::vector<LevelSums> &levels, PetscViewer viewer)
{
  const PC_CMATCH    *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHParams *params = &cmatch->params;

  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer, "level    ranks  rows a rank, least      most  ghosts a rank, most\n"));
  for (size_t l = 0; l < levels.size(); l++) {
    const LevelSums &level = levels[l];

    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "%5d %8" PetscInt64_FMT " %19" PetscInt64_FMT " %9" PetscInt64_FMT " %20" PetscInt64_FMT
                                     "%s\n",
                                     (int)l, level.ranks, level.ranks ? level.fewest_rows : 0, level.most_rows, level.most_ghosts,
                                     level.transfer == CMATCH_PASSED ? ", passed to fewer ranks as it is, and not smoothed" : ""));
  }
  for (size_t l = 0; l + 1 < levels.size(); l++) {
    const PetscReal share = levels[l].rows ? (PetscReal)levels[l + 1].rows / (PetscReal)levels[l].rows : 0;
    PetscInt64      bound;

    if (cmatch->hierarchy->nodes || levels[l].ranks < 2 || share <= CMATCHGatherShrink(*params) ||
        levels[l].rows <= params->coarse_size || (PetscInt)l + 1 >= params->max_levels)
      continue;
    PetscCall(CMATCHCountForeignRows(cmatch->hierarchy, (LocalInt)l, &bound));
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &bound, 1, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
    if (2 * bound < levels[l + 1].rows) continue; /* another partition would not help much */
    PetscCall(
      PetscViewerASCIIPrintf(viewer,
                             "level %d has %g of the rows of level %d: %" PetscInt64_FMT
                             " rows are coupled with rows of other ranks at least as strongly as with any of their own, and pairs "
                             "are of one rank. Repartition the matrix, as by MatPartitioning\n",
                             (int)l + 1, (double)share, (int)l, bound));
    break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows how ranks on GPUs exchange values in an application. */
static PetscErrorCode ViewCommunication_CMATCH(const CMATCHRanks *ranks, PetscViewer viewer)
{
  char version[32];

  PetscFunctionBegin;
  if (!ranks->on_devices) PetscFunctionReturn(PETSC_SUCCESS);
  if (ranks->nccl) {
    PetscCall(NCCLVersion_CUDA(ranks->nccl, version, sizeof(version)));
    PetscCall(PetscViewerASCIIPrintf(viewer, "an application communicates by nccl, version %s, in a graph of the whole cycle%s\n",
                                     version, ranks->direct ? "; the kernels write to the other GPUs" : ""));
  } else PetscCall(PetscViewerASCIIPrintf(viewer, "an application communicates by mpi: %s\n", ranks->why_mpi));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows the factors of the smoothers, if there are any: those of this rank, or with a hierarchy of all ranks, of all of them. */
static PetscErrorCode ViewFactors_CMATCH(PC pc, PetscViewer viewer)
{
  enum { FACTOR, SMOOTHED, CUT, FALLEN, SHARED, SUMS }; /* entries, rows, and whether a factor of a rank's block is there */
  const PC_CMATCH       *cmatch    = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H         = cmatch->hierarchy;
  PetscInt64             sum[SUMS] = {};

  PetscFunctionBegin;
  if (!CMATCHHasFactors(H->params)) PetscFunctionReturn(PETSC_SUCCESS);
  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHLevel *level = &H->level[l];

    if (!level->factor.d) continue;
    sum[FACTOR] += (PetscInt64)level->factor.W.nnz + level->n;
    const CMATCHNodesLevel *nodes = H->nodes ? &H->nodes->level[l] : nullptr;
    sum[SMOOTHED] += nodes ? (PetscInt64)nodes->blocks * nodes->k * nodes->k : (PetscInt64)level->nnz + level->n;
    sum[CUT] += level->factor.capped_rows;
    sum[FALLEN] += level->factor.diagonal_rows;
    sum[SHARED] += l < H->several;
  }
  if (cmatch->ranks) PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sum, SUMS, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  if (!sum[SMOOTHED]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "factors of the smoothers: %" PetscInt64_FMT
                                   " nonzeros, %g of their operators', rows cut %" PetscInt64_FMT
                                   ", left with the diagonal entry alone %" PetscInt64_FMT "\n",
                                   sum[FACTOR], (double)sum[FACTOR] / (double)sum[SMOOTHED], sum[CUT], sum[FALLEN]));
  if (sum[SHARED])
    PetscCall(PetscViewerASCIIPrintf(viewer, "levels on several ranks: factors are those of each rank's block of the level\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows what rounding, or components of the matrix, have made of coarse levels, if there is anything to show. */
static PetscErrorCode ViewSingular(PC pc, PetscViewer viewer)
{
  const PC_CMATCH *cmatch   = (const PC_CMATCH *)pc->data;
  PetscInt64       counts[] = {cmatch->stats.ended, cmatch->stats.parts};
  double           raised   = cmatch->stats.raised;

  PetscFunctionBegin;
  if (cmatch->ranks) {
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, counts, 2, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &raised, 1, MPI_DOUBLE, MPI_MAX, PetscObjectComm((PetscObject)pc)));
  }
  if (counts[0] || counts[1])
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "singular components: %" PetscInt64_FMT
                                     " end as a single row and get no correction there, %" PetscInt64_FMT
                                     " are solved in the complement of the ones on the last level\n",
                                     counts[0], counts[1]));
  if (raised > 0)
    PetscCall(
      PetscViewerASCIIPrintf(viewer,
                             "the last level is not positive definite by rounding: its diagonal entries were raised by %g of "
                             "themselves\n",
                             raised));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows where the coarsening has ended and why, and what solves there. */
static PetscErrorCode ViewEnd(const CMATCHHierarchy *H, const std::vector<LevelSums> &levels, CMATCHEnd end, PetscViewer viewer)
{
  const PetscInt last = (PetscInt)levels.size() - 1, n = (PetscInt)levels[last].rows;
  const bool     inverted = n <= kCMATCHLargestDense && /* on the rank that has it */
                        (H->nodes || (H->params.coarse == PC_CMATCH_DENSE && end != CMATCH_END_DOMINATED));
  /* Of a hierarchy of all ranks there is an empty level behind a level that is dominated. */
  const PetscInt of_rows = last && !n ? last - 1 : last;
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
                                     of_rows, (PetscInt)levels[of_rows].rows));
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
  if (end == CMATCH_END_DOMINATED && (!H->nodes || H->several))
    PetscCall(PetscSNPrintf(solver, sizeof(solver), "the smoother, twice"));
  else if (inverted) PetscCall(PetscSNPrintf(solver, sizeof(solver), "the dense inverse"));
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

/* Shows how well the aggregates of the set-up before fitted, if this one has begun with them. */
static PetscErrorCode ViewMisfit(const PC_CMATCH *cmatch, PetscInt64 anew, PetscViewer viewer)
{
  static const char *const kinds[] = {"rows in no aggregate that are coupled now", "rows held by no strong coupling",
                                      "more pieces than aggregates", "rows of the prolongator that have lost entries"};
  const CMATCHMisfit      &misfit  = cmatch->misfit;

  PetscFunctionBegin;
  if (misfit.of)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "aggregates of the set-up before: %s %" PetscInt64_FMT " of %" PetscInt64_FMT
                                     " on level %" LocalInt_FMT ", where they fit worst; beyond a share of %g they are made anew\n",
                                     kinds[misfit.kind], misfit.count, misfit.of, misfit.level, (double)misfit.most));
  if (anew && (cmatch->ranks || anew == 1))
    PetscCall(PetscViewerASCIIPrintf(viewer, "aggregates made anew, since they did not fit\n"));
  else if (anew)
    PetscCall(PetscViewerASCIIPrintf(viewer, "aggregates made anew on %" PetscInt64_FMT " ranks, since they did not fit\n", anew));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows what the last set-up has made: levels of this rank's block, which is the first one where it is shown, and sums of all. */
static PetscErrorCode ViewBuilt_CMATCH(PC pc, PetscViewer viewer)
{
  static const char *const sources[] = {"the constants", "the first vector of the near null space",
                                        "the first vector of the null space"};
  const PC_CMATCH         *cmatch    = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy   *H         = cmatch->hierarchy;
  const MPI_Comm           comm      = PetscObjectComm((PetscObject)pc);
  std::vector<LevelSums>   levels;
  PetscMPIInt              size;
  PetscInt64     count[COUNTS] = {cmatch->rows, cmatch->stats.end == CMATCH_END_STALLED, cmatch->reused, cmatch->anew}, sum[COUNTS];
  PetscLogDouble bytes[BYTES] = {(PetscLogDouble)H->bytes, (PetscLogDouble)(H->kept_bytes + cmatch->modes_bytes)}, all_bytes[BYTES];
  PetscLogDouble work         = (PetscLogDouble)cmatch->stats.work_bytes, most_work;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPIU_Allreduce(count, sum, COUNTS, MPIU_INT64, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(bytes, all_bytes, BYTES, MPI_DOUBLE, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(&work, &most_work, 1, MPI_DOUBLE, MPI_MAX, comm));
  if (H->nodes) PetscCall(PCCMATCHViewNodes(pc, viewer));
  else if (cmatch->near_null_unused)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "near null vector: the constants, since %s is 0 in %" PetscInt64_FMT " of %" PetscInt64_FMT
                                     " rows\n",
                                     sources[(int)cmatch->near_null], cmatch->near_null_zeros, cmatch->near_null_rows));
  else if (cmatch->near_null_zeros)
    PetscCall(PetscViewerASCIIPrintf(viewer, "near null vector: %s, whose %" PetscInt64_FMT " zeros count as %g\n",
                                     sources[(int)cmatch->near_null], cmatch->near_null_zeros, (double)H->params.zero));
  else PetscCall(PetscViewerASCIIPrintf(viewer, "near null vector: %s\n", sources[(int)cmatch->near_null]));
  if (size > 1 && !cmatch->ranks) PetscCall(PetscViewerASCIIPrintf(viewer, "levels are those of the first rank's block\n"));
  PetscCall(ViewMisfit(cmatch, sum[ANEW], viewer));
  PetscCall(SumLevels(pc, &levels));
  if (!H->nodes) PetscCall(ViewLevels(levels, viewer));
  if (cmatch->ranks) {
    PetscCall(ViewRanks(pc, levels, viewer));
    PetscCall(ViewCommunication_CMATCH(cmatch->ranks, viewer));
  }
  PetscCall(ViewFactors_CMATCH(pc, viewer));
  PetscCall(ViewSingular(pc, viewer));
  PetscCall(ViewEnd(H, levels, cmatch->stats.end, viewer));
  if (size > 1 && !cmatch->ranks && sum[STALLED])
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
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;
  PetscBool  is_ascii, global;

  PetscFunctionBegin;
  PetscCall(PCCMATCHIsGlobal(pc, &global));
  cmatch->reaches_others = pc->setupcalled ? cmatch->ranks != nullptr : (bool)global;
  PetscCall(PCViewBegin_Local(pc, viewer, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ViewOptions(pc, viewer));
  if (pc->setupcalled && pc->failedreason) PetscCall(PCViewFailure_Local(pc, viewer));
  else if (pc->setupcalled) PetscCall(ViewBuilt_CMATCH(pc, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}
