/* What monitors and convergence tests of a program see of a solver, for comparing solvers. */
#pragma once

#include <vector>

#include <petscksp.h>

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
