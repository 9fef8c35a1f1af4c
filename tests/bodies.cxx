#include <algorithm>
#include <cmath>

#include "bodies.h"
#include "pc_support.h"

namespace
{

using Corners = std::array<std::array<double, 3>, 8>;

/*
   The stiffness of a quadrilateral or a hexahedron with modulus 1, by 2 Gauss points a direction. The bits of the number of a
   corner are its x, y and z in the reference element.
*/
std::vector<double> Element(LocalInt d, const Corners &x, double nu)
{
  const LocalInt      corners = 1 << d, rows = d * corners;
  const double        mu = 0.5 / (1 + nu), gauss = 1 / std::sqrt(3.);
  const double        lambda = d == 2 ? nu / (1 - nu * nu) : nu / ((1 + nu) * (1 - 2 * nu));
  std::vector<double> K((size_t)rows * rows, 0.);

  for (LocalInt point = 0; point < corners; point++) {
    double reference[8][3], gradient[8][3] = {}, J[3][3] = {}, determinant = 0;
    for (LocalInt c = 0; c < corners; c++)
      for (LocalInt e = 0; e < d; e++) {
        reference[c][e] = (c >> e & 1 ? 1 : -1) / 2.;
        for (LocalInt f = 0; f < d; f++)
          if (f != e) reference[c][e] *= (1 + (c >> f & 1 ? 1 : -1) * (point >> f & 1 ? gauss : -gauss)) / 2;
        for (LocalInt f = 0; f < d; f++) J[f][e] += x[c][f] * reference[c][e];
      }
    if (d == 2) J[2][2] = 1;
    for (LocalInt e = 0; e < 3; e++)
      determinant += J[0][e] * (J[1][(e + 1) % 3] * J[2][(e + 2) % 3] - J[1][(e + 2) % 3] * J[2][(e + 1) % 3]);
    for (LocalInt e = 0; e < d; e++) /* gradient_f = sum_e (J^{-1})_ef reference_e, by cofactors */
      for (LocalInt f = 0; f < d; f++) {
        const LocalInt f1 = (f + 1) % 3, f2 = (f + 2) % 3, e1 = (e + 1) % 3, e2 = (e + 2) % 3;
        const double   inverse = (J[f1][e1] * J[f2][e2] - J[f1][e2] * J[f2][e1]) / determinant;
        for (LocalInt c = 0; c < corners; c++) gradient[c][f] += inverse * reference[c][e];
      }
    for (LocalInt a = 0; a < corners; a++)
      for (LocalInt b = 0; b < corners; b++) {
        double dot = 0;
        for (LocalInt e = 0; e < d; e++) dot += gradient[a][e] * gradient[b][e];
        for (LocalInt r = 0; r < d; r++)
          for (LocalInt c = 0; c < d; c++)
            K[(size_t)(a * d + r) * rows + b * d + c] +=
              determinant *
              (lambda * gradient[a][r] * gradient[b][c] + mu * gradient[a][c] * gradient[b][r] + (r == c ? mu * dot : 0));
      }
  }
  return K;
}

using Rows = std::vector<std::vector<std::pair<LocalInt, PetscScalar>>>;

void Add(LocalInt row, LocalInt column, double value, Rows *entries)
{
  auto &in = (*entries)[row];
  auto  at = std::find_if(in.begin(), in.end(), [column](const auto &entry) { return entry.first == column; });
  if (at == in.end()) in.emplace_back(column, value);
  else at->second += value;
}

void AddModes(Body *body)
{
  const LocalInt        d = body->k, nodes = (LocalInt)body->x.size() / d, m = body->m();
  std::array<double, 3> mean{};

  for (LocalInt i = 0; i < nodes; i++)
    for (LocalInt e = 0; e < d; e++) mean[e] += body->x[i * d + e] / nodes;
  body->B.assign((size_t)nodes * d * m, 0.);
  for (LocalInt i = 0; i < nodes; i++) {
    const auto at = [&](LocalInt r, LocalInt c) -> double & { return body->B[((size_t)i * d + r) * m + c]; };
    const auto x  = [&](LocalInt e) { return body->x[i * d + e] - mean[e]; };
    for (LocalInt r = 0; r < d; r++) at(r, r) = 1;
    if (d == 2) {
      at(0, 2) = -x(1);
      at(1, 2) = x(0);
    } else
      for (LocalInt c = 0; c < 3; c++) {
        at((c + 1) % 3, 3 + c) = -x((c + 2) % 3);
        at((c + 2) % 3, 3 + c) = x((c + 1) % 3);
      }
  }
}

} // namespace

Body MakeBody(const BodyOf &of)
{
  const LocalInt      d = of.nz ? 3 : 2, first = of.clamped ? 1 : 0, nx = of.nx + first, nz = std::max(of.nz, 1);
  const LocalInt      corners = 1 << d, rows = d * corners;
  const LocalInt      nodes[3] = {nx, of.ny, nz};
  Body                body;
  Rows                entries((size_t)of.nx * of.ny * nz * d);
  std::vector<double> K;

  const auto node  = [&](LocalInt x, LocalInt y, LocalInt z) { return x < first ? -1 : (z * of.ny + y) * of.nx + x - first; };
  const auto point = [&](LocalInt x, LocalInt y, LocalInt z) {
    std::array<double, 3> at{(double)x, (double)y, (double)z};
    Random                random((std::uint64_t)((z * of.ny + y) * nx + x + 1));
    for (LocalInt e = 0; e < d; e++) {
      const double move = random.Between(-of.moved, of.moved);
      if (at[e] > 0 && at[e] < nodes[e] - 1) at[e] += move;
      at[e] *= of.h[e];
    }
    return at;
  };
  body.k = d;
  for (LocalInt z = 0; z < (of.nz ? of.nz - 1 : 1); z++)
    for (LocalInt y = 0; y < of.ny - 1; y++)
      for (LocalInt x = 0; x < nx - 1; x++) {
        const double E = of.modulus ? of.modulus(x, y, z) : 1;
        LocalInt     at[8];
        Corners      corner{};
        for (LocalInt c = 0; c < corners; c++) {
          at[c]     = node(x + (c & 1), y + (c >> 1 & 1), z + (c >> 2));
          corner[c] = point(x + (c & 1), y + (c >> 1 & 1), z + (c >> 2));
        }
        if (K.empty() || of.moved > 0) K = Element(d, corner, of.nu);
        for (LocalInt p = 0; p < rows; p++)
          for (LocalInt q = 0; q < rows; q++)
            if (at[p / d] >= 0 && at[q / d] >= 0)
              Add(at[p / d] * d + p % d, at[q / d] * d + q % d, E * K[(size_t)p * rows + q], &entries);
      }
  body.A = FromRows(entries);
  for (LocalInt z = 0; z < nz; z++)
    for (LocalInt y = 0; y < of.ny; y++)
      for (LocalInt x = first; x < nx; x++) {
        const auto at = point(x, y, z);
        body.x.insert(body.x.end(), at.begin(), at.begin() + d);
      }
  body.load.assign(entries.size(), 0.);
  for (size_t i = 0; i < entries.size() / d; i++) body.load[i * d + d - 1] = 1;
  AddModes(&body);
  return body;
}

/* The stiffness of a tetrahedron with these corners, which is added to the entries of its nodes, of which -1 is clamped. */
static void AddTetrahedron(const std::array<double, 3> (&x)[4], const LocalInt (&node)[4], Rows *entries)
{
  constexpr double nu = 0.3, mu = 0.5 / (1 + nu), lambda = nu / ((1 + nu) * (1 - 2 * nu));
  double           edge[3][3], gradient[4][3] = {}, determinant = 0;

  for (int e = 0; e < 3; e++)
    for (int c = 0; c < 3; c++) edge[e][c] = x[e + 1][c] - x[0][c];
  for (int e = 0; e < 3; e++) /* the rows of the inverse are cross products of the edges */
    for (int c = 0; c < 3; c++) {
      const double *const u = edge[(e + 1) % 3], *const v = edge[(e + 2) % 3];
      gradient[e + 1][c] = u[(c + 1) % 3] * v[(c + 2) % 3] - u[(c + 2) % 3] * v[(c + 1) % 3];
    }
  for (int c = 0; c < 3; c++) determinant += edge[0][c] * gradient[1][c];
  for (int e = 1; e < 4; e++)
    for (int c = 0; c < 3; c++) {
      gradient[e][c] /= determinant;
      gradient[0][c] -= gradient[e][c];
    }
  for (int a = 0; a < 4; a++)
    for (int b = 0; b < 4; b++) {
      double dot = 0;
      for (int c = 0; c < 3; c++) dot += gradient[a][c] * gradient[b][c];
      for (int r = 0; r < 3 && node[a] >= 0 && node[b] >= 0; r++)
        for (int c = 0; c < 3; c++)
          Add(node[a] * 3 + r, node[b] * 3 + c,
              std::fabs(determinant) / 6 *
                (lambda * gradient[a][r] * gradient[b][c] + mu * gradient[a][c] * gradient[b][r] + (r == c ? mu * dot : 0)),
              entries);
    }
}

Body Tetrahedra(LocalInt n)
{
  Body                               body;
  Rows                               entries((size_t)(n - 1) * n * n * 3);
  std::vector<std::array<double, 3>> x;
  Random                             random(11);
  const auto                         point = [n](LocalInt i, LocalInt j, LocalInt k) { return (k * n + j) * n + i; };

  for (LocalInt k = 0; k < n; k++)
    for (LocalInt j = 0; j < n; j++)
      for (LocalInt i = 0; i < n; i++) {
        std::array<double, 3> at{(double)i, (double)j, (double)k};
        for (double &c : at)
          if (c > 0 && c < n - 1) c += random.Between(-0.28, 0.28);
        x.push_back(at);
      }
  for (LocalInt cell = 0; cell < (n - 1) * (n - 1) * (n - 1); cell++) {
    const LocalInt at[3] = {cell % (n - 1), cell / (n - 1) % (n - 1), cell / ((n - 1) * (n - 1))};
    std::array     axes{0, 1, 2};
    do { /* from one corner to the opposite one, along the axes in this order */
      LocalInt              corner[3] = {at[0], at[1], at[2]}, node[4];
      std::array<double, 3> corners[4];
      for (int c = 0; c < 4; c++) {
        const LocalInt p = point(corner[0], corner[1], corner[2]);
        corners[c]       = x[p];
        node[c]          = corner[0] ? p - p / n - 1 : -1;
        if (c < 3) corner[axes[c]]++;
      }
      AddTetrahedron(corners, node, &entries);
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
  body.A = FromRows(entries);
  for (LocalInt p = 0; p < n * n * n; p++)
    if (p % n) body.x.insert(body.x.end(), x[p].begin(), x[p].end());
  body.load.assign(entries.size(), 0.);
  for (size_t row = 2; row < body.load.size(); row += 3) body.load[row] = 1;
  AddModes(&body);
  return body;
}

double Checkerboard(LocalInt x, LocalInt y, LocalInt z)
{
  return (x / 4 + y / 4 + z / 4) % 2 ? 1000 : 1;
}

double RandomCells(LocalInt x, LocalInt y, LocalInt z)
{
  return Random((std::uint64_t)(x / 4 + 100 * (y / 4) + 10000 * (z / 4) + 1)).Next() >> 40 & 1 ? 1000 : 1;
}

Body WithRowsLeft(Body body, double diagonal)
{
  const LocalInt    d = body.k;
  std::vector<char> fixed(body.A.n);

  for (LocalInt row = 0; row < body.A.n; row++)
    fixed[row] = body.x[row / d * d] == 0 || (row % d == 2 && body.x[row] == 0) || row % 500 == 499;
  for (LocalInt row = 0; row < body.A.n; row++) {
    for (LocalInt e = body.A.i[row]; e < body.A.i[row + 1]; e++)
      if (fixed[row] || fixed[body.A.j[e]]) body.A.a[e] = body.A.j[e] == row ? diagonal : 0;
    if (fixed[row]) body.load[row] = 0;
  }
  return body;
}

void AttachRigidBodyModes(Mat A, const Body &body)
{
  VecObject    x = CreateVec((LocalInt)body.x.size(), VECSEQ, 1);
  MatNullSpace modes;
  SetValues(x, body.x);
  MUST(VecSetBlockSize(x, body.k));
  MUST(MatNullSpaceCreateRigidBody(x, &modes));
  MUST(MatSetNearNullSpace(A, modes));
  MUST(MatNullSpaceDestroy(&modes));
}
