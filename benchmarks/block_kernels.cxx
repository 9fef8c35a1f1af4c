/*
  The part of finepc_kernels that measures block matrices: the product, block ILU(0) by levels and by sweeps, and the triangular
  solves that block-ISAI takes the place of (Ma, Hu, Yuan, Liu 2021). Of cuSPARSE, bsrilu02 and bsrsv2 are deprecated, bsrmv is not.
*/
#include "bsrsv2.h"
#include "kernels.h"
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include "sparse/bsr_mat.h"
#include "pc/bisai/bisai.h"

static constexpr PetscInt       kProducts    = 10;   /* products between two events */
static constexpr PetscInt       kSolves      = 30;   /* applications in the paper's T_p */
static constexpr PetscReal      kTolerance   = 1e-5; /* of the solves that count iterations */
static constexpr PetscLogDouble kFactorAsked = 5.;   /* times faster than PETSc's numerical factorisation on the host */

/* Uniform in [-1, 1), the same on every machine */
static std::vector<PetscScalar> MakeVector(size_t n)
{
  std::vector<PetscScalar>               x(n);
  std::mt19937                           generator(1);
  std::uniform_real_distribution<double> uniform(-1., 1.);

  for (auto &value : x) value = uniform(generator);
  return x;
}

/* max |y - z| / max |z|, or a NaN */
template <typename T>
static PetscLogDouble Difference(const std::vector<T> &y, const std::vector<PetscScalar> &z)
{
  PetscLogDouble difference = 0., most = 0.;

  for (size_t k = 0; k < z.size(); k++) {
    const PetscLogDouble d = std::fabs((double)y[k] - z[k]);

    if (std::isnan(d)) return d;
    difference = std::max(difference, d);
    most       = std::max(most, std::fabs(z[k]));
  }
  return difference / most;
}

template <typename T>
static PetscErrorCode CreateOnDevice(const std::vector<T> &values, DeviceArray *array)
{
  PetscFunctionBeginUser;
  PetscCall(array->Create(values.size() * sizeof(T)));
  PetscCall(CopyToDevice(array->data, values.data(), values.size() * sizeof(T)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
static PetscErrorCode Fetch(const void *data, size_t n, std::vector<T> *values)
{
  PetscFunctionBeginUser;
  values->resize(n);
  PetscCall(CopyToHost(values->data(), data, n * sizeof(T)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A's blocks on the device in one of the precisions */
static PetscErrorCode CreateBlocksOnDevice(const BSRView &A, FinePCPrecision precision, BSR *W)
{
  const size_t values = (size_t)A.nnz * A.bs * A.bs;

  PetscFunctionBeginUser;
  PetscCall(BSRCreate(A.bs, A.n, A.n, A.nnz, precision, PETSC_MEMTYPE_CUDA, W));
  PetscCall(CopyToDevice(W->i, A.i, ((size_t)A.n + 1) * sizeof(*A.i)));
  PetscCall(CopyToDevice(W->j, A.j, (size_t)A.nnz * sizeof(*A.j)));
  if (precision == FINEPC_SINGLE) {
    const std::vector<float> single(A.a, A.a + values);

    PetscCall(CopyToDevice(W->a, single.data(), values * sizeof(float)));
  } else PetscCall(CopyToDevice(W->a, A.a, values * sizeof(*A.a)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Keeps the device busy while the host launches what is timed */
struct Delay {
  DeviceArray data;

  PetscErrorCode Create()
  {
    cudaStream_t stream;

    PetscFunctionBeginUser;
    PetscCall(PetscGetCurrentCUDAStream(&stream));
    PetscCall(data.Create(2 * kDelay));
    PetscCallCUDA(cudaMemsetAsync(data.data, 0, 2 * kDelay, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode Run() const { return CopyOnDevice(data.at(kDelay), data.data, kDelay); }
};

/* ---------------------------------------- the product ----------------------------------------- */

static cusparseStatus_t Bsrmv(const CuSPARSE &cusparse, const BSR &W, const float *x, float *y)
{
  const float one = 1.f, zero = 0.f;

  return cusparseSbsrmv(cusparse.handle, CUSPARSE_DIRECTION_COLUMN, CUSPARSE_OPERATION_NON_TRANSPOSE, W.rows, W.columns, W.nnz,
                        &one, cusparse.A, (const float *)W.a, W.i, W.j, W.bs, x, &zero, y);
}

static cusparseStatus_t Bsrmv(const CuSPARSE &cusparse, const BSR &W, const double *x, double *y)
{
  const double one = 1., zero = 0.;

  return cusparseDbsrmv(cusparse.handle, CUSPARSE_DIRECTION_COLUMN, CUSPARSE_OPERATION_NON_TRANSPOSE, W.rows, W.columns, W.nnz,
                        &one, cusparse.A, (const double *)W.a, W.i, W.j, W.bs, x, &zero, y);
}

/* Blocks, columns, row pointers and x are read once, y is written */
static PetscLogDouble ProductBytes(const BSRView &A, size_t value_bytes, size_t vector_bytes)
{
  return (PetscLogDouble)A.nnz * ((PetscLogDouble)(value_bytes * A.bs * A.bs) + sizeof(LocalInt)) +
         ((PetscLogDouble)A.n + 1.) * sizeof(LocalInt) + 2. * (PetscLogDouble)vector_bytes * A.n * A.bs;
}

template <typename T>
static PetscErrorCode MeasureProductIn(const BSRView &A, const CuSPARSE &cusparse, const Delay &delay, PetscInt repeats,
                                       const std::vector<PetscScalar> &x, const std::vector<PetscScalar> &expected, BSR *W,
                                       BlockProduct *product)
{
  const std::vector<T>     x_in(x.begin(), x.end());
  std::vector<PetscScalar> y_own;
  std::vector<T>           y_cusparse;
  DeviceArray              own_x, own_y, cusparse_x, cusparse_y;

  PetscFunctionBeginUser;
  PetscCall(CreateBlocksOnDevice(A, product->precision, W));
  PetscCall(CreateOnDevice(x, &own_x));
  PetscCall(own_y.Create(x.size() * sizeof(PetscScalar)));
  const auto own = [&]() {
    PetscFunctionBeginUser;
    for (PetscInt k = 0; k < kProducts; k++)
      PetscCall(BSRMultiply_CUDA(W, 1, (const PetscScalar *)own_x.data, 0, nullptr, 0, (PetscScalar *)own_y.data, 0, PETSC_FALSE));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  PetscCall(TimeOnDevice(repeats, [&]() { return delay.Run(); }, own, &product->own));
  PetscCall(Fetch(own_y.data, x.size(), &y_own));
  product->bytes      = ProductBytes(A, sizeof(T), sizeof(PetscScalar));
  product->difference = Difference(y_own, expected);

  if (A.bs > 1) { /* bsrmv does not take blocks of one row */
    PetscCall(CreateOnDevice(x_in, &cusparse_x));
    PetscCall(cusparse_y.Create(x.size() * sizeof(T)));
    const auto theirs = [&]() {
      PetscFunctionBeginUser;
      for (PetscInt k = 0; k < kProducts; k++)
        PetscCallCUSPARSE(Bsrmv(cusparse, *W, (const T *)cusparse_x.data, (T *)cusparse_y.data));
      PetscFunctionReturn(PETSC_SUCCESS);
    };
    PetscCall(TimeOnDevice(repeats, [&]() { return delay.Run(); }, theirs, &product->cusparse));
    PetscCall(Fetch(cusparse_y.data, x.size(), &y_cusparse));
    product->cusparse_bytes      = ProductBytes(A, sizeof(T), sizeof(T));
    product->cusparse_difference = Difference(y_cusparse, expected);
  }
  for (auto *seconds : {&product->own, &product->cusparse}) {
    for (auto &s : *seconds) s /= (PetscLogDouble)kProducts;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MeasureProduct(const BSRView &A, const CuSPARSE &cusparse, const Delay &delay, PetscInt repeats,
                                     const std::vector<PetscScalar> &x, const std::vector<PetscScalar> &expected,
                                     BlockProduct *product)
{
  BSR W{};

  PetscFunctionBeginUser;
  if (product->precision == FINEPC_SINGLE)
    PetscCall(MeasureProductIn<float>(A, cusparse, delay, repeats, x, expected, &W, product));
  else PetscCall(MeasureProductIn<double>(A, cusparse, delay, repeats, x, expected, &W, product));
  PetscCall(BSRDestroy(&W));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------------- block ILU(0) ---------------------------------------- */

/* PETSc's block ILU(0) on the host, with the choices of PCILU: seconds, and z = M^{-1} r */
static PetscErrorCode MeasureHostILU(Mat B, PetscInt repeats, const std::vector<PetscScalar> &r, std::vector<PetscScalar> *z,
                                     BlockILU *ilu)
{
  Mat            F;
  Vec            r_vec, z_vec;
  IS             rows, columns;
  MatFactorInfo  info;
  PetscLogDouble start, end;

  PetscFunctionBeginUser;
  PetscCall(MatFactorInfoInitialize(&info));
  info.fill          = 1.;
  info.pivotinblocks = 1.; /* PETSc 3.24 to 3.26 exchange rows in a block whatever this is, unless they factor in place */
  info.zeropivot = info.shiftamount = 100. * PETSC_MACHINE_EPSILON;
  PetscCall(PetscTime(&start));
  PetscCall(MatGetOrdering(B, MATORDERINGNATURAL, &rows, &columns));
  PetscCall(MatGetFactor(B, MATSOLVERPETSC, MAT_FACTOR_ILU, &F));
  PetscCall(MatILUFactorSymbolic(F, B, rows, columns, &info));
  PetscCall(PetscTime(&end));
  ilu->host_analysis = end - start;
  for (PetscInt repeat = 0; repeat < PetscMin(repeats, 3); repeat++) {
    PetscCall(PetscTime(&start));
    PetscCall(MatLUFactorNumeric(F, B, &info));
    PetscCall(PetscTime(&end));
    ilu->host_factor.push_back(end - start);
  }
  z->resize(r.size());
  PetscCall(MatCreateVecs(B, &z_vec, &r_vec));
  PetscCall(VecPlaceArray(r_vec, r.data()));
  PetscCall(VecPlaceArray(z_vec, z->data()));
  PetscCall(MatSolve(F, r_vec, z_vec));
  PetscCall(PetscTime(&start));
  for (PetscInt k = 0; k < kSolves; k++) PetscCall(MatSolve(F, r_vec, z_vec));
  PetscCall(PetscTime(&end));
  ilu->host_solves.push_back(end - start);
  PetscCall(VecResetArray(z_vec));
  PetscCall(VecResetArray(r_vec));
  PetscCall(VecDestroy(&z_vec));
  PetscCall(VecDestroy(&r_vec));
  PetscCall(ISDestroy(&columns));
  PetscCall(ISDestroy(&rows));
  PetscCall(MatDestroy(&F));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z_k -= sum of blocks times z_j, column-major */
static void SubtractBlocks(const std::vector<LocalInt> &j, const std::vector<PetscScalar> &a, LocalInt bs, LocalInt from,
                           LocalInt to, LocalInt k, std::vector<PetscScalar> *z)
{
  for (LocalInt block = from; block < to; block++) {
    for (LocalInt c = 0; c < bs; c++) {
      const PetscScalar z_c = (*z)[(size_t)j[block] * bs + c];

      for (LocalInt r = 0; r < bs; r++) (*z)[(size_t)k * bs + r] -= a[((size_t)block * bs + c) * bs + r] * z_c;
    }
  }
}

/* The two triangular solves with a factor on the device, in plain loops on the host */
static PetscErrorCode SolveWithFactor(const BlockLU &F, std::vector<PetscScalar> *z)
{
  std::vector<LocalInt>    place[LU_PLACES], j;
  std::vector<PetscScalar> a, right((size_t)F.bs);

  PetscFunctionBeginUser;
  for (int p = 0; p < LU_PLACES; p++) PetscCall(Fetch(F.place[p], (size_t)F.n, &place[p]));
  PetscCall(Fetch(F.j, (size_t)F.nnz, &j));
  PetscCall(Fetch(F.a, (size_t)F.nnz * F.bs * F.bs, &a));
  for (LocalInt k = 0; k < F.n; k++) SubtractBlocks(j, a, F.bs, place[LU_L][k], place[LU_L_END][k], k, z);
  for (LocalInt k = F.n - 1; k >= 0; k--) {
    const PetscScalar *const inverse = a.data() + (size_t)place[LU_DIAGONAL][k] * F.bs * F.bs;

    SubtractBlocks(j, a, F.bs, place[LU_U][k], place[LU_U_END][k], k, z);
    std::copy_n(z->begin() + (size_t)k * F.bs, F.bs, right.begin());
    for (LocalInt r = 0; r < F.bs; r++) {
      (*z)[(size_t)k * F.bs + r] = 0.;
      for (LocalInt c = 0; c < F.bs; c++) (*z)[(size_t)k * F.bs + r] += inverse[c * F.bs + r] * right[c];
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ||x - f|| / ||f|| of two factors on the device, all blocks together */
static PetscErrorCode FactorDifference(PetscInt n, const PetscScalar *x, const PetscScalar *f, PetscLogDouble *difference)
{
  Vec       x_vec, f_vec, d;
  PetscReal f_norm, d_norm;

  PetscFunctionBeginUser;
  PetscCall(VecCreateSeqCUDAWithArray(PETSC_COMM_SELF, 1, n, x, &x_vec));
  PetscCall(VecCreateSeqCUDAWithArray(PETSC_COMM_SELF, 1, n, f, &f_vec));
  PetscCall(VecDuplicate(f_vec, &d));
  PetscCall(VecWAXPY(d, -1., f_vec, x_vec));
  PetscCall(VecNorm(f_vec, NORM_2, &f_norm));
  PetscCall(VecNorm(d, NORM_2, &d_norm));
  *difference = d_norm / f_norm;
  PetscCall(VecDestroy(&d));
  PetscCall(VecDestroy(&f_vec));
  PetscCall(VecDestroy(&x_vec));
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Inverses {
  BSR         N[2] = {}; /* NL, NU */
  DeviceArray middle;
};

static PetscErrorCode ApplyInverses(PC pc, Vec r, Vec z)
{
  Inverses          *inverses;
  const PetscScalar *r_a;
  PetscScalar       *z_a;

  PetscFunctionBeginUser;
  PetscCall(PCShellGetContext(pc, &inverses));
  PetscScalar *const middle = (PetscScalar *)inverses->middle.data;
  PetscCall(VecGetArrayReadAndMemType(r, &r_a, nullptr));
  PetscCall(VecGetArrayWriteAndMemType(z, &z_a, nullptr));
  PetscCall(
    BSRMultiply_CUDA(&inverses->N[BISAI_LOWER], 1, r_a, 0, r_a, 0, middle, 0, PETSC_FALSE)); /* the unit diagonal is not stored */
  PetscCall(BSRMultiply_CUDA(&inverses->N[BISAI_UPPER], 1, middle, 0, nullptr, 0, z_a, 0, PETSC_TRUE));
  PetscCall(VecRestoreArrayWriteAndMemType(z, &z_a));
  PetscCall(VecRestoreArrayReadAndMemType(r, &r_a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Iterations of GMRES(30), right preconditioned by the inverses that PCBISAI makes of a factor by default, for b = A 1; 0: it did
   not converge
*/
static PetscErrorCode CountIterations(Mat A, const BlockLU &F, PetscInt *iterations)
{
  const BISAIParams  params{};
  BISAIStats         stats{};
  BISAIWork          work{};
  Inverses           inverses;
  KSP                ksp;
  PC                 pc;
  Vec                x, b;
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  for (const BISAITriangle t : {BISAI_LOWER, BISAI_UPPER}) {
    const PetscBool diagonal = (PetscBool)(t == BISAI_UPPER);

    PetscCall(BISAIPattern_CUDA(&F, t, diagonal, params.power, params.factor_precision, &inverses.N[t], &stats));
    PetscCall(BISAIInvert_CUDA(&F, t, diagonal, &params, nullptr, &inverses.N[t], &work, &stats));
  }
  PetscCall(inverses.middle.Create((size_t)F.n * F.bs * sizeof(PetscScalar)));
  PetscCall(MatCreateVecs(A, &x, &b));
  PetscCall(VecSet(x, 1.));
  PetscCall(MatMult(A, x, b));
  PetscCall(KSPCreate(PETSC_COMM_SELF, &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, KSPGMRES));
  PetscCall(KSPSetPCSide(ksp, PC_RIGHT));
  PetscCall(KSPSetTolerances(ksp, kTolerance, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, PCSHELL));
  PetscCall(PCShellSetContext(pc, &inverses));
  PetscCall(PCShellSetApply(pc, ApplyInverses));
  PetscCall(KSPSolve(ksp, b, x));
  PetscCall(KSPGetIterationNumber(ksp, iterations));
  PetscCall(KSPGetConvergedReason(ksp, &reason));
  if (reason <= 0) *iterations = 0;
  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&x));
  for (auto &N : inverses.N) PetscCall(BSRDestroy(&N));
  PetscCall(ArrayDestroy(work.where, &work.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sweeps beside the factor by levels, F. As many sweeps as there are levels end at F, up to rounding. */
static PetscErrorCode MeasureSweeps(const Backend &backend, Mat device, const BSRView &A, const BlockLU &F, PetscInt repeats,
                                    BlockILU *ilu)
{
  const PetscInt warm  = 2;
  BlockLU        swept = {};
  BILUPlan      *plan  = nullptr;
  BILUStats      stats{};
  PetscLogDouble start, end;

  PetscFunctionBeginUser;
  for (PetscInt analysis = 0; analysis < warm; analysis++) { /* it is the same for any number of sweeps above 0 */
    PetscCall(BILUPlanDestroy_CUDA(&plan));
    PetscCall(BlockLUDestroy(&swept));
    PetscCall(TimeSynchronized(backend, &start));
    PetscCall(BILUAnalyse_CUDA(&A, 1, &swept, &plan, &stats));
    PetscCall(TimeSynchronized(backend, &end));
  }
  ilu->sweeps_analysis = end - start;
  for (const PetscInt count : {1, 2, 3, 5, 10, 20, (int)ilu->levels}) {
    BlockSweeps row;

    row.count = count;
    for (PetscInt repeat = 0; repeat < warm + repeats; repeat++) {
      PetscCall(TimeSynchronized(backend, &start));
      PetscCall(BILUFactor_CUDA(&A, (LocalInt)count, plan, &swept, &stats));
      PetscCall(TimeSynchronized(backend, &end));
      if (repeat >= warm) row.seconds.push_back(end - start);
    }
    PetscCall(FactorDifference(A.nnz * A.bs * A.bs, swept.a, F.a, &row.difference));
    PetscCall(CountIterations(device, swept, &row.iterations));
    ilu->sweeps.push_back(row);
  }
  PetscCall(BILUPlanDestroy_CUDA(&plan));
  PetscCall(BlockLUDestroy(&swept));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MeasureOwnILU(const Backend &backend, Mat device, const BSRView &A, PetscInt repeats,
                                    const std::vector<PetscScalar> &r, const std::vector<PetscScalar> &expected, BlockILU *ilu,
                                    std::string *note)
{
  const PetscInt           warm = 2;
  std::vector<PetscScalar> z    = r;
  BlockLU                  F{};
  BILUPlan                *plan = nullptr;
  BILUStats                stats{};
  PetscLogDouble           start, end;

  PetscFunctionBeginUser;
  for (PetscInt analysis = 0; analysis < warm; analysis++) { /* the first one loads the kernels */
    PetscCall(BILUPlanDestroy_CUDA(&plan));
    PetscCall(BlockLUDestroy(&F));
    PetscCall(TimeSynchronized(backend, &start));
    PetscCall(BILUAnalyse_CUDA(&A, 0, &F, &plan, &stats));
    PetscCall(TimeSynchronized(backend, &end));
  }
  ilu->own_analysis = end - start;
  PetscCheck(!stats.failure, PETSC_COMM_SELF, PETSC_ERR_PLIB, "The matrix has no block ILU(0)");
  for (PetscInt repeat = 0; repeat < warm + repeats; repeat++) {
    PetscCall(TimeSynchronized(backend, &start));
    PetscCall(BILUFactor_CUDA(&A, 0, plan, &F, &stats));
    PetscCall(TimeSynchronized(backend, &end));
    if (repeat >= warm) ilu->own_factor.push_back(end - start);
  }
  PetscCheck(!stats.failure, PETSC_COMM_SELF, PETSC_ERR_PLIB, "The block ILU(0) of the matrix failed");
  if (stats.singular_blocks) *note += Format("%d singular blocks; ", (int)stats.singular_blocks);
  PetscCall(SolveWithFactor(F, &z));
  ilu->own_difference = Difference(z, expected);
  ilu->levels         = stats.levels;
  PetscCall(MeasureSweeps(backend, device, A, F, repeats, ilu));
  PetscCall(BILUPlanDestroy_CUDA(&plan));
  PetscCall(BlockLUDestroy(&F));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if HAVE_BSRSV2
static PetscErrorCode MeasureCuSPARSEILU(const Backend &backend, const CuSPARSE &cusparse, const BSRView &A, const Delay &delay,
                                         PetscInt repeats, const std::vector<PetscScalar> &r,
                                         const std::vector<PetscScalar> &expected, BlockILU *ilu)
{
  std::vector<PetscScalar> z;
  DeviceArray              right, solution;
  Bsrsv2                   bsrsv2;
  PetscLogDouble           start, end;

  PetscFunctionBeginUser;
  PetscCall(bsrsv2.Create(cusparse, A));
  PetscCall(TimeSynchronized(backend, &start));
  PetscCall(bsrsv2.Analyse());
  PetscCall(TimeSynchronized(backend, &end));
  ilu->cusparse_analysis = end - start;

  const auto restore = [&]() {
    PetscFunctionBeginUser;
    PetscCall(delay.Run());
    PetscCall(bsrsv2.CopyValues(A));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  PetscCall(TimeOnDevice(repeats, restore, [&]() { return bsrsv2.Factor(); }, &ilu->cusparse_factor));
  PetscCall(bsrsv2.CheckPivots());

  PetscCall(CreateOnDevice(r, &right));
  PetscCall(solution.Create(r.size() * sizeof(double)));
  const auto solves = [&]() {
    PetscFunctionBeginUser;
    for (PetscInt k = 0; k < kSolves; k++) PetscCall(bsrsv2.Solve((const PetscScalar *)right.data, (PetscScalar *)solution.data));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  PetscCall(TimeOnDevice(PetscMin(repeats, 3), [&]() { return delay.Run(); }, solves, &ilu->cusparse_solves));
  PetscCall(Fetch(solution.data, r.size(), &z));
  ilu->cusparse_difference = Difference(z, expected);
  PetscFunctionReturn(PETSC_SUCCESS);
}
#else
static PetscErrorCode MeasureCuSPARSEILU(const Backend &, const CuSPARSE &, const BSRView &, const Delay &, PetscInt,
                                         const std::vector<PetscScalar> &, const std::vector<PetscScalar> &, BlockILU *)
{
  return PETSC_SUCCESS; /* this cuSPARSE no longer has bsrilu02 and bsrsv2: their columns stay empty */
}
#endif

/* ----------------------------------------- one system ----------------------------------------- */

static PetscErrorCode MeasureBlocksOf(const Backend &backend, Mat B, PetscInt repeats, BlockResult *result)
{
  const PetscLogDouble     rounding[2] = {1e-5, 1e-12}; /* of products, single and double */
  const PetscLogDouble     agreement   = 1e-8;          /* of triangular solves, whose rounding errors grow */
  BSRMat                   mat;
  BSR                      W{}, copy{};
  Mat                      device;
  Vec                      x_vec, y_vec;
  std::vector<PetscScalar> y, z;
  CuSPARSE                 cusparse;
  Delay                    delay;
  bool                     good = true;

  PetscFunctionBeginUser;
  PetscCall(cusparse.Create());
  PetscCall(delay.Create());
  PetscCall(MatGetBSR(B, PETSC_MEMTYPE_HOST, PETSC_FALSE, &copy, &mat));
  result->bs     = mat.A.bs;
  result->rows   = mat.A.n;
  result->blocks = mat.A.nnz;

  const std::vector<PetscScalar> x = MakeVector((size_t)mat.A.n * mat.A.bs);
  y.resize(x.size());
  PetscCall(MatCreateVecs(B, &x_vec, &y_vec));
  PetscCall(VecPlaceArray(x_vec, x.data()));
  PetscCall(VecPlaceArray(y_vec, y.data()));
  PetscCall(MatMult(B, x_vec, y_vec));
  PetscCall(VecResetArray(y_vec));
  PetscCall(VecResetArray(x_vec));
  PetscCall(VecDestroy(&y_vec));
  PetscCall(VecDestroy(&x_vec));
  for (const auto precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
    BlockProduct *const  product = &result->products[precision == FINEPC_DOUBLE];
    const PetscLogDouble limit   = rounding[precision == FINEPC_DOUBLE];

    product->precision = precision;
    PetscCall(MeasureProduct(mat.A, cusparse, delay, repeats, x, y, product));
    good = good && product->difference <= limit && product->cusparse_difference <= limit; /* false with a NaN */
  }

  PetscCall(MeasureHostILU(B, repeats, x, &z, &result->ilu));
  PetscCall(CreateBlocksOnDevice(mat.A, FINEPC_DOUBLE, &W));
  PetscCall(MatConvert(B, MATBAIJCUDA, MAT_INITIAL_MATRIX, &device));
  PetscCall(MeasureOwnILU(backend, device, BSRViewOf(&W), repeats, x, z, &result->ilu, &result->note));
  PetscCall(MatDestroy(&device));
  PetscCall(MeasureCuSPARSEILU(backend, cusparse, BSRViewOf(&W), delay, repeats, x, z, &result->ilu));
  good = good && result->ilu.own_difference <= agreement && result->ilu.cusparse_difference <= agreement;
  /* the fixed point of the sweeps is the factor by levels */
  good = good && result->ilu.sweeps.back().difference <= agreement;
  if (result->ilu.cusparse_factor.empty()) result->note += "this cuSPARSE has no bsrilu02 and bsrsv2; ";
  PetscCall(BSRDestroy(&W));
  PetscCall(MatRestoreBSR(&mat));
  PetscCall(BSRDestroy(&copy));
  result->status = good ? "ok" : "wrong";
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MeasureBlocks(const Backend &backend, const std::string &spec, PetscInt repeats, BlockResult *result)
{
  System *const  system = &result->system;
  BSRMat         mat;
  BSR            W{};
  Mat            B;
  PetscLogDouble start, end;

  PetscFunctionBeginUser;
  system->name = spec;
  PetscCall(PetscTime(&start));
  PetscCall(SystemCreate(PETSC_COMM_WORLD, spec, backend, system));
  /* faster than MatConvert(), which looks up every entry */
  PetscCall(MatGetBSR(system->A, PETSC_MEMTYPE_HOST, PETSC_FALSE, &W, &mat));
  PetscCall(MatCreateFromBSR(PETSC_COMM_SELF, &W, PETSC_FALSE, &B));
  PetscCall(MatRestoreBSR(&mat));
  PetscCall(BSRDestroy(&W));
  PetscCall(SystemDestroy(system));
  PetscCall(MeasureBlocksOf(backend, B, repeats, result));
  PetscCall(MatDestroy(&B));
  PetscCall(PetscTime(&end));
  result->wall = end - start;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the report ----------------------------------------- */

static const std::vector<Column> kProductColumns = {
  {"system", -16},     {"bs", 2},      {"block rows", 10}, {"blocks", 8},      {"precision", -9}, {"us", 8},    {"floor %", 7},
  {"cuSPARSE us", 11}, {"floor %", 7}, {"ratio", 5},       {"difference", 10}, {"status", -6},    {"note", -4},
};

static const std::vector<Column> kILUColumns = {
  {"system", -16},
  {"bs", 2},
  {"host analysis ms", 16},
  {"host factor ms", 14},
  {"analysis ms", 11},
  {"factor ms", 9},
  {"ratio", 6},
  {"asked", 5},
  {"cuSPARSE analysis ms", 20},
  {"bsrilu02 ms", 11},
  {"host T_p ms", 11},
  {"bsrsv2 T_p ms", 13},
  {"difference", 10},
  {"cuSPARSE difference", 19},
  {"status", -6},
};

static const std::vector<Column> kSweepColumns = {
  {"system", -16}, {"bs", 2}, {"levels", 6},      {"levels ms", 9}, {"analysis ms", 11},
  {"sweeps", 6},   {"ms", 8}, {"difference", 10}, {"its", 5},       {"status", -6},
};

std::string BlockHeader(PetscInt repeats)
{
  return Format("Products y = A x with block matrices, %d at a time, the best of %d; x and y in double, with cuSPARSE's bsrmv in "
                "the precision of the\n"
                "blocks. floor: blocks, columns, row pointers, x and y once at the copy bandwidth; ratio: cuSPARSE's time over "
                "ours; difference from MatMult() of\n"
                "MATBAIJ. bsrmv takes no blocks of 1.\n\n",
                (int)kProducts, (int)repeats) +
         MarkdownHeader(kProductColumns);
}

std::string BlockRow(const Backend &backend, const BlockResult &result)
{
  std::string text;

  for (const auto &product : result.products) {
    const PetscLogDouble own = Best(product.own), cusparse = Best(product.cusparse);

    text +=
      MarkdownCells(kProductColumns, {
                                       result.system.name,
                                       Format("%d", (int)result.bs),
                                       Format("%d", (int)result.rows),
                                       Format("%d", (int)result.blocks),
                                       FinePCPrecisions[product.precision],
                                       Cell("%.1f", 1e6 * own, own > 0.),
                                       Cell("%.0f", 100. * FloorFraction(backend, product.bytes, own), own > 0.),
                                       Cell("%.1f", 1e6 * cusparse, cusparse > 0.),
                                       Cell("%.0f", 100. * FloorFraction(backend, product.cusparse_bytes, cusparse), cusparse > 0.),
                                       Cell("%.2f", Quotient(cusparse, own), own > 0. && cusparse > 0.),
                                       Cell("%.0e", product.difference, own > 0.),
                                       result.status,
                                       result.note,
                                     });
  }
  return text;
}

std::string BlockILUHeader()
{
  return Format("Block ILU(0): PETSc's MATBAIJ on the host, ours on the device, cuSPARSE's bsrilu02, which is deprecated. "
                "factor: the numerical part; ratio: the\n"
                "host's over ours. T_p: %d applications of both triangular solves, MatSolve() and cuSPARSE's deprecated bsrsv2 "
                "with its own factor. difference of\n"
                "one application from MatSolve().\n\n",
                (int)kSolves) +
         MarkdownHeader(kILUColumns);
}

std::string BlockILURow(const BlockResult &result)
{
  const BlockILU      &ilu  = result.ilu;
  const PetscLogDouble host = Best(ilu.host_factor), own = Best(ilu.own_factor), cusparse = Best(ilu.cusparse_factor);

  return MarkdownCells(kILUColumns, {
                                      result.system.name,
                                      Format("%d", (int)result.bs),
                                      Cell("%.2f", 1e3 * ilu.host_analysis, host > 0.),
                                      Cell("%.2f", 1e3 * host, host > 0.),
                                      Cell("%.2f", 1e3 * ilu.own_analysis, own > 0.),
                                      Cell("%.3f", 1e3 * own, own > 0.),
                                      Cell("%.1f", Quotient(host, own), own > 0.),
                                      Cell("%.0f", kFactorAsked, true),
                                      Cell("%.2f", 1e3 * ilu.cusparse_analysis, cusparse > 0.),
                                      Cell("%.3f", 1e3 * cusparse, cusparse > 0.),
                                      Cell("%.1f", 1e3 * Best(ilu.host_solves), host > 0.),
                                      Cell("%.2f", 1e3 * Best(ilu.cusparse_solves), !ilu.cusparse_solves.empty()),
                                      Cell("%.0e", ilu.own_difference, own > 0.),
                                      Cell("%.0e", ilu.cusparse_difference, !ilu.cusparse_solves.empty()),
                                      result.status,
                                    });
}

std::string BlockSweepsHeader()
{
  return "Block ILU(0) by fixed-point sweeps over all block rows, beside the elimination by levels (levels ms: factor ms of "
         "above). analysis: once for a pattern.\n"
         "difference from the factor by levels, in the Frobenius norm of all blocks of L, U and U_ii^{-1}; as many sweeps as "
         "levels must be exact. its:\n"
         "GMRES(30), right preconditioned by the inverses of the factor with power 1 in single, b = A 1, to 1e-5.\n\n" +
         MarkdownHeader(kSweepColumns);
}

std::string BlockSweepsRows(const BlockResult &result)
{
  const BlockILU &ilu = result.ilu;
  std::string     text;

  for (const auto &row : ilu.sweeps) {
    text += MarkdownCells(kSweepColumns, {
                                           result.system.name,
                                           Format("%d", (int)result.bs),
                                           Format("%d", (int)ilu.levels),
                                           Cell("%.3f", 1e3 * Best(ilu.own_factor), true),
                                           Cell("%.2f", 1e3 * ilu.sweeps_analysis, true),
                                           Format("%d", (int)row.count),
                                           Cell("%.3f", 1e3 * Best(row.seconds), true),
                                           Cell("%.0e", row.difference, true),
                                           Cell("%.0f", (double)row.iterations, row.iterations > 0),
                                           result.status,
                                         });
  }
  return text;
}

static Json ProductJson(const Backend &backend, const BlockProduct &product)
{
  const PetscLogDouble own = Best(product.own), cusparse = Best(product.cusparse);
  Json                 json;

  json["precision"]               = FinePCPrecisions[product.precision];
  json["s"]                       = Rounded(own);
  json["bytes"]                   = Rounded(product.bytes);
  json["floor_fraction"]          = Rounded(FloorFraction(backend, product.bytes, own));
  json["difference"]              = Rounded(product.difference);
  json["cusparse_s"]              = Rounded(cusparse);
  json["cusparse_bytes"]          = Rounded(product.cusparse_bytes);
  json["cusparse_floor_fraction"] = Rounded(FloorFraction(backend, product.cusparse_bytes, cusparse));
  json["cusparse_difference"]     = Rounded(product.cusparse_difference);
  json["all_s"]                   = RoundedAll(product.own);
  json["cusparse_all_s"]          = RoundedAll(product.cusparse);
  return json;
}

static Json SweepsJson(const BlockSweeps &row)
{
  Json json;

  json["sweeps"]     = row.count;
  json["s"]          = Rounded(Best(row.seconds));
  json["difference"] = Rounded(row.difference);
  json["iterations"] = row.iterations;
  return json;
}

static Json ILUJson(const BlockILU &ilu)
{
  Json json, sweeps = Json::array();

  for (const auto &row : ilu.sweeps) sweeps.push_back(SweepsJson(row));
  json["host_analysis_s"]     = Rounded(ilu.host_analysis);
  json["host_factor_s"]       = Rounded(Best(ilu.host_factor));
  json["host_t_p_s"]          = Rounded(Best(ilu.host_solves));
  json["analysis_s"]          = Rounded(ilu.own_analysis);
  json["factor_s"]            = Rounded(Best(ilu.own_factor));
  json["ratio"]               = Rounded(Quotient(Best(ilu.host_factor), Best(ilu.own_factor)));
  json["asked_ratio"]         = kFactorAsked;
  json["difference"]          = Rounded(ilu.own_difference);
  json["cusparse_analysis_s"] = Rounded(ilu.cusparse_analysis);
  json["cusparse_factor_s"]   = Rounded(Best(ilu.cusparse_factor));
  json["cusparse_t_p_s"]      = Rounded(Best(ilu.cusparse_solves));
  json["cusparse_difference"] = Rounded(ilu.cusparse_difference);
  json["host_factor_all_s"]   = RoundedAll(ilu.host_factor);
  json["factor_all_s"]        = RoundedAll(ilu.own_factor);
  json["levels"]              = ilu.levels;
  json["sweeps_analysis_s"]   = Rounded(ilu.sweeps_analysis);
  json["sweeps"]              = sweeps;
  return json;
}

Json BlocksJson(const Backend &backend, const BlockResult &result)
{
  Json json, products = Json::array();

  for (const auto &product : result.products) products.push_back(ProductJson(backend, product));
  json["system"]     = result.system.name;
  json["status"]     = result.status;
  json["note"]       = result.note;
  json["wall_s"]     = Rounded(result.wall); /* of all measurements with the system */
  json["bs"]         = result.bs;
  json["block_rows"] = result.rows;
  json["blocks"]     = result.blocks;
  json["products"]   = products;
  json["ilu"]        = ILUJson(result.ilu);
  return json;
}
