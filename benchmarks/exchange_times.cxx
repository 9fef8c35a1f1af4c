static char help[] = "What an exchange and a sum of cgfused on several GPUs take by themselves, beside results of finepc_bench:\n"
                     "  mpiexec -n <ranks> finepc_exchange -results bench.json\n"
                     "solves each system once with each of its cgfused sets, and adds exchange_s and sum_s to these results.\n\n";

/*
  In a solve the exchange is beside a product: what is hidden there is what these times and the time of an iteration on one rank
  leave over.
*/
#include "bench.h"
#include "exchange.h"
#include "text.h"

#include <nlohmann/json.hpp>

#include <fstream>

#include "ksp/cgfusedimpl.h"

static PetscErrorCode TimeByMPI(KSP ksp, int count, CommunicationTimes *times)
{
  const KSP_CGFused *cg      = (const KSP_CGFused *)ksp->data;
  const MPI_Comm     comm    = PetscObjectComm((PetscObject)ksp);
  PetscReal          sums[3] = {0, 0, 0};
  const PetscScalar *z;
  PetscMemType       where;
  PetscDeviceContext device;
  PetscLogDouble     begin, middle, end;

  PetscFunctionBeginUser;
  PetscCall(PetscDeviceContextGetCurrentContext(&device));
  PetscCall(VecGetArrayReadAndMemType(ksp->work[1], &z, &where));
  PetscCallMPI(MPI_Barrier(comm));
  PetscCall(PetscTime(&begin));
  for (int k = 0; k < count; k++) {
    PetscCall(PetscSFBcastWithMemTypeBegin(cg->exchange.sf, MPIU_SCALAR, PETSC_MEMTYPE_CUDA, z, PETSC_MEMTYPE_CUDA,
                                           cg->exchange.ghosts, MPI_REPLACE));
    PetscCall(PetscSFBcastEnd(cg->exchange.sf, MPIU_SCALAR, z, cg->exchange.ghosts, MPI_REPLACE));
    PetscCall(PetscDeviceContextSynchronize(device));
  }
  PetscCall(PetscTime(&middle));
  for (int k = 0; k < count; k++) PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, 3, MPIU_REAL, MPIU_SUM, comm));
  PetscCall(PetscTime(&end));
  PetscCall(VecRestoreArrayReadAndMemType(ksp->work[1], &z));
  times->exchange = (middle - begin) / count;
  times->sum      = (end - middle) / count;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The most of any rank, as the last solve communicates: by NCCL in a graph, or by MPI with a wait for the GPU; 0 without own
 * products */
static PetscErrorCode TimeCommunication(KSP ksp, CommunicationTimes *times)
{
  constexpr int      kCount = 100;
  const KSP_CGFused *cg     = (const KSP_CGFused *)ksp->data;
  double             seconds[2];

  PetscFunctionBeginUser;
  *times = CommunicationTimes{};
  if (cg->solved && cg->several && !cg->why) {
    if (cg->nccl) PetscCall(TimeCommunication_CUDA(cg->work, kCount, times));
    else PetscCall(TimeByMPI(ksp, kCount, times));
  }
  seconds[0] = times->exchange;
  seconds[1] = times->sum;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, seconds, 2, MPI_DOUBLE, MPI_MAX, PetscObjectComm((PetscObject)ksp)));
  *times = CommunicationTimes{seconds[0], seconds[1]};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A solve with the options of a set, and the times */
static PetscErrorCode Measure(const System &system, const std::string &options, CommunicationTimes *times)
{
  PetscOptions database;
  KSP          ksp;
  Vec          x, b;

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsCreate(&database));
  PetscCall(PetscOptionsInsertString(database, options.c_str()));
  PetscCall(PetscOptionsPush(database));
  PetscCall(MatCreateVecs(system.A, &x, &b));
  PetscCall(VecSet(x, 1.));
  PetscCall(MatMult(system.A, x, b));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, system.A, system.A));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(KSPSolve(ksp, b, x));
  PetscCall(TimeCommunication(ksp, times));
  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&x));
  PetscCall(PetscOptionsPop());
  PetscCall(PetscOptionsDestroy(&database));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Complete(const Backend &backend, Json *report)
{
  PetscFunctionBeginUser;
  for (Json &entry : (*report)["systems"]) {
    System system;

    PetscCall(SystemCreate(PETSC_COMM_WORLD, entry["name"].get<std::string>(), backend, &system));
    for (Json &result : entry["results"]) {
      CommunicationTimes times;

      if (result["ksp_type"] != "cgfused" || result["status"] != "ok") continue;
      PetscCall(Measure(system, result["options"].get<std::string>(), &times));
      result["exchange_s"] = Rounded(times.exchange);
      result["sum_s"]      = Rounded(times.sum);
      PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s, %s: exchange alone %.1f us, sum alone %.1f us\n", system.name.c_str(),
                            result["label"].get<std::string>().c_str(), 1e6 * times.exchange, 1e6 * times.sum));
    }
    PetscCall(SystemDestroy(&system));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  Backend     backend;
  Json        report;
  char        path[PETSC_MAX_PATH_LEN] = "";
  PetscMPIInt rank;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, nullptr, help));
  PetscCall(FinePCInitializePackage());
  PetscCall(PetscOptionsGetString(nullptr, nullptr, "-results", path, sizeof(path), nullptr));
  std::ifstream file(path);
  PetscCheck(file, PETSC_COMM_WORLD, PETSC_ERR_FILE_OPEN, "-results %s cannot be read: name a JSON file of finepc_bench", path);
  report = Json::parse(file);
  PetscCall(BackendSetUp("cuda", PETSC_FALSE, &backend));
  PetscCall(Complete(backend, &report));
  PetscCallMPI(MPI_Comm_rank(PETSC_COMM_WORLD, &rank));
  if (!rank) PetscCall(WriteJson(path, report));
  PetscCall(PetscFinalize());
  return 0;
}
