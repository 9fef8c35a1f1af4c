/* Why a solve of the fused conjugate gradient method takes the general path, and the work vectors that a path needs. */
#include "cgfusedimpl.h"
#include "pc/acting.h"
#include "pc/cmatch/cmatch.h"
#include "pc/local.h"
#include "sparse/offload.h"

PetscErrorCode CGFusedSingleReduction(KSP ksp, PetscBool *single)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  PetscMPIInt        size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  *single = (PetscBool)(cg->single_reduction == PETSC_BOOL3_TRUE || (cg->single_reduction == PETSC_BOOL3_UNKNOWN && size > 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedNeedWorkVecs(KSP ksp)
{
  PetscBool single;

  PetscFunctionBegin;
  PetscCall(CGFusedSingleReduction(ksp, &single));
  if (!ksp->work || ksp->nwork < (single ? 5 : 3)) PetscCall(FusedSetWorkVecs(ksp, single ? 5 : 3));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------- reasons that this rank sees, in the order of asking ------------------- */

/* What was asked for. */
static const char *WhyNotAsItIsAsked_CGFused(KSP ksp, PetscBool single)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;

  if (cg->path == KSP_CGFUSED_GENERAL) return "it was asked for";
  if (cg->trust.radius > 0) return "a trust region";
  if (cg->trust.target < 0) return "an objective to reach";
  if (!cg->solve.several && single) return "a single reduction was asked for";
  if (ksp->transpose_solve) return "a transposed solve";
  if (ksp->reason == KSP_DIVERGED_PC_FAILED) return "the preconditioner failed";
  return "";
}

static PetscErrorCode WhyNotWithPreconditioner_CGFused(KSP ksp, CGFusedPreconditioner *M, FusedReason *why)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  const PC           pc = PCActing(ksp->pc);
  PetscBool          none, carries = PETSC_FALSE;
  PetscErrorCode (*query)(PC, PCInverse **);
  PetscErrorCode (*cycle_query)(PC, CMATCHHierarchy **);

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCNONE, &none));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCJACOBI, &M->jacobi));
  PetscCall(PetscObjectQueryFunction((PetscObject)pc, kInverseQuery, &query));
  PetscCall(PetscObjectQueryFunction((PetscObject)pc, kCycleQuery, &cycle_query));
  if (query) PetscCall((*query)(pc, &M->M));
  if (cycle_query) PetscCall((*cycle_query)(pc, &M->cycle));
  if (cycle_query) PetscCall(PCLocalCarries(pc, &carries));
  if (!none && !M->jacobi && !query && !cycle_query)
    PetscCall(FusedIsOfType((PetscObject)pc, "the preconditioner is not none, jacobi, afsai, sfsai or cmatch, but ", why));
  else if (query && (!M->M->W1.i || !PetscMemTypeDevice(M->M->where))) why->text = "the factor is on the host";
  else if (query && M->M->carry_bytes) why->text = "the matrix has one-sided couplings, or rows of zeros";
  else if (carries) why->text = "the matrix has rows of zeros";
  else if (cycle_query && cg->solve.several && !M->cycle) why->text = "multigrid on several ranks without NCCL";
  else if (cycle_query && cg->solve.several && !M->cycle->several) why->text = "multigrid of the blocks of several ranks";
  else if (cycle_query && (!M->cycle || !PetscMemTypeDevice(M->cycle->where))) why->text = "the multigrid hierarchy is on the host";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* As CGFusedWhyGeneral(), as far as this rank sees: the first reason that there is. */
static PetscErrorCode WhyGeneralHere_CGFused(KSP ksp, CGFusedPreconditioner *M, FusedReason *why)
{
  PetscBool single, sent;

  PetscFunctionBegin;
  *M = CGFusedPreconditioner{};
  PetscCall(CGFusedSingleReduction(ksp, &single));
  *why = FusedReason{WhyNotAsItIsAsked_CGFused(ksp, single)};
  PetscCall(FusedIsSent(ksp, &sent));
  if (!*why && !sent) PetscCall(FusedWhyNotWithMatrix(ksp, ((const KSP_CGFused *)ksp->data)->solve.several, PETSC_FALSE, why));
  if (!*why) PetscCall(FusedWhyNotWithNullSpace(ksp, "a null space", why));
  if (!*why) PetscCall(FusedWhyNotWithVectors(ksp, sent, why));
  if (!*why) PetscCall(WhyNotWithPreconditioner_CGFused(ksp, M, why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- what all ranks have to say --------------------------------- */

/*
   Why several ranks exchange by MPI, on the general path: it was asked for.

   With NCCL there are two reductions an iteration. In a graph a sum over two H200 takes 2 microseconds where kernels make it
   themselves. The recurrences that save one of the two read and write 24 bytes more of each row, which
   takes some 10 microseconds at 121^3 unknowns a GPU, and they need a symmetric matrix. So they would be shorter only where a GPU
   has few unknowns, or where sums are all-reduces.
*/
static const char *WhyMPIAsItIsAsked(KSP ksp)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;

  if (cg->communication == KSP_CGFUSED_COMMUNICATION_MPI) return "it was asked for";
  if (cg->single_reduction == PETSC_BOOL3_TRUE) return "a single reduction was asked for";
  return "";
}

PetscErrorCode CGFusedWhyGeneral(KSP ksp, CGFusedPreconditioner *M, FusedReason *why)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  Mat          A;
  PetscBool    same = PETSC_FALSE;
  int          all[4]; /* whether the ranks can take the path, have the exchange, want NCCL, and go ahead */

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCheck(((PetscObject)A)->type_name, PetscObjectComm((PetscObject)A), PETSC_ERR_ARG_WRONGSTATE,
             "The matrix of the system has no type: call MatSetType() or MatSetFromOptions(), and give it values");
  PetscCall(MatChooseBackend(A, (PetscObject)ksp));
  PetscCall(WhyGeneralHere_CGFused(ksp, M, why));
  cg->solve.nccl       = nullptr;
  cg->solve.why_mpi    = "";
  cg->solve.one_by_one = FusedWhyOneByOne(ksp);
  if (!cg->solve.several) PetscFunctionReturn(PETSC_SUCCESS);
  if (!*why) PetscCall(ExchangeFitsMat(&cg->exchange, A, &same));
  all[0] = !*why;
  all[1] = same;
  all[2] = !*WhyMPIAsItIsAsked(ksp);
  all[3] = !cg->solve.one_by_one;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, 4, MPI_INT, MPI_LAND, PetscObjectComm((PetscObject)ksp)));
  if (!all[0] && !*why) why->text = "another rank, which cannot multiply so";
  if (!all[3] && !cg->solve.one_by_one) cg->solve.one_by_one = "another rank, which has a monitor or a test";
  cg->same_exchange = (PetscBool)all[1];
  if (*why) PetscFunctionReturn(PETSC_SUCCESS); /* then it is so on all ranks */
  cg->solve.why_mpi = WhyMPIAsItIsAsked(ksp);
  PetscCall(FusedFindNCCL(ksp, (PetscBool)all[2], (PetscBool)(cg->communication == KSP_CGFUSED_COMMUNICATION_NCCL), &cg->solve.nccl,
                          &cg->solve.why_mpi));
  if (!cg->solve.nccl) why->text = "several ranks by MPI";
  PetscFunctionReturn(PETSC_SUCCESS);
}
