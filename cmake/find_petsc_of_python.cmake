# `pip install .` without PETSC_DIR: the PETSc of the environment's petsc4py.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/find_petsc.py
  OUTPUT_VARIABLE found
  ERROR_VARIABLE why_not
  RESULT_VARIABLE failed
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_STRIP_TRAILING_WHITESPACE)
if(failed)
  message(FATAL_ERROR "${why_not}")
endif()
list(GET found 0 petsc_dir)
list(GET found 1 petsc_arch)
set(ENV{PETSC_DIR} "${petsc_dir}")
set(ENV{PETSC_ARCH} "${petsc_arch}")
message(STATUS "PETSc of this Python's environment: ${petsc_dir} ${petsc_arch}")
