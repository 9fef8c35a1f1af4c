/*
   This file is the host twin of cuda/pc/cmatch/cmatch_aggregate.cu: the aggregates of a level, in plain loops. Both twins find the
   same ones, by the rules for sums and ties that cmatch_host.cxx names.

   The weight of an edge is that of D'Ambra and Vassilevski. It is the energy, relative to the diagonal, of the vector on the two
   ends of the edge that is orthogonal to w. The larger it is, the better a smoother reduces what a coarse space without this vector
   leaves,

     â_ij = 1 - 2 a_ij w_i w_j / (a_ii w_i^2 + a_jj w_j^2) = 1 + c_ij,   c_ij = -2 m_ij / (m_ii + m_jj)   with M = W A W.

   An edge of c_ij <= 0 is never used. A row with sum_{j != i} |m_ij| < kCMATCHDominated m_ii is left: the smoother solves for it,
   and it is in no aggregate. A sweep makes pairs of vertices and joins single vertices to pairs:

     threshold   An edge is used if c_ij >= strength max_k c_ik and c_ij >= strength max_k c_jk. With a threshold at one end alone,
                 a vertex whose strong neighbours are taken would marry across a weak edge.
     size limit  Row i has the room clamp(2 x (its used edges + 1), kCMATCHLeastRoom, kCMATCHMostRoom), and an aggregate the
                 largest room of its rows. Edges whose ends have more rows together than the larger room of both are not used.
     handshake   In each round every free vertex chooses the free neighbour of the largest c_ij, and two that choose each other are
                 a pair. This is the locally dominant matching, in which each round is parallel. Equal weights are ordered by a
                 hash of the edge, since an order by numbers would make long chains of vertices that wait for each other.
     joining     In each of kCMATCHJoins rounds a free vertex chooses the pair with room at its largest c_ij, and each pair takes
                 the vertex that has chosen it with the largest weight. Vertices that stay free are aggregates of their own.

   The next sweep matches the aggregates by M <- P^T M P, where P has a 1 in each row. After the sweeps M is kept, and the matching
   of the next level begins with it. It has the aggregates of A's own graph, while the Galerkin operator of smoothed prolongators
   has rows that are several times longer.

   On several ranks each rank does this with its own vertices, without any message. A vertex of another rank is in no pair, and its
   edge has the weight -m_ij / m_ii, as if the other vertex had the same diagonal. The edge counts in the row's sum, in the largest
   c_ik of the row, and, if that allows, among its used edges. Vertices of other ranks stay single in all sweeps.

   With mis2 an aggregate is instead a root and its neighbours, where the roots are a maximal set of vertices that are more than two
   edges apart. The other vertices join their heaviest neighbour's aggregate. Of rows, each level is coarsened by its own operator;
   of nodes, the next level has P^T M P, as after a sweep of matching.
*/
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cmatch_host.h"

namespace
{

/* ---------------------------------------- what is used ---------------------------------------- */

/*
   Marks the rows that are left to the smoother. A sum that is not a number counts as small. A component that is a single vertex is
   left, whatever rounding has made of its diagonal entry.
*/
std::vector<char> LeftRows(const CMATCHGraph &M, LocalInt *count)
{
  std::vector<char> left(M.n());

  *count = 0;
  for (LocalInt i = 0; i < M.n(); i++) {
    double sum = 0;
    for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++) sum += std::fabs((double)M.a[k]);
    left[i] = !(sum > 0 && sum >= kCMATCHDominated * (double)M.d[i]);
    *count += left[i];
  }
  return left;
}

/* The weights c_ij of the edges that are used, and 0 for the others. Edges to other ranks, which count alone, have -c_ij. */
std::vector<float> Weights(const CMATCHGraph &M, float strength, const std::vector<char> &left)
{
  const LocalInt     n = M.n();
  std::vector<float> c(M.j.size(), 0.f), largest(M.n(), 0.f);

  for (LocalInt i = 0; i < M.n(); i++) {
    for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++) {
      const LocalInt j   = M.j[k];
      const float    den = M.d[i] + M.d[j < n ? j : i];
      if (left[i] || (j < n && left[j]) || !(den > 0)) continue;
      const float weight = (-2.0f * M.a[k]) / den;
      if (!(weight > 0)) continue;
      c[k]       = j < n ? weight : -weight;
      largest[i] = PetscMax(largest[i], weight);
    }
  }
  for (LocalInt i = 0; i < M.n(); i++)
    for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++)
      if (M.j[k] >= n ? -c[k] < strength * largest[i] : c[k] < strength * largest[i] || c[k] < strength * largest[M.j[k]]) c[k] = 0;
  return c;
}

/* ------------------------------------------ matching ------------------------------------------ */

/* The best of the neighbours of a vertex: that of the largest weight, then of the largest hash, then of the smallest number. */
struct Choice {
  LocalInt who  = -1;
  float    c    = 0;
  uint32_t hash = 0;

  /* Takes neighbour j of i into account. The neighbours come in ascending order. */
  void Consider(LocalInt i, LocalInt j, float weight)
  {
    if (!(weight > 0) || weight < c) return;
    const uint32_t mix = CMATCHMix(i, j);
    if (who >= 0 && weight == c && mix <= hash) return;
    who  = j;
    c    = weight;
    hash = mix;
  }
};

/* The handshake: the mate of each vertex, or -1. */
std::vector<LocalInt> Match(const CMATCHGraph &M, const std::vector<float> &c)
{
  std::vector<LocalInt> mate(M.n(), -1), choice(M.n());

  for (LocalInt round = 0; round < kCMATCHRounds; round++) {
    bool some = false;
    for (LocalInt i = 0; i < M.n(); i++) {
      Choice best;
      for (LocalInt k = M.i[i]; k < M.i[i + 1] && mate[i] < 0; k++)
        if (c[k] > 0 && mate[M.j[k]] < 0) best.Consider(i, M.j[k], c[k]);
      choice[i] = best.who;
    }
    for (LocalInt i = 0; i < M.n(); i++) {
      const LocalInt j = choice[i];
      if (j <= i || choice[j] != i) continue;
      mate[i] = j;
      mate[j] = i;
      some    = true;
    }
    if (!some) break;
  }
  return mate;
}

/* The members of each aggregate, in the order in which their rows are added up. */
struct CMATCHMemberLists {
  std::vector<LocalInt> start{0}, list;
};

/* What a sweep has made of the vertices. */
struct Sweep {
  std::vector<LocalInt> aggregate; /* [n] */
  CMATCHMemberLists     members;   /* leader, mate, and those that joined by round */
  LocalInt              coarse, joined;
};

/*
   Lets free vertices join pairs and numbers the aggregates. The leader of a pair is the smaller one of both, and the aggregates
   have the order of their leaders.
*/
Sweep Join(const CMATCHGraph &M, const std::vector<float> &c, const std::vector<LocalInt> &mate, const std::vector<LocalInt> &size,
           const std::vector<LocalInt> &room, const std::vector<char> &left)
{
  const LocalInt        n = M.n();
  std::vector<LocalInt> leader(n), slot(n, 0), load(n, 0), accepted(n);
  std::vector<float>    key(n);
  Sweep                 sweep{std::vector<LocalInt>(n, -1), {}, 0, 0};
  std::vector<LocalInt> members;

  for (LocalInt i = 0; i < n; i++) {
    leader[i] = mate[i] >= 0 ? PetscMin(i, mate[i]) : i;
    slot[i]   = leader[i] != i;
    if (mate[i] >= 0) load[leader[i]] += size[i];
  }
  for (LocalInt round = 0; round < kCMATCHJoins; round++) {
    std::fill(accepted.begin(), accepted.end(), -1);
    for (LocalInt i = 0; i < n; i++) {
      if (mate[i] >= 0 || slot[i] || left[i]) continue;
      Choice best;
      for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++) {
        const LocalInt j = M.j[k];
        if (c[k] > 0 && mate[j] >= 0 && load[leader[j]] + size[i] <= PetscMax(room[i], room[j])) best.Consider(i, j, c[k]);
      }
      if (best.who < 0) continue;
      const LocalInt to = leader[best.who];
      if (accepted[to] >= 0 && !(best.c > key[to])) continue;
      accepted[to] = i;
      key[to]      = best.c;
    }
    for (LocalInt to = 0; to < n; to++) {
      const LocalInt i = accepted[to];
      if (i < 0) continue;
      leader[i] = to;
      slot[i]   = 2 + round;
      load[to] += size[i];
      sweep.joined++;
    }
  }
  for (LocalInt i = 0; i < n; i++)
    if (slot[i] == 0 && !left[i]) sweep.aggregate[i] = sweep.coarse++;
  members.assign((size_t)sweep.coarse * kCMATCHMembers, -1);
  for (LocalInt i = 0; i < n; i++) {
    if (left[i]) continue;
    sweep.aggregate[i]                                             = sweep.aggregate[leader[i]];
    members[(size_t)sweep.aggregate[i] * kCMATCHMembers + slot[i]] = i;
  }
  for (LocalInt at = 0; at < (LocalInt)members.size(); at++) {
    if (members[at] >= 0) sweep.members.list.push_back(members[at]);
    if ((at + 1) % kCMATCHMembers == 0) sweep.members.start.push_back((LocalInt)sweep.members.list.size());
  }
  return sweep;
}

/*
   P^T M P for aggregates, without the columns of vertices that are left. The diagonal of nodes is instead the sum of the positive
   weights of the row.
*/
CMATCHGraph Contract(const CMATCHGraph &M, const std::vector<LocalInt> &aggregate, const CMATCHMemberLists &members, bool nodes)
{
  const LocalInt  n = M.n(), aggregates = (LocalInt)members.start.size() - 1;
  CMATCHGraph     coarse;
  CMATCHSparseRow row(aggregates + M.foreign);

  coarse.foreign = M.foreign;
  coarse.i.push_back(0);
  for (LocalInt c = 0; c < aggregates; c++) {
    double diagonal = 0;
    for (LocalInt at = members.start[c]; at < members.start[c + 1]; at++) {
      const LocalInt i = members.list[at];
      diagonal += (double)M.d[i];
      for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++) {
        const LocalInt to = M.j[k] < n ? aggregate[M.j[k]] : aggregates + M.j[k] - n;
        if (to == c) diagonal += (double)M.a[k];
        else if (to >= 0) row.At(to) += (double)M.a[k];
      }
    }
    row.Sort();
    if (nodes) diagonal = 0;
    for (LocalInt to : row.columns) {
      coarse.j.push_back(to);
      coarse.a.push_back((float)row.sum[to]);
      if (nodes && row.sum[to] < 0) diagonal -= row.sum[to];
    }
    row.Clear();
    coarse.d.push_back((float)diagonal);
    coarse.i.push_back((LocalInt)coarse.j.size());
  }
  return coarse;
}

/* Sweeps of matching on M, which becomes the operator on the aggregates, without the vertices that are left. */
CMATCHAggregation Sweeps(const CMATCHMatching &matching, std::vector<char> left, CMATCHGraph *M, size_t *work_bytes)
{
  const LocalInt        n = M->n();
  CMATCHAggregation     result{std::vector<LocalInt>(n), 0, (LocalInt)std::count(left.begin(), left.end(), (char)1), 0};
  std::vector<LocalInt> size(n, 1), room(n);

  if (result.left == n) return result;
  for (LocalInt i = 0; i < n; i++) result.aggregate[i] = i;
  for (LocalInt s = 0; s < matching.sweeps; s++) {
    const LocalInt     vertices = M->n();
    std::vector<float> c        = Weights(*M, matching.strength, left);
    for (LocalInt i = 0; i < vertices && s == 0; i++) {
      LocalInt used = 0;
      for (LocalInt k = M->i[i]; k < M->i[i + 1]; k++) used += c[k] != 0;
      room[i] = matching.limited ? PetscClipInterval(2 * (used + 1), kCMATCHLeastRoom, kCMATCHMostRoom) : 1 << 20;
    }
    for (LocalInt i = 0; i < vertices; i++)
      for (LocalInt k = M->i[i]; k < M->i[i + 1]; k++)
        if (c[k] > 0 && size[i] + size[M->j[k]] > PetscMax(room[i], room[M->j[k]])) c[k] = 0;
    const Sweep sweep  = Join(*M, c, Match(*M, c), size, room, left);
    CMATCHGraph coarse = Contract(*M, sweep.aggregate, sweep.members, matching.nodes);
    *work_bytes        = PetscMax(*work_bytes, M->Bytes() + coarse.Bytes() + CMATCHBytes(c) + CMATCHBytes(sweep.members.list) +
                                                 vertices * (8 * sizeof(LocalInt) + sizeof(float) + 1));
    *M                 = std::move(coarse);
    result.joined += sweep.joined;

    std::vector<LocalInt> fine_size(sweep.coarse, 0), fine_room(sweep.coarse, 0);
    for (LocalInt i = 0; i < vertices; i++) {
      const LocalInt a = sweep.aggregate[i];
      if (a < 0) continue;
      fine_size[a] += size[i];
      fine_room[a] = PetscMax(fine_room[a], room[i]);
    }
    size.swap(fine_size);
    room.swap(fine_room);
    left.assign(sweep.coarse, 0);
    for (LocalInt &a : result.aggregate)
      if (a >= 0) a = sweep.aggregate[a];
    result.coarse = sweep.coarse;
    if (result.coarse == vertices || (PetscReal)result.coarse * matching.each <= matching.enough) break;
  }
  return result;
}

/* The aggregates of rows; of all ranks, the sweeps end as if the others had as many for their rows. */
CMATCHAggregation MatchingAggregates(const CMATCHParams &params, PetscInt64 all, CMATCHGraph *M, size_t *work_bytes)
{
  const CMATCHMatching matching{params.coarsening,
                                params.sweeps,
                                CMATCHStrength(params, all),
                                all >= kCMATCHSmall,
                                false,
                                (PetscReal)all / M->n(),
                                (PetscReal)params.coarse_size};
  LocalInt             count;
  std::vector<char>    left = LeftRows(*M, &count);

  return Sweeps(matching, std::move(left), M, work_bytes);
}

/* -------------------------------------- independent sets -------------------------------------- */

/*
   A maximal independent set of distance 2, in the order of a hash: in each round those undecided vertices are roots that are the
   first ones within two edges. By rounding, an edge may be used in the row of one of its vertices alone; rows are looked at as they
   are.
*/
std::vector<char> FindRoots(const CMATCHGraph &M, const std::vector<float> &c, std::vector<LocalInt> undecided)
{
  const LocalInt        n    = M.n();
  constexpr uint64_t    none = ~(uint64_t)0;
  std::vector<char>     is_root(n, 0), near(n, 0), open(n, 0);
  std::vector<uint64_t> key(n), least(n);

  for (LocalInt i = 0; i < n; i++) key[i] = (uint64_t)CMATCHMix(i, i + 7) << 32 | (uint32_t)i;
  for (LocalInt i : undecided) open[i] = 1;
  while (!undecided.empty()) {
    for (LocalInt i = 0; i < n; i++) {
      least[i] = open[i] ? key[i] : none;
      for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++)
        if (c[k] > 0 && open[M.j[k]]) least[i] = PetscMin(least[i], key[M.j[k]]);
    }
    for (LocalInt i : undecided) {
      uint64_t first = least[i];
      for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++)
        if (c[k] > 0) first = PetscMin(first, least[M.j[k]]);
      is_root[i] = first == key[i];
    }
    for (LocalInt i : undecided) {
      if (!is_root[i]) continue;
      near[i] = 1;
      for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++)
        if (c[k] > 0) near[M.j[k]] = 1;
    }
    std::vector<LocalInt> rest;
    for (LocalInt i : undecided) {
      bool covered = near[i];
      for (LocalInt k = M.i[i]; k < M.i[i + 1] && !covered; k++) covered = c[k] > 0 && near[M.j[k]];
      open[i] = !covered;
      if (!covered) rest.push_back(i);
    }
    undecided.swap(rest);
  }
  return is_root;
}

/* Aggregates around the roots of a maximal independent set. */
CMATCHAggregation RootAggregates(float strength, const std::vector<char> &left, const CMATCHGraph &M, size_t *work_bytes)
{
  const LocalInt           n = M.n();
  CMATCHAggregation        result{std::vector<LocalInt>(n), 0, (LocalInt)std::count(left.begin(), left.end(), (char)1), 0};
  const std::vector<float> c = Weights(M, strength, left);
  std::vector<LocalInt>    order, root(n, -1); /* the root of the aggregate that a vertex is in */

  if (result.left == n) return result;
  for (LocalInt i = 0; i < n; i++)
    if (!left[i]) order.push_back(i);
  const std::vector<char> is_root = FindRoots(M, c, order);
  for (LocalInt i : order) {
    if (is_root[i]) root[i] = i;
    for (LocalInt k = M.i[i]; k < M.i[i + 1] && root[i] < 0; k++)
      if (c[k] > 0 && is_root[M.j[k]]) root[i] = M.j[k];
  }
  for (int pass = 0; pass < 2; pass++) {
    const std::vector<LocalInt> before = root;
    for (LocalInt i : order) {
      if (before[i] >= 0) continue;
      Choice best;
      for (LocalInt k = M.i[i]; k < M.i[i + 1]; k++)
        if (c[k] > 0 && before[M.j[k]] >= 0) best.Consider(i, M.j[k], c[k]);
      if (best.who < 0) continue;
      root[i] = before[best.who];
      result.joined++;
    }
  }
  for (LocalInt i : order)
    if (root[i] < 0) root[i] = i;
  for (LocalInt i = 0; i < n; i++)
    if (root[i] == i) result.aggregate[i] = result.coarse++;
  for (LocalInt i = 0; i < n; i++) result.aggregate[i] = left[i] ? -1 : result.aggregate[root[i]];
  *work_bytes = PetscMax(*work_bytes, M.Bytes() + CMATCHBytes(c) + n * (3 * sizeof(LocalInt) + 2));
  return result;
}

} // namespace

CMATCHAggregation CMATCHAggregate_Host(const CMATCHParams &params, PetscInt64 all, CMATCHGraph *M, size_t *work_bytes)
{
  LocalInt count;

  if (params.coarsening == PC_CMATCH_MIS2) return RootAggregates(CMATCHStrength(params, all), LeftRows(*M, &count), *M, work_bytes);
  return MatchingAggregates(params, all, M, work_bytes);
}

CMATCHAggregation CMATCHMatch_Host(const CMATCHMatching &matching, std::vector<char> left, CMATCHGraph *M, size_t *work_bytes)
{
  if (matching.coarsening == PC_CMATCH_MATCHING) return Sweeps(matching, std::move(left), M, work_bytes);
  CMATCHAggregation found = RootAggregates(matching.strength, left, *M, work_bytes);
  if (!found.coarse) return found;
  CMATCHMemberLists members;
  members.start.resize((size_t)found.coarse + 1);
  for (LocalInt a : found.aggregate)
    if (a >= 0) members.start[a + 1]++;
  std::partial_sum(members.start.begin(), members.start.end(), members.start.begin());
  members.list.resize(members.start.back());
  std::vector<LocalInt> at(members.start);
  for (LocalInt i = 0; i < M->n(); i++)
    if (found.aggregate[i] >= 0) members.list[at[found.aggregate[i]]++] = i;
  CMATCHGraph coarse = Contract(*M, found.aggregate, members, matching.nodes);
  *work_bytes        = PetscMax(*work_bytes, M->Bytes() + coarse.Bytes() + CMATCHBytes(members.list) + CMATCHBytes(at));
  *M                 = std::move(coarse);
  return found;
}
