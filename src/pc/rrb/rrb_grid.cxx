/*
   This file finds the grid whose points the rows of a matrix are, and has the factor computed on this grid. The options, a DM or
   the pattern of the matrix tell the grid.
*/
#include <petsc/private/pcimpl.h>
#include <petscdmda.h>

#include <vector>

#include "entry.h"
#include "finepcimpl.h"
#include "rrb_face.h"

/*
   Takes nx and ny of the whole grid from the options, and computes ny of the rank's part. The rank's rows must be whole lines of
   the grid.
*/
static PetscErrorCode GridFromOptions(PC pc, LocalInt n, LocalInt *nx, LocalInt *ny, PCLocalOutcome *outcome)
{
  const PC_RRB *rrb = (const PC_RRB *)pc->data;
  PetscInt      all, line;
  char          block[64];

  PetscFunctionBegin;
  PetscCall(MatGetSize(pc->pmat, &all, nullptr));
  line = rrb->nx ? rrb->nx : all / rrb->ny;
  PetscCheck(line && all % line == 0 && (!rrb->ny || all / line == rrb->ny), PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows, which is not the size of a grid with -pc_rrb_nx %" PetscInt_FMT
             " -pc_rrb_ny %" PetscInt_FMT,
             all, rrb->nx, rrb->ny);
  PetscCall(LocalIntCast(line, "points of a line", nx));
  *ny = n / *nx;
  if (n % *nx) {
    PetscCall(PCLocalNameBlock(pc, block, sizeof(block)));
    outcome->code = PETSC_ERR_ARG_SIZ;
    PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                            "The %" LocalInt_FMT " rows%s are not whole lines of %" LocalInt_FMT
                            " points: give the grid with KSPSetDM() or MatSetDM(), or whole lines to each rank",
                            n, block, *nx));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Takes the rank's part of the grid from a DMDA, if the DM is one and has as many points there as the rank has rows. */
static PetscErrorCode GridFromDM(DM dm, LocalInt n, LocalInt *nx, LocalInt *ny, PetscBool *fits)
{
  PetscBool is_da = PETSC_FALSE;
  PetscInt  dim, dof, x, y, z;

  PetscFunctionBegin;
  *fits = PETSC_FALSE;
  if (dm) PetscCall(PetscObjectTypeCompare((PetscObject)dm, DMDA, &is_da));
  if (!is_da) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
    DMDAGetInfo(dm, &dim, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, &dof, nullptr, nullptr, nullptr, nullptr, nullptr));
  if (dim > 2 || dof != 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DMDAGetCorners(dm, nullptr, nullptr, nullptr, &x, &y, &z));
  *fits = (PetscBool)((PetscInt64)x * y == n);
  if (!*fits) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(LocalIntCast(x, "points of a line", nx));
  PetscCall(LocalIntCast(y, "lines of points", ny));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes the factor by the twin for the memory of the matrix. */
static PetscErrorCode Compute_RRB(PC pc, const CSRView *A, LocalInt nx, LocalInt ny)
{
  PC_RRB    *rrb     = (PC_RRB *)pc->data;
  const auto compute = PetscMemTypeDevice(A->where) ? RRBComputeFactor_CUDA : RRBComputeFactor_Host;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(FinePC_RRBFactor, pc, pc->pmat, 0, 0));
  const PetscErrorCode code = CallGuarded(compute, A, nx, ny, &rrb->params, &rrb->factor, &rrb->stats);
  PetscCall(PetscLogEventEnd(FinePC_RRBFactor, pc, pc->pmat, 0, 0));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Describes in the outcome what the twin has found wrong with the pattern, the size or the symmetry of the rank's block. */
static PetscErrorCode CheckPattern(PC pc, LocalInt n, LocalInt nx, LocalInt ny, PCLocalOutcome *outcome)
{
  const PC_RRB   *rrb   = (const PC_RRB *)pc->data;
  const RRBStats *stats = &rrb->stats;
  char            block[64];

  PetscFunctionBegin;
  PetscCall(PCLocalNameBlock(pc, block, sizeof(block)));
  if (stats->failure == RRB_PATTERN) {
    const LocalInt x = stats->row % nx, y = stats->row / nx, to_x = stats->column % nx, to_y = stats->column / nx;
    const char    *periodic = "";

    if (y == to_y && PetscAbsInt(x - to_x) == nx - 1) periodic = " unless the grid is periodic in x";
    if (x == to_x && PetscAbsInt(y - to_y) == ny - 1) periodic = " unless the grid is periodic in y";
    outcome->code = PETSC_ERR_ARG_WRONG;
    PetscCall(
      PetscSNPrintf(outcome->text, sizeof(outcome->text),
                    "Row %" LocalInt_FMT "%s has an entry in column %" LocalInt_FMT ", but on a grid of %" LocalInt_FMT
                    " x %" LocalInt_FMT " points (%s) point (%" LocalInt_FMT ", %" LocalInt_FMT
                    ") is no neighbour of (%" LocalInt_FMT ", %" LocalInt_FMT
                    ")%s: PCRRB needs a 5- or 9-point stencil, not periodic, in natural ordering; give the grid with KSPSetDM(), "
                    "MatSetDM(), or -pc_rrb_nx and -pc_rrb_ny",
                    stats->row, block, stats->column, nx, ny, rrb->source, to_x, to_y, x, y, periodic));
  } else if ((PetscInt64)nx * ny != n) {
    outcome->code = PETSC_ERR_ARG_SIZ;
    PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                            "The %" LocalInt_FMT " rows%s are not whole lines of %" LocalInt_FMT
                            " points (%s): give the grid with KSPSetDM(), MatSetDM(), or -pc_rrb_nx and -pc_rrb_ny",
                            n, block, nx, rrb->source));
  } else if (stats->failure == RRB_UNSYMMETRIC) {
    outcome->code = PETSC_ERR_ARG_WRONG;
    PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                            "Row %" LocalInt_FMT "%s has in column %" LocalInt_FMT " another value than row %" LocalInt_FMT
                            " in column %" LocalInt_FMT
                            ": PCRRB needs a symmetric matrix; use -pc_type ilu, or scale the equations",
                            stats->row, block, stats->column, stats->column, stats->row));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Finds what the text about a matrix that is on no grid says: the closest grid, and the first entry that does not fit this grid. A
   line of the closest grid has as many points as most of the entries beyond the first neighbours are away from the diagonal. The
   arrays of A are on the host.
*/
static void FindMisfit(const CSRView *A, LocalInt *nx, RRBStats *stats)
{
  std::vector<LocalInt> count(A->n + 1, 0); /* entries at each distance from the diagonal */

  *nx = 1;
  for (LocalInt row = 0; row < A->n; row++)
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++)
      if (A->a[k] != 0 && A->j[k] > row) count[A->j[k] - row]++;
  for (LocalInt distance = 2; distance < A->n; distance++)
    if (count[distance] > (*nx > 1 ? count[*nx] : 0)) *nx = distance;
  /*
     On a grid of two or more lines at least half of the rows have an entry at the distance of a line. If fewer than a quarter of
     the rows have one, the closest grid is one line.
  */
  if (*nx == 1 || (PetscInt64)4 * count[*nx] < A->n) *nx = A->n;
  for (LocalInt row = 0; row < A->n; row++)
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++) {
      const LocalInt column = A->j[k];
      if (A->a[k] == 0 || (PetscAbsInt(column % *nx - row % *nx) <= 1 && PetscAbsInt(column / *nx - row / *nx) <= 1)) continue;
      stats->failure = RRB_PATTERN;
      stats->row     = row;
      stats->column  = column;
      return;
    }
}

static PetscErrorCode ExplainMisfit(PC pc, const CSRView *A, PCLocalOutcome *outcome)
{
  PC_RRB                  *rrb = (PC_RRB *)pc->data;
  std::vector<LocalInt>    i(A->n + 1), j(A->nnz);
  std::vector<PetscScalar> a(A->nnz);
  const CSRView            host = {A->n, A->nnz, i.data(), j.data(), a.data(), PETSC_MEMTYPE_HOST};
  LocalInt                 nx;

  PetscFunctionBegin;
  PetscCall(ArrayCopy(i.data(), A->i, i.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A->where));
  PetscCall(ArrayCopy(j.data(), A->j, j.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A->where));
  PetscCall(ArrayCopy(a.data(), A->a, a.size() * sizeof(PetscScalar), PETSC_MEMTYPE_HOST, A->where));
  rrb->source = "the closest one";
  FindMisfit(&host, &nx, &rrb->stats);
  PetscCall(CheckPattern(pc, A->n, nx, (A->n + nx - 1) / nx, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Finds the grid by the largest distance of an entry from the diagonal, which is nx for a 5-point stencil and nx + 1 for a 9-point
   stencil. A 9-point stencil also has entries at the distance nx, next to the largest.
*/
static PetscErrorCode ComputeByPattern(PC pc, const CSRView *A, PCLocalOutcome *outcome)
{
  PC_RRB    *rrb     = (PC_RRB *)pc->data;
  const auto offsets = PetscMemTypeDevice(A->where) ? RRBOffsets_CUDA : RRBOffsets_Host;
  LocalInt   largest, nx, ny;
  PetscBool  next;

  PetscFunctionBegin;
  rrb->source = "recognised from the matrix";
  PetscCall((*offsets)(A, &largest, &next));
  if (largest >= 3 && next && A->n % (largest - 1) == 0) {
    nx = largest - 1;
    ny = A->n / nx;
    PetscCall(Compute_RRB(pc, A, nx, ny));
    if (rrb->stats.failure != RRB_PATTERN) {
      PetscCall(CheckPattern(pc, A->n, nx, ny, outcome));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  nx = largest > 1 ? largest : PetscMax(A->n, 1);
  ny = (A->n + nx - 1) / nx;
  PetscCall(Compute_RRB(pc, A, nx, ny));
  if (rrb->stats.failure == RRB_PATTERN) PetscCall(ExplainMisfit(pc, A, outcome));
  else PetscCall(CheckPattern(pc, A->n, nx, ny, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBComputeOnItsGrid(PC pc, const CSRView *A, PCLocalOutcome *outcome)
{
  PC_RRB   *rrb = (PC_RRB *)pc->data;
  DM        dm;
  LocalInt  nx, ny;
  PetscBool fits = PETSC_TRUE;

  PetscFunctionBegin;
  if (rrb->nx || rrb->ny) {
    rrb->source = "by the options";
    PetscCall(GridFromOptions(pc, A->n, &nx, &ny, outcome));
    if (outcome->code) PetscFunctionReturn(PETSC_SUCCESS);
  } else {
    rrb->source = "of the DM";
    PetscCall(PCGetDM(pc, &dm));
    PetscCall(GridFromDM(dm, A->n, &nx, &ny, &fits));
    if (!fits) {
      PetscCall(MatGetDM(pc->pmat, &dm));
      PetscCall(GridFromDM(dm, A->n, &nx, &ny, &fits));
    }
  }
  if (fits) {
    PetscCall(Compute_RRB(pc, A, nx, ny));
    PetscCall(CheckPattern(pc, A->n, nx, ny, outcome));
  } else PetscCall(ComputeByPattern(pc, A, outcome));
  PetscFunctionReturn(PETSC_SUCCESS);
}
