/* Matrices and vectors of the host whose solves run on the GPU. */
#include <finepc.h>

#include <cmath>
#include <limits>

#include "pc/auto/auto.h"
#include "bodies.h"
#include "compare.h"
#include "device.h"
#include "matrices.h"
#include "pc_support.h"
#include "recorder.h"
#include "spread.h"
#include "sparse/offload.h"

namespace
{

/* The emulator runs one block at a time, and so no path on which some of them wait for others. */
std::string OnDevice(const std::string &more = "")
{
  return std::string("-finepc_backend device ") +
         (DeviceIsEmulated() ? "-ksp_cgfused_path graph -ksp_gmresfused_path general " : "") + more;
}

/*
   What a solve of a matrix that is sent is compared with: one of a matrix that PETSc has on the GPU, which is the same to the last
   bit, or, where PETSc has no CUDA, one on the host, by the twins.
*/
constexpr const char *kThere = kPetscHasCUDA ? MATAIJCUSPARSE : MATAIJ;
std::string           There(const std::string &options)
{
  return kPetscHasCUDA ? options : options + " -finepc_backend host";
}

bool Same(const Run &got, const Run &expected)
{
  if (kPetscHasCUDA) return SameRuns(got, expected);
  CHECK(got.reason == expected.reason);
  CHECK(std::abs(got.iterations - expected.iterations) <= 1 + expected.iterations / 50);
  if (expected.reason == KSP_DIVERGED_ITS) return true; /* thousands of iterations that do not converge, by either twin */
  return VectorDifference(got.x, expected.x) <= (got.iterations == expected.iterations ? 1e-6 : 1e-3); /* as far as the tolerance */
}

/* Twins of the adaptive factor choose other patterns among equals, so that iterates are compared with Jacobi's. */
constexpr const char *kSameTwins = kPetscHasCUDA ? PCAFSAI : PCJACOBI;

/* The emulator's threads take turns. */
HostMatrix Box(LocalInt nx, LocalInt ny, LocalInt nz)
{
  return DeviceIsEmulated() ? Poisson(nx / 3, ny / 3, nz / 3) : Poisson(nx, ny, nz);
}

/* Its solutions are compared with those of twins. */
struct Solver : SolverWith {
  Solver(Mat A, const char ksp_type[], const char pc_type[], const std::string &text) :
      SolverWith(A, ksp_type, pc_type, text, kPetscHasCUDA ? 1e-8 : 1e-12)
  {
  }
};

bool IsSent(Mat A)
{
  PetscBool sent;
  MUST(MatIsOffloaded(A, &sent));
  return sent;
}

} // namespace

TEST_CASE("offload: what is asked for, and what is not possible", "[offload]")
{
  const MatObject A = CreateMat(Poisson(9, 9), MATAIJ);
  FinePCBackend   backend;
  PC              pc;

  SECTION("setters and options")
  {
    const Solver s(A, KSPCGFUSED, PCAFSAI, "-pc_afsai_backend host -ksp_cgfused_backend device");
    MUST(KSPGetPC(s.ksp, &pc));
    MUST(PCFinePCGetBackend(pc, &backend));
    CHECK(backend == FINEPC_BACKEND_HOST);
    MUST(KSPFinePCGetBackend(s.ksp, &backend));
    CHECK(backend == FINEPC_BACKEND_DEVICE);
    MUST(KSPFinePCSetBackend(s.ksp, FINEPC_BACKEND_AUTO));
    MUST(KSPFinePCGetBackend(s.ksp, &backend));
    CHECK(backend == FINEPC_BACKEND_AUTO);
    Errors errors;
    CHECK(PCFinePCSetBackend(pc, (FinePCBackend)3) == PETSC_ERR_ARG_OUTOFRANGE);
  }
  SECTION("a small matrix stays on the host")
  {
    const Solver s(A, KSPCGFUSED, PCAFSAI, "-finepc_backend auto");
    CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
    CHECK(!IsSent(A));
    CHECK(
      Contains(s.View(), "on the host: a GPU would have fewer than 20000 rows, which a host solves before CUDA has started\n") ==
      DeviceFound());
  }
  SECTION("the GPU is chosen by PETSc where it has CUDA")
  {
    if (!kHasCUDA || !kPetscHasCUDA) return;
    const Options options("-finepc_device 1");
    Errors        errors;
    CHECK(DeviceSetUp() == PETSC_ERR_USER_INPUT);
    CHECK(Contains(errors.text, "use -device_select_cuda 1"));
  }
  SECTION("without a GPU")
  {
    if (DeviceFound()) return;
    const Solver    s(A, KSPCGFUSED, PCAFSAI, OnDevice());
    const VecObject b = RightVec(A, 1), x = RightVec(A, 2);
    Errors          errors;
    CHECK(KSPSolve(s.ksp, b, x) == PETSC_ERR_SUP);
    CHECK(Contains(errors.text, "The backend device is not possible"));
  }
}

TEST_CASE("offload: cgfused gives what it gives for a matrix on the GPU", "[offload][gpu][mpi][two][four]")
{
  NEEDS_DEVICE();
  const bool several = Ranks() > 1;
  if (several && !WhyNoNCCL().empty()) return SkipTest();
  std::vector<HostMatrix> systems = {Box(40, 30, 20)};
  if (!DeviceIsEmulated()) systems.insert(systems.end(), {RandomGraph(5000, 9, 4), RandomStencil(90, 80, 1, false, 3)});
  for (const HostMatrix &H : systems)
    for (PCType type : {PCNONE, PCJACOBI, PCAFSAI, PCSFSAI, PCCMATCH})
      for (const char *more : {"", "-ksp_initial_guess_nonzero ", "-ksp_norm_type natural ", "-ksp_cgfused_path graph "}) {
        CAPTURE(H.n, type, more);
        const MatObject there = CreateMat(H, kThere, PETSC_COMM_WORLD), here = CreateMat(H, MATAIJ, PETSC_COMM_WORLD);
        Run             expected, got;
        {
          const Solver s(there, KSPCGFUSED, type, There(more));
          expected = RunOf(s.ksp);
        }
        const Solver s(here, KSPCGFUSED, type, OnDevice(more));
        got = RunOf(s.ksp);
        CHECK(IsSent(here));
        CHECK(Same(got, expected));
        const std::string view = s.View();
        if (!view.empty()) CHECK(Contains(view, "the host has the matrix and the vectors, which are sent to the GPU"));
        CHECK(SameRuns(RunOf(s.ksp), got)); /* with the copies that are there */
      }
}

TEST_CASE("offload: new values, other nonzeros, resets", "[offload][gpu][mpi][two]")
{
  NEEDS_DEVICE();
  if (Ranks() > 1 && !WhyNoNCCL().empty()) return SkipTest();
  for (PCType type : {PCJACOBI, PCAFSAI, PCSFSAI, PCCMATCH}) {
    CAPTURE(type);
    const HostMatrix H     = Box(30, 30, 15);
    const MatObject  there = CreateMat(H, kThere, PETSC_COMM_WORLD), here = CreateMat(H, MATAIJ, PETSC_COMM_WORLD);
    Solver           s(here, KSPCGFUSED, type, OnDevice()), t(there, KSPCGFUSED, type, There(OnDevice()));
    s.Use(FINEPC_BACKEND_DEVICE);
    if (!kPetscHasCUDA) t.Use(FINEPC_BACKEND_HOST);
    const auto both = [&](const std::function<void(Mat)> &change) {
      change(here);
      change(there);
      MUST(KSPSetOperators(s.ksp, here, here));
      MUST(KSPSetOperators(t.ksp, there, there));
      CHECK(Same(RunOf(s.ksp), RunOf(t.ksp)));
      CHECK(IsSent(here));
    };
    both([](Mat) { });
    both([](Mat A) { MUST(MatShift(A, 0.5)); });
    both([](Mat A) { MUST(MatScale(A, 3)); });
    both([&](Mat A) { /* other nonzeros, which PETSc's nonzero state does not tell of */
                      const MatObject B = CreateMat(RandomGraph(H.n, 5, 3), MATAIJ, PETSC_COMM_WORLD);
                      MUST(MatAXPY(A, 0.01, B, DIFFERENT_NONZERO_PATTERN));
    });
    MUST(KSPReset(s.ksp));
    MUST(KSPReset(t.ksp));
    both([](Mat A) { MUST(MatShift(A, 1)); });
  }
}

TEST_CASE("offload: values that the program writes to arrays of its own", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix      H = Poisson(20, 17);
  std::vector<PetscInt> i(H.i.begin(), H.i.end()), j(H.j.begin(), H.j.end()), none(H.n + 1, 0);
  std::vector<double>   a(H.a.begin(), H.a.end()), no_values(1);
  MatObject             A;
  MUST(MatCreateMPIAIJWithSplitArrays(PETSC_COMM_SELF, H.n, H.n, H.n, H.n, i.data(), j.data(), a.data(), none.data(), none.data(),
                                      no_values.data(), A.put()));
  for (PCType type : {PCJACOBI, PCAFSAI, PCSFSAI, PCCMATCH}) {
    CAPTURE(type);
    const Solver s(A, KSPCGFUSED, type, OnDevice());
    Run          before = RunOf(s.ksp);
    CHECK(IsSent(A));
    for (double &value : a) value *= 2;
    MUST(PetscObjectStateIncrease((PetscObject)(Mat)A)); /* and not that of its diagonal block */
    Run after = RunOf(s.ksp);
    for (double &value : after.x) value *= 2;
    CHECK(after.iterations == before.iterations);
    CHECK(VectorDifference(after.x, before.x) <= 1e-12);
  }
}

TEST_CASE("offload: monitors, residuals and solutions of iterations", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix H     = Poisson(20, 20, 10);
  const MatObject  there = CreateMat(H, kThere), here = CreateMat(H, MATAIJ);
  Recorder         mine, theirs;
  const Solver     s(here, KSPCGFUSED, kSameTwins,
                     OnDevice("-finepc_backend host -ksp_cgfused_backend device -pc_afsai_backend device")),
    t(there, KSPCGFUSED, kSameTwins, There(""));
  MUST(KSPMonitorSet(s.ksp, RecordMonitor, &mine, nullptr));
  MUST(KSPMonitorSet(t.ksp, RecordMonitor, &theirs, nullptr));
  CHECK(Same(RunOf(s.ksp), RunOf(t.ksp)));
  REQUIRE(mine.calls.size() == theirs.calls.size());
  for (size_t k = 0; k < mine.calls.size(); k++) {
    CAPTURE(k);
    if (kPetscHasCUDA) CHECK(mine.calls[k].x == theirs.calls[k].x);
    CHECK(VectorDifference(mine.calls[k].x, theirs.calls[k].x) <= 1e-8);
    CHECK(VectorDifference(mine.calls[k].r, theirs.calls[k].r) <= (kPetscHasCUDA ? 1e-12 : 1e-6));
  }
}

/* The host's are those of another path, and so equal to rounding, which with the cycle of cmatch is that of single precision. */
TEST_CASE("offload: gmresfused with monitors and tests of the program", "[offload][gpu]")
{
  NEEDS_DEVICE();
  if (DeviceIsEmulated()) return SkipTest();
  const HostMatrix H = Poisson(20, 20, 10);
  for (const char *more : {"-ksp_gmresfused_step_size 1 ", "-ksp_gmresfused_step_size 2 ", "-ksp_pc_side left ",
                           "-ksp_gmresfused_restart 7 ", "-ksp_initial_guess_nonzero -ksp_gmresfused_restart 7 "})
    for (PCType type : {PCJACOBI, PCSFSAI, PCCMATCH})
      for (const bool tests : {false, true}) {
        CAPTURE(more, type, tests);
        const MatObject here = CreateMat(H, MATAIJ), there = CreateMat(H, MATAIJ);
        Recorder        mine, theirs;
        const auto      record = [&](KSP ksp, Recorder *recorder) {
          recorder->stop_at = 11; /* in the second cycle of some */
          if (tests) MUST(KSPSetConvergenceTest(ksp, RecordTest, recorder, nullptr));
          else MUST(KSPMonitorSet(ksp, RecordMonitor, recorder, nullptr));
        };
        Run expected;
        {
          const Solver host(there, KSPGMRESFUSED, type, std::string("-finepc_backend host ") + more);
          record(host.ksp, &theirs);
          expected = RunOf(host.ksp);
        }
        const Solver s(here, KSPGMRESFUSED, type, OnDevice(more));
        record(s.ksp, &mine);
        for (int solve = 0; solve < 2; solve++) { /* the second one after the program has looked at solutions */
          mine.calls.clear();
          const Run got = RunOf(s.ksp);
          CHECK(got.reason == expected.reason);
          CHECK(got.iterations == expected.iterations);
          CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
          CHECK(Contains(s.View(), "path: device"));
          REQUIRE(mine.calls.size() == theirs.calls.size());
          for (size_t k = 0; k < mine.calls.size(); k++) {
            CAPTURE(k);
            CHECK(VectorDifference(mine.calls[k].x, theirs.calls[k].x) <= (std::string(type) == PCCMATCH ? 1e-5 : 1e-6));
          }
        }
      }
}

TEST_CASE("offload: every preconditioner, below solvers of PETSc, with the vectors of the host", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix H = Poisson(24, 24);
  for (PCType type : {PCAFSAI, PCSFSAI, PCBISAI, PCRRB, PCCMATCH})
    for (const char *solver : {KSPCG, KSPGMRES, KSPGMRESFUSED})
      for (MatType kind : {MATAIJ, MATBAIJ, MATSBAIJ}) {
        const bool is_aij = std::string(kind) == MATAIJ;
        if (std::string(type) == PCRRB && !is_aij) continue;
        if (std::string(type) == PCBISAI && std::string(kind) == MATSBAIJ) continue;
        CAPTURE(type, solver, kind);
        const MatObject A = is_aij ? CreateMat(H, MATAIJ) : InBlocks(H, kind, PETSC_COMM_SELF, 2);
        Run             expected;
        {
          const Solver s(A, solver, type, "-finepc_backend host");
          expected = RunOf(s.ksp);
        }
        CHECK(!IsSent(A));
        const Solver s(A, solver, type, OnDevice());
        const Run    got = RunOf(s.ksp);
        CHECK(IsSent(A));
        CHECK(Contains(s.View(), "the GPU has a copy of the matrix, which the host has"));
        CHECK(got.reason == expected.reason);
        CHECK(std::abs(got.iterations - expected.iterations) <= 1);
        CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
      }
}

TEST_CASE("offload: elasticity with the modes of a near null space, and without any", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const Body   body = DeviceIsEmulated() ? MakeBody({7, 6, 6}) : MakeBody({17, 16, 18});
  MatNullSpace modes;
  VecObject    x = CreateVec((LocalInt)body.x.size(), VECSEQ, 1);
  SetValues(x, body.x);
  MUST(VecSetBlockSize(x, body.k));
  MUST(MatNullSpaceCreateRigidBody(x, &modes));
  for (const bool attach : {false, true}) {
    const MatObject A = CreateMat(body.A, MATAIJ);
    Run             expected;
    MUST(MatSetBlockSize(A, body.k));
    if (attach) MUST(MatSetNearNullSpace(A, modes));
    for (const char *backend : {"host", "device"}) {
      const Solver s(A, KSPCGFUSED, PCCMATCH,
                     std::string(backend) == "host" ? "-finepc_backend host -pc_cmatch_coarse_size 30"
                                                    : OnDevice("-pc_cmatch_coarse_size 30"));
      const Run    got = RunOf(s.ksp);
      CAPTURE(attach, backend);
      CHECK(got.reason == KSP_CONVERGED_RTOL);
      CHECK(Contains(s.View(), attach ? "3 unknowns, 6 modes: the near null space" : "3 unknowns, 3 modes: the constants"));
      if (std::string(backend) == "host") {
        expected = got;
        continue;
      }
      CHECK(IsSent(A));
      CHECK(std::abs(got.iterations - expected.iterations) <= 1);
      CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
    }
  }
  MUST(MatNullSpaceDestroy(&modes));
}

/* The rigid body modes of points that are spread over the ranks are in the near null space of A, or are made of coordinates. */
TEST_CASE("offload: elasticity on several ranks", "[offload][gpu][mpi][two][four]")
{
  NEEDS_DEVICE();
  if (Ranks() > 1 && !WhyNoNCCL().empty()) return SkipTest();
  const Body body = DeviceIsEmulated() ? MakeBody({6, 5, 5}) : MakeBody({17, 16, 18});
  for (const bool attach : {true, false})
    for (const char *options : {"-pc_cmatch_coarse_size 20 ", "-pc_cmatch_coarse_size 20 -pc_cmatch_gather_rows 50 "
                                                              "-pc_cmatch_gather_ranks 0 "}) {
      const MatObject A = Spread(body.A, MATAIJ, [&](LocalInt n, int rank, int size) { return 3 * Even(n / 3, rank, size); });
      PetscInt        first, end;
      MUST(MatGetOwnershipRange(A, &first, &end));
      std::vector<double> mine(body.x.begin() + first, body.x.begin() + end);
      MatNullSpace        modes;
      VecObject           x;
      MUST(MatSetBlockSize(A, 3));
      MUST(MatCreateVecs(A, x.put(), nullptr));
      SetValues(x, mine);
      MUST(VecSetBlockSize(x, 3));
      MUST(MatNullSpaceCreateRigidBody(x, &modes));
      if (attach) MUST(MatSetNearNullSpace(A, modes));
      MUST(MatNullSpaceDestroy(&modes));
      Run expected;
      for (const char *backend : {"host", "device"}) {
        const bool   host = std::string(backend) == "host";
        const Solver s(A, KSPCG, PCCMATCH,
                       (host ? "-finepc_backend host " : OnDevice(DeviceIsEmulated() ? "-pc_cmatch_communication mpi " : "")) +
                         options);
        PC           pc;
        CAPTURE(attach, options, backend);
        MUST(KSPGetPC(s.ksp, &pc));
        if (!attach) MUST(PCSetCoordinates(pc, 3, (PetscInt)mine.size() / 3, mine.data()));
        const Run         got  = RunOf(s.ksp);
        const std::string view = s.View();
        CHECK(got.reason == KSP_CONVERGED_RTOL);
        if (!Rank())
          CHECK(Contains(view, attach ? "6 modes: the near null space" : "6 modes: rigid body modes of the coordinates"));
        if (host) {
          expected = got;
          continue;
        }
        CHECK(IsSent(A));
        CHECK(std::abs(got.iterations - expected.iterations) <= 1);
        CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
      }
    }
}

TEST_CASE("offload: a system that is large enough", "[offload][gpu]")
{
  NEEDS_DEVICE();
  if (Ranks() > 1) return SkipTest(); /* where ranks with other matrices may share the GPU, none is sent by itself */
  const bool      quick = DeviceIsEmulated();
  const MatObject A     = CreateMat(Poisson(40, 36, 35), MATAIJ);
  const Solver    s(A, KSPCGFUSED, quick ? PCJACOBI : PCCMATCH,
                    std::string("-finepc_backend auto") + (quick ? " -ksp_cgfused_path graph -ksp_rtol 0.5" : ""));
  const Run       got = RunOf(s.ksp);
  CHECK(got.reason == KSP_CONVERGED_RTOL);
  CHECK(IsSent(A));
  PetscLogDouble bytes, in_all;
  MUST(MatGetSentBytes(A, &bytes, &in_all));
  CHECK(in_all == bytes);
  CHECK(bytes > 50400 * 7 * 12 * 0.9);
}

TEST_CASE("offload: a matrix of one rank stays on the host where others may share its GPU, and the view says so",
          "[offload][gpu][mpi][two]")
{
  NEEDS_DEVICE();
  int devices;
  MUST(DeviceCount_CUDA(&devices));
  if (Ranks() <= devices) return SkipTest();
  const MatObject A = CreateMat(Poisson(150, 140), MATAIJ);
  const Solver    s(A, KSPCGFUSED, PCJACOBI, "-finepc_backend auto -ksp_rtol 0.5");
  CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
  CHECK(!IsSent(A));
  CHECK(Contains(s.View(), "on the host: ranks with other matrices may share the GPU\n"));
}

TEST_CASE("offload: auto looks at a solve, which goes on as if it had not, or ends there", "[offload][auto][gpu]")
{
  NEEDS_DEVICE();
  const MatObject A = CreateMat(Box(60, 60, 3), MATAIJ);
  for (const std::string path : {"graph", "resident"}) {
    if (DeviceIsEmulated() && path != "graph") continue;
    CAPTURE(path);
    const std::string options = OnDevice("-ksp_norm_type unpreconditioned -ksp_cgfused_path " + path);
    const Solver      one(A, KSPCGFUSED, PCJACOBI, options), looks(A, KSPCGFUSED, PCAUTO, options);
    PC_AUTO *const    s = (PC_AUTO *)PCOf(looks.ksp)->data;
    s->given            = {Candidate("jacobi", "-pc_type jacobi"), Candidate("none", "-pc_type none", 100000, 1, 1e9)};
    const Run alone = RunOf(one.ksp), looked_at = RunOf(looks.ksp);
    CHECK(alone.iterations > 34);
    CHECK(SameRuns(looked_at, alone));
    CHECK(s->records[1].set_ups == 0);
    const Solver   leaves(A, KSPCGFUSED, PCAUTO, options);
    PC_AUTO *const left = (PC_AUTO *)PCOf(leaves.ksp)->data;
    left->given    = {Candidate("jacobi", "-pc_type jacobi", 100000, 1000), Candidate("sfsai", "-pc_type sfsai", 100000, 1e-3)};
    const Run both = RunOf(leaves.ksp);
    CHECK(both.reason > 0);
    CHECK(left->records[0].its == 32);
    CHECK(left->records[1].its > 0);
    CHECK(both.iterations == 32 + left->records[1].its);
    CHECK(VectorDifference(both.x, alone.x) <= 1e-5);
    CHECK(Contains(leaves.View(), path));
  }
}

TEST_CASE("offload: gmresfused and rrbcg", "[offload][gpu]")
{
  NEEDS_DEVICE();
  struct Case {
    const char *solver, *type, *more;
  };
  for (const Case &c :
       {Case{KSPGMRESFUSED, PCNONE, ""}, Case{KSPGMRESFUSED, PCJACOBI, "-ksp_monitor ascii:/dev/null "},
        Case{KSPGMRESFUSED, PCPBJACOBI, ""}, Case{KSPGMRESFUSED, PCAFSAI, ""}, Case{KSPGMRESFUSED, PCBISAI, "-ksp_pc_side left "},
        Case{KSPGMRESFUSED, PCCMATCH, "-ksp_gmresfused_path device "}, Case{KSPGMRESFUSED, PCSFSAI, "-ksp_initial_guess_nonzero "},
        Case{KSPRRBCG, PCRRB, ""}, Case{KSPRRBCG, PCRRB, "-ksp_initial_guess_nonzero "}}) {
    CAPTURE(c.solver, c.type, c.more);
    if (DeviceIsEmulated() && std::string(c.solver) == KSPGMRESFUSED) continue;
    const HostMatrix H     = DeviceIsEmulated() ? Poisson(20, 17) : Poisson(60, 50);
    const MatObject  there = CreateMat(H, kThere), here = CreateMat(H, MATAIJ);
    const Solver     s(here, c.solver, c.type, OnDevice(c.more)), t(there, c.solver, c.type, There(OnDevice(c.more)));
    s.Use(FINEPC_BACKEND_DEVICE);
    if (!kPetscHasCUDA) t.Use(FINEPC_BACKEND_HOST);
    const auto same = [&] {
      const Run got = RunOf(s.ksp), expected = RunOf(t.ksp);
      CHECK(got.reason == expected.reason);
      CHECK(std::abs(got.iterations - expected.iterations) <= (kPetscHasCUDA ? 0 : 1));
      CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
    };
    same();
    CHECK(IsSent(here));
    same();
    if (std::string(c.solver) == KSPGMRESFUSED) CHECK(Contains(s.View(), "which are sent to the GPU"));
    const MatObject other = CreateMat(WithEntry(H, 0, 0, 6), MATAIJ);
    MUST(MatCopy(other, here, SAME_NONZERO_PATTERN));
    MUST(MatCopy(other, there, SAME_NONZERO_PATTERN));
    same();
  }
}

TEST_CASE("offload: vectors of the host with a matrix on the GPU", "[offload][gpu][mpi][two]")
{
  NEEDS_DEVICE();
  if (!kPetscHasCUDA) return SkipTest();
  struct Case {
    const char *solver, *type, *more;
  };
  const std::vector<Case> cases = {
    {KSPCGFUSED, PCNONE, ""},
    {KSPCGFUSED, PCJACOBI, "-ksp_norm_type natural "},
    {KSPCGFUSED, PCAFSAI, "-ksp_initial_guess_nonzero "},
    {KSPCGFUSED, PCCMATCH, "-ksp_cgfused_path general "},
    {KSPGMRESFUSED, PCJACOBI, "-ksp_pc_side left "},
    {KSPGMRESFUSED, PCBISAI, ""},
    {KSPGMRESFUSED, PCAFSAI, "-ksp_initial_guess_nonzero -ksp_gmresfused_path general "},
    {KSPRRBCG, PCRRB, ""},
    {KSPRRBCG, PCRRB, "-ksp_initial_guess_nonzero "},
  };
  const HostMatrix H    = Poisson(60, 50);
  const MatObject  here = CreateMat(H, MATAIJ, PETSC_COMM_WORLD), there = CreateMat(H, MATAIJCUSPARSE, PETSC_COMM_WORLD);
  for (const Case &c : cases)
    for (VecType type : {VECSTANDARD, VECMPI}) {
      if (Ranks() > 1 && std::string(c.solver) == KSPRRBCG) continue;
      CAPTURE(c.solver, c.type, c.more, type);
      const std::string all = std::string("-ksp_rtol 1e-8 -ksp_gmres_restart 100 ") + c.more;
      const Solver      near(there, c.solver, c.type, all), far(there, c.solver, c.type, all);
      VecObject         b, x, of[2] = {RightVec(there, 3), RightVec(there, 4)};
      MUST(VecCreate(PETSC_COMM_WORLD, b.put()));
      PetscInt n, N;
      MUST(MatGetLocalSize(there, &n, nullptr));
      MUST(MatGetSize(there, &N, nullptr));
      MUST(VecSetSizes(b, n, N));
      MUST(VecSetType(b, type));
      MUST(VecDuplicate(b, x.put()));
      for (int k = 0; k < 3; k++) { /* the host writes other numbers each time */
        CAPTURE(k);
        const VecObject b_there = RightVec(there, 5 + k), x_there = RightVec(there, 8 + k);
        for (const auto &pair : {std::pair<Vec, Vec>{b_there, b}, std::pair<Vec, Vec>{x_there, x}}) {
          const PetscScalar *from;
          PetscScalar       *to;
          MUST(VecGetArrayRead(pair.first, &from));
          MUST(VecGetArrayWrite(pair.second, &to));
          MUST(PetscArraycpy(to, from, n));
          MUST(VecRestoreArrayWrite(pair.second, &to));
          MUST(VecRestoreArrayRead(pair.first, &from));
        }
        const Run expected = RunOf(near.ksp, b_there, x_there), got = RunOf(far.ksp, b, x);
        CHECK(got.reason > 0);
        CHECK(SameRuns(got, expected));
        CHECK(ResidualOf(here, b, x) <= 1e-6);
        Vec solution;
        MUST(KSPGetSolution(far.ksp, &solution));
        CHECK(solution == (Vec)x);
      }
      const Run moved = RunOf(far.ksp, of[0], of[1]); /* and vectors of the GPU again */
      CHECK(SameRuns(moved, RunOf(near.ksp, of[0], RightVec(there, 4))));
    }
  for (const char *solver : {KSPCGFUSED, KSPGMRESFUSED}) {
    CAPTURE(solver);
    const std::string inner =
      std::string("-redistribute_ksp_type ") + solver + " -redistribute_ksp_rtol 1e-9 -redistribute_pc_type ";
    const Solver    s(there, KSPFGMRES, PCREDISTRIBUTE, inner + "afsai");
    const VecObject b = RightVec(there, 1), x = RightVec(there, 2);
    CHECK(RunOf(s.ksp, b, x).reason == KSP_CONVERGED_RTOL);
    CHECK(RunOf(s.ksp, b, x).iterations <= 2);
  }
  const Solver s(there, KSPCGFUSED, PCAFSAI, "-ksp_rtol 1e-8");
  PetscInt     n, N;
  MatObject    B, X;
  MUST(MatGetLocalSize(there, &n, nullptr));
  MUST(MatGetSize(there, &N, nullptr));
  MUST(MatCreateDense(PETSC_COMM_WORLD, n, PETSC_DECIDE, N, 3, nullptr, B.put()));
  MUST(MatSetRandom(B, nullptr));
  MUST(MatDuplicate(B, MAT_DO_NOT_COPY_VALUES, X.put()));
  for (int k = 0; k < 2; k++) {
    MUST(KSPMatSolve(s.ksp, B, X));
    for (PetscInt c = 0; c < 3; c++) {
      Vec b, x;
      MUST(MatDenseGetColumnVecRead(B, c, &b));
      MUST(MatDenseGetColumnVecRead(X, c, &x));
      CHECK(ResidualOf(here, b, x) <= 1e-6);
      MUST(MatDenseRestoreColumnVecRead(X, c, &x));
      MUST(MatDenseRestoreColumnVecRead(B, c, &b));
    }
    MUST(MatScale(B, 3)); /* on the host */
  }
}

/* PETSc's own product takes a vector of the host for what it was at an earlier one. */
TEST_CASE("offload: products of a matrix on the GPU with vectors of the host", "[offload][gpu][mpi][two]")
{
  NEEDS_DEVICE();
  if (!kPetscHasCUDA) return SkipTest();
  const HostMatrix H    = RandomStencil(31, 29, 1, false, 3);
  const MatObject  here = CreateMat(H, MATAIJ, PETSC_COMM_WORLD), there = CreateMat(H, MATAIJCUSPARSE, PETSC_COMM_WORLD);
  const VecObject  x = RightVec(here, 1), y = RightVec(here, 2), expected = RightVec(here, 3);
  for (const PetscBool transpose : {PETSC_FALSE, PETSC_TRUE})
    for (int k = 0; k < 3; k++) {
      CAPTURE(transpose, k);
      PetscReal norm, difference;
      MUST(MatMultAnywhere(there, transpose, x, y));
      MUST((transpose ? MatMultTranspose : MatMult)(here, x, expected));
      MUST(VecNorm(expected, NORM_2, &norm));
      MUST(VecAXPY(expected, -1, y));
      MUST(VecNorm(expected, NORM_2, &difference));
      CHECK(difference <= 1e-12 * norm);
      MUST(VecScale(x, -2));
    }
}

TEST_CASE("offload: gmresfused decides on the GPU with cmatch, too", "[offload][gpu]")
{
  NEEDS_DEVICE();
  if (DeviceIsEmulated()) return SkipTest();
  const MatObject A = CreateMat(Poisson(60, 50), MATAIJ);
  const Solver    s(A, KSPGMRESFUSED, PCCMATCH, OnDevice());
  CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
  CHECK(Contains(s.View(), "path: device"));
}

/* B and X of the host go to the GPU by columns, whose iterates are those of KSPSolve(), up to rounding. */
TEST_CASE("offload: several right-hand sides at once", "[offload][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  if (DeviceIsEmulated()) return SkipTest(); /* it has no kernels for columns */
  constexpr PetscInt columns = 5, more = 3;
  const MatObject    A = CreateMat(Box(30, 24, 18), MATAIJ);
  PetscInt           n;
  MUST(MatGetLocalSize(A, &n, nullptr));
  for (PCType type : {PCNONE, PCJACOBI, PCAFSAI, PCCMATCH})
    for (const bool guess : {false, true}) {
      CAPTURE(type, guess);
      const Solver s(A, KSPCGFUSED, type, OnDevice("-ksp_cgfused_path graph "));
      MatObject    B, X;
      PetscScalar *array;
      MUST(KSPSetInitialGuessNonzero(s.ksp, (PetscBool)guess));
      for (MatObject *M : {&B, &X}) {
        MUST(MatCreate(PETSC_COMM_SELF, M->put()));
        MUST(MatSetSizes(*M, n, columns, n, columns));
        MUST(MatSetType(*M, MATSEQDENSE));
        MUST(MatDenseSetLDA(*M, n + more));
        MUST(MatSetUp(*M));
        MUST(MatDenseGetArrayWrite(*M, &array));
        for (PetscInt c = 0; c < columns; c++)
          for (PetscInt i = 0; i < n + more; i++) array[c * (n + more) + i] = i < n ? std::sin((c + 1.) * i + (M == &X)) : 17;
        MUST(MatDenseRestoreArrayWrite(*M, &array));
        MUST(MatAssemblyBegin(*M, MAT_FINAL_ASSEMBLY));
        MUST(MatAssemblyEnd(*M, MAT_FINAL_ASSEMBLY));
      }
      std::vector<PetscInt>  expected_its;
      std::vector<VecObject> expected;
      for (PetscInt c = 0; c < columns; c++) {
        VecObject x = RightVec(A, 1);
        Vec       b, from;
        MUST(MatDenseGetColumnVecRead(X, c, &from));
        MUST(VecCopy(from, x));
        MUST(MatDenseRestoreColumnVecRead(X, c, &from));
        MUST(MatDenseGetColumnVecRead(B, c, &b));
        MUST(KSPSolve(s.ksp, b, x));
        MUST(MatDenseRestoreColumnVecRead(B, c, &b));
        expected_its.push_back(IterationsOf(s.ksp));
        expected.push_back(std::move(x));
      }
      MUST(KSPMatSolve(s.ksp, B, X));
      CHECK(Contains(s.View(), "5 right-hand sides, up to 8 together"));
      const PetscInt           *its;
      const KSPConvergedReason *reasons;
      MUST(KSPCGFusedGetColumns(s.ksp, nullptr, &its, &reasons));
      const PetscScalar *x;
      MUST(MatDenseGetArrayRead(X, &x));
      for (PetscInt c = 0; c < columns; c++) {
        const std::vector<double> got(x + c * (n + more), x + c * (n + more) + n);
        CHECK(reasons[c] == KSP_CONVERGED_RTOL);
        CHECK(std::abs(its[c] - expected_its[c]) <= 1);
        CHECK(VectorDifference(got, Values(expected[c])) <= 1e-6);
        CHECK(x[c * (n + more) + n] == 17);
      }
      MUST(MatDenseRestoreArrayRead(X, &x));
    }
}

TEST_CASE("offload: a solver whose matrix moves to the GPU and back", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix H     = Box(30, 20, 12);
  const MatObject  there = CreateMat(H, kThere), here = CreateMat(H, MATAIJ);
  for (PCType type : {PCJACOBI, PCAFSAI, PCCMATCH}) {
    CAPTURE(type);
    const Solver s(here, KSPCGFUSED, type, OnDevice());
    const Run    first = RunOf(s.ksp);
    for (Mat A : {(Mat)there, (Mat)here, (Mat)there}) {
      MUST(KSPSetOperators(s.ksp, A, A));
      const Run run = RunOf(s.ksp);
      CAPTURE(s.View());
      CHECK(SameRuns(run, first));
    }
  }
}

TEST_CASE("offload: the objective of a solve that ends early", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix H     = Box(30, 20, 12);
  const MatObject  there = CreateMat(H, kThere), here = CreateMat(H, MATAIJ);
  double           objectives[2];
  for (Mat A : {(Mat)there, (Mat)here}) {
    const std::string options = OnDevice("-ksp_max_it 3");
    const Solver      s(A, KSPCGFUSED, kSameTwins, A == (Mat)there ? There(options) : options);
    MUST(KSPCGSetRadius(s.ksp, 0));
    CHECK(RunOf(s.ksp).reason == KSP_DIVERGED_ITS);
    MUST(KSPCGGetObjFcn(s.ksp, &objectives[A == here]));
  }
  CHECK(std::abs(objectives[0] - objectives[1]) <= 1e-10 * std::abs(objectives[0]));
}

TEST_CASE("offload: vectors that go to the GPU in each application are in the log and in the view", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const char      *staging = "each application sends a vector to the GPU and fetches another: 9216"; /* bytes of 2 * 576 entries */
  const MatObject  A       = CreateMat(Poisson(24, 24), MATAIJ);
  const auto       events  = [](const Solver &s) { return CountEvents({"FinePCSendVec", "PCApply"}, [&] { RunOf(s.ksp); }); };
  std::vector<int> counts;
  {
    const Solver s(A, KSPCG, PCAFSAI, OnDevice());
    MUST(KSPSetUp(s.ksp));
    CHECK(!Contains(s.View(), "each application"));
    counts = events(s);
    CHECK(counts[1] > 5);
    CHECK(counts[0] == 2 * counts[1]);
    CHECK(Contains(s.View(), staging));
  }
  const Solver s(A, KSPCGFUSED, PCAFSAI, OnDevice());
  CHECK(events(s)[0] == 2); /* b and x */
  CHECK(!Contains(s.View(), "each application"));
}

TEST_CASE("offload: NaN in the matrix and in b", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const double     nan = std::numeric_limits<double>::quiet_NaN();
  const HostMatrix H   = Poisson(12, 9);
  for (const char *solver : {KSPCGFUSED, KSPCG, KSPGMRES})
    for (PCType type : {PCJACOBI, PCAFSAI, PCSFSAI, PCCMATCH})
      for (const LocalInt column : {5, 6}) {                                              /* a diagonal entry and another one */
        if (std::string(type) == PCJACOBI && std::string(solver) != KSPCGFUSED) continue; /* then nothing is finepc's */
        CAPTURE(solver, type, column);
        const MatObject good = CreateMat(H, MATAIJ), bad = CreateMat(WithEntry(H, 5, column, nan), MATAIJ);
        const auto      runs = [&](const std::string &options) {
          const MatObject  A = CreateMat(H, MATAIJ);
          const Solver     s(A, solver, type, options);
          const VecObject  b = RightVec(A, 2);
          std::vector<Run> all;
          MUST(VecSetValue(b, 7, nan, INSERT_VALUES));
          MUST(VecAssemblyBegin(b));
          MUST(VecAssemblyEnd(b));
          all.push_back(RunOf(s.ksp));
          all.push_back(RunOf(s.ksp, b));
          MUST(MatCopy(bad, A, SAME_NONZERO_PATTERN));
          MUST(KSPSetOperators(s.ksp, A, A));
          all.push_back(RunOf(s.ksp));
          MUST(MatCopy(good, A, SAME_NONZERO_PATTERN));
          MUST(KSPSetOperators(s.ksp, A, A));
          all.push_back(RunOf(s.ksp));
          CHECK(IsSent(A) == Contains(options, "device"));
          return all;
        };
        const std::vector<Run> expected = runs("-finepc_backend host"), got = runs(OnDevice());
        for (size_t k = 0; k < got.size(); k++) {
          CAPTURE(k);
          CHECK(got[k].reason == expected[k].reason);
          CHECK((got[k].reason > 0) == (k == 0 || k == 3));
        }
        CHECK(SameRuns(got[3], got[0]));
      }
}

/* A monitor that solves with another solver. */
static PetscErrorCode SolveOther(KSP, PetscInt, PetscReal, void *other)
{
  PetscFunctionBegin;
  RunOf((KSP)other);
  PetscFunctionReturn(PETSC_SUCCESS);
}

TEST_CASE("offload: two solvers at once, of one matrix and of two", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const MatObject A = CreateMat(Poisson(10, 9), MATAIJ), B = CreateMat(RandomGraph(90, 5, 3), MATAIJ);
  for (Mat other : {(Mat)A, (Mat)B})
    for (PCType type : {PCJACOBI, PCAFSAI, PCCMATCH}) {
      CAPTURE(other == (Mat)B, type);
      const Solver s(A, KSPCGFUSED, type, OnDevice()), t(other, KSPCGFUSED, PCSFSAI, OnDevice()),
        u(other, KSPCG, PCAFSAI, OnDevice());
      s.Use(FINEPC_BACKEND_DEVICE);
      t.Use(FINEPC_BACKEND_DEVICE);
      const Run of_s = RunOf(s.ksp), of_t = RunOf(t.ksp), of_u = RunOf(u.ksp);
      for (const Run &run : {of_s, of_t, of_u}) CHECK(run.reason == KSP_CONVERGED_RTOL);
      CHECK(IsSent(A));
      CHECK(IsSent(other));
      for (const Solver *inner : {&t, &u}) {
        MUST(KSPMonitorSet(s.ksp, SolveOther, (KSP)inner->ksp, nullptr));
        const Run run = RunOf(s.ksp); /* with a monitor of the program the host asks for each iteration */
        CHECK(run.iterations == of_s.iterations);
        CHECK(VectorDifference(run.x, of_s.x) <= 1e-10);
        MUST(KSPMonitorCancel(s.ksp));
      }
      CHECK(SameRuns(RunOf(t.ksp), of_t));
      CHECK(SameRuns(RunOf(u.ksp), of_u));
      CHECK(SameRuns(RunOf(s.ksp), of_s));
    }
}

TEST_CASE("offload: inside of PCBJACOBI, PCASM and PCFIELDSPLIT", "[offload][gpu]")
{
  NEEDS_DEVICE();
  struct Case {
    PCType      outer;
    const char *options;
    PetscErrorCode (*get)(PC, PetscInt *, KSP **);
  };
  const auto of_blocks   = [](PC pc, PetscInt *n, KSP **sub) { return PCBJacobiGetSubKSP(pc, n, nullptr, sub); };
  const auto of_overlaps = [](PC pc, PetscInt *n, KSP **sub) { return PCASMGetSubKSP(pc, n, nullptr, sub); };
  const auto of_fields   = [](PC pc, PetscInt *n, KSP **sub) { return PCFieldSplitGetSubKSP(pc, n, sub); };
  for (const Case &c : {Case{PCBJACOBI, "", of_blocks}, Case{PCBJACOBI, "-pc_bjacobi_blocks 3 ", of_blocks},
                        Case{PCASM, "-pc_asm_blocks 3 -pc_asm_type basic ", of_overlaps},
                        Case{PCFIELDSPLIT, "-pc_fieldsplit_block_size 2 -pc_fieldsplit_type symmetric_multiplicative ", of_fields}})
    for (const char *solver : {KSPCG, KSPCGFUSED})
      for (PCType type : {PCAFSAI, PCCMATCH}) {
        CAPTURE(c.outer, c.options, solver, type);
        const std::string inner   = std::string("pc_type ") + type;
        const std::string options = c.options + ("-sub_" + inner) + " -fieldsplit_0_" + inner + " -fieldsplit_1_" + inner + " ";
        const auto        run     = [&](const std::string &backend) {
          const MatObject A = CreateMat(Poisson(20, 18), MATAIJ);
          const Solver    s(A, solver, c.outer, options + backend);
          Run             got = RunOf(s.ksp);
          PC              pc;
          KSP            *sub;
          PetscInt        n;
          MUST(KSPGetPC(s.ksp, &pc));
          MUST(c.get(pc, &n, &sub));
          CHECK(n > 0);
          for (PetscInt k = 0; k < n; k++) {
            Mat block;
            MUST(KSPGetOperators(sub[k], nullptr, &block));
            CHECK(IsSent(block) == Contains(backend, "device"));
            MUST(KSPGetPC(sub[k], &pc));
            CHECK(std::string(((PetscObject)pc)->type_name) == type);
          }
          if (std::string(c.outer) == PCFIELDSPLIT) MUST(PetscFree(sub));
          CHECK(SameRuns(RunOf(s.ksp), got));
          return got;
        };
        const Run expected = run("-finepc_backend host"), got = run(OnDevice());
        CHECK(got.reason == KSP_CONVERGED_RTOL);
        CHECK(std::abs(got.iterations - expected.iterations) <= 1);
        CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
      }
}

TEST_CASE("offload: fused solvers of matrices of blocks", "[offload][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (MatType kind : {MATBAIJ, MATSBAIJ})
    for (const char *solver : {KSPCGFUSED, KSPGMRESFUSED})
      for (PCType type : {PCJACOBI, PCAFSAI, PCCMATCH}) {
        CAPTURE(kind, solver, type);
        const MatObject A = InBlocks(Poisson(24, 24), kind, PETSC_COMM_SELF, 2);
        Run             expected;
        {
          const Solver s(A, solver, type, "-finepc_backend host");
          expected = RunOf(s.ksp);
        }
        const Solver s(A, solver, type, OnDevice());
        const auto   check = [&](const Run &got) {
          CHECK(got.reason == expected.reason);
          CHECK(std::abs(got.iterations - expected.iterations) <= 1);
          CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
        };
        check(RunOf(s.ksp));
        CHECK(IsSent(A));
        if (DeviceIsEmulated() && std::string(solver) == KSPGMRESFUSED) continue; /* the host decides */
        CHECK(Contains(s.View(), "the single entries of its blocks take"));
        CHECK(SameRuns(RunOf(s.ksp), RunOf(s.ksp))); /* with the copies that are there */
        MUST(MatScale(A, 2));
        for (double &value : expected.x) value /= 2;
        check(RunOf(s.ksp));
        const MatObject rows = CreateMat(Poisson(24, 24), MATAIJ); /* of the same size, and blocks again */
        for (Mat next : {(Mat)rows, (Mat)A}) {
          MUST(KSPSetOperators(s.ksp, next, next));
          const Run run = RunOf(s.ksp);
          CHECK(run.reason == expected.reason);
          CHECK(Contains(s.View(), "the single entries of its blocks take") == (next == (Mat)A));
          if (next == (Mat)A) check(run);
        }
      }
}

TEST_CASE("offload: resets give back the memory of the GPU", "[offload][gpu]")
{
  NEEDS_DEVICE();
  if (!DeviceIsEmulated()) return SkipTest(); /* others use a GPU, too, and its driver counts in large pieces */
  const HostMatrix H = Poisson(12, 12);
  for (const char *solver : {KSPCG, KSPCGFUSED, KSPGMRESFUSED, KSPRRBCG})
    for (PCType type : {PCJACOBI, PCAFSAI, PCSFSAI, PCBISAI, PCRRB, PCCMATCH})
      for (MatType kind : {MATAIJ, MATBAIJ}) {
        const bool is_aij = std::string(kind) == MATAIJ, is_rrb = std::string(type) == PCRRB;
        if ((std::string(solver) == KSPRRBCG && !is_rrb) || (is_rrb && !is_aij)) continue;
        CAPTURE(solver, type, kind);
        const auto matrix = [&] { return is_aij ? CreateMat(H, MATAIJ) : InBlocks(H, kind, PETSC_COMM_SELF, 2); };
        PC         pc;
        {
          const MatObject other = matrix(); /* for what the process keeps */
          const Solver    first(other, solver, type, OnDevice());
          RunOf(first.ksp);
        }
        const double    before = DeviceBytesInUse();
        const MatObject A      = matrix();
        {
          const Solver s(A, solver, type, OnDevice());
          const Run    run = RunOf(s.ksp);
          CHECK(run.reason == KSP_CONVERGED_RTOL);
          MUST(KSPReset(s.ksp));
          CHECK(DeviceBytesInUse() == before);
          MUST(KSPSetOperators(s.ksp, A, A));
          MUST(KSPSetUp(s.ksp));
          MUST(KSPReset(s.ksp));
          CHECK(DeviceBytesInUse() == before);
          MUST(KSPSetOperators(s.ksp, A, A));
          CHECK(SameRuns(RunOf(s.ksp), run));
          MUST(KSPGetPC(s.ksp, &pc));
          MUST(PCReset(pc));
          if (std::string(solver) == KSPCG) CHECK(DeviceBytesInUse() == before);
        }
        CHECK(DeviceBytesInUse() == before);
      }
}

TEST_CASE("offload: what a reset gives back is what nobody uses", "[offload][gpu]")
{
  NEEDS_DEVICE();
  const MatObject A = CreateMat(Poisson(24, 24), MATMPIAIJ, PETSC_COMM_SELF),
                  B = CreateMat(RandomGraph(576, 5, 3), MATMPIAIJ, PETSC_COMM_SELF);
  Mat            block;
  PetscLogDouble bytes, in_all;
  const auto     sent = [&] {
    MUST(MatGetSentBytes(A, &bytes, &in_all));
    return bytes > 0;
  };
  MUST(MatGetDiagonalBlock(A, &block));
  for (Mat other : {(Mat)A, block}) /* a copy that is used by way of both is one */
    for (const bool other_first : {false, true}) {
      CAPTURE(other == block, other_first);
      const Solver s(A, KSPCGFUSED, PCJACOBI, OnDevice()), t(other, KSPCG, PCAFSAI, OnDevice());
      s.Use(FINEPC_BACKEND_DEVICE);
      t.Use(FINEPC_BACKEND_DEVICE);
      CHECK(!sent());
      const Run of_s = RunOf(s.ksp), of_t = RunOf(t.ksp);
      CHECK(sent());
      const Solver &first = other_first ? t : s, &second = other_first ? s : t;
      MUST(KSPReset(first.ksp));
      CHECK(sent());
      CHECK(SameRuns(RunOf(second.ksp), other_first ? of_s : of_t));
      MUST(KSPSetOperators(second.ksp, B, B)); /* until it is used */
      MUST(KSPReset(second.ksp));
      CHECK(!sent());
      CHECK(IsSent(A));
    }
  const Solver s(A, KSPCGFUSED, PCAFSAI, OnDevice());
  CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
  CHECK(sent());
  MUST(KSPReset(s.ksp));
  MUST(KSPSetOperators(s.ksp, B, B));
  CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
  CHECK(!sent());
  MUST(KSPSetType(s.ksp, KSPCG));
  MUST(MatGetSentBytes(B, &bytes, &in_all));
  CHECK(bytes > 0); /* the preconditioner has it */
}
