/*
   What makes a matrix unsymmetric: couplings that one row alone has, and pairs of entries that differ in value. Rows of Dirichlet
   conditions that were made rows of the identity while their columns stayed leave such couplings, see MatZeroRows(). The rows of
   the other unknowns are those of a symmetric matrix without them.
*/
#pragma once

#include "csr.h"

/*
   a_ij and a_ji count as equal if they differ by at most kSymmetry of the larger one, or by at most kSymmetryNoise of a_ii, which
   is rounding: couplings that are tiny compared with the diagonal entry may differ by much, relatively. The CUDA twin scales A to a
   unit diagonal and adds up its entries with random weights: if the sums above and below the diagonal differ by no more than
   kSymmetryOfSums of the root of the sum of squares it does not look at pairs, of which few small ones among many may differ by
   more.
*/
constexpr PetscReal kSymmetry = 1e-8, kSymmetryNoise = 1e-14, kSymmetryOfSums = 1e-12;

/* Entries that are not finite are not counted. */
struct CSRSymmetry {
  PetscInt64 one_sided; /* couplings a_ij above rounding, compared with a_ii, for which a_ji is zero or not stored */
  PetscInt64 unequal;   /* pairs of entries, none of them zero, that differ */
  PetscReal  largest;   /* the largest |a_ij - a_ji| / max(|a_ij|, |a_ji|) of these pairs */
  PetscInt64 foreign;   /* couplings of the kind of `one_sided` among rows that other ranks count */

  /* of the CUDA twin: 0 if A is symmetric to the last bit, 1 but for rounding, else 2, which is where it begins the next time; and
     for its work */
  PetscInt64 differs, unpaired;
};

/*
   Counts what makes A unsymmetric. If `values` [nnz] is given, in the memory of A, it gets the values of A with zeros in the place
   of the couplings that are one-sided. The rows before `first` belong to other ranks: entries among them are counted in `foreign`
   alone. The work space of the CUDA twin is one CSRSymmetry on the device. The result has what was found the last time, or zeros.
*/
PetscErrorCode CSRSymmetry_Host(const CSRView *A, LocalInt first, PetscScalar *values, CSRSymmetry *work, CSRSymmetry *);
PetscErrorCode CSRSymmetry_CUDA(const CSRView *A, LocalInt first, PetscScalar *values, CSRSymmetry *work, CSRSymmetry *);

/*
   W = -E D^{-1}, in double precision, where E are the one-sided couplings of A to isolated rows: rows that have their diagonal
   entry alone, such as those of Dirichlet conditions. D is the diagonal of A, and `values` are those that CSRSymmetry() gives. With
   an inverse P of A without its one-sided couplings, P (I + W) is one with the couplings E. P alone would not carry the values of
   isolated rows over to the rows that are coupled to them, and the conjugate gradient method stalls then.
*/
PetscErrorCode CSRCarry_Host(const CSRView *A, const PetscScalar *values, CSR *W);
PetscErrorCode CSRCarry_CUDA(const CSRView *A, const PetscScalar *values, CSR *W);
