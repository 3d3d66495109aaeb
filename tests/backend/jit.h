/* The harness through LLVM: programs are compiled into this process; no C compiler runs. To be included before a test
 * of the C printer, which then tests this one. */
#ifndef AP_TESTS_BACKEND_JIT_H
#define AP_TESTS_BACKEND_JIT_H

#define HARNESS_PRINTER
#include "tests/backend/harness.h"

#include "backend/llvm/llvm.h"
#include "runtime/autopar_rt.h"

/* The weights are as C has them. */
static inline void jit_build_files(built *b, const char *name)
{
    snprintf(b->dir, sizeof b->dir, "/tmp/ap-backend-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    ap_backend_options options = {.dir = b->dir, .name = name, .header = "a test"};
    if (!b->program)
        b->program = ap_program_of_local(b->p);
    check(b->ctx, ap_backend_c_emit(b->ctx, b->program, &options));
    ap_llvm_jit *jit;
    check(b->ctx, ap_llvm_jit_open(b->ctx, b->program, name, NULL, &jit));
    b->library = jit;
}

static inline int jit_run(void *instance, const void *const inputs[], void *const outputs[])
{
    return aprt_run(instance, inputs, outputs);
}
static inline void jit_close(void *instance)
{
    aprt_close(instance);
}
static inline const char *jit_error(const void *instance)
{
    return aprt_error(instance);
}

static inline void jit_load_library(built *b)
{
    char weights[128];
    snprintf(weights, sizeof weights, "%s/weights.safetensors", b->dir);
    aprt_options options = {.weights = weights};
    aprt_instance *instance;
    int status = aprt_open(ap_llvm_jit_program(b->library), &options, &instance);
    if (status)
        fprintf(stderr, "%s\n", aprt_error(instance));
    assert_int_equal(status, 0);
    b->instance = instance;
    b->run = jit_run;
    b->close = jit_close;
    b->error = jit_error;
}

static inline void jit_release_built(built *b)
{
    ap_llvm_jit *jit = b->library;
    if (b->instance)
        b->close(b->instance);
    b->instance = NULL;
    b->library = NULL;
    ap_llvm_jit_close(jit);
    release_built(b);
}

#define build_files jit_build_files
#define load_library jit_load_library
#define release_built jit_release_built

#include "tests/backend/expect.h"

#endif
