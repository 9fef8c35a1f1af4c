/* Ranks that come together: one of them works with the rows of all of them, and the others wait. */
#include <finepc.h>
#include <petsc/private/kspimpl.h>

#include <unistd.h>

#include <fstream>

#include "bodies.h"
#include "compare.h"
#include "device.h"
#include "matrices.h"
#include "pc_support.h"
#include "recorder.h"
#include "spread.h"
#include "pc/auto/auto.h"
#include "ranks/group.h"
#include "sparse/consolidated.h"
#include "sparse/offload.h"

namespace
{

constexpr const char *kTogether = "-finepc_consolidate true -finepc_backend host ", *kAlone = "-finepc_backend host ";

/*
   Matrices that the GPU has, with what has ranks come together that may have a GPU each, and the options of one rank whose matrix
   the host has. Where PETSc has no CUDA, blocks are on the host, and are taken for some of the GPU.
*/
constexpr const char *kTogetherThere = "-finepc_consolidate true -test_groups 1 -finepc_backend host ",
                     *kAloneThere    = "-finepc_backend device ";
/* The emulator runs one block at a time, and so no path on which some of them wait for others. */
const std::string kPaths = DeviceIsEmulated() ? "-ksp_cgfused_path graph -ksp_gmresfused_path general " : "";

/* Where a matrix can be, by its type, and with which options of several ranks and of one. */
struct Where {
  MatType     type;
  std::string together, alone;
};
std::vector<Where> Places()
{
  std::vector<Where> places = {{MATAIJ, kTogether, kAlone}};
  if (kPetscHasCUDA && DeviceFound()) places.push_back({MATAIJCUSPARSE, kTogetherThere, kAloneThere});
  return places;
}

using Solver = SolverWith;

bool AreTogether(Mat A)
{
  MatGroup *group;
  MUST(MatGetGroup(A, &group));
  return group;
}

PetscMPIInt GroupsOf(Mat A)
{
  MatGroup *group;
  MUST(MatGetGroup(A, &group));
  return group ? group->group.groups : 0;
}

bool Leads(Mat A)
{
  MatGroup *group;
  MUST(MatGetGroup(A, &group));
  return group && group->group.Leads();
}

const Vec *WorkOf(KSP ksp)
{
  return ksp->work;
}

PetscErrorCode BuildSolutionIn(KSP ksp, PetscInt, PetscReal, void *v)
{
  PetscFunctionBegin;
  PetscCall(KSPBuildSolution(ksp, (Vec)v, nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* This rank's part of what one rank alone comes to. */
Run PartOf(Run whole, Mat A)
{
  PetscInt begin, end;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  whole.x = std::vector<double>(whole.x.begin() + begin, whole.x.begin() + end);
  return whole;
}

struct Pair {
  const char *solver, *type, *more;
};

PetscInt LinesIn(const std::string &name)
{
  std::ifstream file(name);
  PetscInt      count = 0;
  for (std::string line; std::getline(file, line);) count++;
  return count;
}

/* What all of them print is that of the first rank. */
void CheckView(const Solver &s, const char text[])
{
  const std::string view = s.View();
  if (!Rank()) CHECK(Contains(view, text));
}

} // namespace

TEST_CASE("consolidated: the bits of one rank", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  for (const HostMatrix &H : {Poisson(20, 15, 4), RandomGraph(900, 7, 4), RandomStencil(31, 29, 1, false, 3)})
    for (const Pair &c :
         {Pair{KSPCGFUSED, PCNONE, ""}, Pair{KSPCGFUSED, PCJACOBI, "-ksp_norm_type natural "}, Pair{KSPCGFUSED, PCAFSAI, ""},
          Pair{KSPCGFUSED, PCSFSAI, "-ksp_initial_guess_nonzero "}, Pair{KSPCGFUSED, PCCMATCH, ""},
          Pair{KSPCGFUSED, PCAFSAI, "-pc_afsai_max_steps 3 -ksp_norm_type none -ksp_max_it 7 "},
          Pair{KSPGMRESFUSED, PCBISAI, "-ksp_gmresfused_restart 7 "}, Pair{KSPGMRESFUSED, PCCMATCH, "-ksp_pc_side right "},
          Pair{KSPGMRESFUSED, PCJACOBI, "-pc_jacobi_type rowmax "}}) {
      CAPTURE(H.n, c.solver, c.type, c.more);
      const MatObject whole = CreateMat(H, MATAIJ), A = CreateMat(H, MATAIJ, PETSC_COMM_WORLD);
      Run             expected;
      {
        const Solver s(whole, c.solver, c.type, kAlone + std::string(c.more));
        expected = PartOf(RunOf(s.ksp), A);
      }
      const Solver s(A, c.solver, c.type, kTogether + std::string(c.more));
      CHECK(SameRuns(RunOf(s.ksp), expected));
      CHECK(GroupsOf(A) == 1);
      CheckView(s, "ranks have come together on 1, which solves for all");
      CHECK(SameRuns(RunOf(s.ksp), expected)); /* with what is there */
      MUST(KSPReset(s.ksp));
      MUST(KSPSetOperators(s.ksp, A, A));
      CHECK(SameRuns(RunOf(s.ksp), expected));
    }
}

TEST_CASE("consolidated: the leader works on its GPU", "[consolidated][offload][gpu][mpi][two][four][sanitizer]")
{
  NEEDS_DEVICE();
  if (Ranks() == 1) return SkipTest();
  const HostMatrix H = Poisson(20, 15, 4);
  for (const Pair &c :
       {Pair{KSPCGFUSED, PCNONE, ""}, Pair{KSPCGFUSED, PCJACOBI, "-ksp_initial_guess_nonzero "}, Pair{KSPCGFUSED, PCAFSAI, ""},
        Pair{KSPCGFUSED, PCCMATCH, ""}, Pair{KSPGMRESFUSED, PCBISAI, "-ksp_gmresfused_path general "}}) {
    CAPTURE(c.solver, c.type, c.more);
    const std::string options = std::string("-finepc_backend device -ksp_cgfused_path graph ") + c.more;
    const MatObject   whole = CreateMat(H, MATAIJ), A = CreateMat(H, MATAIJ, PETSC_COMM_WORLD);
    const Solver one(whole, c.solver, c.type, options), s(A, c.solver, c.type, options + "-finepc_consolidate true -test_groups 1");
    const double before = DeviceIsEmulated() ? DeviceBytesInUse() : 0;
    const Run    got    = RunOf(s.ksp);
    if (DeviceIsEmulated()) CHECK((DeviceBytesInUse() == before) == !Leads(A)); /* each rank has a GPU of its own there */
    CHECK(SameRuns(got, PartOf(RunOf(one.ksp), A)));
    CHECK(GroupsOf(A) == 1);
    CheckView(s, "ranks have come together on 1, which solves for all");
    MUST(MatScale(A, 2));
    MUST(MatScale(whole, 2));
    CHECK(SameRuns(RunOf(s.ksp), PartOf(RunOf(one.ksp), A)));
    MatGroup *group;
    MUST(MatGetGroup(A, &group));
    if (!group->group.Leads()) continue;
    PetscLogDouble bytes, in_all;
    MUST(MatGetSentBytes(group->rows, &bytes, &in_all));
    CHECK(in_all == bytes + 8. * (double)H.a.size()); /* the values alone, the second time */
  }
}

TEST_CASE("consolidated: the matrix is on the GPU", "[consolidated][gpu][mpi][two][four]")
{
  NEEDS_DEVICE();
  if (Ranks() == 1) return SkipTest();
  const HostMatrix H = DeviceIsEmulated() ? Poisson(12, 5, 2) : Poisson(24, 15, 4);
  for (const bool blocks : {false, true})
    for (const Pair &c : {Pair{KSPCGFUSED, PCNONE, ""}, Pair{KSPCGFUSED, PCJACOBI, "-ksp_initial_guess_nonzero "},
                          Pair{KSPCGFUSED, PCAFSAI, "-ksp_norm_type natural "}, Pair{KSPCGFUSED, PCCMATCH, ""},
                          Pair{KSPGMRESFUSED, PCBISAI, ""}, Pair{KSPCG, PCSFSAI, ""}, Pair{KSPGMRES, PCCMATCH, ""}}) {
      CAPTURE(blocks, c.solver, c.type, c.more);
      if (!blocks && !kPetscHasCUDA) continue;
      const std::string more = kPaths + c.more;
      const auto        make = [&](bool there, MPI_Comm comm) {
        if (blocks) return InBlocks(H, there ? MATBAIJCUDA : MATBAIJ, comm, 2);
        return CreateMat(H, there ? MATAIJCUSPARSE : MATAIJ, comm);
      };
      const bool      fused = std::string(c.solver) == KSPCGFUSED || std::string(c.solver) == KSPGMRESFUSED;
      const MatObject whole = make(false, PETSC_COMM_SELF), A = make(true, PETSC_COMM_WORLD);
      const auto      check = [&](const char *when, const Run &got, const Run &expected) {
        CAPTURE(when, got.iterations, expected.iterations, got.history, expected.history);
        CHECK(got.reason == expected.reason);
        if (fused && !blocks) CHECK(SameRuns(got, expected));
        CHECK(std::abs(got.iterations - expected.iterations) <= 1);
        CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
      };
      const Solver one(whole, c.solver, c.type, kAloneThere + more);
      const Run    first = PartOf(RunOf(one.ksp), A);
      MUST(MatScale(whole, 2));
      const Run    scaled = PartOf(RunOf(one.ksp), A);
      const Solver s(A, c.solver, c.type, kTogetherThere + more);
      check("at first", RunOf(s.ksp), first);
      CHECK(GroupsOf(A) == 1);
      CheckView(s, fused ? "ranks have come together on 1, which solves for all" : "ranks have come together on 1, which has the");
      check("with what is there", RunOf(s.ksp), first);
      MUST(MatScale(A, 2));
      check("new values", RunOf(s.ksp), scaled);
      MUST(KSPReset(s.ksp));
      MUST(KSPSetOperators(s.ksp, A, A));
      MUST(KSPReset(one.ksp)); /* a pattern that is kept may be in another order than a new one */
      MUST(KSPSetOperators(one.ksp, whole, whole));
      check("after a reset", RunOf(s.ksp), PartOf(RunOf(one.ksp), A));
    }
}

TEST_CASE("consolidated: a matrix on the GPU, by what is asked for", "[consolidated][gpu][mpi][two][four]")
{
  NEEDS_DEVICE();
  if (Ranks() == 1) return SkipTest();
  char      name[kGroupText];
  PetscBool share;
  MUST(RanksShareGPU(PETSC_COMM_WORLD, DeviceName_CUDA(sizeof(name), name), name, &share));
  if (!kPetscHasCUDA) share = PETSC_FALSE; /* such a type is on the host then, unless it is asked for */
  const auto matrix = [] { return InBlocks(Poisson(24, 20), MATBAIJCUDA, PETSC_COMM_WORLD, 2); };
  const auto check  = [](Mat A, PCType type, const std::string &options, bool together, const char view[]) {
    const Solver s(A, KSPCGFUSED, type, kPaths + options);
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CHECK(AreTogether(A) == together);
    CheckView(s, view);
  };
  check(matrix(), PCJACOBI, "-finepc_consolidate auto", share, share ? "ranks have come together on" : "path: general");
  check(matrix(), PCJACOBI, "-finepc_consolidate false", false, "path: general");
  enum class How { PLAIN, EARLY, APART }; /* the set-up of the preconditioner comes first, or its matrix is another one */
  for (const auto &[solver, type, how] : {std::tuple{KSPCGFUSED, PCAFSAI, How::PLAIN},
                                          {KSPCGFUSED, PCAFSAI, How::EARLY},
                                          {KSPCGFUSED, PCAFSAI, How::APART},
                                          {KSPCGFUSED, PCCMATCH, How::PLAIN},
                                          {KSPCGFUSED, PCCMATCH, How::EARLY},
                                          {KSPCGFUSED, PCCMATCH, How::APART},
                                          {KSPGMRESFUSED, PCBISAI, How::PLAIN},
                                          {KSPGMRESFUSED, PCBISAI, How::EARLY},
                                          {KSPGMRESFUSED, PCBISAI, How::APART},
                                          {KSPGMRESFUSED, PCJACOBI, How::PLAIN},
                                          {KSPGMRESFUSED, PCJACOBI, How::APART},
                                          {KSPCGFUSED, PCAUTO, How::PLAIN},
                                          {KSPCGFUSED, PCAUTO, How::APART},
                                          {KSPGMRESFUSED, PCAUTO, How::PLAIN},
                                          {KSPCG, PCAFSAI, How::PLAIN}}) {
    CAPTURE(solver, type, (int)how);
    const auto make   = [&] { return kPetscHasCUDA ? CreateMat(Poisson(12, 8, 5), MATAIJCUSPARSE, PETSC_COMM_WORLD) : matrix(); };
    const bool fused  = std::string(solver) != KSPCG;
    const MatObject A = make(), P = make();
    const Solver    s(A, solver, type, kPaths + "-finepc_consolidate auto");
    if (how == How::APART) MUST(KSPSetOperators(s.ksp, A, P));
    if (how == How::EARLY) MUST(PCSetUp(s.pc())); /* which does not know of the solver */
    CHECK(!AreTogether(A));
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CHECK(AreTogether(A) == (fused && share));
    if (fused && share) CheckView(s, "ranks have come together on");
  }
  check(matrix(), PCBJACOBI, kTogetherThere, true, "the ranks did not come together: the preconditioner is one of all ranks");
  if (!kPetscHasCUDA) return;
  const MatObject bound = matrix();
  MUST(MatBindToCPU(bound, PETSC_TRUE));
  check(bound, PCJACOBI, kTogetherThere, false, "path: general");
}

/* Each rank has a factor of its own; the matrix is large enough for a GPU. */
TEST_CASE("consolidated: rrb is on the host where ranks share a GPU, unless the GPU is asked for",
          "[consolidated][gpu][mpi][two][four]")
{
  NEEDS_DEVICE();
  if (Ranks() == 1) return SkipTest();
  char      name[kGroupText];
  PetscBool share, sent;
  MUST(RanksShareGPU(PETSC_COMM_WORLD, DeviceName_CUDA(sizeof(name), name), name, &share));
  for (const bool asked : {false, true}) {
    CAPTURE(asked);
    if (asked && DeviceIsEmulated()) continue;
    const MatObject A = CreateMat(Poisson(310, 288), MATAIJ, PETSC_COMM_WORLD);
    const Solver    s(A, KSPCG, PCRRB, std::string("-ksp_rtol 0.5 -finepc_backend ") + (asked ? "device" : "auto"));
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CHECK(!AreTogether(A));
    MUST(MatIsOffloaded(A, &sent));
    CHECK((bool)sent == (asked || !share));
    if (!asked && share) CheckView(s, "on the host: ranks share a GPU");
  }
}

/* The look of auto at a solve of one rank for others is at a run that has ended. */
TEST_CASE("consolidated: auto leaves a candidate of several ranks that promises little", "[consolidated][auto][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  const MatObject A = CreateMat(Poisson(60, 60), MATAIJ, PETSC_COMM_WORLD);
  const Solver    s(A, KSPCGFUSED, PCAUTO, kTogether + kPaths + "-ksp_norm_type unpreconditioned");
  PC_AUTO *const  state = (PC_AUTO *)s.pc()->data;
  state->given  = {Candidate("jacobi", "-pc_type jacobi", 100000, 1000), Candidate("sfsai", "-pc_type sfsai", 100000, 1e-3)};
  const Run run = RunOf(s.ksp);
  CHECK(run.reason == KSP_CONVERGED_RTOL);
  CHECK(AreTogether(A));
  CHECK(state->records[0].its == 96);
  CHECK(state->records[1].its > 0);
  CHECK(run.iterations == 96 + state->records[1].its);
}

/* The two of them use one matrix, and each is there without the other. */
TEST_CASE("consolidated: two solvers of a matrix on the GPU, and ranks in two communicators", "[consolidated][gpu][mpi][two][four]")
{
  NEEDS_DEVICE();
  if (Ranks() == 1) return SkipTest();
  MPI_Comm half;
  MPI_Comm_split(PETSC_COMM_WORLD, 2 * Rank() / Ranks(), 0, &half);
  for (MPI_Comm comm : {PETSC_COMM_WORLD, half}) {
    PetscMPIInt size;
    MPI_Comm_size(comm, &size);
    const MatObject A = InBlocks(Poisson(24, 20), MATBAIJCUDA, comm, 2);
    const Solver    first(A, KSPCGFUSED, PCCMATCH, kTogetherThere + kPaths);
    const Run       run = RunOf(first.ksp);
    CHECK(run.reason == KSP_CONVERGED_RTOL);
    CHECK(AreTogether(A) == (size > 1));
    {
      const Solver second(A, KSPGMRESFUSED, PCAFSAI, kTogetherThere + kPaths);
      CHECK(VectorDifference(RunOf(second.ksp).x, run.x) <= 1e-6);
    }
    CHECK(SameRuns(RunOf(first.ksp), run));
  }
  MPI_Comm_free(&half);
}

TEST_CASE("consolidated: two groups, and ranks without rows", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  const HostMatrix H = Poisson(24, 22);
  for (const Layout &layout : Layouts())
    for (const char *groups : {"1", "2", "3"})
      for (const Pair &c : {Pair{KSPCGFUSED, PCJACOBI, ""}, Pair{KSPCGFUSED, PCAFSAI, "-pc_afsai_overlap 1000 "},
                            Pair{KSPCGFUSED, PCCMATCH, ""}, Pair{KSPCG, PCCMATCH, ""}, Pair{KSPGMRES, PCAFSAI, ""}}) {
        CAPTURE(layout.name, groups, c.solver, c.type);
        const MatObject A = Spread(H, MATAIJ, layout.share);
        Run             expected;
        {
          const Solver s(A, c.solver, c.type, kAlone + std::string(c.more));
          expected = RunOf(s.ksp);
          CHECK(!AreTogether(A));
        }
        const Solver s(A, c.solver, c.type, kTogether + std::string(c.more) + " -test_groups " + groups);
        const Run    got = RunOf(s.ksp);
        CHECK(GroupsOf(A) == std::min((int)PetscMin(std::atoi(groups), Ranks()), Ranks()));
        CHECK(got.reason == expected.reason);
        if (std::string(c.type) == PCJACOBI) CHECK(got.iterations == expected.iterations);
        else CHECK(got.iterations <= expected.iterations + 2); /* larger blocks are better, not worse */
        CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
      }
}

/* Those of the leaders are in solvers of their own. */
TEST_CASE("consolidated: solvers make no work vectors on each rank, until a solve needs them", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  for (const char *type : {KSPCGFUSED, KSPGMRESFUSED}) {
    CAPTURE(type);
    const MatObject A = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD);
    const Solver    s(A, type, PCAFSAI, kTogether);
    const auto      solve = [&] {
      const VecObject b = RightVec(A, 1), x = RightVec(A, 2), r = RightVec(A, 3);
      PetscReal       norm;
      Vec             built;
      CHECK(RunOf(s.ksp, b, x).reason == KSP_CONVERGED_RTOL);
      MUST(KSPBuildSolution(s.ksp, nullptr, &built));
      MUST(VecWAXPY(r, -1, x, built));
      MUST(VecNorm(r, NORM_2, &norm));
      CHECK(norm == 0);
    };
    solve();
    CHECK(AreTogether(A));
    CHECK(!WorkOf(s.ksp));
    MUST(PCAFSAISetPattern(s.pc(), A));
    solve();
    CheckView(s, "the ranks did not come together: the preconditioner is one of all ranks");
    CHECK(WorkOf(s.ksp));
  }
}

TEST_CASE("consolidated: eigenvalues and singular values are those of one rank", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  struct Spectrum {
    std::vector<PetscReal> r = std::vector<PetscReal>(200), c = std::vector<PetscReal>(200), extremes = std::vector<PetscReal>(2);
    PetscInt               count = -1;
  };
  const auto of = [](KSP ksp) {
    Spectrum s;
    MUST(KSPComputeEigenvalues(ksp, 200, s.r.data(), s.c.data(), &s.count));
    MUST(KSPComputeExtremeSingularValues(ksp, s.extremes.data(), s.extremes.data() + 1));
    return s;
  };
  const HostMatrix H = Poisson(20, 20);
  for (const Pair &c : {Pair{KSPCGFUSED, PCJACOBI, ""}, Pair{KSPCGFUSED, PCCMATCH, ""}, Pair{KSPGMRESFUSED, PCAFSAI, ""},
                        Pair{KSPGMRESFUSED, PCBISAI, "-ksp_gmresfused_restart 7 "}}) {
    CAPTURE(c.solver, c.type);
    const MatObject whole = CreateMat(H, MATAIJ), A = CreateMat(H, MATAIJ, PETSC_COMM_WORLD);
    Spectrum        expected;
    {
      const Solver one(whole, c.solver, c.type, kAlone + std::string(c.more));
      MUST(KSPSetComputeSingularValues(one.ksp, PETSC_TRUE));
      CHECK(RunOf(one.ksp).reason == KSP_CONVERGED_RTOL);
      expected = of(one.ksp);
    }
    const Solver s(A, c.solver, c.type, kTogether + std::string(c.more));
    MUST(KSPSetComputeSingularValues(s.ksp, PETSC_TRUE));
    for (int solve = 0; solve < 2; solve++) {
      CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
      CheckView(s, "ranks have come together on 1, which solves for all");
      const Spectrum got = of(s.ksp);
      CHECK(got.count == expected.count);
      CHECK(got.count > 1);
      for (size_t k = 0; k < (size_t)got.count; k++) CHECK((got.r[k] == expected.r[k] && got.c[k] == expected.c[k]));
      CHECK(got.extremes == expected.extremes);
    }
  }
}

TEST_CASE("consolidated: coordinates of nodes", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  const Body      body  = MakeBody({11, 9, 8});
  const MatObject whole = CreateMat(body.A, MATAIJ);
  const auto      nodes = [&](LocalInt n, int rank, int size) { return Even(n / body.k, rank, size) * body.k; };
  const MatObject A     = Spread(body.A, MATAIJ, nodes);
  PetscInt        begin, end;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  for (Mat each : {(Mat)whole, (Mat)A}) MUST(MatSetBlockSize(each, body.k));
  const auto give = [&](PC pc, PetscInt first, PetscInt last, double by) {
    std::vector<double> x(body.x.begin() + first, body.x.begin() + last);
    for (double &value : x) value *= by;
    MUST(PCSetCoordinates(pc, body.k, (PetscInt)x.size() / body.k, x.data()));
  };
  Run first, second;
  {
    const Solver one(whole, KSPCGFUSED, PCCMATCH, kAlone);
    give(one.pc(), 0, body.A.n, 1);
    first = PartOf(RunOf(one.ksp), A);
    give(one.pc(), 0, body.A.n, 3);
    second = PartOf(RunOf(one.ksp), A);
  }
  const Solver s(A, KSPCGFUSED, PCCMATCH, kTogether);
  give(s.pc(), begin, end, 1);
  CHECK(SameRuns(RunOf(s.ksp), first));
  CheckView(s, "rigid body modes of the coordinates");
  CheckView(s, "ranks have come together on 1, which solves for all");
  CHECK(SameRuns(RunOf(s.ksp), first));
  give(s.pc(), begin, end, 3);
  CHECK(SameRuns(RunOf(s.ksp), second));
  {
    const MatObject C = Spread(body.A, MATAIJ, nodes);
    MUST(MatSetBlockSize(C, body.k));
    const Solver early(C, KSPCGFUSED, PCCMATCH, kAlone);
    give(early.pc(), begin, end, 3);
    MUST(PCSetUp(early.pc()));
    const Options together(kTogether);
    CHECK(SameRuns(RunOf(early.ksp), second)); /* its set-up is made again, with what it was given */
    CheckView(early, "ranks have come together on 1, which solves for all");
  }
  MUST(PCSetCoordinates(s.pc(), body.k, (end - begin) / body.k - (Rank() ? 0 : 1), (PetscReal *)body.x.data()));
  const Errors errors;
  CHECK((int)PCSetUp(s.pc()) == (int)PETSC_ERR_ARG_SIZ); /* on all ranks */
}

/* As on one rank, they are neither used nor looked at where they have another dimension, or where nodes are cut. */
TEST_CASE("consolidated: coordinates that are not used", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  const Body      body  = MakeBody({11, 9, 8});
  const MatObject whole = CreateMat(body.A, MATAIJ);
  const auto      nodes = [&](LocalInt n, int rank, int size) { return Even(n / body.k, rank, size) * body.k; };
  const auto      cut   = [&](LocalInt n, int rank, int size) { return nodes(n, rank, size) + (rank ? 0 : 1) - (rank == 1); };
  for (const bool across : {false, true}) {
    CAPTURE(across);
    const MatObject A = across ? Spread(body.A, MATAIJ, cut) : Spread(body.A, MATAIJ, nodes);
    PetscInt        begin, end;
    MUST(MatGetOwnershipRange(A, &begin, &end));
    if (!across) MUST(MatSetBlockSize(A, body.k));
    MUST(MatSetBlockSize(whole, across ? 1 : body.k));
    Run expected;
    {
      const Solver one(whole, KSPCGFUSED, PCCMATCH, kAlone);
      expected = PartOf(RunOf(one.ksp), A);
    }
    const Solver s(A, KSPCGFUSED, PCCMATCH, kTogether);
    if (!across) {
      MUST(PCSetCoordinates(s.pc(), body.k, (end - begin) / body.k, (PetscReal *)body.x.data() + begin));
      CHECK(!SameRuns(RunOf(s.ksp), expected));
    }
    MUST(PCSetCoordinates(s.pc(), 2, (end - begin) / body.k, (PetscReal *)body.x.data() + begin));
    CHECK(SameRuns(RunOf(s.ksp), expected));
    CheckView(s, "ranks have come together on 1, which solves for all");
  }
}

/* The matrix has been used without it before, so that there is a decision, and where rows are used is known by other options. */
TEST_CASE("consolidated: -finepc_consolidate beside backends of types, and of setters", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  for (const bool setter : {false, true}) {
    CAPTURE(setter);
    const MatObject A = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD);
    const Solver    before(A, KSPCGFUSED, PCAFSAI, kAlone);
    CHECK(RunOf(before.ksp).reason == KSP_CONVERGED_RTOL);
    CHECK(!AreTogether(A));
    const Solver s(A, KSPCGFUSED, PCAFSAI,
                   std::string("-finepc_consolidate true ") + (setter ? "" : "-ksp_cgfused_backend host -pc_afsai_backend host"));
    if (setter) MUST(KSPFinePCSetBackend(s.ksp, FINEPC_BACKEND_HOST));
    if (setter) MUST(PCFinePCSetBackend(s.pc(), FINEPC_BACKEND_HOST));
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CHECK(AreTogether(A));
    CheckView(s, "ranks have come together on 1, which solves for all");
  }
}

/* Nothing but another option has ranks come together late here; on a GPU that they share it is the solver. */
TEST_CASE("consolidated: a preconditioner that was set up before its solver", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  for (const Pair &c : {Pair{KSPCGFUSED, PCAFSAI, ""}, Pair{KSPCGFUSED, PCCMATCH, ""}, Pair{KSPGMRESFUSED, PCBISAI, ""},
                        Pair{KSPCGFUSED, PCAUTO, ""}})
    for (const bool kept : {false, true}) {
      CAPTURE(c.solver, c.type, kept);
      const MatObject A = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD),
                      B = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD);
      const Solver early(A, c.solver, c.type, kAlone);
      MUST(PCSetUp(early.pc()));
      MUST(KSPSetReusePreconditioner(early.ksp, (PetscBool)kept));
      const Solver s(B, c.solver, c.type, kTogether);
      const Run    expected = RunOf(s.ksp), got = RunOf(early.ksp);
      CHECK(AreTogether(A));
      CHECK(got.reason == KSP_CONVERGED_RTOL);
      if (std::string(c.type) == PCAUTO) continue; /* what it takes may be PETSc's, of all ranks */
      CheckView(early, kept ? "the ranks did not come together: the preconditioner is one of all ranks"
                            : "ranks have come together on 1, which solves for all");
      if (!kept) CHECK(SameRuns(got, expected));
    }
}

/* It has another diagonal. */
TEST_CASE("consolidated: a matrix of the preconditioner's own", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  const HostMatrix H     = Poisson(20, 20);
  HostMatrix       other = H;
  for (LocalInt row = 0; row < other.n; row++)
    for (LocalInt k = other.i[row]; k < other.i[row + 1]; k++)
      if (other.j[k] == row) other.a[k] *= 1 + 0.5 * (row % 3);
  for (const Where &place : Places())
    for (const Pair &c : {Pair{KSPCGFUSED, PCNONE, ""}, Pair{KSPCGFUSED, PCJACOBI, ""}, Pair{KSPGMRESFUSED, PCJACOBI, ""},
                          Pair{KSPCGFUSED, PCAFSAI, ""}, Pair{KSPCGFUSED, PCCMATCH, ""}, Pair{KSPGMRESFUSED, PCBISAI, ""}}) {
      CAPTURE(place.type, c.solver, c.type);
      const auto solve = [&](const Solver &s, Mat A, Mat P) {
        MUST(KSPSetOperators(s.ksp, A, P));
        return RunOf(s.ksp);
      };
      const MatObject whole = CreateMat(H, MATAIJ), whole_P = CreateMat(other, MATAIJ);
      const MatObject A = CreateMat(H, place.type, PETSC_COMM_WORLD), P = CreateMat(other, place.type, PETSC_COMM_WORLD);
      Run             first, scaled;
      {
        const Solver one(whole, c.solver, c.type, place.alone);
        first = PartOf(solve(one, whole, whole_P), A);
        MUST(MatScale(whole_P, 3));
        scaled = PartOf(solve(one, whole, whole_P), A);
      }
      const Solver s(A, c.solver, c.type, place.together);
      CHECK(SameRuns(solve(s, A, P), first));
      CHECK(first.reason == KSP_CONVERGED_RTOL);
      CheckView(s, "ranks have come together on 1, which solves for all");
      MUST(MatScale(P, 3));
      CHECK(SameRuns(solve(s, A, P), scaled));
    }
}

TEST_CASE("consolidated: new values, other nonzeros, another size", "[consolidated][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  for (const Where &place : Places())
    for (const Pair &c : {Pair{KSPCGFUSED, PCJACOBI, "1"}, Pair{KSPCGFUSED, PCAFSAI, "1"}, Pair{KSPCGFUSED, PCCMATCH, "1"},
                          Pair{KSPGMRESFUSED, PCBISAI, "1"}, Pair{KSPCG, PCSFSAI, "1"}, Pair{KSPCGFUSED, PCJACOBI, "2"},
                          Pair{KSPCGFUSED, PCAFSAI, "2"}, Pair{KSPCGFUSED, PCCMATCH, "2"}, Pair{KSPGMRESFUSED, PCBISAI, "2"},
                          Pair{KSPCG, PCSFSAI, "2"}}) {
      CAPTURE(place.type, c.more, c.solver, c.type);
      const HostMatrix  H       = Poisson(20, 20, 3);
      const MatObject   A       = CreateMat(H, place.type, PETSC_COMM_WORLD);
      const std::string grouped = place.together + "-test_groups " + c.more;
      const Solver      s(A, c.solver, c.type, grouped);
      const auto        check = [&](Mat B) {
        const Options   options(grouped);
        const VecObject x = RightVec(B, 7), b = RightVec(B, 2), r = RightVec(B, 3);
        const Run       got = RunOf(s.ksp, b, x);
        CHECK(got.reason == KSP_CONVERGED_RTOL);
        CHECK(AreTogether(B));
        MUST(MatResidual(B, b, x, r));
        PetscReal norm, of_b;
        MUST(VecNorm(r, NORM_2, &norm));
        MUST(VecNorm(b, NORM_2, &of_b));
        CHECK(norm <= 1e-6 * of_b);
        return got;
      };
      check(A);
      MUST(MatShift(A, 0.5));
      MUST(KSPSetOperators(s.ksp, A, A));
      const Run shifted = check(A);
      MUST(MatScale(A, 4));
      const Run scaled = check(A);
      CHECK(scaled.iterations == shifted.iterations);
      const MatObject B = CreateMat(RandomGraph(1200, 5, 3), place.type, PETSC_COMM_WORLD);
      MUST(MatAXPY(A, 0.01, B, DIFFERENT_NONZERO_PATTERN));
      check(A);
      const MatObject D = CreateMat(Poisson(17, 13), place.type, PETSC_COMM_WORLD);
      MUST(KSPReset(s.ksp));
      MUST(KSPSetOperators(s.ksp, D, D));
      check(D);
    }
}

TEST_CASE("consolidated: blocks", "[consolidated][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  for (MatType kind : {MATBAIJ, MATSBAIJ})
    for (const Pair &c : {Pair{KSPCGFUSED, PCAFSAI, ""}, Pair{KSPGMRESFUSED, PCBISAI, ""}, Pair{KSPCGFUSED, PCCMATCH, ""}}) {
      PetscObjectState before, after;
      CAPTURE(kind, c.solver, c.type);
      if (std::string(kind) == MATSBAIJ && std::string(c.type) == PCBISAI) continue; /* it does not take them */
      const MatObject A = InBlocks(Poisson(24, 24), kind, PETSC_COMM_WORLD, 2);
      Run             expected;
      {
        const MatObject whole = InBlocks(Poisson(24, 24), kind, PETSC_COMM_SELF, 2);
        const Solver    s(whole, c.solver, c.type, kAlone);
        expected = PartOf(RunOf(s.ksp), A);
      }
      const Solver s(A, c.solver, c.type, kTogether);
      MUST(PetscObjectStateGet((PetscObject)(Mat)A, &before));
      const Run got = RunOf(s.ksp);
      CHECK(got.reason == expected.reason);
      CHECK(std::abs(got.iterations - expected.iterations) <= 1);
      CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
      CHECK(AreTogether(A));
      MUST(PetscObjectStateGet((PetscObject)(Mat)A, &after));
      CHECK(after == before); /* or each apply would set the preconditioner up again */
    }
}

/* Where each rank has a GPU they do so by themselves, as groups of one rank. */
TEST_CASE("consolidated: blocks of ranks that each solve", "[consolidated][offload][gpu][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  const std::string host = kTogether + std::string("-test_groups ") + std::to_string(Ranks()) + " ";
  for (const std::string &options : {host, std::string("-finepc_backend device ")})
    for (MatType kind : {MATBAIJ, MATSBAIJ})
      for (const Pair &c : {Pair{KSPCGFUSED, PCAFSAI, ""}, Pair{KSPGMRESFUSED, PCJACOBI, ""}, Pair{KSPCGFUSED, PCCMATCH, ""}}) {
        const bool there = options != host;
        CAPTURE(options, kind, c.solver, c.type);
        if (there && !DeviceFound()) continue;
        const MatObject A = InBlocks(Poisson(24, 24), kind, PETSC_COMM_WORLD, 2),
                        B = InBlocks(Poisson(24, 24), MATAIJ, PETSC_COMM_WORLD, 2);
        Run expected;
        {
          const Solver points(B, c.solver, c.type, "-finepc_backend host");
          expected = RunOf(points.ksp);
        }
        const Solver s(A, c.solver, c.type, options + kPaths);
        for (const double factor : {1., 4.}) { /* with new values, too */
          MUST(MatScale(A, factor));
          const Run got = RunOf(s.ksp);
          CHECK(got.reason == expected.reason);
          CHECK(std::abs(got.iterations - expected.iterations) <= (GroupsOf(A) == Ranks() ? 1 : 8));
          Run scaled = got;
          for (double &x : scaled.x) x *= factor;
          CHECK(VectorDifference(scaled.x, expected.x) <= 1e-6);
        }
        CHECK(AreTogether(A));
        if (GroupsOf(A) == Ranks()) CheckView(s, "each rank solves with the single entries of its rows");
        if (there && !(DeviceIsEmulated() && std::string(c.solver) == KSPGMRESFUSED))
          CheckView(s, "the host has the matrix and the vectors, which are sent to the GPU");
      }
}

/* A program may put something else into the lower triangles of the blocks on the diagonal than into the upper ones. */
TEST_CASE("consolidated: the rows of a symmetric matrix of blocks are those of its product", "[consolidated][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  for (PetscInt bs : {2, 3, 4, 7, 8})
    for (PCType type : {PCJACOBI, PCCMATCH}) {
      CAPTURE(bs, type);
      const MatObject A = InBlocks(Poisson(4 * bs, 6), MATSBAIJ, PETSC_COMM_WORLD, bs);
      PetscInt        begin, end;
      MUST(MatGetOwnershipRange(A, &begin, &end));
      for (PetscInt row = begin; row < end; row++)
        if (row % bs) MUST(MatSetValue(A, row, row - 1, -0.3, INSERT_VALUES));
      MUST(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
      MUST(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
      const Solver    s(A, KSPGMRESFUSED, type, kTogether + std::string("-ksp_pc_side right "));
      const VecObject x = RightVec(A, 7), b = RightVec(A, 2), r = RightVec(A, 3);
      PetscReal       norm, of_b;
      CHECK(RunOf(s.ksp, b, x).reason == KSP_CONVERGED_RTOL);
      CHECK(AreTogether(A));
      MUST(MatResidual(A, b, x, r));
      MUST(VecNorm(r, NORM_2, &norm));
      MUST(VecNorm(b, NORM_2, &of_b));
      CHECK(norm <= 1.1e-8 * of_b);
    }
}

TEST_CASE("consolidated: null spaces and vectors near them", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  HostMatrix H = Poisson(20, 20);
  for (LocalInt row = 0; row < H.n; row++) { /* rows that sum up to zero */
    double   sum      = 0;
    LocalInt diagonal = -1;
    for (LocalInt k = H.i[row]; k < H.i[row + 1]; k++)
      if (H.j[k] == row) diagonal = k;
      else sum += H.a[k];
    H.a[diagonal] = -sum;
  }
  for (const Where &place : Places())
    for (const auto &[type, vector] : {std::pair(PCJACOBI, false), {PCJACOBI, true}, {PCCMATCH, false}, {PCCMATCH, true}}) {
      CAPTURE(place.type, type, vector);
      const auto matrix = [&](MatType kind, MPI_Comm comm, bool vector) {
        MatObject    A = CreateMat(H, kind, comm);
        VecObject    v;
        MatNullSpace space;
        MUST(MatCreateVecs(A, v.put(), nullptr));
        MUST(VecSet(v, 1. / 20));
        Vec one = v;
        MUST(MatNullSpaceCreate(comm, vector ? PETSC_FALSE : PETSC_TRUE, vector, &one, &space));
        MUST(MatSetNullSpace(A, space));
        MUST(MatSetNearNullSpace(A, space));
        MUST(MatNullSpaceDestroy(&space));
        return A;
      };
      const MatObject whole = matrix(MATAIJ, PETSC_COMM_SELF, vector), A = matrix(place.type, PETSC_COMM_WORLD, vector);
      const auto      solve = [&](Mat B, PCType type, const std::string &options) {
        const Solver    s(B, KSPCGFUSED, type, options);
        const VecObject b = RightVec(B, 2);
        MatNullSpace    space;
        MUST(MatGetNullSpace(B, &space));
        MUST(MatNullSpaceRemove(space, b));
        return RunOf(s.ksp, b);
      };
      const Run expected = PartOf(solve(whole, type, place.alone), A), got = solve(A, type, place.together);
      CHECK(AreTogether(A));
      CHECK(got.reason == KSP_CONVERGED_RTOL);
      CHECK(got.iterations == expected.iterations);
      CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
    }
}

TEST_CASE("consolidated: monitors that look at the norm, and histories, on all ranks", "[consolidated][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  const MatObject   A    = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD);
  const std::string name = "consolidated_monitor." + std::to_string(getpid()); /* the first rank writes its own */
  const Solver      s(A, KSPCGFUSED, PCAFSAI, kTogether + std::string("-ksp_monitor ascii:") + name);
  const Run         run = RunOf(s.ksp);
  CHECK(AreTogether(A));
  CHECK((PetscInt)run.history.size() == run.iterations + 1);
  MUST(KSPReset(s.ksp));
  if (Rank()) return;
  CHECK(LinesIn(name) == run.iterations + 1);
  (void)std::remove(name.c_str());
}

TEST_CASE("consolidated: monitors and tests of the program, on all ranks in each iteration", "[consolidated][mpi][two][four]")
{
  if (Ranks() == 1) return SkipTest();
  const HostMatrix H = Poisson(20, 15, 4);
  for (const Where &place : Places())
    for (const Pair &c :
         {Pair{KSPCGFUSED, PCAFSAI, ""}, Pair{KSPCGFUSED, PCCMATCH, "-ksp_initial_guess_nonzero "},
          Pair{KSPGMRESFUSED, PCBISAI, "-ksp_gmresfused_restart 7 "}, Pair{KSPGMRESFUSED, PCCMATCH, "-ksp_pc_side right "}})
      for (const bool test : {false, true}) {
        CAPTURE(place.type, c.solver, c.type, c.more, test);
        const MatObject whole = CreateMat(H, MATAIJ), A = CreateMat(H, place.type, PETSC_COMM_WORLD);
        Recorder        mine, theirs;
        const auto      run = [&](const Solver &s, Recorder *recorder) {
          recorder->stop_at = 4;
          if (test) MUST(KSPSetConvergenceTest(s.ksp, RecordTest, recorder, nullptr));
          else MUST(KSPMonitorSet(s.ksp, RecordMonitor, recorder, nullptr));
          return RunOf(s.ksp);
        };
        const Run    expected = PartOf(run(Solver(whole, c.solver, c.type, place.alone + c.more), &theirs), A);
        const Solver s(A, c.solver, c.type, place.together + c.more);
        CHECK(SameRuns(run(s, &mine), expected));
        CHECK(expected.reason == (test ? KSP_CONVERGED_ATOL : KSP_CONVERGED_RTOL));
        CheckView(s,
                  test ? "each iteration waits for the convergence test of the program" : "each iteration waits for the monitors");
        REQUIRE(mine.calls.size() == theirs.calls.size());
        for (size_t k = 0; k < mine.calls.size(); k++) {
          Run at;
          at.x = theirs.calls[k].x;
          CHECK(mine.calls[k].it == theirs.calls[k].it);
          CHECK(mine.calls[k].norm == theirs.calls[k].norm);
          CHECK(mine.calls[k].x == PartOf(at, A).x);
          at.x = theirs.calls[k].r;
          CHECK(VectorDifference(mine.calls[k].r, PartOf(at, A).x) <= 1e-5);
        }
      }
}

TEST_CASE("consolidated: a monitor that fails on one rank, and solves with and without a test", "[consolidated][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  const MatObject A = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD);
  const Solver    s(A, KSPCGFUSED, PCAFSAI, kTogether);
  const Run       first = RunOf(s.ksp);
  Recorder        recorder;
  if (Rank() == 1) MUST(KSPMonitorSet(s.ksp, FailInThird, nullptr, nullptr));
  {
    const VecObject b = RightVec(A, 1), x = RightVec(A, 2);
    Errors          errors;
    CHECK(KSPSolve(s.ksp, b, x) == PETSC_ERR_USER);
    CHECK(Contains(errors.text, Rank() == 1 ? "this monitor fails" : "Another rank could not follow the iteration"));
  }
  MUST(KSPMonitorCancel(s.ksp));
  CHECK(SameRuns(RunOf(s.ksp), first));
  recorder.stop_at = 5;
  MUST(KSPSetConvergenceTest(s.ksp, RecordTest, &recorder, nullptr));
  CHECK(RunOf(s.ksp).iterations == 5);
  void *context;
  MUST(KSPConvergedDefaultCreate(&context));
  MUST(KSPSetConvergenceTest(s.ksp, KSPConvergedDefault, context, KSPConvergedDefaultDestroy));
  CHECK(SameRuns(RunOf(s.ksp), first));
}

TEST_CASE("consolidated: a solution in a vector of another size is an error", "[consolidated][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  const MatObject A       = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD),
                  smaller = CreateMat(Poisson(9, 9), MATAIJ, PETSC_COMM_WORLD);
  const Solver    s(A, KSPGMRESFUSED, PCAFSAI, kTogether);
  const VecObject b = RightVec(A, 1), x = RightVec(A, 2), other = RightVec(smaller, 1);
  {
    Errors errors;
    MUST(KSPMonitorSet(s.ksp, BuildSolutionIn, (Vec)other, nullptr));
    CHECK(KSPSolve(s.ksp, b, x) == PETSC_ERR_ARG_SIZ);
    CHECK(Contains(errors.text, "rows on this rank, but the vector has"));
  }
  MUST(KSPMonitorCancel(s.ksp));
  CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
}

TEST_CASE("consolidated: what keeps ranks from it", "[consolidated][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  const MatObject A = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD);

  SECTION("a preconditioner of all ranks")
  {
    const Solver s(A, KSPCGFUSED, PCBJACOBI, kTogether);
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CheckView(s, "the ranks did not come together: the preconditioner is one of all ranks");
  }
  SECTION("a pattern of the program")
  {
    const Solver s(A, KSPCGFUSED, PCAFSAI, kTogether);
    MUST(PCAFSAISetPattern(s.pc(), A));
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CheckView(s, "the ranks did not come together: the preconditioner is one of all ranks");
    MUST(PCAFSAISetPattern(s.pc(), nullptr));
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CheckView(s, "ranks have come together on 1");
  }
  SECTION("eigenvalues that a monitor may want")
  {
    const Solver    s(A, KSPCGFUSED, PCJACOBI, kTogether);
    const VecObject x = RightVec(A, 5);
    MUST(KSPSetComputeSingularValues(s.ksp, PETSC_TRUE));
    MUST(KSPMonitorSet(s.ksp, BuildSolutionIn, (Vec)x, nullptr));
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CheckView(s, "the ranks did not come together: a monitor or a test may want singular values");
  }
  SECTION("factors are not on the ranks")
  {
    const Solver s(A, KSPCGFUSED, PCAFSAI, kTogether);
    Mat          G;
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    Errors errors;
    CHECK(PCAFSAIGetFactors(s.pc(), &G, nullptr) == PETSC_ERR_SUP);
    CHECK(Contains(errors.text, "use -finepc_consolidate false"));
  }
  SECTION("the option")
  {
    const Solver s(A, KSPCGFUSED, PCAFSAI, "-finepc_consolidate false -finepc_backend host");
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CHECK(!AreTogether(A));
  }
}

TEST_CASE("consolidated: bad matrices are failures on all ranks", "[consolidated][bad][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  for (PCType type : {PCAFSAI, PCSFSAI, PCCMATCH}) {
    CAPTURE(type);
    const MatObject A = CreateMat(WithEntry(Poisson(20, 20), 390, 390, -4), MATAIJ, PETSC_COMM_WORLD);
    const Solver    s(A, KSPCGFUSED, type, kTogether);
    CHECK(RunOf(s.ksp).reason == KSP_DIVERGED_PC_FAILED);
    CHECK(AreTogether(A));
    const std::string view = s.View();
    if (!Rank()) CHECK(Contains(view, "390"));
    const MatObject good = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD);
    MUST(MatCopy(good, A, SAME_NONZERO_PATTERN));
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
  }
}

TEST_CASE("consolidated: a matrix that is not assembled is an error on all ranks", "[consolidated][bad][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  /* without PCJACOBI, which PETSc 3.26 cannot destroy after that error */
  for (const Pair &c : {Pair{KSPCGFUSED, PCNONE, ""}, Pair{KSPCG, PCAFSAI, ""}, Pair{KSPGMRESFUSED, PCCMATCH, ""}}) {
    CAPTURE(c.solver, c.type);
    const Options options(kTogether);
    MatObject     A;
    VecObject     x, b;
    KSPObject     ksp;
    PC            pc;
    MUST(MatCreate(PETSC_COMM_WORLD, A.put()));
    MUST(MatSetSizes(A, 20, 20, PETSC_DETERMINE, PETSC_DETERMINE));
    MUST(MatSetType(A, MATAIJ));
    MUST(MatSetUp(A));
    MUST(MatCreateVecs(A, x.put(), b.put()));
    MUST(KSPCreate(PETSC_COMM_WORLD, ksp.put()));
    MUST(KSPSetOperators(ksp, A, A));
    MUST(KSPSetType(ksp, c.solver));
    MUST(KSPGetPC(ksp, &pc));
    MUST(PCSetType(pc, c.type));
    Errors errors;
    CHECK(KSPSolve(ksp, b, x) == PETSC_ERR_ARG_WRONGSTATE);
  }
}

TEST_CASE("consolidated: several right-hand sides", "[consolidated][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  const MatObject A = CreateMat(Poisson(20, 20), MATAIJ, PETSC_COMM_WORLD);
  const Solver    s(A, KSPCGFUSED, PCCMATCH, kTogether);
  const PetscInt  columns = 3;
  MatObject       B, X;
  PetscInt        rows;
  MUST(MatGetLocalSize(A, &rows, nullptr));
  for (MatObject *M : {&B, &X})
    MUST(MatCreateDense(PETSC_COMM_WORLD, rows, PETSC_DECIDE, PETSC_DECIDE, columns, nullptr, M->put()));
  for (PetscInt c = 0; c < columns; c++) {
    const VecObject b = RightVec(A, 10 + c);
    Vec             column;
    MUST(MatDenseGetColumnVecWrite(B, c, &column));
    MUST(VecCopy(b, column));
    MUST(MatDenseRestoreColumnVecWrite(B, c, &column));
  }
  MUST(KSPMatSolve(s.ksp, B, X));
  CHECK(AreTogether(A));
  for (PetscInt c = 0; c < columns; c++) {
    const VecObject b = RightVec(A, 10 + c), x = RightVec(A, 1);
    const Run       one = RunOf(s.ksp, b, x);
    Vec             column;
    MUST(MatDenseGetColumnVecRead(X, c, &column));
    CHECK(VectorDifference(Values(column), one.x) <= 1e-7);
    MUST(MatDenseRestoreColumnVecRead(X, c, &column));
  }
}

/* The last solver of its communicator, since PETSc numbers messages by the objects that a rank has made. */
TEST_CASE("consolidated: memory ends on one rank, and all of them get an error", "[consolidated][memory][mpi][two]")
{
  if (Ranks() == 1) return SkipTest();
  const Options options(kTogether);
  for (const bool leader : {true, false})
    for (const Pair &c : {Pair{KSPCGFUSED, PCJACOBI, ""}, Pair{KSPCGFUSED, PCCMATCH, ""}, Pair{KSPGMRESFUSED, PCAFSAI, ""}})
      for (const auto kind : {FailingMemory::Through::New, FailingMemory::Through::PETSc}) {
        bool failed = true;
        for (long n = 1; failed; n += 1 + n / 8) {
          CAPTURE(leader, c.solver, c.type, (int)kind, n);
          MPI_Comm comm;
          MPI_Comm_dup(PETSC_COMM_WORLD, &comm);
          {
            const MatObject A = CreateMat(Poisson(9, 8), MATAIJ, comm);
            const VecObject b = RightVec(A, 2), x = RightVec(A, 1);
            KSPObject       ksp;
            MUST(KSPCreate(comm, ksp.put()));
            MUST(KSPSetOperators(ksp, A, A));
            MUST(KSPSetType(ksp, c.solver));
            MUST(PCSetType(PCOf(ksp), c.type));
            failed = FailsOnAll(leader ? 0 : Ranks() - 1, n, [&] { return KSPSolve(ksp, b, x); }, kind);
            if (!failed) CHECK(AreTogether(A));
          }
          MPI_Comm_free(&comm);
        }
      }
}
