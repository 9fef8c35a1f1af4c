/*
   Sums and exchanges between the GPUs of one machine inside kernels, by words in memory that each of the GPUs can write to.

   A word holds a number, and with each of its halves the turn that it belongs to. So whoever waits for the word sees by itself that
   it has come, whole, and the rank that writes it needs no flag and no fence: this is how NCCL sends small messages. The turn is
   the number of the sum over all ranks that comes next, which all ranks count alike.
*/
#pragma once

#include "launch.cuh"

constexpr int kPeersMost = 72;  /* ranks: the GPUs of the largest machines whose GPUs write to one another */
constexpr int kPeerSums  = 256; /* numbers of a sum at most: as many as a block has threads */

/* The words of all ranks. There are some for sums, [2][ranks][kPeerSums], and behind them those of exchanges. */
struct RankPeers {
  int       ranks, rank;
  unsigned *turn;
  uint4    *own;               /* the words of this rank */
  uint4    *words[kPeersMost]; /* [ranks] those of each rank, this one too */
};

constexpr size_t PeerSumWords(int ranks)
{
  return (size_t)2 * ranks * kPeerSums;
}

__device__ __forceinline__ void WriteWord(uint4 *word, double x, unsigned turn)
{
  asm volatile("st.volatile.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(word), "r"((unsigned)__double2loint(x)), "r"(turn),
               "r"((unsigned)__double2hiint(x))
               : "memory");
}

__device__ __forceinline__ uint4 LoadWord(const uint4 *word)
{
  uint4 w;
  asm volatile("ld.volatile.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(word) : "memory");
  return w;
}

__device__ __forceinline__ bool HasCome(const uint4 &w, unsigned turn)
{
  return w.y == turn && w.w == turn;
}

__device__ __forceinline__ double NumberOf(const uint4 &w)
{
  return __hiloint2double((int)w.z, (int)w.x);
}

/* The number of the word, once it has come. */
__device__ __forceinline__ double AwaitWord(const uint4 *word, unsigned turn)
{
  uint4 w;
  do w = LoadWord(word);
  while (!HasCome(w, turn));
  return NumberOf(w);
}

/*
   The sums over all ranks of this thread's numbers, which are those at `place` and behind it. All ranks add in the same order, so
   that they get the same bits. Sums come in turns to two places: a rank that is ahead writes to the one that nobody reads any more,
   since a rank that is behind has not written its own part of this sum.
*/
template <int Count>
__device__ __forceinline__ void AddOverRanks(const RankPeers &peers, unsigned turn, int place, double (&x)[Count])
{
  const int    ranks = peers.ranks;
  const size_t begin = turn % 2 * (size_t)ranks * kPeerSums + place;
#pragma unroll 2
  for (int rank = 0; rank < ranks; rank++)
#pragma unroll
    for (int k = 0; k < Count; k++) WriteWord(peers.words[rank] + begin + (size_t)peers.rank * kPeerSums + k, x[k], turn);
#pragma unroll
  for (int k = 0; k < Count; k++) x[k] = 0;
  for (int rank = 0; rank < ranks; rank++)
#pragma unroll
    for (int k = 0; k < Count; k++) x[k] += AwaitWord(peers.own + begin + (size_t)rank * kPeerSums + k, turn);
}

/* to = the sums of x over all ranks, by one thread of the grid. */
template <int Count>
__device__ inline void SumOverRanks(const RankPeers &peers, double (&x)[Count], double *to)
{
  static_assert(Count <= kPeerSums);
  const unsigned turn = *peers.turn;
  AddOverRanks(peers, turn, 0, x);
#pragma unroll
  for (int k = 0; k < Count; k++) to[k] = x[k];
  *peers.turn = turn + 1;
}

/*
   The same by a block, a thread for each number, of any count: sums [count] become those over all ranks. Where there are more
   numbers than words, sums follow one another, and no thread begins the next one before all threads have the one before.
*/
__device__ inline void SumOverRanksByBlock(const RankPeers &peers, int count, double *sums)
{
  const int many = min((int)blockDim.x, kPeerSums);
  unsigned  turn = *peers.turn;
  for (int first = 0; first < count; first += many, turn++) {
    const int k = first + (int)threadIdx.x;
    __syncthreads();
    if ((int)threadIdx.x >= many || k >= count) continue;
    double x[1] = {sums[k]};
    AddOverRanks(peers, turn, (int)threadIdx.x, x);
    sums[k] = x[0];
  }
  __syncthreads();
  if (threadIdx.x == 0) *peers.turn = turn;
}
