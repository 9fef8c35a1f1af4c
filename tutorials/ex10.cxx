static char help[] = "Stokes flow in a cavity whose lid moves, with PCFIELDSPLIT and finepc for the velocities.\n\
  -n <n>  : cells in each direction\n\n";

/*
   -Laplace(u) + grad(p) = 0, div(u) = 0 in the unit square, on a staggered grid: u is on the vertical faces of the cells, v on the
   horizontal ones, p in their middle. The matrix is a MATNEST of [A B^T; B 0], all of it divided by h^2 or h so that A is the
   5-point Laplacian of u and of v, and B has the entries 1 and -1.

   finepc's types take single blocks, which is what PCFIELDSPLIT gives them: A is symmetric positive definite, and is preconditioned
   by PCCMATCH. The Schur complement B A^{-1} B^T is close to the minus in this scaling, which is the matrix that it is
   preconditioned with. The preconditioner is block-diagonal and definite, for KSPMINRES. Options of both are
   -fieldsplit_velocity_pc_type afsai and the like.
*/
#include <finepc.h>

/* Where the unknowns are: u (i, j) with 0 < i < n and 0 <= j < n, v (i, j) with 0 <= i < n and 0 < j < n, p (i, j). */
static PetscInt PlaceOfU(PetscInt n, PetscInt i, PetscInt j)
{
  return j * (n - 1) + i - 1;
}
static PetscInt PlaceOfV(PetscInt n, PetscInt i, PetscInt j)
{
  return n * (n - 1) + (j - 1) * n + i;
}

/* A and the right-hand side f of the velocities. A wall half a cell away doubles its coupling, and the lid moves with velocity 1.
 */
static PetscErrorCode FillVelocities(PetscInt n, Mat A, Vec f)
{
  PetscInt begin, end;

  PetscFunctionBeginUser;
  PetscCall(MatGetOwnershipRange(A, &begin, &end));
  for (PetscInt row = begin; row < end; row++) {
    const bool     is_u = row < n * (n - 1);
    const PetscInt k = is_u ? row : row - n * (n - 1), i = is_u ? k % (n - 1) + 1 : k % n, j = is_u ? k / (n - 1) : k / n + 1;
    PetscScalar    diagonal = 0.0;

    for (PetscInt side = 0; side < 4; side++) {
      const PetscInt to_i = i + (side == 0 ? -1 : side == 1 ? 1 : 0), to_j = j + (side == 2 ? -1 : side == 3 ? 1 : 0);
      const bool     on_wall   = is_u ? to_i == 0 || to_i == n : to_j == 0 || to_j == n; /* a velocity there is 0 */
      const bool     past_wall = is_u ? to_j < 0 || to_j == n : to_i < 0 || to_i == n;

      diagonal += past_wall ? 2.0 : 1.0;
      if (is_u && to_j == n) PetscCall(VecSetValue(f, row, 2.0, INSERT_VALUES));
      if (on_wall || past_wall) continue;
      PetscCall(MatSetValue(A, row, is_u ? PlaceOfU(n, to_i, to_j) : PlaceOfV(n, to_i, to_j), -1.0, INSERT_VALUES));
    }
    PetscCall(MatSetValue(A, row, row, diagonal, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscCall(VecAssemblyBegin(f));
  PetscCall(VecAssemblyEnd(f));
  PetscFunctionReturn(0);
}

/* B: minus what flows out of each cell */
static PetscErrorCode FillDivergence(PetscInt n, Mat B)
{
  PetscInt begin, end;

  PetscFunctionBeginUser;
  PetscCall(MatGetOwnershipRange(B, &begin, &end));
  for (PetscInt row = begin; row < end; row++) {
    const PetscInt i = row % n, j = row / n;

    if (i > 0) PetscCall(MatSetValue(B, row, PlaceOfU(n, i, j), 1.0, INSERT_VALUES));
    if (i < n - 1) PetscCall(MatSetValue(B, row, PlaceOfU(n, i + 1, j), -1.0, INSERT_VALUES));
    if (j > 0) PetscCall(MatSetValue(B, row, PlaceOfV(n, i, j), 1.0, INSERT_VALUES));
    if (j < n - 1) PetscCall(MatSetValue(B, row, PlaceOfV(n, i, j + 1), -1.0, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(B, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(B, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

static PetscErrorCode CreateMatrix(PetscInt rows, PetscInt columns, PetscInt entries, Mat *A)
{
  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_WORLD, A));
  PetscCall(MatSetSizes(*A, PETSC_DECIDE, PETSC_DECIDE, rows, columns));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatSeqAIJSetPreallocation(*A, entries, NULL));
  PetscCall(MatMPIAIJSetPreallocation(*A, entries, NULL, entries, NULL));
  PetscFunctionReturn(0);
}

/* The constants are the null space of the pressure. */
static PetscErrorCode SetNullSpace(Mat stokes)
{
  Vec          constant, *parts;
  MatNullSpace null_space;
  PetscInt     count;

  PetscFunctionBeginUser;
  PetscCall(MatNestSetVecType(stokes, VECNEST));
  PetscCall(MatCreateVecs(stokes, &constant, NULL));
  PetscCall(VecNestGetSubVecs(constant, &count, &parts));
  PetscCall(VecSet(parts[0], 0.0));
  PetscCall(VecSet(parts[1], 1.0));
  PetscCall(VecNormalize(constant, NULL));
  PetscCall(MatNullSpaceCreate(PETSC_COMM_WORLD, PETSC_FALSE, 1, &constant, &null_space));
  PetscCall(MatSetNullSpace(stokes, null_space));
  PetscCall(MatNullSpaceDestroy(&null_space));
  PetscCall(VecDestroy(&constant));
  PetscFunctionReturn(0);
}

/* An option for the solvers, unless the user has given it. */
static PetscErrorCode SetDefault(const char key[], const char value[])
{
  PetscBool given;

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsHasName(NULL, NULL, key, &given));
  if (!given) PetscCall(PetscOptionsSetValue(NULL, key, value));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  Mat                A, B, Bt, minus, stokes;
  Vec                f, g, b, x, r;
  IS                 fields[2];
  KSP                ksp;
  PC                 pc;
  PetscInt           n = 32, iterations;
  PetscReal          norm, b_norm;
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(CreateMatrix(2 * n * (n - 1), 2 * n * (n - 1), 5, &A));
  PetscCall(CreateMatrix(n * n, 2 * n * (n - 1), 4, &B));
  PetscCall(CreateMatrix(n * n, n * n, 1, &minus));
  PetscCall(MatAssemblyBegin(minus, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(minus, MAT_FINAL_ASSEMBLY));
  PetscCall(MatShift(minus, -1.0));
  PetscCall(MatCreateVecs(B, &f, &g));
  PetscCall(VecSet(f, 0.0));
  PetscCall(VecSet(g, 0.0));
  PetscCall(FillVelocities(n, A, f));
  PetscCall(FillDivergence(n, B));
  PetscCall(MatTranspose(B, MAT_INITIAL_MATRIX, &Bt));

  Mat blocks[4] = {A, Bt, B, NULL};
  Vec parts[2]  = {f, g};
  PetscCall(MatCreateNest(PETSC_COMM_WORLD, 2, NULL, 2, NULL, blocks, &stokes));
  PetscCall(VecCreateNest(PETSC_COMM_WORLD, 2, NULL, parts, &b));
  PetscCall(VecDuplicate(b, &x));
  PetscCall(VecDuplicate(b, &r));
  PetscCall(SetNullSpace(stokes));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, stokes, stokes));
  PetscCall(KSPSetType(ksp, KSPMINRES));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCFIELDSPLIT));
  PetscCall(MatNestGetISs(stokes, fields, NULL));
  PetscCall(PCFieldSplitSetIS(pc, "velocity", fields[0]));
  PetscCall(PCFieldSplitSetIS(pc, "pressure", fields[1]));
  PetscCall(PCFieldSplitSetType(pc, PC_COMPOSITE_SCHUR));
  PetscCall(PCFieldSplitSetSchurFactType(pc, PC_FIELDSPLIT_SCHUR_FACT_DIAG));
  PetscCall(PCFieldSplitSetSchurPre(pc, PC_FIELDSPLIT_SCHUR_PRE_USER, minus));
  PetscCall(SetDefault("-fieldsplit_pressure_ksp_type", KSPPREONLY)); /* PCFIELDSPLIT makes the solvers of its blocks later */
  PetscCall(SetDefault("-fieldsplit_pressure_pc_type", PCJACOBI));
  PetscCall(SetDefault("-fieldsplit_velocity_ksp_type", KSPPREONLY));
  PetscCall(SetDefault("-fieldsplit_velocity_pc_type", PCCMATCH));
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(KSPSolve(ksp, b, x));

  PetscCall(KSPGetConvergedReason(ksp, &reason));
  PetscCall(KSPGetIterationNumber(ksp, &iterations));
  PetscCall(MatMult(stokes, x, r));
  PetscCall(VecAYPX(r, -1.0, b));
  PetscCall(VecNorm(r, NORM_2, &norm));
  PetscCall(VecNorm(b, NORM_2, &b_norm));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s after %" PetscInt_FMT " iterations\n", reason > 0 ? "Converged" : "Did not converge",
                        iterations));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "True residual %.1e\n", (double)(norm / b_norm)));

  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&r));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&f));
  PetscCall(VecDestroy(&g));
  for (Mat *mat : {&stokes, &A, &B, &Bt, &minus}) PetscCall(MatDestroy(mat));
  PetscCall(PetscFinalize());
  return 0;
}

/*TEST

   testset:
      args: -fieldsplit_velocity_pc_type {{cmatch afsai jacobi}separate output}
      test:
         suffix: 1

   test:
      suffix: default
      args: -ksp_view
      filter: grep -e "type: cmatch" -e onverged

   test:
      suffix: ranks
      nsize: 2

   test:
      suffix: cuda
      requires: cuda
      args: -mat_type aijcusparse -fieldsplit_velocity_pc_type cmatch
      output_file: output/ex10_1_fieldsplit_velocity_pc_type-cmatch.out

TEST*/
