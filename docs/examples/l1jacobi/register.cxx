/* Registers PCL1JACOBI and its log event. Of a type that belongs to finepc, src/register.cxx does this. */
#include "pcl1jacobi.h"
#include "petsc_compat.h"

PetscLogEvent FinePC_L1JacobiFactor;

/* PETSc calls this function when -dll_append opens libl1jacobi.so, and finds it by its name. */
PetscErrorCode PetscDLLibraryRegister_l1jacobi(void)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(PCRegister(PCL1JACOBI, PCCreate_L1Jacobi));
  PetscCall(PetscLogEventRegister("L1JacobiFactor", PC_CLASSID, &FinePC_L1JacobiFactor));
  PetscFunctionReturn(PETSC_SUCCESS);
}
