/*
   The course of a run: PCAUTO looks at how the norms fall, first after a few iterations and then each time when there are twice as
   many, estimates what the rest will cost, and leaves the candidate where that is so much that another one is worth trying.

   The estimate is rough: the conjugate gradient method may stand still for long and then converge at once, and on ill-conditioned
   systems it begins fast and becomes slow. Therefore a candidate that was left is not lost: its estimate stays beside those of the
   others, and the one that seems to cost least goes on. Looking twice as late each time bounds what is lost by changes.
*/
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <cmath>
#include <limits>

#include "options.h"
#include "sparse/offload.h"
#include "auto.h"

/* The first look at a run, with a solver whose preconditioner has to be symmetric, and with others, which often are GMRES with
 * restarts after 30 iterations; on a GPU an iteration takes less time than a look. */
static constexpr PetscInt kFirstLook = 20, kFirstLookFree = 30, kFirstLookDevice = 32;
/* Where the GPU may decide about the iterations of GMRES, or one rank solves for others, a look ends the run. */
static constexpr PetscInt kFirstEnd = 96, kNextEnd = 4;
/* Another candidate is worth trying if the rest costs so many times as much as its set-up and this number of its iterations. */
static constexpr double kWorth = 1.5, kProbe = 20;
/* An estimate says no more than that the rest takes so many times as long as what was done. */
static constexpr double kMost = 500;
/* One that was left before goes on if its rest, with a set-up, seems to cost so many times less, and more where its estimate is an
 * early one: those of ill-conditioned systems grow. */
static constexpr double kBetter = 1.5, kEarly = 0.25;

struct Course : SolveLook {
  PC      pc;
  SolveFn solve;
  PetscErrorCode (*test)(KSP, PetscInt, PetscReal, KSPConvergedReason *, void *) = nullptr;
  void *context                                                                  = nullptr; /* of the test */
  bool  left                                                                     = false;

  Course(PC pc, SolveFn solve) : pc(pc), solve(solve) { }
};

/*
   Iterations from here to this norm, between what the course so far says and what its second half says. With `slows` the logarithm
   of the norm falls as a power of the iterations that is below 1.
*/
static double Rest_AUTO(const std::vector<PetscReal> &norms, PetscReal goal, bool slows)
{
  constexpr double kStill = 4, kLeast = 0.2;
  const auto       least = [&](size_t until) { /* of those that were computed, see KSPSetCheckNormIteration() */
                                         PetscReal found = norms[0];
                                         for (size_t k = 1; k <= until; k++)
                                           if (norms[k] > 0) found = PetscMin(found, norms[k]);
                                         return found;
  };
  const size_t    last = norms.size() - 1, half = last / 2;
  const PetscReal first = norms[0], middle = least(half), now = least(last);

  if (last < 2 || !(now > goal) || !(goal > 0)) return 0;
  const double wanted = std::log(now / goal), done = std::log(first / now), before = std::log(first / middle);

  if (!(done > 0)) return std::numeric_limits<double>::infinity();
  if (before >= done) return kStill * wanted / done * (double)last;
  const double power = PetscMax(before > 0 ? std::log2(done / before) : 1, kLeast);
  if (slows && power < 1) return (double)last * (std::pow((wanted + done) / done, 1 / power) - 1);
  return wanted / std::sqrt(done / (double)last * ((done - before) / (double)(last - half)));
}

/* Whether another candidate takes over. All ranks have the same norms. Ill-conditioned matrices, which are not those of elliptic
 * problems or of elasticity with its modes, slow down where the preconditioner does little. */
static bool Leaves_AUTO(PC pc, PetscInt its, const std::vector<PetscReal> &norms, PetscReal goal)
{
  PC_AUTO     *s      = (PC_AUTO *)pc->data;
  AUTORecord  &record = s->records[s->acting];
  const bool   slows  = record.candidate.set_up <= 0 && s->seen.symmetric && !AUTOIsElliptic(s->seen) && s->seen.modes <= 1;
  const double rest   = PetscMin(Rest_AUTO(norms, goal, slows), kMost * its);
  const int    fresh = AUTOFirstFresh(s), left = AUTOBestLeft(s);
  const double cost  = rest * record.candidate.iteration;
  double       least = cost;

  if (cost <= record.candidate.set_up) return false; /* another one would cost as much again */
  if (fresh >= 0) {
    const AUTOCandidate &candidate = s->records[fresh].candidate;
    const double         trial     = kWorth * (candidate.set_up + kProbe * candidate.iteration);

    if (trial < least) s->next = fresh;
    least = PetscMin(trial, least);
  }
  if (left >= 0) {
    const AUTORecord &other = s->records[left];
    const double      early = PetscMax(2. * its / PetscMax(other.check, 1), 1); /* it was left after half as many iterations */

    if (kBetter * std::pow(early, kEarly) * (other.left + other.candidate.set_up) < least) s->next = left;
  }
  (void)PetscInfo(pc, "%s: after %" PetscInt_FMT " iterations the rest seems to cost %g, then %s\n", record.candidate.name.c_str(),
                  its, cost, s->next < 0 ? "the same" : s->records[s->next].candidate.name.c_str());
  if (s->next < 0) return false;
  record.left  = cost;
  record.check = 2 * its;
  record.why   = "after " + std::to_string(its) + " iterations " + std::to_string((PetscInt)rest) + " more were expected";
  return true;
}

/* Looks, and next after twice as many iterations. */
static PetscErrorCode Decide_Course(KSP ksp, SolveLook *look)
{
  Course        *c   = (Course *)look;
  const PetscInt its = (PetscInt)c->norms.size() - 1;

  PetscFunctionBegin;
  PetscAssert(its > 0, PETSC_COMM_SELF, PETSC_ERR_PLIB, "A look before the first iteration");
  c->next = its < PETSC_INT_MAX / 2 ? 2 * its : PETSC_INT_MAX;
  c->left = Leaves_AUTO(c->pc, its, c->norms, ksp->ttol);
  if (c->left) ksp->reason = KSP_DIVERGED_ITS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Converged_Course(KSP ksp, PetscInt n, PetscReal norm, KSPConvergedReason *reason, void *context)
{
  Course *c = (Course *)context;

  PetscFunctionBegin;
  PetscCall((*c->test)(ksp, n, norm, reason, c->context));
  /* some test an iteration twice, as GMRES at a restart, and some not each one */
  c->norms.resize((size_t)n, c->norms.empty() ? norm : c->norms.back());
  c->norms.push_back(norm);
  if (*reason || n < c->next) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Decide_Course(ksp, c));
  if (c->left) *reason = ksp->reason;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The solver knows of looks. */
static PetscErrorCode RunLookedAt(Course *c, KSP ksp)
{
  PC_AUTO *s = (PC_AUTO *)c->pc->data;

  PetscFunctionBegin;
  c->decide = Decide_Course;
  c->norms.reserve((size_t)PetscMin(c->next, ksp->max_it) + 1); /* an error here is not one amid the iterations of other ranks */
  s->look                   = c;
  const PetscErrorCode code = (*c->solve)(ksp);
  s->look                   = nullptr;
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The solver calls the test of its iterations, which looks at the course. */
static PetscErrorCode RunWithLooks(Course *c, KSP ksp)
{
  PetscFunctionBegin;
  c->test    = ksp->converged;
  c->context = ksp->cnvP;

  ksp->converged            = Entry<Converged_Course>;
  ksp->cnvP                 = c;
  const PetscErrorCode code = (*c->solve)(ksp);

  ksp->converged = c->test;
  ksp->cnvP      = c->context;
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The run ends where the course is to be looked at; its norms come by a history of its own, since that of the program may be full,
 * or be that of one rank. */
static PetscErrorCode RunToLook(Course *c, KSP ksp, bool *goes_on)
{
  PC_AUTO       *s      = (PC_AUTO *)c->pc->data;
  AUTORecord    &record = s->records[s->acting];
  const PetscInt max_it = ksp->max_it;
  PetscReal     *given  = ksp->res_hist;
  const auto     max = ksp->res_hist_max, len = ksp->res_hist_len;
  PetscErrorCode code;

  PetscFunctionBegin;
  c->norms.resize((size_t)PetscMin(max_it, c->next) + 1);
  ksp->res_hist     = c->norms.data();
  ksp->res_hist_max = (PetscCount)c->norms.size();
  ksp->res_hist_len = 0;
  {
    const IterationBound bound(ksp, c->next);
    code = (*c->solve)(ksp);
  }
  c->norms.resize((size_t)ksp->res_hist_len);
  ksp->res_hist     = given;
  ksp->res_hist_max = max;
  ksp->res_hist_len = len;
  for (const PetscReal norm : c->norms) PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(code);
  if (ksp->reason != KSP_DIVERGED_ITS || ksp->its >= max_it || c->norms.size() < 3) PetscFunctionReturn(PETSC_SUCCESS);
  c->left  = Leaves_AUTO(c->pc, ksp->its, c->norms, ksp->ttol);
  *goes_on = !c->left;
  if (*goes_on) record.check = kNextEnd * ksp->its;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A run of GMRES that ends with a cycle loses nothing. */
static PetscErrorCode WholeCycles(KSP ksp, PetscInt *its)
{
  PetscInt  restart;
  PetscBool gmres;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPGMRESFUSED, &gmres));
  if (!gmres) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPGMRESGetRestart(ksp, &restart));
  if (*its < PETSC_INT_MAX - restart) *its = (*its + restart - 1) / restart * restart;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTORun(PC pc, KSP ksp, SolveFn solve, AUTOOutcome *outcome)
{
  PC_AUTO          *s      = (PC_AUTO *)pc->data;
  const AUTORecord &record = s->records[s->acting];
  const bool        others = AUTOFirstFresh(s) >= 0 || AUTOBestLeft(s) >= 0;
  const PetscInt    known  = record.solves ? 2 * s->counts.its : 0; /* that it takes as long as before is no surprise */
  Course            c(pc, solve);
  MatGroup         *group;
  PetscBool         looks, ends;
  bool              goes_on = false;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPCGFUSED, &looks));
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPGMRESFUSED, &ends));
  PetscCall(MatGetGroup(pc->mat, &group));
  if (looks && group) std::swap(looks, ends);
  const PetscInt first = looks && s->seen.on_device ? kFirstLookDevice : s->free ? kFirstLookFree : kFirstLook;
  c.next               = PetscMax(record.check ? record.check : ends ? kFirstEnd : first, PetscMax(known, 2 * ksp->chknorm));
  if (ksp->converged != KSPConvergedDefault || s->usual >= 0 || PCReuseIsFrozen(record.pc) || !others) PetscCall((*solve)(ksp));
  else if (looks) PetscCall(RunLookedAt(&c, ksp));
  else if (!ends) PetscCall(RunWithLooks(&c, ksp));
  else if (!s->free && record.candidate.set_up > 0) PetscCall((*solve)(ksp)); /* its iterations are worth more than a look */
  else {
    PetscCall(WholeCycles(ksp, &c.next));
    PetscCall(RunToLook(&c, ksp, &goes_on));
  }
  *outcome = c.left ? AUTOOutcome::LEFT : goes_on ? AUTOOutcome::GOES_ON : AUTOOutcome::ENDED;
  PetscFunctionReturn(PETSC_SUCCESS);
}
