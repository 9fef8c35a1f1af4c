/* Why a solve of the fused GMRES takes the general path. */
#include <petsc/private/pcimpl.h>

#include "gmresfusedimpl.h"
#include "pc/acting.h"
#include "sparse/offload.h"
#include "pc/local.h"

GMRESRefinement GMRESFusedRefinementOf(KSP ksp)
{
  switch (KSPRefinementOf(ksp, (const KSP_GMRESFused *)ksp->data)) {
  case KSP_ORTHOGONALIZATION_CGS_REFINE_ALWAYS: return GMRES_REFINE_ALWAYS;
  case KSP_ORTHOGONALIZATION_CGS_REFINE_IFNEEDED: return GMRES_REFINE_IF_NEEDED;
  default: return GMRES_REFINE_NEVER;
  }
}

/* Where M is not the same matrix each time, M of a sum is not the sum that a second product takes. */
LocalInt GMRESFusedStepOf(KSP ksp)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  const bool            single =
    g->preconditioner.keeps || g->preconditioner.changes != Changes::NEVER || GMRESFusedRefinementOf(ksp) != GMRES_REFINE_NEVER;

  return single ? 1 : (LocalInt)g->step_size;
}

bool GMRESFusedIsWatched(KSP ksp)
{
  return FusedWhyOneByOne(ksp);
}

PetscErrorCode GMRESFusedLookAtPreconditioner(KSP ksp)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(PreconditionerChanges(ksp->pc, &g->preconditioner.changes));
  g->preconditioner.keeps =
    (PetscBool)(g->flexible || (g->preconditioner.changes == Changes::ITERATES && ksp->pc_side == PC_RIGHT));
  g->preconditioner.why_keeps =
    g->preconditioner.keeps && !g->flexible ? ", since the preconditioner has an iterative solver inside" : "";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What was asked for, and what the host has to do in every iteration. */
static const char *WhyNotAsItIsAsked_GMRESFused(KSP ksp, bool sent)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;

  if (g->path == KSP_GMRESFUSED_GENERAL) return "it was asked for";
  if (g->preconditioner.keeps) return "a flexible solve";
  if (GMRESFusedRefinementOf(ksp) != GMRES_REFINE_NEVER) return "a second pass of orthogonalization was asked for";
  if (g->watch.looks && !sent && GMRESFusedIsWatched(ksp)) return "a monitor or a convergence test that looks at the solution";
  if (ksp->err_hist) return "a history of errors";
  if (ksp->transpose_solve) return "a transposed solve";
  if (ksp->reason == KSP_DIVERGED_PC_FAILED) return "the preconditioner failed";
  return "";
}

/* The preconditioner that PCBJACOBI applies to the rank's rows where these are its one block, otherwise the KSP's. */
static PetscErrorCode PreconditionerOfRows(KSP ksp, PC *pc)
{
  PetscBool   bjacobi, once;
  PetscInt    blocks;
  PetscMPIInt size;
  KSP        *inner;
  PC          of_block;

  PetscFunctionBegin;
  *pc = PCActing(ksp->pc);
  PetscCall(PetscObjectTypeCompare((PetscObject)*pc, PCBJACOBI, &bjacobi));
  if (!bjacobi) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCBJacobiGetSubKSP(*pc, &blocks, nullptr, &inner));
  if (blocks != 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectTypeCompare((PetscObject)inner[0], KSPPREONLY, &once));
  PetscCall(KSPGetPC(inner[0], &of_block));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)of_block), &size));
  if (once && size == 1 && of_block->setupcalled) *pc = of_block;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   With cmatch the GPU decides if that is asked for, or if the host has the vectors, which would go over for each cycle. The host
   launches some cycles beyond the end otherwise, which take longer than what it has to do in each iteration of the general path.
*/
static PetscErrorCode WhyNotWithPreconditioner_GMRESFused(KSP ksp, bool sent, GMRESOperators *op, FusedReason *why)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  PetscBool             petsc, ours, cycles;
  PC                    pc;

  PetscFunctionBegin;
  PetscCall(PreconditionerOfRows(ksp, &pc));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCCMATCH, &cycles));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)PCActing(ksp->pc), &petsc, PCNONE, PCJACOBI, PCPBJACOBI, ""));
  PetscCall(PCLocalIsOnDevice(pc, &ours));
  if (ours && cycles && g->path == KSP_GMRESFUSED_AUTO && !sent)
    why->text = "the host decides with cmatch, unless the path device is asked for";
  else if (ours) {
    op->apply = PCLocalApplyOnDevice;
    op->pc    = pc;
  } else if (!petsc)
    PetscCall(FusedIsOfType((PetscObject)PCActing(ksp->pc),
                            "the preconditioner is not none, jacobi, pbjacobi or one of finepc's with its factor on the GPU, but ",
                            why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* As GMRESFusedWhyGeneral(), as far as this rank sees: the first reason that there is. */
static PetscErrorCode WhyGeneralHere_GMRESFused(KSP ksp, GMRESOperators *op, FusedReason *why)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  PetscBool             can, sent;

  PetscFunctionBegin;
  *op = GMRESOperators{};
  PetscCall(FusedIsSent(ksp, &sent));
  *why = FusedReason{WhyNotAsItIsAsked_GMRESFused(ksp, sent)};
  if (!*why && !sent) PetscCall(FusedWhyNotWithMatrix(ksp, g->ranks.several, PETSC_TRUE, why));
  if (!*why && ksp->pc_side == PC_LEFT)
    PetscCall(FusedWhyNotWithNullSpace(ksp, "a null space, with the preconditioner on the left", why));
  if (!*why) PetscCall(FusedWhyNotWithVectors(ksp, sent, why));
  if (!*why) PetscCall(WhyNotWithPreconditioner_GMRESFused(ksp, sent, op, why));
  if (!*why) {
    PetscCall(GMRESFusedCanStay_CUDA(g->basis_precision, (LocalInt)g->restart, &can));
    if (!can) why->text = "the GPU, or the part of it that there is, cannot keep all blocks of a kernel at once";
  }
  op->left = (PetscBool)(ksp->pc_side == PC_LEFT);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedWhyGeneral(KSP ksp, GMRESOperators *op, FusedReason *why)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  PetscMPIInt     size;
  PetscBool       same = PETSC_FALSE;
  Mat             A;
  int             all[3]; /* whether the ranks can take the path, have the exchange, and want NCCL */

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCheck(((PetscObject)A)->type_name, PetscObjectComm((PetscObject)A), PETSC_ERR_ARG_WRONGSTATE,
             "The matrix of the system has no type: call MatSetType() or MatSetFromOptions(), and give it values");
  g->ranks.several = (PetscBool)(size > 1);
  g->ranks.nccl    = nullptr;
  g->ranks.why_mpi = "";
  PetscCall(MatChooseBackend(A, (PetscObject)ksp));
  PetscCall(WhyGeneralHere_GMRESFused(ksp, op, why));
  if (!g->ranks.several) PetscFunctionReturn(PETSC_SUCCESS);
  if (!*why) PetscCall(ExchangeFitsMat(&g->ranks.exchange, A, &same));
  all[0] = !*why;
  all[1] = same;
  all[2] = g->communication != KSP_GMRESFUSED_COMMUNICATION_MPI;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, 3, MPI_INT, MPI_LAND, PetscObjectComm((PetscObject)ksp)));
  if (!all[0] && !*why) why->text = "another rank, whose GPU cannot decide";
  g->ranks.same_exchange = (PetscBool)all[1];
  if (*why) PetscFunctionReturn(PETSC_SUCCESS); /* then it is so on all ranks */
  if (g->communication == KSP_GMRESFUSED_COMMUNICATION_MPI) g->ranks.why_mpi = "it was asked for";
  PetscCall(FusedFindNCCL(ksp, (PetscBool)all[2], (PetscBool)(g->communication == KSP_GMRESFUSED_COMMUNICATION_NCCL),
                          &g->ranks.nccl, &g->ranks.why_mpi));
  if (!g->ranks.nccl) why->text = "several ranks by MPI";
  PetscFunctionReturn(PETSC_SUCCESS);
}
