/* What ex7 and ex11 share: linear elasticity in a beam, with 8-node bricks on a DMDA. The beam is clamped where x = 0. */
#include <petscdmda.h>
#include <petscksp.h>

enum { NODES = 8, DIM = 3, UNKNOWNS = NODES * DIM };

/* Node a of a brick is at the corner (a & 1, a >> 1 & 1, a >> 2). */
static PetscInt Corner(PetscInt a, PetscInt d)
{
  return a >> d & 1;
}

/* The stiffness of a cube with edges h, Young's modulus 1 and Poisson's ratio nu, by 2 x 2 x 2 Gauss points. */
static void Stiffness(PetscReal h, PetscReal nu, PetscScalar K[UNKNOWNS][UNKNOWNS])
{
  const PetscReal lambda = nu / ((1.0 + nu) * (1.0 - 2.0 * nu)), mu = 0.5 / (1.0 + nu), gauss = 1.0 / PetscSqrtReal(3.0);

  for (PetscInt p = 0; p < UNKNOWNS; p++)
    for (PetscInt q = 0; q < UNKNOWNS; q++) K[p][q] = 0.0;
  for (PetscInt point = 0; point < NODES; point++) {
    PetscReal gradient[NODES][DIM], weight = h * h * h / 8.0;

    for (PetscInt a = 0; a < NODES; a++)
      for (PetscInt d = 0; d < DIM; d++) {
        gradient[a][d] = 1.0 / h;
        for (PetscInt e = 0; e < DIM; e++) {
          const PetscReal sign = Corner(a, e) ? 1.0 : -1.0, x = Corner(point, e) ? gauss : -gauss;

          gradient[a][d] *= e == d ? sign : 0.5 * (1.0 + sign * x);
        }
      }
    for (PetscInt a = 0; a < NODES; a++)
      for (PetscInt b = 0; b < NODES; b++) {
        PetscReal dot = 0.0;

        for (PetscInt d = 0; d < DIM; d++) dot += gradient[a][d] * gradient[b][d];
        for (PetscInt c = 0; c < DIM; c++)
          for (PetscInt d = 0; d < DIM; d++)
            K[a * DIM + c][b * DIM + d] += weight * (lambda * gradient[a][c] * gradient[b][d] +
                                                     mu * gradient[a][d] * gradient[b][c] + (c == d ? mu * dot : 0.0));
      }
  }
}

/* The matrix of a beam of three layers, of which the middle one has another modulus, and its weight as the right-hand side. */
static PetscErrorCode FillBeam(DM da, PetscReal modulus, Mat A, Vec b)
{
  DMDALocalInfo   info;
  PetscScalar     unit[UNKNOWNS][UNKNOWNS], K[UNKNOWNS][UNKNOWNS];
  PetscScalar ****load;

  PetscFunctionBeginUser;
  PetscCall(DMDAGetLocalInfo(da, &info));
  Stiffness(1.0 / (PetscReal)(info.mz - 1), 0.3, unit);
  for (PetscInt k = info.zs; k < PetscMin(info.zs + info.zm, info.mz - 1); k++)
    for (PetscInt j = info.ys; j < PetscMin(info.ys + info.ym, info.my - 1); j++)
      for (PetscInt i = info.xs; i < PetscMin(info.xs + info.xm, info.mx - 1); i++) {
        const PetscReal E = 3 * k >= info.mz - 1 && 3 * k < 2 * (info.mz - 1) ? modulus : 1.0;
        MatStencil      nodes[NODES];

        for (PetscInt a = 0; a < NODES; a++) {
          nodes[a].i = i + Corner(a, 0);
          nodes[a].j = j + Corner(a, 1);
          nodes[a].k = k + Corner(a, 2);
          nodes[a].c = 0;
        }
        for (PetscInt p = 0; p < UNKNOWNS; p++)
          for (PetscInt q = 0; q < UNKNOWNS; q++) {
            const PetscBool clamped = (PetscBool)(nodes[p / DIM].i == 0 || nodes[q / DIM].i == 0);

            K[p][q] = clamped && p != q ? 0.0 : E * unit[p][q];
          }
        PetscCall(MatSetValuesBlockedStencil(A, NODES, nodes, NODES, nodes, &K[0][0], ADD_VALUES));
      }
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscCall(VecSet(b, 0.0));
  PetscCall(DMDAVecGetArrayDOF(da, b, &load));
  for (PetscInt k = info.zs; k < info.zs + info.zm; k++)
    for (PetscInt j = info.ys; j < info.ys + info.ym; j++)
      for (PetscInt i = info.xs; i < info.xs + info.xm; i++) load[k][j][i][2] = i ? -1.0 : 0.0;
  PetscCall(DMDAVecRestoreArrayDOF(da, b, &load));
  PetscFunctionReturn(0);
}

/* The beam, 3 times as long as it is high and wide, with its rigid motions, which multigrid uses. */
static PetscErrorCode CreateBeam(PetscInt n, PetscReal modulus, DM *da, Mat *A, Vec *b)
{
  MatNullSpace motions;
  Vec          coordinates;
  PetscBool    blocks;

  PetscFunctionBeginUser;
  PetscCall(DMDACreate3d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_BOX, 3 * n + 1, n + 1,
                         n + 1, PETSC_DECIDE, PETSC_DECIDE, PETSC_DECIDE, DIM, 1, NULL, NULL, NULL, da));
  PetscCall(DMSetMatType(*da, MATBAIJ));
  PetscCall(DMSetFromOptions(*da));
  PetscCall(DMSetUp(*da));
  PetscCall(DMDASetUniformCoordinates(*da, 0.0, 3.0, 0.0, 1.0, 0.0, 1.0));
  PetscCall(DMCreateMatrix(*da, A));
  PetscCall(DMCreateGlobalVector(*da, b));
  PetscCall(FillBeam(*da, modulus, *A, *b));
  PetscCall(PetscObjectTypeCompare((PetscObject)*A, MATMPIBAIJ, &blocks));
  PetscCall(MatSetOption(*A, blocks ? MAT_SYMMETRIC : MAT_SPD, PETSC_TRUE)); /* PETSc before 3.23 has no MAT_SPD for a MATMPIBAIJ */
  PetscCall(DMGetCoordinates(*da, &coordinates));
  PetscCall(MatNullSpaceCreateRigidBody(coordinates, &motions));
  PetscCall(MatSetNearNullSpace(*A, motions));
  PetscCall(MatNullSpaceDestroy(&motions));
  PetscFunctionReturn(0);
}
