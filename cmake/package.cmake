# Target `package`: finepc-<version>-linux-x86_64.tar.xz, which runs where it is unpacked (see scripts/run-tests). It holds what
# `install` installs and, as component `package`, what only a machine without compilers and PETSc needs.
foreach(folder tests tests/fuzz tutorials benchmarks)
  set(targets)
  if(FINEPC_BUILD_TESTS)
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  endif()
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH "\$ORIGIN/../lib")
      install(TARGETS ${target} RUNTIME DESTINATION bin COMPONENT package EXCLUDE_FROM_ALL)
    endif()
  endforeach()
endforeach()

foreach(target finepc_trace finepc_timeline)
  if(TARGET ${target})
    install(TARGETS ${target} LIBRARY DESTINATION lib COMPONENT package EXCLUDE_FROM_ALL)
  endif()
endforeach()
file(WRITE ${PROJECT_BINARY_DIR}/COMMIT "${FINEPC_COMMIT_FOUND}\n") # for scripts/test-device
install(FILES ${PROJECT_BINARY_DIR}/COMMIT DESTINATION . COMPONENT package EXCLUDE_FROM_ALL)

install(DIRECTORY tests/matrices DESTINATION tests COMPONENT package EXCLUDE_FROM_ALL)
install(FILES finepc_try/read_mtx.py DESTINATION benchmarks COMPONENT package EXCLUDE_FROM_ALL)
install(DIRECTORY tutorials petsc-options benchmarks DESTINATION . COMPONENT package EXCLUDE_FROM_ALL PATTERN __pycache__ EXCLUDE)
install(PROGRAMS scripts/run-tests scripts/test-device scripts/petsc-programs DESTINATION . COMPONENT package EXCLUDE_FROM_ALL)

# libpetsc by the name that programs ask for. The search path in it is this machine's; run-tests says where CUDA is instead.
list(GET PETSC_LIBRARIES 0 petsc_name) # petsc, or as Debian calls it petsc_real
set(libpetsc lib${petsc_name}.so.${FINEPC_PETSC_MINOR})
get_filename_component(libpetsc_file ${PETSC_LIBDIR}/${libpetsc} REALPATH)
install(PROGRAMS ${libpetsc_file} DESTINATION lib RENAME ${libpetsc} COMPONENT package EXCLUDE_FROM_ALL)
install(CODE "
  set(staged \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/${libpetsc}\")
  execute_process(COMMAND \"${CMAKE_STRIP}\" \"\${staged}\" COMMAND_ERROR_IS_FATAL ANY)
  " COMPONENT package EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR TXZ)
set(CPACK_PACKAGE_FILE_NAME finepc-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0) # as many as there are cores
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};finepc;ALL;/;${PROJECT_BINARY_DIR};finepc;package;/")
include(CPack)
