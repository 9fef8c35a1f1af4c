static char help[] = "The kernels of an iteration of KSPRRBCG one by one, as tables 5.1 and 5.2 of the paper on the RRB-solver\n"
                     "(de Jong, van der Ploeg, Ditzel, Vuik 2017): time, GB/s, share of the copy bandwidth.\n"
                     "  -system <system> : a 5-point stencil of finepc_bench; default poisson2d5:2047\n"
                     "  -levels <l>      : levels of PCRRB, 0 for as many as it chooses\n"
                     "  -repeats <k>     : launches of a kernel one after the other\n"
                     "  -md <file>       : the table goes there, too\n"
                     "  -commit <commit> : to name in it\n\n";

#include "bench.h"
#include "text.h"
#include "phases.h"
#include "sparse/csr_mat.h"

#include <cmath>
#include <cstdio>
#include <limits>

struct Kernel {
  std::string    name;
  PetscLogDouble seconds, bytes;
};

/* Puts the solver into a state in which iterations go on, whatever was launched before */
static PetscErrorCode Begin(RRBCGWork *work, const PetscScalar *r)
{
  const CGTest test{CG_NORM_NONE, -1, std::numeric_limits<PetscReal>::infinity(), 0, -1, LOCAL_INT_MAX, LOCAL_INT_MAX};
  RRBCGSums    sums;

  PetscFunctionBeginUser;
  PetscCall(RRBCGStart_CUDA(work, r, &sums));
  PetscCall(RRBCGBegin_CUDA(work, sums.gz, &test));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Seconds of a call, best of three batches, between points where the device has nothing left to do */
template <typename Call>
static PetscErrorCode Time(const Backend &backend, PetscInt repeats, Call call, PetscLogDouble *seconds)
{
  PetscLogDouble start, end;

  PetscFunctionBeginUser;
  *seconds = std::numeric_limits<PetscLogDouble>::max();
  PetscCall(call());
  for (PetscInt batch = 0; batch < 3; batch++) {
    PetscCall(TimeSynchronized(backend, &start));
    for (PetscInt k = 0; k < repeats; k++) PetscCall(call());
    PetscCall(TimeSynchronized(backend, &end));
    *seconds = PetscMin(*seconds, (end - start) / (PetscLogDouble)repeats);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Times set-ups into new memory, and set-ups into the memory of the set-up before */
static PetscErrorCode TimeSetUps(const Backend &backend, const CSRView *A, const PetscInt grid[3], const RRBParams *params,
                                 RRBFactor **F, std::vector<Kernel> *kernels)
{
  RRBStats       stats;
  PetscLogDouble start, end, best[2] = {1e9, 1e9};

  PetscFunctionBeginUser;
  for (PetscInt repeat = 0; repeat < 5; repeat++)
    for (int again = 0; again < 2; again++) {
      if (!again) PetscCall(RRBDestroy_CUDA(F));
      PetscCall(TimeSynchronized(backend, &start));
      PetscCall(RRBComputeFactor_CUDA(A, grid[0], grid[1], params, F, &stats));
      PetscCall(TimeSynchronized(backend, &end));
      PetscCheck(!stats.failure, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "The system is not a 5-point stencil that can be factored");
      best[again] = PetscMin(best[again], end - start);
    }
  kernels->push_back({"set-up", best[0], 0});
  kernels->push_back({"set-up in the old memory", best[1], 0});
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Measure(const Backend &backend, const System &system, PetscInt levels, PetscInt repeats,
                              std::vector<Kernel> *kernels)
{
  RRBParams          params;
  RRBFactor         *F    = nullptr;
  RRBCGWork         *work = nullptr;
  CSRMat             csr;
  Vec                b, x;
  const PetscScalar *r;
  PetscScalar       *y;
  PetscMemType       where;
  PetscLogDouble     seconds, bytes, sum_seconds = 0, sum_bytes = 0;

  PetscFunctionBeginUser;
  params.levels     = levels;
  params.keep_schur = PETSC_TRUE;
  PetscCall(MatCreateVecs(system.A, &x, &b));
  PetscCall(VecSet(x, 1.));
  PetscCall(MatMult(system.A, x, b));
  PetscCall(MatGetCSR(system.A, &csr));
  PetscCheck(PetscMemTypeDevice(csr.A.where), PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "The matrix is not on the GPU");
  PetscCall(TimeSetUps(backend, &csr.A, system.grid, &params, &F, kernels));
  PetscCheck(F->has_schur, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "The system is not a 5-point stencil");
  PetscCall(RRBCGPrepare_CUDA(F, &work));
  PetscCall(VecGetArrayReadAndMemType(b, &r, &where));
  PetscCall(VecGetArrayWriteAndMemType(x, &y, &where));
  PetscCall(Time(backend, repeats, [&]() { return RRBApply_CUDA(F, 1, r, 0, y, 0); }, &seconds));
  kernels->push_back({"PCApply of PCRRB", seconds, (PetscLogDouble)F->apply_bytes});
  for (PetscBool down : {PETSC_TRUE, PETSC_FALSE}) {
    PetscCall(Time(backend, repeats, [&]() { return RRBApplyPhase_CUDA(F, down, r, y, &bytes); }, &seconds));
    kernels->push_back({down ? "of that, grid down, grid 1" : "of that, grid up, grid 1", seconds, bytes});
  }
  for (LocalInt phase = 0;; phase++) {
    const char *what;
    LocalInt    grid;

    PetscCall(Begin(work, r));
    PetscCall(RRBCGPhase_CUDA(work, phase, &what, &grid, &bytes));
    if (!what) break;
    PetscCall(Time(backend, repeats, [&]() { return RRBCGPhase_CUDA(work, phase, &what, &grid, &bytes); }, &seconds));
    kernels->push_back({std::string(what) + ", grid " + std::to_string(grid), seconds, bytes});
    sum_seconds += seconds;
    sum_bytes += bytes;
  }
  kernels->push_back({"sum of an iteration", sum_seconds, sum_bytes});
  PetscCall(VecRestoreArrayWriteAndMemType(x, &y));
  PetscCall(VecRestoreArrayReadAndMemType(b, &r));
  PetscCall(MatRestoreCSR(&csr));
  PetscCall(RRBCGDestroy_CUDA(&work));
  PetscCall(RRBDestroy_CUDA(&F));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void Print(FILE *file, const Backend &backend, const Output &output, const System &system,
                  const std::vector<Kernel> &kernels)
{
  std::fprintf(file, "%s%s\n\n| kernel | us | MB | GB/s | floor %% |\n|---|---|---|---|---|\n",
               MachineText("rrb_kernels", backend, output).c_str(), system.name.c_str());
  for (const Kernel &kernel : kernels) {
    if (kernel.bytes > 0)
      std::fprintf(file, "| %s | %.1f | %.2f | %.0f | %.0f |\n", kernel.name.c_str(), 1e6 * kernel.seconds, 1e-6 * kernel.bytes,
                   1e-9 * kernel.bytes / kernel.seconds, 100 * FloorFraction(backend, kernel.bytes, kernel.seconds));
    else std::fprintf(file, "| %s | %.1f | | | |\n", kernel.name.c_str(), 1e6 * kernel.seconds);
  }
}

int main(int argc, char **argv)
{
  Backend             backend;
  System              system;
  PetscInt            levels = 0, repeats = 50;
  char                name[PETSC_MAX_PATH_LEN] = "poisson2d5:2047";
  Output              output;
  std::vector<Kernel> kernels;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, nullptr, help));
  PetscCall(PetscOptionsGetString(nullptr, nullptr, "-system", name, sizeof(name), nullptr));
  PetscCall(OutputFromOptions(&output));
  PetscCall(PetscOptionsGetInt(nullptr, nullptr, "-levels", &levels, nullptr));
  PetscCall(PetscOptionsGetInt(nullptr, nullptr, "-repeats", &repeats, nullptr));
  PetscCall(BackendSetUp("cuda", PETSC_TRUE, &backend));
  PetscCall(SystemCreate(PETSC_COMM_WORLD, name, backend, &system));
  PetscCall(Measure(backend, system, levels, repeats, &kernels));
  Print(stdout, backend, output, system, kernels);
  if (!output.md_file.empty()) {
    FILE *file;

    PetscCall(PetscFOpen(PETSC_COMM_SELF, output.md_file.c_str(), "w", &file));
    Print(file, backend, output, system, kernels);
    PetscCall(PetscFClose(PETSC_COMM_SELF, file));
  }
  PetscCall(SystemDestroy(&system));
  PetscCall(PetscFinalize());
  return 0;
}
