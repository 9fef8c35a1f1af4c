/*
   CUDA twin of src/pc/sfsai/sfsai_host.cxx, the values of G on a pattern: the same as the host twin's. The host twin has the
   formulas, whose numbers are those of Bernaschi, Bisson, Fantozzi and Janna.

   What differs from the host twin:
   - Systems are gathered and solved in one kernel, and never written out as a batch. A group of lanes takes a system of up to 32
     unknowns in registers, by Gauss-Jordan elimination in which the lanes that Cholesky's factorisation leaves idle solve for the
     row of G. A block takes a larger one in tiles in shared memory. Still larger ones are in global memory, and as many blocks take
     them as the work space has room for. A system of more than kCholeskyLargest unknowns is left to cuSOLVER, as the host twin
     leaves it to LAPACK.
   - Rows are bucketed by the size of their system with a radix sort that keeps their order.
   - With a postfilter G is computed in chunks of rows, so that the unfiltered G never is in memory as a whole. Where there are
     several chunks, each but the last is computed twice: for the lengths of its rows first, then for their entries, once G has its
     memory.
   Nothing depends on the schedule.
*/
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "sfsai.cuh"
#include "sfsai_dense.cuh"
#include "scratch.cuh"
#include "search.cuh"
#include "sparse/dense.cuh"
#include "sparse/dense.h"

namespace
{

using Count = unsigned long long;

/* ------------------------------------------ the systems --------------------------------------- */

/*
   The classes of systems by their size, in which the index of the row itself is counted: up to 8, 16 and 32 in registers, then in
   shared memory by blocks of more and more threads, then in global memory by blocks, and the last class by cuSOLVER.
*/
constexpr int kClasses = 8, kRegisterClasses = 3, kDenseClass = kClasses - 1, kGlobalClass = kDenseClass - 1;
constexpr int kClassBits      = 3; /* bits of a sort key */
constexpr int kRegisterSize[] = {8, 16, 32};
constexpr int kSharedSize[] = {4 * kTile, 8 * kTile}; /* of the first classes in shared memory, of which the last takes what fits */
constexpr int kRegisterBlock = 128;                   /* threads of a block of which every group takes a row */
constexpr int kGatherGroup   = 8;                     /* lanes of a block that read a row of A together */
template <typename T>
constexpr int kBlocksAtOnce = sizeof(T) == sizeof(float) ? 4 : 2; /* blocks of kSystemThreads for which a processor has registers */
static_assert(kClasses <= 1 << kClassBits, "a key holds every class");

struct ClassLimits {
  int largest[kClasses];
};

/* Counters that the kernels write and the host reads. */
struct Tally {
  int   rows[kClasses], largest[kClasses]; /* of the rows in each class: how many, and the largest system */
  Count bad_pivot, diagonal, dropped;
};

struct ValueTask {
  CSRView          A;
  const PetscReal *s;
  const LocalInt  *rows;
  LocalInt         items;
  const LocalInt  *G_i;
  LocalInt        *G_j; /* the entries of G from base on; the postfilter marks what it drops */
  void            *G_a;
  LocalInt         base;
  PetscReal       *d;      /* diag(A) before, 1 / psi after; as G_i and length it is indexed by the rows of A */
  LocalInt        *length; /* entries kept, or null where there is no postfilter */
  LocalInt        *bad;    /* [n] list of rows that single precision cannot do */
  Tally           *tally;
  double           postfilter;
  bool             single;      /* whether the values are written in single precision */
  int              largest;     /* largest system of this launch */
  char            *global_work; /* null where the systems are in shared memory */
  size_t           work_stride;
};

constexpr LocalInt kDropped = -1; /* instead of the column of an entry of G */

template <typename T>
constexpr T kSmallestPivot = (T)(sizeof(T) == sizeof(float) ? kFSAISmallestPivotSingle : kFSAISmallestPivotDouble);

__device__ inline void StoreValue(const ValueTask &task, LocalInt k, double value)
{
  if (task.single) ((float *)task.G_a)[k - task.base] = (float)value;
  else ((double *)task.G_a)[k - task.base] = value;
}

/*
   What becomes of a row that cannot be solved: in single precision it is listed for another try, in double precision its diagonal
   is left. So many threads share the work.
*/
template <typename T>
__device__ inline void GiveUp(const ValueTask &task, LocalInt row, int thread, int threads)
{
  if constexpr (sizeof(T) == sizeof(float)) {
    if (thread == 0) task.bad[atomicAdd(&task.tally->bad_pivot, (Count)1)] = row;
  } else {
    for (LocalInt k = task.G_i[row] + thread; k < task.G_i[row + 1]; k += threads) {
      StoreValue(task, k, 0);
      if (task.length) task.G_j[k - task.base] = kDropped;
    }
    if (thread == 0) {
      task.d[row] = 1 / task.d[row];
      if (task.length) task.length[row] = 0;
      atomicAdd(&task.tally->diagonal, (Count)1);
    }
  }
}

/* The first of the ascending P[0 .. Size - 1] that is not below column, or the last. Size is a power of two: no step branches. */
template <int Size>
__device__ inline int LowerBoundOf(const int *P, int column)
{
  int at = 0;
#pragma unroll
  for (int step = Size / 2; step > 0; step /= 2)
    if (P[at + step - 1] < column) at += step;
  return at;
}

/*
   A group of N lanes takes a row. Its system stands at the end of N places, behind the identity, and place N - 1 is the row
   itself. Only the lower triangle of A[P, P] is read; S A S without its unit diagonal is kept as a whole in shared memory.
*/
template <typename T, int N>
struct GroupWork {
  double s[N], g[N];
  T      S[N][N], column[2 * N];
  int    P[N];
};

template <typename T, int N>
__global__ void __launch_bounds__(kRegisterBlock) SFSAISolveInRegisters(ValueTask task)
{
  extern __shared__ __align__(16) char shared_work[];

  GroupWork<T, N> &work  = ((GroupWork<T, N> *)shared_work)[threadIdx.x / N];
  const long long  item  = GridThread() / N;
  const int        lane  = threadIdx.x % N;
  const bool       mine  = item < task.items;
  const LocalInt   row   = mine ? task.rows[item] : 0;
  const LocalInt   start = mine ? task.G_i[row] : 0;
  const int        size = mine ? (int)(task.G_i[row + 1] - start) + 1 : 1, first = N - size; /* the first place that is used */
  const bool       used  = mine && lane >= first;
  const LocalInt   place = start - task.base + lane - first; /* where the lane's entry of G is */
  const int        q     = lane == N - 1 ? (int)row : used ? (int)task.G_j[place] : -1;
  const double     s_q   = used ? task.s[q] : 0;
  work.P[lane]           = q;
  work.s[lane]           = s_q;
#pragma unroll
  for (int c = 0; c < N; c++) work.S[c][lane] = 0;
  __syncwarp();

  /* the system */
  if (used)
    for (LocalInt k = task.A.i[q]; k < task.A.i[q + 1]; k++) {
      const int column = (int)task.A.j[k];
      if (column >= q) break;
      const int c = LowerBoundOf<N>(work.P, column);
      if (work.P[c] != column) continue;
      const T value   = (T)(task.A.a[k] * s_q * work.s[c]);
      work.S[lane][c] = value;
      work.S[c][lane] = value;
    }
  __syncwarp();

  T a[N], inverse;
#pragma unroll
  for (int c = 0; c < N; c++) a[c] = c == lane ? T(1) : work.S[c][lane];
  const int    begin  = N == kWarpSize ? first : GroupMin<kWarpSize>(first);
  const int    bad    = Eliminate<N, false>(a, work.column, begin, kSmallestPivot<T>, inverse);
  double       g      = lane == N - 1 ? 1. : used ? (double)(-a[N - 1] * inverse) : 0.;
  const double own    = g * s_q; /* the entry of the unscaled row, times s of the row */
  bool         failed = bad < N || !isfinite((float)(own / work.s[N - 1]));

  if (task.postfilter > 0) { /* (3.11) */
    const double norm = sqrt(GroupSum<N>(own * own));
    if (lane != N - 1 && fabs(own) <= task.postfilter * norm) g = 0;
  }
  work.g[lane] = g;
  __syncwarp();
  /* psi = g~ A g~^T, (3.13), is of the g that is kept, so that diag(G A G^T) = 1 holds whatever the rounding errors of g */
  double sum = g;
  for (int c = begin; c < N; c++) sum += (double)work.S[c][lane] * work.g[c];
  const double psi      = GroupSum<N>(g * sum);
  failed                = failed || !(psi > kSmallestPivot<T>);
  failed                = GroupBallot<N>(failed);
  const bool     kept   = used && lane != N - 1 && !(task.length && g == 0);
  const unsigned ballot = GroupBallot<N>(kept);
  if (!mine) return;
  if (failed) {
    GiveUp<T>(task, row, lane, N);
    return;
  }
  if (used && lane != N - 1) {
    StoreValue(task, place + task.base, own / work.s[N - 1]);
    if (!kept) task.G_j[place] = kDropped;
  }
  if (lane == 0) {
    task.d[row] = 1 / (task.d[row] * psi);
    if (task.length) {
      task.length[row] = __popc(ballot);
      if (__popc(ballot) < size - 1) atomicAdd(&task.tally->dropped, (Count)(size - 1 - __popc(ballot)));
    }
  }
}

/*
   The row that a block works on, its columns P and its solution y, wherever they are. The last index of its system is the row
   itself.
*/
template <typename T>
class RowOfBlock {
public:
  __device__ RowOfBlock(const ValueTask &task, LocalInt row) :
      task_(task), row_(row), n_((int)(task.G_i[row + 1] - task.G_i[row]) + 1), start_(task.G_i[row])
  {
  }

  /* y [n], P [n] and sum [kSums], all of the block. */
  __device__ void Use(T *y, int *P, double *sum)
  {
    y_   = y;
    P_   = P;
    sum_ = sum;
  }

  __device__ void ReadColumns()
  {
    for (int r = threadIdx.x; r < n_; r += blockDim.x) P_[r] = r == n_ - 1 ? (int)row_ : (int)task_.G_j[start_ - task_.base + r];
  }

  /* Calls use(r, c, value) for the entries c < r of S A S over P; groups of lanes read the rows. */
  template <typename Visit>
  __device__ void ForEachEntry(Visit visit) const
  {
    for (int r = threadIdx.x / kGatherGroup; r < n_; r += blockDim.x / kGatherGroup) {
      const int    q   = P_[r];
      const double s_q = task_.s[q];
      for (LocalInt k = task_.A.i[q] + threadIdx.x % kGatherGroup; k < task_.A.i[q + 1]; k += kGatherGroup) {
        const int column = (int)task_.A.j[k];
        if (column >= q) break;
        const int c = LowerBound<true>(P_, 0, r, column);
        if (P_[c] == column) visit(r, c, (T)(task_.A.a[k] * s_q * task_.s[column]));
      }
    }
  }

  /* The row of G from y, which is g~ up to the rounding of its last entry. */
  __device__ void Finish()
  {
    const PetscReal *s = task_.s;
    if (threadIdx.x == 0) y_[n_ - 1] = 1;
    __syncthreads();

    const double s_row  = s[row_];
    double       norm   = 0;
    int          finite = 1;
    for (int r = threadIdx.x; r < n_; r += blockDim.x) {
      const double own = y_[r] * s[P_[r]];
      norm += own * own;
      finite = finite && isfinite((float)(own / s_row));
    }
    finite = __syncthreads_and(finite);
    if (task_.postfilter > 0) { /* (3.11) */
      norm = task_.postfilter * sqrt(BlockSum(norm));
      for (int r = threadIdx.x; r < n_ - 1; r += blockDim.x)
        if (fabs(y_[r] * s[P_[r]]) <= norm) y_[r] = 0;
      __syncthreads();
    }
    double part = 0; /* of psi, which is computed as in SFSAISolveInRegisters */
    for (int r = threadIdx.x; r < n_; r += blockDim.x) part += (double)y_[r] * y_[r];
    ForEachEntry([&](int r, int c, T value) { part += 2 * (double)value * y_[r] * y_[c]; });
    const double psi = BlockSum(part);
    if (!finite || !(psi > kSmallestPivot<T>)) {
      GiveUp<T>(task_, row_, threadIdx.x, blockDim.x);
      return;
    }
    int kept = 0;
    for (int base = 0; base < n_ - 1; base += blockDim.x) {
      const int  r    = base + threadIdx.x;
      const bool used = r < n_ - 1, drop = used && task_.length && y_[r] == 0;
      if (used) StoreValue(task_, start_ + r, y_[r] * s[P_[r]] / s_row);
      if (drop) task_.G_j[start_ - task_.base + r] = kDropped;
      kept += __syncthreads_count(used && !drop);
    }
    if (threadIdx.x == 0) {
      task_.d[row_] = 1 / (task_.d[row_] * psi);
      if (task_.length) {
        task_.length[row_] = kept;
        atomicAdd(&task_.tally->dropped, (Count)(n_ - 1 - kept));
      }
    }
  }

  static constexpr int kSums = 32; /* most warps of a block */

protected:
  __device__ double BlockSum(double x)
  {
    x = GroupSum<kWarpSize>(x);
    if (threadIdx.x % kWarpSize == 0) sum_[threadIdx.x / kWarpSize] = x;
    __syncthreads();
    double sum = 0;
    for (unsigned w = 0; w < blockDim.x / kWarpSize; w++) sum += sum_[w];
    __syncthreads();
    return sum;
  }

  const ValueTask &task_;
  const LocalInt   row_;
  const int        n_;
  const LocalInt   start_;
  T               *y_   = nullptr;
  int             *P_   = nullptr;
  double          *sum_ = nullptr;
};

/* A row whose system the block factorizes itself. */
template <typename T, bool InShared>
class BlockRow : RowOfBlock<T> {
public:
  using Row      = RowOfBlock<T>;
  using Cholesky = BlockCholesky<T, InShared>;

  static size_t SharedBytes(int n)
  {
    const int padded = Cholesky::Tiles(n) * kTile;
    return Padded(Cholesky::SharedBytes(n)) + Padded(padded * sizeof(T)) + Padded(n * sizeof(int)) + Row::kSums * sizeof(double);
  }

  __device__ BlockRow(const ValueTask &task, LocalInt row, char *shared, T *global) : Row(task, row), cholesky_(shared, n_, global)
  {
    T *const   y = (T *)(shared + Padded(Cholesky::SharedBytes(n_)));
    int *const P = (int *)((char *)y + Padded(Cholesky::Tiles(n_) * kTile * sizeof(T)));
    Row::Use(y, P, (double *)((char *)P + Padded(n_ * sizeof(int))));
  }

  __device__ void Do()
  {
    Row::ReadColumns();
    cholesky_.Clear();
    Row::ForEachEntry([&](int r, int c, T value) { cholesky_.Set(r, c, value); });
    __syncthreads();
    const int bad = cholesky_.Factorize(kSmallestPivot<T>); /* its last pivot is psi, of which L has the square root */
    if (bad != INT_MAX) {
      GiveUp<T>(task_, row_, threadIdx.x, blockDim.x);
      return;
    }
    /* L^T g~ = l_nn e_n, by (3.6) and (3.7) */
    for (int r = threadIdx.x; r < Cholesky::Tiles(n_) * kTile; r += blockDim.x) y_[r] = r == n_ - 1 ? cholesky_.Get(r, r) : T(0);
    cholesky_.SolveTransposed(y_);
    Row::Finish();
  }

private:
  static __host__ __device__ size_t Padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

  using Row::n_;
  using Row::row_;
  using Row::task_;
  using Row::y_;
  Cholesky cholesky_;
};

/* A block takes a row, or one row after the other where there are more rows than blocks. */
template <typename T, bool InShared>
__global__ void __launch_bounds__(kSystemThreads, kBlocksAtOnce<T>) SFSAISolveInBlocks(ValueTask task)
{
  extern __shared__ __align__(16) char shared_work[];

  for (LocalInt item = blockIdx.x; item < task.items; item += gridDim.x) {
    BlockRow<T, InShared>(task, task.rows[item], shared_work, (T *)(task.global_work + blockIdx.x * task.work_stride)).Do();
    __syncthreads();
  }
}

/* The system of a row for cuSOLVER, whose matrix is 0 before, with the right-hand side e_n. One block. */
__global__ void __launch_bounds__(kSystemThreads) SFSAIGatherDense(ValueTask task, LocalInt row, DenseSystem system)
{
  const size_t       n = system.n;
  RowOfBlock<double> of_block(task, row);

  of_block.Use(system.y, system.P, nullptr);
  of_block.ReadColumns();
  for (size_t r = threadIdx.x; r < n; r += blockDim.x) {
    system.A[r * (n + 1)] = 1;
    system.y[r]           = r == n - 1;
  }
  __syncthreads();
  of_block.ForEachEntry([&](int r, int c, double value) { system.A[c * n + r] = value; });
}

/* The row of G from what cuSOLVER has made of the system: y is w of (3.6), and g~ is psi w. One block. */
__global__ void __launch_bounds__(kSystemThreads) SFSAIFinishDense(ValueTask task, LocalInt row, DenseSystem system)
{
  __shared__ double  sum[RowOfBlock<double>::kSums];
  const size_t       n    = system.n;
  int                good = system.info[0] == 0;
  RowOfBlock<double> of_block(task, row);

  for (size_t r = threadIdx.x; r < n; r += blockDim.x) {
    const double l = system.A[r * (n + 1)];
    good           = good && l * l > kSmallestPivot<double>;
  }
  if (!__syncthreads_and(good)) {
    GiveUp<double>(task, row, threadIdx.x, blockDim.x);
    return;
  }
  const double l = system.A[n * n - 1];
  for (size_t r = threadIdx.x; r < n; r += blockDim.x) system.y[r] *= l * l;
  __syncthreads();
  of_block.Use(system.y, system.P, sum);
  of_block.Finish();
}

/* The class of each row, which is its sort key, and the tally of the classes. */
__global__ void SFSAIClasses(LocalInt items, const LocalInt *rows, LocalInt first, const LocalInt *G_i, ClassLimits limits,
                             unsigned char *key, LocalInt *row_out, Tally *tally)
{
  __shared__ int count[kClasses], largest[kClasses];

  if (threadIdx.x < kClasses) count[threadIdx.x] = largest[threadIdx.x] = 0;
  __syncthreads();
  const long long k = GridThread();
  if (k < items) {
    const LocalInt row  = rows ? rows[k] : first + (LocalInt)k;
    const int      size = (int)(G_i[row + 1] - G_i[row]) + 1;
    int            c    = 0;
    while (c < kClasses - 1 && size > limits.largest[c]) c++;
    key[k]     = (unsigned char)c;
    row_out[k] = row;
    atomicAdd(count + c, 1);
    atomicMax(largest + c, size);
  }
  __syncthreads();
  if (threadIdx.x < kClasses && count[threadIdx.x]) {
    atomicAdd(tally->rows + threadIdx.x, count[threadIdx.x]);
    atomicMax(tally->largest + threadIdx.x, largest[threadIdx.x]);
  }
}

/* Copies what the postfilter has left of rows first .. end - 1; a row begins at entry to[row - first]. */
template <typename S, int GroupSize>
__global__ void SFSAICompact(LocalInt first, LocalInt end, const LocalInt *from, LocalInt base, const LocalInt *from_j,
                             const S *from_a, const LocalInt *to, LocalInt *j, S *a)
{
  const LocalInt row  = first + (LocalInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  const bool     mine = row < end;
  LocalInt       at   = mine ? to[row - first] : 0;
  const LocalInt last = mine ? from[row + 1] : 0;
  for (LocalInt k = mine ? from[row] : 0; __any_sync(kFullWarp, k < last); k += GroupSize) {
    const bool     kept   = k + lane < last && from_j[k + lane - base] != kDropped;
    const unsigned ballot = GroupBallot<GroupSize>(kept);
    const LocalInt place  = at + __popc(ballot & ((1u << lane) - 1u));
    if (kept) {
      j[place] = from_j[k + lane - base];
      a[place] = from_a[k + lane - base];
    }
    at += __popc(ballot);
  }
}

/* ------------------------------------------ the set-up ---------------------------------------- */

/* One set-up on the device. The SFSAIWork outlives it, with the memory that new values on a kept pattern need. */
class SetUp {
public:
  SetUp(const CSRView &A, LocalInt first, const CSRView *S, const SFSAIParams &params, bool keep, CSR &G, PetscReal *d,
        SFSAIWork &work, FSAIStats &stats) :
      A_(A), own_(first), rows_(A.n - first), S_(S), params_(params), keep_(keep), G_(G), d_(d), kept_(work), stats_(stats)
  {
  }

  PetscErrorCode Run()
  {
    std::optional<SFSAIPhase> phase;

    PetscFunctionBegin;
    PetscCall(DeviceGetStream(&stream_));
    PetscCall(NeedWork(0));
    PetscCall(FSAIScaling_CUDA(&A_, own_, s_, d_, fsai_work_, &stats_));
    if (stats_.failure) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(Tally), stream_));
    phase.emplace(keep_ ? params_.values_event : params_.pattern_event);
    if (keep_) PetscCall(Solve(0, rows_, G_.i, G_.j, G_.a, 0, nullptr, d_));
    else {
      const auto pattern = SFSAIPatternOf(A_, own_, S_, s_, params_, stats_, &meter_);
      PetscCall(pattern->CountRows());
      LocalInt in_shared = 0, in_blocks = 0, rows = 0;
      DenseRow dense;
      PetscCall(LargestRow<BlockRow<double, true>>(kCholeskyLargest, &in_shared));
      PetscCall(LargestRow<BlockRow<double, false>>(kCholeskyLargest, &in_blocks));
      PetscCall(pattern->CountLonger(in_shared, &rows));
      if (rows) { /* a later set-up on this pattern may need this memory, too, when it redoes rows in double */
        const LocalInt largest = pattern->longest + 1;
        if (largest > in_blocks) {
          dense.size = largest;
          PetscCall(pattern->FindLongest(&dense.row));
        }
        PetscCall(NeedSystems(rows, std::min(largest, in_blocks), dense));
        pattern->UseScaling(s_);
      }
      if (params_.postfilter > 0) {
        phase.emplace(params_.values_event); /* it searches again, chunk by chunk */
        PetscCall(Filtered(*pattern));
      } else {
        PetscCall(CSRCreate(rows_, A_.n, pattern->nnz, params_.factor_precision, PETSC_MEMTYPE_CUDA, &G_));
        PetscCall(pattern->Scan(G_.i));
        PetscCall(pattern->Fill(0, rows_, G_.i, 0, G_.j));
        phase.emplace(params_.values_event);
        PetscCall(Solve(0, rows_, G_.i, G_.j, G_.a, 0, nullptr, d_));
        stats_.max_row = pattern->longest + 1;
      }
    }
    PetscCall(FSAIMeanLog_CUDA(rows_, d_, fsai_work_, &stats_.log_psi_after));
    stats_.log_psi_after = -stats_.log_psi_after; /* d = 1 / psi */
    stats_.work_bytes    = meter_.peak + kept_.bytes;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* The largest system, in whole tiles and at most `most`, for which a block of this kind has enough shared memory. */
  template <typename Block>
  static PetscErrorCode LargestRow(LocalInt most, LocalInt *largest)
  {
    size_t limit;

    PetscFunctionBegin;
    PetscCall(SharedMemoryLimit(&limit));
    for (*largest = kTile; *largest + kTile <= most && Block::SharedBytes((int)*largest + kTile) <= limit;) *largest += kTile;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* CUB's call, as CubScratch takes it, that sorts list_ by classes into sorted_. */
  auto SortRows(LocalInt items) const
  {
    return [=](void *memory, size_t &bytes) {
      return cub::DeviceRadixSort::SortPairs(memory, bytes, key_, sorted_key_, list_, sorted_, items, 0, kClassBits, stream_);
    };
  }

  /*
     Sees that kept_ has room for the arrays of a set-up, and so many bytes for systems in global memory, of which that of `dense`
     is the largest if there is such a row.
  */
  PetscErrorCode NeedWork(size_t systems_bytes, const DenseRow &dense = DenseRow{})
  {
    Layout layout;

    PetscFunctionBegin;
    PetscCall(scratch_.Measure(SortRows(A_.n)));
    layout.Place(&s_, A_.n);
    layout.Place(&tally_, 1);
    layout.Place(&list_, A_.n);
    layout.Place(&sorted_, A_.n);
    layout.Place(&bad_, A_.n);
    layout.Place(&key_, A_.n);
    layout.Place(&sorted_key_, A_.n);
    scratch_.Place(&layout);
    layout.Place(&fsai_work_, FSAIWorkBytes_CUDA(A_.n));
    layout.Place(&systems_, systems_bytes);
    if (kept_.bytes < layout.bytes()) {
      const PetscReal *const s      = s_; /* this set-up has begun, and these arrays keep what is in them */
      const Tally *const     tally  = tally_;
      const LocalInt *const  sorted = sorted_;
      void                  *old    = kept_.data;
      SFSAIWork              larger{nullptr, layout.bytes(), PETSC_MEMTYPE_CUDA};

      if (dense.size)
        PetscCall(SFSAICreateWork(larger.bytes, larger.where, dense.row, dense.size, S_ ? PETSC_TRUE : PETSC_FALSE, &larger));
      else PetscCall(ArrayCreate_CUDA(larger.bytes, &larger.data));
      kept_ = larger;
      layout.Bind(kept_.data);
      if (s) {
        PetscCall(ArrayCopy_CUDA(s_, s, A_.n * sizeof(*s), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCall(ArrayCopy_CUDA(tally_, tally, sizeof(*tally), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCall(ArrayCopy_CUDA(sorted_, sorted, sorted_items_ * sizeof(*sorted), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCallCUDA(cudaStreamSynchronize(stream_));
      }
      PetscCall(ArrayDestroy_CUDA(&old));
    } else layout.Bind(kept_.data);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Sees that there is room for as many of so many systems in global memory as the limit of the work allows, but for one at least,
     and for the system of `dense` if there is such a row.
  */
  PetscErrorCode NeedSystems(LocalInt rows, LocalInt largest, const DenseRow &dense)
  {
    const size_t stride = SFSAISystemBytes(largest);
    size_t       wanted = rows ? std::min<size_t>(rows, std::max<size_t>(1, params_.work_limit / stride)) * stride : 0;

    PetscFunctionBegin;
    if (dense.size) {
      size_t      bytes = SFSAISystemBytes(dense.size), unused, total;
      Layout      layout;
      DenseSystem system;
      PetscCallCUDA(cudaMemGetInfo(&unused, &total));
      if (bytes <= total) { /* what is larger is an error below, and cuSOLVER need not know of it */
        PetscCall(dense_.Place(dense.size, &layout, &system));
        bytes = layout.bytes();
      }
      wanted = std::max(wanted, bytes);
    }
    if ((size_t)((const char *)kept_.data + kept_.bytes - systems_) < wanted) PetscCall(NeedWork(wanted, dense));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ReadTally()
  {
    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(&host_, tally_, sizeof(host_), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Rows first .. end - 1 of G on their pattern in the precision of the set-up; rows that fail in single are done again in double.
     The kernels know rows by their numbers in A, which is why what belongs to G begins so many rows earlier for them.
  */
  PetscErrorCode Solve(LocalInt first, LocalInt end, const LocalInt *i, LocalInt *j, void *a, LocalInt base, LocalInt *length,
                       PetscReal *d)
  {
    ValueTask task = {};

    PetscFunctionBegin;
    task.A          = A_;
    task.s          = s_;
    task.G_i        = i - own_;
    task.G_j        = j;
    task.G_a        = a;
    task.base       = base;
    task.d          = d - own_;
    task.length     = length ? length - own_ : nullptr;
    task.postfilter = length ? params_.postfilter : 0;
    task.single     = params_.factor_precision == FINEPC_SINGLE;
    if (params_.setup_precision == FINEPC_SINGLE) {
      PetscCall(SolveRows<float>(task, nullptr, own_ + first, end - first));
      PetscCall(ReadTally());
      const LocalInt items = (LocalInt)host_.bad_pivot;
      stats_.double_rows += items;
      if (items) {
        PetscCallCUDA(cudaMemsetAsync(&tally_->bad_pivot, 0, sizeof(tally_->bad_pivot), stream_));
        PetscCall(SolveRows<double>(task, bad_, 0, items));
        PetscCall(ReadTally());
      }
    } else {
      PetscCall(SolveRows<double>(task, nullptr, own_ + first, end - first));
      PetscCall(ReadTally());
    }
    stats_.diagonal_rows = (LocalInt)host_.diagonal;
    if (!keep_) stats_.dropped = (LocalInt)host_.dropped;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The largest systems of the classes in precision T. */
  template <typename T>
  static PetscErrorCode Classes(ClassLimits *limits)
  {
    LocalInt in_shared = 0, in_blocks = 0;

    PetscFunctionBegin;
    PetscCall((LargestRow<BlockRow<T, true>>(kCholeskyLargest, &in_shared)));
    PetscCall((LargestRow<BlockRow<double, false>>(kCholeskyLargest, &in_blocks)));
    for (int c = 0; c < kRegisterClasses; c++) limits->largest[c] = kRegisterSize[c];
    for (int c = kRegisterClasses; c < kGlobalClass - 1; c++) limits->largest[c] = kSharedSize[c - kRegisterClasses];
    limits->largest[kGlobalClass - 1] = (int)in_shared;
    limits->largest[kGlobalClass]     = (int)in_blocks;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows of a list, or rows first .. where it is null, class by class. */
  template <typename T>
  PetscErrorCode SolveRows(ValueTask task, const LocalInt *rows, LocalInt first, LocalInt items)
  {
    ClassLimits limits;

    PetscFunctionBegin;
    PetscCall(Classes<T>(&limits));
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, offsetof(Tally, bad_pivot), stream_));
    SFSAIClasses<<<BlocksFor(items), kBlockSize, 0, stream_>>>(items, rows, first, task.G_i, limits, key_, list_, tally_);
    FinePCCheckLaunch();
    PetscCall(scratch_.Run(SortRows(items)));
    sorted_items_ = items;
    PetscCall(ReadTally());
    std::vector<DenseRow> dense;
    PetscCall(ListDense(task.G_i, items, &dense));
    for (const DenseRow &row : dense) PetscCall(NeedSystems(0, 0, row));
    PetscCall(NeedSystems(host_.rows[kGlobalClass], host_.largest[kGlobalClass], DenseRow{}));
    task.tally     = tally_;
    task.bad       = bad_;
    task.s         = s_;
    LocalInt begin = 0;
    for (int c = 0; c < kClasses; c++) {
      task.rows    = sorted_ + begin;
      task.items   = host_.rows[c];
      task.largest = host_.largest[c];
      begin += task.items;
      if (!task.items) continue;
      PetscCall(PetscLogGpuTimeBegin());
      switch (c) {
      case 0: PetscCall((LaunchRegisters<T, kRegisterSize[0]>(task))); break;
      case 1: PetscCall((LaunchRegisters<T, kRegisterSize[1]>(task))); break;
      case 2: PetscCall((LaunchRegisters<T, kRegisterSize[2]>(task))); break;
      case kGlobalClass: PetscCall((LaunchBlocks<T, false>(task))); break;
      case kDenseClass: PetscCall(SolveDense(task, dense)); break;
      default: PetscCall((LaunchBlocks<T, true>(task)));
      }
      PetscCall(PetscLogGpuTimeEnd());
    }
    if (!rows) stats_.large_rows += host_.rows[kGlobalClass] + host_.rows[kDenseClass];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows of the last class, which are the last ones of sorted_, with their sizes. */
  PetscErrorCode ListDense(const LocalInt *G_i, LocalInt items, std::vector<DenseRow> *dense)
  {
    const LocalInt        count = host_.rows[kDenseClass];
    std::vector<LocalInt> rows(count);

    PetscFunctionBegin;
    PetscCall(
      ArrayCopy_CUDA(rows.data(), sorted_ + items - count, count * sizeof(LocalInt), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    for (LocalInt row : rows) {
      LocalInt ends[2];
      PetscCall(ArrayCopy_CUDA(ends, G_i + row, sizeof(ends), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
      dense->push_back(DenseRow{row, ends[1] - ends[0] + 1});
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Such rows one after the other, in the memory that NeedSystems() has seen to. */
  PetscErrorCode SolveDense(const ValueTask &task, const std::vector<DenseRow> &dense)
  {
    PetscFunctionBegin;
    for (const DenseRow &row : dense) {
      Layout      layout;
      DenseSystem system;

      PetscCall(dense_.Place(row.size, &layout, &system));
      layout.Bind(systems_);
      PetscCallCUDA(cudaMemsetAsync(system.A, 0, system.MatrixBytes(), stream_));
      SFSAIGatherDense<<<1, kSystemThreads, 0, stream_>>>(task, row.row, system);
      FinePCCheckLaunch();
      PetscCall(dense_.Solve(stream_, &system));
      SFSAIFinishDense<<<1, kSystemThreads, 0, stream_>>>(task, row.row, system);
      FinePCCheckLaunch();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename T, int N>
  PetscErrorCode LaunchRegisters(const ValueTask &task)
  {
    const auto   kernel = SFSAISolveInRegisters<T, N>;
    const size_t bytes  = sizeof(GroupWork<T, N>) * (kRegisterBlock / N);

    PetscFunctionBegin;
    PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    kernel<<<BlocksFor((long long)task.items * N, kRegisterBlock), kRegisterBlock, bytes, stream_>>>(task);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename T, bool InShared>
  PetscErrorCode LaunchBlocks(ValueTask &task)
  {
    const auto   kernel = SFSAISolveInBlocks<T, InShared>;
    const size_t bytes  = BlockRow<T, InShared>::SharedBytes(task.largest);
    int          blocks = task.items;

    PetscFunctionBegin;
    PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    if (!InShared) {
      const char *const end = (const char *)kept_.data + kept_.bytes;
      task.global_work      = systems_;
      task.work_stride      = SFSAISystemBytes(task.largest);
      blocks                = (int)std::min<size_t>(blocks, (size_t)(end - systems_) / task.work_stride);
    }
    kernel<<<blocks, ThreadsForSystem(task.largest), bytes, stream_>>>(task);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     G chunk by chunk. A first pass over the chunks finds d and the lengths of the rows that the postfilter leaves. Then G has its
     memory, and the chunks go there from the last one on, which is still at hand; the others are computed again, to the same bits.
  */
  PetscErrorCode Filtered(SFSAIPattern &pattern)
  {
    const size_t      value_bytes = FinePCPrecisionBytes(params_.factor_precision), entry_bytes = sizeof(LocalInt) + value_bytes;
    const size_t      limit = params_.work_limit - std::min(params_.work_limit, pattern.PoolBytes());
    const size_t      most  = std::max<size_t>(limit / entry_bytes, (size_t)pattern.longest);
    const size_t      room  = std::min<size_t>(most, (size_t)pattern.nnz);
    LocalInt         *i = nullptr, *length = nullptr, *j = nullptr, end = 0, base = 0, nnz = 0;
    void             *a = nullptr;
    Buffer<char>      work(&meter_);
    Buffer<PetscReal> d_again(&meter_);
    CubScratch        scratch;
    Layout            layout;
    std::vector<LocalInt> firsts; /* of the chunks */
    const auto            scan = [&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, length, length, rows_ + 1, stream_);
    };

    PetscFunctionBegin;
    PetscCall(scratch.Measure(scan));
    layout.Place(&i, rows_ + 1);
    layout.Place(&length, rows_ + 1);
    scratch.Place(&layout);
    layout.Place(&j, room);
    layout.Place(&a, room * value_bytes);
    PetscCall(layout.Allocate(&work));
    PetscCall(pattern.Scan(i));
    for (LocalInt first = 0; first < rows_; first = end) {
      firsts.push_back(first);
      PetscCall(ReadInt(i + first, &base));
      PetscCall(EndOfChunk(i, first, base + (PetscInt64)most, &end));
      PetscCall(pattern.Fill(first, end, i, base, j));
      PetscCall(Solve(first, end, i, j, a, base, length, d_));
      pattern.UseScaling(s_);
    }
    PetscCallCUDA(cudaMemsetAsync(length + rows_, 0, sizeof(LocalInt), stream_));
    PetscCall(scratch.Run(scan));
    PetscCall(ReadInt(length + rows_, &nnz));
    PetscCall(CSRCreate(rows_, A_.n, nnz, params_.factor_precision, PETSC_MEMTYPE_CUDA, &G_));
    PetscCall(ArrayCopy_CUDA(G_.i, length, (rows_ + 1) * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    const FSAIStats counted = stats_;
    if (firsts.size() > 1) {
      PetscCall(d_again.Allocate(rows_));
      PetscCall(ArrayCopy_CUDA(d_again.data(), d_, rows_ * sizeof(PetscReal), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    }
    for (bool at_hand = true; !firsts.empty(); at_hand = false) {
      const LocalInt first = firsts.back();
      if (!at_hand) {
        PetscCall(ReadInt(i + first, &base));
        PetscCall(pattern.Fill(first, end, i, base, j));
        PetscCall(Solve(first, end, i, j, a, base, length, d_again.data()));
      }
      PetscCall(Compact(first, end, i, base, j, a));
      end = first;
      firsts.pop_back();
    }
    stats_ = counted;
    PetscCall(FindLongestRow());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows first .. end - 1 of G, which begin at G_.i, from those of a chunk. */
  PetscErrorCode Compact(LocalInt first, LocalInt end, const LocalInt *i, LocalInt base, const LocalInt *j, const void *a)
  {
    const int             blocks = BlocksFor((long long)(end - first) * kScanGroup);
    const LocalInt *const to     = G_.i + first;

    PetscFunctionBegin;
    if (params_.factor_precision == FINEPC_SINGLE)
      SFSAICompact<float, kScanGroup>
        <<<blocks, kBlockSize, 0, stream_>>>(first, end, i, base, j, (const float *)a, to, G_.j, (float *)G_.a);
    else
      SFSAICompact<double, kScanGroup>
        <<<blocks, kBlockSize, 0, stream_>>>(first, end, i, base, j, (const double *)a, to, G_.j, (double *)G_.a);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The longest row of G by the kernel of the classes: with a limit that no row passes, all rows are of the first class. */
  PetscErrorCode FindLongestRow()
  {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(Tally), stream_));
    SFSAIClasses<<<BlocksFor(rows_), kBlockSize, 0, stream_>>>(rows_, nullptr, 0, G_.i, ClassLimits{{INT_MAX}}, key_, list_,
                                                               tally_);
    FinePCCheckLaunch();
    PetscCall(ReadTally());
    stats_.max_row = host_.largest[0];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ReadInt(const LocalInt *from, LocalInt *value)
  {
    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(value, from, sizeof(*value), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The largest end with i[end] <= limit, but one row at least. */
  PetscErrorCode EndOfChunk(const LocalInt *i, LocalInt first, PetscInt64 limit, LocalInt *end)
  {
    using Row            = thrust::counting_iterator<LocalInt>;
    PetscErrorCode error = PETSC_SUCCESS;
    const auto     fits  = [&](LocalInt row) {
      LocalInt value = 0;
      if (!error) error = ReadInt(i + row, &value);
      return value <= limit;
    };

    PetscFunctionBegin;
    *end = rows_;
    if (!fits(rows_)) *end = std::max(*std::partition_point(Row(first + 1), Row(rows_), fits) - 1, first + 1);
    PetscCall(error);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  const CSRView     &A_;
  const LocalInt     own_, rows_; /* the first row of A that is a row of G, and the rows of G */
  const CSRView     *S_;
  const SFSAIParams &params_;
  const bool         keep_;
  CSR               &G_;
  PetscReal         *d_;
  SFSAIWork         &kept_;
  FSAIStats         &stats_;
  WorkMeter          meter_;
  cudaStream_t       stream_ = nullptr;
  Tally              host_   = {};
  DenseSolver        dense_;
  LocalInt           sorted_items_ = 0;

  /* the arrays in kept_ */
  PetscReal     *s_      = nullptr; /* [n] */
  Tally         *tally_  = nullptr;
  LocalInt      *list_   = nullptr; /* [n] */
  LocalInt      *sorted_ = nullptr; /* [n] rows by class; the first sorted_items_ are set */
  LocalInt      *bad_    = nullptr; /* [n] */
  unsigned char *key_ = nullptr, *sorted_key_ = nullptr;
  CubScratch     scratch_;
  char          *fsai_work_ = nullptr;
  char          *systems_   = nullptr;
};

} // namespace

PetscErrorCode SFSAIComputeFactor_CUDA(const CSRView *A, LocalInt first, const CSRView *S, const SFSAIParams *params,
                                       PetscBool keep, CSR *G, PetscReal *d, SFSAIWork *work, FSAIStats *stats)
{
  PetscFunctionBegin;
  FSAIStatsBegin(keep, stats);
  if (A->n == first) {
    if (!keep) PetscCall(CSRCreate(0, A->n, 0, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(SetUp(*A, first, S, *params, keep, *G, d, *work, *stats).Run());
  PetscFunctionReturn(PETSC_SUCCESS);
}
