/*
   finepc_fuzz [--seed N] [--cases N] [--seconds N] [--limit N] [--device | --rounding] [--verbose] [--soak N]

   Lives through random cases, the first of which has the given seed, the next one the next seed, and so on, until the cases or the
   seconds are used up. A case that goes wrong prints its seed, with which, and --cases 1, it is repeated, on the same number of
   ranks. A crash, and a case that takes longer than --limit seconds, end the program. Every rank does the same.

   With --device each case is lived through on the host and on a GPU, which must come to the same (both.cxx). With --rounding it is
   the host twice, the second time with other rounding, which tests the comparison. With --soak N there are N solves in good cases
   instead, after which the memory must not have grown (soak.cxx); --device has them on a GPU.
*/
#include <finepc.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <unistd.h>

#include "device.h"
#include "fuzz.h"

namespace
{

/* What the handler of signals has to know. */
std::uint64_t current_seed;
Report        current_report;
void         *current_frames[64]; /* backtrace() allocates memory when it is called first, which is before there are signals */

/* No function that may be interrupted in the midst of itself, so that the message comes in any case. */
void Put(const char *text)
{
  if (write(STDOUT_FILENO, text, std::strlen(text)) < 0) _exit(EXIT_FAILURE);
}

void Stop(int signal)
{
  char text[256];
  std::snprintf(text, sizeof(text), "FAILED: --seed %llu --cases 1: %s\n", (unsigned long long)current_seed,
                signal == SIGALRM ? "it does not end" : strsignal(signal));
  Put(text);
  Put(current_report.log.c_str());
  backtrace_symbols_fd(current_frames, backtrace(current_frames, std::size(current_frames)), STDOUT_FILENO);
  _exit(EXIT_FAILURE); /* mpiexec ends the other ranks */
}

struct Arguments {
  std::uint64_t seed  = 1;
  long          cases = -1, seconds = 10, limit = 30, soak = 0;
  bool          device = false, rounding = false, verbose = false;
};

bool Parse(int argc, char **argv, Arguments *a)
{
  bool counted = false, timed = false;
  for (int k = 1; k < argc; k++) {
    const std::string key   = argv[k];
    const char *const value = k + 1 < argc ? argv[k + 1] : "";
    if (key == "--device") a->device = true;
    else if (key == "--rounding") a->rounding = true;
    else if (key == "--verbose") a->verbose = true;
    else {
      char           *end;
      const long long number = std::strtoll(value, &end, 10);
      if (!*value || *end || number < 0) return false;
      if (key == "--seed") a->seed = (std::uint64_t)number;
      else if (key == "--cases") a->cases = (long)number, counted = true;
      else if (key == "--seconds") a->seconds = (long)number, timed = true;
      else if (key == "--limit") a->limit = (long)number;
      else if (key == "--soak") a->soak = (long)number, counted = true;
      else return false;
      k++;
    }
  }
  if (counted && !timed) a->seconds = -1;
  return true;
}

} // namespace

int main(int argc, char **argv)
{
  Arguments   arguments;
  PetscMPIInt rank;
  int         petsc_argc = 1;
  long        failed = 0, done = 0;
  Differences differences;
  double      slowest = 0;

  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(
      stderr,
      "usage: finepc_fuzz [--seed N] [--cases N] [--seconds N] [--limit N] [--device | --rounding] [--verbose] [--soak N]\n");
    return EXIT_FAILURE;
  }
  /* Kernels that are loaded when they are first used would look like memory that is lost. */
  if (arguments.soak) setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  if (arguments.device && !FindDevice()) {
    std::fprintf(stderr, "finepc_fuzz: --device needs a GPU and a finepc with CUDA, and there is none\n");
    return EXIT_FAILURE;
  }
  if (PetscOptionsSetValue(nullptr, "-malloc_debug", "true") || PetscOptionsSetValue(nullptr, "-use_gpu_aware_mpi", "false") ||
      PetscOptionsSetValue(nullptr, "-no_signal_handler", "true") || PetscInitialize(&petsc_argc, &argv, nullptr, nullptr) ||
      FinePCInitializePackage())
    return EXIT_FAILURE;
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  (void)backtrace(current_frames, 1);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) std::signal(signal, Stop);

  if (arguments.soak) {
    SoakTask task;
    task.seed    = arguments.seed;
    task.solves  = arguments.soak;
    task.seconds = arguments.seconds;
    task.limit   = (unsigned)arguments.limit;
    task.device  = arguments.device;
    failed       = !Soak(task, &current_seed, &current_report);
    if (PetscOptionsClearValue(nullptr, "-malloc_debug") || PetscFinalize()) return EXIT_FAILURE;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
  }

  Place other;
  if (arguments.device) other.device = true;
  else other.noise = 1e-15;
  const double  begin        = MPI_Wtime();
  std::uint64_t slowest_seed = 0;
  while (arguments.cases < 0 || done < arguments.cases) {
    int go = arguments.seconds < 0 || MPI_Wtime() - begin < (double)arguments.seconds;
    MPI_Bcast(&go, 1, MPI_INT, 0, PETSC_COMM_WORLD);
    if (!go) break;
    current_seed       = arguments.seed + (std::uint64_t)done;
    const double start = MPI_Wtime();
    alarm((unsigned)arguments.limit);
    if (arguments.device || arguments.rounding) LiveOnBoth(current_seed, other, &current_report, &differences);
    else Live(current_seed, Place(), &current_report);
    alarm(0);
    done++;
    if (MPI_Wtime() - start > slowest) {
      slowest      = MPI_Wtime() - start;
      slowest_seed = current_seed;
    }
    const std::vector<std::string> &faults = current_report.faults;
    int                             mine   = !faults.empty(), any;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
    failed += any;
    for (const std::string &fault : faults)
      std::printf("FAILED: --seed %llu --cases 1%s, rank %d: %s\n", (unsigned long long)current_seed,
                  arguments.device     ? " --device"
                  : arguments.rounding ? " --rounding"
                                       : "",
                  (int)rank, fault.c_str());
    if (mine || (arguments.verbose && !rank)) std::printf("%s\n", current_report.log.c_str());
    std::fflush(stdout);
    if (arguments.device && !DeviceWorks()) {
      std::printf("finepc_fuzz: the GPU works no longer, after %ld cases\n", done);
      MPI_Abort(PETSC_COMM_WORLD, EXIT_FAILURE);
    }
  }
  if (!rank)
    std::printf("finepc_fuzz: %ld cases from seed %llu, %ld failed; %.0f s, the slowest %.1f s (seed %llu)\n", done,
                (unsigned long long)arguments.seed, failed, MPI_Wtime() - begin, slowest, (unsigned long long)slowest_seed);
  if (!rank && (arguments.device || arguments.rounding))
    std::printf("finepc_fuzz: in %ld cases host and GPU differ as the host does from itself by rounding, in %ld bad ones more\n",
                differences.by_rounding, differences.tolerated);
  if (PetscOptionsClearValue(nullptr, "-malloc_debug") || PetscFinalize()) return EXIT_FAILURE;
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
