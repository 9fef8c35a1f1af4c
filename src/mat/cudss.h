/*
   cuDSS, NVIDIA's library of sparse direct solvers, whose factorizations MATSOLVERCUDSS offers to PETSc. This header is the kernel
   interface: a factorization on the device, with no twin on the host, where PETSc has direct solvers of its own.

   The library is opened when the first factor is asked for, rather than linked, as NCCL is (ranks/nccl.h), and no header of it is
   needed to build finepc: cuda/mat/cudss.cuh declares the few functions that are called.
*/
#pragma once

#include "sparse/csr.h"

struct CUDSS;

/* What is known of the matrix. Of a symmetric one the upper triangle is read; a definite one has a Cholesky factor. */
enum class CUDSSKind { GENERAL, SYMMETRIC, DEFINITE };

/* The numbers are those of cuDSS. */
struct CUDSSParams {
  int       reorder_alg   = 0;           /* the order of elimination; 0: cuDSS chooses */
  int       pivot_type    = 0;           /* where pivots are looked for; 0: cuDSS chooses */
  int       ir_n_steps    = 0;           /* steps of iterative refinement in a solve */
  PetscBool deterministic = PETSC_FALSE; /* the same bits from run to run */
  PetscBool hybrid_memory = PETSC_FALSE; /* the factor is kept on the host */
};

/* How an analysis or a factorization ended, and what the factor is like. */
struct CUDSSStats {
  MatFactorError error    = MAT_FACTOR_NOERROR; /* out of memory, or a pivot that is zero, or not positive where it must be */
  PetscInt64     nonzeros = 0;                  /* entries of the factor */
  PetscInt64     replaced = 0;                  /* pivots that were too small, and were replaced */
  PetscInt64     positive = 0, negative = 0;    /* pivots of a symmetric matrix */
  PetscInt64     device = 0;                    /* bytes that are needed on the device at the most; 0: unknown */
  PetscInt64     hybrid = 0, host = 0;          /* bytes on the device at the least, and on the host, with hybrid_memory */
  size_t         left = 0;                      /* bytes that the device had left when memory was not enough */
};

/* Opens the library, with an error if there is none that can be used or no device. */
PetscErrorCode CUDSSCreate_CUDA(CUDSS **);
PetscErrorCode CUDSSDestroy_CUDA(CUDSS **);
/* The version of the library, as in 1.0.0. */
PetscErrorCode CUDSSVersion_CUDA(const CUDSS *, char version[], size_t length);

/* Finds an order of elimination and the nonzeros of the factor. A is in either memory, with sorted rows. */
PetscErrorCode CUDSSAnalyse_CUDA(CUDSS *, CUDSSKind, const CUDSSParams *, const CSRView *A, CUDSSStats *);
/* Computes the factor of a matrix with the analysed nonzeros. After an error in *stats there is none. */
PetscErrorCode CUDSSFactor_CUDA(CUDSS *, const CSRView *A, CUDSSStats *);
/* Vectors in either memory, which lie `ld` values apart. */
template <typename Scalar>
struct CUDSSVectors {
  Scalar      *a;
  LocalInt     ld;
  PetscMemType where;
};

/* A X = B, or A^T X = B, with `columns` vectors each. On the device they do not overlap. */
PetscErrorCode CUDSSSolve_CUDA(CUDSS *, PetscBool transposed, LocalInt columns, CUDSSVectors<const PetscScalar> B,
                               CUDSSVectors<PetscScalar> X);
