/*
   How a warp multiplies with a sliced copy (slices.h): SliceSum() is one slice of a resident copy, StreamSlices() all slices of the
   warp, one after the other, from memory.
*/
#pragma once

#include <type_traits>

#include "launch.cuh"
#include "sparse/slices.h"

constexpr int kSliceGroup = 4;               /* steps of a group in an even copy: the entries of a lane lie together */
constexpr int kSliceSteps = 2 * kSliceGroup; /* steps that StreamSlices() loads before it adds them up */

/* Calls f with the number of lanes a row of a copy as a constant: the one place where it becomes one. */
template <typename F>
PetscErrorCode SlicesWithLanes(LocalInt lanes, F f)
{
  switch (lanes) {
  case 1: return f(std::integral_constant<int, 1>());
  case 2: return f(std::integral_constant<int, 2>());
  case 4: return f(std::integral_constant<int, 4>());
  case 8: return f(std::integral_constant<int, 8>());
  case 16: return f(std::integral_constant<int, 16>());
  default: return f(std::integral_constant<int, 32>());
  }
}

/* The place of the entry of a step and a lane in a slice of an even copy that has so many steps. */
__device__ inline LocalInt EvenPlace(int step, int steps, int lane)
{
  const int whole = steps / kSliceGroup * kSliceGroup;
  if (step < whole) return step / kSliceGroup * kSliceGroup * kWarpSize + lane * kSliceGroup + step % kSliceGroup;
  if (steps & 2) return step < whole + 2 ? whole * kWarpSize + lane * 2 + step - whole : (whole + 2) * kWarpSize + lane;
  return whole * kWarpSize + lane;
}

/* Which row of the slices the calling lane has in a slice; if the copy is not sorted, that is the row of the matrix. */
template <int Lanes>
__device__ inline LocalInt SlicePlace(LocalInt slice)
{
  return slice * (kWarpSize / Lanes) + threadIdx.x % kWarpSize / Lanes;
}

/* A load; with Stream, of what is read once and should not drive other data out of the caches. */
template <bool Stream, typename T>
__device__ inline T LoadOne(const T *from)
{
  if constexpr (Stream) return __ldcs(from);
  else return *from;
}

/* The types that hold 2 and 4 numbers in one load. */
template <typename T>
struct Wide;

template <>
struct Wide<float> {
  using Two  = float2;
  using Four = float4;
};

template <>
struct Wide<LocalInt> {
  using Two  = int2;
  using Four = int4;
};

/* The numbers of a lane in so many steps, of which 4, 2 or 1 are loaded at once. 16-bit numbers stay in pairs. */
template <int Steps, typename T>
struct LaneNumbers {
  T v[Steps];

  __device__ __forceinline__ T Get(int t) const { return v[t]; }
  template <int Count, bool Stream>
  __device__ __forceinline__ void Load(const T *from, int t)
  {
    if constexpr (Count == 4) {
      const auto w = LoadOne<Stream>((const typename Wide<T>::Four *)from);
      v[t]         = w.x;
      v[t + 1]     = w.y;
      v[t + 2]     = w.z;
      v[t + 3]     = w.w;
    } else if constexpr (Count == 2) {
      const auto w = LoadOne<Stream>((const typename Wide<T>::Two *)from);
      v[t]         = w.x;
      v[t + 1]     = w.y;
    } else v[t] = LoadOne<Stream>(from);
  }
};

template <int Steps>
struct LaneNumbers<Steps, double> {
  double v[Steps];

  __device__ __forceinline__ double Get(int t) const { return v[t]; }
  template <int Count, bool Stream>
  __device__ __forceinline__ void Load(const double *from, int t)
  {
    if constexpr (Count == 1) v[t] = LoadOne<Stream>(from);
    else
#pragma unroll
      for (int k = 0; k < Count; k += 2) {
        const double2 w = LoadOne<Stream>((const double2 *)(from + k));
        v[t + k]        = w.x;
        v[t + k + 1]    = w.y;
      }
  }
};

template <int Steps>
struct LaneNumbers<Steps, std::uint16_t> {
  unsigned pair[Steps / 2];

  __device__ __forceinline__ LocalInt Get(int t) const { return (LocalInt)(t % 2 ? pair[t / 2] >> 16 : pair[t / 2] & 0xffffu); }
  template <int Count, bool Stream>
  __device__ __forceinline__ void Load(const std::uint16_t *from, int t)
  {
    if constexpr (Count == 4) {
      const uint2 w   = LoadOne<Stream>((const uint2 *)from);
      pair[t / 2]     = w.x;
      pair[t / 2 + 1] = w.y;
    } else if constexpr (Count == 2) pair[t / 2] = LoadOne<Stream>((const unsigned *)from);
    else pair[t / 2] = t % 2 ? pair[t / 2] | (unsigned)LoadOne<Stream>(from) << 16 : LoadOne<Stream>(from);
  }
};

/* What a lane knows of its slice, and how far it has come. Open() and Start() are apart, so that loads may lie between them. */
template <int Lanes, bool Even_>
struct SliceCursor {
  static constexpr bool Even = Even_;

  LocalInt slice;
  LocalInt even_row;    /* the row of the matrix that the lane has, in an even copy */
  LocalInt at;          /* the first entry of step k; in an even copy, of the group of steps */
  LocalInt base;        /* step[slice] */
  int      k;           /* the next step */
  int      mine, steps; /* the number of steps of the lane, and of the slice */

  __device__ __forceinline__ void Open(const Slices &A, LocalInt at_slice)
  {
    slice = at_slice;
    k = mine = steps = 0;
    if (slice >= A.count) return;
    base                 = A.step[slice];
    const LocalInt place = SlicePlace<Lanes>(slice);
    if constexpr (Even) {
      steps    = A.step[slice + 1]; /* Start() takes base from it, when both are there */
      even_row = A.sorted && place < A.rows ? A.order[place] : place;
    } else {
      at   = A.start[slice];
      mine = place < A.rows ? A.length[place] : 0;
    }
  }
  __device__ __forceinline__ LocalInt Row() const { return Even ? even_row : SlicePlace<Lanes>(slice); }
  __device__ __forceinline__ void     Start(const Slices &A)
  {
    if (slice >= A.count) return;
    if constexpr (Even) {
      at   = base * kWarpSize;
      mine = steps = steps - base;
    } else {
      mine  = (mine - (int)(threadIdx.x % Lanes) + Lanes - 1) / Lanes;
      steps = __reduce_max_sync(kFullWarp, mine);
    }
  }
};

/* The entries of a lane in so many steps. */
template <int Steps, typename V, typename I>
struct SliceBatch {
  LaneNumbers<Steps, V> value;
  LaneNumbers<Steps, I> column;
  LocalInt              base; /* of a narrow copy: lane t of the warp has the smallest column of the t-th step */

  template <int Count, bool Stream>
  __device__ __forceinline__ void LoadSome(const Slices &A, LocalInt at, int t)
  {
    column.template Load<Count, Stream>((const I *)A.column + at, t);
    value.template Load<Count, Stream>((const V *)A.value + at, t);
  }

  /* The cursor has the members at, base, k, mine and steps of SliceCursor. */
  template <bool Stream, typename Cursor>
  __device__ __forceinline__ void Load(const Slices &A, Cursor &from)
  {
    const int lane = threadIdx.x % kWarpSize;
    if (sizeof(I) == 2) base = from.k + lane < from.steps ? A.base[from.base + from.k + lane] : 0;
    if constexpr (Cursor::Even) {
#pragma unroll
      for (int t = 0; t < Steps; t += kSliceGroup) {
        const int left = from.steps - from.k - t; /* the same in all lanes */
        if (left >= kSliceGroup) LoadSome<kSliceGroup, Stream>(A, from.at + lane * kSliceGroup, t);
        else if (left >= 2) {
          LoadSome<2, Stream>(A, from.at + lane * 2, t);
          if (left > 2) LoadSome<1, Stream>(A, from.at + 2 * kWarpSize + lane, t + 2);
        } else if (left > 0) LoadSome<1, Stream>(A, from.at + lane, t);
        from.at += kSliceGroup * kWarpSize;
      }
    } else {
      const unsigned before = (1u << lane) - 1u;
#pragma unroll
      for (int t = 0; t < Steps; t++) {
        const unsigned ballot = __ballot_sync(kFullWarp, from.k + t < from.mine);
        if (from.k + t < from.mine) LoadSome<1, Stream>(A, from.at + __popc(ballot & before), t);
        from.at += __popc(ballot);
      }
    }
  }

  /* Adds the products of the first `left` steps to the sum; x(column) is the vector. */
  template <typename Vector>
  __device__ __forceinline__ void Add(int left, Vector x, double *sum) const
  {
    double v[Steps];
#pragma unroll
    for (int t = 0; t < Steps; t++) {
      const LocalInt first = sizeof(I) == 2 ? __shfl_sync(kFullWarp, base, t) : 0;
      if (t < left) v[t] = x(first + column.Get(t));
    }
#pragma unroll
    for (int t = 0; t < Steps; t++)
      if (t < left) *sum += (double)value.Get(t) * v[t];
  }
};

/*
   The product of a row of a resident copy with a vector, x(column): the row that the calling lane has in this slice. Every lane of
   the row gets the sum. All lanes of the warp take part. The order of the additions depends on nothing but the row and Lanes.
*/
template <int Lanes, typename Vector>
__device__ __forceinline__ double SliceSum(const Slices &A, LocalInt slice, Vector x)
{
  SliceCursor<Lanes, true>                  cursor;
  SliceBatch<kSliceGroup, double, LocalInt> batch;
  double                                    sum = 0;
  cursor.Open(A, slice);
  cursor.Start(A);
#pragma unroll 1
  for (; cursor.k < cursor.steps; cursor.k += kSliceGroup) {
    batch.template Load<false>(A, cursor);
    batch.Add(cursor.mine - cursor.k, x, &sum);
  }
  return GroupSum<Lanes>(sum);
}

/*
   Multiplies with slices first, first + stride, ..., which belong to the calling warp. The first lane of each of their rows calls
   act(row, product of the row with the vector). x(column) is the vector.

   A warp loads its next entries, and what it has to know of the slice after them, before it adds up the entries that it has. The
   first loads come before ready() is called, which says whether the product is wanted; x is used afterwards only.
*/
template <int Lanes, bool Even, typename V, typename I, typename Ready, typename Vector, typename Act>
__device__ __forceinline__ void StreamSlicesOf(const Slices &A, LocalInt first, LocalInt stride, Ready ready, Vector x, Act act)
{
  SliceCursor<Lanes, Even>      now, next;
  SliceBatch<kSliceSteps, V, I> batch;
  double                        sum = 0;
  now.Open(A, first);
  next.Open(A, first + stride);
  now.Start(A);
  batch.template Load<true>(A, now);
  if (!ready()) return;
  while (now.slice < A.count) {
    batch.Add(now.mine - now.k, x, &sum);
    now.k += kSliceSteps;
    if (now.k >= now.steps) {
      const LocalInt row = now.Row();
      now                = next;
      now.Start(A);
      batch.template Load<true>(A, now);
      next.Open(A, now.slice + stride);
      sum = GroupSum<Lanes>(sum);
      if (row < A.rows && threadIdx.x % Lanes == 0) act(row, sum);
      sum = 0;
    } else batch.template Load<true>(A, now);
  }
}

/*
   The same for columns of either size. Whether the copy is even, and the type V of its values, are known to the caller: each kind
   needs another number of registers, and is therefore better a kernel of its own.
*/
template <int Lanes, bool Even, typename V, typename Ready, typename Vector, typename Act>
__device__ __forceinline__ void StreamSlices(const Slices &A, LocalInt first, LocalInt stride, Ready ready, Vector x, Act act)
{
  if (A.narrow) StreamSlicesOf<Lanes, Even, V, std::uint16_t>(A, first, stride, ready, x, act);
  else StreamSlicesOf<Lanes, Even, V, LocalInt>(A, first, stride, ready, x, act);
}
