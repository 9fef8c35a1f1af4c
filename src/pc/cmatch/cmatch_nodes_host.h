/*
   What the files of the host twin of hierarchies of nodes share. cmatch_nodes.h has the formulas, and the order of every sum. T is
   the precision of the hierarchy.

     cmatch_nodes_host.cxx           the finest level, aggregates, and the set-up as a whole
     cmatch_nodes_smoother_host.cxx  inverses of diagonal blocks, factors, and the estimate of the largest eigenvalue
     cmatch_nodes_prolong_host.cxx   the prolongator
     cmatch_nodes_galerkin_host.cxx  the Galerkin product
     cmatch_nodes_cycle_host.cxx     the cycle
     cmatch_nodes_host_ranks.cxx     the set-up of levels on several ranks
*/
#pragma once

#include <type_traits>

#include "cmatch_host.h"
#include "cmatch_ranks.h"

/* ------------------------------------------- blocks ------------------------------------------- */

template <int N>
using CMATCHSize = std::integral_constant<int, N>;

/*
   Calls f with the unknowns k of a node and those m of a node of the next level, which the compiler knows for the usual ones: loops
   over blocks are several times faster then. Otherwise they are 0, and f takes k and m themselves.
*/
template <typename F>
auto CMATCHForSizes(LocalInt k, LocalInt m, F f)
{
  if (k == 3 && m == 6) return f(CMATCHSize<3>(), CMATCHSize<6>());
  if (k == 6 && m == 6) return f(CMATCHSize<6>(), CMATCHSize<6>());
  if (k == 2 && m == 3) return f(CMATCHSize<2>(), CMATCHSize<3>());
  if (k == 3 && m == 3) return f(CMATCHSize<3>(), CMATCHSize<3>());
  return f(CMATCHSize<0>(), CMATCHSize<0>());
}

/* A row of blocks of a sparse product while it is summed up. */
class CMATCHBlockRow {
public:
  CMATCHBlockRow(LocalInt n, LocalInt size) : place_(n, -1), size_(size) { }

  std::vector<LocalInt> columns; /* in the order of their first sight, until they are sorted */

  /* The block of column c, which begins with 0. */
  double *At(LocalInt c)
  {
    if (place_[c] < 0) {
      place_[c] = (LocalInt)columns.size();
      columns.push_back(c);
      values_.resize(columns.size() * size_, 0.);
    }
    return &values_[(size_t)place_[c] * size_];
  }
  void Sort() { std::sort(columns.begin(), columns.end()); }
  void Clear()
  {
    for (LocalInt c : columns) place_[c] = -1;
    columns.clear();
    values_.clear();
  }

private:
  std::vector<LocalInt> place_;
  std::vector<double>   values_;
  LocalInt              size_;
};

/* C += A B for blocks [k][l] and [l][m] */
template <typename A, typename B>
void CMATCHAddProduct(LocalInt k, LocalInt l, LocalInt m, const A *a, const B *b, double *c)
{
  for (LocalInt r = 0; r < k; r++)
    for (LocalInt s = 0; s < l; s++)
      for (LocalInt q = 0; q < m; q++) c[r * m + q] += (double)a[r * l + s] * (double)b[s * m + q];
}

/*
   C += A B, where each product and its sum are rounded once: the matrix units of a GPU do so, and processors that are not old.
   Sizes that are not known are 0 as template arguments. With Transposed, A is [l][k].
*/
template <int K, int L, int M, bool Transposed, typename A, typename B>
inline __attribute__((always_inline)) void CMATCHAddFusedLoop(LocalInt known_k, LocalInt known_l, LocalInt known_m, const A *a,
                                                              const B *b, double *__restrict__ c)
{
  const LocalInt k = K ? K : known_k, l = L ? L : known_l, m = M ? M : known_m;
  for (LocalInt r = 0; r < k; r++)
    for (LocalInt s = 0; s < l; s++)
      for (LocalInt q = 0; q < m; q++)
        c[r * m + q] = __builtin_fma((double)a[Transposed ? s * k + r : r * l + s], (double)b[s * m + q], c[r * m + q]);
}

#if defined(__x86_64__) && !defined(__NVCOMPILER)
template <int K, int L, int M, bool Transposed, typename A, typename B>
__attribute__((target("avx2,fma"))) void CMATCHAddFusedByProcessor(LocalInt k, LocalInt l, LocalInt m, const A *a, const B *b,
                                                                   double *c)
{
  CMATCHAddFusedLoop<K, L, M, Transposed>(k, l, m, a, b, c);
}
#endif

template <int K, int L, int M, bool Transposed = false, typename A, typename B>
void CMATCHAddFused(LocalInt k, LocalInt l, LocalInt m, const A *a, const B *b, double *c)
{
#if defined(__x86_64__) && !defined(__NVCOMPILER)
  static const bool by_processor = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (by_processor) return CMATCHAddFusedByProcessor<K, L, M, Transposed>(k, l, m, a, b, c);
#endif
  CMATCHAddFusedLoop<K, L, M, Transposed>(k, l, m, a, b, c);
}

/* ---------------------------------------- the hierarchy --------------------------------------- */

/* The arrays that a CMATCHNodesLevel shows, which are explained there, and the vectors of the cycle. */
template <typename T>
struct CMATCHNodesArrays : CMATCHColumns {
  std::vector<LocalInt> A_i, A_j, R_i, R_j;
  std::vector<T>        A_a, D, P_a;
  std::vector<double>   B_c;
  std::vector<T>        factor_d;   /* of the level's factor, which has memory of its own */
  std::vector<T>        b, x, r, z; /* [n][k]; x and z have ghosts, too */
  std::vector<T>        t;          /* [n][k] M^{-1} r, on levels with a factor */

  /* on several ranks, as those of CMATCHArrays, but of nodes */
  std::vector<T> values, added;
  CMATCHNodeType type, coarse_type; /* of the vectors, and of those of the next level */
};

template <typename T>
struct CMATCHNodesHost : CMATCHNodes {
  CMATCHNodesArrays<T> arrays[kCMATCHMostLevels];
  PolynomialSteps      steps, stalled; /* of the smoother, and of the last level if that is not inverted */
};

/* A P of a level */
template <typename T>
struct CMATCHNodesProduct {
  std::vector<size_t>   i{0};
  std::vector<LocalInt> j;
  std::vector<T>        a;
};

/* What a set-up knows of its last level while it goes on. */
template <typename T>
struct CMATCHNodesSetUp {
  CMATCHHierarchyHost<T> *H;
  CMATCHNodesHost<T>     *N;
  CMATCHStats            *stats;
  PetscBool               keep, work;

  std::vector<double>   A       = {}; /* [blocks][k][k] */
  std::vector<double>   B       = {}; /* [n][k][m] the modes, 0 where an unknown is alone; of ghosts, too, until there is a graph */
  std::vector<double>   inverse = {}; /* [n][k][k] D^{-1} */
  std::vector<unsigned> alone   = {}; /* [n] a bit for each unknown */
  CMATCHGraph           M       = {}; /* of the finest level, and unless keep of others */

  CMATCHExpanded rows = {}; /* of which the level's factor is made, until that is scaled */

  /* of the estimate of lambda: [n][k], and p and q have ghosts, too */
  std::vector<double> r = {}, z = {}, p = {}, q = {};
  CMATCHNodeType      type = {}; /* of p and q, on several ranks */

  void Fail(CMATCHFailure failure, LocalInt l, LocalInt row) { CMATCHFail(failure, l, row, stats); }
  void Note(size_t bytes)
  {
    stats->work_bytes = PetscMax(stats->work_bytes, bytes + CMATCHBytes(A) + CMATCHBytes(B) + CMATCHBytes(inverse));
  }

  /* Whether the nodes of level l are those of the finest level: levels on several ranks may pass them on. */
  bool IsFinest(LocalInt l) const
  {
    for (LocalInt above = 0; above < l; above++)
      if (H->level[above].transfer != CMATCH_PASSED) return false;
    return true;
  }
  /* The unknowns of a node of the next level. */
  LocalInt Next(LocalInt l) const { return N->level[l + 1].k; }
};

/* The block of row i in column j, or -1 */
template <typename T>
LocalInt CMATCHFindBlock(const CMATCHNodesArrays<T> &L, LocalInt i, LocalInt j)
{
  const auto begin = L.A_j.begin() + L.A_i[i], end = L.A_j.begin() + L.A_i[i + 1], at = std::lower_bound(begin, end, j);

  return at != end && *at == j ? (LocalInt)(at - L.A_j.begin()) : -1;
}

/* Which unknowns of nodes with these modes [m][m] are dead, which count as alone. */
inline void CMATCHFindDead(LocalInt m, const std::vector<double> &B_c, std::vector<unsigned> *alone)
{
  alone->assign(B_c.size() / ((size_t)m * m), 0);
  for (size_t c = 0; c < alone->size(); c++)
    for (LocalInt p = 0; p < m; p++) (*alone)[c] |= (unsigned)(B_c[(c * m + p) * m + p] == 0) << p;
}

/* The values of ghosts of a level on several ranks, behind those of its own nodes. */
template <typename V>
PetscErrorCode CMATCHNodesHalo(const CMATCHLevel &level, const CMATCHNodeType &type, std::vector<V> *x)
{
  PetscFunctionBegin;
  PetscCall(ExchangeBegin(level.halo, type.Get(), x->data(), x->data() + level.n));
  PetscCall(ExchangeEnd(level.halo, type.Get(), x->data(), x->data() + level.n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- set-up ------------------------------------------- */

/* Begins a set-up, with an empty hierarchy in the place of *H unless it is kept. */
template <typename T>
PetscErrorCode CMATCHNodesBegin_Host(const CMATCHModes &, const CMATCHParams &, CMATCHHierarchy **H, CMATCHNodesSetUp<T> *);

/* Makes the finest level of A, with its graph. Ghosts of A are rows, and those of the level nodes. */
template <typename T>
PetscErrorCode CMATCHNodesFinest_Host(const CMATCHMatrix &A, const std::vector<GlobalInt> &ghost, const CMATCHModes &,
                                      CMATCHNodesSetUp<T> *);

/* Of a set-up with keep: counts how well the aggregates of the finest level fit. */
template <typename T>
void CMATCHNodesCountFit_Host(CMATCHNodesSetUp<T> *);

/* Finds aggregates of level l, with M on them, and gives the level such. */
template <typename T>
CMATCHAggregation CMATCHNodesAggregate_Host(LocalInt l, const CMATCHNodesSetUp<T> &, CMATCHGraph *M);
template <typename T>
void CMATCHNodesAdopt_Host(LocalInt l, CMATCHAggregation *, CMATCHNodesSetUp<T> *);

/*
   D^{-1} of a level and room for the smoother and its estimate; the estimate, which is one of all ranks of the level and takes no
   memory; and D, for the smoother with this polynomial. There may be a failure after each of the first two.
*/
template <typename T>
PetscErrorCode CMATCHNodesInvert_Host(LocalInt l, CMATCHNodesSetUp<T> *);
template <typename T>
PetscErrorCode CMATCHNodesEstimate_Host(LocalInt l, CMATCHNodesSetUp<T> *);
template <typename T>
void CMATCHNodesSmoother_Host(LocalInt l, const PolynomialSteps &, CMATCHNodesSetUp<T> *);
/*
   If the smoother has factors: that of a level whose D^{-1} is there, but for its scale, and its scale, as the estimate is one of
   all ranks of the level. There may be a failure after each.
*/
template <typename T>
PetscErrorCode CMATCHNodesFactor_Host(LocalInt l, CMATCHNodesSetUp<T> *);
template <typename T>
PetscErrorCode CMATCHNodesScaleFactor_Host(LocalInt l, CMATCHNodesSetUp<T> *);

/* The tentative prolongator Q [n + ghosts][k][m] of own nodes, and the modes of the next level. */
template <typename T>
std::vector<double> CMATCHNodesTentative_Host(LocalInt l, CMATCHNodesSetUp<T> *);
/* P of own nodes, from that of all, and the modes of all their aggregates; and R. */
template <typename T>
void CMATCHNodesProlong_Host(LocalInt l, const std::vector<double> &Q, CMATCHNodesSetUp<T> *);
template <typename T>
void CMATCHNodesRestriction_Host(LocalInt l, CMATCHNodesSetUp<T> *);

/* A P of own nodes, of so many columns; row c of R (A P), not sorted; and what follows for level l + 1 whose blocks are in A. */
template <typename T>
CMATCHNodesProduct<T> CMATCHNodesMultiply_Host(LocalInt l, LocalInt columns, const CMATCHNodesSetUp<T> &);
template <typename T>
void CMATCHNodesProductRow_Host(LocalInt l, LocalInt c, const CMATCHNodesSetUp<T> &, const CMATCHNodesProduct<T> &,
                                CMATCHBlockRow *);
template <typename T>
void CMATCHNodesComplete_Host(LocalInt l, CMATCHNodesSetUp<T> *);

/* Makes the levels below level l, which is on one rank; and counts the bytes of all, and makes their vectors. */
template <typename T>
PetscErrorCode CMATCHNodesMakeLevels_Host(LocalInt l, CMATCHNodesSetUp<T> *);
template <typename T>
PetscErrorCode CMATCHNodesFinish_Host(CMATCHNodesSetUp<T> *);

/* Lets level l show its arrays. */
template <typename T>
void CMATCHNodesShow_Host(LocalInt l, CMATCHNodesSetUp<T> *);
