#include "pc_support.h"

#include <petsc/private/petscimpl.h>

#include <algorithm>
#include <cmath>
#include <cstring>

const std::vector<Type> &Types()
{
  static const std::vector<Type> types = {
    {PCAFSAI,
     "AFSAIFactor",
     PCAFSAIGetFactors,
     {"-@max_steps 0", "-@max_steps 0 -@setup_precision double -@factor_precision double", "-@postfilter 1", "-@prefilter 1"},
     {"-@max_steps 1000 -@tolerance 0", "-@max_steps 0 -@initial_power 1000", "-@max_steps 100 -@step_size 10 -@tolerance 0"},
     "-@max_steps 4 -@initial_power 1",
     {"at most 20 steps of 1 per row, a row stops by gain, tolerance 0.001",
      "candidates ranked by decrease, first pattern of power 0, prefilter 0., postfilter 0."},
     {{"-@max_steps 3", [](PC pc) { return PCAFSAISetMaxSteps(pc, 3); }},
      {"-@step_size 3", [](PC pc) { return PCAFSAISetStepSize(pc, 3); }},
      {"-@tolerance 0.05", [](PC pc) { return PCAFSAISetTolerance(pc, 0.05); }},
      {"-@stop_rule ratio", [](PC pc) { return PCAFSAISetStopRule(pc, PC_AFSAI_STOP_RATIO); }},
      {"-@selection gradient -@max_steps 2",
       [](PC pc) { return (PetscErrorCode)(PCAFSAISetSelection(pc, PC_AFSAI_SELECTION_GRADIENT) || PCAFSAISetMaxSteps(pc, 2)); }},
      {"-@initial_power 2", [](PC pc) { return PCAFSAISetInitialPower(pc, 2); }},
      {"-@prefilter 0.2", [](PC pc) { return PCAFSAISetPrefilter(pc, 0.2); }},
      {"-@postfilter 0.2", [](PC pc) { return PCAFSAISetPostfilter(pc, 0.2); }},
      {"-@setup_precision double", [](PC pc) { return PCAFSAISetSetupPrecision(pc, FINEPC_DOUBLE); }},
      {"-@factor_precision double", [](PC pc) { return PCAFSAISetFactorPrecision(pc, FINEPC_DOUBLE); }}}},
    {PCSFSAI,
     "SFSAIFactor",
     PCSFSAIGetFactors,
     {"-@power 0", "-@power 0 -@setup_precision double -@factor_precision double", "-@postfilter 1", "-@prefilter 1",
      "-@max_row 1"},
     {"-@power 1000"},
     "-@power 1 -@postfilter 0.01",
     {"pattern of power 2, prefilter 0., postfilter 0., rows not capped"},
     {{"-@power 3", [](PC pc) { return PCSFSAISetPower(pc, 3); }},
      {"-@prefilter 0.2", [](PC pc) { return PCSFSAISetPrefilter(pc, 0.2); }},
      {"-@postfilter 0.2", [](PC pc) { return PCSFSAISetPostfilter(pc, 0.2); }},
      {"-@max_row 3", [](PC pc) { return PCSFSAISetMaxRow(pc, 3); }},
      {"-@setup_precision double", [](PC pc) { return PCSFSAISetSetupPrecision(pc, FINEPC_DOUBLE); }},
      {"-@factor_precision double", [](PC pc) { return PCSFSAISetFactorPrecision(pc, FINEPC_DOUBLE); }}}},
  };
  return types;
}

std::string Type::Keys(const std::string &options) const
{
  std::string keys;
  for (char c : options) keys += c == '@' ? "pc_" + std::string(name) + "_" : c == '#' ? name : std::string(1, c);
  return keys;
}

KSPObject MakeKSP(Mat A, const std::string &options, PCType type)
{
  const Options scope(options);
  KSPObject     ksp;
  PC            pc;
  MUST(KSPCreate(PetscObjectComm((PetscObject)A), ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetType(ksp, KSPCG));
  MUST(KSPSetTolerances(ksp, 1e-8, 0, PETSC_CURRENT, 10000));
  MUST(KSPGetPC(ksp, &pc));
  MUST(PCSetType(pc, type));
  MUST(KSPSetFromOptions(ksp));
  return ksp;
}

PCObject MakePC(Mat A, const std::string &options, PCType type)
{
  const Options scope(options);
  PCObject      pc;
  MUST(PCCreate(PetscObjectComm((PetscObject)A), pc.put()));
  MUST(PCSetType(pc, type));
  MUST(PCSetOperators(pc, A, A));
  MUST(PCSetFromOptions(pc));
  return pc;
}

KSPObject MakeKSP(Mat A, const Type &type, const std::string &options)
{
  return MakeKSP(A, type.Keys(options), type.name);
}

PCObject MakePC(Mat A, const Type &type, const std::string &options)
{
  return MakePC(A, type.Keys(options), type.name);
}

PC PCOf(KSP ksp)
{
  PC pc;
  MUST(KSPGetPC(ksp, &pc));
  return pc;
}

std::vector<double> Values(Vec x)
{
  const PetscScalar *array;
  PetscInt           n;
  MUST(VecGetLocalSize(x, &n));
  MUST(VecGetArrayRead(x, &array));
  const std::vector<double> values(array, array + n);
  MUST(VecRestoreArrayRead(x, &array));
  return values;
}

VecObject RightVec(Mat A, std::uint64_t seed)
{
  VecObject    x;
  PetscScalar *array;
  PetscInt     begin, end;
  Random       random(seed);
  MUST(MatCreateVecs(A, nullptr, x.put()));
  MUST(VecGetOwnershipRange(x, &begin, &end));
  MUST(VecGetArrayWrite(x, &array));
  for (PetscInt k = 0; k < end; k++) {
    const double value = random.Between(-1, 1);
    if (k >= begin) array[k - begin] = value;
  }
  MUST(VecRestoreArrayWrite(x, &array));
  return x;
}

std::vector<double> Applied(PC pc, bool transpose)
{
  Mat       A;
  VecObject y;
  MUST(PCGetOperators(pc, nullptr, &A));
  const VecObject x = RightVec(A);
  MUST(VecDuplicate(x, y.put()));
  MUST(VecSet(y, std::nan("")));
  if (transpose) MUST(PCApplyTranspose(pc, x, y));
  else MUST(PCApply(pc, x, y));
  return Values(y);
}

bool SameBits(const std::vector<double> &x, const std::vector<double> &y)
{
  return x.size() == y.size() && (x.empty() || !std::memcmp(x.data(), y.data(), x.size() * sizeof(double)));
}

bool Finite(const std::vector<double> &x)
{
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
}

double Difference(const std::vector<double> &x, const std::vector<double> &y)
{
  double worst = x.size() == y.size() ? 0 : 1, largest = 1e-300;
  for (size_t k = 0; k < std::min(x.size(), y.size()); k++) {
    const double off = std::fabs(x[k] - y[k]);
    worst            = off <= worst ? worst : off;
    largest          = std::max(largest, std::fabs(y[k]));
  }
  return worst / largest;
}

void SetConstantsNull(Mat A)
{
  MatNullSpace constants;
  MUST(MatNullSpaceCreate(PetscObjectComm((PetscObject)A), PETSC_TRUE, 0, nullptr, &constants));
  MUST(MatSetNullSpace(A, constants));
  MUST(MatNullSpaceDestroy(&constants));
}

Solution Solve(KSP ksp)
{
  Solution         solution;
  Mat              A;
  VecObject        x, r;
  PetscReal        norm, b_norm;
  const PetscReal *history;
  PetscInt         count;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  const VecObject b = RightVec(A, 2);
  MatNullSpace    null_space;
  MUST(MatGetNullSpace(A, &null_space));
  if (null_space) MUST(MatNullSpaceRemove(null_space, b));
  MUST(VecDuplicate(b, x.put()));
  MUST(VecDuplicate(b, r.put()));
  MUST(KSPSetResidualHistory(ksp, nullptr, 10000, PETSC_TRUE));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetConvergedReason(ksp, &solution.reason));
  MUST(KSPGetIterationNumber(ksp, &solution.iterations));
  MUST(KSPGetResidualHistory(ksp, &history, &count));
  solution.history.assign(history, history + count);
  MUST(MatMult(A, x, r));
  MUST(VecAYPX(r, -1, b));
  MUST(VecNorm(r, NORM_2, &norm));
  MUST(VecNorm(b, NORM_2, &b_norm));
  solution.true_residual = b_norm > 0 ? norm / b_norm : norm;
  return solution;
}

void ChangeValues(Mat A, double factor)
{
  PetscInt begin, end;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  MUST(MatSetOption(A, MAT_NEW_NONZERO_LOCATION_ERR, PETSC_TRUE));
  for (PetscInt row = begin; row < end; row++) MUST(MatSetValue(A, row, row, factor * (1 + row % 3), ADD_VALUES));
  MUST(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  MUST(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
}

const HostMatrix &Plate()
{
  static const HostMatrix A = RandomStencil(15, 12, 1, false, 77);
  return A;
}

void Touch(Mat A)
{
  MUST(PetscObjectStateIncrease((PetscObject)A));
}

PCInverse *InverseOf(PC pc)
{
  PetscErrorCode (*query)(PC, PCInverse **);
  PCInverse *inverse;
  MUST(PetscObjectQueryFunction((PetscObject)pc, kInverseQuery, &query));
  REQUIRE(query != nullptr);
  MUST(query(pc, &inverse));
  return inverse;
}

PetscReal ErrorOfDiagonal(PC pc, const Type &type)
{
  Mat       A;
  MatObject G, Gt, plain, product;
  VecObject diagonal;
  PetscReal norm;
  MUST(PCGetOperators(pc, nullptr, &A));
  MUST(type.get_factors(pc, G.put(), Gt.put()));
  MUST(MatConvert(A, MATAIJ, MAT_INITIAL_MATRIX, plain.put()));
  MUST(MatMatMatMult(G, plain, Gt, MAT_INITIAL_MATRIX, PETSC_DEFAULT, product.put()));
  MUST(MatCreateVecs(product, nullptr, diagonal.put()));
  MUST(MatGetDiagonal(product, diagonal));
  MUST(VecShift(diagonal, -1));
  MUST(VecNorm(diagonal, NORM_INFINITY, &norm));
  return norm;
}
