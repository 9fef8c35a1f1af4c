static char help[] =
  "Flow in a cavity whose lid moves, in velocities and vorticity, by Newton's method with a Jacobian of 3 x 3 blocks.\n\
  -reynolds <Re>  : Reynolds number of the lid\n\
  -da_grid_x <n>  : grid points along the lid, and -da_grid_y across\n\n";

/*
   The unknowns are the velocities u and v and the vorticity w = v_x - u_y in the unit square, in units of viscosity over length, so
   that the lid's velocity is the Reynolds number:

     -Laplace(u) - w_y                  = 0      on the walls u = v = 0, u = Re on the lid,
     -Laplace(v) + w_x                  = 0      and w is what the velocities there make it
     -Laplace(w) + u w_x + v w_y        = 0

   Differences with 5 points: central ones for w in the first two equations, upwind ones in the third, one-sided ones on the walls,
   all equations inside multiplied by the area of a cell. The Jacobian has 3 x 3 blocks where the 5 points are, which is what
   MATBAIJ and block preconditioners are for:

     ./ex4 -dm_mat_type baij -pc_type ilu

   The first Newton step alone, -snes_type ksponly, is the linear system of the block-ISAI paper (Ma, Hu, Yuan, Liu 2021), with
   -da_grid_x 300 -da_grid_y 300; it starts from a fluid at rest and has no convection. It takes the paper's 623 iterations with
   -pc_type ilu, and its 1092, 836, 711 with -dll_append /path/to/libfinepc.so -pc_type bisai -pc_bisai_power 1, 2, 3. On a GPU
   -dm_mat_type baijcuda -dm_vec_type cuda -ksp_type gmresfused takes the same iterations in less time. A file of the system for
   other programs is written by -ksp_view_mat binary:cavity.petsc -ksp_view_rhs binary:cavity.petsc::append
*/
#include <petscdmda.h>
#include <petscsnes.h>

typedef struct {
  PetscScalar u, v, w;
} Field;

enum { U, V, W, FIELDS };

typedef struct {
  PetscReal reynolds;
} Flow;

/* The points of the stencil; a block row of the Jacobian has a block for each */
enum { SOUTH, WEST, HERE, EAST, NORTH, POINTS };
static const PetscInt kStepX[POINTS] = {0, -1, 0, 1, 0}, kStepY[POINTS] = {-1, 0, 0, 0, 1};

/* For a point on a wall, where its neighbour inside the cavity is. The corners belong to the side walls. */
static PetscInt PointInside(const DMDALocalInfo *grid, PetscInt i, PetscInt j)
{
  if (i == 0) return EAST;
  if (i == grid->mx - 1) return WEST;
  if (j == 0) return NORTH;
  if (j == grid->my - 1) return SOUTH;
  return HERE; /* not on a wall */
}

static PetscErrorCode FormFunction(DMDALocalInfo *grid, void *x_array, void *f_array, void *ctx)
{
  Field **const x = (Field **)x_array, **const f = (Field **)f_array;
  Flow *const     flow = (Flow *)ctx;
  const PetscReal hx = 1.0 / (PetscReal)(grid->mx - 1), hy = 1.0 / (PetscReal)(grid->my - 1);

  PetscFunctionBeginUser;
  for (PetscInt j = grid->ys; j < grid->ys + grid->ym; j++) {
    for (PetscInt i = grid->xs; i < grid->xs + grid->xm; i++) {
      const PetscInt inside = PointInside(grid, i, j);
      const Field    here   = x[j][i];

      if (inside == HERE) {
        const Field       east = x[j][i + 1], west = x[j][i - 1], north = x[j + 1][i], south = x[j - 1][i];
        const PetscScalar w_x = PetscRealPart(here.u) > 0.0 ? here.w - west.w : east.w - here.w;
        const PetscScalar w_y = PetscRealPart(here.v) > 0.0 ? here.w - south.w : north.w - here.w;

        f[j][i].u = (2.0 * here.u - east.u - west.u) * hy / hx + (2.0 * here.u - north.u - south.u) * hx / hy -
                    0.5 * hx * (north.w - south.w);
        f[j][i].v =
          (2.0 * here.v - east.v - west.v) * hy / hx + (2.0 * here.v - north.v - south.v) * hx / hy + 0.5 * hy * (east.w - west.w);
        f[j][i].w = (2.0 * here.w - east.w - west.w) * hy / hx + (2.0 * here.w - north.w - south.w) * hx / hy + hy * here.u * w_x +
                    hx * here.v * w_y;
      } else {
        const PetscInt  dx = kStepX[inside], dy = kStepY[inside];
        const Field     next = x[j + dy][i + dx];
        const PetscReal lid  = inside == SOUTH ? flow->reynolds : 0.0;

        f[j][i].u = here.u - lid;
        f[j][i].v = here.v;
        f[j][i].w = here.w - dx * (next.v - here.v) / hx + dy * (next.u - here.u) / hy; /* w = v_x - u_y */
      }
    }
  }
  PetscCall(PetscLogFlops(44.0 * grid->xm * grid->ym));
  PetscFunctionReturn(0);
}

/*
   The derivatives of FormFunction(), block row by block row: block[row][point][column], which is row-major over the whole block row
*/
static PetscErrorCode FormJacobian(DMDALocalInfo *grid, void *x_array, Mat J, Mat P, void *)
{
  Field **const   x  = (Field **)x_array;
  const PetscReal hx = 1.0 / (PetscReal)(grid->mx - 1), hy = 1.0 / (PetscReal)(grid->my - 1);

  PetscFunctionBeginUser;
  for (PetscInt j = grid->ys; j < grid->ys + grid->ym; j++) {
    for (PetscInt i = grid->xs; i < grid->xs + grid->xm; i++) {
      const PetscInt inside = PointInside(grid, i, j);
      PetscScalar    block[FIELDS][POINTS][FIELDS];
      MatStencil     row = {}, columns[POINTS] = {};

      PetscCall(PetscMemzero(block, sizeof(block)));
      row.i = i;
      row.j = j;
      for (PetscInt p = 0; p < POINTS; p++) {
        const bool outside = i + kStepX[p] < 0 || i + kStepX[p] >= grid->mx || j + kStepY[p] < 0 || j + kStepY[p] >= grid->my;

        columns[p].i = outside ? -1 : i + kStepX[p]; /* negative: left out */
        columns[p].j = outside ? -1 : j + kStepY[p];
      }
      if (inside == HERE) {
        const Field    here      = x[j][i];
        const bool     from_west = PetscRealPart(here.u) > 0.0, from_south = PetscRealPart(here.v) > 0.0;
        const PetscInt back_x = from_west ? WEST : HERE, front_x = from_west ? HERE : EAST; /* w_x = w(front) - w(back) */
        const PetscInt back_y = from_south ? SOUTH : HERE, front_y = from_south ? HERE : NORTH;

        for (PetscInt field = U; field < FIELDS; field++) {
          block[field][EAST][field] = block[field][WEST][field] = -hy / hx;
          block[field][NORTH][field] = block[field][SOUTH][field] = -hx / hy;
          block[field][HERE][field]                               = 2.0 * (hy / hx + hx / hy);
        }
        block[U][NORTH][W] = -0.5 * hx;
        block[U][SOUTH][W] = 0.5 * hx;
        block[V][EAST][W]  = 0.5 * hy;
        block[V][WEST][W]  = -0.5 * hy;
        block[W][front_x][W] += hy * here.u;
        block[W][back_x][W] -= hy * here.u;
        block[W][front_y][W] += hx * here.v;
        block[W][back_y][W] -= hx * here.v;
        block[W][HERE][U] = hy * (from_west ? here.w - x[j][i - 1].w : x[j][i + 1].w - here.w);
        block[W][HERE][V] = hx * (from_south ? here.w - x[j - 1][i].w : x[j + 1][i].w - here.w);
      } else {
        for (PetscInt field = U; field < FIELDS; field++) block[field][HERE][field] = 1.0;
        block[W][inside][V] = -kStepX[inside] / hx;
        block[W][inside][U] = kStepY[inside] / hy;
        block[W][HERE][V]   = kStepX[inside] / hx;
        block[W][HERE][U]   = -kStepY[inside] / hy;
      }
      PetscCall(MatSetValuesBlockedStencil(P, 1, &row, POINTS, columns, &block[0][0][0], INSERT_VALUES));
    }
  }
  PetscCall(MatAssemblyBegin(P, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(P, MAT_FINAL_ASSEMBLY));
  if (J != P) { /* matrix-free */
    PetscCall(MatAssemblyBegin(J, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(J, MAT_FINAL_ASSEMBLY));
  }
  PetscFunctionReturn(0);
}

/* The least u on the upright line through the middle. For Re = 100 it is -0.211 of the lid's velocity (Ghia, Ghia, Shin 1982), to
   which these differences come with the first order of the grid's spacing: 0.112, 0.160, 0.182 with 81, 161, 301 points a side. */
static PetscErrorCode BackwardFlow(DM da, Vec solution, PetscReal *least)
{
  DMDALocalInfo grid;
  Field       **x;

  PetscFunctionBeginUser;
  *least = 0.0;
  PetscCall(DMDAGetLocalInfo(da, &grid));
  PetscCall(DMDAVecGetArrayRead(da, solution, &x));
  if (grid.xs <= grid.mx / 2 && grid.mx / 2 < grid.xs + grid.xm) {
    for (PetscInt j = grid.ys; j < grid.ys + grid.ym; j++) *least = PetscMin(*least, PetscRealPart(x[j][grid.mx / 2].u));
  }
  PetscCall(DMDAVecRestoreArrayRead(da, solution, &x));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, least, 1, MPIU_REAL, MPIU_MIN, PetscObjectComm((PetscObject)da)));
  PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
  DM                  da;
  SNES                snes;
  KSP                 ksp;
  Vec                 solution;
  Flow                flow = {10.0};
  SNESConvergedReason reason;
  PetscInt            mx, my, steps, iterations;
  PetscReal           least;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, help));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-reynolds", &flow.reynolds, NULL));
  PetscCheck(flow.reynolds > 0.0, PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT, "-reynolds is %g, but must be positive",
             (double)flow.reynolds);

  PetscCall(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, 21, 21, PETSC_DECIDE,
                         PETSC_DECIDE, FIELDS, 1, NULL, NULL, &da));
  PetscCall(DMSetMatType(da, MATBAIJ));
  PetscCall(DMSetFromOptions(da));
  PetscCall(DMSetUp(da));
  PetscCall(DMDASetFieldName(da, U, "u"));
  PetscCall(DMDASetFieldName(da, V, "v"));
  PetscCall(DMDASetFieldName(da, W, "vorticity"));
  PetscCall(DMDAGetInfo(da, NULL, &mx, &my, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
  PetscCheck(mx > 2 && my > 2, PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT,
             "The grid is %" PetscInt_FMT " x %" PetscInt_FMT ", but needs points inside the cavity, 3 x 3 at least", mx, my);
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "Grid %" PetscInt_FMT " x %" PetscInt_FMT ", Reynolds number %g\n", mx, my,
                        (double)flow.reynolds));

  PetscCall(SNESCreate(PETSC_COMM_WORLD, &snes));
  PetscCall(SNESSetDM(snes, da));
  PetscCall(DMDASNESSetFunctionLocal(da, INSERT_VALUES, FormFunction, &flow));
  PetscCall(DMDASNESSetJacobianLocal(da, FormJacobian, &flow));
  PetscCall(SNESGetKSP(snes, &ksp));
  PetscCall(KSPSetType(ksp, KSPGMRES)); /* restarted after 30 iterations */
  PetscCall(KSPSetPCSide(ksp, PC_RIGHT));
  PetscCall(SNESSetFromOptions(snes));

  PetscCall(DMCreateGlobalVector(da, &solution));
  PetscCall(VecSet(solution, 0.0));
  PetscCall(SNESSolve(snes, NULL, solution));

  PetscCall(SNESGetConvergedReason(snes, &reason));
  PetscCall(SNESGetIterationNumber(snes, &steps));
  PetscCall(SNESGetLinearSolveIterations(snes, &iterations));
  PetscCall(BackwardFlow(da, solution, &least));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s after %" PetscInt_FMT " Newton steps with %" PetscInt_FMT " iterations\n",
                        reason > 0 ? "Converged" : "Did not converge", steps, iterations));
  PetscCall(
    PetscPrintf(PETSC_COMM_WORLD, "Backward flow %.3f of the lid's velocity\n", (double)PetscAbsReal(least / flow.reynolds)));

  PetscCall(VecDestroy(&solution));
  PetscCall(SNESDestroy(&snes));
  PetscCall(DMDestroy(&da));
  PetscCall(PetscFinalize());
  return 0;
}

/*TEST

   test:
      suffix: 1

   test:
      suffix: jacobian
      args: -da_grid_x 8 -da_grid_y 7 -reynolds 40 -snes_test_jacobian
      filter: grep -e "= [0-9].*e-0" -e onverge

   test:
      suffix: step
      args: -snes_type ksponly -da_grid_x 60 -da_grid_y 60 -pc_type ilu

   test:
      suffix: aij
      args: -dm_mat_type aij -pc_type ilu
      output_file: output/ex4_1.out

   test:
      suffix: 2
      nsize: 2

   test:
      suffix: aijcusparse
      requires: cuda
      args: -dm_mat_type aijcusparse -dm_vec_type cuda -pc_type ilu
      output_file: output/ex4_1.out

   testset:
      args: -dll_append ${FINEPC_LIBRARY} -pc_type bisai
      test:
         suffix: bisai
      test:
         suffix: bisai_step
         args: -snes_type ksponly -da_grid_x 60 -da_grid_y 60 -pc_bisai_power {{1 2 3}separate output}
      test:
         suffix: bisai_types
         args: -dm_mat_type {{aij baijcuda}}
         output_file: output/ex4_bisai.out
      test:
         suffix: bisai_setups
         args: -snes_type ksponly -dm_mat_type {{baij aij baijcuda}} -log_view
         filter: awk '/^(BISAIFactor|BISAIInvert|BISAIPattern|BISAIValues) / {print $1, $2}'
      test:
         suffix: bisai_ranks
         nsize: 2
      test:
         suffix: bisai_cuda
         requires: cuda
         args: -dm_mat_type {{baijcuda aijcusparse}} -dm_vec_type cuda
         output_file: output/ex4_bisai.out
      test:
         suffix: gmresfused
         args: -dm_mat_type {{baij aij baijcuda}} -ksp_type gmresfused
         output_file: output/ex4_bisai.out
      test:
         suffix: gmresfused_step
         args: -snes_type ksponly -da_grid_x 60 -da_grid_y 60 -ksp_type gmresfused -pc_bisai_power 3
         output_file: output/ex4_bisai_step_pc_bisai_power-3.out
      test:
         suffix: gmresfused_ranks
         nsize: 2
         args: -ksp_type gmresfused
         output_file: output/ex4_bisai_ranks.out
      test:
         suffix: gmresfused_cuda
         requires: cuda
         args: -dm_mat_type {{baijcuda aijcusparse}} -dm_vec_type cuda -ksp_type gmresfused
         output_file: output/ex4_bisai.out
      test:
         suffix: gmresfused_step_cuda
         requires: cuda
         args: -snes_type ksponly -da_grid_x 60 -da_grid_y 60 -dm_mat_type baijcuda -dm_vec_type cuda -ksp_type gmresfused
         output_file: output/ex4_bisai_step_pc_bisai_power-1.out
      test:
         suffix: bisai_step_cuda
         requires: cuda
         args: -snes_type ksponly -da_grid_x 60 -da_grid_y 60 -dm_mat_type baijcuda -dm_vec_type cuda
         output_file: output/ex4_bisai_step_pc_bisai_power-1.out

TEST*/
