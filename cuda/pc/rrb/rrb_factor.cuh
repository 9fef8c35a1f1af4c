/*
   What the parts of RRB's set-up on a GPU share: rrb_factor.cu, which reads the matrix and eliminates the levels, rrb_inverse.cu,
   which inverts the remainder, rrb.cu, which has the memory, and rrb_apply.cu, which prepares the application.
*/
#pragma once

#include "rrb.cuh"

/* What the kernels of a set-up report to the host. Of several failures the one with the smallest key is the host twin's first one.
 */
struct RRBReport {
  unsigned long long pattern;   /* key: row in the upper 32 bits, then column, and the last bit is 1 for one that is unsymmetric */
  unsigned long long pivot;     /* key: RRBStage() in the upper 31 bits, then row, and the last bit is 1 for one out of range */
  unsigned long long one_sided; /* couplings that one of the two rows does not have */
  unsigned long long lifted;    /* rows that were lifted */
  unsigned long long anisotropic; /* rows that are anisotropic */
  LocalInt           nine;        /* diagonal neighbours are coupled */
  LocalInt           zero_pivots;
  LocalInt           largest, next; /* largest distance of an entry from the diagonal; whether one has that distance less one */
  LocalInt           may_lift;      /* S_1 may have rows to be lifted */
  LocalInt           isolated;      /* rows of zeros, if they are allowed */
  LocalInt           nonzero_sum;   /* some row does not sum to 0 */
};
constexpr unsigned long long kRRBNoFailure = ~0ull;

/* The points that the levels leave are factored after those of the last level, whose failures spoil them, and bear its number. */
__host__ __device__ constexpr unsigned long long RRBStage(LocalInt level, bool remainder)
{
  return 2 * (unsigned long long)level + remainder;
}

/* Reports the pivot of this row of A, which is given without its sign, if it fails. */
__device__ inline void RRBCheckPivot(RRBReport *report, unsigned long long stage, LocalInt row, double pivot)
{
  if (pivot >= kRRBSmallestPivot && pivot <= kRRBLargestPivot) return;
  const bool out_of_range = pivot > 0 && isfinite(pivot);
  atomicMin(&report->pivot, stage << 33 | (unsigned long long)row << 1 | (unsigned long long)out_of_range);
}

/* The couplings of a straight operator, [ny][nx] each; ne and nw are null where only neighbours in x and y are coupled. */
struct RRBStraight {
  double *c, *e, *n, *ne, *nw;
};

/* The two levels of a grid while they are eliminated, or the operator that remains after the last one. */
struct RRBElimination {
  RRBGrid     g;
  RRBStraight S;             /* on the points of the grid */
  double     *skew;          /* [2 kSkewArrays][cy][ld] on its black points, made by the odd level */
  double     *diagonal;      /* skew, or other such arrays, of which the diagonals alone count, where rows were lifted */
  RRBStraight next;          /* [cy][cx] on class b2, made by the even level */
  LocalInt    level, stride; /* the odd level; distance of neighbours in points of the finest grid */
  LocalInt    nx;            /* of the finest grid */
  double      sign;          /* of the pivots */
  RRBReport  *report;

  /* An entry of the skew operator that the even level factors; 0 outside the grid. */
  __device__ double Skew(int point, RRBSkew array, LocalInt I, LocalInt J) const
  {
    return g.Has(point, I, J)
             ? (array == kSkewC ? diagonal : skew)[((point == kB1 ? kSkewOfB1 : 0) + array) * g.Cells() + g.Cell(I, J)]
             : 0.;
  }
};

constexpr LocalInt kRRBAlign = 16; /* lines of arrays over cells begin at multiples of so many values, 128 bytes */

inline LocalInt RRBLineLength(LocalInt cx)
{
  return (cx + kRRBAlign - 1) / kRRBAlign * kRRBAlign;
}

/* rrb.cu: the grids of these levels, and the memory of everything that a factor keeps but S_1. */
PetscErrorCode RRBMakeGrids(RRBFactorCUDA *, LocalInt nx, LocalInt ny, LocalInt levels, LocalInt max_levels, LocalInt remainder);

/* rrb_inverse.cu: the operator that remains becomes its inverse, F->inverse. work [RRBInverseWork(F->remainder)] */
size_t         RRBInverseWork(LocalInt remainder);
PetscErrorCode RRBInvertRemainder(RRBFactorCUDA *F, RRBElimination, double *work, cudaStream_t);

/* rrb_apply.cu: whether its kernels may be launched early; the bytes that an application moves; and its graph, if there is none. */
PetscErrorCode RRBSupportsEarlyLaunch(bool *);
size_t         RRBApplyBytes(const RRBFactorCUDA *);
PetscErrorCode RRBCaptureMiddle(RRBFactorCUDA *);
/* Memory for the values of kRRBColumns vectors, and the grids with them. */
PetscErrorCode RRBMakeColumns(RRBFactorCUDA *);
