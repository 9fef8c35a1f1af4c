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

/* ------------------------------- rows that go to other ranks ---------------------------------- */

/* The rows from `first` on, of which those from `rows` on are empty. */
struct SentRows {
  LocalInt        first, rows;
  const LocalInt *start, *length, *j;
  const double   *a, *rs, *size; /* size may be null */

  __device__ __forceinline__ LocalInt Length(LocalInt r) const { return first + r < rows ? length[first + r] : 0; }
};

/* What rows have beside their entries. A thread takes a row of the list. */
__global__ void __launch_bounds__(kBlockSize) WriteSums(SentRows sent, LocalInt count, const LocalInt *list, double *sums)
{
  const long long q = GridThread();
  if (q >= count) return;
  const LocalInt r             = list[q];
  sums[q * kCMATCHRowSums]     = (double)sent.Length(r);
  sums[q * kCMATCHRowSums + 1] = sent.rs[sent.first + r];
  sums[q * kCMATCHRowSums + 2] = sent.size ? sent.size[sent.first + r] : 0.;
}

/* The lengths of rows as numbers, 0 behind them, and their sum. */
__global__ void __launch_bounds__(kBlockSize)
  ReadLengths(LocalInt rows, const double *sums, LocalInt *length, unsigned long long *all)
{
  const long long q = GridThread();
  if (q > rows) return;
  const LocalInt mine = q < rows ? (LocalInt)sums[q * kCMATCHRowSums] : 0;
  length[q]           = mine;
  if (all && mine) atomicAdd(all, (unsigned long long)mine);
}

/* Where the entries of each neighbour begin, and where the last ones end. */
__global__ void __launch_bounds__(kBlockSize)
  FindEnds(LocalInt parts, const LocalInt *part, const LocalInt *at, unsigned long long *end)
{
  const long long k = GridThread();
  if (k <= parts) end[k] = (unsigned long long)at[part[k]];
}

/* A group takes a row of the list. */
__global__ void __launch_bounds__(kBlockSize)
  PackEntries(SentRows sent, LocalInt count, const LocalInt *list, const LocalInt *at, NumberOf number, GlobalInt *j, double *a)
{
  const long long q = GridThread() / kGroup;
  if (q >= count) return;
  const LocalInt r = list[q], length = sent.Length(r), to = at[q];
  if (!length) return; /* it may be a row that has no place */
  const LocalInt from = sent.start[sent.first + r];
  for (LocalInt e = threadIdx.x % kGroup; e < length; e += kGroup) {
    j[to + e] = number(sent.j[from + e]);
    a[to + e] = sent.a[from + e];
  }
}

/* Rows that have come. Row k is the contribution with this number. */
struct CameRows {
  LocalInt   entries = 0;
  double    *sums    = nullptr;              /* what has come beside the entries */
  double    *sum = nullptr, *size = nullptr; /* null if no rows come */
  LocalInt  *start = nullptr, *length = nullptr;
  GlobalInt *number = nullptr; /* columns */
  LocalInt  *j      = nullptr; /* the same, on the next level */
  double    *a      = nullptr;
};

/* Where the entries of contributions begin among those that come, how many they are, and their sums. */
__global__ void __launch_bounds__(kBlockSize) PlaceRows(LocalInt count, const LocalInt *place, const LocalInt *at, CameRows came)
{
  const long long q = GridThread();
  if (q >= count) return;
  const LocalInt k = place[q];
  came.start[k]    = at[q];
  came.length[k]   = at[q + 1] - at[q];
  came.sum[k]      = came.sums[q * kCMATCHRowSums + 1];
  came.size[k]     = came.sums[q * kCMATCHRowSums + 2];
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

class SetUp : public CMATCHRanksSetUp {
public:
  SetUp(CMATCHHierarchyCUDA *hierarchy, PetscBool kept, CMATCHStats *made) :
      H(hierarchy), keep(kept), stats(*made), s(hierarchy, &hierarchy->params, made), level_mark(s.arena.mark())
  {
  }

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

  PetscErrorCode Match(LocalInt l, CMATCHTransfer how, CMATCHMatch *match) override
  {
    PetscFunctionBegin;
    s.arena.Release(level_mark);
    H->several = l + 1;
    transfer   = how;
    PetscCall(CMATCHFindAggregates(&s, how, &H->level[l], &found));
    *match = {found.coarse, found.left, 0};
    if (!found.rows.n) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCallCUDA(cudaMemsetAsync(&s.report->entries, 0, sizeof(s.report->entries), s.stream));
    CountEntries<<<BlocksFor(found.rows.n), kBlockSize, 0, s.stream>>>(found.rows, s.report);
    FinePCCheckLaunch();
    PetscCall(CMATCHReadReport(&s));
    match->entries = (PetscInt64)s.seen.entries + found.coarse;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Number(LocalInt l, GlobalInt first_coarse, const std::vector<LocalInt> &send, CMATCHHalo *halo) override
  {
    CMATCHLevel &L    = H->level[l];
    LocalInt    *list = nullptr;

    PetscFunctionBegin;
    CMATCHAdopt(H->params, transfer, found, &L);
    L.first_coarse = first_coarse;
    L.foreign      = 0;
    if (found.rows.n) PetscCall(CMATCHKeepRows(&s, found.rows, level_mark));
    else if (Carries() && transfer != CMATCH_PASSED) s.rows.n = 0;
    s.arena.Release(level_mark);
    PetscCall(s.arena.Take((size_t)L.n + L.ghosts, &numbers));
    PetscCall(NumberColumns(L.n, L.aggregate, NumberOf{L.coarse, first_coarse, nullptr}, numbers));
    PetscCall(TakeList(send, &list));
    PetscCall(PackValues(0, send.size(), list, sizeof(*numbers), numbers, &halo->packed));
    halo->ghosts = numbers + L.n;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Prolong(LocalInt l, const std::vector<LocalInt> &send, CMATCHHalo *columns, CMATCHHalo *values) override
  {
    CMATCHLevel  &L   = H->level[l];
    CMATCHShared &of  = H->shared[l];
    const size_t  own = (size_t)L.n * L.width, value = FinePCPrecisionBytes(H->params.precision);
    LocalInt     *list = nullptr;
    CMATCHCounted counted{};

    PetscFunctionBegin;
    if (keep) s.arena.Release(level_mark);
    if (L.transfer != CMATCH_PASSED) PetscCall(CMATCHMeasureFit(&s, l, false));
    if (!keep) PetscCall(NumberGhosts(&L, &of));
    PetscCall(CMATCHRanksProlong(&s, l, keep, of.met, &counted));
    p1 = counted.p1;
    if (!keep) PetscCall(NumberForeign(&L, &of, counted.count));
    PetscCall(CMATCHRanksRestriction(&s, l, keep, counted));
    PetscCall(TakeList(send, &list));
    if (!keep) {
      PetscCall(TakeColumns(of));
      PetscCall(s.arena.Take(((size_t)L.n + L.ghosts) * L.width, &P_j));
      PetscCall(NumberColumns((long long)own, L.P_j, NumberOf{L.coarse, L.first_coarse, column}, P_j));
      if (Carries()) PetscCall(PlaceM(L, of.met));
      PetscCall(PackValues(0, send.size(), list, L.width * sizeof(*P_j), P_j, &columns->packed));
      columns->ghosts = P_j + own;
    }
    PetscCall(PackValues(1, send.size(), list, L.width * value, L.P_a, &values->packed));
    values->ghosts = (char *)L.P_a + own * value;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Multiply(LocalInt l, LocalInt mine, const CMATCHRowList &list, int kinds, CMATCHSentRows to[]) override
  {
    CMATCHLevel  &L  = H->level[l];
    CMATCHShared &of = H->shared[l];

    PetscFunctionBegin;
    L.mine = mine;
    if (!keep) {
      PetscCall(NumberOthers(&L, &of));
      PetscCall(TakeSendList(L, list, &of));
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
    const auto sent = [&](const CMATCHMade &rows, LocalInt count) {
      return SentRows{L.mine, count, rows.start, rows.length, rows.j, rows.a, rows.rs, rows.size};
    };
    PetscCall(SendRows(CMATCH_PRODUCTS, of, sent(made, L.coarse + L.foreign), NumberOf{L.coarse, L.first_coarse, column},
                       &to[CMATCH_PRODUCTS]));
    if (kinds > 1)
      PetscCall(
        SendRows(CMATCH_MATCHING, of, sent(M, L.coarse), NumberOf{L.coarse, L.first_coarse, met_column}, &to[CMATCH_MATCHING]));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode MakeRoom(LocalInt rows, int kinds, const LocalInt entries[], CMATCHRowData received[]) override
  {
    PetscFunctionBegin;
    for (int kind = 0; kind < kinds; kind++) {
      CameRows &to = came[kind];
      to.entries   = entries[kind];
      PetscCall(s.arena.Take((size_t)rows * kCMATCHRowSums, &to.sums));
      for (LocalInt **array : {&to.start, &to.length}) PetscCall(s.arena.Take(rows, array));
      for (double **array : {&to.sum, &to.size}) PetscCall(s.arena.Take(rows, array));
      PetscCall(s.arena.Take(to.entries, &to.number));
      PetscCall(s.arena.Take(to.entries, &to.j));
      PetscCall(s.arena.Take(to.entries, &to.a));
      received[kind] = {to.sums, to.number, to.a};
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Next(LocalInt l, const CMATCHOwnedRows &next, const CMATCHRowList &receive, std::vector<LocalInt> *place) override
  {
    std::vector<GlobalInt> ghost  = keep ? H->shared[l + 1].ghost : std::vector<GlobalInt>();
    LocalInt              *places = nullptr;
    GlobalInt             *ghosts = nullptr;

    PetscFunctionBegin;
    if (!keep) PetscCall(NumberContributions(next.rows, receive.rows, place, &H->level[l], &H->shared[l]));
    for (CameRows &rows : came) PetscCall(PlaceCame(H->level[l].contributions, H->shared[l].place, rows));
    if (!keep) PetscCall(FindGhosts(l, next, &ghost));
    PetscCall(s.arena.Take(ghost.size(), &ghosts));
    PetscCall(Upload(ghost, ghosts));
    PetscCall(PlaceColumns(H->shared[l].column.size(), column, next, ghost.size(), ghosts, &places));
    for (CameRows &rows : came)
      if (rows.entries) PetscCall(FindColumnsOf(rows.entries, rows.number, next, ghost.size(), ghosts, rows.j));
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      PetscFunctionBegin;
      PetscCall(Merge<decltype(zero)>(l, next, ghost, places));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    H->level[l + 1].first = next.first;
    if (!keep && Carries()) PetscCall(MergeM(l, next, ghost, ghosts));
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

  PetscErrorCode ScaleFactors() override
  {
    PetscFunctionBegin;
    for (LocalInt l = 0; l < H->several; l++)
      if (H->level[l].transfer != CMATCH_PASSED) PetscCall(CMATCHScaleFactor(&s, l, scale_work));
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

  /* A list of rows on the device. */
  PetscErrorCode TakeList(const std::vector<LocalInt> &rows, LocalInt **list)
  {
    PetscFunctionBegin;
    PetscCall(s.arena.Take(rows.size(), list));
    PetscCall(Upload(rows, *list));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Packs rows of so many bytes, as the list has them. */
  PetscErrorCode PackValues(int which, size_t rows, const LocalInt *list, size_t bytes, const void *from, void **packed)
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

  /* The list of rows that are sent, for this set-up and those that keep it, and room for values of the cycle. */
  PetscErrorCode TakeSendList(const CMATCHLevel &L, const CMATCHRowList &list, CMATCHShared *of)
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
    layout.Place(&of->values, ((size_t)L.coarse + L.foreign) * FinePCPrecisionBytes(H->params.precision));
    H->memory.emplace_back(&H->meter);
    PetscCall(layout.Allocate(&H->memory.back()));
    PetscCall(Upload(begin, of->part));
    PetscCall(Upload(list.rows, of->send));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Where the entries of rows with these sums begin, and behind the last row; adds up all of them if asked to. */
  PetscErrorCode OrderRows(LocalInt rows, const double *sums, unsigned long long *all, LocalInt **at)
  {
    LocalInt *length = nullptr;

    PetscFunctionBegin;
    PetscCall(s.arena.Take((size_t)rows + 1, &length));
    PetscCall(s.arena.Take((size_t)rows + 1, at));
    ReadLengths<<<BlocksFor((long long)rows + 1), kBlockSize, 0, s.stream>>>(rows, sums, length, all);
    FinePCCheckLaunch();
    PetscCall(s.cub.Run(
      [&](void *memory, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, length, *at, rows + 1, s.stream); }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Packs the rows that are sent. */
  PetscErrorCode SendRows(CMATCHRowKind kind, const CMATCHShared &of, const SentRows &rows, const NumberOf &number,
                          CMATCHSentRows *to)
  {
    LocalInt                       *at  = nullptr;
    unsigned long long             *end = nullptr;
    std::vector<unsigned long long> ends((size_t)of.parts + 2); /* the last one is the sum of all, which may be too large */

    PetscFunctionBegin;
    PetscCall(NeedOutbox(2 * kind, (size_t)of.sent * kCMATCHRowSums * sizeof(double)));
    to->sums = (double *)H->outbox[2 * kind].data();
    if (of.sent) {
      WriteSums<<<BlocksFor(of.sent), kBlockSize, 0, s.stream>>>(rows, of.sent, of.send, to->sums);
      FinePCCheckLaunch();
    }
    PetscCall(s.arena.Take(ends.size(), &end));
    PetscCallCUDA(cudaMemsetAsync(end, 0, ends.size() * sizeof(*end), s.stream));
    PetscCall(OrderRows(of.sent, to->sums, end + ends.size() - 1, &at));
    FindEnds<<<BlocksFor((long long)of.parts + 1), kBlockSize, 0, s.stream>>>(of.parts, of.part, at, end);
    FinePCCheckLaunch();
    PetscCall(Download(end, &ends));
    PetscCheck(ends.back() <= (unsigned long long)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "%s", kCMATCHTooManyToSend);
    to->entries.clear();
    for (LocalInt k = 0; k < of.parts; k++) to->entries.push_back((LocalInt)(ends[k + 1] - ends[k]));
    PetscCall(NeedOutbox(2 * kind + 1, ends.back() * (sizeof(double) + sizeof(GlobalInt))));
    to->a = (double *)H->outbox[2 * kind + 1].data();
    to->j = (GlobalInt *)(to->a + ends.back());
    if (ends.back()) {
      PackEntries<<<BlocksFor((long long)of.sent * kGroup), kBlockSize, 0, s.stream>>>(rows, of.sent, of.send, at, number, to->j,
                                                                                       to->a);
      FinePCCheckLaunch();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Rows that have come become contributions with these numbers. */
  PetscErrorCode PlaceCame(LocalInt count, const LocalInt *place, const CameRows &rows)
  {
    LocalInt *at = nullptr;

    PetscFunctionBegin;
    if (!rows.sums || !count) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(OrderRows(count, rows.sums, nullptr, &at));
    PlaceRows<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, place, at, rows);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* With mis2 each level is coarsened by its own operator, not by one that is carried from level to level. */
  bool Carries() const { return H->params.coarsening == PC_CMATCH_MATCHING; }

  PetscErrorCode NumberColumns(long long count, const LocalInt *columns, const NumberOf &number, GlobalInt *to)
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

  /* The numbers of contributions, which come to these rows, and where those to each row begin. */
  PetscErrorCode NumberContributions(LocalInt rows, const std::vector<LocalInt> &to, std::vector<LocalInt> *place, CMATCHLevel *L,
                                     CMATCHShared *of)
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
    layout.Place(&of->added, (size_t)count * FinePCPrecisionBytes(H->params.precision));
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

  /* The ghosts of the next level are the columns of its rows that other ranks have. */
  PetscErrorCode FindGhosts(LocalInt l, const CMATCHOwnedRows &next, std::vector<GlobalInt> *ghost)
  {
    const CMATCHLevel &L         = H->level[l];
    const CameRows    &in        = came[CMATCH_PRODUCTS];
    const LocalInt     columns   = L.mine ? (LocalInt)H->shared[l].column.size() : 0;
    LocalInt          *used      = nullptr;
    GlobalInt         *list      = nullptr;
    size_t             room      = columns;
    const auto         list_came = [&]() {
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

  PetscErrorCode FindColumnsOf(LocalInt count, const GlobalInt *number, const CMATCHOwnedRows &next, size_t ghost_count,
                               const GlobalInt *ghosts, LocalInt *places)
  {
    PetscFunctionBegin;
    FindColumns<<<BlocksFor(count), kBlockSize, 0, s.stream>>>(count, number, next.first, next.rows, (LocalInt)ghost_count, ghosts,
                                                               places);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The columns on the next level of those with these numbers, which are behind the own ones; -1 for those that are none. */
  PetscErrorCode PlaceColumns(size_t count, const GlobalInt *number, const CMATCHOwnedRows &next, size_t ghost_count,
                              const GlobalInt *ghosts, LocalInt **places)
  {
    PetscFunctionBegin;
    PetscCall(s.arena.Take(count, places));
    if (count) PetscCall(FindColumnsOf((LocalInt)count, number, next, ghost_count, ghosts, *places));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  MergedEntries Merged(const CMATCHLevel &L, const CMATCHMade &own, const LocalInt *place, const CameRows &in) const
  {
    return {L.mine, L.coarse, own.start, own.length, own.j, own.a, place, in.start, in.length, in.j, in.a};
  }

  /* Level l + 1, but for the operator of its matching. */
  template <typename T>
  PetscErrorCode Merge(LocalInt l, const CMATCHOwnedRows &next, const std::vector<GlobalInt> &ghost, const LocalInt *place)
  {
    const LocalInt     rows  = next.rows;
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
    PetscCall((Product<kWarpSize, 1, false, true, true>(&s, MergedList{L.mine, add_i}, Merged(L, made, place, in), rows,
                                                        rows + (LocalInt)ghost.size(), {false, 9}, &out, &wide, room)));
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
    MergeSums<<<BlocksFor(rows), kBlockSize, 0, s.stream>>>(rows, L.mine, made.length, made.rs, made.size, add_i, in.length, in.sum,
                                                            in.size, H->rs[l + 1], size);
    FinePCCheckLaunch();
    PetscCall(CMATCHCompleteLevel(&s, l + 1, out.diagonal, size));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* M of the next level, from the own rows and those that have come. */
  PetscErrorCode MergeM(LocalInt l, const CMATCHOwnedRows &next, const std::vector<GlobalInt> &ghost, const GlobalInt *ghosts)
  {
    const LocalInt     rows  = next.rows;
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
    PetscCall(PlaceColumns(met.size(), met_column, next, ghost.size(), ghosts, &place));
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
  const PetscBool            keep;
  CMATCHStats               &stats;
  CMATCHSetup                s;
  CMATCHArena::Mark          level_mark; /* what is taken behind it is of the level at hand */

  CMATCHTransfer         transfer = CMATCH_MATCHED; /* what Match() has found */
  CMATCHFound            found;
  GlobalInt             *numbers = nullptr;                       /* [n + ghosts] of the aggregates on the next level, or -1 */
  GlobalInt             *P_j     = nullptr;                       /* [n + ghosts][width] of the columns of P, and -1 behind them */
  std::vector<GlobalInt> met;                                     /* the numbers of the aggregates of ghosts, ascending */
  LocalInt              *ghost_place = nullptr;                   /* [ghosts] columns of their aggregates, in this order, or -1 */
  GlobalInt             *met_column = nullptr, *column = nullptr; /* numbers of columns behind the own ones, of M and of products */
  double                *p1 = nullptr;                            /* [n + ghosts] row sums of P */
  CMATCHMade             made, M;                                 /* products, and the rows of M */
  size_t                 made_entries = 0, M_entries = 0;
  CameRows               came[CMATCH_ROW_KINDS];
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

PetscErrorCode CMATCHRanksCreate_CUDA(const CMATCHParams *params, PetscBool keep, CMATCHStats *stats, CMATCHHierarchy **H,
                                      CMATCHRanksSetUp **setup)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  PetscCall(CMATCHOpen(params, keep, H));
  *setup = new SetUp((CMATCHHierarchyCUDA *)*H, keep, stats);
  PetscFunctionReturn(PETSC_SUCCESS);
}
