/* program.c: the tables of a program and its instruction list, one function that every device runs. Devices differ in
 * their coordinates, and these only stand in offsets and conditions. */
#include "backend/emit.h"

#include <inttypes.h>

static const char *const exchange_name[AP_EXCHANGE_KIND_COUNT] = {
    [AP_EXCHANGE_ALL_GATHER] = "all_gather",
    [AP_EXCHANGE_REDUCE_SCATTER] = "reduce_scatter",
    [AP_EXCHANGE_ALL_REDUCE] = "all_reduce",
    [AP_EXCHANGE_ALL_TO_ALL] = "all_to_all",
};
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

/* {1, 2, 3}; C has no empty initialiser, so that an empty list is {0} */
static void print_list(ap_text *t, int n, const int64_t *x)
{
    ap_text_add(t, "{");
    for (int i = 0; i < n; i++)
        ap_text_addf(t, "%s%" PRId64, i ? ", " : "", x[i]);
    ap_text_add(t, n ? "}" : "0}");
}

/* , 1, (const aprt_count[]){{dimension, {elements, {step per axis}}, less per peer}} */
static void print_counts(const ap_emit *e, ap_text *t, uint8_t n, const ap_count *count)
{
    ap_text_addf(t, ", %d, %s", n, n ? "(const aprt_count[]){" : "NULL");
    for (uint8_t i = 0; i < n; i++) {
        ap_text_addf(t, "%s{%d, {%" PRId64 ", ", i ? ", " : "", count[i].dim, count[i].value.base);
        print_list(t, e->p->naxes, count[i].value.step);
        ap_text_addf(t, "}, %" PRId64 "}", count[i].per_peer);
    }
    ap_text_add(t, n ? "}" : "");
}

/* ---- tables ---- */

static void print_port(const ap_emit *e, ap_text *t, const ap_port *port, const char *name)
{
    ap_text_add(t, "{");
    ap_emit_string(t, name ? name : ap_name_str(e->ctx, port->name));
    ap_text_addf(t, ", %d /* %s */, %d, ", ap_dtype_onnx(port->dtype), ap_dtype_str(port->dtype), port->rank);
    print_list(t, port->rank, port->dim);
    ap_text_add(t, "}");
}

/* The table of the API and that of the runtime: same text, other types. */
static void print_ports(const ap_emit *e, ap_text *t, const char *declaration, uint32_t n, const ap_port *port)
{
    ap_text_addf(t, "%s[%u] = {\n", declaration, n ? n : 1);
    for (uint32_t i = 0; i < n; i++) {
        ap_text_add(t, "    ");
        print_port(e, t, &port[i], NULL);
        ap_text_add(t, ",\n");
    }
    ap_text_add(t, n ? "};\n" : "    {0},\n};\n");
}

static void print_params(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    if (!p->params.len)
        return;
    ap_text_add(t, "\n/* logical tensor; this rank's box: extents, strides, {offset, step per axis}; its place, bytes; "
                   "counts of what is there; how it lies, k, n */\n"
                   "static const aprt_param params[] = {\n");
    for (uint32_t i = 0; i < p->params.len; i++) {
        const ap_local_param *q = &p->params.at[i];
        ap_text_add(t, "    {");
        print_port(e, t, &q->port, e->weight[i]);
        ap_text_addf(t, ", %d, ", q->nfactors);
        print_list(t, q->nfactors, q->extent);
        ap_text_add(t, ", ");
        print_list(t, q->nfactors, q->stride);
        ap_text_addf(t, ", {%" PRId64 ", ", q->offset.base);
        print_list(t, p->naxes, q->offset.step);
        ap_text_addf(t, "}, %" PRId64 ", %" PRId64, q->byte_offset, q->bytes);
        print_counts(e, t, q->ncounts, q->count);
        ap_text_addf(t, ", %s, %" PRId64 ", %" PRId64 "},\n", store_constant[q->store.kind], q->store.k, q->store.n);
    }
    ap_text_add(t, "};\n");
}

static void print_groups(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    if (!p->groups.len)
        return;
    ap_text_add(t, "\n/* Lists of ranks, one line each. */\n");
    for (uint32_t i = 0; i < p->groups.len; i++) {
        const ap_group *g = &p->groups.at[i];
        ap_text_addf(t, "static const int32_t group_%u[] = {\n", i);
        for (int32_t l = 0; l < g->count; l++) {
            ap_text_add(t, "    ");
            for (int32_t j = 0; j < g->size; j++)
                ap_text_addf(t, "%d,%s", g->rank[l * g->size + j], j + 1 < g->size ? " " : "\n");
        }
        ap_text_add(t, "};\n");
    }
    ap_text_add(t, "static const aprt_group groups[] = {\n");
    for (uint32_t i = 0; i < p->groups.len; i++)
        ap_text_addf(t, "    {%d, %d, group_%u},\n", p->groups.at[i].count, p->groups.at[i].size, i);
    ap_text_add(t, "};\n");
}

static void print_exchange(const ap_emit *e, ap_text *t, const ap_exchange *x, uint32_t number)
{
    ap_text_addf(t, "    /* %u */ {%s, %s, %s, %u, %d, ", number, exchange_constant[x->kind], fold_constant[x->fold],
                 ap_emit_dtype(x->dtype), x->group, x->ndims);
    print_list(t, x->ndims, x->extent);
    ap_text_add(t, ", ");
    print_list(t, x->ndims, x->src_stride);
    ap_text_add(t, ", ");
    print_list(t, x->ndims, x->dst_stride);
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
            ap_text_add(
                t, "\n/* kind, fold, type, group, dimensions: extents, strides at the source and destination; "
                   "offsets per position; counts of what is there */\nstatic const aprt_exchange exchanges[] = {\n");
        print_exchange(e, t, &e->p->instrs.at[i].exchange, n++);
    }
    if (n)
        ap_text_add(t, "};\n");
}

static const char *what_of(const ap_emit *e, const ap_instr *in)
{
    return in->kind == AP_INSTR_CALL ? ap_name_str(e->ctx, e->p->kernels.at[in->kernel].name)
                                     : exchange_name[in->exchange.kind];
}

static void print_instrs(const ap_emit *e, ap_text *t)
{
    if (!e->p->instrs.len)
        return;
    ap_text_add(t, "\n/* what, ONNX node, operator, predicted picoseconds */\nstatic const aprt_instr instrs[] = {\n");
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

/* ---- the instruction list ---- */

static void print_ref(const ap_emit *e, ap_text *t, const ap_ref *ref, const char *type)
{
    static const char *const space[AP_SPACE_COUNT] = {"ARENA", "PARAM", "INPUT", "OUTPUT"};
    ap_text offset;
    ap_text_init(&offset, &e->ctx->scratch);
    int64_t at = ref->space == AP_SPACE_ARENA   ? ref->byte_offset
                 : ref->space == AP_SPACE_PARAM ? e->p->params.at[ref->index].byte_offset
                                                : (int64_t)ref->index;
    ap_name name = ref->space == AP_SPACE_PARAM    ? e->p->params.at[ref->index].port.name
                   : ref->space == AP_SPACE_INPUT  ? e->p->inputs.at[ref->index].name
                   : ref->space == AP_SPACE_OUTPUT ? e->p->outputs.at[ref->index].name
                                                   : 0;
    ap_text_addf(t, "%s(%s, %" PRId64, space[ref->space], type, at);
    if (name) {
        ap_text_add(t, " /* ");
        ap_emit_comment(t, ap_name_str(e->ctx, name), false);
        ap_text_add(t, " */");
    }
    ap_text_add(t, ")");
    if (ap_emit_affine(e, &offset, &ref->offset))
        ap_text_addf(t, " + (%s)", ap_text_str(&offset));
}

/* The condition of an instruction, with its `if` and a space; or nothing. */
static void print_when(const ap_emit *e, ap_text *t, const ap_instr *in)
{
    const char *glue = "";
    bool zero = in->when == AP_WHEN_ZERO;
    if (in->when == AP_WHEN_ALWAYS)
        return;
    ap_text_add(t, "if (");
    for (int a = 0; a < e->p->naxes; a++)
        if (in->when_mask >> a & 1) {
            ap_text_add(t, glue);
            ap_emit_axis(e, t, a);
            ap_text_add(t, zero ? " == 0" : " != 0");
            glue = zero ? " && " : " || ";
        }
    ap_text_add(t, *glue ? ") " : zero ? "1) " : "0) ");
}

static void print_int(const ap_emit *e, ap_text *t, const ap_int *x)
{
    bool plain = ap_int_is_plain(x);
    ap_text_add(t, plain ? "" : "aprt_clamp(");
    if (!ap_emit_affine(e, t, &x->value))
        ap_text_add(t, "0");
    if (!plain)
        ap_text_addf(t, ", %" PRId64 ", %" PRId64 ")", x->lo, x->hi);
}

/* The slot of a convolution: how many stand before it. */
static uint32_t conv_slot(const ap_emit *e, const ap_instr *in)
{
    uint32_t n = 0;
    for (const ap_instr *at = e->p->instrs.at; at < in; at++)
        n += at->kind == AP_INSTR_CALL && e->p->kernels.at[at->kernel].kind == AP_KERNEL_CONV;
    return n;
}

/* Weights that are there only while slots are prepared. */
static bool is_prepared(const ap_emit *e, const ap_ref *w)
{
    return w->space == AP_SPACE_PARAM && e->p->params.at[w->index].store.kind == AP_STORE_PREPARED;
}

static void print_conv_call(const ap_emit *e, ap_text *t, const ap_instr *in, uint32_t slot)
{
    const ap_kernel *k = &e->p->kernels.at[in->kernel];
    const char *type = ap_dtype_c(k->conv.dtype);
    ap_text_add(t, "    ");
    print_when(e, t, in);
    ap_text_addf(t, "if ((status = aprt_conv_run(d, %u", slot);
    for (uint32_t i = 0; i < 3; i++) {
        ap_text_add(t, ", ");
        if (i == 1 && is_prepared(e, &in->ref[i]))
            ap_text_add(t, "NULL");
        else
            print_ref(e, t, &in->ref[i], type);
    }
    ap_text_add(t, in->nrefs > 3 ? ", (const void *const[]){" : ", NULL");
    for (uint32_t i = 3; i < in->nrefs; i++) {
        ap_text_add(t, i > 3 ? ", " : "");
        print_ref(e, t, &in->ref[i], type);
    }
    ap_text_addf(t, "%s)) != APRT_OK)\n        return status;\n", in->nrefs > 3 ? "}" : "");
}

/* n, g, m, c of the rank. */
static void print_conv_turns(const ap_emit *e, ap_text *t, const ap_instr *in)
{
    const ap_conv *c = &e->p->kernels.at[in->kernel].conv;
    const int64_t extent[4] = {c->n, c->g, c->m, c->c};
    const uint32_t turns[4] = {c->turns_n, c->turns_g, c->turns_m, c->turns_c};
    for (int i = 0; i < 4; i++) {
        ap_text_add(t, i ? ", " : "");
        if (turns[i])
            print_int(e, t, &in->ints[turns[i] - 1]);
        else
            ap_text_addf(t, "%" PRId64, extent[i]);
    }
}

static bool conv_uses_axis(const ap_emit *e, int a)
{
    for (uint32_t i = 0; i < e->p->instrs.len; i++) {
        const ap_instr *in = &e->p->instrs.at[i];
        bool conv = in->kind == AP_INSTR_CALL && e->p->kernels.at[in->kernel].kind == AP_KERNEL_CONV;
        bool used = conv && in->ref[1].space == AP_SPACE_PARAM && in->ref[1].offset.step[a] != 0;
        for (uint32_t k = 0; conv && k < in->nints; k++)
            used = used || in->ints[k].value.step[a] != 0;
        if (used)
            return true;
    }
    return false;
}

static void print_axes_used(const ap_emit *e, ap_text *t, bool (*is_used)(const ap_emit *e, int a))
{
    for (int a = 0; a < e->p->naxes; a++) {
        if (!is_used(e, a))
            continue;
        ap_text_add(t, "    const int64_t ");
        ap_emit_axis(e, t, a);
        ap_text_addf(t, " = d->place / %d %% %d;\n", e->p->axis_stride[a], e->p->axis_size[a]);
    }
}

static void print_fetch(const ap_emit *e, ap_text *t, uint32_t param)
{
    ap_text_addf(t, "    if ((status = aprt_param_fetch(d, %u /* ", param);
    ap_emit_comment(t, ap_name_str(e->ctx, e->p->params.at[param].port.name), false);
    ap_text_add(t, " */, &w)) != APRT_OK)\n        return status;\n");
}

/* What is done once, when parameters are loaded: convolutions get their slots. */
static void print_prepare(const ap_emit *e, ap_text *t)
{
    if (!ap_backend_has_conv(e->p))
        return;
    ap_text_add(t, "\n/* What every device does when its parameters are loaded. */\n"
                   "static int prepare(aprt_device *d)\n{\n");
    print_axes_used(e, t, conv_uses_axis);
    ap_text_add(t, "    int status;\n");
    if (ap_local_kept_bytes(e->p) < e->p->param_bytes)
        ap_text_add(t, "    const void *w;\n");
    for (uint32_t i = 0; i < e->p->instrs.len; i++) {
        const ap_instr *in = &e->p->instrs.at[i];
        if (in->kind != AP_INSTR_CALL || e->p->kernels.at[in->kernel].kind != AP_KERNEL_CONV)
            continue;
        const ap_kernel *k = &e->p->kernels.at[in->kernel];
        bool prepared = is_prepared(e, &in->ref[1]);
        ap_text_addf(t, "    d->at = %u;\n", i);
        if (prepared)
            print_fetch(e, t, in->ref[1].index);
        ap_text_addf(t, "    if ((status = aprt_conv_prepare(d, %u, &%s_k_%s, (const int64_t[]){", conv_slot(e, in),
                     e->opt->name, ap_name_str(e->ctx, k->name));
        print_conv_turns(e, t, in);
        ap_text_add(t, "}, ");
        if (prepared)
            ap_text_add(t, "w");
        else if (in->ref[1].space == AP_SPACE_PARAM)
            print_ref(e, t, &in->ref[1], ap_dtype_c(k->conv.dtype));
        else
            ap_text_add(t, "NULL");
        ap_text_addf(t, ", %" PRId64, prepared ? e->p->params.at[in->ref[1].index].bytes : 0);
        ap_text_add(t, ")) != APRT_OK)\n        return status;\n");
    }
    ap_text_add(t, "    return APRT_OK;\n}\n");
}

static void print_call(const ap_emit *e, ap_text *t, const ap_instr *in)
{
    const ap_kernel *k = &e->p->kernels.at[in->kernel];
    bool checks = ap_emit_nest_checks(k);
    const char *comma = "";
    if (k->kind == AP_KERNEL_CONV) {
        print_conv_call(e, t, in, conv_slot(e, in));
        return;
    }
    ap_text_add(t, "    ");
    print_when(e, t, in);
    ap_text_addf(t, "%s%s_k_%s(", checks ? "if (" : "", e->opt->name, ap_name_str(e->ctx, k->name));
    for (uint32_t i = 0; i < in->nrefs; i++) {
        ap_text_add(t, comma);
        print_ref(e, t, &in->ref[i], ap_dtype_c(k->operand[i].dtype));
        comma = ", ";
    }
    for (uint32_t i = 0; i < in->nints; i++) {
        ap_text_add(t, comma);
        print_int(e, t, &in->ints[i]);
        comma = ", ";
    }
    if (ap_emit_nest_scratch(k)) {
        ap_text_addf(t, "%sd->scratch", comma);
        comma = ", ";
    }
    if (checks)
        ap_text_addf(t, "%s&d->bad))\n        return aprt_fail_index(d);\n", comma);
    else
        ap_text_add(t, ");\n");
}

static void print_instr(const ap_emit *e, ap_text *t, uint32_t i, uint32_t exchange)
{
    const ap_instr *in = &e->p->instrs.at[i];
    ap_loc_info loc = ap_loc_get(e->ctx, in->loc);
    ap_text_add(t, "\n");
    if (loc.node) {
        ap_text_add(t, "    /* ");
        ap_emit_comment(t, ap_name_str(e->ctx, loc.node), false);
        if (loc.op) {
            ap_text_add(t, " (");
            ap_emit_comment(t, ap_name_str(e->ctx, loc.op), false);
            ap_text_add(t, ")");
        }
        ap_text_add(t, " */\n");
    }
    ap_text_addf(t, "    aprt_at(d, %u);\n", i);
    if (in->kind == AP_INSTR_CALL) {
        print_call(e, t, in);
        return;
    }
    const char *type = ap_dtype_c(in->exchange.dtype);
    ap_text_addf(t, "    /* %s */\n    status = aprt_exchange_run(d, &exchanges[%u], ",
                 exchange_name[in->exchange.kind], exchange);
    print_ref(e, t, &in->ref[0], type);
    ap_text_add(t, ", ");
    print_ref(e, t, &in->ref[1], type);
    ap_text_add(t, ");\n    if (status != APRT_OK)\n        return status;\n");
}

static bool axis_is_used(const ap_emit *e, int a)
{
    for (uint32_t i = 0; i < e->p->instrs.len; i++) {
        const ap_instr *in = &e->p->instrs.at[i];
        bool used = in->when != AP_WHEN_ALWAYS && (in->when_mask >> a & 1);
        for (uint32_t r = 0; r < in->nrefs; r++)
            used |= in->ref[r].offset.step[a] != 0;
        for (uint32_t r = 0; r < in->nints; r++)
            used |= in->ints[r].value.step[a] != 0;
        if (used)
            return true;
    }
    return false;
}

static void print_device(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    uint32_t exchange = 0;
    ap_text_add(t, "\n#define ARENA(T, bytes) ((T *)(d->arena + (bytes)))\n"
                   "#define PARAM(T, bytes) ((T *)(d->param + (bytes)))\n"
                   "#define INPUT(T, i) ((const T *)d->input[i])\n"
                   "#define OUTPUT(T, i) ((T *)d->output[i])\n"
                   "\n/* What every device does, in order. */\n"
                   "static int run(aprt_device *d)\n{\n");
    print_axes_used(e, t, axis_is_used);
    bool fails = ap_backend_has_conv(p);
    for (uint32_t i = 0; i < p->instrs.len; i++)
        fails = fails || p->instrs.at[i].kind == AP_INSTR_EXCHANGE;
    ap_text_add(t, fails ? "    int status;\n" : "");
    if (!p->instrs.len)
        ap_text_add(t, "    (void)d;\n");
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        print_instr(e, t, i, exchange);
        exchange += p->instrs.at[i].kind == AP_INSTR_EXCHANGE;
    }
    ap_text_add(t, "\n    return APRT_OK;\n}\n"
                   "\nstatic int list(aprt_device *d)\n{\n    return aprt_stage_run(d, 0);\n}\n");
}

/* ---- the program and the API ---- */

/* The inputs and outputs of the stage are those of the program. */
static void print_port_numbers(ap_text *t, const char *name, uint32_t n)
{
    ap_text_addf(t, "\nstatic const int32_t %s[] = {", name);
    for (uint32_t i = 0; i < n || i == 0; i++)
        ap_text_addf(t, "%s%u", i ? ", " : "", i);
    ap_text_add(t, "};");
}

static void print_program(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    int64_t size[AP_MAX_AXES], stride[AP_MAX_AXES];
    for (int a = 0; a < p->naxes; a++) {
        size[a] = p->axis_size[a];
        stride[a] = p->axis_stride[a];
    }
    print_port_numbers(t, "stage_inputs", p->inputs.len);
    print_port_numbers(t, "stage_outputs", p->outputs.len);
    ap_text_addf(t,
                 "\nstatic const aprt_stage the_stage = {\n    .name = \"%s\",\n    .nranks = %d,\n    .naxes = %d,\n"
                 "    .axis_size = ",
                 e->opt->name, p->nranks, p->naxes);
    print_list(t, p->naxes, size);
    ap_text_add(t, ",\n    .axis_stride = ");
    print_list(t, p->naxes, stride);
    ap_text_addf(
        t, ",\n    .arena_bytes = %" PRId64 ",\n    .param_bytes = %" PRId64 ",\n    .scratch_bytes = %" PRId64 ",\n",
        p->arena_bytes, ap_local_kept_bytes(p), e->scratch_bytes);
    ap_text_addf(
        t, "    .ninputs = %u,\n    .noutputs = %u,\n    .nparams = %u,\n    .ngroups = %u,\n    .ninstrs = %u,\n",
        p->inputs.len, p->outputs.len, p->params.len, p->groups.len, p->instrs.len);
    ap_text_addf(t,
                 "    .input = stage_inputs,\n    .output = stage_outputs,\n    .param = %s,\n    .group = %s,\n    "
                 ".instr = %s,\n",
                 p->params.len ? "params" : "NULL", p->groups.len ? "groups" : "NULL",
                 p->instrs.len ? "instrs" : "NULL");
    ap_text_add(t, "    .run = run,\n    .list = list,\n");
    uint32_t slots = p->instrs.len ? conv_slot(e, &p->instrs.at[p->instrs.len]) : 0;
    if (slots) /* one more is what they share */
        ap_text_addf(t, "    .nslots = %u,\n    .prepare = prepare,\n    .release = aprt_conv_release,\n", slots + 1);
    ap_text_addf(
        t,
        "};\n\nconst aprt_program %s_program = {\n    .abi = APRT_ABI,\n    .name = \"%s\",\n"
        "    .nranks = %d,\n    .microbatches = 1,\n    .ninputs = %u,\n    .noutputs = %u,\n"
        "    .input = input_ports,\n    .output = output_ports,\n    .nstages = 1,\n    .stage = &the_stage,\n};\n",
        e->opt->name, e->opt->name, p->nranks, p->inputs.len, p->outputs.len);
}

static void print_api(const ap_emit *e, ap_text *t)
{
    const char *n = e->opt->name;
    ap_text_addf(t,
                 "\nint %s_open(const %s_options *options, %s_instance **out)\n{\n"
                 "    aprt_options o = {.weights = options ? options->weights : NULL};\n"
                 "    aprt_instance *instance;\n"
                 "    int status = aprt_open(&%s_program, &o, &instance);\n"
                 "    *out = (%s_instance *)instance;\n"
                 "    return status;\n}\n",
                 n, n, n, n, n);
    ap_text_addf(t,
                 "\nint %s_run(%s_instance *instance, const void *const inputs[], void *const outputs[])\n{\n"
                 "    return aprt_run((aprt_instance *)instance, inputs, outputs);\n}\n",
                 n, n);
    ap_text_addf(t, "\nvoid %s_close(%s_instance *instance)\n{\n    aprt_close((aprt_instance *)instance);\n}\n", n, n);
    ap_text_addf(t,
                 "\nconst char *%s_error(const %s_instance *instance)\n{\n"
                 "    return aprt_error((const aprt_instance *)instance);\n}\n",
                 n, n);
}

ap_status ap_emit_program(const ap_emit *e)
{
    const ap_local *p = e->p;
    ap_text t, type;
    ap_text_init(&t, &e->ctx->scratch);
    ap_emit_top(e, &t, "the program");
    ap_text_addf(&t, "#include \"%s.h\"\n#include \"kernels.h\"\n", e->opt->name);
    for (int api = 0; api < 2; api++)
        for (int output = 0; output < 2; output++) {
            ap_text_init(&type, &e->ctx->scratch);
            if (api)
                ap_text_addf(&type, "\nconst %s_tensor %s_%s", e->opt->name, e->opt->name, output ? "output" : "input");
            else
                ap_text_addf(&type, "\nstatic const aprt_port %s", output ? "output_ports" : "input_ports");
            if (output)
                print_ports(e, &t, ap_text_str(&type), p->outputs.len, p->outputs.at);
            else
                print_ports(e, &t, ap_text_str(&type), p->inputs.len, p->inputs.at);
        }
    print_params(e, &t);
    print_groups(e, &t);
    print_exchanges(e, &t);
    print_instrs(e, &t);
    print_device(e, &t);
    print_prepare(e, &t);
    print_program(e, &t);
    print_api(e, &t);
    return ap_emit_file(e, "program.c", &t);
}
