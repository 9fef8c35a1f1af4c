/*
   The hierarchy of nodes of CMATCH, for systems with several unknowns at each point, such as elasticity. It has blocks where the
   hierarchy of rows has entries; its rows are nodes with k unknowns each. A node of a coarse level has an unknown for each mode: a
   mode is a vector that A almost maps to 0, and for elasticity the modes are the rigid body modes.

   Vanek, Mandel, Brezina, Algebraic multigrid by smoothed aggregation for second and fourth order elliptic problems, Computing 56
   (1996) 179-196. Matching is that of cmatch_aggregate_host.cxx, on a graph of nodes.

   Set-up of level l, from its operator A, in double precision, and from its modes B, which have m columns. Every sum is in double
   precision and in the order that is given. In A Q, A P and R (A P) each product is fused with its sum, as CMATCHAddFused() does it
   and the matrix units of a GPU do; elsewhere none is. Small blocks are those of cmatch_nodes_dense.h.

   Finest level. A is scaled by a power of 2 as that of rows is, and each column of B by one, so that its largest entry is at least
   1/2 and below 1. The blocks of a node are those in which any of its k rows has an entry, by ascending columns, and the diagonal
   block, even if it is empty. An unknown is alone if its row has nothing that is not 0 beside its diagonal entry. A node all of
   whose unknowns are alone is in no aggregate. In what follows B is 0 in rows of unknowns that are alone, but not for the
   directions of the graph.

   Coarse levels. An unknown whose mode depends on others in the aggregate is dead: Bc_pp is 0. Its row and column of the operator
   are 0, and it gets 1 on its diagonal. It counts as alone.

   Graph. On the finest level g_ij is the weight of CMATCHNodesGraphOf(), from the blocks of A after scaling; below, that of the
   sweeps before is carried on, as for rows. The matching takes a_ij = -(float)g_ij and d_i = (float)sum of the positive g_ij, over
   ascending j, instead of M; an edge with g_ij <= 0 is never used, but stays, and cancels others when rows are summed. When
   vertices are put together, g is summed as entries of M are, edges inside are left out, and d is summed anew from the new g. There
   is no limit of the size of aggregates, and no row is left for its diagonal. Sweeps and strength are those of CMATCHNodesSweeps()
   and CMATCHNodesStrength(). The sweeps end early at CMATCHNodesCoarseSize() unknowns, and where no pair is found. With mis2 there
   are no sweeps, and the rows of an aggregate's nodes are summed in ascending order.

   Nodes of different sizes have rows for the unknowns that they lack, which are alone and have no modes, see CMATCHPad_Host(). The
   order of the unknowns of a node is not known then: the trace gives way to the norms of CMATCHFrobeniusWeight(), and in the axial
   graph to that of CMATCHNormWeight() where one of two nodes lacks unknowns.

   Tentative prolongator. Of an aggregate, G = sum of B_i' B_i over its nodes i in ascending order, row r of the node by row
   (G_pq += B_i,rp B_i,rq, upper triangle), which CMATCHGramFactor() makes Bc = R of. Q_i by CMATCHTentativeRow().

   Diagonal. D_i^{-1} by CMATCHInvertDiagonal(), where `smallest` is 0 on the finest level, and by CMATCHInvertCoarseDiagonal()
   below.

   Estimate of lambda, the largest eigenvalue of D^{-1} A, by kCMATCHNodesIterations steps of the preconditioned conjugate gradient
   method, as for the factored smoothers, LargestRitzValue(), and CMATCHRoundEstimate(): r = A q with
   q_u = (int32)CMATCHMix(u, u + 7) 2^-31 / sqrt(|a_uu|) for unknown u of the level, 0 where u is alone.

   Prolongator. Row i of A Q: T_iJ = sum over ascending j with aggregate J of A_ij Q_j, each entry in the order of l of
   sum_l a_rl q_lc, added one after the other to T. Then
     P_iJ = Q_i - omega (D_i^{-1} T_iJ) for J = aggregate of i, P_iJ = 0 - omega (D_i^{-1} T_iJ) for others,   omega = 4 / 3 /
   lambda, where (D^{-1} T)_rc is summed over l first, from 0. The row of a node in no aggregate is empty. Of other rows the own
   aggregate is kept and the kCMATCHSlots - 1 largest others by CMATCHSquare(), where of equal ones the smaller column is; blocks
   that are 0 are not. If a block is dropped, the row is corrected: Defect = sum over dropped J, ascending, of P_iJ Bc_J (l
   ascending, one product after the other added), W_pq += sum over kept J, ascending, of Bc_J,lp Bc_J,lq (l ascending; upper
   triangle), CMATCHSolveCorrection(), and P_iJ,rl += sum_c Defect_rc Bc_J,lc, summed over c first, from 0. Then P is rounded to T.
   With keep the kept columns are those that are there.

   Galerkin product, with the rounded P. A P: row i has the blocks of the columns of P of all j, ascending;
   (AP)_iJ,rc += a_rl p_lc over ascending j, slots of j, and l. It is rounded to T. Then C_cd,pq += p_rp (AP)_rq over the entries of
   R of row c, ascending, and over r. Blocks with d > c, and the upper triangle of those with d = c, are taken, and the others are
   their transposes; a block whose transpose is not in the pattern stays as it is summed. C is kept in double precision until the
   next level is made.

   Smoother: the polynomial of CMATCHNodesSteps() with M^{-1} = D, D_i = D_i^{-1} / (kCMATCHNodesMargin lambda), but for unknowns
   that are alone, which the polynomial solves exactly: root / a_uu on the diagonal. The products of a cycle are plain, r = b - A x.

   With sfsai and afsai M^{-1} is that of cmatch_fsai_host.cxx instead, of rows that are unknowns, with the factor in the level's
   CMATCHLevel. It is made of A in double precision, as D^{-1} is, and every entry of a block of own nodes is in the pattern, so
   that refills have the same one. Such a factor gives the M^{-1} of one whose entries are blocks, with Cholesky's factors as
   diagonal blocks: each row minimizes the same, with the rows of its node before it in the pattern. Entries in columns of unknowns
   that are alone are 0. Diagonal entries, where they are not positive by rounding 1 / (D_i^{-1})_uu, are raised by the share
   kCMATCHFactorShift on all levels, since any of them may belong to a body that nothing holds. The scale is 1 /
   (kCMATCHNodesMargin lambda) with another estimate, as that of lambda, but with psi_u for |a_uu|. P, and the polynomial in the
   place of the coarsest level's inverse, have D and its lambda.

   Coarsest level: as a dense matrix of its unknowns, in double precision, with what CMATCHNodesHold() adds, inverted by
   CMATCHNodesInvert() or alike, up to kCMATCHLargestDense unknowns; with more, the polynomial of degree kCMATCHStalledDegree.

   Refill: aggregates, patterns, and columns of P stay; all values are computed, from the modes on. How well the aggregates fit is
   counted on the graph of the finest level by CMATCHFit, with a_ij and d_i as the matching takes them and the strength of that
   level, when they are made and in each refill.
*/
#pragma once

#include "cmatch.h"
#include "cmatch_nodes_dense.h"

/*
   A few nodes may have an eigenvalue above those of all others, as those of one cell that is almost incompressible: the more nodes,
   the less of its vector is in r. An estimate that, times its margin, is below the eigenvalue makes the polynomial indefinite, at
   degree 2 below 0.85 of it, and at high degrees at once. Of 10^6 nodes and the least favourable eigenvalue, 5 steps see a share of
   1 / 1.49, and 8 of 1 / 1.16.
*/
constexpr LocalInt  kCMATCHNodesIterations = 8;
constexpr PetscReal kCMATCHNodesMargin     = 1.2;
constexpr PetscReal kCMATCHNodesOmega      = 4. / 3;

/* Modes that the host has and that are being sent to the GPU, where they arrive one after the other. */
struct CMATCHComingModes {
  PetscScalar *arrived = nullptr; /* [count][rows] on the GPU; null if nothing is on its way */
  int          count   = 0;
  LocalInt     rows    = 0; /* of each */
  LocalInt     mode[kCMATCHMostModes];
};

/* The modes of the rank's rows. */
struct CMATCHModes {
  LocalInt      k; /* unknowns of a node of the finest level, 2 .. kCMATCHMostUnknowns */
  LocalInt      m; /* modes, 1 .. kCMATCHMostModes */
  const double *B; /* [rows][m] in the memory of A, row-major, as the user has given them */

  /* On several ranks B has rows of ghosts, too, and there are, for own rows and those of ghosts, */
  const double *diagonal = nullptr; /* [rows] the diagonal entries of A, in the same memory, */
  const double *largest  = nullptr; /* and [m] the largest magnitudes in the columns of B on all ranks, on the host. */

  CMATCHComingModes *coming = nullptr; /* what of B is there only after CMATCHAwaitModes_CUDA(), or null */
  const LocalInt    *row    = nullptr; /* [rows] of nodes of different sizes, see CMATCHHierarchy; in the memory of A */
};

/*
   A level and its transfer to the next one. The arrays are in the memory of the hierarchy, and values of type void * are of its
   precision T. Blocks are row-major.
*/
struct CMATCHNodesLevel {
  LocalInt  n;      /* nodes */
  LocalInt  k;      /* unknowns of a node: those of the matrix on level 0, the modes below */
  LocalInt  blocks; /* with the diagonal ones */
  LocalInt *A_i;    /* [n + 1] row starts */
  LocalInt *A_j;    /* [blocks] columns, ascending in a row, with the diagonal */
  void     *A_a;    /* [blocks][k][k]; on a GPU in slices, see CMATCHNodesPlace() */
  void     *D;      /* [n][k][k] M^{-1} */
  PetscReal lambda; /* the estimate of the largest eigenvalue, without its margin; 0 on a level that is inverted */

  /* of a hierarchy on a GPU, and null of others */
  LocalInt *slice;   /* [CMATCHSliceCount(n) + 1] where the steps of each slice begin; a slice has as many as its longest row */
  LocalInt *slice_j; /* [steps][kCMATCHSlice] columns */
  LocalInt  steps;

  /* what follows is of all levels but the last one; m are the modes, the unknowns of a node of the next level */
  LocalInt  coarse;    /* nodes of the next level */
  LocalInt *aggregate; /* [n] or -1: the node is left to the smoother */
  LocalInt *P_j;       /* [n][kCMATCHSlots] columns, ascending in a row, and -1 behind them */
  void     *P_a;       /* [n][kCMATCHSlots][k][m] values, and 0 behind them */
  LocalInt *R_i;       /* [coarse + 1] R = P^T: row starts */
  LocalInt *R_j;       /* [P_blocks] kCMATCHSlots * node + slot, ascending in a row: where the block is in P_a */
  LocalInt  P_blocks;
  double   *B_c; /* [coarse][m][m] the modes of the next level; upper triangles */

  /* counts, for the view */
  LocalInt left;    /* nodes in no aggregate */
  LocalInt largest; /* nodes of the largest aggregate */
  LocalInt least;   /* and of the smallest one */
  LocalInt joined;  /* in all sweeps, vertices that joined a pair */
  LocalInt cut;     /* rows of P that were cut */
  LocalInt dead;    /* dead unknowns of the next level */
  LocalInt raised;  /* diagonal blocks of this level that were raised */
  LocalInt wide;    /* rows of A P and of the Galerkin product that took a general path, on a GPU */
};

/*
   On a GPU the blocks of A are in slices of kCMATCHSlice nodes: step e of a slice has block e of each of its nodes, column by
   column. The values of missing blocks are undefined.
*/
constexpr LocalInt kCMATCHSlice = 8;
inline LocalInt    CMATCHSliceCount(LocalInt n)
{
  return (n + kCMATCHSlice - 1) / kCMATCHSlice;
}

/* Where A_a has entry (r, c) of block number e of node i, whose blocks begin with block `begin` of A, and its slice with `start`.
 */
inline size_t CMATCHNodesPlace(const CMATCHNodesLevel &L, LocalInt i, LocalInt begin, LocalInt start, LocalInt e, LocalInt r,
                               LocalInt c)
{
  if (!L.slice) return ((size_t)(begin + e) * L.k + r) * L.k + c;
  return (((size_t)(start + e) * L.k + c) * kCMATCHSlice + i % kCMATCHSlice) * L.k + r;
}

/*
   What a hierarchy of nodes has beside the fields of CMATCHHierarchy. Of these, `levels`, `scale`, `inverted`, `bytes`,
   `kept_bytes`, `apply_bytes`, `where`, `params` and `several` are used, `w` is null, and level[l].n has the unknowns of a
   level and nothing else, but for the factor of its smoother.
*/
struct CMATCHNodes {
  LocalInt         m       = 0; /* modes */
  CMATCHNodesGraph graph   = CMATCH_TRACE;
  CMATCHEnd        end     = CMATCH_END_SIZE;
  LocalInt         beside  = 0;     /* own nodes of the finest level with a much stiffer neighbour, see CMATCHNodesIsStiffer() */
  bool             jumps   = false; /* whether these are many, of all ranks */
  LocalInt         coupled = 0;     /* after a set-up with keep: nodes of the finest level in no aggregate that are coupled now */
  CMATCHFit        first_fit, fit;  /* of the finest level when the aggregates were made, and now; without `work` not counted */
  CMATCHNodesLevel level[kCMATCHMostLevels] = {};
};

/* ----------------------- what the options mean for nodes, in both twins ------------------------ */

/*
   Whether node j is much stiffer than its neighbour i, of which these are the magnitudes of the diagonal entries. Where that is so
   at many nodes, as between stiff bodies that touch each other, large aggregates of the levels below tie bodies together.
*/
constexpr double               kCMATCHNodesStiffer = 64, kCMATCHNodesManyBeside = 0.1;
FINEPC_HOST_DEVICE inline bool CMATCHNodesIsStiffer(LocalInt k, const double *d_i, const double *d_j)
{
  double of_i = 0, of_j = 0;

  for (LocalInt r = 0; r < k; r++) {
    of_i += d_i[r];
    of_j += d_j[r];
  }
  return of_j > kCMATCHNodesStiffer * of_i;
}

inline bool CMATCHNodesHasJumps(PetscInt64 beside, PetscInt64 nodes)
{
  return (PetscReal)beside > kCMATCHNodesManyBeside * (PetscReal)nodes;
}

/* In space one more sweep on the finest level, where nodes have fewer unknowns than below, and one less below where there are
 * jumps.
 */
inline PetscInt CMATCHNodesSweeps(const CMATCHParams &params, const CMATCHNodes &N, LocalInt level)
{
  if (level == 0) return params.sweeps + (N.m > 3);
  return params.sweeps - (N.jumps && params.sweeps > 2);
}

inline float CMATCHNodesStrength(const CMATCHParams &params, LocalInt level)
{
  return level ? 0 : (float)params.strength;
}

/* The coarsening ends at so many unknowns. */
inline LocalInt CMATCHNodesCoarseSize(const CMATCHParams &params)
{
  return (LocalInt)PetscMin(2 * params.coarse_size, kCMATCHLargestDense);
}

inline PolynomialSteps CMATCHNodesSteps(const CMATCHParams &params)
{
  switch (params.smoother) {
  case PC_CMATCH_L1JACOBI: return PolynomialChebyshev((LocalInt)PetscMax(params.degree, 2)); /* the default */
  default: return CMATCHSmootherSteps(params);
  }
}

/* Whether the options are such that nodes have them; otherwise the hierarchy is one of rows. */
inline bool CMATCHNodesPossible(const CMATCHParams &params)
{
  return params.coarse == PC_CMATCH_DENSE;
}

/*
   The estimate from the numbers of LargestRitzValue(). On small levels factors may be inverses nearly: their estimate, which is 1
   but for rounding, becomes 1, and steps behind those that have found all count for nothing, since they would find rounding errors.
*/
constexpr PetscReal kCMATCHNodesNothing = 1e-20, kCMATCHNodesRounding = 1e-4;

inline PetscReal CMATCHNodesLargest(bool of_factor, LocalInt steps, PetscReal rz[], const PetscReal pq[])
{
  for (LocalInt k = 1; k <= steps && of_factor; k++)
    if (!(rz[k] > kCMATCHNodesNothing * rz[0])) rz[k] = 0;
  return CMATCHRoundEstimate(LargestRitzValue(steps, rz, pq) * (of_factor ? 1 - kCMATCHNodesRounding : 1));
}

/* Whether the rows of which a factor is made can be counted. */
inline PetscErrorCode CMATCHNodesCheckRows(const CMATCHNodesLevel &L)
{
  PetscFunctionBegin;
  PetscCheck((PetscInt64)L.blocks * L.k * L.k <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A rank's blocks have more entries than 32 bits can count, as factors need it: use -pc_cmatch_smoother chebyshev");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why the coarsening ends with a level of n nodes of k unknowns, number l, or false. */
inline bool CMATCHNodesEnd(const CMATCHParams &params, LocalInt l, LocalInt n, LocalInt k, CMATCHEnd *end)
{
  const bool size = (PetscInt64)n * k <= CMATCHNodesCoarseSize(params);

  if (!size && l + 1 < params.max_levels) return false;
  *end = size ? CMATCH_END_SIZE : CMATCH_END_LEVELS;
  return true;
}

/* The same after the aggregates have been found: `left` nodes are in none. */
inline bool CMATCHNodesStalled(LocalInt n, LocalInt k, LocalInt left, LocalInt coarse, LocalInt m, CMATCHEnd *end)
{
  if (left != n && (PetscReal)coarse * m < kCMATCHStall * (PetscReal)(n - left) * k) return false;
  *end = left == n ? CMATCH_END_DOMINATED : CMATCH_END_STALLED;
  return true;
}

/*
   Holds the bodies of D [n][n], symmetric, that nothing holds, B [n][m] being its modes: v v' is added for each vector v of modes
   on a component, scaled as its diagonal entries are, that D makes smaller than kCMATCHFree, so that the inverse takes next to
   nothing along it. What rounding has left there would otherwise be inverted. `held` is how many there are. On the host, for both
   twins. The last pivots of such a body of n rows are about n kCMATCHFree of their diagonal entries; it is worth a look up to
   kCMATCHLook times as much.
*/
constexpr double kCMATCHFree[] = {1e-6, 1e-12}; /* by the precision of the hierarchy */
constexpr double kCMATCHLook   = 16;
PetscErrorCode   CMATCHNodesHold(LocalInt n, LocalInt m, const double *B, FinePCPrecision, double *D, LocalInt *held);

/*
   D [n][n], symmetric, becomes its inverse. Small eigenvalues, those of bodies that nothing holds, are left out: their inverse is
   0. Returns false if D has no positive eigenvalue, or is indefinite beyond rounding. On the host, for both twins.
*/
PetscErrorCode CMATCHNodesInvert(LocalInt n, double *D, PetscBool *done);

/* ------------------------------------------- twins -------------------------------------------- */

/*
   Computes a hierarchy of nodes of A, as CMATCHComputeHierarchy_X() does one of rows. *H is a CMATCHHierarchyHost<T> or a
   CMATCHHierarchyCUDA whose `nodes` are there. CMATCHApply_X(), CMATCHMakeGraph_CUDA() and CMATCHDestroy_X() take hierarchies of
   either kind. In the stats `row` is a row of A for a failure of the kinds that a hierarchy of rows has on the finest level, too,
   and otherwise a node.
*/
PetscErrorCode CMATCHNodesCompute_Host(const CSRView *A, const CMATCHModes *, const CMATCHParams *, PetscBool keep, PetscBool work,
                                       CMATCHHierarchy **H, CMATCHStats *);
PetscErrorCode CMATCHNodesCompute_CUDA(const CSRView *A, const CMATCHModes *, const CMATCHParams *, PetscBool keep, PetscBool work,
                                       CMATCHHierarchy **H, CMATCHStats *);

/*
   Nodes of different sizes have k rows each in `padded`, as the largest one has: row[u] [padded->rows] is the row of A that is row
   u there, and place [A->n] where each row of A is. A node that has fewer lacks the last ones. There row[u] is ~i, which is below
   0, and row u has nothing but the diagonal entry of row i of A, so that it is alone, and no scale depends on it.
*/
PetscErrorCode CMATCHPad_Host(const CSRView *A, const LocalInt *row, const LocalInt *place, CSR *padded);
PetscErrorCode CMATCHPad_CUDA(const CSRView *A, const LocalInt *row, const LocalInt *place, CSR *padded);

/* B of mode c becomes `from` on the GPU; without that 1, or with unknown >= 0, 1 in the rows of this unknown, and 0 in others. */
PetscErrorCode CMATCHPutMode_CUDA(LocalInt rows, const CMATCHModes *, LocalInt c, const PetscScalar *from, LocalInt unknown,
                                  double *B);

/*
   Begins to send `count` modes of these numbers, which the host has as arrays of coming->rows, to the GPU: they are in B after the
   next call, until which the arrays may not change. B is the array of the modes.
*/
PetscErrorCode CMATCHSendModes_CUDA(LocalInt rows, const CMATCHModes *, int count, const LocalInt mode[],
                                    const PetscScalar *const from[], double *B);
PetscErrorCode CMATCHAwaitModes_CUDA(LocalInt rows, const CMATCHModes *, double *B);

/* What else a set-up on several ranks takes of own rows: the diagonal entries of A, and the largest magnitude of each mode. */
PetscErrorCode CMATCHTakeModes_CUDA(const CSRView *A, LocalInt m, const double *B, double *diagonal, double largest[]);

/* z = M^{-1} r by one cycle of a hierarchy of nodes; CMATCHApply_Host() calls it */
PetscErrorCode CMATCHNodesApply_Host(CMATCHHierarchy *, const PetscScalar *r, PetscScalar *z);
