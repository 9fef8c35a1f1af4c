/* The PETSc face of sFSAI: options, set-up, view and life cycle. The method itself is in sfsai_host.cxx and in cuda/pc/sfsai. */
#include <petsc/private/pcimpl.h>

#include "finepcimpl.h"
#include "options.h"
#include "pc/fsai_face.h"
#include "sfsai.h"

namespace
{

constexpr char kSetter[] = "PCSFSAISetPattern"; /* for errors about a pattern that is given */

struct PC_SFSAI : PC_FSAI {
  static const OptionTable<PC> options;

  SFSAIParams params;
  PetscBool   reuse_pattern = PETSC_TRUE;
  PetscInt    overlap       = kFSAIOverlap;
  PetscInt    halo_layers   = 0; /* 0: the power */
  SFSAIWork   work          = SFSAIWork{};
};

template <auto Member>
using Param = Field<&PC_SFSAI::params, Member>;

const Option<PC> kOptions[] = {
  {"-pc_sfsai_power", "Products that make the pattern", "PCSFSAISetPower",
   Param<&SFSAIParams::power>(Between(0, kFSAILargestPower))},
  {"-pc_sfsai_prefilter", "Threshold for entries of A", "PCSFSAISetPrefilter", Param<&SFSAIParams::prefilter>(Between(0, 1))},
  {"-pc_sfsai_postfilter", "Threshold for entries of G", "PCSFSAISetPostfilter", Param<&SFSAIParams::postfilter>(Between(0, 1))},
  {"-pc_sfsai_max_row", "Most entries of a row of G", "PCSFSAISetMaxRow",
   Param<&SFSAIParams::max_row>(Between(0, kSFSAILargestCap))},
  {"-pc_sfsai_setup_precision", "Precision of the set-up", "PCSFSAISetSetupPrecision",
   Param<&SFSAIParams::setup_precision>(OneOf(FinePCPrecisions))},
  {"-pc_sfsai_factor_precision", "Precision of the stored factor", "PCSFSAISetFactorPrecision",
   Param<&SFSAIParams::factor_precision>(OneOf(FinePCPrecisions))},
  {"-pc_sfsai_reuse_pattern", "Keep the pattern when only values have changed", "PCSFSAISetReusePattern",
   Field<&PC_SFSAI::reuse_pattern>(), Invalidates::NOTHING},
  {"-pc_sfsai_overlap", "Hops to the lower-numbered ranks that the factor reaches", "PCSFSAISetOverlap",
   Field<&PC_SFSAI::overlap>(Between(0, kFSAIMostOverlap))},
  {"-pc_sfsai_halo_layers", "Couplings from the rank's border to the rows that it gathers", "PCSFSAISetHaloLayers",
   Field<&PC_SFSAI::halo_layers>(Between(0, kFSAIMostLayers))},
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

/* Computes the factor of the rank's block, G~ and d, and its transpose, or describes in the outcome why there is no factor. */
static PetscErrorCode ComputeOnRows(PC pc, const CSRView *A, PCLocalOutcome *outcome)
{
  PC_SFSAI        *sfsai   = (PC_SFSAI *)pc->data;
  PCInverse       *M       = &sfsai->inverse;
  const auto       compute = PetscMemTypeDevice(A->where) ? SFSAIComputeFactor_CUDA : SFSAIComputeFactor_Host;
  FSAIGivenPattern given{};
  PetscBool        same_pattern;
  CSR             *W1;

  PetscFunctionBegin;
  PetscCall(PCFSAIPatternStays(pc, true, &same_pattern));
  PetscCall(PCFSAIPrepare(pc, A, (PetscBool)(sfsai->reuse_pattern && same_pattern), sfsai->params.factor_precision, &W1));
  if (sfsai->work.where != A->where) PetscCall(FreeWork(&sfsai->work));
  const PetscBool is_given = (PetscBool)(sfsai->pattern && !sfsai->reused);
  PetscErrorCode  code     = is_given ? PCFSAIGetGivenPattern(pc, A, kSetter, &given) : PETSC_SUCCESS;

  PetscCall(PetscLogEventBegin(FinePC_SFSAIFactor, pc, pc->pmat, 0, 0));
  if (!code)
    code = CallGuarded(compute, A, PCFSAIFirst(sfsai), is_given ? (const CSRView *)&given.S : nullptr,
                       (const SFSAIParams *)&sfsai->params, sfsai->reused, W1, M->d, &sfsai->work, &sfsai->stats);
  PetscCall(PetscLogEventEnd(FinePC_SFSAIFactor, pc, pc->pmat, 0, 0));
  PetscCall(PCFSAIRestoreGivenPattern(&given));
  PetscCall(code);
  PetscCall(PCFSAIComplete(pc, "PCSFSAI", sfsai->reuse_pattern, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Each product follows one coupling more. A pattern that is given names all rows. */
static PetscInt LayersOf(const PC_SFSAI *sfsai)
{
  return sfsai->pattern ? 0 : sfsai->halo_layers ? sfsai->halo_layers : sfsai->params.power;
}

/*
   Of a pattern that is given, the rows of its columns are needed and no others. The plan belongs to the pattern then, so that it is
   made again with it.
*/
static PetscErrorCode Gather(PC pc, PCLocalPhase *phase)
{
  const PC_SFSAI *sfsai = (const PC_SFSAI *)pc->data;
  PetscBool       stays;

  PetscFunctionBegin;
  PetscCall(PCFSAIPatternStays(pc, false, &stays));
  const PetscBool reuse = (PetscBool)(sfsai->reuse_pattern && stays);
  const FSAIReach reach{"sfsai",        sfsai->overlap, LayersOf(sfsai), sfsai->params.power,
                        sfsai->pattern, kSetter,        reuse,           sfsai->params.factor_precision};

  PetscCall(PCFSAIGather(pc, &reach, phase));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ComputeFactor(PC pc, PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  PetscCall(PCLocalComputeOnSymmetricRows(pc, OneSided::LEAVE_OUT, ComputeOnRows, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_SFSAI(PC pc, PetscViewer viewer)
{
  const PC_SFSAI    *sfsai  = (const PC_SFSAI *)pc->data;
  const SFSAIParams *params = &sfsai->params;
  PetscBool          is_ascii;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_FSAI(pc, viewer, sfsai->overlap, LayersOf(sfsai), (PetscBool)(sfsai->pattern != nullptr), &is_ascii));
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
static PetscErrorCode Compose(PC pc, PetscBool compose)
{
  PetscObject object = (PetscObject)pc;

  PetscFunctionBegin;
  PetscCall(PC_SFSAI::options.Compose(pc, compose));
  PetscCall(PCFSAICompose(pc, "PCSFSAIGetFactors_C", compose));
  PetscCall(PetscObjectComposeFunction(object, "PCSFSAISetPattern_C", compose ? Entry<PCFSAISetPattern> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "PCSFSAIGetPattern_C", compose ? Entry<PCFSAIGetPattern> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_SFSAI(PC pc)
{
  PC_SFSAI *sfsai = (PC_SFSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCReset_SFSAI(pc));
  PetscCall(PCFSAIForgetPattern(pc));
  PetscCall(Compose(pc, PETSC_FALSE));
  delete sfsai;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create(PC pc)
{
  PC_SFSAI *sfsai = new PC_SFSAI();

  PetscFunctionBegin;
  sfsai->params.pattern_event = FinePC_SFSAIPattern;
  sfsai->params.values_event  = FinePC_SFSAIValues;
  PetscCall(PCFSAISetOperations(pc, sfsai, ComputeFactor, Gather));
  pc->ops->setfromoptions = Entry<SetFromOptionTable<PC_SFSAI, PC>>;
  pc->ops->view           = Entry<PCView_SFSAI>;
  pc->ops->reset          = Entry<PCReset_SFSAI>;
  pc->ops->destroy        = Entry<PCDestroy_SFSAI>;
  PetscCall(Compose(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCSFSAI - "sfsai": factored sparse approximate inverse of a symmetric positive definite matrix on a static pattern, M^{-1} = G^T G

  Options Database Keys:
+ -pc_sfsai_power <2> - products of A that make the pattern of G; 1: the lower triangle of A, 0 is Jacobi
. -pc_sfsai_prefilter <0> - entries of A below this, relative to sqrt(a_ii a_jj), do not count for the pattern
. -pc_sfsai_postfilter <0> - entries of G below this, relative to the norm of their row, are dropped and the row scaled again
. -pc_sfsai_max_row <0> - most entries of a row of G, diagonal included, those along the strongest paths; 0: no cap
. -pc_sfsai_setup_precision <single> - `single` or `double`; rows on which single fails are redone in double and counted
. -pc_sfsai_factor_precision <single> - `single` or `double`; sums are in double in any case
. -pc_sfsai_reuse_pattern <true> - when only the values of A have changed, keep the pattern of G, also a filtered one, and allocate
  nothing
. -pc_sfsai_overlap <0> - hops from rank to rank that G may reach, to lower-numbered ranks; 0: the rank's diagonal block
- -pc_sfsai_halo_layers <0> - couplings that lead to the rows of other ranks that are gathered; 0: the power

  Level: intermediate

  Notes:
  The pattern of the lower triangular G is known before its values. It is the pattern of k products of the recursion
  B <- Low(B A~), (3.9), where A~ is A without its small entries, or the pattern that `PCSFSAISetPattern()` gives. Then A restricted
  to the pattern of a row is factored and solved for the row, (3.6). The rows are independent of each other. The preconditioner is
  applied as two sparse matrix-vector products. diag(G A G^T) = 1, and M is symmetric positive definite for every pattern.

  When only the values of the matrix change, the pattern stays and a set-up computes values alone. `PCAFSAI` searches a pattern
  row by row: its set-up costs more, and it takes fewer iterations at the same number of nonzeros.

  A row of G can be of any length, but its system is dense and must fit into memory: for a row of m entries, the diagonal included,
  the set-up takes 8 m^2 bytes and m^3 / 3 operations. A row of more than 1280 entries, or fewer on GPUs with less than 227 KB of
  shared memory per block, is solved in double precision whatever the precision of the set-up, by LAPACK or on GPUs by cuSOLVER. If
  memory does not hold the system of the longest row, the set-up ends with an error that names the row and the options which shorten
  it.

  On GPUs the set-up takes some 40 bytes a row beyond A, G and G^T, 256 MiB at most for the columns that the search keeps, and where
  rows are too large for shared memory 256 MiB at most for the tables of their search, and as much for their systems, or what one
  row needs if that is more. With a prefilter the pattern of the filtered A comes to this. With a postfilter G before it is filtered
  is computed in chunks of rows, which share the 256 MiB with the columns that the search keeps, and there are up to 16 bytes a row
  more. Where there are several chunks each but the last is computed twice, which bounds the memory at the cost of time. On the host
  the set-up takes some 30 bytes a row, the system of the longest row and, without a postfilter, 4 bytes an entry of G. With a
  postfilter it is 256 MiB at most instead: the rows beyond are computed twice.

  The matrix is a `MATAIJ`. With a `MATAIJCUSPARSE` that is not bound to the CPU everything runs on the GPU. With several ranks
  each rank takes its diagonal block, as `PCBJACOBI` does, unless `PCSFSAISetOverlap()` lets G reach other ranks. Then each rank
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

  A diagonal entry that is missing or not positive, or an entry that is not finite, makes the set-up fail with a `PCFailedReason`.

  Reference:
  M. Bernaschi, M. Bisson, C. Fantozzi, C. Janna, A factored sparse approximate inverse preconditioned conjugate gradient solver on
  graphics processing units, SIAM J. Sci. Comput. 38 (2016) C53-C72

.seealso: `PCAFSAI`, `PCJACOBI`, `PCICC`, `PCSFSAISetPower()`, `PCSFSAISetPrefilter()`, `PCSFSAISetPostfilter()`,
          `PCSFSAISetMaxRow()`, `PCSFSAISetSetupPrecision()`, `PCSFSAISetFactorPrecision()`, `PCSFSAISetReusePattern()`,
          `PCSFSAISetPattern()`, `PCSFSAISetOverlap()`, `PCSFSAISetHaloLayers()`, `PCSFSAIGetFactors()`
M*/

/*@C
  PCCreate_SFSAI - Makes a preconditioner a `PCSFSAI`, and before that registers finepc if nothing has; for `PCRegister()`

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
  PetscCall(Entry<Create>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
