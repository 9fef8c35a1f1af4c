/*
   The iterations of the fused GMRES as one kernel that stays on the GPU, for systems that are small enough.

   A launch makes the iterations of a cycle, and leaves what a restart needs as that of gmresfused_iteration.cu leaves it. A block
   has the same rows all the time: of w and of the newest vector in shared memory, of the others in the first-level cache, which
   holds them as long as the system is small. All blocks have the small matrices in shared memory and come to the same decisions, so
   that an iteration has one sum over the grid, and one barrier, before others read the new vector. The norm of this vector comes
   with the products of the next iteration, and the test follows there.
*/
#include "gmresfused_small.cuh"

namespace
{

constexpr LocalInt kResidentRows    = 200;  /* rows a processor up to which KSP_GMRESFUSED_AUTO chooses this kernel */
constexpr LocalInt kResidentRestart = 100;  /* the small matrices of such a cycle leave room in shared memory */
constexpr int      kResidentStatic  = 8192; /* bytes of shared memory that the kernel declares, at most */
constexpr int      kResidentVectors = 4;    /* of the basis, whose products a warp makes at once */

/* The parameters of the kernel. */
struct Resident {
  Slices           A;
  const double    *d; /* M, or null */
  bool             left;
  LocalInt         rows; /* of a block */
  LocalInt         restart;
  uint4           *words;   /* see GridSums() */
  unsigned        *arrived; /* [blocks], see GridBarrier() */
  unsigned         turn;    /* the number of the first sum, and of the first barrier */
  size_t           bytes;   /* of shared memory */
  GMRESSmallArrays small;
  GMRESState      *state;
};

/* Bytes of shared memory that a block takes beside the matrix: see ResidentMemory. */
__host__ __device__ constexpr size_t ResidentBytes(LocalInt rows, LocalInt restart)
{
  const size_t columns = (size_t)restart + 1, numbers = 2 * (size_t)rows + GMRESSumsOf(restart + 1, 1) +
                                                        ProjectNumbers(columns, 1) + columns + SmallNumbers(columns, 1);
  return (numbers * sizeof(double) + sizeof(int4) - 1) / sizeof(int4) * sizeof(int4);
}

/* ---------------------------------------- over the grid --------------------------------------- */

/*
   sums [count] = the sums over the grid of numbers of which each block has written its part into words[number][block]. Each number
   is summed by one warp of the grid, which writes the result into one of the words behind these, where all blocks read it. A word
   is not written again before all who wait for it have read it: a block writes its parts of the next sums when it has all of these
   sums, and the warp that has read all parts of the next ones writes their sum.
*/
__device__ void GridSums(LocalInt count, LocalInt most, uint4 *words, unsigned turn, double *sums)
{
  const int    blocks = (int)gridDim.x;
  uint4 *const totals = words + (size_t)most * blocks;
  AddParts(count, blocks, words, (int)blockIdx.x, blocks, totals, turn);
#pragma unroll 1
  for (LocalInt s = threadIdx.x; s < count; s += kGMRESBlock) sums[s] = AwaitWord(totals + s, turn);
  __syncthreads();
}

/* What any block has written before the barrier can be read from the L2 behind it. */
__device__ void GridBarrier(unsigned *arrived, unsigned turn)
{
  __syncthreads();
  if (threadIdx.x < kWarpSize) {
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(arrived + blockIdx.x), "r"(turn) : "memory");
#pragma unroll 1
    for (int block = threadIdx.x; block < (int)gridDim.x; block += kResidentPolls * kWarpSize) {
      bool wait = true;
      while (wait) {
        wait = false;
#pragma unroll
        for (int k = 0; k < kResidentPolls; k++) {
          unsigned seen = turn;
          if (block + k * kWarpSize < (int)gridDim.x)
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived + block + k * kWarpSize) : "memory");
          wait = wait || (int)(seen - turn) < 0;
        }
      }
    }
    __threadfence();
  }
  __syncthreads();
}

/* ----------------------------------------- the kernel ----------------------------------------- */

/* The block's parts of the products: u_k.w, then u_k.u_last, k < count, then w.w. */
template <typename V>
__device__ __forceinline__ void DotBasis(const GMRESArray<V> &u, LocalInt first, LocalInt rows, LocalInt count, const double *w,
                                         const double *last, uint4 *words, unsigned turn)
{
  const int      warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  uint4 *const   mine   = words + blockIdx.x;
  const unsigned blocks = gridDim.x;
#pragma unroll 1
  for (LocalInt from = warp; from < count; from += kResidentVectors * kGMRESWarps) {
    double z[kResidentVectors] = {}, g[kResidentVectors] = {};
#pragma unroll 2
    for (LocalInt i = lane; i < rows; i += kWarpSize) {
      const double w_i = w[i], last_i = last[i];
#pragma unroll
      for (int t = 0; t < kResidentVectors; t++) {
        const LocalInt k = from + t * kGMRESWarps;
        const double   v = k < count ? (double)u.at(k)[first + i] : 0.;
        z[t] += v * w_i;
        g[t] += v * last_i;
      }
    }
#pragma unroll
    for (int t = 0; t < kResidentVectors; t++) {
      const LocalInt k = from + t * kGMRESWarps;
      z[t]             = GroupSum<kWarpSize>(z[t]);
      g[t]             = GroupSum<kWarpSize>(g[t]);
      if (lane == 0 && k < count) {
        WriteWord(mine + (size_t)k * blocks, z[t], turn);
        WriteWord(mine + (size_t)(count + k) * blocks, g[t], turn);
      }
    }
  }
  if (warp != kGMRESWarps - 1) return; /* the warp that has the fewest vectors */
  double square = 0;
  for (LocalInt i = lane; i < rows; i += kWarpSize) square += w[i] * w[i];
  square = GroupSum<kWarpSize>(square);
  if (lane == 0) WriteWord(mine + (size_t)2 * count * blocks, square, turn);
}

/* What a block has in shared memory beside the matrix. */
struct ResidentMemory {
  double          *w, *newest; /* [rows] of a block */
  double          *sums;       /* [GMRESSumsOf] */
  double          *work;       /* [ProjectNumbers] */
  double          *column;     /* [restart + 1] of H or R, where another block keeps it */
  GMRESSmallArrays small;      /* but H and R */
};

__device__ __forceinline__ ResidentMemory DivideMemory(const Resident &g, void *place)
{
  const size_t   columns = (size_t)g.restart + 1;
  SharedDoubles  memory{(double *)place};
  ResidentMemory to{};
  to.w      = memory.Take(g.rows);
  to.newest = memory.Take(g.rows);
  to.sums   = memory.Take(GMRESSumsOf(g.restart + 1, 1));
  to.work   = memory.Take(ProjectNumbers(columns, 1));
  to.column = memory.Take(columns);
  TakeSmall(g.restart, 1, memory, &to.small);
  return to;
}

template <int Lanes, typename V>
__global__ void __launch_bounds__(kGMRESBlock, 1) Iterate(const Resident g, GMRESArray<V> u)
{
  extern __shared__ int4 shared[];
  __shared__ Slices      A;
  __shared__ GMRESState  state;
  const LocalInt         first = min((LocalInt)blockIdx.x * g.rows, u.n), rows = min(g.rows, u.n - first);
  const LocalInt       per_slice = kWarpSize / Lanes, begin = first / per_slice, last = (first + rows + per_slice - 1) / per_slice;
  const ResidentMemory my       = DivideMemory(g, shared);
  const double *const d_columns = g.left ? nullptr : g.d, *const d_rows = g.left ? g.d : nullptr;
  char      *to     = (char *)shared + ResidentBytes(g.rows, g.restart);
  const bool keeps  = blockIdx.x == 0; /* the small matrices for the restart */
  const auto append = [&](LocalInt j, double square) {
    const size_t place  = (size_t)j * g.small.rows;
    const double factor = HessenbergColumn(j, 0, my.small.c, my.small, state.s);
    Append(j, square, factor, my.small.c, my.work, keeps ? g.small.H + place : my.column, keeps ? g.small.R + place : my.column,
           my.small, &state);
    __syncthreads();
  };

  if (g.state->s.stage != kCGRunning) return; /* it does not change before all blocks have come here */
  const LocalInt iteration = g.state->s.iteration;
  if (threadIdx.x == 0) {
    state.s         = g.state->s;
    state.test      = g.state->test;
    my.small.rhs[0] = g.small.rhs[0];
  }
  BringSlices(g.A, &A, begin, last, to, (const char *)shared + g.bytes);
  for (LocalInt i = threadIdx.x; i < rows; i += kGMRESBlock) my.newest[i] = (double)u.at(0)[first + i];
  __syncthreads();

  LocalInt j = 0;
  for (; j < g.restart; j++) {
    const V *const u_j   = u.at(j);
    const LocalInt count = j + 1;

    /* w = A M u_j, or M A u_j */
    ForRows<Lanes, kGMRESWarps>(
      A, first, begin, last,
      [=](LocalInt k) {
        const double x = (double)__ldcg(u_j + k);
        return d_columns ? d_columns[k] * x : x;
      },
      [&](LocalInt i, double sum) { my.w[i] = d_rows ? d_rows[first + i] * sum : sum; });
    __syncthreads();
    DotBasis(u, first, rows, count, my.w, my.newest, g.words, g.turn + j);
    GridSums(2 * count + 1, GMRESSumsOf(g.restart + 1, 1), g.words, g.turn + j, my.sums);

    /* iteration j - 1 ends with the norm of u_j */
    if (j > 0) {
      append(j - 1, my.sums[count + j]);
      if (state.s.stage != kCGRunning) break;
    }
    const Projection<1> next = Project<1>(j, 1, my.sums, my.work, my.small);
    if (threadIdx.x == 0) TakeScale(next, 1, &state);
    __syncthreads();
    if (state.s.stage != kCGRunning) break;

    /* u_{j+1} */
    const double        scale = state.s.scale[0];
    const double *const c[1]  = {my.small.c};
    for (LocalInt i = threadIdx.x; i < rows; i += kGMRESBlock) {
      double x[1] = {my.w[i]};
      AddBasis<-1>(u, count, c, first + i, x);
      const V stored         = (V)(scale * x[0]);
      u.at(count)[first + i] = stored;
      my.newest[i]           = (double)stored;
    }
    GridBarrier(g.arrived, g.turn + j);
  }

  if (j == g.restart) { /* the cycle is full: its last norm */
    double square = 0;
    for (LocalInt i = threadIdx.x % kWarpSize; i < rows; i += kWarpSize) square += my.newest[i] * my.newest[i];
    square = GroupSum<kWarpSize>(square);
    if (threadIdx.x == 0) WriteWord(g.words + blockIdx.x, square, g.turn + j);
    GridSums(1, GMRESSumsOf(g.restart + 1, 1), g.words, g.turn + j, my.sums);
    append(j - 1, my.sums[0]);
  }

  if (!keeps) return;
  for (LocalInt k = threadIdx.x; k <= state.s.column; k += kGMRESBlock) {
    g.small.rhs[k]  = my.small.rhs[k];
    g.small.norm[k] = my.small.norm[k];
  }
  for (LocalInt n = iteration + 1 + (LocalInt)threadIdx.x; n <= state.s.iteration; n += kGMRESBlock)
    g.state->records[n % kCGRecords] = state.records[n % kCGRecords];
  if (threadIdx.x == 0) g.state->s = state.s;
}

/* Writes zeros to all the shared memory that a block may ask for. */
__global__ void __launch_bounds__(kGMRESBlock, 1) ClearShared(size_t words)
{
  extern __shared__ int4 shared[];
  volatile int *const    word = (volatile int *)shared;

  for (size_t k = threadIdx.x; k < words; k += kGMRESBlock) word[k] = 0;
}

} // namespace

bool GMRESPlanResident(GMRESFusedWork *work, const GMRESOperators *op, KSPGMRESFusedPath path, LocalInt restart, LocalInt *lanes)
{
  if (!op->A || op->apply || op->bs > 1 || restart > kResidentRestart || path == KSP_GMRESFUSED_DEVICE) return false;
  const size_t entries = (size_t)op->A->nnz;
  const bool   small =
    op->A->n <= kResidentRows * work->processors && entries * (sizeof(LocalInt) + sizeof(double)) <= kSliceResidentBytes;
  if (path != KSP_GMRESFUSED_RESIDENT && !small) return false;
  ResidentGeometry(work->processors, kGMRESBlock, op->A->n, op->A->nnz, lanes, &work->resident_rows);
  return kResidentStatic + ResidentBytes(work->resident_rows, restart) <= work->room;
}

PetscErrorCode GMRESAllocateResident(GMRESFusedWork *work, LocalInt restart)
{
  const size_t blocks = (work->A.rows + work->resident_rows - 1) / work->resident_rows;

  PetscFunctionBegin;
  PetscCall(GMRESNeedWords(work, (blocks + 1) * GMRESSumsOf(restart + 1, 1), blocks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESClearResident(const GMRESFusedWork *work, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCallCUDA(cudaFuncSetAttribute(ClearShared, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)work->room));
  ClearShared<<<work->processors, kGMRESBlock, work->room, stream>>>(work->room / sizeof(int));
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESLaunchResident(GMRESFusedWork *work, cudaStream_t stream)
{
  const int blocks = BlocksFor(work->A.rows, work->resident_rows);
  Resident  g{work->A,
             work->op.d,
             (bool)work->op.left,
             work->resident_rows,
             work->restart,
             work->words.data(),
             work->arrived.data(),
             work->turn,
             work->room - kResidentStatic,
             work->small,
             work->mailbox.state()};

  PetscFunctionBegin;
  work->turn += work->restart + 1;
  PetscCall(GMRESWithPrecision(work->basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return SlicesWithLanes(work->A.lanes, [&](auto lanes) {
      void (*const kernel)(Resident, GMRESArray<V>) = Iterate<lanes, V>;
      void *args[]                                  = {&g, &u};

      PetscFunctionBegin;
      PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)g.bytes));
      PetscCallCUDA(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(kGMRESBlock), args, g.bytes, stream));
      PetscFunctionReturn(PETSC_SUCCESS);
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
