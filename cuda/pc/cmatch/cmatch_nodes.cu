/* CUDA twin of src/pc/cmatch/cmatch_nodes_host.cxx: the set-up as a whole, the finest level and its graph. */
#include <cmath>

#include "cmatch_fsai.cuh"
#include "cmatch_nodes_pattern.cuh"
#include "cmatch_nodes_rows.cuh"
#include "search.cuh"
#include "sparse/transfer.cuh"

namespace
{

constexpr int kModeShift = 36; /* where a failure has the mode, above the row */

/* The work memory that a set-up reserves, as a share of that for rows. Operators in double precision have memory of their own. */
constexpr double kWork = 0.4;

/* ------------------------------------------- checks ------------------------------------------- */

/*
   The first row without a positive diagonal entry, and the largest of these. FillFinest() finds entries that are not finite, which
   come first in a row. In most rows the diagonal entry is the one in the middle. A thread takes a row.
*/
__global__ void __launch_bounds__(kBlockSize) CheckDiagonals(CSRView A, double sign, CMATCHReport *report)
{
  const LocalInt row     = (LocalInt)GridThread();
  double         largest = 0;
  if (row < A.n) {
    const LocalInt begin = A.i[row], end = A.i[row + 1], middle = begin + (end - begin) / 2;
    LocalInt       e = middle;
    if (e >= end || A.j[e] != row) e = LowerBound(A.j, begin, end, row);
    const bool   stored = e < end && A.j[e] == row;
    const double a      = stored ? sign * A.a[e] : 0;
    if (a > 0 && isfinite(a)) largest = a;
    else {
      const CMATCHFailure failure = !stored       ? CMATCH_DIAGONAL_MISSING
                                    : isfinite(a) ? CMATCH_DIAGONAL_NOT_POSITIVE
                                                  : CMATCH_NOT_FINITE;
      atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageCheck, row, failure));
    }
  }
  largest = GroupMax<kWarpSize>(largest);
  if (threadIdx.x % kWarpSize == 0 && largest > 0) atomicMax(&report->largest, (unsigned long long)__double_as_longlong(largest));
}

/* The first row with an entry that is not finite in columns of ghosts. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize) CheckForeign(LocalInt n, CSRView A, CMATCHReport *report)
{
  const long long row    = GridThread();
  bool            finite = true;
  if (row >= n) return;
  for (LocalInt e = A.i[row]; e < A.i[row + 1]; e++) finite = finite && isfinite(A.a[e]);
  if (!finite) atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageCheck, (LocalInt)row, CMATCH_NOT_FINITE));
}

/* The largest magnitude of each mode, and the first entry that is not finite, by modes and then by rows. */
__global__ void __launch_bounds__(kBlockSize) CheckModes(LocalInt rows, LocalInt m, const double *B, CMATCHReport *report)
{
  double largest[kCMATCHMostModes] = {};
  for (long long row = GridThread(); row < rows; row += (long long)gridDim.x * kBlockSize) {
#pragma unroll
    for (int c = 0; c < kCMATCHMostModes; c++) {
      if (c >= m) continue;
      const double value = fabs(B[(size_t)row * m + c]);
      if (isfinite(value)) largest[c] = fmax(largest[c], value);
      else
        atomicMin(&report->failure,
                  CMATCHFailureKey(kCMATCHStageCoarse, (LocalInt)row, CMATCH_NOT_FINITE) | (unsigned long long)c << kModeShift);
    }
  }
#pragma unroll
  for (int c = 0; c < kCMATCHMostModes; c++) {
    const double most = GroupMax<kWarpSize>(largest[c]);
    if (threadIdx.x % kWarpSize == 0 && most > 0) atomicMax(&report->modes[c], (unsigned long long)__double_as_longlong(most));
  }
}

/* ---------------------------------------- finest level ---------------------------------------- */

/* The blocks in which the rows of a node have entries, and the diagonal one */
template <int K>
struct NodeColumns {
  CSRView         A, foreign;
  const LocalInt *columns; /* of those of ghosts */
  LocalInt        known_k;

  template <typename F>
  __device__ __forceinline__ void ForColumns(LocalInt i, F f) const
  {
    const LocalInt k = K ? K : known_k, end = A.i[(i + 1) * k];
    if (threadIdx.x % kWarpSize == 0) f(i);
    for (LocalInt e = A.i[i * k] + (LocalInt)(threadIdx.x % kWarpSize); e < end; e += kWarpSize) f(A.j[e] / k);
    if (!foreign.nnz) return;
    for (LocalInt e = foreign.i[i * k] + (LocalInt)(threadIdx.x % kWarpSize); e < foreign.i[(i + 1) * k]; e += kWarpSize)
      f(columns[foreign.j[e]] / k);
  }
};

/* A slice of the operator, from A in double precision from block `base` on. Threads of a block have its unknowns, step by step. */
template <typename T, int K>
__device__ __forceinline__ void FillSlice(const CMATCHSlices<T> &to, LocalInt slice, const LocalInt *A_j, const double *A,
                                          LocalInt base, LocalInt *slice_j)
{
  const LocalInt k = K ? K : to.k, unknowns = kCMATCHSlice * k, t = threadIdx.x % unknowns;
  const LocalInt i = slice * kCMATCHSlice + t / k, r = t % k, start = to.start[slice];
  T *const       value = (T *)to.a;
  if (i >= to.n || threadIdx.x >= blockDim.x / unknowns * unknowns) return;
  const LocalInt begin = to.A_i[i], count = to.A_i[i + 1] - begin;
  for (LocalInt e = threadIdx.x / unknowns; e < count; e += blockDim.x / unknowns) {
    if (r == 0) slice_j[(size_t)(start + e) * kCMATCHSlice + t / k] = A_j[begin + e];
    for (LocalInt c = 0; c < k; c++)
      value[((size_t)(start + e) * k + c) * unknowns + t] = (T)A[((size_t)(begin - base + e) * k + r) * k + c];
  }
}

/* Where the finest level goes */
struct Finest {
  LocalInt        k;
  const LocalInt *A_i, *A_j;
  double         *A, *diagonal;
  unsigned char  *alone;
};

/* A row of the finest level, and what a warp has found in it: rows of the node with entries of a kind */
struct FoundInNode {
  unsigned other = 0, large = 0, not_finite = 0; /* than the diagonal one, too large, not finite */
};

/* The values of the blocks of node i, scaled, which begin at block_of. The work of a warp. */
template <typename T, int K>
__device__ __forceinline__ FoundInNode FillNode(const CSRView &A, double scale, const Finest &to, LocalInt i, double *block_of)
{
  constexpr int  kAhead = 4;
  const LocalInt k      = K ? K : to.k;
  const int      lane   = threadIdx.x % kWarpSize;
  const LocalInt begin = to.A_i[i], blocks = to.A_i[i + 1] - begin, start = A.i[i * k + min(lane, (int)k)];
  const LocalInt first = __shfl_sync(kFullWarp, start, 0), end = __shfl_sync(kFullWarp, start, (int)k);
  FoundInNode    found;
  if (end - first != blocks * k * k) {
    for (LocalInt t = lane; t < blocks * k * k; t += kWarpSize) block_of[t] = 0;
    __syncwarp();
  }
  for (LocalInt from = first; from < end; from += kAhead * kWarpSize) {
    LocalInt column[kAhead];
    double   value[kAhead];
#pragma unroll
    for (int v = 0; v < kAhead; v++) {
      const LocalInt e = from + v * kWarpSize + lane;
      column[v]        = e < end ? A.j[e] : -1;
      value[v]         = e < end ? A.a[e] : 0;
    }
#pragma unroll
    for (int v = 0; v < kAhead; v++) {
      const LocalInt e = from + v * kWarpSize + lane;
      LocalInt       r = 0, row_start = first;
      for (LocalInt row = 1; row < k; row++) {
        const LocalInt other_start = __shfl_sync(kFullWarp, start, (int)row);
        if (e < other_start) continue;
        r         = row;
        row_start = other_start;
      }
      if (column[v] < 0) continue;
      const LocalInt j      = column[v] / k;
      const double   scaled = value[v] * scale;
      LocalInt       block  = min((e - row_start) / k, blocks - 1); /* of a row without gaps */
      if (to.A_j[begin + block] != j) block = CMATCHFindBlock(to.A_i, to.A_j, i, j) - begin;
      block_of[((size_t)block * k + r) * k + column[v] % k] = scaled;
      if (!isfinite((T)scaled)) (isfinite(value[v]) ? found.large : found.not_finite) |= 1u << r;
      if (column[v] == i * k + r) to.diagonal[column[v]] = fabs(scaled);
      else if (scaled != 0) found.other |= 1u << r;
    }
  }
  found.other      = __reduce_or_sync(kFullWarp, found.other);
  found.large      = __reduce_or_sync(kFullWarp, found.large);
  found.not_finite = __reduce_or_sync(kFullWarp, found.not_finite);
  return found;
}

/*
   The values of A, scaled, and which unknowns are alone; with `slice_j` its slices, too. T is the precision of the hierarchy. A
   block takes a slice, a warp a node, whose blocks are in shared memory where there is room, so that all memory is written in its
   order.
*/
template <typename T, int K>
__global__ void __launch_bounds__(kCMATCHSlice *kWarpSize)
  FillFinest(CSRView A, double scale, Finest to, bool in_shared, CMATCHSlices<T> slices, LocalInt *slice_j, CMATCHReport *report)
{
  extern __shared__ double of_slice[];
  const LocalInt           k = K ? K : to.k, n = A.n / k, slice = (LocalInt)blockIdx.x;
  const LocalInt           first = slice * kCMATCHSlice, last = min(first + kCMATCHSlice, n), i = first + threadIdx.x / kWarpSize;
  const LocalInt           base   = to.A_i[first];
  double *const            blocks = in_shared ? of_slice : to.A + (size_t)base * k * k;
  if (i < n) {
    const FoundInNode found = FillNode<T, K>(A, scale, to, i, blocks + (size_t)(to.A_i[i] - base) * k * k);
    if (threadIdx.x % kWarpSize == 0) {
      to.alone[i] = (unsigned char)(~found.other & ((1u << k) - 1));
      if (found.large)
        atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageStore, i * k + __ffs((int)found.large) - 1, CMATCH_TOO_LARGE));
      if (found.not_finite)
        atomicMin(&report->failure,
                  CMATCHFailureKey(kCMATCHStageCheck, i * k + __ffs((int)found.not_finite) - 1, CMATCH_NOT_FINITE));
    }
  }
  __syncthreads();
  if (in_shared)
    for (int t = threadIdx.x; t < (to.A_i[last] - base) * k * k; t += blockDim.x) to.A[(size_t)base * k * k + t] = of_slice[t];
  if (slice_j) FillSlice<T, K>(slices, slice, to.A_j, blocks, base, slice_j);
}

/* The same in columns of ghosts, when the others are there. A thread takes a node. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  FillForeign(LocalInt n, CSRView A, const LocalInt *columns, double scale, Finest to, CMATCHReport *report)
{
  const long long at    = GridThread();
  unsigned        other = 0;
  if (at >= n) return;
  const LocalInt i = (LocalInt)at, k = to.k;
  for (LocalInt r = 0; r < k; r++)
    for (LocalInt e = A.i[i * k + r]; e < A.i[i * k + r + 1]; e++) {
      const LocalInt column = columns[A.j[e]], block = CMATCHFindBlock(to.A_i, to.A_j, i, column / k);
      const double   value                           = A.a[e] * scale;
      to.A[((size_t)block * k + r) * k + column % k] = value;
      if (!isfinite((T)value)) atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageStore, i * k + r, CMATCH_TOO_LARGE));
      if (value != 0) other |= 1u << r;
    }
  to.alone[i] &= (unsigned char)~other;
}

/* Magnitudes of scaled diagonal entries. A thread takes an entry. */
__global__ void __launch_bounds__(kBlockSize) ScaleDiagonal(LocalInt count, const double *from, double scale, double *to)
{
  const long long at = GridThread();
  if (at < count) to[at] = fabs(from[at] * scale);
}

/* The diagonal entries of A. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize) TakeDiagonal(CSRView A, double *to)
{
  const long long row = GridThread();
  double          a   = 0;
  if (row >= A.n) return;
  for (LocalInt e = A.i[row]; e < A.i[row + 1]; e++)
    if (A.j[e] == row) a = A.a[e];
  to[row] = a;
}

/* The slices of a level, from its operator in double precision. A block takes a slice. */
template <typename T>
__global__ void __launch_bounds__(kCMATCHSliceThreads)
  FillSlices(CMATCHSlices<T> to, const LocalInt *A_j, const double *A, LocalInt *slice_j)
{
  FillSlice<T, 0>(to, (LocalInt)blockIdx.x, A_j, A, 0, slice_j);
}

/* Exponents by which modes are scaled */
struct Exponents {
  int of[kCMATCHMostModes];
};

__global__ void __launch_bounds__(kBlockSize)
  ScaleModes(long long entries, LocalInt m, const double *from, Exponents exponents, double *B)
{
  const long long at = GridThread();
  if (at < entries) B[at] = ldexp(from[at], -exponents.of[at % m]);
}

/* B of unknowns that are alone becomes 0. */
__global__ void __launch_bounds__(kBlockSize)
  MaskModes(LocalInt rows, LocalInt k, LocalInt m, const unsigned char *alone, double *B)
{
  const long long row = GridThread();
  if (row >= rows || !(alone[row / k] >> row % k & 1)) return;
  for (LocalInt c = 0; c < m; c++) B[(size_t)row * m + c] = 0;
}

/* Mode c of row-major modes. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize)
  PutMode(LocalInt rows, CMATCHModes modes, LocalInt c, const double *from, LocalInt unknown, double *B)
{
  const long long row = GridThread();
  if (row >= rows) return;
  const LocalInt of    = modes.row ? modes.row[row] : (LocalInt)row;
  B[row * modes.m + c] = of < 0 ? 0 : from ? from[of] : unknown < 0 || row % modes.k == unknown;
}

/* ------------------------------------------- graph -------------------------------------------- */

struct Graph {
  CMATCHNodesGraph kind;
  LocalInt         n, k, m;
  const LocalInt  *A_i, *A_j;
  const double    *A, *B, *diagonal;
  LocalInt        *start, *j;
  float           *a, *d;
};

/* The modes of a node, two of which are read at once where their number is known and even. */
template <int K, int M>
struct NodeModes {
  static constexpr bool kPairs = K && K * M % 2 == 0;

  double        known[kPairs ? K * M : 1];
  const double *from;

  __device__ __forceinline__ explicit NodeModes(const double *B) : from(B)
  {
    if constexpr (kPairs) {
#pragma unroll
      for (int t = 0; t < K * M / 2; t++) {
        const double2 pair = ((const double2 *)B)[t];
        known[2 * t]       = pair.x;
        known[2 * t + 1]   = pair.y;
      }
    }
  }
  __device__ __forceinline__ const double *Get() const { return kPairs ? known : from; }
};

/* The graph of the finest level. A warp takes a node. */
template <int K, int M>
__global__ void __launch_bounds__(kBlockSize) FindGraph(Graph g, CMATCHReport *report)
{
  const LocalInt i = (LocalInt)(GridThread() / kWarpSize), k = K ? K : g.k, m = M ? M : g.m;
  const int      lane  = threadIdx.x % kWarpSize;
  const LocalInt begin = i < g.n ? g.A_i[i] : 0, end = i < g.n ? g.A_i[i + 1] : 0;
  double         sum    = 0;
  bool           beside = false;
  for (LocalInt first = begin; first < end; first += kWarpSize) {
    const LocalInt e = first + lane, j = e < end ? g.A_j[e] : i;
    double         weight = 0;
    if (j != i) {
      const double *const a = g.A + (size_t)e * k * k, *const d_i = g.diagonal + (size_t)i * k,
                          *const d_j = g.diagonal + (size_t)j * k;
      if (g.kind == CMATCH_AXIAL)
        weight = CMATCHAxialWeight(k, m, a, g.B + (size_t)i * k * m, NodeModes<K, M>(g.B + (size_t)j * k * m).Get());
      else weight = g.kind == CMATCH_TRACE ? CMATCHTraceWeight(k, a) : CMATCHFrobeniusWeight(k, a, d_i, d_j);
      const LocalInt to = e - i - (j > i);
      g.j[to]           = j;
      g.a[to]           = -(float)weight;
      beside            = beside || ((float)weight != 0 && CMATCHNodesIsStiffer(k, d_i, d_j));
    }
    AddInOrder<kWarpSize>(weight > 0 ? weight : 0., &sum);
  }
  beside          = __any_sync(kFullWarp, beside) && lane == 0;
  const int count = __syncthreads_count(beside);
  if (threadIdx.x == 0 && count) atomicAdd(&report->beside, count);
  if (lane != 0 || i >= g.n) return;
  g.start[i] = begin - i;
  g.d[i]     = (float)sum;
  if (i + 1 == g.n) g.start[g.n] = end - g.n;
}

/* Counts the nodes of the finest level that are in no aggregate, although they are coupled. */
__global__ void __launch_bounds__(kBlockSize)
  CountCoupled(LocalInt n, unsigned all, const unsigned char *alone, const LocalInt *aggregate, CMATCHReport *report)
{
  const long long i     = GridThread();
  const int       count = __syncthreads_count(i < n && aggregate[i] < 0 && alone[i] != all);
  if (count && threadIdx.x == 0) atomicAdd(&report->coupled, count);
}

/* -------------------------------------------- steps ------------------------------------------- */

/* Checks the diagonal of A and finds its scale. */
PetscErrorCode CheckMatrix(CMATCHNodesSetup *t, const CMATCHNodesMatrix &A)
{
  CMATCHSetup   *s        = t->s;
  const LocalInt n        = A.own.n;
  double         largest  = A.largest;
  int            exponent = 0;

  PetscFunctionBegin;
  PetscCall(CMATCHBeginReport(s));
  if (n) {
    CheckDiagonals<<<BlocksFor(n), kBlockSize, 0, s->stream>>>(A.own, CMATCHSign(*s->params), s->report);
    if (A.foreign.nnz) CheckForeign<<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, A.foreign, s->report);
    FinePCCheckLaunch();
    PetscCall(CMATCHReadReport(s));
  }
  if (!A.ghost) memcpy(&largest, &s->seen.largest, sizeof(largest));
  if (largest > 0 && std::isfinite(largest)) std::frexp(largest, &exponent);
  s->H->scale = std::ldexp(CMATCHSign(*s->params), kCMATCHExponent - exponent);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The scales of modes, as CheckModes() has found them. */
Exponents ScalesOfModes(const CMATCHSetup &s, const CMATCHModes &modes)
{
  Exponents exponents;
  double    largest;

  for (LocalInt c = 0; c < modes.m; c++) {
    if (modes.largest) largest = modes.largest[c];
    else memcpy(&largest, &s.seen.modes[c], sizeof(largest));
    exponents.of[c] = 0;
    if (largest > 0) std::frexp(largest, &exponents.of[c]);
  }
  return exponents;
}

/* The pattern of the finest level */
PetscErrorCode CreateFinest(CMATCHNodesSetup *t, const CMATCHNodesMatrix &A, LocalInt k)
{
  CMATCHSetup   *s = t->s;
  const LocalInt n = A.own.n / k, ghosts = A.ghost ? (LocalInt)A.ghost->size() : 0;
  const double   mean  = ((double)A.own.nnz + A.foreign.nnz) / PetscMax(A.own.n, 1) / k;
  const auto     mark  = s->arena.mark();
  LocalInt      *start = nullptr, *width = nullptr;

  PetscFunctionBegin;
  if (!n) {
    PetscCall(CMATCHNodesCreateLevel(t, 0, k, 0, 0, A.ghost));
    PetscCall(CMATCHNodesFinishEmpty(t));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(s->arena.Take((size_t)n + 1, &start));
  PetscCall(s->arena.Take((size_t)CMATCHSliceCount(n) + 1, &width));
  PetscCall(CMATCHForUnknowns(k, [&](auto known) {
    const NodeColumns<known> columns{A.own, A.foreign, A.columns, k};
    PetscFunctionBegin;
    PetscCall(FindPattern(s, columns, n, n + ghosts, mean, start, width, [&](LocalInt blocks, LocalInt **j) {
      PetscFunctionBegin;
      PetscCall(CMATCHNodesCreateLevel(t, n, k, blocks, (LocalInt)s->seen.steps, A.ghost));
      *j = t->N->level[0].A_j;
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  t->N->level[0].wide     = s->seen.wide;
  s->H->device[0].longest = s->seen.longest;
  PetscCall(CMATCHNodesFinishPattern(t, start, width));
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The graph goes to the back of the arena. */
PetscErrorCode MakeGraph(CMATCHNodesSetup *t)
{
  CMATCHSetup            *s = t->s;
  const CMATCHNodesLevel &L = t->N->level[0];
  const size_t            n = L.n, edges = (size_t)L.blocks - n;
  LocalInt               *at = nullptr;

  PetscFunctionBegin;
  PetscCall(s->arena.TakeBack(2 * n + 1 + 2 * edges, {}, s->arena.mark(), &at));
  const Graph g{t->N->graph,
                L.n,
                L.k,
                t->N->m,
                L.A_i,
                L.A_j,
                t->A,
                t->B,
                t->diagonal,
                at,
                at + n + 1,
                (float *)(at + n + 1 + edges),
                (float *)(at + n + 1 + 2 * edges)};
  PetscCall(CMATCHForSizes(L.k, t->N->m, [&](auto k, auto m) {
    PetscFunctionBegin;
    FindGraph<k, m><<<BlocksFor((long long)g.n * kWarpSize), kBlockSize, 0, s->stream>>>(g, s->report);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  s->rows = CMATCHRows{g.n, g.start, nullptr, g.j, g.a, g.d, edges, s->H->level[0].ghosts};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The values of the finest level, and its slices unless there are ghosts */
PetscErrorCode Fill(CMATCHNodesSetup *t, const CMATCHNodesMatrix &A)
{
  constexpr size_t        kMostShared = 48 << 10; /* bytes that a block has without asking for more */
  CMATCHSetup            *s           = t->s;
  const CMATCHNodesLevel &L           = t->N->level[0];
  const size_t            of_slice    = sizeof(double) * kCMATCHSlice * L.k * L.k * s->H->device[0].longest;
  const bool              in_shared   = of_slice <= kMostShared;

  PetscFunctionBegin;
  PetscCall(CMATCHForUnknowns(L.k, [&](auto k) {
    PetscFunctionBegin;
    PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
      using T = decltype(zero);
      const Finest to{L.k, L.A_i, L.A_j, t->A, t->diagonal, t->alone};
      PetscFunctionBegin;
      t->sliced = !A.ghost;
      FillFinest<T, k>
        <<<CMATCHSliceCount(L.n), kCMATCHSlice * kWarpSize, in_shared ? of_slice : 0, s->stream>>>(A.own, s->H->scale, to,
                                                                                                   in_shared, CMATCHSlices<T>(L),
                                                                                                   t->sliced ? L.slice_j : nullptr,
                                                                                                   s->report);
      if (A.foreign.nnz)
        FillForeign<T><<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(L.n, A.foreign, A.columns, s->H->scale, to, s->report);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Finds the aggregates of the level, and whether the coarsening ends here. */
PetscErrorCode Aggregate(CMATCHNodesSetup *t, bool *end)
{
  CMATCHSetup        *s      = t->s;
  const CMATCHParams &params = *s->params;
  CMATCHNodesLevel   &L      = t->Level();
  const LocalInt      m      = t->N->m;
  const auto          mark   = s->arena.mark();
  const CMATCHRows    graph  = s->rows;
  CMATCHFound         found;

  PetscFunctionBegin;
  *end = CMATCHNodesEnd(params, t->level, L.n, L.k, &t->N->end);
  if (*end) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHNodesFindAggregates(t, (PetscReal)m, &found));
  if (!t->level && t->work) PetscCall(CMATCHNodesMeasureFit(s, graph, L.aggregate));
  if (found.rows.n) PetscCall(CMATCHKeepRows(s, found.rows, mark));
  s->arena.Release(mark);
  L.left = found.left;
  *end   = CMATCHNodesStalled(L.n, L.k, found.left, found.coarse, m, &t->N->end);
  if (*end) PetscFunctionReturn(PETSC_SUCCESS);
  L.coarse  = found.coarse;
  L.joined  = found.joined;
  L.largest = found.largest;
  L.least   = found.least;
  t->s->H->memory.emplace_back(&t->s->H->meter);
  Layout layout;
  layout.Place(&L.B_c, (size_t)L.coarse * m * m);
  PetscCall(layout.Allocate(&s->H->memory.back()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Compute(CMATCHNodesSetup *t, const CSRView &A, const CMATCHModes &modes)
{
  CMATCHSetup *s = t->s;

  PetscFunctionBegin;
  PetscCall(CMATCHNodesMakeFinest(t, {A}, modes));
  if (!CMATCHHasFailed(s)) {
    PetscCall(CMATCHNodesCountFit(t));
    PetscCall(CMATCHNodesMakeLevels(t));
    t->N->coupled = s->seen.coupled;
    t->N->fit     = s->H->levels > 1 ? s->seen.fit[0] : CMATCHFit{};
    if (!t->keep) t->N->first_fit = t->N->fit;
  }
  CMATCHRecordFailure(s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What is counted of a hierarchy. */
void Count(CMATCHHierarchyCUDA *H)
{
  const CMATCHNodes    *N     = H->nodes;
  const size_t          value = FinePCPrecisionBytes(H->params.precision), index = sizeof(LocalInt);
  const PolynomialSteps steps = CMATCHNodesSteps(H->params);

  H->bytes       = H->meter.now;
  H->apply_bytes = (size_t)2 * H->level[0].n * sizeof(PetscScalar) + H->inverse.bytes();
  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHNodesLevel &L = N->level[l];
    const size_t            n = (size_t)L.n * L.k, block = (size_t)L.k * L.k * value;
    const size_t            factor = CMATCHFactorBytes(H->level[l], H->params.precision);
    const size_t            step =
      (L.n + 1) * index + L.blocks * (index + block) + 4 * n * value + (factor ? factor + 2 * n * value : L.n * block);
    H->bytes += factor;
    if (l < H->several || l + 1 < H->levels)
      H->apply_bytes += 2 * steps.degree * step + 2 * (size_t)L.n * kCMATCHSlots * (index + L.k * N->level[l + 1].k * value) +
                        (L.coarse + 1 + L.P_blocks) * index + (3 * n + (size_t)2 * L.coarse * N->level[l + 1].k) * value;
    else if (!H->inverted) H->apply_bytes += kCMATCHStalledDegree * step;
  }
}

} // namespace

PetscErrorCode CMATCHNodesMakeFinest(CMATCHNodesSetup *t, const CMATCHNodesMatrix &A, const CMATCHModes &modes)
{
  CMATCHSetup   *s = t->s;
  const LocalInt n = A.own.n;

  PetscFunctionBegin;
  t->N->coupled = 0;
  PetscCall(CheckMatrix(t, A));
  t->N->level[0].k = modes.k;
  if (!t->keep) PetscCall(CreateFinest(t, A, modes.k));
  const LocalInt  with_ghosts = n + s->H->level[0].ghosts * modes.k;
  const long long entries     = (long long)with_ghosts * modes.m;
  PetscCall(CMATCHNodesTakeOperator(t, 0, &t->A, &t->alone, A.ghost ? &t->B : nullptr));
  PetscCall(s->arena.Take(with_ghosts, &t->diagonal));
  if (!A.ghost) PetscCall(s->arena.Take(entries, &t->B));
  s->rows = CMATCHRows{};
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Fill(t, A));
  if (with_ghosts > n) {
    ScaleDiagonal<<<BlocksFor(with_ghosts - n), kBlockSize, 0, s->stream>>>(with_ghosts - n, modes.diagonal + n, s->H->scale,
                                                                            t->diagonal + n);
    FinePCCheckLaunch();
  }
  PetscCall(CMATCHAwaitModes_CUDA(n, &modes, (double *)modes.B)); /* which had until now to arrive */
  CheckModes<<<PetscMin(BlocksFor(n), 4 * s->H->processors), kBlockSize, 0, s->stream>>>(n, modes.m, modes.B, s->report);
  FinePCCheckLaunch();
  PetscCall(CMATCHReadReport(s));
  if (CMATCHHasFailed(s)) PetscFunctionReturn(PETSC_SUCCESS);
  const Exponents exponents = ScalesOfModes(*s, modes);
  ScaleModes<<<BlocksFor(entries), kBlockSize, 0, s->stream>>>(entries, modes.m, modes.B, exponents, t->B);
  FinePCCheckLaunch();
  if (!t->keep || s->H->levels > 1 || s->H->several) PetscCall(MakeGraph(t));
  MaskModes<<<BlocksFor(n), kBlockSize, 0, s->stream>>>(n, modes.k, modes.m, t->alone, t->B);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesCountFit(CMATCHNodesSetup *t)
{
  CMATCHSetup            *s = t->s;
  const CMATCHNodesLevel &L = t->N->level[0];

  PetscFunctionBegin;
  if (!t->keep || !L.n || (!s->H->several && s->H->levels == 1) || s->H->level[0].transfer != CMATCH_MATCHED)
    PetscFunctionReturn(PETSC_SUCCESS);
  CountCoupled<<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(L.n, (1u << L.k) - 1, t->alone, L.aggregate, s->report);
  FinePCCheckLaunch();
  if (t->work) PetscCall(CMATCHNodesMeasureFit(s, s->rows, L.aggregate));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesMakeSlices(CMATCHNodesSetup *t)
{
  CMATCHSetup            *s = t->s;
  const CMATCHNodesLevel &L = t->Level();

  PetscFunctionBegin;
  if (!L.n || (!t->level && t->sliced)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    FillSlices<T>
      <<<CMATCHSliceCount(L.n), CMATCHSliceBlock(L, s->H->processors), 0, s->stream>>>(CMATCHSlices<T>(L), L.A_j, t->A, L.slice_j);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void CMATCHNodesTakeBeside(CMATCHNodesSetup *t)
{
  t->N->beside = t->s->seen.beside;
  t->N->jumps  = CMATCHNodesHasJumps(t->N->beside, t->N->level[0].n);
}

PetscErrorCode CMATCHNodesFindAggregates(CMATCHNodesSetup *t, PetscReal each, CMATCHFound *found)
{
  const CMATCHParams     &params = *t->s->params;
  const CMATCHNodesLevel &L      = t->Level();
  const LocalInt          kind   = t->Kind();
  const CMATCHSweeps      sweeps{CMATCHNodesSweeps(params, *t->N, kind),
                            CMATCHNodesStrength(params, kind),
                            false,
                            t->alone,
                            (1u << L.k) - 1,
                            each,
                            (PetscReal)CMATCHNodesCoarseSize(params)};

  PetscFunctionBegin;
  *found = CMATCHFound{};
  if (L.n) PetscCall(CMATCHMatchNodes(t->s, sweeps, L.n, L.aggregate, found));
  if (!t->level && L.n) CMATCHNodesTakeBeside(t);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesMakeLevels(CMATCHNodesSetup *t)
{
  CMATCHSetup         *s   = t->s;
  CMATCHHierarchyCUDA *H   = s->H;
  bool                 end = false;

  PetscFunctionBegin;
  while (true) {
    PetscCall(CMATCHNodesMakeSlices(t));
    if (t->keep) end = t->level + 1 == H->levels;
    else PetscCall(Aggregate(t, &end));
    if (end || CMATCHHasFailed(s)) break;
    PetscCall(CMATCHNodesSmoother(t, CMATCHNodesSteps(*s->params)));
    if (!CMATCHHasFailed(s)) PetscCall(CMATCHNodesFactor(t));
    if (!CMATCHHasFailed(s)) PetscCall(CMATCHNodesScaleFactor(t, nullptr, MPI_DATATYPE_NULL));
    if (CMATCHHasFailed(s)) break;
    PetscCall(CMATCHNodesProlong(t));
    PetscCall(CMATCHNodesGalerkin(t));
  }
  if (CMATCHHasFailed(s)) PetscFunctionReturn(PETSC_SUCCESS);
  t->Level().coarse = 0;
  t->Level().lambda = 0;
  H->inverted       = (PetscBool)(H->level[t->level].n <= kCMATCHLargestDense);
  if (H->inverted && t->Level().n) PetscCall(CMATCHInvertNodes(s, t->level, t->Level(), t->A, t->N->m, t->B));
  else {
    H->inverse.Free();
    if (!H->inverted) PetscCall(CMATCHNodesSmoother(t, PolynomialChebyshev(kCMATCHStalledDegree)));
  }
  if (!CMATCHHasFailed(s)) PetscCall(CMATCHPrepareCycle(H, s->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesClose(CMATCHNodesSetup *t, bool keep_work)
{
  CMATCHSetup         *s = t->s;
  CMATCHHierarchyCUDA *H = s->H;

  PetscFunctionBegin;
  s->stats->end = t->N->end;
  s->stats->work_bytes += H->work_meter.peak; /* to that of the factors */
  PetscCall(
    PetscInfo(nullptr, "The set-up used %g of the %g bytes that it reserved\n", (double)s->arena.used(), (double)H->work.bytes()));
  if (!keep_work) {
    H->work.Free();
    H->report.Free();
    for (Buffer<char> &work : H->nodes_work) work.Free();
    H->products.clear();
    PetscCall(CMATCHFreeFactorWork(H));
  }
  H->kept_bytes = H->work.bytes() + H->report.bytes() + H->nodes_work[0].bytes() + H->nodes_work[1].bytes();
  for (const SFSAIWork &level : H->factor_work) H->kept_bytes += level.bytes;
  for (const Buffer<LocalInt> &pattern : H->products) H->kept_bytes += pattern.bytes();
  if (!s->stats->failure) Count(H);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHPutMode_CUDA(LocalInt rows, const CMATCHModes *modes, LocalInt c, const PetscScalar *from, LocalInt unknown,
                                  double *B)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!rows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PutMode<<<BlocksFor(rows), kBlockSize, 0, stream>>>(rows, *modes, c, from, unknown, B);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHSendModes_CUDA(LocalInt rows, const CMATCHModes *modes, int count, const LocalInt mode[],
                                    const PetscScalar *const from[], double *B)
{
  CMATCHComingModes *const coming  = modes->coming;
  const size_t             of_mode = coming->rows * sizeof(PetscScalar);
  ArrayTask                task[kCMATCHMostModes];
  cudaStream_t             stream;
  bool                     begun;

  PetscFunctionBegin;
  if (!rows || !count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(ArrayCreate_CUDA(count * of_mode, (void **)&coming->arrived));
  coming->count = count;
  for (int k = 0; k < count; k++) {
    coming->mode[k] = mode[k];
    task[k]         = {coming->arrived + (size_t)k * coming->rows, from[k], of_mode};
  }
  PetscErrorCode code = ArraysBegin(count, task, stream, &begun);
  if (!code && begun) PetscFunctionReturn(PETSC_SUCCESS);
  if (!code) code = ArraysCopy_CUDA(count, task, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST);
  if (code) PetscCall(ArrayDestroy_CUDA((void **)&coming->arrived));
  PetscCall(code);
  PetscCall(CMATCHAwaitModes_CUDA(rows, modes, B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHAwaitModes_CUDA(LocalInt rows, const CMATCHModes *modes, double *B)
{
  CMATCHComingModes *const coming = modes->coming;
  cudaStream_t             stream;

  PetscFunctionBegin;
  if (!coming || !coming->arrived) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscErrorCode code = ArraysAwait(stream);
  for (int k = 0; !code && k < coming->count; k++)
    code = CMATCHPutMode_CUDA(rows, modes, coming->mode[k], coming->arrived + (size_t)k * coming->rows, -1, B);
  PetscCall(ArrayDestroy_CUDA((void **)&coming->arrived));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHTakeModes_CUDA(const CSRView *A, LocalInt m, const double *B, double *diagonal, double largest[])
{
  Buffer<CMATCHReport> report;
  CMATCHReport         seen{};
  cudaStream_t         stream;
  int                  processors;

  PetscFunctionBegin;
  std::fill_n(largest, m, 0.);
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(ProcessorCount(&processors));
  PetscCall(report.Allocate(1));
  PetscCallCUDA(cudaMemsetAsync(report.data(), 0, report.bytes(), stream));
  TakeDiagonal<<<BlocksFor(A->n), kBlockSize, 0, stream>>>(*A, diagonal);
  CheckModes<<<PetscMin(BlocksFor(A->n), 4 * processors), kBlockSize, 0, stream>>>(A->n, m, B, report.data());
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(&seen, report.data(), sizeof(seen), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  for (LocalInt c = 0; c < m; c++) memcpy(&largest[c], &seen.modes[c], sizeof(largest[c]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesOpen(const CMATCHParams *params, const CMATCHModes &modes, PetscBool keep, CMATCHHierarchy **hierarchy)
{
  PetscFunctionBegin;
  PetscCall(CMATCHOpen(params, keep, hierarchy));
  CMATCHHierarchyCUDA *const H = (CMATCHHierarchyCUDA *)*hierarchy;
  if (!keep) {
    H->nodes_kept = std::make_shared<CMATCHNodes>();
    H->nodes      = H->nodes_kept.get();
  }
  H->nodes->m     = modes.m;
  H->nodes->graph = CMATCHNodesGraphOf(modes.k, modes.m, modes.row);
  H->row          = modes.row;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesCompute_CUDA(const CSRView *A, const CMATCHModes *modes, const CMATCHParams *params, PetscBool keep,
                                       PetscBool work, CMATCHHierarchy **hierarchy, CMATCHStats *stats)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  PetscCall(CMATCHNodesOpen(params, *modes, keep, hierarchy));
  CMATCHHierarchyCUDA *const H = (CMATCHHierarchyCUDA *)*hierarchy;
  CMATCHSetup                s(H, params, stats);
  CMATCHNodesSetup           t{&s, H->nodes, (bool)keep, (bool)work};
  PetscCall(DeviceGetStream(&s.stream));
  PetscCall(CMATCHOpenWork(&s, (size_t)(kWork * (double)A->nnz * (sizeof(LocalInt) + sizeof(PetscScalar)))));
  if (A->n) PetscCall(Compute(&t, *A, *modes));
  else if (!keep) {
    PetscCall(CMATCHNodesCreateLevel(&t, 0, modes->k, 0, 0));
    PetscCall(CMATCHNodesFinishEmpty(&t));
    H->inverted = PETSC_TRUE;
  }
  PetscCall(CMATCHNodesClose(&t, work));
  PetscFunctionReturn(PETSC_SUCCESS);
}
