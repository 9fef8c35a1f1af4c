/* What kernels do by NCCL, in any stream and also while it is captured. See nccl.h of src/ranks. */
#pragma once

#include "launch.cuh"
#include "ranks/peers.cuh"
#include "ranks/nccl.h"
#include "ranks/neighbours.h"

/*
   The sums over all ranks of `count` numbers, in another place than the numbers. All ranks get the same bits: NCCL promises
   identical copies of the result.
*/
PetscErrorCode NCCLSum(NCCL *, const double *from, double *to, int count, cudaStream_t);
/* By what kernels add over the ranks, and write to them, themselves; null where they cannot. It is the same on all ranks. */
const RankPeers *NCCLPeers(const NCCL *);
/*
   Takes so many words of this rank for an exchange and gives the first of them, or -1 if there are not so many left. They have come
   in no turn, whatever was in them; who had them before must have ended in all streams. With the turns of sums there must be a sum
   over the ranks between two exchanges to the same words, behind the kernels that read them.
*/
PetscErrorCode NCCLTakeSlots(NCCL *, size_t count, LocalInt *first);
/* Gives back those that begin so. */
void NCCLGiveSlots(NCCL *, LocalInt begin);
/* Sends the parts `to` of what is packed, and gets the parts `from`; see Neighbours. An entry takes `bytes`. */
PetscErrorCode NCCLExchange(NCCL *, const std::vector<Neighbours::Part> &to, const void *packed,
                            const std::vector<Neighbours::Part> &from, void *received, size_t bytes, cudaStream_t);
/* A solver has graphs with operations of the communicator from now on, or no longer. */
void NCCLHold(NCCL *);
void NCCLRelease(NCCL *);
