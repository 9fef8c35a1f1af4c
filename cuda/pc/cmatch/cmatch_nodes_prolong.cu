/* The hierarchy of nodes on the GPU: the tentative prolongator, the prolongator and its transpose. */

#include "cmatch_nodes_products.cuh"

namespace
{

constexpr int    kTableBits = 5; /* the logarithm of the table of a row of P in shared memory */
constexpr int    kGroup     = 8; /* lanes that have the columns of a block */
constexpr int    kGroups    = kWarpSize / kGroup;
constexpr int    kRowBlock  = 128;              /* threads of a block for rows of P */
constexpr size_t kWideBytes = (size_t)64 << 20; /* of the tables of rows that do not fit */

/* ------------------------------------- tentative prolongator ---------------------------------- */

/* The Gram matrix of each aggregate, and its factor. A warp takes an aggregate, a lane entries of the upper triangle. */
template <int K, int M>
__global__ void __launch_bounds__(kBlockSize)
  FactorGram(LocalInt aggregates, LocalInt known_k, LocalInt known_m, const LocalInt *start, const LocalInt *member,
             const double *B, double *B_c, CMATCHReport *report)
{
  constexpr int     kEach = 2; /* entries of a lane */
  __shared__ double gram[kBlockSize / kWarpSize][kCMATCHMostModes * kCMATCHMostModes];
  double *const     G = gram[threadIdx.x / kWarpSize];
  const LocalInt    k = K ? K : known_k, m = M ? M : known_m, c = (LocalInt)(GridThread() / kWarpSize);
  const int         lane = threadIdx.x % kWarpSize;
  int               p[kEach], q[kEach];
  double            sum[kEach] = {};
  if (c >= aggregates) return;
  for (int each = 0; each < kEach; each++) {
    int entry = lane + each * kWarpSize;
    p[each]   = 0;
    while (p[each] < m && entry >= m - p[each]) entry -= m - p[each]++;
    q[each] = p[each] + entry; /* p is m if there is no such entry */
  }
  for (LocalInt e = start[c]; e < start[c + 1]; e++)
    for (LocalInt r = 0; r < k; r++) {
      const double *const b = B + ((size_t)member[e] * k + r) * m;
#pragma unroll
      for (int each = 0; each < kEach; each++)
        if (p[each] < m) sum[each] += b[p[each]] * b[q[each]];
    }
  for (int each = 0; each < kEach; each++)
    if (p[each] < m) G[p[each] * m + q[each]] = sum[each];
  __syncwarp();
  if (lane == 0) {
    const LocalInt dead = CMATCHGramFactor(m, G);
    if (dead) atomicAdd(&report->dead, dead);
  }
  __syncwarp();
  for (LocalInt e = lane; e < m * m; e += kWarpSize) B_c[(size_t)c * m * m + e] = G[e];
}

/* A thread takes a row of the modes. */
template <int K, int M>
__global__ void __launch_bounds__(kBlockSize) Tentative(LocalInt n, LocalInt known_k, LocalInt known_m, const LocalInt *aggregate,
                                                        const double *B, const double *B_c, double *Q)
{
  const LocalInt  k = K ? K : known_k, m = M ? M : known_m;
  const long long row = GridThread();
  double          b[M ? M : kCMATCHMostModes], q[M ? M : kCMATCHMostModes];
  if (row >= (long long)n * k) return;
  const LocalInt of = aggregate[row / k];
  if (of < 0) return;
  for (LocalInt c = 0; c < m; c++) b[c] = B[row * m + c];
  CMATCHTentativeRow(m, B_c + (size_t)of * m * m, b, q);
  for (LocalInt c = 0; c < m; c++) Q[row * m + c] = q[c];
}

/* ---------------------------------------- the prolongator ------------------------------------- */

struct Prolong {
  LocalInt        n, k, m;
  const LocalInt *A_i, *A_j, *aggregate;
  const double   *A, *Q, *inverse, *B_c;
  double          omega;
  bool            keep; /* the columns of P are there */
  LocalInt       *P_j;
  double         *P;      /* [n][kCMATCHSlots][k][m] before it is corrected */
  double         *defect; /* [n][k][m] what dropped blocks make of the modes */
  unsigned char  *cut;    /* [n] whether there are such */
  LocalInt       *wide;   /* [n] rows that did not fit */
};

/* Where a warp adds up a row of P: the places of its columns, with their blocks, and these places by ascending columns. */
struct RowTable {
  int       bits, stride; /* of blocks, such that they begin in different banks */
  double   *sum, *square;
  LocalInt *key, *order, *sorted;

  static __host__ __device__ int    Stride(LocalInt entries) { return entries | 1; }
  static __host__ __device__ size_t Bytes(int bits, LocalInt entries)
  {
    return ((Stride(entries) + 1) * sizeof(double) + 3 * sizeof(LocalInt)) << bits;
  }
  __device__ RowTable(char *memory, int bits_, LocalInt entries) : bits(bits_), stride(Stride(entries))
  {
    const size_t size = (size_t)1 << bits;
    sum               = (double *)memory;
    square            = sum + size * stride;
    key               = (LocalInt *)(square + size);
    order             = key + size;
    sorted            = order + size;
  }
  __device__ void Clear() const
  {
    const int size = 1 << bits;
    for (int at = threadIdx.x % kWarpSize; at < size; at += kWarpSize) key[at] = -1;
    for (int at = threadIdx.x % kWarpSize; at < size * stride; at += kWarpSize) sum[at] = 0;
    __syncwarp();
  }
  /* Lists the places in use by ascending columns, and returns how many there are. */
  __device__ int Sort() const
  {
    const int lane = threadIdx.x % kWarpSize, size = 1 << bits;
    int       count = 0;
    for (int first = 0; first < size; first += kWarpSize) {
      const bool     used   = first + lane < size && key[first + lane] >= 0;
      const unsigned ballot = __ballot_sync(kFullWarp, used);
      if (used) order[count + __popc(ballot & ((1u << lane) - 1u))] = first + lane;
      count += __popc(ballot);
    }
    __syncwarp();
    for (int t = lane; t < count; t += kWarpSize) {
      int before = 0;
      for (int other = 0; other < count; other++) before += key[order[other]] < key[order[t]];
      sorted[before] = order[t];
    }
    __syncwarp();
    return count;
  }
};

template <int K>
using RowList = TermList<K, 4 * kWarpSize, kWarpSize>;

/* Adds up row i of A Q, of whose columns the table may have its own one. False if the table is full. */
template <int K, int M>
__device__ __forceinline__ bool AddUpRow(const Prolong &p, LocalInt i, const RowTable &table, typename RowList<K>::Memory *memory)
{
  const LocalInt k = K ? K : p.k, m = M ? M : p.m, begin = p.A_i[i], end = p.A_i[i + 1];
  RowList<K>     list(memory, k);
  const auto     drain = [&] {
    list.Drain(
      TermBlocks<double>{p.A, k, k, 1, (unsigned)(k * k)}, TermBlocks<double>{p.Q, m, 1, m, (unsigned)(k * m)},
      [&](LocalInt place, TileSum *sum) { LoadTile(table.sum + (size_t)place * table.stride, k, m, sum); },
      [&](LocalInt place, const TileSum &sum) { StoreTile(sum, k, m, table.sum + (size_t)place * table.stride); });
  };
  for (LocalInt base = begin; base < end; base += kWarpSize) {
    const int      lane = threadIdx.x % kWarpSize;
    const LocalInt e = base + lane, j = e < end ? p.A_j[e] : -1, J = j >= 0 ? p.aggregate[j] : -1;
    int            place = J >= 0 ? CMATCHTakePlace(table.key, table.bits, J) : -1, count = 0, owner = -1, number = -1, at;
    unsigned       mine = 0; /* the lanes with blocks of A for the place of which the lane is the owner's */
    if (__any_sync(kFullWarp, J >= 0 && place < 0)) return false;
    for (unsigned left = __ballot_sync(kFullWarp, place >= 0); left; count++) {
      const int      of   = __shfl_sync(kFullWarp, place, __ffs(left) - 1);
      const unsigned some = __ballot_sync(kFullWarp, place == of);
      if (place == of) number = count;
      if (lane == count) owner = of;
      if (lane == count) mine = some;
      left &= ~some;
    }
    if (!count) continue;
    const int some = __ffs((int)__ballot_sync(kFullWarp, place >= 0)) - 1;                              /* a lane with a term */
    list.MakeRoom(count, owner, __popc(mine), true, base + some, __shfl_sync(kFullWarp, j, some), &at); /* for all of them */
    const int      of = max(number, 0), to = __shfl_sync(kFullWarp, at, of);
    const unsigned with = __shfl_sync(kFullWarp, mine, of);
    if (number >= 0) list.Put(to + __popc(with & ((1u << lane) - 1u)), e, j);
    drain(); /* whose owners may come again with the next blocks of A */
  }
  return true;
}

/* Makes Q - omega D^{-1} A Q of A Q in all columns. A group takes a column of blocks, a lane a column of each. */
template <int K, int M>
__device__ __forceinline__ void SmoothRow(const Prolong &p, LocalInt i, int count, const RowTable &table)
{
  const LocalInt      k = K ? K : p.k, m = M ? M : p.m, own = p.aggregate[i];
  const int           lane = threadIdx.x % kWarpSize, c = lane % kGroup;
  const double *const inverse = p.inverse + (size_t)i * k * k;
  for (int t = lane / kGroup; t < count && c < m; t += kGroups) {
    const int     place = table.sorted[t];
    double *const block = table.sum + (size_t)place * table.stride;
    double        from[K ? K : kCMATCHMostModes];
    for (LocalInt l = 0; l < k; l++) from[l] = block[l * m + c];
    for (LocalInt r = 0; r < k; r++) {
      double sum = 0;
      for (LocalInt l = 0; l < k; l++) sum += inverse[r * k + l] * from[l];
      block[r * m + c] = (table.key[place] == own ? p.Q[((size_t)i * k + r) * m + c] : 0) - p.omega * sum;
    }
  }
  __syncwarp();
}

/* Whether row i of P keeps column J: it has it, or this is its own, or one of the largest, of equal ones those that come first. */
__device__ __forceinline__ bool Keeps(const Prolong &p, LocalInt i, LocalInt J, int t, int count, const double *square)
{
  bool has    = false;
  int  larger = 0;
  if (p.keep) {
    for (int s = 0; s < kCMATCHSlots; s++) has = has || p.P_j[(size_t)i * kCMATCHSlots + s] == J;
    return has;
  }
  for (int other = 0; other < count; other++) larger += square[other] > square[t] || (square[other] == square[t] && other < t);
  return J == p.aggregate[i] || (square[t] > 0 && larger < kCMATCHSlots - 1);
}

/*
   Finds the columns that row i keeps, whose places are in table.order then, and the others, whose places are the first ones in
   table.sorted; both ascend. Returns how many are kept.
*/
__device__ __forceinline__ int Choose(const Prolong &p, LocalInt i, LocalInt entries, int count, const RowTable &table)
{
  const int lane = threadIdx.x % kWarpSize;
  int       kept = 0;
  for (int t = lane; t < count && !p.keep; t += kWarpSize) {
    const LocalInt place = table.sorted[t];
    table.square[t] = table.key[place] == p.aggregate[i] ? -1 : CMATCHSquare(entries, table.sum + (size_t)place * table.stride);
  }
  for (int first = 0; first < count; first += kWarpSize) {
    const int t = first + lane, place = t < count ? table.sorted[t] : 0;
    __syncwarp(); /* the squares are there, and the place has been read */
    const bool     keeps  = t < count && Keeps(p, i, table.key[place], t, count, table.square);
    const unsigned some   = __ballot_sync(kFullWarp, keeps);
    const int      before = __popc(some & ((1u << lane) - 1u));
    if (keeps) table.order[kept + before] = place;
    else if (t < count) table.sorted[t - kept - before] = place;
    kept += __popc(some);
  }
  __syncwarp();
  return kept;
}

/* What the dropped blocks, of so many, make of the modes. A lane has some rows and a column. */
template <int K, int M>
__device__ __forceinline__ void FindDefect(const Prolong &p, LocalInt i, int dropped, const RowTable &table)
{
  const LocalInt k = K ? K : p.k, m = M ? M : p.m;
  const int      lane = threadIdx.x % kWarpSize, c = lane % kGroup;
  for (LocalInt r = lane / kGroup; r < k && c < m; r += kGroups) {
    double sum = 0;
    for (int t = 0; t < dropped; t++) {
      const LocalInt      place = table.sorted[t];
      const double *const P     = table.sum + (size_t)place * table.stride + r * m, *const b =
                                                                                  p.B_c + (size_t)table.key[place] * m * m + c;
      for (LocalInt l = 0; l < m; l++) sum += P[l] * b[l * m];
    }
    p.defect[((size_t)i * k + r) * m + c] = sum;
  }
}

/* Row i of P, before it is corrected. False if the table is full. */
template <int K, int M>
__device__ __forceinline__ bool MakeRow(const Prolong &p, LocalInt i, const RowTable &table, typename RowList<K>::Memory *list)
{
  const LocalInt k = K ? K : p.k, m = M ? M : p.m, own = p.aggregate[i], entries = k * m;
  const int      lane = threadIdx.x % kWarpSize;
  if (own < 0) {
    if (lane == 0) p.cut[i] = 0;
    return true;
  }
  table.Clear();
  CMATCHTakePlace(table.key, table.bits, own);
  if (!AddUpRow<K, M>(p, i, table, list)) return false;
  const int count = table.Sort();
  SmoothRow<K, M>(p, i, count, table);
  const int kept = Choose(p, i, entries, count, table);
  if (!p.keep && lane < kCMATCHSlots) p.P_j[(size_t)i * kCMATCHSlots + lane] = lane < kept ? table.key[table.order[lane]] : -1;
  for (int s = 0; s < kept; s++)
    for (LocalInt e = lane; e < entries; e += kWarpSize)
      p.P[((size_t)i * kCMATCHSlots + s) * entries + e] = table.sum[(size_t)table.order[s] * table.stride + e];
  if (lane == 0) p.cut[i] = count > kept;
  if (count > kept) FindDefect<K, M>(p, i, count - kept, table);
  return true;
}

/*
   Rows of P before they are corrected, all of them with tables in shared memory, or those of a list with tables in global memory. A
   warp takes a row.
*/
template <int K, int M>
__global__ void __launch_bounds__(kRowBlock, K == 2 || K == 3 ? 6 : 0)
  MakeRows(Prolong p, LocalInt rows, const LocalInt *list, char *tables, int bits, CMATCHReport *report)
{
  __shared__ typename RowList<K>::Memory lists[kRowBlock / kWarpSize];
  extern __shared__ double               shared[];
  const LocalInt                         entries = K ? K * M : p.k * p.m, warp = (LocalInt)(GridThread() / kWarpSize);
  const LocalInt                         warps = (LocalInt)(gridDim.x * (kRowBlock / kWarpSize));
  const size_t                           bytes = RowTable::Bytes(bits, entries);
  const RowTable table(tables ? tables + warp * bytes : (char *)shared + threadIdx.x / kWarpSize * bytes, bits, entries);
  for (LocalInt at = warp; at < rows; at += warps) {
    const LocalInt i    = list ? list[at] : at;
    const bool     fits = MakeRow<K, M>(p, i, table, &lists[threadIdx.x / kWarpSize]);
    if (!fits && threadIdx.x % kWarpSize == 0) p.wide[atomicAdd(&report->wide, 1)] = i;
    __syncwarp();
  }
}

/* Solves for what the kept blocks of rows that were cut are to get. A thread takes a node. */
template <int K, int M>
__global__ void __launch_bounds__(kRowBlock) SolveCorrections(Prolong p, CMATCHReport *report)
{
  const LocalInt  k = K ? K : p.k, m = M ? M : p.m;
  const long long i   = GridThread();
  const bool      cut = i < p.n && p.cut[i];
  if (cut) {
    double W[kCMATCHMostModes * kCMATCHMostModes];
    for (LocalInt e = 0; e < m * m; e++) W[e] = 0;
    for (int s = 0; s < kCMATCHSlots; s++) {
      const LocalInt J = p.P_j[i * kCMATCHSlots + s];
      if (J < 0) break;
      const double *const b = p.B_c + (size_t)J * m * m;
      for (LocalInt l = 0; l < m; l++)
        for (LocalInt c = 0; c < m; c++)
          for (LocalInt q = c; q < m; q++) W[c * m + q] += b[l * m + c] * b[l * m + q];
    }
    CMATCHSolveCorrection(k, m, W, p.defect + (size_t)i * k * m);
  }
  const int count = __syncthreads_count(cut);
  if (count && threadIdx.x == 0) atomicAdd(&report->cut, count);
}

/* The values of P, corrected and rounded. A thread takes an entry. */
template <typename T, int K, int M>
__global__ void __launch_bounds__(kBlockSize) CorrectRows(Prolong p, T *P_a)
{
  const LocalInt  k = K ? K : p.k, m = M ? M : p.m, entries = k * m;
  const long long at = GridThread(), slot = at / entries;
  if (slot >= (long long)p.n * kCMATCHSlots) return;
  const LocalInt J = p.P_j[slot], entry = (LocalInt)(at % entries);
  double         value = 0;
  if (J >= 0) {
    const long long i = slot / kCMATCHSlots;
    value             = p.P[at];
    if (p.cut[i]) {
      const double *const defect = p.defect + (i * k + entry / m) * m, *const b = p.B_c + ((size_t)J * m + entry % m) * m;
      double sum = 0;
      for (LocalInt c = 0; c < m; c++) sum += defect[c] * b[c];
      value += sum;
    }
  }
  P_a[at] = (T)value;
}

/* -------------------------------------------- steps ------------------------------------------- */

template <int K, int M>
PetscErrorCode MakeAllRows(CMATCHSetup *s, const Prolong &p, LocalInt longest, LocalInt *wide)
{
  const LocalInt entries = p.k * p.m;
  const size_t   shared  = kRowBlock / kWarpSize * RowTable::Bytes(kTableBits, entries);
  const auto     mark    = s->arena.mark();

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(&s->report->wide, 0, sizeof(LocalInt), s->stream));
  PetscCallCUDA(cudaFuncSetAttribute(MakeRows<K, M>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
  MakeRows<K, M><<<BlocksFor((long long)p.n * kWarpSize, kRowBlock), kRowBlock, shared, s->stream>>>(p, p.n, nullptr, nullptr,
                                                                                                     kTableBits, s->report);
  FinePCCheckLaunch();
  PetscCall(CMATCHReadReport(s));
  *wide = s->seen.wide;
  if (*wide) {
    int bits = kTableBits + 1;
    while ((1 << bits) < 2 * longest) bits++;
    const size_t of_block = kRowBlock / kWarpSize * RowTable::Bytes(bits, entries);
    const int    blocks =
      (int)PetscMax(1, PetscMin((size_t)BlocksFor((long long)*wide * kWarpSize, kRowBlock), kWideBytes / of_block));
    char *tables = nullptr;
    PetscCall(s->arena.Take(blocks * of_block, &tables));
    MakeRows<K, M><<<blocks, kRowBlock, 0, s->stream>>>(p, *wide, p.wide, tables, bits, s->report);
    FinePCCheckLaunch();
  }
  s->arena.Release(mark);
  SolveCorrections<K, M><<<BlocksFor(p.n, kRowBlock), kRowBlock, 0, s->stream>>>(p, s->report);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The modes of the next level, and Q */
template <int K, int M>
PetscErrorCode MakeTentative(CMATCHNodesSetup *t, double *Q)
{
  CMATCHSetup            *s     = t->s;
  const CMATCHNodesLevel &L     = t->Level();
  const auto              mark  = s->arena.mark();
  LocalInt               *start = nullptr, *member = nullptr;

  PetscFunctionBegin;
  PetscCall(s->arena.Take((size_t)L.coarse + 1, &start));
  PetscCall(s->arena.Take(L.n, &member));
  PetscCall(CMATCHListByKeys(s, L.n, L.aggregate, L.coarse, start, member));
  FactorGram<K, M><<<BlocksFor((long long)L.coarse * kWarpSize), kBlockSize, 0, s->stream>>>(L.coarse, L.k, t->N->m, start, member,
                                                                                             t->B, L.B_c, s->report);
  Tentative<K, M><<<BlocksFor((long long)L.n * L.k), kBlockSize, 0, s->stream>>>(L.n, L.k, t->N->m, L.aggregate, t->B, L.B_c, Q);
  FinePCCheckLaunch();
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHNodesTentative(CMATCHNodesSetup *t, double *Q)
{
  CMATCHSetup            *s = t->s;
  const CMATCHNodesLevel &L = t->Level();

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(&s->report->dead, 0, sizeof(LocalInt), s->stream));
  if (!L.coarse) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHForSizes(L.k, t->N->m, [&](auto k, auto m) { return MakeTentative<k, m>(t, Q); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesMakeRows(CMATCHNodesSetup *t, const double *Q)
{
  CMATCHSetup      *s = t->s;
  CMATCHNodesLevel &L = t->Level();
  const LocalInt    k = L.k, m = t->N->m;
  const size_t      entries = (size_t)k * m, slots = (size_t)L.n * kCMATCHSlots;
  const auto        mark = s->arena.mark();
  Prolong p{L.n, k, m, L.A_i, L.A_j, L.aggregate, t->A, Q, t->inverse, L.B_c, kCMATCHNodesOmega / L.lambda, t->keep, L.P_j};

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(&s->report->cut, 0, sizeof(LocalInt), s->stream));
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(s->arena.Take(slots * entries, &p.P));
  PetscCall(s->arena.Take(L.n * entries, &p.defect));
  PetscCall(s->arena.Take(L.n, &p.cut));
  PetscCall(s->arena.Take(L.n, &p.wide));
  if (!t->keep) PetscCallCUDA(cudaMemsetAsync(L.P_j, 0xff, slots * sizeof(LocalInt), s->stream)); /* -1 */
  PetscCall(CMATCHForSizes(k, m, [&](auto of_k, auto of_m) {
    LocalInt wide = 0;
    PetscFunctionBegin;
    PetscCall((MakeAllRows<of_k, of_m>(s, p, s->H->device[t->level].longest, &wide)));
    if (!t->keep) L.wide = wide;
    PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      CorrectRows<T, of_k, of_m><<<BlocksFor((long long)(slots * entries)), kBlockSize, 0, s->stream>>>(p, (T *)L.P_a);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesRestriction(CMATCHNodesSetup *t, LocalInt rows)
{
  CMATCHSetup            *s     = t->s;
  const CMATCHNodesLevel &L     = t->Level();
  const LocalInt          slots = L.n * kCMATCHSlots;

  PetscFunctionBegin;
  if (!L.n) PetscCallCUDA(cudaMemsetAsync(L.R_i, 0, sizeof(LocalInt), s->stream));
  else if (!t->keep) PetscCall(CMATCHListByKeys(s, slots, L.P_j, rows, L.R_i, L.R_j));
  PetscCall(CMATCHReportNumber(s, L.R_i + rows, &s->report->P_nnz));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesProlong(CMATCHNodesSetup *t)
{
  CMATCHSetup            *s    = t->s;
  const CMATCHNodesLevel &L    = t->Level();
  const auto              mark = s->arena.mark();
  double                 *Q    = nullptr;

  PetscFunctionBegin;
  PetscCall(s->arena.Take((size_t)L.n * L.k * t->N->m, &Q));
  PetscCall(CMATCHNodesTentative(t, Q));
  PetscCall(CMATCHNodesMakeRows(t, Q));
  s->arena.Release(mark);
  PetscCall(CMATCHNodesRestriction(t, L.coarse));
  PetscFunctionReturn(PETSC_SUCCESS);
}
