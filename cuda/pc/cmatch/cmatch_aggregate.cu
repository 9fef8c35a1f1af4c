/* CMATCH on the GPU: the aggregates of a level, by sweeps of matching or by an independent set. */
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "cmatch_aggregate.cuh"

namespace
{

/* ------------------------------------------- lists -------------------------------------------- */

__global__ void __launch_bounds__(kBlockSize) CountUp(LocalInt count, LocalInt *number)
{
  const long long at = GridThread();
  if (at < count) number[at] = (LocalInt)at;
}

/* Where the entries of each list begin; those of no list are behind all of them. */
__global__ void __launch_bounds__(kBlockSize) FindStarts(LocalInt count, LocalInt lists, const unsigned *sorted, LocalInt *start)
{
  const long long list = GridThread();
  if (list > lists) return;
  LocalInt begin = 0, end = count;
  while (begin < end) {
    const LocalInt middle = begin + (end - begin) / 2;
    if (sorted[middle] < (unsigned)list) begin = middle + 1;
    else end = middle;
  }
  start[list] = begin;
}

/* -------------------------------------------- steps ------------------------------------------- */

/* Calls f(lanes of a row) */
template <typename F>
PetscErrorCode WithGroup(double mean, F f)
{
  if (mean <= kThreadRow) return f(std::integral_constant<int, 1>());
  return f(std::integral_constant<int, 8>());
}

/* Takes the arrays of the sweeps of a level, the first of which has these rows. */
PetscErrorCode OpenSweeps(CMATCHSetup *s, const CMATCHRows &M, Sweep *sweep)
{
  const size_t n = M.n;
  LocalInt    *shared;

  PetscFunctionBegin;
  *sweep        = Sweep{};
  sweep->M      = M;
  sweep->report = s->report;
  sweep->rounds = s->rounds;
  /* `big` is needed before there are candidates, and both before there are offers; loads before there are numbers */
  PetscCall(s->arena.Take(2 * n, &shared));
  sweep->offer     = (unsigned long long *)shared;
  sweep->big       = (float *)shared;
  sweep->candidate = shared + n;
  PetscCall(s->arena.Take(n + 1, &shared));
  sweep->load = sweep->number = shared;
  for (LocalInt **array : {&sweep->mate, &sweep->aggregate, &sweep->size, &sweep->room}) PetscCall(s->arena.Take(n, array));
  PetscCall(s->arena.Take(n * kSlots, &sweep->slot));
  PetscCall(s->arena.Take(M.room, &sweep->c));
  PetscCallCUDA(cudaMemsetAsync(&s->report->left, 0, 4 * sizeof(LocalInt), s->stream)); /* left, joined, singles, largest */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Weights, pairs and joins. */
PetscErrorCode MatchVertices(CMATCHSetup *s, const Sweep &w, double mean, const Rules &rules)
{
  const int blocks = BlocksFor(w.M.n);

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(w.rounds, 0, kCMATCHRounds * sizeof(*w.rounds), s->stream));
  if (!rules.first) PetscCallCUDA(cudaMemsetAsync(w.mate, 0xff, w.M.n * sizeof(*w.mate), s->stream)); /* kFree */
  PetscCall(WithGroup(mean, [&](auto group) {
    constexpr int edges      = group == 1 ? kEdgeGroup : group; /* lanes of a row all of whose entries count */
    const int     row_blocks = BlocksFor((long long)w.M.n * edges), list_blocks = BlocksFor(w.M.n, kBlockSize * kFreePerThread);
    PetscFunctionBegin;
    if (w.M.n <= kFewVertices) {
      cudaLaunchConfig_t  config{};
      cudaLaunchAttribute attribute{};
      attribute.id              = cudaLaunchAttributeCooperative;
      attribute.val.cooperative = 1;
      config.gridDim            = dim3(PetscMin(BlocksFor((long long)w.M.n * kFewGroup), kFewBlocks * s->H->processors));
      config.blockDim           = dim3(kBlockSize);
      config.stream             = s->stream;
      config.attrs              = &attribute;
      config.numAttrs           = 1;
      PetscCallCUDA(cudaLaunchKernelEx(&config, MatchFew, Sweep(w), Rules(rules)));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (rules.finds) {
      FindLeftRows<edges><<<row_blocks, kBlockSize, 0, s->stream>>>(w);
      FinePCCheckLaunch();
    }
    WeighAllEdges<edges><<<row_blocks, kBlockSize, 0, s->stream>>>(w);
    FinePCCheckLaunch();
    KeepStrongEdges<edges><<<row_blocks, kBlockSize, 0, s->stream>>>(w, rules);
    FinePCCheckLaunch();
    for (int round = 0; round < kCMATCHRounds; round++) {
      ChooseMates<group><<<list_blocks, kBlockSize, 0, s->stream>>>(w, round);
      MakePairs<<<blocks, kBlockSize, 0, s->stream>>>(w, round);
      FinePCCheckLaunch();
    }
    OpenPairs<<<blocks, kBlockSize, 0, s->stream>>>(w);
    FinePCCheckLaunch();
    for (int round = 0; round < rules.joins; round++) {
      ProposeJoins<edges><<<list_blocks, kBlockSize, 0, s->stream>>>(w);
      AcceptJoins<<<blocks, kBlockSize, 0, s->stream>>>(w, round);
      FinePCCheckLaunch();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Numbers the leaders, and waits for how many there are. */
template <typename Lead>
PetscErrorCode NumberLeaders(CMATCHSetup *s, LocalInt n, Lead leads, LocalInt *number)
{
  const auto flags = thrust::make_transform_iterator(thrust::counting_iterator<LocalInt>(0), leads);

  PetscFunctionBegin;
  PetscCall(s->cub.Run(
    [&](void *memory, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, flags, number, n + 1, s->stream); }));
  PetscCall(CMATCHReportNumber(s, number + n, &s->report->aggregates));
  PetscCall(CMATCHReadReport(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows that a sweep makes. */
struct MadeRows {
  LocalInt *start, *length, *j, *leader, *size, *room;
  float    *a, *d;
  double   *diagonal;
  size_t    entries; /* that fit */
};

PetscErrorCode TakeMadeRows(CMATCHSetup *s, LocalInt n, size_t entries, MadeRows *made)
{
  PetscFunctionBegin;
  for (LocalInt **array : {&made->start, &made->length, &made->leader, &made->size, &made->room})
    PetscCall(s->arena.Take(n, array));
  PetscCall(s->arena.Take(n, &made->d));
  PetscCall(s->arena.Take(n, &made->diagonal));
  PetscCall(s->arena.Take(entries, &made->j));
  PetscCall(s->arena.Take(entries, &made->a));
  made->entries = entries;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The operator of the aggregates of a sweep, of type V: of nodes double, until their diagonal is known. */
template <typename Left, typename V>
PetscErrorCode AddUp(CMATCHSetup *s, const Left &left, const Sweep &w, LocalInt aggregates, ProductRows<V> *out)
{
  const AggregatedEntries right{w.M, w.aggregate, aggregates};
  const double            mean = (double)w.M.room / w.M.n;
  const auto              room = [&](size_t entries, auto *more) {
    PetscFunctionBegin;
    PetscCall(s->arena.Take(entries, &more->j));
    PetscCall(s->arena.Take(entries, &more->a));
    more->room = entries;
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscFunctionBegin;
  out->wide = w.candidate; /* not needed any more */
  PetscCall((Product<8, kMadeRoom, kMadeAhead, true, true, true>(s, left, right,
                                                                 {aggregates, aggregates + w.M.foreign,
                                                                  mean <= kThreadRow && aggregates >= kManyAggregates,
                                                                  mean <= kThreadRow ? 6 : 7},
                                                                 out, room)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AddUpRows(CMATCHSetup *s, const Sweep &w, LocalInt aggregates, MadeRows *made, CMATCHRows *M)
{
  ProductRows<float> out{made->start, made->length, made->j, made->a, made->diagonal, made->entries, nullptr, false};

  PetscFunctionBegin;
  PetscCall(AddUp(s, MemberList{made->leader, {w.mate, w.slot}}, w, aggregates, &out));
  RoundDiagonal<<<BlocksFor(aggregates), kBlockSize, 0, s->stream>>>(aggregates, made->diagonal, made->d);
  FinePCCheckLaunch();
  *M = CMATCHRows{aggregates, made->start, made->length, out.j, out.a, made->d, (size_t)s->seen.entries, w.M.foreign};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The graph of the aggregates of a sweep, or of an independent set. */
template <typename Left>
PetscErrorCode AddUpGraph(CMATCHSetup *s, const Left &left, const Sweep &w, LocalInt aggregates, MadeRows *made, CMATCHRows *M)
{
  ProductRows<double> out{made->start, made->length, made->j, nullptr, made->diagonal, made->entries, nullptr, false};
  const auto          mark = s->arena.mark();

  PetscFunctionBegin;
  PetscCall(s->arena.Take(made->entries, &out.a));
  PetscCall(AddUp(s, left, w, aggregates, &out));
  PetscCheck(out.room == made->entries, PETSC_COMM_SELF, PETSC_ERR_PLIB, "A graph has more edges than the one before");
  RoundGraph<kGraphGroup>
    <<<BlocksFor((long long)aggregates * kGraphGroup), kBlockSize, 0, s->stream>>>(aggregates, out, made->a, made->d);
  FinePCCheckLaunch();
  s->arena.Release(mark);
  *M = CMATCHRows{aggregates, made->start, made->length, made->j, made->a, made->d, (size_t)s->seen.entries, w.M.foreign};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The aggregates of n rows or nodes, whose numbers go to `aggregate`. */
PetscErrorCode AggregateByMatching(CMATCHSetup *s, const CMATCHSweeps &sweeps, LocalInt rows, LocalInt *aggregate,
                                   CMATCHFound *found)
{
  LocalInt *const aggregates = &found->coarse;
  CMATCHRows      M          = s->rows;
  MadeRows        made[2];
  Sweep           w;
  LocalInt       *sizes = nullptr, joined = 0;
  const bool      nodes = sweeps.alone;

  PetscFunctionBegin;
  PetscCall(OpenSweeps(s, M, &w));
  LocalInt *const of_vertex = w.aggregate;
  if (nodes) {
    OpenNodes<<<BlocksFor(rows), kBlockSize, 0, s->stream>>>(w, sweeps.alone, sweeps.all);
    FinePCCheckLaunch();
  }
  for (LocalInt sweep = 0; sweep < sweeps.count; sweep++) {
    const LocalInt n    = M.n;
    MadeRows      &next = made[sweep % 2];
    w.M                 = M;
    w.aggregate         = sweep ? of_vertex : aggregate; /* vertices are rows at first */
    PetscCall(MatchVertices(s, w, (double)M.room / n,
                            Rules{sweeps.strength, sweep == 0 && !nodes, sweep == 0, sweeps.limited, kCMATCHJoins}));
    PetscCall(NumberLeaders(s, n, Leads{n, w.mate}, w.number));
    *aggregates = s->seen.aggregates;
    if (!*aggregates || (*aggregates == n && sweep && !nodes)) break; /* the diagonal of nodes is summed anew */
    /* a pair loses the entries between its two vertices, and what joins loses that to whom it joins */
    const LocalInt merged = n - *aggregates - (sweep ? 0 : s->seen.left), pairs = merged - (s->seen.joined - joined);
    joined = s->seen.joined;
    if (sweep < 2) PetscCall(TakeMadeRows(s, *aggregates, M.room - merged - pairs, &next));
    NumberAggregates<<<BlocksFor(n), kBlockSize, 0, s->stream>>>(w, next.leader, next.size, next.room);
    FinePCCheckLaunch();
    if (sweep) ComposeAggregates<<<BlocksFor(rows), kBlockSize, 0, s->stream>>>(rows, w.aggregate, aggregate);
    FinePCCheckLaunch();
    PetscCall(nodes ? AddUpGraph(s, MemberList{next.leader, {w.mate, w.slot}}, w, *aggregates, &next, &M)
                    : AddUpRows(s, w, *aggregates, &next, &M));
    sizes  = next.size;
    w.size = next.size;
    w.room = next.room;
    if (*aggregates == n || (PetscReal)*aggregates * sweeps.each <= sweeps.enough) break;
  }
  if (*aggregates) {
    CountSizes<<<BlocksFor(*aggregates), kBlockSize, 0, s->stream>>>(*aggregates, sizes, s->report);
    FinePCCheckLaunch();
    found->rows = M;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The operator of the level itself, in single precision. */
PetscErrorCode RowsOfLevel(CMATCHSetup *s, const CMATCHLevel &L, CMATCHRows *M)
{
  const LocalInt n = L.n;
  float         *a = (float *)L.A_a, *d = (float *)L.d;

  PetscFunctionBegin;
  if (s->params->precision != FINEPC_SINGLE) {
    PetscCall(s->arena.Take(L.nnz, &a));
    PetscCall(s->arena.Take(n, &d));
    if (L.nnz) RoundToSingle<double><<<BlocksFor(L.nnz), kBlockSize, 0, s->stream>>>(L.nnz, (const double *)L.A_a, a);
    RoundToSingle<double><<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, (const double *)L.d, d);
    FinePCCheckLaunch();
  }
  *M = CMATCHRows{n, L.A_i, nullptr, L.A_j, a, d, (size_t)L.nnz, L.ghosts};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The graph of the aggregates of nodes around the roots of an independent set. */
PetscErrorCode AddUpAroundRoots(CMATCHSetup *s, Sweep w, LocalInt aggregates, CMATCHRows *M)
{
  LocalInt *start = nullptr, *member = nullptr;
  MadeRows  made;

  PetscFunctionBegin;
  PetscCall(s->arena.Take((size_t)aggregates + 1, &start));
  PetscCall(s->arena.Take(w.M.n, &member));
  PetscCall(CMATCHListByKeys(s, w.M.n, w.aggregate, aggregates, start, member));
  PetscCall(TakeMadeRows(s, aggregates, w.M.room, &made));
  PetscCall(AddUpGraph(s, RootList{start, member}, w, aggregates, &made, M));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same around the roots of an independent set, of the vertices of M. */
PetscErrorCode AggregateByIndependentSet(CMATCHSetup *s, const CMATCHSweeps &sweeps, const CMATCHRows &M, LocalInt *aggregate,
                                         CMATCHFound *found)
{
  LocalInt *const aggregates = &found->coarse;
  const LocalInt  n          = M.n;
  const int       blocks     = BlocksFor(n);
  const bool      nodes      = sweeps.alone;
  LocalInt       *next = nullptr, *size = nullptr;
  Independent     v{};

  PetscFunctionBegin;
  PetscCall(OpenSweeps(s, M, &v.s));
  v.s.aggregate = aggregate;
  PetscCall(s->arena.Take(n, &v.key));
  PetscCall(s->arena.Take(n, &v.state));
  PetscCall(s->arena.Take(n, &v.near));
  PetscCall(s->arena.Take(n, &next));
  if (nodes) {
    OpenNodes<<<blocks, kBlockSize, 0, s->stream>>>(v.s, sweeps.alone, sweeps.all);
    FinePCCheckLaunch();
  }
  PetscCall(WithGroup((double)M.room / n, [&](auto group) {
    const int row_blocks = BlocksFor((long long)n * group);
    PetscFunctionBegin;
    if (!nodes) FindLeftRows<group><<<row_blocks, kBlockSize, 0, s->stream>>>(v.s);
    WeighAllEdges<group><<<row_blocks, kBlockSize, 0, s->stream>>>(v.s);
    KeepStrongEdges<group><<<row_blocks, kBlockSize, 0, s->stream>>>(v.s, Rules{sweeps.strength, !nodes, true, false, 0});
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  OpenIndependent<<<blocks, kBlockSize, 0, s->stream>>>(v);
  FinePCCheckLaunch();
  do {
    PetscCallCUDA(cudaMemsetAsync(&s->report->undecided, 0, sizeof(LocalInt), s->stream));
    PetscCallCUDA(cudaMemsetAsync(v.s.candidate, 0, n * sizeof(LocalInt), s->stream));
    LeastKeys<<<blocks, kBlockSize, 0, s->stream>>>(v);
    FindRoots<<<blocks, kBlockSize, 0, s->stream>>>(v);
    MarkRoots<<<blocks, kBlockSize, 0, s->stream>>>(v);
    CoverVertices<<<blocks, kBlockSize, 0, s->stream>>>(v);
    FinePCCheckLaunch();
    PetscCall(CMATCHReadReport(s));
  } while (s->seen.undecided);
  GatherAround<<<blocks, kBlockSize, 0, s->stream>>>(v);
  FinePCCheckLaunch();
  for (int pass = 0; pass < 2; pass++) {
    FollowNeighbours<<<blocks, kBlockSize, 0, s->stream>>>(v, next);
    FinePCCheckLaunch();
    std::swap(v.s.mate, next);
  }
  PetscCall(NumberLeaders(s, n, LeadsIndependent{n, v.s.mate}, v.s.number));
  *aggregates = s->seen.aggregates;
  if (!*aggregates) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(s->arena.Take(*aggregates, &size));
  PetscCallCUDA(cudaMemsetAsync(size, 0, *aggregates * sizeof(LocalInt), s->stream));
  NumberIndependent<<<blocks, kBlockSize, 0, s->stream>>>(v, aggregate, size);
  CountSizes<<<BlocksFor(*aggregates), kBlockSize, 0, s->stream>>>(*aggregates, size, s->report);
  FinePCCheckLaunch();
  if (nodes) PetscCall(AddUpAroundRoots(s, v.s, *aggregates, &found->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What was found, for the view. */
PetscErrorCode CountFound(CMATCHSetup *s, LocalInt n, LocalInt *aggregate, CMATCHFound *found)
{
  PetscFunctionBegin;
  if (!found->coarse) PetscCallCUDA(cudaMemsetAsync(aggregate, 0xff, n * sizeof(LocalInt), s->stream)); /* -1 */
  PetscCall(CMATCHReadReport(s));
  found->left    = s->seen.left;
  found->joined  = s->seen.joined;
  found->largest = s->seen.largest_aggregate;
  found->least   = s->seen.smallest_aggregate;
  found->singles = s->seen.singles;
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHListByKeys(CMATCHSetup *s, LocalInt count, const LocalInt *key, LocalInt lists, LocalInt *start,
                                LocalInt *list)
{
  const auto mark   = s->arena.mark();
  unsigned  *sorted = nullptr;
  LocalInt  *number = nullptr;
  int        bits   = 1;

  PetscFunctionBegin;
  while ((1ll << bits) <= (long long)lists) bits++; /* all bits, which -1 has, are behind the keys */
  PetscCall(s->arena.Take(count, &sorted));
  PetscCall(s->arena.Take(count, &number));
  CountUp<<<BlocksFor(count), kBlockSize, 0, s->stream>>>(count, number);
  FinePCCheckLaunch();
  PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, (const unsigned *)key, sorted, number, list, count, 0, bits, s->stream);
  }));
  FindStarts<<<BlocksFor((long long)lists + 1), kBlockSize, 0, s->stream>>>(count, lists, sorted, start);
  FinePCCheckLaunch();
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows go to the back of the arena, where those of the level before have been. What was taken after `mark` is not needed. */
PetscErrorCode CMATCHKeepRows(CMATCHSetup *s, const CMATCHRows &from, CMATCHArena::Mark mark)
{
  const size_t n = from.n, m = from.room;
  LocalInt    *to = nullptr;

  PetscFunctionBegin;
  PetscCall(s->arena.TakeBack(3 * n + 2 * m, {from.start + n, from.length + n, from.d + n, from.j + m, from.a + m}, mark, &to));
  CopyRows<<<BlocksFor((long long)PetscMax(n, m)), kBlockSize, 0, s->stream>>>(from, to);
  FinePCCheckLaunch();
  s->rows =
    CMATCHRows{from.n, to, to + n, to + 3 * n, (const float *)(to + 3 * n + m), (const float *)(to + 2 * n), m, from.foreign};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHFindAggregates(CMATCHSetup *s, CMATCHTransfer transfer, CMATCHLevel *L, CMATCHFound *found)
{
  PetscFunctionBegin;
  *found = CMATCHFound{};
  if (!L->n) PetscFunctionReturn(PETSC_SUCCESS);
  if (transfer == CMATCH_PASSED) {
    PassRows<<<BlocksFor(L->n), kBlockSize, 0, s->stream>>>(L->n, L->aggregate);
    FinePCCheckLaunch();
    found->coarse = found->singles = L->n;
    found->largest                 = 1;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* of all ranks, as if the others had as many aggregates for their rows */
  const CMATCHSweeps sweeps{s->params->sweeps,        CMATCHStrength(*s->params, L->all), L->all >= kCMATCHSmall, nullptr, 0,
                            (PetscReal)L->all / L->n, (PetscReal)s->params->coarse_size};
  if (s->params->coarsening == PC_CMATCH_MIS2) {
    CMATCHRows M;
    PetscCall(RowsOfLevel(s, *L, &M));
    PetscCall(AggregateByIndependentSet(s, sweeps, M, L->aggregate, found));
  } else PetscCall(AggregateByMatching(s, sweeps, L->n, L->aggregate, found));
  PetscCall(CountFound(s, L->n, L->aggregate, found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHMatchNodes(CMATCHSetup *s, const CMATCHSweeps &sweeps, LocalInt n, LocalInt *aggregate, CMATCHFound *found)
{
  PetscFunctionBegin;
  *found = CMATCHFound{};
  PetscCallCUDA(cudaMemsetAsync(&s->report->smallest_aggregate, kCMATCHNoneByte, sizeof(LocalInt), s->stream));
  if (s->params->coarsening == PC_CMATCH_MIS2) PetscCall(AggregateByIndependentSet(s, sweeps, s->rows, aggregate, found));
  else PetscCall(AggregateByMatching(s, sweeps, n, aggregate, found));
  PetscCall(CountFound(s, n, aggregate, found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void CMATCHAdopt(const CMATCHParams &params, CMATCHTransfer transfer, const CMATCHFound &found, CMATCHLevel *L)
{
  L->transfer = transfer;
  L->width    = transfer == CMATCH_MATCHED ? (LocalInt)params.prolongator_row : 1;
  L->coarse   = found.coarse;
  L->left     = found.left;
  L->joined   = found.joined;
  L->largest  = found.largest;
  L->singles  = found.singles;
}

PetscErrorCode CMATCHAggregate(CMATCHSetup *s, bool *end)
{
  CMATCHHierarchyCUDA *H    = s->H;
  CMATCHLevel         *L    = &H->level[H->levels - 1];
  const auto           mark = s->arena.mark();
  CMATCHFound          found;

  PetscFunctionBegin;
  PetscCall(CMATCHFindAggregates(s, CMATCH_MATCHED, L, &found));
  if (found.rows.n) PetscCall(CMATCHKeepRows(s, found.rows, mark));
  s->arena.Release(mark);
  CMATCHAdopt(*s->params, CMATCH_MATCHED, found, L);
  *end = true;
  if (!L->coarse) H->end = CMATCH_END_DOMINATED;
  else if (L->coarse >= kCMATCHStall * (L->n - L->left)) H->end = CMATCH_END_STALLED;
  else *end = false;
  if (*end) CMATCHForgetTransfer(L);
  PetscFunctionReturn(PETSC_SUCCESS);
}
