/*
   The host twin of cuda/pc/cmatch/cmatch_ranks.cu: the set-up of levels on several ranks, what a rank does alone between exchanges.
   Both twins compute the same bits.

   Aggregates never cross borders between ranks, but columns of the prolongator do. So the matching needs no message: it sees the
   rank's own block, and of the couplings with other ranks only how strong they are (cmatch_aggregate_host.cxx). Its operator M has
   the couplings, and they become those with the aggregates of other ranks when these have been numbered. The smoothed prolongator
   is computed row by row as on one rank, from the numbers of the ghosts' aggregates. Hence a row of P may have columns of other
   ranks, its foreign aggregates.

   The Galerkin product R (A P) needs the rows of P of the ghosts for A P. Then each rank has the contributions of its own rows of P
   to the rows of the product, its own ones and foreign ones. These go to the rank that has the row on the next level, which
   sums up its own contribution and those of the others in the order of their ranks. The row sums R (A (P 1)) go with them.

   Coarse rows have the order of the ranks and of the rows of each rank. A group of successive ranks may give its rows to its first
   rank, so that no number changes by that: its own rows are the first ones of the next level there, and all of the others' rows
   arrive as contributions. Thus gathering rows on fewer ranks needs no step of its own.
*/
#include "cmatch_host_ranks.h"

/* ------------------------------------ of rows and of nodes ------------------------------------ */

PetscErrorCode CMATCHRanksTwin::MakeRoom(LocalInt rows, int kinds, const LocalInt entries[], CMATCHRowData to[])
{
  PetscFunctionBegin;
  for (int kind = 0; kind < kinds; kind++) {
    CMATCHRowsIn &here = received[kind];
    here.in.sums.resize((size_t)rows * here.width);
    here.in.j.resize(entries[kind]);
    here.in.a.resize((size_t)entries[kind] * here.block);
    for (auto *places : {&here.start, &here.length, &here.at}) places->resize(rows);
    to[kind] = {here.in.sums.data(), here.in.j.data(), here.in.a.data(), here.width, here.block};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksTwin::PackRows(const CMATCHRowsOut &rows, LocalInt first, const CMATCHRowList &send, CMATCHPackedRows *to,
                                         CMATCHSentRows *shown)
{
  const int width = rows.width - 1, block = rows.block;

  PetscFunctionBegin;
  PetscCheck(rows.j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", kCMATCHTooManyToSend);
  *to = CMATCHPackedRows();
  shown->entries.clear();
  for (const Neighbours::Part &part : send.parts) {
    const size_t before = to->j.size();
    for (LocalInt q = part.begin; q < part.end; q++) {
      const LocalInt r = first + send.rows[q];
      if (r >= rows.Rows()) {
        to->sums.resize(to->sums.size() + rows.width, 0.);
        continue;
      }
      const LocalInt begin = rows.i[r], end = rows.i[r + 1];
      const auto     sums = rows.sums.begin() + (ptrdiff_t)r * width;
      to->sums.push_back((double)(end - begin));
      to->sums.insert(to->sums.end(), sums, sums + width);
      to->j.insert(to->j.end(), rows.j.begin() + begin, rows.j.begin() + end);
      to->a.insert(to->a.end(), rows.a.begin() + (ptrdiff_t)begin * block, rows.a.begin() + (ptrdiff_t)end * block);
    }
    shown->entries.push_back((LocalInt)(to->j.size() - before));
  }
  shown->sums  = to->sums.data();
  shown->j     = to->j.data();
  shown->a     = to->a.data();
  shown->width = rows.width;
  shown->block = block;
  PetscFunctionReturn(PETSC_SUCCESS);
}

CMATCHHalo CMATCHRanksTwin::ShareNumbers(LocalInt n, const CMATCHLevel &level, const CMATCHColumns &L,
                                         const std::vector<LocalInt> &send)
{
  number_of.assign(n + level.ghosts, -1);
  for (LocalInt i = 0; i < n; i++)
    if (L.aggregate[i] >= 0) number_of[i] = level.first_coarse + L.aggregate[i];
  Pack(send, number_of.data(), 1, &packed_numbers);
  return {packed_numbers.data(), number_of.data() + n};
}

CMATCHHalo CMATCHRanksTwin::ShareColumns(LocalInt n, const CMATCHLevel &level, const CMATCHColumns &L,
                                         const std::vector<LocalInt> &send)
{
  const size_t own = (size_t)n * level.width;

  P_numbers.assign(own + (size_t)level.ghosts * level.width, -1);
  for (size_t e = 0; e < own; e++)
    if (L.P_j[e] >= 0) P_numbers[e] = NumberOf(level, L, L.P_j[e]);
  Pack(send, P_numbers.data(), level.width, &packed_numbers);
  return {packed_numbers.data(), P_numbers.data() + own};
}

void CMATCHRanksTwin::NumberGhosts(LocalInt n, const CMATCHLevel &level, CMATCHColumns *L) const
{
  L->column.assign(number_of.begin() + n, number_of.end());
  SortUnique(&L->column);
  if (!L->column.empty() && L->column[0] < 0) L->column.erase(L->column.begin());
  const CMATCHNumbering number{level.first_coarse, level.coarse, L->column};
  L->aggregate.resize(n + level.ghosts);
  for (LocalInt i = n; i < n + level.ghosts; i++) L->aggregate[i] = number_of[i] < 0 ? -1 : number(number_of[i]);
}

void CMATCHRanksTwin::NumberForeign(CMATCHLevel *level, CMATCHColumns *L)
{
  std::vector<LocalInt>  place(L->column.size(), -1);
  std::vector<GlobalInt> column;
  LocalInt               others;

  for (LocalInt c : L->P_j)
    if (c >= level->coarse) place[c - level->coarse] = 0;
  for (size_t c = 0; c < place.size(); c++)
    if (place[c] == 0) {
      place[c] = level->coarse + (LocalInt)column.size();
      column.push_back(L->column[c]);
    }
  level->foreign = (LocalInt)column.size();
  others         = level->coarse + level->foreign;
  for (LocalInt &p : place)
    if (p < 0) p = others++;
  for (std::vector<LocalInt> *numbered : {&L->P_j, &L->aggregate})
    for (LocalInt &c : *numbered)
      if (c >= level->coarse) c = place[c - level->coarse];
  L->column.swap(column);
}

void CMATCHRanksTwin::NumberColumns(LocalInt n, const CMATCHLevel &level, CMATCHColumns *L) const
{
  const size_t           own = (size_t)n * level.width;
  const CMATCHNumbering  number{level.first_coarse, level.coarse, L->column};
  std::vector<GlobalInt> others;

  for (size_t e = own; e < P_numbers.size(); e++)
    if (P_numbers[e] >= 0 && number(P_numbers[e]) < 0) others.push_back(P_numbers[e]);
  SortUnique(&others);
  const CMATCHNumbering behind{0, level.coarse + level.foreign, others};
  L->P_j.resize(P_numbers.size());
  for (size_t e = own; e < P_numbers.size(); e++) {
    LocalInt c = P_numbers[e] < 0 ? -1 : number(P_numbers[e]);
    if (c < 0 && P_numbers[e] >= 0)
      c = behind.rows + (LocalInt)(std::lower_bound(others.begin(), others.end(), P_numbers[e]) - others.begin());
    L->P_j[e] = c;
  }
  L->column.insert(L->column.end(), others.begin(), others.end());
}

void CMATCHRanksTwin::SendM(LocalInt n, const CMATCHLevel &level, const CMATCHGraph &M)
{
  std::vector<std::pair<GlobalInt, double>> row;

  M_sent = CMATCHRowsOut();
  for (LocalInt c = 0; c < M.n(); c++) {
    row.clear();
    for (LocalInt k = M.i[c]; k < M.i[c + 1]; k++) {
      const LocalInt  j  = M.j[k];
      const GlobalInt to = j < level.coarse ? level.first_coarse + j : number_of[n + j - level.coarse];
      if (to >= 0) row.emplace_back(to, (double)M.a[k]);
    }
    std::stable_sort(row.begin(), row.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    for (size_t k = 0; k < row.size(); k++) {
      if (k && row[k].first == row[k - 1].first) M_sent.a.back() += row[k].second;
      else {
        M_sent.j.push_back(row[k].first);
        M_sent.a.push_back(row[k].second);
      }
    }
    M_sent.EndRow();
    M_sent.sums.insert(M_sent.sums.end(), {(double)M.d[c], 0.});
  }
}

void CMATCHRanksTwin::NumberContributions(LocalInt rows, const std::vector<LocalInt> &to, std::vector<LocalInt> *place,
                                          CMATCHLevel *level, CMATCHColumns *L)
{
  L->add_i.assign((size_t)rows + 1, 0);
  for (LocalInt row : to) L->add_i[row + 1]++;
  for (LocalInt c = 0; c < rows; c++) L->add_i[c + 1] += L->add_i[c];
  level->contributions = (LocalInt)to.size();
  std::vector<LocalInt> next(L->add_i.begin(), L->add_i.end() - 1);
  place->clear();
  for (LocalInt row : to) place->push_back(next[row]++);
}

void CMATCHRanksTwin::PlaceRows(const std::vector<LocalInt> &place, CMATCHRowsIn *rows)
{
  LocalInt start = 0;

  for (size_t q = 0; q < rows->start.size(); q++) {
    const LocalInt k = place[q];
    rows->start[k]   = start;
    rows->length[k]  = (LocalInt)rows->in.sums[q * rows->width];
    rows->at[k]      = (LocalInt)q;
    start += rows->length[k];
  }
}

void CMATCHRanksTwin::FindGhosts(const CMATCHLevel &level, const CMATCHColumns &L, const CMATCHNumbering &next,
                                 const std::vector<char> &used, std::vector<GlobalInt> *ghost) const
{
  std::vector<GlobalInt> found_ghosts;

  for (size_t c = 0; c < used.size(); c++)
    if (used[c] && !next.IsOwn(NumberOf(level, L, (LocalInt)c))) found_ghosts.push_back(NumberOf(level, L, (LocalInt)c));
  for (GlobalInt number : received[CMATCH_PRODUCTS].in.j)
    if (!next.IsOwn(number)) found_ghosts.push_back(number);
  SortUnique(&found_ghosts);
  ghost->swap(found_ghosts);
}

CMATCHGraph CMATCHRanksTwin::NextM(const CMATCHLevel &level, const CMATCHNumbering &column, const std::vector<LocalInt> &add_i,
                                   bool nodes) const
{
  CMATCHGraph                              next;
  std::vector<std::pair<LocalInt, double>> row;
  double                                   diagonal;

  const CMATCHRowsIn &came = received[CMATCH_MATCHING];
  const auto          add  = [&](const auto &rows, double own, LocalInt begin, LocalInt end) {
    for (LocalInt e = begin; e < end; e++) {
      const LocalInt c = column(rows.j[e]);
      if (c >= 0) row.emplace_back(c, rows.a[e]); /* a cut row of P may have lost the column */
    }
    diagonal += own;
  };
  next.foreign = (LocalInt)column.ghost.size();
  next.i.push_back(0);
  for (LocalInt c = 0; c < column.rows; c++) {
    row.clear();
    diagonal = 0;
    if (c < level.mine) add(M_sent, M_sent.sums[(size_t)c * (M_sent.width - 1)], M_sent.i[c], M_sent.i[c + 1]);
    for (LocalInt k = add_i[c]; k < add_i[c + 1] && !came.start.empty(); k++)
      add(came.in, came.Sums(k)[0], came.start[k], came.start[k] + came.length[k]);
    std::sort(row.begin(), row.end());
    if (nodes) diagonal = 0;
    for (const auto &[to, value] : row) {
      if (nodes && value < 0) diagonal -= value;
      next.j.push_back(to);
      next.a.push_back((float)value);
    }
    next.i.push_back((LocalInt)next.j.size());
    next.d.push_back((float)diagonal);
  }
  return next;
}

/* ------------------------------------------- of rows ------------------------------------------ */

namespace
{

template <typename T>
class SetUp : public CMATCHRanksTwin {
public:
  SetUp(CMATCHHierarchyHost<T> *hierarchy, PetscBool kept, CMATCHStats *made) :
      CMATCHRanksTwin(kept), H(hierarchy), stats(*made) { }

  PetscErrorCode Begin(const CSRView *own, const CSRView *foreign, const std::vector<GlobalInt> &ghost, const PetscScalar *w,
                       double largest) override
  {
    CMATCHArrays<T> &L = H->arrays[0];

    PetscFunctionBegin;
    L.ghost = ghost;
    CMATCHFinest_Host({own, foreign, (LocalInt)ghost.size(), w, largest}, H, &now.sums, &stats);
    if (stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
    if (!keep) H->several = 1;
    CMATCHShow_Host(0, H);
    now.keep = keep;
    if (!keep && CMATCHCarriesGraph(*H)) now.M = CMATCHGraphOf_Host(L, now.sums.diagonal);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Match(LocalInt l, CMATCHTransfer how, CMATCHMatch *match) override
  {
    const CMATCHArrays<T> &L = H->arrays[l];
    const LocalInt         n = H->level[l].n;

    PetscFunctionBegin;
    transfer   = how;
    H->several = l + 1;
    next_M     = CMATCHCarriesGraph(*H) ? now.M : CMATCHGraphOf_Host(L, std::vector<double>(L.d.begin(), L.d.end()));
    if (how == CMATCH_PASSED) {
      found = {std::vector<LocalInt>(n), n, 0, 0};
      for (LocalInt i = 0; i < n; i++) found.aggregate[i] = i;
    } else {
      found = CMATCHAggregate_Host(H->params, H->level[l].all, &next_M, &stats.work_bytes);
      if (found.left == n) { /* no vertex is left of M */
        std::fill(found.aggregate.begin(), found.aggregate.end(), -1);
        next_M   = CMATCHGraph();
        next_M.i = {0};
      }
    }
    *match = {found.coarse, found.left,
              CMATCHCarriesGraph(*H) && how != CMATCH_PASSED ? (PetscInt64)next_M.j.size() + found.coarse : 0};
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Number(LocalInt l, GlobalInt first_coarse, const std::vector<LocalInt> &send, CMATCHHalo *numbers) override
  {
    CMATCHLevel &level = H->level[l];

    PetscFunctionBegin;
    CMATCHAdopt_Host(l, transfer, &found, H);
    now.M              = std::move(next_M);
    level.first_coarse = first_coarse;
    *numbers           = ShareNumbers(level.n, level, H->arrays[l], send);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Prolong(LocalInt l, const std::vector<LocalInt> &send, CMATCHHalo *columns, CMATCHHalo *values) override
  {
    CMATCHLevel     &level = H->level[l];
    CMATCHArrays<T> &L     = H->arrays[l];
    const size_t     own   = (size_t)level.n * level.width;

    PetscFunctionBegin;
    if (level.transfer != CMATCH_PASSED) level.fit = CMATCHFit_Host(H->params, level, false, L);
    if (!keep) NumberGhosts(level.n, level, &L);
    CMATCHProlongator_Host(keep, &level, &L);
    if (!keep) {
      NumberForeign(&level, &L);
      if (CMATCHCarriesGraph(*H)) SendM(level.n, level, now.M);
      *columns = ShareColumns(level.n, level, L, send);
    }
    CMATCHRestriction_Host(level, &L);
    Pack(send, L.P_a.data(), level.width, &packed_values);
    CMATCHShow_Host(l, H);
    *values = {packed_values.data(), L.P_a.data() + own};
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Multiply(LocalInt l, LocalInt mine, const CMATCHRowList &send, int kinds, CMATCHSentRows to[]) override
  {
    CMATCHLevel     &level = H->level[l];
    CMATCHArrays<T> &L     = H->arrays[l];

    PetscFunctionBegin;
    level.mine = mine;
    if (!keep) NumberColumns(level.n, level, &L);
    products.reset(new CMATCHProducts<T>(level, L, now.sums.rs, level.coarse + (LocalInt)L.column.size()));
    stats.work_bytes = PetscMax(stats.work_bytes, products->Bytes());
    CMATCHSparseRow row(level.coarse + (LocalInt)L.column.size());
    CMATCHRowsOut   sent;
    for (LocalInt c = mine; c < level.coarse + level.foreign; c++) {
      double       size = 0;
      const double sum  = products->Row(c, &row, &size);
      sent.sums.insert(sent.sums.end(), {sum, size});
      for (LocalInt column : row.columns) {
        sent.j.push_back(NumberOf(level, L, column));
        sent.a.push_back(row.sum[column]);
      }
      row.Clear();
      sent.EndRow();
    }
    L.values.assign(level.coarse + level.foreign, (T)0);
    CMATCHShow_Host(l, H);
    received[CMATCH_MATCHING] = CMATCHRowsIn();
    PetscCall(PackRows(sent, 0, send, &packed[CMATCH_PRODUCTS], &to[CMATCH_PRODUCTS]));
    if (kinds > 1) PetscCall(PackRows(M_sent, mine, send, &packed[CMATCH_MATCHING], &to[CMATCH_MATCHING]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Next(LocalInt l, const CMATCHOwnedRows &next, const CMATCHRowList &receive, std::vector<LocalInt> *place) override
  {
    CMATCHLevel     &level = H->level[l];
    CMATCHArrays<T> &L = H->arrays[l], &C = H->arrays[l + 1];
    CMATCHSums       sums;

    PetscFunctionBegin;
    if (!keep) {
      NumberContributions(next.rows, receive.rows, place, &level, &L);
      L.added.assign(receive.rows.size(), (T)0);
    }
    for (CMATCHRowsIn &rows : received) PlaceRows(*place, &rows);
    if (!keep) {
      std::vector<char> used(level.coarse + L.column.size(), 0);
      products->MarkColumns(level.mine, &used);
      FindGhosts(level, L, {next.first, next.rows, C.ghost}, used, &C.ghost);
    }
    const CMATCHNumbering column{next.first, next.rows, C.ghost};
    std::vector<LocalInt> own(level.coarse + L.column.size()); /* columns of the own products */
    for (size_t c = 0; c < own.size(); c++) own[c] = column(NumberOf(level, L, (LocalInt)c));

    const CMATCHRowsIn &came = received[CMATCH_PRODUCTS];
    CMATCHSparseRow     product((LocalInt)own.size()), row(next.rows + (LocalInt)C.ghost.size());
    sums.Assign(next.rows);
    C.A_i.assign(1, 0);
    C.A_j.clear();
    C.A_a.clear();
    for (LocalInt c = 0; c < next.rows; c++) {
      double sum = 0;
      if (c < level.mine) {
        sum = products->Row(c, &product, &sums.size[c]);
        for (LocalInt to : product.columns) row.At(own[to]) += product.sum[to];
        product.Clear();
      }
      for (LocalInt k = L.add_i[c]; k < L.add_i[c + 1]; k++) {
        sum += came.Sums(k)[0];
        sums.size[c] += came.Sums(k)[1];
        for (LocalInt e = came.start[k]; e < came.start[k] + came.length[k]; e++) row.At(column(came.in.j[e])) += came.in.a[e];
      }
      row.Sort();
      PetscCall(CMATCHAddRow_Host(row, c, sum, &C, &sums));
      row.Clear();
    }
    products.reset();
    now.sums = std::move(sums);
    if (!keep && CMATCHCarriesGraph(*H)) now.M = NextM(level, column, L.add_i, false);
    const LocalInt bad = CMATCHComplete_Host(l + 1, H, &now.sums, &stats);
    CMATCHShow_Host(l + 1, H);
    H->level[l + 1].first = next.first;
    H->level[l + 1].all   = next.all;
    if (bad >= 0) CMATCHFail(CMATCH_DIAGONAL_NOT_POSITIVE, l + 1, bad, &stats);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode End(LocalInt l, bool alone) override
  {
    PetscFunctionBegin;
    if (alone) {
      PetscCall(CMATCHMakeLevels_Host(l, &now, H, &stats));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    H->levels = l;
    PetscCall(CMATCHFinish_Host({}, keep, H, &stats));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ScaleFactors() override
  {
    PetscFunctionBegin;
    for (LocalInt l = 0; l < H->several; l++)
      if (H->level[l].transfer != CMATCH_PASSED) PetscCall(CMATCHScaleFactor_Host(l, H, &stats));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Close(PetscBool) override
  {
    PetscFunctionBegin;
    H->expanded.clear();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  CMATCHHierarchyHost<T>            *H;
  CMATCHStats                       &stats;
  CMATCHProgress                     now;      /* of the level at hand */
  CMATCHTransfer                     transfer; /* what Match() has found: the aggregates, and M on them */
  CMATCHAggregation                  found;
  CMATCHGraph                        next_M;
  std::unique_ptr<CMATCHProducts<T>> products;
  std::vector<T>                     packed_values; /* of rows of P that are sent */
};

template <typename T>
PetscErrorCode Create_CMATCHHostRanks(const CMATCHParams *params, PetscBool keep, CMATCHStats *stats, CMATCHHierarchy **H,
                                      CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  PetscCall(CMATCHCreate_Host<T>(params, keep, H));
  *setup = new SetUp<T>(static_cast<CMATCHHierarchyHost<T> *>(*H), keep, stats);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHLargestDiagonal_Host(const CSRView *A, const PetscScalar *w, PetscReal zero, double *largest)
{
  PetscFunctionBegin;
  *largest = 0;
  for (LocalInt i = 0; i < A->n; i++)
    for (LocalInt k = A->i[i]; k < A->i[i + 1]; k++) {
      const PetscScalar w_i = w ? CMATCHNearNullEntry(w[i], zero) : 1;
      if (A->j[k] == i) *largest = PetscMax(*largest, PetscAbsScalar(A->a[k] * w_i * w_i));
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksCreate_Host(const CMATCHParams *params, PetscBool keep, CMATCHStats *stats, CMATCHHierarchy **H,
                                      CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  if (params->precision == FINEPC_SINGLE) PetscCall(Create_CMATCHHostRanks<float>(params, keep, stats, H, setup));
  else PetscCall(Create_CMATCHHostRanks<double>(params, keep, stats, H, setup));
  PetscFunctionReturn(PETSC_SUCCESS);
}
