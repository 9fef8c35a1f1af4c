/* The PETSc face of RRB. */
#include <petsc/private/pcimpl.h>
#include <petscdmda.h>

#include <limits>
#include <vector>

#include "finepcimpl.h"
#include "pc/pcinverse.h"
#include "sparse/csr_mat.h"
#include "rrb.h"

static PetscErrorCode PCRRBSetLevels_RRB(PC pc, PetscInt levels)
{
  PC_RRB *rrb = (PC_RRB *)pc->data;

  PetscFunctionBegin;
  PetscCheck(levels >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_rrb_levels must be 1 or more, or 0 for a choice by size, but is %" PetscInt_FMT, levels);
  if (levels != rrb->params.levels) pc->setupcalled = PETSC_FALSE;
  rrb->params.levels = levels;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCRRBGetLevels_RRB(PC pc, PetscInt *levels)
{
  PetscFunctionBegin;
  *levels = ((PC_RRB *)pc->data)->params.levels;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCRRBSetNx_RRB(PC pc, PetscInt nx)
{
  PC_RRB *rrb = (PC_RRB *)pc->data;

  PetscFunctionBegin;
  PetscCheck(nx >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_rrb_nx must be 1 or more, or 0 for a grid that is found, but is %" PetscInt_FMT, nx);
  if (nx != rrb->nx) pc->setupcalled = PETSC_FALSE;
  rrb->nx = nx;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCRRBGetNx_RRB(PC pc, PetscInt *nx)
{
  PetscFunctionBegin;
  *nx = ((PC_RRB *)pc->data)->nx;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCRRBSetNy_RRB(PC pc, PetscInt ny)
{
  PC_RRB *rrb = (PC_RRB *)pc->data;

  PetscFunctionBegin;
  PetscCheck(ny >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "-pc_rrb_ny must be 1 or more, or 0 for a grid that is found, but is %" PetscInt_FMT, ny);
  if (ny != rrb->ny) pc->setupcalled = PETSC_FALSE;
  rrb->ny = ny;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCRRBGetNy_RRB(PC pc, PetscInt *ny)
{
  PetscFunctionBegin;
  *ny = ((PC_RRB *)pc->data)->ny;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCRRBSetLift_RRB(PC pc, PetscBool lift)
{
  PC_RRB *rrb = (PC_RRB *)pc->data;

  PetscFunctionBegin;
  if (lift != rrb->params.lift) pc->setupcalled = PETSC_FALSE;
  rrb->params.lift = lift;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCRRBGetLift_RRB(PC pc, PetscBool *lift)
{
  PetscFunctionBegin;
  *lift = ((PC_RRB *)pc->data)->params.lift;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetFromOptions_RRB(PC pc, PetscOptionItems PetscOptionsObject)
{
  PC_RRB   *rrb    = (PC_RRB *)pc->data;
  PetscInt  levels = rrb->params.levels, nx = rrb->nx, ny = rrb->ny;
  PetscBool lift = rrb->params.lift, flg;

  PetscFunctionBegin;
  PetscOptionsHeadBegin(PetscOptionsObject, "RRB options");
  PetscCall(PetscOptionsInt("-pc_rrb_levels", "Levels before the exact factorization; 0: by size", "PCRRBSetLevels", levels,
                            &levels, &flg));
  if (flg) PetscCall(PCRRBSetLevels(pc, levels));
  PetscCall(PetscOptionsInt("-pc_rrb_nx", "Points of a line of the grid; 0: found", "PCRRBSetNx", nx, &nx, &flg));
  if (flg) PetscCall(PCRRBSetNx(pc, nx));
  PetscCall(PetscOptionsInt("-pc_rrb_ny", "Lines of the grid; 0: found", "PCRRBSetNy", ny, &ny, &flg));
  if (flg) PetscCall(PCRRBSetNy(pc, ny));
  PetscCall(PetscOptionsBool("-pc_rrb_lift", "Make rows that sum to less than 0 sum to 0 before they are lumped", "PCRRBSetLift",
                             lift, &lift, &flg));
  if (flg) PetscCall(PCRRBSetLift(pc, lift));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- errors of a rank -------------------------------------- */

/* Why a rank's block has no factor. Without a text, an error has been reported already. */
struct Problem {
  PetscErrorCode code       = PETSC_SUCCESS;
  char           text[1024] = "";
};

/* An error of one rank is one of all, with the text of the first: none is left waiting for another. */
static PetscErrorCode AgreeOn(PC pc, const Problem *mine)
{
  const MPI_Comm comm    = PetscObjectComm((PetscObject)pc);
  Problem        problem = *mine;
  PetscMPIInt    rank, size, first;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  first = mine->code ? rank : size;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm));
  if (first == size) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Bcast(&problem, sizeof(problem), MPI_BYTE, first, comm));
  if (!mine->text[0]) PetscCall(mine->code);
  PetscCheck(!problem.text[0], comm, problem.code, "%s", problem.text);
  SETERRQ(comm, problem.code, "The block of rank %d could not be factored: see its own message", first);
}

/* " of rank 1's block", where that is not the matrix */
static PetscErrorCode NameBlock(PC pc, char text[], size_t length)
{
  PetscMPIInt rank, size;

  PetscFunctionBegin;
  text[0] = 0;
  PetscCallMPI(MPI_Comm_rank(PetscObjectComm((PetscObject)pc), &rank));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  if (size > 1) PetscCall(PetscSNPrintf(text, length, " of rank %d's block", rank));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the grid ------------------------------------------ */

/* By the options: of the rank's rows, which are whole lines. */
static PetscErrorCode GridFromOptions(PC pc, PetscInt n, PetscInt *nx, PetscInt *ny, Problem *problem)
{
  const PC_RRB *rrb = (const PC_RRB *)pc->data;
  PetscInt      all;
  char          block[64];

  PetscFunctionBegin;
  PetscCall(MatGetSize(pc->pmat, &all, nullptr));
  *nx = rrb->nx ? rrb->nx : all / rrb->ny;
  PetscCheck(*nx && all % *nx == 0 && (!rrb->ny || all / *nx == rrb->ny), PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows, which is not the size of a grid with -pc_rrb_nx %" PetscInt_FMT
             " -pc_rrb_ny %" PetscInt_FMT,
             all, rrb->nx, rrb->ny);
  *ny = n / *nx;
  if (n % *nx) {
    PetscCall(NameBlock(pc, block, sizeof(block)));
    problem->code = PETSC_ERR_ARG_SIZ;
    PetscCall(PetscSNPrintf(problem->text, sizeof(problem->text),
                            "The %" PetscInt_FMT " rows%s are not whole lines of %" PetscInt_FMT
                            " points: give the grid with KSPSetDM() or MatSetDM(), or whole lines to each rank",
                            n, block, *nx));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* By a DMDA that fits the rank's rows. */
static PetscErrorCode GridFromDM(DM dm, PetscInt n, PetscInt *nx, PetscInt *ny, PetscBool *fits)
{
  PetscBool is_da = PETSC_FALSE;
  PetscInt  dim, dof, nz;

  PetscFunctionBegin;
  *fits = PETSC_FALSE;
  if (dm) PetscCall(PetscObjectTypeCompare((PetscObject)dm, DMDA, &is_da));
  if (!is_da) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
    DMDAGetInfo(dm, &dim, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, &dof, nullptr, nullptr, nullptr, nullptr, nullptr));
  if (dim > 2 || dof != 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DMDAGetCorners(dm, nullptr, nullptr, nullptr, nx, ny, &nz));
  *fits = (PetscBool)((PetscInt64)*nx * *ny == n);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The twin for the memory that the matrix is in. */
static PetscErrorCode Compute(PC pc, const CSRView *A, PetscInt nx, PetscInt ny)
{
  PC_RRB    *rrb     = (PC_RRB *)pc->data;
  const auto compute = PetscMemTypeDevice(A->where) ? RRBComputeFactor_CUDA : RRBComputeFactor_Host;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(FinePC_RRBFactor, pc, pc->pmat, 0, 0));
  const PetscErrorCode code = (*compute)(A, nx, ny, &rrb->params, &rrb->factor, &rrb->stats);
  PetscCall(PetscLogEventEnd(FinePC_RRBFactor, pc, pc->pmat, 0, 0));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the twin has found about the block's entries. */
static PetscErrorCode CheckPattern(PC pc, PetscInt n, PetscInt nx, PetscInt ny, Problem *problem)
{
  const PC_RRB   *rrb   = (const PC_RRB *)pc->data;
  const RRBStats *stats = &rrb->stats;
  char            block[64];

  PetscFunctionBegin;
  PetscCall(NameBlock(pc, block, sizeof(block)));
  if (stats->failure == RRB_PATTERN) {
    const PetscInt x = stats->row % nx, y = stats->row / nx, to_x = stats->column % nx, to_y = stats->column / nx;
    const char    *periodic = "";

    if (y == to_y && PetscAbsInt(x - to_x) == nx - 1) periodic = " unless the grid is periodic in x";
    if (x == to_x && PetscAbsInt(y - to_y) == ny - 1) periodic = " unless the grid is periodic in y";
    problem->code = PETSC_ERR_ARG_WRONG;
    PetscCall(
      PetscSNPrintf(problem->text, sizeof(problem->text),
                    "Row %" PetscInt_FMT "%s has an entry in column %" PetscInt_FMT ", but on a grid of %" PetscInt_FMT
                    " x %" PetscInt_FMT " points (%s) point (%" PetscInt_FMT ", %" PetscInt_FMT
                    ") is no neighbour of (%" PetscInt_FMT ", %" PetscInt_FMT
                    ")%s: PCRRB needs a 5- or 9-point stencil, not periodic, in natural ordering; give the grid with KSPSetDM(), "
                    "MatSetDM(), or -pc_rrb_nx and -pc_rrb_ny",
                    stats->row, block, stats->column, nx, ny, rrb->source, to_x, to_y, x, y, periodic));
  } else if ((PetscInt64)nx * ny != n) {
    problem->code = PETSC_ERR_ARG_SIZ;
    PetscCall(PetscSNPrintf(problem->text, sizeof(problem->text),
                            "The %" PetscInt_FMT " rows%s are not whole lines of %" PetscInt_FMT
                            " points (%s): give the grid with KSPSetDM(), MatSetDM(), or -pc_rrb_nx and -pc_rrb_ny",
                            n, block, nx, rrb->source));
  } else if (stats->failure == RRB_UNSYMMETRIC) {
    problem->code = PETSC_ERR_ARG_WRONG;
    PetscCall(PetscSNPrintf(problem->text, sizeof(problem->text),
                            "Row %" PetscInt_FMT "%s has in column %" PetscInt_FMT " another value than row %" PetscInt_FMT
                            " in column %" PetscInt_FMT
                            ": PCRRB needs a symmetric matrix; use -pc_type ilu, or scale the equations",
                            stats->row, block, stats->column, stats->column, stats->row));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   For the text about a matrix that is on no grid: the one that it comes closest to, a line of as many points as most entries are
   away from the diagonal, and the first entry that is not on it. Host arrays.
*/
static void FindMisfit(const CSRView *A, PetscInt *nx, RRBStats *stats)
{
  std::vector<PetscInt> count(A->n + 1, 0); /* of entries so far away */

  *nx = 1;
  for (PetscInt row = 0; row < A->n; row++)
    for (PetscInt k = A->i[row]; k < A->i[row + 1]; k++)
      if (A->a[k] != 0 && A->j[k] > row) count[A->j[k] - row]++;
  for (PetscInt distance = 2; distance < A->n; distance++)
    if (count[distance] > (*nx > 1 ? count[*nx] : 0)) *nx = distance;
  /* one line; with two or more at least half of the rows have one above */
  if (*nx == 1 || (PetscInt64)4 * count[*nx] < A->n) *nx = A->n;
  for (PetscInt row = 0; row < A->n; row++)
    for (PetscInt k = A->i[row]; k < A->i[row + 1]; k++) {
      const PetscInt column = A->j[k];
      if (A->a[k] == 0 || (PetscAbsInt(column % *nx - row % *nx) <= 1 && PetscAbsInt(column / *nx - row / *nx) <= 1)) continue;
      stats->failure = RRB_PATTERN;
      stats->row     = row;
      stats->column  = column;
      return;
    }
}

static PetscErrorCode ExplainMisfit(PC pc, const CSRView *A, Problem *problem)
{
  PC_RRB                  *rrb = (PC_RRB *)pc->data;
  std::vector<PetscInt>    i(A->n + 1), j(A->nnz);
  std::vector<PetscScalar> a(A->nnz);
  const CSRView            host = {A->n, A->nnz, i.data(), j.data(), a.data(), PETSC_MEMTYPE_HOST};
  PetscInt                 nx;

  PetscFunctionBegin;
  PetscCall(ArrayCopy(i.data(), A->i, i.size() * sizeof(PetscInt), PETSC_MEMTYPE_HOST, A->where));
  PetscCall(ArrayCopy(j.data(), A->j, j.size() * sizeof(PetscInt), PETSC_MEMTYPE_HOST, A->where));
  PetscCall(ArrayCopy(a.data(), A->a, a.size() * sizeof(PetscScalar), PETSC_MEMTYPE_HOST, A->where));
  rrb->source = "the closest one";
  FindMisfit(&host, &nx, &rrb->stats);
  PetscCall(CheckPattern(pc, A->n, nx, (A->n + nx - 1) / nx, problem));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* By the distance of the farthest entry, nx with 5 points and nx + 1 with 9, which is told by there being entries next to it. */
static PetscErrorCode ComputeByPattern(PC pc, const CSRView *A, Problem *problem)
{
  PC_RRB    *rrb     = (PC_RRB *)pc->data;
  const auto offsets = PetscMemTypeDevice(A->where) ? RRBOffsets_CUDA : RRBOffsets_Host;
  PetscInt   largest, nx, ny;
  PetscBool  next;

  PetscFunctionBegin;
  rrb->source = "recognised from the matrix";
  PetscCall((*offsets)(A, &largest, &next));
  if (largest >= 3 && next && A->n % (largest - 1) == 0) {
    nx = largest - 1;
    ny = A->n / nx;
    PetscCall(Compute(pc, A, nx, ny));
    if (rrb->stats.failure != RRB_PATTERN) {
      PetscCall(CheckPattern(pc, A->n, nx, ny, problem));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  nx = largest > 1 ? largest : PetscMax(A->n, 1);
  ny = (A->n + nx - 1) / nx;
  PetscCall(Compute(pc, A, nx, ny));
  if (rrb->stats.failure == RRB_PATTERN) PetscCall(ExplainMisfit(pc, A, problem));
  else PetscCall(CheckPattern(pc, A->n, nx, ny, problem));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ set-up, apply, view ------------------------------------- */

static PetscErrorCode FreeFactor(PC_RRB *rrb)
{
  PetscFunctionBegin;
  if (rrb->factor) {
    PetscCall(ArrayDestroy(rrb->factor->where, (void **)&rrb->staging));
    PetscCall(PetscMemTypeDevice(rrb->factor->where) ? RRBDestroy_CUDA(&rrb->factor) : RRBDestroy_Host(&rrb->factor));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ComputeOnItsGrid(PC pc, const CSRView *A, Problem *problem)
{
  PC_RRB   *rrb = (PC_RRB *)pc->data;
  DM        dm;
  PetscInt  nx, ny;
  PetscBool known = PETSC_TRUE;

  PetscFunctionBegin;
  if (rrb->nx || rrb->ny) {
    rrb->source = "by the options";
    PetscCall(GridFromOptions(pc, A->n, &nx, &ny, problem));
    if (problem->code) PetscFunctionReturn(PETSC_SUCCESS);
  } else {
    rrb->source = "of the DM";
    PetscCall(PCGetDM(pc, &dm));
    PetscCall(GridFromDM(dm, A->n, &nx, &ny, &known));
    if (!known) {
      PetscCall(MatGetDM(pc->pmat, &dm));
      PetscCall(GridFromDM(dm, A->n, &nx, &ny, &known));
    }
  }
  if (known) {
    PetscCall(Compute(pc, A, nx, ny));
    PetscCall(CheckPattern(pc, A->n, nx, ny, problem));
  } else PetscCall(ComputeByPattern(pc, A, problem));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A pivot that is not positive, on any rank. */
static PetscErrorCode RecordFailure(PC pc)
{
  PC_RRB         *rrb   = (PC_RRB *)pc->data;
  const RRBStats *stats = &rrb->stats;
  Problem         problem;

  PetscFunctionBegin;
  if (stats->failure) {
    const PetscInt nx = rrb->factor->nx;
    char           block[64];

    PetscCall(NameBlock(pc, block, sizeof(block)));
    problem.code = PETSC_ERR_MAT_LU_ZRPVT;
    PetscCall(
      PetscSNPrintf(problem.text, sizeof(problem.text),
                    "The pivot of level %" PetscInt_FMT " at point (%" PetscInt_FMT ", %" PetscInt_FMT
                    ")%s is not positive: PCRRB needs a symmetric M-matrix%s, or one that is close to it; try %sfewer levels "
                    "(-pc_rrb_levels), and MatSetNullSpace() if it is singular and its rows sum to 0",
                    stats->level, stats->row % nx, stats->row / nx, block,
                    rrb->params.lift ? "" : " whose rows do not sum to less than 0", rrb->params.lift ? "" : "-pc_rrb_lift, "));
    PetscCall(PetscInfo(pc, "%s\n", problem.text));
    pc->failedreason = PC_FACTOR_NUMERIC_ZEROPIVOT;
  }
  PetscCall(PCReduceFailedReason(pc));
  if (pc->failedreason) {
    const MPI_Comm comm = PetscObjectComm((PetscObject)pc);
    PetscMPIInt    rank, first;

    PetscCallMPI(MPI_Comm_rank(comm, &rank));
    const PetscMPIInt mine = stats->failure ? rank : PETSC_MPI_INT_MAX;
    PetscCallMPI(MPIU_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm));
    if (mine == first) {
      const PetscInt64 failed[4] = {stats->level, stats->row % rrb->factor->nx, stats->row / rrb->factor->nx, first};

      PetscCall(PetscArraycpy(rrb->failed, failed, 4));
    }
    PetscCallMPI(MPI_Bcast(rrb->failed, 4, MPIU_INT64, first, comm));
  }
  if (pc->failedreason && pc->erroriffailure) PetscCall(AgreeOn(pc, &problem));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_RRB(PC pc)
{
  PC_RRB      *rrb = (PC_RRB *)pc->data;
  MatNullSpace null_space;
  PetscInt     rows, columns;
  CSRMat       mat;
  Problem      problem;

  PetscFunctionBegin;
  pc->failedreason = PC_NOERROR;
  pc->setupcalled  = PETSC_FALSE; /* PCSetUp() sets it at its end: after an error on the way the next set-up starts anew */
  PetscCall(MatGetSize(pc->pmat, &rows, &columns));
  PetscCheck(rows == columns, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_SIZ,
             "The matrix must be square, but is %" PetscInt_FMT " by %" PetscInt_FMT, rows, columns);
  PetscCall(MatGetNullSpace(pc->pmat, &null_space));
  if (!null_space) PetscCall(MatGetNullSpace(pc->mat, &null_space));
  rrb->params.singular = PETSC_FALSE;
  if (null_space) PetscCall(MatNullSpaceGetVecs(null_space, &rrb->params.singular, nullptr, nullptr));

  PetscCall(MatGetCSR(pc->pmat, &mat));
  /* a part of a connected grid is not, however weakly it is coupled to the rest */
  if (mat.A.n != rows) rrb->params.singular = PETSC_FALSE;
  if (rrb->factor && rrb->factor->where != mat.A.where) PetscCall(FreeFactor(rrb));
  if (rrb->factor && (PetscInt64)rrb->factor->nx * rrb->factor->ny != mat.A.n) PetscCall(FreeFactor(rrb));
  const PetscErrorCode code = ComputeOnItsGrid(pc, &mat.A, &problem);
  PetscCall(MatRestoreCSR(&mat));
  if (code) {
    problem.code    = code;
    problem.text[0] = 0;
  }
  PetscCall(AgreeOn(pc, &problem));
  PetscCall(PetscObjectGetId((PetscObject)pc->pmat, &rrb->mat_id));
  PetscCall(PetscObjectStateGet((PetscObject)pc->pmat, &rrb->mat_state));
  PetscCall(PetscObjectStateIncrease((PetscObject)pc)); /* for those who keep what depends on the factor */
  PetscCall(RecordFailure(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApply_RRB(PC pc, Vec x, Vec y)
{
  PC_RRB            *rrb = (PC_RRB *)pc->data;
  RRBFactor *const   F   = rrb->factor;
  const PetscScalar *x_array;
  PetscScalar       *y_array;
  PetscMemType       x_where, y_where;
  PetscInt           n;

  PetscFunctionBegin;
  if (pc->failedreason) { /* there is no factor: KSPSolve() looks for the reason when it meets this */
    PetscCall(VecSet(y, std::numeric_limits<PetscReal>::infinity()));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecGetLocalSize(x, &n));
  if (!PetscMemTypeDevice(F->where)) {
    PetscCall(VecGetArrayRead(x, &x_array));
    PetscCall(VecGetArrayWrite(y, &y_array));
    PetscCall(RRBApply_Host(F, x_array, y_array));
    PetscCall(PetscLogFlops(17. * n)); /* 8 each way a point, and its pivot */
    PetscCall(VecRestoreArrayWrite(y, &y_array));
    PetscCall(VecRestoreArrayRead(x, &x_array));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecGetArrayReadAndMemType(x, &x_array, &x_where));
  PetscCall(VecGetArrayWriteAndMemType(y, &y_array, &y_where));
  const size_t       bytes    = n * sizeof(PetscScalar);
  const PetscScalar *x_device = x_array;
  PetscScalar       *y_device = y_array;
  if (!PetscMemTypeDevice(x_where) || !PetscMemTypeDevice(y_where)) {
    if (!rrb->staging) PetscCall(ArrayCreate(2 * bytes, F->where, (void **)&rrb->staging));
    if (!PetscMemTypeDevice(x_where)) {
      PetscCall(ArrayCopy(rrb->staging, x_array, bytes, F->where, x_where));
      x_device = rrb->staging;
    }
    if (!PetscMemTypeDevice(y_where)) y_device = rrb->staging + n;
  }
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(RRBApply_CUDA(F, x_device, y_device));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(PetscLogGpuFlops(17. * n));
  if (y_device != y_array) PetscCall(ArrayCopy(y_array, y_device, bytes, y_where, F->where));
  PetscCall(VecRestoreArrayWriteAndMemType(y, &y_array));
  PetscCall(VecRestoreArrayReadAndMemType(x, &x_array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Of all ranks, if there are any, or that none may be. */
static PetscErrorCode ViewLift(PC pc, PetscInt64 rows, PetscViewer viewer)
{
  const PC_RRB *rrb = (const PC_RRB *)pc->data;

  PetscFunctionBegin;
  if (!rrb->params.lift) PetscCall(PetscViewerASCIIPrintf(viewer, "rows that sum to less than 0 are lumped as they are\n"));
  if (rows)
    PetscCall(PetscViewerASCIIPrintf(viewer, "%" PetscInt64_FMT " rows of the %s that sum to less than 0 lifted\n", rows,
                                     rrb->factor->nine ? "matrix" : "first Schur complement"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_RRB(PC pc, PetscViewer viewer)
{
  const PC_RRB    *rrb   = (const PC_RRB *)pc->data;
  const RRBFactor *F     = rrb->factor;
  const RRBStats  *stats = &rrb->stats;
  PetscBool        is_ascii;
  PetscMPIInt      size;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)pc), &size));
  if (size > 1)
    PetscCall(PetscViewerASCIIPrintf(
      viewer, "block-local: each of %d ranks factors its own subdomain alone; grid and levels below are those of the first rank\n",
      size));
  if (!F || !pc->setupcalled) {
    if (rrb->params.levels) PetscCall(PetscViewerASCIIPrintf(viewer, "at most %" PetscInt_FMT " levels\n", rrb->params.levels));
    else PetscCall(PetscViewerASCIIPrintf(viewer, "levels chosen by size\n"));
    PetscCall(ViewLift(pc, 0, viewer));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscViewerASCIIPrintf(viewer, "grid of %" PetscInt_FMT " x %" PetscInt_FMT " points (%s), %d-point stencil\n", F->nx,
                                   F->ny, rrb->source, F->nine ? 9 : 5));
  if (pc->failedreason) {
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "set-up failed: the pivot of level %" PetscInt64_FMT " at point (%" PetscInt64_FMT
                                     ", %" PetscInt64_FMT ")",
                                     rrb->failed[0], rrb->failed[1], rrb->failed[2]));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_FALSE));
    if (size > 1) PetscCall(PetscViewerASCIIPrintf(viewer, " of rank %" PetscInt64_FMT "'s block", rrb->failed[3]));
    PetscCall(PetscViewerASCIIPrintf(viewer, " is not positive\n"));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_TRUE));
    PetscCall(ViewLift(pc, 0, viewer));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscInt64     count[4] = {stats->one_sided, stats->zero_pivots, (PetscInt64)F->nx * F->ny, stats->lifted}, sum[4];
  PetscLogDouble bytes    = (PetscLogDouble)F->bytes, all_bytes;

  PetscCallMPI(MPIU_Allreduce(count, sum, 4, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  PetscCallMPI(MPIU_Allreduce(&bytes, &all_bytes, 1, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "levels %" PetscInt_FMT " of %" PetscInt_FMT "%s, exact factorization of %" PetscInt_FMT
                                   " points (%s)\n",
                                   F->levels, F->max_levels, rrb->params.levels ? "" : " (chosen by size)", F->remainder,
                                   PetscMemTypeDevice(F->where) ? "dense inverse" : "band"));
  PetscCall(PetscViewerASCIIPrintf(viewer, "backend %s, %g bytes, %g per unknown%s\n",
                                   PetscMemTypeDevice(F->where) ? "CUDA" : "host", all_bytes,
                                   sum[2] ? all_bytes / (double)sum[2] : 0.,
                                   F->has_schur ? ", with the first Schur complement" : ""));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "couplings that one row alone has, left out %" PetscInt64_FMT
                                   ", zero pivots of a singular matrix %" PetscInt64_FMT "\n",
                                   sum[0], sum[1]));
  PetscCall(ViewLift(pc, sum[3], viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCFinePCGetApplyBytes_RRB(PC pc, PetscLogDouble *bytes)
{
  const RRBFactor *F = ((const PC_RRB *)pc->data)->factor;

  PetscFunctionBegin;
  *bytes = F && pc->setupcalled && !pc->failedreason ? (PetscLogDouble)F->apply_bytes : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All that a set-up made; the options stay. */
static PetscErrorCode PCReset_RRB(PC pc)
{
  PC_RRB *rrb = (PC_RRB *)pc->data;

  PetscFunctionBegin;
  PetscCall(FreeFactor(rrb));
  rrb->stats  = RRBStats{};
  rrb->source = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What Create composes and Destroy takes away. */
static PetscErrorCode ComposeMethods(PC pc, PetscBool compose)
{
  using Method = void (*)(void);
  static const struct {
    const char *name;
    Method      method;
  } methods[] = {
    {"PCRRBSetLevels_C", (Method)PCRRBSetLevels_RRB},
    {"PCRRBGetLevels_C", (Method)PCRRBGetLevels_RRB},
    {"PCRRBSetNx_C", (Method)PCRRBSetNx_RRB},
    {"PCRRBGetNx_C", (Method)PCRRBGetNx_RRB},
    {"PCRRBSetNy_C", (Method)PCRRBSetNy_RRB},
    {"PCRRBGetNy_C", (Method)PCRRBGetNy_RRB},
    {"PCRRBSetLift_C", (Method)PCRRBSetLift_RRB},
    {"PCRRBGetLift_C", (Method)PCRRBGetLift_RRB},
    {kApplyBytesQuery, (Method)PCFinePCGetApplyBytes_RRB},
  };

  PetscFunctionBegin;
  for (const auto &entry : methods)
    PetscCall(PetscObjectComposeFunction((PetscObject)pc, entry.name, compose ? entry.method : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_RRB(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCReset_RRB(pc));
  PetscCall(ComposeMethods(pc, PETSC_FALSE));
  delete (PC_RRB *)pc->data;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCRRBSetLevels - Sets the number of red-black levels of `PCRRB`, l of RRB-l

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- levels - 1 or more; the most that the grid allows, 2 ceil(log2(max(nx, ny))) + 1, is full RRB, and more are the same; 0 (default)
           for as few as leave at most 1024 points, or one in 15000, but never more than 4096

  Options Database Key:
. -pc_rrb_levels <levels> - levels before the exact factorization

  Level: intermediate

  Note:
  The points that are left after the last level are factored exactly. Fewer levels make a better preconditioner, with a larger exact
  part: a band on the host, a dense inverse of at most 8192 points on a GPU; beyond its limits the set-up ends with an error.

.seealso: `PCRRB`, `PCRRBGetLevels()`
@*/
PetscErrorCode PCRRBSetLevels(PC pc, PetscInt levels)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, levels, 2);
  PetscTryMethod(pc, "PCRRBSetLevels_C", (PC, PetscInt), (pc, levels));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCRRBGetLevels - Gets the number of red-black levels that `PCRRB` was asked for

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. levels - see `PCRRBSetLevels()`

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetLevels()`
@*/
PetscErrorCode PCRRBGetLevels(PC pc, PetscInt *levels)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(levels, 2);
  PetscUseMethod(pc, "PCRRBGetLevels_C", (PC, PetscInt *), (pc, levels));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCRRBSetNx - Sets the number of points of a line of the grid for `PCRRB`, those whose unknowns follow each other

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- nx - 1 or more; 0 (default) leaves the grid to the `DM`, or to the pattern of the matrix

  Options Database Key:
. -pc_rrb_nx <nx> - points of a line of the grid

  Level: intermediate

  Note:
  With several ranks each must have whole lines; with a `DMDA` it need not.

.seealso: `PCRRB`, `PCRRBGetNx()`, `PCRRBSetNy()`
@*/
PetscErrorCode PCRRBSetNx(PC pc, PetscInt nx)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, nx, 2);
  PetscTryMethod(pc, "PCRRBSetNx_C", (PC, PetscInt), (pc, nx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCRRBGetNx - Gets the number of points of a line of the grid that `PCRRB` was given

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. nx - see `PCRRBSetNx()`; 0 if none was given

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetNx()`
@*/
PetscErrorCode PCRRBGetNx(PC pc, PetscInt *nx)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(nx, 2);
  PetscUseMethod(pc, "PCRRBGetNx_C", (PC, PetscInt *), (pc, nx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCRRBSetNy - Sets the number of lines of the grid for `PCRRB`

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- ny - 1 or more; 0 (default) leaves the grid to the `DM`, or to the pattern of the matrix

  Options Database Key:
. -pc_rrb_ny <ny> - lines of the grid

  Level: intermediate

  Note:
  One of `PCRRBSetNx()` and `PCRRBSetNy()` is enough.

.seealso: `PCRRB`, `PCRRBGetNy()`, `PCRRBSetNx()`
@*/
PetscErrorCode PCRRBSetNy(PC pc, PetscInt ny)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveInt(pc, ny, 2);
  PetscTryMethod(pc, "PCRRBSetNy_C", (PC, PetscInt), (pc, ny));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCRRBGetNy - Gets the number of lines of the grid that `PCRRB` was given

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. ny - see `PCRRBSetNy()`; 0 if none was given

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetNy()`
@*/
PetscErrorCode PCRRBGetNy(PC pc, PetscInt *ny)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(ny, 2);
  PetscUseMethod(pc, "PCRRBGetNy_C", (PC, PetscInt *), (pc, ny));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCRRBSetLift - Sets whether `PCRRB` makes rows that sum to less than 0 sum to 0, before the first level that lumps

  Logically Collective

  Input Parameters:
+ pc - the preconditioner context
- lift - `PETSC_TRUE` (default) or `PETSC_FALSE`

  Options Database Key:
. -pc_rrb_lift <lift> - whether rows that sum to less than 0 are lifted

  Level: intermediate

  Notes:
  `PETSC_FALSE` is the method of the paper, to which this is an addition. Without it a matrix with such rows loses definiteness with
  every
  level that lumps, and pivots that are not positive make the set-up fail, on fine grids with many levels even though the matrix
  itself
  is definite. With it M is that of a matrix with larger diagonal entries. Where both work they take about as many iterations.

  With a 5-point stencil the rows are those of the first Schur complement, which is exact: one level stays exact, and so does the
  operator of `KSPRRBCG`. With a 9-point stencil the first level lumps, and the rows are those of the matrix. A row is lifted if its
  sum is below -1e-12 times the diagonal entry of the matrix, such that sums that are 0 but for rounding stay what they are, and if
  its own
  diagonal entry is positive. Nothing is lifted on a grid of one line, where nothing is lumped, and with the constants as null space
  (`MatSetNullSpace()`), for which rows sum to 0. The view counts the rows.

.seealso: `PCRRB`, `PCRRBGetLift()`, `PCRRBSetLevels()`
@*/
PetscErrorCode PCRRBSetLift(PC pc, PetscBool lift)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscValidLogicalCollectiveBool(pc, lift, 2);
  PetscTryMethod(pc, "PCRRBSetLift_C", (PC, PetscBool), (pc, lift));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCRRBGetLift - Gets whether `PCRRB` makes rows that sum to less than 0 sum to 0

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. lift - see `PCRRBSetLift()`

  Level: intermediate

.seealso: `PCRRB`, `PCRRBSetLift()`
@*/
PetscErrorCode PCRRBGetLift(PC pc, PetscBool *lift)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(lift, 2);
  PetscUseMethod(pc, "PCRRBGetLift_C", (PC, PetscBool *), (pc, lift));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCRRB - "rrb": repeated red-black factorization for 5- and 9-point stencils on two-dimensional grids, on the host or on a GPU

  Options Database Keys:
+ -pc_rrb_levels <0> - levels before the exact factorization; 0: as few as leave at most 1024 points, or one in 15000, but never
                       more than 4096
. -pc_rrb_nx <0> - points of a line of the grid; 0: found
. -pc_rrb_ny <0> - lines of the grid; 0: found
- -pc_rrb_lift <true> - rows that sum to less than 0 are made to sum to 0 before the first level that lumps

  Level: intermediate

  Notes:
  The grid is that of the options; or of a `DMDA` with one unknown a point, by `KSPSetDM()` or `MatGetDM()`; or it is recognised
  from the
  pattern of the matrix, natural ordering. Any number of points, variable coefficients, Dirichlet rows kept as rows of the identity,
  Neumann and mixed boundaries are fine. Periodic and irregular patterns are errors that name the first row that does not fit.

  Level by level, red points are eliminated; couplings between red points are lumped to the diagonal before. For symmetric
  M-matrices
  whose rows do not sum to less than 0 all pivots are positive, and M is symmetric positive definite. With a 5-point stencil the
  first
  level is exact. On Poisson's problem the condition number is at most about 1.8 * 1.23^l for l levels.

  Where rows do sum to less than 0 (the Jacobian of -Laplace(u) = exp(u), a Helmholtz equation) lumping takes away what is left of
  definiteness, level by level. Beyond the paper, such rows are therefore lifted: before the first level that lumps, the second with
  a 5-point stencil and the first with a 9-point one, their diagonal entries are raised until they sum to 0. M is then positive
  definite
  for every definite M-matrix, unless lumping takes all couplings of a point, and also for an indefinite matrix with such signs, for
  which use `KSPMINRES`, if some rows sum to more than 0, as those next to a Dirichlet boundary do. See `PCRRBSetLift()`; the view
  counts
  the rows.

  What the last level leaves is factored exactly, where the paper has an exact Cholesky factorization on the host. Here the host has
  L D L^T in a band. On a GPU there is no factor and there are no triangular solves, but the inverse: a dense matrix of all the
  points
  that are left, made by sweeping blocks of rows and columns, with which an application multiplies. It takes 8 m^2 bytes for m
  points, and
  2 m^3 flops, so that m is at most 8192.

  Symmetry is checked. A coupling that only one of the two rows has, such as one to a Dirichlet row whose column was not zeroed, is
  left
  out; the view counts these. A pivot that is not positive makes the set-up fail with a `PCFailedReason`. If the matrix has the
  constants
  as its null space (`MatSetNullSpace()`) and its rows sum to 0, to eight digits of the diagonal entry, the last pivot is left out,
  which
  is zero then; a matrix of several parts that are not coupled has more such pivots, and may fail, in the set-up or in the solve. A
  rank's
  subdomain is not singular, nor is a matrix that couples one way alone: all their pivots count.

  With several ranks this is not the global method: each factors its own subdomain alone, without the couplings to others, as
  `PCBJACOBI`
  does, and iterations grow with the number of ranks; the view says so. An error about one rank's subdomain is one of all ranks.

  The factor takes 40 bytes an unknown on the host, 48 on a GPU with its values on the way down and up, beside the exact part; for
  `KSPRRBCG`
  it keeps 40 more on the host, 20 on a GPU. A set-up on a GPU needs 56 to 72 for itself.

  Reference:
  M. de Jong, A. van der Ploeg, A. Ditzel, C. Vuik, Fine-grain parallel RRB-solver for 5-/9-point stencil problems suitable for
  GPU-type
  processors, Electron. Trans. Numer. Anal. (2017)

.seealso: `KSPRRBCG`, `PCICC`, `PCMG`, `DMDA`, `PCRRBSetLevels()`, `PCRRBSetNx()`, `PCRRBSetNy()`, `PCRRBSetLift()`
M*/
PETSC_EXTERN PetscErrorCode PCCreate_RRB(PC pc)
{
  PetscFunctionBegin;
  pc->data                = new PC_RRB();
  pc->ops->apply          = PCApply_RRB;
  pc->ops->applytranspose = PCApply_RRB;
  pc->ops->setup          = PCSetUp_RRB;
  pc->ops->reset          = PCReset_RRB;
  pc->ops->destroy        = PCDestroy_RRB;
  pc->ops->setfromoptions = PCSetFromOptions_RRB;
  pc->ops->view           = PCView_RRB;
  PetscCall(ComposeMethods(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
