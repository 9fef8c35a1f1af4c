/*
   The fused GMRES where the host decides about every iteration: products with any matrix and preconditioner, and one sum over all
   ranks an iteration. The order of tests, monitors and history is that of KSPGMRES.
*/
#include "agree.h"
#include "entry.h"
#include "gmresfusedimpl.h"

/* What a solve works with. */
struct GMRESSolve {
  KSP             ksp;
  KSP_GMRESFused *g;
  PetscBool       device;  /* the vectors are on the GPU */
  Vec             p, w, t; /* u_j, then u_{j+1}; the product; work */
};

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

/* The memory of this rank. A restart that is longer than the solve may be is cut. */
static PetscErrorCode MakeMemory(KSP ksp, PetscBool device)
{
  KSP_GMRESFused *g       = (KSP_GMRESFused *)ksp->data;
  const LocalInt  restart = (LocalInt)PetscMax(1, PetscMin(g->restart, ksp->max_it));
  LocalInt        n;

  PetscFunctionBegin;
  PetscCall(CGGetLocalSize(ksp->work[0], &n));
  PetscCall(MakeBasis(n, restart + 1, g->basis_precision, device, &g->basis[GMRES_U]));
  if (g->flexible) PetscCall(MakeBasis(n, restart, FINEPC_DOUBLE, device, &g->basis[GMRES_Z]));
  if (device && !g->work) PetscCall(GMRESFusedCreate_CUDA(&g->work));
  GMRESSmallCreate(&g->small, restart);
  g->c.resize(restart + 1);
  g->more_c.resize(restart + 1);
  g->sums.resize(2 * (size_t)restart + 3);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Who has no memory tells the others, which would wait for it. */
PetscErrorCode GMRESFusedNeedMemory(KSP ksp, PetscBool device)
{
  PetscFunctionBegin;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)ksp), CallGuarded(MakeMemory, ksp, device),
                         "make room for the basis, which a shorter restart makes smaller"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums of `count` numbers over all ranks. */
static PetscErrorCode SumOverRanks(const GMRESSolve &s, PetscReal sums[], LocalInt count)
{
  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, count, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)s.ksp)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums of GMRESDots over all ranks. */
static PetscErrorCode Dots(const GMRESSolve &s, LocalInt count, Vec w)
{
  const GMRESBasis  *u = &s.g->basis[GMRES_U];
  const PetscScalar *array;
  PetscReal *const   sums = s.g->sums.data();

  PetscFunctionBegin;
  PetscCall(CGGetRead(s.device, w, &array));
  PetscCall(CGTimeBegin(s.device));
  PetscCall(s.device ? GMRESDots_CUDA(s.g->work, u, count, array, sums) : GMRESDots_Host(u, count, array, sums));
  PetscCall(CGTimeEnd(s.device));
  PetscCall(CGLogFlops(s.device, (4. * count + 2.) * u->n));
  PetscCall(CGRestoreRead(s.device, w, &array));
  PetscCall(SumOverRanks(s, sums, 2 * count + 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* p = s (w - U c) = u_count, and its norm over all ranks where that is asked for. */
static PetscErrorCode Update(const GMRESSolve &s, LocalInt count, const PetscReal c[], PetscReal scale, Vec w, PetscReal *norm)
{
  const GMRESBasis  *u = &s.g->basis[GMRES_U];
  const PetscScalar *from;
  PetscScalar       *to;
  PetscReal          square;

  PetscFunctionBegin;
  if (w != s.p) PetscCall(CGGetRead(s.device, w, &from));
  PetscCall(CGGetWrite(s.device, s.p, &to));
  if (w == s.p) from = to;
  PetscCall(CGTimeBegin(s.device));
  if (s.device) PetscCall(GMRESUpdate_CUDA(s.g->work, u, count, c, scale, from, to, norm ? &square : nullptr));
  else PetscCall(GMRESUpdate_Host(u, count, c, scale, from, to, norm ? &square : nullptr));
  PetscCall(CGTimeEnd(s.device));
  PetscCall(CGLogFlops(s.device, (2. * count + 1) * u->n));
  PetscCall(CGRestoreWrite(s.device, s.p, &to));
  if (w != s.p) PetscCall(CGRestoreRead(s.device, w, &from));
  if (!norm) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(SumOverRanks(s, &square, 1));
  *norm = PetscSqrtReal(square);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x = s x, and vector k of the basis becomes x. */
static PetscErrorCode Store(const GMRESSolve &s, int basis, LocalInt k, PetscReal scale, Vec x)
{
  PetscScalar *array;

  PetscFunctionBegin;
  PetscCall(CGGetWrite(s.device, x, &array));
  PetscCall((s.device ? GMRESStore_CUDA : GMRESStore_Host)(&s.g->basis[basis], k, scale, array));
  PetscCall(CGRestoreWrite(s.device, x, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- steps of a solve --------------------------------------- */

static PetscErrorCode Create(KSP ksp, GMRESSolve *s)
{
  PetscFunctionBegin;
  s->ksp = ksp;
  s->g   = (KSP_GMRESFused *)ksp->data;
  s->p   = ksp->work[0];
  s->w   = ksp->work[1];
  s->t   = ksp->work[2];
  PetscCall(CGFusedIsOnDevice(s->p, &s->device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w = A M p, or M A p. A flexible solve keeps M p. */
static PetscErrorCode Multiply(const GMRESSolve &s, LocalInt j)
{
  Mat A;

  PetscFunctionBegin;
  if (!s.g->flexible) {
    PetscCall(KSP_PCApplyBAorAB(s.ksp, s.p, s.w, s.t));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PCGetOperators(s.ksp->pc, &A, nullptr));
  PetscCall(KSP_PCApply(s.ksp, s.p, s.t));
  PetscCall(Store(s, GMRES_Z, j, 1, s.t));
  PetscCall(KSP_MatMult(s.ksp, A, s.t, s.w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* One over the norm that Pythagoras gives, or, where that is lost, over something of the size of the rounding of w. */
static PetscReal ScaleOf(PetscReal square, PetscReal ww)
{
  if (ww == 0) return 1;
  return 1 / PetscSqrtReal(PetscMax(square, kGMRESLost * ww));
}

/* Whether the norm by Pythagoras is good enough. */
static bool IsKnown(PetscReal square, PetscReal ww)
{
  return square >= kGMRESPythagoras * ww && ww > 0;
}

/* Whether there is a second pass; where it is made by need, the test is that of PETSc's classical Gram-Schmidt. */
static bool NeedsRefinement(KSP ksp, PetscReal square, PetscReal ww)
{
  switch (GMRESFusedRefinementOf(ksp)) {
  case GMRES_REFINE_ALWAYS: return true;
  case GMRES_REFINE_IF_NEEDED: return square < ww - square;
  default: return false;
  }
}

/* w = U c + p / scale, where p = u_{j+1} has this norm. The KSP has a reason if a sum is not finite. */
static PetscErrorCode Orthogonalize(const GMRESSolve &s, LocalInt j, PetscReal *scale, PetscReal *norm)
{
  KSP_GMRESFused  *g = s.g;
  PetscReal *const c = g->c.data(), *const more = g->more_c.data();
  PetscReal square, total                       = 0;

  PetscFunctionBegin;
  PetscCall(Dots(s, j + 1, s.w));
  for (LocalInt k = 0; k < 2 * j + 3; k++) total += 0 * g->sums[k]; /* NaN, unless all are finite */
  KSPCheckDot(s.ksp, total);
  GMRESSmallProject(&g->small, j, g->sums.data(), c, &square);
  PetscReal  ww     = g->sums[2 * j + 2];
  const bool refine = NeedsRefinement(s.ksp, square, ww);
  bool       known  = IsKnown(square, ww);
  *scale            = ScaleOf(square, ww);
  *norm             = 1;
  PetscCall(Update(s, j + 1, c, *scale, s.w, refine || known ? nullptr : norm));
  if (refine) {
    g->refined++;
    PetscCall(Dots(s, j + 1, s.p));
    GMRESSmallProject(&g->small, j, g->sums.data(), more, &square);
    ww                    = g->sums[2 * j + 2];
    known                 = IsKnown(square, ww);
    const PetscReal again = ScaleOf(square, ww);
    PetscCall(Update(s, j + 1, more, again, s.p, known ? nullptr : norm));
    for (LocalInt k = 0; k <= j; k++) c[k] += more[k] / *scale;
    *scale *= again;
  }
  if (!known) g->measured++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the solution --------------------------------------- */

/* t = the correction of the cycle that is under way. False if the small matrix is singular. */
static PetscErrorCode Correction(const GMRESSolve &s, bool *found)
{
  KSP_GMRESFused   *g     = s.g;
  const GMRESBasis *basis = &g->basis[g->flexible ? GMRES_Z : GMRES_U];
  PetscScalar      *array;

  PetscFunctionBegin;
  const LocalInt zero = GMRESSmallSolve(&g->small, g->columns, g->c.data());
  *found              = zero < 0;
  if (!*found) {
    PetscCheck(!s.ksp->errorifnotconverged, PetscObjectComm((PetscObject)s.ksp), PETSC_ERR_NOT_CONVERGED,
               "Column %" LocalInt_FMT " of the small matrix has become zero: the matrix or the preconditioner is singular", zero);
    PetscCall(
      PetscInfo(s.ksp, "column %" LocalInt_FMT " of the small matrix is zero: matrix or preconditioner are singular\n", zero));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(CGGetWrite(s.device, s.t, &array));
  PetscCall(CGTimeBegin(s.device));
  if (s.device) PetscCall(GMRESCombine_CUDA(g->work, basis, g->columns, g->c.data(), array));
  else PetscCall(GMRESCombine_Host(basis, g->columns, g->c.data(), array));
  PetscCall(CGTimeEnd(s.device));
  PetscCall(CGLogFlops(s.device, 2. * g->columns * basis->n));
  PetscCall(CGRestoreWrite(s.device, s.t, &array));
  if (!g->flexible) PetscCall(KSPUnwindPreconditioner(s.ksp, s.t, s.w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedBuildSolution(KSP ksp, Vec x)
{
  KSP_GMRESFused *g     = (KSP_GMRESFused *)ksp->data;
  bool            found = true;
  GMRESSolve      s;

  PetscFunctionBegin;
  if (!g->columns) {
    if (x != ksp->vec_sol) PetscCall(VecCopy(ksp->vec_sol, x));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(Create(ksp, &s));
  PetscCall(Correction(s, &found));
  if (!found) {
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (x != ksp->vec_sol) PetscCall(VecCopy(ksp->vec_sol, x));
  PetscCall(VecAXPY(x, 1, s.t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the solve ------------------------------------------ */

/* History and monitors see a norm. */
static PetscErrorCode Show(KSP ksp, PetscReal norm)
{
  PetscFunctionBegin;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPLogErrorHistory(ksp));
  PetscCall(KSPMonitor(ksp, ksp->its, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedTestStart(KSP ksp, PetscReal norm)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  g->columns = 0;
  /* with a basis in single precision a cycle begins where the true norm confirms the end of the last one, too */
  if (g->basis_precision == FINEPC_DOUBLE) g->known = 0;
  KSPCheckNorm(ksp, norm);
  if (ksp->rnorm > 0 && PetscAbsReal(norm - ksp->rnorm) > g->breakdown_tolerance * g->cycle_norm) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_CONV_FAILED,
               "The norm of the residual is %g at a restart, but %g by the recurrence of the cycle, which began with %g",
               (double)norm, (double)ksp->rnorm, (double)g->cycle_norm);
    PetscCall(PetscInfo(ksp, "the norm of the residual is %g at a restart, but %g by the recurrence of the cycle\n", (double)norm,
                        (double)ksp->rnorm));
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  g->cycle_norm = ksp->rnorm = norm;
  PetscCall(Show(ksp, norm));
  if (norm == 0) {
    ksp->reason = KSP_CONVERGED_ATOL;
    PetscCall(PetscInfo(ksp, "converged due to a residual of zero\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall((*ksp->converged)(ksp, ksp->its, norm, &ksp->reason, ksp->cnvP));
  if (!ksp->reason && ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begins a cycle with the residual in p: the tests, and u_0. */
static PetscErrorCode Begin(const GMRESSolve &s)
{
  PetscReal norm;

  PetscFunctionBegin;
  PetscCall(VecNorm(s.p, NORM_2, &norm));
  PetscCall(GMRESFusedTestStart(s.ksp, norm));
  if (s.ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Store(s, GMRES_U, 0, 1 / norm, s.p));
  GMRESSmallBegin(&s.g->small, norm);
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

/* Iteration j of the cycle, up to its test. */
static PetscErrorCode Iterate(const GMRESSolve &s, LocalInt j)
{
  KSP             ksp   = s.ksp;
  KSP_GMRESFused *g     = s.g;
  PetscReal       scale = 1, norm = 1;

  PetscFunctionBegin;
  PetscCall(Multiply(s, j));
  PetscCall(Orthogonalize(s, j, &scale, &norm));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  KSPCheckNorm(ksp, norm);
  const GMRESColumn column = GMRESSmallAppend(&g->small, j, g->c.data(), scale, norm, g->happy_tolerance);
  if (column.happy) PetscCall(PetscInfo(ksp, "happy breakdown: the new vector is zero\n"));
  if (column.singular) { /* KSPGMRES has this reason, too, but leaves the solution as the cycle found it */
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "The product with a vector of the basis is zero: the matrix or the preconditioner is singular");
    PetscCall(PetscInfo(ksp, "the product with a vector of the basis is zero: matrix or preconditioner are singular\n"));
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
  } else g->columns = g->known = j + 1;
  ksp->its++;
  ksp->rnorm = column.singular ? ksp->rnorm : column.residual;
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((*ksp->converged)(ksp, ksp->its, ksp->rnorm, &ksp->reason, ksp->cnvP));
  if (column.happy) PetscCall(GMRESFusedHappyEnd(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A basis in single precision makes the norm by the rotations wrong in its seventh digit. A cycle that ends well by that norm is
   therefore followed by the true one, with which the next cycle begins or the solve ends.
*/
void GMRESFusedLeaveToTrueNorm(KSP ksp)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;

  if (g->basis_precision == FINEPC_SINGLE && ksp->reason > 0 && ksp->normtype != KSP_NORM_NONE && ksp->its < ksp->max_it)
    ksp->reason = KSP_CONVERGED_ITERATING;
}

/* A cycle, from the residual in p to the solution. */
static PetscErrorCode Cycle(const GMRESSolve &s)
{
  KSP             ksp = s.ksp;
  KSP_GMRESFused *g   = s.g;
  const PetscInt  its = ksp->its;

  PetscFunctionBegin;
  PetscCall(Begin(s));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  for (LocalInt j = 0; !ksp->reason && j < g->small.restart && ksp->its < ksp->max_it; j++) {
    if (j) PetscCall(Show(ksp, ksp->rnorm));
    PetscCall(Iterate(s, j));
  }
  GMRESFusedLeaveToTrueNorm(ksp);
  const KSPConvergedReason reason = ksp->reason;
  PetscCall(GMRESFusedBuildSolution(ksp, ksp->vec_sol));
  if (reason < 0) ksp->reason = reason;
  g->columns = 0;
  if (!ksp->reason && ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  if (ksp->its > its && ksp->reason) PetscCall(Show(ksp, ksp->rnorm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedSolveByHost(KSP ksp)
{
  const PetscBool guess_zero = ksp->guess_zero;
  GMRESSolve      s;

  PetscFunctionBegin;
  PetscCall(Create(ksp, &s));
  PetscCall(GMRESFusedNeedMemory(ksp, s.device));
  if (s.device) PetscCall(CGCheckStream_CUDA(PetscObjectComm((PetscObject)ksp)));
  ksp->rnorm = -1; /* there is no norm of a cycle before */
  do {
    PetscCall(KSPInitialResidual(ksp, ksp->vec_sol, s.t, s.w, s.p, ksp->vec_rhs));
    PetscCall(Cycle(s));
    ksp->guess_zero = PETSC_FALSE; /* from the second cycle on there is a guess */
  } while (!ksp->reason);
  ksp->guess_zero = guess_zero;
  PetscFunctionReturn(PETSC_SUCCESS);
}
