/*
  The machine: which device there is, what time it is there, how fast it copies.
*/
#include "bench.h"
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <petscdevice.h>

/*
   The time when every rank's device has nothing left to do: PETSc and finepc launch on the stream of the current device context, or
   on a stream of finepc's.
*/
static PetscErrorCode TimeSynchronized(const Backend &backend, PetscLogDouble *now)
{
  PetscFunctionBeginUser;
#if defined(FINEPC_HAVE_CUDA)
  if (backend.cuda && !backend.petsc) PetscCall(GPUSynchronize());
#endif
  if (backend.petsc) {
    PetscDeviceContext context;

    PetscCall(PetscDeviceContextGetCurrentContext(&context));
    PetscCall(PetscDeviceContextSynchronize(context));
  }
  PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
  PetscCall(PetscTime(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TimeCalls(const Backend &backend, const std::function<PetscErrorCode()> &call, PetscLogDouble *seconds,
                         PetscInt calls, int batches)
{
  PetscLogDouble start, end;

  PetscFunctionBeginUser;
  *seconds = PETSC_MAX_REAL;
  for (int batch = 0; batch < batches; batch++) {
    PetscCall(TimeSynchronized(backend, &start));
    for (PetscInt k = 0; k < calls; k++) PetscCall(call());
    PetscCall(TimeSynchronized(backend, &end));
    *seconds = PetscMin(*seconds, (end - start) / (PetscLogDouble)calls);
  }
  PetscCallMPI(MPI_Bcast(seconds, 1, MPI_DOUBLE, 0, PETSC_COMM_WORLD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

std::string LineValue(const std::string &text, const std::string &key)
{
  const size_t at = text.find(key);

  if (at == std::string::npos) return "";
  const size_t begin = PetscMin(text.find_first_not_of(" \t:", at + key.size()), text.size());
  return text.substr(begin, text.find('\n', begin) - begin);
}

static std::string FileText(const char path[])
{
  std::ifstream file(path);

  return std::string(std::istreambuf_iterator<char>(file), {});
}

PetscErrorCode ViewText(MPI_Comm comm, const std::function<PetscErrorCode(PetscViewer)> &view, std::string *text)
{
  char       *memory = nullptr;
  size_t      size   = 0;
  PetscViewer viewer;

  PetscFunctionBeginUser;
  FILE *stream = open_memstream(&memory, &size);
  PetscCheck(stream, PETSC_COMM_SELF, PETSC_ERR_MEM, "Cannot open a stream in memory");
  PetscCall(PetscViewerASCIIOpenWithFILE(comm, stream, &viewer));
  PetscCall(view(viewer));
  PetscCall(PetscViewerDestroy(&viewer));
  std::fclose(stream);
  text->assign(memory, size);
  std::free(memory);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The name of the device, as PetscDeviceView() prints it */
static PetscErrorCode DeviceName(PetscDevice device, std::string *name)
{
  std::string text;

  PetscFunctionBeginUser;
  PetscCall(ViewText(PETSC_COMM_SELF, [&](PetscViewer viewer) { return PetscDeviceView(device, viewer); }, &text));
  *name = LineValue(text, "name:");
  if (name->empty()) *name = "CUDA device";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ...": the first word with two dots or one that is all digits and dots
*/
static std::string DriverVersion()
{
  std::istringstream words(LineValue(FileText("/proc/driver/nvidia/version"), "NVRM version:"));
  std::string        word;

  while (words >> word) {
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  }
  return "unknown";
}

#if defined(FINEPC_PETSC_CUDA)
static constexpr bool kPetscHasCUDA = true;
#else
static constexpr bool kPetscHasCUDA = false;
#endif

#if defined(FINEPC_HAVE_CUDA)
static constexpr bool kFinePCHasCUDA = true;
#else
static constexpr bool kFinePCHasCUDA = false;
#endif

/*
   Whether there is a CUDA device. PETSc has no function that tells, so that a PetscDevice is created: that is an error where there
   is no device, which nobody needs to read.
*/
static PetscErrorCode BackendFindDevice(Backend *backend)
{
  PetscDevice device = nullptr;
  PetscMPIInt found  = 0;

  PetscFunctionBeginUser;
#if defined(FINEPC_HAVE_CUDA)
  if (!kPetscHasCUDA) {
    PetscMPIInt rank;
    MPI_Comm    machine;

    PetscCallMPI(MPI_Comm_split_type(PETSC_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
    PetscCallMPI(MPI_Comm_rank(machine, &rank));
    PetscCallMPI(MPI_Comm_free(&machine));
    PetscCall(GPUFind(rank, &backend->device));
    found = !backend->device.empty();
  }
#endif
  if (kPetscHasCUDA) {
    PetscCall(PetscPushErrorHandler(PetscReturnErrorHandler, nullptr));
    found = PetscDeviceCreate(PETSC_DEVICE_CUDA, PETSC_DECIDE, &device) == PETSC_SUCCESS;
    PetscCall(PetscPopErrorHandler());
    if (found) {
      PetscCall(PetscDeviceConfigure(device));
      PetscCall(DeviceName(device, &backend->device));
      PetscCall(PetscDeviceDestroy(&device));
    } else PetscCall(PetscFree(device));
  }
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &found, 1, MPI_INT, MPI_MIN, PETSC_COMM_WORLD));
  backend->cuda  = found != 0;
  backend->petsc = backend->cuda && kPetscHasCUDA;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Best of several copies of a vector far larger than the caches: bytes read + bytes written per second, all ranks together */
static PetscErrorCode BackendMeasureCopy(Backend *backend)
{
  const PetscInt n = (backend->cuda ? 256 : 64) * 1024 * 1024 / (PetscInt)sizeof(PetscScalar); /* per rank */
  PetscLogDouble seconds;
  PetscMPIInt    size;
  Vec            x, y;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
#if defined(FINEPC_HAVE_CUDA)
  if (backend->cuda && !backend->petsc) {
    PetscCall(GPUTimeCopy(*backend, n * sizeof(PetscScalar), &seconds));
    backend->copy_gbs = 2. * sizeof(PetscScalar) * (PetscLogDouble)n * size / seconds * 1e-9;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
#endif
  PetscCall(VecCreate(PETSC_COMM_WORLD, &x));
  PetscCall(VecSetSizes(x, n, PETSC_DECIDE));
  PetscCall(VecSetType(x, backend->vec_type));
  PetscCall(VecDuplicate(x, &y));
  PetscCall(VecSet(x, 1.));
  PetscCall(VecSet(y, 2.));
  PetscCall(TimeCalls(*backend, [&]() { return VecCopy(x, y); }, &seconds, backend->cuda ? 10 : 1, 10));
  PetscCall(VecDestroy(&y));
  PetscCall(VecDestroy(&x));
  backend->copy_gbs = 2. * sizeof(PetscScalar) * (PetscLogDouble)n * size / seconds * 1e-9;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BackendSetUp(const std::string &choice, PetscBool measure, Backend *backend)
{
  const bool host = choice == "host", cuda = choice == "cuda";

  PetscFunctionBeginUser;
  PetscCheck(host || cuda || choice == "auto", PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT, "-backend is host, cuda or auto, not %s",
             choice.c_str());
  if (!host) PetscCall(BackendFindDevice(backend));
  PetscCheck(!cuda || backend->cuda, PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT,
             kFinePCHasCUDA ? "-backend cuda: no CUDA device found on every rank"
                            : "-backend cuda: this finepc was built without CUDA");
  if (backend->cuda) backend->driver = DriverVersion();
  if (backend->petsc) {
    backend->mat_type = MATAIJCUSPARSE;
    backend->vec_type = VECCUDA;
    PetscCall(PetscDeviceInitialize(PETSC_DEVICE_CUDA));
  } else if (!backend->cuda) {
    backend->device = LineValue(FileText("/proc/cpuinfo"), "model name");
    if (backend->device.empty()) backend->device = "host";
  }
  if (measure) PetscCall(BackendMeasureCopy(backend));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MemoryInUse([[maybe_unused]] const Backend &backend, PetscLogDouble *bytes)
{
  PetscFunctionBeginUser;
  PetscCall(PetscMemoryGetCurrentUsage(bytes));
#if defined(FINEPC_HAVE_CUDA)
  if (backend.cuda) {
    size_t of_gpu;

    PetscCall(GPUMemoryInUse(&of_gpu));
    *bytes += (PetscLogDouble)of_gpu;
  }
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if defined(FINEPC_HAVE_CUDA)
/* Millijoules of the current GPU. NVML comes with the driver, so that a program that links to it starts on no other machine. */
static PetscErrorCode ReadNVML(unsigned long long *millijoules)
{
  typedef int (*Init)();
  typedef int (*HandleByBus)(const char[], void **);
  typedef int (*TotalEnergy)(void *, unsigned long long *);
  static PetscDLHandle library = nullptr;
  static void         *device  = nullptr;
  static void         *read    = nullptr;

  PetscFunctionBeginUser;
  if (!device) {
    void *init, *find;
    char  bus[32];

    PetscCall(PetscDLOpen("libnvidia-ml.so.1", PETSC_DL_DECIDE, &library));
    PetscCall(PetscDLSym(library, "nvmlInit_v2", &init));
    PetscCall(PetscDLSym(library, "nvmlDeviceGetHandleByPciBusId_v2", &find));
    PetscCall(PetscDLSym(library, "nvmlDeviceGetTotalEnergyConsumption", &read));
    PetscCheck(init && find && read, PETSC_COMM_SELF, PETSC_ERR_LIB, "The driver's NVML counts no energy");
    PetscCall(GPUBus(sizeof(bus), bus));
    PetscCheck(!((Init)init)() && !((HandleByBus)find)(bus, &device), PETSC_COMM_SELF, PETSC_ERR_LIB, "NVML does not find GPU %s",
               bus);
  }
  PetscCheck(!((TotalEnergy)read)(device, millijoules), PETSC_COMM_SELF, PETSC_ERR_SUP, "NVML counts no energy on this GPU");
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

PetscErrorCode EnergyUsed([[maybe_unused]] const Backend &backend, PetscLogDouble *joules)
{
  PetscLogDouble mine = -1., least;

  PetscFunctionBeginUser;
#if defined(FINEPC_HAVE_CUDA)
  unsigned long long millijoules;

  PetscCall(PetscPushErrorHandler(PetscReturnErrorHandler, nullptr));
  if (backend.cuda && ReadNVML(&millijoules) == PETSC_SUCCESS) mine = 1e-3 * (PetscLogDouble)millijoules;
  PetscCall(PetscPopErrorHandler());
#endif
  PetscCallMPI(MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, PETSC_COMM_WORLD));
  PetscCallMPI(MPI_Allreduce(&mine, joules, 1, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD));
  if (least < 0.) *joules = -1.;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscLogDouble FloorFraction(const Backend &backend, PetscLogDouble bytes, PetscLogDouble seconds)
{
  return bytes > 0. && seconds > 0. && backend.copy_gbs > 0. ? bytes / (backend.copy_gbs * 1e9) / seconds : 0.;
}

/* The first call has the message of the place where the error arose; the calls that follow are from functions that pass it on. */
PetscErrorCode KeepFirstError(MPI_Comm, int, const char *, const char *, PetscErrorCode code, PetscErrorType type,
                              const char *message, void *ctx)
{
  std::string *kept = static_cast<std::string *>(ctx);

  if (type == PETSC_ERROR_INITIAL || kept->empty()) {
    const char *generic = nullptr;

    (void)PetscErrorMessage(code, &generic, nullptr);
    *kept = message && message[0] && message[0] != ' ' ? message : (generic ? generic : "error without a message");
  }
  return code;
}
