/* program.c: the tables of one stage. */
#include "backend/emit.h"

#include "ir/local_written.h"

#include <inttypes.h>

static const char *const exchange_constant[AP_EXCHANGE_KIND_COUNT] = {
    [AP_EXCHANGE_ALL_GATHER] = "APRT_ALL_GATHER",
    [AP_EXCHANGE_REDUCE_SCATTER] = "APRT_REDUCE_SCATTER",
    [AP_EXCHANGE_ALL_REDUCE] = "APRT_ALL_REDUCE",
    [AP_EXCHANGE_ALL_TO_ALL] = "APRT_ALL_TO_ALL",
};
static const char *const store_constant[AP_STORE_COUNT] = {
    [AP_STORE_PLAIN] = "APRT_PLAIN",
    [AP_STORE_PANELS] = "APRT_PANELS",
    [AP_STORE_PREPARED] = "APRT_PREPARED",
};
static const char *const fold_constant[AP_PARTIAL_COUNT] = {
    [AP_PARTIAL_SUM] = "APRT_FOLD_SUM",
    [AP_PARTIAL_MAX] = "APRT_FOLD_MAX",
    [AP_PARTIAL_MIN] = "APRT_FOLD_MIN",
};

const char *ap_emit_exchange_name(ap_exchange_kind k)
{
    static const char *const name[AP_EXCHANGE_KIND_COUNT] = {
        [AP_EXCHANGE_ALL_GATHER] = "all_gather",
        [AP_EXCHANGE_REDUCE_SCATTER] = "reduce_scatter",
        [AP_EXCHANGE_ALL_REDUCE] = "all_reduce",
        [AP_EXCHANGE_ALL_TO_ALL] = "all_to_all",
    };
    return name[k];
}

/* , 1, (const aprt_count[]){{dimension, {elements, {step per axis}}, less per peer}} */
static void print_counts(const ap_emit *e, ap_text *t, uint8_t n, const ap_count *count)
{
    ap_text_addf(t, ", %d, %s", n, n ? "(const aprt_count[]){" : "NULL");
    for (uint8_t i = 0; i < n; i++) {
        ap_text_addf(t, "%s{%d, {%" PRId64 ", ", i ? ", " : "", count[i].dim, count[i].value.base);
        ap_emit_list(t, e->p->naxes, count[i].value.step);
        ap_text_addf(t, "}, %" PRId64 "}", count[i].per_peer);
    }
    ap_text_add(t, n ? "}" : "");
}

void ap_emit_port(const ap_emit *e, ap_text *t, const ap_port *port, const char *name)
{
    ap_text_add(t, "{");
    ap_emit_string(t, name ? name : ap_name_str(e->ctx, port->name));
    ap_text_addf(t, ", %d /* %s */, %d, ", ap_dtype_onnx(port->dtype), ap_dtype_str(port->dtype), port->rank);
    ap_emit_list(t, port->rank, port->dim);
    ap_text_add(t, "}");
}

static void print_params(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    if (!p->params.len)
        return;
    ap_text_addf(t,
                 "\n/* logical tensor; this rank's box: extents, strides, {offset, step per axis}; its place, bytes; "
                 "counts of what is there; how it lies, k, n */\n"
                 "static const aprt_param %sparams[] = {\n",
                 ap_emit_prefix(e));
    for (uint32_t i = 0; i < p->params.len; i++) {
        const ap_local_param *q = &p->params.at[i];
        ap_text_add(t, "    {");
        ap_emit_port(e, t, &q->port, e->weight[e->first_param[e->stage] + i]);
        ap_text_addf(t, ", %d, ", q->nfactors);
        ap_emit_list(t, q->nfactors, q->extent);
        ap_text_add(t, ", ");
        ap_emit_list(t, q->nfactors, q->stride);
        ap_text_addf(t, ", {%" PRId64 ", ", q->offset.base);
        ap_emit_list(t, p->naxes, q->offset.step);
        ap_text_addf(t, "}, %" PRId64 ", %" PRId64, q->byte_offset, q->bytes);
        print_counts(e, t, q->ncounts, q->count);
        ap_text_addf(t, ", %s, %" PRId64 ", %" PRId64 "},\n", store_constant[q->store.kind], q->store.k, q->store.n);
    }
    ap_text_add(t, "};\n");
}

static void print_groups(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    const char *prefix = ap_emit_prefix(e);
    if (!p->groups.len)
        return;
    ap_text_add(t, "\n/* Lists of ranks, one line each. */\n");
    for (uint32_t i = 0; i < p->groups.len; i++) {
        const ap_group *g = &p->groups.at[i];
        ap_text_addf(t, "static const int32_t %sgroup_%u[] = {\n", prefix, i);
        for (int32_t l = 0; l < g->count; l++) {
            ap_text_add(t, "    ");
            for (int32_t j = 0; j < g->size; j++)
                ap_text_addf(t, "%d,%s", p->first_rank + g->rank[l * g->size + j], j + 1 < g->size ? " " : "\n");
        }
        ap_text_add(t, "};\n");
    }
    ap_text_addf(t, "static const aprt_group %sgroups[] = {\n", prefix);
    for (uint32_t i = 0; i < p->groups.len; i++)
        ap_text_addf(t, "    {%d, %d, %sgroup_%u},\n", p->groups.at[i].count, p->groups.at[i].size, prefix, i);
    ap_text_add(t, "};\n");
}

static void print_exchange(const ap_emit *e, ap_text *t, const ap_exchange *x, uint32_t number)
{
    ap_text_addf(t, "    /* %u */ {%s, %s, %s, %u, %d, ", number, exchange_constant[x->kind], fold_constant[x->fold],
                 ap_emit_dtype(x->dtype), x->group, x->ndims);
    ap_emit_list(t, x->ndims, x->extent);
    ap_text_add(t, ", ");
    ap_emit_list(t, x->ndims, x->src_stride);
    ap_text_add(t, ", ");
    ap_emit_list(t, x->ndims, x->dst_stride);
    ap_text_addf(t, ", %" PRId64 ", %" PRId64, x->src_me, x->dst_peer);
    print_counts(e, t, x->ncounts, x->count);
    ap_text_add(t, "},\n");
}

static void print_exchanges(const ap_emit *e, ap_text *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->p->instrs.len; i++) {
        if (e->p->instrs.at[i].kind != AP_INSTR_EXCHANGE)
            continue;
        if (n == 0)
            ap_text_addf(t,
                         "\n/* kind, fold, type, group, dimensions: extents, strides at the source and destination; "
                         "offsets per position; counts of what is there */\n"
                         "static const aprt_exchange %sexchanges[] = {\n",
                         ap_emit_prefix(e));
        print_exchange(e, t, &e->p->instrs.at[i].exchange, n++);
    }
    if (n)
        ap_text_add(t, "};\n");
}

static const char *what_of(const ap_emit *e, const ap_instr *in)
{
    return in->kind == AP_INSTR_CALL ? ap_name_str(e->ctx, e->p->kernels.at[in->kernel].name)
                                     : ap_emit_exchange_name(in->exchange.kind);
}

static void print_instrs(const ap_emit *e, ap_text *t)
{
    if (!e->p->instrs.len)
        return;
    ap_text_addf(t,
                 "\n/* what, ONNX node, operator, predicted picoseconds */\nstatic const aprt_instr %sinstrs[] = {\n",
                 ap_emit_prefix(e));
    for (uint32_t i = 0; i < e->p->instrs.len; i++) {
        const ap_instr *in = &e->p->instrs.at[i];
        ap_loc_info loc = ap_loc_get(e->ctx, in->loc);
        ap_text_addf(t, "    /* %u */ {\"%s\", ", i, what_of(e, in));
        ap_emit_string(t, ap_name_str(e->ctx, loc.node));
        ap_text_add(t, ", ");
        ap_emit_string(t, ap_name_str(e->ctx, loc.op));
        ap_text_addf(t, ", %" PRId64 "},\n", in->picoseconds);
    }
    ap_text_add(t, "};\n");
}

/* Boxes of the program's outputs that a rank writes. */
static void print_written(const ap_emit *e, ap_text *t, const ap_written_list *all)
{
    if (!all->len)
        return;
    ap_text_addf(
        t,
        "\n/* output, dimensions: extents, strides, {offset, step per axis}; axes whose coordinates must be 0; "
        "counts of what is there */\nstatic const aprt_written %swritten[] = {\n",
        ap_emit_prefix(e));
    for (uint32_t i = 0; i < all->len; i++) {
        const ap_written *w = &all->at[i];
        ap_text_addf(t, "    {%u, %d, ", ap_program_port(e->program, e->stage, true, w->output), w->ndims);
        ap_emit_list(t, w->ndims, w->extent);
        ap_text_add(t, ", ");
        ap_emit_list(t, w->ndims, w->stride);
        ap_text_addf(t, ", {%" PRId64 ", ", w->offset.base);
        ap_emit_list(t, e->p->naxes, w->offset.step);
        ap_text_addf(t, "}, %u", w->when_mask);
        print_counts(e, t, w->ncounts, w->count);
        ap_text_add(t, "},\n");
    }
    ap_text_add(t, "};\n");
}

ap_status ap_emit_tables(const ap_emit *e, ap_text *t, uint32_t *out_written)
{
    ap_written_list written;
    AP_TRY(ap_local_written(e->p, &e->ctx->scratch, &written));
    print_params(e, t);
    print_groups(e, t);
    print_exchanges(e, t);
    print_instrs(e, t);
    print_written(e, t, &written);
    *out_written = written.len;
    return AP_OK;
}
