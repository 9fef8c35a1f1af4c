/*
   What the solvers have in common that run in few kernels: products with sliced copies, and on several ranks the columns of other
   ranks, with the rows that have entries there, the exchange that brings the entries of a vector for them, the ghosts, and the
   product with these. Kernels make the exchange where they can write to the other GPUs, otherwise NCCL does, see
   ranks/exchange.cuh.
*/
#pragma once

#include <algorithm>
#include <type_traits>

#include "buffer.cuh"
#include "cgscalars.cuh"
#include "ranks/exchange.cuh"
#include "scratch.cuh"
#include "sparse/csr.h"
#include "sparse/slices.cuh"

constexpr int      kFusedBlock     = 256; /* threads of a block, but of the resident kernel */
constexpr LocalInt kMostFusedLanes = 8;   /* of a row */
constexpr LocalInt kMostGhostLanes = 8;   /* of a row of entries of other ranks */

/* ---------------------------------- products with sliced copies ------------------------------- */

/* Lanes a row, as few as let a warp ask for all of a slice of mean length at once, but no more than pay in longer rows. */
inline LocalInt FusedLanes(LocalInt rows, LocalInt nnz)
{
  LocalInt lanes = 1;
  while (lanes < kMostFusedLanes && nnz > (long long)rows * lanes * kSliceSteps) lanes *= 2;
  return lanes;
}

/* Blocks of a product on a processor: what its registers allow. */
template <bool Even, typename V>
constexpr int FusedBlocks()
{
  return Even && sizeof(V) == sizeof(float) ? 4 : 3;
}
inline int FusedBlocks(const Slices &W)
{
  return W.even && W.single ? FusedBlocks<true, float>() : FusedBlocks<false, double>();
}

/* Blocks of a product: one for each group of slices where these are few, else as many on every processor, `most` at most. */
inline int FusedGrid(const Slices &W, int processors, int most)
{
  const int blocks = BlocksFor((long long)W.count * kWarpSize, kFusedBlock);
  return blocks < processors ? blocks : std::min(most, (blocks + processors - 1) / processors) * processors;
}

/* Calls f(Even, V()) for the kind of copy. */
template <typename F>
PetscErrorCode FusedWithKind(const Slices &W, F f)
{
  if (W.even) return W.single ? f(std::true_type(), float()) : f(std::true_type(), double());
  return W.single ? f(std::false_type(), float()) : f(std::false_type(), double());
}

/*
   Calls act(row, sum over the row of W) for all rows, once ready() has returned, and if it gives true. Blocks that are on the same
   processor, which come in turns of `processors`, take neighbouring slices: these share entries of x.
*/
template <int Lanes, bool Even, typename V, typename Ready, typename Vector, typename Act>
__device__ __forceinline__ void FusedMultiply(const Slices &W, int processors, Ready ready, Vector x, Act act)
{
  const int turns = gridDim.x / processors, block = turns ? blockIdx.x % processors * turns + blockIdx.x / processors : blockIdx.x;
  const int warps = kFusedBlock / kWarpSize;
  StreamSlices<Lanes, Even, V>(W, block * warps + threadIdx.x / kWarpSize, gridDim.x * warps, ready, x, act);
}

/* ------------------------------------ columns of other ranks ---------------------------------- */

/* The rows of an operator that have entries in columns of other ranks, as a kernel needs them. */
struct CGGhostRows {
  LocalInt        count;
  LocalInt        lanes;  /* of a row */
  PetscBool       single; /* the values are in single precision */
  const LocalInt *rows;   /* [count] */
  const LocalInt *i, *j;  /* of all rows of the rank */
  const void     *a;
  PetscScalar    *values; /* the ghosts, */
  const uint4    *words;  /* or where other ranks write them to, if this is not null */
};

/*
   What an operator on several ranks has beside its slices, the columns that the rank owns: the rows of entries in columns that
   other ranks own, and the exchange that brings the entries of a vector for them. A has one, and so have the factors of an inverse
   that crosses ranks.
*/
struct CGGhosts {
  explicit CGGhosts(WorkMeter *meter) : list(meter), select(meter), arrived(meter), exchange(meter) { }

  bool             used = false; /* some rank has such entries */
  CGGhostRows      rows{};
  Buffer<LocalInt> list;       /* of A: the rows that have entries, and their number behind them */
  CubScratch       select;     /* of their selection */
  Buffer<double>   arrived;    /* of a factor: the ghosts */
  DeviceExchanges  exchange;   /* one, of the ghosts, where there is NCCL */
  PetscObjectId    made   = 0; /* the exchange that it was made for; 0 if there is none, or it is not ready */
  long             number = 0; /* of changes of all this */

  const DeviceExchange *Made() const { return used && !exchange.each.empty() ? &exchange.each[0] : nullptr; }
  /* Whether kernels write to other ranks, and whether an exchange is made by NCCL, whose kernels take a part of the chip. */
  bool         IsDirect() const { return Made() && Made()->direct; }
  bool         ByMessages() const { return Made() && Made()->ByMessages(); }
  ExchangeSend Send() const { return Made() ? DeviceExchangeSend(*Made()) : ExchangeSend{}; }
};

/* --------------------------------- the product with the ghosts -------------------------------- */

/*
   The rows that have entries times the ghosts, Lanes lanes a row.

   The sum of a first row does not depend on the product ahead of this kernel, which had waited for the decision, and for the turn
   of the words, before it let this kernel start. So the sum is made while the product ends.
*/
template <int Lanes, typename V, typename Product, typename State>
__global__ void __launch_bounds__(kFusedBlock) MultiplyGhosts(CGGhostRows B, Product product, double *partial, State *state)
{
  const V *const a                    = (const V *)B.a;
  const LocalInt stride               = (LocalInt)(gridDim.x * kFusedBlock / Lanes);
  const bool     ended                = __ldcg((const int *)&state->s.stage) >= kCGDecided;
  const unsigned turn                 = B.words ? __ldcg(state->peers.turn) : 0;
  double         sums[Product::kSums] = {};
  bool           waited               = false;
  const auto     wait                 = [&]() {
    if (!waited) {
      WaitForPrevious();
      LetNextStart();
    }
    waited = true;
  };
  for (LocalInt k = (LocalInt)(GridThread() / kWarpSize) * (kWarpSize / Lanes); !ended && k < B.count; k += stride) {
    /* k is the same in all lanes of the warp */
    const LocalInt at = k + threadIdx.x % kWarpSize / Lanes, row = at < B.count ? B.rows[at] : 0,
                   end = at < B.count ? B.i[row + 1] : 0;
    double sum         = 0;
    for (LocalInt e = at < B.count ? B.i[row] + threadIdx.x % Lanes : 0; e < end; e += Lanes)
      sum += (double)a[e] * (B.words ? AwaitWord(B.words + B.j[e], turn) : B.values[B.j[e]]);
    sum = GroupSum<Lanes>(sum);
    wait();
    if (at < B.count && threadIdx.x % Lanes == 0) product.AddRow(row, sum, sums);
  }
  wait();
  if (!ended && GridSumLast(sums, partial, &state->ticket)) product.Finish(state, sums);
}

/*
   product.AddRow() for each row of B that has entries, with its sum over the ghosts, and Finish() with the sums, by so many blocks
   at most. There is room for Product::kSums numbers of each of them in `partial`.
*/
template <typename Product, typename State>
PetscErrorCode CGGhostsMultiply(bool early, int most, const CGGhostRows &B, Product product, double *partial, State *state,
                                cudaStream_t stream)
{
  const auto with = [&](auto lanes) {
    constexpr int Lanes  = decltype(lanes)::value;
    const int     blocks = std::max(1, std::min(BlocksFor((long long)B.count * Lanes, kFusedBlock), most));
    if (B.single)
      return LaunchEarly(early, MultiplyGhosts<Lanes, float, Product, State>, blocks, kFusedBlock, stream, B, product, partial,
                         state);
    return LaunchEarly(early, MultiplyGhosts<Lanes, double, Product, State>, blocks, kFusedBlock, stream, B, product, partial,
                       state);
  };

  PetscFunctionBegin;
  if (!B.words) early = false; /* another stream is waited for */
  switch (B.lanes) {
  case 1: PetscCall(with(std::integral_constant<int, 1>())); break;
  case 2: PetscCall(with(std::integral_constant<int, 2>())); break;
  case 4: PetscCall(with(std::integral_constant<int, 4>())); break;
  default: PetscCall(with(std::integral_constant<int, kMostGhostLanes>())); break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- fused.cu ------------------------------------------- */

/* Keeps B, and the list of its rows that have entries; `changed` says whether its pattern or values are new. */
PetscErrorCode CGGhostsKeep(CGGhosts *, const CSRView &B, PetscScalar *values, bool changed);
/* The same rows, which the first one keeps, for another exchange of the same lists. */
void CGGhostsShare(const CGGhosts &, CGGhosts *);
/* As many lanes as a row has entries on average. */
LocalInt CGGhostLanes(LocalInt rows, LocalInt nnz);
/* Room for this exchange, without communication, unless it is there. */
PetscErrorCode CGGhostsMakeRoom(ExchangeRanks *, CGGhosts *, const Neighbours &, PetscObjectId exchange);
/*
   Makes the exchange ready and connects the ranks, all of which have made room. The numbers own [2] and all [2] on the GPU are for
   a first sum.
*/
PetscErrorCode CGGhostsConnect(ExchangeRanks *, CGGhosts *, PetscObjectId exchange, MPI_Comm, const double *own, double *all);
/* Forgets the exchange: no graph has it, and nothing of it is under way. */
void CGGhostsForget(ExchangeRanks *, CGGhosts *);

/*
   Sums and exchanges of a solver are those of this NCCL from now on, or of none. It has forgotten its exchanges, and graphs with
   operations of the one before.
*/
template <typename Mail>
PetscErrorCode FusedUseNCCL(ExchangeRanks *ranks, Mail *mailbox, NCCL *nccl)
{
  PetscFunctionBegin;
  ExchangeRanksUse(ranks, nccl);
  if (nccl) mailbox->WatchBy([nccl](double waited) { return NCCLCheck_CUDA(nccl, waited); });
  else mailbox->WatchBy(nullptr);
  if (ranks->peers)
    PetscCall(
      ArrayCopy_CUDA(&mailbox->state()->peers, ranks->peers, sizeof(*ranks->peers), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The exchange of entries of x for the ghosts, or of d x, where NCCL makes it, aside of what comes into the stream from here on,
   until the end is called. Where kernels write to other ranks they have to send, and both do nothing.
*/
inline PetscErrorCode CGGhostsBegin(const ExchangeRanks *ranks, const CGGhosts *ghosts, const PetscScalar *d, const PetscScalar *x,
                                    cudaStream_t stream)
{
  return DeviceExchangeBegin(ranks, ghosts->exchange, 0, d, x, ghosts->rows.values, true, stream);
}
inline PetscErrorCode CGGhostsEnd(const ExchangeRanks *ranks, const CGGhosts *ghosts, cudaStream_t stream)
{
  return DeviceExchangeEnd(ranks, ghosts->exchange, 0, ghosts->rows.values, true, stream);
}
