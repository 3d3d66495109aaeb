# SPDX-License-Identifier: MIT
#
# find_package(autopar) gives
#   autopar::autopar     the compiler
#   autopar::rt          the static runtime, which compiled models link
#   autopar::rt_conv     what models with convolutions link besides; it needs oneDNN (libdnnl)
#   autopar::rt_cuda     what models with stages on GPUs link besides, where it was built
#   autopar::rt_shared   the same as a shared library
#   autopar_add_model()  autoparAddModel.cmake
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(PkgConfig)
if(NOT TARGET PkgConfig::CJSON)
  pkg_check_modules(CJSON QUIET IMPORTED_TARGET libcjson)
  if(NOT CJSON_FOUND)
    set(autopar_FOUND FALSE)
    set(autopar_NOT_FOUND_MESSAGE "libcjson (its development package) is missing")
    return()
  endif()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/autoparTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/autoparAddModel.cmake)
