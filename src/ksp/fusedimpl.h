/*
   What the faces of the solvers have in common whose iterations the GPU can decide about: why it does not, and what its copies were
   made of.
*/
#pragma once

#include <petscksp.h>

#include "fused.h"

/* What a copy was made of. */
struct CopiedFrom {
  PetscObjectId    id    = 0;
  PetscObjectState state = -1;
};

/* Whether the object is another one, or in another state, than the one that was copied; what it is now. */
PetscErrorCode FusedHasChanged(PetscObject, const CopiedFrom &from, CopiedFrom *now, PetscBool *changed);

/*
   Why a solve takes the general path. A reason is made without new memory, since a rank that had none left would not come to the
   other ranks, which wait for it.
*/
struct FusedReason {
  const char *text     = ""; /* a literal, empty if there is no reason */
  char        type[64] = ""; /* the name of a type, with which the text ends */

  explicit operator bool() const { return *text; }
};

/* The reason that the object is of its type; the text ends with a blank. */
PetscErrorCode FusedIsOfType(PetscObject, const char text[], FusedReason *);
/* Whether a vector is on the GPU and may be used there. */
PetscErrorCode FusedIsOnDevice(Vec, PetscBool *device);
/*
   Why products cannot be our own: by the type and the place of the matrix, which may be one of `blocks`, and by the vectors, which
   may be anywhere if they are sent.
*/
PetscErrorCode FusedWhyNotWithMatrix(KSP, PetscBool several, PetscBool blocks, FusedReason *);
PetscErrorCode FusedWhyNotWithVectors(KSP, PetscBool sent, FusedReason *);

/*
   Whether the rows of the matrix are sent from the host (sparse/offload.h): vectors, which the host has then, are sent, too. A copy
   of a vector on the GPU, and back.
*/
PetscErrorCode FusedIsSent(KSP, PetscBool *sent);
PetscErrorCode FusedSend(Vec, PetscScalar *to);
PetscErrorCode FusedFetch(const PetscScalar *from, Vec);
/*
   Whether the diagonal of PCJACOBI is that of rows which the GPU has: its plain kind, with the values that the matrix has now. Then
   it is made of them there, since MatGetDiagonal() of a MATAIJCUSPARSE reads beyond rows that are empty (docs/known-faults.md), and
   that of a matrix on the host would have to be sent.
*/
struct FusedDiagonal {
  bool      is = false;
  PetscBool absolute, fixed; /* options of PCJACOBI */

  explicit operator bool() const { return is; }
};
PetscErrorCode FusedFindDiagonal(KSP, FusedDiagonal *);
/* What PCJACOBI multiplies by, of rows on the GPU. */
PetscErrorCode FusedDiagonalOfRows(const CSRView *A, const FusedDiagonal &, PetscScalar *d);
/*
   Has a preconditioner of finepc follow its matrix, whose rows the host uses from now on, unless the program keeps it: see
   MatTry(). Collective.
*/
PetscErrorCode FusedFollow(KSP);
/* A line about the GPU that the rows are sent to, or why they are not. */
PetscErrorCode FusedViewDevice(KSP, PetscViewer);
/*
   Finds NCCL for a solve of several ranks, all of which want it, or else the reason why there is none, in which `why_mpi` is that
   of this rank before. It is an error if the program has asked for NCCL and it cannot be had. Collective.
*/
PetscErrorCode FusedFindNCCL(KSP, PetscBool wanted, PetscBool asked, NCCL **, const char **why_mpi);
