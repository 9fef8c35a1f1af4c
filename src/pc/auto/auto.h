/*
   PCAUTO looks at the matrix, takes a preconditioner by the rules of auto_rules.txt, watches the solves, and takes another one
   where they fail. auto.cxx is the face, auto_candidates.cxx has what may be taken, auto_look.cxx looks, auto_rules.cxx reads the
   rules, auto_solve.cxx watches, auto_course.cxx looks at how a solve gets on.
*/
#pragma once

#include <string>
#include <vector>

#include "pc/acting.h"
#include "options.h"
#include "pc/local.h"
#include "pc/watch.h"

/* What was seen, the same on all ranks. */
struct AUTOProperties {
  bool       rows_known = false; /* the type of the matrix lends its rows */
  bool       on_device  = false;
  bool       no_blocks  = false; /* a rank has none, of a matrix of blocks: PETSc's icc crashes there */
  bool       one_rank   = true;
  PetscInt64 rows = 0, entries = 0;
  PetscInt   block_size = 1;
  PetscInt   modes      = 0;                              /* vectors of the near null space */
  PetscInt64 looked_at  = 0;                              /* rows of the sample, and what follows is counted there */
  PetscInt64 beside = 0, not_positive = 0, dominated = 0; /* entries beside the diagonal, those at most 0, rows with dominance */
  PetscInt64 negative_diagonal = 0, zero_diagonal = 0, alone = 0; /* rows, the last with their diagonal entry alone */
  PetscInt64 pairs = 0, unequal = 0, one_sided = 0; /* couplings: compared, of different values, without a mirror image */
  PetscInt64 not_usual = 0;     /* entries that are infinite or no numbers, out of the order of columns, or so large, or so small on
                                   the diagonal, that types of PETSc's fail in the midst of a set-up and lose its memory */
  PetscInt64 stay_singular = 0; /* rows of which the shift of PETSc's icc does not make a pivot, see AUTOLookAtAll() */
  PetscInt   longest_row   = 0;
  PetscInt   stencil       = 0; /* 5 or 9 points */
  bool       anisotropic   = false;
  bool       symmetric = false, definite = false;
  bool       doubtful   = false; /* it looks definite, and nothing but steps of a Krylov method can tell whether it is */
  bool       indefinite = false; /* such steps have found a direction of negative curvature */
};

/* A preconditioner that may be taken. */
struct AUTOCandidate {
  std::string name, options;
  unsigned    needs = 0, excludes = 0;   /* sets of words */
  double      iteration = 1, set_up = 0; /* costs, in iterations with jacobi */
  double      growth   = 0;              /* the set-up of longer rows costs more, by this power of their length */
  PetscInt    limit    = PETSC_INT_MAX;  /* iterations after which another one takes over */
  bool        fallback = false;          /* it is there for solves that fail, and not tried otherwise */
};

struct AUTOChoice {
  std::vector<AUTOCandidate> candidates;
  std::string                why, measured;
};

/* The words that hold. `free` is whether the solver takes a preconditioner that is not symmetric, or is not known. */
unsigned AUTOWords(const AUTOProperties &, bool free);
bool     AUTOIsElliptic(const AUTOProperties &);
bool     AUTOHolds(const AUTOCandidate &, unsigned words);
/* Reads the rules, and gives the candidates of the first choice that fits, with jacobi and none behind. */
PetscErrorCode AUTOChoose(unsigned words, AUTOChoice *);

/* The cost of a set-up for rows of this length. */
double AUTOSetUpFor(const AUTOCandidate &, double entries_a_row);
/* Looks at the matrix; collective. */
PetscErrorCode AUTOLook(Mat, AUTOProperties *);
/* Takes kProbeSteps steps where it is doubtful whether the matrix is definite; collective. */
constexpr int  kProbeSteps = 8;
PetscErrorCode AUTOProbe(Mat, AUTOProperties *);
/*
   Counts in all rows what the look has counted in its sample of entries that are not usual and of the diagonal, unless these are
   blocks on a GPU; collective.
*/
PetscErrorCode AUTOLookAtAll(Mat, AUTOProperties *);

/* What is known of a candidate since the nonzeros are what they are. */
struct AUTORecord {
  AUTOCandidate candidate;
  PC            pc     = nullptr;                 /* while it is in use */
  PetscInt      solves = 0, its = 0, set_ups = 0; /* `its` of the last solve */
  double        solve_cost = 0, set_up_cost = 0;  /* of the last ones: iterations with jacobi, or seconds */
  double        seconds = 0;                      /* of the last solve */
  PetscReal     first = 0, goal = 0;              /* norms that it has begun with, and was to come to */
  bool          failed  = false;                  /* in a set-up or in a solve */
  bool          now     = false;                  /* it has been tried in the solve that runs */
  double        left    = 0;                      /* it has been left in that solve, since this is what the rest seemed to cost */
  bool          limited = false;                  /* it has been left at its limit, and goes on if nothing else works */
  PetscInt      check   = 0;                      /* iterations after which the course of the solve is looked at, 0 for the usual */
  std::string   why;                              /* it failed, or was left */
};

struct AUTOCounts {
  PetscInt       solves = 0, set_ups = 0, taken_over = 0, trial_count = 0;
  PetscInt       its  = 0;                /* of the last solve, by all candidates */
  double         work = 0, on_trials = 0; /* costs since the nonzeros are what they are */
  PetscInt       looks        = 0;
  PetscLogDouble look_seconds = 0;
};

struct PC_AUTO {
  static const OptionTable<PC> options;

  PCAUTOBy      by     = PC_AUTO_BY_COUNTS;
  PetscReal     trials = 0.1;
  PCFinePCReuse reuse  = PC_FINEPC_REUSE_NEVER; /* of the candidates */

  AUTOProperties             seen;
  std::string                why, measured; /* of the choice */
  std::vector<AUTORecord>    records;       /* in the order of taking */
  std::vector<AUTOCandidate> given;         /* by a test, in the place of the rules' */
  int                        acting = -1;   /* index in records */
  int                        usual  = -1;   /* while another one is on trial: the one that was acting */
  int                        next   = -1;   /* the one that is to follow, if the course of a solve calls for one */
  MatPattern                 nonzeros;
  AUTOCounts                 counts;
  bool                       free = true; /* the solver takes preconditioners that are not symmetric, or is not known */
  std::string                solver;      /* the type of the last KSP */
  std::string                prefix;
  SolveLook                 *look = nullptr;           /* at the solve that runs */
  Vec                        r = nullptr, t = nullptr; /* for work, where a claim of the solver's is looked at */
};

/*
   Makes candidate k the one that acts, and sets it up. Where that fails, on whichever rank, `*works` is false, the candidate is
   gone, and its record says why. Collective.
*/
PetscErrorCode AUTOTake(PC, int k, bool *works);
/* Takes the next candidate that works and has not been tried in this solve; false if none is left. */
PetscErrorCode AUTOTakeNext(PC, bool *found);
PetscErrorCode AUTODrop(PC, int k);
/* Looks, since the nonzeros are others, and finds candidates for what it sees. Collective. */
PetscErrorCode AUTOBeginAnew(PC);
PetscErrorCode AUTOFreeRecords(PC_AUTO *);
/* An option of the rules by the name that it has where options have this prefix. */
std::string AUTOWithPrefix(const std::string &key, const std::string &prefix);
/* Makes sure, before a solve, that the matrix is definite, and takes another candidate if it is not. Collective. */
PetscErrorCode AUTOMakeSure(PC);
/* The first candidate that has not been tried in this solve and has not failed before, or -1. */
int AUTOFirstFresh(const PC_AUTO *);
/* Of those that have been left in this solve, at their limit or before, the one whose rest costs least, or -1. */
int AUTOBestLeft(const PC_AUTO *, bool limited = false);
/* Another solve begins. */
void AUTOForgetSolve(PC_AUTO *);
/* How a run of the solver has ended: by itself, to be followed by another candidate, or only to be looked at. */
enum class AUTOOutcome { ENDED, LEFT, GOES_ON };
/* Runs the solver once with the candidate that acts, and looks at how it gets on. */
PetscErrorCode AUTORun(PC, KSP, SolveFn, AUTOOutcome *);

/* The largest of all ranks' seconds, or the given costs. */
PetscErrorCode AUTOCost(PC, double counted, PetscLogDouble seconds, double *cost);

PetscErrorCode PCPreSolve_AUTO(PC, KSP, Vec b, Vec x);
PetscErrorCode AroundSolve_AUTO(PC, KSP, SolveFn);

/* The solver has changed: other candidates may fit. Collective. */
PetscErrorCode AUTOSetFree(PC, bool is_free);
