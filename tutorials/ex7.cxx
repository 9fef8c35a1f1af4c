static char help[] = "A beam of three layers that is clamped at one end and bends under its weight, with PCAFSAI on a MATBAIJ.\n\
  -n <n>        : bricks along its height; its length has three times as many\n\
  -modulus <E>  : Young's modulus of the middle layer, 1 of the others\n\n";

/*
   Codes for structures assemble blocks of 3 x 3 entries, one for each pair of nodes, in a MATBAIJ. PCAFSAI works with single
   entries: it copies them out of the blocks, keeps the copy, and the view says so. The same program runs with -dm_mat_type aij, and
   on a GPU with -dm_mat_type baijcuda or aijcusparse and -dm_vec_type cuda.

   The factor is stronger the more steps its rows get, as long as the set-up pays: structures are worth more steps than the
   Laplacian.
*/
#include <finepc.h>
#include "elasticity.h"

int main(int argc, char **argv)
{
  DM                 da;
  Mat                A;
  Vec                b, x, r;
  KSP                ksp;
  PC                 pc;
  PetscInt           n       = 6, iterations;
  PetscReal          modulus = 100.0, norm, b_norm;
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-modulus", &modulus, NULL));
  PetscCall(CreateBeam(n, modulus, &da, &A, &b));
  PetscCall(VecDuplicate(b, &x));
  PetscCall(VecDuplicate(b, &r));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCAFSAI));
  PetscCall(PCAFSAISetMaxSteps(pc, 30));
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
      args: -dm_mat_type {{baij aij baijcuda}}

   test:
      suffix: jacobi
      args: -pc_type pbjacobi

   test:
      suffix: view
      args: -ksp_view
      filter: grep -e "blocks of" -e "type: .*baij" -e onverged

   test:
      suffix: sfsai
      args: -pc_type sfsai -ksp_type cgfused

   test:
      suffix: ranks
      nsize: 2

   test:
      suffix: cuda
      requires: cuda
      args: -dm_mat_type {{baijcuda aijcusparse}} -dm_vec_type cuda
      output_file: output/ex7_1.out

TEST*/
