/*
  Tests of the generated systems (-check): what the formulas say about them, not what the generators do. Loaded systems get the
  general part: symmetric, positive diagonal, CG converges. Coupled fields are not symmetric, and CG is tried on their symmetric
  part; GMRES on the Euler equations, where pressure makes entries of the diagonal negative that belong to the momentum.
*/
#include "bench.h"
#include <finepc.h>
#include <functional>

PetscErrorCode Asymmetry(Mat A, PetscReal *asymmetry)
{
  Mat       T;
  PetscReal norm, difference;

  PetscFunctionBeginUser;
  PetscCall(MatTranspose(A, MAT_INITIAL_MATRIX, &T));
  PetscCall(MatAXPY(T, -1., A, UNKNOWN_NONZERO_PATTERN));
  PetscCall(MatNorm(A, NORM_FROBENIUS, &norm));
  PetscCall(MatNorm(T, NORM_FROBENIUS, &difference));
  PetscCall(MatDestroy(&T));
  *asymmetry = difference / norm;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Convection makes a matrix unsymmetric by far more than rounding errors do. */
static PetscErrorCode CheckSymmetry(Mat A, bool symmetric, PetscBool *ok)
{
  PetscReal asymmetry;

  PetscFunctionBeginUser;
  PetscCall(Asymmetry(A, &asymmetry));
  *ok = (PetscBool)(symmetric ? asymmetry <= 1e-13 : asymmetry >= 1e-3);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckDiagonal(Mat A, PetscBool *ok)
{
  Vec       d;
  PetscReal smallest;

  PetscFunctionBeginUser;
  PetscCall(MatCreateVecs(A, nullptr, &d));
  PetscCall(MatGetDiagonal(A, d));
  PetscCall(VecMin(d, nullptr, &smallest));
  PetscCall(VecDestroy(&d));
  *ok = (PetscBool)(smallest > 0.);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* CG + Jacobi reaches the true residual, so A acts as a positive definite matrix on the Krylov space. GMRES takes any matrix. */
static PetscErrorCode CheckConverges(Mat A, KSPType ksp_type, PCType pc_type, PetscReal rtol, PetscBool *ok)
{
  KSP                ksp;
  PC                 pc;
  Vec                x, b, r;
  PetscReal          bnorm, rnorm;
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  PetscCall(MatCreateVecs(A, &x, &b));
  PetscCall(VecDuplicate(b, &r));
  PetscCall(VecSet(x, 1.));
  PetscCall(MatMult(A, x, b));
  PetscCall(KSPCreate(PetscObjectComm((PetscObject)A), &ksp));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPSetType(ksp, ksp_type));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, pc_type));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_UNPRECONDITIONED)); /* with GMRES this is on the right */
  PetscCall(KSPSetTolerances(ksp, 0.5 * rtol, PETSC_CURRENT, PETSC_CURRENT, 100000));
  PetscCall(KSPSolve(ksp, b, x));
  PetscCall(KSPGetConvergedReason(ksp, &reason));
  PetscCall(MatMult(A, x, r));
  PetscCall(VecAYPX(r, -1., b));
  PetscCall(VecNorm(b, NORM_2, &bnorm));
  PetscCall(VecNorm(r, NORM_2, &rnorm));
  *ok = (PetscBool)(reason > 0 && rnorm <= rtol * bnorm);
  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&r));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same with (A + A^T) / 2 */
static PetscErrorCode CheckSymmetricPartConverges(Mat A, PetscReal rtol, PetscBool *ok)
{
  Mat S;

  PetscFunctionBeginUser;
  PetscCall(MatTranspose(A, MAT_INITIAL_MATRIX, &S));
  PetscCall(MatAXPY(S, 1., A, SAME_NONZERO_PATTERN));
  PetscCall(MatScale(S, 0.5));
  PetscCall(CheckConverges(S, KSPCG, PCJACOBI, rtol, ok));
  PetscCall(MatDestroy(&S));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Formulas for the number of nonzeros: on a line of n points a stencil of three has 3 n - 2 entries */
static PetscErrorCode CheckCounts(const System &s, PetscBool *ok)
{
  const PetscLogDouble x = s.grid[0], y = s.grid[1], z = s.grid[2];
  PetscLogDouble       rows = x * y * z, nnz = 0.;

  PetscFunctionBeginUser;
  if (s.kind == "poisson2d5" || s.kind == "jumps2d") nnz = 5. * x * y - 2. * (x + y);
  else if (s.kind == "fingers2d") nnz = 5. * x * y - 2. * y;
  else if (s.kind == "poisson3d7" || s.kind == "jumps" || s.kind == "aniso3d") nnz = 7. * x * y * z - 2. * (x * y + y * z + x * z);
  else if (s.kind == "poisson2d9" || s.kind == "aniso2d") nnz = (3. * x - 2.) * (3. * y - 2.);
  else if (s.kind == "poisson3d27") nnz = (3. * x - 2.) * (3. * y - 2.) * (3. * z - 2.);
  else if (s.kind == "elasticity3d") {
    rows = 3. * x * (y + 1.) * (z + 1.);
    nnz  = 9. * (3. * x - 2.) * (3. * y + 1.) * (3. * z + 1.);
  } else if (s.kind == "elasticity3d_tets") { /* edges along the axes, and the diagonals of faces and of cubes */
    rows = 3. * x * (y + 1.) * (z + 1.);
    nnz  = 3. * rows + 18. * ((x - 1.) * (y + 1.) * (z + 1.) + x * y * (z + 1.) + x * (y + 1.) * z + (x - 1.) * y * (z + 1.) +
                             (x - 1.) * (y + 1.) * z + x * y * z + (x - 1.) * y * z);
  } else if (s.kind == "block3d7") {
    rows = x * y * z * s.fields;
    nnz  = (7. * x * y * z - 2. * (x * y + y * z + x * z)) * s.fields * s.fields;
  } else if (s.kind == "block2d7" || s.kind == "euler2d" || s.kind == "shell2d") {
    rows = x * y * s.fields;
    nnz  = (x * y + 2. * ((x - 1.) * y + x * (y - 1.) + (x - 1.) * (y - 1.))) * s.fields * s.fields;
  }
  *ok = (PetscBool)(s.rows == rows && s.nnz == nnz);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ||A u - lambda u||_inf over the rows chosen by keep, against ||A||_inf ||u||_inf */
static PetscErrorCode CheckImage(Mat A, PetscReal lambda, const std::function<PetscScalar(PetscInt)> &u,
                                 const std::function<bool(PetscInt)> &keep, PetscBool *ok)
{
  Vec       x, y, mask;
  PetscReal unorm, anorm, error;

  PetscFunctionBeginUser;
  PetscCall(MatCreateVecs(A, &x, &y));
  PetscCall(VecDuplicate(y, &mask));
  PetscCall(VecFill(x, u));
  PetscCall(VecFill(mask, [&](PetscInt row) { return keep(row) ? 1. : 0.; }));
  PetscCall(MatMult(A, x, y));
  PetscCall(VecAXPY(y, -lambda, x));
  PetscCall(VecPointwiseMult(y, y, mask));
  PetscCall(VecNorm(y, NORM_INFINITY, &error));
  PetscCall(VecNorm(x, NORM_INFINITY, &unorm));
  PetscCall(MatNorm(A, NORM_INFINITY, &anorm));
  PetscCall(VecDestroy(&mask));
  PetscCall(VecDestroy(&y));
  PetscCall(VecDestroy(&x));
  *ok = (PetscBool)(error <= 1e-13 * anorm * unorm);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Products of sines are eigenvectors of the Poisson matrices, with known eigenvalues */
static PetscErrorCode CheckSines(const System &s, PetscBool *ok)
{
  const PetscInt nx = s.grid[0], ny = s.grid[1], nz = s.grid[2];
  const bool     flat = s.kind == "poisson2d5" || s.kind == "poisson2d9", star = s.kind == "poisson2d5" || s.kind == "poisson3d7";
  /* modes 1, 2, 3 */
  const PetscReal theta[3] = {PETSC_PI / (nx + 1), PetscMin(2, ny) * PETSC_PI / (ny + 1),
                              flat ? 0. : PetscMin(3, nz) * PETSC_PI / (nz + 1)};
  PetscReal       lambda   = 0.;

  PetscFunctionBeginUser;
  if (star) {
    for (int d = 0; d < (flat ? 2 : 3); d++) lambda += 2. - 2. * PetscCosReal(theta[d]);
  } else {
    PetscReal product = 1.;

    for (int d = 0; d < (flat ? 2 : 3); d++) product *= 1. + 2. * PetscCosReal(theta[d]);
    lambda = (flat ? 9. : 27.) - product;
  }
  PetscCall(CheckImage(
    s.A, lambda,
    [&](PetscInt row) {
      const PetscInt point = SystemPoint(s, row), x = point % nx, y = point / nx % ny, z = point / (nx * ny);

      return PetscSinReal((x + 1) * theta[0]) * PetscSinReal((y + 1) * theta[1]) * (flat ? 1. : PetscSinReal((z + 1) * theta[2]));
    },
    [](PetscInt) { return true; }, ok));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether all neighbours of a point are in the grid */
static bool IsInside(const System &s, PetscInt point)
{
  const PetscInt nx = s.grid[0], ny = s.grid[1], nz = s.grid[2];
  const PetscInt x = point % nx, y = point / nx % ny, z = point / (nx * ny);
  const bool     periodic = s.kind == "fingers2d", flat = s.kind.find("2d") != std::string::npos;

  return x > 0 && x < nx - 1 && (periodic || (y > 0 && y < ny - 1)) && (flat || (z > 0 && z < nz - 1));
}

/* Fields that are all 1 only decay, away from the boundary, whatever they turn into */
static PetscErrorCode CheckDecay(const System &s, PetscBool *ok)
{
  PetscFunctionBeginUser;
  PetscCall(CheckImage(s.A, kDecay, [](PetscInt) { return 1.; }, [&](PetscInt row) { return IsInside(s, row / s.fields); }, ok));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Constants are in the kernel of the operator away from the boundary */
static PetscErrorCode CheckConstants(const System &s, PetscBool *ok)
{
  PetscFunctionBeginUser;
  PetscCall(CheckImage(s.A, 0., [](PetscInt) { return 1.; }, [&](PetscInt row) { return IsInside(s, SystemPoint(s, row)); }, ok));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Off-diagonal entries of the jumps are the three possible harmonic means; with enough cubes all three occur */
static PetscErrorCode CheckHarmonicMeans(const System &s, PetscBool *ok)
{
  const PetscReal means[3] = {-1., -s.contrast, -2. * s.contrast / (1. + s.contrast)};
  PetscInt        start, end;
  PetscMPIInt     known_all = 1;

  PetscFunctionBeginUser;
  PetscCall(MatGetOwnershipRange(s.A, &start, &end));
  for (PetscInt row = start; row < end; row++) {
    const PetscInt    *cols;
    const PetscScalar *vals;
    PetscInt           n;

    PetscCall(MatGetRow(s.A, row, &n, &cols, &vals));
    for (PetscInt k = 0; k < n; k++) {
      bool known = cols[k] == row;

      for (const PetscReal mean : means) known = known || PetscAbsScalar(vals[k] - mean) <= 1e-14 * PetscAbsReal(mean);
      if (!known) known_all = 0;
    }
    PetscCall(MatRestoreRow(s.A, row, &n, &cols, &vals));
  }
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &known_all, 1, MPI_INT, MPI_MIN, PetscObjectComm((PetscObject)s.A)));
  *ok = (PetscBool)(known_all != 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Translations and rotations cause no force on nodes that touch no clamped node */
static PetscErrorCode CheckRigidMotions(const System &s, PetscBool *ok)
{
  const PetscInt nx = s.grid[0], ny = s.grid[1] + 1;

  PetscFunctionBeginUser;
  *ok = PETSC_TRUE;
  for (int mode = 0; mode < 6 && *ok; mode++) {
    PetscCall(CheckImage(
      s.A, 0.,
      [&](PetscInt row) {
        const PetscInt  node = row / 3, component = row % 3;
        const PetscReal p[3] = {s.flat * (node % nx + 1), s.flat * (node / nx % ny), (PetscReal)(node / (nx * ny))};

        if (mode < 3) return component == mode ? 1. : 0.;
        const int axis = mode - 3; /* rotation: u = e_axis x p */
        if (component == (axis + 1) % 3) return -p[(axis + 2) % 3];
        if (component == (axis + 2) % 3) return p[(axis + 1) % 3];
        return 0.;
      },
      [&](PetscInt row) { return row / 3 % nx > 0; }, ok));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  What leaves a cell enters its neighbours: away from the boundary the blocks of a column add up to the unit matrix times volume /
  time step, and so do those of a row in their first equation, which is linear, since normals of a closed cell add up to 0.
*/
static PetscErrorCode CheckConservation(const System &s, PetscBool *ok)
{
  constexpr int          equations = 4;
  std::vector<PetscReal> step; /* volume / time step of each point */
  PetscReal              anorm;
  PetscMPIInt            holds = 1;
  PetscInt               start, end;
  Vec                    x, rows, columns;

  PetscFunctionBeginUser;
  PetscCall(MatCreateVecs(s.A, &x, &rows));
  PetscCall(VecDuplicate(x, &columns));
  PetscCall(MatNorm(s.A, NORM_INFINITY, &anorm));
  PetscCall(MatGetOwnershipRange(s.A, &start, &end));
  for (int unknown = 0; unknown < equations; unknown++) {
    const PetscScalar *row, *column;

    PetscCall(VecFill(x, [=](PetscInt k) { return k % equations == unknown ? 1. : 0.; }));
    PetscCall(MatMult(s.A, x, rows));
    PetscCall(MatMultTranspose(s.A, x, columns));
    PetscCall(VecGetArrayRead(rows, &row));
    PetscCall(VecGetArrayRead(columns, &column));
    for (PetscInt k = 0; k < end - start; k++) {
      const PetscInt equation = k % equations;

      if (unknown == 0 && equation == 0) step.push_back(PetscRealPart(column[k]));
      const PetscReal known = equation == unknown ? step[k / equations] : 0.;

      if (!IsInside(s, (start + k) / equations)) continue;
      if (PetscAbsScalar(column[k] - known) > 1e-13 * anorm || step[k / equations] <= 0.) holds = 0;
      if (equation == 0 && PetscAbsScalar(row[k] - known) > 1e-13 * anorm) holds = 0;
    }
    PetscCall(VecRestoreArrayRead(columns, &column));
    PetscCall(VecRestoreArrayRead(rows, &row));
  }
  PetscCall(VecDestroy(&columns));
  PetscCall(VecDestroy(&rows));
  PetscCall(VecDestroy(&x));
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &holds, 1, MPI_INT, MPI_MIN, PetscObjectComm((PetscObject)s.A)));
  *ok = (PetscBool)(holds != 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  A shell that moves in its plane is held by the bed alone, one that moves up also by the strain w / radius around the curvature,
  and rotations without bending by the shear. Lengths are in elements.
*/
static PetscErrorCode CheckShellMotions(const System &s, PetscBool *ok)
{
  const PetscReal radius = s.grid[0], thickness = s.shell[0] * radius, bed = s.shell[1], nu = 0.3;
  const PetscReal around = 1. / ((1. - nu * nu) * radius * radius), locking = 1. + 0.2 / (thickness * thickness);
  const PetscReal shear     = 5. / 12. / ((1. + nu) * locking);
  const PetscReal lambda[6] = {bed, bed, bed + around, shear, shear, bed}; /* the last mode is a rotation in the plane */

  PetscFunctionBeginUser;
  *ok = PETSC_TRUE;
  for (int mode = 0; mode < 6 && *ok; mode++) {
    PetscCall(CheckImage(
      s.A, lambda[mode],
      [&](PetscInt row) {
        const PetscInt point = row / 5, component = row % 5, x = point % s.grid[0], y = point / s.grid[0];

        if (mode < 5) return component == mode ? 1. : 0.;
        return component == 0 ? -(PetscReal)y : component == 1 ? (PetscReal)x : 0.;
      },
      [&](PetscInt row) { return IsInside(s, row / 5); }, ok));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SystemCheck(const System &system, PetscReal true_rtol, PetscBool *passed)
{
  const bool poisson = system.kind.rfind("poisson", 0) == 0, jumps = system.kind.rfind("jumps", 0) == 0;
  const bool elasticity = system.kind.rfind("elasticity3d", 0) == 0,
             coupled = system.kind == "block3d7" || system.kind == "block2d7", euler = system.kind == "euler2d",
             shell = system.kind == "shell2d", symmetric = !coupled && !euler,
             loaded = system.kind == "file" || system.kind == "mtx";

  PetscFunctionBeginUser;
  const auto run = [&](bool wanted, const char *text, const std::function<PetscErrorCode(PetscBool *)> &check) {
    PetscBool ok = PETSC_FALSE;

    PetscFunctionBeginUser;
    if (!wanted) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(check(&ok));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "check %s: %s: %s\n", system.name.c_str(), text, ok ? "passed" : "FAILED"));
    if (!ok) *passed = PETSC_FALSE;
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscCall(run(symmetric, "symmetric", [&](PetscBool *ok) { return CheckSymmetry(system.A, true, ok); }));
  PetscCall(run(!symmetric, "not symmetric", [&](PetscBool *ok) { return CheckSymmetry(system.A, false, ok); }));
  PetscCall(run(!euler, "positive diagonal", [&](PetscBool *ok) { return CheckDiagonal(system.A, ok); }));
  PetscCall(run(!loaded, "rows and nonzeros", [&](PetscBool *ok) { return CheckCounts(system, ok); }));
  PetscCall(run(!loaded && !elasticity && !shell && symmetric, "constants in the interior",
                [&](PetscBool *ok) { return CheckConstants(system, ok); }));
  PetscCall(run(poisson, "sines are eigenvectors", [&](PetscBool *ok) { return CheckSines(system, ok); }));
  PetscCall(run(jumps, "harmonic means", [&](PetscBool *ok) { return CheckHarmonicMeans(system, ok); }));
  PetscCall(run(elasticity, "rigid motions", [&](PetscBool *ok) { return CheckRigidMotions(system, ok); }));
  PetscCall(run(coupled, "constants decay", [&](PetscBool *ok) { return CheckDecay(system, ok); }));
  PetscCall(run(euler, "conservation", [&](PetscBool *ok) { return CheckConservation(system, ok); }));
  PetscCall(run(shell, "motions of the shell", [&](PetscBool *ok) { return CheckShellMotions(system, ok); }));
  PetscCall(run(symmetric, "cg + jacobi converges",
                [&](PetscBool *ok) { return CheckConverges(system.A, KSPCG, PCJACOBI, true_rtol, ok); }));
  PetscCall(run(euler, "gmres + pbjacobi converges",
                [&](PetscBool *ok) { return CheckConverges(system.A, KSPGMRES, PCPBJACOBI, true_rtol, ok); }));
  PetscCall(run(coupled, "cg + jacobi converges on the symmetric part",
                [&](PetscBool *ok) { return CheckSymmetricPartConverges(system.A, true_rtol, ok); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PackagesPrint(const Backend &backend)
{
  Mat         A;
  std::string found;

  PetscFunctionBeginUser;
  PetscCall(PCInitializePackage());
  for (const char *type : {"hypre", "air", "amgx"}) {
    PetscErrorCode (*create)(PC) = nullptr;
    PetscCall(PetscFunctionListFind(PCList, type, &create));
    if (create) found += std::string(" ") + type;
  }
  PetscCall(MatCreate(PETSC_COMM_WORLD, &A));
  PetscCall(MatSetSizes(A, 1, 1, PETSC_DETERMINE, PETSC_DETERMINE));
  PetscCall(MatSetType(A, backend.mat_type));
  PetscCall(MatSetUp(A));
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  for (const char *type : {MATSOLVERMUMPS, MATSOLVERSUPERLU_DIST, MATSOLVERCUDSS}) {
    Mat       F = nullptr;
    PetscBool there;

    PetscCall(MatGetFactorAvailable(A, type, MAT_FACTOR_LU, &there));
    if (!there) continue;
    PetscCall(PetscPushErrorHandler(PetscReturnErrorHandler, nullptr)); /* cuDSS may be missing */
    const PetscErrorCode code = MatGetFactor(A, type, MAT_FACTOR_LU, &F);
    if (!code) found += std::string(" ") + type;
    (void)MatDestroy(&F); /* SuperLU_DIST of Debian's PETSc 3.18 loses its communicator */
    PetscCall(PetscPopErrorHandler());
  }
  PetscCall(MatDestroy(&A));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "packages:%s\n", found.c_str()));
  if (backend.cuda) PetscCall(PetscPrintf(PETSC_COMM_WORLD, "matrices: %s\n", backend.petsc ? "on the GPU" : "sent to the GPU"));
  PetscFunctionReturn(PETSC_SUCCESS);
}
