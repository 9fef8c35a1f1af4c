static char help[] = "Set-up and solve with KSPRRBCG against the size of the grid, and the largest grid that fits a GPU.\n\
  -sizes <n,n,..>            : grids of n x n points; default 2047,4095,8191\n\
  -largest                   : after these the largest that fits the GPU\n\
  -backend <host|cuda|auto>  : as finepc_bench\n\
  -rtol <rtol>               : of the iterations, in the natural norm; default 1e-6\n\
  -repeats <k>               : set-ups and solves that the best is taken of, after the first\n\
  -md <file>                 : the table goes there, too\n\
  -commit <commit>           : to name in it\n\
PETSc's options are for the solver; -ksp_type cg, for instance.\n\n";

/*
   Poisson's problem as in rrb_levels. A set-up is KSPSetUp() of a new solver; "first" and "again" are the two solves with that
   solver. "Bytes a point" is how much less memory the GPU has free than at the start, at worst: matrix, vectors, factor, and what
   the set-up needs for itself. The free memory is looked at each millisecond until the first set-up and its solves are done; the
   later runs are not held up by that. The largest grid is the one that these bytes a point leave room for, or that PETSc's 32-bit
   count of nonzeros allows; if that grid fails, smaller ones follow.
*/
#include "bench.h"
#include "text.h"

#include <finepc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <thread>

#if defined(FINEPC_HAVE_CUDA)
  #include <petscdevice_cuda.h>
#endif

/* ------------------------------------------- memory ------------------------------------------- */

/* Free bytes of the GPU, 0 where there is none. A second thread calls this, and PETSc's stack of functions is not for threads. */
static size_t FreeBytes(const Backend &backend)
{
  size_t free_bytes = 0;
#if defined(FINEPC_HAVE_CUDA)
  size_t total;

  if (backend.cuda && cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) free_bytes = 0;
#endif
  return backend.cuda ? free_bytes : 0;
}

/* A thread that watches, as long as this object lives, how little memory is free. */
class Watch {
public:
  explicit Watch(const Backend &backend) :
      thread_([this, &backend]() {
        do {
          least_ = std::min<size_t>(least_, FreeBytes(backend));
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } while (!stop_);
      })
  {
  }
  ~Watch()
  {
    stop_ = true;
    thread_.join();
  }
  size_t Least() const { return least_; }

private:
  std::atomic<bool>   stop_{false};
  std::atomic<size_t> least_{std::numeric_limits<size_t>::max()};
  std::thread         thread_; /* the last member, since the thread uses the others */
};

/* ------------------------------------------- a size ------------------------------------------- */

struct Row {
  PetscInt n = 0, iterations = 0;
  /* seconds, and bytes a point */
  PetscLogDouble     create = 0, first_setup = 0, setup = 1e99, first = 1e99, again = 1e99, bytes = 0;
  KSPConvergedReason reason = KSP_CONVERGED_ITERATING;
  std::string        levels; /* as PCView() prints them */
};

struct Run {
  System system;
  Vec    b = nullptr, x = nullptr;
  KSP    ksp = nullptr;
};

static PetscErrorCode SolverCreate(Mat A, PetscReal rtol, KSP *ksp)
{
  PC pc;

  PetscFunctionBeginUser;
  PetscCall(KSPCreate(PETSC_COMM_SELF, ksp));
  PetscCall(KSPSetOperators(*ksp, A, A));
  PetscCall(KSPSetType(*ksp, KSPRRBCG));
  PetscCall(KSPSetNormType(*ksp, KSP_NORM_NATURAL));
  PetscCall(KSPSetTolerances(*ksp, rtol, 0, PETSC_CURRENT, 1000));
  PetscCall(KSPGetPC(*ksp, &pc));
  PetscCall(PCSetType(pc, PCRRB));
  PetscCall(KSPSetFromOptions(*ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Solve(const Backend &backend, const Run &run, PetscLogDouble *best)
{
  PetscLogDouble start, end;

  PetscFunctionBeginUser;
  PetscCall(VecSet(run.x, 0.));
  PetscCall(TimeSynchronized(backend, &start));
  PetscCall(KSPSolve(run.ksp, run.b, run.x));
  PetscCall(TimeSynchronized(backend, &end));
  *best = PetscMin(*best, end - start);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Measure(const Backend &backend, PetscReal rtol, PetscInt repeats, size_t at_start, Run *run, Row *row)
{
  auto           watch = std::make_unique<Watch>(backend);
  PetscLogDouble start, end;
  PC             pc;
  std::string    text;

  PetscFunctionBeginUser;
  PetscCall(TimeSynchronized(backend, &start));
  PetscCall(SystemCreate(PETSC_COMM_SELF, "poisson2d5:" + std::to_string(row->n), backend, &run->system));
  PetscCall(MatCreateVecs(run->system.A, &run->x, &run->b));
  PetscCall(FillTestSolution(row->n, run->x));
  PetscCall(MatMult(run->system.A, run->x, run->b));
  PetscCall(TimeSynchronized(backend, &end));
  row->create = end - start;
  for (PetscInt repeat = 0; repeat <= repeats; repeat++) {
    PetscLogDouble first = 1e99;

    PetscCall(KSPDestroy(&run->ksp));
    PetscCall(SolverCreate(run->system.A, rtol, &run->ksp));
    PetscCall(TimeSynchronized(backend, &start));
    PetscCall(KSPSetUp(run->ksp));
    PetscCall(TimeSynchronized(backend, &end));
    if (!repeat) row->first_setup = end - start;
    if (repeat || !repeats) row->setup = PetscMin(row->setup, end - start);
    PetscCall(Solve(backend, *run, &first));
    if (repeat || !repeats) row->first = PetscMin(row->first, first);
    PetscCall(Solve(backend, *run, &row->again));
    if (!repeat) {
      row->bytes =
        backend.cuda ? (PetscLogDouble)(at_start - PetscMin(at_start, watch->Least())) / ((PetscLogDouble)row->n * row->n) : 0;
      watch.reset();
    }
  }
  PetscCall(KSPGetIterationNumber(run->ksp, &row->iterations));
  PetscCall(KSPGetConvergedReason(run->ksp, &row->reason));
  PetscCall(KSPGetPC(run->ksp, &pc));
  PetscCall(ViewText(PETSC_COMM_SELF, [pc](PetscViewer viewer) { return PCView(pc, viewer); }, &text));
  const size_t at = text.find("levels ");
  if (at != std::string::npos) row->levels = text.substr(at + 7, text.find_first_of(" (,\n", at + 7) - at - 7);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measures a size and destroys what it created, also after an error, whose message is in *text then. */
static PetscErrorCode MeasureSize(const Backend &backend, PetscReal rtol, PetscInt repeats, size_t at_start, Row *row,
                                  std::string *text)
{
  Run            run;
  PetscErrorCode code;

  PetscFunctionBeginUser;
  text->clear();
  PetscCall(PetscPushErrorHandler(KeepFirstError, text));
  code = Measure(backend, rtol, repeats, at_start, &run, row);
  PetscCall(PetscPopErrorHandler());
  PetscCall(KSPDestroy(&run.ksp));
  PetscCall(VecDestroy(&run.b));
  PetscCall(VecDestroy(&run.x));
  PetscCall(SystemDestroy(&run.system));
  if (code && text->empty()) *text = "an error without a text";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the table ------------------------------------------ */

static void PrintHead(FILE *file, const Backend &backend, const Output &output, PetscReal rtol)
{
  std::fprintf(file,
               "%sPoisson's problem, to %g in the natural norm; while \"the first\" is set up a thread looks at the memory\n\n",
               MachineText("rrb_sizes", backend, output).c_str(), (double)rtol);
  std::
    fprintf(file,
            "| grid | levels | set-up ms, the first | set-up ms | ns a point | iterations | solve ms | again ms | ns a point | us "
            "an iteration | bytes a point |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
}

static void PrintRow(FILE *file, const Row &row)
{
  const double points = (double)row.n * (double)row.n;

  std::fprintf(file, "| %d x %d | %s | %.3f | %.3f | %.3f | %d%s | %.3f | %.3f | %.3f | %.1f | ", (int)row.n, (int)row.n,
               row.levels.c_str(), 1e3 * row.first_setup, 1e3 * row.setup, 1e9 * row.setup / points, (int)row.iterations,
               row.reason > 0 ? "" : ", not converged", 1e3 * row.first, 1e3 * row.again, 1e9 * row.again / points,
               row.iterations ? 1e6 * row.again / row.iterations : 0.);
  if (row.bytes > 0) std::fprintf(file, "%.0f |\n", row.bytes);
  else std::fprintf(file, "|\n");
  std::fflush(file);
}

/* The most points a side of a 5-point stencil whose nonzeros PETSc can count. */
static PetscInt MostByCount()
{
  PetscInt n = (PetscInt)std::sqrt((double)PETSC_INT_MAX / 5.);

  while (5. * (n + 1.) * (n + 1.) <= (double)PETSC_INT_MAX) n++; /* five entries a row are allocated */
  return n;
}

int main(int argc, char **argv)
{
  Backend          backend;
  PetscInt         sizes[16] = {2047, 4095, 8191}, count = 16, repeats = 3;
  PetscReal        rtol = 1e-6;
  PetscBool        given, largest = PETSC_FALSE;
  char             choice[16] = "auto";
  Output           output;
  size_t           at_start;
  std::vector<Row> rows;
  std::string      text, note;
  bool             failed = false;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, nullptr, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetIntArray(nullptr, nullptr, "-sizes", sizes, &count, &given));
  if (!given) count = 3;
  PetscCall(PetscOptionsGetInt(nullptr, nullptr, "-repeats", &repeats, nullptr));
  PetscCall(PetscOptionsGetReal(nullptr, nullptr, "-rtol", &rtol, nullptr));
  PetscCall(PetscOptionsGetBool(nullptr, nullptr, "-largest", &largest, nullptr));
  PetscCall(PetscOptionsGetString(nullptr, nullptr, "-backend", choice, sizeof(choice), nullptr));
  PetscCall(OutputFromOptions(&output));
  PetscCall(BackendSetUp(choice, PETSC_FALSE, &backend)); /* no bandwidth: its memory would stay in a pool and not be counted */
  PetscCheck(!largest || backend.cuda, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "-largest is about the memory of a GPU");
  at_start = FreeBytes(backend);

  PrintHead(stdout, backend, output, rtol);
  for (PetscInt k = 0; k < count; k++) {
    Row row;

    row.n = sizes[k];
    PetscCall(MeasureSize(backend, rtol, repeats, at_start, &row, &text));
    PetscCheck(text.empty(), PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "%" PetscInt_FMT " x %" PetscInt_FMT ": %s", row.n, row.n,
               text.c_str());
    rows.push_back(row);
    PrintRow(stdout, row);
    failed = failed || row.reason <= 0;
  }
  if (largest) {
    const PetscInt by_count = MostByCount(),
                   by_bytes = (PetscInt)std::sqrt(PetscMin(0.98 * (double)at_start / rows.back().bytes, 2e9));
    bool done               = false;

    Row row;
    row.n = PetscMin(by_count, by_bytes);
    note  = row.n == by_count ? "The last grid is the largest whose nonzeros PETSc's 32-bit integers can count"
                              : "The last grid is the largest that fits";
    note += ": " + std::to_string((long long)(at_start / 1000000)) + " MB were free, " +
            std::to_string((long long)rows.back().bytes) + " bytes a point would be enough for " +
            std::to_string((long long)by_bytes) + " points a side.";
    for (int attempt = 0; attempt < 6 && !done; attempt++) {
      PetscCall(MeasureSize(backend, rtol, 1, at_start, &row, &text));
      done = text.empty();
      if (done) break;
      note += " " + std::to_string((long long)row.n) + " x " + std::to_string((long long)row.n) + " failed: " + text + ".";
      const PetscInt next = row.n - row.n / 50;
      row                 = Row();
      row.n               = next;
    }
    if (done) {
      rows.push_back(row);
      PrintRow(stdout, row);
    }
    failed = failed || !done || row.reason <= 0;
    std::printf("\n%s\n", note.c_str());
  }
  if (!output.md_file.empty()) {
    FILE *file;

    PetscCall(PetscFOpen(PETSC_COMM_SELF, output.md_file.c_str(), "w", &file));
    PrintHead(file, backend, output, rtol);
    for (const Row &row : rows) PrintRow(file, row);
    if (!note.empty()) std::fprintf(file, "\n%s\n", note.c_str());
    PetscCall(PetscFClose(PETSC_COMM_SELF, file));
  }
  PetscCall(PetscFinalize());
  return failed;
}
