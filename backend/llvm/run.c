/* What a device of a stage does, as functions: one microbatch, the instruction list, and once when it is opened. They
 * read aprt_device as the runtime's header lays it out. */
#include "backend/llvm/build.h"
#include "runtime/autopar_rt.h"

#include <stdio.h>

typedef struct stage {
    ap_ll *b;
    const ap_emit *e;
    ap_ll_value device, coordinate[AP_MAX_AXES];
} stage;

const char *ap_ll_stage_function(const ap_emit *e, int which)
{
    static const char *const name[AP_LL_FUNCTIONS] = {"run", "list", "prepare"};
    return ap_name_str(e->ctx, ap_name_format(e->ctx, "%s_do_%s%s", e->opt->name, ap_emit_prefix(e), name[which]));
}

const char *ap_ll_exchanges(const ap_emit *e)
{
    return ap_name_str(e->ctx, ap_name_format(e->ctx, "%s_%sexchanges", e->opt->name, ap_emit_prefix(e)));
}

/* ---- the device ---- */

static ap_ll_value member(stage *s, size_t offset, LLVMTypeRef type)
{
    ap_ll_value at = ap_ll_at(s->b, s->b->i8, s->device, ap_ll_int(s->b, (int64_t)offset));
    return LLVMBuildLoad2(s->b->builder, type, at, "");
}

static void set_member(stage *s, size_t offset, ap_ll_value x)
{
    LLVMBuildStore(s->b->builder, x, ap_ll_at(s->b, s->b->i8, s->device, ap_ll_int(s->b, (int64_t)offset)));
}

static ap_ll_value symbol(stage *s, const char *name)
{
    ap_ll_value global = LLVMGetNamedGlobal(s->b->module, name);
    return global ? global : LLVMAddGlobal(s->b->module, s->b->i8, name);
}

static ap_ll_value affine(stage *s, const ap_affine *a)
{
    ap_ll_value x = ap_ll_int(s->b, a->base);
    for (int i = 0; i < s->e->p->naxes; i++)
        if (a->step[i])
            x = LLVMBuildAdd(s->b->builder, x,
                             LLVMBuildMul(s->b->builder, s->coordinate[i], ap_ll_int(s->b, a->step[i]), ""), "");
    return x;
}

static ap_ll_value clamped(stage *s, const ap_int *x)
{
    ap_ll_value pair[2] = {affine(s, &x->value), ap_ll_int(s->b, x->hi)};
    if (ap_int_is_plain(x))
        return pair[0];
    pair[0] = ap_ll_intrinsic(s->b, "llvm.smin", 1, &s->b->i64, 2, pair);
    pair[1] = ap_ll_int(s->b, x->lo);
    return ap_ll_intrinsic(s->b, "llvm.smax", 1, &s->b->i64, 2, pair);
}

static ap_ll_value pointer_in(stage *s, size_t table, uint32_t index)
{
    ap_ll *b = s->b;
    ap_ll_value list = member(s, table, b->ptr);
    return LLVMBuildLoad2(b->builder, b->ptr, ap_ll_at(b, b->ptr, list, ap_ll_int(b, index)), "");
}

static ap_ll_value reference(stage *s, const ap_ref *r, ap_dtype t)
{
    ap_ll *b = s->b;
    ap_ll_value base;
    if (r->space == AP_SPACE_INPUT || r->space == AP_SPACE_OUTPUT) {
        bool input = r->space == AP_SPACE_INPUT;
        base = pointer_in(s, input ? offsetof(aprt_device, input) : offsetof(aprt_device, output), r->index);
    } else {
        bool arena = r->space == AP_SPACE_ARENA;
        int64_t at = arena ? r->byte_offset : s->e->p->params.at[r->index].byte_offset;
        base = member(s, arena ? offsetof(aprt_device, arena) : offsetof(aprt_device, param), b->ptr);
        base = ap_ll_at(b, b->i8, base, ap_ll_int(b, at));
    }
    return ap_ll_at(b, ap_ll_memory(b, t), base, affine(s, &r->offset));
}

/* Leaves the function with the status, unless it is APRT_OK. */
static void try(stage *s, ap_ll_value status)
{
    ap_ll *b = s->b;
    ap_ll_value bad = LLVMBuildICmp(b->builder, LLVMIntNE, status, ap_ll_int32(b, APRT_OK), "");
    LLVMBasicBlockRef after = ap_ll_open_if(b, bad);
    LLVMBuildRet(b->builder, status);
    LLVMPositionBuilderAtEnd(b->builder, after);
}

static void open_function(stage *s, int which)
{
    ap_ll *b = s->b;
    LLVMTypeRef device[1] = {b->ptr};
    ap_ll_value function =
        ap_ll_open_function(b, ap_ll_stage_function(s->e, which), LLVMFunctionType(b->i32, device, 1, false));
    LLVMSetVisibility(function, LLVMHiddenVisibility);
    s->device = LLVMGetParam(function, 0);
    ap_ll_attribute(b, function, 1, "noalias");
    for (int a = 0; a < s->e->p->naxes; a++) {
        if (a < s->e->p->ntime) {
            s->coordinate[a] = member(s, offsetof(aprt_device, mb), b->i64);
            continue;
        }
        ap_ll_value place = LLVMBuildSExt(b->builder, member(s, offsetof(aprt_device, place), b->i32), b->i64, "");
        place = LLVMBuildSDiv(b->builder, place, ap_ll_int(b, s->e->p->axis_stride[a]), "");
        s->coordinate[a] = LLVMBuildSRem(b->builder, place, ap_ll_int(b, s->e->p->axis_size[a]), "");
    }
}

/* ---- instructions ---- */

/* aprt_at */
static void mark(stage *s, uint32_t instruction)
{
    ap_ll *b = s->b;
    set_member(s, offsetof(aprt_device, at), ap_ll_int32(b, instruction));
    ap_ll_value profile = member(s, offsetof(aprt_device, profile), b->ptr);
    LLVMBasicBlockRef after = ap_ll_open_if(b, LLVMBuildIsNotNull(b->builder, profile, ""));
    ap_ll_call(b, "aprt_profile_mark", b->none, 1, &s->device);
    ap_ll_close_if(b, after);
}

/* NULL: always */
static ap_ll_value condition(stage *s, const ap_instr *in)
{
    ap_ll *b = s->b;
    bool zero = in->when == AP_WHEN_ZERO;
    if (in->when == AP_WHEN_ALWAYS)
        return NULL;
    ap_ll_value all = LLVMConstInt(b->i1, 1, false);
    for (int a = 0; a < s->e->p->naxes; a++)
        if (in->when_mask >> a & 1) {
            ap_ll_value here = LLVMBuildICmp(b->builder, LLVMIntEQ, s->coordinate[a], ap_ll_int(b, 0), "");
            all = LLVMBuildAnd(b->builder, all, here, "");
        }
    return zero ? all : LLVMBuildNot(b->builder, all, "");
}

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

static void call_conv(stage *s, const ap_instr *in)
{
    ap_ll *b = s->b;
    ap_dtype t = s->e->p->kernels.at[in->kernel].conv.dtype;
    ap_ll_value null = LLVMConstNull(b->ptr), args[6] = {s->device, ap_ll_int32(b, conv_slot(s->e, in))};
    for (uint32_t i = 0; i < 3; i++)
        args[2 + i] = i == 1 && is_prepared(s->e, &in->ref[1]) ? null : reference(s, &in->ref[i], t);
    args[5] = in->nrefs > 3 ? ap_ll_stack(b, b->ptr, in->nrefs - 3, 0) : null;
    for (uint32_t i = 3; i < in->nrefs; i++)
        ap_ll_write(b, args[5], ap_ll_int(b, i - 3), reference(s, &in->ref[i], t));
    try(s, ap_ll_call(b, "aprt_conv_run", b->i32, 6, args));
}

static void call_kernel(stage *s, const ap_instr *in)
{
    ap_ll *b = s->b;
    const ap_kernel *k = &s->e->p->kernels.at[in->kernel];
    bool checks = ap_emit_nest_checks(k);
    unsigned n = 0;
    ap_ll_value *args = AP_NEW_ARRAY(&s->e->ctx->scratch, ap_ll_value, (size_t)in->nrefs + in->nints + 2);
    for (uint32_t i = 0; i < in->nrefs; i++)
        args[n++] = reference(s, &in->ref[i], k->operand[i].dtype);
    for (uint32_t i = 0; i < in->nints; i++)
        args[n++] = clamped(s, &in->ints[i]);
    if (ap_emit_nest_scratch(k))
        args[n++] = member(s, offsetof(aprt_device, scratch), b->ptr);
    if (checks)
        args[n++] = ap_ll_at(b, b->i8, s->device, ap_ll_int(b, (int64_t)offsetof(aprt_device, bad)));
    ap_ll_value found = ap_ll_call(b, ap_ll_kernel_name(s->e, k), checks ? b->i32 : b->none, n, args);
    if (!checks)
        return;
    LLVMBasicBlockRef after = ap_ll_open_if(b, LLVMBuildICmp(b->builder, LLVMIntNE, found, ap_ll_int32(b, 0), ""));
    LLVMBuildRet(b->builder, ap_ll_call(b, "aprt_fail_index", b->i32, 1, &s->device));
    LLVMPositionBuilderAtEnd(b->builder, after);
}

static void exchange(stage *s, const ap_instr *in, uint32_t number)
{
    ap_ll *b = s->b;
    ap_ll_value table = symbol(s, ap_ll_exchanges(s->e));
    ap_ll_value args[4] = {s->device};
    args[1] = ap_ll_at(b, b->i8, table, ap_ll_int(b, (int64_t)number * (int64_t)sizeof(aprt_exchange)));
    args[2] = reference(s, &in->ref[0], in->exchange.dtype);
    args[3] = reference(s, &in->ref[1], in->exchange.dtype);
    try(s, ap_ll_call(b, "aprt_exchange_run", b->i32, 4, args));
}

static void make_run(stage *s)
{
    uint32_t exchanges = 0;
    open_function(s, AP_LL_RUN);
    for (uint32_t i = 0; i < s->e->p->instrs.len; i++) {
        const ap_instr *in = &s->e->p->instrs.at[i];
        mark(s, i);
        if (in->kind == AP_INSTR_EXCHANGE) {
            exchange(s, in, exchanges++);
            continue;
        }
        ap_ll_value when = condition(s, in);
        LLVMBasicBlockRef after = when ? ap_ll_open_if(s->b, when) : NULL;
        if (s->e->p->kernels.at[in->kernel].kind == AP_KERNEL_CONV)
            call_conv(s, in);
        else
            call_kernel(s, in);
        if (after)
            ap_ll_close_if(s->b, after);
    }
    ap_ll_close_function(s->b, ap_ll_int32(s->b, APRT_OK));
}

/* ---- lists ---- */

static void make_act(stage *s, const ap_act *a, ap_ll_value turn)
{
    static const char *const function[AP_ACT_KIND_COUNT] = {"aprt_recv", "aprt_claim", "aprt_stage_run",
                                                            "aprt_free", "aprt_send",  ""};
    ap_ll *b = s->b;
    ap_ll_value args[3] = {s->device}, mb = ap_ll_int(b, a->shift);
    unsigned n = 1;
    if (ap_act_has_wire(a->kind))
        args[n++] = ap_ll_int32(b, a->wire);
    args[n++] = turn ? LLVMBuildAdd(b->builder, turn, mb, "") : mb;
    try(s, ap_ll_call(b, function[a->kind], b->i32, n, args));
}

static void make_list(stage *s)
{
    const ap_list *list = &s->e->program->lists.at[s->e->stage];
    ap_ll *b = s->b;
    ap_ll_loop loop = {0};
    uint32_t end = 0; /* of the loop that we are in */
    open_function(s, AP_LL_LIST);
    for (uint32_t i = 0; i < list->acts.len; i++) {
        const ap_act *a = &list->acts.at[i];
        if (a->kind == AP_ACT_LOOP) {
            loop = ap_ll_open_loop(b, ap_ll_int(b, 0), ap_ll_int(b, a->turns), 1, false);
            end = i + 1 + a->body;
            continue;
        }
        make_act(s, a, i < end ? loop.i : NULL);
        if (i + 1 == end)
            ap_ll_close_loop(b, &loop);
    }
    ap_ll_close_function(b, ap_ll_int32(b, APRT_OK));
}

/* ---- convolutions get their slots ---- */

static ap_ll_value conv_turns(stage *s, const ap_instr *in, ap_ll_value turns)
{
    const ap_conv *c = &s->e->p->kernels.at[in->kernel].conv;
    const int64_t extent[4] = {c->n, c->g, c->m, c->c};
    const uint32_t number[4] = {c->turns_n, c->turns_g, c->turns_m, c->turns_c};
    for (int i = 0; i < 4; i++)
        ap_ll_write(s->b, turns, ap_ll_int(s->b, i),
                    number[i] ? clamped(s, &in->ints[number[i] - 1]) : ap_ll_int(s->b, extent[i]));
    return turns;
}

static void make_prepare(stage *s)
{
    ap_ll *b = s->b;
    if (!ap_emit_conv_slots(s->e))
        return;
    open_function(s, AP_LL_PREPARE);
    ap_ll_value turns = ap_ll_stack(b, b->i64, 4, 0), w = ap_ll_stack(b, b->ptr, 1, 0);
    for (uint32_t i = 0; i < s->e->p->instrs.len; i++) {
        const ap_instr *in = &s->e->p->instrs.at[i];
        if (in->kind != AP_INSTR_CALL || s->e->p->kernels.at[in->kernel].kind != AP_KERNEL_CONV)
            continue;
        const ap_kernel *k = &s->e->p->kernels.at[in->kernel];
        bool prepared = is_prepared(s->e, &in->ref[1]);
        set_member(s, offsetof(aprt_device, at), ap_ll_int32(b, i));
        if (prepared) {
            ap_ll_value fetch[3] = {s->device, ap_ll_int32(b, in->ref[1].index), w};
            try(s, ap_ll_call(b, "aprt_param_fetch", b->i32, 3, fetch));
        }
        ap_ll_value args[6] = {s->device, ap_ll_int32(b, conv_slot(s->e, in)), symbol(s, ap_ll_kernel_name(s->e, k)),
                               conv_turns(s, in, turns)};
        if (prepared)
            args[4] = LLVMBuildLoad2(b->builder, b->ptr, w, "");
        else if (in->ref[1].space == AP_SPACE_PARAM)
            args[4] = reference(s, &in->ref[1], k->conv.dtype);
        else
            args[4] = LLVMConstNull(b->ptr);
        args[5] = ap_ll_int(b, prepared ? s->e->p->params.at[in->ref[1].index].bytes : 0);
        try(s, ap_ll_call(b, "aprt_conv_prepare", b->i32, 6, args));
    }
    ap_ll_close_function(b, ap_ll_int32(b, APRT_OK));
}

void ap_ll_stage(ap_ll *b)
{
    stage s = {.b = b, .e = b->e};
    make_run(&s);
    make_list(&s);
    make_prepare(&s);
}
