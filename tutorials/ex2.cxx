static char help[] = "Heat flow in a plate whose conductivity changes with time, with PCAFSAI set up by the program itself.\n\
  -n <n>      : grid points in each direction\n\
  -steps <k>  : time steps\n\
  -dt <dt>    : length of a time step\n\n";

/*
   Every step of the implicit Euler method solves (I + dt K(t)) u_new = u_old. K has the same nonzeros at all times and other
   values, so the pattern of the preconditioner's factor G is searched once and its values are computed anew in every step.

   The program links libfinepc: it says #include <finepc.h>, calls FinePCInitializePackage(), and uses the setters and getters.
*/
#include <finepc.h>

/* Conductivity between two points: a hot spot that wanders along the diagonal is insulating. */
static PetscReal Conductivity(PetscReal x, PetscReal y, PetscReal t)
{
  const PetscReal dx = x - t, dy = y - t;

  return 1.0 / (1.0 + 50.0 * PetscExpReal(-40.0 * (dx * dx + dy * dy)));
}

/* A = I + dt K(t) with K from 5 points; boundary points have no flow to the outside. */
static PetscErrorCode FillMatrix(Mat A, PetscInt n, PetscReal dt, PetscReal t)
{
  const PetscReal h = 1.0 / (PetscReal)n;
  PetscInt        start, end;

  PetscFunctionBeginUser;
  PetscCall(MatGetOwnershipRange(A, &start, &end));
  for (PetscInt row = start; row < end; row++) {
    const PetscInt ix = row % n, iy = row / n;
    PetscScalar    values[5]  = {1.0};
    PetscInt       columns[5] = {row}, count = 1;

    for (PetscInt side = 0; side < 4; side++) {
      const PetscInt dx = side == 0 ? -1 : side == 1 ? 1 : 0, dy = side == 2 ? -1 : side == 3 ? 1 : 0;
      if (ix + dx < 0 || ix + dx >= n || iy + dy < 0 || iy + dy >= n) continue;
      const PetscReal flow = dt / (h * h) * Conductivity(h * (ix + 0.5 * dx), h * (iy + 0.5 * dy), t);
      values[0] += flow;
      columns[count]  = row + dy * n + dx;
      values[count++] = -flow;
    }
    PetscCall(MatSetValues(A, 1, &row, count, columns, values, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  Mat       A, G;
  Vec       u, b;
  KSP       ksp;
  PC        pc;
  PetscInt  n = 40, steps = 5, max_steps, start, end;
  PetscReal dt = 0.05, density, heat;
  PetscBool reuse;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-steps", &steps, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-dt", &dt, NULL));

  PetscCall(MatCreate(PETSC_COMM_WORLD, &A));
  PetscCall(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n * n, n * n));
  PetscCall(MatSetFromOptions(A));
  PetscCall(MatSeqAIJSetPreallocation(A, 5, NULL));
  PetscCall(MatMPIAIJSetPreallocation(A, 5, NULL, 4, NULL));

  /* at first one corner is hot */
  PetscCall(MatCreateVecs(A, &u, &b));
  PetscCall(VecGetOwnershipRange(u, &start, &end));
  PetscCall(VecSet(u, 0.0));
  if (start == 0) PetscCall(VecSetValue(u, 0, (PetscScalar)(n * n), INSERT_VALUES));
  PetscCall(VecAssemblyBegin(u));
  PetscCall(VecAssemblyEnd(u));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCAFSAI));
  PetscCall(PCAFSAISetMaxSteps(pc, 15));
  PetscCall(PCAFSAISetReusePattern(pc, PETSC_TRUE));
  PetscCall(KSPSetFromOptions(ksp)); /* options override what is set above */

  PetscCall(PCAFSAIGetMaxSteps(pc, &max_steps));
  PetscCall(PCAFSAIGetReusePattern(pc, &reuse));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "At most %" PetscInt_FMT " steps per row, pattern %s\n", max_steps,
                        reuse ? "kept" : "searched in every time step"));

  for (PetscInt step = 1; step <= steps; step++) {
    KSPConvergedReason reason;
    PetscInt           iterations;

    PetscCall(FillMatrix(A, n, dt, (PetscReal)step / (PetscReal)steps));
    PetscCall(VecCopy(u, b));
    PetscCall(KSPSolve(ksp, b, u));
    PetscCall(KSPGetConvergedReason(ksp, &reason));
    PetscCall(KSPGetIterationNumber(ksp, &iterations));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "Time step %" PetscInt_FMT ": %s after %" PetscInt_FMT " iterations\n", step,
                          reason > 0 ? "converged" : "did not converge", iterations));
  }

  /* no heat is lost */
  PetscCall(VecSum(u, &heat));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "Mean temperature %.6f\n", (double)(heat / (n * n))));

  /* what it cost, and the factor itself */
  PetscCall(PCFinePCGetDensity(pc, &density));
  PetscCall(PCAFSAIGetFactors(pc, &G, NULL));
  PetscCall(MatGetSize(G, &start, NULL));
  PetscCall(
    PetscPrintf(PETSC_COMM_WORLD, "G has %" PetscInt_FMT " rows and %.1f times the nonzeros of A\n", start, (double)density));

  PetscCall(MatDestroy(&G));
  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&u));
  PetscCall(VecDestroy(&b));
  PetscCall(MatDestroy(&A));
  PetscCall(PetscFinalize());
  return 0;
}

/*TEST

   test:
      suffix: 1

   test:
      suffix: view
      args: -ksp_view
      filter: grep -e "pattern kept from the last set-up" -e "Time step 5"

   test:
      suffix: no_reuse
      args: -pc_afsai_reuse_pattern 0

   test:
      suffix: 2
      nsize: 2

   test:
      suffix: cuda
      requires: cuda
      args: -mat_type aijcusparse
      output_file: output/ex2_1.out

TEST*/
