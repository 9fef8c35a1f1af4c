static char help[] = "Solves a symmetric positive definite linear system with CG.\n\
The matrix is read from a file or made by finite differences on a square or a cube.\n\
  -f <file> : matrix in PETSc's binary format\n\
  -dim <d>  : 2 or 3, dimension of the grid\n\
  -n <n>    : grid points in each direction\n\n";

/*
   An ordinary PETSc program: nothing in it knows about finepc. Preconditioners and solvers of finepc come with options alone,

     ./ex1 -dll_append /path/to/libfinepc.so -pc_type afsai

   and the same on a GPU with -mat_type aijcusparse.
*/
#include <petscksp.h>

/* 5 or 7 points, with Dirichlet boundary conditions */
static PetscErrorCode CreateLaplacian(PetscInt dim, PetscInt n, Mat *A)
{
  const PetscInt size[3] = {n, n, dim == 3 ? n : 1};
  const PetscInt step[3] = {1, n, n * n};
  PetscInt       start, end;

  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_WORLD, A));
  PetscCall(MatSetSizes(*A, PETSC_DECIDE, PETSC_DECIDE, size[0] * size[1] * size[2], size[0] * size[1] * size[2]));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatSeqAIJSetPreallocation(*A, 7, NULL));
  PetscCall(MatMPIAIJSetPreallocation(*A, 7, NULL, 6, NULL));
  PetscCall(MatSetUp(*A)); /* for other types */
  PetscCall(MatGetOwnershipRange(*A, &start, &end));
  for (PetscInt row = start; row < end; row++) {
    const PetscInt place[3] = {row % n, row / n % n, row / (n * n)};

    PetscCall(MatSetValue(*A, row, row, 2.0 * dim, INSERT_VALUES));
    for (PetscInt d = 0; d < dim; d++) {
      if (place[d] > 0) PetscCall(MatSetValue(*A, row, row - step[d], -1.0, INSERT_VALUES));
      if (place[d] < size[d] - 1) PetscCall(MatSetValue(*A, row, row + step[d], -1.0, INSERT_VALUES));
    }
  }
  PetscCall(MatAssemblyBegin(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

static PetscErrorCode LoadMatrix(const char file[], Mat *A)
{
  PetscViewer viewer;

  PetscFunctionBeginUser;
  PetscCall(PetscViewerBinaryOpen(PETSC_COMM_WORLD, file, FILE_MODE_READ, &viewer));
  PetscCall(MatCreate(PETSC_COMM_WORLD, A));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatLoad(*A, viewer));
  PetscCall(PetscViewerDestroy(&viewer));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  Mat                A;
  Vec                x, b, r;
  KSP                ksp;
  KSPConvergedReason reason;
  MatInfo            info;
  PetscInt           dim = 2, n = 30, rows, iterations;
  PetscReal          norm, b_norm;
  PetscBool          from_file;
  char               file[PETSC_MAX_PATH_LEN];

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-dim", &dim, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-f", file, sizeof(file), &from_file));
  PetscCheck(dim == 2 || dim == 3, PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT, "-dim is %" PetscInt_FMT ", but must be 2 or 3", dim);

  if (from_file) PetscCall(LoadMatrix(file, &A));
  else PetscCall(CreateLaplacian(dim, n, &A));
  PetscCall(MatGetSize(A, &rows, NULL));
  PetscCall(MatGetInfo(A, MAT_GLOBAL_SUM, &info));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "Rows %" PetscInt_FMT ", nonzeros %.0f\n", rows, (double)info.nz_used));

  /* a right-hand side that is in the range of A whatever A is: A times the vector of ones */
  PetscCall(MatCreateVecs(A, &x, &b));
  PetscCall(VecDuplicate(b, &r));
  PetscCall(VecSet(x, 1.0));
  PetscCall(MatMult(A, x, b));

  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, 10000));
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
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&r));
  PetscCall(MatDestroy(&A));
  PetscCall(PetscFinalize());
  return 0;
}

/*TEST

   test:
      suffix: jacobi
      args: -pc_type jacobi

   testset:
      args: -dll_append ${FINEPC_LIBRARY} -pc_type afsai
      test:
         suffix: afsai
      test:
         suffix: afsai_3d
         args: -dim 3 -n 15
      test:
         suffix: afsai_view
         args: -ksp_view
         filter: grep -e "type: afsai" -e "per row" -e "candidates" -e "precision" -e "row size" -e Kaporin
      test:
         suffix: afsai_steps
         args: -pc_afsai_max_steps {{0 5 20}separate output}
      test:
         suffix: afsai_ranks
         nsize: 2
         args: -ksp_view
         filter: grep -e block-local -e Rows -e onverge
      test:
         suffix: afsai_overlap
         nsize: 2
         args: -ksp_view -pc_afsai_overlap 1
         filter: grep -e block-local -e reaches -e gather -e Rows -e onverge
      test:
         suffix: afsai_smoother
         args: -pc_type gamg -mg_levels_pc_type afsai -mg_levels_ksp_chebyshev_esteig_steps 40
      test:
         suffix: afsai_cuda
         requires: cuda
         args: -mat_type aijcusparse -dim 3 -n 15
         output_file: output/ex1_afsai_3d.out

   testset:
      args: -dll_append ${FINEPC_LIBRARY} -pc_type sfsai
      test:
         suffix: sfsai
      test:
         suffix: sfsai_3d
         args: -dim 3 -n 15
      test:
         suffix: sfsai_view
         args: -ksp_view -pc_sfsai_power 4 -pc_sfsai_max_row 10 -pc_sfsai_postfilter 0.05
         filter: grep -e "type: sfsai" -e "of power" -e "precision" -e "row size" -e Kaporin -e "rows cut"
      test:
         suffix: sfsai_power
         args: -pc_sfsai_power {{0 1 3}separate output}
      test:
         suffix: sfsai_ranks
         nsize: 2
         args: -ksp_view
         filter: grep -e block-local -e Rows -e onverge
      test:
         suffix: sfsai_overlap
         nsize: 2
         args: -ksp_view -pc_sfsai_overlap 1
         filter: grep -e block-local -e reaches -e gather -e Rows -e onverge
      test:
         suffix: sfsai_smoother
         args: -pc_type gamg -mg_levels_pc_type sfsai -mg_levels_pc_sfsai_power 1 -mg_levels_ksp_chebyshev_esteig_steps 40
      test:
         suffix: sfsai_cuda
         requires: cuda
         args: -mat_type aijcusparse -dim 3 -n 15
         output_file: output/ex1_sfsai_3d.out

   testset:
      args: -dll_append ${FINEPC_LIBRARY} -ksp_type gmres -ksp_pc_side right -mat_block_size 5 -pc_type bisai
      test:
         suffix: bisai
         args: -mat_type {{aij baij baijcuda}}
         filter: grep onverge
      test:
         suffix: bisai_cuda_factor
         args: -pc_bisai_factor finepc
         filter: grep onverge
         output_file: output/ex1_bisai.out
      test:
         suffix: bisai_exact
         args: -pc_bisai_sweeps 100 -pc_bisai_factor_precision double
         filter: grep onverge
         output_file: output/ex1_bilu.out
      test:
         suffix: bisai_view
         args: -mat_type baij -ksp_view -pc_bisai_power 2
         filter: grep -e "type: bisai" -e patterns -e "factors by" -e "block rows" -e "Converged after"
      test:
         suffix: bisai_ranks
         nsize: 2
         args: -ksp_view
         filter: grep -e block-local -e Rows -e "Converged after"
      test:
         suffix: bisai_cuda
         requires: cuda
         args: -mat_type {{aijcusparse baijcuda}} -pc_bisai_factor {{petsc cuda}}
         filter: grep onverge
         output_file: output/ex1_bisai.out

   test:
      suffix: bilu
      args: -ksp_type gmres -ksp_pc_side right -mat_type baij -mat_block_size 5 -pc_type ilu
      filter: grep onverge

   testset:
      args: -dll_append ${FINEPC_LIBRARY} -ksp_type cgfused
      test:
         suffix: cgfused_jacobi
         args: -pc_type jacobi
         output_file: output/ex1_jacobi.out
      test:
         suffix: cgfused
         args: -pc_type afsai
         output_file: output/ex1_afsai.out
      test:
         suffix: cgfused_3d
         args: -pc_type sfsai -dim 3 -n 15 -ksp_cgfused_path general
         output_file: output/ex1_sfsai_3d.out
      test:
         suffix: cgfused_view
         args: -pc_type afsai -ksp_view
         filter: grep -e "type: cgfused" -e "path:" -e onverge
      test:
         suffix: cgfused_monitor
         args: -pc_type afsai -ksp_monitor -ksp_view
         filter: grep -e "^  [0-5] KSP Residual norm" -e "path:" -e onverge
      test:
         suffix: cgfused_ranks
         nsize: 2
         args: -pc_type afsai -ksp_view -ksp_cg_single_reduction {{0 1}separate output}
         filter: grep -e "type: cgfused" -e reduction -e "path:" -e Rows -e onverge
      test:
         suffix: cgfused_cuda
         requires: cuda
         args: -pc_type afsai -mat_type aijcusparse -dim 3 -n 15 -ksp_cgfused_path {{auto general graph resident}}
         output_file: output/ex1_afsai_3d.out
      test:
         suffix: cgfused_cuda_monitor
         requires: cuda
         args: -pc_type afsai -mat_type aijcusparse -ksp_monitor -ksp_view
         filter: grep -e "^  [0-5] KSP Residual norm" -e "path:" -e onverge
         output_file: output/ex1_cgfused_monitor.out

TEST*/
