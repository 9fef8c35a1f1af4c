/*
   In the place of what asks PETSc where vectors and matrices are. There is no GPU that it could have them on, but the memory of the
   emulated device is the host's.
*/
#include "solver.h"

#include "ksp/cgfusedimpl.h"
#include "ksp/gmresfusedimpl.h"
#include "sparse/csr_mat.h"

static PetscMemType WhereMatricesAre()
{
  return emulated_matrices ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;
}

PetscErrorCode MatGetValuesMemType(Mat, PetscMemType *where)
{
  *where = WhereMatricesAre();
  return PETSC_SUCCESS;
}

PetscErrorCode MatGetCSR(Mat A, CSRMat *csr)
{
  PetscFunctionBegin;
  PetscCall(MatGetHostCSR(A, csr));
  csr->A.where = WhereMatricesAre();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetOtherCSR(Mat A, CSRMat *csr)
{
  const PetscInt *i, *j;
  PetscInt        n;

  PetscFunctionBegin;
  *csr = CSRMat{};
  PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &csr->local, nullptr));
  PetscCall(MatLendRows(csr->local, PETSC_FALSE, &n, &i, &j));
  csr->A.n     = (LocalInt)n;
  csr->A.nnz   = (LocalInt)i[n];
  csr->A.where = WhereMatricesAre();
  PetscCall(MatGetLocalPattern(csr->local, PETSC_MEMTYPE_HOST, csr->A.n, csr->A.nnz, i, j, &csr->A.i, &csr->A.j));
  PetscCall(MatSeqAIJGetArrayRead(csr->local, &csr->A.a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatRestoreCSR(CSRMat *csr)
{
  PetscFunctionBegin;
  if (!csr->local) PetscFunctionReturn(PETSC_SUCCESS); /* the rows are a copy */
  PetscCall(MatSeqAIJRestoreArrayRead(csr->local, &csr->A.a));
  PetscCall(MatTakeRowsBack(csr->local, PETSC_FALSE));
  *csr = CSRMat{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode VecIsOnDevice(Vec, PetscBool *device)
{
  *device = (PetscBool)emulated_solvers;
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

/* A solve of one rank with PCJACOBI or PCNONE runs on the emulated GPU. */
PetscErrorCode CGFusedWhyGeneral(KSP ksp, CGFusedPreconditioner *M, FusedReason *why)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;
  PetscBool    none;

  PetscFunctionBegin;
  *M             = CGFusedPreconditioner{};
  *why           = FusedReason{};
  cg->nccl       = nullptr;
  cg->why_mpi    = "";
  cg->one_by_one = FusedWhyOneByOne(ksp);
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCNONE, &none));
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCJACOBI, &M->jacobi));
  if (cg->several || !emulated_solvers || (!none && !M->jacobi)) why->text = "what the emulator has not";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why a solve takes the general path, and whether it has own products there: as on several ranks with MPI. */
PetscErrorCode GMRESFusedWhyGeneral(KSP ksp, GMRESOperators *op, FusedReason *why)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  PetscMPIInt     size;
  PetscInt        n;
  PetscBool       same;
  int             all[2]; /* whether the ranks have rows, and the exchange */
  Mat             A;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  *op              = GMRESOperators{};
  *why             = FusedReason{"several ranks by MPI"};
  g->ranks.several = (PetscBool)(size > 1);
  g->ranks.own     = PETSC_FALSE;
  g->ranks.nccl    = nullptr;
  g->ranks.why_mpi = "it was asked for";
  if (!g->ranks.several || !emulated_solvers) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetLocalSize(A, &n, nullptr));
  PetscCall(ExchangeFitsMat(&g->ranks.exchange, A, &same));
  all[0] = n > 0;
  all[1] = same;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, 2, MPI_INT, MPI_LAND, PetscObjectComm((PetscObject)ksp)));
  g->ranks.own           = (PetscBool)all[0];
  g->ranks.same_exchange = (PetscBool)all[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}
