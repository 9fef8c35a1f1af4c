/* The steps of the polynomial smoothers of polynomial.h. */
#include <cmath>
#include <vector>

#include "polynomial.h"

PolynomialSteps PolynomialRichardson(LocalInt degree, PetscReal relaxation)
{
  PolynomialSteps steps{degree, {}, {}, {}, 1 / relaxation};

  for (LocalInt i = 0; i < degree; i++) {
    steps.c[i]    = relaxation;
    steps.beta[i] = 1;
  }
  return steps;
}

/* With u = theta / 2 it is sqrt(a) = tanh(u), so that the left side grows with u: it is 0 at 0 and above 4 k at 1. */
PetscReal PolynomialLowerEnd(LocalInt degree)
{
  PetscReal low = 0, high = 1;

  for (;;) {
    const PetscReal u = (low + high) / 2;
    if (u <= low || u >= high) return PetscSqr(std::tanh(u));
    if (std::tanh(u) * std::sinh(4 * degree * u) < 4 * degree) low = u;
    else high = u;
  }
}

/*
   With alpha_k = rz_k / pq_k and beta_k = rz_{k+1} / rz_k the Lanczos method has the tridiagonal matrix of diagonal
   1 / alpha_k + beta_{k-1} / alpha_{k-1} and of entries sqrt(beta_k) / alpha_k beside it. Where A is singular, the last pq may be
   0, and 1 / alpha_k with it. All pivots of this matrix less x are negative if x is above its eigenvalues.
*/
PetscReal LargestRitzValue(LocalInt steps, const PetscReal rz[], const PetscReal pq[])
{
  std::vector<PetscReal> d, e2;

  for (LocalInt k = 0; k < steps && rz[k] > 0 && (!k || pq[k - 1] > 0); k++) {
    const PetscReal entry = PetscMax(pq[k], 0) / rz[k] + (k ? rz[k] / rz[k - 1] * pq[k - 1] / rz[k - 1] : 0);
    if (!std::isfinite(entry)) break;
    d.push_back(entry);
    e2.push_back(rz[k + 1] / rz[k] * PetscSqr(pq[k] / rz[k]));
  }
  const size_t usable = d.size();
  PetscReal    low = 0, high = 0;
  for (size_t k = 0; k < usable; k++)
    high = PetscMax(high, d[k] + (k ? std::sqrt(e2[k - 1]) : 0) + (k + 1 < usable ? std::sqrt(e2[k]) : 0));
  for (;;) {
    const PetscReal x     = (low + high) / 2;
    PetscReal       pivot = -1;
    if (x <= low || x >= high) return high;
    for (size_t k = 0; k < usable && pivot < 0; k++) pivot = d[k] - x - (k ? e2[k - 1] / pivot : 0);
    if (pivot < 0) high = x;
    else low = x;
  }
}

/* The error polynomial is T_k((1 + a - 2 x) / (1 - a)) up to a factor. */
PolynomialSteps PolynomialChebyshev(LocalInt degree)
{
  const PetscReal a   = PolynomialLowerEnd(degree);
  PetscReal       rho = (1 - a) / (1 + a);
  PolynomialSteps steps{degree, {2 / (1 + a)}, {0}, {1}, (1 + a - (1 - a) * std::cos(PETSC_PI / (2 * degree))) / 2};

  for (LocalInt i = 1; i < degree; i++) {
    const PetscReal next = 1 / (2 * (1 + a) / (1 - a) - rho);
    steps.c[i]           = 4 * next / (1 - a);
    steps.e[i]           = next * rho;
    steps.beta[i]        = 1;
    rho                  = next;
  }
  return steps;
}

/*
   Without the betas the residuals of the recurrence are those of the Chebyshev polynomials of the fourth kind,

     r_i = W_i(1 - 2 x) / (2 i + 1) r_0 for x = M^{-1} A,   W_i(cos t) = sin((i + 1/2) t) / sin(t / 2),

   and step i adds beta_i z_i with x z_i = r_i - r_{i+1}. Hence the betas are known from the residual polynomial p of the smoother:

     p(x) = 1 - sum_i x beta_i z_i = sum_i a_i W_i(1 - 2 x) / (2 i + 1),   a_k = beta_{k-1},   a_i = beta_{i-1} - beta_i for i > 0.

   Lottes's p is the one of degree k with p(0) = 1 whose g = max over (0, 1] of x p^2 / (1 - p^2) is the least. This means that
   sqrt(x + g) |p(x)| is at most sqrt(g), and equal to it in k + 1 points with alternating signs, of which x = 0 is one where the
   derivative is 0. In y with y^2 = (x + g) / (1 + g) it is an odd polynomial of degree 2 k + 1 that is largest at 1 and has all its
   extrema inside of [-1, 1] there. Therefore it is the Chebyshev polynomial T_{2k+1}(y) up to a factor, and x = 0 is its extremum
   that is next to 0, y = sin(f) with f = pi / (4 k + 2). In the words of the fourth kind,

     g = tan(f)^2,   p(x) = sin(f) W_k(cos 2 t) = sin(f) sin((2 k + 1) t) / sin(t)   with   sin(t)^2 = sin(f)^2 + x cos(f)^2.

   The zeros t_m = 2 pi m / (2 k + 3) of W_{k+1} are the nodes of a quadrature in which W_0, .., W_k are orthogonal, which gives

     a_i = 4 (2 i + 1) / (2 k + 3) sum_{m = 1 .. k+1} p(x_m) sin(t_m / 2) sin((i + 1/2) t_m),   x_m = sin(t_m / 2)^2.

   The smallest root of p has t = pi / (2 k + 1).
*/
PolynomialSteps PolynomialChebyshev4(LocalInt degree)
{
  const PetscReal f = PETSC_PI / (4 * degree + 2);
  PolynomialSteps steps{degree, {}, {}, {}, (PetscSqr(std::sin(2 * f)) - PetscSqr(std::sin(f))) / PetscSqr(std::cos(f))};
  PetscReal       value[kMostDegree + 1]; /* p(x_m) sin(t_m / 2) */
  const auto      half = [degree](LocalInt m) { return PETSC_PI * (m + 1) / (2 * degree + 3); };

  for (LocalInt m = 0; m <= degree; m++) {
    const PetscReal t = std::asin(std::hypot(std::sin(f), std::sin(half(m)) * std::cos(f)));
    value[m]          = std::sin(f) * std::sin((2 * degree + 1) * t) / std::sin(t) * std::sin(half(m));
  }
  for (LocalInt i = degree; i > 0; i--) {
    PetscReal sum = 0;
    for (LocalInt m = 0; m <= degree; m++) sum += value[m] * std::sin((2 * i + 1) * half(m));
    steps.beta[i - 1] = 4 * (2 * i + 1) * sum / (2 * degree + 3) + (i < degree ? steps.beta[i] : 0);
  }
  for (LocalInt i = 0; i < degree; i++) {
    steps.c[i] = (PetscReal)(8 * i + 4) / (2 * i + 3);
    steps.e[i] = i ? (PetscReal)(2 * i - 1) / (2 * i + 3) : 0;
  }
  return steps;
}
