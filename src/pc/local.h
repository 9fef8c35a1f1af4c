/*
   PC_Local is the base of every preconditioner that works on the rank's own diagonal block, whatever its factor is. It does what
   all of them do alike: a set-up begins and ends on all ranks together, with one verdict; M^{-1} is applied to vectors in either
   memory, and to several vectors; the view begins alike. A type adds two functions, one that computes the factor and one that
   applies the factor. Neither function needs another rank, unless the type also has the functions of a factor that reaches other
   ranks.
*/
#pragma once

#include <vector>

#include "consolidated.h"
#include "reuse.h"
#include "sparse/bsr_mat.h"
#include "sparse/symmetry.h"

/* How the set-up of a rank has ended. */
struct PCLocalOutcome {
  /* An error ends PCSetUp() on all ranks. An error without a text has been reported already. */
  PetscErrorCode code = PETSC_SUCCESS;

  /* Without an error, the reason why there is no factor. KSPSolve() then ends with KSP_DIVERGED_PC_FAILED on all ranks. */
  PCFailedReason reason = PC_NOERROR;

  char text[1024] = ""; /* what is wrong, and in which row: a sentence without its full stop */

  /*
     The failure comes of a diagonal entry that is missing or has not the sign that was expected. The base then looks at the whole
     diagonal, and may compute once more with what it has found; see PCLocalDiagonal.
  */
  bool diagonal = false;

  /* Whether other ranks wait for messages of this one, so that an error of this rank cannot be agreed upon. */
  bool exchanging = false;
};

/* A part of a set-up in which ranks communicate, and what this rank has to say about it. */
struct PCLocalPhase {
  MPI_Comm        comm;
  PCLocalOutcome *outcome;
  bool            stopped; /* a rank has failed, so that no rank goes on */
};

/*
   Ends a step of a phase on all ranks, with the error of what this rank did alone. `more` is whether this rank wants another step,
   and then whether any rank does; it may be null.

   What a rank does alone belongs into a step. What it does together with others sets `exchanging` of the outcome before and clears
   it afterwards: if that fails on one rank, its PCSetUp() returns the error at once, and a program that hands errors on ends.
*/
PetscErrorCode PCLocalPhaseStep(PCLocalPhase *, PetscErrorCode, bool *more);

/*
   What all ranks have found together about the diagonal of the matrix, the last time that it made a set-up fail. Otherwise nobody
   looks, so that the set-up of a positive definite matrix takes no longer.

   A matrix whose diagonal is negative throughout is negative definite, if it is definite: the factor is that of -A, applied with
   the other sign.

   Rows of zeros are isolated rows with an inverse of 0: the factor is that of a matrix with a diagonal entry of about the size of
   the others there, and an application leaves these rows out of x. The result is 0 there, too, since nothing is coupled to them.
*/
struct PCLocalDiagonal {
  std::vector<LocalInt> zero_rows     = {}; /* of this rank, ascending */
  PetscInt64            all_zero_rows = 0;  /* of all ranks */
  PetscReal             largest       = 0;  /* the largest magnitude of an entry, or 1 */

  bool     negative = false; /* no row has a positive entry, and some row has a negative one */
  PetscInt first[2] = {};    /* the first rows with a positive and with a negative entry, or PETSC_INT_MAX */
  bool     changed  = false; /* what `compute` depends on is not what it was */

  bool Mixed() const { return first[0] != PETSC_INT_MAX && first[1] != PETSC_INT_MAX; }
};

/* M^{-1} is `apply` after I + W, with W of CSRCarry() and CSRMask(), if it has entries. */
struct PCLocalCarry {
  CSR          W = {}, Wt = {};   /* Wt = W^T */
  PetscScalar *between = nullptr; /* [columns_at_once * rows] what is between I + W and `apply` */
};

/* Room on the device for vectors of the host, made when they first meet a factor there. */
struct PCLocalStaging {
  PetscScalar *array   = nullptr; /* [2 * columns * rows] */
  LocalInt     columns = 0;
  LocalInt     on_all  = 0; /* columns that all ranks have had room for since the set-up */
};

/* The data of a type derives from PC_Local, so that they begin with it. */
struct PC_Local {
  using Compute = PetscErrorCode (*)(PC, PCLocalOutcome *);
  using Apply   = PetscErrorCode (*)(PC, PetscBool transpose, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y,
                                   LocalInt ldy, PetscLogDouble *flops);

  /* Computes the factor of the rank's block, or tells in the outcome why there is none. */
  Compute compute = nullptr;

  /*
     Y = M^{-1} X, or Y = M^{-T} X with transpose, in the memory of the factor. X and Y have at most columns_at_once columns, which
     are ldx and ldy values apart. `flops` is set to the number of operations.
  */
  Apply apply = nullptr;

  LocalInt columns_at_once = 1; /* the most columns that `apply` takes, at least 1 */

  /*
     If the set-up makes only what `apply` needs for one column, without transpose: makes on this rank what it needs for so many
     columns, or for the transpose. The base calls this function before `apply`, and all ranks agree on its error. A `connect` that
     leaves something for one column to do, too, sets reserved[0] to 0.
  */
  PetscErrorCode (*reserve)(PC, PetscBool transpose, LocalInt columns) = nullptr;

  /*
     A factor that reaches other ranks has these functions, too; then `apply` communicates. Before `compute`, all ranks `gather`
     together; `compute` has its rows extended, and without L.i there is nothing to extend; then all ranks `connect` their factors.
  */
  PetscErrorCode (*gather)(PC, PCLocalPhase *)                              = nullptr;
  PetscErrorCode (*extend)(PC, const CSRView *own, CSR *L, LocalInt *first) = nullptr;
  PetscErrorCode (*connect)(PC, PCLocalPhase *)                             = nullptr;

  /*
     Gives another PC of the type the values of all options. A type without this function, or one that is `alone` because it has
     been given more than options, such as a pattern, has a factor on each rank where others come together. `share` brings the
     leaders' PC what else each rank has been given, and is called again after `consolidated.shared` has become false; collective,
     and so is its error.
  */
  PetscErrorCode (*copy_options)(PC from, PC to)               = nullptr;
  PetscErrorCode (*share)(PC, struct MatGroup *, PC of_leader) = nullptr;
  bool           alone                                         = false;
  bool           again        = false; /* a reset is followed by a set-up for the same solver: what the program has given stays */
  PCConsolidated consolidated = {};

  /* For the view, which sets it: whether the factor reaches other ranks, or will after a set-up with the options as they are. */
  bool reaches_others = false;

  PetscMemType where           = PETSC_MEMTYPE_HOST; /* memory of the factor */
  LocalInt     rows            = 0;                  /* rows of the rank's block */
  LocalInt     reserved[2]     = {};    /* columns that all ranks have reserved since the set-up, without and with transpose */
  MatPattern   nonzeros        = {};    /* those of the matrix of the last set-up */
  bool         same_nonzeros   = false; /* in a set-up: the nonzeros of all ranks are those of the last one, see PCSetUp_Local() */
  MatPoints    points          = {};    /* the entries of a matrix of blocks, for the types that need single entries */
  bool         has_points      = false; /* in a set-up: the points have the nonzeros of the matrix at hand */
  CSRSymmetry  symmetry        = {};    /* what makes the rank's block unsymmetric, for the types that need symmetry */
  bool         keeps_one_sided = false; /* the factor is one of a matrix with its one-sided couplings */

  PCReuse        reuse   = {}; /* see reuse.h */
  PCLocalCarry   carry   = {};
  PCLocalStaging staging = {};

  PCLocalDiagonal diagonal = {}; /* the same on all ranks. `compute` of a type that needs a definite matrix heeds it. */

  LocalInt     unsorted      = 0;       /* entries of the block that do not stand in the order of columns, or stand there twice */
  bool         sorted        = false;   /* this is known of the nonzeros at hand */
  CSRSymmetry *symmetry_work = nullptr; /* on the device, made when the symmetry of a matrix there is first checked */

  /* Why the last set-up left no factor, the same on all ranks, or empty. It is no std::string, which might find no memory here. */
  char failure[sizeof(PCLocalOutcome::text)] = "";
};

/*
   What a type keeps of a set-up that was made of the nonzeros of the matrix, such as patterns, plans and copies, it keeps in the
   next one if `same_nonzeros` says so, and not by pc->flag, which follows from the nonzero state of PETSc.
*/

/* `compute` calls this function to report the memory and the number of rows of the factor. */
PetscErrorCode PCLocalPlace(PC, PetscMemType, LocalInt rows);

/*
   `compute` of a type that does not call the next function calls this one, with the number and the memory of its rows: an
   application then leaves out rows of zeros. Their diagonal entry is to be PCLocalIsolated(), with the sign of the others.
*/
PetscErrorCode PCLocalLeaveOutZeroRows(PC, LocalInt n, PetscMemType);
PetscScalar    PCLocalIsolated(const PC_Local *);

/*
   `compute` of such a type borrows rows whose columns may have any order, and goes on with *A, which is a copy then; `sorted` is to
   be destroyed afterwards. The view shows the copy.
*/
PetscErrorCode PCLocalSort(PC, CSRView *A, CSR *sorted);

/*
   `compute` of a type that needs a symmetric matrix of single entries calls this function. It lends the rows of the rank's block of
   A, mostly pc->pmat, to `on_rows`, of a matrix of blocks those of `points`, and takes them back, whether there is an error or not,
   and sets `symmetry`. Rows that `extend` gives take the place of those of the block; isolated rows of other ranks are then left
   out, not carried over. With LEAVE_OUT, couplings that one row alone has are zero in these rows, and an application carries the
   values of isolated rows over to the rows that are coupled to them; and the rows of a matrix with a negative diagonal are those of
   -A. With KEEP, the rows are those of the operator. Rows of zeros have their diagonal entry in either case.
*/
enum class OneSided { LEAVE_OUT, KEEP };
PetscErrorCode PCLocalComputeOnSymmetricRows(PC, Mat A, OneSided, PetscErrorCode (*on_rows)(PC, const CSRView *, PCLocalOutcome *),
                                             PCLocalOutcome *);

/* Whether an application takes more than the factor: what isolated rows carry over, or the rows of zeros. */
PetscErrorCode PCLocalCarries(PC, PetscBool *);

/* `compute` uses this text in its sentences: " of rank 1's block", or nothing if one rank has the whole matrix. */
PetscErrorCode PCLocalNameBlock(PC, char text[], size_t length);

/*
   PCCreate calls this function, which gives the data to the PC, the two functions to the data, and the operations that follow to
   the PC. The type sets what is its own: setfromoptions, view, reset and destroy.
*/
PetscErrorCode PCLocalSetOperations(PC, PC_Local *, PC_Local::Compute, PC_Local::Apply);
/* Whether it has been called. */
bool           PCIsLocal(PC);
PetscErrorCode PCApply_Local(PC, Vec x, Vec y);
PetscErrorCode PCApplyTranspose_Local(PC, Vec x, Vec y);
PetscErrorCode PCMatApply_Local(PC, Mat X, Mat Y);

/*
   For a solver that has its vectors as arrays on the device. Whether the PC is one of these types with a factor there that reaches
   no other rank, so that the next function may be called. It gives y = M^{-1} x, launches on the current stream, and neither waits
   nor allocates nor logs.
*/
PetscErrorCode PCLocalIsOnDevice(PC, PetscBool *);
PetscErrorCode PCLocalApplyOnDevice(PC, const PetscScalar *x, PetscScalar *y);

/* The type's own PCReset calls this function. */
PetscErrorCode PCReset_Local(PC);
/* Resets a PC of PC_Local that is set up again at once: what the program has given it beside options stays. */
PetscErrorCode PCLocalResetAgain(PC);

/* An error if the factor of this rank's rows is that of a leader, which has it. */
PetscErrorCode PCLocalCheckFactorHere(PC);

/* Begins a view. If is_ascii is false afterwards, the viewer shows no text, and the type shows nothing more. */
PetscErrorCode PCViewBegin_Local(PC, PetscViewer, PetscBool *is_ascii);

/* Shows `symmetry`, summed over all ranks. */
PetscErrorCode PCViewSymmetry_Local(PC, PetscViewer);

/* Shows the reason and the text of a failed set-up. */
PetscErrorCode PCViewFailure_Local(PC, PetscViewer);
