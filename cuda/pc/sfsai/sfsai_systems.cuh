/*
   The systems of the rows of G, for sfsai_values.cu: the CUDA twin of what src/pc/sfsai/sfsai_host.cxx does for the values on a
   pattern, which has the formulas. The numbers of equations are those of Bernaschi, Bisson, Fantozzi and Janna.

   Systems are gathered and solved in one kernel, and never written out as a batch. A group of lanes takes a system of up to 32
   unknowns in registers, by Gauss-Jordan elimination in which the lanes that Cholesky's factorisation leaves idle solve for the
   rows of G. A block takes a larger one in tiles in shared memory. Still larger ones are in global memory, and as many blocks take
   them as the work space has room for. A system of more than kCholeskyLargest unknowns is left to cuSOLVER, as the host twin leaves
   it to LAPACK.

   A row whose pattern is that of the row before and that row itself is nested. Its system begins with that of the row before, and
   so do their factors. Such rows, which the unknowns of a node have, are solved with the system of the last of them: once it is
   factorized, each row takes a substitution and psi alone. The limits of a chunk of rows do not cut such runs, so that they do not
   change a bit.
*/
#pragma once

#include "pc/fsai.cuh"
#include "search.cuh"
#include "sfsai_dense.cuh"
#include "sparse/dense.cuh"
#include "sparse/dense.h"

namespace
{

/*
   The classes of systems. The first are those of systems by their size, in which the index of the row itself is counted: up to 8,
   16 and 32 in registers, then in shared memory by blocks of more and more threads, then in global memory by blocks, and those of
   cuSOLVER. The last are those of systems in registers that solve several rows, which takes more registers.
*/
constexpr int kSizeClasses = 8, kRegisterClasses = 3, kDenseClass = kSizeClasses - 1, kGlobalClass = kDenseClass - 1;
constexpr int kClasses        = kSizeClasses + kRegisterClasses;
constexpr int kNoClass        = kClasses; /* of rows that other rows' systems solve */
constexpr int kClassBits      = 4;        /* bits of a sort key */
constexpr int kRegisterSize[] = {8, 16, 32};
constexpr int kSharedSize[] = {4 * kTile, 8 * kTile}; /* of the first classes in shared memory, of which the last takes what fits */
constexpr int kRegisterBlock = 128;                   /* threads of a block of which every group takes a row */
constexpr int kGatherGroup   = 8;                     /* lanes of a block that read a row of A together */
constexpr int kGatherAhead   = 4;                     /* entries that such a lane asks for before it uses any */
constexpr int kVectors       = 3;                     /* rows for which a block with its system in shared memory solves at a time */
template <typename T>
constexpr int kBlocksAtOnce = sizeof(T) == sizeof(float) ? 4 : 2; /* blocks of kSystemThreads for which a processor has registers */
static_assert(kNoClass < 1 << kClassBits, "a key holds every class");

/* Counters that the kernels write and the host reads. */
struct Tally {
  int   systems[kClasses], largest[kClasses]; /* in each class: how many, and the largest */
  int   large;                                /* rows that are too long for shared memory */
  Count bad_pivot, diagonal, dropped;
};

/* What is known of a row. */
enum RowState : unsigned char {
  ROW_NESTED = 1, /* in the system of the row before with one more unknown */
  ROW_BAD    = 2  /* single precision cannot do it */
};

struct ValueTask {
  CSRView          A;
  const PetscReal *s;
  const LocalInt  *rows; /* [items] the last row of each system */
  LocalInt         items;
  const LocalInt  *G_i;
  LocalInt        *G_j; /* the entries of G from base on; the postfilter marks what it drops */
  void            *G_a;
  LocalInt         base;
  PetscReal       *d;      /* diag(A) before, 1 / psi after; as G_i and length it is indexed by the rows of A */
  LocalInt        *length; /* entries kept, or null where there is no postfilter */
  unsigned char   *state;  /* [n] of rows */
  unsigned char   *shared; /* [n] how many rows the system of a row solves: so many, of which it is the last */
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
   What becomes of a row that cannot be solved: in single precision it is marked for another try, in double precision its diagonal
   is left. So many threads share the work.
*/
template <typename T>
__device__ inline void GiveUp(const ValueTask &task, LocalInt row, int thread, int threads)
{
  if constexpr (sizeof(T) == sizeof(float)) {
    if (thread == 0) {
      task.state[row] |= ROW_BAD;
      atomicAdd(&task.tally->bad_pivot, (Count)1);
    }
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
   A group of N lanes takes a system. It stands at the end of N places, behind the identity, and the last places are those of the
   rows themselves. Only the lower triangle of A[P, P] is read; S A S without its unit diagonal is kept as a whole in shared memory.
*/
template <typename T, int N>
struct GroupWork {
  double s[N], g[N];
  T      S[N][N], column[2 * N];
  int    P[N];
};

template <typename T, int N, bool Several>
__global__ void __launch_bounds__(kRegisterBlock) SFSAISolveInRegisters(ValueTask task)
{
  extern __shared__ __align__(16) char shared_work[];

  GroupWork<T, N> &work  = ((GroupWork<T, N> *)shared_work)[threadIdx.x / N];
  const long long  item  = GridThread() / N;
  const int        lane  = threadIdx.x % N;
  const bool       mine  = item < task.items;
  const LocalInt   last  = mine ? task.rows[item] : 0;
  const LocalInt   start = mine ? task.G_i[last] : 0;
  const int        size = mine ? (int)(task.G_i[last + 1] - start) + 1 : 1, first = N - size; /* the first place that is used */
  const int        rows = !mine ? 0 : Several ? task.shared[last] : 1;
  const bool       used = mine && lane >= first;
  const int        q    = lane == N - 1 ? (int)last : used ? (int)task.G_j[start - task.base + lane - first] : -1;
  const double     s_q  = used ? task.s[q] : 0;
  work.P[lane]          = q;
  work.s[lane]          = s_q;
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
  const int begin = N == kWarpSize ? first : GroupMin<kWarpSize>(first);
  const int bad   = Eliminate<N, false>(a, work.column, begin, kSmallestPivot<T>, inverse);

  /* Column c is left as it was when the pivots before c were done, and so the row of place c is there as that of the last is. */
  const int most = Several ? GroupMax<kWarpSize>(rows) : 1;
  for (int b = 0; b < most; b++) {
    const int      own_place = N - 1 - b;
    const bool     solved    = b < rows;
    const LocalInt row = last - b, row_start = solved ? task.G_i[row] : 0;
    T              above = 0;
#pragma unroll
    for (int c = 0; c < N; c++)
      if (c == own_place) above = a[c];
    const bool   other  = used && lane < own_place;
    double       g      = lane == own_place ? 1. : other ? (double)(-above * inverse) : 0.;
    const double own    = g * s_q; /* the entry of the unscaled row, times s of the row */
    bool         failed = bad <= own_place || !isfinite((float)(own / work.s[own_place]));

    if (task.postfilter > 0) { /* (3.11) */
      const double norm = sqrt(GroupSum<N>(own * own));
      if (other && fabs(own) <= task.postfilter * norm) g = 0;
    }
    __syncwarp(); /* the row before has been read */
    work.g[lane] = g;
    __syncwarp();
    /* psi = g~ A g~^T, (3.13), is of the g that is kept, so that diag(G A G^T) = 1 holds whatever the rounding errors of g */
    double sum = g;
    for (int c = begin; c <= own_place; c++) sum += (double)work.S[c][lane] * work.g[c];
    const double psi      = GroupSum<N>(g * sum);
    failed                = failed || !(psi > kSmallestPivot<T>);
    failed                = GroupBallot<N>(failed);
    const bool     kept   = other && !(task.length && g == 0);
    const unsigned ballot = GroupBallot<N>(kept);
    if (!solved) continue;
    if (failed) {
      GiveUp<T>(task, row, lane, N);
      continue;
    }
    if (other) {
      const LocalInt entry = row_start + lane - first;
      StoreValue(task, entry, own / work.s[own_place]);
      if (!kept) task.G_j[entry - task.base] = kDropped;
    }
    if (lane == 0) {
      task.d[row] = 1 / (task.d[row] * psi);
      if (task.length) {
        task.length[row] = __popc(ballot);
        if (__popc(ballot) < size - 1 - b) atomicAdd(&task.tally->dropped, (Count)(size - 1 - b - __popc(ballot)));
      }
    }
  }
}

/*
   The system that a block works on: its columns P, of which the last ones are the rows that it solves, and solutions y of up to
   Vectors of these rows at a time, wherever they are.
*/
template <typename T, int Vectors>
class SystemOfBlock {
public:
  __device__ SystemOfBlock(const ValueTask &task, LocalInt last) :
      task_(task), last_(last), n_((int)(task.G_i[last + 1] - task.G_i[last]) + 1)
  {
  }

  /* y [Vectors stride], P [n], slots [SlotsFor(n)] and sums [kSums], all of the block. */
  __device__ void Use(T *y, int stride, int *P, int *slots, double *sums)
  {
    y_      = y;
    stride_ = stride;
    P_      = P;
    slots_  = slots;
    sums_   = sums;
  }

  __device__ void ReadColumns()
  {
    const LocalInt *columns = task_.G_j + (task_.G_i[last_] - task_.base);
    for (unsigned h = threadIdx.x; h <= LastSlot(); h += blockDim.x) slots_[h] = kEmpty;
    __syncthreads();
    for (int r = threadIdx.x; r < n_; r += blockDim.x) {
      const int column = r == n_ - 1 ? (int)last_ : (int)columns[r];
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

  /*
     Rows of G from y: vector v is g~ of the row of size - v unknowns, up to the rounding of its last entry, and 0 behind it.
  */
  __device__ void Finish(int size, int vectors)
  {
    const PetscReal *s      = task_.s;
    unsigned         finite = 0; /* a bit for each vector */
    for (int v = 0; v < vectors; v++) {
      T *const     y     = y_ + v * stride_;
      const int    own   = size - 1 - v; /* the place of the row */
      const double s_row = s[P_[own]];
      double       norm  = 0;
      bool         good  = true;
      if (threadIdx.x == 0) y[own] = 1;
      __syncthreads();
      for (int r = threadIdx.x; r <= own; r += blockDim.x) {
        const double value = y[r] * s[P_[r]];
        norm += value * value;
        good = good && isfinite((float)(value / s_row));
      }
      finite |= (unsigned)(__syncthreads_and(good) != 0) << v;
      if (task_.postfilter > 0) { /* (3.11) */
        StoreSum(0, norm);
        __syncthreads();
        norm = task_.postfilter * sqrt(LoadSum(0));
        for (int r = threadIdx.x; r < own; r += blockDim.x)
          if (fabs(y[r] * s[P_[r]]) <= norm) y[r] = 0;
        __syncthreads();
      }
    }

    double part[Vectors] = {}; /* of psi, which is computed as in SFSAISolveInRegisters */
    for (int r = threadIdx.x; r < size; r += blockDim.x)
#pragma unroll
      for (int v = 0; v < Vectors; v++)
        if (v < vectors) part[v] += (double)y_[v * stride_ + r] * y_[v * stride_ + r];
    ForEachEntry([&](int r, int c, T value) {
#pragma unroll
      for (int v = 0; v < Vectors; v++)
        if (v < vectors) part[v] += 2 * (double)value * y_[v * stride_ + r] * y_[v * stride_ + c];
    });
#pragma unroll
    for (int v = 0; v < Vectors; v++) StoreSum(v, part[v]);
    __syncthreads();

    for (int v = 0; v < vectors; v++) {
      const T *const y   = y_ + v * stride_;
      const int      own = size - 1 - v;
      const LocalInt row = P_[own], start = task_.G_i[row];
      const double   s_row = s[row], psi = LoadSum(v);
      if (!(finite >> v & 1) || !(psi > kSmallestPivot<T>)) {
        GiveUp<T>(task_, row, threadIdx.x, blockDim.x);
        continue;
      }
      int kept = 0;
      for (int base = 0; base < own; base += blockDim.x) {
        const int  r    = base + threadIdx.x;
        const bool used = r < own, drop = used && task_.length && y[r] == 0;
        if (used) StoreValue(task_, start + r, y[r] * s[P_[r]] / s_row);
        if (drop) task_.G_j[start - task_.base + r] = kDropped;
        kept += __syncthreads_count(used && !drop);
      }
      if (threadIdx.x == 0) {
        task_.d[row] = 1 / (task_.d[row] * psi);
        if (task_.length) {
          task_.length[row] = kept;
          atomicAdd(&task_.tally->dropped, (Count)(own - kept));
        }
      }
    }
  }

  static constexpr int kEmpty = -1, kWarps = kSystemThreads / kWarpSize, kSums = Vectors * kWarps;

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

  /* The v-th of the sums over the block: each warp stores its part, and behind a barrier every thread gets the sum. */
  __device__ void StoreSum(int v, double x)
  {
    x = GroupSum<kWarpSize>(x);
    if (threadIdx.x % kWarpSize == 0) sums_[v * kWarps + threadIdx.x / kWarpSize] = x;
  }
  __device__ double LoadSum(int v) const
  {
    double sum = 0;
    for (unsigned w = 0; w < blockDim.x / kWarpSize; w++) sum += sums_[v * kWarps + w];
    return sum;
  }

  const ValueTask &task_;
  const LocalInt   last_;
  const int        n_;
  T               *y_      = nullptr;
  int              stride_ = 0;
  int             *P_      = nullptr;
  int             *slots_  = nullptr; /* places in P, or kEmpty */
  double          *sums_   = nullptr;
};

/* A system that the block factorizes itself. It solves so many rows, of which the last is given. */
template <typename T, bool InShared>
class BlockSystem : SystemOfBlock<T, InShared ? kVectors : 1> {
public:
  static constexpr int kAtOnce = InShared ? kVectors : 1;
  using System                 = SystemOfBlock<T, kAtOnce>;
  using Cholesky               = BlockCholesky<T, InShared>;

  static size_t SharedBytes(int n)
  {
    return Padded(Cholesky::SharedBytes(n)) + Padded(kAtOnce * Cholesky::Tiles(n) * kTile * sizeof(T)) + Padded(n * sizeof(int)) +
           Padded(SlotsFor(n) * sizeof(int)) + System::kSums * sizeof(double);
  }

  __device__ BlockSystem(const ValueTask &task, LocalInt last, int rows, char *shared, T *global) :
      System(task, last), rows_(rows), cholesky_(shared, n_, global)
  {
    const int  padded = Cholesky::Tiles(n_) * kTile;
    T *const   y      = (T *)(shared + Padded(Cholesky::SharedBytes(n_)));
    int *const P      = (int *)((char *)y + Padded(kAtOnce * padded * sizeof(T)));
    int *const slots  = (int *)((char *)P + Padded(n_ * sizeof(int)));
    System::Use(y, padded, P, slots, (double *)((char *)slots + Padded(SlotsFor(n_) * sizeof(int))));
  }

  /* Returns how many of the rows, from the last on, have a pivot that is bad; if there are any, the other rows are still to do. */
  __device__ int Do()
  {
    System::ReadColumns();
    cholesky_.Clear();
    System::ForEachEntry([&](int r, int c, T value) { cholesky_.Set(r, c, value); });
    __syncthreads();
    const int bad = cholesky_.Factorize(kSmallestPivot<T>); /* its last pivot is psi, of which L has the square root */
    if (bad != INT_MAX) {
      const int lost = min(rows_, max(n_ - bad, 1));
      for (int b = 0; b < lost; b++) GiveUp<T>(task_, last_ - b, threadIdx.x, blockDim.x);
      return lost;
    }
    for (int b = 0; b < rows_; b += kAtOnce) {
      const int vectors = min(kAtOnce, rows_ - b), size = n_ - b;
      /* L^T g~ = l_ii e_i, by (3.6) and (3.7) */
      for (int k = threadIdx.x; k < vectors * stride_; k += blockDim.x) y_[k] = 0;
      __syncthreads();
      if (threadIdx.x < vectors) {
        const int own                   = size - 1 - (int)threadIdx.x;
        y_[threadIdx.x * stride_ + own] = cholesky_.Get(own, own);
      }
      SolveTransposed(vectors);
      System::Finish(size, vectors);
      __syncthreads();
    }
    return 0;
  }

private:
  static __host__ __device__ size_t Padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

  /* The first vectors y become L^{-T} y: half a warp takes a diagonal tile for a vector, then all threads what is above the tile.
   */
  __device__ void SolveTransposed(int vectors)
  {
    static_assert(kAtOnce * kTile <= 2 * kWarpSize, "the smallest block has half a warp for each vector");
    for (int k = Cholesky::Tiles(n_) - 1; k >= 0; k--) {
      const int first = k * kTile;
      __syncthreads();
      if (threadIdx.x / kWarpSize * (kWarpSize / kTile) < vectors) { /* a half that has no vector does what its other half does */
        const int c = threadIdx.x % kTile;
        T *const  y = y_ + min((int)threadIdx.x / kTile, vectors - 1) * stride_ + first;
        T         l[kTile], own = y[c];
        const T   inverse = first + c < n_ ? Reciprocal(cholesky_.Get(first + c, first + c)) : T(1);
        __syncwarp(); /* both halves have read y */
#pragma unroll
        for (int r = 0; r < kTile; r++) l[r] = r > c && first + r < n_ ? cholesky_.Get(first + r, first + c) : 0;
#pragma unroll
        for (int r = kTile - 1; r >= 0; r--) {
          const T solved = __shfl_sync(kFullWarp, own * inverse, r, kTile);
          own            = c == r ? solved : own - l[r] * solved;
          if (c == r) y[c] = solved;
        }
      }
      __syncthreads();
      const int rows = min(kTile, n_ - first);
      for (int at = threadIdx.x; at < vectors * first; at += blockDim.x) {
        const int v = at / first, c = at - v * first;
        T *const  y   = y_ + v * stride_;
        T         sum = y[c];
        for (int r = 0; r < rows; r++) sum -= cholesky_.Get(first + r, c) * y[first + r];
        y[c] = sum;
      }
    }
    __syncthreads();
  }

  using System::last_;
  using System::n_;
  using System::stride_;
  using System::task_;
  using System::y_;
  const int rows_;
  Cholesky  cholesky_;
};

/* A block takes a system, or one system after the other where there are more systems than blocks. */
template <typename T, bool InShared>
__global__ void __launch_bounds__(kSystemThreads, kBlocksAtOnce<T>) SFSAISolveInBlocks(ValueTask task)
{
  extern __shared__ __align__(16) char shared_work[];

  for (LocalInt item = blockIdx.x; item < task.items; item += gridDim.x) {
    LocalInt last = task.rows[item];
    int      rows = task.shared[last];
    while (rows > 0) {
      const int lost =
        BlockSystem<T, InShared>(task, last, rows, shared_work, (T *)(task.global_work + blockIdx.x * task.work_stride)).Do();
      last -= lost;
      rows = lost ? rows - lost : 0;
      __syncthreads();
    }
  }
}

/* The system of a row for cuSOLVER, whose matrix is 0 before, with the right-hand side e_n. One block. */
__global__ void __launch_bounds__(kSystemThreads) SFSAIGatherDense(ValueTask task, LocalInt row, DenseSystem system)
{
  const size_t             n = system.n;
  SystemOfBlock<double, 1> of_block(task, row);

  of_block.Use(system.y, system.n, system.P, system.slots, nullptr);
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
  using System = SystemOfBlock<double, 1>;
  __shared__ double sums[System::kSums];
  const size_t      n    = system.n;
  int               good = system.info[0] == 0;
  System            of_block(task, row);

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
  of_block.Use(system.y, system.n, system.P, system.slots, sums);
  of_block.Finish(system.n, 1);
}

} // namespace
