/*
   A private copy of a sparse matrix on the GPU, for products that run a thousand times. A warp takes a slice of 32 / lanes rows,
   `lanes` lanes a row; a lane takes every lanes-th entry of its row, one in each step. In an even copy every lane has an entry in
   every step of its slice, zeros where its row is shorter, and a lane's entries of 4 steps (then of 2 or 1 that are left) lie
   together, so that one load gets them. Where that takes too many zeros, rows are sorted by length first, within windows of
   kSliceWindow rows. In an uneven copy lanes that have no entry left are left out, and a step's entries lie together. Either way a
   warp reads contiguously.

   Nothing is lost: values are kept in single precision where it holds all of them exactly, columns as 16-bit distances from the
   first column of their step where these suffice.
*/
#pragma once

#include <cstdint>

#include "sparse/csr.h"

/*
   What a copy is for. Plain and compressed ones are read once per product, and are even, sorted if need be, if few zeros make them
   so; plain ones have columns in 32 bits and values as they are in the matrix. Resident ones are for shared memory, where bytes
   matter less than that there is one kind: even, 32 bits, double precision; where padding would take them beyond
   kSliceResidentBytes nothing is made, and the kind is SLICES_NONE. Products are the same to the last bit.
*/
enum SlicesKind { SLICES_NONE, SLICES_PLAIN, SLICES_COMPRESSED, SLICES_RESIDENT };

constexpr size_t kSliceResidentBytes = 40000000;
constexpr double kSlicePadding       = 1.1; /* entries of an even copy, relative to those of the matrix, at most */
constexpr int    kSliceWindow        = 512; /* rows among which they are sorted */

struct Slices {
  SlicesKind kind;
  PetscInt   rows;
  PetscInt   lanes;   /* a row: 1, 2, 4 .. 32 */
  PetscInt   count;   /* of slices */
  PetscInt   entries; /* with the padding */
  PetscBool  even;
  PetscBool  sorted;    /* place k of the slices is row order[k], not row k */
  PetscBool  narrow;    /* columns in 16 bits */
  PetscBool  single;    /* values in single precision */
  PetscInt  *order;     /* [rows], for sorted copies */
  PetscInt  *step;      /* [count + 1] steps of the slices before; even slices begin at 32 times that */
  PetscInt  *start;     /* [count] where uneven slices begin */
  PetscInt  *length;    /* [rows] entries of a row, for uneven copies */
  PetscInt  *base;      /* [step[count]] first column of a step, for narrow copies */
  void      *column;    /* [entries] */
  void      *value;     /* [entries] */
  void      *memory[2]; /* of the arrays that have to do with rows, and of the others */
  size_t     capacity[2];
};

/* A's slices, in the memory of the last ones where that suffices. */
PetscErrorCode SlicesUpdate_CUDA(const CSR *A, PetscInt lanes, SlicesKind, Slices *);
PetscErrorCode SlicesDestroy_CUDA(Slices *);
size_t         SlicesBytes(const Slices *); /* that a product reads */
