/*
   The singular components of the last level of CMATCH, which both twins find here, on the host.

   A component is singular if its row sums add up to nothing but rounding errors, since the ones on it are in its null space then.
   Boundary values, in columns of rows without couplings of their own, hold the rows that are coupled with them: such couplings
   connect nothing, and count among what the row sums have.
*/
#include <cmath>
#include <numeric>

#include "cmatch.h"

LocalInt CMATCHParts::Large() const
{
  LocalInt large = 0;

  for (LocalInt part = 0; part < Count(); part++) large += begin[part + 1] > begin[part] + 1;
  return large;
}

CMATCHParts CMATCHFindParts(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, const double *A_a, const double *rs,
                            PetscReal rows, bool singular)
{
  CMATCHParts           parts{std::vector<LocalInt>(n, -1), std::vector<double>(n, 0.), std::vector<double>(n, 0.), {0}, {}};
  std::vector<LocalInt> root(n); /* each row points to a row of its component, and the first one to itself */
  std::vector<char>     isolated(n, 1), held(n, 0);
  std::vector<double>   sum(rs, rs + n), diagonal(rs, rs + n);
  const auto            root_of = [&](LocalInt i) {
    for (; root[i] != i; i = root[i]) root[i] = root[root[i]];
    return i;
  };

  std::iota(root.begin(), root.end(), 0);
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt k = A_i[i]; k < A_i[i + 1]; k++) isolated[i] = isolated[i] && A_a[k] == 0;
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt k = A_i[i]; k < A_i[i + 1]; k++) {
      if (A_a[k] == 0) continue;
      diagonal[i] -= A_a[k];
      if (isolated[A_j[k]]) {
        sum[i] -= A_a[k];
        held[i] = 1;
        continue;
      }
      const LocalInt a = root_of(i), b = root_of(A_j[k]);
      root[PetscMax(a, b)] = PetscMin(a, b);
    }
  for (LocalInt i = 0; i < n; i++) {
    const LocalInt to = root_of(i);
    if (to == i) continue;
    sum[to] += sum[i];
    diagonal[to] += diagonal[i];
    held[to] = held[to] || held[i];
  }

  std::vector<LocalInt> part(n, -1), size; /* by the first row of a component, which comes first */
  for (LocalInt i = 0; i < n; i++) {
    const LocalInt to = root_of(i);
    if (to == i &&
        ((singular && !held[i] && !isolated[i]) || std::fabs(sum[i]) <= kCMATCHNothing * rows * std::fabs(diagonal[i]))) {
      part[i] = (LocalInt)size.size();
      size.push_back(0);
    }
    parts.of[i] = part[to];
    if (part[to] < 0) continue;
    size[part[to]]++;
  }
  for (LocalInt rows_of : size) parts.begin.push_back(parts.begin.back() + rows_of);
  parts.row.resize(parts.begin.back());
  std::vector<LocalInt> next(parts.begin.begin(), parts.begin.end() - 1);
  for (LocalInt i = 0; i < n; i++) {
    const LocalInt of = parts.of[i], to = root_of(i);
    if (of < 0) continue;
    parts.row[next[of]++] = i;
    /* a single row becomes 1, of which nothing is left when its inverse is taken off again */
    const double count = size[of], mean = diagonal[to] / count;
    parts.add[i]  = count > 1 ? mean / count : 1 - diagonal[i];
    parts.take[i] = count > 1 ? 1 / (count * mean) : 1;
  }
  return parts;
}
