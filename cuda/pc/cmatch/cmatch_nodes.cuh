/*
   What the files of the hierarchy of nodes on the GPU share. The formulas, and the order of every sum, are those of cmatch_nodes.h.

     cmatch_nodes.cu           the set-up as a whole, the finest level and its graph, the inverse of the coarsest level
     cmatch_nodes_levels.cu    the memory and the patterns of levels
     cmatch_nodes_smoother.cu  the inverses of diagonal blocks, factors, the estimate of the largest eigenvalue
     cmatch_nodes_prolong.cu   the tentative prolongator, the prolongator and its transpose
     cmatch_nodes_galerkin.cu  the Galerkin product
     cmatch_nodes_cycle.cu     the cycle
     cmatch_nodes_ranks.cu     the set-up of levels on several ranks

   Lanes own entries of the results: the entry (r, c) of a block gets all of its products from one lane, or from lanes between which
   a warp meets, in the order of the host twin. The products of blocks in the set-up are those of cmatch_nodes_products.cuh.
*/
#pragma once

#include "cmatch.cuh"
#include "pc/cmatch/cmatch_nodes.h"

/* A set-up, and what it knows of the level at which it is, in double precision */
struct CMATCHNodesSetup {
  CMATCHSetup *s;
  CMATCHNodes *N;
  bool         keep, work;
  LocalInt     level  = 0;
  bool         sliced = false; /* the finest level has its slices */

  double        *A        = nullptr; /* [blocks][k][k] */
  double        *B        = nullptr; /* [n][k][m] the modes, 0 where an unknown is alone; of ghosts, too, until there is a graph */
  double        *inverse  = nullptr; /* [n][k][k] D^{-1} */
  double        *diagonal = nullptr; /* [n][k] magnitudes of the diagonal entries of A; of ghosts, too, until there is a graph */
  double        *d        = nullptr; /* [n][k] 1 / psi of the level's factor, until that is scaled */
  unsigned char *alone    = nullptr; /* [n] a bit for each unknown */

  CMATCHNodesLevel &Level() const { return N->level[level]; }
  CMATCHLevel      &Ranks() const { return s->H->level[level]; }
  /* The same level, or 0 if its nodes are those of the finest level: levels on several ranks may pass them on. */
  LocalInt Kind() const
  {
    for (LocalInt above = 0; above < level; above++)
      if (s->H->level[above].transfer != CMATCH_PASSED) return level;
    return 0;
  }
};

/* The rows of A, and on several ranks what else there is of it. */
struct CMATCHNodesMatrix {
  CSRView                       own, foreign{};    /* in columns of the rank, and of ghosts */
  const LocalInt               *columns = nullptr; /* of columns of ghosts: those of the level, (n + ghost) k + r */
  const std::vector<GlobalInt> *ghost   = nullptr; /* the numbers of the level's ghosts, which are nodes; null on one rank */
  double                        largest = 0;       /* diagonal entry of all ranks */
};

/* The finest level, with its graph in s->rows; how well the aggregates fit in a set-up with keep. There may be a failure. */
PetscErrorCode CMATCHNodesMakeFinest(CMATCHNodesSetup *, const CMATCHNodesMatrix &, const CMATCHModes &);
PetscErrorCode CMATCHNodesCountFit(CMATCHNodesSetup *);
/* The slices of the level, when its operator is there */
PetscErrorCode CMATCHNodesMakeSlices(CMATCHNodesSetup *);
/* Takes from the report, which has been read, how many nodes are beside much stiffer ones. */
void CMATCHNodesTakeBeside(CMATCHNodesSetup *);
/* Finds the aggregates of the level, where `each` times the vertices are its unknowns on the next level of all ranks. */
PetscErrorCode CMATCHNodesFindAggregates(CMATCHNodesSetup *, PetscReal each, CMATCHFound *);
/* Makes the levels below this one, which is on one rank, and what the cycle needs. */
PetscErrorCode CMATCHNodesMakeLevels(CMATCHNodesSetup *);
/* Ends a set-up. */
PetscErrorCode CMATCHNodesClose(CMATCHNodesSetup *, bool keep_work);

/* Begins a hierarchy in the place of *H unless keep, for modes of this kind. */
PetscErrorCode CMATCHNodesOpen(const CMATCHParams *, const CMATCHModes &, PetscBool keep, CMATCHHierarchy **H);

/*
   Makes the memory of a level that follows the last one, whose slices have so many steps, with room for its transfer to a next one;
   with the numbers of its ghosts, if it is on several ranks.
*/
PetscErrorCode CMATCHNodesCreateLevel(CMATCHNodesSetup *, LocalInt n, LocalInt k, LocalInt blocks, LocalInt steps,
                                      const std::vector<GlobalInt> *ghost = nullptr);

/* Finishes the pattern of the last level: row starts and steps of slices, which FindPattern() has found; or an empty one. */
PetscErrorCode CMATCHNodesFinishPattern(CMATCHNodesSetup *, const LocalInt *start, const LocalInt *width);
PetscErrorCode CMATCHNodesFinishEmpty(CMATCHNodesSetup *);

/* Work memory for A and `alone` of a level, and if need be its modes, which stays while the next level is made. */
PetscErrorCode CMATCHNodesTakeOperator(CMATCHNodesSetup *, LocalInt level, double **A, unsigned char **alone, double **B = nullptr);

/* How well the aggregates fit the graph of the finest level: the result is in fit[0] of the report. cmatch_fit.cu has it. */
PetscErrorCode CMATCHNodesMeasureFit(CMATCHSetup *, const CMATCHRows &graph, const LocalInt *aggregate);

/* D^{-1}, the estimate, and with this root of the polynomial M^{-1} */
PetscErrorCode CMATCHNodesSmoother(CMATCHNodesSetup *, const PolynomialSteps &);
/*
   The same in parts on several ranks: D^{-1} and what the estimate needs, the estimate of all ranks of the level, which takes no
   memory, and M^{-1}. There may be a failure after the first two.
*/
struct CMATCHNodesVectors {
  double *r = nullptr, *z = nullptr, *p = nullptr, *q = nullptr; /* p and q have ghosts, too */
  double *partial = nullptr;
};
PetscErrorCode CMATCHNodesInvertDiagonals(CMATCHNodesSetup *, CMATCHNodesVectors *);
PetscErrorCode CMATCHNodesEstimate(CMATCHNodesSetup *, const CMATCHNodesVectors &, MPI_Datatype node);
PetscErrorCode CMATCHNodesScaleInverses(CMATCHNodesSetup *, const PolynomialSteps &);
/*
   If the smoother has factors: that of a level whose D^{-1} is there, but for its scale, and its scale, on several ranks with the
   vectors of the estimate before, which is one of all ranks of the level. There may be a failure after each.
*/
PetscErrorCode CMATCHNodesFactor(CMATCHNodesSetup *);
PetscErrorCode CMATCHNodesScaleFactor(CMATCHNodesSetup *, const CMATCHNodesVectors *, MPI_Datatype node);

/* The modes of the next level, and P and R */
PetscErrorCode CMATCHNodesProlong(CMATCHNodesSetup *);
/* The same in parts: the modes of the next level and Q; P from that of all nodes; and R, of so many rows. */
PetscErrorCode CMATCHNodesTentative(CMATCHNodesSetup *, double *Q);
PetscErrorCode CMATCHNodesMakeRows(CMATCHNodesSetup *, const double *Q);
PetscErrorCode CMATCHNodesRestriction(CMATCHNodesSetup *, LocalInt rows);

/* The next level, at which the set-up is then */
PetscErrorCode CMATCHNodesGalerkin(CMATCHNodesSetup *);
/* The same in parts on several ranks: the rows of R (A P), of which P has so many columns; and the next level, of merged rows. */
PetscErrorCode CMATCHNodesMultiply(CMATCHNodesSetup *, LocalInt columns, CMATCHMade *, size_t *entries);
struct CMATCHNodesMerge {
  LocalInt                      rows, mine, coarse; /* of the next level, and see CMATCHLevel */
  const LocalInt               *add_i;
  CMATCHMade                    own;   /* the own products */
  const LocalInt               *place; /* of their columns behind the own ones on the next level */
  const LocalInt               *came_start, *came_length, *came_j;
  const double                 *came_a;
  const std::vector<GlobalInt> *ghost; /* of the next level */
};
PetscErrorCode CMATCHNodesMergeRows(CMATCHNodesSetup *, const CMATCHNodesMerge &, double **A, unsigned char **alone, double **B);
/* What follows for the blocks of the level, when it is there. */
PetscErrorCode CMATCHNodesComplete(CMATCHNodesSetup *);

/*
   Calls f with the unknowns k of a node and the modes m as constants that the compiler knows, for the usual ones; otherwise they
   are 0, and the kernels take k and m themselves. CMATCHForUnknowns() does so for k alone.
*/
template <int N>
using CMATCHSize = std::integral_constant<int, N>;
template <typename F>
PetscErrorCode CMATCHForSizes(LocalInt k, LocalInt m, F f)
{
  if (k == 3 && m == 6) return f(CMATCHSize<3>(), CMATCHSize<6>());
  if (k == 6 && m == 6) return f(CMATCHSize<6>(), CMATCHSize<6>());
  if (k == 2 && m == 3) return f(CMATCHSize<2>(), CMATCHSize<3>());
  if (k == 3 && m == 3) return f(CMATCHSize<3>(), CMATCHSize<3>());
  return f(CMATCHSize<0>(), CMATCHSize<0>());
}

template <typename F>
PetscErrorCode CMATCHForUnknowns(LocalInt k, F f)
{
  if (k == 2) return f(CMATCHSize<2>());
  if (k == 3) return f(CMATCHSize<3>());
  if (k == 6) return f(CMATCHSize<6>());
  return f(CMATCHSize<0>());
}

/* The block of row i in column j, or -1. Columns ascend. */
__device__ __forceinline__ LocalInt CMATCHFindBlock(const LocalInt *A_i, const LocalInt *A_j, LocalInt i, LocalInt j)
{
  LocalInt begin = A_i[i], end = A_i[i + 1];
  while (begin < end) {
    const LocalInt middle = begin + (end - begin) / 2;
    if (A_j[middle] < j) begin = middle + 1;
    else end = middle;
  }
  return begin < A_i[i + 1] && A_j[begin] == j ? begin : -1;
}

/* ------------------------------------- tables of columns -------------------------------------- */

/* The place of a column in a table of 1 << bits places, which it gets if it has none, or -1 if the table is full. */
__device__ __forceinline__ int CMATCHTakePlace(LocalInt *table, int bits, LocalInt column)
{
  const int last  = (1 << bits) - 1;
  int       place = (int)((unsigned)column * 0x9E3779B1u >> (32 - bits));
  for (int tries = 0; tries <= last; tries++) {
    LocalInt found = *(volatile LocalInt *)(table + place);
    if (found == column) return place;
    if (found < 0) {
      found = atomicCAS(table + place, -1, column);
      if (found < 0 || found == column) return place;
    }
    place = (place + 1) & last;
  }
  return -1;
}

/* The columns of a table of a warp move to its front, in any order. Returns how many there are. All lanes take part. */
__device__ __forceinline__ int CMATCHCompact(LocalInt *table, int size)
{
  const int lane  = threadIdx.x % kWarpSize;
  int       count = 0;
  for (int first = 0; first < size; first += kWarpSize) {
    const LocalInt column = first + lane < size ? table[first + lane] : -1;
    const unsigned ballot = __ballot_sync(kFullWarp, column >= 0);
    __syncwarp(); /* all have read */
    if (column >= 0) table[count + __popc(ballot & ((1u << lane) - 1u))] = column;
    count += __popc(ballot);
    __syncwarp();
  }
  return count;
}
