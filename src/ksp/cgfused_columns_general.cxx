/*
   Several right-hand sides with the fused conjugate gradient method by the products of any matrix and preconditioner:
   MatMatMult(), as far as the matrix has it, and PCMatApply(). The host decides about every iteration and column. There are two
   reductions an iteration, for all columns together, on any number of ranks: shared by the columns they cost less than the vectors
   that a single reduction would read and write for each of them.

   On several ranks the product with an AIJ matrix is an own one, with one exchange for all columns. That of PETSc 3.26 prepares
   itself anew in every solve, and with MATMPIAIJCUSPARSE in every product.
*/
#include "agree.h"
#include "cgfused_columns.h"
#include "confirm.h"
#include "entry.h"
#include "sparse/bsr_mat.h"

namespace
{

/* What a solve works with. */
struct BlockSolve {
  BlockSolve(KSP of, CGFusedBatch &columns) : ksp(of), batch(columns) { }

  KSP            ksp;
  CGFusedBatch  &batch;
  CGColumnsWork *work    = nullptr; /* of the GPU */
  Mat            A       = nullptr;
  PetscBool      device  = PETSC_FALSE; /* the vectors are on the GPU */
  bool           product = false;       /* W = A P is a product of matrices, */
  bool           own     = false;       /* or one of the rank's rows with the exchange; otherwise it is made column by column */
  Mat            R = nullptr, Z = nullptr, P = nullptr, W = nullptr;
  LocalInt       n = 0; /* rows of the rank */
};

/* ------------------------------------- arrays and sums ---------------------------------------- */

/* The array of a dense matrix where the solve runs. */
struct ReadArray {
  const PetscScalar *a = nullptr;
  LocalInt           ld;
};
struct WriteArray {
  PetscScalar *a = nullptr; /* its values are kept */
  LocalInt     ld;
};

PetscErrorCode Get(const BlockSolve &cg, Mat M, ReadArray *array)
{
  PetscMemType where;

  PetscFunctionBegin;
  PetscCall(CGGetLeadingSize(M, &array->ld));
  PetscCall(cg.device ? MatDenseGetArrayReadAndMemType(M, &array->a, &where) : MatDenseGetArrayRead(M, &array->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Restore(const BlockSolve &cg, Mat M, ReadArray *array)
{
  PetscFunctionBegin;
  PetscCall(cg.device ? MatDenseRestoreArrayReadAndMemType(M, &array->a) : MatDenseRestoreArrayRead(M, &array->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Get(const BlockSolve &cg, Mat M, WriteArray *array)
{
  PetscMemType where;

  PetscFunctionBegin;
  PetscCall(CGGetLeadingSize(M, &array->ld));
  PetscCall(cg.device ? MatDenseGetArrayAndMemType(M, &array->a, &where) : MatDenseGetArray(M, &array->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Restore(const BlockSolve &cg, Mat M, WriteArray *array)
{
  PetscFunctionBegin;
  PetscCall(cg.device ? MatDenseRestoreArrayAndMemType(M, &array->a) : MatDenseRestoreArray(M, &array->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums z.r, z.z and r.r of each column over all ranks. */
PetscErrorCode Dots(const BlockSolve &cg, Mat Z, Mat R, PetscReal *sums)
{
  ReadArray z, r;

  PetscFunctionBegin;
  PetscCall(Get(cg, Z, &z));
  PetscCall(Get(cg, R, &r));
  PetscCall(CGTimeBegin(cg.device));
  if (cg.device) PetscCall(CGColumnsDots_CUDA(cg.work, cg.n, cg.batch.count, z.a, z.ld, r.a, r.ld, sums));
  else PetscCall(CGColumnsDots_Host(cg.n, cg.batch.count, z.a, z.ld, r.a, r.ld, sums));
  PetscCall(CGTimeEnd(cg.device));
  PetscCall(CGLogFlops(cg.device, 6. * cg.n * cg.batch.count));
  PetscCall(Restore(cg, R, &r));
  PetscCall(Restore(cg, Z, &z));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, (PetscMPIInt)(3 * cg.batch.count), MPIU_REAL, MPIU_SUM,
                              PetscObjectComm((PetscObject)cg.ksp)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

using Combine = PetscErrorCode (*)(LocalInt n, LocalInt columns, const CGColumnScalars *, const PetscScalar *X, LocalInt ldx,
                                   PetscScalar *Y, LocalInt ldy);

/* y = y + a x, or y = x + a y, by the twins that are given. */
PetscErrorCode CombineColumns(const BlockSolve &cg, Combine by_host, Combine by_device, const CGColumnScalars &a, Mat X, Mat Y)
{
  ReadArray  x;
  WriteArray y;

  PetscFunctionBegin;
  PetscCall(Get(cg, X, &x));
  PetscCall(Get(cg, Y, &y));
  PetscCall(CGTimeBegin(cg.device));
  PetscCall((cg.device ? by_device : by_host)(cg.n, cg.batch.count, &a, x.a, x.ld, y.a, y.ld));
  PetscCall(CGTimeEnd(cg.device));
  PetscCall(CGLogFlops(cg.device, 2. * cg.n * cg.batch.count));
  PetscCall(Restore(cg, Y, &y));
  PetscCall(Restore(cg, X, &x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same number for each column, or one of each of those that go on. */
template <typename F>
CGColumnScalars Scalars(const BlockSolve &cg, bool of_all, F value)
{
  CGColumnScalars scalars{};
  for (PetscInt c = 0; c < cg.batch.count; c++) {
    scalars.v[c]     = value(cg.batch.column[c]);
    scalars.stays[c] = (PetscBool)(!of_all && cg.batch.column[c].Ended());
  }
  return scalars;
}

/* ---------------------------------------- products -------------------------------------------- */

/* W = A P, if the matrix is of a type whose product with a dense matrix is known to be up to its values. */
PetscErrorCode MakeProduct(BlockSolve &cg)
{
  PetscBool known;

  PetscFunctionBegin;
  cg.product = false;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)cg.A, &known, MATSEQAIJ, MATSEQAIJCUSPARSE, MATSEQBAIJ, MATSEQSBAIJ, MATSEQDENSE,
                                      MATMPIDENSE, ""));
  if (!known || cg.own) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatProductCreateWithMat(cg.A, cg.P, nullptr, cg.W));
  PetscCall(MatProductSetType(cg.W, MATPRODUCT_AB));
  PetscCall(MatProductSetFromOptions(cg.W));
  cg.product = cg.W->ops->productsymbolic;
  if (cg.product) PetscCall(MatProductSymbolic(cg.W));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The first time that a matrix lends its rows it may copy them to the GPU, or their pattern in local numbers. */
PetscErrorCode LendRows(Mat A)
{
  CSRMat own, others;

  PetscFunctionBegin;
  PetscCall(MatGetCSR(A, &own));
  PetscErrorCode       code     = MatGetOtherCSR(A, &others);
  const PetscErrorCode restored = MatRestoreCSR(&own);
  if (!code) code = MatRestoreCSR(&others);
  PetscCall(code);
  PetscCall(restored);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Whether an AIJ matrix on several ranks has its rows where the solve runs, on all ranks. Then the exchange of its ghosts is made,
   unless that of the solve before has the same pattern.
*/
PetscErrorCode MakeExchange(BlockSolve &cg)
{
  KSP_CGFused *const   fused    = (KSP_CGFused *)cg.ksp->data;
  GhostExchange *const exchange = &fused->columns_exchange;
  PetscErrorCode       code     = PETSC_SUCCESS;
  PetscMemType         where;
  CopiedFrom           now;
  PetscBool            known;
  PetscMPIInt          all[2]; /* whether the ranks have the rows there, and the exchange */

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)cg.A, &known, MATMPIAIJ, MATMPIAIJCUSPARSE, ""));
  if (!known) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetValuesMemType(cg.A, &where));
  PetscCall(CGFusedGhostPattern(cg.A, &now));
  all[0] = (bool)PetscMemTypeDevice(where) == (bool)cg.device;
  all[1] =
    exchange->sf && exchange->where == where && now.id == fused->columns_pattern.id && now.state == fused->columns_pattern.state;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, 2, MPI_INT, MPI_LAND, PetscObjectComm((PetscObject)cg.ksp)));
  if (!all[0]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)cg.ksp), LendRows(cg.A), "lend its rows of the matrix"));
  if (!all[1]) {
    Mat             others;
    PetscSF         sf;
    PetscInt        count;
    LocalInt        ghosts;
    const PetscInt *columns;

    PetscCall(GhostExchangeDestroy(exchange));
    PetscCall(MatMPIAIJGetSeqAIJ(cg.A, nullptr, &others, &columns));
    PetscCall(MatGetLocalSize(others, nullptr, &count));
    PetscCall(MatGetGhostSF(cg.A, count, columns, &sf));
    code = LocalIntCast(count, "columns of other ranks", &ghosts);
    if (!code) code = GhostExchangeCreate(where, ghosts, exchange);
    exchange->sf           = sf;
    fused->columns_pattern = now;
  }
  PetscCall(GhostExchangeNeedColumns(exchange, PetscMax(cg.batch.count, 2), code)); /* one column alone would not be agreed upon */
  cg.own = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows that a matrix has lent. */
CSR Borrowed(const CSRView &A, LocalInt columns)
{
  return CSR{A.n,
             columns,
             A.nnz,
             const_cast<LocalInt *>(A.i),
             const_cast<LocalInt *>(A.j),
             const_cast<PetscScalar *>(A.a),
             FINEPC_DOUBLE,
             A.where};
}

/* W = A P, where the ghosts travel during the product with the rank's own columns. */
PetscErrorCode MultiplyRows(const BlockSolve &cg)
{
  const GhostExchange *exchange = &((const KSP_CGFused *)cg.ksp->data)->columns_exchange;
  const LocalInt       columns  = cg.batch.count;
  CSRMat               own, others;
  ReadArray            p;
  WriteArray           w;

  PetscFunctionBegin;
  PetscCall(MatGetCSR(cg.A, &own));
  PetscCall(MatGetOtherCSR(cg.A, &others));
  PetscCall(Get(cg, cg.P, &p));
  PetscCall(Get(cg, cg.W, &w));
  const CSR A_own = Borrowed(own.A, cg.n), A_others = Borrowed(others.A, exchange->count);
  PetscCall(CGTimeBegin(cg.device));
  PetscCall(GhostExchangeBegin(exchange, columns, p.a, p.ld));
  PetscCall((cg.device ? CSRMultiply_CUDA : CSRMultiply_Host)(&A_own, PETSC_FALSE, nullptr, columns, p.a, p.ld, w.a, w.ld));
  PetscCall(GhostExchangeEnd(exchange, columns, p.a));
  PetscCall((cg.device ? CSRMultiplyAdd_CUDA : CSRMultiplyAdd_Host)(&A_others, A_others.nnz ? cg.n : 0, nullptr, nullptr, columns,
                                                                    exchange->values, w.a, w.ld));
  PetscCall(CGTimeEnd(cg.device));
  PetscCall(CGLogFlops(cg.device, 2. * columns * ((PetscLogDouble)A_own.nnz + A_others.nnz)));
  PetscCall(Restore(cg, cg.W, &w));
  PetscCall(Restore(cg, cg.P, &p));
  PetscCall(MatRestoreCSR(&others));
  PetscCall(MatRestoreCSR(&own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Multiply(const BlockSolve &cg)
{
  PetscFunctionBegin;
  if (cg.own) {
    PetscCall(MultiplyRows(cg));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (cg.product) {
    PetscCall(MatProductNumeric(cg.W));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (PetscInt c = 0; c < cg.batch.count; c++) {
    Vec p, w;

    PetscCall(MatDenseGetColumnVecRead(cg.P, c, &p));
    PetscCall(MatDenseGetColumnVecWrite(cg.W, c, &w));
    PetscCall(KSP_MatMult(cg.ksp, cg.A, p, w));
    PetscCall(MatDenseRestoreColumnVecWrite(cg.W, c, &w));
    PetscCall(MatDenseRestoreColumnVecRead(cg.P, c, &p));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- steps of a solve -------------------------------------- */

/* What a rank does alone before anything is made together. */
PetscErrorCode Begin(BlockSolve *of)
{
  BlockSolve &cg = *of;
  PetscInt    rows;
  PetscBool   bound;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(cg.ksp->pc, &cg.A, nullptr));
  PetscCall(MatGetLocalSize(cg.batch.X, &rows, nullptr));
  PetscCall(LocalIntCast(rows, "rows", &cg.n));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)cg.batch.X, &cg.device, MATSEQDENSECUDA, MATMPIDENSECUDA, ""));
  PetscCall(MatBoundToCPU(cg.batch.X, &bound));
  if (bound || !kHasCUDA) cg.device = PETSC_FALSE;
  if (cg.device) {
    KSP_CGFused *const fused = (KSP_CGFused *)cg.ksp->data;

    PetscCall(CGCheckStream_CUDA(PetscObjectComm((PetscObject)cg.ksp)));
    if (!fused->columns_work) {
      const PetscErrorCode code = CallGuarded(CGColumnsCreate_CUDA, &fused->columns_work);
      if (code) PetscCall(CGColumnsDestroy_CUDA(&fused->columns_work));
      PetscCall(code);
    }
    cg.work = fused->columns_work;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MakeColumns(const BlockSolve *cg, Mat *M)
{
  PetscFunctionBegin;
  PetscCall(MatDuplicate(cg->batch.X, MAT_DO_NOT_COPY_VALUES, M));
  PetscCall(MatZeroEntries(*M));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Memory may end on one rank alone, for which the others would wait in the next sum. The ranks agree after each matrix, so that all
   of them have made as many of PETSc's objects when they end: these are numbered.
*/
PetscErrorCode Create(BlockSolve &cg)
{
  const MPI_Comm comm    = PetscObjectComm((PetscObject)cg.ksp);
  constexpr char kText[] = "make room for several right-hand sides";

  PetscFunctionBegin;
  PetscCall(AgreeOnError(comm, CallGuarded(Begin, &cg), kText));
  for (Mat *M : {&cg.R, &cg.Z, &cg.P, &cg.W})
    PetscCall(AgreeOnError(comm, CallGuarded(MakeColumns, (const BlockSolve *)&cg, M), kText));
  PetscCall(MakeExchange(cg));
  PetscCall(MakeProduct(cg));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Destroy(BlockSolve &cg)
{
  PetscFunctionBegin;
  for (Mat *M : {&cg.R, &cg.Z, &cg.W, &cg.P}) PetscCall(MatDestroy(M));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* R = B - A X; without a guess P stays 0. */
PetscErrorCode FirstResidual(const BlockSolve &cg)
{
  PetscFunctionBegin;
  PetscCall(MatCopy(cg.batch.B, cg.R, SAME_NONZERO_PATTERN));
  if (cg.ksp->guess_zero) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatCopy(cg.batch.X, cg.P, SAME_NONZERO_PATTERN));
  PetscCall(Multiply(cg));
  const CGColumnScalars minus = Scalars(cg, true, [](const CGFusedColumn &) { return -1.; });
  PetscCall(CombineColumns(cg, CGColumnsAdd_Host, CGColumnsAdd_CUDA, minus, cg.W, cg.R));
  PetscCall(MatZeroEntries(cg.P));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* beta, and the norm after i iterations with all that follows from it; the KSP has a reason if iteration i is not to be made. */
PetscErrorCode TestColumn(KSP ksp, CGFusedColumn &column, PetscInt i, const PetscReal sums[3])
{
  const bool natural = ksp->normtype == KSP_NORM_NATURAL;

  PetscFunctionBegin;
  column.beta = sums[0];
  if (natural) KSPCheckDot(ksp, column.beta);
  const PetscReal nn   = ksp->normtype == KSP_NORM_PRECONDITIONED ? sums[1] : sums[2];
  const PetscReal norm = i && !natural && ksp->chknorm >= i + 1 ? 0 : CGNormFrom(ksp, nn, column.beta);
  KSPCheckNorm(ksp, norm);
  if (!i && ksp->normtype != KSP_NORM_NONE) column.range.See(norm);
  if (!i) column.range.See(column.beta);
  ksp->rnorm = norm;
  PetscCall((*ksp->converged)(ksp, i, norm, &ksp->reason, ksp->cnvP));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  KSPCheckDot(ksp, column.beta);
  if (i && i >= ksp->max_it) {
    ksp->reason = KSP_DIVERGED_ITS;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ksp->its = i + 1;
  if (column.beta == 0) {
    column.range.End(CG_BETA_ZERO);
    PetscCall(CGSetReason(ksp, CG_BETA_ZERO, i + 1, column.beta));
  } else if (i && column.beta * column.beta_before < 0) PetscCall(CGSetReason(ksp, CG_INDEFINITE_PC, i + 1, column.beta));
  column.b           = i ? column.beta / column.beta_before : 0;
  column.beta_before = column.beta;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* delta = p.w and a; the KSP has a reason if there is no step. */
PetscErrorCode StepColumn(KSP ksp, CGFusedColumn &column, PetscInt i, PetscReal delta)
{
  const PetscReal before = column.delta;

  PetscFunctionBegin;
  column.delta = delta;
  KSPCheckDot(ksp, delta);
  if (delta == 0 || (i && PetscSign(delta) * PetscSign(before) < 0)) PetscCall(CGSetReason(ksp, CG_INDEFINITE_MAT, i + 1, delta));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  column.a = column.beta / delta;
  if (!i) column.range.Step(column.a);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Calls f(ksp, column, sums of the column) for each of the columns that go on. */
template <typename F>
PetscErrorCode Decide(BlockSolve &cg, bool first, const PetscReal *sums, F f)
{
  PetscFunctionBegin;
  for (PetscInt c = 0; c < cg.batch.count; c++) {
    CGFusedColumn         &column = cg.batch.column[c];
    const PetscReal *const sum    = sums + 3 * c;
    const bool             finite = PetscIsNormalReal(sum[0]) && !PetscIsInfOrNanReal(sum[1]) && !PetscIsInfOrNanReal(sum[2]);

    if (column.Ended()) continue;
    PetscCall(CGFusedAsColumn(cg.ksp, cg.batch, c, !finite || (first && !cg.ksp->guess_zero), [&] { return f(column, sum); }));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Iterate(BlockSolve &cg)
{
  PetscReal sums[3 * kCGMostColumns];

  PetscFunctionBegin;
  for (PetscInt i = 0;; i++) {
    PetscCall(KSP_PCMatApply(cg.ksp, cg.R, cg.Z));
    PetscCall(Dots(cg, cg.Z, cg.R, sums));
    PetscCall(
      Decide(cg, !i, sums, [&](CGFusedColumn &column, const PetscReal *sum) { return TestColumn(cg.ksp, column, i, sum); }));
    if (cg.batch.Ended()) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(CombineColumns(cg, CGColumnsTurn_Host, CGColumnsTurn_CUDA,
                             Scalars(cg, false, [](const CGFusedColumn &column) { return column.b; }), cg.Z, cg.P));
    PetscCall(Multiply(cg));
    PetscCall(Dots(cg, cg.P, cg.W, sums));
    PetscCall(
      Decide(cg, false, sums, [&](CGFusedColumn &column, const PetscReal *sum) { return StepColumn(cg.ksp, column, i, sum[0]); }));
    if (cg.batch.Ended()) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(CombineColumns(cg, CGColumnsAdd_Host, CGColumnsAdd_CUDA,
                             Scalars(cg, false, [](const CGFusedColumn &column) { return column.a; }), cg.P, cg.batch.X));
    PetscCall(CombineColumns(cg, CGColumnsAdd_Host, CGColumnsAdd_CUDA,
                             Scalars(cg, false, [](const CGFusedColumn &column) { return -column.a; }), cg.W, cg.R));
  }
}

/* What KSPSolve_CGFused() does after a solve. */
PetscErrorCode CheckColumns(BlockSolve &cg)
{
  PetscFunctionBegin;
  for (PetscInt c = 0; c < cg.batch.count; c++) {
    const CGFusedColumn &column = cg.batch.column[c];
    Vec                  r, z;

    if (column.reason < 0 || (!column.range.left && !column.range.orthogonal)) continue;
    PetscCall(MatDenseGetColumnVec(cg.R, c, &r));
    PetscCall(MatDenseGetColumnVec(cg.Z, c, &z));
    PetscCall(CGFusedAsColumn(cg.ksp, cg.batch, c, true, [&] { return CGCheckConverged(cg.ksp, column.range, r, z); }));
    PetscCall(MatDenseRestoreColumnVec(cg.Z, c, &z));
    PetscCall(MatDenseRestoreColumnVec(cg.R, c, &r));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The residual of a column, of which the recurrence has r, and A x is in w; z and p are for work. */
PetscErrorCode ConfirmColumn(KSP ksp, Vec r, Vec w, Vec z, Vec p)
{
  PetscReal   difference, norm;
  PetscScalar product;

  PetscFunctionBegin;
  PetscCall(VecWAXPY(z, -1, w, ksp->vec_rhs));
  PetscCall(VecWAXPY(p, -1, r, z));
  PetscCall(VecNorm(p, NORM_2, &difference));
  PetscCall(VecNorm(r, NORM_2, &norm));
  if (difference <= (kConfirmed - 1) * norm) PetscFunctionReturn(PETSC_SUCCESS);
  if (ksp->normtype == KSP_NORM_UNPRECONDITIONED) PetscCall(VecNorm(z, NORM_2, &norm));
  else {
    PetscCall(KSP_PCApply(ksp, z, p));
    PetscCall(VecNorm(p, NORM_2, &norm));
    PetscCall(VecDot(z, p, &product));
    if (ksp->normtype == KSP_NORM_NATURAL) norm = PetscSqrtReal(PetscAbsScalar(product));
  }
  PetscCall(CGFusedConfirmColumn(ksp, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* One product with all solutions confirms the ends of the columns or takes them back. */
PetscErrorCode ConfirmColumns(BlockSolve &cg)
{
  const auto claims = [&](const CGFusedColumn &column) { return column.its && ClaimsNormOfCG(cg.ksp, column.reason); };
  bool       any    = false;
  Vec        r, w, z, p;

  PetscFunctionBegin;
  for (PetscInt c = 0; c < cg.batch.count; c++) any = any || claims(cg.batch.column[c]);
  if (!any) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatCopy(cg.batch.X, cg.P, SAME_NONZERO_PATTERN));
  PetscCall(Multiply(cg));
  for (PetscInt c = 0; c < cg.batch.count; c++) {
    if (!claims(cg.batch.column[c])) continue;
    PetscCall(MatDenseGetColumnVec(cg.R, c, &r));
    PetscCall(MatDenseGetColumnVec(cg.W, c, &w));
    PetscCall(MatDenseGetColumnVec(cg.Z, c, &z));
    PetscCall(MatDenseGetColumnVec(cg.P, c, &p));
    const PetscErrorCode code = CGFusedAsColumn(cg.ksp, cg.batch, c, true, [&] { return ConfirmColumn(cg.ksp, r, w, z, p); });
    PetscCall(MatDenseRestoreColumnVec(cg.P, c, &p));
    PetscCall(MatDenseRestoreColumnVec(cg.Z, c, &z));
    PetscCall(MatDenseRestoreColumnVec(cg.W, c, &w));
    PetscCall(MatDenseRestoreColumnVec(cg.R, c, &r));
    PetscCall(code);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Solve(BlockSolve &cg)
{
  PetscFunctionBegin;
  PetscCall(Create(cg));
  PetscCall(FirstResidual(cg));
  PetscCall(Iterate(cg));
  PetscCall(CheckColumns(cg));
  PetscCall(ConfirmColumns(cg));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CGFusedSolveColumnsByHost(KSP ksp, CGFusedBatch &batch)
{
  BlockSolve cg(ksp, batch);

  PetscFunctionBegin;
  const PetscErrorCode code = Solve(cg), freed = Destroy(cg);
  PetscCall(code);
  PetscCall(freed);
  PetscFunctionReturn(PETSC_SUCCESS);
}
