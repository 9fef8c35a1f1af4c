/*
   MATSOLVERCUDSS. With the emulator a library of the tests stands for cuDSS, and a case may have it run out of memory or be
   missing. On a GPU the library is cuDSS itself, where it can be opened; without CUDA there is none.
*/
#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "mat/cudss.h"
#include "matrices.h"
#include "support.h"

namespace
{

#if defined(FINEPC_CUDSS_STUB)
constexpr bool kStub = true;
#else
constexpr bool kStub = false;
  #define FINEPC_CUDSS_STUB     ""
  #define FINEPC_CUDSS_OLD_STUB ""
#endif

/* For a scope, another library. */
class Named {
public:
  explicit Named(const char *path)
  {
    const char *const was = std::getenv(kName);
    was_                  = was ? was : "";
    ::setenv(kName, path, 1);
  }
  ~Named()
  {
    if (was_.empty()) ::unsetenv(kName);
    else ::setenv(kName, was_.c_str(), 1);
  }

private:
  static constexpr const char *kName = "FINEPC_CUDSS_LIBRARY";
  std::string                  was_;
};

/* cuDSS, or what stands for it, and whether there is one. */
class Library {
public:
  Library()
  {
    if (kStub) named_.reset(new Named(FINEPC_CUDSS_STUB));
    if (!kStub && !(kHasCUDA && DeviceFound())) return;
    const Errors errors;
    CUDSS       *solver = nullptr;
    there_              = CUDSSCreate_CUDA(&solver) == PETSC_SUCCESS && CUDSSDestroy_CUDA(&solver) == PETSC_SUCCESS;
    if (!there_) std::printf("cuDSS is not tested: %s\n", errors.text.c_str());
  }
  bool There() const { return there_; }

private:
  std::unique_ptr<Named> named_;
  bool                   there_ = false;
};

/* First line of a case. */
#define NEEDS_CUDSS()       \
  const Library library;    \
  do {                      \
    if (!library.There()) { \
      SkipTest();           \
      return;               \
    }                       \
  } while (0)

template <typename Function>
Function *OfStub(const char name[])
{
  void *const stub = dlopen(FINEPC_CUDSS_STUB, RTLD_NOW);
  REQUIRE(stub);
  return (Function *)dlsym(stub, name);
}

enum Phase { ANALYSIS = 1, FACTORIZATION = 4, REFACTORIZATION = 8, SOLVE = 0x10 };
int Executed(Phase phase)
{
  return kStub ? OfStub<int(int)>("StubExecuted")(phase) : 0;
}

/* For a scope, a factor may take so many bytes; with -1 an analysis finds no memory either. */
class Limit {
public:
  explicit Limit(int64_t bytes) { OfStub<void(int64_t)>("StubLimit")(bytes); }
  ~Limit() { OfStub<void(int64_t)>("StubLimit")(INT64_MAX); }
};

/* To PETSc there is no device in the emulator. */
std::vector<Backend> Places()
{
  return kStub ? std::vector<Backend>{HostBackend()} : Backends();
}

HostMatrix Unsymmetric(LocalInt n, std::uint64_t seed)
{
  HostMatrix A = RandomGraph(n, 7, seed);
  Random     random(seed + 1);
  for (LocalInt row = 0; row < n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] != row) A.a[k] *= random.Between(0.2, 1);
  return A;
}

/* The definite matrix A - shift D. */
HostMatrix Shifted(HostMatrix A, double shift)
{
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == row) A.a[k] *= 1 - shift;
  return A;
}

HostMatrix Scaled(HostMatrix A, double scale)
{
  for (double &a : A.a) a *= scale;
  return A;
}

/* The backward error of a solution: ||b - A x|| / (||A|| ||x|| + ||b||). Products are made where the matrix is, since PETSc's own
   with a matrix on the GPU and vectors on the host end before the GPU has written them. */
PetscReal BackwardError(Mat A, Vec x, Vec b, bool transposed = false)
{
  VecObject solution, right, r;
  PetscReal norm, of_A, of_x, of_b;
  MUST(MatCreateVecs(A, solution.put(), right.put()));
  MUST(VecDuplicate(right, r.put()));
  MUST(VecCopy(x, solution));
  MUST(VecCopy(b, right));
  MUST((transposed ? MatMultTranspose : MatMult)(A, solution, r));
  MUST(VecAXPY(r, -1, right));
  MUST(VecNorm(r, NORM_2, &norm));
  MUST(VecNorm(solution, NORM_2, &of_x));
  MUST(VecNorm(right, NORM_2, &of_b));
  MUST(MatNorm(A, NORM_FROBENIUS, &of_A));
  return norm / (of_A * of_x + of_b);
}

constexpr const char *kLU       = "-ksp_type preonly -pc_type lu -pc_factor_mat_solver_type cudss ";
constexpr const char *kCholesky = "-ksp_type preonly -pc_type cholesky -pc_factor_mat_solver_type cudss ";

KSPObject Solver(Mat A, const std::string &options)
{
  KSPObject     ksp;
  const Options scope(options);
  MUST(KSPCreate(PETSC_COMM_SELF, ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetFromOptions(ksp));
  MUST(KSPSetUp(ksp)); /* which reads the options of the factor */
  return ksp;
}

/* Solves, and returns the backward error, or infinity where the solver has failed. */
PetscReal Solves(KSP ksp, VecType type, bool transposed = false)
{
  Mat                A;
  PetscInt           n;
  KSPConvergedReason reason;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  MUST(MatGetSize(A, &n, nullptr));
  const VecObject b = CreateVec((LocalInt)n, type, 5), x = CreateVec((LocalInt)n, type, 6);
  MUST((transposed ? KSPSolveTranspose : KSPSolve)(ksp, b, x));
  MUST(KSPGetConvergedReason(ksp, &reason));
  return reason > 0 ? BackwardError(A, x, b, transposed) : std::numeric_limits<PetscReal>::infinity();
}

constexpr PetscReal kExact = 1e-12;

} // namespace

TEST_CASE("cudss: a build without CUDA, or a machine without a GPU, says so", "[cudss]")
{
  if (kStub || (kHasCUDA && DeviceFound())) return SkipTest();
  const MatObject A = CreateMat(Poisson(4), MATSEQAIJ);
  const Errors    errors;
  Mat             F = nullptr;
  CHECK((int)MatGetFactor(A, MATSOLVERCUDSS, MAT_FACTOR_LU, &F) == (int)PETSC_ERR_SUP);
  CHECK(Contains(errors.text, kHasCUDA ? "cuDSS needs an NVIDIA GPU" : "built without CUDA"));
}

TEST_CASE("cudss: the library is missing, too old, or another one", "[cudss]")
{
  NEEDS_CUDSS();
  const MatObject A    = CreateMat(Poisson(4), MATSEQAIJ);
  const auto      try_ = [&](const char *path) {
    const Named  named(path);
    const Errors errors;
    Mat          F = nullptr;
    CHECK((int)MatGetFactor(A, MATSOLVERCUDSS, MAT_FACTOR_LU, &F) == (int)PETSC_ERR_LIB);
    return errors.text;
  };
  const std::string missing = try_("/nowhere/libcudss.so.1");
  CHECK(Contains(missing, "cuDSS 1 cannot be opened (/nowhere/libcudss.so.1: "));
  CHECK(Contains(missing, "pip install nvidia-cudss-cu"));
  CHECK(Contains(try_("libm.so.6"), "This library is no cuDSS"));
  if (kStub) CHECK(Contains(try_(FINEPC_CUDSS_OLD_STUB), "This is cuDSS 0.0.0, but finepc works with version 1 alone"));
}

TEST_CASE("cudss: LU, LDL^T and Cholesky factors solve, with vectors anywhere", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  for (LocalInt n : {1, 2, 33, 150}) {
    const HostMatrix definite = RandomGraph(n, 6, 1);
    for (const Backend &of_matrix : Places())
      for (const Backend &of_vectors : Places()) {
        CAPTURE(n, of_matrix.name, of_vectors.name);
        const MatObject unsymmetric = CreateMat(Unsymmetric(n, 3), of_matrix.mat);
        const KSPObject lu          = Solver(unsymmetric, kLU);
        CHECK(Solves(lu, of_vectors.vec) < kExact);
        CHECK(Solves(lu, of_vectors.vec, true) < kExact);
        const MatObject indefinite = CreateMat(Shifted(definite, 0.7), of_matrix.mat);
        CHECK(Solves(Solver(indefinite, kCholesky), of_vectors.vec) < kExact);
        const MatObject spd = CreateMat(definite, of_matrix.mat);
        MUST(MatSetOption(spd, MAT_SPD, PETSC_TRUE));
        const KSPObject cholesky = Solver(spd, kCholesky);
        CHECK(Solves(cholesky, of_vectors.vec) < kExact);
        CHECK(Solves(cholesky, of_vectors.vec, true) < kExact);
        CHECK(Contains(ViewText(cholesky), "Cholesky factor, order default"));
        CHECK(Contains(ViewText(lu), "package used to perform factorization: cudss"));
      }
  }
}

TEST_CASE("cudss: no rows at all", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  const MatObject A = CreateMat(HostMatrix(), MATSEQAIJ);
  const VecObject b = CreateVec(0, VECSEQ, 1), x = CreateVec(0, VECSEQ, 2);
  MUST(KSPSolve(Solver(A, kLU), b, x));
}

TEST_CASE("cudss: several right-hand sides at once are those one by one", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  constexpr LocalInt n = 40, columns = 3;
  for (const Backend &place : Places())
    for (const char *more : {"", "-mat_cudss_deterministic"}) {
      CAPTURE(place.name, more);
      const MatObject A   = CreateMat(Unsymmetric(n, 3), place.mat);
      const KSPObject ksp = Solver(A, std::string(kLU) + more);
      MatObject       B, X, wide_B, wide_X;
      MUST(MatCreate(PETSC_COMM_SELF, wide_B.put()));
      MUST(MatSetSizes(wide_B, n + 5, columns, n + 5, columns)); /* the columns are apart */
      MUST(MatSetType(wide_B, place.dense));
      MUST(MatSetUp(wide_B));
      MUST(MatSetRandom(wide_B, nullptr));
      MUST(MatDuplicate(wide_B, MAT_COPY_VALUES, wide_X.put()));
      PC  pc;
      Mat F, part_B, part_X;
      MUST(KSPGetPC(ksp, &pc));
      MUST(PCFactorGetMatrix(pc, &F));
      MUST(MatDenseGetSubMatrix(wide_B, 2, n + 2, 0, columns, &part_B));
      MUST(MatDenseGetSubMatrix(wide_X, 1, n + 1, 0, columns, &part_X));
      const int before = Executed(SOLVE);
      for (bool transposed : {false, true}) {
        MUST((transposed ? MatMatSolveTranspose : MatMatSolve)(F, part_B, part_X));
        for (LocalInt c = 0; c < columns; c++) {
          Vec b, x;
          MUST(MatDenseGetColumnVecRead(part_B, c, &b));
          MUST(MatDenseGetColumnVecRead(part_X, c, &x));
          CHECK(BackwardError(A, x, b, transposed) < kExact);
          MUST(MatDenseRestoreColumnVecRead(part_X, c, &x));
          MUST(MatDenseRestoreColumnVecRead(part_B, c, &b));
        }
      }
      if (kStub) CHECK(Executed(SOLVE) - before == (*more ? 2 * columns : 2));
      MUST(MatDenseRestoreSubMatrix(wide_X, &part_X));
      MUST(MatDenseRestoreSubMatrix(wide_B, &part_B));
      MUST(MatDuplicate(A, MAT_COPY_VALUES, B.put()));
      const Errors errors;
      CHECK((int)MatMatSolve(F, B, wide_B) != 0); /* sparse right-hand sides, and solutions of another size */
    }
}

TEST_CASE("cudss: new values need a factorization alone, new nonzeros an analysis", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  constexpr LocalInt n = 60;
  for (const Backend &place : Places()) {
    CAPTURE(place.name);
    const MatObject A        = CreateMat(Unsymmetric(n, 3), place.mat);
    const int       analyses = Executed(ANALYSIS), factors = Executed(FACTORIZATION), again = Executed(REFACTORIZATION);
    const KSPObject ksp    = Solver(A, kLU);
    const auto      counts = [&](int expected_analyses, int expected_factors, int expected_again) {
      if (!kStub) return;
      CHECK(Executed(ANALYSIS) - analyses == expected_analyses);
      CHECK(Executed(FACTORIZATION) - factors == expected_factors);
      CHECK(Executed(REFACTORIZATION) - again == expected_again);
    };
    CHECK(Solves(ksp, place.vec) < kExact);
    counts(1, 1, 0);
    MUST(MatShift(A, 0.5)); /* in place */
    CHECK(Solves(ksp, place.vec) < kExact);
    CHECK(Solves(ksp, place.vec) < kExact);
    counts(1, 1, 1);
    const MatObject other = CreateMat(Unsymmetric(n, 9), place.mat);
    MUST(KSPSetOperators(ksp, other, other));
    CHECK(Solves(ksp, place.vec) < kExact);
    counts(2, 2, 1);
    const MatObject larger = CreateMat(Unsymmetric(2 * n, 9), place.mat);
    MUST(KSPReset(ksp));
    MUST(KSPSetOperators(ksp, larger, larger));
    CHECK(Solves(ksp, place.vec) < kExact);
  }
}

TEST_CASE("cudss: a factor for another matrix with the same nonzeros is not analysed again", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  for (const Backend &place : Places()) {
    const MatObject A = CreateMat(Unsymmetric(60, 3), place.mat), B = CreateMat(Scaled(Unsymmetric(60, 3), 2), place.mat);
    const int       before = Executed(ANALYSIS);
    const VecObject b = CreateVec(60, place.vec, 5), x = CreateVec(60, place.vec, 6);
    MatObject       F;
    MatFactorInfo   info;
    MUST(MatFactorInfoInitialize(&info));
    MUST(MatGetFactor(A, MATSOLVERCUDSS, MAT_FACTOR_LU, F.put()));
    for (Mat mat : {(Mat)A, (Mat)B}) {
      MUST(MatLUFactorSymbolic(F, mat, nullptr, nullptr, &info));
      MUST(MatLUFactorNumeric(F, mat, &info));
      MUST(MatSolve(F, b, x));
      CHECK(BackwardError(mat, x, b) < kExact);
    }
    if (kStub) CHECK(Executed(ANALYSIS) - before == 1);
  }
}

TEST_CASE("cudss: nonzeros that change in place are analysed", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  for (const Backend &place : Places()) {
    const MatObject A = CreateMat(Unsymmetric(50, 3), place.mat), more = CreateMat(Unsymmetric(50, 4), place.mat);
    const KSPObject ksp = Solver(A, kLU);
    CHECK(Solves(ksp, place.vec) < kExact);
    MUST(MatAXPY(A, 0.25, more, DIFFERENT_NONZERO_PATTERN));
    CHECK(Solves(ksp, place.vec) < kExact);
  }
}

TEST_CASE("cudss: rows that are not sorted", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  PetscInt    i[] = {0, 3, 5, 7}, j[] = {2, 0, 1, 1, 0, 2, 1};
  PetscScalar a[] = {1, 5, 2, 6, 1, 7, 3};
  MatObject   A;
  MUST(MatCreateSeqAIJWithArrays(PETSC_COMM_SELF, 3, 3, i, j, a, A.put()));
  const KSPObject ksp = Solver(A, kLU);
  CHECK(Solves(ksp, VECSEQ) < kExact);
  CHECK(Contains(ViewText(ksp), "entries out of order, for which the rows are sorted: 3"));
}

TEST_CASE("cudss: the inertia of a symmetric matrix", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  constexpr LocalInt n = 30;
  /* eigenvalues 2 - 2 cos(k pi / (n + 1)) of the one-dimensional Laplacian; 11 of them are below the shift */
  const double shift = 2 - std::cos(11 * PETSC_PI / (n + 1)) - std::cos(12 * PETSC_PI / (n + 1));
  HostMatrix   A     = Poisson(n);
  for (LocalInt row = 0; row < n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == row) A.a[k] -= shift;
  for (bool definite : {false, true}) {
    const MatObject mat = CreateMat(definite ? Poisson(n) : A, MATSEQAIJ);
    if (definite) MUST(MatSetOption(mat, MAT_SPD, PETSC_TRUE));
    const KSPObject ksp = Solver(mat, kCholesky);
    PC              pc;
    Mat             F;
    PetscInt        negative, zero, positive;
    MUST(KSPGetPC(ksp, &pc));
    MUST(PCFactorGetMatrix(pc, &F));
    MUST(MatGetInertia(F, &negative, &zero, &positive));
    CHECK(negative == (definite ? 0 : 11));
    CHECK(zero == 0);
    CHECK(positive == (definite ? n : n - 11));
  }
}

TEST_CASE("cudss: a singular matrix is a failure, unless its pivots may be replaced", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  const HostMatrix good = Poisson(20);
  HostMatrix       bad  = good; /* with constants in its null space */
  bad.a[0] = bad.a.back() = bad.At(0, 1) * -1;
  for (const Backend &place : Places())
    for (const char *type : {kLU, kCholesky}) {
      CAPTURE(place.name, type);
      const MatObject A = CreateMat(bad, place.mat), B = CreateMat(good, place.mat);
      const KSPObject ksp = Solver(A, type);
      CHECK(std::isinf(Solves(ksp, place.vec)));
      CHECK(Contains(ViewText(ksp), "no factor: pivots of cuDSS that are nearly zero: 1. The matrix is singular"));
      MUST(MatCopy(B, A, SAME_NONZERO_PATTERN)); /* new values are a new chance */
      CHECK(Solves(ksp, place.vec) < kExact);
      CHECK(!Contains(ViewText(ksp), "no factor"));
      MUST(MatCopy(CreateMat(bad, place.mat), A, SAME_NONZERO_PATTERN));
      const KSPObject going = Solver(A, std::string(type) + "-pc_factor_shift_type nonzero");
      (void)Solves(going, place.vec);
      CHECK(Contains(ViewText(going), "pivots that were nearly zero and are replaced: 1"));
      const Errors  errors;
      const Options scope(std::string(type) + "-ksp_error_if_not_converged");
      KSPObject     strict;
      MUST(KSPCreate(PETSC_COMM_SELF, strict.put()));
      MUST(KSPSetOperators(strict, A, A));
      MUST(KSPSetFromOptions(strict));
      CHECK((int)KSPSetUp(strict) == (int)PETSC_ERR_MAT_LU_ZRPVT);
      CHECK(Contains(errors.text, "-pc_factor_shift_type nonzero"));
    }
}

TEST_CASE("cudss: what was said to be definite and is not is a failure", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  const MatObject A = CreateMat(Shifted(RandomGraph(30, 6, 1), 0.7), MATSEQAIJ);
  MUST(MatSetOption(A, MAT_SPD, PETSC_TRUE));
  const KSPObject ksp = Solver(A, kCholesky);
  CHECK(std::isinf(Solves(ksp, VECSEQ)));
  CHECK(Contains(ViewText(ksp), "no factor: a pivot of cuDSS is not positive"));
}

TEST_CASE("cudss: a matrix that is not symmetric has no Cholesky factor", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  for (const Backend &place : Places()) {
    const MatObject A = CreateMat(Unsymmetric(30, 3), place.mat);
    KSPObject       ksp;
    const Options   scope(kCholesky);
    const Errors    errors;
    MUST(KSPCreate(PETSC_COMM_SELF, ksp.put()));
    MUST(KSPSetOperators(ksp, A, A));
    MUST(KSPSetFromOptions(ksp));
    CHECK((int)KSPSetUp(ksp) == (int)PETSC_ERR_ARG_WRONG);
    CHECK(Contains(errors.text, "The matrix is not symmetric"));
    CHECK(Contains(errors.text, "Use -pc_type lu"));
  }
}

TEST_CASE("cudss: memory that is not enough is a failure that says how much is needed", "[cudss]")
{
  if (!kStub) return SkipTest();
  NEEDS_CUDSS();
  constexpr LocalInt n      = 100;
  const MatObject    A      = CreateMat(Unsymmetric(n, 3), MATSEQAIJ);
  const double       before = DeviceBytes();
  {
    KSPObject ksp;
    {
      const Limit limit(1000);
      ksp = Solver(A, kLU);
      CHECK(std::isinf(Solves(ksp, VECSEQ)));
      CHECK(Contains(ViewText(ksp), "no factor: cuDSS needs 8e-05 GB on the GPU"));
      CHECK(Contains(ViewText(ksp), "With -mat_cudss_hybrid_memory it needs 4e-05 GB there and 8e-05 GB on the host"));
      CHECK(DeviceBytes() == before); /* all was given back */
    }
    {
      const Limit     limit(-1);
      const KSPObject none = Solver(A, kLU);
      CHECK(std::isinf(Solves(none, VECSEQ)));
      CHECK(Contains(ViewText(none), "no factor: cuDSS has not enough memory to analyse the matrix"));
    }
    MUST(KSPReset(ksp));
    MUST(KSPSetOperators(ksp, A, A));
    CHECK(Solves(ksp, VECSEQ) < kExact);
    CHECK(DeviceBytes() > before);
  }
  CHECK(DeviceBytes() == before);
}

TEST_CASE("cudss: options have the prefix of the solver, and reach the library", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  const MatObject A   = CreateMat(RandomGraph(50, 6, 1), MATSEQAIJ);
  const KSPObject ksp = Solver(A, std::string(kLU) + "-mat_cudss_reorder_alg amd -mat_cudss_ir_n_steps 2 -mat_cudss_hybrid_memory");
  CHECK(Solves(ksp, VECSEQ) < kExact);
  CHECK(Contains(ViewText(ksp), "LU factor, order amd, pivots auto, 2 steps of refinement, factor on the host"));
  const KSPObject pivots = Solver(A, std::string(kCholesky) + "-mat_cudss_pivot_type bunch_kaufman");
  CHECK(Solves(pivots, VECSEQ) < kExact);
  CHECK(Contains(ViewText(pivots), "LDL^T factor, order default, pivots bunch_kaufman, 0 steps of refinement"));
  const KSPObject deterministic = Solver(A, std::string(kCholesky) + "-mat_cudss_deterministic");
  CHECK(Solves(deterministic, VECSEQ) < kExact);
  CHECK(Contains(ViewText(deterministic), "0 steps of refinement, deterministic"));
}

TEST_CASE("cudss: within other preconditioners it does what PETSc's own factors do", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  const std::string bjacobi = "-ksp_type gmres -ksp_rtol 1e-10 -pc_type bjacobi -pc_bjacobi_blocks 3 -sub_pc_type lu ";
  const std::string redundant =
    "-ksp_type gmres -ksp_rtol 1e-10 -pc_type redundant -redundant_pc_type cholesky -redundant_ksp_type preonly ";
  const std::string gamg = "-ksp_type cg -ksp_rtol 1e-10 -pc_type gamg -pc_gamg_coarse_eq_limit 20 -mg_coarse_pc_type cholesky ";
  for (const Backend &place : Places()) {
    const MatObject A = CreateMat(Poisson(15, 15), place.mat);
    for (const auto &[options, more] : {std::pair<std::string, std::string>{bjacobi, "-sub_pc_factor_mat_solver_type cudss"},
                                        {redundant, "-redundant_pc_factor_mat_solver_type cudss"},
                                        {gamg, "-mg_coarse_pc_factor_mat_solver_type cudss"}}) {
      CAPTURE(place.name, options);
      PetscInt iterations[2];
      for (bool ours : {false, true}) {
        const int       before = Executed(FACTORIZATION);
        const KSPObject ksp    = Solver(A, options + (ours ? more : ""));
        CHECK(Solves(ksp, place.vec) < 1e-8);
        MUST(KSPGetIterationNumber(ksp, &iterations[ours]));
        if (kStub) CHECK((Executed(FACTORIZATION) > before) == ours);
      }
      CHECK(iterations[0] == iterations[1]);
    }
  }
}

TEST_CASE("cudss: the kernel interface, with arrays in either memory", "[cudss][gpu][sanitizer]")
{
  NEEDS_CUDSS();
  constexpr LocalInt n = 20, columns = 2, ld = n + 3;
  constexpr size_t   bytes = sizeof(double) * ld * columns;
  const HostMatrix   A     = Unsymmetric(n, 3);
  for (PetscMemType of_A : {PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA})
    for (PetscMemType of_B : {PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA})
      for (PetscMemType of_X : {PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA}) {
        const CSRCopy       copy(A, of_A);
        const CUDSSParams   params;
        CUDSSStats          stats;
        CUDSS              *solver;
        double             *B, *X;
        std::vector<double> b(ld * columns), x(ld * columns, -7);
        Random              random(1);
        for (double &value : b) value = random.Between(-1, 1);
        MUST(ArrayCreate(bytes, of_B, (void **)&B));
        MUST(ArrayCreate(bytes, of_X, (void **)&X));
        MUST(ArrayCopy(B, b.data(), bytes, of_B, PETSC_MEMTYPE_HOST));
        MUST(ArrayCopy(X, x.data(), bytes, of_X, PETSC_MEMTYPE_HOST));
        MUST(CUDSSCreate_CUDA(&solver));
        MUST(CUDSSAnalyse_CUDA(solver, CUDSSKind::GENERAL, &params, &copy.view, &stats));
        MUST(CUDSSFactor_CUDA(solver, &copy.view, &stats));
        CHECK((int)stats.error == (int)MAT_FACTOR_NOERROR);
        CHECK(stats.nonzeros >= A.nnz());
        CHECK(stats.device > 0);
        MUST(CUDSSSolve_CUDA(solver, PETSC_FALSE, columns, {B, ld, of_B}, {X, ld, of_X}));
        MUST(ArrayCopy(x.data(), X, bytes, PETSC_MEMTYPE_HOST, of_X));
        for (LocalInt c = 0; c < columns; c++) {
          for (LocalInt row = 0; row < n; row++) {
            double sum = -b[c * ld + row];
            for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) sum += A.a[k] * x[c * ld + A.j[k]];
            CHECK(std::fabs(sum) < kExact);
          }
          for (LocalInt row = n; row < ld; row++) CHECK(x[c * ld + row] == -7); /* what lies between the columns stays */
        }
        MUST(CUDSSDestroy_CUDA(&solver));
        MUST(ArrayDestroy(of_B, (void **)&B));
        MUST(ArrayDestroy(of_X, (void **)&X));
      }
}

/* cuDSS judges pivots by their size, so that matrices in other units have to be tried with the library itself. */
TEST_CASE("cudss: small and large entries, and penalties", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  if (kStub) return SkipTest();
  for (const double scale : {1e-20, 1e-10, 1e10, 1e20})
    for (const char *type : {kLU, kCholesky}) {
      CAPTURE(scale, type);
      const MatObject A = CreateMat(Scaled(Poisson(30, 30), scale), MATSEQAIJ);
      CHECK(Solves(Solver(A, type), VECSEQ) < kExact);
    }
  HostMatrix penalties = Poisson(30, 30);
  for (LocalInt row : {0, 1, 450})
    for (LocalInt k = penalties.i[row]; k < penalties.i[row + 1]; k++)
      if (penalties.j[k] == row) penalties.a[k] = 1e30;
  for (const char *type : {kLU, kCholesky}) {
    CAPTURE(type);
    const MatObject A   = CreateMat(penalties, MATSEQAIJ);
    const KSPObject ksp = Solver(A, type);
    const VecObject b = CreateVec(penalties.n, VECSEQ, 5), x = CreateVec(penalties.n, VECSEQ, 6),
                    r = CreateVec(penalties.n, VECSEQ, 7);
    PetscReal norm;
    MUST(KSPSolve(ksp, b, x));
    MUST(MatResidual(A, b, x, r));
    MUST(VecNorm(r, NORM_INFINITY, &norm));
    CHECK(norm < 1e-9);
  }
}

TEST_CASE("cudss: a shell", "[cudss][gpu]")
{
  NEEDS_CUDSS();
  if (kStub) return SkipTest();
  const HostMatrix shell = Shared("s3rmt3m3");
  for (const Backend &place : Places())
    for (bool definite : {false, true}) {
      const MatObject A = CreateMat(shell, place.mat);
      if (definite) MUST(MatSetOption(A, MAT_SPD, PETSC_TRUE));
      const KSPObject ksp = Solver(A, kCholesky);
      CHECK(Solves(ksp, place.vec) < kExact);
      MUST(MatScale(A, 1.5));
      CHECK(Solves(ksp, place.vec) < kExact);
    }
}
