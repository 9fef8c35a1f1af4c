/*
   The orthogonalization of a step by one kernel, whose blocks stay from the products with the basis to the new vectors.

   The workers are all blocks but the first one. They make their parts of the products, and some of their warps add these parts up.
   The first block, the clerk, takes the sums and gives the coefficients of the new vectors to the workers. While they make the
   vectors, the clerk has time for the rotations and the tests of the iterations of the step before, whose norms are among the sums.
   So a step has no end at which the grid waits for a last block.

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
template <int Step>
struct Orthogonalization {
  LocalInt            j;        /* the newest vector is u_j */
  LocalInt            products; /* of this step; where it is one of two, both w are the same */
  LocalInt            fresh;    /* vectors that the step before has made, or u_j alone where it begins anew */
  LocalInt            made;     /* iterations that the step before has made, which end here, or 0 */
  LocalInt            restart;  /* iterations of the cycle */
  GMRESProducts<Step> of;
  double             *p;       /* the last new vector in double precision, or null */
  double             *partial; /* [products][workers] parts of the squares of the norms, or null */
  uint4              *words;  /* of each number a part of each group of workers, then the sums, then what the clerk makes of them */
  unsigned            turn;   /* of these words */
  bool                direct; /* the clerk adds the sums over all ranks */
  const double       *all;    /* the sums over all ranks, where NCCL has made them, so that there is nothing to sum; or null */
  GMRESSmallArrays    small;
  GMRESState         *state;
};

/*
   Words for the parts of so many workers. A number has as many parts as there are groups, see DotTiles: beside one another the
   workers have the numbers of as many tiles as there are groups for; and if there are more tiles than workers there is one group.
*/
__host__ __device__ constexpr size_t PartsFor(LocalInt restart, int step, size_t workers)
{
  const size_t of_tiles = GMRESTileSums(step) * workers, most = GMRESSumsOf(restart + 1, step);
  return of_tiles > most ? of_tiles : most;
}

/* What the clerk gives to the workers: c_s, the scales, and e. */
__host__ __device__ constexpr LocalInt CoefficientWords(LocalInt count, int step)
{
  return step * (count + 1) + step - 1;
}

constexpr size_t WordsFor(LocalInt restart, int step, size_t workers)
{
  return PartsFor(restart, step, workers) + GMRESSumsOf(restart + 1, step) + CoefficientWords(restart + 1, step);
}

template <int Step>
__device__ __forceinline__ uint4 *TotalsOf(const Orthogonalization<Step> &g)
{
  return g.words + PartsFor(g.restart, Step, gridDim.x - 1);
}

template <int Step>
__device__ __forceinline__ uint4 *CoefficientsOf(const Orthogonalization<Step> &g)
{
  return TotalsOf(g) + GMRESSumsOf(g.restart + 1, Step);
}

/* ------------------------------------------ the clerk ----------------------------------------- */

/* What the clerk has in shared memory; workers have what the clerk gives them in the same place. */
struct ClerkMemory {
  double          *sums;   /* [GMRESSumsOf] */
  double          *work;   /* [ProjectNumbers] */
  double          *before; /* [step][restart + 1] c of the step before */
  GMRESSmallArrays small;  /* in shared memory but for H and R, or all of it where it is otherwise */
};

constexpr size_t ClerkBytes(LocalInt restart, int step)
{
  const size_t columns = (size_t)restart + 1,
               numbers = GMRESSumsOf(restart + 1, step) + ProjectNumbers(columns, step) + step * columns;
  return (numbers + (restart <= kOnChipRestart ? SmallNumbers(columns, step) : 0)) * sizeof(double);
}

template <int Step>
__device__ __forceinline__ ClerkMemory DivideMemory(const Orthogonalization<Step> &g, double *place)
{
  const size_t  columns = (size_t)g.restart + 1;
  SharedDoubles memory{place};
  ClerkMemory   to{};
  to.sums   = memory.Take(GMRESSumsOf(g.restart + 1, Step));
  to.work   = memory.Take(ProjectNumbers(columns, Step));
  to.before = memory.Take(Step * columns);
  to.small  = g.small;
  if (g.restart <= kOnChipRestart) TakeSmall(g.restart, Step, memory, &to.small);
  return to;
}

/* What is known of the vectors before those that are new, and of the columns before those that now end. */
template <int Step>
__device__ void BringSmall(const Orthogonalization<Step> &g, const ClerkMemory &my)
{
  const LocalInt j = g.j, first = j - g.fresh; /* u_first is the vector from which the step before began */
  const size_t   ld = (size_t)g.small.restart + 1, columns = (size_t)g.restart + 1;
#pragma unroll
  for (int s = 0; s < Step; s++)
    for (LocalInt k = threadIdx.x; k <= first + s; k += kGMRESBlock) my.before[s * columns + k] = g.small.c[s * ld + k];
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
template <int Step>
__device__ void KeepSmall(const Orthogonalization<Step> &g, const ClerkMemory &my)
{
  const LocalInt j = g.j, base = j + 1 - g.fresh; /* the first new vector */
  const size_t   ld = (size_t)g.small.restart + 1, columns = (size_t)g.restart + 1;
  if (my.small.T == g.small.T) return;
#pragma unroll
  for (int s = 0; s < Step; s++)
    for (LocalInt k = threadIdx.x; k <= j + s; k += kGMRESBlock) g.small.c[s * ld + k] = my.small.c[s * columns + k];
  for (LocalInt l = base; l <= j; l++)
    for (LocalInt k = threadIdx.x; k <= l; k += kGMRESBlock) g.small.T[l * ld + k] = my.small.T[l * columns + k];
  if (threadIdx.x != 0) return;
  for (LocalInt l = base; l <= j; l++) {
    g.small.square[l] = my.small.square[l];
    g.small.norm[l]   = my.small.norm[l];
    if (!g.made) continue; /* no column has ended */
    g.small.rhs[l]        = my.small.rhs[l];
    g.small.cosine[l - 1] = my.small.cosine[l - 1];
    g.small.sine[l - 1]   = my.small.sine[l - 1];
    g.small.rhs[l - 1]    = my.small.rhs[l - 1];
  }
}

template <int Step>
__device__ void Clerk(const Orthogonalization<Step> &g, double *memory)
{
  const ClerkMemory my = DivideMemory(g, memory);
  const LocalInt    j = g.j, count = j + 1, numbers = GMRESSumsOf(count, Step), made = g.made;
  const uint4      *totals       = TotalsOf(g);
  uint4 *const      coefficients = CoefficientsOf(g);
  double            squares[Step];

  BringSmall(g, my);
  for (LocalInt s = threadIdx.x; s < numbers; s += kGMRESBlock) my.sums[s] = g.all ? g.all[s] : AwaitWord(totals + s, g.turn);
  if (g.direct) SumOverRanksByBlock(g.state->peers, numbers, my.sums);
  __syncthreads();
  const Projection<Step> next = Project<Step>(j, g.fresh, my.sums, my.work, my.small);
  for (LocalInt k = threadIdx.x; k < Step * count; k += kGMRESBlock) WriteWord(coefficients + k, next.c[k], g.turn);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < Step; s++) WriteWord(coefficients + Step * count + s, next.scale[s], g.turn);
    if (Step > 1) WriteWord(coefficients + Step * (count + 1), next.e, g.turn);
  }
#pragma unroll
  for (int s = 0; s < Step; s++) { /* of the vectors from u_{j+1-made} on */
    const LocalInt l = min(j + 1 - made + s, j);
    squares[s]       = my.sums[(Step + l - count + Step) * count + l];
  }
  __syncthreads(); /* work is used again */
  EndStep(j - made, made, squares, my.before, g.restart + 1, my.work, my.small, g.state);
  if (threadIdx.x == 0) TakeScale(next, g.products, g.state);
  KeepSmall(g, my);
}

/* ----------------------------------------- the workers ---------------------------------------- */

template <int Step, typename V>
__device__ __forceinline__ void Work(const GMRESArray<V> &u, const Orthogonalization<Step> &g, double *given)
{
  const LocalInt count = g.j + 1, words = CoefficientWords(count, Step);
  const int      worker = (int)blockIdx.x - 1, workers = (int)gridDim.x - 1;
  if (!g.all) {
    const DotTiles tiles(u.n, count, GMRESTile(Step), worker, workers);
    const int      groups = tiles.groups;
    tiles.ForEach([&](LocalInt first, LocalInt many) {
      DotTile(u, count, g.of, first, many, tiles.group, groups,
              [&](LocalInt number, double sum) { WriteWord(g.words + (size_t)number * groups + tiles.group, sum, g.turn); });
    });
    AddParts(GMRESSumsOf(count, Step), groups, g.words, worker, workers, TotalsOf(g), g.turn);
  }

  /* The thread's last entries of the vectors come while the clerk makes the coefficients. */
  const long long step = (long long)workers * 2 * kGMRESBlock, own = 2 * (worker * kGMRESBlock + (LocalInt)threadIdx.x);
  const long long top = own < u.n ? own + (u.n - 1 - own) / step * step : -1;
  BasisPairs<V>   pairs;
  double2         x[Step] = {};
  const auto      load_w  = [&](long long i) {
#pragma unroll
    for (int s = 0; s < Step; s++) x[s] = make_double2(g.of.w[s][i], i + 1 < u.n ? g.of.w[s][i + 1] : 0.);
  };
  if (top >= 0) {
    pairs.Load(u, 0, count, (LocalInt)top);
    load_w(top);
  }
  for (LocalInt k = threadIdx.x; k < words; k += kGMRESBlock) given[k] = AwaitWord(CoefficientsOf(g) + k, g.turn);
  __syncthreads();

  const double *c[Step], *const scale = given + Step * count;
#pragma unroll
  for (int s = 0; s < Step; s++) c[s] = given + s * count;
  const double e            = Step > 1 ? given[Step * (count + 1)] : 0.;
  double       square[Step] = {};
  for (long long i = top; i >= 0; i -= step) {
    const bool both = i + 1 < u.n;
    if (i < top) load_w(i);
    AddBasisPair<-1>(u, count, c, (LocalInt)i, x, pairs, i == top);
    double2 before{};
#pragma unroll
    for (int s = 0; s < Step; s++) {
      if (s >= g.products) break;
      const V first  = (V)(scale[s] * (s ? x[s].x - e * before.x : x[s].x)),
              second = (V)(scale[s] * (s ? x[s].y - e * before.y : x[s].y));
      if (both) *(typename GMRESArray<V>::Pair *)(u.at(count + s) + i) = {first, second};
      else u.at(count + s)[i] = first;
      before = make_double2((double)first, (double)second);
      square[s] += before.x * before.x + (both ? before.y * before.y : 0.);
    }
    if (g.p) {
      g.p[i] = before.x;
      if (both) g.p[i + 1] = before.y;
    }
  }
  if (!g.partial) return;
  BlockSum(square);
  if (threadIdx.x == 0)
    for (int s = 0; s < g.products; s++) g.partial[s * workers + worker] = square[s];
}

template <int Step, typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESDotBlocks) Orthogonalize(GMRESArray<V> u, const Orthogonalization<Step> g)
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
  PetscCall(SupportsEarlyLaunch((const void *)Orthogonalize<1, double>, early));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Calls f(step) with the number of products as a constant. */
template <typename F>
static PetscErrorCode WithStep(LocalInt step, F f)
{
  return step == 1 ? f(std::integral_constant<int, 1>()) : f(std::integral_constant<int, 2>());
}

/* Blocks of the kernel that the GPU can keep at once, two on a processor at most. */
template <int Step, typename V>
static PetscErrorCode CountBlocks(LocalInt restart, int *count)
{
  constexpr size_t kMost =
    std::max(ClerkBytes(kOnChipRestart, Step), ClerkBytes(kGMRESMostRestart, Step)); /* what any solver asks for */
  int blocks, processors, device, together;

  PetscFunctionBegin;
  PetscCallCUDA(cudaGetDevice(&device));
  PetscCallCUDA(cudaDeviceGetAttribute(&together, cudaDevAttrCooperativeLaunch, device));
  PetscCall(ProcessorCount(&processors));
  PetscCallCUDA(cudaFuncSetAttribute(Orthogonalize<Step, V>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)kMost));
  PetscCallCUDA(
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Orthogonalize<Step, V>, kGMRESBlock, ClerkBytes(restart, Step)));
  *count = together ? processors * std::min(blocks, kGMRESDotBlocks) : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same for a step of so many products. */
static PetscErrorCode CountBlocksOf(LocalInt step, FinePCPrecision precision, LocalInt restart, int *count)
{
  return WithStep(step, [&](auto of) {
    return precision == FINEPC_SINGLE ? CountBlocks<of, float>(restart, count) : CountBlocks<of, double>(restart, count);
  });
}

PetscErrorCode GMRESFusedCanStay_CUDA(FinePCPrecision precision, LocalInt restart, PetscBool *can)
{
  PetscFunctionBegin;
  *can = PETSC_TRUE;
  for (LocalInt step = 1; step <= kGMRESMostStep; step++) {
    int blocks;
    PetscCall(CountBlocksOf(step, precision, restart, &blocks));
    if (blocks < 2) *can = PETSC_FALSE; /* the clerk and a worker */
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESPrepareOrthogonalization(GMRESFusedWork *work, const GMRESBasis &basis, LocalInt restart, LocalInt step)
{
  int blocks;

  PetscFunctionBegin;
  PetscCall(CountBlocksOf(step, basis.precision, restart, &blocks));
  work->workers = std::max(std::min(blocks - 1, BlocksFor(basis.n, 2 * kGMRESBlock)), 1);
  PetscCall(GMRESNeedWords(work, WordsFor(restart, step, work->workers)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <int Step>
static PetscErrorCode LaunchOrthogonalize_GMRESFused(GMRESFusedWork *work, LocalInt products, bool by_nccl, cudaStream_t stream)
{
  const bool              last = work->position + products == work->restart;
  Orthogonalization<Step> g{work->position,
                            products,
                            work->fresh,
                            work->made,
                            work->restart,
                            {},
                            GMRESDoubleCopy(work),
                            last ? work->partial.data() : nullptr,
                            work->words.data(),
                            work->turn++,
                            work->nccl && !by_nccl,
                            by_nccl ? work->small.all : nullptr,
                            work->small,
                            work->mailbox.state()};

  PetscFunctionBegin;
  for (LocalInt s = 0; s < Step; s++) g.of.w[s] = work->v.w[std::min(s, products - 1)];
  PetscCall(GMRESWithPrecision(work->basis, [&](auto u) {
    return LaunchTogether(work->early, Orthogonalize<Step, std::remove_pointer_t<decltype(u.u)>>, work->workers + 1, kGMRESBlock,
                          ClerkBytes(work->restart, Step), stream, u, g);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESLaunchOrthogonalization(GMRESFusedWork *work, LocalInt products, cudaStream_t stream)
{
  const bool     by_nccl = work->nccl && !GMRESIsDirect(work);
  const LocalInt count   = work->position + 1;

  PetscFunctionBegin;
  if (by_nccl) {
    PetscCall(GMRESLaunchDots(work, count, products, stream));
    PetscCall(NCCLSum(work->nccl, work->small.sums, work->small.all, GMRESSumsOf(count, work->step), stream));
  }
  PetscCall(WithStep(work->step, [&](auto of) { return LaunchOrthogonalize_GMRESFused<of>(work, products, by_nccl, stream); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
