/*
   Small dense blocks in shared memory, one at a time by a warp.
*/
#pragma once

#include <cfloat>

#include "launch.cuh"

/*
   Twin of InvertBlock_Host(): a [bs * bs] = a^{-1}, column-major, bs <= kWarpSize; exchanges [bs] is work space. Lane c has column
   c. All lanes of the warp take part and get the same answer; what they wrote into `a` before the call counts, and what is in it
   afterwards all may read.
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
    if (!(size > smallest && size <= DBL_MAX)) { /* all lanes have read the same */
      if (raised == 0) return false;
      pivot = copysign(raised, pivot);
    }
    __syncwarp(); /* all have found the pivot: rows may be exchanged */
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
    __syncwarp(); /* all have used column p */
    if (lane < bs) column[lane] = lane == p ? 1 / pivot : -column[lane] / pivot;
  }
  __syncwarp();
  if (lane < bs) {
    for (int p = bs - 1; p >= 0; p--) { /* exchanged rows of a are exchanged columns of the inverse; lane r has row r */
      const int    other   = exchanges[p];
      const double left    = a[p * bs + lane];
      a[p * bs + lane]     = a[other * bs + lane];
      a[other * bs + lane] = left;
    }
  }
  __syncwarp();
  return true;
}
