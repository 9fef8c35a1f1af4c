/* Search in ascending arrays, by one thread. */
#pragma once

#include <thrust/binary_search.h>
#include <thrust/execution_policy.h>

/* The first place in [begin, end) at which x is not below value, or end. */
template <typename T, typename Index>
__device__ inline Index LowerBound(const T *x, Index begin, Index end, T value)
{
  return (Index)(thrust::lower_bound(thrust::seq, x + begin, x + end, value) - x);
}
