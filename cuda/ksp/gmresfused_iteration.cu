/*
   The orthogonalization of an iteration by one kernel, whose blocks stay from the products with the basis to the new vector.

   The workers are all blocks but the first one. They make their parts of the products, and some of their warps add these parts up.
   The first block, the clerk, takes the sums and gives the coefficients of the new vector to the workers. While they make the
   vector, the clerk has time for the rotations and the test of the iteration before, whose norm is one of the sums. So an iteration
   has no end at which the grid waits for a last block.

   On several ranks whose kernels write to one another the clerk adds the sums over the ranks before it goes on. Where NCCL does so,
   another kernel makes the sums, and this one begins with those of all ranks.

   The workers go through the rows upwards for the products and downwards for the vector: what they have read last is still in the
   second-level cache.
*/
#include "gmresfused_small.cuh"

namespace
{

constexpr LocalInt kOnChipRestart = 64; /* the small matrices of cycles up to this one fit into shared memory */

/* The parameters of the kernel. */
struct Orthogonalization {
  LocalInt         j;       /* the newest vector is u_j */
  LocalInt         restart; /* iterations of the cycle */
  const double    *w;
  double          *p;       /* u_{j+1} in double precision, or null */
  double          *partial; /* [workers] parts of the square of its norm, or null */
  uint4           *words;   /* of each number a part of each group of workers, then the sums, then c and the scale */
  unsigned         turn;    /* of these words */
  bool             direct;  /* the clerk adds the sums over all ranks */
  const double    *all;     /* the sums over all ranks, where NCCL has made them, so that there is nothing to sum; or null */
  GMRESSmallArrays small;
  GMRESState      *state;
};

/*
   Words for the parts of so many workers. A number has as many parts as there are groups, see DotTiles: beside one another the
   workers have the numbers of as many tiles as there are groups for; and if there are more tiles than workers there is one group.
*/
__host__ __device__ constexpr size_t PartsFor(LocalInt restart, size_t workers)
{
  const size_t of_tiles = (2 * kGMRESTile + 1) * workers, most = GMRESMostSums(restart);
  return of_tiles > most ? of_tiles : most;
}

constexpr size_t WordsFor(LocalInt restart, size_t workers)
{
  return PartsFor(restart, workers) + GMRESMostSums(restart) + restart + 2;
}

__device__ __forceinline__ uint4 *TotalsOf(const Orthogonalization &g)
{
  return g.words + PartsFor(g.restart, gridDim.x - 1);
}

__device__ __forceinline__ uint4 *CoefficientsOf(const Orthogonalization &g)
{
  return TotalsOf(g) + GMRESMostSums(g.restart);
}

/* ------------------------------------------ the clerk ----------------------------------------- */

/* What the clerk has in shared memory; workers have c in the same place. */
struct ClerkMemory {
  double          *sums;   /* [GMRESMostSums] */
  double          *work;   /* [3 (restart + 1)] */
  double          *before; /* [restart + 1] c of the iteration before */
  GMRESSmallArrays small;  /* in shared memory but for H and R, or all of it where it is otherwise */
};

constexpr size_t ClerkBytes(LocalInt restart)
{
  const size_t columns = (size_t)restart + 1, numbers = GMRESMostSums(restart) + 4 * columns;
  return (numbers + (restart <= kOnChipRestart ? SmallNumbers(columns) : 0)) * sizeof(double);
}

__device__ __forceinline__ ClerkMemory DivideMemory(const Orthogonalization &g, double *place)
{
  const size_t  columns = (size_t)g.restart + 1;
  SharedDoubles memory{place};
  ClerkMemory   to{};
  to.sums   = memory.Take(GMRESMostSums(g.restart));
  to.work   = memory.Take(3 * columns);
  to.before = memory.Take(columns);
  to.small  = g.small;
  if (g.restart <= kOnChipRestart) TakeSmall(g.restart, memory, &to.small);
  return to;
}

/* What is known of the columns before column j. */
__device__ void BringSmall(const Orthogonalization &g, const ClerkMemory &my)
{
  const LocalInt j  = g.j;
  const size_t   ld = (size_t)g.small.restart + 1, columns = (size_t)g.restart + 1;
  for (LocalInt k = threadIdx.x; k < j; k += kGMRESBlock) my.before[k] = g.small.c[k];
  if (my.small.T == g.small.T) return;
  for (LocalInt e = threadIdx.x; e < j * j; e += kGMRESBlock) {
    const LocalInt i = e / j, k = e % j;
    if (k <= i) my.small.T[i * columns + k] = g.small.T[i * ld + k];
  }
  for (LocalInt k = threadIdx.x; k < j; k += kGMRESBlock) {
    my.small.square[k] = g.small.square[k];
    my.small.norm[k]   = g.small.norm[k];
    my.small.rhs[k]    = g.small.rhs[k];
    my.small.cosine[k] = g.small.cosine[k];
    my.small.sine[k]   = g.small.sine[k];
  }
}

/* What has come to that. */
__device__ void KeepSmall(const Orthogonalization &g, const ClerkMemory &my)
{
  const LocalInt j  = g.j;
  const size_t   ld = (size_t)g.small.restart + 1, columns = (size_t)g.restart + 1;
  if (my.small.T == g.small.T) return;
  for (LocalInt k = threadIdx.x; k <= j; k += kGMRESBlock) {
    g.small.T[j * ld + k] = my.small.T[j * columns + k];
    g.small.c[k]          = my.small.c[k];
  }
  if (threadIdx.x != 0) return;
  g.small.square[j] = my.small.square[j];
  g.small.norm[j]   = my.small.norm[j];
  if (j == 0) return;
  g.small.cosine[j - 1] = my.small.cosine[j - 1];
  g.small.sine[j - 1]   = my.small.sine[j - 1];
  g.small.rhs[j - 1]    = my.small.rhs[j - 1];
  g.small.rhs[j]        = my.small.rhs[j];
}

__device__ void Clerk(const Orthogonalization &g, double *memory)
{
  const ClerkMemory my = DivideMemory(g, memory);
  const LocalInt    j = g.j, count = j + 1, numbers = 2 * count + 1;
  const uint4      *totals       = TotalsOf(g);
  uint4 *const      coefficients = CoefficientsOf(g);

  BringSmall(g, my);
  for (LocalInt s = threadIdx.x; s < numbers; s += kGMRESBlock) my.sums[s] = g.all ? g.all[s] : AwaitWord(totals + s, g.turn);
  if (g.direct) SumOverRanksByBlock(g.state->peers, numbers, my.sums);
  __syncthreads();
  const Projection next = Project(j, my.sums, my.work, my.small);
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) WriteWord(coefficients + k, next.c[k], g.turn);
  if (threadIdx.x == 0) WriteWord(coefficients + count, next.scale, g.turn);
  __syncthreads(); /* work is used again */
  if (j > 0) {     /* iteration j - 1 ends with the norm of u_j */
    const size_t column = (size_t)(j - 1) * (g.small.restart + 1);
    Append(j - 1, my.sums[count + j], my.before, my.work, g.small.H + column, g.small.R + column, my.small, g.state);
    __syncthreads();
  }
  if (threadIdx.x == 0) TakeScale(next, g.state);
  KeepSmall(g, my);
}

/* ----------------------------------------- the workers ---------------------------------------- */

template <typename V>
__device__ __forceinline__ void Work(const GMRESArray<V> &u, const Orthogonalization &g, double *c)
{
  const LocalInt count = g.j + 1, numbers = 2 * count + 1;
  const int      worker = (int)blockIdx.x - 1, workers = (int)gridDim.x - 1;
  if (!g.all) {
    const DotTiles tiles(u.n, count, worker, workers);
    const int      groups = tiles.groups;
    tiles.ForEach([&](LocalInt first, LocalInt many) {
      DotTile(u, count, g.w, first, many, tiles.group, groups,
              [&](LocalInt number, double sum) { WriteWord(g.words + (size_t)number * groups + tiles.group, sum, g.turn); });
    });
    AddParts(numbers, groups, g.words, worker, workers, TotalsOf(g), g.turn);
  }

  /* The thread's last entries of the vectors come while the clerk makes the coefficients. */
  const long long step = (long long)workers * 2 * kGMRESBlock, own = 2 * (worker * kGMRESBlock + (LocalInt)threadIdx.x);
  const long long top = own < u.n ? own + (u.n - 1 - own) / step * step : -1;
  BasisPairs<V>   pairs;
  double2         w{};
  const auto      load_w = [&](long long i) { w = make_double2(g.w[i], i + 1 < u.n ? g.w[i + 1] : 0.); };
  if (top >= 0) {
    pairs.Load(u, 0, count, (LocalInt)top);
    load_w(top);
  }
  for (LocalInt k = threadIdx.x; k <= count; k += kGMRESBlock) c[k] = AwaitWord(CoefficientsOf(g) + k, g.turn);
  __syncthreads();

  const double scale     = c[count];
  double       square[1] = {0};
  for (long long i = top; i >= 0; i -= step) {
    const bool both = i + 1 < u.n;
    if (i < top) load_w(i);
    const double2 sum = AddBasisPair<-1>(u, count, c, (LocalInt)i, w, pairs, i == top);
    const V       x = (V)(scale * sum.x), y = (V)(scale * sum.y);
    if (both) *(typename GMRESArray<V>::Pair *)(u.at(count) + i) = {x, y};
    else u.at(count)[i] = x;
    if (g.p) {
      g.p[i] = (double)x;
      if (both) g.p[i + 1] = (double)y;
    }
    square[0] += (double)x * (double)x + (both ? (double)y * (double)y : 0.);
  }
  if (!g.partial) return;
  BlockSum(square);
  if (threadIdx.x == 0) g.partial[worker] = square[0];
}

template <typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESDotBlocks) Orthogonalize(GMRESArray<V> u, const Orthogonalization g)
{
  extern __shared__ double memory[];
  WaitForPrevious();
  LetNextStart();
  /* The clerk changes it when it has all sums: a worker that has no part in them, and sees the end already, has nothing left to do.
   */
  if (g.state->s.stage != kCGRunning) return;
  if (blockIdx.x == 0) Clerk(g, memory);
  else Work(u, g, memory);
}

} // namespace

PetscErrorCode GMRESMayStartEarly(bool *early)
{
  PetscFunctionBegin;
  PetscCall(KnowsToWait((const void *)Orthogonalize<double>, early));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Blocks of the kernel that the GPU can keep at once, two on a processor at most. */
template <typename V>
static PetscErrorCode CountBlocks(LocalInt restart, int *count)
{
  constexpr size_t kMost = std::max(ClerkBytes(kOnChipRestart), ClerkBytes(kGMRESMostRestart)); /* what any solver asks for */
  int              blocks, processors, device, together;

  PetscFunctionBegin;
  PetscCallCUDA(cudaGetDevice(&device));
  PetscCallCUDA(cudaDeviceGetAttribute(&together, cudaDevAttrCooperativeLaunch, device));
  PetscCall(ProcessorCount(&processors));
  PetscCallCUDA(cudaFuncSetAttribute(Orthogonalize<V>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)kMost));
  PetscCallCUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Orthogonalize<V>, kGMRESBlock, ClerkBytes(restart)));
  *count = together ? processors * std::min(blocks, kGMRESDotBlocks) : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedCanStay_CUDA(FinePCPrecision precision, LocalInt restart, PetscBool *can)
{
  int blocks;

  PetscFunctionBegin;
  PetscCall(precision == FINEPC_SINGLE ? CountBlocks<float>(restart, &blocks) : CountBlocks<double>(restart, &blocks));
  *can = (PetscBool)(blocks >= 2); /* the clerk and a worker */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESPrepareOrthogonalization(GMRESFusedWork *work, const GMRESBasis &basis, LocalInt restart)
{
  PetscFunctionBegin;
  PetscCall(GMRESWithPrecision(basis, [&](auto u) {
    int blocks;

    PetscFunctionBegin;
    PetscCall(CountBlocks<std::remove_pointer_t<decltype(u.u)>>(restart, &blocks));
    work->workers = std::max(std::min(blocks - 1, BlocksFor(u.n, 2 * kGMRESBlock)), 1);
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscCall(GMRESNeedWords(work, WordsFor(restart, work->workers), 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESLaunchOrthogonalization(GMRESFusedWork *work, cudaStream_t stream)
{
  const bool        last = work->position + 1 == work->restart, by_nccl = work->nccl && !GMRESIsDirect(work);
  const LocalInt    numbers = 2 * (work->position + 1) + 1;
  Orthogonalization g{work->position,
                      work->restart,
                      work->v.w,
                      GMRESDoubleCopy(work),
                      last ? work->partial.data() : nullptr,
                      work->words.data(),
                      work->turn++,
                      work->nccl && !by_nccl,
                      by_nccl ? work->small.all : nullptr,
                      work->small,
                      work->mailbox.state()};

  PetscFunctionBegin;
  if (by_nccl) {
    PetscCall(GMRESLaunchDots(work, work->position + 1, stream));
    PetscCall(NCCLSum(work->nccl, work->small.sums, work->small.all, numbers, stream));
  }
  PetscCall(GMRESWithPrecision(work->basis, [&](auto u) {
    return LaunchTogether(work->early, Orthogonalize<std::remove_pointer_t<decltype(u.u)>>, work->workers + 1, kGMRESBlock,
                          ClerkBytes(work->restart), stream, u, g);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
