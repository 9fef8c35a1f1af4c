/* CMATCH on the GPU: the prolongator, its transpose, and the Galerkin product. */
#include <cub/cub.cuh>

#include "cmatch_product.cuh"
#include "cmatch_prolong.cuh"

namespace
{

constexpr int kRestrictGroup = 8; /* lanes of a row of R in sums */
constexpr int kSortedPerLane = 8; /* entries of a row of R that a lane of a warp keeps while it sorts the row */
constexpr int kLongestSorted = kWarpSize * kSortedPerLane;
constexpr int kGeneralBlocks = 2; /* on a processor, on the general path of P */
/* Guesses of entries: of A P as a multiple of those of A, and of the next operator. A product that needs more is made again. */
constexpr double kProductEntries = 1.45, kCoarseEntries = 0.75;

constexpr int kFewRows = 30000; /* up to so many rows of a product have a warp each */

/* Of A P a thread takes a row where rows of A have up to so many entries on average; columns that such a row may meet. */
constexpr double kThreadRow  = 9;
constexpr int    kThreadRoom = 20;

/* ------------------------------------------ transpose ----------------------------------------- */

/* Every entry of P goes to its row of R, in any order. */
__global__ void __launch_bounds__(kBlockSize)
  FillRestriction(LocalInt n, LocalInt width, const LocalInt *P_j, const LocalInt *turn, const LocalInt *R_i, LocalInt *R_j)
{
  const long long at = GridThread();
  if (at >= (long long)n * width) return;
  const LocalInt column = P_j[at];
  if (column >= 0) R_j[R_i[column] + turn[at]] = (LocalInt)(at / width);
}

/* Sorts rows of R of at most kLongestSorted entries: the place of an entry is how many are smaller. A warp takes a row. */
__global__ void __launch_bounds__(kBlockSize) SortRestriction(LocalInt rows, const LocalInt *R_i, LocalInt *R_j)
{
  const LocalInt row = (LocalInt)(GridThread() / kWarpSize);
  if (row >= rows) return;
  const LocalInt begin = R_i[row], end = R_i[row + 1];
  LocalInt       index[kSortedPerLane], place[kSortedPerLane];
#pragma unroll
  for (int t = 0; t < kSortedPerLane; t++) {
    const LocalInt k = begin + threadIdx.x % kWarpSize + t * kWarpSize;
    if (k >= end) continue;
    index[t] = R_j[k];
    place[t] = begin;
    for (LocalInt other = begin; other < end; other++) place[t] += R_j[other] < index[t];
  }
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kSortedPerLane; t++)
    if (begin + (LocalInt)(threadIdx.x % kWarpSize) + t * kWarpSize < end) R_j[place[t]] = index[t];
}

/* The values of R: row k of P has few entries, one of which is in this column. A group takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) RestrictionValues(LocalInt rows, LocalInt width, const LocalInt *R_i,
                                                                const LocalInt *R_j, const LocalInt *P_j, const T *P_a, T *R_a)
{
  const LocalInt row = (LocalInt)(GridThread() / kRestrictGroup);
  if (row >= rows) return;
  for (LocalInt k = R_i[row] + threadIdx.x % kRestrictGroup; k < R_i[row + 1]; k += kRestrictGroup) {
    size_t at = (size_t)R_j[k] * width;
    while (P_j[at] != row) at++;
    R_a[k] = P_a[at];
  }
}

/* ------------------------------------------ row sums ------------------------------------------ */

/* Row i of R */
template <typename T>
struct RestrictionList {
  const LocalInt *R_i, *R_j;
  const T        *R_a;

  __device__ int  Count(LocalInt i) const { return R_i[i + 1] - R_i[i]; }
  __device__ void Get(LocalInt i, int t, LocalInt *k, double *value) const
  {
    *k     = R_j[R_i[i] + t];
    *value = (double)R_a[R_i[i] + t];
  }
};

/* y = A (P 1) by differences. A group takes a row. */
template <int GroupSize, typename T>
__global__ void __launch_bounds__(kBlockSize) OperatorTimesSums(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, const T *A_a,
                                                                const double *rs, const double *p1, double *y)
{
  const LocalInt row   = (LocalInt)(GridThread() / GroupSize);
  const int      lane  = threadIdx.x % GroupSize;
  const LocalInt begin = row < n ? A_i[row] : 0, end = row < n ? A_i[row + 1] : 0;
  const int      longest = (int)__reduce_max_sync(kFullWarp, end - begin);
  const double   own     = row < n ? p1[row] : 0.;
  double         sum     = row < n ? rs[row] * own : 0.;
  for (int k = 0; k < longest; k += GroupSize) {
    const LocalInt at = begin + k + lane;
    AddInOrder<GroupSize>(at < end ? (double)A_a[at] * (p1[A_j[at]] - own) : 0., &sum);
  }
  if (row < n && lane == 0) y[row] = sum;
}

/*
   The row sums of the next level, R y; `none` in a row that no entry of P belongs to. size [rows] is that of CMATCHSums. A group
   takes a row.
*/
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  RestrictSums(LocalInt rows, RestrictionList<T> R, const T *d, const double *y, double none, double *rs, double *size)
{
  const LocalInt row   = (LocalInt)(GridThread() / kRestrictGroup);
  const int      lane  = threadIdx.x % kRestrictGroup;
  const LocalInt begin = row < rows ? R.R_i[row] : 0, end = row < rows ? R.R_i[row + 1] : 0;
  const int      longest = (int)__reduce_max_sync(kFullWarp, end - begin);
  double         sum = 0, of_size = 0;
  for (int k = 0; k < longest; k += kRestrictGroup) {
    const LocalInt at    = begin + k + lane;
    const bool     there = at < end;
    const double   a     = there ? (double)R.R_a[at] : 0.;
    AddInOrder<kRestrictGroup>(there ? a * y[R.R_j[at]] : 0., &sum);
    AddInOrder<kRestrictGroup>(there ? a * a * (double)d[R.R_j[at]] : 0., &of_size);
  }
  if (row >= rows || lane != 0) return;
  rs[row]   = begin == end ? none : sum;
  size[row] = of_size;
}

/* ------------------------------------- the Galerkin product ----------------------------------- */

/* Row i of A, its diagonal entry first */
template <typename T>
struct OperatorList {
  const LocalInt *A_i, *A_j;
  const T        *A_a, *d;

  __device__ int  Count(LocalInt i) const { return A_i[i + 1] - A_i[i] + 1; }
  __device__ void Get(LocalInt i, int t, LocalInt *k, double *value) const
  {
    const LocalInt at = A_i[i] + t - 1;
    *k                = t ? A_j[at] : i;
    *value            = t ? (double)A_a[at] : (double)d[i];
  }
};

/* Row k of P */
template <typename T>
struct ProlongatorEntries {
  LocalInt        width;
  const LocalInt *P_j;
  const T        *P_a;

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *length) const
  {
    *begin  = 0;
    *length = width;
  }
  __device__ void Get(LocalInt k, LocalInt, LocalInt place, LocalInt *column, double *value) const
  {
    const size_t at = (size_t)k * width + place;
    *column         = P_j[at];
    *value          = (double)P_a[at];
  }
};

/* The same, where no row has more than the usual number of entries, and lanes take several of them at a time. */
template <typename T>
struct UsualEntries : ProlongatorEntries<T> {
  static constexpr int kMost = kCMATCHUsualRow;
};

/* A row of the usual width is one word of columns, and one or two of values. */
template <typename T>
__device__ __forceinline__ void ProductLoad(const ProlongatorEntries<T> &P, LocalInt k, LocalInt i, LocalInt first,
                                            LocalInt entries, LocalInt (&column)[kCMATCHUsualRow], double (&value)[kCMATCHUsualRow])
{
  struct alignas(16) Columns {
    LocalInt at[kCMATCHUsualRow];
  };
  struct alignas(16) Values {
    T at[kCMATCHUsualRow];
  };
  if (entries == kCMATCHUsualRow && P.width == kCMATCHUsualRow) {
    const Columns j = ((const Columns *)P.P_j)[k];
    const Values  a = ((const Values *)P.P_a)[k];
#pragma unroll
    for (int u = 0; u < kCMATCHUsualRow; u++) {
      column[u] = j.at[u];
      value[u]  = (double)a.at[u];
    }
    return;
  }
#pragma unroll
  for (int u = 0; u < kCMATCHUsualRow; u++) {
    column[u] = -1;
    if (u < entries) P.Get(k, i, first + u, &column[u], &value[u]);
  }
}

/* Row k of A P */
template <typename T>
struct StoredEntries {
  const LocalInt *start, *length, *j;
  const T        *a;

  __device__ void Span(LocalInt k, LocalInt *begin, LocalInt *count) const
  {
    *begin = start[k];
    *count = length[k];
  }
  __device__ void Get(LocalInt, LocalInt, LocalInt place, LocalInt *column, double *value) const
  {
    *column = j[place];
    *value  = (double)a[place];
  }
};

/* -------------------------------------------- steps ------------------------------------------- */

/* The logarithm of a table with room for so many entries at three quarters. */
int TableBits(double entries, int least, int most)
{
  int bits = least;
  while (bits < most && (1 << bits) * 0.75 < entries) bits++;
  return bits;
}

template <typename T>
struct Step {
  CMATCHSetup *s;
  CMATCHLevel &L;
  LocalInt     level;
  bool         keep;
  LocalInt     met   = 0;                        /* columns of P that the rank does not have, behind its own ones */
  double      *p1    = nullptr;                  /* [n] row sums of P */
  LocalInt    *count = nullptr, *turn = nullptr; /* see Prolong */
  bool         one_way = true;                   /* see CMATCHLevelCUDA */

  PetscErrorCode Prolongate()
  {
    PetscFunctionBegin;
    PetscCall(s->arena.Take((size_t)L.n + L.ghosts, &p1));
    if (!keep) {
      PetscCall(s->arena.Take((size_t)L.coarse + met + 1, &count));
      PetscCall(s->arena.Take((size_t)L.n * L.width, &turn));
      PetscCallCUDA(cudaMemsetAsync(count, 0, ((size_t)L.coarse + met + 1) * sizeof(*count), s->stream));
    }
    const auto     mark    = s->arena.mark();
    const LocalInt columns = L.coarse + met;
    Prolong<T>     p{L.n, columns, L.width, L.A_i,   L.A_j, (const T *)L.A_a, (const T *)L.d, L.aggregate, L.P_j, (T *)L.P_a,
                 p1,  count,   turn,    nullptr, keep};
    PetscCallCUDA(cudaMemsetAsync(&s->report->cut, 0, 2 * sizeof(LocalInt), s->stream)); /* cut and plain */
    if (L.transfer != CMATCH_MATCHED) {
      ProlongPlain<<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(p);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(s->arena.Take(L.n, &p.wide));
    PetscCallCUDA(cudaMemsetAsync(&s->report->wide, 0, sizeof(LocalInt), s->stream));
    const double    mean    = (double)L.nnz / L.n;
    const bool      threads = mean <= kProlongRoom;
    const LocalInt *list    = nullptr;
    LocalInt        rows    = L.n;
    if (threads) {
      ProlongThreadKernel<T><<<BlocksFor(L.n, kProlongThread), kProlongThread, 0, s->stream>>>(p, s->report);
      FinePCCheckLaunch();
      if (s->waits) PetscCall(CMATCHReadReport(s));
      list = p.wide;
      rows = s->waits ? s->seen.wide : 0;
      if (rows) {
        one_way = false;
        PetscCall(s->arena.Take(rows, &p.wide));
        PetscCallCUDA(cudaMemsetAsync(&s->report->wide, 0, sizeof(LocalInt), s->stream));
      }
    }
    if (rows) {
      const int    bits   = threads ? 7 : TableBits(mean + 1, 4, 7);
      const size_t groups = kBlockSize / kProlongGroup;
      const size_t shared = ProductShared(groups, bits) + groups * L.width * (sizeof(double) + sizeof(LocalInt));
      PetscCallCUDA(cudaFuncSetAttribute(ProlongKernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
      ProlongKernel<T>
        <<<BlocksFor((long long)rows * kProlongGroup), kBlockSize, shared, s->stream>>>(p, rows, list, bits, s->report);
      FinePCCheckLaunch();
      if (s->waits) PetscCall(CMATCHReadReport(s));
    }
    if (s->waits && s->seen.wide) {
      one_way               = false;
      const LocalInt tables = (LocalInt)PetscMax(1, PetscMin((size_t)PetscMin(s->seen.wide, kGeneralBlocks * s->H->processors),
                                                             kProductWideBytes / (columns * (sizeof(double) + sizeof(LocalInt)))));
      LocalInt      *keys   = nullptr;
      double        *sums   = nullptr;
      PetscCall(s->arena.Take((size_t)tables * columns, &keys));
      PetscCall(s->arena.Take((size_t)tables * columns, &sums));
      PetscCallCUDA(cudaMemsetAsync(keys, -1, (size_t)tables * columns * sizeof(*keys), s->stream));
      PetscCallCUDA(cudaMemsetAsync(sums, 0, (size_t)tables * columns * sizeof(*sums), s->stream));
      ProlongWideKernel<T><<<tables, kWarpSize, 0, s->stream>>>(p, s->seen.wide, keys, sums, s->report);
      FinePCCheckLaunch();
    }
    s->arena.Release(mark);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The pattern of R, from the entries of each column. */
  PetscErrorCode Transpose()
  {
    const LocalInt rows = L.coarse + L.foreign;

    PetscFunctionBegin;
    PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, count, L.R_i, rows + 1, s->stream);
    }));
    PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceReduce::Max(memory, bytes, count, &s->report->longest, rows, s->stream);
    }));
    PetscCall(CMATCHReportNumber(s, L.R_i + rows, &s->report->P_nnz));
    FillRestriction<<<BlocksFor((long long)L.n * L.width), kBlockSize, 0, s->stream>>>(L.n, L.width, L.P_j, turn, L.R_i, L.R_j);
    FinePCCheckLaunch();
    PetscCall(CMATCHReadReport(s));
    L.P_nnz = s->seen.P_nnz;
    if (s->seen.longest <= kLongestSorted) {
      SortRestriction<<<BlocksFor((long long)rows * kWarpSize), kBlockSize, 0, s->stream>>>(rows, L.R_i, L.R_j);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    cub::DoubleBuffer<LocalInt> index(L.R_j, (LocalInt *)L.R_a); /* the values are not there yet */
    PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceSegmentedSort::SortKeys(memory, bytes, index, L.P_nnz, rows, L.R_i, L.R_i + 1, s->stream);
    }));
    if (index.Current() != L.R_j)
      PetscCallCUDA(cudaMemcpyAsync(L.R_j, index.Current(), L.P_nnz * sizeof(LocalInt), cudaMemcpyDeviceToDevice, s->stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The values of R. */
  PetscErrorCode FillValues()
  {
    const LocalInt rows = L.coarse + L.foreign;

    PetscFunctionBegin;
    RestrictionValues<T><<<BlocksFor((long long)rows * kRestrictGroup), kBlockSize, 0, s->stream>>>(rows, L.width, L.R_i, L.R_j,
                                                                                                    L.P_j, (const T *)L.P_a,
                                                                                                    (T *)L.R_a);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* y = A (P 1) */
  PetscErrorCode MultiplySums(double *y)
  {
    const double *const rs = s->H->device[level].rs;

    PetscFunctionBegin;
    if (L.nnz <= (double)kProlongRoom * L.n)
      OperatorTimesSums<1, T><<<BlocksFor(L.n), kBlockSize, 0, s->stream>>>(L.n, L.A_i, L.A_j, (const T *)L.A_a, rs, p1, y);
    else
      OperatorTimesSums<kRestrictGroup, T>
        <<<BlocksFor((long long)L.n * kRestrictGroup), kBlockSize, 0, s->stream>>>(L.n, L.A_i, L.A_j, (const T *)L.A_a, rs, p1, y);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A P, its rows in any order: by threads where so many lanes are those of a row of P. */
  template <int GroupSize, typename Right = ProlongatorEntries<T>>
  PetscErrorCode MultiplyBy(ProductRows<T> *AP)
  {
    constexpr bool        kThread = GroupSize == kCMATCHUsualRow, kSeveral = kLanesOfRow<Right, GroupSize> < GroupSize;
    const LocalInt        columns = L.coarse + met;
    const OperatorList<T> left{L.A_i, L.A_j, (const T *)L.A_a, (const T *)L.d};
    const Right           right{L.width, L.P_j, (const T *)L.P_a};
    const double          about = 0.6 * ((double)L.nnz / L.n + 1) * L.width; /* about so many columns */
    const int bits = kSeveral ? TableBits(PetscMin(about, (double)columns), 5, 9) : TableBits(PetscMin(about, 96), 5, 8);

    PetscFunctionBegin;
    PetscCall((Product<GroupSize, kThread ? kThreadRoom : 1, kCMATCHUsualRow, false, false, false>(
      s, left, right, {L.n, columns, kThread, bits}, AP,
      [&](size_t entries, auto *out) {
        PetscFunctionBegin;
        PetscCall(TakeRoom(entries, out));
        PetscFunctionReturn(PETSC_SUCCESS);
      },
      &one_way)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode Multiply(ProductRows<T> *AP)
  {
    const bool usual = L.width <= kCMATCHUsualRow;

    PetscFunctionBegin;
    if (usual && L.n <= kFewRows) PetscCall((MultiplyBy<kWarpSize, UsualEntries<T>>(AP)));
    else if (usual && L.nnz > kThreadRow * L.n) PetscCall((MultiplyBy<16, UsualEntries<T>>(AP)));
    else if (usual) PetscCall(MultiplyBy<kCMATCHUsualRow>(AP));
    else if (L.width <= 8) PetscCall(MultiplyBy<8>(AP));
    else PetscCall(MultiplyBy<kWarpSize>(AP));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename V>
  PetscErrorCode TakeRoom(size_t entries, ProductRows<V> *out)
  {
    PetscFunctionBegin;
    PetscCheck(entries <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "A product of the Galerkin operator has %zu entries, more than 32-bit indices can count", entries);
    PetscCall(s->arena.Take(entries, &out->j));
    PetscCall(s->arena.Take(entries, &out->a));
    out->room = entries;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Measured on one H200: 16 lanes of R (A P) are best for rows of A P with some 12 entries, where there are many rows. */
  bool HasShortRows(double mean) const { return mean <= 20 && L.coarse > kFewRows; }

  /* R (A P), without its diagonal */
  PetscErrorCode Restrict(const ProductRows<T> &AP, double mean, ProductRows<T> *C)
  {
    const RestrictionList<T> left{L.R_i, L.R_j, (const T *)L.R_a};
    const StoredEntries<T>   right{AP.start, AP.length, AP.j, AP.a};
    const auto               room = [&](size_t entries, auto *out) {
      PetscFunctionBegin;
      PetscCall(TakeRoom(entries, out));
      PetscFunctionReturn(PETSC_SUCCESS);
    };

    PetscFunctionBegin;
    if (HasShortRows(mean))
      PetscCall((Product<16, 1, 4, false, true, true>(s, left, right, {L.coarse, L.coarse, false, 7}, C, room, &one_way)));
    else
      PetscCall((Product<kWarpSize, 1, 4, false, true, true>(s, left, right, {L.coarse, L.coarse, false, 9}, C, room, &one_way)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode MakeAP(ProductRows<T> *AP)
  {
    CMATCHLevelCUDA &of = s->H->device[level];

    PetscFunctionBegin;
    if (!of.AP_room) of.AP_room = (size_t)(kProductEntries * (L.nnz + (double)L.n)) * (L.width > kCMATCHUsualRow ? 2 : 1);
    PetscCall(TakeRoom(of.AP_room, AP));
    PetscCall(Multiply(AP));
    of.AP_room = AP->room;
    if (s->waits) of.AP_nnz = (size_t)s->seen.entries;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* R (A P) and R (A (P 1)) of the own rows, for own and foreign aggregates. */
  PetscErrorCode Products(CMATCHMade *made)
  {
    const LocalInt           rows = L.coarse + L.foreign, columns = L.coarse + met;
    const RestrictionList<T> left{L.R_i, L.R_j, (const T *)L.R_a};
    double                  *y = nullptr;
    ProductRows<T>           AP{};
    ProductRows<double>      C{};

    PetscFunctionBegin;
    PetscCall(s->arena.Take(rows, &made->rs));
    PetscCall(s->arena.Take(rows, &made->size));
    PetscCall(s->arena.Take((size_t)rows + 1, &C.start));
    PetscCall(s->arena.Take((size_t)rows + 1, &C.length));
    made->start  = C.start;
    made->length = C.length;
    if (!rows) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(s->arena.Take(L.n, &y));
    PetscCall(MultiplySums(y));
    RestrictSums<T><<<BlocksFor((long long)rows * kRestrictGroup), kBlockSize, 0, s->stream>>>(rows,
                                                                                               RestrictionList<T>{L.R_i, L.R_j,
                                                                                                                  (const T *)L.R_a},
                                                                                               (const T *)L.d, y, 0., made->rs,
                                                                                               made->size);
    FinePCCheckLaunch();
    PetscCall(s->arena.Take(rows, &C.wide));
    PetscCall(TakeRoom((size_t)(kCoarseEntries * L.nnz) + kCMATCHLeastEntries * PetscMin((size_t)rows, kCMATCHLeastRows), &C));
    PetscCall(s->arena.Take(L.n, &AP.start));
    PetscCall(s->arena.Take(L.n, &AP.length));
    PetscCall(s->arena.Take(L.n, &AP.wide));
    PetscCall(MakeAP(&AP));
    const LocalInt         AP_wide = s->seen.wide;
    const StoredEntries<T> right{AP.start, AP.length, AP.j, AP.a};
    const auto             room = [&](size_t entries, auto *out) {
      PetscFunctionBegin;
      PetscCall(TakeRoom(entries, out));
      PetscFunctionReturn(PETSC_SUCCESS);
    };
    if (HasShortRows((double)s->H->device[level].AP_nnz / L.n))
      PetscCall((Product<16, 1, 4, false, false, false>(s, left, right, {rows, columns, false, 7}, &C, room)));
    else PetscCall((Product<kWarpSize, 1, 4, false, false, false>(s, left, right, {rows, columns, false, 9}, &C, room)));
    made->j = C.j;
    made->a = C.a;
    if (!keep) L.wide = AP_wide + s->seen.wide;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Run()
  {
    CMATCHHierarchyCUDA *H      = s->H;
    const LocalInt       coarse = L.coarse;
    const auto           mark   = s->arena.mark();
    double              *y = nullptr, *size = nullptr;
    ProductRows<T>       AP{}, C{};

    PetscFunctionBegin;
    PetscCall(s->arena.Take(L.n, &y));
    const auto transfer = s->arena.mark();
    PetscCall(Prolongate());
    if (!keep) PetscCall(Transpose());
    PetscCall(FillValues());
    PetscCall(MultiplySums(y));
    s->arena.Release(transfer);
    PetscCall(s->arena.Take(L.n, &AP.start));
    PetscCall(s->arena.Take(L.n, &AP.length));
    C.fixed = keep;
    PetscCall(s->arena.Take(coarse, &C.diagonal));
    PetscCall(s->arena.Take(coarse, &size));
    PetscCall(s->arena.Take(coarse, &C.wide));
    if (keep) {
      C.start = H->level[level + 1].A_i;
      C.a     = (T *)H->level[level + 1].A_a;
    } else {
      PetscCall(s->arena.Take(coarse, &C.start));
      PetscCall(s->arena.Take((size_t)coarse + 1, &C.length));
      PetscCallCUDA(cudaMemsetAsync(C.length + coarse, 0, sizeof(LocalInt), s->stream));
      PetscCall(TakeRoom((size_t)(kCoarseEntries * L.nnz) + kCMATCHLeastEntries * PetscMin((size_t)coarse, kCMATCHLeastRows), &C));
    }
    if (!keep && C.room >= (size_t)L.n) AP.wide = C.j; /* not needed yet */
    else PetscCall(s->arena.Take(L.n, &AP.wide));
    PetscCall(MakeAP(&AP));
    const LocalInt AP_wide = s->seen.wide;
    PetscCall(Restrict(AP, (double)H->device[level].AP_nnz / L.n, &C));
    if (!keep) {
      L.wide = AP_wide + s->seen.wide;
      PetscCall(CMATCHCreateLevel(s, coarse, (LocalInt)s->seen.entries));
      CMATCHLevel &N = H->level[level + 1];
      PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
        return cub::DeviceScan::ExclusiveSum(memory, bytes, C.length, N.A_i, coarse + 1, s->stream);
      }));
      PackRows<T><<<BlocksFor((long long)coarse * kPackGroup), kBlockSize, 0, s->stream>>>(coarse, C, N.A_i, N.A_j, (T *)N.A_a);
      FinePCCheckLaunch();
    }
    if (s->waits) {
      L.cut                    = s->seen.cut;
      L.plain                  = s->seen.plain;
      H->device[level].one_way = one_way;
    } else
      PetscCallCUDA(cudaMemcpyAsync(&s->report->kept[level], &s->report->cut, sizeof(s->report->kept[level]),
                                    cudaMemcpyDeviceToDevice, s->stream));
    RestrictSums<T>
      <<<BlocksFor((long long)coarse * kRestrictGroup), kBlockSize, 0, s->stream>>>(coarse,
                                                                                    RestrictionList<T>{L.R_i, L.R_j,
                                                                                                       (const T *)L.R_a},
                                                                                    (const T *)L.d, y, 1., H->device[level + 1].rs,
                                                                                    size);
    FinePCCheckLaunch();
    PetscCall(CMATCHCompleteLevel(s, level + 1, C.diagonal, size));
    s->arena.Release(mark);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

} // namespace

PetscErrorCode CMATCHCoarsen(CMATCHSetup *s, LocalInt level, bool keep)
{
  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    Step<decltype(zero)> step{s, s->H->level[level], level, keep};
    PetscFunctionBegin;
    PetscCall(step.Run());
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksProlong(CMATCHSetup *s, LocalInt level, bool keep, LocalInt met, CMATCHCounted *counted)
{
  CMATCHLevel &L = s->H->level[level];

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    Step<decltype(zero)> step{s, L, level, keep, met};
    PetscFunctionBegin;
    if (L.n) PetscCall(step.Prolongate());
    *counted = CMATCHCounted{step.p1, step.count, step.turn};
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscCall(CMATCHReadReport(s));
  L.cut   = L.n ? s->seen.cut : 0;
  L.plain = L.n ? s->seen.plain : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksRestriction(CMATCHSetup *s, LocalInt level, bool keep, const CMATCHCounted &counted)
{
  CMATCHLevel &L = s->H->level[level];

  PetscFunctionBegin;
  if (!(L.coarse + L.foreign)) {
    L.P_nnz = 0;
    if (!keep) PetscCallCUDA(cudaMemsetAsync(L.R_i, 0, sizeof(*L.R_i), s->stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    Step<decltype(zero)> step{s, L, level, keep, 0, counted.p1, counted.count, counted.turn};
    PetscFunctionBegin;
    if (!keep) PetscCall(step.Transpose());
    PetscCall(step.FillValues());
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksProducts(CMATCHSetup *s, LocalInt level, bool keep, double *p1, LocalInt columns, CMATCHMade *made)
{
  CMATCHLevel &L = s->H->level[level];

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    Step<decltype(zero)> step{s, L, level, keep, columns - L.coarse, p1};
    PetscFunctionBegin;
    PetscCall(step.Products(made));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
