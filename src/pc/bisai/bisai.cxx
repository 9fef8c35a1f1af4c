/*
   The PETSc face of block-ISAI: options, set-up, apply, view, life cycle. The method is in bisai_host.cxx, bilu_host.cxx and their
   twins.
*/
#include <petsc/private/pcimpl.h>

#include <petscdevice.h>

#include <limits>
#include <string>
#include <vector>

#include "finepcimpl.h"
#include "pc/pcinverse.h"
#include "sparse/bsr_csr.h"
#include "sparse/bsr_mat.h"
#include "bisai.h"

const char *const PCBISAIFactors[] = {"petsc", "cuda", "PCBISAIFactor", "PC_BISAI_FACTOR_", nullptr};

namespace
{

constexpr size_t kNameLength = 256; /* of an ordering */

/* Rows of PC_BISAI::vectors: between the factors, a residual, and both ends in the order of the factor. */
enum { VECTOR_MIDDLE, VECTOR_RESIDUAL, VECTOR_IN, VECTOR_OUT, VECTORS };

struct PC_BISAI {
  /* options */
  BISAIParams        params;
  PCBISAIFactor      factor       = PC_BISAI_FACTOR_PETSC;
  PetscInt           levels       = 0;
  MatFactorShiftType shift_type   = MAT_SHIFT_NONE;
  PetscReal          shift_amount = 100.0 * PETSC_MACHINE_EPSILON;
  std::string        ordering     = MATORDERINGNATURAL;

  /* built */
  bool         built = false;
  PetscMemType where = PETSC_MEMTYPE_HOST;
  PetscInt     bs = 1, n = 0;     /* block rows of this rank */
  PetscInt     operator_nnz = 0;  /* blocks */
  BSR          N[2]         = {}; /* NL and NU */
  BSR          R[2]         = {}; /* -L and -U, for the relaxation */
  PetscInt    *order[2]     = {}; /* [n] rows and columns of the operator in the order of the factor, or null */
  BILUStats    factor_stats = {};
  bool         own_factor   = false; /* PETSc's factorization did not do: its host twin's values are in the factor */
  BISAIStats   stats        = {};
  PetscBool    reused       = PETSC_FALSE; /* the last set-up kept all patterns */
  std::string  failure;                    /* why this rank's last set-up failed, or empty */

  /* work: what the next set-up on the same pattern finds, and what an apply needs */
  BSR          blocks  = {};      /* of the operator, where it does not have them itself */
  Mat          baij    = nullptr; /* the same for PETSc's factorization */
  Mat          petsc   = nullptr; /* PETSc's factor */
  BlockLU      host_lu = {};      /* its layout, where the inverses live on the device; it lends the values during a set-up */
  BlockLU      lu      = {};      /* the factor, where the inverses live; that layout on the host */
  BILUPlan    *plan    = nullptr;
  BISAIWork    work    = {};
  BSR          Nt[2]   = {}; /* transposes of N and R, made when PCApplyTranspose() is called */
  BSR          Rt[2]   = {};
  bool         turned  = false;   /* they have the values of the last set-up */
  PetscScalar *vectors = nullptr; /* [VECTORS * n * bs], or of VECTOR_MIDDLE alone */
  PetscScalar *staging = nullptr; /* [2 * n * bs] on the device, made when a host vector first meets device factors */

  std::vector<PetscInt> host_order[2]; /* [n], or empty */
};

} // namespace

static PetscErrorCode PCBISAISetPower_BISAI(PC pc, PetscInt n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 1 && n <= kBISAILargestPower, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_power is %" PetscInt_FMT ", but must be between 1 and 4", n);
  if (n != bisai->params.power) pc->setupcalled = PETSC_FALSE;
  bisai->params.power = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetPower_BISAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->params.power;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetPowerLower_BISAI(PC pc, PetscInt n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= kBISAILargestPower, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_power_lower is %" PetscInt_FMT ", but must be between 0 and 4", n);
  if (n != bisai->params.power_lower) pc->setupcalled = PETSC_FALSE;
  bisai->params.power_lower = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetPowerLower_BISAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->params.power_lower;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetPowerUpper_BISAI(PC pc, PetscInt n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= kBISAILargestPower, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_power_upper is %" PetscInt_FMT ", but must be between 0 and 4", n);
  if (n != bisai->params.power_upper) pc->setupcalled = PETSC_FALSE;
  bisai->params.power_upper = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetPowerUpper_BISAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->params.power_upper;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetFactor_BISAI(PC pc, PCBISAIFactor n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n == PC_BISAI_FACTOR_PETSC || n == PC_BISAI_FACTOR_CUDA, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_factor has no value %d", (int)n);
  if (n != bisai->factor) pc->setupcalled = PETSC_FALSE;
  bisai->factor = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetFactor_BISAI(PC pc, PCBISAIFactor *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->factor;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetFactorLevels_BISAI(PC pc, PetscInt n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_factor_levels is %" PetscInt_FMT ", but must be at least 0", n);
  if (n != bisai->levels) pc->setupcalled = PETSC_FALSE;
  bisai->levels = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetFactorLevels_BISAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->levels;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetFactorShiftType_BISAI(PC pc, MatFactorShiftType n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= MAT_SHIFT_NONE && n <= MAT_SHIFT_INBLOCKS, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_factor_shift_type has no value %d", (int)n);
  if (n != bisai->shift_type) pc->setupcalled = PETSC_FALSE;
  bisai->shift_type = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetFactorShiftType_BISAI(PC pc, MatFactorShiftType *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->shift_type;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetFactorShiftAmount_BISAI(PC pc, PetscReal n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_factor_shift_amount is %g, but must be at least 0", (double)n);
  if (n != bisai->shift_amount) pc->setupcalled = PETSC_FALSE;
  bisai->shift_amount = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetFactorShiftAmount_BISAI(PC pc, PetscReal *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->shift_amount;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetFactorMatOrderingType_BISAI(PC pc, MatOrderingType n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n && *n, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_factor_mat_ordering_type is empty, but must be a MatOrderingType");
  if (n != bisai->ordering) pc->setupcalled = PETSC_FALSE;
  bisai->ordering = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetFactorMatOrderingType_BISAI(PC pc, MatOrderingType *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->ordering.c_str();
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetFactorPrecision_BISAI(PC pc, FinePCPrecision n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n == FINEPC_SINGLE || n == FINEPC_DOUBLE, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_factor_precision has no value %d", (int)n);
  if (n != bisai->params.factor_precision) pc->setupcalled = PETSC_FALSE;
  bisai->params.factor_precision = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetFactorPrecision_BISAI(PC pc, FinePCPrecision *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->params.factor_precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAISetSweeps_BISAI(PC pc, PetscInt n)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_bisai_sweeps is %" PetscInt_FMT ", but must be at least 0", n);
  if (n != bisai->params.sweeps) pc->setupcalled = PETSC_FALSE;
  bisai->params.sweeps = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetSweeps_BISAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_BISAI *)pc->data)->params.sweeps;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetFromOptions_BISAI(PC pc, PetscOptionItems PetscOptionsObject)
{
  PC_BISAI          *bisai        = (PC_BISAI *)pc->data;
  BISAIParams        params       = bisai->params;
  PCBISAIFactor      factor       = bisai->factor;
  MatFactorShiftType shift_type   = bisai->shift_type;
  PetscInt           levels       = bisai->levels;
  PetscReal          shift_amount = bisai->shift_amount;
  char               ordering[kNameLength];
  PetscFunctionList  orderings;
  PetscBool          flg;

  PetscFunctionBegin;
  PetscOptionsHeadBegin(PetscOptionsObject, "Block-ISAI options");
  PetscCall(PetscOptionsInt("-pc_bisai_power", "Power whose pattern the inverses take", "PCBISAISetPower", params.power,
                            &params.power, &flg));
  if (flg) PetscCall(PCBISAISetPower(pc, params.power));
  PetscCall(PetscOptionsInt("-pc_bisai_power_lower", "The same for L alone", "PCBISAISetPowerLower", params.power_lower,
                            &params.power_lower, &flg));
  if (flg) PetscCall(PCBISAISetPowerLower(pc, params.power_lower));
  PetscCall(PetscOptionsInt("-pc_bisai_power_upper", "The same for U alone", "PCBISAISetPowerUpper", params.power_upper,
                            &params.power_upper, &flg));
  if (flg) PetscCall(PCBISAISetPowerUpper(pc, params.power_upper));
  PetscCall(PetscOptionsEnum("-pc_bisai_factor", "Where the triangular factors come from", "PCBISAISetFactor", PCBISAIFactors,
                             (PetscEnum)factor, (PetscEnum *)&factor, &flg));
  if (flg) PetscCall(PCBISAISetFactor(pc, factor));
  PetscCall(PetscOptionsInt("-pc_bisai_factor_levels", "Levels of fill", "PCBISAISetFactorLevels", levels, &levels, &flg));
  if (flg) PetscCall(PCBISAISetFactorLevels(pc, levels));
  PetscCall(PetscOptionsEnum("-pc_bisai_factor_shift_type", "Shift of zero pivots", "PCBISAISetFactorShiftType",
                             MatFactorShiftTypes, (PetscEnum)shift_type, (PetscEnum *)&shift_type, &flg));
  if (flg) PetscCall(PCBISAISetFactorShiftType(pc, shift_type));
  PetscCall(PetscOptionsReal("-pc_bisai_factor_shift_amount", "Shift of a zero pivot", "PCBISAISetFactorShiftAmount", shift_amount,
                             &shift_amount, &flg));
  if (flg) PetscCall(PCBISAISetFactorShiftAmount(pc, shift_amount));
  PetscCall(MatGetOrderingList(&orderings));
  PetscCall(PetscOptionsFList("-pc_bisai_factor_mat_ordering_type", "Ordering of the block rows", "PCBISAISetFactorMatOrderingType",
                              orderings, bisai->ordering.c_str(), ordering, sizeof(ordering), &flg));
  if (flg) PetscCall(PCBISAISetFactorMatOrderingType(pc, ordering));
  PetscCall(PetscOptionsEnum("-pc_bisai_factor_precision", "Precision of the stored inverses", "PCBISAISetFactorPrecision",
                             FinePCPrecisions, (PetscEnum)params.factor_precision, (PetscEnum *)&params.factor_precision, &flg));
  if (flg) PetscCall(PCBISAISetFactorPrecision(pc, params.factor_precision));
  PetscCall(
    PetscOptionsInt("-pc_bisai_sweeps", "Relaxation steps of an apply", "PCBISAISetSweeps", params.sweeps, &params.sweeps, &flg));
  if (flg) PetscCall(PCBISAISetSweeps(pc, params.sweeps));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- set-up ------------------------------------------- */

static PetscErrorCode CheckChoice(PC pc)
{
  const PC_BISAI *bisai = (const PC_BISAI *)pc->data;
  const MPI_Comm  comm  = PetscObjectComm((PetscObject)pc);

  PetscFunctionBegin;
  if (bisai->factor == PC_BISAI_FACTOR_PETSC) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(bisai->levels == 0, comm, PETSC_ERR_SUP,
             "-pc_bisai_factor cuda is block ILU(0), but -pc_bisai_factor_levels is %" PetscInt_FMT ": use -pc_bisai_factor petsc",
             bisai->levels);
  PetscCheck(bisai->shift_type == MAT_SHIFT_NONE, comm, PETSC_ERR_SUP,
             "-pc_bisai_factor cuda takes no -pc_bisai_factor_shift_type: use -pc_bisai_factor petsc");
  PetscCheck(
    bisai->ordering == MATORDERINGNATURAL, comm, PETSC_ERR_SUP,
    "-pc_bisai_factor cuda has the natural ordering, but -pc_bisai_factor_mat_ordering_type is %s: use -pc_bisai_factor petsc",
    bisai->ordering.c_str());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All that a set-up made; the options stay. */
static PetscErrorCode PCReset_BISAI(PC pc)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  for (int t = 0; t < 2; t++) {
    PetscCall(BSRDestroy(&bisai->N[t]));
    PetscCall(BSRDestroy(&bisai->R[t]));
    PetscCall(BSRDestroy(&bisai->Nt[t]));
    PetscCall(BSRDestroy(&bisai->Rt[t]));
    PetscCall(ArrayDestroy(bisai->where, (void **)&bisai->order[t]));
    bisai->host_order[t].clear();
  }
  PetscCall(BSRDestroy(&bisai->blocks));
  PetscCall(MatDestroy(&bisai->baij));
  PetscCall(MatDestroy(&bisai->petsc));
  PetscCall(BlockLUDestroy(&bisai->host_lu));
  if (PetscMemTypeDevice(bisai->where)) PetscCall(BILUPlanDestroy_CUDA(&bisai->plan));
  else PetscCall(BILUPlanDestroy_Host(&bisai->plan));
  PetscCall(BlockLUDestroy(&bisai->lu));
  PetscCall(ArrayDestroy(bisai->work.where, &bisai->work.data));
  PetscCall(ArrayDestroy(bisai->where, (void **)&bisai->vectors));
  PetscCall(ArrayDestroy(bisai->where, (void **)&bisai->staging));
  bisai->work         = BISAIWork{};
  bisai->factor_stats = BILUStats{};
  bisai->stats        = BISAIStats{};
  bisai->turned       = false;
  bisai->own_factor   = false;
  bisai->reused       = PETSC_FALSE;
  bisai->built        = false;
  bisai->where        = PETSC_MEMTYPE_HOST;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The matrix that PETSc factors: the operator itself, or its blocks as a MATSEQBAIJ. */
static PetscErrorCode GetPETScOperator(PC_BISAI *bisai, const BSRMat *mat, Mat *A)
{
  const BSRView *B = &mat->A;
  PetscBool      is_baij;
  PetscScalar   *a;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)mat->local, MATSEQBAIJ, &is_baij)); /* MATSEQBAIJCUDA is one on the host */
  *A = mat->local;
  if (is_baij) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(FinePC_BISAIConvert, mat->local, 0, 0, 0));
  if (!bisai->baij) {
    PetscCall(MatCreate(PETSC_COMM_SELF, &bisai->baij));
    PetscCall(MatSetSizes(bisai->baij, B->n * B->bs, B->n * B->bs, B->n * B->bs, B->n * B->bs));
    PetscCall(MatSetType(bisai->baij, MATSEQBAIJ));
    PetscCall(MatSeqBAIJSetPreallocationCSR(bisai->baij, B->bs, B->i, B->j, nullptr));
  }
  PetscCall(MatSeqBAIJGetArray(bisai->baij, &a));
  PetscCall(PetscArraycpy(a, B->a, (size_t)B->nnz * B->bs * B->bs));
  PetscCall(MatSeqBAIJRestoreArray(bisai->baij, &a));
  PetscCall(PetscObjectStateIncrease((PetscObject)bisai->baij));
  PetscCall(PetscLogEventEnd(FinePC_BISAIConvert, mat->local, 0, 0, 0));
  *A = bisai->baij;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ordering and the symbolic factorization. */
static PetscErrorCode FactorSymbolic(PC_BISAI *bisai, Mat A, const MatFactorInfo *info)
{
  IS order[2];

  PetscFunctionBegin;
  PetscCall(MatGetOrdering(A, bisai->ordering.c_str(), &order[0], &order[1]));
  for (int t = 0; t < 2; t++) {
    const PetscInt *index;
    PetscBool       identity;

    PetscCall(ISIdentity(order[t], &identity));
    if (identity) continue;
    PetscCall(ISGetIndices(order[t], &index));
    bisai->host_order[t].assign(index, index + bisai->n);
    PetscCall(ISRestoreIndices(order[t], &index));
    PetscCall(ArrayCreate(bisai->n * sizeof(*index), bisai->where, (void **)&bisai->order[t]));
    PetscCall(ArrayCopy(bisai->order[t], bisai->host_order[t].data(), bisai->n * sizeof(*index), bisai->where, PETSC_MEMTYPE_HOST));
  }
  PetscCall(MatGetFactor(A, MATSOLVERPETSC, MAT_FACTOR_ILU, &bisai->petsc));
  PetscCall(MatILUFactorSymbolic(bisai->petsc, A, order[0], order[1], info));
  for (int t = 0; t < 2; t++) PetscCall(ISDestroy(&order[t]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   PETSc's factor: rows of L in ia[0 .. n], then rows of U from ja[ia[n]] on, the last one first, each being its columns beyond the
   diagonal and then the diagonal, whose block is the inverse. The values stay where they are, until ReturnFactor().
*/
static PetscErrorCode ReadFactor(Mat factor, PetscInt bs, PetscBool keep, BlockLU *F)
{
  const PetscInt *ia, *ja;
  PetscInt        n;
  PetscBool       done;

  PetscFunctionBegin;
  PetscCall(MatGetRowIJ(factor, 0, PETSC_FALSE, PETSC_TRUE, &n, &ia, &ja, &done));
  PetscCheck(done, PETSC_COMM_SELF, PETSC_ERR_SUP, "PETSc's factor does not give its block rows: use -pc_bisai_factor cuda");
  if (!keep) {
    std::vector<PetscInt> begin(n), diagonal(n);
    PetscInt              nnz = ia[n];

    for (PetscInt row = n - 1; row >= 0; row--) {
      begin[row] = nnz;
      while (ja[nnz] != row) nnz++;
      diagonal[row] = nnz++;
    }
    PetscCall(BlockLUCreatePattern(bs, n, nnz, PETSC_MEMTYPE_HOST, F));
    PetscCall(PetscArraycpy(F->j, ja, nnz));
    for (PetscInt row = 0; row < n; row++) {
      F->place[LU_L][row]        = ia[row];
      F->place[LU_L_END][row]    = ia[row + 1];
      F->place[LU_U][row]        = begin[row];
      F->place[LU_U_END][row]    = diagonal[row];
      F->place[LU_DIAGONAL][row] = diagonal[row];
    }
  }
  PetscCall(MatSeqBAIJGetArray(factor, &F->a));
  PetscCall(MatRestoreRowIJ(factor, 0, PETSC_FALSE, PETSC_TRUE, &n, &ia, &ja, &done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ReturnFactor(PC_BISAI *bisai)
{
  BlockLU *F = PetscMemTypeDevice(bisai->where) ? &bisai->host_lu : &bisai->lu;

  PetscFunctionBegin;
  if (bisai->petsc && F->a) PetscCall(MatSeqBAIJRestoreArray(bisai->petsc, &F->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* To the place of the inverses. */
static PetscErrorCode CopyFactor(const BlockLU *from, PetscMemType where, PetscBool keep, BlockLU *to)
{
  const size_t bytes = (size_t)from->nnz * from->bs * from->bs * sizeof(PetscScalar);

  PetscFunctionBegin;
  if (!keep) {
    PetscCall(BlockLUCreate(from->bs, from->n, from->nnz, where, to));
    for (int p = 0; p < LU_PLACES; p++)
      PetscCall(ArrayCopy(to->place[p], from->place[p], from->n * sizeof(PetscInt), where, from->where));
    PetscCall(ArrayCopy(to->j, from->j, from->nnz * sizeof(PetscInt), where, from->where));
  }
  PetscCall(ArrayCopy(to->a, from->a, bytes, where, from->where));
  PetscCall(PetscLogCpuToGpu(keep ? bytes : BlockLUBytes(to)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   PETSc gives up at a zero pivot, and goes on with large numbers after a block that is singular to rounding. Then the values are
   computed anew, where PETSc has its own: the layout stays for the next set-ups.
*/
static PetscErrorCode FactorByPETSc(PC pc, const BSRMat *mat, PetscBool keep)
{
  PC_BISAI       *bisai = (PC_BISAI *)pc->data;
  const bool      copy  = PetscMemTypeDevice(bisai->where);
  BlockLU        *F     = copy ? &bisai->host_lu : &bisai->lu;
  const PetscInt *order[2];
  Mat             A = nullptr;
  MatFactorInfo   info;
  MatFactorError  error;

  PetscFunctionBegin;
  PetscCall(BILUCheck_Host(&mat->A, &bisai->factor_stats));
  if (bisai->factor_stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatFactorInfoInitialize(&info));
  info.levels    = (PetscReal)bisai->levels;
  info.fill      = 1;
  info.shifttype = (PetscReal)bisai->shift_type;
  /* blocks are shifted by it whatever the type */
  info.shiftamount   = bisai->shift_type == MAT_SHIFT_NONE ? 0 : bisai->shift_amount;
  info.zeropivot     = 100.0 * PETSC_MACHINE_EPSILON;
  info.pivotinblocks = 1;
  PetscCall(GetPETScOperator(bisai, mat, &A));
  if (!keep) PetscCall(FactorSymbolic(bisai, A, &info));
  PetscCall(MatFactorClearError(bisai->petsc));
  PetscCall(MatSetErrorIfFailure(A, PETSC_FALSE)); /* we look at the error ourselves */
  PetscCall(MatLUFactorNumeric(bisai->petsc, A, &info));
  PetscCall(MatSetErrorIfFailure(A, pc->erroriffailure));
  PetscCall(MatFactorGetError(bisai->petsc, &error));
  if (error && error != MAT_FACTOR_NUMERIC_ZEROPIVOT) {
    pc->failedreason = (PCFailedReason)error;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscLogEventBegin(FinePC_BISAICopy, bisai->petsc, 0, 0, 0));
  PetscCall(ReadFactor(bisai->petsc, bisai->bs, keep, F));
  PetscCall(PetscLogEventEnd(FinePC_BISAICopy, bisai->petsc, 0, 0, 0));
  for (int t = 0; t < 2; t++) order[t] = bisai->host_order[t].empty() ? nullptr : bisai->host_order[t].data();
  if (!error) PetscCall(BILUCheckFactor_Host(&mat->A, order[0], order[1], F, &bisai->factor_stats));
  bisai->own_factor = error || bisai->factor_stats.singular_blocks;
  if (bisai->own_factor) PetscCall(BILURepeat_Host(&mat->A, order[0], order[1], F, &bisai->factor_stats));
  if (copy) {
    PetscCall(PetscLogEventBegin(FinePC_BISAICopy, bisai->petsc, 0, 0, 0));
    PetscCall(CopyFactor(F, bisai->where, keep, &bisai->lu));
    PetscCall(PetscLogEventEnd(FinePC_BISAICopy, bisai->petsc, 0, 0, 0));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FactorByOurselves(PC_BISAI *bisai, const BSRView *A, PetscBool keep)
{
  const bool device = PetscMemTypeDevice(bisai->where);

  PetscFunctionBegin;
  if (!keep) {
    PetscCall((device ? BILUAnalyse_CUDA : BILUAnalyse_Host)(A, &bisai->lu, &bisai->plan, &bisai->factor_stats));
    if (bisai->factor_stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall((device ? BILUFactor_CUDA : BILUFactor_Host)(A, bisai->plan, &bisai->lu, &bisai->factor_stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* NL and NU, and what the relaxation needs. */
static PetscErrorCode Invert(PC pc, PetscBool keep)
{
  PC_BISAI          *bisai    = (PC_BISAI *)pc->data;
  const BISAIParams *params   = &bisai->params;
  const PetscInt     power[2] = {params->power_lower ? params->power_lower : params->power,
                             params->power_upper ? params->power_upper : params->power};
  const auto pattern = PetscMemTypeDevice(bisai->where) ? BISAIPattern_CUDA : BISAIPattern_Host;
  const auto invert  = PetscMemTypeDevice(bisai->where) ? BISAIInvert_CUDA : BISAIInvert_Host;
  const auto negate  = PetscMemTypeDevice(bisai->where) ? BISAINegate_CUDA : BISAINegate_Host;

  PetscFunctionBegin;
  for (BISAITriangle t : {BISAI_LOWER, BISAI_UPPER}) {
    /* the unit diagonal of NL only where it is multiplied by a residual */
    const PetscBool diagonal = (PetscBool)(t == BISAI_UPPER || params->sweeps > 0);

    if (!keep) {
      BISAIStats ignored{};

      PetscCall(PetscLogEventBegin(FinePC_BISAIPattern, pc, 0, 0, 0));
      PetscCall(pattern(&bisai->lu, t, diagonal, power[t], params->factor_precision, &bisai->N[t], &bisai->stats));
      if (params->sweeps) PetscCall(pattern(&bisai->lu, t, PETSC_TRUE, 1, params->factor_precision, &bisai->R[t], &ignored));
      PetscCall(PetscLogEventEnd(FinePC_BISAIPattern, pc, 0, 0, 0));
    }
    PetscCall(PetscLogEventBegin(FinePC_BISAIValues, pc, 0, 0, 0));
    PetscCall(invert(&bisai->lu, t, diagonal, params, &bisai->N[t], &bisai->work, &bisai->stats));
    if (params->sweeps) PetscCall(negate(&bisai->lu, t, &bisai->R[t], &bisai->work, &bisai->stats));
    PetscCall(PetscLogEventEnd(FinePC_BISAIValues, pc, 0, 0, 0));
  }
  if (!keep)
    PetscCall(ArrayCreate((params->sweeps || bisai->order[0] || bisai->order[1] ? VECTORS : 1) * (size_t)bisai->n * bisai->bs *
                            sizeof(PetscScalar),
                          bisai->where, (void **)&bisai->vectors));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the precision cannot hold and nothing can take the place of: a set-up with any of it is of no use. */
static PetscInt64 LostNumbers(const PC_BISAI *bisai)
{
  return bisai->stats.lost_diagonals + bisai->stats.lost_entries[BISAI_LOWER] + bisai->stats.lost_entries[BISAI_UPPER];
}

/*
   An unusable matrix: the reason that KSPSolve() reports and the text that the view shows, or an error if the user asked for
   errors. One rank's failure is everybody's: otherwise the others would wait in KSPSolve().
*/
static PetscErrorCode RecordFailure(PC pc)
{
  static const char *const texts[] = {"", "Row %" PetscInt_FMT " of this rank's block has an entry that is not finite",
                                      "Row %" PetscInt_FMT " of this rank's block is zero",
                                      "Block row %" PetscInt_FMT
                                      " of this rank's block has no diagonal block: store one, if only of zeros"};
  PC_BISAI                *bisai   = (PC_BISAI *)pc->data;
  const BILUStats         *stats   = &bisai->factor_stats;
  const PetscInt64         lost    = LostNumbers(bisai);
  char                     text[PETSC_MAX_PATH_LEN];

  PetscFunctionBegin;
  bisai->failure.clear();
  if (stats->failure) {
    PetscCall(PetscSNPrintf(text, sizeof(text), texts[stats->failure], stats->failure_row));
    bisai->failure   = text;
    pc->failedreason = stats->failure == BILU_NOT_FINITE ? PC_FACTOR_OTHER
                       : stats->failure == BILU_ROW_ZERO ? PC_FACTOR_NUMERIC_ZEROPIVOT
                                                         : PC_FACTOR_STRUCT_ZEROPIVOT;
  } else if (lost) {
    PetscCall(PetscSNPrintf(text, sizeof(text),
                            "%" PetscInt_FMT " diagonal blocks of the inverse of U and %" PetscInt64_FMT
                            " entries of L and U are too large or too small for %s precision: %s",
                            bisai->stats.lost_diagonals, lost - bisai->stats.lost_diagonals,
                            FinePCPrecisions[bisai->params.factor_precision],
                            bisai->params.factor_precision == FINEPC_SINGLE ? "use -pc_bisai_factor_precision double"
                                                                            : "scale equations and unknowns"));
    bisai->failure   = text;
    pc->failedreason = PC_FACTOR_OTHER;
  } else if (pc->failedreason) bisai->failure = "PETSc's factorization failed: use -pc_bisai_factor cuda";
  if (!bisai->failure.empty()) PetscCall(PetscInfo(pc, "%s\n", bisai->failure.c_str()));
  PetscCall(PCReduceFailedReason(pc));
  if (pc->failedreason && pc->erroriffailure) {
    PetscCheck(bisai->failure.empty(), PETSC_COMM_SELF, PETSC_ERR_MAT_LU_ZRPVT, "%s", bisai->failure.c_str());
    SETERRQ(PETSC_COMM_SELF, PETSC_ERR_MAT_LU_ZRPVT, "Another rank's block cannot be preconditioned");
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_BISAI(PC pc)
{
  PC_BISAI    *bisai = (PC_BISAI *)pc->data;
  const bool   petsc = bisai->factor == PC_BISAI_FACTOR_PETSC;
  BSRMat       mat;
  PetscMemType where;
  PetscInt     rows, columns, bs;

  PetscFunctionBegin;
  pc->failedreason = PC_NOERROR;
  pc->setupcalled  = PETSC_FALSE; /* PCSetUp() sets it at its end: after an error on the way the next set-up starts anew */
  PetscCall(MatGetSize(pc->pmat, &rows, &columns));
  PetscCheck(rows == columns, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_SIZ,
             "The matrix must be square, but is %" PetscInt_FMT " by %" PetscInt_FMT, rows, columns);
  PetscCall(CheckChoice(pc));
  PetscCall(MatGetBSRMemType(pc->pmat, &where));
  PetscCall(MatGetBlockSize(pc->pmat, &bs));
  const PetscBool keep = (PetscBool)(bisai->built && pc->flag == SAME_NONZERO_PATTERN && bisai->where == where && bisai->bs == bs);
  if (!keep) PetscCall(PCReset_BISAI(pc));
  bisai->built  = false;
  bisai->turned = false;
  bisai->where  = where;
  for (int t = 0; t < 2; t++) {
    bisai->stats.fallback_rows[t] = 0;
    bisai->stats.lost_entries[t]  = 0;
  }
  bisai->stats.lost_diagonals = 0;

  PetscCall(PetscLogEventBegin(FinePC_BISAIConvert, pc->pmat, 0, 0, 0));
  PetscCall(MatGetBSR(pc->pmat, petsc ? PETSC_MEMTYPE_HOST : where, keep, &bisai->blocks, &mat));
  PetscCall(PetscLogEventEnd(FinePC_BISAIConvert, pc->pmat, 0, 0, 0));
  bisai->bs           = mat.A.bs;
  bisai->n            = mat.A.n;
  bisai->operator_nnz = mat.A.nnz;
  PetscCall(PetscLogEventBegin(FinePC_BISAIFactor, pc, pc->pmat, 0, 0));
  const PetscErrorCode code = petsc ? FactorByPETSc(pc, &mat, keep) : FactorByOurselves(bisai, &mat.A, keep);
  PetscCall(PetscLogEventEnd(FinePC_BISAIFactor, pc, pc->pmat, 0, 0));
  PetscCall(MatRestoreBSR(&mat));
  PetscCall(code);
  if (!bisai->factor_stats.failure && !pc->failedreason) {
    PetscCall(PetscLogEventBegin(FinePC_BISAIInvert, pc, pc->pmat, 0, 0));
    PetscCall(Invert(pc, keep));
    PetscCall(PetscLogEventEnd(FinePC_BISAIInvert, pc, pc->pmat, 0, 0));
    bisai->built = !LostNumbers(bisai);
  }
  PetscCall(ReturnFactor(bisai));
  bisai->reused = keep;
  PetscCall(PetscObjectStateIncrease((PetscObject)pc));
  PetscCall(RecordFailure(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- apply -------------------------------------------- */

static PetscErrorCode Multiply(const PC_BISAI *bisai, const BSR *W, const PetscScalar *x, const PetscScalar *z, PetscScalar *y,
                               PetscBool after_product)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(bisai->where)) PetscCall(BSRMultiply_CUDA(W, x, z, y, after_product));
  else PetscCall(BSRMultiply_Host(W, x, z, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = N v, then z <- z + N (v - T z) for each sweep; R is -T. */
static PetscErrorCode ApplyTriangle(const PC_BISAI *bisai, const BSR *N, const BSR *R, PetscBool unit, PetscBool after_product,
                                    const PetscScalar *v, PetscScalar *z)
{
  PetscScalar *const residual = bisai->vectors + VECTOR_RESIDUAL * (size_t)bisai->n * bisai->bs;

  PetscFunctionBegin;
  PetscCall(Multiply(bisai, N, v, unit ? v : nullptr, z, after_product));
  for (PetscInt sweep = 0; sweep < bisai->params.sweeps; sweep++) {
    PetscCall(Multiply(bisai, R, z, v, residual, PETSC_TRUE));
    PetscCall(Multiply(bisai, N, residual, z, z, PETSC_TRUE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Permute(const PC_BISAI *bisai, const PetscInt *order, PetscBool scatter, const PetscScalar *x, PetscScalar *y)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(bisai->where)) PetscCall(BISAIPermute_CUDA(bisai->bs, bisai->n, order, scatter, x, y));
  else PetscCall(BISAIPermute_Host(bisai->bs, bisai->n, order, scatter, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   y = NU NL x, or y = NL^T NU^T x, in the memory of the factors. Sweeps give B = sum_k (I - N T)^k N for each triangle, and B^T is
   the same sum of N^T and T^T: the loop is the same.
*/
static PetscErrorCode ApplyFactors(const PC_BISAI *bisai, PetscBool transpose, const PetscScalar *x, PetscScalar *y)
{
  const size_t       rows = (size_t)bisai->n * bisai->bs, bs2 = (size_t)bisai->bs * bisai->bs;
  PetscScalar *const middle = bisai->vectors, *const in = bisai->vectors + VECTOR_IN * rows,
                     *const out = bisai->vectors + VECTOR_OUT * rows;
  const BSR *const N = transpose ? bisai->Nt : bisai->N, *const R = transpose ? bisai->Rt : bisai->R;
  const PetscInt *const from = bisai->order[transpose ? 1 : 0], *const to = bisai->order[transpose ? 0 : 1];
  const BISAITriangle first = transpose ? BISAI_UPPER : BISAI_LOWER, second = transpose ? BISAI_LOWER : BISAI_UPPER;
  /* its diagonal is not stored */
  const auto     unit  = [&](BISAITriangle t) { return (PetscBool)(t == BISAI_LOWER && !bisai->params.sweeps); };
  PetscLogDouble flops = 0;

  PetscFunctionBegin;
  for (int t = 0; t < 2; t++)
    flops += 2.0 * bs2 * ((1 + bisai->params.sweeps) * (PetscLogDouble)N[t].nnz + bisai->params.sweeps * (PetscLogDouble)R[t].nnz);
  if (PetscMemTypeDevice(bisai->where)) PetscCall(PetscLogGpuTimeBegin());
  if (from) PetscCall(Permute(bisai, from, PETSC_FALSE, x, in));
  PetscCall(ApplyTriangle(bisai, &N[first], &R[first], unit(first), PETSC_FALSE, from ? in : x, middle));
  PetscCall(ApplyTriangle(bisai, &N[second], &R[second], unit(second), PETSC_TRUE, middle, to ? out : y));
  if (to) PetscCall(Permute(bisai, to, PETSC_TRUE, out, y));
  if (PetscMemTypeDevice(bisai->where)) {
    PetscCall(PetscLogGpuTimeEnd());
    PetscCall(PetscLogGpuFlops(flops));
  } else PetscCall(PetscLogFlops(flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* With the values of the last set-up, in the memory of the last transposes. */
static PetscErrorCode NeedTransposes(PC pc)
{
  PC_BISAI  *bisai     = (PC_BISAI *)pc->data;
  const auto transpose = PetscMemTypeDevice(bisai->where) ? BSRTranspose_CUDA : BSRTranspose_Host;

  PetscFunctionBegin;
  if (bisai->turned) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(FinePC_Transpose, pc, 0, 0, 0));
  for (int t = 0; t < 2; t++) {
    PetscCall(transpose(&bisai->N[t], (PetscBool)(bisai->Nt[t].i != nullptr), &bisai->Nt[t]));
    if (bisai->params.sweeps) PetscCall(transpose(&bisai->R[t], (PetscBool)(bisai->Rt[t].i != nullptr), &bisai->Rt[t]));
  }
  PetscCall(PetscLogEventEnd(FinePC_Transpose, pc, 0, 0, 0));
  bisai->turned = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Apply(PC pc, PetscBool transpose, Vec x, Vec y)
{
  PC_BISAI          *bisai = (PC_BISAI *)pc->data;
  const PetscScalar *x_array;
  PetscScalar       *y_array;
  PetscMemType       x_where, y_where;
  const size_t       rows = (size_t)bisai->n * bisai->bs, bytes = rows * sizeof(PetscScalar);

  PetscFunctionBegin;
  if (pc->failedreason) { /* there is no factor: KSPSolve() looks for the reason when it meets this */
    PetscCall(VecSet(y, std::numeric_limits<PetscReal>::infinity()));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (transpose) PetscCall(NeedTransposes(pc));
  if (!PetscMemTypeDevice(bisai->where)) {
    PetscCall(VecGetArrayRead(x, &x_array));
    PetscCall(VecGetArrayWrite(y, &y_array));
    PetscCall(ApplyFactors(bisai, transpose, x_array, y_array));
    PetscCall(VecRestoreArrayWrite(y, &y_array));
    PetscCall(VecRestoreArrayRead(x, &x_array));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecGetArrayReadAndMemType(x, &x_array, &x_where));
  PetscCall(VecGetArrayWriteAndMemType(y, &y_array, &y_where));
  const PetscScalar *x_device = x_array;
  PetscScalar       *y_device = y_array;
  if (!PetscMemTypeDevice(x_where) || !PetscMemTypeDevice(y_where)) {
    if (!bisai->staging) PetscCall(ArrayCreate(2 * bytes, bisai->where, (void **)&bisai->staging));
    if (!PetscMemTypeDevice(x_where)) {
      PetscCall(ArrayCopy(bisai->staging, x_array, bytes, bisai->where, x_where));
      x_device = bisai->staging;
    }
    if (!PetscMemTypeDevice(y_where)) y_device = bisai->staging + rows;
  }
  PetscCall(ApplyFactors(bisai, transpose, x_device, y_device));
  if (y_device != y_array) PetscCall(ArrayCopy(y_array, y_device, bytes, y_where, bisai->where));
  else if (x_device != x_array) {
    /* the copy of x may still be on its way, if its memory is pinned; from now on it is the program's again */
    PetscDeviceContext context;

    PetscCall(PetscDeviceContextGetCurrentContext(&context));
    PetscCall(PetscDeviceContextSynchronize(context));
  }
  PetscCall(VecRestoreArrayWriteAndMemType(y, &y_array));
  PetscCall(VecRestoreArrayReadAndMemType(x, &x_array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApply_BISAI(PC pc, Vec x, Vec y)
{
  PetscFunctionBegin;
  PetscCall(Apply(pc, PETSC_FALSE, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApplyTranspose_BISAI(PC pc, Vec x, Vec y)
{
  PetscFunctionBegin;
  PetscCall(Apply(pc, PETSC_TRUE, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- view, life cycle -------------------------------------- */

/* The reason, and the text of the first rank that has one. */
static PetscErrorCode ViewFailure(PC pc, PetscViewer viewer)
{
  const PC_BISAI *bisai = (const PC_BISAI *)pc->data;
  const MPI_Comm  comm  = PetscObjectComm((PetscObject)pc);
  char            text[PETSC_MAX_PATH_LEN];
  PetscMPIInt     size, rank, mine, first;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  mine = bisai->failure.empty() ? size : rank;
  PetscCallMPI(MPIU_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm));
  PetscCall(PetscViewerASCIIPrintf(viewer, "set-up failed: %s\n", PCFailedReasons[pc->failedreason]));
  if (first == size) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrncpy(text, bisai->failure.c_str(), sizeof(text)));
  PetscCallMPI(MPI_Bcast(text, sizeof(text), MPI_CHAR, first, comm));
  if (size > 1) PetscCall(PetscViewerASCIIPrintf(viewer, "rank %d: %s\n", first, text));
  else PetscCall(PetscViewerASCIIPrintf(viewer, "%s\n", text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_BISAI(PC pc, PetscViewer viewer)
{
  const PC_BISAI *bisai = (const PC_BISAI *)pc->data;
  const MPI_Comm  comm  = PetscObjectComm((PetscObject)pc);
  PetscBool       is_ascii;
  PetscMPIInt     size;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(comm, &size));
  if (size > 1)
    PetscCall(PetscViewerASCIIPrintf(viewer, "block-local: each of %d ranks preconditions with its own diagonal block\n", size));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "patterns of power %" PetscInt_FMT " of L, %" PetscInt_FMT
                                   " of U; relaxation sweeps %" PetscInt_FMT "\n",
                                   bisai->params.power_lower ? bisai->params.power_lower : bisai->params.power,
                                   bisai->params.power_upper ? bisai->params.power_upper : bisai->params.power,
                                   bisai->params.sweeps));
  if (bisai->factor == PC_BISAI_FACTOR_PETSC)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "factors by PETSc, on the host: ILU(%" PetscInt_FMT
                                     "), ordering %s, shift type %s, amount %g\n",
                                     bisai->levels, bisai->ordering.c_str(), MatFactorShiftTypes[bisai->shift_type],
                                     (double)bisai->shift_amount));
  else if (pc->setupcalled && !pc->failedreason) {
    PetscInt levels = bisai->factor_stats.levels, most;

    PetscCallMPI(MPIU_Allreduce(&levels, &most, 1, MPIU_INT, MPI_MAX, comm));
    if (PetscMemTypeDevice(bisai->where))
      PetscCall(PetscViewerASCIIPrintf(viewer, "factors by CUDA: ILU(0) in %" PetscInt_FMT " levels of rows\n", most));
    else
      PetscCall(PetscViewerASCIIPrintf(viewer, "factors by the host twin of the CUDA ILU(0), since the matrix is on the host\n"));
  } else PetscCall(PetscViewerASCIIPrintf(viewer, "factors by CUDA: ILU(0)\n"));
  if (pc->setupcalled && pc->failedreason) PetscCall(ViewFailure(pc, viewer));
  else if (pc->setupcalled) {
    PetscInt64 count[8] = {bisai->factor_stats.singular_blocks,
                           bisai->stats.fallback_rows[BISAI_LOWER],
                           bisai->stats.fallback_rows[BISAI_UPPER],
                           bisai->n,
                           bisai->N[BISAI_LOWER].nnz,
                           bisai->N[BISAI_UPPER].nnz,
                           bisai->operator_nnz,
                           bisai->own_factor},
               sum[8];
    PetscInt64 max[3] = {bisai->stats.longest[BISAI_LOWER], bisai->stats.longest[BISAI_UPPER], (PetscInt64)bisai->stats.work_bytes},
               most[3];
    PetscLogDouble bytes[3] = {0,
                               (PetscLogDouble)(BlockLUBytes(&bisai->lu) + BlockLUBytes(&bisai->host_lu) +
                                                BSRBytes(&bisai->blocks)),
                               0},
                   all_bytes[3];

    for (int t = 0; t < 2; t++) bytes[0] += (PetscLogDouble)(BSRBytes(&bisai->N[t]) + BSRBytes(&bisai->R[t]));
    for (const BSR *W : {bisai->Nt, bisai->Rt})
      for (int t = 0; t < 2; t++) bytes[2] += W[t].i ? (PetscLogDouble)BSRBytes(&W[t]) : 0;
    for (Mat kept : {bisai->baij, bisai->petsc}) {
      MatInfo info;

      if (!kept) continue;
      PetscCall(MatGetInfo(kept, MAT_LOCAL, &info));
      bytes[1] += info.memory;
    }
    PetscCallMPI(MPIU_Allreduce(count, sum, 8, MPIU_INT64, MPI_SUM, comm));
    PetscCallMPI(MPIU_Allreduce(max, most, 3, MPIU_INT64, MPI_MAX, comm));
    PetscCallMPI(MPIU_Allreduce(bytes, all_bytes, 3, MPI_DOUBLE, MPI_SUM, comm));
    if (sum[7] && size > 1)
      PetscCall(PetscViewerASCIIPrintf(viewer,
                                       "PETSc's factorization met a singular diagonal block on %" PetscInt64_FMT
                                       " ranks: their factors were computed anew by the host twin of the CUDA factorization\n",
                                       sum[7]));
    else if (sum[7])
      PetscCall(PetscViewerASCIIPrintf(
        viewer, "PETSc's factorization met a singular diagonal block: the factors were computed anew by the host twin of the CUDA "
                "factorization\n"));
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "backend %s, block size %" PetscInt_FMT ", inverses stored in %s precision, patterns %s\n",
                                     PetscMemTypeDevice(bisai->where) ? "CUDA" : "host", bisai->bs,
                                     FinePCPrecisions[bisai->params.factor_precision],
                                     bisai->reused ? "kept from the last set-up" : "made at the last set-up"));
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "%" PetscInt64_FMT " block rows, %" PetscInt64_FMT " blocks of the matrix; NL %" PetscInt64_FMT
                                     " blocks, at most %" PetscInt64_FMT " a row, NU %" PetscInt64_FMT
                                     " blocks, at most %" PetscInt64_FMT " a row beside the diagonal\n",
                                     sum[3], sum[6], sum[4], most[0], sum[5], most[1]));
    PetscCall(PetscViewerASCIIPrintf(
      viewer, "%g bytes to apply, %g bytes of factors and blocks kept for the next set-up, set-up memory beyond these: %g bytes\n",
      all_bytes[0], all_bytes[1], (double)most[2]));
    if (all_bytes[2] > 0)
      PetscCall(PetscViewerASCIIPrintf(viewer, "%g bytes of transposes, made for PCApplyTranspose()\n", all_bytes[2]));
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "singular diagonal blocks replaced %" PetscInt64_FMT
                                     ", block rows fallen back to the diagonal: NL %" PetscInt64_FMT ", NU %" PetscInt64_FMT "\n",
                                     sum[0], sum[1], sum[2]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCBISAIGetFactors_BISAI(PC pc, Mat *NL, Mat *NU)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;
  MPI_Comm  comm  = PetscObjectComm((PetscObject)pc);

  PetscFunctionBegin;
  PetscCheck(pc->setupcalled && !pc->failedreason, comm, PETSC_ERR_ORDER, "The inverses exist after a PCSetUp() that did not fail");
  if (NL) PetscCall(MatCreateFromBSR(comm, &bisai->N[BISAI_LOWER], (PetscBool)!bisai->params.sweeps, NL));
  if (NU) PetscCall(MatCreateFromBSR(comm, &bisai->N[BISAI_UPPER], PETSC_FALSE, NU));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What PCFinePCGetApplyBytes() gives: both inverses, and vectors as they are read and written. */
static PetscErrorCode PCFinePCGetApplyBytes_BISAI(PC pc, PetscLogDouble *bytes)
{
  const PC_BISAI *bisai  = (const PC_BISAI *)pc->data;
  const PetscInt  sweeps = bisai->params.sweeps;
  const size_t    vector = (size_t)bisai->n * bisai->bs * sizeof(PetscScalar);

  PetscFunctionBegin;
  *bytes = 0;
  if (!bisai->built) PetscFunctionReturn(PETSC_SUCCESS);
  for (int t = 0; t < 2; t++)
    *bytes += (PetscLogDouble)((1 + sweeps) * BSRBytes(&bisai->N[t]) + sweeps * BSRBytes(&bisai->R[t]) + (2 + 6 * sweeps) * vector);
  for (int t = 0; t < 2; t++) *bytes += bisai->order[t] ? (PetscLogDouble)(2 * vector) : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What Create composes and Destroy takes away. */
static PetscErrorCode ComposeMethods(PC pc, PetscBool compose)
{
  using Method = void (*)(void);
  static const struct {
    const char *name;
    Method      method;
  } methods[] = {
    {"PCBISAISetPower_C", (Method)PCBISAISetPower_BISAI},
    {"PCBISAIGetPower_C", (Method)PCBISAIGetPower_BISAI},
    {"PCBISAISetPowerLower_C", (Method)PCBISAISetPowerLower_BISAI},
    {"PCBISAIGetPowerLower_C", (Method)PCBISAIGetPowerLower_BISAI},
    {"PCBISAISetPowerUpper_C", (Method)PCBISAISetPowerUpper_BISAI},
    {"PCBISAIGetPowerUpper_C", (Method)PCBISAIGetPowerUpper_BISAI},
    {"PCBISAISetFactor_C", (Method)PCBISAISetFactor_BISAI},
    {"PCBISAIGetFactor_C", (Method)PCBISAIGetFactor_BISAI},
    {"PCBISAISetFactorLevels_C", (Method)PCBISAISetFactorLevels_BISAI},
    {"PCBISAIGetFactorLevels_C", (Method)PCBISAIGetFactorLevels_BISAI},
    {"PCBISAISetFactorShiftType_C", (Method)PCBISAISetFactorShiftType_BISAI},
    {"PCBISAIGetFactorShiftType_C", (Method)PCBISAIGetFactorShiftType_BISAI},
    {"PCBISAISetFactorShiftAmount_C", (Method)PCBISAISetFactorShiftAmount_BISAI},
    {"PCBISAIGetFactorShiftAmount_C", (Method)PCBISAIGetFactorShiftAmount_BISAI},
    {"PCBISAISetFactorMatOrderingType_C", (Method)PCBISAISetFactorMatOrderingType_BISAI},
    {"PCBISAIGetFactorMatOrderingType_C", (Method)PCBISAIGetFactorMatOrderingType_BISAI},
    {"PCBISAISetFactorPrecision_C", (Method)PCBISAISetFactorPrecision_BISAI},
    {"PCBISAIGetFactorPrecision_C", (Method)PCBISAIGetFactorPrecision_BISAI},
    {"PCBISAISetSweeps_C", (Method)PCBISAISetSweeps_BISAI},
    {"PCBISAIGetSweeps_C", (Method)PCBISAIGetSweeps_BISAI},
    {"PCBISAIGetFactors_C", (Method)PCBISAIGetFactors_BISAI},
    {kApplyBytesQuery, (Method)PCFinePCGetApplyBytes_BISAI},
  };

  PetscFunctionBegin;
  for (const auto &entry : methods)
    PetscCall(PetscObjectComposeFunction((PetscObject)pc, entry.name, compose ? entry.method : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_BISAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCReset_BISAI(pc));
  PetscCall(ComposeMethods(pc, PETSC_FALSE));
  delete (PC_BISAI *)pc->data;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetPower - Sets the power p of the triangular factors whose patterns S(|L|^p) and S(|U|^p) the approximate inverses of
  `PCBISAI` take

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- power - 1 (default) to 4

  Options Database Key:
. -pc_bisai_power <power> - the power p of the triangular factors whose patterns S(|L|^p) and S(|U|^p) the approximate inverses of
                            `PCBISAI` take

  Level: intermediate

  Note:
  A larger power brings the iterations of `PCBISAI` closer to those of the exact triangular solves, and costs more in the set-up and
  in each apply. `PCBISAISetPowerLower()` and `PCBISAISetPowerUpper()` set it for one factor alone.

.seealso: `PCBISAI`, `PCBISAIGetPower()`
@*/
PetscErrorCode PCBISAISetPower(PC pc, PetscInt power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, power, 2);
  PetscTryMethod(pc, "PCBISAISetPower_C", (PC, PetscInt), (pc, power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetPower - Gets the power p of the triangular factors whose patterns S(|L|^p) and S(|U|^p) the approximate inverses of
  `PCBISAI` take

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. power - see `PCBISAISetPower()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetPower()`
@*/
PetscErrorCode PCBISAIGetPower(PC pc, PetscInt *power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(power, 2);
  PetscUseMethod(pc, "PCBISAIGetPower_C", (PC, PetscInt *), (pc, power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetPowerLower - Sets the power of `PCBISAISetPower()` for the inverse of L alone

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- power - 1 to 4, or 0 (default) for the one of `PCBISAISetPower()`

  Options Database Key:
. -pc_bisai_power_lower <power> - the power of `PCBISAISetPower()` for the inverse of L alone

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAIGetPowerLower()`
@*/
PetscErrorCode PCBISAISetPowerLower(PC pc, PetscInt power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, power, 2);
  PetscTryMethod(pc, "PCBISAISetPowerLower_C", (PC, PetscInt), (pc, power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetPowerLower - Gets the power of `PCBISAISetPower()` for the inverse of L alone

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. power - see `PCBISAISetPowerLower()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetPowerLower()`
@*/
PetscErrorCode PCBISAIGetPowerLower(PC pc, PetscInt *power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(power, 2);
  PetscUseMethod(pc, "PCBISAIGetPowerLower_C", (PC, PetscInt *), (pc, power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetPowerUpper - Sets the power of `PCBISAISetPower()` for the inverse of U alone

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- power - 1 to 4, or 0 (default) for the one of `PCBISAISetPower()`

  Options Database Key:
. -pc_bisai_power_upper <power> - the power of `PCBISAISetPower()` for the inverse of U alone

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAIGetPowerUpper()`
@*/
PetscErrorCode PCBISAISetPowerUpper(PC pc, PetscInt power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, power, 2);
  PetscTryMethod(pc, "PCBISAISetPowerUpper_C", (PC, PetscInt), (pc, power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetPowerUpper - Gets the power of `PCBISAISetPower()` for the inverse of U alone

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. power - see `PCBISAISetPowerUpper()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetPowerUpper()`
@*/
PetscErrorCode PCBISAIGetPowerUpper(PC pc, PetscInt *power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(power, 2);
  PetscUseMethod(pc, "PCBISAIGetPowerUpper_C", (PC, PetscInt *), (pc, power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetFactor - Sets where `PCBISAI` gets its block triangular factors from

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- factor - `PC_BISAI_FACTOR_PETSC` (default) or `PC_BISAI_FACTOR_CUDA`

  Options Database Key:
. -pc_bisai_factor <factor> - where `PCBISAI` gets its block triangular factors from

  Level: intermediate

  Note:
  PETSc factors on the host: its factor takes levels of fill, shifts and orderings, and is copied to the GPU where the inverses live
  there. The other one is block ILU(0) in the natural ordering, which stays on the GPU; its rows are eliminated level by level. Both
  are the same to rounding, for ILU(0).

.seealso: `PCBISAI`, `PCBISAIGetFactor()`
@*/
PetscErrorCode PCBISAISetFactor(PC pc, PCBISAIFactor factor)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, factor, 2);
  PetscTryMethod(pc, "PCBISAISetFactor_C", (PC, PCBISAIFactor), (pc, factor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetFactor - Gets where `PCBISAI` gets its block triangular factors from

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. factor - see `PCBISAISetFactor()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactor()`
@*/
PetscErrorCode PCBISAIGetFactor(PC pc, PCBISAIFactor *factor)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(factor, 2);
  PetscUseMethod(pc, "PCBISAIGetFactor_C", (PC, PCBISAIFactor *), (pc, factor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetFactorLevels - Sets the levels of fill of the factors of `PCBISAI`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- levels - 0 (default) or more

  Options Database Key:
. -pc_bisai_factor_levels <levels> - the levels of fill of the factors of `PCBISAI`

  Level: intermediate

  Note:
  As `PCFactorSetLevels()` for `PCILU`. More than 0 need `PC_BISAI_FACTOR_PETSC`.

.seealso: `PCBISAI`, `PCBISAIGetFactorLevels()`
@*/
PetscErrorCode PCBISAISetFactorLevels(PC pc, PetscInt levels)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, levels, 2);
  PetscTryMethod(pc, "PCBISAISetFactorLevels_C", (PC, PetscInt), (pc, levels));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetFactorLevels - Gets the levels of fill of the factors of `PCBISAI`

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. levels - see `PCBISAISetFactorLevels()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorLevels()`
@*/
PetscErrorCode PCBISAIGetFactorLevels(PC pc, PetscInt *levels)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(levels, 2);
  PetscUseMethod(pc, "PCBISAIGetFactorLevels_C", (PC, PetscInt *), (pc, levels));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetFactorShiftType - Sets how PETSc shifts zero pivots in the factors of `PCBISAI`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- shift_type - `MAT_SHIFT_NONE` (default) or `MAT_SHIFT_INBLOCKS`; with block size 1 also `MAT_SHIFT_NONZERO` and
               `MAT_SHIFT_POSITIVE_DEFINITE`

  Options Database Key:
. -pc_bisai_factor_shift_type <shift_type> - how PETSc shifts zero pivots in the factors of `PCBISAI`

  Level: intermediate

  Note:
  As `PCFactorSetShiftType()` for `PCILU`. Others than `MAT_SHIFT_NONE` need `PC_BISAI_FACTOR_PETSC`.

.seealso: `PCBISAI`, `PCBISAIGetFactorShiftType()`
@*/
PetscErrorCode PCBISAISetFactorShiftType(PC pc, MatFactorShiftType shift_type)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, shift_type, 2);
  PetscTryMethod(pc, "PCBISAISetFactorShiftType_C", (PC, MatFactorShiftType), (pc, shift_type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetFactorShiftType - Gets how PETSc shifts zero pivots in the factors of `PCBISAI`

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. shift_type - see `PCBISAISetFactorShiftType()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorShiftType()`
@*/
PetscErrorCode PCBISAIGetFactorShiftType(PC pc, MatFactorShiftType *shift_type)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(shift_type, 2);
  PetscUseMethod(pc, "PCBISAIGetFactorShiftType_C", (PC, MatFactorShiftType *), (pc, shift_type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetFactorShiftAmount - Sets by how much PETSc shifts zero pivots in the factors of `PCBISAI`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- amount - at least 0; 100 times the machine epsilon by default

  Options Database Key:
. -pc_bisai_factor_shift_amount <amount> - by how much PETSc shifts zero pivots in the factors of `PCBISAI`

  Level: intermediate

  Note:
  As `PCFactorSetShiftAmount()` for `PCILU`. It is not used with `MAT_SHIFT_NONE` or `PC_BISAI_FACTOR_CUDA`.

.seealso: `PCBISAI`, `PCBISAIGetFactorShiftAmount()`
@*/
PetscErrorCode PCBISAISetFactorShiftAmount(PC pc, PetscReal amount)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveReal(pc, amount, 2);
  PetscTryMethod(pc, "PCBISAISetFactorShiftAmount_C", (PC, PetscReal), (pc, amount));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetFactorShiftAmount - Gets by how much PETSc shifts zero pivots in the factors of `PCBISAI`

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. amount - see `PCBISAISetFactorShiftAmount()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorShiftAmount()`
@*/
PetscErrorCode PCBISAIGetFactorShiftAmount(PC pc, PetscReal *amount)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(amount, 2);
  PetscUseMethod(pc, "PCBISAIGetFactorShiftAmount_C", (PC, PetscReal *), (pc, amount));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetFactorMatOrderingType - Sets the ordering of the block rows in the factors of `PCBISAI`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- ordering - `MATORDERINGNATURAL` (default), or any other `MatOrderingType`

  Options Database Key:
. -pc_bisai_factor_mat_ordering_type <ordering> - the ordering of the block rows in the factors of `PCBISAI`

  Level: intermediate

  Note:
  As `PCFactorSetMatOrderingType()` for `PCILU`. Others than `MATORDERINGNATURAL` need `PC_BISAI_FACTOR_PETSC`.

.seealso: `PCBISAI`, `PCBISAIGetFactorMatOrderingType()`
@*/
PetscErrorCode PCBISAISetFactorMatOrderingType(PC pc, MatOrderingType ordering)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(ordering, 2);
  PetscTryMethod(pc, "PCBISAISetFactorMatOrderingType_C", (PC, MatOrderingType), (pc, ordering));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetFactorMatOrderingType - Gets the ordering of the block rows in the factors of `PCBISAI`

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. ordering - see `PCBISAISetFactorMatOrderingType()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorMatOrderingType()`
@*/
PetscErrorCode PCBISAIGetFactorMatOrderingType(PC pc, MatOrderingType *ordering)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(ordering, 2);
  PetscUseMethod(pc, "PCBISAIGetFactorMatOrderingType_C", (PC, MatOrderingType *), (pc, ordering));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetFactorPrecision - Sets the precision in which `PCBISAI` stores its approximate inverses

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- factor_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`

  Options Database Key:
. -pc_bisai_factor_precision <factor_precision> - the precision in which `PCBISAI` stores its approximate inverses

  Level: intermediate

  Note:
  They are computed, and products are summed, in double in any case. With `PCBISAISetSweeps()` the copies of L and U for the
  relaxation are stored in it too.

.seealso: `PCBISAI`, `PCBISAIGetFactorPrecision()`
@*/
PetscErrorCode PCBISAISetFactorPrecision(PC pc, FinePCPrecision factor_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, factor_precision, 2);
  PetscTryMethod(pc, "PCBISAISetFactorPrecision_C", (PC, FinePCPrecision), (pc, factor_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetFactorPrecision - Gets the precision in which `PCBISAI` stores its approximate inverses

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. factor_precision - see `PCBISAISetFactorPrecision()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactorPrecision()`
@*/
PetscErrorCode PCBISAIGetFactorPrecision(PC pc, FinePCPrecision *factor_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(factor_precision, 2);
  PetscUseMethod(pc, "PCBISAIGetFactorPrecision_C", (PC, FinePCPrecision *), (pc, factor_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAISetSweeps - Sets the relaxation steps that an apply of `PCBISAI` takes with each factor

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- sweeps - 0 (default) or more

  Options Database Key:
. -pc_bisai_sweeps <sweeps> - the relaxation steps that an apply of `PCBISAI` takes with each factor

  Level: intermediate

  Note:
  After z = N v each step does z <- z + N (v - T z), T being L or U: two more products. The error goes down as the powers of I - N
  T, which is nilpotent, so that enough steps give the exact triangular solve.

.seealso: `PCBISAI`, `PCBISAIGetSweeps()`
@*/
PetscErrorCode PCBISAISetSweeps(PC pc, PetscInt sweeps)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, sweeps, 2);
  PetscTryMethod(pc, "PCBISAISetSweeps_C", (PC, PetscInt), (pc, sweeps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetSweeps - Gets the relaxation steps that an apply of `PCBISAI` takes with each factor

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. sweeps - see `PCBISAISetSweeps()`

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetSweeps()`
@*/
PetscErrorCode PCBISAIGetSweeps(PC pc, PetscInt *sweeps)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(sweeps, 2);
  PetscUseMethod(pc, "PCBISAIGetSweeps_C", (PC, PetscInt *), (pc, sweeps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetFactors - Gets the approximate inverses NL and NU that `PCBISAI` has computed

  Collective

  Input Parameter:
. pc - the preconditioner context, set up

  Output Parameters:
+ NL - lower triangular `MATBAIJ` with unit diagonal, in double precision, or `NULL`
- NU - upper triangular, or `NULL`

  Level: advanced

  Notes:
  Both are copies that the caller destroys with `MatDestroy()`. Rows and columns are in the order of the factors, which is that of
  the matrix with `MATORDERINGNATURAL`.

  With several ranks they are block diagonal, a block per rank.

.seealso: `PCBISAI`
@*/
PetscErrorCode PCBISAIGetFactors(PC pc, Mat *NL, Mat *NU)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscUseMethod(pc, "PCBISAIGetFactors_C", (PC, Mat *, Mat *), (pc, NL, NU));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCBISAI - "bisai": block ILU whose triangular factors are replaced by their incomplete sparse approximate inverses, M^{-1} = NU NL

  Options Database Keys:
+ -pc_bisai_power <1> - power p of the patterns S(|L|^p), S(|U|^p)
. -pc_bisai_power_lower <0> - the same for L alone; 0: as power
. -pc_bisai_power_upper <0> - the same for U alone; 0: as power
. -pc_bisai_factor <petsc> - where L and U come from: petsc or cuda
. -pc_bisai_factor_levels <0> - levels of fill, with petsc
. -pc_bisai_factor_shift_type <none> - shift of zero pivots, with petsc
. -pc_bisai_factor_shift_amount <2.22045e-14> - size of the shift, with petsc
. -pc_bisai_factor_mat_ordering_type <natural> - ordering of the block rows, with petsc
. -pc_bisai_factor_precision <single> - precision of the stored inverses
- -pc_bisai_sweeps <0> - relaxation steps of an apply

  Level: intermediate

  Notes:
  Triangular solves wait for one row after the other; here they become two products with sparse block matrices. For each block row i
  of N, with J its columns, N_i(J) T(J, J) = I_i(J), where T is L or U: N T = I on the pattern of N, which is S(|T|^p), (6) and (7)
  of
  Ma, Hu, Yuan, Liu. (There it is columns and T N = I on the pattern. Where all paths between two rows have the same length, as with
  ILU(0) on grids with 5 or 7 points, both are the same.) The block rows are independent of each other.

  The matrix is a `MATBAIJ`, or a `MATAIJ` with a block size, `MatSetBlockSize()`; blocks of a `MATAIJ` that are stored in part are
  filled up with zeros, and a block size of 1 is point ISAI. Block sizes 1 to 8 are compiled, others up to 32 take a general path.
  With several ranks each takes its diagonal block, as `PCBJACOBI` does. Inside `PCASM` and `PCBJACOBI` it takes the sub-matrix;
  where
  `PCBJACOBI` has several blocks on a rank it does not hand on the block size of a `MATAIJ`, which a `MATBAIJ` keeps.

  The inverses are computed and applied on the GPU if the matrix makes its vectors there: `MATAIJCUSPARSE` and `MATBAIJCUDA` do, a
  `MATBAIJ` after
  `MatSetVecType(mat, VECCUDA)`. Vectors of the other kind are copied.

  `PCApplyTranspose()`, for `KSPBICG` and the like, makes transposes of both inverses when it is first called, and takes new values
  into them after
  each set-up.

  When only the values of the matrix change, patterns and orders stay, and a set-up computes values alone; with
  `PC_BISAI_FACTOR_CUDA`
  and `MATAIJCUSPARSE` it does so without going through the host.

  Where a diagonal block of U is singular or nearly so, a pivot being below 1e-13 of A's entries in its row and column, the diagonal
  block of A is inverted in its place, pivots raised to 1e-8 of these. PETSc's factorization does not do so: where it meets such a
  block
  or a zero pivot, L and U are computed anew on their pattern, by the host twin of `PC_BISAI_FACTOR_CUDA` and without the shift. A
  block row of
  NL or NU that comes out not finite keeps its diagonal block alone. The view counts what was replaced, and says who computed the
  factors.

  A row of zeros, a missing diagonal block and an entry that is not finite make the set-up fail with a `PCFailedReason`; the view
  names
  the row. So do diagonal blocks of U^{-1}, and with sweeps entries of L and U, that are beyond the range of the precision in which
  they are
  stored; other numbers that are too small for it become zero.

  Of the set-up's events in `-log_view`, BISAIConvert makes blocks of the matrix, BISAIFactor computes L and U, with BISAICopy,
  which brings PETSc's factor
  to where the inverses are, and BISAIInvert NL and NU: BISAIPattern their patterns, BISAIValues their values.

  Right preconditioning, `-ksp_pc_side right`, and `KSPGMRES` are what the paper measures.

  Reference:
  W. Ma, Y. Hu, W. Yuan, X. Liu, GPU preconditioning for block linear systems using block incomplete sparse approximate inverses,
  Scientific Programming 2021

.seealso: `PCILU`, `PCBJACOBI`, `PCASM`, `PCBISAISetPower()`, `PCBISAISetPowerLower()`, `PCBISAISetPowerUpper()`,
          `PCBISAISetFactor()`,
          `PCBISAISetFactorLevels()`, `PCBISAISetFactorShiftType()`, `PCBISAISetFactorShiftAmount()`,
          `PCBISAISetFactorMatOrderingType()`,
          `PCBISAISetFactorPrecision()`, `PCBISAISetSweeps()`, `PCBISAIGetFactors()`
M*/
PETSC_EXTERN PetscErrorCode PCCreate_BISAI(PC pc)
{
  PetscFunctionBegin;
  pc->data                = new PC_BISAI();
  pc->ops->apply          = PCApply_BISAI;
  pc->ops->applytranspose = PCApplyTranspose_BISAI;
  pc->ops->setup          = PCSetUp_BISAI;
  pc->ops->reset          = PCReset_BISAI;
  pc->ops->destroy        = PCDestroy_BISAI;
  pc->ops->setfromoptions = PCSetFromOptions_BISAI;
  pc->ops->view           = PCView_BISAI;
  PetscCall(ComposeMethods(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
