/* The checks at the border between PETSc's numbers and local ones, and the host twin of a function in cuda/sparse/memory.cu. */
#include "local_int.h"

PetscErrorCode LocalIntCast(PetscInt64 number, const char noun[], LocalInt *local)
{
  PetscFunctionBegin;
  PetscCheck(number <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
             "This rank has %" PetscInt64_FMT
             " %s, but finepc counts what one rank has with 32 bits, so at most %d: give the rank less, by using more ranks",
             number, noun, LOCAL_INT_MAX);
  *local = (LocalInt)number;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LocalIntCopy_Host(size_t count, const PetscInt *from, LocalInt *to)
{
  PetscFunctionBegin;
  for (size_t k = 0; k < count; k++) to[k] = (LocalInt)from[k];
  PetscFunctionReturn(PETSC_SUCCESS);
}
