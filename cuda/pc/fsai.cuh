/* What the kernels of afsai and sfsai share. */
#pragma once

#include "launch.cuh"
#include "pc/fsai.h"

namespace
{

using Count = unsigned long long;

template <typename T>
constexpr T kSmallestPivot = (T)(sizeof(T) == sizeof(float) ? kFSAISmallestPivotSingle : kFSAISmallestPivotDouble);

/* Rows that are spread evenly over those from `first` on. It is a template so that files that don't use it have no such kernel. */
template <typename Index>
__global__ void FSAISampleRows(Index items, Index first, Index rows, Index *list)
{
  const long long k = GridThread();
  if (k < items) list[k] = first + (Index)((2 * k + 1) * rows / (2 * items));
}

} // namespace
