static char help[] = "Types of finepc under names of one's own, and a preconditioner that is built around one of them.\n\
  -n <n>       : grid points in each direction\n\
  -layers <k>  : layers of the wall\n\n";

/*
   A C program that links libfinepc. It registers the types that it uses by itself, with the functions that create them, and never
   calls FinePCInitializePackage(): the first object of such a type does so.

     own_afsai : PCAFSAI, under another name
     own_cg    : KSPCGFUSED, under another name
     layers    : own_afsai and a coarse space. The wall below has layers that hardly touch each other, so that the temperature of
   each settles by itself, and aFSAI, which couples points that are near each other, does not see how warm a layer is as a whole. P
   has a column for each layer, with ones in its rows, and M^{-1} = G^T G + P (P^T A P)^{-1} P^T.

   `layers` is a PCSHELL, which needs no private header of PETSc: PCCreate_Layers() makes the preconditioner a shell and gives it
   the context and the functions. Options of the aFSAI within it begin with -local_, such as -local_pc_afsai_max_steps.
*/
#include <finepc.h>

enum { LAYERS = 6 }; /* unless -layers says otherwise */

typedef struct {
  PC  local;  /* own_afsai */
  Mat P, A_c; /* P^T A P */
  KSP coarse; /* solves with it */
  Vec c, e;   /* P^T x and the coarse solution */
} Layers;

static PetscInt LayerOf(PetscInt row, PetscInt n, PetscInt layers)
{
  return row / n * layers / n;
}

static PetscErrorCode CreateProlongator(Mat A, PetscInt layers, Mat *P)
{
  PetscInt rows, local, begin, end, n = 1;

  PetscFunctionBeginUser;
  PetscCall(MatGetSize(A, &rows, NULL));
  PetscCall(MatGetOwnershipRange(A, &begin, &end));
  local = end - begin;
  while (n * n < rows) n++;
  PetscCall(MatCreateAIJ(PetscObjectComm((PetscObject)A), local, PETSC_DECIDE, rows, layers, 1, NULL, 1, NULL, P));
  for (PetscInt row = begin; row < end; row++) PetscCall(MatSetValue(*P, row, LayerOf(row, n, layers), 1.0, INSERT_VALUES));
  PetscCall(MatAssemblyBegin(*P, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*P, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

static PetscErrorCode SetUp_Layers(PC pc)
{
  Layers        *s;
  Mat            A, B;
  PC             inner;
  const char    *prefix;
  PetscInt       layers = LAYERS;
  PCFailedReason reason;

  PetscFunctionBeginUser;
  PetscCall(PCShellGetContext(pc, &s));
  PetscCall(PCGetOperators(pc, &A, &B));
  PetscCall(PCSetOperators(s->local, A, B));
  if (!s->P) {
    PetscCall(PCGetOptionsPrefix(pc, &prefix));
    PetscCall(PCSetOptionsPrefix(s->local, prefix));
    PetscCall(PCAppendOptionsPrefix(s->local, "local_"));
    PetscCall(PCSetFromOptions(s->local));
    PetscCall(PetscOptionsGetInt(NULL, NULL, "-layers", &layers, NULL));
    PetscCall(CreateProlongator(B, layers, &s->P));
    PetscCall(MatPtAP(B, s->P, MAT_INITIAL_MATRIX, PETSC_DETERMINE, &s->A_c));
    PetscCall(MatCreateVecs(s->P, &s->e, NULL));
    PetscCall(VecDuplicate(s->e, &s->c));
    PetscCall(KSPSetType(s->coarse, KSPPREONLY));
    PetscCall(KSPGetPC(s->coarse, &inner));
    PetscCall(PCSetType(inner, PCREDUNDANT));
  } else PetscCall(MatPtAP(B, s->P, MAT_REUSE_MATRIX, PETSC_DETERMINE, &s->A_c));
  PetscCall(KSPSetOperators(s->coarse, s->A_c, s->A_c));
  PetscCall(PCSetUp(s->local));
  PetscCall(PCGetFailedReason(s->local, &reason));
  PetscCall(PCSetFailedReason(pc, reason));
  PetscFunctionReturn(0);
}

static PetscErrorCode Apply_Layers(PC pc, Vec x, Vec y)
{
  Layers *s;

  PetscFunctionBeginUser;
  PetscCall(PCShellGetContext(pc, &s));
  PetscCall(PCApply(s->local, x, y));
  PetscCall(MatMultTranspose(s->P, x, s->c));
  PetscCall(KSPSolve(s->coarse, s->c, s->e));
  PetscCall(MatMultAdd(s->P, s->e, y, y));
  PetscFunctionReturn(0);
}

static PetscErrorCode View_Layers(PC pc, PetscViewer viewer)
{
  Layers *s;

  PetscFunctionBeginUser;
  PetscCall(PCShellGetContext(pc, &s));
  PetscCall(PetscViewerASCIIPushTab(viewer));
  PetscCall(PCView(s->local, viewer));
  PetscCall(PetscViewerASCIIPopTab(viewer));
  PetscFunctionReturn(0);
}

static PetscErrorCode Destroy_Layers(PC pc)
{
  Layers *s;

  PetscFunctionBeginUser;
  PetscCall(PCShellGetContext(pc, &s));
  PetscCall(PCDestroy(&s->local));
  PetscCall(KSPDestroy(&s->coarse));
  PetscCall(MatDestroy(&s->P));
  PetscCall(MatDestroy(&s->A_c));
  PetscCall(VecDestroy(&s->c));
  PetscCall(VecDestroy(&s->e));
  PetscCall(PetscFree(s));
  PetscFunctionReturn(0);
}

static PetscErrorCode PCCreate_Layers(PC pc)
{
  Layers *s;

  PetscFunctionBeginUser;
  PetscCall(PetscNew(&s));
  PetscCall(PCCreate(PetscObjectComm((PetscObject)pc), &s->local));
  PetscCall(PCSetType(s->local, "own_afsai"));
  PetscCall(KSPCreate(PetscObjectComm((PetscObject)pc), &s->coarse));
  PetscCall(PCSetType(pc, PCSHELL));
  PetscCall(PCShellSetName(pc, "layers"));
  PetscCall(PCShellSetContext(pc, s));
  PetscCall(PCShellSetSetUp(pc, SetUp_Layers));
  PetscCall(PCShellSetApply(pc, Apply_Layers));
  PetscCall(PCShellSetView(pc, View_Layers));
  PetscCall(PCShellSetDestroy(pc, Destroy_Layers));
  PetscFunctionReturn(0);
}

/* Heat in a wall, 5 points: nothing passes its left and right side, above and below it is held at 0, between layers little passes.
 */
static PetscErrorCode CreateWall(PetscInt n, PetscInt layers, Mat *A)
{
  PetscInt begin, end;

  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_WORLD, A));
  PetscCall(MatSetSizes(*A, PETSC_DECIDE, PETSC_DECIDE, n * n, n * n));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatSeqAIJSetPreallocation(*A, 5, NULL));
  PetscCall(MatMPIAIJSetPreallocation(*A, 5, NULL, 4, NULL));
  PetscCall(MatGetOwnershipRange(*A, &begin, &end));
  for (PetscInt row = begin; row < end; row++) {
    const PetscInt steps[4] = {-1, 1, -n, n};
    PetscScalar    diagonal = 0.0;

    for (PetscInt side = 0; side < 4; side++) {
      const PetscInt to = row + steps[side];

      if ((side == 0 && row % n == 0) || (side == 1 && row % n == n - 1)) continue;
      const PetscBool   outside = (PetscBool)(to < 0 || to >= n * n);
      const PetscScalar passes  = outside || LayerOf(to, n, layers) != LayerOf(row, n, layers) ? 1e-4 : 1.0;

      diagonal += passes;
      if (!outside) PetscCall(MatSetValue(*A, row, to, -passes, INSERT_VALUES));
    }
    PetscCall(MatSetValue(*A, row, row, diagonal, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  Mat                A;
  Vec                b, x, r;
  KSP                ksp;
  PC                 pc;
  PetscInt           n = 60, layers = LAYERS, iterations;
  PetscReal          norm, b_norm;
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(PCRegister("own_afsai", PCCreate_AFSAI));
  PetscCall(KSPRegister("own_cg", KSPCreate_CGFused));
  PetscCall(PCRegister("layers", PCCreate_Layers));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-layers", &layers, NULL));

  PetscCall(CreateWall(n, layers, &A));
  PetscCall(MatCreateVecs(A, &x, &b));
  PetscCall(VecDuplicate(b, &r));
  PetscCall(VecSetRandom(x, NULL));
  PetscCall(MatMult(A, x, b));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, "own_cg"));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(ksp, 1e-8, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, "own_afsai"));
  PetscCall(PCAFSAISetMaxSteps(pc, 10)); /* does nothing once -pc_type has chosen a type that has no steps */
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
  PetscCall(PetscFinalize());
  return 0;
}

/*TEST

   test:
      suffix: 1

   test:
      suffix: view
      args: -ksp_view -log_view
      filter: awk '/type:|at most|onverged/ {print} /^AFSAIFactor / {print $1, $2}'

   test:
      suffix: own_name
      args: -pc_type afsai -pc_afsai_max_steps 10
      output_file: output/ex6_1.out

   test:
      suffix: layers
      args: -pc_type layers -local_pc_afsai_max_steps 10

   test:
      suffix: layers_view
      args: -pc_type layers -layers 10 -ksp_view -options_left
      filter: grep -e "  layers" -e "type:" -e onverged -e "not used"

   test:
      suffix: layers_ranks
      nsize: 2
      args: -pc_type layers -local_pc_afsai_max_steps 10

   test:
      suffix: cuda
      requires: cuda
      args: -mat_type aijcusparse
      output_file: output/ex6_1.out

TEST*/
