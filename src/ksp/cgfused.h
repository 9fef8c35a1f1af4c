/*
   The preconditioned conjugate gradient method of Hestenes and Stiefel, arranged so that nothing but the bytes of the products and
   of the vectors takes time. The names are those of KSPCG's source.

   One rank. From r = b - A x, z = M r, beta = r.z, p = z, an iteration is

     w = A p,  delta = p.w                      a = beta / delta
     x = x + a p,  r = r - a w,  r.r
     z = M r,  beta' = r.z,  z.z                b = beta' / beta,  beta = beta',  test of the norm
     p = z + b p

   M is the approximate inverse that the preconditioner applies. A sum is made by the kernel that has its operands, and the scalars
   and the test stay where the vectors are. On the GPU a sequence of kernels does an iteration, or one kernel does all of them where
   a barrier of the whole chip costs less than a launch. The host learns of the end late: see fused.h.

   Several ranks with NCCL. The iteration is that of one rank. Before the product, kernels send the entries of p that other ranks
   need and fetch those that this rank needs, the ghosts, while the product with the rank's own columns runs; the product with the
   ghosts follows. p.w, and r.z with the norm, are added over the ranks, and the kernel that needs what follows from a sum makes the
   decision about it. As all ranks have the same bits of a sum, all decide alike. Where the factors of M reach other ranks, their
   products are made in the same way.

   Several ranks on the general path. The host takes part in every sum over ranks. So that there is one such sum an iteration, w and
   delta come from recurrences, as in KSPCG's single-reduction variant: p = z + b p gives A p = A z + b A p, and the A-orthogonality
   of the directions gives delta. An iteration is

     z = M r,  s = A z
     beta = r.z,  the norm,  z.s                the one sum, of three numbers
     b = beta / beta_before                     0 in the first iteration
     delta = z.s - b^2 delta_before             a = beta / delta
     p = z + b p,  w = s + b w                  w = A p
     x = x + a p,  r = r - a w

   Reference: M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems, J. Res. NBS 49 (1952) 409-436
*/
#pragma once

#include "fused.h"
#include "pc/pcinverse.h"

/* ------------------------------------- the GPU decides ---------------------------------------- */

/* What a solver keeps on the GPU: copies of A, W1 and W2, vectors, scalars, the graph. */
struct CGFusedWork;

struct CMATCHHierarchy;

/*
   A, and M: 1 (none), D (jacobi), (1 + W2) D (1 + W1) (afsai, sfsai), where W1 and W2 are stored without their unit diagonals, or a
   cycle of multigrid (cmatch), on several ranks with NCCL a cycle of all of them.
*/
struct CGFusedOperators {
  const CSRView     *A;       /* of a rank among several: the columns that the rank owns */
  const CSRView     *B;       /* the columns that other ranks own, numbered as the ghosts arrive; null on one rank */
  const CSR         *W1, *W2; /* null for none and jacobi */
  const PetscScalar *d;       /* [n] null for none */
  CMATCHHierarchy   *cycle;   /* null for all but cmatch */

  /* a rank among several */
  MPI_Comm               comm;
  NCCL                  *nccl;              /* makes the exchanges and the sums; null on one rank */
  const Exchange        *exchange;          /* of the ghosts of A, with its lists, as those of the factors */
  const PCInverseGhosts *ghosts1, *ghosts2; /* M is (1 + W2 + ghosts2.W) D (1 + W1 + ghosts1.W); null if no rank has such entries */
};

/* Arrays on the GPU, [n]. z is work. */
struct CGFusedVectors {
  const PetscScalar *b;
  PetscScalar       *x, *r, *z, *p;
};

/* Which operators have changed since the last CGFusedPrepare_CUDA() with the same work. */
struct CGFusedChanges {
  PetscBool A, M;
};

/* What is in use, for the view. Index 0 stands for the copy of A, 1 for the copies of W1 and W2. */
struct CGFusedStatus {
  PetscBool resident; /* the last solve ran as one kernel */
  PetscBool narrow[2], single[2];
  LocalInt  lanes[2];     /* a row; 0 without a copy */
  size_t    copied_bytes; /* of the copies */
  size_t    bytes;        /* all memory of the work */
};

PetscErrorCode CGFusedCreate_CUDA(CGFusedWork **);
PetscErrorCode CGFusedDestroy_CUDA(CGFusedWork **);
/*
   Makes the copies of the operators. The path is the one that was asked for, or KSP_CGFUSED_AUTO, which chooses. Where the resident
   kernel is asked for but cannot take these operators the graph runs.
*/
PetscErrorCode CGFusedPrepare_CUDA(CGFusedWork *, const CGFusedOperators *, const CGFusedChanges *, PetscBool compress,
                                   KSPCGFusedPath);
/* Makes the exchanges by NCCL ready, where that has been done on all ranks; collective. */
PetscErrorCode CGFusedConnect_CUDA(CGFusedWork *, const CGFusedOperators *);
/*
   r = b, or r = b - A x with a guess; z = M r and its sums, for which it waits. The vectors stay those of the work. `one_by_one`
   says how the iterations will follow: one by one, a call that advances makes one of them, and x and r are those of this iteration
   until the next call; of the next one only the product A p is made ahead, while the host decides. This takes the graph.
*/
PetscErrorCode CGFusedStart_CUDA(CGFusedWork *, const CGFusedVectors *, PetscBool guess, CGNorm, PetscBool one_by_one, CGSums *);
/* y = A x after the iterations, for which it does not wait. */
PetscErrorCode CGFusedProduct_CUDA(CGFusedWork *, const PetscScalar *x, PetscScalar *y);
/* Begins the iterations that follow such a start, with beta = r.z. */
PetscErrorCode CGFusedBegin_CUDA(CGFusedWork *, PetscReal beta, const CGTest *);
/*
   Goes on with the iterations and waits for some of them: to be called until stop is not CG_RUNNING any more. It gives the records
   of the iterations that are new to the caller, valid until the next call. Where `until` iterations are done, or a few more that
   are launched together, nothing is under way, and the vectors are those of the last record; it is above what the caller knows of.
   After a stop `its` is the number of iterations that KSPCG would give, and value the scalar that the stop is about: the norm, or
   the beta or delta that is not finite or indefinite.
*/
PetscErrorCode CGFusedAdvance_CUDA(CGFusedWork *, LocalInt until, LocalInt *count, const CGRecord **records, CGStop *stop,
                                   LocalInt *its, PetscReal *value);
/* Waits for the product that was made ahead, where the host has ended iterations that went one by one. */
PetscErrorCode CGFusedHalt_CUDA(const CGFusedWork *);
PetscErrorCode CGFusedGetStatus_CUDA(const CGFusedWork *, CGFusedStatus *);

/* Whether kernels make the sums and all exchanges of a rank among several themselves; false where the operations are NCCL's. */
PetscErrorCode CGFusedIsDirect_CUDA(const CGFusedWork *, PetscBool *direct);

/* To be called before the memory of an exchange is freed: NCCL may have passed its address to other GPUs when the graph was made.
 */
PetscErrorCode CGFusedForgetGraph_CUDA(CGFusedWork *);
/* After an error of a preparation, on all ranks: none of them takes an exchange for ready that another one has not. */
PetscErrorCode CGFusedForgetExchanges_CUDA(CGFusedWork *);

/* --------------------------------- vector operations, twins ----------------------------------- */

/*
   The operations one by one, for products by others. Sums are over the rank's rows, always in the same order, and the CUDA twin
   waits for them.
*/

/* x = x + a p, r = r - a w */
PetscErrorCode CGStep_Host(LocalInt n, PetscScalar a, const PetscScalar *p, const PetscScalar *w, PetscScalar *x, PetscScalar *r);
PetscErrorCode CGStep_CUDA(LocalInt n, PetscScalar a, const PetscScalar *p, const PetscScalar *w, PetscScalar *x, PetscScalar *r);
/* z.r, z.z, r.r, and z.s where s is given */
PetscErrorCode CGDots_Host(LocalInt n, const PetscScalar *z, const PetscScalar *r, const PetscScalar *s, PetscReal sums[4]);
PetscErrorCode CGDots_CUDA(CGFusedWork *, LocalInt n, const PetscScalar *z, const PetscScalar *r, const PetscScalar *s,
                           PetscReal sums[4]);
/* p = z + b p, and w = s + b w where s is given */
PetscErrorCode CGDirection_Host(LocalInt n, PetscScalar b, const PetscScalar *z, PetscScalar *p, const PetscScalar *s,
                                PetscScalar *w);
PetscErrorCode CGDirection_CUDA(LocalInt n, PetscScalar b, const PetscScalar *z, PetscScalar *p, const PetscScalar *s,
                                PetscScalar *w);
