/* Solvers of ranks that have come together. */
#include <petsc/private/pcimpl.h>

#include <algorithm>

#include "consolidated.h"
#include "entry.h"
#include "fusedimpl.h"
#include "pc/acting.h"
#include "pc/local.h"
#include "sparse/offload.h"

static PetscErrorCode LeaveGroup(KSPConsolidated *c)
{
  const KSP outer = c->outer;

  PetscFunctionBegin;
  PetscCall(KSPDestroy(&c->inner));
  PetscCall(MatGroupRelease(&c->group));
  *c       = KSPConsolidated{};
  c->outer = outer;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The group of the preconditioner's matrix, which ranks that have come together for A use together, too, or null. Of PETSc's types
   PCJACOBI alone reads that matrix for them.
*/
static PetscErrorCode GetGroupOfPmat(KSP ksp, MatGroup **group)
{
  const PC  pc = ksp->pc;
  const Mat P  = pc->pmat;
  PetscBool reads;

  PetscFunctionBegin;
  *group = nullptr;
  if (!P) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectTypeCompareAny((PetscObject)pc, &reads, PCJACOBI, PCAUTO, ""));
  if (PCIsLocal(pc)) reads = PETSC_TRUE;
  if (reads && P != pc->mat && ((PetscObject)P)->type_name) PetscCall(MatChooseBackendInSolver(P, pc));
  PetscCall(MatGetGroup(P, group));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPSetUp_Consolidated(KSP ksp, KSPConsolidated *c, bool *together)
{
  PetscBool given;
  Mat       A;
  MatGroup *group;

  PetscFunctionBegin;
  *together = false;
  PetscCall(PCGetOperatorsSet(ksp->pc, &given, nullptr));
  if (!given) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  c->outer = ksp; /* which leaves A in a reset */
  if (((PetscObject)A)->type_name) PetscCall(MatChooseBackend(A, (PetscObject)ksp));
  PetscCall(MatGetGroup(A, &group));
  *together = group;
  if (group) PetscCall(GetGroupOfPmat(ksp, &group));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPReset_Consolidated(KSPConsolidated *c)
{
  PetscFunctionBegin;
  PetscCall(LeaveGroup(c));
  if (c->outer) PetscCall(MatLeave((PetscObject)c->outer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why the ranks do not solve together, whatever the preconditioner is; as far as this rank knows. */
static const char *WhyNot_Consolidated(KSP ksp)
{
  if (ksp->transpose_solve) return "a transposed solve";
  if (ksp->calc_sings && FusedWhyOneByOne(ksp)) return "a monitor or a test may want singular values";
  if (ksp->reason == KSP_DIVERGED_PC_FAILED) return "the preconditioner failed";
  return "";
}

/*
   The preconditioner of the leaders if the KSP's is one of finepc's that has come together; or the group of its matrix, if they can
   make their own; or why there is none of theirs, the same on all ranks. One that was set up before its ranks have come together
   follows them.
*/
static PetscErrorCode FindPreconditioner(KSPConsolidated *c, PCConsolidated **inner, MatGroup **own)
{
  const PC  pc = PCActing(c->outer->pc);
  PetscBool none, jacobi;
  MatGroup *group;

  PetscFunctionBegin;
  *inner = nullptr;
  *own   = nullptr;
  PetscCall(GetGroupOfPmat(c->outer, &group));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCNONE, &none));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCJACOBI, &jacobi));
  if (none) *own = c->group;
  else if (jacobi) *own = group;
  else if (PCIsLocal(pc)) {
    PC_Local       *local        = (PC_Local *)pc->data;
    PCConsolidated *consolidated = &local->consolidated;

    if (group && !consolidated->group && local->copy_options && !local->alone && !pc->reusepreconditioner)
      PetscCall(FusedSetUpAgain(c->outer));
    if (consolidated->group) *inner = consolidated;
  }
  const MatGroup *const used = *inner ? (*inner)->group : *own;
  if (!used || used->group.groups != c->group->group.groups) c->why = "the preconditioner is one of all ranks";
  else c->why = WhyNot_Consolidated(c->outer); /* it may have failed */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- monitors and tests of the program -------------------------- */

/* What the leader has said, on each rank: an error on one of them is one on all. */
static PetscErrorCode HearMessage(KSPConsolidated *c)
{
  const GroupMessage message = *c->group->message;
  const auto         call    = [&] {
    KSP ksp = c->outer;

    PetscFunctionBegin;
    ksp->its   = message.its;
    ksp->rnorm = message.norm;
    if (message.kind == GroupSays::TEST) PetscCall((*ksp->converged)(ksp, message.its, message.norm, &ksp->reason, ksp->cnvP));
    else {
      PetscCall(KSPLogResidualHistory(ksp, message.norm));
      PetscCall(KSPMonitor(ksp, message.its, message.norm));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscFunctionBegin;
  const PetscErrorCode code = AgreeOnError(PetscObjectComm((PetscObject)c->outer), call(), "follow the iteration");
  c->failed                 = code != PETSC_SUCCESS;
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On a leader, in its solve. */
static PetscErrorCode SayAndHear(KSPConsolidated *c, GroupSays kind, PetscInt its, PetscReal norm)
{
  PetscFunctionBegin;
  *c->group->message = GroupMessage{kind, its, norm};
  PetscCall(RankGroupMeet(&c->group->group));
  PetscCall(HearMessage(c));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MonitorOnAllRanks(KSP, PetscInt its, PetscReal norm, void *ctx)
{
  PetscFunctionBegin;
  PetscCall(SayAndHear((KSPConsolidated *)ctx, GroupSays::MONITOR, its, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode TestOnAllRanks(KSP, PetscInt its, PetscReal norm, KSPConvergedReason *reason, void *ctx)
{
  KSPConsolidated *c = (KSPConsolidated *)ctx;

  PetscFunctionBegin;
  PetscCall(SayAndHear(c, GroupSays::TEST, its, norm));
  *reason = c->outer->reason;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a monitor or a test looks at goes through memory of its own, since solvers keep a guess in the vector of the solution. */
PetscErrorCode KSPBuildSolution_Consolidated(const KSPConsolidated *c, Vec v)
{
  MatGroup          *g    = c->group;
  PetscErrorCode     code = PETSC_SUCCESS;
  SharedMemory       memory;
  Vec                x;
  const PetscScalar *array;

  PetscFunctionBegin;
  PetscCall(SharedMemoryCreate(&g->group, g->all * sizeof(PetscScalar), &memory));
  if (g->group.Leads()) {
    const auto fetch = [&] {
      PetscFunctionBegin;
      PetscCall(KSPBuildSolution(c->inner, nullptr, &x));
      PetscCall(VecGetArrayRead(x, &array));
      PetscCall(PetscArraycpy((PetscScalar *)memory.data, array, g->all));
      PetscCall(VecRestoreArrayRead(x, &array));
      PetscFunctionReturn(PETSC_SUCCESS);
    };
    code = fetch();
  }
  PetscCall(RankGroupMeet(&g->group));
  const PetscErrorCode taken = MatGroupTake(g, (const PetscScalar *)memory.data, v);
  PetscCall(SharedMemoryDestroy(&memory));
  PetscCall(code);
  PetscCall(taken);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the solver ---------------------------------------- */

/* What PETSc keeps in a KSP, beside the options of its type. */
static PetscErrorCode CopySettings(KSP from, KSP to)
{
  PetscFunctionBegin;
  PetscCall(KSPSetTolerances(to, from->rtol, from->abstol, from->divtol, from->max_it));
  PetscCall(KSPSetNormType(to, from->normtype));
  PetscCall(KSPSetPCSide(to, from->pc_side));
  PetscCall(KSPSetInitialGuessNonzero(to, (PetscBool)!from->guess_zero));
  PetscCall(KSPSetLagNorm(to, from->lagnorm));
  PetscCall(KSPSetComputeSingularValues(to, from->calc_sings));
  PetscCall(KSPSetCheckNormIteration(to, from->chknorm));
  PetscCall(KSPCopyNewerSettings(from, to));
  if (from->converged == KSPConvergedSkip) PetscCall(KSPSetConvergenceTest(to, KSPConvergedSkip, nullptr, nullptr));
  if (from->converged == KSPConvergedDefault && to->converged == KSPConvergedDefault) {
    const KSPConvergedDefaultCtx *const kept = (const KSPConvergedDefaultCtx *)from->cnvP;
    KSPConvergedDefaultCtx *const       test = (KSPConvergedDefaultCtx *)to->cnvP;
    test->initialrtol                        = kept->initialrtol;
    test->mininitialrtol                     = kept->mininitialrtol;
    test->convmaxits                         = kept->convmaxits;
  }
  PetscCall(KSPSetResidualHistory(to, nullptr, from->max_it + 2, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The leaders' own preconditioner, of one of PETSc's simple types. */
static PetscErrorCode MakeSimplePC(PC from, Mat A, Mat P, PC to)
{
  PetscBool    jacobi, absolute, fixed;
  PCJacobiType type;

  PetscFunctionBegin;
  PetscCall(PCSetType(to, ((PetscObject)from)->type_name));
  PetscCall(PCSetOperators(to, A, P));
  PetscCall(PCSetReusePreconditioner(to, from->reusepreconditioner));
  PetscCall(PetscObjectTypeCompare((PetscObject)from, PCJACOBI, &jacobi));
  if (!jacobi) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCJacobiGetType(from, &type));
  PetscCall(PCJacobiSetType(to, type));
  PetscCall(PCJacobiGetUseAbs(from, &absolute));
  PetscCall(PCJacobiSetUseAbs(to, absolute));
  PetscCall(PCJacobiGetFixDiagonal(from, &fixed));
  PetscCall(PCJacobiSetFixDiagonal(to, fixed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeInner_KSP(KSP ksp, KSPConsolidated *c, const PCConsolidated *inner_pc, const MatGroup *own,
                                    CopyKSPOptions copy)
{
  const auto  test = c->tests ? TestOnAllRanks : ksp->converged;
  const char *prefix;
  PC          pc;

  PetscFunctionBegin;
  if (c->inner && c->inner->converged != test) PetscCall(KSPDestroy(&c->inner));
  if (!c->inner) {
    PetscCall(KSPCreate(c->group->group.same, &c->inner));
    PetscCall(PetscObjectSetOptions((PetscObject)c->inner, ((PetscObject)ksp)->options));
    PetscCall(KSPGetOptionsPrefix(ksp, &prefix));
    PetscCall(KSPSetOptionsPrefix(c->inner, prefix)); /* for messages: nothing is looked for */
    PetscCall(KSPSetType(c->inner, ((PetscObject)ksp)->type_name));
    c->inner->skippcsetfromoptions = PETSC_TRUE;
  }
  if (inner_pc) { /* which the KSP's own one has set up where that was to be done */
    PetscCall(KSPSetPC(c->inner, inner_pc->inner));
    PetscCall(KSPSetOperators(c->inner, c->group->rows, inner_pc->group->rows));
    PetscCall(PCSetReusePreconditioner(inner_pc->inner, PETSC_TRUE));
  } else {
    PetscCall(KSPGetPC(c->inner, &pc));
    PetscCall(MakeSimplePC(PCActing(ksp->pc), c->group->rows, own->rows, pc));
  }
  PetscCall(CopySettings(ksp, c->inner));
  PetscCall((*copy)(ksp, c->inner));
  if (c->tests) PetscCall(KSPSetConvergenceTest(c->inner, TestOnAllRanks, c, nullptr));
  PetscCall(KSPMonitorCancel(c->inner));
  if (c->monitors || c->tests) PetscCall(KSPMonitorSet(c->inner, MonitorOnAllRanks, c, nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the solve ----------------------------------------- */

/* How the leaders' solve has ended, which the others get. */
struct Ending {
  KSPConvergedReason reason;
  PetscInt           its, norms; /* norms in the history */
  PetscReal          rnorm, rnorm0, ttol;
  PetscInt           spectrum; /* numbers of it */
};

/* Eigenvalues and singular values of the leaders' solve. */
static PetscErrorCode GetSpectrum(KSP inner, std::vector<PetscReal> *spectrum)
{
  const PetscInt most = inner->its + 1;
  PetscInt       count;

  PetscFunctionBegin;
  spectrum->resize(2 * most + 2);
  PetscReal *const r = spectrum->data(), *const c = r + most, *const extremes = c + most;
  PetscCall(KSPComputeEigenvalues(inner, most, r, c, &count));
  PetscCall(KSPComputeExtremeSingularValues(inner, extremes, extremes + 1));
  std::copy(c, c + count, r + count);
  std::copy(extremes, extremes + 2, r + 2 * count);
  spectrum->resize(2 * count + 2);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SolveInner(KSPConsolidated *c, Ending *ending, const PetscReal **norms)
{
  const KSP             inner = c->inner;
  const MatGroup *const g     = c->group;

  PetscFunctionBegin;
  PetscCall(PetscObjectStateIncrease((PetscObject)g->rows_b));
  PetscCall(PetscObjectStateIncrease((PetscObject)g->rows_x));
  if (inner->guess_zero) PetscCall(MatGroupKnowZero(g));
  PetscCall(KSPSolve(inner, g->rows_b, g->rows_x));
  PetscCall(KSPGetResidualHistory(inner, norms, &ending->norms));
  ending->reason = inner->reason;
  ending->its    = inner->its;
  ending->rnorm  = inner->rnorm;
  ending->rnorm0 = inner->rnorm0;
  ending->ttol   = inner->ttol;
  if (inner->calc_sings) PetscCall(CallGuarded(GetSpectrum, inner, &c->spectrum));
  ending->spectrum = (PetscInt)c->spectrum.size();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Solves with monitors or a test of the program. */
static PetscErrorCode SolveAndTalk(KSPConsolidated *c, Ending *ending, const PetscReal **norms)
{
  MatGroup      *g    = c->group;
  PetscErrorCode code = PETSC_SUCCESS;

  PetscFunctionBegin;
  c->talks = true;
  PetscCall(RankGroupMeet(&g->group));
  if (g->group.Leads()) {
    code = SolveInner(c, ending, norms);
    if (!c->failed) {
      g->message->kind = GroupSays::END;
      PetscCall(RankGroupMeet(&g->group));
    }
  } else do {
      PetscCall(RankGroupMeet(&g->group));
      if (g->message->kind == GroupSays::END) break;
      code = HearMessage(c);
    } while (!code);
  c->talks = false;
  if (c->failed) PetscCall(code);
  else PetscCall(AgreeOnError(PetscObjectComm((PetscObject)c->outer), code, "solve for its group"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeRoomForEnding(const Ending *ending, PetscReal **norms, std::vector<PetscReal> *spectrum)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1(ending->norms, norms));
  spectrum->resize(ending->spectrum);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All ranks see the iterations as if they had made them, unless they have followed them before. */
static PetscErrorCode Follow_Consolidated(KSP ksp, KSPConsolidated *c, bool followed, Ending *ending, const PetscReal norms[])
{
  const RankGroup *const group = &c->group->group;
  PetscReal             *all   = nullptr;

  PetscFunctionBegin;
  if (followed) ending->norms = 0;
  PetscCallMPI(MPI_Bcast(ending, sizeof(*ending), MPI_BYTE, group->leader, group->comm));
  const PetscErrorCode room   = CallGuarded(MakeRoomForEnding, (const Ending *)ending, &all, &c->spectrum),
                       on_all = AgreeOnError(PetscObjectComm((PetscObject)ksp), room, "keep the norms");
  if (on_all) PetscCall(PetscFree(all));
  PetscCall(on_all);
  PetscCallMPI(MPI_Bcast(c->spectrum.data(), (PetscMPIInt)ending->spectrum, MPIU_REAL, group->leader, group->comm));
  if (group->Leads()) PetscCall(PetscArraycpy(all, norms, ending->norms));
  PetscCallMPI(MPI_Bcast(all, (PetscMPIInt)ending->norms, MPIU_REAL, group->leader, group->comm));
  PetscErrorCode code = PETSC_SUCCESS;
  for (PetscInt it = 0; it < ending->norms && !code; it++) {
    ksp->its   = it;
    ksp->rnorm = all[it];
    code       = KSPLogResidualHistory(ksp, all[it]);
    if (!code) code = KSPMonitor(ksp, it, all[it]);
  }
  PetscCall(PetscFree(all));
  PetscCall(code);
  ksp->its    = ending->its;
  ksp->rnorm  = ending->rnorm;
  ksp->rnorm0 = ending->rnorm0;
  ksp->ttol   = ending->ttol;
  ksp->reason = ending->reason;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ranks agree on the first reason that one of them has, and on whether there are monitors or a test to follow. */
static PetscErrorCode Agree_Consolidated(KSP ksp, KSPConsolidated *c)
{
  const bool tests  = ksp->converged != KSPConvergedDefault && ksp->converged != KSPConvergedSkip;
  int        any[3] = {*c->why != 0, FusedWhyOneByOne(ksp) != nullptr && !tests, tests};

  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, any, 3, MPI_INT, MPI_LOR, PetscObjectComm((PetscObject)ksp)));
  if (any[0] && !*c->why) c->why = "another rank has a reason";
  c->monitors = any[1];
  c->tests    = any[2];
  c->failed   = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPSolve_Consolidated(KSP ksp, KSPConsolidated *c, const char why_not[], CopyKSPOptions copy)
{
  const MPI_Comm   comm  = PetscObjectComm((PetscObject)ksp);
  PetscErrorCode   code  = PETSC_SUCCESS;
  const PetscReal *norms = nullptr;
  PCConsolidated  *inner;
  Ending           ending{};
  Mat              A;
  MatGroup        *g, *own;
  PetscBool        fell;

  PetscFunctionBegin;
  c->solved = false;
  c->why    = "";
  c->outer  = ksp;
  c->spectrum.clear();
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatChooseBackend(A, (PetscObject)ksp));
  PetscCall(MatGetGroup(A, &g));
  if (g != c->group) {
    PetscCall(LeaveGroup(c));
    c->group = g;
    if (g) g->users++;
  }
  if (!g) PetscFunctionReturn(PETSC_SUCCESS);
  c->why = *why_not ? why_not : WhyNot_Consolidated(ksp);
  PetscCall(Agree_Consolidated(ksp, c));
  if (!*c->why) PetscCall(FindPreconditioner(c, &inner, &own));
  if (*c->why) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGroupUpdate(A, g));
  if (own && own != g) PetscCall(MatGroupUpdate(ksp->pc->pmat, own));
  if (g->group.Leads()) {
    code = MakeInner_KSP(ksp, c, inner, own, copy);
    if (code) PetscCall(KSPDestroy(&c->inner));
  }
  PetscCall(AgreeOnError(comm, code, "make the solver of its group"));
  PetscCall(MatGroupPut(g, ksp->vec_rhs, g->b));
  if (ksp->guess_zero) PetscCall(PetscArrayzero(g->x + g->first, g->n));
  else PetscCall(MatGroupPut(g, ksp->vec_sol, g->x));
  const bool talk = c->monitors || c->tests;
  PetscCall(MatTry(A, (PetscObject)ksp, &fell, [&](bool *on_all) {
    const PetscErrorCode solved =
      talk ? SolveAndTalk(c, &ending, &norms)
           : OnLeaders(comm, &g->group, "solve for its group", [&] { return SolveInner(c, &ending, &norms); });
    *on_all = solved && !c->failed; /* an error of the program is none of memory */
    return solved;
  }));
  if (fell) { /* the leaders have not touched what the ranks have */
    PetscCall(KSPReset_Consolidated(c));
    PetscCall(FusedFollow(ksp));
    PetscCall(KSPSolve_Consolidated(ksp, c, why_not, copy));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(MatGroupTake(g, g->x, ksp->vec_sol));
  PetscCall(Follow_Consolidated(ksp, c, talk, &ending, norms));
  c->solved = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPComputeEigenvalues_Consolidated(const KSPConsolidated *c, PetscInt nmax, PetscReal *r, PetscReal *im,
                                                  PetscInt *neig)
{
  const PetscInt n = c->spectrum.empty() ? 0 : (PetscInt)(c->spectrum.size() - 2) / 2;

  PetscFunctionBegin;
  PetscCheck(nmax >= n, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ, "There are %" PetscInt_FMT " eigenvalues, but room for %" PetscInt_FMT,
             n, nmax);
  *neig = n;
  PetscCall(PetscArrayzero(im, nmax));
  PetscCall(PetscArraycpy(r, c->spectrum.data(), n));
  PetscCall(PetscArraycpy(im, c->spectrum.data() + n, n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPComputeExtremeSingularValues_Consolidated(const KSPConsolidated *c, PetscReal *emax, PetscReal *emin)
{
  const size_t size = c->spectrum.size();

  PetscFunctionBegin;
  *emax = size ? c->spectrum[size - 2] : 1;
  *emin = size ? c->spectrum[size - 1] : 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPView_Consolidated(KSP ksp, const KSPConsolidated *c, PetscViewer viewer, bool *shown)
{
  PetscMPIInt size;

  PetscFunctionBegin;
  *shown = c->solved;
  if (!c->group) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  if (!c->solved) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "  the ranks did not come together: %s\n", c->why));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (c->group->group.groups == size)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  each rank solves with the single entries of its rows\n"));
  else
    PetscCall(PetscViewerASCIIPrintf(viewer, "  %d ranks have come together on %d, which %s for all\n", size,
                                     c->group->group.groups, c->group->group.groups == 1 ? "solves" : "solve"));
  if (c->monitors || c->tests)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  each iteration waits for %s, which all ranks call\n",
                                     c->tests ? "the convergence test of the program" : "the monitors"));
  PetscCall(
    ViewOfLeaders(&c->group->group, viewer, [&](PetscViewer of_leaders) { return (*c->inner->ops->view)(c->inner, of_leaders); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
