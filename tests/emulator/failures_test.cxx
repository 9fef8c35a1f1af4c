/* GPUs that cannot be used: what a program is told, and that the host does the work unless the program has insisted. */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "bodies.h"
#include "compare.h"
#include "failing.h"
#include "matrices.h"
#include "pc_support.h"
#include "recorder.h"
#include "spread.h"
#include "sparse/offload.h"

#include "cuda_runtime.h"

namespace
{

/* What is wrong, and what is said. */
struct Failure {
  const char           *says;
  std::function<void()> begin;
};

const Failure kFailures[] = {
  {"no GPU was found", [] { emulator::pretended.found = cudaErrorNoDevice; }},
  {"no GPU was found, nor an NVIDIA driver", [] { emulator::pretended.found = cudaErrorInsufficientDriver; }},
  {"the NVIDIA driver is for CUDA 11.4, and this finepc was built with 13.0",
   [] {
     emulator::pretended.found  = cudaErrorInsufficientDriver;
     emulator::pretended.driver = 11040;
   }},
  {"the GPU has compute capability 7.0, and this finepc was built for 8.0 and later",
   [] { setenv("FINEPC_EMULATOR_CAPABILITY", "70", 1); }},
  {"the GPU cannot be used: an error of the emulator", [] { emulator::pretended.used = cudaErrorDevicesUnavailable; }},
};

struct Failing {
  explicit Failing(const Failure &failure) { failure.begin(); }
  ~Failing()
  {
    emulator::pretended = {};
    unsetenv("FINEPC_EMULATOR_CAPABILITY");
  }
};

/* Collects what PETSc writes to stderr, for a scope. */
class Warnings {
public:
  Warnings() : stderr_(PETSC_STDERR) { PETSC_STDERR = open_memstream(&memory_, &size_); }
  ~Warnings()
  {
    std::fclose(PETSC_STDERR);
    PETSC_STDERR = stderr_;
    std::free(memory_);
  }
  std::string Text() const
  {
    std::fflush(PETSC_STDERR);
    return std::string(memory_, size_);
  }

private:
  char  *memory_ = nullptr;
  size_t size_   = 0;
  FILE  *stderr_;
};

KSPObject Solver(Mat A, const Options &)
{
  KSPObject ksp;
  PC        pc;
  MUST(KSPCreate(PetscObjectComm((PetscObject)A), ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetType(ksp, KSPCGFUSED));
  MUST(KSPGetPC(ksp, &pc));
  MUST(PCSetType(pc, PCAFSAI));
  MUST(KSPSetFromOptions(ksp));
  return ksp;
}

void CheckRun(const Run &got, const Run &expected)
{
  CHECK(got.reason == expected.reason);
  CHECK(got.iterations == expected.iterations);
  CHECK(VectorDifference(got.x, expected.x) <= 1e-6);
}

/* The solve with auto, on the host, and with an error where the GPU is asked for. */
void CheckFailure(const std::string &says, const HostMatrix &H)
{
  const MatObject A = CreateMat(H, MATAIJ), B = CreateMat(H, MATAIJ);
  {
    const Options   options("-finepc_backend auto");
    const KSPObject ksp = Solver(A, options);
    CHECK(RunOf(ksp).reason == KSP_CONVERGED_RTOL);
    const std::string view = ViewText(ksp);
    CHECK(Contains(view, "  on the host: " + says + "\n"));
    CHECK(Contains(view, "backend host"));
    CHECK(!Contains(view, "GPU: finepc's own"));
  }
  const Options   options("-finepc_backend device");
  const KSPObject ksp = Solver(B, options);
  const VecObject b = RightVec(B, 1), x = RightVec(B, 2);
  Errors          errors;
  CHECK(KSPSolve(ksp, b, x) == PETSC_ERR_SUP);
  CHECK(Contains(errors.text, "The backend device is not possible: " + says));
}

} // namespace

TEST_CASE("failures: no GPU, no driver, and GPUs that are too old or another program's", "[failures]")
{
  const HostMatrix H = Poisson(40, 36, 35); /* large enough for the GPU */
  const Warnings   warnings;
  for (const Failure &failure : kFailures) {
    CAPTURE(failure.says);
    const Failing failing(failure);
    CheckFailure(failure.says, H);
  }
  /* the first reason alone, once */
  CHECK(warnings.Text() == "finepc works on the host: no GPU was found. With -finepc_backend host it does so without a warning.\n");
}

TEST_CASE("failures: a GPU without room", "[failures]")
{
  const MatObject      A = CreateMat(Poisson(40, 36, 35), MATAIJ);
  const emulator::Left left(20000000);
  const Options        options("-finepc_backend auto");
  const KSPObject      ksp = Solver(A, options);
  CHECK(RunOf(ksp).reason == KSP_CONVERGED_RTOL);
  CHECK(Contains(ViewText(ksp), "  on the host: the GPU has 20. MB of memory left, and 33."));
}

TEST_CASE("failures: a GPU without room for a matrix that was not assembled when the solver was set up", "[failures]")
{
  const HostMatrix            H = Poisson(40, 36, 35);
  const std::vector<PetscInt> i(H.i.begin(), H.i.end()), j(H.j.begin(), H.j.end());
  const emulator::Left        left(20000000);
  const Options               options("-finepc_backend auto -pc_type none");
  MatObject                   A;
  MUST(MatCreate(PETSC_COMM_SELF, A.put()));
  MUST(MatSetSizes(A, H.n, H.n, H.n, H.n));
  MUST(MatSetType(A, MATAIJ));
  MUST(MatSetUp(A));
  const KSPObject ksp = Solver(A, options);
  MUST(KSPSetUp(ksp));
  MUST(MatSeqAIJSetPreallocationCSR(A, i.data(), j.data(), H.a.data()));
  CHECK(RunOf(ksp).reason == KSP_CONVERGED_RTOL);
  CHECK(Contains(ViewText(ksp), "  on the host: the GPU has 20. MB of memory left, and 33."));
}

TEST_CASE("failures: memory of the GPU that ends in a set-up or at the beginning of a solve", "[failures]")
{
  const HostMatrix H = Poisson(40, 36, 35);
  for (const char *types : {"-ksp_type cgfused -pc_type jacobi", "-ksp_type cgfused -pc_type sfsai",
                            "-ksp_type gmresfused -pc_type jacobi", "-ksp_type cg -pc_type cmatch"}) {
    const std::string options = std::string(types) + " -ksp_cgfused_path graph -ksp_max_it 2 -finepc_backend ";
    const MatObject   B       = CreateMat(H, MATAIJ);
    Run               expected;
    {
      const Options   of_host(options + "host");
      const KSPObject ksp = Solver(B, of_host);
      expected            = RunOf(ksp);
    }
    const bool all    = Contains(types, "cgfused"); /* gmresfused is not emulated, and PCApply() for cg makes vectors */
    bool       failed = true;
    for (long n = 1; all ? failed : n < 10; n += 1 + n) {
      CAPTURE(types, n);
      const Options   automatic(options + "auto");
      const MatObject A   = CreateMat(H, MATAIJ);
      const KSPObject ksp = Solver(A, automatic);
      Errors          errors;
      PetscBool       sent;
      {
        const emulator::FailingAllocation failing(n);
        CheckRun(RunOf(ksp), expected);
        failed = failing.Failed();
      }
      CHECK(errors.text.empty());
      MUST(MatIsOffloaded(A, &sent));
      CHECK(sent == !failed);
      CHECK(Contains(ViewText(ksp), "on the host: the memory of the GPU was not enough\n") == failed);
      CheckRun(RunOf(ksp), expected);
    }
    const Options   insisting(options + "device");
    const KSPObject ksp = Solver(B, insisting);
    const VecObject b = RightVec(B, 1), x = RightVec(B, 2);
    Errors          errors;
    {
      const emulator::FailingAllocation failing(3);
      CHECK(KSPSolve(ksp, b, x) == PETSC_ERR_MEM);
    }
    CHECK(Contains(errors.text, "The device has no"));
  }
}

TEST_CASE("failures: memory of one GPU ends, and the hosts of all ranks take over", "[failures][mpi][two]")
{
  if (Ranks() != 2) return SkipTest();
  const Warnings warnings;
  for (const char *together : {"false", "true"})
    for (const char *types :
         {"-ksp_type gmresfused -pc_type jacobi", "-ksp_type cgfused -pc_type jacobi", "-ksp_type cgfused -pc_type sfsai"})
      for (const int rank : {0, 1})
        for (const long n : {1, 7}) {
          CAPTURE(together, types, rank, n);
          if (rank && *together == 't' && Contains(types, "gmresfused")) continue; /* the solve of the leader is not emulated */
          const std::string options = std::string(types) +
                                      " -ksp_cgfused_path graph -ksp_max_it 2 -test_groups 1 -finepc_consolidate " + together +
                                      " -finepc_backend ";
          const HostMatrix H = *together == 't' ? Poisson(40, 36, 35) : Poisson(50, 50, 40); /* large enough for each GPU */
          const MatObject  A = CreateMat(H, MATAIJ, PETSC_COMM_WORLD), B = CreateMat(H, MATAIJ, PETSC_COMM_WORLD);
          Run              expected;
          {
            const Options   of_host(options + "host");
            const KSPObject ksp = Solver(B, of_host);
            expected            = RunOf(ksp);
          }
          const Options   automatic(options + "auto");
          const KSPObject ksp = Solver(A, automatic);
          Errors          errors;
          PetscBool       sent;
          int             failed;
          {
            const emulator::FailingAllocation failing(rank == Rank() ? n : 0);
            CheckRun(RunOf(ksp), expected);
            failed = rank == Rank() && failing.Failed();
          }
          MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
          CHECK(errors.text.empty());
          MUST(MatIsOffloaded(A, &sent));
          CHECK(sent == !failed);
          CHECK((failed || rank == 1)); /* of ranks that are together the second has no GPU */
          CheckRun(RunOf(ksp), expected);
        }
  const std::string once = "finepc works on the host: the memory of the GPU was not enough. With -finepc_backend host it does so "
                           "without a warning.\n";
  CHECK(warnings.Text() == (Rank() ? "" : once));
}

/* With matrices that count as ones on the GPU: each rank goes on with its own rows. */
TEST_CASE("failures: no memory of the GPU for ranks that would come together there", "[failures][mpi][two]")
{
  if (Ranks() != 2) return SkipTest();
  const Warnings warnings;
  for (const char *types : {"-ksp_type cgfused -pc_type jacobi", "-ksp_type cgfused -pc_type sfsai", "-ksp_type cg -pc_type sfsai"})
    for (const long n : {0, 1, 7}) { /* from the beginning, or from this allocation on */
      CAPTURE(types, n);
      const std::string options = std::string(types) + " -ksp_cgfused_path graph -ksp_max_it 2 -test_groups 1 -finepc_consolidate ";
      const MatObject   rows    = CreateMat(Poisson(20, 18), MATAIJ, PETSC_COMM_WORLD);
      MatObject         A, B;
      Run               expected;
      MUST(MatSetBlockSize(rows, 2));
      for (MatObject *M : {&A, &B}) MUST(MatConvert(rows, MATBAIJCUDA, MAT_INITIAL_MATRIX, M->put()));
      {
        const Options apart(options + "false");
        expected = RunOf(Solver(B, apart));
      }
      const Options        together(options + "true");
      const KSPObject      ksp = Solver(A, together);
      const emulator::Left left(n ? (size_t)1 << 30 : 1000);
      const Errors         errors;
      {
        const emulator::FailingAllocation failing(Rank() ? 0 : n);
        CheckRun(RunOf(ksp), expected);
        CHECK((Rank() || !n || failing.Failed()));
      }
      CHECK(errors.text.empty());
      const std::string view = ViewText(ksp);
      if (!Rank())
        CHECK(Contains(view, std::string("the ranks share a GPU, but did not come together: the ") +
                               (n ? "memory of the GPU was not enough\n" : "GPU has 0.001 MB of memory left, and ")));
      CheckRun(RunOf(ksp), expected);
    }
  CHECK(warnings.Text().empty());
}

/* Wherever the memory of one GPU ends, all ranks have an error, and none waits for another one. */
TEST_CASE("failures: memory of one GPU ends while all ranks make a hierarchy of nodes", "[failures][mpi]")
{
  if (Ranks() == 1) return SkipTest();
  const Body body = MakeBody({3, 3, 4});
  for (const char *more : {"-pc_cmatch_gather_ranks 0", "-pc_cmatch_gather_ranks 2000 -test_gather_factor 2"}) {
    const Options   options(std::string("-pc_type cmatch -finepc_backend device -pc_cmatch_communication mpi "
                                          "-pc_cmatch_coarse_size 10 -pc_cmatch_gather_rows 20 ") +
                            more);
    const MatObject A = Spread(body.A, MATAIJ, [](LocalInt n, int rank, int size) { return 3 * Even(n / 3, rank, size); });
    MUST(MatSetBlockSize(A, 3));
    for (const int rank : {0, Ranks() - 1}) {
      int failed = 1;
      for (long n = 1; failed; n += 1 + n / 5) {
        PCObject pc;
        CAPTURE(more, rank, n);
        MUST(PCCreate(PETSC_COMM_WORLD, pc.put()));
        MUST(PCSetFromOptions(pc));
        MUST(PCSetOperators(pc, A, A));
        PetscErrorCode code;
        {
          const Errors                      errors;
          const emulator::FailingAllocation failing(rank == Rank() ? n : 0);
          code   = PCSetUp(pc);
          failed = rank == Rank() && failing.Failed();
        }
        MPI_Bcast(&failed, 1, MPI_INT, rank, PETSC_COMM_WORLD);
        REQUIRE((code != PETSC_SUCCESS) == (failed != 0));
        if (n % 7 && failed) continue; /* the same object, once there is memory */
        MUST(PCSetUp(pc));
        const auto z = Applied(pc);
        CHECK(std::all_of(z.begin(), z.end(), [](double value) { return std::isfinite(value); }));
      }
    }
  }
}

TEST_CASE("failures: the view names the GPU that is used", "[failures]")
{
  const MatObject A = CreateMat(Poisson(9, 9), MATAIJ);
  const Options   options("-finepc_backend device -ksp_cgfused_path graph"); /* see offload_test.cxx */
  const KSPObject ksp = Solver(A, options);
  CHECK(RunOf(ksp).reason == KSP_CONVERGED_RTOL);
  CHECK(Contains(ViewText(ksp), "  GPU: finepc's own, an emulated GPU, number 0 of 1\n"));
}

TEST_CASE("failures: -finepc_device", "[failures]")
{
  const MatObject A = CreateMat(Poisson(9, 9), MATAIJ);
  const VecObject b = RightVec(A, 1), x = RightVec(A, 2);
  {
    const Options   options("-finepc_device 1 -finepc_backend device");
    const KSPObject ksp = Solver(A, options);
    Errors          errors;
    MUST(DeviceSetUp());
    CHECK(KSPSolve(ksp, b, x) == PETSC_ERR_USER_INPUT);
    CHECK(Contains(errors.text, "-finepc_device 1 is not possible"));
  }
  {
    const Options options("-finepc_device -3");
    Errors        errors;
    CHECK(DeviceSetUp() == PETSC_ERR_USER_INPUT);
  }
  MUST(DeviceSetUp());
}
