/* The host twin of RRBCG. Its vectors are over the whole grid, in natural order; their red entries are not used. */
#include <algorithm>
#include <cmath>

#include "pc/rrb/rrb_host.h"
#include "rrbcg.h"

namespace
{

struct Work : RRBCGWork {
  const RRBFactorHost *F = nullptr;
  std::vector<double>  x, r, p, q, z;
  CGTest               test;
  CGRecord             record;
  CGStop               stop      = CG_RUNNING;
  LocalInt             iteration = 0, its = 0; /* iterations that are complete; the number that KSPCG gives after a stop */
  double               beta, delta, a, b, value;

  RRBLevel Black() const { return RRBLevel(2, F->nx, F->ny); } /* the level whose matrix is S_1 */
};

double Dot_RRBCG(const Work &w, const std::vector<double> &x, const std::vector<double> &y)
{
  double sum = 0;
  w.Black().ForAll([&](LocalInt i, LocalInt j) { sum += x[j * w.F->nx + i] * y[j * w.F->nx + i]; });
  return sum;
}

/* q = S_1 p: the diagonal, and then each coupling, which is stored once, in both directions */
void MultiplySchur(const RRBFactorHost *F, const std::vector<double> &p, std::vector<double> &q)
{
  const RRBLevel             level(2, F->nx, F->ny);
  const Shift                to[4]    = {level.u, level.v, level.FarU(), level.FarV()};
  const std::vector<double> *value[4] = {&F->S.near_u, &F->S.near_v, &F->S.far_u, &F->S.far_v};
  level.ForAll([&](LocalInt x, LocalInt y) { q[y * F->nx + x] = F->S.c[y * F->nx + x] * p[y * F->nx + x]; });
  level.ForAll([&](LocalInt x, LocalInt y) {
    const LocalInt at = y * F->nx + x;
    for (int n = 0; n < 4; n++) {
      if (!level.Inside(x + to[n].x, y + to[n].y)) continue;
      const LocalInt other = at + level.Index(to[n]);
      q[at] += (*value[n])[at] * p[other];
      q[other] += (*value[n])[at] * p[at];
    }
  });
}

/* z = M_S^{-1} r. With a singular matrix the mean is subtracted, as the null space is from what the preconditioner of KSPCG gives.
 */
void Precondition_RRBCG(const RRBFactorHost *F, const std::vector<double> &r, std::vector<double> &z)
{
  z = r;
  RRBForward(F, 2, F->half_levels, 1, z.data(), 0);
  RRBSolveRemainder(F, 1, z.data(), 0);
  RRBBackward(F, 2, F->half_levels, 1, z.data(), 0);
  if (!F->singular) return;
  const RRBLevel black(2, F->nx, F->ny);
  double         sum   = 0;
  LocalInt       count = 0;
  black.ForAll([&](LocalInt x, LocalInt y) {
    sum += z[y * F->nx + x];
    count++;
  });
  black.ForAll([&](LocalInt x, LocalInt y) { z[y * F->nx + x] -= sum / count; });
}

void Stop_RRBCG(Work *w, CGStop stop, LocalInt its, double value)
{
  w->stop  = stop;
  w->its   = its;
  w->value = value;
}

} // namespace

PetscErrorCode RRBCGPrepare_Host(RRBFactor *factor, RRBCGWork **work)
{
  const RRBFactorHost *F = static_cast<const RRBFactorHost *>(factor);

  PetscFunctionBegin;
  if (!*work) *work = new Work();
  Work *w  = static_cast<Work *>(*work);
  w->where = PETSC_MEMTYPE_HOST;
  w->F     = F;
  for (auto *v : {&w->x, &w->r, &w->p, &w->q, &w->z}) v->resize(F->d.size());
  w->bytes = 5 * F->d.size() * sizeof(double);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGDestroy_Host(RRBCGWork **work)
{
  PetscFunctionBegin;
  delete static_cast<Work *>(*work);
  *work = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGStart_Host(RRBCGWork *work, const PetscScalar *r, RRBCGSums *sums)
{
  Work                *w = static_cast<Work *>(work);
  const RRBFactorHost *F = w->F;

  PetscFunctionBegin;
  *sums = RRBCGSums{};
  for (size_t k = 0; k < F->d.size(); k++) sums->rr += r[k] * r[k];
  if (F->half_levels)
    RRBLevel(1, F->nx, F->ny).ForRed([&](LocalInt x, LocalInt y) {
      sums->rz += F->d[y * F->nx + x] * r[y * F->nx + x] * r[y * F->nx + x];
    });
  std::copy(r, r + F->d.size(), w->r.begin());
  RRBForward(F, 1, PetscMin(1, F->half_levels), 1, w->r.data(), 0);
  Precondition_RRBCG(F, w->r, w->z);
  sums->gg = Dot_RRBCG(*w, w->r, w->r);
  sums->gz = Dot_RRBCG(*w, w->r, w->z);
  sums->rz += sums->gz; /* r^T M^{-1} r is a sum over the points once L^{-1} is applied: the red ones, and the rest */
  std::fill(w->x.begin(), w->x.end(), 0.);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGBegin_Host(RRBCGWork *work, PetscReal beta, const CGTest *test)
{
  Work *w = static_cast<Work *>(work);

  PetscFunctionBegin;
  w->test      = *test;
  w->stop      = CG_RUNNING;
  w->iteration = w->its = 0;
  w->beta               = beta;
  w->delta = w->b = 0;
  w->p            = w->z;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* One iteration. The decisions and their order are those of KSPCG, as in cgscalars.cuh. */
PetscErrorCode RRBCGAdvance_Host(RRBCGWork *work, PetscBool, LocalInt *count, const CGRecord **records, CGStop *stop, LocalInt *its,
                                 PetscReal *value)
{
  Work          *w         = static_cast<Work *>(work);
  const CGTest  &test      = w->test;
  const bool     natural   = test.norm == CG_NORM_NATURAL;
  const double   delta_old = w->delta, beta_old = w->beta;
  const LocalInt nx = w->F->nx;

  PetscFunctionBegin;
  *count   = 0;
  *records = &w->record;
  MultiplySchur(w->F, w->p, w->q);
  w->delta = Dot_RRBCG(*w, w->p, w->q);
  if (!std::isfinite(w->delta)) Stop_RRBCG(w, CG_DELTA_NOT_FINITE, w->iteration + 1, w->delta);
  else if (w->delta == 0 || (w->iteration > 0 && (w->delta > 0) != (delta_old > 0)))
    Stop_RRBCG(w, CG_INDEFINITE_MAT, w->iteration + 1, w->delta);
  else {
    const double a = w->a = w->beta / w->delta;
    w->Black().ForAll([&](LocalInt x, LocalInt y) {
      w->x[y * nx + x] += a * w->p[y * nx + x];
      w->r[y * nx + x] -= a * w->q[y * nx + x];
    });
    Precondition_RRBCG(w->F, w->r, w->z);
    const LocalInt n  = ++w->iteration;
    const double   nn = Dot_RRBCG(*w, w->r, w->r), beta = w->beta = Dot_RRBCG(*w, w->r, w->z);
    const bool     looked_at = natural || (test.norm != CG_NORM_NONE && test.chknorm <= n);
    const double   norm      = looked_at ? std::sqrt(natural ? std::abs(beta) : nn) : 0;
    w->record                = CGRecord{norm, a, w->b};
    *count                   = 1;
    if (natural && !std::isfinite(beta)) Stop_RRBCG(w, CG_BETA_NOT_FINITE, n, beta);
    else if (!std::isfinite(norm)) Stop_RRBCG(w, CG_NORM_NOT_FINITE, n, norm);
    else if (n >= test.last ||
             (test.norm != CG_NORM_NONE && n > test.chknorm && n >= test.min_it && (norm <= test.ttol || norm >= test.dtol)))
      Stop_RRBCG(w, CG_TEST, n, norm);
    else if (!std::isfinite(beta)) Stop_RRBCG(w, CG_BETA_NOT_FINITE, n, beta);
    else if (n >= test.max_it) Stop_RRBCG(w, CG_ITS, n, norm);
    else if (beta == 0) Stop_RRBCG(w, CG_BETA_ZERO, n + 1, beta);
    else if (beta * beta_old < 0) Stop_RRBCG(w, CG_INDEFINITE_PC, n + 1, beta);
    else {
      const double b = w->b = beta / beta_old;
      w->Black().ForAll([&](LocalInt x, LocalInt y) { w->p[y * nx + x] = w->z[y * nx + x] + b * w->p[y * nx + x]; });
    }
  }
  *stop  = w->stop;
  *its   = w->its;
  *value = w->value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGSolution_Host(RRBCGWork *work, const PetscScalar *r, PetscBool add, PetscScalar *x)
{
  Work                *w = static_cast<Work *>(work);
  std::vector<double> &y = w->q; /* free until the next iteration */
  const LocalInt       n = (LocalInt)w->F->d.size();

  PetscFunctionBegin;
  std::copy(r, r + n, y.begin());
  w->Black().ForAll([&](LocalInt i, LocalInt j) { y[j * w->F->nx + i] = w->x[j * w->F->nx + i]; });
  RRBBackward(w->F, 1, PetscMin(1, w->F->half_levels), 1, y.data(), 0);
  for (LocalInt k = 0; k < n; k++) x[k] = add ? x[k] + y[k] : y[k];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGResidual_Host(RRBCGWork *work, PetscScalar *r)
{
  Work *w = static_cast<Work *>(work);

  PetscFunctionBegin;
  std::fill(r, r + w->F->d.size(), 0.);
  w->Black().ForAll([&](LocalInt i, LocalInt j) { r[j * w->F->nx + i] = w->r[j * w->F->nx + i]; });
  PetscFunctionReturn(PETSC_SUCCESS);
}
