/*
   The set-up of levels of nodes on several ranks, on the host. The method is that of rows, which is explained in
   cmatch_host_ranks.cxx, with the formulas of cmatch_nodes.h. What differs:

   Ghosts need Q and the modes of their aggregates before P is made, and all ranks of a level find its lambda together.

   A node that goes to another rank brings its modes, and which of its unknowns are alone. Blocks below the diagonal are the
   transposes of those above it where both are on the same rank, and stay as they are summed elsewhere.

   A level that is passed to fewer ranks has P = I. Where that is the finest one, the next level has the unknowns of the matrix, and
   is the finest one in all but its number. On several ranks coarsening does not end at a level without aggregates: an empty one
   follows if all nodes of all ranks are alone, and otherwise it is passed on.
*/
#include "cmatch_host_ranks.h"
#include "cmatch_nodes_host.h"

namespace
{

template <typename T>
class SetUp : public CMATCHRanksTwin {
public:
  SetUp(const CMATCHModes &own_modes, PetscBool kept, PetscBool work, CMATCHStats *stats) :
      CMATCHRanksTwin(kept), s{nullptr, nullptr, stats, kept, work}, modes(own_modes)
  {
  }

  PetscErrorCode Create(const CMATCHParams &params, CMATCHHierarchy **H)
  {
    PetscFunctionBegin;
    PetscCall(CMATCHNodesBegin_Host(modes, params, H, &s));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Begin(const CSRView *own, const CSRView *foreign, const std::vector<GlobalInt> &ghost, const PetscScalar *,
                       double largest) override
  {
    PetscFunctionBegin;
    if (!keep) s.H->several = 1;
    PetscCall(CMATCHNodesFinest_Host({own, foreign, (LocalInt)ghost.size(), nullptr, largest}, ghost, modes, &s));
    if (!s.stats->failure) CMATCHNodesCountFit_Host(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Match(LocalInt l, CMATCHTransfer how, CMATCHMatch *match) override
  {
    const LocalInt n = s.N->level[l].n;

    PetscFunctionBegin;
    transfer     = how;
    s.H->several = l + 1;
    next_M       = s.M;
    if (how == CMATCH_PASSED) {
      found = {std::vector<LocalInt>(n), n, 0, 0};
      for (LocalInt i = 0; i < n; i++) found.aggregate[i] = i;
    } else found = CMATCHNodesAggregate_Host(l, s, &next_M);
    if (how == CMATCH_MATCHED && found.left == n) { /* no vertex is left of M */
      std::fill(found.aggregate.begin(), found.aggregate.end(), -1);
      next_M   = CMATCHGraph();
      next_M.i = {0};
    }
    const PetscInt64 square = (PetscInt64)s.N->m * s.N->m;
    *match = {found.coarse, found.left, how == CMATCH_PASSED ? 0 : square * ((PetscInt64)next_M.j.size() + found.coarse)};
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Number(LocalInt l, GlobalInt first_coarse, const std::vector<LocalInt> &send, CMATCHHalo *numbers) override
  {
    CMATCHLevel      &level = s.H->level[l];
    CMATCHNodesLevel &nodes = s.N->level[l];

    PetscFunctionBegin;
    s.N->first_fit = l ? s.N->first_fit : CMATCHFit{};
    if (!l && s.work && transfer == CMATCH_MATCHED)
      s.N->first_fit = CMATCHNodesFit_Host(CMATCHNodesStrength(s.H->params, 0), s.M, found.aggregate);
    if (!l) s.N->fit = s.N->first_fit;
    CMATCHNodesAdopt_Host(l, &found, &s);
    s.M                 = std::move(next_M);
    s.N->level[l + 1].k = transfer == CMATCH_PASSED ? nodes.k : s.N->m;
    level.transfer      = transfer;
    level.coarse        = nodes.coarse;
    level.foreign       = 0;
    level.width         = kCMATCHSlots;
    level.first_coarse  = first_coarse;
    *numbers            = ShareNumbers(nodes.n, level, s.N->arrays[l], send);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Share(LocalInt l, const std::vector<LocalInt> &send, CMATCHHalo *shared, int *width) override
  {
    CMATCHNodesArrays<T> &L = s.N->arrays[l];
    const LocalInt        m = s.N->m, size = s.N->level[l].k * m, square = m * m;

    PetscFunctionBegin;
    L.A_a.assign(s.A.begin(), s.A.end());
    *width = 0;
    if (s.H->level[l].transfer == CMATCH_PASSED) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(CMATCHNodesInvert_Host(l, &s));
    if (!s.stats->failure) PetscCall(CMATCHNodesFactor_Host(l, &s));
    if (s.stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
    Q      = CMATCHNodesTentative_Host(l, &s);
    *width = size + square;
    packed_Q.clear();
    for (LocalInt i : send) {
      const LocalInt      J = L.aggregate[i];
      const double *const q = &Q[(size_t)i * size];
      packed_Q.insert(packed_Q.end(), q, q + size);
      packed_Q.resize(packed_Q.size() + square, 0.);
      if (J >= 0) std::copy_n(L.B_c.begin() + (ptrdiff_t)J * square, square, packed_Q.end() - square);
    }
    came_Q.resize(L.ghost.size() * *width);
    *shared = {packed_Q.data(), came_Q.data()};
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Estimate(LocalInt l) override
  {
    PetscFunctionBegin;
    s.N->level[l].lambda = 0;
    if (s.H->level[l].transfer == CMATCH_PASSED) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(CMATCHNodesEstimate_Host(l, &s));
    if (!s.stats->failure) PetscCall(CMATCHNodesScaleFactor_Host(l, &s));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Prolong(LocalInt l, const std::vector<LocalInt> &send, CMATCHHalo *columns, CMATCHHalo *values) override
  {
    CMATCHLevel          &level = s.H->level[l];
    CMATCHNodesArrays<T> &L     = s.N->arrays[l];
    const LocalInt        n     = s.N->level[l].n;
    const size_t          width = (size_t)kCMATCHSlots * s.N->level[l].k * s.Next(l);

    PetscFunctionBegin;
    if (!keep) NumberGhosts(n, level, &L);
    if (level.transfer == CMATCH_PASSED) PassOn(l);
    else {
      CMATCHNodesSmoother_Host(l, s.N->steps, &s);
      TakeShared(l);
      CMATCHNodesProlong_Host(l, Q, &s);
      L.B_c.resize((size_t)level.coarse * s.N->m * s.N->m);
    }
    if (!keep) {
      NumberForeign(&level, &L);
      SendM(n, level, s.M);
      *columns = ShareColumns(n, level, L, send);
    }
    CMATCHNodesRestriction_Host(l, &s);
    Pack(send, L.P_a.data(), (LocalInt)width, &packed_values);
    *values = {packed_values.data(), L.P_a.data() + n * width};
    CMATCHNodesShow_Host(l, &s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Multiply(LocalInt l, LocalInt mine, const CMATCHRowList &send, int kinds, CMATCHSentRows to[]) override
  {
    CMATCHLevel          &level = s.H->level[l];
    CMATCHNodesArrays<T> &L     = s.N->arrays[l];
    const LocalInt        k = s.Next(l), size = k * s.N->m;

    PetscFunctionBegin;
    level.mine = mine;
    if (!keep) NumberColumns(s.N->level[l].n, level, &L);
    const LocalInt columns = level.coarse + (LocalInt)L.column.size();
    AP                     = CMATCHNodesMultiply_Host(l, columns, s);
    FindNextModes(l);
    CMATCHBlockRow row(columns, k * k);
    CMATCHRowsOut  sent;
    sent.width = 2 + size;
    sent.block = k * k;
    for (LocalInt c = mine; c < level.coarse + level.foreign; c++) {
      CMATCHNodesProductRow_Host(l, c, s, AP, &row);
      for (LocalInt d : row.columns) {
        const double *const block = row.At(d);
        sent.j.push_back(NumberOf(level, L, d));
        sent.a.insert(sent.a.end(), block, block + k * k);
      }
      row.Clear();
      sent.EndRow();
      sent.sums.push_back(c < level.coarse ? next_alone[c] : 0);
      if (c < level.coarse) sent.sums.insert(sent.sums.end(), &next_B[(size_t)c * size], &next_B[(size_t)c * size] + size);
      else sent.sums.resize(sent.sums.size() + size, 0.);
    }
    s.Note(CMATCHBytes(AP.i) + CMATCHBytes(AP.j) + CMATCHBytes(AP.a) + 2 * CMATCHBytes(sent.a));
    L.values.assign((size_t)(level.coarse + level.foreign) * k, (T)0);
    CMATCHNodesShow_Host(l, &s);
    received[CMATCH_MATCHING]       = CMATCHRowsIn();
    received[CMATCH_PRODUCTS].width = sent.width;
    received[CMATCH_PRODUCTS].block = sent.block;
    PetscCall(PackRows(sent, 0, send, &packed[CMATCH_PRODUCTS], &to[CMATCH_PRODUCTS]));
    if (kinds > 1) PetscCall(PackRows(M_sent, mine, send, &packed[CMATCH_MATCHING], &to[CMATCH_MATCHING]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Next(LocalInt l, const CMATCHOwnedRows &next, const CMATCHRowList &receive, std::vector<LocalInt> *place) override
  {
    CMATCHLevel          &level = s.H->level[l];
    CMATCHNodesArrays<T> &L = s.N->arrays[l], &C = s.N->arrays[l + 1];

    PetscFunctionBegin;
    if (!keep) {
      NumberContributions(next.rows, receive.rows, place, &level, &L);
      L.added.assign(receive.rows.size() * s.Next(l), (T)0);
    }
    for (CMATCHRowsIn &rows : received) PlaceRows(*place, &rows);
    if (!keep) {
      std::vector<char> used(level.coarse + L.column.size(), 0);
      for (LocalInt e = 0; e < L.R_i[level.mine]; e++)
        for (size_t q = AP.i[L.R_j[e] / kCMATCHSlots]; q < AP.i[L.R_j[e] / kCMATCHSlots + 1]; q++) used[AP.j[q]] = 1;
      FindGhosts(level, L, {next.first, next.rows, C.ghost}, used, &C.ghost);
    }
    const CMATCHNumbering column{next.first, next.rows, C.ghost};
    PetscCall(SumRows(l, column));
    TakeNextModes(l, next.rows);
    AP = CMATCHNodesProduct<T>();
    if (!keep) s.M = NextM(level, column, L.add_i, true);
    CMATCHNodesComplete_Host(l + 1, &s);
    CMATCHNodesShow_Host(l + 1, &s);
    s.H->level[l + 1].first = next.first;
    s.H->level[l + 1].all   = next.all;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode End(LocalInt l, bool alone) override
  {
    PetscFunctionBegin;
    if (alone) {
      PetscCall(CMATCHNodesMakeLevels_Host(l, &s));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    s.H->levels   = l;
    s.H->inverted = PETSC_FALSE;
    PetscCall(CMATCHNodesFinish_Host(&s));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ScaleFactors() override { return PETSC_SUCCESS; }
  PetscErrorCode Close(PetscBool) override { return PETSC_SUCCESS; }

private:
  /* P = I */
  void PassOn(LocalInt l)
  {
    const CMATCHNodesLevel &level = s.N->level[l];
    CMATCHNodesArrays<T>   &L     = s.N->arrays[l];
    const size_t            k = level.k, width = kCMATCHSlots * k * k;

    if (!keep) L.P_j.assign((size_t)level.n * kCMATCHSlots, -1);
    L.P_a.assign(((size_t)level.n + L.ghost.size()) * width, (T)0);
    for (LocalInt i = 0; i < level.n; i++) {
      L.P_j[(size_t)i * kCMATCHSlots] = i;
      for (size_t r = 0; r < k; r++) L.P_a[i * width + r * k + r] = 1;
    }
  }

  /* Q of ghosts, and the modes of their aggregates, behind the own ones. */
  void TakeShared(LocalInt l)
  {
    CMATCHNodesArrays<T> &L = s.N->arrays[l];
    const LocalInt        n = s.N->level[l].n, m = s.N->m, size = s.N->level[l].k * m, square = m * m;

    for (size_t g = 0; g < L.ghost.size(); g++) {
      const double *const from = &came_Q[g * (size + square)];
      const LocalInt      J    = L.aggregate[n + g];
      std::copy_n(from, size, Q.begin() + (ptrdiff_t)(n + g) * size);
      if (J < 0) continue;
      L.B_c.resize(PetscMax(L.B_c.size(), (size_t)(J + 1) * square), 0.);
      std::copy_n(from + size, square, L.B_c.begin() + (ptrdiff_t)J * square);
    }
  }

  /* The modes of own aggregates, and which unknowns of them are alone. */
  void FindNextModes(LocalInt l)
  {
    if (s.H->level[l].transfer == CMATCH_PASSED) {
      next_B     = s.B;
      next_alone = s.alone;
      return;
    }
    next_B = s.N->arrays[l].B_c;
    CMATCHFindDead(s.N->m, next_B, &next_alone);
  }

  /* Those of own nodes of the next level. */
  void TakeNextModes(LocalInt l, LocalInt nodes)
  {
    const CMATCHNodesArrays<T> &L    = s.N->arrays[l];
    const LocalInt              mine = s.H->level[l].mine, size = s.Next(l) * s.N->m;
    const CMATCHRowsIn         &came = received[CMATCH_PRODUCTS];

    s.B.assign((size_t)nodes * size, 0.);
    s.alone.assign(nodes, 0);
    std::copy_n(next_B.begin(), (ptrdiff_t)mine * size, s.B.begin());
    std::copy_n(next_alone.begin(), mine, s.alone.begin());
    for (LocalInt c = 0; c < nodes; c++)
      for (LocalInt k = L.add_i[c]; k < L.add_i[c + 1]; k++) {
        const double *const sums = came.Sums(k);
        s.alone[c] |= (unsigned)sums[0];
        for (LocalInt e = 0; e < size; e++) s.B[(size_t)c * size + e] += sums[1 + e];
      }
  }

  /* The blocks of the next level, from the own products and the rows that have come. */
  PetscErrorCode SumRows(LocalInt l, const CMATCHNumbering &column)
  {
    const CMATCHLevel          &level = s.H->level[l];
    const CMATCHNodesArrays<T> &L     = s.N->arrays[l];
    CMATCHNodesArrays<T>       &C     = s.N->arrays[l + 1];
    const CMATCHRowsIn         &came  = received[CMATCH_PRODUCTS];
    const LocalInt              size  = s.Next(l) * s.Next(l);
    std::vector<LocalInt>       own(level.coarse + L.column.size()); /* columns of the own products */
    CMATCHBlockRow              product((LocalInt)own.size(), size), row(column.rows + (LocalInt)C.ghost.size(), size);
    const auto                  add = [&](LocalInt to, const double *block) {
      double *const sum = row.At(to);
      for (LocalInt e = 0; e < size; e++) sum[e] += block[e];
    };

    PetscFunctionBegin;
    for (size_t c = 0; c < own.size(); c++) own[c] = column(NumberOf(level, L, (LocalInt)c));
    C.A_i.assign(1, 0);
    C.A_j.clear();
    s.A.clear();
    for (LocalInt c = 0; c < column.rows; c++) {
      row.At(c);
      if (c < level.mine) {
        CMATCHNodesProductRow_Host(l, c, s, AP, &product);
        for (LocalInt to : product.columns) add(own[to], product.At(to));
        product.Clear();
      }
      for (LocalInt k = L.add_i[c]; k < L.add_i[c + 1]; k++)
        for (LocalInt e = came.start[k]; e < came.start[k] + came.length[k]; e++)
          add(column(came.in.j[e]), &came.in.a[(size_t)e * size]);
      row.Sort();
      for (LocalInt d : row.columns) {
        const double *const block = row.At(d);
        C.A_j.push_back(d);
        s.A.insert(s.A.end(), block, block + size);
      }
      PetscCheck(C.A_j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", kCMATCHTooManyCome);
      C.A_i.push_back((LocalInt)C.A_j.size());
      row.Clear();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHNodesSetUp<T>   s; /* of the level at hand */
  const CMATCHModes     modes;
  CMATCHTransfer        transfer = CMATCH_MATCHED; /* what Match() has found: the aggregates, and M on them */
  CMATCHAggregation     found    = {};
  CMATCHGraph           next_M;
  std::vector<double>   Q, packed_Q, came_Q; /* [..][k m + m m] Q of nodes that are sent, or of ghosts, and of their aggregates R */
  std::vector<double>   next_B;              /* [coarse][next k][m] */
  std::vector<unsigned> next_alone;
  CMATCHNodesProduct<T> AP;
  std::vector<T>        packed_values; /* of rows of P that are sent */
};

template <typename T>
PetscErrorCode Create_CMATCHNodesHostRanks(const CMATCHParams &params, const CMATCHModes &modes, PetscBool keep, PetscBool work,
                                           CMATCHStats *stats, CMATCHHierarchy **H, CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  auto made = std::make_unique<SetUp<T>>(modes, keep, work, stats);
  PetscCall(made->Create(params, H));
  *setup = made.release();
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHNodesRanksCreate_Host(const CMATCHParams *params, const CMATCHModes *modes, PetscBool keep, PetscBool work,
                                           CMATCHStats *stats, CMATCHHierarchy **H, CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  if (params->precision == FINEPC_SINGLE)
    PetscCall(Create_CMATCHNodesHostRanks<float>(*params, *modes, keep, work, stats, H, setup));
  else PetscCall(Create_CMATCHNodesHostRanks<double>(*params, *modes, keep, work, stats, H, setup));
  PetscFunctionReturn(PETSC_SUCCESS);
}
