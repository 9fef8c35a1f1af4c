/* Products of rows of blocks with a vector, of which a warp asks for blocks before it needs them. */
#pragma once

#include "cmatch_nodes.cuh"

/* Rows of blocks */
template <typename T>
struct CMATCHBlockRows {
  LocalInt        n, k;
  const LocalInt *A_i, *A_j;
  const T        *A_a;
};

/*
   How the blocks of a row meet the lanes. A lane has always the same entries of a block, two neighbours in a row of blocks of 6,
   and one of smaller blocks, so that a step reads contiguously. Blocks of other sizes, for which K is 0, have a row of a block in a
   lane of 8, and four blocks in a step.
*/
template <int K>
struct CMATCHBlockShape {
  static constexpr int vector  = K == 6 ? 2 : 1; /* entries of a lane */
  static constexpr int columns = K / vector;     /* lanes of a row of a block */
  static constexpr int lanes   = K * columns;    /* of a block */
  static constexpr int blocks  = kWarpSize / lanes;
  static constexpr int ahead   = K == 6 ? 6 : 4; /* steps that are loaded at once */
};
template <>
struct CMATCHBlockShape<0> {
  static constexpr int vector = 1, columns = 1, lanes = 8, blocks = 4, ahead = 1;
};

/*
   A row of blocks; the first blocks are asked for by the constructor, which may come before the wait for the kernel ahead, since
   that does not write them. A warp takes a row, and none if mine is false.
*/
template <typename T, int K>
class CMATCHBlocksAhead {
  using Shape = CMATCHBlockShape<K>;

public:
  __device__ __forceinline__ CMATCHBlocksAhead(const CMATCHBlockRows<T> &A, LocalInt i, bool mine = true) :
      A_(A), k_(K ? K : A.k), end_(mine ? A.A_i[i + 1] : 0), at_(mine ? A.A_i[i] : 0)
  {
    const int lane = threadIdx.x % kWarpSize, of_block = lane % Shape::lanes;
    row_    = K ? of_block / Shape::columns : of_block;
    column_ = K ? of_block % Shape::columns * Shape::vector : 0;
    block_  = lane / Shape::lanes < Shape::blocks && row_ < k_ ? lane / Shape::lanes : -1;
    Load();
  }

  /* (A x)_i,r in lane r. All lanes of the warp take part. */
  __device__ __forceinline__ T Multiply(const T *__restrict__ x)
  {
    T sum = 0;
    while (at_ < end_) {
      if (K) {
        T other[Shape::ahead][Shape::vector];
#pragma unroll
        for (int t = 0; t < Shape::ahead; t++)
#pragma unroll
          for (int v = 0; v < Shape::vector; v++) other[t][v] = j_[t] < 0 ? T(0) : x[(size_t)j_[t] * k_ + column_ + v];
#pragma unroll
        for (int t = 0; t < Shape::ahead; t++)
#pragma unroll
          for (int v = 0; v < Shape::vector; v++) sum += a_[t][v] * other[t][v];
      } else if (j_[0] >= 0) {
        const T *const a = A_.A_a + ((size_t)(at_ + block_) * k_ + row_) * k_;
        for (LocalInt c = 0; c < k_; c++) sum += a[c] * x[(size_t)j_[0] * k_ + c];
      }
      at_ += Shape::blocks * Shape::ahead;
      if (at_ < end_) Load();
    }
    return Gather(sum);
  }

private:
  __device__ __forceinline__ void Load()
  {
#pragma unroll
    for (int t = 0; t < Shape::ahead; t++) {
      const LocalInt e  = at_ + t * Shape::blocks + block_;
      const bool     in = block_ >= 0 && e < end_;
      j_[t]             = in ? A_.A_j[e] : -1;
      if (!K) continue;
      const T *const a = A_.A_a + (in ? ((size_t)e * k_ + row_) * k_ + column_ : 0);
      if (Shape::vector == 2) {
        Pair pair{};
        if (in) pair = *(const Pair *)a;
        a_[t][0]                 = pair.x;
        a_[t][Shape::vector - 1] = pair.y;
      } else a_[t][0] = in ? *a : T(0);
    }
  }

  /* The sums of the lanes of each row of blocks, from where they are to the first lanes. */
  __device__ __forceinline__ T Gather(T sum)
  {
    const int lane = threadIdx.x % kWarpSize;
    if (K == 3 || K == 6) {
      if (block_ < 0) sum = 0;
      const T next = __shfl_sync(kFullWarp, sum, lane + 1), last = __shfl_sync(kFullWarp, sum, lane + 2);
      sum = sum + next + last;
      if (K == 3) {
        const T second = __shfl_sync(kFullWarp, sum, lane + 9), third = __shfl_sync(kFullWarp, sum, lane + 18);
        sum = sum + second + third;
      }
    } else if (K == 2) {
#pragma unroll
      for (int distance = 1; distance < kWarpSize; distance *= 2)
        if (distance != 2) sum += __shfl_xor_sync(kFullWarp, sum, distance);
    } else {
      sum += __shfl_xor_sync(kFullWarp, sum, 8);
      sum += __shfl_xor_sync(kFullWarp, sum, 16);
    }
    return __shfl_sync(kFullWarp, sum, (lane < k_ ? lane : 0) * Shape::columns);
  }

  struct alignas(2 * sizeof(T)) Pair {
    T x, y;
  };

  const CMATCHBlockRows<T> A_;
  const LocalInt           k_, end_;
  LocalInt                 at_, j_[Shape::ahead];
  T                        a_[Shape::ahead][Shape::vector];
  int                      row_, column_, block_;
};
