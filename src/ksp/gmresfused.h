/*
   GMRES(m) of Saad and Schultz, arranged so that the basis is read twice an iteration and nothing waits for the host in between.

   The basis u_0 .. u_j is not normalized to the last digit, but D_k = u_k.u_k is known, and so are the products G_ki = u_k.u_i,
   i < k, of which L is made, the strictly lower triangle. With w = A M u_j (right preconditioned) or M A u_j, an iteration is

     z_k = u_k.w,  G_jk = u_j.u_k,  w.w        one pass over the basis, one sum over all ranks
     c = (D + L)^{-1} z                         the coefficients of modified Gram-Schmidt
     u_{j+1} = s (w - sum_k c_k u_k)            one pass over the basis, with the new norm

   where s is one over the norm of the difference as Pythagoras gives it: ||w - U c||^2 = w.w - sum_k D_k c_k^2. Since modified
   Gram-Schmidt is the product of the projectors 1 - u_k u_k^T / D_k, and this product is 1 - U (D + L)^{-1} U^T, the vectors are
   those of modified Gram-Schmidt to rounding, with its loss of orthogonality, which is harmless to GMRES (Paige, Rozloznik,
   Strakos). A single pass of classical Gram-Schmidt loses the square of that, a delayed second one needs a matrix and a
   preconditioner that are linear to the last digit, and leaves the norm one iteration late.

   In coordinates of the unit vectors q_k = u_k / n_k, n_k = ||u_k||, column j of the Hessenberg matrix is c_k n_k / n_j, and
   n_{j+1} / (s n_j) below. Givens rotations, the norm of the residual and the solution follow from it as in KSPGMRES.

   With a step size of two, an orthogonalization makes two vectors of w_0 = B u_j and w_1 = B w_0, where B is A M or M A, so that
   the basis is read once an iteration on average, and there is one sum over all ranks for two iterations:

     u_{j+1} = s_0 (w_0 - U c_0),  u_{j+2} = s_1 (w_1 - U c_1 - e u_{j+1}),  e = s_0 (w_0.w_1 - sum_k D_k c_0k c_1k)

   where c_0 and c_1 are as c above, e is u_{j+1}.(w_1 - U c_1), and D_{j+1} is taken as 1. Then B u_{j+1} = s_0 (w_1 - B U c_0), so
   that column j + 1 of the Hessenberg matrix follows from the columns before it,

     h_{l,j+1} = (c_1l n_l / n_j - sum_{k <= j} h_lk h_kj) / h_{j+1,j},  c_{1,j+1} = e,
     h_{j+2,j+1} = n_{j+2} / (s_1 n_j) / h_{j+1,j}.

   This is s-step GMRES (Chronopoulos and Kim; Hoemmen) with s = 2 and powers of B as they are. The quotient loses as many digits as
   w_0 loses in the subtraction of U c_0, and e as many as both lose together; the products G, of which L is made, have what u_{j+2}
   lacks in being orthogonal to u_{j+1}. Where w_0 loses more than three digits, or both more than seven, w_1 is of no use, and the
   step ends with u_{j+1}.

   References:
   Y. Saad, M. H. Schultz, GMRES: a generalized minimal residual algorithm for solving nonsymmetric linear systems, SIAM J. Sci.
   Stat. Comput. 7 (1986) 856-869
   K. Swirydowicz, J. Langou, S. Ananthan, U. Yang, S. Thomas, Low synchronization Gram-Schmidt and generalized minimal residual
   algorithms, Numer. Linear Algebra Appl. 28 (2021) e2343
   C. C. Paige, M. Rozloznik, Z. Strakos, Modified Gram-Schmidt (MGS), least squares, and backward stability of MGS-GMRES, SIAM J.
   Matrix Anal. Appl. 28 (2006) 264-284
   A. T. Chronopoulos, S. K. Kim, s-step Orthomin and GMRES implemented on parallel computers, Univ. of Minnesota, TR 90-15 (1990)
   M. Hoemmen, Communication-avoiding Krylov subspace methods, PhD thesis, Univ. of California, Berkeley (2010)
*/
#pragma once

#include <vector>

#include <petscpc.h>

#include <finepc.h>

#include "sparse/bsr.h"
#include "fused.h"

/* The largest restart that may be asked for, and the most vectors that an orthogonalization makes. */
constexpr LocalInt kGMRESMostRestart = 1000;
constexpr LocalInt kGMRESMostStep    = 2;

/*
   The norm by Pythagoras has lost at most four digits if its square is at least this part of w.w; otherwise it is computed from the
   vector itself.
*/
constexpr PetscReal kGMRESPythagoras = 1e-4;
/* Where that norm is lost, the square is taken for at least this part of w.w: the rounding of w. */
constexpr PetscReal kGMRESLost = 1e-28;
/*
   A second vector follows from w_1 if the square of the first one's norm is at least this part of w_0.w_0, w_1.w_1 is above what
   would vanish with it, and the parts that are left of both have a product of the square of kGMRESSecond at least. Where nothing is
   left of w_1 but its rounding, the Krylov space ends, and there is nothing to be gained by another step.
*/
constexpr PetscReal kGMRESSecond = 1e-7, kGMRESSecondLeast = 1e-280, kGMRESNothing = 1e-14;
/*
   What the new vectors of a step lack in being orthogonal is the rounding of one over the root of that product. The residual of a
   cycle does not become smaller than this part of what it was at the beginning. When it comes as close as this factor, the cycle
   ends, and the solve goes on with one product a step.
*/
constexpr PetscReal kGMRESSecondReach = 10, kGMRESRounding = 2.2e-16;
/*
   Behind the end of the Krylov space the new vector is rounding, and the column of the Hessenberg matrix that follows from it can
   be zero. The system is solved then, if the residual is this part of what it was at the beginning.
*/
constexpr PetscReal kGMRESSolved = 1e-14;
/*
   A cycle that claims more than it has done is followed by another one, which is a flexible one where the true residual is not even
   this part of what it was at the beginning. A claim with more than the second part of it left ends the solve if nothing else
   helps.
*/
constexpr PetscReal kGMRESRefines = 1e-3, kGMRESStalls = 0.5;

/* --------------------------------------- the basis, twins ------------------------------------- */

/* Vectors in double or single precision, of which the rank has n entries; u_k begins at entry k * ld. */
struct GMRESBasis {
  void           *u;
  LocalInt        n;
  LocalInt        ld;
  LocalInt        vectors; /* that there is room for */
  FinePCPrecision precision;
  PetscMemType    where;
};

/* What the CUDA twins need beside the vectors. */
struct GMRESFusedWork;
PetscErrorCode GMRESFusedCreate_CUDA(GMRESFusedWork **);
PetscErrorCode GMRESFusedDestroy_CUDA(GMRESFusedWork **);

/* Numbers that an orthogonalization of `step` products sums over `count` vectors. */
constexpr size_t GMRESSums(size_t count, size_t step)
{
  return 2 * step * count + step * (step + 1) / 2;
}

/*
   The sums over the rank's entries, k < count: u_k.w_s at s count + k; u_k.u_l, l = count - step + t, at (step + t) count + k; and
   behind these w_0.w_0, and for two products w_0.w_1 and w_1.w_1. Where there is no u_l, u_0 takes its place; w_1 may be w_0 where
   there is one product for a step of two. The CUDA twin waits.
*/
PetscErrorCode GMRESDots_Host(const GMRESBasis *, LocalInt count, LocalInt step, const PetscScalar *const w[], PetscReal sums[]);
PetscErrorCode GMRESDots_CUDA(GMRESFusedWork *, const GMRESBasis *, LocalInt count, LocalInt step, const PetscScalar *const w[],
                              PetscReal sums[]);

/* The new vectors: s_0 (w_0 - sum_k c_0[k] u_k), k < count, and with two products s_1 (w_1 - sum_k c_1[k] u_k), k <= count. */
struct GMRESCombination {
  LocalInt         products;
  const PetscReal *c[kGMRESMostStep];
  PetscReal        s[kGMRESMostStep];
};

/*
   u_count, and with two products u_{count+1}, by such a combination; p gets the last one, with the values that the basis has in its
   precision. The squares of the norms over the rank's entries, pp [products], are made if pp is not null, for which the CUDA twin
   waits. p may be the last w.
*/
PetscErrorCode GMRESUpdate_Host(const GMRESBasis *, LocalInt count, const GMRESCombination *, const PetscScalar *const w[],
                                PetscScalar *p, PetscReal pp[]);
PetscErrorCode GMRESUpdate_CUDA(GMRESFusedWork *, const GMRESBasis *, LocalInt count, const GMRESCombination *,
                                const PetscScalar *const w[], PetscScalar *p, PetscReal pp[]);

/* x = s x, and u_k = x, as above */
PetscErrorCode GMRESStore_Host(const GMRESBasis *, LocalInt k, PetscReal s, PetscScalar *x);
PetscErrorCode GMRESStore_CUDA(const GMRESBasis *, LocalInt k, PetscReal s, PetscScalar *x);

/* t = sum_k c_k u_k, k < count. The CUDA twin may be called between the iterations of a solve, which it leaves alone. */
PetscErrorCode GMRESCombine_Host(const GMRESBasis *, LocalInt count, const PetscReal c[], PetscScalar *t);
PetscErrorCode GMRESCombine_CUDA(GMRESFusedWork *, const GMRESBasis *, LocalInt count, const PetscReal c[], PetscScalar *t);

/* -------------------------------- the small matrices, on the host ----------------------------- */

/* All that is known of a cycle but its vectors. Column j of a matrix begins at entry j * (restart + 1). */
struct GMRESSmall {
  LocalInt               restart = 0;
  LocalInt               vectors = 0;  /* whose products are known */
  std::vector<PetscReal> gram;         /* u_k.u_i, i <= k, in column k */
  std::vector<PetscReal> norm;         /* [restart + 1] n_k */
  std::vector<PetscReal> H, R;         /* the Hessenberg matrix, and what the rotations make of it */
  std::vector<PetscReal> cosine, sine; /* [restart] */
  std::vector<PetscReal> rhs;          /* [restart + 1] the rotated right-hand side */
};

/* Makes room, and forgets what was there. */
void GMRESSmallCreate(GMRESSmall *, LocalInt restart);
/* Begins a cycle with a residual of this norm, of which u_0 is a multiple. */
void GMRESSmallBegin(GMRESSmall *, PetscReal norm);
/* What an orthogonalization makes of its products. */
struct GMRESProjection {
  LocalInt               products;
  std::vector<PetscReal> c[kGMRESMostStep];      /* [j + 1], and [j + 2] for the second product */
  PetscReal              square[kGMRESMostStep]; /* of the norm of the new vector before it is scaled, by Pythagoras, */
  PetscReal              ww[kGMRESMostStep];     /* and that of w */
  PetscReal              scale[kGMRESMostStep];
  PetscReal              lacking; /* what two new vectors lack in being orthogonal, or 0 */
};
/*
   Keeps what the sums of GMRESDots over all ranks say of the vectors that are new since the last call, of which u_j is the newest
   one, and projects so many products. One is left if the second one is of no use. A square may come out negative. It allocates
   nothing where the coefficients have room.
*/
void GMRESSmallProject(GMRESSmall *, LocalInt j, LocalInt step, LocalInt products, const PetscReal sums[], GMRESProjection *);
/* How a column has come out. */
struct GMRESColumn {
  PetscReal residual; /* the norm that the rotations give */
  bool      happy;    /* the new vector is zero, by the tolerance */
  bool      singular; /* nothing is left of the column: there is no rotation */
};
/* Takes column j, which belongs to product `number` of its step, with the norm n_{j+1} of u_{j+1}. */
GMRESColumn GMRESSmallAppend(GMRESSmall *, LocalInt j, LocalInt number, const GMRESProjection &, PetscReal norm,
                             PetscReal happy_tolerance);
/*
   The coefficients c [count] of the correction in U after so many columns; the result is -1, or the number of a column whose
   diagonal entry is zero, so that there is no solution.
*/
LocalInt GMRESSmallSolve(const GMRESSmall *, LocalInt count, PetscReal c[]);

/* ------------------ one rank, or several with NCCL: the GPU decides about iterations ---------- */

/* Why the iterations ended. */
enum GMRESStop {
  GMRES_RUNNING,    /* they have not ended */
  GMRES_TEST,       /* the test of the norm; whether that is convergence is left to the caller's test */
  GMRES_NOT_FINITE, /* a sum is not finite */
  GMRES_ZERO,       /* a cycle began with a residual of zero */
  GMRES_HAPPY,      /* the new vector is zero, but the test does not take the residual of zero */
  GMRES_SINGULAR,   /* nothing is left of a column */
  GMRES_BREAKDOWN,  /* the norm at a restart is far from that of the recurrence */
  GMRES_ITS,        /* max_it iterations are done */
  GMRES_FULL,       /* a cycle is full, and the caller begins the next one */
  GMRES_SECOND,     /* second products are of no use from here on: GMRESFusedGoOn_CUDA() follows, in the same cycle */
  GMRES_CUT         /* what they have cost lets the cycle come no further: the caller begins another one without them */
};

/* A, by its rows or by its blocks; and M: 1, a block-diagonal matrix, or what a function applies on the current stream. */
struct GMRESOperators {
  const CSRView     *A;      /* or null; read during the preparation only */
  const BSR         *blocks; /* or null */
  const PetscScalar *d;      /* [n * bs] or null: entry k * n + i is that of row i in column k of the diagonal block of the row */
  LocalInt           bs;     /* rows of the blocks of d, 1 for a diagonal matrix */
  PetscErrorCode (*apply)(PC, const PetscScalar *x, PetscScalar *y); /* or null */
  PC        pc;                                                      /* the first argument of apply */
  PetscBool left;                                                    /* M A, not A M */

  /* a rank among several; A and blocks have the columns that the rank owns */
  NCCL           *nccl; /* makes the exchange and the sums; null on one rank */
  MPI_Comm        comm;
  const CSRView  *B;            /* the columns that other ranks own, numbered as the ghosts arrive, */
  const BSR      *ghost_blocks; /* or its blocks; as with A, one of these two */
  const Exchange *exchange;     /* of the ghosts, with its lists */
  LocalInt        step;         /* products between two orthogonalizations, each of which has an exchange */
  PetscBool       small;        /* the ranks have few rows on average: it is the same on all of them */
};

/* Arrays on the GPU, [n]. p holds the first residual, and with a basis in single precision the newest vector; w and t are work. */
struct GMRESVectors {
  const PetscScalar *b;
  PetscScalar       *x, *p, *t, *w[kGMRESMostStep];
};

/* What a solve begins with. */
struct GMRESStart {
  LocalInt  restart;
  LocalInt  step;      /* products between two orthogonalizations */
  LocalInt  iteration; /* iterations that are done */
  bool      watched;   /* the caller begins each cycle, so that all that it receives can still be looked at */
  PetscReal norm;      /* of the residual */
  PetscReal happy_tolerance, breakdown_tolerance;
  CGTest    test;
};

/* x [n] = 1 in row k of each block of bs rows, and 0 elsewhere: what M makes of it is a column of each block of M. */
PetscErrorCode GMRESFusedUnit_CUDA(GMRESFusedWork *, LocalInt n, LocalInt bs, LocalInt k, PetscScalar *x);
/*
   Makes the copy of A, if its rows are given and have changed, and keeps the other pointers.
*/
PetscErrorCode GMRESFusedPrepare_CUDA(GMRESFusedWork *, const GMRESOperators *, PetscBool changed);
/* Waits for what is left of the last solve, before memory that it works with is given back. */
PetscErrorCode GMRESFusedWait_CUDA(GMRESFusedWork *);
/* All other memory of a solve with this basis and steps of so many products at most, so that a rank among several asks for it
   before they wait for one another. */
PetscErrorCode GMRESFusedReserve_CUDA(GMRESFusedWork *, const GMRESBasis *, LocalInt restart, LocalInt step);
/* Makes the exchange by NCCL ready, where the two calls before have been made on all ranks; collective. */
PetscErrorCode GMRESFusedConnect_CUDA(GMRESFusedWork *, const GMRESOperators *);
/* As CGFusedForgetExchanges_CUDA(). */
PetscErrorCode GMRESFusedForgetExchanges_CUDA(GMRESFusedWork *);
/*
   p = r = b, or b - A x with a guess, or M of it with M on the left, and its norm, for which it waits. The arrays stay those of the
   solve.
*/
PetscErrorCode GMRESFusedStart_CUDA(GMRESFusedWork *, const GMRESBasis *, const GMRESVectors *, PetscBool guess, PetscReal *norm);
/* Begins a cycle after such a start: u_0 = p = r / norm. */
PetscErrorCode GMRESFusedBegin_CUDA(GMRESFusedWork *, const GMRESStart *);
/*
   Goes on with the iterations and waits for some of them: to be called until stop is not GMRES_RUNNING any more. It gives the norms
   after the iterations that are new to the caller, valid until the next call. After a stop `its` is the number of iterations, and
   value the number that the stop is about.
*/
PetscErrorCode GMRESFusedAdvance_CUDA(GMRESFusedWork *, LocalInt *count, const PetscReal **norms, GMRESStop *stop, LocalInt *its,
                                      PetscReal *value);
/* After GMRES_SECOND: the cycle goes on behind the columns that it has, with one product a step. It waits. */
PetscErrorCode GMRESFusedGoOn_CUDA(GMRESFusedWork *);
/* After another stop: adds the correction of the last cycle to x. */
PetscErrorCode GMRESFusedFinish_CUDA(GMRESFusedWork *);
/* The small matrices of the cycle, and how many columns of them are known. It waits. */
PetscErrorCode GMRESFusedGetSmall_CUDA(GMRESFusedWork *, GMRESSmall *, LocalInt *columns);
/* Whether the GPU can keep the blocks of a kernel that wait for one another. */
PetscErrorCode GMRESFusedCanStay_CUDA(FinePCPrecision, LocalInt restart, PetscBool *can);

/* What the last solve used. */
struct GMRESStatus {
  size_t    bytes;  /* on the GPU, beside the basis */
  LocalInt  lanes;  /* lanes a row of the copy of A, or 0 without one */
  PetscBool direct; /* on several ranks: kernels make the sums and the exchange, not NCCL */
};
PetscErrorCode GMRESFusedGetStatus_CUDA(const GMRESFusedWork *, GMRESStatus *);
