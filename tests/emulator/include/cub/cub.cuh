/* Functions of CUB in plain loops, for the emulator. Without scratch memory they say how much they need, as CUB's do. */
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "cuda_runtime.h"

namespace cub
{

namespace emulated
{
/* Calls work(), unless it is asked for the bytes. */
template <typename Work>
cudaError_t Do(void *scratch, size_t &bytes, Work work)
{
  bytes = std::max<size_t>(bytes, 1);
  if (!scratch) {
    bytes = 1;
    return cudaSuccess;
  }
  const emulator::Opened opened;
  work();
  return cudaSuccess;
}
} // namespace emulated

template <typename T>
struct DoubleBuffer {
  T  *d_buffers[2];
  int selector = 0;
  DoubleBuffer(T *current, T *alternate) : d_buffers{current, alternate} { }
  T *Current() const { return d_buffers[selector]; }
  T *Alternate() const { return d_buffers[1 - selector]; }
};

struct DeviceScan {
  template <typename In, typename Out, typename Size>
  static cudaError_t ExclusiveSum(void *scratch, size_t &bytes, In in, Out out, Size n, cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] {
      typename std::remove_reference<decltype(*out)>::type sum = 0;
      for (Size k = 0; k < n; k++) {
        const auto x = in[k];
        out[k]       = sum;
        sum += x;
      }
    });
  }
};

struct DeviceReduce {
  template <typename In, typename Out, typename Size>
  static cudaError_t Sum(void *scratch, size_t &bytes, In in, Out out, Size n, cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] {
      typename std::remove_reference<decltype(*out)>::type sum = 0;
      for (Size k = 0; k < n; k++) sum += in[k];
      *out = sum;
    });
  }
  template <typename In, typename Out, typename Size>
  static cudaError_t Max(void *scratch, size_t &bytes, In in, Out out, Size n, cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] { *out = *std::max_element(in, in + n); });
  }
};

struct DeviceRadixSort {
  template <typename T, typename Size>
  static cudaError_t SortKeys(void *scratch, size_t &bytes, const T *in, T *out, Size n, int, int, cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] {
      std::copy(in, in + n, out);
      std::sort(out, out + n);
    });
  }
  template <typename Key, typename In, typename Out, typename Size>
  static cudaError_t SortPairs(void *scratch, size_t &bytes, const Key *keys, Key *sorted, In values, Out out, Size n, int, int,
                               cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] {
      std::vector<Size> order(n);
      std::iota(order.begin(), order.end(), (Size)0);
      std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) { return keys[a] < keys[b]; });
      for (Size k = 0; k < n; k++) {
        sorted[k] = keys[order[k]];
        out[k]    = values[order[k]];
      }
    });
  }
};

struct DeviceSelect {
  template <typename In, typename Out, typename Count, typename Size, typename Wanted>
  static cudaError_t If(void *scratch, size_t &bytes, In in, Out out, Count count, Size n, Wanted wanted, cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] {
      *count = 0;
      for (Size k = 0; k < n; k++)
        if (wanted(in[k])) out[(*count)++] = in[k];
    });
  }
  template <typename In, typename Flag, typename Out, typename Count, typename Size>
  static cudaError_t Flagged(void *scratch, size_t &bytes, In in, Flag flags, Out out, Count count, Size n, cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] {
      *count = 0;
      for (Size k = 0; k < n; k++)
        if (flags[k]) out[(*count)++] = in[k];
    });
  }
  template <typename In, typename Out, typename Count, typename Size>
  static cudaError_t Unique(void *scratch, size_t &bytes, In in, Out out, Count count, Size n, cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] {
      *count = (typename std::remove_reference<decltype(*count)>::type)(std::unique_copy(in, in + n, out) - out);
    });
  }
};

struct DeviceSegmentedSort {
  template <typename T, typename Size, typename Begin>
  static cudaError_t SortKeys(void *scratch, size_t &bytes, DoubleBuffer<T> &keys, Size n, Size segments, Begin begin, Begin end,
                              cudaStream_t = nullptr)
  {
    return emulated::Do(scratch, bytes, [&] {
      std::copy(keys.Current(), keys.Current() + n, keys.Alternate());
      keys.selector = 1;
      for (Size s = 0; s < segments; s++) std::sort(keys.Current() + begin[s], keys.Current() + end[s]);
    });
  }
};

/* The threads of a block bring their items to shared memory, where the first one sorts them. */
template <typename Key, int Threads, int Items, typename Value>
class BlockRadixSort {
public:
  struct Item {
    Key   key;
    Value value;
  };
  struct TempStorage {
    Item item[Threads * Items];
  };
  explicit BlockRadixSort(TempStorage &storage) : item_(storage.item) { }
  void Sort(Key (&keys)[Items], Value (&values)[Items], int = 0, int = 0)
  {
    for (int k = 0; k < Items; k++) item_[threadIdx.x * Items + k] = {keys[k], values[k]};
    __syncthreads();
    if (threadIdx.x == 0)
      std::stable_sort(item_, item_ + Threads * Items, [](const Item &x, const Item &y) { return x.key < y.key; });
    __syncthreads();
    for (int k = 0; k < Items; k++) {
      keys[k]   = item_[threadIdx.x * Items + k].key;
      values[k] = item_[threadIdx.x * Items + k].value;
    }
  }

private:
  Item *item_;
};

} // namespace cub
