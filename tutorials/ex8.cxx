static char help[] = "Pressure in a reservoir of layers and channels, between two wells, with PCCMATCH.\n\
  -nx <nx>, -ny <ny>, -nz <nz>  : cells in each direction\n\
  -contrast <k>                 : permeability of the channels, 1 around them\n\n";

/*
   -div(k grad p) = q with finite volumes, 7 points, harmonic means of k on the faces. The channels wind through each layer at
   another place, and vertically rock lets a tenth through. Nothing passes the boundary. One well pumps water in, the other one
   holds the pressure, so that the matrix is definite.

   The matching of PCCMATCH follows the channels, since it prefers strong couplings: the contrast of the permeability hardly changes
   the number of iterations, while that of PCJACOBI or of incomplete factors grows with it.
*/
#include <petscdmda.h>
#include <finepc.h>

static PetscReal Permeability(const DMDALocalInfo *info, PetscInt i, PetscInt j, PetscInt k, PetscReal contrast)
{
  const PetscReal x = (i + 0.5) / (PetscReal)info->mx, y = (j + 0.5) / (PetscReal)info->my;
  const PetscReal place = 0.5 + 0.3 * PetscSinReal(6.0 * x + 1.7 * (PetscReal)k);

  return PetscAbsReal(y - place) < 0.12 ? contrast : 1.0;
}

static PetscErrorCode FillSystem(DM da, PetscReal contrast, Mat A, Vec b)
{
  static const PetscInt kSteps[6][3] = {{-1, 0, 0}, {1, 0, 0}, {0, -1, 0}, {0, 1, 0}, {0, 0, -1}, {0, 0, 1}};
  DMDALocalInfo         info;
  PetscScalar        ***q;

  PetscFunctionBeginUser;
  PetscCall(DMDAGetLocalInfo(da, &info));
  PetscCall(VecSet(b, 0.0));
  PetscCall(DMDAVecGetArray(da, b, &q));
  for (PetscInt k = info.zs; k < info.zs + info.zm; k++)
    for (PetscInt j = info.ys; j < info.ys + info.ym; j++)
      for (PetscInt i = info.xs; i < info.xs + info.xm; i++) {
        const PetscReal here      = Permeability(&info, i, j, k, contrast);
        MatStencil      row       = {k, j, i, 0}, columns[7];
        PetscScalar     values[7] = {0.0};
        PetscInt        count     = 1;

        columns[0] = row;
        for (const auto &step : kSteps) {
          const PetscInt to_i = i + step[0], to_j = j + step[1], to_k = k + step[2];

          if (to_i < 0 || to_i >= info.mx || to_j < 0 || to_j >= info.my || to_k < 0 || to_k >= info.mz) continue;
          const PetscReal there = Permeability(&info, to_i, to_j, to_k, contrast);
          const PetscReal face  = (step[2] ? 0.1 : 1.0) * 2.0 * here * there / (here + there);

          columns[count]  = {to_k, to_j, to_i, 0};
          values[count++] = -face;
          values[0] += face;
        }
        if (i == 0 && j == 0) q[k][j][i] = 1.0;                     /* the well that pumps */
        if (i == info.mx - 1 && j == info.my - 1) values[0] += 1.0; /* the well that holds the pressure at 0 */
        PetscCall(MatSetValuesStencil(A, 1, &row, count, columns, values, INSERT_VALUES));
      }
  PetscCall(DMDAVecRestoreArray(da, b, &q));
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  DM                 da;
  Mat                A;
  Vec                b, x, r;
  KSP                ksp;
  PC                 pc;
  PetscInt           nx = 30, ny = 30, nz = 10, iterations;
  PetscReal          contrast = 1000.0, norm, b_norm;
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-nx", &nx, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-ny", &ny, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-nz", &nz, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-contrast", &contrast, NULL));
  PetscCall(DMDACreate3d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, nx, ny, nz,
                         PETSC_DECIDE, PETSC_DECIDE, PETSC_DECIDE, 1, 1, NULL, NULL, NULL, &da));
  PetscCall(DMSetFromOptions(da));
  PetscCall(DMSetUp(da));
  PetscCall(DMCreateMatrix(da, &A));
  PetscCall(DMCreateGlobalVector(da, &b));
  PetscCall(VecDuplicate(b, &x));
  PetscCall(VecDuplicate(b, &r));
  PetscCall(FillSystem(da, contrast, A, b));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, KSPCGFUSED));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCCMATCH));
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(KSPSolve(ksp, b, x));

  PetscCall(KSPGetConvergedReason(ksp, &reason));
  PetscCall(KSPGetIterationNumber(ksp, &iterations));
  PetscCall(MatMult(A, x, r));
  PetscCall(VecAYPX(r, -1.0, b));
  PetscCall(VecNorm(r, NORM_2, &norm));
  PetscCall(VecNorm(b, NORM_2, &b_norm));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s after %" PetscInt_FMT " iterations\n", reason > 0 ? "Converged" : "Did not converge",
                        iterations));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "True residual %.1e\n", (double)(norm / b_norm)));

  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&r));
  PetscCall(MatDestroy(&A));
  PetscCall(DMDestroy(&da));
  PetscCall(PetscFinalize());
  return 0;
}

/*TEST

   test:
      suffix: contrast
      args: -contrast {{1 1000 1000000}separate output}

   test:
      suffix: jacobi
      args: -pc_type jacobi

   test:
      suffix: smoother
      args: -pc_cmatch_smoother chebyshev4 -pc_cmatch_degree 2

   test:
      suffix: view
      args: -ksp_view
      filter: grep -e "type: cmatch" -e "coarsening by" -e "levels [0-9]" -e onverged

   test:
      suffix: ranks
      nsize: 2

   test:
      suffix: cuda
      requires: cuda
      args: -dm_mat_type aijcusparse -dm_vec_type cuda -contrast 1000
      output_file: output/ex8_contrast_contrast-1000.out

TEST*/
