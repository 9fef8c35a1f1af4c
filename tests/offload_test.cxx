/* Matrices and vectors of the host whose solves run on the GPU. */
#include <finepc.h>

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
  return VectorDifference(got.x, expected.x) <= 1e-6;
}

/* Twins of the adaptive factor choose other patterns among equals, so that iterates are compared with Jacobi's. */
constexpr const char *kSameTwins = kPetscHasCUDA ? PCAFSAI : PCJACOBI;

/* The emulator's threads take turns. */
HostMatrix Box(LocalInt nx, LocalInt ny, LocalInt nz)
{
  return DeviceIsEmulated() ? Poisson(nx / 3, ny / 3, nz / 3) : Poisson(nx, ny, nz);
}

/* A solver of A with these options, all of which are found when it is set up. */
struct Solver {
  Options   options;
  KSPObject ksp;

  Solver(Mat A, const char ksp_type[], const char pc_type[], const std::string &text) : options(text)
  {
    PC pc;
    MUST(KSPCreate(PetscObjectComm((PetscObject)A), ksp.put()));
    MUST(KSPSetOperators(ksp, A, A));
    MUST(KSPSetType(ksp, ksp_type));
    MUST(KSPGetPC(ksp, &pc));
    MUST(PCSetType(pc, pc_type));
    MUST(KSPSetTolerances(ksp, kPetscHasCUDA ? 1e-8 : 1e-12, PETSC_CURRENT, PETSC_CURRENT, 2000)); /* for solutions of twins */
    MUST(KSPSetFromOptions(ksp));
  }
  std::string View() const { return ViewText(ksp); }

  /* For one of two solvers that are there at a time: -finepc_backend is looked for in the options of the last one. */
  void Use(FinePCBackend backend) const
  {
    PC pc;
    MUST(KSPGetPC(ksp, &pc));
    MUST(PCFinePCSetBackend(pc, backend));
    MUST(KSPFinePCSetBackend(ksp, backend));
  }
};

bool IsSent(Mat A)
{
  PetscBool sent;
  MUST(MatIsOffloaded(A, &sent));
  return sent;
}

MatObject InBlocks(const HostMatrix &H, MatType type, MPI_Comm comm, PetscInt bs)
{
  const MatObject A = CreateMat(H, MATAIJ, comm);
  MatObject       B;
  MUST(MatSetBlockSize(A, bs));
  MUST(MatSetOption(A, MAT_SYMMETRIC, PETSC_TRUE));
  MUST(MatConvert(A, type, MAT_INITIAL_MATRIX, B.put()));
  return B;
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
    const MatObject there = CreateMat(Poisson(30, 30, 5), kThere, PETSC_COMM_WORLD),
                    here  = CreateMat(Poisson(30, 30, 5), MATAIJ, PETSC_COMM_WORLD);
    Solver s(here, KSPCGFUSED, type, OnDevice()), t(there, KSPCGFUSED, type, There(OnDevice()));
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
    both([](Mat A) { /* other nonzeros, which PETSc's nonzero state does not tell of */
                     const MatObject B = CreateMat(RandomGraph(4500, 5, 3), MATAIJ, PETSC_COMM_WORLD);
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
  size_t bytes;
  MUST(MatGetSentBytes(A, &bytes));
  CHECK(bytes > 50400 * 7 * 12 * 0.9);
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

TEST_CASE("offload: gmresfused decides on the GPU with cmatch, too", "[offload][gpu]")
{
  NEEDS_DEVICE();
  if (DeviceIsEmulated()) return SkipTest();
  const MatObject A = CreateMat(Poisson(60, 50), MATAIJ);
  const Solver    s(A, KSPGMRESFUSED, PCCMATCH, OnDevice());
  CHECK(RunOf(s.ksp).reason == KSP_CONVERGED_RTOL);
  CHECK(Contains(s.View(), "path: device"));
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
