/* Rows of which the kernels of a cycle ask for entries before they need them. */
#pragma once

#include "cmatch.cuh"

/* Rows of entries */
template <typename T>
struct Rows {
  LocalInt        n;
  const LocalInt *i, *j;
  const T        *a;
};

/*
   The entries of a row of which GroupSize lanes take every GroupSize-th one; a lane asks for Ahead entries before it uses any. The
   first ones are asked for by the constructor, which comes before the wait for the kernel ahead, since that does not write them.
   Behind the row entries are 0 and in the column `none`. With Guarded nothing of x is read for them.
*/
template <typename T, int GroupSize, int Ahead, bool Guarded>
class RowAhead {
public:
  __device__ __forceinline__ RowAhead(const LocalInt *i, const LocalInt *j, const T *a, bool mine, LocalInt row, LocalInt none) :
      j_(j), a_(a), none_(none), end_(mine ? i[row + 1] : 0), k_(mine ? i[row] + (LocalInt)(threadIdx.x % GroupSize) : 0)
  {
    Load();
  }

  /* The sum of term(a, x of the column), which every lane gets. */
  template <typename Term>
  __device__ __forceinline__ T Sum(const T *__restrict__ x, Term term)
  {
    T sum = 0;
    while (k_ < end_) {
      T other[Ahead];
#pragma unroll
      for (int t = 0; t < Ahead; t++) other[t] = !Guarded || k_ + t * GroupSize < end_ ? x[column_[t]] : T(0);
#pragma unroll
      for (int t = 0; t < Ahead; t++) sum += term(value_[t], other[t]);
      k_ += GroupSize * Ahead;
      if (k_ < end_) Load();
    }
    return GroupSum<GroupSize>(sum);
  }

private:
  __device__ __forceinline__ void Load()
  {
#pragma unroll
    for (int t = 0; t < Ahead; t++) {
      const bool in = k_ + t * GroupSize < end_;
      column_[t]    = in ? j_[k_ + t * GroupSize] : none_;
      value_[t]     = in ? a_[k_ + t * GroupSize] : T(0);
    }
  }

  const LocalInt *j_;
  const T        *a_;
  const LocalInt  none_, end_;
  LocalInt        k_, column_[Ahead];
  T               value_[Ahead];
};
