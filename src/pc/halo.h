/*
   The rows of other ranks that a rank has gathered for its set-up, and how they become one matrix with its own. Foreign rows belong
   to lower-numbered ranks and come first, in the order of their global numbers; own rows follow. What is here knows arrays alone;
   halo_face.h has the plan and the communication.
*/
#pragma once

#include <vector>

#include "sparse/csr.h"

/* A number in the whole matrix, where a twin has to read it: the lists of rows that travel between ranks have such numbers. */
using GlobalInt = PetscInt;

/* ------------------------------------ the plan of a gathering --------------------------------- */

/*
   The pattern of a rank's rows. Entry k of `own` is in column begin + own.j[k] of the matrix, and its place is k; entry k of
   `others` is in column columns[others.j[k]], and its place is own.nnz + k.
*/
struct HaloRows {
  CSRView          own, others;
  GlobalInt        begin, end; /* the rank's rows in the matrix */
  LocalInt         count;      /* columns that other ranks have */
  LocalInt         before;     /* how many of them are before the rank's own ones */
  const GlobalInt *columns;    /* [count] their numbers in the matrix, ascending, in the memory of the rows */
};

/*
   The rows of this rank that couplings between its own rows lead to. It begins with rows [count], ascending, on the host: depth[k]
   layers of rows are wanted from there on, row rows[k] being the first. `reached` gets these rows, ascending. onward [A->count]
   gets for each column of other ranks how many layers are wanted from there on, or 0. All rows are numbers in the matrix.
*/
PetscErrorCode HaloFollow_Host(const HaloRows *, LocalInt count, const GlobalInt rows[], const GlobalInt depth[],
                               std::vector<GlobalInt> *reached, std::vector<LocalInt> *onward);
PetscErrorCode HaloFollow_CUDA(const HaloRows *, LocalInt count, const GlobalInt rows[], const GlobalInt depth[],
                               std::vector<GlobalInt> *reached, std::vector<LocalInt> *onward);

/* `lengths` gets those of `count` rows of the rank, which are numbers in the matrix, on the host. */
PetscErrorCode HaloLengths_Host(const HaloRows *, LocalInt count, const GlobalInt rows[], std::vector<GlobalInt> *lengths);
PetscErrorCode HaloLengths_CUDA(const HaloRows *, LocalInt count, const GlobalInt rows[], std::vector<GlobalInt> *lengths);

/* *places, which is created, gets the places of the entries of such rows, by ascending columns in each; `total` is their number. */
PetscErrorCode HaloPlaces_Host(const HaloRows *, LocalInt count, const GlobalInt rows[], LocalInt *total, LocalInt **places);
PetscErrorCode HaloPlaces_CUDA(const HaloRows *, LocalInt count, const GlobalInt rows[], LocalInt *total, LocalInt **places);

/* The columns, as numbers in the matrix, of the entries at these places. */
PetscErrorCode HaloColumns_Host(const HaloRows *, LocalInt count, const LocalInt places[], GlobalInt columns[]);
PetscErrorCode HaloColumns_CUDA(const HaloRows *, LocalInt count, const LocalInt places[], GlobalInt columns[]);

/* Rows of other ranks. */
struct HaloGathered {
  LocalInt         rows, nnz;
  const GlobalInt *row;     /* [rows] numbers in the matrix, ascending */
  const GlobalInt *length;  /* [rows] */
  const GlobalInt *columns; /* [nnz] numbers in the matrix, of one row after the other */
};

/*
   The pattern of the foreign rows, which are numbered in their order; own rows follow. Columns that are neither among these nor own
   ones are left out. foreign, keep and cut are created: keep [foreign->nnz] has the places of the entries that are kept among all
   of the gathered ones, and cut [gathered->rows] says whether a row has columns that are left out although they are within
   `bounds`: one of bounds[0] to bounds[1] - 1, bounds[2] to bounds[3] - 1 and so on, which ascend.
*/
PetscErrorCode HaloNumber_Host(const HaloGathered *, GlobalInt begin, GlobalInt end, LocalInt bound_count, const GlobalInt *bounds,
                               CSR *foreign, LocalInt **keep, char **cut);
PetscErrorCode HaloNumber_CUDA(const HaloGathered *, GlobalInt begin, GlobalInt end, LocalInt bound_count, const GlobalInt *bounds,
                               CSR *foreign, LocalInt **keep, char **cut);

/*
   The pattern of the rank's rows in the columns of the foreign ones, rows [first]. ghosts and places are created: places
   [ghosts->nnz] are those of the entries in `others`, counted from 0.
*/
PetscErrorCode HaloGhosts_Host(const HaloRows *, LocalInt first, const GlobalInt *rows, CSR *ghosts, LocalInt **places);
PetscErrorCode HaloGhosts_CUDA(const HaloRows *, LocalInt first, const GlobalInt *rows, CSR *ghosts, LocalInt **places);

/* ------------------------------------------ the values ---------------------------------------- */

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

/* --------------------------------- the factor's part on other ranks --------------------------- */

/* What HaloCompress_X() finds in the foreign part of a factor. */
struct HaloEntries {
  std::vector<LocalInt>  columns;           /* the columns that have entries, by their old numbers, ascending */
  std::vector<GlobalInt> numbers;           /* column and row of each entry, in the matrix, by column and in a column by row */
  LocalInt              *order   = nullptr; /* [nnz] places in W of these entries, created */
  LocalInt              *rows    = nullptr; /* [touched] rows that have entries, ascending, created */
  LocalInt               touched = 0;
  LocalInt               limited = 0; /* rows with an entry in a column that is `cut` */
};

/*
   Numbers the columns of W that have entries anew, from 0, and leaves the others out. Column c was row rows[c] of the matrix, and
   row 0 of W is row `begin` of it. `cut` [W->columns] may be null.
*/
PetscErrorCode HaloCompress_Host(CSR *W, const GlobalInt *rows, GlobalInt begin, const char *cut, HaloEntries *);
PetscErrorCode HaloCompress_CUDA(CSR *W, const GlobalInt *rows, GlobalInt begin, const char *cut, HaloEntries *);

/* What HaloTransposed_X() makes of the entries that other ranks have sent. */
struct HaloTransposed {
  std::vector<GlobalInt> columns;           /* numbers in the matrix, ascending */
  LocalInt              *place   = nullptr; /* [nnz] which of the entries that came is at this place of W, created */
  LocalInt              *rows    = nullptr; /* [touched] rows that have entries, ascending, created */
  LocalInt               touched = 0;
};

/*
   W [n x columns] of entries whose rows and columns in the matrix are `numbers` [2 * count], on the host. In a row they are in the
   order in which they came, which is that of their columns. W has room for values.
*/
PetscErrorCode HaloTranspose_Host(LocalInt n, GlobalInt begin, LocalInt count, const GlobalInt numbers[], FinePCPrecision, CSR *W,
                                  HaloTransposed *);
PetscErrorCode HaloTranspose_CUDA(LocalInt n, GlobalInt begin, LocalInt count, const GlobalInt numbers[], FinePCPrecision, CSR *W,
                                  HaloTransposed *);
