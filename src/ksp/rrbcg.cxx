/* The PETSc face of the RRB-solver. */
#include <petsc/private/pcimpl.h>

#include "options.h"
#include "pc/confirm.h"
#include "pc/rrb/rrb_face.h"
#include "cgface.h"
#include "rrbcg.h"

struct KSP_RRBCG {
  static const OptionTable<KSP> options;

  PetscBool graph = PETSC_TRUE;

  RRBCGWork         *work      = nullptr;
  PetscBool          device    = PETSC_FALSE; /* the work is on the GPU */
  const PetscScalar *residual  = nullptr;     /* of the guess, during a solve */
  PetscBool          add       = PETSC_FALSE; /* there was a guess, to which the solution is added */
  PetscBool          iterating = PETSC_FALSE;
  CGRange            range;
  PetscInt           before = 0;       /* iterations before the residual was computed anew, since its recurrence had lost it */
  PetscReal          began  = 0;       /* the norm that followed, or the first one */
  const char        *how    = nullptr; /* the iterations of the last solve ran, for the view */

  /* vectors of the host, where the work is on the GPU */
  PetscScalar       *staging     = nullptr; /* [2 staged_rows] copies of one that is read and of one that is written */
  PetscInt           staged_rows = 0;
  const PetscScalar *read        = nullptr; /* the array that a vector has lent */
  PetscBool          staged      = PETSC_FALSE;
};

/* One of the twins: the functions of rrbcg.h for where the factor is. */
struct RRBCGTwin {
  PetscErrorCode (*prepare)(RRBFactor *, RRBCGWork **);
  PetscErrorCode (*destroy)(RRBCGWork **);
  PetscErrorCode (*start)(RRBCGWork *, const PetscScalar *, RRBCGSums *);
  PetscErrorCode (*begin)(RRBCGWork *, PetscReal, const CGTest *);
  PetscErrorCode (*advance)(RRBCGWork *, PetscBool, LocalInt *, const CGRecord **, CGStop *, LocalInt *, PetscReal *);
  PetscErrorCode (*solution)(RRBCGWork *, const PetscScalar *, PetscBool, PetscScalar *);
  PetscErrorCode (*residual)(RRBCGWork *, PetscScalar *);
};

static const RRBCGTwin &Twin_RRBCG(PetscBool device)
{
  static const RRBCGTwin host = {RRBCGPrepare_Host, RRBCGDestroy_Host,  RRBCGStart_Host,   RRBCGBegin_Host,
                                 RRBCGAdvance_Host, RRBCGSolution_Host, RRBCGResidual_Host};
  static const RRBCGTwin cuda = {RRBCGPrepare_CUDA, RRBCGDestroy_CUDA,  RRBCGStart_CUDA,   RRBCGBegin_CUDA,
                                 RRBCGAdvance_CUDA, RRBCGSolution_CUDA, RRBCGResidual_CUDA};

  return device ? cuda : host;
}

static const Option<KSP> kOptions[] = {
  /* graph

     Otherwise iterations are launched one by one and the host tests each, as it does with a monitor. The iterates are the same. On
     the host this option makes no difference, except to who tests.

     Level: advanced */
  {"-ksp_rrbcg_graph", "whether the GPU decides about several iterations of a CUDA graph", "KSPRRBCGSetGraph",
   Field<&KSP_RRBCG::graph>(), Invalidates::NOTHING},
};
const OptionTable<KSP> KSP_RRBCG::options{"KSP RRBCG options", kOptions};

/* ------------------------------------------- set-up ------------------------------------------- */

/* Makes the work for the factor that there is, where that is. What fits is kept. */
static PetscErrorCode Prepare_RRBCG(KSP ksp)
{
  KSP_RRBCG      *cg     = (KSP_RRBCG *)ksp->data;
  const PC_RRB   *rrb    = (const PC_RRB *)ksp->pc->data;
  const PetscBool device = (PetscBool)PetscMemTypeDevice(rrb->factor->where);

  PetscFunctionBegin;
  if (cg->work && device != cg->device) PetscCall(Twin_RRBCG(cg->device).destroy(&cg->work));
  cg->device = device;
  PetscCall(Twin_RRBCG(device).prepare(rrb->factor, &cg->work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the data are those of PCRRB, by whatever name a program has registered it. */
static PetscErrorCode CheckRRB(KSP ksp)
{
  PetscErrorCode (*method)(PC, PetscInt);

  PetscFunctionBegin;
  PetscCall(PetscObjectQueryFunction((PetscObject)ksp->pc, "PCRRBSetLevels_C", &method));
  PetscCheck(method, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "KSPRRBCG is CG on the first Schur complement of PCRRB, but the preconditioner is %s: use -pc_type rrb",
             ((PetscObject)ksp->pc)->type_name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sets up the preconditioner, too, which has to keep the Schur complement: all that is done once a matrix is done here. */
static PetscErrorCode KSPSetUp_RRBCG(KSP ksp)
{
  PetscMPIInt size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &size));
  PetscCheck(size == 1, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "KSPRRBCG works on one rank: with several use -ksp_type cg -pc_type rrb");
  if (!((PetscObject)ksp->pc)->type_name) PetscCall(PCSetType(ksp->pc, PCRRB));
  PetscCall(CheckRRB(ksp));
  PC_RRB *rrb = (PC_RRB *)ksp->pc->data;
  if (!rrb->params.keep_schur) ksp->pc->setupcalled = PETSC_FALSE;
  rrb->params.keep_schur = PETSC_TRUE;
  /* KSPReset() takes the vectors away but leaves their number, and another type of solver may have made others */
  if (ksp->setupstage == KSP_SETUP_NEW) PetscCall(FusedSetWorkVecs(ksp, 3));
  PetscCall(PCSetErrorIfFailure(ksp->pc, ksp->errorifnotconverged)); /* as KSPSetUp() does after this */
  PetscCall(PCSetUp(ksp->pc));
  if (!ksp->pc->failedreason && rrb->factor->has_schur) { /* otherwise KSPSolve() says what is wrong */
    PetscCall(Prepare_RRBCG(ksp));
    if (((KSP_RRBCG *)ksp->data)->device) { /* the memory of the residual is there before the first solve */
      PetscScalar *array;
      PetscCall(FusedGetWrite(PETSC_TRUE, ksp->work[0], &array, nullptr));
      PetscCall(FusedRestoreWrite(PETSC_TRUE, ksp->work[0], &array));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static bool NoRows(const PC_RRB *rrb)
{
  return !rrb->factor->nx || !rrb->factor->ny;
}

/* Errors where something is not as the method needs it. */
static PetscErrorCode CheckOperators(KSP ksp)
{
  const PC_RRB    *rrb = (const PC_RRB *)ksp->pc->data;
  Mat              A, P;
  PetscObjectId    id;
  PetscObjectState state;

  PetscFunctionBegin;
  PetscCall(CheckRRB(ksp));
  PetscCheck(!ksp->calc_sings, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "KSPRRBCG does not estimate eigenvalues and singular values: use -ksp_type cg -pc_type rrb, whose are the same");
  PetscCall(PCGetOperators(ksp->pc, &A, &P));
  PetscCheck(
    A == P, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
    "KSPRRBCG solves with the matrix that PCRRB factors, but KSPSetOperators() was given two: use -ksp_type cg -pc_type rrb");
  PetscCall(PetscObjectGetId((PetscObject)A, &id));
  PetscCall(PetscObjectStateGet((PetscObject)A, &state));
  PetscCheck(id == rrb->mat_id && state == rrb->mat_state, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "KSPRRBCG solves with the matrix that PCRRB factored, which is another one or has changed since: use no "
             "-ksp_reuse_preconditioner, or -ksp_type cg -pc_type rrb");
  PetscCheck(!rrb->factor->nine, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "KSPRRBCG needs a 5-point stencil, whose first level is exact, but the matrix couples diagonal neighbours: use "
             "-ksp_type cg -pc_type rrb");
  PetscCheck(
    rrb->factor->has_schur || NoRows(rrb), PetscObjectComm((PetscObject)ksp), PETSC_ERR_ORDER,
    "The preconditioner was made after KSPSetUp(), which tells PCRRB to keep the Schur complement: call KSPReset() in between");
  PetscCheck(
    !rrb->stats.one_sided, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
    "KSPRRBCG needs a symmetric matrix, but %" PetscInt64_FMT
    " couplings are there in one of two rows alone: use MatZeroRowsColumns() for Dirichlet rows, or -ksp_type gmres -pc_type rrb",
    rrb->stats.one_sided);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- vectors where the work is ---------------------------------- */

/* Room on the GPU for copies of two vectors of the host, of so many entries. */
static PetscErrorCode NeedStaging_RRBCG(KSP_RRBCG *cg, PetscInt n)
{
  PetscFunctionBegin;
  if (cg->staging && cg->staged_rows == n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&cg->staging));
  PetscCall(ArrayCreate(2 * (size_t)n * sizeof(PetscScalar), PETSC_MEMTYPE_CUDA, (void **)&cg->staging));
  cg->staged_rows = n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The array of v where the work is, or a copy there if the host has v; and back. */
static PetscErrorCode GetRead(KSP_RRBCG *cg, Vec v, const PetscScalar **array)
{
  PetscMemType where;

  PetscFunctionBegin;
  PetscCall(FusedGetRead(cg->device, v, &cg->read, &where));
  *array = cg->read;
  if (cg->device && !PetscMemTypeDevice(where)) {
    PetscInt n;

    PetscCall(VecGetLocalSize(v, &n));
    PetscCall(NeedStaging_RRBCG(cg, n));
    PetscCall(FusedSend(v, cg->staging));
    *array = cg->staging;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreRead(KSP_RRBCG *cg, Vec v, const PetscScalar **array)
{
  PetscFunctionBegin;
  PetscCall(FusedRestoreRead(cg->device, v, &cg->read));
  *array = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetWrite(KSP_RRBCG *cg, Vec v, PetscScalar **array)
{
  PetscMemType where;

  PetscFunctionBegin;
  PetscCall(FusedGetWrite(cg->device, v, array, &where));
  cg->staged = (PetscBool)(cg->device && !PetscMemTypeDevice(where));
  if (!cg->staged) PetscFunctionReturn(PETSC_SUCCESS);
  PetscInt n;

  PetscCall(FusedRestoreWrite(cg->device, v, array));
  PetscCall(VecGetLocalSize(v, &n));
  PetscCall(NeedStaging_RRBCG(cg, n));
  *array = cg->staging + n;
  PetscCall(FusedSend(v, *array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreWrite(KSP_RRBCG *cg, Vec v, PetscScalar **array)
{
  PetscFunctionBegin;
  if (cg->staged) PetscCall(FusedFetch(*array, v));
  else PetscCall(FusedRestoreWrite(cg->device, v, array));
  *array = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The solution so far, into x, which has the guess if there was one. */
static PetscErrorCode StoreSolution(KSP ksp, Vec x)
{
  KSP_RRBCG   *cg = (KSP_RRBCG *)ksp->data;
  PetscScalar *array;

  PetscFunctionBegin;
  PetscCall(GetWrite(cg, x, &array));
  PetscCall(FusedTimeBegin(cg->device));
  PetscCall(Twin_RRBCG(cg->device).solution(cg->work, cg->residual, cg->add, array));
  PetscCall(FusedTimeEnd(cg->device));
  PetscCall(RestoreWrite(cg, x, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPBuildSolution_RRBCG(KSP ksp, Vec v, Vec *V)
{
  KSP_RRBCG *cg = (KSP_RRBCG *)ksp->data;

  PetscFunctionBegin;
  if (!cg->iterating) PetscCall(KSPBuildSolutionDefault(ksp, v, V));
  else {
    const Vec x = v ? v : ksp->work[1]; /* the vector of the solution keeps the guess until the end */

    PetscCheck(
      x != ksp->vec_sol || !cg->add, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_IDN,
      "KSPRRBCG keeps its guess in the vector of the solution until the end: give KSPBuildSolution() another one, or none");
    PetscCall(VecCopy(ksp->vec_sol, x));
    PetscCall(StoreSolution(ksp, x));
    if (V) *V = x;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPBuildResidual_RRBCG(KSP ksp, Vec t, Vec v, Vec *V)
{
  KSP_RRBCG   *cg = (KSP_RRBCG *)ksp->data;
  PetscScalar *array;

  PetscFunctionBegin;
  if (!cg->iterating) PetscCall(KSPBuildResidualDefault(ksp, t, v, V));
  else {
    PetscCall(GetWrite(cg, v, &array));
    PetscCall(Twin_RRBCG(cg->device).residual(cg->work, array));
    PetscCall(RestoreWrite(cg, v, &array));
    *V = v;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the solve ------------------------------------------ */

static PetscErrorCode LogNorm(KSP ksp, PetscInt its, PetscReal norm)
{
  KSP_RRBCG *cg = (KSP_RRBCG *)ksp->data;

  PetscFunctionBegin;
  if (!its) cg->began = norm;
  its += cg->before;
  PetscCall(PetscObjectSAWsTakeAccess((PetscObject)ksp));
  ksp->its   = its;
  ksp->rnorm = norm;
  PetscCall(PetscObjectSAWsGrantAccess((PetscObject)ksp));
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPMonitor(ksp, its, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The iterations after the start. With step each of them is tested by the host. */
static PetscErrorCode Iterate_RRBCG(KSP ksp, PetscReal beta, PetscBool step)
{
  KSP_RRBCG       *cg   = (KSP_RRBCG *)ksp->data;
  const RRBCGTwin &twin = Twin_RRBCG(cg->device);
  CGTest           test = FusedTestOf(ksp, step);
  const CGRecord  *records;
  CGStop           stop = CG_RUNNING;
  LocalInt         count, its, done = 0;
  PetscReal        value;

  PetscFunctionBegin;
  test.max_it -= (LocalInt)cg->before;
  PetscCall(twin.begin(cg->work, beta, &test));
  while (stop == CG_RUNNING && !ksp->reason) {
    PetscCall(FusedTimeBegin(cg->device));
    PetscCall(twin.advance(cg->work, step, &count, &records, &stop, &its, &value));
    PetscCall(FusedTimeEnd(cg->device));
    for (LocalInt k = 0; k < count; k++) {
      if (!done) cg->range.Step(records[k].a);
      done++;
      if (CGHasNoNorm(test.norm, stop, its, done)) continue;
      PetscCall(LogNorm(ksp, done, records[k].norm));
      if (step) PetscCall((*ksp->converged)(ksp, cg->before + done, records[k].norm, &ksp->reason, ksp->cnvP));
    }
  }
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  ksp->its = cg->before + its;
  cg->range.End(stop);
  PetscCall(CGSetReason(ksp, stop, ksp->its, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Solves for the red points, iterates in the black ones, and stores the solution; the residual of the guess is there. */
static PetscErrorCode SolveFrom(KSP ksp)
{
  KSP_RRBCG *cg = (KSP_RRBCG *)ksp->data;
  RRBCGSums  sums;

  PetscFunctionBegin;
  PetscCall(FusedTimeBegin(cg->device));
  PetscCall(Twin_RRBCG(cg->device).start(cg->work, cg->residual, &sums));
  PetscCall(FusedTimeEnd(cg->device));
  KSPCheckNorm(ksp, CGNormFrom(ksp, sums.rr, sums.rz));
  for (PetscReal x : {PetscSqrtReal(sums.rr), sums.rz, sums.gz}) cg->range.See(x);
  PetscCall(LogNorm(ksp, 0, CGNormFrom(ksp, sums.rr, sums.rz)));
  PetscCall((*ksp->converged)(ksp, ksp->its, ksp->rnorm, &ksp->reason, ksp->cnvP));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  KSPCheckDot(ksp, sums.gz);
  if (sums.gz == 0) { /* the elimination has solved the system, if there was anything to solve */
    if (sums.rr > 0) PetscCall(LogNorm(ksp, 1, CGNormFrom(ksp, sums.gg, sums.gz)));
    cg->range.stepped = sums.rr > 0 && sums.gg == 0;
    cg->range.End(CG_BETA_ZERO);
    ksp->its    = cg->before + 1;
    ksp->reason = KSP_CONVERGED_ATOL;
  } else {
    const PetscBool step = (PetscBool)(!cg->graph || cg->before || FusedWhyOneByOne(ksp));

    if (cg->before) cg->how = "one by one, from a residual that was computed anew, since the recurrence had lost it";
    else if (step)
      cg->how = cg->graph ? "one by one, for a monitor or a convergence test of the program" : "one by one, as asked for";
    else cg->how = cg->device ? "in a CUDA graph" : "on the host";
    cg->iterating = PETSC_TRUE;
    PetscCall(Iterate_RRBCG(ksp, sums.gz, step));
  }
  PetscCall(StoreSolution(ksp, ksp->vec_sol));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The residual of the guess is in `from`, that of later iterates where the work is. */
static PetscErrorCode CheckConverged(KSP ksp, Vec from)
{
  KSP_RRBCG   *cg = (KSP_RRBCG *)ksp->data;
  PetscScalar *array;

  PetscFunctionBegin;
  if (ksp->its) {
    PetscCall(GetWrite(cg, ksp->work[0], &array));
    PetscCall(Twin_RRBCG(cg->device).residual(cg->work, array));
    PetscCall(RestoreWrite(cg, ksp->work[0], &array));
  } else if (from != ksp->work[0]) PetscCall(VecCopy(from, ksp->work[0]));
  PetscCall(CGCheckConverged(ksp, cg->range, ksp->work[0], ksp->work[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* r = b - A x */
static PetscErrorCode Residual_RRBCG(KSP ksp, Vec r)
{
  const KSP_RRBCG *cg = (const KSP_RRBCG *)ksp->data;
  Mat              A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  if (cg->device) PetscCall(DeviceFence_CUDA());
  PetscCall(KSP_MatMult(ksp, A, ksp->vec_sol, r));
  if (cg->device) PetscCall(DeviceFence_CUDA());
  PetscCall(VecAYPX(r, -1, ksp->vec_rhs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An end that the residual of the solution does not confirm is none: the solve goes on from that residual, in work[0]. */
static PetscErrorCode Confirm_RRBCG(KSP ksp)
{
  const KSP_RRBCG *cg = (const KSP_RRBCG *)ksp->data;
  PetscReal        norm;
  bool             confirmed;

  PetscFunctionBegin;
  if (!ClaimsNormOfCG(ksp, ksp->reason) || ksp->its == cg->before) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Residual_RRBCG(ksp, ksp->work[0]));
  PetscCall(ConfirmsClaim(ksp, ksp->work[0], ksp->work[1], ksp->work[2], &norm, &confirmed));
  if (!confirmed && ksp->reason > 0) PetscCall(AfterRefutedClaim(ksp, norm, cg->began));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Rows of zeros have a diagonal entry in the factor, and are solved for with the others. With KSPCG the solution keeps there what
   the guess was, since PCRRB is 0 there; so it does here. The entries of the guess are taken, or with `back` put into the solution.
*/
static PetscErrorCode KeepInZeroRows(KSP ksp, bool back, std::vector<PetscScalar> *kept)
{
  const std::vector<LocalInt> &rows = ((const PC_RRB *)ksp->pc->data)->diagonal.zero_rows;
  PetscScalar                 *x;

  PetscFunctionBegin;
  if (rows.empty()) PetscFunctionReturn(PETSC_SUCCESS);
  if (((const KSP_RRBCG *)ksp->data)->device) PetscCall(DeviceFence_CUDA());
  if (!back) kept->assign(rows.size(), 0);
  if (back || !ksp->guess_zero) {
    PetscCall(VecGetArray(ksp->vec_sol, &x));
    for (size_t k = 0; k < rows.size(); k++) {
      if (back) x[rows[k]] = (*kept)[k];
      else (*kept)[k] = x[rows[k]];
    }
    PetscCall(VecRestoreArray(ksp->vec_sol, &x));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSolve_RRBCG(KSP ksp)
{
  KSP_RRBCG               *cg = (KSP_RRBCG *)ksp->data;
  MatNullSpace             null_space;
  Mat                      A;
  Vec                      from = ksp->vec_rhs;
  std::vector<PetscScalar> kept;

  PetscFunctionBegin;
  ksp->its = 0;
  PetscCall(FusedRefreshPreconditioner(ksp));
  if (ksp->pc->failedreason) {
    ksp->reason = KSP_DIVERGED_PC_FAILED;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(CheckOperators(ksp));
  const PC_RRB *rrb = (const PC_RRB *)ksp->pc->data;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  if (NoRows(rrb)) {
    PetscCall(LogNorm(ksp, 0, 0));
    PetscCall((*ksp->converged)(ksp, 0, 0, &ksp->reason, ksp->cnvP));
    if (!ksp->reason) ksp->reason = KSP_CONVERGED_ATOL;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(Prepare_RRBCG(ksp)); /* for a factor that was made without KSPSetUp_RRBCG(), after an option of PCRRB has changed */
  const PetscBool device = cg->device;
  cg->range              = CGRange{};
  cg->add                = (PetscBool)!ksp->guess_zero;
  cg->before             = 0;
  PetscCall(KeepInZeroRows(ksp, false, &kept));
  if (cg->add) {
    from = ksp->work[0];
    if (device) PetscCall(FusedCheckStream_CUDA(PetscObjectComm((PetscObject)ksp)));
    PetscCall(Residual_RRBCG(ksp, from));
  }
  do {
    PetscCall(GetRead(cg, from, &cg->residual));
    const PetscErrorCode code = SolveFrom(ksp);
    cg->iterating             = PETSC_FALSE;
    PetscCall(RestoreRead(cg, from, &cg->residual));
    PetscCall(code);
    if (ksp->reason > 0 && (cg->range.left || cg->range.orthogonal)) PetscCall(CheckConverged(ksp, from));
    if (ksp->reason > 0) PetscCall(Confirm_RRBCG(ksp));
    from       = ksp->work[0]; /* where the residual of the solution is, if the solve goes on */
    cg->add    = PETSC_TRUE;
    cg->before = ksp->its;
  } while (!ksp->reason);
  PetscCall(KeepInZeroRows(ksp, true, &kept));
  /* an iteration: products with 9 points a row and vectors on half of the points, and the levels */
  const PetscLogDouble flops = 26. * (double)rrb->factor->nx * rrb->factor->ny * ksp->its;
  PetscCall(FusedLogFlops(device, flops));
  PetscCall(MatGetNullSpace(A, &null_space));
  if (null_space && ksp->guess_zero && ksp->its) PetscCall(MatNullSpaceRemove(null_space, ksp->vec_sol));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ view, reset, destroy ------------------------------------ */

static PetscErrorCode KSPView_RRBCG(KSP ksp, PetscViewer viewer)
{
  const KSP_RRBCG *cg = (const KSP_RRBCG *)ksp->data;
  PetscBool        is_ascii;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  if (!cg->how) PetscCall(PetscViewerASCIIPrintf(viewer, "  iterations on the first Schur complement, before the first solve\n"));
  else
    PetscCall(PetscViewerASCIIPrintf(viewer, "  iterations on the first Schur complement, %s; %g bytes of vectors\n", cg->how,
                                     (double)cg->work->bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPReset_RRBCG(KSP ksp)
{
  KSP_RRBCG *cg = (KSP_RRBCG *)ksp->data;

  PetscFunctionBegin;
  if (cg->work) PetscCall(Twin_RRBCG(cg->device).destroy(&cg->work));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&cg->staging));
  cg->staged_rows = 0;
  cg->how         = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPDestroy_RRBCG(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(KSPReset_RRBCG(ksp));
  PetscCall(KSP_RRBCG::options.Compose(ksp, PETSC_FALSE));
  delete (KSP_RRBCG *)ksp->data;
  ksp->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_RRBCG(KSP ksp)
{
  PetscFunctionBegin;
  ksp->data = new KSP_RRBCG();
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_UNPRECONDITIONED, PC_LEFT, 3));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NATURAL, PC_LEFT, 2));
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_NONE, PC_LEFT, 1));
  ksp->setupnewmatrix      = PETSC_TRUE;
  ksp->ops->setup          = Entry<KSPSetUp_RRBCG>;
  ksp->ops->solve          = Entry<FusedSolve<KSPSolve_RRBCG>>;
  ksp->ops->reset          = Entry<KSPReset_RRBCG>;
  ksp->ops->destroy        = Entry<KSPDestroy_RRBCG>;
  ksp->ops->view           = Entry<KSPView_RRBCG>;
  ksp->ops->setfromoptions = Entry<SetFromOptionTable<KSP_RRBCG, KSP>>;
  ksp->ops->buildsolution  = Entry<KSPBuildSolution_RRBCG>;
  ksp->ops->buildresidual  = Entry<KSPBuildResidual_RRBCG>;
  PetscCall(KSP_RRBCG::options.Compose(ksp, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  KSPRRBCG - "rrbcg": the RRB-solver, the conjugate gradient method on the first Schur complement of a 5-point stencil

  Options Database Key:
. -ksp_rrbcg_graph <true> - whether the GPU decides about several iterations of a CUDA graph

  Level: intermediate

  Notes:
  This method needs `PCRRB`, on one rank, and a symmetric 5-point stencil, for which the elimination of the red points of the first
  level is exact. The red points are eliminated, and CG runs on the Schur complement in the black points, which are half of all
  points, preconditioned by the levels that follow. On a GPU its vectors are in the storage of `PCRRB`, scalars and the convergence
  test stay on the device, and the host learns of the end with a delay; a monitor other than `KSPMonitorResidual()`, or a
  convergence test other than `KSPConvergedDefault()` and `KSPConvergedSkip()`, needs the host in every iteration.

  Norms are those of the residual of the whole system, `KSP_NORM_UNPRECONDITIONED` (default), or sqrt(r^T M^{-1} r),
  `KSP_NORM_NATURAL`, or none. The default of `KSPCG` is different, `KSP_NORM_PRECONDITIONED`: to compare the two methods, use the
  same norm for both, such as `-ksp_norm_type unpreconditioned`. The norm in iteration 0 is that of the initial guess as given. From
  the first iteration on, the residual in the red points is zero.

  A guess is an error in a device context of the stream type `PETSC_STREAM_NONBLOCKING`, since PETSc's product, which makes the
  residual of the guess, may run in a stream other than the current one.

  The iterates are those of `KSPCG` with `PCRRB`, from a guess that satisfies the equations of the red points. From any other guess
  `KSPCG` has different iterates, and about as many.

  Tests, reasons, limits, monitors and histories are those of `KSPCG`. There are no estimates of eigenvalues
  (`KSPSetComputeEigenvalues()`). `KSPSetUp()` sets up the preconditioner, too, and creates the vectors; the graph is made in the
  first solve, while the GPU works on its first iterations. Monitors and convergence tests of the program may apply the
  preconditioner.

  If sums or the solution are out of range, the reasons are those of `KSPCGFUSED`.

  A matrix whose null space is the constants (`MatSetNullSpace()`), with rows that sum to 0, is allowed. The constants are removed
  from directions in the black points, whereas `KSPCG` removes them in all points, which differs by constants; the solution is
  orthogonal to the constants unless there was an initial guess.

  The vectors of the method take 40 bytes per unknown on the host and 26 on a GPU, in addition to two work vectors of the whole
  system, 16 bytes, for guesses and `KSPBuildSolution()`, and the 40 or 20 bytes that `PCRRB` keeps for this method.

  Reference:
  M. de Jong, A. van der Ploeg, A. Ditzel, C. Vuik, Fine-grain parallel RRB-solver for 5-/9-point stencil problems suitable for
  GPU-type processors, Electron. Trans. Numer. Anal. (2017)

.seealso: `PCRRB`, `KSPCG`, `KSPCGFUSED`, `KSPRRBCGSetGraph()`
M*/

/*@C
  KSPCreate_RRBCG - Makes a solver a `KSPRRBCG`, after registering finepc if nothing has done so; for `KSPRegister()`

  Collective

  Input Parameter:
. ksp - the solver context

  Level: developer

.seealso: `KSPRRBCG`, `KSPRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode KSPCreate_RRBCG(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_RRBCG>(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}
