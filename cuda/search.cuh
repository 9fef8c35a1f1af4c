/* Search in ascending arrays, by one thread. */
#pragma once

/*
   The first place in [low, high) at which x is not below value, or high. With Few, low + high has to be representable.

   The library's lower_bound(), of thrust or of cuda::std, counts in 64 bits: in the kernel that transposes values it takes 22
   registers instead of 16, and half as many instructions more. Few makes sFSAI's kernel of a block per system, which has no
   register to spare, spill less; other kernels are better without.
*/
template <bool Few = false, typename T, typename Index>
__device__ inline Index LowerBound(const T *x, Index low, Index high, T value)
{
  while (low < high) {
    const Index middle = Few ? (low + high) / 2 : low + (high - low) / 2;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
