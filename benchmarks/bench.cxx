#include "bench.h"
#include <cstdlib>
#include <set>
#include <sstream>
#include <finepc.h>

/* ------------------------------------ bytes that must move ------------------------------------ */

static constexpr PetscLogDouble kScalarBytes = sizeof(PetscScalar), kIndexBytes = 4.;

/* y = A x: every value and column, the row pointers and x are read once, y is written. Blocks have one column each. */
static PetscErrorCode MatMultBytes(Mat A, const System &system, PetscLogDouble *bytes)
{
  PetscBool      blocks;
  PetscInt       bs  = 1;
  PetscLogDouble nnz = system.nnz;

  PetscFunctionBeginUser;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &blocks, MATSEQBAIJ, MATMPIBAIJ, MATSEQBAIJCUDA, MATMPIBAIJCUDA, ""));
  if (blocks) {
    MatInfo info;

    PetscCall(MatGetBlockSize(A, &bs));
    PetscCall(MatGetInfo(A, MAT_GLOBAL_SUM, &info));
    nnz = info.nz_used;
  }
  *bytes = nnz * (kScalarBytes + kIndexBytes / (bs * bs)) + system.rows * (kIndexBytes / bs + 2. * kScalarBytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = M r for those of PETSc's PCs that are one pass over vectors, and for those of finepc, which say; 0 for all others */
static PetscErrorCode PCApplyBytes(PC pc, PetscLogDouble rows, PetscLogDouble *bytes)
{
  PetscBool none, jacobi, pbjacobi;
  PetscInt  bs;
  Mat       P;

  PetscFunctionBeginUser;
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCNONE, &none));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCJACOBI, &jacobi));
  PetscCall(PCFinePCGetApplyBytes(pc, bytes));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, bytes, 1, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD)); /* each rank knows its own part */
  if (none) *bytes = rows * 2. * kScalarBytes;
  if (jacobi) *bytes = rows * 3. * kScalarBytes;
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCPBJACOBI, &pbjacobi));
  PetscCall(PCGetOperators(pc, nullptr, &P));
  PetscCall(MatGetBlockSize(P, &bs));
  if (pbjacobi) *bytes = rows * (bs + 2.) * kScalarBytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Mean over the ranks, each of which knows its own part */
static PetscErrorCode PCDensity(PC pc, PetscReal *density)
{
  PetscMPIInt size;

  PetscFunctionBeginUser;
  PetscCall(PCFinePCGetDensity(pc, density));
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, density, 1, MPIU_REAL, MPIU_SUM, PETSC_COMM_WORLD));
  *density /= size;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The lines of a text without the spaces that they begin with, but for empty ones */
static std::vector<std::string> Lines(const std::string &text)
{
  std::vector<std::string> lines;
  std::istringstream       stream(text);
  std::string              line;

  while (std::getline(stream >> std::ws, line)) lines.push_back(line);
  return lines;
}

/*
  What the PC says of itself: the sizes of rows, the memory of the set-up, the rows that the usual kernel could not take; and the
  operator complexity, where it is cmatch or a multigrid of PETSc's
*/
static PetscErrorCode MeasureView(PC pc, Result *result)
{
  std::string text;

  PetscFunctionBeginUser;
  PetscCall(ViewText(PetscObjectComm((PetscObject)pc), [&](PetscViewer viewer) { return PCView(pc, viewer); }, &text));
  result->view = Lines(text.substr(0, text.find("linear system matrix"))); /* the rest is about A */
  for (const char *key : {"operator complexity ", "operator = "}) {
    const std::string complexity = LineValue(text, key);

    if (!complexity.empty()) result->complexity = std::atof(complexity.c_str());
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPText(KSP ksp, std::string *text)
{
  PetscFunctionBeginUser;
  PetscCall(ViewText(PetscObjectComm((PetscObject)ksp), [&](PetscViewer viewer) { return KSPView(ksp, viewer); }, text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Products a step of the last solve. */
static PetscErrorCode GetStepSize(KSP ksp, PetscInt *size)
{
  std::string text;

  PetscFunctionBeginUser;
  PetscCall(KSPGMRESFusedGetStepSize(ksp, size));
  PetscCall(KSPText(ksp, &text));
  if (text.find("one product a step") != std::string::npos) *size = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Vectors of the basis that are in so many iterations from a restart on, where steps of this size read them once. */
static PetscLogDouble VectorsRead(PetscInt its, PetscInt step)
{
  PetscLogDouble vectors = 0.;
  for (PetscInt j = 0; j < its; j += step) vectors += j + 1.;
  return vectors;
}

/*
  One iteration of a CG whose vector work is fused as far as it goes:
    q = A p, p.q with it                              the bytes of A p
    r = r - alpha q, r.r with it                      read r, q; write r                3 vectors
    z = M r, r.z with it                              the bytes of the apply
    x = x + alpha p, p = z + beta p                   read x, p, z; write x, p          5 vectors
  Without a preconditioner z is r, so that the third line costs nothing; with Jacobi z = r / d is made in the last line, one vector
  more.

  One iteration of GMRES with two passes over the basis u_0 .. u_j:
    w = A M u_j                                       the bytes of the product, and of the apply
    U^T w, w.w, u_j^T u_j with it                     read U, w
    u_{j+1} = w - U c                                 read U, w; write u_{j+1}
  Where gmresfused makes two products a step, U is read twice for two iterations. Without a preconditioner there is no apply, and
  with Jacobi d is read with the product, one vector more. A flexible solve writes M u_j once more. The number of vectors in U is
  the mean over the iterations of the solve; what a restart costs is not counted.
*/
static PetscErrorCode IterationBytes(KSP ksp, const System &system, PetscInt its, PetscLogDouble apply_bytes, PetscLogDouble *bytes)
{
  PC        pc;
  Mat       A;
  PetscBool none, jacobi, cg, gmres, fused;

  PetscFunctionBeginUser;
  *bytes = 0.;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)ksp, &cg, KSPCG, KSPCGFUSED, ""));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)ksp, &gmres, KSPGMRES, KSPGMRESFUSED, ""));
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPGMRESFUSED, &fused));
  if ((!cg && !gmres) || apply_bytes == 0. || its == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCNONE, &none));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCJACOBI, &jacobi));
  PetscCall(PCGetOperators(pc, &A, nullptr));
  PetscCall(MatMultBytes(A, system, bytes));
  if (cg) *bytes += 8. * kScalarBytes * system.rows;
  else {
    FinePCPrecision precision = FINEPC_DOUBLE;
    PetscBool       flexible  = PETSC_FALSE;
    PetscInt        restart, step = 1;

    PetscCall(KSPGMRESGetRestart(ksp, &restart));
    if (fused) PetscCall(GetStepSize(ksp, &step));
    if (fused) PetscCall(KSPGMRESFusedGetBasisPrecision(ksp, &precision));
    if (fused) PetscCall(KSPGMRESFusedGetFlexible(ksp, &flexible));
    const PetscInt       cycles = its / restart, rest = its % restart;
    const PetscLogDouble value   = precision == FINEPC_SINGLE ? sizeof(float) : kScalarBytes,
                         vectors = (cycles * VectorsRead(restart, step) + VectorsRead(rest, step)) / its;
    *bytes += system.rows * ((2. * vectors + 1.) * value + 2. * kScalarBytes + (flexible ? kScalarBytes : 0.));
  }
  if (jacobi) *bytes += kScalarBytes * system.rows;
  else if (!none) *bytes += apply_bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Seconds of one call, warm, of the best of three batches. A slow call (host, large system) gets fewer calls. */
static PetscErrorCode TimeWarmCalls(const Config &config, const std::function<PetscErrorCode()> &call, PetscLogDouble *seconds)
{
  const PetscLogDouble budget = 1.; /* seconds per batch */

  PetscFunctionBeginUser;
  for (int warm = 0; warm < 2; warm++) PetscCall(TimeCalls(config.backend, call, seconds));
  const PetscInt calls = PetscMax(1, PetscMin(config.applies, (PetscInt)(budget / PetscMax(*seconds, 1e-9))));
  PetscCall(TimeCalls(config.backend, call, seconds, calls, 3));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SystemMeasureMatMult(const Config &config, System *system)
{
  Vec x, y;

  PetscFunctionBeginUser;
  PetscCall(MatCreateVecs(system->A, &x, &y));
  PetscCall(VecSet(x, 1.));
  PetscCall(TimeWarmCalls(config, [&]() { return MatMult(system->A, x, y); }, &system->matmult_seconds));
  PetscCall(MatMultBytes(system->A, *system, &system->matmult_bytes));
  PetscCall(VecDestroy(&y));
  PetscCall(VecDestroy(&x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------------- option sets ----------------------------------------- */

/* A set runs with its own options over those of the command line (-ksp_view, say), which hold for all sets. */
static PetscErrorCode OptionsPush(const Config &config, const OptionSet &set, PetscOptions *database)
{
  PetscFunctionBeginUser;
  PetscCall(PetscOptionsCreate(database));
  for (const auto &option : config.command_line)
    PetscCall(PetscOptionsSetValue(*database, ("-" + option.name).c_str(), option.has_value ? option.value.c_str() : nullptr));
  PetscCall(PetscOptionsInsertString(*database, set.options.c_str()));
  PetscCall(PetscOptionsPush(*database));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Lists the set's options that nothing asked for (misspelt ones, say), and marks those of the command line as used in PETSc's
  database.
*/
static PetscErrorCode OptionsPop(const Config &config, PetscOptions *database, std::string *unused)
{
  std::vector<Option> left;
  PetscBool           used, here;

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsPop());
  for (const auto &option : config.command_line) {
    const std::string name = "-" + option.name;

    PetscCall(PetscOptionsUsed(*database, option.name.c_str(), &used));
    if (used) PetscCall(PetscOptionsHasName(nullptr, nullptr, name.c_str(), &here));
    PetscCall(PetscOptionsHasName(*database, nullptr, name.c_str(), &here)); /* those that are left then are the set's own */
  }
  PetscCall(OptionsUnused(*database, &left));
  for (const auto &option : left) *unused += (unused->empty() ? "-" : " -") + option.name;
  PetscCall(PetscOptionsDestroy(database));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- time limit ----------------------------------------- */

/*
  The time that a set may take, and the convergence test of its KSP in another that ends the solve when the time is over. Rank 0 has
  the clock and says in which iteration all ranks look at it next, some ten times a second: a test in each costs next to nothing.
*/
struct TimeLimit {
  PetscLogDouble        end = PETSC_MAX_REAL, begin = 0.; /* of the set, of the solve */
  PetscInt              next    = 1;                      /* iteration */
  PetscBool             over    = PETSC_FALSE;            /* it was seen that the time is over */
  KSPConvergenceTestFn *test    = nullptr;
  void                 *ctx     = nullptr;
  KSPTestDestroyFn     *destroy = nullptr;
};

static PetscErrorCode TimeLimitBegin(TimeLimit *limit)
{
  PetscFunctionBeginUser;
  PetscCall(PetscTime(&limit->begin));
  limit->next = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode TimeLimitLook(TimeLimit *limit, PetscInt its)
{
  PetscLogDouble now;
  PetscInt       said[2]; /* whether it is over, and after how many more iterations to look again */

  PetscFunctionBeginUser;
  PetscCall(PetscTime(&now));
  said[0] = now > limit->end;
  said[1] = PetscMax(1, (PetscInt)(its * PetscMin(1., 0.1 / PetscMax(now - limit->begin, 1e-9))));
  PetscCallMPI(MPI_Bcast(said, 2, MPIU_INT, 0, PETSC_COMM_WORLD));
  limit->over = (PetscBool)said[0];
  limit->next = its < PETSC_INT_MAX - said[1] ? its + said[1] : PETSC_INT_MAX;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ConvergedOrLate(KSP ksp, PetscInt its, PetscReal norm, KSPConvergedReason *reason, void *ctx)
{
  TimeLimit *limit = static_cast<TimeLimit *>(ctx);

  PetscFunctionBeginUser;
  PetscCall((*limit->test)(ksp, its, norm, reason, limit->ctx));
  if (*reason || its < limit->next) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(TimeLimitLook(limit, its));
  if (limit->over) *reason = KSP_DIVERGED_USER;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On GPUs those methods of finepc's test by themselves, and would iterate otherwise if there were a test of the program. */
static PetscErrorCode TimeLimitSetTest(const Config &config, KSP ksp, TimeLimit *limit)
{
  PetscBool alone;

  PetscFunctionBeginUser;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)ksp, &alone, KSPCGFUSED, KSPRRBCG, KSPGMRESFUSED, ""));
  if ((alone && config.backend.cuda) || config.set_limit <= 0.) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPGetAndClearConvergenceTest(ksp, &limit->test, &limit->ctx, &limit->destroy));
  PetscCall(KSPSetConvergenceTest(ksp, ConvergedOrLate, limit, nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- measuring ------------------------------------------ */

/* The objects of one option set. Each set has new ones, so that what a failed set left behind, a locked vector say, is not met. */
struct Solver {
  Mat       A   = nullptr; /* the matrix of the system, in the type of the set */
  KSP       ksp = nullptr;
  Vec       b = nullptr, x = nullptr, r = nullptr;
  TimeLimit limit;
};

static PetscErrorCode SolverDestroyKSP(Solver *solver)
{
  TimeLimit *limit = &solver->limit;

  PetscFunctionBeginUser;
  PetscCall(KSPDestroy(&solver->ksp));
  if (limit->destroy) PetscCall(KSPDestroyTest(limit->destroy, limit->ctx));
  limit->destroy = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SolverDestroy(Solver *solver)
{
  PetscFunctionBeginUser;
  PetscCall(SolverDestroyKSP(solver));
  PetscCall(VecDestroy(&solver->r));
  PetscCall(VecDestroy(&solver->x));
  PetscCall(VecDestroy(&solver->b));
  PetscCall(MatDestroy(&solver->A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The system's matrix as another type, made once. Where PETSc has no direct conversion, AIJ and BAIJ are between the types. */
static PetscErrorCode SystemGetMat(System *system, const std::string &type, Mat *A)
{
  const bool block = type.rfind(MATBAIJ, 0) == 0 && type != MATBAIJ;
  Mat        from  = system->A;

  PetscFunctionBeginUser;
  if (!system->converted.count(type)) {
    Mat made;

    if (type != MATAIJ) PetscCall(SystemGetMat(system, block ? MATBAIJ : MATAIJ, &from));
    PetscCall(MatConvert(from, type.c_str(), MAT_INITIAL_MATRIX, &made));
    if (type == MATAIJ || type == MATBAIJ) PetscCall(MatSetVecType(made, VECSTANDARD)); /* the host's types have its vectors */
    system->converted[type] = made;
  }
  *A = system->converted[type];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The system's matrix as the type that the set asks for with -mat_type, where `block` is BAIJ in the memory of the backend */
static PetscErrorCode SolverCreateMat(const Config &config, System *system, Solver *solver)
{
  char      type[64];
  PetscBool set;

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsGetString(nullptr, nullptr, "-mat_type", type, sizeof(type), &set));
  if (set)
    PetscCall(SystemGetMat(system, std::string(type) != "block" ? type : config.backend.petsc ? MATBAIJCUDA : MATBAIJ, &solver->A));
  else solver->A = system->A;
  PetscCall(PetscObjectReference((PetscObject)solver->A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static constexpr PetscInt kHistory = 1000000; /* iterations at most whose residual norms are in memory */

static PetscErrorCode SolverCreateKSP(const Config &config, Solver *solver, bool history = true)
{
  PetscInt max_it;

  PetscFunctionBeginUser;
  PetscCall(SolverDestroyKSP(solver));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &solver->ksp));
  PetscCall(KSPSetOperators(solver->ksp, solver->A, solver->A));
  PetscCall(KSPSetType(solver->ksp, KSPCG));
  PetscCall(KSPSetNormType(solver->ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(solver->ksp, config.true_rtol, PETSC_CURRENT, PETSC_CURRENT, config.max_it));
  PetscCall(KSPSetFromOptions(solver->ksp));
  PetscCall(KSPGetTolerances(solver->ksp, nullptr, nullptr, nullptr, &max_it));
  if (history) PetscCall(KSPSetResidualHistory(solver->ksp, nullptr, PetscMin(max_it, kHistory) + 1, PETSC_TRUE));
  PetscCall(TimeLimitSetTest(config, solver->ksp, &solver->limit));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SolverSetUp(const Config &config, Solver *solver, PetscLogDouble *seconds)
{
  const auto set_up = [&]() {
    PetscFunctionBeginUser;
    PetscCall(KSPSetUp(solver->ksp));
    PetscCall(KSPSetUpOnBlocks(solver->ksp));
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscFunctionBeginUser;
  PetscCall(TimeCalls(config.backend, set_up, seconds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Solves from x = 0 */
static PetscErrorCode SolverRun(const Config &config, Solver *solver, PetscLogDouble *seconds)
{
  PetscFunctionBeginUser;
  PetscCall(VecSet(solver->x, 0.));
  PetscCall(TimeLimitBegin(&solver->limit));
  PetscCall(TimeCalls(config.backend, [&]() { return KSPSolve(solver->ksp, solver->b, solver->x); }, seconds));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Solves from x = 0 and recomputes the residual */
static PetscErrorCode SolverSolve(const Config &config, Solver *solver, Timing *timing)
{
  PetscReal bnorm, rnorm;

  PetscFunctionBeginUser;
  PetscCall(SolverRun(config, solver, &timing->solve));
  PetscCall(KSPGetIterationNumber(solver->ksp, &timing->iterations));
  PetscCall(KSPGetConvergedReason(solver->ksp, &timing->reason));
  PetscCall(MatMult(solver->A, solver->x, solver->r));
  PetscCall(VecAYPX(solver->r, -1., solver->b));
  PetscCall(VecNorm(solver->b, NORM_2, &bnorm));
  PetscCall(VecNorm(solver->r, NORM_2, &rnorm));
  timing->true_residual = bnorm > 0. ? rnorm / bnorm : rnorm;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MeasureHistory(const Config &config, KSP ksp, Result *result)
{
  const PetscReal *history;
  PetscInt         length;

  PetscFunctionBeginUser;
  PetscCall(KSPGetResidualHistory(ksp, &history, &length));
  result->history_stride = PetscMax(1, (length + config.history_points - 1) / config.history_points);
  result->history.clear();
  for (PetscInt k = 0; k < length; k += result->history_stride) result->history.push_back(history[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  What PETSc's log says of a set-up with a new KSP: every event with its time, events inside others counted in both. As with
  -log_view_gpu_time, events that time the GPU wait for it; what others leave running counts where it is waited for.
*/
static PetscErrorCode LogSetUp(const Config &config, Solver *solver, PetscLogDouble *seconds, std::vector<Event> *logged)
{
  PetscLogHandler handler;
  PetscLogState   state;
  PetscInt        events;

  PetscFunctionBeginUser;
  PetscCall(SolverCreateKSP(config, solver));
  PetscCall(PetscLogHandlerCreate(PETSC_COMM_WORLD, &handler));
  PetscCall(PetscLogHandlerSetType(handler, PETSCLOGHANDLERDEFAULT));
  PetscCall(PetscLogHandlerStart(handler));
  PetscCall(SolverSetUp(config, solver, seconds));
  PetscCall(PetscLogHandlerGetState(handler, &state));
  PetscCall(PetscLogStateGetNumEvents(state, &events));
  for (PetscLogEvent event = 0; event < events; event++) {
    PetscEventPerfInfo *info = nullptr;
    PetscLogEventInfo   named;

    PetscCall(PetscLogHandlerGetEventPerfInfo(handler, 0, event, &info));
    if (!info || !info->count) continue;
    PetscCall(PetscLogStateEventGetInfo(state, event, &named));
    logged->push_back({named.name, info->count, info->time});
  }
  PetscCall(PetscLogHandlerStop(handler));
  PetscCall(PetscLogHandlerDestroy(&handler));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The fastest of as many warm set-ups as there are repeats. One more comes first, with the log for the first time, and does not
   count.
*/
static PetscErrorCode MeasureEvents(const Config &config, Solver *solver, Result *result)
{
  PetscLogDouble best = PETSC_MAX_REAL;

  PetscFunctionBeginUser;
  for (PetscInt setup = 0; setup <= PetscMax(1, config.repeats) && !solver->limit.over; setup++) {
    PetscLogDouble     seconds;
    std::vector<Event> events;

    PetscCall(LogSetUp(config, solver, &seconds, &events));
    PetscCall(TimeLimitLook(&solver->limit, 0));
    result->logged_setups = setup;
    if (setup == 0 || seconds >= best) continue;
    best           = seconds;
    result->events = events;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Set-ups with new values in the same nonzero pattern, as in a Newton or time loop: the matrix is doubled and halved again, which is
  exact. The last one, back at the first values, is checked by a solve.
*/
static PetscErrorCode MeasureRefill(const Config &config, Solver *solver, Result *result)
{
  PetscLogDouble seconds;
  Timing         check;

  PetscFunctionBeginUser;
  for (PetscInt pair = 0; pair < PetscMax(1, (config.repeats + 1) / 2) && !solver->limit.over; pair++) {
    for (const PetscScalar factor : {2., 0.5}) {
      PetscCall(MatScale(solver->A, factor));
      PetscCall(KSPSetOperators(solver->ksp, solver->A, solver->A));
      PetscCall(SolverSetUp(config, solver, &seconds));
      result->refill.push_back(seconds);
    }
    PetscCall(TimeLimitLook(&solver->limit, 0));
  }
  if (!solver->limit.over) PetscCall(SolverSolve(config, solver, &check));
  if (!solver->limit.over && (check.reason <= 0 || check.iterations != result->runs.back().iterations))
    result->note +=
      "after a refill: " + std::to_string(check.iterations) + " iterations, " + KSPConvergedReasons[check.reason] + "; ";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Joules of a call, the mean of those that take config.energy seconds together. */
static PetscErrorCode MeanEnergy(const Config &config, const std::function<PetscErrorCode()> &call, PetscLogDouble *joules)
{
  PetscLogDouble before, after, seconds, spent = 0.;
  PetscInt       calls = 0;

  PetscFunctionBeginUser;
  PetscCall(EnergyUsed(config.backend, &before));
  do {
    PetscCall(TimeCalls(config.backend, call, &seconds));
    spent += seconds;
    calls++;
  } while (spent < config.energy);
  PetscCall(EnergyUsed(config.backend, &after));
  *joules = before < 0. ? 0. : (after - before) / (PetscLogDouble)calls;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Of set-ups with new KSPs, and of solves with one of them */
static PetscErrorCode MeasureEnergy(const Config &config, Solver *solver, Result *result)
{
  PetscLogDouble seconds;

  PetscFunctionBeginUser;
  PetscCall(MeanEnergy(
    config,
    [&]() {
      PetscFunctionBeginUser;
      PetscCall(SolverCreateKSP(config, solver, false));
      PetscCall(SolverSetUp(config, solver, &seconds));
      PetscFunctionReturn(PETSC_SUCCESS);
    },
    &result->setup_joules));
  PetscCall(MeanEnergy(config, [&]() { return SolverRun(config, solver, &seconds); }, &result->solve_joules));
  if (result->solve_joules <= 0.) result->note += "no counter of energy; ";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The largest true residual of the columns of A X = B */
static PetscErrorCode ColumnsResidual(Solver *solver, Mat B, Mat X, PetscInt columns, PetscReal *largest)
{
  PetscFunctionBeginUser;
  *largest = 0.;
  for (PetscInt c = 0; c < columns; c++) {
    Vec       b, x;
    PetscReal bnorm, rnorm;

    PetscCall(MatDenseGetColumnVecRead(X, c, &x));
    PetscCall(MatMult(solver->A, x, solver->r));
    PetscCall(MatDenseRestoreColumnVecRead(X, c, &x));
    PetscCall(MatDenseGetColumnVecRead(B, c, &b));
    PetscCall(VecAYPX(solver->r, -1., b));
    PetscCall(VecNorm(b, NORM_2, &bnorm));
    PetscCall(MatDenseRestoreColumnVecRead(B, c, &b));
    PetscCall(VecNorm(solver->r, NORM_2, &rnorm));
    *largest = PetscMax(*largest, bnorm > 0. ? rnorm / bnorm : rnorm);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  The right-hand side of the system and random ones beside it, all solved by one KSPMatSolve(): the best of the warm runs with the
  same KSP, which has no history, since a solver may keep one for a single right-hand side alone.
*/
static PetscErrorCode MeasureColumns(const Config &config, Solver *solver, Result *result)
{
  Mat                B, X;
  PetscInt           rows;
  PetscRandom        random;
  KSPConvergedReason reason;
  std::string        text;

  PetscFunctionBeginUser;
  PetscCall(SolverCreateKSP(config, solver, false));
  PetscCall(VecGetLocalSize(solver->b, &rows));
  PetscCall(MatCreate(PETSC_COMM_WORLD, &B));
  PetscCall(MatSetSizes(B, rows, PETSC_DECIDE, PETSC_DETERMINE, config.columns));
  PetscCall(MatSetType(B, config.backend.petsc ? MATDENSECUDA : MATDENSE));
  PetscCall(MatSetUp(B));
  PetscCall(MatDuplicate(B, MAT_DO_NOT_COPY_VALUES, &X));
  PetscCall(PetscRandomCreate(PETSC_COMM_WORLD, &random));
  PetscCall(PetscRandomSetFromOptions(random));
  for (PetscInt c = 0; c < config.columns; c++) {
    Vec b;

    PetscCall(MatDenseGetColumnVecWrite(B, c, &b));
    PetscCall(c ? VecSetRandom(b, random) : VecCopy(solver->b, b));
    PetscCall(MatDenseRestoreColumnVecWrite(B, c, &b));
  }
  PetscCall(PetscRandomDestroy(&random));
  for (Mat *M : {&B, &X}) {
    PetscCall(MatAssemblyBegin(*M, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(*M, MAT_FINAL_ASSEMBLY));
  }
  for (PetscInt run = 0; run <= PetscMax(1, config.repeats) && !solver->limit.over; run++) {
    PetscLogDouble seconds;

    PetscCall(TimeLimitBegin(&solver->limit));
    PetscCall(TimeCalls(config.backend, [&]() { return KSPMatSolve(solver->ksp, B, X); }, &seconds));
    PetscCall(TimeLimitLook(&solver->limit, 0));
    if (run) result->columns_seconds = result->columns_seconds > 0. ? PetscMin(result->columns_seconds, seconds) : seconds;
  }
  PetscCall(KSPGetIterationNumber(solver->ksp, &result->columns_its));
  PetscCall(KSPGetConvergedReason(solver->ksp, &reason));
  PetscCall(ColumnsResidual(solver, B, X, config.columns, &result->columns_residual));
  PetscCall(KSPText(solver->ksp, &text));
  for (const auto &line : Lines(text))
    if (line.find("right-hand sides") != std::string::npos || line.rfind("column ", 0) == 0) result->columns_view.push_back(line);
  if (reason <= 0) result->note += std::string("several right-hand sides: ") + KSPConvergedReasons[reason] + "; ";
  PetscCall(MatDestroy(&X));
  PetscCall(MatDestroy(&B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* u = x (x - 1) y (y - 1) exp(x y) on the unit square */
static PetscErrorCode FillSmooth(const System &system, Vec u)
{
  const PetscInt nx = system.grid[0], ny = system.grid[1];

  PetscFunctionBeginUser;
  PetscCheck(nx > 0 && system.grid[2] == 1 && nx * ny == system.rows, PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT,
             "-smooth needs generated two-dimensional systems with one unknown per point, not %s", system.name.c_str());
  PetscCall(VecFill(u, [&](PetscInt row) {
    const PetscInt  point = SystemPoint(system, row);
    const PetscReal x = (PetscReal)(point % nx + 1) / (PetscReal)(nx + 1), y = (PetscReal)(point / nx + 1) / (PetscReal)(ny + 1);

    return x * (x - 1.) * y * (y - 1.) * PetscExpReal(x * y);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  What preconditioner and solver have taken since `before`, all ranks together. Ranks that share a device count each other's bytes
  there, so that with several the number is one from above.
*/
static PetscErrorCode MeasureMemory(const Config &config, PetscLogDouble before, Result *result)
{
  PetscLogDouble now;

  PetscFunctionBeginUser;
  PetscCall(MemoryInUse(config.backend, &now));
  result->memory_bytes = PetscMax(0., now - before);
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &result->memory_bytes, 1, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How a solver on several ranks has communicated, by its view */
static PetscErrorCode FindCommunication(KSP ksp, Result *result)
{
  std::string text;
  PetscBool   fused;

  PetscFunctionBeginUser;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPCGFUSED, &fused));
  if (!fused) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPText(ksp, &text));
  result->communication = LineValue(text, "communication: ");
  if (!result->communication.empty()) result->note += result->communication + "; ";
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MeasureSet(const Config &config, System *system, Solver *solver, Result *result)
{
  PC             pc;
  KSPType        ksp_type;
  PCType         pc_type;
  PetscLogDouble before;

  PetscFunctionBeginUser;
  PetscCall(SolverCreateMat(config, system, solver));
  PetscCall(MatCreateVecs(solver->A, &solver->x, &solver->b));
  PetscCall(VecDuplicate(solver->b, &solver->r));
  PetscCall(VecSet(solver->x, 1.));
  if (config.smooth) PetscCall(FillSmooth(*system, solver->x));
  if (system->b) PetscCall(VecCopy(system->b, solver->b));
  else PetscCall(MatMult(solver->A, solver->x, solver->b));

  PetscCall(MemoryInUse(config.backend, &before));
  PetscCall(PetscTime(&solver->limit.end));
  solver->limit.end += config.set_limit > 0. ? config.set_limit : PETSC_MAX_REAL;
  for (PetscInt run = 0; run <= config.repeats && !solver->limit.over; run++) {
    Timing timing;

    PetscCall(SolverCreateKSP(config, solver));
    PetscCall(SolverSetUp(config, solver, &timing.setup));
    PetscCall(SolverSolve(config, solver, &timing));
    if (run == 0) PetscCall(MeasureMemory(config, before, result));
    if (run > 0 && solver->limit.over) break; /* half a run counts only where there is no other */
    PetscCall(MeasureHistory(config, solver->ksp, result));
    for (PetscInt solve = 1; run > 0 && solve < config.solves && !solver->limit.over; solve++) {
      Timing again;

      PetscCall(SolverSolve(config, solver, &again));
      if (solver->limit.over) break;
      timing.later.push_back({again.solve, again.iterations});
    }
    if (!timing.later.empty()) timing.again = timing.later[0].seconds;
    result->runs.push_back(timing);
    if (!solver->limit.over) PetscCall(TimeLimitLook(&solver->limit, 0));
    if (run == 0 && config.repeats > 0 && !solver->limit.over && timing.setup + timing.solve > config.skip_above) {
      result->note += "first use only, it took longer than -skip_above; ";
      break;
    }
  }

  PetscCall(KSPGetPC(solver->ksp, &pc));
  PetscCall(KSPGetType(solver->ksp, &ksp_type));
  PetscCall(PCGetType(pc, &pc_type));
  result->ksp_type = ksp_type;
  result->pc_type  = pc_type;
  PetscCall(PCDensity(pc, &result->density));
  PetscCall(MeasureView(pc, result));
  PetscCall(PCApplyBytes(pc, system->rows, &result->apply_bytes));
  PetscCall(IterationBytes(solver->ksp, *system, result->runs.back().iterations, result->apply_bytes, &result->iteration_bytes));

  const Timing &last = result->runs.back();
  if (last.iterations > kHistory) result->note += "the history is that of the first " + std::to_string(kHistory) + " iterations; ";
  if (solver->limit.over && (PetscInt)result->runs.size() <= config.repeats)
    result->note +=
      "time limit: " + std::to_string(result->runs.size() - 1) + " of " + std::to_string(config.repeats) + " warm runs; ";
  if (solver->limit.over && last.reason == KSP_DIVERGED_USER) result->status = "time limit";
  else if (last.reason < 0) {
    result->status = "diverged";
    result->note += KSPConvergedReasons[last.reason];
    if (last.reason == KSP_DIVERGED_PC_FAILED) {
      PCFailedReason why;

      PetscCall(PCGetFailedReason(pc, &why));
      result->note += std::string(": ") + PCFailedReasons[why];
    }
    result->note += "; ";
  } else result->status = last.true_residual <= 1.05 * config.true_rtol ? "ok" : "missed"; /* a NaN is a miss, too */

  if (solver->limit.over) PetscFunctionReturn(PETSC_SUCCESS);
  if (last.reason != KSP_DIVERGED_PC_FAILED && config.applies > 0) {
    PetscCall(TimeWarmCalls(config, [&]() { return PCApply(pc, solver->b, solver->r); }, &result->apply_seconds));
  }
  if (last.reason > 0) PetscCall(FindCommunication(solver->ksp, result));
  if (last.reason != KSP_DIVERGED_PC_FAILED && config.breakdown) PetscCall(MeasureEvents(config, solver, result));
  if (last.reason > 0 && config.refill) PetscCall(MeasureRefill(config, solver, result));
  if (last.reason > 0 && config.columns > 0 && !solver->limit.over) PetscCall(MeasureColumns(config, solver, result));
  if (last.reason > 0 && config.energy > 0. && !solver->limit.over) PetscCall(MeasureEnergy(config, solver, result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Keeps the message of the first error where a call fails on a rank, and goes on */
static PetscErrorCode Try(const std::function<PetscErrorCode()> &call, std::string *error, PetscBool *failed)
{
  PetscMPIInt any;

  PetscFunctionBeginUser;
  PetscCall(PetscPushErrorHandler(KeepFirstError, error));
  any = call() != PETSC_SUCCESS;
  PetscCall(PetscPopErrorHandler());
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD));
  *failed = (PetscBool)any;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Measures one option set; whatever goes wrong becomes the result, and the run goes on */
static PetscErrorCode MeasureSetGuarded(const Config &config, System *system, Result *result)
{
  Solver       solver;
  PetscOptions database;
  std::string  error, ignored, unused;
  PetscBool    failed, left;

  PetscFunctionBeginUser;
  PetscCall(OptionsPush(config, result->set, &database));
  PetscCall(Try([&]() { return MeasureSet(config, system, &solver, result); }, &error, &failed));
  if (failed) { /* the solver is destroyed as far as that is possible after an error */
    PetscCall(Try([&]() { return SolverDestroy(&solver); }, &ignored, &left));
    if (left) result->note += "left memory behind; ";
    result->status = "failed";
    result->note += error.substr(0, error.find('\n'));
  } else PetscCall(SolverDestroy(&solver));
  PetscCall(OptionsPop(config, &database, &unused));
  if (!unused.empty() && !failed) result->note += "unused options: " + unused + "; ";
  while (!result->note.empty() && (result->note.back() == ' ' || result->note.back() == ';')) result->note.pop_back();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- main -------------------------------------------- */

static PetscErrorCode MeasureSystem(const Config &config, System *system, std::set<std::string> *used,
                                    std::vector<SystemResults> *all, PetscBool *written)
{
  std::vector<OptionSet> sets;

  PetscFunctionBeginUser;
  PetscCall(SystemMeasureMatMult(config, system));
  PetscCall(SystemSets(config, *system, &sets));
  all->push_back({*system, {}});
  all->back().system.A = nullptr;
  for (const auto &set : sets) {
    Result      result;
    PetscBool   failed;
    std::string error;

    result.set              = set;
    result.first_in_process = used->insert(set.label).second;
    PetscCall(MeasureSetGuarded(config, system, &result));
    PetscCall(ReportRow(config, *system, result));
    all->back().results.push_back(result);
    /* After every row, so that a crash loses one row only. Where the files cannot be written the run goes on, and says so. */
    PetscCall(Try([&]() { return ReportFiles(config, *all); }, &error, &failed));
    if (failed) PetscCall(PetscFPrintf(PETSC_COMM_WORLD, PETSC_STDERR, "finepc_bench: %s\n", error.c_str()));
    *written = (PetscBool)!failed;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  Config                     config;
  std::vector<SystemResults> all;
  std::set<std::string>      used; /* labels that have run in this process */
  PetscBool                  passed = PETSC_TRUE, failed, written = PETSC_TRUE;
  int                        exit_code = -1;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, nullptr, kHelp));
  PetscCall(FinePCInitializePackage());
#if defined(FINEPC_PETSC_CUDA)
  PetscCall(PCBsrsv2Register());
#endif
  PetscCall(CommandLineRead(argc, argv, &config, &exit_code));
  if (exit_code >= 0) {
    PetscCall(PetscFinalize());
    return exit_code;
  }
  PetscCall(BackendSetUp(config.choice, (PetscBool)!config.check, &config.backend));
  BackendAsk(&config);
  if (config.check) PetscCall(PackagesPrint(config.backend));
  else PetscCall(ReportHeader(config));
  for (const auto &spec : config.systems) {
    System      system;
    std::string error;

    /* A system that cannot be made is reported, and the run goes on with the next. */
    PetscCall(Try([&]() { return SystemCreate(PETSC_COMM_WORLD, spec, config.backend, &system); }, &error, &failed));
    if (failed)
      PetscCall(PetscFPrintf(PETSC_COMM_WORLD, PETSC_STDERR, "finepc_bench: system %s: %s\n", spec.c_str(), error.c_str()));
    if (!failed && !config.coordinates.empty()) PetscCall(SystemSetCoordinates(config.coordinates, &system));
    if (failed) passed = PETSC_FALSE;
    else if (config.check) PetscCall(SystemCheck(system, config.true_rtol, &passed));
    else PetscCall(MeasureSystem(config, &system, &used, &all, &written));
    PetscCall(SystemDestroy(&system));
  }
  if (config.check) PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s\n", passed ? "all checks passed" : "SOME CHECKS FAILED"));
  PetscCall(PetscFinalize());
  return passed && written ? 0 : 1;
}
