/*
   What the files of CMATCH's host twin share: the hierarchy, and what one file does for the others.

     cmatch_host.cxx            the set-up as a whole, levels, the prolongator, the Galerkin product
     cmatch_host_ranks.cxx      the set-up of levels on several ranks
     cmatch_aggregate_host.cxx  aggregates, by matching or by an independent set
     cmatch_fit_host.cxx        whether aggregates that are kept still fit
     cmatch_fsai_host.cxx       the factors of the smoothers sfsai and afsai
     cmatch_cycle_host.cxx      the coarsest level and the cycle
     cmatch_nodes_host.h        hierarchies of nodes, in files of their own
*/
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "cmatch.h"

/* ---------------------------------------- the hierarchy --------------------------------------- */

/* Of these arrays of a level those that are numbers of rows, or of nodes, of several ranks. */
struct CMATCHColumns {
  std::vector<LocalInt> aggregate, P_j;

  /* on several ranks */
  std::vector<GlobalInt> ghost;
  std::vector<GlobalInt> column; /* the numbers of the foreign aggregates, and of the others in rows of P of ghosts */
  std::vector<LocalInt>  add_i;  /* [rows of the next level + 1] where the contributions for a row begin */
};

/* The arrays that a CMATCHLevel shows, which are explained there, and the vectors of the cycle. */
template <typename T>
struct CMATCHArrays : CMATCHColumns {
  std::vector<LocalInt> A_i, A_j, R_i, R_j;
  std::vector<T>        A_a, s, d, l, P_a, R_a;
  std::vector<T>        factor_d; /* the factors themselves have memory of their own */

  /* on several ranks */
  std::vector<T> values; /* [coarse + foreign] R r, or the correction that is to be interpolated */
  std::vector<T> added;  /* [contributions] */

  std::vector<T> b, x; /* [n] right-hand side and solution; x and z have ghosts, too */
  std::vector<T> r, z; /* [n] residual and correction of the smoother, and on the coarsest level of a solver */
  std::vector<T> t;    /* [n] M^{-1} r, on levels with a factor */
};

/*
   A level as a matrix with its diagonal, of which its factor is made, and the vectors for the factor's largest eigenvalue. On
   several ranks the matrix is the rank's own block, and entries in columns of ghosts, which are columns from n on, are apart.
*/
struct CMATCHExpanded {
  std::vector<LocalInt>    i, j;
  std::vector<PetscScalar> a;
  std::vector<LocalInt>    foreign_i, foreign_j; /* on several ranks */
  std::vector<PetscScalar> foreign_a;
  std::vector<char>        alone;      /* [n] */
  LocalInt                 longest;    /* the most entries of a row of the lower triangle */
  std::vector<PetscReal>   d;          /* [n] 1 / psi */
  std::vector<PetscScalar> r, z, p, q; /* [n]; p and q have ghosts, too */

  size_t Bytes() const;
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
  CMATCHParts              parts;        /* of the last level, in that case */

  std::vector<CMATCHExpanded> expanded; /* levels on several ranks, until their factors are scaled */

  std::shared_ptr<CMATCHNodes> nodes_kept; /* what `nodes` shows, see cmatch_nodes_host.cxx */
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

/*
   The operator M that the matching sees, in single precision and with the diagonal apart. Columns from n on are vertices of other
   ranks, which are in no pair.
*/
struct CMATCHGraph {
  std::vector<LocalInt> i, j; /* columns ascending in a row */
  std::vector<float>    a, d;
  LocalInt              foreign = 0; /* vertices of other ranks */

  LocalInt n() const { return (LocalInt)d.size(); }
  size_t   Bytes() const { return CMATCHBytes(i) + CMATCHBytes(j) + CMATCHBytes(a) + CMATCHBytes(d); }
};

/* Aggregates of the rows of a level. */
struct CMATCHAggregation {
  std::vector<LocalInt> aggregate; /* -1 for rows that are left */
  LocalInt              coarse, left, joined;
};

/*
   The aggregates of a level on which the matching sees M, which has so many rows on all ranks. With matching M becomes the operator
   on the aggregates. If all rows are left, there are no aggregates.
*/
CMATCHAggregation CMATCHAggregate_Host(const CMATCHParams &, PetscInt64 all, CMATCHGraph *M, size_t *work_bytes);

/*
   What differs between the aggregates of rows and those of nodes: the size of aggregates of rows is limited on large levels, and
   the diagonal of nodes is the sum of their positive weights. The sweeps end where `each` times the vertices are `enough`.
*/
struct CMATCHMatching {
  PCCMATCHCoarsening coarsening;
  PetscInt           sweeps;
  float              strength;
  bool               limited, nodes;
  PetscReal          each, enough;
};

/* The aggregates of nodes, of which those marked in `left` are in none; M becomes the graph of the aggregates. */
CMATCHAggregation CMATCHMatch_Host(const CMATCHMatching &, std::vector<char> left, CMATCHGraph *M, size_t *work_bytes);

/* How well the aggregates of a level fit its values; the last level has none. */
template <typename T>
CMATCHFit CMATCHFit_Host(const CMATCHParams &, const CMATCHLevel &, bool last, const CMATCHArrays<T> &);

/* The same of nodes on their graph, which has edges as entries of M below 0. */
CMATCHFit CMATCHNodesFit_Host(float strength, const CMATCHGraph &, const std::vector<LocalInt> &aggregate);

/*
   The rows of A of one rank. On several ranks `foreign` has the entries in columns of ghosts, counted from 0, and `w` the entries
   of the ghosts behind the own ones; `largest` is the largest diagonal entry of W A W on all ranks, by magnitude. On one rank it is
   found.
*/
struct CMATCHMatrix {
  const CSRView     *own, *foreign;
  LocalInt           ghosts;
  const PetscScalar *w;
  double             largest;
};

/* What is known of the rows of a level beside its entries. */
struct CMATCHSums {
  std::vector<double> rs;       /* row sums */
  std::vector<double> diagonal; /* as it was summed up with the entries */
  std::vector<double> size;     /* sum_i p_i^2 d_i over the column of P that the row belongs to, to which rounding is compared */

  void Assign(size_t n)
  {
    for (std::vector<double> *sums : {&rs, &diagonal, &size}) sums->assign(n, 0.);
  }
};

/* Finds the first row of A that cannot be used, and the scale of the finest level; and w without zeros. */
void CMATCHCheckRows_Host(const CMATCHMatrix &, PetscReal sign, CMATCHStats *);
template <typename T>
void CMATCHFindScale_Host(const CMATCHMatrix &, CMATCHHierarchyHost<T> *);

/* Makes the finest level of A, and its sums. */
template <typename T>
void CMATCHFinest_Host(const CMATCHMatrix &, CMATCHHierarchyHost<T> *, CMATCHSums *, CMATCHStats *);

/* The operator that the matching of the finest level sees; with mis2 it is that of the level at hand, whose diagonal is d then. */
template <typename T>
CMATCHGraph CMATCHGraphOf_Host(const CMATCHArrays<T> &, const std::vector<double> &diagonal);

/* Gives level l these aggregates, which become rows of the next one as `transfer` says. */
template <typename T>
void CMATCHAdopt_Host(LocalInt l, CMATCHTransfer transfer, CMATCHAggregation *, CMATCHHierarchyHost<T> *);

/* Makes P from the aggregates, whose numbers of ghosts are below coarse + foreign, and R = P^T from P. */
template <typename T>
void CMATCHProlongator_Host(PetscBool keep, CMATCHLevel *, CMATCHArrays<T> *);
template <typename T>
void CMATCHRestriction_Host(const CMATCHLevel &, CMATCHArrays<T> *);

/* A P and A P 1 for the own rows of a level, and from them the rows of R A P. P has so many columns, with those of ghosts. */
template <typename T>
class CMATCHProducts {
public:
  CMATCHProducts(const CMATCHLevel &, const CMATCHArrays<T> &, const std::vector<double> &rs, LocalInt columns);
  double Row(LocalInt c, CMATCHSparseRow *, double *size) const;    /* gives the row sum, and adds to `size` that of CMATCHSums */
  void   MarkColumns(LocalInt rows, std::vector<char> *used) const; /* of the first rows */
  size_t Bytes() const { return CMATCHBytes(AP_i_) + CMATCHBytes(AP_j_) + CMATCHBytes(AP_a_) + 2 * CMATCHBytes(Ap_); }

private:
  const CMATCHArrays<T> &L_;
  std::vector<size_t>    AP_i_;
  std::vector<LocalInt>  AP_j_;
  std::vector<T>         AP_a_;
  std::vector<double>    Ap_;
};

/*
   Adds a summed row of the next level C to its entries, and sets its diagonal and row sum; without columns it is that of an
   aggregate that no row of P has kept, and gets an equation of its own.
*/
template <typename T>
PetscErrorCode CMATCHAddRow_Host(const CMATCHSparseRow &, LocalInt c, double rs, CMATCHArrays<T> *C, CMATCHSums *);

/*
   Computes s, d and l of level l whose entries are there; the row sum of a row that is all that is left of a singular component
   becomes 0. Returns the first row without a positive diagonal entry, or -1.
*/
template <typename T>
LocalInt CMATCHComplete_Host(LocalInt l, CMATCHHierarchyHost<T> *, CMATCHSums *, CMATCHStats *);

/* Lets level l show its arrays. */
template <typename T>
void CMATCHShow_Host(LocalInt l, CMATCHHierarchyHost<T> *);

/* What a set-up knows of its last level while it goes on. */
struct CMATCHProgress {
  PetscBool   keep = PETSC_FALSE;
  CMATCHSums  sums; /* of the level */
  CMATCHGraph M;    /* unless keep */
};

/* Makes the levels below level l, which is on one rank, and finishes the hierarchy. */
template <typename T>
PetscErrorCode CMATCHMakeLevels_Host(LocalInt l, CMATCHProgress *, CMATCHHierarchyHost<T> *, CMATCHStats *);

/* d_i + sum_{j != i} |a_ij| of a level */
template <typename T>
double CMATCHL1_Host(const CMATCHArrays<T> &L, LocalInt i)
{
  double l1 = (double)L.d[i];
  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) l1 += std::fabs((double)L.A_a[k]);
  return l1;
}

/* l of a level whose entries, row sums and diagonal are there, for a polynomial with this root */
template <typename T>
void CMATCHComputeL_Host(PetscReal root, CMATCHArrays<T> *L)
{
  L->l.resize(L->d.size());
  for (LocalInt i = 0; i < (LocalInt)L->d.size(); i++) {
    const double l1 = CMATCHL1_Host(*L, i);
    L->l[i]         = (T)((l1 != (double)L->d[i] ? 1 : L->s[i] == 0 ? 0 : root) / l1);
  }
}

/*
   Computes the factors of the levels that are smoothed, if the smoother has factors; with keep, their values alone. The factor of a
   level on several ranks is to be scaled then, by all ranks together and without new memory.
*/
template <typename T>
PetscErrorCode CMATCHFactorSmoothers_Host(PetscBool keep, CMATCHHierarchyHost<T> *, CMATCHStats *);
template <typename T>
PetscErrorCode CMATCHScaleFactor_Host(LocalInt level, CMATCHHierarchyHost<T> *, CMATCHStats *);
PetscErrorCode CMATCHDestroyFactors_Host(CMATCHHierarchy *);

/*
   The factor of level l and its d = 1 / psi from the rank's rows in i, j and a, of which `longest` is known, without the array d of
   the factor; with keep, its values alone. Sets the failure if there is none.
*/
PetscErrorCode CMATCHMakeFactor_Host(PetscBool keep, LocalInt l, CMATCHHierarchy *, CMATCHExpanded *, CMATCHStats *);

/*
   Finishes a hierarchy whose levels are complete: inverts the last level with row sums rs [n] if that is to be inverted and on one
   rank, makes the smoothers and the vectors, and counts the bytes.
*/
template <typename T>
PetscErrorCode CMATCHFinish_Host(const std::vector<double> &rs, PetscBool keep, CMATCHHierarchyHost<T> *, CMATCHStats *);

/* Destroys *H, unless it is kept, and makes an empty hierarchy in its place. */
template <typename T>
PetscErrorCode CMATCHCreate_Host(const CMATCHParams *, PetscBool keep, CMATCHHierarchy **);

/* ------------------------------------------- cycle -------------------------------------------- */

/* t = M^{-1} r for the factor of a level */
template <typename T>
void CMATCHApplyFactor_Host(const CMATCHFactor &, const std::vector<T> &r, std::vector<T> *t);
