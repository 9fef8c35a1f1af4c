/* The PETSc face of sFSAI: options, set-up, view and life cycle. The method itself is in sfsai_host.cxx and in cuda/pc/sfsai. */
#include <petsc/private/pcimpl.h>

#include "api.h"
#include "finepcimpl.h"
#include "options.h"
#include "pc/fsai_face.h"
#include "sfsai.h"

namespace
{

constexpr char kSetter[] = "PCSFSAISetPattern"; /* for errors about a pattern that is given */

struct PC_SFSAI : PC_FSAI {
  static const OptionTable<PC> options;

  SFSAIParams params;                          /* with the next two, at a set-up */
  PetscInt    power         = PETSC_DETERMINE; /* what is asked for; PETSC_DETERMINE leaves it to the set-up */
  PetscInt    max_row       = PETSC_DETERMINE; /* likewise */
  PetscBool   reuse_pattern = PETSC_TRUE;
  PetscInt    overlap       = kFSAIOverlap;
  PetscInt    halo_layers   = 0; /* 0: the power */
  SFSAIWork   work          = SFSAIWork{};
};

template <auto Member>
using Param = Field<&PC_SFSAI::params, Member>;

const Option<PC> kOptions[] = {
  /* power: 0 leaves only the diagonal, which is `PCJACOBI`, 1 takes the lower triangle of A, and 2 one more product, by (3.9) of
     Bernaschi, Bisson, Fantozzi, Janna; -1, `PETSC_DETERMINE`, takes 2, or 1 where rows would be long

     A row of m entries costs m^3 operations. By default the power is 1 if the rows of power 2 would cost more than rows of 200
     entries on average, such as those of quadratic elements with three unknowns per point. Each rank chooses for its own rows, and
     the view says what was chosen. The products are symbolic, so entries that cancel stay. The power is not used while
     `PCSFSAISetPattern()` gives the pattern. */
  {"-pc_sfsai_power", "how many products of the recursion make the pattern of the factor, k", "PCSFSAISetPower",
   Field<&PC_SFSAI::power>(Between(PETSC_DETERMINE, kFSAILargestPower))},

  /* prefilter: an entry with |a_ij| <= tau sqrt(a_ii a_jj) is ignored, (3.8) of Bernaschi, Bisson, Fantozzi, Janna; with 0 every
     stored entry counts

     Only the pattern is filtered: the values of G are computed with all of A. The prefilter is not used while
     `PCSFSAISetPattern()` gives the pattern. */
  {"-pc_sfsai_prefilter", "the threshold tau under which entries of A do not count for the pattern", "PCSFSAISetPrefilter",
   Param<&SFSAIParams::prefilter>(Between(0, 1))},

  /* postfilter: an entry with |g_ij| <= delta ||g_i||_2 is dropped, (3.11) of Bernaschi, Bisson, Fantozzi, Janna; 0 drops
     nothing

     The row is scaled again by (3.13), so that diag(G A G^T) = 1 still holds. The diagonal stays, so that a threshold of 1 gives
     `PCJACOBI`. The view counts the entries that were dropped. */
  {"-pc_sfsai_postfilter", "the threshold delta under which entries of the computed factor are dropped", "PCSFSAISetPostfilter",
   Param<&SFSAIParams::postfilter>(Between(0, 1))},

  /* max_row: 0 for no cap, 1 leaves only the diagonal, and -1, `PETSC_DETERMINE`, takes 768

     A longer row keeps the entries with the largest path weights, which are the entries of |A~|^k along the row's paths, where A~
     is the filtered A scaled to unit diagonal. Among entries of equal weight, those with smaller column numbers come first. The
     view counts the rows that were cut. The cap is not used while `PCSFSAISetPattern()` gives the pattern. */
  {"-pc_sfsai_max_row", "the most entries that a row of the factor may have, its diagonal included", "PCSFSAISetMaxRow",
   Field<&PC_SFSAI::max_row>(Between(PETSC_DETERMINE, kSFSAILargestCap))},

  /* setup_precision: a row that has a bad pivot in single precision is computed again in double precision; the view counts these
     rows */
  {"-pc_sfsai_setup_precision", "the precision in which the factor is computed", "PCSFSAISetSetupPrecision",
   Param<&SFSAIParams::setup_precision>(OneOf(FinePCPrecisions))},

  /* factor_precision: products are always summed in double precision

     A rounded G is still the factor of a symmetric positive definite G^T G. The diagonal scaling of G is always stored in double
     precision. */
  {"-pc_sfsai_factor_precision", "the precision in which the factor is stored", "PCSFSAISetFactorPrecision",
   Param<&SFSAIParams::factor_precision>(OneOf(FinePCPrecisions))},

  /* reuse_pattern: `PETSC_TRUE` to compute new values on the old pattern as long as it fits, `PETSC_FALSE` to make a new pattern in
     each set-up

     The pattern is kept if the nonzero pattern of the matrix, and that of the matrix given to `PCSFSAISetPattern()`, are the same
     as at the last set-up. Nothing is allocated then. With a prefilter, a postfilter or a cap on the rows, the pattern depends on
     the values from which it was made. It is then kept as long as the gains and couplings of nine tenths of the rows stay about the
     same, see `PCAFSAISetReusePattern()`; otherwise the set-up makes a new pattern.

     See also: `PCAFSAISetReusePattern()` */
  {"-pc_sfsai_reuse_pattern", "whether the pattern of the factor is kept when only the values of the matrix have changed",
   "PCSFSAISetReusePattern", Field<&PC_SFSAI::reuse_pattern>(), Invalidates::NOTHING},

  /* overlap: 0 keeps the factor in the rank's diagonal block, as `PCBJACOBI` with a sequential `PCSFSAI` does

     Two ranks are one hop apart if the matrix has an entry in a row of one and a column of the other. If the hops reach all
     lower-numbered ranks, and the layers of `PCSFSAISetHaloLayers()` all of their rows that matter, G is the same as on one rank.
     With 1 hop, 4 or 8 ranks need about as many iterations as one rank; subdomains thinner than about three couplings need 2 hops.
     Each application exchanges entries of two vectors with neighbours, in addition to what the product with the matrix exchanges.

     See also: `PCSFSAISetHaloLayers()` */
  {"-pc_sfsai_overlap", "how many hops to lower-numbered ranks the factor may reach", "PCSFSAISetOverlap",
   Field<&PC_SFSAI::overlap>(Between(0, kFSAIMostOverlap))},

  /* halo_layers: 0 stands for the power

     The set-up gathers rows from the ranks that `PCSFSAISetOverlap()` allows, at most this number of couplings away. With as many
     layers as the power, nothing is cut. The view counts the rows that the layers may have cut. The layers do not matter if
     `PCSFSAISetPattern()` gives the pattern: then the rows that are gathered are the columns of this pattern.

     See also: `PCSFSAISetOverlap()` */
  {"-pc_sfsai_halo_layers", "how many couplings lead from a rank's rows to the rows of other ranks that it gathers",
   "PCSFSAISetHaloLayers", Field<&PC_SFSAI::halo_layers>(Between(0, kFSAIMostLayers))},
};
const OptionTable<PC> PC_SFSAI::options{"sFSAI options", kOptions};

} // namespace

static PetscErrorCode FreeWork(SFSAIWork *work)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(work->where, &work->data));
  *work = SFSAIWork{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The power that is asked for, or the one that is tried first. */
static PetscInt PowerOf(const PC_SFSAI *sfsai)
{
  return sfsai->power == PETSC_DETERMINE ? kSFSAIAutomaticPower : sfsai->power;
}

/* Whether another matrix with the same nonzeros may get another pattern. */
static bool DependsOnValues_SFSAI(const PC_SFSAI *sfsai)
{
  const SFSAIParams *params = &sfsai->params;
  return params->postfilter > 0 || ((params->prefilter > 0 || params->max_row || sfsai->stats.capped_rows) && !sfsai->pattern);
}

/* Computes the rows of the factor, on the old pattern with reuse_pattern if there is one. */
static PetscErrorCode ComputeFactor_SFSAI(PC pc, const CSRView *A, PetscBool reuse_pattern)
{
  PC_SFSAI        *sfsai   = (PC_SFSAI *)pc->data;
  PCInverse       *M       = &sfsai->inverse;
  const auto       compute = PetscMemTypeDevice(A->where) ? SFSAIComputeFactor_CUDA : SFSAIComputeFactor_Host;
  FSAIGivenPattern given{};
  CSR             *W1;

  PetscFunctionBegin;
  PetscCall(PCFSAIPrepare(pc, A, reuse_pattern, sfsai->params.factor_precision, &W1));
  if (sfsai->work.where != A->where) PetscCall(FreeWork(&sfsai->work));
  const PetscBool is_given = (PetscBool)(sfsai->pattern && !sfsai->reused);
  PetscErrorCode  code     = is_given ? PCFSAIGetGivenPattern(pc, A, kSetter, &given) : PETSC_SUCCESS;

  sfsai->params.power           = PowerOf(sfsai);
  sfsai->params.automatic_power = (PetscBool)(sfsai->power == PETSC_DETERMINE);
  sfsai->params.max_row         = PetscMax(sfsai->max_row, 0);
  sfsai->params.automatic_cap   = (PetscBool)(sfsai->max_row == PETSC_DETERMINE);
  PetscCall(PetscLogEventBegin(FinePC_SFSAIFactor, pc, pc->pmat, 0, 0));
  if (!code)
    code = CallGuarded(compute, SFSAIRows{A, PCFSAIFirst(sfsai), is_given ? &given.S : nullptr},
                       (const SFSAIParams *)&sfsai->params, sfsai->reused, W1, M->d, &sfsai->work, &sfsai->stats);
  PetscCall(PetscLogEventEnd(FinePC_SFSAIFactor, pc, pc->pmat, 0, 0));
  PetscCall(PCFSAIRestoreGivenPattern(&given));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the factor of the rank's block, G~ and d, and its transpose, or describes in the outcome why there is no factor. */
static PetscErrorCode ComputeOnRows_SFSAI(PC pc, const CSRView *A, PCLocalOutcome *outcome)
{
  const PC_SFSAI *sfsai = (const PC_SFSAI *)pc->data;
  bool            fits;

  PetscFunctionBegin;
  PetscCall(ComputeFactor_SFSAI(pc, A, (PetscBool)(sfsai->reuse_pattern && sfsai->given_stays)));
  PetscCall(PCFSAIFits(pc, A, sfsai->reuse_pattern && DependsOnValues_SFSAI(sfsai), &fits));
  if (!fits) {
    PetscCall(ComputeFactor_SFSAI(pc, A, PETSC_FALSE));
    PetscCall(PCFSAIFits(pc, A, true, &fits));
  }
  PetscCall(PCFSAIComplete(pc, "PCSFSAI", sfsai->reuse_pattern, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Each product follows one coupling more. A pattern that is given names all rows. */
static PetscInt LayersOf_SFSAI(const PC_SFSAI *sfsai)
{
  return sfsai->pattern ? 0 : sfsai->halo_layers ? sfsai->halo_layers : PowerOf(sfsai);
}

/*
   Of a pattern that is given, the rows of its columns are needed and no others. The plan belongs to the pattern then, so that it is
   made again with it.
*/
static PetscErrorCode Gather_SFSAI(PC pc, PCLocalPhase *phase)
{
  const PC_SFSAI *sfsai = (const PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  const FSAIReach reach{"sfsai",        sfsai->overlap, LayersOf_SFSAI(sfsai), PowerOf(sfsai),
                        sfsai->pattern, kSetter,        sfsai->reuse_pattern,  sfsai->params.factor_precision};

  PetscCall(PCFSAIGather(pc, &reach, phase));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_SFSAI(PC pc, PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  PetscCall(PCLocalComputeOnSymmetricRows(pc, pc->pmat, OneSided::LEAVE_OUT, ComputeOnRows_SFSAI, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* G^T G is symmetric, and `transpose` does not matter. */
static PetscErrorCode PCApply_SFSAI(PC pc, PetscBool, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y,
                                    LocalInt ldy, PetscLogDouble *flops)
{
  PetscFunctionBegin;
  PetscCall(PCInverseApply(&((PC_SFSAI *)pc->data)->inverse, columns, X, ldx, Y, ldy, flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows how the pattern is made, and what was chosen where it was left to the set-up. */
static PetscErrorCode ViewPattern(PC pc, PetscViewer viewer)
{
  const PC_SFSAI    *sfsai   = (const PC_SFSAI *)pc->data;
  const SFSAIParams *params  = &sfsai->params;
  PetscInt           most[2] = {sfsai->stats.power, -sfsai->stats.power};
  char               power[96], cap[64] = "rows not capped";

  PetscFunctionBegin;
  if (sfsai->pattern) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "pattern given by a matrix, postfilter %g\n", (double)params->postfilter));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscSNPrintf(power, sizeof(power), "power %" PetscInt_FMT, sfsai->power));
  if (sfsai->power == PETSC_DETERMINE) {
    const char *chosen = "power 2, or 1 where rows would be long";

    if (pc->setupcalled && !pc->failedreason) {
      if (!sfsai->inverse.rows) most[0] = 0, most[1] = -kSFSAIAutomaticPower; /* a rank without rows has no say */
      PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, most, 2, MPIU_INT, MPI_MAX, PetscObjectComm((PetscObject)pc)));
      chosen = most[0] != 1 && most[1] == -kSFSAIAutomaticPower ? "power 2, chosen since its rows are short"
               : most[0] == 1                                   ? "power 1, chosen since rows of power 2 would be long"
                                                                : "power 2, or 1 on ranks whose rows would be long";
    }
    PetscCall(PetscStrncpy(power, chosen, sizeof(power)));
  }
  if (sfsai->max_row)
    PetscCall(PetscSNPrintf(cap, sizeof(cap), "at most %" PetscInt_FMT " entries per row%s",
                            sfsai->max_row > 0 ? sfsai->max_row : kSFSAIAutomaticCap, sfsai->max_row > 0 ? "" : " by default"));
  PetscCall(PetscViewerASCIIPrintf(viewer, "pattern of %s, prefilter %g, postfilter %g, %s\n", power, (double)params->prefilter,
                                   (double)params->postfilter, cap));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_SFSAI(PC pc, PetscViewer viewer)
{
  const PC_SFSAI    *sfsai  = (const PC_SFSAI *)pc->data;
  const SFSAIParams *params = &sfsai->params;
  PetscBool          is_ascii;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_FSAI(pc, viewer, sfsai->overlap, LayersOf_SFSAI(sfsai), (PetscBool)(sfsai->pattern != nullptr), &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ViewPattern(pc, viewer));
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

/* Frees all that a set-up has made. The options and the user's pattern stay. */
static PetscErrorCode PCReset_SFSAI(PC pc)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCReset_FSAI(pc));
  PetscCall(FreeWork(&sfsai->work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Composes the methods of the type, or takes them away if `compose` is false. */
static PetscErrorCode Compose_SFSAI(PC pc, PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(PC_SFSAI::options.Compose(pc, compose));
  PetscCall(PCFSAICompose(pc, "PCSFSAIGetFactors_C", "PCSFSAISetPattern", compose));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_SFSAI(PC pc)
{
  PC_SFSAI *sfsai = new PC_SFSAI();

  PetscFunctionBegin;
  sfsai->params.pattern_event = FinePC_SFSAIPattern;
  sfsai->params.values_event  = FinePC_SFSAIValues;
  PetscCall(PCFSAISetOperations(pc, sfsai, PCSetUp_SFSAI, PCApply_SFSAI, Gather_SFSAI));
  ((PC_Local *)pc->data)->copy_options = CopyOptionTable<PC_SFSAI, PC>;
  pc->ops->setfromoptions              = Entry<SetFromOptionTable<PC_SFSAI, PC>>;
  pc->ops->view                        = Entry<PCView_SFSAI>;
  pc->ops->reset                       = Entry<PCReset_SFSAI>;
  pc->ops->destroy                     = Entry<DestroyData<PC_SFSAI, PCReset_SFSAI, Compose_SFSAI, PC>>;
  PetscCall(Compose_SFSAI(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCSFSAISetPattern - Gives `PCSFSAI` the pattern of its factor, instead of a power of the matrix

  Collective

  Input Parameters:
+ pc - the preconditioner context
- pattern - a square `MATAIJ` of any kind with the layout of the operator; `NULL` returns to the pattern of `PCSFSAISetPower()`

  Level: advanced

  Notes:
  The lower triangle of the rank's diagonal block is the pattern, S of (3.5) of Bernaschi, Bisson, Fantozzi, Janna. The diagonal
  always belongs to the pattern; the upper triangle and the values are ignored. While a pattern is given, `PCSFSAISetPower()`,
  `PCSFSAISetPrefilter()` and `PCSFSAISetMaxRow()` are not used, but `PCSFSAISetPostfilter()` is.

  On several ranks with `PCSFSAISetOverlap()` entries in columns of lower-numbered ranks belong to the pattern, too. Ranks that the
  pattern couples are one hop apart, like those that the matrix couples. Entries in columns of lower-numbered ranks that no hop
  reaches are left out, as all of them are without hops; the view counts them.

  The pattern matrix may be on the host when the operator is on the GPU, and vice versa.

  The next `PCSetUp()` starts from scratch. `pc` keeps a reference to the pattern matrix, even across `PCReset()`. If the nonzeros
  of this matrix change, the next set-up for new values of the operator uses the new nonzeros.

  `PCSetUp()` ends with an error if the pattern matrix is not assembled, is not a `MATAIJ`, or does not have the local sizes of the
  operator.

.seealso: `PCSFSAI`, `PCSFSAIGetPattern()`, `PCSFSAISetPower()`
@*/
PetscErrorCode PCSFSAISetPattern(PC pc, Mat pattern)
{
  return CallSetter(pc, "PCSFSAISetPattern_C", pattern);
}

/*@
  PCSFSAIGetPattern - Gets the matrix that gives `PCSFSAI` the pattern of its factor

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. pattern - see `PCSFSAISetPattern()`; a borrowed reference, or `NULL` if no matrix was given

  Level: advanced

.seealso: `PCSFSAI`, `PCSFSAISetPattern()`
@*/
PetscErrorCode PCSFSAIGetPattern(PC pc, Mat *pattern)
{
  return CallGetter(pc, "PCSFSAIGetPattern_C", pattern);
}

/*@
  PCSFSAIGetFactors - Gets the factor G of M^{-1} = G^T G that `PCSFSAI` has computed, and its transpose

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
+ -pc_sfsai_power <-1> - how many products of the recursion make the pattern of the factor, k; between -1 and 1000; 0 leaves only
  the diagonal, which is `PCJACOBI`, 1 takes the lower triangle of A, and 2 one more product, by (3.9) of Bernaschi, Bisson,
  Fantozzi, Janna; -1, `PETSC_DETERMINE`, takes 2, or 1 where rows would be long
. -pc_sfsai_prefilter <0> - the threshold tau under which entries of A do not count for the pattern; between 0 and 1; an entry with
  |a_ij| <= tau sqrt(a_ii a_jj) is ignored, (3.8) of Bernaschi, Bisson, Fantozzi, Janna; with 0 every stored entry counts
. -pc_sfsai_postfilter <0> - the threshold delta under which entries of the computed factor are dropped; between 0 and 1; an entry
  with |g_ij| <= delta ||g_i||_2 is dropped, (3.11) of Bernaschi, Bisson, Fantozzi, Janna; 0 drops nothing
. -pc_sfsai_max_row <-1> - the most entries that a row of the factor may have, its diagonal included; between -1 and 100000; 0 for
  no cap, 1 leaves only the diagonal, and -1, `PETSC_DETERMINE`, takes 768
. -pc_sfsai_setup_precision <single> - the precision in which the factor is computed: `single` or `double`; a row that has a bad
  pivot in single precision is computed again in double precision; the view counts these rows
. -pc_sfsai_factor_precision <single> - the precision in which the factor is stored: `single` or `double`; products are always
  summed in double precision
. -pc_sfsai_reuse_pattern <true> - whether the pattern of the factor is kept when only the values of the matrix have changed: `true`
  to compute new values on the old pattern as long as it fits, `false` to make a new pattern in each set-up
. -pc_sfsai_overlap <0> - how many hops to lower-numbered ranks the factor may reach; between 0 and 1000; 0 keeps the factor in the
  rank's diagonal block, as `PCBJACOBI` with a sequential `PCSFSAI` does
. -pc_sfsai_halo_layers <0> - how many couplings lead from a rank's rows to the rows of other ranks that it gathers; between 0 and
  10000; 0 stands for the power
- -pc_sfsai_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `PCFinePCSetBackend()`

  Level: intermediate

  Notes:
  The pattern of the lower triangular G is known before its values. It is the pattern of k products of the recursion
  B <- Low(B A~), (3.9), where A~ is A without its small entries, or the pattern that `PCSFSAISetPattern()` gives. Then A restricted
  to the pattern of a row is factored and solved for the row, (3.6). The rows are independent of each other. The preconditioner is
  applied as two sparse matrix-vector products. diag(G A G^T) = 1, and M is symmetric positive definite for every pattern.

  The default power is 2. If rows with power 2 would cost more than rows of 200 entries on average, as with quadratic elements of
  elasticity in three dimensions, the set-up would take much longer than the solve, and the power is 1. Each rank chooses for its
  own rows; the view says what was chosen. A row that is coupled to very many others, such as an integral condition or an earth
  node, has at most 768 entries unless `PCSFSAISetMaxRow()` says otherwise; the view counts the rows that were cut.

  When only the values of the matrix change, the pattern is kept and a set-up computes only values. `PCAFSAI` searches for a pattern
  row by row: its set-up costs more, and it takes fewer iterations at the same number of nonzeros.

  Without a cap a row of G can be of any length, but its system is dense and must fit into memory: for a row of m entries, the
  diagonal included, the set-up takes 8 m^2 bytes and m^3 / 3 operations. A row of more than 1280 entries, or fewer on GPUs with
  less than 227 KB of shared memory per block, is solved in double precision, whatever the precision of the set-up, by LAPACK on the
  host or by cuSOLVER on GPUs. If the system of the longest row does not fit into memory, the set-up ends with an error that names
  the row and the options that shorten it.

  In addition to A, G and G^T, the set-up on GPUs takes some 40 bytes per row and at most 256 MiB for the columns that the search
  keeps. If rows are too large for shared memory, it also takes at most 256 MiB for the tables of their search, and as much for
  their systems, or what one row needs if that is more. A prefilter adds the pattern of the filtered A. With a postfilter, the
  unfiltered G is computed in chunks of rows, which share the 256 MiB with the columns that the search keeps, and up to 16 more
  bytes per row are needed. If there are several chunks, each but the last is computed twice, which bounds the memory at the cost of
  time. On the host the set-up takes some 30 bytes per row, the system of the longest row and, without a postfilter, 4 bytes per
  entry of G. With a postfilter, it takes at most 256 MiB instead of these: rows beyond this are computed twice.

  The matrix is a `MATAIJ`. With a `MATAIJCUSPARSE` that is not bound to the CPU everything runs on the GPU. On several ranks each
  rank uses its diagonal block, as `PCBJACOBI` does, unless `PCSFSAISetOverlap()` lets G reach other ranks. In that case each rank
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

  Reference:
  M. Bernaschi, M. Bisson, C. Fantozzi, C. Janna, A factored sparse approximate inverse preconditioned conjugate gradient solver on
  graphics processing units, SIAM J. Sci. Comput. 38 (2016) C53-C72

.seealso: `PCAFSAI`, `PCJACOBI`, `PCICC`, `PCSFSAISetPattern()`, `PCSFSAIGetFactors()`, `PCSFSAISetPower()`,
          `PCSFSAISetPrefilter()`, `PCSFSAISetPostfilter()`, `PCSFSAISetMaxRow()`, `PCSFSAISetSetupPrecision()`,
          `PCSFSAISetFactorPrecision()`, `PCSFSAISetReusePattern()`, `PCSFSAISetOverlap()`, `PCSFSAISetHaloLayers()`
M*/

/*@C
  PCCreate_SFSAI - Makes a preconditioner a `PCSFSAI`, after registering finepc if nothing has done so; for `PCRegister()`

  Collective

  Input Parameter:
. pc - the preconditioner context

  Level: developer

.seealso: `PCSFSAI`, `PCRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode PCCreate_SFSAI(PC pc)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_SFSAI>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
