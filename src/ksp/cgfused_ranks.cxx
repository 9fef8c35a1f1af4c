/* A rank among several in the fused conjugate gradient method: its part of an iteration by MPI on the GPU. */

#include "cgfusedimpl.h"

PetscErrorCode CGFusedRankBegin(KSP ksp)
{
  const KSP_CGFused *cg    = (const KSP_CGFused *)ksp->data;
  const Vec          vec[] = {ksp->work[1], ksp->work[2], ksp->work[3], ksp->work[4]};
  CGRankVectors      v{};
  PetscScalar      **array[] = {&v.z, &v.p, &v.s, &v.w};
  PetscMemType       where;

  PetscFunctionBegin;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecGetArrayWriteAndMemType(vec[k], array[k], &where));
  PetscCall(CGRankBegin_CUDA(cg->work, &v, FusedNormOf(ksp)));
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecRestoreArrayWriteAndMemType(vec[k], array[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = M r by factors that reach other ranks. */
static PetscErrorCode ApplyCrossing(const KSP_CGFused *cg, const CGRankVectors *v)
{
  const Exchange    *first = &cg->crossing->ghosts1.exchange, *second = &cg->crossing->ghosts2.exchange;
  const LocalInt     n = cg->crossing->rows;
  const PetscScalar *t;

  PetscFunctionBegin;
  PetscCall(ExchangeColumnsBegin(first, 1, v->r, n));
  PetscCall(CGRankFirst_CUDA(cg->work, v, &t));
  PetscCall(ExchangeColumnsEnd(first, 1, v->r));
  PetscCall(CGRankFirstGhosts_CUDA(cg->work));
  PetscCall(ExchangeColumnsBegin(second, 1, t, n));
  PetscCall(CGRankSecond_CUDA(cg->work, v));
  PetscCall(ExchangeColumnsEnd(second, 1, t));
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
  PetscCall(ExchangeBegin(&cg->exchange, MPIU_SCALAR, v.z, cg->exchange.ghosts));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGRankProduct_CUDA(cg->work, &v)); /* while the ghosts travel */
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(ExchangeEnd(&cg->exchange, MPIU_SCALAR, v.z, cg->exchange.ghosts));
  PetscCall(CGRankFence_CUDA(cg->work));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(CGRankGhosts_CUDA(cg->work, &v, sums));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(PetscLogGpuFlops(cg->flops));
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(vec); k++) PetscCall(VecRestoreArrayAndMemType(vec[k], array[k]));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, 3, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)ksp)));
  PetscFunctionReturn(PETSC_SUCCESS);
}
