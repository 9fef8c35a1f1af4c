/*
   The PETSc face of block-ISAI: options, set-up and life cycle. bisai_factor.cxx gets the triangular factors, bisai_apply.cxx
   applies the inverses, bisai_view.cxx shows them. The method itself is in bisai_host.cxx, bilu_host.cxx and their twins.
*/
#include <petsc/private/pcimpl.h>

#include "finepcimpl.h"
#include "options.h"
#include "pc/pcinverse.h"
#include "bisai_face.h"

const char *const PCBISAISides[]   = {"rows", "columns", "columns_rows", "rows_columns", "PCBISAISide", "PC_BISAI_SIDE_", nullptr};
const char *const PCBISAIFactors[] = {"auto", "petsc", "finepc", "cuda", "PCBISAIFactor", "PC_BISAI_FACTOR_", nullptr};

template <auto Member>
using Param = Field<&PC_BISAI::params, Member>;

static const Option<PC> kOptions[] = {
  /* power

     A larger power brings the iterations of `PCBISAI` closer to those of the exact triangular solves, and costs more in the
     set-up and in each apply. `PCBISAISetPowerLower()` and `PCBISAISetPowerUpper()` set the power for one factor alone. */
  {"-pc_bisai_power", "the power p of the patterns S(|L|^p) and S(|U|^p) that the approximate inverses take", "PCBISAISetPower",
   Param<&BISAIParams::power>(Between(1, kBISAILargestPower))},

  /* power: 0 for the one of `PCBISAISetPower()` */
  {"-pc_bisai_power_lower", "the power of the pattern for the inverse of L alone", "PCBISAISetPowerLower",
   Param<&BISAIParams::power_lower>(Between(0, kBISAILargestPower))},

  /* power: 0 for the one of `PCBISAISetPower()` */
  {"-pc_bisai_power_upper", "the power of the pattern for the inverse of U alone", "PCBISAISetPowerUpper",
   Param<&BISAIParams::power_upper>(Between(0, kBISAILargestPower))},

  /* side

     By rows, N T = I holds on the pattern of N; by columns, T N = I does, as in the paper. On grids with 5- and 7-point stencils
     there is no difference. On other matrices either side may need fewer iterations. The cost of an apply is the same; a set-up by
     columns also needs memory for the lists of the block columns. */
  {"-pc_bisai_side", "whether the triangular factors are inverted by block rows or by block columns", "PCBISAISetSide",
   Param<&BISAIParams::side>(OneOf(PCBISAISides))},

  /* factor

     PETSc computes its factor on the host. This factor takes levels of fill, shifts and orderings, and is copied to the GPU if the
     inverses are on the GPU. `PC_BISAI_FACTOR_FINEPC` is block ILU(0) in the natural ordering, computed where the matrix is. On the
     GPU this factor stays there, and its rows are eliminated level by level. For ILU(0) the two factors agree to rounding.

     `PC_BISAI_FACTOR_AUTO` uses finepc's factor if the matrix is on a GPU, and PETSc's if it is on the host. If levels of fill, a
     shift type or an ordering is set, it uses PETSc's factor everywhere; if sweeps are set, it uses finepc's. The view says which
     factor was used. */
  {"-pc_bisai_factor", "where the block triangular factors come from", "PCBISAISetFactor",
   Field<&PC_BISAI::factor>(OneOf(PCBISAIFactors))},

  /* levels: above 0 only with PETSc's factor

     The levels are those of `PCFactorSetLevels()` for `PCILU`. More than 0 levels need PETSc's factor, see `PCBISAISetFactor()`. */
  {"-pc_bisai_factor_levels", "the levels of fill of the triangular factors", "PCBISAISetFactorLevels",
   Field<&PC_BISAI::levels>(Between(0, kBISAIMostLevels))},

  /* shift_type: `MAT_SHIFT_NONE` or `MAT_SHIFT_INBLOCKS`; with block size 1 also `MAT_SHIFT_NONZERO` and
     `MAT_SHIFT_POSITIVE_DEFINITE`

     The type is that of `PCFactorSetShiftType()` for `PCILU`. Types other than `MAT_SHIFT_NONE` need PETSc's factor, see
     `PCBISAISetFactor()`. With `MAT_SHIFT_POSITIVE_DEFINITE`, PETSc may search for a shift forever if rows sum to 0. */
  {"-pc_bisai_factor_shift_type", "how PETSc shifts zero pivots in the triangular factors", "PCBISAISetFactorShiftType",
   Field<&PC_BISAI::shift_type>(OneOf(MatFactorShiftTypes)), Invalidates::VALUES},

  /* amount: the default is 100 times the machine epsilon

     The amount is that of `PCFactorSetShiftAmount()` for `PCILU`. It is not used with `MAT_SHIFT_NONE` or `PC_BISAI_FACTOR_FINEPC`.
     With `MAT_SHIFT_NONZERO` the amount must be above 0, which `PCSetUp()` checks. */
  {"-pc_bisai_factor_shift_amount", "by how much PETSc shifts zero pivots in the triangular factors", "PCBISAISetFactorShiftAmount",
   Field<&PC_BISAI::shift_amount>(AtLeast(0)), Invalidates::VALUES},

  /* ordering: `MATORDERINGNATURAL`, or any other `MatOrderingType`

     The ordering is that of `PCFactorSetMatOrderingType()` for `PCILU`. Orderings other than `MATORDERINGNATURAL` need
     `PC_BISAI_FACTOR_PETSC`. */
  {"-pc_bisai_factor_mat_ordering_type", "the ordering of the block rows in PETSc's triangular factors",
   "PCBISAISetFactorMatOrderingType", Field<&PC_BISAI::ordering>(OneOf(MatGetOrderingList))},

  /* sweeps: 0 for the exact block ILU(0), level by level

     The exact factorization on the GPU processes one level of block rows after the other, which is slow if there are many levels
     with few block rows each, as on grids in two dimensions. A sweep processes all block rows at once, and uses the rows of U from
     the previous sweep; the first sweep uses those of the matrix. These are the fixed-point sweeps of Chow and Patel, except that a
     block row of L is computed with the blocks of this row that the same sweep has found. As many sweeps as there are levels give
     the exact factors, and a few sweeps are often as good. All sweeps are synchronous, so that the same matrix always gives the
     same factors.

     Sweeps need `PC_BISAI_FACTOR_FINEPC`, and memory for a second copy of the values of L and U. On the host they are slower than
     the exact factorization, and are provided for comparison.

     Reference: E. Chow, A. Patel, Fine-grained parallel incomplete LU factorization, SIAM Journal on Scientific Computing 37
     (2015) C169-C193

     See also: `PCBISAISetFactor()` */
  {"-pc_bisai_factor_sweeps", "by how many sweeps over all block rows at once finepc computes the triangular factors",
   "PCBISAISetFactorSweeps", Field<&PC_BISAI::factor_sweeps>(Between(0, kBILUMostSweeps))},

  /* factor_precision: the inverses are always computed, and products summed, in double precision

     With `PCBISAISetSweeps()` the copies of L and U for the relaxation are stored in this precision, too. */
  {"-pc_bisai_factor_precision", "the precision in which the approximate inverses are stored", "PCBISAISetFactorPrecision",
   Param<&BISAIParams::factor_precision>(OneOf(FinePCPrecisions))},

  /* sweeps

     After z = N v, each step computes z <- z + N (v - T z), where T is L or U. This takes two more products. The error decreases
     with the powers of I - N T, which is nilpotent, so enough steps give the exact triangular solve. */
  {"-pc_bisai_sweeps", "the relaxation steps that an apply takes with each factor", "PCBISAISetSweeps",
   Param<&BISAIParams::sweeps>(Between(0, kBISAIMostSweeps))},
};
const OptionTable<PC> PC_BISAI::options{"Block-ISAI options", kOptions};

/* ------------------------------------------- set-up ------------------------------------------- */

/* Frees all that a set-up has made. The options stay. */
static PetscErrorCode PCReset_BISAI(PC pc)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;

  PetscFunctionBegin;
  for (int t = 0; t < 2; t++) {
    PetscCall(BSRDestroy(&bisai->N[t]));
    PetscCall(BSRDestroy(&bisai->R[t]));
    PetscCall(BSRDestroy(&bisai->transposes.N[t]));
    PetscCall(BSRDestroy(&bisai->transposes.R[t]));
    PetscCall(BISAIColumnsDestroy(&bisai->columns[t]));
    PetscCall(ArrayDestroy(bisai->where, (void **)&bisai->factors.order[t]));
    bisai->factors.host_order[t].clear();
  }
  PetscCall(BSRDestroy(&bisai->factors.blocks));
  PetscCall(MatDestroy(&bisai->factors.baij));
  PetscCall(MatDestroy(&bisai->factors.petsc));
  PetscCall(BlockLUDestroy(&bisai->factors.host_lu));
  if (PetscMemTypeDevice(bisai->where)) PetscCall(BILUPlanDestroy_CUDA(&bisai->factors.plan));
  else PetscCall(BILUPlanDestroy_Host(&bisai->factors.plan));
  PetscCall(BlockLUDestroy(&bisai->factors.lu));
  PetscCall(ArrayDestroy(bisai->work.where, &bisai->work.data));
  PetscCall(ArrayDestroy(bisai->where, (void **)&bisai->vectors.data));
  bisai->vectors.columns    = 0;
  bisai->work               = BISAIWork{};
  bisai->factors.stats      = BILUStats{};
  bisai->stats              = BISAIStats{};
  bisai->transposes.current = false;
  bisai->factors.own        = false;
  bisai->factors.by_petsc   = false;
  bisai->reused             = PETSC_FALSE;
  bisai->built              = false;
  PetscCall(PCReset_Local(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes NL and NU, and -L and -U if there is a relaxation. */
static PetscErrorCode Invert_BISAI(PC pc, PetscBool keep)
{
  PC_BISAI          *bisai    = (PC_BISAI *)pc->data;
  const BISAIParams *params   = &bisai->params;
  const PetscInt     power[2] = {params->power_lower ? params->power_lower : params->power,
                             params->power_upper ? params->power_upper : params->power};
  const auto pattern = PetscMemTypeDevice(bisai->where) ? BISAIPattern_CUDA : BISAIPattern_Host;
  const auto columns = PetscMemTypeDevice(bisai->where) ? BISAIFindColumns_CUDA : BISAIFindColumns_Host;
  const auto invert  = PetscMemTypeDevice(bisai->where) ? BISAIInvert_CUDA : BISAIInvert_Host;
  const auto negate  = PetscMemTypeDevice(bisai->where) ? BISAINegate_CUDA : BISAINegate_Host;

  PetscFunctionBegin;
  for (BISAITriangle t : {BISAI_LOWER, BISAI_UPPER}) {
    /* The relaxation multiplies NL by a residual, for which NL needs its unit diagonal. Without relaxation it is not stored. */
    const PetscBool diagonal   = (PetscBool)(t == BISAI_UPPER || params->sweeps > 0);
    const bool      by_columns = BISAIByColumns(params->side, t);

    if (!keep) {
      BISAIStats ignored{};

      PetscCall(PetscLogEventBegin(FinePC_BISAIPattern, pc, 0, 0, 0));
      PetscCall(
        pattern(&bisai->factors.lu, t, diagonal, (LocalInt)power[t], params->factor_precision, &bisai->N[t], &bisai->stats));
      if (by_columns) PetscCall(columns(&bisai->factors.lu, t, diagonal, &bisai->N[t], &bisai->columns[t], &bisai->stats));
      if (params->sweeps)
        PetscCall(pattern(&bisai->factors.lu, t, PETSC_TRUE, 1, params->factor_precision, &bisai->R[t], &ignored));
      PetscCall(PetscLogEventEnd(FinePC_BISAIPattern, pc, 0, 0, 0));
    }
    PetscCall(PetscLogEventBegin(FinePC_BISAIValues, pc, 0, 0, 0));
    PetscCall(invert(&bisai->factors.lu, t, diagonal, params, by_columns ? &bisai->columns[t] : nullptr, &bisai->N[t], &bisai->work,
                     &bisai->stats));
    if (params->sweeps) PetscCall(negate(&bisai->factors.lu, t, &bisai->R[t], &bisai->work, &bisai->stats));
    PetscCall(PetscLogEventEnd(FinePC_BISAIValues, pc, 0, 0, 0));
  }
  if (!keep) PetscCall(BISAINeedVectors(bisai, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Counts the blocks and entries that the precision cannot hold and that nothing can replace. With any of them a set-up fails. */
static PetscInt64 LostNumbers(const PC_BISAI *bisai)
{
  return bisai->stats.lost_diagonals + bisai->stats.lost_entries[BISAI_LOWER] + bisai->stats.lost_entries[BISAI_UPPER];
}

/* Describes in the outcome a matrix that cannot be factored, or whose inverses the precision cannot hold. */
static PetscErrorCode DescribeFailure_BISAI(PC pc, PCLocalOutcome *outcome)
{
  PC_BISAI        *bisai  = (PC_BISAI *)pc->data;
  const BILUStats *stats  = &bisai->factors.stats;
  const PetscInt64 lost   = LostNumbers(bisai);
  const bool       single = bisai->params.factor_precision == FINEPC_SINGLE;
  char             block[64];

  PetscFunctionBegin;
  PetscCall(PCLocalNameBlock(pc, block, sizeof(block)));
  switch (stats->failure) {
  case BILU_NOT_FINITE:
    outcome->reason = PC_FACTOR_OTHER;
    PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text), "Row %" LocalInt_FMT "%s has an entry that is not finite",
                            stats->failure_row, block));
    break;
  case BILU_ROW_ZERO:
    outcome->reason   = PC_FACTOR_NUMERIC_ZEROPIVOT;
    outcome->diagonal = true;
    PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text), "Row %" LocalInt_FMT "%s is zero", stats->failure_row, block));
    break;
  case BILU_DIAGONAL_MISSING:
    outcome->reason   = PC_FACTOR_STRUCT_ZEROPIVOT;
    outcome->diagonal = true;
    PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                            "Block row %" LocalInt_FMT "%s has no diagonal block: store one, if only of zeros", stats->failure_row,
                            block));
    break;
  case BILU_OK:
    if (!lost) break;
    outcome->reason = PC_FACTOR_OTHER;
    PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                            "%" LocalInt_FMT " diagonal blocks of the inverse of U and %" PetscInt64_FMT
                            " entries of L and U%s are too large or too small for %s precision: %s",
                            bisai->stats.lost_diagonals, lost - bisai->stats.lost_diagonals, block,
                            FinePCPrecisions[bisai->params.factor_precision],
                            single ? "use -pc_bisai_factor_precision double" : "scale equations and unknowns"));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Decides whether the patterns of the last set-up can stay, and frees everything that the last set-up has made if not. */
static PetscErrorCode Prepare_BISAI(PC pc, PetscBool *keep)
{
  PC_BISAI    *bisai = (PC_BISAI *)pc->data;
  PetscMemType where;
  PetscInt     bs, all;
  LocalInt     rows;
  bool         by_petsc;

  PetscFunctionBegin;
  PetscCall(MatGetBSRMemType(pc->pmat, &where));
  PetscCall(BISAIChooseFactor(pc, where, &by_petsc));
  PetscCall(MatGetBlockSize(pc->pmat, &bs));
  PetscCall(MatGetLocalSize(pc->pmat, &all, nullptr));
  PetscCall(LocalIntCast(all, "rows", &rows));
  *keep = (PetscBool)(bisai->built && bisai->same_nonzeros && bisai->where == where && bisai->bs == bs &&
                      bisai->factors.by_petsc == by_petsc);
  if (!*keep) PetscCall(PCReset_BISAI(pc));
  PetscCall(PCLocalPlace(pc, where, rows));
  bisai->built              = false;
  bisai->transposes.current = false;
  bisai->factors.by_petsc   = by_petsc;
  for (int t = 0; t < 2; t++) {
    bisai->stats.fallback_lines[t] = 0;
    bisai->stats.lost_entries[t]   = 0;
  }
  bisai->stats.lost_diagonals = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The triangular factors of a matrix whose rows of zeros have diagonal entries. */
static PetscErrorCode FactorIsolated(PC pc, const BSRMat *mat, PetscBool keep, PCLocalOutcome *outcome)
{
  const PC_Local              *local = (const PC_Local *)pc->data;
  const std::vector<LocalInt> &rows  = local->diagonal.zero_rows;
  BSRMat                       with{};
  BSR                          copy{};

  PetscFunctionBegin;
  PetscErrorCode code = CallGuarded(BSRIsolate, &mat->A, (LocalInt)rows.size(), rows.data(), PCLocalIsolated(local), &copy);
  if (!code) {
    with.A = BSRViewOf(&copy);
    code   = CallGuarded(BISAIGetTriangularFactors, pc, (const BSRMat *)&with, keep, outcome);
  }
  PetscCall(BSRDestroy(&copy));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the inverses of the triangular factors of the rank's block, or describes in the outcome why there are none. */
static PetscErrorCode PCSetUp_BISAI(PC pc, PCLocalOutcome *outcome)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;
  BSRMat    mat;
  PetscBool keep = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(Prepare_BISAI(pc, &keep));
  PetscCall(PetscLogEventBegin(FinePC_BISAIConvert, pc->pmat, 0, 0, 0));
  PetscCall(MatGetBSR(pc->pmat, bisai->factors.by_petsc ? PETSC_MEMTYPE_HOST : bisai->where, keep, &bisai->factors.blocks, &mat));
  PetscCall(PetscLogEventEnd(FinePC_BISAIConvert, pc->pmat, 0, 0, 0));
  bisai->bs           = mat.A.bs;
  bisai->n            = mat.A.n;
  bisai->operator_nnz = mat.A.nnz;
  bisai->unsorted     = mat.unsorted;
  PetscErrorCode code = CallGuarded(PCLocalLeaveOutZeroRows, pc, bisai->n * bisai->bs, bisai->where);
  if (!code)
    code = CallGuarded(bisai->diagonal.zero_rows.empty() ? BISAIGetTriangularFactors : FactorIsolated, pc, (const BSRMat *)&mat,
                       keep, outcome);
  PetscCall(MatRestoreBSR(&mat));
  PetscCall(code);
  if (!bisai->factors.stats.failure && !outcome->reason) {
    PetscCall(PetscLogEventBegin(FinePC_BISAIInvert, pc, pc->pmat, 0, 0));
    const PetscErrorCode invert_code = CallGuarded(Invert_BISAI, pc, keep);
    PetscCall(PetscLogEventEnd(FinePC_BISAIInvert, pc, pc->pmat, 0, 0));
    if (invert_code) PetscCall(BISAIReturnTriangularFactors(bisai));
    PetscCall(invert_code);
    bisai->built = !LostNumbers(bisai);
  }
  PetscCall(BISAIReturnTriangularFactors(bisai));
  bisai->reused = keep;
  if (!bisai->built && !outcome->reason) PetscCall(DescribeFailure_BISAI(pc, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- life cycle ----------------------------------------- */

static PetscErrorCode PCBISAIGetFactors_BISAI(PC pc, Mat *NL, Mat *NU)
{
  PC_BISAI *bisai = (PC_BISAI *)pc->data;
  MPI_Comm  comm  = PetscObjectComm((PetscObject)pc);

  PetscFunctionBegin;
  PetscCheck(pc->setupcalled && !pc->failedreason, comm, PETSC_ERR_ORDER, "The inverses exist after a PCSetUp() that did not fail");
  PetscCall(PCLocalCheckFactorHere(pc));
  if (NL) PetscCall(MatCreateFromBSR(comm, &bisai->N[BISAI_LOWER], (PetscBool)!bisai->params.sweeps, NL));
  if (NU) PetscCall(MatCreateFromBSR(comm, &bisai->N[BISAI_UPPER], PETSC_FALSE, NU));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Counts the bytes for PCFinePCGetApplyBytes(): both inverses, and the vectors as often as they are read and written. */
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
  for (int t = 0; t < 2; t++) *bytes += bisai->factors.order[t] ? (PetscLogDouble)(2 * vector) : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Composes the methods of the type, or takes them away if `compose` is false. */
static PetscErrorCode Compose_BISAI(PC pc, PetscBool compose)
{
  PetscObject object = (PetscObject)pc;

  PetscFunctionBegin;
  PetscCall(PC_BISAI::options.Compose(pc, compose));
  PetscCall(PetscObjectComposeFunction(object, "PCBISAIGetFactors_C", compose ? Entry<PCBISAIGetFactors_BISAI> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, kApplyBytesQuery, compose ? Entry<PCFinePCGetApplyBytes_BISAI> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_BISAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCLocalSetOperations(pc, new PC_BISAI(), PCSetUp_BISAI, PCApply_BISAI));
  ((PC_Local *)pc->data)->columns_at_once = kBSRColumns;
  ((PC_Local *)pc->data)->reserve         = BISAIReserve;
  ((PC_Local *)pc->data)->copy_options    = CopyOptionTable<PC_BISAI, PC>;
  pc->ops->setfromoptions                 = Entry<SetFromOptionTable<PC_BISAI, PC>>;
  pc->ops->view                           = Entry<PCView_BISAI>;
  pc->ops->reset                          = Entry<PCReset_BISAI>;
  pc->ops->destroy                        = Entry<DestroyData<PC_BISAI, PCReset_BISAI, Compose_BISAI, PC>>;
  PetscCall(Compose_BISAI(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCBISAIGetFactors - Gets the approximate inverses NL and NU that `PCBISAI` has computed

  Collective

  Input Parameter:
. pc - the preconditioner context, which is set up

  Output Parameters:
+ NL - the inverse of L, a lower triangular `MATBAIJ` with unit diagonal in double precision; or `NULL` if it is not wanted
- NU - the inverse of U, an upper triangular `MATBAIJ` in double precision; or `NULL` if it is not wanted

  Level: advanced

  Notes:
  Both are copies that the caller destroys with `MatDestroy()`. Rows and columns are in the order of the factors, which with
  `MATORDERINGNATURAL` is the order of the matrix.

  With several ranks both inverses are block diagonal, with one block for each rank.

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
+ -pc_bisai_power <1> - the power p of the patterns S(|L|^p) and S(|U|^p) that the approximate inverses take; between 1 and 4
. -pc_bisai_power_lower <0> - the power of the pattern for the inverse of L alone; between 0 and 4; 0 for the one of
  `PCBISAISetPower()`
. -pc_bisai_power_upper <0> - the power of the pattern for the inverse of U alone; between 0 and 4; 0 for the one of
  `PCBISAISetPower()`
. -pc_bisai_side <rows> - whether the triangular factors are inverted by block rows or by block columns. `rows`: NL L = I and NU U =
  I, block row by block row; `columns`: L NL = I and U NU = I, block column by block column; `columns_rows`: L by columns, U by
  rows; `rows_columns`: L by rows, U by columns
. -pc_bisai_factor <auto> - where the block triangular factors come from. `auto`: finepc's own where the matrix is on a GPU or
  sweeps are set, and PETSc's on the host and wherever levels of fill, a shift or an ordering are set; `petsc`: `MatGetFactor()`
  with `MATSOLVERPETSC` and `MAT_FACTOR_ILU`, on the host, with any levels of fill; `finepc`: finepc's own block ILU(0), where the
  matrix is: on the GPU or on the host; `cuda`: the same, by its old name
. -pc_bisai_factor_levels <0> - the levels of fill of the triangular factors; between 0 and 1000; above 0 only with PETSc's factor
. -pc_bisai_factor_shift_type <none> - how PETSc shifts zero pivots in the triangular factors: `none` or `inblocks`; with block size
  1 also `nonzero` and `positive_definite`
. -pc_bisai_factor_shift_amount <2.22045e-14> - by how much PETSc shifts zero pivots in the triangular factors; at least 0; the
  default is 100 times the machine epsilon
. -pc_bisai_factor_mat_ordering_type <natural> - the ordering of the block rows in PETSc's triangular factors: `natural`, or any
  other `MatOrderingType`
. -pc_bisai_factor_sweeps <0> - by how many sweeps over all block rows at once finepc computes the triangular factors; between 0 and
  1000; 0 for the exact block ILU(0), level by level
. -pc_bisai_factor_precision <single> - the precision in which the approximate inverses are stored: `single` or `double`; the
  inverses are always computed, and products summed, in double precision
. -pc_bisai_sweeps <0> - the relaxation steps that an apply takes with each factor; between 0 and 1000
- -pc_bisai_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `PCFinePCSetBackend()`

  Level: intermediate

  Notes:
  Triangular solves process one row after the other; here they are replaced by two products with sparse block matrices. A block row
  i of N, with columns J, solves N_i(J) T(J, J) = I_i(J), where T is L or U. This is N T = I on the pattern of N, which is S(|T|^p),
  (6) and (7) of Ma, Hu, Yuan, Liu. The block rows are independent of each other. The paper itself uses block columns and T N = I on
  the pattern, which is what `-pc_bisai_side columns` computes. If all paths between two rows have the same length, as with ILU(0)
  on grids with 5- or 7-point stencils, both are the same.

  The matrix is a `MATBAIJ`, or a `MATAIJ` with a block size, `MatSetBlockSize()`. Blocks that a `MATAIJ` stores only in part are
  filled with zeros, and a block size of 1 gives point ISAI. There are compiled kernels for block sizes 1 to 8; other block sizes up
  to 32 take a general path. On several ranks each rank uses its diagonal block, as `PCBJACOBI` does. Inside `PCASM` and `PCBJACOBI`
  the type uses the submatrix. If `PCBJACOBI` has several blocks on a rank, it does not pass on the block size of a `MATAIJ`, but a
  `MATBAIJ` keeps its block size.

  The inverses are computed and applied on the GPU if the matrix creates its vectors there: `MATAIJCUSPARSE` and `MATBAIJCUDA` do,
  and a `MATBAIJ` does after `MatSetVecType(mat, VECCUDA)`. Vectors in the other memory space are copied.

  When `PCApplyTranspose()` is first called, as by `KSPBICG`, it makes transposes of both inverses; it updates their values after
  each set-up.

  When only the values of the matrix change, patterns and orderings are kept, and a set-up computes only values. With finepc's own
  factor and `MATAIJCUSPARSE` such a set-up does not go through the host.

  If a diagonal block of U is singular or nearly so, because a pivot is below 1e-13 of A's entries in its row and column, the
  diagonal block of A is inverted instead, with pivots raised to 1e-8 of these entries. PETSc's factorization does not do this:
  where PETSc encounters such a block or a zero pivot, the host version of `PC_BISAI_FACTOR_FINEPC` recomputes L and U, on their
  pattern and without the shift. A block row or column of NL or NU that is not finite is reduced to its diagonal block. The view
  counts the replacements, and says whether PETSc or finepc computed the factors.

  Rows of zeros are isolated rows with an inverse of 0, even if a block row has no block at all; the view counts them. Columns of a
  `MATAIJ` that are not in ascending order are sorted for the set-up, and entries that are stored twice are added.

  A missing diagonal block or an entry that is not finite makes the set-up fail with a `PCFailedReason`; the view names the row. The
  set-up also fails if diagonal blocks of U^{-1}, or with sweeps entries of L and U, are outside the range of the precision in which
  they are stored. Other numbers that are too small for this precision become zero.

  The set-up has these events in `-log_view`: BISAIConvert converts the matrix to blocks, BISAIFactor computes L and U, and
  BISAIInvert computes NL and NU. Within BISAIFactor, BISAICopy copies PETSc's factor to the memory of the inverses, and
  BISAIAnalyse finds the levels of finepc's own factor, once per pattern. Within BISAIInvert, BISAIPattern computes the patterns and
  BISAIValues the values.

  The measurements in the paper use `KSPGMRES` with right preconditioning, `-ksp_pc_side right`.

  Reference:
  W. Ma, Y. Hu, W. Yuan, X. Liu, GPU preconditioning for block linear systems using block incomplete sparse approximate inverses,
  Scientific Programming 2021

.seealso: `PCILU`, `PCBJACOBI`, `PCASM`, `PCBISAIGetFactors()`, `PCBISAISetPower()`, `PCBISAISetPowerLower()`,
          `PCBISAISetPowerUpper()`, `PCBISAISetSide()`, `PCBISAISetFactor()`, `PCBISAISetFactorLevels()`,
          `PCBISAISetFactorShiftType()`, `PCBISAISetFactorShiftAmount()`, `PCBISAISetFactorMatOrderingType()`,
          `PCBISAISetFactorSweeps()`, `PCBISAISetFactorPrecision()`, `PCBISAISetSweeps()`
M*/

/*@C
  PCCreate_BISAI - Makes a preconditioner a `PCBISAI`, after registering finepc if nothing has done so; for `PCRegister()`

  Collective

  Input Parameter:
. pc - the preconditioner context

  Level: developer

.seealso: `PCBISAI`, `PCRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode PCCreate_BISAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_BISAI>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
