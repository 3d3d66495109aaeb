/* What the tests of planning share: modules from text, random inputs, and "the same numbers as before". */
#ifndef AP_TESTS_PASSES_PLAN_UTIL_H
#define AP_TESTS_PASSES_PLAN_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/base/text.h"
#include "ir/eval.h"
#include "ir/text_form.h"
#include "passes/plan.h"

#include <stdio.h>
#include <string.h>

static inline void print_diags(ap_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        print_error("%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
}

#define assert_ok(ctx, expr)                                                                                           \
    do {                                                                                                               \
        ap_status ok_status = (expr);                                                                                  \
        if (ok_status != AP_OK)                                                                                        \
            print_diags(ctx);                                                                                          \
        assert_int_equal(ok_status, AP_OK);                                                                            \
    } while (0)

static inline ap_module *module_of(ap_ctx *ctx, const char *text)
{
    ap_module *m = NULL;
    ap_status status = ap_module_parse(ctx, "test", text, strlen(text), &m);
    if (status != AP_OK)
        print_error("%s\n", text);
    assert_ok(ctx, status);
    return m;
}

static inline const char *text_of(ap_ctx *ctx, const ap_module *m)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_module_print(m, &t);
    return ap_text_str(&t);
}

static inline void assert_verifies(ap_ctx *ctx, ap_module *m)
{
    ap_status status = ap_module_verify(m);
    if (status != AP_OK)
        print_error("%s\n", text_of(ctx, m));
    assert_ok(ctx, status);
}

/* A fixed sequence on every machine. */
static inline uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

/* Small multiples of 1/8, so that sums in any order are exact. */
static inline ap_tensor *draw_inputs(ap_ctx *ctx, const ap_module *m, uint64_t *state)
{
    const ap_func_info *f = &m->funcs.at[0];
    ap_tensor *in = AP_NEW_ARRAY(&ctx->arena, ap_tensor, f->narguments);
    for (uint32_t i = 0; i < f->narguments; i++) {
        const ap_shape_info *shape = ap_value_shape(m, f->argument[i]);
        int64_t dims[AP_MAX_RANK];
        int rank = ap_shape_dims(shape, dims);
        const ap_shape_info *plain = ap_shape_get(ctx, ap_shape_of_dims(ctx, rank, dims));
        assert_true(ap_tensor_make(&ctx->arena, ap_type_dtype(ctx, ap_value_type(m, f->argument[i])), plain, &in[i]));
        for (int64_t k = 0; k < in[i].count; k++)
            in[i].at[k].f = ((double)draw(state, 33) - 16) / 8;
    }
    return in;
}

static inline ap_tensor *outputs_of(ap_ctx *ctx, ap_module *m, const ap_tensor *in)
{
    ap_tensor *out = AP_NEW_ARRAY(&ctx->arena, ap_tensor, m->funcs.at[0].nresults);
    ap_status status = ap_eval_func(m, 0, &ctx->arena, in, out);
    if (status != AP_OK)
        print_error("%s\n", text_of(ctx, m));
    assert_ok(ctx, status);
    return out;
}

static inline void assert_same(uint32_t n, const ap_tensor *a, const ap_tensor *b, double tolerance)
{
    for (uint32_t i = 0; i < n; i++) {
        double diff, scale;
        ap_tensor_compare(&a[i], &b[i], &diff, &scale);
        if (!(diff <= tolerance * (scale > 1 ? scale : 1)))
            print_error("result %u differs by %g of %g\n", i, diff, scale);
        assert_true(diff <= tolerance * (scale > 1 ? scale : 1));
    }
}

/* A mesh "a=2,b=4" written as sizes, with axes x, y, z. */
static inline ap_mesh_info mesh_of(ap_ctx *ctx, int naxes, const int32_t *size)
{
    static const char *const names[] = {"x", "y", "z"};
    ap_mesh_info mesh = {.name = ap_name_make(ctx, "m"), .naxes = (uint8_t)naxes};
    for (int a = 0; a < naxes; a++) {
        mesh.axis_name[a] = ap_name_make(ctx, names[a]);
        mesh.axis_size[a] = size[a];
    }
    return mesh;
}

#endif
