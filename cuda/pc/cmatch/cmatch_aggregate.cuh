/* The kernels of the aggregates, for cmatch_aggregate.cu: sweeps of matching, and independent sets of distance 2. */
#pragma once

#include <cooperative_groups.h>

#include "cmatch_product.cuh"

namespace
{

/* What a vertex is in a sweep; a number that is not negative is its mate. */
constexpr LocalInt kFree = -1, kLeft = -2, kJoined = -3; /* kJoined - L: it has joined the pair with leader L */

/* Up to this mean number of entries a thread takes a row, or so many lanes do where all entries of most rows count. */
constexpr double kThreadRow = 20;
constexpr int    kEdgeGroup = 2;

constexpr LocalInt kFewVertices = 60000; /* a sweep over so many is one kernel, which takes less time than its launches otherwise */
constexpr int      kFewGroup    = 8;     /* lanes of a row there */
constexpr int      kFewBlocks   = 4;     /* of a processor, on which all of them are at once */

constexpr int      kMadeRoom       = 20;    /* columns of an aggregate's row which a thread adds up */
constexpr int      kMadeAhead      = 8;     /* entries of a vertex that it asks for at once */
constexpr LocalInt kManyAggregates = 50000; /* so many rows keep the GPU busy with a thread for each */

constexpr int kGraphGroup = 8; /* lanes of a row of a graph of nodes */

constexpr int kFreePerThread = 4; /* vertices of which a thread looks whether they are free */

/* What a sweep works with. Arrays of vertices have n entries, c has a place for every entry of the rows. */
struct Sweep {
  CMATCHRows          M;
  float              *c;           /* edge weights, 0 where there may be no pair */
  float              *big;         /* the largest weight of a row */
  LocalInt           *mate;        /* see above */
  LocalInt           *candidate;   /* the vertex that a free vertex chooses, or the leader whose pair it wants to join */
  LocalInt           *size, *room; /* rows of the level in a vertex, and how many its aggregate may have */
  LocalInt           *load;        /* of leaders: rows in the pair and what has joined it */
  unsigned long long *offer;       /* of leaders: the best proposal of a round */
  LocalInt           *slot;        /* [n][kSlots] of pairs: who has joined, or -1; see Slot() */
  LocalInt           *number;      /* [n + 1] of leaders: the number of the aggregate */
  LocalInt           *aggregate;   /* the number of a vertex's aggregate, or -1 */
  CMATCHReport       *report;
  CMATCHRound        *rounds; /* [kCMATCHRounds] */
};

/* Both vertices of a pair have some of the places for what joins the pair. */
constexpr int kSlots = kCMATCHJoins / 2;
static_assert(kCMATCHJoins % 2 == 0);

/* Where in the slots the number t is of a leader and its mate. */
__device__ __forceinline__ size_t Slot(LocalInt leader, LocalInt mate, int t)
{
  return (size_t)(t < kSlots ? leader : mate) * kSlots + t % kSlots;
}

/* The row of a vertex, which a group of lanes has together, and its entries; none for i < 0, and none before Open(). */
template <int GroupSize>
struct RowOf {
  LocalInt i, begin, end;
  int      lane;

  __device__ __forceinline__ explicit RowOf(LocalInt row) : i(row), begin(0), end(0), lane(threadIdx.x % GroupSize) { }
  __device__ __forceinline__ void Open(const CMATCHRows &M)
  {
    if (i < 0) return;
    begin = M.start[i];
    end   = begin + M.Length(i);
  }
  __device__ __forceinline__ bool First() const { return i >= 0 && lane == 0; }
};

/*
   The steps of a sweep. All lanes of a warp take a step together, a group of lanes with the vertex i, or without one for i < 0.
*/

/* ------------------------------------------- weights ------------------------------------------ */

/* Whether the row is left to the smoother; its mate tells it. */
template <int GroupSize>
__device__ __forceinline__ void FindLeft(const Sweep &s, LocalInt i)
{
  RowOf<GroupSize> row(i);
  row.Open(s.M);
  double         off     = 0;
  const LocalInt longest = (LocalInt)__reduce_max_sync(kFullWarp, row.end - row.begin);
  for (LocalInt k = 0; k < longest; k += GroupSize) {
    const LocalInt at = row.begin + k + row.lane;
    AddInOrder<GroupSize>(at < row.end ? fabs((double)s.M.a[at]) : 0., &off);
  }
  const bool     left   = row.First() && !(off > 0 && off >= kCMATCHDominated * (double)s.M.d[i]);
  const unsigned ballot = __ballot_sync(kFullWarp, left);
  if (ballot && threadIdx.x % kWarpSize == 0) atomicAdd(&s.report->left, __popc(ballot));
  if (!row.First()) return;
  s.mate[i] = left ? kLeft : kFree;
  s.size[i] = 1;
}

/* The weights, before the threshold, and the largest of the row. Edges to other ranks, which count alone, have them negative. */
template <int GroupSize>
__device__ __forceinline__ void WeighEdges(const Sweep &s, LocalInt i)
{
  RowOf<GroupSize> row(i);
  row.Open(s.M);
  const bool  left    = i >= 0 && s.mate[i] == kLeft;
  const float d       = i >= 0 ? s.M.d[i] : 1.f;
  float       largest = 0;
  for (LocalInt at = row.begin + row.lane; at < row.end; at += GroupSize) {
    const LocalInt j    = s.M.j[at];
    const bool     here = j < s.M.n;
    const float    sum = d + (here ? s.M.d[j] : d), all = sum > 0 ? -2.0f * s.M.a[at] / sum : 0.f;
    const float    c = all > 0 && !left && !(here && s.mate[j] == kLeft) ? all : 0.f;
    s.c[at]          = here ? c : -c;
    largest          = fmaxf(largest, c);
  }
  largest = GroupMax<GroupSize>(largest);
  if (row.First()) s.big[i] = largest;
}

/* What a sweep is to do. */
struct Rules {
  float strength; /* the share of the heaviest edge of both its ends that an edge has */
  bool  finds;    /* rows that are left to the smoother */
  bool  first;    /* it is the first sweep, in which the room is set and not looked at */
  bool  limited;  /* aggregates have a largest size */
  int   joins;    /* rounds */
};

/* Leaves the edges that are strong at both ends and whose ends may be together. On the first sweep sets the room. */
template <int GroupSize>
__device__ __forceinline__ void KeepStrong(const Sweep &s, LocalInt i, const Rules &rules)
{
  RowOf<GroupSize> row(i);
  row.Open(s.M);
  const float strength = rules.strength;
  const float big      = i >= 0 ? strength * s.big[i] : 0.f;
  LocalInt    count    = 0;
  for (LocalInt at = row.begin + row.lane; at < row.end; at += GroupSize) {
    const LocalInt j      = s.M.j[at];
    const bool     here   = j < s.M.n;
    const float    c      = here ? s.c[at] : -s.c[at];
    bool           strong = c > 0 && !(c < big) && !(here && c < strength * s.big[j]);
    count += strong;
    if (!rules.first && strong && here) strong = s.size[i] + s.size[j] <= max(s.room[i], s.room[j]);
    if (!strong) s.c[at] = 0;
  }
  count = GroupSum<GroupSize>(count);
  if (rules.first && row.First())
    s.room[i] = rules.limited ? min(max(2 * (count + 1), kCMATCHLeastRoom), kCMATCHMostRoom) : 1 << 20;
}

/* ------------------------------------------ matching ------------------------------------------ */

/* A neighbour that a vertex may choose: the heaviest edge, then the larger hash, then the smaller number. */
struct Choice {
  float    c    = 0;
  unsigned hash = 0;
  LocalInt j    = -1;

  __device__ __forceinline__ void Take(float other_c, unsigned other_hash, LocalInt other)
  {
    const bool better =
      other >= 0 && (j < 0 || other_c > c || (other_c == c && (other_hash > hash || (other_hash == hash && other < j))));
    if (!better) return;
    c    = other_c;
    hash = other_hash;
    j    = other;
  }
  template <int GroupSize>
  __device__ __forceinline__ void Reduce()
  {
#pragma unroll
    for (int offset = GroupSize / 2; offset > 0; offset /= 2) {
      const float    other_c    = __shfl_xor_sync(kFullWarp, c, offset);
      const unsigned other_hash = __shfl_xor_sync(kFullWarp, hash, offset);
      const LocalInt other      = __shfl_xor_sync(kFullWarp, j, offset);
      Take(other_c, other_hash, other);
    }
  }
};

/* The best neighbour for which allowed(j) holds. A lane asks for some entries before it looks at any. */
template <int GroupSize, typename Allowed>
__device__ __forceinline__ Choice Choose(const Sweep &s, const RowOf<GroupSize> &row, Allowed allowed)
{
  constexpr int kAhead = 4;
  Choice        best;
  for (LocalInt first = row.begin + row.lane; first < row.end; first += kAhead * GroupSize) {
    float    c[kAhead];
    LocalInt j[kAhead];
    bool     may[kAhead];
#pragma unroll
    for (int t = 0; t < kAhead; t++) {
      const LocalInt at = first + t * GroupSize;
      c[t]              = at < row.end ? s.c[at] : 0.f;
      j[t]              = at < row.end ? s.M.j[at] : -1;
    }
#pragma unroll
    for (int t = 0; t < kAhead; t++) may[t] = c[t] > 0 && c[t] >= best.c && allowed(j[t]);
#pragma unroll
    for (int t = 0; t < kAhead; t++)
      if (may[t] && c[t] >= best.c) best.Take(c[t], CMATCHMix(row.i, j[t]), j[t]);
  }
  best.template Reduce<GroupSize>();
  return best;
}

/* A free vertex chooses a free neighbour. */
template <int GroupSize>
__device__ __forceinline__ void ChooseMate(const Sweep &s, LocalInt i)
{
  RowOf<GroupSize> row(i);
  row.Open(s.M);
  const Choice best = Choose(s, row, [&](LocalInt j) { return s.mate[j] == kFree; });
  if (row.First()) s.candidate[i] = best.j;
}

/* Two vertices that have chosen each other become a pair. */
__device__ __forceinline__ bool MakePair(const Sweep &s, LocalInt i)
{
  const LocalInt j = i >= 0 ? s.candidate[i] : -1;
  if (j < 0 || s.candidate[j] != i) return false;
  s.mate[i] = j;
  return true;
}

/* ------------------------------------------- joining ------------------------------------------ */

__device__ __forceinline__ void OpenPair(const Sweep &s, LocalInt i)
{
  if (i < 0) return;
  const LocalInt mate = s.mate[i];
  s.load[i]           = mate > i ? s.size[i] + s.size[mate] : 0;
  s.offer[i]          = 0;
  for (int t = 0; t < kSlots; t++) s.slot[(size_t)i * kSlots + t] = -1;
}

/* A free vertex proposes to the pair of its best neighbour that has room for it. */
template <int GroupSize>
__device__ __forceinline__ void ProposeJoin(const Sweep &s, LocalInt i)
{
  RowOf<GroupSize> row(i);
  row.Open(s.M);
  const LocalInt size = i >= 0 ? s.size[i] : 0, room = i >= 0 ? s.room[i] : 0;
  const Choice   best = Choose(s, row, [&](LocalInt j) {
    const LocalInt mate = s.mate[j];
    return mate >= 0 && s.load[min(j, mate)] + size <= max(room, s.room[j]);
  });
  if (!row.First() || best.j < 0) return;
  const LocalInt leader = min(best.j, s.mate[best.j]);
  /* weights are positive, so that their bits are in their order; of equal ones the smaller vertex is to win */
  atomicMax(s.offer + leader, (unsigned long long)__float_as_uint(best.c) << 32 | (0xffffffffu - (unsigned)i));
}

/* A pair takes the best proposal. */
__device__ __forceinline__ bool AcceptJoin(const Sweep &s, LocalInt leader, int round)
{
  if (leader < 0 || !s.offer[leader]) return false;
  const LocalInt i                            = (LocalInt)(0xffffffffu - (unsigned)s.offer[leader]);
  s.offer[leader]                             = 0;
  s.slot[Slot(leader, s.mate[leader], round)] = i;
  s.load[leader] += s.size[i];
  s.mate[i] = kJoined - leader;
  return true;
}

/* -------------------------- the steps as kernels, for many vertices --------------------------- */

/* The vertex of the calling group of a grid, or -1. */
template <int GroupSize>
__device__ __forceinline__ LocalInt GridVertex(LocalInt n)
{
  const long long at = GridThread() / GroupSize;
  return at < n ? (LocalInt)at : -1;
}

template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) FindLeftRows(Sweep s)
{
  FindLeft<GroupSize>(s, GridVertex<GroupSize>(s.M.n));
}

template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) WeighAllEdges(Sweep s)
{
  WeighEdges<GroupSize>(s, GridVertex<GroupSize>(s.M.n));
}

template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) KeepStrongEdges(Sweep s, Rules rules)
{
  KeepStrong<GroupSize>(s, GridVertex<GroupSize>(s.M.n), rules);
}

/*
   Lists the free ones of the vertices that belong to the block, in shared memory, so that few of them keep few warps busy. Returns
   their number to all threads; with `candidates` the others get none.
*/
__device__ __forceinline__ int ListFree(const Sweep &s, LocalInt *list, bool candidates)
{
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  const long long first = (long long)blockIdx.x * kBlockSize * kFreePerThread;
#pragma unroll
  for (int t = 0; t < kFreePerThread; t++) {
    const long long i    = first + t * kBlockSize + threadIdx.x;
    const bool      free = i < s.M.n && s.mate[i] == kFree;
    if (candidates && i < s.M.n && !free) s.candidate[i] = -1;
    const unsigned ballot = __ballot_sync(kFullWarp, free);
    int            to     = 0;
    if (threadIdx.x % kWarpSize == 0 && ballot) to = atomicAdd(&count, __popc(ballot));
    to = __shfl_sync(kFullWarp, to, 0) + __popc(ballot & ((1u << threadIdx.x % kWarpSize) - 1u));
    if (free) list[to] = (LocalInt)i;
  }
  __syncthreads();
  return count;
}

template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) ChooseMates(Sweep s, int round)
{
  __shared__ LocalInt list[kBlockSize * kFreePerThread];
  if (round && !s.rounds[round - 1].pairs) return;
  const int count = ListFree(s, list, true);
  for (int first = 0; first < count; first += kBlockSize / GroupSize) {
    const int at = first + threadIdx.x / GroupSize;
    ChooseMate<GroupSize>(s, at < count ? list[at] : -1);
  }
}

__global__ void __launch_bounds__(kBlockSize) MakePairs(Sweep s, int round)
{
  if (round && !s.rounds[round - 1].pairs) return;
  const bool made = MakePair(s, GridVertex<1>(s.M.n));
  if (__syncthreads_or(made) && threadIdx.x == 0) s.rounds[round].pairs = 1;
}

__global__ void __launch_bounds__(kBlockSize) OpenPairs(Sweep s)
{
  OpenPair(s, GridVertex<1>(s.M.n));
}

template <int GroupSize>
__global__ void __launch_bounds__(kBlockSize) ProposeJoins(Sweep s)
{
  __shared__ LocalInt list[kBlockSize * kFreePerThread];
  const int           count = ListFree(s, list, false);
  for (int first = 0; first < count; first += kBlockSize / GroupSize) {
    const int at = first + threadIdx.x / GroupSize;
    ProposeJoin<GroupSize>(s, at < count ? list[at] : -1);
  }
}

__global__ void __launch_bounds__(kBlockSize) AcceptJoins(Sweep s, int round)
{
  const int joined = __syncthreads_count(AcceptJoin(s, GridVertex<1>(s.M.n), round));
  if (joined && threadIdx.x == 0) atomicAdd(&s.report->joined, joined);
}

/* ------------------------- all steps in one kernel, for few vertices -------------------------- */

/* Calls step(i) for all vertices, a group for each. */
template <int GroupSize, typename Step>
__device__ __forceinline__ void ForVertices(LocalInt n, Step step)
{
  const LocalInt groups = (LocalInt)(gridDim.x * (kBlockSize / GroupSize));
  /* all lanes of a warp go round as often as its first one */
  for (LocalInt first = (LocalInt)(GridThread() / kWarpSize) * (kWarpSize / GroupSize); first < n; first += groups) {
    const LocalInt i = first + (threadIdx.x % kWarpSize) / GroupSize;
    step(i < n ? i : -1);
  }
}

/* A sweep by a grid whose blocks are all on the GPU at once. */
__global__ void __launch_bounds__(kBlockSize, kFewBlocks) MatchFew(Sweep s, Rules rules)
{
  const auto     grid = cooperative_groups::this_grid();
  const LocalInt n    = s.M.n;
  if (rules.finds) {
    ForVertices<kFewGroup>(n, [&](LocalInt i) { FindLeft<kFewGroup>(s, i); });
    grid.sync();
  }
  ForVertices<kFewGroup>(n, [&](LocalInt i) { WeighEdges<kFewGroup>(s, i); });
  grid.sync();
  ForVertices<kFewGroup>(n, [&](LocalInt i) { KeepStrong<kFewGroup>(s, i, rules); });
  /* rows of edges are read by the group that has written them */
  for (int round = 0; round < kCMATCHRounds; round++) {
    ForVertices<kFewGroup>(n, [&](LocalInt i) {
      const bool free = i >= 0 && s.mate[i] == kFree;
      if (i >= 0 && !free) s.candidate[i] = -1;
      ChooseMate<kFewGroup>(s, free ? i : -1);
    });
    grid.sync();
    bool made = false;
    ForVertices<1>(n, [&](LocalInt i) { made |= MakePair(s, i); });
    if (made) *(volatile LocalInt *)&s.rounds[round].pairs = 1;
    grid.sync();
    if (!*(volatile LocalInt *)&s.rounds[round].pairs) break;
  }
  ForVertices<1>(n, [&](LocalInt i) { OpenPair(s, i); });
  grid.sync();
  for (int round = 0; round < rules.joins; round++) {
    int joined = 0;
    ForVertices<kFewGroup>(n, [&](LocalInt i) { ProposeJoin<kFewGroup>(s, i >= 0 && s.mate[i] == kFree ? i : -1); });
    grid.sync();
    ForVertices<1>(n, [&](LocalInt i) { joined += AcceptJoin(s, i, round); });
    if (joined) atomicAdd(&s.report->joined, joined);
    grid.sync();
  }
}

/* ------------------------------------------ numbering ----------------------------------------- */

/* Leads an aggregate: the first of a pair, and a vertex that is still alone. */
struct Leads {
  LocalInt        n;
  const LocalInt *mate;

  __device__ LocalInt operator()(LocalInt i) const { return i < n && (mate[i] > i || mate[i] == kFree); }
};

/* The members of an aggregate: its leader, the leader's mate, and who has joined them. */
struct Members {
  const LocalInt *mate, *slot;

  __device__ __forceinline__ LocalInt Get(LocalInt leader, int t) const
  {
    if (t == 0) return leader;
    if (mate[leader] == kFree) return -1;
    return t == 1 ? mate[leader] : slot[Slot(leader, mate[leader], t - 2)];
  }
};

/* The aggregate of every vertex, and of every aggregate its leader, the rows of the level in it, and how many it may have. */
__global__ void __launch_bounds__(kBlockSize) NumberAggregates(Sweep s, LocalInt *leader, LocalInt *size, LocalInt *room)
{
  const long long at = GridThread();
  if (at >= s.M.n) return;
  const LocalInt i = (LocalInt)at;
  if (s.mate[i] == kLeft) s.aggregate[i] = -1;
  if (!Leads{s.M.n, s.mate}(i)) return;
  const LocalInt a    = s.number[i];
  LocalInt       rows = 0, most = 0;
  for (int t = 0; t < kCMATCHMembers; t++) {
    const LocalInt v = Members{s.mate, s.slot}.Get(i, t);
    if (v < 0) continue;
    s.aggregate[v] = a;
    rows += s.size[v];
    most = max(most, s.room[v]);
  }
  leader[a] = i;
  size[a]   = rows;
  room[a]   = most;
}

/* The aggregates of the level's rows, by those of the vertices that the sweep before has made. */
__global__ void __launch_bounds__(kBlockSize) ComposeAggregates(LocalInt n, const LocalInt *of_vertex, LocalInt *of_row)
{
  const long long i = GridThread();
  if (i < n && of_row[i] >= 0) of_row[i] = of_vertex[of_row[i]];
}

/* The largest aggregate, the smallest one, and how many have a single row. */
__global__ void __launch_bounds__(kBlockSize) CountSizes(LocalInt aggregates, const LocalInt *size, CMATCHReport *report)
{
  const long long a    = GridThread();
  const LocalInt  rows = a < aggregates ? size[a] : 0, largest = GroupMax<kWarpSize>(rows);
  const LocalInt  smallest = GroupMin<kWarpSize>(a < aggregates ? size[a] : kCMATCHNone);
  const unsigned  ones     = __ballot_sync(kFullWarp, rows == 1);
  if (threadIdx.x % kWarpSize != 0) return;
  atomicMax(&report->largest_aggregate, largest);
  atomicMin(&report->smallest_aggregate, smallest);
  if (ones) atomicAdd(&report->singles, __popc(ones));
}

/* ------------------------------------- the operator of a sweep -------------------------------- */

/* The members of an aggregate */
struct MemberList {
  const LocalInt *leader;
  Members         members;

  __device__ int Count(LocalInt a) const
  {
    int count = kCMATCHMembers;
    while (members.Get(leader[a], count - 1) < 0) count--;
    return count;
  }
  __device__ void Get(LocalInt a, int t, LocalInt *k, double *value) const
  {
    *k     = members.Get(leader[a], t);
    *value = 1;
  }
};

/* Members in lists of any length */
struct RootList {
  const LocalInt *start, *member;

  __device__ int  Count(LocalInt a) const { return (int)(start[a + 1] - start[a]); }
  __device__ void Get(LocalInt a, int t, LocalInt *k, double *value) const
  {
    *k     = member[start[a] + t];
    *value = 1;
  }
};

/* The row of a vertex, with the aggregates for columns, its diagonal entry first; vertices of other ranks are behind these. */
struct AggregatedEntries {
  CMATCHRows      M;
  const LocalInt *aggregate;
  LocalInt        aggregates;

  __device__ LocalInt Column(LocalInt j) const { return j < M.n ? aggregate[j] : aggregates + (j - M.n); }

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *length) const
  {
    *begin  = 0;
    *length = M.Length(k) + 1;
  }
  __device__ void Get(LocalInt k, LocalInt a, LocalInt place, LocalInt *column, double *value) const
  {
    const LocalInt at = M.start[k] + place - 1;
    *column           = place ? Column(M.j[at]) : a;
    *value            = place ? (double)M.a[at] : (double)M.d[k];
  }
};

/* Rows one array after the other: where they begin, their lengths and diagonals [n], columns and entries [room]. */
__global__ void __launch_bounds__(kBlockSize) CopyRows(CMATCHRows from, LocalInt *to)
{
  const long long i = GridThread(), n = from.n, room = (long long)from.room;
  if (i < n) {
    to[i]         = from.start[i];
    to[n + i]     = from.length[i];
    to[2 * n + i] = (LocalInt)__float_as_uint(from.d[i]);
  }
  if (i < room) {
    to[3 * n + i]        = from.j[i];
    to[3 * n + room + i] = (LocalInt)__float_as_uint(from.a[i]);
  }
}

__global__ void __launch_bounds__(kBlockSize) RoundDiagonal(LocalInt n, const double *from, float *to)
{
  const long long i = GridThread();
  if (i < n) to[i] = (float)from[i];
}

/* Every vertex is free, a node alone, but for those that are left. */
__global__ void __launch_bounds__(kBlockSize) OpenNodes(Sweep s, const unsigned char *alone, unsigned all)
{
  const long long i     = GridThread();
  const bool      left  = i < s.M.n && alone[i] == all;
  const int       count = __syncthreads_count(left);
  if (count && threadIdx.x == 0) atomicAdd(&s.report->left, count);
  if (i >= s.M.n) return;
  s.mate[i] = left ? kLeft : kFree;
  s.size[i] = 1;
}

/* --------------------------------------- independent set -------------------------------------- */

/* What a vertex is while the set is made */
constexpr LocalInt kUndecided = 0, kRoot = 1, kCovered = 2;

struct Independent {
  Sweep               s;
  unsigned long long *key;   /* the least of an undecided vertex in the row and its neighbours */
  LocalInt           *state; /* see above */
  LocalInt           *near;  /* a root, or a neighbour of one */
};

__device__ __forceinline__ unsigned long long RootKey(LocalInt i)
{
  return (unsigned long long)CMATCHMix(i, i + 7) << 32 | (unsigned)i;
}

__global__ void __launch_bounds__(kBlockSize) OpenIndependent(Independent v)
{
  const long long i = GridThread();
  if (i >= v.s.M.n) return;
  v.state[i] = v.s.mate[i] == kLeft ? kCovered : kUndecided;
  v.near[i]  = 0;
}

/* The least key of the undecided vertices of a row, its own included. */
__global__ void __launch_bounds__(kBlockSize) LeastKeys(Independent v)
{
  const long long i = GridThread();
  if (i >= v.s.M.n) return;
  const LocalInt     begin = v.s.M.start[i], end = begin + v.s.M.Length((LocalInt)i);
  unsigned long long least = v.state[i] == kUndecided ? RootKey((LocalInt)i) : ~0ull;
  for (LocalInt at = begin; at < end; at++)
    if (v.s.c[at] > 0 && v.state[v.s.M.j[at]] == kUndecided) least = min(least, RootKey(v.s.M.j[at]));
  v.key[i] = least;
}

/* An undecided vertex whose key is the least within distance 2 is a root. */
__global__ void __launch_bounds__(kBlockSize) FindRoots(Independent v)
{
  const long long i = GridThread();
  if (i >= v.s.M.n || v.state[i] != kUndecided) return;
  const LocalInt     begin = v.s.M.start[i], end = begin + v.s.M.Length((LocalInt)i);
  unsigned long long least = v.key[i];
  for (LocalInt at = begin; at < end; at++)
    if (v.s.c[at] > 0) least = min(least, v.key[v.s.M.j[at]]);
  if (least != RootKey((LocalInt)i)) return;
  v.s.candidate[i] = 1; /* the states are read by others until the end of this kernel */
}

__global__ void __launch_bounds__(kBlockSize) MarkRoots(Independent v)
{
  const long long i = GridThread();
  if (i >= v.s.M.n || v.state[i] != kUndecided || v.s.candidate[i] != 1) return;
  const LocalInt begin = v.s.M.start[i], end = begin + v.s.M.Length((LocalInt)i);
  v.state[i] = kRoot;
  v.near[i]  = 1;
  for (LocalInt at = begin; at < end; at++)
    if (v.s.c[at] > 0) v.near[v.s.M.j[at]] = 1;
}

/* Vertices that are near, or have a near neighbour, cannot be roots any more. */
__global__ void __launch_bounds__(kBlockSize) CoverVertices(Independent v)
{
  const long long i = GridThread();
  if (i >= v.s.M.n || v.state[i] != kUndecided) return;
  const LocalInt begin = v.s.M.start[i], end = begin + v.s.M.Length((LocalInt)i);
  bool           near = v.near[i];
  for (LocalInt at = begin; at < end && !near; at++) near = v.s.c[at] > 0 && v.near[v.s.M.j[at]];
  if (near) v.state[i] = kCovered;
  else atomicAdd(&v.s.report->undecided, 1);
}

/* The root of every root and of its neighbours, in `mate`; other vertices stay free. */
__global__ void __launch_bounds__(kBlockSize) GatherAround(Independent v)
{
  const long long i = GridThread();
  if (i >= v.s.M.n || v.s.mate[i] == kLeft) return;
  const LocalInt begin = v.s.M.start[i], end = begin + v.s.M.Length((LocalInt)i);
  LocalInt       root = v.state[i] == kRoot ? (LocalInt)i : kFree;
  for (LocalInt at = begin; at < end && root == kFree; at++)
    if (v.s.c[at] > 0 && v.state[v.s.M.j[at]] == kRoot) root = v.s.M.j[at];
  v.s.mate[i] = root;
}

/* A vertex without a root takes that of its heaviest neighbour that has one. */
__global__ void __launch_bounds__(kBlockSize) FollowNeighbours(Independent v, LocalInt *next)
{
  RowOf<1> row(GridVertex<1>(v.s.M.n));
  LocalInt root = row.i >= 0 ? v.s.mate[row.i] : kLeft;
  if (root == kFree) row.Open(v.s.M);
  const Choice best = Choose(v.s, row, [&](LocalInt j) { return v.s.mate[j] >= 0; });
  if (best.j >= 0) {
    root = v.s.mate[best.j];
    atomicAdd(&v.s.report->joined, 1);
  }
  if (row.i >= 0) next[row.i] = root;
}

/* Leads an aggregate: a root, or a vertex that has none. */
struct LeadsIndependent {
  LocalInt        n;
  const LocalInt *mate;

  __device__ LocalInt operator()(LocalInt i) const { return i < n && (mate[i] == i || mate[i] == kFree); }
};

__global__ void __launch_bounds__(kBlockSize) NumberIndependent(Independent v, LocalInt *aggregate, LocalInt *size)
{
  const long long i = GridThread();
  if (i >= v.s.M.n) return;
  const LocalInt mate = v.s.mate[i];
  aggregate[i]        = mate == kLeft ? -1 : v.s.number[mate == kFree ? (LocalInt)i : mate];
  if (mate != kLeft) atomicAdd(size + aggregate[i], 1);
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize) RoundToSingle(LocalInt n, const T *from, float *to)
{
  const long long i = GridThread();
  if (i < n) to[i] = (float)from[i];
}

__global__ void __launch_bounds__(kBlockSize) PassRows(LocalInt n, LocalInt *aggregate)
{
  const long long i = GridThread();
  if (i < n) aggregate[i] = (LocalInt)i;
}

} // namespace
