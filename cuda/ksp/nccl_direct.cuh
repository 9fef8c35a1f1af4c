/*
   Sums of a few numbers over the GPUs of one machine, by loads and stores from one GPU to the others: NCCL's API for kernels. A sum
   takes one round trip between the GPUs, where an all-reduce of NCCL takes several and has a kernel made for much data.

   The API is one of headers, whose structures follow the version: the library must be of the version that this was compiled with.
*/
#pragma once

#include <nccl.h>

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) && __has_include(<nccl_device.h>)
  #define FINEPC_NCCL_DIRECT 1
  #include <nccl_device.h>

constexpr int kDirectSums = 4; /* numbers at most */

/* What the sums need: memory that all GPUs of the machine see, and a barrier between them. */
struct NCCLDirect {
  void        *memory = nullptr; /* [2][ranks][kDirectSums] numbers, in turns, and the turn */
  ncclWindow_t window = nullptr;
  ncclDevComm  comm{};
};

inline size_t NCCLDirectBytes(int ranks)
{
  return ((size_t)2 * ranks * kDirectSums + 1) * sizeof(double);
}

/*
   to = the sums of `from` over the ranks, by one warp. Each rank writes its numbers to all others and adds what it has got, in the
   order of the ranks, so that all have the same bits. There are two places for the numbers: a rank that is ahead writes to the one
   that nobody reads any more, since nobody is behind by two barriers.
*/
static __global__ void __launch_bounds__(32) SumDirectly(NCCLDirect direct, const double *from, double *to, int count)
{
  const ncclCoopWarp                  warp;
  const int                           ranks = direct.comm.lsaSize, own = direct.comm.lsaRank;
  ncclLsaBarrierSession<ncclCoopWarp> barrier(warp, direct.comm, ncclTeamTagLsa(), 0);
  double *const                       mine  = (double *)direct.memory;
  unsigned long long *const           turns = (unsigned long long *)(mine + (size_t)2 * ranks * kDirectSums);
  const unsigned long long            turn  = *turns;
  const size_t                        begin = (size_t)(turn % 2) * ranks * kDirectSums;

  for (int rank = (int)threadIdx.x; rank < ranks; rank += 32) {
    double *const there = (double *)ncclGetLsaPointer(direct.window, (begin + (size_t)own * kDirectSums) * sizeof(double), rank);
    for (int k = 0; k < count; k++) there[k] = from[k];
  }
  barrier.sync(warp, cuda::memory_order_acq_rel);
  if ((int)threadIdx.x < count) {
    double sum = 0;
    for (int rank = 0; rank < ranks; rank++) sum += __ldcv(mine + begin + (size_t)rank * kDirectSums + threadIdx.x);
    to[threadIdx.x] = sum;
  }
  if (threadIdx.x == 0) *turns = turn + 1;
}
#endif
