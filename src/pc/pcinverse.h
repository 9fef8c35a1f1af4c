/*
   An explicit inverse in two factors, M^{-1} = W2 D W1. The factored approximate inverses have it in common once they are set up.
   Two sparse products apply it, which allocate nothing and wait for nothing, but where factors reach other ranks: there each
   product waits for the entries that come from them.
*/
#pragma once

#include "ranks/exchange.h"

/*
   The entries of a factor in columns that belong to other ranks. They multiply what the exchange brings: ghost c is the entry of
   the vector in row columns[c] of the matrix.
*/
struct PCInverseGhosts {
  CSR       W;        /* [rows x exchange.count], without arrays if this rank has no such entries */
  Exchange  exchange; /* from the rows of all ranks to the columns, without an `sf` if no rank has such entries */
  PetscInt *columns;  /* [exchange.count] numbers in the matrix, ascending, on the host */
  LocalInt  touched;  /* rows that have entries */
  LocalInt *rows;     /* [touched] these rows, in the memory of the factors */
};

struct PCInverse {
  CSR          W1, W2; /* the factors without their unit diagonals, which are not stored */
  PetscScalar *d;      /* [rows] the diagonal matrix D */
  PetscMemType where;  /* memory of all arrays */
  LocalInt     rows;
  LocalInt     operator_nnz; /* entries of the matrix that was inverted */
  size_t       carry_bytes;  /* memory of a third factor that comes before W1, which PC_Local has, or 0 */
  PetscScalar *work;         /* [work_columns * rows] the products W1 X */
  LocalInt     work_columns; /* 1 from the set-up on, and more after an apply to several columns */

  /*
     With them t = D (x + W1 x + ghosts1.W g) and y = t + W2 t + ghosts2.W h, where g are entries of x on lower-numbered ranks and h
     are entries of t on higher-numbered ranks.
  */
  PCInverseGhosts ghosts1, ghosts2;
};

/*
   The most columns that PCInverseApply() takes at a time. With more columns a product reads a factor less often, but needs more
   registers and more work space. Where a factor reaches other ranks there are as many columns to an exchange, whose time hardly
   grows with them; the products go by fewer at a time then.
*/
constexpr LocalInt kInverseColumns = 4, kInverseExchangedColumns = 8;

/* Makes the work space for products with so many columns, before an apply; collective, if the factor reaches other ranks. */
PetscErrorCode PCInverseNeedWork(PCInverse *, LocalInt columns);

/*
   Makes what ghosts need beside W and the lists: first what a rank does alone, with the numbers of the columns in the matrix, and
   then the exchange, with the layout of the matrix's rows.
*/
PetscErrorCode PCInverseSetColumns(PCInverse *, PCInverseGhosts *, LocalInt count, const PetscInt columns[]);
PetscErrorCode PCInverseConnect(PCInverseGhosts *, MPI_Comm, PetscLayout);

/* Bytes of the entries, of the list of their rows, and of the numbers of their columns. */
size_t PCInverseGhostBytes(const PCInverseGhosts *);

/* Y = W2 D W1 X for at most that many columns, in the memory of the factors. `flops` is set to the number of operations. */
PetscErrorCode PCInverseApply(PCInverse *, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y, LocalInt ldy,
                              PetscLogDouble *flops);
PetscErrorCode PCInverseView(const PCInverse *, MPI_Comm, PetscViewer);
PetscErrorCode PCInverseReset(PCInverse *);

/* Every PC of this kind composes this method, which gives its inverse; before PCSetUp() the inverse has no rows. */
constexpr const char *kInverseQuery = "PCFinePCGetInverse_C";

/*
   A PC whose application is a cycle of multigrid composes this method, which gives its hierarchy, or null before a set-up, after
   one that failed, and where the preconditioner is not the whole of it.
*/
constexpr const char *kCycleQuery = "PCFinePCGetCycle_C";
struct CMATCHHierarchy;

/*
   A PC that has to know in an application how large its vector is on all ranks composes this method, by which a solver spares it a
   reduction. It gives about how large the next vector will be, the same on all ranks: the 2-norm of one that differs by a few
   powers of 10 at most, as the residual before.
*/
constexpr const char *kSizeQuery = "PCFinePCSetSize_C";

/* A PC of another kind composes this method, which gives the bytes that PCFinePCGetApplyBytes() reports. */
constexpr const char *kApplyBytesQuery = "PCFinePCGetApplyBytes_C";
