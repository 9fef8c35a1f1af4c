/*
   Sliced copies: a matrix on the GPU once more, in an order in which a product reads it faster than compressed sparse rows.
   They are for solvers, which multiply with a matrix a thousand times; slices.cu makes a copy, slices.cuh multiplies with it.

   What a slice is. A warp of 32 lanes multiplies with one slice after the other. In a copy with `lanes` lanes a row, a slice
   has 32 / lanes rows. A product goes through a slice in steps, and in step k, lane l of a row takes entry k * lanes + l of
   that row. So a slice has as many steps as its longest row asks for.

   Where the entries are. In both kinds of copies a warp reads contiguously:

   - In an even copy all lanes have an entry in all steps of their slice. Where a row is too short for that, the entry is a
     zero, which is padding. The steps of a slice are stored in groups of 4, then one of 2 and one of 1, as far as steps are
     left. The entries of a lane in a group lie together, so that one load gets them all: in a group of g steps that begins
     with step f, lane l of the warp has the entry of step k at place 32 * f + g * l + (k - f) of the slice. Slice s begins at
     entry 32 * step[s].
   - An uneven copy has no padding. The entries of a step lie together, in the order of lanes, and lanes whose row has no entry
     left are left out. Slice s begins at entry start[s].

   An even copy is the faster one, as long as few of its entries are padding. Where there are too many, rows are sorted by
   length before they are put into slices, within windows of kSliceWindow rows, so that rows stay near the rows whose columns
   they share. Where that does not help, the copy is uneven and not sorted.

   How large the entries are. No digit of the matrix is lost. Values are kept in single precision where that holds all of them
   exactly; columns as 16-bit distances from the smallest column of their step, base[step[s] + k], where 16 bits suffice for
   all.
*/
#pragma once

#include "sparse/csr.h"

/*
   What a copy is for. All kinds give the same products to the last bit, if they have the same number of lanes a row.

   - SLICES_PLAIN and SLICES_COMPRESSED are read from memory once in each product. They are even or uneven, sorted or not, as
     is said above. Plain ones have columns in 32 bits, and values in the precision of the matrix; only compressed ones are as
     small as the numbers allow.
   - SLICES_RESIDENT is loaded into shared memory, where it fits, and stays there. It is always even, with columns in 32 bits
     and values in double precision, because one single kind of copy matters more there than the bytes do.
   - SLICES_NONE is what is made instead of a resident copy that would take more than kSliceResidentBytes: nothing.
*/
enum SlicesKind { SLICES_NONE, SLICES_PLAIN, SLICES_COMPRESSED, SLICES_RESIDENT };

constexpr size_t kSliceResidentBytes = 40000000;
constexpr double kSlicePadding       = 1.1; /* the entries of an even copy are at most so many times those of the matrix */
constexpr int    kSliceWindow        = 512; /* rows that are sorted among themselves */

struct Slices {
  SlicesKind kind;
  LocalInt   rows;
  LocalInt   lanes;   /* lanes a row: 1, 2, 4 .. 32 */
  LocalInt   count;   /* number of slices */
  LocalInt   entries; /* with the padding */
  PetscBool  even;
  PetscBool  sorted;    /* the k-th row of the slices is row order[k] of the matrix; otherwise it is row k */
  PetscBool  narrow;    /* columns are 16-bit distances */
  PetscBool  single;    /* values are in single precision */
  LocalInt  *order;     /* [rows], of a sorted copy */
  LocalInt  *step;      /* [count + 1] the number of steps in all slices before this one */
  LocalInt  *start;     /* [count] the first entry of a slice, of an uneven copy */
  LocalInt  *length;    /* [rows] the number of entries of a row, of an uneven copy */
  LocalInt  *base;      /* [step[count]] the smallest column of a step, of a narrow copy */
  void      *column;    /* [entries] LocalInt or std::uint16_t */
  void      *value;     /* [entries] double or float */
  void      *memory[2]; /* the allocations: of the arrays over rows and slices, and of those over steps and entries */
  size_t     capacity[2];
};

/* S becomes the sliced copy of A. The memory of the copy that was in S is used again where it suffices; S is zero at first. */
PetscErrorCode SlicesUpdate_CUDA(const CSR *A, LocalInt lanes, SlicesKind, Slices *S);
PetscErrorCode SlicesDestroy_CUDA(Slices *);
size_t         SlicesBytes(const Slices *); /* the bytes that a product reads of the copy */
