/* The PETSc face of the fused conjugate gradient method. */

#include "ranks/agree.h"
#include "options.h"
#include "cgfusedimpl.h"
#include "pc/confirm.h"

const char *const KSPCGFusedPaths[]          = {"auto", "general", "graph", "resident", "KSPCGFusedPath", "KSP_CGFUSED_", nullptr};
const char *const KSPCGFusedCommunications[] = {"auto", "mpi", "nccl", "KSPCGFusedCommunication", "KSP_CGFUSED_COMMUNICATION_",
                                                nullptr};

/* ------------------------------------------ options ------------------------------------------- */

static PetscErrorCode KSPCGUseSingleReduction_CGFused(KSP ksp, PetscBool single)
{
  PetscBool before;

  PetscFunctionBegin;
  PetscCall(CGFusedSingleReduction(ksp, &before));
  if (before != single) ksp->setupstage = KSP_SETUP_NEW; /* another number of work vectors */
  ((KSP_CGFused *)ksp->data)->single_reduction = PetscBoolToBool3(single);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const Option<KSP> kOptions[] = {
  /* path

     If the requested path cannot run, another one does, and the view says which and why. `KSP_CGFUSED_AUTO` chooses by size. On
     several ranks `KSP_CGFUSED_GRAPH` and `KSP_CGFUSED_RESIDENT` are `KSP_CGFUSED_AUTO`. All of them give the iterates of `KSPCG`,
     to rounding. */
  {"-ksp_cgfused_path", "how iterations are run", "KSPCGFusedSetPath", Field<&KSP_CGFused::path>(OneOf(KSPCGFusedPaths)),
   Invalidates::NOTHING},

  /* compress

     Values are stored in single precision if all of them are exact in that precision, and columns as 16-bit distances from the
     first column of a step if these suffice. A step is the set of entries that the threads of a warp process together. The iterates
     are the same to the last bit. The resident kernel does not compress.

     Level: advanced */
  {"-ksp_cgfused_compress", "whether copies of the matrices are smaller than these where nothing is lost by it",
   "KSPCGFusedSetCompress", Field<&KSP_CGFused::compress>(), Invalidates::NOTHING},

  /* communication

     With NCCL, NVIDIA's library for communication between GPUs, the sums and exchanges are part of the CUDA graph of the
     iterations, as everything else is on one rank: the host decides nothing, and learns of the end with a delay. An exchange brings
     only what a product needs from other ranks, while the product with the rank's own columns runs. With MPI the path is the
     general one, on which the products are those of the matrix.

     NCCL needs a finepc that was built with NCCL's header, the library libnccl.so.2, which is opened when it is first needed, and a
     separate GPU for each rank. If one of these is missing, `KSP_CGFUSED_COMMUNICATION_AUTO` uses MPI; if NCCL was requested, it is
     an error. On the general path, and if `-ksp_cg_single_reduction` asks for the recurrences of a single reduction, all
     communication is by MPI, whatever is set. On one rank, and for ranks that have come together on one, there is no communication.
     The view says what was used, and why.

     NCCL reads environment variables such as `NCCL_DEBUG` and `NCCL_NVLS_ENABLE`; finepc changes none of them. */
  {"-ksp_cgfused_communication", "how several ranks make sums and exchange vectors", "KSPCGFusedSetCommunication",
   Field<&KSP_CGFused::communication>(OneOf(KSPCGFusedCommunications)), Invalidates::NOTHING},
  {"-ksp_cg_single_reduction", "one MPI_Allreduce() an iteration", "KSPCGUseSingleReduction",
   Through<CGFusedSingleReduction, KSPCGUseSingleReduction_CGFused>(), Invalidates::NOTHING},
};
const OptionTable<KSP> KSP_CGFused::options{"KSP CGFused options", kOptions};

/* ------------------------------------------- set-up ------------------------------------------- */

/* A solve whose vectors are sent, or go to another rank, makes no work vectors here: it rarely needs them. */
static PetscErrorCode KSPSetUp_CGFused(KSP ksp)
{
  PetscBool given, sent = PETSC_FALSE;
  bool      together;

  PetscFunctionBegin;
  PetscCall(KSPSetUp_Consolidated(ksp, &((KSP_CGFused *)ksp->data)->consolidated, &together));
  if (ksp->setupstage == KSP_SETUP_NEWMATRIX) PetscFunctionReturn(PETSC_SUCCESS); /* the rest is done already */
  PetscCall(PCGetOperatorsSet(ksp->pc, &given, nullptr));
  if (given) PetscCall(FusedIsSent(ksp, &sent));
  PetscCall(VecDestroyVecs(ksp->nwork, &ksp->work)); /* another type of solver may have made others */
  ksp->nwork = 0;
  if (!sent && !together) PetscCall(CGFusedNeedWorkVecs(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the solve ----------------------------------------- */

/* z = b - A x by PETSc's product */
static PetscErrorCode TrueResidual_CGFused(KSP ksp, CGTrueResidual *norms)
{
  const Vec r = ksp->work[0], z = ksp->work[1], p = ksp->work[2];
  PetscBool device;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(VecIsOnDevice(z, &device));
  if (device) PetscCall(DeviceFence_CUDA()); /* PETSc's operations may run in another stream, each of them */
  PetscCall(KSP_MatMult(ksp, A, ksp->vec_sol, z));
  if (device) PetscCall(DeviceFence_CUDA());
  PetscCall(VecAYPX(z, -1, ksp->vec_rhs));
  if (device) PetscCall(DeviceFence_CUDA());
  PetscCall(VecWAXPY(p, -1, r, z));
  if (device) PetscCall(DeviceFence_CUDA());
  PetscCall(VecNorm(p, NORM_2, &norms->difference));
  PetscCall(VecNorm(r, NORM_2, &norms->r));
  PetscCall(VecNorm(ksp->vec_rhs, NORM_2, &norms->b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Whether the residual of the solution has the norm that the recurrence has left, as far as the two can be compared without M:
   they differ by little. A norm with M may not see what is left of a residual, and make much of what it sees, so that r is taken to
   be no larger a part of b than that norm is of the first one.
*/
static bool IsThatOfRecurrence_CGFused(KSP ksp, const CGTrueResidual &norms)
{
  const PetscReal began = ((const KSP_CGFused *)ksp->data)->solve.began;
  PetscReal       norm  = norms.r;

  if (ksp->normtype != KSP_NORM_UNPRECONDITIONED && ksp->rnorm * norms.b < norm * began) norm = ksp->rnorm * norms.b / began;
  return norms.difference <= (kConfirmed - 1) * norm;
}

/*
   The residual that the recurrence has left is compared with that of the solution, by one product. Where the two are not the same
   and the end is not one that the true one confirms, the solve goes on from the solution.
*/
static PetscErrorCode Confirm_CGFused(KSP ksp, PetscBool own)
{
  KSP_CGFused   *cg = (KSP_CGFused *)ksp->data;
  CGTrueResidual norms;
  PetscReal      norm;
  bool           confirmed, may_vanish;

  PetscFunctionBegin;
  if (!ClaimsNormOfCG(ksp, ksp->reason)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MayVanish(ksp, &may_vanish));
  const bool of_others = may_vanish && !cg->solve.fits;
  if (ksp->its == cg->solve.before && !of_others) PetscFunctionReturn(PETSC_SUCCESS); /* the residual has just been computed */
  if (cg->trust.radius || cg->trust.target < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((own ? CGFusedTrueResidual : TrueResidual_CGFused)(ksp, &norms));
  if (!may_vanish && IsThatOfRecurrence_CGFused(ksp, norms)) PetscFunctionReturn(PETSC_SUCCESS);
  if (own) PetscCall(CGFusedFetchResidual(ksp, Residual::OF_SOLUTION));
  else PetscCall(VecCopy(ksp->work[1], ksp->work[0]));
  PetscCall(ConfirmsClaim(ksp, ksp->work[0], ksp->work[2], ksp->work[1], &norm, &confirmed));
  if (confirmed || ksp->reason <= 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(AfterRefutedClaim(ksp, norm, of_others ? PETSC_MAX_REAL : cg->solve.began));
  cg->solve.fits = may_vanish;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The options, of which one is kept as it was given: its default depends on the number of ranks. */
static PetscErrorCode CopyOptions_CGFused(KSP from, KSP to)
{
  PetscFunctionBegin;
  PetscCall(KSP_CGFused::options.Copy(from, to));
  ((KSP_CGFused *)to->data)->single_reduction = ((const KSP_CGFused *)from->data)->single_reduction;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const char *WhyNotTogether_CGFused(const KSP_CGFused *cg)
{
  return cg->trust.radius > 0 ? "a trust region" : cg->trust.target < 0 || cg->trust.wants_model ? "an objective" : "";
}

static PetscErrorCode KSPSolve_CGFused(KSP ksp)
{
  KSP_CGFused          *cg = (KSP_CGFused *)ksp->data;
  CGFusedPreconditioner M;
  PetscMPIInt           size;
  PetscBool             sent, fell = PETSC_FALSE;
  SolveLookFn           look;

  PetscFunctionBegin;
  PetscCall(CGFusedCheckArrays(ksp));
  PetscCall(PetscObjectQueryFunction((PetscObject)ksp->pc, kSolveLook, &look));
  cg->solve.look = nullptr;
  if (look) PetscCall((*look)(ksp->pc, &cg->solve.look));
  cg->copies.x_away   = PETSC_FALSE;
  ksp->its            = 0;
  cg->solve.before    = 0;
  cg->solve.fits      = false;
  cg->solve.solved    = PETSC_TRUE;
  cg->lanczos.rows    = 0;
  cg->trust.has_model = PETSC_FALSE;
  cg->solve.range     = CGRange{};
  PetscCall(FusedRefreshPreconditioner(ksp));
  PetscCall(KSPSolve_Consolidated(ksp, &cg->consolidated, WhyNotTogether_CGFused(cg), CopyOptions_CGFused));
  if (cg->consolidated.solved) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  cg->solve.several = (PetscBool)(size > 1);
  PetscCall(CGFusedWhyGeneral(ksp, &M, &cg->solve.why));
  const PetscBool guess_zero = ksp->guess_zero;
  if (!cg->solve.why) PetscCall(CGFusedPrepareDevice(ksp, M, &fell));
  if (fell) PetscCall(CGFusedWhyGeneral(ksp, &M, &cg->solve.why));
  do {
    const PetscBool device = (PetscBool)!cg->solve.why; /* products by own kernels */

    cg->copies.used = PETSC_FALSE;
    PetscCall(FusedIsSent(ksp, &sent));
    if (!device || !sent) PetscCall(CGFusedNeedWorkVecs(ksp)); /* the matrix may have become another one since the set-up */
    if (device) PetscCall(CGFusedSolveOnDevice(ksp));
    else PetscCall(CGFusedSolveByHost(ksp));
    if (cg->copies.used && (cg->trust.wants_model || (ksp->reason > 0 && (cg->solve.range.left || cg->solve.range.orthogonal))))
      PetscCall(CGFusedFetchResidual(ksp, Residual::OF_RECURRENCE));
    if (ksp->reason > 0 && (cg->solve.range.left || cg->solve.range.orthogonal))
      PetscCall(CGCheckConverged(ksp, cg->solve.range, ksp->work[0], ksp->work[1]));
    if (ksp->reason > 0) PetscCall(Confirm_CGFused(ksp, device));
    if (!ksp->reason) { /* the next time from the solution, which the general path does */
      cg->solve.before = ksp->its;
      cg->solve.why =
        FusedReason{cg->solve.fits ? "the right-hand side does not fit the null space, and goes on without its part in that"
                                   : "the recurrence had lost the residual, which was computed anew"};
      ksp->guess_zero = PETSC_FALSE;
    }
  } while (!ksp->reason);
  ksp->guess_zero = guess_zero;
  /* KSPCG makes one iteration even where none is allowed, and gives this reason whatever came of it */
  if (!ksp->max_it && ksp->its && ksp->reason != KSP_DIVERGED_NANORINF && ksp->reason != KSP_DIVERGED_PC_FAILED)
    ksp->reason = KSP_DIVERGED_ITS;
  if (cg->trust.wants_model) PetscCall(CGFusedModel(ksp, &cg->trust.norm_x, &cg->trust.objective));
  cg->trust.has_model = cg->trust.wants_model;
  cg->solve.look      = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ view, reset, destroy ------------------------------------ */

static PetscErrorCode ViewCopies(PetscViewer viewer, const char *title, PetscBool single, PetscBool narrow, PetscInt lanes)
{
  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer, "  %s: %s precision, %d-bit columns, %" PetscInt_FMT " lanes a row\n", title,
                                   FinePCPrecisions[single ? FINEPC_SINGLE : FINEPC_DOUBLE], narrow ? 16 : 32, lanes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ViewCommunication_CGFused(const KSP_CGFused *cg, PetscViewer viewer)
{
  char      version[32];
  PetscBool direct;

  PetscFunctionBegin;
  PetscCall(NCCLVersion_CUDA(cg->solve.nccl, version, sizeof(version)));
  PetscCall(CGFusedIsDirect_CUDA(cg->work, &direct));
  PetscCall(PetscViewerASCIIPrintf(viewer, "  communication: nccl, version %s, two sums an iteration%s\n", version,
                                   direct ? "; the kernels write to the other GPUs" : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The path of the last solve, if its products were our own, and the copies. */
static PetscErrorCode ViewOwnProducts(const KSP_CGFused *cg, PetscViewer viewer)
{
  CGFusedStatus status;

  PetscFunctionBegin;
  PetscCall(CGFusedGetStatus_CUDA(cg->work, &status));
  const char *why = cg->path == KSP_CGFUSED_RESIDENT && !status.resident
                      ? cg->solve.one_by_one ? ": the resident kernel does not wait for the host"
                                             : ": the system is too large, or its rows too uneven, for the resident kernel"
                      : "";
  if (cg->solve.several)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  path: that of several ranks: own products, in a graph with all sums and exchanges; "
                                             "the copies are the first rank's\n"));
  else PetscCall(PetscViewerASCIIPrintf(viewer, "  path: %s%s\n", status.resident ? "resident" : "graph", why));
  if (cg->solve.several && cg->solve.nccl) PetscCall(ViewCommunication_CGFused(cg, viewer));
  if (cg->solve.one_by_one)
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "  the host decides about each iteration before the next one: %s\n", cg->solve.one_by_one));
  if (cg->solve.has_cycle) PetscCall(PetscViewerASCIIPrintf(viewer, "  the graph has the cycle of the preconditioner\n"));
  PetscCall(ViewCopies(viewer, "copy of A", status.single[0], status.narrow[0], status.lanes[0]));
  if (status.lanes[1]) PetscCall(ViewCopies(viewer, "copies of the factors", status.single[1], status.narrow[1], status.lanes[1]));
  if (cg->copies.used) PetscCall(FusedViewSent(cg->copies.rows, viewer));
  PetscCall(PetscViewerASCIIPrintf(viewer, "  bytes of the copies %g, of all memory for them and the kernels %g\n",
                                   (double)status.copied_bytes, (double)status.bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPView_CGFused(KSP ksp, PetscViewer viewer)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  PetscBool          is_ascii, single;
  bool               shown;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPView_Consolidated(ksp, &cg->consolidated, viewer, &shown));
  if (shown) PetscCall(CGFusedViewColumns(ksp, viewer));
  if (shown) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGFusedSingleReduction(ksp, &single));
  if (single && !cg->trust.radius && !cg->solve.nccl)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  using single-reduction variant\n"));
  if (cg->trust.radius) PetscCall(PetscViewerASCIIPrintf(viewer, "  trust region of radius %g\n", (double)cg->trust.radius));
  if (!cg->solve.solved)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  path: %s, before the first solve\n", KSPCGFusedPaths[cg->path]));
  else if (cg->solve.why) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "  path: general: %s%s\n", cg->solve.why.text, cg->solve.why.type));
    if (*cg->solve.why_mpi) PetscCall(PetscViewerASCIIPrintf(viewer, "  communication: mpi: %s\n", cg->solve.why_mpi));
  } else if (cg->work) PetscCall(ViewOwnProducts(cg, viewer)); /* without it the solve has ended before there was memory */
  if (cg->solve.solved) PetscCall(FusedViewDevice(ksp, viewer));
  PetscCall(CGFusedViewColumns(ksp, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPReset_CGFused(KSP ksp)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  PetscCall(KSPReset_Consolidated(&cg->consolidated));
  PetscCall(CGFusedLeaveDevice(cg));
  cg->block_solve = CGFusedBlock{};
  PetscCall(VecDestroy(&cg->diagonal));
  PetscCall(ExchangeDestroy(&cg->exchange));
  PetscCall(PetscFree2(cg->lanczos.e, cg->lanczos.d));
  cg->lanczos.room = cg->lanczos.rows = 0;
  cg->solve.why                       = FusedReason{};
  cg->solve.nccl                      = nullptr;
  cg->solve.why_mpi                   = "";
  cg->solve.solved = cg->trust.has_model = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What Create_CGFused composes and Destroy takes away. */
static PetscErrorCode Compose_CGFused(KSP ksp, PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(KSP_CGFused::options.Compose(ksp, compose));
  PetscCall(CGFusedComposeTrust(ksp, compose));
  PetscCall(CGFusedComposeColumns(ksp, compose));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPBuildSolution_CGFused(KSP ksp, Vec v, Vec *V)
{
  const KSPConsolidated *c = &((const KSP_CGFused *)ksp->data)->consolidated;

  PetscFunctionBegin;
  if (c->talks) PetscCall(KSPBuildSolution_Consolidated(c, ksp->vec_sol));
  PetscCall(CGFusedFetchSolution(ksp));
  PetscCall(KSPBuildSolutionDefault(ksp, v, V));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPBuildResidual_CGFused(KSP ksp, Vec t, Vec v, Vec *V)
{
  const KSPConsolidated *c = &((const KSP_CGFused *)ksp->data)->consolidated;

  PetscFunctionBegin;
  if (c->solved || c->talks) {
    PetscCall(KSPBuildResidualDefault(ksp, t, v, V));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck(ksp->work || ((const KSP_CGFused *)ksp->data)->copies.used, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ORDER,
             "There is no residual before KSPSolve(), nor after KSPReset()");
  if (((const KSP_CGFused *)ksp->data)->copies.used) PetscCall(CGFusedFetchResidual(ksp, Residual::OF_RECURRENCE));
  PetscCall(VecCopy(ksp->work[0], v));
  *V = v;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_CGFused(KSP ksp)
{
  PetscFunctionBegin;
  ksp->data = new KSP_CGFused();
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_PRECONDITIONED, PC_LEFT, 3));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_UNPRECONDITIONED, PC_LEFT, 2));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NATURAL, PC_LEFT, 2));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NONE, PC_LEFT, 1));
  ksp->setupnewmatrix                    = PETSC_TRUE;
  ksp->ops->setup                        = Entry<KSPSetUp_CGFused>;
  ksp->ops->solve                        = Entry<FusedSolve<KSPSolve_CGFused>>;
  ksp->ops->matsolve                     = Entry<KSPMatSolve_CGFused>;
  ksp->ops->reset                        = Entry<KSPReset_CGFused>;
  ksp->ops->destroy                      = Entry<DestroyData<KSP_CGFused, KSPReset_CGFused, Compose_CGFused, KSP>>;
  ksp->ops->view                         = Entry<KSPView_CGFused>;
  ksp->ops->setfromoptions               = Entry<SetFromOptionTable<KSP_CGFused, KSP>>;
  ksp->ops->buildsolution                = Entry<KSPBuildSolution_CGFused>;
  ksp->ops->buildresidual                = Entry<KSPBuildResidual_CGFused>;
  ksp->ops->computeextremesingularvalues = Entry<KSPComputeExtremeSingularValues_CGFused>;
  ksp->ops->computeeigenvalues           = Entry<KSPComputeEigenvalues_CGFused>;
  PetscCall(Compose_CGFused(ksp, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  KSPCGFUSED - "cgfused": the preconditioned conjugate gradient method of `KSPCG`, at the bandwidth of the GPU

  Options Database Keys:
+ -ksp_cgfused_path <auto> - how iterations are run. `auto`: `resident` for small systems and `graph` for others, wherever these can
  run; `general`: `MatMult()` and `PCApply()` of any matrix and any preconditioner, with fused vector operations; the host waits for
  the sums; `graph`: three to five kernels an iteration, in a CUDA graph; scalars and the convergence test are on the device;
  `resident`: one cooperative kernel that keeps the matrices, as far as they fit, and its part of the vectors in shared memory
. -ksp_cgfused_compress <true> - whether copies of the matrices are smaller than these where nothing is lost by it
. -ksp_cgfused_communication <auto> - how several ranks make sums and exchange vectors. `auto`: NCCL where it can run, else MPI;
  `mpi`: `MPI_Allreduce()` and the products of the matrix; the host decides about iterations; `nccl`: NCCL, in the CUDA graph of the
  iterations; the host learns of the end late
. -ksp_cg_single_reduction - one reduction per iteration, see `KSPCGUseSingleReduction()`; the default with several ranks and MPI
- -ksp_cgfused_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `KSPFinePCSetBackend()`

  Level: beginner

  Notes:
  Iterates, iteration counts, reasons, norms, tests, monitors, history and eigenvalue estimates are those of `KSPCG`, to rounding.
  On several ranks with MPI they are those of `KSPCG` with `-ksp_cg_single_reduction`, whose recurrences round differently. What
  differs is how an iteration runs. On one rank, with a `MATAIJCUSPARSE` and vectors on the GPU, or with a matrix of the host that
is sent there (see `KSPFinePCSetBackend()`), and with `PCAFSAI`, `PCSFSAI`, `PCCMATCH`, `PCJACOBI` or `PCNONE`, the scalars and the
  convergence test stay on the device, sums are computed in the kernels that have their operands, and the host learns of the end
  with a delay; there are no updates after the end. Small systems run in one persistent kernel. A private copy of the matrix and of
  the factors is kept for this; the view gives its size.

  On several ranks, for the same matrices and preconditioners (`PCCMATCH` only if its exchanges use NCCL, too), finepc's own
  products are used as well (the path of several ranks) if each rank has a separate GPU and NCCL, NVIDIA's library for communication
  between GPUs, is available. Vectors are exchanged during the product with the rank's own block, and sums and exchanges are part of
  the CUDA graph, so that an iteration runs as on one rank, with the same recurrences: two reductions, where the norm is reduced
  together with z^T r. See `KSPCGFusedSetCommunication()`. Ranks that share a GPU come together: one of them solves for all, unless
  `-finepc_consolidate false` is given.

  Otherwise the ranks communicate by MPI, on the general path, and the host makes the sums and the test. An iteration then has one
  reduction, with recurrences like those of `KSPCGUseSingleReduction()`. `-ksp_cg_single_reduction 0` asks for two reductions, and
  `-ksp_cg_single_reduction 1` for one, which takes the general path even where there is NCCL. The recurrences of a single reduction
need a symmetric matrix. If boundary rows were replaced by rows of the identity and their columns were kept (`MatZeroRows()`), these
recurrences are wrong, and `KSPCG` with a single reduction diverges. Here p^T A p itself is computed in iterations 1, 2, 4, 8 and so
on; if the recurrence is off by more than 1e-5 of its terms, the solve continues with two reductions, like those of `KSPCG`, and
`-info` reports this.

  Monitors get the norm of each iteration once and in order, and convergence tests other than `KSPConvergedDefault()` and
  `KSPConvergedSkip()` end the solve with the iterate of the iteration that they accept, on every path. `KSPMonitorResidual()`
  (`-ksp_monitor`) uses only the norm and gets it with a delay; it costs only its own work. Any other monitor may ask for the
  solution or the residual of its iteration (`KSPBuildSolution()`, `KSPBuildResidual()`), and a convergence test of the program
  decides whether there is a next iteration. If such a monitor or test is set, the graph runs, even for small systems, and the host
  decides after each iteration whether the next one runs. Meanwhile the GPU computes the product of the next iteration in advance,
  which changes neither the solution nor the residual. An iteration then takes longer only by the time that the host needs beyond
  this product, some 10 microseconds plus the time of the monitors and the test, and a solve takes one more product. The view says
  so.

  The general path is taken for a null space, a transposed solve, any other matrix or preconditioner, a rank without rows, several
  ranks without NCCL, and a single reduction. It uses `MatMult()` and `PCApply()`
  with fused vector operations, and the host tests for convergence in every iteration. The view says which path ran and why.

  The general path is an error in a device context of the stream type `PETSC_STREAM_NONBLOCKING`, since PETSc's products may run in
  a stream other than the current one.

  The order of summation depends only on sizes and the GPU, so the same solve gives the same bits: on several ranks as far as MPI's
  or NCCL's sums do so, and on the general path as far as `MatMult()` and `PCApply()` do.

  Sums of squares are not scaled: a norm whose square overflows is not finite, and one whose square underflows is zero. A solve that
  would have converged because of this ends with `KSP_DIVERGED_BREAKDOWN`, and so does one whose solution is too small to be
  represented. If the solution overflows, the reason is `KSP_DIVERGED_NANORINF`. In all these cases `KSPCG` reports convergence.

  A solve that has converged by its norm is confirmed by b - A x, which takes one product per solve. If b - A x neither agrees with
  the residual of the recurrence, to one per cent, nor is small enough for the test, nor is explained by the last digits of the
  solution, the solve continues from its solution on the general path, and the view says so. It ends with `KSP_DIVERGED_BREAKDOWN`
  if more than half of the residual is left; `KSPCG` reports convergence. Solves in a trust region or to an objective are not
  confirmed, since they could not continue from their solution.

  With the natural norm and a null space of the matrix, the confirmation also takes an application of the preconditioner, since the
  product of r and z may vanish or be negative if the right-hand side has a component in the null space. The norm of the rest is
  then tested; if it is not small, the solve continues without that component. `MatSetTransposeNullSpace()`, or MAT_SYMMETRIC before
  `MatSetNullSpace()`, makes `KSPSolve()` remove the component at the beginning.

  On one GPU, and on several that communicate by NCCL, `KSPMatSolve()` solves for several right-hand sides together, 8 at a time, or
  as many as `KSPSetMatSolveBatchSize()` asks for, up to 16, with `PCAFSAI`, `PCSFSAI`, `PCJACOBI` and `PCNONE`, and on one GPU with
  `PCCMATCH`, by a graph of kernels over interleaved vectors. Each column has its own scalars and its own test, and gets the
  iterates of `KSPSolve()`, to rounding; A, the factors and the levels of a cycle are read once for all columns. With a factor, the
  preconditioned norm takes the least memory and time. Otherwise columns are solved one by one, as with `KSPCG`. This is also so if
  `PCCMATCH` has factors as smoothers or iterations on the coarsest level, or if there is a monitor, a history of residual norms, a
  convergence test of the program, a null space, a transposed solve, a guess by `KSPGuess`, a trust region, eigenvalue estimates or
  a preconditioner that failed; the view says why. `KSPCGFusedGetColumns()` gives the outcome for each column.

  With `KSPCGSetRadius()` this is the trust-region method of Steihaug and Toint, like `KSPSTCG`, for SNESNEWTONTR and for TAO's
  Newton methods nls, bnls, bntr and bntl (`-tao_nls_ksp_type cgfused`, `-tao_bnk_ksp_type cgfused`; ntr and ntl ask for PETSc's own
  types by name): it decreases x^T A x / 2 - b^T x among the x with a 2-norm of at most the radius, and ends on the boundary if a
  step would leave the region (`KSP_CONVERGED_STEP_LENGTH`) or if the curvature along a direction is not positive
  (`KSP_CONVERGED_NEG_CURVE`). `KSPCGGetNormD()` and `KSPCGGetObjFcn()` give the norm and the objective of the x of a solve after a
  call of `KSPCGSetRadius()`, even one with 0, which removes the trust region. With `KSPCGSetObjectiveTarget()` a solve ends when
  the objective falls to the target (`KSP_CONVERGED_ATOL`). Both take the general path, and a trust region takes two reductions per
  iteration and a zero initial guess.

  References:
+ * - M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, J. Res. NBS 49 (1952) 409-436
- * - T. Steihaug, The conjugate gradient method and trust regions in large scale optimization, SIAM J. Numer. Anal. 20 (1983)
  626-637

.seealso: `KSPCG`, `PCAFSAI`, `PCSFSAI`, `PCCMATCH`, `PCJACOBI`, `KSPCGFusedGetColumns()`, `KSPMatSolve()`, `KSPCGSetRadius()`,
          `KSPSTCG`, `KSPCGFusedSetPath()`, `KSPCGFusedSetCompress()`, `KSPCGFusedSetCommunication()`
M*/

/*@C
  KSPCreate_CGFused - Makes a solver a `KSPCGFUSED`, after registering finepc if nothing has done so; for `KSPRegister()`

  Collective

  Input Parameter:
. ksp - the solver context

  Level: developer

.seealso: `KSPCGFUSED`, `KSPRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode KSPCreate_CGFused(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_CGFused>(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}
