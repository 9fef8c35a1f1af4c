/* Whether the residual of a solve is what its recurrence says, and which preconditioners make that doubtful. */
#include <cstdint>
#include <cstring>

#include <petsc/private/pcmgimpl.h>

#include <finepc.h>

#include "acting.h"
#include "confirm.h"
#include "device/device.h"
#include "sparse/csr_mat.h"

/* ----------------------------------------- the residual --------------------------------------- */

bool ClaimsNorm(KSP ksp)
{
  return ksp->reason > 0 && ksp->normtype != KSP_NORM_NONE && ksp->reason != KSP_CONVERGED_ITS;
}

bool ClaimsNormOfCG(KSP ksp, KSPConvergedReason reason)
{
  return ksp->normtype != KSP_NORM_NONE && (reason == KSP_CONVERGED_RTOL || reason == KSP_CONVERGED_ATOL);
}

/* Each entry of x becomes this part of itself, up or down as it comes, by a rule for each odd number `draw`. */
static PetscErrorCode TakeUpOrDown(Vec x, PetscReal part, std::uint64_t draw)
{
  PetscScalar *array;
  PetscInt     first, last;

  PetscFunctionBegin;
  PetscCall(VecGetOwnershipRange(x, &first, &last));
  PetscCall(VecGetArray(x, &array));
  for (PetscInt i = 0; i < last - first; i++) {
    const bool down = ((std::uint64_t)(first + i) * draw) >> 63;
    array[i] *= down ? -part : part;
  }
  PetscCall(VecRestoreArray(x, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The null space of the matrix if the KSP has the natural norm: z = M r is without it. */
static PetscErrorCode NullSpaceOfNatural(KSP ksp, MatNullSpace *space)
{
  Mat A;

  PetscFunctionBegin;
  *space = nullptr;
  if (ksp->normtype != KSP_NORM_NATURAL) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetNullSpace(A, space));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MayVanish(KSP ksp, bool *may)
{
  MatNullSpace space;

  PetscFunctionBegin;
  PetscCall(NullSpaceOfNatural(ksp, &space));
  *may = space != nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The norm of the KSP's kind, for the natural norm that of r without its part in the null space of the matrix. t and w are for
   work; w may be r, which changes then. Each of PETSc's operations may run in another stream.
*/
static PetscErrorCode NormOf(KSP ksp, Vec r, Vec t, Vec w, PetscReal *norm)
{
  MatNullSpace space;
  PetscScalar  product;
  PetscBool    device;

  PetscFunctionBegin;
  PetscCall(VecIsOnDevice(r, &device));
  if (device) PetscCall(DeviceFence_CUDA());
  if (ksp->normtype == KSP_NORM_UNPRECONDITIONED) {
    PetscCall(VecNorm(r, NORM_2, norm));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(NullSpaceOfNatural(ksp, &space));
  if (space) {
    PetscCall(VecCopy(r, w));
    if (device) PetscCall(DeviceFence_CUDA());
    PetscCall(MatNullSpaceRemove(space, w));
    if (device) PetscCall(DeviceFence_CUDA());
    r = w;
  }
  PetscCall(KSP_PCApply(ksp, r, t));
  if (device) PetscCall(DeviceFence_CUDA());
  if (ksp->normtype == KSP_NORM_NATURAL) {
    PetscCall(VecDot(r, t, &product));
    *norm = PetscSqrtReal(PetscAbsScalar(product));
  } else PetscCall(VecNorm(t, NORM_2, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode IsRounding(KSP ksp, PetscReal more, Vec t, Vec w, bool *is)
{
  constexpr PetscReal kLost = 100; /* the recurrences and products of a solve lose two digits more than the last ones */
  PetscReal           rounding, of_product;
  PetscBool           device;
  Mat                 A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(VecIsOnDevice(w, &device));
  PetscCall(VecCopy(ksp->vec_sol, t));
  PetscCall(TakeUpOrDown(t, PETSC_MACHINE_EPSILON, 0x9E3779B97F4A7C15u));
  if (device) PetscCall(DeviceFence_CUDA());
  PetscCall(MatMultAnywhere(A, ksp->transpose_solve, t, w));
  if (device) PetscCall(DeviceFence_CUDA());
  PetscCall(NormOf(ksp, w, t, w, &rounding));
  if (more > kLost * rounding && ksp->normtype != KSP_NORM_UNPRECONDITIONED) {
    PetscCall(TakeUpOrDown(w, 1, 0xD1B54A32D192ED03u));
    PetscCall(NormOf(ksp, w, t, w, &of_product));
    rounding = PetscMax(rounding, of_product);
  }
  *is = more <= kLost * rounding;
  PetscCall(PetscInfo(ksp, "the norm of the residual is larger by %g, and the last digits of the solution make %g\n", (double)more,
                      (double)rounding));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ConfirmsNorm(KSP ksp, PetscReal norm, Vec t, Vec w, bool *confirms)
{
  KSPConvergedReason reason = KSP_CONVERGED_ITERATING;

  PetscFunctionBegin;
  *confirms = false;
  KSPCheckNorm(ksp, norm);
  if (norm <= kConfirmed * ksp->rnorm) *confirms = true;
  else {
    PetscCall((*ksp->converged)(ksp, ksp->its, norm, &reason, ksp->cnvP));
    *confirms = reason > 0;
    if (!*confirms) PetscCall(IsRounding(ksp, norm - ksp->rnorm, t, w, confirms));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ConfirmsClaim(KSP ksp, Vec r, Vec t, Vec w, PetscReal *norm, bool *confirms)
{
  PetscFunctionBegin;
  PetscCall(NormOf(ksp, r, t, w, norm));
  PetscCall(ConfirmsNorm(ksp, *norm, t, w, confirms));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AfterRefutedClaim(KSP ksp, PetscReal norm, PetscReal began)
{
  constexpr PetscReal kStalls = 0.5; /* a solve that has left as much as this is of no use */

  PetscFunctionBegin;
  PetscCall(PetscInfo(ksp, "the norm of the residual is %g after %" PetscInt_FMT " iterations, but %g by the recurrence\n",
                      (double)norm, ksp->its, (double)ksp->rnorm));
  ksp->reason = KSP_CONVERGED_ITERATING;
  ksp->rnorm  = norm;
  if (ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  else if (norm > kStalls * began) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "The norm of the residual is %g, while its recurrence has converged: the matrix is not symmetric, or it or the "
               "preconditioner are singular, or far from it in rounding",
               (double)norm);
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- the preconditioner ------------------------------------ */

static Changes WorseOf(Changes a, Changes b)
{
  return a < b ? b : a;
}

static PetscErrorCode LookAtPC(PC pc, Changes *changes);

/* Solvers inside: those that apply their preconditioner, or a polynomial in it, a number of times that does not depend on norms. */
static PetscErrorCode LookAt(KSP inner, Changes *changes)
{
  PetscBool linear, fixed;
  PC        pc;

  PetscFunctionBegin;
  if (!inner || !((PetscObject)inner)->type_name) PetscFunctionReturn(PETSC_SUCCESS); /* of another rank */
  PetscCall(PetscObjectTypeCompareAny((PetscObject)inner, &linear, KSPPREONLY, KSPNONE, ""));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)inner, &fixed, KSPRICHARDSON, KSPCHEBYSHEV, ""));
  if (!linear && !(fixed && (inner->normtype == KSP_NORM_NONE || inner->converged == KSPConvergedSkip)))
    *changes = Changes::ITERATES;
  PetscCall(KSPGetPC(inner, &pc));
  PetscCall(LookAtPC(pc, changes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode LookAtBlocks(PetscInt count, KSP inner[], Changes *changes)
{
  PetscFunctionBegin;
  for (PetscInt k = 0; k < count; k++) PetscCall(LookAt(inner[k], changes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PCMGGetSmootherDown() would make a second smoother. */
static PetscErrorCode LookAtLevels(PC pc, Changes *changes)
{
  const PC_MG *const mg = (const PC_MG *)pc->data;

  PetscFunctionBegin;
  for (PetscInt level = 0; level < mg->nlevels; level++) {
    PetscCall(LookAt(mg->levels[level]->smoothd, changes));
    PetscCall(LookAt(mg->levels[level]->smoothu, changes));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Those with solvers or preconditioners inside. Where `recognized` becomes false it is none of them. */
static PetscErrorCode LookInside(PC pc, bool *recognized, Changes *changes)
{
  const char *const type = ((PetscObject)pc)->type_name;
  const auto        is   = [type](const char *name) { return !std::strcmp(type, name); };
  PetscInt          count;
  KSP               inner, *blocks;

  PetscFunctionBegin;
  *recognized = true;
  if (is(PCKSP)) {
    PetscCall(PCKSPGetKSP(pc, &inner));
    PetscCall(LookAt(inner, changes));
  } else if (is(PCREDISTRIBUTE)) {
    PetscCall(PCRedistributeGetKSP(pc, &inner));
    PetscCall(LookAt(inner, changes));
  } else if (is(PCREDUNDANT)) {
    PetscCall(PCRedundantGetKSP(pc, &inner));
    PetscCall(LookAt(inner, changes));
  } else if (is(PCTELESCOPE)) {
    PetscCall(PCTelescopeGetKSP(pc, &inner));
    PetscCall(LookAt(inner, changes));
  } else if (is(PCBJACOBI)) {
    PetscCall(PCBJacobiGetSubKSP(pc, &count, nullptr, &blocks));
    PetscCall(LookAtBlocks(count, blocks, changes));
  } else if (is(PCASM)) {
    PetscCall(PCASMGetSubKSP(pc, &count, nullptr, &blocks));
    PetscCall(LookAtBlocks(count, blocks, changes));
  } else if (is(PCGASM)) {
    PetscCall(PCGASMGetSubKSP(pc, &count, nullptr, &blocks));
    PetscCall(LookAtBlocks(count, blocks, changes));
  } else if (is(PCFIELDSPLIT)) {
    PetscCall(PCFieldSplitGetSubKSP(pc, &count, &blocks));
    PetscCall(LookAtBlocks(count, blocks, changes));
    PetscCall(PetscFree(blocks));
  } else if (is(PCMG) || is(PCGAMG) || is(PCHMG) || is(PCML)) PetscCall(LookAtLevels(pc, changes));
  else if (is(PCCOMPOSITE)) {
    PetscCall(PCCompositeGetNumberPC(pc, &count));
    for (PetscInt k = 0; k < count; k++) {
      PC part;
      PetscCall(PCCompositeGetPC(pc, k, &part));
      if (!kCompositeSetsUpParts) PetscCall(PCSetUp(part)); /* or it has no solver inside yet */
      PetscCall(LookAtPC(part, changes));
    }
  } else *recognized = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* cmatch, which may have an iterating solver on its coarsest level. */
static PetscErrorCode LookAtCycle(PC pc, Changes *changes)
{
  PCCMATCHCoarse coarse;

  PetscFunctionBegin;
  PetscCall(PCCMATCHGetCoarse(pc, &coarse));
  if (coarse == PC_CMATCH_PCG) *changes = Changes::ITERATES;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Types that are linear whatever their options, but for cmatch. */
static PetscErrorCode IsLinear(PC pc, PetscBool *linear)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)pc, linear, PCNONE, PCJACOBI, PCPBJACOBI, PCVPBJACOBI, PCSOR, PCEISENSTAT, PCILU,
                                      PCICC, PCLU, PCCHOLESKY, PCQR, PCSVD, PCKACZMARZ, PCSPAI, PCHYPRE, PCMAT, PCLMVM, ""));
  if (!*linear) PetscCall(PetscObjectTypeCompareAny((PetscObject)pc, linear, PCAFSAI, PCSFSAI, PCBISAI, PCRRB, PCCMATCH, ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode LookAtPC(PC pc, Changes *changes)
{
  PetscBool linear, cycle;
  bool      recognized;

  PetscFunctionBegin;
  pc = PCActing(pc);
  if (*changes == Changes::ITERATES || !((PetscObject)pc)->type_name) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(IsLinear(pc, &linear));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCCMATCH, &cycle));
  if (cycle) PetscCall(LookAtCycle(pc, changes));
  if (linear) PetscFunctionReturn(PETSC_SUCCESS);
  /* what is inside is there after the set-up */
  if (pc->setupcalled) PetscCall(LookInside(pc, &recognized, changes));
  if (!pc->setupcalled || !recognized) *changes = WorseOf(*changes, Changes::MAYBE);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PreconditionerChanges(PC pc, Changes *changes)
{
  PetscBool linear;
  int       worst;

  PetscFunctionBegin;
  *changes = Changes::NEVER;
  PetscCall(LookAtPC(pc, changes));
  PetscCall(IsLinear(PCActing(pc), &linear));
  if (linear) PetscFunctionReturn(PETSC_SUCCESS); /* with the same options on all ranks */
  worst = (int)*changes;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, PetscObjectComm((PetscObject)pc)));
  *changes = (Changes)worst;
  PetscFunctionReturn(PETSC_SUCCESS);
}
