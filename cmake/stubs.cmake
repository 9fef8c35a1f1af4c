# Writes the functions of a build that lacks what they need, from their prototypes in the headers:
#   cmake -DOUTPUT=FILE -DWHY="built without CUDA" -DHEADERS="a.h b.h" -DPATTERN=REGEX -DEXCEPT="Name .." -P stubs.cmake
# PATTERN is for the names of the functions. Functions that destroy have nothing to destroy; sizes are 0, pointers null; the others
# are errors, since only a mistake in finepc can call them.
cmake_minimum_required(VERSION 3.22)
separate_arguments(HEADERS)
separate_arguments(EXCEPT)
set(functions)
set(includes)
foreach(header IN LISTS HEADERS)
  file(READ ${header} text)
  string(REPLACE ";" "@" text "\n${text}")
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")
  set(prototype "\n(PetscErrorCode|size_t|void|const [A-Za-z]+ \\*) *(${PATTERN})\\([^@{}()]*\\)@")
  string(REGEX MATCHALL "${prototype}" found "${text}")
  if(found)
    string(APPEND includes "#include \"${header}\"\n")
  endif()
  foreach(prototype IN LISTS found)
    string(REGEX REPLACE "^\n|@$" "" prototype "${prototype}")
    string(REGEX MATCH "(${PATTERN})\\(" name "${prototype}")
    string(REPLACE "(" "" name "${name}")
    if(name IN_LIST EXCEPT)
      continue()
    endif()
    if(prototype MATCHES "^size_t")
      set(body "return 0;")
    elseif(prototype MATCHES "^void")
      set(body "")
    elseif(prototype MATCHES "^const")
      set(body "return nullptr;")
    elseif(name MATCHES "Destroy_")
      set(body "return PETSC_SUCCESS;")
    else()
      set(body "return NotThere();")
    endif()
    string(APPEND functions "\n${prototype}\n{\n  ${body}\n}\n")
  endforeach()
endforeach()
if(NOT functions)
  message(FATAL_ERROR "no prototype of ${PATTERN} in ${HEADERS}")
endif()
file(WRITE ${OUTPUT} "/* Written by cmake/stubs.cmake. */
${includes}
#pragma GCC diagnostic ignored \"-Wunused-parameter\"

static PetscErrorCode NotThere()
{
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP, \"This finepc was ${WHY}\");
}
${functions}")
