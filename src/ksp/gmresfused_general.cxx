/*
   The fused GMRES where the host decides about every iteration: products with any matrix and preconditioner, and one sum over all
   ranks an iteration. The order of tests, monitors and history is that of KSPGMRES.
*/
#include <cmath>

#include "ranks/agree.h"
#include "gmresfusedimpl.h"

/* What a solve works with. */
struct GMRESSolve {
  KSP             ksp;
  KSP_GMRESFused *g;
  PetscBool       device;            /* the vectors are on the GPU */
  LocalInt        step;              /* products between two orthogonalizations */
  Vec             p, t;              /* the newest vector of the basis; work */
  Vec             w[kGMRESMostStep]; /* the products */
};

/* The sums of `count` numbers over all ranks. */
static PetscErrorCode SumOverRanks_GMRESFused(const GMRESSolve &s, PetscReal sums[], LocalInt count)
{
  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, count, MPIU_REAL, MPIU_SUM, PetscObjectComm((PetscObject)s.ksp)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums of GMRESDots over all ranks. */
static PetscErrorCode Dots_GMRESFused(const GMRESSolve &s, LocalInt count, LocalInt step, const Vec w[])
{
  const GMRESBasis  *u    = &s.g->basis[GMRES_U];
  const LocalInt     many = (LocalInt)GMRESSums(count, step);
  const PetscScalar *array[kGMRESMostStep];
  PetscReal *const   sums = s.g->cycle.sums.data();

  PetscFunctionBegin;
  for (LocalInt k = 0; k < step; k++) PetscCall(FusedGetRead(s.device, w[k], &array[k]));
  PetscCall(FusedTimeBegin(s.device));
  PetscCall(s.device ? GMRESDots_CUDA(s.g->work, u, count, step, array, sums) : GMRESDots_Host(u, count, step, array, sums));
  PetscCall(FusedTimeEnd(s.device));
  PetscCall(FusedLogFlops(s.device, 2. * many * u->n));
  for (LocalInt k = step - 1; k >= 0; k--) PetscCall(FusedRestoreRead(s.device, w[k], &array[k]));
  PetscCall(SumOverRanks_GMRESFused(s, sums, many));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The new vectors from u_count on, the last one in p, and the squares of their norms over all ranks where `squares` is not null. */
static PetscErrorCode Update_GMRESFused(const GMRESSolve &s, LocalInt count, const GMRESProjection &from, const Vec w[],
                                        PetscReal squares[])
{
  const GMRESBasis  *u    = &s.g->basis[GMRES_U];
  const LocalInt     last = from.products - 1;
  const PetscScalar *array[kGMRESMostStep];
  PetscScalar       *to;
  GMRESCombination   of{from.products, {}, {}};

  PetscFunctionBegin;
  for (LocalInt k = 0; k <= last; k++) {
    of.c[k] = from.c[k].data();
    of.s[k] = from.scale[k];
    if (w[k] != s.p) PetscCall(FusedGetRead(s.device, w[k], &array[k]));
  }
  PetscCall(FusedGetWrite(s.device, s.p, &to));
  if (w[last] == s.p) array[last] = to;
  PetscCall(FusedTimeBegin(s.device));
  PetscCall(s.device ? GMRESUpdate_CUDA(s.g->work, u, count, &of, array, to, squares)
                     : GMRESUpdate_Host(u, count, &of, array, to, squares));
  PetscCall(FusedTimeEnd(s.device));
  PetscCall(FusedLogFlops(s.device, (2. * count + 1) * (last + 1) * u->n));
  PetscCall(FusedRestoreWrite(s.device, s.p, &to));
  for (LocalInt k = last; k >= 0; k--)
    if (w[k] != s.p) PetscCall(FusedRestoreRead(s.device, w[k], &array[k]));
  if (squares) PetscCall(SumOverRanks_GMRESFused(s, squares, last + 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x = s x, and vector k of the basis becomes x. */
static PetscErrorCode Store_GMRESFused(const GMRESSolve &s, int basis, LocalInt k, PetscReal scale, Vec x)
{
  PetscScalar *array;

  PetscFunctionBegin;
  PetscCall(FusedGetWrite(s.device, x, &array));
  PetscCall((s.device ? GMRESStore_CUDA : GMRESStore_Host)(&s.g->basis[basis], k, scale, array));
  PetscCall(FusedRestoreWrite(s.device, x, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- steps of a solve --------------------------------------- */

static PetscErrorCode SetVectors_GMRESFused(KSP ksp, GMRESSolve *s)
{
  PetscFunctionBegin;
  s->ksp = ksp;
  s->g   = (KSP_GMRESFused *)ksp->data;
  s->p   = ksp->work[0];
  s->t   = ksp->work[1];
  for (LocalInt k = 0; k < kGMRESMostStep; k++) s->w[k] = ksp->work[2 + k];
  s->step = GMRESFusedStepOf(ksp);
  PetscCall(VecIsOnDevice(s->p, &s->device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w_0 = A M p, or M A p, and so on for so many products. A flexible solve, which has one, keeps M p. */
static PetscErrorCode Multiply_GMRESFused(const GMRESSolve &s, LocalInt j, LocalInt products)
{
  Mat A;

  PetscFunctionBegin;
  if (!s.g->preconditioner.keeps) {
    for (LocalInt k = 0; k < products; k++) PetscCall(KSP_PCApplyBAorAB(s.ksp, k ? s.w[k - 1] : s.p, s.w[k], s.t));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(KSP_PCApply(s.ksp, s.p, s.t));
  PetscCall(Store_GMRESFused(s, GMRES_Z, j, 1, s.t));
  PetscCall(PCGetOperators(s.ksp->pc, &A, nullptr));
  PetscCall(KSP_MatMult(s.ksp, A, s.t, s.w[0]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the norms by Pythagoras are good enough. */
static bool AreAccurate(const GMRESProjection &of)
{
  for (LocalInt k = 0; k < of.products; k++)
    if (!(of.square[k] >= kGMRESPythagoras * of.ww[k] && of.ww[k] > 0)) return false;
  return true;
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

/* 0, or NaN unless all sums of the last step are finite. */
static PetscReal ZeroIfFinite(const KSP_GMRESFused *g, size_t many)
{
  PetscReal total = 0;
  for (size_t k = 0; k < many; k++) total += 0 * g->cycle.sums[k];
  return total;
}

/*
   The sums with the vectors w, and their projection, of so many products, of which the second one is dropped if it is of no use.
   The KSP has a reason if a sum is not finite.
*/
static PetscErrorCode Project_GMRESFused(const GMRESSolve &s, LocalInt j, LocalInt step, LocalInt products, const Vec w[],
                                         GMRESProjection *to)
{
  KSP_GMRESFused *g    = s.g;
  const size_t    many = GMRESSums(j + 1, step);

  PetscFunctionBegin;
  PetscCall(Dots_GMRESFused(s, j + 1, step, w));
  if (products > 1 && !std::isfinite(ZeroIfFinite(g, many))) { /* the second one may be what has overflowed */
    const Vec first[kGMRESMostStep] = {w[0], w[0]};
    g->counts.dropped++;
    products = 1;
    PetscCall(Dots_GMRESFused(s, j + 1, step, first));
  }
  KSPCheckDot(s.ksp, ZeroIfFinite(g, many));
  GMRESSmallProject(&g->cycle.small, j, step, products, g->cycle.sums.data(), to);
  if (to->products < products) g->counts.dropped++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The new vectors behind u_j from so many products, and their norms. Fewer are made where the second product is of no use. The KSP
   has a reason if a sum is not finite.
*/
static PetscErrorCode Orthogonalize_GMRESFused(const GMRESSolve &s, LocalInt j, LocalInt products, PetscReal norm[])
{
  KSP_GMRESFused  *g    = s.g;
  GMRESProjection &made = g->cycle.projection;
  Vec              w[kGMRESMostStep];
  PetscReal        squares[kGMRESMostStep];

  PetscFunctionBegin;
  for (LocalInt k = 0; k < s.step; k++) w[k] = s.w[PetscMin(k, products - 1)];
  PetscCall(Project_GMRESFused(s, j, s.step, products, w, &made));
  if (s.ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  const bool refine   = NeedsRefinement(s.ksp, made.square[0], made.ww[0]); /* there is one product then */
  bool       accurate = AreAccurate(made);
  PetscCall(Update_GMRESFused(s, j + 1, made, w, refine || accurate ? nullptr : squares));
  if (refine) {
    GMRESProjection &more = g->cycle.again;
    g->counts.refined++;
    PetscCall(Project_GMRESFused(s, j, 1, 1, &s.p, &more));
    if (s.ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
    accurate = AreAccurate(more);
    PetscCall(Update_GMRESFused(s, j + 1, more, &s.p, accurate ? nullptr : squares));
    for (LocalInt k = 0; k <= j; k++) made.c[0][k] += more.c[0][k] / made.scale[0];
    made.scale[0] *= more.scale[0];
  }
  if (!accurate) g->counts.measured++;
  for (LocalInt k = 0; k < made.products; k++) norm[k] = accurate ? 1 : PetscSqrtReal(squares[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the solve ------------------------------------------ */

/* Begins a cycle with the residual in p: the tests, and u_0. */
static PetscErrorCode BeginCycle_GMRESFused(const GMRESSolve &s)
{
  PetscReal norm;

  PetscFunctionBegin;
  PetscCall(VecNorm(s.p, NORM_2, &norm));
  PetscCall(GMRESFusedTestStart(s.ksp, norm));
  if (s.ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Store_GMRESFused(s, GMRES_U, 0, 1 / norm, s.p));
  GMRESSmallBegin(&s.g->cycle.small, norm);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Ends iteration j of the cycle, which has made u_{j+1} of this norm from product `number` of its step: the test. */
static PetscErrorCode EndIteration(const GMRESSolve &s, LocalInt j, LocalInt number, PetscReal norm)
{
  KSP             ksp = s.ksp;
  KSP_GMRESFused *g   = s.g;

  PetscFunctionBegin;
  KSPCheckNorm(ksp, norm);
  const GMRESColumn column = GMRESSmallAppend(&g->cycle.small, j, number, g->cycle.projection, norm, g->happy_tolerance);
  if (column.happy && !column.singular) PetscCall(PetscInfo(ksp, "happy breakdown: the new vector is zero\n"));
  if (column.singular) PetscCall(GMRESFusedSingularEnd(ksp)); /* KSPGMRES leaves the solution as the cycle found it */
  else g->cycle.columns = g->cycle.small_columns = j + 1;
  ksp->its++;
  ksp->rnorm = column.singular ? ksp->rnorm : column.residual;
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((*ksp->converged)(ksp, ksp->its, ksp->rnorm, &ksp->reason, ksp->cnvP));
  if (column.happy) PetscCall(GMRESFusedHappyEnd(ksp));
  if (!ksp->reason && ksp->rnorm < kGMRESSecondReach * g->cycle.lacking * g->cycle.norm) {
    g->cycle.cut = true;
    g->counts.dropped++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The iterations of a step from u_j on. */
static PetscErrorCode IterateOnce_GMRESFused(const GMRESSolve &s, LocalInt j)
{
  KSP             ksp      = s.ksp;
  KSP_GMRESFused *g        = s.g;
  const PetscInt  left     = PetscMin(g->cycle.small.restart - j, ksp->max_it - ksp->its);
  const LocalInt  products = g->counts.dropped || g->preconditioner.keeps ? 1 : (LocalInt)PetscMin(s.step, left);
  PetscReal       norm[kGMRESMostStep];

  PetscFunctionBegin;
  PetscCall(Multiply_GMRESFused(s, j, products));
  PetscCall(Orthogonalize_GMRESFused(s, j, products, norm));
  g->cycle.lacking = PetscMax(g->cycle.lacking, g->cycle.projection.lacking);
  for (LocalInt k = 0; k < g->cycle.projection.products && !ksp->reason && !g->cycle.cut; k++) {
    if (k) PetscCall(GMRESFusedShow(ksp, ksp->rnorm));
    PetscCall(EndIteration(s, j + k, k, norm[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A cycle, from the residual in p to the solution. */
static PetscErrorCode Cycle_GMRESFused(const GMRESSolve &s)
{
  KSP             ksp = s.ksp;
  KSP_GMRESFused *g   = s.g;
  const PetscInt  its = ksp->its;

  PetscFunctionBegin;
  PetscCall(BeginCycle_GMRESFused(s));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  while (!ksp->reason && !g->cycle.cut && g->cycle.columns < g->cycle.small.restart && ksp->its < ksp->max_it) {
    if (g->cycle.columns) PetscCall(GMRESFusedShow(ksp, ksp->rnorm));
    PetscCall(IterateOnce_GMRESFused(s, g->cycle.columns));
  }
  const bool               left   = GMRESFusedLeaveToTrueNorm(ksp);
  const KSPConvergedReason reason = ksp->reason;
  PetscCall(GMRESFusedBuildSolution(ksp, ksp->vec_sol));
  if (reason < 0) ksp->reason = reason;
  g->cycle.columns = 0;
  g->watch.shown   = ksp->its == its;
  if (!ksp->reason && !left && ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  if (ksp->its > its && ksp->reason) PetscCall(GMRESFusedShow(ksp, ksp->rnorm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedSolveByHost(KSP ksp)
{
  const PetscBool guess_zero = ksp->guess_zero;
  GMRESSolve      s;

  PetscFunctionBegin;
  PetscCall(SetVectors_GMRESFused(ksp, &s));
  PetscCall(GMRESFusedNeedMemory(ksp, s.device));
  if (s.device) PetscCall(FusedCheckStream_CUDA(PetscObjectComm((PetscObject)ksp)));
  if (ksp->its) ksp->guess_zero = PETSC_FALSE; /* the GPU has made the iterations until now */
  do {
    PetscCall(KSPInitialResidual(ksp, ksp->vec_sol, s.t, s.w[0], s.p, ksp->vec_rhs));
    PetscCall(Cycle_GMRESFused(s));
    ksp->guess_zero = PETSC_FALSE; /* from the second cycle on there is a guess */
  } while (!ksp->reason);
  ksp->guess_zero = guess_zero;
  PetscFunctionReturn(PETSC_SUCCESS);
}
