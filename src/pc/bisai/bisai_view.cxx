/* What PCView() shows of PCBISAI. */
#include <petsc/private/pcimpl.h>

#include "bisai_face.h"

/* Indices of the counts that are added up over the ranks, of the maxima over the ranks, and of the bytes that are added up. */
enum { SINGULAR, FALLBACK_NL, FALLBACK_NU, ROWS, BLOCKS_NL, BLOCKS_NU, BLOCKS_A, OWN_FACTOR, COUNTS };
enum { LONGEST_NL, LONGEST_NU, WORK_BYTES, MAXIMA };
enum { TO_APPLY, KEPT, TRANSPOSES, BYTES };

/* What an inverse was computed by. */
static const char *Line_BISAI(const PC_BISAI *bisai, BISAITriangle triangle)
{
  return BISAIByColumns(bisai->params.side, triangle) ? "column" : "row";
}

/* What `auto` has decided by, for the line about the factors; nothing where the options name the factorization. */
static std::string Choice_BISAI(const PC_BISAI *bisai)
{
  const std::string asked = BISAIAskedOfPETSc(bisai) + BISAIAskedOfUs(bisai);

  if (bisai->factor != PC_BISAI_FACTOR_AUTO) return "";
  return asked.empty() ? " (auto)" : " (auto, for " + asked + ")";
}

/* Shows where the triangular factors come from. What `auto` takes is known before a set-up only if an option decides. */
static PetscErrorCode ViewFactors_BISAI(PC pc, PetscViewer viewer)
{
  const PC_BISAI *bisai = (const PC_BISAI *)pc->data;
  const bool      done = pc->setupcalled && !pc->failedreason, chooses = bisai->factor == PC_BISAI_FACTOR_AUTO;
  const bool      petscs = !BISAIAskedOfPETSc(bisai).empty(), ours = !BISAIAskedOfUs(bisai).empty();
  PetscInt        levels = 0;

  PetscFunctionBegin;
  if (done) {
    const PetscInt mine = bisai->factors.by_petsc ? 0 : bisai->factors.stats.levels;

    PetscCallMPI(MPIU_Allreduce(&mine, &levels, 1, MPIU_INT, MPI_MAX, PetscObjectComm((PetscObject)pc)));
  }
  if (chooses && !pc->setupcalled && petscs == ours) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "factors by finepc where the matrix is on a GPU, by PETSc otherwise (auto)\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (pc->setupcalled ? bisai->factors.by_petsc : chooses ? petscs : bisai->factor == PC_BISAI_FACTOR_PETSC) {
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "factors by PETSc, on the host%s: ILU(%" PetscInt_FMT
                                     "), ordering %s, shift type %s, amount %g\n",
                                     Choice_BISAI(bisai).c_str(), bisai->levels, bisai->ordering.c_str(),
                                     MatFactorShiftTypes[bisai->shift_type], (double)bisai->shift_amount));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const char *place     = "";
  char        order[64] = "";

  if (done) place = PetscMemTypeDevice(bisai->where) ? ", on the GPU" : ", on the host as the matrix";
  if (levels > 0) PetscCall(PetscSNPrintf(order, sizeof(order), " in %" PetscInt_FMT " levels of rows", levels));
  if (bisai->factor_sweeps)
    PetscCall(PetscSNPrintf(order, sizeof(order), " by %" PetscInt_FMT " sweeps over all rows", bisai->factor_sweeps));
  PetscCall(PetscViewerASCIIPrintf(viewer, "factors by finepc%s%s: ILU(0)%s\n", place, Choice_BISAI(bisai).c_str(), order));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows what the last set-up has built. */
static PetscErrorCode ViewBuilt_BISAI(PC pc, PetscViewer viewer)
{
  const PC_BISAI *bisai = (const PC_BISAI *)pc->data;
  const MPI_Comm  comm  = PetscObjectComm((PetscObject)pc);
  PetscMPIInt     size;
  PetscInt64      count[COUNTS] = {bisai->factors.stats.singular_blocks,
                                   bisai->stats.fallback_lines[BISAI_LOWER],
                                   bisai->stats.fallback_lines[BISAI_UPPER],
                                   bisai->n,
                                   bisai->N[BISAI_LOWER].nnz,
                                   bisai->N[BISAI_UPPER].nnz,
                                   bisai->operator_nnz,
                                   bisai->factors.own},
             sum[COUNTS];
  PetscInt64 max[MAXIMA] = {bisai->stats.longest[BISAI_LOWER], bisai->stats.longest[BISAI_UPPER],
                            (PetscInt64)bisai->stats.work_bytes},
             most[MAXIMA];
  PetscLogDouble bytes[BYTES] = {0,
                                 (PetscLogDouble)(BlockLUBytes(&bisai->factors.lu) + BlockLUBytes(&bisai->factors.host_lu) +
                                                  BSRBytes(&bisai->factors.blocks) + bisai->factors.stats.plan_bytes),
                                 0},
                 all_bytes[BYTES];

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  for (int t = 0; t < 2; t++) bytes[KEPT] += (PetscLogDouble)BISAIColumnsBytes(&bisai->columns[t]);
  for (int t = 0; t < 2; t++) bytes[TO_APPLY] += (PetscLogDouble)(BSRBytes(&bisai->N[t]) + BSRBytes(&bisai->R[t]));
  for (const BSR *W : {bisai->transposes.N, bisai->transposes.R})
    for (int t = 0; t < 2; t++) bytes[TRANSPOSES] += W[t].i ? (PetscLogDouble)BSRBytes(&W[t]) : 0;
  for (Mat kept : {bisai->factors.baij, bisai->factors.petsc}) {
    MatInfo info;

    if (!kept) continue;
    PetscCall(MatGetInfo(kept, MAT_LOCAL, &info));
    bytes[KEPT] += info.memory;
  }
  PetscCallMPI(MPIU_Allreduce(count, sum, COUNTS, MPIU_INT64, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(max, most, MAXIMA, MPIU_INT64, MPI_MAX, comm));
  PetscCallMPI(MPIU_Allreduce(bytes, all_bytes, BYTES, MPI_DOUBLE, MPI_SUM, comm));
  if (sum[OWN_FACTOR] && size > 1)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "PETSc's factorization met a singular diagonal block on %" PetscInt64_FMT
                                     " ranks: their factors were computed anew by finepc, on the host\n",
                                     sum[OWN_FACTOR]));
  else if (sum[OWN_FACTOR])
    PetscCall(PetscViewerASCIIPrintf(
      viewer, "PETSc's factorization met a singular diagonal block: the factors were computed anew by finepc, on the "
              "host\n"));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "backend %s, block size %" LocalInt_FMT ", inverses stored in %s precision, patterns %s\n",
                                   PetscMemTypeDevice(bisai->where) ? "CUDA" : "host", bisai->bs,
                                   FinePCPrecisions[bisai->params.factor_precision],
                                   bisai->reused ? "kept from the last set-up" : "made at the last set-up"));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "%" PetscInt64_FMT " block rows, %" PetscInt64_FMT " blocks of the matrix; NL %" PetscInt64_FMT
                                   " blocks, at most %" PetscInt64_FMT " a %s, NU %" PetscInt64_FMT
                                   " blocks, at most %" PetscInt64_FMT " a %s beside the diagonal\n",
                                   sum[ROWS], sum[BLOCKS_A], sum[BLOCKS_NL], most[LONGEST_NL], Line_BISAI(bisai, BISAI_LOWER),
                                   sum[BLOCKS_NU], most[LONGEST_NU], Line_BISAI(bisai, BISAI_UPPER)));
  PetscCall(PetscViewerASCIIPrintf(
    viewer, "%g bytes to apply, %g bytes of factors and blocks kept for the next set-up, set-up memory beyond these: %g bytes\n",
    all_bytes[TO_APPLY], all_bytes[KEPT], (double)most[WORK_BYTES]));
  if (all_bytes[TRANSPOSES] > 0)
    PetscCall(PetscViewerASCIIPrintf(viewer, "%g bytes of transposes, made for PCApplyTranspose()\n", all_bytes[TRANSPOSES]));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "singular diagonal blocks replaced %" PetscInt64_FMT
                                   ", left with the diagonal block alone: NL %" PetscInt64_FMT " block %ss, NU %" PetscInt64_FMT
                                   " block %ss\n",
                                   sum[SINGULAR], sum[FALLBACK_NL], Line_BISAI(bisai, BISAI_LOWER), sum[FALLBACK_NU],
                                   Line_BISAI(bisai, BISAI_UPPER)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCView_BISAI(PC pc, PetscViewer viewer)
{
  const PC_BISAI *bisai = (const PC_BISAI *)pc->data;
  PetscBool       is_ascii;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_Local(pc, viewer, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "NL and NU stand for the inverses of L and U: patterns of power %" PetscInt_FMT
                                   " of L, %" PetscInt_FMT " of U; relaxation sweeps %" PetscInt_FMT
                                   "; L inverted by %ss, U by %ss\n",
                                   bisai->params.power_lower ? bisai->params.power_lower : bisai->params.power,
                                   bisai->params.power_upper ? bisai->params.power_upper : bisai->params.power,
                                   bisai->params.sweeps, Line_BISAI(bisai, BISAI_LOWER), Line_BISAI(bisai, BISAI_UPPER)));
  PetscCall(ViewFactors_BISAI(pc, viewer));
  if (pc->setupcalled && pc->failedreason) PetscCall(PCViewFailure_Local(pc, viewer));
  else if (pc->setupcalled) PetscCall(ViewBuilt_BISAI(pc, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}
