/* The PETSc faces of the factored sparse approximate inverses share these parts of a set-up, an apply and a view. */
#include <petsc/private/pcimpl.h>

#include "entry.h"
#include "finepcimpl.h"
#include "fsai_face.h"
#include "sparse/csr_mat.h"

/* ------------------------------------------- set-up ------------------------------------------- */

/*
   Whether the old pattern can stay: the user wants to keep it, the nonzeros of A are the same, and the factor is in the right
   memory and precision.
*/
static PetscBool CanKeepPattern(PC pc, const CSRView *A, PetscBool reuse_pattern, FinePCPrecision factor)
{
  const CSR *G = &((const PC_FSAI *)pc->data)->inverse.W1;

  return (PetscBool)(reuse_pattern && pc->flag == SAME_NONZERO_PATTERN && G->i && G->rows == A->n && G->where == A->where &&
                     G->precision == factor);
}

static PetscErrorCode MakeRoom(PC pc, const CSRView *A)
{
  PCInverse *M = &((PC_FSAI *)pc->data)->inverse;

  PetscFunctionBegin;
  PetscCall(PCLocalPlace(pc, A->where, A->n));
  PetscCall(PCInverseReset(M));
  M->where        = A->where;
  M->rows         = A->n;
  M->operator_nnz = A->nnz;
  PetscCall(ArrayCreate(A->n * sizeof(*M->d), M->where, (void **)&M->d));
  PetscCall(PCInverseNeedWork(M, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIPrepare(PC pc, const CSRView *A, PetscBool reuse_pattern, FinePCPrecision factor)
{
  PC_FSAI   *fsai = (PC_FSAI *)pc->data;
  PCInverse *M    = &fsai->inverse;

  PetscFunctionBegin;
  fsai->reused = CanKeepPattern(pc, A, reuse_pattern, factor);
  if (!fsai->reused) PetscCall(MakeRoom(pc, A));
  M->carry_bytes = fsai->carry.nnz ? CSRBytes(&fsai->carry) : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DescribeFailure(PC pc, const char type[], PCLocalOutcome *outcome)
{
  static const char *const texts[] = {"", "has an entry that is not finite", "has no diagonal entry",
                                      "has a diagonal entry that is not positive"};
  const FSAIStats         *stats   = &((PC_FSAI *)pc->data)->stats;
  char                     block[64];

  PetscFunctionBegin;
  outcome->reason = stats->failure == FSAI_NOT_FINITE ? PC_FACTOR_OTHER : PC_FACTOR_NUMERIC_ZEROPIVOT;
  PetscCall(PCLocalNameBlock(pc, block, sizeof(block)));
  PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                          "Row %" PetscInt_FMT "%s %s: %s needs a symmetric positive definite matrix", stats->failure_row, block,
                          texts[stats->failure], type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIComplete(PC pc, const char type[], PCLocalOutcome *outcome)
{
  PC_FSAI   *fsai = (PC_FSAI *)pc->data;
  PCInverse *M    = &fsai->inverse;

  PetscFunctionBegin;
  if (fsai->stats.failure) {
    PetscCall(PCInverseReset(M));
    PetscCall(DescribeFailure(pc, type, outcome));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscLogEventBegin(FinePC_Transpose, pc, 0, 0, 0));
  if (PetscMemTypeDevice(M->where)) PetscCall(CSRTranspose_CUDA(&M->W1, fsai->reused, &M->W2));
  else PetscCall(CSRTranspose_Host(&M->W1, fsai->reused, &M->W2));
  PetscCall(PetscLogEventEnd(FinePC_Transpose, pc, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCReset_FSAI(PC pc)
{
  PC_FSAI *fsai = (PC_FSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCReset_Local(pc));
  PetscCall(PCInverseReset(&fsai->inverse));
  fsai->stats  = FSAIStats{};
  fsai->reused = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- apply -------------------------------------------- */

/* G^T G is symmetric, and `transpose` does not matter. */
static PetscErrorCode Apply(PC pc, PetscBool, PetscInt columns, const PetscScalar *X, PetscInt ldx, PetscScalar *Y, PetscInt ldy,
                            PetscLogDouble *flops)
{
  PetscFunctionBegin;
  PetscCall(PCInverseApply(&((PC_FSAI *)pc->data)->inverse, columns, X, ldx, Y, ldy, flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAISetOperations(PC pc, PC_FSAI *fsai, PC_Local::Compute compute)
{
  PetscFunctionBegin;
  fsai->columns_at_once = kInverseColumns;
  PetscCall(PCLocalSetOperations(pc, fsai, compute, Apply));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- view, what is built ------------------------------------ */

PetscErrorCode PCView_FSAI(PC pc, PetscViewer viewer)
{
  const PC_FSAI   *fsai  = (const PC_FSAI *)pc->data;
  const FSAIStats *stats = &fsai->stats;
  const PCInverse *M     = &fsai->inverse;
  MPI_Comm         comm  = PetscObjectComm((PetscObject)pc);

  PetscFunctionBegin;
  if (pc->setupcalled && pc->failedreason) PetscCall(PCViewFailure_Local(pc, viewer));
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
    PetscCall(PetscViewerASCIIPrintf(
      viewer, "Kaporin number times det(A)^(1/n): %g with the diagonal alone, %g with G; ratio %g, the smaller the better\n",
      (double)PetscExpReal(log_sum[0] / rows), (double)PetscExpReal(log_sum[1] / rows),
      (double)PetscExpReal((log_sum[1] - log_sum[0]) / rows)));
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "rows solved again in double precision %" PetscInt64_FMT
                                     ", left with the diagonal entry alone %" PetscInt64_FMT
                                     ", too long for the fastest way to solve them %" PetscInt64_FMT "\n",
                                     sum[0], sum[1], sum[2]));
    if (sum[1])
      PetscCall(PetscViewerASCIIPrintf(
        viewer, "rows with the diagonal entry alone: the matrix is not positive definite there, or hardly, and CG may fail\n"));
    if (sum[2])
      PetscCall(PetscViewerASCIIPrintf(viewer,
                                       "long rows make the set-up slower: fewer steps, a lower power, a cap or a filter makes "
                                       "them shorter\n"));
    PetscCall(PCViewSymmetry_Local(pc, viewer));
    PetscCall(PetscViewerASCIIPrintf(viewer, "set-up memory beyond A, G and its transpose: %g bytes\n", (double)most[1]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetFactors(PC pc, Mat *G, Mat *Gt)
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

static PetscErrorCode GetInverse(PC pc, const PCInverse **inverse)
{
  PetscFunctionBegin;
  *inverse = &((PC_FSAI *)pc->data)->inverse;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAICompose(PC pc, const char get_factors[], PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, get_factors, compose ? Entry<GetFactors> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, kInverseQuery, compose ? Entry<GetInverse> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}
