/* Which of the GPUs of its machine a rank takes, where PETSc does not choose, and how many ranks a GPU has. */
#include "device.h"

namespace
{

struct Choice {
  PetscInt    named = PETSC_DECIDE; /* by an option */
  PetscMPIInt rank  = 0;            /* among those of this machine, or as PETSc counts, among all */
  PetscMPIInt ranks = 1;            /* of this machine */
};

Choice &TheChoice()
{
  static Choice choice;
  return choice;
}

} // namespace

PetscErrorCode DeviceSetUp()
{
  Choice    choice;
  MPI_Comm  machine;
  PetscBool given;

  PetscFunctionBegin;
  if (!kHasCUDA) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscOptionsGetInt(nullptr, nullptr, "-finepc_device", &choice.named, &given));
  PetscCheck(
    !given || !kPetscHasCUDA, PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT,
    "-finepc_device is for a PETSc without CUDA; this one has it and chooses the GPU: use -device_select_cuda %" PetscInt_FMT,
    choice.named);
  for (const char *key : {"-device_select", "-device_select_cuda"})
    if (kPetscHasCUDA) PetscCall(PetscOptionsGetInt(nullptr, nullptr, key, &choice.named, nullptr));
  PetscCheck(kPetscHasCUDA || choice.named >= 0 || choice.named == PETSC_DECIDE, PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT,
             "-finepc_device is the number of a GPU, from 0 on, not %" PetscInt_FMT, choice.named);
  PetscCallMPI(MPI_Comm_split_type(PETSC_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
  PetscCallMPI(MPI_Comm_rank(kPetscHasCUDA ? PETSC_COMM_WORLD : machine, &choice.rank));
  PetscCallMPI(MPI_Comm_size(machine, &choice.ranks));
  PetscCallMPI(MPI_Comm_free(&machine));
  TheChoice() = choice;
  PetscFunctionReturn(PETSC_SUCCESS);
}

int DeviceNumber(int count)
{
  const Choice &choice = TheChoice();
  return choice.named >= 0 ? (int)choice.named : (int)choice.rank % PetscMax(count, 1);
}

int DeviceRanks(int count)
{
  const int gpus = PetscMax(count, 1);
  return ((int)TheChoice().ranks + gpus - 1) / gpus;
}

PetscErrorCode DeviceView(PetscViewer viewer, const char indent[])
{
  char text[kDeviceText];

  PetscFunctionBegin;
  if (!kHasCUDA || kPetscHasCUDA) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceDescribe_CUDA(text, sizeof(text)));
  PetscCall(PetscViewerASCIIPrintf(viewer, "%sGPU: finepc's own, %s\n", indent, text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

bool DeviceMemoryGoesToMPI()
{
  return kPetscHasCUDA && use_gpu_aware_mpi;
}

PetscErrorCode VecIsOnDevice(Vec x, PetscBool *device)
{
  PetscBool bound;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)x, device, VECSEQCUDA, VECMPICUDA, ""));
  PetscCall(VecBoundToCPU(x, &bound));
  if (bound || !kPetscHasCUDA) *device = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}
