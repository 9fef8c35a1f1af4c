/*
   In the place of what asks PETSc where vectors and matrices are. There is no GPU that it could have them on, but the memory of the
   emulated device is the host's.
*/
#include "solver.h"

#include "ksp/gmresfusedimpl.h"

bool emulated_solvers = false;

PetscErrorCode CGFusedIsOnDevice(Vec, PetscBool *device)
{
  *device = (PetscBool)emulated_solvers;
  return PETSC_SUCCESS;
}

/* There is one stream. */
PetscErrorCode CGCheckStream_CUDA(MPI_Comm)
{
  return PETSC_SUCCESS;
}

/* The rows in columns of other ranks, which are on the host. */
PetscErrorCode MatGetGhostCSR(Mat A, CSRMat *csr, LocalInt *count, const PetscInt **ghosts)
{
  Mat      others;
  PetscInt columns;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &others, ghosts));
  PetscCall(MatGetLocalSize(others, nullptr, &columns));
  *count = (LocalInt)columns;
  PetscCall(MatGetOtherCSR(A, csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why a solve takes the general path, and whether it has own products there: as on several ranks with MPI. */
PetscErrorCode GMRESFusedWhyGeneral(KSP ksp, GMRESOperators *op, CGFusedReason *why)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  PetscMPIInt     size;
  PetscInt        n;
  CopiedFrom      now;
  int             all[2]; /* whether the ranks have rows, and the exchange */
  Mat             A;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  *op        = GMRESOperators{};
  *why       = CGFusedReason{"several ranks by MPI"};
  g->several = (PetscBool)(size > 1);
  g->own     = PETSC_FALSE;
  g->nccl    = nullptr;
  g->why_mpi = "it was asked for";
  if (!g->several || !emulated_solvers) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetLocalSize(A, &n, nullptr));
  PetscCall(CGFusedGhostPattern(A, &now));
  all[0] = n > 0;
  all[1] = g->exchange.sf && now.id == g->exchange.pattern.id && now.state == g->exchange.pattern.state;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, 2, MPI_INT, MPI_LAND, PetscObjectComm((PetscObject)ksp)));
  g->own           = (PetscBool)all[0];
  g->exchange.same = (PetscBool)all[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}
