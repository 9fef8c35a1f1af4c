/*
   CUDA twin of src/pc/bisai/bilu_host.cxx. Rows are eliminated level by level: a level's rows wait for earlier levels alone. A warp
   takes a row. Its lane (r, e) has row r of the blocks: the rows of a block row are independent of each other until the diagonal
   block is inverted, and of the blocks of row k of U that are taken away, lane (r, e) takes the e-th, then every `entries`-th.

   A launch ends before the next level's begins. Levels that are too narrow for a launch of their own run one after the other
   in one thread block.
*/
#include <algorithm>
#include <vector>

#include "sparse/block.cuh"
#include "buffer.cuh"
#include "pc/bisai/bilu.h"

static_assert(kLargestBlock <= kWarpSize, "a lane a row of a block");

namespace
{

using Key = unsigned long long;

constexpr Key kNoFailure    = ~(Key)0;
constexpr int kKeyRowBits   = 8;  /* of a key: the row in the block */
constexpr int kKeyKindBits  = 2;  /* what is wrong; above them the block row */
constexpr int kWideWarps    = 4;  /* of a thread block of a level of its own */
constexpr int kNarrowWarps  = 16; /* of the thread block of narrow levels: a level of so many rows at most is narrow */
constexpr int kGeneralWarps = 4;  /* the same for blocks of any size */

struct Tally {
  Key failure;
  int singular;
};

} // namespace

struct BILUPlan {
  std::vector<PetscInt> level;  /* [levels + 1] where they begin in order */
  PetscInt             *device; /* [n] order, [levels + 1] level */
  Tally                *tally;
};

namespace
{

struct FactorTask {
  BSRView         A;
  BlockLU         F;
  const PetscInt *order, *level;
  Tally          *tally;
};

/* The first failing row, in the order of the host twin. A warp a block row. */
__global__ void BILUFindFailure(BSRView A, Tally *tally)
{
  const PetscInt i    = (PetscInt)(GridThread() / kWarpSize);
  const int      lane = threadIdx.x % kWarpSize;
  if (i >= A.n) return;
  const size_t bs2 = (size_t)A.bs * A.bs, begin = A.i[i] * bs2, end = A.i[i + 1] * bs2;
  Key          bad          = kNoFailure;
  unsigned     seen         = 0; /* rows with an entry that is not zero */
  bool         has_diagonal = false;
  for (size_t e = begin + lane; e < end; e += kWarpSize) {
    const double a = A.a[e];
    if (!isfinite(a) && bad == kNoFailure) bad = e - begin;
    if (a != 0) seen |= 1u << (e - begin) % A.bs;
  }
  for (PetscInt k = A.i[i] + lane; k < A.i[i + 1]; k += kWarpSize) has_diagonal = has_diagonal || A.j[k] == i;
  has_diagonal = __any_sync(kFullWarp, has_diagonal);
  bad          = GroupMin<kWarpSize>(bad);
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) seen |= __shfl_xor_sync(kFullWarp, seen, offset);
  if (lane != 0) return;
  const unsigned all  = A.bs == kWarpSize ? kFullWarp : (1u << A.bs) - 1u;
  const auto     tell = [&](BILUFailure kind, Key row) {
    atomicMin(&tally->failure, (((Key)i << kKeyKindBits | kind) << kKeyRowBits) | row);
  };
  if (bad != kNoFailure) tell(BILU_NOT_FINITE, bad % A.bs);
  else if (seen != all) tell(BILU_ROW_ZERO, __ffs(~seen & all) - 1);
  else if (!has_diagonal) tell(BILU_DIAGONAL_MISSING, 0);
}

__global__ void BILUFindPlaces(BSRView A, BlockLU F)
{
  const PetscInt i = (PetscInt)GridThread();
  if (i >= A.n) return;
  PetscInt low = A.i[i], high = A.i[i + 1];
  while (low < high) {
    const PetscInt middle = low + (high - low) / 2;
    if (A.j[middle] < i) low = middle + 1;
    else high = middle;
  }
  F.place[LU_L][i]        = A.i[i];
  F.place[LU_L_END][i]    = low;
  F.place[LU_DIAGONAL][i] = low;
  F.place[LU_U][i]        = low + 1;
  F.place[LU_U_END][i]    = A.i[i + 1];
}

/* Work space of a warp. */
template <int BS>
struct FactorWork {
  static constexpr int kSize = BS ? BS : kLargestBlock;

  double block[kSize * kSize];
  double part[kWarpSize];             /* of the largest entries of the rows */
  double rows[kSize], columns[kSize]; /* scales, as in the host twin */
  int    exchanges[kSize];
};

/* The power of two under x. */
__device__ inline double Magnitude(double x)
{
  return x > 0 ? scalbn(1., ilogb(x)) : 1.;
}

/* The scales of a block row of A and its diagonal block. All lanes may read them afterwards. */
template <int BS>
__device__ void FindScales(const BSRView &A, PetscInt row, PetscInt diagonal, FactorWork<BS> &work)
{
  const int       bs = BS ? BS : (int)A.bs, entries = kWarpSize / bs, lane = threadIdx.x % kWarpSize, r = lane % bs, e = lane / bs;
  const long long first = (long long)A.i[row] * bs, last = (long long)A.i[row + 1] * bs; /* columns of the block row */
  double          largest = 0;
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

/* work.block = from^{-1}, scaled for the judgement of pivots; as InvertBlock(). */
template <int BS>
__device__ bool InvertScaled(int bs, double smallest, double raised, const double *from, FactorWork<BS> &work)
{
  const int lane = threadIdx.x % kWarpSize;
  __syncwarp(); /* nobody reads the block of before */
  for (int k = lane; k < bs * bs; k += kWarpSize) work.block[k] = from[k] / (work.rows[k % bs] * work.columns[k / bs]);
  if (!InvertBlock(bs, smallest, raised, work.block, work.exchanges)) return false;
  for (int k = lane; k < bs * bs; k += kWarpSize) work.block[k] /= work.columns[k % bs] * work.rows[k / bs];
  return true;
}

/*
   One row by a warp. What other rows have written is read as it was before this launch, or before the last barrier of the thread
   block.
*/
template <int BS>
__device__ void FactorRow(const FactorTask &task, PetscInt row, FactorWork<BS> &work)
{
  const BlockLU &F  = task.F;
  const int      bs = BS ? BS : (int)F.bs, entries = kWarpSize / bs;
  const size_t   bs2  = (size_t)bs * bs;
  const int      lane = threadIdx.x % kWarpSize, r = lane % bs, e = lane / bs;
  const bool     active  = e < entries;
  const PetscInt row_end = F.place[LU_U_END][row], diagonal = F.place[LU_DIAGONAL][row];
  for (PetscInt m = F.place[LU_L][row]; m < diagonal; m++) {
    const PetscInt k = F.j[m];
    double         L[BS ? BS : kLargestBlock]; /* row r of L_ik */
    __syncwarp();                              /* the blocks that the last step changed */
    if (active) {
      const double *const A_ik = F.a + m * bs2 + r, *const inverse = F.a + F.place[LU_DIAGONAL][k] * bs2;
#pragma unroll
      for (int c = 0; c < bs; c++) {
        double sum = 0;
#pragma unroll
        for (int t = 0; t < bs; t++) sum += A_ik[t * bs] * inverse[c * bs + t];
        L[c] = sum;
      }
    }
    __syncwarp(); /* all have read A_ik */
    if (!active) continue;
    if (e == 0) {
#pragma unroll
      for (int c = 0; c < bs; c++) F.a[m * bs2 + c * bs + r] = L[c];
    }
    PetscInt low = m + 1; /* columns ascend in both rows */
    for (PetscInt q = F.place[LU_U][k] + e; q < F.place[LU_U_END][k]; q += entries) {
      const PetscInt column = F.j[q];
      PetscInt       high   = row_end;
      while (low < high) {
        const PetscInt middle = low + (high - low) / 2;
        if (F.j[middle] < column) low = middle + 1;
        else high = middle;
      }
      if (low == row_end) break;
      if (F.j[low] != column) continue;
      const double *const U_kj = F.a + q * bs2;
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
  double *const inverse = F.a + diagonal * bs2;
  FindScales<BS>(task.A, row, diagonal, work); /* F has the pattern of A */
  if (!InvertScaled<BS>(bs, kBILUSmallestPivot, 0, inverse, work)) {
    (void)InvertScaled<BS>(bs, kBILURaisedPivot, kBILURaisedPivot, task.A.a + diagonal * bs2, work);
    if (lane == 0) atomicAdd(&task.tally->singular, 1);
  }
  for (int k = lane; k < bs * bs; k += kWarpSize) inverse[k] = work.block[k]; /* a lane's own */
}

/* Rows begin .. end - 1 in the order of elimination, which are of one level. */
template <int BS, int Warps>
__global__ void __launch_bounds__(Warps *kWarpSize) BILUFactorLevel(FactorTask task, PetscInt begin, PetscInt end)
{
  __shared__ FactorWork<BS> work[Warps];

  const int      warp = threadIdx.x / kWarpSize;
  const PetscInt item = begin + (PetscInt)(GridThread() / kWarpSize);
  if (item < end) FactorRow<BS>(task, task.order[item], work[warp]);
}

/* Levels first .. last - 1, one after the other, by one thread block. */
template <int BS, int Warps>
__global__ void __launch_bounds__(Warps *kWarpSize) BILUFactorLevels(FactorTask task, PetscInt first, PetscInt last)
{
  __shared__ FactorWork<BS> work[Warps];

  const int warp = threadIdx.x / kWarpSize;
  for (PetscInt level = first; level < last; level++) {
    for (PetscInt item = task.level[level] + warp; item < task.level[level + 1]; item += Warps)
      FactorRow<BS>(task, task.order[item], work[warp]);
    __syncthreads();
  }
}

template <int BS>
PetscErrorCode FactorLevels(const FactorTask &task, const std::vector<PetscInt> &level, cudaStream_t stream)
{
  constexpr int  wide = BS ? kWideWarps : kGeneralWarps, narrow = BS ? kNarrowWarps : kGeneralWarps;
  const PetscInt levels    = (PetscInt)level.size() - 1;
  const auto     is_narrow = [&](PetscInt l) { return level[l + 1] - level[l] <= narrow; };

  PetscFunctionBegin;
  for (PetscInt l = 0, next; l < levels; l = next) {
    next = l + 1;
    if (is_narrow(l)) {
      while (next < levels && is_narrow(next)) next++;
      BILUFactorLevels<BS, narrow><<<1, narrow * kWarpSize, 0, stream>>>(task, l, next);
    } else
      BILUFactorLevel<BS, wide>
        <<<BlocksFor((long long)(level[next] - level[l]) * kWarpSize, wide * kWarpSize), wide * kWarpSize, 0, stream>>>(task,
                                                                                                                        level[l],
                                                                                                                        level
                                                                                                                          [next]);
    FinePCCheckLaunch();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchCheck(const BSRView &A, Tally *tally, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(&tally->failure, 0xff, sizeof(tally->failure), stream));
  PetscCallCUDA(cudaMemsetAsync(&tally->singular, 0, sizeof(tally->singular), stream));
  if (!A.n) PetscFunctionReturn(PETSC_SUCCESS);
  BILUFindFailure<<<BlocksFor((long long)A.n * kWarpSize), kBlockSize, 0, stream>>>(A, tally);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ReadTally(const Tally *tally, PetscInt bs, BILUStats *stats)
{
  Tally host;

  PetscFunctionBegin;
  PetscCall(ArrayCopy_CUDA(&host, tally, sizeof(host), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  stats->singular_blocks = host.singular;
  stats->failure         = BILU_OK;
  if (host.failure == kNoFailure) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscInt row      = (PetscInt)(host.failure >> (kKeyRowBits + kKeyKindBits)),
                 in_block = (PetscInt)(host.failure & ((1u << kKeyRowBits) - 1));
  stats->failure          = (BILUFailure)(host.failure >> kKeyRowBits & ((1u << kKeyKindBits) - 1));
  stats->failure_row      = stats->failure == BILU_DIAGONAL_MISSING ? row : row * bs + in_block;
  stats->singular_blocks  = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Level of a row: one more than the largest of the rows that it waits for. */
void FindLevels(PetscInt n, const std::vector<PetscInt> &i, const std::vector<PetscInt> &j, std::vector<PetscInt> &order,
                std::vector<PetscInt> &begin)
{
  std::vector<PetscInt> level(n);
  PetscInt              levels = 0;
  for (PetscInt row = 0; row < n; row++) {
    PetscInt mine = 0;
    for (PetscInt k = i[row]; k < i[row + 1] && j[k] < row; k++) mine = std::max(mine, level[j[k]] + 1);
    level[row] = mine;
    levels     = std::max(levels, mine + 1);
  }
  begin.assign(levels + 1, 0);
  for (PetscInt l : level) begin[l + 1]++;
  for (PetscInt l = 0; l < levels; l++) begin[l + 1] += begin[l];
  std::vector<PetscInt> at(begin);
  order.resize(n);
  for (PetscInt row = 0; row < n; row++) order[at[level[row]]++] = row;
}

} // namespace

PetscErrorCode BILUPlanDestroy_CUDA(BILUPlan **plan)
{
  PetscFunctionBegin;
  if (*plan) {
    PetscCall(ArrayDestroy_CUDA((void **)&(*plan)->device));
    PetscCall(ArrayDestroy_CUDA((void **)&(*plan)->tally));
    delete *plan;
  }
  *plan = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BILUAnalyse_CUDA(const BSRView *A, BlockLU *F, BILUPlan **plan, BILUStats *stats)
{
  const PetscInt        n = A->n;
  std::vector<PetscInt> i(n + 1), j(A->nnz), order;
  cudaStream_t          stream;
  BILUPlan             *p = new BILUPlan{};

  PetscFunctionBegin;
  *plan  = p; /* the caller's also after an error */
  *stats = BILUStats{};
  PetscCall(PetscGetCurrentCUDAStream(&stream));
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
  PetscCall(ArrayCopy_CUDA(i.data(), A->i, (n + 1) * sizeof(*A->i), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscCall(ArrayCopy_CUDA(j.data(), A->j, A->nnz * sizeof(*A->j), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  FindLevels(n, i, j, order, p->level);
  PetscCall(ArrayCreate_CUDA((n + p->level.size()) * sizeof(PetscInt), (void **)&p->device));
  PetscCall(ArrayCopy_CUDA(p->device, order.data(), n * sizeof(PetscInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscCall(
    ArrayCopy_CUDA(p->device + n, p->level.data(), p->level.size() * sizeof(PetscInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscCallCUDA(cudaStreamSynchronize(stream)); /* `order` ends here */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BILUFactor_CUDA(const BSRView *A, BILUPlan *plan, BlockLU *F, BILUStats *stats)
{
  const FactorTask task{*A, *F, plan->device, plan->device + A->n, plan->tally};
  cudaStream_t     stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(PetscLogGpuTimeBegin());
  PetscCall(LaunchCheck(*A, plan->tally, stream));
  PetscCall(ArrayCopy_CUDA(F->a, A->a, (size_t)A->nnz * A->bs * A->bs * sizeof(*A->a), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
  switch (A->bs) {
  case 1: PetscCall(FactorLevels<1>(task, plan->level, stream)); break;
  case 2: PetscCall(FactorLevels<2>(task, plan->level, stream)); break;
  case 3: PetscCall(FactorLevels<3>(task, plan->level, stream)); break;
  case 4: PetscCall(FactorLevels<4>(task, plan->level, stream)); break;
  case 5: PetscCall(FactorLevels<5>(task, plan->level, stream)); break;
  case 6: PetscCall(FactorLevels<6>(task, plan->level, stream)); break;
  case 7: PetscCall(FactorLevels<7>(task, plan->level, stream)); break;
  case 8: PetscCall(FactorLevels<8>(task, plan->level, stream)); break;
  default: PetscCall(FactorLevels<0>(task, plan->level, stream));
  }
  PetscCall(PetscLogGpuTimeEnd());
  PetscCall(ReadTally(plan->tally, A->bs, stats));
  stats->levels = (PetscInt)plan->level.size() - 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}
