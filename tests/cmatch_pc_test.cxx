/*
   What PCCMATCH has beyond what all preconditioners do, which local_pc_test.cxx tests: the matrices of its levels, the near null
   space, what a refill keeps, where the coarsening ends, what cannot be preconditioned, and what the view says about all that.
*/
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

#include "pc/cmatch/polynomial.h"
#include "spread.h"

namespace
{

PetscInt Rows(Mat A)
{
  PetscInt rows;
  MUST(MatGetSize(A, &rows, nullptr));
  return rows;
}

PetscInt Nonzeros(Mat A)
{
  MatInfo info;
  MUST(MatGetInfo(A, MAT_LOCAL, &info));
  return (PetscInt)info.nz_used;
}

/* The Frobenius norm of factor X - Y relative to that of Y. */
double Error(Mat X, double factor, Mat Y)
{
  MatObject difference;
  PetscReal norm, of_Y;
  MUST(MatDuplicate(X, MAT_COPY_VALUES, difference.put()));
  MUST(MatScale(difference, factor));
  MUST(MatAXPY(difference, -1, Y, DIFFERENT_NONZERO_PATTERN));
  MUST(MatNorm(difference, NORM_FROBENIUS, &norm));
  MUST(MatNorm(Y, NORM_FROBENIUS, &of_Y));
  return norm / of_Y;
}

/* The largest error of factor P_l^T A_l P_l over the levels, as the operators of the next levels. */
double ErrorOfGalerkin(const Levels &levels)
{
  double worst = 0;
  for (size_t l = 0; l + 1 < levels.A.size(); l++) {
    MatObject product;
    MUST(MatPtAP(levels.A[l], levels.P[l], MAT_INITIAL_MATRIX, PETSC_DEFAULT, product.put()));
    const double error = Error(product, 1, levels.A[l + 1]);
    worst              = error <= worst ? worst : error; /* NaN counts, too */
  }
  return worst;
}

/* The rows of a Mat on one rank: columns, and where values matter, values. */
std::vector<std::vector<PetscInt>> Columns(Mat A)
{
  std::vector<std::vector<PetscInt>> rows(Rows(A));
  for (PetscInt row = 0; row < (PetscInt)rows.size(); row++) {
    PetscInt        length;
    const PetscInt *columns;
    MUST(MatGetRow(A, row, &length, &columns, nullptr));
    rows[row].assign(columns, columns + length);
    MUST(MatRestoreRow(A, row, &length, &columns, nullptr));
  }
  return rows;
}

/* P 1, minus a vector, in its largest entry; a vector that is null is the vector of ones. */
double ErrorOfRange(Mat P, Vec w)
{
  VecObject ones, product;
  PetscReal worst;
  MUST(MatCreateVecs(P, ones.put(), product.put()));
  MUST(VecSet(ones, 1));
  MUST(MatMult(P, ones, product));
  if (w) MUST(VecAXPY(product, -1, w));
  else MUST(VecShift(product, -1));
  MUST(VecNorm(product, NORM_INFINITY, &worst));
  return worst;
}

/* Positive numbers between 1/2 and 2. */
std::vector<double> Weights(PetscInt n)
{
  std::vector<double> w(n);
  Random              random(71);
  for (double &value : w) value = random.Between(0.5, 2);
  return w;
}

/* W^{-1} A W^{-1}, which maps w to 0 if A maps the ones to 0. */
HostMatrix Unscaled(HostMatrix A, const std::vector<double> &w)
{
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) A.a[k] /= w[row] * w[A.j[k]];
  return A;
}

VecObject VecWith(const std::vector<double> &values, VecType type)
{
  VecObject    x = CreateVec((PetscInt)values.size(), type, 1);
  PetscScalar *array;
  MUST(VecGetArrayWrite(x, &array));
  std::copy(values.begin(), values.end(), array);
  MUST(VecRestoreArrayWrite(x, &array));
  return x;
}

/* Attaches the constants, or else the vector, as the null space or as the near null space. */
void Attach(Mat A, PetscErrorCode (*attach)(Mat, MatNullSpace), Vec vec, bool constants = false)
{
  MatNullSpace space;
  MUST(MatNullSpaceCreate(PetscObjectComm((PetscObject)A), constants ? PETSC_TRUE : PETSC_FALSE, vec ? 1 : 0, &vec, &space));
  MUST(attach(A, space));
  MUST(MatNullSpaceDestroy(&space));
}

/* The norm is computed on the host, so that the bits are the same in all types. */
VecObject Normalized(std::vector<double> values, VecType type)
{
  const double norm = std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.));
  for (double &value : values) value /= norm;
  return VecWith(values, type);
}

/* A symmetric tridiagonal matrix. */
HostMatrix Tridiagonal(PetscInt n, double diagonal, double beside)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  for (PetscInt row = 0; row < n; row++) {
    if (row) rows[row].push_back({row - 1, beside});
    rows[row].push_back({row, diagonal});
    if (row + 1 < n) rows[row].push_back({row + 1, beside});
  }
  return FromRows(rows);
}

constexpr char kComplement[] = "in the complement of the null space";

} // namespace

/* ------------------------------------------ options ------------------------------------------- */

namespace
{

struct OptionValues {
  PCCMATCHCoarsening coarsening;
  PetscInt           sweeps;
  PetscReal          strength;
  PetscInt           row;
  PCCMATCHSmoother   smoother;
  PetscInt           degree;
  PetscReal          relaxation;
  PCCMATCHCoarse     coarse;
  PetscInt           coarse_size;
  FinePCPrecision    precision;
  PetscInt           block_size;
  PCCMATCHReach      reach;
  PetscInt           gather_rows, gather_ranks;

  PCCMATCHCommunication communication;
  PetscBool             reuse_pattern;
};

template <typename T>
void CheckGetter(PC pc, PetscErrorCode (*get)(PC, T *), T expected)
{
  T value;
  MUST(get(pc, &value));
  CHECK(value == expected);
}

void CheckValues(PC pc, const OptionValues &expected)
{
  CheckGetter(pc, PCCMATCHGetCoarsening, expected.coarsening);
  CheckGetter(pc, PCCMATCHGetSweeps, expected.sweeps);
  CheckGetter(pc, PCCMATCHGetStrength, expected.strength);
  CheckGetter(pc, PCCMATCHGetProlongatorRow, expected.row);
  CheckGetter(pc, PCCMATCHGetSmoother, expected.smoother);
  CheckGetter(pc, PCCMATCHGetDegree, expected.degree);
  CheckGetter(pc, PCCMATCHGetRelaxation, expected.relaxation);
  CheckGetter(pc, PCCMATCHGetCoarse, expected.coarse);
  CheckGetter(pc, PCCMATCHGetCoarseSize, expected.coarse_size);
  CheckGetter(pc, PCCMATCHGetPrecision, expected.precision);
  CheckGetter(pc, PCCMATCHGetBlockSize, expected.block_size);
  CheckGetter(pc, PCCMATCHGetReach, expected.reach);
  CheckGetter(pc, PCCMATCHGetGatherRows, expected.gather_rows);
  CheckGetter(pc, PCCMATCHGetGatherRanks, expected.gather_ranks);
  CheckGetter(pc, PCCMATCHGetCommunication, expected.communication);
  CheckGetter(pc, PCCMATCHGetReusePattern, expected.reuse_pattern);
}

} // namespace

TEST_CASE("cmatch: every key sets what its getter gives", "[cmatch][pc][options]")
{
  const MatObject    A     = CreateMat(Poisson(20, 20), MATAIJ);
  const char *const  all   = "-@coarsening mis2 -@sweeps 4 -@strength 0.25 -@prolongator_row 7 -@smoother chebyshev4 -@degree 3 "
                             "-@relaxation 1.75 -@coarse pcg -@coarse_size 100 -@precision double -@block_size 1 -@reach local "
                             "-@gather_rows 5 -@gather_ranks 6 -@communication nccl -@reuse_pattern false";
  const PCObject     plain = MakePC(A, CMATCH()), keys = MakePC(A, CMATCH(), all);
  const OptionValues defaults{PC_CMATCH_MATCHING,
                              3,
                              0.1,
                              4,
                              PC_CMATCH_L1JACOBI,
                              1,
                              1.5,
                              PC_CMATCH_DENSE,
                              300,
                              FINEPC_SINGLE,
                              0,
                              PC_CMATCH_GLOBAL,
                              100000,
                              10000,
                              PC_CMATCH_COMMUNICATION_AUTO,
                              PETSC_TRUE};
  const OptionValues others{PC_CMATCH_MIS2,
                            4,
                            0.25,
                            7,
                            PC_CMATCH_CHEBYSHEV4,
                            3,
                            1.75,
                            PC_CMATCH_PCG,
                            100,
                            FINEPC_DOUBLE,
                            1,
                            PC_CMATCH_LOCAL,
                            5,
                            6,
                            PC_CMATCH_COMMUNICATION_NCCL,
                            PETSC_FALSE};
  CheckValues(plain, defaults);
  CheckValues(keys, others);
  MUST(PCCMATCHSetCoarsening(plain, others.coarsening));
  MUST(PCCMATCHSetSweeps(plain, others.sweeps));
  MUST(PCCMATCHSetStrength(plain, others.strength));
  MUST(PCCMATCHSetProlongatorRow(plain, others.row));
  MUST(PCCMATCHSetSmoother(plain, others.smoother));
  MUST(PCCMATCHSetDegree(plain, others.degree));
  MUST(PCCMATCHSetRelaxation(plain, others.relaxation));
  MUST(PCCMATCHSetCoarse(plain, others.coarse));
  MUST(PCCMATCHSetCoarseSize(plain, others.coarse_size));
  MUST(PCCMATCHSetPrecision(plain, others.precision));
  MUST(PCCMATCHSetBlockSize(plain, others.block_size));
  MUST(PCCMATCHSetReach(plain, others.reach));
  MUST(PCCMATCHSetGatherRows(plain, others.gather_rows));
  MUST(PCCMATCHSetGatherRanks(plain, others.gather_ranks));
  MUST(PCCMATCHSetCommunication(plain, others.communication));
  MUST(PCCMATCHSetReusePattern(plain, others.reuse_pattern));
  CheckValues(plain, others);
  for (PC pc : {(PC)plain, (PC)keys}) {
    const std::string text = ViewText(pc);
    CAPTURE(text);
    CHECK(Contains(text, "coarsening by independent sets of distance 2, strength 0.25\n"));
    CHECK(Contains(text, "prolongator smoothed, at most 7 entries per row\n"));
    CHECK(Contains(text, "cycle v, smoother chebyshev4 of degree 3\n"));
    CHECK(Contains(text, "coarsening ends at 100 rows, coarsest level pcg\n"));
    CHECK(Contains(text, "hierarchy and cycle in double precision, aggregates and patterns made at each set-up\n"));
    CHECK(Contains(text, "no fixed matrix with pcg on the coarsest level: use -ksp_type fcg\n"));
    MUST(PCCMATCHSetCoarse(pc, PC_CMATCH_DENSE));
    CHECK(!Contains(ViewText(pc), "no fixed matrix"));
  }
}

TEST_CASE("cmatch: setters do nothing to other types, getters say so", "[cmatch][pc][options]")
{
  const MatObject A      = CreateMat(Poisson(20, 20), MATAIJ);
  const PCObject  jacobi = MakePC(A, "", PCJACOBI), changed = MakePC(A, CMATCH());
  PetscInt        value;
  MUST(PCCMATCHSetDegree(jacobi, 3));
  MUST(PCSetUp(changed));
  MUST(PCSetType(changed, PCAFSAI));
  Errors errors;
  for (PC pc : {(PC)jacobi, (PC)changed}) {
    CHECK(PCCMATCHGetDegree(pc, &value) != 0);
    CHECK(PCCMATCHGetHierarchy(pc, &value, nullptr, nullptr) != 0);
  }
}

/* ---------------------------------------- the matrices ---------------------------------------- */

TEST_CASE("cmatch: the operators are Galerkin products of the prolongators", "[cmatch][pc][hierarchy]")
{
  const std::vector<double> w = Weights(2700);
  for (const Backend &backend : Backends())
    for (const std::string options : {"", "-@coarsening mis2", "-@sweeps 2 -@prolongator_row 64"})
      for (const char *precision : {"single", "double"})
        for (bool with_w : {false, true}) {
          CAPTURE(backend.name, options, precision, with_w);
          const HostMatrix plain = Diffusion(60, 45, true, 30), H = with_w ? Unscaled(plain, w) : plain;
          const MatObject  A = CreateMat(H, backend.mat), on_host = CreateMat(H, MATAIJ);
          const double     unit = *precision == 's' ? 1e-6 : 1e-14;
          if (with_w) Attach(A, MatSetNearNullSpace, Normalized(w, backend.vec));
          const PCObject pc = MakePC(A, CMATCH(), options + " -@coarse_size 20 -@precision " + precision);
          MUST(PCSetUp(pc));
          const Levels levels = LevelsOf(pc);
          REQUIRE(levels.A.size() >= 3);
          CHECK(Error(levels.A[0], 1, on_host) <= unit);
          CHECK(ErrorOfGalerkin(levels) <= unit);
          CHECK(Rows(levels.A.back()) <= 20);
        }
}

/* A maps w to 0, and so w is in the range of P on the finest level, and the ones are on the others. */
TEST_CASE("cmatch: the near null vector is in the range of the prolongators", "[cmatch][pc][hierarchy]")
{
  const std::vector<double> w = Weights(2700);
  for (const Backend &backend : Backends())
    for (const char *options : {"", "-@coarsening mis2", "-@prolongator_row 2"}) {
      CAPTURE(backend.name, options);
      const MatObject A    = CreateMat(Unscaled(Diffusion(60, 45, false, 31), w), backend.mat);
      const VecObject null = Normalized(w, backend.vec), on_host = Normalized(w, VECSTANDARD);
      const PCObject  constants = MakePC(A, CMATCH(), std::string(options) + " -@coarse_size 20");
      MUST(PCSetUp(constants));
      CHECK(ErrorOfRange(LevelsOf(constants).P[0], on_host) > 1e-2); /* Without w the constants are in the range instead. */
      Attach(A, MatSetNullSpace, null);
      const PCObject pc = MakePC(A, CMATCH(), std::string(options) + " -@coarse_size 20");
      MUST(PCSetUp(pc));
      const Levels levels = LevelsOf(pc);
      REQUIRE(levels.P.size() >= 2);
      CHECK(ErrorOfRange(levels.P[0], on_host) <= 1e-6);
      for (size_t l = 1; l < levels.P.size(); l++) CHECK(ErrorOfRange(levels.P[l], nullptr) <= 1e-6);
    }
}

TEST_CASE("cmatch: the matrices are there after a set-up that did not fail, and each may be left out", "[cmatch][pc][hierarchy]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Poisson(30, 30), backend.mat), bad = CreateMat(ShortOf(30, 20), backend.mat),
                    none = CreateMat(HostMatrix(), backend.mat);
    const PCObject pc    = MakePC(A, CMATCH(), "-@coarse_size 20");
    PetscInt       levels;
    Mat           *matrices;
    const auto     refused = [&] {
      Errors errors;
      CHECK(PCCMATCHGetHierarchy(pc, &levels, &matrices, nullptr) == PETSC_ERR_ORDER);
      CHECK(Contains(errors.text, "after a PCSetUp() that did not fail"));
    };
    refused();
    MUST(PCSetUp(pc));
    MUST(PCCMATCHGetHierarchy(pc, &levels, nullptr, nullptr));
    CHECK(levels == (PetscInt)LevelsOf(pc).A.size());
    MUST(PCCMATCHGetHierarchy(pc, nullptr, nullptr, &matrices));
    CHECK(Rows(matrices[0]) == 900);
    for (PetscInt l = 0; l + 1 < levels; l++) MUST(MatDestroy(&matrices[l]));
    MUST(PetscFree(matrices));
    MUST(PCSetOperators(pc, bad, bad));
    MUST(PCSetUp(pc));
    refused();
    MUST(PCReset(pc));
    refused();
    MUST(PCSetOperators(pc, none, none));
    MUST(PCSetUp(pc));
    const Levels empty = LevelsOf(pc);
    CHECK(empty.A.size() == 1);
    CHECK(Rows(empty.A[0]) == 0);
  }
}

TEST_CASE("cmatch: several ranks may have the hierarchies of their own blocks", "[cmatch][pc][hierarchy][mpi]")
{
  for (const Kind &kind : CMATCH().kinds()) {
    CAPTURE(kind.name);
    const MatObject A = kind.Create(Blocks(Diffusion(60, 40, false, 32)), PETSC_COMM_WORLD);
    Mat             block;
    MatObject       on_host;
    SetConstantsNull(A);
    const PCObject pc = MakePC(A, CMATCH(), "-@coarse_size 20 -@reach local");
    MUST(PCSetUp(pc));
    const Levels levels = LevelsOf(pc);
    MUST(MatGetDiagonalBlock(A, &block));
    MUST(MatConvert(block, MATSEQAIJ, MAT_INITIAL_MATRIX, on_host.put()));
    CHECK(Error(levels.A[0], 1, on_host) <= 1e-6);
    CHECK(ErrorOfGalerkin(levels) <= 1e-6);
    const std::string text = ViewText((PC)pc);
    if (Rank()) continue;
    CAPTURE(text);
    CHECK(Contains(text, "levels are those of the first rank's block\n") == (Ranks() > 1));
    CHECK(Contains(text, "levels " + std::to_string(levels.A.size()) + ", operator complexity"));
    CHECK(Contains(text, ", 2400 rows, "));
    CHECK(Contains(text, kComplement) == (Ranks() == 1)); /* A rank's block is not singular. */
  }
}

/* -------------------------------------- the near null space ----------------------------------- */

TEST_CASE("cmatch: w comes from the null space, else from the near null space, else it is constant", "[cmatch][pc][null]")
{
  const char *const         constants = "near null vector: the constants\n",
                    *const  near      = "near null vector: the first vector of the near null space\n",
                    *const  exact     = "near null vector: the first vector of the null space\n";
  const std::vector<double> w = Weights(2700), ones(2700, 1), other = Weights(2700);
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const auto view = [](PC pc) {
      MUST(PCSetUp(pc));
      return ViewText(pc);
    };
    {
      const MatObject A = CreateMat(Diffusion(60, 45, false, 33), backend.mat);
      CHECK(Contains(view(MakePC(A, CMATCH())), constants));
      CHECK(!Contains(view(MakePC(A, CMATCH())), kComplement));
      SetConstantsNull(A);
      CHECK(Contains(view(MakePC(A, CMATCH())), constants));
      CHECK(Contains(view(MakePC(A, CMATCH())), kComplement));
      /* The null space counts before a near null space that is something else. */
      Attach(A, MatSetNearNullSpace, Normalized(w, backend.vec));
      CHECK(Contains(view(MakePC(A, CMATCH())), constants));
      CHECK(Contains(view(MakePC(A, CMATCH())), kComplement));
    }
    {
      const MatObject A     = CreateMat(Unscaled(Diffusion(60, 45, false, 33), w), backend.mat),
                      plain = CreateMat(Diffusion(60, 45, true, 33), backend.mat);
      Attach(A, MatSetNullSpace, Normalized(w, backend.vec));
      CHECK(Contains(view(MakePC(A, CMATCH())), exact));
      CHECK(Contains(view(MakePC(A, CMATCH())), kComplement));

      /* The matrix that is solved with has a null space, and that which the preconditioner is made of has none. */
      const PCObject pc = MakePC(plain, CMATCH());
      MUST(PCSetOperators(pc, A, plain));
      CHECK(Contains(view(pc), exact));
    }
    {
      const MatObject A = CreateMat(Unscaled(Diffusion(60, 45, true, 33), w), backend.mat);
      Attach(A, MatSetNearNullSpace, Normalized(w, backend.vec));
      CHECK(Contains(view(MakePC(A, CMATCH())), near));
      CHECK(!Contains(view(MakePC(A, CMATCH())), kComplement));
      Attach(A, MatSetNearNullSpace, Normalized(w, backend.vec), true); /* The constants come before the vectors. */
      CHECK(Contains(view(MakePC(A, CMATCH())), constants));
    }
    { /* A zero gets another value, so that such a vector is not in the null space of what the twins work with. */
      const MatObject     A         = CreateMat(Diffusion(60, 45, true, 33), backend.mat);
      std::vector<double> with_zero = w;
      with_zero[1234]               = 0;
      Attach(A, MatSetNullSpace, Normalized(with_zero, backend.vec));
      CHECK(
        Contains(view(MakePC(A, CMATCH())), "near null vector: the first vector of the null space, whose 1 zeros count as 0.0"));
      CHECK(!Contains(view(MakePC(A, CMATCH())), kComplement));
      CHECK(Finite(Applied(MakePC(A, CMATCH()))));
    }
    { /* A vector of many zeros says nothing about their rows. */
      const MatObject     A    = CreateMat(Diffusion(60, 45, true, 33), backend.mat);
      const auto          x    = Applied(MakePC(A, CMATCH()));
      std::vector<double> half = w;
      for (size_t i = 0; i < half.size(); i += 2) half[i] = i % 4 ? 0 : 1e-18;
      for (const auto attach : {MatSetNearNullSpace, MatSetNullSpace}) {
        Attach(A, attach, Normalized(half, backend.vec));
        const std::string text = view(MakePC(A, CMATCH()));
        CAPTURE(text);
        CHECK(Contains(text, std::string("near null vector: the constants, since the first vector of the ") +
                               (attach == MatSetNullSpace ? "" : "near ") + "null space is 0 in 1350 of 2700 rows\n"));
        CHECK(!Contains(text, kComplement));
        CHECK(SameBits(Applied(MakePC(A, CMATCH())), x));
      }
    }
  }
}

TEST_CASE("cmatch: zeros of the near null vector count as entries of its size", "[cmatch][pc][null]")
{
  const std::vector<double> w = Weights(2700);
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const HostMatrix H    = Unscaled(Diffusion(60, 45, true, 35), w);
    const auto       with = [&](const VecObject &vec) {
      const MatObject A = CreateMat(H, backend.mat);
      Attach(A, MatSetNearNullSpace, vec);
      const Solution solution = Solve(MakeKSP(A, CMATCH(), "-ksp_norm_type unpreconditioned"));
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      return solution.iterations;
    };
    std::vector<double> zeros = w;
    for (size_t i = 0; i < w.size(); i += 100) zeros[i] = i % 200 ? 0 : 1e-17;
    const PetscInt without = with(VecWith(w, backend.vec)), its = with(VecWith(zeros, backend.vec));
    CHECK(its <= without + 12);
    CHECK(std::abs(with(Normalized(zeros, backend.vec)) - its) <= 1);
    for (double &value : zeros) value *= 1e6;
    CHECK(std::abs(with(VecWith(zeros, backend.vec)) - its) <= 1);
  }
}

TEST_CASE("cmatch: the view counts singular components, and says what rounding has needed", "[cmatch][pc][view][components]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(1000);
    const HostMatrix                                           square = Poisson(30, 30);
    for (LocalInt row = 0; row < 900; row++)
      for (LocalInt k = square.i[row]; k < square.i[row + 1]; k++) rows[row].push_back({square.j[k], square.a[k]});
    for (LocalInt row = 900; row < 1000; row++) { /* chains of 2, 38 and 60 rows */
      const bool begins = row == 900 || row == 902 || row == 940, ends = row == 901 || row == 939 || row == 999;
      if (!begins) rows[row].push_back({row - 1, -0.3});
      rows[row].push_back({row, begins || ends ? 0.3 : 0.6});
      if (!ends) rows[row].push_back({row + 1, -0.3});
    }
    const MatObject A = CreateMat(FromRows(rows), backend.mat), almost = CreateMat(Poisson(30, 30), backend.mat);
    const PCObject  pc = MakePC(A, CMATCH(), "-@coarse_size 150");
    MUST(PCSetUp(pc));
    CHECK(Contains(ViewText((PC)pc), "singular components: 1 end as a single row and get no correction there, 2 are solved in the "
                                     "complement of the ones on the last level\n"));
    const PCObject other = MakePC(almost, CMATCH());
    MUST(PCSetUp(other));
    CHECK(!Contains(ViewText((PC)other), "singular components"));
    CHECK(!Contains(ViewText((PC)other), "raised"));
    HostMatrix closed = Diffusion(12, 12, false, 3);
    for (LocalInt row = 0; row < closed.n; row++)
      for (LocalInt k = closed.i[row]; k < closed.i[row + 1]; k++)
        if (closed.j[k] == row) closed.a[k] *= 1 - 2e-8;
    const MatObject below  = CreateMat(closed, backend.mat);
    const PCObject  raised = MakePC(below, CMATCH());
    MUST(PCSetUp(raised));
    CHECK(
      Contains(ViewText((PC)raised), "the last level is not positive definite by rounding: its diagonal entries were raised by "));
  }
}

TEST_CASE("cmatch: singular systems with their null space are solved", "[cmatch][pc][null]")
{
  const std::vector<double> w = Weights(2700);
  for (const Backend &backend : Backends())
    for (const char *options : {"", "-@coarse pcg -ksp_type fcg", "-@precision double", "-@coarse_size 400"})
      for (bool with_w : {false, true}) {
        CAPTURE(backend.name, options, with_w);
        const HostMatrix plain = Diffusion(60, 45, false, 34);
        const MatObject  A     = CreateMat(with_w ? Unscaled(plain, w) : plain, backend.mat);
        if (with_w) Attach(A, MatSetNullSpace, Normalized(w, backend.vec));
        else SetConstantsNull(A);
        const KSPObject ksp      = MakeKSP(A, CMATCH(), std::string("-ksp_norm_type unpreconditioned ") + options);
        const Solution  solution = Solve(ksp);
        CHECK(solution.reason == KSP_CONVERGED_RTOL);
        CHECK(solution.true_residual <= 2e-8);
        CHECK(solution.iterations <= 35);
        CHECK(Contains(ViewText((KSP)ksp), kComplement));
      }
}

TEST_CASE("cmatch: a near null vector of either memory", "[cmatch][pc][null]")
{
  const std::vector<double> w = Weights(2700);
  for (const Backend &backend : Backends()) {
    std::vector<double> expected;
    for (const Backend &of_vector : Backends()) {
      CAPTURE(backend.name, of_vector.name);
      const MatObject A = CreateMat(Unscaled(Diffusion(60, 45, true, 35), w), backend.mat);
      Attach(A, MatSetNearNullSpace, Normalized(w, of_vector.vec));
      const PCObject pc = MakePC(A, CMATCH());
      for (int repeat = 0; repeat < 2; repeat++) {
        MUST(PCSetUp(pc));
        const auto x = Applied(pc);
        if (expected.empty()) expected = x;
        CHECK(SameBits(x, expected));
        Touch(A);
      }
    }
    /* It is another preconditioner than the one with the constants. */
    const MatObject A  = CreateMat(Unscaled(Diffusion(60, 45, true, 35), w), backend.mat);
    const PCObject  pc = MakePC(A, CMATCH());
    MUST(PCSetUp(pc));
    CHECK(Difference(Applied(pc), expected) > 1e-2);
  }
}

TEST_CASE("cmatch: a near null vector that does not fit, or is not finite", "[cmatch][pc][null][bad]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A  = CreateMat(Poisson(30, 30), backend.mat);
    const PCObject  pc = MakePC(A, CMATCH());
    Attach(A, MatSetNearNullSpace, Normalized(Weights(900 - 1), backend.vec));
    {
      Errors errors;
      CHECK(PCSetUp(pc) == PETSC_ERR_ARG_SIZ);
      CHECK(
        Contains(errors.text, "The first vector of the near null space has 899 entries on this rank, but the matrix has 900 rows"));
    }
    Attach(A, MatSetNearNullSpace, Normalized(Weights(900), backend.vec));
    MUST(PCSetUp(pc));
    const auto          expected = Applied(pc);
    std::vector<double> bad      = Weights(900);
    bad[77]                      = std::numeric_limits<double>::quiet_NaN();
    Attach(A, MatSetNearNullSpace, VecWith(bad, backend.vec));
    Touch(A);
    MUST(PCSetUp(pc));
    CHECK(ReasonOf(pc) == PC_FACTOR_OTHER);
    CHECK(Contains(ViewText((PC)pc), "Row 77 has an entry that is not finite, or the near null vector has one there"));
    Attach(A, MatSetNearNullSpace, Normalized(Weights(900), backend.vec));
    Touch(A);
    MUST(PCSetUp(pc));
    CHECK(SameBits(Applied(pc), expected));
  }
}

/* ---------------------------------------- refill ---------------------------------------------- */

TEST_CASE("cmatch: new values keep aggregates and patterns, and nothing else", "[cmatch][pc][cycle]")
{
  const HostBlocks H = Blocks(Diffusion(60, 45, true, 36));
  for (const Kind &kind : CMATCH().kinds())
    for (const std::string options : {"", "-@precision double -@degree 2 -@smoother chebyshev", "-@coarsening mis2"}) {
      CAPTURE(kind.name, options);
      const MatObject A     = kind.Create(H);
      const KSPObject ksp   = MakeKSP(A, CMATCH(), options + " -@coarse_size 20 -ksp_norm_type unpreconditioned -ksp_type fcg");
      const PC        pc    = PCOf(ksp);
      const double    unit  = Contains(options, "double") ? 1e-14 : 1e-6;
      const Solution  first = Solve(ksp);
      CHECK(first.reason == KSP_CONVERGED_RTOL);
      const auto   expected = Applied(pc);
      const Levels before   = LevelsOf(pc);
      for (int step = 0; step < 3; step++) {
        const HostBlocks changed = Changed(H, 500 + step);
        const MatObject  same    = CreateAIJ(changed, MATAIJ);
        SetValues(A, changed);
        const Solution solution = Solve(ksp);
        CHECK(Contains(ViewText(pc), "aggregates and patterns kept from the last set-up\n"));
        CHECK(solution.reason == KSP_CONVERGED_RTOL);
        CHECK(solution.true_residual <= 2e-8);
        CHECK(solution.iterations <= first.iterations + 3);
        const Levels levels = LevelsOf(pc);
        REQUIRE(levels.A.size() == before.A.size());
        for (size_t l = 0; l < levels.P.size(); l++) CHECK(Columns(levels.P[l]) == Columns(before.P[l]));
        for (size_t l = 0; l < levels.A.size(); l++) CHECK(Columns(levels.A[l]) == Columns(before.A[l]));
        CHECK(Error(levels.A[0], 1, same) <= unit);
        CHECK(ErrorOfGalerkin(levels) <= unit);
        CHECK(!SameBits(Applied(pc), expected));
      }
      /* With the first values again everything is what it was, to the last bit. */
      SetValues(A, H);
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText(pc), "kept from the last set-up"));
      CHECK(SameBits(Applied(pc), expected));
    }
}

TEST_CASE("cmatch: aggregates that do not fit new values are made anew", "[cmatch][pc][cycle][mpi]")
{
  constexpr LocalInt n   = 54;
  const auto         far = [](LocalInt row, LocalInt column) { /* two bonds of three */
                                                       const std::uint64_t a = std::min(row, column), b = std::max(row, column);
                                                       Random              random(a * 7919 + b);
                                                       random.Next();
                                                       return random.Between(0, 1) < 0.66;
  };
  /* The first values leave rows to the smoother, 4 by 4 of them and a single one, which the others couple. */
  const auto held = [](LocalInt rows) {
    HostBlocks A = Sheet(n, 1, 1, 1e-4);
    for (LocalInt row = 0; row < rows; row++) {
      const LocalInt at = 20 * n + 20 + row / 4 * n + row % 4;
      *A.Find(at, at) += 400;
    }
    return A;
  };
  struct Case {
    const char *name;
    HostBlocks  first, then;
    bool        anew;
  };
  const Case cases[] = {
    {"a patch is released", held(16), Sheet(n, 1, 1, 1e-4), true},
    {"a row is released", held(1), Sheet(n, 1, 1, 1e-4), true},
    {"a small time step, then the steady problem", Sheet(n, 1, 1, 1000), Sheet(n, 1, 1, 1e-4), true},
    {"the strong direction turns", Sheet(n, 1, 1e-3, 1e-4), Sheet(n, 1e-3, 1, 1e-4), true},
    {"one direction becomes weak", Sheet(n, 1, 1, 1e-4), Sheet(n, 1, 1e-3, 1e-4), true},
    {"bonds break", Sheet(n, 1, 1, 1e-4), Sheet(n, 1, 1, 1e-4, far), true},
    {"bonds are mended", Sheet(n, 1, 1, 1e-4, far), Sheet(n, 1, 1, 1e-4), true},
    {"other values, in about the same proportion", Sheet(n, 1, 1, 1e-4), Changed(Sheet(n, 1, 0.7, 1e-3), 3), false},
    {"a time step that grows", Sheet(n, 1, 1, 1e-2), Sheet(n, 1, 1, 1e-5), false},
  };
  for (const Backend &backend : Backends())
    for (const Case &change : cases)
      for (const std::string options : {"", "-pc_cmatch_coarsening mis2 -pc_cmatch_precision double -pc_cmatch_reach local"}) {
        if (!options.empty() && change.name != cases[4].name) continue;
        CAPTURE(backend.name, change.name, options);
        const MatObject A   = CreateAIJ(change.first, backend.mat, PETSC_COMM_WORLD),
                        B   = CreateAIJ(change.then, backend.mat, PETSC_COMM_WORLD);
        const KSPObject ksp = MakeKSP(A, options, PCCMATCH), fresh = MakeKSP(B, options, PCCMATCH);
        Solve(ksp);
        SetValues(A, change.then);
        const Solution    mine = Solve(ksp), best = Solve(fresh);
        const std::string text = ViewText(PCOf(ksp));
        CHECK(mine.reason > 0);
        CHECK(mine.iterations <= (change.anew ? best.iterations : best.iterations + best.iterations / 2));
        if (!Rank()) {
          CHECK(Contains(text, "aggregates made anew") == change.anew);
          CHECK(Contains(text, "kept from the last set-up") != change.anew);
          CHECK(Contains(text, "where they fit worst; beyond a share of 0."));
        }
        SetValues(A, change.then); /* what was made anew fits */
        MUST(PCSetUp(PCOf(ksp)));
        CHECK(!Contains(ViewText(PCOf(ksp)), "aggregates made anew"));
      }
}

TEST_CASE("cmatch: what a set-up for new values cannot keep", "[cmatch][pc][cycle]")
{
  const std::string         kept = "aggregates and patterns kept from the last set-up\n";
  const HostBlocks          H    = Blocks(Diffusion(60, 45, true, 37));
  const std::vector<double> w    = Weights(2700);
  for (const Kind &kind : CMATCH().kinds()) {
    CAPTURE(kind.name);
    const MatObject A      = kind.Create(H);
    const PCObject  pc     = MakePC(A, CMATCH(), "-@reuse_pattern false");
    const auto      set_up = [&] {
      Touch(A);
      MUST(PCSetUp(pc));
      const PCObject fresh = MakePC(A, CMATCH());
      MUST(PCSetUp(fresh));
      CHECK(SameBits(Applied(pc), Applied(fresh)));
      return Contains(ViewText((PC)pc), kept);
    };
    /* A set-up that was not told to has left nothing for the next one. */
    CHECK(!set_up());
    CHECK(!set_up());
    MUST(PCCMATCHSetReusePattern(pc, PETSC_TRUE));
    CHECK(!set_up());
    CHECK(set_up());
    MUST(PCCMATCHSetReusePattern(pc, PETSC_FALSE));
    CHECK(!set_up());
    MUST(PCCMATCHSetReusePattern(pc, PETSC_TRUE));
    CHECK(!set_up());
    /* Another near null space needs other aggregates. */
    Attach(A, MatSetNearNullSpace, Normalized(w, kind.backend->vec));
    CHECK(!set_up());
    CHECK(set_up());
    Attach(A, MatSetNullSpace, Normalized(w, kind.backend->vec));
    CHECK(!set_up());
    CHECK(set_up());
    MUST(MatSetNullSpace(A, nullptr));
    MUST(MatSetNearNullSpace(A, nullptr));
    CHECK(!set_up());
    CHECK(set_up());
    MUST(PCCMATCHSetStrength(pc, 0.2));
    MUST(PCCMATCHSetStrength(pc, 0.1));
    CHECK(!set_up());
    CHECK(set_up());
    /* Nothing of a set-up that failed is kept. */
    SetValues(A, CMATCH().bad[1].Spoiled(H));
    MUST(PCSetUp(pc));
    CHECK(ReasonOf(pc) == PC_FACTOR_NUMERIC_ZEROPIVOT);
    SetValues(A, H);
    CHECK(!set_up());
    CHECK(set_up());
  }
}

/* -------------------------------------- the coarsening's end ---------------------------------- */

TEST_CASE("cmatch: the view shows the levels as they are", "[cmatch][pc][view]")
{
  for (const Backend &backend : Backends())
    for (const char *options : {"", "-@coarsening mis2"}) {
      const MatObject A  = CreateMat(Diffusion(60, 45, true, 38), backend.mat);
      const PCObject  pc = MakePC(A, CMATCH(), std::string(options) + " -@coarse_size 20");
      MUST(PCSetUp(pc));
      const std::string text   = ViewText((PC)pc);
      const Levels      levels = LevelsOf(pc);
      CAPTURE(backend.name, options, text);
      REQUIRE(levels.A.size() >= 3);
      double rows = 0, entries = 0;
      for (size_t l = 0; l < levels.A.size(); l++) {
        const PetscInt n = Rows(levels.A[l]), nnz = Nonzeros(levels.A[l]);
        char           line[128];
        if (l)
          std::snprintf(line, sizeof(line), "%5d %9d %10d %6.1f  %8.4f |", (int)l, (int)n, (int)nnz, (double)nnz / n,
                        (double)n / Rows(levels.A[l - 1]));
        else std::snprintf(line, sizeof(line), "%5d %9d %10d %6.1f           |", (int)l, (int)n, (int)nnz, (double)nnz / n);
        CHECK(Contains(text, line));
        rows += n;
        entries += nnz;
        if (l + 1 == levels.A.size()) continue;
        PetscInt left = 0;
        for (const auto &row : Columns(levels.P[l])) left += row.empty();
        std::snprintf(line, sizeof(line), "| %9.2f ", (double)(n - left) / Rows(levels.A[l + 1]));
        CHECK(Contains(text, line));
      }
      char sums[128];
      std::snprintf(sums, sizeof(sums), "levels %d, operator complexity %.3f, grid complexity %.3f\n", (int)levels.A.size(),
                    entries / Nonzeros(levels.A[0]), rows / Rows(levels.A[0]));
      CHECK(Contains(text, sums));
      CHECK(Contains(text, "coarsening ended on level " + std::to_string(levels.A.size() - 1) + ", whose " +
                             std::to_string(Rows(levels.A.back())) + " rows are few enough\n"));
    }
}

TEST_CASE("cmatch: the view says where and why the coarsening has ended, and what solves there", "[cmatch][pc][view]")
{
  struct Case {
    const char *options;
    HostMatrix  A;
    const char *end, *solver;
  };
  /* Positive couplings are no edges, so that each row is an aggregate of its own. Couplings of 1/100 leave all rows to the
   * smoother. */
  const std::vector<Case> cases = {
    {"-@coarse_size 10", Tridiagonal(300, 1, 0.4),
     "coarsening stalled on level 0 with 300 rows, of which the next level would have had 0.9 or more\n",
     "solver of the last level: the dense inverse\n"},
    {"", Tridiagonal(3000, 1, 0.4),
     "coarsening stalled on level 0 with 3000 rows, of which the next level would have had 0.9 or more\n",
     "solver of the last level: a polynomial of degree 16, since only 2048 rows can be inverted\n"},
    {"-@coarse pcg", Tridiagonal(3000, 1, 0.4), "coarsening stalled on level 0 with 3000 rows,",
     "solver of the last level: 40 iterations of the conjugate gradient method\n"},
    {"", Tridiagonal(3000, 1, -0.01),
     "coarsening ended on level 0, all of whose 3000 rows are dominated by their diagonal entries\n",
     "solver of the last level: the smoother, twice\n"},
    {"-test_max_levels 2 -@coarse_size 10", Diffusion(60, 45, true, 39), "coarsening ended on level 1, the last one allowed, with ",
     "solver of the last level: the dense inverse\n"},
    {"-test_max_levels 1", Diffusion(60, 45, true, 39), "coarsening ended on level 0, the last one allowed, with 2700 rows\n",
     "solver of the last level: a polynomial of degree 16, since only 2048 rows can be inverted\n"},
    {"", Poisson(20, 15), "coarsening ended on level 0, whose 300 rows are few enough\n",
     "solver of the last level: the dense inverse\n"},
  };
  for (const Backend &backend : Backends())
    for (const Case &c : cases) {
      const MatObject   A        = CreateMat(c.A, backend.mat);
      const KSPObject   ksp      = MakeKSP(A, CMATCH(), std::string(c.options) + " -ksp_norm_type unpreconditioned -ksp_type fcg");
      const Solution    solution = Solve(ksp);
      const std::string text     = ViewText((KSP)ksp);
      CAPTURE(backend.name, c.options, text);
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(solution.true_residual <= 2e-8);
      CHECK(Contains(text, c.end));
      CHECK(Contains(text, c.solver));
    }
}

TEST_CASE("cmatch: the view says why a matrix of blocks has a hierarchy of rows", "[cmatch][pc][view]")
{
  for (const Kind &kind : CMATCH().kinds()) {
    CAPTURE(kind.name);
    const MatObject A  = kind.Create(Grid());
    const PCObject  pc = MakePC(A, CMATCH(), "-@coarse pcg"), scalar = MakePC(kind.Create(Blocks(Plate())), CMATCH());
    MUST(PCSetUp(scalar));
    MUST(PCSetUp(pc)); /* It may fail, since the blocks are not symmetric. */
    CHECK(Contains(ViewText((PC)pc), "the matrix has blocks, but the hierarchy is one of single rows, since "));
    CHECK(!Contains(ViewText((PC)scalar), "the matrix has blocks"));
  }
}

TEST_CASE("cmatch: the bytes of an application", "[cmatch][pc]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A      = CreateMat(Diffusion(60, 45, true, 40), backend.mat);
    const PCObject  single = MakePC(A, CMATCH()), in_double = MakePC(A, CMATCH(), "-@precision double"),
                   twice = MakePC(A, CMATCH(), "-@degree 2");
    PetscLogDouble bytes[3];
    int            k = 0;
    for (PC pc : {(PC)single, (PC)in_double, (PC)twice}) {
      MUST(PCFinePCGetApplyBytes(pc, &bytes[k]));
      CHECK(bytes[k] == 0);
      MUST(PCSetUp(pc));
      MUST(PCFinePCGetApplyBytes(pc, &bytes[k]));
      k++;
    }
    /* the matrix twice at least: in the residual that is restricted, and in the smoother behind the coarse correction */
    CHECK(bytes[0] >= 2. * Nonzeros(A) * (sizeof(LocalInt) + sizeof(float)));
    CHECK(bytes[1] > 1.2 * bytes[0]);
    CHECK(bytes[2] > 1.2 * bytes[0]);
  }
}

TEST_CASE("cmatch: the flops of an application are logged", "[cmatch][pc]")
{
  const MatObject A  = CreateMat(Diffusion(60, 45, true, 40), MATAIJ);
  const PCObject  pc = MakePC(A, CMATCH(), "-@coarse_size 5");
  const VecObject x = RightVec(A), y = RightVec(A);
  PetscLogDouble  before, after;
  MUST(PCSetUp(pc));
  MUST(PetscGetFlops(&before));
  MUST(PCApply(pc, x, y));
  MUST(PetscGetFlops(&after));
  /* Two products with each operator, at 2 flops an entry in each case, and two with each prolongator. */
  const Levels levels = LevelsOf(pc);
  REQUIRE(levels.A.size() >= 4);
  double least = 0;
  for (size_t l = 0; l + 1 < levels.A.size(); l++) least += 2 * 2. * Nonzeros(levels.A[l]) + 2 * 2. * Nonzeros(levels.P[l]);
  CHECK(after - before >= least);
  CHECK(after - before <= 3 * least);
}

/* --------------------------------------- bad matrices ----------------------------------------- */

/* A little beyond the smallest eigenvalues the coarsest operator is indefinite, far beyond them the diagonals of coarse operators.
 */
TEST_CASE("cmatch: an indefinite matrix with a positive diagonal is named by level and row", "[cmatch][pc][bad]")
{
  struct Case {
    double      part;
    const char *text;
  };
  for (const Backend &backend : Backends())
    for (const char *options : {"", "-@precision double"})
      for (const Case &c : {Case{20, " of level 1 has a pivot that is not positive in the factorization of the coarsest operator: "
                                     "PCCMATCH needs a symmetric positive definite matrix"},
                            Case{460, " of level 1 has a diagonal entry that is not positive: PCCMATCH needs a symmetric "
                                      "definite matrix"}}) {
        CAPTURE(backend.name, options, c.part);
        const MatObject A = CreateMat(ShortOf(50, c.part), backend.mat), good = CreateMat(ShortOf(50, 0.5), backend.mat);
        const PCObject  pc = MakePC(A, CMATCH(), options), fresh = MakePC(good, CMATCH(), options);
        MUST(PCSetUp(pc));
        const std::string text = ViewText((PC)pc);
        CAPTURE(text);
        CHECK(ReasonOf(pc) == PC_FACTOR_NUMERIC_ZEROPIVOT);
        CHECK(Contains(text, c.text));
        CHECK(Contains(text, "Row "));
        CHECK(Infinite(Applied(pc)));
        MUST(PCSetOperators(pc, good, good));
        MUST(PCSetUp(pc));
        MUST(PCSetUp(fresh));
        CHECK(SameBits(Applied(pc), Applied(fresh)));
      }
}

TEST_CASE("cmatch: what single precision cannot hold is named, with the remedy", "[cmatch][pc][bad]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    HostMatrix large = Poisson(30, 30), small = Poisson(30, 30), both;
    for (PetscInt row = 0; row < large.n; row++)
      for (PetscInt k = large.i[row]; k < large.i[row + 1]; k++) {
        const PetscInt column = large.j[k];
        if ((row == 500 && column == 501) || (row == 501 && column == 500)) large.a[k] = -1e60;
        if (row == 700 || column == 700) small.a[k] *= row == column ? 1e-100 : 1e-60;
      }
    for (bool is_small : {false, true}) {
      CAPTURE(is_small);
      const MatObject A  = CreateMat(is_small ? small : large, backend.mat);
      const PCObject  pc = MakePC(A, CMATCH());
      MUST(PCSetUp(pc));
      CHECK(ReasonOf(pc) == PC_FACTOR_OTHER);
      CHECK(Contains(ViewText((PC)pc), std::string("Row ") + (is_small ? "700" : "500") +
                                         " has an entry that, relative to the largest diagonal entry, cannot be held in single "
                                         "precision: use -pc_cmatch_precision double"));
      MUST(PCCMATCHSetPrecision(pc, FINEPC_DOUBLE));
      MUST(PCSetUp(pc));
      CHECK(!Contains(ViewText((PC)pc), "cannot be held"));
    }
  }
}

/* ----------------------------------------- iterations ----------------------------------------- */

/* The smoother of a level from x = 0, by its steps, and as many iterations of PETSc's Chebyshev method with the same l1 diagonal.
 */
TEST_CASE("cmatch: the Chebyshev smoother is PETSc's, with a* and 1 for the eigenvalues", "[cmatch][pc]")
{
  if (!kJacobiHasRowSums) return;
  const HostMatrix H = RandomGraph(300, 7, 31);
  const MatObject  A = CreateMat(H, MATAIJ);
  const VecObject  b = RightVec(A, 3), x = RightVec(A);
  const auto       r = Values(b);
  for (PetscInt k = 1; k <= 6; k++) {
    CAPTURE(k);
    char options[256];
    MUST(PetscSNPrintf(options, sizeof(options),
                       "-ksp_type chebyshev -ksp_chebyshev_eigenvalues %.17g,1 -ksp_norm_type none -ksp_max_it %d "
                       "-ksp_convergence_test skip -pc_type jacobi -pc_jacobi_type rowl1",
                       (double)PolynomialLowerEnd(k), (int)k));
    const KSPObject ksp = MakeKSP(A, options, PCJACOBI);
    MUST(KSPSolve(ksp, b, x));
    const PolynomialSteps steps    = PolynomialChebyshev(k);
    std::vector<double>   residual = r, z(H.n, 0.), mine(H.n, 0.);
    for (PetscInt step = 0; step < k; step++) {
      if (step > 0)
        for (PetscInt row = 0; row < H.n; row++)
          for (PetscInt e = H.i[row]; e < H.i[row + 1]; e++) residual[row] -= H.a[e] * z[H.j[e]];
      for (PetscInt row = 0; row < H.n; row++) {
        double l1 = 0;
        for (PetscInt e = H.i[row]; e < H.i[row + 1]; e++) l1 += std::abs(H.a[e]);
        z[row] = steps.e[step] * z[row] + steps.c[step] * residual[row] / l1;
      }
      for (PetscInt row = 0; row < H.n; row++) mine[row] += steps.beta[step] * z[row];
    }
    CHECK(Difference(Values(x), mine) <= 1e-12);
  }
}

/* Where the diagonal dominates all rows there is one level, and the preconditioner is its smoother, twice. */
TEST_CASE("cmatch: one level of the Chebyshev smoother is PETSc's method applied twice", "[cmatch][pc]")
{
  if (!kJacobiHasRowSums) return;
  HostMatrix H = RandomGraph(300, 7, 32);
  for (PetscInt row = 0; row < H.n; row++) {
    double off = 1;
    for (PetscInt e = H.i[row]; e < H.i[row + 1]; e++) off += H.j[e] == row ? 0 : std::abs(H.a[e]);
    for (PetscInt e = H.i[row]; e < H.i[row + 1]; e++)
      if (H.j[e] == row) H.a[e] = 12 * off;
  }
  for (const Backend &backend : Backends())
    for (PetscInt k = 1; k <= 4; k++) {
      CAPTURE(backend.name, k);
      char petsc[256], cmatch[128];
      MUST(PetscSNPrintf(petsc, sizeof(petsc),
                         "-ksp_type chebyshev -ksp_chebyshev_eigenvalues %.17g,1 -ksp_norm_type none -ksp_max_it %d "
                         "-ksp_convergence_test skip -pc_type jacobi -pc_jacobi_type rowl1",
                         (double)PolynomialLowerEnd(k), (int)k));
      MUST(PetscSNPrintf(cmatch, sizeof(cmatch), "-@smoother chebyshev -@degree %d -@precision double -@coarse_size 10", (int)k));
      const MatObject A = CreateMat(H, backend.mat), on_host = CreateMat(H, MATAIJ);
      const VecObject b = RightVec(A, 3), x = RightVec(A), r = RightVec(on_host, 3), step = RightVec(on_host),
                      sum = RightVec(on_host);
      const PCObject pc   = MakePC(A, CMATCH(), cmatch);
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), "the smoother, twice"));
      MUST(PCApply(pc, b, x));
      const KSPObject ksp = MakeKSP(on_host, petsc, PCJACOBI);
      MUST(KSPSolve(ksp, r, sum));
      MUST(MatMult(on_host, sum, step));
      MUST(VecAXPY(r, -1, step));
      MUST(KSPSolve(ksp, r, step));
      MUST(VecAXPY(sum, 1, step));
      CHECK(Difference(Values(x), Values(sum)) <= 1e-12);
    }
}

TEST_CASE("cmatch: iterations hardly grow with the mesh", "[cmatch][pc]")
{
  for (const Backend &backend : Backends())
    for (const char *options : {"", "-@coarsening mis2", "-@smoother chebyshev -@degree 2"}) {
      CAPTURE(backend.name, options);
      PetscInt iterations[2];
      for (int k = 0; k < 2; k++) {
        const PetscInt  n        = k ? 160 : 40;
        const MatObject A        = CreateMat(Poisson(n, n), backend.mat);
        const Solution  solution = Solve(MakeKSP(A, CMATCH(), std::string("-ksp_norm_type unpreconditioned ") + options));
        CHECK(solution.reason == KSP_CONVERGED_RTOL);
        CHECK(solution.true_residual <= 2e-8);
        iterations[k] = solution.iterations;
      }
      CHECK(iterations[1] <= 25);
      CHECK(iterations[1] <= iterations[0] + 10);
    }
}
