/* The host twin of cuda/pc/cmatch/cmatch_nodes_galerkin.cu: A P and R (A P) of a level of nodes. */
#include "cmatch_nodes_host.h"

template <typename T>
CMATCHNodesProduct<T> CMATCHNodesMultiply_Host(LocalInt l, LocalInt columns, const CMATCHNodesSetUp<T> &s)
{
  const CMATCHNodesLevel     &level = s.N->level[l];
  const CMATCHNodesArrays<T> &L     = s.N->arrays[l];
  CMATCHNodesProduct<T>       AP;

  CMATCHForSizes(level.k, s.Next(l), [&](auto known_k, auto known_m) {
    const LocalInt k = known_k ? known_k : level.k, m = known_m ? known_m : s.Next(l), size = k * m;
    CMATCHBlockRow row(columns, size);
    for (LocalInt i = 0; i < level.n; i++) {
      for (LocalInt e = L.A_i[i]; e < L.A_i[i + 1]; e++)
        for (size_t p = (size_t)L.A_j[e] * kCMATCHSlots; p < (size_t)(L.A_j[e] + 1) * kCMATCHSlots && L.P_j[p] >= 0; p++)
          CMATCHAddFused<known_k, known_k, known_m>(k, k, m, &s.A[(size_t)e * k * k], &L.P_a[p * size], row.At(L.P_j[p]));
      row.Sort();
      for (LocalInt J : row.columns) {
        const double *const block = row.At(J);
        AP.j.push_back(J);
        AP.a.insert(AP.a.end(), block, block + size);
      }
      AP.i.push_back(AP.j.size());
      row.Clear();
    }
  });
  return AP;
}

template <typename T>
void CMATCHNodesProductRow_Host(LocalInt l, LocalInt c, const CMATCHNodesSetUp<T> &s, const CMATCHNodesProduct<T> &AP,
                                CMATCHBlockRow *row)
{
  const CMATCHNodesArrays<T> &L = s.N->arrays[l];

  CMATCHForSizes(s.N->level[l].k, s.Next(l), [&](auto known_k, auto known_m) {
    const LocalInt k = known_k ? known_k : s.N->level[l].k, m = known_m ? known_m : s.Next(l), size = k * m;
    for (LocalInt e = L.R_i[c]; e < L.R_i[c + 1]; e++) {
      const LocalInt i = L.R_j[e] / kCMATCHSlots;
      for (size_t q = AP.i[i]; q < AP.i[i + 1]; q++)
        CMATCHAddFused<known_m, known_k, known_m, true>(m, k, m, &L.P_a[(size_t)L.R_j[e] * size], &AP.a[q * size],
                                                        row->At(AP.j[q]));
    }
  });
}

template <typename T>
void CMATCHNodesComplete_Host(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  const CMATCHNodesArrays<T> &L = s->N->arrays[l];
  const LocalInt              n = (LocalInt)L.A_i.size() - 1, k = s->N->level[l].k;
  const bool                  finest = s->IsFinest(l); /* whose unknowns that are alone have their own diagonal entries */

  for (LocalInt c = 0; c < n; c++)
    for (LocalInt e = L.A_i[c]; e < L.A_i[c + 1]; e++) {
      const LocalInt d = L.A_j[e], t = d < c || d >= n ? -1 : CMATCHFindBlock(L, d, c);
      double *const  block = &s->A[(size_t)e * k * k];
      if (t < 0) continue;
      double *const other = &s->A[(size_t)t * k * k];
      for (LocalInt p = 0; p < k; p++)
        for (LocalInt q = d == c ? p + 1 : 0; q < k; q++) other[q * k + p] = block[p * k + q];
      for (LocalInt p = 0; p < k && d == c && !finest; p++)
        if (s->alone[c] >> p & 1) block[p * k + p] = 1;
    }
}

template CMATCHNodesProduct<float>  CMATCHNodesMultiply_Host(LocalInt, LocalInt, const CMATCHNodesSetUp<float> &);
template CMATCHNodesProduct<double> CMATCHNodesMultiply_Host(LocalInt, LocalInt, const CMATCHNodesSetUp<double> &);
template void CMATCHNodesProductRow_Host(LocalInt, LocalInt, const CMATCHNodesSetUp<float> &, const CMATCHNodesProduct<float> &,
                                         CMATCHBlockRow *);
template void CMATCHNodesProductRow_Host(LocalInt, LocalInt, const CMATCHNodesSetUp<double> &, const CMATCHNodesProduct<double> &,
                                         CMATCHBlockRow *);
template void CMATCHNodesComplete_Host(LocalInt, CMATCHNodesSetUp<float> *);
template void CMATCHNodesComplete_Host(LocalInt, CMATCHNodesSetUp<double> *);
