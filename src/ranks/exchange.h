/*
   An exchange between ranks: which of a rank's entries go to which neighbour, and where theirs come, as ghosts. The matrix of an
   operator has one, each factor of an inverse that reaches other ranks, and each level of a hierarchy.

   A PetscSF carries the entries where the host takes part: on the host, staged, or by a GPU-aware MPI. That of a PETSc without CUDA
   takes memory of the host alone, so that vectors on the GPU are copied there and back as a whole. Lists that are made from it
   say the same to NCCL and to kernels that write to other GPUs, see cuda/ranks/exchange.cuh.
*/
#pragma once

#include "ranks/nccl.h"
#include "ranks/neighbours.h"
#include "sparse/csr.h"

struct Exchange {
  PetscSF      sf = nullptr; /* from the entries of all ranks to the ghosts, whose places are 0, 1 ..; null if no rank has ghosts */
  PetscMemType where  = PETSC_MEMTYPE_HOST; /* memory of all arrays */
  LocalInt     count  = 0;                  /* ghosts */
  PetscScalar *ghosts = nullptr;            /* [columns * count] where they come: interleaved, if there is more than one column */
  bool         fence  = false;              /* waits where PetscSF may work in another stream than the vectors */

  /* what several columns need beside that, made for the first of them */
  LocalInt     columns = 0;       /* there is room for so many */
  PetscSF      packed  = nullptr; /* from the packed rows of all ranks to the ghosts */
  LocalInt     sent    = 0;       /* rows of this rank that other ranks need */
  LocalInt    *rows    = nullptr; /* [sent] these rows, ascending */
  PetscScalar *block   = nullptr; /* [columns * sent] their entries, interleaved */

  /* where PetscSF takes no memory of the GPU: what it takes instead, of `sf` or of `packed` */
  char    *host_x = nullptr, *host_ghosts = nullptr;
  LocalInt values = 1; /* of eight bytes in an entry of `sf`, at most */

  /* for exchanges without the host */
  PetscObjectId id     = 0; /* another one for each sf: all ranks see it change at the same time */
  PetscObjectId listed = 0; /* the sf that the lists are of */
  Neighbours    lists;

  /* where messages of NCCL carry entries of up to `width` doubles, see ExchangeUseNCCL() */
  NCCL                         *nccl  = nullptr;
  bool                          all   = false; /* its ranks are all of those of NCCL */
  LocalInt                      width = 0;
  std::vector<Neighbours::Part> to, from;                          /* with the numbers for NCCL */
  LocalInt                     *list = nullptr, *places = nullptr; /* those of `lists` */
  PetscScalar                  *packed_entries = nullptr, *received = nullptr;

  /* the block of the matrix that it was made for, and a hash of its columns of other ranks */
  PetscObjectId    block_id = 0;
  PetscObjectState hash     = 0;
};

/* ----------------------------------------- to make one ---------------------------------------- */

/* Makes room for the ghosts of one vector, in the place of what there is. A rank does this alone, and all connect afterwards. */
PetscErrorCode ExchangeCreate(PetscMemType, LocalInt count, Exchange *);
/*
   Connects the ranks, by the numbers of the rows or columns that are the ghosts, in the layout of all ranks or in that of a matrix,
   whose own PetscSF serves where it has one. Collective.
*/
PetscErrorCode ExchangeFromColumns(MPI_Comm, PetscLayout, const PetscInt columns[], Exchange *);
PetscErrorCode ExchangeFromMat(Mat, const PetscInt columns[], Exchange *);
/* Whether it is an exchange for this matrix as it is now, as far as this rank sees. */
PetscErrorCode ExchangeFitsMat(const Exchange *, Mat, PetscBool *fits);
/* Makes the lists unless they are up to date. A rank does this alone. */
PetscErrorCode ExchangeMakeLists(Exchange *);
/*
   From now on NCCL carries entries on the GPU, of up to so many doubles, in the place of the PetscSF, of which there are lists. The
   ranks have these numbers for NCCL, and are all of its ranks or some of them. A rank does this alone.
*/
PetscErrorCode ExchangeUseNCCL(NCCL *, const std::vector<PetscMPIInt> &numbers, bool all, LocalInt width, Exchange *);
/* Makes room on the host for the entries of the PetscSF that `exchange` has been given, where that is needed. */
PetscErrorCode ExchangeMakeStaging(Exchange *exchange);
PetscErrorCode ExchangeDestroy(Exchange *);

/*
   Makes room for so many columns, with an `sf`. Collective, unless there is room: all ranks have room for as many columns, or none
   of them has. An error of one rank is one of all.
*/
PetscErrorCode ExchangeNeedColumns(Exchange *, LocalInt columns);

/* ----------------------------------------- the exchange --------------------------------------- */

/* All four do nothing without an `sf`. What is exchanged must not be written between a beginning and its end. */

/* Entries of this type of the vector x go to the ranks that have them as ghosts, which may be anywhere in the same memory. */
PetscErrorCode ExchangeBegin(const Exchange *, MPI_Datatype, const void *x, void *ghosts);
PetscErrorCode ExchangeEnd(const Exchange *, MPI_Datatype, const void *x, void *ghosts);
/* The other way round: ghosts go back to x, of which each entry is a ghost of one rank at most. */
PetscErrorCode ExchangeBackBegin(const Exchange *, MPI_Datatype, const void *ghosts, void *x);
PetscErrorCode ExchangeBackEnd(const Exchange *, MPI_Datatype, const void *ghosts, void *x);

/*
   The columns of a block for which there is room, `ld` entries behind one another, go to `ghosts`: one message to each neighbour,
   however many columns there are. The end has the same X as the beginning.
*/
PetscErrorCode ExchangeColumnsBegin(const Exchange *, LocalInt columns, const PetscScalar *X, LocalInt ld);
PetscErrorCode ExchangeColumnsEnd(const Exchange *, LocalInt columns, const PetscScalar *X);

/*
   PetscSF keeps the stream of its first use. Where the current stream is not the null stream, which waits for others by itself,
   this waits for all of them: before an exchange begins with what was written on the current stream, and after it has ended, before
   that stream reads what came. A stream of the type PETSC_STREAM_NONBLOCKING is refused.
*/
PetscErrorCode ExchangeFence_CUDA();
/* The exchange by NCCL, of entries of so many doubles. */
PetscErrorCode ExchangeByNCCL_CUDA(const Exchange *, LocalInt width, const double *x, double *ghosts);
