# What `cmake --install` puts where, and what is made for it: the shared runtime, manual pages, completion.

# APRT_ABI of the header is the number in libautopar_rt.so.N.
file(STRINGS ${PROJECT_SOURCE_DIR}/runtime/autopar_rt.h abi REGEX "^#define APRT_ABI ")
string(REGEX REPLACE "[^0-9]" "" abi "${abi}")
add_library(autopar_rt_shared SHARED $<TARGET_OBJECTS:autopar_rt>)
set_target_properties(autopar_rt_shared PROPERTIES
  OUTPUT_NAME autopar_rt EXPORT_NAME rt_shared LINKER_LANGUAGE C
  VERSION ${abi}.${PROJECT_VERSION} SOVERSION ${abi}
  # apart from the static one, which -lautopar_rt must find in the build tree
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/shared)
get_target_property(rt_links autopar_rt INTERFACE_LINK_LIBRARIES)
target_link_options(autopar_rt_shared PRIVATE $<TARGET_PROPERTY:ap_options,INTERFACE_LINK_OPTIONS>)
target_link_libraries(autopar_rt_shared PRIVATE ${rt_links})
target_include_directories(autopar_rt_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

install(TARGETS autopar autopar_rt autopar_rt_conv autopar_rt_shared EXPORT autopar)
install(FILES runtime/autopar_rt.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY LICENSES DESTINATION ${CMAKE_INSTALL_DOCDIR})

# ---- find_package(autopar): from an installation and from the build tree ----
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/autopar)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lib/cmake/autopar/autoparConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
configure_file(cmake/autoparConfig.cmake ${CMAKE_BINARY_DIR}/lib/cmake/autopar/autoparConfig.cmake COPYONLY)
configure_file(cmake/autoparAddModel.cmake ${CMAKE_BINARY_DIR}/lib/cmake/autopar/autoparAddModel.cmake COPYONLY)
install(FILES ${CMAKE_BINARY_DIR}/lib/cmake/autopar/autoparConfigVersion.cmake cmake/autoparConfig.cmake
              cmake/autoparAddModel.cmake DESTINATION ${package_dir})
install(EXPORT autopar NAMESPACE autopar:: FILE autoparTargets.cmake DESTINATION ${package_dir})
export(EXPORT autopar NAMESPACE autopar:: FILE ${CMAKE_BINARY_DIR}/lib/cmake/autopar/autoparTargets.cmake)

# ---- pkg-config: movable, paths are relative to the file ----
file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_up "${up}")
set(pc_private "")
set(pc_requires "")
foreach(link ${rt_links})
  if(link STREQUAL "PkgConfig::CJSON")
    list(APPEND pc_requires libcjson)
  elseif(link STREQUAL "Threads::Threads")
    list(APPEND pc_private -pthread)
  elseif(link MATCHES "/lib([^/]+)\\.(so|a)$")
    list(APPEND pc_private -l${CMAKE_MATCH_1})
  else()
    list(APPEND pc_private -l${link})
  endif()
endforeach()
list(JOIN pc_private " " pc_private)
list(JOIN pc_requires " " pc_requires)
configure_file(cmake/autopar_rt.pc.in ${CMAKE_BINARY_DIR}/autopar_rt.pc @ONLY)
configure_file(cmake/autopar_rt_conv.pc.in ${CMAKE_BINARY_DIR}/autopar_rt_conv.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/autopar_rt.pc ${CMAKE_BINARY_DIR}/autopar_rt_conv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- manual pages and completion, from the tables that `autopar help` prints ----
find_program(SCDOC scdoc)
set(made)
function(ap_generate source out)
  cmake_parse_arguments(ARG "" "COMMAND;SCDOC" "" ${ARGN})
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DAUTOPAR=$<TARGET_FILE:autopar> -DSOURCE=${source} -DOUT=${out} -DCOMMAND=${ARG_COMMAND}
            -DSCDOC=${ARG_SCDOC} -P ${PROJECT_SOURCE_DIR}/cmake/generate.cmake
    DEPENDS autopar ${source} ${PROJECT_SOURCE_DIR}/cmake/generate.cmake VERBATIM)
  set(made ${made} ${out} PARENT_SCOPE)
endfunction()

if(SCDOC)
  file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.scd)
  foreach(page ${pages})
    get_filename_component(stem ${page} NAME_WE)
    string(REGEX REPLACE "^autopar-?" "" command ${stem})
    ap_generate(${page} ${CMAKE_BINARY_DIR}/man/${stem}.1 COMMAND "${command}" SCDOC ${SCDOC})
    install(FILES ${CMAKE_BINARY_DIR}/man/${stem}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endforeach()
else()
  message(STATUS "scdoc is not there: no manual pages")
endif()
ap_generate(${PROJECT_SOURCE_DIR}/completion/autopar.bash ${CMAKE_BINARY_DIR}/completion/autopar)
install(FILES ${CMAKE_BINARY_DIR}/completion/autopar
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
add_custom_target(documents ALL DEPENDS ${made})
if(AP_HAS_CUDA)
  install(TARGETS autopar_rt_cuda EXPORT autopar)
  if(TARGET autopar_profile_cuda)
    install(TARGETS autopar_profile_cuda)
  endif()
  install(FILES runtime/cuda/autopar_rt_cuda.h runtime/cuda/autopar_rt_device.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(cmake/autopar_rt_cuda.pc.in ${CMAKE_BINARY_DIR}/autopar_rt_cuda.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/autopar_rt_cuda.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
if(OMPI_FOUND)
  install(TARGETS autopar_rt_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
