/* MATBAIJCUDA: MATBAIJ whose products run on the device. What its two faces, for one rank and for several, share. */
#pragma once

#include <petsc/private/matimpl.h>

#include "sparse/bsr.h"

/* Of MATSEQBAIJCUDA, in spptr. The matrix itself is PETSc's, on the host. */
struct SeqBAIJCUDA {
  struct _MatOps   base;            /* MATSEQBAIJ's operations */
  BSR              copy;            /* on the device */
  BSR              transpose;       /* of the copy, if it was asked for */
  PetscObjectState values, pattern; /* of the matrix when the copy was made */
  PetscObjectState transposed_values, transposed_pattern;
  PetscBool        stale; /* the copy, though the states have not changed */
};

/* Of MATMPIBAIJCUDA, in spptr. Its two parts are MATSEQBAIJCUDA. */
struct MPIBAIJCUDA {
  struct _MatOps   base;     /* MATMPIBAIJ's operations */
  Mat              diagonal; /* borrowed from it since the last assembly */
  Mat              off;
  PetscSF          ghosts; /* block entries of other ranks, in the order of the columns of off */
  MPI_Datatype     block;  /* as one of those is sent */
  PetscScalar     *values; /* of them, on the device */
  PetscObjectState state;  /* of the matrix at the last product */
};
