/*
   What each rank has done alone ends before all ranks go on together: an error of one rank is one of all of them, since the others
   would wait for it otherwise.
*/
#pragma once

#include "petsc_compat.h"

/*
   `code` is that of this rank, and `text` says on the others what another rank could not do. *most, where it is given, becomes the
   largest one of all ranks. Collective.
*/
inline PetscErrorCode AgreeOnError(MPI_Comm comm, PetscErrorCode code, const char text[], int *most = nullptr)
{
  int all[2] = {(int)code, most ? *most : 0};

  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, most ? 2 : 1, MPI_INT, MPI_MAX, comm));
  PetscCall(code);
  PetscCheck(!all[0], PETSC_COMM_SELF, (PetscErrorCode)all[0], "Another rank could not %s: see its own message", text);
  if (most) *most = all[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}
