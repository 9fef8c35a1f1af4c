/*
   What the preconditioners make of unusual diagonals and rows, the same for all types: matrices whose diagonal is negative, rows of
   zeros, and columns that are not in ascending order.
*/
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cstring>

#include "covering.h"
#include "pc/local.h"
#include "pc_support.h"
#include "spread.h"

namespace
{

const char *const kNegative = "the diagonal is negative: -A is preconditioned, and the sign given back";

/* The types that need a definite matrix. */
std::vector<Type> DefiniteTypes()
{
  return {TypeOf(PCAFSAI), TypeOf(PCSFSAI), TypeOf(PCRRB), TypeOf(PCCMATCH)};
}

HostBlocks Negated(HostBlocks A)
{
  for (double &a : A.a) a = -a;
  return A;
}

std::vector<double> Negated(std::vector<double> x)
{
  for (double &value : x) value = -value;
  return x;
}

/* A matrix of numbers whose rows and columns `rows` are zeros, which are stored or not. */
HostMatrix WithoutRows(const HostBlocks &A, const std::vector<LocalInt> &rows, bool stored)
{
  const auto       zero = [&](LocalInt row) { return std::count(rows.begin(), rows.end(), row) > 0; };
  const HostMatrix S    = Scalars(A);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> entries(S.n);
  for (LocalInt row = 0; row < S.n; row++)
    for (LocalInt k = S.i[row]; k < S.i[row + 1]; k++) {
      const bool none = zero(row) || zero(S.j[k]);
      if (stored || !none) entries[row].push_back({S.j[k], none ? 0 : S.a[k]});
    }
  return FromRows(entries);
}

/* A matrix of numbers for a type, which has blocks of 3 for bisai. */
MatObject CreateScalars(const HostMatrix &A, const Type &type, MatType mat_type, MPI_Comm comm)
{
  if (std::string(type.name) != PCBISAI) return CreateMat(A, mat_type, comm);
  PetscInt local = PETSC_DECIDE, all = A.n / 3;
  MUST(PetscSplitOwnership(comm, &local, &all));
  MatObject mat = CreateMat(A, mat_type, comm, 3 * local);
  MUST(MatSetBlockSize(mat, 3));
  return mat;
}

KSPObject Solver(Mat A, const Type &type, const std::string &options = "")
{
  return MakeKSP(A, type, "-ksp_norm_type unpreconditioned -ksp_rtol 1e-8 -ksp_max_it 500 " + options);
}

/* The iterations of a solve whose right-hand side is 0 in these rows, where x has to stay 0. */
PetscInt SolveWithout(KSP ksp, const std::vector<LocalInt> &rows)
{
  Mat      A;
  PetscInt begin, end;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  const VecObject b = RightVec(A, 3);
  MUST(VecGetOwnershipRange(b, &begin, &end));
  for (PetscInt row : rows)
    if (row >= begin && row < end) MUST(VecSetValue(b, row, 0, INSERT_VALUES));
  MUST(VecAssemblyBegin(b));
  MUST(VecAssemblyEnd(b));
  const VecObject x = RightVec(A);
  MUST(KSPSolve(ksp, b, x));
  CHECK(ReasonOf(ksp) > 0);
  CHECK(ResidualOf(A, b, x) <= 1e-6);
  const std::vector<double> values = Values(x);
  for (PetscInt row : rows)
    if (row >= begin && row < end) CHECK(values[row - begin] == 0);
  return IterationsOf(ksp);
}

/* The same matrix with the entries of its rows in another order, each as two halves if `twice`. */
MatObject Shuffled(const HostMatrix &A, PetscInt bs, MatType type, bool twice)
{
  std::vector<PetscInt>    i(1, 0), j;
  std::vector<PetscScalar> a;
  MatObject                mat, copy, converted;
  for (LocalInt row = 0; row < A.n; row++) {
    for (int half = 0; half < (twice ? 2 : 1); half++)
      for (LocalInt k = A.i[row + 1]; k-- > A.i[row];) {
        j.push_back(A.j[k]);
        a.push_back(twice ? A.a[k] / 2 : A.a[k]);
      }
    i.push_back((PetscInt)j.size());
  }
  MUST(MatCreateSeqAIJWithArrays(PETSC_COMM_SELF, A.n, A.n, i.data(), j.data(), a.data(), mat.put()));
  MUST(MatDuplicate(mat, MAT_COPY_VALUES, copy.put())); /* with arrays of its own */
  MUST(MatSetBlockSize(copy, bs));
  if (std::string(type) == MATAIJ) return copy;
  MUST(MatConvert(copy, type, MAT_INITIAL_MATRIX, converted.put()));
  return converted;
}

} // namespace

/* ---------------------------------------- negative definite ----------------------------------- */

TEST_CASE("a negative definite matrix is preconditioned as its negative", "[diagonal][local][pc]")
{
  for (const Type &type : DefiniteTypes())
    for (const Kind &kind : type.kinds())
      for (const char *options : type.patterns) {
        CAPTURE(type.name, kind.name, options);
        const HostBlocks good = type.good(), other = Changed(good, 4);
        const MatObject  A = kind.Create(good), minus = kind.Create(Negated(good));
        const PCObject   expected = MakePC(A, type, options), pc = MakePC(minus, type, options);
        MUST(PCSetUp(expected));
        MUST(PCSetUp(pc));
        CHECK(SameBits(Applied(pc), Negated(Applied(expected))));
        CHECK(Contains(ViewText((PC)pc), kNegative));
        CHECK(!Contains(ViewText((PC)expected), kNegative));
        /* other values of the same sign, on the patterns of the first ones, then those of the other sign, and back */
        bool first = true;
        for (bool negative : {true, false, true}) {
          SetValues(A, other);
          SetValues(minus, negative ? Negated(other) : other);
          MUST(PCSetUp(expected));
          MUST(PCSetUp(pc));
          CHECK(Contains(ViewText((PC)pc), kNegative) == negative);
          const PCObject fresh = MakePC(A, type, options); /* a change of sign begins anew */
          MUST(PCSetUp(fresh));
          const std::vector<double> y = Applied(first ? expected : fresh);
          CHECK(Difference(Applied(pc), negative ? Negated(y) : y) <= 1e-5);
          first = false;
        }
      }
}

TEST_CASE("a negative definite matrix takes the iterations of its negative", "[diagonal][local][pc][mpi]")
{
  for (const Type &type : DefiniteTypes())
    for (const Kind &kind : type.kinds()) {
      CAPTURE(type.name, kind.name);
      const HostBlocks H = type.ranks();
      const MatObject  A = kind.Create(H, PETSC_COMM_WORLD), minus = kind.Create(Negated(H), PETSC_COMM_WORLD);
      const KSPObject  expected = Solver(A, type), ksp = Solver(minus, type);
      const Solution   theirs = Solve(expected), mine = Solve(ksp);
      CHECK(mine.reason > 0);
      CHECK(mine.iterations == theirs.iterations);
      CHECK(mine.true_residual <= 1e-6);
    }
}

TEST_CASE("a negative definite matrix and the factors of other ranks", "[diagonal][fsai][pc][mpi]")
{
  for (const char *name : {PCAFSAI, PCSFSAI})
    for (const Backend &backend : Backends()) {
      const Type &type = TypeOf(name);
      CAPTURE(name, backend.name);
      const int  rank = Rank();
      HostMatrix H = RandomStencil(20, 10, 1, false, 9), N = H;
      for (double &a : N.a) a = -a;
      /* the first of several ranks has no rows, and follows the others */
      PetscInt mine = PETSC_DECIDE;
      if (Ranks() > 1)
        mine = rank == 0 ? 0 : rank + 1 < Ranks() ? H.n / (Ranks() - 1) : H.n - (Ranks() - 2) * (H.n / (Ranks() - 1));
      const MatObject A        = CreateMat(H, backend.mat, PETSC_COMM_WORLD, mine),
                      minus    = CreateMat(N, backend.mat, PETSC_COMM_WORLD, mine);
      const KSPObject expected = Solver(A, type, "-@overlap 2"), ksp = Solver(minus, type, "-@overlap 2");
      const Solution  theirs = Solve(expected), solved = Solve(ksp);
      CHECK(solved.iterations == theirs.iterations);
      CHECK(SameBits(Applied(PCOf(ksp)), Negated(Applied(PCOf(expected)))));
      MatObject G, G_minus;
      PetscBool same;
      MUST(type.get_factors(PCOf(expected), G.put(), nullptr));
      MUST(type.get_factors(PCOf(ksp), G_minus.put(), nullptr));
      MUST(MatEqual(G, G_minus, &same));
      CHECK(same);
    }
}

TEST_CASE("a diagonal of both signs is a failure that names a row of each", "[diagonal][local][pc][bad][mpi]")
{
  for (const Type &type : DefiniteTypes())
    for (const Kind &kind : type.kinds()) {
      CAPTURE(type.name, kind.name);
      const HostBlocks H = type.ranks();
      HostBlocks       A = H;
      /* the rows of the last rank, or the second half of the rows, are those of -A */
      const MatObject layout = kind.Create(H, PETSC_COMM_WORLD);
      PetscInt        begin, end;
      const PetscInt *ranges;
      MUST(MatGetOwnershipRanges(layout, &ranges));
      begin = (Ranks() > 1 ? ranges[Ranks() - 1] : H.n * H.bs / 2) / H.bs;
      end   = H.n;
      for (size_t k = (size_t)A.i[begin] * A.bs * A.bs; k < (size_t)A.i[end] * A.bs * A.bs; k++) A.a[k] = -A.a[k];
      /* symmetric: what couples the two parts is 0 */
      for (LocalInt row = 0; row < A.n; row++)
        for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
          if ((row < begin) != (A.j[k] < begin)) std::fill_n(A.a.begin() + (size_t)k * A.bs * A.bs, A.bs * A.bs, 0.);
      const MatObject mixed = kind.Create(A, PETSC_COMM_WORLD);
      const PCObject  pc    = MakePC(mixed, type);
      MUST(PCSetUp(pc));
      CHECK(ReasonOf(pc) == PC_FACTOR_NUMERIC_ZEROPIVOT);
      const std::string text = ((PC_Local *)((PC)pc)->data)->failure;
      CAPTURE(text);
      CHECK(Contains(text, "row 0 of the matrix has a positive diagonal entry and row " + std::to_string(begin * A.bs) +
                             " a negative one"));
    }
}

/* ---------------------------------------- rows of zeros --------------------------------------- */

TEST_CASE("rows of zeros are isolated rows with an inverse of 0", "[diagonal][local][pc][mpi]")
{
  for (const Type &type : Types())
    for (const Backend &backend : Backends())
      for (bool stored : {true, false})
        for (double sign : {1., -1.}) {
          if (std::string(type.name) == PCBISAI && sign < 0) continue;
          CAPTURE(type.name, backend.name, stored, sign);
          const HostBlocks            good = type.ranks();
          const LocalInt              n    = good.n * good.bs;
          const std::vector<LocalInt> rows = {n / 2 - n / 2 % 3, n / 2 - n / 2 % 3 + 1, n / 2 - n / 2 % 3 + 2, n - 20};
          HostMatrix                  H    = WithoutRows(good, rows, stored);
          for (double &a : H.a) a *= sign;
          const MatObject A   = CreateScalars(H, type, backend.mat, PETSC_COMM_WORLD);
          const KSPObject ksp = Solver(A, type);
          SolveWithout(ksp, rows);
          CHECK(Contains(ViewText(ksp), "rows of zeros 4: isolated, with an inverse of 0") == (ViewText(ksp) != ""));
          PetscInt begin, end;
          MUST(MatGetOwnershipRange(A, &begin, &end));
          for (bool transpose : {false, true}) {
            const std::vector<double> y = Applied(PCOf(ksp), transpose);
            CHECK(Finite(y));
            for (PetscInt row : rows)
              if (row >= begin && row < end) CHECK(y[row - begin] == 0);
          }
        }
}

TEST_CASE("rows of zeros that get values are rows like others", "[diagonal][local][pc]")
{
  ForEachBackend(Types(), [&](const Type &type, const Backend &backend) {
    const HostBlocks            good = type.good();
    const std::vector<LocalInt> rows = {6, 7, 8, 40};
    const HostMatrix            H = Scalars(good), Z = WithoutRows(good, rows, true);
    const MatObject             A = CreateScalars(H, type, backend.mat, PETSC_COMM_SELF),
                    changing      = CreateScalars(Z, type, backend.mat, PETSC_COMM_SELF);
    const char *const anew        = std::string(type.name) == PCAFSAI ? "-@reuse_pattern false" : "";
    const PCObject    expected = MakePC(A, type), pc = MakePC(changing, type, anew);
    MUST(PCSetUp(expected));
    MUST(PCSetUp(pc));
    CHECK(Contains(ViewText((PC)pc), "rows of zeros 4"));
    MUST(MatCopy(A, changing, SAME_NONZERO_PATTERN));
    MUST(PCSetUp(pc));
    CHECK(!Contains(ViewText((PC)pc), "rows of zeros"));
    CHECK(Difference(Applied(pc), Applied(expected)) <= (std::string(type.name) == PCCMATCH ? 1 : 1e-5));
    /* a row that has couplings, but no diagonal entry, is still a failure */
    if (std::string(type.name) == PCBISAI) return;
    MUST(MatSetValue(changing, 6, 6, 0, INSERT_VALUES));
    MUST(MatAssemblyBegin(changing, MAT_FINAL_ASSEMBLY));
    MUST(MatAssemblyEnd(changing, MAT_FINAL_ASSEMBLY));
    MUST(PCSetUp(pc));
    CHECK(ReasonOf(pc) == PC_FACTOR_NUMERIC_ZEROPIVOT);
  });
}

/* ----------------------------------- the order of columns ------------------------------------- */

TEST_CASE("bisai: blocks in another order than that of their columns are named", "[diagonal][bisai][pc][bad]")
{
  std::vector<PetscInt>    i = {0, 2, 4}, j = {0, 1, 1, 0};
  std::vector<PetscScalar> a = {4, 1, 4, 1};
  MatObject                A;
  MUST(MatCreateSeqBAIJWithArrays(PETSC_COMM_SELF, 1, 2, 2, i.data(), j.data(), a.data(), A.put()));
  const PCObject pc = MakePC(A, TypeOf(PCBISAI));
  Errors         errors;
  CHECK(PCSetUp(pc) != 0);
  CHECK(Contains(errors.text, "The blocks of block row 1 are not in ascending order of their columns"));
}

TEST_CASE("columns in any order, and entries that are stored twice", "[diagonal][local][pc]")
{
  for (const Type &type : Types())
    for (const Backend &backend : Backends())
      for (bool twice : {false, true}) {
        CAPTURE(type.name, backend.name, twice);
        const HostBlocks good = type.good();
        const HostMatrix H    = Scalars(good);
        const PetscInt   bs   = std::string(type.name) == PCBISAI ? 3 : 1;
        const MatObject  A = CreateScalars(H, type, backend.mat, PETSC_COMM_SELF), B = Shuffled(H, bs, backend.mat, twice);
        const PCObject   expected = MakePC(A, type), pc = MakePC(B, type);
        MUST(PCSetUp(expected));
        MUST(PCSetUp(pc));
        CHECK(SameBits(Applied(pc), Applied(expected)));
        CHECK(Contains(ViewText((PC)pc), "rows are sorted for the set-up"));
        CHECK(!Contains(ViewText((PC)expected), "rows are sorted"));
        Touch(B);
        MUST(PCSetUp(pc)); /* on the patterns of the first one, to rounding */
        CHECK(Difference(Applied(pc), Applied(expected)) <= 1e-5);
      }
}

/* PCRRB once took one of the entries of a column for all, and rrbcg claimed to have converged with a residual as large as b. */
TEST_CASE("rrbcg: columns in any order, and entries that are stored twice", "[diagonal][rrbcg]")
{
  const std::string options = "-ksp_type rrbcg -ksp_rtol 1e-8 -ksp_norm_type ";
  for (const auto &[backend, twice, norm] : Covering(Backends(), kBoth, std::vector<const char *>{"unpreconditioned", "natural"})) {
    CAPTURE(backend.name, twice, norm);
    const HostMatrix H = Scalars(TypeOf(PCRRB).good());
    const MatObject  A = CreateMat(H, backend.mat), B = Shuffled(H, 1, backend.mat, twice);
    const Solution   expected = Solve(MakeKSP(A, options + norm, PCRRB)), mine = Solve(MakeKSP(B, options + norm, PCRRB));
    CHECK(mine.reason == KSP_CONVERGED_RTOL);
    CHECK(mine.iterations == expected.iterations);
    CHECK(mine.true_residual <= 1e-6);
  }
}

/* A red point and a black one without couplings, of which the first is eliminated and the second is part of the iterations. */
TEST_CASE("rrbcg: rows of zeros", "[diagonal][rrbcg]")
{
  const HostBlocks good = TypeOf(PCRRB).good();
  for (const auto &[backend, stored, row, norm] :
       Covering(Backends(), kBoth, std::vector<LocalInt>{200, 201}, std::vector<const char *>{"unpreconditioned", "natural"})) {
    CAPTURE(backend.name, stored, row, norm);
    const MatObject A   = CreateMat(WithoutRows(good, {row}, stored), backend.mat);
    const KSPObject ksp = MakeKSP(A, std::string("-ksp_type rrbcg -ksp_rtol 1e-8 -pc_rrb_nx 48 -ksp_norm_type ") + norm, PCRRB);
    SolveWithout(ksp, {row});
    /* what the right-hand side has there stays in the residual, whose norm tells of it; r.z does not */
    KSPConvergedReason reason;
    const VecObject    b = RightVec(A, 3), x = RightVec(A, 5);
    MUST(KSPSolve(ksp, b, x));
    MUST(KSPGetConvergedReason(ksp, &reason));
    if (!std::strcmp(norm, "unpreconditioned")) CHECK(reason == KSP_DIVERGED_BREAKDOWN);
    MUST(VecSetValue(b, row, 0, INSERT_VALUES));
    MUST(VecAssemblyBegin(b));
    MUST(VecAssemblyEnd(b));
    SolveWithout(ksp, {row}); /* and the solver solves again */
  }
}
