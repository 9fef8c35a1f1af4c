/* PCAUTO: what it chooses, how candidates follow one another within a solve and between solves, and what it leaves unchanged. */
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gmresfused_support.h"
#include "matrices.h"
#include "pc/auto/auto.h"
#include "pc_support.h"

namespace
{

/* ------------------------------------- candidates that fail ----------------------------------- */

PetscErrorCode SetUpWithError(PC pc)
{
  PetscMPIInt rank, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(PetscObjectComm((PetscObject)pc), &rank));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  PetscCheck(rank < size - 1, PETSC_COMM_SELF, PETSC_ERR_LIB, "The last rank has no luck");
  PetscFunctionReturn(PETSC_SUCCESS);
}
PetscErrorCode SetUpWithReason(PC pc)
{
  pc->failedreason = PC_FACTOR_NUMERIC_ZEROPIVOT;
  return PETSC_SUCCESS;
}
PetscErrorCode ApplyNaN(PC, Vec, Vec y)
{
  return VecSet(y, std::numeric_limits<double>::quiet_NaN());
}
/* Positive definite, and so badly scaled that a Krylov method gets nowhere in a few iterations. */
PetscErrorCode ApplyBadly(PC, Vec x, Vec y)
{
  PetscInt           begin, end;
  const PetscScalar *from;
  PetscScalar       *to;

  PetscFunctionBegin;
  PetscCall(VecGetOwnershipRange(x, &begin, &end));
  PetscCall(VecGetArrayRead(x, &from));
  PetscCall(VecGetArrayWrite(y, &to));
  for (PetscInt row = begin; row < end; row++) to[row - begin] = from[row - begin] * std::pow(10., (double)(row * 7919 % 13) - 6);
  PetscCall(VecRestoreArrayWrite(y, &to));
  PetscCall(VecRestoreArrayRead(x, &from));
  PetscFunctionReturn(PETSC_SUCCESS);
}
template <auto SetUp, auto Apply>
PetscErrorCode CreateFailing(PC pc)
{
  pc->ops->setup = SetUp;
  pc->ops->apply = Apply;
  return PETSC_SUCCESS;
}
PetscErrorCode SetUpNothing(PC)
{
  return PETSC_SUCCESS;
}
/* Works if the database has an option that matrices read. */
PetscErrorCode SetUpByMatrixOption(PC pc)
{
  PetscBool there;

  PetscFunctionBegin;
  PetscCall(PetscOptionsHasName(nullptr, nullptr, "-mat_of_candidate", &there));
  if (!there) pc->failedreason = PC_SETUP_ERROR;
  PetscFunctionReturn(PETSC_SUCCESS);
}
PetscErrorCode ApplyNothing(PC, Vec x, Vec y)
{
  return VecCopy(x, y);
}

/* Those that fail, by the name of what they do, and for each another limit. */
std::vector<AUTOCandidate> Failing()
{
  MUST(PCRegister("errs", CreateFailing<SetUpWithError, ApplyBadly>));
  MUST(PCRegister("fails", CreateFailing<SetUpWithReason, ApplyBadly>));
  MUST(PCRegister("nan", CreateFailing<SetUpNothing, ApplyNaN>));
  MUST(PCRegister("stagnates", CreateFailing<SetUpNothing, ApplyBadly>));
  return {Candidate("errs", "-pc_type errs"), Candidate("fails", "-pc_type fails"), Candidate("nan", "-pc_type nan"),
          Candidate("stagnates", "-pc_type stagnates", 7)};
}

PC_AUTO *Of(KSP ksp)
{
  return (PC_AUTO *)PCOf(ksp)->data;
}
std::string Taken(KSP ksp)
{
  const PC_AUTO *s = Of(ksp);
  return s->acting < 0 ? "" : s->records[s->acting].candidate.name;
}
const AUTORecord &RecordOf(KSP ksp, const std::string &name)
{
  for (const AUTORecord &record : Of(ksp)->records)
    if (record.candidate.name == name) return record;
  FAIL("no record of " << name);
  return Of(ksp)->records[0];
}

struct System {
  MatObject A;
  KSPObject ksp;
  VecObject x, b;

  System(const HostMatrix &H, const std::string &options, std::vector<AUTOCandidate> given = {}, MPI_Comm comm = PETSC_COMM_SELF,
         MatType type = MATAIJ) : A(CreateMat(H, type, comm)), ksp(MakeKSP(A, options, PCAUTO))
  {
    Of(ksp)->given = std::move(given);
    b              = RightVec(A);
    MUST(VecDuplicate(b, x.put()));
    MUST(VecSet(x, 0));
  }
  void   Solve() { MUST(KSPSolve(ksp, b, x)); }
  double Residual() const { return ResidualOf(A, b, x); }
};

constexpr char kTrue[] = "-ksp_norm_type unpreconditioned -ksp_rtol 1e-8 ";

/* icc of the rules for elliptic problems whose rows are dominated by their diagonal or not. */
AUTOCandidate IncompleteCholesky(bool dominated)
{
  AUTOProperties p;
  AUTOChoice     choice;
  p.rows_known = p.symmetric = p.definite = true;
  p.one_rank                              = Ranks() == 1;
  p.rows = p.beside = p.not_positive = p.looked_at = 200000;
  p.dominated                                      = dominated ? p.looked_at : 0;
  MUST(AUTOChoose(AUTOWords(p, false), &choice));
  for (const AUTOCandidate &candidate : choice.candidates)
    if (candidate.options.find("icc") != std::string::npos) return candidate;
  FAIL("no icc");
  return choice.candidates[0];
}

} // namespace

/* ------------------------------------------- the choice --------------------------------------- */

TEST_CASE("the rules choose by what the matrix is", "[auto]")
{
  struct Case {
    const char *name;
    HostMatrix  A;
    const char *solver, *first;
  };
  HostMatrix negative = Poisson(20, 20, 20), mixed = Poisson(30, 30);
  for (double &value : negative.a) value = -value;
  for (LocalInt row = 0; row < mixed.n; row += 2)
    for (LocalInt k = mixed.i[row]; k < mixed.i[row + 1]; k++)
      if (mixed.j[k] == row) mixed.a[k] = -4;
  const std::vector<Case> cases = {
    {"5 points", Poisson(30, 30), "cg", "rrb"},          {"5 points, anisotropic", Scalars(Sheet(30, 1, 1e-4, 0)), "cg", "jacobi"},
    {"7 points", Poisson(12, 12, 12), "cg", "jacobi"},   {"many points", Poisson(50, 50, 50), "cg", "jacobi"},
    {"a shell", Shared("s3rmt3m3"), "cg", "jacobi"},     {"convection", Convection(20, 20, 5), "gmres", "ilu"},
    {"a circuit", Shared("memplus"), "gmres", "jacobi"}, {"mixed signs", mixed, "minres", "jacobi_abs"},
    {"mixed signs, any solver", mixed, "gmres", "ilu"},  {"no rows", FromDiagonal({}), "gmres", "jacobi"},
  };
  for (const Case &c : cases) {
    CAPTURE(c.name);
    System s(c.A, std::string("-ksp_max_it 5 -ksp_type ") + c.solver);
    s.Solve();
    CHECK(Of(s.ksp)->records[0].candidate.name == c.first);
    CHECK(Of(s.ksp)->records.back().candidate.name == "none");
    for (const AUTORecord &record : Of(s.ksp)->records)
      CHECK((c.A.n || (record.candidate.name != "ilu" && record.candidate.name != "gamg"))); /* which lose memory without rows */
    CHECK(Contains(ViewText((KSP)s.ksp), "these options fix the choice: -pc_type "));
  }
}

TEST_CASE("of values on the GPU the same is seen as of those on the host", "[auto]")
{
  const auto seen = [](Mat A, bool only_device) {
    AUTOProperties p;
    if (only_device)
      for (const double factor : {2., 0.5}) MUST(MatScale(A, factor)); /* there, so that the host has other values */
    MUST(AUTOLook(A, &p));
    return std::vector<PetscInt64>{p.entries,           p.looked_at,     p.beside,      p.not_positive, p.dominated,
                                   p.negative_diagonal, p.zero_diagonal, p.alone,       p.pairs,        p.unequal,
                                   p.one_sided,         p.not_usual,     p.longest_row, p.stencil,      p.block_size,
                                   p.anisotropic,       p.symmetric,     p.definite,    p.indefinite};
  };
  for (const Backend &backend : Backends()) {
    const bool device = PetscMemTypeDevice(backend.where);
    for (const HostMatrix &H : {Shared("bcsstk16"), Shared("memplus"), Poisson(16, 12), Poisson(30, 24), Convection(20, 20, 5)}) {
      const MatObject A = CreateMat(H, MATAIJ), B = CreateMat(H, device ? MATAIJCUSPARSE : MATAIJ);
      CAPTURE(backend.where, H.n);
      CHECK(seen(A, false) == seen(B, device));
      if (H.n > 500) continue; /* not all rows are looked at, and chunks of blocks begin elsewhere */
      MatObject blocks, of_host;
      MUST(MatSetBlockSize(A, 4));
      MUST(MatConvert(A, MATBAIJ, MAT_INITIAL_MATRIX, of_host.put()));
      MUST(MatConvert(of_host, device ? MATBAIJCUDA : MATBAIJ, MAT_INITIAL_MATRIX, blocks.put()));
      CHECK(seen(of_host, false) == seen(blocks, device));
    }
  }
}

TEST_CASE("a symmetric indefinite matrix with a positive diagonal is seen to be so, a definite one is not", "[auto][mpi]")
{
  /* dominated rows, but for a few pairs whose coupling is stronger than their diagonal; and a shift, whose modes are smooth */
  HostMatrix pairs = Poisson(30, 24), shifted = Poisson(30, 24), weak = Poisson(30, 24); /* whole lines on 2, 3, 4 and 8 ranks */
  const auto shift = [](HostMatrix &A, double by) {
    for (LocalInt row = 0; row < A.n; row++)
      for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
        if (A.j[k] == row) A.a[k] += by;
  };
  for (LocalInt row = 0; row < pairs.n; row++)
    for (LocalInt k = pairs.i[row]; k < pairs.i[row + 1]; k++) {
      const LocalInt low = std::min(row, pairs.j[k]), high = std::max(row, pairs.j[k]);
      if (high == low + 1 && low % 200 == 100) pairs.a[k] = -6;
    }
  shift(shifted, -0.3);
  shift(weak, -0.01); /* the smallest eigenvalue of Poisson's is 0.026 */
  struct Case {
    const char       *name;
    const HostMatrix &A;
    bool              definite;
  };
  for (const Case &c : {Case{"pairs", pairs, false}, Case{"shifted", shifted, false}, Case{"weak", weak, true}}) {
    CAPTURE(c.name);
    System s(c.A, std::string("-ksp_type gmres -ksp_pc_side right ") + kTrue, {}, PETSC_COMM_WORLD);
    MUST(KSPSetUp(s.ksp));
    CHECK(Of(s.ksp)->seen.symmetric);
    CHECK(Of(s.ksp)->seen.indefinite == !c.definite);
    CHECK((RecordOf(s.ksp, "none").candidate.fallback && Of(s.ksp)->records[0].candidate.name == (c.definite    ? "rrb"
                                                                                                  : Ranks() > 1 ? "bjacobi_ilu"
                                                                                                                : "ilu")));
    s.Solve();
    CHECK(ReasonOf(s.ksp) > 0);
    CHECK(s.Residual() < 1.1e-8);
    MUST(MatSetOption(s.A, MAT_SPD, PETSC_TRUE)); /* what the program says goes before */
    MUST(KSPReset(s.ksp));
    MUST(KSPSetOperators(s.ksp, s.A, s.A));
    MUST(KSPSetUp(s.ksp));
    CHECK(!Of(s.ksp)->seen.indefinite);
  }
  for (const char *name : {"bcsstk16", "bcsstk24", "s3rmt3m3", "ex15", "ani5_crop"}) {
    CAPTURE(name);
    const System s(Shared(name), "-ksp_type gmres", {}, PETSC_COMM_WORLD);
    MUST(KSPSetUp(s.ksp));
    CHECK(Of(s.ksp)->seen.definite);
    CHECK(!Of(s.ksp)->seen.indefinite);
  }
}

TEST_CASE("steps that tell whether a matrix is definite are taken by the solver where it can", "[auto][mpi]")
{
  struct Case {
    const char *solver, *definite, *indefinite; /* and the candidate for each matrix */
    bool        takes_steps;
  };
  const std::string ilu = Ranks() > 1 ? "bjacobi_ilu" : "ilu";
  for (const Case &c : {Case{"cg", "jacobi", "", true}, Case{"cgfused", "jacobi", "", true},
                        Case{"minres", "jacobi", "jacobi_abs", false}, Case{"gmres", "jacobi", ilu.c_str(), false}})
    for (const double shift : {-0.01, -1.}) { /* the smallest eigenvalue of Poisson's is 0.17 */
      CAPTURE(c.solver, shift);
      const bool definite = shift > -0.1;
      HostMatrix H        = Poisson(12, 12, 12);
      for (LocalInt row = 0; row < H.n; row++)
        for (LocalInt k = H.i[row]; k < H.i[row + 1]; k++)
          if (H.j[k] == row) H.a[k] += shift;
      const std::string norm = std::string(c.solver) == "minres" ? "-ksp_rtol 1e-8 " : kTrue; /* 3.18 has no other one there */
      System            s(H, norm + "-ksp_max_it 3 -ksp_type " + c.solver, {}, PETSC_COMM_WORLD);
      MUST(KSPSetUp(s.ksp));
      CHECK(Of(s.ksp)->seen.doubtful);
      CHECK(!Of(s.ksp)->seen.indefinite);
      CHECK(Taken(s.ksp) == "jacobi");
      s.Solve();
      CHECK(Of(s.ksp)->seen.doubtful == c.takes_steps); /* so few tell nothing */
      CHECK((c.takes_steps || Of(s.ksp)->records[0].candidate.name == (definite ? c.definite : c.indefinite)));
      MUST(KSPSetTolerances(s.ksp, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT, 1000));
      MUST(VecSet(s.x, 0));
      s.Solve();
      CHECK(!Of(s.ksp)->seen.doubtful);
      CHECK(Of(s.ksp)->seen.indefinite == !definite);
      CHECK((ReasonOf(s.ksp) > 0) == (definite || !c.takes_steps));
    }
}

TEST_CASE("auto converges where the residual says so, with a candidate that rounds what it is applied to", "[auto][mpi]")
{
  /* cmatch in single precision: the norms of most of these solvers fall far below those of the residuals */
  constexpr PetscReal rtol   = 1e-11;
  const auto          Within = [](KSP, PetscInt, PetscReal norm, KSPConvergedReason *reason, void *bound) {
    *reason = norm <= *(const PetscReal *)bound ? KSP_CONVERGED_RTOL : KSP_CONVERGED_ITERATING;
    return PETSC_SUCCESS;
  };
  for (const char *solver : {"gmres -ksp_pc_side right", "lgmres -ksp_pc_side right", "dgmres -ksp_pc_side right",
                             "bcgs -ksp_pc_side right", "fgmres", "gmresfused -ksp_pc_side right"})
    for (const bool own_test : {false, true}) {
      CAPTURE(solver, own_test);
      System    s(Poisson(30, 24), std::string("-ksp_type ") + solver + " -ksp_norm_type unpreconditioned -ksp_rtol 1e-11",
                  {Candidate("cmatch", "-pc_type cmatch"), Candidate("jacobi", "-pc_type jacobi")}, PETSC_COMM_WORLD);
      PetscReal bound;
      MUST(VecNorm(s.b, NORM_2, &bound));
      bound *= rtol;
      if (own_test) MUST(KSPSetConvergenceTest(s.ksp, Within, &bound, nullptr));
      s.Solve();
      CHECK(ReasonOf(s.ksp) > 0);
      CHECK(s.Residual() < 1.02 * rtol);
    }
  /* the norm of M r, which GMRES tests with M on the left */
  System    s(Poisson(30, 24), "-ksp_type gmres -ksp_rtol 1e-11", {Candidate("cmatch", "-pc_type cmatch")}, PETSC_COMM_WORLD);
  PetscReal first, last;
  VecObject r, z;
  s.Solve();
  CHECK(ReasonOf(s.ksp) > 0);
  MUST(VecDuplicate(s.b, r.put()));
  MUST(VecDuplicate(s.b, z.put()));
  MUST(PCApply(PCOf(s.ksp), s.b, z));
  MUST(VecNorm(z, NORM_2, &first));
  MUST(MatMult(s.A, s.x, r));
  MUST(VecAYPX(r, -1, s.b));
  MUST(PCApply(PCOf(s.ksp), r, z));
  MUST(VecNorm(z, NORM_2, &last));
  CHECK(last < 1.02 * rtol * first);
}

TEST_CASE("types of PETSc's that count on sorted columns are no candidates where they are not sorted", "[auto]")
{
  /* the set-up of gamg would end with an error, and lose memory */
  constexpr PetscInt n = 31;
  for (const bool sorted : {true, false}) {
    CAPTURE(sorted);
    std::vector<PetscInt>    i = {0}, j;
    std::vector<PetscScalar> a;
    for (PetscInt row = 0; row < n; row++) {
      for (PetscInt k = 0; k < n; k++) {
        j.push_back(sorted ? k : (k * 7 + row) % n);
        a.push_back(j.back() == row ? 2. * n : 1 + 0.1 * (PetscScalar)((3 * j.back() + row) % 5));
      }
      i.push_back((PetscInt)j.size());
    }
    MatObject A;
    MUST(MatCreateSeqAIJWithArrays(PETSC_COMM_SELF, n, n, i.data(), j.data(), a.data(), A.put()));
    const KSPObject ksp(MakeKSP(A, std::string(kTrue) + "-ksp_type gmres -ksp_pc_side right", PCAUTO));
    MUST(KSPSetUp(ksp));
    const auto &records  = Of(ksp)->records;
    const auto  is_petsc = [](const AUTORecord &r) { return r.candidate.name == "gamg" || r.candidate.name == "ilu"; };
    CHECK(std::count_if(records.begin(), records.end(), is_petsc) == (sorted ? 2 : 0));
  }
}

TEST_CASE("icc returns from a singular part whose rows are dominated", "[auto]")
{
  /* three unknowns of their own with rows that sum to 0, on which an incomplete factorization is exact */
  HostMatrix A = Poisson(40, 40, 40);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const LocalInt column = A.j[k], low = std::min(row, column), high = std::max(row, column);
      if (row == column) A.a[k] = row == 0 || row == 2 ? 1 : row == 1 ? 2 : 6;
      else if (low <= 2 && high > 2) A.a[k] = 0;
    }
  System       s(A, std::string(kTrue) + "-ksp_type cg");
  PetscScalar *b;
  MUST(VecGetArray(s.b, &b));
  b[2] = -b[0] - b[1];
  MUST(VecRestoreArray(s.b, &b));
  Of(s.ksp)->given = {Candidate("icc", "-pc_type icc -pc_factor_shift_type nonzero"), Candidate("jacobi", "-pc_type jacobi")};
  s.Solve();
  CHECK(ReasonOf(s.ksp) > 0);
  CHECK(s.Residual() < 1.1e-8);
  Of(s.ksp)->given.clear();
  MUST(KSPReset(s.ksp));
  MUST(KSPSetOperators(s.ksp, s.A, s.A));
  MUST(KSPSetUp(s.ksp));
  CHECK(RecordOf(s.ksp, "icc").candidate.options == "-pc_type icc -pc_factor_shift_type nonzero");
}

TEST_CASE("types of PETSc's are not set up with values from which they may not return", "[auto][mpi]")
{
  const AUTOCandidate icc = IncompleteCholesky(true);
  for (const PetscReal value : {(PetscReal)PETSC_INFINITY, 0., -1., (PetscReal)NAN, 1e200}) {
    const HostMatrix A   = Poisson(40, 40, 40); /* more than the look has in its sample */
    const PetscInt   row = A.n - 1;
    System           s(A, "-ksp_type richardson -ksp_norm_type none -ksp_max_it 2", /* nothing is watched */
                       {icc, Candidate("jacobi", "-pc_type jacobi")}, PETSC_COMM_WORLD);
    CAPTURE(value);
    s.Solve();
    CHECK(ReasonOf(s.ksp) > 0);
    CHECK(Taken(s.ksp) == icc.name);
    if (!Rank()) MUST(MatSetValue(s.A, row, row, value, INSERT_VALUES));
    MUST(MatAssemblyBegin(s.A, MAT_FINAL_ASSEMBLY));
    MUST(MatAssemblyEnd(s.A, MAT_FINAL_ASSEMBLY));
    s.Solve(); /* it returns, which is all that can be asked for */
    CHECK(Contains(RecordOf(s.ksp, icc.name).why, "its set-up might not return"));
  }
}

TEST_CASE("icc is not set up where its shift is nothing for a singular part", "[auto][mpi]")
{
  HostMatrix A = Poisson(20, 20);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const bool last = row >= A.n - 2, to_last = A.j[k] >= A.n - 2;
      if (row == 0 && A.j[k] == 0) A.a[k] = 1.5; /* a row that is not dominated, so that there is a shift */
      if (last && to_last) A.a[k] = A.j[k] == row ? 1e15 : -1e15;
      else if (last || to_last) A.a[k] = 0;
    }
  const AUTOCandidate icc = IncompleteCholesky(false);
  System              s(A, std::string(kTrue) + "-ksp_type cg", {icc, Candidate("jacobi", "-pc_type jacobi")}, PETSC_COMM_WORLD);
  PetscInt            begin, end;
  PetscScalar        *b;
  MUST(VecGetOwnershipRange(s.b, &begin, &end));
  MUST(VecGetArray(s.b, &b));
  for (PetscInt row = PetscMax(begin, A.n - 2); row < end; row++) b[row - begin] = row == A.n - 1 ? 1e15 : -1e15;
  MUST(VecRestoreArray(s.b, &b));
  s.Solve();
  CHECK(Taken(s.ksp) == "jacobi");
  CHECK(Contains(RecordOf(s.ksp, icc.name).why, "its set-up might not return"));
}

TEST_CASE("icc is no candidate for a matrix of blocks of which a rank has none", "[auto][mpi]")
{
  const PetscInt    mine = Rank() ? 0 : 2, rows[] = {0, 1};
  const PetscScalar values[] = {4, -1, -1, 4};
  for (const MatType type : {MATSBAIJ, MATBAIJ}) {
    CAPTURE(type);
    MatObject A;
    MUST(MatCreate(PETSC_COMM_WORLD, A.put()));
    MUST(MatSetSizes(A, mine, mine, 2, 2));
    MUST(MatSetBlockSize(A, 2));
    MUST(MatSetType(A, type));
    MUST(MatSetUp(A));
    if (!Rank()) MUST(MatSetValuesBlocked(A, 1, rows, 1, rows, values, INSERT_VALUES));
    MUST(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
    MUST(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
    MUST(MatSetOption(A, MAT_SYMMETRIC, PETSC_TRUE));
    const KSPObject ksp = MakeKSP(A, std::string(kTrue) + "-ksp_type cg", PCAUTO);
    const VecObject b = RightVec(A), x = RightVec(A);
    MUST(KSPSolve(ksp, b, x));
    CHECK(ReasonOf(ksp) > 0);
    for (const AUTORecord &record : Of(ksp)->records) CHECK((Ranks() == 1 || !Contains(record.candidate.name, "icc")));
  }
}

TEST_CASE("icc is set up where no row is dominated by much, but a shift makes pivots of all", "[auto][mpi]")
{
  HostMatrix A = Poisson(30, 30);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == row) A.a[k] = 3.999; /* definite still, and with a shift most rows are dominated just so */
  const AUTOCandidate icc = IncompleteCholesky(false);
  for (const HostMatrix &H : {A, Shared("bcsstk16")}) {
    System s(H, std::string(kTrue) + "-ksp_type cg", {icc}, PETSC_COMM_WORLD);
    s.Solve();
    CHECK(ReasonOf(s.ksp) > 0);
    CHECK(Taken(s.ksp) == icc.name);
  }
}

TEST_CASE("shared matrices are solved whatever comes first", "[auto][long]")
{
  for (const char *name : {"bcsstk16", "bcsstk24", "s3rmt3m3", "ex15", "ani5_crop"}) {
    CAPTURE(name);
    System    s(Shared(name), std::string("-ksp_type cgfused -ksp_max_it 20000 -ksp_norm_type unpreconditioned -ksp_rtol 5e-9"));
    VecObject ones;
    MUST(VecDuplicate(s.b, ones.put()));
    MUST(VecSet(ones, 1));
    MUST(MatMult(s.A, ones, s.b));
    s.Solve();
    CHECK(ReasonOf(s.ksp) > 0);
    CHECK(s.Residual() < 1.1e-8);
  }
  for (const char *name : {"sherman5", "rdb2048", "memplus"}) {
    CAPTURE(name);
    System s(Shared(name), std::string("-ksp_type gmres -ksp_pc_side right ") + kTrue);
    s.Solve();
    CHECK(ReasonOf(s.ksp) > 0);
    CHECK(s.Residual() < 1.1e-8);
  }
}

/* ----------------------------------------- taking over ---------------------------------------- */

TEST_CASE("candidates that fail hand over within one solve, and the KSP is as it was", "[auto][mpi]")
{
  std::vector<AUTOCandidate> given = Failing();
  given.push_back(Candidate("jacobi", "-pc_type jacobi"));
  for (const char *solver : {"-ksp_type cg", "-ksp_type cgfused", "-ksp_type gmres -ksp_pc_side right", "-ksp_type gmresfused",
                             "-ksp_type bcgs -ksp_pc_side right", "-ksp_type fcg"})
    for (const bool guess : {false, true}) {
      CAPTURE(solver, guess);
      System       s(Poisson(40, 40), std::string(solver) + " " + kTrue, given, PETSC_COMM_WORLD);
      const double first = guess ? 0.5 : 0;
      MUST(VecSet(s.x, first));
      MUST(KSPSetInitialGuessNonzero(s.ksp, (PetscBool)guess));
      const auto solve = ((KSP)s.ksp)->ops->solve;
      s.Solve();
      CHECK(ReasonOf(s.ksp) > 0);
      CHECK(s.Residual() < 1.1e-8);
      CHECK(Taken(s.ksp) == "jacobi");
      CHECK(Contains(RecordOf(s.ksp, "errs").why, Ranks() > 1 && Rank() < Ranks() - 1 ? "another rank" : "has no luck"));
      CHECK(RecordOf(s.ksp, "fails").failed);
      CHECK(RecordOf(s.ksp, "nan").failed);
      CHECK(RecordOf(s.ksp, "stagnates").its == 7);
      CHECK(IterationsOf(s.ksp) == RecordOf(s.ksp, "nan").its + 7 + RecordOf(s.ksp, "jacobi").its);
      CHECK(Of(s.ksp)->counts.taken_over == 2);
      CHECK(((KSP)s.ksp)->max_it == 10000);
      CHECK(((KSP)s.ksp)->rtol == 1e-8);
      CHECK(((KSP)s.ksp)->guess_zero == (PetscBool)!guess);
      CHECK(((KSP)s.ksp)->ops->solve == solve);
      /* the next solve begins with what has worked */
      MUST(VecSet(s.x, first));
      s.Solve();
      CHECK(Of(s.ksp)->counts.taken_over == 2);
      CHECK(IterationsOf(s.ksp) == RecordOf(s.ksp, "jacobi").its);
      CHECK(s.Residual() < 1.1e-8);
    }
}

TEST_CASE("a run that fails is no error where failures are errors", "[auto][mpi]")
{
  for (const std::string solver : {"cg", "cgfused", "gmres", "gmresfused", "bcgs"}) {
    CAPTURE(solver);
    const std::string          options = std::string(kTrue) + "-ksp_pc_side right -ksp_error_if_not_converged -ksp_type " + solver;
    const bool                 left    = solver == "cg" || solver == "cgfused";
    std::vector<AUTOCandidate> given   = Failing();
    given.push_back(Candidate("jacobi", "-pc_type jacobi"));
    System s(Poisson(30, 30), left ? std::string(kTrue) + "-ksp_error_if_not_converged -ksp_type " + solver : options, given,
             PETSC_COMM_WORLD);
    for (int k = 0; k < 2; k++) {
      MUST(VecSet(s.x, 0));
      s.Solve();
      CHECK(s.Residual() < 1.1e-8);
      CHECK(Taken(s.ksp) == "jacobi");
      CHECK(((KSP)s.ksp)->errorifnotconverged);
    }
  }
}

TEST_CASE("the solution so far is kept, and the tolerance means the same", "[auto]")
{
  for (const char *options : {"", "-ksp_converged_use_initial_residual_norm", "-ksp_converged_use_min_initial_residual_norm"})
    for (const bool guess : {false, true}) {
      CAPTURE(options, guess);
      System          s(Poisson(40, 40), std::string(kTrue) + options,
                        {Candidate("jacobi_first", "-pc_type jacobi", 40), Candidate("sfsai", "-pc_type sfsai")});
      const double    start = guess ? 3 : 0;
      const PetscReal norm  = [&] {
        VecObject r;
        PetscReal value, rhs;
        MUST(VecSet(s.x, start));
        MUST(VecDuplicate(s.b, r.put()));
        MUST(MatMult(s.A, s.x, r));
        MUST(VecAYPX(r, -1, s.b));
        MUST(VecNorm(r, NORM_2, &value));
        MUST(VecNorm(s.b, NORM_2, &rhs));
        return value / rhs;
      }();
      MUST(KSPSetInitialGuessNonzero(s.ksp, (PetscBool)guess));
      s.Solve();
      const double bound = std::string(options).empty() ? 1 : Contains(options, "min") ? std::min(norm, 1.) : norm;
      CHECK(Of(s.ksp)->counts.taken_over == 1);
      CHECK(ReasonOf(s.ksp) > 0);
      CHECK(s.Residual() < 1.05e-8 * bound);
      CHECK(s.Residual() > 1e-10 * bound);
      /* 40 iterations with jacobi are not lost */
      const System alone(Poisson(40, 40), std::string(kTrue) + options, {Candidate("sfsai", "-pc_type sfsai")});
      MUST(VecSet(alone.x, start));
      MUST(KSPSetInitialGuessNonzero(alone.ksp, (PetscBool)guess));
      MUST(KSPSolve(alone.ksp, alone.b, alone.x));
      CHECK(RecordOf(s.ksp, "sfsai").its < IterationsOf(alone.ksp));
    }
}

TEST_CASE("a candidate whose course promises little is left early, and taken again if the others are worse", "[auto][mpi]")
{
  (void)Failing();
  for (const std::string solver : {"cg", "cgfused", "gmresfused"})
    for (const bool first : {false, true}) {
      CAPTURE(solver, first);
      std::vector<AUTOCandidate> given = {Candidate("stagnates", "-pc_type stagnates"), Candidate("jacobi", "-pc_type jacobi")};
      if (first) std::swap(given[0], given[1]);
      System s(Poisson(40, 40), std::string(kTrue) + "-ksp_type " + solver, given, PETSC_COMM_WORLD);
      s.Solve();
      CHECK(ReasonOf(s.ksp) > 0);
      CHECK(s.Residual() < 1.1e-8);
      CHECK(Taken(s.ksp) == "jacobi");
      CHECK(((KSP)s.ksp)->converged == KSPConvergedDefault);
      CHECK(!((KSP)s.ksp)->res_hist);
      const AUTORecord &bad = RecordOf(s.ksp, "stagnates");
      CHECK(!bad.failed);
      CHECK(bad.its == (!bad.set_ups ? 0 : solver == "gmresfused" ? 120 : 20)); /* the first of these in whole cycles */
      const std::string view = ViewText((KSP)s.ksp);
      CHECK((Rank() > 0 || Contains(view, "left: after") == (bad.set_ups > 0)));
      CHECK(RecordOf(s.ksp, "jacobi").set_ups == 1 + (first && bad.set_ups));
      /* what has worked begins the next solve, and is not left for what it took before */
      const PetscInt taken_over = Of(s.ksp)->counts.taken_over;
      MUST(VecSet(s.x, 0));
      s.Solve();
      CHECK(ReasonOf(s.ksp) > 0);
      CHECK(Of(s.ksp)->counts.taken_over == taken_over);
    }
  /* the looks have norms of their own, whatever a rank keeps for the program */
  for (const PetscInt kept : {5, 1000}) {
    CAPTURE(kept);
    const std::vector<AUTOCandidate> given = {Candidate("stagnates", "-pc_type stagnates"), Candidate("jacobi", "-pc_type jacobi")};
    System                           s(Poisson(40, 40), std::string(kTrue) + "-ksp_type gmresfused", given, PETSC_COMM_WORLD);
    std::vector<PetscReal>           history((size_t)kept);
    const PetscReal                 *norms;
    PetscInt                         n;
    if (Rank() == 0) MUST(KSPSetResidualHistory(s.ksp, history.data(), kept, PETSC_TRUE));
    s.Solve();
    CHECK(ReasonOf(s.ksp) > 0);
    CHECK(RecordOf(s.ksp, "stagnates").its == 120);
    MUST(KSPGetResidualHistory(s.ksp, &norms, &n));
    CHECK(norms == (Rank() == 0 ? history.data() : nullptr));
    if (Rank() > 0) continue;
    CHECK((kept == 5 ? n == 5 : n > IterationsOf(s.ksp))); /* each run has a first norm */
    CHECK(std::all_of(norms, norms + n, [](PetscReal norm) { return norm > 0; }));
    if (kept == 1000) CHECK(norms[n - 1] <= 1e-8 * norms[0]);
  }
  /* norms that are not computed are none that have fallen */
  for (const std::string solver : {"cg", "cgfused", "bcgs"}) {
    CAPTURE(solver);
    System s(Poisson(40, 40),
             std::string(kTrue) + "-ksp_pc_side " + (solver == "bcgs" ? "right" : "left") +
               " -ksp_check_norm_iteration 5 -ksp_type " + solver,
             {Candidate("stagnates", "-pc_type stagnates"), Candidate("jacobi", "-pc_type jacobi")}, PETSC_COMM_WORLD);
    s.Solve();
    CHECK(ReasonOf(s.ksp) > 0);
    CHECK(Taken(s.ksp) == "jacobi");
    CHECK(RecordOf(s.ksp, "stagnates").its <= 60);
  }
  /* looks between the cycles of GMRES lose no iteration */
  const std::string cycles = std::string(kTrue) + "-ksp_type gmresfused -ksp_gmres_restart 25";
  System looks(Poisson(40, 40), cycles, {Candidate("jacobi", "-pc_type jacobi"), Candidate("none", "-pc_type none", 1000, 1, 1e9)},
               PETSC_COMM_WORLD),
    one(Poisson(40, 40), cycles, {Candidate("jacobi", "-pc_type jacobi")}, PETSC_COMM_WORLD);
  PetscInt its[2];
  looks.Solve();
  one.Solve();
  MUST(KSPGetIterationNumber(looks.ksp, &its[0]));
  MUST(KSPGetIterationNumber(one.ksp, &its[1]));
  CHECK(RecordOf(looks.ksp, "none").set_ups == 0);
  CHECK(its[1] > 100);
  CHECK(its[0] == its[1]);
  /* a costly candidate is not tried for a few iterations more */
  System few(Poisson(20, 20), kTrue, {Candidate("jacobi", "-pc_type jacobi"), Candidate("sfsai", "-pc_type sfsai", 1000, 2, 1000)});
  few.Solve();
  CHECK(RecordOf(few.ksp, "sfsai").set_ups == 0);
}

TEST_CASE("the bounds of the program stay its own", "[auto]")
{
  /* a few iterations of a solver that would converge in time */
  System few(Poisson(40, 40), std::string(kTrue) + "-ksp_max_it 60", {Candidate("jacobi", "-pc_type jacobi", 500)});
  few.Solve();
  CHECK(ReasonOf(few.ksp) == KSP_DIVERGED_ITS);
  CHECK(IterationsOf(few.ksp) == 60);
  CHECK(Of(few.ksp)->counts.taken_over == 0);
  /* the last iteration of the program is as good as convergence, and that of a candidate or of a look is not */
  const std::string maxits = std::string(kTrue) + "-ksp_converged_maxits ";
  for (const char *solver : {"-ksp_type cg", "-ksp_type gmresfused"}) {
    CAPTURE(solver);
    const std::vector<AUTOCandidate> two = {Candidate("jacobi", "-pc_type jacobi", 20), Candidate("sfsai", "-pc_type sfsai")},
                                     one = {Candidate("jacobi", "-pc_type jacobi"),
                                            Candidate("none", "-pc_type none", 1000, 1, 1e9)};
    System bounded(Poisson(40, 40), maxits + solver + " -ksp_max_it 500", two), looked(Poisson(40, 40), maxits + solver, one),
      ends(Poisson(40, 40), maxits + solver + " -ksp_max_it 12", two);
    for (const System *s : {&bounded, &looked, &ends}) MUST(KSPSolve(s->ksp, s->b, s->x));
    CHECK(ReasonOf(bounded.ksp) == KSP_CONVERGED_RTOL);
    CHECK(Taken(bounded.ksp) == "sfsai");
    CHECK(ReasonOf(looked.ksp) == KSP_CONVERGED_RTOL);
    CHECK(IterationsOf(looked.ksp) > 96);
    CHECK(ReasonOf(ends.ksp) == KSP_CONVERGED_ITS);
    CHECK(IterationsOf(ends.ksp) == 12);
    CHECK(((KSPConvergedDefaultCtx *)((KSP)ends.ksp)->cnvP)->convmaxits);
  }
  /* runs between which there are looks share the bound */
  for (const bool converges : {false, true}) {
    CAPTURE(converges);
    System s(Poisson(40, 40), (converges ? maxits : std::string(kTrue)) + "-ksp_type gmresfused -ksp_max_it 150",
             {Candidate("jacobi", "-pc_type jacobi", 500), Candidate("none", "-pc_type none", 1000, 1, 1e9)});
    s.Solve();
    CHECK(ReasonOf(s.ksp) == (converges ? KSP_CONVERGED_ITS : KSP_DIVERGED_ITS));
    CHECK(IterationsOf(s.ksp) == 150);
    CHECK(RecordOf(s.ksp, "none").set_ups == 0);
  }
  /* a few iterations within another solver say nothing about a candidate */
  for (const char *few : {"-ksp_max_it 0", "-ksp_max_it 1", "-ksp_max_it 3"}) {
    CAPTURE(few);
    System s(Poisson(40, 40), std::string(kTrue) + "-ksp_type gmres " + few,
             {Candidate("jacobi", "-pc_type jacobi"), Candidate("sfsai", "-pc_type sfsai")});
    for (int k = 0; k < 3; k++) s.Solve();
    CHECK(RecordOf(s.ksp, "jacobi").set_ups == 1);
    CHECK(RecordOf(s.ksp, "sfsai").set_ups == 0);
  }
  /* a fixed number of iterations without a norm */
  System fixed(Poisson(40, 40), "-ksp_norm_type none -ksp_max_it 9", Failing());
  Of(fixed.ksp)->given.insert(Of(fixed.ksp)->given.begin(), Candidate("jacobi", "-pc_type jacobi"));
  fixed.Solve();
  const KSPObject alone = MakeKSP(fixed.A, "-ksp_norm_type none -ksp_max_it 9", PCJACOBI);
  MUST(KSPSolve(alone, fixed.b, fixed.x));
  CHECK(ReasonOf(fixed.ksp) == ReasonOf(alone));
  CHECK(IterationsOf(fixed.ksp) == 9);
  /* a right-hand side without a norm is no fault of the preconditioner */
  System nan(Poisson(40, 40), kTrue, {Candidate("jacobi", "-pc_type jacobi"), Candidate("sfsai", "-pc_type sfsai")});
  MUST(VecSet(nan.b, std::numeric_limits<double>::quiet_NaN()));
  nan.Solve();
  CHECK(ReasonOf(nan.ksp) < 0);
  CHECK(Taken(nan.ksp) == "jacobi");
  CHECK(RecordOf(nan.ksp, "sfsai").set_ups == 0);
}

TEST_CASE("two candidates that come to their limit do not take turns for ever", "[auto][mpi]")
{
  (void)Failing();
  for (const bool works : {true, false}) {
    CAPTURE(works);
    AUTOCandidate fallback = Candidate("fallback", works ? "-pc_type jacobi" : "-pc_type stagnates", works ? 100000 : 23, 1, 1);
    fallback.fallback      = true;
    System s(Poisson(40, 40), std::string(kTrue) + "-ksp_type gmres -ksp_pc_side right -ksp_max_it 500",
             {Candidate("one", "-pc_type stagnates", 17), Candidate("other", "-pc_type stagnates", 19), fallback},
             PETSC_COMM_WORLD);
    s.Solve();
    CHECK((ReasonOf(s.ksp) > 0) == works);
    CHECK(RecordOf(s.ksp, "one").its == (works ? 17 : 500)); /* where nothing works each gets what the program allows */
    CHECK(RecordOf(s.ksp, "other").its == (works ? 19 : 500));
    CHECK(RecordOf(s.ksp, "fallback").set_ups == 1);
  }
}

TEST_CASE("where no candidate works, a solve fails, and the next one begins anew", "[auto]")
{
  System s(Poisson(40, 40), std::string(kTrue) + "-ksp_max_it 20", Failing());
  s.Solve();
  CHECK(ReasonOf(s.ksp) < 0);
  s.Solve();
  CHECK(ReasonOf(s.ksp) < 0);
  CHECK(RecordOf(s.ksp, "stagnates").solves == 2);
}

TEST_CASE("memory ends in the set-up: the next candidate is clean, and nothing is lost", "[auto][memory]")
{
  const std::vector<AUTOCandidate> given = {Candidate("cmatch", "-pc_type cmatch -pc_cmatch_coarse_size 2"),
                                            Candidate("sfsai", "-pc_type sfsai"), Candidate("jacobi", "-pc_type jacobi")};
  for (const AUTOCandidate &candidate : given) System(Poisson(5, 4), kTrue, {candidate}).Solve(); /* what is loaded once is there */
  int others = 0;
  for (const auto kind : {FailingMemory::Through::New, FailingMemory::Through::PETSc}) {
    bool failed = true;
    for (long n = 0; failed; n++) {
      const PetscLogDouble bytes = HostBytes();
      PetscErrorCode       code;
      {
        System s(Poisson(5, 4), kTrue, given);
        MUST(KSPSetUp(s.ksp));
        MUST(KSPReset(s.ksp)); /* what is registered once is there */
        MUST(KSPSetOperators(s.ksp, s.A, s.A));
        {
          const Errors        errors;
          const FailingMemory failing(kind, n);
          code   = PCSetUp(PCOf(s.ksp));
          failed = n == 0 || failing.Failed();
        }
        CAPTURE(n, failed, code);
        CHECK((!code || (failed && code == PETSC_ERR_MEM)));
        others += !code && Taken(s.ksp) != "cmatch";
        s.Solve();
        CHECK(ReasonOf(s.ksp) > 0);
        CHECK(s.Residual() < 1.1e-8);
      }
      CAPTURE(n);
      CHECK(HostBytes() == bytes);
    }
  }
  CHECK(others > 100);
}

/* ------------------------------------ one solve after another --------------------------------- */

TEST_CASE("repeated solves try others within a tenth of the work, settle, and repeat", "[auto][mpi]")
{
  const std::vector<AUTOCandidate> given = {Candidate("jacobi", "-pc_type jacobi"),
                                            Candidate("sfsai", "-pc_type sfsai", 1000, 1.2, 250),
                                            Candidate("stagnates", "-pc_type stagnates")};
  std::vector<PetscInt>            its[2];
  (void)Failing();
  for (int run = 0; run < 2; run++) {
    System s(Poisson(20, 20), kTrue, given, PETSC_COMM_WORLD);
    for (int solve = 0; solve < 60; solve++) {
      MUST(VecSet(s.x, 0));
      s.Solve();
      REQUIRE(ReasonOf(s.ksp) > 0);
      CHECK(s.Residual() < 1.1e-8);
      CHECK(Of(s.ksp)->counts.on_trials <= 0.1 * Of(s.ksp)->counts.work);
      its[run].push_back(IterationsOf(s.ksp));
    }
    CHECK(Taken(s.ksp) == "sfsai");
    CHECK(Of(s.ksp)->counts.trial_count == 2);
    CHECK(RecordOf(s.ksp, "stagnates").failed);
    CHECK(its[run].back() == RecordOf(s.ksp, "sfsai").its);
    CHECK(its[run].back() < its[run].front());
    /* of those that are not taken nothing is left */
    for (const AUTORecord &record : Of(s.ksp)->records) CHECK((record.pc != nullptr) == (record.candidate.name == "sfsai"));
  }
  CHECK(its[0] == its[1]);
  System none(Poisson(20, 20), std::string(kTrue) + "-pc_auto_trials 0", given, PETSC_COMM_WORLD);
  none.Solve();
  const std::string first = Taken(none.ksp);
  for (int solve = 0; solve < 20; solve++) none.Solve();
  CHECK(Of(none.ksp)->counts.trial_count == 0);
  CHECK(Taken(none.ksp) == first);
}

TEST_CASE("by time the ranks agree, too", "[auto][mpi]")
{
  System s(Poisson(40, 40), std::string(kTrue) + "-pc_auto_by time",
           {Candidate("jacobi", "-pc_type jacobi"), Candidate("sfsai", "-pc_type sfsai", 1000, 1.2, 250)}, PETSC_COMM_WORLD);
  for (int solve = 0; solve < 40; solve++) {
    MUST(VecSet(s.x, 0));
    s.Solve();
    REQUIRE(ReasonOf(s.ksp) > 0);
    int acting[2] = {Of(s.ksp)->acting, -Of(s.ksp)->acting};
    MUST(MPI_Allreduce(MPI_IN_PLACE, acting, 2, MPI_INT, MPI_MAX, PETSC_COMM_WORLD));
    CHECK(acting[0] == -acting[1]);
  }
  CHECK(Of(s.ksp)->counts.work > 0);
}

TEST_CASE("new values keep the candidate, other nonzeros begin anew, and so does a reset", "[auto][mpi]")
{
  System s(Poisson(40, 40), kTrue,
           {Candidate("jacobi_first", "-pc_type jacobi", 10), Candidate("sfsai", "-pc_type sfsai"),
            Candidate("jacobi", "-pc_type jacobi", 1000, 1, 1000)},
           PETSC_COMM_WORLD);
  s.Solve();
  CHECK(Taken(s.ksp) == "sfsai");
  PC before, after;
  MUST(PCAUTOGetPC(PCOf(s.ksp), &before));
  for (int step = 0; step < 3; step++) {
    ChangeValues(s.A, 1.5);
    MUST(VecSet(s.x, 0));
    s.Solve();
    CHECK(ReasonOf(s.ksp) > 0);
    CHECK(s.Residual() < 1.1e-8);
    MUST(PCAUTOGetPC(PCOf(s.ksp), &after));
    CHECK(after == before);
    CHECK(Of(s.ksp)->counts.taken_over == 1);
  }
  CHECK(Of(s.ksp)->counts.set_ups == 4);
  const MatObject more = CreateMat(Poisson(20, 80), MATAIJ, PETSC_COMM_WORLD); /* of as many points */
  MUST(MatAXPY(s.A, 1, more, DIFFERENT_NONZERO_PATTERN));
  MUST(VecSet(s.x, 0));
  s.Solve();
  CHECK(s.Residual() < 1.1e-8);
  CHECK(Of(s.ksp)->counts.solves == 1);
  const MatObject other = CreateMat(Poisson(8, 10, 20), MATAIJ, PETSC_COMM_WORLD);
  MUST(KSPSetOperators(s.ksp, other, other));
  s.Solve();
  CHECK(ReasonOf(s.ksp) > 0);
  CHECK(Of(s.ksp)->counts.solves == 1);
  CHECK(Of(s.ksp)->counts.taken_over == 1);
  MUST(KSPReset(s.ksp));
  MUST(KSPSetOperators(s.ksp, s.A, s.A));
  MUST(VecSet(s.x, 0));
  s.Solve();
  CHECK(s.Residual() < 1.1e-8);
  CHECK(Of(s.ksp)->counts.solves == 1);
}

TEST_CASE("Newton's method on a drifting problem converges as with one type", "[auto]")
{
  const HostMatrix A     = Poisson(30, 30);
  MatObject        J     = CreateMat(A, MATAIJ);
  const KSPObject  ksp   = MakeKSP(J, std::string(kTrue), PCAUTO);
  const VecObject  shift = RightVec(J), b = RightVec(J, 3);
  VecObject        x;
  MUST(VecDuplicate(b, x.put()));
  MUST(VecAbs(shift));
  for (int step = 0; step < 12; step++) {
    MUST(MatDiagonalSet(J, shift, ADD_VALUES));
    MUST(KSPSolve(ksp, b, x));
    CHECK(ReasonOf(ksp) > 0);
    CHECK(ResidualOf(J, b, x) < 1.1e-8);
  }
  CHECK(Of(ksp)->counts.set_ups == 12);
}

/* -------------------------------------- within a program -------------------------------------- */

TEST_CASE("a kept factor is measured by all runs of a solve that was looked at", "[auto]")
{
  /* and few iterations of the program's are not its fault */
  const MatObject few = CreateMat(Poisson(14, 14, 14), MATAIJ);
  for (PCType type : {PCAUTO, PCBISAI}) {
    CAPTURE(type);
    const KSPObject ksp = MakeKSP(few, std::string(kTrue) + "-ksp_type gmres -ksp_max_it 3 -pc_finepc_reuse auto", type);
    for (int k = 0; k < 4; k++) {
      MUST(MatScale(few, 1.01));
      const VecObject b = RightVec(few), x = RightVec(few);
      MUST(KSPSolve(ksp, b, x));
      CHECK(IterationsOf(ksp) == 3);
    }
  }
  /* but a run that the kept factor is allowed, and not the program, is followed by one with a new one */
  System    drifts(Poisson(14, 14, 14), "-ksp_rtol 1e-3 -ksp_type cg -ksp_max_it 19 -pc_finepc_reuse auto",
                   {Candidate("sfsai", "-pc_type sfsai", 100000, 1, 4)});
  VecObject d;
  MUST(VecDuplicate(drifts.b, d.put()));
  for (int k = 0; k < 12; k++) {
    PetscScalar *values;
    MUST(VecGetArray(d, &values));
    for (PetscInt row = 0; row < 14 * 14 * 14; row++) values[row] = std::exp(0.4 * std::sin((double)(row * 7919 % 101 * (k + 1))));
    MUST(VecRestoreArray(d, &values));
    if (k) MUST(MatDiagonalScale(drifts.A, d, d));
    MUST(VecSet(drifts.x, 0));
    drifts.Solve();
    CAPTURE(k, ReasonOf(drifts.ksp));
    CHECK((ReasonOf(drifts.ksp) == KSP_CONVERGED_RTOL || IterationsOf(drifts.ksp) >= 19));
  }
  System s(Poisson(100, 100), std::string(kTrue) + "-ksp_type gmresfused -pc_finepc_reuse auto",
           {Candidate("bisai", "-pc_type bisai", 100000, 3, 60), Candidate("none", "-pc_type none", 1000, 1, 1e9)});
  s.Solve();
  const PetscInt its = IterationsOf(s.ksp);
  CHECK(its > 120); /* there was a look */
  MUST(MatScale(s.A, 1.01));
  MUST(VecSet(s.x, 0));
  s.Solve();
  CHECK(ReasonOf(s.ksp) > 0);
  CHECK(PCReuseIsFrozen(RecordOf(s.ksp, "bisai").pc));
  CHECK(IterationsOf(s.ksp) <= its + 5);
}

TEST_CASE("two solvers share a matrix and nothing else", "[auto]")
{
  System first(Poisson(30, 30), kTrue, {Candidate("jacobi", "-pc_type jacobi")}),
    second(Poisson(30, 30), kTrue, {Candidate("sfsai", "-pc_type sfsai")});
  MUST(KSPSetOperators(second.ksp, first.A, first.A));
  for (int solve = 0; solve < 3; solve++) {
    first.Solve();
    second.Solve();
    CHECK(Taken(first.ksp) == "jacobi");
    CHECK(Taken(second.ksp) == "sfsai");
  }
}

TEST_CASE("candidates read options behind the prefix of the preconditioner", "[auto]")
{
  const MatObject A = CreateMat(Poisson(30, 30), MATAIJ);
  const Options   options("-flow_pc_type auto -flow_auto_rrb_pc_rrb_levels 3");
  KSPObject       ksp;
  PC              taken;
  PetscInt        levels;
  MUST(KSPCreate(PETSC_COMM_SELF, ksp.put()));
  MUST(KSPSetOptionsPrefix(ksp, "flow_"));
  MUST(KSPSetFromOptions(ksp));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetUp(ksp));
  MUST(PCAUTOGetPC(PCOf(ksp), &taken));
  MUST(PCRRBGetLevels(taken, &levels));
  CHECK(levels == 3);
  CHECK(Contains(ViewText((KSP)ksp), "these options fix the choice: -flow_pc_type rrb\n"));
}

TEST_CASE("options of matrices that a candidate makes are there in each of its set-ups, and only then", "[auto]")
{
  MUST(PCRegister("reads", CreateFailing<SetUpByMatrixOption, ApplyNothing>));
  System    s(Poisson(20, 20), kTrue, {Candidate("reads", "-pc_type reads -mat_of_candidate -mat_value 3")});
  PetscBool there;
  for (int k = 0; k < 2; k++) {
    MUST(MatScale(s.A, 2));
    s.Solve();
    CHECK(Taken(s.ksp) == "reads");
    CHECK(RecordOf(s.ksp, "reads").set_ups == k + 1);
    for (const char *option : {"-mat_of_candidate", "-mat_value"}) {
      MUST(PetscOptionsHasName(nullptr, nullptr, option, &there));
      CHECK(!there);
    }
  }
}

TEST_CASE("in blocks, and for several right-hand sides, it is a preconditioner as others", "[auto][mpi]")
{
  const MatObject A = CreateMat(Poisson(20, 20, 6), MATAIJ, PETSC_COMM_WORLD);
  for (const std::string inner : {"preonly", "gmres"}) {
    CAPTURE(inner);
    std::string options = std::string(kTrue) + "-pc_fieldsplit_type additive" + (inner == "gmres" ? " -ksp_type fgmres" : "");
    for (const std::string of : {" -fieldsplit_0_", " -fieldsplit_1_"})
      options += of + "pc_type auto" + of + "ksp_type " + inner + of + "ksp_max_it 3";
    const KSPObject       s = MakeKSP(A, options, PCFIELDSPLIT);
    const Options         database(options); /* which the parts read when they are set up */
    PetscInt              begin, end, count;
    KSP                  *halves_of;
    Object<IS, ISDestroy> halves[2];
    MUST(MatGetOwnershipRange(A, &begin, &end));
    const PetscInt middle = (begin + end) / 2;
    MUST(ISCreateStride(PETSC_COMM_WORLD, middle - begin, begin, 1, halves[0].put()));
    MUST(ISCreateStride(PETSC_COMM_WORLD, end - middle, middle, 1, halves[1].put()));
    MUST(PCFieldSplitSetIS(PCOf(s), "0", halves[0]));
    MUST(PCFieldSplitSetIS(PCOf(s), "1", halves[1]));
    const Solution solution = Solve(s);
    CHECK(solution.reason > 0);
    CHECK(solution.true_residual < 1.1e-8);
    MUST(PCFieldSplitGetSubKSP(PCOf(s), &count, &halves_of));
    for (PetscInt k = 0; k < count; k++) { /* one candidate, set up once */
      PetscInt set_ups = 0;
      for (const AUTORecord &record : Of(halves_of[k])->records) set_ups += record.set_ups;
      CHECK(set_ups == 1);
    }
    MUST(PetscFree(halves_of));
  }
}

TEST_CASE("several right-hand sides: the first one chooses, and the others are solved as without auto", "[auto][mpi]")
{
  for (const Backend &backend : Backends())
    for (const char *solver : {"cg", "cgfused"}) {
      System    s(Poisson(20, 20, 6), std::string(kTrue) + "-ksp_type " + solver,
                  {Candidate("slow", "-pc_type jacobi", 5), Candidate("cmatch", "-pc_type cmatch")}, PETSC_COMM_WORLD,
               PetscMemTypeDevice(backend.where) ? MATAIJCUSPARSE : MATAIJ);
      MatObject B, X, R;
      PetscInt  rows;
      PetscReal norm, of_b;
      CAPTURE(backend.where, solver);
      MUST(MatGetLocalSize(s.A, &rows, nullptr));
      MUST(MatCreate(PETSC_COMM_WORLD, B.put()));
      MUST(MatSetSizes(B, rows, PETSC_DECIDE, PETSC_DETERMINE, 11));
      MUST(MatSetType(B, PetscMemTypeDevice(backend.where) ? MATDENSECUDA : MATDENSE));
      MUST(MatSetUp(B));
      MUST(MatSetRandom(B, nullptr));
      MUST(MatDuplicate(B, MAT_DO_NOT_COPY_VALUES, X.put()));
      MUST(KSPMatSolve(s.ksp, B, X));
      MUST(MatMatMult(s.A, X, MAT_INITIAL_MATRIX, PETSC_DEFAULT, R.put()));
      MUST(MatAXPY(R, -1, B, SAME_NONZERO_PATTERN));
      MUST(MatNorm(R, NORM_FROBENIUS, &norm));
      MUST(MatNorm(B, NORM_FROBENIUS, &of_b));
      CHECK(norm < 1e-7 * of_b);
      CHECK(Taken(s.ksp) == "cmatch");
      CHECK(Of(s.ksp)->counts.taken_over == 1);
      CHECK(RecordOf(s.ksp, "slow").set_ups == 1);
      const bool together = PetscMemTypeDevice(backend.where) && std::string(solver) == "cgfused" && Ranks() == 1;
      CHECK(Of(s.ksp)->counts.solves == (together ? 1 : 11));
    }
}
