/*
  Linear systems: generated ones, PETSc binary files, Matrix Market files.

  Every generator numbers the unknowns naturally (x fastest, then y, then z) and fills the rows of its own rank, so that several
  ranks build one matrix without communication. The columns of a row come out sorted. Boxes are made of such a matrix.
*/
#include "bench.h"
#include "stencil.h"
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <unistd.h>

const char kSystemKinds[] =
  "poisson2d5:N, poisson2d9:N, poisson3d7:N, poisson3d27:N, jumps2d:N:contrast:cube, jumps:N:contrast:cube, fingers2d:N:contrast, "
  "aniso2d:N:eps:degrees, aniso3d:N:eps_y:eps_z, elasticity3d:N:contrast:cube:flat, elasticity3d_tets:N:contrast:cube:flat, "
  "block3d7:N:fields:peclet, block2d7:N:fields:peclet, euler2d:N:CFL, shell2d:N:thickness:bed (N may be NXxNYxNZ), "
  "file:A.petsc[.gz|.xz], mtx:A.mtx[.gz|.xz], "
  "boxes:BXxBYxBZ:SYSTEM, boxes:BXxBYxBZ:NXxNYxNZ:file:A.petsc";

/* Makes a parallel AIJ matrix. */
static PetscErrorCode MatCreateByRows(MPI_Comm comm, const Backend &backend, const Rows &made, Mat *A)
{
  PetscInt     N, n = PETSC_DECIDE, rstart, nz_int, *i, *j;
  PetscCount   nz = 0;
  PetscScalar *a;
  PetscLayout  rows, cols;
  PetscMPIInt  size;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  const PetscReal entries = std::ceil(made.unknowns / made.bs / size) * made.bs * made.max_per_row;
  PetscCheck(made.unknowns <= (PetscReal)PETSC_INT_MAX, comm, PETSC_ERR_USER_INPUT,
             "It would have %.0f unknowns, but PETSc's indices end at %" PetscInt_FMT, (double)made.unknowns, PETSC_INT_MAX);
  PetscCheck(entries <= (PetscReal)PETSC_INT_MAX, comm, PETSC_ERR_USER_INPUT,
             "A rank would have up to %.0f entries, but PETSc's indices end at %" PetscInt_FMT ": take more ranks", (double)entries,
             PETSC_INT_MAX);
  N = (PetscInt)made.unknowns;
  PetscCall(PetscSplitOwnershipBlock(comm, made.bs, &n, &N));
  PetscCall(MatCreate(comm, A));
  PetscCall(MatSetSizes(*A, n, n, N, N));
  PetscCall(MatSetBlockSize(*A, made.bs));
  PetscCall(MatSetType(*A, backend.mat_type));
  PetscCall(MatGetLayouts(*A, &rows, &cols));
  PetscCall(PetscLayoutSetUp(rows));
  PetscCall(PetscLayoutSetUp(cols));
  PetscCall(PetscLayoutGetRange(rows, &rstart, nullptr));

  PetscCall(PetscMalloc3(n + 1, &i, (size_t)n * made.max_per_row, &j, (size_t)n * made.max_per_row, &a));
  i[0] = 0;
  for (PetscInt row = 0; row < n; row++) {
    nz += made.fill(rstart + row, j + nz, a + nz);
    PetscCall(PetscIntCast(nz, &nz_int));
    i[row + 1] = nz_int;
  }
  PetscCall(MatSeqAIJSetPreallocationCSR(*A, i, j, a));
  PetscCall(MatMPIAIJSetPreallocationCSR(*A, i, j, a));
  PetscCall(PetscFree3(i, j, a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode VecFill(Vec v, const std::function<PetscScalar(PetscInt)> &value)
{
  PetscScalar *a;
  PetscInt     start, end;

  PetscFunctionBeginUser;
  PetscCall(VecGetOwnershipRange(v, &start, &end));
  PetscCall(VecGetArrayWrite(v, &a));
  for (PetscInt row = start; row < end; row++) a[row - start] = value(row);
  PetscCall(VecRestoreArrayWrite(v, &a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A number in [0, 1) for a cube of cells, the same on every machine: splitmix64 of its coordinates */
static PetscReal CubeRandom(PetscInt x, PetscInt y, PetscInt z)
{
  uint64_t h = (uint64_t)x + ((uint64_t)y << 21) + ((uint64_t)z << 42) + 0x9e3779b97f4a7c15u;

  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  h = h ^ (h >> 31);
  return (PetscReal)(h >> 11) / 9007199254740992.;
}

/* ----------------------------------- constant coefficients ------------------------------------ */

static Rows StencilRows(const PetscInt grid[3], const Stencil &stencil)
{
  return {(PetscReal)grid[0] * grid[1] * grid[2], 1, (PetscInt)stencil.entries.size(),
          [=](PetscInt row, PetscInt *cols, PetscScalar *vals) { return StencilRow(stencil, grid, row, cols, vals); }};
}

/* 9-point (2D) and 27-point (3D): every neighbour has the weight -1, the diagonal is their number */
static Stencil BoxStencil(PetscInt dim)
{
  Stencil        s;
  const PetscInt depth = dim == 3 ? 1 : 0;

  for (PetscInt dz = -depth; dz <= depth; dz++) {
    for (PetscInt dy = -1; dy <= 1; dy++) {
      for (PetscInt dx = -1; dx <= 1; dx++) s.entries.push_back({dx, dy, dz, dx || dy || dz ? -1. : (dim == 3 ? 26. : 8.)});
    }
  }
  return s;
}

/* 9-point stencil of bilinear finite elements for -div(K grad u), K = R(angle) diag(1, eps) R(angle)^T, on a square grid */
static Stencil RotatedStencil(PetscReal eps, PetscReal degrees)
{
  const PetscReal c = PetscCosReal(degrees * PETSC_PI / 180.), s = PetscSinReal(degrees * PETSC_PI / 180.);
  const PetscReal kxx = c * c + eps * s * s, kyy = s * s + eps * c * c, kxy = (1. - eps) * c * s;
  /* the matrices of linear elements in one dimension */
  const PetscReal mass[3] = {1. / 6., 4. / 6., 1. / 6.}, stiff[3] = {-1., 2., -1.}, slope[3] = {-0.5, 0., 0.5};
  Stencil         stencil;

  for (PetscInt dy = -1; dy <= 1; dy++) {
    for (PetscInt dx = -1; dx <= 1; dx++) {
      /* the integral of phi_x psi_y in tensor form is minus the product of the slopes, and occurs twice */
      const PetscReal weight =
        kxx * stiff[dx + 1] * mass[dy + 1] + kyy * mass[dx + 1] * stiff[dy + 1] - 2. * kxy * slope[dx + 1] * slope[dy + 1];

      stencil.entries.push_back({dx, dy, 0, weight});
    }
  }
  return stencil;
}

/* ------------------------------------ jumping coefficients ------------------------------------ */

/*
  -div(k grad u) by finite volumes with two-point fluxes: a face carries the harmonic mean of k of its two cells, a face on the
  boundary (Dirichlet) its cell's own k. A periodic plane has none of these in y. k = 1 is the 5- or 7-point Poisson matrix.
*/
template <typename Coefficient>
static Rows FluxRows(const PetscInt grid[3], PetscInt dim, bool periodic, Coefficient coefficient)
{
  const PetscInt nx = grid[0], ny = grid[1], nz = grid[2], around = (ny - 1) * nx;

  const auto fill = [=](PetscInt row, PetscInt *cols, PetscScalar *vals) {
    const PetscInt  x = row % nx, y = row / nx % ny, z = row / (nx * ny);
    const PetscReal here  = coefficient(x, y, z);
    PetscReal       total = 0.;
    PetscInt        k = 0, diagonal = 0;

    const auto face = [&](bool inside, PetscInt col, PetscInt x2, PetscInt y2, PetscInt z2) {
      const PetscReal there = inside ? coefficient(x2, y2, z2) : here;
      const PetscReal flux  = 2. * here * there / (here + there);

      total += flux;
      if (inside) {
        cols[k]   = col;
        vals[k++] = -flux;
      }
    };

    if (dim == 3) face(z > 0, row - nx * ny, x, y, z - 1);
    if (periodic && y == ny - 1) face(true, row - around, x, 0, z);
    if (!periodic || y > 0) face(y > 0, row - nx, x, y - 1, z);
    face(x > 0, row - 1, x - 1, y, z);
    diagonal  = k;
    cols[k++] = row;
    face(x < nx - 1, row + 1, x + 1, y, z);
    if (!periodic || y < ny - 1) face(y < ny - 1, row + nx, x, y + 1, z);
    if (periodic && y == 0) face(true, row + around, x, ny - 1, z);
    if (dim == 3) face(z < nz - 1, row + nx * ny, x, y, z + 1);
    vals[diagonal] = total;
    return k;
  };

  return {(PetscReal)nx * ny * nz, 1, dim == 3 ? 7 : 5, fill};
}

/* k is 1 and contrast in turns, in cubes of `cube` cells a side */
static Rows JumpRows(const PetscInt grid[3], PetscInt dim, PetscReal contrast, PetscInt cube)
{
  return FluxRows(grid, dim, false,
                  [=](PetscInt x, PetscInt y, PetscInt z) { return (x / cube + y / cube + z / cube) % 2 ? contrast : 1.; });
}

/*
  Viscous fingers, periodic in y: a thin fluid, which is contrast times as mobile, enters along x. Its front is that of three waves,
  and k = contrast^c, where the share c of the thin fluid falls from 1 to 0 across the front, within 1/64 of the length.
*/
static Rows FingerRows(const PetscInt grid[3], PetscReal contrast)
{
  std::vector<PetscReal> front(grid[1]);

  for (PetscInt y = 0; y < grid[1]; y++) {
    const PetscReal angle = 2. * PETSC_PI * (PetscReal)y / (PetscReal)grid[1];

    front[y] = 0.5 + 0.2 * PetscSinReal(3. * angle) + 0.1 * PetscSinReal(7. * angle + 1.) + 0.05 * PetscSinReal(17. * angle + 2.);
  }
  return FluxRows(grid, 2, true, [=](PetscInt x, PetscInt y, PetscInt) {
    const PetscReal ahead = 64. * (((PetscReal)x + 0.5) / (PetscReal)grid[0] - front[y]);

    return PetscPowReal(contrast, 0.5 - 0.5 * PetscTanhReal(ahead));
  });
}

/* ------------------------------------- linear elasticity -------------------------------------- */

static constexpr PetscInt kCorners = 8, kDim = 3;

using ElementMatrix = std::array<std::array<PetscReal, kCorners * kDim>, kCorners * kDim>; /* row = corner * 3 + component */

/*
  Adds the integral over `volume` where the shape functions of the corners have these gradients in a unit cube, of which x and y
  are stretched by `flat`.
*/
static void AddElasticity(PetscReal grad[kCorners][kDim], PetscReal volume, PetscReal flat, ElementMatrix *K)
{
  const PetscReal nu = 0.3, lambda = nu / ((1. + nu) * (1. - 2. * nu)), mu = 1. / (2. * (1. + nu));

  volume *= flat * flat;
  for (int c = 0; c < kCorners; c++)
    for (int r = 0; r < 2; r++) grad[c][r] /= flat;
  for (int c = 0; c < kCorners; c++) {
    for (int d = 0; d < kCorners; d++) {
      const PetscReal dot = grad[c][0] * grad[d][0] + grad[c][1] * grad[d][1] + grad[c][2] * grad[d][2];

      for (int r = 0; r < kDim; r++) {
        for (int s = 0; s < kDim; s++)
          (*K)[c * kDim + r][d * kDim + s] +=
            volume * (lambda * grad[c][r] * grad[d][s] + mu * grad[c][s] * grad[d][r] + (r == s ? mu * dot : 0.));
      }
    }
  }
}

/*
  Trilinear hexahedron of height 1, Young's modulus 1, Poisson's ratio 0.3, by 2 x 2 x 2 Gauss points; corner = x + 2 y + 4 z
*/
static ElementMatrix ElasticityElement(PetscReal flat)
{
  const PetscReal gauss[2] = {0.5 - 0.5 / PetscSqrtReal(3.), 0.5 + 0.5 / PetscSqrtReal(3.)};
  ElementMatrix   K{};

  for (int point = 0; point < 8; point++) {
    const PetscReal p[3] = {gauss[point & 1], gauss[point >> 1 & 1], gauss[point >> 2 & 1]};
    PetscReal       grad[kCorners][kDim];

    for (int c = 0; c < kCorners; c++) {
      PetscReal value[3], slope[3];

      for (int d = 0; d < kDim; d++) {
        const bool far = c >> d & 1;

        value[d] = far ? p[d] : 1. - p[d];
        slope[d] = far ? 1. : -1.;
      }
      grad[c][0] = slope[0] * value[1] * value[2];
      grad[c][1] = value[0] * slope[1] * value[2];
      grad[c][2] = value[0] * value[1] * slope[2];
    }
    AddElasticity(grad, 0.125, flat, &K);
  }
  return K;
}

/*
  The same element made of Kuhn's six tetrahedra with linear functions: each goes from corner 0 to corner 7 along the three axes, in
  one of their six orders. In the k-th direction that it takes, the function of the corner before falls and that of the corner after
  rises.
*/
static ElementMatrix TetrahedraElement(PetscReal flat)
{
  int           order[3] = {0, 1, 2};
  ElementMatrix K{};

  do {
    PetscReal grad[kCorners][kDim] = {};
    int       corner               = 0;

    for (const int axis : order) {
      grad[corner][axis] -= 1.;
      corner |= 1 << axis;
      grad[corner][axis] += 1.;
    }
    AddElasticity(grad, 1. / 6., flat, &K);
  } while (std::next_permutation(order, order + 3));
  return K;
}

/* Rigid body motions from the coordinates of the nodes: what GAMG needs for elasticity */
static PetscErrorCode MatAttachRigidBodyModes(Mat A, PetscInt nx, PetscInt ny, PetscReal flat)
{
  Vec          coordinates;
  MatNullSpace modes;

  PetscFunctionBeginUser;
  PetscCall(MatCreateVecs(A, &coordinates, nullptr));
  PetscCall(VecFill(coordinates, [=](PetscInt row) {
    const PetscInt  node     = row / kDim; /* the clamped nodes, x = 0, are no unknowns */
    const PetscReal at[kDim] = {flat * (node % nx + 1), flat * (node / nx % ny), (PetscReal)(node / (nx * ny))};

    return at[row % kDim];
  }));
  PetscCall(MatNullSpaceCreateRigidBody(coordinates, &modes));
  PetscCall(MatSetNearNullSpace(A, modes));
  PetscCall(MatNullSpaceDestroy(&modes));
  PetscCall(VecDestroy(&coordinates));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  A block of grid[0] x grid[1] x grid[2] elements, clamped on the face x = 0 (those nodes are eliminated), free elsewhere, soft
  (modulus 1) with stiff cubes (modulus contrast, a quarter of the volume). Elements are `flat` times as long as high. Three
  unknowns per node. An element is a hexahedron or six tetrahedra, along whose edges a node has no neighbour that lies ahead in one
  direction and behind in another.
*/
static Rows ElasticityRows(const PetscInt grid[3], PetscReal contrast, PetscInt cube, PetscReal flat, bool tets)
{
  const PetscInt      ex = grid[0], ey = grid[1], ez = grid[2]; /* elements */
  const PetscInt      nx = ex, ny = ey + 1, nz = ez + 1;        /* nodes that are unknowns */
  const ElementMatrix K = tets ? TetrahedraElement(flat) : ElasticityElement(flat);

  const auto fill = [=](PetscInt row, PetscInt *cols, PetscScalar *vals) {
    const PetscInt node = row / kDim, component = row % kDim;
    const PetscInt x = node % nx + 1, y = node / nx % ny, z = node / (nx * ny); /* x counts from the clamped face */
    /* numbered by neighbour, (dx + 1) + 3 (dy + 1) + 9 (dz + 1) */
    PetscReal sum[27][kDim] = {};
    PetscInt  k             = 0;

    /* the elements around the node, in ascending order: the matrix is symmetric to the last bit */
    for (PetscInt e = 0; e < 8; e++) {
      const PetscInt X = x - 1 + (e & 1), Y = y - 1 + (e >> 1 & 1), Z = z - 1 + (e >> 2 & 1);

      if (X < 0 || X >= ex || Y < 0 || Y >= ey || Z < 0 || Z >= ez) continue;
      const PetscReal modulus = CubeRandom(X / cube, Y / cube, Z / cube) < 0.25 ? contrast : 1.;
      const PetscInt  corner  = (x - X) + 2 * (y - Y) + 4 * (z - Z);

      for (PetscInt c = 0; c < kCorners; c++) {
        const PetscInt neighbour = (X + (c & 1) - x + 1) + 3 * (Y + (c >> 1 & 1) - y + 1) + 9 * (Z + (c >> 2 & 1) - z + 1);

        for (PetscInt s = 0; s < kDim; s++) sum[neighbour][s] += modulus * K[corner * kDim + component][c * kDim + s];
      }
    }
    for (PetscInt neighbour = 0; neighbour < 27; neighbour++) {
      const PetscInt dx = neighbour % 3 - 1, dy = neighbour / 3 % 3 - 1, dz = neighbour / 9 - 1;
      const PetscInt X = x + dx, Y = y + dy, Z = z + dz;

      if (tets && PetscMin(dx, PetscMin(dy, dz)) < 0 && PetscMax(dx, PetscMax(dy, dz)) > 0) continue;
      if (X < 1 || X > ex || Y < 0 || Y > ey || Z < 0 || Z > ez) continue;
      for (PetscInt s = 0; s < kDim; s++) {
        cols[k]   = ((X - 1) + nx * (Y + ny * Z)) * kDim + s;
        vals[k++] = sum[neighbour][s];
      }
    }
    return k;
  };

  return {(PetscReal)nx * ny * nz * kDim, kDim, (tets ? 15 : 27) * kDim, fill};
}

/* --------------------------------------- coupled fields --------------------------------------- */

static constexpr PetscInt kMaxFields = 8;

/* The constant coefficients of  -div(K grad u) + sum_d B_d u_d + C u  for some fields u on a grid of spacing 1 */
struct Coupling {
  PetscReal K[kMaxFields][kMaxFields];    /* symmetric, diagonally dominant: the fields diffuse into each other */
  PetscReal B[3][kMaxFields][kMaxFields]; /* symmetric: the fields are carried along as in a symmetric hyperbolic system */
  PetscReal C[kMaxFields][kMaxFields];    /* every field decays and turns into the others; not symmetric, rows sum to kDecay */
};

static Coupling MakeCoupling(PetscInt fields, PetscReal peclet)
{
  Coupling        c{};
  const PetscReal share = 1. / (PetscReal)fields;

  for (PetscInt f = 0; f < fields; f++) {
    c.K[f][f] = 1.;
    c.C[f][f] = kDecay;
    for (PetscInt g = 0; g < fields; g++) {
      const PetscInt low = PetscMin(f, g), high = PetscMax(f, g);

      for (PetscInt d = 0; d < 3; d++) c.B[d][f][g] = peclet * (f == g ? 1. : share) * (2. * CubeRandom(low, high, d) - 1.);
      if (f == g) continue;
      const PetscReal exchange = kDecay * share * CubeRandom(f, g, 4);

      c.K[f][g] = 0.5 * share * (2. * CubeRandom(low, high, 3) - 1.);
      c.C[f][g] = -exchange;
      c.C[f][f] += exchange;
    }
  }
  return c;
}

/*
  Central differences, 7 points, Dirichlet conditions: the neighbour in direction +-d has the block -K +- B_d / 2, the diagonal
  block is 6 K + C. B_d and the central difference are symmetric and skew, so convection is skew, and the symmetric part of A is
  positive definite. In a plane the points are those of a mesh of equilateral triangles, whose third direction is (1, 1).
*/
static Rows CoupledRows(const PetscInt grid[3], PetscInt dim, PetscInt fields, PetscReal peclet)
{
  const Coupling c = MakeCoupling(fields, peclet);
  const Stencil  stencil =
    dim == 3
       ? StarStencil(1., 1., 1.)
       : Stencil{
           {{-1, -1, 0, -1.}, {0, -1, 0, -1.}, {-1, 0, 0, -1.}, {0, 0, 0, 6.}, {1, 0, 0, -1.}, {0, 1, 0, -1.}, {1, 1, 0, -1.}}};

  const auto fill = [=](PetscInt row, PetscInt *cols, PetscScalar *vals) {
    const PetscInt point = row / fields, f = row % fields;
    PetscInt       k = 0;

    ForStencil(stencil, grid, point, [&](const Stencil::Entry &e, PetscInt neighbour) {
      for (PetscInt g = 0; g < fields; g++) {
        const PetscReal carried = 0.5 * (e.dx * c.B[0][f][g] + e.dy * c.B[1][f][g] + e.dz * c.B[2][f][g]);
        const bool      centre  = !e.dx && !e.dy && !e.dz;

        cols[k]   = neighbour * fields + g;
        vals[k++] = e.weight * c.K[f][g] + carried + (centre ? c.C[f][g] : 0.);
      }
    });
    return k;
  };

  return {(PetscReal)grid[0] * grid[1] * grid[2] * fields, fields, 7 * fields, fill};
}

/* ------------------------------------------- files -------------------------------------------- */

/* Rank 0 alone reads files. Its error is one of all ranks, which otherwise would wait for what it reads. */
static PetscErrorCode AgreeWithRankZero(MPI_Comm comm, PetscErrorCode mine)
{
  PetscMPIInt rank, code = (PetscMPIInt)mine;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Bcast(&code, 1, MPI_INT, 0, comm));
  if (rank == 0) PetscCall(mine);
  PetscCheck(!code, PETSC_COMM_SELF, (PetscErrorCode)code, "Rank 0 could not read the file");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Runs a command with its output in a file of the temporary folder that has lost its name already, so that nothing is left there
  however this process ends. What the command writes to its standard error is the reason where it fails.
*/
static PetscErrorCode RunIntoFile(const std::string &path, const char folder[], const std::string &command, int *file)
{
  char        text[PETSC_MAX_PATH_LEN];
  std::string said;

  PetscFunctionBeginUser;
  PetscCall(PetscSNPrintf(text, sizeof(text), "%s/finepc_bench_XXXXXX", folder));
  *file = mkstemp(text);
  PetscCheck(*file >= 0, PETSC_COMM_SELF, PETSC_ERR_FILE_OPEN, "Cannot make a temporary file in %s", folder);
  (void)unlink(text);
  FILE *const pipe = popen(("{ " + command + "\n} 2>&1 >/dev/fd/" + std::to_string(*file)).c_str(), "re");
  PetscCheck(pipe, PETSC_COMM_SELF, PETSC_ERR_SYS, "Cannot start a shell");
  while (std::fgets(text, sizeof(text), pipe)) said += text;
  const int status = pclose(pipe);
  std::replace(said.begin(), said.end(), '\n', ' ');
  said.erase(0, said.find_first_not_of(' '));
  said.erase(said.find_last_not_of(' ') + 1);
  if (status) close(*file);
  PetscCheck(!status, PETSC_COMM_SELF, PETSC_ERR_FILE_READ, "Cannot read \"%s\": %s", path.c_str(), said.c_str());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A text as one word of the shell */
static std::string Quoted(const std::string &text)
{
  return "'" + std::regex_replace(text, std::regex("'"), "'\\''") + "'";
}

/* Whether a name ends like that, after something else */
static bool EndsWith(const std::string &name, const std::string &ending)
{
  return name.size() > ending.size() && !name.compare(name.size() - ending.size(), ending.size(), ending);
}

/* Takes the first Python that has scipy for a script and its arguments. */
static const char kWithSciPy[] = R"sh(
for python in "$FINEPC_PYTHON" python3 /usr/bin/python3; do
  if "$python" -c "import numpy, scipy.io" 2>/dev/null; then exec "$python" "$@"; fi
done
echo "Matrix Market files are read by scipy, which no Python here has ($FINEPC_PYTHON python3 /usr/bin/python3)" >&2
exit 1
)sh";

/*
  A path that rank 0 can open as a binary file of PETSc's: that of the file itself, or that of what rank 0 has open as `file`, to be
  closed by the caller, with the matrix of a Matrix Market file or the unpacked file.
*/
static PetscErrorCode FileConvert(MPI_Comm comm, const std::string &kind, const std::string &path, std::string *readable, int *file)
{
  char        tmp[PETSC_MAX_PATH_LEN] = "";
  PetscMPIInt rank;
  std::string command;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  *readable = path;
  if (kind == "mtx") { /* the script lies beside this program, or beside its folder where an archive was unpacked */
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();

    command =
      "set -- " + Quoted(folder / "../benchmarks/read_mtx.py") + " " + Quoted(path) + " " + std::to_string(sizeof(PetscInt));
    command += kWithSciPy;
  } else if (EndsWith(path, ".gz")) command = "gzip -dc -- " + Quoted(path);
  else if (EndsWith(path, ".xz")) command = "xz -dc -- " + Quoted(path);
  else PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetTmp(comm, tmp, sizeof(tmp)));
  PetscCall(AgreeWithRankZero(comm, rank == 0 ? RunIntoFile(path, tmp, command, file) : PETSC_SUCCESS));
  if (rank == 0) *readable = "/dev/fd/" + std::to_string(*file);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Rank 0 looks through a file of PETSc's before all ranks load it together: a file that is not there or that ends too early, or a
  matrix that cannot be, would be an error of this rank alone then, and columns are not checked.
*/
static PetscErrorCode CheckPetscFile(const std::string &path, const std::string &readable)
{
  constexpr PetscInt    kChunk = 65536;
  PetscInt              header[4], length = 0;
  PetscInt64            rest, entries     = 0;
  std::vector<PetscInt> chunk(kChunk);
  int                   descriptor;

  const auto values_follow = [&](PetscInt64 count) {
    const off_t here = lseek(descriptor, 0, SEEK_CUR), end = lseek(descriptor, 0, SEEK_END);

    (void)lseek(descriptor, here + (off_t)(count * (PetscInt64)sizeof(PetscScalar)), SEEK_SET);
    return end - here >= (off_t)(count * (PetscInt64)sizeof(PetscScalar));
  };
  const auto check = [&]() {
    PetscFunctionBeginUser;
    PetscCall(PetscBinaryRead(descriptor, header, 4, nullptr, PETSC_INT));
    PetscCheck(header[0] == MAT_FILE_CLASSID, PETSC_COMM_SELF, PETSC_ERR_FILE_UNEXPECTED,
               "\"%s\" does not begin with a matrix of PETSc's", path.c_str());
    PetscCheck(header[1] >= 0 && header[2] >= 0 && header[3] >= 0, PETSC_COMM_SELF, PETSC_ERR_FILE_UNEXPECTED,
               "\"%s\" has a matrix of %" PetscInt_FMT " by %" PetscInt_FMT " with %" PetscInt_FMT " entries", path.c_str(),
               header[1], header[2], header[3]);
    for (rest = header[1]; rest > 0; rest -= kChunk) {
      const PetscInt count = (PetscInt)PetscMin(rest, kChunk);

      PetscCall(PetscBinaryRead(descriptor, chunk.data(), count, nullptr, PETSC_INT));
      for (PetscInt k = 0; k < count; k++) {
        PetscCheck(chunk[k] >= 0, PETSC_COMM_SELF, PETSC_ERR_FILE_UNEXPECTED, "\"%s\" has a row of %" PetscInt_FMT " entries",
                   path.c_str(), chunk[k]);
        entries += chunk[k];
      }
    }
    PetscCheck(entries == header[3], PETSC_COMM_SELF, PETSC_ERR_FILE_UNEXPECTED,
               "The rows of \"%s\" have %" PetscInt64_FMT " entries, but the matrix has %" PetscInt_FMT, path.c_str(), entries,
               header[3]);
    for (rest = header[3]; rest > 0; rest -= kChunk) {
      const PetscInt count = (PetscInt)PetscMin(rest, kChunk);

      PetscCall(PetscBinaryRead(descriptor, chunk.data(), count, nullptr, PETSC_INT));
      for (PetscInt k = 0; k < count; k++)
        PetscCheck(chunk[k] >= 0 && chunk[k] < header[2], PETSC_COMM_SELF, PETSC_ERR_FILE_UNEXPECTED,
                   "\"%s\" has an entry in column %" PetscInt_FMT " of %" PetscInt_FMT, path.c_str(), chunk[k], header[2]);
    }
    PetscCheck(values_follow(header[3]), PETSC_COMM_SELF, PETSC_ERR_FILE_UNEXPECTED,
               "\"%s\" ends before the last value of the matrix", path.c_str());
    PetscCall(PetscBinaryRead(descriptor, header, 2, &length, PETSC_INT));
    if (!length) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCheck(length == 2 && header[0] == VEC_FILE_CLASSID && header[1] >= 0 && values_follow(header[1]), PETSC_COMM_SELF,
               PETSC_ERR_FILE_UNEXPECTED, "What follows the matrix in \"%s\" is no right-hand side", path.c_str());
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscFunctionBeginUser;
  PetscCall(PetscBinaryOpen(readable.c_str(), FILE_MODE_READ, &descriptor));
  const PetscErrorCode code = check();
  PetscCall(PetscBinaryClose(descriptor));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The matrix, and the right-hand side when one follows it in the file (-ksp_view_mat binary:f -ksp_view_rhs binary:f::append) */
static PetscErrorCode SystemLoad(MPI_Comm comm, const Backend &backend, const std::string &path, const std::string &readable,
                                 System *system)
{
  PetscViewer viewer;
  PetscMPIInt rank, more = 0;
  int         descriptor;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(AgreeWithRankZero(comm, rank == 0 ? CheckPetscFile(path, readable) : PETSC_SUCCESS));
  PetscCall(PetscViewerBinaryOpen(comm, readable.c_str(), FILE_MODE_READ, &viewer));
  PetscCall(MatCreate(comm, &system->A));
  PetscCall(MatSetType(system->A, backend.mat_type));
  PetscCall(MatLoad(system->A, viewer));
  if (rank == 0) { /* this rank alone has the file open, and reads it without a buffer */
    PetscCall(PetscViewerBinaryGetDescriptor(viewer, &descriptor));
    const off_t here = lseek(descriptor, 0, SEEK_CUR);

    more = lseek(descriptor, 0, SEEK_END) > here;
    (void)lseek(descriptor, here, SEEK_SET);
  }
  PetscCallMPI(MPI_Bcast(&more, 1, MPI_INT, 0, comm));
  if (more) {
    PetscCall(MatCreateVecs(system->A, nullptr, &system->b));
    PetscCall(VecLoad(system->b, viewer));
  }
  PetscCall(PetscViewerDestroy(&viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ by name ------------------------------------------- */

static std::vector<std::string> Split(const std::string &text, char separator)
{
  std::vector<std::string> parts;
  std::istringstream       stream(text + separator);
  std::string              part;

  while (std::getline(stream, part, separator)) parts.push_back(part);
  return parts;
}

/* The arguments after the kind: fields[k], or the default when the specification is shorter */
static PetscErrorCode ArgumentReal(const std::vector<std::string> &fields, size_t k, PetscReal standard, PetscReal *value)
{
  char *end = nullptr;

  PetscFunctionBeginUser;
  *value = standard;
  if (k >= fields.size()) PetscFunctionReturn(PETSC_SUCCESS);
  *value = std::strtod(fields[k].c_str(), &end);
  PetscCheck(end != fields[k].c_str() && !*end && std::isfinite(*value), PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
             "\"%s\" is no number", fields[k].c_str());
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Positive(const std::string &text, PetscInt *value)
{
  char          *end   = nullptr;
  const PetscInt limit = PETSC_INT_MAX - 1; /* elements have one node more */

  PetscFunctionBeginUser;
  errno             = 0;
  const long long n = std::strtoll(text.c_str(), &end, 10);
  PetscCheck(!text.empty() && std::isdigit((unsigned char)text[0]) && !*end && !errno && n > 0 && n <= limit, PETSC_COMM_SELF,
             PETSC_ERR_USER_INPUT, "\"%s\" is no whole number from 1 to %" PetscInt_FMT, text.c_str(), limit);
  *value = (PetscInt)n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ArgumentInt(const std::vector<std::string> &fields, size_t k, PetscInt standard, PetscInt *value)
{
  PetscFunctionBeginUser;
  *value = standard;
  if (k < fields.size()) PetscCall(Positive(fields[k], value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* "121" or "60x220x85", the first of at most so many arguments */
static PetscErrorCode ArgumentGrid(const std::vector<std::string> &fields, size_t most, PetscInt dim, PetscInt grid[3])
{
  PetscFunctionBeginUser;
  PetscCheck(fields.size() > 1, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "%s needs a size, as in %s:40", fields[0].c_str(),
             fields[0].c_str());
  PetscCheck(fields.size() <= most + 1, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "There are %d arguments, but %s takes at most %d",
             (int)fields.size() - 1, fields[0].c_str(), (int)most);
  const std::vector<std::string> sizes = Split(fields[1], 'x');
  PetscCheck(sizes.size() == 1 || sizes.size() == (size_t)dim, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
             "\"%s\" is neither one size nor %" PetscInt_FMT " with x between them", fields[1].c_str(), dim);
  for (size_t d = 0; d < 3; d++) {
    grid[d] = 1;
    if (d < (size_t)dim) PetscCall(Positive(sizes[sizes.size() == 1 ? 0 : d], &grid[d]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The last part of a path without .petsc, .mtx, .gz and .xz: results carry no folder of the machine they were made on */
static std::string NameOfPath(const std::string &path)
{
  std::string name = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);

  for (const std::string ending : {".gz", ".xz", ".petsc", ".mtx"}) {
    if (EndsWith(name, ending)) name.resize(name.size() - ending.size());
  }
  return name;
}

static PetscErrorCode SystemGenerate(MPI_Comm comm, const std::vector<std::string> &fields, const Backend &backend, System *system)
{
  const std::string &kind = system->kind;
  const PetscInt     dim  = kind.find("2d") == std::string::npos ? 3 : 2;
  PetscInt          *grid = system->grid, cube;
  PetscReal          first, second;
  Rows               rows;

  PetscFunctionBeginUser;
  if (kind == "poisson2d5" || kind == "poisson2d9") {
    PetscCall(ArgumentGrid(fields, 1, 2, grid));
    rows = StencilRows(grid, kind == "poisson2d5" ? StarStencil(1., 1., 0.) : BoxStencil(2));
  } else if (kind == "poisson3d7" || kind == "poisson3d27") {
    PetscCall(ArgumentGrid(fields, 1, 3, grid));
    rows = StencilRows(grid, kind == "poisson3d7" ? StarStencil(1., 1., 1.) : BoxStencil(3));
  } else if (kind == "jumps" || kind == "jumps2d") {
    PetscCall(ArgumentGrid(fields, 3, dim, grid));
    PetscCall(ArgumentReal(fields, 2, 1e4, &system->contrast));
    PetscCall(ArgumentInt(fields, 3, 8, &cube));
    PetscCheck(system->contrast > 0., comm, PETSC_ERR_USER_INPUT, "The contrast must be positive");
    rows = JumpRows(grid, dim, system->contrast, cube);
  } else if (kind == "aniso2d") {
    PetscCall(ArgumentGrid(fields, 3, 2, grid));
    PetscCall(ArgumentReal(fields, 2, 1e-3, &first));
    PetscCall(ArgumentReal(fields, 3, 30., &second));
    PetscCheck(first > 0., comm, PETSC_ERR_USER_INPUT, "eps must be positive");
    rows = StencilRows(grid, RotatedStencil(first, second));
  } else if (kind == "aniso3d") {
    PetscCall(ArgumentGrid(fields, 3, 3, grid));
    PetscCall(ArgumentReal(fields, 2, 1e-1, &first));
    PetscCall(ArgumentReal(fields, 3, 1e-3, &second));
    PetscCheck(first > 0. && second > 0., comm, PETSC_ERR_USER_INPUT, "eps_y and eps_z must be positive");
    rows = StencilRows(grid, StarStencil(1., first, second));
  } else if (kind == "fingers2d") {
    PetscCall(ArgumentGrid(fields, 2, 2, grid));
    PetscCall(ArgumentReal(fields, 2, 33., &system->contrast));
    PetscCheck(system->contrast > 0. && grid[1] > 2, comm, PETSC_ERR_USER_INPUT,
               "The contrast must be positive, and the second size more than 2");
    rows = FingerRows(grid, system->contrast);
  } else if (kind == "elasticity3d" || kind == "elasticity3d_tets") {
    PetscCall(ArgumentGrid(fields, 4, 3, grid));
    PetscCall(ArgumentReal(fields, 2, 1., &system->contrast));
    PetscCall(ArgumentInt(fields, 3, 4, &cube));
    PetscCall(ArgumentReal(fields, 4, 1., &system->flat));
    PetscCheck(system->contrast > 0. && system->flat > 0., comm, PETSC_ERR_USER_INPUT, "The contrast and flat must be positive");
    rows = ElasticityRows(grid, system->contrast, cube, system->flat, kind == "elasticity3d_tets");
  } else if (kind == "block3d7" || kind == "block2d7") {
    PetscCall(ArgumentGrid(fields, 3, dim, grid));
    PetscCall(ArgumentInt(fields, 2, 3, &system->fields));
    PetscCall(ArgumentReal(fields, 3, 1., &first));
    PetscCheck(system->fields <= kMaxFields, comm, PETSC_ERR_USER_INPUT, "There can be 1 to %" PetscInt_FMT " fields", kMaxFields);
    rows = CoupledRows(grid, dim, system->fields, first);
  } else if (kind == "euler2d") {
    system->fields = 4;
    PetscCall(ArgumentGrid(fields, 2, 2, grid));
    PetscCall(ArgumentReal(fields, 2, 1e3, &first));
    PetscCheck(first > 0., comm, PETSC_ERR_USER_INPUT, "The CFL number must be positive");
    rows = EulerRows(grid, first);
  } else if (kind == "shell2d") {
    PetscReal *thickness = &system->shell[0], *bed = &system->shell[1];

    system->fields = 5;
    PetscCall(ArgumentGrid(fields, 3, 2, grid));
    PetscCall(ArgumentReal(fields, 2, 1e-2, thickness));
    PetscCall(ArgumentReal(fields, 3, 0., bed));
    PetscCheck(*thickness > 0. && *bed >= 0., comm, PETSC_ERR_USER_INPUT,
               "The thickness must be positive, and the stiffness of the bed not negative");
    rows = ShellRows(grid, *thickness, *bed);
  } else {
    SETERRQ(comm, PETSC_ERR_USER_INPUT, "Unknown system \"%s\"; there are %s", system->name.c_str(), kSystemKinds);
  }
  PetscCheck((kind != "euler2d" && kind != "shell2d") || (grid[0] > 1 && grid[1] > 1), comm, PETSC_ERR_USER_INPUT,
             "Triangles need two points in each direction");
  PetscCall(MatCreateByRows(comm, backend, rows, &system->A));
  if (kind.rfind("elasticity3d", 0) == 0) PetscCall(MatAttachRigidBodyModes(system->A, grid[0], grid[1] + 1, system->flat));
  if (kind != "block3d7" && kind != "block2d7" && kind != "euler2d") {
    PetscCall(MatSetOption(system->A, MAT_SPD, PETSC_TRUE));
    PetscCall(MatSetOption(system->A, MAT_SPD_ETERNAL, PETSC_TRUE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- boxes -------------------------------------------- */

/* Where a box begins in one dimension: the first ones are longer by 1 if the points cannot be shared equally, as with a DMDA. */
static PetscInt BoxBegin(const System &system, int d, PetscInt box)
{
  return box * (system.grid[d] / system.boxes[d]) + PetscMin(box, system.grid[d] % system.boxes[d]);
}

/* The rows of a box are numbered naturally, those of the boxes one after the other, x fastest. */
PetscInt SystemPoint(const System &system, PetscInt row)
{
  PetscInt begin[3], size[3], across = system.grid[0] * system.grid[1]; /* rows of a plane of points, then of a line */

  for (int d = 2; d >= 0; d--) {
    PetscInt box = system.boxes[d] - 1;

    while (BoxBegin(system, d, box) * across > row) box--;
    begin[d] = BoxBegin(system, d, box);
    size[d]  = BoxBegin(system, d, box + 1) - begin[d];
    row -= begin[d] * across;
    if (d) across = across / system.grid[d - 1] * size[d];
  }
  const PetscInt x = begin[0] + row % size[0], y = begin[1] + row / size[0] % size[1], z = begin[2] + row / (size[0] * size[1]);

  return x + system.grid[0] * (y + system.grid[1] * z);
}

/* Numbers the rows box by box, and gives each rank as many boxes as the others. */
static PetscErrorCode SystemNumberBoxes(MPI_Comm comm, System *system)
{
  const PetscInt *boxes = system->boxes, *grid = system->grid;
  PetscInt        rows, count, begin = 0, end = 0, *points;
  PetscMPIInt     size, rank;
  IS              is;
  Mat             A;

  PetscFunctionBeginUser;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCheck(grid[0] > 0, comm, PETSC_ERR_USER_INPUT,
             "Boxes of a file need the points of its grid, as in boxes:2x2x1:60x220x85:file:A.petsc");
  PetscCall(MatGetSize(system->A, &rows, nullptr));
  PetscCheck((PetscReal)grid[0] * grid[1] * grid[2] == (PetscReal)rows, comm, PETSC_ERR_USER_INPUT,
             "There are %" PetscInt_FMT " unknowns and %" PetscInt_FMT " x %" PetscInt_FMT " x %" PetscInt_FMT
             " points, but boxes are of systems with one unknown for each point",
             rows, grid[0], grid[1], grid[2]);
  for (int d = 0; d < 3; d++)
    PetscCheck(boxes[d] <= grid[d], comm, PETSC_ERR_USER_INPUT, "%" PetscInt_FMT " points are too few for %" PetscInt_FMT " boxes",
               grid[d], boxes[d]);
  count = boxes[0] * boxes[1] * boxes[2]; /* not more than there are rows */
  PetscCheck(count % size == 0, comm, PETSC_ERR_USER_INPUT, "%" PetscInt_FMT " boxes cannot be shared equally by %d ranks", count,
             size);
  for (PetscInt box = 0; box < (rank + 1) * (count / size); box++) {
    const PetscInt at[3]  = {box % boxes[0], box / boxes[0] % boxes[1], box / (boxes[0] * boxes[1])};
    PetscInt       inside = 1;

    for (int d = 0; d < 3; d++) inside *= BoxBegin(*system, d, at[d] + 1) - BoxBegin(*system, d, at[d]);
    if (box == rank * (count / size)) begin = end;
    end += inside;
  }
  PetscCall(PetscMalloc1(end - begin, &points));
  for (PetscInt row = begin; row < end; row++) points[row - begin] = SystemPoint(*system, row);
  PetscCall(ISCreateGeneral(comm, end - begin, points, PETSC_OWN_POINTER, &is));
  PetscCall(MatCreateSubMatrix(system->A, is, is, MAT_INITIAL_MATRIX, &A));
  PetscCall(MatPropagateSymmetryOptions(system->A, A));
  PetscCall(MatDestroy(&system->A));
  system->A = A;
  if (system->b) {
    Vec        b;
    VecScatter scatter;

    PetscCall(MatCreateVecs(A, nullptr, &b));
    PetscCall(VecScatterCreate(system->b, is, b, nullptr, &scatter));
    PetscCall(VecScatterBegin(scatter, system->b, b, INSERT_VALUES, SCATTER_FORWARD));
    PetscCall(VecScatterEnd(scatter, system->b, b, INSERT_VALUES, SCATTER_FORWARD));
    PetscCall(VecScatterDestroy(&scatter));
    PetscCall(VecDestroy(&system->b));
    system->b = b;
  }
  PetscCall(ISDestroy(&is));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  "boxes:2x2x1:SYSTEM", or "boxes:2x2x1:60x220x85:file:A.petsc", as what follows the arguments of the boxes; a specification that
  does not begin so is left alone.
*/
static PetscErrorCode BoxesRead(const std::string &spec, std::string *boxed, System *system)
{
  std::vector<std::string> fields = Split(spec, ':');
  size_t                   used   = 2;

  PetscFunctionBeginUser;
  *boxed = spec;
  if (fields[0] != "boxes") PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArgumentGrid(fields, fields.size(), 3, system->boxes));
  if (fields.size() > 2 && !fields[2].empty() && std::isdigit((unsigned char)fields[2][0])) {
    PetscCall(ArgumentGrid({"boxes", fields[2]}, 1, 3, system->grid));
    used = 3;
  }
  boxed->clear();
  for (size_t k = used; k < fields.size(); k++) *boxed += (k > used ? ":" : "") + fields[k];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SystemCreate(MPI_Comm comm, const std::string &requested, const Backend &backend, System *system)
{
  PetscLogDouble start, end;
  PetscInt       columns;
  MatInfo        info;
  std::string    spec;

  PetscFunctionBeginUser;
  PetscCall(PetscTime(&start));
  PetscCall(BoxesRead(requested, &spec, system));
  const bool   boxes = spec.size() < requested.size(), grid = system->grid[0] > 0;
  const size_t colon = spec.find(':');
  system->kind       = spec.substr(0, colon);
  if (system->kind == "file" || system->kind == "mtx") {
    const std::string path = colon == std::string::npos ? "" : spec.substr(colon + 1);
    std::string       readable;
    int               file = -1;

    PetscCheck(!path.empty(), comm, PETSC_ERR_USER_INPUT, "%s needs a path, as in %s:A.%s", spec.c_str(), system->kind.c_str(),
               system->kind == "mtx" ? "mtx" : "petsc");
    system->name = NameOfPath(path);
    PetscCall(FileConvert(comm, system->kind, path, &readable, &file));
    const PetscErrorCode ierr = SystemLoad(comm, backend, path, readable, system);
    if (file >= 0) close(file);
    PetscCall(ierr);
  } else {
    PetscCheck(!grid, comm, PETSC_ERR_USER_INPUT, "%s has its own grid: only boxes of a file need one", spec.c_str());
    system->name = spec;
    PetscCall(SystemGenerate(comm, Split(spec, ':'), backend, system));
  }
  if (boxes) {
    system->name = requested.substr(0, requested.size() - spec.size()) + system->name;
    PetscCall(SystemNumberBoxes(comm, system));
  }
  PetscCall(MatViewFromOptions(system->A, nullptr, "-bench_mat_view"));
  PetscCall(MatGetSize(system->A, &system->rows, &columns));
  PetscCheck(system->rows > 0 && system->rows == columns, comm, PETSC_ERR_USER_INPUT,
             "A matrix of %" PetscInt_FMT " by %" PetscInt_FMT " is no linear system", system->rows, columns);
  PetscCall(MatGetInfo(system->A, MAT_GLOBAL_SUM, &info));
  system->nnz = info.nz_used;
  PetscCall(PetscTime(&end));
  system->load_seconds = end - start;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SystemSetCoordinates(const std::string &path, System *system)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)system->A);
  PetscInt       rows, bs;
  Vec            x;
  PetscViewer    viewer;
  MatNullSpace   modes;

  PetscFunctionBeginUser;
  PetscCall(MatGetLocalSize(system->A, &rows, nullptr));
  PetscCall(MatGetBlockSize(system->A, &bs));
  PetscCheck(bs == 2 || bs == 3, comm, PETSC_ERR_USER_INPUT,
             "-coordinates is for 2 or 3 unknowns a point, as -matload_block_size says, and not for %" PetscInt_FMT, bs);
  PetscCall(VecCreate(comm, &x));
  PetscCall(VecSetSizes(x, rows, system->rows));
  PetscCall(VecSetBlockSize(x, bs));
  PetscCall(VecSetType(x, VECSTANDARD));
  PetscCall(PetscViewerBinaryOpen(comm, path.c_str(), FILE_MODE_READ, &viewer));
  PetscCall(VecLoad(x, viewer));
  PetscCall(PetscViewerDestroy(&viewer));
  PetscCall(MatNullSpaceCreateRigidBody(x, &modes));
  PetscCall(MatSetNearNullSpace(system->A, modes));
  PetscCall(MatNullSpaceDestroy(&modes));
  PetscCall(VecDestroy(&x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SystemDestroy(System *system)
{
  PetscFunctionBeginUser;
  for (auto &other : system->converted) PetscCall(MatDestroy(&other.second));
  PetscCall(VecDestroy(&system->b));
  PetscCall(MatDestroy(&system->A));
  PetscFunctionReturn(PETSC_SUCCESS);
}
