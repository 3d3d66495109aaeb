/* Matrix products: a table each for cuBLASLt. What follows is done by it where it has a name there, else by a kernel
 * over C behind it. */
#include "backend/cuda/cuda.h"

#include <inttypes.h>

/* ---- what follows ---- */

static bool is_load(const ap_sop *s, uint32_t operand)
{
    return s->kind == AP_SOP_LOAD && s->operand == operand;
}

/* One number for each column of C, adjacent. */
static bool is_bias(const ap_kernel *k, uint32_t operand)
{
    const ap_kernel_operand *o = &k->operand[operand];
    if (operand < 3 || o->written || o->dtype != k->gemm.dtype)
        return false;
    for (int l = 0; l < k->nest.nouter - 1; l++)
        if (o->stride[l] != 0 && (k->nest.extent[l] > 1 || k->nest.turns[l]))
            return false;
    return o->stride[k->nest.nouter - 1] == 1;
}

/* The epilogue that does all that follows; "NOTHING" when there is none. *out_bias: its operand, or 0. */
static const char *epilogue(const ap_kernel *k, uint32_t *out_bias)
{
    const ap_nest *n = &k->nest;
    uint32_t at = AP_NONE, bias = 0;
    bool relu = false;
    *out_bias = 0;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        if (is_load(s, 2) && at == AP_NONE) {
            at = i;
        } else if (s->kind == AP_SOP_LOAD && is_bias(k, s->operand)) {
            continue; /* counts where it is added */
        } else if (s->kind == AP_SOP_POINTWISE && s->pw == AP_PW_ADD && at != AP_NONE && !bias && !relu) {
            uint32_t other = s->arg[0] == at ? s->arg[1] : s->arg[0];
            if ((s->arg[0] != at && s->arg[1] != at) || n->sop[other].kind != AP_SOP_LOAD || other == at)
                return "NOTHING";
            bias = n->sop[other].operand;
            at = i;
        } else if (s->kind == AP_SOP_POINTWISE && s->pw == AP_PW_RELU && s->arg[0] == at && !relu) {
            relu = true;
            at = i;
        } else if (!(s->kind == AP_SOP_STORE && s->operand == 2 && s->arg[0] == at && i == n->nsops - 1)) {
            return "NOTHING";
        }
    }
    if (!bias && !relu)
        return "NOTHING";
    *out_bias = bias;
    return bias ? (relu ? "BIAS_RELU" : "BIAS") : "RELU";
}

static bool has_rest(const ap_kernel *k)
{
    uint32_t bias;
    return k->nest.nsops && epilogue(k, &bias)[0] == 'N';
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
    uint32_t bias;
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
                 g->m, g->n, g->k, g->rsa, g->csa, g->rsb, g->csb, g->rsc, epilogue(k, &bias));
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
    uint32_t bias;
    ap_text rest;
    ap_text_init(&rest, &e->ctx->scratch);
    ap_cuda_gemm_table(e, index, kernel);
    if (has_rest(k)) {
        ap_text_add(kernel, "\n");
        ap_cuda_nest(e, index, kernel, &rest);
    }
    epilogue(k, &bias);
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
    if (bias)
        ap_emit_operand(launch, k, bias);
    else
        ap_text_add(launch, "NULL");
    ap_text_add(launch, ");\n");
    ap_text_add(launch, ap_text_str(&rest));
}
