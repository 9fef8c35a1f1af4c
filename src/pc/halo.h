/*
   The rows of other ranks that a rank has gathered for its set-up, and how they become one matrix with its own. Foreign rows belong
   to lower-numbered ranks and come first, in the order of their global numbers; own rows follow. What is here knows arrays alone;
   halo_face.h has the plan and the communication.
*/
#pragma once

#include "sparse/csr.h"

/* to[k] is entry index[k] of `a`, which has n entries, and of `b` behind them. The precision is that of all three. */
PetscErrorCode HaloPick_Host(FinePCPrecision, LocalInt count, const LocalInt *index, LocalInt n, const void *a, const void *b,
                             void *to);
PetscErrorCode HaloPick_CUDA(FinePCPrecision, LocalInt count, const LocalInt *index, LocalInt n, const void *a, const void *b,
                             void *to);

/*
   L gets the foreign rows, whose columns are those of L, and then the own rows: the entries of `ghosts`, which are those in foreign
   columns, and behind them those of the rank's block. L is created, in double precision.
*/
PetscErrorCode HaloAssemble_Host(const CSRView *own, const CSR *foreign, const CSR *ghosts, CSR *L);
PetscErrorCode HaloAssemble_CUDA(const CSRView *own, const CSR *foreign, const CSR *ghosts, CSR *L);

/*
   Splits a factor with ascending columns: `own` gets the columns from `first` on, numbered from 0, and `foreign` those before. With
   keep, both have their patterns already and get values only.
*/
PetscErrorCode HaloSplit_Host(const CSR *W, LocalInt first, PetscBool keep, CSR *own, CSR *foreign);
PetscErrorCode HaloSplit_CUDA(const CSR *W, LocalInt first, PetscBool keep, CSR *own, CSR *foreign);

/* rows[k] is the row of entry k, for all entries of W. */
PetscErrorCode HaloRowsOf_Host(const CSR *W, LocalInt *rows);
PetscErrorCode HaloRowsOf_CUDA(const CSR *W, LocalInt *rows);

/*
   PetscSF keeps the stream of its first use. Where the current stream is not the null stream, which waits for others by itself,
   this waits for all of them: before an exchange begins with what was written on the current stream, and after it has ended, before
   that stream reads what came. A stream of the type PETSC_STREAM_NONBLOCKING is refused.
*/
PetscErrorCode HaloFence_CUDA();
