/*
   CallSetter() and CallGetter() are the bodies of the public setters and getters. Each checks its arguments and calls the method
   that the type of the object has composed under the given name. For an object of another type a setter has no effect, as PETSc's
   own setters have none, and a getter is an error.
*/
#pragma once

#include <petsc/private/petscimpl.h>

#include <type_traits>

#include "petsc_compat.h"

template <typename Object>
PetscClassId ClassOf(Object)
{
  return std::is_same_v<Object, PC> ? PC_CLASSID : KSP_CLASSID;
}

template <typename Object, typename T>
PetscErrorCode CallSetter(Object object, const char method[], T value)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(object, ClassOf(object), 1);
  if constexpr (std::is_same_v<T, PetscBool>) PetscValidLogicalCollectiveBool(object, value, 2);
  else if constexpr (std::is_enum_v<T>) PetscValidLogicalCollectiveEnum(object, value, 2);
  else if constexpr (std::is_same_v<T, PetscInt>) PetscValidLogicalCollectiveInt(object, value, 2);
  else if constexpr (std::is_same_v<T, PetscReal>) PetscValidLogicalCollectiveReal(object, value, 2);
  else if constexpr (std::is_same_v<T, Mat>) {
    if (value) PetscValidHeaderSpecific(value, MAT_CLASSID, 2);
    if (value) PetscCheckSameComm(object, 1, value, 2);
  }
  PetscTryMethod(object, method, (Object, T), (object, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename Object, typename T>
PetscErrorCode CallGetter(Object object, const char method[], T *value)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(object, ClassOf(object), 1);
  PetscAssertPointer(value, 2);
  PetscUseMethod(object, method, (Object, T *), (object, value));
  PetscFunctionReturn(PETSC_SUCCESS);
}
