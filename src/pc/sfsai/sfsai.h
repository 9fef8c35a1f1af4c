/*
   sFSAI, the factored sparse approximate inverse of an SPD matrix on a static pattern: M^{-1} = G^T G.

   Bernaschi, Bisson, Fantozzi, Janna, A factored sparse approximate inverse preconditioned conjugate gradient solver on
   graphics processing units, SIAM J. Sci. Comput. 38 (2016) C53-C72 (paper 004).
*/
#pragma once

#include "pc/fsai.h"

struct SFSAIParams {
  PetscInt        power            = 2;   /* k of (3.9), symbolic products, >= 0; 0: the diagonal */
  PetscReal       prefilter        = 0.0; /* tau of (3.8), in [0, 1]; 0 keeps every stored entry */
  PetscReal       postfilter       = 0.0; /* delta of (3.11), in [0, 1] */
  PetscInt        max_row          = 0;   /* most entries of a row of G, diagonal included, >= 0; 0: no cap */
  FinePCPrecision setup_precision  = FINEPC_SINGLE;
  FinePCPrecision factor_precision = FINEPC_SINGLE;
  /* bytes for each CUDA work space whose size is a choice; one row always fits */
  size_t work_limit = (size_t)256 << 20;
};

constexpr PetscInt kSFSAILargestRow = 1280; /* entries of a row whose system is solved at all, diagonal included */

constexpr const char kSFSAIRemedy[]        = "lower -pc_sfsai_power, raise -pc_sfsai_prefilter, or set -pc_sfsai_max_row";
constexpr const char kSFSAIRemedyPattern[] = "give PCSFSAISetPattern() a pattern of shorter rows";

/* Memory of the last set-up: new values on the same pattern find all that they need in it. */
struct SFSAIWork {
  void        *data;
  size_t       bytes;
  PetscMemType where;
};

/*
   The pattern of the strictly lower triangle of B_k, (3.9), rows sorted, into a new G whose values are not set; s is of
   FSAIScaling() and read where there is a prefilter or a cap; capped_rows of stats is set. The rows of Low(S) where S is
   given: only its i and j are read, and of the parameters only the precision of G.
*/
PetscErrorCode SFSAIPattern_Host(const CSRView *A, const CSRView *S, const PetscReal *s, const SFSAIParams *, CSR *G, FSAIStats *);
PetscErrorCode SFSAIPattern_CUDA(const CSRView *A, const CSRView *S, const PetscReal *s, const SFSAIParams *, CSR *G, FSAIStats *);

/*
   G~ [n] and d [n], all where A is; S as above. With keep, G holds a pattern that is kept: only its values and d are
   computed, nothing is filtered, and nothing is allocated.
*/
PetscErrorCode SFSAIComputeFactor_Host(const CSRView *A, const CSRView *S, const SFSAIParams *, PetscBool keep, CSR *G,
                                       PetscReal *d, SFSAIWork *, FSAIStats *);
PetscErrorCode SFSAIComputeFactor_CUDA(const CSRView *A, const CSRView *S, const SFSAIParams *, PetscBool keep, CSR *G,
                                       PetscReal *d, SFSAIWork *, FSAIStats *);
