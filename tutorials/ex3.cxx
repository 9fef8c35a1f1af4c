static char help[] = "Heat flow in a fibre-reinforced plate in time, with PCSFSAI on a pattern that the program gives it.\n\
  -n <n>      : grid points in each direction\n\
  -steps <k>  : time steps\n\
  -dt <dt>    : length of a time step\n\
  -reach <r>  : neighbours along the fibres in the pattern; 0 leaves the pattern to the options\n\n";

/*
   Along the fibres, which are the lines of the grid, heat flows a hundred times better than across. The inverse of such a matrix
   is large along the lines, and whoever assembles the matrix knows it: the pattern of the preconditioner's factor G is told,
   not computed. The conductivity changes with time, so that every step of the implicit Euler method has other values at the
   same places: the first step makes the pattern, the others compute values alone, in the memory of the first.

   Without -reach, that is with -reach 0, the pattern is a power of the matrix, -pc_sfsai_power.
*/
#include <finepc.h>

/* Conductivity along the fibres, which wears off towards the middle of the plate, and 1 across. */
static PetscReal Conductivity(PetscReal y, PetscReal t)
{
  return 100.0 / (1.0 + 4.0 * t * PetscExpReal(-20.0 * (y - 0.5) * (y - 0.5)));
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
      const PetscReal flow = dt / (h * h) * (dx ? Conductivity(h * iy, t) : 1.0);
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

/* The points before each point of its own line, as far as `reach`, and its neighbour on the line before. Values do not matter. */
static PetscErrorCode CreatePattern(Mat A, PetscInt n, PetscInt reach, Mat *pattern)
{
  PetscInt rows, start, end;

  PetscFunctionBeginUser;
  PetscCall(MatGetLocalSize(A, &rows, NULL));
  PetscCall(MatGetOwnershipRange(A, &start, &end));
  PetscCall(MatCreateAIJ(PetscObjectComm((PetscObject)A), rows, rows, n * n, n * n, reach + 2, NULL, 1, NULL, pattern));
  PetscCall(MatSetOption(*pattern, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
  for (PetscInt row = start; row < end; row++) {
    for (PetscInt r = 0; r <= PetscMin(reach, row % n); r++) PetscCall(MatSetValue(*pattern, row, row - r, 1.0, INSERT_VALUES));
    if (row >= n) PetscCall(MatSetValue(*pattern, row, row - n, 1.0, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(*pattern, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*pattern, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  Mat       A, pattern;
  Vec       u, b;
  KSP       ksp;
  PC        pc;
  PetscInt  n = 40, steps = 5, reach = 6, start;
  PetscReal dt = 0.01, density, heat;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-steps", &steps, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-dt", &dt, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-reach", &reach, NULL));

  PetscCall(MatCreate(PETSC_COMM_WORLD, &A));
  PetscCall(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n * n, n * n));
  PetscCall(MatSetFromOptions(A));
  PetscCall(MatSeqAIJSetPreallocation(A, 5, NULL));
  PetscCall(MatMPIAIJSetPreallocation(A, 5, NULL, 4, NULL));

  /* at first one corner is hot */
  PetscCall(MatCreateVecs(A, &u, &b));
  PetscCall(VecGetOwnershipRange(u, &start, NULL));
  PetscCall(VecSet(u, 0.0));
  if (start == 0) PetscCall(VecSetValue(u, 0, (PetscScalar)(n * n), INSERT_VALUES));
  PetscCall(VecAssemblyBegin(u));
  PetscCall(VecAssemblyEnd(u));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCSFSAI));
  if (reach > 0) {
    PetscCall(CreatePattern(A, n, reach, &pattern));
    PetscCall(PCSFSAISetPattern(pc, pattern));
    PetscCall(MatDestroy(&pattern)); /* the preconditioner keeps it */
  }
  PetscCall(KSPSetFromOptions(ksp));

  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s\n", reach > 0 ? "Pattern of the program" : "Pattern of the options"));
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
  PetscCall(PCFinePCGetDensity(pc, &density));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "G has %.1f times the nonzeros of A\n", (double)density));

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
      suffix: power
      args: -reach 0 -pc_sfsai_power 4

   test:
      suffix: view
      args: -ksp_view
      filter: grep -e "pattern given by a matrix" -e "pattern kept from the last set-up" -e "Time step 5"

   test:
      suffix: no_reuse
      args: -pc_sfsai_reuse_pattern 0
      output_file: output/ex3_1.out

   test:
      suffix: 2
      nsize: 2

   test:
      suffix: cuda
      requires: cuda
      args: -mat_type aijcusparse
      output_file: output/ex3_1.out

TEST*/
