/*
   What each rank has done alone ends before all ranks go on together: an error of one rank is one of all of them, since the others
   would wait for it otherwise.
*/
#pragma once

#include "petsc_compat.h"

/* `code` is that of this rank, and `text` says on the others what another rank could not do. Collective. */
inline PetscErrorCode AgreeOnError(MPI_Comm comm, PetscErrorCode code, const char text[])
{
  int worst = (int)code;

  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, comm));
  PetscCall(code);
  PetscCheck(!worst, PETSC_COMM_SELF, (PetscErrorCode)worst, "Another rank could not %s: see its own message", text);
  PetscFunctionReturn(PETSC_SUCCESS);
}
