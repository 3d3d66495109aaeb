/* Where values come from that no node computes: initializers and the contents of Constant nodes.
 *
 * One element of any type, up to 16 integers or booleans, and up to 16 floats of a Constant node become a
 * `constant`: they are factors, shapes and axes. Everything else is a frozen `param` whose bytes stay where they are.
 */
#include "frontend/legalise.h"

#include <math.h>
#include <string.h>

#define SMALL 16

ap_value ap_emit_source(ap_legal *l, const ap_onnx_tensor *t, ap_name name, bool is_initializer)
{
    bool small = t->count <= (is_initializer && ap_dtype_is_float(t->dtype) ? 1 : SMALL);
    bool absent = l->graph->src->weights_absent && t->data.kind == AP_DATA_FILE && t->data.file != l->graph->src->base;
    if (small && !absent)
        return ap_emit_data(l, t);
    ap_type type = ap_type_make(l->ctx, t->dtype, ap_shape_of_dims(l->ctx, t->rank, t->dim), 0);
    if (t->count == 0)
        return ap_emit_data(l, t);
    if (name < l->ntaken)
        l->taken[name] = true;
    ap_symbol s = ap_module_add_symbol(l->m, AP_SYMBOL_PARAM, name, type, t->data, l->loc);
    return l->m->symbols.at[s].value;
}

/* The first use of an initializer makes its value. */
ap_value ap_in(ap_legal *l, uint32_t i)
{
    if (l->status || !ap_has_in(l, i))
        return AP_NONE;
    uint32_t g = l->node->in[i];
    const ap_onnx_value *v = &l->graph->values.at[g];
    if (l->value[g] != AP_NONE || v->origin != AP_ONNX_INITIALIZER)
        return l->value[g];
    ap_onnx_tensor t;
    ap_loc loc = l->loc;
    l->loc = l->graph->src->loc;
    l->status = ap_onnx_tensor_read(l->graph->src, l->graph->proto->initializer[v->index], "initializer", l->loc, &t);
    if (!l->status)
        l->value[g] = ap_emit_source(l, &t, v->name, true);
    if (!l->status)
        ap_set_name(l, l->value[g], v->name);
    l->loc = loc;
    return l->status ? AP_NONE : l->value[g];
}

/* ---- Constant and its relatives ---- */

static ap_value constant_of_list(ap_legal *l, ap_dtype t, size_t n, const Onnx__AttributeProto *a)
{
    ap_tensor *x = AP_NEW(&l->ctx->scratch, ap_tensor);
    int64_t dim = (int64_t)n;
    const ap_shape_info *shape = ap_shape_get(l->ctx, ap_shape_of_dims(l->ctx, 1, &dim));
    if (!ap_tensor_make(&l->ctx->scratch, t, shape, x)) {
        ap_refuse(l, "the list is too long");
        return AP_NONE;
    }
    for (size_t i = 0; i < n; i++) {
        if (t == AP_I64)
            x->at[i].i = a->ints[i];
        else
            x->at[i].f = (double)a->floats[i];
    }
    return ap_emit_tensor(l, x);
}

void ap_lower_constant(ap_legal *l)
{
    const Onnx__AttributeProto *a;
    ap_value v = AP_NONE;
    ap_onnx_tensor t;
    if ((a = ap_onnx_node_attribute(l->node, "value")) != NULL && a->t) {
        l->status = ap_onnx_tensor_read(l->graph->src, a->t, "constant", l->loc, &t);
        ap_name name = l->node->out[0] == AP_NONE ? 0 : l->graph->values.at[l->node->out[0]].name;
        if (!l->status)
            v = ap_emit_source(l, &t, name, false);
    } else if (ap_has_attr(l, "value_int")) {
        v = ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = ap_attr_int(l, "value_int", 0)});
    } else if (ap_has_attr(l, "value_float")) {
        v = ap_emit_number(l, AP_F32, ap_attr_float(l, "value_float", 0));
    } else if ((a = ap_onnx_node_attribute(l->node, "value_ints")) != NULL) {
        v = constant_of_list(l, AP_I64, a->n_ints, a);
    } else if ((a = ap_onnx_node_attribute(l->node, "value_floats")) != NULL) {
        v = constant_of_list(l, AP_F32, a->n_floats, a);
    } else {
        ap_refuse(l, "only tensors and numbers can be constants here");
    }
    ap_set_out(l, 0, v);
}

void ap_lower_constant_of_shape(ap_legal *l)
{
    ap_dims d = {0};
    d.rank = ap_known_ints(l, ap_in(l, 0), "the shape", d.at, AP_MAX_RANK);
    ap_dtype type = AP_F32;
    ap_scalar x = {0};
    const Onnx__AttributeProto *a = ap_onnx_node_attribute(l->node, "value");
    if (a && a->t && !l->status) {
        ap_onnx_tensor t;
        l->status = ap_onnx_tensor_read(l->graph->src, a->t, "attribute", l->loc, &t);
        const void *bytes = NULL;
        if (!l->status && t.count != 1)
            ap_refuse(l, "attribute value must have one element");
        if (!l->status)
            l->status = ap_data_bytes(l->m, &t.data, l->loc, &bytes);
        if (l->status)
            return;
        type = t.dtype;
        x = ap_scalar_load(type, bytes);
    }
    for (int i = 0; i < d.rank; i++)
        if (d.at[i] < 0)
            ap_refuse(l, "the shape %s has a negative dimension", ap_dims_str(l, &d));
    ap_set_out(l, 0, ap_emit_splat(l, type, &d, x));
}

static int64_t count_int(int64_t start, int64_t limit, int64_t step)
{
    __int128 span = (__int128)limit - start;
    if ((span > 0) != (step > 0) || span == 0)
        return 0;
    __int128 n = (span + step + (step > 0 ? -1 : 1)) / step;
    return n > INT32_MAX ? INT32_MAX : (int64_t)n;
}

void ap_lower_range(ap_legal *l)
{
    ap_value start = ap_in(l, 0), limit = ap_in(l, 1), delta = ap_in(l, 2);
    const ap_tensor *a = ap_known(l, start), *b = ap_known(l, limit), *c = ap_known(l, delta);
    if (l->status)
        return;
    if (!a || !b || !c || a->count != 1 || b->count != 1 || c->count != 1) {
        ap_refuse(l, "start, limit and delta must be single numbers known at compile time");
        return;
    }
    ap_dtype t = ap_dtype_of(l, start);
    bool f = ap_dtype_is_float(t);
    int64_t n;
    if (f ? c->at[0].f == 0 || c->at[0].f != c->at[0].f : c->at[0].i == 0) {
        ap_refuse(l, "delta is zero");
        return;
    }
    if (f) {
        double k = __builtin_ceil((b->at[0].f - a->at[0].f) / c->at[0].f);
        n = !(k > 0) ? 0 : k > INT32_MAX ? INT32_MAX : (int64_t)k;
    } else {
        n = count_int(a->at[0].i, b->at[0].i, c->at[0].i);
    }
    if (n == INT32_MAX) {
        ap_refuse(l, "the range has more than 2^31 entries");
        return;
    }
    ap_dims d = {.rank = 1, .at = {n}};
    ap_value v = ap_emit_iota(l, t, &d, 0);
    ap_dims none = {0};
    if (f ? c->at[0].f != 1 : c->at[0].i != 1)
        v = ap_emit2(l, AP_OP_MUL, v, ap_emit_splat(l, t, &none, c->at[0]));
    if (f ? a->at[0].f != 0 : a->at[0].i != 0)
        v = ap_emit2(l, AP_OP_ADD, v, ap_emit_splat(l, t, &none, a->at[0]));
    ap_set_out(l, 0, v);
}

void ap_lower_shape(ap_legal *l)
{
    ap_dims d = ap_dims_of(l, ap_in(l, 0));
    int64_t start = ap_attr_int(l, "start", 0), end = ap_attr_int(l, "end", d.rank);
    start = ap_min_i64(ap_max_i64(start < 0 ? start + d.rank : start, 0), d.rank);
    end = ap_min_i64(ap_max_i64(end < 0 ? end + d.rank : end, 0), d.rank);
    ap_set_out(l, 0, ap_emit_ints(l, end > start ? (int)(end - start) : 0, d.at + start));
}

void ap_lower_size(ap_legal *l)
{
    ap_dims d = ap_dims_of(l, ap_in(l, 0));
    ap_set_out(l, 0, ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = ap_dims_count(&d)}));
}

/* 1 on the k-th diagonal: column == row + k */
void ap_lower_eye_like(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims d = ap_dims_of(l, x);
    ap_dtype t = ap_dtype_of(l, x);
    if (!l->status && d.rank != 2)
        ap_refuse(l, "a matrix is needed, not %s", ap_dims_str(l, &d));
    if (ap_has_attr(l, "dtype") && !ap_dtype_from_onnx((int)ap_attr_int(l, "dtype", 0), &t))
        ap_refuse(l, "element type %d is not supported", (int)ap_attr_int(l, "dtype", 0));
    if (l->status)
        return;
    ap_value row = ap_emit_iota(l, AP_I64, &d, 0), column = ap_emit_iota(l, AP_I64, &d, 1);
    row =
        ap_emit2(l, AP_OP_ADD, row, ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = ap_attr_int(l, "k", 0)}));
    ap_set_out(l, 0, ap_emit_cast(l, ap_emit2(l, AP_OP_EQ, row, column), t));
}

/* Windows of signal processing, sums of cosines: a0 - a1 cos(2 pi n / size) + a2 cos(4 pi n / size) */
void ap_lower_window(ap_legal *l)
{
    static const double a[][3] = {{0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
    const double *w = a[l->node->op->variant], pi = acos(-1);
    bool periodic = ap_attr_int(l, "periodic", 1) != 0;
    double size = 0;
    ap_dtype t = AP_F32;
    if (!ap_known_scalar(l, ap_in(l, 0), &size) || size < 1 || size > AP_FOLD_MAX)
        ap_refuse(l, "the size of a window must be known at compile time, and at most %d", AP_FOLD_MAX);
    if (!ap_dtype_from_onnx((int)ap_attr_int(l, "output_datatype", 1), &t) || !ap_dtype_is_float(t))
        ap_refuse(l, "a window of this element type is not supported");
    if (l->status)
        return;
    ap_dims d = {1, {(int64_t)size}};
    ap_tensor *y = AP_NEW(&l->ctx->scratch, ap_tensor);
    ap_tensor_make(&l->ctx->scratch, t, ap_shape_get(l->ctx, ap_shape_of_dims(l->ctx, d.rank, d.at)), y);
    double turn = 2 * pi / (periodic ? size : size > 1 ? size - 1 : 1);
    for (int64_t n = 0; n < y->count; n++) {
        ap_scalar x = {.f = w[0] - w[1] * cos(turn * (double)n) + w[2] * cos(2 * turn * (double)n)};
        y->at[n] = ap_scalar_round(t, x);
    }
    ap_set_out(l, 0, ap_emit_tensor(l, y));
}

void ap_lower_one_hot(ap_legal *l)
{
    ap_value ids = ap_emit_cast(l, ap_in(l, 0), AP_I64), values = ap_in(l, 2);
    ap_dims d = ap_dims_of(l, ids), v = ap_dims_of(l, values);
    double depth = 0;
    if (!l->status && !ap_known_scalar(l, ap_in(l, 1), &depth))
        ap_refuse(l, "depth must be known at compile time");
    if (!l->status && (v.rank != 1 || v.at[0] != 2 || d.rank >= AP_MAX_RANK || depth < 0 || depth > INT32_MAX))
        ap_refuse(l, "two values, a depth and at most %d dimensions of indices are needed", AP_MAX_RANK - 1);
    int axis = ap_axis(l, ap_attr_int(l, "axis", -1), d.rank + 1);
    if (l->status)
        return;
    ap_dims r = {.rank = d.rank + 1}, one = {0};
    for (int i = 0; i < r.rank; i++) {
        r.at[i] = i == axis ? (int64_t)depth : d.at[i - (i > axis)];
        one.at[i] = i == axis ? 1 : r.at[i];
    }
    one.rank = r.rank;
    ap_value n = ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = (int64_t)depth});
    ap_value negative = ap_emit2(l, AP_OP_LT, ids, ap_emit_number(l, AP_I64, 0));
    ids = ap_emit_select(l, negative, ap_emit2(l, AP_OP_ADD, ids, n), ids);
    ap_dims line = {.rank = r.rank};
    for (int i = 0; i < r.rank; i++)
        line.at[i] = i == axis ? (int64_t)depth : 1;
    ap_value hit = ap_emit2(l, AP_OP_EQ, ap_emit_reshape(l, ids, &one), ap_emit_iota(l, AP_I64, &line, axis));
    ap_dims scalar = {0};
    ap_value off = ap_emit_reshape(l, ap_emit_part(l, values, 0, 0, 1), &scalar);
    ap_value on = ap_emit_reshape(l, ap_emit_part(l, values, 0, 1, 1), &scalar);
    ap_set_out(l, 0, ap_emit_select(l, hit, on, off));
}
