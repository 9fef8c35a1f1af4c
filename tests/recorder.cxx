/* What solvers do and what monitors and convergence tests of a program see of them. */
#include "recorder.h"

#include <algorithm>
#include <cmath>

#include "pc_support.h"

Run RunOf(KSP ksp, Vec b, Vec x)
{
  Run              run;
  const PetscReal *history;
  PetscInt         count;
  MUST(KSPSetResidualHistory(ksp, nullptr, 20000, PETSC_TRUE));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetResidualNorm(ksp, &run.norm));
  MUST(KSPGetResidualHistory(ksp, &history, &count));
  run.reason     = ReasonOf(ksp);
  run.iterations = IterationsOf(ksp);
  run.history.assign(history, history + count);
  run.x = Values(x);
  return run;
}

static Mat MatrixOf(KSP ksp)
{
  Mat A;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  return A;
}

Run RunOf(KSP ksp, Vec b)
{
  const VecObject x = RightVec(MatrixOf(ksp), 5); /* the guess, where the options ask for one */
  return RunOf(ksp, b, x);
}

Run RunOf(KSP ksp)
{
  const VecObject b = RightVec(MatrixOf(ksp), 2);
  return RunOf(ksp, b);
}

double EntryDifference(const std::vector<double> &mine, const std::vector<double> &theirs)
{
  double worst = mine.size() == theirs.size() ? 0 : 1, largest = 0;
  for (double value : theirs) largest = std::isfinite(value) ? std::max(largest, std::fabs(value)) : largest;
  for (size_t k = 0; k < std::min(mine.size(), theirs.size()); k++)
    if (std::isfinite(theirs[k])) {
      const double off = std::fabs(mine[k] - theirs[k]);
      if (!(off <= 1e-12 * largest))
        worst = theirs[k] != 0 && off <= worst * std::fabs(theirs[k]) ? worst : off / std::fabs(theirs[k]);
    } else if (std::isfinite(mine[k])) worst = 1;
  return worst;
}

double VectorDifference(std::vector<double> mine, std::vector<double> theirs)
{
  for (size_t k = 0; k < std::min(mine.size(), theirs.size()); k++)
    if (!std::isfinite(theirs[k]) && !std::isfinite(mine[k])) mine[k] = theirs[k] = 0;
  return Difference(mine, theirs);
}

void Compare(const Run &mine, const Run &theirs, double rounding)
{
  CAPTURE(theirs.iterations, rounding);
  CHECK(mine.reason == theirs.reason);
  CHECK(mine.iterations == theirs.iterations);
  CHECK(mine.history.size() == theirs.history.size());
  auto my_norms = mine.history, their_norms = theirs.history;
  my_norms.push_back(mine.norm);
  their_norms.push_back(theirs.norm);
  CHECK(EntryDifference(my_norms, their_norms) <= rounding);
  CHECK(VectorDifference(mine.x, theirs.x) <= rounding);
}

bool SameRuns(const Run &x, const Run &y)
{
  return x.reason == y.reason && x.iterations == y.iterations && SameBits(x.history, y.history) && SameBits(x.x, y.x);
}

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

PetscErrorCode FailInThird(KSP ksp, PetscInt it, PetscReal, void *)
{
  PetscFunctionBegin;
  PetscCheck(it != 3, PetscObjectComm((PetscObject)ksp), PETSC_ERR_USER, "this monitor fails");
  PetscFunctionReturn(PETSC_SUCCESS);
}
