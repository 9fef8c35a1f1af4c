/*
   The host twin of the hierarchy of nodes, in plain loops: the finest level, aggregates, and the set-up as a whole. cmatch_nodes.h
   has the formulas, and the order of every sum.
*/
#include "cmatch_nodes_host.h"

template <typename T>
void CMATCHNodesShow_Host(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  CMATCHNodesArrays<T> &from  = s->N->arrays[l];
  CMATCHNodesLevel     &to    = s->N->level[l];
  CMATCHLevel          &ranks = s->H->level[l];

  to.n         = (LocalInt)from.A_i.size() - 1;
  to.blocks    = (LocalInt)from.A_j.size();
  to.A_i       = from.A_i.data();
  to.A_j       = from.A_j.data();
  to.A_a       = from.A_a.data();
  to.D         = from.D.data();
  to.aggregate = from.aggregate.data();
  to.P_j       = from.P_j.data();
  to.P_a       = from.P_a.data();
  to.R_i       = from.R_i.data();
  to.R_j       = from.R_j.data();
  to.P_blocks  = (LocalInt)from.R_j.size();
  to.B_c       = from.B_c.data();
  ranks.n      = to.n * to.k;
  ranks.ghosts = (LocalInt)from.ghost.size();
  ranks.ghost  = from.ghost.data();
  ranks.column = from.column.data();
  if (l >= s->H->several) ranks.all = to.n;
}

/* ------------------------------------- the finest level --------------------------------------- */

namespace
{

/*
   The entries of a row of A: f takes the column and the value. Column r of a ghost of the level is column (n + ghost) k + r, where
   `columns` [ghosts of A] has these.
*/
template <typename F>
void ForEntries(const CMATCHMatrix &A, const std::vector<LocalInt> &columns, LocalInt row, F f)
{
  for (LocalInt e = A.own->i[row]; e < A.own->i[row + 1]; e++) f(A.own->j[e], A.own->a[e]);
  for (LocalInt e = A.foreign ? A.foreign->i[row] : 0; A.foreign && e < A.foreign->i[row + 1]; e++)
    f(columns[A.foreign->j[e]], A.foreign->a[e]);
}

/* The blocks in which the rows of each node have entries, and the diagonal ones. */
template <typename T>
void FindPattern(const CMATCHMatrix &A, const std::vector<LocalInt> &columns, LocalInt k, CMATCHNodesArrays<T> *L)
{
  std::vector<LocalInt> blocks;

  L->A_i.assign(1, 0);
  L->A_j.clear();
  for (LocalInt i = 0; i < A.own->n / k; i++) {
    blocks.assign(1, i);
    for (LocalInt row = i * k; row < (i + 1) * k; row++)
      ForEntries(A, columns, row, [&](LocalInt column, PetscScalar) { blocks.push_back(column / k); });
    SortUnique(&blocks);
    L->A_j.insert(L->A_j.end(), blocks.begin(), blocks.end());
    L->A_i.push_back((LocalInt)L->A_j.size());
  }
}

/* The values of A, scaled, and which unknowns are alone. */
template <typename T>
void FillFinest(const CMATCHMatrix &A, const std::vector<LocalInt> &columns, CMATCHNodesSetUp<T> *s)
{
  const CMATCHNodesArrays<T> &L = s->N->arrays[0];
  const LocalInt              k = s->N->level[0].k, rows = A.own->n;
  LocalInt                    bad = -1;

  s->A.assign(L.A_j.size() * k * k, 0.);
  s->alone.assign(rows / k, 0);
  for (LocalInt row = 0; row < rows; row++) {
    const LocalInt i = row / k, r = row % k;
    bool           alone = true;
    ForEntries(A, columns, row, [&](LocalInt column, PetscScalar a) {
      const double value                                                         = a * s->H->scale;
      s->A[((size_t)CMATCHFindBlock(L, i, column / k) * k + r) * k + column % k] = value;
      alone                                                                      = alone && (column == row || value == 0);
      if (bad < 0 && !std::isfinite((T)value)) bad = row;
    });
    s->alone[i] |= (unsigned)alone << r;
  }
  if (bad >= 0) s->Fail(CMATCH_TOO_LARGE, 0, bad);
}

/* The nodes that are coupled to a much stiffer one, of the magnitudes of diagonal entries d. */
LocalInt CountBeside(const CMATCHGraph &M, LocalInt k, const std::vector<double> &d)
{
  LocalInt count = 0;

  for (LocalInt i = 0; i + 1 < (LocalInt)M.i.size(); i++) {
    bool beside = false;
    for (LocalInt e = M.i[i]; e < M.i[i + 1]; e++)
      beside = beside || (M.a[e] != 0 && CMATCHNodesIsStiffer(k, &d[(size_t)i * k], &d[(size_t)M.j[e] * k]));
    count += beside;
  }
  return count;
}

/* The graph of the finest level, from the modes without any mask, which are in B still. */
template <typename T>
CMATCHGraph FindGraph(const CMATCHModes &modes, const CMATCHNodesSetUp<T> &s, LocalInt *beside)
{
  const CMATCHNodesArrays<T> &L = s.N->arrays[0];
  const LocalInt              n = (LocalInt)L.A_i.size() - 1, k = s.N->level[0].k, m = s.N->m;
  std::vector<double>         d(((size_t)n + L.ghost.size()) * k);
  CMATCHGraph                 M;

  for (LocalInt i = 0; i < n; i++)
    for (LocalInt r = 0; r < k; r++) d[i * k + r] = std::fabs(s.A[((size_t)CMATCHFindBlock(L, i, i) * k + r) * k + r]);
  for (size_t row = (size_t)n * k; row < d.size(); row++) d[row] = std::fabs(modes.diagonal[row] * s.H->scale);
  M.foreign = (LocalInt)L.ghost.size();
  M.i.push_back(0);
  for (LocalInt i = 0; i < n; i++) {
    double sum = 0;
    for (LocalInt e = L.A_i[i]; e < L.A_i[i + 1]; e++) {
      const LocalInt      j = L.A_j[e];
      const double *const a = &s.A[(size_t)e * k * k];
      if (j == i) continue;
      const double g = s.N->graph == CMATCH_AXIAL   ? CMATCHAxialWeight(k, m, a, &s.B[(size_t)i * k * m], &s.B[(size_t)j * k * m])
                       : s.N->graph == CMATCH_TRACE ? CMATCHTraceWeight(k, a)
                                                    : CMATCHFrobeniusWeight(k, a, &d[i * k], &d[j * k]);
      if (g > 0) sum += g;
      M.j.push_back(j);
      M.a.push_back(-(float)g);
    }
    M.d.push_back((float)sum);
    M.i.push_back((LocalInt)M.j.size());
  }
  *beside = CountBeside(M, k, d);
  return M;
}

/* The modes, each scaled by a power of 2. */
template <typename T>
void TakeModes(const CMATCHModes &modes, LocalInt own, CMATCHNodesSetUp<T> *s)
{
  const LocalInt m = modes.m, rows = own + (LocalInt)s->N->arrays[0].ghost.size() * modes.k;

  s->B.assign(modes.B, modes.B + (size_t)rows * m);
  for (LocalInt c = 0; c < m; c++) {
    double largest  = modes.largest ? modes.largest[c] : 0;
    int    exponent = 0;
    for (LocalInt row = 0; row < own; row++) {
      const double value = modes.B[(size_t)row * m + c];
      if (!std::isfinite(value)) return s->Fail(CMATCH_NOT_FINITE, 0, row);
      largest = PetscMax(largest, std::fabs(value));
    }
    if (largest > 0) std::frexp(largest, &exponent);
    for (LocalInt row = 0; row < rows; row++) s->B[(size_t)row * m + c] = std::ldexp(s->B[(size_t)row * m + c], -exponent);
  }
}

} // namespace

template <typename T>
PetscErrorCode CMATCHNodesFinest_Host(const CMATCHMatrix &A, const std::vector<GlobalInt> &ghost, const CMATCHModes &modes,
                                      CMATCHNodesSetUp<T> *s)
{
  CMATCHNodesArrays<T> &L = s->N->arrays[0];
  const LocalInt        m = modes.m, k = modes.k, rows = A.own->n;
  LocalInt              beside = 0;
  std::vector<LocalInt> columns;

  PetscFunctionBegin;
  CMATCHCheckRows_Host(A, CMATCHSign(s->H->params), s->stats);
  if (s->stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  CMATCHFindScale_Host(A, s->H);
  L.ghost = CMATCHGhostNodes(ghost, k);
  for (GlobalInt row : ghost) {
    const auto node = std::lower_bound(L.ghost.begin(), L.ghost.end(), row / k) - L.ghost.begin();
    columns.push_back((rows / k + (LocalInt)node) * k + (LocalInt)(row % k));
  }
  if (!s->keep) FindPattern(A, columns, k, &L);
  FillFinest(A, columns, s);
  if (!s->stats->failure) TakeModes(modes, rows, s);
  if (s->stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  if (!s->keep || s->work) s->M = FindGraph(modes, *s, &beside);
  if (!s->keep) {
    s->N->beside = beside;
    s->N->jumps  = CMATCHNodesHasJumps(beside, rows / k);
  }
  s->B.resize((size_t)rows * m);
  for (LocalInt row = 0; row < rows; row++)
    if (s->alone[row / k] >> row % k & 1) std::fill_n(s->B.begin() + (ptrdiff_t)row * m, m, 0.);
  CMATCHNodesShow_Host(0, s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- aggregates ----------------------------------------- */

template <typename T>
CMATCHAggregation CMATCHNodesAggregate_Host(LocalInt l, const CMATCHNodesSetUp<T> &s, CMATCHGraph *M)
{
  const CMATCHParams &params = s.H->params;
  const LocalInt      n = s.N->level[l].n, finest = s.IsFinest(l) ? 0 : l;
  const unsigned      all = (1u << s.N->level[l].k) - 1;
  std::vector<char>   left(n);

  for (LocalInt i = 0; i < n; i++) left[i] = s.alone[i] == all;
  /* Of all ranks, the sweeps end as if the others had as many aggregates for their nodes. */
  const PetscReal      each = (PetscReal)s.H->level[l].all / (PetscReal)PetscMax(n, 1);
  const CMATCHMatching matching{params.coarsening,
                                CMATCHNodesSweeps(params, *s.N, finest),
                                CMATCHNodesStrength(params, finest),
                                false,
                                true,
                                (PetscReal)s.N->m * each,
                                (PetscReal)CMATCHNodesCoarseSize(params)};
  return CMATCHMatch_Host(matching, std::move(left), M, &s.stats->work_bytes);
}

template <typename T>
void CMATCHNodesAdopt_Host(LocalInt l, CMATCHAggregation *found, CMATCHNodesSetUp<T> *s)
{
  CMATCHNodesLevel     &level = s->N->level[l];
  std::vector<LocalInt> nodes(found->coarse, 0);

  for (LocalInt a : found->aggregate)
    if (a >= 0) nodes[a]++;
  level.left                = found->left;
  level.coarse              = found->coarse;
  level.joined              = found->joined;
  level.largest             = nodes.empty() ? 0 : *std::max_element(nodes.begin(), nodes.end());
  level.least               = nodes.empty() ? 0 : *std::min_element(nodes.begin(), nodes.end());
  s->N->arrays[l].aggregate = std::move(found->aggregate);
}

namespace
{

/* Finds the aggregates of level l, and returns false if the coarsening ends here. */
template <typename T>
bool Aggregate(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  CMATCHNodesLevel &level = s->N->level[l];
  const LocalInt    m     = s->N->m;
  CMATCHGraph       finest;

  if (CMATCHNodesEnd(s->H->params, l, level.n, level.k, &s->N->end)) return false;
  if (!l && s->work) finest = s->M; /* which the matching changes */
  s->Note(s->M.Bytes() + finest.Bytes());
  CMATCHAggregation found = CMATCHNodesAggregate_Host(l, *s, &s->M);
  level.left              = found.left;
  if (CMATCHNodesStalled(level.n, level.k, found.left, found.coarse, m, &s->N->end)) return false;
  if (!l && s->work)
    s->N->first_fit = s->N->fit = CMATCHNodesFit_Host(CMATCHNodesStrength(s->H->params, 0), finest, found.aggregate);
  CMATCHNodesAdopt_Host(l, &found, s);
  s->N->level[l + 1].k = m;
  return true;
}

/* -------------------------------------------- levels ------------------------------------------ */

/* Makes the next level of level l, in double precision; its modes replace those of level l. */
template <typename T>
PetscErrorCode Galerkin(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  const LocalInt              coarse = s->N->level[l].coarse, m = s->N->m;
  CMATCHNodesArrays<T>       &C  = s->N->arrays[l + 1];
  const CMATCHNodesProduct<T> AP = CMATCHNodesMultiply_Host(l, coarse, *s);
  CMATCHBlockRow              row(coarse, m * m);
  std::vector<double>         A;

  PetscFunctionBegin;
  C.A_i.assign(1, 0);
  C.A_j.clear();
  for (LocalInt c = 0; c < coarse; c++) {
    row.At(c);
    CMATCHNodesProductRow_Host(l, c, *s, AP, &row);
    row.Sort();
    for (LocalInt d : row.columns) {
      const double *const block = row.At(d);
      C.A_j.push_back(d);
      A.insert(A.end(), block, block + m * m);
    }
    C.A_i.push_back((LocalInt)C.A_j.size());
    row.Clear();
  }
  s->Note(CMATCHBytes(AP.i) + CMATCHBytes(AP.j) + CMATCHBytes(AP.a) + CMATCHBytes(A));
  PetscCheck(C.A_j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A coarse operator has more blocks than 32 bits can count");
  s->A = std::move(A);
  s->B = s->N->arrays[l].B_c;
  CMATCHFindDead(m, s->B, &s->alone);
  CMATCHNodesComplete_Host(l + 1, s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The inverse of the last level. */
template <typename T>
PetscErrorCode InvertLast(CMATCHNodesSetUp<T> *s)
{
  const LocalInt          last  = s->H->levels - 1;
  const CMATCHNodesLevel &level = s->N->level[last];
  const LocalInt          k = level.k, n = level.n * k;
  auto                   &D    = s->H->inverse;
  LocalInt                held = 0;
  PetscBool               done;

  PetscFunctionBegin;
  D.assign((size_t)n * n, 0.);
  for (LocalInt i = 0; i < level.n; i++)
    for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1]; e++)
      for (LocalInt r = 0; r < k; r++)
        for (LocalInt c = 0; c < k; c++)
          D[((size_t)i * k + r) * n + (size_t)level.A_j[e] * k + c] = s->A[((size_t)e * k + r) * k + c];
  for (size_t i = 0; i < (size_t)n; i++)
    for (size_t j = 0; j < i; j++) D[i * n + j] = D[j * n + i] = 0.5 * (D[i * n + j] + D[j * n + i]);
  if (s->B.size() == (size_t)n * s->N->m)
    PetscCall(CMATCHNodesHold(n, s->N->m, s->B.data(), s->H->params.precision, D.data(), &held));
  PetscCall(CMATCHNodesInvert(n, D.data(), &done));
  if (!done) s->Fail(CMATCH_COARSEST, last, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

template <typename T>
PetscErrorCode CMATCHNodesFinish_Host(CMATCHNodesSetUp<T> *s)
{
  CMATCHHierarchyHost<T> *const H      = s->H;
  const size_t                  vector = sizeof(T), rows = (size_t)H->level[0].n;

  PetscFunctionBegin;
  H->bytes       = CMATCHBytes(H->inverse);
  H->apply_bytes = 2 * rows * sizeof(PetscScalar) + CMATCHBytes(H->inverse);
  for (LocalInt l = 0; l < H->levels; l++) {
    CMATCHNodesArrays<T>   &L     = s->N->arrays[l];
    const CMATCHNodesLevel &level = s->N->level[l];
    const size_t            n     = (size_t)H->level[l].n;
    for (auto *v : {&L.b, &L.r}) v->assign(n, (T)0);
    for (auto *v : {&L.x, &L.z}) v->assign(n + L.ghost.size() * level.k, (T)0);
    if (H->level[l].factor.d) L.t.assign(n, (T)0);
    if (l < H->several) {
      PetscCall(L.type.Make(CMATCHType(H->params.precision), level.k));
      PetscCall(L.coarse_type.Make(CMATCHType(H->params.precision), s->Next(l)));
    }
    for (const auto *array : {&L.A_i, &L.A_j, &L.aggregate, &L.P_j, &L.R_i, &L.R_j, &L.add_i}) H->bytes += CMATCHBytes(*array);
    for (const auto *array : {&L.A_a, &L.D, &L.P_a, &L.b, &L.x, &L.r, &L.z, &L.t, &L.values, &L.added})
      H->bytes += CMATCHBytes(*array);
    const size_t factor = CMATCHFactorBytes(H->level[l], H->params.precision);
    H->bytes += CMATCHBytes(L.B_c) + CMATCHBytes(L.ghost) + CMATCHBytes(L.column) + factor;
    const size_t step = CMATCHBytes(L.A_i) + CMATCHBytes(L.A_j) + CMATCHBytes(L.A_a) + 4 * n * vector +
                        (factor ? factor + 2 * n * vector : CMATCHBytes(L.D));
    if (l < H->several || l + 1 < H->levels)
      H->apply_bytes += 2 * s->N->steps.degree * step + 2 * (CMATCHBytes(L.P_j) + CMATCHBytes(L.P_a)) + CMATCHBytes(L.R_i) +
                        CMATCHBytes(L.R_j) + (3 * n + 2 * (size_t)level.coarse * s->Next(l)) * vector;
    else if (!H->inverted) H->apply_bytes += kCMATCHStalledDegree * step;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode CMATCHNodesMakeLevels_Host(LocalInt first, CMATCHNodesSetUp<T> *s)
{
  CMATCHHierarchyHost<T> *const H = s->H;

  PetscFunctionBegin;
  for (LocalInt l = first;; l++) {
    CMATCHNodesArrays<T> &L = s->N->arrays[l];

    L.A_a.assign(s->A.begin(), s->A.end());
    CMATCHNodesShow_Host(l, s);
    const bool last = s->keep ? l + 1 == H->levels : !Aggregate(l, s);
    if (last) {
      H->levels = l + 1;
      break;
    }
    PetscCall(CMATCHNodesInvert_Host(l, s));
    for (auto *step : {CMATCHNodesEstimate_Host<T>, CMATCHNodesFactor_Host<T>, CMATCHNodesScaleFactor_Host<T>})
      if (!s->stats->failure) PetscCall(step(l, s));
    if (s->stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
    CMATCHNodesSmoother_Host(l, s->N->steps, s);
    const std::vector<double> Q = CMATCHNodesTentative_Host(l, s);
    s->Note(CMATCHBytes(Q));
    CMATCHNodesProlong_Host(l, Q, s);
    CMATCHNodesRestriction_Host(l, s);
    CMATCHNodesShow_Host(l, s);
    PetscCall(Galerkin(l, s));
  }
  const LocalInt last      = H->levels - 1;
  s->N->level[last].coarse = 0;
  s->N->level[last].lambda = 0;
  s->stats->end            = s->N->end;
  H->inverted              = (PetscBool)(H->level[last].n <= kCMATCHLargestDense);
  if (H->inverted) PetscCall(InvertLast(s));
  else {
    H->inverse.clear();
    PetscCall(CMATCHNodesInvert_Host(last, s));
    if (!s->stats->failure) PetscCall(CMATCHNodesEstimate_Host(last, s));
    if (!s->stats->failure) CMATCHNodesSmoother_Host(last, s->N->stalled, s);
    CMATCHNodesShow_Host(last, s);
  }
  if (!s->stats->failure) PetscCall(CMATCHNodesFinish_Host(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode CMATCHNodesBegin_Host(const CMATCHModes &modes, const CMATCHParams &params, CMATCHHierarchy **hierarchy,
                                     CMATCHNodesSetUp<T> *s)
{
  PetscFunctionBegin;
  PetscCall(CMATCHCreate_Host<T>(&params, s->keep, hierarchy));
  s->H = static_cast<CMATCHHierarchyHost<T> *>(*hierarchy);
  if (!s->keep) {
    s->H->nodes_kept = std::make_shared<CMATCHNodesHost<T>>();
    s->H->nodes      = s->H->nodes_kept.get();
  }
  s->N             = static_cast<CMATCHNodesHost<T> *>(s->H->nodes);
  s->N->m          = modes.m;
  s->N->level[0].k = modes.k;
  s->N->graph      = CMATCHNodesGraphOf(modes.k, modes.m, modes.row);
  s->H->row        = modes.row;
  s->N->steps      = CMATCHNodesSteps(params);
  s->N->stalled    = PolynomialChebyshev(kCMATCHStalledDegree);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Of a set-up with keep: how well the aggregates of the finest level fit. */
template <typename T>
void CMATCHNodesCountFit_Host(CMATCHNodesSetUp<T> *s)
{
  const unsigned all  = (1u << s->N->level[0].k) - 1;
  const auto    &of   = s->N->arrays[0].aggregate;
  const bool     some = s->keep && (s->H->several || s->H->levels > 1) && s->H->level[0].transfer == CMATCH_MATCHED;

  s->N->coupled = 0;
  for (size_t i = 0; some && i < s->alone.size(); i++) s->N->coupled += of[i] < 0 && s->alone[i] != all;
  if (some && s->work) s->N->fit = CMATCHNodesFit_Host(CMATCHNodesStrength(s->H->params, 0), s->M, of);
}

template <typename T>
static PetscErrorCode Compute(const CSRView *A, const CMATCHModes &modes, const CMATCHParams &params, PetscBool keep,
                              PetscBool work, CMATCHHierarchy **hierarchy, CMATCHStats *stats)
{
  CMATCHNodesSetUp<T> s{nullptr, nullptr, stats, keep, work};

  PetscFunctionBegin;
  PetscCall(CMATCHNodesBegin_Host(modes, params, hierarchy, &s));
  PetscCall(CMATCHNodesFinest_Host({A, nullptr, 0, nullptr, 0}, {}, modes, &s));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  CMATCHNodesCountFit_Host(&s);
  PetscCall(CMATCHNodesMakeLevels_Host(0, &s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesCompute_Host(const CSRView *A, const CMATCHModes *modes, const CMATCHParams *params, PetscBool keep,
                                       PetscBool work, CMATCHHierarchy **H, CMATCHStats *stats)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  if (params->precision == FINEPC_SINGLE) PetscCall(Compute<float>(A, *modes, *params, keep, work, H, stats));
  else PetscCall(Compute<double>(A, *modes, *params, keep, work, H, stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template void              CMATCHNodesShow_Host(LocalInt, CMATCHNodesSetUp<float> *);
template PetscErrorCode    CMATCHNodesFinest_Host(const CMATCHMatrix &, const std::vector<GlobalInt> &, const CMATCHModes &,
                                                  CMATCHNodesSetUp<float> *);
template CMATCHAggregation CMATCHNodesAggregate_Host(LocalInt, const CMATCHNodesSetUp<float> &, CMATCHGraph *);
template void              CMATCHNodesAdopt_Host(LocalInt, CMATCHAggregation *, CMATCHNodesSetUp<float> *);
template PetscErrorCode    CMATCHNodesFinish_Host(CMATCHNodesSetUp<float> *);
template PetscErrorCode    CMATCHNodesMakeLevels_Host(LocalInt, CMATCHNodesSetUp<float> *);
template PetscErrorCode    CMATCHNodesBegin_Host(const CMATCHModes &, const CMATCHParams &, CMATCHHierarchy **,
                                                 CMATCHNodesSetUp<float> *);
template void              CMATCHNodesCountFit_Host(CMATCHNodesSetUp<float> *);
template void              CMATCHNodesShow_Host(LocalInt, CMATCHNodesSetUp<double> *);
template PetscErrorCode    CMATCHNodesFinest_Host(const CMATCHMatrix &, const std::vector<GlobalInt> &, const CMATCHModes &,
                                                  CMATCHNodesSetUp<double> *);
template CMATCHAggregation CMATCHNodesAggregate_Host(LocalInt, const CMATCHNodesSetUp<double> &, CMATCHGraph *);
template void              CMATCHNodesAdopt_Host(LocalInt, CMATCHAggregation *, CMATCHNodesSetUp<double> *);
template PetscErrorCode    CMATCHNodesFinish_Host(CMATCHNodesSetUp<double> *);
template PetscErrorCode    CMATCHNodesMakeLevels_Host(LocalInt, CMATCHNodesSetUp<double> *);
template PetscErrorCode    CMATCHNodesBegin_Host(const CMATCHModes &, const CMATCHParams &, CMATCHHierarchy **,
                                                 CMATCHNodesSetUp<double> *);
template void              CMATCHNodesCountFit_Host(CMATCHNodesSetUp<double> *);
