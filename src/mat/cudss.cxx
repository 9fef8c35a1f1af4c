/*
   MATSOLVERCUDSS as PETSc sees it: MatGetFactor() makes a Mat whose operations call a factorization of cuDSS. What was analysed is
   kept as long as the nonzeros of the matrix are the same, whatever PETSc says of them, so that the set-up of a PC for new values
   is a factorization alone.
*/
#include <petsc/private/matimpl.h>

#include "cudss.h"
#include "entry.h"
#include "finepcimpl.h"
#include "sparse/bsr_mat.h"
#include "sparse/csr_mat.h"
#include "sparse/symmetry.h"

/* The data of a factor. */
struct MatCUDSS {
  CUDSS         *solver = nullptr;
  CUDSSKind      kind   = CUDSSKind::GENERAL;
  CUDSSParams    params;
  MatPattern     pattern; /* of the matrix that was analysed */
  bool           analysed = false;
  CUDSSStats     stats;
  LocalInt       unsorted = 0;  /* entries out of order, for which the matrix is sorted in a copy */
  char           why[512] = ""; /* there is no factor */
  PetscLogDouble entries  = 0;  /* of the matrix */
};

/* The values of cudssReorderingAlg_t and cudssPivotType_t begin with 0, too. The words are those of PETSc's own interface. */
static const char *const kReorderAlgs[] = {"default", "btf_colamd", "colamd", "amd", "nested_dissection", "none"};
static const char *const kPivotTypes[]  = {"auto", "none", "col", "row", "diagonal", "local_block", "bunch_kaufman"};

static MatCUDSS *DataOf(Mat F)
{
  return (MatCUDSS *)F->data;
}

static PetscErrorCode SetFromOptions(Mat F, CUDSSParams *params)
{
  PetscInt reorder = params->reorder_alg, pivot = params->pivot_type, steps = params->ir_n_steps;

  PetscFunctionBegin;
  PetscOptionsBegin(PetscObjectComm((PetscObject)F), ((PetscObject)F)->prefix, "cuDSS options", "Mat");
  PetscCall(PetscOptionsEList("-mat_cudss_reorder_alg", "Order of elimination", "MATSOLVERCUDSS", kReorderAlgs,
                              PETSC_STATIC_ARRAY_LENGTH(kReorderAlgs), kReorderAlgs[reorder], &reorder, nullptr));
  PetscCall(PetscOptionsEList("-mat_cudss_pivot_type", "Where pivots are looked for", "MATSOLVERCUDSS", kPivotTypes,
                              PETSC_STATIC_ARRAY_LENGTH(kPivotTypes), kPivotTypes[pivot], &pivot, nullptr));
  PetscCall(PetscOptionsRangeInt("-mat_cudss_ir_n_steps", "Steps of iterative refinement in a solve", "MATSOLVERCUDSS", steps,
                                 &steps, nullptr, 0, 1000));
  PetscCall(PetscOptionsBool("-mat_cudss_deterministic", "The same bits from run to run", "MATSOLVERCUDSS", params->deterministic,
                             &params->deterministic, nullptr));
  PetscCall(PetscOptionsBool("-mat_cudss_hybrid_memory", "Keep the factor on the host", "MATSOLVERCUDSS", params->hybrid_memory,
                             &params->hybrid_memory, nullptr));
  PetscOptionsEnd();
  params->reorder_alg = (int)reorder;
  params->pivot_type  = (int)pivot;
  params->ir_n_steps  = (int)steps;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------------- factorization ---------------------------------------- */

/* The factor is none, which is a failure of the preconditioner, or an error where the program has asked for that. */
static PetscErrorCode Fail_CUDSS(Mat F, Mat A)
{
  MatCUDSS *const   data  = DataOf(F);
  const CUDSSStats &stats = data->stats;
  const double      gb    = 1e9;

  PetscFunctionBegin;
  F->factorerrortype = stats.error;
  if (stats.error == MAT_FACTOR_OUTMEMORY && !data->analysed)
    PetscCall(PetscSNPrintf(data->why, sizeof(data->why),
                            "cuDSS has not enough memory to analyse the matrix: the GPU has %.3g GB left, or the host is full",
                            (double)stats.left / gb));
  else if (stats.error == MAT_FACTOR_OUTMEMORY)
    PetscCall(
      PetscSNPrintf(data->why, sizeof(data->why),
                    "cuDSS needs %.3g GB on the GPU, which has %.3g GB left. With -mat_cudss_hybrid_memory it needs %.3g GB "
                    "there and %.3g GB on the host",
                    (double)stats.device / gb, (double)stats.left / gb, (double)stats.hybrid / gb, (double)stats.host / gb));
  else if (data->kind == CUDSSKind::DEFINITE)
    PetscCall(
      PetscStrncpy(data->why,
                   "a pivot of cuDSS is not positive, though the matrix was said to be positive definite: without MAT_SPD an "
                   "LDL^T factor is computed",
                   sizeof(data->why)));
  else
    PetscCall(PetscSNPrintf(data->why, sizeof(data->why),
                            "pivots of cuDSS that are nearly zero: %" PetscInt64_FMT
                            ". The matrix is singular, or needs another choice of "
                            "pivots (-mat_cudss_pivot_type, -mat_cudss_reorder_alg). With -pc_factor_shift_type nonzero they are "
                            "replaced, and an iterative method has to correct what this changes",
                            PetscMax(stats.replaced, 1)));
  PetscCheck(!A->erroriffailure, PETSC_COMM_SELF, stats.error == MAT_FACTOR_OUTMEMORY ? PETSC_ERR_MEM : PETSC_ERR_MAT_LU_ZRPVT,
             "%s", data->why);
  PetscCall(PetscInfo(F, "%s\n", data->why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The upper triangle stands for a whole that is not the matrix if this is not symmetric. */
static PetscErrorCode CheckSymmetry_CUDSS(Mat A, const CSRView *rows)
{
  const bool   device = PetscMemTypeDevice(rows->where);
  CSRSymmetry *work   = nullptr, found{};
  PetscBool    known, symmetric;

  PetscFunctionBegin;
  PetscCall(MatIsSymmetricKnown(A, &known, &symmetric));
  if (known && symmetric) PetscFunctionReturn(PETSC_SUCCESS);
  if (device) PetscCall(ArrayCreate(sizeof(*work), rows->where, (void **)&work));
  const PetscErrorCode code = (device ? CSRSymmetry_CUDA : CSRSymmetry_Host)(rows, 0, nullptr, work, &found);
  if (device) PetscCall(ArrayDestroy(rows->where, (void **)&work));
  PetscCall(code);
  PetscCheck(!found.one_sided && !found.unequal, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONG,
             "The matrix is not symmetric: %" PetscInt64_FMT " couplings are one-sided, and %" PetscInt64_FMT
             " pairs of entries differ. Use -pc_type lu, and for rows of Dirichlet conditions MatZeroRowsColumns()",
             found.one_sided, found.unequal);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Analyses the rows if that has to be done, and computes the factor if `numeric`. */
static PetscErrorCode Work_CUDSS(Mat A, MatCUDSS *data, const CSRView *rows, PetscBool numeric)
{
  PetscFunctionBegin;
  if (data->kind != CUDSSKind::GENERAL) PetscCall(CheckSymmetry_CUDSS(A, rows));
  if (!data->analysed) {
    PetscCall(CUDSSAnalyse_CUDA(data->solver, data->kind, &data->params, rows, &data->stats));
    if (data->stats.error) PetscFunctionReturn(PETSC_SUCCESS);
    data->analysed = true;
  }
  if (numeric) PetscCall(CUDSSFactor_CUDA(data->solver, rows, &data->stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode WorkOnSorted(Mat A, MatCUDSS *data, const CSRView *lent, PetscBool numeric)
{
  CSR     sorted{};
  CSRView rows = *lent;

  PetscFunctionBegin;
  PetscCall((PetscMemTypeDevice(rows.where) ? CSRCountUnsorted_CUDA : CSRCountUnsorted_Host)(&rows, &data->unsorted));
  if (data->unsorted) {
    PetscCall(CSRSort(&rows, &sorted));
    rows = CSRView{rows.n, sorted.nnz, sorted.i, sorted.j, (const PetscScalar *)sorted.a, rows.where};
  }
  data->entries             = rows.nnz;
  const PetscErrorCode code = CallGuarded(Work_CUDSS, A, data, (const CSRView *)&rows, numeric);
  PetscCall(CSRDestroy(&sorted));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Compute_CUDSS(Mat F, Mat A, PetscBool numeric)
{
  MatCUDSS *const data = DataOf(F);
  PetscBool       same;
  CSRMat          csr;

  PetscFunctionBegin;
  F->factorerrortype = MAT_FACTOR_NOERROR;
  data->why[0]       = '\0';
  PetscCall(MatFollowPattern(A, &data->pattern, &same));
  if (!same) data->analysed = false;
  if (data->analysed && !numeric) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetCSR(A, &csr));
  const PetscErrorCode code = CallGuarded(WorkOnSorted, A, data, (const CSRView *)&csr.A, numeric);
  PetscCall(MatRestoreCSR(&csr));
  if (code) data->analysed = false;
  PetscCall(code);
  if (data->stats.error) {
    PetscCall(Fail_CUDSS(F, A));
    if (data->stats.error == MAT_FACTOR_OUTMEMORY) data->analysed = false; /* all of it was given back */
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Without a shift a factor of another matrix is no factor, as in PETSc's own. */
static PetscErrorCode FactorNumeric(Mat F, Mat A, const MatFactorInfo *info)
{
  MatCUDSS *const data = DataOf(F);

  PetscFunctionBegin;
  PetscCall(Compute_CUDSS(F, A, PETSC_TRUE));
  if (!data->stats.error && data->stats.replaced && (MatFactorShiftType)(int)info->shifttype == MAT_SHIFT_NONE) {
    data->stats.error = MAT_FACTOR_NUMERIC_ZEROPIVOT;
    PetscCall(Fail_CUDSS(F, A));
  }
  F->assembled = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FactorSymbolic_CUDSS(Mat F, Mat A, CUDSSKind kind)
{
  MatCUDSS *const data = DataOf(F);

  PetscFunctionBegin;
  if (data->kind != kind) data->analysed = false;
  data->kind = kind;
  if (!F->ops->lufactornumeric) PetscCall(SetFromOptions(F, &data->params)); /* the first time */
  PetscCall(Compute_CUDSS(F, A, PETSC_FALSE));
  F->ops->lufactornumeric       = Entry<FactorNumeric>;
  F->ops->choleskyfactornumeric = Entry<FactorNumeric>;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatLUFactorSymbolic_CUDSS(Mat F, Mat A, IS, IS, const MatFactorInfo *)
{
  PetscFunctionBegin;
  PetscCall(FactorSymbolic_CUDSS(F, A, CUDSSKind::GENERAL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatCholeskyFactorSymbolic_CUDSS(Mat F, Mat A, IS, const MatFactorInfo *)
{
  PetscBool known, definite;

  PetscFunctionBegin;
  PetscCall(MatIsSPDKnown(A, &known, &definite));
  PetscCall(FactorSymbolic_CUDSS(F, A, known && definite ? CUDSSKind::DEFINITE : CUDSSKind::SYMMETRIC));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- solve -------------------------------------------- */

template <PetscBool Transposed>
static PetscErrorCode MatSolve_CUDSS(Mat F, Vec b, Vec x)
{
  const PetscScalar *from;
  PetscScalar       *to;
  PetscMemType       from_where, to_where;
  LocalInt           n;

  PetscFunctionBegin;
  PetscCall(LocalIntCast(F->rmap->n, "rows", &n));
  PetscCall(VecGetArrayReadAndMemType(b, &from, &from_where));
  PetscCall(VecGetArrayWriteAndMemType(x, &to, &to_where));
  const PetscErrorCode code =
    CallGuarded(CUDSSSolve_CUDA, DataOf(F)->solver, Transposed, (LocalInt)1, CUDSSVectors<const PetscScalar>{from, n, from_where},
                CUDSSVectors<PetscScalar>{to, n, to_where});
  PetscCall(VecRestoreArrayWriteAndMemType(x, &to));
  PetscCall(VecRestoreArrayReadAndMemType(b, &from));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <PetscBool Transposed>
static PetscErrorCode MatMatSolve_CUDSS(Mat F, Mat B, Mat X)
{
  const PetscScalar *from;
  PetscScalar       *to;
  PetscMemType       from_where, to_where;
  PetscInt           columns, ldb, ldx;
  LocalInt           local[3];

  PetscFunctionBegin;
  for (Mat dense : {B, X}) {
    PetscBool is_dense;
    PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)dense, &is_dense, MATSEQDENSE, MATMPIDENSE, ""));
    if (!is_dense) PetscCall(MatRefuseType(dense, "MATDENSE and its subtypes as right-hand sides", "use MatConvert()"));
  }
  PetscCheck(B != X, PETSC_COMM_SELF, PETSC_ERR_ARG_IDN, "Right-hand sides and solutions must be two matrices");
  PetscCall(MatGetSize(B, nullptr, &columns));
  PetscCall(MatDenseGetLDA(B, &ldb));
  PetscCall(MatDenseGetLDA(X, &ldx));
  PetscCall(LocalIntCast(columns, "right-hand sides", &local[0]));
  PetscCall(LocalIntCast(ldb, "rows between right-hand sides", &local[1]));
  PetscCall(LocalIntCast(ldx, "rows between solutions", &local[2]));
  PetscCall(MatDenseGetArrayReadAndMemType(B, &from, &from_where));
  PetscCall(MatDenseGetArrayWriteAndMemType(X, &to, &to_where));
  const PetscErrorCode code =
    CallGuarded(CUDSSSolve_CUDA, DataOf(F)->solver, Transposed, local[0],
                CUDSSVectors<const PetscScalar>{from, local[1], from_where}, CUDSSVectors<PetscScalar>{to, local[2], to_where});
  PetscCall(MatDenseRestoreArrayWriteAndMemType(X, &to));
  PetscCall(MatDenseRestoreArrayReadAndMemType(B, &from));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ what a factor is like ----------------------------------- */

static PetscErrorCode MatGetInertia_CUDSS(Mat F, PetscInt *negative, PetscInt *zero, PetscInt *positive)
{
  const MatCUDSS *const data = DataOf(F);

  PetscFunctionBegin;
  PetscCheck(!F->factorerrortype, PETSC_COMM_SELF, PETSC_ERR_ORDER, "There is no factor: %s", data->why);
  if (negative) *negative = (PetscInt)data->stats.negative;
  if (zero) *zero = F->rmap->n - (PetscInt)(data->stats.negative + data->stats.positive);
  if (positive) *positive = (PetscInt)data->stats.positive;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatGetInfo_CUDSS(Mat F, MatInfoType, MatInfo *info)
{
  const MatCUDSS *const data    = DataOf(F);
  const PetscLogDouble  entries = (PetscLogDouble)data->stats.nonzeros;

  PetscFunctionBegin;
  *info              = MatInfo{};
  info->block_size   = 1;
  info->nz_allocated = info->nz_used = entries;
  info->memory                       = (PetscLogDouble)data->stats.device;
  info->fill_ratio_needed            = data->entries > 0 ? entries / data->entries : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatView_CUDSS(Mat F, PetscViewer viewer)
{
  static const char *const kinds[] = {"LU", "LDL^T", "Cholesky"};
  const MatCUDSS *const    data    = DataOf(F);
  const CUDSSParams       &params  = data->params;
  char                     version[32];
  PetscBool                ascii;
  PetscViewerFormat        format;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &ascii));
  if (!ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerGetFormat(viewer, &format));
  if (format != PETSC_VIEWER_ASCII_INFO && format != PETSC_VIEWER_ASCII_INFO_DETAIL) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CUDSSVersion_CUDA(data->solver, version, sizeof(version)));
  PetscCall(PetscViewerASCIIPrintf(viewer, "cuDSS %s: %s factor, order %s, pivots %s, %d steps of refinement%s%s\n", version,
                                   kinds[(int)data->kind], kReorderAlgs[params.reorder_alg], kPivotTypes[params.pivot_type],
                                   params.ir_n_steps, params.deterministic ? ", deterministic" : "",
                                   params.hybrid_memory ? ", factor on the host" : ""));
  if (*data->why) PetscCall(PetscViewerASCIIPrintf(viewer, "no factor: %s\n", data->why));
  if (!data->analysed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer, "at most %.4g MB on the GPU\n", (double)data->stats.device / 1e6));
  if (data->stats.replaced)
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "pivots that were nearly zero and are replaced: %" PetscInt64_FMT "\n", data->stats.replaced));
  if (data->unsorted)
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "entries out of order, for which the rows are sorted: %" LocalInt_FMT "\n", data->unsorted));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- life cycle ----------------------------------------- */

static PetscErrorCode MatFactorGetSolverType_CUDSS(Mat, MatSolverType *type)
{
  PetscFunctionBegin;
  *type = MATSOLVERCUDSS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatDestroy_CUDSS(Mat F)
{
  MatCUDSS *const data = DataOf(F);

  PetscFunctionBegin;
  PetscCall(CUDSSDestroy_CUDA(&data->solver));
  PetscCall(MatFreePatternWork(&data->pattern));
  PetscCall(PetscObjectComposeFunction((PetscObject)F, "MatFactorGetSolverType_C", nullptr));
  delete data;
  F->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetUpFactor(Mat A, MatFactorType type, Mat F)
{
  PetscFunctionBegin;
  PetscCall(MatSetSizes(F, A->rmap->n, A->cmap->n, A->rmap->N, A->cmap->N));
  PetscCall(PetscStrallocpy(MATSOLVERCUDSS, &((PetscObject)F)->type_name));
  F->data         = new MatCUDSS{};
  F->ops->destroy = Entry<MatDestroy_CUDSS>;
  PetscCall(CUDSSCreate_CUDA(&DataOf(F)->solver)); /* what is missing is reported here */
  F->factortype     = type;
  F->canuseordering = PETSC_FALSE;
  F->assembled      = PETSC_TRUE;
  F->preallocated   = PETSC_TRUE;
  PetscCall(MatSetUp(F));
  F->ops->solve             = Entry<MatSolve_CUDSS<PETSC_FALSE>>;
  F->ops->solvetranspose    = Entry<MatSolve_CUDSS<PETSC_TRUE>>;
  F->ops->matsolve          = Entry<MatMatSolve_CUDSS<PETSC_FALSE>>;
  F->ops->matsolvetranspose = Entry<MatMatSolve_CUDSS<PETSC_TRUE>>;
  F->ops->getinfo           = Entry<MatGetInfo_CUDSS>;
  F->ops->view              = Entry<MatView_CUDSS>;
  if (type == MAT_FACTOR_LU) F->ops->lufactorsymbolic = Entry<MatLUFactorSymbolic_CUDSS>;
  else {
    F->ops->choleskyfactorsymbolic = Entry<MatCholeskyFactorSymbolic_CUDSS>;
    F->ops->getinertia             = Entry<MatGetInertia_CUDSS>;
  }
  PetscCall(PetscFree(F->solvertype));
  PetscCall(PetscStrallocpy(MATSOLVERCUDSS, &F->solvertype));
  PetscCall(PetscObjectComposeFunction((PetscObject)F, "MatFactorGetSolverType_C", Entry<MatFactorGetSolverType_CUDSS>));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatGetFactor_CUDSS(Mat A, MatFactorType type, Mat *F)
{
  PetscFunctionBegin;
  PetscCall(MatCreate(PetscObjectComm((PetscObject)A), F));
  const PetscErrorCode code = CallGuarded(SetUpFactor, A, type, *F);
  if (code) PetscCall(MatDestroy(F));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  MATSOLVERCUDSS - "cudss" - LU, LDL^T and Cholesky factorizations on an NVIDIA GPU by the library cuDSS

  Options Database Keys:
+ -mat_cudss_reorder_alg <default> - the order of elimination: default, btf_colamd, colamd, amd, nested_dissection or none
. -mat_cudss_pivot_type <auto> - where pivots are looked for: auto, none, col, row, diagonal, local_block or bunch_kaufman
. -mat_cudss_ir_n_steps <0> - steps of iterative refinement in each solve
. -mat_cudss_deterministic <false> - the same bits from run to run on one kind of GPU; some kernels are then slower
- -mat_cudss_hybrid_memory <false> - keeps the factor on the host and copies it to the GPU in parts

  Level: beginner

  Notes:
  Used by `-pc_type lu` or `-pc_type cholesky` with `-pc_factor_mat_solver_type cudss`, for a `MATSEQAIJ` or a `MATSEQAIJCUSPARSE`:
  the matrix of one rank, also inside `PCBJACOBI`, `PCASM` and `PCREDUNDANT`, and as the coarse solver of a multigrid method. The
  rows are read where the matrix is stored, and vectors may be on the host or on the GPU.

  cuDSS is not part of finepc, and is opened by its name libcudss.so.1 when a factor is first requested. `pip install
  nvidia-cudss-cu13`, or nvidia-cudss-cu12 for CUDA 12, installs it; the environment variable FINEPC_CUDSS_LIBRARY names the file if
  the loader does not find it. Version 1 is needed.

  `PCLU` computes an LU factor. `PCCHOLESKY` computes an LDL^T factor, and L L^T if the matrix has the option `MAT_SPD`; it reads
  the upper triangle, and a matrix that is not symmetric is an error.

  The order of elimination and the nonzeros of the factor are kept as long as the nonzeros of the matrix stay the same: new values
  need only a new factorization. `MatSolve()`, `MatMatSolve()`, which solves for all columns at once, and their transposes are
  supported, and so is `MatGetInertia()` after a Cholesky or LDL^T factorization.

  Pivots that are nearly zero are a failure unless `-pc_factor_shift_type` is not none, as within `PCMG`: then cuDSS replaces them,
  and the view says how many there were. If the GPU does not have enough memory, the failure says how much is needed. A failure ends
  `KSPSolve()` with `KSP_DIVERGED_PC_FAILED`, and `-ksp_error_if_not_converged` makes it an error.

.seealso: `PCLU`, `PCCHOLESKY`, `PCFactorSetMatSolverType()`, `MatGetFactor()`, `MatGetInertia()`, `FinePCInitializePackage()`
M*/

PetscErrorCode MatSolverTypeRegister_CUDSS()
{
  PetscFunctionBegin;
  for (MatType matrix : {MATSEQAIJ, MATSEQAIJCUSPARSE})
    for (MatFactorType factor : {MAT_FACTOR_LU, MAT_FACTOR_CHOLESKY})
      PetscCall(MatSolverTypeRegister(MATSOLVERCUDSS, matrix, factor, Entry<MatGetFactor_CUDSS>));
  PetscFunctionReturn(PETSC_SUCCESS);
}
