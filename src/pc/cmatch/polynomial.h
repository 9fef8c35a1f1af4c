/*
   Polynomial smoothers x <- x + q(M^{-1} A) M^{-1} (b - A x), where the eigenvalues of M^{-1} A are in (0, 1]: the steps of their
   recurrences, which are the same on host and device. A smoother of degree k is, from r = b - A x,

     z = c_0 M^{-1} r,                                     x = x + beta_0 z
     r = r - A z,  z = e_i z + c_i M^{-1} r,               x = x + beta_i z     for i = 1, .., k - 1
*/
#pragma once

#include "sparse/local_int.h"

constexpr PetscInt kMostDegree = 16;

struct PolynomialSteps {
  LocalInt  degree;
  PetscReal c[kMostDegree], e[kMostDegree], beta[kMostDegree];

  /*
     A root of the error polynomial 1 - x q(x), the smallest one. An equation d x_i = b_i of its own is solved exactly with root / d
     in the place of M^{-1}.
  */
  PetscReal root;
};

/* l1-Jacobi, `degree` times, each relaxed by `relaxation`. With a relaxation below 1 the root is above 1. */
PolynomialSteps PolynomialRichardson(LocalInt degree, PetscReal relaxation);

/*
   The Chebyshev polynomial of the first kind on [a*, 1], with the recurrence and the a* of D'Ambra, Durastante, Filippone, Massei,
   Thomas (2024): the polynomials on [a, 1] whose bound of the V-cycle is the least.
*/
PolynomialSteps PolynomialChebyshev(LocalInt degree);

/* a*, the solution of sqrt(a) sinh(2 k theta) = 4 k with cosh(theta) = (1 + a) / (1 - a) */
PetscReal PolynomialLowerEnd(LocalInt degree);

/*
   The largest eigenvalue of M^{-1} A as `steps` steps of the preconditioned conjugate gradient method know it, with residuals
   r_0, .., r_steps and directions p: rz [steps + 1] is r_k . M^{-1} r_k, and pq [steps] is p_k . A p_k. It is the largest Ritz
   value, which grows with the steps and is never too large but for rounding. Steps count up to the first rz or pq that is not
   positive, and the value is 0 if nothing is known.
*/
PetscReal LargestRitzValue(LocalInt steps, const PetscReal rz[], const PetscReal pq[]);

/* The optimal polynomial of the fourth kind of Lottes, Optimal polynomial smoothers for multigrid V-cycles (2023) */
PolynomialSteps PolynomialChebyshev4(LocalInt degree);
