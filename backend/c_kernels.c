/* kernels.c and kernels.h: one function per kernel, with what it computes above it. */
#include "backend/emit.h"

#include <inttypes.h>

void ap_emit_operand(ap_text *t, const ap_kernel *k, uint32_t i)
{
    uint32_t number = 0;
    bool product = k->kind == AP_KERNEL_GEMM;
    if (product && i < 3) {
        ap_text_addf(t, "%c", "abc"[i]);
        return;
    }
    for (uint32_t j = product ? 3 : 0; j < i; j++)
        number += k->operand[j].written == k->operand[i].written;
    ap_text_addf(t, "%c%u", k->operand[i].written ? 'y' : 'x', number);
}

static bool has_parameters(const ap_kernel *k)
{
    return k->noperands || k->nints;
}

/* void NAME_k_softmax(const float *restrict x0, float *restrict y0) */
static void print_prototype(const ap_emit *e, ap_text *t, uint32_t index)
{
    const ap_kernel *k = e->kernel[index];
    const char *comma = "";
    ap_text_addf(t, "%s %s_k_%s(", ap_emit_nest_checks(k) ? "int" : "void", e->opt->name, ap_name_str(e->ctx, k->name));
    for (uint32_t i = 0; i < k->noperands; i++) {
        ap_text_addf(t, "%s%s%s *%s", comma, k->operand[i].written ? "" : "const ", ap_dtype_c(k->operand[i].dtype),
                     e->apart[index] ? "restrict " : "");
        ap_emit_operand(t, k, i);
        comma = ", ";
    }
    for (uint32_t i = 0; i < k->nints; i++) {
        ap_text_addf(t, "%sint64_t n%u", comma, i);
        comma = ", ";
    }
    if (ap_emit_nest_scratch(k)) {
        ap_text_addf(t, "%schar *scratch", comma);
        comma = ", ";
    }
    if (ap_emit_nest_checks(k)) {
        ap_text_addf(t, "%saprt_bad *bad", comma);
        comma = ", ";
    }
    ap_text_add(t, has_parameters(k) || *comma ? ")" : "void)");
}

/* ---- matrix products ---- */

static void print_matrix(ap_text *t, char name, const ap_gemm *g, const int64_t *stride)
{
    ap_text_addf(t, "%c", name);
    for (int l = 0; l < g->nloops; l++)
        if (stride[l] == 1)
            ap_text_addf(t, " + i%d", l);
        else if (stride[l] != 0)
            ap_text_addf(t, " %c %" PRId64 "*i%d", stride[l] < 0 ? '-' : '+', stride[l] < 0 ? -stride[l] : stride[l],
                         l);
}

/* C is overwritten in the first turn of the summed loops. */
static void print_beta(ap_text *t, const ap_gemm *g)
{
    const char * or = "";
    for (int l = 0; l < g->nloops; l++)
        if (g->sum[l] && g->extent[l] > 1) {
            ap_text_addf(t, "%si%d > 0", or, l);
            or = " || ";
        }
    if (!* or)
        ap_text_add(t, "0");
}

static void print_turns(ap_text *t, int64_t extent, uint32_t turns)
{
    if (turns)
        ap_text_addf(t, "n%" PRIu32, turns - 1);
    else
        ap_text_addf(t, "%" PRId64, extent);
}

/* Summed loops whose turns depend on the rank: without any, one turn adds a product of k = 0. */
static bool may_sum_nothing(const ap_gemm *g, int l)
{
    return g->sum[l] && g->turns[l];
}

static void print_bound(ap_text *t, const ap_gemm *g, int l, bool nothing)
{
    if (nothing && g->sum[l])
        ap_text_add(t, "1");
    else if (may_sum_nothing(g, l))
        ap_text_addf(t, "(n%" PRIu32 " > 0 ? n%" PRIu32 " : 1)", g->turns[l] - 1, g->turns[l] - 1);
    else
        print_turns(t, g->extent[l], g->turns[l]);
}

static void print_k(ap_text *t, const ap_gemm *g, bool nothing)
{
    if (nothing) {
        ap_text_add(t, "0");
        return;
    }
    for (int l = 0; l < g->nloops; l++)
        if (may_sum_nothing(g, l))
            ap_text_addf(t, "n%" PRIu32 " == 0 ? 0 : ", g->turns[l] - 1);
    print_turns(t, g->k, g->turns_k);
}

static void print_gemm(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    const ap_gemm *g = &k->gemm;
    bool nothing = g->k == 0; /* an empty sum: C becomes zero, once */
    int depth = 1;
    for (int l = 0; l < g->nloops; l++)
        nothing |= g->sum[l] && g->extent[l] == 0;
    for (int l = 0; l < g->nloops; l++) {
        ap_text_addf(t, "%*sfor (int64_t i%d = 0; i%d < ", 4 * depth++, "", l, l);
        print_bound(t, g, l, nothing);
        ap_text_addf(t, "; i%d++)\n", l);
    }
    ap_text_addf(t, "%*saprt_gemm_%s%s(", 4 * depth, "", g->panels ? "panels_" : "", ap_dtype_str(g->dtype));
    print_turns(t, g->m, g->turns_m);
    ap_text_add(t, ", ");
    print_turns(t, g->n, g->turns_n);
    ap_text_add(t, ", ");
    print_k(t, g, nothing);
    ap_text_add(t, ", ");
    print_matrix(t, 'a', g, g->stride_a);
    ap_text_addf(t, ", %" PRId64 ", %" PRId64 ", ", g->rsa, g->csa);
    print_matrix(t, 'b', g, g->stride_b);
    if (g->panels)
        ap_text_add(t, ", ");
    else
        ap_text_addf(t, ", %" PRId64 ", %" PRId64 ", ", g->rsb, g->csb);
    if (nothing)
        ap_text_add(t, "0");
    else
        print_beta(t, g);
    ap_text_add(t, ", ");
    print_matrix(t, 'c', g, g->stride_c);
    ap_text_addf(t, ", %" PRId64 ", ", g->rsc);
    if (k->nest.nsops)
        ap_emit_after_argument(e, t, k);
    else
        ap_text_add(t, "NULL, NULL");
    ap_text_add(t, ");\n");
}

static void print_about(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    ap_text_add(t, "\n/* ");
    ap_emit_comment(t, k->about && *k->about ? k->about : ap_name_str(e->ctx, k->name), true);
    ap_text_add(t, " */\n");
}

/* ---- files ---- */

static ap_status write_prototypes(const ap_emit *e)
{
    ap_text t;
    ap_text_init(&t, &e->ctx->scratch);
    ap_emit_top(e, &t, "the kernels, private to this model");
    ap_text_addf(&t, "#ifndef %s_KERNELS_H\n#define %s_KERNELS_H\n\n#include <autopar_rt.h>\n\n", e->opt->name,
                 e->opt->name);
    for (uint32_t i = 0; i < e->nkernels; i++) {
        const ap_kernel *k = e->kernel[i];
        if (!ap_emit_kernel_is_for(e, i, AP_TARGET_CPU))
            continue;
        ap_text_add(&t, "APRT_HIDDEN ");
        if (k->kind == AP_KERNEL_CONV)
            ap_text_addf(&t, "extern const aprt_conv %s_k_%s", e->opt->name, ap_name_str(e->ctx, k->name));
        else
            print_prototype(e, &t, i);
        ap_text_add(&t, ";\n");
    }
    ap_text_add(&t, "\n#endif\n");
    return ap_emit_file(e, "kernels.h", &t);
}

/* `omp simd` knows max and min, but not that NaN wins. */
static void print_reductions(ap_text *t)
{
    static const char *const types[][2] = {{"float", "f32"}, {"double", "f64"}};
    for (int i = 0; i < 2; i++)
        for (int max = 0; max < 2; max++)
            ap_text_addf(t,
                         "#pragma omp declare reduction(aprt_%s : %s : omp_out = aprt_%s_%s(omp_out, omp_in)) "
                         "initializer(omp_priv = %sINFINITY)\n",
                         max ? "max" : "min", types[i][0], max ? "max" : "min", types[i][1], max ? "-" : "");
}

ap_status ap_emit_kernels(ap_emit *e)
{
    ap_text t;
    ap_text_init(&t, &e->ctx->scratch);
    AP_TRY(write_prototypes(e));
    ap_emit_top(e, &t, "the kernels");
    ap_text_add(&t, "#include \"kernels.h\"\n\n");
    print_reductions(&t);
    for (uint32_t i = 0; i < e->nkernels; i++) {
        const ap_kernel *k = e->kernel[i];
        if (!ap_emit_kernel_is_for(e, i, AP_TARGET_CPU))
            continue;
        print_about(e, &t, k);
        if (k->kind == AP_KERNEL_CONV) {
            if (!ap_emit_conv_knows(k))
                return ap_fail(e->ctx, AP_ERR_BUG, 0, "a convolution with a step that there is none for");
            ap_emit_conv_table(e, &t, k);
            continue;
        }
        if (k->kind == AP_KERNEL_GEMM && k->nest.nsops)
            ap_emit_after(e, &t, i);
        print_prototype(e, &t, i);
        ap_text_add(&t, "\n{\n");
        if (k->kind == AP_KERNEL_GEMM)
            print_gemm(e, &t, k);
        else if (k->kind == AP_KERNEL_POOL)
            ap_emit_pool(e, &t, k);
        else if (k->kind == AP_KERNEL_TOPK)
            ap_emit_rows(&t, k);
        else
            ap_emit_nest(e, &t, k);
        ap_text_add(&t, "}\n");
    }
    return ap_emit_file(e, "kernels.c", &t);
}
