static char help[] = "Flow through a plate with round inclusions on a DMDA, with PCRRB, or with KSPRRBCG on one rank.\n\
  -nx <nx>, -ny <ny>   : points in each direction\n\
  -contrast <k>        : conductivity of the inclusions, 1 around them\n\
  -growth <g>          : what is there makes more of itself: rows of the matrix sum to less than 0\n\
  -closed              : no boundary lets anything through: the matrix is singular, its null space is the constants\n\n";

/*
   -div(k grad u) - g u = f with finite volumes, one at each point of the grid: 5 points, harmonic means of k on the faces. The left
   side is held at 0, the right side at 1, above and below nothing passes; with -closed nothing passes anywhere, and f is a source
   and a sink.

   The DM tells PCRRB the grid. Without -growth the matrix is a symmetric M-matrix, so that the pivots of PCRRB are positive,
   whatever k is; with -closed the last pivot is zero, and is left out. With -growth, if that is not too much, the pivots are
   positive, too, since PCRRB lifts rows that sum to less than 0.
*/
#include <petscdmda.h>
#include <finepc.h>

static PetscReal Conductivity(PetscReal x, PetscReal y, PetscReal contrast)
{
  const PetscReal dx = 5.0 * x - PetscFloorReal(5.0 * x) - 0.5, dy = 5.0 * y - PetscFloorReal(5.0 * y) - 0.5;

  return dx * dx + dy * dy < 0.1 ? contrast : 1.0;
}

static PetscErrorCode FillSystem(DM da, PetscReal contrast, PetscReal growth, PetscBool closed, Mat A, Vec b)
{
  DMDALocalInfo info;
  PetscScalar **f;

  PetscFunctionBeginUser;
  PetscCall(DMDAGetLocalInfo(da, &info));
  const PetscReal hx = 1.0 / (PetscReal)info.mx, hy = 1.0 / (PetscReal)info.my;
  PetscCall(DMDAVecGetArray(da, b, &f));
  for (PetscInt j = info.ys; j < info.ys + info.ym; j++) {
    for (PetscInt i = info.xs; i < info.xs + info.xm; i++) {
      const PetscReal here = Conductivity((i + 0.5) * hx, (j + 0.5) * hy, contrast);
      MatStencil      row, columns[5];
      PetscScalar     values[5] = {0.0};
      PetscInt        count     = 1;

      row.i = i;
      row.j = j;
      row.k = row.c = 0;
      columns[0]    = row;
      values[0]     = -growth * hx * hy;
      f[j][i]       = !closed ? 0.0 : i == 0 && j == 0 ? 1.0 : i == info.mx - 1 && j == info.my - 1 ? -1.0 : 0.0;
      for (PetscInt side = 0; side < 4; side++) {
        const PetscInt  to_i = i + (side == 0 ? -1 : side == 1 ? 1 : 0), to_j = j + (side == 2 ? -1 : side == 3 ? 1 : 0);
        const PetscReal through = side < 2 ? hy / hx : hx / hy;

        if (to_j < 0 || to_j >= info.my) continue;
        if (to_i < 0 || to_i >= info.mx) { /* half a volume away */
          if (closed) continue;
          values[0] += 2.0 * here * through;
          if (to_i > 0) f[j][i] += 2.0 * here * through;
          continue;
        }
        const PetscReal there = Conductivity((to_i + 0.5) * hx, (to_j + 0.5) * hy, contrast),
                        face  = 2.0 * here * there / (here + there) * through;

        columns[count]   = row;
        columns[count].i = to_i;
        columns[count].j = to_j;
        values[count++]  = -face;
        values[0] += face;
      }
      PetscCall(MatSetValuesStencil(A, 1, &row, count, columns, values, INSERT_VALUES));
    }
  }
  PetscCall(DMDAVecRestoreArray(da, b, &f));
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  if (closed) {
    MatNullSpace constants;

    PetscCall(MatNullSpaceCreate(PetscObjectComm((PetscObject)A), PETSC_TRUE, 0, NULL, &constants));
    PetscCall(MatSetNullSpace(A, constants));
    PetscCall(MatNullSpaceDestroy(&constants));
  }
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  DM                 da;
  Mat                A;
  Vec                b, x, r;
  KSP                ksp;
  PC                 pc;
  PetscInt           nx = 100, ny = 75, iterations;
  PetscReal          contrast = 1000.0, growth = 0.0, norm, b_norm;
  PetscBool          closed = PETSC_FALSE;
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-nx", &nx, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-ny", &ny, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-contrast", &contrast, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-growth", &growth, NULL));
  PetscCall(PetscOptionsGetBool(NULL, NULL, "-closed", &closed, NULL));

  PetscCall(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, nx, ny, PETSC_DECIDE,
                         PETSC_DECIDE, 1, 1, NULL, NULL, &da));
  PetscCall(DMSetFromOptions(da));
  PetscCall(DMSetUp(da));
  PetscCall(DMCreateMatrix(da, &A));
  PetscCall(DMCreateGlobalVector(da, &b));
  PetscCall(VecDuplicate(b, &x));
  PetscCall(VecDuplicate(b, &r));
  PetscCall(FillSystem(da, contrast, growth, closed, A, b));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A)); /* which knows the DM */
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCRRB));
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
      suffix: 1

   test:
      suffix: levels
      args: -pc_rrb_levels {{1 3 8 100}separate output}

   test:
      suffix: view
      args: -ksp_view -pc_rrb_levels 8
      filter: grep -e "type: rrb" -e "grid of" -e "levels" -e "coupling" -e onverge

   test:
      suffix: closed
      args: -closed -ksp_view
      filter: grep -e "zero pivots" -e onverge -e True

   testset:
      args: -growth 9 -ksp_view -pc_rrb_levels 100
      filter: grep -e "sum to less" -e "set-up failed" -e onverge
      test:
         suffix: growth
      test:
         suffix: growth_as_it_is
         args: -pc_rrb_lift 0

   test:
      suffix: ranks
      nsize: 2
      args: -ksp_view
      filter: grep -e "block-local" -e "grid of" -e onverge

   testset:
      args: -ksp_type rrbcg
      test:
         suffix: rrbcg
      test:
         suffix: rrbcg_closed
         args: -closed
      test:
         suffix: rrbcg_natural
         args: -ksp_norm_type natural -pc_rrb_levels 8
      test:
         suffix: rrbcg_monitor
         args: -ksp_monitor -ksp_view
         filter: grep -e "^  [0-3] KSP Residual norm" -e "Schur complement" -e onverge

   test:
      suffix: cuda
      requires: cuda
      args: -dm_mat_type aijcusparse -dm_vec_type cuda
      output_file: output/ex5_1.out

   test:
      suffix: rrbcg_cuda
      requires: cuda
      args: -dm_mat_type aijcusparse -dm_vec_type cuda -ksp_type rrbcg
      output_file: output/ex5_rrbcg.out

TEST*/
