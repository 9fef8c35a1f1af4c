/*
   KSPCGFUSED whose iterations the host decides about one by one, beside PETSc's KSPCG. The emulator does at once whatever it is
   given: the product that is made ahead has always ended when the host looks at the iteration before it.
*/
#include <finepc.h>

#include "pc_support.h"
#include "recorder.h"
#include "solver.h"

namespace
{

struct VectorsOnDevice {
  VectorsOnDevice() { emulated_solvers = true; }
  ~VectorsOnDevice() { emulated_solvers = false; }
};

struct Ending {
  Recorder            recorder;
  KSPConvergedReason  reason;
  PetscInt            iterations;
  std::vector<double> x, history;
};

enum class Looks { NEVER, MONITOR, TEST };

Ending SolveWith(Mat A, const std::string &options, PCType pc, Looks looks, PetscInt stop_at)
{
  Ending           solve;
  const KSPObject  ksp = MakeKSP(A, options, pc);
  const VecObject  b = RightVec(A, 2), x = RightVec(A, 5);
  const PetscReal *history;
  PetscInt         count;
  solve.recorder.stop_at = stop_at;
  if (looks == Looks::MONITOR) MUST(KSPMonitorSet(ksp, RecordMonitor, &solve.recorder, nullptr));
  if (looks == Looks::TEST) MUST(KSPSetConvergenceTest(ksp, RecordTest, &solve.recorder, nullptr));
  MUST(KSPSetResidualHistory(ksp, nullptr, 1000, PETSC_TRUE));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetConvergedReason(ksp, &solve.reason));
  MUST(KSPGetIterationNumber(ksp, &solve.iterations));
  MUST(KSPGetResidualHistory(ksp, &history, &count));
  solve.history.assign(history, history + count);
  solve.x = Values(x);
  if (!Contains(options, "cgfused")) return solve;
  const std::string view = ViewText((KSP)ksp);
  CHECK(Contains(view, "path: graph"));
  CHECK(Contains(view, "the host decides about each iteration") == (looks != Looks::NEVER));
  return solve;
}

} // namespace

TEST_CASE("cgfused: one by one on the emulated GPU, as KSPCG", "[cgfused][sanitizer]")
{
  const VectorsOnDevice on;
  const MatObject       A = CreateMat(Poisson(14, 13), MATAIJ);
  for (PCType pc : {PCNONE, PCJACOBI})
    for (const char *norm : {"preconditioned", "unpreconditioned", "natural", "none"})
      for (Looks looks : {Looks::NEVER, Looks::MONITOR, Looks::TEST})
        for (const char *more : {"-ksp_max_it 7", "-ksp_max_it 20 -ksp_initial_guess_nonzero"}) {
          const PetscInt stop_at = looks == Looks::TEST ? 5 : -1;
          CAPTURE(pc, norm, (int)looks, more);
          const std::string all  = std::string("-ksp_norm_type ") + norm + " " + more;
          const Ending      mine = SolveWith(A, all + " -ksp_type cgfused -ksp_cgfused_path graph", pc, looks, stop_at),
                       theirs    = SolveWith(A, all + " -ksp_type cg", pc, looks, stop_at);
          CHECK(mine.reason == theirs.reason);
          CHECK(mine.iterations == theirs.iterations);
          CHECK(mine.history.size() == theirs.history.size());
          CHECK(Difference(theirs.x, mine.x) <= 1e-8);
          REQUIRE(mine.recorder.calls.size() == theirs.recorder.calls.size());
          for (size_t k = 0; k < mine.recorder.calls.size(); k++) {
            const Call &my = mine.recorder.calls[k], &their = theirs.recorder.calls[k];
            CHECK(my.it == their.it);
            CHECK(my.norm == Approx(their.norm).epsilon(1e-6).margin(1e-12));
            CHECK(Difference(their.x, my.x) <= 1e-8);
            CHECK(Difference(their.r, my.r) <= 1e-5);
          }
        }
}
