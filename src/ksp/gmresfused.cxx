/* The PETSc face of the fused GMRES. */

#include <petscsys.h>
#include <petscblaslapack.h>

#include "ranks/agree.h"
#include "options.h"
#include "gmresfusedimpl.h"

/* ------------------------------------------ options ------------------------------------------- */

static PetscErrorCode KSPGMRESGetRestart_GMRESFused(KSP ksp, PetscInt *restart)
{
  PetscFunctionBegin;
  *restart = ((const KSP_GMRESFused *)ksp->data)->restart;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPGMRESSetRestart_GMRESFused(KSP ksp, PetscInt restart)
{
  PetscFunctionBegin;
  PetscCall(KSPGMRESFusedSetRestart(ksp, restart));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPGMRESGetHapTol_GMRESFused(KSP ksp, PetscReal *tolerance)
{
  PetscFunctionBegin;
  *tolerance = ((const KSP_GMRESFused *)ksp->data)->happy_tolerance;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPGMRESSetHapTol_GMRESFused(KSP ksp, PetscReal tolerance)
{
  PetscFunctionBegin;
  PetscCheck(tolerance >= 0, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_OUTOFRANGE,
             "-ksp_gmres_haptol is %g, but must be at least 0", (double)tolerance);
  ((KSP_GMRESFused *)ksp->data)->happy_tolerance = tolerance;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPGMRESGetBreakdownTolerance_GMRESFused(KSP ksp, PetscReal *tolerance)
{
  PetscFunctionBegin;
  *tolerance = ((const KSP_GMRESFused *)ksp->data)->breakdown_tolerance;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPGMRESSetBreakdownTolerance_GMRESFused(KSP ksp, PetscReal tolerance)
{
  const PetscReal by_default = KSP_GMRESFused().breakdown_tolerance;

  PetscFunctionBegin;
  if (tolerance == (PetscReal)PETSC_DEFAULT) tolerance = by_default;
  PetscCheck(tolerance >= 0, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_OUTOFRANGE,
             "-ksp_gmres_breakdown_tolerance is %g, but must be at least 0", (double)tolerance);
  ((KSP_GMRESFused *)ksp->data)->breakdown_tolerance = tolerance;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const char *const KSPGMRESFusedPaths[] = {"auto", "general", "device", "KSPGMRESFusedPath", "KSP_GMRESFUSED_", nullptr};

const char *const KSPGMRESFusedCommunications[] =
  {"auto", "mpi", "nccl", "KSPGMRESFusedCommunication", "KSP_GMRESFUSED_COMMUNICATION_", nullptr};

static const Option<KSP> kOptions[] = {
  /* path

     If the GPU cannot decide, the general path runs, and the view says why. The iterates are the same to rounding. */
  {"-ksp_gmresfused_path", "who decides about iterations", "KSPGMRESFusedSetPath",
   Field<&KSP_GMRESFused::path>(OneOf(KSPGMRESFusedPaths)), Invalidates::NOTHING},

  /* communication

     With NCCL the GPUs of all ranks decide about the iterations, and no host takes part in any iteration; within one machine the
     kernels write to the other GPUs directly if they can. NCCL needs a finepc that was built with NCCL's header, libnccl.so.2, a
     separate GPU for each rank, and what the path `device` needs on one rank. With MPI, the path is the general one. If NCCL is not
     available, `KSP_GMRESFUSED_COMMUNICATION_AUTO` uses MPI, and a request for NCCL is an error. Ranks that have come together on
     one communicate by neither.

     The iterates are the same to rounding. */
  {"-ksp_gmresfused_communication", "how several ranks make sums and exchange vectors", "KSPGMRESFusedSetCommunication",
   Field<&KSP_GMRESFused::communication>(OneOf(KSPGMRESFusedCommunications)), Invalidates::NOTHING},

  /* restart

     `KSPGMRESSetRestart()` and `-ksp_gmres_restart` do the same. One more vector than this number is stored, and an
     orthogonalization reads half of them twice on average.

     Level: beginner See also: `KSPGMRESSetRestart()` */
  {"-ksp_gmresfused_restart", "the number of iterations of a cycle, after which a new basis begins", "KSPGMRESFusedSetRestart",
   Field<&KSP_GMRESFused::restart>(Between(1, kGMRESMostRestart)), Invalidates::NOTHING},

  /* size

     With 2 the vectors u, B u and B B u, where B is A M or M A, give two new vectors of the basis at once. The basis is read half
     as often, and on several ranks there is one sum for two iterations. Iterates, norms and iteration counts stay those of one
     product per step, to rounding; the rounding errors grow as the products become nearly dependent on the vectors before them. If
     B u loses more than three digits in its orthogonalization, or both products together more than seven, the second product is not
     used. If they have lost so many digits that a cycle cannot make the residual much smaller, the cycle ends. From then on there
     is one product per step, and the view says so.

     If the preconditioner works in single precision, as `PCBISAI` does by default, B is linear to only seven digits, and norms
     after a second product differ from those of `KSPGMRES` in about the fourth digit.

     With a flexible solve, a preconditioner that may change by itself, or a second pass of orthogonalization, there is always one
     product per step. The work that a solve starts beyond its last iteration costs one more product than with 1.

     Level: advanced */
  {"-ksp_gmresfused_step_size", "how many products with the matrix there are between two orthogonalizations",
   "KSPGMRESFusedSetStepSize", Field<&KSP_GMRESFused::step_size>(Between(1, kGMRESMostStep)), Invalidates::NOTHING},

  /* flexible

     The preconditioned vectors are kept, as in `KSPFGMRES`, which takes as much memory again as the basis. A flexible solve needs
     the preconditioner on the right, the default. Even without this option, a solve becomes flexible by itself if the
     preconditioner contains an iterative solver, or if the residual of a cycle is far from the true residual.

     See also: `KSPFGMRES` */
  {"-ksp_gmresfused_flexible", "whether the preconditioner may change from iteration to iteration, as with `KSPFGMRES`",
   "KSPGMRESFusedSetFlexible", Field<&KSP_GMRESFused::flexible>(), Invalidates::NOTHING},

  /* precision: sums are always in double precision

     The basis is most of what an iteration reads. All sums are in double precision. With a basis in single precision, a cycle
     cannot reduce the residual below about 1e-6 of its value at the start of the cycle, and the next cycle continues from there.

     Level: advanced */
  {"-ksp_gmresfused_basis_precision", "the precision in which the basis is stored", "KSPGMRESFusedSetBasisPrecision",
   Field<&KSP_GMRESFused::basis_precision>(OneOf(FinePCPrecisions)), Invalidates::NOTHING},
  {"-ksp_gmres_restart", "iterations of a cycle, PETSc's key", "KSPGMRESSetRestart",
   Through<KSPGMRESGetRestart_GMRESFused, KSPGMRESSetRestart_GMRESFused>(), Invalidates::NOTHING},
  {"-ksp_gmres_haptol", "tolerance of a happy breakdown", "KSPGMRESSetHapTol",
   Through<KSPGMRESGetHapTol_GMRESFused, KSPGMRESSetHapTol_GMRESFused>(), Invalidates::NOTHING},
  {"-ksp_gmres_breakdown_tolerance", "how far the norm may be off at a restart", "KSPGMRESSetBreakdownTolerance",
   Through<KSPGMRESGetBreakdownTolerance_GMRESFused, KSPGMRESSetBreakdownTolerance_GMRESFused>(), Invalidates::NOTHING},
  /* before PETSc 3.26: every KSP has it since, as -ksp_orthogonalization_cgs_refinement_type */
  {"-ksp_gmres_cgs_refinement_type", "when a vector is orthogonalized twice, PETSc's key", "KSPGMRESSetCGSRefinementType",
   Field<&KSP_GMRESFused::refinement>(OneOf(KSPOrthogonalizationCGSRefinementTypes)), Invalidates::NOTHING},
};
const OptionTable<KSP> KSP_GMRESFused::options{"KSP GMRESFused options", kOptions, kKSPHasOrthogonalization ? 1 : 0};

/* ------------------------------------------ estimates ----------------------------------------- */

/* The first `n` rows and columns of a matrix of the last cycle. With `triangle` what is below the diagonal is zero. */
static void Leading_GMRESFused(const GMRESSmall &small, const std::vector<PetscReal> &from, LocalInt n, bool triangle,
                               PetscScalar *to)
{
  for (LocalInt j = 0; j < n; j++)
    for (LocalInt k = 0; k < n; k++)
      to[(size_t)j * n + k] = k > j + 1 || (triangle && k > j) ? 0 : from[(size_t)j * (small.restart + 1) + k];
}

static PetscErrorCode KSPComputeEigenvalues_GMRESFused(KSP ksp, PetscInt nmax, PetscReal *r, PetscReal *c, PetscInt *neig)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  const LocalInt        n = g->cycle.small_columns;
  PetscScalar          *H, *work, none = 0;
  PetscReal            *re, *im;
  PetscInt             *order;
  PetscBLASInt          bn, lwork, info, one = 1;

  PetscFunctionBegin;
  if (g->consolidated.solved) {
    PetscCall(KSPComputeEigenvalues_Consolidated(&g->consolidated, nmax, r, c, neig));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GMRESFusedFetchSmall(ksp));
  PetscCheck(nmax >= n, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_SIZ,
             "There are %" LocalInt_FMT " eigenvalues, but room for %" PetscInt_FMT, n, nmax);
  *neig = n;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc5((size_t)n * n, &H, 5 * n, &work, n, &re, n, &im, n, &order));
  Leading_GMRESFused(g->cycle.small, g->cycle.small.H, n, false, H);
  PetscCall(PetscBLASIntCast(n, &bn));
  PetscCall(PetscBLASIntCast(5 * n, &lwork));
  PetscCall(PetscFPTrapPush(PETSC_FP_TRAP_OFF));
  PetscCallBLAS("LAPACKgeev", LAPACKgeev_("N", "N", &bn, H, &bn, re, im, &none, &one, &none, &one, work, &lwork, &info));
  PetscCall(PetscFPTrapPop());
  PetscCheck(!info, PETSC_COMM_SELF, PETSC_ERR_LIB, "LAPACK's geev gives %" PetscBLASInt_FMT, info);
  for (PetscInt k = 0; k < n; k++) order[k] = k;
  PetscCall(PetscSortRealWithPermutation(n, re, order));
  for (PetscInt k = 0; k < n; k++) {
    r[k] = re[order[k]];
    c[k] = im[order[k]];
  }
  PetscCall(PetscFree5(H, work, re, im, order));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPComputeExtremeSingularValues_GMRESFused(KSP ksp, PetscReal *emax, PetscReal *emin)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  const LocalInt        n = g->cycle.small_columns;
  PetscScalar          *R, *work, none = 0;
  PetscReal            *values;
  PetscBLASInt          bn, lwork, info, one = 1;

  PetscFunctionBegin;
  if (g->consolidated.solved) {
    PetscCall(KSPComputeExtremeSingularValues_Consolidated(&g->consolidated, emax, emin));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GMRESFusedFetchSmall(ksp));
  *emax = *emin = 1;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc3((size_t)n * n, &R, 5 * n, &work, n, &values));
  Leading_GMRESFused(g->cycle.small, g->cycle.small.R, n, true, R);
  PetscCall(PetscBLASIntCast(n, &bn));
  PetscCall(PetscBLASIntCast(5 * n, &lwork));
  PetscCall(PetscFPTrapPush(PETSC_FP_TRAP_OFF));
  PetscCallBLAS("LAPACKgesvd", LAPACKgesvd_("N", "N", &bn, &bn, R, &bn, values, &none, &one, &none, &one, work, &lwork, &info));
  PetscCall(PetscFPTrapPop());
  PetscCheck(!info, PETSC_COMM_SELF, PETSC_ERR_LIB, "LAPACK's gesvd gives %" PetscBLASInt_FMT, info);
  *emax = values[0];
  *emin = values[n - 1];
  PetscCall(PetscFree3(R, work, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- set-up and the solve ----------------------------------- */

static constexpr PetscInt kWorkVecs = 2 + kGMRESMostStep;

/* As in KSPSetUp_CGFused(), a solve whose vectors go to another rank makes no work vectors here. */
static PetscErrorCode KSPSetUp_GMRESFused(KSP ksp)
{
  bool together;

  PetscFunctionBegin;
  PetscCall(KSPSetUp_Consolidated(ksp, &((KSP_GMRESFused *)ksp->data)->consolidated, &together));
  if (ksp->setupstage == KSP_SETUP_NEWMATRIX) PetscFunctionReturn(PETSC_SUCCESS); /* the rest is done already */
  PetscCall(VecDestroyVecs(ksp->nwork, &ksp->work));                              /* another type of solver may have made others */
  ksp->nwork = 0;
  if (!together) PetscCall(FusedSetWorkVecs(ksp, kWorkVecs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A Gram-Schmidt of the program has no place in the two passes over the basis. */
static PetscErrorCode CheckOrthogonalization(KSP ksp)
{
  PetscFunctionBegin;
  PetscCheck(!KSPHasOwnOrthogonalization(ksp), PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "KSPGMRESFUSED has an orthogonalization of its own, and cannot use that of KSPOrthogonalizationSet(): use KSPGMRES");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The monitor of the directions casts the data of the KSP to those of KSPGMRES. */
static PetscErrorCode CheckMonitors(KSP ksp)
{
  PetscFunctionBegin;
  for (PetscInt k = 0; k < ksp->numbermonitors; k++)
    PetscCheck((PetscVoidFn *)ksp->monitor[k] != (PetscVoidFn *)KSPGMRESMonitorKrylov, PetscObjectComm((PetscObject)ksp),
               PETSC_ERR_SUP, "KSPGMRESMonitorKrylov() reads the data of KSPGMRES, which KSPGMRESFUSED has not: use KSPGMRES");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSolve_GMRESFused(KSP ksp)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(CheckOrthogonalization(ksp));
  PetscCall(CheckMonitors(ksp));
  PetscCall(FusedRefreshPreconditioner(ksp));
  PetscCheck(!g->flexible || ksp->pc_side == PC_RIGHT, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "-ksp_gmresfused_flexible needs the preconditioner on the right: use -ksp_pc_side right");
  ksp->its           = 0;
  ksp->rnorm         = -1; /* there is no norm of a cycle before */
  g->counts.refined  = 0;
  g->counts.measured = 0;
  g->counts.dropped  = 0;
  g->counts.refuted  = 0;
  g->watch.claim     = KSP_CONVERGED_ITERATING;
  g->watch.shown     = false;
  g->cycle.columns = g->cycle.small_columns = 0;
  g->solved                                 = PETSC_TRUE;
  g->copies.sent                            = PETSC_FALSE;
  PetscCall(KSPSolve_Consolidated(ksp, &g->consolidated, "", CopyOptionTable<KSP_GMRESFused, KSP>));
  if (g->consolidated.solved) PetscFunctionReturn(PETSC_SUCCESS);
  if (!ksp->work) PetscCall(FusedSetWorkVecs(ksp, kWorkVecs));
  PetscCall(GMRESFusedLookAtPreconditioner(ksp));
  PetscCall(GMRESFusedWhyGeneral(ksp, &g->op, &g->why));
  if (!g->why) PetscCall(GMRESFusedSolveOnDevice(ksp));
  if (g->why) PetscCall(GMRESFusedSolveByHost(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPBuildSolution_GMRESFused(KSP ksp, Vec v, Vec *V)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  PetscCheck(ksp->vec_sol, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ORDER,
             "There is no solution before KSPSolve(), nor after KSPReset()");
  if (!v && !g->solution) { /* memory may end on one rank alone, and what follows may need all of them */
    const PetscErrorCode mine = VecDuplicate(ksp->vec_sol, &g->solution);
    const PetscErrorCode code = AgreeOnError(PetscObjectComm((PetscObject)ksp), mine, "make the vector of the solution");
    if (code && !mine) PetscCall(VecDestroy(&g->solution));
    if (code) g->solution = nullptr;
    PetscCall(code);
  }
  if (!v) v = g->solution;
  if (V) *V = v;
  if (g->consolidated.talks) {
    PetscCall(KSPBuildSolution_Consolidated(&g->consolidated, v));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (g->watch.late) g->watch.looks = true;
  PetscCall(GMRESFusedFetchSmall(ksp));
  PetscCall(GMRESFusedBuildSolution(ksp, v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ view, reset, destroy ------------------------------------ */

static PetscErrorCode ViewCommunication_GMRESFused(const KSP_GMRESFused *g, PetscViewer viewer)
{
  char        version[32];
  GMRESStatus status;

  PetscFunctionBegin;
  if (g->ranks.nccl && g->work) {
    PetscCall(NCCLVersion_CUDA(g->ranks.nccl, version, sizeof(version)));
    PetscCall(GMRESFusedGetStatus_CUDA(g->work, &status));
    PetscCall(PetscViewerASCIIPrintf(viewer, "  communication: nccl, version %s, one sum an iteration%s\n", version,
                                     status.direct ? "; the kernels write to the other GPUs" : ""));
  } else if (*g->ranks.why_mpi) PetscCall(PetscViewerASCIIPrintf(viewer, "  communication: mpi: %s\n", g->ranks.why_mpi));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ViewDevicePath(const KSP_GMRESFused *g, PetscViewer viewer)
{
  GMRESStatus status;

  PetscFunctionBegin;
  PetscCall(GMRESFusedGetStatus_CUDA(g->work, &status));
  PetscCall(PetscViewerASCIIPrintf(viewer, "  path: device\n"));
  if (g->copies.sent) PetscCall(FusedViewSent(g->copies.matrix, viewer));
  if (status.lanes) PetscCall(PetscViewerASCIIPrintf(viewer, "  copy of A: %" LocalInt_FMT " lanes a row\n", status.lanes));
  const double inverse = (double)g->jacobi.rows * g->jacobi.bs * sizeof(*g->jacobi.d);
  PetscCall(PetscViewerASCIIPrintf(viewer, "  bytes for the copy and the kernels %g, for the blocks of M %g\n",
                                   (double)status.bytes, inverse));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why the step size of the last solve was one. */
static const char *WhyOneProduct(KSP ksp)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;

  if (g->step_size == 1) return "";
  if (g->solved ? g->preconditioner.keeps : g->flexible) return ", one product a step: a flexible solve";
  if (g->preconditioner.changes == Changes::ITERATES)
    return ", one product a step: the preconditioner has an iterative solver inside";
  if (g->preconditioner.changes == Changes::MAYBE) return ", one product a step: the preconditioner may change by itself";
  if (GMRESFusedRefinementOf(ksp) != GMRES_REFINE_NEVER) return ", one product a step: a second pass of orthogonalization";
  return "";
}

static PetscErrorCode KSPView_GMRESFused(KSP ksp, PetscViewer viewer)
{
  static const char *const refinement[] = {"one pass of modified Gram-Schmidt", "modified Gram-Schmidt, a second pass if needed",
                                           "modified Gram-Schmidt, two passes"};

  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  PetscBool             is_ascii;
  bool                  shown;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPView_Consolidated(ksp, &g->consolidated, viewer, &shown));
  if (shown) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
    PetscViewerASCIIPrintf(viewer, "  restart=%" PetscInt_FMT ", %s\n", g->restart, refinement[GMRESFusedRefinementOf(ksp)]));
  PetscCall(PetscViewerASCIIPrintf(viewer, "  step size=%" PetscInt_FMT "%s\n", g->step_size, WhyOneProduct(ksp)));
  PetscCall(PetscViewerASCIIPrintf(viewer, "  happy breakdown tolerance=%g, breakdown tolerance=%g\n", (double)g->happy_tolerance,
                                   (double)g->breakdown_tolerance));
  if (g->solved ? g->preconditioner.keeps : g->flexible)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  flexible: the preconditioned vectors are kept%s\n",
                                     g->solved ? g->preconditioner.why_keeps : ""));
  PetscCall(PetscViewerASCIIPrintf(viewer, "  basis in %s precision\n", FinePCPrecisions[g->basis_precision]));
  if (!g->solved) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "  path: %s, before the first solve\n", KSPGMRESFusedPaths[g->path]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (g->why) PetscCall(PetscViewerASCIIPrintf(viewer, "  path: general: %s%s\n", g->why.text, g->why.type));
  else if (g->work) PetscCall(ViewDevicePath(g, viewer)); /* without it the solve has ended before there was memory */
  PetscCall(FusedViewDevice(ksp, viewer));
  if (g->ranks.several) PetscCall(ViewCommunication_GMRESFused(g, viewer));
  double bytes = 0;
  for (const GMRESBasis &basis : g->basis) bytes += (double)basis.vectors * basis.ld * FinePCPrecisionBytes(basis.precision);
  PetscCall(PetscViewerASCIIPrintf(viewer, "  backend %s, bytes of the basis %g\n",
                                   PetscMemTypeDevice(g->basis[GMRES_U].where) ? "CUDA" : "host", bytes));
  if (g->why)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "  last solve: vectors orthogonalized twice %" PetscInt64_FMT
                                     ", steps whose norms were measured because of cancellation %" PetscInt64_FMT "\n",
                                     g->counts.refined, g->counts.measured));
  if (g->counts.dropped)
    PetscCall(PetscViewerASCIIPrintf(
      viewer, "  last solve: one product a step from some iteration on, since cancellation made a second one useless\n"));
  if (g->counts.refuted)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "  last solve: cycles that seemed to converge, but had another true residual %" PetscInt64_FMT
                                     "\n",
                                     g->counts.refuted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPReset_GMRESFused(KSP ksp)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(KSPReset_Consolidated(&g->consolidated));
  PetscCall(GMRESFusedLeaveDevice(g));
  PetscCall(ExchangeDestroy(&g->ranks.exchange));
  PetscCall(VecDestroy(&g->solution));
  g->ranks.nccl    = nullptr;
  g->ranks.why_mpi = "";
  g->why           = FusedReason{};
  g->cycle.columns = g->cycle.small_columns = 0;
  g->solved                                 = PETSC_FALSE;
  g->preconditioner.changes                 = Changes::NEVER;
  g->preconditioner.keeps                   = PETSC_FALSE;
  g->watch.looks                            = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What Create_GMRESFused composes and Destroy takes away, beside the table: the getters of PETSc's own setters. */
static PetscErrorCode Compose_GMRESFused(KSP ksp, PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(KSP_GMRESFused::options.Compose(ksp, compose));
  PetscCall(
    PetscObjectComposeFunction((PetscObject)ksp, "KSPGMRESGetRestart_C", compose ? Entry<KSPGMRESGetRestart_GMRESFused> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_GMRESFused(KSP ksp)
{
  PetscFunctionBegin;
  ksp->data = new KSP_GMRESFused();
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_UNPRECONDITIONED, PC_RIGHT, 4));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_PRECONDITIONED, PC_LEFT, 3));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NONE, PC_RIGHT, 2));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NONE, PC_LEFT, 1));
  ksp->setupnewmatrix                    = PETSC_TRUE;
  ksp->ops->setup                        = Entry<KSPSetUp_GMRESFused>;
  ksp->ops->solve                        = Entry<FusedSolve<KSPSolve_GMRESFused>>;
  ksp->ops->reset                        = Entry<KSPReset_GMRESFused>;
  ksp->ops->destroy                      = Entry<DestroyData<KSP_GMRESFused, KSPReset_GMRESFused, Compose_GMRESFused, KSP>>;
  ksp->ops->view                         = Entry<KSPView_GMRESFused>;
  ksp->ops->setfromoptions               = Entry<SetFromOptionTable<KSP_GMRESFused, KSP>>;
  ksp->ops->buildsolution                = Entry<KSPBuildSolution_GMRESFused>;
  ksp->ops->computeextremesingularvalues = Entry<KSPComputeExtremeSingularValues_GMRESFused>;
  ksp->ops->computeeigenvalues           = Entry<KSPComputeEigenvalues_GMRESFused>;
  PetscCall(Compose_GMRESFused(ksp, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  KSPGMRESFUSED - "gmresfused": GMRES(m), the method of `KSPGMRES`, with two passes over the basis for two iterations

  Options Database Keys:
+ -ksp_gmresfused_path <auto> - who decides about iterations. `auto`: the GPU where it can, and where that is faster, else the host;
  `general`: the host, with `MatMult()` and `PCApply()` of any matrix and any preconditioner; `device`: the GPU, by some kernels an
  iteration: nothing waits for the host, which learns of the end late
. -ksp_gmresfused_communication <auto> - how several ranks make sums and exchange vectors. `auto`: NCCL where it can run, else MPI;
  `mpi`: `MPI_Allreduce()` and the products of the matrix; the host decides about iterations; `nccl`: NCCL, and own products; the
  GPUs decide, and the host learns of the end late
. -ksp_gmresfused_restart <30> - the number of iterations of a cycle, after which a new basis begins; between 1 and 1000
. -ksp_gmresfused_step_size <2> - how many products with the matrix there are between two orthogonalizations; between 1 and 2
. -ksp_gmresfused_flexible <false> - whether the preconditioner may change from iteration to iteration, as with `KSPFGMRES`
. -ksp_gmresfused_basis_precision <double> - the precision in which the basis is stored: `single` or `double`; sums are always in
  double precision
. -ksp_gmres_restart <30> - PETSc's key of the restart, see `KSPGMRESSetRestart()`
. -ksp_gmres_haptol <1e-30> - tolerance of a happy breakdown, see `KSPGMRESSetHapTol()`
. -ksp_gmres_breakdown_tolerance <0.1> - how far the norm may be off at a restart, see `KSPGMRESSetBreakdownTolerance()`
- -ksp_gmresfused_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `KSPFinePCSetBackend()`

  Level: beginner

  Notes:
  The preconditioner is on the right, with the unpreconditioned norm, unless `KSPSetPCSide()` asks for the left side, with the
  preconditioned norm. `KSPGMRES` has the preconditioner on the left by default.

  The iterates are those of `KSPGMRES` with modified Gram-Schmidt (`-ksp_orthogonalization mgs`, before PETSc 3.26
  `-ksp_gmres_modifiedgramschmidt`), to rounding, and so are iteration counts, reasons, monitors, history and estimates of
  eigenvalues and singular values. What differs is how a vector is orthogonalized. One pass over the basis computes all its products
  with the new vector and with the last one, and a second pass subtracts; modified Gram-Schmidt takes as many passes as there are
  vectors, each with a sum over all ranks. This is exact, since the product of the projectors of modified Gram-Schmidt is known from
  the products among the vectors of the basis. One sum over all ranks per iteration is enough, since the norm of the new vector
  follows from these products by Pythagoras; if that would lose digits, the norm itself is computed, and the view counts how often.
  An orthogonalization makes two vectors from two products, B u and B B u with B = A M or M A, so that the basis is read once per
  iteration on average, and there is one sum over all ranks for two iterations; see `KSPGMRESFusedSetStepSize()`. A second pass,
  always or if needed, is made as in `KSPGMRES` with classical Gram-Schmidt: see `-ksp_orthogonalization_cgs_refinement_type`,
  before PETSc 3.26 `-ksp_gmres_cgs_refinement_type`. The second pass is not needed for systems that modified Gram-Schmidt solves.

  With vectors on the GPU, a `MATAIJCUSPARSE` or a `MATBAIJCUDA`, and `PCBISAI`, `PCAFSAI`, `PCSFSAI`, `PCRRB`, `PCJACOBI`,
  `PCPBJACOBI` or `PCNONE`, the GPU decides about the iterations (the path `device`): products, orthogonalization, Givens rotations,
  the test and the restarts follow one another without the host, which learns of the end with a delay. With `PCCMATCH` the GPU
  decides only if this path is requested: some cycles are then launched beyond the end, which take longer than the general path. A
  private copy of a `MATAIJCUSPARSE`, and of the blocks of `PCJACOBI` and `PCPBJACOBI`, is kept for this path. A flexible solve, a
  second pass of orthogonalization, a transposed solve, a null space with the preconditioner on the left, and any other matrix or
  preconditioner take the general path, with the same passes over the basis; the view says why. `PCBJACOBI` with one block per rank,
  on which `KSPPREONLY` applies one of finepc's types, counts as this type.

  Monitors, and convergence tests other than `KSPConvergedDefault()` and `KSPConvergedSkip()`, get the norms when the GPU is already
  some iterations ahead; a test that ends the solve gets the solution of its iteration. A monitor or test that calls
  `KSPBuildSolution()` or `KSPBuildResidual()` gets the solution or residual of its iteration, for which the GPU has to wait: later
  solves take the general path.

  On several ranks the GPUs decide if each rank has a separate GPU and owns rows, and if NCCL, NVIDIA's library for communication
  between GPUs, is available. Each GPU sends the entries of the vector that the others need while it multiplies with the columns
  that it owns, and there is one sum over all ranks per iteration, from which all GPUs make the same decision. The preconditioner
  must not reach other ranks: `PCCMATCH`, and factors with overlap, take the general path there. See
  `KSPGMRESFusedSetCommunication()`. Ranks that share a GPU come together: one of them solves for all, unless
  `-finepc_consolidate false` is given. Several ranks without NCCL take the general path.

  A user-defined Gram-Schmidt, by `KSPOrthogonalizationSet()`, is an error, and so is `KSPGMRESMonitorKrylov()`, which accesses the
  data of `KSPGMRES`. `KSPSetLagNorm()` has no effect, as with `KSPGMRES`: only `KSPIBCGS` has a lagged norm.

  If a cycle has converged by the norm of the rotations, the residual of its solution is computed, which takes one product. The
  solve continues if this residual does not agree with the rotations: with a basis in single precision, or if the preconditioner is
  not the same linear map each time, as with `PCCMATCH` in single precision and strongly varying coefficients. It continues as a
  flexible solve, with the preconditioner on the right, if restarts alone would help little. If one of PETSc's preconditioners
  contains an iterative solver, the solve is flexible from the beginning. The view shows all of this.

  Sums of squares are not scaled: a product with a vector of the basis whose square overflows or underflows ends the solve with a
  reason that is not convergence.

  References:
+ * - Y. Saad, M. H. Schultz, GMRES: a generalized minimal residual algorithm for solving nonsymmetric linear systems, SIAM J. Sci.
  Stat. Comput. 7 (1986) 856-869
. * - K. Swirydowicz, J. Langou, S. Ananthan, U. Yang, S. Thomas, Low synchronization Gram-Schmidt and generalized minimal residual
  algorithms, Numer. Linear Algebra Appl. 28 (2021) e2343
- * - A. T. Chronopoulos, S. K. Kim, s-step Orthomin and GMRES implemented on parallel computers, University of Minnesota, TR 90-15
  (1990)

.seealso: `KSPGMRES`, `KSPFGMRES`, `PCBISAI`, `MATBAIJCUDA`, `KSPGMRESSetRestart()`, `KSPGMRESSetHapTol()`,
          `KSPGMRESSetBreakdownTolerance()`, `KSPGMRESFusedSetPath()`, `KSPGMRESFusedSetCommunication()`,
          `KSPGMRESFusedSetRestart()`, `KSPGMRESFusedSetStepSize()`, `KSPGMRESFusedSetFlexible()`,
          `KSPGMRESFusedSetBasisPrecision()`
M*/

/*@C
  KSPCreate_GMRESFused - Makes a solver a `KSPGMRESFUSED`, after registering finepc if nothing has done so; for `KSPRegister()`

  Collective

  Input Parameter:
. ksp - the solver context

  Level: developer

.seealso: `KSPGMRESFUSED`, `KSPRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode KSPCreate_GMRESFused(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_GMRESFused>(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}
