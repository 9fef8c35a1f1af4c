/* The PETSc face of aFSAI: options, set-up, view and life cycle. The method itself is in afsai_host.cxx and in cuda/pc/afsai. */
#include <petsc/private/pcimpl.h>

#include "finepcimpl.h"
#include "options.h"
#include "pc/fsai_face.h"
#include "afsai.h"

const char *const PCAFSAIStopRules[]  = {"gain", "ratio", "PCAFSAIStopRule", "PC_AFSAI_STOP_", nullptr};
const char *const PCAFSAISelections[] = {"gradient", "decrease", "PCAFSAISelection", "PC_AFSAI_SELECTION_", nullptr};

namespace
{

/* More layers of foreign rows than this save 1 % of the iterations at most, whatever the number of steps. */
constexpr PetscInt kAFSAIHaloLayers = 5;

constexpr char kSetter[] = "PCAFSAISetPattern"; /* for errors about a pattern that is given */

constexpr PetscReal kEarlyStops = 0.9; /* rows with less of the entries that the steps allow get advice in the view */

struct PC_AFSAI : PC_FSAI {
  static const OptionTable<PC> options;

  AFSAIParams params;
  PetscBool   reuse_pattern = PETSC_TRUE;
  PetscInt    overlap       = kFSAIOverlap;
  PetscInt    halo_layers   = 0; /* 0: as many as a row has steps, at most kAFSAIHaloLayers */
};

template <auto Member>
using Param = Field<&PC_AFSAI::params, Member>;

const Option<PC> kOptions[] = {
  {"-pc_afsai_max_steps", "Most steps per row", "PCAFSAISetMaxSteps", Param<&AFSAIParams::max_steps>(Between(0, kAFSAIMostSteps))},
  {"-pc_afsai_step_size", "Entries added per step", "PCAFSAISetStepSize",
   Param<&AFSAIParams::step_size>(Between(1, kAFSAILargestStep))},
  {"-pc_afsai_tolerance", "Tolerance of the stop rule", "PCAFSAISetTolerance",
   Param<&AFSAIParams::tolerance>(AtLeastAndBelow(0, 1))},
  {"-pc_afsai_stop_rule", "When a row stops", "PCAFSAISetStopRule", Param<&AFSAIParams::stop_rule>(OneOf(PCAFSAIStopRules))},
  {"-pc_afsai_selection", "How candidates are ranked", "PCAFSAISetSelection",
   Param<&AFSAIParams::selection>(OneOf(PCAFSAISelections))},
  {"-pc_afsai_initial_power", "Power of A that gives the first pattern", "PCAFSAISetInitialPower",
   Param<&AFSAIParams::initial_power>(Between(0, kFSAILargestPower))},
  {"-pc_afsai_prefilter", "Threshold for entries of A", "PCAFSAISetPrefilter", Param<&AFSAIParams::prefilter>(Between(0, 1))},
  {"-pc_afsai_postfilter", "Threshold for entries of G", "PCAFSAISetPostfilter", Param<&AFSAIParams::postfilter>(Between(0, 1))},
  {"-pc_afsai_setup_precision", "Precision of the set-up", "PCAFSAISetSetupPrecision",
   Param<&AFSAIParams::setup_precision>(OneOf(FinePCPrecisions))},
  {"-pc_afsai_factor_precision", "Precision of the stored factor", "PCAFSAISetFactorPrecision",
   Param<&AFSAIParams::factor_precision>(OneOf(FinePCPrecisions))},
  {"-pc_afsai_reuse_pattern", "Keep the pattern when only values have changed and it fits", "PCAFSAISetReusePattern",
   Field<&PC_AFSAI::reuse_pattern>(), Invalidates::NOTHING},
  {"-pc_afsai_overlap", "Hops to the lower-numbered ranks that the factor reaches", "PCAFSAISetOverlap",
   Field<&PC_AFSAI::overlap>(Between(0, kFSAIMostOverlap))},
  {"-pc_afsai_halo_layers", "Couplings from the rank's border to the rows that it gathers", "PCAFSAISetHaloLayers",
   Field<&PC_AFSAI::halo_layers>(Between(0, kFSAIMostLayers))},
};
const OptionTable<PC> PC_AFSAI::options{"aFSAI options", kOptions};

} // namespace

/* Whether another matrix with the same nonzeros may get another pattern. */
static bool DependsOnValues_AFSAI(const PC_AFSAI *afsai)
{
  const AFSAIParams *params = &afsai->params;
  return params->max_steps || params->postfilter > 0 || (params->prefilter > 0 && params->initial_power && !afsai->pattern);
}

/* Computes the rows of the factor, on the old pattern with reuse_pattern if there is one. */
static PetscErrorCode ComputeRows_AFSAI(PC pc, const CSRView *A, PetscBool reuse_pattern)
{
  PC_AFSAI        *afsai   = (PC_AFSAI *)pc->data;
  PCInverse       *M       = &afsai->inverse;
  const auto       compute = PetscMemTypeDevice(A->where) ? AFSAIComputeFactor_CUDA : AFSAIComputeFactor_Host;
  FSAIGivenPattern given{};
  CSR             *W1;

  PetscFunctionBegin;
  PetscCall(PCFSAIPrepare(pc, A, reuse_pattern, afsai->params.factor_precision, &W1));
  const PetscBool is_given = (PetscBool)(afsai->pattern && !afsai->reused);
  PetscErrorCode  code     = is_given ? PCFSAIGetGivenPattern(pc, A, kSetter, &given) : PETSC_SUCCESS;

  PetscCall(PetscLogEventBegin(FinePC_AFSAIFactor, pc, pc->pmat, 0, 0));
  if (!code)
    code = CallGuarded(compute, A, PCFSAIFirst(afsai), is_given ? (const CSRView *)&given.S : nullptr,
                       (const AFSAIParams *)&afsai->params, afsai->reused, W1, M->d, &afsai->stats);
  PetscCall(PetscLogEventEnd(FinePC_AFSAIFactor, pc, pc->pmat, 0, 0));
  PetscCall(PCFSAIRestoreGivenPattern(&given));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the factor of the rank's block, G~ and d, and its transpose, or describes in the outcome why there is no factor. */
static PetscErrorCode ComputeOnRows_AFSAI(PC pc, const CSRView *A, PCLocalOutcome *outcome)
{
  PC_AFSAI       *afsai = (PC_AFSAI *)pc->data;
  const PetscBool reuse = (PetscBool)(afsai->reuse_pattern && afsai->given_stays);
  bool            fits;

  PetscFunctionBegin;
  PetscCall(ComputeRows_AFSAI(pc, A, reuse));
  PetscCall(PCFSAIFits(pc, A, afsai->reuse_pattern && DependsOnValues_AFSAI(afsai), &fits));
  if (!fits) {
    PetscCall(ComputeRows_AFSAI(pc, A, PETSC_FALSE));
    PetscCall(PCFSAIFits(pc, A, true, &fits));
  }
  PetscCall(PCFSAIComplete(pc, "PCAFSAI", afsai->reuse_pattern, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Each step of a row follows one coupling more, and so does each power of the first pattern, unless that is given. */
static PetscInt FirstPower(const PC_AFSAI *afsai)
{
  return afsai->pattern ? 0 : afsai->params.initial_power;
}

static PetscInt LayersOf_AFSAI(const PC_AFSAI *afsai)
{
  const PetscInt power = FirstPower(afsai), steps = afsai->params.max_steps;
  if (afsai->pattern && !steps) return 0;
  return afsai->halo_layers ? afsai->halo_layers : power + PetscMin(steps, kAFSAIHaloLayers);
}

static PetscErrorCode Gather_AFSAI(PC pc, PCLocalPhase *phase)
{
  const PC_AFSAI    *afsai  = (const PC_AFSAI *)pc->data;
  const AFSAIParams *params = &afsai->params;

  PetscFunctionBegin;
  PetscCall(PCFSAIFollowGiven(pc, phase));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscBool reuse = (PetscBool)(afsai->reuse_pattern && afsai->given_stays);
  const FSAIReach reach{"afsai", afsai->overlap, LayersOf_AFSAI(afsai),   FirstPower(afsai) + params->max_steps, afsai->pattern,
                        kSetter, reuse,          params->factor_precision};
  PetscCall(PCFSAIGather(pc, &reach, phase));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_AFSAI(PC pc, PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  PetscCall(PCLocalComputeOnSymmetricRows(pc, OneSided::LEAVE_OUT, ComputeOnRows_AFSAI, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Advice where rows end long before the steps do. */
static PetscErrorCode ViewEarlyStops(PC pc, PetscViewer viewer)
{
  const PC_AFSAI    *afsai    = (const PC_AFSAI *)pc->data;
  const AFSAIParams *params   = &afsai->params;
  PetscInt64         count[2] = {afsai->inverse.W1.nnz, afsai->inverse.rows}, sum[2];

  PetscFunctionBegin;
  if (!pc->setupcalled || pc->failedreason || params->initial_power || afsai->pattern || params->postfilter > 0)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPIU_Allreduce(count, sum, 2, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  const PetscReal mean = (PetscReal)sum[0] / (PetscReal)PetscMax(sum[1], 1),
                  most = (PetscReal)(params->max_steps * params->step_size);
  if (mean < kEarlyStops * most)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "rows stop by the tolerance, or where no candidate is left, at %g of %g entries: lower the "
                                     "tolerance for more\n",
                                     (double)mean, (double)most));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Advice where many rows ended with a step that still gained much. */
static PetscErrorCode ViewUnfinished(PC pc, PetscViewer viewer)
{
  const PC_AFSAI    *afsai    = (const PC_AFSAI *)pc->data;
  const AFSAIParams *params   = &afsai->params;
  PetscInt64         count[2] = {afsai->stats.unfinished, afsai->inverse.rows}, sum[2];

  PetscFunctionBegin;
  if (!pc->setupcalled || pc->failedreason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPIU_Allreduce(count, sum, 2, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  if ((PetscReal)sum[0] > kAFSAIUnfinishedRows * (PetscReal)sum[1])
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "too few steps: %" PetscInt64_FMT " of %" PetscInt64_FMT " rows took all %" PetscInt_FMT
                                     ", and the last one still lowered psi by more than %g of it: take more, or jacobi may need "
                                     "fewer iterations\n",
                                     sum[0], sum[1], params->max_steps, (double)kAFSAISmallStep));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_AFSAI(PC pc, PetscViewer viewer)
{
  const PC_AFSAI    *afsai     = (const PC_AFSAI *)pc->data;
  const AFSAIParams *params    = &afsai->params;
  char               first[64] = "given by a matrix";
  PetscBool          is_ascii;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_FSAI(pc, viewer, afsai->overlap, LayersOf_AFSAI(afsai), (PetscBool)(afsai->pattern != nullptr), &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
    PetscViewerASCIIPrintf(viewer,
                           "at most %" PetscInt_FMT " steps of %" PetscInt_FMT " per row, a row stops by %s, tolerance %g\n",
                           params->max_steps, params->step_size, PCAFSAIStopRules[params->stop_rule], (double)params->tolerance));
  if (!afsai->pattern) PetscCall(PetscSNPrintf(first, sizeof(first), "of power %" PetscInt_FMT, params->initial_power));
  PetscCall(PetscViewerASCIIPrintf(viewer, "candidates ranked by %s, first pattern %s, prefilter %g, postfilter %g\n",
                                   PCAFSAISelections[params->selection], first, (double)params->prefilter,
                                   (double)params->postfilter));
  PetscCall(PetscViewerASCIIPrintf(viewer, "set-up in %s precision, pattern %s\n", FinePCPrecisions[params->setup_precision],
                                   afsai->reused
                                     ? "kept from the last set-up"
                                     : (afsai->reuse_pattern ? "kept while the nonzeros of A stay" : "searched at each set-up")));
  PetscCall(PCView_FSAI(pc, viewer));
  PetscCall(ViewEarlyStops(pc, viewer));
  PetscCall(ViewUnfinished(pc, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Composes the methods of the type, or takes them away if `compose` is false. */
static PetscErrorCode Compose_AFSAI(PC pc, PetscBool compose)
{
  PetscObject object = (PetscObject)pc;

  PetscFunctionBegin;
  PetscCall(PC_AFSAI::options.Compose(pc, compose));
  PetscCall(PCFSAICompose(pc, "PCAFSAIGetFactors_C", compose));
  PetscCall(PetscObjectComposeFunction(object, "PCAFSAISetPattern_C", compose ? Entry<PCFSAISetPattern> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "PCAFSAIGetPattern_C", compose ? Entry<PCFSAIGetPattern> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_AFSAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCReset_FSAI(pc));
  PetscCall(PCFSAIForgetPattern(pc));
  PetscCall(Compose_AFSAI(pc, PETSC_FALSE));
  delete (PC_AFSAI *)pc->data;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_AFSAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCFSAISetOperations(pc, new PC_AFSAI(), PCSetUp_AFSAI, Gather_AFSAI));
  pc->ops->setfromoptions = Entry<SetFromOptionTable<PC_AFSAI, PC>>;
  pc->ops->view           = Entry<PCView_AFSAI>;
  pc->ops->reset          = Entry<PCReset_FSAI>;
  pc->ops->destroy        = Entry<PCDestroy_AFSAI>;
  PetscCall(Compose_AFSAI(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCAFSAI - "afsai": adaptive factored sparse approximate inverse of a symmetric positive definite matrix, M^{-1} = G^T G

  Options Database Keys:
+ -pc_afsai_max_steps <20> - most steps in which a row is extended; 0 is Jacobi
. -pc_afsai_step_size <1> - entries added per step
. -pc_afsai_tolerance <1e-3> - tolerance of the stop rule; 0 with `gain`: every row takes all its steps
. -pc_afsai_stop_rule <gain> - `gain`: a row stops when a step lowers psi by less than the tolerance, relatively; `ratio`: when psi
  has come down to the tolerance times its first value
. -pc_afsai_selection <decrease> - how candidates are ranked: `gradient` of psi as it stands, or divided by sqrt(a_jj), which is the
  `decrease` that an entry alone brings and does not depend on how A is scaled
. -pc_afsai_initial_power <0> - the pattern starts as the lower triangle of this power of A; with 0 steps: static FSAI
. -pc_afsai_prefilter <0> - entries of A below this, relative to sqrt(a_ii a_jj), give no candidates
. -pc_afsai_postfilter <0> - entries of G below this, relative to the norm of their row, are dropped and the row scaled again
. -pc_afsai_setup_precision <single> - `single` or `double`; rows on which single fails are redone in double and counted
. -pc_afsai_factor_precision <single> - `single` or `double`; sums are in double in any case
. -pc_afsai_reuse_pattern <true> - when only the values of A have changed, keep the pattern of G while it fits
. -pc_afsai_overlap <0> - hops from rank to rank that G may reach, to lower-numbered ranks; 0: the rank's diagonal block
- -pc_afsai_halo_layers <0> - couplings that lead to the rows of other ranks that are gathered; 0: the power of the first pattern
  and as many as a row has steps, of which 5 count at most

  Level: intermediate

  Notes:
  For each row i of the lower triangular G the pattern is extended, step by step, by the columns where the derivative of the
  Kaporin number of G A G^T is largest; then A restricted to the pattern is solved for the row. The pattern starts as a power of A,
  or as `PCAFSAISetPattern()` gives it. The rows are independent of
  each other, and the preconditioner is applied as two sparse matrix-vector products, so that both the set-up and the solve
  run in parallel throughout. diag(G A G^T) = 1, and M is symmetric positive definite for every pattern.

  More steps give a smaller Kaporin number, but not always fewer iterations: between few steps and enough a factor can be far worse
  than `PCJACOBI`. The view says so where more than a tenth of the rows took all their steps and the last of them still lowered psi
  by more than a tenth.

  The matrix is a `MATAIJ`. With a `MATAIJCUSPARSE` that is not bound to the CPU everything runs on the GPU. With several ranks
  each rank takes its diagonal block, as `PCBJACOBI` does, unless `PCAFSAISetOverlap()` lets G reach other ranks. Then each rank
  gathers rows near its border from lower-numbered ranks once a set-up, new values alone if the nonzeros of the matrix have
  stayed, and computes its rows of G from them and its own. With matrices of blocks G stays in the rank's block. The gathered
  rows are in double precision and take 12 bytes an entry, and while a rank computes, there is a copy of all of its rows; the
  view tells their number and their bytes.

  The single entries of a `MATBAIJ`, a `MATSBAIJ` or a `MATBAIJCUDA` are copied once and new values into the same memory, for a
  `MATBAIJCUDA` on the GPU; the view tells the size of the blocks and of the copy. Other subtypes of `MATAIJ` are read on the host:
  `MATAIJPERM`, `MATAIJSELL` and `MATAIJCRL` are tested, those of Kokkos, ViennaCL, HIP and MKL are not.

  A coupling that only one of its two rows has is left out of G. If the other row has its diagonal entry alone, such as a
  Dirichlet row whose column was not zeroed, an application carries the value of this row over to the row that is coupled to it,
  before G^T G: `KSPCG` converges with such rows whatever the initial guess, as it would not without. M is not symmetric then,
  and `KSPCGFUSED` takes its general path. Values of other ranks' rows are not carried over: zero the columns, too, with
  `MatZeroRowsColumns()`, or begin with a guess that has these values. The view counts these couplings, and the pairs of entries
  that are not equal. For such couplings each set-up copies the values of the matrix.

  A matrix whose diagonal entries are all negative is preconditioned as -A with the other sign, so that M^{-1} = -G^T G. Rows of
  zeros are isolated rows with an inverse of 0, whether their diagonal entry is stored or not. The view tells of both. Any other
  diagonal entry that is missing or has another sign than the rest, or an entry that is not finite, makes the set-up fail with a
  `PCFailedReason`. Columns that are not in ascending order are sorted for the set-up, and entries that are stored twice added up.

  References:
  G. Isotton, C. Janna, M. Bernaschi, A GPU-accelerated adaptive FSAI preconditioner for massively parallel simulations;
  M. Bernaschi, M. Bisson, C. Fantozzi, C. Janna, SIAM J. Sci. Comput. 38 (2016) C53-C72 for the filters

.seealso: `PCSFSAI`, `PCJACOBI`, `PCICC`, `PCAFSAISetMaxSteps()`, `PCAFSAISetStepSize()`, `PCAFSAISetTolerance()`,
          `PCAFSAISetStopRule()`, `PCAFSAISetSelection()`, `PCAFSAISetInitialPower()`, `PCAFSAISetPrefilter()`,
          `PCAFSAISetPostfilter()`, `PCAFSAISetSetupPrecision()`, `PCAFSAISetFactorPrecision()`, `PCAFSAISetReusePattern()`,
          `PCAFSAISetPattern()`, `PCAFSAISetOverlap()`, `PCAFSAISetHaloLayers()`, `PCAFSAIGetFactors()`
M*/

/*@C
  PCCreate_AFSAI - Makes a preconditioner a `PCAFSAI`, and before that registers finepc if nothing has; for `PCRegister()`

  Collective

  Input Parameter:
. pc - the preconditioner context

  Level: developer

.seealso: `PCAFSAI`, `PCRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode PCCreate_AFSAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_AFSAI>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
