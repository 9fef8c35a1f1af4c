# The Python package finepc: the modules of python/finepc, one that is written from the C sources, and the library beside them.
# It lies in the build folder as python/finepc for the tests, and `pip install .` installs it as the component `python`.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(FINEPC_PYTHON_FOLDER ${PROJECT_BINARY_DIR}/python)
file(GLOB modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/finepc/*.py ${PROJECT_SOURCE_DIR}/python/finepc/py.typed)
file(GLOB_RECURSE pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cxx)
set(generated ${FINEPC_PYTHON_FOLDER}/finepc/_api.py)
add_custom_command(
  OUTPUT ${generated}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/generate.py --source ${PROJECT_SOURCE_DIR} --output ${generated}
  COMMAND ${CMAKE_COMMAND} -E copy ${modules} ${FINEPC_PYTHON_FOLDER}/finepc
  COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:finepc> ${FINEPC_PYTHON_FOLDER}/finepc/libfinepc.so
  DEPENDS ${PROJECT_SOURCE_DIR}/python/generate.py ${PROJECT_SOURCE_DIR}/include/finepc.h ${modules} ${pages}
  COMMENT "Writing the Python package"
  VERBATIM)
set(try_folder ${PROJECT_SOURCE_DIR}/finepc_try) # what finepc.try_matrix() calls
if(EXISTS ${try_folder})
  file(MAKE_DIRECTORY ${FINEPC_PYTHON_FOLDER})
  file(CREATE_LINK ${try_folder} ${FINEPC_PYTHON_FOLDER}/finepc_try SYMBOLIC)
endif()
add_custom_target(finepc_python ALL DEPENDS ${generated})
add_dependencies(finepc_python finepc)

if(SKBUILD)
  # petsc4py has PETSc loaded already; the paths are for other programs.
  set_target_properties(finepc PROPERTIES INSTALL_RPATH "\$ORIGIN/../petsc/lib;${FINEPC_PETSC_LIBDIR}")
  install(TARGETS finepc LIBRARY DESTINATION finepc COMPONENT python)
  install(FILES ${generated} DESTINATION finepc COMPONENT python)
  if(EXISTS ${try_folder} AND TARGET finepc_bench)
    install(DIRECTORY ${try_folder} DESTINATION . COMPONENT python FILES_MATCHING PATTERN *.py)
    install(FILES ${PROJECT_SOURCE_DIR}/src/pc/auto/auto_rules.txt DESTINATION finepc_try COMPONENT python)
    install(TARGETS finepc_bench RUNTIME DESTINATION finepc_try/bin COMPONENT python)
    set_target_properties(finepc_bench PROPERTIES
      INSTALL_RPATH "\$ORIGIN/../../finepc;${FINEPC_PETSC_LIBDIR}" INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
endif()
