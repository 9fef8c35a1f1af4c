/*
   sFSAI, the factored sparse approximate inverse of a symmetric positive definite matrix on a static pattern: M^{-1} = G^T G.

   Bernaschi, Bisson, Fantozzi, Janna, A factored sparse approximate inverse preconditioned conjugate gradient solver on
   graphics processing units, SIAM J. Sci. Comput. 38 (2016) C53-C72.
*/
#pragma once

#include "pc/fsai.h"

/* The largest cap that an option may ask for. */
constexpr PetscInt kSFSAILargestCap = 100000;

/*
   The power and the cap that are taken where neither was asked for. A row of m entries costs m^3 operations. The power is 2 unless
   its rows cost more than rows of kSFSAIUsualRow entries would, on the average; then it is 1. Trilinear elements of elasticity have
   rows of up to 189 entries with power 2, and quadratic ones of 290 and more. A row of more than kSFSAIAutomaticCap entries is cut,
   which only rows are that are coupled to very many others, such as integral conditions.
*/
constexpr PetscInt  kSFSAIAutomaticPower = 2;
constexpr LocalInt  kSFSAIAutomaticCap   = 768;
constexpr PetscReal kSFSAIUsualRow       = 200;

/*
   Rows of which each has the pattern of the one before and that row itself, such as those of a node, share the Cholesky factor of
   the last one's system: at most so many, which is a multiple of most numbers of unknowns that a node may have.
*/
constexpr LocalInt kSFSAIMostShared = 12;

struct SFSAIParams {
  PetscInt        power            = 2;   /* k of (3.9), the symbolic products, 0 .. kFSAILargestPower; 0 leaves the diagonal */
  PetscReal       prefilter        = 0.0; /* tau of (3.8), in [0, 1]; 0 keeps every stored entry */
  PetscReal       postfilter       = 0.0; /* delta of (3.11), in [0, 1] */
  PetscInt        max_row          = 0;   /* most entries of a row of G with its diagonal, 0 .. kSFSAILargestCap; 0: no cap */
  PetscBool       automatic_power  = PETSC_FALSE; /* the power is 1 where `power` makes long rows, see kSFSAIUsualRow */
  PetscBool       automatic_cap    = PETSC_FALSE; /* without max_row, rows are cut to kSFSAIAutomaticCap entries */
  FinePCPrecision setup_precision  = FINEPC_SINGLE;
  FinePCPrecision factor_precision = FINEPC_SINGLE;

  /*
     Bytes for the work spaces whose size is a choice. With a postfilter these are the rows of G that are in memory before G has its
     own, together with the columns that the search has kept on the device. On the device there are besides, each of at most so many
     bytes: the columns that the search has kept if there is no postfilter, the tables of searches in global memory, and the systems
     in global memory. Each holds one row at least, and G kSFSAIMostShared.
  */
  size_t work_limit = (size_t)256 << 20;

  PetscLogEvent pattern_event = -1, values_event = -1; /* of the search for the pattern, and of what follows; -1 for none */
};

/* The most entries of a row, diagonal included, or 0. */
inline LocalInt SFSAICap(const SFSAIParams &params)
{
  return params.max_row || !params.automatic_cap ? (LocalInt)params.max_row : kSFSAIAutomaticCap;
}

/* The cost of a row that would have m entries without a cap. */
inline PetscReal SFSAICost(LocalInt m, LocalInt cap)
{
  const PetscReal entries = cap ? PetscMin(m, cap) : m;
  return entries * entries * entries;
}

/* Whether so many rows, or some of them, cost too much for the power that is tried. */
inline bool SFSAIIsLong(const SFSAIParams &params, LocalInt rows, PetscReal cost)
{
  return params.automatic_power && params.power > 1 && cost > kSFSAIUsualRow * kSFSAIUsualRow * kSFSAIUsualRow * rows;
}

/* A log event for the life of a C++ scope. */
class SFSAIPhase {
public:
  explicit SFSAIPhase(PetscLogEvent event) : event_(event)
  {
    if (event_ >= 0) PetscCallAbort(PETSC_COMM_SELF, PetscLogEventBegin(event_, 0, 0, 0, 0));
  }
  SFSAIPhase(const SFSAIPhase &)            = delete;
  SFSAIPhase &operator=(const SFSAIPhase &) = delete;
  ~SFSAIPhase()
  {
    if (event_ >= 0) PetscCallAbort(PETSC_COMM_SELF, PetscLogEventEnd(event_, 0, 0, 0, 0));
  }

private:
  const PetscLogEvent event_;
};

/*
   The bytes of the system of a row of m entries, diagonal included, in double precision. A row of more than kCholeskyLargest
   entries, see sparse/dense.h, is solved by LAPACK or cuSOLVER. It is always solved in double precision: its rounding errors are
   larger, and it needs this memory anyway to be tried again. Where m * m would overflow, the result is still more than any memory.
*/
inline size_t SFSAISystemBytes(LocalInt m)
{
  const size_t side = (size_t)PetscMin(m, (LocalInt)1 << 28);
  return side * side * sizeof(PetscReal);
}

/* What an error about a row whose system no memory holds tells the user to do, without and with a pattern of the user's. */
constexpr const char kSFSAIRemedy[]        = "lower -pc_sfsai_power, raise -pc_sfsai_prefilter, or set -pc_sfsai_max_row";
constexpr const char kSFSAIRemedyPattern[] = "give PCSFSAISetPattern() a pattern of shorter rows";

/* Memory that the last set-up has left. A set-up with new values on the same pattern finds all that it needs in this memory. */
struct SFSAIWork {
  void        *data;
  size_t       bytes;
  PetscMemType where;
};

/*
   Makes a work of so many bytes, in which the system of a row of m entries is the largest part. If memory does not hold them, an
   error names this row and what to do. `given` tells whether the pattern is the user's.
*/
PetscErrorCode SFSAICreateWork(size_t bytes, PetscMemType where, LocalInt row, LocalInt m, PetscBool given, SFSAIWork *work);

/*
   What a factor is made of: the rows first .. n - 1 of A. Those before `first` are only read; they belong to other ranks. S is the
   pattern, or null; it has n - first rows, and columns 0 .. n - 1, and only i and j of it are read.
*/
struct SFSAIRows {
  const CSRView *A;
  LocalInt       first;
  const CSRView *S;
};

/*
   Makes a new G with the pattern of the rows of the strictly lower triangle of B_k, (3.9), its rows sorted, and values that are not
   set. s is what FSAIScaling() computes, and is read if there is a prefilter or a cap. capped_rows of the stats is set. If S is
   given, G gets the rows of the strictly lower triangle of S instead, and of the parameters only the precision of G is read.
*/
PetscErrorCode SFSAIPattern_Host(const SFSAIRows &, const PetscReal *s, const SFSAIParams *, CSR *G, FSAIStats *);
PetscErrorCode SFSAIPattern_CUDA(const SFSAIRows &, const PetscReal *s, const SFSAIParams *, CSR *G, FSAIStats *);

/*
   Computes G~ and d [n - first], in the memory of A, on the pattern that SFSAIPattern() makes. With keep, G has its pattern
   already: only its values and d are computed, nothing is filtered, and nothing is allocated.
*/
PetscErrorCode SFSAIComputeFactor_Host(const SFSAIRows &, const SFSAIParams *, PetscBool keep, CSR *G, PetscReal *d, SFSAIWork *,
                                       FSAIStats *);
PetscErrorCode SFSAIComputeFactor_CUDA(const SFSAIRows &, const SFSAIParams *, PetscBool keep, CSR *G, PetscReal *d, SFSAIWork *,
                                       FSAIStats *);
