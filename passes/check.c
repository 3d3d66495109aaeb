/* Verify and evaluate between passes. */
#include "passes/check.h"

#include "ir/eval.h"
#include "ir/text_form.h"

#include <math.h>

/* splitmix64: a fixed sequence on every machine. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Sum of twelve uniforms less six: close enough to normal, and exact everywhere. */
static double next_normal(uint64_t *state)
{
    double x = -6;
    for (int i = 0; i < 12; i++)
        x += (double)(next_random(state) >> 11) * 0x1p-53;
    return x;
}

static ap_status draw(ap_ctx *ctx, ap_arena *arena, const ap_shape_info *shape, ap_dtype dtype, uint64_t *state,
                      ap_tensor *out)
{
    int64_t dims[AP_MAX_RANK];
    int rank = ap_shape_dims(shape, dims);
    const ap_shape_info *plain = ap_shape_get(ctx, ap_shape_of_dims(ctx, rank, dims));
    if (!ap_tensor_make(arena, dtype, plain, out))
        return ap_error(ctx, 0, "an input is too large to check");
    for (int64_t i = 0; i < out->count; i++) {
        ap_scalar x;
        if (ap_dtype_is_float(dtype))
            x.f = next_normal(state);
        else
            x.i = (int64_t)(next_random(state) % 2);
        out->at[i] = ap_scalar_round(dtype, x);
    }
    return AP_OK;
}

/* Parameters of hand-written modules have no data; the evaluator needs some. */
static ap_status draw_parameters(ap_ctx *ctx, ap_module *m, ap_arena *arena, uint64_t *state)
{
    for (ap_symbol s = 0; s < m->symbols.len; s++) {
        ap_symbol_info *symbol = &m->symbols.at[s];
        if (symbol->kind != AP_SYMBOL_PARAM || symbol->data.kind != AP_DATA_NONE)
            continue;
        ap_type_info t = ap_type_get(ctx, ap_value_type(m, symbol->value));
        ap_tensor x;
        AP_TRY(draw(ctx, arena, ap_shape_get(ctx, t.shape), t.dtype, state, &x));
        size_t size = (size_t)x.count * (size_t)ap_dtype_bytes(t.dtype);
        void *bytes = ap_arena_alloc(&ctx->arena, size);
        ap_tensor_to_bytes(&x, bytes);
        symbol->data = (ap_data){.kind = AP_DATA_INLINE, .dtype = t.dtype, .bytes = bytes, .size = size};
    }
    return AP_OK;
}

static void clear_integers(ap_check *c)
{
    for (uint32_t i = 0; i < c->ninputs; i++)
        for (int64_t k = 0; k < c->input[i].count && !ap_dtype_is_float(c->input[i].dtype); k++)
            c->input[i].at[k] = ap_scalar_round(c->input[i].dtype, (ap_scalar){.i = 0});
}

static ap_status prepare(ap_ctx *ctx, ap_module *m, const ap_tensor *input, ap_check *out)
{
    const ap_func_info *f = &m->funcs.at[0];
    uint64_t state = 1;
    AP_TRY(draw_parameters(ctx, m, &out->arena, &state));
    for (uint32_t i = 0; i < f->narguments; i++) {
        if (input) {
            out->input[i] = input[i];
            continue;
        }
        ap_type_info t = ap_type_get(ctx, ap_value_type(m, f->argument[i]));
        AP_TRY(draw(ctx, &out->arena, ap_shape_get(ctx, t.shape), t.dtype, &state, &out->input[i]));
    }
    uint32_t told = ctx->diags.len;
    ap_status s = ap_eval_func(m, 0, &out->arena, out->input, out->output);
    if (s != AP_ERR_MODEL || input)
        return s;
    ctx->diags.len = told; /* an index into an axis of one element, of which there is no second one */
    clear_integers(out);
    return ap_eval_func(m, 0, &out->arena, out->input, out->output);
}

ap_status ap_check_init(ap_ctx *ctx, ap_module *m, const ap_tensor *input, ap_check *out)
{
    const ap_func_info *f = &m->funcs.at[0];
    *out = (ap_check){.ninputs = f->narguments, .noutputs = f->nresults, .tolerance = 1e-4};
    ap_arena_init(&out->arena, ctx->arena.out_of_memory, ctx->arena.user);
    out->input = AP_NEW_ARRAY(&out->arena, ap_tensor, f->narguments);
    out->output = AP_NEW_ARRAY(&out->arena, ap_tensor, f->nresults);
    ap_status s = prepare(ctx, m, input, out);
    if (s != AP_OK)
        ap_check_deinit(out);
    return s;
}

void ap_check_deinit(ap_check *c)
{
    ap_arena_deinit(&c->arena);
}

static ap_status compare(ap_check *c, ap_ctx *ctx, const char *pass, const ap_tensor *output)
{
    for (uint32_t i = 0; i < c->noutputs; i++) {
        double diff, scale;
        ap_tensor_compare(&output[i], &c->output[i], &diff, &scale);
        if (!(diff <= c->tolerance * fmax(scale, 1e-3)))
            return ap_fail(ctx, AP_ERR_BUG, 0, "output %u moved by %g (scale %g) in pass '%s'", i, diff, scale, pass);
    }
    return AP_OK;
}

/* How one form of the program is evaluated. */
typedef ap_status evaluate_fn(void *form, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs);

static ap_status evaluate_and_compare(ap_check *c, ap_ctx *ctx, const char *pass, evaluate_fn *evaluate, void *form)
{
    ap_arena arena;
    ap_arena_init(&arena, ctx->arena.out_of_memory, ctx->arena.user);
    ap_tensor *output = AP_NEW_ARRAY(&arena, ap_tensor, c->noutputs);
    ap_status s = evaluate(form, &arena, c->input, output);
    if (s == AP_OK)
        s = compare(c, ctx, pass, output);
    ap_arena_deinit(&arena);
    return s;
}

static ap_status evaluate_module(void *form, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    return ap_eval_func(form, 0, arena, inputs, outputs);
}

static ap_status evaluate_pipeline(void *form, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    return ap_pipeline_eval(form, arena, inputs, outputs);
}

static ap_status evaluate_local(void *form, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    return ap_local_eval(form, arena, inputs, outputs);
}

static ap_status evaluate_program(void *form, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    return ap_program_eval(form, arena, inputs, outputs);
}

ap_status ap_check_after(void *user, ap_ctx *ctx, const char *pass, ap_module *m)
{
    if (ap_module_verify(m) != AP_OK)
        return ap_fail(ctx, AP_ERR_BUG, 0, "the module does not verify after pass '%s'", pass);
    return evaluate_and_compare(user, ctx, pass, evaluate_module, m);
}

ap_status ap_check_pipeline(ap_check *c, ap_ctx *ctx, const char *pass, ap_pipeline *p)
{
    if (ap_pipeline_verify(p) != AP_OK)
        return ap_fail(ctx, AP_ERR_BUG, 0, "the pipeline does not verify after pass '%s'", pass);
    return evaluate_and_compare(c, ctx, pass, evaluate_pipeline, p);
}

ap_status ap_check_local(ap_check *c, ap_ctx *ctx, ap_local *p)
{
    if (ap_local_verify(p) != AP_OK)
        return ap_fail(ctx, AP_ERR_BUG, 0, "the local program does not verify");
    return evaluate_and_compare(c, ctx, "local", evaluate_local, p);
}

ap_status ap_check_program(ap_check *c, ap_ctx *ctx, ap_program *p)
{
    if (ap_program_verify(p) != AP_OK)
        return ap_fail(ctx, AP_ERR_BUG, 0, "the program does not verify");
    return evaluate_and_compare(c, ctx, "local", evaluate_program, p);
}
