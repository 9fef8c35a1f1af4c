/* The PETSc face of what the factored sparse approximate inverses share. */
#include <petsc/private/pcimpl.h>

#include <limits>

#include "finepcimpl.h"
#include "fsai.h"

/* The rank's rows; from here on the set-up is another one. */
PetscErrorCode PCFSAIGetOperator(PC pc, CSRMat *mat)
{
  PetscInt rows, columns;

  PetscFunctionBegin;
  pc->failedreason = PC_NOERROR;
  pc->setupcalled  = PETSC_FALSE; /* PCSetUp() sets it at its end: after an error on the way the next set-up starts anew */
  PetscCall(MatGetSize(pc->pmat, &rows, &columns));
  PetscCheck(rows == columns, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_SIZ,
             "The matrix must be square, but is %" PetscInt_FMT " by %" PetscInt_FMT, rows, columns);
  PetscCall(MatGetCSR(pc->pmat, mat));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The old pattern fits: asked for, same nonzeros of A, same place and precision. */
static PetscBool CanKeepPattern(PC pc, const CSRView *A, PetscBool reuse_pattern, FinePCPrecision factor)
{
  const CSR *G = &((const PC_FSAI *)pc->data)->inverse.W1;

  return (PetscBool)(reuse_pattern && pc->flag == SAME_NONZERO_PATTERN && G->i && G->rows == A->n && G->where == A->where &&
                     G->precision == factor);
}

PetscErrorCode PCFSAIPrepare(PC pc, const CSRView *A, PetscBool reuse_pattern, FinePCPrecision factor)
{
  PC_FSAI   *fsai = (PC_FSAI *)pc->data;
  PCInverse *M    = &fsai->inverse;

  PetscFunctionBegin;
  fsai->reused = CanKeepPattern(pc, A, reuse_pattern, factor);
  if (fsai->reused) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCInverseReset(M));
  M->where        = A->where;
  M->rows         = A->n;
  M->operator_nnz = A->nnz;
  M->unit         = PETSC_TRUE;
  PetscCall(ArrayCreate(A->n * sizeof(*M->d), M->where, (void **)&M->d));
  PetscCall(PCInverseNeedWork(M, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   An unusable matrix: the reason that KSPSolve() reports, or an error if the user asked for errors. One rank's failure is
   everybody's: otherwise the others would wait in KSPSolve().
*/
static PetscErrorCode RecordFailure(PC pc, const char type[])
{
  static const char *const texts[] = {"", "has an entry that is not finite", "has no diagonal entry",
                                      "has a diagonal entry that is not positive"};
  const FSAIStats         *stats   = &((PC_FSAI *)pc->data)->stats;

  PetscFunctionBegin;
  if (stats->failure) {
    PetscCall(PetscInfo(pc, "Row %" PetscInt_FMT " of this rank's block %s\n", stats->failure_row, texts[stats->failure]));
    pc->failedreason = stats->failure == FSAI_NOT_FINITE ? PC_FACTOR_OTHER : PC_FACTOR_NUMERIC_ZEROPIVOT;
  }
  PetscCall(PCReduceFailedReason(pc));
  if (pc->failedreason && pc->erroriffailure) {
    PetscCheck(!stats->failure, PETSC_COMM_SELF, PETSC_ERR_MAT_LU_ZRPVT,
               "Row %" PetscInt_FMT " of this rank's block %s: %s needs a symmetric positive definite matrix", stats->failure_row,
               texts[stats->failure], type);
    SETERRQ(PETSC_COMM_SELF, PETSC_ERR_MAT_LU_ZRPVT,
            "Another rank's block cannot be preconditioned: %s needs a symmetric positive definite matrix", type);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIComplete(PC pc, const char type[])
{
  PC_FSAI   *fsai = (PC_FSAI *)pc->data;
  PCInverse *M    = &fsai->inverse;

  PetscFunctionBegin;
  if (fsai->stats.failure) PetscCall(PCInverseReset(M));
  else {
    PetscCall(PetscLogEventBegin(FinePC_Transpose, pc, 0, 0, 0));
    if (PetscMemTypeDevice(M->where)) PetscCall(CSRTranspose_CUDA(&M->W1, fsai->reused, &M->W2));
    else PetscCall(CSRTranspose_Host(&M->W1, fsai->reused, &M->W2));
    PetscCall(PetscLogEventEnd(FinePC_Transpose, pc, 0, 0, 0));
  }
  PetscCall(PetscObjectStateIncrease((PetscObject)pc)); /* for those who keep copies of the factors */
  PetscCall(RecordFailure(pc, type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCApply_FSAI(PC pc, Vec x, Vec y)
{
  PetscFunctionBegin;
  /* there is no factor: KSPSolve() looks for the reason when it meets this */
  if (pc->failedreason) PetscCall(VecSet(y, std::numeric_limits<PetscReal>::infinity()));
  else PetscCall(PCInverseApply(&((PC_FSAI *)pc->data)->inverse, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCMatApply_FSAI(PC pc, Mat X, Mat Y)
{
  PetscFunctionBegin;
  if (pc->failedreason) {
    PetscInt columns;

    PetscCall(MatGetSize(Y, nullptr, &columns));
    for (PetscInt c = 0; c < columns; c++) {
      Vec y;

      PetscCall(MatDenseGetColumnVecWrite(Y, c, &y));
      PetscCall(PCApply_FSAI(pc, nullptr, y));
      PetscCall(MatDenseRestoreColumnVecWrite(Y, c, &y));
    }
  } else PetscCall(PCInverseMatApply(&((PC_FSAI *)pc->data)->inverse, X, Y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCViewBegin_FSAI(PC pc, PetscViewer viewer, PetscBool *is_ascii)
{
  PetscMPIInt size;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, is_ascii));
  if (!*is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  if (size > 1)
    PetscCall(PetscViewerASCIIPrintf(viewer, "block-local: each of %d ranks preconditions with its own diagonal block\n", size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCView_FSAI(PC pc, PetscViewer viewer)
{
  const PC_FSAI   *fsai  = (const PC_FSAI *)pc->data;
  const FSAIStats *stats = &fsai->stats;
  const PCInverse *M     = &fsai->inverse;
  MPI_Comm         comm  = PetscObjectComm((PetscObject)pc);

  PetscFunctionBegin;
  if (pc->setupcalled && pc->failedreason)
    PetscCall(PetscViewerASCIIPrintf(viewer, "set-up failed: %s\n", PCFailedReasons[pc->failedreason]));
  else if (pc->setupcalled) {
    PetscInt64 count[5] = {stats->double_rows, stats->diagonal_rows, stats->large_rows, M->rows, M->W1.nnz}, sum[5];
    PetscReal  logs[2]  = {stats->log_psi_before * M->rows, stats->log_psi_after * M->rows}, log_sum[2];
    PetscInt64 max[2]   = {stats->max_row, (PetscInt64)stats->work_bytes}, most[2];

    PetscCallMPI(MPIU_Allreduce(count, sum, 5, MPIU_INT64, MPI_SUM, comm));
    PetscCallMPI(MPIU_Allreduce(logs, log_sum, 2, MPIU_REAL, MPIU_SUM, comm));
    PetscCallMPI(MPIU_Allreduce(max, most, 2, MPIU_INT64, MPI_MAX, comm));
    const PetscReal rows = (PetscReal)PetscMax(sum[3], 1);
    PetscCall(PCInverseView(M, comm, viewer));
    PetscCall(PetscViewerASCIIPrintf(viewer, "row size: mean %g, max %" PetscInt64_FMT "\n",
                                     (double)((PetscReal)(sum[4] + sum[3]) / rows), most[0]));
    PetscCall(PetscViewerASCIIPrintf(viewer, "Kaporin number times det(A)^(1/n): %g with the diagonal alone, %g with G; ratio %g\n",
                                     (double)PetscExpReal(log_sum[0] / rows), (double)PetscExpReal(log_sum[1] / rows),
                                     (double)PetscExpReal((log_sum[1] - log_sum[0]) / rows)));
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "rows redone in double precision %" PetscInt64_FMT
                                     ", fallen back to the diagonal %" PetscInt64_FMT
                                     ", on the path for large rows %" PetscInt64_FMT "\n",
                                     sum[0], sum[1], sum[2]));
    PetscCall(PetscViewerASCIIPrintf(viewer, "set-up memory beyond A, G and its transpose: %g bytes\n", (double)most[1]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCReset_FSAI(PC pc)
{
  PC_FSAI *fsai = (PC_FSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCInverseReset(&fsai->inverse));
  fsai->stats  = FSAIStats{};
  fsai->reused = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIGetFactors_FSAI(PC pc, Mat *G, Mat *Gt)
{
  PC_FSAI *fsai = (PC_FSAI *)pc->data;
  Mat      factor;

  PetscFunctionBegin;
  PetscCheck(pc->setupcalled && !pc->failedreason, PetscObjectComm((PetscObject)pc), PETSC_ERR_ORDER,
             "The factor exists after a PCSetUp() that did not fail");
  PetscCall(MatCreateFromFactor(PetscObjectComm((PetscObject)pc), &fsai->inverse.W1, fsai->inverse.d, &factor));
  if (Gt) PetscCall(MatTranspose(factor, MAT_INITIAL_MATRIX, Gt));
  if (G) *G = factor;
  else PetscCall(MatDestroy(&factor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFinePCGetInverse_FSAI(PC pc, const PCInverse **inverse)
{
  PetscFunctionBegin;
  *inverse = &((PC_FSAI *)pc->data)->inverse;
  PetscFunctionReturn(PETSC_SUCCESS);
}
