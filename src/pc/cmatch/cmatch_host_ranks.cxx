/*
   The host twin of cuda/pc/cmatch/cmatch_ranks.cu: the set-up of levels on several ranks, what a rank does alone between exchanges.
   Both twins compute the same bits.

   Aggregates never cross borders between ranks, but columns of the prolongator do. So the matching needs no message: it sees the
   rank's own block, and of the couplings with other ranks only how strong they are (cmatch_aggregate_host.cxx). Its operator M has
   the couplings, and they become those with the aggregates of other ranks when these have been numbered. The smoothed prolongator
   is computed row by row as on one rank, from the numbers of the ghosts' aggregates. Hence a row of P may have columns of other
   ranks, its foreign aggregates.

   The Galerkin product R (A P) needs the rows of P of the ghosts for A P. Then each rank has the contributions of its own rows of P
   to the rows of the product, its own ones and foreign ones. These travel to the rank that has the row on the next level, which
   sums up its own contribution and those of the others in the order of their ranks. The row sums R (A (P 1)) go with them.

   Coarse rows have the order of the ranks and of the rows of each rank. A group of successive ranks may give its rows to its first
   rank, so that no number changes by that: its own rows are the first ones of the next level there, and all of the others' rows
   arrive as contributions. Thus gathering rows on fewer ranks needs no step of its own.
*/
#include <cstring>
#include <memory>

#include "cmatch_host.h"
#include "cmatch_ranks.h"

namespace
{

void SortUnique(std::vector<GlobalInt> *numbers)
{
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

/* Rows that travel. Their columns are numbers on the next level. */
struct TravellingRows {
  std::vector<LocalInt>  i;    /* [rows + 1] row starts */
  std::vector<GlobalInt> j;    /* columns */
  std::vector<double>    a;    /* values */
  std::vector<double>    rs;   /* [rows] row sums, or for M the diagonal */
  std::vector<double>    size; /* [rows] see CMATCHSums, or for M empty */
};

/* Rows that have come, one for each contribution, in the order of rows and ranks; entries are in the order in which they came. */
struct ReceivedRows {
  std::vector<LocalInt>  start, length;
  std::vector<GlobalInt> j;
  std::vector<double>    a, rs, size;
};

/* Numbers a rank's own rows of a level, and its ghosts behind them. */
struct Numbering {
  GlobalInt                     first;
  LocalInt                      rows;
  const std::vector<GlobalInt> &ghost;

  bool IsOwn(GlobalInt number) const { return number >= first && number < first + rows; }

  /* The column of a number, or -1 if it is none. */
  LocalInt operator()(GlobalInt number) const
  {
    if (IsOwn(number)) return (LocalInt)(number - first);
    const auto found = std::lower_bound(ghost.begin(), ghost.end(), number);
    return found != ghost.end() && *found == number ? rows + (LocalInt)(found - ghost.begin()) : -1;
  }
};

template <typename T>
class SetUp : public CMATCHRanksSetUp {
public:
  explicit SetUp(CMATCHHierarchyHost<T> *hierarchy) : H(hierarchy) { }
  SetUp(const SetUp &)            = delete;
  SetUp &operator=(const SetUp &) = delete;
  ~SetUp() override { PetscCallAbort(PETSC_COMM_SELF, PetscFree(spare)); }

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
    if (!keep && MatchesOnce()) now.M = CMATCHGraphOf_Host(L, now.sums.diagonal);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Find(LocalInt l, CMATCHTransfer how) override
  {
    const CMATCHArrays<T> &L = H->arrays[l];
    const LocalInt         n = H->level[l].n;

    PetscFunctionBegin;
    transfer   = how;
    H->several = l + 1;
    next_M     = MatchesOnce() ? now.M : CMATCHGraphOf_Host(L, std::vector<double>(L.d.begin(), L.d.end()));
    if (how == CMATCH_PASSED) {
      found = {std::vector<LocalInt>(n), n, 0, 0};
      for (LocalInt i = 0; i < n; i++) found.aggregate[i] = i;
    } else if (how == CMATCH_STITCHED) found = CMATCHStitch_Host(&next_M, &stats.work_bytes);
    else {
      found = CMATCHAggregate_Host(H->params, H->level[l].all, &next_M, &stats.work_bytes);
      if (found.left == n) { /* no vertex is left of M */
        std::fill(found.aggregate.begin(), found.aggregate.end(), -1);
        next_M   = CMATCHGraph();
        next_M.i = {0};
      }
    }
    coarse  = found.coarse;
    left    = found.left;
    entries = MatchesOnce() && how != CMATCH_PASSED ? (PetscInt64)next_M.j.size() + coarse : 0;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Take(LocalInt l, GlobalInt first_coarse) override
  {
    CMATCHLevel &level = H->level[l];

    PetscFunctionBegin;
    if (!keep) {
      CMATCHAdopt_Host(l, transfer, &found, H);
      now.M              = std::move(next_M);
      level.first_coarse = first_coarse;
    }
    if (level.transfer != CMATCH_PASSED) level.fit = CMATCHFit_Host(H->params, level, false, H->arrays[l]);
    number_of.assign(level.n + level.ghosts, -1);
    for (LocalInt i = 0; i < level.n; i++)
      if (H->arrays[l].aggregate[i] >= 0) number_of[i] = first_coarse + H->arrays[l].aggregate[i];
    numbers = number_of.data();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode PackOwnRows(const CMATCHRoute &route, size_t bytes, const void *x, void **packed) override
  {
    PetscFunctionBegin;
    packed_rows.resize((size_t)route.Rows() * bytes);
    for (LocalInt q = 0; q < route.Rows(); q++)
      std::memcpy(packed_rows.data() + q * bytes, (const char *)x + route.row[q] * bytes, bytes);
    *packed = packed_rows.data();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Prolong(LocalInt l) override
  {
    CMATCHLevel     &level = H->level[l];
    CMATCHArrays<T> &L     = H->arrays[l];

    PetscFunctionBegin;
    if (keep) CMATCHProlongator_Host(keep, &level, &L);
    else {
      NumberGhosts(level, &L);
      CMATCHProlongator_Host(keep, &level, &L);
      NumberForeign(&level, &L);
      if (MatchesOnce()) SendM(level);
    }
    CMATCHRestriction_Host(level, &L);
    P_numbers.assign((size_t)(level.n + level.ghosts) * level.width, -1);
    for (size_t e = 0; e < (size_t)level.n * level.width; e++)
      if (L.P_j[e] >= 0) P_numbers[e] = NumberOf(level, L, L.P_j[e]);
    P_j = P_numbers.data();
    CMATCHShow_Host(l, H);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Multiply(LocalInt l, LocalInt mine) override
  {
    CMATCHLevel     &level = H->level[l];
    CMATCHArrays<T> &L     = H->arrays[l];

    PetscFunctionBegin;
    level.mine = mine;
    if (!keep) NumberColumns(level, &L);
    products.reset(new CMATCHProducts<T>(level, L, now.sums.rs, level.coarse + (LocalInt)L.column.size()));
    stats.work_bytes = PetscMax(stats.work_bytes, products->Bytes());
    CMATCHSparseRow row(level.coarse + (LocalInt)L.column.size());
    sent       = TravellingRows{{0}, {}, {}, {}, {}};
    received   = ReceivedRows{};
    M_received = ReceivedRows{};
    for (LocalInt c = mine; c < level.coarse + level.foreign; c++) {
      sent.size.push_back(0);
      sent.rs.push_back(products->Row(c, &row, &sent.size.back()));
      for (LocalInt to : row.columns) {
        sent.j.push_back(NumberOf(level, L, to));
        sent.a.push_back(row.sum[to]);
      }
      row.Clear();
      sent.i.push_back((LocalInt)sent.j.size());
    }
    L.values.assign(level.coarse + level.foreign, (T)0);
    CMATCHShow_Host(l, H);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Connect(LocalInt l, LocalInt rows, const CMATCHRoute &to, const CMATCHRoute &from) override
  {
    CMATCHArrays<T> &L = H->arrays[l];

    PetscFunctionBegin;
    L.add_i.assign((size_t)rows + 1, 0);
    for (LocalInt q = 0; q < from.Rows(); q++) L.add_i[from.row[q] + 1]++;
    for (LocalInt c = 0; c < rows; c++) L.add_i[c + 1] += L.add_i[c];
    L.added.assign(from.Rows(), (T)0);
    H->level[l].contributions = from.Rows();
    std::vector<LocalInt> next(L.add_i.begin(), L.add_i.end() - 1);
    place.resize(from.Rows());
    for (LocalInt q = 0; q < from.Rows(); q++) place[q] = next[from.row[q]]++;
    L.sent_begin.assign(to.begin, to.begin + to.neighbours + 1);
    L.sent_row.assign(to.row, to.row + to.Rows());
    L.came_begin.assign(from.begin, from.begin + from.neighbours + 1);
    L.came_row = place;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode OpenRows(CMATCHTravel which, LocalInt l, std::vector<LocalInt> *entries) override
  {
    const CMATCHLevel     &level = H->level[l];
    const CMATCHArrays<T> &L     = H->arrays[l];

    PetscFunctionBegin;
    if (which == CMATCH_MATCHING) { /* own rows of M that this rank keeps do not travel */
      sent = TravellingRows{};
      for (LocalInt c = level.mine; c < level.coarse; c++) {
        sent.i.push_back((LocalInt)sent.j.size());
        sent.j.insert(sent.j.end(), M_sent.j.begin() + M_sent.i[c], M_sent.j.begin() + M_sent.i[c + 1]);
        sent.a.insert(sent.a.end(), M_sent.a.begin() + M_sent.i[c], M_sent.a.begin() + M_sent.i[c + 1]);
        sent.rs.push_back(M_sent.rs[c]);
      }
      sent.i.resize(sent.i.size() + level.foreign + 1, (LocalInt)sent.j.size());
      sent.rs.resize(sent.i.size() - 1, 0.);
      sent.size.resize(sent.rs.size(), 0.);
    }
    PetscCheck(sent.j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", kCMATCHTooManyToSend);
    entries->clear();
    sent_j.clear();
    sent_a.clear();
    for (size_t k = 0; k + 1 < L.sent_begin.size(); k++) {
      const size_t before = sent_j.size();
      for (LocalInt q = L.sent_begin[k]; q < L.sent_begin[k + 1]; q++) {
        const LocalInt r = L.sent_row[q];
        sent_j.insert(sent_j.end(), sent.j.begin() + sent.i[r], sent.j.begin() + sent.i[r + 1]);
        sent_a.insert(sent_a.end(), sent.a.begin() + sent.i[r], sent.a.begin() + sent.i[r + 1]);
      }
      entries->push_back((LocalInt)(sent_j.size() - before));
    }
    head.clear();
    for (LocalInt r : L.sent_row) head.insert(head.end(), {(double)(sent.i[r + 1] - sent.i[r]), sent.rs[r], sent.size[r]});
    all_head.resize(L.came_row.size() * kCMATCHHead);
    travellers = {head.data(), all_head.data(), sent_j.data(), nullptr, sent_a.data(), nullptr};
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode MakeRoom(CMATCHTravel which, LocalInt l, std::vector<LocalInt> *entries) override
  {
    const CMATCHArrays<T> &L  = H->arrays[l];
    ReceivedRows          &to = Received(which);
    LocalInt               at = 0;

    PetscFunctionBegin;
    to.start.resize(L.came_row.size());
    to.length.resize(L.came_row.size());
    to.rs.resize(L.came_row.size());
    to.size.resize(L.came_row.size());
    entries->clear();
    for (size_t k = 0; k + 1 < L.came_begin.size(); k++) {
      const LocalInt before = at;
      for (LocalInt q = L.came_begin[k]; q < L.came_begin[k + 1]; q++) {
        const LocalInt r = L.came_row[q], length = (LocalInt)all_head[(size_t)q * kCMATCHHead];
        PetscCheck(at <= LOCAL_INT_MAX - length, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", kCMATCHTooManyCome);
        to.start[r]  = at;
        to.length[r] = length;
        to.rs[r]     = all_head[(size_t)q * kCMATCHHead + 1];
        to.size[r]   = all_head[(size_t)q * kCMATCHHead + 2];
        at += length;
      }
      entries->push_back(at - before);
    }
    to.j.resize(at);
    to.a.resize(at);
    travellers.all_j = to.j.data();
    travellers.all_a = to.a.data();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Next(LocalInt l, LocalInt rows, GlobalInt first, GlobalInt all) override
  {
    CMATCHLevel                 &level = H->level[l];
    CMATCHArrays<T>             &L = H->arrays[l], &C = H->arrays[l + 1];
    const std::vector<LocalInt> &add_i = L.add_i;
    CMATCHSums                   sums;

    PetscFunctionBegin;
    if (!keep) FindGhosts(level, L, {first, rows, C.ghost}, &C.ghost);
    const Numbering       column{first, rows, C.ghost};
    std::vector<LocalInt> own(level.coarse + L.column.size()); /* columns of the own products */
    for (size_t c = 0; c < own.size(); c++) own[c] = column(NumberOf(level, L, (LocalInt)c));

    CMATCHSparseRow product((LocalInt)own.size()), row(rows + (LocalInt)C.ghost.size());
    sums.Assign(rows);
    C.A_i.assign(1, 0);
    C.A_j.clear();
    C.A_a.clear();
    for (LocalInt c = 0; c < rows; c++) {
      double sum = 0;
      if (c < level.mine) {
        sum = products->Row(c, &product, &sums.size[c]);
        for (LocalInt to : product.columns) row.At(own[to]) += product.sum[to];
        product.Clear();
      }
      for (LocalInt k = add_i[c]; k < add_i[c + 1]; k++) {
        sum += received.rs[k];
        sums.size[c] += received.size[k];
        for (LocalInt e = received.start[k]; e < received.start[k] + received.length[k]; e++)
          row.At(column(received.j[e])) += received.a[e];
      }
      row.Sort();
      PetscCall(CMATCHAddRow_Host(row, c, sum, &C, &sums));
      row.Clear();
    }
    products.reset();
    now.sums = std::move(sums);
    if (!keep && MatchesOnce()) NextM(level, column, add_i);
    const LocalInt bad = CMATCHComplete_Host(l + 1, H, &now.sums, &stats);
    CMATCHShow_Host(l + 1, H);
    H->level[l + 1].first = first;
    H->level[l + 1].all   = all;
    if (bad >= 0) CMATCHFail(CMATCH_DIAGONAL_NOT_POSITIVE, l + 1, bad, &stats);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode End(LocalInt l, bool alone, bool stitch) override
  {
    PetscFunctionBegin;
    now.stitch = stitch;
    if (alone) {
      PetscCall(CMATCHDescend_Host(l, &now, H, &stats));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    H->levels = l;
    PetscCall(CMATCHFinish_Host({}, keep, H, &stats));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ScaleFactor(LocalInt l) override
  {
    PetscFunctionBegin;
    PetscCall(CMATCHScaleFactor_Host(l, H, &stats));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Close(PetscBool) override
  {
    PetscFunctionBegin;
    H->expanded.clear();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Spare(size_t bytes, int byte, void **memory) override
  {
    PetscFunctionBegin;
    PetscCall(PetscFree(spare));
    PetscCall(PetscMalloc(bytes, &spare));
    if (bytes) std::memset(spare, byte, bytes);
    *memory = spare;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  ReceivedRows &Received(CMATCHTravel which) { return which == CMATCH_MATCHING ? M_received : received; }

  /* With mis2 each level is coarsened by its own operator, not by one that is carried from level to level. */
  bool MatchesOnce() const { return H->params.coarsening == PC_CMATCH_MATCHING; }

  /* The number on the next level of a column of P, or of the products. */
  static GlobalInt NumberOf(const CMATCHLevel &level, const CMATCHArrays<T> &L, LocalInt c)
  {
    return c < level.coarse ? level.first_coarse + c : L.column[c - level.coarse];
  }

  /* The aggregates of ghosts become columns behind the own ones. */
  void NumberGhosts(const CMATCHLevel &level, CMATCHArrays<T> *L)
  {
    L->column.assign(number_of.begin() + level.n, number_of.end());
    SortUnique(&L->column);
    if (!L->column.empty() && L->column[0] < 0) L->column.erase(L->column.begin());
    const Numbering number{level.first_coarse, level.coarse, L->column};
    L->aggregate.resize(level.n + level.ghosts);
    for (LocalInt i = level.n; i < level.n + level.ghosts; i++) L->aggregate[i] = number_of[i] < 0 ? -1 : number(number_of[i]);
  }

  /* Foreign aggregates are those that are columns of P. They come before the others, which the rows of P have not kept. */
  void NumberForeign(CMATCHLevel *level, CMATCHArrays<T> *L)
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

  /* The rows of P of ghosts get columns; those that are neither own nor foreign aggregates come behind these. */
  void NumberColumns(const CMATCHLevel &level, CMATCHArrays<T> *L)
  {
    const size_t           own = (size_t)level.n * level.width;
    const Numbering        number{level.first_coarse, level.coarse, L->column};
    std::vector<GlobalInt> others;

    for (size_t e = own; e < P_numbers.size(); e++)
      if (P_numbers[e] >= 0 && number(P_numbers[e]) < 0) others.push_back(P_numbers[e]);
    SortUnique(&others);
    const Numbering behind{0, level.coarse + level.foreign, others};
    L->P_j.resize(P_numbers.size());
    for (size_t e = own; e < P_numbers.size(); e++) {
      LocalInt c = P_numbers[e] < 0 ? -1 : number(P_numbers[e]);
      if (c < 0 && P_numbers[e] >= 0)
        c = behind.rows + (LocalInt)(std::lower_bound(others.begin(), others.end(), P_numbers[e]) - others.begin());
      L->P_j[e] = c;
    }
    L->column.insert(L->column.end(), others.begin(), others.end());
  }

  /* The rows of M, with the numbers of aggregates for columns. Columns of ghosts that are left are no columns any more. */
  void SendM(const CMATCHLevel &level)
  {
    std::vector<std::pair<GlobalInt, double>> row;

    M_sent = TravellingRows{{0}, {}, {}, {}, {}};
    for (LocalInt c = 0; c < now.M.n(); c++) {
      row.clear();
      for (LocalInt k = now.M.i[c]; k < now.M.i[c + 1]; k++) {
        const LocalInt  j  = now.M.j[k];
        const GlobalInt to = j < level.coarse ? level.first_coarse + j : number_of[level.n + j - level.coarse];
        if (to >= 0) row.emplace_back(to, (double)now.M.a[k]);
      }
      std::stable_sort(row.begin(), row.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
      for (size_t k = 0; k < row.size(); k++) {
        if (k && row[k].first == row[k - 1].first) M_sent.a.back() += row[k].second;
        else {
          M_sent.j.push_back(row[k].first);
          M_sent.a.push_back(row[k].second);
        }
      }
      M_sent.i.push_back((LocalInt)M_sent.j.size());
      M_sent.rs.push_back((double)now.M.d[c]);
    }
  }

  /* The ghosts of the next level are the columns of its rows that other ranks have. */
  void FindGhosts(const CMATCHLevel &level, const CMATCHArrays<T> &L, const Numbering &next, std::vector<GlobalInt> *ghost)
  {
    std::vector<char>      used(level.coarse + L.column.size(), 0);
    std::vector<GlobalInt> found_ghosts;

    products->MarkColumns(level.mine, &used);
    for (size_t c = 0; c < used.size(); c++)
      if (used[c] && !next.IsOwn(NumberOf(level, L, (LocalInt)c))) found_ghosts.push_back(NumberOf(level, L, (LocalInt)c));
    for (GlobalInt number : received.j)
      if (!next.IsOwn(number)) found_ghosts.push_back(number);
    SortUnique(&found_ghosts);
    ghost->swap(found_ghosts);
  }

  /* M of the next level, from the own rows and those that have come. */
  void NextM(const CMATCHLevel &level, const Numbering &column, const std::vector<LocalInt> &add_i)
  {
    CMATCHGraph                              next;
    std::vector<std::pair<LocalInt, double>> row;
    double                                   diagonal;

    const auto add = [&](const auto &rows, LocalInt r, LocalInt begin, LocalInt end) {
      for (LocalInt e = begin; e < end; e++) {
        const LocalInt c = column(rows.j[e]);
        if (c >= 0) row.emplace_back(c, rows.a[e]); /* a cut row of P may have lost the column */
      }
      diagonal += rows.rs[r];
    };
    next.foreign = (LocalInt)column.ghost.size();
    next.i.push_back(0);
    for (LocalInt c = 0; c < column.rows; c++) {
      row.clear();
      diagonal = 0;
      if (c < level.mine) add(M_sent, c, M_sent.i[c], M_sent.i[c + 1]);
      for (LocalInt k = add_i[c]; k < add_i[c + 1] && !M_received.start.empty(); k++)
        add(M_received, k, M_received.start[k], M_received.start[k] + M_received.length[k]);
      std::sort(row.begin(), row.end());
      for (const auto &[to, value] : row) {
        next.j.push_back(to);
        next.a.push_back((float)value);
      }
      next.i.push_back((LocalInt)next.j.size());
      next.d.push_back((float)diagonal);
    }
    now.M = std::move(next);
  }

  CMATCHHierarchyHost<T>            *H;
  CMATCHProgress                     now;      /* of the level at hand */
  CMATCHTransfer                     transfer; /* what Find() has found: the aggregates, and M on them */
  CMATCHAggregation                  found;
  CMATCHGraph                        next_M;
  std::unique_ptr<CMATCHProducts<T>> products;
  std::vector<GlobalInt>             number_of, P_numbers; /* what `numbers` and `P_j` show */
  TravellingRows                     sent;                 /* of the Galerkin product, of aggregates from `mine` on */
  TravellingRows                     M_sent;               /* of M, all own rows */
  ReceivedRows                       received, M_received; /* contributions to both */
  std::vector<char>                  packed_rows;
  std::vector<double>                head, all_head, sent_a; /* what `travellers` shows */
  std::vector<GlobalInt>             sent_j;
};

template <typename T>
PetscErrorCode Create(const CMATCHParams *params, PetscBool keep, CMATCHHierarchy **H, CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  PetscCall(CMATCHCreate_Host<T>(params, keep, H));
  *setup         = new SetUp<T>(static_cast<CMATCHHierarchyHost<T> *>(*H));
  (*setup)->keep = keep;
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

PetscErrorCode CMATCHRanksCreate_Host(const CMATCHParams *params, PetscBool keep, CMATCHHierarchy **H, CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  if (params->precision == FINEPC_SINGLE) PetscCall(Create<float>(params, keep, H, setup));
  else PetscCall(Create<double>(params, keep, H, setup));
  PetscFunctionReturn(PETSC_SUCCESS);
}
