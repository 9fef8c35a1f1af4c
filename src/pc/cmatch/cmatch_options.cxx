/* The options of PCCMATCH, and its manual page. */
#include "cmatch_face.h"
#include "options.h"

const char *const PCCMATCHCoarsenings[] = {"matching", "mis2", "PCCMATCHCoarsening", "PC_CMATCH_", nullptr};
const char *const PCCMATCHSmoothers[]   = {"l1jacobi", "chebyshev",        "chebyshev4", "sfsai",
                                           "afsai",    "PCCMATCHSmoother", "PC_CMATCH_", nullptr};
const char *const PCCMATCHCoarses[]     = {"dense", "pcg", "PCCMATCHCoarse", "PC_CMATCH_", nullptr};
const char *const PCCMATCHReaches[]     = {"global", "local", "PCCMATCHReach", "PC_CMATCH_", nullptr};

const char *const PCCMATCHCommunications[] = {"auto", "mpi", "nccl", "PCCMATCHCommunication", "PC_CMATCH_COMMUNICATION_", nullptr};

template <auto Member>
using Param = Field<&PC_CMATCH::params, Member>;

static const Option<PC> kOptions[] = {
  /* coarsening

     Matching combines two rows at a time, in as many sweeps as `PCCMATCHSetSweeps()` says; its aggregates are all of about the same
     size. With `PC_CMATCH_MIS2` an aggregate consists of a row of an independent set of distance 2 and its strong neighbours, and
     the aggregates are made in one step. The strength, the prolongator, the coarse operators and the cycle are the same for both.
     It is the same for the nodes of `PCCMATCHSetBlockSize()`, whose aggregates have some thirty nodes then.

     See also: `PCCMATCHSetSweeps()` */
  {"-pc_cmatch_coarsening", "how rows are put together to aggregates", "PCCMATCHSetCoarsening",
   Param<&CMATCHParams::coarsening>(OneOf(PCCMATCHCoarsenings))},

  /* sweeps: aggregates have about 2^sweeps rows, and more where single rows join

     More sweeps make fewer levels and smaller coarse operators, and cost iterations. The sweeps end early if they find no pair, or
     if they leave no more rows than `PCCMATCHSetCoarseSize()` says. They are not used with `PC_CMATCH_MIS2`.

     See also: `PCCMATCHSetCoarsening()` */
  {"-pc_cmatch_sweeps", "how many sweeps of pairwise matching make the aggregates of a level", "PCCMATCHSetSweeps",
   Param<&CMATCHParams::sweeps>(Between(1, 5))},

  /* strength: with 0 every edge of positive weight counts; levels with less than 8000
     rows take at most 0.005, so that the coarsening does not stall there

     The weight of the edge between i and j is c_ij = -2 a_ij w_i w_j / (a_ii w_i^2 + a_jj w_j^2), so positive entries of a matrix
     do not make edges where w has one sign. An edge counts for the aggregates if it is strong enough at both ends, which keeps rows
     of strongly coupled regions from being aggregated across weak couplings.

     See also: `PCCMATCHSetSweeps()` */
  {"-pc_cmatch_strength", "the share of the heaviest edges of its rows that an edge must have to count", "PCCMATCHSetStrength",
   Param<&CMATCHParams::strength>(AtLeastAndBelow(0, 1))},

  /* prolongator_row: the row keeps its sum

     The largest entries of a row are kept, and are scaled so that the row sum does not change; the view counts the rows that were
     cut. Longer rows give denser coarse operators, and save few iterations. */
  {"-pc_cmatch_prolongator_row", "how many entries a row of the smoothed prolongators has at most", "PCCMATCHSetProlongatorRow",
   Param<&CMATCHParams::prolongator_row>(Between(1, kCMATCHLargestRow))},

  /* smoother

     All smoothers are polynomials of M^{-1} A, whose degree `PCCMATCHSetDegree()` sets. M is the diagonal matrix of the l1 norms of
     the rows, so that the eigenvalues of M^{-1} A are at most 1 and nothing needs to be estimated. With `PC_CMATCH_SFSAI` and
     `PC_CMATCH_AFSAI`, the inverse of M is a factored sparse approximate inverse, which saves iterations and costs more in the
     set-up. On several ranks these inverses are those of each rank's own block of a level, scaled by the largest eigenvalue of the
     whole level. `PC_CMATCH_CHEBYSHEV` of degree 1 is l1-Jacobi with the relaxation 1.5.

     See also: `PCCMATCHSetDegree()` */
  {"-pc_cmatch_smoother", "the smoother of each level", "PCCMATCHSetSmoother",
   Param<&CMATCHParams::smoother>(OneOf(PCCMATCHSmoothers))},

  /* degree

     The same polynomial is applied before and after the coarse correction. With `PC_CMATCH_L1JACOBI` the degree is the number of
     sweeps. A higher degree takes fewer iterations, each of which costs more.

     See also: `PCCMATCHSetSmoother()` */
  {"-pc_cmatch_degree", "the degree of the smoother's polynomial, before and after the coarse correction", "PCCMATCHSetDegree",
   Param<&CMATCHParams::degree>(Between(1, kMostDegree))},

  /* relaxation

     1 is the usual l1-Jacobi, and 1.5 is the quasi-optimal Chebyshev polynomial of degree 1. Other smoothers do not use this
     number.

     See also: `PCCMATCHSetSmoother()` */
  {"-pc_cmatch_relaxation", "the relaxation of the smoother l1-Jacobi", "PCCMATCHSetRelaxation",
   Param<&CMATCHParams::relaxation>(AboveAndBelow(0, 2))},

  /* coarse

     The inverse is a dense matrix of up to 2048 rows. If the last level has more rows, a polynomial is used instead of the inverse,
     and the view says so. With `PC_CMATCH_PCG` the preconditioner is not a fixed matrix: use `-ksp_type fcg`.

     See also: `PCCMATCHSetCoarseSize()` */
  {"-pc_cmatch_coarse", "how the coarsest level is solved", "PCCMATCHSetCoarse",
   Param<&CMATCHParams::coarse>(OneOf(PCCMATCHCoarses))},

  /* coarse_size: a level of up to four times as many rows is also the last one if the coarsening has become slow

     A matrix with no more than this number of rows is inverted, and not coarsened at all. A level of up to four times as many rows
     is also inverted if the coarsening has become slow, that is, if the level has more than a fraction 2 / 2^sweeps of the rows of
     the next finer level. The coarsening also ends if all rows are dominated by their diagonal entries, or if it stalls, that is,
     if the next level would have 0.9 or more of the rows. The view says why the coarsening ended.

     See also: `PCCMATCHSetSweeps()` */
  {"-pc_cmatch_coarse_size", "at how many rows the coarsening ends", "PCCMATCHSetCoarseSize",
   Param<&CMATCHParams::coarse_size>(Between(1, kCMATCHLargestDense))},

  /* precision

     In single precision a cycle moves about half as many bytes. Operators are stored in difference form with their row sums, which
     single precision does not harm, and Galerkin products are summed in double precision, so the number of iterations hardly
     differs. The entries of the matrix are scaled by a power of 2, so that only their range matters, not their size. If single
     precision cannot hold an entry after this scaling, the set-up fails, and the view names its row. */
  {"-pc_cmatch_precision", "the precision in which the hierarchy is stored and the cycle computed", "PCCMATCHSetPrecision",
   Param<&CMATCHParams::precision>(OneOf(FinePCPrecisions))},

  /* block_size: 0 for the block size of the matrix, 1 for rows

     With two to six unknowns at each point the hierarchy is one of nodes: it has blocks instead of entries and, instead of the near
     null vector, modes such as the rigid body modes of elasticity. The modes are the vectors of `MatSetNearNullSpace()`, if there
     are two or more; else the rigid body modes of the coordinates of `PCSetCoordinates()`; else the vectors of `MatSetNullSpace()`;
     else the constants for each unknown. The block size must divide the number of rows of a rank that has a hierarchy of its own.
     If it does not divide those of the ranks of a common hierarchy, this is a hierarchy of rows.

     See also: `MatSetBlockSize()`, `MatNullSpaceCreateRigidBody()`, `PCSetCoordinates()` */
  {"-pc_cmatch_block_size", "how many unknowns a node has", "PCCMATCHSetBlockSize",
   Field<&PC_CMATCH::block_size>(Between(0, kCMATCHMostUnknowns))},

  /* reach

     With `PC_CMATCH_GLOBAL` the number of iterations hardly depends on the number of ranks. With `PC_CMATCH_LOCAL`, which needs no
     messages, it grows with the number of ranks. */
  {"-pc_cmatch_reach", "how far a hierarchy reaches on several ranks", "PCCMATCHSetReach",
   Param<&CMATCHParams::reach>(OneOf(PCCMATCHReaches))},

  /* gather_rows

     The time for a small level is that of its messages. Once a level is on one rank, so are all coarser levels. The finest level
     stays where it is. Levels of `PCCMATCHSetCoarseSize()` rows or fewer are always on one rank.

     The number refers to rows with 80 nonzeros, as on coarse levels of three-dimensional problems. A level with shorter rows, as in
     two dimensions, goes to one rank at a larger number of rows, since the nonzeros determine the time. The nonzeros are estimated
     from those of the unsmoothed operator, before the products are computed. With the coarsening `mis2` the rows are counted,
     whatever their number of nonzeros. */
  {"-pc_cmatch_gather_rows", "at how many rows of 80 nonzeros in all a level goes to one rank", "PCCMATCHSetGatherRows",
   Param<&CMATCHParams::gather_rows>(Between(0, kCMATCHMostGathered))},

  /* gather_ranks

     Rows are counted as by `PCCMATCHSetGatherRows()`. The first of each eight successive ranks then gets the rows of all eight. The
     same happens if a level has more rows than a third of the sweeps could leave (with three sweeps, half of the rows of the next
     finer level), since borders between ranks keep rows from being aggregated. */
  {"-pc_cmatch_gather_ranks", "at how many rows of 80 nonzeros a rank a level goes to fewer ranks", "PCCMATCHSetGatherRanks",
   Param<&CMATCHParams::gather_ranks>(Between(0, kCMATCHMostGathered))},

  /* communication

     On several ranks, an application of a hierarchy of all ranks has four exchanges on each level, and more with other smoothers.
     With NCCL, NVIDIA's library for communication between GPUs, the exchanges are part of the CUDA graph of the cycle, and the host
     is not involved; `KSPCGFUSED` then includes the cycle in the graph of its iterations. In the set-up, too, rows and lists go
     from GPU to GPU by NCCL, while MPI carries counts. With MPI alone the host takes part in every exchange. Both give the same
     values to the last bit. On one machine whose GPUs NVLink connects, the kernels of a cycle write to the other GPUs
     directly.

     NCCL needs a finepc that was built with NCCL's header, the library libnccl.so.2, which is opened when it is first needed, and a
     separate GPU for each rank. If one of these is missing, `PC_CMATCH_COMMUNICATION_AUTO` uses MPI; if NCCL was requested, the
     set-up ends with an error. Hierarchies on the host communicate by MPI. The view says what is used, and why.

     See also: `KSPCGFusedSetCommunication()` */
  {"-pc_cmatch_communication", "how the GPUs of several ranks exchange values", "PCCMATCHSetCommunication",
   Field<&PC_CMATCH::communication>(OneOf(PCCMATCHCommunications))},

  /* reuse_pattern: `PETSC_TRUE` to compute new values on the old aggregates and patterns as long as they fit, `PETSC_FALSE` to
     coarsen again in each set-up

     Aggregates and patterns are kept if the nonzero pattern of the matrix is the same as at the last set-up and the near null space
     is of the same kind. On a GPU nothing is allocated then, unless the smoother is afsai or the work needs more memory than is
     reserved. For this, memory of the set-up is kept; the view gives its size in bytes. The aggregates are those of the first
     values, and remain good as long as strong couplings stay strong. A set-up that keeps them therefore counts on each level, with
     the strength of `PCCMATCHSetStrength()`: the rows that are coupled strongly, but to no row of their own aggregate; the pieces
     into which aggregates fall apart if only strong couplings hold them together; and the rows of the prolongator that lose
     entries, since their pattern does not contain them. If a count exceeds that at the time when the aggregates were made by more
     than a tenth of the rows of a level, a tenth of its aggregates, or 0.3 of its rows of the prolongator, respectively, and by
     more than 16, the set-up coarsens again; on several ranks, those of one hierarchy decide together. In a hierarchy of nodes only
     the finest level is counted, without the prolongator. The view shows these counts. A set-up with `PETSC_FALSE` keeps no memory,
     so after a change to `PETSC_TRUE` the next set-up coarsens once more. */
  {"-pc_cmatch_reuse_pattern", "whether aggregates and patterns are kept when only values have changed", "PCCMATCHSetReusePattern",
   Field<&PC_CMATCH::reuse_pattern>(), Invalidates::NOTHING},
};
const OptionTable<PC> PC_CMATCH::options{"CMATCH options", kOptions};

/*MC
  PCCMATCH - "cmatch": algebraic multigrid on aggregates of compatible weighted matching, for symmetric positive definite matrices

  Options Database Keys:
+ -pc_cmatch_coarsening <matching> - how rows are put together to aggregates. `matching`: by sweeps of compatible weighted matching,
  which put two rows together at a time; `mis2`: around the vertices of an independent set of distance 2, in one step
. -pc_cmatch_sweeps <3> - how many sweeps of pairwise matching make the aggregates of a level; between 1 and 5; aggregates have
  about 2^sweeps rows, and more where single rows join
. -pc_cmatch_strength <0.1> - the share of the heaviest edges of its rows that an edge must have to count; at least 0 and below 1;
  with 0 every edge of positive weight counts; levels with less than 8000 rows take at most 0.005, so that the coarsening does not
  stall there
. -pc_cmatch_prolongator_row <4> - how many entries a row of the smoothed prolongators has at most; between 1 and 64; the row keeps
  its sum
. -pc_cmatch_smoother <l1jacobi> - the smoother of each level. `l1jacobi`: Jacobi with the l1 norm of each row in place of the
  diagonal entry; `chebyshev`: the quasi-optimal Chebyshev polynomial of the first kind of the same matrix; `chebyshev4`: the
  optimal Chebyshev polynomial of the fourth kind of the same matrix; `sfsai`: the polynomial of the first kind of a factored sparse
  approximate inverse with the pattern of the matrix's lower triangle; `afsai`: the same of an adaptive factored sparse approximate
  inverse
. -pc_cmatch_degree <1> - the degree of the smoother's polynomial, before and after the coarse correction; between 1 and 16
. -pc_cmatch_relaxation <1.5> - the relaxation of the smoother l1-Jacobi; above 0 and below 2
. -pc_cmatch_coarse <dense> - how the coarsest level is solved. `dense`: by the inverse, which is a dense matrix; `pcg`: by 40
  iterations of the conjugate gradient method with l1-Jacobi; the preconditioner is no fixed matrix then
. -pc_cmatch_coarse_size <300> - at how many rows the coarsening ends; between 1 and 2048; a level of up to four times as many rows
  is also the last one if the coarsening has become slow
. -pc_cmatch_precision <single> - the precision in which the hierarchy is stored and the cycle computed: `single` or `double`
. -pc_cmatch_block_size <0> - how many unknowns a node has; between 0 and 6; 0 for the block size of the matrix, 1 for rows
. -pc_cmatch_reach <global> - how far a hierarchy reaches on several ranks. `global`: one hierarchy of the whole matrix; `local`: on
  each rank a hierarchy of its diagonal block
. -pc_cmatch_gather_rows <100000> - at how many rows of 80 nonzeros in all a level goes to one rank; between 0 and 1000000000
. -pc_cmatch_gather_ranks <10000> - at how many rows of 80 nonzeros a rank a level goes to fewer ranks; between 0 and 1000000000
. -pc_cmatch_communication <auto> - how the GPUs of several ranks exchange values. `auto`: NCCL where it can run, else MPI; `mpi`: a
  `PetscSF` for each exchange; the host takes part in every one of them; `nccl`: NCCL, in a CUDA graph of the whole cycle
. -pc_cmatch_reuse_pattern <true> - whether aggregates and patterns are kept when only values have changed: `true` to compute new
  values on the old aggregates and patterns as long as they fit, `false` to coarsen again in each set-up
- -pc_cmatch_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `PCFinePCSetBackend()`

  Level: intermediate

  Notes:
  Rows are grouped into aggregates by pairwise matching with the compatible weights of D'Ambra and Vassilevski, which are 1 - 2 a_ij
  w_i w_j / (a_ii w_i^2 + a_jj w_j^2). The sweeps pair rows, then pairs of rows, and so on, so three sweeps make aggregates of about
  eight rows, and more where single rows join. An edge counts if it is strong enough at both ends; a row that finds no partner joins
  a pair. The matching is the same in every run, and on the host and on a GPU. The piecewise constant prolongator is smoothed by one
  step of filtered Jacobi, and its rows are cut to a few entries, so the coarse operators stay sparse. The cycle has the same
  smoother before and after the coarse correction, and is symmetric and positive definite.

  Use it for scalar elliptic problems: diffusion in two and three dimensions, with jumps of the coefficients, on any mesh. The
  number of iterations hardly grows with the number of rows. On one H200 it is faster than `PCJACOBI`, `PCAFSAI` and `PCSFSAI` with
  one right-hand side for Poisson problems of 10^6 unknowns, jumps of 1e4 and SPE10, and at 64^3 unknowns with four or more
  right-hand sides; on two-dimensional Poisson problems `PCRRB` takes a quarter of its time. With finite elements that are stretched
  by 1000 to 1 it takes four times as many iterations as with the 5-point stencil. For shells `PCAFSAI` and `PCSFSAI` are better;
  they also serve as smoothers of other multigrid methods. For 5- and 9-point stencils on two-dimensional grids compare `PCRRB`.

  A matrix with two to six unknowns at each point, such as one of elasticity, has a hierarchy of nodes, see
  `PCCMATCHSetBlockSize()`: all unknowns of a point are in one aggregate, and blocks are used instead of entries. It needs modes,
  which A almost maps to 0: the vectors of `MatSetNearNullSpace()`, such as those of `MatNullSpaceCreateRigidBody()`, or the rigid
  body modes of the points given to `PCSetCoordinates()`; otherwise the constants are used for each unknown. Nodes are matched by
  the energy of the stretch between them, with one more sweep on the finest level if there are more than three modes. The
  prolongator is made of the modes on each aggregate, smoothed by block Jacobi, and cut to four blocks per node, with a correction
  so that the cut does not change how it maps the modes. The smoother is block Jacobi with the Chebyshev polynomial of
  `PCCMATCHSetDegree()`, at least 2 with the default smoother, scaled by an estimate of the largest eigenvalue. With `sfsai` or
  `afsai` it is the same polynomial in a factored sparse approximate inverse of all unknowns of the level, with full blocks for
  `sfsai`. Where elements are flat or long this takes fewer iterations, with `afsai` a third or less, and the set-up takes many
  times as long. With `pcg`, and on several ranks that have parts of nodes, the hierarchy is one of single rows, and the view says
  why.

  Nodes may have different numbers of unknowns, up to six, as in a matrix without constrained displacements: `MatSetBlockSize()`
  stays 1, and `MatSetVariableBlockSizes()` gives the numbers, of which some may be 0. That needs at least two modes, which are the
  vectors of `MatSetNearNullSpace()` with the rows of A. The hierarchy stores each node with as many unknowns as the largest one.
  On several ranks it is one of single rows, unless `PCCMATCHSetReach()` gives each rank its own.

  In a hierarchy of single rows, w is a near-null-space vector of A: the first vector of `MatSetNearNullSpace()`, or of
  `MatSetNullSpace()`, or the constants if nothing is attached to the matrix or the null space has the constants. An entry of w that
  is 0 is treated as an entry of the mean size of the others; a vector that is 0 in more than a third of the rows is not used, and
  the view says so. Attach w before the first set-up. If the matrix has a null space, w is taken from it, and the coarsest level is
  solved in its complement; pure Neumann problems need only `MatSetNullSpace()`. Components of the matrix that are singular by
  themselves are found without any null space: the coarsest level is solved in the complement of the constants on each of them, and
  a component that has become a single row gets no correction.

  The hierarchy and the cycle are in single precision by default, whereas the vectors of the solver stay in double precision.
  Operators are stored in difference form, (A x)_i = s_i x_i + sum_j a_ij (x_j - x_i) with the row sums s_i, which are carried from
  level to level through the Galerkin product. Without this form rounding would destroy row sums close to zero. In single precision
  the preconditioner is symmetric only to single precision. `KSPCG` works with it: `-ksp_type fcg`, which is made for
  preconditioners that are not symmetric to the last digit, took the same number of iterations on five systems of a million or more
  unknowns.

  With `-pc_cmatch_coarse pcg` the preconditioner is not a fixed matrix: use `-ksp_type fcg` or `-ksp_type fgmres`.

  The coarsening ends at `-pc_cmatch_coarse_size` rows, at four times as many if it has become slow, at 20 levels, when all rows are
  dominated by their diagonal entries, or when it stalls. The view gives the reason, and the solver on the last level: its dense
  inverse up to 2048 rows, and a polynomial instead of the inverse if the level is larger.

  When only the values of the matrix change, aggregates and patterns are kept, and a set-up computes only values. On a GPU it then
  allocates nothing, except with the smoother afsai or if the work does not fit into the memory that a set-up reserves. If strong
  couplings have become weak, or weak ones strong, so that more than a tenth of the aggregates no longer fit, the set-up coarsens
  again; see `PCCMATCHSetReusePattern()`.

  The matrix is a `MATAIJ`. With a `MATAIJCUSPARSE` that is not bound to the CPU everything runs on the GPU. The scalar entries of a
  `MATBAIJ`, a `MATSBAIJ` or a `MATBAIJCUDA` are copied once, and new values are copied into the same memory, for a `MATBAIJCUDA` on
  the GPU. Other subtypes of `MATAIJ` are read on the host, see `PCAFSAI`. Boundary rows that keep only their diagonal entry, as
  after `MatZeroRows()`, need no special treatment, whether their columns are 0 or not. The view counts one-sided couplings, which
  only one of the two rows contains, and the pairs of entries that are not equal.

  On several ranks there is one hierarchy of the whole matrix, on the host or on GPUs, and the number of iterations hardly depends
  on the number of ranks. Each aggregate consists of rows of a single rank, without messages, but rows of the prolongator reach rows
  of other ranks. Small levels go to fewer ranks, and then to one rank, which solves what is left. The result is the same in every
  run with the same partition. A partition whose rows are coupled more strongly to rows of other ranks than to each other leaves
  nothing to aggregate; the view says so, and the remedy is to repartition. The smoothers `sfsai` and `afsai` have factors of each
  rank's own block of a level, scaled by the largest eigenvalue of the whole level. With `-pc_cmatch_reach local` each rank has a
  hierarchy of its own diagonal block, as `PCBJACOBI` would, and iterations grow with the number of ranks; the view says so. On GPUs
  ranks exchange rows in the set-up and values of an application by NCCL, so that an application is one CUDA graph, or else by MPI,
  through the host if MPI is not GPU-aware.

  A matrix whose diagonal entries are all negative has the hierarchy of -A, and the cycle is applied with the opposite sign. Rows of
  zeros are isolated rows with an inverse of 0, whether their diagonal entry is stored or not. The view shows both.

  Any other diagonal entry that is missing or not positive, on the finest level or in a Galerkin product, an entry that is not
  finite, or one that single precision cannot hold, makes the set-up fail with a `PCFailedReason` on all ranks. The view names the
  level and the row.

  References:
  P. D'Ambra, P. S. Vassilevski, Adaptive AMG with coarsening based on compatible weighted matching, Comput. Visual. Sci. 16 (2013)
  59-76; P. D'Ambra, F. Durastante, S. Filippone, AMG preconditioners for linear solvers towards extreme scale, SIAM J. Sci.
  Comput. 43 (2021) S679-S703; P. D'Ambra, F. Durastante, S. Filippone, S. Massei, S. Thomas, Optimal polynomial smoothers for
  parallel AMG (2024)

.seealso: `PCGAMG`, `PCHYPRE`, `PCAFSAI`, `PCSFSAI`, `PCRRB`, `KSPCGFUSED`, `KSPFCG`, `MatSetNearNullSpace()`, `MatSetNullSpace()`,
          `MatSetVariableBlockSizes()`, `MatNullSpaceCreateRigidBody()`, `PCSetCoordinates()`, `PCCMATCHGetHierarchy()`,
          `PCCMATCHSetCoarsening()`, `PCCMATCHSetSweeps()`, `PCCMATCHSetStrength()`, `PCCMATCHSetProlongatorRow()`,
          `PCCMATCHSetSmoother()`, `PCCMATCHSetDegree()`, `PCCMATCHSetRelaxation()`, `PCCMATCHSetCoarse()`,
          `PCCMATCHSetCoarseSize()`, `PCCMATCHSetPrecision()`, `PCCMATCHSetBlockSize()`, `PCCMATCHSetReach()`,
          `PCCMATCHSetGatherRows()`, `PCCMATCHSetGatherRanks()`, `PCCMATCHSetCommunication()`, `PCCMATCHSetReusePattern()`
M*/
