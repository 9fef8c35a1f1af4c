/*
   MATBAIJCUDA is MATBAIJ with products that run on the device. This header has the data of its two types, MATSEQBAIJCUDA for one
   rank and MATMPIBAIJCUDA for several.
*/
#pragma once

#include <petsc/private/matimpl.h>

#include <finepc.h>

#include "sparse/bsr.h"

/* The data of MATSEQBAIJCUDA, at spptr of the Mat. The matrix itself is PETSc's MATSEQBAIJ, on the host. */
struct SeqBAIJCUDA {
  static constexpr char        kBase[] = MATSEQBAIJ, kType[] = MATSEQBAIJCUDA;
  static constexpr const char *kOthers[] = {MATSEQAIJ, MATSEQSBAIJ}; /* the types that PETSc converts the base to */

  struct _MatOps   base;                        /* the operations of MATSEQBAIJ */
  BSR              copy;                        /* the matrix on the device */
  BSR              transpose;                   /* the transpose on the device, if a product has needed it */
  PetscObjectState values, transposed_values;   /* states of the matrix when `copy` and `transpose` were made */
  uint64_t         pattern, transposed_pattern; /* hashes of its pattern then: its nonzero state may not tell */
  PetscBool        stale;                       /* the copies are old, though the states have not changed */
};

/* The data of MATMPIBAIJCUDA, at spptr of the Mat. The two parts of the matrix are MATSEQBAIJCUDA. */
struct MPIBAIJCUDA {
  static constexpr char        kBase[] = MATMPIBAIJ, kType[] = MATMPIBAIJCUDA;
  static constexpr const char *kOthers[] = {MATMPIAIJ, MATMPISBAIJ, MATMPIADJ};

  struct _MatOps   base;     /* the operations of MATMPIBAIJ */
  Mat              diagonal; /* the part in the rank's own columns, borrowed from the matrix, or null after an assembly */
  Mat              off;      /* the part in the columns of other ranks, likewise */
  PetscSF          ghosts;   /* the exchange of block entries of other ranks, in the order of the columns of `off` */
  MPI_Datatype     block;    /* the type in which the exchange sends a block entry */
  PetscScalar     *values;   /* the block entries of other ranks, on the device */
  PetscObjectState state;    /* state of the matrix at the last product */
  PetscObjectState copied;   /* states of the matrix for which all ranks have copies of both parts, */
  PetscObjectState transposed;
};
