/*
   What differs between the releases of PETSc, 3.18 to 3.26, in one place. The sources are written for the newest release; here is
   under its names what older ones lack or call otherwise. Include it instead of petscksp.h, or before the headers in petsc/private.
*/
#pragma once

#include <petscksp.h>
#include <petsc/private/petscimpl.h>

#include <type_traits>

/* The options of an object, as its method SetFromOptions gets them. */
using OptionItems = std::conditional_t<std::is_pointer_v<PetscOptionItems>, PetscOptionItems, PetscOptionItems *>;

#if PETSC_VERSION_LT(3, 24, 0)
using KSPConvergenceTestFn = PetscErrorCode(KSP, PetscInt, PetscReal, KSPConvergedReason *, void *);

  #define KSP_CONVERGED_USER KSP_CONVERGED_ITS
  #define KSP_DIVERGED_USER  KSP_DIVERGED_NULL
#endif

#if PETSC_VERSION_LT(3, 23, 0)
using PetscCtxDestroyFn = PetscErrorCode(void *);

inline PetscErrorCode PetscContainerSetCtxDestroy(PetscContainer container, PetscCtxDestroyFn *destroy)
{
  return PetscContainerSetUserDestroy(container, destroy);
}
#endif

/* The destructor of a container as this release calls it, made of a function of the container's data. */
template <typename Data>
Data *DataOf(PetscErrorCode (*)(Data *));
template <auto Destroy, typename Context>
PetscErrorCode DestroyContained(Context context)
{
#if PETSC_VERSION_LT(3, 23, 0)
  return Destroy((decltype(DataOf(Destroy)))context);
#else
  return Destroy(*(decltype(DataOf(Destroy)) *)context);
#endif
}
template <auto Destroy>
constexpr PetscCtxDestroyFn *ContainerDestructor = DestroyContained<Destroy>;

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
  PetscCall(PetscObjectQuery(object, name, (PetscObject *)&container));
  if (container) PetscCall(PetscContainerGetPointer(container, data));
  else *data = nullptr;
  PetscFunctionReturn(0);
}

inline PetscErrorCode PetscObjectContainerCompose(PetscObject object, const char name[], void *data, PetscCtxDestroyFn *destroy)
{
  PetscContainer container;

  PetscFunctionBegin;
  PetscCall(PetscContainerCreate(PetscObjectComm(object), &container));
  PetscCall(PetscContainerSetPointer(container, data));
  PetscCall(PetscContainerSetUserDestroy(container, destroy));
  PetscCall(PetscObjectCompose(object, name, (PetscObject)container));
  PetscCall(PetscContainerDestroy(&container));
  PetscFunctionReturn(0);
}
#endif

#if PETSC_VERSION_LT(3, 21, 0)
using PetscVoidFn = void(void);

  #define PETSC_STREAM_NONBLOCKING PETSC_STREAM_GLOBAL_NONBLOCKING
#endif

/* KSPSetMinimumIterations(), for which releases before 3.20 have no field. */
template <typename Solver>
PetscInt KSPMinimumIterationsOf([[maybe_unused]] Solver ksp)
{
#if PETSC_VERSION_LT(3, 20, 0)
  return 0;
#else
  return ksp->min_it;
#endif
}

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
  for (const char *other : {texts...}) {
    if (!*match && *other) PetscCall(PetscStrcmp(text, other, match));
  }
  PetscFunctionReturn(0);
}

/* A log of events for a while, which is that of PETSc's only stage: it begins anew, and nothing is logged after it. */
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
  return 0;
}
inline PetscErrorCode PetscLogHandlerStart(PetscLogHandler handler)
{
  PetscFunctionBegin;
  PetscCall(PetscLogDefaultBegin());
  for (int event = 0; event < handler->eventLog->numEvents; event++) {
    handler->stageInfo[0].eventLog->eventInfo[event].count = 0;
    handler->stageInfo[0].eventLog->eventInfo[event].time  = 0;
  }
  PetscFunctionReturn(0);
}
inline PetscErrorCode PetscLogHandlerGetState(PetscLogHandler handler, PetscLogState *state)
{
  *state = handler;
  return 0;
}
inline PetscErrorCode PetscLogStateGetNumEvents(PetscLogState state, PetscInt *count)
{
  *count = state->eventLog->numEvents;
  return 0;
}
inline PetscErrorCode PetscLogStateEventGetInfo(PetscLogState state, PetscLogEvent event, PetscLogEventInfo *info)
{
  *info = state->eventLog->eventInfo[event];
  return 0;
}
inline PetscErrorCode PetscLogHandlerGetEventPerfInfo(PetscLogHandler handler, PetscLogStage stage, PetscLogEvent event,
                                                      PetscEventPerfInfo **info)
{
  *info = &handler->stageInfo[stage].eventLog->eventInfo[event];
  return 0;
}
inline PetscErrorCode PetscLogHandlerStop(PetscLogHandler)
{
  PetscLogPLB = nullptr;
  PetscLogPLE = nullptr;
  return 0;
}
inline PetscErrorCode PetscLogHandlerDestroy(PetscLogHandler *)
{
  return 0;
}
#endif

/* KSPSetConvergedNegativeCurvature(), which releases before 3.19 do not have. */
template <typename Solver>
bool KSPConvergesByNegativeCurvature([[maybe_unused]] Solver ksp)
{
#if PETSC_VERSION_LT(3, 19, 0)
  return false;
#else
  return ksp->converged_neg_curve;
#endif
}

#if PETSC_VERSION_LT(3, 19, 0)
  #define PETSC_SUCCESS           ((PetscErrorCode)0)
  #define PETSC_INT_MAX           PETSC_MAX_INT
  #define PETSC_INT_MIN           PETSC_MIN_INT
  #define PETSC_INT64_MAX         INT64_MAX
  #define KSP_CONVERGED_NEG_CURVE KSP_CONVERGED_CG_NEG_CURVE

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
  PetscFunctionReturn(0);
}

/* Arrays of dense matrices on the host: one on a GPU is brought there. */
inline PetscErrorCode MatDenseGetArrayAndMemType(Mat A, PetscScalar **array, PetscMemType *where)
{
  if (where) *where = PETSC_MEMTYPE_HOST;
  return MatDenseGetArray(A, array);
}
inline PetscErrorCode MatDenseGetArrayReadAndMemType(Mat A, const PetscScalar **array, PetscMemType *where)
{
  if (where) *where = PETSC_MEMTYPE_HOST;
  return MatDenseGetArrayRead(A, array);
}
inline PetscErrorCode MatDenseGetArrayWriteAndMemType(Mat A, PetscScalar **array, PetscMemType *where)
{
  if (where) *where = PETSC_MEMTYPE_HOST;
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
  SETERRQ(comm, PETSC_ERR_SUP, "PETSc has no CUDA");
}
  #endif
#endif
