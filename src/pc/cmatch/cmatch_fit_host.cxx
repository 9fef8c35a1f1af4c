/*
   How well aggregates that were made for other values fit a level. Strong edges are those of cmatch_aggregate_host.cxx, weighed
   with the operator of the level. These numbers of each level are compared with those right after the aggregates were made:

     loose    rows that have strong edges, but none to a row of their own aggregate, unless the smoother does for them. Such a row
   was single or left to the smoother when it had no strong edges, or what held it in its aggregate has become weak. The smoother
              does for a row whose entries beside the diagonal sum to less than kCMATCHDominated of it, and for one in no aggregate
              below kCMATCHUnheld: the matching may have left it by an operator with smaller sums.
     left     the loose rows that are in no aggregate
   pieces   what the aggregates fall into if only strong edges hold rows together; rows that the smoother does for do not count.

   Of nodes the graph of the finest level is looked at, whose vertices have the sum of their edges as diagonal entry.

   Edges to rows of other ranks count where the heaviest edge of a row is looked for, and nowhere else.
*/
#include <cmath>
#include <numeric>

#include "cmatch_host.h"

namespace
{

/* The smallest known row of the piece that a row belongs to. */
LocalInt Root(LocalInt i, std::vector<LocalInt> *parent)
{
  while ((*parent)[i] != i) i = (*parent)[i] = (*parent)[(*parent)[i]];
  return i;
}

/* L has the arrays of a level that this takes. */
template <typename Arrays>
CMATCHFit Fit(LocalInt n, float strength, bool last, const Arrays &L)
{
  std::vector<float>    largest(n, 0.f); /* the heaviest edge of a row, -1 for a row that is left */
  std::vector<LocalInt> parent(n);
  CMATCHFit             fit{};

  for (LocalInt i = 0; i < n; i++) {
    const float own      = (float)L.d[i];
    float       heaviest = 0;
    double      off      = 0;
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      const LocalInt j = L.A_j[k];
      const float    a = (float)L.A_a[k], sum = own + (j < n ? (float)L.d[j] : own);
      off += std::fabs((double)a);
      heaviest = PetscMax(heaviest, sum > 0 ? (-2.0f * a) / sum : 0.f);
    }
    const double least = !last && L.aggregate[i] >= 0 ? kCMATCHDominated : kCMATCHUnheld;
    largest[i]         = off >= least * (double)own ? heaviest : -1.f;
  }
  std::iota(parent.begin(), parent.end(), 0);
  for (LocalInt i = 0; i < n; i++) {
    const LocalInt mine = last ? -1 : L.aggregate[i];
    const float    own = (float)L.d[i], heaviest = largest[i];
    bool           any = false, inside = false;
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1] && heaviest >= 0; k++) {
      const LocalInt j    = L.A_j[k];
      const bool     here = j < n && mine >= 0 && L.aggregate[j] == mine;
      if (j >= n || largest[j] < 0 || (any && !here)) continue;
      const float c = -2.0f * (float)L.A_a[k], sum = own + (float)L.d[j];
      if (!(c > 0) || c < (strength * PetscMax(heaviest, largest[j])) * sum) continue;
      any = true;
      if (!here) continue;
      inside = true;
      if (j > i || parent[i] == parent[j]) continue; /* the other row has the edge, too */
      const LocalInt a = Root(i, &parent), b = Root(j, &parent);
      parent[PetscMax(a, b)] = PetscMin(a, b);
    }
    fit.loose += any && !inside;
    fit.left += any && !last && mine < 0;
  }
  for (LocalInt i = 0; i < n && !last; i++) fit.pieces += largest[i] >= 0 && L.aggregate[i] >= 0 && parent[i] == i;
  return fit;
}

} // namespace

template <typename T>
CMATCHFit CMATCHFit_Host(const CMATCHParams &params, const CMATCHLevel &level, bool last, const CMATCHArrays<T> &L)
{
  return Fit(level.n, CMATCHStrength(params, level.all), last, L);
}

CMATCHFit CMATCHNodesFit_Host(float strength, const CMATCHGraph &M, const std::vector<LocalInt> &aggregate)
{
  const struct {
    const std::vector<LocalInt> &A_i, &A_j;
    const std::vector<float>    &A_a, &d;
    const std::vector<LocalInt> &aggregate;
  } L{M.i, M.j, M.a, M.d, aggregate};

  return Fit(M.n(), strength, false, L);
}

template CMATCHFit CMATCHFit_Host(const CMATCHParams &, const CMATCHLevel &, bool, const CMATCHArrays<float> &);
template CMATCHFit CMATCHFit_Host(const CMATCHParams &, const CMATCHLevel &, bool, const CMATCHArrays<double> &);
