/* Why a solve of the fused conjugate gradient method takes the general path. */
#include "cgfusedimpl.h"
#include "pc/cmatch/cmatch.h"
#include "pc/local.h"

PetscErrorCode CGFusedIsOnDevice(Vec x, PetscBool *device)
{
  PetscBool bound;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)x, device, VECSEQCUDA, VECMPICUDA, ""));
  PetscCall(VecBoundToCPU(x, &bound));
  if (bound || !kHasCUDA) *device = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------- reasons that this rank sees, in the order of asking ------------------- */

/* What was asked for. */
static const char *WhyNotAsItIsAsked_CGFused(KSP ksp, PetscBool single)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;

  if (cg->path == KSP_CGFUSED_GENERAL) return "it was asked for";
  if (cg->radius > 0) return "a trust region";
  if (cg->target < 0) return "an objective to reach";
  if (!cg->several && single) return "a single reduction was asked for";
  if (ksp->transpose_solve) return "a transposed solve";
  if (ksp->reason == KSP_DIVERGED_PC_FAILED) return "the preconditioner failed";
  return "";
}

/* Whether the rank's blocks of A are on the GPU and may be used there. */
static PetscErrorCode BlocksAreOnDevice(KSP ksp, Mat A, PetscBool *device)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  Mat                own, others = nullptr;
  PetscBool          ours, bound;

  PetscFunctionBegin;
  *device = PETSC_TRUE;
  PetscCall(MatGetDiagonalBlock(A, &own));
  if (cg->several) PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &others, nullptr));
  for (Mat block : {own, others}) {
    if (!block) continue;
    PetscCall(PetscObjectTypeCompare((PetscObject)block, MATSEQAIJCUSPARSE, &ours));
    PetscCall(MatBoundToCPU(block, &bound));
    if (!ours || bound) *device = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode IsOfType_CGFused(PetscObject object, const char text[], CGFusedReason *why)
{
  PetscFunctionBegin;
  why->text = text;
  PetscCall(PetscStrncpy(why->type, object->type_name, sizeof(why->type)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode WhyNotWithMatrix_CGFused(KSP ksp, CGFusedReason *why)
{
  Mat          A;
  MatNullSpace null_space;
  PetscBool    ours, on_host, device;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &ours, MATSEQAIJCUSPARSE, MATMPIAIJCUSPARSE, ""));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &on_host, MATSEQAIJ, MATMPIAIJ, ""));
  if (on_host) why->text = "the matrix is on the host";
  else if (!ours) PetscCall(IsOfType_CGFused((PetscObject)A, "the matrix is not aijcusparse, but ", why));
  else if (!kHasCUDA) why->text = "this finepc was built without CUDA";
  else {
    PetscCall(BlocksAreOnDevice(ksp, A, &device));
    PetscCall(MatGetNullSpace(A, &null_space));
    if (!device) why->text = "the matrix is bound to the CPU, on the host";
    else if (null_space) why->text = "a null space";
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode WhyNotWithVectors_CGFused(KSP ksp, CGFusedReason *why)
{
  PetscBool b_device, x_device, r_device;
  PetscInt  n, b_n, rows;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(CGFusedIsOnDevice(ksp->vec_rhs, &b_device));
  PetscCall(CGFusedIsOnDevice(ksp->vec_sol, &x_device));
  PetscCall(CGFusedIsOnDevice(ksp->work[0], &r_device));
  PetscCall(VecGetLocalSize(ksp->vec_sol, &n));
  PetscCall(VecGetLocalSize(ksp->vec_rhs, &b_n));
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetLocalSize(A, &rows, nullptr));
  if (!b_device || !x_device || !r_device) why->text = "the vectors are on the host";
  else if (n != rows || b_n != rows) why->text = "vectors of another size than the matrix"; /* MatMult() makes an error of it */
  else if (!n) why->text = "no rows";
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode WhyNotWithPreconditioner_CGFused(KSP ksp, CGFusedPreconditioner *M, CGFusedReason *why)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  PetscBool          none, carries = PETSC_FALSE;
  PetscErrorCode (*query)(PC, PCInverse **);
  PetscErrorCode (*cycle_query)(PC, CMATCHHierarchy **);

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCNONE, &none));
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCJACOBI, &M->jacobi));
  PetscCall(PetscObjectQueryFunction((PetscObject)ksp->pc, kInverseQuery, &query));
  PetscCall(PetscObjectQueryFunction((PetscObject)ksp->pc, kCycleQuery, &cycle_query));
  if (query) PetscCall((*query)(ksp->pc, &M->M));
  if (cycle_query) PetscCall((*cycle_query)(ksp->pc, &M->cycle));
  if (cycle_query) PetscCall(PCLocalCarries(ksp->pc, &carries));
  if (!none && !M->jacobi && !query && !cycle_query)
    PetscCall(IsOfType_CGFused((PetscObject)ksp->pc, "the preconditioner is not none, jacobi, afsai, sfsai or cmatch, but ", why));
  else if (query && (!M->M->W1.i || !PetscMemTypeDevice(M->M->where))) why->text = "the factor is on the host";
  else if (query && M->M->carry_bytes) why->text = "the matrix has one-sided couplings, or rows of zeros";
  else if (carries) why->text = "the matrix has rows of zeros";
  else if (cycle_query && cg->several && !M->cycle) why->text = "multigrid on several ranks without NCCL";
  else if (cycle_query && cg->several && !M->cycle->several) why->text = "multigrid of the blocks of several ranks";
  else if (cycle_query && (!M->cycle || !PetscMemTypeDevice(M->cycle->where))) why->text = "the multigrid hierarchy is on the host";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* As CGFusedWhyGeneral(), as far as this rank sees: the first reason that there is. */
static PetscErrorCode WhyGeneralHere_CGFused(KSP ksp, CGFusedPreconditioner *M, CGFusedReason *why)
{
  PetscBool single;

  PetscFunctionBegin;
  *M = CGFusedPreconditioner{};
  PetscCall(CGFusedSingleReduction(ksp, &single));
  *why = CGFusedReason{WhyNotAsItIsAsked_CGFused(ksp, single)};
  if (!*why) PetscCall(WhyNotWithMatrix_CGFused(ksp, why));
  if (!*why) PetscCall(WhyNotWithVectors_CGFused(ksp, why));
  if (!*why) PetscCall(WhyNotWithPreconditioner_CGFused(ksp, M, why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- what all ranks have to say --------------------------------- */

/*
   Why several ranks exchange by MPI: the host has to do something in every iteration, or it was asked for.

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

/* Finds NCCL where own products are possible on all ranks, if all of them want it; otherwise the reason for MPI. */
static PetscErrorCode FindNCCL_CGFused(KSP ksp, PetscBool wanted)
{
  KSP_CGFused   *cg   = (KSP_CGFused *)ksp->data;
  const MPI_Comm comm = PetscObjectComm((PetscObject)ksp);

  PetscFunctionBegin;
  cg->why_mpi = WhyMPIAsItIsAsked(ksp);
  if (!wanted) {
    if (!*cg->why_mpi) cg->why_mpi = "another rank asked for it";
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(NCCLOf(comm, &cg->nccl, &cg->why_mpi));
  PetscCheck(
    cg->nccl || cg->communication != KSP_CGFUSED_COMMUNICATION_NCCL, comm, PETSC_ERR_SUP,
    "-ksp_cgfused_communication nccl is not possible: %s. Give each rank a GPU of its own and a finepc that finds NCCL, or "
    "use -ksp_cgfused_communication auto",
    cg->why_mpi);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedWhyGeneral(KSP ksp, CGFusedPreconditioner *M, CGFusedReason *why)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  Mat          A;
  PetscBool    single, same = PETSC_FALSE;
  int          all[4]; /* whether the ranks can take the path, have the exchange, want NCCL, and go ahead */

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCheck(((PetscObject)A)->type_name, PetscObjectComm((PetscObject)A), PETSC_ERR_ARG_WRONGSTATE,
             "The matrix of the system has no type: call MatSetType() or MatSetFromOptions(), and give it values");
  PetscCall(WhyGeneralHere_CGFused(ksp, M, why));
  cg->nccl       = nullptr;
  cg->why_mpi    = "";
  cg->one_by_one = CGWhyOneByOne(ksp);
  if (!cg->several) PetscFunctionReturn(PETSC_SUCCESS);
  if (!*why) PetscCall(ExchangeFitsMat(&cg->exchange, A, &same));
  all[0] = !*why;
  all[1] = same;
  all[2] = !*WhyMPIAsItIsAsked(ksp);
  all[3] = !cg->one_by_one;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, 4, MPI_INT, MPI_LAND, PetscObjectComm((PetscObject)ksp)));
  if (!all[0] && !*why) why->text = "another rank, which cannot multiply so";
  if (!all[3] && !cg->one_by_one) cg->one_by_one = "another rank, which has a monitor or a test";
  cg->same_exchange = (PetscBool)all[1];
  if (*why) PetscFunctionReturn(PETSC_SUCCESS); /* then it is so on all ranks */
  PetscCall(FindNCCL_CGFused(ksp, (PetscBool)all[2]));
  PetscCall(CGFusedSingleReduction(ksp, &single));
  if (!cg->nccl && M->cycle) why->text = "multigrid on several ranks, which takes NCCL";
  else if (!cg->nccl && !single) why->text = "two reductions an iteration were asked for, which take NCCL";
  PetscFunctionReturn(PETSC_SUCCESS);
}
