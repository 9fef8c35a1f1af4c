/* Memory of the host or of the device, and the precisions in which factors are stored in it. */
#pragma once

#include <finepc.h>

/* Without the CUDA twins everything happens on the host, on matrices and vectors of PETSc's CUDA types, too. */
#if defined(FINEPC_HAVE_CUDA)
constexpr bool kHasCUDA = true;
#else
constexpr bool kHasCUDA = false;
#endif

size_t FinePCPrecisionBytes(FinePCPrecision); /* of one value */

/* Plain memory of either kind; a zero size gives a null pointer. */
PetscErrorCode ArrayCreate_Host(size_t bytes, void **);
PetscErrorCode ArrayCreate_CUDA(size_t bytes, void **);
PetscErrorCode ArrayDestroy_Host(void **);
PetscErrorCode ArrayDestroy_CUDA(void **);
PetscErrorCode ArrayCopy_CUDA(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where);
PetscErrorCode DeviceFound_CUDA(PetscBool *); /* false where there is none, or finepc was built without CUDA */
PetscErrorCode ArrayCreate(size_t bytes, PetscMemType, void **);
PetscErrorCode ArrayDestroy(PetscMemType, void **);
PetscErrorCode ArrayCopy(void *to, const void *from, size_t bytes, PetscMemType to_where, PetscMemType from_where);
