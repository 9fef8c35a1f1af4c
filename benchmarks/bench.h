#pragma once

/*
  The benchmark in its files:
    systems.cxx   loads or generates the linear systems
    blocks2d.cxx  those with blocks on triangles
    check.cxx     tests of the generators (-check)
    backend.cxx   the machine and its clock
    gpu.cu        a GPU that PETSc does not know of
    options.cxx   the command line and the option sets
    bench.cxx     timing, main
    report.cxx    the results as Markdown and JSON
    bsrsv2.cxx    a preconditioner of cuSPARSE's
*/

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "petsc_compat.h"

/* Where the vectors and matrices live, and what that machine can do */
struct Backend {
  bool           cuda     = false;
  bool           petsc    = false; /* PETSc has its matrices and vectors on that GPU; otherwise finepc sends what the host has */
  MatType        mat_type = MATAIJ;
  VecType        vec_type = VECSTANDARD;
  std::string    device   = "unknown"; /* name of the GPU, or of the processor */
  std::string    driver;               /* version of the NVIDIA driver; empty on the host */
  PetscLogDouble copy_gbs = 0.;        /* measured, all ranks together, bytes read + bytes written */
};

static constexpr PetscReal kDecay = 1e-3; /* how fast the fields of block3d7 decay: A 1 has this value away from the boundary */

/* A linear system A x = b; b = A 1, made where it is used, unless the system has a right-hand side of its own */
struct System {
  std::string name;                 /* as in -systems, without the folder of a file */
  std::string kind;                 /* poisson3d7, ..., file, mtx */
  PetscInt    grid[3]  = {0, 0, 0}; /* generated systems only: grid points (elements for elasticity3d), 1 in z for 2D */
  PetscInt    boxes[3] = {1, 1, 1}; /* that the grid is cut into, and numbered one after the other */
  PetscReal   contrast = 1.;
  PetscReal   flat     = 1.;       /* of elastic elements: so many times as long as high */
  PetscReal   shell[2] = {0., 0.}; /* shell2d: thickness, bed */
  PetscInt    fields   = 1;        /* block3d7, block2d7, euler2d, shell2d: unknowns of a grid point */
  Mat         A        = nullptr;
  Vec         b        = nullptr;
  std::map<std::string, Mat> converted; /* A as other types, made where a set asks for one */
  PetscInt                   rows            = 0;
  PetscLogDouble             nnz             = 0.;
  PetscLogDouble             load_seconds    = 0.;
  PetscLogDouble             matmult_seconds = 0.;
  PetscLogDouble             matmult_bytes   = 0.;
};

/* A line of -sets */
struct OptionSet {
  std::string label, options;
};

/* A name without its dash, and its value */
struct Option {
  std::string name, value;
  bool        has_value;
};

/* A further solve with the same KSP */
struct Again {
  PetscLogDouble seconds;
  PetscInt       iterations;
};

/* One set-up and solve with a fresh KSP */
struct Timing {
  PetscLogDouble     setup = 0.; /* seconds */
  PetscLogDouble     solve = 0.;
  PetscLogDouble     again = 0.; /* the same solve a second time, with what the first one has left behind */
  std::vector<Again> later;      /* that one and those after it */
  PetscInt           iterations    = 0;
  PetscReal          true_residual = 0.; /* ||b - A x|| / ||b||, recomputed */
  KSPConvergedReason reason        = KSP_CONVERGED_ITERATING;
};

/* An event of PETSc's log */
struct Event {
  std::string    name;
  PetscInt       count;
  PetscLogDouble seconds;
};

/* Everything measured for one system and one option set */
struct Result {
  OptionSet                   set;
  std::string                 status; /* ok, missed, diverged, failed, time limit */
  std::string                 note;   /* why, for the reader */
  std::string                 ksp_type, pc_type;
  bool                        first_in_process = false;
  std::vector<Timing>         runs;              /* [0] is the first use, the rest are warm */
  std::vector<Event>          events;            /* of a warm set-up, with -breakdown */
  PetscInt                    logged_setups = 0; /* number of set-ups, the fastest of which the events are of */
  std::vector<PetscLogDouble> refill;            /* seconds of KSPSetUp() with new values in the same nonzero pattern */
  PetscLogDouble              apply_seconds    = 0.;
  PetscLogDouble              apply_bytes      = 0.; /* 0: not known */
  PetscLogDouble              iteration_bytes  = 0.; /* 0: not known */
  PetscReal                   density          = 0.; /* nnz(G)/nnz(A), 0 for PCs that have no factor of finepc's */
  PetscLogDouble              columns_seconds  = 0.; /* of a KSPMatSolve() with -columns, warm; 0: not measured */
  PetscInt                    columns_its      = 0;  /* the most iterations of a column */
  PetscReal                   columns_residual = 0.; /* the largest true residual of a column */
  PetscLogDouble              setup_joules     = 0.; /* energy of a set-up and of a solve, all GPUs together; 0: not measured */
  PetscLogDouble              solve_joules     = 0.;
  std::vector<std::string>    columns_view;      /* what the solver says of them, line by line */
  std::string                 communication;     /* of cgfused on several ranks, with the reason: nccl.., mpi.. */
  double                      complexity   = 0.; /* entries of all levels' operators / nnz(A), 0 for PCs without levels */
  PetscLogDouble              memory_bytes = 0.; /* taken from the matrix on to the end of the first solve; 0: not known */
  std::vector<PetscReal>      history;           /* residual norms of the last run */
  PetscInt                    history_stride = 1;
  std::vector<std::string>    view; /* PCView() of finepc's own PCs, line by line */
};

struct SystemResults {
  System              system; /* its matrix no longer exists when the report is written */
  std::vector<Result> results;
};

struct Config {
  std::string              choice = "auto"; /* of the backend */
  Backend                  backend;
  std::vector<std::string> systems;
  std::vector<OptionSet>   sets;         /* none: those of the default that suit a system */
  std::vector<Option>      command_line; /* options that are not the benchmark's own */
  PetscInt                 repeats        = 3;
  PetscInt                 applies        = 100;
  PetscInt                 solves         = 2; /* of each warm run, with one KSP */
  PetscInt                 columns        = 0; /* right-hand sides that are solved together, too; 0 for none */
  PetscInt                 max_it         = 20000;
  PetscInt                 history_points = 1000;
  PetscReal                true_rtol      = 1e-8;
  PetscReal                skip_above     = 30.;  /* seconds: a first use slower than this is not repeated */
  PetscReal                set_limit      = 600.; /* seconds that a set may take on a system; 0 for no limit */
  PetscReal                energy         = 0.;   /* seconds over which energy is measured; 0 for not at all */
  PetscBool                check          = PETSC_FALSE;
  PetscBool                refill         = PETSC_FALSE;
  PetscBool                smooth         = PETSC_FALSE; /* b = A u with u = x (x - 1) y (y - 1) exp(x y), not A 1 */
  PetscBool                breakdown      = PETSC_FALSE;
  std::string              coordinates;        /* a file with those of the points, or empty */
  std::string              json_file, md_file; /* for the results */
  std::string              commit;             /* that they name */
};

/* systems.cxx */
extern const char     kSystemKinds[]; /* all kinds with their arguments */
extern PetscErrorCode SystemCreate(MPI_Comm comm, const std::string &spec, const Backend &backend, System *system);
extern PetscErrorCode SystemDestroy(System *system);
/* The matrix gets the rigid body modes of points whose coordinates are a vector in a binary file of PETSc's. */
extern PetscErrorCode SystemSetCoordinates(const std::string &path, System *system);
extern PetscInt       SystemPoint(const System &system, PetscInt row); /* of a row, numbered naturally */
/* A matrix row by row, where the number of unknowns is a product of sizes, which PetscInt need not hold. `fill` refers to the grid.
 */
struct Rows {
  PetscReal unknowns;
  PetscInt  bs, max_per_row;
  /* writes a row, its columns sorted, and returns the number of its entries */
  std::function<PetscInt(PetscInt row, PetscInt *cols, PetscScalar *vals)> fill;
};
/* Fills a vector from a function of the global row. */
extern PetscErrorCode VecFill(Vec v, const std::function<PetscScalar(PetscInt)> &value);

/* blocks2d.cxx */
extern Rows EulerRows(const PetscInt grid[3], PetscReal cfl);
extern Rows ShellRows(const PetscInt grid[3], PetscReal thickness, PetscReal bed);

/* options.cxx */
extern char           kHelp[];
extern PetscErrorCode OptionsUnused(PetscOptions database, std::vector<Option> *options);
/*
   Reads the options of the benchmark. Where the command line cannot be run `exit_code` is not negative: help was asked for and
   printed, or what is wrong has been said.
*/
extern PetscErrorCode CommandLineRead(int argc, char **argv, Config *config, int *exit_code);
/* After BackendSetUp(): what the host has is for the backend, unless the command line says otherwise */
extern void BackendAsk(Config *config);
/* the sets that were asked for, or those of the default that suit the system */
extern PetscErrorCode SystemSets(const Config &config, const System &system, std::vector<OptionSet> *sets);

/* check.cxx */
extern PetscErrorCode Asymmetry(Mat A, PetscReal *asymmetry); /* ||A - A^T|| / ||A|| */
extern PetscErrorCode SystemCheck(const System &system, PetscReal true_rtol, PetscBool *passed);
/* A line with those packages for finepc-try that this PETSc has, or can open. */
extern PetscErrorCode PackagesPrint(const Backend &backend);

/* backend.cxx */
extern PetscErrorCode BackendSetUp(const std::string &choice, PetscBool measure, Backend *backend); /* host, cuda, auto */
/* gpu.cu: of several ranks of a machine that of this number has one of its GPUs, whose name is empty if there is none */
extern PetscErrorCode GPUFind(PetscMPIInt rank, std::string *name);
extern PetscErrorCode GPUSynchronize();
extern PetscErrorCode GPUTimeCopy(const Backend &backend, size_t bytes, PetscLogDouble *seconds); /* the best of several there */
extern PetscErrorCode GPUMemoryInUse(size_t *bytes);
extern PetscErrorCode GPUBus(int length, char bus[]);
/* Seconds of a call, of the best of several batches: between two times when no device has anything left to do, by rank 0's clock */
extern PetscErrorCode TimeCalls(const Backend &backend, const std::function<PetscErrorCode()> &call, PetscLogDouble *seconds,
                                PetscInt calls = 1, int batches = 1);
/* bytes that this rank's process has in memory now, and that are taken on its device */
extern PetscErrorCode MemoryInUse(const Backend &backend, PetscLogDouble *bytes);
/*
   Joules that the GPUs of all ranks have taken since their drivers were loaded, one rank to a GPU, by NVML's counters, which change
   some ten times a second; -1 where there are none.
*/
extern PetscErrorCode EnergyUsed(const Backend &backend, PetscLogDouble *joules);
/* the text that a view prints */
extern PetscErrorCode ViewText(MPI_Comm comm, const std::function<PetscErrorCode(PetscViewer)> &view, std::string *text);
/* in the first line of a text that has the key in it: what follows the key; empty when there is no such line */
extern std::string LineValue(const std::string &text, const std::string &key);
/* an error handler that keeps the message of the first error; ctx is a std::string */
extern PetscErrorCode KeepFirstError(MPI_Comm, int, const char *, const char *, PetscErrorCode, PetscErrorType, const char *,
                                     void *ctx);
/* the time that the bytes take at the copy bandwidth, divided by the time */
extern PetscLogDouble FloorFraction(const Backend &backend, PetscLogDouble bytes, PetscLogDouble seconds);

/*
   bsrsv2.cxx, where PETSc has CUDA: registers -pc_type bsrsv2, for MATSEQBAIJCUDA. Does nothing where cuSPARSE no longer has
   bsrsv2.
*/
extern PetscErrorCode PCBsrsv2Register();

/* report.cxx */
extern PetscErrorCode ReportHeader(const Config &config);
extern PetscErrorCode ReportRow(const Config &config, const System &system, const Result &result);
extern PetscErrorCode ReportFiles(const Config &config, const std::vector<SystemResults> &all);
