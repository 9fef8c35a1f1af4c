/*
   CUDA twin of src/pc/cmatch/cmatch_nodes_host_ranks.cxx: the set-up of levels of nodes on several ranks. The method is that of
   rows, whose communication it has, too, see cmatch_ranks_twin.cuh.
*/
#include "cmatch_nodes.cuh"
#include "cmatch_ranks_twin.cuh"

namespace
{

/* What is reserved for a set-up, as a multiple of that for rows. */
constexpr double kWork = 0.7;

/* What nodes have that are sent before P is made: Q, and the modes of their aggregates; 0 for those without. Threads take entries.
 */
__global__ void __launch_bounds__(kBlockSize) PackShared(long long count, LocalInt size, LocalInt square, const LocalInt *node,
                                                         const LocalInt *aggregate, const double *Q, const double *B_c, double *to)
{
  const long long at = GridThread();
  if (at >= count) return;
  const LocalInt width = size + square, i = node[at / width], entry = (LocalInt)(at % width), J = aggregate[i];
  if (J < 0) to[at] = 0;
  else to[at] = entry < size ? Q[(size_t)i * size + entry] : B_c[(size_t)J * square + (entry - size)];
}

/* The same of ghosts, which come behind the own nodes. Those of the same aggregate write the same modes. */
__global__ void __launch_bounds__(kBlockSize)
  TakeShared(long long count, LocalInt size, LocalInt square, const double *from, const LocalInt *aggregate, double *Q, double *B_c)
{
  const long long at = GridThread();
  if (at >= count) return;
  const LocalInt width = size + square, g = (LocalInt)(at / width), entry = (LocalInt)(at % width), J = aggregate[g];
  if (entry < size) Q[(size_t)g * size + entry] = from[at];
  else if (J >= 0) B_c[(size_t)J * square + (entry - size)] = from[at];
}

/* P = I. A thread takes a slot. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) PassOn(LocalInt n, LocalInt k, LocalInt *P_j, T *P_a)
{
  const long long slot = GridThread(), i = slot / kCMATCHSlots;
  if (i >= n) return;
  const bool first = slot % kCMATCHSlots == 0;
  P_j[slot]        = first ? (LocalInt)i : -1;
  for (LocalInt e = 0; e < k * k; e++) P_a[slot * k * k + e] = (T)(first && e / k == e % k);
}

/* Which of the columns behind the own ones P has. A thread takes a slot. */
__global__ void __launch_bounds__(kBlockSize) MarkForeign(long long slots, const LocalInt *P_j, LocalInt coarse, LocalInt *used)
{
  const long long slot = GridThread();
  if (slot < slots && P_j[slot] >= coarse) used[P_j[slot] - coarse] = 1;
}

/* The unknowns of aggregates that are dead, which count as alone. A thread takes an aggregate. */
__global__ void __launch_bounds__(kBlockSize) FindDead(LocalInt coarse, LocalInt m, const double *B_c, unsigned char *alone)
{
  const long long c    = GridThread();
  unsigned        dead = 0;
  if (c >= coarse) return;
  for (LocalInt p = 0; p < m; p++)
    if (B_c[(c * m + p) * m + p] == 0) dead |= 1u << p;
  alone[c] = (unsigned char)dead;
}

/*
   What rows that are sent have beside their blocks: how many these are, and of own aggregates which unknowns are alone, and the
   modes. Threads take numbers.
*/
__global__ void __launch_bounds__(kBlockSize)
  WriteSums(long long count, CMATCHSentRowsCUDA sent, LocalInt coarse, int width, const LocalInt *list, const unsigned char *alone,
            const double *B, double *sums)
{
  const long long at = GridThread();
  if (at >= count) return;
  const LocalInt r = list[at / width], c = sent.first + r;
  const int      place = (int)(at % width);
  if (place == 0) sums[at] = (double)sent.Length(r);
  else if (c >= coarse) sums[at] = 0;
  else sums[at] = place == 1 ? (double)alone[c] : B[(size_t)c * (width - 2) + (place - 2)];
}

/* What the own nodes of the next level have: the modes, and which unknowns are alone. */
struct NextModes {
  LocalInt             mine;
  int                  size; /* of the modes of a node */
  const double        *own_B;
  const unsigned char *own_alone;
  const LocalInt      *add_i;
  CMATCHCameRows       came;

  __device__ const double *Sums(LocalInt k) const { return came.sums + (size_t)came.at[k] * came.width + 1; }
};

/* A thread takes an entry. */
__global__ void __launch_bounds__(kBlockSize) TakeModes(LocalInt nodes, NextModes from, double *B, unsigned char *alone)
{
  const long long at = GridThread();
  if (at >= (long long)nodes * from.size) return;
  const LocalInt c = (LocalInt)(at / from.size), e = (LocalInt)(at % from.size);
  double         sum  = c < from.mine ? from.own_B[at] : 0.;
  unsigned       bits = c < from.mine ? from.own_alone[c] : 0u;
  for (LocalInt k = from.add_i[c]; k < from.add_i[c + 1]; k++) {
    sum += from.Sums(k)[1 + e];
    bits |= (unsigned)from.Sums(k)[0];
  }
  B[at] = sum;
  if (e == 0) alone[c] = (unsigned char)bits;
}

/* Whether slices have columns of ghosts, which are the last ones of rows. A thread takes a slice. */
__global__ void __launch_bounds__(kBlockSize) FlagSlices(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, unsigned char *flag)
{
  const long long first = GridThread() * kCMATCHSlice;
  bool            any   = false;
  if (first >= n) return;
  for (long long i = first; i < min(first + kCMATCHSlice, (long long)n); i++) any = any || A_j[A_i[i + 1] - 1] >= n;
  flag[first / kCMATCHSlice] = any;
}

class SetUp : public CMATCHRanksTwinCUDA {
public:
  SetUp(CMATCHHierarchyCUDA *hierarchy, const CMATCHModes &own_modes, PetscBool kept, PetscBool work, CMATCHStats *made_stats) :
      CMATCHRanksTwinCUDA(hierarchy, kept, made_stats), t{&s, hierarchy->nodes, (bool)kept, (bool)work}, modes(own_modes)
  {
  }

  PetscErrorCode Begin(const CSRView *own, const CSRView *foreign, const std::vector<GlobalInt> &ghost, const PetscScalar *,
                       double largest) override
  {
    const LocalInt               n       = own->n / modes.k;
    const std::vector<GlobalInt> nodes   = CMATCHGhostNodes(ghost, modes.k);
    const CSRView                others  = n ? *foreign : CSRView{};
    LocalInt                    *columns = nullptr;
    std::vector<LocalInt>        columns_of;

    PetscFunctionBegin;
    PetscCall(DeviceGetStream(&s.stream));
    PetscCall(CMATCHOpenWork(&s, (size_t)(kWork * ((double)own->nnz + others.nnz) * (sizeof(LocalInt) + sizeof(PetscScalar)))));
    level_mark = s.arena.mark();
    for (size_t g = 0, node = 0; g < ghost.size(); g++) {
      while (nodes[node] != ghost[g] / modes.k) node++;
      columns_of.push_back((n + (LocalInt)node) * modes.k + (LocalInt)(ghost[g] % modes.k));
    }
    PetscCall(s.arena.Take(columns_of.size(), &columns));
    PetscCall(Upload(columns_of, columns));
    PetscCheck((PetscInt64)own->nnz + others.nnz <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "A rank's rows have more entries than 32 bits can count");
    if (!keep) H->several = 1;
    PetscCall(CMATCHNodesMakeFinest(&t, {*own, others, columns, &nodes, largest}, modes));
    if (!CMATCHHasFailed(&s)) PetscCall(CMATCHNodesCountFit(&t));
    CMATCHRecordFailure(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Match(LocalInt l, CMATCHTransfer how, CMATCHMatch *match) override
  {
    CMATCHNodesLevel &L = t.N->level[l];
    const PetscReal   m = t.N->m;

    PetscFunctionBegin;
    s.arena.Release(level_mark);
    H->several = l + 1;
    transfer   = how;
    if (how == CMATCH_PASSED) {
      CMATCHLevel rows{};
      rows.n         = L.n;
      rows.aggregate = L.aggregate;
      PetscCall(CMATCHFindAggregates(&s, how, &rows, &found));
      if (!l && L.n) {
        PetscCall(CMATCHReadReport(&s));
        CMATCHNodesTakeBeside(&t);
      }
      found.least = L.n > 0;
    } else PetscCall(CMATCHNodesFindAggregates(&t, m * (PetscReal)H->level[l].all / (PetscReal)PetscMax(L.n, 1), &found));
    if (!found.coarse) found.largest = found.least = 0;
    *match = {found.coarse, found.left, 0};
    PetscCall(CountFound(&match->entries));
    match->entries *= (PetscInt64)t.N->m * t.N->m;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Number(LocalInt l, GlobalInt first_coarse, const std::vector<LocalInt> &send, CMATCHHalo *halo) override
  {
    CMATCHLevel      &R = H->level[l];
    CMATCHNodesLevel &L = t.N->level[l];
    Layout            layout;

    PetscFunctionBegin;
    if (!l && t.work && transfer == CMATCH_MATCHED && L.n) PetscCall(CMATCHNodesMeasureFit(&s, s.rows, L.aggregate));
    L.left              = found.left;
    L.coarse            = found.coarse;
    L.joined            = found.joined;
    L.largest           = found.largest;
    L.least             = found.least;
    t.N->level[l + 1].k = transfer == CMATCH_PASSED ? L.k : t.N->m;
    R.transfer          = transfer;
    R.coarse            = L.coarse;
    R.foreign           = 0;
    R.width             = kCMATCHSlots;
    R.first_coarse      = first_coarse;
    if (found.rows.n) PetscCall(CMATCHKeepRows(&s, found.rows, level_mark));
    else if (transfer != CMATCH_PASSED) s.rows.n = 0;
    s.arena.Release(level_mark);
    layout.Place(&L.B_c, ((size_t)L.coarse + R.ghosts) * t.N->m * t.N->m); /* of aggregates of ghosts, too */
    H->memory.emplace_back(&H->meter);
    PetscCall(layout.Allocate(&H->memory.back()));
    PetscCall(ShareNumbers(L.n, R, send, halo));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Share(LocalInt l, const std::vector<LocalInt> &send, CMATCHHalo *shared, int *width) override
  {
    const CMATCHNodesLevel &L    = t.N->level[l];
    const CMATCHLevel      &R    = H->level[l];
    const LocalInt          size = L.k * t.N->m, square = t.N->m * t.N->m;
    const long long         count = (long long)send.size() * (size + square);
    LocalInt               *list  = nullptr;

    PetscFunctionBegin;
    *width = 0;
    if (keep) s.arena.Release(level_mark);
    PetscCall(CMATCHNodesMakeSlices(&t));
    if (R.transfer == CMATCH_PASSED) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(node.Make(MPI_DOUBLE, L.k));
    PetscCall(CMATCHNodesInvertDiagonals(&t, &vectors));
    if (!CMATCHHasFailed(&s)) PetscCall(CMATCHNodesFactor(&t));
    CMATCHRecordFailure(&s);
    if (stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(s.arena.Take(((size_t)L.n + R.ghosts) * size, &Q));
    PetscCall(CMATCHNodesTentative(&t, Q));
    *width = size + square;
    PetscCall(NeedOutbox(1, (size_t)count * sizeof(double)));
    PetscCall(s.arena.Take((size_t)R.ghosts * *width, &came_Q));
    PetscCall(TakeList(send, &list));
    if (count) {
      PackShared<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, size, square, list, L.aggregate, Q, L.B_c,
                                                                (double *)H->outbox[1].data());
      FinePCCheckLaunch();
    }
    *shared = {H->outbox[1].data(), came_Q};
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Estimate(LocalInt l) override
  {
    PetscFunctionBegin;
    t.N->level[l].lambda = 0;
    if (H->level[l].transfer == CMATCH_PASSED) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(CMATCHNodesEstimate(&t, vectors, node.Get()));
    if (!CMATCHHasFailed(&s)) PetscCall(CMATCHNodesScaleFactor(&t, &vectors, node.Get()));
    CMATCHRecordFailure(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Prolong(LocalInt l, const std::vector<LocalInt> &send, CMATCHHalo *columns, CMATCHHalo *values) override
  {
    CMATCHLevel      &R     = H->level[l];
    CMATCHLevelCUDA  &of    = H->device[l];
    CMATCHNodesLevel &L     = t.N->level[l];
    const size_t      width = (size_t)kCMATCHSlots * L.k * t.N->level[l + 1].k * FinePCPrecisionBytes(H->params.precision);
    LocalInt         *list  = nullptr;

    PetscFunctionBegin;
    if (!keep) PetscCall(NumberGhosts(L.n, &R, &of));
    if (R.transfer == CMATCH_PASSED) PetscCall(Pass(L));
    else {
      PetscCall(CMATCHNodesScaleInverses(&t, CMATCHNodesSteps(H->params)));
      PetscCall(TakeQ(L, R));
      PetscCall(CMATCHNodesMakeRows(&t, Q));
    }
    PetscCall(TakeList(send, &list));
    if (!keep) {
      PetscCall(FindForeign(L, &R, &of));
      PetscCall(TakeColumns(of));
      PetscCall(ShareColumns(L.n, R, send.size(), list, columns));
      PetscCall(PlaceM(R, of.met));
    }
    PetscCall(CMATCHNodesRestriction(&t, R.coarse + R.foreign));
    PetscCall(PackValues(1, send.size(), list, width, L.P_a, &values->packed));
    values->ghosts = (char *)L.P_a + L.n * width;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Multiply(LocalInt l, LocalInt mine, const CMATCHRowList &list, int kinds, CMATCHSentRows to[]) override
  {
    CMATCHLevel     &R  = H->level[l];
    CMATCHLevelCUDA &of = H->device[l];
    const LocalInt   n = t.N->level[l].n, k = t.N->level[l + 1].k;

    PetscFunctionBegin;
    R.mine = mine;
    if (!keep) {
      PetscCall(NumberOthers(n, &R, &of));
      PetscCall(TakeSendList(R, list, k, &of));
    }
    PetscCall(TakeColumns(of));
    PetscCall(CMATCHNodesMultiply(&t, R.coarse + (LocalInt)of.column.size(), &made, &made_entries));
    PetscCall(FindNextModes(l));
    for (CMATCHCameRows &rows : came) rows = CMATCHCameRows{};
    came[CMATCH_PRODUCTS].width = 2 + k * t.N->m;
    came[CMATCH_PRODUCTS].block = k * k;
    CMATCHSentRowsCUDA sent{mine, R.coarse + R.foreign, made.start, nullptr, made.j, made.a};
    sent.block = k * k;
    PetscCall(BeginRows(CMATCH_PRODUCTS, of, 2 + k * t.N->m, &to[CMATCH_PRODUCTS]));
    const long long count = (long long)of.sent * to[CMATCH_PRODUCTS].width;
    if (count) {
      WriteSums<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, sent, R.coarse, to[CMATCH_PRODUCTS].width, of.send,
                                                               next_alone, next_B, to[CMATCH_PRODUCTS].sums);
      FinePCCheckLaunch();
    }
    PetscCall(SendRows(CMATCH_PRODUCTS, of, sent, CMATCHNumberOf{R.coarse, R.first_coarse, column}, &to[CMATCH_PRODUCTS]));
    if (kinds > 1) PetscCall(SendM(R, of, &to[CMATCH_MATCHING]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Next(LocalInt l, const CMATCHOwnedRows &next, const CMATCHRowList &receive, std::vector<LocalInt> *place) override
  {
    const CMATCHLevel     &R  = H->level[l];
    const CMATCHLevelCUDA &of = H->device[l];
    const CMATCHCameRows  &in = came[CMATCH_PRODUCTS];
    const LocalInt         k = t.N->level[l + 1].k, size = k * t.N->m;
    std::vector<GlobalInt> ghost;
    LocalInt              *places = nullptr;
    GlobalInt             *ghosts = nullptr;
    double                *A, *B;
    unsigned char         *alone;

    PetscFunctionBegin;
    PetscCall(BeginNext(l, next, receive, k, place, &ghost, &ghosts, &places));
    PetscCall(CMATCHNodesMergeRows(&t,
                                   {next.rows, R.mine, R.coarse, of.add_i, made, places, in.start, in.length, in.j, in.a, &ghost},
                                   &A, &alone, &B));
    if (next.rows) {
      TakeModes<<<BlocksFor((long long)next.rows * size), kBlockSize, 0, s.stream>>>(next.rows,
                                                                                     NextModes{R.mine, (int)size, next_B,
                                                                                               next_alone, of.add_i, in},
                                                                                     B, alone);
      FinePCCheckLaunch();
    }
    H->level[l + 1].first = next.first;
    H->level[l + 1].all   = next.all;
    t.level++;
    t.A     = A;
    t.B     = B;
    t.alone = alone;
    PetscCall(CMATCHNodesComplete(&t));
    if (!keep) PetscCall(MergeM(l, next, ghost, ghosts, true));
    s.arena.Release(level_mark);
    PetscCall(CMATCHReadReport(&s)); /* waits, since what came lies in memory that is taken anew */
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode End(LocalInt l, bool alone) override
  {
    PetscFunctionBegin;
    if (alone) {
      t.level = l;
      PetscCall(CMATCHNodesMakeLevels(&t));
    } else {
      H->inverted = PETSC_FALSE;
      PetscCall(CMATCHPrepareCycle(H, s.stream));
    }
    CMATCHRecordFailure(&s);
    for (LocalInt level = 0; level < H->several && !keep; level++) {
      PetscCall(ListBorder(level));
      for (auto [type, values] : {std::pair{&H->device[level].type, t.N->level[level].k},
                                  std::pair{&H->device[level].coarse_type, t.N->level[level + 1].k}}) {
        *type = std::make_shared<CMATCHNodeType>();
        PetscCall((*type)->Make(CMATCHType(H->params.precision), values));
      }
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ScaleFactors() override { return PETSC_SUCCESS; }

  PetscErrorCode Close(PetscBool work) override
  {
    PetscFunctionBegin;
    PetscCall(CMATCHReadReport(&s));
    t.N->coupled = s.seen.coupled;
    t.N->fit     = s.seen.fit[0];
    if (!keep) t.N->first_fit = t.N->fit;
    PetscCall(CMATCHNodesClose(&t, work));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  PetscErrorCode Pass(const CMATCHNodesLevel &L)
  {
    PetscFunctionBegin;
    if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCallCUDA(cudaMemsetAsync(&s.report->cut, 0, sizeof(LocalInt), s.stream));
    PetscCallCUDA(cudaMemsetAsync(&s.report->dead, 0, sizeof(LocalInt), s.stream));
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      PassOn<T><<<BlocksFor((long long)L.n * kCMATCHSlots), kBlockSize, 0, s.stream>>>(L.n, L.k, L.P_j, (T *)L.P_a);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Q of ghosts, and the modes of their aggregates, behind the own ones. */
  PetscErrorCode TakeQ(const CMATCHNodesLevel &L, const CMATCHLevel &R)
  {
    const LocalInt  size = L.k * t.N->m, square = t.N->m * t.N->m;
    const long long count = (long long)R.ghosts * (size + square);

    PetscFunctionBegin;
    if (!count) PetscFunctionReturn(PETSC_SUCCESS);
    TakeShared<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, size, square, came_Q, L.aggregate + L.n,
                                                              Q + (size_t)L.n * size, L.B_c);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Foreign aggregates, from the columns that P has. */
  PetscErrorCode FindForeign(const CMATCHNodesLevel &L, CMATCHLevel *R, CMATCHLevelCUDA *of)
  {
    const long long       slots = (long long)L.n * kCMATCHSlots;
    std::vector<LocalInt> entries(of->met), kept;
    LocalInt             *used = nullptr;

    PetscFunctionBegin;
    if (of->met) {
      PetscCall(s.arena.Take(entries.size(), &used));
      PetscCallCUDA(cudaMemsetAsync(used, 0, entries.size() * sizeof(*used), s.stream));
      MarkForeign<<<BlocksFor(slots), kBlockSize, 0, s.stream>>>(slots, L.P_j, L.coarse, used);
      FinePCCheckLaunch();
      PetscCall(Download(used, &entries));
    }
    PetscCall(NumberForeign(L.n, entries, R, of, &kept));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The modes of own aggregates, and which unknowns of them are alone. */
  PetscErrorCode FindNextModes(LocalInt l)
  {
    const CMATCHNodesLevel &L    = t.N->level[l];
    unsigned char          *dead = nullptr;

    PetscFunctionBegin;
    next_B     = t.B;
    next_alone = t.alone;
    if (H->level[l].transfer == CMATCH_PASSED) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(s.arena.Take(L.coarse, &dead));
    next_B     = L.B_c;
    next_alone = dead;
    if (!L.coarse) PetscFunctionReturn(PETSC_SUCCESS);
    FindDead<<<BlocksFor(L.coarse), kBlockSize, 0, s.stream>>>(L.coarse, t.N->m, L.B_c, dead);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Lists the inner slices of a level, and those at a border. */
  PetscErrorCode ListBorder(LocalInt level)
  {
    const CMATCHNodesLevel    &L      = t.N->level[level];
    CMATCHLevelCUDA           &of     = H->device[level];
    const LocalInt             slices = CMATCHSliceCount(L.n);
    std::vector<unsigned char> flags(slices);
    std::vector<LocalInt>      inner, border;
    unsigned char             *flag = nullptr;
    const auto                 mark = s.arena.mark();

    PetscFunctionBegin;
    PetscCall(s.arena.Take(slices, &flag));
    if (slices) {
      FlagSlices<<<BlocksFor(slices), kBlockSize, 0, s.stream>>>(L.n, L.A_i, L.A_j, flag);
      FinePCCheckLaunch();
      PetscCall(Download(flag, &flags));
    }
    for (LocalInt slice = 0; slice < slices; slice++) (flags[slice] ? border : inner).push_back(slice);
    PetscCall(Upload(inner, of.inner));
    PetscCall(Upload(border, of.border));
    of.inners  = (LocalInt)inner.size();
    of.borders = (LocalInt)border.size();
    s.arena.Release(mark);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHNodesSetup   t; /* of the level at hand */
  const CMATCHModes  modes;
  CMATCHNodeType     node;                           /* of the vectors of the estimate */
  CMATCHNodesVectors vectors;                        /* of the estimate */
  double            *Q = nullptr, *came_Q = nullptr; /* [n + ghosts][k][m], and of ghosts what comes: Q, and modes of aggregates */
  const double      *next_B       = nullptr;         /* [coarse][next k][m] */
  const unsigned char *next_alone = nullptr;
};

} // namespace

PetscErrorCode CMATCHNodesRanksCreate_CUDA(const CMATCHParams *params, const CMATCHModes *modes, PetscBool keep, PetscBool work,
                                           CMATCHStats *stats, CMATCHHierarchy **H, CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  PetscCall(CMATCHNodesOpen(params, *modes, keep, H));
  *setup = new SetUp((CMATCHHierarchyCUDA *)*H, *modes, keep, work, stats);
  PetscFunctionReturn(PETSC_SUCCESS);
}
