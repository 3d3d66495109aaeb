/* Loop nests in lanes (backend/nest.h) as instructions. */
#include "backend/llvm/build.h"

typedef struct lanes {
    ap_ll_kernel *w;
    ap_ll *b;
    const ap_nest *n;
    ap_lanes f;
    int64_t inner_count;
    ap_ll_value loop[AP_MAX_LOOPS];
    ap_ll_value first, count, lane; /* of the block: where it begins, how many lanes; the one in progress */
    ap_ll_value *value;             /* per sop, in the loop in progress */
    ap_ll_value *fold, *at, *kept;  /* per sop: arrays of a block */
    ap_ll_value temp[8];
} lanes;

static ap_dtype argument_type(const lanes *w, const ap_sop *s)
{
    return w->n->sop[s->arg[0]].dtype;
}

static LLVMTypeRef fold_type(const lanes *w, const ap_sop *s)
{
    return ap_ll_fold_type(w->b, ap_nest_fold_type(w->n, s, w->inner_count, AP_LANES_LONG_SUM), argument_type(w, s));
}

static ap_ll_value value_of(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    return s->kind == AP_SOP_CONST ? ap_ll_literal(w->b, s->dtype, s->imm) : w->value[id];
}

static ap_ll_value place_of(lanes *w, const ap_sop *s)
{
    return ap_ll_strides(w->b, ap_nest_section_loops(w->n, s->section), w->w->k->operand[s->operand].stride, w->loop);
}

static ap_ll_value inner_place(lanes *w)
{
    int64_t stride[AP_MAX_LOOPS];
    ap_nest_inner_strides(w->n, stride);
    return ap_ll_strides(w->b, w->n->nouter + w->n->ninner, stride, w->loop);
}

/* Temporaries: a row of lanes for each place within the inner loops. */
static ap_ll_value temp_place(lanes *w)
{
    return ap_ll_add(w->b, ap_ll_scale(w->b, inner_place(w), w->f.width), w->lane);
}

/* ---- folds ---- */

static void fold(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = argument_type(w, s);
    ap_ll_value acc = ap_ll_read(w->b, fold_type(w, s), w->fold[id], w->lane), x = value_of(w, s->arg[0]);
    if (!ap_sop_is_argument_index(s)) {
        ap_ll_write(w->b, w->fold[id], w->lane, ap_ll_fold(w->b, s->reduce, t, acc, x));
        return;
    }
    ap_ll_value at = ap_ll_read(w->b, w->b->i64, w->at[id], w->lane);
    ap_ll_value takes = ap_ll_fold_takes(w->b, ap_sop_is_largest(s), t, acc, at, x);
    ap_ll_write(w->b, w->fold[id], w->lane, LLVMBuildSelect(w->b->builder, takes, x, acc, ""));
    ap_ll_write(w->b, w->at[id], w->lane, LLVMBuildSelect(w->b->builder, takes, inner_place(w), at, ""));
}

static ap_ll_value finished(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    if (!ap_sop_is_argument_index(s))
        return ap_ll_fold_end(w->b, s->dtype, ap_ll_read(w->b, fold_type(w, s), w->fold[id], w->lane));
    ap_ll_value at = ap_ll_read(w->b, w->b->i64, w->at[id], w->lane), zero = ap_ll_int(w->b, 0);
    ap_ll_value none = LLVMBuildICmp(w->b->builder, LLVMIntSLT, at, zero, "");
    return ap_ll_fold_end(w->b, s->dtype, LLVMBuildSelect(w->b->builder, none, zero, at, ""));
}

/* ---- statements ---- */

static ap_ll_value pointwise(lanes *w, const ap_sop *s)
{
    ap_ll_value x[3] = {NULL, NULL, NULL};
    for (int i = 0; i < ap_sop_argument_count(s); i++)
        x[i] = value_of(w, s->arg[i]);
    ap_dtype operands = w->n->sop[s->arg[s->pw == AP_PW_SELECT]].dtype;
    return ap_ll_pointwise(w->b, (ap_pointwise)s->pw, operands, s->dtype, x);
}

static void make_sop(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    bool memory = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE;
    ap_dtype t = memory ? w->w->k->operand[s->operand].dtype : s->dtype;
    switch (s->kind) {
    case AP_SOP_LOAD:
        w->value[id] = ap_ll_load(w->b, t, w->w->operand[s->operand], place_of(w, s));
        break;
    case AP_SOP_INDEX:
        w->value[id] = ap_ll_strides(w->b, ap_nest_section_loops(w->n, s->section), s->loop_stride, w->loop);
        if (ap_nest_has_start(w->w->k, s))
            w->value[id] = LLVMBuildAdd(w->b->builder, w->value[id], w->w->number[s->imm.i], "");
        w->value[id] = LLVMBuildIntCast2(w->b->builder, w->value[id], ap_ll_register(w->b, t), true, "");
        break;
    case AP_SOP_POINTWISE:
        w->value[id] = pointwise(w, s);
        break;
    case AP_SOP_REDUCE:
        fold(w, id);
        break;
    case AP_SOP_STORE:
        ap_ll_store(w->b, t, w->w->operand[s->operand], place_of(w, s), value_of(w, s->arg[0]));
        break;
    case AP_SOP_TEMP_STORE:
        ap_ll_write(w->b, w->temp[s->imm.i], temp_place(w), value_of(w, s->arg[0]));
        break;
    case AP_SOP_TEMP_LOAD:
        w->value[id] = ap_ll_read(w->b, ap_ll_register(w->b, t), w->temp[s->imm.i], temp_place(w));
        break;
    default:
        break;
    }
    if (w->kept[id] && s->kind != AP_SOP_REDUCE)
        ap_ll_write(w->b, w->kept[id], w->lane, w->value[id]);
}

/* Numbers of rows that the section reads and another one has made. */
static void make_arrivals(lanes *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (!ap_lanes_arrives(&w->f, w->n, i, section))
            continue;
        if (s->kind == AP_SOP_REDUCE)
            w->value[i] = finished(w, i);
        else
            w->value[i] = ap_ll_read(w->b, ap_ll_register(w->b, s->dtype), w->kept[i], w->lane);
    }
}

static ap_ll_loop open_lane(lanes *w)
{
    ap_ll_loop loop = ap_ll_open_loop(w->b, ap_ll_int(w->b, 0), w->count, 1, true);
    w->lane = loop.i;
    w->loop[w->f.loop] = ap_ll_add(w->b, w->first, loop.i);
    return loop;
}

static void start_folds(lanes *w, int section)
{
    bool any = false;
    ap_ll_loop loop = {0};
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->kind != AP_SOP_REDUCE || s->section != section || !w->f.live[i])
            continue;
        if (!any)
            loop = open_lane(w);
        any = true;
        ap_ll_write(w->b, w->fold[i], w->lane, ap_ll_fold_start(w->b, w->n, s, fold_type(w, s)));
        if (w->at[i])
            ap_ll_write(w->b, w->at[i], w->lane, ap_ll_int(w->b, -1));
    }
    if (any)
        ap_ll_close_loop(w->b, &loop);
}

static ap_ll_loop open_loop(lanes *w, int l)
{
    ap_ll_value end = ap_ll_turns(w->w, w->n->extent[l], w->n->turns[l]);
    ap_ll_loop loop = ap_ll_open_loop(w->b, ap_ll_int(w->b, 0), end, 1, false);
    w->loop[l] = loop.i;
    return loop;
}

static void make_section(lanes *w, int section)
{
    const ap_nest *n = w->n;
    ap_ll_loop loop[AP_MAX_LOOPS], lane;
    int loops = ap_nest_section_loops(n, section);
    if (ap_lanes_is_empty(&w->f, n, section))
        return;
    start_folds(w, section);
    for (int l = n->nouter; l < loops; l++)
        loop[l] = open_loop(w, l);
    lane = open_lane(w);
    make_arrivals(w, section);
    for (uint32_t i = 0; i < n->nsops; i++)
        if (n->sop[i].section == section && w->f.live[i] && n->sop[i].kind != AP_SOP_CONST)
            make_sop(w, i);
    ap_ll_close_loop(w->b, &lane);
    for (int l = loops; l-- > n->nouter;)
        ap_ll_close_loop(w->b, &loop[l]);
}

/* ---- arrays ---- */

static void make_arrays(lanes *w)
{
    const ap_nest *n = w->n;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        if (s->kind == AP_SOP_REDUCE && w->f.live[i]) {
            w->fold[i] = ap_ll_stack(w->b, fold_type(w, s), w->f.width, 64);
            if (ap_sop_is_argument_index(s))
                w->at[i] = ap_ll_stack(w->b, w->b->i64, w->f.width, 64);
        } else if (w->f.kept[i] && s->kind != AP_SOP_CONST) {
            w->kept[i] = ap_ll_stack(w->b, ap_ll_register(w->b, s->dtype), w->f.width, 64);
        }
    }
    for (int i = 0; i < n->ntemps; i++) {
        int64_t count = ap_max_i64(1, w->inner_count * w->f.width);
        if (w->w->scratch)
            w->temp[i] = ap_ll_at(w->b, w->b->i8, w->w->scratch, ap_ll_int(w->b, bytes));
        else
            w->temp[i] = ap_ll_stack(w->b, ap_ll_register(w->b, n->temp_dtype[i]), count, 64);
        bytes += (count * ap_nest_register_bytes(n->temp_dtype[i]) + 63) / 64 * 64;
    }
}

/* Lanes of the block that begins at w->first. */
static ap_ll_value lanes_of_block(lanes *w, ap_ll_value end)
{
    const ap_nest *n = w->n;
    int64_t extent = n->extent[w->f.loop];
    if (!n->turns[w->f.loop] && (extent <= w->f.width || extent % w->f.width == 0))
        return ap_ll_int(w->b, ap_min_i64(extent, w->f.width));
    ap_ll_value pair[2] = {LLVMBuildNSWSub(w->b->builder, end, w->first, ""), ap_ll_int(w->b, w->f.width)};
    return ap_ll_intrinsic(w->b, "llvm.smin", 1, &w->b->i64, 2, pair);
}

void ap_ll_lanes(ap_ll_kernel *k)
{
    ap_arena *arena = &k->b->e->ctx->scratch;
    lanes w = {.w = k, .b = k->b, .n = &k->k->nest};
    const ap_nest *n = w.n;
    ap_ll_loop loop[AP_MAX_LOOPS], blocks;
    w.f = ap_lanes_facts(arena, k->k);
    w.inner_count = ap_nest_inner_count(n);
    w.value = AP_NEW_ARRAY(arena, ap_ll_value, n->nsops);
    w.fold = AP_NEW_ARRAY(arena, ap_ll_value, n->nsops);
    w.at = AP_NEW_ARRAY(arena, ap_ll_value, n->nsops);
    w.kept = AP_NEW_ARRAY(arena, ap_ll_value, n->nsops);
    make_arrays(&w);
    for (int l = 0; l < n->nouter; l++)
        if (l != w.f.loop)
            loop[l] = open_loop(&w, l);
    ap_ll_value end = ap_ll_turns(k, n->extent[w.f.loop], n->turns[w.f.loop]);
    blocks = ap_ll_open_loop(w.b, ap_ll_int(w.b, 0), end, w.f.width, false);
    w.first = blocks.i;
    w.count = lanes_of_block(&w, end);
    for (int s = 0; s < n->nsections; s++)
        make_section(&w, s);
    ap_ll_close_loop(w.b, &blocks);
    for (int l = n->nouter; l-- > 0;)
        if (l != w.f.loop)
            ap_ll_close_loop(w.b, &loop[l]);
}
