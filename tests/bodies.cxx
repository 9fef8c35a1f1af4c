#include <algorithm>
#include <cmath>

#include "bodies.h"

namespace
{

/* The stiffness of a rectangle or a brick with modulus 1, by 2 Gauss points a direction; corner c is at its bits of x, y and z. */
std::vector<double> Element(LocalInt d, const BodyOf &of)
{
  const LocalInt      corners = 1 << d, rows = d * corners;
  const double        mu = 0.5 / (1 + of.nu), gauss = 1 / std::sqrt(3.);
  const double        lambda = d == 2 ? of.nu / (1 - of.nu * of.nu) : of.nu / ((1 + of.nu) * (1 - 2 * of.nu));
  std::vector<double> K((size_t)rows * rows, 0.);

  for (LocalInt point = 0; point < corners; point++) {
    double gradient[8][3], weight = 1;
    for (LocalInt e = 0; e < d; e++) weight *= of.h[e] / 2;
    for (LocalInt c = 0; c < corners; c++)
      for (LocalInt e = 0; e < d; e++) {
        gradient[c][e] = (c >> e & 1 ? 1 : -1) / of.h[e];
        for (LocalInt f = 0; f < d; f++)
          if (f != e) gradient[c][e] *= (1 + (c >> f & 1 ? 1 : -1) * (point >> f & 1 ? gauss : -gauss)) / 2;
      }
    for (LocalInt a = 0; a < corners; a++)
      for (LocalInt b = 0; b < corners; b++) {
        double dot = 0;
        for (LocalInt e = 0; e < d; e++) dot += gradient[a][e] * gradient[b][e];
        for (LocalInt r = 0; r < d; r++)
          for (LocalInt c = 0; c < d; c++)
            K[(size_t)(a * d + r) * rows + b * d + c] +=
              weight * (lambda * gradient[a][r] * gradient[b][c] + mu * gradient[a][c] * gradient[b][r] + (r == c ? mu * dot : 0));
      }
  }
  return K;
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
  const LocalInt            d = of.nz ? 3 : 2, first = of.clamped ? 1 : 0, nx = of.nx + first, nz = std::max(of.nz, 1);
  const std::vector<double> K       = Element(d, of);
  const LocalInt            corners = 1 << d, rows = d * corners;
  Body                      body;
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> entries((size_t)of.nx * of.ny * nz * d);

  const auto node = [&](LocalInt x, LocalInt y, LocalInt z) { return x < first ? -1 : (z * of.ny + y) * of.nx + x - first; };
  const auto add  = [&](LocalInt row, LocalInt column, double value) {
    auto &in = entries[row];
    auto  at = std::find_if(in.begin(), in.end(), [column](const auto &entry) { return entry.first == column; });
    if (at == in.end()) in.emplace_back(column, value);
    else at->second += value;
  };
  body.k = d;
  for (LocalInt z = 0; z < (of.nz ? of.nz - 1 : 1); z++)
    for (LocalInt y = 0; y < of.ny - 1; y++)
      for (LocalInt x = 0; x < nx - 1; x++) {
        const double E = of.modulus ? of.modulus(x, y, z) : 1;
        LocalInt     at[8];
        for (LocalInt c = 0; c < corners; c++) at[c] = node(x + (c & 1), y + (c >> 1 & 1), z + (c >> 2));
        for (LocalInt p = 0; p < rows; p++)
          for (LocalInt q = 0; q < rows; q++)
            if (at[p / d] >= 0 && at[q / d] >= 0) add(at[p / d] * d + p % d, at[q / d] * d + q % d, E * K[(size_t)p * rows + q]);
      }
  body.A = FromRows(entries);
  for (LocalInt z = 0; z < nz; z++)
    for (LocalInt y = 0; y < of.ny; y++)
      for (LocalInt x = first; x < nx; x++) {
        const double at[] = {x * of.h[0], y * of.h[1], z * of.h[2]};
        body.x.insert(body.x.end(), at, at + d);
      }
  body.load.assign(entries.size(), 0.);
  for (size_t i = 0; i < entries.size() / d; i++) body.load[i * d + d - 1] = 1;
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
