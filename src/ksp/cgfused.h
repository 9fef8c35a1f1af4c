/*
   The preconditioned conjugate gradient method of Hestenes and Stiefel, arranged so that nothing but the bytes of the products and
   of the vectors takes time: in iteration i = 0, 1, ..

     w = A p,  delta = p.w                      a = beta / delta
     x = x + a p,  r = r - a w,  r.r
     z = M r,  beta' = r.z,  z.z                b = beta' / beta, beta = beta'; test of the norm
     p = z + b p

   The scalars and the test stay where the vectors are. On the GPU a sequence of kernels does an iteration, or one kernel does all
   of them, where a barrier of the whole chip costs less than a launch. The names are those of KSPCG's source.

   On several ranks, where the host takes part in every sum, there is one sum an iteration, of z.r, the norm and z.s, and w and
   delta come from recurrences (KSPCG's single-reduction variant):

     z = M r, s = A z
     b = beta / beta_before, delta = z.s - b^2 delta_before, a = beta / delta
     p = z + b p, w = s + b w, x = x + a p, r = r - a w

   Reference: M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, J. Res. NBS 49 (1952) 409-436
*/
#pragma once

#include "sparse/csr.h"

/* Why the loop ended; what the norm says is for the caller's test to interpret. */
enum CGStop {
  CG_RUNNING,
  CG_TEST,
  CG_NORM_NOT_FINITE,
  CG_BETA_NOT_FINITE,
  CG_BETA_ZERO,
  CG_INDEFINITE_PC,
  CG_DELTA_NOT_FINITE,
  CG_INDEFINITE_MAT,
  CG_ITS
};

enum CGNorm { CG_NORM_NONE, CG_NORM_PRECONDITIONED, CG_NORM_UNPRECONDITIONED, CG_NORM_NATURAL };

/* After iteration n the loop ends by CG_TEST if n > chknorm and n >= min_it and the norm is <= ttol or >= dtol, or if n >= last. */
struct CGTest {
  CGNorm    norm;
  PetscReal ttol, dtol; /* absolute */
  PetscInt  min_it;
  PetscInt  chknorm; /* the norm is not looked at, and given as 0 (unless it is the natural one), up to this iteration */
  PetscInt  last;    /* iteration that counts as converged, PETSC_INT_MAX for none */
  PetscInt  max_it;
};

/* Of one iteration: its norm, alpha and b = beta'/beta, for the history and the Lanczos matrix. */
struct CGRecord {
  PetscReal norm, a, b;
};

/* (norm)^2 of the kind asked for, but for the natural norm, whose square is |r.z| */
struct CGSums {
  PetscReal nn, rz;
};

/* What a solver on the GPU keeps: slices of A, W1 and W2, vectors, scalars, the graph. */
struct CGFusedWork;

/* M z = r by its inverse: nothing (none), D (jacobi), or W2 D W1, all with unit diagonals that are not stored (afsai, sfsai). */
struct CGFusedOperators {
  const CSRView     *A;
  const CSRView     *B;       /* of a rank among several: the columns of other ranks, numbered as they arrive; else null */
  const CSR         *W1, *W2; /* or null */
  const PetscScalar *d;       /* or null */
};

/* Arrays on the GPU, [n]; z is work. */
struct CGFusedVectors {
  const PetscScalar *b;
  PetscScalar       *x, *r, *z, *p;
};

/* Which operators have changed since the last CGFusedPrepare_CUDA() with this work. */
struct CGFusedChanges {
  PetscBool A, M;
};

/* What is in use, for the view. */
struct CGFusedStatus {
  PetscBool resident; /* the last solve was one kernel */
  PetscBool narrow[2], single[2];
  PetscInt  lanes[2];     /* of A, of W1 and W2 */
  size_t    copied_bytes; /* of the copies of A, W1 and W2 */
  size_t    bytes;        /* all memory of the work */
};

PetscErrorCode CGFusedCreate_CUDA(CGFusedWork **);
PetscErrorCode CGFusedDestroy_CUDA(CGFusedWork **);
/* The path is one that was asked for, or chosen with KSP_CGFUSED_AUTO; where the resident kernel is asked for and cannot take so
   many rows, it is the graph. */
PetscErrorCode CGFusedPrepare_CUDA(CGFusedWork *, const CGFusedOperators *, const CGFusedChanges *, PetscBool compress,
                                   KSPCGFusedPath);
/* r = b, or b - A x with a guess; z = M r and its sums. Waits for them. */
PetscErrorCode CGFusedStart_CUDA(CGFusedWork *, const CGFusedVectors *, PetscBool guess, CGNorm, CGSums *);
/* From there on, with beta = r.z, as long as Advance gives stop = CG_RUNNING. It waits for some iterations, whose records are valid
   until the next call; `its` is what KSPCG would say then, and value the scalar that a NOT_FINITE or INDEFINITE stop is about. */
PetscErrorCode CGFusedBegin_CUDA(CGFusedWork *, PetscReal beta, const CGTest *);
PetscErrorCode CGFusedAdvance_CUDA(CGFusedWork *, PetscInt *count, const CGRecord **, CGStop *, PetscInt *its, PetscReal *value);
PetscErrorCode CGFusedGetStatus_CUDA(const CGFusedWork *, CGFusedStatus *);

/*
   One iteration of a rank among several: x, r, p and w are updated, and z = M r; then s = A z, while z travels; then s += B ghosts,
   and the rank's sums, for which it waits. Begin is once before them: p = w = 0. Arrays are [n] but for ghosts.
*/
struct CGRankVectors {
  PetscScalar *x, *r, *z, *p, *s, *w;
};
PetscErrorCode CGRankBegin_CUDA(CGFusedWork *, const CGRankVectors *, CGNorm);
PetscErrorCode CGRankUpdate_CUDA(CGFusedWork *, const CGRankVectors *, PetscScalar a, PetscScalar b);
/* around an exchange, whose stream may be another than ours: it keeps that of its first use */
PetscErrorCode CGRankFence_CUDA(const CGFusedWork *);
PetscErrorCode CGRankProduct_CUDA(CGFusedWork *, const CGRankVectors *);
/* z.r, norm^2, z.s */
PetscErrorCode CGRankGhosts_CUDA(CGFusedWork *, const CGRankVectors *, const PetscScalar *ghosts, PetscReal sums[3]);

/*
   The vector operations one by one, for products by others. Sums are over the rank's rows, always in the same order; the CUDA twin
   waits for them.
*/
/* x += a p, r -= a w */
PetscErrorCode CGStep_Host(PetscInt n, PetscScalar a, const PetscScalar *p, const PetscScalar *w, PetscScalar *x, PetscScalar *r);
PetscErrorCode CGStep_CUDA(PetscInt n, PetscScalar a, const PetscScalar *p, const PetscScalar *w, PetscScalar *x, PetscScalar *r);
/* z.r, z.z, r.r, and z.s where s is given */
PetscErrorCode CGDots_Host(PetscInt n, const PetscScalar *z, const PetscScalar *r, const PetscScalar *s, PetscReal sums[4]);
PetscErrorCode CGDots_CUDA(CGFusedWork *, PetscInt n, const PetscScalar *z, const PetscScalar *r, const PetscScalar *s,
                           PetscReal sums[4]);
/* p = z + b p, and w = s + b w where s is given */
PetscErrorCode CGDirection_Host(PetscInt n, PetscScalar b, const PetscScalar *z, PetscScalar *p, const PetscScalar *s,
                                PetscScalar *w);
PetscErrorCode CGDirection_CUDA(PetscInt n, PetscScalar b, const PetscScalar *z, PetscScalar *p, const PetscScalar *s,
                                PetscScalar *w);
