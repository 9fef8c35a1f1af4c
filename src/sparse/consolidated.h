/* The rows that the ranks of a group have of a matrix, as a matrix of the leaders alone. */
#pragma once

#include <petscmat.h>

#include "ranks/group.h"
#include "bsr_mat.h"

/* What a leader says to its group in a solve that all ranks follow, before they meet. */
enum class GroupSays { END, MONITOR, TEST };
struct GroupMessage {
  GroupSays kind;
  PetscInt  its;
  PetscReal norm; /* of this iteration */
};

/* Entries of the rows of a group in memory that its ranks share, where the leaders' matrix has them. */
struct MatGroupPart {
  PetscInt     first = 0, nnz = 0, all = 0; /* entries before those of this rank, its own, and all of the group */
  PetscInt    *i = nullptr, *j = nullptr;   /* [rows of the group + 1], [all] */
  PetscScalar *a = nullptr;                 /* [all] */
};

/*
   What a matrix keeps of its groups. The vectors are those of the group, of which each rank has `n` entries from `first` on; on
   leaders they are vectors of `rows`, too.
*/
struct MatGroup {
  RankGroup     group;
  PetscInt      users = 0; /* the matrix, and the preconditioners and solvers that use it */
  SharedMemory  vectors;
  PetscInt      first = 0, n = 0, all = 0; /* rows before those of this rank, its rows, and all rows of the group */
  PetscScalar  *b = nullptr, *x = nullptr; /* [all] what goes to the leader, and what comes back */
  GroupMessage *message = nullptr;         /* behind them */

  Mat rows   = nullptr; /* on leaders: the rows of the group */
  Vec rows_b = nullptr; /* on leaders: b and x */
  Vec rows_x = nullptr;

  PetscBool offloaded      = PETSC_FALSE;                               /* the leaders use their rows on a GPU */
  PetscBool pinned_vectors = PETSC_FALSE, pinned_entries = PETSC_FALSE; /* on leaders, for copies there */

  PetscInt         group_first = 0; /* the number of the group's first row in the matrix */
  SharedMemory     entries;
  MatGroupPart     part[2];                 /* entries in columns of the group, numbered from its first one, and in the others */
  Mat              own           = nullptr; /* a MATAIJ of the matrix, where it is of another type */
  MatPattern       pattern       = {};      /* of what is there */
  PetscObjectId    id            = 0;
  PetscObjectState state         = -1;
  PetscObjectId    nullspaces[3] = {};
};

/*
   Makes the groups of A, which is on several ranks of which some share a machine. `gpu` is the name that this rank gives its GPU,
   empty if there is none. `why` says why there are none.
*/
PetscErrorCode MatGroupCreate(Mat A, const char gpu[], MatGroup **, char why[]);
PetscErrorCode MatGroupRelease(MatGroup **); /* after the last user has done so they are gone; collective */

/* Has the leaders' rows be those of A, with its block size, null spaces, and what it is known to be. Collective. */
PetscErrorCode MatGroupUpdate(Mat A, MatGroup *);

/* Copies a vector of all ranks to b or x, where the leaders read it after RankGroupMeet(), or from there. */
PetscErrorCode MatGroupPut(const MatGroup *, Vec, PetscScalar *);
PetscErrorCode MatGroupTake(const MatGroup *, const PetscScalar *, Vec);

/* On leaders: all ranks have zeroed their parts of x, so that VecSet() of rows_x by 0 has nothing to do. */
PetscErrorCode MatGroupKnowZero(const MatGroup *);
