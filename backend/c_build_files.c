/* CMakeLists.txt and NAME.pc: how others build and link a compiled model, given an installed runtime. */
#include "backend/c_flags.h"
#include "backend/emit.h"

static const char cmake[] =
    "cmake_minimum_required(VERSION 3.16)\n"
    "project(@ &)\n"
    "\n"
    "# The runtime, from an installation of autopar (-DCMAKE_PREFIX_PATH=...).\n"
    "find_package(autopar REQUIRED)\n"
    "\n"
    "set(AUTOPAR_MARCH native CACHE STRING \"processor to compile for\")\n"
    "add_library(@ STATIC program.c!)\n"
    "set_target_properties(@ PROPERTIES C_EXTENSIONS OFF)\n"
    "target_compile_options(@ PRIVATE #-march=${AUTOPAR_MARCH}$~)\n"
    "target_include_directories(@ PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})\n"
    "target_link_libraries(@ PUBLIC autopar::rt%)\n"
    "^\n"
    "# Beside the weights, where it looks for them.\n"
    "add_executable(model main.c)\n"
    "target_link_libraries(model PRIVATE @)\n"
    "set_target_properties(model PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})\n";

/* Object files in the place of sources. */
static const char cmake_objects[] =
    "cmake_minimum_required(VERSION 3.16)\n"
    "project(@ C)\n"
    "\n"
    "# The runtime, from an installation of autopar (-DCMAKE_PREFIX_PATH=...).\n"
    "find_package(autopar REQUIRED)\n"
    "\n"
    "set_source_files_properties(program.o kernels.o main.o PROPERTIES EXTERNAL_OBJECT ON)\n"
    "add_library(@ STATIC program.o kernels.o)\n"
    "set_target_properties(@ PROPERTIES LINKER_LANGUAGE C)\n"
    "target_include_directories(@ PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})\n"
    "target_link_libraries(@ PUBLIC autopar::rt%)\n"
    "\n"
    "# Beside the weights, where it looks for them.\n"
    "add_executable(model main.o)\n"
    "target_link_libraries(model PRIVATE @)\n"
    "set_target_properties(model PROPERTIES LINKER_LANGUAGE C RUNTIME_OUTPUT_DIRECTORY "
    "${CMAKE_CURRENT_SOURCE_DIR})\n";

static const char pc[] = "prefix=${pcfiledir}\n"
                         "\n"
                         "Name: @\n"
                         "Description: a model compiled by autopar\n"
                         "Version: 1\n"
                         "Requires: autopar_rt*\n"
                         "Cflags: -I${prefix}\n"
                         "Libs: -L${prefix} -l@+\n";

/* Only where there are stages on GPUs. */
static const char cmake_cuda[] =
    "set_target_properties(@ PROPERTIES CUDA_STANDARD 17 POSITION_INDEPENDENT_CODE ON)\n"
    "if(NOT DEFINED CACHE{CMAKE_CUDA_ARCHITECTURES})\n"
    "  set_target_properties(@ PROPERTIES CUDA_ARCHITECTURES \"" AP_CUDA_ARCHITECTURES "\")\n"
    "endif()\n"
    "find_package(CUDAToolkit REQUIRED)\n"
    "target_link_libraries(@ PUBLIC autopar::rt_cuda CUDA::cublasLt cudnn nccl CUDA::cudart stdc++)\n";

static void print_sources(const ap_emit *e, ap_text *t)
{
    ap_text_add(t, ap_emit_has_target(e, AP_TARGET_CPU) ? " kernels.c" : "");
    ap_text_add(t, ap_emit_has_target(e, AP_TARGET_CUDA) ? " kernels.cu" : "");
}

/* @ is the name; & the languages, ! the kernels, # and ~ stand around options of the C compiler, ^ is what GPUs need; a
 * $ that no { follows is the list of flags; % goes on to the libraries for convolutions, * to those of the package that
 * is wanted: that for GPUs has the static runtime in it, since its library asks more of that than the shared one shows,
 * and + adds convolutions to it. */
static void print_template(const ap_emit *e, ap_text *t, const char *s)
{
    const bool cuda = ap_emit_has_target(e, AP_TARGET_CUDA);
    for (; *s; s++) {
        if (*s == '@') {
            ap_text_add(t, e->opt->name);
        } else if (*s == '%') {
            ap_text_add(t, ap_backend_has_conv(e->program, e->opt->target) ? "_conv" : "");
        } else if (*s == '&') {
            ap_text_add(t, cuda ? "C CUDA" : "C");
        } else if (*s == '!') {
            print_sources(e, t);
        } else if (*s == '#' && s[1] == '-') {
            ap_text_add(t, cuda ? "\"$<$<COMPILE_LANGUAGE:C>:" : "");
        } else if (*s == '~') {
            ap_text_add(t, cuda ? ">\"" : "");
        } else if (*s == '*') {
            ap_text_add(t, cuda ? "_cuda" : ap_backend_has_conv(e->program, e->opt->target) ? "_conv" : "");
        } else if (*s == '+') {
            if (cuda && ap_backend_has_conv(e->program, e->opt->target)) {
#define X(library) ap_text_add(t, " " library);
                AP_C_CONV_LIBRARIES(X)
#undef X
            }
        } else if (*s == '^') {
            if (cuda)
                print_template(e, t, cmake_cuda);
        } else if (*s == '$' && s[1] != '{') {
#define X(flag) ap_text_add(t, cuda ? ";" flag : " " flag);
            AP_C_FLAGS(X)
#undef X
        } else {
            ap_text_add_n(t, s, 1);
        }
    }
}

static ap_status print_files(const ap_emit *e, const char *lists)
{
    ap_text t, file;
    ap_text_init(&t, &e->ctx->scratch);
    print_template(e, &t, lists);
    AP_TRY(ap_emit_file(e, "CMakeLists.txt", &t));
    ap_text_init(&t, &e->ctx->scratch);
    print_template(e, &t, pc);
    ap_text_init(&file, &e->ctx->scratch);
    ap_text_addf(&file, "%s.pc", e->opt->name);
    return ap_emit_file(e, ap_text_str(&file), &t);
}

ap_status ap_emit_build_files(const ap_emit *e)
{
    return print_files(e, cmake);
}

ap_status ap_emit_object_files(const ap_emit *e)
{
    return print_files(e, cmake_objects);
}
