/*
   A preconditioner that watches solves. Its PCPreSolve() calls WatchSolve(), which puts a function in the place of the KSP's solve.
   That function puts the KSP's own back, and calls what the preconditioner composes under kAroundSolve, which may run the solver
   more than once. KSPSolve() sees the end alone.
*/
#pragma once

#include <vector>

#include "petsc_compat.h"

using SolveFn       = PetscErrorCode (*)(KSP);
using AroundSolveFn = PetscErrorCode (*)(PC, KSP, SolveFn);

constexpr const char *kAroundSolve = "FinePCAroundSolve_C";

/*
   What a preconditioner has a solver do that knows of looks, CGFUSED: it adds the norm of each iteration and calls decide() after
   `next` of them. Before decide() has raised `next`, the solver launches at most a few iterations beyond, which count if it goes
   on. It ends where decide() has set the reason of the KSP.
*/
struct SolveLook {
  PetscInt               next = PETSC_INT_MAX;
  std::vector<PetscReal> norms;
  PetscErrorCode (*decide)(KSP, SolveLook *) = nullptr;
};

/* Composed by the preconditioner: what it wants of the solve that runs, or null. */
using SolveLookFn = PetscErrorCode (*)(PC, SolveLook **);

constexpr const char *kSolveLook = "FinePCSolveLook_C";

/* For the next solve, if it tests a norm. */
PetscErrorCode WatchSolve(PC, KSP);

/* Bounds the iterations of a run. With -ksp_converged_maxits the program's bound, of which earlier runs may have used a part, is
 * one at which the solve has converged, and a lower one is not. */
class IterationBound {
public:
  IterationBound(KSP, PetscInt bound, bool of_program = false);
  ~IterationBound();
  IterationBound(const IterationBound &)            = delete;
  IterationBound &operator=(const IterationBound &) = delete;

private:
  KSP      ksp_;
  PetscInt max_it_;
  bool     changed_ = false; /* the answer of the test at the bound */
};

/* Fewer iterations than these, as of a solver within another one, say nothing about a preconditioner. */
constexpr PetscInt kFewIterations = 20;

/* What a solve of several runs changes, and gives back. A run that fails is no error of the program's. */
struct SolveSettings {
  PetscInt  max_it;
  PetscReal rtol;
  PetscBool guess_zero, errors, failures;

  explicit SolveSettings(KSP);
};

/* The guess of the program, and the norm of its residual, for those runs that fail. */
struct SolveStart {
  Vec       x     = nullptr; /* null if it is zero */
  Vec       r     = nullptr;
  PetscReal first = -1;    /* the norm, or -1 before it is needed */
  bool      anew  = false; /* the next run begins with this guess */
};

PetscErrorCode SolveBegin(KSP, SolveStart *);
PetscErrorCode SolveEnd(KSP, const SolveSettings &, SolveStart *);

/*
   The next run begins where the last one has ended if the residual there has at most this share of the norm of the first one, and
   otherwise where the program has begun, as where a test of the program might compare with the first residual. The tolerance is
   relative to what it was relative to. `*hopeless` is whether no preconditioner can help, since b or the guess has no norm.
*/
PetscErrorCode SolveAgain(KSP, const SolveSettings &, PetscReal share, SolveStart *, bool *hopeless);
