/*
   Words that kernels write to the memory of other GPUs.

   A word holds a number, and with it the turn that it belongs to; a word for double precision has the turn with each of its halves.
   A GPU writes eight bytes at once. So whoever waits for the word sees by itself that it has come, whole, and the GPU that writes
   it needs no flag and no fence: this is how NCCL sends small messages.
*/
#pragma once

#include "device/device.cuh"

__device__ __forceinline__ void WriteWord(uint4 *word, double x, unsigned turn)
{
  asm volatile("st.volatile.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(word), "r"((unsigned)__double2loint(x)), "r"(turn),
               "r"((unsigned)__double2hiint(x))
               : "memory");
}

__device__ __forceinline__ void WriteWord(uint2 *word, float x, unsigned turn)
{
  asm volatile("st.volatile.v2.u32 [%0], {%1, %2};" ::"l"(word), "r"(__float_as_uint(x)), "r"(turn) : "memory");
}

__device__ __forceinline__ uint4 LoadWord(const uint4 *word)
{
  uint4 w;
  asm volatile("ld.volatile.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(word) : "memory");
  return w;
}

__device__ __forceinline__ uint2 LoadWord(const uint2 *word)
{
  uint2 w;
  asm volatile("ld.volatile.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "l"(word) : "memory");
  return w;
}

__device__ __forceinline__ bool HasCome(const uint4 &w, unsigned turn)
{
  return w.y == turn && w.w == turn;
}

__device__ __forceinline__ bool HasCome(const uint2 &w, unsigned turn)
{
  return w.y == turn;
}

__device__ __forceinline__ double NumberOf(const uint4 &w)
{
  return __hiloint2double((int)w.z, (int)w.x);
}

__device__ __forceinline__ float NumberOf(const uint2 &w)
{
  return __uint_as_float(w.x);
}

/*
   What the host writes to all words, byte by byte, when another GPU has not written them for too long, so that kernels that wait
   for them end. As a number it is NaN.
*/
constexpr unsigned char kGivenUp = 0xff;

/* Whether there is nothing to wait for any more: the word has come, or the host has given up. */
template <typename Word>
__device__ __forceinline__ bool MayGoOn(const Word &w, unsigned turn)
{
  return HasCome(w, turn) || w.y == 0xffffffff;
}

/* The number of the word, once it has come. */
template <typename Word>
__device__ __forceinline__ auto AwaitWord(const Word *word, unsigned turn)
{
  Word w;
  do w = LoadWord(word);
  while (!MayGoOn(w, turn));
  return NumberOf(w);
}
