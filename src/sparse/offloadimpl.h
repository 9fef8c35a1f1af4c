/* What offload.cxx, which keeps decisions and copies, and backend.cxx, which decides, share. */
#pragma once

#include "offload.h"

inline PetscErrorCode FreeData(void *data)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The data become those of the object, which frees them. PETSc's function for this loses them where memory ends. The container is
   one of this rank alone: if it were the communicator's, a rank without memory for it would be behind with PETSc's tags.
*/
template <auto Destroy, typename Data>
PetscErrorCode ComposeData(PetscObject object, const char name[], Data *data)
{
  PetscContainer container;

  PetscFunctionBegin;
  PetscErrorCode code = PetscContainerCreate(PETSC_COMM_SELF, &container);
  if (code) PetscCall(Destroy(data));
  PetscCall(code);
  code = PetscContainerSetPointer(container, data);
  if (!code) code = PetscContainerSetCtxDestroy(container, ContainerDestructor<Destroy>);
  if (!code) code = PetscObjectCompose(object, name, (PetscObject)container);
  PetscCall(PetscContainerDestroy(&container));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What an object keeps by this name, made if there is none yet. */
template <auto Destroy = FreeData, typename T>
PetscErrorCode GetComposed(PetscObject object, const char name[], T **data)
{
  PetscFunctionBegin;
  *data = nullptr;
  PetscCall(PetscObjectContainerQuery(object, name, (void **)data));
  if (*data) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscNew(data));
  const PetscErrorCode code = ComposeData<Destroy>(object, name, *data);
  if (code) *data = nullptr;
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How many preconditioners and solvers use a matrix, which keeps this, and where it ends first leaves it to the last of them. */
struct MatUsers {
  Mat      A; /* or null */
  PetscInt count;
};

/* Whether ranks come together, so that one of them works with the rows of all of them. */
enum class Consolidate { AUTO, OFF, ON };

struct MatDecision {
  PetscBool     made, offloaded, failed;
  PetscBool     small;     /* too few rows keep it from a GPU */
  PetscBool     apart;     /* ranks that share a GPU, or may, and do not come together keep it from there */
  PetscBool     fixed;     /* for all who use the matrix: it is one of the leaders */
  PetscBool     of_device; /* the GPU has the rows, and it is about whether ranks come together alone */
  PetscBool     by_solver; /* who asked is a solver of finepc's, or its preconditioner */
  FinePCBackend asked;
  Consolidate   together; /* what was asked of ranks that share a GPU */
  char          why[kDeviceText];
};

/* The names by which a matrix keeps these, and its group. */
constexpr char kMatUsers[] = "FinePCUsers", kMatDecision[] = "FinePCOffload", kMatGroup[] = "FinePCGroup";

/* Copies on the GPU of a matrix that nobody uses any more are freed. */
PetscErrorCode MatFreeCopies(Mat);
