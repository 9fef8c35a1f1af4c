/*
   The data of PCCMATCH, for the files of its PETSc face: cmatch.cxx with the application, cmatch_options.cxx with the options,
   cmatch_setup.cxx with the set-up, of which cmatch_ranks.cxx has the levels on several ranks, cmatch_view.cxx with what PCView()
   shows and cmatch_mats.cxx with the matrices that a program gets.
*/
#pragma once

#include <array>

#include "cmatch_ranks_face.h"

template <typename Object>
struct OptionTable;

/* Where w comes from. */
enum class NearNull {
  CONSTANTS, /* nothing is attached to the matrix, or the constants are */
  NEAR,      /* the first vector of MatSetNearNullSpace() */
  EXACT      /* the first vector of MatSetNullSpace() */
};

/* What fits worst, on a level: so many of its rows, aggregates or rows of P, beyond those when the aggregates were made. */
enum CMATCHMisfitKind { CMATCH_LEFT, CMATCH_LOOSE, CMATCH_PIECES, CMATCH_CUT, CMATCH_MISFITS };
struct CMATCHMisfit {
  LocalInt         level;
  CMATCHMisfitKind kind;
  PetscInt64       count, of;
  PetscReal        most; /* the share beyond which all are made anew */
};

struct PC_CMATCH : PC_Local {
  static const OptionTable<PC> options;

  /* The values of the options; `singular` is found at each set-up. */
  CMATCHParams params;
  PetscBool    reuse_pattern = PETSC_TRUE;

  PCCMATCHCommunication communication = PC_CMATCH_COMMUNICATION_AUTO;

  PetscInt            block_size  = 0;  /* unknowns of a node, 1 for rows, 0 for the block size of the matrix */
  std::vector<double> coordinates = {}; /* of the rank's nodes, of PCSetCoordinates() */
  PetscInt            dimension   = 0;

  /* What the last set-up has made. */
  CMATCHHierarchy *hierarchy        = nullptr;
  CMATCHStats      stats            = CMATCHStats{};
  NearNull         near_null        = NearNull::CONSTANTS;
  bool             near_null_unused = false; /* the constants take the place of that vector, which has too many zeros */
  PetscInt64       near_null_zeros = 0, near_null_rows = 0; /* of it */
  bool             complete = false;                        /* it ended without an error and without a failure */
  bool             reused   = false;                        /* it kept the aggregates and patterns of the set-up before */
  bool             anew     = false;                        /* it made other ones, since those of the set-up before did not fit */
  CMATCHMisfit     misfit   = {};    /* what did not fit of those that it began with, if it began with those of another one */
  bool             has_work = false; /* it has left the memory that a set-up which keeps them needs */

  Mat          entries    = nullptr; /* on several ranks, the single entries of a MATSBAIJ, as a MATMPIAIJ */
  MatPoints    others     = {};      /* on several ranks, the single entries of a MATBAIJ in columns of other ranks */
  CMATCHRanks *ranks      = nullptr; /* what the hierarchy of all ranks has; null if it is one of the rank's block */
  LocalInt     all_levels = 0;       /* levels of such a hierarchy on all ranks */
  PetscReal    size       = -1;      /* about how large the next vector is on all ranks, if a solver has passed it */

  std::shared_ptr<class CMATCHKeptModes>    kept_modes  = {}; /* of a hierarchy of nodes */
  size_t                                    modes_bytes = 0;  /* of kept_modes */
  std::vector<PetscInt>                     sizes       = {}; /* of the nodes, if they are different; in a set-up */
  std::shared_ptr<struct CMATCHUnevenNodes> uneven      = {}; /* see cmatch_uneven.h; of a hierarchy of such nodes */
  const char *modes    = nullptr; /* where the modes of a hierarchy of nodes come from; null for the constants of each unknown */
  const char *why_rows = nullptr; /* why the hierarchy is one of rows, although the matrix has blocks */

  PetscScalar *w = nullptr; /* [rows] a copy of w if the user's vector is in the other memory than the matrix */
};

/* The functions of PC_Local for the set-up, and what frees what they have made. */
PetscErrorCode PCSetUp_CMATCH(PC, PCLocalOutcome *);
PetscErrorCode PCGather_CMATCH(PC, PCLocalPhase *);
PetscErrorCode PCCMATCHFreeHierarchy(PC_CMATCH *);
PetscErrorCode PCCMATCHFreeRanks(PC_CMATCH *);

/* Whether a set-up with the options as they are makes one hierarchy of all ranks. */
PetscErrorCode PCCMATCHIsGlobal(PC, PetscBool *global);

PetscErrorCode PCView_CMATCH(PC, PetscViewer);

/*
   Rows of a level on several ranks that no row of the same rank is coupled with more strongly than some row of another rank is, as
   the matching sees it. Of this rank.
*/
PetscErrorCode CMATCHCountForeignRows(const CMATCHHierarchy *, LocalInt level, PetscInt64 *count);

/* PCCMATCHGetHierarchy() */
PetscErrorCode PCCMATCHGetHierarchy_CMATCH(PC, PetscInt *levels, Mat *A[], Mat *P[]);

/* The unknowns k of a node, or 0 for a hierarchy of rows; `why_rows` is set. Of one rank. */
PetscErrorCode PCCMATCHChooseNodes(PC, const CSRView *A, LocalInt *k);

/* The same for a hierarchy of all ranks, which choose together, with the sums of all coordinates and their number. */
struct CMATCHNodesChoice {
  LocalInt              k = 0;
  std::array<double, 4> coordinates{};
};
PetscErrorCode PCCMATCHChooseNodesTogether(PC, PCLocalPhase *, LocalInt rows, CMATCHNodesChoice *);

/* The modes of own nodes, with room for those of so many ghosts, and whether the hierarchy of all ranks can be kept. */
PetscErrorCode PCCMATCHTakeModes(PC, const CSRView *A, const CMATCHNodesChoice &, LocalInt ghosts, CMATCHRanksModes *,
                                 PetscBool *keep);

/* After a set-up that has kept aggregates: whether they fit, on this rank or together on all. */
PetscErrorCode PCCMATCHFindMisfitsOfNodes(PC_CMATCH *, PCLocalPhase *together, bool *fits);

/* Computes a hierarchy of nodes; there may be a failure in the stats. */
PetscErrorCode PCCMATCHComputeNodes(PC, const CSRView *A, LocalInt k);
PetscLogDouble CMATCHNodesFlops(const CMATCHHierarchy *);
PetscErrorCode PCCMATCHViewNodes(PC, PetscViewer);
PetscErrorCode PCSetCoordinates_CMATCH(PC, PetscInt dim, PetscInt nodes, PetscReal coordinates[]);
/* `share` of PC_Local */
PetscErrorCode PCCMATCHShareCoordinates(PC, MatGroup *, PC of_leader);
