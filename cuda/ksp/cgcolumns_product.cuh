/*
   How a warp multiplies sliced copies (sparse/slices.h) with an interleaved block vector.

   A lane always has the same pair of columns. So Columns / 2 lanes, a group, have a row of the block vector, and a warp's load gets
   kWarpSize / (Columns / 2) such rows. The entries of a slice, on the other hand, are loaded by the lanes that the slice has them
   in, the next ones while the warp works with those that it has, and pass through shared memory, the panel, to the groups: in each
   pass a group takes the entries of one lane of the slice, and asks for all the rows of the block vector that belong to them at
   once.
*/
#pragma once

#include "sparse/slices.cuh"

/* How the lanes of a warp share a block vector. */
template <int Columns>
struct ColumnLanes {
  static constexpr int row    = Columns / 2;     /* lanes of a row */
  static constexpr int groups = kWarpSize / row; /* rows of a load */

  static __device__ __forceinline__ int Pair() { return threadIdx.x % row; } /* columns 2 Pair() and 2 Pair() + 1 */
};

/*
   The entries that a warp works with: kSliceSteps steps of a slice, with zeros where a row has no entry left. They are read and
   written 16 bytes at a time. The order of these pieces in a row differs from row to row, so that neighbouring lanes, which want
   the same piece of neighbouring rows, do not ask the same banks of shared memory.
*/
struct SlicePanel {
  static constexpr int kColumns = sizeof(int4) / sizeof(LocalInt), kValues = sizeof(double2) / sizeof(double); /* of a piece */

  int4    column[kWarpSize][kSliceSteps / kColumns];
  double2 value[kWarpSize][kSliceSteps / kValues];

  /* The pieces with step t of a lane of the slice. */
  __device__ __forceinline__ int4    &Columns(int lane, int t) { return column[lane][(t / kColumns) ^ (lane >> 2 & 1)]; }
  __device__ __forceinline__ double2 &Values(int lane, int t) { return value[lane][(t / kValues) ^ (lane >> 1 & 3)]; }
};
static_assert(kSliceSteps == 8, "the order of the pieces is that of rows of 8 steps");

/* Which lanes of a slice have the entries of a row. All numbers are powers of two. */
struct SliceShape {
  int lanes, rows, shift; /* lanes a row, rows a slice, and the power of two that `lanes` is */
  int row, part;          /* of the calling lane */

  __device__ __forceinline__ explicit SliceShape(const Slices &A)
  {
    lanes = A.lanes;
    shift = __popc(lanes - 1);
    rows  = kWarpSize >> shift;
    row   = (int)(threadIdx.x % kWarpSize) >> shift;
    part  = (int)(threadIdx.x % kWarpSize) & (lanes - 1);
  }
};

/*
   The slices of the calling warp. All warps of the chip work on slices that lie together, and go on to the next ones at about the
   same time: orders in which each processor has a region of its own, where it would find more in its first-level cache, took up to
   a third longer. Blocks that are on the same processor, which come in turns of `processors`, take neighbouring slices. A kernel
   that goes backward begins with what a kernel ahead that went forward has touched last, and finds it in the second-level cache.
*/
class SliceWalk {
public:
  __device__ __forceinline__ SliceWalk(LocalInt count, int processors, bool backward)
  {
    const int turns = (int)gridDim.x / processors, warps = (int)blockDim.x / kWarpSize;
    const int block = turns ? (int)blockIdx.x % processors * turns + (int)blockIdx.x / processors : (int)blockIdx.x;
    const int first = block * warps + (int)threadIdx.x / kWarpSize, stride = (int)gridDim.x * warps;
    left_ = first < count ? (count - 1 - first) / stride + 1 : 0;
    at_   = backward ? count - 1 - first : first;
    step_ = backward ? -stride : stride;
  }
  /* Whether there is a next slice, and its number. */
  __device__ __forceinline__ bool Next(LocalInt *slice)
  {
    *slice = at_;
    at_ += step_;
    return left_-- > 0;
  }

private:
  LocalInt at_;
  int      left_, step_;
};

/* What a lane knows of its slice, and how far the warp has come: SliceCursor with lanes that are not known to the compiler. */
template <bool Even_>
struct ColumnsCursor {
  static constexpr bool Even = Even_;

  bool     there; /* there is a slice */
  LocalInt row;   /* of the matrix, to which the entries of the lane belong; if there is none, no less than the number of rows */
  LocalInt at, base;
  int      k, mine, steps;

  __device__ __forceinline__ void Open(const Slices &A, const SliceShape &shape, SliceWalk &walk)
  {
    LocalInt slice;
    k = mine = steps = 0;
    there            = walk.Next(&slice);
    if (!there) return;
    base                 = A.step[slice];
    const LocalInt place = slice * shape.rows + shape.row;
    row                  = place;
    if constexpr (Even) {
      steps = A.step[slice + 1]; /* Start() takes base from it, when both are there */
      if (A.sorted && place < A.rows) row = A.order[place];
    } else {
      at   = A.start[slice];
      mine = place < A.rows ? A.length[place] : 0;
    }
  }
  __device__ __forceinline__ void Start(const SliceShape &shape)
  {
    if (!there) return;
    if constexpr (Even) {
      at   = base * kWarpSize;
      mine = steps = steps - base;
    } else {
      mine  = (mine - shape.part + shape.lanes - 1) >> shape.shift;
      steps = __reduce_max_sync(kFullWarp, mine);
    }
  }
};

/*
   Loads what no other slice needs, so that it takes no place in the first-level cache. The compiler does not know that this reads
   memory: what is stored to the same place must depend on it.
*/
__device__ __forceinline__ double2 LoadOnce(const double2 *from)
{
  double2 v;
  asm volatile("ld.global.L1::no_allocate.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "l"(from));
  return v;
}

/* Puts the entries of the calling lane where the groups find them; `mine` of them are there. */
template <typename V, typename I>
__device__ __forceinline__ void FillPanel(const SliceBatch<kSliceSteps, V, I> &batch, int mine, SlicePanel &panel)
{
  const int lane = threadIdx.x % kWarpSize;
  LocalInt  column[kSliceSteps];
  double    value[kSliceSteps];
#pragma unroll
  for (int t = 0; t < kSliceSteps; t++) {
    column[t] = (sizeof(I) == 2 ? __shfl_sync(kFullWarp, batch.base, t) : 0) + batch.column.Get(t);
    value[t]  = t < mine ? (double)batch.value.Get(t) : 0.;
  }
#pragma unroll
  for (int t = 0; t < kSliceSteps; t += 4) panel.Columns(lane, t) = int4{column[t], column[t + 1], column[t + 2], column[t + 3]};
#pragma unroll
  for (int t = 0; t < kSliceSteps; t += 2) panel.Values(lane, t) = double2{value[t], value[t + 1]};
}

/*
   Calls act(row, product of the row with the two columns of the calling lane, operands) for the rows of the slices of the warp.
   x[column * (Columns / 2)] is the row of the block vector, as far as the lane has it, and operands = fetch(row, true) is what
   act() needs besides: both are asked for together. The first entries of the matrix are loaded before ready() is called, which
   tells whether to go on.

   While the warp works with a slice, the entries of its next one are on their way.

   A slice has 32 lanes, each of which has entries of one row; a group takes one of these after the other, and the groups that have
   a row's lanes add up what they have. All lanes of the warp take part. The order of the additions depends on nothing but the row,
   the slice's lanes a row, and Columns.
*/
template <int Columns, bool Even, typename V, typename I, typename Ready, typename Fetch, typename Act>
__device__ __forceinline__ bool StreamColumnsOf(const Slices &A, SliceWalk walk, SlicePanel &panel, Ready ready,
                                                const double2 *__restrict__ x, Fetch fetch, Act act)
{
  using L         = ColumnLanes<Columns>;
  const int group = (int)(threadIdx.x % kWarpSize) / L::row;

  const SliceShape              shape(A);
  const int                     sharing = min(shape.lanes, L::groups); /* groups that have entries of a row at a time */
  const bool                    leads   = !(group & (sharing - 1));    /* the group has the sum of a row in the end */
  const double2                *mine_x  = x + L::Pair();
  ColumnsCursor<Even>           now, next;
  SliceBatch<kSliceSteps, V, I> batch;
  double2                       kept[L::row]; /* of a slice with more steps than the panel has: the sums of each pass so far */
  /* what a step without an entry has left here, of the same columns, is multiplied with a zero */
  double2 v[kSliceSteps] = {};

  asm("" : "+l"(mine_x)); /* kept in registers: otherwise each address below takes five instructions instead of one */
  now.Open(A, shape, walk);
  next.Open(A, shape, walk);
  now.Start(shape);
  batch.template Load<true>(A, now);
  if (!ready()) return false;
#pragma unroll 1
  while (now.there) {
    const LocalInt my_row = now.row;
    const int      mine   = now.mine - now.k;
    const bool     begun = now.k > 0, more = now.k + kSliceSteps < now.steps;
    FillPanel(batch, mine, panel);
    __syncwarp();
    if (more) now.k += kSliceSteps;
    else {
      now = next;
      now.Start(shape);
      next.Open(A, shape, walk);
    }
    batch.template Load<true>(A, now);
    double2 sum = {0, 0};
#pragma unroll 1
    for (int pass = 0; pass < L::row; pass++) {
      const int      of   = pass * L::groups + group; /* the lane of the slice whose entries these are */
      const int      left = Even ? mine : __shfl_sync(kFullWarp, mine, of);
      const LocalInt row  = __shfl_sync(kFullWarp, my_row, of);
      const bool     ends = !((pass + 1) * L::groups & (shape.lanes - 1)); /* else the row goes on in the next pass */
      const bool     acts = !more && ends && leads && row < A.rows;
#pragma unroll
      for (int t = 0; t < kSliceSteps; t += 4) {
        const int4 column = panel.Columns(of, t);
        if (t < left) v[t] = __ldg(mine_x + (ptrdiff_t)column.x * L::row);
        if (t + 1 < left) v[t + 1] = __ldg(mine_x + (ptrdiff_t)column.y * L::row);
        if (t + 2 < left) v[t + 2] = __ldg(mine_x + (ptrdiff_t)column.z * L::row);
        if (t + 3 < left) v[t + 3] = __ldg(mine_x + (ptrdiff_t)column.w * L::row);
      }
      const auto operands = fetch(row, acts);
      if (begun) {
        sum.x += kept[pass].x;
        sum.y += kept[pass].y;
      }
#pragma unroll
      for (int t = 0; t < kSliceSteps; t += 2) {
        const double2 value = panel.Values(of, t);
        sum.x += value.x * v[t].x;
        sum.y += value.x * v[t].y;
        sum.x += value.y * v[t + 1].x;
        sum.y += value.y * v[t + 1].y;
      }
      if (more) kept[pass] = sum;
      else {
        if (!ends) continue;
        for (int other = 1; other < sharing; other *= 2) {
          sum.x += __shfl_xor_sync(kFullWarp, sum.x, other * L::row);
          sum.y += __shfl_xor_sync(kFullWarp, sum.y, other * L::row);
        }
        if (acts) act(row, sum, operands);
      }
      sum = {0, 0};
    }
    __syncwarp(); /* before the panel is filled anew */
  }
  return true;
}

/* The same for columns of either size. Whether the copy is even, and the type V of its values, are known to the caller. */
template <int Columns, bool Even, typename V, typename Ready, typename Fetch, typename Act>
__device__ __forceinline__ bool StreamColumns(const Slices &A, SliceWalk walk, SlicePanel *panels, Ready ready,
                                              const double2 *__restrict__ x, Fetch fetch, Act act)
{
  SlicePanel &panel = panels[threadIdx.x / kWarpSize];
  if (A.narrow) return StreamColumnsOf<Columns, Even, V, std::uint16_t>(A, walk, panel, ready, x, fetch, act);
  return StreamColumnsOf<Columns, Even, V, LocalInt>(A, walk, panel, ready, x, fetch, act);
}
