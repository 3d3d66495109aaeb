/* CMakeLists.txt and NAME.pc: how others build and link a compiled model, given an installed runtime. */
#include "backend/c_flags.h"
#include "backend/emit.h"

static const char cmake[] =
    "cmake_minimum_required(VERSION 3.16)\n"
    "project(@ C)\n"
    "\n"
    "# The runtime, from an installation of autopar (-DCMAKE_PREFIX_PATH=...).\n"
    "find_package(autopar REQUIRED)\n"
    "\n"
    "set(AUTOPAR_MARCH native CACHE STRING \"processor to compile for\")\n"
    "add_library(@ STATIC program.c kernels.c)\n"
    "set_target_properties(@ PROPERTIES C_EXTENSIONS OFF)\n"
    "target_compile_options(@ PRIVATE -march=${AUTOPAR_MARCH}$)\n"
    "target_include_directories(@ PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})\n"
    "target_link_libraries(@ PUBLIC autopar::rt%)\n"
    "\n"
    "# Beside the weights, where it looks for them.\n"
    "add_executable(model main.c)\n"
    "target_link_libraries(model PRIVATE @)\n"
    "set_target_properties(model PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})\n";

static const char pc[] = "prefix=${pcfiledir}\n"
                         "\n"
                         "Name: @\n"
                         "Description: a model compiled by autopar\n"
                         "Version: 1\n"
                         "Requires: autopar_rt%\n"
                         "Cflags: -I${prefix}\n"
                         "Libs: -L${prefix} -l@\n";

/* @ is the name; a $ that no { follows is the list of flags; % goes on to the library for convolutions. */
static void print_template(const ap_emit *e, ap_text *t, const char *s)
{
    for (; *s; s++) {
        if (*s == '@') {
            ap_text_add(t, e->opt->name);
        } else if (*s == '%') {
            ap_text_add(t, ap_backend_has_conv(e->program) ? "_conv" : "");
        } else if (*s == '$' && s[1] != '{') {
#define X(flag) ap_text_add(t, " " flag);
            AP_C_FLAGS(X)
#undef X
        } else {
            ap_text_add_n(t, s, 1);
        }
    }
}

ap_status ap_emit_build_files(const ap_emit *e)
{
    ap_text t, file;
    ap_text_init(&t, &e->ctx->scratch);
    print_template(e, &t, cmake);
    AP_TRY(ap_emit_file(e, "CMakeLists.txt", &t));
    ap_text_init(&t, &e->ctx->scratch);
    print_template(e, &t, pc);
    ap_text_init(&file, &e->ctx->scratch);
    ap_text_addf(&file, "%s.pc", e->opt->name);
    return ap_emit_file(e, ap_text_str(&file), &t);
}
