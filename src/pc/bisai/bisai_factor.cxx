/* This file gets the triangular factors of PCBISAI, from PETSc's block ILU or from our own block ILU(0). */
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "entry.h"
#include "finepcimpl.h"
#include "bisai_face.h"

/*
   Gets the matrix that PETSc factors, which is the operator itself if it is a MATSEQBAIJ, or a MATSEQBAIJ of its blocks, also where
   rows of zeros have got entries, so that there is no `local`.
*/
static PetscErrorCode GetPETScOperator(PC_BISAI *bisai, const BSRMat *mat, Mat *A)
{
  const BSRView *B       = &mat->A;
  PetscBool      is_baij = PETSC_FALSE;
  PetscScalar   *a;

  PetscFunctionBegin;
  if (mat->local) PetscCall(PetscObjectBaseTypeCompare((PetscObject)mat->local, MATSEQBAIJ, &is_baij)); /* and MATSEQBAIJCUDA */
  *A = mat->local;
  if (is_baij) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(FinePC_BISAIConvert, bisai->factors.baij, 0, 0, 0));
  if (!bisai->factors.baij) {
    PetscCall(MatCreate(PETSC_COMM_SELF, &bisai->factors.baij));
    PetscCall(MatSetSizes(bisai->factors.baij, B->n * B->bs, B->n * B->bs, B->n * B->bs, B->n * B->bs));
    PetscCall(MatSetType(bisai->factors.baij, MATSEQBAIJ));
    const PetscInts i(B->i, (size_t)B->n + 1), j(B->j, B->nnz);
    PetscCall(MatSeqBAIJSetPreallocationCSR(bisai->factors.baij, B->bs, i, j, nullptr));
  }
  PetscCall(MatSeqBAIJGetArray(bisai->factors.baij, &a));
  PetscCall(PetscArraycpy(a, B->a, (size_t)B->nnz * B->bs * B->bs));
  PetscCall(MatSeqBAIJRestoreArray(bisai->factors.baij, &a));
  PetscCall(PetscObjectStateIncrease((PetscObject)bisai->factors.baij));
  PetscCall(PetscLogEventEnd(FinePC_BISAIConvert, bisai->factors.baij, 0, 0, 0));
  *A = bisai->factors.baij;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the symbolic factorization with this ordering. An ordering that changes nothing is not kept. */
static PetscErrorCode FactorOrdered(PC_BISAI *bisai, Mat A, IS order[2], const MatFactorInfo *info)
{
  PetscFunctionBegin;
  for (int t = 0; t < 2; t++) {
    const PetscInt *index;
    PetscBool       identity;

    PetscCall(ISIdentity(order[t], &identity));
    if (identity) continue;
    bisai->factors.host_order[t].resize(bisai->n);
    PetscCall(ISGetIndices(order[t], &index));
    std::copy_n(index, bisai->n, bisai->factors.host_order[t].begin());
    PetscCall(ISRestoreIndices(order[t], &index));
    PetscCall(ArrayCreate(bisai->n * sizeof(LocalInt), bisai->where, (void **)&bisai->factors.order[t]));
    PetscCall(ArrayCopy(bisai->factors.order[t], bisai->factors.host_order[t].data(), bisai->n * sizeof(LocalInt), bisai->where,
                        PETSC_MEMTYPE_HOST));
  }
  PetscCall(MatGetFactor(A, MATSOLVERPETSC, MAT_FACTOR_ILU, &bisai->factors.petsc));
  PetscCall(MatILUFactorSymbolic(bisai->factors.petsc, A, order[0], order[1], info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the ordering and the symbolic factorization. */
static PetscErrorCode FactorSymbolic_BISAI(PC_BISAI *bisai, Mat A, const MatFactorInfo *info)
{
  IS order[2];

  PetscFunctionBegin;
  PetscCall(MatGetOrdering(A, bisai->ordering.c_str(), &order[0], &order[1]));
  const PetscErrorCode code = CallGuarded(FactorOrdered, bisai, A, order, info);
  for (int t = 0; t < 2; t++) PetscCall(ISDestroy(&order[t]));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Reads the layout of PETSc's factor. The rows of L are at ia[0 .. n] in ja. The rows of U follow from ja[ia[n]] on, the last row
   first. A row of U has the columns beyond its diagonal first, and then the diagonal, whose block is the inverse. The values stay
   where they are, and PETSc lends them until BISAIReturnTriangularFactors().
*/
static PetscErrorCode ReadFactor(Mat factor, LocalInt bs, PetscBool keep, BlockLU *F)
{
  const PetscInt *ia, *ja;
  PetscInt        rows;
  LocalInt        n, nnz;
  PetscBool       done;

  PetscFunctionBegin;
  PetscCall(MatGetRowIJ(factor, 0, PETSC_FALSE, PETSC_TRUE, &rows, &ia, &ja, &done));
  PetscCheck(done, PETSC_COMM_SELF, PETSC_ERR_SUP, "PETSc's factor does not give its block rows: use -pc_bisai_factor finepc");
  if (!keep) {
    std::vector<PetscInt> begin(rows), diagonal(rows);
    PetscInt              end = ia[rows];

    for (PetscInt row = rows - 1; row >= 0; row--) {
      begin[row] = end;
      while (ja[end] != row) end++;
      diagonal[row] = end++;
    }
    PetscCall(LocalIntCast(rows, "block rows", &n));
    PetscCall(LocalIntCast(end, "blocks in the factors", &nnz));
    PetscCall(BlockLUCreatePattern(bs, n, nnz, PETSC_MEMTYPE_HOST, F));
    PetscCall(LocalIntCopy_Host(nnz, ja, F->j));
    for (LocalInt row = 0; row < n; row++) {
      F->place[LU_L][row]        = (LocalInt)ia[row];
      F->place[LU_L_END][row]    = (LocalInt)ia[row + 1];
      F->place[LU_U][row]        = (LocalInt)begin[row];
      F->place[LU_U_END][row]    = (LocalInt)diagonal[row];
      F->place[LU_DIAGONAL][row] = (LocalInt)diagonal[row];
    }
  }
  PetscCall(MatSeqBAIJGetArray(factor, &F->a));
  PetscCall(MatRestoreRowIJ(factor, 0, PETSC_FALSE, PETSC_TRUE, &rows, &ia, &ja, &done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIReturnTriangularFactors(PC_BISAI *bisai)
{
  BlockLU *F = PetscMemTypeDevice(bisai->where) ? &bisai->factors.host_lu : &bisai->factors.lu;

  PetscFunctionBegin;
  if (bisai->factors.petsc && F->a) PetscCall(MatSeqBAIJRestoreArray(bisai->factors.petsc, &F->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies the factor into the memory of the inverses, which is on the device. With keep, only the values are copied. */
static PetscErrorCode CopyFactor_BISAI(const BlockLU *from, PetscMemType where, PetscBool keep, BlockLU *to)
{
  const size_t bytes = (size_t)from->nnz * from->bs * from->bs * sizeof(PetscScalar);

  PetscFunctionBegin;
  if (!keep) {
    PetscCall(BlockLUCreate(from->bs, from->n, from->nnz, where, to));
    for (int p = 0; p < LU_PLACES; p++)
      PetscCall(ArrayCopy(to->place[p], from->place[p], from->n * sizeof(LocalInt), where, from->where));
    PetscCall(ArrayCopy(to->j, from->j, from->nnz * sizeof(LocalInt), where, from->where));
  }
  PetscCall(ArrayCopy(to->a, from->a, bytes, where, from->where));
  PetscCall(PetscLogCpuToGpu(keep ? bytes : BlockLUBytes(to)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Has PETSc factor the operator. PETSc gives up at a zero pivot, and goes on with large numbers after a block that is singular to
   rounding. In both cases our own host twin computes the values anew, in the arrays of PETSc's factor, so that the layout stays for
   the next set-ups.
*/
static PetscErrorCode FactorByPETSc(PC pc, const BSRMat *mat, PetscBool keep, PCLocalOutcome *outcome)
{
  PC_BISAI       *bisai = (PC_BISAI *)pc->data;
  const bool      copy  = PetscMemTypeDevice(bisai->where);
  BlockLU        *F     = copy ? &bisai->factors.host_lu : &bisai->factors.lu;
  const LocalInt *order[2];
  Mat             A = nullptr;
  MatFactorInfo   info;
  MatFactorError  error;

  PetscFunctionBegin;
  PetscCall(BILUCheck_Host(&mat->A, &bisai->factors.stats));
  if (bisai->factors.stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatFactorInfoInitialize(&info));
  info.levels    = (PetscReal)bisai->levels;
  info.fill      = 1;
  info.shifttype = (PetscReal)bisai->shift_type;
  /* PETSc shifts blocks by this amount whatever the type is, so the amount must be 0 if no shift is wanted. */
  info.shiftamount   = bisai->shift_type == MAT_SHIFT_NONE ? 0 : bisai->shift_amount;
  info.zeropivot     = 100.0 * PETSC_MACHINE_EPSILON;
  info.pivotinblocks = 1;
  PetscCall(GetPETScOperator(bisai, mat, &A));
  if (!keep) PetscCall(FactorSymbolic_BISAI(bisai, A, &info));
  PetscCall(MatFactorClearError(bisai->factors.petsc));
  PetscCall(MatSetErrorIfFailure(A, PETSC_FALSE)); /* an error must not end the program here, since it is handled below */
  PetscCall(MatLUFactorNumeric(bisai->factors.petsc, A, &info));
  PetscCall(MatSetErrorIfFailure(A, pc->erroriffailure));
  PetscCall(MatFactorGetError(bisai->factors.petsc, &error));
  if (error && error != MAT_FACTOR_NUMERIC_ZEROPIVOT) {
    outcome->reason = (PCFailedReason)error;
    PetscCall(PetscStrncpy(outcome->text, "PETSc's factorization failed: use -pc_bisai_factor finepc", sizeof(outcome->text)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscLogEventBegin(FinePC_BISAICopy, bisai->factors.petsc, 0, 0, 0));
  PetscCall(ReadFactor(bisai->factors.petsc, bisai->bs, keep, F));
  PetscCall(PetscLogEventEnd(FinePC_BISAICopy, bisai->factors.petsc, 0, 0, 0));
  for (int t = 0; t < 2; t++) order[t] = bisai->factors.host_order[t].empty() ? nullptr : bisai->factors.host_order[t].data();
  if (!error) PetscCall(BILUCheckFactor_Host(&mat->A, order[0], order[1], F, &bisai->factors.stats));
  bisai->factors.own = error || bisai->factors.stats.singular_blocks;
  if (bisai->factors.own) PetscCall(BILURepeat_Host(&mat->A, order[0], order[1], F, &bisai->factors.stats));
  if (copy) {
    PetscCall(PetscLogEventBegin(FinePC_BISAICopy, bisai->factors.petsc, 0, 0, 0));
    PetscCall(CopyFactor_BISAI(F, bisai->where, keep, &bisai->factors.lu));
    PetscCall(PetscLogEventEnd(FinePC_BISAICopy, bisai->factors.petsc, 0, 0, 0));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FactorByOurselves(PC pc, const BSRView *A, PetscBool keep)
{
  PC_BISAI      *bisai  = (PC_BISAI *)pc->data;
  const bool     device = PetscMemTypeDevice(bisai->where);
  const LocalInt sweeps = (LocalInt)bisai->factor_sweeps;

  PetscFunctionBegin;
  if (!keep) {
    PetscCall(PetscLogEventBegin(FinePC_BISAIAnalyse, pc, 0, 0, 0));
    PetscCall(
      (device ? BILUAnalyse_CUDA : BILUAnalyse_Host)(A, sweeps, &bisai->factors.lu, &bisai->factors.plan, &bisai->factors.stats));
    PetscCall(PetscLogEventEnd(FinePC_BISAIAnalyse, pc, 0, 0, 0));
    if (bisai->factors.stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(
    (device ? BILUFactor_CUDA : BILUFactor_Host)(A, sweeps, bisai->factors.plan, &bisai->factors.lu, &bisai->factors.stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

std::string BISAIAskedOfPETSc(const PC_BISAI *bisai)
{
  if (bisai->levels) return "-pc_bisai_factor_levels " + std::to_string(bisai->levels);
  if (bisai->shift_type != MAT_SHIFT_NONE)
    return std::string("-pc_bisai_factor_shift_type ") + MatFactorShiftTypes[bisai->shift_type];
  if (bisai->ordering != MATORDERINGNATURAL) return "-pc_bisai_factor_mat_ordering_type " + bisai->ordering;
  return "";
}

std::string BISAIAskedOfUs(const PC_BISAI *bisai)
{
  return bisai->factor_sweeps ? "-pc_bisai_factor_sweeps " + std::to_string(bisai->factor_sweeps) : "";
}

/*
   Our own block ILU(0) has no fill, no shift and no ordering, and PETSc's is exact. PETSc doubles the amount of a shift until the
   pivot is large enough.
*/
PetscErrorCode BISAIChooseFactor(PC pc, PetscMemType where, bool *by_petsc)
{
  const PC_BISAI   *bisai = (const PC_BISAI *)pc->data;
  const MPI_Comm    comm  = PetscObjectComm((PetscObject)pc);
  const std::string petsc = BISAIAskedOfPETSc(bisai), ours = BISAIAskedOfUs(bisai);

  PetscFunctionBegin;
  PetscCheck(bisai->shift_type != MAT_SHIFT_NONZERO || bisai->shift_amount > 0, comm, PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_factor_shift_type nonzero with -pc_bisai_factor_shift_amount 0 would never end: give an amount above 0");
  switch (bisai->factor) {
  case PC_BISAI_FACTOR_AUTO:
    PetscCheck(petsc.empty() || ours.empty(), comm, PETSC_ERR_SUP,
               "%s takes PETSc's factorization and %s finepc's: leave out one of them", petsc.c_str(), ours.c_str());
    *by_petsc = ours.empty() && (!petsc.empty() || !PetscMemTypeDevice(where));
    break;
  case PC_BISAI_FACTOR_PETSC:
    PetscCheck(ours.empty(), comm, PETSC_ERR_SUP, "-pc_bisai_factor petsc factors exactly, without %s: use -pc_bisai_factor finepc",
               ours.c_str());
    *by_petsc = true;
    break;
  default:
    PetscCheck(petsc.empty(), comm, PETSC_ERR_SUP,
               "-pc_bisai_factor finepc is block ILU(0) in the natural ordering, without %s: use -pc_bisai_factor petsc",
               petsc.c_str());
    *by_petsc = false;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIGetTriangularFactors(PC pc, const BSRMat *mat, PetscBool keep, PCLocalOutcome *outcome)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(FinePC_BISAIFactor, pc, pc->pmat, 0, 0));
  const PetscErrorCode code =
    bisai->factors.by_petsc ? FactorByPETSc(pc, mat, keep, outcome) : FactorByOurselves(pc, &mat->A, keep);
  PetscCall(PetscLogEventEnd(FinePC_BISAIFactor, pc, pc->pmat, 0, 0));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}
