/* What solvers do and what monitors and convergence tests of a program see of them, for comparing solvers. */
#pragma once

#include <vector>

#include "petsc_compat.h"

/* What a solve has come to. */
struct Run {
  KSPConvergedReason  reason     = KSP_CONVERGED_ITERATING;
  PetscInt            iterations = -1;
  PetscReal           norm       = -1;
  std::vector<double> history, x;
};

/* A x = b, with the history of norms, from the x that is given, or from one that is always the same; and for a fixed b. */
Run RunOf(KSP ksp, Vec b, Vec x);
Run RunOf(KSP ksp, Vec b);
Run RunOf(KSP ksp);

/*
   The largest difference of two entries, relative to the second one; what is not finite must be so in both. A difference of the
   size of the rounding of the largest entry is none: a norm that falls by many orders in one step has it.
*/
double EntryDifference(const std::vector<double> &mine, const std::vector<double> &theirs);
/* The largest difference of two entries, relative to the largest entry; what is not finite in both does not count. */
double VectorDifference(std::vector<double> mine, std::vector<double> theirs);
/* The same reason, counts, norms and solution, to this difference. */
void Compare(const Run &mine, const Run &theirs, double rounding);
bool SameRuns(const Run &x, const Run &y); /* to the last bit */

struct Call {
  PetscInt            it;
  PetscReal           norm;
  std::vector<double> x, r; /* as KSPBuildSolution() and KSPBuildResidual() give them */
};

/* The context of the functions below. */
struct Recorder {
  std::vector<Call> calls;
  void             *inner   = nullptr; /* of RecordTest(): the context of KSPConvergedDefault(), */
  PetscInt          stop_at = -1;      /* or without that the iteration that has converged */
};

PetscErrorCode RecordMonitor(KSP, PetscInt it, PetscReal norm, void *recorder);
PetscErrorCode RecordTest(KSP, PetscInt it, PetscReal norm, KSPConvergedReason *, void *recorder);
PetscErrorCode FailInThird(KSP, PetscInt it, PetscReal norm, void *); /* a monitor: "this monitor fails" */
