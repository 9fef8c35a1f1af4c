static char help[] = "PETSc's algebraic multigrid, PCGAMG, with finepc's preconditioners as its smoothers, on the beam of ex7.\n\
  -n <n>        : bricks along its height; its length has three times as many\n\
  -modulus <E>  : Young's modulus of the middle layer, 1 of the others\n\n";

/*
   PCGAMG makes its levels and their smoothers while it is set up, and the smoothers read their options then: Chebyshev iterations
   (-mg_levels_ksp_type) with PCJACOBI (-mg_levels_pc_type), unless options say otherwise. This program writes these options itself,
   for one smoother after the other, each with a prefix of its own. In a program of yours the same is done by

     -pc_type gamg -mg_levels_ksp_chebyshev_esteig_steps 40 -mg_levels_pc_type afsai -mg_levels_pc_afsai_max_steps 5

   Chebyshev's bound of the spectrum comes from 40 steps in the set-up: PETSc's ten may miss single large eigenvalues, which afsai
   and sfsai leave where contrasts are strong, and the cycle would be indefinite.

   A smoother is applied on every level in every iteration, so that it should be cheap: a few entries in each row of the factor. On
   a GPU all of it is products of sparse matrices, as with PCJACOBI and unlike PCSOR.
*/
#include <finepc.h>
#include "elasticity.h"

static const char kSteps[] = "-mg_levels_ksp_chebyshev_esteig_steps 40";

static const char *const kSmoothers[][2] = {
  {"jacobi_", "-mg_levels_pc_type jacobi"},
  {"afsai_", "-mg_levels_pc_type afsai -mg_levels_pc_afsai_max_steps 5"},
  {"sfsai_", "-mg_levels_pc_type sfsai -mg_levels_pc_sfsai_power 1"},
};

/* Adds options to the database, each with the prefix. */
static PetscErrorCode SetOptions(const char prefix[], const char options[])
{
  PetscFunctionBeginUser;
  PetscCall(PetscOptionsPrefixPush(NULL, prefix));
  PetscCall(PetscOptionsInsertString(NULL, options));
  PetscCall(PetscOptionsPrefixPop(NULL));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  DM        da;
  Mat       A;
  Vec       b, x;
  PetscInt  n       = 6;
  PetscReal modulus = 100.0;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-modulus", &modulus, NULL));
  PetscCall(CreateBeam(n, modulus, &da, &A, &b));
  PetscCall(VecDuplicate(b, &x));

  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "-pc_type gamg %s and\n", kSteps));
  for (const auto &smoother : kSmoothers) {
    KSP                ksp;
    PC                 pc;
    PetscInt           iterations;
    KSPConvergedReason reason;

    PetscCall(SetOptions(smoother[0], kSteps));
    PetscCall(SetOptions(smoother[0], smoother[1]));
    PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
    PetscCall(KSPSetOptionsPrefix(ksp, smoother[0]));
    PetscCall(KSPSetOperators(ksp, A, A));
    PetscCall(KSPSetType(ksp, KSPCG));
    PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
    PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
    PetscCall(KSPGetPC(ksp, &pc));
    PetscCall(PCSetType(pc, PCGAMG));
    PetscCall(KSPSetFromOptions(ksp));
    PetscCall(KSPSolve(ksp, b, x));
    PetscCall(KSPGetConvergedReason(ksp, &reason));
    PetscCall(KSPGetIterationNumber(ksp, &iterations));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%-60s: %s after %" PetscInt_FMT " iterations\n", smoother[1],
                          reason > 0 ? "converged" : "did not converge", iterations));
    PetscCall(KSPDestroy(&ksp));
  }

  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&x));
  PetscCall(MatDestroy(&A));
  PetscCall(DMDestroy(&da));
  PetscCall(PetscFinalize());
  return 0;
}

/*TEST

   test:
      suffix: 1
      args: -dm_mat_type aij

   test:
      suffix: ranks
      nsize: 2
      args: -dm_mat_type aij

   test:
      suffix: cuda
      requires: cuda
      args: -dm_mat_type aijcusparse -dm_vec_type cuda
      output_file: output/ex11_1.out

TEST*/
