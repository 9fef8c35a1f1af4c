/*
   finepc is a plugin of fine-grained preconditioners for PETSc. CUDA kernels set them up and apply them, and every kernel has a
   host twin, which computes the same on the CPU.

   A program that does not include this header gets every type with -dll_append /path/libfinepc.so. A program that links the library
   calls FinePCInitializePackage() after PetscInitialize().
*/
#pragma once

#include <petscksp.h>

#define FINEPC_VERSION_MAJOR    0
#define FINEPC_VERSION_MINOR    2
#define FINEPC_VERSION_SUBMINOR 0

/* Preconditioners: values of PCType */
#define PCAFSAI  "afsai"
#define PCSFSAI  "sfsai"
#define PCBISAI  "bisai"
#define PCRRB    "rrb"
#define PCCMATCH "cmatch"
#define PCAUTO   "auto"

/* Solvers: values of KSPType */
#define KSPCGFUSED    "cgfused"
#define KSPRRBCG      "rrbcg"
#define KSPGMRESFUSED "gmresfused"

/* Matrices: values of MatType */
#define MATBAIJCUDA    "baijcuda"
#define MATSEQBAIJCUDA "seqbaijcuda"
#define MATMPIBAIJCUDA "mpibaijcuda"

/* Direct solvers: values of MatSolverType. A PETSc that has an interface of its own to cuDSS defines the same. */
#if !defined(MATSOLVERCUDSS)
  #define MATSOLVERCUDSS "cudss"
#endif

/*E
  FinePCPrecision - the floating-point precision of a set-up or of a stored factor

  Values:
+ `FINEPC_SINGLE` (single) - IEEE 754 binary32
- `FINEPC_DOUBLE` (double) - IEEE 754 binary64

  Level: intermediate

.seealso: `PCAFSAISetSetupPrecision()`, `PCAFSAISetFactorPrecision()`, `PCSFSAISetSetupPrecision()`, `PCSFSAISetFactorPrecision()`,
          `PCBISAISetFactorPrecision()`, `PCCMATCHSetPrecision()`
E*/
typedef enum { FINEPC_SINGLE, FINEPC_DOUBLE } FinePCPrecision;
PETSC_EXTERN const char *const FinePCPrecisions[];

/*E
  FinePCBackend - where the rows of matrices are used that the host has, such as `MATAIJ`, `MATBAIJ` and `MATSBAIJ`

  Values:
+ `FINEPC_BACKEND_AUTO` (auto)     - on the GPU if each rank has one of its own and some 20000 rows, and on the host otherwise
. `FINEPC_BACKEND_HOST` (host)     - on the host
- `FINEPC_BACKEND_DEVICE` (device) - on the GPU, which gets a copy of the rows; an error where there is none

  Level: intermediate

.seealso: `PCFinePCSetBackend()`, `KSPFinePCSetBackend()`
E*/
typedef enum { FINEPC_BACKEND_AUTO, FINEPC_BACKEND_HOST, FINEPC_BACKEND_DEVICE } FinePCBackend;
PETSC_EXTERN const char *const FinePCBackends[];

/*E
  PCFinePCReuse - whether a preconditioner keeps its factor where the matrix has new values on the same nonzeros

  Values:
+ `PC_FINEPC_REUSE_AUTO` (auto) - as long as that takes less time than a set-up for each
. `PC_FINEPC_REUSE_ALWAYS` (always) - as long as the nonzeros stay
- `PC_FINEPC_REUSE_NEVER` (never) - there is a set-up each time

  Level: intermediate

.seealso: `PCFinePCSetReuse()`
E*/
typedef enum { PC_FINEPC_REUSE_AUTO, PC_FINEPC_REUSE_ALWAYS, PC_FINEPC_REUSE_NEVER } PCFinePCReuse;
PETSC_EXTERN const char *const PCFinePCReuses[];

/*E
  PCAUTOBy - by what `PCAUTO` compares preconditioners

  Values:
+ `PC_AUTO_BY_COUNTS` (counts) - by iterations and the costs that its rules have for them, so that runs repeat
- `PC_AUTO_BY_TIME` (time) - by seconds

  Level: intermediate

.seealso: `PCAUTO`, `PCAUTOSetBy()`
E*/
typedef enum { PC_AUTO_BY_COUNTS, PC_AUTO_BY_TIME } PCAUTOBy;
PETSC_EXTERN const char *const PCAUTOBys[];

/*E
  PCAFSAIStopRule - when `PCAFSAI` stops adding entries to a row

  Values:
+ `PC_AFSAI_STOP_GAIN` (gain) - a row stops when a step has lowered its psi by less than the tolerance,
                                (psi_{k-1} - psi_k) / psi_{k-1} < tolerance
- `PC_AFSAI_STOP_RATIO` (ratio) - a row stops when its psi has come down far enough, psi_k / psi_0 <= tolerance, (2.16) of Isotton,
                                  Janna, Bernaschi

  Level: intermediate

.seealso: `PCAFSAISetStopRule()`, `PCAFSAISetTolerance()`
E*/
typedef enum { PC_AFSAI_STOP_GAIN, PC_AFSAI_STOP_RATIO } PCAFSAIStopRule;
PETSC_EXTERN const char *const PCAFSAIStopRules[];

/*E
  PCAFSAISelection - by which measure `PCAFSAI` ranks the candidates j for a row i

  Values:
+ `PC_AFSAI_SELECTION_GRADIENT` (gradient) - |d psi_i / d g_ij|, (2.15) of Isotton, Janna, Bernaschi; this measure depends on the
                                             scaling of A
- `PC_AFSAI_SELECTION_DECREASE` (decrease) - |d psi_i / d g_ij| / sqrt(a_jj), the square root of the decrease of psi_i that j alone
                                             brings; this measure is the same for A and for every diagonal scaling of A

  Level: intermediate

.seealso: `PCAFSAISetSelection()`
E*/
typedef enum { PC_AFSAI_SELECTION_GRADIENT, PC_AFSAI_SELECTION_DECREASE } PCAFSAISelection;
PETSC_EXTERN const char *const PCAFSAISelections[];

/*E
  KSPCGFusedPath - how `KSPCGFUSED` runs its iterations

  Values:
+ `KSP_CGFUSED_AUTO` (auto) - `KSP_CGFUSED_RESIDENT` for small systems and `KSP_CGFUSED_GRAPH` for others, wherever these can run
. `KSP_CGFUSED_GENERAL` (general) - `MatMult()` and `PCApply()` of any matrix and any preconditioner, with fused vector operations;
                                    the host waits for the sums
. `KSP_CGFUSED_GRAPH` (graph) - three to five kernels an iteration, in a CUDA graph; scalars and the convergence test are on the
                                device
- `KSP_CGFUSED_RESIDENT` (resident) - one cooperative kernel that keeps the matrices, as far as they fit, and its part of the
                                      vectors in shared memory

  Level: intermediate

  Note:
  Several ranks have a path of their own. `KSP_CGFUSED_GRAPH` and `KSP_CGFUSED_RESIDENT` stand for that path there, as
  `KSP_CGFUSED_AUTO` does.

.seealso: `KSPCGFUSED`, `KSPCGFusedSetPath()`
E*/
typedef enum { KSP_CGFUSED_AUTO, KSP_CGFUSED_GENERAL, KSP_CGFUSED_GRAPH, KSP_CGFUSED_RESIDENT } KSPCGFusedPath;
PETSC_EXTERN const char *const KSPCGFusedPaths[];

/*E
  KSPCGFusedCommunication - how `KSPCGFUSED` on several ranks makes sums and exchanges vectors

  Values:
+ `KSP_CGFUSED_COMMUNICATION_AUTO` (auto) - NCCL where it can run, else MPI
. `KSP_CGFUSED_COMMUNICATION_MPI` (mpi) - `MPI_Allreduce()` and the products of the matrix; the host decides about iterations
- `KSP_CGFUSED_COMMUNICATION_NCCL` (nccl) - NCCL, in the CUDA graph of the iterations; the host learns of the end late

  Level: intermediate

.seealso: `KSPCGFUSED`, `KSPCGFusedSetCommunication()`
E*/
typedef enum {
  KSP_CGFUSED_COMMUNICATION_AUTO,
  KSP_CGFUSED_COMMUNICATION_MPI,
  KSP_CGFUSED_COMMUNICATION_NCCL
} KSPCGFusedCommunication;
PETSC_EXTERN const char *const KSPCGFusedCommunications[];

/*E
  KSPGMRESFusedPath - who decides about the iterations of `KSPGMRESFUSED`

  Values:
+ `KSP_GMRESFUSED_AUTO` (auto) - the GPU where it can, and where that is faster, else the host
. `KSP_GMRESFUSED_GENERAL` (general) - the host, with `MatMult()` and `PCApply()` of any matrix and any preconditioner
- `KSP_GMRESFUSED_DEVICE` (device) - the GPU, by some kernels an iteration: nothing waits for the host, which learns of the end late

  Level: intermediate

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedSetPath()`
E*/
typedef enum { KSP_GMRESFUSED_AUTO, KSP_GMRESFUSED_GENERAL, KSP_GMRESFUSED_DEVICE } KSPGMRESFusedPath;
PETSC_EXTERN const char *const KSPGMRESFusedPaths[];

/*E
  KSPGMRESFusedCommunication - how `KSPGMRESFUSED` on several ranks makes sums and exchanges vectors

  Values:
+ `KSP_GMRESFUSED_COMMUNICATION_AUTO` (auto) - NCCL where it can run, else MPI
. `KSP_GMRESFUSED_COMMUNICATION_MPI` (mpi) - `MPI_Allreduce()` and the products of the matrix; the host decides about iterations
- `KSP_GMRESFUSED_COMMUNICATION_NCCL` (nccl) - NCCL, and own products; the GPUs decide, and the host learns of the end late

  Level: intermediate

.seealso: `KSPGMRESFUSED`, `KSPGMRESFusedSetCommunication()`
E*/
typedef enum {
  KSP_GMRESFUSED_COMMUNICATION_AUTO,
  KSP_GMRESFUSED_COMMUNICATION_MPI,
  KSP_GMRESFUSED_COMMUNICATION_NCCL
} KSPGMRESFusedCommunication;
PETSC_EXTERN const char *const KSPGMRESFusedCommunications[];

/*E
  PCBISAISide - on which side of its factor `PCBISAI` makes an approximate inverse the inverse, on the pattern

  Values:
+ `PC_BISAI_SIDE_ROWS` (rows) - NL L = I and NU U = I, block row by block row
. `PC_BISAI_SIDE_COLUMNS` (columns) - L NL = I and U NU = I, block column by block column
. `PC_BISAI_SIDE_COLUMNS_ROWS` (columns_rows) - L by columns, U by rows
- `PC_BISAI_SIDE_ROWS_COLUMNS` (rows_columns) - L by rows, U by columns

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetSide()`
E*/
typedef enum { PC_BISAI_SIDE_ROWS, PC_BISAI_SIDE_COLUMNS, PC_BISAI_SIDE_COLUMNS_ROWS, PC_BISAI_SIDE_ROWS_COLUMNS } PCBISAISide;
PETSC_EXTERN const char *const PCBISAISides[];

/*E
  PCBISAIFactor - where `PCBISAI` gets its block triangular factors from

  Values:
+ `PC_BISAI_FACTOR_AUTO` (auto) - finepc's own where the matrix is on a GPU or sweeps are set, and PETSc's on the host and
                                  wherever levels of fill, a shift or an ordering are set
. `PC_BISAI_FACTOR_PETSC` (petsc) - `MatGetFactor()` with `MATSOLVERPETSC` and `MAT_FACTOR_ILU`, on the host, with any levels of
                                    fill
. `PC_BISAI_FACTOR_FINEPC` (finepc) - finepc's own block ILU(0), where the matrix is: on the GPU or on the host
- `PC_BISAI_FACTOR_CUDA` (cuda) - the same, by its old name

  Level: intermediate

.seealso: `PCBISAI`, `PCBISAISetFactor()`
E*/
typedef enum { PC_BISAI_FACTOR_AUTO, PC_BISAI_FACTOR_PETSC, PC_BISAI_FACTOR_FINEPC, PC_BISAI_FACTOR_CUDA } PCBISAIFactor;
PETSC_EXTERN const char *const PCBISAIFactors[];

/*E
  PCCMATCHCoarsening - how `PCCMATCH` puts rows together to aggregates

  Values:
+ `PC_CMATCH_MATCHING` (matching) - by sweeps of compatible weighted matching, which put two rows together at a time
- `PC_CMATCH_MIS2` (mis2) - around the vertices of an independent set of distance 2, in one step

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetCoarsening()`
E*/
typedef enum { PC_CMATCH_MATCHING, PC_CMATCH_MIS2 } PCCMATCHCoarsening;
PETSC_EXTERN const char *const PCCMATCHCoarsenings[];

/*E
  PCCMATCHSmoother - the smoother of each level of `PCCMATCH`

  Values:
+ `PC_CMATCH_L1JACOBI` (l1jacobi) - Jacobi with the l1 norm of each row in place of the diagonal entry
. `PC_CMATCH_CHEBYSHEV` (chebyshev) - the quasi-optimal Chebyshev polynomial of the first kind of the same matrix
. `PC_CMATCH_CHEBYSHEV4` (chebyshev4) - the optimal Chebyshev polynomial of the fourth kind of the same matrix
. `PC_CMATCH_SFSAI` (sfsai) - the polynomial of the first kind of a factored sparse approximate inverse with the pattern of the
                              matrix's lower triangle
- `PC_CMATCH_AFSAI` (afsai) - the same of an adaptive factored sparse approximate inverse

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetSmoother()`, `PCCMATCHSetDegree()`
E*/
typedef enum { PC_CMATCH_L1JACOBI, PC_CMATCH_CHEBYSHEV, PC_CMATCH_CHEBYSHEV4, PC_CMATCH_SFSAI, PC_CMATCH_AFSAI } PCCMATCHSmoother;
PETSC_EXTERN const char *const PCCMATCHSmoothers[];

/*E
  PCCMATCHCoarse - how `PCCMATCH` solves on its coarsest level

  Values:
+ `PC_CMATCH_DENSE` (dense) - by the inverse, which is a dense matrix
- `PC_CMATCH_PCG` (pcg) - by 40 iterations of the conjugate gradient method with l1-Jacobi; the preconditioner is no fixed
                          matrix then

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetCoarse()`, `PCCMATCHSetCoarseSize()`
E*/
typedef enum { PC_CMATCH_DENSE, PC_CMATCH_PCG } PCCMATCHCoarse;
PETSC_EXTERN const char *const PCCMATCHCoarses[];

/*E
  PCCMATCHReach - how far `PCCMATCH` reaches on several ranks

  Values:
+ `PC_CMATCH_GLOBAL` (global) - one hierarchy of the whole matrix
- `PC_CMATCH_LOCAL` (local) - on each rank a hierarchy of its diagonal block

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetReach()`
E*/
typedef enum { PC_CMATCH_GLOBAL, PC_CMATCH_LOCAL } PCCMATCHReach;
PETSC_EXTERN const char *const PCCMATCHReaches[];

/*E
  PCCMATCHCommunication - how an application of `PCCMATCH` exchanges values between the GPUs of several ranks

  Values:
+ `PC_CMATCH_COMMUNICATION_AUTO` (auto) - NCCL where it can run, else MPI
. `PC_CMATCH_COMMUNICATION_MPI` (mpi) - a `PetscSF` for each exchange; the host takes part in every one of them
- `PC_CMATCH_COMMUNICATION_NCCL` (nccl) - NCCL, in a CUDA graph of the whole cycle

  Level: intermediate

.seealso: `PCCMATCH`, `PCCMATCHSetCommunication()`
E*/
typedef enum { PC_CMATCH_COMMUNICATION_AUTO, PC_CMATCH_COMMUNICATION_MPI, PC_CMATCH_COMMUNICATION_NCCL } PCCMATCHCommunication;
PETSC_EXTERN const char *const PCCMATCHCommunications[];

PETSC_EXTERN PetscErrorCode FinePCInitializePackage(void);
PETSC_EXTERN PetscErrorCode FinePCFinalizePackage(void);

/*
   The functions that make an object one of the types above, for a program that registers a type under a name of its own with
   PCRegister(), KSPRegister() or MatRegister(), before or without FinePCInitializePackage().
*/
PETSC_EXTERN PetscErrorCode PCCreate_AFSAI(PC);
PETSC_EXTERN PetscErrorCode PCCreate_SFSAI(PC);
PETSC_EXTERN PetscErrorCode PCCreate_BISAI(PC);
PETSC_EXTERN PetscErrorCode PCCreate_RRB(PC);
PETSC_EXTERN PetscErrorCode PCCreate_CMATCH(PC);
PETSC_EXTERN PetscErrorCode PCCreate_AUTO(PC);
PETSC_EXTERN PetscErrorCode KSPCreate_CGFused(KSP);
PETSC_EXTERN PetscErrorCode KSPCreate_RRBCG(KSP);
PETSC_EXTERN PetscErrorCode KSPCreate_GMRESFused(KSP);
PETSC_EXTERN PetscErrorCode MatCreate_SeqBAIJCUDA(Mat);
PETSC_EXTERN PetscErrorCode MatCreate_MPIBAIJCUDA(Mat);

/* Setters and getters of options, written by scripts/options from the tables of options: do not edit. */
PETSC_EXTERN PetscErrorCode PCAFSAISetMaxSteps(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCAFSAIGetMaxSteps(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCAFSAISetStepSize(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCAFSAIGetStepSize(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCAFSAISetTolerance(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCAFSAIGetTolerance(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode PCAFSAISetStopRule(PC, PCAFSAIStopRule);
PETSC_EXTERN PetscErrorCode PCAFSAIGetStopRule(PC, PCAFSAIStopRule *);
PETSC_EXTERN PetscErrorCode PCAFSAISetSelection(PC, PCAFSAISelection);
PETSC_EXTERN PetscErrorCode PCAFSAIGetSelection(PC, PCAFSAISelection *);
PETSC_EXTERN PetscErrorCode PCAFSAISetInitialPower(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCAFSAIGetInitialPower(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCAFSAISetPrefilter(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCAFSAIGetPrefilter(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode PCAFSAISetPostfilter(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCAFSAIGetPostfilter(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode PCAFSAISetSetupPrecision(PC, FinePCPrecision);
PETSC_EXTERN PetscErrorCode PCAFSAIGetSetupPrecision(PC, FinePCPrecision *);
PETSC_EXTERN PetscErrorCode PCAFSAISetFactorPrecision(PC, FinePCPrecision);
PETSC_EXTERN PetscErrorCode PCAFSAIGetFactorPrecision(PC, FinePCPrecision *);
PETSC_EXTERN PetscErrorCode PCAFSAISetReusePattern(PC, PetscBool);
PETSC_EXTERN PetscErrorCode PCAFSAIGetReusePattern(PC, PetscBool *);
PETSC_EXTERN PetscErrorCode PCAFSAISetOverlap(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCAFSAIGetOverlap(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCAFSAISetHaloLayers(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCAFSAIGetHaloLayers(PC, PetscInt *);

PETSC_EXTERN PetscErrorCode PCSFSAISetPower(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCSFSAIGetPower(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCSFSAISetPrefilter(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCSFSAIGetPrefilter(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode PCSFSAISetPostfilter(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCSFSAIGetPostfilter(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode PCSFSAISetMaxRow(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCSFSAIGetMaxRow(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCSFSAISetSetupPrecision(PC, FinePCPrecision);
PETSC_EXTERN PetscErrorCode PCSFSAIGetSetupPrecision(PC, FinePCPrecision *);
PETSC_EXTERN PetscErrorCode PCSFSAISetFactorPrecision(PC, FinePCPrecision);
PETSC_EXTERN PetscErrorCode PCSFSAIGetFactorPrecision(PC, FinePCPrecision *);
PETSC_EXTERN PetscErrorCode PCSFSAISetReusePattern(PC, PetscBool);
PETSC_EXTERN PetscErrorCode PCSFSAIGetReusePattern(PC, PetscBool *);
PETSC_EXTERN PetscErrorCode PCSFSAISetOverlap(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCSFSAIGetOverlap(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCSFSAISetHaloLayers(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCSFSAIGetHaloLayers(PC, PetscInt *);

PETSC_EXTERN PetscErrorCode PCBISAISetPower(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCBISAIGetPower(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCBISAISetPowerLower(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCBISAIGetPowerLower(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCBISAISetPowerUpper(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCBISAIGetPowerUpper(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCBISAISetSide(PC, PCBISAISide);
PETSC_EXTERN PetscErrorCode PCBISAIGetSide(PC, PCBISAISide *);
PETSC_EXTERN PetscErrorCode PCBISAISetFactor(PC, PCBISAIFactor);
PETSC_EXTERN PetscErrorCode PCBISAIGetFactor(PC, PCBISAIFactor *);
PETSC_EXTERN PetscErrorCode PCBISAISetFactorLevels(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCBISAIGetFactorLevels(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCBISAISetFactorShiftType(PC, MatFactorShiftType);
PETSC_EXTERN PetscErrorCode PCBISAIGetFactorShiftType(PC, MatFactorShiftType *);
PETSC_EXTERN PetscErrorCode PCBISAISetFactorShiftAmount(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCBISAIGetFactorShiftAmount(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode PCBISAISetFactorMatOrderingType(PC, MatOrderingType);
PETSC_EXTERN PetscErrorCode PCBISAIGetFactorMatOrderingType(PC, MatOrderingType *);
PETSC_EXTERN PetscErrorCode PCBISAISetFactorSweeps(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCBISAIGetFactorSweeps(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCBISAISetFactorPrecision(PC, FinePCPrecision);
PETSC_EXTERN PetscErrorCode PCBISAIGetFactorPrecision(PC, FinePCPrecision *);
PETSC_EXTERN PetscErrorCode PCBISAISetSweeps(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCBISAIGetSweeps(PC, PetscInt *);

PETSC_EXTERN PetscErrorCode PCRRBSetLevels(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCRRBGetLevels(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCRRBSetNx(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCRRBGetNx(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCRRBSetNy(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCRRBGetNy(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCRRBSetLift(PC, PetscBool);
PETSC_EXTERN PetscErrorCode PCRRBGetLift(PC, PetscBool *);

PETSC_EXTERN PetscErrorCode PCCMATCHSetCoarsening(PC, PCCMATCHCoarsening);
PETSC_EXTERN PetscErrorCode PCCMATCHGetCoarsening(PC, PCCMATCHCoarsening *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetSweeps(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCCMATCHGetSweeps(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetStrength(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCCMATCHGetStrength(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetProlongatorRow(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCCMATCHGetProlongatorRow(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetSmoother(PC, PCCMATCHSmoother);
PETSC_EXTERN PetscErrorCode PCCMATCHGetSmoother(PC, PCCMATCHSmoother *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetDegree(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCCMATCHGetDegree(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetRelaxation(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCCMATCHGetRelaxation(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetCoarse(PC, PCCMATCHCoarse);
PETSC_EXTERN PetscErrorCode PCCMATCHGetCoarse(PC, PCCMATCHCoarse *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetCoarseSize(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCCMATCHGetCoarseSize(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetPrecision(PC, FinePCPrecision);
PETSC_EXTERN PetscErrorCode PCCMATCHGetPrecision(PC, FinePCPrecision *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetBlockSize(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCCMATCHGetBlockSize(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetReach(PC, PCCMATCHReach);
PETSC_EXTERN PetscErrorCode PCCMATCHGetReach(PC, PCCMATCHReach *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetGatherRows(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCCMATCHGetGatherRows(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetGatherRanks(PC, PetscInt);
PETSC_EXTERN PetscErrorCode PCCMATCHGetGatherRanks(PC, PetscInt *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetCommunication(PC, PCCMATCHCommunication);
PETSC_EXTERN PetscErrorCode PCCMATCHGetCommunication(PC, PCCMATCHCommunication *);
PETSC_EXTERN PetscErrorCode PCCMATCHSetReusePattern(PC, PetscBool);
PETSC_EXTERN PetscErrorCode PCCMATCHGetReusePattern(PC, PetscBool *);

PETSC_EXTERN PetscErrorCode PCAUTOSetBy(PC, PCAUTOBy);
PETSC_EXTERN PetscErrorCode PCAUTOGetBy(PC, PCAUTOBy *);
PETSC_EXTERN PetscErrorCode PCAUTOSetTrials(PC, PetscReal);
PETSC_EXTERN PetscErrorCode PCAUTOGetTrials(PC, PetscReal *);

PETSC_EXTERN PetscErrorCode KSPCGFusedSetPath(KSP, KSPCGFusedPath);
PETSC_EXTERN PetscErrorCode KSPCGFusedGetPath(KSP, KSPCGFusedPath *);
PETSC_EXTERN PetscErrorCode KSPCGFusedSetCompress(KSP, PetscBool);
PETSC_EXTERN PetscErrorCode KSPCGFusedGetCompress(KSP, PetscBool *);
PETSC_EXTERN PetscErrorCode KSPCGFusedSetCommunication(KSP, KSPCGFusedCommunication);
PETSC_EXTERN PetscErrorCode KSPCGFusedGetCommunication(KSP, KSPCGFusedCommunication *);

PETSC_EXTERN PetscErrorCode KSPRRBCGSetGraph(KSP, PetscBool);
PETSC_EXTERN PetscErrorCode KSPRRBCGGetGraph(KSP, PetscBool *);

PETSC_EXTERN PetscErrorCode KSPGMRESFusedSetPath(KSP, KSPGMRESFusedPath);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedGetPath(KSP, KSPGMRESFusedPath *);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedSetCommunication(KSP, KSPGMRESFusedCommunication);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedGetCommunication(KSP, KSPGMRESFusedCommunication *);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedSetRestart(KSP, PetscInt);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedGetRestart(KSP, PetscInt *);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedSetStepSize(KSP, PetscInt);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedGetStepSize(KSP, PetscInt *);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedSetFlexible(KSP, PetscBool);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedGetFlexible(KSP, PetscBool *);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedSetBasisPrecision(KSP, FinePCPrecision);
PETSC_EXTERN PetscErrorCode KSPGMRESFusedGetBasisPrecision(KSP, FinePCPrecision *);
/* End of what scripts/options writes. */

PETSC_EXTERN PetscErrorCode PCAUTOGetPC(PC, PC *);
PETSC_EXTERN PetscErrorCode PCFinePCSetReuse(PC, PCFinePCReuse);
PETSC_EXTERN PetscErrorCode PCFinePCGetReuse(PC, PCFinePCReuse *);
PETSC_EXTERN PetscErrorCode PCFinePCSetBackend(PC, FinePCBackend);
PETSC_EXTERN PetscErrorCode PCFinePCGetBackend(PC, FinePCBackend *);
PETSC_EXTERN PetscErrorCode KSPFinePCSetBackend(KSP, FinePCBackend);
PETSC_EXTERN PetscErrorCode KSPFinePCGetBackend(KSP, FinePCBackend *);
PETSC_EXTERN PetscErrorCode PCAFSAISetPattern(PC, Mat);
PETSC_EXTERN PetscErrorCode PCAFSAIGetPattern(PC, Mat *);
PETSC_EXTERN PetscErrorCode PCAFSAIGetFactors(PC, Mat *, Mat *);
PETSC_EXTERN PetscErrorCode PCSFSAISetPattern(PC, Mat);
PETSC_EXTERN PetscErrorCode PCSFSAIGetPattern(PC, Mat *);
PETSC_EXTERN PetscErrorCode PCSFSAIGetFactors(PC, Mat *, Mat *);
PETSC_EXTERN PetscErrorCode PCBISAIGetFactors(PC, Mat *, Mat *);
PETSC_EXTERN PetscErrorCode PCCMATCHGetHierarchy(PC, PetscInt *, Mat *[], Mat *[]);
PETSC_EXTERN PetscErrorCode PCFinePCGetApplyBytes(PC, PetscLogDouble *);
PETSC_EXTERN PetscErrorCode PCFinePCGetDensity(PC, PetscReal *);
PETSC_EXTERN PetscErrorCode KSPCGFusedGetColumns(KSP, PetscInt *, const PetscInt *[], const KSPConvergedReason *[]);
