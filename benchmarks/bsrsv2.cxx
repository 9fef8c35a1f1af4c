/*
  Block ILU(0) and its triangular solves as cuSPARSE has them, bsrilu02 and bsrsv2, both by levels, as a preconditioner. They are
  deprecated and go with cuSPARSE's next major release.
*/
#define DISABLE_CUSPARSE_DEPRECATED /* the compiler does not warn of deprecated functions */
#include "bench.h"
#include <algorithm>
#include <petscdevice_cuda.h>
#include <petsc/private/pcimpl.h>
#include "sparse/bsr_mat.h"

#define HAVE_BSRSV2 (CUSPARSE_VER_MAJOR < 13)

#if HAVE_BSRSV2
static constexpr cusparseDirection_t   kDirection = CUSPARSE_DIRECTION_COLUMN;
static constexpr cusparseOperation_t   kPlain     = CUSPARSE_OPERATION_NON_TRANSPOSE;
static constexpr cusparseSolvePolicy_t kPolicy    = CUSPARSE_SOLVE_POLICY_USE_LEVEL;

/* The diagonal blocks of the factor are kept factored, not inverted as PETSc's are; the preconditioner is the same. */
struct PC_Bsrsv2 {
  cusparseHandle_t   handle = nullptr; /* on PETSc's stream */
  cusparseMatDescr_t A = nullptr, L = nullptr, U = nullptr;
  bsrilu02Info_t     A_info = nullptr;
  bsrsv2Info_t       L_info = nullptr, U_info = nullptr;
  BSRView            blocks = {}; /* of the matrix, on the device: the factor has its rows and columns */
  double            *a = nullptr, *middle = nullptr;
  void              *buffer = nullptr;
};

static PetscErrorCode PCReset_Bsrsv2(PC pc)
{
  PC_Bsrsv2 *const b = static_cast<PC_Bsrsv2 *>(pc->data);

  PetscFunctionBeginUser;
  if (!b) PetscFunctionReturn(PETSC_SUCCESS);
  if (b->A_info) (void)cusparseDestroyBsrilu02Info(b->A_info);
  if (b->L_info) (void)cusparseDestroyBsrsv2Info(b->L_info);
  if (b->U_info) (void)cusparseDestroyBsrsv2Info(b->U_info);
  for (void *memory : {(void *)b->a, (void *)b->middle, b->buffer}) (void)cudaFree(memory);
  for (auto description : {b->A, b->L, b->U})
    if (description) (void)cusparseDestroyMatDescr(description);
  if (b->handle) (void)cusparseDestroy(b->handle);
  delete b;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The factorization overwrites the values. */
static PetscErrorCode CopyValues_Bsrsv2(PC_Bsrsv2 *b, const BSRView &A)
{
  cudaStream_t stream;

  PetscFunctionBeginUser;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaMemcpyAsync(b->a, A.a, (size_t)A.nnz * A.bs * A.bs * sizeof(double), cudaMemcpyDeviceToDevice, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What depends on the pattern alone */
static PetscErrorCode Analyse_Bsrsv2(PC_Bsrsv2 *b, const BSRView &A)
{
  cudaStream_t stream;
  int          sizes[3];

  PetscFunctionBeginUser;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUSPARSE(cusparseCreate(&b->handle));
  PetscCallCUSPARSE(cusparseSetStream(b->handle, stream));
  for (auto description : {&b->A, &b->L, &b->U})
    PetscCallCUSPARSE(cusparseCreateMatDescr(description)); /* general matrices, indices from 0 */
  PetscCallCUSPARSE(cusparseSetMatFillMode(b->L, CUSPARSE_FILL_MODE_LOWER));
  PetscCallCUSPARSE(cusparseSetMatDiagType(b->L, CUSPARSE_DIAG_TYPE_UNIT));
  PetscCallCUSPARSE(cusparseSetMatFillMode(b->U, CUSPARSE_FILL_MODE_UPPER));
  PetscCallCUSPARSE(cusparseSetMatDiagType(b->U, CUSPARSE_DIAG_TYPE_NON_UNIT));
  PetscCallCUSPARSE(cusparseCreateBsrilu02Info(&b->A_info));
  PetscCallCUSPARSE(cusparseCreateBsrsv2Info(&b->L_info));
  PetscCallCUSPARSE(cusparseCreateBsrsv2Info(&b->U_info));
  b->blocks = A;
  PetscCallCUDA(cudaMalloc((void **)&b->a, (size_t)A.nnz * A.bs * A.bs * sizeof(double)));
  PetscCallCUDA(cudaMalloc((void **)&b->middle, (size_t)A.n * A.bs * sizeof(double)));
  PetscCall(CopyValues_Bsrsv2(b, A));
  PetscCallCUSPARSE(
    cusparseDbsrilu02_bufferSize(b->handle, kDirection, A.n, A.nnz, b->A, b->a, A.i, A.j, A.bs, b->A_info, &sizes[0]));
  PetscCallCUSPARSE(
    cusparseDbsrsv2_bufferSize(b->handle, kDirection, kPlain, A.n, A.nnz, b->L, b->a, A.i, A.j, A.bs, b->L_info, &sizes[1]));
  PetscCallCUSPARSE(
    cusparseDbsrsv2_bufferSize(b->handle, kDirection, kPlain, A.n, A.nnz, b->U, b->a, A.i, A.j, A.bs, b->U_info, &sizes[2]));
  PetscCallCUDA(cudaMalloc(&b->buffer, (size_t)*std::max_element(sizes, sizes + 3)));
  PetscCallCUSPARSE(
    cusparseDbsrilu02_analysis(b->handle, kDirection, A.n, A.nnz, b->A, b->a, A.i, A.j, A.bs, b->A_info, kPolicy, b->buffer));
  PetscCallCUSPARSE(
    cusparseDbsrsv2_analysis(b->handle, kDirection, kPlain, A.n, A.nnz, b->L, b->a, A.i, A.j, A.bs, b->L_info, kPolicy, b->buffer));
  PetscCallCUSPARSE(
    cusparseDbsrsv2_analysis(b->handle, kDirection, kPlain, A.n, A.nnz, b->U, b->a, A.i, A.j, A.bs, b->U_info, kPolicy, b->buffer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The analyses and bsrilu02; where only the values are new, bsrilu02 alone. */
static PetscErrorCode PCSetUp_Bsrsv2(PC pc)
{
  PetscErrorCode (*get_blocks)(Mat, const BSR **);
  const BSR *W;
  PC_Bsrsv2 *b   = static_cast<PC_Bsrsv2 *>(pc->data);
  int        row = -1;

  PetscFunctionBeginUser;
  PetscCall(PetscObjectQueryFunction((PetscObject)pc->pmat, kDeviceBlocksQuery, &get_blocks));
  PetscCheck(get_blocks, PetscObjectComm((PetscObject)pc), PETSC_ERR_SUP,
             "bsrsv2 needs blocks on the device, of one rank: -mat_type baijcuda, not %s", ((PetscObject)pc->pmat)->type_name);
  PetscCall((*get_blocks)(pc->pmat, &W));
  const BSRView A{W->bs, W->rows, W->nnz, W->i, W->j, (const PetscScalar *)W->a, W->where};

  if (b && pc->flag == SAME_NONZERO_PATTERN && b->blocks.i == A.i) PetscCall(CopyValues_Bsrsv2(b, A));
  else {
    PetscCall(PCReset_Bsrsv2(pc));
    pc->data = b = new PC_Bsrsv2;
    PetscCall(Analyse_Bsrsv2(b, A));
  }
  PetscCallCUSPARSE(
    cusparseDbsrilu02(b->handle, kDirection, A.n, A.nnz, b->A, b->a, A.i, A.j, A.bs, b->A_info, kPolicy, b->buffer));
  PetscCheck(cusparseXbsrilu02_zeroPivot(b->handle, b->A_info, &row) != CUSPARSE_STATUS_ZERO_PIVOT, PETSC_COMM_SELF,
             PETSC_ERR_MAT_LU_ZRPVT, "bsrilu02 met a zero pivot in block row %d", row);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = U^{-1} L^{-1} x */
static PetscErrorCode PCApply_Bsrsv2(PC pc, Vec x, Vec y)
{
  const PC_Bsrsv2   *b   = static_cast<PC_Bsrsv2 *>(pc->data);
  const BSRView     &A   = b->blocks;
  const double       one = 1.;
  const PetscScalar *r;
  PetscScalar       *z;
  PetscMemType       where[2];

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayReadAndMemType(x, &r, &where[0]));
  PetscCall(VecGetArrayWriteAndMemType(y, &z, &where[1]));
  PetscCheck(PetscMemTypeDevice(where[0]) && PetscMemTypeDevice(where[1]), PETSC_COMM_SELF, PETSC_ERR_SUP,
             "bsrsv2 needs vectors on the device: -vec_type cuda");
  PetscCall(PetscLogGpuTimeBegin());
  PetscCallCUSPARSE(cusparseDbsrsv2_solve(b->handle, kDirection, kPlain, A.n, A.nnz, &one, b->L, b->a, A.i, A.j, A.bs, b->L_info, r,
                                          b->middle, kPolicy, b->buffer));
  PetscCallCUSPARSE(cusparseDbsrsv2_solve(b->handle, kDirection, kPlain, A.n, A.nnz, &one, b->U, b->a, A.i, A.j, A.bs, b->U_info,
                                          b->middle, z, kPolicy, b->buffer));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(VecRestoreArrayWriteAndMemType(y, &z));
  PetscCall(VecRestoreArrayReadAndMemType(x, &r));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCCreate_Bsrsv2(PC pc)
{
  PetscFunctionBeginUser;
  pc->ops->setup   = PCSetUp_Bsrsv2;
  pc->ops->apply   = PCApply_Bsrsv2;
  pc->ops->reset   = PCReset_Bsrsv2;
  pc->ops->destroy = PCReset_Bsrsv2;
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

PetscErrorCode PCBsrsv2Register()
{
  PetscFunctionBeginUser;
#if HAVE_BSRSV2
  PetscCall(PCRegister("bsrsv2", PCCreate_Bsrsv2));
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}
