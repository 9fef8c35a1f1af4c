/*
   Sums and exchanges between the GPUs of one machine inside kernels, by words in memory that each of the GPUs can write to.

   The turn of a word of a sum, or of an exchange between sums, is the number of the sum over all ranks that comes next, which all
   ranks count alike. Other exchanges count turns of their own.
*/
#pragma once

#include <petsctime.h>

#include <algorithm>
#include <vector>

#include "launch.cuh"
#include "ranks/words.cuh"

constexpr int kPeersMost = 72;  /* ranks: the GPUs of the largest machines whose GPUs write to one another */
constexpr int kPeerSums  = 256; /* numbers of a sum at most: as many as a block has threads */

/* The words of all ranks. There are some for sums, [2][ranks][kPeerSums], and behind them those of exchanges. */
struct RankPeers {
  int       ranks, rank;
  unsigned *turn;
  uint4    *own;               /* the words of this rank */
  uint4    *words[kPeersMost]; /* [ranks] those of each rank, this one too */
};

/* Waits for what is under way in the stream, for some seconds at most. */
inline PetscErrorCode AwaitStream(cudaStream_t stream, PetscLogDouble most = 5)
{
  PetscLogDouble begin, now;

  PetscFunctionBegin;
  PetscCall(PetscTime(&begin));
  do {
    if (cudaStreamQuery(stream) != cudaErrorNotReady) break;
    PetscCall(PetscTime(&now));
  } while (now - begin < most);
  (void)cudaGetLastError();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Ends kernels of a stream that wait for words of another GPU, by writing so many words of this GPU, again and again, until nothing
   is under way: GPUs that are not gone may still write theirs. A copy needs no room on the processors that the kernels have.
*/
inline PetscErrorCode GiveUpWords(uint4 *words, size_t count, cudaStream_t waiting)
{
  constexpr int           kTimes = 50; /* at most */
  const std::vector<char> given_up(1 << 20, (char)kGivenUp);
  const size_t            bytes = count * sizeof(uint4);
  cudaStream_t            stream;

  PetscFunctionBegin;
  PetscCallCUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int time = 0; time < kTimes && cudaStreamQuery(waiting) == cudaErrorNotReady; time++) {
    for (size_t at = 0; at < bytes; at += given_up.size())
      PetscCallCUDA(cudaMemcpyAsync((char *)words + at, given_up.data(), std::min(given_up.size(), bytes - at),
                                    cudaMemcpyHostToDevice, stream));
    PetscCallCUDA(cudaStreamSynchronize(stream));
    PetscCall(AwaitStream(waiting, 0.1));
  }
  (void)cudaGetLastError();
  PetscCallCUDA(cudaStreamDestroy(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

constexpr LocalInt kPeerSlots = 1 << 21; /* words of a rank for exchanges: 32 MiB */

constexpr size_t PeerSumWords(int ranks)
{
  return (size_t)2 * ranks * kPeerSums;
}

constexpr size_t PeerWords(int ranks)
{
  return PeerSumWords(ranks) + kPeerSlots;
}

/* Which words of a rank exchanges have taken. */
class PeerSlots {
public:
  /* The first room that is large enough, between those that are taken; -1 if there is none. */
  LocalInt Take(int ranks, size_t count)
  {
    size_t begin = PeerSumWords(ranks);
    auto   place = taken_.begin();
    for (; place != taken_.end() && place->begin - begin < count; place++) begin = place->end;
    if (!count || PeerWords(ranks) - begin < count) return -1;
    taken_.insert(place, {begin, begin + count});
    return (LocalInt)begin;
  }
  void Give(LocalInt begin)
  {
    const auto place =
      std::find_if(taken_.begin(), taken_.end(), [begin](const Room &room) { return room.begin == (size_t)begin; });
    if (place != taken_.end()) taken_.erase(place);
  }

private:
  struct Room {
    size_t begin, end;
  };
  std::vector<Room> taken_; /* in ascending order */
};

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
