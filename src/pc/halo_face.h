/*
   A rank's plan to gather rows of other ranks, and the communication that follows it. Rows, lists and values travel between
   neighbours. All ranks agree about errors after each step. Once for a plan a rank learns by PetscCommBuildTwoSided() who has
   columns in its rows, which sums up a number for each rank on up to 1,024 ranks, and has messages and a barrier beyond that.

   The messages are own ones (ranks/delivery.h), since a rank's rows follow one another in blocks of values, one for each neighbour.

   Ranks p and q are adjacent if A has an entry in a row of one and a column of the other. The ranks that row i of a factor may
   reach are the lower-numbered ones within k hops, `overlap`, which are the lower triangle of the k-th power of the graph of ranks,
   see section 4.3 of Isotton, Janna and Bernaschi. Of their rows those are gathered that h couplings lead to, `layers`.
*/
#pragma once

#include <vector>

#include "halo.h"
#include "local.h"
#include "ranks/delivery.h"

/*
   Numbers on their way, a block of them for each neighbour, in arrays of the memory of the factor. A rank fills `send`, makes the
   delivery ready, and takes what has come, alone. After a delivery that has failed the arrays are left.
*/
struct HaloMessage {
  PetscMemType where;
  Delivery     delivery{where};
  void        *send = nullptr, *received = nullptr;
};
PetscErrorCode HaloMessageCreate(const Neighbours &blocks, MPI_Datatype, size_t bytes, HaloMessage *);
PetscErrorCode HaloMessageDeliver(PCLocalPhase *, HaloMessage *);
PetscErrorCode HaloMessageDestroy(HaloMessage *);

struct Halo {
  const char              *type   = "";    /* for messages: "afsai" or "sfsai" */
  bool                     made   = false; /* whether the plan is there */
  PetscMemType             where  = PETSC_MEMTYPE_HOST;
  PetscInt                 begin  = 0;        /* number of this rank's first row in the matrix */
  PetscInt                 layers = 0;        /* couplings that were followed, 0 if a pattern alone named the rows */
  LocalInt                 nnz    = 0;        /* entries of this rank's rows of A */
  std::vector<PetscMPIInt> lower, higher;     /* ranks that this one may reach, and those that may reach it, ascending */
  std::vector<PetscInt>    rows;              /* numbers of the foreign rows in the matrix, ascending */
  PetscInt                *numbers = nullptr; /* [rows.size()] the same in the memory of the factor, as all arrays that follow */
  char      *cut = nullptr;     /* [rows.size()] whether a row has columns on ranks that are allowed, but not among the rows */
  Neighbours blocks;            /* of the values of rows of A */
  LocalInt  *send    = nullptr; /* [Sent()] places of the values that are sent, as HaloPick_X() counts them */
  LocalInt  *keep    = nullptr; /* [foreign.nnz] places of the values that are kept among those that are received */
  LocalInt  *columns = nullptr; /* [ghosts.nnz] places of the entries of `ghosts` among the rank's own ones */
  CSR        foreign = {};      /* [rows.size() x rows.size() + own rows] */
  CSR        ghosts  = {};      /* [own rows x rows.size()] the own rows in foreign columns */

  LocalInt First() const { return (LocalInt)rows.size(); }
  LocalInt Sent() const { return (LocalInt)NeighboursCount(blocks.to); }
  LocalInt Received() const { return (LocalInt)NeighboursCount(blocks.from); }
  /* The number in the matrix of a row of what HaloAssemble_X() makes. */
  PetscInt Global(LocalInt row) const { return row < First() ? rows[row] : begin + row - First(); }
};

/* What is to be gathered. */
struct HaloWish {
  Mat         A;
  PetscInt    overlap, layers;
  Mat         pattern; /* its columns name rows, from which and from the border `layers` couplings are followed; or null */
  const char *setter;  /* the function that was given the pattern, for messages */
  const char *type;    /* for messages: "afsai" or "sfsai" */
};

/*
   A user's pattern before it is used: an assembled MATAIJ with so many rows and columns on this rank. This rank's error, which says
   what to do, is its own.
*/
PetscErrorCode HaloCheckPattern(Mat pattern, PetscInt rows, const char setter[]);

/*
   Makes the plan, unless all ranks have it already and `keep` says that it is still right, and gathers the values. Collective. A
   step that fails on one rank ends the phase on all ranks.
*/
PetscErrorCode HaloGather(PCLocalPhase *, const HaloWish *, bool keep, Halo *);
PetscErrorCode HaloReset(Halo *);

/*
   The error of what a rank has done alone with the rows that it gathers, and with lists of them. Where it is one about memory, it
   becomes one that says how much that was so far, and what to do.
*/
struct HaloSize {
  const char *type; /* "afsai" or "sfsai" */
  LocalInt    rows;
  size_t      bytes;
};
PetscErrorCode HaloCheckMemory(PetscErrorCode, const HaloSize &);

/* Bytes of the gathered rows and of the plan on this rank. */
size_t   HaloBytes(const Halo *);
HaloSize HaloSizeOf(const Halo *);

/*
   Lists of numbers for other ranks. Collective, and agreed: `code` is the error of what this rank has done alone before, and
   nothing is sent unless some rank wants more, where that is given. Where `senders` are known, each of them sends one, or else it
   is null.
*/
struct HaloList {
  PetscMPIInt           rank;
  std::vector<PetscInt> numbers;
};
PetscErrorCode HaloSendLists(PCLocalPhase *, PetscErrorCode code, const HaloSize &, const std::vector<PetscMPIInt> *senders,
                             const std::vector<HaloList> &send, std::vector<HaloList> *received, bool *more = nullptr);

/* The rank that owns a row, or a column. */
PetscMPIInt HaloOwner(PetscMPIInt size, const PetscInt ranges[], PetscInt row);
