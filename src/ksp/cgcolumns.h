/*
   The conjugate gradient method for several right-hand sides at once, each column with its own scalars and its own test. A matrix
   or a factor is read once for all columns. The recurrences are those of cgfused.h, column by column; the solution of a column that
   has come to its end stays as it is until all have.

   On one GPU vectors are interleaved: the entries of a row lie together, the columns side by side, so that a product
   reads the row of a block vector contiguously. With M = (1 + W2) D (1 + W1) and W2 = W1^T, an iteration is three kernels, and
   neither r nor z has to be stored:

     w = A p,  delta = p.w                          a = beta / delta
     t = t - a D (w + W1 w),  beta' = t.(D^-1 t)    b = beta' / beta;  t = D (1 + W1) r, and r.z = t.(D^-1 t)
     z = t + W2 t,  z.z,  p' = z + b p              the test of the norm; p' is the next direction

   Where the norm is that of r, r = r - a w is kept, too. Without W1 and W2, t is r, and z is D t, or what a cycle of multigrid
   makes of t, for 8 columns at a time; it takes the place of w.

   Two arrays take the directions in turns, so that x has to be read and written in every second iteration alone, for two steps at
   once: x = x + a p + a' p'. A column whose last iteration is the first one of such a pair has its step made when the solution is
   copied out.

   On several ranks with NCCL each of the three products has the exchange of cgfused.h, of the ghosts of all columns at once, and
   sums are added over the ranks for all columns at once: (p.w, and z.z of the iteration before) and (r.z, r.r). So the test of the
   norm is made after the next product with A, whose result is not used if the column has come to its end.

   In the three kernels the entries of 9.5 block vectors are read or written, 76 bytes a row and column beside the matrices, and 92
   where r is kept. A solve for one right-hand side reads and writes 128, since z and r are stored there.
*/
#pragma once

#include "cgfused.h"

/* Columns that are solved together unless the program asks for another number, and the most that are. */
constexpr LocalInt kCGColumns = 8, kCGMostColumns = 16;

/* ------------------- one rank, or several with NCCL: the GPU decides -------------------------- */

/* Block vectors, scalars and the graph. */
struct CGColumnsWork;

/* How a column has ended: see CGFusedAdvance_CUDA(). norm is the last one, and a the first step, 0 if there was none. */
struct CGColumn {
  CGStop    stop;
  LocalInt  its;
  PetscReal value, norm, a;
};

/* The exchanges of A, W1 and W2 for one column, with their lists; null where there is none. */
struct CGColumnsExchanges {
  MPI_Comm        comm;
  const Exchange *of[3];
};

/* All calls of a solve follow a CGFusedPrepare_CUDA() for the graph, where a cycle is one of CMATCHTakesColumns(). */
PetscErrorCode CGColumnsCreate_CUDA(CGColumnsWork **);
PetscErrorCode CGColumnsDestroy_CUDA(CGColumnsWork **);
size_t         CGColumnsBytes_CUDA(const CGColumnsWork *);
/*
   Room for a solve for so many columns with this norm, on several ranks also for the exchanges. It does not wait for other ranks;
   if it fails on one of them, all destroy the work.
*/
PetscErrorCode CGColumnsPrepare_CUDA(CGColumnsWork *, CGFusedWork *, LocalInt columns, CGNorm, const CGColumnsExchanges *);
/* Makes the exchanges ready where that has been done on all ranks; collective. */
PetscErrorCode CGColumnsConnect_CUDA(CGColumnsWork *, const CGColumnsExchanges *);
/* R = B, or R = B - A X where X is not null; Z = M R, P = Z, and the sums of each column, for which it waits. */
PetscErrorCode CGColumnsStart_CUDA(CGColumnsWork *, const CGFusedWork *, const PetscScalar *B, LocalInt ldb, const PetscScalar *X,
                                   LocalInt ldx, CGNorm, CGSums sums[]);
/* Begins the iterations that follow such a start, with beta = r.z of each column, but not of those that have ended already. */
PetscErrorCode CGColumnsBegin_CUDA(CGColumnsWork *, const CGFusedWork *, const PetscReal beta[], const CGTest test[],
                                   const PetscBool ended[]);
/* Goes on and waits for some iterations: to be called until all columns have ended. */
PetscErrorCode CGColumnsAdvance_CUDA(CGColumnsWork *, CGColumn column[], PetscBool *ended);
/* Copies the solutions to X, but not those of columns that are to be left as they are. */
PetscErrorCode CGColumnsGetSolution_CUDA(CGColumnsWork *, const PetscBool left[], PetscScalar *X, LocalInt ldx);
