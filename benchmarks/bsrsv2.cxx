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

static constexpr cusparseDirection_t   kDirection = CUSPARSE_DIRECTION_COLUMN;
static constexpr cusparseOperation_t   kPlain     = CUSPARSE_OPERATION_NON_TRANSPOSE;
static constexpr cusparseSolvePolicy_t kPolicy    = CUSPARSE_SOLVE_POLICY_USE_LEVEL;

PetscErrorCode Bsrsv2::Create(const CuSPARSE &cusparse_, const BSRView &A_)
{
  const cusparseHandle_t handle = cusparse_.handle;
  int                    sizes[3];

  PetscFunctionBeginUser;
  cusparse = &cusparse_;
  A        = A_;
  PetscCallCUDA(cudaMalloc((void **)&a, (size_t)A.nnz * A.bs * A.bs * sizeof(double)));
  PetscCallCUDA(cudaMalloc((void **)&middle, (size_t)A.n * A.bs * sizeof(double)));
  PetscCallCUSPARSE(cusparseCreateBsrilu02Info(&A_info));
  PetscCallCUSPARSE(cusparseCreateBsrsv2Info(&L_info));
  PetscCallCUSPARSE(cusparseCreateBsrsv2Info(&U_info));
  PetscCall(CopyValues(A));
  PetscCallCUSPARSE(
    cusparseDbsrilu02_bufferSize(handle, kDirection, A.n, A.nnz, cusparse->A, a, A.i, A.j, A.bs, A_info, &sizes[0]));
  PetscCallCUSPARSE(
    cusparseDbsrsv2_bufferSize(handle, kDirection, kPlain, A.n, A.nnz, cusparse->L, a, A.i, A.j, A.bs, L_info, &sizes[1]));
  PetscCallCUSPARSE(
    cusparseDbsrsv2_bufferSize(handle, kDirection, kPlain, A.n, A.nnz, cusparse->U, a, A.i, A.j, A.bs, U_info, &sizes[2]));
  PetscCallCUDA(cudaMalloc(&buffer, (size_t)*std::max_element(sizes, sizes + 3)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

Bsrsv2::~Bsrsv2()
{
  if (A_info) (void)cusparseDestroyBsrilu02Info(A_info);
  if (L_info) (void)cusparseDestroyBsrsv2Info(L_info);
  if (U_info) (void)cusparseDestroyBsrsv2Info(U_info);
  for (void *memory : {(void *)a, (void *)middle, buffer}) (void)cudaFree(memory);
}

PetscErrorCode Bsrsv2::CopyValues(const BSRView &from)
{
  cudaStream_t stream;

  PetscFunctionBeginUser;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaMemcpyAsync(a, from.a, (size_t)A.nnz * A.bs * A.bs * sizeof(double), cudaMemcpyDeviceToDevice, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Bsrsv2::Analyse()
{
  PetscFunctionBeginUser;
  PetscCallCUSPARSE(
    cusparseDbsrilu02_analysis(cusparse->handle, kDirection, A.n, A.nnz, cusparse->A, a, A.i, A.j, A.bs, A_info, kPolicy, buffer));
  PetscCallCUSPARSE(cusparseDbsrsv2_analysis(cusparse->handle, kDirection, kPlain, A.n, A.nnz, cusparse->L, a, A.i, A.j, A.bs,
                                             L_info, kPolicy, buffer));
  PetscCallCUSPARSE(cusparseDbsrsv2_analysis(cusparse->handle, kDirection, kPlain, A.n, A.nnz, cusparse->U, a, A.i, A.j, A.bs,
                                             U_info, kPolicy, buffer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Bsrsv2::Factor()
{
  PetscFunctionBeginUser;
  PetscCallCUSPARSE(
    cusparseDbsrilu02(cusparse->handle, kDirection, A.n, A.nnz, cusparse->A, a, A.i, A.j, A.bs, A_info, kPolicy, buffer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Bsrsv2::CheckPivots()
{
  int row = -1;

  PetscFunctionBeginUser;
  PetscCheck(cusparseXbsrilu02_zeroPivot(cusparse->handle, A_info, &row) != CUSPARSE_STATUS_ZERO_PIVOT, PETSC_COMM_SELF,
             PETSC_ERR_MAT_LU_ZRPVT, "bsrilu02 met a zero pivot in block row %d", row);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Bsrsv2::Solve(const PetscScalar *r, PetscScalar *z)
{
  const double one = 1.;

  PetscFunctionBeginUser;
  PetscCallCUSPARSE(cusparseDbsrsv2_solve(cusparse->handle, kDirection, kPlain, A.n, A.nnz, &one, cusparse->L, a, A.i, A.j, A.bs,
                                          L_info, r, middle, kPolicy, buffer));
  PetscCallCUSPARSE(cusparseDbsrsv2_solve(cusparse->handle, kDirection, kPlain, A.n, A.nnz, &one, cusparse->U, a, A.i, A.j, A.bs,
                                          U_info, middle, z, kPolicy, buffer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- the preconditioner ------------------------------------- */

struct PC_Bsrsv2 {
  CuSPARSE        cusparse;
  Bsrsv2          factor;
  const LocalInt *i = nullptr; /* row starts of the matrix that the factor was made for */
};

static PetscErrorCode PCReset_Bsrsv2(PC pc)
{
  PetscFunctionBeginUser;
  delete static_cast<PC_Bsrsv2 *>(pc->data);
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The analyses and bsrilu02; where only the values are new, bsrilu02 alone. */
static PetscErrorCode PCSetUp_Bsrsv2(PC pc)
{
  PetscErrorCode (*get_blocks)(Mat, const BSR **);
  const BSR *W;

  PetscFunctionBeginUser;
  PetscCall(PetscObjectQueryFunction((PetscObject)pc->pmat, kDeviceBlocksQuery, &get_blocks));
  PetscCheck(get_blocks, PetscObjectComm((PetscObject)pc), PETSC_ERR_SUP,
             "bsrsv2 needs blocks on the device, of one rank: -mat_type baijcuda, not %s", ((PetscObject)pc->pmat)->type_name);
  PetscCall((*get_blocks)(pc->pmat, &W));
  const BSRView A{W->bs, W->rows, W->nnz, W->i, W->j, (const PetscScalar *)W->a, W->where};

  if (pc->data && pc->flag == SAME_NONZERO_PATTERN && static_cast<PC_Bsrsv2 *>(pc->data)->i == A.i)
    PetscCall(static_cast<PC_Bsrsv2 *>(pc->data)->factor.CopyValues(A));
  else {
    PetscCall(PCReset_Bsrsv2(pc));
    PC_Bsrsv2 *const made = new PC_Bsrsv2;

    pc->data = made;
    PetscCall(made->cusparse.Create());
    PetscCall(made->factor.Create(made->cusparse, A));
    PetscCall(made->factor.Analyse());
    made->i = A.i;
  }
  Bsrsv2 &factor = static_cast<PC_Bsrsv2 *>(pc->data)->factor;
  PetscCall(factor.Factor());
  PetscCall(factor.CheckPivots());
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApply_Bsrsv2(PC pc, Vec x, Vec y)
{
  const PetscScalar *r;
  PetscScalar       *z;
  PetscMemType       where[2];

  PetscFunctionBeginUser;
  PetscCall(VecGetArrayReadAndMemType(x, &r, &where[0]));
  PetscCall(VecGetArrayWriteAndMemType(y, &z, &where[1]));
  PetscCheck(PetscMemTypeDevice(where[0]) && PetscMemTypeDevice(where[1]), PETSC_COMM_SELF, PETSC_ERR_SUP,
             "bsrsv2 needs vectors on the device: -vec_type cuda");
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(static_cast<PC_Bsrsv2 *>(pc->data)->factor.Solve(r, z));
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
