/*
   The systems of the rows of G, for sfsai_values.cu: the CUDA twin of what src/pc/sfsai/sfsai_host.cxx does for the values on a
   pattern, which has the formulas. The numbers of equations are those of Bernaschi, Bisson, Fantozzi and Janna.

   Systems are gathered and solved in one kernel, and never written out as a batch. A group of lanes takes a system of up to 32
   unknowns in registers, by Gauss-Jordan elimination in which the lanes that Cholesky's factorisation leaves idle solve for the row
   of G. A block takes a larger one in tiles in shared memory. Still larger ones are in global memory, and as many blocks take them
   as the work space has room for. A system of more than kCholeskyLargest unknowns is left to cuSOLVER, as the host twin leaves it
   to LAPACK.
*/
#pragma once

#include "pc/fsai.cuh"
#include "sfsai_dense.cuh"
#include "sparse/dense.cuh"
#include "sparse/dense.h"

namespace
{

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
constexpr int kGatherAhead   = 4;                     /* entries that such a lane asks for before it uses any */
template <typename T>
constexpr int kBlocksAtOnce = sizeof(T) == sizeof(float) ? 4 : 2; /* blocks of kSystemThreads for which a processor has registers */
static_assert(kClasses <= 1 << kClassBits, "a key holds every class");

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

  /* y [n], P [n], slots [SlotsFor(n)] and sum [kSums], all of the block. */
  __device__ void Use(T *y, int *P, int *slots, double *sum)
  {
    y_     = y;
    P_     = P;
    slots_ = slots;
    sum_   = sum;
  }

  __device__ void ReadColumns()
  {
    const LocalInt *columns = task_.G_j + (task_.G_i[row_] - task_.base);
    for (unsigned h = threadIdx.x; h <= LastSlot(); h += blockDim.x) slots_[h] = kEmpty;
    __syncthreads();
    for (int r = threadIdx.x; r < n_; r += blockDim.x) {
      const int column = r == n_ - 1 ? (int)row_ : (int)columns[r];
      unsigned  h      = Slot(column);
      while (atomicCAS(slots_ + h, kEmpty, r) != kEmpty) h = (h + 1) & LastSlot();
      P_[r] = column;
    }
  }

  /* Calls use(r, c, value) for the entries c < r of S A S over P; groups of lanes read the rows. */
  template <typename Visit>
  __device__ void ForEachEntry(Visit visit) const
  {
    for (int r = threadIdx.x / kGatherGroup; r < n_; r += blockDim.x / kGatherGroup) {
      const int      q   = P_[r];
      const double   s_q = task_.s[q];
      const LocalInt end = task_.A.i[q + 1];
      for (LocalInt k = task_.A.i[q] + threadIdx.x % kGatherGroup; k < end; k += kGatherAhead * kGatherGroup) {
        int    column[kGatherAhead], place[kGatherAhead];
        double value[kGatherAhead];
#pragma unroll
        for (int e = 0; e < kGatherAhead; e++)
          column[e] = k + e * kGatherGroup < end ? (int)task_.A.j[k + e * kGatherGroup] : INT_MAX;
#pragma unroll
        for (int e = 0; e < kGatherAhead; e++) place[e] = column[e] < q ? Find(column[e]) : kEmpty;
#pragma unroll
        for (int e = 0; e < kGatherAhead; e++)
          value[e] = place[e] != kEmpty ? task_.A.a[k + e * kGatherGroup] * s_q * task_.s[column[e]] : 0;
#pragma unroll
        for (int e = 0; e < kGatherAhead; e++)
          if (place[e] != kEmpty) visit(r, place[e], (T)value[e]);
        if (column[kGatherAhead - 1] >= q) break;
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

  static constexpr int kEmpty = -1, kSums = 32; /* most warps of a block */

protected:
  /*
     The place of a column in P, or kEmpty, from a table of slots with linear probing. A binary search in P takes as many steps as
     its length has bits, each with the latency of shared memory.
  */
  __device__ int Find(int column) const
  {
    for (unsigned h = Slot(column);; h = (h + 1) & LastSlot()) {
      const int r = slots_[h];
      if (r == kEmpty || P_[r] == column) return r;
    }
  }
  /* SlotsFor(n) - 1, and where the search for a column begins: columns that follow one another begin far apart. */
  __device__ unsigned LastSlot() const { return ~0u >> __clz(2 * n_ - 1); }
  __device__ unsigned Slot(int column) const { return (unsigned)column * 2654435769u >> __clz(2 * n_ - 1); }

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
  T               *y_     = nullptr;
  int             *P_     = nullptr;
  int             *slots_ = nullptr; /* places in P, or kEmpty */
  double          *sum_   = nullptr;
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
    return Padded(Cholesky::SharedBytes(n)) + Padded(padded * sizeof(T)) + Padded(n * sizeof(int)) +
           Padded(SlotsFor(n) * sizeof(int)) + Row::kSums * sizeof(double);
  }

  __device__ BlockRow(const ValueTask &task, LocalInt row, char *shared, T *global) : Row(task, row), cholesky_(shared, n_, global)
  {
    T *const   y     = (T *)(shared + Padded(Cholesky::SharedBytes(n_)));
    int *const P     = (int *)((char *)y + Padded(Cholesky::Tiles(n_) * kTile * sizeof(T)));
    int *const slots = (int *)((char *)P + Padded(n_ * sizeof(int)));
    Row::Use(y, P, slots, (double *)((char *)slots + Padded(SlotsFor(n_) * sizeof(int))));
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

  of_block.Use(system.y, system.P, system.slots, nullptr);
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
  of_block.Use(system.y, system.P, system.slots, sum);
  of_block.Finish();
}

} // namespace
