/*
   All that differs between the releases of PETSc, 3.18 to 3.26. The sources are written for the newest one; what older ones lack or
   call otherwise is here under its name, where that can be. Fields of solvers and preconditioners are reached by templates, so that
   who has no need of them need not include the private headers. Include it in the place of petscksp.h.
*/
#pragma once

#include <petscksp.h>
#include <petscsf.h>
#include <petsc/private/petscimpl.h>

#include <type_traits>

/* The options of an object, as its method SetFromOptions gets them: before 3.23 a pointer to a struct, and now such a type. */
using OptionItems = std::conditional_t<std::is_pointer_v<PetscOptionItems>, PetscOptionItems, PetscOptionItems *>;

/* ---------------------------------------- before 3.19 ------------------------------------------ */

#if PETSC_VERSION_LT(3, 19, 0)
  #define PETSC_SUCCESS   ((PetscErrorCode)0)
  #define PETSC_INT_MAX   PETSC_MAX_INT
  #define PETSC_INT_MIN   PETSC_MIN_INT
  #define PETSC_INT64_MAX INT64_MAX

  #define KSP_CONVERGED_NEG_CURVE   KSP_CONVERGED_CG_NEG_CURVE
  #define KSP_CONVERGED_STEP_LENGTH KSP_CONVERGED_CG_CONSTRAINED /* the end of a step at the boundary of a trust region */

inline PetscErrorCode KSPSetConvergedNegativeCurvature(KSP ksp, PetscBool)
{
  SETERRQ(PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP, "PETSc before 3.19 has no convergence by negative curvature");
}

inline PetscErrorCode KSPMatSolveTranspose(KSP ksp, Mat, Mat)
{
  SETERRQ(PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP, "PETSc before 3.19 has no KSPMatSolveTranspose()");
}

inline PetscErrorCode KSPCGSetObjectiveTarget(KSP ksp, PetscReal target)
{
  PetscFunctionBegin;
  PetscTryMethod(ksp, "KSPCGSetObjectiveTarget_C", (KSP, PetscReal), (ksp, target));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The arrays of a dense matrix are lent on the host, where those of one on a GPU are brought, too. */
inline PetscErrorCode MatDenseGetArrayAndMemType(Mat A, PetscScalar **array, PetscMemType *where)
{
  *where = PETSC_MEMTYPE_HOST;
  return MatDenseGetArray(A, array);
}
inline PetscErrorCode MatDenseGetArrayReadAndMemType(Mat A, const PetscScalar **array, PetscMemType *where)
{
  *where = PETSC_MEMTYPE_HOST;
  return MatDenseGetArrayRead(A, array);
}
inline PetscErrorCode MatDenseGetArrayWriteAndMemType(Mat A, PetscScalar **array, PetscMemType *where)
{
  *where = PETSC_MEMTYPE_HOST;
  return MatDenseGetArrayWrite(A, array);
}
inline PetscErrorCode MatDenseRestoreArrayAndMemType(Mat A, PetscScalar **array)
{
  return MatDenseRestoreArray(A, array);
}
inline PetscErrorCode MatDenseRestoreArrayReadAndMemType(Mat A, const PetscScalar **array)
{
  return MatDenseRestoreArrayRead(A, array);
}
inline PetscErrorCode MatDenseRestoreArrayWriteAndMemType(Mat A, PetscScalar **array)
{
  return MatDenseRestoreArrayWrite(A, array);
}

  #if !defined(PETSC_HAVE_CUDA)
inline PetscErrorCode VecCreateMPICUDAWithArrays(MPI_Comm comm, PetscInt, PetscInt, PetscInt, const PetscScalar[],
                                                 const PetscScalar[], Vec *)
{
  SETERRQ(comm, PETSC_ERR_SUP, "This PETSc has no CUDA");
}
inline PetscErrorCode VecCUDAReplaceArray(Vec v, const PetscScalar[])
{
  SETERRQ(PetscObjectComm((PetscObject)v), PETSC_ERR_SUP, "This PETSc has no CUDA");
}
  #endif
#endif

/* What tests compare with KSPCG: KSPMatSolveTranspose(), and an end of the solve by negative curvature or by an objective. */
constexpr bool kKSPHasMatSolveTranspose = PETSC_VERSION_GE(3, 19, 0), kKSPCGHasNegativeCurvature = PETSC_VERSION_GE(3, 19, 0),
               kKSPCGHasObjective = PETSC_VERSION_GE(3, 19, 0);

/* KSPSetConvergedNegativeCurvature() */

template <typename Solver>
bool KSPConvergesByNegativeCurvature([[maybe_unused]] Solver ksp)
{
#if PETSC_VERSION_LT(3, 19, 0)
  return false;
#else
  return ksp->converged_neg_curve;
#endif
}

/* ---------------------------------------- before 3.20 ------------------------------------------ */

#if PETSC_VERSION_LT(3, 20, 0)
  #include <petscblaslapack.h>

  #define PetscAssertPointer PetscValidPointer
  #define LAPACKREALstev_    PETSCBLASREAL(stev, STEV)

BLAS_EXTERN void LAPACKREALstev_(const char *, const PetscBLASInt *, PetscReal *, PetscReal *, PetscReal *, const PetscBLASInt *,
                                 PetscReal *, PetscBLASInt *);

template <typename... Texts>
PetscErrorCode PetscStrcmpAny(const char text[], PetscBool *match, Texts... texts)
{
  PetscFunctionBegin;
  *match = PETSC_FALSE;
  for (const char *other : {texts...})
    if (!*match && *other) PetscCall(PetscStrcmp(text, other, match)); /* an empty one ends the list */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A log of events for a while is that of PETSc's first stage, begun anew; afterwards nothing is logged. */
using PetscLogHandler   = PetscStageLog;
using PetscLogState     = PetscStageLog;
using PetscLogEventInfo = PetscEventRegInfo;

  #define PETSCLOGHANDLERDEFAULT "default"

inline PetscErrorCode PetscLogHandlerCreate(MPI_Comm, PetscLogHandler *handler)
{
  return PetscLogGetStageLog(handler);
}
inline PetscErrorCode PetscLogHandlerSetType(PetscLogHandler, const char[])
{
  return PETSC_SUCCESS;
}
inline PetscErrorCode PetscLogHandlerStart(PetscLogHandler handler)
{
  PetscFunctionBegin;
  PetscCall(PetscLogDefaultBegin());
  for (int event = 0; event < handler->eventLog->numEvents; event++) {
    handler->stageInfo[0].eventLog->eventInfo[event].count = 0;
    handler->stageInfo[0].eventLog->eventInfo[event].time  = 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
inline PetscErrorCode PetscLogHandlerGetState(PetscLogHandler handler, PetscLogState *state)
{
  *state = handler;
  return PETSC_SUCCESS;
}
inline PetscErrorCode PetscLogStateGetNumEvents(PetscLogState state, PetscInt *count)
{
  *count = state->eventLog->numEvents;
  return PETSC_SUCCESS;
}
inline PetscErrorCode PetscLogStateEventGetInfo(PetscLogState state, PetscLogEvent event, PetscLogEventInfo *info)
{
  *info = state->eventLog->eventInfo[event];
  return PETSC_SUCCESS;
}
inline PetscErrorCode PetscLogHandlerGetEventPerfInfo(PetscLogHandler handler, PetscLogStage stage, PetscLogEvent event,
                                                      PetscEventPerfInfo **info)
{
  *info = &handler->stageInfo[stage].eventLog->eventInfo[event];
  return PETSC_SUCCESS;
}
inline PetscErrorCode PetscLogHandlerStop(PetscLogHandler)
{
  PetscLogPLB = nullptr;
  PetscLogPLE = nullptr;
  return PETSC_SUCCESS;
}
inline PetscErrorCode PetscLogHandlerDestroy(PetscLogHandler *)
{
  return PETSC_SUCCESS;
}
#endif

/* Whether the parts of a PCCOMPOSITE are set up before the first apply. */
constexpr bool kCompositeSetsUpParts = PETSC_VERSION_GE(3, 20, 0);

/*
   Whether new blocks of an assembled MATBAIJ by MatSetValuesBlocked() are counted as other nonzeros, so that PCASM has other
   submatrices; and whether it can be used after them. In 3.20 it cannot: MatAssemblyEnd() leaves the gaps that the blocks made.
*/
constexpr bool kBAIJCountsNewBlocks = PETSC_VERSION_GE(3, 21, 0),
               kBAIJTakesNewBlocks  = PETSC_VERSION_LT(3, 20, 0) || PETSC_VERSION_GE(3, 21, 0);

/* Whether KSPCG estimates eigenvalues from its Lanczos matrix: in 3.20 the entries beside the diagonal are those of other rows. */
constexpr bool kCGEstimatesEigenvalues = PETSC_VERSION_LT(3, 20, 0) || PETSC_VERSION_GE(3, 21, 0);

/* KSPSetMinimumIterations(), and whether there is such a thing. */
constexpr bool kKSPHasMinimumIterations = PETSC_VERSION_GE(3, 20, 0);

template <typename Solver>
PetscInt KSPMinimumIterationsOf([[maybe_unused]] Solver ksp)
{
#if PETSC_VERSION_LT(3, 20, 0)
  return 0;
#else
  return ksp->min_it;
#endif
}

/* ----------------------------------- before 3.21 and 3.22 -------------------------------------- */

/* Whether -pc_jacobi_type has rowl1. */
constexpr bool kJacobiHasRowSums = PETSC_VERSION_GE(3, 21, 0);

#if PETSC_VERSION_LT(3, 21, 0)
using PetscVoidFn = void(void);

  #define PETSC_STREAM_DEFAULT     PETSC_STREAM_GLOBAL_BLOCKING
  #define PETSC_STREAM_NONBLOCKING PETSC_STREAM_GLOBAL_NONBLOCKING
#endif

#if PETSC_VERSION_LT(3, 22, 0)
  #define PETSC_CURRENT PETSC_DEFAULT

inline PetscErrorCode VecFlag(Vec v, PetscInt flag)
{
  return flag ? VecSetInf(v) : PetscObjectStateIncrease((PetscObject)v);
}

inline PetscErrorCode PetscObjectContainerQuery(PetscObject object, const char name[], void **data)
{
  PetscContainer container;

  PetscFunctionBegin;
  *data = nullptr;
  PetscCall(PetscObjectQuery(object, name, (PetscObject *)&container));
  if (container) PetscCall(PetscContainerGetPointer(container, data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

inline PetscErrorCode PetscObjectContainerCompose(PetscObject object, const char name[], void *data,
                                                  PetscErrorCode (*destroy)(void *))
{
  PetscContainer container;

  PetscFunctionBegin;
  PetscCall(PetscContainerCreate(PetscObjectComm(object), &container));
  PetscCall(PetscContainerSetPointer(container, data));
  PetscCall(PetscContainerSetUserDestroy(container, destroy));
  PetscCall(PetscObjectCompose(object, name, (PetscObject)container));
  PetscCall(PetscContainerDestroy(&container));
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

/* ----------------------------------- before 3.23 and 3.24 -------------------------------------- */

#if PETSC_VERSION_LT(3, 23, 0)
using PetscCtxDestroyFn = PetscErrorCode(void *);

inline PetscErrorCode PetscContainerSetCtxDestroy(PetscContainer container, PetscCtxDestroyFn *destroy)
{
  return PetscContainerSetUserDestroy(container, destroy);
}
#endif

/* The destructor of a container, made of a function of its data. It gets the data, or from 3.23 on the address where they are. */
template <typename Data>
Data *DataOf(PetscErrorCode (*)(Data *));

template <auto Destroy, typename Context>
PetscErrorCode DestroyContained(Context context)
{
  using Pointer = decltype(DataOf(Destroy));
#if PETSC_VERSION_LT(3, 23, 0)
  return Destroy((Pointer)context);
#else
  return Destroy(*(Pointer *)context);
#endif
}

template <auto Destroy>
constexpr PetscCtxDestroyFn *ContainerDestructor = DestroyContained<Destroy>;

/* The destructor of the context of a convergence test, and its call. */
#if PETSC_VERSION_LT(3, 24, 0)
using KSPTestDestroyFn = PetscErrorCode(void *);
#else
using KSPTestDestroyFn = PetscCtxDestroyFn;
#endif

inline PetscErrorCode KSPDestroyTest(KSPTestDestroyFn *destroy, void *context)
{
#if PETSC_VERSION_LT(3, 24, 0)
  return destroy(context);
#else
  return destroy(&context);
#endif
}

/* Whether PETSc loses 16 bytes in the ILU(0) of a MATSEQBAIJ without rows, which 3.25 no longer does. */
constexpr bool kILUOfNoRowsIsLost = PETSC_VERSION_LT(3, 25, 0);

/*
   Whether a MATSEQBAIJ, and in 3.25 a MATSEQAIJ, too, keeps the inverses of the diagonal blocks when it gets new values on the same
   nonzeros, so that PCPBJACOBI goes on with those of the old values.
*/
constexpr bool kBlockInversesAreKept = PETSC_VERSION_GE(3, 20, 0) && PETSC_VERSION_LT(3, 26, 0);

#if PETSC_VERSION_LT(3, 24, 0)
using KSPConvergenceTestFn = PetscErrorCode(KSP, PetscInt, PetscReal, KSPConvergedReason *, void *);

  #define KSP_CONVERGED_USER KSP_CONVERGED_ITS
  #define KSP_DIVERGED_USER  KSP_DIVERGED_NULL
#endif

/* ---------------------------------------- before 3.26 ------------------------------------------ */

#if PETSC_VERSION_LT(3, 26, 0)
  #define KSPOrthogonalizationCGSRefinementTypes    KSPGMRESCGSRefinementTypes
  #define KSP_ORTHOGONALIZATION_CGS_REFINE_NEVER    KSP_GMRES_CGS_REFINE_NEVER
  #define KSP_ORTHOGONALIZATION_CGS_REFINE_IFNEEDED KSP_GMRES_CGS_REFINE_IFNEEDED
  #define KSP_ORTHOGONALIZATION_CGS_REFINE_ALWAYS   KSP_GMRES_CGS_REFINE_ALWAYS

using KSPOrthogonalizationCGSRefinementType = KSPGMRESCGSRefinementType;

using DeviceIndex = int; /* of the rows that MatSeqAIJCUSPARSEGetIJ() lends */

inline PetscErrorCode KSPOrthogonalizationSet(KSP ksp, PetscErrorCode (*)(KSP, Vec[], PetscInt, Vec, PetscScalar[]))
{
  SETERRQ(PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP, "PETSc before 3.26 has no KSPOrthogonalizationSet()");
}

/* What a product uses to get its ghosts: older releases do not lend it. */
inline PetscErrorCode MatGetMultPetscSF(Mat, PetscSF *sf)
{
  *sf = nullptr;
  return PETSC_SUCCESS;
}
#else
using DeviceIndex = PetscInt;
#endif

/* Whether PCGAMG is the one that docs/smoothers.md has its options for. */
constexpr bool kGAMGIsThatOfThePages = PETSC_VERSION_GE(3, 26, 0);

/* Whether KSPSolve() leaves it to PCApply() to set up a preconditioner anew whose matrix has changed. */
constexpr bool kPCApplySetsUp = PETSC_VERSION_LT(3, 26, 0);

/* Whether every KSP has an orthogonalization, with options that were those of KSPGMRES before. */
constexpr bool kKSPHasOrthogonalization = PETSC_VERSION_GE(3, 26, 0);

/* Whether the program has given the solver an orthogonalization of its own. */
template <typename Solver>
bool KSPHasOwnOrthogonalization([[maybe_unused]] Solver ksp)
{
#if PETSC_VERSION_LT(3, 26, 0)
  return false;
#else
  return ksp->orthog != KSPOrthogonalizationClassicalGramSchmidt && ksp->orthog != KSPOrthogonalizationModifiedGramSchmidt;
#endif
}

/* When the solver orthogonalizes a second time. */
template <typename Solver, typename Data>
auto KSPRefinementOf([[maybe_unused]] Solver ksp, [[maybe_unused]] const Data *data)
{
#if PETSC_VERSION_LT(3, 26, 0)
  return data->refinement;
#else
  return ksp->cgstype;
#endif
}

/* Gives another solver what newer releases keep in every KSP: the fewest iterations, and when it orthogonalizes a second time. */
template <typename Solver>
PetscErrorCode KSPCopyNewerSettings([[maybe_unused]] Solver from, [[maybe_unused]] Solver to)
{
#if PETSC_VERSION_GE(3, 20, 0)
  to->min_it = from->min_it;
#endif
#if PETSC_VERSION_GE(3, 26, 0)
  to->cgstype = from->cgstype;
#endif
  return PETSC_SUCCESS;
}

/* The matrix, and the state of its values, from which a preconditioner was set up last. */
template <typename Preconditioner>
PetscErrorCode PCSetUpState(Preconditioner pc, PetscObjectId *id, PetscObjectState *state)
{
  PetscFunctionBegin;
#if PETSC_VERSION_LT(3, 26, 0)
  PetscCall(PetscObjectGetId((PetscObject)pc->pmat, id));
  *state = pc->matstate;
#else
  *id    = pc->matstate.id;
  *state = pc->matstate.state;
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Forgets that state, but not the state of the pattern. */
template <typename Preconditioner>
void PCForgetValues(Preconditioner pc)
{
#if PETSC_VERSION_LT(3, 26, 0)
  pc->matstate = -1;
#else
  pc->matstate.state = -1;
#endif
}
