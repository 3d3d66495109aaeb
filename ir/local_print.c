/* A local program as text: one line for a port, parameter, group and instruction; a kernel lists its
 * operands, loops and scalar operations. docs/ir.md gives the syntax. */
#include "ir/local_text.h"

#include "ir/print.h"

#include <inttypes.h>

const char *const ap_kernel_text[AP_KERNEL_COUNT] = {"nest", "gemm", "pool", "topk", "conv"};
const char *const ap_space_text[AP_SPACE_COUNT] = {"arena", "param", "input", "output"};
const char *const ap_exchange_text[AP_EXCHANGE_KIND_COUNT] = {"all_gather", "reduce_scatter", "all_reduce",
                                                              "all_to_all"};
const char *const ap_sop_text[AP_SOP_KIND_COUNT] = {
    [AP_SOP_LOAD] = "load",
    [AP_SOP_GATHER] = "gather",
    [AP_SOP_CONST] = "const",
    [AP_SOP_INDEX] = "index",
    [AP_SOP_POINTWISE] = NULL,
    [AP_SOP_REDUCE] = "reduce",
    [AP_SOP_CHECK] = "check",
    [AP_SOP_SCAN] = "scan",
    [AP_SOP_UPDATE] = "update",
    [AP_SOP_STORE] = "store",
    [AP_SOP_TEMP_STORE] = "temp_store",
    [AP_SOP_TEMP_LOAD] = "temp_load",
};

void ap_local_print_list(ap_text *out, int n, const int64_t *at)
{
    ap_text_add(out, "[");
    for (int i = 0; i < n; i++)
        ap_text_addf(out, "%s%" PRId64, i ? "," : "", at[i]);
    ap_text_add(out, "]");
}

static const char *dtype_text(ap_dtype t)
{
    return t > AP_DTYPE_NONE && t < AP_DTYPE_COUNT ? ap_dtype_str(t) : "?";
}

/* "128*tp - 3"; `tail`: every term with its sign, nothing for zero: "+128*tp-3" */
static void print_affine(const ap_local *p, const ap_affine *a, bool tail, ap_text *out)
{
    bool begun = tail;
    for (int i = 0; i < p->naxes; i++) {
        if (!a->step[i])
            continue;
        ap_text_addf(out, begun ? "%+" PRId64 "*" : "%" PRId64 "*", a->step[i]);
        ap_print_axis(p->ctx, p->axis_name[i], out);
        begun = true;
    }
    if (a->base || !begun)
        ap_text_addf(out, begun ? "%+" PRId64 : "%" PRId64, a->base);
}

static void print_ref(const ap_local *p, const ap_ref *r, ap_text *out)
{
    if (r->space == AP_SPACE_ARENA)
        ap_text_addf(out, "arena(%" PRId64 ")", r->byte_offset);
    else
        ap_text_addf(out, "%s(%" PRIu32 ")", r->space < AP_SPACE_COUNT ? ap_space_text[r->space] : "?", r->index);
    print_affine(p, &r->offset, true, out);
}

void ap_port_print(const ap_ctx *ctx, const ap_port *port, ap_text *out)
{
    ap_text_add_quoted(out, ap_name_str(ctx, port->name));
    ap_text_addf(out, " %s", dtype_text(port->dtype));
    ap_local_print_list(out, port->rank, port->dim);
}

void ap_ports_print(const ap_ctx *ctx, uint32_t ninputs, const ap_port *input, uint32_t noutputs, const ap_port *output,
                    ap_text *out)
{
    for (uint32_t i = 0; i < ninputs + noutputs; i++) {
        ap_text_add(out, i < ninputs ? "input " : "output ");
        ap_port_print(ctx, i < ninputs ? &input[i] : &output[i - ninputs], out);
        ap_text_add(out, "\n");
    }
}

/* ` count 0 of 12-4*x`, ` count 1 of 7 peer 2`: behind a box */
static void print_counts(const ap_local *p, uint8_t n, const ap_count *count, ap_text *out)
{
    for (uint8_t i = 0; i < n; i++) {
        ap_text_addf(out, " count %d of ", count[i].dim);
        print_affine(p, &count[i].value, false, out);
        if (count[i].per_peer)
            ap_text_addf(out, " peer %" PRId64, count[i].per_peer);
    }
}

static void print_int(const ap_local *p, const ap_int *x, ap_text *out)
{
    if (ap_int_is_plain(x)) {
        print_affine(p, &x->value, false, out);
        return;
    }
    ap_text_add(out, "clamp(");
    print_affine(p, &x->value, false, out);
    ap_text_addf(out, ", %" PRId64 ", %" PRId64 ")", x->lo, x->hi);
}

static void print_param(const ap_local *p, uint32_t i, ap_text *out)
{
    const ap_local_param *w = &p->params.at[i];
    ap_text_addf(out, "param %" PRIu32 " ", i);
    ap_port_print(p->ctx, &w->port, out);
    ap_text_add(out, " box ");
    ap_local_print_list(out, w->nfactors, w->extent);
    print_counts(p, w->ncounts, w->count, out);
    ap_text_add(out, " strides ");
    ap_local_print_list(out, w->nfactors, w->stride);
    ap_text_add(out, " from ");
    print_affine(p, &w->offset, false, out);
    ap_text_addf(out, " at %" PRId64 " bytes %" PRId64, w->byte_offset, w->bytes);
    if (w->store.kind == AP_STORE_PANELS)
        ap_text_addf(out, " panels [%" PRId64 ",%" PRId64 "]", w->store.k, w->store.n);
    if (w->store.kind == AP_STORE_PREPARED)
        ap_text_add(out, " prepared");
    if (w->data.kind != AP_DATA_NONE) {
        ap_text_add(out, " ");
        ap_print_data_in_parens(p->ctx, &w->data, out);
    }
    ap_print_loc(p->ctx, w->loc, out);
    ap_text_add(out, "\n");
}

static void print_group(const ap_local *p, uint32_t id, ap_text *out)
{
    const ap_group *g = &p->groups.at[id];
    ap_text_addf(out, "group %" PRIu32, id);
    for (int32_t i = 0; i < g->count; i++) {
        ap_text_add(out, " [");
        for (int32_t k = 0; k < g->size; k++)
            ap_text_addf(out, "%s%" PRId32, k ? "," : "", g->rank[i * g->size + k]);
        ap_text_add(out, "]");
    }
    ap_text_add(out, "\n");
}

/* `when zero(tp)`, `ps 1200`, loc: at the end of every instruction */
static void print_tail(const ap_local *p, const ap_instr *in, ap_text *out)
{
    if (in->when != AP_WHEN_ALWAYS) {
        const char *comma = "";
        ap_text_addf(out, " when %s(", in->when == AP_WHEN_ZERO ? "zero" : "nonzero");
        for (int a = 0; a < p->naxes; a++) {
            if (!(in->when_mask >> a & 1))
                continue;
            ap_text_add(out, comma);
            ap_print_axis(p->ctx, p->axis_name[a], out);
            comma = ",";
        }
        ap_text_add(out, ")");
    }
    if (in->picoseconds)
        ap_text_addf(out, " ps %" PRId64, in->picoseconds);
    ap_print_loc(p->ctx, in->loc, out);
    ap_text_add(out, "\n");
}

static void print_call(const ap_local *p, const ap_instr *in, ap_text *out)
{
    ap_text_add(out, "call @");
    if (in->kernel < p->kernels.len)
        ap_print_name(p->ctx, p->kernels.at[in->kernel].name, out);
    else
        ap_text_add(out, "?");
    ap_text_add(out, "(");
    for (uint32_t i = 0; i < in->nrefs; i++) {
        ap_text_add(out, i ? ", " : "");
        print_ref(p, &in->ref[i], out);
    }
    ap_text_add(out, ")");
    if (in->nints) {
        ap_text_add(out, " ints(");
        for (uint32_t i = 0; i < in->nints; i++) {
            ap_text_add(out, i ? ", " : "");
            print_int(p, &in->ints[i], out);
        }
        ap_text_add(out, ")");
    }
}

static void print_exchange(const ap_local *p, const ap_instr *in, ap_text *out)
{
    const ap_exchange *x = &in->exchange;
    if (x->kind >= AP_EXCHANGE_KIND_COUNT || in->nrefs != 2) {
        ap_text_add(out, "?");
        return;
    }
    ap_text_addf(out, "%s", ap_exchange_text[x->kind]);
    if (ap_exchange_folds(x->kind))
        ap_text_addf(out, " %s", x->fold < AP_PARTIAL_COUNT ? ap_partial_text[x->fold] : "?");
    ap_text_addf(out, " %s group %" PRIu32 " box ", dtype_text(x->dtype), x->group);
    ap_local_print_list(out, x->ndims, x->extent);
    print_counts(p, x->ncounts, x->count, out);
    ap_text_add(out, " from ");
    print_ref(p, &in->ref[0], out);
    ap_local_print_list(out, x->ndims, x->src_stride);
    if (ap_exchange_has_me(x->kind))
        ap_text_addf(out, " me %" PRId64, x->src_me);
    ap_text_add(out, " to ");
    print_ref(p, &in->ref[1], out);
    ap_local_print_list(out, x->ndims, x->dst_stride);
    if (ap_exchange_has_peer(x->kind))
        ap_text_addf(out, " peer %" PRId64, x->dst_peer);
}

static void print_head(const ap_local *p, ap_text *out)
{
    ap_text_add(out, "local @");
    ap_print_name(p->ctx, p->name, out);
    ap_text_addf(out, " ranks %" PRId32, p->nranks);
    if (p->first_rank)
        ap_text_addf(out, " from %" PRId32, p->first_rank);
    if (p->ntime)
        ap_text_addf(out, " time " AP_TIME_AXIS "=%" PRId32, p->axis_size[0]);
    ap_text_add(out, " axes [");
    for (int a = p->ntime; a < p->naxes; a++) {
        ap_text_add(out, a > p->ntime ? ", " : "");
        ap_print_axis(p->ctx, p->axis_name[a], out);
        ap_text_addf(out, "=%" PRId32 " stride %" PRId32, p->axis_size[a], p->axis_stride[a]);
    }
    ap_text_addf(out, "] arena %" PRId64, p->arena_bytes);
    if (p->live_bytes)
        ap_text_addf(out, " live %" PRId64, p->live_bytes);
    ap_text_addf(out, " params %" PRId64 "\n", p->param_bytes);
}

void ap_local_print(const ap_local *p, ap_text *out)
{
    print_head(p, out);
    for (uint32_t i = 0; i < p->inputs.len + p->outputs.len; i++) {
        bool input = i < p->inputs.len;
        const ap_port *port = input ? &p->inputs.at[i] : &p->outputs.at[i - p->inputs.len];
        ap_text_addf(out, "%s%s", input ? "input " : "output ", port->slot ? "slot " : "");
        ap_port_print(p->ctx, port, out);
        ap_text_add(out, "\n");
    }
    for (uint32_t i = 0; i < p->params.len; i++)
        print_param(p, i, out);
    for (uint32_t i = 0; i < p->groups.len; i++)
        print_group(p, i, out);
    for (uint32_t i = 0; i < p->kernels.len; i++)
        ap_local_print_kernel(p->ctx, &p->kernels.at[i], out);
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        const ap_instr *in = &p->instrs.at[i];
        if (in->kind == AP_INSTR_CALL)
            print_call(p, in, out);
        else
            print_exchange(p, in, out);
        print_tail(p, in, out);
    }
}
