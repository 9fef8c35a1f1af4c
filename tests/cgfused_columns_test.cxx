/*
   Several right-hand sides with KSPCGFUSED: KSPMatSolve() beside KSPSolve() for each column. Where the GPU has them in one graph,
   the iterates are the same to rounding, and so counts and reasons are the same on these systems; a column does not depend on the
   others to the last bit. Anywhere else KSPMatSolve() solves one by one.
*/
#include <finepc.h>

#include <cmath>
#include <limits>

#include "bodies.h"
#include "pc_support.h"
#include "spread.h"

namespace
{

const double kNaN = std::nan("");

/* Where a block is solved, and the path that is asked for. */
struct Place {
  const Backend *backend;
  const char    *path;
};

std::vector<Place> Places()
{
  std::vector<Place> places;
  for (const Backend &backend : Backends()) places.push_back({&backend, "general"});
  if (DeviceFound()) places.push_back({&DeviceBackend(), "graph"});
  return places;
}

KSPObject MakeFused(Mat A, const Place &place, PCType pc, const std::string &options = "")
{
  return MakeKSP(A, std::string("-ksp_type cgfused -ksp_cgfused_path ") + place.path + " " + options, pc);
}

/* What the line of the view says about the block. */
std::string WayOf(KSP ksp)
{
  const std::string text = ViewText(ksp);
  const size_t      at   = text.find(" right-hand sides, ");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

void CheckWay(KSP ksp, const Place &place)
{
  const std::string way = WayOf(ksp);
  CAPTURE(way);
  CHECK(Contains(way, place.path == std::string("graph") ? "together: a graph over interleaved vectors"
                                                         : "one by one: it was asked for"));
}

/* A dense matrix with the rows of A, whose entries are value(row, column), the same on any number of ranks. */
MatObject MakeBlock(Mat A, PetscInt columns, MatType type, const std::function<double(PetscInt, PetscInt)> &value,
                    PetscInt more = 0)
{
  MatObject    X;
  PetscInt     rows, first;
  PetscScalar *x;
  MUST(MatGetLocalSize(A, &rows, nullptr));
  MUST(MatGetOwnershipRange(A, &first, nullptr));
  MUST(MatCreate(PetscObjectComm((PetscObject)A), X.put()));
  MUST(MatSetSizes(X, rows, PETSC_DECIDE, PETSC_DETERMINE, columns));
  MUST(MatSetType(X, type));
  if (more) MUST(MatDenseSetLDA(X, rows + more));
  MUST(MatSetUp(X));
  MUST(MatDenseGetArrayWrite(X, &x));
  for (PetscInt c = 0; c < columns; c++)
    for (PetscInt i = 0; i < rows + more; i++) x[c * (rows + more) + i] = i < rows ? value(first + i, c) : kNaN;
  MUST(MatDenseRestoreArrayWrite(X, &x));
  Assemble(X);
  return X;
}

double RandomEntry(PetscInt row, PetscInt column)
{
  return Random((std::uint64_t)row * 1000 + column + 17).Between(-1, 1);
}

/* Columns that take different numbers of iterations. */
double UnlikeEntry(PetscInt row, PetscInt column)
{
  return column % 3 == 1   ? std::sin(0.3 * (column + 1) * row)
         : column % 3 == 2 ? (row % 7 == column % 7)
                           : RandomEntry(row, column);
}

std::vector<std::vector<double>> ColumnsOf(Mat X)
{
  std::vector<std::vector<double>> columns;
  const PetscScalar               *x;
  PetscInt                         rows, ld, count;
  MUST(MatGetLocalSize(X, &rows, nullptr));
  MUST(MatGetSize(X, nullptr, &count));
  MUST(MatDenseGetLDA(X, &ld));
  MUST(MatDenseGetArrayRead(X, &x));
  for (PetscInt c = 0; c < count; c++) columns.emplace_back(x + c * ld, x + c * ld + rows);
  MUST(MatDenseRestoreArrayRead(X, &x));
  return columns;
}

struct Outcome {
  std::vector<PetscInt>            its;
  std::vector<KSPConvergedReason>  reasons;
  std::vector<std::vector<double>> x;
};

/* KSPMatSolve(), from what X is. */
Outcome SolveBlock(KSP ksp, Mat B, Mat X)
{
  Outcome                   out;
  const PetscInt           *its;
  const KSPConvergedReason *reasons;
  PetscInt                  count;
  MUST(KSPMatSolve(ksp, B, X));
  MUST(KSPCGFusedGetColumns(ksp, &count, &its, &reasons));
  out.its.assign(its, its + count);
  out.reasons.assign(reasons, reasons + count);
  out.x = ColumnsOf(X);
  return out;
}

/* KSPSolve() for each column. */
Outcome SolveColumns(KSP ksp, Mat B, Mat X)
{
  Outcome  out;
  PetscInt count;
  MUST(MatGetSize(B, nullptr, &count));
  for (PetscInt c = 0; c < count; c++) {
    Vec b, x;
    MUST(MatDenseGetColumnVecRead(B, c, &b));
    MUST(MatDenseGetColumnVec(X, c, &x));
    MUST(KSPSolve(ksp, b, x));
    MUST(MatDenseRestoreColumnVec(X, c, &x));
    MUST(MatDenseRestoreColumnVecRead(B, c, &b));
    out.its.push_back(IterationsOf(ksp));
    out.reasons.push_back(ReasonOf(ksp));
  }
  out.x = ColumnsOf(X);
  return out;
}

/*
   The same counts and reasons, and the same solutions up to this share of their largest entry, or of that of the guess, where that
   is larger: a solution that is zero, or tiny, is what is left of the guess. On a GPU products and sums of a block are rounded
   otherwise than those of a column, so that a norm that comes to the tolerance within rounding may pass it an iteration earlier or
   later. The solutions then differ by what is left of the error.
*/
void Compare(const Outcome &mine, const Outcome &theirs, bool on_gpu, double tolerance, double guess = 0)
{
  constexpr double kLeft = 1e-5; /* of the error after a solve to 1e-6, or less */
  if (on_gpu) tolerance *= 10;   /* what rounding makes of the last iterates in some 50 iterations */
  REQUIRE(mine.its.size() == theirs.its.size());
  CHECK(mine.reasons == theirs.reasons);
  REQUIRE(mine.x.size() == theirs.x.size());
  const size_t first = mine.x.size() - mine.its.size(); /* the solver knows the last of PETSc's batches */
  for (size_t c = 0; c < mine.its.size(); c++) {
    CAPTURE(c);
    CHECK(std::abs(mine.its[c] - theirs.its[c]) <= (on_gpu ? 1 : 0));
  }
  for (size_t c = 0; c < mine.x.size(); c++) {
    CAPTURE(c);
    CHECK(Finite(mine.x[c]) == Finite(theirs.x[c]));
    const bool same    = c < first || mine.its[c - first] == theirs.its[c - first];
    double     largest = 0;
    for (double x : theirs.x[c]) largest = std::max(largest, std::fabs(x));
    const double share = largest > 0 ? largest / std::max(largest, guess) : 1.;
    if (Finite(theirs.x[c])) CHECK(share * Difference(mine.x[c], theirs.x[c]) <= (same ? tolerance : kLeft));
  }
}

/* Columns that are zero, not finite on one rank, solved by the guess, tiny and huge. */
double SpecialEntry(PetscInt row, PetscInt column)
{
  const double value = RandomEntry(row, column);
  switch (column) {
  case 1: return 0.;
  case 2: return row == 5 ? kNaN : value;
  case 4: return row == 200 ? (double)std::numeric_limits<double>::infinity() : value;
  case 5: return 1e-250 * value;
  case 6: return 1e250 * value;
  default: return value;
  }
}

/* A diagonal matrix of both signs: a column that sees one sign alone converges, and the others break down. */
HostMatrix BothSigns()
{
  std::vector<double> values;
  for (int i = 0; i < 100; i++) values.push_back(i < 50 ? 1. + i % 5 : -1. - i % 3);
  return FromDiagonal(values);
}

double SignEntry(PetscInt row, PetscInt column)
{
  return column == 1 ? RandomEntry(row, 1) : column == 2 ? (row == 1) - (row == 50) : row < 50 ? RandomEntry(row, column) : 0.;
}

/* A block beside its columns, from the same guesses. */
void CheckBlock(const Place &place, Mat A, PCType pc, const std::string &options, PetscInt columns,
                const std::function<double(PetscInt, PetscInt)> &value = UnlikeEntry, double tolerance = 1e-7, PetscInt more = 0)
{
  CAPTURE(place.backend->name, place.path, pc, options, columns, more);
  const MatObject B     = MakeBlock(A, columns, place.backend->dense, value, more),
                  X     = MakeBlock(A, columns, place.backend->dense, RandomEntry, more),
                  Y     = MakeBlock(A, columns, place.backend->dense, RandomEntry);
  const KSPObject block = MakeFused(A, place, pc, options), single = MakeFused(A, place, pc, options);
  const Outcome   mine   = SolveBlock(block, B, X);
  Outcome         theirs = SolveColumns(single, B, Y);
  /* the solver knows the last one of PETSc's batches */
  theirs.its.erase(theirs.its.begin(), theirs.its.end() - (ptrdiff_t)mine.its.size());
  theirs.reasons.erase(theirs.reasons.begin(), theirs.reasons.end() - (ptrdiff_t)mine.reasons.size());
  CHECK((PetscInt)mine.its.size() == (Contains(options, "size 16") && columns > 16 ? columns % 16 : columns));
  const bool on_gpu = PetscMemTypeDevice(place.backend->where);
  Compare(mine, theirs, on_gpu, tolerance);
  if (columns) CheckWay(block, place);

  PetscInt most = 0;
  bool     all  = true;
  for (size_t c = 0; c < theirs.its.size(); c++) {
    most = std::max(most, theirs.its[c]);
    all  = all && theirs.reasons[c] > 0;
  }
  CHECK(std::abs(IterationsOf(block) - most) <= (on_gpu ? 1 : 0));
  CHECK((ReasonOf(block) > 0) == all);
}

} // namespace

TEST_CASE("columns: a block and its columns", "[cgfused][columns]")
{
  for (const Place &place : Places()) {
    const MatObject A = CreateMat(Diffusion(17, 13, true, 3), place.backend->mat);
    for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI, PCSFSAI})
      for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
        for (const char *guess : {"", " -ksp_initial_guess_nonzero"})
          for (PetscInt columns : {1, 3, 8})
            CheckBlock(place, A, pc, std::string("-ksp_rtol 1e-8 -ksp_norm_type ") + norm + guess, columns);
  }
}

TEST_CASE("columns: negative definite matrices", "[cgfused][columns][cmatch]")
{
  for (const Place &place : Places()) {
    const MatObject A = CreateMat(Diffusion(17, 13, true, 3), place.backend->mat);
    for (PCType pc : {PCJACOBI, PCAFSAI, PCSFSAI, PCCMATCH}) {
      CAPTURE(place.backend->name, place.path, pc);
      const std::string options = "-ksp_rtol 1e-8 -pc_cmatch_coarse_size 20 -pc_cmatch_precision double";
      const KSPObject   ksp     = MakeFused(A, place, pc, options); /* for a matrix that changes its sign */
      for (double factor : {-1., -1., -2.}) {
        MUST(MatScale(A, factor));
        CheckBlock(place, A, pc, options, 4);
        const MatObject B = MakeBlock(A, 4, place.backend->dense, UnlikeEntry),
                        X = MakeBlock(A, 4, place.backend->dense, RandomEntry);
        const Outcome out = SolveBlock(ksp, B, X);
        for (KSPConvergedReason reason : out.reasons) CHECK(reason == KSP_CONVERGED_RTOL);
      }
      MUST(MatScale(A, -0.5));
    }
  }
}

TEST_CASE("columns: any number of them", "[cgfused][columns]")
{
  for (const Place &place : Places()) {
    const MatObject A = CreateMat(Diffusion(17, 13, true, 3), place.backend->mat);
    for (const char *batch : {"", " -ksp_matsolve_batch_size 16", " -ksp_matsolve_batch_size 100"})
      for (PetscInt columns : {0, 1, 2, 4, 5, 7, 9, 15, 16, 17, 33})
        CheckBlock(place, A, PCAFSAI, std::string("-ksp_rtol 1e-8") + batch, columns);
    CheckBlock(place, A, PCAFSAI, "-ksp_rtol 1e-8", 5, UnlikeEntry, 1e-7, 3); /* another leading dimension */
  }
}

/* cuSPARSE reads shared memory that it has not written: see docs/known-faults.md. */
TEST_CASE("the program's first product after a solve", "[cgfused][gmresfused][gpu]")
{
  NEEDS_DEVICE();
  const Backend &backend = DeviceBackend();
  for (const char *solver : {"gmresfused", "cgfused", "cgfused -ksp_cgfused_path resident", "cgfused -ksp_cgfused_path graph"})
    for (PCType pc : {PCJACOBI, PCAFSAI, PCSFSAI, PCCMATCH})
      for (LocalInt n : {2, 31, 32, 33, 64, 150}) {
        CAPTURE(solver, pc, n);
        const std::vector<double> tenth((size_t)n, 0.1);
        const MatObject           A   = CreateMat(FromDiagonal(tenth), backend.mat);
        const KSPObject           ksp = MakeKSP(A, std::string("-ksp_type ") + solver, pc);
        const VecObject           b = RightVec(A, 2), x = RightVec(A, 3), y = RightVec(A, 4);
        MUST(KSPSolve(ksp, b, x));
        MUST(MatMult(A, x, y)); /* of PETSc by cuSPARSE, for the first time with this matrix */
        const std::vector<double> left = Values(x), right = Values(y);
        for (LocalInt row = 0; row < n; row++) CHECK(std::abs(right[row] - 0.1 * left[row]) <= 1e-14 * std::abs(left[row]));
      }
}

/* MatGetDiagonal() of PETSc's reads beyond empty rows of a matrix on a GPU: see docs/known-faults.md. */
TEST_CASE("jacobi in our solvers does not read beyond empty rows", "[cgfused][gmresfused][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(10);
  for (LocalInt row : {1, 4, 9}) rows[row].push_back({row, 2. + row});
  for (const char *solver : {"cgfused -ksp_cgfused_path graph", "cgfused -ksp_cgfused_path resident", "gmresfused"}) {
    CAPTURE(solver);
    const MatObject   A   = CreateMat(FromRows(rows), DeviceBackend().mat);
    const std::string all = std::string("-ksp_norm_type none -ksp_max_it 1 -ksp_type ") + solver;
    const KSPObject   ksp = MakeKSP(A, all, PCJACOBI);
    const VecObject   x = RightVec(A, 2), b = RightVec(A, 3);
    MUST(MatMult(A, x, b)); /* which throws away the product that may be wrong, too */
    MUST(MatMult(A, x, b));
    const std::vector<double> expected = Values(x);
    MUST(KSPSolve(ksp, b, x));
    const std::vector<double> found = Values(x);
    for (LocalInt row = 0; row < 10; row++)
      CHECK(std::abs(found[row] - (rows[row].empty() ? 0 : expected[row])) <= 1e-14 * std::abs(expected[row]));
  }
}

TEST_CASE("columns: few rows", "[cgfused][columns]")
{
  for (const Place &place : Places())
    for (PetscInt n : {1, 2, 31, 32, 33, 257, 1000}) {
      /* with some 32 rows the first product of PETSc's by cuSPARSE may be wrong: see docs/known-faults.md */
      if (n < 100 && PetscMemTypeDevice(place.backend->where) && place.path == std::string("general")) continue;
      for (PCType pc : {PCNONE, PCAFSAI})
        CheckBlock(place, CreateMat(RandomStencil(n, 1, 1, false, 3), place.backend->mat), pc, "-ksp_max_it 4", 5, RandomEntry,
                   1e-9);
    }
}

static const char *const kLimits[] = {"-ksp_max_it 0",
                                      "-ksp_max_it 1",
                                      "-ksp_max_it 2",
                                      "-ksp_max_it 4",
                                      "-ksp_max_it 7 -ksp_rtol 1e-12",
                                      "-ksp_max_it 30 -ksp_rtol 1e-5 -ksp_converged_maxits",
                                      "-ksp_min_it 20 -ksp_rtol 1e-2",
                                      "-ksp_norm_type none -ksp_max_it 9",
                                      "-ksp_check_norm_iteration 12 -ksp_rtol 1e-2",
                                      "-ksp_convergence_test skip -ksp_max_it 6",
                                      "-ksp_divtol 1.0001 -ksp_norm_type unpreconditioned"};

TEST_CASE("columns: limits of iterations and norms", "[cgfused][columns]")
{
  for (const Place &place : Places()) {
    const MatObject A = CreateMat(Diffusion(17, 13, true, 3), place.backend->mat);
    for (const char *options : kLimits)
      for (PCType pc : {PCJACOBI, PCAFSAI}) CheckBlock(place, A, pc, options, 5);
  }
}

/* Zero, not finite, solved by the guess, tiny and huge: each has its own end, and the others are what they are without it. */
TEST_CASE("columns: some that are special", "[cgfused][columns]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI, PCCMATCH}) {
      const MatObject A = CreateMat(Diffusion(17, 13, true, 3), place.backend->mat);
      for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
        for (PetscInt columns : {5, 8}) {
          CAPTURE(place.backend->name, place.path, pc, norm, columns);
          const std::string options = std::string("-ksp_rtol 1e-6 -ksp_norm_type ") + norm;
          CheckBlock(place, A, pc, options, columns, SpecialEntry);
          const KSPObject with = MakeFused(A, place, pc, options), without = MakeFused(A, place, pc, options);
          const MatObject B     = MakeBlock(A, columns, place.backend->dense, SpecialEntry),
                          C     = MakeBlock(A, columns, place.backend->dense, RandomEntry),
                          X     = MakeBlock(A, columns, place.backend->dense, RandomEntry),
                          Y     = MakeBlock(A, columns, place.backend->dense, RandomEntry);
          const Outcome spoiled = SolveBlock(with, B, X), plain = SolveBlock(without, C, Y);
          for (PetscInt c : {0, 3}) {
            CHECK(spoiled.reasons[c] > 0);
            CHECK(SameBits(spoiled.x[c], plain.x[c]));
          }
          CHECK(spoiled.reasons[2] == KSP_DIVERGED_NANORINF);
          CHECK(ReasonOf(with) == KSP_DIVERGED_NANORINF);
        }
    }
}

/* A column that has ended is not touched by the iterations that the others need. */
TEST_CASE("columns: one that ends early stays as it is", "[cgfused][columns]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCNONE, PCAFSAI, PCCMATCH}) {
      CAPTURE(place.backend->name, place.path, pc);
      const MatObject A    = CreateMat(Poisson(20, 20), place.backend->mat);
      const auto      same = [](PetscInt row, PetscInt) { /* almost an eigenvector of the preconditioned matrix */
                                                     return std::sin((row % 20 + 1) * PETSC_PI / 21) *
                                                            std::sin((row / 20 + 1) * PETSC_PI / 21);
      };
      const auto      ones = [&](PetscInt row, PetscInt column) { return column ? RandomEntry(row, column) : same(row, 0); };
      const KSPObject ksp  = MakeFused(A, place, pc, "-ksp_rtol 1e-3");
      const MatObject B = MakeBlock(A, 4, place.backend->dense, ones), C = MakeBlock(A, 4, place.backend->dense, same),
                      X   = MakeBlock(A, 4, place.backend->dense, RandomEntry),
                      Y   = MakeBlock(A, 4, place.backend->dense, RandomEntry);
      const Outcome mixed = SolveBlock(ksp, B, X), alike = SolveBlock(ksp, C, Y);
      CHECK(mixed.its[0] < mixed.its[1]);
      CHECK(mixed.its[0] == alike.its[0]);
      CHECK(SameBits(mixed.x[0], alike.x[0]));
      for (PetscInt c : {1, 2, 3}) CHECK(SameBits(alike.x[c], alike.x[0]));
    }
}

TEST_CASE("columns: one that breaks down", "[cgfused][columns]")
{
  for (const Place &place : Places()) {
    CAPTURE(place.backend->name, place.path);
    const MatObject A = CreateMat(BothSigns(), place.backend->mat);
    CheckBlock(place, A, PCNONE, "-ksp_rtol 1e-8", 4, SignEntry);
    const KSPObject ksp = MakeFused(A, place, PCNONE, "-ksp_error_if_not_converged");
    const MatObject B = MakeBlock(A, 4, place.backend->dense, SignEntry), X = MakeBlock(A, 4, place.backend->dense, RandomEntry);
    Errors          errors;
    CHECK((int)KSPMatSolve(ksp, B, X) != 0);
    CHECK(!errors.text.empty());
  }
}

TEST_CASE("columns: a preconditioner that fails", "[cgfused][columns]")
{
  for (const Place &place : Places()) {
    CAPTURE(place.backend->name, place.path);
    const MatObject A   = CreateMat(WithEntry(Poisson(70), 40, 40, -1), place.backend->mat);
    const KSPObject ksp = MakeFused(A, place, PCAFSAI);
    const MatObject B = MakeBlock(A, 3, place.backend->dense, RandomEntry), X = MakeBlock(A, 3, place.backend->dense, RandomEntry);
    const Outcome   out = SolveBlock(ksp, B, X);
    for (PetscInt c = 0; c < 3; c++) CHECK(out.reasons[c] == KSP_DIVERGED_PC_FAILED);
    CHECK(Contains(WayOf(ksp), "one by one: the preconditioner failed"));
  }
}

/* What KSPSolve() alone does. */
TEST_CASE("columns: one by one", "[cgfused][columns]")
{
  struct Case {
    const char                   *options, *why;
    std::function<void(KSP, Mat)> change;
    bool                          transpose;
  };
  const auto              nothing = [](KSP, Mat) { };
  const std::vector<Case> cases   = {
    {"", "a transposed solve", nothing, true},
    {"", "eigenvalue estimates", [](KSP ksp, Mat) { MUST(KSPSetComputeSingularValues(ksp, PETSC_TRUE)); }, false},
    {"-ksp_initial_guess_nonzero -ksp_guess_type fischer", "a guess that KSPSolve() makes", nothing, false},
    {"-ksp_cg_single_reduction", "a single reduction was asked for", nothing, false},
    {"", "a history of residual norms", [](KSP ksp, Mat) { MUST(KSPSetResidualHistory(ksp, nullptr, 100, PETSC_TRUE)); }, false},
    {"", "a monitor",
       [](KSP ksp, Mat) {
       MUST(KSPMonitorSet(ksp, [](KSP, PetscInt, PetscReal, void *) -> PetscErrorCode { return PETSC_SUCCESS; }, nullptr, nullptr));
     },
       false},
    {"", "a null space", [](KSP, Mat A) { SetConstantsNull(A); }, false},
  };
  for (const Backend &backend : Backends())
    for (const Case &c : cases) {
      CAPTURE(backend.name, c.why);
      if (c.transpose && !kKSPHasMatSolveTranspose) continue;
      const Place     place{&backend, "auto"};
      const MatObject A     = CreateMat(Diffusion(9, 8, true, 3), backend.mat);
      const KSPObject block = MakeFused(A, place, PCAFSAI, c.options), single = MakeFused(A, place, PCAFSAI, c.options);
      const MatObject B = MakeBlock(A, 3, backend.dense, RandomEntry), X = MakeBlock(A, 3, backend.dense, RandomEntry),
                      Y = MakeBlock(A, 3, backend.dense, RandomEntry);
      for (KSP ksp : {(KSP)block, (KSP)single}) c.change(ksp, A);
      if (c.transpose) MUST(KSPMatSolveTranspose(block, B, X));
      else MUST(KSPMatSolve(block, B, X));
      const Outcome theirs = SolveColumns(single, B, Y);
      const auto    x      = ColumnsOf(X);
      CHECK(Contains(WayOf(block), std::string("one by one: ") + c.why));
      for (PetscInt column = 0; column < 3; column++) CHECK(Difference(x[column], theirs.x[column]) <= 1e-7);
    }
}

/* The solver is used again: with other numbers of columns, new values, and for one right-hand side between. */
TEST_CASE("columns: one solver for many solves", "[cgfused][columns]")
{
  for (const Place &place : Places())
    for (PCType pc : {PCJACOBI, PCAFSAI}) {
      CAPTURE(place.backend->name, place.path, pc);
      const MatObject A   = CreateMat(Diffusion(17, 13, true, 3), place.backend->mat);
      const KSPObject ksp = MakeFused(A, place, pc, "-pc_afsai_reuse_pattern 0 -ksp_rtol 1e-8");
      PetscInt        count;
      MUST(KSPCGFusedGetColumns(ksp, &count, nullptr, nullptr));
      CHECK(count == 0);
      for (int step = 0; step < 3; step++) {
        for (PetscInt columns : {8, 3, 12}) {
          CAPTURE(step, columns);
          const KSPObject fresh = MakeFused(A, place, pc, "-pc_afsai_reuse_pattern 0 -ksp_rtol 1e-8");
          const MatObject B     = MakeBlock(A, columns, place.backend->dense, UnlikeEntry),
                          X     = MakeBlock(A, columns, place.backend->dense, RandomEntry),
                          Y     = MakeBlock(A, columns, place.backend->dense, RandomEntry);
          const Outcome again = SolveBlock(ksp, B, X), first = SolveBlock(fresh, B, Y);
          CHECK(again.its == first.its);
          for (PetscInt c = 0; c < columns; c++) CHECK(SameBits(again.x[c], first.x[c]));
          const VecObject b = RightVec(A, 2), x = RightVec(A, 3), y = RightVec(A, 4);
          MUST(KSPSolve(ksp, b, x));
          MUST(KSPSolve(fresh, b, y));
          CHECK(SameBits(Values(x), Values(y)));
        }
        if (step == 0) ChangeValues(A, 0.2);
        if (step == 1) MUST(KSPReset(ksp));
        if (step == 1) MUST(KSPSetOperators(ksp, A, A));
      }
    }
}

/* The Mat stays the same one, with as many entries in other columns, and its state does not tell. */
TEST_CASE("columns: nonzeros that change in place", "[cgfused][columns]")
{
  constexpr LocalInt n = 240;
  for (const Place &place : Places())
    for (PCType pc : {PCJACOBI, PCAFSAI}) {
      CAPTURE(place.backend->name, place.path, pc);
      const MatObject A   = CreateMat(Ring(n, 5), place.backend->mat);
      const KSPObject ksp = MakeFused(A, place, pc, "-ksp_rtol 1e-9");
      for (LocalInt width : {2, 3, 40, 2}) {
        CAPTURE(width);
        ReplaceByCOO(A, Ring(n, width));
        const MatObject B = MakeBlock(A, 5, place.backend->dense, RandomEntry),
                        X = MakeBlock(A, 5, place.backend->dense, RandomEntry);
        MUST(KSPMatSolve(ksp, B, X));
        MatObject R;
        MUST(MatMatMult(A, X, MAT_INITIAL_MATRIX, PETSC_DEFAULT, R.put()));
        PetscReal left, all;
        MUST(MatNorm(B, NORM_FROBENIUS, &all));
        MUST(MatAXPY(R, -1, B, SAME_NONZERO_PATTERN));
        MUST(MatNorm(R, NORM_FROBENIUS, &left));
        CHECK(left <= 1e-7 * all);
      }
    }
}

TEST_CASE("columns: the view and the getter", "[cgfused][columns]")
{
  const Place     host{&HostBackend(), "general"};
  const MatObject A   = CreateMat(Diffusion(9, 8, true, 3), MATAIJ);
  const KSPObject ksp = MakeFused(A, host, PCAFSAI, "-ksp_rtol 1e-8"), cg = MakeKSP(A, "-ksp_type cg", PCNONE);
  const MatObject B = MakeBlock(A, 18, MATDENSE, UnlikeEntry), X = MakeBlock(A, 18, MATDENSE, RandomEntry);
  CHECK(WayOf(ksp).empty());
  const Outcome     out  = SolveBlock(ksp, B, X);
  const std::string text = ViewText(ksp);
  CHECK(Contains(text, "18 right-hand sides, one by one: it was asked for"));
  CHECK(Contains(text, "column 15: " + std::to_string(out.its[15]) + " iterations, CONVERGED_RTOL"));
  CHECK(!Contains(text, "column 16: "));
  CHECK(Contains(text, "and 2 more, which KSPCGFusedGetColumns() tells"));
  Errors   errors;
  PetscInt count;
  CHECK((int)KSPCGFusedGetColumns(cg, &count, nullptr, nullptr) != 0);
}

/* ---------------------------------------- several ranks --------------------------------------- */

/* What the view says about the block, of which the first rank alone has the text. */
static void CheckWayOnRanks(KSP ksp, const std::string &expected)
{
  const std::string way = WayOf(ksp);
  CAPTURE(way);
  if (!Rank()) CHECK(Contains(way, expected));
}

/* Several GPUs of one rank each take the way of NCCL where there is nothing against it. */
const std::string kByMPI = " -ksp_cgfused_communication mpi", kByNCCL = " -ksp_cgfused_communication nccl";

/* A block on all ranks beside its columns; on one rank with a GPU the block is solved by the graph. */
static void CheckBlockOnRanks(const Backend &backend, Mat A, PCType pc, const std::string &options, PetscInt columns)
{
  CAPTURE(backend.name, pc, options, columns);
  const Place     place{&backend, "auto"};
  const MatObject B = MakeBlock(A, columns, backend.dense, RandomEntry), X = MakeBlock(A, columns, backend.dense, RandomEntry, 3),
                  Y       = MakeBlock(A, columns, backend.dense, RandomEntry);
  const std::string all   = options + kByMPI + " -ksp_rtol 1e-8";
  const KSPObject   block = MakeFused(A, place, pc, all), single = MakeFused(A, place, pc, all);
  Compare(SolveBlock(block, B, X), SolveColumns(single, B, Y), true, 1e-7);
  if (columns) CheckWayOnRanks(block, Ranks() == 1 && PetscMemTypeDevice(backend.where) ? "together: " : "one by one: ");
}

/* All ranks with rows, and the first one without. */
static std::vector<Layout> EvenAndNone()
{
  return {Layouts()[0], {"first rank has none", [](LocalInt n, int rank, int size) {
                           return size == 1 ? n : rank ? Even(n, rank - 1, size - 1) : 0;
                         }}};
}

static void CheckBlocksOnRanks(const Backend &backend)
{
  for (const Layout &layout : EvenAndNone()) {
    CAPTURE(layout.name);
    const MatObject A = Spread(Diffusion(12, 14, true, 2), backend.mat, layout.share);
    for (PetscInt columns : {0, 1, 11}) {
      CheckBlockOnRanks(backend, A, PCNONE, "-ksp_max_it 12", columns);
      CheckBlockOnRanks(backend, A, PCAFSAI, "-pc_afsai_overlap 1 -ksp_initial_guess_nonzero -ksp_max_it 12", columns);
    }
    for (PCType pc : {PCJACOBI, PCAFSAI, PCSFSAI}) CheckBlockOnRanks(backend, A, pc, "", 4);
    CheckBlockOnRanks(backend, A, PCSFSAI, "-pc_sfsai_overlap 2 -ksp_norm_type unpreconditioned", 4);
  }
  const MatObject large = Spread(Poisson(12, 12, 12), backend.mat, Even);
  CheckBlockOnRanks(backend, large, PCAFSAI, "-pc_afsai_overlap 1 -ksp_matsolve_batch_size 16 -ksp_max_it 6", 16);
}

TEST_CASE("columns: several ranks", "[cgfused][columns][mpi][two][four]")
{
  CheckBlocksOnRanks(HostBackend());
}

TEST_CASE("columns: several ranks with GPUs", "[cgfused][columns][mpi][gpu]")
{
  NEEDS_DEVICE();
  CheckBlocksOnRanks(DeviceBackend());
}

TEST_CASE("columns: small systems on several ranks", "[cgfused][columns][mpi][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const MatObject A = Spread(Diffusion(7, 9, true, 2), DeviceBackend().mat, Even);
  CheckBlockOnRanks(DeviceBackend(), A, PCAFSAI, "-pc_afsai_overlap 1", 5);
}

TEST_CASE("columns: several ranks, one by one", "[cgfused][columns][mpi]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const Place     place{&backend, "auto"};
    const MatObject A      = Spread(Diffusion(12, 11, false, 3), backend.mat, Even);
    const KSPObject block  = MakeFused(A, place, PCJACOBI, "-ksp_rtol 1e-8"),
                    single = MakeFused(A, place, PCJACOBI, "-ksp_rtol 1e-8");
    SetConstantsNull(A);
    const MatObject B = MakeBlock(A, 3, backend.dense, RandomEntry), X = MakeBlock(A, 3, backend.dense, RandomEntry),
                    Y  = MakeBlock(A, 3, backend.dense, RandomEntry);
    const Outcome mine = SolveBlock(block, B, X), theirs = SolveColumns(single, B, Y);
    CHECK(mine.its == theirs.its);
    for (PetscInt c = 0; c < 3; c++) CHECK(Difference(mine.x[c], theirs.x[c]) <= 1e-7);
    CheckWayOnRanks(block, "one by one: a null space");

    const MatObject C   = Spread(WithEntry(Poisson(70), 40, 40, -1), backend.mat, Even);
    const KSPObject ksp = MakeFused(C, place, PCAFSAI, "-pc_afsai_overlap 1");
    const MatObject D = MakeBlock(C, 3, backend.dense, RandomEntry), Z = MakeBlock(C, 3, backend.dense, RandomEntry);
    for (const KSPConvergedReason reason : SolveBlock(ksp, D, Z).reasons) CHECK(reason == KSP_DIVERGED_PC_FAILED);
    CheckWayOnRanks(ksp, "one by one: the preconditioner failed");
  }
}

/* ---------------------------------- several GPUs, with NCCL ----------------------------------- */

/* A block whose columns are in one graph beside its columns, each in a graph of its own, from the same guesses. */
static void CheckBlockByNCCL(Mat A, PCType pc, const std::string &options, PetscInt columns,
                             const std::function<double(PetscInt, PetscInt)> &value = UnlikeEntry, double tolerance = 1e-7)
{
  CAPTURE(pc, options, columns);
  const Place     place{&DeviceBackend(), "auto"};
  const MatObject B = MakeBlock(A, columns, MATDENSECUDA, value), X = MakeBlock(A, columns, MATDENSECUDA, RandomEntry, 3),
                  Y     = MakeBlock(A, columns, MATDENSECUDA, RandomEntry);
  const KSPObject block = MakeFused(A, place, pc, options + kByNCCL), single = MakeFused(A, place, pc, options + kByNCCL);
  const Outcome   mine = SolveBlock(block, B, X), theirs = SolveColumns(single, B, Y);
  REQUIRE((PetscInt)mine.its.size() == columns);
  Compare(mine, theirs, true, tolerance, options.find("guess_nonzero") != std::string::npos ? 1 : 0); /* as RandomEntry */
  if (columns) CheckWayOnRanks(block, "together: a graph over interleaved vectors, with one exchange a product");
  /* the same bits again, on all ranks the same decisions */
  const MatObject Z     = MakeBlock(A, columns, MATDENSECUDA, RandomEntry);
  const Outcome   again = SolveBlock(block, B, Z);
  CHECK(again.its == mine.its);
  CHECK(again.reasons == mine.reasons);
  for (size_t c = 0; c < mine.x.size(); c++) CHECK((SameBits(again.x[c], mine.x[c]) || !Finite(mine.x[c])));
  for (PetscInt its : mine.its) {
    PetscInt all[2] = {its, -its};
    MPI_Allreduce(MPI_IN_PLACE, all, 2, MPIU_INT, MPI_MAX, PETSC_COMM_WORLD);
    CHECK(all[0] == -all[1]);
  }
}

TEST_CASE("columns: NCCL, a block and its columns", "[cgfused][columns][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const MatObject A = Spread(Diffusion(17, 13, true, 3), MATAIJCUSPARSE, Even);
  for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI, PCSFSAI})
    for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
      for (const char *guess : {"", " -ksp_initial_guess_nonzero"})
        for (PetscInt columns : {1, 3, 8, 17})
          CheckBlockByNCCL(A, pc, std::string("-ksp_rtol 1e-8 -ksp_norm_type ") + norm + guess, columns);
}

TEST_CASE("columns: NCCL, limits of iterations and norms", "[cgfused][columns][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const MatObject A = Spread(Diffusion(17, 13, true, 3), MATAIJCUSPARSE, Even);
  for (const char *options : kLimits)
    for (PCType pc : {PCJACOBI, PCAFSAI}) CheckBlockByNCCL(A, pc, options, 5);
}

/* Zero, not finite, solved by the guess, tiny and huge: each has its own end, and the others are what they are without it. */
TEST_CASE("columns: NCCL, some that are special", "[cgfused][columns][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const Place     place{&DeviceBackend(), "auto"};
  const MatObject A = Spread(Diffusion(17, 13, true, 3), MATAIJCUSPARSE, Even);
  for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI})
    for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
      for (const char *guess : {"", " -ksp_initial_guess_nonzero"})
        for (PetscInt columns : {5, 8}) {
          const std::string options = std::string("-ksp_rtol 1e-6 -ksp_norm_type ") + norm + guess;
          CheckBlockByNCCL(A, pc, options, columns, SpecialEntry);
          const KSPObject with = MakeFused(A, place, pc, options + kByNCCL), without = MakeFused(A, place, pc, options + kByNCCL);
          const MatObject B     = MakeBlock(A, columns, MATDENSECUDA, SpecialEntry),
                          C     = MakeBlock(A, columns, MATDENSECUDA, RandomEntry),
                          X     = MakeBlock(A, columns, MATDENSECUDA, RandomEntry),
                          Y     = MakeBlock(A, columns, MATDENSECUDA, RandomEntry);
          const Outcome spoiled = SolveBlock(with, B, X), plain = SolveBlock(without, C, Y);
          for (PetscInt c : {0, 3}) {
            CHECK(spoiled.reasons[c] > 0);
            CHECK(SameBits(spoiled.x[c], plain.x[c]));
          }
          CHECK(spoiled.reasons[2] == KSP_DIVERGED_NANORINF);
        }
}

TEST_CASE("columns: NCCL, one that ends early stays as it is, and one that breaks down", "[cgfused][columns][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const Place place{&DeviceBackend(), "auto"};
  for (PCType pc : {PCNONE, PCJACOBI})
    for (const char *tolerance : {"-ksp_rtol 1e-1", "-ksp_rtol 1e-2", "-ksp_rtol 1e-3"}) {
      CAPTURE(pc, tolerance);
      const MatObject A    = Spread(Poisson(20, 20), MATAIJCUSPARSE, Even);
      const auto      same = [](PetscInt row, PetscInt) { /* almost an eigenvector */
                                                     return std::sin((row % 20 + 1) * PETSC_PI / 21) *
                                                            std::sin((row / 20 + 1) * PETSC_PI / 21) *
                                                            (1 + 0.01 * std::sin(3. * (double)row));
      };
      const auto      ones = [&](PetscInt row, PetscInt column) { return column ? RandomEntry(row, column) : same(row, 0); };
      const KSPObject ksp  = MakeFused(A, place, pc, tolerance + kByNCCL);
      const MatObject B = MakeBlock(A, 4, MATDENSECUDA, ones), C = MakeBlock(A, 4, MATDENSECUDA, same),
                      X = MakeBlock(A, 4, MATDENSECUDA, RandomEntry), Y = MakeBlock(A, 4, MATDENSECUDA, RandomEntry);
      const Outcome mixed = SolveBlock(ksp, B, X), alike = SolveBlock(ksp, C, Y);
      CHECK(mixed.its[0] < mixed.its[1]);
      CHECK(mixed.its[0] == alike.its[0]);
      CHECK(SameBits(mixed.x[0], alike.x[0]));
      for (PetscInt c : {1, 2, 3}) CHECK(SameBits(alike.x[c], alike.x[0]));
    }
  CheckBlockByNCCL(Spread(BothSigns(), MATAIJCUSPARSE, Even), PCNONE, "-ksp_rtol 1e-8", 4, SignEntry);
}

/* Where a rank has no rows the columns go one by one; a rank of few rows has none that others do not need. */
TEST_CASE("columns: NCCL, ranks of uneven size, and without rows", "[cgfused][columns][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  for (LocalInt few : {0, 1, 3, 40})
    for (bool last : {false, true})
      for (PCType pc : {PCNONE, PCJACOBI, PCAFSAI}) {
        CAPTURE(few, last, pc);
        const MatObject A = Spread(Diffusion(17, 13, true, 3), MATAIJCUSPARSE, [=](LocalInt n, int rank, int size) {
          return rank == (last ? size - 1 : 0) ? n - few * (size - 1) : few;
        });
        if (few) {
          CheckBlockByNCCL(A, pc, "-ksp_rtol 1e-8", 5);
          if (pc == std::string(PCAFSAI)) CheckBlockByNCCL(A, pc, "-ksp_rtol 1e-8 -pc_afsai_overlap 1", 5);
          continue;
        }
        const Place     place{&DeviceBackend(), "auto"};
        const KSPObject block = MakeFused(A, place, pc, "-ksp_rtol 1e-8"), single = MakeFused(A, place, pc, "-ksp_rtol 1e-8");
        const MatObject B = MakeBlock(A, 5, MATDENSECUDA, UnlikeEntry), X = MakeBlock(A, 5, MATDENSECUDA, RandomEntry),
                        Y = MakeBlock(A, 5, MATDENSECUDA, RandomEntry);
        Compare(SolveBlock(block, B, X), SolveColumns(single, B, Y), true, 1e-7);
        CheckWayOnRanks(block, "one by one: ");
      }
}

/* All kinds of rows with ghosts, few and many, in single and double precision, and factors with exchanges of their own. */
TEST_CASE("columns: NCCL, many systems and factors that reach other ranks", "[cgfused][columns][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  for (const HostMatrix &H :
       {Poisson(20, 19), RandomGraph(1000, 9, 4), RandomArrow(300, 4), RandomDense(70, 5), Poisson(40, 30, 20)}) {
    const MatObject A = Spread(H, MATAIJCUSPARSE, Even);
    for (const char *pc :
         {"none", "jacobi", "afsai -pc_afsai_overlap 0", "afsai -pc_afsai_overlap 1 -pc_afsai_factor_precision single",
          "afsai -pc_afsai_overlap 1 -pc_afsai_factor_precision double",
          "sfsai -pc_sfsai_overlap 1 -pc_sfsai_max_row 20 -pc_sfsai_factor_precision single",
          "sfsai -pc_sfsai_overlap 1 -pc_sfsai_max_row 20 -pc_sfsai_factor_precision double"})
      for (const char *norm : {"preconditioned", "unpreconditioned", "natural"})
        for (const char *guess : {"", " -ksp_initial_guess_nonzero"})
          for (PetscInt columns : {2, 4, 8, 16}) {
            if (*guess && columns != 4) continue;
            CAPTURE(H.n);
            CheckBlockByNCCL(A, PCNONE,
                             std::string("-ksp_rtol 1e-30 -ksp_max_it 4 -ksp_matsolve_batch_size 16 -ksp_norm_type ") + norm +
                               guess + " -pc_type " + pc,
                             columns, RandomEntry, 1e-9);
          }
  }
}

/* One solver for other numbers of columns, one column, new values, another matrix, MPI and back: no exchange or graph is left over.
 */
TEST_CASE("columns: NCCL, one solver for many solves", "[cgfused][columns][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const Place place{&DeviceBackend(), "auto"};
  for (const char *overlap : {"0", "1"}) {
    CAPTURE(overlap);
    const std::string options = std::string("-ksp_rtol 1e-8 -pc_afsai_reuse_pattern 0 -pc_afsai_overlap ") + overlap;
    const MatObject   A       = Spread(Diffusion(17, 13, true, 3), MATAIJCUSPARSE, Even),
                    other     = Spread(RandomStencil(17, 13, 1, true, 3), MATAIJCUSPARSE, Even);
    const KSPObject ksp       = MakeFused(A, place, PCAFSAI, options);
    const auto      check     = [&](Mat M, PetscInt columns, const std::string &way) {
      CAPTURE(columns, way);
      const KSPObject fresh = MakeFused(M, place, PCAFSAI, options);
      const MatObject B = MakeBlock(M, columns, MATDENSECUDA, UnlikeEntry), X = MakeBlock(M, columns, MATDENSECUDA, RandomEntry),
                      Y = MakeBlock(M, columns, MATDENSECUDA, RandomEntry);
      KSPCGFusedCommunication communication;
      MUST(KSPCGFusedGetCommunication(ksp, &communication));
      MUST(KSPCGFusedSetCommunication(fresh, communication));
      const Outcome again = SolveBlock(ksp, B, X), first = SolveBlock(fresh, B, Y);
      CHECK(again.its == first.its);
      for (PetscInt c = 0; c < columns; c++) CHECK(SameBits(again.x[c], first.x[c]));
      CheckWayOnRanks(ksp, way);
      const VecObject b = RightVec(M, 2), x = RightVec(M, 3); /* one column between blocks */
      MUST(KSPSolve(ksp, b, x));
    };
    const std::string graph = "a graph over interleaved vectors, with one exchange", host = "one by one: several ranks by MPI";
    for (PetscInt columns : {3, 8, 2, 12, 1, 8}) check(A, columns, graph);
    ChangeValues(A, 0.2);
    check(A, 8, graph);
    MUST(KSPCGFusedSetCommunication(ksp, KSP_CGFUSED_COMMUNICATION_MPI));
    check(A, 8, host);
    MUST(KSPCGFusedSetCommunication(ksp, KSP_CGFUSED_COMMUNICATION_NCCL));
    check(A, 8, graph);
    MUST(KSPSetOperators(ksp, other, other));
    check(other, 8, graph);
    MUST(KSPReset(ksp));
    MUST(KSPSetOperators(ksp, A, A));
    check(A, 5, graph);
  }
}

/* A block in a stream that is not in order with the default one. */
static void CheckOtherStream(KSP ksp, Mat A)
{
  const MatObject B = MakeBlock(A, 5, MATDENSECUDA, RandomEntry), X = MakeBlock(A, 5, MATDENSECUDA, RandomEntry);
  const Outcome   before = SolveBlock(ksp, B, X);
  Outcome         other;
  {
    const OtherStream stream;
    other = SolveBlock(ksp, B, X);
    stream.Synchronize();
  }
  CHECK(other.its == before.its);
  for (size_t c = 0; c < 5; c++) CHECK(SameBits(other.x[c], before.x[c]));
}

TEST_CASE("columns: NCCL, a stream that others do not wait for", "[cgfused][columns][mpi][gpu][nccl]")
{
  NEEDS_NCCL();
  const MatObject A = Spread(Diffusion(40, 30, true, 3), MATAIJCUSPARSE, Even);
  CheckOtherStream(MakeFused(A, {&DeviceBackend(), "auto"}, PCAFSAI, "-ksp_rtol 1e-8 -pc_afsai_overlap 1" + kByNCCL), A);
}

/* Every kernel of several ranks once or twice. */
TEST_CASE("columns: NCCL, small systems for the sanitizer", "[cgfused][columns][mpi][gpu][nccl][sanitizer]")
{
  NEEDS_NCCL();
  const MatObject A = Spread(Diffusion(7, 9, true, 2), MATAIJCUSPARSE, Even);
  for (PetscInt columns : {2, 4, 8, 16})
    for (const char *pc :
         {"none", "afsai -pc_afsai_overlap 1 -pc_afsai_factor_precision single",
          "afsai -pc_afsai_overlap 1 -pc_afsai_factor_precision double -ksp_norm_type unpreconditioned -ksp_initial_guess_nonzero"})
      CheckBlockByNCCL(A, PCNONE, std::string("-ksp_rtol 1e-30 -ksp_max_it 3 -ksp_matsolve_batch_size 16 -pc_type ") + pc, columns,
                       RandomEntry, 1e-9);
}

/* ------------------------------------------ the GPU ------------------------------------------- */

/* A band that is wider in the first rows: they have 13 entries, more than a warp works with at a time, and the others 7. */
static HostMatrix TwoBands(LocalInt n)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt j = std::max((LocalInt)0, i - 6); j < std::min(n, i + 7); j++)
      if (std::abs(i - j) <= (std::min(i, j) < 26 ? 6 : 3))
        rows[i].push_back({j, i == j ? 20. + i % 3 : -1. - 0.1 * ((i + j) % 5)});
  return FromRows(rows);
}

/*
   All kinds of copies: even and uneven ones, sorted ones, values in single and double precision, columns in 16 and 32 bits, and
   rows that are short and long, which 1 to 32 lanes take.
*/
TEST_CASE("columns: kinds of copies", "[cgfused][columns][gpu]")
{
  NEEDS_DEVICE();
  struct System {
    const char *name;
    HostMatrix  A;
    int         max_it = 5; /* before rounding decides whether the residual is 0 */
  };
  const std::vector<System> systems = {
    {"stencil", Poisson(60, 50)},       {"random values", RandomStencil(31, 29, 1, true, 3)},
    {"graph", RandomGraph(3000, 9, 4)}, {"long rows", RandomGraph(2000, 60, 5)},
    {"dense", RandomDense(300, 6)},     {"arrow", RandomArrow(700, 7)},
    {"two bands", TwoBands(1500)},      {"hub", Hub(100000), 2},
  };
  for (const System &system : systems)
    for (PetscInt columns : {2, 3, 8, 16})
      for (const char *compress : {"true", "false"})
        for (const char *pc : {PCNONE, PCJACOBI, "afsai -pc_afsai_factor_precision single",
                               "sfsai -pc_sfsai_max_row 20 -pc_sfsai_factor_precision double"}) {
          if (columns == 3 && compress == std::string("false")) continue;
          CAPTURE(system.name, columns, compress, pc);
          const MatObject A = CreateMat(system.A, MATAIJCUSPARSE);
          CheckBlock({&DeviceBackend(), "graph"}, A, PCNONE,
                     "-ksp_rtol 1e-30 -ksp_max_it " + std::to_string(system.max_it) +
                       " -ksp_matsolve_batch_size 16 -ksp_cgfused_compress " + compress + " -pc_type " + pc,
                     columns, RandomEntry, 1e-9);
        }
}

/*
   Every kernel of the graph once or twice, with as few launches as that takes: of the columns beside the block the first and the
   last one alone are solved.
*/
TEST_CASE("columns: small systems for the sanitizer", "[cgfused][columns][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  struct Case {
    HostMatrix  A;
    const char *options;
  };
  const std::vector<Case> cases = {
    {Poisson(9, 8), "-ksp_max_it 3 -pc_type afsai -pc_afsai_factor_precision single"},
    {RandomStencil(7, 6, 1, true, 3), "-ksp_max_it 2 -pc_type afsai -pc_afsai_factor_precision double -ksp_cgfused_compress false "
                                      "-ksp_initial_guess_nonzero -ksp_norm_type unpreconditioned"},
    {RandomArrow(90, 7), "-ksp_max_it 2 -pc_type afsai -pc_afsai_factor_precision single"},
    {RandomArrow(90, 7), "-ksp_max_it 2 -pc_type afsai -pc_afsai_factor_precision double -ksp_cgfused_compress false"},
    {TwoBands(160), "-ksp_max_it 3 -pc_type jacobi -ksp_initial_guess_nonzero"},
    {Poisson(33), "-ksp_max_it 2 -pc_type none"},
  };
  for (PetscInt columns : {2, 4, 8, 16})
    for (const Case &c : cases) {
      CAPTURE(columns, c.A.n, c.options);
      const Place     place{&DeviceBackend(), "graph"};
      const MatObject A      = CreateMat(c.A, MATAIJCUSPARSE);
      const KSPObject block  = MakeFused(A, place, PCNONE, std::string("-ksp_matsolve_batch_size 16 ") + c.options),
                      single = MakeFused(A, place, PCNONE, c.options);
      const MatObject B      = MakeBlock(A, columns, MATDENSECUDA, RandomEntry);
      for (PetscInt column : {(PetscInt)0, columns - 1}) {
        const auto      own = [&](PetscInt row, PetscInt) { return RandomEntry(row, column); };
        const MatObject b = MakeBlock(A, 1, MATDENSECUDA, own), y = MakeBlock(A, 1, MATDENSECUDA, own),
                        X    = MakeBlock(A, columns, MATDENSECUDA, RandomEntry);
        const Outcome theirs = SolveColumns(single, b, y), all = SolveBlock(block, B, X);
        const Outcome mine{{all.its[column]}, {all.reasons[column]}, {all.x[column]}};
        Compare(mine, theirs, true, 1e-10);
      }
      CheckWay(block, place);
    }
}

/* What KSPSolve() does by one resident kernel goes by the graph together. */
TEST_CASE("columns: the path that is chosen", "[cgfused][columns][gpu]")
{
  NEEDS_DEVICE();
  const MatObject A = CreateMat(Poisson(20, 20), MATAIJCUSPARSE);
  const MatObject B = MakeBlock(A, 5, MATDENSECUDA, RandomEntry), X = MakeBlock(A, 5, MATDENSECUDA, RandomEntry);
  const VecObject b = RightVec(A, 2), x = RightVec(A, 3);
  for (const char *path : {"auto", "resident"}) {
    CAPTURE(path);
    const KSPObject ksp = MakeFused(A, {&DeviceBackend(), path}, PCAFSAI);
    for (int repeat = 0; repeat < 2; repeat++) {
      MUST(KSPSolve(ksp, b, x));
      CHECK(Contains(ViewText(ksp), "path: resident"));
      MUST(KSPMatSolve(ksp, B, X));
      const bool alone = path == std::string("resident");
      CHECK(Contains(WayOf(ksp), alone ? "one by one: the resident kernel was asked for" : "a graph over interleaved vectors"));
    }
  }
  for (const char *smoother : {"l1jacobi", "sfsai"}) {
    const KSPObject cycle = MakeFused(A, {&DeviceBackend(), "auto"}, PCCMATCH, std::string("-pc_cmatch_smoother ") + smoother);
    MUST(KSPMatSolve(cycle, B, X));
    CHECK(Contains(WayOf(cycle), smoother == std::string("sfsai") ? "one by one: multigrid on several GPUs, with factors"
                                                                  : "a graph over interleaved vectors"));
  }
}

/* Hierarchies with an inverse, a polynomial or nothing at their end, of one level or several, and options of the cycle. */
TEST_CASE("columns: cycles of multigrid", "[cgfused][columns][cmatch][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const Place       place{&DeviceBackend(), "graph"};
  const std::string tight = "-ksp_rtol 1e-8 -pc_cmatch_coarse_size 20 ";
  for (const char *options :
       {"", "-pc_cmatch_precision double", "-ksp_norm_type natural -pc_cmatch_smoother chebyshev -pc_cmatch_degree 3",
        "-ksp_norm_type unpreconditioned -pc_cmatch_smoother chebyshev4 -pc_cmatch_degree 2 -ksp_initial_guess_nonzero",
        "-pc_cmatch_prolongator_row 7 -ksp_matsolve_batch_size 16", "-pc_cmatch_coarse_size 2048"})
    for (PetscInt columns : {1, 5, 8, 11})
      CheckBlock(place, CreateMat(Diffusion(31, 23, true, 3), place.backend->mat), PCCMATCH, tight + options, columns);
  CheckBlock(place, CreateMat(RandomStencil(9, 8, 7, true, 5), place.backend->mat), PCCMATCH, tight, 8);
  CheckBlock(place, CreateMat(FromDiagonal(std::vector<double>(300, 2.)), place.backend->mat), PCCMATCH, tight, 3);
  CheckBlock(place, CreateMat(Hub(3000), place.backend->mat), PCCMATCH, tight, 8);
}

TEST_CASE("columns: cycles of multigrid on nodes", "[cgfused][columns][cmatch][nodes][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const Place       place{&DeviceBackend(), "graph"};
  const std::string tight = "-ksp_rtol 1e-8 -pc_cmatch_coarse_size 20 ";
  for (const char *options :
       {"", "-pc_cmatch_precision double -ksp_norm_type unpreconditioned", "-pc_cmatch_smoother chebyshev4 -pc_cmatch_degree 3"})
    for (const Body &body : {MakeBody({9, 8, 7}), MakeBody({24, 19, 0})}) {
      const MatObject A = CreateMat(body.A, place.backend->mat);
      MUST(MatSetBlockSize(A, body.k));
      AttachRigidBodyModes(A, body);
      for (PetscInt columns : {2, 8, 9}) CheckBlock(place, A, PCCMATCH, tight + options, columns);
    }
  /* other numbers of unknowns of a node, with constants as modes */
  const HostMatrix L = Diffusion(19, 17, true, 3);
  for (LocalInt k : {4, 5, 6}) {
    std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(k * L.n);
    for (LocalInt row = 0; row < k * L.n; row++)
      for (LocalInt e = L.i[row / k]; e < L.i[row / k + 1]; e++)
        rows[row].emplace_back(k * L.j[e] + row % k, (1 + row % k) * L.a[e]);
    const MatObject A = CreateMat(FromRows(rows), place.backend->mat);
    MUST(MatSetBlockSize(A, k));
    CheckBlock(place, A, PCCMATCH, tight, 8);
  }
}

TEST_CASE("columns: a stream that others do not wait for", "[cgfused][columns][gpu]")
{
  NEEDS_DEVICE();
  const MatObject A = CreateMat(Diffusion(40, 30, true, 3), MATAIJCUSPARSE);
  CheckOtherStream(MakeFused(A, {&DeviceBackend(), "graph"}, PCAFSAI, "-ksp_rtol 1e-8"), A);
}
