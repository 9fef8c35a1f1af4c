/*
   What the faces of the solvers have in common whose iterations the GPU can decide about: why it does not, what its copies were
   made of, what surrounds a solve, and access to vectors where it runs.
*/
#pragma once

#include <petsc/private/kspimpl.h>

#include "entry.h"
#include "fused.h"
#include "sparse/bsr_mat.h"

/* --------------------------------- where the iterations are made ------------------------------ */

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
/*
   Why products cannot be our own: by the type and the place of the matrix, which may be one of `blocks`, and by the vectors, which
   may be anywhere if they are sent. Or why they could be, but are not: nothing on the GPU removes a null space.
*/
PetscErrorCode FusedWhyNotWithMatrix(KSP, PetscBool several, PetscBool blocks, FusedReason *);
PetscErrorCode FusedWhyNotWithNullSpace(KSP, const char text[], FusedReason *);
PetscErrorCode FusedWhyNotWithVectors(KSP, PetscBool sent, FusedReason *);

/*
   Whether the rows of the matrix are sent from the host (sparse/offload.h): of a MATAIJ, and on one rank of a MATBAIJ or a
   MATSBAIJ, of which several ranks send a MATAIJ (sparse/consolidated.h). Vectors, which the host has then, are sent, too. A copy
   of a vector on the GPU, and back.
*/
PetscErrorCode FusedIsSent(KSP, PetscBool *sent);
PetscErrorCode FusedSend(Vec, PetscScalar *to);
PetscErrorCode FusedFetch(const PetscScalar *from, Vec);
/*
   Lends the rank's own rows of A on the GPU, until MatRestoreCSR(). The single entries of a matrix of blocks, which is sent, are a
   copy that stays with `rows` until it is reset.
*/
struct FusedRows {
  MatPoints  points{};
  MatPattern pattern;
  CopiedFrom A, block;
};
PetscErrorCode FusedGetRows(Mat A, FusedRows *, CSRMat *);
PetscErrorCode FusedResetRows(FusedRows *);
/* A line about what was sent, and the bytes of such a copy. */
PetscErrorCode FusedViewSent(const FusedRows &, PetscViewer);
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
/* Makes a preconditioner of finepc anew, since its matrix is used in another way. Collective. */
PetscErrorCode FusedSetUpAgain(KSP);
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

/* -------------------------------------- around a solve ---------------------------------------- */

/*
   Sets up the preconditioner of a KSP anew where its matrix has changed, for a solve that does not call PCApply(). Before
   PETSc 3.26 KSPSolve() leaves this to PCApply(), unless the program has called KSPSetOperators().
*/
PetscErrorCode FusedRefreshPreconditioner(KSP);

/*
   After an error in a solve: ends what KSPSolve() has begun before it, which PETSc leaves as it is. Without this PCPreSolve() is an
   error after two solves that were, and b stays locked for the program.
*/
PetscErrorCode FusedLeaveSolve(KSP);

/*
   The vectors of a solve have the size of the matrix, and so have those that the KSP works with, which it keeps from another matrix
   until KSPReset(): anything else is an error.
*/
PetscErrorCode FusedCheckSizes(KSP);

/*
   The vectors of a program that has them on the host though its matrix is a MATAIJCUSPARSE on the GPU, for the time of a solve that
   works with copies of them on the GPU: MatMult() takes a vector of the host there for what it was at an earlier product
   (docs/known-faults.md). They are null where the KSP works with the program's vectors themselves. Leave puts them back; it brings
   them the solution unless the solve was an error. Collective.
*/
struct FusedVectors {
  Vec b = nullptr, x = nullptr;
};
PetscErrorCode FusedTakeVectors(KSP, FusedVectors *);
PetscErrorCode FusedLeaveVectors(KSP, PetscErrorCode, FusedVectors *);

/* A solve that can be an error and leaves the KSP ready for another one then. */
template <PetscErrorCode (*Solve)(KSP)>
PetscErrorCode FusedSolve(KSP ksp)
{
  FusedVectors theirs;

  PetscFunctionBegin;
  PetscErrorCode code = FusedCheckSizes(ksp);
  if (!code) code = FusedTakeVectors(ksp, &theirs);
  if (!code) code = CallGuarded(Solve, ksp);
  code = FusedLeaveVectors(ksp, code, &theirs);
  if (code) (void)FusedLeaveSolve(ksp);
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

CGNorm FusedNormOf(KSP);
/* The test of the KSP. Where the host tests each iteration instead, it is one that nothing passes. */
CGTest FusedTestOf(KSP, PetscBool by_host);
/*
   Why the host has to see each iteration before the next one changes the solution, or null: a convergence test of the program,
   which ends the solve where it says so, or a monitor that may look at the solution. Tests that the device makes itself, and
   monitors that are known to look at the norm alone, can have it late.
*/
const char *FusedWhyOneByOne(KSP);

/* -------------------------------- vectors where the solve runs -------------------------------- */

/* The rows of the rank, if they can be counted with 32 bits. */
PetscErrorCode FusedGetLocalSize(Vec, LocalInt *n);

/*
   KSPSetWorkVecs() without the vector that it makes by MatCreateVecs() where the KSP has no solution yet. With MATMPIAIJCUSPARSE
   such a vector is set to zero on the host as well, which takes longer than all else in the set-up of PCJACOBI (PETSc 3.26.1,
   VecCreate_IMPL_Private_() of vecmpicupm_impl.hpp and Initialize_CUPMBase() of veccupmimpl.h). For a MATAIJCUSPARSE on the GPU
   they are there, too, where the solution is on the host.
*/
PetscErrorCode FusedSetWorkVecs(KSP, PetscInt count);

/* The array of v on the GPU, or on the host; where it really is, if that is asked for. */
PetscErrorCode FusedGetRead(PetscBool device, Vec v, const PetscScalar **array, PetscMemType *where = nullptr);
PetscErrorCode FusedRestoreRead(PetscBool device, Vec v, const PetscScalar **array);
PetscErrorCode FusedGetWrite(PetscBool device, Vec v, PetscScalar **array, PetscMemType *where = nullptr); /* its values are kept */
PetscErrorCode FusedRestoreWrite(PetscBool device, Vec v, PetscScalar **array);

/* -------------------------------------- time and flops ---------------------------------------- */

/* What is between these two counts as time of the GPU if it runs there. */
PetscErrorCode FusedTimeBegin(PetscBool device);
PetscErrorCode FusedTimeEnd(PetscBool device);
PetscErrorCode FusedLogFlops(PetscBool device, PetscLogDouble flops);
