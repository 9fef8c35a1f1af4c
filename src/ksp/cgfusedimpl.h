/*
   The KSPCGFUSED object, and what the files of its face do for one another.

     cgfused.cxx          options, set-up, the solve, the view
     cgfused_api.cxx      the public functions
     cgfused_path.cxx     why a solve takes the general path
     cgfused_record.cxx   what becomes of an iteration: history, monitors and test, the Lanczos matrix
     cgfused_device.cxx   the solve whose iterations the GPU decides about: one rank, and several ranks with NCCL
     cgfused_general.cxx  the general path, whose iterations the host decides about
     cgfused_trust.cxx    the trust region
     cgfused_columns.cxx  several right-hand sides
*/
#pragma once

#include <vector>

#include "finepcimpl.h"
#include "pc/pcinverse.h"
#include "sparse/csr_mat.h"
#include "cgface.h"
#include "cgfused.h"
#include "consolidated.h"
#include "pc/watch.h"

/* A preconditioner whose products can be our own: at most one of these, and none for PCNONE. */
struct CGFusedPreconditioner {
  PCInverse       *M      = nullptr; /* two factors */
  CMATCHHierarchy *cycle  = nullptr; /* a cycle of multigrid */
  PetscBool        jacobi = PETSC_FALSE;
};

/* What the last KSPMatSolve() has come to, for the view and the program. */
struct CGFusedBlock {
  PetscInt                        at_once = 0; /* columns that are solved together at most */
  FusedReason                     why;         /* why they were not; none if they were */
  std::vector<PetscInt>           its;
  std::vector<KSPConvergedReason> reasons;
};

/* The last solve, which may still run. */
struct CGFusedSolve {
  PetscBool   solved  = PETSC_FALSE;    /* there has been one */
  PetscBool   several = PETSC_FALSE;    /* it had several ranks */
  FusedReason why;                      /* why it took the general path; none if it did not */
  NCCL       *nccl       = nullptr;     /* it made the sums and the exchange */
  const char *why_mpi    = "";          /* why it did not, where the GPUs could have decided otherwise */
  PetscBool   has_cycle  = PETSC_FALSE; /* with own products, M was a cycle of multigrid */
  const char *one_by_one = nullptr;     /* why the host decided about each iteration before the next one, null if it did not */
  SolveLook  *look       = nullptr;     /* what the preconditioner wants of the solve that runs */
  CGRange     range;
  PetscInt    before = 0;     /* iterations before the residual was computed anew, since its recurrence had lost it */
  PetscReal   began  = 0;     /* the norm that followed, or the first one */
  bool        fits   = false; /* the residual is that of a right-hand side without its part in the null space of the matrix */
};

/* Where the host has the matrix and the vectors: what the GPU has of them. */
struct CGFusedCopies {
  PetscBool    x_away      = PETSC_FALSE; /* x of the iteration that the program looks at is there alone */
  PetscBool    used        = PETSC_FALSE; /* the last solve has worked with copies, whose residual is there alone */
  PetscScalar *arrays      = nullptr;     /* [5 array_rows] on the GPU: b, x, r, z, and p */
  LocalInt     array_rows  = 0;
  PetscScalar *jacobi      = nullptr; /* [jacobi_rows] M of PCJACOBI on the GPU, wherever vectors are */
  LocalInt     jacobi_rows = 0;
  FusedRows    rows;
};

/* The Lanczos matrix, as in KSPCG: off-diagonal e[1] .., diagonal d[0] .. */
struct CGFusedLanczos {
  PetscScalar *e = nullptr, *d = nullptr;
  PetscInt     room = 0; /* for so many iterations */
  PetscInt     rows = 0; /* that the last solve has made */
};

struct CGFusedTrust {
  PetscReal radius      = 0;           /* 0: there is no trust region */
  PetscReal target      = 0;           /* a solve ends where the objective falls below this, if this is negative */
  PetscBool wants_model = PETSC_FALSE; /* norm and objective are to be kept */
  PetscBool has_model   = PETSC_FALSE; /* they are those of the last solve */
  PetscReal norm_x = 0, objective = 0;
};

struct CGColumnsWork;

template <typename Object>
struct OptionTable;

struct KSP_CGFused {
  static const OptionTable<KSP> options;

  /* options */
  KSPCGFusedPath path             = KSP_CGFUSED_AUTO;
  PetscBool      compress         = PETSC_TRUE;
  PetscBool3     single_reduction = PETSC_BOOL3_UNKNOWN; /* unknown: with several ranks */

  KSPCGFusedCommunication communication = KSP_CGFUSED_COMMUNICATION_AUTO;

  KSPConsolidated consolidated; /* where ranks have come together */

  CGFusedSolve solve;

  /* the GPU */
  CGFusedWork   *work     = nullptr; /* made when it is first needed */
  Vec            diagonal = nullptr; /* M of PCJACOBI */
  CopiedFrom     A, block, M;        /* what the copies in work were made of; block is the rank's own part of a parallel A */
  PetscLogDouble flops = 0;          /* of an iteration */

  CGFusedCopies copies;

  Exchange  exchange;                    /* of the ghosts of A */
  PetscBool same_exchange = PETSC_FALSE; /* it can stay, on all ranks */

  /* several right-hand sides */
  CGColumnsWork *columns_work = nullptr; /* on the GPU, made when it is first needed */
  CGFusedBlock   block_solve;

  CGFusedLanczos lanczos;
  CGFusedTrust   trust;
};

/* ------------------------------------- cgfused_record.cxx ------------------------------------- */

/* The iterations after which the preconditioner looks at the solve. */
inline LocalInt CGFusedNextLook(const KSP_CGFused *cg)
{
  return cg->solve.look ? (LocalInt)PetscMin(cg->solve.look->next, (PetscInt)LOCAL_INT_MAX) : LOCAL_INT_MAX;
}

/* What follows the norm of an iteration: history, monitors, the convergence test, and the look of the preconditioner. */
PetscErrorCode CGFusedTestNorm(KSP, PetscInt its, PetscReal norm);
/* Row i of the Lanczos matrix, from p_i = z_i + b p_{i-1} and x_{i+1} = x_i + a p_i; a_before is that of row i - 1. */
PetscErrorCode CGFusedLanczosRow(KSP, PetscInt i, PetscReal a, PetscReal a_before, PetscReal b);
/* Its eigenvalues, in ascending order, and the outermost ones. */
PetscErrorCode KSPComputeEigenvalues_CGFused(KSP, PetscInt nmax, PetscReal *r, PetscReal *c, PetscInt *neig);
PetscErrorCode KSPComputeExtremeSingularValues_CGFused(KSP, PetscReal *emax, PetscReal *emin);

/* ------------------------------------- cgfused_trust.cxx -------------------------------------- */

/* PETSc's methods for trust regions, which Create composes and Destroy takes away. */
PetscErrorCode CGFusedComposeTrust(KSP, PetscBool compose);
/* ||x|| and the objective x^T A x / 2 - b^T x, by the residual in work[0]. */
PetscErrorCode CGFusedModel(KSP, PetscReal *norm, PetscReal *objective);
/* The length of the step from x, which is not outside, along p to the boundary, from x.x, x.p and p.p. */
PetscReal CGFusedStepToBoundary(PetscReal radius, PetscReal xx, PetscReal xp, PetscReal pp);

/* -------------------------------------- cgfused_path.cxx -------------------------------------- */

/* Whether an iteration has a single reduction, where the host decides about it. */
PetscErrorCode CGFusedSingleReduction(KSP, PetscBool *single);
/* Makes the work vectors of the KSP, of which a single reduction takes more, unless they are there. Collective. */
PetscErrorCode CGFusedNeedWorkVecs(KSP);
/*
   Why the solve takes the general path, or no reason if the products can be our own. All ranks take the same path; collective. On
   several ranks it also finds the NCCL of the solve, or why there is none.
*/
PetscErrorCode CGFusedWhyGeneral(KSP, CGFusedPreconditioner *, FusedReason *why);

/* ------------------------------------- cgfused_device.cxx ------------------------------------- */

/* Makes the work of the GPU, unless there is one; after an error there is none. */
PetscErrorCode CGFusedNeedWork(KSP_CGFused *);
/* 2-norms: of b, of r, the residual by the recurrence, and of b - A x - r */
struct CGTrueResidual {
  PetscReal b, r, difference;
};

/*
   Refreshes the device copies of A and M, and the exchange; collective. Where *fell is true there was no memory for it, and the
   host has the matrix and the preconditioner now.
*/
PetscErrorCode CGFusedPrepareDevice(KSP, const CGFusedPreconditioner &, PetscBool *fell);
/* An error where the copies of vectors have another size than the matrix, which the KSP has got without a reset. */
PetscErrorCode CGFusedCheckArrays(KSP);
/* Frees what a KSP has on the GPU. */
PetscErrorCode CGFusedLeaveDevice(KSP_CGFused *);
/* The solve of one rank, or of several with NCCL, with these copies. */
PetscErrorCode CGFusedSolveOnDevice(KSP);
/* After such a solve: z = b - A x, and norms over all ranks. */
PetscErrorCode CGFusedTrueResidual(KSP, CGTrueResidual *);
/* Brings r of such a solve, or z, to work[0], if the arrays of the solve were copies. */
enum class Residual { OF_RECURRENCE, OF_SOLUTION };
/* Brings x of the iteration that the program looks at. */
PetscErrorCode CGFusedFetchSolution(KSP);
PetscErrorCode CGFusedFetchResidual(KSP, Residual);

/* ------------------------------------- cgfused_general.cxx ------------------------------------ */

/* The solve by the products of any matrix and preconditioner. */
PetscErrorCode CGFusedSolveByHost(KSP);

/* ------------------------------------- cgfused_columns.cxx ------------------------------------ */

/* KSPMatSolve() */
PetscErrorCode KSPMatSolve_CGFused(KSP, Mat B, Mat X);
/* What it composes and takes away, and shows. */
PetscErrorCode CGFusedComposeColumns(KSP, PetscBool compose);
PetscErrorCode CGFusedViewColumns(KSP, PetscViewer);
