/*
   The PETSc face of RRB: options, set-up, view and life cycle. rrb_grid.cxx finds the grid. The method itself is in rrb_host.cxx
   and in cuda/pc/rrb.
*/
#include <petsc/private/pcimpl.h>

#include "options.h"
#include "pc/pcinverse.h"
#include "sparse/csr_mat.h"
#include "rrb_face.h"

template <auto Member>
using Param = Field<&PC_RRB::params, Member>;

static const Option<PC> kOptions[] = {
  /* levels: 0 for the fewest that leave at most 1024 points, or one in 15000, but never more than 4096; the most that the grid
     allows, 2 ceil(log2(max(nx, ny))) + 1, is full RRB, and more levels are the same as full RRB

     The points that are left after the last level are factored exactly. Fewer levels give a better preconditioner with a larger
     exact part. This part is a band of at most 2 GiB on the host, and a dense inverse of at most 8192 points on a GPU. Beyond these
     limits the set-up ends with an error. */
  {"-pc_rrb_levels", "the number of red-black levels before the exact factorization, l of RRB-l", "PCRRBSetLevels",
   Param<&RRBParams::levels>(Between(0, kRRBMostLevels))},

  /* nx: 0 leaves the grid to the `DM`, or to the pattern of the matrix

     On several ranks each rank must own whole lines of the grid, but with a `DMDA` a rank may own parts of lines.

     See also: `PCRRBSetNy()` */
  {"-pc_rrb_nx", "the number of points of a line of the grid; the unknowns of a line follow each other", "PCRRBSetNx",
   Field<&PC_RRB::nx>(Between(0, kRRBLongestLine))},

  /* ny: 0 leaves the grid to the `DM`, or to the pattern of the matrix

     It is enough to call one of `PCRRBSetNx()` and `PCRRBSetNy()`.

     See also: `PCRRBSetNx()` */
  {"-pc_rrb_ny", "the number of lines of the grid", "PCRRBSetNy", Field<&PC_RRB::ny>(Between(0, kRRBLongestLine))},

  /* lift: `PETSC_TRUE` to lift such rows, `PETSC_FALSE` to leave them as they are, as in the paper

     `PETSC_FALSE` is the method of de Jong, van der Ploeg, Ditzel, Vuik; lifting rows is an addition to their method. Without
     lifting, a matrix with such rows loses definiteness with every level that lumps, and pivots that are not positive make the
     set-up fail. On fine grids with many levels this happens even though the matrix itself is definite. With lifting, M is that of
     a matrix with larger diagonal entries. Where both ways work, they take about the same number of iterations.

     With a 5-point stencil the rows that are lifted are those of the first Schur complement, which is exact: one level stays exact,
     and so does the operator of `KSPRRBCG`. With a 9-point stencil the first level lumps, and the rows that are lifted are those of
     the matrix. A row is lifted if its sum is below -1e-12 times the diagonal entry of the matrix, so that sums that are 0 up to
     rounding are left unchanged, and if its own diagonal entry is positive. Nothing is lifted on a grid of one line, where nothing
     is lumped, or with the constants as null space (`MatSetNullSpace()`), for which rows sum to 0. The view counts the rows that
     are lifted.

     See also: `PCRRBSetLevels()` */
  {"-pc_rrb_lift", "whether rows that sum to less than 0 are made to sum to 0, before the first level that lumps", "PCRRBSetLift",
   Param<&RRBParams::lift>()},
};
const OptionTable<PC> PC_RRB::options{"RRB options", kOptions};

/* The share of anisotropic rows from which on the view shows them: fewer may still be lines that iterations do not feel. */
static constexpr PetscReal kAnisotropicShare = 0.05;

static PetscErrorCode FreeFactor_RRB(PC_RRB *rrb)
{
  PetscFunctionBegin;
  if (rrb->factor)
    PetscCall(PetscMemTypeDevice(rrb->factor->where) ? RRBDestroy_CUDA(&rrb->factor) : RRBDestroy_Host(&rrb->factor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Describes in the outcome a pivot that fails. */
static PetscErrorCode DescribePivot(PC pc, PCLocalOutcome *outcome)
{
  const PC_RRB   *rrb   = (const PC_RRB *)pc->data;
  const RRBStats *stats = &rrb->stats;
  const LocalInt  nx    = rrb->factor->nx;
  char            block[64];

  PetscFunctionBegin;
  PetscCall(PCLocalNameBlock(pc, block, sizeof(block)));
  outcome->reason   = PC_FACTOR_NUMERIC_ZEROPIVOT;
  outcome->diagonal = stats->failure == RRB_PIVOT;
  if (stats->failure == RRB_RANGE) {
    PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                            "The pivot of level %" LocalInt_FMT " at point (%" LocalInt_FMT ", %" LocalInt_FMT
                            ")%s is not between %.1e and %.1e, so that its inverse is no number: scale the equations",
                            stats->level, stats->row % nx, stats->row / nx, block, kRRBSmallestPivot, kRRBLargestPivot));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                          "The pivot of level %" LocalInt_FMT " at point (%" LocalInt_FMT ", %" LocalInt_FMT
                          ")%s is not positive: PCRRB needs a symmetric M-matrix%s, or one that is close to it; try %sfewer levels "
                          "(-pc_rrb_levels), and MatSetNullSpace() if it is singular and its rows sum to 0",
                          stats->level, stats->row % nx, stats->row / nx, block,
                          rrb->params.lift ? "" : " whose rows do not sum to less than 0",
                          rrb->params.lift ? "" : "-pc_rrb_lift, "));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the constants are in the null space of the rank's block. They can be only if this block is the whole matrix. */
static PetscErrorCode FindNullSpace(PC pc, PetscInt n, PetscBool *singular)
{
  MatNullSpace null_space;
  PetscInt     rows;

  PetscFunctionBegin;
  *singular = PETSC_FALSE;
  PetscCall(MatGetNullSpace(pc->pmat, &null_space));
  if (!null_space) PetscCall(MatGetNullSpace(pc->mat, &null_space));
  if (null_space) PetscCall(MatNullSpaceGetVecs(null_space, singular, nullptr, nullptr));
  PetscCall(MatGetSize(pc->pmat, &rows, nullptr));
  if (n != rows) *singular = PETSC_FALSE; /* a part of a connected grid is not singular, however weakly the rest is coupled to it */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the factor of the rank's block, or describes in the outcome why there is none. */
static PetscErrorCode PCSetUp_RRB(PC pc, PCLocalOutcome *outcome)
{
  PC_RRB *rrb = (PC_RRB *)pc->data;
  CSRMat  mat;

  PetscFunctionBegin;
  PetscCall(MatGetCSR(pc->pmat, &mat));
  PetscCall(FindNullSpace(pc, mat.A.n, &rrb->params.singular));
  rrb->params.negative = (PetscBool)rrb->diagonal.negative;
  rrb->params.isolated = rrb->diagonal.zero_rows.empty() ? 0 : rrb->diagonal.largest;
  if (rrb->factor && rrb->factor->where != mat.A.where) PetscCall(FreeFactor_RRB(rrb));
  if (rrb->factor && (PetscInt64)rrb->factor->nx * rrb->factor->ny != mat.A.n) PetscCall(FreeFactor_RRB(rrb));
  PetscCall(PCLocalPlace(pc, mat.A.where, mat.A.n));
  CSR            sorted{};
  CSRView        A    = mat.A;
  PetscErrorCode code = CallGuarded(PCLocalSort, pc, &A, &sorted);
  if (!code) code = CallGuarded(PCLocalLeaveOutZeroRows, pc, A.n, A.where);
  if (!code) code = CallGuarded(RRBComputeOnItsGrid, pc, (const CSRView *)&A, outcome);
  if (!code && !outcome->code && rrb->params.isolated > 0 && (size_t)rrb->stats.isolated != rrb->diagonal.zero_rows.size()) {
    rrb->params.isolated = 0; /* a row of zeros in the block has entries in columns of other ranks, and no pivot */
    code                 = CallGuarded(RRBComputeOnItsGrid, pc, (const CSRView *)&A, outcome);
  }
  PetscCall(CSRDestroy(&sorted));
  PetscCall(MatRestoreCSR(&mat));
  PetscCall(code);
  PetscCall(PetscObjectGetId((PetscObject)pc->pmat, &rrb->mat_id));
  PetscCall(PetscObjectStateGet((PetscObject)pc->pmat, &rrb->mat_state));
  rrb->symmetry           = CSRSymmetry{}; /* unequal entries are an error */
  rrb->symmetry.one_sided = rrb->stats.one_sided;
  if (!outcome->code && rrb->stats.failure) PetscCall(DescribePivot(pc, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* M is symmetric, so M^{-T} is M^{-1} and `transpose` does not matter. */
static PetscErrorCode PCApply_RRB(PC pc, PetscBool, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y,
                                  LocalInt ldy, PetscLogDouble *flops)
{
  RRBFactor *const F = ((PC_RRB *)pc->data)->factor;

  PetscFunctionBegin;
  PetscCall((PetscMemTypeDevice(F->where) ? RRBApply_CUDA : RRBApply_Host)(F, columns, X, ldx, Y, ldy));
  *flops = 17. * columns * F->nx * F->ny; /* for each point 8 on the way down, 8 on the way up, and 1 for its pivot */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows how many rows of all ranks were lifted, if there are any, or that rows are not lifted at all. */
static PetscErrorCode ViewLift(PC pc, PetscInt64 rows, PetscViewer viewer)
{
  const PC_RRB *rrb = (const PC_RRB *)pc->data;

  PetscFunctionBegin;
  if (!rrb->params.lift) PetscCall(PetscViewerASCIIPrintf(viewer, "rows that sum to less than 0 are lumped as they are\n"));
  if (rows)
    PetscCall(PetscViewerASCIIPrintf(viewer, "%" PetscInt64_FMT " rows of the %s that sum to less than 0 lifted\n", rows,
                                     rrb->factor->nine ? "matrix" : "first Schur complement"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Shows how many of the rows of all ranks are anisotropic, if there are enough of them to matter. */
static PetscErrorCode ViewAnisotropy(PetscInt64 anisotropic, PetscInt64 rows, PetscViewer viewer)
{
  PetscFunctionBegin;
  if (!anisotropic || (PetscReal)anisotropic < kAnisotropicShare * (PetscReal)rows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "anisotropic: in %" PetscInt64_FMT " of %" PetscInt64_FMT
                                   " rows the couplings in one direction are %d times those across it or more, which costs "
                                   "iterations: try -pc_type cmatch\n",
                                   anisotropic, rows, (int)kRRBAnisotropy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_RRB(PC pc, PetscViewer viewer)
{
  const PC_RRB    *rrb   = (const PC_RRB *)pc->data;
  const RRBFactor *F     = rrb->factor;
  const RRBStats  *stats = &rrb->stats;
  PetscBool        is_ascii;
  PetscMPIInt      size;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_Local(pc, viewer, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  if (size > 1) PetscCall(PetscViewerASCIIPrintf(viewer, "grid and levels are those of the first rank's subdomain\n"));
  if (!F || !pc->setupcalled) {
    if (rrb->params.levels) PetscCall(PetscViewerASCIIPrintf(viewer, "at most %" PetscInt_FMT " levels\n", rrb->params.levels));
    else PetscCall(PetscViewerASCIIPrintf(viewer, "levels chosen by size\n"));
    PetscCall(ViewLift(pc, 0, viewer));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscViewerASCIIPrintf(viewer, "grid of %" LocalInt_FMT " x %" LocalInt_FMT " points (%s), %d-point stencil\n", F->nx,
                                   F->ny, rrb->source, F->nine ? 9 : 5));
  if (pc->failedreason) {
    PetscCall(PCViewFailure_Local(pc, viewer));
    PetscCall(ViewLift(pc, 0, viewer));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscInt64     count[4] = {stats->zero_pivots, (PetscInt64)F->nx * F->ny, stats->lifted, stats->anisotropic}, sum[4];
  PetscLogDouble bytes    = (PetscLogDouble)F->bytes, all_bytes;

  PetscCallMPI(MPIU_Allreduce(count, sum, 4, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  PetscCallMPI(MPIU_Allreduce(&bytes, &all_bytes, 1, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "levels %" LocalInt_FMT " of %" LocalInt_FMT "%s, exact factorization of %" LocalInt_FMT
                                   " points (%s)\n",
                                   F->levels, F->max_levels, rrb->params.levels ? "" : " (chosen by size)", F->remainder,
                                   PetscMemTypeDevice(F->where) ? "dense inverse" : "band"));
  PetscCall(PetscViewerASCIIPrintf(viewer, "backend %s, %g bytes, %g per unknown%s\n",
                                   PetscMemTypeDevice(F->where) ? "CUDA" : "host", all_bytes,
                                   sum[1] ? all_bytes / (double)sum[1] : 0.,
                                   F->has_schur ? ", with the first Schur complement" : ""));
  PetscCall(PCViewSymmetry_Local(pc, viewer));
  PetscCall(PetscViewerASCIIPrintf(viewer, "zero pivots of a singular matrix %" PetscInt64_FMT "\n", sum[0]));
  PetscCall(ViewLift(pc, sum[2], viewer));
  PetscCall(ViewAnisotropy(sum[3], sum[1], viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCFinePCGetApplyBytes_RRB(PC pc, PetscLogDouble *bytes)
{
  const RRBFactor *F = ((const PC_RRB *)pc->data)->factor;

  PetscFunctionBegin;
  *bytes = F && pc->setupcalled && !pc->failedreason ? (PetscLogDouble)F->apply_bytes : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Frees all that a set-up has made. The options stay. */
static PetscErrorCode PCReset_RRB(PC pc)
{
  PC_RRB *rrb = (PC_RRB *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCReset_Local(pc));
  PetscCall(FreeFactor_RRB(rrb));
  rrb->stats  = RRBStats{};
  rrb->source = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Composes the methods of the type, or takes them away if `compose` is false. */
static PetscErrorCode Compose_RRB(PC pc, PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(PC_RRB::options.Compose(pc, compose));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, kApplyBytesQuery, compose ? Entry<PCFinePCGetApplyBytes_RRB> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_RRB(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCLocalSetOperations(pc, new PC_RRB(), PCSetUp_RRB, PCApply_RRB));
  ((PC_Local *)pc->data)->columns_at_once = kRRBColumns;
  pc->ops->setfromoptions                 = Entry<SetFromOptionTable<PC_RRB, PC>>;
  pc->ops->view                           = Entry<PCView_RRB>;
  pc->ops->reset                          = Entry<PCReset_RRB>;
  pc->ops->destroy                        = Entry<DestroyData<PC_RRB, PCReset_RRB, Compose_RRB, PC>>;
  PetscCall(Compose_RRB(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCRRB - "rrb": repeated red-black factorization for 5- and 9-point stencils on two-dimensional grids, on the host or on a GPU

  Options Database Keys:
+ -pc_rrb_levels <0> - the number of red-black levels before the exact factorization, l of RRB-l; between 0 and 128; 0 for the
  fewest that leave at most 1024 points, or one in 15000, but never more than 4096; the most that the grid allows, 2
  ceil(log2(max(nx, ny))) + 1, is full RRB, and more levels are the same as full RRB
. -pc_rrb_nx <0> - the number of points of a line of the grid; the unknowns of a line follow each other; between 0 and 1000000000; 0
  leaves the grid to the `DM`, or to the pattern of the matrix
. -pc_rrb_ny <0> - the number of lines of the grid; between 0 and 1000000000; 0 leaves the grid to the `DM`, or to the pattern of
  the matrix
. -pc_rrb_lift <true> - whether rows that sum to less than 0 are made to sum to 0, before the first level that lumps: `true` to lift
  such rows, `false` to leave them as they are, as in the paper
- -pc_rrb_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `PCFinePCSetBackend()`

  Level: intermediate

  Notes:
  The grid is given by the options, or by a `DMDA` with one unknown per point that was passed to `KSPSetDM()` or that `MatGetDM()`
  returns, or it is recognised from the pattern of the matrix, whose rows must be in natural ordering. Any number of points is
  allowed, and so are variable coefficients, Dirichlet rows kept as rows of the identity, and Neumann and mixed boundaries. A
  periodic or irregular pattern causes an error that names the first row that does not fit.

  Level by level, couplings between red points are lumped to the diagonal, and then the red points are eliminated. For symmetric
  M-matrices whose rows do not sum to less than 0 all pivots are positive, and M is symmetric positive definite. With a 5-point
  stencil the first level is exact. On Poisson's problem the condition number is at most about 1.8 * 1.23^l for l levels.

  Where the couplings in one direction are much stronger than those across it, the levels lump the strong ones, and the number of
  iterations grows roughly as the square root of the ratio: beyond a ratio of about 100 use `PCCMATCH`. The view counts the rows
  with this ratio or more, if they are 5 % of all rows or more.

  Where rows do sum to less than 0 (the Jacobian of -Laplace(u) = exp(u), a Helmholtz equation) lumping removes what is left of
  definiteness, level by level. As an addition to the method of the paper, such rows are therefore lifted: their diagonal entries
  are raised until the rows sum to 0. This happens before the first level that lumps, which is the second level with a 5-point
  stencil and the first level with a 9-point stencil. M is then positive definite for every definite M-matrix, unless lumping
  removes all couplings of a point. If some rows sum to more than 0, as the rows next to a Dirichlet boundary do, M is positive
  definite even for an indefinite matrix with the signs of an M-matrix; use `KSPMINRES` for such a matrix. See `PCRRBSetLift()`; the
  view counts the rows that are lifted.

  The points that are left after the last level are factored exactly, for which the paper uses an exact Cholesky factorization on
  the host. Here the host uses L D L^T in a band. On a GPU there is no factor and there are no triangular solves. Instead, an
  application multiplies by the inverse, a dense matrix of all the points that are left, computed by sweeping blocks of rows and
  columns. The inverse takes 8 m^2 bytes for m points, and 2 m^3 flops, so m is at most 8192.

  By default `KSPCG` tests the preconditioned norm for convergence, and `KSPRRBCG`, which does not have this norm, tests the norm of
  the residual. To compare their iteration counts, use `-ksp_norm_type unpreconditioned`, or `natural`, for both.

  Symmetry is checked. A coupling that only one of its two rows contains, such as a coupling to a Dirichlet row whose column was not
  zeroed, is left out; the view counts these couplings. A pivot that is not positive makes the set-up fail with a `PCFailedReason`.
  If the matrix has the constants as its null space (`MatSetNullSpace()`) and its rows sum to 0, to eight digits of the diagonal
  entry, the last pivot, which is zero then, is left out. A matrix of several uncoupled parts has more such pivots, and may fail in
  the set-up or in the solve. A rank's subdomain is not singular, nor is a matrix with couplings in only one direction: none of
  their pivots is left out.

  If the diagonal of the matrix is negative throughout, all pivots must be negative, and rows are judged like those of -A: M is then
  negative definite, like the matrix. Rows of zeros are isolated points with an inverse of 0. The view shows both.

  A pivot below 2.2e-308 or above 4.5e307, whose inverse is not a normal number, also makes the set-up fail: scale such a matrix.

  On several ranks this is not the global method: each rank factors its own subdomain alone, without the couplings to other ranks,
  as `PCBJACOBI` does, and iterations grow with the number of ranks; the view says so. An error about one rank's subdomain is an
  error on all ranks.

  In addition to the exact part, the factor takes 40 bytes per unknown on the host, and 48 on a GPU, including the vector values of
  the passes down and up the levels. For `KSPRRBCG` the factor keeps 40 more bytes on the host, and 20 on a GPU. A set-up on a GPU
  needs 56 to 72 bytes per unknown as work space.

  Reference:
  M. de Jong, A. van der Ploeg, A. Ditzel, C. Vuik, Fine-grain parallel RRB-solver for 5-/9-point stencil problems suitable for
  GPU-type processors, Electron. Trans. Numer. Anal. (2017)

.seealso: `KSPRRBCG`, `PCCMATCH`, `PCICC`, `PCMG`, `DMDA`, `PCRRBSetLevels()`, `PCRRBSetNx()`, `PCRRBSetNy()`, `PCRRBSetLift()`
M*/

/*@C
  PCCreate_RRB - Makes a preconditioner a `PCRRB`, after registering finepc if nothing has done so; for `PCRegister()`

  Collective

  Input Parameter:
. pc - the preconditioner context

  Level: developer

.seealso: `PCRRB`, `PCRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode PCCreate_RRB(PC pc)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_RRB>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
