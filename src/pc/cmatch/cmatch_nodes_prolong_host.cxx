/* The host twin of cuda/pc/cmatch/cmatch_nodes_prolong.cu: the tentative prolongator of a level of nodes, P, and R. */
#include "cmatch_nodes_host.h"

template <typename T>
std::vector<double> CMATCHNodesTentative_Host(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  CMATCHNodesLevel     &level = s->N->level[l];
  CMATCHNodesArrays<T> &L     = s->N->arrays[l];
  const LocalInt        k = level.k, m = s->N->m;
  std::vector<double>   Q(((size_t)level.n + L.ghost.size()) * k * m, 0.);

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

namespace
{

/* The columns that a row of P keeps, ascending: its own aggregate, and the largest others. */
std::vector<LocalInt> KeptColumns(LocalInt own, LocalInt size, CMATCHBlockRow *row)
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
bool Correct(LocalInt k, LocalInt m, const std::vector<double> &B_c, const std::vector<LocalInt> &take, CMATCHBlockRow *row)
{
  double defect[kCMATCHMostModes * kCMATCHMostModes] = {}, W[kCMATCHMostModes * kCMATCHMostModes] = {};
  bool   dropped = false;

  for (LocalInt J : row->columns) {
    if (std::binary_search(take.begin(), take.end(), J)) continue;
    CMATCHAddProduct(k, m, m, row->At(J), &B_c[(size_t)J * m * m], defect);
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
void UncutRow(const CMATCHNodesSetUp<T> &s, LocalInt l, LocalInt i, const std::vector<double> &Q, K known_k, M known_m,
              CMATCHBlockRow *row)
{
  const CMATCHNodesLevel &level = s.N->level[l];
  const LocalInt          k = known_k ? known_k : level.k, m = known_m ? known_m : s.N->m, own = level.aggregate[i];
  const double            omega   = kCMATCHNodesOmega / level.lambda;
  const double *const     inverse = &s.inverse[(size_t)i * k * k];

  row->At(own);
  for (LocalInt e = level.A_i[i]; e < level.A_i[i + 1]; e++) {
    const LocalInt j = level.A_j[e], J = level.aggregate[j];
    if (J >= 0) CMATCHAddFused<K{}, K{}, M{}>(k, k, m, &s.A[(size_t)e * k * k], &Q[(size_t)j * k * m], row->At(J));
  }
  row->Sort();
  for (LocalInt J : row->columns) {
    double *const t                                             = row->At(J);
    double        smoothed[kCMATCHMostModes * kCMATCHMostModes] = {};
    CMATCHAddProduct(k, k, m, inverse, t, smoothed);
    for (LocalInt e = 0; e < k * m; e++) t[e] = (J == own ? Q[(size_t)i * k * m + e] : 0) - omega * smoothed[e];
  }
}

} // namespace

template <typename T>
void CMATCHNodesProlong_Host(LocalInt l, const std::vector<double> &Q, CMATCHNodesSetUp<T> *s)
{
  CMATCHNodesLevel     &level = s->N->level[l];
  CMATCHNodesArrays<T> &L     = s->N->arrays[l];
  const LocalInt        k = level.k, m = s->N->m, size = k * m;
  CMATCHBlockRow        row((LocalInt)(L.B_c.size() / ((size_t)m * m)), size);

  level.cut = 0;
  if (!s->keep) L.P_j.assign((size_t)level.n * kCMATCHSlots, -1);
  L.P_a.assign(((size_t)level.n + L.ghost.size()) * kCMATCHSlots * size, (T)0);
  level.aggregate = L.aggregate.data();
  CMATCHForSizes(k, m, [&](auto known_k, auto known_m) {
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
}

/* Rows of foreign aggregates come behind those of own ones. Rows of P of ghosts are not in R. */
template <typename T>
void CMATCHNodesRestriction_Host(LocalInt l, CMATCHNodesSetUp<T> *s)
{
  const CMATCHNodesLevel &level  = s->N->level[l];
  CMATCHNodesArrays<T>   &L      = s->N->arrays[l];
  const LocalInt          coarse = level.coarse + s->H->level[l].foreign;
  const size_t            slots  = (size_t)level.n * kCMATCHSlots;

  L.R_i.assign((size_t)coarse + 1, 0);
  for (size_t e = 0; e < slots; e++)
    if (L.P_j[e] >= 0) L.R_i[L.P_j[e] + 1]++;
  for (LocalInt c = 0; c < coarse; c++) L.R_i[c + 1] += L.R_i[c];
  L.R_j.resize(L.R_i[coarse]);
  std::vector<LocalInt> next(L.R_i.begin(), L.R_i.end() - 1);
  for (size_t e = 0; e < slots; e++)
    if (L.P_j[e] >= 0) L.R_j[next[L.P_j[e]]++] = (LocalInt)e;
}

template std::vector<double> CMATCHNodesTentative_Host(LocalInt, CMATCHNodesSetUp<float> *);
template std::vector<double> CMATCHNodesTentative_Host(LocalInt, CMATCHNodesSetUp<double> *);
template void                CMATCHNodesProlong_Host(LocalInt, const std::vector<double> &, CMATCHNodesSetUp<float> *);
template void                CMATCHNodesProlong_Host(LocalInt, const std::vector<double> &, CMATCHNodesSetUp<double> *);
template void                CMATCHNodesRestriction_Host(LocalInt, CMATCHNodesSetUp<float> *);
template void                CMATCHNodesRestriction_Host(LocalInt, CMATCHNodesSetUp<double> *);
