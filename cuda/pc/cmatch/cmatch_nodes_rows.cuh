/*
   Products of rows of blocks with a vector. The blocks are in slices of kCMATCHSlice nodes, see CMATCHNodesPlace(): a step of a
   slice has a block of each of its nodes, entry by entry, so that the unknowns of a slice, which are neighbours in memory, read
   contiguously.
*/
#pragma once

#include "cmatch_nodes.cuh"

constexpr int kCMATCHSliceThreads = 384; /* of a block, at most */

template <typename T>
struct CMATCHSlices {
  LocalInt        n, k;
  const LocalInt *A_i;   /* [n + 1] row starts: how many blocks a node has */
  const LocalInt *start; /* [slices + 1] where the steps of each slice begin */
  const LocalInt *j;     /* [steps][kCMATCHSlice] */
  const T        *a;     /* [steps][k][kCMATCHSlice][k] entry (r, c) of a block of node i is at [c][i % kCMATCHSlice][r] */

  explicit CMATCHSlices(const CMATCHNodesLevel &L) : n(L.n), k(L.k), A_i(L.A_i), start(L.slice), j(L.slice_j), a((const T *)L.A_a)
  {
  }
};

/* Threads of a block that takes a slice, as groups of the slice's unknowns: more groups where slices are few. A multiple of a warp.
 */
inline int CMATCHSliceBlock(const CMATCHNodesLevel &L, int processors)
{
  const int unknowns = kCMATCHSlice * L.k, most = CMATCHSliceCount(L.n) < 4 * processors ? kCMATCHSliceThreads : 0;
  int       groups = 4;
  while (unknowns * (groups + 4) <= most && 4 * groups * (double)L.n < (double)L.blocks) groups += 4;
  return unknowns * groups;
}

/*
   The part of a product that a thread of a slice's block adds up. Its blocks are those of every so many steps; the first ones are
   asked for by the constructor, which may come before the wait for the kernel ahead, since that does not write them.
*/
template <typename T, int K>
class CMATCHSliceRow {
  static constexpr int kAhead = K >= 4 ? 2 : 4; /* steps that are loaded at once */
  struct Batch {
    LocalInt column[kAhead];
    T        value[kAhead][K ? K : 1];
  };

public:
  LocalInt u;     /* the unknown */
  bool     first; /* whether the thread is of the first group, which gets the sums */
  bool     mine;  /* whether there is such an unknown, for which this thread gets the sum */

  /* So many neighbouring threads have an unknown, each for vectors of its own. */
  __device__ __forceinline__ CMATCHSliceRow(const CMATCHSlices<T> &A, LocalInt slice, int lanes = 1) :
      k_(K ? K : A.k), lanes_(lanes)
  {
    const int      unknowns = kCMATCHSlice * k_, thread = (int)threadIdx.x / lanes, t = thread % unknowns;
    const LocalInt i     = slice * kCMATCHSlice + t / k_;
    const bool     in    = i < A.n;
    groups_              = (int)blockDim.x / lanes / unknowns;
    step_                = thread / unknowns;
    u                    = slice * unknowns + t;
    first                = step_ == 0;
    mine                 = first && in;
    end_                 = in ? A.A_i[i + 1] - A.A_i[i] : 0;
    const LocalInt start = A.start[slice];
    j_                   = A.j + (size_t)start * kCMATCHSlice + t / k_;
    a_                   = A.a + (size_t)start * k_ * unknowns + t;
    Load();
  }

  /* The sum of the thread's products */
  template <typename V>
  __device__ __forceinline__ V Multiply(const V *__restrict__ x)
  {
    return Add<V>([x](T a, size_t at) { return (V)a * x[at]; });
  }

  /* The sum of term(a, the unknown of the column) over the thread's entries */
  template <typename V, typename Term>
  __device__ __forceinline__ V Add(Term term)
  {
    V sum{};
    while (step_ < end_) {
      const Batch now  = ahead_;
      LocalInt    step = step_;
      step_ += kAhead * groups_;
      Load();
#pragma unroll
      for (int s = 0; s < kAhead; s++, step += groups_) {
        if (step >= end_) continue;
        const size_t of = (size_t)now.column[s] * k_;
        if (K) {
#pragma unroll
          for (int c = 0; c < K; c++) sum += term(now.value[s][c], of + c);
        } else
          for (LocalInt c = 0; c < k_; c++) sum += term(Value(step, c), of + c);
      }
    }
    return sum;
  }

  /* Adds up the sums of the groups, which `part` [kCMATCHSliceThreads] has, in the first one. All threads of the block take part.
   */
  template <typename V>
  __device__ __forceinline__ V AddUp(V sum, V *part) const
  {
    const int threads = kCMATCHSlice * k_ * lanes_;
    part[threadIdx.x] = sum;
    __syncthreads();
    if (!first) return V{};
    for (int g = 1; g < groups_; g++) sum += part[threadIdx.x + g * threads];
    return sum;
  }

private:
  __device__ __forceinline__ T    Value(LocalInt step, LocalInt c) const { return a_[((size_t)step * k_ + c) * kCMATCHSlice * k_]; }
  __device__ __forceinline__ void Load()
  {
#pragma unroll
    for (int s = 0; s < kAhead; s++) {
      const LocalInt step = step_ + s * groups_;
      if (step >= end_) continue;
      ahead_.column[s] = __ldcs(j_ + (size_t)step * kCMATCHSlice);
#pragma unroll
      for (int c = 0; c < K; c++) ahead_.value[s][c] = Value(step, c);
    }
  }

  const LocalInt  k_;
  const int       lanes_;
  LocalInt        end_, step_;
  int             groups_;
  const LocalInt *j_;
  const T        *a_;
  Batch           ahead_;
};
