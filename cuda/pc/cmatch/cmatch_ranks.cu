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
#include "search.cuh"

namespace
{

constexpr int kGroup = 8; /* lanes of a row */

/* What is reserved for a set-up on several ranks, which holds more at a time, as a multiple of that for one rank. */
constexpr double kMoreHeld = 1.75;

/* ---------------------------------------- finest level ---------------------------------------- */

__device__ double NearNull(const double *w, double zero, LocalInt i)
{
  return w ? NearNullEntry(w[i], zero) : 1.;
}

/* The bits of numbers that are not negative are in the order of the numbers. */
__global__ void __launch_bounds__(kBlockSize)
  FindLargestDiagonal(CSRView A, const double *w, double zero, unsigned long long *largest)
{
  const long long row  = GridThread();
  double          mine = 0;
  if (row < A.n)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      if (A.j[k] != row) continue;
      const double value = fabs(A.a[k] * NearNull(w, zero, (LocalInt)row) * NearNull(w, zero, (LocalInt)row));
      if (value > mine) mine = value;
    }
  mine = GroupMax<kWarpSize>(mine);
  if (threadIdx.x % kWarpSize == 0 && mine > 0) atomicMax(largest, (unsigned long long)__double_as_longlong(mine));
}

/* w without zeros; a thread takes an entry */
__global__ void __launch_bounds__(kBlockSize) CopyEntries(LocalInt n, double zero, const double *from, double *w)
{
  const long long i = GridThread();
  if (i < n) w[i] = NearNullEntry(from[i], zero);
}

/* Where the row's entries in columns of ghosts begin; a matrix without any may have no row starts on the GPU. */
__device__ __forceinline__ LocalInt OthersFrom(const CSRView &foreign, LocalInt row)
{
  return foreign.nnz ? foreign.i[row] : 0;
}

/* The first row that cannot be used. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize)
  CheckOwnRows(CSRView own, CSRView foreign, const double *w, double sign, CMATCHReport *report)
{
  const long long row = GridThread();
  if (row >= own.n) return;
  bool   finite = !w || isfinite(w[row]), stored = false;
  double diagonal = 0;
  for (LocalInt k = own.i[row]; k < own.i[row + 1]; k++) {
    finite = finite && isfinite(own.a[k]);
    if (own.j[k] != row) continue;
    stored   = true;
    diagonal = sign * own.a[k];
  }
  for (LocalInt k = OthersFrom(foreign, (LocalInt)row); k < OthersFrom(foreign, (LocalInt)row + 1); k++)
    finite = finite && isfinite(foreign.a[k]);
  const CMATCHFailure failure = !finite           ? CMATCH_NOT_FINITE
                                : !stored         ? CMATCH_DIAGONAL_MISSING
                                : !(diagonal > 0) ? CMATCH_DIAGONAL_NOT_POSITIVE
                                                  : CMATCH_OK;
  if (failure != CMATCH_OK) atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageCheck, (LocalInt)row, failure));
}

/* Where the finest level goes. */
template <typename T>
struct Finest {
  LocalInt *A_i, *A_j;
  T        *A_a;
  double   *rs, *diagonal;
  float    *matched_a, *matched_d; /* in single precision, or null */
};

/* The entries beside the diagonal, and the row sums, of scale W A W. A thread takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  CopyOwnRows(CSRView own, CSRView foreign, const double *w, double scale, Finest<T> to, CMATCHReport *report)
{
  const long long at = GridThread();
  if (at > own.n) return;
  const LocalInt row = (LocalInt)at;
  LocalInt       k   = own.i[row] - row + OthersFrom(foreign, row); /* every row before has its diagonal entry */
  to.A_i[row]        = k;
  if (row == own.n) return;
  double     sum    = 0;
  bool       finite = true;
  const auto scaled = [&](double a, LocalInt j) {
    const double value = a * scale;
    return w ? value * (w[row] * w[j]) : value;
  };
  const auto add = [&](LocalInt j, double value) {
    to.A_j[k] = j;
    to.A_a[k] = (T)value;
    if (to.matched_a) to.matched_a[k] = (float)value;
    finite = finite && isfinite((T)value);
    k++;
  };
  for (LocalInt e = own.i[row]; e < own.i[row + 1]; e++) {
    const LocalInt j     = own.j[e];
    const double   value = scaled(own.a[e], j);
    sum += value;
    if (j != row) add(j, value);
    else {
      to.diagonal[row] = value;
      if (to.matched_d) to.matched_d[row] = (float)value;
    }
  }
  for (LocalInt e = OthersFrom(foreign, row); e < OthersFrom(foreign, row + 1); e++) {
    const LocalInt j     = own.n + foreign.j[e];
    const double   value = scaled(foreign.a[e], j);
    sum += value;
    add(j, value);
  }
  to.rs[row] = sum;
  if (!finite) atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageStore, row, CMATCH_TOO_LARGE));
}

/* ------------------------------------------- numbers ------------------------------------------ */

/* The numbers on the next level of the columns of P, or of the products. */
struct NumberOf {
  LocalInt         coarse;
  GlobalInt        first;
  const GlobalInt *column; /* of those behind the own ones */

  __device__ __forceinline__ GlobalInt operator()(LocalInt c) const { return c < coarse ? first + c : column[c - coarse]; }
};

/* The numbers of columns, and -1 for none. */
__global__ void __launch_bounds__(kBlockSize) NumberColumns(long long count, const LocalInt *column, NumberOf number, GlobalInt *to)
{
  const long long k = GridThread();
  if (k < count) to[k] = column[k] < 0 ? -1 : number(column[k]);
}

/* Columns behind the own ones get other places. */
__global__ void __launch_bounds__(kBlockSize) MoveColumns(long long count, LocalInt coarse, const LocalInt *place, LocalInt *column)
{
  const long long k = GridThread();
  if (k < count && column[k] >= coarse) column[k] = place[column[k] - coarse];
}

/* Rows of so many words each, as a list has them. */
__global__ void __launch_bounds__(kBlockSize)
  PackWords(long long count, LocalInt words, const LocalInt *row, const unsigned *from, unsigned *to)
{
  const long long k = GridThread();
  if (k < count) to[k] = from[(long long)row[k / words] * words + k % words];
}

/* Row sums of the rows of P of ghosts. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) SumGhosts(LocalInt ghosts, LocalInt width, const T *P_a, double *sums)
{
  const long long g = GridThread();
  if (g >= ghosts) return;
  double sum = 0;
  for (LocalInt e = 0; e < width; e++) sum += (double)P_a[g * width + e];
  sums[g] = sum;
}

/* ---------------------------------- the operator of the matching ------------------------------ */

/* Row i itself */
struct RowItself {
  __device__ int  Count(LocalInt) const { return 1; }
  __device__ void Get(LocalInt i, int, LocalInt *k, double *value) const
  {
    *k     = i;
    *value = 1;
  }
};

/* Row k of the operator, whose columns of ghosts become those of their aggregates, or none */
struct PlacedEntries {
  CMATCHRows      M;
  const LocalInt *place; /* [M.foreign] */

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *length) const
  {
    *begin  = M.start[k];
    *length = M.Length(k);
  }
  __device__ void Get(LocalInt, LocalInt, LocalInt at, LocalInt *column, double *value) const
  {
    const LocalInt j = M.j[at];
    *column          = j < M.n ? j : place[j - M.n];
    *value           = (double)M.a[at];
  }
};

/* The diagonal of the rows, and 0 for foreign aggregates, which have no rows here. */
__global__ void __launch_bounds__(kBlockSize) CopyDiagonal(LocalInt n, LocalInt rows, const float *d, double *to)
{
  const long long i = GridThread();
  if (i < rows) to[i] = i < n ? (double)d[i] : 0.;
}

/* ------------------------------------- rows that travel --------------------------------------- */

/* The rows from `first` on, of which those from `rows` on are empty. */
struct SentRows {
  LocalInt        first, rows;
  const LocalInt *start, *length, *j;
  const double   *a, *rs, *size; /* size may be null */

  __device__ __forceinline__ LocalInt Length(LocalInt r) const { return first + r < rows ? length[first + r] : 0; }
};

/* The heads of rows that travel. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize) WriteHeads(SentRows sent, CMATCHRouteThere route, double *head)
{
  const long long q = GridThread();
  if (q >= route.rows) return;
  const LocalInt r          = route.row[q];
  head[q * kCMATCHHead]     = (double)sent.Length(r);
  head[q * kCMATCHHead + 1] = sent.rs[sent.first + r];
  head[q * kCMATCHHead + 2] = sent.size ? sent.size[sent.first + r] : 0.;
}

/* The lengths in heads as numbers, 0 behind them, and their sum. */
__global__ void __launch_bounds__(kBlockSize)
  ReadLengths(LocalInt rows, const double *head, LocalInt *length, unsigned long long *sum)
{
  const long long q = GridThread();
  if (q > rows) return;
  const LocalInt mine = q < rows ? (LocalInt)head[q * kCMATCHHead] : 0;
  length[q]           = mine;
  if (mine) atomicAdd(sum, (unsigned long long)mine);
}

/* Where the entries of each neighbour begin, and where the last ones end. */
__global__ void __launch_bounds__(kBlockSize) FindEnds(CMATCHRouteThere route, const LocalInt *at, unsigned long long *end)
{
  const long long k = GridThread();
  if (k <= route.neighbours) end[k] = (unsigned long long)at[route.begin[k]];
}

/* A group takes a row. */
__global__ void __launch_bounds__(kBlockSize)
  PackEntries(SentRows sent, CMATCHRouteThere route, const LocalInt *at, NumberOf number, GlobalInt *j, double *a)
{
  const long long q = GridThread() / kGroup;
  if (q >= route.rows) return;
  const LocalInt r = route.row[q], length = sent.Length(r), to = at[q];
  if (!length) return; /* it may be a row that has no place */
  const LocalInt from = sent.start[sent.first + r];
  for (LocalInt e = threadIdx.x % kGroup; e < length; e += kGroup) {
    j[to + e] = number(sent.j[from + e]);
    a[to + e] = sent.a[from + e];
  }
}

/* Where the entries of contributions begin among those that come, how many they are, and the other numbers of the heads. */
__global__ void __launch_bounds__(kBlockSize) PlaceRows(CMATCHRouteThere route, const double *head, const LocalInt *at,
                                                        LocalInt *start, LocalInt *length, double *sum, double *size)
{
  const long long q = GridThread();
  if (q >= route.rows) return;
  const LocalInt place = route.row[q];
  start[place]         = at[q];
  length[place]        = at[q + 1] - at[q];
  sum[place]           = head[q * kCMATCHHead + 1];
  size[place]          = head[q * kCMATCHHead + 2];
}

__global__ void __launch_bounds__(kBlockSize) CountUp(LocalInt count, LocalInt *number)
{
  const long long k = GridThread();
  if (k < count) number[k] = (LocalInt)k;
}

/* Contribution k is row order[k] of those that come. */
__global__ void __launch_bounds__(kBlockSize) PlaceContributions(LocalInt count, const LocalInt *order, LocalInt *place)
{
  const long long k = GridThread();
  if (k < count) place[order[k]] = (LocalInt)k;
}

/* Where the contributions to each of so many rows begin, from the rows of all contributions. */
__global__ void __launch_bounds__(kBlockSize) FindContributions(LocalInt rows, LocalInt count, const LocalInt *row, LocalInt *add_i)
{
  const long long c = GridThread();
  if (c <= rows) add_i[c] = LowerBound(row, (LocalInt)0, count, (LocalInt)c);
}

/* The entries of rows with gaps between them, which are added to those that are reported. */
__global__ void __launch_bounds__(kBlockSize) CountEntries(CMATCHRows rows, CMATCHReport *report)
{
  const long long    i     = GridThread();
  unsigned long long count = i < rows.n ? rows.Length((LocalInt)i) : 0;
  count                    = GroupSum<kWarpSize>(count);
  if (threadIdx.x % kWarpSize == 0 && count) atomicAdd(&report->entries, count);
}

/* ---------------------------------------- the next level -------------------------------------- */

/* Marks the columns behind the own ones that rows have. A group takes a row. */
__global__ void __launch_bounds__(kBlockSize)
  MarkBehind(LocalInt rows, const LocalInt *start, const LocalInt *length, const LocalInt *j, LocalInt coarse, LocalInt *used)
{
  const long long row = GridThread() / kGroup;
  if (row >= rows) return;
  for (LocalInt k = threadIdx.x % kGroup; k < length[row]; k += kGroup) {
    const LocalInt column = j[start[row] + k];
    if (column >= coarse) used[column - coarse] = 1;
  }
}

/* Puts a number into a list of numbers in any order, or with null counts it. */
__device__ void ListNumber(GlobalInt number, GlobalInt *list, CMATCHReport *report)
{
  const unsigned long long at = atomicAdd(&report->entries, 1ull);
  if (list) list[at] = number;
}

/* The numbers that are no own rows, unless they are unused or negative. Without `used` all of them are used. */
__global__ void __launch_bounds__(kBlockSize) ListOthers(LocalInt count, const GlobalInt *number, const LocalInt *used,
                                                         GlobalInt first, LocalInt rows, GlobalInt *list, CMATCHReport *report)
{
  const long long k = GridThread();
  if (k >= count || number[k] < 0 || (number[k] >= first && number[k] < first + rows) || (used && !used[k])) return;
  ListNumber(number[k], list, report);
}

/* The columns of numbers: own rows, then ghosts, -1 for others. */
__global__ void __launch_bounds__(kBlockSize) FindColumns(LocalInt count, const GlobalInt *number, GlobalInt first, LocalInt rows,
                                                          LocalInt ghosts, const GlobalInt *ghost, LocalInt *column)
{
  const long long k = GridThread();
  if (k >= count) return;
  const GlobalInt mine = number[k];
  if (mine >= first && mine < first + rows) {
    column[k] = (LocalInt)(mine - first);
    return;
  }
  const LocalInt at = LowerBound(ghost, (LocalInt)0, ghosts, mine);
  column[k]         = at < ghosts && ghost[at] == mine ? rows + at : -1;
}

/* Numbers without a column, which are not negative, get one behind so many others, in the order of this list of them. */
__global__ void __launch_bounds__(kBlockSize)
  FindMore(LocalInt count, const GlobalInt *number, LocalInt columns, LocalInt more, const GlobalInt *list, LocalInt *column)
{
  const long long k = GridThread();
  if (k < count && number[k] >= 0 && column[k] < 0) column[k] = columns + LowerBound(list, (LocalInt)0, more, number[k]);
}

/* Lists the numbers without a column. */
__global__ void __launch_bounds__(kBlockSize)
  ListMore(LocalInt count, const GlobalInt *number, const LocalInt *column, GlobalInt *list, CMATCHReport *report)
{
  const long long k = GridThread();
  if (k < count && number[k] >= 0 && column[k] < 0) ListNumber(number[k], list, report);
}

/* For row c the own row, if it is kept, and then the contributions */
struct MergedList {
  static constexpr bool kListsOneRow = true; /* but for rows to which other ranks contribute */

  LocalInt        mine;
  const LocalInt *add_i;

  __device__ int  Count(LocalInt c) const { return (c < mine) + add_i[c + 1] - add_i[c]; }
  __device__ void Get(LocalInt c, int t, LocalInt *k, double *value) const
  {
    const int own = c < mine;
    *k            = own && t == 0 ? c : mine + add_i[c] + t - own;
    *value        = 1;
  }
};

/* Row k of the own rows, or of what came behind them */
struct MergedEntries {
  LocalInt        mine, coarse;
  const LocalInt *start, *length, *j;
  const double   *a;
  const LocalInt *place;                    /* of the columns behind the own ones; those stay, where the rank keeps its rows */
  const LocalInt *came_start, *came_length; /* null if nothing came */
  const LocalInt *came_j;
  const double   *came_a;

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *count) const
  {
    if (k < mine) {
      *begin = start[k];
      *count = length[k];
    } else {
      *begin = came_start ? came_start[k - mine] : 0;
      *count = came_start ? came_length[k - mine] : 0;
    }
  }
  __device__ void Get(LocalInt k, LocalInt, LocalInt at, LocalInt *column, double *value) const
  {
    if (k < mine) {
      const LocalInt c = j[at];
      *column          = c < coarse ? c : place[c - coarse];
      *value           = a[at];
    } else {
      *column = came_j[at];
      *value  = came_a[at];
    }
  }
};

/* The row sums of merged rows, and 1 for those without entries; and their sizes. */
__global__ void __launch_bounds__(kBlockSize)
  MergeSums(LocalInt rows, LocalInt mine, const LocalInt *length, const double *own, const double *own_size, const LocalInt *add_i,
            const LocalInt *came_length, const double *came, const double *came_size, double *rs, double *size)
{
  const long long c = GridThread();
  if (c >= rows) return;
  double sum = 0, of_size = 0;
  bool   any = false;
  if (c < mine) {
    sum     = own[c];
    of_size = own_size[c];
    any     = length[c] > 0;
  }
  for (LocalInt k = add_i[c]; k < add_i[c + 1]; k++) {
    sum += came[k];
    of_size += came_size[k];
    any = any || came_length[k] > 0;
  }
  rs[c]   = any ? sum : 1.;
  size[c] = of_size;
}

/* The diagonal of merged rows of the matching's operator. */
__global__ void __launch_bounds__(kBlockSize)
  MergeDiagonal(LocalInt rows, LocalInt mine, const double *own, const LocalInt *add_i, const double *came, float *d)
{
  const long long c = GridThread();
  if (c >= rows) return;
  double sum = 0;
  if (c < mine) sum += own[c];
  if (came)
    for (LocalInt k = add_i[c]; k < add_i[c + 1]; k++) sum += came[k];
  d[c] = (float)sum;
}

/* ------------------------------------------ the border ---------------------------------------- */

/* Whether rows have columns of ghosts, which are their last ones. */
__global__ void __launch_bounds__(kBlockSize) FlagBorder(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, LocalInt *flag)
{
  const long long i = GridThread();
  if (i <= n) flag[i] = i < n && A_i[i + 1] > A_i[i] && A_j[A_i[i + 1] - 1] >= n;
}

__global__ void __launch_bounds__(kBlockSize) ListRows(LocalInt n, const LocalInt *before, LocalInt *inner, LocalInt *border)
{
  const long long i = GridThread();
  if (i >= n) return;
  if (before[i + 1] > before[i]) border[before[i]] = (LocalInt)i;
  else inner[i - before[i]] = (LocalInt)i;
}

/* ---------------------------------------- on the host ----------------------------------------- */

template <typename V>
PetscErrorCode Download(const V *from, std::vector<V> *to)
{
  PetscFunctionBegin;
  if (!to->empty()) PetscCall(ArrayCopy_CUDA(to->data(), from, to->size() * sizeof(V), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename V>
PetscErrorCode Upload(const std::vector<V> &from, V *to)
{
  PetscFunctionBegin;
  if (!from.empty()) PetscCall(ArrayCopy_CUDA(to, from.data(), from.size() * sizeof(V), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the steps ----------------------------------------- */

/* What came of rows that travel. */
struct CameRows {
  LocalInt   entries  = 0;
  double    *all_head = nullptr;
  double    *sum = nullptr, *size = nullptr; /* null if no rows come */
  LocalInt  *start = nullptr, *length = nullptr;
  GlobalInt *number = nullptr; /* columns */
  LocalInt  *j      = nullptr; /* the same, on the next level */
  double    *a      = nullptr;
};

class SetUp : public CMATCHRanksSetUp {
public:
  SetUp(CMATCHHierarchyCUDA *hierarchy) : H(hierarchy), s(hierarchy, &hierarchy->params, &stats), level_mark(s.arena.mark()) { }

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
    PetscCall(PetscGetCurrentCUDAStream(&s.stream));
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
    CMATCHTellFailure(&s);
    if (stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
    if (largest > 0 && std::isfinite(largest)) (void)std::frexp(largest, &exponent);
    H->scale       = std::ldexp(CMATCHSign(H->params), kCMATCHExponent - exponent);
    CMATCHLevel &L = H->level[0];
    if (!n) {
      PetscCallCUDA(cudaMemsetAsync(L.A_i, 0, sizeof(LocalInt), s.stream));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (Carries()) {
      PetscCall(s.arena.TakeBack((size_t)n + (copied ? L.nnz : 0), {}, level_mark, &matched_d));
      if (copied) matched_a = matched_d + n;
    }
    PetscCall(s.arena.Take(n, &diagonal));
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      using T = decltype(zero);
      PetscFunctionBegin;
      CopyOwnRows<T><<<BlocksFor((long long)n + 1), kBlockSize, 0, s.stream>>>(*own, *foreign, H->w, H->scale,
                                                                               Finest<T>{L.A_i, L.A_j, (T *)L.A_a, H->rs[0],
                                                                                         diagonal, matched_a, matched_d},
                                                                               s.report);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscCall(CMATCHCompleteLevel(&s, 0, diagonal, diagonal));
    PetscCall(CMATCHReadReport(&s));
    s.arena.Release(level_mark);
    if (Carries())
      s.rows = CMATCHRows{n, L.A_i, nullptr, L.A_j, copied ? matched_a : (const float *)L.A_a, matched_d, (size_t)L.nnz, L.ghosts};
    CMATCHTellFailure(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Find(LocalInt l, CMATCHTransfer how) override
  {
    PetscFunctionBegin;
    s.arena.Release(level_mark);
    H->several = l + 1;
    transfer   = how;
    PetscCall(CMATCHFindAggregates(&s, how, &H->level[l], &found));
    coarse  = found.coarse;
    left    = found.left;
    entries = 0;
    if (!found.rows.n) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCallCUDA(cudaMemsetAsync(&s.report->entries, 0, sizeof(s.report->entries), s.stream));
    CountEntries<<<BlocksFor(found.rows.n), kBlockSize, 0, s.stream>>>(found.rows, s.report);
    FinePCCheckLaunch();
    PetscCall(CMATCHReadReport(&s));
    entries = (PetscInt64)s.seen.entries + coarse;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Take(LocalInt l, GlobalInt first_coarse) override
  {
    CMATCHLevel &L = H->level[l];

    PetscFunctionBegin;
    if (!keep) {
      CMATCHAdopt(H->params, transfer, found, &L);
      L.first_coarse = first_coarse;
      L.foreign      = 0;
      if (found.rows.n) PetscCall(CMATCHKeepRows(&s, found.rows, level_mark));
      else if (Carries() && transfer != CMATCH_PASSED) s.rows.n = 0;
    }
    s.arena.Release(level_mark);
    if (L.transfer != CMATCH_PASSED) PetscCall(CMATCHMeasureFit(&s, l, false));
    if (keep) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(s.arena.Take((size_t)L.n + L.ghosts, &numbers));
    PetscCall(Number(L.n, L.aggregate, NumberOf{L.coarse, first_coarse, nullptr}, numbers));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode PackOwnRows(const CMATCHRoute &route, size_t bytes, const void *x, void **packed) override
  {
    const LocalInt words = (LocalInt)(bytes / sizeof(unsigned));
    const auto     count = (long long)route.Rows() * words;
    LocalInt      *row   = nullptr;

    PetscFunctionBegin;
    PetscCall(s.arena.Take(route.Rows(), &row));
    PetscCall(NeedOutbox(0, (size_t)count * sizeof(unsigned)));
    unsigned *const to = (unsigned *)H->outbox[0].data();
    *packed            = to;
    if (!count) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(Upload(std::vector<LocalInt>(route.row, route.row + route.Rows()), row));
    PackWords<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, words, row, (const unsigned *)x, to);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Prolong(LocalInt l) override
  {
    CMATCHLevel  &L  = H->level[l];
    CMATCHShared &of = H->shared[l];
    CMATCHCounted counted{};

    PetscFunctionBegin;
    if (!keep) PetscCall(NumberGhosts(&L, &of));
    PetscCall(CMATCHRanksProlong(&s, l, keep, of.met, &counted));
    p1 = counted.p1;
    if (!keep) PetscCall(NumberForeign(&L, &of, counted.count));
    PetscCall(CMATCHRanksRestriction(&s, l, keep, counted));
    if (keep) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(TakeColumns(of));
    PetscCall(s.arena.Take(((size_t)L.n + L.ghosts) * L.width, &P_j));
    PetscCall(Number((long long)L.n * L.width, L.P_j, NumberOf{L.coarse, L.first_coarse, column}, P_j));
    if (Carries()) PetscCall(PlaceM(L, of.met));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Multiply(LocalInt l, LocalInt mine) override
  {
    CMATCHLevel  &L  = H->level[l];
    CMATCHShared &of = H->shared[l];

    PetscFunctionBegin;
    L.mine = mine;
    if (!keep) {
      Layout layout;
      PetscCall(NumberOthers(&L, &of));
      layout.Place(&of.values, ((size_t)L.coarse + L.foreign) * FinePCPrecisionBytes(H->params.precision));
      H->memory.emplace_back(&H->meter);
      PetscCall(layout.Allocate(&H->memory.back()));
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
    for (CameRows &rows : came) rows = CameRows{};
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Connect(LocalInt l, LocalInt rows, const CMATCHRoute &to, const CMATCHRoute &from) override
  {
    CMATCHLevel  &L  = H->level[l];
    CMATCHShared &of = H->shared[l];
    Layout        layout;

    PetscFunctionBegin;
    L.contributions = from.Rows();
    of.rows         = rows;
    for (const auto &[route, there] : {std::pair(&to, &of.sent), std::pair(&from, &of.came)}) {
      there->neighbours = route->neighbours;
      there->rows       = route->Rows();
      layout.Place(&there->begin, (size_t)there->neighbours + 1);
      layout.Place(&there->row, there->rows);
    }
    layout.Place(&of.add_i, (size_t)rows + 1);
    layout.Place(&of.added, (size_t)L.contributions * FinePCPrecisionBytes(H->params.precision));
    H->memory.emplace_back(&H->meter);
    PetscCall(layout.Allocate(&H->memory.back()));
    for (const auto &[route, there] : {std::pair(&to, &of.sent), std::pair(&from, &of.came)}) {
      PetscCall(Upload(std::vector<LocalInt>(route->begin, route->begin + there->neighbours + 1), there->begin));
      PetscCall(Upload(std::vector<LocalInt>(route->row, route->row + there->rows), there->row));
    }
    PetscCall(NumberContributions(of));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode OpenRows(CMATCHTravel which, LocalInt l, std::vector<LocalInt> *entries) override
  {
    const CMATCHLevel  &L    = H->level[l];
    const CMATCHShared &of   = H->shared[l];
    const CMATCHMade   &from = which == CMATCH_MATCHING ? M : made;
    CameRows           &to   = came[which];
    LocalInt           *at   = nullptr, count;

    PetscFunctionBegin;
    const SentRows sent{L.mine,     which == CMATCH_MATCHING ? L.coarse : L.coarse + L.foreign,
                        from.start, from.length,
                        from.j,     from.a,
                        from.rs,    from.size};
    const NumberOf number{L.coarse, L.first_coarse, which == CMATCH_MATCHING ? met_column : column};
    travellers = CMATCHTravellers{};
    to         = CameRows{};
    PetscCall(NeedOutbox(0, (size_t)of.sent.rows * kCMATCHHead * sizeof(double)));
    PetscCall(s.arena.Take((size_t)of.came.rows * kCMATCHHead, &to.all_head));
    travellers.head     = (double *)H->outbox[0].data();
    travellers.all_head = to.all_head;
    if (of.sent.rows) {
      WriteHeads<<<BlocksFor(of.sent.rows), kBlockSize, 0, s.stream>>>(sent, of.sent, travellers.head);
      FinePCCheckLaunch();
    }
    PetscCall(OrderRows(of.sent, travellers.head, kCMATCHTooManyToSend, &at, &count, entries));
    PetscCall(NeedOutbox(1, count * (sizeof(double) + sizeof(GlobalInt))));
    travellers.a = (double *)H->outbox[1].data();
    travellers.j = (GlobalInt *)(travellers.a + count);
    if (count) {
      PackEntries<<<BlocksFor((long long)of.sent.rows * kGroup), kBlockSize, 0, s.stream>>>(sent, of.sent, at, number, travellers.j,
                                                                                            travellers.a);
      FinePCCheckLaunch();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode MakeRoom(CMATCHTravel which, LocalInt l, std::vector<LocalInt> *entries) override
  {
    const CMATCHShared &of = H->shared[l];
    CameRows           &to = came[which];
    LocalInt           *at = nullptr;

    PetscFunctionBegin;
    PetscCall(OrderRows(of.came, to.all_head, kCMATCHTooManyCome, &at, &to.entries, entries));
    PetscCall(s.arena.Take(of.came.rows, &to.start));
    PetscCall(s.arena.Take(of.came.rows, &to.length));
    PetscCall(s.arena.Take(of.came.rows, &to.sum));
    PetscCall(s.arena.Take(of.came.rows, &to.size));
    if (of.came.rows) {
      PlaceRows<<<BlocksFor(of.came.rows), kBlockSize, 0, s.stream>>>(of.came, to.all_head, at, to.start, to.length, to.sum,
                                                                      to.size);
      FinePCCheckLaunch();
    }
    PetscCall(s.arena.Take(to.entries, &to.number));
    PetscCall(s.arena.Take(to.entries, &to.j));
    PetscCall(s.arena.Take(to.entries, &to.a));
    travellers.all_j = to.number;
    travellers.all_a = to.a;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Next(LocalInt l, LocalInt rows, GlobalInt first, GlobalInt all) override
  {
    std::vector<GlobalInt> ghost  = keep ? H->shared[l + 1].ghost : std::vector<GlobalInt>();
    LocalInt              *place  = nullptr;
    GlobalInt             *ghosts = nullptr;

    PetscFunctionBegin;
    if (!keep) PetscCall(FindGhosts(l, rows, first, &ghost));
    PetscCall(s.arena.Take(ghost.size(), &ghosts));
    PetscCall(Upload(ghost, ghosts));
    PetscCall(PlaceColumns(H->shared[l].column.size(), column, rows, first, ghost.size(), ghosts, &place));
    for (CameRows &rows_of : came) PetscCall(FindCame(&rows_of, rows, first, (LocalInt)ghost.size(), ghosts));
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      PetscFunctionBegin;
      PetscCall(Merge<decltype(zero)>(l, rows, all, ghost, place));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    H->level[l + 1].first = first;
    if (!keep && Carries()) PetscCall(MergeM(l, rows, first, ghost, ghosts));
    s.arena.Release(level_mark);
    PetscCall(CMATCHReadReport(&s));
    CMATCHTellFailure(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode End(LocalInt l, bool alone, bool stitch) override
  {
    PetscFunctionBegin;
    if (alone) PetscCall(CMATCHDescend(&s, l, keep, stitch));
    else {
      PetscCall(CMATCHFactorSmoothers(&s, keep));
      if (!CMATCHHasFailed(&s)) PetscCall(CMATCHPrepareCycle(H, s.stream));
    }
    CMATCHTellFailure(&s);
    for (LocalInt level = 0; level < H->several && !keep; level++) PetscCall(CMATCHListBorder(&s, level));
    PetscCall(CMATCHTakeScaleWork(&s, &scale_work));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ScaleFactor(LocalInt l) override
  {
    PetscFunctionBegin;
    PetscCall(CMATCHScaleFactor(&s, l, scale_work));
    CMATCHTellFailure(&s);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Close(PetscBool work) override
  {
    PetscFunctionBegin;
    PetscCall(CMATCHReadReport(&s));
    CMATCHTellFit(&s);
    PetscCall(CMATCHClose(&s, work));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Spare(size_t bytes, int byte, void **memory) override
  {
    char *taken = nullptr;

    PetscFunctionBegin;
    s.arena.Release(level_mark);
    PetscCall(s.arena.Take(bytes, &taken));
    if (bytes) PetscCallCUDA(cudaMemsetAsync(taken, byte, bytes, s.stream));
    *memory = spare = taken;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /*
     Room in an outbox, whose contents are lost. A GPU-aware MPI lets the other process map the whole allocation that a message is
     part of, in a time that grows with its size, unless it has done so before. So what is sent lies in memory that is small and
     kept.
  */
  PetscErrorCode NeedOutbox(int which, size_t bytes)
  {
    PetscFunctionBegin;
    if (H->outbox[which].size() < bytes) PetscCall(H->outbox[which].Allocate(bytes));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Where the entries of rows with these heads begin, in the order of the route and behind the last row; how many there are, and
     how many of each neighbour.
  */
  PetscErrorCode OrderRows(const CMATCHRouteThere &route, const double *head, const char *too_many, LocalInt **at, LocalInt *count,
                           std::vector<LocalInt> *entries)
  {
    LocalInt                       *length = nullptr;
    unsigned long long             *end    = nullptr;
    std::vector<unsigned long long> ends((size_t)route.neighbours + 2); /* the last one is the sum of all, which may be too large */

    PetscFunctionBegin;
    entries->assign(route.neighbours, 0);
    PetscCall(s.arena.Take((size_t)route.rows + 1, &length));
    PetscCall(s.arena.Take((size_t)route.rows + 1, at));
    PetscCall(s.arena.Take(ends.size(), &end));
    PetscCallCUDA(cudaMemsetAsync(end, 0, ends.size() * sizeof(*end), s.stream));
    ReadLengths<<<BlocksFor((long long)route.rows + 1), kBlockSize, 0, s.stream>>>(route.rows, head, length, end + ends.size() - 1);
    FinePCCheckLaunch();
    PetscCall(s.cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, length, *at, route.rows + 1, s.stream);
    }));
    FindEnds<<<BlocksFor((long long)route.neighbours + 1), kBlockSize, 0, s.stream>>>(route, *at, end);
    FinePCCheckLaunch();
    PetscCall(Download(end, &ends));
    PetscCheck(ends.back() <= (unsigned long long)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", too_many);
    *count = (LocalInt)ends.back();
    for (LocalInt k = 0; k < route.neighbours; k++) (*entries)[k] = (LocalInt)(ends[k + 1] - ends[k]);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* With mis2 each level is coarsened by its own operator, not by one that is carried from level to level. */
  bool Carries() const { return H->params.coarsening == PC_CMATCH_MATCHING; }

  PetscErrorCode Number(long long count, const LocalInt *columns, const NumberOf &number, GlobalInt *to)
  {
    PetscFunctionBegin;
    if (!count) PetscFunctionReturn(PETSC_SUCCESS);
    ::NumberColumns<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, columns, number, to);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The numbers of columns behind the own ones. */
  PetscErrorCode TakeColumns(const CMATCHShared &of)
  {
    PetscFunctionBegin;
    PetscCall(s.arena.Take(of.column.size(), &column));
    PetscCall(Upload(of.column, column));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Begins a list that ListNumber() makes. */
  PetscErrorCode BeginList(size_t room, GlobalInt **list)
  {
    PetscFunctionBegin;
    PetscCall(s.arena.Take(room, list));
    PetscCallCUDA(cudaMemsetAsync(&s.report->entries, 0, sizeof(s.report->entries), s.stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Brings it into ascending order, without repetitions, also to the host. */
  PetscErrorCode EndList(GlobalInt *list, std::vector<GlobalInt> *on_host)
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

  /* The aggregates of ghosts become columns behind the own ones. */
  PetscErrorCode NumberGhosts(CMATCHLevel *L, CMATCHShared *of)
  {
    const GlobalInt *of_ghost = numbers + L->n;
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
    PetscCallCUDA(cudaMemcpyAsync(L->aggregate + L->n, ghost_place, (size_t)L->ghosts * sizeof(*ghost_place),
                                  cudaMemcpyDeviceToDevice, s.stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Foreign aggregates are those that are columns of P. They come before the others, which the rows of P have not kept. `count`
     becomes that of the columns in this order.
  */
  PetscErrorCode NumberForeign(CMATCHLevel *L, CMATCHShared *of, LocalInt *count)
  {
    std::vector<LocalInt> entries(of->met), kept, place(of->met);
    LocalInt             *places = nullptr, others;

    PetscFunctionBegin;
    of->column.clear();
    if (of->met) {
      PetscCall(Download(count + L->coarse, &entries));
      for (LocalInt c = 0; c < of->met; c++)
        if (entries[c]) {
          place[c] = L->coarse + (LocalInt)kept.size();
          kept.push_back(entries[c]);
          of->column.push_back(met[c]);
        }
      others = L->coarse + (LocalInt)kept.size();
      for (LocalInt c = 0; c < of->met; c++)
        if (!entries[c]) place[c] = others++;
      kept.push_back(0);
      PetscCall(Upload(kept, count + L->coarse));
      PetscCall(s.arena.Take(place.size(), &places));
      PetscCall(Upload(place, places));
      const long long all = (long long)L->n * L->width;
      MoveColumns<<<BlocksFor(all), kBlockSize, 0, s.stream>>>(all, L->coarse, places, L->P_j);
      FinePCCheckLaunch();
      MoveColumns<<<BlocksFor(L->ghosts), kBlockSize, 0, s.stream>>>(L->ghosts, L->coarse, places, L->aggregate + L->n);
      FinePCCheckLaunch();
    }
    L->foreign = (LocalInt)of->column.size();
    L->column  = of->column.data();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows of P of ghosts get columns; those that are neither own nor foreign aggregates come behind these. */
  PetscErrorCode NumberOthers(CMATCHLevel *L, CMATCHShared *of)
  {
    const size_t           own    = (size_t)L->n * L->width;
    const LocalInt         count  = L->ghosts * L->width;
    const GlobalInt       *number = P_j + own;
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

  /* Room in the arena for the entries of a product. */
  template <typename Made>
  PetscErrorCode TakeEntries(size_t entries, Made *more)
  {
    PetscFunctionBegin;
    PetscCall(s.arena.Take(entries, &more->j));
    PetscCall(s.arena.Take(entries, &more->a));
    more->room = entries;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows of M, with aggregates for columns of ghosts. Columns of ghosts that are left are no columns any more. */
  PetscErrorCode PlaceM(const CMATCHLevel &L, LocalInt met_count)
  {
    const LocalInt      rows = L.coarse + L.foreign;
    LocalInt            wide;
    ProductRows<double> out{};
    const auto          room = [&](size_t entries, auto *more) { return TakeEntries(entries, more); };

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
    PetscCall((Product<kGroup, 1, true, false, false>(&s, RowItself{}, PlacedEntries{s.rows, ghost_place}, L.coarse,
                                                      L.coarse + met_count, {false, 7}, &out, &wide, room)));
    M.start   = out.start;
    M.length  = out.length;
    M.j       = out.j;
    M.a       = out.a;
    M_entries = (size_t)s.seen.entries;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Where the contributions to each row begin, and the numbers of those that come, of which of.came.row has the rows until then. */
  PetscErrorCode NumberContributions(const CMATCHShared &of)
  {
    const LocalInt count = of.came.rows, rows = of.rows;
    LocalInt      *row = nullptr, *number = nullptr, *order = nullptr;
    int            bits = 1;

    PetscFunctionBegin;
    place.resize(count);
    if (count) {
      const int blocks = BlocksFor(count);
      while (bits < 31 && rows >> bits) bits++;
      PetscCall(s.arena.Take(count, &row));
      PetscCall(s.arena.Take(count, &number));
      PetscCall(s.arena.Take(count, &order));
      CountUp<<<blocks, kBlockSize, 0, s.stream>>>(count, number);
      FinePCCheckLaunch();
      /* which leaves those to the same row in the order of the neighbours */
      PetscCall(s.cub.Run([&](void *memory, size_t &bytes) {
        return cub::DeviceRadixSort::SortPairs(memory, bytes, of.came.row, row, number, order, count, 0, bits, s.stream);
      }));
      PlaceContributions<<<blocks, kBlockSize, 0, s.stream>>>(count, order, of.came.row);
      FinePCCheckLaunch();
    }
    FindContributions<<<BlocksFor((long long)rows + 1), kBlockSize, 0, s.stream>>>(rows, count, row, of.add_i);
    FinePCCheckLaunch();
    PetscCall(Download(of.came.row, &place));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The ghosts of the next level are the columns of its rows that other ranks have. */
  PetscErrorCode FindGhosts(LocalInt l, LocalInt rows, GlobalInt first, std::vector<GlobalInt> *ghost)
  {
    const CMATCHLevel &L         = H->level[l];
    const CameRows    &in        = came[CMATCH_PRODUCTS];
    const LocalInt     columns   = L.mine ? (LocalInt)H->shared[l].column.size() : 0;
    LocalInt          *used      = nullptr;
    GlobalInt         *list      = nullptr;
    size_t             room      = columns;
    const auto         list_came = [&]() {
      PetscFunctionBegin;
      ListOthers<<<BlocksFor(in.entries), kBlockSize, 0, s.stream>>>(in.entries, in.number, nullptr, first, rows, list, s.report);
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
      ListOthers<<<BlocksFor(columns), kBlockSize, 0, s.stream>>>(columns, column, used, first, rows, list, s.report);
      FinePCCheckLaunch();
    }
    if (room > (size_t)columns) PetscCall(list_came());
    PetscCall(EndList(list, ghost));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The columns on the next level of those with these numbers, which are behind the own ones; -1 for those that are none. */
  PetscErrorCode PlaceColumns(size_t count, const GlobalInt *number, LocalInt rows, GlobalInt first, size_t ghost_count,
                              const GlobalInt *ghosts, LocalInt **places)
  {
    PetscFunctionBegin;
    PetscCall(s.arena.Take(count, places));
    if (!count) PetscFunctionReturn(PETSC_SUCCESS);
    FindColumns<<<BlocksFor((long long)count), kBlockSize, 0, s.stream>>>((LocalInt)count, number, first, rows,
                                                                          (LocalInt)ghost_count, ghosts, *places);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The columns of what came. */
  PetscErrorCode FindCame(CameRows *rows_of, LocalInt rows, GlobalInt first, LocalInt count, const GlobalInt *ghosts)
  {
    PetscFunctionBegin;
    if (!rows_of->entries) PetscFunctionReturn(PETSC_SUCCESS);
    FindColumns<<<BlocksFor(rows_of->entries), kBlockSize, 0, s.stream>>>(rows_of->entries, rows_of->number, first, rows, count,
                                                                          ghosts, rows_of->j);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  MergedEntries Merged(const CMATCHLevel &L, const CMATCHMade &own, const LocalInt *place, const CameRows &in) const
  {
    return {L.mine, L.coarse, own.start, own.length, own.j, own.a, place, in.start, in.length, in.j, in.a};
  }

  /* Level l + 1, but for the operator of its matching. */
  template <typename T>
  PetscErrorCode Merge(LocalInt l, LocalInt rows, GlobalInt all, const std::vector<GlobalInt> &ghost, const LocalInt *place)
  {
    const CMATCHLevel &L     = H->level[l];
    const LocalInt    *add_i = H->shared[l].add_i;
    const CameRows    &in    = came[CMATCH_PRODUCTS];
    LocalInt           wide  = 0;
    double            *size  = nullptr;
    ProductRows<T>     out{};
    const auto         room = [&](size_t entries, auto *more) {
      PetscFunctionBegin;
      PetscCheck(entries <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
                         "A coarse operator has more entries than 32 bits can count: lower -pc_cmatch_prolongator_row");
      PetscCall(TakeEntries(entries, more));
      PetscFunctionReturn(PETSC_SUCCESS);
    };

    PetscFunctionBegin;
    out.fixed = keep;
    if (!rows) {
      if (!keep) {
        PetscCall(CMATCHCreateLevel(&s, 0, 0, &ghost));
        H->level[l + 1].all = all;
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
    PetscCall((Product<kWarpSize, 1, false, true, true>(&s, MergedList{L.mine, add_i}, Merged(L, made, place, in), rows,
                                                        rows + (LocalInt)ghost.size(), {false, 9}, &out, &wide, room)));
    if (!keep) {
      PetscCall(CMATCHCreateLevel(&s, rows, (LocalInt)s.seen.entries, &ghost));
      CMATCHLevel &C = H->level[l + 1];
      C.all          = all;
      PetscCall(s.cub.Run([&](void *memory, size_t &bytes) {
        return cub::DeviceScan::ExclusiveSum(memory, bytes, out.length, C.A_i, rows + 1, s.stream);
      }));
      PackRows<T><<<BlocksFor((long long)rows * kPackGroup), kBlockSize, 0, s.stream>>>(rows, out, C.A_i, C.A_j, (T *)C.A_a);
      FinePCCheckLaunch();
    }
    MergeSums<<<BlocksFor(rows), kBlockSize, 0, s.stream>>>(rows, L.mine, made.length, made.rs, made.size, add_i, in.length, in.sum,
                                                            in.size, H->rs[l + 1], size);
    FinePCCheckLaunch();
    PetscCall(CMATCHCompleteLevel(&s, l + 1, out.diagonal, size));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* M of the next level, from the own rows and those that have come. */
  PetscErrorCode MergeM(LocalInt l, LocalInt rows, GlobalInt first, const std::vector<GlobalInt> &ghost, const GlobalInt *ghosts)
  {
    const CMATCHLevel &L     = H->level[l];
    const LocalInt    *add_i = H->shared[l].add_i;
    const CameRows    &in    = came[CMATCH_MATCHING];
    LocalInt          *place = nullptr, wide = 0;
    float             *d = nullptr;
    ProductRows<float> out{};
    const auto         room = [&](size_t entries, auto *more) { return TakeEntries(entries, more); };

    PetscFunctionBegin;
    s.rows = CMATCHRows{};
    if (!rows) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(PlaceColumns(met.size(), met_column, rows, first, ghost.size(), ghosts, &place));
    PetscCall(s.arena.Take(rows, &out.start));
    PetscCall(s.arena.Take(rows, &out.length));
    PetscCall(s.arena.Take(rows, &out.wide));
    PetscCall(s.arena.Take(rows, &d));
    PetscCall(room(M_entries + in.entries, &out));
    PetscCall((Product<kGroup, 1, false, true, false>(&s, MergedList{L.mine, add_i}, Merged(L, M, place, in), rows,
                                                      rows + (LocalInt)ghost.size(), {false, 7}, &out, &wide, room)));
    const size_t entries = (size_t)s.seen.entries;
    MergeDiagonal<<<BlocksFor(rows), kBlockSize, 0, s.stream>>>(rows, L.mine, M.rs, add_i, in.sum, d);
    FinePCCheckLaunch();
    PetscCall(
      CMATCHKeepRows(&s, CMATCHRows{rows, out.start, out.length, out.j, out.a, d, entries, (LocalInt)ghost.size()}, level_mark));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHHierarchyCUDA *const H;
  CMATCHSetup                s;
  CMATCHArena::Mark          level_mark; /* what is taken behind it is of the level at hand */

  CMATCHTransfer         transfer = CMATCH_MATCHED; /* what Find() has found */
  CMATCHFound            found;
  std::vector<GlobalInt> met;                                     /* the numbers of the aggregates of ghosts, ascending */
  LocalInt              *ghost_place = nullptr;                   /* [ghosts] columns of their aggregates, in this order, or -1 */
  GlobalInt             *met_column = nullptr, *column = nullptr; /* numbers of columns behind the own ones, of M and of products */
  double                *p1 = nullptr;                            /* [n + ghosts] row sums of P */
  CMATCHMade             made, M;                                 /* products, and the rows of M */
  size_t                 made_entries = 0, M_entries = 0;
  CameRows               came[2]; /* by CMATCHTravel */
  CMATCHScaleWork        scale_work;
};

} // namespace

PetscErrorCode CMATCHListBorder(CMATCHSetup *s, LocalInt level)
{
  const CMATCHLevel &L      = s->H->level[level];
  CMATCHShared      &of     = s->H->shared[level];
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
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(found.Allocate(1));
  PetscCallCUDA(cudaMemsetAsync(found.data(), 0, found.bytes(), stream));
  FindLargestDiagonal<<<BlocksFor(A->n), kBlockSize, 0, stream>>>(*A, w, zero, found.data());
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(largest, found.data(), sizeof(*largest), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksCreate_CUDA(const CMATCHParams *params, PetscBool keep, CMATCHHierarchy **H, CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  PetscCall(CMATCHOpen(params, keep, H));
  *setup         = new SetUp((CMATCHHierarchyCUDA *)*H);
  (*setup)->keep = keep;
  PetscFunctionReturn(PETSC_SUCCESS);
}
