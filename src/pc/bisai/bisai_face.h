/*
   The data of PCBISAI, for the files of its PETSc face: bisai.cxx with the options and the set-up, bisai_factor.cxx with the
   triangular factors, bisai_apply.cxx and bisai_view.cxx.
*/
#pragma once

#include <string>
#include <vector>

#include "bisai.h"
#include "pc/local.h"
#include "sparse/bsr_mat.h"

template <typename Object>
struct OptionTable;

/*
   The vectors in PC_BISAI::vectors: the vector between the two inverses, a residual of the relaxation, and x and y in the order of
   the factor.
*/
enum { VECTOR_MIDDLE, VECTOR_RESIDUAL, VECTOR_IN, VECTOR_OUT, VECTORS };

/* The factors L and U, and what the next set-up on the same pattern finds of them. */
struct BISAIFactors {
  bool      by_petsc = false; /* whose factors the option has come to */
  bool      own      = false; /* PETSc's factorization failed, so that the values are those of our own host twin */
  BILUStats stats    = {};
  BSR       blocks   = {};      /* blocks of the operator, if the operator does not have them in the right memory */
  Mat       baij     = nullptr; /* a MATSEQBAIJ of these blocks, for PETSc's factorization */
  Mat       petsc    = nullptr; /* PETSc's factor */
  BlockLU   host_lu  = {}; /* the layout of PETSc's factor, if the inverses are on the device; the values are lent in a set-up */
  BlockLU   lu       = {}; /* the factor in the memory of the inverses; on the host, the layout of PETSc's factor likewise */
  BILUPlan *plan     = nullptr;
  LocalInt *order[2] = {}; /* [n] the operator's rows, and its columns, in the order of the factor; or null */

  std::vector<LocalInt> host_order[2]; /* [n] `order` on the host, or empty */
};

/* Transposes of N and R, made when PCApplyTranspose() is called */
struct BISAITransposes {
  BSR  N[2]    = {};
  BSR  R[2]    = {};
  bool current = false; /* whether they have the values of the last set-up */
};

/* Room for vectors between the factors */
struct BISAIVectors {
  PetscScalar *data    = nullptr; /* [VECTORS] of room for columns * n * bs, or VECTOR_MIDDLE alone */
  LocalInt     columns = 0;       /* 1 from the set-up on, and more after an apply to several columns */
};

struct PC_BISAI : PC_Local {
  static const OptionTable<PC> options;

  /* The values of the options. */
  BISAIParams        params;
  PCBISAIFactor      factor        = PC_BISAI_FACTOR_AUTO;
  PetscInt           levels        = 0; /* levels of fill, 0 .. kBISAIMostLevels */
  MatFactorShiftType shift_type    = MAT_SHIFT_NONE;
  PetscReal          shift_amount  = 100.0 * PETSC_MACHINE_EPSILON;
  std::string        ordering      = MATORDERINGNATURAL;
  PetscInt           factor_sweeps = 0; /* sweeps of our own factorization, 0 .. kBILUMostSweeps; 0 for the exact one */

  /* What the last set-up has built. Arrays [2] are for the lower and the upper triangle. */
  bool         built        = false;
  LocalInt     bs           = 1;  /* rows of a block */
  LocalInt     n            = 0;  /* block rows of this rank */
  LocalInt     operator_nnz = 0;  /* blocks of the rank's diagonal block */
  BSR          N[2]         = {}; /* NL and NU */
  BSR          R[2]         = {}; /* -L and -U, for the relaxation */
  BISAIColumns columns[2]   = {}; /* of L and U and their inverses, where these are computed by columns */
  BISAIStats   stats        = {};
  PetscBool    reused       = PETSC_FALSE; /* whether the last set-up kept all patterns */

  /* What the next set-up on the same pattern finds, and what an apply needs. */
  BISAIFactors    factors;
  BISAIWork       work = {};
  BISAITransposes transposes;
  BISAIVectors    vectors;
};

/*
   Gets the triangular factors of the operator into bisai->factors.lu, from PETSc or from block ILU(0) of our own; with keep, on the
   patterns of the last time. If the operator cannot be factored, factors.stats or the outcome tells why.
*/
PetscErrorCode BISAIGetTriangularFactors(PC, const BSRMat *, PetscBool keep, PCLocalOutcome *);

/* Gives back to PETSc what it has lent for the factors. */
PetscErrorCode BISAIReturnTriangularFactors(PC_BISAI *);

/*
   Whose factors the options choose for a matrix in this memory. With `auto` an option that PETSc's or our own factorization alone
   has decides, if one is set, and the memory otherwise. It is an error if the options ask for what the factorization that they
   choose does not have.
*/
PetscErrorCode BISAIChooseFactor(PC, PetscMemType where, bool *by_petsc);

/* What PETSc's factorization alone has, and what our own alone has, of what the options ask for: keys and values, or nothing. */
std::string BISAIAskedOfPETSc(const PC_BISAI *);
std::string BISAIAskedOfUs(const PC_BISAI *);

/* Makes the work vectors for so many columns. */
PetscErrorCode BISAINeedVectors(PC_BISAI *, LocalInt columns);

/* The work vectors for so many columns, and the transposes if an application needs them: the `reserve` of PC_Local. */
PetscErrorCode BISAIReserve(PC, PetscBool transpose, LocalInt columns);

/* Y = M^{-1} X, or Y = M^{-T} X with transpose: the `apply` of PC_Local, for at most kBSRColumns columns. */
PetscErrorCode PCApply_BISAI(PC, PetscBool transpose, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y,
                             LocalInt ldy, PetscLogDouble *flops);

PetscErrorCode PCView_BISAI(PC, PetscViewer);
