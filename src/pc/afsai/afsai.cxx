/* The PETSc face of aFSAI: options, set-up, view and life cycle. The method itself is in afsai_host.cxx and in cuda/pc/afsai. */
#include <petsc/private/pcimpl.h>

#include "api.h"
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
  /* max_steps: 0 leaves only the diagonal, which is `PCJACOBI`, unless `PCAFSAISetInitialPower()` gives an initial pattern

     A row of G has at most max_steps * step_size entries in addition to its initial pattern and its diagonal. */
  {"-pc_afsai_max_steps", "the most steps in which a row of the factor is extended, k_max", "PCAFSAISetMaxSteps",
   Param<&AFSAIParams::max_steps>(Between(0, kAFSAIMostSteps))},

  /* step_size

     Larger steps find the pattern less carefully: at the same number of entries per row, step size 1 is the most effective. */
  {"-pc_afsai_step_size", "how many entries a step adds to a row of the factor, s", "PCAFSAISetStepSize",
   Param<&AFSAIParams::step_size>(Between(1, kAFSAILargestStep))},

  /* tolerance: with the rule `gain`, 0 makes every row take all its steps

     `PCAFSAISetStopRule()` chooses what the tolerance is compared with. */
  {"-pc_afsai_tolerance", "the tolerance epsilon of the rule by which a row stops", "PCAFSAISetTolerance",
   Param<&AFSAIParams::tolerance>(AtLeastAndBelow(0, 1))},

  /* stop_rule

     The default stops a row when a step no longer pays off, whatever the value of its psi. With the ratio, (2.16) of Isotton,
     Janna, Bernaschi, rows that cannot reach the tolerance run to max_steps, and other rows stop while they still gain. */
  {"-pc_afsai_stop_rule", "the rule by which a row stops", "PCAFSAISetStopRule",
   Param<&AFSAIParams::stop_rule>(OneOf(PCAFSAIStopRules))},

  /* selection

     Both measures choose the same candidates for a matrix of constant diagonal. */
  {"-pc_afsai_selection", "the measure by which the candidates for a row are ranked", "PCAFSAISetSelection",
   Param<&AFSAIParams::selection>(OneOf(PCAFSAISelections))},

  /* initial_power: 0 is an empty pattern, 1 the lower triangle of A, and p that of its p-th power, by (3.9) of Bernaschi, Bisson,
     Fantozzi, Janna

     The steps then add to this pattern. If `PCAFSAISetMaxSteps()` sets 0 steps, the result is static FSAI. */
  {"-pc_afsai_initial_power", "the power p of A whose lower triangle is the pattern with which rows start",
   "PCAFSAISetInitialPower", Param<&AFSAIParams::initial_power>(Between(0, kFSAILargestPower))},

  /* prefilter: an entry with |a_ij| <= tau sqrt(a_ii a_jj) is ignored, (3.8) of Bernaschi, Bisson, Fantozzi, Janna

     Only the search for the pattern is filtered: the values of G are computed with all of A. */
  {"-pc_afsai_prefilter", "the threshold tau under which entries of A give no candidates", "PCAFSAISetPrefilter",
   Param<&AFSAIParams::prefilter>(Between(0, 1))},

  /* postfilter: an entry with |g_ij| <= delta ||g_i||_2 is dropped, (3.11) of Bernaschi, Bisson, Fantozzi, Janna; 0 drops
     nothing

     The row is scaled again by (3.13), so that diag(G A G^T) = 1 still holds. The diagonal stays, so that a threshold of 1 gives
     `PCJACOBI`. */
  {"-pc_afsai_postfilter", "the threshold delta under which entries of the computed factor are dropped", "PCAFSAISetPostfilter",
   Param<&AFSAIParams::postfilter>(Between(0, 1))},

  /* setup_precision: a row that has a bad pivot in single precision is computed again in double precision; the view counts these
     rows */
  {"-pc_afsai_setup_precision", "the precision in which the factor is computed", "PCAFSAISetSetupPrecision",
   Param<&AFSAIParams::setup_precision>(OneOf(FinePCPrecisions))},

  /* factor_precision: products are always summed in double precision

     A rounded G is still the factor of a symmetric positive definite G^T G. The diagonal scaling of G is always stored in double
     precision. */
  {"-pc_afsai_factor_precision", "the precision in which the factor is stored", "PCAFSAISetFactorPrecision",
   Param<&AFSAIParams::factor_precision>(OneOf(FinePCPrecisions))},

  /* reuse_pattern: `PETSC_TRUE` to compute new values on the old pattern as long as it fits, `PETSC_FALSE` to search for a new
     pattern in each set-up

     The pattern is kept if the nonzero pattern of the matrix, and that of the matrix given to `PCAFSAISetPattern()`, are the same
     as at the last set-up. The factors then keep their memory. Two numbers for each row, its gain and its coupling, show whether
     the pattern still fits the values. The gain, log(a_ii / psi_i), is the contribution of the off-diagonal entries of this row of
     the factor; the coupling is the sum of (a_ij / a_ii)^2 over all j other than i. A row has changed if either number differs from
     its value in the set-up that found the pattern by more than 0.4 of the larger of the two values and by more than 0.05. If more
     than a tenth of the rows have changed, the set-up searches for a new pattern; on several ranks, the ranks of a factor that
     reaches other ranks decide together, and otherwise each rank decides about its own block. The view shows how many rows have
     changed. The two numbers take 8 bytes per row. */
  {"-pc_afsai_reuse_pattern", "whether the pattern of the factor is kept when only the values of the matrix have changed",
   "PCAFSAISetReusePattern", Field<&PC_AFSAI::reuse_pattern>(), Invalidates::NOTHING},

  /* overlap: 0 keeps the factor in the rank's diagonal block, as `PCBJACOBI` with a sequential `PCAFSAI` does

     Two ranks are one hop apart if the matrix has an entry in a row of one and a column of the other. If the hops reach all
     lower-numbered ranks, and the layers of `PCAFSAISetHaloLayers()` all of their rows that matter, G is the same as on one rank.
     With 1 hop, 4 or 8 ranks need about as many iterations as one rank; subdomains thinner than about three couplings need 2 hops.
     Each application exchanges entries of two vectors with neighbours, in addition to what the product with the matrix exchanges.

     See also: `PCAFSAISetHaloLayers()` */
  {"-pc_afsai_overlap", "how many hops to lower-numbered ranks the factor may reach", "PCAFSAISetOverlap",
   Field<&PC_AFSAI::overlap>(Between(0, kFSAIMostOverlap))},

  /* halo_layers: 0 stands for the power of the initial pattern plus the most steps of a row, of which at most 5 count

     The set-up gathers rows from the ranks that `PCAFSAISetOverlap()` allows, at most this number of couplings away. With as many
     layers as a row has steps, nothing is cut. The view counts the rows that the layers may have cut. Where `PCAFSAISetPattern()`
     gives the initial pattern, the couplings are counted from its columns, too.

     See also: `PCAFSAISetOverlap()` */
  {"-pc_afsai_halo_layers", "how many couplings lead from a rank's rows to the rows of other ranks that it gathers",
   "PCAFSAISetHaloLayers", Field<&PC_AFSAI::halo_layers>(Between(0, kFSAIMostLayers))},
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
static PetscErrorCode ComputeFactor_AFSAI(PC pc, const CSRView *A, PetscBool reuse_pattern)
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
  const PC_AFSAI *afsai = (const PC_AFSAI *)pc->data;
  bool            fits;

  PetscFunctionBegin;
  PetscCall(ComputeFactor_AFSAI(pc, A, (PetscBool)(afsai->reuse_pattern && afsai->given_stays)));
  PetscCall(PCFSAIFits(pc, A, afsai->reuse_pattern && DependsOnValues_AFSAI(afsai), &fits));
  if (!fits) {
    PetscCall(ComputeFactor_AFSAI(pc, A, PETSC_FALSE));
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
  const FSAIReach reach{"afsai",        afsai->overlap, LayersOf_AFSAI(afsai), FirstPower(afsai) + params->max_steps,
                        afsai->pattern, kSetter,        afsai->reuse_pattern,  params->factor_precision};
  PetscCall(PCFSAIGather(pc, &reach, phase));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_AFSAI(PC pc, PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  PetscCall(PCLocalComputeOnSymmetricRows(pc, pc->pmat, OneSided::LEAVE_OUT, ComputeOnRows_AFSAI, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* G^T G is symmetric, and `transpose` does not matter. */
static PetscErrorCode PCApply_AFSAI(PC pc, PetscBool, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y,
                                    LocalInt ldy, PetscLogDouble *flops)
{
  PetscFunctionBegin;
  PetscCall(PCInverseApply(&((PC_AFSAI *)pc->data)->inverse, columns, X, ldx, Y, ldy, flops));
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
  PetscFunctionBegin;
  PetscCall(PC_AFSAI::options.Compose(pc, compose));
  PetscCall(PCFSAICompose(pc, "PCAFSAIGetFactors_C", "PCAFSAISetPattern", compose));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_AFSAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCFSAISetOperations(pc, new PC_AFSAI(), PCSetUp_AFSAI, PCApply_AFSAI, Gather_AFSAI));
  ((PC_Local *)pc->data)->copy_options = CopyOptionTable<PC_AFSAI, PC>;
  pc->ops->setfromoptions              = Entry<SetFromOptionTable<PC_AFSAI, PC>>;
  pc->ops->view                        = Entry<PCView_AFSAI>;
  pc->ops->reset                       = Entry<PCReset_FSAI>;
  pc->ops->destroy                     = Entry<DestroyData<PC_AFSAI, PCReset_FSAI, Compose_AFSAI, PC>>;
  PetscCall(Compose_AFSAI(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAFSAISetPattern - Gives `PCAFSAI` the pattern with which the rows of its factor start, instead of a power of the matrix

  Collective

  Input Parameters:
+ pc - the preconditioner context
- pattern - a square `MATAIJ` of any kind with the layout of the operator; `NULL` returns to the pattern of
  `PCAFSAISetInitialPower()`

  Level: advanced

  Notes:
  A row of the factor starts with the lower triangular part of this row in the rank's diagonal block of the pattern. All of these
  entries stay unless `PCAFSAISetPostfilter()` drops them. The steps of `PCAFSAISetMaxSteps()` then extend the row. With 0 steps the
  factor is that of `PCSFSAI` on this pattern. The upper triangle and the values are ignored, and `PCAFSAISetInitialPower()` is not
  used while a pattern is given. The time and memory that a row takes grow at least as the square of its length.

  On several ranks with `PCAFSAISetOverlap()` a row starts with the entries in columns of lower-numbered ranks, too. Ranks that the
  pattern couples are one hop apart, like those that the matrix couples. The set-up gathers those rows of other ranks that are
  columns of the pattern and, for the steps, the rows that the couplings of `PCAFSAISetHaloLayers()` reach from these rows and from
  the rank's border. Entries in columns of lower-numbered ranks that no hop reaches are left out, as all of them are without hops;
  the view counts them.

  The pattern matrix may be on the host when the operator is on the GPU, and vice versa.

  The next `PCSetUp()` starts from scratch. `pc` keeps a reference to the pattern matrix, even across `PCReset()`. If the nonzeros
  of this matrix change, the next set-up for new values of the operator uses the new nonzeros.

  `PCSetUp()` ends with an error if the pattern matrix is not assembled, is not a `MATAIJ`, or does not have the local sizes of the
  operator.

.seealso: `PCAFSAI`, `PCAFSAIGetPattern()`, `PCAFSAISetInitialPower()`, `PCSFSAISetPattern()`
@*/
PetscErrorCode PCAFSAISetPattern(PC pc, Mat pattern)
{
  return CallSetter(pc, "PCAFSAISetPattern_C", pattern);
}

/*@
  PCAFSAIGetPattern - Gets the matrix that gives `PCAFSAI` the pattern with which the rows of its factor start

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. pattern - see `PCAFSAISetPattern()`; a borrowed reference, or `NULL` if no matrix was given

  Level: advanced

.seealso: `PCAFSAI`, `PCAFSAISetPattern()`
@*/
PetscErrorCode PCAFSAIGetPattern(PC pc, Mat *pattern)
{
  return CallGetter(pc, "PCAFSAIGetPattern_C", pattern);
}

/*@
  PCAFSAIGetFactors - Gets the factor G of M^{-1} = G^T G that `PCAFSAI` has computed, and its transpose

  Collective

  Input Parameter:
. pc - the preconditioner context, which is set up

  Output Parameters:
+ G  - the lower triangular factor, a `MATAIJ` in double precision with the layout of the matrix; or `NULL` if it is not wanted
- Gt - the transpose of G; or `NULL` if it is not wanted

  Level: advanced

  Notes:
  Both are copies that the caller destroys with `MatDestroy()`.

  With several ranks G is block diagonal, with one block for each rank.

.seealso: `PCAFSAI`
@*/
PetscErrorCode PCAFSAIGetFactors(PC pc, Mat *G, Mat *Gt)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscUseMethod(pc, "PCAFSAIGetFactors_C", (PC, Mat *, Mat *), (pc, G, Gt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCAFSAI - "afsai": adaptive factored sparse approximate inverse of a symmetric positive definite matrix, M^{-1} = G^T G

  Options Database Keys:
+ -pc_afsai_max_steps <20> - the most steps in which a row of the factor is extended, k_max; between 0 and 10000; 0 leaves only the
  diagonal, which is `PCJACOBI`, unless `PCAFSAISetInitialPower()` gives an initial pattern
. -pc_afsai_step_size <1> - how many entries a step adds to a row of the factor, s; between 1 and 10000
. -pc_afsai_tolerance <0.001> - the tolerance epsilon of the rule by which a row stops; at least 0 and below 1; with the rule
  `gain`, 0 makes every row take all its steps
. -pc_afsai_stop_rule <gain> - the rule by which a row stops. `gain`: a row stops when a step has lowered its psi by less than the
  tolerance, (psi_{k-1} - psi_k) / psi_{k-1} < tolerance; `ratio`: a row stops when its psi has come down far enough, psi_k / psi_0
  <= tolerance, (2.16) of Isotton, Janna, Bernaschi
. -pc_afsai_selection <decrease> - the measure by which the candidates for a row are ranked. `gradient`: |d psi_i / d g_ij|, (2.15)
  of Isotton, Janna, Bernaschi; this measure depends on the scaling of A; `decrease`: |d psi_i / d g_ij| / sqrt(a_jj), the square
  root of the decrease of psi_i that j alone brings; this measure is the same for A and for every diagonal scaling of A
. -pc_afsai_initial_power <0> - the power p of A whose lower triangle is the pattern with which rows start; between 0 and 1000; 0 is
  an empty pattern, 1 the lower triangle of A, and p that of its p-th power, by (3.9) of Bernaschi, Bisson, Fantozzi, Janna
. -pc_afsai_prefilter <0> - the threshold tau under which entries of A give no candidates; between 0 and 1; an entry with |a_ij| <=
  tau sqrt(a_ii a_jj) is ignored, (3.8) of Bernaschi, Bisson, Fantozzi, Janna
. -pc_afsai_postfilter <0> - the threshold delta under which entries of the computed factor are dropped; between 0 and 1; an entry
  with |g_ij| <= delta ||g_i||_2 is dropped, (3.11) of Bernaschi, Bisson, Fantozzi, Janna; 0 drops nothing
. -pc_afsai_setup_precision <single> - the precision in which the factor is computed: `single` or `double`; a row that has a bad
  pivot in single precision is computed again in double precision; the view counts these rows
. -pc_afsai_factor_precision <single> - the precision in which the factor is stored: `single` or `double`; products are always
  summed in double precision
. -pc_afsai_reuse_pattern <true> - whether the pattern of the factor is kept when only the values of the matrix have changed: `true`
  to compute new values on the old pattern as long as it fits, `false` to search for a new pattern in each set-up
. -pc_afsai_overlap <0> - how many hops to lower-numbered ranks the factor may reach; between 0 and 1000; 0 keeps the factor in the
  rank's diagonal block, as `PCBJACOBI` with a sequential `PCAFSAI` does
. -pc_afsai_halo_layers <0> - how many couplings lead from a rank's rows to the rows of other ranks that it gathers; between 0 and
  10000; 0 stands for the power of the initial pattern plus the most steps of a row, of which at most 5 count
- -pc_afsai_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `PCFinePCSetBackend()`

  Level: intermediate

  Notes:
  For each row i of the lower triangular G the pattern is extended, step by step, by the columns where the derivative of the Kaporin
  number of G A G^T is largest; then the system with A restricted to the pattern is solved for the row. The pattern starts as a
  power of A, or as `PCAFSAISetPattern()` gives it. The rows are independent of each other, and the preconditioner is applied as two
  sparse matrix-vector products, so that both the set-up and the solve run in parallel throughout. diag(G A G^T) = 1, and M is
  symmetric positive definite for every pattern.

  More steps give a smaller Kaporin number, but not always fewer iterations: between a few steps and enough steps, a factor can be
  far worse than `PCJACOBI`. The view says so if more than a tenth of the rows took all their steps and the last step still lowered
  psi by more than a tenth.

  The matrix is a `MATAIJ`. With a `MATAIJCUSPARSE` that is not bound to the CPU everything runs on the GPU. On several ranks each
  rank uses its diagonal block, as `PCBJACOBI` does, unless `PCAFSAISetOverlap()` lets G reach other ranks. In that case each rank
  gathers rows near its border from lower-numbered ranks in each set-up, or only their new values if the nonzeros of the matrix are
  unchanged, and computes its rows of G from the gathered rows and its own. With block matrices G stays in the rank's block. The
  gathered rows are in double precision and take 12 bytes per entry; the view shows their number and their bytes. While a rank
  computes, it also holds a copy of all of its own rows.

  The scalar entries of a `MATBAIJ`, a `MATSBAIJ` or a `MATBAIJCUDA` are copied once, and new values are copied into the same
  memory, for a `MATBAIJCUDA` on the GPU. The view shows the size of the blocks and of the copy. Other subtypes of `MATAIJ` are read
  on the host: `MATAIJPERM`, `MATAIJSELL` and `MATAIJCRL` are tested; those of Kokkos, ViennaCL, HIP and MKL are not.

  A coupling that only one of its two rows contains is left out of G. If the other row has only its diagonal entry, such as a
  Dirichlet row whose column was not zeroed, an application carries the value of this row over to the row that is coupled to it,
  before it applies G^T G. With such rows `KSPCG` then converges for any initial guess, which it would not do otherwise. M is then
  not symmetric, and `KSPCGFUSED` takes its general path. Values of other ranks' rows are not carried over: zero the columns, too,
  with `MatZeroRowsColumns()`, or start from a guess that has these values. The view counts these couplings, and the pairs of
  entries that are not equal. If there are such couplings, each set-up copies the values of the matrix.

  A matrix whose diagonal entries are all negative is preconditioned as -A with the opposite sign, so that M^{-1} = -G^T G. Rows of
  zeros are isolated rows with an inverse of 0, whether their diagonal entry is stored or not. The view shows both. Any other
  diagonal entry that is missing or differs in sign from the rest, or an entry that is not finite, makes the set-up fail with a
  `PCFailedReason`. Columns that are not in ascending order are sorted for the set-up, and entries that are stored twice are added.

  References:
  G. Isotton, C. Janna, M. Bernaschi, A GPU-accelerated adaptive FSAI preconditioner for massively parallel simulations;
  M. Bernaschi, M. Bisson, C. Fantozzi, C. Janna, SIAM J. Sci. Comput. 38 (2016) C53-C72 for the filters

.seealso: `PCSFSAI`, `PCJACOBI`, `PCICC`, `PCAFSAISetPattern()`, `PCAFSAIGetFactors()`, `PCAFSAISetMaxSteps()`,
          `PCAFSAISetStepSize()`, `PCAFSAISetTolerance()`, `PCAFSAISetStopRule()`, `PCAFSAISetSelection()`,
          `PCAFSAISetInitialPower()`, `PCAFSAISetPrefilter()`, `PCAFSAISetPostfilter()`, `PCAFSAISetSetupPrecision()`,
          `PCAFSAISetFactorPrecision()`, `PCAFSAISetReusePattern()`, `PCAFSAISetOverlap()`, `PCAFSAISetHaloLayers()`
M*/

/*@C
  PCCreate_AFSAI - Makes a preconditioner a `PCAFSAI`, after registering finepc if nothing has done so; for `PCRegister()`

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
