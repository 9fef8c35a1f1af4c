/*
   In the place of cuda/ranks/words.cuh: the words are memory that processes share. A processor writes eight bytes at once, too, in
   the order of the program.
*/
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "device/device.cuh"

/* A half of a word, or a word of a number in single precision */
inline void WriteHalf(void *to, unsigned number, unsigned turn)
{
  reinterpret_cast<std::atomic<std::uint64_t> *>(to)->store(number | (std::uint64_t)turn << 32, std::memory_order_release);
}

inline uint2 LoadHalf(const void *from)
{
  const std::uint64_t both = reinterpret_cast<const std::atomic<std::uint64_t> *>(from)->load(std::memory_order_acquire);
  return {(unsigned)both, (unsigned)(both >> 32)};
}

inline uint4 LoadWord(const uint4 *word)
{
  const uint2 low = LoadHalf(word), high = LoadHalf((const char *)word + 8);
  return {low.x, low.y, high.x, high.y};
}

inline bool HasCome(const uint4 &w, unsigned turn)
{
  return w.y == turn && w.w == turn;
}

inline double NumberOf(const uint4 &w)
{
  const std::uint64_t bits = w.x | (std::uint64_t)w.z << 32;
  double              x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

inline void WriteWord(uint4 *word, double x, unsigned turn)
{
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  WriteHalf(word, (unsigned)bits, turn);
  WriteHalf((char *)word + 8, (unsigned)(bits >> 32), turn);
}

inline void WriteWord(uint2 *word, float x, unsigned turn)
{
  unsigned bits;
  std::memcpy(&bits, &x, sizeof(bits));
  WriteHalf(word, bits, turn);
}

constexpr unsigned char kGivenUp = 0xff; /* the host gives up nowhere */

inline bool MayGoOn(const uint4 &w, unsigned turn)
{
  return HasCome(w, turn);
}

inline double AwaitWord(const uint4 *word, unsigned turn)
{
  uint4 w;
  while (!HasCome(w = LoadWord(word), turn)) sched_yield(); /* for the other process, which may be in need of this processor */
  return NumberOf(w);
}

inline float AwaitWord(const uint2 *word, unsigned turn)
{
  uint2 w;
  float x;
  while ((w = LoadHalf(word)).y != turn) sched_yield();
  std::memcpy(&x, &w.x, sizeof(x));
  return x;
}
