/*
   PetscInitialize() and PetscFinalize() several times in one process, with a solve by afsai in each. Compiled twice: linked
   with finepc, and without a word of it, for -dll_append. In C, as finepc.h must be readable there.
*/
#if defined(FINEPC_LINKED)
  #include <finepc.h>
#else
  #include <petscksp.h>
#endif

static PetscErrorCode Solve(PetscInt *iterations)
{
  const PetscInt     n = 200;
  Mat                A;
  Vec                x, b;
  KSP                ksp;
  PC                 pc;
  KSPConvergedReason reason;
  PetscInt           start, end;

  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_WORLD, &A));
  PetscCall(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n, n));
  PetscCall(MatSetFromOptions(A));
  PetscCall(MatSetUp(A));
  PetscCall(MatGetOwnershipRange(A, &start, &end));
  for (PetscInt row = start; row < end; row++) {
    PetscCall(MatSetValue(A, row, row, 2.1 + row % 5, INSERT_VALUES));
    if (row > 0) PetscCall(MatSetValue(A, row, row - 1, -1.0, INSERT_VALUES));
    if (row < n - 1) PetscCall(MatSetValue(A, row, row + 1, -1.0, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatCreateVecs(A, &x, &b));
  PetscCall(VecSet(b, 1.0));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPGetPC(ksp, &pc));
#if defined(FINEPC_LINKED)
  {
    PetscInt steps;

    PetscCall(PCSetType(pc, PCAFSAI));
    PetscCall(PCAFSAISetMaxSteps(pc, 4));
    PetscCall(PCAFSAIGetMaxSteps(pc, &steps));
    PetscCheck(steps == 4, PETSC_COMM_WORLD, PETSC_ERR_PLIB, "max_steps is %" PetscInt_FMT, steps);
  }
#else
  PetscCall(PCSetType(pc, "afsai"));
#endif
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(KSPSolve(ksp, b, x));
  PetscCall(KSPGetConvergedReason(ksp, &reason));
  PetscCall(KSPGetIterationNumber(ksp, iterations));
  PetscCheck(reason > 0, PETSC_COMM_WORLD, PETSC_ERR_PLIB, "%s", KSPConvergedReasons[reason]);
  PetscCall(KSPDestroy(&ksp));
  PetscCall(MatDestroy(&A));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  for (int cycle = 1; cycle <= 3; cycle++) {
    PetscInt      iterations;
    PetscLogEvent event;

    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
#if defined(FINEPC_LINKED)
    PetscCall(FinePCInitializePackage());
    PetscCall(FinePCInitializePackage()); /* does nothing */
#endif
    PetscCall(Solve(&iterations));
    PetscCall(PetscLogEventGetId("AFSAIFactor", &event));
    PetscCheck(event > 0, PETSC_COMM_WORLD, PETSC_ERR_PLIB, "The log event is missing");
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "cycle %d: %" PetscInt_FMT " iterations\n", cycle, iterations));
    PetscCall(PetscFinalize());
  }
  MPI_Finalize();
  return 0;
}
