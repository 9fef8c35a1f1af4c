static char help[] = "Condition number and CG iterations of PCRRB against its levels, as figures 5.1 and 5.2 of the paper on the\n\
RRB-solver (de Jong, van der Ploeg, Ditzel, Vuik 2017).\n\
  -sizes <n,n,..>  : h^{-1} of the grids, which have n - 1 points a side; default 64,128,256\n\
  -levels <l,l,..> : levels of PCRRB; default 1 to the most that the largest grid allows\n\
  -rtol <rtol>     : of the iterations\n\
  -conditions      : whether condition numbers are computed; default true\n\
  -json <file>     : where results go\n\n";

/*
   The test problem of the paper's section 4.2: -Laplace(u) = f on the unit square, u = 0 on its boundary, 5 points, with f such
   that the discrete solution is x (x - 1) y (y - 1) exp(x y). Iterations begin with 0 and end when sqrt(r^T M^{-1} r) has come down
   by rtol, which gives the counts of the paper's table 5.3; the paper's own criterion is not legible in the copy at hand. The
   condition number is that of the Lanczos matrix of a second solve, for random numbers and to 1e-12.
*/
#include "stencil.h"
#include "text.h"

#include <finepc.h>

#include <nlohmann/json.hpp>

static PetscErrorCode CreatePoisson(PetscInt n, Mat *A)
{
  const Stencil  stencil = StarStencil(1., 1., 0.);
  const PetscInt grid[3] = {n, n, 1};

  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_SELF, A));
  PetscCall(MatSetSizes(*A, n * n, n * n, n * n, n * n));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatSeqAIJSetPreallocation(*A, 5, nullptr));
  for (PetscInt row = 0; row < n * n; row++) {
    PetscInt       columns[5];
    PetscScalar    values[5];
    const PetscInt count = StencilRow(stencil, grid, row, columns, values);

    PetscCall(MatSetValues(*A, 1, &row, count, columns, values, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatSetOption(*A, MAT_SPD, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Row {
  PetscInt  inverse_h, levels, iterations;
  PetscReal condition;
};

static Json ReportJson(PetscReal rtol, const std::vector<Row> &results)
{
  Json json, list = Json::array();

  for (const auto &result : results) {
    Json row;

    row["inverse_h"]  = result.inverse_h;
    row["levels"]     = result.levels;
    row["iterations"] = result.iterations;
    row["condition"]  = Rounded(result.condition, 6);
    list.push_back(row);
  }
  json["rtol"]    = Rounded(rtol, 6);
  json["results"] = list;
  return json;
}

int main(int argc, char **argv)
{
  PetscInt         sizes[16] = {64, 128, 256}, levels[64], size_count = 16, level_count = 64;
  PetscReal        rtol = 1e-6;
  PetscBool        given, conditions = PETSC_TRUE;
  char             path[PETSC_MAX_PATH_LEN] = "";
  std::vector<Row> results;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, nullptr, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetIntArray(nullptr, nullptr, "-sizes", sizes, &size_count, &given));
  if (!given) size_count = 3;
  PetscCall(PetscOptionsGetIntArray(nullptr, nullptr, "-levels", levels, &level_count, &given));
  if (!given) level_count = 0;
  PetscCall(PetscOptionsGetReal(nullptr, nullptr, "-rtol", &rtol, nullptr));
  PetscCall(PetscOptionsGetBool(nullptr, nullptr, "-conditions", &conditions, nullptr));
  PetscCall(PetscOptionsGetString(nullptr, nullptr, "-json", path, sizeof(path), nullptr));

  for (PetscInt s = 0; s < size_count; s++) {
    const PetscInt n = sizes[s] - 1;
    Mat            A;
    Vec            u, b, x;

    PetscCall(CreatePoisson(n, &A));
    PetscCall(MatCreateVecs(A, &u, &b));
    PetscCall(VecDuplicate(u, &x));
    PetscInt most = 1;
    for (PetscInt reach = 1; reach < n; reach *= 2) most += 2;
    const PetscInt count = level_count ? level_count : most;
    for (PetscInt k = 0; k < count; k++) {
      Row         result{sizes[s], level_count ? levels[k] : k + 1, 0, 1};
      KSP         ksp;
      PC          pc;
      PetscRandom random;
      PetscReal   largest, smallest;

      if (result.levels > most) continue;
      PetscCall(KSPCreate(PETSC_COMM_SELF, &ksp));
      PetscCall(KSPSetOperators(ksp, A, A));
      PetscCall(KSPSetType(ksp, KSPCG));
      PetscCall(KSPSetNormType(ksp, KSP_NORM_NATURAL));
      PetscCall(KSPSetComputeSingularValues(ksp, PETSC_TRUE));
      PetscCall(KSPSetTolerances(ksp, rtol, 0, PETSC_CURRENT, 1000));
      PetscCall(KSPGetPC(ksp, &pc));
      PetscCall(PCSetType(pc, PCRRB));
      PetscCall(PCRRBSetNx(pc, n));
      PetscCall(PCRRBSetLevels(pc, result.levels));
      PetscCall(KSPSetFromOptions(ksp));
      PetscCall(KSPSetErrorIfNotConverged(ksp, PETSC_TRUE));
      PetscCall(FillTestSolution(n, u));
      PetscCall(MatMult(A, u, b));
      PetscCall(KSPSolve(ksp, b, x));
      PetscCall(KSPGetIterationNumber(ksp, &result.iterations));
      if (conditions && result.iterations > 1) {
        PetscCall(PetscRandomCreate(PETSC_COMM_SELF, &random));
        PetscCall(VecSetRandom(b, random));
        PetscCall(PetscRandomDestroy(&random));
        PetscCall(KSPSetTolerances(ksp, 1e-12, 0, PETSC_CURRENT, 1000));
        PetscCall(KSPSolve(ksp, b, x));
        PetscCall(KSPComputeExtremeSingularValues(ksp, &largest, &smallest));
        result.condition = largest / smallest;
      }
      PetscCall(PetscPrintf(PETSC_COMM_SELF,
                            "1/h %5" PetscInt_FMT ", levels %2" PetscInt_FMT " of %2" PetscInt_FMT ": %3" PetscInt_FMT
                            " iterations, condition number %.4f\n",
                            result.inverse_h, result.levels, most, result.iterations, (double)result.condition));
      results.push_back(result);
      PetscCall(KSPDestroy(&ksp));
    }
    PetscCall(VecDestroy(&u));
    PetscCall(VecDestroy(&b));
    PetscCall(VecDestroy(&x));
    PetscCall(MatDestroy(&A));
  }
  if (path[0]) PetscCall(WriteJson(path, ReportJson(rtol, results)));
  PetscCall(PetscFinalize());
  return 0;
}
