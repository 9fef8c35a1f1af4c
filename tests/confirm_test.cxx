/*
   Ends of a solve that the residual of its solution has to confirm: a guess far off makes the recurrences of conjugate gradients
   lose more of the residual than the tolerance is, and PETSc's KSPCG says that it has converged all the same.
*/
#include <finepc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "covering.h"
#include "pc_support.h"
#include "spread.h"

namespace
{

constexpr char kFar[] = " -ksp_initial_guess_nonzero -ksp_rtol 1e-8 -ksp_divtol 1e30 -ksp_max_it 1000 ";

/* The true residual of a solve from a guess of 1e10 everywhere, which the solver has confirmed. */
double FromAfar(KSP ksp, Mat A)
{
  const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
  MUST(VecSet(x, 1e10));
  MUST(KSPSolve(ksp, b, x));
  return ResidualOf(A, b, x);
}

/* With a preconditioner in the norm the true residual may be larger by what the preconditioner makes of it. */
void CheckFromAfar(const char *solver, Mat A, PCType pc, const std::string &options, const char *lost)
{
  CAPTURE(solver, pc, options);
  const KSPObject ksp  = MakeKSP(A, std::string("-ksp_type ") + solver + kFar + options, pc);
  const double    left = FromAfar(ksp, A);
  CHECK(ReasonOf(ksp) == KSP_CONVERGED_RTOL);
  CHECK(left <= (Contains(options, "unpreconditioned") ? 1.02e-8 : 1e-6));
  const std::string view = ViewText(ksp); /* collective */
  if (Rank() == 0) CHECK(Contains(view, lost));
}

/* A right-hand side or a guess for each column; A is the matrix on which vectors and dense matrices are. */
MatObject ColumnsFor(Mat A, PetscInt columns, MatType type, std::uint64_t seed)
{
  MatObject B;
  PetscInt  n, N;
  MUST(MatGetLocalSize(A, &n, nullptr));
  MUST(MatGetSize(A, &N, nullptr));
  MUST(MatCreate(PETSC_COMM_WORLD, B.put()));
  MUST(MatSetSizes(B, n, PETSC_DECIDE, N, columns));
  MUST(MatSetType(B, type));
  MUST(MatSetUp(B));
  for (PetscInt c = 0; c < columns; c++) {
    Vec             b;
    const VecObject random = RightVec(A, seed + (std::uint64_t)c);
    MUST(MatDenseGetColumnVecWrite(B, c, &b));
    MUST(VecCopy(random, b));
    MUST(MatDenseRestoreColumnVecWrite(B, c, &b));
  }
  Assemble(B);
  return B;
}

} // namespace

TEST_CASE("confirm: a recurrence that has lost the residual", "[confirm][cgfused][rrbcg][mpi]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Poisson(40, 40), backend.mat, PETSC_COMM_WORLD);
    {
      /* what PETSc's solver makes of it */
      const KSPObject cg = MakeKSP(A, std::string("-ksp_type cg -ksp_norm_type unpreconditioned") + kFar, PCJACOBI);
      CHECK(FromAfar(cg, A) > 1e-6);
      CHECK(ReasonOf(cg) == KSP_CONVERGED_RTOL);
    }
    for (const char *norm : {"-ksp_norm_type unpreconditioned", "-ksp_norm_type preconditioned", "-ksp_norm_type natural"}) {
      for (PCType pc : {PCJACOBI, PCAFSAI})
        for (const char *path : {" -ksp_cgfused_path general", ""})
          CheckFromAfar("cgfused", A, pc, norm + std::string(path), "path: general: the recurrence had lost the residual");
      if (Ranks() == 1 && !Contains(norm, " preconditioned"))
        CheckFromAfar("rrbcg", A, PCRRB, norm, "from a residual that was computed anew");
    }
    CheckFromAfar("gmresfused", A, PCJACOBI, "-ksp_norm_type unpreconditioned", "path: ");
  }
}

namespace
{

/* Differences on a grid whose columns of cells are each wider than the last one by this factor, and a shift of the diagonal. */
HostMatrix Stretched(LocalInt nx, LocalInt ny, double factor, double shift)
{
  HostMatrix A = Poisson(nx, ny);
  for (LocalInt row = 0; row < A.n; row++) {
    double   sum = shift;
    LocalInt own = -1;
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const LocalInt x = std::min(row % nx, A.j[k] % nx), apart = std::abs(row - A.j[k]);
      if (!apart) own = k;
      else A.a[k] = -std::pow(factor, apart == 1 ? -x : x);
      sum -= apart ? A.a[k] : 0;
    }
    A.a[own] = sum;
  }
  return A;
}

} // namespace

/* M makes more of the rounding of the product in b - A x than of the last digits of x: the norm of M r comes to no less. */
TEST_CASE("confirm: a norm that the rounding of the product keeps from the tolerance", "[confirm][cgfused][gmresfused]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Stretched(33, 3, 1.4, 1e-5), backend.mat);
    for (PCType pc : {PCAFSAI, PCSFSAI, PCCMATCH})
      for (const char *solver : {"cgfused", "cgfused -ksp_cgfused_path general", "gmresfused"}) {
        if (pc == std::string(PCSFSAI) && solver == std::string("gmresfused")) continue; /* which restarts keep from it */
        CAPTURE(pc, solver);
        const KSPObject ksp =
          MakeKSP(A, std::string("-ksp_norm_type preconditioned -ksp_rtol 1e-8 -ksp_max_it 1000 -ksp_type ") + solver, pc);
        const VecObject b = RightVec(A, 2), x = RightVec(A, 5), r = RightVec(A, 7), z = RightVec(A, 8);
        PetscReal       first, last;
        MUST(KSPSolve(ksp, b, x));
        CHECK(ReasonOf(ksp) == KSP_CONVERGED_RTOL);
        MUST(PCApply(PCOf(ksp), b, z));
        MUST(VecNorm(z, NORM_2, &first));
        MUST(MatMult(A, x, r));
        MUST(VecAYPX(r, -1, b));
        MUST(PCApply(PCOf(ksp), r, z));
        MUST(VecNorm(z, NORM_2, &last));
        CHECK(last <= 1e-6 * first);
      }
  }
}

TEST_CASE("confirm: several right-hand sides, of which recurrences have lost some", "[confirm][cgfused][columns][mpi]")
{
  constexpr PetscInt kColumns = 4;
  for (const Backend &backend : Backends())
    for (PCType pc : {PCJACOBI, PCAFSAI}) {
      CAPTURE(backend.name, pc);
      const MatObject A   = CreateMat(Poisson(30, 30), backend.mat, PETSC_COMM_WORLD);
      const KSPObject ksp = MakeKSP(A, std::string("-ksp_type cgfused -ksp_norm_type unpreconditioned") + kFar, pc);
      const MatObject B = ColumnsFor(A, kColumns, backend.dense, 10), X = ColumnsFor(A, kColumns, backend.dense, 20);
      for (PetscInt c = 0; c < kColumns; c++) {
        Vec x;
        MUST(MatDenseGetColumnVecWrite(X, c, &x));
        MUST(VecSet(x, c % 2 ? 1e10 : 1));
        MUST(MatDenseRestoreColumnVecWrite(X, c, &x));
      }
      MUST(KSPMatSolve(ksp, B, X));
      PetscInt                  count;
      const PetscInt           *its;
      const KSPConvergedReason *reasons;
      MUST(KSPCGFusedGetColumns(ksp, &count, &its, &reasons));
      REQUIRE(count == kColumns);
      for (PetscInt c = 0; c < kColumns; c++) {
        CAPTURE(c);
        Vec             b, x;
        const VecObject rhs = RightVec(A, 3), solution = RightVec(A, 4);
        MUST(MatDenseGetColumnVecRead(B, c, &b));
        MUST(MatDenseGetColumnVecRead(X, c, &x));
        MUST(VecCopy(b, rhs));
        MUST(VecCopy(x, solution));
        MUST(MatDenseRestoreColumnVecRead(X, c, &x));
        MUST(MatDenseRestoreColumnVecRead(B, c, &b));
        CHECK(reasons[c] == KSP_CONVERGED_RTOL);
        CHECK(ResidualOf(A, rhs, solution) <= 1.02e-8);
        CHECK((its[c] > its[0] + 10) == (c % 2 == 1));
      }
    }
}

namespace
{

constexpr LocalInt kWide = 9, kHigh = 8;

bool IsZeroRow(PetscInt row)
{
  return row % 5 == 3;
}

/* A diagonal matrix, or the differences on a grid, with rows of zeros, which the preconditioners take as isolated, with an inverse
 * of 0. */
HostMatrix WithZeroRows(bool diagonal)
{
  HostMatrix A = Poisson(kWide, kHigh);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (IsZeroRow(row) || IsZeroRow(A.j[k]) || (diagonal && A.j[k] != row)) A.a[k] = 0;
  return A;
}

struct Method {
  const char *solver;
  PCType      pc;
  const char *options;
};

} // namespace

/*
   x solves all rows that can be solved. Norms with the preconditioner do not see the others, the norm of the residual does: it is
   no convergence, and with GMRES a breakdown at any time, as with KSPGMRES.
*/
TEST_CASE("confirm: what is left of the residual is where the preconditioner is 0", "[confirm][cgfused][rrbcg][gmresfused][mpi]")
{
  const std::vector<Method> methods = {
    {"cgfused", PCAFSAI, "-ksp_cgfused_path general"},
    {"cgfused", PCAFSAI, ""},
    {"cgfused", PCSFSAI, "-ksp_cgfused_path general"},
    {"cgfused", PCSFSAI, ""},
    {"cgfused", PCCMATCH, "-ksp_cgfused_path general"},
    {"cgfused", PCCMATCH, ""},
    {"rrbcg", PCRRB, "-pc_rrb_nx 9"},
    {"rrbcg", PCRRB, "-pc_rrb_nx 9 -ksp_rrbcg_graph 0"},
    {"gmresfused", PCAFSAI, ""},
    {"gmresfused", PCSFSAI, "-ksp_gmresfused_path general"},
    {"gmresfused", PCBISAI, ""},
    {"gmresfused", PCCMATCH, ""},
    {"cgfused", PCRRB, "-pc_rrb_nx 9"},
  };
  for (const auto &[method, backend, norm, diagonal] :
       Covering(methods, Backends(), std::vector<const char *>{"unpreconditioned", "natural", "preconditioned"}, kBoth)) {
    const bool left = !std::strcmp(norm, "preconditioned"), natural = !std::strcmp(norm, "natural"),
               by_rrb = !std::strcmp(method.solver, "rrbcg"), by_gmres = !std::strcmp(method.solver, "gmresfused");
    if ((method.pc == std::string(PCRRB) && Ranks() > 1) || (by_rrb && left) || (by_gmres && natural)) continue;
    CAPTURE(method.solver, method.pc, method.options, backend.name, norm, diagonal);
    const MatObject    A   = CreateMat(WithZeroRows(diagonal), backend.mat, PETSC_COMM_WORLD);
    const KSPObject    ksp = MakeKSP(A,
                                     std::string("-ksp_type ") + method.solver + " -ksp_rtol 1e-8 -ksp_max_it 300 -ksp_norm_type " +
                                       norm + " " + method.options,
                                     method.pc);
    const VecObject    b = RightVec(A, 2), x = RightVec(A, 5), r = RightVec(A, 7);
    KSPConvergedReason reason;
    PetscInt           begin;
    PetscReal          norm_r, norm_b;
    MUST(KSPSolve(ksp, b, x));
    MUST(KSPGetConvergedReason(ksp, &reason));
    MUST(VecGetOwnershipRange(b, &begin, nullptr));
    MUST(VecNorm(b, NORM_2, &norm_b));
    MUST(MatMult(A, x, r));
    MUST(VecAYPX(r, -1, b));
    const std::vector<double> solution = Values(x);
    CHECK(Finite(solution));
    for (size_t k = 0; k < solution.size(); k++)
      if (IsZeroRow(begin + (PetscInt)k)) {
        CHECK(solution[k] == 0);
        MUST(VecSetValue(r, begin + (PetscInt)k, 0, INSERT_VALUES));
      }
    MUST(VecAssemblyBegin(r));
    MUST(VecAssemblyEnd(r));
    MUST(VecNorm(r, NORM_2, &norm_r));
    if (left || natural) CHECK(reason == KSP_CONVERGED_RTOL);
    else if (diagonal || by_rrb) CHECK(reason == KSP_DIVERGED_BREAKDOWN);
    else CHECK(reason < 0); /* what rounding has left in the other rows may make r.z negative */
    if (reason > 0 || !by_gmres) CHECK(norm_r <= 1e-6 * norm_b);
  }
}

/* The rows that can be solved, of which the recurrence has lost the residual, are little in what is left of it. */
TEST_CASE("confirm: a recurrence that has lost less than what the preconditioner does not see", "[confirm][cgfused][mpi]")
{
  for (const auto &[backend, norm, pc, path] :
       Covering(Backends(), std::vector<const char *>{"natural", "preconditioned"}, std::vector<PCType>{PCAFSAI, PCSFSAI},
                std::vector<const char *>{"-ksp_cgfused_path general", ""})) {
    CAPTURE(backend.name, norm, pc, path);
    const MatObject A   = CreateMat(WithZeroRows(false), backend.mat, PETSC_COMM_WORLD);
    const KSPObject ksp = MakeKSP(A, "-ksp_type cgfused -ksp_norm_type " + std::string(norm) + kFar + path, pc);
    const VecObject b = RightVec(A, 2), x = RightVec(A, 5), r = RightVec(A, 7);
    PetscInt        begin, end;
    PetscReal       norm_r;
    MUST(VecSet(x, 1e10));
    MUST(KSPSolve(ksp, b, x));
    CHECK(ReasonOf(ksp) == KSP_CONVERGED_RTOL);
    MUST(MatMult(A, x, r));
    MUST(VecAYPX(r, -1, b));
    MUST(VecGetOwnershipRange(b, &begin, &end));
    for (PetscInt row = begin; row < end; row++)
      if (IsZeroRow(row)) MUST(VecSetValue(r, row, 0, INSERT_VALUES));
    MUST(VecAssemblyBegin(r));
    MUST(VecAssemblyEnd(r));
    MUST(VecNorm(r, NORM_2, &norm_r));
    CHECK(norm_r <= 1e-7);
  }
}

/*
   Where b does not fit the null space, r.z without it has either sign and passes through 0 on its way, which is no convergence. The
   part of the residual that is not in the null space is asked.
*/
TEST_CASE("confirm: the natural norm beside a null space that the right-hand side does not fit", "[confirm][cgfused]")
{
  constexpr LocalInt                                         n = 31;
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  const auto of = [](LocalInt i) { return i < 0 || i + 1 >= n ? 0 : i % 5 == 4 ? 1e-4 : 1. + i % 3; }; /* pieces, hardly joined */
  for (LocalInt i = 0; i < n; i++) {
    if (i) rows[i].emplace_back(i - 1, -of(i - 1));
    rows[i].emplace_back(i, of(i - 1) + of(i));
    if (i + 1 < n) rows[i].emplace_back(i + 1, -of(i));
  }
  int claims = 0;
  for (const auto &[backend, pc] : Covering(Backends(), std::vector<PCType>{PCJACOBI, PCAFSAI})) {
    CAPTURE(backend.name, pc);
    const MatObject A = CreateMat(FromRows(rows), backend.mat);
    MatNullSpace    constants;
    SetConstantsNull(A);
    MUST(MatGetNullSpace(A, &constants));
    const KSPObject ksp = MakeKSP(A, "-ksp_type cgfused -ksp_norm_type natural -ksp_rtol 1e-3 -ksp_max_it 300", pc);
    for (std::uint64_t seed = 1; seed <= 60; seed++) {
      CAPTURE(seed);
      const VecObject    b = RightVec(A, seed), x = RightVec(A, 5), r = RightVec(A, 7), z = RightVec(A, 8);
      KSPConvergedReason reason;
      PetscScalar        began, left;
      MUST(KSPSolve(ksp, b, x));
      MUST(KSPGetConvergedReason(ksp, &reason));
      if (reason <= 0) continue;
      claims++;
      MUST(MatMult(A, x, r));
      MUST(VecAYPX(r, -1, b));
      MUST(MatNullSpaceRemove(constants, r));
      MUST(PCApply(PCOf(ksp), r, z));
      MUST(MatNullSpaceRemove(constants, z));
      MUST(VecDot(r, z, &left));
      MUST(PCApply(PCOf(ksp), b, z));
      MUST(MatNullSpaceRemove(constants, z));
      MUST(VecDot(b, z, &began));
      CHECK(std::sqrt(left) <= 1.01e-3 * std::sqrt(std::fabs(began)));
    }
  }
  CHECK(claims > 0);
}

/* The limit of the iterations leaves as much as there is in the null space; the rest is solved for without that. */
TEST_CASE("confirm: the natural norm beside a null space that the right-hand side hardly fits", "[confirm][cgfused][mpi]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    HostMatrix grid = Poisson(12, 12);
    for (LocalInt row = 0; row < grid.n; row++)
      for (LocalInt k = grid.i[row]; k < grid.i[row + 1]; k++)
        if (grid.j[k] == row) grid.a[k] = grid.i[row + 1] - grid.i[row] - 1.;
    const MatObject A = CreateMat(grid, backend.mat, PETSC_COMM_WORLD);
    MatNullSpace    constants;
    PetscReal       left;
    SetConstantsNull(A);
    MUST(MatGetNullSpace(A, &constants));
    const KSPObject ksp = MakeKSP(A, "-ksp_type cgfused -ksp_norm_type natural -ksp_rtol 1e-8 -ksp_max_it 300", PCJACOBI);
    const VecObject y = RightVec(A, 2), b = RightVec(A, 3), x = RightVec(A, 5), r = RightVec(A, 7);
    MUST(MatMult(A, y, b));
    MUST(VecShift(b, 1e-6));
    for (int again = 0; again < 2; again++) { /* the second time from the solution */
      CAPTURE(again);
      MUST(KSPSetInitialGuessNonzero(ksp, (PetscBool)(again > 0)));
      MUST(KSPSolve(ksp, b, x));
      CHECK(ReasonOf(ksp) > 0);
      MUST(MatMult(A, x, r));
      MUST(VecAYPX(r, -1, b));
      MUST(MatNullSpaceRemove(constants, r));
      MUST(VecNorm(r, NORM_2, &left));
      CHECK(left <= 1e-6);
    }
  }
}

TEST_CASE("confirm: gmresfused with entries beyond single precision's squares", "[confirm][gmresfused][mpi]")
{
  for (const Backend &backend : Backends())
    for (PCType pc : {PCJACOBI, PCAFSAI, PCBISAI})
      for (double scale : {1e-30, 1e25, 1e30}) {
        CAPTURE(backend.name, pc, scale);
        HostMatrix P = Poisson(20, 20), Q = P;
        for (PetscScalar &a : P.a) a *= scale;
        Q.a[Q.i[7]] = -scale; /* one entry, beside ones of usual size */
        for (const HostMatrix *M : {&P, &Q}) {
          const MatObject A   = CreateMat(*M, backend.mat, PETSC_COMM_WORLD);
          const KSPObject ksp = MakeKSP(A, "-ksp_type gmresfused -ksp_pc_side right -ksp_rtol 1e-8 -ksp_max_it 400", pc);
          const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
          MUST(VecSet(x, 0));
          MUST(KSPSolve(ksp, b, x));
          if (M == &P) CHECK(ReasonOf(ksp) > 0);
          if (ReasonOf(ksp) > 0) CHECK(ResidualOf(A, b, x) <= 1.02e-8);
        }
      }
}

namespace
{

/* Chains of 9 rows whose smallest eigenvalue is the shift, before a square whose walls hold. */
HostMatrix NearlySingularPieces(LocalInt pieces, double shift)
{
  constexpr LocalInt                                         size   = 9;
  const LocalInt                                             before = pieces * size;
  const HostMatrix                                           square = Poisson(20, 20);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(before + square.n);
  for (LocalInt row = 0; row < before; row++) {
    const bool first = row % size == 0, last = row % size == size - 1;
    if (!first) rows[row].push_back({row - 1, -1});
    rows[row].push_back({row, 2 - first - last + shift});
    if (!last) rows[row].push_back({row + 1, -1});
  }
  for (LocalInt row = 0; row < square.n; row++)
    for (LocalInt k = square.i[row]; k < square.i[row + 1]; k++) rows[before + row].push_back({before + square.j[k], square.a[k]});
  return FromRows(rows);
}

} // namespace

/* The products with these chains are large, and lose what the norm that GMRES knows in a long cycle has gained. */
TEST_CASE("confirm: gmresfused with bisai on nearly singular pieces", "[confirm][gmresfused]")
{
  const auto solve = [](Mat A, const std::string &solver, KSPConvergedReason *reason) {
    const KSPObject ksp = MakeKSP(A, solver + " -ksp_pc_side right -ksp_rtol 1e-6 -ksp_gmres_restart 200 -ksp_max_it 600", PCBISAI);
    const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
    MUST(VecSet(x, 0));
    MUST(KSPSolve(ksp, b, x));
    MUST(KSPGetConvergedReason(ksp, reason));
    return ResidualOf(A, b, x);
  };
  for (const auto &[backend, pieces, shift] : Covering(Backends(), std::vector<LocalInt>{1, 3}, std::vector<double>{1e-6, 1e-7})) {
    CAPTURE(backend.name, pieces, shift);
    const MatObject    A = CreateMat(NearlySingularPieces(pieces, shift), backend.mat);
    KSPConvergedReason theirs, ours;
    CHECK(solve(A, "-ksp_type gmres", &theirs) > 1e-2); /* what PETSc's solver leaves */
    for (const char *solver : {"-ksp_type gmresfused", "-ksp_type gmresfused -ksp_gmresfused_step_size 1"}) {
      CAPTURE(solver);
      CHECK(solve(A, solver, &ours) <= 1.02e-6);
      CHECK(ours == KSP_CONVERGED_RTOL);
    }
  }
}

/* KSPCG makes one product an iteration, and one for a guess; a solve that claims no norm is not confirmed. */
TEST_CASE("confirm: a solve costs one product more, for each column of several", "[confirm][cgfused][columns][mpi]")
{
  constexpr PetscInt kColumns = 3, kLimit = 10;
  for (const auto &[backend, guess, norm] :
       Covering(Backends(), kBoth, std::vector<const char *>{"unpreconditioned", "natural", "none"})) {
    CAPTURE(backend.name, guess, norm);
    const MatObject   A       = CreateMat(Poisson(15, 12), backend.mat, PETSC_COMM_WORLD);
    const bool        claims  = std::strcmp(norm, "none") != 0;
    const std::string options = std::string("-ksp_rtol 1e-6 -ksp_norm_type ") + norm +
                                (guess ? " -ksp_initial_guess_nonzero" : "") +
                                (claims ? "" : " -ksp_max_it " + std::to_string(kLimit)) + " -ksp_cg_single_reduction 0";
    Counted         counted{A};
    const MatObject shell = ShellOf(&counted);
    const auto      cost  = [&](const std::string &solver) {
      const KSPObject ksp = MakeKSP(shell, solver + options, PCNONE);
      const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
      counted.products = 0;
      MUST(KSPSolve(ksp, b, x));
      CHECK((ReasonOf(ksp) > 0) == claims);
      return counted.products;
    };
    const int theirs = cost("-ksp_type cg ");
    CHECK(theirs >= kLimit);
    CHECK(cost("-ksp_type cgfused ") == theirs + (claims ? 1 : 0));
    if (!claims) continue;

    /* the columns, one by one: a product for each iteration, guess and end */
    const KSPObject ksp = MakeKSP(shell, "-ksp_type cgfused " + options, PCNONE);
    const MatObject B = ColumnsFor(A, kColumns, backend.dense, 10), X = ColumnsFor(A, kColumns, backend.dense, 20);
    const PetscInt *its;
    PetscInt        all = 0;
    counted.products    = 0;
    MUST(KSPMatSolve(ksp, B, X));
    MUST(KSPCGFusedGetColumns(ksp, nullptr, &its, nullptr));
    for (PetscInt c = 0; c < kColumns; c++) all += its[c] + (guess ? 1 : 0);
    CHECK(counted.products == all + kColumns);
  }
}

/* Its iterations make their own products, those of the guess and of the end are the matrix's. */
TEST_CASE("confirm: a solve of rrbcg costs one product more", "[confirm][rrbcg]")
{
  for (const auto &[backend, guess, norm] :
       Covering(Backends(), kBoth, std::vector<const char *>{"unpreconditioned", "natural", "none"})) {
    CAPTURE(backend.name, guess, norm);
    const MatObject A      = CreateMat(Poisson(30, 25), backend.mat);
    const bool      claims = std::strcmp(norm, "none") != 0;
    const KSPObject ksp =
      MakeKSP(A,
              std::string("-ksp_type rrbcg -ksp_max_it 100 -ksp_norm_type ") + norm + (guess ? " -ksp_initial_guess_nonzero" : ""),
              PCRRB);
    const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
    MUST(KSPSetUp(ksp));
    CHECK(CountEvents({"MatMult"}, [&] { MUST(KSPSolve(ksp, b, x)); })[0] == (guess ? 1 : 0) + (claims ? 1 : 0));
  }
}
