/*
   CUDA twin of src/pc/bisai/bisai_host.cxx. A group of bs * entries lanes takes a block row of N, and lane (r, e) has row r of its
   blocks: the rows of a block row of N are independent of each other, since N_i(J) T(J, J) = I_i(J) holds for each row by itself.
   Of the blocks of row k of T, lane (r, e) takes block e and then every `entries`-th block. These belong to different X_j. So the
   lanes of a group meet once for each k, and have no sums to add up between them.

   By columns everything is transposed: a group takes a block column of N, and lane (r, e) has column r of its blocks. The kernel is
   the same, but reads the rows of a T^T that is not formed: the lists of BISAIColumns tell where its blocks are in T, and the
   entries of a block are read and written with rows and columns exchanged.

   X is in shared memory or, for block rows that are too long for that, in a work space of bounded size. J is searched by bisection.
*/
#include <cub/cub.cuh>

#include <algorithm>
#include <limits>

#include "sparse/block.cuh"
#include "scratch.cuh"
#include "search.cuh"
#include "pc/bisai/bisai.h"
#include "pc/sfsai/sfsai.h"

namespace
{

constexpr int kSolveBlock  = 128; /* threads of a thread block of the solve */
constexpr int kSharedShare = 2;   /* at least so many thread blocks are to share the shared memory of a processor */
constexpr int kGatherGroup = 8;   /* lanes that take a row together in kernels that copy a pattern */
constexpr int kNegateGroup = 16;  /* lanes that take a block row together in kernels that copy blocks */
constexpr int kNegateWarps = 4;   /* warps of a thread block that inverts diagonal blocks */

/* Blocks of a row of T that are taken at once, chosen for each block size so that few lanes of a warp are left over. */
template <int BS>
constexpr int kEntries = BS == 5   ? 3
                         : BS == 6 ? 5
                         : BS == 0 ? 1
                                   : 4;

template <typename S>
constexpr S kSmallestNormal = std::numeric_limits<S>::min();

/* The lanes that take a block column together in the kernel that finds places. */
constexpr int kPlaceGroup = 8;

/* What the kernels of a set-up count. The tally is the first thing in the work space. */
struct Tally {
  int                fallback, lost_diagonals;
  unsigned long long lost_entries;
};

struct TriangleView {
  const LocalInt *begin, *end; /* [n] the blocks of each block row, without the diagonal */
};

TriangleView Rows_BISAI(const BlockLU &F, BISAITriangle triangle)
{
  if (triangle == BISAI_LOWER) return TriangleView{F.place[LU_L], F.place[LU_L_END]};
  return TriangleView{F.place[LU_U], F.place[LU_U_END]};
}

/* ------------------------------------------ pattern ------------------------------------------- */

/* The numbers of blocks in the block rows of T, and a 0 behind them. Rows of U are counted from the end. */
__global__ void BISAICountRows(LocalInt n, TriangleView T, bool upper, LocalInt *length)
{
  const LocalInt i = (LocalInt)GridThread();
  if (i > n) return;
  const LocalInt row = upper ? n - 1 - i : i;
  length[i]          = i < n ? T.end[row] - T.begin[row] : 0;
}

/* Copies the pattern of T. Rows and columns of U are counted from the end, which makes U lower triangular. */
__global__ void BISAICopyRows(LocalInt n, TriangleView T, bool upper, const LocalInt *j, const LocalInt *T_i, LocalInt *T_j)
{
  const LocalInt i = (LocalInt)(GridThread() / kGatherGroup);
  if (i >= n) return;
  const LocalInt row = upper ? n - 1 - i : i, length = T_i[i + 1] - T_i[i];
  for (LocalInt k = threadIdx.x % kGatherGroup; k < length; k += kGatherGroup)
    T_j[T_i[i] + k] = upper ? n - 1 - j[T.end[row] - 1 - k] : j[T.begin[row] + k];
}

/* The pattern of N from that of the symbolic product S, which is strictly lower triangular, as T is in BISAICopyRows(). */
__global__ void BISAIPlacePattern(LocalInt n, bool upper, bool diagonal, const LocalInt *S_i, const LocalInt *S_j, LocalInt *N_i,
                                  LocalInt *N_j, LocalInt *longest)
{
  const LocalInt i = (LocalInt)(GridThread() / kGatherGroup);
  if (i >= n) return;
  const LocalInt row = upper ? n - 1 - i : i, length = S_i[row + 1] - S_i[row];
  const LocalInt to    = (upper ? S_i[n] - S_i[row + 1] : S_i[row]) + (diagonal ? i : 0);
  const LocalInt first = to + (upper && diagonal);
  for (LocalInt k = threadIdx.x % kGatherGroup; k < length; k += kGatherGroup)
    N_j[first + k] = upper ? n - 1 - S_j[S_i[row + 1] - 1 - k] : S_j[S_i[row] + k];
  if (threadIdx.x % kGatherGroup) return;
  N_i[i] = to;
  if (diagonal) N_j[upper ? to : to + length] = i;
  if (i == n - 1) N_i[n] = to + length + (diagonal ? 1 : 0);
  atomicMax(longest, length);
}

/*
   Places of the blocks of a block column, which are found by bisection in the block rows of a matrix that has blocks begin[i] ..
   end[i] - 1 of `rows` in block row i. Also finds the longest block column; `but` blocks of each are not counted.
*/
__global__ void BISAIPlaceColumns(LocalInt n, TriangleView rows, const LocalInt *j, LocalInt but, const LocalInt *column_i,
                                  const LocalInt *column_j, LocalInt *column_at, LocalInt *longest)
{
  const LocalInt c = (LocalInt)(GridThread() / kPlaceGroup);
  if (c >= n) return;
  for (LocalInt k = column_i[c] + threadIdx.x % kPlaceGroup; k < column_i[c + 1]; k += kPlaceGroup)
    column_at[k] = LowerBound(j, rows.begin[column_j[k]], rows.end[column_j[k]] - 1, c);
  if (threadIdx.x % kPlaceGroup == 0) atomicMax(longest, column_i[c + 1] - column_i[c] - but);
}

/* ------------------------------------------- solve -------------------------------------------- */

/* A line of T or N is one of its block rows or, by columns, one of its block columns. */
struct SolveTask {
  LocalInt           n;
  int                bs;
  bool               diagonal;  /* N stores its diagonal blocks */
  TriangleView       T;         /* the lines of T */
  const LocalInt    *place;     /* [n] the block of the factor that is U_kk^{-1} */
  const LocalInt    *j;         /* the block columns of the factor; by columns the block rows of its columns */
  const LocalInt    *T_at;      /* by columns the places of these blocks in `a` */
  const PetscScalar *a;         /* values of the factor */
  const LocalInt    *N_i, *N_j; /* the lines of N */
  const LocalInt    *N_at;      /* by columns the places of their blocks in the values of N */
  LocalInt           in_shared; /* lines of at most so many blocks have X in shared memory */
  LocalInt           room;      /* blocks for which an X has room */
  double            *work;      /* [room * bs^2] for each group of the grid: the X of the other lines */
  Tally             *tally;
};

/* Twin of Holds() of the host, for a block of which each lane of the group has a row. All lanes get the same answer. */
template <int BS, typename S>
__device__ bool Holds(unsigned mask, int bs, const double *x)
{
  bool row = false, good = true;
#pragma unroll
  for (int c = 0; c < bs; c++) {
    const S    size   = (S)fabs(x[c]);
    const bool normal = size >= kSmallestNormal<S>;
    row               = row || normal;
    good              = good && isfinite(size);
    if (!__any_sync(mask, normal)) good = false;
  }
  return __all_sync(mask, row && good);
}

/* The number of groups in a thread block. */
__host__ __device__ constexpr int GroupsOf(int bs, int entries)
{
  return kSolveBlock / kWarpSize * (kWarpSize / (bs * entries));
}

/*
   Solves for the lines of N whose X is in shared memory, or for the others. S is the type of the values of N. Comments and names
   are those of rows; by columns they hold for T^T and N^T.
*/
template <int BS, bool Upper, bool ByColumns, bool InShared, typename S>
__global__ void __launch_bounds__(kSolveBlock) BISAISolveLines(SolveTask task, S *N_a)
{
  extern __shared__ double shared_work[];

  constexpr int  entries   = kEntries<BS>;
  constexpr bool ascending = Upper != ByColumns; /* the blocks of a line come behind i */
  const int      bs = BS ? BS : task.bs, lanes = bs * entries, in_warp = kWarpSize / lanes;
  const int      warp_lane = threadIdx.x % kWarpSize, group = warp_lane / lanes, lane = warp_lane % lanes;
  if (group >= in_warp) return; /* a lane that is left over */
  const unsigned  mask = (lanes == kWarpSize ? kFullWarp : (1u << lanes) - 1u) << group * lanes;
  const int       r = lane % bs, e = lane / bs;
  const int       mine = threadIdx.x / kWarpSize * in_warp + group, groups = GroupsOf(bs, entries);
  const size_t    bs2  = (size_t)bs * bs;
  const long long team = (long long)blockIdx.x * groups + mine, teams = (long long)gridDim.x * groups;
  double *const   X = InShared ? shared_work + mine * (task.room * bs2) : task.work + team * (task.room * bs2);
  for (long long i = team; i < task.n; i += teams) {
    const LocalInt        begin = task.N_i[i], first = begin + (ascending && task.diagonal);
    const LocalInt        m = task.N_i[i + 1] - begin - (task.diagonal ? 1 : 0); /* the size of J without i */
    const LocalInt *const J = task.N_j + first;
    if ((m <= task.in_shared) != InShared) continue;
    for (size_t k = lane; k < m * bs2; k += lanes) X[k] = 0;
    bool good = true, held = true;
    for (LocalInt step = -1; step < m; step++) {
      const LocalInt at = ascending ? step : m - 1 - step; /* the place of k in J; it has no meaning for k = i, which comes first */
      const LocalInt k  = step < 0 ? (LocalInt)i : J[at];
      double         x[BS ? BS : kLargestBlock]; /* row r of N_ik */
      __syncwarp(mask);                          /* all lanes have subtracted their part from X_k */
      if (step < 0) {
#pragma unroll
        for (int c = 0; c < bs; c++) x[c] = c == r;
      } else {
#pragma unroll
        for (int c = 0; c < bs; c++) x[c] = X[at * bs2 + c * bs + r];
      }
      if (Upper) {
        const PetscScalar *const inverse = task.a + task.place[k] * bs2;
        double                   y[BS ? BS : kLargestBlock];
#pragma unroll
        for (int c = 0; c < bs; c++) {
          y[c] = 0;
#pragma unroll
          for (int t = 0; t < bs; t++) y[c] += x[t] * inverse[ByColumns ? t * bs + c : c * bs + t];
        }
#pragma unroll
        for (int c = 0; c < bs; c++) x[c] = y[c];
      }
      if (step >= 0) {
#pragma unroll
        for (int c = 0; c < bs; c++) good = good && isfinite((S)x[c]);
      } else if (Upper) held = Holds<BS, S>(mask, bs, x);
      if (e == 0 && (step >= 0 || task.diagonal)) {
        const LocalInt in_line = step >= 0 ? first + at : ascending ? begin : begin + m;
        S *const       to      = N_a + (ByColumns ? task.N_at[in_line] : in_line) * bs2;
#pragma unroll
        for (int c = 0; c < bs; c++) to[ByColumns ? r * bs + c : c * bs + r] = (S)x[c];
      }
      /* columns ascend in J and in row k of T, so that the search in J begins behind k and goes on where it ended */
      LocalInt       low  = step >= 0 && ascending ? at + 1 : 0;
      const LocalInt last = step >= 0 && !ascending ? at : m;
      for (LocalInt q = task.T.begin[k] + e; q < task.T.end[k]; q += entries) {
        const LocalInt column = task.j[q];

        low = LowerBound(J, low, last, column);
        if (low == last) break;
        if (J[low] != column) continue;
        const PetscScalar *const T_kj = task.a + (ByColumns ? task.T_at[q] : q) * bs2;
        double *const            X_j  = X + low * bs2 + r;
#pragma unroll
        for (int c = 0; c < bs; c++) {
          double sum = 0;
#pragma unroll
          for (int t = 0; t < bs; t++) sum += x[t] * T_kj[ByColumns ? t * bs + c : c * bs + t];
          X_j[c * bs] -= sum;
        }
      }
    }
    if (__any_sync(mask, !good)) {
      __syncwarp(mask); /* all lanes have written their part of the row */
      for (size_t k = lane; k < m * bs2; k += lanes) {
        const size_t block                                          = first + k / bs2;
        N_a[(ByColumns ? task.N_at[block] : block) * bs2 + k % bs2] = S(0);
      }
      if (lane == 0) atomicAdd(&task.tally->fallback, 1);
    }
    if (!held && lane == 0) atomicAdd(&task.tally->lost_diagonals, 1);
    __syncwarp(mask); /* all lanes have read X, which the next row overwrites */
  }
}

/* ------------------------ what the relaxation of an application needs ------------------------- */

/* Copies -T without its diagonal blocks, and for L the diagonal blocks -I. */
template <typename S>
__global__ void BISAINegateRows(LocalInt n, int bs, TriangleView T, bool upper, const PetscScalar *a, const LocalInt *R_i, S *R_a,
                                Tally *tally)
{
  const LocalInt i = (LocalInt)(GridThread() / kNegateGroup);
  if (i >= n) return;
  const size_t bs2 = (size_t)bs * bs, entries = (T.end[i] - T.begin[i]) * bs2, from = T.begin[i] * bs2,
               to = (R_i[i] + (upper ? 1 : 0)) * bs2;
  int lost        = 0;
  for (size_t k = threadIdx.x % kNegateGroup; k < entries; k += kNegateGroup) {
    const S value = (S)-a[from + k];
    R_a[to + k]   = value;
    lost += !isfinite(value);
  }
  if (lost) atomicAdd(&tally->lost_entries, lost);
  if (upper) return;
  for (size_t k = threadIdx.x % kNegateGroup; k < bs2; k += kNegateGroup) R_a[to + entries + k] = k / bs == k % bs ? S(-1) : S(0);
}

/* -U_kk, found as the inverse of its inverse, becomes the first block of row k. Each warp takes a block. */
template <typename S>
__global__ void __launch_bounds__(kNegateWarps *kWarpSize)
  BISAINegateDiagonal(LocalInt n, int bs, const LocalInt *place, const PetscScalar *a, const LocalInt *R_i, S *R_a, Tally *tally)
{
  __shared__ double block[kNegateWarps][kLargestBlock * kLargestBlock];
  __shared__ int    exchanges[kNegateWarps][kLargestBlock];

  const LocalInt i    = (LocalInt)(GridThread() / kWarpSize);
  const int      warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  if (i >= n) return;
  const size_t bs2 = (size_t)bs * bs;
  for (size_t k = lane; k < bs2; k += kWarpSize) block[warp][k] = a[place[i] * bs2 + k];
  const bool inverted = InvertBlock(bs, 0, 0, block[warp], exchanges[warp]);
  int        lost     = 0;
  __syncwarp();
  for (size_t k = lane; k < bs2; k += kWarpSize) {
    const S value         = inverted ? (S)-block[warp][k] : S(0);
    R_a[R_i[i] * bs2 + k] = value;
    lost += !inverted || !isfinite(value);
  }
  if (lost) atomicAdd(&tally->lost_entries, lost);
}

/* y_k = x_p(k) for block rows or, with scatter, y_p(k) = x_k. */
__global__ void BISAIPermuteRows(LocalInt bs, long long size, const LocalInt *p, bool scatter, const PetscScalar *x, PetscScalar *y)
{
  const long long e = GridThread();
  if (e >= size) return;
  const long long other = (long long)p[e / bs] * bs + e % bs;
  if (scatter) y[other] = x[e];
  else y[e] = x[other];
}

/* ----------------------------------------- launchers ------------------------------------------ */

/* Which block rows have X in shared memory, and how much work space the others need. */
struct SolveShape {
  int      groups;       /* groups of a thread block */
  LocalInt in_shared;    /* block rows of at most so many blocks have X in shared memory */
  size_t   shared_bytes; /* bytes of shared memory of a thread block */
  size_t   x_size;       /* values in the work space for each thread block that uses it */
  int      work_blocks;  /* thread blocks for which the work space has room at once; 0 where no row needs it */
};

PetscErrorCode ShapeOf_BISAI(int bs, int entries, LocalInt n, LocalInt longest, size_t work_limit, SolveShape *shape)
{
  size_t limit;

  PetscFunctionBegin;
  PetscCall(SharedMemoryLimit(&limit));
  shape->groups          = GroupsOf(bs, entries);
  const size_t of_blocks = (size_t)bs * bs * shape->groups; /* values of one block for each group */
  const size_t fit       = limit / kSharedShare / (of_blocks * sizeof(double));
  shape->in_shared       = (LocalInt)std::min<size_t>(fit, (size_t)longest);
  shape->shared_bytes    = shape->in_shared * of_blocks * sizeof(double);
  shape->x_size          = longest * of_blocks;
  shape->work_blocks     = 0;
  if (shape->in_shared < longest) {
    const size_t room  = work_limit / (shape->x_size * sizeof(double));
    shape->work_blocks = (int)std::max<size_t>(1, std::min<size_t>(room, (size_t)BlocksFor(n, shape->groups)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sees to it that the work space has at least so many bytes, and that the tally in it is zero. */
PetscErrorCode NeedWork_BISAI(size_t bytes, BISAIWork *work, BISAIStats *stats, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (!PetscMemTypeDevice(work->where) || work->bytes < bytes) {
    PetscCall(ArrayDestroy(work->where, &work->data));
    *work = BISAIWork{};
    PetscCall(ArrayCreate_CUDA(bytes, &work->data));
    work->bytes = bytes;
    work->where = PETSC_MEMTYPE_CUDA;
  }
  stats->work_bytes = std::max(stats->work_bytes, work->bytes);
  PetscCallCUDA(cudaMemsetAsync(work->data, 0, sizeof(Tally), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <int BS, bool Upper, bool ByColumns, typename S>
PetscErrorCode Solve_BISAI(SolveTask task, const SolveShape &shape, LocalInt longest, S *N_a, cudaStream_t stream)
{
  PetscFunctionBegin;
  const auto in_shared = BISAISolveLines<BS, Upper, ByColumns, true, S>;
  task.room            = shape.in_shared;
  PetscCallCUDA(cudaFuncSetAttribute(in_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shape.shared_bytes));
  in_shared<<<BlocksFor(task.n, shape.groups), kSolveBlock, shape.shared_bytes, stream>>>(task, N_a);
  FinePCCheckLaunch();
  if (!shape.work_blocks) PetscFunctionReturn(PETSC_SUCCESS);
  task.room = longest;
  BISAISolveLines<BS, Upper, ByColumns, false, S><<<shape.work_blocks, kSolveBlock, 0, stream>>>(task, N_a);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <int BS, typename S>
PetscErrorCode SolveTriangle(BISAITriangle triangle, const SolveTask &task, const SolveShape &shape, LocalInt longest, const BSR &N,
                             cudaStream_t stream)
{
  const bool upper = triangle == BISAI_UPPER;
  S *const   N_a   = (S *)N.a;

  PetscFunctionBegin;
  if (task.N_at) {
    if (upper) PetscCall((Solve_BISAI<BS, true, true, S>(task, shape, longest, N_a, stream)));
    else PetscCall((Solve_BISAI<BS, false, true, S>(task, shape, longest, N_a, stream)));
  } else {
    if (upper) PetscCall((Solve_BISAI<BS, true, false, S>(task, shape, longest, N_a, stream)));
    else PetscCall((Solve_BISAI<BS, false, false, S>(task, shape, longest, N_a, stream)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <int BS>
PetscErrorCode SolveBlocks(BISAITriangle triangle, SolveTask task, LocalInt longest, size_t work_limit, BSR *N, BISAIWork *work,
                           BISAIStats *stats, cudaStream_t stream)
{
  SolveShape shape;
  Layout     layout;

  PetscFunctionBegin;
  PetscCall(ShapeOf_BISAI(task.bs, kEntries<BS>, task.n, longest, work_limit, &shape));
  task.in_shared = shape.in_shared;
  layout.Place(&task.tally, 1); /* where NeedWork_BISAI() clears it */
  layout.Place(&task.work, shape.work_blocks * shape.x_size);
  PetscCall(NeedWork_BISAI(layout.bytes(), work, stats, stream));
  layout.Bind(work->data);
  PetscCall(PetscLogGpuTimeBegin());
  if (N->precision == FINEPC_SINGLE) PetscCall((SolveTriangle<BS, float>(triangle, task, shape, longest, *N, stream)));
  else PetscCall((SolveTriangle<BS, double>(triangle, task, shape, longest, *N, stream)));
  PetscCall(PetscLogGpuTimeEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode BISAIPattern_CUDA(const BlockLU *F, BISAITriangle triangle, PetscBool diagonal, LocalInt power,
                                 FinePCPrecision precision, BSR *N, BISAIStats *stats)
{
  const LocalInt n     = F->n;
  const bool     upper = triangle == BISAI_UPPER;
  cudaStream_t   stream;
  WorkMeter      meter;
  Buffer<char>   work(&meter);
  Layout         layout;
  CubScratch     scratch;
  LocalInt      *T_i = nullptr, *T_j, *longest;
  LocalInt       nnz = 0, zero = 0;
  CSR            S{};

  PetscFunctionBegin;
  stats->longest[triangle] = 0;
  if (!n) {
    PetscCall(BSRCreate(F->bs, 0, 0, 0, precision, PETSC_MEMTYPE_CUDA, N));
    PetscCall(ArrayCopy_CUDA(N->i, &zero, sizeof(zero), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(DeviceGetStream(&stream));
  const TriangleView T    = Rows_BISAI(*F, triangle);
  const auto         scan = [&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, T_i, T_i, n + 1, stream);
  };
  PetscCall(scratch.Measure(scan));
  layout.Place(&T_i, n + 1);
  layout.Place(&longest, 1);
  scratch.Place(&layout);
  layout.Place(&T_j, F->nnz);
  PetscCall(layout.Allocate(&work));
  PetscCall(PetscLogGpuTimeBegin());
  BISAICountRows<<<BlocksFor((long long)n + 1), kBlockSize, 0, stream>>>(n, T, upper, T_i);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(scan));
  BISAICopyRows<<<BlocksFor((long long)n * kGatherGroup), kBlockSize, 0, stream>>>(n, T, upper, F->j, T_i, T_j);
  FinePCCheckLaunch();
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(ArrayCopy_CUDA(&nnz, T_i + n, sizeof(nnz), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));

  const LocalInt *S_i = T_i, *S_j = T_j;
  if (power > 1) { /* the symbolic product of sFSAI, which the first power does not need */
    const CSRView view{n, nnz, T_i, T_j, nullptr, PETSC_MEMTYPE_CUDA};
    SFSAIParams   product;
    FSAIStats     ignored{};

    product.power = power;
    PetscCall(SFSAIPattern_CUDA({&view, 0, nullptr}, nullptr, &product, &S, &ignored));
    S_i               = S.i;
    S_j               = S.j;
    nnz               = S.nnz;
    stats->work_bytes = std::max(stats->work_bytes, CSRBytes(&S) + meter.peak + ignored.work_bytes);
  }
  PetscCall(BISAICountBlocks(nnz, n, diagonal, &nnz));
  PetscCall(BSRCreate(F->bs, n, n, nnz, precision, PETSC_MEMTYPE_CUDA, N));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCallCUDA(cudaMemsetAsync(longest, 0, sizeof(*longest), stream));
  BISAIPlacePattern<<<BlocksFor((long long)n * kGatherGroup), kBlockSize, 0, stream>>>(n, upper, diagonal, S_i, S_j, N->i, N->j,
                                                                                       longest);
  FinePCCheckLaunch();
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(ArrayCopy_CUDA(&stats->longest[triangle], longest, sizeof(*longest), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscCall(CSRDestroy(&S));
  stats->work_bytes = std::max(stats->work_bytes, meter.peak);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The columns of a matrix with these block rows, of which n + 1 row starts and block columns are given, by transposing a matrix
   that has one number in the place of each block. The numbers do not matter: any memory that is long enough serves.
*/
static PetscErrorCode FindColumns_BISAI(LocalInt n, LocalInt nnz, const LocalInt *i, const LocalInt *j, void *numbers,
                                        LocalInt *column_i, LocalInt *column_j)
{
  const CSR pattern{n, n, nnz, (LocalInt *)i, (LocalInt *)j, numbers, FINEPC_SINGLE, PETSC_MEMTYPE_CUDA};
  CSR       transposed{};

  PetscFunctionBegin;
  PetscCall(CSRTranspose_CUDA(&pattern, PETSC_FALSE, &transposed));
  PetscCall(ArrayCopy_CUDA(column_i, transposed.i, ((size_t)n + 1) * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
  PetscCall(ArrayCopy_CUDA(column_j, transposed.j, nnz * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
  PetscCall(CSRDestroy(&transposed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The block columns of a triangle of the factor are those of a copy of its block rows, which are not contiguous in the factor. */
PetscErrorCode BISAIFindColumns_CUDA(const BlockLU *F, BISAITriangle triangle, PetscBool diagonal, const BSR *N,
                                     BISAIColumns *columns, BISAIStats *stats)
{
  const LocalInt     n = F->n;
  const TriangleView T = Rows_BISAI(*F, triangle);
  cudaStream_t       stream;
  WorkMeter          meter;
  Buffer<char>       work(&meter);
  Layout             layout;
  CubScratch         scratch;
  LocalInt          *T_i   = nullptr, *T_j, *longest; /* [2], for T and N; that of T is not asked for */
  LocalInt           T_nnz = 0;

  PetscFunctionBegin;
  stats->longest[triangle] = 0;
  *columns                 = BISAIColumns{};
  columns->where           = PETSC_MEMTYPE_CUDA;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  const auto scan = [&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, T_i, T_i, n + 1, stream);
  };
  PetscCall(scratch.Measure(scan));
  layout.Place(&T_i, n + 1);
  layout.Place(&longest, 2);
  scratch.Place(&layout);
  layout.Place(&T_j, F->nnz);
  PetscCall(layout.Allocate(&work));
  BISAICountRows<<<BlocksFor((long long)n + 1), kBlockSize, 0, stream>>>(n, T, false, T_i);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(scan));
  BISAICopyRows<<<BlocksFor((long long)n * kGatherGroup), kBlockSize, 0, stream>>>(n, T, false, F->j, T_i, T_j);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(&T_nnz, T_i + n, sizeof(T_nnz), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscCall(BISAIColumnsCreate(n, T_nnz, N->nnz, columns));
  PetscCall(FindColumns_BISAI(n, T_nnz, T_i, T_j, F->a, columns->T_i, columns->T_j));
  PetscCall(FindColumns_BISAI(n, N->nnz, N->i, N->j, N->a, columns->N_i, columns->N_j));
  PetscCallCUDA(cudaMemsetAsync(longest, 0, 2 * sizeof(*longest), stream));
  const int blocks = BlocksFor((long long)n * kPlaceGroup);
  BISAIPlaceColumns<<<blocks, kBlockSize, 0, stream>>>(n, T, F->j, 0, columns->T_i, columns->T_j, columns->T_at, longest);
  FinePCCheckLaunch();
  BISAIPlaceColumns<<<blocks, kBlockSize, 0, stream>>>(n, TriangleView{N->i, N->i + 1}, N->j, diagonal ? 1 : 0, columns->N_i,
                                                       columns->N_j, columns->N_at, longest + 1);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(&stats->longest[triangle], longest + 1, sizeof(*longest), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  /* a transpose and the numbers in it are there beside the buffer */
  stats->work_bytes = std::max(stats->work_bytes, meter.peak + (n + 1 + 2 * (size_t)std::max(T_nnz, N->nnz)) * sizeof(LocalInt));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIInvert_CUDA(const BlockLU *F, BISAITriangle triangle, PetscBool diagonal, const BISAIParams *params,
                                const BISAIColumns *columns, BSR *N, BISAIWork *work, BISAIStats *stats)
{
  const LocalInt longest = stats->longest[triangle];
  SolveTask      task{};
  cudaStream_t   stream;
  Tally          tally;

  PetscFunctionBegin;
  task.n                          = F->n;
  task.bs                         = (int)F->bs;
  task.diagonal                   = diagonal;
  task.T                          = columns ? TriangleView{columns->T_i, columns->T_i + 1} : Rows_BISAI(*F, triangle);
  task.place                      = F->place[LU_DIAGONAL];
  task.j                          = columns ? columns->T_j : F->j;
  task.T_at                       = columns ? columns->T_at : nullptr;
  task.a                          = F->a;
  task.N_i                        = columns ? columns->N_i : N->i;
  task.N_j                        = columns ? columns->N_j : N->j;
  task.N_at                       = columns ? columns->N_at : nullptr;
  stats->fallback_lines[triangle] = 0;
  if (triangle == BISAI_UPPER) stats->lost_diagonals = 0;
  if (!F->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(WithBlockSize(F->bs, [&](auto size) {
    return SolveBlocks<size>(triangle, task, longest, params->work_limit, N, work, stats, stream);
  }));
  PetscCall(ArrayCopy_CUDA(&tally, work->data, sizeof(tally), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  stats->fallback_lines[triangle] = tally.fallback;
  if (triangle == BISAI_UPPER) stats->lost_diagonals = tally.lost_diagonals;
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename S>
static PetscErrorCode Negate_BISAI(const BlockLU &F, BISAITriangle triangle, const BSR &R, Tally *tally, cudaStream_t stream)
{
  PetscFunctionBegin;
  BISAINegateRows<<<BlocksFor((long long)F.n * kNegateGroup), kBlockSize, 0, stream>>>(F.n, (int)F.bs, Rows_BISAI(F, triangle),
                                                                                       triangle == BISAI_UPPER, F.a, R.i, (S *)R.a,
                                                                                       tally);
  FinePCCheckLaunch();
  if (triangle == BISAI_LOWER) PetscFunctionReturn(PETSC_SUCCESS);
  BISAINegateDiagonal<<<BlocksFor((long long)F.n * kWarpSize, kNegateWarps * kWarpSize), kNegateWarps * kWarpSize, 0,
                        stream>>>(F.n, (int)F.bs, F.place[LU_DIAGONAL], F.a, R.i, (S *)R.a, tally);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAINegate_CUDA(const BlockLU *F, BISAITriangle triangle, BSR *R, BISAIWork *work, BISAIStats *stats)
{
  cudaStream_t stream;
  Tally        tally;

  PetscFunctionBegin;
  stats->lost_entries[triangle] = 0;
  if (!F->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(NeedWork_BISAI(sizeof(Tally), work, stats, stream));
  PetscCall(PetscLogGpuTimeBegin());
  if (R->precision == FINEPC_SINGLE) PetscCall(Negate_BISAI<float>(*F, triangle, *R, (Tally *)work->data, stream));
  else PetscCall(Negate_BISAI<double>(*F, triangle, *R, (Tally *)work->data, stream));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(ArrayCopy_CUDA(&tally, work->data, sizeof(tally), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  stats->lost_entries[triangle] = (PetscInt64)tally.lost_entries;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIPermute_CUDA(LocalInt bs, LocalInt n, const LocalInt *p, PetscBool scatter, const PetscScalar *x,
                                 PetscScalar *y)
{
  cudaStream_t    stream;
  const long long size = (long long)n * bs;

  PetscFunctionBegin;
  if (!size) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  BISAIPermuteRows<<<BlocksFor(size), kBlockSize, 0, stream>>>(bs, size, p, (bool)scatter, x, y);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
