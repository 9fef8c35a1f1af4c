/*
   The KSPGMRESFUSED object, and what the files of its face do for one another.

     gmresfused.cxx          options, set-up, the view, estimates of eigenvalues and singular values
     gmresfused_api.cxx      the public functions
     gmresfused_path.cxx     why a solve takes the general path
     gmresfused_device.cxx   the solve whose iterations the GPU decides about
     gmresfused_general.cxx  the solve whose iterations the host decides about
     gmresfused_cycle.cxx    what both have in common: memory, the norms of a cycle, the solution
*/
#pragma once

#include "finepcimpl.h"
#include "consolidated.h"
#include "fusedimpl.h"
#include "gmresfused.h"
#include "pc/confirm.h"

template <typename Object>
struct OptionTable;

/* Whether a vector is orthogonalized a second time, as KSPGMRES does it with classical Gram-Schmidt. */
enum GMRESRefinement { GMRES_REFINE_NEVER, GMRES_REFINE_IF_NEEDED, GMRES_REFINE_ALWAYS };

/* The basis, and the vectors M u_k of a flexible solve. */
enum { GMRES_U, GMRES_Z, GMRES_BASES };

struct KSP_GMRESFused {
  static const OptionTable<KSP> options;

  KSPConsolidated consolidated; /* where ranks have come together */

  /* options */
  KSPGMRESFusedPath          path          = KSP_GMRESFUSED_AUTO;
  KSPGMRESFusedCommunication communication = KSP_GMRESFUSED_COMMUNICATION_AUTO;

  PetscInt        restart             = 30;
  PetscInt        step_size           = kGMRESMostStep;
  PetscBool       flexible            = PETSC_FALSE;
  FinePCPrecision basis_precision     = FINEPC_DOUBLE;
  PetscReal       happy_tolerance     = 1e-30; /* the names of these two in the public functions are KSPGMRES's */
  PetscReal       breakdown_tolerance = 0.1;

  KSPOrthogonalizationCGSRefinementType refinement = KSP_ORTHOGONALIZATION_CGS_REFINE_NEVER; /* KSPRefinementOf() has its value */

  /* the path of the last solve */
  GMRESOperators op{};
  FusedReason    why;      /* why it took the general path; none if it did not */
  CopiedFrom     A, block; /* what the copy in work was made of; block is the rank's own part of a parallel A */

  /* M of PCJACOBI or PCPBJACOBI on the GPU */
  struct {
    PetscScalar *d    = nullptr; /* as in GMRESOperators */
    LocalInt     rows = 0, bs = 0;
    CopiedFrom   M; /* the matrix from which PCPBJACOBI made the M that is in d; none for PCJACOBI */
  } jacobi;

  /* where the host has the matrix and the vectors */
  struct {
    PetscBool    sent   = PETSC_FALSE; /* the last solve has worked with copies */
    PetscScalar *arrays = nullptr;     /* [(4 + kGMRESMostStep) rows] on the GPU: b, x, p, t, w; t is free outside of products */
    LocalInt     rows   = 0;
    FusedRows    matrix;

    PetscScalar *Vector(LocalInt number) const { return arrays + number * (size_t)rows; }
  } copies;

  /* what is known of M */
  struct {
    Changes     changes   = Changes::NEVER; /* whether M may change by itself */
    PetscBool   keeps     = PETSC_FALSE;    /* the vectors M u_k of the cycle are kept: the solve is flexible */
    const char *why_keeps = "";             /* where that was not asked for */
  } preconditioner;

  /* what is known of the norm by the rotations, and monitors and tests of the program in iterations that the GPU decides about */
  struct {
    KSPConvergedReason claim = KSP_CONVERGED_ITERATING; /* a good end, which the true norm has to confirm */
    bool               shown = false;                   /* history and monitors have the norm with which a cycle begins */
    bool               late  = false; /* the program has the norm of an iteration behind which the GPU is further on */
    bool               looks = false; /* it has asked for a solution then */
  } watch;

  struct {
    PetscBool   several = PETSC_FALSE;       /* the last solve had several ranks */
    NCCL       *nccl    = nullptr;           /* it made the sums and the exchange of the last solve */
    const char *why_mpi = "";                /* why it did not, where the GPUs could have decided otherwise */
    Exchange    exchange;                    /* of the ghosts of A, for own products */
    PetscBool   same_exchange = PETSC_FALSE; /* it can stay, on all ranks */
  } ranks;

  /* the vectors, made by the first solve */
  GMRESBasis      basis[GMRES_BASES] = {};
  GMRESFusedWork *work               = nullptr; /* on the GPU, made when it is first needed */

  /* the cycle that is under way, or the last one */
  struct {
    GMRESSmall             small;
    GMRESProjection        projection, again;     /* of its last step, and of a second pass */
    std::vector<PetscReal> c;                     /* coefficients of the correction */
    std::vector<PetscReal> sums;                  /* of GMRESDots */
    PetscReal              norm          = 0;     /* that it has begun with */
    PetscReal              lacking       = 0;     /* the most that two vectors of a step lack in being orthogonal */
    bool                   cut           = false; /* it ends before it is full, since its residual cannot become much smaller */
    LocalInt               columns       = 0;     /* that it has and that are not in the solution yet */
    LocalInt               small_columns = 0;     /* columns of the small matrices */
  } cycle;

  Vec       solution = nullptr; /* what KSPBuildSolution() lends */
  PetscBool solved   = PETSC_FALSE;

  /* of the last solve, for the view */
  struct {
    PetscInt64 refined  = 0; /* vectors that were orthogonalized twice */
    PetscInt64 measured = 0; /* steps whose norms were computed from the vectors */
    PetscInt64 dropped  = 0; /* how often a second product was of no use, after which there is none */
    PetscInt64 refuted  = 0; /* good ends that the true norm has not confirmed */
  } counts;
};

/* ------------------------------------- gmresfused_path.cxx ------------------------------------ */

GMRESRefinement GMRESFusedRefinementOf(KSP);
/* Products between two orthogonalizations on the general path, where some solves need one. */
LocalInt GMRESFusedStepOf(KSP);
/* Whether there is a monitor that may look at the solution, or a convergence test of the program. */
bool GMRESFusedIsWatched(KSP);
/* What is known of M, and whether the solve is flexible; collective. */
PetscErrorCode GMRESFusedLookAtPreconditioner(KSP);
/*
   Why the solve takes the general path, or no reason if the GPU can decide about it: then also what is known of M by its type. All
   ranks take the same path; collective.
*/
PetscErrorCode GMRESFusedWhyGeneral(KSP, GMRESOperators *, FusedReason *why);

/* ------------------------------------ gmresfused_device.cxx ----------------------------------- */

/* The solve on the GPU. If the norm of the residual is out of the range of its sums, if the solve has to go on as a flexible one,
   or if memory ends and the host takes over, there is a reason for the general path after the call. */
PetscErrorCode GMRESFusedSolveOnDevice(KSP);
/* Frees what a KSP has on the GPU. */
PetscErrorCode GMRESFusedLeaveDevice(KSP_GMRESFused *);

/* ------------------------------------ gmresfused_general.cxx ---------------------------------- */

PetscErrorCode GMRESFusedSolveByHost(KSP);

/* ------------------------------------- gmresfused_cycle.cxx ----------------------------------- */

/* The memory of a solve, on the GPU or on the host; collective. */
PetscErrorCode GMRESFusedNeedMemory(KSP, PetscBool device);
/* From now on history and monitors have the norm of the last iteration. */
PetscErrorCode GMRESFusedShow(KSP, PetscReal norm);
/*
   The tests that KSPGMRES makes when a cycle begins with a residual of this norm, which history and monitors get unless they have
   it; or the end of the solve, where this norm confirms the claim of the cycle before.
*/
PetscErrorCode GMRESFusedTestStart(KSP, PetscReal norm);
/*
   What comes of a norm at the beginning of a cycle that the recurrence of the cycle before has missed by far: the solve goes on as
   a flexible one, or ends.
*/
PetscErrorCode GMRESFusedMissed(KSP, PetscReal norm);
/* The reason where a column of the Hessenberg matrix is zero, which leaves the residual as it was. */
PetscErrorCode GMRESFusedSingularEnd(KSP);
/* The reason of a happy breakdown that the test of the norm has not taken. */
PetscErrorCode GMRESFusedHappyEnd(KSP);
/* Makes a good reason that a norm has given a claim, and says whether it has. */
bool GMRESFusedLeaveToTrueNorm(KSP);
/* The solution of the cycle that is under way, in x, which may be the solution of the KSP. */
PetscErrorCode GMRESFusedBuildSolution(KSP, Vec x);
PetscErrorCode GMRESFusedResetBasis(KSP_GMRESFused *);
/* The small matrices, where the GPU has them and the program asks for what is made of them during the iterations. */
PetscErrorCode GMRESFusedFetchSmall(KSP);
