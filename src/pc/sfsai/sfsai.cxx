/* The PETSc face of sFSAI: options, set-up, view, life cycle. The method is in sfsai_host.cxx and cuda/pc/sfsai/sfsai.cu. */
#include <petsc/private/pcimpl.h>

#include "finepcimpl.h"
#include "sfsai.h"

static PetscErrorCode PCSFSAISetPower_SFSAI(PC pc, PetscInt n)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_sfsai_power is %" PetscInt_FMT ", but must be at least 0", n);
  if (n != sfsai->params.power) pc->setupcalled = PETSC_FALSE;
  sfsai->params.power = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAIGetPower_SFSAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_SFSAI *)pc->data)->params.power;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAISetPrefilter_SFSAI(PC pc, PetscReal n)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= 1, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_sfsai_prefilter is %g, but must be between 0 and 1", (double)n);
  if (n != sfsai->params.prefilter) pc->setupcalled = PETSC_FALSE;
  sfsai->params.prefilter = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAIGetPrefilter_SFSAI(PC pc, PetscReal *n)
{
  PetscFunctionBegin;
  *n = ((PC_SFSAI *)pc->data)->params.prefilter;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAISetPostfilter_SFSAI(PC pc, PetscReal n)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0 && n <= 1, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_sfsai_postfilter is %g, but must be between 0 and 1", (double)n);
  if (n != sfsai->params.postfilter) pc->setupcalled = PETSC_FALSE;
  sfsai->params.postfilter = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAIGetPostfilter_SFSAI(PC pc, PetscReal *n)
{
  PetscFunctionBegin;
  *n = ((PC_SFSAI *)pc->data)->params.postfilter;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAISetMaxRow_SFSAI(PC pc, PetscInt n)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_sfsai_max_row is %" PetscInt_FMT ", but must be at least 0", n);
  if (n != sfsai->params.max_row) pc->setupcalled = PETSC_FALSE;
  sfsai->params.max_row = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAIGetMaxRow_SFSAI(PC pc, PetscInt *n)
{
  PetscFunctionBegin;
  *n = ((PC_SFSAI *)pc->data)->params.max_row;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAISetSetupPrecision_SFSAI(PC pc, FinePCPrecision n)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n == FINEPC_SINGLE || n == FINEPC_DOUBLE, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_sfsai_setup_precision has no value %d", (int)n);
  if (n != sfsai->params.setup_precision) pc->setupcalled = PETSC_FALSE;
  sfsai->params.setup_precision = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAIGetSetupPrecision_SFSAI(PC pc, FinePCPrecision *n)
{
  PetscFunctionBegin;
  *n = ((PC_SFSAI *)pc->data)->params.setup_precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAISetFactorPrecision_SFSAI(PC pc, FinePCPrecision n)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCheck(n == FINEPC_SINGLE || n == FINEPC_DOUBLE, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_sfsai_factor_precision has no value %d", (int)n);
  if (n != sfsai->params.factor_precision) pc->setupcalled = PETSC_FALSE;
  sfsai->params.factor_precision = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAIGetFactorPrecision_SFSAI(PC pc, FinePCPrecision *n)
{
  PetscFunctionBegin;
  *n = ((PC_SFSAI *)pc->data)->params.factor_precision;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAISetReusePattern_SFSAI(PC pc, PetscBool n)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  sfsai->reuse_pattern = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAIGetReusePattern_SFSAI(PC pc, PetscBool *n)
{
  PetscFunctionBegin;
  *n = ((PC_SFSAI *)pc->data)->reuse_pattern;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAISetPattern_SFSAI(PC pc, Mat pattern)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PetscObjectReference((PetscObject)pattern));
  PetscCall(MatDestroy(&sfsai->pattern));
  sfsai->pattern  = pattern;
  pc->setupcalled = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSFSAIGetPattern_SFSAI(PC pc, Mat *pattern)
{
  PetscFunctionBegin;
  *pattern = ((PC_SFSAI *)pc->data)->pattern;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetFromOptions_SFSAI(PC pc, PetscOptionItems PetscOptionsObject)
{
  PC_SFSAI   *sfsai  = (PC_SFSAI *)pc->data;
  SFSAIParams params = sfsai->params;
  PetscBool   flg, reuse = sfsai->reuse_pattern;

  PetscFunctionBegin;
  PetscOptionsHeadBegin(PetscOptionsObject, "sFSAI options");
  PetscCall(
    PetscOptionsInt("-pc_sfsai_power", "Products that make the pattern", "PCSFSAISetPower", params.power, &params.power, &flg));
  if (flg) PetscCall(PCSFSAISetPower(pc, params.power));
  PetscCall(PetscOptionsReal("-pc_sfsai_prefilter", "Threshold for entries of A", "PCSFSAISetPrefilter", params.prefilter,
                             &params.prefilter, &flg));
  if (flg) PetscCall(PCSFSAISetPrefilter(pc, params.prefilter));
  PetscCall(PetscOptionsReal("-pc_sfsai_postfilter", "Threshold for entries of G", "PCSFSAISetPostfilter", params.postfilter,
                             &params.postfilter, &flg));
  if (flg) PetscCall(PCSFSAISetPostfilter(pc, params.postfilter));
  PetscCall(
    PetscOptionsInt("-pc_sfsai_max_row", "Most entries of a row of G", "PCSFSAISetMaxRow", params.max_row, &params.max_row, &flg));
  if (flg) PetscCall(PCSFSAISetMaxRow(pc, params.max_row));
  PetscCall(PetscOptionsEnum("-pc_sfsai_setup_precision", "Precision of the set-up", "PCSFSAISetSetupPrecision", FinePCPrecisions,
                             (PetscEnum)params.setup_precision, (PetscEnum *)&params.setup_precision, &flg));
  if (flg) PetscCall(PCSFSAISetSetupPrecision(pc, params.setup_precision));
  PetscCall(PetscOptionsEnum("-pc_sfsai_factor_precision", "Precision of the stored factor", "PCSFSAISetFactorPrecision",
                             FinePCPrecisions, (PetscEnum)params.factor_precision, (PetscEnum *)&params.factor_precision, &flg));
  if (flg) PetscCall(PCSFSAISetFactorPrecision(pc, params.factor_precision));
  PetscCall(PetscOptionsBool("-pc_sfsai_reuse_pattern", "Keep the pattern when only values have changed", "PCSFSAISetReusePattern",
                             reuse, &reuse, &flg));
  if (flg) PetscCall(PCSFSAISetReusePattern(pc, reuse));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The user's pattern, as the twins take it: in the memory of the operator. */
struct GivenPattern {
  CSRMat    mat;
  CSRView   S;    /* its i and j; no values */
  PetscInt *copy; /* [n + 1 + nnz] i and j where the matrix is in the other memory, or null */
};

static PetscErrorCode GetGivenPattern(PC pc, const CSRView *A, GivenPattern *given)
{
  const Mat      pattern = ((const PC_SFSAI *)pc->data)->pattern;
  const CSRView *P       = &given->mat.A;
  PetscInt       rows, columns;
  PetscBool      assembled;

  PetscFunctionBegin;
  PetscCall(MatAssembled(pattern, &assembled));
  PetscCheck(assembled, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_WRONGSTATE,
             "The matrix given to PCSFSAISetPattern() is not assembled: call MatAssemblyBegin() and MatAssemblyEnd()");
  PetscCall(MatGetLocalSize(pattern, &rows, &columns));
  PetscCheck(rows == A->n && columns == A->n, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix given to PCSFSAISetPattern() has %" PetscInt_FMT " rows and %" PetscInt_FMT
             " columns on this rank, but the operator has %" PetscInt_FMT ": both must have the same layout",
             rows, columns, A->n);
  PetscCall(MatGetCSR(pattern, &given->mat));
  given->S   = *P;
  given->S.a = nullptr;
  if (P->where == A->where) PetscFunctionReturn(PETSC_SUCCESS);
  const size_t i_bytes = (P->n + 1) * sizeof(*P->i), j_bytes = P->nnz * sizeof(*P->j);

  PetscCall(ArrayCreate(i_bytes + j_bytes, A->where, (void **)&given->copy));
  PetscCall(ArrayCopy(given->copy, P->i, i_bytes, A->where, P->where));
  PetscCall(ArrayCopy(given->copy + P->n + 1, P->j, j_bytes, A->where, P->where));
  given->S.i     = given->copy;
  given->S.j     = given->copy + P->n + 1;
  given->S.where = A->where;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreGivenPattern(GivenPattern *given)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(given->S.where, (void **)&given->copy));
  PetscCall(MatRestoreCSR(&given->mat));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FreeWork(SFSAIWork *work)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(work->where, &work->data));
  *work = SFSAIWork{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_SFSAI(PC pc)
{
  PC_SFSAI        *sfsai         = (PC_SFSAI *)pc->data;
  PCInverse       *M             = &sfsai->inverse;
  const FSAIStats  before        = sfsai->stats;
  PetscObjectState pattern_state = sfsai->pattern_state;
  CSRMat           mat;
  GivenPattern     given{};

  PetscFunctionBegin;
  PetscCall(PCFSAIGetOperator(pc, &mat));
  if (sfsai->pattern) PetscCall(MatGetNonzeroState(sfsai->pattern, &sfsai->pattern_state));
  PetscCall(PCFSAIPrepare(pc, &mat.A, (PetscBool)(sfsai->reuse_pattern && sfsai->pattern_state == pattern_state),
                          sfsai->params.factor_precision));
  if (sfsai->work.where != mat.A.where) PetscCall(FreeWork(&sfsai->work));
  const PetscBool is_given = (PetscBool)(sfsai->pattern && !sfsai->reused);
  if (is_given) PetscCall(GetGivenPattern(pc, &mat.A, &given));
  const CSRView *S = is_given ? &given.S : nullptr;

  PetscCall(PetscLogEventBegin(FinePC_SFSAIFactor, pc, pc->pmat, 0, 0));
  const auto           compute = PetscMemTypeDevice(mat.A.where) ? SFSAIComputeFactor_CUDA : SFSAIComputeFactor_Host;
  const PetscErrorCode code    = compute(&mat.A, S, &sfsai->params, sfsai->reused, &M->W1, M->d, &sfsai->work, &sfsai->stats);
  PetscCall(PetscLogEventEnd(FinePC_SFSAIFactor, pc, pc->pmat, 0, 0));
  if (is_given) PetscCall(RestoreGivenPattern(&given));
  PetscCall(MatRestoreCSR(&mat));
  PetscCall(code);
  if (sfsai->reused) { /* what its pattern went through */
    sfsai->stats.capped_rows = before.capped_rows;
    sfsai->stats.dropped     = before.dropped;
    sfsai->stats.max_row     = before.max_row;
  }
  PetscCall(PCFSAIComplete(pc, "PCSFSAI"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_SFSAI(PC pc, PetscViewer viewer)
{
  const PC_SFSAI    *sfsai  = (const PC_SFSAI *)pc->data;
  const SFSAIParams *params = &sfsai->params;
  PetscBool          is_ascii;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_FSAI(pc, viewer, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  if (sfsai->pattern)
    PetscCall(PetscViewerASCIIPrintf(viewer, "pattern given by a matrix, postfilter %g\n", (double)params->postfilter));
  else if (params->max_row)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "pattern of power %" PetscInt_FMT ", prefilter %g, postfilter %g, at most %" PetscInt_FMT
                                     " entries per row\n",
                                     params->power, (double)params->prefilter, (double)params->postfilter, params->max_row));
  else
    PetscCall(PetscViewerASCIIPrintf(viewer, "pattern of power %" PetscInt_FMT ", prefilter %g, postfilter %g, rows not capped\n",
                                     params->power, (double)params->prefilter, (double)params->postfilter));
  PetscCall(PetscViewerASCIIPrintf(viewer, "set-up in %s precision, pattern %s\n", FinePCPrecisions[params->setup_precision],
                                   sfsai->reused
                                     ? "kept from the last set-up"
                                     : (sfsai->reuse_pattern ? "kept while the nonzeros of A stay" : "made at each set-up")));
  PetscCall(PCView_FSAI(pc, viewer));
  if (pc->setupcalled && !pc->failedreason) {
    PetscInt64 count[2] = {sfsai->stats.capped_rows, sfsai->stats.dropped}, sum[2];

    PetscCallMPI(MPIU_Allreduce(count, sum, 2, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "rows cut to the cap %" PetscInt64_FMT ", entries dropped by the postfilter %" PetscInt64_FMT
                                     "\n",
                                     sum[0], sum[1]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All that a set-up made; the options and the user's pattern stay. */
static PetscErrorCode PCReset_SFSAI(PC pc)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCReset_FSAI(pc));
  PetscCall(FreeWork(&sfsai->work));
  sfsai->pattern_state = 0;
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
    {"PCSFSAISetPower_C", (Method)PCSFSAISetPower_SFSAI},
    {"PCSFSAIGetPower_C", (Method)PCSFSAIGetPower_SFSAI},
    {"PCSFSAISetPrefilter_C", (Method)PCSFSAISetPrefilter_SFSAI},
    {"PCSFSAIGetPrefilter_C", (Method)PCSFSAIGetPrefilter_SFSAI},
    {"PCSFSAISetPostfilter_C", (Method)PCSFSAISetPostfilter_SFSAI},
    {"PCSFSAIGetPostfilter_C", (Method)PCSFSAIGetPostfilter_SFSAI},
    {"PCSFSAISetMaxRow_C", (Method)PCSFSAISetMaxRow_SFSAI},
    {"PCSFSAIGetMaxRow_C", (Method)PCSFSAIGetMaxRow_SFSAI},
    {"PCSFSAISetSetupPrecision_C", (Method)PCSFSAISetSetupPrecision_SFSAI},
    {"PCSFSAIGetSetupPrecision_C", (Method)PCSFSAIGetSetupPrecision_SFSAI},
    {"PCSFSAISetFactorPrecision_C", (Method)PCSFSAISetFactorPrecision_SFSAI},
    {"PCSFSAIGetFactorPrecision_C", (Method)PCSFSAIGetFactorPrecision_SFSAI},
    {"PCSFSAISetReusePattern_C", (Method)PCSFSAISetReusePattern_SFSAI},
    {"PCSFSAIGetReusePattern_C", (Method)PCSFSAIGetReusePattern_SFSAI},
    {"PCSFSAISetPattern_C", (Method)PCSFSAISetPattern_SFSAI},
    {"PCSFSAIGetPattern_C", (Method)PCSFSAIGetPattern_SFSAI},
    {"PCSFSAIGetFactors_C", (Method)PCFSAIGetFactors_FSAI},
    {kInverseQuery, (Method)PCFinePCGetInverse_FSAI},
  };

  PetscFunctionBegin;
  for (const auto &entry : methods)
    PetscCall(PetscObjectComposeFunction((PetscObject)pc, entry.name, compose ? entry.method : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_SFSAI(PC pc)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCReset_SFSAI(pc));
  PetscCall(MatDestroy(&sfsai->pattern));
  PetscCall(ComposeMethods(pc, PETSC_FALSE));
  delete sfsai;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetPower - Sets how many products of the recursion of `PCSFSAI` make the pattern of its factor, k

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- power - 0 or more; 0 leaves the diagonal, that is `PCJACOBI`, 1 takes the lower triangle of A, 2 (default) one product more, by
          (3.9) of Bernaschi, Bisson, Fantozzi, Janna

  Options Database Key:
. -pc_sfsai_power <power> - how many products of the recursion of `PCSFSAI` make the pattern of its factor, k

  Level: intermediate

  Note:
  The products are symbolic: entries that cancel stay. It is not used while `PCSFSAISetPattern()` gives the pattern.

.seealso: `PCSFSAI`, `PCSFSAIGetPower()`
@*/
PetscErrorCode PCSFSAISetPower(PC pc, PetscInt power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, power, 2);
  PetscTryMethod(pc, "PCSFSAISetPower_C", (PC, PetscInt), (pc, power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetPower - Gets how many products of the recursion of `PCSFSAI` make the pattern of its factor, k

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. power - see `PCSFSAISetPower()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetPower()`
@*/
PetscErrorCode PCSFSAIGetPower(PC pc, PetscInt *power)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(power, 2);
  PetscUseMethod(pc, "PCSFSAIGetPower_C", (PC, PetscInt *), (pc, power));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetPrefilter - Sets the threshold tau under which entries of A do not count for the pattern of `PCSFSAI`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- prefilter - between 0 (default, every stored entry counts) and 1: a_ij with |a_ij| <= tau sqrt(a_ii a_jj) is passed over, (3.8) of
              Bernaschi, Bisson, Fantozzi, Janna

  Options Database Key:
. -pc_sfsai_prefilter <prefilter> - the threshold tau under which entries of A do not count for the pattern of `PCSFSAI`

  Level: intermediate

  Note:
  Only the pattern is filtered: the values of G are computed with all of A. It is not used while `PCSFSAISetPattern()` gives the
  pattern.

.seealso: `PCSFSAI`, `PCSFSAIGetPrefilter()`
@*/
PetscErrorCode PCSFSAISetPrefilter(PC pc, PetscReal prefilter)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveReal(pc, prefilter, 2);
  PetscTryMethod(pc, "PCSFSAISetPrefilter_C", (PC, PetscReal), (pc, prefilter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetPrefilter - Gets the threshold tau under which entries of A do not count for the pattern of `PCSFSAI`

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. prefilter - see `PCSFSAISetPrefilter()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetPrefilter()`
@*/
PetscErrorCode PCSFSAIGetPrefilter(PC pc, PetscReal *prefilter)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(prefilter, 2);
  PetscUseMethod(pc, "PCSFSAIGetPrefilter_C", (PC, PetscReal *), (pc, prefilter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetPostfilter - Sets the threshold delta under which entries of the computed factor are dropped by `PCSFSAI`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- postfilter - between 0 (default, nothing is dropped) and 1: g_ij with |g_ij| <= delta ||g_i||_2 is dropped, (3.11) of Bernaschi,
               Bisson, Fantozzi, Janna

  Options Database Key:
. -pc_sfsai_postfilter <postfilter> - the threshold delta under which entries of the computed factor are dropped by `PCSFSAI`

  Level: intermediate

  Note:
  The row is scaled again by (3.13), so that diag(G A G^T) = 1 still holds. The diagonal stays: 1 gives `PCJACOBI`. The view counts
  the entries that were dropped.

.seealso: `PCSFSAI`, `PCSFSAIGetPostfilter()`
@*/
PetscErrorCode PCSFSAISetPostfilter(PC pc, PetscReal postfilter)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveReal(pc, postfilter, 2);
  PetscTryMethod(pc, "PCSFSAISetPostfilter_C", (PC, PetscReal), (pc, postfilter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetPostfilter - Gets the threshold delta under which entries of the computed factor are dropped by `PCSFSAI`

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. postfilter - see `PCSFSAISetPostfilter()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetPostfilter()`
@*/
PetscErrorCode PCSFSAIGetPostfilter(PC pc, PetscReal *postfilter)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(postfilter, 2);
  PetscUseMethod(pc, "PCSFSAIGetPostfilter_C", (PC, PetscReal *), (pc, postfilter));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetMaxRow - Sets the most entries that a row of the factor of `PCSFSAI` may have

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- max_row - entries of a row of G, diagonal included; 0 (default) for no cap, 1 leaves the diagonal

  Options Database Key:
. -pc_sfsai_max_row <max_row> - the most entries that a row of the factor of `PCSFSAI` may have

  Level: intermediate

  Note:
  Of a longer row those with the largest path weights, the entries of |A~|^k along the row's paths, stay, where A~ is the filtered A
  scaled to unit diagonal; smaller columns first among equals. The view counts the rows that were cut. It is not used while
  `PCSFSAISetPattern()` gives the pattern.

.seealso: `PCSFSAI`, `PCSFSAIGetMaxRow()`
@*/
PetscErrorCode PCSFSAISetMaxRow(PC pc, PetscInt max_row)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, max_row, 2);
  PetscTryMethod(pc, "PCSFSAISetMaxRow_C", (PC, PetscInt), (pc, max_row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetMaxRow - Gets the most entries that a row of the factor of `PCSFSAI` may have

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. max_row - see `PCSFSAISetMaxRow()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetMaxRow()`
@*/
PetscErrorCode PCSFSAIGetMaxRow(PC pc, PetscInt *max_row)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(max_row, 2);
  PetscUseMethod(pc, "PCSFSAIGetMaxRow_C", (PC, PetscInt *), (pc, max_row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetSetupPrecision - Sets the precision in which `PCSFSAI` computes its factor

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- setup_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`

  Options Database Key:
. -pc_sfsai_setup_precision <setup_precision> - the precision in which `PCSFSAI` computes its factor

  Level: intermediate

  Note:
  A row on which single precision meets a bad pivot is computed again in double; the view counts such rows.

.seealso: `PCSFSAI`, `PCSFSAIGetSetupPrecision()`
@*/
PetscErrorCode PCSFSAISetSetupPrecision(PC pc, FinePCPrecision setup_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, setup_precision, 2);
  PetscTryMethod(pc, "PCSFSAISetSetupPrecision_C", (PC, FinePCPrecision), (pc, setup_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetSetupPrecision - Gets the precision in which `PCSFSAI` computes its factor

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. setup_precision - see `PCSFSAISetSetupPrecision()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetSetupPrecision()`
@*/
PetscErrorCode PCSFSAIGetSetupPrecision(PC pc, FinePCPrecision *setup_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(setup_precision, 2);
  PetscUseMethod(pc, "PCSFSAIGetSetupPrecision_C", (PC, FinePCPrecision *), (pc, setup_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetFactorPrecision - Sets the precision in which `PCSFSAI` stores its factor

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- factor_precision - `FINEPC_SINGLE` (default) or `FINEPC_DOUBLE`

  Options Database Key:
. -pc_sfsai_factor_precision <factor_precision> - the precision in which `PCSFSAI` stores its factor

  Level: intermediate

  Note:
  A rounded G is still the factor of a symmetric positive definite G^T G. Its diagonal scaling is stored in double, and products are
  summed in double, in any case.

.seealso: `PCSFSAI`, `PCSFSAIGetFactorPrecision()`
@*/
PetscErrorCode PCSFSAISetFactorPrecision(PC pc, FinePCPrecision factor_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveEnum(pc, factor_precision, 2);
  PetscTryMethod(pc, "PCSFSAISetFactorPrecision_C", (PC, FinePCPrecision), (pc, factor_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetFactorPrecision - Gets the precision in which `PCSFSAI` stores its factor

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. factor_precision - see `PCSFSAISetFactorPrecision()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetFactorPrecision()`
@*/
PetscErrorCode PCSFSAIGetFactorPrecision(PC pc, FinePCPrecision *factor_precision)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(factor_precision, 2);
  PetscUseMethod(pc, "PCSFSAIGetFactorPrecision_C", (PC, FinePCPrecision *), (pc, factor_precision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetReusePattern - Sets whether `PCSFSAI` keeps the pattern of its factor when only the values of the matrix have changed

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- reuse_pattern - `PETSC_TRUE` (default) to compute new values on the old pattern, `PETSC_FALSE` to make the pattern anew

  Options Database Key:
. -pc_sfsai_reuse_pattern <reuse_pattern> - whether `PCSFSAI` keeps the pattern of its factor when only the values of the matrix
                                            have changed

  Level: intermediate

  Note:
  It applies where the nonzero pattern of the matrix, and that of the matrix given to `PCSFSAISetPattern()`, are the same as at the
  last set-up; nothing is allocated then. With a prefilter, a postfilter or a cap on the rows the pattern that the first values gave
  stays, and the values are computed anew on it.

.seealso: `PCSFSAI`, `PCSFSAIGetReusePattern()`
@*/
PetscErrorCode PCSFSAISetReusePattern(PC pc, PetscBool reuse_pattern)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveBool(pc, reuse_pattern, 2);
  PetscTryMethod(pc, "PCSFSAISetReusePattern_C", (PC, PetscBool), (pc, reuse_pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetReusePattern - Gets whether `PCSFSAI` keeps the pattern of its factor when only the values of the matrix have changed

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. reuse_pattern - see `PCSFSAISetReusePattern()`

  Level: intermediate

.seealso: `PCSFSAI`, `PCSFSAISetReusePattern()`
@*/
PetscErrorCode PCSFSAIGetReusePattern(PC pc, PetscBool *reuse_pattern)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(reuse_pattern, 2);
  PetscUseMethod(pc, "PCSFSAIGetReusePattern_C", (PC, PetscBool *), (pc, reuse_pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetPattern - Gives `PCSFSAI` the pattern of its factor, instead of a power of the matrix

  Collective

  Input Parameters:
+ pc - the preconditioner context
- pattern - square `MATAIJ` of any kind with the layout of the operator, or `NULL` for the pattern of `PCSFSAISetPower()` again

  Level: advanced

  Notes:
  The lower triangle of the rank's diagonal block is the pattern, S of (3.5) of Bernaschi, Bisson, Fantozzi, Janna; the diagonal
  belongs
  to it in any case, the upper triangle and the values are not looked at. `PCSFSAISetPower()`, `PCSFSAISetPrefilter()` and
  `PCSFSAISetMaxRow()` are not used then, `PCSFSAISetPostfilter()` is.

  The matrix may be on the host when the operator is on the GPU, and the other way round.

  The next `PCSetUp()` starts anew. `pc` keeps a reference to the matrix, also over `PCReset()`. Where its nonzeros have changed,
  the next set-up that new values of the operator bring about takes them in.

  `PCSetUp()` ends with an error if the matrix is not assembled, is not a `MATAIJ`, or has other local sizes than the operator.

.seealso: `PCSFSAI`, `PCSFSAIGetPattern()`, `PCSFSAISetPower()`
@*/
PetscErrorCode PCSFSAISetPattern(PC pc, Mat pattern)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  if (pattern) {
    PetscValidHeaderSpecific(pattern, MAT_CLASSID, 2);
    PetscCheckSameComm(pc, 1, pattern, 2);
  }
  PetscTryMethod(pc, "PCSFSAISetPattern_C", (PC, Mat), (pc, pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetPattern - Gets the matrix that gives `PCSFSAI` the pattern of its factor

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. pattern - see `PCSFSAISetPattern()`; a borrowed reference, or `NULL` where no matrix was given

  Level: advanced

.seealso: `PCSFSAI`, `PCSFSAISetPattern()`
@*/
PetscErrorCode PCSFSAIGetPattern(PC pc, Mat *pattern)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(pattern, 2);
  PetscUseMethod(pc, "PCSFSAIGetPattern_C", (PC, Mat *), (pc, pattern));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAIGetFactors - Gets the factor G of M^{-1} = G^T G that `PCSFSAI` has computed, and its transpose

  Collective

  Input Parameter:
. pc - the preconditioner context, set up

  Output Parameters:
+ G  - lower triangular `MATAIJ` in double precision, with the layout of the matrix, or `NULL`
- Gt - its transpose, or `NULL`

  Level: advanced

  Notes:
  Both are copies that the caller destroys with `MatDestroy()`.

  With several ranks G is block diagonal, a block per rank.

.seealso: `PCSFSAI`
@*/
PetscErrorCode PCSFSAIGetFactors(PC pc, Mat *G, Mat *Gt)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscUseMethod(pc, "PCSFSAIGetFactors_C", (PC, Mat *, Mat *), (pc, G, Gt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCSFSAI - "sfsai": factored sparse approximate inverse of a symmetric positive definite matrix on a static pattern, M^{-1} = G^T G

  Options Database Keys:
+ -pc_sfsai_power <2> - products that make the pattern
. -pc_sfsai_prefilter <0> - threshold for entries of A
. -pc_sfsai_postfilter <0> - threshold for entries of G
. -pc_sfsai_max_row <0> - most entries of a row of G, diagonal included; 0 for no cap
. -pc_sfsai_setup_precision <single> - precision of the set-up
. -pc_sfsai_factor_precision <single> - precision of the stored factor
- -pc_sfsai_reuse_pattern <true> - keep the pattern when only the values of A have changed

  Level: intermediate

  Notes:
  The pattern of the lower triangular G is known before its values: that of k products of the recursion B <- Low(B A~), (3.9), A~
  being A without its small entries, or the one that `PCSFSAISetPattern()` gives. Then A restricted to the pattern of a row is
  factored and solved for the row, (3.6); the rows are independent of each other. The preconditioner is applied as two sparse
  matrix-vector products. diag(G A G^T) = 1, and M is symmetric positive definite for every pattern.

  When only the values of the matrix change, the pattern stays and a set-up computes values alone. `PCAFSAI` searches a pattern
  row by row: a costlier set-up, and fewer iterations at the same number of nonzeros.

  A row can have at most 1280 entries, fewer on GPUs of less than 227 KB of shared memory per block; where one would be longer the
  set-up ends with an error that names the options which shorten it.

  The matrix is a `MATAIJ`; with `MATAIJCUSPARSE`, not bound to the CPU, everything runs on the GPU. Only its rows are read,
  symmetry is not checked. With several ranks each takes its diagonal block, as `PCBJACOBI` does.

  A missing or non-positive diagonal entry, or one that is not finite, makes the set-up fail with a `PCFailedReason`.

  Reference:
  M. Bernaschi, M. Bisson, C. Fantozzi, C. Janna, A factored sparse approximate inverse preconditioned conjugate gradient solver on
  graphics processing units, SIAM J. Sci. Comput. 38 (2016) C53-C72

.seealso: `PCAFSAI`, `PCJACOBI`, `PCICC`, `PCSFSAISetPower()`, `PCSFSAISetPrefilter()`, `PCSFSAISetPostfilter()`,
          `PCSFSAISetMaxRow()`, `PCSFSAISetSetupPrecision()`, `PCSFSAISetFactorPrecision()`, `PCSFSAISetReusePattern()`,
          `PCSFSAISetPattern()`, `PCSFSAIGetFactors()`
M*/
PETSC_EXTERN PetscErrorCode PCCreate_SFSAI(PC pc)
{
  PetscFunctionBegin;
  pc->data                = new PC_SFSAI();
  pc->ops->apply          = PCApply_FSAI;
  pc->ops->applytranspose = PCApply_FSAI;
  pc->ops->matapply       = PCMatApply_FSAI;
  pc->ops->setup          = PCSetUp_SFSAI;
  pc->ops->reset          = PCReset_SFSAI;
  pc->ops->destroy        = PCDestroy_SFSAI;
  pc->ops->setfromoptions = PCSetFromOptions_SFSAI;
  pc->ops->view           = PCView_SFSAI;
  PetscCall(ComposeMethods(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
