static char help[] = "A flood that spreads over a dry plain, in time, with PCRRB and on one rank KSPRRBCG.\n\
  -nx <nx>, -ny <ny>  : points in each direction\n\
  -steps <k>          : time steps\n\
  -dt <dt>            : length of a time step\n\n";

/*
   h_t = div(k(h) grad h): water spreads faster where it is deeper, k = h^2 + 0.01. Every step of the implicit Euler method takes k
   from the depth before, and solves (I + dt K) h_new = h_old with 5 points. The matrix has other values in each step, so that a
   preconditioner whose set-up costs as little as a few iterations pays: PCRRB, which knows the grid from the DM.

   The guess is the depth before. KSPRRBCG makes the iterations of KSPCG with PCRRB on half of the points. It works on one rank;
   with several ranks the program takes KSPCG, and each rank factors its own part of the grid. Both test the norm of the residual
   here; their defaults differ.
*/
#include <petscdmda.h>
#include <finepc.h>

static PetscErrorCode FillMatrix(DM da, Vec depth, PetscReal dt, Mat A)
{
  DMDALocalInfo info;
  Vec           local;
  PetscScalar **h;

  PetscFunctionBeginUser;
  PetscCall(DMDAGetLocalInfo(da, &info));
  PetscCall(DMGetLocalVector(da, &local));
  PetscCall(DMGlobalToLocal(da, depth, INSERT_VALUES, local));
  PetscCall(DMDAVecGetArrayRead(da, local, &h));
  for (PetscInt j = info.ys; j < info.ys + info.ym; j++)
    for (PetscInt i = info.xs; i < info.xs + info.xm; i++) {
      MatStencil  row       = {0, j, i, 0}, columns[5];
      PetscScalar values[5] = {1.0};
      PetscInt    count     = 1;

      columns[0] = row;
      for (PetscInt side = 0; side < 4; side++) {
        const PetscInt to_i = i + (side == 0 ? -1 : side == 1 ? 1 : 0), to_j = j + (side == 2 ? -1 : side == 3 ? 1 : 0);

        if (to_i < 0 || to_i >= info.mx || to_j < 0 || to_j >= info.my) continue;
        const PetscReal middle = 0.5 * (h[j][i] + h[to_j][to_i]);
        const PetscReal flow   = dt * (middle * middle + 0.01) * (PetscReal)(side < 2 ? info.mx * info.mx : info.my * info.my);

        columns[count]  = {0, to_j, to_i, 0};
        values[count++] = -flow;
        values[0] += flow;
      }
      PetscCall(MatSetValuesStencil(A, 1, &row, count, columns, values, INSERT_VALUES));
    }
  PetscCall(DMDAVecRestoreArrayRead(da, local, &h));
  PetscCall(DMRestoreLocalVector(da, &local));
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

/* At first water stands in a square near a corner. */
static PetscErrorCode FillDepth(DM da, Vec depth)
{
  DMDALocalInfo info;
  PetscScalar **h;

  PetscFunctionBeginUser;
  PetscCall(DMDAGetLocalInfo(da, &info));
  PetscCall(DMDAVecGetArray(da, depth, &h));
  for (PetscInt j = info.ys; j < info.ys + info.ym; j++)
    for (PetscInt i = info.xs; i < info.xs + info.xm; i++)
      h[j][i] = 10 * i > info.mx && 10 * i < 4 * info.mx && 10 * j > info.my && 10 * j < 4 * info.my ? 1.0 : 0.0;
  PetscCall(DMDAVecRestoreArray(da, depth, &h));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  DM          da;
  Mat         A;
  Vec         h, b;
  KSP         ksp;
  PC          pc;
  PetscMPIInt ranks;
  PetscInt    nx = 100, ny = 80, steps = 5;
  PetscReal   dt = 0.01;
  PetscScalar before, water;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-nx", &nx, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-ny", &ny, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-steps", &steps, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-dt", &dt, NULL));
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &ranks));
  PetscCall(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, nx, ny, PETSC_DECIDE,
                         PETSC_DECIDE, 1, 1, NULL, NULL, &da));
  PetscCall(DMSetFromOptions(da));
  PetscCall(DMSetUp(da));
  PetscCall(DMCreateMatrix(da, &A));
  PetscCall(DMCreateGlobalVector(da, &h));
  PetscCall(VecDuplicate(h, &b));
  PetscCall(FillDepth(da, h));
  PetscCall(VecSum(h, &before));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, ranks == 1 ? KSPRRBCG : KSPCG));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  PetscCall(KSPSetInitialGuessNonzero(ksp, PETSC_TRUE));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCRRB));
  PetscCall(KSPSetFromOptions(ksp));

  for (PetscInt step = 1; step <= steps; step++) {
    KSPConvergedReason reason;
    PetscInt           iterations;

    PetscCall(FillMatrix(da, h, dt, A));
    PetscCall(VecCopy(h, b));
    PetscCall(KSPSolve(ksp, b, h));
    PetscCall(KSPGetConvergedReason(ksp, &reason));
    PetscCall(KSPGetIterationNumber(ksp, &iterations));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "Time step %" PetscInt_FMT ": %s after %" PetscInt_FMT " iterations\n", step,
                          reason > 0 ? "converged" : "did not converge", iterations));
  }
  PetscCall(VecSum(h, &water)); /* no water is lost */
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "Water at the end %.6f of that at the beginning\n", (double)(water / before)));

  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&h));
  PetscCall(VecDestroy(&b));
  PetscCall(MatDestroy(&A));
  PetscCall(DMDestroy(&da));
  PetscCall(PetscFinalize());
  return 0;
}

/*TEST

   test:
      suffix: 1

   test:
      suffix: cg
      args: -ksp_type cg

   test:
      suffix: jacobi
      args: -ksp_type cg -pc_type jacobi

   test:
      suffix: ranks
      nsize: 2

   test:
      suffix: cuda
      requires: cuda
      args: -dm_mat_type aijcusparse -dm_vec_type cuda
      output_file: output/ex9_1.out

TEST*/
