/* What the PETSc faces of CGFUSED and RRBCG share. */
#include <cmath>
#include <limits>

#include <petsc/private/pcimpl.h>

#include "ranks/agree.h"
#include "cgface.h"
#include "fusedimpl.h"

/* ----------------------------------- norms, tests and stops ----------------------------------- */

PetscErrorCode CGRefreshPreconditioner(KSP ksp)
{
  PetscFunctionBegin;
  if (!kPCApplySetsUp) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCSetUp(ksp->pc));
  if (ksp->reason == KSP_DIVERGED_PC_FAILED && !ksp->pc->failedreason) ksp->reason = KSP_CONVERGED_ITERATING;
  if (ksp->pc->failedreason) ksp->reason = KSP_DIVERGED_PC_FAILED;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGCheckSizes(KSP ksp)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)ksp);
  PetscInt       rows, b_rows, x_rows, local, b_local, x_local, kept = 0, kept_local = 0;
  Mat            A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetSize(A, &rows, nullptr));
  PetscCall(MatGetLocalSize(A, &local, nullptr));
  PetscCall(VecGetSize(ksp->vec_rhs, &b_rows));
  PetscCall(VecGetLocalSize(ksp->vec_rhs, &b_local));
  PetscCall(VecGetSize(ksp->vec_sol, &x_rows));
  PetscCall(VecGetLocalSize(ksp->vec_sol, &x_local));
  PetscCheck(rows == b_rows && rows == x_rows, comm, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows, but the right-hand side has %" PetscInt_FMT
             " and the vector of the solution %" PetscInt_FMT,
             rows, b_rows, x_rows);
  PetscCheck(local == b_local && local == x_local, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows on this rank, but the right-hand side has %" PetscInt_FMT
             " and the vector of the solution %" PetscInt_FMT,
             local, b_local, x_local);
  if (!ksp->work) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecGetSize(ksp->work[0], &kept));
  PetscCall(VecGetLocalSize(ksp->work[0], &kept_local));
  PetscCheck(kept == rows, comm, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows, but the KSP was set up for %" PetscInt_FMT
             ": call KSPReset() before it gets a matrix of another size",
             rows, kept);
  PetscCheck(kept_local == local, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows on this rank, but the KSP was set up for %" PetscInt_FMT
             ": call KSPReset() before it gets a matrix of another size",
             local, kept_local);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGLeaveSolve(KSP ksp)
{
  PetscInt locked;

  PetscFunctionBegin;
  PetscCall(VecLockGet(ksp->vec_rhs, &locked));
  if (locked > 0) PetscCall(VecLockReadPop(ksp->vec_rhs));
  if (ksp->pc->presolvedone > 0) PetscCall(PCPostSolve(ksp->pc, ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

CGNorm CGNormOf(KSP ksp)
{
  switch (ksp->normtype) {
  case KSP_NORM_PRECONDITIONED: return CG_NORM_PRECONDITIONED;
  case KSP_NORM_UNPRECONDITIONED: return CG_NORM_UNPRECONDITIONED;
  case KSP_NORM_NATURAL: return CG_NORM_NATURAL;
  default: return CG_NORM_NONE;
  }
}

PetscReal CGNormFrom(KSP ksp, PetscReal nn, PetscReal rz)
{
  if (ksp->normtype == KSP_NORM_NONE) return 0;
  return PetscSqrtReal(ksp->normtype == KSP_NORM_NATURAL ? PetscAbsReal(rz) : nn);
}

/* No solve makes as many iterations as a LocalInt can count. */
static LocalInt Iterations(PetscInt count)
{
  return (LocalInt)PetscMin(count, (PetscInt)LOCAL_INT_MAX);
}

CGTest CGTestOf(KSP ksp, PetscBool by_host)
{
  const bool test_default = !by_host && ksp->converged == KSPConvergedDefault;
  const bool all_converge = !by_host && (!test_default || ((KSPConvergedDefaultCtx *)ksp->cnvP)->convmaxits);
  CGTest     test;
  test.norm    = CGNormOf(ksp);
  test.ttol    = test_default ? ksp->ttol : -1;
  test.dtol    = test_default ? ksp->divtol * ksp->rnorm0 : std::numeric_limits<PetscReal>::infinity();
  test.min_it  = Iterations(KSPMinimumIterationsOf(ksp));
  test.chknorm = Iterations(ksp->chknorm);
  test.last    = Iterations(all_converge ? ksp->max_it : PETSC_INT_MAX);
  test.max_it  = Iterations(ksp->max_it);
  return test;
}

const char *CGWhyOneByOne(KSP ksp)
{
  using Function                 = void (*)();
  const auto looks_at_norm_alone = [](Function monitor) {
    return monitor == (Function)KSPMonitorResidual || monitor == (Function)KSPMonitorResidualDrawLG;
  };

  if (ksp->converged != KSPConvergedDefault && ksp->converged != KSPConvergedSkip) return "a convergence test of the program";
  for (PetscInt k = 0; k < ksp->numbermonitors; k++)
    if (!looks_at_norm_alone((Function)ksp->monitor[k])) return "a monitor, which may look at the solution";
  return nullptr;
}

bool CGHasNoNorm(CGNorm norm, CGStop stop, PetscInt its, PetscInt n)
{
  return n == its && (stop == CG_NORM_NOT_FINITE || (stop == CG_BETA_NOT_FINITE && norm == CG_NORM_NATURAL));
}

PetscErrorCode CGSetReason(KSP ksp, CGStop stop, PetscInt its, PetscReal value)
{
  PetscFunctionBegin;
  switch (stop) {
  case CG_TEST:
    PetscCall((*ksp->converged)(ksp, its, value, &ksp->reason, ksp->cnvP));
    PetscCheck(ksp->reason, PetscObjectComm((PetscObject)ksp), PETSC_ERR_PLIB,
               "The device has stopped in iteration %" PetscInt_FMT " with norm %g, where the test would go on", its,
               (double)value);
    break;
  case CG_NORM_NOT_FINITE: KSPCheckNorm(ksp, value); break;
  case CG_BETA_NOT_FINITE:
  case CG_DELTA_NOT_FINITE: KSPCheckDot(ksp, value); break;
  case CG_BETA_ZERO:
    ksp->reason = KSP_CONVERGED_ATOL;
    PetscCall(PetscInfo(ksp, "converged due to beta = 0\n"));
    break;
  case CG_INDEFINITE_PC:
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "Diverged due to indefinite preconditioner, beta %g", (double)value);
    ksp->reason = KSP_DIVERGED_INDEFINITE_PC;
    PetscCall(PetscInfo(ksp, "diverging due to indefinite preconditioner\n"));
    break;
  case CG_INDEFINITE_MAT:
    if (KSPConvergesByNegativeCurvature(ksp)) {
      PetscCall(PetscInfo(ksp, "converged due to negative curvature: %g\n", (double)value));
      ksp->reason = KSP_CONVERGED_NEG_CURVE;
      break;
    }
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "Diverged due to indefinite matrix, delta %g", (double)value);
    ksp->reason = KSP_DIVERGED_INDEFINITE_MAT;
    PetscCall(PetscInfo(ksp, "diverging due to indefinite matrix\n"));
    break;
  default: ksp->reason = KSP_DIVERGED_ITS;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------- beyond the range of numbers, both ways --------------------------- */

static PetscErrorCode Diverged(KSP ksp, KSPConvergedReason reason, const char why[])
{
  PetscFunctionBegin;
  ksp->reason = reason;
  PetscCall(PetscInfo(ksp, "%s: scale the matrix or the right-hand side\n", why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the solution, which is another one than the guess, is finite, and has digits unless it is 0 as b is. */
static PetscErrorCode CheckSolution(KSP ksp, Vec z)
{
  PetscReal   norm_x, norm_b;
  PetscScalar zero;

  PetscFunctionBegin;
  PetscCall(VecSet(z, 0));
  PetscCall(VecDot(ksp->vec_sol, z, &zero));
  if (zero != 0) { /* NaN, from an infinite entry */
    PetscCall(Diverged(ksp, KSP_DIVERGED_NANORINF, "the solution overflows"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecNorm(ksp->vec_sol, NORM_INFINITY, &norm_x));
  if (norm_x >= std::numeric_limits<PetscReal>::min()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecNorm(ksp->vec_rhs, NORM_INFINITY, &norm_b));
  if (norm_b > 0) PetscCall(Diverged(ksp, KSP_DIVERGED_BREAKDOWN, "the solution is too small for numbers"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Divides v by 2^exponent, so that its largest entry is about 1, unless it is zero. */
static PetscErrorCode Normalize(Vec v, int *exponent, bool *zero)
{
  PetscReal largest;

  PetscFunctionBegin;
  PetscCall(VecNorm(v, NORM_INFINITY, &largest));
  *zero     = largest == 0;
  *exponent = *zero ? 0 : PetscMax(std::ilogb(largest), -1000);
  PetscCall(VecScale(v, std::ldexp(1., -*exponent)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Sets the reason where r.z has vanished and more is left of the right-hand side than what is in the null space of the matrix, if
   there is one, and rounding; without a null space r.z = 0 itself is a reason. zero: z is 0 beside r. z becomes something else.
*/
static PetscErrorCode CheckUnseen(KSP ksp, Vec r, Vec z, bool zero, bool rounded)
{
  constexpr PetscReal kRounding = 100 * PETSC_MACHINE_EPSILON;
  PetscReal           norm, norm_r, norm_b;
  Mat                 A;
  MatNullSpace        null_space;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(MatGetNullSpace(A, &null_space));
  PetscCall(VecNorm(r, NORM_INFINITY, &norm_r));
  PetscCall(VecNorm(ksp->vec_rhs, NORM_INFINITY, &norm_b));
  PetscCall(VecCopy(r, z));
  if (null_space) PetscCall(MatNullSpaceRemove(null_space, z));
  PetscCall(VecNorm(z, NORM_INFINITY, &norm));
  if ((null_space || rounded) && norm <= kRounding * (null_space ? PetscMax(norm_r, norm_b) : norm_b))
    PetscFunctionReturn(PETSC_SUCCESS);
  ksp->reason = zero ? KSP_DIVERGED_BREAKDOWN : KSP_DIVERGED_INDEFINITE_PC;
  PetscCall(PetscInfo(ksp, "%g is left of a right-hand side of %g: %s\n", (double)norm, (double)norm_b,
                      zero ? "it is where the preconditioner is 0"
                           : "residual and preconditioned residual are orthogonal: indefinite preconditioner"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGCheckConverged(KSP ksp, const CGRange &range, Vec r, Vec z)
{
  constexpr int kVanished = -300; /* r.z of a residual that is larger vanishes only where z is nothing beside r */
  const bool    tested    = ksp->converged == KSPConvergedDefault && ksp->normtype != KSP_NORM_NONE;
  const bool    by_norm   = !range.orthogonal && tested && ksp->rnorm <= ksp->ttol;
  const bool    square    = by_norm && ksp->normtype != KSP_NORM_NATURAL;
  PetscReal     dot;
  int           r_exponent = 0, z_exponent = 0;
  bool          zero_r, zero; /* r and z are */

  PetscFunctionBegin;
  if (!range.left && !range.orthogonal) PetscFunctionReturn(PETSC_SUCCESS);
  if (range.left && range.stepped) PetscCall(CheckSolution(ksp, z));
  if (ksp->reason < 0 || (!by_norm && !range.orthogonal)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Normalize(r, &r_exponent, &zero_r));
  if (by_norm && ksp->normtype == KSP_NORM_UNPRECONDITIONED) PetscCall(VecCopy(r, z));
  else PetscCall(KSP_PCApply(ksp, r, z));
  PetscCall(Normalize(z, &z_exponent, &zero));
  PetscCall(VecDot(square ? z : r, z, &dot));
  PetscCall(VecScale(r, std::ldexp(1., r_exponent)));
  const int exponent = 2 * r_exponent + (square ? 2 : 1) * z_exponent; /* the sum is dot 2^exponent */
  if (by_norm) {
    const PetscReal norm = std::ldexp(PetscSqrtReal(std::ldexp(PetscAbsReal(dot), exponent % 2)), exponent / 2);

    if (norm > 1.001 * ksp->ttol)
      PetscCall(Diverged(ksp, KSP_DIVERGED_BREAKDOWN, "the squares of the residual are too small for numbers"));
  } else if (dot != 0 && std::ilogb(dot) + exponent < std::numeric_limits<PetscReal>::min_exponent) {
    if (range.left) PetscCall(Diverged(ksp, KSP_DIVERGED_BREAKDOWN, "the residual is too small for products with it"));
    else if (r_exponent > kVanished) PetscCall(CheckUnseen(ksp, r, z, true, true));
  } else if (!zero_r) PetscCall(CheckUnseen(ksp, r, z, zero, false));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------- vectors where the solve runs -------------------------------- */

PetscErrorCode CGGetLocalSize(Vec v, LocalInt *n)
{
  PetscInt rows;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(v, &rows));
  PetscCall(LocalIntCast(rows, "rows", n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGGetLeadingSize(Mat M, LocalInt *ld)
{
  PetscInt entries;

  PetscFunctionBegin;
  PetscCall(MatDenseGetLDA(M, &entries));
  PetscCall(LocalIntCast(entries, "entries from one column to the next", ld));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether v is on the host and the matrix a MATAIJCUSPARSE that is not. */
static PetscErrorCode CGIsFarFromMatrix(KSP ksp, Vec v, PetscBool *far)
{
  PetscBool given, bound, near;
  Mat       A;

  PetscFunctionBegin;
  *far = PETSC_FALSE;
  PetscCall(PCGetOperatorsSet(ksp->pc, &given, nullptr));
  if (!given || !v) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, far, MATSEQAIJCUSPARSE, MATMPIAIJCUSPARSE, ""));
  PetscCall(MatBoundToCPU(A, &bound));
  PetscCall(FusedIsOnDevice(v, &near));
  if (bound || near || !kPetscHasCUDA) *far = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeWorkVecs(KSP ksp, PetscInt count)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)ksp);
  PetscMPIInt    size;
  PetscBool      given, far, cuda = PETSC_FALSE;
  PetscInt       n, N, bs;
  VecType        type;
  Mat            A;
  Vec            model;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(PCGetOperatorsSet(ksp->pc, &given, nullptr));
  PetscCall(CGIsFarFromMatrix(ksp, ksp->vec_sol, &far));
  if (given) PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  if (size > 1 && given && (far || (!ksp->vec_sol && !ksp->dm))) {
    PetscCall(MatGetVecType(A, &type));
    PetscCall(PetscStrcmpAny(type, &cuda, VECCUDA, VECMPICUDA, ""));
  }
  if (!cuda && !far) {
    PetscCall(KSPSetWorkVecs(ksp, count));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (cuda) {
    PetscCall(MatGetLocalSize(A, nullptr, &n));
    PetscCall(MatGetSize(A, nullptr, &N));
    PetscCall(MatGetBlockSizes(A, nullptr, &bs));
    PetscCall(VecCreateMPICUDAWithArrays(comm, bs, n, N, nullptr, nullptr, &model));
  } else PetscCall(MatCreateVecs(A, &model, nullptr));
  PetscCall(VecDestroyVecs(ksp->nwork, &ksp->work));
  PetscCall(VecDuplicateVecs(model, count, &ksp->work));
  ksp->nwork = count;
  PetscCall(VecDestroy(&model));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGSetWorkVecs(KSP ksp, PetscInt count)
{
  PetscFunctionBegin;
  const PetscErrorCode code = MakeWorkVecs(ksp, count);
  if (code) { /* PETSc leaves an array that is not complete, which nobody may destroy */
    ksp->work  = nullptr;
    ksp->nwork = 0;
  }
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)ksp), code, "make the vectors of the solver"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies between two vectors on the host, or one there and one on the GPU. */
static PetscErrorCode CGCopy(Vec from, Vec to)
{
  const PetscScalar *x;
  PetscScalar       *y;
  PetscInt           n;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(from, &n));
  PetscCall(VecGetArrayRead(from, &x));
  PetscCall(VecGetArrayWrite(to, &y));
  PetscCall(PetscArraycpy(y, x, n));
  PetscCall(VecRestoreArrayWrite(to, &y));
  PetscCall(VecRestoreArrayRead(from, &x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeVectors_CG(KSP ksp, Vec copies[2])
{
  PetscBool far = PETSC_FALSE;
  Mat       A;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, nullptr));
  if (ksp->work) PetscCall(CGIsFarFromMatrix(ksp, ksp->work[0], &far));
  if (far) PetscCall(CGSetWorkVecs(ksp, ksp->nwork)); /* the matrix was on the host when they were made */
  for (int k = 0; k < 2; k++) PetscCall(MatCreateVecs(A, &copies[k], nullptr));
  PetscCall(CGCopy(ksp->vec_rhs, copies[0]));
  if (!ksp->guess_zero) PetscCall(CGCopy(ksp->vec_sol, copies[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGTakeVectors(KSP ksp, CGVectors *theirs)
{
  PetscBool far_b, far_x;
  Vec       copies[2] = {nullptr, nullptr};

  PetscFunctionBegin;
  PetscCall(CGIsFarFromMatrix(ksp, ksp->vec_rhs, &far_b));
  PetscCall(CGIsFarFromMatrix(ksp, ksp->vec_sol, &far_x));
  if (!far_b && !far_x) PetscFunctionReturn(PETSC_SUCCESS);
  PetscErrorCode code = MakeVectors_CG(ksp, copies);
  code                = AgreeOnError(PetscObjectComm((PetscObject)ksp), code, "copy the vectors of the program to the GPU");
  if (code) {
    for (Vec &copy : copies) PetscCall(VecDestroy(&copy));
    PetscCall(code);
  }
  *theirs      = CGVectors{ksp->vec_rhs, ksp->vec_sol};
  ksp->vec_rhs = copies[0];
  ksp->vec_sol = copies[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGLeaveVectors(KSP ksp, PetscErrorCode code, CGVectors *theirs)
{
  PetscFunctionBegin;
  if (!theirs->x) PetscFunctionReturn(code);
  if (!code) code = CGCopy(ksp->vec_sol, theirs->x);
  (void)VecDestroy(&ksp->vec_rhs);
  (void)VecDestroy(&ksp->vec_sol);
  ksp->vec_rhs = theirs->b;
  ksp->vec_sol = theirs->x;
  *theirs      = CGVectors{};
  PetscFunctionReturn(code);
}

PetscErrorCode CGGetRead(PetscBool device, Vec v, const PetscScalar **array, PetscMemType *where)
{
  PetscMemType found = PETSC_MEMTYPE_HOST;

  PetscFunctionBegin;
  if (device) PetscCall(VecGetArrayReadAndMemType(v, array, &found));
  else PetscCall(VecGetArrayRead(v, array));
  if (where) *where = found;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRestoreRead(PetscBool device, Vec v, const PetscScalar **array)
{
  PetscFunctionBegin;
  PetscCall(device ? VecRestoreArrayReadAndMemType(v, array) : VecRestoreArrayRead(v, array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGGetWrite(PetscBool device, Vec v, PetscScalar **array, PetscMemType *where)
{
  PetscMemType found = PETSC_MEMTYPE_HOST;

  PetscFunctionBegin;
  if (device) PetscCall(VecGetArrayAndMemType(v, array, &found));
  else PetscCall(VecGetArray(v, array));
  if (where) *where = found;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGRestoreWrite(PetscBool device, Vec v, PetscScalar **array)
{
  PetscFunctionBegin;
  PetscCall(device ? VecRestoreArrayAndMemType(v, array) : VecRestoreArray(v, array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- time and flops ---------------------------------------- */

PetscErrorCode CGTimeBegin(PetscBool device)
{
  PetscFunctionBegin;
  if (device) PetscCall(PetscLogGpuTimeBegin());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGTimeEnd(PetscBool device)
{
  PetscFunctionBegin;
  if (device) PetscCall(PetscLogGpuTimeEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGLogFlops(PetscBool device, PetscLogDouble flops)
{
  PetscFunctionBegin;
  PetscCall(device ? PetscLogGpuFlops(flops) : PetscLogFlops(flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}
