/*
   What a cycle of the fused GMRES is to the KSP, whoever decides about its iterations: the memory, the norms that it begins and
   ends with, and the solution.
*/

#include "ranks/agree.h"
#include "entry.h"
#include "gmresfusedimpl.h"

/* ------------------------------------------ the basis ----------------------------------------- */

PetscErrorCode GMRESFusedResetBasis(KSP_GMRESFused *g)
{
  PetscFunctionBegin;
  for (GMRESBasis &basis : g->basis) {
    PetscCall(ArrayDestroy(basis.where, &basis.u));
    basis = GMRESBasis{};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeBasis(LocalInt n, LocalInt vectors, FinePCPrecision precision, PetscBool device, GMRESBasis *basis)
{
  constexpr LocalInt kAlign = 32; /* entries to a multiple of which the vectors begin */
  const PetscMemType where  = device ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;
  LocalInt           ld;

  PetscFunctionBegin;
  if (basis->vectors == vectors && basis->n == n && basis->precision == precision && basis->where == where)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayDestroy(basis->where, &basis->u));
  *basis = GMRESBasis{};
  PetscCall(LocalIntCast(((PetscCount)n + kAlign - 1) / kAlign * kAlign, "entries from one vector to the next", &ld));
  PetscCall(ArrayCreate((size_t)vectors * ld * FinePCPrecisionBytes(precision), where, &basis->u));
  *basis = GMRESBasis{basis->u, n, ld, vectors, precision, where};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the work of the GPU, unless there is one; after an error there is none. */
static PetscErrorCode NeedWork_GMRESFused(KSP_GMRESFused *g)
{
  PetscFunctionBegin;
  if (g->work) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscErrorCode code = CallGuarded(GMRESFusedCreate_CUDA, &g->work);
  if (code) PetscCall(GMRESFusedDestroy_CUDA(&g->work));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The memory of this rank. A restart that is longer than the solve may be is cut. */
static PetscErrorCode MakeMemory(KSP ksp, PetscBool device)
{
  KSP_GMRESFused *g       = (KSP_GMRESFused *)ksp->data;
  const LocalInt  restart = (LocalInt)PetscMax(1, PetscMin(g->restart, ksp->max_it));
  LocalInt        n;

  PetscFunctionBegin;
  PetscCall(FusedGetLocalSize(ksp->work[0], &n));
  PetscCall(MakeBasis(n, restart + 1, g->basis_precision, device, &g->basis[GMRES_U]));
  if (g->preconditioner.keeps) PetscCall(MakeBasis(n, restart, FINEPC_DOUBLE, device, &g->basis[GMRES_Z]));
  if (device) PetscCall(NeedWork_GMRESFused(g));
  if (device) PetscCall(GMRESFusedReserve_CUDA(g->work, &g->basis[GMRES_U], restart, 1));
  GMRESSmallCreate(&g->cycle.small, restart);
  g->cycle.c.resize(restart + 1);
  g->cycle.sums.resize(GMRESSums(restart + 1, kGMRESMostStep));
  for (GMRESProjection *projection : {&g->cycle.projection, &g->cycle.again})
    for (std::vector<PetscReal> &c : projection->c) c.reserve(restart + 2); /* iterations allocate nothing */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A rank without memory reports it to the others, which would wait for it. */
PetscErrorCode GMRESFusedNeedMemory(KSP ksp, PetscBool device)
{
  PetscFunctionBegin;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)ksp), CallGuarded(MakeMemory, ksp, device),
                         "make room for the basis, which a shorter restart makes smaller"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the solution --------------------------------------- */

/* t = the correction of the cycle that is under way. False if the small matrix is singular. */
static PetscErrorCode Correction_GMRESFused(KSP ksp, Vec t, bool *found)
{
  KSP_GMRESFused   *g     = (KSP_GMRESFused *)ksp->data;
  const GMRESBasis *basis = &g->basis[g->preconditioner.keeps ? GMRES_Z : GMRES_U];
  PetscScalar      *array;
  PetscBool         device;

  PetscFunctionBegin;
  const LocalInt zero = GMRESSmallSolve(&g->cycle.small, g->cycle.columns, g->cycle.c.data());
  *found              = zero < 0;
  if (!*found) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "Column %" LocalInt_FMT " of the small matrix has become zero: the matrix or the preconditioner is singular", zero);
    PetscCall(
      PetscInfo(ksp, "column %" LocalInt_FMT " of the small matrix is zero: matrix or preconditioner are singular\n", zero));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (g->copies.sent && PetscMemTypeDevice(basis->where)) {
    array = g->copies.Vector(3); /* as a vector of the GPU would be */
    PetscCall(GMRESCombine_CUDA(g->work, basis, g->cycle.columns, g->cycle.c.data(), array));
    PetscCall(FusedFetch(array, t));
    device = PETSC_TRUE;
  } else {
    PetscCall(VecIsOnDevice(t, &device));
    PetscCall(FusedGetWrite(device, t, &array));
    PetscCall(FusedTimeBegin(device));
    if (device) PetscCall(GMRESCombine_CUDA(g->work, basis, g->cycle.columns, g->cycle.c.data(), array));
    else PetscCall(GMRESCombine_Host(basis, g->cycle.columns, g->cycle.c.data(), array));
    PetscCall(FusedTimeEnd(device));
    PetscCall(FusedRestoreWrite(device, t, &array));
  }
  PetscCall(FusedLogFlops(device, 2. * g->cycle.columns * basis->n));
  if (!g->preconditioner.keeps) PetscCall(KSPUnwindPreconditioner(ksp, t, ksp->work[2]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedBuildSolution(KSP ksp, Vec x)
{
  KSP_GMRESFused *g     = (KSP_GMRESFused *)ksp->data;
  bool            found = true;

  PetscFunctionBegin;
  if (!g->cycle.columns) { /* as before the set-up, without work vectors */
    if (x != ksp->vec_sol) PetscCall(VecCopy(ksp->vec_sol, x));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const Vec t = ksp->work[1];
  PetscCall(Correction_GMRESFused(ksp, t, &found));
  if (!found) {
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (x != ksp->vec_sol) PetscCall(VecCopy(ksp->vec_sol, x));
  PetscCall(VecAXPY(x, 1, t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ the norms of a cycle ------------------------------------- */

PetscErrorCode GMRESFusedShow(KSP ksp, PetscReal norm)
{
  PetscFunctionBegin;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPLogErrorHistory(ksp));
  PetscCall(KSPMonitor(ksp, ksp->its, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* From the next cycle on, which begins with this norm, the vectors M u_k are kept, if they can be. */
static PetscErrorCode Keep_GMRESFused(KSP ksp, PetscReal norm, bool *can)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  *can = ksp->pc_side == PC_RIGHT && !g->preconditioner.keeps;
  if (!*can) PetscFunctionReturn(PETSC_SUCCESS);
  g->preconditioner.keeps     = PETSC_TRUE;
  g->preconditioner.why_keeps = ", since a cycle without them missed the true residual";
  ksp->rnorm                  = norm;
  if (g->why) PetscCall(GMRESFusedNeedMemory(ksp, (PetscBool)PetscMemTypeDevice(g->basis[GMRES_U].where)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedMissed(KSP ksp, PetscReal norm)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  bool                  keeps;

  PetscFunctionBegin;
  PetscCall(PetscInfo(ksp, "the norm of the residual is %g, but %g by the recurrence of the cycle, which began with %g\n",
                      (double)norm, (double)ksp->rnorm, (double)g->cycle.norm));
  PetscCall(Keep_GMRESFused(ksp, norm, &keeps));
  if (keeps) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(
    !ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_CONV_FAILED,
    "The norm of the residual is %g, but %g by the recurrence of the cycle, which began with %g: the preconditioner is not "
    "the same each time, or it or the matrix are singular, or far from it in rounding",
    (double)norm, (double)ksp->rnorm, (double)g->cycle.norm);
  ksp->reason = KSP_DIVERGED_BREAKDOWN;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A cycle has claimed an end with a norm, but its residual has another one, with which the test goes on. Before the cycle there was
   a third one.
*/
static PetscErrorCode Refuted_GMRESFused(KSP ksp, KSPConvergedReason claim, PetscReal claimed, PetscReal before, PetscReal norm)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  bool            rounding, keeps;

  PetscFunctionBegin;
  PetscCall(IsRounding(ksp, norm - claimed, ksp->work[1], ksp->work[2], &rounding));
  if (rounding) {
    ksp->reason = claim;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  g->counts.refuted++;
  if (ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  else if (norm > kGMRESStalls * before) PetscCall(GMRESFusedMissed(ksp, norm));
  else if (norm > kGMRESRefines * before) PetscCall(Keep_GMRESFused(ksp, norm, &keeps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedTestStart(KSP ksp, PetscReal norm)
{
  KSP_GMRESFused          *g      = (KSP_GMRESFused *)ksp->data;
  const KSPConvergedReason claim  = g->watch.claim;
  const bool               shown  = g->watch.shown;
  const PetscReal          before = g->cycle.norm, claimed = ksp->rnorm;

  PetscFunctionBegin;
  g->cycle.columns = 0;
  g->cycle.lacking = 0;
  g->cycle.cut     = false;
  g->watch.claim   = KSP_CONVERGED_ITERATING;
  g->watch.shown   = true;
  if (!claim) g->cycle.small_columns = 0; /* otherwise no cycle may follow */
  KSPCheckNorm(ksp, norm);
  if (claim && g->basis_precision == FINEPC_DOUBLE && norm <= kConfirmed * claimed) {
    if (!shown) PetscCall(GMRESFusedShow(ksp, ksp->rnorm));
    ksp->reason = claim;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (!claim && ksp->rnorm > 0 && PetscAbsReal(norm - ksp->rnorm) > g->breakdown_tolerance * before) {
    PetscCall(GMRESFusedMissed(ksp, norm));
    if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  }
  g->cycle.norm = ksp->rnorm = norm;
  if (!shown) PetscCall(GMRESFusedShow(ksp, norm));
  if (norm == 0) {
    ksp->reason = KSP_CONVERGED_ATOL;
    PetscCall(PetscInfo(ksp, "converged due to a residual of zero\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall((*ksp->converged)(ksp, ksp->its, norm, &ksp->reason, ksp->cnvP));
  if (!ksp->reason && claim) PetscCall(Refuted_GMRESFused(ksp, claim, claimed, before, norm));
  if (!ksp->reason && ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedHappyEnd(KSP ksp)
{
  PetscFunctionBegin;
  if (ksp->normtype == KSP_NORM_NONE) ksp->reason = KSP_CONVERGED_HAPPY_BREAKDOWN;
  else if (!ksp->reason) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "A happy breakdown, but the test of convergence does not take the norm %g", (double)ksp->rnorm);
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedSingularEnd(KSP ksp)
{
  PetscFunctionBegin;
  if (ksp->rnorm <= kGMRESSolved * ((const KSP_GMRESFused *)ksp->data)->cycle.norm) {
    PetscCall(PetscInfo(ksp, "the vectors of the basis span the solution, to rounding\n"));
    ksp->reason = KSP_CONVERGED_HAPPY_BREAKDOWN;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
             "The product with a vector of the basis is zero: the matrix or the preconditioner is singular, or far from it in "
             "rounding");
  PetscCall(PetscInfo(ksp, "the product with a vector of the basis is zero: matrix or preconditioner are singular\n"));
  ksp->reason = KSP_DIVERGED_BREAKDOWN;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The norm by the rotations is that of the residual as long as M is one linear map, to rounding, and no vector is rounded to fewer
   digits. A cycle that ends well by that norm is therefore followed by the true one, with which the solve ends or goes on.
*/
bool GMRESFusedLeaveToTrueNorm(KSP ksp)
{
  if (!ClaimsNorm(ksp)) return false;
  ((KSP_GMRESFused *)ksp->data)->watch.claim = ksp->reason;
  ksp->reason                                = KSP_CONVERGED_ITERATING;
  return true;
}
