/* Large copies between pageable memory of the host and the GPU. */
#pragma once

#include "sparse/memory.h"

/*
   Copies between the host and the GPU, in the order of the stream, if that pays; otherwise *done is false, and nothing has been
   done. The memory of the host can be used again afterwards, or has what was asked for.
*/
PetscErrorCode ArraysTransfer(int count, const ArrayTask[], bool to_device, cudaStream_t stream, bool *done);

/*
   Begins copies to the device beside the stream, with threads that do nothing else, if that pays; otherwise *begun is false, and
   nothing has been done. The arrays stay as they are until ArraysAwait(), after which the stream has the copies. There is one such
   copy at a time, and other large copies wait for it.
*/
PetscErrorCode ArraysBegin(int count, const ArrayTask[], cudaStream_t stream, bool *begun);
PetscErrorCode ArraysAwait(cudaStream_t stream);

/*
   Reads a few bytes of the device when the stream has come so far. A kernel writes them to pinned memory, where the host looks for
   them: a read by cudaMemcpyAsync() and cudaStreamSynchronize() takes some 15 us longer.
*/
constexpr size_t kSmallRead = 4032;
PetscErrorCode   SmallRead(const void *from, size_t bytes, void *to, cudaStream_t);

/*
   Pinned memory. What is given back is kept for the next solver, up to kPinnedMost pieces: the driver takes as long as some
   iterations to pin memory and to free it. Nothing may use it any more when it is given back.
*/
constexpr int  kPinnedMost = 8;
PetscErrorCode PinnedTake(size_t bytes, void **memory);
PetscErrorCode PinnedGive(size_t bytes, void *memory);
