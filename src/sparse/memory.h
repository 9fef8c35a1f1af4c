/* Memory on the host or on the device, and the precisions in which factors are stored in memory. */
#pragma once

#include "device/device.h"
#include "local_int.h"

size_t FinePCPrecisionBytes(FinePCPrecision); /* bytes of one value */

/* Plain memory of either kind, by the kind. For a size of zero ArrayCreate() gives a null pointer, which ArrayDestroy() takes. */
PetscErrorCode ArrayCreate(size_t bytes, PetscMemType, void **);
PetscErrorCode ArrayDestroy(PetscMemType, void **);
PetscErrorCode ArrayCopy(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where);
PetscErrorCode ArrayZero(void *, size_t bytes, PetscMemType);
/* to[k] = from[at[k]] for k < count. `to` and `at` are on the host, `from` is where it is said to be. */
PetscErrorCode ArrayGather(size_t count, const LocalInt *at, const PetscScalar *from, PetscMemType from_where, PetscScalar *to);

/* An array that is copied. */
struct ArrayTask {
  void       *to;
  const void *from;
  size_t      bytes;
};
constexpr int kArrayTasks = 8; /* that are copied together, at most */
/* Copies so many arrays from one kind of memory to the other, or within one. */
PetscErrorCode ArraysCopy(int count, const ArrayTask[], PetscMemType to_where, PetscMemType from_where);

/* The same for one kind of memory each; ArraysCopy_CUDA() copies from, to and on the device. */
PetscErrorCode ArrayCreate_Host(size_t bytes, void **);
PetscErrorCode ArrayCreate_CUDA(size_t bytes, void **);
PetscErrorCode ArrayDestroy_Host(void **);
PetscErrorCode ArrayDestroy_CUDA(void **);
PetscErrorCode ArrayCopy_CUDA(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where);
PetscErrorCode ArraysCopy_CUDA(int count, const ArrayTask[], PetscMemType to_where, PetscMemType from_where);
PetscErrorCode ArrayZero_CUDA(void *, size_t bytes);
PetscErrorCode ArrayGather_CUDA(size_t count, const LocalInt *at, const PetscScalar *from, PetscScalar *to);

/*
   Has copies between this memory of the host and the device go straight, if the system lets it be pinned, which `pinned` tells;
   until it is given back, which must be before it is freed.
*/
PetscErrorCode MemoryPin_CUDA(void *, size_t bytes, PetscBool *pinned);
PetscErrorCode MemoryUnpin_CUDA(void *);

/* Frees what large copies between host and device have kept; when the package is finalized. */
PetscErrorCode TransferFinalize_CUDA();
