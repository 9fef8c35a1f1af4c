/* A rank among several in the fused conjugate gradient method: its exchange, and its part of an iteration by MPI on the GPU. */
#include <petscdevice.h>

#include "cgfusedimpl.h"
#include "sparse/bsr_mat.h"

PetscErrorCode CGFusedGhostPattern(Mat A, CopiedFrom *now)
{
  Mat             own, B;
  PetscInt        count, bs = 1;
  PetscBool       is_aij;
  const PetscInt *columns;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is_aij));
  PetscCall(MatGetRankParts(A, &own, &B, &columns));
  PetscCall(MatGetLocalSize(B, nullptr, &count));
  if (!is_aij) PetscCall(MatGetBlockSize(B, &bs));
  PetscCall(PetscObjectGetId((PetscObject)B, &now->id));
  now->state = (PetscObjectState)(HashNumbers(count / bs, columns) >> 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedResetExchange(CGFusedExchange *exchange)
{
  PetscFunctionBegin;
  PetscCall(PetscSFDestroy(&exchange->sf));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&exchange->ghosts));
  exchange->pattern = CopiedFrom{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedExchangeRoom(CGFusedExchange *exchange, LocalInt count)
{
  PetscFunctionBegin;
  PetscCall(CGFusedResetExchange(exchange));
  exchange->number++;
  PetscCall(ArrayCreate((size_t)count * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, (void **)&exchange->ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedExchangeConnect(CGFusedExchange *exchange, Mat A, LocalInt count, const PetscInt columns[])
{
  PetscFunctionBegin;
  PetscCall(MatGetGhostSF(A, count, columns, &exchange->sf));
  PetscCall(CGFusedGhostPattern(A, &exchange->pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedExchangeLists(CGFusedExchange *exchange)
{
  PetscFunctionBegin;
  if (exchange->listed == exchange->number) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(NeighboursFromSF(exchange->sf, &exchange->lists));
  exchange->listed = exchange->number;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedRankBegin(KSP ksp)
{
  const KSP_CGFused *cg    = (const KSP_CGFused *)ksp->data;
  const Vec          vec[] = {ksp->work[1], ksp->work[2], ksp->work[3], ksp->work[4]};
  CGRankVectors      v{};
  PetscScalar      **array[] = {&v.z, &v.p, &v.s, &v.w};
  PetscMemType       where;

  PetscFunctionBegin;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecGetArrayWriteAndMemType(vec[k], array[k], &where));
  PetscCall(CGRankBegin_CUDA(cg->work, &v, CGNormOf(ksp)));
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecRestoreArrayWriteAndMemType(vec[k], array[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = M r by factors that reach other ranks. */
static PetscErrorCode ApplyCrossing(const KSP_CGFused *cg, const CGRankVectors *v)
{
  const GhostExchange *first = &cg->crossing->ghosts1.exchange, *second = &cg->crossing->ghosts2.exchange;
  const LocalInt       n = cg->crossing->rows;
  const PetscScalar   *t;

  PetscFunctionBegin;
  PetscCall(GhostExchangeBegin(first, 1, v->r, n));
  PetscCall(CGRankFirst_CUDA(cg->work, v, &t));
  PetscCall(GhostExchangeEnd(first, 1, v->r));
  PetscCall(CGRankFirstGhosts_CUDA(cg->work));
  PetscCall(GhostExchangeBegin(second, 1, t, n));
  PetscCall(CGRankSecond_CUDA(cg->work, v));
  PetscCall(GhostExchangeEnd(second, 1, t));
  PetscCall(CGRankSecondGhosts_CUDA(cg->work, v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedRankAdvance(KSP ksp, PetscScalar a, PetscScalar b, PetscReal sums[3])
{
  const KSP_CGFused *cg    = (const KSP_CGFused *)ksp->data;
  const Vec          vec[] = {ksp->vec_sol, ksp->work[0], ksp->work[1], ksp->work[2], ksp->work[3], ksp->work[4]};
  CGRankVectors      v;
  PetscScalar      **array[] = {&v.x, &v.r, &v.z, &v.p, &v.s, &v.w};
  PetscMemType       where;

  PetscFunctionBegin;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecGetArrayAndMemType(vec[k], array[k], &where));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGRankUpdate_CUDA(cg->work, &v, a, b));
  PetscCall(PetscLogGpuTimeEnd());
  if (cg->crossing) PetscCall(ApplyCrossing(cg, &v));
  PetscCall(CGRankFence_CUDA(cg->work));
  PetscCall(PetscSFBcastWithMemTypeBegin(cg->exchange.sf, MPIU_SCALAR, PETSC_MEMTYPE_CUDA, v.z, PETSC_MEMTYPE_CUDA,
                                         cg->exchange.ghosts, MPI_REPLACE));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGRankProduct_CUDA(cg->work, &v)); /* while the ghosts travel */
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(PetscSFBcastEnd(cg->exchange.sf, MPIU_SCALAR, v.z, cg->exchange.ghosts, MPI_REPLACE));
  PetscCall(CGRankFence_CUDA(cg->work));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGRankGhosts_CUDA(cg->work, &v, sums));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(PetscLogGpuFlops(cg->flops));
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecRestoreArrayAndMemType(vec[k], array[k]));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, 3, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)ksp)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
