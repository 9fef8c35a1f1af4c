/* What becomes of an iteration of the fused conjugate gradient method: history, monitors and test, and the Lanczos matrix. */
#include <petscsys.h>
#include <petscblaslapack.h>

#include "ranks/agree.h"
#include "cgfusedimpl.h"

PetscErrorCode CGFusedTestNorm(KSP ksp, PetscInt its, PetscReal norm)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  if (!its) cg->solve.began = norm;
  its += cg->solve.before;
  ksp->rnorm = norm;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPMonitor(ksp, its, norm));
  PetscCall((*ksp->converged)(ksp, its, norm, &ksp->reason, ksp->cnvP));
  if (!cg->solve.look) PetscFunctionReturn(PETSC_SUCCESS);
  cg->solve.look->norms.push_back(norm);
  if (!ksp->reason && its >= cg->solve.look->next) PetscCall((*cg->solve.look->decide)(ksp, cg->solve.look));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- the Lanczos matrix ------------------------------------- */

/*
   Room for more rows, on all ranks or none of them: they come here in the same iteration. The limit of iterations may be far above
   those that are made, so that it says nothing about the room.
*/
static PetscErrorCode GrowLanczos(KSP ksp)
{
  KSP_CGFused   *cg   = (KSP_CGFused *)ksp->data;
  const PetscInt room = cg->lanczos.room < PETSC_INT_MAX / 2 ? PetscMax(2 * cg->lanczos.room, 128) : PETSC_INT_MAX;
  PetscReal     *e = nullptr, *d = nullptr;

  PetscFunctionBegin;
  const PetscErrorCode mine = PetscMalloc2(room, &e, room, &d);
  const PetscErrorCode code = AgreeOnError(PetscObjectComm((PetscObject)ksp), mine, "make room for the estimates of eigenvalues");
  if (code && !mine) PetscCall(PetscFree2(e, d));
  PetscCall(code);
  PetscCall(PetscArraycpy(e, cg->lanczos.e, cg->lanczos.room));
  PetscCall(PetscArraycpy(d, cg->lanczos.d, cg->lanczos.room));
  PetscCall(PetscFree2(cg->lanczos.e, cg->lanczos.d));
  cg->lanczos.e    = e;
  cg->lanczos.d    = d;
  cg->lanczos.room = room;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLanczosRow(KSP ksp, PetscInt i, PetscReal a, PetscReal a_before, PetscReal b)
{
  KSP_CGFused *cg = (KSP_CGFused *)ksp->data;

  PetscFunctionBegin;
  if (!ksp->calc_sings) PetscFunctionReturn(PETSC_SUCCESS);
  if (i >= cg->lanczos.room) PetscCall(GrowLanczos(ksp));
  cg->lanczos.e[i] = i ? PetscSqrtReal(PetscAbsReal(b)) / a_before : 0;
  cg->lanczos.d[i] = PetscSqrtReal(PetscAbsReal(b)) * cg->lanczos.e[i] + 1 / a;
  cg->lanczos.rows = i + 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPComputeEigenvalues_CGFused(KSP ksp, PetscInt nmax, PetscReal *r, PetscReal *c, PetscInt *neig)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  const PetscInt     n  = cg->lanczos.rows;
  PetscReal         *off;
  PetscBLASInt       bn, ldz = 1, info;

  PetscFunctionBegin;
  if (cg->consolidated.solved) {
    PetscCall(KSPComputeEigenvalues_Consolidated(&cg->consolidated, nmax, r, c, neig));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck(nmax >= n, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ARG_SIZ,
             "There are %" PetscInt_FMT " eigenvalues, but room for %" PetscInt_FMT, n, nmax);
  *neig = n;
  PetscCall(PetscArrayzero(c, nmax));
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscArraycpy(r, cg->lanczos.d, n));
  PetscCall(PetscMalloc1(n, &off));
  PetscCall(PetscArraycpy(off, cg->lanczos.e + 1, n - 1));
  PetscCall(PetscBLASIntCast(n, &bn));
  PetscCall(PetscFPTrapPush(PETSC_FP_TRAP_OFF));
  PetscCallBLAS("LAPACKREALstev", LAPACKREALstev_("N", &bn, r, off, nullptr, &ldz, nullptr, &info)); /* in ascending order */
  PetscCall(PetscFPTrapPop());
  PetscCheck(!info, PETSC_COMM_SELF, PETSC_ERR_LIB, "LAPACK's stev gives %" PetscBLASInt_FMT, info);
  PetscCall(PetscFree(off));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPComputeExtremeSingularValues_CGFused(KSP ksp, PetscReal *emax, PetscReal *emin)
{
  const KSP_CGFused *cg = (const KSP_CGFused *)ksp->data;
  const PetscInt     n  = cg->lanczos.rows;
  PetscReal         *values, *zero;
  PetscInt           count;

  PetscFunctionBegin;
  if (cg->consolidated.solved) {
    PetscCall(KSPComputeExtremeSingularValues_Consolidated(&cg->consolidated, emax, emin));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  *emax = *emin = 1;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc2(n, &values, n, &zero));
  PetscCall(KSPComputeEigenvalues_CGFused(ksp, n, values, zero, &count));
  *emin = values[0];
  *emax = values[n - 1];
  PetscCall(PetscFree2(values, zero));
  PetscFunctionReturn(PETSC_SUCCESS);
}
