#pragma once

/*
  Block ILU(0) and its triangular solves as cuSPARSE has them: bsrilu02 and bsrsv2, both by levels. They are deprecated and go with
  cuSPARSE's next major release.
*/
#define DISABLE_CUSPARSE_DEPRECATED /* the compiler does not warn of deprecated functions */
#include <petscdevice_cuda.h>
#include "sparse/bsr.h"

#define HAVE_BSRSV2 (CUSPARSE_VER_MAJOR < 13)

/* cuSPARSE on PETSc's stream, with the descriptions of A, of its unit lower and of its upper triangle */
struct CuSPARSE {
  cusparseHandle_t   handle = nullptr;
  cusparseMatDescr_t A = nullptr, L = nullptr, U = nullptr;

  PetscErrorCode Create()
  {
    cudaStream_t stream;

    PetscFunctionBeginUser;
    PetscCall(PetscGetCurrentCUDAStream(&stream));
    PetscCallCUSPARSE(cusparseCreate(&handle));
    PetscCallCUSPARSE(cusparseSetStream(handle, stream));
    for (auto description : {&A, &L, &U})
      PetscCallCUSPARSE(cusparseCreateMatDescr(description)); /* general matrices, indices from 0 */
    PetscCallCUSPARSE(cusparseSetMatFillMode(L, CUSPARSE_FILL_MODE_LOWER));
    PetscCallCUSPARSE(cusparseSetMatDiagType(L, CUSPARSE_DIAG_TYPE_UNIT));
    PetscCallCUSPARSE(cusparseSetMatFillMode(U, CUSPARSE_FILL_MODE_UPPER));
    PetscCallCUSPARSE(cusparseSetMatDiagType(U, CUSPARSE_DIAG_TYPE_NON_UNIT));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ~CuSPARSE()
  {
    for (auto description : {A, L, U}) {
      if (description) (void)cusparseDestroyMatDescr(description);
    }
    if (handle) (void)cusparseDestroy(handle);
  }
};

#if HAVE_BSRSV2
/* The diagonal blocks of the factor are kept factored, not inverted as PETSc's are; the preconditioner is the same. */
class Bsrsv2 {
public:
  Bsrsv2()                          = default;
  Bsrsv2(const Bsrsv2 &)            = delete;
  Bsrsv2 &operator=(const Bsrsv2 &) = delete;
  ~Bsrsv2();

  /* The blocks are on the device. The arrays of rows and columns stay those of A, the values are copied. */
  PetscErrorCode Create(const CuSPARSE &cusparse, const BSRView &A);
  PetscErrorCode Analyse();                    /* once for a pattern */
  PetscErrorCode CopyValues(const BSRView &A); /* before each factorization, which overwrites them */
  PetscErrorCode Factor();
  PetscErrorCode CheckPivots();
  PetscErrorCode Solve(const PetscScalar *r, PetscScalar *z); /* z = U^{-1} L^{-1} r, on the device */

private:
  const CuSPARSE *cusparse = nullptr;
  BSRView         A        = {};
  double         *a = nullptr, *middle = nullptr;
  void           *buffer = nullptr;
  bsrilu02Info_t  A_info = nullptr;
  bsrsv2Info_t    L_info = nullptr, U_info = nullptr;
};
#endif
