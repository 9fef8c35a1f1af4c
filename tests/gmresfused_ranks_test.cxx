/*
   KSPGMRESFUSED on several ranks whose GPUs communicate by MPI: the general path with own products, beside PETSc's KSPGMRES. The
   emulator runs the cases with the tag [emulated], too.
*/
#include <finepc.h>

#include <algorithm>

#include "covering.h"
#include "device.h"
#include "gmresfused_support.h"
#include "recorder.h"

namespace
{

const std::string kByMPI = kOurs + "-ksp_gmresfused_communication mpi ";

/* First line of a test of several ranks on GPUs, which may share one. */
#define NEEDS_RANKS()                     \
  do {                                    \
    if (!DeviceFound() || Ranks() == 1) { \
      SkipTest();                         \
      return;                             \
    }                                     \
  } while (0)

/* The matrix of a pattern, by rows (bs = 0) or by random blocks, placed for solvers. */
MatObject Make(const SolversOnDevice &on, const HostMatrix &H, LocalInt bs, const Share &share = Even)
{
  MatObject A = bs ? BlocksOfRanks(RandomBlocks(H, bs, 3), share) : Spread(H, SolversOnDevice::rows, share);
  MUST(on.Place(A));
  return A;
}

/* Whether each rank has rows. */
bool AllHaveRows(const HostMatrix &H, const Share &share)
{
  for (int rank = 0; rank < Ranks(); rank++)
    if (!share(H.n, rank, Ranks())) return false;
  return true;
}

/* A solve, and how often it calls MatMult(). */
Run RunOf(KSP ksp, int *products)
{
  Run        run;
  const auto counts = CountEvents({"MatMult"}, [&] { run = RunOf(ksp); });
  *products         = counts[0];
  return run;
}

PetscErrorCode CopyAsShell(PC, Vec x, Vec y)
{
  return VecCopy(x, y);
}

PetscErrorCode MultiplyAsShell(PC pc, PCSide, Vec x, Vec y, Vec)
{
  Mat A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(pc, &A, nullptr));
  PetscCall(MatMult(A, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Solves beside PETSc's, with own products or with MatMult(). */
void CompareProducts(Mat A, PCType pc, const std::string &options, double rounding, bool own = true)
{
  CAPTURE(pc, options, own);
  const KSPObject ksp = MakeKSP(A, kByMPI + options, pc), petsc = MakeKSP(A, kPETSc + options, pc);
  const Run       mine = RunOf(ksp);
  Compare(mine, RunOf(petsc), rounding);
  CHECK(mine.iterations > 1);
  CHECK(Views(ksp, own ? "products: own, bytes " : "products: MatMult()\n"));
  Compare(RunOf(ksp), mine, 0); /* the same bits with the copy and the exchange that are there */
}

} // namespace

TEST_CASE("gmresfused: own products of ranks that communicate by MPI", "[gmresfused][mpi][gpu][emulated]")
{
  NEEDS_RANKS();
  const SolversOnDevice on;
  const std::vector     more = {"-ksp_gmres_restart 30 ", "-ksp_gmres_restart 4 -ksp_initial_guess_nonzero ",
                                "-ksp_gmresfused_step_size 1 "};
  for (const auto &[bs, how, side, pc] :
       Covering(std::vector<LocalInt>{0, 1, 2, 3, 5}, more, kSides, std::vector{PCJACOBI, PCBJACOBI})) {
    CAPTURE(bs);
    CompareProducts(Make(on, Convection(10, 9, 2), bs), pc, Side(side) + how + "-ksp_rtol 1e-6 -ksp_max_it 12 ", 1e-6);
  }
}

/* A rank with hardly any rows; and one with none, for which all ranks leave the products to PETSc. */
TEST_CASE("gmresfused: own products by MPI of ranks of uneven size", "[gmresfused][mpi][gpu][emulated]")
{
  NEEDS_RANKS();
  const SolversOnDevice on;
  const HostMatrix      H = Convection(6, 5, 2);
  for (const Layout &layout : Layouts())
    for (LocalInt bs : {0, 3})
      for (PCType pc : {PCNONE, PCJACOBI}) {
        CAPTURE(layout.name, bs);
        CompareProducts(Make(on, H, bs, layout.share), pc, "-ksp_rtol 1e-6 -ksp_max_it 12 -ksp_gmres_restart 5 ", 1e-6,
                        AllHaveRows(H, layout.share));
      }
}

/* MatMult() is called for residuals alone, and of a cycle that begins with zero there is no product. */
TEST_CASE("gmresfused: own products by MPI take the place of MatMult()", "[gmresfused][mpi][gpu][emulated]")
{
  NEEDS_RANKS();
  const SolversOnDevice on;
  for (LocalInt bs : {0, 2})
    for (const char *more : {"", "-ksp_gmresfused_flexible ", "-ksp_pc_side left "}) {
      CAPTURE(bs, more);
      const MatObject   A       = Make(on, Convection(13, 12, 2), bs);
      const std::string options = kByMPI + more + "-ksp_rtol 1e-30 -ksp_max_it 9 -ksp_gmres_restart 3 ";
      int               products;
      CHECK(RunOf(MakeKSP(A, options, PCJACOBI), &products).iterations == 9);
      CHECK(products == 2); /* of the second and the third cycle */
    }
}

TEST_CASE("gmresfused: own products by MPI of entries far away, and of none", "[gmresfused][mpi][gpu][emulated]")
{
  NEEDS_RANKS();
  const SolversOnDevice on;
  for (const HostMatrix &H : {Unsymmetric(RandomGraph(300, 9, 4), 7), RandomDense(40, 5)})
    for (LocalInt bs : {0, 2}) {
      CAPTURE(H.n, bs);
      CompareProducts(Make(on, H, bs), PCJACOBI, "-ksp_rtol 1e-30 -ksp_max_it 6 ", 1e-6);
    }
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> diagonal;
  for (LocalInt k = 0; k < 50; k++) diagonal.push_back({{k, 1. + k % 5}});
  CompareProducts(Make(on, FromRows(diagonal), 0), PCNONE, "-ksp_rtol 1e-30 -ksp_max_it 4 ", 1e-6);
}

TEST_CASE("gmresfused: own products by MPI, a flexible solve, a null space, a basis in single precision",
          "[gmresfused][mpi][gpu][emulated]")
{
  NEEDS_RANKS();
  const SolversOnDevice on;
  const MatObject       A = Make(on, Convection(13, 12, 2), 0), S = Make(on, Diffusion(12, 11, false, 3), 0);
  SetConstantsNull(S);
  for (const char *side : kSides) {
    CAPTURE(side);
    const std::string options = Side(side) + "-ksp_rtol 1e-6 -ksp_max_it 12 ";
    CompareProducts(S, PCJACOBI, options, 1e-6);
    const KSPObject single = MakeKSP(A, kByMPI + options + "-ksp_gmresfused_basis_precision single ", PCJACOBI);
    CHECK(Difference(RunOf(single).x, RunOf(MakeKSP(A, kPETSc + options, PCJACOBI)).x) <= 1e-4);
    CHECK(Views(single, "products: own, bytes "));
  }
  CompareProducts(A, PCJACOBI, "-ksp_gmresfused_flexible -ksp_rtol 1e-6 -ksp_max_it 12 ", 1e-6);
}

/* One solver, while all that it works with changes, and another one in turns with it. */
TEST_CASE("gmresfused: own products by MPI of a solver that is used again", "[gmresfused][mpi][gpu][emulated]")
{
  NEEDS_RANKS();
  const SolversOnDevice on;
  const std::string     all = "-ksp_rtol 1e-30 -ksp_max_it 8 -ksp_gmres_restart 5 ";
  for (LocalInt bs : {0, 2}) {
    CAPTURE(bs);
    const MatObject A = Make(on, Convection(16, 15, 2), bs), B = Make(on, Unsymmetric(RandomGraph(240, 9, 4), 3), bs),
                    C     = Make(on, Unsymmetric(RandomGraph(310, 9, 4), 4), bs);
    const KSPObject fused = MakeKSP(A, kByMPI + all, PCJACOBI), other = MakeKSP(C, kByMPI + all, PCJACOBI),
                    petsc = MakeKSP(A, kPETSc + all, PCJACOBI);
    const Run  alone      = RunOf(other);
    const auto compare    = [&] {
      Compare(RunOf(fused), RunOf(petsc), 1e-7);
      CHECK(Views(fused, "products: own, bytes "));
      Compare(RunOf(other), alone, 0);
    };
    const auto take = [&](Mat M) {
      for (KSP ksp : {(KSP)fused, (KSP)petsc}) MUST(KSPSetOperators(ksp, M, M));
    };
    compare();
    ChangeValues(A, 0.4);
    compare();
    MUST(MatScale(A, 1.7)); /* values of other ranks' columns, too */
    compare();
    take(B); /* the same sizes, another pattern */
    compare();
    take(A);
    compare();
    for (KSP ksp : {(KSP)fused, (KSP)petsc}) MUST(KSPReset(ksp));
    take(C); /* other sizes */
    compare();
  }
}

/* The same object gets a new pattern: PETSc makes new parts of it. */
TEST_CASE("gmresfused: own products by MPI of a matrix that is preallocated again", "[gmresfused][mpi][gpu][emulated]")
{
  NEEDS_RANKS();
  const SolversOnDevice on;
  const std::string     all   = "-ksp_rtol 1e-30 -ksp_max_it 8 -ksp_gmres_restart 5 ";
  const HostMatrix      H[]   = {Convection(16, 15, 2), Unsymmetric(RandomGraph(240, 9, 4), 3)};
  const MatObject       A     = Make(on, H[0], 0);
  const KSPObject       fused = MakeKSP(A, kByMPI + all, PCJACOBI), petsc = MakeKSP(A, kPETSc + all, PCJACOBI);
  for (int k : {0, 1, 0}) {
    PetscInt begin, end;
    MUST(MatGetOwnershipRange(A, &begin, &end));
    std::vector<PetscInt> i, j(H[k].j.begin() + H[k].i[begin], H[k].j.begin() + H[k].i[end]);
    for (PetscInt row = begin; row <= end; row++) i.push_back(H[k].i[row] - H[k].i[begin]);
    MUST(MatMPIAIJSetPreallocationCSR(A, i.data(), j.data(), H[k].a.data() + H[k].i[begin]));
    CAPTURE(k);
    Compare(RunOf(fused), RunOf(petsc), 1e-7);
    CHECK(Views(fused, "products: own, bytes "));
  }
}

/* It depends on the matrix and on what was asked for, and not on why the path is the general one. */
TEST_CASE("gmresfused: which solves of ranks that communicate by MPI have own products", "[gmresfused][mpi][gpu]")
{
  NEEDS_RANKS();
  const SolversOnDevice on;
  const MatObject       A = Make(on, Convection(13, 12, 2), 0), S = Make(on, Diffusion(12, 11, false, 3), 0),
                  H       = Spread(Convection(13, 12, 2), MATAIJ, Even);
  const std::string all   = "-ksp_rtol 1e-6 -ksp_max_it 12 ";
  const auto        views = [&](Mat M, PCType pc, const std::string &options, const std::string &why, bool own) {
    CAPTURE(pc, options, why, own);
    const KSPObject ksp = MakeKSP(M, kByMPI + all + options, pc);
    RunOf(ksp);
    CHECK(Views(ksp, "path: general: " + why + "\n    products: " + (own ? "own, bytes " : "MatMult()\n")));
  };
  SetConstantsNull(S);
  views(A, PCJACOBI, "", "several ranks by MPI", true);
  views(A, PCJACOBI, "-ksp_gmresfused_path device ", "several ranks by MPI", true);
  views(A, PCJACOBI, "-ksp_gmresfused_path general ", "it was asked for", false);
  views(A, PCJACOBI, "-ksp_gmresfused_flexible ", "a flexible solve", true);
  views(S, PCJACOBI, "-ksp_pc_side left ", "a null space, with the preconditioner on the left", true);
  views(H, PCJACOBI, "", "the matrix is on the host", false);

  const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
  {
    const KSPObject ksp = MakeKSP(A, kByMPI + all, PCJACOBI);
    Recorder        recorder;
    MUST(KSPMonitorSet(ksp, RecordMonitor, &recorder, nullptr));
    MUST(KSPSolve(ksp, b, x));
    CHECK(Views(ksp, "path: general: several ranks by MPI\n    products: own, bytes "));
    MUST(KSPMonitorCancel(ksp));
    MUST(KSPSolveTranspose(ksp, b, x));
    CHECK(Views(ksp, "path: general: a transposed solve\n    products: MatMult()\n"));
  }
  for (bool whole : {false, true}) { /* one that makes the product with the matrix as well */
    CAPTURE(whole);
    const KSPObject ksp = MakeKSP(A, kByMPI + all, PCSHELL);
    MUST(PCShellSetApply(PCOf(ksp), CopyAsShell));
    if (whole) MUST(PCShellSetApplyBA(PCOf(ksp), MultiplyAsShell));
    Compare(RunOf(ksp), RunOf(MakeKSP(A, kPETSc + all, PCNONE)), 1e-6);
    CHECK(Views(ksp, whole ? "products: MatMult()\n" : "products: own, bytes "));
  }
}
