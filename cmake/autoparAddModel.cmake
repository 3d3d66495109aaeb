# SPDX-License-Identifier: MIT
#
# autopar_add_model(TARGET MODEL.onnx [DEVICES n] [ARGS option...])
#
# Compiles a model when the project is built, again when the file changes, and adds it as the library TARGET, whose
# header is TARGET.h and whose functions begin with TARGET_. DEVICES and ARGS are options of `autopar compile`; an option
# that names files must give whole paths. Where the folder with the weights is, which programs name to TARGET_open,
# stands in the property AUTOPAR_DIR of the target and in the variable TARGET_DIR.
function(autopar_add_model target model)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "DEVICES" "ARGS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "autopar_add_model(${target}): unknown argument ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT target MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
    message(FATAL_ERROR "autopar_add_model: '${target}' is not a C identifier")
  endif()
  get_filename_component(model "${model}" ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/${target}.model)
  set(devices)
  if(ARG_DEVICES)
    set(devices --devices ${ARG_DEVICES})
  endif()
  add_custom_command(
    OUTPUT ${dir}/lib${target}.a ${dir}/${target}.h ${dir}/weights.safetensors
    COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} $<TARGET_FILE:autopar::autopar> compile ${model} -o ${dir}
            --force --name ${target} ${devices} ${ARG_ARGS}
    DEPENDS ${model} $<TARGET_FILE:autopar::autopar>
    COMMENT "Compiling ${model}"
    VERBATIM)
  add_custom_target(${target}_compile DEPENDS ${dir}/lib${target}.a)
  file(MAKE_DIRECTORY ${dir}) # an include folder must be there when the project is configured
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION ${dir}/lib${target}.a
    INTERFACE_INCLUDE_DIRECTORIES ${dir}
    INTERFACE_LINK_LIBRARIES autopar::rt
    AUTOPAR_DIR ${dir})
  add_dependencies(${target} ${target}_compile)
  set(${target}_DIR ${dir} PARENT_SCOPE)
endfunction()
