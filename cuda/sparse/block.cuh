/*
   Small dense blocks: their size as a constant of the compiler, and the inverse of a block in shared memory by a warp.
*/
#pragma once

#include <cfloat>
#include <type_traits>

#include "launch.cuh"

constexpr int kLargestCompiled = 8; /* up to this block size, each size has kernels of its own */

/*
   Calls f with the block size as a constant, std::integral_constant<int, bs>, for sizes up to kLargestCompiled, and with the
   constant 0 for all others. This is the one place where a block size becomes a template argument:

     PetscCall(WithBlockSize(bs, [&](auto size) { return LaunchSomething<size>(...); }));
*/
template <typename F>
PetscErrorCode WithBlockSize(LocalInt bs, F f)
{
  static_assert(kLargestCompiled == 8, "one case for each size");
  switch (bs) {
  case 1: return f(std::integral_constant<int, 1>());
  case 2: return f(std::integral_constant<int, 2>());
  case 3: return f(std::integral_constant<int, 3>());
  case 4: return f(std::integral_constant<int, 4>());
  case 5: return f(std::integral_constant<int, 5>());
  case 6: return f(std::integral_constant<int, 6>());
  case 7: return f(std::integral_constant<int, 7>());
  case 8: return f(std::integral_constant<int, 8>());
  default: return f(std::integral_constant<int, 0>());
  }
}

/*
   Twin of InvertBlock_Host(): a [bs * bs] becomes its inverse; it is column-major, and bs is at most kWarpSize. exchanges [bs] is
   work space. Lane c has column c. All lanes of the warp take part and get the same answer. They may have written into `a` just
   before the call, and may read all of it just after.
*/
__device__ inline bool InvertBlock(int bs, double smallest, double raised, double *a, int *exchanges)
{
  const int lane = threadIdx.x % kWarpSize;
  for (int p = 0; p < bs; p++) {
    __syncwarp();
    double *const column = a + p * bs;
    int           best   = p;
    for (int r = p + 1; r < bs; r++)
      if (fabs(column[r]) > fabs(column[best])) best = r;
    double       pivot = column[best];
    const double size  = fabs(pivot);
    if (!(size > smallest && size <= DBL_MAX)) { /* all lanes decide the same, since all have read the same */
      if (raised == 0) return false;
      pivot = copysign(raised, pivot);
    }
    __syncwarp(); /* all lanes have found the pivot, and rows may be exchanged */
    if (lane == 0) exchanges[p] = best;
    if (lane < bs) {
      const double upper  = a[lane * bs + p];
      a[lane * bs + p]    = a[lane * bs + best];
      a[lane * bs + best] = upper;
    }
    __syncwarp();
    if (lane < bs && lane != p) {
      const double top = a[lane * bs + p] / pivot;
      a[lane * bs + p] = top;
      for (int r = 0; r < bs; r++)
        if (r != p) a[lane * bs + r] -= column[r] * top;
    }
    __syncwarp(); /* all lanes have used column p */
    if (lane < bs) column[lane] = lane == p ? 1 / pivot : -column[lane] / pivot;
  }
  __syncwarp();
  if (lane < bs) {
    for (int p = bs - 1; p >= 0; p--) { /* exchanged rows of a are exchanged columns of its inverse, of which lane r has row r */
      const int    other   = exchanges[p];
      const double left    = a[p * bs + lane];
      a[p * bs + lane]     = a[other * bs + lane];
      a[other * bs + lane] = left;
    }
  }
  __syncwarp();
  return true;
}
