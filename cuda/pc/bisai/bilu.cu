/*
   CUDA twin of src/pc/bisai/bilu_host.cxx. Block rows are eliminated level by level: those of a level wait for block rows of
   earlier levels only. A warp takes a block row, and lane (r, e) has row r of all its blocks, because the rows of a block row are
   independent of each other until the diagonal block is inverted. Of the blocks of row k of U that are subtracted, lane (r, e)
   takes block e and then every `entries`-th block.

   A launch ends before the launch of the next level begins. Levels that are too narrow for a launch of their own run one after the
   other in one thread block. A sweep is one launch for all block rows, and reads the values of the sweep before from another array.
*/
#include <algorithm>
#include <vector>

#include "sparse/block.cuh"
#include "buffer.cuh"
#include "search.cuh"
#include "pc/bisai/bilu.h"

static_assert(kLargestBlock <= kWarpSize, "each row of a block has a lane");

namespace
{

using Key = unsigned long long;

/* The key of a failure is the block row, then what is wrong, then the row in the block. The first failure has the smallest key. */
constexpr Key kNoFailure   = ~(Key)0;
constexpr int kKeyRowBits  = 8;
constexpr int kKeyKindBits = 2;

constexpr int kWideWarps    = 4;  /* warps of a thread block in a level that has a launch of its own */
constexpr int kNarrowWarps  = 16; /* warps of the thread block of narrow levels; a level of at most so many block rows is narrow */
constexpr int kGeneralWarps = 4;  /* in the place of both for block sizes without kernels of their own */

struct Tally {
  Key failure;
  int singular; /* diagonal blocks in whose place those of A were inverted */
};

} // namespace

struct BILUPlan {
  std::vector<LocalInt> level;  /* [levels + 1] where each level begins in the order of elimination; empty for sweeps */
  LocalInt             *device; /* [n] the order of elimination, then [levels + 1] a copy of level; null for sweeps */
  double               *other;  /* [nnz * bs * bs] the values of every second sweep, or null */
  Tally                *tally;
};

namespace
{

struct FactorTask {
  BSRView         A;
  BlockLU         F;
  const double   *U; /* the values of block rows that others wait for: F.a, or those of the sweep before */
  const LocalInt *order, *level;
  Tally          *tally;
};

/* Reports the failure that the host twin finds first. Each warp takes a block row. */
__global__ void BILUFindFailure(BSRView A, Tally *tally)
{
  const LocalInt i    = (LocalInt)(GridThread() / kWarpSize);
  const int      lane = threadIdx.x % kWarpSize;
  if (i >= A.n) return;
  const size_t bs2 = (size_t)A.bs * A.bs, begin = A.i[i] * bs2, end = A.i[i + 1] * bs2;
  Key          bad          = kNoFailure;
  unsigned     seen         = 0; /* bit r is set if row r has an entry that is not zero */
  bool         has_diagonal = false;
  for (size_t e = begin + lane; e < end; e += kWarpSize) {
    const double a = A.a[e];
    if (!isfinite(a) && bad == kNoFailure) bad = e - begin;
    if (a != 0) seen |= 1u << (e - begin) % A.bs;
  }
  for (LocalInt k = A.i[i] + lane; k < A.i[i + 1]; k += kWarpSize) has_diagonal = has_diagonal || A.j[k] == i;
  has_diagonal = __any_sync(kFullWarp, has_diagonal);
  bad          = GroupMin<kWarpSize>(bad);
  seen         = __reduce_or_sync(kFullWarp, seen);
  if (lane != 0) return;
  const unsigned all    = A.bs == kWarpSize ? kFullWarp : (1u << A.bs) - 1u;
  const auto     report = [&](BILUFailure kind, Key row) {
    atomicMin(&tally->failure, (((Key)i << kKeyKindBits | kind) << kKeyRowBits) | row);
  };
  if (bad != kNoFailure) report(BILU_NOT_FINITE, bad % A.bs);
  else if (seen != all) report(BILU_ROW_ZERO, __ffs(~seen & all) - 1);
  else if (!has_diagonal) report(BILU_DIAGONAL_MISSING, 0);
}

/* The places of L, of the diagonal block and of U in each block row. */
__global__ void BILUFindPlaces(BSRView A, BlockLU F)
{
  const LocalInt i = (LocalInt)GridThread();
  if (i >= A.n) return;
  const LocalInt diagonal = LowerBound(A.j, A.i[i], A.i[i + 1], i);
  F.place[LU_L][i]        = A.i[i];
  F.place[LU_L_END][i]    = diagonal;
  F.place[LU_DIAGONAL][i] = diagonal;
  F.place[LU_U][i]        = diagonal + 1;
  F.place[LU_U_END][i]    = A.i[i + 1];
}

/* Work space of a warp. */
template <int BS>
struct FactorWork {
  static constexpr int kSize = BS ? BS : kLargestBlock;

  double block[kSize * kSize];
  double part[kWarpSize];             /* the largest entry that each lane has found */
  double rows[kSize], columns[kSize]; /* the scales of rows and columns, as in the host twin */
  int    exchanges[kSize];
};

/* The largest power of two that is not above x; 1 for 0. */
__device__ inline double Magnitude(double x)
{
  return x > 0 ? scalbn(1., ilogb(x)) : 1.;
}

/* Finds the scales of a block row of A and of its diagonal block. All lanes may read them afterwards. */
template <int BS>
__device__ void FindScales(const BSRView &A, LocalInt row, LocalInt diagonal, FactorWork<BS> &work)
{
  const int       bs = BS ? BS : (int)A.bs, entries = kWarpSize / bs, lane = threadIdx.x % kWarpSize, r = lane % bs, e = lane / bs;
  const long long first = (long long)A.i[row] * bs,
                  last  = (long long)A.i[row + 1] * bs; /* columns of the block row, in all its blocks */
  double largest        = 0;
  if (e < entries)
    for (long long c = first + e; c < last; c += entries) largest = fmax(largest, fabs(A.a[c * bs + r]));
  work.part[lane] = largest;
  __syncwarp();
  if (lane < bs) {
    for (int other = 1; other < entries; other++) largest = fmax(largest, work.part[other * bs + lane]);
    work.rows[lane] = Magnitude(largest);
  }
  __syncwarp();
  if (lane < bs) {
    const double *const column = A.a + ((size_t)diagonal * bs + lane) * bs;
    largest                    = 0;
    for (int k = 0; k < bs; k++) largest = fmax(largest, fabs(column[k]) / work.rows[k]);
    work.columns[lane] = Magnitude(largest);
  }
  __syncwarp();
}

/*
   work.block = from^{-1}, with the arguments and the answer of InvertBlock(). The block is scaled while it is inverted, so that
   pivots are judged relative to the entries of A.
*/
template <int BS>
__device__ bool InvertScaled(int bs, double smallest, double raised, const double *from, FactorWork<BS> &work)
{
  const int lane = threadIdx.x % kWarpSize;
  __syncwarp(); /* no lane still reads the block of before */
  for (int k = lane; k < bs * bs; k += kWarpSize) work.block[k] = from[k] / (work.rows[k % bs] * work.columns[k / bs]);
  if (!InvertBlock(bs, smallest, raised, work.block, work.exchanges)) return false;
  for (int k = lane; k < bs * bs; k += kWarpSize) work.block[k] /= work.columns[k % bs] * work.rows[k / bs];
  return true;
}

/* Inverts U_ii or, if that is singular, the diagonal block of A in its place; by a warp. */
template <int BS>
__device__ void InvertDiagonal(const FactorTask &task, LocalInt row, FactorWork<BS> &work)
{
  const int      bs = BS ? BS : (int)task.F.bs, lane = threadIdx.x % kWarpSize;
  const LocalInt diagonal = task.F.place[LU_DIAGONAL][row];
  double *const  inverse  = task.F.a + (size_t)diagonal * bs * bs;
  FindScales<BS>(task.A, row, diagonal, work); /* the diagonal block has the same place in A */
  if (!InvertScaled<BS>(bs, kBILUSmallestPivot, 0, inverse, work)) {
    (void)InvertScaled<BS>(bs, kBILURaisedPivot, kBILURaisedPivot, task.A.a + (size_t)diagonal * bs * bs, work);
    if (lane == 0) atomicAdd(&task.tally->singular, 1);
  }
  for (int k = lane; k < bs * bs; k += kWarpSize) inverse[k] = work.block[k]; /* the entries that the lane has scaled */
}

/*
   Eliminates one block row, by a warp. Other block rows are read as they were before this launch, or before the last barrier of the
   thread block: those that this one waits for were finished then, or belong to the sweep before.
*/
template <int BS>
__device__ void FactorRow(const FactorTask &task, LocalInt row, FactorWork<BS> &work)
{
  const BlockLU &F  = task.F;
  const int      bs = BS ? BS : (int)F.bs, entries = kWarpSize / bs;
  const size_t   bs2  = (size_t)bs * bs;
  const int      lane = threadIdx.x % kWarpSize, r = lane % bs, e = lane / bs;
  const bool     active  = e < entries;
  const LocalInt row_end = F.place[LU_U_END][row], diagonal = F.place[LU_DIAGONAL][row];
  for (LocalInt m = F.place[LU_L][row]; m < diagonal; m++) {
    const LocalInt k = F.j[m];
    double         L[BS ? BS : kLargestBlock]; /* row r of L_ik */
    __syncwarp();                              /* the blocks that the step before has changed may be read */
    if (active) {
      const double *const A_ik = F.a + m * bs2 + r, *const inverse = task.U + F.place[LU_DIAGONAL][k] * bs2;
#pragma unroll
      for (int c = 0; c < bs; c++) {
        double sum = 0;
#pragma unroll
        for (int t = 0; t < bs; t++) sum += A_ik[t * bs] * inverse[c * bs + t];
        L[c] = sum;
      }
    }
    __syncwarp(); /* all lanes have read A_ik, which may be overwritten */
    if (!active) continue;
    if (e == 0) {
#pragma unroll
      for (int c = 0; c < bs; c++) F.a[m * bs2 + c * bs + r] = L[c];
    }
    LocalInt low = m + 1; /* columns ascend in row k and in this row, so that the search goes on where it ended */
    for (LocalInt q = F.place[LU_U][k] + e; q < F.place[LU_U_END][k]; q += entries) {
      const LocalInt column = F.j[q];

      low = LowerBound(F.j, low, row_end, column);
      if (low == row_end) break;
      if (F.j[low] != column) continue;
      const double *const U_kj = task.U + q * bs2;
      double *const       A_ij = F.a + low * bs2 + r;
#pragma unroll
      for (int c = 0; c < bs; c++) {
        double sum = 0;
#pragma unroll
        for (int t = 0; t < bs; t++) sum += L[t] * U_kj[c * bs + t];
        A_ij[c * bs] -= sum;
      }
    }
  }
  __syncwarp();
  InvertDiagonal<BS>(task, row, work);
}

/* Eliminates block rows begin .. end - 1 of the order of elimination, which are of one level. */
template <int BS, int Warps>
__global__ void __launch_bounds__(Warps *kWarpSize) BILUFactorLevel(FactorTask task, LocalInt begin, LocalInt end)
{
  __shared__ FactorWork<BS> work[Warps];

  const int      warp = threadIdx.x / kWarpSize;
  const LocalInt item = begin + (LocalInt)(GridThread() / kWarpSize);
  if (item < end) FactorRow<BS>(task, task.order[item], work[warp]);
}

/* Eliminates levels first .. last - 1, one after the other, by one thread block. */
template <int BS, int Warps>
__global__ void __launch_bounds__(Warps *kWarpSize) BILUFactorLevels(FactorTask task, LocalInt first, LocalInt last)
{
  __shared__ FactorWork<BS> work[Warps];

  const int warp = threadIdx.x / kWarpSize;
  for (LocalInt level = first; level < last; level++) {
    for (LocalInt item = task.level[level] + warp; item < task.level[level + 1]; item += Warps)
      FactorRow<BS>(task, task.order[item], work[warp]);
    __syncthreads();
  }
}

/* Inverts the diagonal blocks of all block rows, which are those of A. */
template <int BS, int Warps>
__global__ void __launch_bounds__(Warps *kWarpSize) BILUInvertDiagonals(FactorTask task)
{
  __shared__ FactorWork<BS> work[Warps];

  const LocalInt row = (LocalInt)(GridThread() / kWarpSize);
  if (row < task.F.n) InvertDiagonal<BS>(task, row, work[threadIdx.x / kWarpSize]);
}

/* A sweep over all block rows. */
template <int BS, int Warps>
__global__ void __launch_bounds__(Warps *kWarpSize) BILUSweep(FactorTask task)
{
  __shared__ FactorWork<BS> work[Warps];

  const LocalInt row = (LocalInt)(GridThread() / kWarpSize);
  if (row < task.F.n) FactorRow<BS>(task, row, work[threadIdx.x / kWarpSize]);
}

/* Eliminates all levels; BS 0 is for block sizes without kernels of their own. */
template <int BS>
PetscErrorCode FactorLevels(const FactorTask &task, const std::vector<LocalInt> &level, cudaStream_t stream)
{
  constexpr int  wide = BS ? kWideWarps : kGeneralWarps, narrow = BS ? kNarrowWarps : kGeneralWarps;
  const LocalInt levels    = (LocalInt)level.size() - 1;
  const auto     is_narrow = [&](LocalInt l) { return level[l + 1] - level[l] <= narrow; };

  PetscFunctionBegin;
  for (LocalInt l = 0, next; l < levels; l = next) {
    next = l + 1;
    if (is_narrow(l)) {
      while (next < levels && is_narrow(next)) next++;
      BILUFactorLevels<BS, narrow><<<1, narrow * kWarpSize, 0, stream>>>(task, l, next);
    } else {
      const int blocks = BlocksFor((long long)(level[next] - level[l]) * kWarpSize, wide * kWarpSize);
      BILUFactorLevel<BS, wide><<<blocks, wide * kWarpSize, 0, stream>>>(task, level[l], level[next]);
    }
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sweeps. Each writes into the array that the one before has not written, and the last one into that of F. */
template <int BS>
PetscErrorCode Sweep_BILU(FactorTask task, LocalInt sweeps, double *other, cudaStream_t stream)
{
  constexpr int kWarps    = BS ? kWideWarps : kGeneralWarps;
  const int     blocks    = BlocksFor((long long)task.F.n * kWarpSize, kWarps * kWarpSize);
  const size_t  bytes     = (size_t)task.A.nnz * task.A.bs * task.A.bs * sizeof(double);
  double *const values[2] = {task.F.a, other};

  PetscFunctionBegin;
  if (!task.F.n) PetscFunctionReturn(PETSC_SUCCESS);
  task.F.a = values[sweeps % 2];
  PetscCall(ArrayCopy_CUDA(task.F.a, task.A.a, bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
  BILUInvertDiagonals<BS, kWarps><<<blocks, kWarps * kWarpSize, 0, stream>>>(task);
  FinePCCheckLaunch();
  for (LocalInt left = sweeps - 1; left >= 0; left--) {
    task.U   = task.F.a;
    task.F.a = values[left % 2];
    PetscCall(ArrayCopy_CUDA(task.F.a, task.A.a, bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    PetscCallCUDA(cudaMemsetAsync(&task.tally->singular, 0, sizeof(task.tally->singular), stream)); /* the last sweep counts */
    BILUSweep<BS, kWarps><<<blocks, kWarps * kWarpSize, 0, stream>>>(task);
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Clears the tally and looks for failures of A. */
PetscErrorCode LaunchCheck(const BSRView &A, Tally *tally, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(tally, 0, sizeof(*tally), stream)); /* and what lies behind `singular`, which is copied, too */
  PetscCallCUDA(cudaMemsetAsync(&tally->failure, 0xff, sizeof(tally->failure), stream));
  if (!A.n) PetscFunctionReturn(PETSC_SUCCESS);
  BILUFindFailure<<<BlocksFor((long long)A.n * kWarpSize), kBlockSize, 0, stream>>>(A, tally);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ReadTally(const Tally *tally, LocalInt bs, BILUStats *stats)
{
  Tally host;

  PetscFunctionBegin;
  PetscCall(ArrayCopy_CUDA(&host, tally, sizeof(host), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  stats->singular_blocks = host.singular;
  stats->failure         = BILU_OK;
  if (host.failure == kNoFailure) PetscFunctionReturn(PETSC_SUCCESS);
  const LocalInt row      = (LocalInt)(host.failure >> (kKeyRowBits + kKeyKindBits)),
                 in_block = (LocalInt)(host.failure & ((1u << kKeyRowBits) - 1));
  stats->failure          = (BILUFailure)(host.failure >> kKeyRowBits & ((1u << kKeyKindBits) - 1));
  stats->failure_row      = stats->failure == BILU_DIAGONAL_MISSING ? row : row * bs + in_block;
  stats->singular_blocks  = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The level of a block row is one more than the largest level of those that it waits for, the columns of its L. */
void FindLevels(LocalInt n, const std::vector<LocalInt> &i, const std::vector<LocalInt> &j, std::vector<LocalInt> &order,
                std::vector<LocalInt> &begin)
{
  std::vector<LocalInt> level(n);
  LocalInt              levels = 0;
  for (LocalInt row = 0; row < n; row++) {
    LocalInt mine = 0;
    for (LocalInt k = i[row]; k < i[row + 1] && j[k] < row; k++) mine = std::max(mine, level[j[k]] + 1);
    level[row] = mine;
    levels     = std::max(levels, mine + 1);
  }
  begin.assign(levels + 1, 0);
  for (LocalInt l : level) begin[l + 1]++;
  for (LocalInt l = 0; l < levels; l++) begin[l + 1] += begin[l];
  std::vector<LocalInt> at(begin);
  order.resize(n);
  for (LocalInt row = 0; row < n; row++) order[at[level[row]]++] = row;
}

} // namespace

PetscErrorCode BILUPlanDestroy_CUDA(BILUPlan **plan)
{
  PetscFunctionBegin;
  if (*plan) {
    PetscCall(ArrayDestroy_CUDA((void **)&(*plan)->device));
    PetscCall(ArrayDestroy_CUDA((void **)&(*plan)->other));
    PetscCall(ArrayDestroy_CUDA((void **)&(*plan)->tally));
    delete *plan;
  }
  *plan = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BILUAnalyse_CUDA(const BSRView *A, LocalInt sweeps, BlockLU *F, BILUPlan **plan, BILUStats *stats)
{
  const LocalInt        n = A->n;
  std::vector<LocalInt> i, j, order;
  cudaStream_t          stream;
  BILUPlan             *p = new BILUPlan{};

  PetscFunctionBegin;
  *plan  = p; /* belongs to the caller after an error, too */
  *stats = BILUStats{};
  PetscCall(DeviceGetStream(&stream));
  PetscCall(ArrayCreate_CUDA(sizeof(Tally), (void **)&p->tally));
  PetscCall(LaunchCheck(*A, p->tally, stream));
  PetscCall(ReadTally(p->tally, A->bs, stats));
  if (stats->failure) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(BlockLUCreate(A->bs, n, A->nnz, PETSC_MEMTYPE_CUDA, F));
  PetscCall(ArrayCopy_CUDA(F->j, A->j, A->nnz * sizeof(*A->j), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
  if (n) {
    BILUFindPlaces<<<BlocksFor(n), kBlockSize, 0, stream>>>(*A, *F);
    FinePCCheckLaunch();
  }
  if (sweeps) {
    stats->plan_bytes = (size_t)A->nnz * A->bs * A->bs * sizeof(*A->a);
    PetscCall(ArrayCreate_CUDA(stats->plan_bytes, (void **)&p->other));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  i.resize(n + 1);
  j.resize(A->nnz);
  PetscCall(ArrayCopy_CUDA(i.data(), A->i, (n + 1) * sizeof(*A->i), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscCall(ArrayCopy_CUDA(j.data(), A->j, A->nnz * sizeof(*A->j), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  FindLevels(n, i, j, order, p->level);
  stats->plan_bytes = (n + p->level.size()) * sizeof(LocalInt);
  PetscCall(ArrayCreate_CUDA(stats->plan_bytes, (void **)&p->device));
  PetscCall(ArrayCopy_CUDA(p->device, order.data(), n * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscCall(
    ArrayCopy_CUDA(p->device + n, p->level.data(), p->level.size() * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscCallCUDA(cudaStreamSynchronize(stream)); /* the copy has read `order`, which ends here */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BILUFactor_CUDA(const BSRView *A, LocalInt sweeps, BILUPlan *plan, BlockLU *F, BILUStats *stats)
{
  const LocalInt *const order = plan->device, *const level = order ? order + A->n : nullptr;
  const FactorTask task{*A, *F, F->a, order, level, plan->tally};
  cudaStream_t     stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(LaunchCheck(*A, plan->tally, stream));
  if (!sweeps) {
    PetscCall(ArrayCopy_CUDA(F->a, A->a, (size_t)A->nnz * A->bs * A->bs * sizeof(*A->a), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    PetscCall(WithBlockSize(A->bs, [&](auto size) { return FactorLevels<size>(task, plan->level, stream); }));
  } else PetscCall(WithBlockSize(A->bs, [&](auto size) { return Sweep_BILU<size>(task, sweeps, plan->other, stream); }));
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(ReadTally(plan->tally, A->bs, stats));
  stats->levels = sweeps ? 0 : (LocalInt)plan->level.size() - 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}
