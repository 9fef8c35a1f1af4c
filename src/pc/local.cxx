/* The set-up and the view that all preconditioners of a rank's own diagonal block share. */
#include <petsc/private/pcimpl.h>

#include <petsctime.h>

#include <cstring>

#include "entry.h"
#include "localimpl.h"
#include "sparse/csr_mat.h"
#include "sparse/offload.h"

/* ------------------------------------------- set-up ------------------------------------------- */

PetscErrorCode PCLocalPlace(PC pc, PetscMemType where, LocalInt rows)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  if (local->where != where || local->rows != rows) {
    PetscCall(ArrayDestroy(local->where, (void **)&local->staging.array));
    local->staging.columns = 0;
  }
  local->where = where;
  local->rows  = rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FreeCarry(PC_Local *local)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(local->carry.W.where, (void **)&local->carry.between));
  PetscCall(CSRDestroy(&local->carry.W));
  PetscCall(CSRDestroy(&local->carry.Wt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes what products with W need. */
static PetscErrorCode CompleteCarry(PC_Local *local)
{
  const CSR *W = &local->carry.W;

  PetscFunctionBegin;
  if (!W->nnz) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((PetscMemTypeDevice(W->where) ? CSRTranspose_CUDA : CSRTranspose_Host)(W, PETSC_FALSE, &local->carry.Wt));
  PetscCall(ArrayCreate((size_t)local->columns_at_once * W->rows * sizeof(PetscScalar), W->where, (void **)&local->carry.between));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes W and what its products need. */
static PetscErrorCode MakeCarry(PC_Local *local, const CSRView *A, const PetscScalar *values)
{
  const bool on_device = PetscMemTypeDevice(A->where);

  PetscFunctionBegin;
  PetscCall((on_device ? CSRCarry_CUDA : CSRCarry_Host)(A, values, &local->carry.W));
  PetscCall(CompleteCarry(local));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscScalar PCLocalIsolated(const PC_Local *local)
{
  return local->diagonal.negative ? -local->diagonal.largest : local->diagonal.largest;
}

/* W becomes one that leaves out the rank's rows of zeros, if there are any. */
static PetscErrorCode Mask_Local(PC_Local *local, LocalInt n, PetscMemType where)
{
  const std::vector<LocalInt> &zero_rows = local->diagonal.zero_rows;
  CSR                          carry     = local->carry.W;

  PetscFunctionBegin;
  if (zero_rows.empty()) PetscFunctionReturn(PETSC_SUCCESS);
  local->carry.W = CSR{};
  const PetscErrorCode code =
    CallGuarded(CSRMask, (const CSR *)&carry, n, (LocalInt)zero_rows.size(), zero_rows.data(), where, &local->carry.W);
  PetscCall(CSRDestroy(&carry));
  PetscCall(code);
  PetscCall(CSRDestroy(&local->carry.Wt));
  PetscCall(ArrayDestroy(where, (void **)&local->carry.between));
  PetscCall(CompleteCarry(local));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalLeaveOutZeroRows(PC pc, LocalInt n, PetscMemType where)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  PetscCall(FreeCarry(local));
  PetscCall(Mask_Local(local, n, where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalCarries(PC pc, PetscBool *carries)
{
  PetscFunctionBegin;
  *carries = (PetscBool)(((const PC_Local *)pc->data)->carry.W.nnz > 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows that `compute` works on. */
struct Rows {
  CSRView      own;    /* of the rank's block */
  CSR          sorted; /* a copy of these, or of L, with sorted rows, or without arrays */
  CSR          sorted_L;
  CSR          L;       /* these rows and those of other ranks, or without arrays */
  LocalInt     first;   /* the first own row in L */
  CSRView      A;       /* what is computed on: L if there is one, without one-sided couplings if they are left out */
  CSR          with;    /* a copy of L, or of the block, whose rows of zeros have diagonal entries, or without arrays */
  PetscScalar *values;  /* the values of A if they are not those of the matrix */
  PetscScalar *carried; /* those of the rank's block without one-sided couplings, if A is L */
};

/*
   Counts one-sided couplings. If there are any and they are to be left out, copies the values with zeros in their place; otherwise
   `values` stays null. What an application carries over from isolated rows is in the rank's block alone.
*/
static PetscErrorCode GetSymmetricValues(PC_Local *local, OneSided one_sided, Rows *rows)
{
  CSRView *const A         = &rows->A;
  const bool     on_device = PetscMemTypeDevice(A->where);
  const auto     check     = on_device ? CSRSymmetry_CUDA : CSRSymmetry_Host;
  CSRSymmetry   *work, ignored{};

  PetscFunctionBegin;
  local->keeps_one_sided = one_sided == OneSided::KEEP;
  if (on_device && !local->symmetry_work)
    PetscCall(ArrayCreate(sizeof(*local->symmetry_work), A->where, (void **)&local->symmetry_work));
  work = local->symmetry_work;
  PetscCall(FreeCarry(local));
  PetscCall(check(A, rows->first, nullptr, work, &local->symmetry));
  if (!(local->symmetry.one_sided || local->symmetry.foreign) || one_sided == OneSided::KEEP) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayCreate(A->nnz * sizeof(*rows->values), A->where, (void **)&rows->values));
  PetscCall(check(A, rows->first, rows->values, work, &local->symmetry));
  const CSRView whole = *A;
  A->a                = rows->values;
  if (!rows->L.i) PetscCall(MakeCarry(local, &whole, rows->values));
  else {
    PetscCall(ArrayCreate(rows->own.nnz * sizeof(*rows->carried), A->where, (void **)&rows->carried));
    PetscCall(check(&rows->own, 0, rows->carried, work, &ignored));
    PetscCall(MakeCarry(local, &rows->own, rows->carried));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A becomes a copy with sorted rows, if they are not sorted. */
static PetscErrorCode Sort_Local(CSRView *A, CSR *sorted, LocalInt *unsorted)
{
  PetscFunctionBegin;
  PetscCall((PetscMemTypeDevice(A->where) ? CSRCountUnsorted_CUDA : CSRCountUnsorted_Host)(A, unsorted));
  if (!*unsorted) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CSRSort(A, sorted));
  *A = CSRView{A->n, sorted->nnz, sorted->i, sorted->j, (const PetscScalar *)sorted->a, A->where};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalSort(PC pc, CSRView *A, CSR *sorted)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  if (local->sorted && !local->unsorted) PetscFunctionReturn(PETSC_SUCCESS); /* the nonzeros are in the same order */
  PetscCall(Sort_Local(A, sorted, &local->unsorted));
  local->sorted = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A becomes -A, in a copy of its values. */
static PetscErrorCode Negate_Local(Rows *rows)
{
  CSRView *const A      = &rows->A;
  const auto     negate = PetscMemTypeDevice(A->where) ? ValuesNegate_CUDA : ValuesNegate_Host;

  PetscFunctionBegin;
  if (!rows->values) PetscCall(ArrayCreate(A->nnz * sizeof(*rows->values), A->where, (void **)&rows->values));
  PetscCall(negate((size_t)A->nnz, A->a, rows->values));
  A->a = rows->values;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Rows of zeros get their diagonal entry. Where the diagonals of all ranks were found to be right, gathered rows of other ranks
   without a diagonal entry are such rows, too.
*/
static PetscErrorCode Isolate_Local(const PC_Local *local, Rows *rows)
{
  CSRView *const           A = &rows->A;
  std::vector<PetscScalar> d;
  std::vector<LocalInt>    isolated;

  PetscFunctionBegin;
  if (!local->diagonal.all_zero_rows) PetscFunctionReturn(PETSC_SUCCESS);
  if (rows->first) PetscCall(PCLocalCopyDiagonal(A, &d));
  for (LocalInt row = 0; row < rows->first; row++)
    if (d[row] == 0) isolated.push_back(row);
  for (LocalInt row : local->diagonal.zero_rows) isolated.push_back(rows->first + row);
  if (isolated.empty()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CSRIsolate(A, (LocalInt)isolated.size(), isolated.data(), PCLocalIsolated(local), &rows->with));
  *A = CSRView{A->n, rows->with.nnz, rows->with.i, rows->with.j, (const PetscScalar *)rows->with.a, A->where};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetRows_Local(PC pc, OneSided one_sided, Rows *rows)
{
  PC_Local *local    = (PC_Local *)pc->data;
  LocalInt  unsorted = 0;

  PetscFunctionBegin;
  PetscCall(PCLocalSort(pc, &rows->own, &rows->sorted));
  if (local->extend) PetscCall(local->extend(pc, &rows->own, &rows->L, &rows->first));
  const CSR &L = rows->L;
  rows->A      = L.i ? CSRView{L.rows, L.nnz, L.i, L.j, (const PetscScalar *)L.a, L.where} : rows->own;
  if (L.i) PetscCall(Sort_Local(&rows->A, &rows->sorted_L, &unsorted)); /* rows of other ranks may not be sorted */
  PetscCall(Isolate_Local(local, rows));
  PetscCall(GetSymmetricValues(local, one_sided, rows));
  PetscCall(Mask_Local(local, rows->own.n, rows->own.where));
  if (one_sided == OneSided::LEAVE_OUT && local->diagonal.negative) PetscCall(Negate_Local(rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FreeRows(Rows *rows)
{
  PetscFunctionBegin;
  PetscCall(CSRDestroy(&rows->L));
  PetscCall(CSRDestroy(&rows->with));
  PetscCall(CSRDestroy(&rows->sorted));
  PetscCall(CSRDestroy(&rows->sorted_L));
  PetscCall(ArrayDestroy(rows->own.where, (void **)&rows->values));
  PetscCall(ArrayDestroy(rows->own.where, (void **)&rows->carried));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalComputeOnSymmetricRows(PC pc, Mat A, OneSided one_sided,
                                             PetscErrorCode (*on_rows)(PC, const CSRView *, PCLocalOutcome *),
                                             PCLocalOutcome *outcome)
{
  PC_Local *local = (PC_Local *)pc->data;
  CSRMat    mat;

  PetscFunctionBegin;
  PetscCall(MatGetPoints(A, (PetscBool)(local->same_nonzeros || local->has_points), &local->points, &mat));
  Rows rows{};
  rows.own            = mat.A;
  PetscErrorCode code = CallGuarded(GetRows_Local, pc, one_sided, &rows);
  if (!code) code = CallGuarded(on_rows, pc, (const CSRView *)&rows.A, outcome);
  const PetscErrorCode freed = FreeRows(&rows), restored = MatRestoreCSR(&mat);
  PetscCall(code);
  PetscCall(freed);
  PetscCall(restored);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalNameBlock(PC pc, char text[], size_t length)
{
  PetscMPIInt rank, size;

  PetscFunctionBegin;
  text[0] = 0;
  PetscCallMPI(MPI_Comm_rank(PetscObjectComm((PetscObject)pc), &rank));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  if (size > 1) PetscCall(PetscSNPrintf(text, length, " of rank %d's block", rank));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes a failure on which all ranks have agreed, if there is one, that of the PC. */
static PetscErrorCode Conclude_Local(PC pc, const PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  if (!outcome->reason) PetscFunctionReturn(PETSC_SUCCESS);
  pc->failedreason = outcome->reason;
  PetscCall(PetscStrncpy(((PC_Local *)pc->data)->failure, outcome->text, sizeof(outcome->text)));
  PetscCall(PetscInfo(pc, "%s\n", outcome->text));
  PetscCheck(!pc->erroriffailure, PetscObjectComm((PetscObject)pc), PETSC_ERR_MAT_LU_ZRPVT, "%s", outcome->text);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Whether the nonzeros are those of the last set-up on all ranks. pc->flag alone does not say so: MatAXPY() with other nonzeros, a
   second preallocation and MatTranspose() in place can leave the nonzero state of a matrix as it was.
*/
static PetscErrorCode CompareNonzeros(PC pc, PCLocalPhase *phase)
{
  PC_Local      *local = (PC_Local *)pc->data;
  PetscBool      same  = PETSC_FALSE;
  PetscErrorCode code  = PETSC_SUCCESS;

  PetscFunctionBegin;
  local->same_nonzeros = false;
  if (!phase->outcome->code) code = CallGuarded(MatFollowPattern, pc->pmat, &local->nonzeros, &same);
  bool changed = !same || pc->flag != SAME_NONZERO_PATTERN;
  PetscCall(PCLocalPhaseStep(phase, code, &changed));
  local->same_nonzeros = !changed;
  if (changed) local->sorted = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the factor: what other ranks are needed for first, then what a rank does alone. */
static PetscErrorCode Compute_Local(PC pc, PCLocalOutcome *outcome)
{
  PC_Local    *local = (PC_Local *)pc->data;
  PCLocalPhase phase{PetscObjectComm((PetscObject)pc), outcome, false};

  PetscFunctionBegin;
  PetscCall(PCLocalCheckAssembled(pc, outcome));
  PetscCall(CompareNonzeros(pc, &phase));
  if (local->gather && !phase.stopped) PetscCall(local->gather(pc, &phase));
  if (outcome->code || phase.stopped) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscErrorCode code = CallGuarded(local->compute, pc, outcome);
  if (code) {
    outcome->code    = code;
    outcome->text[0] = 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Connects the factors of all ranks, which all have one. */
static PetscErrorCode Connect_Local(PC pc, PCLocalOutcome *outcome)
{
  PCLocalPhase phase{PetscObjectComm((PetscObject)pc), outcome, false};

  PetscFunctionBegin;
  PetscCall(((PC_Local *)pc->data)->connect(pc, &phase));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Computes the factor. If the diagonal is at fault, looks at it as a whole, and computes once more if that may help. A matrix that
   had rows of zeros is looked at first, since values may have come there.
*/
static PetscErrorCode ComputeByDiagonal(PC pc, PCLocalOutcome *agreed)
{
  const PCLocalDiagonal *diagonal = &((PC_Local *)pc->data)->diagonal;
  PCLocalOutcome         ignored;

  PetscFunctionBegin;
  if (diagonal->all_zero_rows) PetscCall(PCLocalRun(pc, PCLocalExamineDiagonal, &ignored));
  PetscCall(PCLocalRun(pc, Compute_Local, agreed));
  if (!agreed->diagonal) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCLocalRun(pc, PCLocalExamineDiagonal, &ignored));
  if (diagonal->changed) PetscCall(PCLocalRun(pc, Compute_Local, agreed));
  if (agreed->diagonal && diagonal->Mixed()) {
    const size_t length = strlen(agreed->text);
    PetscCall(PetscSNPrintf(agreed->text + length, sizeof(agreed->text) - length,
                            "; row %" PetscInt_FMT " of the matrix has a positive diagonal entry and row %" PetscInt_FMT
                            " a negative one",
                            diagonal->first[0], diagonal->first[1]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The set-up where the rows of the matrix are used. An error of all ranks is that of the outcome. */
static PetscErrorCode SetUpThere(PC pc, PCLocalOutcome *outcome)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  local->staging.on_all = 0;
  local->reserved[0]    = 1; /* by the set-up itself */
  local->reserved[1]    = 0;
  local->has_points     = false;
  PetscCall(PCSetUp_Consolidated(pc, &local->consolidated, outcome));
  if (local->consolidated.group) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ComputeByDiagonal(pc, outcome));
  if (local->connect && !outcome->reason) PetscCall(PCLocalRun(pc, Connect_Local, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same, or the set-up on the host where the memory of the GPU ends and the program has not asked for the GPU. */
static PetscErrorCode SetUpSomewhere(PC pc, PCLocalOutcome *outcome)
{
  PetscBool fell;

  PetscFunctionBegin;
  PetscCall(MatTry(pc->pmat, (PetscObject)pc, &fell, [&](bool *on_all) {
    const PetscErrorCode code = SetUpThere(pc, outcome);
    *on_all                   = outcome->code != PETSC_SUCCESS;
    return code;
  }));
  if (!fell) PetscFunctionReturn(PETSC_SUCCESS);
  *outcome = PCLocalOutcome();
  PetscCall(PCLocalResetAgain(pc));
  pc->flag = DIFFERENT_NONZERO_PATTERN; /* nothing is left */
  PetscCall(SetUpThere(pc, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_Local(PC pc)
{
  PC_Local      *local = (PC_Local *)pc->data;
  PCLocalOutcome outcome;
  PetscInt       rows, columns;
  PetscLogDouble begin, end;
  bool           keep;

  PetscFunctionBegin;
  PetscCall(PCReuseDecide(pc, &keep));
  if (keep) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscTime(&begin));
  pc->failedreason  = PC_NOERROR;
  pc->setupcalled   = PETSC_FALSE; /* PCSetUp() sets this flag at its end; if an error prevents that, the next set-up starts anew */
  local->failure[0] = 0;
  PetscCall(MatGetSize(pc->pmat, &rows, &columns));
  PetscCheck(rows == columns, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_SIZ,
             "The matrix must be square, but is %" PetscInt_FMT " by %" PetscInt_FMT, rows, columns);
  const PetscInt64 reported = local->symmetry.one_sided;
  if (!local->copy_options || local->alone) PetscCall(MatChooseBackendApart(pc->pmat, pc));
  else PetscCall(MatChooseBackend(pc->pmat, (PetscObject)pc));
  PetscCall(PetscObjectStateIncrease((PetscObject)pc)); /* tells solvers that keep data of the factor that the factor is new */
  PetscErrorCode code = SetUpSomewhere(pc, &outcome);
  if (!code) code = Conclude_Local(pc, &outcome);
  if (code) PetscCall(MatLeave((PetscObject)pc));
  PetscCall(code);
  PetscCall(PetscTime(&end));
  PetscCall(PCReuseNoteSetUp(pc, end - begin));
  if (local->consolidated.group) PetscFunctionReturn(PETSC_SUCCESS);
  if (local->symmetry.one_sided && local->symmetry.one_sided != reported)
    PetscCall(
      PetscInfo(pc, "%" PetscInt64_FMT " couplings are one-sided: the matrix is not symmetric\n", local->symmetry.one_sided));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalSetOperations(PC pc, PC_Local *local, PC_Local::Compute compute, PC_Local::Apply apply)
{
  PetscFunctionBegin;
  local->compute          = compute;
  local->apply            = apply;
  pc->data                = local;
  pc->ops->setup          = Entry<PCSetUp_Local>;
  pc->ops->apply          = Entry<PCApply_Local>;
  pc->ops->applytranspose = Entry<PCApplyTranspose_Local>;
  pc->ops->matapply       = Entry<PCMatApply_Local>;
  PetscCall(PCReuseCompose(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCReset_Local(PC pc)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCReset_Consolidated(&local->consolidated));
  if (pc->setupcalled) PetscCall(MatLeave((PetscObject)pc)); /* in a set-up types call this to free what they have made */
  PetscCall(PCLocalPlace(pc, PETSC_MEMTYPE_HOST, 0));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&local->symmetry_work));
  PetscCall(FreeCarry(local));
  PetscCall(MatFreePatternWork(&local->nonzeros));
  PetscCall(MatFreePatternWork(&local->reuse.nonzeros));
  PetscCall(CSRDestroy(&local->points.copy));
  local->points     = MatPoints{};
  local->sorted     = false;
  local->failure[0] = 0;
  local->symmetry   = CSRSymmetry{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalResetAgain(PC pc)
{
  PC_Local *local = (PC_Local *)pc->data;

  PetscFunctionBegin;
  local->again              = true;
  const PetscErrorCode code = (*pc->ops->reset)(pc);
  local->again              = false;
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalCheckFactorHere(PC pc)
{
  PetscFunctionBegin;
  PetscCheck(!((const PC_Local *)pc->data)->consolidated.group, PetscObjectComm((PetscObject)pc), PETSC_ERR_SUP,
             "Ranks have come together, and the factor is one of the ranks that lead them: use -finepc_consolidate false");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- view -------------------------------------------- */

/* What applications to vectors of the host have cost since the set-up, where there have been any. */
static PetscErrorCode ViewStaging(PC pc, PetscViewer viewer)
{
  const PC_Local *local = (const PC_Local *)pc->data;
  PetscLogDouble  bytes = local->staging.on_all ? 2. * local->rows * sizeof(PetscScalar) : 0, all;
  PetscBool       sent;

  PetscFunctionBegin;
  PetscCall(MatIsOffloaded(pc->pmat, &sent));
  if (!sent) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPIU_Allreduce(&bytes, &all, 1, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  if (all > 0)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "each application sends a vector to the GPU and fetches another: %g bytes, which cgfused and "
                                     "gmresfused save\n",
                                     all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCViewBegin_Local(PC pc, PetscViewer viewer, PetscBool *is_ascii)
{
  const MatPoints      *points       = &((const PC_Local *)pc->data)->points;
  const PCConsolidated *consolidated = &((const PC_Local *)pc->data)->consolidated;
  PetscMPIInt           size;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, is_ascii));
  if (!*is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  if (pc->setupcalled && consolidated->group) {
    *is_ascii = PETSC_FALSE; /* the leaders show the rest */
    PetscCall(PCView_Consolidated(pc, consolidated, viewer));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  PetscCall(PCReuseView(pc, viewer));
  if (size > 1 && !((const PC_Local *)pc->data)->reaches_others)
    PetscCall(PetscViewerASCIIPrintf(viewer, "block-local: each of %d ranks preconditions with its own diagonal block\n", size));
  /* on all ranks, since a set-up that has failed may have left a copy on some of them */
  PetscLogDouble bytes = (PetscLogDouble)CSRBytes(&points->copy), all;
  PetscInt       bs;

  PetscCallMPI(MPIU_Allreduce(&bytes, &all, 1, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  PetscCallMPI(MPIU_Allreduce(&points->bs, &bs, 1, MPIU_INT, MPI_MAX, PetscObjectComm((PetscObject)pc)));
  if (bs)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "matrix of blocks of %" PetscInt_FMT " x %" PetscInt_FMT
                                     ", whose single entries are copied: %g bytes\n",
                                     bs, bs, (double)all));
  if (pc->setupcalled) {
    PetscCall(MatViewBackend(pc->pmat, viewer));
    PetscCall(ViewStaging(pc, viewer));
  }
  const PCLocalDiagonal *diagonal = &((const PC_Local *)pc->data)->diagonal;
  if (!pc->setupcalled || pc->failedreason) PetscFunctionReturn(PETSC_SUCCESS);
  if (diagonal->negative)
    PetscCall(PetscViewerASCIIPrintf(viewer, "the diagonal is negative: -A is preconditioned, and the sign given back\n"));
  PetscInt64 unsorted = ((const PC_Local *)pc->data)->unsorted;

  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &unsorted, 1, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  if (unsorted)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "entries out of the order of columns, or in the column of another one %" PetscInt64_FMT
                                     ": rows are sorted for the set-up\n",
                                     unsorted));
  if (diagonal->all_zero_rows)
    PetscCall(PetscViewerASCIIPrintf(viewer, "rows of zeros %" PetscInt64_FMT ": isolated, with an inverse of 0\n",
                                     diagonal->all_zero_rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCViewSymmetry_Local(PC pc, PetscViewer viewer)
{
  const PC_Local    *local    = (const PC_Local *)pc->data;
  const CSRSymmetry *symmetry = &local->symmetry;
  const MPI_Comm     comm     = PetscObjectComm((PetscObject)pc);
  PetscInt64         count[2] = {symmetry->one_sided, symmetry->unequal}, sum[2];
  PetscReal          largest;
  char               couplings[80] = "no coupling one-sided", pairs[64] = "no pair of entries unequal";

  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(count, sum, 2, MPIU_INT64, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(&symmetry->largest, &largest, 1, MPIU_REAL, MPIU_MAX, comm));
  if (sum[0])
    PetscCall(PetscSNPrintf(couplings, sizeof(couplings), "%" PetscInt64_FMT " couplings one-sided: %s", sum[0],
                            local->keeps_one_sided ? "kept" : "left out"));
  if (sum[1]) PetscCall(PetscSNPrintf(pairs, sizeof(pairs), "%" PetscInt64_FMT " pairs of entries unequal", sum[1]));
  PetscCall(PetscViewerASCIIPrintf(viewer, "symmetry: %s, %s\n", couplings, pairs));
  if (sum[0])
    PetscCall(PetscViewerASCIIPrintf(
      viewer, "one-sided: unless the guess has the boundary values (KSPSetInitialGuessNonzero()), CG may be slow or fail; "
              "MatZeroRowsColumns() avoids it\n"));
  if (sum[1])
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "not symmetric, entries differ by up to %g of the larger one: CG may fail, so use GMRES\n",
                                     (double)largest));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCViewFailure_Local(PC pc, PetscViewer viewer)
{
  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer, "set-up failed: %s\n", PCFailedReasons[pc->failedreason]));
  PetscCall(PetscViewerASCIIPrintf(viewer, "%s\n", ((const PC_Local *)pc->data)->failure));
  PetscFunctionReturn(PETSC_SUCCESS);
}
