/*
   The fused GMRES where the host decides about every iteration: products with any matrix and preconditioner, and one sum over all
   ranks an iteration. The order of tests, monitors and history is that of KSPGMRES. On several ranks whose matrix is on their GPUs
   products of the basis are own ones.
*/
#include <cmath>

#include "ranks/agree.h"
#include "entry.h"
#include "gmresfusedimpl.h"

/* What a solve works with. */
struct GMRESSolve {
  KSP             ksp;
  KSP_GMRESFused *g;
  PetscBool       device;            /* the vectors are on the GPU */
  LocalInt        step;              /* products between two orthogonalizations */
  Vec             p, t;              /* the newest vector of the basis; work */
  Vec             w[kGMRESMostStep]; /* the products */
  PetscLogDouble  flops;             /* of an own product with A */
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

/* Makes the work of the GPU, unless there is one; after an error there is none. */
static PetscErrorCode NeedWork(KSP_GMRESFused *g)
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
  PetscCall(CGGetLocalSize(ksp->work[0], &n));
  PetscCall(MakeBasis(n, restart + 1, g->basis_precision, device, &g->basis[GMRES_U]));
  if (g->keeps) PetscCall(MakeBasis(n, restart, FINEPC_DOUBLE, device, &g->basis[GMRES_Z]));
  if (device) PetscCall(NeedWork(g));
  if (device) PetscCall(GMRESFusedReserve_CUDA(g->work, &g->basis[GMRES_U], restart, 1));
  GMRESSmallCreate(&g->small, restart);
  g->c.resize(restart + 1);
  g->sums.resize(GMRESSums(restart + 1, kGMRESMostStep));
  for (GMRESProjection *projection : {&g->projection, &g->again})
    for (std::vector<PetscReal> &c : projection->c) c.reserve(restart + 2); /* iterations allocate nothing */
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
static PetscErrorCode Dots_GMRESFused(const GMRESSolve &s, LocalInt count, LocalInt step, const Vec w[])
{
  const GMRESBasis  *u    = &s.g->basis[GMRES_U];
  const LocalInt     many = (LocalInt)GMRESSums(count, step);
  const PetscScalar *array[kGMRESMostStep];
  PetscReal *const   sums = s.g->sums.data();

  PetscFunctionBegin;
  for (LocalInt k = 0; k < step; k++) PetscCall(CGGetRead(s.device, w[k], &array[k]));
  PetscCall(CGTimeBegin(s.device));
  PetscCall(s.device ? GMRESDots_CUDA(s.g->work, u, count, step, array, sums) : GMRESDots_Host(u, count, step, array, sums));
  PetscCall(CGTimeEnd(s.device));
  PetscCall(CGLogFlops(s.device, 2. * many * u->n));
  for (LocalInt k = step - 1; k >= 0; k--) PetscCall(CGRestoreRead(s.device, w[k], &array[k]));
  PetscCall(SumOverRanks(s, sums, many));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The new vectors from u_count on, the last one in p, and the squares of their norms over all ranks where `squares` is not null. */
static PetscErrorCode Update(const GMRESSolve &s, LocalInt count, const GMRESProjection &from, const Vec w[], PetscReal squares[])
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
    if (w[k] != s.p) PetscCall(CGGetRead(s.device, w[k], &array[k]));
  }
  PetscCall(CGGetWrite(s.device, s.p, &to));
  if (w[last] == s.p) array[last] = to;
  PetscCall(CGTimeBegin(s.device));
  PetscCall(s.device ? GMRESUpdate_CUDA(s.g->work, u, count, &of, array, to, squares)
                     : GMRESUpdate_Host(u, count, &of, array, to, squares));
  PetscCall(CGTimeEnd(s.device));
  PetscCall(CGLogFlops(s.device, (2. * count + 1) * (last + 1) * u->n));
  PetscCall(CGRestoreWrite(s.device, s.p, &to));
  for (LocalInt k = last; k >= 0; k--)
    if (w[k] != s.p) PetscCall(CGRestoreRead(s.device, w[k], &array[k]));
  if (squares) PetscCall(SumOverRanks(s, squares, last + 1));
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

static PetscErrorCode Create_GMRESFused(KSP ksp, GMRESSolve *s)
{
  PetscFunctionBegin;
  s->ksp = ksp;
  s->g   = (KSP_GMRESFused *)ksp->data;
  s->p   = ksp->work[0];
  s->t   = ksp->work[1];
  for (LocalInt k = 0; k < kGMRESMostStep; k++) s->w[k] = ksp->work[2 + k];
  s->step  = GMRESFusedStepOf(ksp);
  s->flops = 0;
  PetscCall(CGFusedIsOnDevice(s->p, &s->device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = A x on the GPUs of several ranks, where the ghosts travel during the product with the columns that the rank owns. */
static PetscErrorCode MultiplyOnRanks(const GMRESSolve &s, Vec x, Vec y)
{
  const Exchange    &exchange = s.g->exchange;
  const PetscScalar *from;
  PetscScalar       *to;
  PetscMemType       where;

  PetscFunctionBegin;
  PetscCall(CGGetRead(s.device, x, &from, &where));
  PetscCall(CGGetWrite(s.device, y, &to));
  PetscCall(ExchangeBegin(&exchange, MPIU_SCALAR, from, exchange.ghosts));
  PetscCall(CGTimeBegin(s.device));
  PetscCall(GMRESRankProduct_CUDA(s.g->work, from, to));
  PetscCall(CGTimeEnd(s.device));
  PetscCall(ExchangeEnd(&exchange, MPIU_SCALAR, from, exchange.ghosts));
  PetscCall(CGTimeBegin(s.device));
  PetscCall(GMRESRankGhosts_CUDA(s.g->work, to));
  PetscCall(CGTimeEnd(s.device));
  PetscCall(CGLogFlops(s.device, s.flops));
  PetscCall(CGRestoreWrite(s.device, y, &to));
  PetscCall(CGRestoreRead(s.device, x, &from));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = A x */
static PetscErrorCode MultiplyByA(const GMRESSolve &s, Vec x, Vec y)
{
  Mat A;

  PetscFunctionBegin;
  if (s.g->own) PetscCall(MultiplyOnRanks(s, x, y));
  else {
    PetscCall(PCGetOperators(s.ksp->pc, &A, nullptr));
    PetscCall(KSP_MatMult(s.ksp, A, x, y));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = A M x, or M A x, as KSP_PCApplyBAorAB() makes it, which own products cannot be a part of. */
static PetscErrorCode ApplyOperator(const GMRESSolve &s, Vec x, Vec y)
{
  PetscFunctionBegin;
  if (!s.g->own) PetscCall(KSP_PCApplyBAorAB(s.ksp, x, y, s.t));
  else if (s.ksp->pc_side == PC_LEFT) {
    PetscCall(MultiplyOnRanks(s, x, s.t));
    PetscCall(KSP_PCApply(s.ksp, s.t, y)); /* removes the null space, too */
  } else {
    PetscCall(KSP_PCApply(s.ksp, x, s.t));
    PetscCall(MultiplyOnRanks(s, s.t, y));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w_0 = A M p, or M A p, and so on for so many products. A flexible solve, which has one, keeps M p. */
static PetscErrorCode Multiply_GMRESFused(const GMRESSolve &s, LocalInt j, LocalInt products)
{
  PetscFunctionBegin;
  if (!s.g->keeps) {
    for (LocalInt k = 0; k < products; k++) PetscCall(ApplyOperator(s, k ? s.w[k - 1] : s.p, s.w[k]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(KSP_PCApply(s.ksp, s.p, s.t));
  PetscCall(Store(s, GMRES_Z, j, 1, s.t));
  PetscCall(MultiplyByA(s, s.t, s.w[0]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the norms by Pythagoras are good enough. */
static bool AreKnown(const GMRESProjection &of)
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
  for (size_t k = 0; k < many; k++) total += 0 * g->sums[k];
  return total;
}

/*
   The sums with the vectors w, and their projection, of so many products, of which the second one is dropped if it is of no use.
   The KSP has a reason if a sum is not finite.
*/
static PetscErrorCode Project(const GMRESSolve &s, LocalInt j, LocalInt step, LocalInt products, const Vec w[], GMRESProjection *to)
{
  KSP_GMRESFused *g    = s.g;
  const size_t    many = GMRESSums(j + 1, step);

  PetscFunctionBegin;
  PetscCall(Dots_GMRESFused(s, j + 1, step, w));
  if (products > 1 && !std::isfinite(ZeroIfFinite(g, many))) { /* the second one may be what has overflowed */
    const Vec first[kGMRESMostStep] = {w[0], w[0]};
    g->dropped++;
    products = 1;
    PetscCall(Dots_GMRESFused(s, j + 1, step, first));
  }
  KSPCheckDot(s.ksp, ZeroIfFinite(g, many));
  GMRESSmallProject(&g->small, j, step, products, g->sums.data(), to);
  if (to->products < products) g->dropped++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The new vectors behind u_j from so many products, and their norms. Fewer are made where the second product is of no use. The KSP
   has a reason if a sum is not finite.
*/
static PetscErrorCode Orthogonalize(const GMRESSolve &s, LocalInt j, LocalInt products, PetscReal norm[])
{
  KSP_GMRESFused  *g    = s.g;
  GMRESProjection &made = g->projection;
  Vec              w[kGMRESMostStep];
  PetscReal        squares[kGMRESMostStep];

  PetscFunctionBegin;
  for (LocalInt k = 0; k < s.step; k++) w[k] = s.w[PetscMin(k, products - 1)];
  PetscCall(Project(s, j, s.step, products, w, &made));
  if (s.ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  const bool refine = NeedsRefinement(s.ksp, made.square[0], made.ww[0]); /* there is one product then */
  bool       known  = AreKnown(made);
  PetscCall(Update(s, j + 1, made, w, refine || known ? nullptr : squares));
  if (refine) {
    GMRESProjection &more = g->again;
    g->refined++;
    PetscCall(Project(s, j, 1, 1, &s.p, &more));
    if (s.ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
    known = AreKnown(more);
    PetscCall(Update(s, j + 1, more, &s.p, known ? nullptr : squares));
    for (LocalInt k = 0; k <= j; k++) made.c[0][k] += more.c[0][k] / made.scale[0];
    made.scale[0] *= more.scale[0];
  }
  if (!known) g->measured++;
  for (LocalInt k = 0; k < made.products; k++) norm[k] = known ? 1 : PetscSqrtReal(squares[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the solution --------------------------------------- */

/* t = the correction of the cycle that is under way. False if the small matrix is singular. */
static PetscErrorCode Correction(const GMRESSolve &s, bool *found)
{
  KSP_GMRESFused   *g     = s.g;
  const GMRESBasis *basis = &g->basis[g->keeps ? GMRES_Z : GMRES_U];
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
  if (!g->keeps) PetscCall(KSPUnwindPreconditioner(s.ksp, s.t, s.w[0]));
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
  PetscCall(Create_GMRESFused(ksp, &s));
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

PetscErrorCode GMRESFusedShow(KSP ksp, PetscReal norm)
{
  PetscFunctionBegin;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPLogErrorHistory(ksp));
  PetscCall(KSPMonitor(ksp, ksp->its, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* From the next cycle on, which begins with this norm, the vectors M u_k are kept, if they can be. */
static PetscErrorCode Keep(KSP ksp, PetscReal norm, bool *can)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;

  PetscFunctionBegin;
  *can = ksp->pc_side == PC_RIGHT && !g->keeps;
  if (!*can) PetscFunctionReturn(PETSC_SUCCESS);
  g->keeps     = PETSC_TRUE;
  g->why_keeps = ", since a cycle without them missed the true residual";
  ksp->rnorm   = norm;
  if (g->why) PetscCall(GMRESFusedNeedMemory(ksp, (PetscBool)PetscMemTypeDevice(g->basis[GMRES_U].where)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedMissed(KSP ksp, PetscReal norm)
{
  const KSP_GMRESFused *g = (const KSP_GMRESFused *)ksp->data;
  bool                  keeps;

  PetscFunctionBegin;
  PetscCall(PetscInfo(ksp, "the norm of the residual is %g, but %g by the recurrence of the cycle, which began with %g\n",
                      (double)norm, (double)ksp->rnorm, (double)g->cycle_norm));
  PetscCall(Keep(ksp, norm, &keeps));
  if (keeps) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(
    !ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_CONV_FAILED,
    "The norm of the residual is %g, but %g by the recurrence of the cycle, which began with %g: the preconditioner is not "
    "the same each time, or it or the matrix are singular, or far from it in rounding",
    (double)norm, (double)ksp->rnorm, (double)g->cycle_norm);
  ksp->reason = KSP_DIVERGED_BREAKDOWN;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A cycle has claimed an end with a norm, but its residual has another one, with which the test goes on. Before the cycle there was
   a third one.
*/
static PetscErrorCode Refuted(KSP ksp, KSPConvergedReason claim, PetscReal claimed, PetscReal before, PetscReal norm)
{
  KSP_GMRESFused *g = (KSP_GMRESFused *)ksp->data;
  bool            rounding, keeps;

  PetscFunctionBegin;
  PetscCall(IsRounding(ksp, norm - claimed, ksp->work[1], ksp->work[2], &rounding));
  if (rounding) {
    ksp->reason = claim;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  g->refuted++;
  if (ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  else if (norm > kGMRESStalls * before) PetscCall(GMRESFusedMissed(ksp, norm));
  else if (norm > kGMRESRefines * before) PetscCall(Keep(ksp, norm, &keeps));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedTestStart(KSP ksp, PetscReal norm)
{
  KSP_GMRESFused          *g      = (KSP_GMRESFused *)ksp->data;
  const KSPConvergedReason claim  = g->claim;
  const bool               shown  = g->shown;
  const PetscReal          before = g->cycle_norm, claimed = ksp->rnorm;

  PetscFunctionBegin;
  g->columns = 0;
  g->lacking = 0;
  g->cut     = false;
  g->claim   = KSP_CONVERGED_ITERATING;
  g->shown   = true;
  if (!claim) g->known = 0; /* otherwise no cycle may follow */
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
  g->cycle_norm = ksp->rnorm = norm;
  if (!shown) PetscCall(GMRESFusedShow(ksp, norm));
  if (norm == 0) {
    ksp->reason = KSP_CONVERGED_ATOL;
    PetscCall(PetscInfo(ksp, "converged due to a residual of zero\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall((*ksp->converged)(ksp, ksp->its, norm, &ksp->reason, ksp->cnvP));
  if (!ksp->reason && claim) PetscCall(Refuted(ksp, claim, claimed, before, norm));
  if (!ksp->reason && ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begins a cycle with the residual in p: the tests, and u_0. */
static PetscErrorCode Begin_GMRESFused(const GMRESSolve &s)
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

PetscErrorCode GMRESFusedSingularEnd(KSP ksp)
{
  PetscFunctionBegin;
  if (ksp->rnorm <= kGMRESSolved * ((const KSP_GMRESFused *)ksp->data)->cycle_norm) {
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

/* Ends iteration j of the cycle, which has made u_{j+1} of this norm from product `which` of its step: the test. */
static PetscErrorCode EndIteration(const GMRESSolve &s, LocalInt j, LocalInt which, PetscReal norm)
{
  KSP             ksp = s.ksp;
  KSP_GMRESFused *g   = s.g;

  PetscFunctionBegin;
  KSPCheckNorm(ksp, norm);
  const GMRESColumn column = GMRESSmallAppend(&g->small, j, which, g->projection, norm, g->happy_tolerance);
  if (column.happy && !column.singular) PetscCall(PetscInfo(ksp, "happy breakdown: the new vector is zero\n"));
  if (column.singular) PetscCall(GMRESFusedSingularEnd(ksp)); /* KSPGMRES leaves the solution as the cycle found it */
  else g->columns = g->known = j + 1;
  ksp->its++;
  ksp->rnorm = column.singular ? ksp->rnorm : column.residual;
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall((*ksp->converged)(ksp, ksp->its, ksp->rnorm, &ksp->reason, ksp->cnvP));
  if (column.happy) PetscCall(GMRESFusedHappyEnd(ksp));
  if (!ksp->reason && ksp->rnorm < kGMRESSecondReach * g->lacking * g->cycle_norm) {
    g->cut = true;
    g->dropped++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The iterations of a step from u_j on. */
static PetscErrorCode Iterate_GMRESFused(const GMRESSolve &s, LocalInt j)
{
  KSP             ksp      = s.ksp;
  KSP_GMRESFused *g        = s.g;
  const PetscInt  left     = PetscMin(g->small.restart - j, ksp->max_it - ksp->its);
  const LocalInt  products = g->dropped || g->keeps ? 1 : (LocalInt)PetscMin(s.step, left);
  PetscReal       norm[kGMRESMostStep];

  PetscFunctionBegin;
  PetscCall(Multiply_GMRESFused(s, j, products));
  PetscCall(Orthogonalize(s, j, products, norm));
  g->lacking = PetscMax(g->lacking, g->projection.lacking);
  for (LocalInt k = 0; k < g->projection.products && !ksp->reason && !g->cut; k++) {
    if (k) PetscCall(GMRESFusedShow(ksp, ksp->rnorm));
    PetscCall(EndIteration(s, j + k, k, norm[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The norm by the rotations is that of the residual as long as M is one linear map, to rounding, and no vector is rounded to fewer
   digits. A cycle that ends well by that norm is therefore followed by the true one, with which the solve ends or goes on.
*/
bool GMRESFusedLeaveToTrueNorm(KSP ksp)
{
  if (!ClaimsNorm(ksp)) return false;
  ((KSP_GMRESFused *)ksp->data)->claim = ksp->reason;
  ksp->reason                          = KSP_CONVERGED_ITERATING;
  return true;
}

/* A cycle, from the residual in p to the solution. */
static PetscErrorCode Cycle(const GMRESSolve &s)
{
  KSP             ksp = s.ksp;
  KSP_GMRESFused *g   = s.g;
  const PetscInt  its = ksp->its;

  PetscFunctionBegin;
  PetscCall(Begin_GMRESFused(s));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  while (!ksp->reason && !g->cut && g->columns < g->small.restart && ksp->its < ksp->max_it) {
    if (g->columns) PetscCall(GMRESFusedShow(ksp, ksp->rnorm));
    PetscCall(Iterate_GMRESFused(s, g->columns));
  }
  const bool               left   = GMRESFusedLeaveToTrueNorm(ksp);
  const KSPConvergedReason reason = ksp->reason;
  PetscCall(GMRESFusedBuildSolution(ksp, ksp->vec_sol));
  if (reason < 0) ksp->reason = reason;
  g->columns = 0;
  g->shown   = ksp->its == its;
  if (!ksp->reason && !left && ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  if (ksp->its > its && ksp->reason) PetscCall(GMRESFusedShow(ksp, ksp->rnorm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedSolveByHost(KSP ksp)
{
  const PetscBool guess_zero = ksp->guess_zero;
  GMRESSolve      s;

  PetscFunctionBegin;
  PetscCall(Create_GMRESFused(ksp, &s));
  PetscCall(GMRESFusedNeedMemory(ksp, s.device));
  if (s.device) PetscCall(CGCheckStream_CUDA(PetscObjectComm((PetscObject)ksp)));
  if (s.g->own) {
    PetscCall(GMRESFusedPrepare(ksp, &s.flops));
    PetscCall(GMRESRankBegin_CUDA(s.g->work, &s.g->basis[GMRES_U]));
  }
  if (ksp->its) ksp->guess_zero = PETSC_FALSE; /* the GPU has made the iterations until now */
  do {
    PetscCall(KSPInitialResidual(ksp, ksp->vec_sol, s.t, s.w[0], s.p, ksp->vec_rhs));
    PetscCall(Cycle(s));
    ksp->guess_zero = PETSC_FALSE; /* from the second cycle on there is a guess */
  } while (!ksp->reason);
  ksp->guess_zero = guess_zero;
  PetscFunctionReturn(PETSC_SUCCESS);
}
