/* sFSAI on the device: what cuda/pc/sfsai/sfsai_pattern.cu does for cuda/pc/sfsai/sfsai_values.cu. */
#pragma once

#include <memory>

#include "pc/sfsai/sfsai.h"
#include "buffer.cuh"

/* The pattern of the strictly lower triangle of G. Its rows are counted first, then written once G has its memory. */
class SFSAIPattern {
public:
  virtual ~SFSAIPattern() = default;

  /* The lengths of all rows, which are kept on the device, nnz and longest. */
  virtual PetscErrorCode CountRows() = 0;

  /* The first of the rows that are the longest. */
  virtual PetscErrorCode FindLongest(LocalInt *row) = 0;

  /* How many rows have more entries than `most`, diagonal included. */
  virtual PetscErrorCode CountLonger(LocalInt most, LocalInt *rows) = 0;

  /* The bytes of the columns that the search has kept. */
  virtual size_t PoolBytes() const = 0;

  /* The scaling has moved. */
  virtual void UseScaling(const PetscReal *s) = 0;

  /* G_i [rows + 1] from the lengths of the rows. */
  virtual PetscErrorCode Scan(LocalInt *G_i) = 0;

  /* Rows first .. end - 1 of G; entry base = G_i[first] of G goes to G_j[0]. */
  virtual PetscErrorCode Fill(LocalInt first, LocalInt end, const LocalInt *G_i, LocalInt base, LocalInt *G_j) = 0;

  LocalInt nnz = 0, longest = 0; /* strictly lower entries, of all rows and of the longest */
};

/* The arguments are those of SFSAIPattern_CUDA(); whatever they refer to outlives the pattern. */
std::unique_ptr<SFSAIPattern> SFSAIPatternOf(const SFSAIRows &, const PetscReal *s, const SFSAIParams &, FSAIStats &, WorkMeter *);
