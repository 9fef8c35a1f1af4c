/* What monitors and convergence tests of a program see of a solver. */
#include "pc_support.h"
#include "recorder.h"

static PetscErrorCode Record(KSP ksp, PetscInt it, PetscReal norm, Recorder *recorder)
{
  Vec x, b, work, r;

  PetscFunctionBegin;
  PetscCall(KSPBuildSolution(ksp, nullptr, &x));
  PetscCall(KSPGetRhs(ksp, &b));
  PetscCall(VecDuplicate(b, &work));
  PetscCall(KSPBuildResidual(ksp, nullptr, work, &r));
  recorder->calls.push_back({it, norm, Values(x), Values(r)});
  PetscCall(VecDestroy(&work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RecordMonitor(KSP ksp, PetscInt it, PetscReal norm, void *context)
{
  return Record(ksp, it, norm, (Recorder *)context);
}

PetscErrorCode RecordTest(KSP ksp, PetscInt it, PetscReal norm, KSPConvergedReason *reason, void *context)
{
  Recorder *recorder = (Recorder *)context;

  PetscFunctionBegin;
  PetscCall(Record(ksp, it, norm, recorder));
  if (recorder->inner) PetscCall(KSPConvergedDefault(ksp, it, norm, reason, recorder->inner));
  else *reason = it >= recorder->stop_at ? KSP_CONVERGED_ATOL : KSP_CONVERGED_ITERATING;
  PetscFunctionReturn(PETSC_SUCCESS);
}
