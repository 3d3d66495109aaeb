/* What the tests of the back end share: a local program, as text, is emitted, compiled, loaded into this process and
 * run on random inputs; the evaluator runs the same program. */
#ifndef AP_TESTS_BACKEND_HARNESS_H
#define AP_TESTS_BACKEND_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "ir/base/file.h"
#include "ir/eval.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct built {
    ap_ctx *ctx;
    ap_local *p;
    ap_program *program;    /* of p alone, or of a pipeline */
    char dir[64], bin[512]; /* where the files are; where this test program is */
    void *library;
    void *instance;
    int (*run)(void *instance, const void *const inputs[], void *const outputs[]);
    void (*close)(void *instance);
    const char *(*error)(const void *instance);
    void **in, **out; /* whole tensors */
    ap_tensor *want_in, *want;
} built;

static inline void print_diags(ap_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        fprintf(stderr, "%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
}

static inline void check(ap_ctx *ctx, ap_status status)
{
    if (status != AP_OK)
        print_diags(ctx);
    assert_int_equal(status, AP_OK);
}

static inline ap_local *parse_local(ap_ctx *ctx, const char *text)
{
    ap_local *p;
    check(ctx, ap_local_parse(ctx, "test", text, strlen(text), &p));
    check(ctx, ap_local_verify(p));
    return p;
}

static inline void find_bin(built *b)
{
    ssize_t n = readlink("/proc/self/exe", b->bin, sizeof b->bin - 1);
    assert_true(n > 0);
    b->bin[n] = 0;
    *strrchr(b->bin, '/') = 0;
}

static inline void shell(const char *command)
{
    int status = system(command);
    if (status != 0)
        fprintf(stderr, "%s\n", command);
    assert_int_equal(status, 0);
}

#ifdef AP_SANITIZE_FLAGS
#define HARNESS_SANITIZE AP_SANITIZE_FLAGS
#else
#define HARNESS_SANITIZE ""
#endif

/* Emit and compile into a fresh folder. */
static inline void build_files(built *b, const char *name)
{
    char include[600], lib[600];
    find_bin(b);
    snprintf(b->dir, sizeof b->dir, "/tmp/ap-backend-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(include, sizeof include, "%s/../include", b->bin);
    snprintf(lib, sizeof lib, "%s/../lib", b->bin);
    ap_backend_options options = {.dir = b->dir, .name = name, .header = "a test"};
    ap_backend_toolchain tools = {.include_dir = include, .lib_dir = lib};
    if (!b->program)
        b->program = ap_program_of_local(b->p);
    check(b->ctx, ap_backend_c_emit(b->ctx, b->program, &options));
    check(b->ctx, ap_backend_c_build(b->ctx, b->dir, name, &tools));
}

static inline void remove_files(built *b)
{
    if (!getenv("AP_KEEP"))
        check(b->ctx, ap_dir_remove(b->ctx, b->dir));
    else
        fprintf(stderr, "kept %s\n", b->dir);
}

static inline void link_library(built *b)
{
    char command[2048];
    snprintf(command, sizeof command,
             "cc -shared %s -o %s/test.so -Wl,--whole-archive %s/libt.a -Wl,--no-whole-archive -L%s/../lib "
             "-lautopar_rt -lcjson -lpthread -lm",
             HARNESS_SANITIZE, b->dir, b->dir, b->bin);
    shell(command);
}

/* The program in b->dir, linked before. */
static inline void open_library(built *b)
{
    char path[128], weights[128];
    struct {
        const char *weights;
    } options = {weights};
    int (*open)(const void *options, void **out);
    snprintf(path, sizeof path, "%s/test.so", b->dir);
    snprintf(weights, sizeof weights, "%s/weights.safetensors", b->dir);
    b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!b->library)
        fprintf(stderr, "%s\n", dlerror());
    assert_non_null(b->library);
    *(void **)&open = dlsym(b->library, "t_open");
    *(void **)&b->run = dlsym(b->library, "t_run");
    *(void **)&b->close = dlsym(b->library, "t_close");
    *(void **)&b->error = dlsym(b->library, "t_error");
    int status = open(&options, &b->instance);
    if (status)
        fprintf(stderr, "%s\n", b->error(b->instance));
    assert_int_equal(status, 0);
}

static inline void load_library(built *b)
{
    link_library(b);
    open_library(b);
}

static inline ap_tensor port_tensor(ap_ctx *ctx, const ap_port *port)
{
    ap_tensor t;
    ap_shape s = ap_shape_of_dims(ctx, port->rank, port->dim);
    assert_true(ap_tensor_make(&ctx->arena, port->dtype, ap_shape_get(ctx, s), &t));
    return t;
}

static inline uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Inputs are small numbers; integers lie in [0, 6). Outputs start as garbage. */
static inline void make_tensors(built *b, uint32_t seed)
{
    const ap_program *p = b->program;
    b->in = AP_NEW_ARRAY(&b->ctx->arena, void *, p->inputs.len + 1);
    b->out = AP_NEW_ARRAY(&b->ctx->arena, void *, p->outputs.len + 1);
    b->want_in = AP_NEW_ARRAY(&b->ctx->arena, ap_tensor, p->inputs.len + 1);
    b->want = AP_NEW_ARRAY(&b->ctx->arena, ap_tensor, p->outputs.len + 1);
    for (uint32_t i = 0; i < p->inputs.len; i++) {
        ap_tensor *t = &b->want_in[i];
        *t = port_tensor(b->ctx, &p->inputs.at[i]);
        for (int64_t j = 0; j < t->count; j++) {
            double x = (int)(next_random(&seed) % 4001) / 1000.0 - 2;
            if (ap_dtype_is_float(t->dtype))
                t->at[j].f = x;
            else
                t->at[j].i = t->dtype == AP_BOOL ? next_random(&seed) % 2 : next_random(&seed) % 6;
            t->at[j] = ap_scalar_round(t->dtype, t->at[j]);
        }
        b->in[i] = malloc((size_t)t->count * 8 + 8);
        ap_tensor_to_bytes(t, b->in[i]);
    }
    for (uint32_t i = 0; i < p->outputs.len; i++) {
        ap_tensor t = port_tensor(b->ctx, &p->outputs.at[i]);
        size_t bytes = (size_t)t.count * (size_t)ap_dtype_bytes(t.dtype);
        b->out[i] = malloc(bytes ? bytes : 1);
        memset(b->out[i], 0xa5, bytes);
    }
}

static inline int run_built(built *b)
{
    int status = b->run(b->instance, (const void *const *)b->in, b->out);
    if (status)
        fprintf(stderr, "%s\n", b->error(b->instance));
    return status;
}

static inline void compare_output(built *b, uint32_t i, double tolerance)
{
    double diff, scale;
    ap_tensor got = port_tensor(b->ctx, &b->program->outputs.at[i]);
    ap_tensor_from_bytes(&got, b->out[i]);
    ap_tensor_compare(&got, &b->want[i], &diff, &scale);
    if (!(diff <= tolerance * (scale > 1 ? scale : 1)))
        fprintf(stderr, "output %u (%s): off by %g of %g\n", i, ap_name_str(b->ctx, b->program->outputs.at[i].name),
                diff, scale);
    assert_true(diff <= tolerance * (scale > 1 ? scale : 1));
}

static inline void release_built(built *b)
{
    if (b->instance)
        b->close(b->instance);
    if (b->library)
        dlclose(b->library);
    for (uint32_t i = 0; b->in && i < b->program->inputs.len; i++)
        free(b->in[i]);
    for (uint32_t i = 0; b->out && i < b->program->outputs.len; i++)
        free(b->out[i]);
    remove_files(b);
    ap_ctx_release(b->ctx);
}

#ifndef HARNESS_PRINTER /* another one than that of C: its header includes expect.h when it has its own functions */
#include "tests/backend/expect.h"
#endif

#endif
