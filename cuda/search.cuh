/* Search in ascending arrays, by one thread. */
#pragma once

/*
   The first place in [low, high) at which x is not below value, or high. The library's lower_bound(), of thrust or of cuda::std,
   counts in 64 bits: in the kernel that transposes values it takes 22 registers instead of 16, and half as many instructions more.
*/
template <typename T, typename Index>
__device__ inline Index LowerBound(const T *x, Index low, Index high, T value)
{
  while (low < high) {
    const Index middle = low + (high - low) / 2;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
