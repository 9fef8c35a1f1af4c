# `pip install .` without PETSC_DIR: the PETSc that the environment's petsc4py was built with.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/find_petsc.py
  OUTPUT_VARIABLE found
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT found)
  message(FATAL_ERROR "No PETSc in the environment of ${Python3_EXECUTABLE}. Install petsc4py there first, or set PETSC_DIR and "
    "PETSC_ARCH to those of a PETSc that petsc4py was built with; scripts/setup builds both.")
endif()
list(GET found 0 petsc_dir)
list(GET found 1 petsc_arch)
set(ENV{PETSC_DIR} "${petsc_dir}")
set(ENV{PETSC_ARCH} "${petsc_arch}")
message(STATUS "PETSc of this Python's environment: ${petsc_dir} ${petsc_arch}")
