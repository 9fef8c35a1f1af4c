/*
   The test program. Catch2's arguments are its arguments; PETSc's options come from PETSC_OPTIONS. It runs on any number of
   ranks, and reports the tests that need a device as skipped where there is none.
*/
#define CATCH_CONFIG_RUNNER
#include "support.h"

#include <finepc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"

namespace
{

bool device_found, test_skipped;
int  passed, failed, skipped;

std::vector<std::string> failed_cases;

class Listener : public TestListenerBase {
public:
  using TestListenerBase::TestListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo &) override { test_skipped = false; }
  void testCaseEnded(const Catch::TestCaseStats &stats) override
  {
    if (stats.totals.assertions.failed) failed_cases.push_back(stats.testInfo.name);
    if (stats.totals.assertions.failed) failed++;
    else if (test_skipped) skipped++;
    else passed++;
  }
};
CATCH_REGISTER_LISTENER(Listener)

/* Memory is checked, counted and filled with NaN; device pointers go to MPI only where somebody said that they may. */
PetscErrorCode SetDefaultOptions()
{
  const char *given = std::getenv("PETSC_OPTIONS");

  PetscFunctionBegin;
  PetscCall(PetscOptionsSetValue(nullptr, "-malloc_debug", "true"));
  if (!given || !std::strstr(given, "gpu_aware_mpi")) PetscCall(PetscOptionsSetValue(nullptr, "-use_gpu_aware_mpi", "false"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

bool DeviceFound()
{
  return device_found;
}

void SkipTest()
{
  test_skipped = true;
}

const std::vector<Backend> &Backends()
{
  static const std::vector<Backend> all = {
    {"host", PETSC_MEMTYPE_HOST, MATAIJ, VECSTANDARD, MATDENSE},
    {"cuda", PETSC_MEMTYPE_CUDA, MATAIJCUSPARSE, VECCUDA, MATDENSECUDA},
  };
  static const std::vector<Backend> host(all.begin(), all.begin() + 1);
  return device_found ? all : host;
}

const Backend &HostBackend()
{
  return Backends().front();
}

const Backend &DeviceBackend()
{
  return Backends().back();
}

int main(int argc, char **argv)
{
  int         petsc_argc = 1;
  char      **petsc_argv = argv;
  PetscMPIInt rank;

  if (SetDefaultOptions() || PetscInitialize(&petsc_argc, &petsc_argv, nullptr, nullptr) || FinePCInitializePackage())
    return EXIT_FAILURE;
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  device_found = FindDevice();

  int result;
  {
    Catch::Session session;
    result = session.run(argc, argv);
  }
  int mine[2] = {result, failed}, most[2];
  MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
  const int run = passed + failed + skipped;
  for (const std::string &name : failed_cases) std::printf("failed on rank %d: %s\n", (int)rank, name.c_str());
  if (rank == 0 && run) {
    if (skipped) std::printf("%d GPU tests skipped: no device\n", skipped);
    std::printf("finepc_tests: %d passed, %d failed, %d skipped\n", run - skipped - most[1], most[1], skipped);
  }
  /* no list of what is left: PETSc itself loses memory on the way of an error */
  if (PetscOptionsClearValue(nullptr, "-malloc_debug") || PetscFinalize()) return EXIT_FAILURE;
  if (!run) { /* a list or the help was asked for, or the name of a test is misspelt */
    const bool asked = argc > 1 && argv[1][0] == '-';
    if (!asked) std::fprintf(stderr, "finepc_tests: no test matches\n");
    return asked ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  return most[0] || most[1] ? EXIT_FAILURE : EXIT_SUCCESS;
}
