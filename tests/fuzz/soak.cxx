/*
   Very many set-ups and solves in one process, after which as much memory is in use as before. Between the cases all objects are
   gone, so that what is in use then is what was lost, or is kept once and for all. Therefore the first fifth of the solves does not
   count. After it there must be

     - no byte more that PETSc has allocated;
     - on the heap 4 bytes more for each solve, and 4 KiB: the least block of malloc() has 32 bytes, so that one that is lost in
   each eighth solve is too much; with a GPU 32 bytes and 64 KiB, since CUDA has lists of its own there;
     - in the resident set no page (4 KiB) more for each solve, and 16 MiB, in which the heap may become scattered;
     - on the GPU two pieces of 2 MiB, in which the driver hands out its memory, and where finepc_trace is loaded, which counts what
       is allocated, 64 bytes for each solve: the least block there has 256.
*/
#include <petscksp.h>

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include "device.h"
#include "fuzz.h"

namespace
{

struct Memory {
  double petsc = 0, heap = 0, resident = 0, device = 0, traced = 0;
};

Memory MemoryInUse(bool device)
{
  Memory         m;
  PetscLogDouble bytes = 0;
  (void)PetscMallocGetCurrentUsage(&bytes);
  m.petsc = bytes;
#if !defined(__SANITIZE_ADDRESS__) /* whose own allocator keeps what was freed for a while */
  const struct mallinfo2 heap = mallinfo2();
  m.heap                      = (double)heap.uordblks + (double)heap.hblkhd;
  if (FILE *file = std::fopen("/proc/self/statm", "r")) {
    long pages = 0, resident = 0;
    if (std::fscanf(file, "%ld %ld", &pages, &resident) == 2) m.resident = (double)resident * (double)sysconf(_SC_PAGESIZE);
    std::fclose(file);
  }
#endif
  if (device) {
    m.device          = DeviceBytesInUse();
    const auto traced = (double (*)())dlsym(RTLD_DEFAULT, "FinePCTracedDeviceBytes");
    if (traced) m.traced = traced();
  }
  return m;
}

/* malloc() keeps up to seven freed blocks of each small size at hand, and counts them as in use. All of them are there from now on.
 */
void FillCacheOfMalloc()
{
  std::vector<void *> blocks;
  for (size_t size = 24; size <= 1032; size += 16)
    for (int k = 0; k < 7; k++) blocks.push_back(std::malloc(size));
  for (void *block : blocks) std::free(block);
}

bool Check(const char *noun, double before, double after, double most)
{
  const bool good = after - before <= most;
  std::printf("soak: %s: %.0f bytes after the warm-up, %+.0f since, at most %.0f: %s\n", noun, before, after - before, most,
              good ? "flat" : "FAILED: it grows");
  return good;
}

} // namespace

bool Soak(const SoakTask &task, std::uint64_t *current_seed, Report *report)
{
  const double begin  = MPI_Wtime();
  const long   warm   = task.solves / 5;
  long         solves = 0, warm_solves = -1, next = 0, failed = 0;
  Memory       before, now;
  PetscMPIInt  rank;
  Place        place;
  int          on_time = 1;

  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  place.device = task.device;
  FillCacheOfMalloc();
  for (*current_seed = task.seed; solves < task.solves; ++*current_seed) {
    on_time = task.seconds < 0 || MPI_Wtime() - begin < (double)task.seconds;
    MPI_Bcast(&on_time, 1, MPI_INT, 0, PETSC_COMM_WORLD);
    if (!on_time) break;
    alarm(task.limit);
    LiveWell(*current_seed, place, task.device && (*current_seed - task.seed) % 100 == 50, report);
    alarm(0);
    solves += report->solves;
    for (const std::string &fault : report->faults)
      std::printf("FAILED: --soak 1 --seed %llu, rank %d: %s\n", (unsigned long long)*current_seed, (int)rank, fault.c_str());
    if (!report->faults.empty()) std::printf("%s\n", report->log.c_str());
    failed += !report->faults.empty();
    if (solves < next) continue;
    now = MemoryInUse(task.device);
    if (warm_solves < 0 && solves >= warm) {
      before      = now;
      warm_solves = solves;
    }
    if (!rank) {
      std::printf("soak: %ld of %ld solves, %.0f s; PETSc %.0f, heap %.0f, resident %.1f MB, GPU %.1f MB, allocated there %.0f\n",
                  solves, task.solves, MPI_Wtime() - begin, now.petsc, now.heap, now.resident / 1e6, now.device / 1e6, now.traced);
      std::fflush(stdout);
    }
    next += (task.solves + 19) / 20;
  }
  now = MemoryInUse(task.device);
  std::printf("soak: %ld solves in %llu cases, %ld cases failed; %.0f s\n", solves, (unsigned long long)(*current_seed - task.seed),
              failed, MPI_Wtime() - begin);
  bool good = !failed;
  if (!on_time || warm_solves < 0) {
    std::printf("soak: FAILED: time was up before all solves were made\n");
    return false;
  }
  const double counted = (double)(solves - warm_solves);
  good &= Check("allocated by PETSc", before.petsc, now.petsc, 0);
  good &= Check("on the heap", before.heap, now.heap, task.device ? 32 * counted + 0x1p16 : 4 * counted + 0x1p12);
  good &= Check("in the resident set", before.resident, now.resident, 4096 * counted + 0x1p24);
  if (task.device) {
    good &= Check("in use on the GPU", before.device, now.device, 0x1p22);
    good &= Check("allocated on the GPU", before.traced, now.traced, 64 * counted);
  }
  return good;
}
