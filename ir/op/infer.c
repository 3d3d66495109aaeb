/* Types of the results, for operators that work on dimensions: pointwise with numpy broadcasting, slice,
 * pad, concat, reshape, and those whose type is given. Operators with letters: infer_letters.c.
 *
 * A type already set is checked instead of made, and keeps its sharding. */
#include "ir/op/columns.h"

#include "ir/base/text.h"
#include "ir/text_form.h"

#include <inttypes.h>
#include <string.h>

/* ---- shapes under construction ---- */

void ap_shape_init(ap_shape_info *s)
{
    memset(s, 0, sizeof *s);
}

bool ap_shape_open_dim(ap_shape_info *s)
{
    if (s->rank == AP_MAX_RANK)
        return false;
    s->rank++;
    s->first[s->rank] = s->nfactors;
    return true;
}

bool ap_shape_add_factor(ap_shape_info *s, int64_t logical, int64_t physical)
{
    if (logical == 1 && physical == 1)
        return true;
    if (s->nfactors == AP_MAX_FACTORS || s->nfactors - s->first[s->rank - 1] == AP_MAX_DIM_FACTORS)
        return false;
    s->logical[s->nfactors] = logical;
    s->physical[s->nfactors] = physical;
    s->nfactors++;
    s->first[s->rank] = s->nfactors;
    return true;
}

void ap_shape_take_physical(const ap_module *m, ap_node n, ap_shape_info *s)
{
    ap_type given = ap_value_type(m, ap_node_at(m, n)->out[0]);
    int f = s->nfactors - 1;
    if (!given || f < 0)
        return;
    const ap_shape_info *g = ap_type_shape(m->ctx, given);
    if (f < g->nfactors && g->logical[f] == s->logical[f])
        s->physical[f] = g->physical[f];
}

bool ap_shape_copy_dim(ap_shape_info *s, const ap_shape_info *from, int d)
{
    bool ok = true;
    for (int f = from->first[d]; f < from->first[d + 1]; f++)
        ok = ok && ap_shape_add_factor(s, from->logical[f], from->physical[f]);
    return ok;
}

bool ap_shape_same_dim(const ap_shape_info *a, int da, const ap_shape_info *b, int db)
{
    int n = a->first[da + 1] - a->first[da];
    if (n != b->first[db + 1] - b->first[db])
        return false;
    for (int i = 0; i < n; i++) {
        int fa = a->first[da] + i, fb = b->first[db] + i;
        if (a->logical[fa] != b->logical[fb] || a->physical[fa] != b->physical[fb])
            return false;
    }
    return true;
}

const char *ap_shape_text(const ap_module *m, const ap_shape_info *s)
{
    ap_text t;
    ap_text_init(&t, &m->ctx->arena);
    ap_shape_print(s, &t);
    return ap_text_str(&t);
}

static ap_status too_many(ap_module *m, ap_node n)
{
    return ap_error(m->ctx, ap_node_at(m, n)->loc,
                    "a value here has more than %d dimensions, %d factors in a dimension, or %d factors", AP_MAX_RANK,
                    AP_MAX_DIM_FACTORS, AP_MAX_FACTORS);
}

ap_status ap_infer_set(ap_module *m, ap_node n, uint32_t i, ap_dtype dtype, const ap_shape_info *shape)
{
    const ap_node_info *node = ap_node_at(m, n);
    ap_value_info *v = ap_value_at(m, node->out[i]);
    ap_shape s = ap_shape_intern(m->ctx, shape);
    if (v->type == 0) {
        v->type = ap_type_make(m->ctx, dtype, s, 0);
        return AP_OK;
    }
    ap_type_info t = ap_type_get(m->ctx, v->type);
    if (t.dtype != dtype || t.shape != s)
        return ap_error(m->ctx, node->loc, "result %u of %s is declared as %s%s but is %s%s", i,
                        ap_op_get(node->op)->name, ap_dtype_str(t.dtype),
                        ap_shape_text(m, ap_shape_get(m->ctx, t.shape)), ap_dtype_str(dtype), ap_shape_text(m, shape));
    return AP_OK;
}

/* ---- given, same ---- */

ap_status infer_none(ap_module *m, ap_node n)
{
    (void)m, (void)n;
    return AP_OK;
}

ap_status infer_same(ap_module *m, ap_node n)
{
    ap_value x = ap_node_at(m, n)->in[0];
    return ap_infer_set(m, n, 0, ap_type_dtype(m->ctx, ap_value_type(m, x)), ap_value_shape(m, x));
}

static ap_status need_type(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    if (ap_value_type(m, node->out[0]) == 0)
        return ap_fail(m->ctx, AP_ERR_BUG, node->loc, "the type of %s must be given", ap_op_get(node->op)->name);
    return AP_OK;
}

ap_status infer_given(ap_module *m, ap_node n)
{
    AP_TRY(need_type(m, n));
    const ap_node_info *node = ap_node_at(m, n);
    const ap_data *d = node->u.constant;
    ap_type type = ap_value_type(m, node->out[0]);
    ap_dtype dtype = ap_type_dtype(m->ctx, type);
    if (!d || d->kind == AP_DATA_NONE)
        return ap_error(m->ctx, node->loc, "a constant without data");
    if (d->dtype != dtype)
        return ap_error(m->ctx, node->loc, "constant data of %s in a value of %s", ap_dtype_str(d->dtype),
                        ap_dtype_str(dtype));
    int64_t want = ap_data_size(m->ctx, d, type);
    if (want < 0)
        return ap_error(m->ctx, node->loc, "the constant is not inside the tensor that it is a part of");
    if (d->size != (uint64_t)want)
        return ap_error(m->ctx, node->loc, "constant data of %" PRIu64 " bytes where the shape asks for %" PRId64,
                        d->size, want);
    return AP_OK;
}

ap_status infer_iota(ap_module *m, ap_node n)
{
    AP_TRY(need_type(m, n));
    const ap_node_info *node = ap_node_at(m, n);
    ap_type type = ap_value_type(m, node->out[0]);
    const ap_shape_info *s = ap_type_shape(m->ctx, type);
    if (node->u.iota.dim >= s->rank)
        return ap_error(m->ctx, node->loc, "iota counts along dimension %d of a value with %d dimensions",
                        node->u.iota.dim, s->rank);
    if (ap_type_dtype(m->ctx, type) == AP_BOOL)
        return ap_error(m->ctx, node->loc, "iota of bool");
    return AP_OK;
}

/* ---- pointwise ---- */

static const char *domain_text(ap_domain d)
{
    static const char *const text[] = {
        [AP_DOMAIN_FLOAT] = "floats",     [AP_DOMAIN_NUMBER] = "numbers", [AP_DOMAIN_INTEGER] = "integers",
        [AP_DOMAIN_BOOLEAN] = "booleans", [AP_DOMAIN_ANY] = "anything",
    };
    return text[d];
}

static bool domain_has(ap_domain d, ap_dtype t)
{
    switch (d) {
    case AP_DOMAIN_FLOAT:
        return ap_dtype_is_float(t);
    case AP_DOMAIN_NUMBER:
        return ap_dtype_is_float(t) || ap_dtype_is_int(t);
    case AP_DOMAIN_INTEGER:
        return ap_dtype_is_int(t);
    case AP_DOMAIN_BOOLEAN:
        return t == AP_BOOL;
    case AP_DOMAIN_ANY:
        return true;
    }
    return false;
}

static ap_status pointwise_dtype(ap_module *m, ap_node n, ap_dtype *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_op_info *info = ap_op_get(node->op);
    bool select = node->op == AP_OP_SELECT;
    ap_dtype first = ap_type_dtype(m->ctx, ap_value_type(m, node->in[select ? 1 : 0]));
    for (uint32_t i = 0; i < node->nin; i++) {
        ap_dtype t = ap_type_dtype(m->ctx, ap_value_type(m, node->in[i]));
        if (select && i == 0) {
            if (t != AP_BOOL)
                return ap_error(m->ctx, node->loc, "the condition is %s, not bool", ap_dtype_str(t));
            continue;
        }
        if (t != first)
            return ap_error(m->ctx, node->loc, "operand types differ: %s and %s", ap_dtype_str(first), ap_dtype_str(t));
        if (!domain_has(info->domain, t))
            return ap_error(m->ctx, node->loc, "%s works on %s, not on %s", info->name, domain_text(info->domain),
                            ap_dtype_str(t));
    }
    *out = info->result == AP_RESULT_BOOLEAN ? AP_BOOL : first;
    if (info->result == AP_RESULT_CAST) {
        AP_TRY(need_type(m, n));
        *out = ap_type_dtype(m->ctx, ap_value_type(m, node->out[0]));
    }
    return AP_OK;
}

static ap_status no_broadcast(ap_module *m, ap_node n, const ap_shape_info *a, const ap_shape_info *b)
{
    return ap_error(m->ctx, ap_node_at(m, n)->loc, "shapes %s and %s do not broadcast", ap_shape_text(m, a),
                    ap_shape_text(m, b));
}

ap_status infer_pointwise(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    ap_dtype dtype = AP_DTYPE_NONE;
    AP_TRY(pointwise_dtype(m, n, &dtype));
    int rank = 0;
    for (uint32_t i = 0; i < node->nin; i++)
        rank = (int)ap_max_i64(rank, ap_value_shape(m, node->in[i])->rank);
    ap_shape_info r;
    ap_shape_init(&r);
    for (int d = 0; d < rank; d++) {
        const ap_shape_info *from = NULL; /* the first operand that has more than one element along d */
        int from_d = 0;
        for (uint32_t i = 0; i < node->nin; i++) {
            const ap_shape_info *s = ap_value_shape(m, node->in[i]);
            int sd = d - (rank - s->rank);
            if (sd < 0 || s->first[sd] == s->first[sd + 1])
                continue;
            if (!from)
                from = s, from_d = sd;
            else if (!ap_shape_same_dim(from, from_d, s, sd))
                return no_broadcast(m, n, from, s);
        }
        if (!ap_shape_open_dim(&r) || (from && !ap_shape_copy_dim(&r, from, from_d)))
            return too_many(m, n);
    }
    return ap_infer_set(m, n, 0, dtype, &r);
}

/* ---- parts of dimensions ---- */

static ap_status slice_check(ap_module *m, ap_node n, const ap_range *r, int64_t extent)
{
    ap_loc loc = ap_node_at(m, n)->loc;
    int64_t last = r->start;
    if (r->count < 0 || r->step == 0)
        return ap_error(m->ctx, loc, "a slice of %" PRId64 " elements with step %" PRId64, r->count, r->step);
    if (r->count == 0)
        return AP_OK;
    bool fits = ap_mul_i64(r->count - 1, r->step, &last) && ap_add_i64(last, r->start, &last);
    if (!fits || r->start < 0 || r->start >= extent || last < 0 || last >= extent)
        return ap_error(m->ctx, loc,
                        "slice from %" PRId64 ", %" PRId64 " elements, step %" PRId64 " leaves the extent %" PRId64,
                        r->start, r->count, r->step, extent);
    return AP_OK;
}

ap_status infer_slice(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *x = ap_value_shape(m, node->in[0]);
    ap_shape_info r;
    ap_shape_init(&r);
    for (int d = 0; d < x->rank; d++) {
        if (!ap_shape_open_dim(&r))
            return too_many(m, n);
        for (int f = x->first[d]; f < x->first[d + 1]; f++) {
            const ap_range *range = &node->u.slice->range[f];
            if (!range->whole)
                AP_TRY(slice_check(m, n, range, x->logical[f]));
            int64_t logical = range->whole ? x->logical[f] : range->count;
            if (!ap_shape_add_factor(&r, logical, range->whole ? x->physical[f] : range->count))
                return too_many(m, n);
            if (!range->whole && range->count != 1)
                ap_shape_take_physical(m, n, &r);
        }
    }
    return ap_infer_set(m, n, 0, ap_type_dtype(m->ctx, ap_value_type(m, node->in[0])), &r);
}

ap_status infer_pad(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *x = ap_value_shape(m, node->in[0]), *fill = ap_value_shape(m, node->in[1]);
    ap_dtype dtype = ap_type_dtype(m->ctx, ap_value_type(m, node->in[0]));
    if (fill->rank != 0)
        return ap_error(m->ctx, node->loc, "the fill of a pad has shape %s, not one element", ap_shape_text(m, fill));
    if (ap_type_dtype(m->ctx, ap_value_type(m, node->in[1])) != dtype)
        return ap_error(m->ctx, node->loc, "the fill of a pad has another element type than the data");
    ap_shape_info r;
    ap_shape_init(&r);
    for (int d = 0; d < x->rank; d++) {
        int64_t lo = node->u.pad->lo[d], hi = node->u.pad->hi[d], extent = 1;
        int nf = x->first[d + 1] - x->first[d];
        if (lo < 0 || hi < 0)
            return ap_error(m->ctx, node->loc, "negative padding: %" PRId64 " and %" PRId64, lo, hi);
        if (!ap_shape_open_dim(&r))
            return too_many(m, n);
        if (lo == 0 && hi == 0) {
            if (!ap_shape_copy_dim(&r, x, d))
                return too_many(m, n);
            continue;
        }
        if (nf > 1)
            return ap_error(m->ctx, node->loc, "a padded dimension is factored: %s", ap_shape_text(m, x));
        if (nf == 1)
            extent = x->logical[x->first[d]];
        if (!ap_add_i64(extent, lo, &extent) || !ap_add_i64(extent, hi, &extent))
            return ap_error(m->ctx, node->loc, "padded extent overflows");
        if (!ap_shape_add_factor(&r, extent, extent))
            return too_many(m, n);
        if (extent != 1)
            ap_shape_take_physical(m, n, &r);
    }
    return ap_infer_set(m, n, 0, dtype, &r);
}

static ap_status concat_operands(ap_module *m, ap_node n, int64_t *out_sum, bool *out_simple, bool *out_equal)
{
    const ap_node_info *node = ap_node_at(m, n);
    int dim = node->u.concat.dim;
    const ap_shape_info *x = ap_value_shape(m, node->in[0]);
    ap_dtype dtype = ap_type_dtype(m->ctx, ap_value_type(m, node->in[0]));
    if (dim >= x->rank)
        return ap_error(m->ctx, node->loc, "concat along dimension %d of a value with %d dimensions", dim, x->rank);
    *out_sum = 0, *out_simple = true, *out_equal = true;
    for (uint32_t i = 0; i < node->nin; i++) {
        const ap_shape_info *s = ap_value_shape(m, node->in[i]);
        ap_dtype t = ap_type_dtype(m->ctx, ap_value_type(m, node->in[i]));
        bool same = s->rank == x->rank;
        for (int d = 0; d < x->rank && same; d++)
            same = d == dim || ap_shape_same_dim(x, d, s, d);
        if (!same)
            return ap_error(m->ctx, node->loc, "shapes %s and %s cannot be concatenated along dimension %d",
                            ap_shape_text(m, x), ap_shape_text(m, s), dim);
        if (t != dtype)
            return ap_error(m->ctx, node->loc, "operand types differ: %s and %s", ap_dtype_str(dtype), ap_dtype_str(t));
        if (!ap_add_i64(*out_sum, ap_shape_dim(s, dim), out_sum))
            return ap_error(m->ctx, node->loc, "concatenated extent overflows");
        *out_simple = *out_simple && s->first[dim + 1] - s->first[dim] <= 1;
        *out_equal = *out_equal && ap_shape_same_dim(x, dim, s, dim);
    }
    return AP_OK;
}

bool ap_concat_stacks(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    ap_type type = ap_value_type(m, node->out[0]);
    if (type == 0 || node->nin < 2)
        return false;
    int d = node->u.concat.dim;
    const ap_shape_info *r = ap_type_shape(m->ctx, type), *x = ap_value_shape(m, node->in[0]);
    if (d >= r->rank || d >= x->rank)
        return false;
    int nx = x->first[d + 1] - x->first[d], nr = r->first[d + 1] - r->first[d];
    return nx > 0 && nr == nx + 1 && r->logical[r->first[d]] == (int64_t)node->nin;
}

static bool add_new_factor(const ap_module *m, ap_node n, ap_shape_info *r, int64_t extent)
{
    if (!ap_shape_add_factor(r, extent, extent))
        return false;
    if (extent != 1)
        ap_shape_take_physical(m, n, r);
    return true;
}

ap_status infer_concat(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    if (node->nin == 0)
        return ap_error(m->ctx, node->loc, "concat of nothing");
    int64_t sum = 0;
    bool simple = false, equal = false, stacks = ap_concat_stacks(m, n);
    AP_TRY(concat_operands(m, n, &sum, &simple, &equal));
    const ap_shape_info *x = ap_value_shape(m, node->in[0]);
    int dim = node->u.concat.dim;
    if (stacks ? !equal : !simple && node->nin > 1)
        return ap_error(m->ctx, node->loc, "concat along a dimension that is factored: %s", ap_shape_text(m, x));
    ap_shape_info r;
    ap_shape_init(&r);
    for (int d = 0; d < x->rank; d++) {
        bool ok = ap_shape_open_dim(&r);
        if (d == dim && stacks)
            ok = ok && add_new_factor(m, n, &r, node->nin);
        if (d == dim && !stacks && node->nin > 1)
            ok = ok && add_new_factor(m, n, &r, sum);
        else
            ok = ok && ap_shape_copy_dim(&r, x, d);
        if (!ok)
            return too_many(m, n);
    }
    return ap_infer_set(m, n, 0, ap_type_dtype(m->ctx, ap_value_type(m, node->in[0])), &r);
}

ap_status infer_reshape(ap_module *m, ap_node n)
{
    AP_TRY(need_type(m, n));
    const ap_node_info *node = ap_node_at(m, n);
    ap_type_info r = ap_type_get(m->ctx, ap_value_type(m, node->out[0]));
    const ap_shape_info *x = ap_value_shape(m, node->in[0]), *y = ap_shape_get(m->ctx, r.shape);
    if (ap_shape_count(x) != ap_shape_count(y))
        return ap_error(m->ctx, node->loc, "%" PRId64 " elements %s cannot become %" PRId64 " elements %s",
                        ap_shape_count(x), ap_shape_text(m, x), ap_shape_count(y), ap_shape_text(m, y));
    return ap_infer_set(m, n, 0, ap_type_dtype(m->ctx, ap_value_type(m, node->in[0])), y);
}

ap_status infer_composite(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    if (node->body == AP_NONE || ap_block_at(m, node->body)->nodes.len == 0)
        return ap_fail(m->ctx, AP_ERR_BUG, node->loc, "a composite without body");
    const ap_block_info *body = ap_block_at(m, node->body);
    const ap_node_info *yield = ap_node_at(m, body->nodes.at[body->nodes.len - 1]);
    if (yield->op != AP_OP_YIELD)
        return ap_error(m->ctx, node->loc, "the body of a composite does not end in yield");
    if (yield->nin != node->nout)
        return ap_error(m->ctx, node->loc, "a composite of %u results yields %u values", node->nout, yield->nin);
    for (uint32_t i = 0; i < node->nout; i++) {
        ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, yield->in[i]));
        AP_TRY(ap_infer_set(m, n, i, t.dtype, ap_shape_get(m->ctx, t.shape)));
    }
    return AP_OK;
}
