/* A kernel of a local program as text: loops, operands, and one line for each scalar operation. */
#include "ir/local_text.h"

#include "ir/print.h"

#include <inttypes.h>

static void print_sop_operands(const ap_sop *s, int nloops, ap_text *out)
{
    const char *const *reduce = ap_reduce_text;
    switch (s->kind) {
    case AP_SOP_LOAD:
        ap_text_addf(out, " %d", s->operand);
        break;
    case AP_SOP_GATHER:
        ap_text_addf(out, " %d at %%%" PRIu32, s->operand, s->arg[0]);
        if (s->imm.i >= 0)
            ap_text_addf(out, " - int %" PRId64, s->imm.i);
        ap_text_addf(out, " stride %" PRId64 " extent %" PRId64 " limit %" PRId64, s->stride, s->extent, s->limit);
        break;
    case AP_SOP_CHECK:
        ap_text_addf(out, " %%%" PRIu32 " limit %" PRId64, s->arg[0], s->limit);
        break;
    case AP_SOP_SCAN:
        ap_text_addf(out, " %s %%%" PRIu32 "%s", s->reduce < AP_REDUCE_KIND_COUNT ? reduce[s->reduce] : "?", s->arg[0],
                     s->imm.i ? " exclusive" : "");
        break;
    case AP_SOP_UPDATE:
        ap_text_addf(out, " %s %d, %%%" PRIu32, s->reduce < AP_SCATTER_KIND_COUNT ? ap_scatter_text[s->reduce] : "?",
                     s->operand, s->arg[0]);
        if (s->imm.i >= 0)
            ap_text_addf(out,
                         " at %%%" PRIu32 " - int %" PRId64 " stride %" PRId64 " extent %" PRId64 " limit %" PRId64,
                         s->arg[1], s->imm.i, s->stride, s->extent, s->limit);
        break;
    case AP_SOP_CONST:
        ap_text_add(out, " ");
        ap_print_scalar(s->dtype, s->imm, out);
        break;
    case AP_SOP_INDEX:
        ap_text_add(out, " ");
        ap_local_print_list(out, nloops, s->loop_stride);
        if (s->imm.i >= 0)
            ap_text_addf(out, " + int %" PRId64, s->imm.i);
        break;
    case AP_SOP_POINTWISE:
        for (int i = 0; i < ap_sop_nargs(s); i++)
            ap_text_addf(out, "%s%%%" PRIu32, i ? ", " : " ", s->arg[i]);
        break;
    case AP_SOP_REDUCE:
        ap_text_addf(out, " %s %%%" PRIu32, s->reduce < AP_REDUCE_KIND_COUNT ? reduce[s->reduce] : "?", s->arg[0]);
        break;
    case AP_SOP_STORE:
        ap_text_addf(out, " %d, %%%" PRIu32, s->operand, s->arg[0]);
        break;
    case AP_SOP_TEMP_STORE:
        ap_text_addf(out, " %" PRId64 ", %%%" PRIu32, s->imm.i, s->arg[0]);
        break;
    case AP_SOP_TEMP_LOAD:
        ap_text_addf(out, " %" PRId64, s->imm.i);
        break;
    default:
        ap_text_add(out, " ?");
        break;
    }
}

static void print_sop(const ap_sop *s, uint32_t id, int nloops, ap_text *out)
{
    const char *name = "?";
    if (s->kind == AP_SOP_POINTWISE && s->pw < AP_PW_COUNT)
        name = ap_pointwise_str((ap_pointwise)s->pw);
    else if (s->kind < AP_SOP_KIND_COUNT && ap_sop_text[s->kind])
        name = ap_sop_text[s->kind];
    ap_text_add(out, "    ");
    if (ap_sop_has_value(s))
        ap_text_addf(out, "%%%" PRIu32 " = ", id);
    ap_text_add(out, name);
    print_sop_operands(s, nloops, out);
    ap_text_addf(out, " : %s\n", s->dtype > 0 && s->dtype < AP_DTYPE_COUNT ? ap_dtype_str(s->dtype) : "?");
}

static void print_sections(const ap_nest *n, int nloops, ap_text *out)
{
    uint32_t id = 0;
    for (int s = 0; s < n->nsections && s < AP_LOCAL_MAX_SECTIONS; s++) {
        ap_text_addf(out, "  %s:\n", n->inner[s] ? "inner" : "row");
        for (; id < n->nsops && n->sop[id].section <= s; id++)
            print_sop(&n->sop[id], id, nloops, out);
    }
    for (; id < n->nsops; id++) /* in no section: shown, and refused by the verifier */
        print_sop(&n->sop[id], id, nloops, out);
}

static void print_nest(const ap_nest *n, ap_text *out)
{
    int nloops = n->nouter + n->ninner <= AP_MAX_LOOPS ? n->nouter + n->ninner : 0;
    if (nloops) {
        ap_text_add(out, "  outer ");
        ap_local_print_list(out, n->nouter, n->extent);
        ap_text_add(out, " inner ");
        ap_local_print_list(out, n->ninner, n->extent + n->nouter);
        ap_text_add(out, "\n");
    } else {
        ap_text_add(out, "  outer [] inner []\n");
    }
    for (int l = 0; l < nloops; l++)
        if (n->turns[l])
            ap_text_addf(out, "  turns %d int %" PRIu32 "\n", l, n->turns[l] - 1);
    for (int i = 0; i < n->ntemps && i < AP_LOCAL_MAX_TEMPS; i++)
        ap_text_addf(out, "  temp %s\n", n->temp_dtype[i] < AP_DTYPE_COUNT ? ap_dtype_str(n->temp_dtype[i]) : "?");
    print_sections(n, nloops, out);
}

/* `m 64`, `m 64 int 0` */
static void print_turns(const char *key, int64_t extent, uint32_t turns, ap_text *out)
{
    ap_text_addf(out, " %s %" PRId64, key, extent);
    if (turns)
        ap_text_addf(out, " int %" PRIu32, turns - 1);
}

static void print_gemm(const ap_gemm *g, ap_text *out)
{
    ap_text_addf(out, "  %s", g->dtype < AP_DTYPE_COUNT ? ap_dtype_str(g->dtype) : "?");
    print_turns("m", g->m, g->turns_m, out);
    print_turns("n", g->n, g->turns_n, out);
    print_turns("k", g->k, g->turns_k, out);
    ap_text_add(out, "\n");
    ap_text_addf(out, "  a [%" PRId64 ",%" PRId64 "] b ", g->rsa, g->csa);
    if (g->panels)
        ap_text_add(out, "panels");
    else
        ap_text_addf(out, "[%" PRId64 ",%" PRId64 "]", g->rsb, g->csb);
    ap_text_addf(out, " c [%" PRId64 ",%" PRId64 "]\n", g->rsc, g->csc);
    for (int i = 0; i < g->nloops && i < AP_MAX_LOOPS; i++) {
        ap_text_add(out, " ");
        print_turns("loop", g->extent[i], g->turns[i], out);
        ap_text_addf(out, " a %" PRId64 " b %" PRId64 " c %" PRId64 "%s\n", g->stride_a[i], g->stride_b[i],
                     g->stride_c[i], g->sum[i] ? " sum" : "");
    }
}

void ap_local_print_kernel(const ap_ctx *ctx, const ap_kernel *k, ap_text *out)
{
    bool nest = ap_kernel_has_loops(k);
    int nloops = k->nest.nouter + k->nest.ninner <= AP_MAX_LOOPS ? k->nest.nouter + k->nest.ninner : 0;
    ap_text_addf(out, "kernel %s @", k->kind < AP_KERNEL_COUNT ? ap_kernel_text[k->kind] : "?");
    ap_print_name(ctx, k->name, out);
    if (k->about && *k->about) {
        ap_text_add(out, " ");
        ap_text_add_quoted(out, k->about);
    }
    ap_text_add(out, " {\n");
    for (uint32_t i = 0; i < k->noperands; i++) {
        const ap_kernel_operand *o = &k->operand[i];
        ap_text_addf(out, "  %s %s", o->written ? "write" : "read",
                     o->dtype < AP_DTYPE_COUNT ? ap_dtype_str(o->dtype) : "?");
        if (nest || (i > 2 && ap_kernel_has_epilogue(k))) {
            ap_text_add(out, " ");
            ap_local_print_list(out, nloops, o->stride);
        }
        ap_text_add(out, "\n");
    }
    if (k->nints)
        ap_text_addf(out, "  ints %" PRIu32 "\n", k->nints);
    if (nest)
        print_nest(&k->nest, out);
    if (k->kind == AP_KERNEL_CONV)
        ap_local_print_conv(&k->conv, out);
    if (k->kind == AP_KERNEL_TOPK)
        ap_local_print_topk(&k->topk, out);
    if (k->kind == AP_KERNEL_POOL)
        ap_local_print_pool(&k->pool, out);
    if (k->kind == AP_KERNEL_GEMM)
        print_gemm(&k->gemm, out);
    if (ap_kernel_has_epilogue(k))
        print_sections(&k->nest, nloops, out);
    ap_text_add(out, "}\n");
}
