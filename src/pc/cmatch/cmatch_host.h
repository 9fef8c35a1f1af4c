/* The hierarchy of the host twin, for cmatch_host.cxx, which computes it, and cmatch_cycle_host.cxx, which applies it. */
#pragma once

#include <cstdint>
#include <vector>

#include "cmatch.h"

/* The arrays that a CMATCHLevel shows, which are explained there, and the vectors of the cycle. */
template <typename T>
struct CMATCHArrays {
  std::vector<PetscInt> A_i, A_j, aggregate, P_j, R_i, R_j;
  std::vector<T>        A_a, s, d, l, P_a, R_a;

  std::vector<T> b, x;          /* [n] right-hand side and solution */
  std::vector<T> r, z;          /* [n] residual and correction of the smoother, and on the coarsest level of a solver */
  std::vector<T> first, second; /* [n] on levels that are visited twice: the first solution and its product, or a direction */
};

template <typename T>
struct CMATCHHierarchyHost : CMATCHHierarchy {
  CMATCHArrays<T>          arrays[kCMATCHMostLevels];
  std::vector<PetscScalar> w_kept;  /* [n] what w shows */
  CMATCHEnd                end;     /* why the coarsening has ended */
  PolynomialSteps          steps;   /* of the smoother */
  PolynomialSteps          stalled; /* of the polynomial in place of an inverse */
  std::vector<double>      inverse; /* [n][n] of the last level, if that is inverted */
};

/*
   Finishes a hierarchy whose levels are complete: inverts the last level with row sums rs [n] if that is to be inverted, makes the
   vectors and the smoother, and counts the bytes.
*/
template <typename T>
PetscErrorCode CMATCHFinish_Host(const std::vector<double> &rs, CMATCHHierarchyHost<T> *, CMATCHStats *);
