/* The calls of cuDSS. Arrays of the matrix are copies, which iterative refinement reads after the matrix itself may have changed.
 */
#include <dlfcn.h>
#include <cstdlib>

#include "buffer.cuh"
#include "mat/cudss.cuh"
#include "mat/cudss.h"

#if defined(CUDART_VERSION)
constexpr int kCUDAMajor = CUDART_VERSION / 1000;
#else
constexpr int kCUDAMajor = 13;
#endif

/* The functions of the library, which is never closed. */
struct CUDSSLibrary {
  int                       version[3]          = {}; /* major, minor, patch */
  cudss::GetProperty       *get_property        = nullptr;
  cudss::Create            *create              = nullptr;
  cudss::Destroy           *destroy             = nullptr;
  cudss::SetStream         *set_stream          = nullptr;
  cudss::SetThreadingLayer *set_threading_layer = nullptr;
  cudss::ConfigCreate      *config_create       = nullptr;
  cudss::ConfigDestroy     *config_destroy      = nullptr;
  cudss::ConfigSet         *config_set          = nullptr;
  cudss::DataCreate        *data_create         = nullptr;
  cudss::DataDestroy       *data_destroy        = nullptr;
  cudss::DataGet           *data_get            = nullptr;
  cudss::Execute           *execute             = nullptr;
  cudss::MatrixCreateDn    *matrix_create_dn    = nullptr;
  cudss::MatrixCreateCsr   *matrix_create_csr   = nullptr;
  cudss::MatrixDestroy     *matrix_destroy      = nullptr;
};

struct CUDSS {
  CUDSSLibrary        api;
  void               *handle = nullptr, *config = nullptr; /* objects of cuDSS */
  void               *data = nullptr, *matrix = nullptr;   /* of what was analysed, or null */
  CUDSSKind           kind          = CUDSSKind::GENERAL;
  bool                deterministic = false;
  CSR                 A{};              /* the matrix, on the device */
  bool                factored = false; /* with the analysed nonzeros */
  Buffer<PetscScalar> b, x;             /* vectors of the host */
};

/* ----------------------------------------- the library ---------------------------------------- */

template <typename Function>
static PetscErrorCode Find_CUDSS(void *library, const char name[], Function **function)
{
  PetscFunctionBegin;
  *function = (Function *)dlsym(library, name);
  PetscCheck(*function, PETSC_COMM_SELF, PETSC_ERR_LIB, "This library is no cuDSS, or not version %d of it: it has no %s()",
             cudss::kMajor, name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Open_CUDSS(CUDSSLibrary *api)
{
  const char *const asked   = std::getenv("FINEPC_CUDSS_LIBRARY");
  void             *library = dlopen(asked && *asked ? asked : "libcudss.so.1", RTLD_NOW | RTLD_LOCAL);

  PetscFunctionBegin;
  if (!library) {
    const char *const why = dlerror();
    PetscCheck(library, PETSC_COMM_SELF, PETSC_ERR_LIB,
               "cuDSS %d cannot be opened (%s). Install it by \"pip install nvidia-cudss-cu%d\", and set the environment variable "
               "FINEPC_CUDSS_LIBRARY to the file nvidia/cu%d/lib/libcudss.so.%d that is then in Python's site-packages",
               cudss::kMajor, why ? why : "no reason is given", kCUDAMajor, kCUDAMajor, cudss::kMajor);
  }
  PetscCall(Find_CUDSS(library, "cudssGetProperty", &api->get_property));
  for (int property : {cudss::MAJOR, cudss::MINOR, cudss::PATCH})
    PetscCheck(api->get_property(property, &api->version[property]) == cudss::SUCCESS, PETSC_COMM_SELF, PETSC_ERR_LIB,
               "cuDSS does not give its version");
  PetscCheck(api->version[0] == cudss::kMajor, PETSC_COMM_SELF, PETSC_ERR_LIB,
             "This is cuDSS %d.%d.%d, but finepc works with version %d alone: \"pip install --upgrade nvidia-cudss-cu%d\"",
             api->version[0], api->version[1], api->version[2], cudss::kMajor, kCUDAMajor);
  PetscCall(Find_CUDSS(library, "cudssCreate", &api->create));
  PetscCall(Find_CUDSS(library, "cudssDestroy", &api->destroy));
  PetscCall(Find_CUDSS(library, "cudssSetStream", &api->set_stream));
  PetscCall(Find_CUDSS(library, "cudssSetThreadingLayer", &api->set_threading_layer));
  PetscCall(Find_CUDSS(library, "cudssConfigCreate", &api->config_create));
  PetscCall(Find_CUDSS(library, "cudssConfigDestroy", &api->config_destroy));
  PetscCall(Find_CUDSS(library, "cudssConfigSet", &api->config_set));
  PetscCall(Find_CUDSS(library, "cudssDataCreate", &api->data_create));
  PetscCall(Find_CUDSS(library, "cudssDataDestroy", &api->data_destroy));
  PetscCall(Find_CUDSS(library, "cudssDataGet", &api->data_get));
  PetscCall(Find_CUDSS(library, "cudssExecute", &api->execute));
  PetscCall(Find_CUDSS(library, "cudssMatrixCreateDn", &api->matrix_create_dn));
  PetscCall(Find_CUDSS(library, "cudssMatrixCreateCsr", &api->matrix_create_csr));
  PetscCall(Find_CUDSS(library, "cudssMatrixDestroy", &api->matrix_destroy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CUDSSVersion_CUDA(const CUDSS *solver, char version[], size_t length)
{
  const int *const v = solver->api.version;

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(version, length, "%d.%d.%d", v[0], v[1], v[2]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Check_CUDSS(int status, const char doing[])
{
  static const char *const texts[] = {"success",
                                      "the library is not initialized",
                                      "memory could not be allocated",
                                      "an invalid value",
                                      "this is not supported",
                                      "the execution failed",
                                      "internal error",
                                      "iterative refinement did not reach its tolerance"};

  PetscFunctionBegin;
  PetscCheck(status == cudss::SUCCESS, PETSC_COMM_SELF, status == cudss::ALLOC_FAILED ? PETSC_ERR_MEM : PETSC_ERR_LIB,
             "cuDSS could not %s: %s (status %d)", doing,
             status > 0 && status <= cudss::IR_FAILED ? texts[status] : "unknown error", status);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- life cycle ----------------------------------------- */

static PetscErrorCode Set_CUDSS(CUDSS *solver, int parameter, int value, const char doing[])
{
  PetscFunctionBegin;
  PetscCall(Check_CUDSS(solver->api.config_set(solver->config, parameter, &value, sizeof(value)), doing));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Prepare_CUDSS(CUDSS *solver)
{
  const CUDSSLibrary &api = solver->api;

  PetscFunctionBegin;
  PetscCall(Open_CUDSS(&solver->api));
  PetscCall(DeviceInitialize()); /* which chooses the GPU of the rank */
  PetscCall(Check_CUDSS(api.create(&solver->handle), "be initialized"));
  if (std::getenv("CUDSS_THREADING_LIB")) /* which cuDSS reads */
    PetscCall(Check_CUDSS(api.set_threading_layer(solver->handle, nullptr), "open the library that CUDSS_THREADING_LIB names"));
  PetscCall(Check_CUDSS(api.config_create(&solver->config), "make a configuration"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CUDSSCreate_CUDA(CUDSS **solver)
{
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(DeviceFound_CUDA(&found));
  PetscCheck(found, PETSC_COMM_SELF, PETSC_ERR_SUP, "cuDSS needs an NVIDIA GPU, and there is none");
  *solver                   = new CUDSS();
  const PetscErrorCode code = Prepare_CUDSS(*solver);
  if (code) (void)CUDSSDestroy_CUDA(solver);
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Configure_CUDSS(CUDSS *solver, const CUDSSParams &params)
{
  PetscFunctionBegin;
  PetscCall(Set_CUDSS(solver, cudss::REORDERING_ALG, params.reorder_alg, "take -mat_cudss_reorder_alg"));
  PetscCall(Set_CUDSS(solver, cudss::PIVOT_TYPE, params.pivot_type, "take -mat_cudss_pivot_type"));
  PetscCall(Set_CUDSS(solver, cudss::IR_N_STEPS, params.ir_n_steps, "take -mat_cudss_ir_n_steps"));
  PetscCall(Set_CUDSS(solver, cudss::DETERMINISTIC_MODE, params.deterministic, "take -mat_cudss_deterministic"));
  PetscCall(Set_CUDSS(solver, cudss::HYBRID_MEMORY_MODE, params.hybrid_memory, "take -mat_cudss_hybrid_memory"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Forgets what was analysed, and frees the memory. */
static PetscErrorCode Reset_CUDSS(CUDSS *solver)
{
  PetscFunctionBegin;
  if (solver->matrix) PetscCall(Check_CUDSS(solver->api.matrix_destroy(solver->matrix), "destroy a matrix"));
  solver->matrix = nullptr;
  if (solver->data) PetscCall(Check_CUDSS(solver->api.data_destroy(solver->handle, solver->data), "destroy a factor"));
  solver->data     = nullptr;
  solver->factored = false;
  PetscCall(CSRDestroy(&solver->A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CUDSSDestroy_CUDA(CUDSS **solver)
{
  PetscFunctionBegin;
  if (!*solver) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Reset_CUDSS(*solver));
  if ((*solver)->config) PetscCall(Check_CUDSS((*solver)->api.config_destroy((*solver)->config), "destroy a configuration"));
  if ((*solver)->handle) PetscCall(Check_CUDSS((*solver)->api.destroy((*solver)->handle), "be finalized"));
  delete *solver;
  *solver = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------------- factorization ---------------------------------------- */

/* A phase with vectors that begin at b and x, which only a solve reads and writes. */
static PetscErrorCode Execute_CUDSS(CUDSS *solver, int phase, LocalInt columns, const PetscScalar *b, LocalInt ldb, PetscScalar *x,
                                    LocalInt ldx, int *status)
{
  const CUDSSLibrary &api = solver->api;
  const LocalInt      n   = solver->A.rows;
  void               *rhs = nullptr, *solution = nullptr;
  cudaStream_t        stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(Check_CUDSS(api.set_stream(solver->handle, stream), "take a stream"));
  int made = api.matrix_create_dn(&rhs, n, columns, ldb, b, cudss::kReal64, cudss::kColumnMajor);
  if (!made) made = api.matrix_create_dn(&solution, n, columns, ldx, x, cudss::kReal64, cudss::kColumnMajor);
  if (!made) *status = api.execute(solver->handle, phase, solver->config, solver->data, solver->matrix, solution, rhs);
  if (rhs) (void)api.matrix_destroy(rhs);
  if (solution) (void)api.matrix_destroy(solution);
  PetscCall(Check_CUDSS(made, "take vectors"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gets numbers that cuDSS has as integers of 32 or 64 bits, by the matrix. */
static PetscErrorCode GetNumbers(CUDSS *solver, int parameter, int count, PetscInt64 numbers[])
{
  const CUDSSLibrary &api = solver->api;
  int64_t             wide[2 * cudss::kEstimates];
  size_t              bytes = 0;

  PetscFunctionBegin;
  PetscCall(Check_CUDSS(api.data_get(solver->handle, solver->data, parameter, nullptr, 0, &bytes), "say how long an answer is"));
  PetscCheck(bytes == count * sizeof(int) || (bytes >= count * sizeof(int64_t) && bytes <= sizeof(wide)), PETSC_COMM_SELF,
             PETSC_ERR_LIB, "cuDSS has %zu bytes for %d numbers", bytes, count);
  PetscCall(Check_CUDSS(api.data_get(solver->handle, solver->data, parameter, wide, bytes, &bytes), "tell of a factor"));
  for (int k = 0; k < count; k++) numbers[k] = bytes == count * sizeof(int) ? ((const int *)wide)[k] : wide[k];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Frees what there is, since the memory was not enough. */
static PetscErrorCode OutOfMemory(CUDSS *solver, CUDSSStats *stats)
{
  PetscFunctionBegin;
  (void)cudaGetLastError();
  stats->error = MAT_FACTOR_OUTMEMORY;
  PetscCall(DeviceFreeBytes_CUDA(&stats->left));
  PetscCall(Reset_CUDSS(solver));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CUDSSAnalyse_CUDA(CUDSS *solver, CUDSSKind kind, const CUDSSParams *params, const CSRView *A, CUDSSStats *stats)
{
  const CUDSSLibrary &api  = solver->api;
  const bool          full = kind == CUDSSKind::GENERAL;
  const int           type = full ? cudss::GENERAL : (kind == CUDSSKind::DEFINITE ? cudss::SPD : cudss::SYMMETRIC);
  PetscInt64          estimates[cudss::kEstimates];
  int                 status;

  PetscFunctionBegin;
  *stats = CUDSSStats{};
  PetscCall(Reset_CUDSS(solver));
  PetscCall(Configure_CUDSS(solver, *params));
  solver->kind          = kind;
  solver->deterministic = params->deterministic;
  PetscCall(CSRCreate(A->n, A->n, A->nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA, &solver->A));
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  CSR *const copy = &solver->A;
  PetscCall(ArrayCopy_CUDA(copy->i, A->i, ((size_t)A->n + 1) * sizeof(*A->i), PETSC_MEMTYPE_CUDA, A->where));
  PetscCall(ArrayCopy_CUDA(copy->j, A->j, A->nnz * sizeof(*A->j), PETSC_MEMTYPE_CUDA, A->where));
  PetscCall(ArrayCopy_CUDA(copy->a, A->a, A->nnz * sizeof(*A->a), PETSC_MEMTYPE_CUDA, A->where));
  PetscCall(Check_CUDSS(api.data_create(solver->handle, &solver->data), "make a factor"));
  PetscCall(
    Check_CUDSS(api.matrix_create_csr(&solver->matrix, A->n, A->n, A->nnz, copy->i, nullptr, copy->j, copy->a, cudss::kInt32,
                                      cudss::kInt32, cudss::kReal64, type, full ? cudss::FULL : cudss::UPPER, cudss::kBaseZero),
                "take a matrix"));
  PetscCall(Execute_CUDSS(solver, cudss::ANALYSIS, 1, nullptr, A->n, nullptr, A->n, &status));
  if (status == cudss::ALLOC_FAILED) PetscCall(OutOfMemory(solver, stats));
  else {
    PetscCall(Check_CUDSS(status, "analyse the matrix"));
    PetscCall(GetNumbers(solver, cudss::MEMORY_ESTIMATES, cudss::kEstimates, estimates));
    stats->device = estimates[1];
    stats->hybrid = estimates[4];
    stats->host   = estimates[5];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CUDSSFactor_CUDA(CUDSS *solver, const CSRView *A, CUDSSStats *stats)
{
  const LocalInt n = solver->A.rows;
  PetscInt64     info, inertia[2] = {n, 0};
  int            status;

  PetscFunctionBegin;
  stats->error = MAT_FACTOR_NOERROR;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayCopy_CUDA(solver->A.a, A->a, A->nnz * sizeof(*A->a), PETSC_MEMTYPE_CUDA, A->where));
  const int phase  = solver->factored ? cudss::REFACTORIZATION : cudss::FACTORIZATION;
  solver->factored = false;
  PetscCall(Execute_CUDSS(solver, phase, 1, nullptr, n, nullptr, n, &status));
  if (status == cudss::ALLOC_FAILED) {
    PetscCall(OutOfMemory(solver, stats));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(Check_CUDSS(status, "compute a factor"));
  PetscCall(GetNumbers(solver, cudss::INFO, 1, &info));
  PetscCall(GetNumbers(solver, cudss::LU_NNZ, 1, &stats->nonzeros));
  PetscCall(GetNumbers(solver, cudss::NPIVOTS, 1, &stats->replaced));
  if (solver->kind == CUDSSKind::SYMMETRIC) PetscCall(GetNumbers(solver, cudss::INERTIA, 2, inertia));
  stats->positive = inertia[0];
  stats->negative = inertia[1];
  if (info) stats->error = MAT_FACTOR_NUMERIC_ZEROPIVOT;
  solver->factored = !info;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- solve -------------------------------------------- */

/* Vectors of the host pass through device memory, where they lie one behind the other. */
static PetscErrorCode Stage_CUDSS(LocalInt n, LocalInt columns, Buffer<PetscScalar> *staged)
{
  const size_t size = (size_t)n * columns;

  PetscFunctionBegin;
  if (staged->size() < size) PetscCall(staged->Allocate(size));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CUDSSSolve_CUDA(CUDSS *solver, PetscBool transposed, LocalInt columns, CUDSSVectors<const PetscScalar> B,
                               CUDSSVectors<PetscScalar> X)
{
  const LocalInt     n     = solver->A.rows;
  const size_t       bytes = n * sizeof(*B.a);
  const LocalInt     step  = solver->deterministic ? 1 : columns; /* that mode is for single vectors */
  const bool         turn  = transposed && solver->kind == CUDSSKind::GENERAL;
  const PetscScalar *b     = B.a;
  PetscScalar       *x     = X.a;
  LocalInt           b_ld = B.ld, x_ld = X.ld;
  int                status;

  PetscFunctionBegin;
  if (!n || !columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(solver->factored, PETSC_COMM_SELF, PETSC_ERR_ORDER, "There is no factor of cuDSS: its factorization has failed");
  if (!PetscMemTypeDevice(B.where)) {
    PetscCall(Stage_CUDSS(n, columns, &solver->b));
    for (LocalInt c = 0; c < columns; c++)
      PetscCall(ArrayCopy_CUDA(solver->b.data() + (size_t)c * n, B.a + (size_t)c * B.ld, bytes, PETSC_MEMTYPE_CUDA, B.where));
    b    = solver->b.data();
    b_ld = n;
  }
  if (!PetscMemTypeDevice(X.where)) {
    PetscCall(Stage_CUDSS(n, columns, &solver->x));
    x    = solver->x.data();
    x_ld = n;
  }
  PetscCall(Set_CUDSS(solver, cudss::SOLVE_MODE, turn, "solve with the transpose"));
  for (LocalInt c = 0; c < columns; c += step) {
    PetscCall(Execute_CUDSS(solver, cudss::SOLVE, step, b + (size_t)c * b_ld, b_ld, x + (size_t)c * x_ld, x_ld, &status));
    PetscCall(Check_CUDSS(status, "solve a system"));
  }
  if (!PetscMemTypeDevice(X.where))
    for (LocalInt c = 0; c < columns; c++)
      PetscCall(ArrayCopy_CUDA(X.a + (size_t)c * X.ld, x + (size_t)c * n, bytes, X.where, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}
