/* The data of PCBISAI, for its face and for the part of the face that gets the triangular factors, bisai_factor.cxx. */
#pragma once

#include <string>
#include <vector>

#include "bisai.h"
#include "pc/local.h"
#include "sparse/bsr_mat.h"

template <typename Object>
struct OptionTable;

/* Rows of PC_BISAI::vectors: between the factors, a residual, and both ends in the order of the factor. */
enum { VECTOR_MIDDLE, VECTOR_RESIDUAL, VECTOR_IN, VECTOR_OUT, VECTORS };

struct PC_BISAI : PC_Local {
  static const OptionTable<PC> options;

  /* options */
  BISAIParams        params;
  PCBISAIFactor      factor       = PC_BISAI_FACTOR_PETSC;
  PetscInt           levels       = 0;
  MatFactorShiftType shift_type   = MAT_SHIFT_NONE;
  PetscReal          shift_amount = 100.0 * PETSC_MACHINE_EPSILON;
  std::string        ordering     = MATORDERINGNATURAL;

  /* built */
  bool       built = false;
  PetscInt   bs = 1, n = 0;     /* block rows of this rank */
  PetscInt   operator_nnz = 0;  /* blocks */
  BSR        N[2]         = {}; /* NL and NU */
  BSR        R[2]         = {}; /* -L and -U, for the relaxation */
  PetscInt  *order[2]     = {}; /* [n] rows and columns of the operator in the order of the factor, or null */
  BILUStats  factor_stats = {};
  bool       own_factor   = false; /* PETSc's factorization did not do: its host twin's values are in the factor */
  BISAIStats stats        = {};
  PetscBool  reused       = PETSC_FALSE; /* the last set-up kept all patterns */

  /* work: what the next set-up on the same pattern finds, and what an apply needs */
  BSR          blocks  = {};      /* of the operator, where it does not have them itself */
  Mat          baij    = nullptr; /* the same for PETSc's factorization */
  Mat          petsc   = nullptr; /* PETSc's factor */
  BlockLU      host_lu = {};      /* its layout, where the inverses live on the device; it lends the values during a set-up */
  BlockLU      lu      = {};      /* the factor, where the inverses live; that layout on the host */
  BILUPlan    *plan    = nullptr;
  BISAIWork    work    = {};
  BSR          Nt[2]   = {}; /* transposes of N and R, made when PCApplyTranspose() is called */
  BSR          Rt[2]   = {};
  bool         turned  = false;   /* they have the values of the last set-up */
  PetscScalar *vectors = nullptr; /* [VECTORS * n * bs], or of VECTOR_MIDDLE alone */

  std::vector<PetscInt> host_order[2]; /* [n], or empty */
};

/*
   The triangular factors of the operator, in bisai->lu, by PETSc or by block ILU(0) of our own; with keep on the patterns of the
   last time. What cannot be factored is told in factor_stats, or in the outcome. Afterwards PETSc gets back what it has lent.
*/
PetscErrorCode BISAIGetTriangularFactors(PC, const BSRMat *, PetscBool keep, PCLocalOutcome *);
PetscErrorCode BISAIReturnTriangularFactors(PC_BISAI *);
/* An error where the options ask for what the factorization of their choice does not have. */
PetscErrorCode BISAICheckChoice(PC);

/* y = M^{-1} x or M^{-T} x, for PC_Local; columns is 1. */
PetscErrorCode BISAIApply(PC, PetscBool transpose, PetscInt columns, const PetscScalar *x, PetscInt ldx, PetscScalar *y,
                          PetscInt ldy, PetscLogDouble *flops);
PetscErrorCode PCView_BISAI(PC, PetscViewer);
