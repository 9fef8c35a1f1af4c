/*
   Sums of products of blocks, of at most 8 x 8 entries: sum_t X_t Y_t. A warp adds up one sum in its registers, by the matrix units
   of the GPU, from a list of its terms in shared memory. The units add term by term in the order of the list, and round each sum of
   a product once, as CMATCHAddFused() of the host does.
*/
#pragma once

#include "cmatch_nodes.cuh"

namespace
{

constexpr int kTile  = 8; /* rows and columns of a product of the matrix units */
constexpr int kDepth = 4; /* terms of each of its sums */
static_assert(kCMATCHMostModes <= kTile, "a block is a tile");

/* A sum: a lane has two neighbouring entries of a row. */
struct TileSum {
  double entry[2] = {};

  static __device__ __forceinline__ int Row() { return (int)(threadIdx.x % kWarpSize) / kDepth; }
  static __device__ __forceinline__ int Column() { return 2 * ((int)threadIdx.x % kDepth); }

  /* Adds the product of two tiles, of which the lane has x[Row()][lane % kDepth] and y[lane % kDepth][Row()]. */
  __device__ __forceinline__ void Add(double x, double y)
  {
#ifdef __CUDA_ARCH__
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(entry[0]), "+d"(entry[1])
                 : "d"(x), "d"(y));
#else
    for (int t = 0; t < kDepth; t++) {
      const double of_row = __shfl_sync(kFullWarp, x, Row() * kDepth + t);
      for (int e = 0; e < 2; e++) entry[e] = fma(of_row, __shfl_sync(kFullWarp, y, (Column() + e) * kDepth + t), entry[e]);
    }
#endif
  }
};

/* A block of a result as a sum has it */
template <typename T>
__device__ __forceinline__ void LoadTile(const T *block, int rows, int columns, TileSum *sum)
{
#pragma unroll
  for (int e = 0; e < 2; e++)
    if (TileSum::Row() < rows && TileSum::Column() + e < columns)
      sum->entry[e] = (double)block[TileSum::Row() * columns + TileSum::Column() + e];
}

template <typename T>
__device__ __forceinline__ void StoreTile(const TileSum &sum, int rows, int columns, T *block)
{
#pragma unroll
  for (int e = 0; e < 2; e++)
    if (TileSum::Row() < rows && TileSum::Column() + e < columns)
      block[TileSum::Row() * columns + TileSum::Column() + e] = (T)sum.entry[e];
}

/* Blocks one after the other, and what lies between their entries: across the sums, of which there are so many, and along them */
template <typename T>
struct TermBlocks {
  const T *a;
  int      sums, across, along;
  unsigned entries;

  /* The entry of the lane's row in the first block, or some other one of that block if there are fewer rows. */
  __device__ __forceinline__ const T *First(int l) const
  {
    const T *first = a + min(TileSum::Row(), sums - 1) * across + l * along;
#ifdef __CUDA_ARCH__
    asm("" : "+l"(first)); /* a number in a register, to which one instruction adds the place of a block */
#endif
    return first;
  }
  /* The same of a block, of which that is the entry in the first one. */
  __device__ __forceinline__ T At(const T *first, LocalInt block) const
  {
    return __ldg((const T *)((const char *)first + (size_t)(unsigned)block * (size_t)(entries * (unsigned)sizeof(T))));
  }
};

/*
   The sums of a warp, one after the other. The warp lists their terms, and adds them up when the list is full. Each sum has an
   owner. The inner dimension of the blocks is k. The terms of an owner are in runs of as many as fill whole steps of the matrix
   units; where the last run has too few, 0 times some other term of the sum stands for the others. There is room for kMost terms
   with those, of which no more than kAtOnce come between two calls of Close().
*/
template <int K, int kMost, int kAtOnce>
class TermList {
  static __host__ __device__ constexpr int Of(int k) { return k % 4 == 0 ? 1 : k % 2 == 0 ? 2 : 4; }
  static constexpr int                     kSteps = K ? Of(K) * K / kDepth : kTile - 1, kAhead = 2;
  static constexpr int                     kRunsOfLane = kAtOnce / Of(K ? K : kDepth) / kWarpSize;
  struct Term {
    LocalInt x, y; /* the blocks */
  };
  struct Run {
    LocalInt owner;
    int      terms; /* negative in the last run of the owner, of which it is the complement */
  };

public:
  struct Memory {
    Term term[kMost + (kAhead - 1) * Of(K ? K : 1)];
    Run  run[kMost / Of(K ? K : kDepth) + kAhead - 1];
  };

  __device__ __forceinline__ TermList(Memory *memory, int known_k) : memory_(memory), k_(K ? K : known_k) { }

  /* Lists X_x Y_y for those lanes that have one. */
  __device__ __forceinline__ void Append(bool has, LocalInt x, LocalInt y)
  {
    const unsigned some = __ballot_sync(kFullWarp, has);
    if (has) memory_->term[runs_ * Of(k_) + count_ + __popc(some & ((1u << Lane()) - 1u))] = {x, y};
    count_ += __popc(some);
  }
  /* They are the terms of the owner, who gets no others. True if the list has no room for more before a Drain(). */
  __device__ __forceinline__ bool Close(LocalInt owner)
  {
    const int of = Of(k_), first = runs_ * of, runs = max(1, (count_ + of - 1) / of);
    if (count_ < runs * of) {
      __syncwarp(); /* the first term is there */
      const Term other = count_ ? memory_->term[first] : Term{0, 0};
      if (Lane() < runs * of - count_) memory_->term[first + count_ + Lane()] = other;
    }
#pragma unroll
    for (int t = 0; t < max(kRunsOfLane, 1); t++) {
      const int run = t * kWarpSize + Lane();
      if (run < runs) memory_->run[runs_ + run] = {owner, run + 1 < runs ? of : ~(count_ - run * of)};
    }
    runs_ += runs;
    count_ = 0;
    return runs_ * of + kAtOnce + of > kMost;
  }
  /*
     The same for owners that follow each other, in their order, of which lanes below `count` have one with so many terms each, if
     the list is empty; without `all` they may get others next. Returns how many of the first ones have room. `*at` is where the
     terms of the lane's owner go by Put(). X_x Y_y is some term of the row.
  */
  __device__ __forceinline__ int MakeRoom(int count, LocalInt owner, int terms, bool all, LocalInt x, LocalInt y, int *at)
  {
    const int of = Of(k_), runs = Lane() < count ? max(1, (terms + of - 1) / of) : 0;
    int       upto = runs;
#pragma unroll
    for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
      const int before = __shfl_up_sync(kFullWarp, upto, lanes);
      if (Lane() >= lanes) upto += before;
    }
    const int fit = __popc(__ballot_sync(kFullWarp, Lane() < count && upto * of <= kMost));
    *at           = (upto - runs) * of;
    if (Lane() < fit) {
      for (int run = 0; run + 1 < runs; run++) memory_->run[upto - runs + run] = {owner, of};
      terms -= (runs - 1) * of;
      memory_->run[upto - 1] = {owner, all ? ~terms : terms};
      for (; terms < of; terms++) memory_->term[(upto - 1) * of + terms] = {x, y};
    }
    runs_ = __shfl_sync(kFullWarp, upto, fit - 1);
    return fit;
  }
  __device__ __forceinline__ void Put(int at, LocalInt x, LocalInt y) const { memory_->term[at] = {x, y}; }

  /* Adds up what is listed. A sum begins with begin(owner, &sum), and end(owner, sum) gets it when all terms of the owner are in.
   */
  template <typename X, typename Y, typename Begin, typename End>
  __device__ __forceinline__ void Drain(const TermBlocks<X> &X_, const TermBlocks<Y> &Y_, Begin begin, End end)
  {
    const int of = Of(k_);
    const X  *first_x[kSteps];
    const Y  *first_y[kSteps];
    int       term[kSteps], number[kSteps];
#pragma unroll
    for (int v = 0; v < kSteps; v++) {
      const int at = v * kDepth + Lane() % kDepth, t = min(at / k_, of - 1), l = min(at - t * k_, k_ - 1);
      number[v]  = at < of * k_ ? t : of;
      first_x[v] = X_.First(l);
      first_y[v] = Y_.First(l);
      term[v]    = t * (int)sizeof(Term);
    }
    __syncwarp();
    if (runs_ % kAhead && Lane() < kAhead - 1) { /* runs that add nothing to the last sum */
      memory_->run[runs_ + Lane()] = {0, 0};
      for (int t = 0; t < of; t++) memory_->term[runs_ * of + t] = memory_->term[(runs_ - 1) * of];
    }
    static_assert(kAhead == 2, "or more than one run is missing");
    __syncwarp();
    const char *at_term = (const char *)memory_->term, *at_run = (const char *)memory_->run;
    for (int left = runs_; left > 0; left -= kAhead) {
      X   of_x[kAhead][kSteps]; /* all entries are asked for before one is needed */
      Y   of_y[kAhead][kSteps];
      Run run[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; a++) {
        run[a] = ((const Run *)at_run)[a];
#pragma unroll
        for (int v = 0; v < kSteps; v++) {
          const Term of_lane = *(const Term *)(at_term + term[v] + a * of * (int)sizeof(Term));
          of_x[a][v]         = X_.At(first_x[v], of_lane.x);
          of_y[a][v]         = Y_.At(first_y[v], of_lane.y);
        }
      }
      at_term += kAhead * of * sizeof(Term);
      at_run += kAhead * sizeof(Run);
      __syncwarp(); /* so that the compiler leaves the loads before the products */
#pragma unroll
      for (int a = 0; a < kAhead; a++) {
        const int terms = run[a].terms < 0 ? ~run[a].terms : run[a].terms;
        if (fresh_ && a < left) {
          begin(run[a].owner, &sum_);
          fresh_ = false;
        }
        if (terms < of || K == 0) {
#pragma unroll
          for (int v = 0; v < kSteps; v++)
            if (number[v] >= terms) of_x[a][v] = 0;
        }
        if (terms > 0) { /* the blocks of a run without terms may be anything */
#pragma unroll
          for (int v = 0; v < kSteps; v++) sum_.Add((double)of_x[a][v], (double)of_y[a][v]);
        }
        if (run[a].terms >= 0) continue;
        end(run[a].owner, sum_);
        sum_   = TileSum();
        fresh_ = true;
      }
    }
    runs_ = 0;
    __syncwarp(); /* the list has been used */
  }

private:
  static __device__ __forceinline__ int Lane() { return (int)threadIdx.x % kWarpSize; }

  Memory *const memory_;
  const int     k_;
  int           runs_ = 0, count_ = 0;
  bool          fresh_ = true; /* the sum has no term yet */
  TileSum       sum_;
};

} // namespace
