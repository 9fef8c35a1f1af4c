/*
   This file and cmatch_cycle_host.cxx are the host twin of the files in cuda/pc/cmatch, in plain loops. The set-up is here. Both
   twins compute the same bits: every sum is in double and in the order of the loops below, every comparison has a rule for ties,
   and no product is fused with a sum. T is the precision of the hierarchy, and the papers are those that cmatch.h names.

   The finest level has A_0 = t W A W with W = diag(w), so that w, which A almost maps to 0, becomes the vector of ones. t is the
   power of 2 that makes the largest diagonal entry lie in [1/2, 1). Each operator is in difference form,

     (A x)_i = s_i x_i + sum_{j != i} a_ij (x_j - x_i),   d_i = s_i - sum_{j != i} a_ij,   l_i = 1 / (d_i + sum_{j != i} |a_ij|),

   where d_i is the diagonal entry. The row sums s are computed in double, before the entries are rounded to T. Hence the rounding
   of entries does not change what A makes of the ones, on which the solution of an almost singular system depends most.

   Aggregates. The weight of an edge is that of D'Ambra and Vassilevski, in whose words it measures how well the two rows of an
   aggregate of w represent the smooth vectors,

     â_ij = 1 - 2 a_ij w_i w_j / (a_ii w_i^2 + a_jj w_j^2) = 1 + c_ij,   c_ij = -2 m_ij / (m_ii + m_jj)   with M = W A W.

   An edge of c_ij <= 0 is never used. A row with sum_{j != i} |m_ij| < kCMATCHDominated m_ii is left: the smoother solves for it,
   and it is in no aggregate. A sweep makes pairs of vertices and joins single vertices to pairs:

     threshold   An edge is used if c_ij >= strength max_k c_ik and c_ij >= strength max_k c_jk. With a threshold at one end alone,
                 a vertex whose strong neighbours are taken would marry across a weak edge.
     size limit  Row i has the room clamp(2 x its used edges, kCMATCHLeastRoom, kCMATCHMostRoom), and an aggregate the largest room
                 of its rows. Edges whose ends have more rows together than the larger room of both are not used.
     handshake   In each round every free vertex chooses the free neighbour of the largest c_ij, and two that choose each other are
                 a pair. This is the locally dominant matching, in which each round is parallel. Equal weights are ordered by a
                 hash of the edge, since an order by numbers would make long chains of vertices that wait for each other.
     joining     In each of kCMATCHJoins rounds a free vertex chooses the pair at its largest c_ij that has room, and each pair
   takes the vertex that has chosen it with the largest weight. Vertices that stay free are aggregates of their own.

   The next sweep matches the aggregates by M <- P^T M P, where P has a 1 in each row. After the sweeps M is kept, and the matching
   of the next level begins with it. It has the aggregates of A's own graph, while the Galerkin operator of smoothed prolongators
   has rows that are several times longer.

   With mis2 an aggregate is instead a root and its neighbours, where the roots are a maximal set of vertices that are more than two
   edges apart. The other vertices join their heaviest neighbour's aggregate.

   Prolongator. The unsmoothed one has p_i,agg(i) = 1. The smoothed one takes a Jacobi step with the filtered operator A^F,

     P = (I - q A^F) P_unsmoothed,   q_i = omega / max(d^F_i, (d^F_i + sum |a_ij|) / 2),   omega = kCMATCHOmega,

   where A^F has the a_ij with -a_ij >= kCMATCHFilter max_k(-a_ik), and d^F_i is d_i plus the others. Its row sums are those of A.
   Only the prolongator_row largest entries of a row of P are kept, and they are scaled to keep their sum.

   Galerkin product. R = P^T and A_c = R (A P). The row sums are not read off the entries but carried on their own,

     s_c = R (A (P 1)),   (A p)_i = s_i p_i + sum_j a_ij (p_j - p_i),

   so that the coarse operators map the ones to almost 0 as A does. Unsmoothed aggregates make coarse corrections that are too
   small; A_c is divided by `overcorrection` then, but in the K-cycle, which finds the length of its corrections by itself.

   Smoothers, the coarsest level and cycles are explained in cmatch_cycle_host.cxx.
*/
#include <algorithm>
#include <cmath>

#include "cmatch_host.h"

namespace
{

/* A symmetric hash of the edge between a and b. */
uint32_t Mix(PetscInt a, PetscInt b)
{
  uint32_t h = ((uint32_t)PetscMin(a, b) * 0x9E3779B1u) ^ ((uint32_t)PetscMax(a, b) * 0x85EBCA77u);

  h ^= h >> 15;
  h *= 0x2C1B3C6Du;
  h ^= h >> 12;
  h *= 0x297A2D39u;
  return h ^ (h >> 15);
}

void Fail(CMATCHFailure failure, PetscInt level, PetscInt row, CMATCHStats *stats)
{
  stats->failure = failure;
  stats->level   = level;
  stats->row     = row;
}

/* A row of a sparse product while it is summed up: entry c of the row is sum[c] if c is among the columns. */
struct SparseRow {
  std::vector<double>   sum;
  std::vector<PetscInt> columns; /* in the order of their first sight */

  explicit SparseRow(PetscInt n) : sum(n, 0.), seen(n, 0) { }

  /* The entry of column c, which begins with 0. */
  double &At(PetscInt c)
  {
    if (!seen[c]) {
      seen[c] = 1;
      columns.push_back(c);
    }
    return sum[c];
  }

  bool Has(PetscInt c) const { return seen[c]; }

  void Sort() { std::sort(columns.begin(), columns.end()); }

  void Clear()
  {
    for (PetscInt c : columns) {
      sum[c]  = 0;
      seen[c] = 0;
    }
    columns.clear();
  }

private:
  std::vector<char> seen;
};

template <typename V>
size_t Bytes(const V &array)
{
  return array.size() * sizeof(array[0]);
}

/* ----------------------------------------- aggregates ----------------------------------------- */

/* The operator M that the matching sees, in single precision and with the diagonal apart. */
struct Graph {
  std::vector<PetscInt> i, j; /* columns ascending in a row */
  std::vector<float>    a, d;

  PetscInt n() const { return (PetscInt)d.size(); }
  size_t   Bytes() const { return (i.size() + j.size()) * sizeof(PetscInt) + (a.size() + d.size()) * sizeof(float); }
};

/* Aggregates of the rows of a level. */
struct Aggregation {
  std::vector<PetscInt> aggregate; /* -1 for rows that are left */
  PetscInt              coarse, left, joined;
};

/* Marks the rows that are left to the smoother. A sum that is not a number counts as small. */
std::vector<char> LeftRows(const Graph &M, PetscInt *count)
{
  std::vector<char> left(M.n());

  *count = 0;
  for (PetscInt i = 0; i < M.n(); i++) {
    double sum = 0;
    for (PetscInt k = M.i[i]; k < M.i[i + 1]; k++) sum += std::fabs((double)M.a[k]);
    left[i] = !(sum >= kCMATCHDominated * (double)M.d[i]);
    *count += left[i];
  }
  return left;
}

/* The weights c_ij of the edges that are used, and 0 for the others. */
std::vector<float> Weights(const Graph &M, float strength, const std::vector<char> &left)
{
  std::vector<float> c(M.j.size(), 0.f), largest(M.n(), 0.f);

  for (PetscInt i = 0; i < M.n(); i++) {
    for (PetscInt k = M.i[i]; k < M.i[i + 1]; k++) {
      const PetscInt j   = M.j[k];
      const float    den = M.d[i] + M.d[j];
      if (left[i] || left[j] || !(den > 0)) continue;
      const float weight = (-2.0f * M.a[k]) / den;
      if (!(weight > 0)) continue;
      c[k]       = weight;
      largest[i] = PetscMax(largest[i], weight);
    }
  }
  for (PetscInt i = 0; i < M.n(); i++)
    for (PetscInt k = M.i[i]; k < M.i[i + 1]; k++)
      if (c[k] < strength * largest[i] || c[k] < strength * largest[M.j[k]]) c[k] = 0;
  return c;
}

/* The best of the neighbours of a vertex: that of the largest weight, then of the largest hash, then of the smallest number. */
struct Choice {
  PetscInt who  = -1;
  float    c    = 0;
  uint32_t hash = 0;

  /* Takes neighbour j of i into account. The neighbours come in ascending order. */
  void Consider(PetscInt i, PetscInt j, float weight)
  {
    if (!(weight > 0) || weight < c) return;
    const uint32_t mix = Mix(i, j);
    if (who >= 0 && weight == c && mix <= hash) return;
    who  = j;
    c    = weight;
    hash = mix;
  }
};

/* The handshake: the mate of each vertex, or -1. */
std::vector<PetscInt> Match(const Graph &M, const std::vector<float> &c)
{
  std::vector<PetscInt> mate(M.n(), -1), choice(M.n());

  for (PetscInt round = 0; round < kCMATCHRounds; round++) {
    bool some = false;
    for (PetscInt i = 0; i < M.n(); i++) {
      Choice best;
      for (PetscInt k = M.i[i]; k < M.i[i + 1] && mate[i] < 0; k++)
        if (mate[M.j[k]] < 0) best.Consider(i, M.j[k], c[k]);
      choice[i] = best.who;
    }
    for (PetscInt i = 0; i < M.n(); i++) {
      const PetscInt j = choice[i];
      if (j <= i || choice[j] != i) continue;
      mate[i] = j;
      mate[j] = i;
      some    = true;
    }
    if (!some) break;
  }
  return mate;
}

/* What a sweep has made of the vertices. */
struct Sweep {
  std::vector<PetscInt> aggregate; /* [n] */
  std::vector<PetscInt> members;   /* [coarse][kCMATCHMembers] leader, mate, and those that joined by round, -1 for none */
  PetscInt              coarse, joined;
};

/*
   Lets free vertices join pairs and numbers the aggregates. The leader of a pair is the smaller one of both, and the aggregates
   have the order of their leaders.
*/
Sweep Join(const Graph &M, const std::vector<float> &c, const std::vector<PetscInt> &mate, const std::vector<PetscInt> &size,
           const std::vector<PetscInt> &room, const std::vector<char> &left)
{
  const PetscInt        n = M.n();
  std::vector<PetscInt> leader(n), slot(n, 0), load(n, 0), accepted(n);
  std::vector<float>    key(n);
  Sweep                 sweep{std::vector<PetscInt>(n, -1), {}, 0, 0};

  for (PetscInt i = 0; i < n; i++) {
    leader[i] = mate[i] >= 0 ? PetscMin(i, mate[i]) : i;
    slot[i]   = leader[i] != i;
    if (mate[i] >= 0) load[leader[i]] += size[i];
  }
  for (PetscInt round = 0; round < kCMATCHJoins; round++) {
    std::fill(accepted.begin(), accepted.end(), -1);
    for (PetscInt i = 0; i < n; i++) {
      if (mate[i] >= 0 || slot[i] || left[i]) continue;
      Choice best;
      for (PetscInt k = M.i[i]; k < M.i[i + 1]; k++) {
        const PetscInt j = M.j[k];
        if (mate[j] >= 0 && load[leader[j]] + size[i] <= PetscMax(room[i], room[j])) best.Consider(i, j, c[k]);
      }
      if (best.who < 0) continue;
      const PetscInt to = leader[best.who];
      if (accepted[to] >= 0 && !(best.c > key[to])) continue;
      accepted[to] = i;
      key[to]      = best.c;
    }
    for (PetscInt to = 0; to < n; to++) {
      const PetscInt i = accepted[to];
      if (i < 0) continue;
      leader[i] = to;
      slot[i]   = 2 + round;
      load[to] += size[i];
      sweep.joined++;
    }
  }
  for (PetscInt i = 0; i < n; i++)
    if (slot[i] == 0 && !left[i]) sweep.aggregate[i] = sweep.coarse++;
  sweep.members.assign((size_t)sweep.coarse * kCMATCHMembers, -1);
  for (PetscInt i = 0; i < n; i++) {
    if (left[i]) continue;
    sweep.aggregate[i]                                                   = sweep.aggregate[leader[i]];
    sweep.members[(size_t)sweep.aggregate[i] * kCMATCHMembers + slot[i]] = i;
  }
  return sweep;
}

/* P^T M P for the aggregates of a sweep, without the columns of vertices that are left. */
Graph Contract(const Graph &M, const Sweep &sweep)
{
  Graph     coarse;
  SparseRow row(sweep.coarse);

  coarse.i.push_back(0);
  for (PetscInt c = 0; c < sweep.coarse; c++) {
    double diagonal = 0;
    for (PetscInt slot = 0; slot < kCMATCHMembers; slot++) {
      const PetscInt i = sweep.members[(size_t)c * kCMATCHMembers + slot];
      if (i < 0) continue;
      diagonal += (double)M.d[i];
      for (PetscInt k = M.i[i]; k < M.i[i + 1]; k++) {
        const PetscInt to = sweep.aggregate[M.j[k]];
        if (to == c) diagonal += (double)M.a[k];
        else if (to >= 0) row.At(to) += (double)M.a[k];
      }
    }
    row.Sort();
    for (PetscInt to : row.columns) {
      coarse.j.push_back(to);
      coarse.a.push_back((float)row.sum[to]);
    }
    row.Clear();
    coarse.d.push_back((float)diagonal);
    coarse.i.push_back((PetscInt)coarse.j.size());
  }
  return coarse;
}

/* Sweeps of matching on M, which becomes the operator on the aggregates. */
Aggregation MatchingAggregates(const CMATCHParams &params, Graph *M, size_t *work_bytes)
{
  const PetscInt        n        = M->n();
  const bool            small    = n < kCMATCHSmall;
  const float           strength = (float)(small ? PetscMin(params.strength, kCMATCHSmallStrength) : params.strength);
  Aggregation           result{std::vector<PetscInt>(n), 0, 0, 0};
  std::vector<char>     left = LeftRows(*M, &result.left);
  std::vector<PetscInt> size(n, 1), room(n);

  if (result.left == n) return result;
  for (PetscInt i = 0; i < n; i++) result.aggregate[i] = i;
  for (PetscInt s = 0; s < params.sweeps; s++) {
    const PetscInt     vertices = M->n();
    std::vector<float> c        = Weights(*M, strength, left);
    for (PetscInt i = 0; i < vertices && s == 0; i++) {
      PetscInt used = 0;
      for (PetscInt k = M->i[i]; k < M->i[i + 1]; k++) used += c[k] > 0;
      room[i] = small ? 1 << 20 : PetscClipInterval(2 * used, kCMATCHLeastRoom, kCMATCHMostRoom);
    }
    for (PetscInt i = 0; i < vertices; i++)
      for (PetscInt k = M->i[i]; k < M->i[i + 1]; k++)
        if (size[i] + size[M->j[k]] > PetscMax(room[i], room[M->j[k]])) c[k] = 0;
    const Sweep sweep  = Join(*M, c, Match(*M, c), size, room, left);
    Graph       coarse = Contract(*M, sweep);
    *work_bytes        = PetscMax(*work_bytes, M->Bytes() + coarse.Bytes() + Bytes(c) + Bytes(sweep.members) +
                                                 vertices * (8 * sizeof(PetscInt) + sizeof(float) + 1));
    *M                 = std::move(coarse);
    result.joined += sweep.joined;

    std::vector<PetscInt> fine_size(sweep.coarse, 0), fine_room(sweep.coarse, 0);
    for (PetscInt i = 0; i < vertices; i++) {
      const PetscInt a = sweep.aggregate[i];
      if (a < 0) continue;
      fine_size[a] += size[i];
      fine_room[a] = PetscMax(fine_room[a], room[i]);
    }
    size.swap(fine_size);
    room.swap(fine_room);
    left.assign(sweep.coarse, 0);
    for (PetscInt &a : result.aggregate)
      if (a >= 0) a = sweep.aggregate[a];
    result.coarse = sweep.coarse;
    if (result.coarse == vertices || result.coarse <= params.coarse_size) break;
  }
  return result;
}

/* Aggregates around the roots of a maximal independent set of distance 2, which is found in the order of a hash. */
Aggregation RootAggregates(const CMATCHParams &params, const Graph &M, size_t *work_bytes)
{
  const PetscInt           n        = M.n();
  const float              strength = (float)(n < kCMATCHSmall ? PetscMin(params.strength, kCMATCHSmallStrength) : params.strength);
  Aggregation              result{std::vector<PetscInt>(n), 0, 0, 0};
  const std::vector<char>  left = LeftRows(M, &result.left);
  const std::vector<float> c    = Weights(M, strength, left);
  std::vector<PetscInt>    order, root(n, -1); /* the root of the aggregate that a vertex is in */
  std::vector<char>        near(n, 0);         /* roots and their neighbours */

  if (result.left == n) return result;
  for (PetscInt i = 0; i < n; i++)
    if (!left[i]) order.push_back(i);
  std::sort(order.begin(), order.end(), [](PetscInt i, PetscInt j) {
    const uint32_t key_i = Mix(i, i + 7), key_j = Mix(j, j + 7);
    return key_i != key_j ? key_i < key_j : i < j;
  });
  for (PetscInt i : order) {
    bool free = !near[i];
    for (PetscInt k = M.i[i]; k < M.i[i + 1] && free; k++) free = !(c[k] > 0 && near[M.j[k]]);
    if (!free) continue;
    root[i] = i;
    near[i] = 1;
    for (PetscInt k = M.i[i]; k < M.i[i + 1]; k++) {
      if (!(c[k] > 0)) continue;
      near[M.j[k]] = 1;
      if (root[M.j[k]] < 0) root[M.j[k]] = i;
    }
  }
  for (int pass = 0; pass < 2; pass++) {
    const std::vector<PetscInt> before = root;
    for (PetscInt i : order) {
      if (before[i] >= 0) continue;
      Choice best;
      for (PetscInt k = M.i[i]; k < M.i[i + 1]; k++)
        if (before[M.j[k]] >= 0) best.Consider(i, M.j[k], c[k]);
      if (best.who < 0) continue;
      root[i] = before[best.who];
      result.joined++;
    }
  }
  for (PetscInt i : order)
    if (root[i] < 0) root[i] = i;
  for (PetscInt i = 0; i < n; i++)
    if (root[i] == i) result.aggregate[i] = result.coarse++;
  for (PetscInt i = 0; i < n; i++) result.aggregate[i] = left[i] ? -1 : result.aggregate[root[i]];
  *work_bytes = PetscMax(*work_bytes, M.Bytes() + Bytes(c) + n * (3 * sizeof(PetscInt) + 2));
  return result;
}

/* ------------------------------------------ a level ------------------------------------------- */

/*
   Computes s, d and l of a level whose entries are there, from its row sums. Where rounding leaves no positive difference,
   `diagonal` is taken instead, which was summed up with the entries. Returns the first row without a positive diagonal entry, or
   -1.
*/
template <typename T>
PetscInt Complete(const std::vector<double> &rs, const std::vector<double> &diagonal, CMATCHArrays<T> *L)
{
  const PetscInt n   = (PetscInt)rs.size();
  PetscInt       bad = -1;

  for (auto *array : {&L->s, &L->d, &L->l}) array->resize(n);
  for (PetscInt i = 0; i < n; i++) {
    double others = 0;
    for (PetscInt k = L->A_i[i]; k < L->A_i[i + 1]; k++) others += (double)L->A_a[k];
    L->s[i] = (T)rs[i];
    L->d[i] = (T)(rs[i] - others);
    if (!(L->d[i] > 0) || !std::isfinite(L->d[i])) L->d[i] = (T)diagonal[i];
    if (bad < 0 && (!(L->d[i] > 0) || !std::isfinite(L->d[i]))) bad = i;
    double l1 = (double)L->d[i];
    for (PetscInt k = L->A_i[i]; k < L->A_i[i + 1]; k++) l1 += std::fabs((double)L->A_a[k]);
    L->l[i] = (T)(1 / l1);
  }
  return bad;
}

/* Finds the first row of A that cannot be used. */
void CheckRows(const CSRView *A, const PetscScalar *w, CMATCHStats *stats)
{
  for (PetscInt i = 0; i < A->n; i++) {
    bool               finite   = !w || std::isfinite(w[i]);
    const PetscScalar *diagonal = nullptr;
    for (PetscInt k = A->i[i]; k < A->i[i + 1]; k++) {
      finite = finite && std::isfinite(A->a[k]);
      if (A->j[k] == i) diagonal = &A->a[k];
    }
    if (!finite) return Fail(CMATCH_NOT_FINITE, 0, i, stats);
    if (!diagonal) return Fail(CMATCH_DIAGONAL_MISSING, 0, i, stats);
    if (!(*diagonal > 0)) return Fail(CMATCH_DIAGONAL_NOT_POSITIVE, 0, i, stats);
  }
}

/* The scale of the finest level. */
template <typename T>
void FindScale(const CSRView *A, const PetscScalar *w, CMATCHHierarchyHost<T> *H)
{
  double largest  = 0;
  int    exponent = 0;

  H->w_kept.clear();
  if (w) H->w_kept.assign(w, w + A->n);
  for (PetscScalar &entry : H->w_kept)
    if (entry == 0) entry = 1;
  H->w = w ? H->w_kept.data() : nullptr;
  for (PetscInt i = 0; i < A->n; i++)
    for (PetscInt k = A->i[i]; k < A->i[i + 1]; k++)
      if (A->j[k] == i) largest = PetscMax(largest, w ? A->a[k] * H->w[i] * H->w[i] : A->a[k]);
  if (largest > 0 && std::isfinite(largest)) std::frexp(largest, &exponent);
  H->scale = std::ldexp(1., -exponent);
}

/* Makes the finest level of A, and its row sums and diagonal. */
template <typename T>
void Finest(const CSRView *A, const PetscScalar *w, CMATCHHierarchyHost<T> *H, std::vector<double> *rs,
            std::vector<double> *diagonal, CMATCHStats *stats)
{
  CMATCHArrays<T> *const L   = &H->arrays[0];
  PetscInt               bad = -1; /* the first row with an entry that is too large */

  CheckRows(A, w, stats);
  if (stats->failure) return;
  FindScale(A, w, H);
  rs->assign(A->n, 0.);
  diagonal->assign(A->n, 0.);
  L->A_i.assign(1, 0);
  L->A_j.clear();
  L->A_a.clear();
  for (PetscInt i = 0; i < A->n; i++) {
    for (PetscInt k = A->i[i]; k < A->i[i + 1]; k++) {
      const PetscInt j     = A->j[k];
      const double   value = w ? (A->a[k] * H->scale) * (H->w[i] * H->w[j]) : A->a[k] * H->scale;
      (*rs)[i] += value;
      if (j == i) {
        (*diagonal)[i] = value;
        continue;
      }
      L->A_j.push_back(j);
      L->A_a.push_back((T)value);
      if (bad < 0 && !std::isfinite((T)value)) bad = i;
    }
    L->A_i.push_back((PetscInt)L->A_j.size());
  }
  const PetscInt row = Complete(*rs, *diagonal, L);
  if (bad < 0 || (row >= 0 && row < bad)) bad = row;
  if (bad >= 0) Fail(CMATCH_TOO_LARGE, 0, bad, stats);
}

/* -------------------------------------- the prolongator --------------------------------------- */

/*
   A row of the smoothed prolongator. Without `keep` its columns are found, with `keep` the columns that are there get new values.
*/
template <typename T>
void ProlongatorRow(const CMATCHArrays<T> &L, PetscInt i, PetscBool keep, PetscInt width, PetscInt *P_j, T *P_a, SparseRow *v,
                    CMATCHLevel *level)
{
  const PetscInt own     = L.aggregate[i];
  T              largest = 0;
  double         others  = 0, l1, S;

  for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) largest = PetscMax(largest, -L.A_a[k]);
  const T    least = (T)kCMATCHFilter * largest;
  const auto kept  = [&](PetscInt k) { return largest == 0 || !(-L.A_a[k] < least); };

  for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++)
    if (!kept(k)) others += (double)L.A_a[k];
  const double d  = (double)L.d[i];
  const double dF = d + others > kCMATCHLeastDiagonal * d ? d + others : d;
  l1              = std::fabs(dF);
  for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++)
    if (kept(k)) l1 += std::fabs((double)L.A_a[k]);
  const double D = PetscMax(dF, 0.5 * l1);
  const double q = kCMATCHOmega / (D > 0 ? D : 1.);

  S          = dF;
  v->At(own) = 1 - q * dF;
  for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
    const PetscInt to = L.aggregate[L.A_j[k]];
    if (to < 0 || !kept(k)) continue;
    S += (double)L.A_a[k];
    v->At(to) -= q * (double)L.A_a[k];
  }

  /*
     The columns of the row, and whether the row is cut, which scales it. A row that has its columns already is cut if one of them
     is missing.
  */
  std::vector<PetscInt> take;
  bool                  cut = false;
  if (keep) {
    take.assign(P_j, std::find(P_j, P_j + width, -1));
    for (PetscInt c : v->columns) cut = cut || (v->sum[c] != 0 && !std::binary_search(take.begin(), take.end(), c));
  } else {
    for (PetscInt c : v->columns)
      if (v->sum[c] != 0) take.push_back(c);
    cut = take.size() > (size_t)width;
    if (cut) {
      std::sort(take.begin(), take.end(), [&](PetscInt a, PetscInt b) {
        const double   size_a = std::fabs(v->sum[a]), size_b = std::fabs(v->sum[b]);
        const uint32_t mix_a = Mix(i, a), mix_b = Mix(i, b);
        return size_a != size_b ? size_a > size_b : mix_a != mix_b ? mix_a > mix_b : a < b;
      });
      take.resize(width);
    }
    std::sort(take.begin(), take.end());
  }
  double sum = 0, factor = 1;
  bool   plain = take.empty();
  if (cut) {
    for (PetscInt c : take) sum += v->sum[c];
    factor = (1 - q * S) / sum;
    plain  = plain || !(factor > 0 && factor <= kCMATCHMostScaling);
  }
  if (plain && !keep) take.assign(1, own);
  for (size_t e = 0; e < take.size(); e++) {
    P_j[e] = take[e];
    P_a[e] = plain ? (T)(take[e] == own) : (T)(cut ? v->sum[take[e]] * factor : v->sum[take[e]]);
  }
  level->plain += plain;
  level->cut += cut && !plain;
  v->Clear();
}

/* Makes P from the aggregates, and R = P^T. */
template <typename T>
void Prolongator(const CMATCHParams &params, PetscBool keep, CMATCHLevel *level, CMATCHArrays<T> *L)
{
  const PetscInt n = level->n, width = level->width;
  SparseRow      v(level->coarse);

  level->cut = level->plain = 0;
  if (!keep) L->P_j.assign((size_t)n * width, -1);
  L->P_a.assign((size_t)n * width, (T)0);
  for (PetscInt i = 0; i < n; i++) {
    PetscInt *const P_j = &L->P_j[(size_t)i * width];
    T *const        P_a = &L->P_a[(size_t)i * width];
    if (L->aggregate[i] < 0) continue;
    if (params.smoothed_prolongator) ProlongatorRow(*L, i, keep, width, P_j, P_a, &v, level);
    else {
      P_j[0] = L->aggregate[i];
      P_a[0] = 1;
    }
  }

  L->R_i.assign(level->coarse + 1, 0);
  for (PetscInt c : L->P_j)
    if (c >= 0) L->R_i[c + 1]++;
  for (PetscInt c = 0; c < level->coarse; c++) L->R_i[c + 1] += L->R_i[c];
  L->R_j.resize(L->R_i[level->coarse]);
  L->R_a.resize(L->R_i[level->coarse]);
  std::vector<PetscInt> next(L->R_i.begin(), L->R_i.end() - 1);
  for (size_t e = 0; e < L->P_j.size(); e++) {
    if (L->P_j[e] < 0) continue;
    const PetscInt to = next[L->P_j[e]]++;
    L->R_j[to]        = (PetscInt)(e / width);
    L->R_a[to]        = L->P_a[e];
  }
}

/* ------------------------------------ the Galerkin product ------------------------------------ */

/*
   Makes the entries of the next level C from level L. Its row sums replace rs, and its diagonal as the products give it replaces
   `diagonal`.
*/
template <typename T>
PetscErrorCode Galerkin(PetscReal factor, const CMATCHArrays<T> &L, CMATCHArrays<T> *C, std::vector<double> *rs,
                        std::vector<double> *diagonal, size_t *work_bytes)
{
  const PetscInt        n = (PetscInt)L.d.size(), coarse = (PetscInt)L.R_i.size() - 1, width = n ? (PetscInt)(L.P_j.size() / n) : 0;
  std::vector<double>   p(n, 0.), rs_coarse(coarse, 0.);
  std::vector<size_t>   AP_i(1, 0);
  std::vector<PetscInt> AP_j;
  std::vector<T>        AP_a;
  SparseRow             row(coarse);

  PetscFunctionBegin;
  for (PetscInt i = 0; i < n; i++)
    for (PetscInt e = 0; e < width; e++) p[i] += (double)L.P_a[(size_t)i * width + e];
  for (PetscInt i = 0; i < n; i++) {
    double     y   = (*rs)[i] * p[i];
    const auto add = [&](double a, PetscInt from) {
      for (size_t e = (size_t)from * width; e < (size_t)(from + 1) * width && L.P_j[e] >= 0; e++)
        row.At(L.P_j[e]) += a * (double)L.P_a[e];
    };
    add((double)L.d[i], i);
    for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      y += (double)L.A_a[k] * (p[L.A_j[k]] - p[i]);
      add((double)L.A_a[k], L.A_j[k]);
    }
    (*rs)[i] = y;
    for (PetscInt c : row.columns) {
      AP_j.push_back(c);
      AP_a.push_back((T)row.sum[c]);
    }
    row.Clear();
    AP_i.push_back(AP_j.size());
  }

  C->A_i.assign(1, 0);
  C->A_j.clear();
  C->A_a.clear();
  diagonal->assign(coarse, 0.);
  for (PetscInt c = 0; c < coarse; c++) {
    for (PetscInt k = L.R_i[c]; k < L.R_i[c + 1]; k++) {
      const double   a = (double)L.R_a[k];
      const PetscInt i = L.R_j[k];
      rs_coarse[c] += a * (*rs)[i];
      for (size_t e = AP_i[i]; e < AP_i[i + 1]; e++) row.At(AP_j[e]) += a * (double)AP_a[e];
    }
    row.Sort();
    for (PetscInt to : row.columns) {
      const double value = row.sum[to] * factor;
      if (to == c) {
        (*diagonal)[c] = value;
        continue;
      }
      C->A_j.push_back(to);
      C->A_a.push_back((T)value);
    }
    row.Clear();
    rs_coarse[c] *= factor;
    /* An aggregate that no row of P has kept gets an equation of its own. */
    if (L.R_i[c] == L.R_i[c + 1]) rs_coarse[c] = 1;
    PetscCheck(C->A_j.size() <= (size_t)PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "A coarse operator has more entries than PetscInt can count: lower -pc_cmatch_prolongator_row");
    C->A_i.push_back((PetscInt)C->A_j.size());
  }
  *work_bytes = PetscMax(*work_bytes, Bytes(AP_i) + Bytes(AP_j) + Bytes(AP_a) + 2 * Bytes(p) + 2 * Bytes(rs_coarse));
  rs->swap(rs_coarse);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------------- the hierarchy --------------------------------------- */

/* Lets level l show its arrays. */
template <typename T>
void Show(PetscInt l, CMATCHHierarchyHost<T> *H)
{
  CMATCHArrays<T> &from = H->arrays[l];
  CMATCHLevel     &to   = H->level[l];

  to.n         = (PetscInt)from.d.size();
  to.nnz       = (PetscInt)from.A_j.size();
  to.A_i       = from.A_i.data();
  to.A_j       = from.A_j.data();
  to.A_a       = from.A_a.data();
  to.s         = from.s.data();
  to.d         = from.d.data();
  to.l         = from.l.data();
  to.aggregate = from.aggregate.data();
  to.P_j       = from.P_j.data();
  to.P_a       = from.P_a.data();
  to.R_i       = from.R_i.data();
  to.R_j       = from.R_j.data();
  to.R_a       = from.R_a.data();
  to.P_nnz     = (PetscInt)from.R_j.size();
}

/*
   Finds the aggregates of level l. M is the operator that the matching sees, and becomes that of the next level. Returns false if
   the coarsening ends here.
*/
template <typename T>
bool Coarsen(PetscInt l, CMATCHHierarchyHost<T> *H, Graph *M, size_t *work_bytes)
{
  const CMATCHParams &params = H->params;
  CMATCHArrays<T>    &L      = H->arrays[l];
  CMATCHLevel        &level  = H->level[l];

  if (level.n <= params.coarse_size || l + 1 == params.max_levels) {
    H->end = level.n <= params.coarse_size ? CMATCH_END_SIZE : CMATCH_END_LEVELS;
    return false;
  }
  if (params.coarsening == PC_CMATCH_MIS2) {
    M->i = L.A_i;
    M->j = L.A_j;
    M->a.assign(L.A_a.begin(), L.A_a.end());
    M->d.assign(L.d.begin(), L.d.end());
  }
  Aggregation found =
    params.coarsening == PC_CMATCH_MIS2 ? RootAggregates(params, *M, work_bytes) : MatchingAggregates(params, M, work_bytes);
  level.left = found.left;
  if (found.left == level.n || found.coarse >= kCMATCHStall * (level.n - found.left)) {
    H->end = found.left == level.n ? CMATCH_END_DOMINATED : CMATCH_END_STALLED;
    return false;
  }
  std::vector<PetscInt> rows(found.coarse, 0);
  for (PetscInt a : found.aggregate)
    if (a >= 0) rows[a]++;
  level.coarse  = found.coarse;
  level.width   = params.smoothed_prolongator ? params.prolongator_row : 1;
  level.joined  = found.joined;
  level.largest = *std::max_element(rows.begin(), rows.end());
  level.singles = (PetscInt)std::count(rows.begin(), rows.end(), 1);
  L.aggregate   = std::move(found.aggregate);
  return true;
}

template <typename T>
PetscErrorCode Compute(const CSRView *A, const PetscScalar *w, PetscBool keep, CMATCHHierarchyHost<T> *H, CMATCHStats *stats)
{
  const CMATCHParams &params = H->params;
  const PetscReal     factor = params.smoothed_prolongator || params.cycle == PC_CMATCH_K ? 1 : 1 / params.overcorrection;
  std::vector<double> rs, diagonal;
  Graph               M;

  PetscFunctionBegin;
  Finest(A, w, H, &rs, &diagonal, stats);
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  Show(0, H);
  if (!keep && params.coarsening == PC_CMATCH_MATCHING) {
    M.i = H->arrays[0].A_i;
    M.j = H->arrays[0].A_j;
    M.a.assign(H->arrays[0].A_a.begin(), H->arrays[0].A_a.end());
    M.d.assign(diagonal.begin(), diagonal.end());
  }
  for (PetscInt l = 0;; l++) {
    if (keep ? l + 1 == H->levels : !Coarsen(l, H, &M, &stats->work_bytes)) {
      H->levels = l + 1;
      break;
    }
    Prolongator(params, keep, &H->level[l], &H->arrays[l]);
    Show(l, H);
    PetscCall(Galerkin(factor, H->arrays[l], &H->arrays[l + 1], &rs, &diagonal, &stats->work_bytes));
    const PetscInt bad = Complete(rs, diagonal, &H->arrays[l + 1]);
    Show(l + 1, H);
    if (bad >= 0) {
      Fail(CMATCH_DIAGONAL_NOT_POSITIVE, l + 1, bad, stats);
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  stats->end = H->end;
  PetscCall(CMATCHFinish_Host(rs, H, stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes an empty hierarchy of precision T in the place of *H, unless *H is to be kept, and computes it. */
template <typename T>
PetscErrorCode Create(const CSRView *A, const PetscScalar *w, const CMATCHParams *params, PetscBool keep, CMATCHHierarchy **H,
                      CMATCHStats *stats)
{
  PetscFunctionBegin;
  if (!keep) {
    PetscCall(CMATCHDestroy_Host(H));
    *H           = new CMATCHHierarchyHost<T>();
    (*H)->params = *params;
    (*H)->where  = PETSC_MEMTYPE_HOST;
  }
  PetscCall(Compute(A, w, keep, static_cast<CMATCHHierarchyHost<T> *>(*H), stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHComputeHierarchy_Host(const CSRView *A, const PetscScalar *w, const CMATCHParams *params, PetscBool keep,
                                           PetscBool, CMATCHHierarchy **H, CMATCHStats *stats)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  PetscCheck(params->smoother != PC_CMATCH_SFSAI && params->smoother != PC_CMATCH_AFSAI, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "The smoothers sfsai and afsai are not available yet: use -pc_cmatch_smoother l1jacobi, chebyshev or chebyshev4");
  if (params->precision == FINEPC_SINGLE) PetscCall(Create<float>(A, w, params, keep, H, stats));
  else PetscCall(Create<double>(A, w, params, keep, H, stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDestroy_Host(CMATCHHierarchy **H)
{
  PetscFunctionBegin;
  if (!*H) PetscFunctionReturn(PETSC_SUCCESS);
  if ((*H)->params.precision == FINEPC_SINGLE) delete static_cast<CMATCHHierarchyHost<float> *>(*H);
  else delete static_cast<CMATCHHierarchyHost<double> *>(*H);
  *H = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}
