/* program.c: what every device of a stage does for one microbatch, one function. Devices differ in their coordinates,
 * and these only stand in offsets, counts and conditions. */
#include "backend/cuda/cuda.h"
#include "backend/emit.h"

#include <inttypes.h>

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

uint32_t ap_emit_conv_slots(const ap_emit *e)
{
    return e->p->instrs.len ? conv_slot(e, e->p->instrs.at + e->p->instrs.len) : 0;
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
    const bool cuda = ap_emit_target(e) == AP_TARGET_CUDA;
    ap_text_add(t, "    ");
    print_when(e, t, in);
    ap_text_addf(t, cuda ? "aprt_cuda_conv(d, %u" : "if ((status = aprt_conv_run(d, %u", slot);
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
    ap_text_addf(t, cuda ? "%s);\n" : "%s)) != APRT_OK)\n        return status;\n", in->nrefs > 3 ? "}" : "");
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

/* Of products the algorithm is chosen when the program is opened, on GPUs. Where turns depend on the microbatch it is
 * when they are first met. */
static bool is_chosen(const ap_emit *e, const ap_instr *in)
{
    bool is = ap_emit_target(e) == AP_TARGET_CUDA && in->kind == AP_INSTR_CALL &&
              e->p->kernels.at[in->kernel].kind == AP_KERNEL_GEMM;
    for (uint32_t k = 0; is && k < in->nints; k++)
        is = !e->p->ntime || in->ints[k].value.step[0] == 0;
    return is;
}

bool ap_emit_prepares(const ap_emit *e)
{
    bool any = ap_emit_conv_slots(e) > 0;
    for (uint32_t i = 0; i < e->p->instrs.len; i++)
        any = any || is_chosen(e, &e->p->instrs.at[i]);
    return any;
}

static bool prepare_uses_axis(const ap_emit *e, int a)
{
    for (uint32_t i = 0; i < e->p->instrs.len; i++) {
        const ap_instr *in = &e->p->instrs.at[i];
        bool conv = in->kind == AP_INSTR_CALL && e->p->kernels.at[in->kernel].kind == AP_KERNEL_CONV;
        bool used = conv && in->ref[1].space == AP_SPACE_PARAM && in->ref[1].offset.step[a] != 0;
        for (uint32_t k = 0; (conv || is_chosen(e, in)) && k < in->nints; k++)
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
        if (a < e->p->ntime)
            ap_text_add(t, " = d->mb;\n");
        else
            ap_text_addf(t, " = d->place / %d %% %d;\n", e->p->axis_stride[a], e->p->axis_size[a]);
    }
}

static void print_fetch(const ap_emit *e, ap_text *t, uint32_t param)
{
    ap_text_addf(t, "    if ((status = aprt_param_fetch(d, %u /* ", param);
    ap_emit_comment(t, ap_name_str(e->ctx, e->p->params.at[param].port.name), false);
    ap_text_add(t, " */, &w)) != APRT_OK)\n        return status;\n");
}

static void print_call(const ap_emit *e, ap_text *t, const ap_instr *in)
{
    const ap_kernel *k = &e->p->kernels.at[in->kernel];
    const bool cuda = ap_emit_target(e) == AP_TARGET_CUDA; /* which finds scratch and reports by its device */
    bool checks = !cuda && ap_emit_nest_checks(k);
    const char *comma = cuda ? ", " : "";
    if (k->kind == AP_KERNEL_CONV) {
        print_conv_call(e, t, in, conv_slot(e, in));
        return;
    }
    ap_text_add(t, "    ");
    print_when(e, t, in);
    ap_text_addf(t, "%s%s_k_%s(%s", checks ? "if (" : "", e->opt->name, ap_name_str(e->ctx, k->name), cuda ? "d" : "");
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
    if (!cuda && ap_emit_nest_scratch(k)) {
        ap_text_addf(t, "%sd->scratch", comma);
        comma = ", ";
    }
    if (checks)
        ap_text_addf(t, "%s&d->bad))\n        return aprt_fail_index(d);\n", comma);
    else
        ap_text_add(t, ");\n");
}

static void print_node(const ap_emit *e, ap_text *t, const ap_instr *in)
{
    ap_loc_info loc = ap_loc_get(e->ctx, in->loc);
    ap_text_add(t, "\n");
    if (!loc.node)
        return;
    ap_text_add(t, "    /* ");
    ap_emit_comment(t, ap_name_str(e->ctx, loc.node), false);
    if (loc.op) {
        ap_text_add(t, " (");
        ap_emit_comment(t, ap_name_str(e->ctx, loc.op), false);
        ap_text_add(t, ")");
    }
    ap_text_add(t, " */\n");
}

static void print_exchange(const ap_emit *e, ap_text *t, const ap_instr *in, uint32_t number)
{
    const char *type = ap_dtype_c(in->exchange.dtype);
    const bool cuda = ap_emit_target(e) == AP_TARGET_CUDA; /* which does not wait */
    ap_text_addf(t, "    /* %s */\n    ", ap_emit_exchange_name(in->exchange.kind));
    if (cuda)
        ap_text_addf(t, "aprt_cuda_exchange(d, %u, ", number);
    else
        ap_text_addf(t, "status = aprt_exchange_run(d, &%sexchanges[%u], ", ap_emit_prefix(e), number);
    print_ref(e, t, &in->ref[0], type);
    ap_text_add(t, ", ");
    print_ref(e, t, &in->ref[1], type);
    ap_text_add(t, cuda ? ");\n" : ");\n    if (status != APRT_OK)\n        return status;\n");
}

/* The number of the exchange that it is, or would be; how many must be over before it, 0 for none. */
static void print_instr(const ap_emit *e, ap_text *t, uint32_t i, uint32_t exchange, uint32_t arrived)
{
    const ap_instr *in = &e->p->instrs.at[i];
    print_node(e, t, in);
    ap_text_addf(t, "    aprt_%sat(d, %u);\n", ap_emit_target(e) == AP_TARGET_CUDA ? "cuda_" : "", i);
    if (arrived)
        ap_text_addf(t, "    aprt_cuda_arrived(d, %u);\n", arrived);
    if (in->kind == AP_INSTR_CALL)
        print_call(e, t, in);
    else
        print_exchange(e, t, in, exchange);
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

void ap_emit_macros(ap_text *t)
{
    ap_text_add(t, "\n#define ARENA(T, bytes) ((T *)(d->arena + (bytes)))\n"
                   "#define PARAM(T, bytes) ((T *)(d->param + (bytes)))\n"
                   "#define INPUT(T, i) ((const T *)d->input[i])\n"
                   "#define OUTPUT(T, i) ((T *)d->output[i])\n");
}

static bool is_single(const ap_emit *e)
{
    return e->program->stages.len == 1 && e->program->microbatches == 1;
}

/* Which stage, where, and how its coordinates are. */
static void print_about_run(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    if (is_single(e)) {
        ap_text_add(t, "\n/* What every device does, in order. */\n");
        return;
    }
    ap_text_add(t, "\n/* ");
    if (e->program->stages.len > 1) {
        ap_text_add(t, "Stage ");
        ap_emit_comment(t, ap_name_str(e->ctx, p->name), false);
        ap_text_addf(t, ", ranks %d to %d: w", p->first_rank, p->first_rank + p->nranks - 1);
    } else {
        ap_text_add(t, "W");
    }
    ap_text_add(t, "hat every device does for one microbatch, in order. */\n");
}

void ap_emit_run(const ap_emit *e, ap_text *t)
{
    const ap_local *p = e->p;
    uint32_t exchange = 0;
    print_about_run(e, t);
    ap_text_addf(t, "static int %srun(aprt_device *d)\n{\n", ap_emit_prefix(e));
    print_axes_used(e, t, axis_is_used);
    const bool cuda = ap_emit_target(e) == AP_TARGET_CUDA; /* which keeps failures */
    const uint32_t *arrivals = cuda ? ap_cuda_arrivals(e) : NULL;
    bool fails = !cuda && ap_emit_conv_slots(e) > 0;
    for (uint32_t i = 0; i < p->instrs.len; i++)
        fails = fails || (!cuda && p->instrs.at[i].kind == AP_INSTR_EXCHANGE);
    ap_text_add(t, fails ? "    int status;\n" : "");
    if (!p->instrs.len)
        ap_text_add(t, "    (void)d;\n");
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        print_instr(e, t, i, exchange, arrivals ? arrivals[i] : 0);
        exchange += p->instrs.at[i].kind == AP_INSTR_EXCHANGE;
    }
    ap_text_add(t, "\n    return APRT_OK;\n}\n");
}

static void print_prepare_conv(const ap_emit *e, ap_text *t, const ap_instr *in)
{
    const ap_kernel *k = &e->p->kernels.at[in->kernel];
    const bool prepared = is_prepared(e, &in->ref[1]), cuda = ap_emit_target(e) == AP_TARGET_CUDA;
    if (prepared)
        print_fetch(e, t, in->ref[1].index);
    ap_text_addf(t, "    if ((status = aprt_%sconv_prepare(d, %u, &%s_k_%s, (const int64_t[]){", cuda ? "cuda_" : "",
                 conv_slot(e, in), e->opt->name, ap_name_str(e->ctx, k->name));
    print_conv_turns(e, t, in);
    ap_text_add(t, "}, ");
    if (prepared)
        ap_text_add(t, "w");
    else if (in->ref[1].space == AP_SPACE_PARAM && !cuda)
        print_ref(e, t, &in->ref[1], ap_dtype_c(k->conv.dtype));
    else
        ap_text_add(t, "NULL");
    ap_text_addf(t, ", %" PRId64 ")) != APRT_OK)\n        return status;\n",
                 prepared ? e->p->params.at[in->ref[1].index].bytes : 0);
}

static void print_turns_of(const ap_emit *e, ap_text *t, const ap_instr *in, int64_t extent, uint32_t turns)
{
    if (turns)
        print_int(e, t, &in->ints[turns - 1]);
    else
        ap_text_addf(t, "%" PRId64, extent);
}

static void print_prepare_product(const ap_emit *e, ap_text *t, const ap_instr *in)
{
    const ap_kernel *k = &e->p->kernels.at[in->kernel];
    const ap_gemm *g = &k->gemm;
    ap_text_addf(t, "    if ((status = aprt_cuda_gemm_prepare(d, &%s_p_%s, ", e->opt->name,
                 ap_name_str(e->ctx, k->name));
    if (in->nints) {
        ap_text_add(t, "(const int64_t[]){");
        for (int l = 0; l < g->nloops; l++) {
            print_turns_of(e, t, in, g->extent[l], g->turns[l]);
            ap_text_add(t, ", ");
        }
        print_turns_of(e, t, in, g->m, g->turns_m);
        ap_text_add(t, ", ");
        print_turns_of(e, t, in, g->n, g->turns_n);
        ap_text_add(t, ", ");
        print_turns_of(e, t, in, g->k, g->turns_k);
        ap_text_add(t, "}");
    } else {
        ap_text_add(t, "NULL");
    }
    ap_text_add(t, ")) != APRT_OK)\n        return status;\n");
}

/* What is done once, when parameters are loaded: convolutions get their slots, products their algorithm. */
void ap_emit_prepare(const ap_emit *e, ap_text *t)
{
    if (!ap_emit_prepares(e))
        return;
    ap_text_addf(t,
                 "\n/* What every device does when its parameters are loaded. */\n"
                 "static int %sprepare(aprt_device *d)\n{\n",
                 ap_emit_prefix(e));
    print_axes_used(e, t, prepare_uses_axis);
    ap_text_add(t, "    int status;\n");
    if (ap_local_kept_bytes(e->p) < e->p->param_bytes)
        ap_text_add(t, "    const void *w;\n");
    for (uint32_t i = 0; i < e->p->instrs.len; i++) {
        const ap_instr *in = &e->p->instrs.at[i];
        const bool conv = in->kind == AP_INSTR_CALL && e->p->kernels.at[in->kernel].kind == AP_KERNEL_CONV;
        if (!conv && !is_chosen(e, in))
            continue;
        ap_text_addf(t, "    d->at = %u;\n", i);
        if (conv)
            print_prepare_conv(e, t, in);
        else
            print_prepare_product(e, t, in);
    }
    ap_text_add(t, "    return APRT_OK;\n}\n");
}
