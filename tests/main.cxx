/*
   The test program. Catch2's arguments are its arguments; PETSc's options come from PETSC_OPTIONS. It runs on any number of
   ranks, and reports the tests that need a device, or more ranks than there are, as skipped. On several ranks the cases with the
   tag [mpi] are run by all of them together, and each of the others by one of them.
*/
#define CATCH_CONFIG_RUNNER
#include "support.h"

#include <finepc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"

namespace
{

bool machine_has_device, device_found, test_skipped; /* `device_found` is for the case that runs */
/* Numbers of cases: those that one rank runs alone, and those of all ranks. */
struct Counts {
  int run, failed, skipped;
} alone, together;

std::vector<std::string> failed_cases;

bool IsTogether(const Catch::TestCaseInfo &test)
{
  return std::find(test.tags.begin(), test.tags.end(), "mpi") != test.tags.end();
}

/* finepc's own device layer and the emulator have no other stream than one. */
#if defined(FINEPC_PETSC_CUDA)
constexpr bool kStreams = true;
#else
constexpr bool kStreams = false;
#endif

class Listener : public TestListenerBase {
public:
  using TestListenerBase::TestListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo &test) override
  {
    test_skipped = false;
    device_found = machine_has_device && DeviceIsFor(test.lineInfo.file);
    if (kStreams && device_found) PetscCallAbort(PETSC_COMM_SELF, PetscDeviceContextGetCurrentContext(&context_));
  }
  void testCaseEnded(const Catch::TestCaseStats &stats) override
  {
    Counts &counts = IsTogether(stats.testInfo) ? together : alone;
    counts.run++;
    if (stats.totals.assertions.failed) failed_cases.push_back(stats.testInfo.name);
    if (stats.totals.assertions.failed) counts.failed++;
    else if (test_skipped) counts.skipped++;
    /* A case that fails in another stream does not come to the line that leaves it. */
    if (kStreams && device_found) PetscCallAbort(PETSC_COMM_SELF, PetscDeviceContextSetCurrentContext(context_));
  }

private:
  PetscDeviceContext context_ = nullptr;
};
CATCH_REGISTER_LISTENER(Listener)

/*
   PETSc counts its memory, and looks at both ends of a block when it is freed. -malloc_debug has it look at all blocks whenever
   one is allocated or freed, which takes longer than all else together. Device pointers go to MPI only where somebody said that
   they may.
*/
const char *MemoryOption()
{
  return std::getenv("FINEPC_TEST_ALL") ? "-malloc_debug" : "-malloc_dump";
}

PetscErrorCode SetDefaultOptions()
{
  const char *given = std::getenv("PETSC_OPTIONS");
  PetscBool   found;

  PetscFunctionBegin;
  PetscCall(PetscOptionsSetValue(nullptr, MemoryOption(), "true"));
  /* what the host has is for the host, unless a case asks for something else */
  if (!given || !std::strstr(given, "finepc_backend")) PetscCall(PetscOptionsSetValue(nullptr, "-finepc_backend", "host"));
  /* and ranks that share a GPU take their turns there */
  if (!given || !std::strstr(given, "consolidate")) PetscCall(PetscOptionsSetValue(nullptr, "-finepc_consolidate", "false"));
  for (const char *name : {"-finepc_backend", "-finepc_consolidate"}) /* there may be no case that looks for them */
    PetscCall(PetscOptionsHasName(nullptr, nullptr, name, &found));
  if (!given || !std::strstr(given, "gpu_aware_mpi")) PetscCall(PetscOptionsSetValue(nullptr, "-use_gpu_aware_mpi", "false"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Leaves the cases that this rank is to run. Returns false if there are none. */
bool TakeShare(Catch::Session *session, PetscMPIInt rank, PetscMPIInt size)
{
  const Catch::Config      config(session->configData());
  std::vector<std::string> mine;
  int                      count = 0;
  for (const Catch::TestCase &test : Catch::filterTests(Catch::getAllTestCasesSorted(config), config.testSpec(), config)) {
    if (!IsTogether(test) && count++ % size != rank) continue;
    std::string name;
    for (char c : test.name) {
      if (std::strchr(",[]\\\"", c)) name += '\\';
      name += c;
    }
    mine.push_back("\"" + name + "\"" + ',');
  }
  session->configData().testsOrTags = mine;
  return !mine.empty();
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
  PetscMPIInt rank, size;

  if (SetDefaultOptions() || PetscInitialize(&petsc_argc, &petsc_argv, nullptr, nullptr) || FinePCInitializePackage())
    return EXIT_FAILURE;
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  MPI_Comm_size(PETSC_COMM_WORLD, &size);
  device_found = machine_has_device = FindDevice();

  /* NCCL that is kept with PETSc's own communicator of all ranks lives through all cases, since making it takes long. */
  MPI_Comm held;
  if (PetscCommDuplicate(PETSC_COMM_WORLD, &held, nullptr)) return EXIT_FAILURE;

  int result;
  {
    Catch::Session session;
    result              = session.applyCommandLine(argc, argv);
    const auto &given   = session.configData();
    const bool  listing = given.listTests || given.listTestNamesOnly || given.listTags || given.listReporters || given.showHelp;
    if (!result && (size == 1 || listing || TakeShare(&session, rank, size))) result = session.run();
  }
  int mine[2] = {result, together.failed}, most[2], sums[3];
  MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
  MPI_Allreduce(&alone, sums, 3, MPI_INT, MPI_SUM, PETSC_COMM_WORLD);
  const int run = sums[0] + together.run, failed = sums[1] + most[1], skipped = sums[2] + together.skipped;
  for (const std::string &name : failed_cases) std::printf("failed on rank %d: %s\n", (int)rank, name.c_str());
  if (rank == 0 && run) {
    if (skipped) std::printf("%d tests skipped: they need a device, or more ranks\n", skipped);
    std::printf("finepc_tests: %d passed, %d failed, %d skipped\n", run - skipped - failed, failed, skipped);
  }
  /* no list of what is left: PETSc itself loses memory on the way of an error */
  if (PetscOptionsClearValue(nullptr, MemoryOption()) || PetscFinalize()) return EXIT_FAILURE;
  if (!run) { /* a list or the help was asked for, or the name of a test is misspelt */
    const bool asked = argc > 1 && argv[1][0] == '-';
    if (!asked) std::fprintf(stderr, "finepc_tests: no test matches\n");
    return asked ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  return most[0] || failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
