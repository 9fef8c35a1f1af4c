/* The PETSc faces of the factored sparse approximate inverses share this header, beside what all of them have from PC_Local. */
#pragma once

#include "fsai.h"
#include "halo_face.h"
#include "pcinverse.h"
#include "sparse/csr_mat.h"

/*
   The ranks, in hops, that a factor reaches if nothing is said, and the most hops and layers that an option may ask for. A factor
   that stays in the rank's block needs no hop.
*/
constexpr PetscInt kFSAIOverlap = 0, kFSAIMostOverlap = 1000, kFSAIMostLayers = 10000;

/* How a factor's entries in columns of other ranks come to those ranks, which keep them as rows of G^T. */
struct FSAITransposed {
  Neighbours blocks;
  LocalInt  *send  = nullptr; /* [ghosts1.W.nnz] places there of what is sent */
  LocalInt  *place = nullptr; /* [ghosts2.W.nnz] places in what is received of the entries there */
};

/* The data of a type derives from PC_FSAI. */
struct PC_FSAI : PC_Local {
  PCInverse inverse = PCInverse{};
  FSAIStats stats   = FSAIStats{};
  PetscBool reused  = PETSC_FALSE; /* whether the last set-up kept the pattern */

  /* of a pattern that depends on values and may be kept */
  float     *marks    = nullptr; /* of the rows when the pattern was found, see FSAIMarks_X() */
  bool       follows  = false;   /* the last set-up has compared them, or would have */
  bool       anew     = false;   /* it found a new pattern, since the old one did not fit */
  PetscInt64 changed  = 0; /* rows that had changed, and all rows: of this rank, or with a factor that reaches others of all */
  PetscInt64 compared = 0;

  Mat        pattern     = nullptr; /* the matrix that the user gave for the pattern, or null */
  MatPattern given       = {};      /* its nonzeros at the last set-up */
  bool       given_stays = true;    /* in a set-up: they are the same on this rank, or there is none */
  PetscInt64 left_out    = 0;       /* its entries in columns of lower-numbered ranks that the factor does not reach */

  /* a factor that reaches other ranks */
  bool           distributed = false; /* whether the last set-up was of such a factor, the same on all ranks */
  bool           may_keep    = false; /* whether all ranks can keep the pattern of such a factor */
  PetscInt       deepest     = 0;     /* couplings that the pattern of a row follows at most, behind a given pattern */
  LocalInt       limited     = 0;     /* rows of the factor that the layers may have cut */
  Halo           halo        = Halo{};
  CSR            whole       = CSR{}; /* W1 with foreign columns, if this rank has gathered rows */
  FSAITransposed transposed  = FSAITransposed{};
};

/*
   Gathers the rows that a factor needs which follows so many couplings, of which `layers` are gathered, from the border, and from
   the columns of a given pattern, whose rows are gathered, too. The precision is that of PCFSAIPrepare().
*/
struct FSAIReach {
  const char     *type; /* "afsai" or "sfsai" */
  PetscInt        overlap, layers, deepest;
  Mat             pattern;
  const char     *setter; /* the function that was given the pattern */
  PetscBool       reuse_pattern;
  FinePCPrecision factor;
};
PetscErrorCode PCFSAIGather(PC, const FSAIReach *, PCLocalPhase *);

/*
   Begins a set-up: decides whether the pattern is kept, sets `reused` to the answer, and makes room for a new factor if not. The
   type then computes d of the inverse, and the rows from the first own one on of *W1, whose columns are those of A.
*/
PetscErrorCode PCFSAIPrepare(PC, const CSRView *A, PetscBool reuse_pattern, FinePCPrecision factor, CSR **W1);

/*
   After the rows are computed: whether they are to be kept, if another matrix with the same nonzeros may get another pattern. If
   not, the type computes them once more, on a new pattern, and calls this function again. Where the factor reaches other ranks, all
   of them find out later, and the base computes once more.
*/
PetscErrorCode PCFSAIFits(PC, const CSRView *A, bool depends_on_values, bool *fits);

/* Ends a set-up: W2 is G~^T, or the outcome tells why the matrix cannot be preconditioned. */
PetscErrorCode PCFSAIComplete(PC, const char type[], PetscBool reuse_pattern, PCLocalOutcome *);

/* Bytes of what a factor that reaches other ranks keeps for a set-up with new values, beside the plan of the halo. */
size_t PCFSAIKeptBytes(const PC_FSAI *);

/* The first row of A that belongs to this rank. */
inline LocalInt PCFSAIFirst(const PC_FSAI *fsai)
{
  return fsai->distributed ? fsai->halo.First() : 0;
}

/* What the user's functions for a pattern do. */
PetscErrorCode PCFSAISetPattern(PC, Mat);
PetscErrorCode PCFSAIGetPattern(PC, Mat *);

/* Sets `given_stays`. Each set-up calls this function once, and an error of one rank ends the phase on all ranks. */
PetscErrorCode PCFSAIFollowGiven(PC, PCLocalPhase *);

/* The user's pattern as the twins take it, which is in the memory of the operator. */
struct FSAIGivenPattern {
  CSRMat    mat;  /* the rows that the user's matrix lends */
  CSRView   S;    /* i and j of these rows, without values */
  LocalInt *copy; /* [n + 1 + nnz] a copy of i and j if the user's matrix is in the other memory, or null */
};
PetscErrorCode PCFSAIGetGivenPattern(PC, const CSRView *A, const char setter[], FSAIGivenPattern *);
PetscErrorCode PCFSAIRestoreGivenPattern(FSAIGivenPattern *);

/* Gives the PC the operations that set up and apply. */
PetscErrorCode PCFSAISetOperations(PC, PC_FSAI *, PC_Local::Compute, PC_Local::Apply, PetscErrorCode (*gather)(PC, PCLocalPhase *));

/* Composes the methods that all of these types have, or takes them and the user's pattern away if `compose` is false. */
PetscErrorCode PCFSAICompose(PC, const char get_factors[], const char set_pattern[], PetscBool compose);

/* Begins a view, with what the options say about other ranks; `given` if the user has given the pattern. */
PetscErrorCode PCViewBegin_FSAI(PC, PetscViewer, PetscInt overlap, PetscInt layers, PetscBool given, PetscBool *is_ascii);

/* Shows what a set-up has built, or why it has built nothing. */
PetscErrorCode PCView_FSAI(PC, PetscViewer);

PetscErrorCode PCReset_FSAI(PC);
