/*
   Exchanges between GPUs without the host, which can be captured: from the lists of an exchange, by messages of NCCL, or by kernels
   that write to the other GPUs where these can be reached, see ranks/peers.cuh.

   Words come in turns, of which there are two kinds. Those of sums: an entry has one word, and there is a sum over all ranks
   between two exchanges, behind the kernels that read the words. The solver's own kernels send and wait then, within what they do
   besides. And own turns: an entry has two words, which successive exchanges use in turns, and kernels from here send and wait.
   That is enough if each rank that gets entries from another one also sends some to it, in the same exchange or in the one that
   always lies between: who writes the word anew has received words from the other rank since then, which had read it before it
   wrote.

   Where messages are sent, what goes is packed where it does not lie in pieces, one for each neighbour, and what comes goes where
   it belongs, or stays as it comes where the kernel that reads it has a list. Such an exchange is a kernel of NCCL, and mostly one
   of ours ahead of it. Ranks without messages launch nothing.
*/
#pragma once

#include <vector>

#include "buffer.cuh"
#include "ranks/nccl.cuh"

/* How a solver, or a hierarchy, reaches the other ranks. */
struct ExchangeRanks {
  NCCL            *nccl   = nullptr; /* makes sums and exchanges; null where there is none, or one rank */
  const RankPeers *peers  = nullptr; /* they are made by our kernels, but exchanges that have no room */
  cudaStream_t     aside  = nullptr; /* of exchanges beside kernels */
  cudaEvent_t      forked = nullptr, joined = nullptr;
  int              waiting = 0; /* blocks that wait for words at most */
};

/* Entries that kernels write to words of other ranks; none where count is 0. */
struct ExchangeSend {
  LocalInt        count;
  const LocalInt *entries; /* [count] */
  uint4 *const   *there;   /* [count] */
};

/* The threads of the grid send entries of the vector x(), in the turn of the next sum. */
template <typename Vector>
__device__ __forceinline__ void SendEntries(const ExchangeSend &send, Vector x, const RankPeers &peers)
{
  const unsigned turn = *peers.turn;
  for (long long k = GridThread(); k < send.count; k += (long long)gridDim.x * blockDim.x)
    WriteWord(send.there[k], x(send.entries[k]), turn);
}

/* One exchange. The arrays are in the memory of the group; lists that are empty are null. */
struct DeviceExchange {
  std::vector<Neighbours::Part> to, from;
  LocalInt                      packed = 0, unpacked = 0, own = 0; /* lengths of the lists, see Neighbours */
  LocalInt                     *entries = nullptr, *places = nullptr, *own_from = nullptr, *own_to = nullptr;
  void                         *send = nullptr, *received = nullptr; /* what is packed, and what comes in another order */
  int                           back = 0; /* with own turns: where in the group the exchange is, from here, that answers this one */

  /* where kernels write to the other GPUs */
  bool      direct = false;
  LocalInt  sends = 0, comes = 0;                 /* entries */
  LocalInt  slots     = -1;                       /* the first of this rank's words, as NCCLTakeSlots() gives it */
  LocalInt *sent_from = nullptr, *goes = nullptr; /* where they are in the vectors */
  void    **there = nullptr;                      /* [sends] the words that they go to */
  unsigned *turn  = nullptr;                      /* [2] own turns: the exchange that is sent next, and the one that comes next */

  bool Talks() const { return !(to.empty() && from.empty()); }
  /* Whether it is made by NCCL, whose kernels take a part of the chip. */
  bool ByMessages() const { return Talks() && !direct; }
};

/* Exchanges that are made together, of entries of one size. */
struct DeviceExchanges {
  explicit DeviceExchanges(WorkMeter *meter, bool turns = false) : own_turns(turns), memory(meter) { }

  bool                        own_turns;
  size_t                      bytes = sizeof(double); /* of an entry */
  std::vector<DeviceExchange> each;
  Buffer<char>                memory;

  /* what DeviceExchangesConnect() needs, with room for it */
  std::vector<int>         ready;
  std::vector<LocalInt>    sent_offsets, received_offsets; /* offsets of the words of the parts that come, and of those that go */
  std::vector<void *>      words;                          /* of the entries of one exchange */
  std::vector<MPI_Request> requests;
};

/* Sums and exchanges are those of this NCCL from now on, or of none. Graphs of the one before must have been destroyed. */
void ExchangeRanksUse(ExchangeRanks *, NCCL *);
/* Frees stream and events, and gives NCCL back. */
PetscErrorCode ExchangeRanksDestroy(ExchangeRanks *);

/*
   Room for exchanges of these lists, in the place of what there is, without communication. `back` [lists] is that of
   DeviceExchange, or null. No rank has more than `most` exchanges; those with the same number are the same exchange on all ranks.
*/
PetscErrorCode DeviceExchangesMakeRoom(ExchangeRanks *, DeviceExchanges *, const std::vector<Neighbours> &lists, const int back[],
                                       size_t most);
/*
   Connects the ranks, all of which have made room, for words to be written. *direct says whether kernels do so in all exchanges,
   and is the same on all ranks. The first message of an exchange connects its ranks to one another: it takes long, and a graph
   could not hold it, so that each exchange is to be made once before.
*/
PetscErrorCode DeviceExchangesConnect(ExchangeRanks *, DeviceExchanges *, MPI_Comm, bool *direct);
/* There are no exchanges any more, and what had words gives them back. Nothing of them may be under way. */
void DeviceExchangesForget(ExchangeRanks *, DeviceExchanges *);

/*
   An exchange of entries of `from`, or of d `from`, which come to `to`, aside of what comes into the stream from here on or in it.
   With turns of sums both do nothing where kernels write to other ranks.
*/
PetscErrorCode DeviceExchangeBegin(const ExchangeRanks *, const DeviceExchanges &, size_t number, const void *d, const void *from,
                                   void *to, bool aside, cudaStream_t);
/* The stream goes on when what came is in `to`. */
PetscErrorCode DeviceExchangeEnd(const ExchangeRanks *, const DeviceExchanges &, size_t number, void *to, bool aside, cudaStream_t);
/* What a kernel of the solver sends itself; nothing where it does not. */
ExchangeSend DeviceExchangeSend(const DeviceExchange &);
