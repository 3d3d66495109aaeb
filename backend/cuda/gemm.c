/* Matrix products: a table each for cuBLASLt. What follows is done by it where it has a name there, else by a kernel
 * over C behind it. */
#include "backend/cuda/cuda.h"

#include <inttypes.h>
#include <math.h>

/* ---- what follows ----
 *
 * cuBLASLt's epilogues are taken where they give what the record means: a bias, and GELU by tanh of short floats (for
 * f32 its precision is not said). Its relu is max(x, 0), of which NVIDIA does not say that NaN stays NaN, so relu is a
 * kernel of ours like all else. */

typedef struct after {
    const char *name; /* of the table */
    uint32_t bias;    /* operand; 0: none */
} after;

/* One number for each column of C, adjacent. */
static bool is_bias(const ap_kernel *k, const ap_sop *s)
{
    const ap_kernel_operand *o = &k->operand[s->operand];
    if (s->kind != AP_SOP_LOAD || s->operand < 3 || o->written || o->dtype != k->gemm.dtype)
        return false;
    for (int l = 0; l < k->nest.nouter - 1; l++)
        if (o->stride[l] != 0 && (k->nest.extent[l] > 1 || k->nest.turns[l]))
            return false;
    return o->stride[k->nest.nouter - 1] == 1;
}

/* What the last sop, the only store, depends on: used[id] says how often. */
static bool find_used(const ap_nest *n, uint32_t *used)
{
    for (uint32_t i = n->nsops; i-- > 0;) {
        const ap_sop *s = &n->sop[i];
        if (s->kind == AP_SOP_STORE && (s->operand != 2 || i + 1 != n->nsops))
            return false;
        if (s->kind != AP_SOP_STORE && !used[i])
            continue;
        for (int a = 0; a < ap_sop_argument_count(s); a++)
            used[s->arg[a]]++;
    }
    return n->nsops > 0 && n->sop[n->nsops - 1].kind == AP_SOP_STORE;
}

static bool is_gelu_step(const ap_sop *s)
{
    switch (s->pw) {
    case AP_PW_ADD:
    case AP_PW_SUB:
    case AP_PW_MUL:
    case AP_PW_DIV:
    case AP_PW_NEG:
    case AP_PW_POW:
    case AP_PW_TANH:
    case AP_PW_CAST:
        return s->kind == AP_SOP_POINTWISE && ap_dtype_is_float(s->dtype);
    default:
        return false;
    }
}

/* The stored number when the sop `from` is x, all that follows computed without rounding; false: it depends on
 * something else as well, or is no such function. */
static bool follow(const ap_nest *n, const uint32_t *used, uint32_t from, double x, ap_scalar *value, bool *known)
{
    int tanhs = 0;
    for (uint32_t i = 0; i + 1 < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        known[i] = i == from || s->kind == AP_SOP_CONST;
        value[i] = i == from ? (ap_scalar){.f = x} : s->imm;
        if (known[i] || !used[i] || s->kind == AP_SOP_LOAD || i < from)
            continue;
        ap_scalar arg[3];
        for (int a = 0; a < ap_sop_argument_count(s); a++) {
            if (!known[s->arg[a]] || !ap_dtype_is_float(n->sop[s->arg[a]].dtype))
                return false;
            arg[a] = value[s->arg[a]];
        }
        if (!is_gelu_step(s))
            return false;
        tanhs += s->pw == AP_PW_TANH;
        value[i] = ap_pointwise_eval((ap_pointwise)s->pw, AP_F64, AP_F64, arg);
        known[i] = true;
    }
    return tanhs == 1 && known[n->sop[n->nsops - 1].arg[0]];
}

/* Is what follows `from` x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), in whatever way it is written? Rational
 * functions of x and one tanh that agree at so many places, as far as constants of this type go, are one. */
static bool is_gelu_by_tanh(const ap_emit *e, const ap_kernel *k, const uint32_t *used, uint32_t from)
{
    const ap_nest *n = &k->nest;
    double precision = k->gemm.dtype == AP_F16 ? 0x1p-10 : 0x1p-7;
    ap_scalar *value = AP_NEW_ARRAY(&e->ctx->scratch, ap_scalar, n->nsops);
    bool *known = AP_NEW_ARRAY(&e->ctx->scratch, bool, n->nsops);
    if (k->gemm.dtype != AP_F16 && k->gemm.dtype != AP_BF16)
        return false;
    for (int i = -40; i <= 40; i++) {
        double x = 0.1875 * i, want = 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
        if (!follow(n, used, from, x, value, known))
            return false;
        double got = value[n->sop[n->nsops - 1].arg[0]].f;
        if (!(fabs(got - want) <= precision * fmax(1, fabs(x))))
            return false;
    }
    return true;
}

/* The epilogue that does all that follows; "NOTHING" where there is none. */
static after find_after(const ap_emit *e, const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    const after nothing = {"NOTHING", 0};
    uint32_t *used = AP_NEW_ARRAY(&e->ctx->scratch, uint32_t, n->nsops), at = AP_NONE, bias = 0;
    if (!find_used(n, used))
        return nothing;
    for (uint32_t i = 0; i < n->nsops; i++)
        if (n->sop[i].kind == AP_SOP_LOAD && n->sop[i].operand == 2 && used[i]) {
            if (at != AP_NONE)
                return nothing;
            at = i;
        }
    for (uint32_t i = 0; i < n->nsops && at != AP_NONE && used[at] == 1 && !bias; i++) {
        const ap_sop *s = &n->sop[i];
        if (s->kind != AP_SOP_POINTWISE || s->pw != AP_PW_ADD || !used[i] || (s->arg[0] != at && s->arg[1] != at))
            continue;
        const ap_sop *other = &n->sop[s->arg[0] == at ? s->arg[1] : s->arg[0]];
        if (!is_bias(k, other))
            continue;
        bias = other->operand;
        at = i;
    }
    if (at != AP_NONE && n->sop[n->nsops - 1].arg[0] == at)
        return bias ? (after){"BIAS", bias} : nothing;
    if (at != AP_NONE && is_gelu_by_tanh(e, k, used, at))
        return bias ? (after){"BIAS_GELU_TANH", bias} : (after){"GELU_TANH", 0};
    return nothing;
}

static bool has_rest(const ap_emit *e, const ap_kernel *k)
{
    return k->nest.nsops && find_after(e, k).name[0] == 'N';
}

/* ---- the table ---- */

static void print_strides(ap_text *t, int n, const int64_t *x)
{
    ap_text_add(t, "    ");
    ap_emit_list(t, n, x);
    ap_text_add(t, ",\n");
}

void ap_cuda_gemm_table(const ap_emit *e, uint32_t index, ap_text *t)
{
    const ap_kernel *k = e->kernel[index];
    const ap_gemm *g = &k->gemm;
    int64_t sum[AP_MAX_LOOPS];
    for (int l = 0; l < g->nloops; l++)
        sum[l] = g->sum[l];
    ap_text_addf(t, "const aprt_cuda_product %s_p_%s = {\n    %s, %d,\n    /* extents, strides of a, b, c, summed */\n",
                 e->opt->name, ap_name_str(e->ctx, k->name), ap_emit_dtype(g->dtype), g->nloops);
    print_strides(t, g->nloops, g->extent);
    print_strides(t, g->nloops, g->stride_a);
    print_strides(t, g->nloops, g->stride_b);
    print_strides(t, g->nloops, g->stride_c);
    print_strides(t, g->nloops, sum);
    ap_text_addf(t,
                 "    /* m, n, k; rows and columns of a, of b, rows of c */\n    %" PRId64 ", %" PRId64 ", %" PRId64
                 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ",\n    APRT_CUDA_%s};\n",
                 g->m, g->n, g->k, g->rsa, g->csa, g->rsb, g->csb, g->rsc, find_after(e, k).name);
}

static void print_turns(ap_text *t, int64_t extent, uint32_t turns)
{
    if (turns)
        ap_text_addf(t, "n%" PRIu32, turns - 1);
    else
        ap_text_addf(t, "%" PRId64, extent);
}

static bool has_turns(const ap_gemm *g)
{
    bool any = g->turns_m || g->turns_n || g->turns_k;
    for (int l = 0; l < g->nloops; l++)
        any = any || g->turns[l];
    return any;
}

void ap_cuda_gemm(const ap_emit *e, uint32_t index, ap_text *kernel, ap_text *launch)
{
    const ap_kernel *k = e->kernel[index];
    const ap_gemm *g = &k->gemm;
    after then = find_after(e, k);
    ap_text rest;
    ap_text_init(&rest, &e->ctx->scratch);
    ap_cuda_gemm_table(e, index, kernel);
    if (has_rest(e, k)) {
        ap_text_add(kernel, "\n");
        ap_cuda_nest(e, index, kernel, &rest);
    }
    if (has_turns(g)) {
        ap_text_add(launch, "    const int64_t turns[] = {");
        for (int l = 0; l < g->nloops; l++) {
            print_turns(launch, g->extent[l], g->turns[l]);
            ap_text_add(launch, ", ");
        }
        print_turns(launch, g->m, g->turns_m);
        ap_text_add(launch, ", ");
        print_turns(launch, g->n, g->turns_n);
        ap_text_add(launch, ", ");
        print_turns(launch, g->k, g->turns_k);
        ap_text_add(launch, "};\n");
    }
    ap_text_addf(launch, "    aprt_cuda_gemm(d, &%s_p_%s, %s, a, b, c, ", e->opt->name, ap_name_str(e->ctx, k->name),
                 has_turns(g) ? "turns" : "NULL");
    if (then.bias)
        ap_emit_operand(launch, k, then.bias);
    else
        ap_text_add(launch, "NULL");
    ap_text_add(launch, ");\n");
    ap_text_add(launch, ap_text_str(&rest));
}
