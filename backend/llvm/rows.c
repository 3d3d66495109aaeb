#include "backend/llvm/build.h"

ap_ll_rows ap_ll_rows_start(ap_ll_kernel *w, int64_t width, int64_t long_sum)
{
    ap_arena *arena = &w->b->e->ctx->scratch;
    ap_ll_rows r = {.w = w, .b = w->b, .n = &w->k->nest, .width = width, .long_sum = long_sum};
    r.lane = ap_ll_int(w->b, 0);
    r.inner_count = ap_nest_inner_count(r.n);
    r.value = AP_NEW_ARRAY(arena, ap_ll_value, r.n->nsops);
    r.fold = AP_NEW_ARRAY(arena, ap_ll_value, r.n->nsops);
    r.at = AP_NEW_ARRAY(arena, ap_ll_value, r.n->nsops);
    return r;
}

ap_ll_value ap_ll_value_of(const ap_ll_rows *r, uint32_t id)
{
    const ap_sop *s = &r->n->sop[id];
    return s->kind == AP_SOP_CONST ? ap_ll_literal(r->b, s->dtype, s->imm) : r->value[id];
}

ap_ll_value ap_ll_place_of(const ap_ll_rows *r, const ap_sop *s)
{
    return ap_ll_strides(r->b, ap_nest_section_loops(r->n, s->section), r->w->k->operand[s->operand].stride, r->loop);
}

/* The row-major position within the inner loops. */
static ap_ll_value inner_place(const ap_ll_rows *r)
{
    int64_t stride[AP_MAX_LOOPS];
    ap_nest_inner_strides(r->n, stride);
    return ap_ll_strides(r->b, r->n->nouter + r->n->ninner, stride, r->loop);
}

/* ---- folds ---- */

static ap_dtype argument_type(const ap_ll_rows *r, const ap_sop *s)
{
    return r->n->sop[s->arg[0]].dtype;
}

static LLVMTypeRef fold_type(const ap_ll_rows *r, const ap_sop *s)
{
    return ap_ll_fold_type(r->b, ap_nest_fold_type(r->n, s, r->inner_count, r->long_sum), argument_type(r, s));
}

void ap_ll_rows_hold(ap_ll_rows *r, uint32_t id)
{
    const ap_sop *s = &r->n->sop[id];
    if (!r->fold[id])
        r->fold[id] = ap_ll_stack(r->b, fold_type(r, s), r->width, r->width > 1 ? 64 : 0);
    if (!r->at[id] && ap_sop_is_argument_index(s))
        r->at[id] = ap_ll_stack(r->b, r->b->i64, r->width, r->width > 1 ? 64 : 0);
}

void ap_ll_rows_fold_start(ap_ll_rows *r, uint32_t id)
{
    const ap_sop *s = &r->n->sop[id];
    ap_ll_write(r->b, r->fold[id], r->lane, ap_ll_fold_start(r->n, s, fold_type(r, s)));
    if (r->at[id])
        ap_ll_write(r->b, r->at[id], r->lane, ap_ll_int(r->b, -1));
}

void ap_ll_rows_fold(ap_ll_rows *r, uint32_t id)
{
    const ap_sop *s = &r->n->sop[id];
    ap_dtype t = argument_type(r, s);
    ap_ll *b = r->b;
    ap_ll_value acc = ap_ll_read(b, fold_type(r, s), r->fold[id], r->lane), x = ap_ll_value_of(r, s->arg[0]);
    if (!ap_sop_is_argument_index(s)) {
        ap_ll_write(b, r->fold[id], r->lane, ap_ll_fold(b, s->reduce, t, acc, x));
        return;
    }
    ap_ll_value at = ap_ll_read(b, b->i64, r->at[id], r->lane);
    ap_ll_value takes = ap_ll_fold_takes(b, ap_sop_is_largest(s), t, acc, at, x);
    ap_ll_write(b, r->fold[id], r->lane, LLVMBuildSelect(b->builder, takes, x, acc, ""));
    ap_ll_write(b, r->at[id], r->lane, LLVMBuildSelect(b->builder, takes, inner_place(r), at, ""));
}

ap_ll_value ap_ll_rows_folded(ap_ll_rows *r, uint32_t id)
{
    const ap_sop *s = &r->n->sop[id];
    ap_ll *b = r->b;
    if (!ap_sop_is_argument_index(s))
        return ap_ll_fold_end(b, s->dtype, ap_ll_read(b, fold_type(r, s), r->fold[id], r->lane));
    ap_ll_value at = ap_ll_read(b, b->i64, r->at[id], r->lane), zero = ap_ll_int(b, 0);
    ap_ll_value none = LLVMBuildICmp(b->builder, LLVMIntSLT, at, zero, "");
    return ap_ll_fold_end(b, s->dtype, LLVMBuildSelect(b->builder, none, zero, at, ""));
}

/* ---- statements ---- */

static ap_ll_value index_value(const ap_ll_rows *r, const ap_sop *s)
{
    ap_ll_value x = ap_ll_strides(r->b, ap_nest_section_loops(r->n, s->section), s->loop_stride, r->loop);
    if (ap_nest_has_start(r->w->k, s))
        x = LLVMBuildAdd(r->b->builder, x, r->w->number[s->imm.i], "");
    return LLVMBuildIntCast2(r->b->builder, x, ap_ll_register(r->b, s->dtype), true, "");
}

static ap_ll_value pointwise(const ap_ll_rows *r, const ap_sop *s)
{
    ap_ll_value x[3] = {NULL, NULL, NULL};
    for (int i = 0; i < ap_sop_argument_count(s); i++)
        x[i] = ap_ll_value_of(r, s->arg[i]);
    ap_dtype operands = r->n->sop[s->arg[s->pw == AP_PW_SELECT]].dtype;
    return ap_ll_pointwise(r->b, (ap_pointwise)s->pw, operands, s->dtype, x);
}

static ap_ll_value temp_place(const ap_ll_rows *r)
{
    return ap_ll_add(r->b, ap_ll_scale(r->b, inner_place(r), r->width), r->lane);
}

void ap_ll_rows_make(ap_ll_rows *r, uint32_t id)
{
    const ap_sop *s = &r->n->sop[id];
    bool memory = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE;
    ap_dtype t = memory ? r->w->k->operand[s->operand].dtype : s->dtype;
    switch (s->kind) {
    case AP_SOP_LOAD:
        r->value[id] = ap_ll_load(r->b, t, r->w->operand[s->operand], ap_ll_place_of(r, s));
        break;
    case AP_SOP_INDEX:
        r->value[id] = index_value(r, s);
        break;
    case AP_SOP_POINTWISE:
        r->value[id] = pointwise(r, s);
        break;
    case AP_SOP_REDUCE:
        ap_ll_rows_fold(r, id);
        break;
    case AP_SOP_STORE:
        ap_ll_store(r->b, t, r->w->operand[s->operand], ap_ll_place_of(r, s), ap_ll_value_of(r, s->arg[0]));
        break;
    case AP_SOP_TEMP_STORE:
        ap_ll_write(r->b, r->temp[s->imm.i], temp_place(r), ap_ll_value_of(r, s->arg[0]));
        break;
    case AP_SOP_TEMP_LOAD:
        r->value[id] = ap_ll_read(r->b, ap_ll_register(r->b, t), r->temp[s->imm.i], temp_place(r));
        break;
    default:
        break;
    }
}

void ap_ll_rows_temps(ap_ll_rows *r)
{
    int64_t bytes = 0, count = ap_max_i64(1, ap_sat_mul(r->inner_count, r->width));
    for (int i = 0; i < r->n->ntemps; i++) {
        ap_dtype t = r->n->temp_dtype[i];
        if (r->w->scratch)
            r->temp[i] = ap_ll_at(r->b, r->b->i8, r->w->scratch, ap_ll_int(r->b, bytes));
        else
            r->temp[i] = ap_ll_stack(r->b, ap_ll_register(r->b, t), count, 64);
        bytes += (count * ap_nest_register_bytes(t) + 63) / 64 * 64;
    }
}
