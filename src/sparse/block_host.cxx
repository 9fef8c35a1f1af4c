/* This file is the host twin of cuda/sparse/block.cuh, in plain loops. */
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "block.h"

bool InvertBlock_Host(LocalInt bs, PetscReal smallest, PetscReal raised, PetscScalar *a)
{
  std::vector<LocalInt> from(bs);
  const auto            at = [&](LocalInt r, LocalInt c) -> PetscScalar            &{ return a[c * bs + r]; };

  for (LocalInt p = 0; p < bs; p++) {
    LocalInt best = p;
    for (LocalInt r = p + 1; r < bs; r++)
      if (std::fabs(at(r, p)) > std::fabs(at(best, p))) best = r;
    PetscScalar     pivot = at(best, p);
    const PetscReal size  = std::fabs(pivot);
    if (!(size > smallest && size <= std::numeric_limits<PetscReal>::max())) {
      if (raised == 0) return false;
      pivot = std::copysign(raised, pivot);
    }
    from[p] = best;
    for (LocalInt c = 0; c < bs; c++) std::swap(at(p, c), at(best, c));
    for (LocalInt c = 0; c < bs; c++) {
      if (c == p) continue;
      at(p, c) /= pivot;
      for (LocalInt r = 0; r < bs; r++)
        if (r != p) at(r, c) -= at(r, p) * at(p, c);
    }
    for (LocalInt r = 0; r < bs; r++) at(r, p) = r == p ? 1 / pivot : -at(r, p) / pivot;
  }
  for (LocalInt p = bs - 1; p >= 0; p--) /* exchanged rows of a are exchanged columns of the inverse */
    for (LocalInt r = 0; r < bs; r++) std::swap(at(r, p), at(r, from[p]));
  return true;
}
