/* This file is the host twin of cuda/sparse/memory.cu. It also has the functions that serve both kinds of memory. */
#include "memory.h"

const char *const FinePCPrecisions[] = {"single", "double", "FinePCPrecision", "FINEPC_", nullptr};

size_t FinePCPrecisionBytes(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? sizeof(float) : sizeof(double);
}

PetscErrorCode ArrayCreate_Host(size_t bytes, void **data)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc(bytes, data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayDestroy_Host(void **data)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(*data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayCreate(size_t bytes, PetscMemType where, void **data)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(where)) PetscCall(ArrayCreate_CUDA(bytes, data));
  else PetscCall(ArrayCreate_Host(bytes, data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayDestroy(PetscMemType where, void **data)
{
  PetscFunctionBegin;
  if (!*data) PetscFunctionReturn(PETSC_SUCCESS);
  if (PetscMemTypeDevice(where)) PetscCall(ArrayDestroy_CUDA(data));
  else PetscCall(ArrayDestroy_Host(data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayCopy(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where)
{
  const ArrayTask task{to, from, bytes};

  PetscFunctionBegin;
  PetscCall(ArraysCopy(1, &task, to_where, from_where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArraysCopy(int count, const ArrayTask task[], PetscMemType to_where, PetscMemType from_where)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(to_where) || PetscMemTypeDevice(from_where)) PetscCall(ArraysCopy_CUDA(count, task, to_where, from_where));
  else
    for (int k = 0; k < count; k++) PetscCall(PetscMemcpy(task[k].to, task[k].from, task[k].bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayGather(size_t count, const LocalInt *at, const PetscScalar *from, PetscMemType from_where, PetscScalar *to)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(from_where)) PetscCall(ArrayGather_CUDA(count, at, from, to));
  else
    for (size_t k = 0; k < count; k++) to[k] = from[at[k]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayZero(void *data, size_t bytes, PetscMemType where)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(where)) PetscCall(ArrayZero_CUDA(data, bytes));
  else PetscCall(PetscMemzero(data, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}
