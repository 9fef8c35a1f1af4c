/*
   CMATCH, an algebraic multigrid method whose aggregates come from compatible weighted matching, for a symmetric positive definite
   matrix A. The method, formula by formula, is above the host twin in cmatch_host.cxx.

   D'Ambra, Vassilevski, Adaptive AMG with coarsening based on compatible weighted matching, Comput. Visual. Sci. 16 (2013) 59-76;
   D'Ambra, Durastante, Filippone, AMG preconditioners for linear solvers towards extreme scale, SIAM J. Sci. Comput. 43 (2021)
   S679-S703; D'Ambra, Durastante, Filippone, Massei, Thomas, Optimal polynomial smoothers for parallel AMG (2024).
*/
#pragma once

#include <vector>

#include "pc/halo.h"
#include "polynomial.h"
#include "ranks/exchange.h"

/* ----------------------------------------- parameters ----------------------------------------- */

struct CMATCHParams {
  PCCMATCHCoarsening coarsening      = PC_CMATCH_MATCHING;
  PetscInt           sweeps          = 3;   /* of pairwise matching, 1 .. 5: aggregates have about 2^sweeps rows */
  PetscReal          strength        = 0.1; /* share of the heaviest edge of both its ends that an edge has, in [0, 1) */
  PetscInt           prolongator_row = 4;   /* most entries of a row of P, 1 .. kCMATCHLargestRow */
  PCCMATCHSmoother   smoother        = PC_CMATCH_L1JACOBI;
  PetscInt           degree          = 1;   /* of the polynomial, before and after the coarse correction, 1 .. 16 */
  PetscReal          relaxation      = 1.5; /* of l1-Jacobi, in (0, 2) */
  PCCMATCHCoarse     coarse          = PC_CMATCH_DENSE;
  PetscInt           coarse_size     = 300;           /* the coarsening ends at so many rows, 1 .. kCMATCHLargestDense */
  PetscInt           max_levels      = 20;            /* with the finest and the coarsest one, 1 .. kCMATCHMostLevels; no option */
  FinePCPrecision    precision       = FINEPC_SINGLE; /* T, in which the hierarchy is stored and the cycle computes */

  /* Of levels on several ranks: which of them get the rows of the next level. Rows are such of kCMATCHGatherWidth entries. */
  PCCMATCHReach reach         = PC_CMATCH_GLOBAL;
  PetscInt      gather_rows   = 100000; /* so many rows in all, or fewer, go to one rank, 0 .. kCMATCHMostGathered */
  PetscInt      gather_ranks  = 10000;  /* where a rank would have fewer rows, fewer ranks get them, 0 .. kCMATCHMostGathered */
  PetscInt      gather_factor = 8;      /* so many times fewer; no option */

  /* The vector w, or the constants without one, is in the null space of A. */
  PetscBool singular = PETSC_FALSE;

  /* The diagonal of A is negative: the hierarchy is that of -A, and the cycle is applied with the other sign. */
  PetscBool negative = PETSC_FALSE;

  PetscReal zero = 1; /* what an entry of w counts as that is at most kCMATCHZero times it: the size of w */
};

inline PetscReal CMATCHSign(const CMATCHParams &params)
{
  return params.negative ? -1 : 1;
}

/* ------------------------------------------- limits ------------------------------------------- */

constexpr PetscInt kCMATCHLargestRow = 64, kCMATCHMostLevels = 32, kCMATCHMostGathered = 1000000000;

/* The most rows of a coarsest level that is inverted. Where the coarsening stalls with more rows, a polynomial takes its place. */
constexpr PetscInt kCMATCHLargestDense     = 2048;
constexpr LocalInt kCMATCHStalledDegree    = 16; /* the degree of that polynomial */
constexpr LocalInt kCMATCHCoarseIterations = 40; /* of the conjugate gradient method on the coarsest level */

/*
   The conjugate gradient method on the coarsest level ends when r . z is this share of what it was. Of a singular operator, or one
   with the null space of another one, nothing but rounding errors in the null space would be left otherwise.
*/
constexpr PetscReal kCMATCHCoarseReduction = 1e-20;

/* A level counts as stalled if it has at least this share of the rows of the level above that could be coarsened. */
constexpr PetscReal kCMATCHStall = 0.9;

/*
   A level of at most kCMATCHSlowSize x coarse_size rows is inverted, although the coarsening could go on, if it has more than
   kCMATCHSlow times the share of the rows above that the sweeps could leave: the levels behind it would take more time.
*/
constexpr LocalInt  kCMATCHSlowSize = 4;
constexpr PetscReal kCMATCHSlow     = 2;

constexpr LocalInt kCMATCHRounds  = 12; /* of the matching of a sweep at most */
constexpr LocalInt kCMATCHJoins   = 4;  /* rounds in which single vertices join a pair; a pair takes one vertex a round */
constexpr LocalInt kCMATCHMembers = 2 + kCMATCHJoins; /* the most vertices that a sweep puts together */

/*
   Levels below kCMATCHSmall rows have at most the strength kCMATCHSmallStrength and no limit of the size of aggregates. With 0.02
   and 0.1 the coarsening of SPE10 stalls with 1103 and 1371 rows; other systems have the same iterations, or up to two more with
   0.1.
*/
constexpr LocalInt  kCMATCHSmall         = 8000;
constexpr PetscReal kCMATCHSmallStrength = 0.005;

/*
   An aggregate has at most clamp(2 x strong degree, kCMATCHLeastRoom, kCMATCHMostRoom) rows, by its most connected row. The strong
   degree of a row counts the row itself.
*/
constexpr LocalInt kCMATCHLeastRoom = 6, kCMATCHMostRoom = 16;

/* params.strength as it acts on a level that has so many rows on all ranks. */
inline float CMATCHStrength(const CMATCHParams &params, PetscInt64 all)
{
  return (float)(all < kCMATCHSmall ? PetscMin(params.strength, kCMATCHSmallStrength) : params.strength);
}

/*
   How well aggregates fit the values of a level, see cmatch_fit_host.cxx. A set-up that keeps aggregates counts what would be
   decided otherwise on each level, beyond what was so when the aggregates were made: loose rows, pieces into which aggregates have
   fallen, and rows of P that have lost entries, since their pattern does not have the columns. If there is a level on which these
   are more than kCMATCHMisfits of its rows or of its aggregates, or more than kCMATCHMostCut of its rows of P, and more than
   kCMATCHFewMisfits, it coarsens anew. Rows of P keep their sums, and lose entries that are hardly strong by small changes. On the
   finest level it does so for a single loose row that is in no aggregate: no coarse level corrects it, and a patch of 16 of them
   on a grid of 20^2 takes 23 iterations in the place of 10. Such a row had entries below kCMATCHDominated, and has others beyond
   kCMATCHUnheld, so that no small change makes one.
*/
struct CMATCHFit {
  LocalInt loose, pieces, left; /* left: the loose rows that are in no aggregate */
};
constexpr PetscReal  kCMATCHMisfits = 0.1, kCMATCHMostCut = 0.3;
constexpr PetscInt64 kCMATCHFewMisfits = 16;

/*
   A row that is in no aggregate is left to the smoother. It counts as loose if its entries beside the diagonal sum to this share of
   it: below, the smoother takes away half of an error or more each time.
*/
constexpr PetscReal kCMATCHUnheld = 0.5;

/* A row whose entries beside the diagonal sum to less than this share of it, by magnitude, is left to the smoother. */
constexpr PetscReal kCMATCHDominated = 0.1;

constexpr PetscReal kCMATCHOmega = 2. / 3; /* of the Jacobi step that smooths the prolongator */

/* An entry is kept in the smoothing step if -a_ij is at least this share of the largest -a_ik of the row. */
constexpr PetscReal kCMATCHFilter = 0.1;

/* The filter lumps entries into the diagonal entry as long as it stays above this share of itself. */
constexpr PetscReal kCMATCHLeastDiagonal = 0.05;

/*
   The matrix is scaled so that its largest diagonal entry is just below 2 to this power. Small diagonal entries, and the large
   solutions that belong to them, then have most of the range of single precision.
*/
constexpr int kCMATCHExponent = 30;

/* A cut row of P is scaled by at most this factor to keep its sum, otherwise it is taken unsmoothed. */
constexpr PetscReal kCMATCHMostScaling = 4;

/* An entry of the near null vector counts as zero up to this share of the size of the vector. */
constexpr PetscReal kCMATCHZero = 1e-13;

FINEPC_HOST_DEVICE inline PetscReal CMATCHNearNullEntry(PetscReal w, PetscReal zero)
{
  return PetscAbsReal(w) <= kCMATCHZero * zero ? zero : w;
}

/* A near null vector is not used if more than this share of its entries is zero. */
constexpr PetscReal kCMATCHMostZeros = 1. / 3;

/*
   The ones on a component are in its null space if their energy is at most this share of its diagonal entries, for each row of the
   finest level that a row stands for. Rounding of P to single precision leaves about a third of it.
*/
constexpr PetscReal kCMATCHNothing = 2e-14;

/* A diagonal entry of a coarse operator that is negative by at most this share of its row is a rounding error. */
constexpr PetscReal kCMATCHRounding = 1e-5;

/* Below this share of its diagonal entry a pivot of the coarsest operator may belong to a component that is singular. */
constexpr PetscReal kCMATCHSmallPivot = 1e-10;

/*
   Where a pivot of the coarsest operator is not positive, its diagonal entries are raised by this share, and by kCMATCHRaiseMore
   times as much each time, kCMATCHRaises times at most.
*/
constexpr PetscReal kCMATCHRaise     = 0x1p-23;
constexpr PetscReal kCMATCHRaiseMore = 32;
constexpr int       kCMATCHRaises    = 3;

/*
   Rows of so many entries are what the options that gather rows mean: those of coarse levels of three-dimensional problems, for
   which the numbers were measured. A level with other rows is gathered where it has as many entries. Before the products are made,
   the entries are guessed from those of the unsmoothed operator on the aggregates, which has 13 to 14 a row in three dimensions and
   6 to 7 in two, and which a smoothed prolongator multiplies by so many.
*/
constexpr PetscReal kCMATCHGatherWidth = 80, kCMATCHWidening = 6;

/*
   The share of the rows above from which on a level counts as one that hardly shrinks, so that its rows go to fewer ranks: what a
   third of the sweeps of matching could leave, which is a half with three sweeps.
*/
inline PetscReal CMATCHGatherShrink(const CMATCHParams &params)
{
  return params.coarsening == PC_CMATCH_MATCHING ? PetscPowReal(2, -(PetscReal)params.sweeps / 3) : 0.5;
}

/*
   The factored smoothers are divided by kCMATCHFactorMargin times an estimate of their largest eigenvalue, by so many steps of the
   conjugate gradient method.
*/
constexpr LocalInt  kCMATCHFactorIterations = 12;
constexpr PetscReal kCMATCHFactorMargin     = 1.1;

/* A symmetric hash of the edge between a and b, by which ties are broken. */
FINEPC_HOST_DEVICE inline uint32_t CMATCHMix(LocalInt a, LocalInt b)
{
  uint32_t h = ((uint32_t)PetscMin(a, b) * 0x9E3779B1u) ^ ((uint32_t)PetscMax(a, b) * 0x85EBCA77u);

  h ^= h >> 15;
  h *= 0x2C1B3C6Du;
  h ^= h >> 12;
  h *= 0x297A2D39u;
  return h ^ (h >> 15);
}

/* The number that a row of a level on all ranks has for that hash, which makes the vector that the estimate begins with. */
FINEPC_HOST_DEVICE inline LocalInt CMATCHSeed(PetscInt64 row)
{
  return (LocalInt)(row & LOCAL_INT_MAX);
}

/* Whether the smoother has a factor on each level that is smoothed. */
inline bool CMATCHHasFactors(const CMATCHParams &params)
{
  return params.smoother == PC_CMATCH_SFSAI || params.smoother == PC_CMATCH_AFSAI;
}

/* The steps of the smoother that the parameters ask for; the factored smoothers have the Chebyshev polynomial of the first kind. */
inline PolynomialSteps CMATCHSmootherSteps(const CMATCHParams &params)
{
  switch (params.smoother) {
  case PC_CMATCH_L1JACOBI: return PolynomialRichardson((LocalInt)params.degree, params.relaxation);
  case PC_CMATCH_CHEBYSHEV4: return PolynomialChebyshev4((LocalInt)params.degree);
  default: return PolynomialChebyshev((LocalInt)params.degree);
  }
}

/*
   A singular operator gets this share of its diagonal added before it is factored. A row of a factor that knows all rows would
   otherwise divide by a rounding error.
*/
constexpr PetscReal kCMATCHFactorShift = 1e-5;

/*
   The most entries of a row of a factor with the smoother sfsai, the diagonal included; a longer row keeps the largest. A row costs
   the cube of its entries, so that a few rows that are coupled to very many others, as coarse levels of graphs have them, would
   take more time than the rest of the set-up. Up to this length a row does not leave the fast kernels.
*/
constexpr LocalInt kCMATCHFactorLargestRow = 1280;

/* ------------------------------------ outcome of a set-up ------------------------------------- */

/* Why there is no hierarchy. */
enum CMATCHFailure {
  CMATCH_OK,
  CMATCH_NOT_FINITE, /* an entry of A, or of w, is not finite */
  CMATCH_DIAGONAL_MISSING,
  CMATCH_DIAGONAL_NOT_POSITIVE, /* of A, or of a coarse operator */
  CMATCH_TOO_LARGE,             /* an entry of the scaled matrix is not finite in the precision of the hierarchy */
  CMATCH_COARSEST,              /* a pivot of the coarsest operator is not positive */
  CMATCH_BLOCK_NOT_POSITIVE     /* a diagonal block of A is not positive definite, or of a level there is no eigenvalue; of nodes */
};

/* Why the coarsening has ended. */
enum CMATCHEnd {
  CMATCH_END_SIZE,      /* at most coarse_size rows are left */
  CMATCH_END_STALLED,   /* see kCMATCHStall */
  CMATCH_END_DOMINATED, /* every row is left to the smoother */
  CMATCH_END_LEVELS,    /* max_levels is reached */
  CMATCH_END_SLOW       /* see kCMATCHSlow */
};

/* Whether a level of n rows below one of `above` rows ends the coarsening before it has coarse_size rows. */
inline bool CMATCHIsSlow(const CMATCHParams &params, PetscInt64 above, PetscInt64 n)
{
  return params.coarse == PC_CMATCH_DENSE && n <= kCMATCHSlowSize * params.coarse_size && n <= kCMATCHLargestDense &&
         (PetscReal)n * (1 << params.sweeps) > kCMATCHSlow * (PetscReal)above;
}

struct CMATCHStats {
  CMATCHFailure failure;
  LocalInt      level, row; /* the first row with the failure, on this level */
  CMATCHEnd     end;
  size_t        work_bytes; /* largest memory of the set-up beyond A and the hierarchy */
  LocalInt      ended;      /* singular components that have become a single row, on levels that matching has made */
  LocalInt      parts;      /* singular components of the coarsest level that have more rows, beside one that was expected */
  PetscReal     raised;     /* the share by which the diagonal entries of the coarsest operator were raised */
};

/* ---------------------------------------- the hierarchy --------------------------------------- */

/*
   What the smoothers sfsai and afsai use in the place of l, M^{-1} = (I + Wt) diag(d) (I + W). W is the strictly lower triangle of
   the factor G~ of fsai.h, computed from A_l, Wt is its transpose, and d is omega / psi. On several ranks G~ is computed from the
   rank's own block of A_l, and omega from A_l itself, so that it is that of all ranks.
*/
struct CMATCHFactor {
  CSR      W, Wt;         /* of precision T, in memory of their own */
  void    *d;             /* [n] null on levels without a factor */
  LocalInt capped_rows;   /* rows of G~ that were cut to kCMATCHFactorLargestRow entries */
  LocalInt diagonal_rows; /* rows that fell back to the diagonal, after a bad pivot */
};

/*
   The singular components of a level, which its solver leaves in the complement of the ones on each of them. A component of one row
   is one, too, if the row is all that is left of a singular component.
*/
struct CMATCHParts {
  std::vector<LocalInt> of;        /* [n] the component of a row, or -1 if it is in none */
  std::vector<double>   add, take; /* [n] for such rows, what inverting adds to the entries of the component, and takes off again */
  std::vector<LocalInt> begin, row; /* the rows of each component */

  LocalInt Count() const { return (LocalInt)begin.size() - 1; }
  LocalInt Large() const; /* those of several rows */
};

/* Finds them, for rows that stand for `rows` rows of the finest level on average. `singular`: the ones are in the null space. */
CMATCHParts CMATCHFindParts(LocalInt n, const LocalInt *A_i, const LocalInt *A_j, const double *A_a, const double *rs,
                            PetscReal rows, bool singular);

/* How the rows of a level become those of the next one. */
enum CMATCHTransfer {
  CMATCH_MATCHED, /* they are put together to aggregates */
  CMATCH_PASSED   /* each is a row of the next level, on fewer ranks, and this level is not smoothed */
};

/*
   A level and its transfer to the next one. The arrays are in the memory of the hierarchy, and values of type void * are of its
   precision T. A_l is in difference form, (A x)_i = s_i x_i + sum_{j != i} a_ij (x_j - x_i): its entries beside the diagonal are
   stored, and its row sums. A row without entries beside the diagonal, or with entries that are lost in the sum of l_i, has
   l_i = root / d_i instead, with the root of the polynomial that uses l. The polynomial solves for such a row exactly. A row that
   is all that is left of a singular component has s_i = 0, l_i = 0 and any d_i > 0: it gets no correction.

   A level of one rank has its own rows alone. On several ranks a level has ghosts, too, rows of other ranks, which are columns from
   n on, in A_j, and foreign aggregates, those of other ranks, which are columns from `coarse` on, in P_j. Both are behind the
   rank's own entries of the vectors, and no other array changes its meaning by that. A rank may not have the next level at all.
*/
struct CMATCHLevel {
  LocalInt  n;   /* rows */
  LocalInt  nnz; /* entries beside the diagonal */
  LocalInt *A_i; /* [n + 1] row starts */
  LocalInt *A_j; /* [nnz] columns, ascending in a row, without the diagonal */
  void     *A_a; /* [nnz] values */
  void     *s;   /* [n] row sums */
  void     *d;   /* [n] the diagonal, s_i - sum_{j != i} a_ij */
  void     *l;   /* [n] the inverse of the l1 diagonal, 1 / (d_i + sum_{j != i} |a_ij|) */

  CMATCHFactor factor; /* of the smoothers sfsai and afsai, where the level is smoothed */

  /* what follows is of all levels but the last one */
  LocalInt coarse; /* rows of the next level */
  LocalInt width;  /* room for entries in a row of P */
  LocalInt
    *aggregate;  /* [n + ghosts] the row of the next level whose aggregate row i is in, or -1: row i is left to the smoother */
  LocalInt *P_j; /* [n + ghosts][width] columns of P, ascending in a row, and -1 behind them */
  void     *P_a; /* [n + ghosts][width] values of P, and 0 behind them */
  LocalInt *R_i; /* [coarse + foreign + 1] R = P^T of the rows that are not ghosts: row starts */
  LocalInt *R_j; /* [P_nnz] columns, ascending in a row */
  void     *R_a; /* [P_nnz] values */
  LocalInt  P_nnz;

  CMATCHTransfer transfer;

  /* what follows is of levels on several ranks */
  LocalInt         ghosts, foreign;
  LocalInt         mine;         /* of this rank's aggregates, those that it has as the first rows of the next level: all or none */
  const GlobalInt *ghost;        /* [ghosts] their numbers on the level, ascending */
  const GlobalInt *column;       /* [foreign] the numbers of the foreign aggregates on the next level, ascending */
  GlobalInt        first;        /* the number of this rank's first row on the level */
  GlobalInt        first_coarse; /* the number of its first aggregate on the next level */
  GlobalInt        all;          /* rows of all ranks */
  LocalInt         contributions; /* values that other ranks send for rows of the next level */

  /*
     What a cycle exchanges there, with the host: entries of ghosts, with `down` back to its entries, which are contributions, the
     values for rows that other ranks have on the next level, and with `up` such rows of that level to where the values were.
  */
  const Exchange *halo, *down, *up;

  /* counts, for the view */
  LocalInt left;    /* rows that are left to the smoother */
  LocalInt largest; /* rows of the largest aggregate */
  LocalInt singles; /* aggregates of one row */
  LocalInt joined;  /* in all sweeps, vertices that joined a pair */
  LocalInt cut;     /* rows of P that were cut */
  LocalInt plain;   /* rows of P that were taken unsmoothed, see kCMATCHMostScaling */
  LocalInt wide;    /* rows of A P and of the Galerkin product that took the general path */

  CMATCHFit first_fit, fit; /* when the aggregates were made, and now */
  LocalInt  first_cut;      /* cut and plain rows of P when they were made */
};

/* The bytes of a level's factor, which are 0 where there is none. */
inline size_t CMATCHFactorBytes(const CMATCHLevel &level, FinePCPrecision precision)
{
  const CMATCHFactor &factor = level.factor;

  return factor.d ? CSRBytes(&factor.W) + CSRBytes(&factor.Wt) + level.n * FinePCPrecisionBytes(precision) : 0;
}

struct CMATCHNodes;

/* The hierarchies of both twins begin with these fields. */
struct CMATCHHierarchy {
  CMATCHParams params;
  LocalInt     levels;
  CMATCHLevel  level[kCMATCHMostLevels];

  /* The first ones are on several ranks. One rank alone has all of the others; for the other ranks `levels` is `several`. */
  LocalInt several;

  /*
     The 2-norm of the vector that the cycle is applied to, over all ranks, if all of them know it, or -1. It serves as well as the
     largest magnitude of an entry, for which ranks would have to wait for each other: the scale of a cycle is a power of 2, so that
     another one gives the same bits unless numbers leave the range of the precision.
  */
  double size = -1;

  /* level 0 has the matrix scale W A W, with W = diag(w); scale is a power of 2, or one with the sign of a negative matrix */
  PetscReal    scale;
  PetscScalar *w; /* [n] or null for ones */

  PetscBool    has_fit;     /* of one rank: the levels have first_fit and fit, from the second set-up on */
  PetscBool    inverted;    /* the last level is inverted */
  size_t       bytes;       /* memory of the hierarchy with its vectors */
  size_t       kept_bytes;  /* memory that is kept for the next set-up */
  size_t       apply_bytes; /* bytes that an application must move */
  double       flops;       /* operations of an application, which the face counts */
  PetscMemType where;       /* PETSC_MEMTYPE_HOST or PETSC_MEMTYPE_CUDA */

  CMATCHNodes *nodes = nullptr; /* of a hierarchy of nodes, see cmatch_nodes.h; null for one of rows */

  /* [level[0].n] of nodes of different sizes: the row of the caller's vectors that an unknown has, or below 0; CMATCHPad_Host() */
  const LocalInt *row = nullptr;
};

/*
   Whether the matching's operator, or the graph of nodes, is carried from level to level. With mis2 each level of rows is coarsened
   by its own operator.
*/
inline bool CMATCHCarriesGraph(const CMATCHHierarchy &H)
{
  return H.nodes || H.params.coarsening == PC_CMATCH_MATCHING;
}

/* The right-hand sides that a cycle on a GPU takes at once, and whether a hierarchy has such cycles. */
constexpr LocalInt kCMATCHColumns = 8;
inline bool        CMATCHTakesColumns(const CMATCHHierarchy &H)
{
  return !H.several && !CMATCHHasFactors(H.params) && !H.row && H.params.coarse != PC_CMATCH_PCG;
}

/* The entries of ghosts of a level on several ranks, behind the rank's own ones. */
inline PetscErrorCode CMATCHHaloBegin(const CMATCHLevel &level, MPI_Datatype type, void *x)
{
  MPI_Aint low, bytes;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Type_get_extent(type, &low, &bytes));
  PetscCall(ExchangeBegin(level.halo, type, x, (char *)x + level.n * bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

inline PetscErrorCode CMATCHHaloEnd(const CMATCHLevel &level, MPI_Datatype type, void *x)
{
  MPI_Aint low, bytes;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Type_get_extent(type, &low, &bytes));
  PetscCall(ExchangeEnd(level.halo, type, x, (char *)x + level.n * bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sum, or another operation, of a number over all ranks of such a level. */
inline PetscErrorCode CMATCHReduce(const CMATCHLevel &level, MPI_Op operation, double *value)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_DOUBLE, operation, PetscObjectComm((PetscObject)level.halo->sf)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

inline MPI_Datatype CMATCHType(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? MPI_FLOAT : MPI_DOUBLE;
}

/* The rows of the finest level that a row of this level stands for on average. */
inline PetscReal CMATCHRowsEach(const CMATCHHierarchy &H, LocalInt l)
{
  return PetscMax((PetscReal)H.level[0].all / (PetscReal)PetscMax(H.level[l].all, 1), 1);
}

/*
   The share of its size up to which the row sum of a row without couplings is nothing but rounding. With the ones in the null space
   of A that is so on all coarse levels, and on the finest one only for 0.
*/
inline PetscReal CMATCHNothing(const CMATCHHierarchy &H, LocalInt l)
{
  if (l == 0) return 0;
  if (H.params.singular) return PETSC_MAX_REAL;
  return kCMATCHNothing * CMATCHRowsEach(H, l - 1);
}

/*
   Whether a row is all that is left of a singular component: with entries that are not 0 it is coupled, and diagonal entries of
   this size have made it. On a coarse level a row of no size is one that P has lost, as patterns that are kept may lose it, and
   does not end.
*/
FINEPC_HOST_DEVICE inline bool CMATCHEnds(double rs, bool coupled, double size, PetscReal nothing)
{
  return !coupled && (size > 0 || nothing == 0) &&
         (PetscAbsReal(rs) <= nothing * size || (rs <= 0 && -rs <= kCMATCHRounding * size && nothing > 0));
}

/* A positive diagonal entry in the place of d, which is not positive by rounding alone; otherwise d as it is stored. */
FINEPC_HOST_DEVICE inline double CMATCHRounded(double d, double size, double stored)
{
  return -d <= kCMATCHRounding * size ? kCMATCHRounding * size : stored;
}

/*
   Computes the hierarchy of A. w [n] is the near null space, in the memory of A, or null for ones.
   With `keep` *H is the hierarchy of a matrix with the same nonzeros and the same parameters: its aggregates and patterns stay.
   Otherwise *H is an old hierarchy, or null. After a failure *H can only be destroyed or computed again. `work` says whether memory
   is to be kept so that a set-up with keep finds all that it needs.
*/
PetscErrorCode CMATCHComputeHierarchy_Host(const CSRView *A, const PetscScalar *w, const CMATCHParams *, PetscBool keep,
                                           PetscBool work, CMATCHHierarchy **H, CMATCHStats *);
PetscErrorCode CMATCHComputeHierarchy_CUDA(const CSRView *A, const PetscScalar *w, const CMATCHParams *, PetscBool keep,
                                           PetscBool work, CMATCHHierarchy **H, CMATCHStats *);

/* z = M^{-1} r by one cycle */
PetscErrorCode CMATCHApply_Host(CMATCHHierarchy *, const PetscScalar *r, PetscScalar *z);
PetscErrorCode CMATCHApply_CUDA(CMATCHHierarchy *, const PetscScalar *r, PetscScalar *z);
/* Makes the CUDA graph that applications launch, unless there is one. It may end for want of memory, on one rank alone. */
PetscErrorCode CMATCHMakeGraph_CUDA(CMATCHHierarchy *);

PetscErrorCode CMATCHDestroy_Host(CMATCHHierarchy **);
PetscErrorCode CMATCHDestroy_CUDA(CMATCHHierarchy **);
