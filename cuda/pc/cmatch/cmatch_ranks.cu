/*
   CUDA twin of src/pc/cmatch/cmatch_host_ranks.cxx: the set-up of levels on several ranks. What ghosts bring, their aggregates and
   the columns of their rows of P, is sorted and numbered on the GPU, too; the host gets the lists of numbers that result.

   The merged rows of the next level are a sparse product, too: row c is the sum of the rank's own row c, if it keeps that, and of
   the contributions for row c in the order of the ranks.
*/
#include <cmath>

#include <cub/cub.cuh>

#include "cmatch_fsai.cuh"
#include "cmatch_product.cuh"
#include "cmatch_ranks.cuh"
#include "search.cuh"

namespace
{

/* What is reserved for a set-up on several ranks, which holds more at a time, as a multiple of that for one rank. */
constexpr double kMoreHeld = 1.75;

/* ---------------------------------------- on the host ----------------------------------------- */

/* Room in the arena for the entries of a product. */
template <typename Made>
PetscErrorCode TakeEntries(CMATCHSetup *s, size_t entries, Made *more)
{
  PetscFunctionBegin;
  PetscCall(s->arena.Take(entries, &more->j));
  PetscCall(s->arena.Take(entries, &more->a));
  more->room = entries;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What rows that are sent have beside their entries. */
PetscErrorCode WriteSumsOf(const CMATCHSentRowsCUDA &rows, const CMATCHLevelCUDA &of, double *sums, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (!of.sent) PetscFunctionReturn(PETSC_SUCCESS);
  WriteSums<<<BlocksFor(of.sent), kBlockSize, 0, stream>>>(rows, of.sent, of.send, sums);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

MergedEntries Merged(const CMATCHLevel &L, const CMATCHMade &own, const LocalInt *place, const CMATCHCameRows &in)
{
  return {L.mine, L.coarse, own.start, own.length, own.j, own.a, place, in.start, in.length, in.j, in.a};
}

/* Merged rows of the operator of the matching, with room for so many entries. */
template <typename V>
PetscErrorCode MergeRows(CMATCHSetup *s, const MergedList &list, const MergedEntries &entries, LocalInt rows, LocalInt columns,
                         size_t most, ProductRows<V> *out)
{
  const auto room = [&](size_t count, auto *more) { return TakeEntries(s, count, more); };

  PetscFunctionBegin;
  PetscCall(s->arena.Take(rows, &out->start));
  PetscCall(s->arena.Take(rows, &out->length));
  PetscCall(s->arena.Take(rows, &out->wide));
  PetscCall(room(most, out));
  PetscCall((Product<kGroup, 1, 4, false, true, false>(s, list, entries, {rows, columns, false, 7}, out, room)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* ------------------------------------ of rows and of nodes ------------------------------------ */

PetscErrorCode CMATCHRanksTwinCUDA::CountFound(PetscInt64 *entries)
{
  PetscFunctionBegin;
  *entries = 0;
  if (!found.rows.n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallCUDA(cudaMemsetAsync(&s.report->entries, 0, sizeof(s.report->entries), s.stream));
  CountEntries<<<BlocksFor(found.rows.n), kBlockSize, 0, s.stream>>>(found.rows, s.report);
  FinePCCheckLaunch();
  PetscCall(CMATCHReadReport(&s));
  *entries = (PetscInt64)s.seen.entries + found.coarse;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::ShareNumbers(LocalInt n, const CMATCHLevel &L, const std::vector<LocalInt> &send,
                                                 CMATCHHalo *halo)
{
  LocalInt *list = nullptr;

  PetscFunctionBegin;
  PetscCall(s.arena.Take((size_t)n + L.ghosts, &numbers));
  PetscCall(NumberColumns(n, L.aggregate, CMATCHNumberOf{L.coarse, L.first_coarse, nullptr}, numbers));
  PetscCall(TakeList(send, &list));
  PetscCall(PackValues(0, send.size(), list, sizeof(*numbers), numbers, &halo->packed));
  halo->ghosts = numbers + n;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::ShareColumns(LocalInt n, const CMATCHLevel &L, size_t sent, const LocalInt *list,
                                                 CMATCHHalo *halo)
{
  const size_t own = (size_t)n * L.width;

  PetscFunctionBegin;
  PetscCall(s.arena.Take(((size_t)n + L.ghosts) * L.width, &P_numbers));
  PetscCall(NumberColumns((long long)own, L.P_j, CMATCHNumberOf{L.coarse, L.first_coarse, column}, P_numbers));
  PetscCall(PackValues(0, sent, list, L.width * sizeof(*P_numbers), P_numbers, &halo->packed));
  halo->ghosts = P_numbers + own;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::MakeRoom(LocalInt rows, int kinds, const LocalInt entries[], CMATCHRowData received[])
{
  PetscFunctionBegin;
  for (int kind = 0; kind < kinds; kind++) {
    CMATCHCameRows &to = came[kind];
    to.entries         = entries[kind];
    PetscCall(s.arena.Take((size_t)rows * to.width, &to.sums));
    for (LocalInt **array : {&to.start, &to.length, &to.at}) PetscCall(s.arena.Take(rows, array));
    if (to.block == 1)
      for (double **array : {&to.sum, &to.size}) PetscCall(s.arena.Take(rows, array));
    PetscCall(s.arena.Take(to.entries, &to.number));
    PetscCall(s.arena.Take(to.entries, &to.j));
    PetscCall(s.arena.Take((size_t)to.entries * to.block, &to.a));
    received[kind] = {to.sums, to.number, to.a, to.width, to.block};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::BeginNext(LocalInt l, const CMATCHOwnedRows &next, const CMATCHRowList &receive,
                                              LocalInt values, std::vector<LocalInt> *place, std::vector<GlobalInt> *ghost,
                                              GlobalInt **ghosts, LocalInt **places)
{
  PetscFunctionBegin;
  if (!keep) PetscCall(NumberContributions(next.rows, receive.rows, values, place, &H->level[l], &H->device[l]));
  for (CMATCHCameRows &rows : came) PetscCall(PlaceCame(H->level[l].contributions, H->device[l].place, rows));
  if (!keep) PetscCall(FindGhosts(l, next, ghost));
  else *ghost = H->device[l + 1].ghost;
  PetscCall(s.arena.Take(ghost->size(), ghosts));
  PetscCall(Upload(*ghost, *ghosts));
  PetscCall(PlaceColumns(H->device[l].column.size(), column, next, ghost->size(), *ghosts, places));
  for (CMATCHCameRows &rows : came)
    if (rows.entries) PetscCall(FindColumnsOf(rows.entries, rows.number, next, ghost->size(), *ghosts, rows.j));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::NeedOutbox(int which, size_t bytes)
{
  PetscFunctionBegin;
  if (H->outbox[which].size() < bytes) PetscCall(H->outbox[which].Allocate(bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::TakeList(const std::vector<LocalInt> &rows, LocalInt **list)
{
  PetscFunctionBegin;
  PetscCall(s.arena.Take(rows.size(), list));
  PetscCall(Upload(rows, *list));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::PackValues(int which, size_t rows, const LocalInt *list, size_t bytes, const void *from,
                                               void **packed)
{
  const LocalInt words = (LocalInt)(bytes / sizeof(unsigned));
  const auto     count = (long long)rows * words;

  PetscFunctionBegin;
  PetscCall(NeedOutbox(which, (size_t)count * sizeof(unsigned)));
  *packed = H->outbox[which].data();
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PackWords<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, words, list, (const unsigned *)from, (unsigned *)*packed);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::TakeSendList(const CMATCHLevel &L, const CMATCHRowList &list, LocalInt values,
                                                 CMATCHLevelCUDA *of)
{
  std::vector<LocalInt> begin;
  Layout                layout;

  PetscFunctionBegin;
  for (const Neighbours::Part &part : list.parts) begin.push_back(part.begin);
  begin.push_back((LocalInt)list.rows.size());
  of->parts = (LocalInt)list.parts.size();
  of->sent  = (LocalInt)list.rows.size();
  layout.Place(&of->part, begin.size());
  layout.Place(&of->send, list.rows.size());
  layout.Place(&of->values, ((size_t)L.coarse + L.foreign) * values * FinePCPrecisionBytes(H->params.precision));
  H->memory.emplace_back(&H->meter);
  PetscCall(layout.Allocate(&H->memory.back()));
  PetscCall(Upload(begin, of->part));
  PetscCall(Upload(list.rows, of->send));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::OrderRows(LocalInt rows, int width, const double *sums, unsigned long long *all, LocalInt **at)
{
  LocalInt *length = nullptr;

  PetscFunctionBegin;
  PetscCall(s.arena.Take((size_t)rows + 1, &length));
  PetscCall(s.arena.Take((size_t)rows + 1, at));
  ReadLengths<<<BlocksFor((long long)rows + 1), kBlockSize, 0, s.stream>>>(rows, width, sums, length, all);
  FinePCCheckLaunch();
  PetscCall(s.cub.Run(
    [&](void *memory, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, length, *at, rows + 1, s.stream); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::BeginRows(CMATCHRowKind kind, const CMATCHLevelCUDA &of, int width, CMATCHSentRows *to)
{
  PetscFunctionBegin;
  PetscCall(NeedOutbox(2 * kind, (size_t)of.sent * width * sizeof(double)));
  to->sums  = (double *)H->outbox[2 * kind].data();
  to->width = width;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::SendRows(CMATCHRowKind kind, const CMATCHLevelCUDA &of, const CMATCHSentRowsCUDA &rows,
                                             const CMATCHNumberOf &number, CMATCHSentRows *to)
{
  LocalInt                       *at  = nullptr;
  unsigned long long             *end = nullptr;
  std::vector<unsigned long long> ends((size_t)of.parts + 2); /* the last one is the sum of all, which may be too large */

  PetscFunctionBegin;
  PetscCall(s.arena.Take(ends.size(), &end));
  PetscCallCUDA(cudaMemsetAsync(end, 0, ends.size() * sizeof(*end), s.stream));
  PetscCall(OrderRows(of.sent, to->width, to->sums, end + ends.size() - 1, &at));
  FindEnds<<<BlocksFor((long long)of.parts + 1), kBlockSize, 0, s.stream>>>(of.parts, of.part, at, end);
  FinePCCheckLaunch();
  PetscCall(Download(end, &ends));
  PetscCheck(ends.back() <= (unsigned long long)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", kCMATCHTooManyToSend);
  to->block = rows.block;
  to->entries.clear();
  for (LocalInt k = 0; k < of.parts; k++) to->entries.push_back((LocalInt)(ends[k + 1] - ends[k]));
  PetscCall(NeedOutbox(2 * kind + 1, ends.back() * (rows.block * sizeof(double) + sizeof(GlobalInt))));
  to->a = (double *)H->outbox[2 * kind + 1].data();
  to->j = (GlobalInt *)(to->a + ends.back() * rows.block);
  if (ends.back()) {
    PackEntries<<<BlocksFor((long long)of.sent * kGroup), kBlockSize, 0, s.stream>>>(rows, of.sent, of.send, at, number, to->j,
                                                                                     to->a);
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::SendM(const CMATCHLevel &L, const CMATCHLevelCUDA &of, CMATCHSentRows *to)
{
  const CMATCHSentRowsCUDA rows{L.mine, L.coarse, M.start, M.length, M.j, M.a, M.rs, M.size};

  PetscFunctionBegin;
  PetscCall(BeginRows(CMATCH_MATCHING, of, kCMATCHRowSums, to));
  PetscCall(WriteSumsOf(rows, of, to->sums, s.stream));
  PetscCall(SendRows(CMATCH_MATCHING, of, rows, CMATCHNumberOf{L.coarse, L.first_coarse, met_column}, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::PlaceCame(LocalInt count, const LocalInt *place, const CMATCHCameRows &rows)
{
  LocalInt *at = nullptr;

  PetscFunctionBegin;
  if (!rows.sums || !count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(OrderRows(count, rows.width, rows.sums, nullptr, &at));
  PlaceRows<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, place, at, rows);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::NumberColumns(long long count, const LocalInt *columns, const CMATCHNumberOf &number,
                                                  GlobalInt *to)
{
  PetscFunctionBegin;
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  ::NumberColumns<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, columns, number, to);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::TakeColumns(const CMATCHLevelCUDA &of)
{
  PetscFunctionBegin;
  PetscCall(s.arena.Take(of.column.size(), &column));
  PetscCall(Upload(of.column, column));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::BeginList(size_t room, GlobalInt **list)
{
  PetscFunctionBegin;
  PetscCall(s.arena.Take(room, list));
  PetscCallCUDA(cudaMemsetAsync(&s.report->entries, 0, sizeof(s.report->entries), s.stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::EndList(GlobalInt *list, std::vector<GlobalInt> *on_host)
{
  GlobalInt *sorted  = nullptr;
  LocalInt  *counted = nullptr, count;

  PetscFunctionBegin;
  PetscCall(CMATCHReadReport(&s));
  on_host->clear();
  const LocalInt listed = (LocalInt)s.seen.entries;
  if (!listed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(s.arena.Take(listed, &sorted));
  PetscCall(s.arena.Take(1, &counted));
  PetscCall(s.cub.Run([&](void *memory, size_t &bytes) {
    return cub::DeviceRadixSort::SortKeys(memory, bytes, list, sorted, listed, 0, (int)(8 * sizeof(GlobalInt)), s.stream);
  }));
  PetscCall(s.cub.Run([&](void *memory, size_t &bytes) {
    return cub::DeviceSelect::Unique(memory, bytes, sorted, list, counted, listed, s.stream);
  }));
  PetscCall(ArrayCopy_CUDA(&count, counted, sizeof(count), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  on_host->resize(count);
  PetscCall(Download(list, on_host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::NumberGhosts(LocalInt n, CMATCHLevel *L, CMATCHLevelCUDA *of)
{
  const GlobalInt *of_ghost = numbers + n;
  GlobalInt       *list     = nullptr;

  PetscFunctionBegin;
  met.clear();
  of->met     = 0;
  ghost_place = nullptr;
  if (!L->ghosts) PetscFunctionReturn(PETSC_SUCCESS);
  const int blocks = BlocksFor(L->ghosts);
  PetscCall(BeginList(L->ghosts, &list));
  ListOthers<<<blocks, kBlockSize, 0, s.stream>>>(L->ghosts, of_ghost, nullptr, L->first_coarse, L->coarse, list, s.report);
  FinePCCheckLaunch();
  PetscCall(EndList(list, &met));
  of->met = (LocalInt)met.size();
  PetscCall(s.arena.Take(L->ghosts, &ghost_place));
  FindColumns<<<blocks, kBlockSize, 0, s.stream>>>(L->ghosts, of_ghost, L->first_coarse, L->coarse, of->met, list, ghost_place);
  FinePCCheckLaunch();
  PetscCallCUDA(
    cudaMemcpyAsync(L->aggregate + n, ghost_place, (size_t)L->ghosts * sizeof(*ghost_place), cudaMemcpyDeviceToDevice, s.stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::NumberForeign(LocalInt n, const std::vector<LocalInt> &entries, CMATCHLevel *L,
                                                  CMATCHLevelCUDA *of, std::vector<LocalInt> *kept)
{
  std::vector<LocalInt> place(of->met);
  LocalInt             *places = nullptr, others;

  PetscFunctionBegin;
  of->column.clear();
  kept->clear();
  if (of->met) {
    for (LocalInt c = 0; c < of->met; c++)
      if (entries[c]) {
        place[c] = L->coarse + (LocalInt)kept->size();
        kept->push_back(entries[c]);
        of->column.push_back(met[c]);
      }
    others = L->coarse + (LocalInt)kept->size();
    for (LocalInt c = 0; c < of->met; c++)
      if (!entries[c]) place[c] = others++;
    PetscCall(s.arena.Take(place.size(), &places));
    PetscCall(Upload(place, places));
    const long long all = (long long)n * L->width;
    MoveColumns<<<BlocksFor(all), kBlockSize, 0, s.stream>>>(all, L->coarse, places, L->P_j);
    FinePCCheckLaunch();
    MoveColumns<<<BlocksFor(L->ghosts), kBlockSize, 0, s.stream>>>(L->ghosts, L->coarse, places, L->aggregate + n);
    FinePCCheckLaunch();
  }
  L->foreign = (LocalInt)of->column.size();
  L->column  = of->column.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::NumberOthers(LocalInt n, CMATCHLevel *L, CMATCHLevelCUDA *of)
{
  const size_t           own    = (size_t)n * L->width;
  const LocalInt         count  = L->ghosts * L->width;
  const GlobalInt       *number = P_numbers + own;
  LocalInt              *places = L->P_j + own;
  GlobalInt             *list   = nullptr;
  std::vector<GlobalInt> others;

  PetscFunctionBegin;
  if (count) {
    const int blocks = BlocksFor(count);
    FindColumns<<<blocks, kBlockSize, 0, s.stream>>>(count, number, L->first_coarse, L->coarse, L->foreign, column, places);
    FinePCCheckLaunch();
    PetscCall(BeginList(count, &list));
    ListMore<<<blocks, kBlockSize, 0, s.stream>>>(count, number, places, list, s.report);
    FinePCCheckLaunch();
    PetscCall(EndList(list, &others));
    FindMore<<<blocks, kBlockSize, 0, s.stream>>>(count, number, L->coarse + L->foreign, (LocalInt)others.size(), list, places);
    FinePCCheckLaunch();
  }
  of->column.insert(of->column.end(), others.begin(), others.end());
  L->column = of->column.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::PlaceM(const CMATCHLevel &L, LocalInt met_count)
{
  const LocalInt      rows = L.coarse + L.foreign;
  ProductRows<double> out{};
  const auto          room = [&](size_t entries, auto *more) { return TakeEntries(&s, entries, more); };

  PetscFunctionBegin;
  M         = CMATCHMade{};
  M_entries = 0;
  PetscCall(s.arena.Take(met.size(), &met_column));
  PetscCall(Upload(met, met_column));
  PetscCall(s.arena.Take(rows, &M.rs));
  if (rows) {
    CopyDiagonal<<<BlocksFor(rows), kBlockSize, 0, s.stream>>>(L.coarse, rows, s.rows.d, M.rs);
    FinePCCheckLaunch();
  }
  if (!L.coarse) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(s.arena.Take(L.coarse, &out.start));
  PetscCall(s.arena.Take(L.coarse, &out.length));
  PetscCall(s.arena.Take(L.coarse, &out.wide));
  PetscCall(room(s.rows.room, &out));
  PetscCall((Product<kGroup, 1, 4, true, false, false>(&s, RowItself{}, PlacedEntries{s.rows, ghost_place},
                                                       {L.coarse, L.coarse + met_count, false, 7}, &out, room)));
  M.start   = out.start;
  M.length  = out.length;
  M.j       = out.j;
  M.a       = out.a;
  M_entries = (size_t)s.seen.entries;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::NumberContributions(LocalInt rows, const std::vector<LocalInt> &to, LocalInt values,
                                                        std::vector<LocalInt> *place, CMATCHLevel *L, CMATCHLevelCUDA *of)
{
  const LocalInt count = (LocalInt)to.size();
  LocalInt      *row = nullptr, *number = nullptr, *order = nullptr;
  int            bits = 1;
  Layout         layout;

  PetscFunctionBegin;
  L->contributions = count;
  of->rows         = rows;
  layout.Place(&of->place, count);
  layout.Place(&of->add_i, (size_t)rows + 1);
  layout.Place(&of->added, (size_t)count * values * FinePCPrecisionBytes(H->params.precision));
  H->memory.emplace_back(&H->meter);
  PetscCall(layout.Allocate(&H->memory.back()));
  place->resize(count);
  if (count) {
    const int blocks = BlocksFor(count);
    while (bits < 31 && rows >> bits) bits++;
    PetscCall(s.arena.Take(count, &row));
    PetscCall(s.arena.Take(count, &number));
    PetscCall(s.arena.Take(count, &order));
    PetscCall(Upload(to, of->place));
    CountUp<<<blocks, kBlockSize, 0, s.stream>>>(count, number);
    FinePCCheckLaunch();
    /* which leaves those to the same row in the order of the neighbours */
    PetscCall(s.cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceRadixSort::SortPairs(memory, bytes, of->place, row, number, order, count, 0, bits, s.stream);
    }));
    PlaceContributions<<<blocks, kBlockSize, 0, s.stream>>>(count, order, of->place);
    FinePCCheckLaunch();
  }
  FindContributions<<<BlocksFor((long long)rows + 1), kBlockSize, 0, s.stream>>>(rows, count, row, of->add_i);
  FinePCCheckLaunch();
  PetscCall(Download(of->place, place));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::FindGhosts(LocalInt l, const CMATCHOwnedRows &next, std::vector<GlobalInt> *ghost)
{
  const CMATCHLevel    &L         = H->level[l];
  const CMATCHCameRows &in        = came[CMATCH_PRODUCTS];
  const LocalInt        columns   = L.mine ? (LocalInt)H->device[l].column.size() : 0;
  LocalInt             *used      = nullptr;
  GlobalInt            *list      = nullptr;
  size_t                room      = columns;
  const auto            list_came = [&]() {
    PetscFunctionBegin;
    ListOthers<<<BlocksFor(in.entries), kBlockSize, 0, s.stream>>>(in.entries, in.number, nullptr, next.first, next.rows, list,
                                                                              s.report);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  };

  PetscFunctionBegin;
  if (in.entries) { /* most of them are own rows */
    PetscCallCUDA(cudaMemsetAsync(&s.report->entries, 0, sizeof(s.report->entries), s.stream));
    PetscCall(list_came());
    PetscCall(CMATCHReadReport(&s));
    room += (size_t)s.seen.entries;
  }
  ghost->clear();
  if (!room) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(BeginList(room, &list));
  if (columns) {
    PetscCall(s.arena.Take(columns, &used));
    PetscCallCUDA(cudaMemsetAsync(used, 0, columns * sizeof(*used), s.stream));
    MarkBehind<<<BlocksFor((long long)L.mine * kGroup), kBlockSize, 0, s.stream>>>(L.mine, made.start, made.length, made.j,
                                                                                   L.coarse, used);
    FinePCCheckLaunch();
    ListOthers<<<BlocksFor(columns), kBlockSize, 0, s.stream>>>(columns, column, used, next.first, next.rows, list, s.report);
    FinePCCheckLaunch();
  }
  if (room > (size_t)columns) PetscCall(list_came());
  PetscCall(EndList(list, ghost));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::FindColumnsOf(LocalInt count, const GlobalInt *number, const CMATCHOwnedRows &next,
                                                  size_t ghost_count, const GlobalInt *ghosts, LocalInt *places)
{
  PetscFunctionBegin;
  FindColumns<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, number, next.first, next.rows, (LocalInt)ghost_count, ghosts,
                                                             places);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::PlaceColumns(size_t count, const GlobalInt *number, const CMATCHOwnedRows &next,
                                                 size_t ghost_count, const GlobalInt *ghosts, LocalInt **places)
{
  PetscFunctionBegin;
  PetscCall(s.arena.Take(count, places));
  if (count) PetscCall(FindColumnsOf((LocalInt)count, number, next, ghost_count, ghosts, *places));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwinCUDA::MergeM(LocalInt l, const CMATCHOwnedRows &next, const std::vector<GlobalInt> &ghost,
                                           const GlobalInt *ghosts, bool nodes)
{
  const LocalInt        rows  = next.rows;
  const CMATCHLevel    &L     = H->level[l];
  const LocalInt       *add_i = H->device[l].add_i;
  const CMATCHCameRows &in    = came[CMATCH_MATCHING];
  LocalInt             *place = nullptr;
  float                *d     = nullptr;
  ProductRows<float>    out{};

  PetscFunctionBegin;
  s.rows = CMATCHRows{};
  if (!rows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PlaceColumns(met.size(), met_column, next, ghost.size(), ghosts, &place));
  PetscCall(s.arena.Take(rows, &d));
  const MergedEntries entries = Merged(L, M, place, in);
  const size_t        room    = M_entries + in.entries;
  if (nodes) {
    ProductRows<double> sums{};
    PetscCall(MergeRows(&s, {L.mine, add_i}, entries, rows, rows + (LocalInt)ghost.size(), room, &sums));
    out = ProductRows<float>{sums.start, sums.length, sums.j};
    PetscCall(s.arena.Take(s.seen.entries, &out.a));
    RoundGraph<kGroup><<<BlocksFor((long long)rows * kGroup), kBlockSize, 0, s.stream>>>(rows, sums, out.a, d);
    FinePCCheckLaunch();
  } else {
    PetscCall(MergeRows(&s, {L.mine, add_i}, entries, rows, rows + (LocalInt)ghost.size(), room, &out));
    MergeDiagonal<<<BlocksFor(rows), kBlockSize, 0, s.stream>>>(rows, L.mine, M.rs, add_i, in.sum, d);
    FinePCCheckLaunch();
  }
  PetscCall(CMATCHKeepRows(&s,
                           CMATCHRows{rows, out.start, out.length, out.j, out.a, d, (size_t)s.seen.entries, (LocalInt)ghost.size()},
                           level_mark));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- of rows ------------------------------------------ */

namespace
{

class SetUp : public CMATCHRanksTwinCUDA {
public:
  using CMATCHRanksTwinCUDA::CMATCHRanksTwinCUDA;

  PetscErrorCode Begin(const CSRView *own, const CSRView *foreign, const std::vector<GlobalInt> &ghost, const PetscScalar *w,
                       double largest) override
  {
    const LocalInt  n = own->n, with_ghosts = n + (LocalInt)ghost.size();
    const GlobalInt all       = H->level[0].all;
    const bool      copied    = H->params.precision != FINEPC_SINGLE; /* single entries are those of the hierarchy */
    const size_t    nnz       = (size_t)own->nnz + (n ? foreign->nnz : 0);
    float          *matched_a = nullptr, *matched_d = nullptr;
    double         *diagonal = nullptr;
    int             exponent = 0;

    PetscFunctionBegin;
    PetscCall(DeviceGetStream(&s.stream));
    PetscCall(
      CMATCHOpenWork(&s, (size_t)(kMoreHeld * (double)(nnz * (sizeof(LocalInt) + sizeof(PetscScalar)) + n * sizeof(LocalInt)))));
    level_mark = s.arena.mark();
    PetscCall(CMATCHBeginReport(&s));
    if (w && with_ghosts) {
      if (!H->w) PetscCall(ArrayCreate_CUDA(with_ghosts * sizeof(*H->w), (void **)&H->w));
      CopyEntries<<<BlocksFor(with_ghosts), kBlockSize, 0, s.stream>>>(with_ghosts, H->params.zero, w, H->w);
      FinePCCheckLaunch();
    } else PetscCall(ArrayDestroy_CUDA((void **)&H->w));
    PetscCheck(nnz <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "A rank's rows have more entries than 32 bits can count");
    if (n) {
      CheckOwnRows<<<BlocksFor(n), kBlockSize, 0, s.stream>>>(*own, *foreign, H->w, CMATCHSign(H->params), s.report);
      FinePCCheckLaunch();
    }
    if (!keep) { /* while the rows are checked, since memory takes longer; a row may turn out to have no diagonal entry */
      PetscCall(CMATCHCreateLevel(&s, n, n ? (LocalInt)(PetscMax(nnz, (size_t)n) - n) : 0, &ghost));
      H->level[0].all = all;
      H->several      = 1;
    }
    if (n) PetscCall(CMATCHReadReport(&s));
    CMATCHRecordFailure(&s);
    if (stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
    if (largest > 0 && std::isfinite(largest)) (void)std::frexp(largest, &exponent);
    H->scale       = std::ldexp(CMATCHSign(H->params), kCMATCHExponent - exponent);
    CMATCHLevel &L = H->level[0];
    if (!n) {
      PetscCallCUDA(cudaMemsetAsync(L.A_i, 0, sizeof(LocalInt), s.stream));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (CMATCHCarriesGraph(*H)) {
      PetscCall(s.arena.TakeBack((size_t)n + (copied ? L.nnz : 0), {}, level_mark, &matched_d));
      if (copied) matched_a = matched_d + n;
    }
    PetscCall(s.arena.Take(n, &diagonal));
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      CopyOwnRows<T>
        <<<BlocksFor((long long)n + 1), kBlockSize, 0, s.stream>>>(*own, *foreign, H->w, H->scale,
                                                                   CMATCHFinest<T>{L.A_i, L.A_j, (T *)L.A_a, H->device[0].rs,
                                                                                   diagonal, matched_a, matched_d},
                                                                   s.report);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscCall(CMATCHCompleteLevel(&s, 0, diagonal, diagonal));
    PetscCall(CMATCHReadReport(&s));
    s.arena.Release(level_mark);
    if (CMATCHCarriesGraph(*H))
      s.rows = CMATCHRows{n, L.A_i, nullptr, L.A_j, copied ? matched_a : (const float *)L.A_a, matched_d, (size_t)L.nnz, L.ghosts};
    CMATCHRecordFailure(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Match(LocalInt l, CMATCHTransfer how, CMATCHMatch *match) override
  {
    PetscFunctionBegin;
    s.arena.Release(level_mark);
    H->several = l + 1;
    transfer   = how;
    PetscCall(CMATCHFindAggregates(&s, how, &H->level[l], &found));
    *match = {found.coarse, found.left, 0};
    PetscCall(CountFound(&match->entries));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Number(LocalInt l, GlobalInt first_coarse, const std::vector<LocalInt> &send, CMATCHHalo *halo) override
  {
    CMATCHLevel &L = H->level[l];

    PetscFunctionBegin;
    CMATCHAdopt(H->params, transfer, found, &L);
    L.first_coarse = first_coarse;
    L.foreign      = 0;
    if (found.rows.n) PetscCall(CMATCHKeepRows(&s, found.rows, level_mark));
    else if (CMATCHCarriesGraph(*H) && transfer != CMATCH_PASSED) s.rows.n = 0;
    s.arena.Release(level_mark);
    PetscCall(ShareNumbers(L.n, L, send, halo));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Prolong(LocalInt l, const std::vector<LocalInt> &send, CMATCHHalo *columns, CMATCHHalo *values) override
  {
    CMATCHLevel     &L   = H->level[l];
    CMATCHLevelCUDA &of  = H->device[l];
    const size_t     own = (size_t)L.n * L.width, value = FinePCPrecisionBytes(H->params.precision);
    LocalInt        *list = nullptr;
    CMATCHCounted    counted{};

    PetscFunctionBegin;
    if (keep) s.arena.Release(level_mark);
    if (L.transfer != CMATCH_PASSED) PetscCall(CMATCHMeasureFit(&s, l, false));
    if (!keep) PetscCall(NumberGhosts(L.n, &L, &of));
    PetscCall(CMATCHRanksProlong(&s, l, keep, of.met, &counted));
    p1 = counted.p1;
    if (!keep) PetscCall(NumberForeignOf(&L, &of, counted.count));
    PetscCall(CMATCHRanksRestriction(&s, l, keep, counted));
    PetscCall(TakeList(send, &list));
    if (!keep) {
      PetscCall(TakeColumns(of));
      PetscCall(ShareColumns(L.n, L, send.size(), list, columns));
      if (CMATCHCarriesGraph(*H)) PetscCall(PlaceM(L, of.met));
    }
    PetscCall(PackValues(1, send.size(), list, L.width * value, L.P_a, &values->packed));
    values->ghosts = (char *)L.P_a + own * value;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Multiply(LocalInt l, LocalInt mine, const CMATCHRowList &list, int kinds, CMATCHSentRows to[]) override
  {
    CMATCHLevel     &L  = H->level[l];
    CMATCHLevelCUDA &of = H->device[l];

    PetscFunctionBegin;
    L.mine = mine;
    if (!keep) {
      PetscCall(NumberOthers(L.n, &L, &of));
      PetscCall(TakeSendList(L, list, 1, &of));
    }
    PetscCall(TakeColumns(of));
    if (L.ghosts)
      PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
        using T = decltype(zero);
        PetscFunctionBegin;
        SumGhosts<T>
          <<<BlocksFor(L.ghosts), kBlockSize, 0, s.stream>>>(L.ghosts, L.width, (const T *)L.P_a + (size_t)L.n * L.width, p1 + L.n);
        FinePCCheckLaunch();
        PetscFunctionReturn(PETSC_SUCCESS);
      }));
    s.seen.entries = 0;
    PetscCall(CMATCHRanksProducts(&s, l, keep, p1, L.coarse + (LocalInt)of.column.size(), &made));
    made_entries = (size_t)s.seen.entries;
    for (CMATCHCameRows &rows : came) rows = CMATCHCameRows{};
    const CMATCHSentRowsCUDA sent{L.mine, L.coarse + L.foreign, made.start, made.length, made.j, made.a, made.rs, made.size};
    PetscCall(BeginRows(CMATCH_PRODUCTS, of, kCMATCHRowSums, &to[CMATCH_PRODUCTS]));
    PetscCall(WriteSumsOf(sent, of, to[CMATCH_PRODUCTS].sums, s.stream));
    PetscCall(SendRows(CMATCH_PRODUCTS, of, sent, CMATCHNumberOf{L.coarse, L.first_coarse, column}, &to[CMATCH_PRODUCTS]));
    if (kinds > 1) PetscCall(SendM(L, of, &to[CMATCH_MATCHING]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Next(LocalInt l, const CMATCHOwnedRows &next, const CMATCHRowList &receive, std::vector<LocalInt> *place) override
  {
    std::vector<GlobalInt> ghost;
    LocalInt              *places = nullptr;
    GlobalInt             *ghosts = nullptr;

    PetscFunctionBegin;
    PetscCall(BeginNext(l, next, receive, 1, place, &ghost, &ghosts, &places));
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      PetscFunctionBegin;
      PetscCall(Merge<decltype(zero)>(l, next, ghost, places));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    H->level[l + 1].first = next.first;
    if (!keep && CMATCHCarriesGraph(*H)) PetscCall(MergeM(l, next, ghost, ghosts, false));
    s.arena.Release(level_mark);
    PetscCall(CMATCHReadReport(&s));
    CMATCHRecordFailure(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode End(LocalInt l, bool alone) override
  {
    PetscFunctionBegin;
    if (alone) PetscCall(CMATCHMakeLevels(&s, l, keep));
    else {
      PetscCall(CMATCHFactorSmoothers(&s, keep));
      if (!CMATCHHasFailed(&s)) PetscCall(CMATCHPrepareCycle(H, s.stream));
    }
    CMATCHRecordFailure(&s);
    for (LocalInt level = 0; level < H->several && !keep; level++) PetscCall(CMATCHListBorder(&s, level));
    PetscCall(CMATCHTakeScaleWork(&s, &scale_work));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ScaleFactors() override
  {
    PetscFunctionBegin;
    for (LocalInt l = 0; l < H->several; l++)
      if (H->level[l].transfer != CMATCH_PASSED) PetscCall(CMATCHScaleFactor(&s, l, scale_work));
    CMATCHRecordFailure(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Close(PetscBool work) override
  {
    PetscFunctionBegin;
    PetscCall(CMATCHReadReport(&s));
    CMATCHRecordFit(&s);
    PetscCall(CMATCHClose(&s, work));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* Foreign aggregates, from the entries that the columns of P have, `count`, which come into their order. */
  PetscErrorCode NumberForeignOf(CMATCHLevel *L, CMATCHLevelCUDA *of, LocalInt *count)
  {
    std::vector<LocalInt> entries(of->met), kept;

    PetscFunctionBegin;
    PetscCall(Download(count + L->coarse, &entries));
    PetscCall(NumberForeign(L->n, entries, L, of, &kept));
    kept.push_back(0);
    if (of->met) PetscCall(Upload(kept, count + L->coarse));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Level l + 1, but for the operator of its matching. */
  template <typename T>
  PetscErrorCode Merge(LocalInt l, const CMATCHOwnedRows &next, const std::vector<GlobalInt> &ghost, const LocalInt *place)
  {
    const LocalInt        rows  = next.rows;
    const CMATCHLevel    &L     = H->level[l];
    const LocalInt       *add_i = H->device[l].add_i;
    const CMATCHCameRows &in    = came[CMATCH_PRODUCTS];
    double               *size  = nullptr;
    ProductRows<T>        out{};
    const auto            room = [&](size_t entries, auto *more) {
      PetscFunctionBegin;
      PetscCheck(entries <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
                            "A coarse operator has more entries than 32 bits can count: lower -pc_cmatch_prolongator_row");
      PetscCall(TakeEntries(&s, entries, more));
      PetscFunctionReturn(PETSC_SUCCESS);
    };

    PetscFunctionBegin;
    out.fixed = keep;
    if (!rows) {
      if (!keep) {
        PetscCall(CMATCHCreateLevel(&s, 0, 0, &ghost));
        H->level[l + 1].all = next.all;
        PetscCallCUDA(cudaMemsetAsync(H->level[l + 1].A_i, 0, sizeof(LocalInt), s.stream));
      }
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(s.arena.Take(rows, &out.diagonal));
    PetscCall(s.arena.Take(rows, &size));
    PetscCall(s.arena.Take(rows, &out.wide));
    if (keep) {
      out.start = H->level[l + 1].A_i;
      out.a     = (T *)H->level[l + 1].A_a;
    } else {
      PetscCall(s.arena.Take(rows, &out.start));
      PetscCall(s.arena.Take((size_t)rows + 1, &out.length));
      PetscCallCUDA(cudaMemsetAsync(out.length + rows, 0, sizeof(LocalInt), s.stream));
      PetscCall(room(PetscMin(made_entries + in.entries, (size_t)LOCAL_INT_MAX), &out)); /* no more than what is merged */
    }
    PetscCall((Product<kWarpSize, 1, 4, false, true, true>(&s, MergedList{L.mine, add_i}, Merged(L, made, place, in),
                                                           {rows, rows + (LocalInt)ghost.size(), false, 9}, &out, room)));
    if (!keep) {
      PetscCall(CMATCHCreateLevel(&s, rows, (LocalInt)s.seen.entries, &ghost));
      CMATCHLevel &C = H->level[l + 1];
      C.all          = next.all;
      PetscCall(s.cub.Run([&](void *memory, size_t &bytes) {
        return cub::DeviceScan::ExclusiveSum(memory, bytes, out.length, C.A_i, rows + 1, s.stream);
      }));
      PackRows<T><<<BlocksFor((long long)rows * kPackGroup), kBlockSize, 0, s.stream>>>(rows, out, C.A_i, C.A_j, (T *)C.A_a);
      FinePCCheckLaunch();
    }
    MergeSums<<<BlocksFor(rows), kBlockSize, 0, s.stream>>>(rows, L.mine, made, add_i, in, H->device[l + 1].rs, size);
    FinePCCheckLaunch();
    PetscCall(CMATCHCompleteLevel(&s, l + 1, out.diagonal, size));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  double         *p1 = nullptr; /* [n + ghosts] row sums of P */
  CMATCHScaleWork scale_work;
};

} // namespace

PetscErrorCode CMATCHListBorder(CMATCHSetup *s, LocalInt level)
{
  const CMATCHLevel &L      = s->H->level[level];
  CMATCHLevelCUDA   &of     = s->H->device[level];
  const auto         mark   = s->arena.mark();
  LocalInt          *before = nullptr, *flag = nullptr;

  PetscFunctionBegin;
  of.inners = of.borders = 0;
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(s->arena.Take((size_t)L.n + 1, &flag));
  PetscCall(s->arena.Take((size_t)L.n + 1, &before));
  FlagBorder<<<BlocksFor((long long)L.n + 1), kBlockSize, 0, s->stream>>>(L.n, L.A_i, L.A_j, flag);
  FinePCCheckLaunch();
  PetscCall(s->cub.Run(
    [&](void *memory, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, flag, before, L.n + 1, s->stream); }));
  ListRows<<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(L.n, before, of.inner, of.border);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(&of.borders, before + L.n, sizeof(of.borders), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  of.inners = L.n - of.borders;
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHLargestDiagonal_CUDA(const CSRView *A, const PetscScalar *w, PetscReal zero, double *largest)
{
  Buffer<unsigned long long> found;
  cudaStream_t               stream;

  PetscFunctionBegin;
  *largest = 0;
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(found.Allocate(1));
  PetscCallCUDA(cudaMemsetAsync(found.data(), 0, found.bytes(), stream));
  FindLargestDiagonal<<<BlocksFor(A->n), kBlockSize, 0, stream>>>(*A, w, zero, found.data());
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(largest, found.data(), sizeof(*largest), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksCreate_CUDA(const CMATCHParams *params, PetscBool keep, CMATCHStats *stats, CMATCHHierarchy **H,
                                      CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  PetscCall(CMATCHOpen(params, keep, H));
  *setup = new SetUp((CMATCHHierarchyCUDA *)*H, keep, stats);
  PetscFunctionReturn(PETSC_SUCCESS);
}
