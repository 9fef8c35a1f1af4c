/*
   PETSc is C, and an exception that meets one of its frames ends the program. Whatever PETSc calls is therefore handed to it as
   Entry<Function>, which turns an exception into an error: operations of objects, functions that create types, and composed
   methods. tests/docs_test.py finds a function that was handed over without.

   CallGuarded() does the same for one call. It stands where something that was borrowed has to be given back, or where other ranks
   wait for the verdict.
*/
#pragma once

#include <exception>
#include <new>

#include "petsc_compat.h"

template <typename... Parameters, typename... Arguments>
PetscErrorCode CallGuarded(PetscErrorCode (*function)(Parameters...), Arguments... arguments)
{
  try {
    return function(arguments...);
  } catch (const std::bad_alloc &) {
    return PetscError(PETSC_COMM_SELF, __LINE__, PETSC_FUNCTION_NAME, __FILE__, PETSC_ERR_MEM, PETSC_ERROR_INITIAL,
                      "There is not enough memory on the host");
  } catch (const std::exception &exception) {
    return PetscError(PETSC_COMM_SELF, __LINE__, PETSC_FUNCTION_NAME, __FILE__, PETSC_ERR_LIB, PETSC_ERROR_INITIAL, "%s",
                      exception.what());
  }
}

template <auto Function>
struct Guarded;
template <typename... Parameters, PetscErrorCode (*Function)(Parameters...)>
struct Guarded<Function> {
  static PetscErrorCode Call(Parameters... parameters) { return CallGuarded(Function, parameters...); }
};

template <auto Function>
constexpr auto Entry = Guarded<Function>::Call;
