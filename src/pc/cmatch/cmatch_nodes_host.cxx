/*
   The host twin of the hierarchy of nodes, in plain loops. cmatch_nodes.h has the formulas, and the order of every sum. T is the
   precision of the hierarchy.

   A cycle is that of cmatch_cycle_host.cxx, with blocks in the place of entries, and plain products.
*/
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "cmatch_host.h"
#include "cmatch_nodes.h"

namespace
{

/* ------------------------------------------- blocks ------------------------------------------- */

template <int N>
using Size = std::integral_constant<int, N>;

/*
   Calls f with the unknowns k of a node and the modes m, which the compiler knows for the usual ones: loops over blocks are several
   times faster then. Otherwise they are 0, and f takes k and m themselves.
*/
template <typename F>
auto ForSizes(LocalInt k, LocalInt m, F f)
{
  if (k == 3 && m == 6) return f(Size<3>(), Size<6>());
  if (k == 6 && m == 6) return f(Size<6>(), Size<6>());
  if (k == 2 && m == 3) return f(Size<2>(), Size<3>());
  if (k == 3 && m == 3) return f(Size<3>(), Size<3>());
  return f(Size<0>(), Size<0>());
}

/* A row of blocks of a sparse product while it is summed up. */
class BlockRow {
public:
  BlockRow(LocalInt n, LocalInt size) : place_(n, -1), size_(size) { }

  std::vector<LocalInt> columns; /* in the order of their first sight, until they are sorted */

  /* The block of column c, which begins with 0. */
  double *At(LocalInt c)
  {
    if (place_[c] < 0) {
      place_[c] = (LocalInt)columns.size();
      columns.push_back(c);
      values_.resize(columns.size() * size_, 0.);
    }
    return &values_[(size_t)place_[c] * size_];
  }
  bool Has(LocalInt c) const { return place_[c] >= 0; }
  void Sort() { std::sort(columns.begin(), columns.end()); }
  void Clear()
  {
    for (LocalInt c : columns) place_[c] = -1;
    columns.clear();
    values_.clear();
  }

private:
  std::vector<LocalInt> place_;
  std::vector<double>   values_;
  LocalInt              size_;
};

/* C += A B for blocks [k][l] and [l][m] */
template <typename A, typename B>
void AddProduct(LocalInt k, LocalInt l, LocalInt m, const A *a, const B *b, double *c)
{
  for (LocalInt r = 0; r < k; r++)
    for (LocalInt s = 0; s < l; s++)
      for (LocalInt q = 0; q < m; q++) c[r * m + q] += (double)a[r * l + s] * (double)b[s * m + q];
}

/* C += A' B for blocks [k][l] and [k][m] */
template <typename A, typename B>
void AddTransposed(LocalInt k, LocalInt l, LocalInt m, const A *a, const B *b, double *c)
{
  for (LocalInt r = 0; r < k; r++)
    for (LocalInt p = 0; p < l; p++)
      for (LocalInt q = 0; q < m; q++) c[p * m + q] += (double)a[r * l + p] * (double)b[r * m + q];
}

/* ---------------------------------------- the hierarchy --------------------------------------- */

/* The arrays that a CMATCHNodesLevel shows, which are explained there, and the vectors of the cycle. */
template <typename T>
struct Arrays {
  std::vector<LocalInt> A_i, A_j, aggregate, P_j, R_i, R_j;
  std::vector<T>        A_a, D, P_a;
  std::vector<double>   B_c;
  std::vector<T>        b, x, r, z; /* [n][k] */
};

template <typename T>
struct Nodes : CMATCHNodes {
  Arrays<T>       arrays[kCMATCHMostLevels];
  PolynomialSteps steps, stalled; /* of the smoother, and of the last level if that is not inverted */
};

/* What a set-up knows of its last level while it goes on. */
template <typename T>
struct SetUp {
  CMATCHHierarchyHost<T> *H;
  Nodes<T>               *N;
  CMATCHStats            *stats;
  PetscBool               keep, work;

  std::vector<double>   A;       /* [blocks][k][k] */
  std::vector<double>   B;       /* [n][k][m] the modes, 0 where an unknown is alone */
  std::vector<double>   inverse; /* [n][k][k] D^{-1} */
  std::vector<unsigned> alone;   /* [n] a bit for each unknown */
  CMATCHGraph           M;       /* of the finest level, and unless keep of others */

  void Fail(CMATCHFailure failure, LocalInt l, LocalInt row) { CMATCHFail(failure, l, row, stats); }
  void Note(size_t bytes)
  {
    stats->work_bytes = PetscMax(stats->work_bytes, bytes + CMATCHBytes(A) + CMATCHBytes(B) + CMATCHBytes(inverse));
  }
};

/* Lets level l show its arrays. */
template <typename T>
void Show(LocalInt l, SetUp<T> *s)
{
  Arrays<T>        &from = s->N->arrays[l];
  CMATCHNodesLevel &to   = s->N->level[l];

  to.n             = (LocalInt)from.A_i.size() - 1;
  to.blocks        = (LocalInt)from.A_j.size();
  to.A_i           = from.A_i.data();
  to.A_j           = from.A_j.data();
  to.A_a           = from.A_a.data();
  to.D             = from.D.data();
  to.aggregate     = from.aggregate.data();
  to.P_j           = from.P_j.data();
  to.P_a           = from.P_a.data();
  to.R_i           = from.R_i.data();
  to.R_j           = from.R_j.data();
  to.P_blocks      = (LocalInt)from.R_j.size();
  to.B_c           = from.B_c.data();
  s->H->level[l]   = CMATCHLevel{};
  s->H->level[l].n = s->H->level[l].all = to.n * to.k;
}

/* ------------------------------------- the finest level --------------------------------------- */

/* The blocks in which the rows of each node have entries, and the diagonal ones. */
template <typename T>
PetscErrorCode FindPattern(const CSRView *A, LocalInt k, Arrays<T> *L)
{
  const LocalInt        n = A->n / k;
  std::vector<LocalInt> columns;

  PetscFunctionBegin;
  L->A_i.assign(1, 0);
  L->A_j.clear();
  for (LocalInt i = 0; i < n; i++) {
    columns.assign(1, i);
    for (LocalInt e = A->i[i * k]; e < A->i[(i + 1) * k]; e++) columns.push_back(A->j[e] / k);
    std::sort(columns.begin(), columns.end());
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    L->A_j.insert(L->A_j.end(), columns.begin(), columns.end());
    L->A_i.push_back((LocalInt)L->A_j.size());
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The block of row i in column j, or null */
template <typename T>
LocalInt FindBlock(const Arrays<T> &L, LocalInt i, LocalInt j)
{
  const auto begin = L.A_j.begin() + L.A_i[i], end = L.A_j.begin() + L.A_i[i + 1], at = std::lower_bound(begin, end, j);

  return at != end && *at == j ? (LocalInt)(at - L.A_j.begin()) : -1;
}

/* The values of A, scaled, and which unknowns are alone. */
template <typename T>
void FillFinest(const CSRView *A, SetUp<T> *s)
{
  const Arrays<T> &L = s->N->arrays[0];
  const LocalInt   k = s->N->level[0].k, n = A->n / k;
  LocalInt         bad = -1;

  s->A.assign(L.A_j.size() * k * k, 0.);
  s->alone.assign(n, 0);
  for (LocalInt row = 0; row < A->n; row++) {
    const LocalInt i = row / k, r = row % k;
    bool           alone = true;
    for (LocalInt e = A->i[row]; e < A->i[row + 1]; e++) {
      const LocalInt j                                             = A->j[e] / k;
      const double   value                                         = A->a[e] * s->H->scale;
      s->A[((size_t)FindBlock(L, i, j) * k + r) * k + A->j[e] % k] = value;
      alone                                                        = alone && (A->j[e] == row || value == 0);
      if (bad < 0 && !std::isfinite((T)value)) bad = row;
    }
    s->alone[i] |= (unsigned)alone << r;
  }
  if (bad >= 0) s->Fail(CMATCH_TOO_LARGE, 0, bad);
}

/* The graph of the finest level, from the modes without any mask, which are in B still. */
template <typename T>
CMATCHGraph FindGraph(const SetUp<T> &s)
{
  const Arrays<T>    &L = s.N->arrays[0];
  const LocalInt      n = (LocalInt)L.A_i.size() - 1, k = s.N->level[0].k, m = s.N->m;
  std::vector<double> d((size_t)n * k);
  CMATCHGraph         M;

  for (LocalInt i = 0; i < n; i++)
    for (LocalInt r = 0; r < k; r++) d[i * k + r] = std::fabs(s.A[((size_t)FindBlock(L, i, i) * k + r) * k + r]);
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
  return M;
}

/* The modes, each scaled by a power of 2. */
template <typename T>
void TakeModes(const CMATCHModes &modes, LocalInt rows, SetUp<T> *s)
{
  const LocalInt m = modes.m;

  s->B.assign(modes.B, modes.B + (size_t)rows * m);
  for (LocalInt c = 0; c < m; c++) {
    double largest  = 0;
    int    exponent = 0;
    for (LocalInt row = 0; row < rows; row++) {
      const double value = modes.B[(size_t)row * m + c];
      if (!std::isfinite(value)) return s->Fail(CMATCH_NOT_FINITE, 0, row);
      largest = PetscMax(largest, std::fabs(value));
    }
    if (largest > 0) std::frexp(largest, &exponent);
    for (LocalInt row = 0; row < rows; row++) s->B[(size_t)row * m + c] = std::ldexp(s->B[(size_t)row * m + c], -exponent);
  }
}

/* Makes the finest level of A, with its graph. */
template <typename T>
PetscErrorCode MakeFinest(const CSRView *A, const CMATCHModes &modes, SetUp<T> *s)
{
  const CMATCHMatrix matrix{A, nullptr, 0, nullptr, 0};
  const LocalInt     m = modes.m, k = modes.k;

  PetscFunctionBegin;
  CMATCHCheckRows_Host(matrix, CMATCHSign(s->H->params), s->stats);
  if (s->stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  CMATCHFindScale_Host(matrix, s->H);
  s->N->level[0].k = k;
  if (!s->keep) PetscCall(FindPattern(A, k, &s->N->arrays[0]));
  FillFinest(A, s);
  if (!s->stats->failure) TakeModes(modes, A->n, s);
  if (s->stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  if (!s->keep || s->work) s->M = FindGraph(*s);
  for (LocalInt row = 0; row < A->n; row++)
    if (s->alone[row / k] >> row % k & 1) std::fill_n(s->B.begin() + (ptrdiff_t)row * m, m, 0.);
  Show(0, s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- diagonals, smoother ------------------------------------ */

/* D^{-1} of a level. */
template <typename T>
void InvertDiagonals(LocalInt l, SetUp<T> *s)
{
  CMATCHNodesLevel   &level = s->N->level[l];
  const Arrays<T>    &L     = s->N->arrays[l];
  const LocalInt      k     = level.k;
  std::vector<double> block((size_t)k * k);

  level.raised = 0;
  s->inverse.resize((size_t)level.n * k * k);
  for (LocalInt i = 0; i < level.n; i++) {
    double *const       inverse = &s->inverse[(size_t)i * k * k];
    const double *const a       = &s->A[(size_t)FindBlock(L, i, i) * k * k];
    if (l == 0) {
      if (CMATCHInvertDiagonal(k, a, s->alone[i], 0, inverse) >= 0) return s->Fail(CMATCH_BLOCK_NOT_POSITIVE, 0, i);
      continue;
    }
    std::copy(a, a + k * k, block.begin());
    level.raised += CMATCHInvertCoarseDiagonal(k, block.data(), s->alone[i], inverse);
  }
}

/* y = A x in double precision */
template <typename T>
void Multiply(const SetUp<T> &s, LocalInt l, const std::vector<double> &x, std::vector<double> *y)
{
  const CMATCHNodesLevel &level = s.N->level[l];

  ForSizes(level.k, s.N->m, [&](auto known, auto) {
    const LocalInt k = known ? known : level.k;
    for (LocalInt i = 0; i < level.n; i++) {
      double sum[kCMATCHMostModes] = {};
      for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1]; e++)
        AddProduct(k, k, 1, &s.A[(size_t)e * k * k], &x[(size_t)level.A_j[e] * k], sum);
      std::copy(sum, sum + k, y->begin() + (ptrdiff_t)i * k);
    }
  });
}

/* The largest eigenvalue of D^{-1} A, by the conjugate gradient method. 0 if nothing is known. */
template <typename T>
PetscReal LargestEigenvalue(const SetUp<T> &s, LocalInt l)
{
  constexpr LocalInt      steps = kCMATCHNodesIterations;
  const CMATCHNodesLevel &level = s.N->level[l];
  const LocalInt          k     = level.k;
  const size_t            n     = (size_t)level.n * k;
  std::vector<double>     r(n), z(n), p(n, 0.), q(n);
  PetscReal               rz[steps + 1] = {}, pq[steps] = {};
  const auto              dot = [n](const std::vector<double> &x, const std::vector<double> &y) {
    double sum = 0;
    for (size_t u = 0; u < n; u++) sum += x[u] * y[u];
    return sum;
  };

  for (size_t u = 0; u < n; u++) {
    const LocalInt i = (LocalInt)u / k, c = (LocalInt)u % k;
    const double   a = std::fabs(s.A[((size_t)FindBlock(s.N->arrays[l], i, i) * k + c) * k + c]);
    const double   h = (double)(int32_t)CMATCHMix((LocalInt)u, CMATCHSeed((PetscInt64)u + 7)) * 0x1p-31;
    q[u]             = (s.alone[i] >> c & 1) || !(a > 0) ? 0 : h / std::sqrt(a);
  }
  Multiply(s, l, q, &r);
  for (LocalInt step = 0;; step++) {
    std::fill(z.begin(), z.end(), 0.);
    for (LocalInt i = 0; i < level.n; i++) AddProduct(k, k, 1, &s.inverse[(size_t)i * k * k], &r[(size_t)i * k], &z[(size_t)i * k]);
    rz[step] = dot(r, z);
    if (step == steps || !(rz[step] > 0)) break;
    for (size_t u = 0; u < n; u++) p[u] = z[u] + (step ? rz[step] / rz[step - 1] : 0) * p[u];
    Multiply(s, l, p, &q);
    pq[step] = dot(p, q);
    if (!(pq[step] > 0)) break;
    for (size_t u = 0; u < n; u++) r[u] -= rz[step] / pq[step] * q[u];
  }
  return CMATCHRoundEstimate(LargestRitzValue(steps, rz, pq));
}

/* lambda and D of a level that is smoothed by this polynomial */
template <typename T>
void MakeSmoother(LocalInt l, const PolynomialSteps &steps, SetUp<T> *s)
{
  CMATCHNodesLevel &level = s->N->level[l];
  Arrays<T>        &L     = s->N->arrays[l];
  const LocalInt    k     = level.k;
  const unsigned    all   = (1u << k) - 1;

  InvertDiagonals(l, s);
  if (s->stats->failure) return;
  level.lambda = LargestEigenvalue(*s, l);
  if (std::all_of(s->alone.begin(), s->alone.end(), [all](unsigned alone) { return alone == all; })) level.lambda = 1;
  if (!(level.lambda > 0) || !std::isfinite(level.lambda)) return s->Fail(CMATCH_BLOCK_NOT_POSITIVE, l, 0);
  L.D.resize(s->inverse.size());
  for (LocalInt i = 0; i < level.n; i++)
    for (LocalInt r = 0; r < k; r++)
      for (LocalInt c = 0; c < k; c++) {
        const size_t at    = ((size_t)i * k + r) * k + c;
        const bool   alone = r == c && (s->alone[i] >> r & 1);
        L.D[at]            = (T)(alone ? steps.root * s->inverse[at] : s->inverse[at] / (kCMATCHNodesMargin * level.lambda));
      }
}

/* ----------------------------------------- aggregates ----------------------------------------- */

/* Finds the aggregates of level l, and returns false if the coarsening ends here. */
template <typename T>
bool Aggregate(LocalInt l, SetUp<T> *s)
{
  const CMATCHParams &params = s->H->params;
  CMATCHNodesLevel   &level  = s->N->level[l];
  const LocalInt      m      = s->N->m;
  const unsigned      all    = (1u << level.k) - 1;
  std::vector<char>   left(level.n);
  CMATCHGraph         finest;

  if (CMATCHNodesEnd(params, l, level.n, level.k, &s->N->end)) return false;
  for (LocalInt i = 0; i < level.n; i++) left[i] = s->alone[i] == all;
  const CMATCHMatching matching{CMATCHNodesSweeps(params, l, m),         CMATCHNodesStrength(params, l), false, true, (PetscReal)m,
                                (PetscReal)CMATCHNodesCoarseSize(params)};
  if (!l && s->work) finest = s->M; /* which the matching changes */
  s->Note(s->M.Bytes() + finest.Bytes());
  CMATCHAggregation found = CMATCHMatch_Host(matching, left, &s->M, &s->stats->work_bytes);
  level.left              = found.left;
  if (CMATCHNodesStalled(level.n, level.k, found.left, found.coarse, m, &s->N->end)) return false;
  std::vector<LocalInt> nodes(found.coarse, 0);
  for (LocalInt a : found.aggregate)
    if (a >= 0) nodes[a]++;
  if (!l && s->work) s->N->first_fit = s->N->fit = CMATCHNodesFit_Host(matching.strength, finest, found.aggregate);
  level.coarse              = found.coarse;
  level.joined              = found.joined;
  level.largest             = *std::max_element(nodes.begin(), nodes.end());
  level.least               = *std::min_element(nodes.begin(), nodes.end());
  s->N->arrays[l].aggregate = std::move(found.aggregate);
  return true;
}

/* The tentative prolongator Q [n][k][m] of level l, and the modes of the next level. */
template <typename T>
std::vector<double> Tentative(LocalInt l, SetUp<T> *s)
{
  CMATCHNodesLevel   &level = s->N->level[l];
  Arrays<T>          &L     = s->N->arrays[l];
  const LocalInt      k = level.k, m = s->N->m;
  std::vector<double> Q((size_t)level.n * k * m, 0.);

  L.B_c.assign((size_t)level.coarse * m * m, 0.);
  for (LocalInt i = 0; i < level.n; i++) {
    if (L.aggregate[i] < 0) continue;
    double *const G = &L.B_c[(size_t)L.aggregate[i] * m * m];
    for (LocalInt r = 0; r < k; r++) {
      const double *const b = &s->B[((size_t)i * k + r) * m];
      for (LocalInt p = 0; p < m; p++)
        for (LocalInt q = p; q < m; q++) G[p * m + q] += b[p] * b[q];
    }
  }
  level.dead = 0;
  for (LocalInt c = 0; c < level.coarse; c++) level.dead += CMATCHGramFactor(m, &L.B_c[(size_t)c * m * m]);
  for (LocalInt i = 0; i < level.n; i++)
    for (LocalInt r = 0; r < k && L.aggregate[i] >= 0; r++) {
      const size_t row = ((size_t)i * k + r) * m;
      CMATCHTentativeRow(m, &L.B_c[(size_t)L.aggregate[i] * m * m], &s->B[row], &Q[row]);
    }
  return Q;
}

/* ---------------------------------------- the prolongator ------------------------------------- */

/* The columns that a row of P keeps, ascending: its own aggregate, and the largest others. */
std::vector<LocalInt> KeptColumns(LocalInt own, LocalInt size, BlockRow *row)
{
  std::vector<std::pair<double, LocalInt>> others;
  std::vector<LocalInt>                    take{own};

  for (LocalInt J : row->columns) {
    const double square = CMATCHSquare(size, row->At(J));
    if (J != own && square != 0) others.emplace_back(-square, J);
  }
  std::sort(others.begin(), others.end());
  for (const auto &[square, J] : others)
    if (take.size() < (size_t)kCMATCHSlots) take.push_back(J);
  std::sort(take.begin(), take.end());
  return take;
}

/* Adds to the kept blocks of a row of P what the dropped ones make of the modes. Returns whether there are such. */
bool Correct(LocalInt k, LocalInt m, const std::vector<double> &B_c, const std::vector<LocalInt> &take, BlockRow *row)
{
  double defect[kCMATCHMostModes * kCMATCHMostModes] = {}, W[kCMATCHMostModes * kCMATCHMostModes] = {};
  bool   dropped = false;

  for (LocalInt J : row->columns) {
    if (std::binary_search(take.begin(), take.end(), J)) continue;
    AddProduct(k, m, m, row->At(J), &B_c[(size_t)J * m * m], defect);
    dropped = true;
  }
  if (!dropped) return false;
  for (LocalInt J : take) {
    const double *const b = &B_c[(size_t)J * m * m];
    for (LocalInt l = 0; l < m; l++)
      for (LocalInt p = 0; p < m; p++)
        for (LocalInt q = p; q < m; q++) W[p * m + q] += b[l * m + p] * b[l * m + q];
  }
  CMATCHSolveCorrection(k, m, W, defect);
  for (LocalInt J : take) {
    const double *const b = &B_c[(size_t)J * m * m];
    double *const       P = row->At(J);
    for (LocalInt r = 0; r < k; r++)
      for (LocalInt l = 0; l < m; l++) {
        double sum = 0;
        for (LocalInt c = 0; c < m; c++) sum += defect[r * m + c] * b[l * m + c];
        P[r * m + l] += sum;
      }
  }
  return true;
}

/* Row i of P before it is cut, sorted: Q - omega D^{-1} A Q. */
template <typename T, typename K, typename M>
void UncutRow(const SetUp<T> &s, LocalInt l, LocalInt i, const std::vector<double> &Q, K known_k, M known_m, BlockRow *row)
{
  const CMATCHNodesLevel &level = s.N->level[l];
  const LocalInt          k = known_k ? known_k : level.k, m = known_m ? known_m : s.N->m, own = level.aggregate[i];
  const double            omega   = kCMATCHNodesOmega / level.lambda;
  const double *const     inverse = &s.inverse[(size_t)i * k * k];

  row->At(own);
  for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1]; e++) {
    const LocalInt j = level.A_j[e], J = level.aggregate[j];
    if (J >= 0) AddProduct(k, k, m, &s.A[(size_t)e * k * k], &Q[(size_t)j * k * m], row->At(J));
  }
  row->Sort();
  for (LocalInt J : row->columns) {
    double *const t                                             = row->At(J);
    double        smoothed[kCMATCHMostModes * kCMATCHMostModes] = {};
    AddProduct(k, k, m, inverse, t, smoothed);
    for (LocalInt e = 0; e < k * m; e++) t[e] = (J == own ? Q[(size_t)i * k * m + e] : 0) - omega * smoothed[e];
  }
}

/* P and R of a level, from the tentative prolongator. */
template <typename T>
void Prolong(LocalInt l, const std::vector<double> &Q, SetUp<T> *s)
{
  CMATCHNodesLevel &level = s->N->level[l];
  Arrays<T>        &L     = s->N->arrays[l];
  const LocalInt    k = level.k, m = s->N->m, size = k * m;
  BlockRow          row(level.coarse, size);

  level.cut = 0;
  if (!s->keep) L.P_j.assign((size_t)level.n * kCMATCHSlots, -1);
  L.P_a.assign((size_t)level.n * kCMATCHSlots * size, (T)0);
  level.aggregate = L.aggregate.data();
  ForSizes(k, m, [&](auto known_k, auto known_m) {
    for (LocalInt i = 0; i < level.n; i++) {
      LocalInt *const P_j = &L.P_j[(size_t)i * kCMATCHSlots];
      if (L.aggregate[i] < 0) continue;
      UncutRow(*s, l, i, Q, known_k, known_m, &row);
      const std::vector<LocalInt> take =
        s->keep ? std::vector<LocalInt>(P_j, std::find(P_j, P_j + kCMATCHSlots, -1)) : KeptColumns(L.aggregate[i], size, &row);
      level.cut += Correct(k, m, L.B_c, take, &row);
      for (size_t slot = 0; slot < take.size(); slot++) {
        const double *const block = row.At(take[slot]);
        P_j[slot]                 = take[slot];
        std::copy(block, block + size, &L.P_a[((size_t)i * kCMATCHSlots + slot) * size]);
      }
      row.Clear();
    }
  });
  L.R_i.assign(level.coarse + 1, 0);
  for (LocalInt J : L.P_j)
    if (J >= 0) L.R_i[J + 1]++;
  for (LocalInt c = 0; c < level.coarse; c++) L.R_i[c + 1] += L.R_i[c];
  L.R_j.resize(L.R_i[level.coarse]);
  std::vector<LocalInt> next(L.R_i.begin(), L.R_i.end() - 1);
  for (size_t e = 0; e < L.P_j.size(); e++)
    if (L.P_j[e] >= 0) L.R_j[next[L.P_j[e]]++] = (LocalInt)e;
}

/* ------------------------------------- the Galerkin product ----------------------------------- */

/* A P of a level */
template <typename T>
struct Product {
  std::vector<size_t>   i{0};
  std::vector<LocalInt> j;
  std::vector<T>        a;
};

template <typename T>
Product<T> Multiply(LocalInt l, const SetUp<T> &s)
{
  const CMATCHNodesLevel &level = s.N->level[l];
  const Arrays<T>        &L     = s.N->arrays[l];
  Product<T>              AP;

  ForSizes(level.k, s.N->m, [&](auto known_k, auto known_m) {
    const LocalInt k = known_k ? known_k : level.k, m = known_m ? known_m : s.N->m, size = k * m;
    BlockRow       row(level.coarse, size);
    for (LocalInt i = 0; i < level.n; i++) {
      for (LocalInt e = L.A_i[i]; e < L.A_i[i + 1]; e++)
        for (size_t p = (size_t)L.A_j[e] * kCMATCHSlots; p < (size_t)(L.A_j[e] + 1) * kCMATCHSlots && L.P_j[p] >= 0; p++)
          AddProduct(k, k, m, &s.A[(size_t)e * k * k], &L.P_a[p * size], row.At(L.P_j[p]));
      row.Sort();
      for (LocalInt J : row.columns) {
        const double *const block = row.At(J);
        AP.j.push_back(J);
        AP.a.insert(AP.a.end(), block, block + size);
      }
      AP.i.push_back(AP.j.size());
      row.Clear();
    }
  });
  return AP;
}

/* The operator of the next level gets the lower blocks from the upper ones, and 1 for each dead unknown. */
template <typename T>
void Mirror(LocalInt m, const std::vector<double> &B_c, const Arrays<T> &C, SetUp<T> *s)
{
  const LocalInt n = (LocalInt)C.A_i.size() - 1;

  s->alone.assign(n, 0);
  for (LocalInt c = 0; c < n; c++)
    for (LocalInt e = C.A_i[c]; e < C.A_i[c + 1]; e++) {
      const LocalInt d = C.A_j[e], t = d < c ? -1 : FindBlock(C, d, c);
      double *const  block = &s->A[(size_t)e * m * m];
      if (t < 0) continue;
      double *const other = &s->A[(size_t)t * m * m];
      for (LocalInt p = 0; p < m; p++)
        for (LocalInt q = d == c ? p + 1 : 0; q < m; q++) other[q * m + p] = block[p * m + q];
      for (LocalInt p = 0; p < m && d == c; p++) {
        if (B_c[((size_t)c * m + p) * m + p] != 0) continue;
        block[p * m + p] = 1;
        s->alone[c] |= 1u << p;
      }
    }
}

/* Makes the next level of level l, in double precision; its modes replace those of level l. */
template <typename T>
PetscErrorCode Galerkin(LocalInt l, SetUp<T> *s)
{
  const CMATCHNodesLevel &level = s->N->level[l];
  Arrays<T>              &L = s->N->arrays[l], &C = s->N->arrays[l + 1];
  const Product<T>        AP = Multiply(l, *s);
  std::vector<double>     coarse;

  PetscFunctionBegin;
  C.A_i.assign(1, 0);
  C.A_j.clear();
  ForSizes(level.k, s->N->m, [&](auto known_k, auto known_m) {
    const LocalInt k = known_k ? known_k : level.k, m = known_m ? known_m : s->N->m, size = k * m;
    BlockRow       row(level.coarse, m * m);
    for (LocalInt c = 0; c < level.coarse; c++) {
      row.At(c);
      for (LocalInt e = L.R_i[c]; e < L.R_i[c + 1]; e++) {
        const LocalInt i = L.R_j[e] / kCMATCHSlots;
        for (size_t q = AP.i[i]; q < AP.i[i + 1]; q++)
          AddTransposed(k, m, m, &L.P_a[(size_t)L.R_j[e] * size], &AP.a[q * size], row.At(AP.j[q]));
      }
      row.Sort();
      for (LocalInt d : row.columns) {
        const double *const block = row.At(d);
        C.A_j.push_back(d);
        coarse.insert(coarse.end(), block, block + m * m);
      }
      C.A_i.push_back((LocalInt)C.A_j.size());
      row.Clear();
    }
  });
  s->Note(CMATCHBytes(AP.i) + CMATCHBytes(AP.j) + CMATCHBytes(AP.a) + CMATCHBytes(coarse));
  PetscCheck(C.A_j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A coarse operator has more blocks than 32 bits can count");
  s->A = std::move(coarse);
  s->B = L.B_c;
  Mirror(s->N->m, L.B_c, C, s);
  s->N->level[l + 1].k = s->N->m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- levels ------------------------------------------ */

/* The inverse of the last level. */
template <typename T>
PetscErrorCode InvertLast(SetUp<T> *s)
{
  const LocalInt          last  = s->H->levels - 1;
  const CMATCHNodesLevel &level = s->N->level[last];
  const LocalInt          k = level.k, n = level.n * k;
  auto                   &D = s->H->inverse;
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
  PetscCall(CMATCHNodesInvert(n, D.data(), &done));
  if (!done) s->Fail(CMATCH_COARSEST, last, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The vectors, and what is counted. */
template <typename T>
void CountBytes(SetUp<T> *s)
{
  CMATCHHierarchyHost<T> *const H      = s->H;
  const size_t                  vector = sizeof(T), rows = (size_t)H->level[0].n;

  H->bytes       = CMATCHBytes(H->inverse);
  H->apply_bytes = 2 * rows * sizeof(PetscScalar) + CMATCHBytes(H->inverse);
  for (LocalInt l = 0; l < H->levels; l++) {
    Arrays<T>   &L = s->N->arrays[l];
    const size_t n = (size_t)H->level[l].n;
    for (auto *v : {&L.b, &L.x, &L.r, &L.z}) v->assign(n, (T)0);
    for (const auto *array : {&L.A_i, &L.A_j, &L.aggregate, &L.P_j, &L.R_i, &L.R_j}) H->bytes += CMATCHBytes(*array);
    for (const auto *array : {&L.A_a, &L.D, &L.P_a, &L.b, &L.x, &L.r, &L.z}) H->bytes += CMATCHBytes(*array);
    H->bytes += CMATCHBytes(L.B_c);
    const size_t step = CMATCHBytes(L.A_i) + CMATCHBytes(L.A_j) + CMATCHBytes(L.A_a) + CMATCHBytes(L.D) + 4 * n * vector;
    if (l + 1 < H->levels)
      H->apply_bytes += 2 * s->N->steps.degree * step + 2 * (CMATCHBytes(L.P_j) + CMATCHBytes(L.P_a)) + CMATCHBytes(L.R_i) +
                        CMATCHBytes(L.R_j) + (3 * n + 2 * (size_t)H->level[l + 1].n) * vector;
    else if (!H->inverted) H->apply_bytes += kCMATCHStalledDegree * step;
  }
}

/* Makes the levels below the finest one, and what the cycle needs. */
template <typename T>
PetscErrorCode MakeLevels(SetUp<T> *s)
{
  CMATCHHierarchyHost<T> *const H = s->H;

  PetscFunctionBegin;
  for (LocalInt l = 0;; l++) {
    Arrays<T> &L = s->N->arrays[l];

    L.A_a.assign(s->A.begin(), s->A.end());
    Show(l, s);
    const bool last = s->keep ? l + 1 == H->levels : !Aggregate(l, s);
    if (last) {
      H->levels = l + 1;
      break;
    }
    MakeSmoother(l, s->N->steps, s);
    if (s->stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
    const std::vector<double> Q = Tentative(l, s);
    s->Note(CMATCHBytes(Q));
    Prolong(l, Q, s);
    Show(l, s);
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
    MakeSmoother(last, s->N->stalled, s);
    Show(last, s);
  }
  if (!s->stats->failure) CountBytes(s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
PetscErrorCode Compute(const CSRView *A, const CMATCHModes &modes, const CMATCHParams *params, PetscBool keep, PetscBool work,
                       CMATCHHierarchy **hierarchy, CMATCHStats *stats)
{
  PetscFunctionBegin;
  PetscCall(CMATCHCreate_Host<T>(params, keep, hierarchy));
  auto *const H = static_cast<CMATCHHierarchyHost<T> *>(*hierarchy);
  if (!keep) {
    H->nodes_kept = std::make_shared<Nodes<T>>();
    H->nodes      = H->nodes_kept.get();
  }
  SetUp<T> s{H, static_cast<Nodes<T> *>(H->nodes), stats, keep, work, {}, {}, {}, {}, {}};
  s.N->m       = modes.m;
  s.N->graph   = CMATCHNodesGraphOf(modes.k, modes.m);
  s.N->steps   = CMATCHNodesSteps(*params);
  s.N->stalled = PolynomialChebyshev(kCMATCHStalledDegree);
  s.N->coupled = 0;
  PetscCall(MakeFinest(A, modes, &s));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  const unsigned all = (1u << modes.k) - 1;
  for (size_t i = 0; keep && H->levels > 1 && i < s.alone.size(); i++)
    s.N->coupled += s.N->level[0].aggregate[i] < 0 && s.alone[i] != all;
  if (keep && work && H->levels > 1) s.N->fit = CMATCHNodesFit_Host(CMATCHNodesStrength(*params, 0), s.M, s.N->arrays[0].aggregate);
  PetscCall(MakeLevels(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- cycle ------------------------------------------- */

/* r = b - A x */
template <typename T, typename K>
void Residual(const CMATCHNodesLevel &level, K known, const std::vector<T> &b, const std::vector<T> &x, std::vector<T> *r)
{
  const LocalInt k = known ? known : level.k;
  const T *const A = (const T *)level.A_a;

  for (LocalInt i = 0; i < level.n; i++) {
    T sum[kCMATCHMostModes] = {};
    for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1]; e++) {
      const T *const a = A + (size_t)e * k * k, *const v = &x[(size_t)level.A_j[e] * k];
      for (LocalInt p = 0; p < k; p++)
        for (LocalInt q = 0; q < k; q++) sum[p] += a[p * k + q] * v[q];
    }
    for (LocalInt p = 0; p < k; p++) (*r)[(size_t)i * k + p] = b[(size_t)i * k + p] - sum[p];
  }
}

/* x = x + S(b - A x), or from the start x = 0 */
template <typename T, typename K>
void Smooth(const PolynomialSteps &steps, bool zero, const CMATCHNodesLevel &level, K known, Arrays<T> *L)
{
  const LocalInt k = known ? known : level.k;
  const T *const D = (const T *)level.D;

  if (zero) {
    L->r = L->b;
    std::fill(L->x.begin(), L->x.end(), (T)0);
  } else Residual(level, known, L->b, L->x, &L->r);
  std::fill(L->z.begin(), L->z.end(), (T)0);
  for (LocalInt step = 0; step < steps.degree; step++) {
    const T c = (T)steps.c[step], e = (T)steps.e[step], beta = (T)steps.beta[step];
    if (step > 0) Residual(level, known, L->r, L->z, &L->r);
    for (LocalInt i = 0; i < level.n; i++)
      for (LocalInt p = 0; p < k; p++) {
        T sum = 0;
        for (LocalInt q = 0; q < k; q++) sum += D[((size_t)i * k + p) * k + q] * L->r[(size_t)i * k + q];
        T &z = L->z[(size_t)i * k + p];
        z    = e * z + c * sum;
        L->x[(size_t)i * k + p] += beta * z;
      }
  }
}

/* C.b = R r */
template <typename T>
void Restrict(const CMATCHNodesLevel &level, LocalInt m, const Arrays<T> &L, std::vector<T> *b)
{
  const LocalInt k = level.k;

  for (LocalInt c = 0; c < level.coarse; c++) {
    T sum[kCMATCHMostModes] = {};
    for (LocalInt e = level.R_i[c]; e < level.R_i[c + 1]; e++) {
      const T *const P = &L.P_a[(size_t)level.R_j[e] * k * m], *const r = &L.r[(size_t)(level.R_j[e] / kCMATCHSlots) * k];
      for (LocalInt p = 0; p < k; p++)
        for (LocalInt q = 0; q < m; q++) sum[q] += P[p * m + q] * r[p];
    }
    std::copy(sum, sum + m, b->begin() + (ptrdiff_t)c * m);
  }
}

/* x = x + P C.x */
template <typename T>
void Interpolate(const CMATCHNodesLevel &level, LocalInt m, const std::vector<T> &from, Arrays<T> *L)
{
  const LocalInt k = level.k;

  for (LocalInt i = 0; i < level.n; i++)
    for (size_t e = (size_t)i * kCMATCHSlots; e < (size_t)(i + 1) * kCMATCHSlots && level.P_j[e] >= 0; e++)
      for (LocalInt p = 0; p < k; p++)
        for (LocalInt q = 0; q < m; q++)
          L->x[(size_t)i * k + p] += L->P_a[(e * k + p) * m + q] * from[(size_t)level.P_j[e] * m + q];
}

/* x = cycle(b) on level l */
template <typename T>
void Visit(LocalInt l, CMATCHHierarchyHost<T> *H)
{
  Nodes<T> *const         N     = static_cast<Nodes<T> *>(H->nodes);
  Arrays<T>              &L     = N->arrays[l];
  const CMATCHNodesLevel &level = N->level[l];
  const size_t            n     = L.x.size();

  if (l + 1 == H->levels && H->inverted) {
    for (size_t i = 0; i < n; i++) {
      double sum = 0;
      for (size_t j = 0; j < n; j++) sum += H->inverse[i * n + j] * (double)L.b[j];
      L.x[i] = (T)sum;
    }
    return;
  }
  ForSizes(level.k, N->m, [&](auto known, auto) {
    if (l + 1 == H->levels) return Smooth(N->stalled, true, level, known, &L);
    Smooth(N->steps, true, level, known, &L);
    Residual(level, known, L.b, L.x, &L.r);
    Restrict(level, N->m, L, &N->arrays[l + 1].b);
    Visit(l + 1, H);
    Interpolate(level, N->m, N->arrays[l + 1].x, &L);
    Smooth(N->steps, false, level, known, &L);
  });
}

template <typename T>
void Apply(CMATCHHierarchyHost<T> *H, const PetscScalar *r, PetscScalar *z)
{
  Arrays<T>   &L       = static_cast<Nodes<T> *>(H->nodes)->arrays[0];
  const size_t n       = L.x.size();
  double       largest = 0;
  int          above   = 0;

  for (size_t i = 0; i < n; i++) largest = PetscMax(largest, std::fabs(r[i]));
  if (std::isfinite(largest)) std::frexp(largest, &above);
  for (size_t i = 0; i < n; i++) L.b[i] = (T)std::ldexp(r[i], -above);
  if (n) Visit(0, H);
  for (size_t i = 0; i < n; i++) z[i] = std::ldexp((double)L.x[i] * H->scale, above);
}

} // namespace

PetscErrorCode CMATCHNodesCompute_Host(const CSRView *A, const CMATCHModes *modes, const CMATCHParams *params, PetscBool keep,
                                       PetscBool work, CMATCHHierarchy **H, CMATCHStats *stats)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  if (params->precision == FINEPC_SINGLE) PetscCall(Compute<float>(A, *modes, params, keep, work, H, stats));
  else PetscCall(Compute<double>(A, *modes, params, keep, work, H, stats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesApply_Host(CMATCHHierarchy *H, const PetscScalar *r, PetscScalar *z)
{
  PetscFunctionBegin;
  if (H->params.precision == FINEPC_SINGLE) Apply(static_cast<CMATCHHierarchyHost<float> *>(H), r, z);
  else Apply(static_cast<CMATCHHierarchyHost<double> *>(H), r, z);
  PetscFunctionReturn(PETSC_SUCCESS);
}
