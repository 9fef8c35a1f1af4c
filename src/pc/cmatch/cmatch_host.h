/*
   What the files of CMATCH's host twin share: the hierarchy, and what one file does for the others.

     cmatch_host.cxx            the set-up as a whole, levels, the prolongator, the Galerkin product
     cmatch_aggregate_host.cxx  aggregates, by matching or by an independent set
     cmatch_fsai_host.cxx       the factors of the smoothers sfsai and afsai
     cmatch_cycle_host.cxx      the coarsest level and the cycle
*/
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cmatch.h"

/* ---------------------------------------- the hierarchy --------------------------------------- */

/* The arrays that a CMATCHLevel shows, which are explained there, and the vectors of the cycle. */
template <typename T>
struct CMATCHArrays {
  std::vector<LocalInt> A_i, A_j, aggregate, P_j, R_i, R_j;
  std::vector<T>        A_a, s, d, l, P_a, R_a;
  std::vector<T>        factor_d; /* the factors themselves have memory of their own */

  std::vector<T> b, x;          /* [n] right-hand side and solution */
  std::vector<T> r, z;          /* [n] residual and correction of the smoother, and on the coarsest level of a solver */
  std::vector<T> t;             /* [n] M^{-1} r, on levels with a factor */
  std::vector<T> first, second; /* [n] on levels that are visited twice: the first solution and its product */
};

template <typename T>
struct CMATCHHierarchyHost : CMATCHHierarchy {
  CMATCHArrays<T>          arrays[kCMATCHMostLevels];
  std::vector<PetscScalar> w_kept;       /* [n] what w shows */
  CMATCHEnd                end;          /* why the coarsening has ended */
  PolynomialSteps          steps;        /* of the smoother */
  PolynomialSteps          stalled;      /* of the polynomial in place of an inverse */
  std::vector<double>      inverse;      /* [n][n] of the last level, if that is inverted */
  std::vector<double>      iteration[5]; /* [n] of the last level, if the conjugate gradient method solves there */
};

template <typename V>
size_t CMATCHBytes(const V &array)
{
  return array.size() * sizeof(array[0]);
}

inline void CMATCHFail(CMATCHFailure failure, LocalInt level, LocalInt row, CMATCHStats *stats)
{
  stats->failure = failure;
  stats->level   = level;
  stats->row     = row;
}

/* ------------------------------------------- set-up ------------------------------------------- */

/* A symmetric hash of the edge between a and b, by which ties are broken. */
inline uint32_t CMATCHMix(LocalInt a, LocalInt b)
{
  uint32_t h = ((uint32_t)PetscMin(a, b) * 0x9E3779B1u) ^ ((uint32_t)PetscMax(a, b) * 0x85EBCA77u);

  h ^= h >> 15;
  h *= 0x2C1B3C6Du;
  h ^= h >> 12;
  h *= 0x297A2D39u;
  return h ^ (h >> 15);
}

/* A row of a sparse product while it is summed up: entry c of the row is sum[c] if c is among the columns. */
struct CMATCHSparseRow {
  std::vector<double>   sum;
  std::vector<LocalInt> columns; /* in the order of their first sight */

  explicit CMATCHSparseRow(LocalInt n) : sum(n, 0.), seen(n, 0) { }

  /* The entry of column c, which begins with 0. */
  double &At(LocalInt c)
  {
    if (!seen[c]) {
      seen[c] = 1;
      columns.push_back(c);
    }
    return sum[c];
  }

  void Sort() { std::sort(columns.begin(), columns.end()); }

  void Clear()
  {
    for (LocalInt c : columns) {
      sum[c]  = 0;
      seen[c] = 0;
    }
    columns.clear();
  }

private:
  std::vector<char> seen;
};

/* The operator M that the matching sees, in single precision and with the diagonal apart. */
struct CMATCHGraph {
  std::vector<LocalInt> i, j; /* columns ascending in a row */
  std::vector<float>    a, d;

  LocalInt n() const { return (LocalInt)d.size(); }
  size_t   Bytes() const { return CMATCHBytes(i) + CMATCHBytes(j) + CMATCHBytes(a) + CMATCHBytes(d); }
};

/* Aggregates of the rows of a level. */
struct CMATCHAggregation {
  std::vector<LocalInt> aggregate; /* -1 for rows that are left */
  LocalInt              coarse, left, joined;
};

/*
   The aggregates of a level on which the matching sees M. With matching M becomes the operator on the aggregates. If all rows are
   left, there are no aggregates.
*/
CMATCHAggregation CMATCHAggregate_Host(const CMATCHParams &, CMATCHGraph *M, size_t *work_bytes);

/* d_i + sum_{j != i} |a_ij| of a level */
template <typename T>
double CMATCHL1_Host(const CMATCHArrays<T> &L, LocalInt i)
{
  double l1 = (double)L.d[i];
  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) l1 += std::fabs((double)L.A_a[k]);
  return l1;
}

/* l of a level whose entries and diagonal are there, for a polynomial with this root */
template <typename T>
void CMATCHComputeL_Host(PetscReal root, CMATCHArrays<T> *L)
{
  L->l.resize(L->d.size());
  for (LocalInt i = 0; i < (LocalInt)L->d.size(); i++) {
    const double l1 = CMATCHL1_Host(*L, i);
    L->l[i]         = (T)((l1 == (double)L->d[i] ? root : 1) / l1);
  }
}

/* Computes the factors of the levels that are smoothed, if the smoother has factors; with keep, their values alone. */
template <typename T>
PetscErrorCode CMATCHFactorSmoothers_Host(PetscBool keep, CMATCHHierarchyHost<T> *, CMATCHStats *);
PetscErrorCode CMATCHDestroyFactors_Host(CMATCHHierarchy *);

/*
   Finishes a hierarchy whose levels are complete: inverts the last level with row sums rs [n] if that is to be inverted, makes the
   smoothers and the vectors, and counts the bytes.
*/
template <typename T>
PetscErrorCode CMATCHFinish_Host(const std::vector<double> &rs, PetscBool keep, CMATCHHierarchyHost<T> *, CMATCHStats *);

/* ------------------------------------------- cycle -------------------------------------------- */

/* t = M^{-1} r for the factor of a level */
template <typename T>
void CMATCHApplyFactor_Host(const CMATCHFactor &, const std::vector<T> &r, std::vector<T> *t);
